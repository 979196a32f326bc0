"""Collision checks of robots as torch operators: `torch.ops.warp_collision.*`.

They have no derivative; callers pass detached tensors. The eager path calls the `run_*` functions,
without the dispatcher. They are not in `queries`, as obstacles that move are checked by way of
the robot's own motion, which is above it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.kernels import joint_path as kernels
from warp_collision.kernels import path_clearance as clearance_kernels
from warp_collision.launching.launch import launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.queries.operator import one_by_one, over_envs
from warp_collision.robot.allowed_contacts import Part
from warp_collision.robot.interpolation import segments_of
from warp_collision.robot.moving_obstacles import Check, checks
from warp_collision.robot.robot_tables import FRAME_POSE, STATE, RobotTables
from warp_collision.world.acceleration import with_acceleration

_NO_PAIRS = (None, None)


class PathOperands(NamedTuple):
    """What all checks of a robot read, for one part of the scene; see `contact_parts`.

    Attributes:
        joints: (batch, horizon, n_joints) float32.
        scene: tables of the obstacles.
        env_index: (batch,) int32, or None.
        base: of the root link, None for the origin: for configurations `MovingFrame`, (batch or 1,
            horizon or 1, 18); for paths poses (batch or 1, 7) float64.
        robot: tables of the robot.
        pairs: tables of the pairs for self-collision; or None, None.
        is_first: whether this part of the scene includes self-collision.
    """

    joints: Tensor
    scene: SceneTables
    env_index: Tensor | None
    base: Tensor | None
    robot: RobotTables
    pairs: tuple[Tensor | None, Tensor | None]
    is_first: bool

    def flat(self) -> tuple[Any, ...]:
        """The arguments of operators."""
        scene = self.scene.at(self.scene.mesh_from_world.detach()).operands()
        robot, first = self.robot.operands(), self.is_first
        return self.joints, *scene, self.env_index, self.base, *robot, *self.pairs, first

    @classmethod
    def of(cls, *args: Any) -> PathOperands:
        """From the arguments of operators, and perhaps more."""
        joints, scene, robot = args[0].contiguous(), SceneTables(*args[1:7]), args[9:15]
        robot = RobotTables.of(*robot)
        return cls(joints, scene, args[7], args[8], robot, args[15:17], args[17])

    def checks(self) -> Iterator[Check]:
        """The launches of a check of paths."""
        base = self.base
        if base is not None and len(base) == 1:
            base = base[0]
        part = Part(self.scene, frozenset() if self.is_first else frozenset({""}))
        return checks(part, self.joints, base, self.env_index)


def run_configurations(operands: PathOperands) -> Tensor:
    """Which configurations collide: (batch, horizon) bool."""
    joints, scene, env_index, base, robot, pairs, _ = operands
    rows = joints.shape[:2]
    frame_poses = joints.new_empty((*rows, robot.frames.shape[0], FRAME_POSE))
    balls = joints.new_empty((*rows, robot.n_bodies, 4))
    hit = joints.new_empty(rows, dtype=torch.bool)
    kernel, n_queries = kernels.configuration_hit, rows.numel() * robot.n_bodies
    launch(
        kernel,
        rows,
        *(joints, env_index, with_acceleration(scene, kernel, n_queries), robot, base),
        *(*pairs, frame_poses, balls, hit),
        device=joints.device,
        items=16 * rows.numel(),
    )
    return hit


def run_paths(operands: PathOperands, tolerance: Tensor) -> Tensor:
    """Which segments are not proven free: (batch, horizon - 1) bool."""
    joints, segments = operands.joints, segments_of(operands.joints)
    states = joints.new_empty((*segments, operands.robot.frames.shape[0], STATE))
    hits = []
    for check in operands.checks():
        hit = joints.new_empty(segments, dtype=torch.bool)
        launch(
            kernels.joint_path_hit,
            segments,
            *(joints, operands.env_index, check.scene, operands.robot, check.base),
            *(operands.pairs if check.with_itself else _NO_PAIRS),
            *(tolerance, states, hit),
            device=joints.device,
            items=256 * segments[0] * segments[1],
        )
        hits.append(hit)
    return functools.reduce(torch.logical_or, hits)


def run_clearance(operands: PathOperands, tolerance: Tensor) -> tuple[Tensor, ...]:
    """The columns of `JointPathClearance`, each (batch, horizon - 1)."""
    joints, segments = operands.joints, segments_of(operands.joints)
    states = joints.new_empty((*segments, operands.robot.frames.shape[0], STATE))
    found = []
    for check in operands.checks():
        bounds, self_bounds = (joints.new_empty((*segments, 3)) for _ in range(2))
        nearest, self_nearest = (
            joints.new_empty((*segments, 2), dtype=torch.int32) for _ in range(2)
        )
        launch(
            clearance_kernels.joint_path_clearance,
            segments,
            *(joints, operands.env_index, check.scene, operands.robot, check.base),
            *(operands.pairs if check.with_itself else _NO_PAIRS),
            *(tolerance, states, bounds, nearest, self_bounds, self_nearest),
            device=joints.device,
            items=1024 * segments[0] * segments[1],
        )
        outputs = bounds, nearest, self_bounds, self_nearest
        columns = tuple(c for output in outputs for c in output.unbind(-1))
        found.append((*columns[:4], check.mesh(columns[4]), *columns[5:]))
    return functools.reduce(with_other_obstacles, found)


def with_other_obstacles(own: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Minimum of the columns of two clearances to different obstacles; NaN if one of them is."""
    is_nearer = ~(other[1] >= own[1])
    places = (torch.where(is_nearer, b, a) for a, b in zip(own[2:5], other[2:5], strict=True))
    return torch.minimum(own[0], other[0]), torch.minimum(own[1], other[1]), *places, *own[5:]


# -- operators ----------------------------------------------------------------------------------

_SCENE = (
    "Tensor mesh_ids, Tensor mesh_from_world, Tensor enabled, Tensor n_meshes, Tensor? records, "
    "Tensor? padding, Tensor? env_index"
)
_ROBOT = "Tensor frames, Tensor bodies, Tensor ranges, Tensor spheres, float reach, int n_envs"
_OPERANDS = (
    f"Tensor joints, {_SCENE}, Tensor? base, {_ROBOT}, Tensor? body_pairs, Tensor? pairs, "
    "bool is_first"
)
_N_OPERANDS, _BASE, _N_ENVS = 18, 8, 14


@torch.library.custom_op(
    "warp_collision::configuration_in_collision", mutates_args=(), schema=f"({_OPERANDS}) -> Tensor"
)
def configuration_in_collision(*operands: Any) -> Tensor:
    """Which configurations collide; see `PathOperands`."""
    return run_configurations(PathOperands.of(*operands))


@torch.library.custom_op(
    "warp_collision::joint_path_in_collision",
    mutates_args=(),
    schema=f"({_OPERANDS}, Tensor tolerance) -> Tensor",
)
def joint_path_in_collision(*operands: Any) -> Tensor:
    """Which segments are not proven free."""
    return run_paths(PathOperands.of(*operands), operands[_N_OPERANDS])


@torch.library.custom_op(
    "warp_collision::joint_path_clearance",
    mutates_args=(),
    schema=f"({_OPERANDS}, Tensor tolerance) -> (Tensor, Tensor)",
)
def joint_path_clearance(*operands: Any) -> tuple[Tensor, Tensor]:
    """The columns of `JointPathClearance`, those of float32 (..., 6) and of int32 (..., 4)."""
    found = run_clearance(PathOperands.of(*operands), operands[_N_OPERANDS])
    lengths, indices = (*found[:3], *found[5:8]), (*found[3:5], *found[8:])
    return torch.stack(lengths, dim=-1), torch.stack(indices, dim=-1)


@configuration_in_collision.register_fake
def _(joints: Tensor, *_: Any) -> Tensor:
    return joints.new_empty(joints.shape[:2], dtype=torch.bool)


@joint_path_in_collision.register_fake
def _(joints: Tensor, *_: Any) -> Tensor:
    return joints.new_empty(segments_of(joints), dtype=torch.bool)


@joint_path_clearance.register_fake
def _(joints: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    rows = segments_of(joints)
    return joints.new_empty((*rows, 6)), joints.new_empty((*rows, 4), dtype=torch.int32)


def clearance_columns(*operands: Any) -> tuple[Tensor, ...]:
    """The columns of `JointPathClearance`, by the operator."""
    lengths, indices = (part.unbind(-1) for part in joint_path_clearance(*operands))
    return *lengths[:3], *indices[:2], *lengths[3:], *indices[2:]


# -- batching -----------------------------------------------------------------------------------


def _batched(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A batching rule: a mapped axis adds rows and envs."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        size, base, dim = info.batch_size, args[_BASE], in_dims[_BASE]
        # An axis of the tables adds envs, by which a robot that differs between them would be lost.
        differs = args[_N_ENVS] > 1 and any(d is not None for d in in_dims[1:7])
        if differs or any(d is not None for d in in_dims[_BASE + 1 :]):
            found = one_by_one(operator, size, in_dims, *args)
        else:
            if base is not None:
                rows = args[0].movedim(in_dims[0] or 0, 0).shape[1 if in_dims[0] is not None else 0]
                base = _of_rows(base, dim, size, rows)
            found = over_envs(
                lambda *operands: operator(*operands[:_BASE], base, *operands[_BASE:]),
                size,
                (*in_dims[:_BASE], *in_dims[_BASE + 1 :]),
                *args[:_BASE],
                *args[_BASE + 1 :],
            )
        return found, 0 if isinstance(found, Tensor) else (0,) * len(found)

    return rule


def _of_rows(base: Tensor, dim: int | None, size: int, rows: int) -> Tensor:
    """Root poses for all rows of a batched call; one for all stays one."""
    if dim is None:
        if len(base) == 1:
            return base
        base = base.expand(size, *base.shape)
    else:
        base = base.movedim(dim, 0)
    return base.expand(size, rows, *base.shape[2:]).flatten(0, 1).contiguous()


for _operator in (configuration_in_collision, joint_path_in_collision, joint_path_clearance):
    _operator.register_vmap(_batched(_operator))
