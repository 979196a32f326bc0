"""What `shapes="exact"` costs beside spheres alone, where these suffice and where they do not.

Robots of other packages among boxes, many rows at once and one at a time: *free* by spheres, or
*refused* by them and free by shapes. Links that no joint moves may touch obstacles.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

import warp_collision as wc
from benchmarks import harness
from benchmarks.harness import Call, Workload, require
from benchmarks.robot_shapes import Judged, motions_from, scene
from benchmarks.robots import URDFS
from warp_collision.robot import RobotChecker

SHAPES = ("spheres", "exact")
COUNT = 2000  # configurations that are looked at


class Case:
    """A robot among boxes; all queries by name, as functions of rows and of shapes."""

    def __init__(self, name: str, scale: float):
        judged = Judged(name)
        self._robot, self._world = judged.robot, scene("boxes", 0, judged.reach).world
        options: Any = {"ignore": judged.allowed(self._world)}
        given = {"robot": judged.robot, "world": self._world, **options}
        self._hit = partial(wc.configuration_in_collision, **given)
        self._blocked = partial(wc.joint_path_in_collision, **given)
        self._clearance = partial(wc.joint_path_clearance, **given)
        self._checkers = {
            shapes: RobotChecker(self._robot, self._world, shapes=shapes, **options)
            for shapes in SHAPES
        }
        self._joints = judged.random(max(200, round(COUNT * scale)), 0)[:, None]
        self._motions = motions_from(self._joints[:, 0], 0)

    def workloads(self) -> Iterator[tuple[str, str, Callable[..., Tensor], Tensor]]:
        """Name, unit, function of rows (n, ...) and shapes, and the rows."""
        for what in ("free", "refused"):
            resting = self._those(self._joints, self._hit, what)
            moving = self._those(self._motions, self._blocked, what)
            one, step = resting[:1].clone(), moving[:1].clone()
            yield f"{what}, many", "configuration", self._hit, resting
            yield f"{what}, many", "motion", self._blocked, moving
            yield f"{what}, one", "configuration", self._hit, one
            yield f"{what}, one", "motion", self._blocked, step
            yield f"{what}, RobotChecker", "configuration", self._checked(0), one
            yield f"{what}, RobotChecker", "motion", self._checked(1), step
            yield f"{what}, joint_path_clearance", "motion", self._cleared, moving[:8].clone()

    @staticmethod
    def _those(rows: Tensor, query: Callable[..., Tensor], what: str) -> Tensor:
        """Rows that are free by spheres, or by shapes alone."""
        by_spheres, by_shapes = (query(rows, shapes=shapes)[:, 0] for shapes in SHAPES)
        found = rows[~by_spheres if what == "free" else by_spheres & ~by_shapes]
        require(len(found), f"none is {what}")
        return found

    def _checked(self, index: int) -> Callable[..., Tensor]:
        def query(rows: Tensor, shapes: str) -> Tensor:
            checker = self._checkers[shapes]
            calls = checker.configuration_in_collision, checker.path_in_collision
            return calls[index](rows)

        return query

    def _cleared(self, rows: Tensor, shapes: str) -> Tensor:
        return self._clearance(rows, shapes=shapes).lower


def workloads(options: Any) -> Iterator[Workload]:
    """Those of all robots."""
    for name in options.robots:
        for what, unit, query, rows in Case(name, options.scale).workloads():
            calls = {s: Call(partial(query, rows, shapes=s), len(rows)) for s in SHAPES}
            yield Workload(f"{name}, {what}", unit, lambda calls=calls: calls)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds which robots."""
    parser.add_argument("--robots", nargs="+", choices=[*URDFS], default=["ur5"], metavar="NAME")
    harness.timing_options(parser)


def run(options: Any) -> str:
    """The table."""
    return harness.measure(workloads(options), options)
