"""Collision checks of robots as torch operators: `torch.ops.warp_collision.*`.

They have no derivative; callers pass detached tensors. The eager path calls the `run_*` functions,
without the dispatcher. They are not in `queries`, as obstacles that move are checked by way of
the robot's own motion, which is above it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.kernels import joint_path as kernels
from warp_collision.kernels import path_clearance as clearance_kernels
from warp_collision.launching.launch import RepeatedLaunch, launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.queries.dispatch import is_plain
from warp_collision.queries.operator import (
    N_TABLES,
    SCENE,
    Outputs,
    define_operator,
    one_by_one,
    over_envs,
)
from warp_collision.robot.checks.moving_obstacles import Check, checks
from warp_collision.robot.model.interpolation import segments_of
from warp_collision.robot.model.robot_tables import FRAME_POSE, STATE, RobotTables
from warp_collision.world.acceleration import with_acceleration

_NO_PAIRS = (None, None)


class PathOperands(NamedTuple):
    """What all checks of a robot read.

    Attributes:
        joints: (batch, horizon, n_joints) float32.
        scene: tables of the obstacles.
        env_index: (batch,) int32, or None.
        base: of the root link, None for the origin: for configurations `MovingFrame`, (batch or 1,
            horizon or 1, 18); for paths poses (batch or 1, 7) float64.
        robot: tables of the robot.
        pairs: tables of the pairs for self-collision; or None, None.
    """

    joints: Tensor
    scene: SceneTables
    env_index: Tensor | None
    base: Tensor | None
    robot: RobotTables
    pairs: tuple[Tensor | None, Tensor | None]

    def flat(self) -> tuple[Any, ...]:
        """The arguments of operators."""
        scene = self.scene.at(self.scene.mesh_from_world.detach()).operands()
        robot = self.robot.operands()
        return self.joints, *scene, self.env_index, self.base, *robot, *self.pairs

    @classmethod
    def of(cls, *args: Any) -> PathOperands:
        """From the arguments of operators, and perhaps more."""
        scene, env_index = SceneTables(*args[1 : N_TABLES + 1]), args[N_TABLES + 1]
        robot, pairs = RobotTables.of(*args[_BASE + 1 : _PAIRS]), args[_PAIRS:_N_OPERANDS]
        return cls(args[0].contiguous(), scene, env_index, args[_BASE], robot, pairs)

    def checks(self) -> Iterator[Check]:
        """The launches of a check of paths."""
        base = self.base
        if base is not None and len(base) == 1:
            base = base[0]
        return checks(self.scene, self.joints, base, self.env_index)


def _scratch(like: Tensor, rows: Sequence[int], robot: RobotTables, size: int) -> Sequence[Tensor]:
    """Frames (batch, horizon or less, n_frames, size) and balls (..., n_bodies, 4) of rows."""
    frames = like.new_empty((*rows, robot.frames.shape[0], size))
    return frames, like.new_empty((*rows, robot.n_bodies, 4))


def run_configurations(operands: PathOperands) -> Tensor:
    """Which configurations collide: (batch, horizon) bool."""
    joints, scene, env_index, base, robot, pairs = operands
    rows = joints.shape[:2]
    frame_poses, balls = _scratch(joints, rows, robot, FRAME_POSE)
    hit = joints.new_empty(rows, dtype=torch.bool)
    kernel, n_queries = kernels.configuration_hit, rows[0] * rows[1] * balls.shape[2]
    launch(
        kernel,
        rows,
        *(joints, env_index, with_acceleration(scene, kernel, n_queries), robot, base),
        *(*pairs, frame_poses, balls, hit),
        device=joints.device,
        items=16 * rows[0] * rows[1],
    )
    return hit


def run_paths(operands: PathOperands, tolerance: Tensor) -> Tensor:
    """Which segments are not proven free: (batch, horizon - 1) bool."""
    hits = [
        run_paths_at_rest(
            operands._replace(
                scene=check.scene,
                base=check.base,
                pairs=operands.pairs if check.with_itself else _NO_PAIRS,
            ),
            tolerance,
        )
        for check in operands.checks()
    ]
    return functools.reduce(torch.logical_or, hits)


def run_paths_at_rest(
    operands: PathOperands, tolerance: Tensor, n_segments: Tensor | None = None
) -> Tensor:
    """Which segments are not proven free among obstacles at rest: (batch, horizon - 1) bool.

    Args:
        operands: with root frames as for configurations, and a scene with acceleration.
        tolerance: (1,) [m].
        n_segments: (batch,) int32, so many of each path are checked, up to the first hit; the
            others count as hits. All segments of all paths if None.
    """
    joints, scene, env_index, base, robot, pairs = operands
    segments = segments_of(joints)
    scratch = _scratch(joints, segments, robot, STATE)
    if n_segments is None:
        hit = joints.new_empty(segments, dtype=torch.bool)
    else:  # threads read what others have not written yet
        hit = joints.new_zeros(segments, dtype=torch.bool)
    launch(
        kernels.joint_path_hit,
        segments,
        *(joints, env_index, scene, robot, base, *pairs),
        *(tolerance, n_segments, *scratch, hit),
        device=joints.device,
        items=256 * segments[0] * segments[1],
    )
    return hit


def repeated_paths(operands: PathOperands, tolerance: Tensor) -> Callable[..., Tensor]:
    """`run_paths_at_rest` of one CPU thread, for many joints like these; takes joints and scene."""
    joints, _, _, base, robot, pairs = operands
    segments = segments_of(joints)
    scratch = _scratch(joints, segments, robot, STATE)
    fixed = None, None, None, robot, base, *pairs, tolerance, None, *scratch, None
    repeated = RepeatedLaunch(kernels.joint_path_hit, segments, fixed, (0, 2, len(fixed) - 1))

    def run(joints: Tensor, scene: SceneTables) -> Tensor:
        hit = joints.new_empty(segments, dtype=torch.bool)
        repeated(joints, with_acceleration(scene), hit)
        return hit

    return run


def repeated_configurations(operands: PathOperands, _: Tensor) -> Callable[..., Tensor]:
    """`run_configurations` of one CPU thread, for many joints like these; see `repeated_paths`."""
    joints, _scene, _env, base, robot, pairs = operands
    kernel, rows = kernels.configuration_hit, joints.shape[:2]
    n_queries = rows[0] * rows[1] * robot.n_bodies
    fixed = None, None, None, robot, base, *pairs, *_scratch(joints, rows, robot, FRAME_POSE), None
    repeated = RepeatedLaunch(kernel, rows, fixed, (0, 2, len(fixed) - 1))

    def run(joints: Tensor, scene: SceneTables) -> Tensor:
        hit = joints.new_empty(rows, dtype=torch.bool)
        repeated(joints, with_acceleration(scene, kernel, n_queries), hit)
        return hit

    return run


def run_clearance(operands: PathOperands, tolerance: Tensor) -> tuple[Tensor, ...]:
    """Intervals and indices of `JointPathClearance`: to the world, and between own spheres."""
    joints, segments = operands.joints, segments_of(operands.joints)
    states = joints.new_empty((*segments, operands.robot.frames.shape[0], STATE))
    clearances = []
    for check in operands.checks():
        outputs = _allocate_clearance(joints)
        launch(
            clearance_kernels.joint_path_clearance,
            segments,
            *(joints, operands.env_index, check.scene, operands.robot, check.base),
            *(operands.pairs if check.with_itself else _NO_PAIRS),
            *(tolerance, states, *outputs),
            device=joints.device,
            items=1024 * segments[0] * segments[1],
        )
        if check.slot is not None:  # of the only obstacle
            obstacle = outputs[1][..., 1]
            obstacle.copy_(torch.where(obstacle >= 0, check.slot, obstacle))
        clearances.append(outputs)
    return functools.reduce(_smaller_clearance, clearances)


def _allocate_clearance(joints: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = segments_of(joints)
    bounds, self_bounds = (joints.new_empty((*rows, 3)) for _ in range(2))
    nearest, self_nearest = (joints.new_empty((*rows, 2), dtype=torch.int32) for _ in range(2))
    return bounds, nearest, self_bounds, self_nearest


def _smaller_clearance(own: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Minimum of two clearances to different obstacles; NaN if one of them is."""
    (bounds, nearest, *of_itself), (other_bounds, other_nearest, *_) = own, other
    is_nearer = ~(other_bounds[..., 1:2] >= bounds[..., 1:2])
    lowest = torch.minimum(bounds[..., :2], other_bounds[..., :2])
    position = torch.where(is_nearer, other_bounds[..., 2:], bounds[..., 2:])
    nearest = torch.where(is_nearer, other_nearest, nearest)
    return torch.cat((lowest, position), dim=-1), nearest, *of_itself


# -- operators ----------------------------------------------------------------------------------

_ROBOT = "Tensor frames, Tensor bodies, Tensor ranges, Tensor spheres, float reach, int n_envs"
_OPERANDS = f"Tensor joints, {SCENE}, Tensor? base, {_ROBOT}, Tensor? body_pairs, Tensor? pairs"
# Where `PathOperands.flat` has what the batching rule asks for, and how many they are.
_BASE = N_TABLES + 2
_N_ENVS, _PAIRS, _N_OPERANDS = _BASE + 6, _BASE + 7, _BASE + 9


class RobotCheck:
    """A check of configurations or paths, without derivatives."""

    def __init__(
        self,
        name: str,
        run: Callable[..., Outputs],
        allocate: Callable[..., Outputs],
        parameters: tuple[str, ...] = (),
        n_outputs: int = 1,
    ):
        """Defines its operator.

        Args:
            name: of the operator.
            run: takes `PathOperands` and parameters.
            allocate: takes joints, returns outputs without values.
            parameters: their schema.
            n_outputs: number of outputs.
        """
        self.run = run
        self.operator = define_operator(
            name,
            ", ".join((_OPERANDS, *parameters)),
            lambda *flat: run(PathOperands.of(*flat), *flat[_N_OPERANDS:]),
            lambda joints, *_: allocate(joints),
            _over_rows_and_envs,
            n_outputs,
        )

    def evaluate(self, operands: PathOperands, *parameters: Tensor) -> Any:
        """Checks by direct launches, or by the operator under transforms."""
        rows = operands.scene.mesh_from_world
        if is_plain(operands.joints, operands.env_index, operands.base, rows, *parameters):
            return self.run(operands, *parameters)
        return self.operator(*operands.flat(), *(value.detach() for value in parameters))


def _over_rows_and_envs(
    operator: Callable[..., Outputs], size: int, in_dims: tuple[int | None, ...], *args: Any
) -> Outputs:
    """A batching rule: a mapped axis adds rows and envs."""
    base, dim = args[_BASE], in_dims[_BASE]
    # An axis of the tables adds envs, by which a robot that differs between them would be lost.
    differs = args[_N_ENVS] > 1 and any(d is not None for d in in_dims[1 : N_TABLES + 1])
    if differs or any(d is not None for d in in_dims[_BASE + 1 :]):
        return one_by_one(operator, size, in_dims, *args)
    if base is not None:
        rows = args[0].movedim(in_dims[0] or 0, 0).shape[1 if in_dims[0] is not None else 0]
        base = _of_rows(base, dim, size, rows)
    return over_envs(
        lambda *others: operator(*others[:_BASE], base, *others[_BASE:]),
        size,
        (*in_dims[:_BASE], *in_dims[_BASE + 1 :]),
        *args[:_BASE],
        *args[_BASE + 1 :],
    )


def _of_rows(base: Tensor, dim: int | None, size: int, rows: int) -> Tensor:
    """Root poses for all rows of a batched call; one for all stays one."""
    if dim is None:
        if len(base) == 1:
            return base
        base = base.expand(size, *base.shape)
    else:
        base = base.movedim(dim, 0)
    return base.expand(size, rows, *base.shape[2:]).flatten(0, 1).contiguous()


CONFIGURATION_IN_COLLISION = RobotCheck(
    "configuration_in_collision",
    run_configurations,
    lambda joints: joints.new_empty(joints.shape[:2], dtype=torch.bool),
)
JOINT_PATH_IN_COLLISION = RobotCheck(
    "joint_path_in_collision",
    run_paths,
    lambda joints: joints.new_empty(segments_of(joints), dtype=torch.bool),
    ("Tensor tolerance",),
)
# Bounds and position (batch, horizon - 1, 3), sphere and obstacle (batch, horizon - 1, 2) int32;
# the same between spheres of the robot.
JOINT_PATH_CLEARANCE = RobotCheck(
    "joint_path_clearance", run_clearance, _allocate_clearance, ("Tensor tolerance",), n_outputs=4
)
