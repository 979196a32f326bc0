"""The benchmarks of callers' own meshes and of cuRobo's Functions run, and count rightly."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import curobo, scenes
from benchmarks.__main__ import main

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


@pytest.mark.slow
def test_side_by_side(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curobo", str(checkout), "--rounds", "1", "--meshes", "2", "--batch", "1"]) == 0
    lines = filter(None, capsys.readouterr().out.splitlines()[2:])
    resting, swept, _, _, *cases = lines
    assert "| 2 | 1 | resting | 0 / 0 | 0 / 0 | 0 / 0 | 1.000 | 1.00 to 1.00 |" in resting
    assert "| 2 | 1 | swept |  |  | 0 / 0 | 2.000 | 2.00 to 2.00 |" in swept
    ours = [row.strip("| ").split(" | ")[2] for row in cases]
    assert ours == ["2.11", "0", "0", "0", "0", "0", "1", "0"]


@pytest.mark.slow
def test_wrong_results_are_counted() -> None:
    spheres = scenes.panda(1).spheres
    nothing = curobo.Result(torch.empty, np.zeros(spheres.shape[:3]), np.zeros(spheres.shape))
    far = nothing._replace(cost=np.full(spheres.shape[:3], 0.5))
    costs, gradients, missed = curobo.wrong(spheres, [nothing, far], 2, swept=False)
    assert 0 < costs[0] < costs[1]
    assert gradients[0] == gradients[1] > 0
    assert missed[1] == 0
    moving = curobo.wrong(spheres, [nothing, far], 2, swept=True)
    assert moving[:2] == [[], []]
    assert moving[2][0] > moving[2][1] == 0


def test_scales_are_of_all_and_of_single_paths() -> None:
    ours = np.ones((4, 2, 1))
    ours[3] = 0.0  # not among the single paths
    theirs = np.array([1.0, 2.0, 3.0, 1.0])[:, None, None] * np.ones((4, 2, 1))
    whole, low, high = curobo.scales(theirs, ours)
    assert whole == pytest.approx(7.0 / 3.0)
    assert (low, high) == (pytest.approx(1.2), pytest.approx(2.8))


def test_without_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curobo", str(tmp_path)]) == 2
    assert "git clone" in capsys.readouterr().err


def test_callers_own_meshes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--meshes", "1", "--batch", "1", "--seconds", "0"]
    assert main(["external", *arguments]) == 0
    rows = capsys.readouterr().out.splitlines()[2:4]
    assert [row.split("|")[3].strip() for row in rows] == ["resting", "swept"]
