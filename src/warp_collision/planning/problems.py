"""Planning problems of a batch, and the certificate that all their paths have to have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warp_collision.planning.ends import bad_ends, reason
from warp_collision.robot import RobotSpheres, SelfCollisionPairs, joint_path_in_collision
from warp_collision.world import MeshWorld


@dataclass(frozen=True)
class Problems:
    """The problems of a call, and the certificate that all paths have to have."""

    robot: RobotSpheres
    world: MeshWorld
    start: Tensor  # (batch, n_joints)
    goal: Tensor
    env_index: Tensor | None  # (batch,) int32
    margin: float
    comfort: float  # [m], preferred clearance
    self_collision: bool | SelfCollisionPairs
    limits: Tensor  # (n_joints, 2) on the device

    def envs(self, problem: Tensor) -> Tensor | None:
        """The envs (n,) of problems (n,)."""
        return None if self.env_index is None else self.env_index[problem]

    def is_free(self, paths: Tensor, problem: Tensor, tolerance: float | None = None) -> Tensor:
        """Whether paths (n, horizon, n_joints) of problems (n,) are proven free, (n,) bool."""
        return ~joint_path_in_collision(
            paths,
            self.robot,
            self.world,
            tolerance=self.margin if tolerance is None else tolerance,
            self_collision=self.self_collision,
            env_index=self.envs(problem),
        ).any(1)

    def within_limits(self, paths: Tensor) -> Tensor:
        """The paths with their inner waypoints moved to the joint limits they are beyond."""
        paths = paths.clone()
        paths[:, 1:-1].clamp_(self.limits[:, 0], self.limits[:, 1])
        return paths


def check_ends(problems: Problems, on_bad_ends: str) -> Tensor:
    """Which problems (batch,) have ends that a free path can have."""
    good = torch.ones(len(problems.start), dtype=torch.bool, device=problems.start.device)
    rules = {"margin": problems.margin, "self_collision": problems.self_collision}
    for name, ends in (("start", problems.start), ("goal", problems.goal)):
        bad = bad_ends(ends, problems.robot, problems.world, env_index=problems.env_index, **rules)
        good &= ~bad
        if on_bad_ends == "raise" and bool(bad.any()):
            row = int(bad.int().argmax())
            index = problems.env_index
            why = reason(
                ends[row : row + 1],
                problems.robot,
                problems.world,
                env_index=None if index is None else index[row : row + 1],
                **rules,
            )
            raise ValueError(
                f"{name} must be free and within joint limits, got batch row {row}: {why}"
            )
    return good
