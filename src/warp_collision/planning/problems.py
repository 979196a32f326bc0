"""A batch of planning problems, and the collision checks of their paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warp_collision.planning.descent import straight_lines
from warp_collision.planning.ends import bad_ends, reason
from warp_collision.robot import RobotSpheres, SelfCollisionPairs, joint_path_in_collision
from warp_collision.world import MeshWorld


@dataclass(frozen=True)
class Problems:
    """The problems of one call, with the options of all collision checks."""

    robot: RobotSpheres
    world: MeshWorld
    start: Tensor  # (batch, n_joints)
    goal: Tensor
    env_index: Tensor | None  # (batch,) int32
    margin: float
    comfort: float  # [m], preferred clearance
    self_collision: bool | SelfCollisionPairs
    ignore: tuple[tuple[str, str], ...]  # allowed contacts
    base_pose: Tensor | None  # (batch, 7) of the root link in the world
    limits: Tensor  # (n_joints, 2) on the device

    def world_of(self, problem: Tensor | slice) -> dict[str, Any]:
        """Arguments of checks that select the env and base of problems (n,), by name."""
        env_index, base_pose = self.env_index, self.base_pose
        return {
            "ignore": self.ignore,
            "env_index": None if env_index is None else env_index[problem],
            "base_pose": None if base_pose is None else base_pose[problem],
        }

    def is_free(self, paths: Tensor, problem: Tensor, tolerance: float | None = None) -> Tensor:
        """Whether paths (n, horizon, n_joints) of problems (n,) are proven free, (n,) bool."""
        return ~joint_path_in_collision(
            paths,
            self.robot,
            self.world,
            tolerance=self.margin if tolerance is None else tolerance,
            self_collision=self.self_collision,
            **self.world_of(problem),
        ).any(1)

    def within_limits(self, paths: Tensor) -> Tensor:
        """The paths with their inner waypoints clamped to the joint limits."""
        paths = paths.clone()
        paths[:, 1:-1].clamp_(self.limits[:, 0], self.limits[:, 1])
        return paths


class FreePaths:
    """The free paths found so far.

    Args:
        problems: all problems.
        horizon: waypoints of a path.

    Attributes:
        paths: free paths, one tensor per call of `add`.
        problem: the problems of these paths.
        count: (batch,) number of free paths of each problem.
        first: (batch,) iteration of the first one, -1 if there is none.
        lines: (batch, horizon, n_joints), the straight lines.
    """

    def __init__(self, problems: Problems, horizon: int):
        batch = len(problems.start)
        self.paths: list[Tensor] = []
        self.problem: list[Tensor] = []
        self.count = torch.zeros(batch, dtype=torch.int64, device=problems.start.device)
        self.first = torch.full_like(self.count, -1)
        self.lines = straight_lines(problems.start, problems.goal, horizon)

    def add(self, paths: Tensor, problem: Tensor, iteration: int) -> None:
        """Adds free paths (n, horizon, n_joints) of problems (n,)."""
        self.paths.append(paths)
        self.problem.append(problem)
        new = torch.bincount(problem, minlength=len(self.count))
        self.first[(self.count == 0) & (new > 0)] = iteration
        self.count += new


def check_ends(problems: Problems, on_bad_ends: str) -> Tensor:
    """Which problems (batch,) have valid ends."""
    good = torch.ones(len(problems.start), dtype=torch.bool, device=problems.start.device)
    rules: dict[str, Any] = {
        "margin": problems.margin,
        "self_collision": problems.self_collision,
    }
    for name, ends in (("start", problems.start), ("goal", problems.goal)):
        everywhere = problems.world_of(slice(None))
        bad = bad_ends(ends, problems.robot, problems.world, **rules, **everywhere)
        good &= ~bad
        if on_bad_ends == "raise" and bool(bad.any()):
            row = int(bad.int().argmax())
            only = slice(row, row + 1)
            there = problems.world_of(only)
            why = reason(ends[only], problems.robot, problems.world, **rules, **there)
            raise ValueError(
                f"{name} must be free and within joint limits, got batch row {row}: {why}"
            )
    return good
