"""The benchmarks of callers' own meshes and of cuRobo's Functions run, and count rightly."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks import curobo, foreign

# A stand-in with the interface of the checkout: its second Function is twice as dear.
STAND_IN = """
import torch
from warp_collision.warp_primitives import SdfMeshWarpPy, SweptSdfMeshWarpPy as Swept


class SweptSdfMeshWarpPy:
    @staticmethod
    def apply(*arguments):
        return Swept.apply(*arguments[:4], 2.0 * arguments[4], *arguments[5:])
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "src"
    for name in ("curobo", "geom", "sdf"):
        folder /= name
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (folder / "warp_primitives.py").write_text(STAND_IN)
    paths, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = paths
    for name in set(sys.modules) - modules:
        if name.startswith("curobo"):
            del sys.modules[name]


def test_side_by_side(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert curobo.main([str(checkout), "--meshes", "2", "--batch", "1"]) == 0
    resting, swept = capsys.readouterr().out.splitlines()[2:]
    assert "| 2 | 1 | resting | 0 / 0 | 0 / 0 | 1.000 |" in resting
    assert "| 2 | 1 | swept |  |  | 2.000 |" in swept


def test_wrong_results_are_counted() -> None:
    spheres = foreign.make_buffers(1, curobo.torch.device("cpu")).spheres.numpy()
    nothing = np.zeros(spheres.shape[:3]), np.zeros(spheres.shape)
    far = np.full(spheres.shape[:3], 0.5), np.zeros(spheres.shape)
    costs, gradients = curobo.wrong(spheres, [nothing, far], 2)
    assert 0 < costs[0] < costs[1]
    assert gradients[0] == gradients[1] > 0


def test_without_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert curobo.main([str(tmp_path)]) == 2
    assert "git clone" in capsys.readouterr().err


def test_callers_own_meshes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--meshes", "1", "--batch", "1", "--seconds", "0"]
    assert foreign.main(arguments) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[3].strip() for row in rows] == ["resting", "swept"]
