"""A batch of planning problems, and the collision checks of their paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.checks.joint_path import robot_tables
from warp_collision.robot.checks.path_operands import PathOperands
from warp_collision.robot.checks.path_operators import (
    bytes_of_paths,
    run_clearance,
    run_clearance_of_shapes,
    run_paths_at_rest,
    run_paths_of_shapes_at_rest,
)
from warp_collision.robot.model.base_pose import root_frames
from warp_collision.robot.model.sphere_layout import RobotTables
from warp_collision.world import MeshWorld
from warp_collision.world.scene import Scene

ROUNDING = 1.0e-5  # of limits [rad or m]

# Tables of the robot, and of the pairs of its spheres that are checked.
_Checked = tuple[RobotTables, tuple[Tensor | None, Tensor | None]]


T = TypeVar("T")


class _Known(Generic[T]):
    """A property that is kept in `Problems.known`."""

    def __init__(self, make: Callable[[Any], T]):
        self._make, self.__doc__ = make, make.__doc__

    def __get__(self, problems: Any, owner: type | None = None) -> T:
        if problems is None:
            return self  # pyright: ignore[reportReturnType]
        known, name = problems.known, self._make.__name__
        if name not in known:
            known[name] = self._make(problems)
        return known[name]


@dataclass(frozen=True)
class Problems:
    """The problems of one call, with the options of all collision checks."""

    robot: RobotSpheres
    world: MeshWorld
    start: Tensor  # (batch, n_joints)
    goal: Tensor
    env_index: Tensor | None  # (batch,) int32
    margin: float  # [m], which paths are to keep
    margins: Tensor  # (1,) for all, or (batch,) [m], which they keep: less where an end is nearer
    preferred_clearance: float  # [m]
    self_collision: bool | SelfCollisionPairs
    ignore: tuple[tuple[str, str], ...]  # allowed contacts
    base_pose: Tensor | None  # (batch, 7) of the root link in the world
    shapes: Literal["spheres", "exact"]  # what of a link touches an obstacle
    has_smaller_margins: bool = False  # whether some `margins` may be less than `margin`
    limits_of_time: MotionLimits | None = None  # of plans for the time, not the length
    # What depends on the robot and the options alone, from one call of a planner to the next.
    known: dict[str, Any] = field(default_factory=dict)

    @_Known
    def limits(self) -> Tensor:
        """Limits (n_joints, 2) of the joints, on the device."""
        return self.robot.joint_limits.to(self.start.device).clone()

    @_Known
    def widened_limits(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest joint values (n_joints,) of starts and goals, up to rounding."""
        low, high = self.limits.unbind(-1)
        return low - ROUNDING, high + ROUNDING

    @_Known
    def joint_range(self) -> Tensor:
        """Lowest and highest values (2, n_joints) that joints are sampled in.

        Of continuous joints one revolution.
        """
        return torch.nan_to_num(
            self.limits, nan=0.0, posinf=math.pi, neginf=-math.pi
        ).T.contiguous()

    @_Known
    def pace(self) -> Tensor:
        """What joints take for their motion (n_joints,) [s/rad, s/m]; (0,) where lengths count."""
        if self.limits_of_time is None:
            return self.start.new_empty(0)
        return torch.from_numpy(self.limits_of_time.pace).to(self.start)

    @property
    def checked_pairs(self) -> bool | SelfCollisionPairs:
        """The pairs that are checked; False for none."""
        return self.robot.default_pairs if self.self_collision is True else self.self_collision

    @cached_property
    def changing_pairs(self) -> bool | SelfCollisionPairs:
        """The pairs whose clearance a path can change, of which clearances are preferred."""
        pairs = self.checked_pairs
        if not isinstance(pairs, SelfCollisionPairs):
            return pairs
        return pairs.changing(
            float(self.margins.min()) if self.has_smaller_margins else self.margin
        )

    @cached_property
    def _roots(self) -> Tensor | None:
        """The root frames (batch, 1, 18) of the problems."""
        return root_frames(self.base_pose, self.start[:, None], 1)

    @_Known
    def _all_pairs(self) -> _Checked:
        return robot_tables(self.robot, self.self_collision, self.start.device)

    @_Known
    def _usual_changing_pairs(self) -> _Checked:
        return robot_tables(self.robot, self.changing_pairs, self.start.device)

    @cached_property
    def _changing_pairs(self) -> _Checked:
        if not self.has_smaller_margins:
            return self._usual_changing_pairs
        return robot_tables(self.robot, self.changing_pairs, self.start.device)

    @property
    def wanted(self) -> tuple[Tensor | None, ...]:
        """By what paths are compared: two tables of pairs, the preferred clearance, the pace."""
        return *self._changing_pairs[1], self._preferred_clearance, self.pace

    @_Known
    def _preferred_clearance(self) -> Tensor:
        return self.start.new_full((1,), self.preferred_clearance)

    def _margins_of(self, problem: Tensor) -> Tensor:
        """The margins, (1,) or those of problems (n,)."""
        return self.margins if len(self.margins) == 1 else self.margins[problem]

    def _hits(
        self,
        paths: Tensor,
        problem: Tensor,
        tolerance: Tensor,
        checked: _Checked,
        n_segments: Tensor | None = None,
        degree: int = 1,
    ) -> Tensor:
        """Segments (n, horizon - 1) of paths that are not proven to keep a clearance (1,) or (n,).

        As `joint_path_in_collision`, with arguments that are valid; of curves of a higher degree
        the paths are control points.
        """
        operands = self._operands(paths, problem, checked, degree)
        run = run_paths_of_shapes_at_rest if self.shapes == "exact" else run_paths_at_rest
        return run(operands, tolerance, n_segments)

    def _operands(
        self, paths: Tensor, problem: Tensor, checked: _Checked, degree: int
    ) -> PathOperands:
        """What a check of paths of problems (n,) reads."""
        robot, pairs = checked
        scene, env_index, base = self._scene_of(problem)
        return PathOperands(paths.contiguous(), scene, env_index, base, robot, pairs, degree)

    def _scene_of(self, problem: Tensor) -> tuple[Scene, Tensor | None, Tensor | None]:
        """The obstacles, the envs (n,) of problems (n,), and root frames (n, 1, 18)."""
        scene = scene_with_contacts(self.ignore, self.robot, self.world)
        env_index = None if self.env_index is None else self.env_index[problem]
        base = None if self._roots is None else self._roots[problem].contiguous()
        return scene, env_index, base

    @property
    def are_in_lanes(self) -> bool:
        """Whether the motions of trees are checked in the lanes of a CPU alone."""
        return self.shapes == "spheres" and self.start.device == CPU

    def in_lanes(self, problem: Tensor, n_bytes: int) -> tuple[Any, ...]:
        """What a thread for each of problems (n,) checks motions by, and its scratch memory.

        That has so many bytes more.
        """
        robot, pairs = self._all_pairs
        scene, env_index, base = self._scene_of(problem)
        sizes = len(robot.frames), robot.n_bodies, len(robot.spheres), self.robot.n_joints
        scratch = torch.empty((len(problem), n_bytes + bytes_of_paths(*sizes)), dtype=torch.uint8)
        margins = self._margins_of(problem)
        return env_index, scene.completed(), robot, base, *pairs, margins, scratch

    def world_of(self, problem: Tensor | slice) -> dict[str, Any]:
        """Arguments of checks that select the env and base of problems (n,), by name."""
        env_index, base_pose = self.env_index, self.base_pose
        return {
            "ignore": self.ignore,
            "env_index": None if env_index is None else env_index[problem],
            "base_pose": None if base_pose is None else base_pose[problem],
        }

    def hits(
        self,
        paths: Tensor,
        problem: Tensor,
        n_segments: Tensor | None = None,
        margins: Tensor | None = None,
    ) -> Tensor:
        """Segments (n, horizon - 1) of paths of problems (n,) that are not proven free.

        With numbers of segments (n,) int32 each path is followed to the first hit alone, see
        `run_paths_at_rest`. With margins (n,) these are kept instead of those of the problems.
        """
        tolerance = self._margins_of(problem) if margins is None else margins
        return self._hits(paths, problem, tolerance, self._all_pairs, n_segments)

    def is_free(self, paths: Tensor, problem: Tensor) -> Tensor:
        """Whether paths (n, horizon, n_joints) of problems (n,) are proven free, (n,) bool."""
        return ~self.hits(paths, problem).any(1)

    def curve_hits(
        self, points: Tensor, problem: Tensor, degree: int, margin: Tensor | None = None
    ) -> Tensor:
        """Pieces (n, pieces) of curves that are not proven free, see `JointCurve.points`.

        With a margin (1,) it is kept instead of those of the problems.
        """
        tolerance = self._margins_of(problem) if margin is None else margin
        return self._hits(points, problem, tolerance, self._all_pairs, degree=degree)

    def curve_clearance(self, points: Tensor, problem: Tensor, degree: int) -> Tensor:
        """Lower bounds (n, 2) of clearances of curves, within the margin [m].

        That to the world, and that of the pairs whose clearance a path can change.
        """
        operands = self._operands(points, problem, self._changing_pairs, degree)
        run = run_clearance_of_shapes if self.shapes == "exact" else run_clearance
        bounds, _ = run(operands, points.new_full((1,), self.margin))
        return bounds[..., 0].amin(1)

    def near(self, paths: Tensor, problem: Tensor, n_segments: Tensor | None = None) -> Tensor:
        """Segments that may be nearer than the preferred clearance; arguments as for `hits`."""
        tolerance, pairs = self._preferred_clearance, self._changing_pairs
        return self._hits(paths, problem, tolerance, pairs, n_segments)

    def hits_where_near(self, paths: Tensor, problem: Tensor, near: Tensor) -> Tensor:
        """`hits` of those segments that are `near` (n, horizon - 1); the others are hits too.

        Segments that keep the preferred clearance keep the margin, which pairs of spheres at a
        constant clearance above it keep everywhere.
        """
        motions = torch.stack((paths[:, :-1], paths[:, 1:]), dim=2).flatten(0, 1)
        owner = problem.repeat_interleave(near.shape[1])
        return self.hits(motions, owner, near.flatten().int()).view_as(near)

    def within_limits(self, paths: Tensor) -> Tensor:
        """The paths with their inner waypoints clamped to the joint limits."""
        paths = paths.clone()
        paths[:, 1:-1].clamp_(self.limits[:, 0], self.limits[:, 1])
        return paths
