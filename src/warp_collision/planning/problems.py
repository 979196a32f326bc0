"""A batch of planning problems, and the collision checks of their paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warp_collision.planning.descent import straight_lines
from warp_collision.robot import RobotSpheres, SelfCollisionPairs, joint_path_in_collision
from warp_collision.world import MeshWorld

# Whether the straight joint motions (n, horizon, n_joints) of rows (n,) are proven free, (n,) bool.
Certificate = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problems:
    """The problems of one call, with the options of all collision checks."""

    robot: RobotSpheres
    world: MeshWorld
    start: Tensor  # (batch, n_joints)
    goal: Tensor
    env_index: Tensor | None  # (batch,) int32
    margin: float
    preferred_clearance: float  # [m]
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

    def is_free(
        self, paths: Tensor, problem: Tensor | slice, tolerance: float | None = None
    ) -> Tensor:
        """Whether paths (n, horizon, n_joints) of problems (n,) are proven free, (n,) bool."""
        return ~joint_path_in_collision(
            paths,
            self.robot,
            self.world,
            tolerance=self.margin if tolerance is None else tolerance,
            self_collision=self.self_collision,
            **self.world_of(problem),
        ).any(1)

    def certificate(self, problem: Tensor, tolerance: float | None = None) -> Certificate:
        """`is_free` of motions by the rows of paths that they are from, of problems (n,)."""
        return lambda motions, rows: self.is_free(motions, problem[rows], tolerance)

    def within_limits(self, paths: Tensor) -> Tensor:
        """The paths with their inner waypoints clamped to the joint limits."""
        paths = paths.clone()
        paths[:, 1:-1].clamp_(self.limits[:, 0], self.limits[:, 1])
        return paths


class FreePaths:
    """The free paths found so far.

    Args:
        problems: all problems.
        horizon: see the attribute.

    Attributes:
        horizon: waypoints of a path.
        paths: free paths, one tensor per call of `add`.
        problem: the problems of these paths.
        count: (batch,) number of free paths of each problem.
        first: (batch,) iteration of the first one, -1 if there is none.
        lines: (batch, horizon, n_joints), the straight lines.
    """

    def __init__(self, problems: Problems, horizon: int):
        self.horizon, batch = horizon, len(problems.start)
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
