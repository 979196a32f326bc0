"""The way of small calls: how many functions of the package, in how many files, each goes through.

What a small call costs is mostly Python. The numbers are bounds, to be lowered with each detour
that goes.
"""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import warp_collision
from warp_collision import (
    Cuboid,
    MeshWorld,
    checking,
    in_collision,
    joint_path_in_collision,
    sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths
from warp_collision.robot import RobotChecker

PACKAGE = str(Path(warp_collision.__file__).parent)
# Frees what is waiting for launches to end, which other tests may have left.
OTHERS = "deferred_free.py"
WARM = 17  # calls; a robot looks at the units of its first 16


def way_of(call: Callable[[], Any]) -> tuple[int, int]:
    """How many Python functions of the package a call runs, and in how many files, once warm.

    The least of three counts: garbage of other tests may be collected in one of them. As other
    tests, and many a user, have had the values of tensors checked, this process has too: operands
    ask from then on whether they are to be.
    """
    with checking():
        pass
    for _ in range(WARM):
        call()
    return min(counted(call) for _ in range(3))


def counted(call: Callable[[], Any]) -> tuple[int, int]:
    """How many functions, and in how many files, one call runs."""
    files: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and not file.endswith(OTHERS):
            files.append(file)

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(files), len(set(files))


@pytest.fixture(scope="module")
def calls() -> dict[str, Callable[[], Any]]:
    """Small calls by name."""
    world, robot = MeshWorld(max_obstacles=64, device="cpu"), load_panda()
    world.add("table", Cuboid((1.2, 0.8, 0.04)))
    spheres = torch.full((1, 8, 20, 4), 0.1)
    path = torch.tensor([[[0.0, -0.5, 0.0, -2.0, 0.0, 1.5, 0.8], [0.1, -0.5, 0, -2, 0, 1.5, 0.8]]])
    tight = MeshWorld(device="cpu")  # the straight segment hits the post
    tight.add("post", Cuboid((0.1, 0.1, 0.6)), (0.5, 0.0, 0.3, 1, 0, 0, 0))
    start = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
    goal = torch.tensor([[0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
    checker, count = RobotChecker(robot, world), itertools.count(1)
    return {
        "sphere_cost": lambda: sphere_cost(spheres, world),
        "in_collision": lambda: in_collision(spheres, world),
        "joint_path_in_collision": lambda: joint_path_in_collision(path, robot, world),
        "optimize_paths": lambda: optimize_paths(
            *(start, goal, robot, tight),
            until="first",
            generator=torch.Generator().manual_seed(3),
        ),
        "RobotChecker": lambda: checker.path_in_collision(path),
        "add": lambda: world.add(f"box {(index := next(count))}", Cuboid((0.1, 0.2, 0.01 * index))),
    }


@pytest.mark.parametrize(
    ("name", "functions", "files"),
    [
        ("sphere_cost", 30, 11),
        ("in_collision", 27, 12),
        ("joint_path_in_collision", 48, 18),
        ("optimize_paths", 700, 31),
        ("RobotChecker", 23, 12),
        ("add", 60, 16),
    ],
)
def test_ways(name: str, functions: int, files: int, calls: dict[str, Callable[[], Any]]) -> None:
    ways = way_of(calls[name])
    assert ways[0] <= functions, f"{name}: {ways[0]} calls of functions in {ways[1]} files"
    assert ways[1] <= files, f"{name}: {ways[0]} calls of functions in {ways[1]} files"
