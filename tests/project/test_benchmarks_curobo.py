"""The benchmark of cuRobo's Functions runs with a stand-in for them, and counts rightly."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks import curobo
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
    few = ["--rounds", "1", "--seconds", "0.01", "--scale", "0.01"]
    assert main(["curobo", str(checkout), *few, "--only", "resting, 1 ", "swept, 5 "]) == 0
    printed = capsys.readouterr().out
    assert "cuRobo: 1.000 of our costs, by path 1.00 to 1.00, 0 contacts missed" in printed
    assert "cuRobo: 2.000 of our costs, by path 2.00 to 2.00, 0 contacts missed" in printed
    cases = printed.partition("| on purpose |")[2].strip().splitlines()[2:]
    ours = [row.strip("| ").split(" | ")[1] for row in cases]
    assert ours == ["2.11", "0", "0", "0", "0"]


def test_costs_are_compared_as_a_whole_and_by_paths() -> None:
    ours = np.ones((4, 2, 1))
    ours[3] = 0.0  # not among the single paths
    theirs = np.array([1.0, 2.0, 3.0, 1.0])[:, None, None] * np.ones((4, 2, 1))
    theirs[0, 0] = 0.0
    assert "2.167 of our costs, by path 0.80 to 2.80, 1 contacts missed" in curobo.compared(
        theirs, ours
    )


def test_without_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curobo", str(tmp_path)]) == 2
    assert "git clone" in capsys.readouterr().err
