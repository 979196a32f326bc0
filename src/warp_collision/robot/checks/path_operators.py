"""Collision checks of robots as torch operators: `torch.ops.warp_collision.*`.

They have no derivative; callers pass detached tensors. The eager path calls the `run_*` functions,
without the dispatcher. They are not in `queries`, as obstacles that move are checked by way of
the robot's own motion, which is above it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor

from warp_collision.devices import CPU, n_multiprocessors
from warp_collision.kernels import joint_path_hit as kernels
from warp_collision.kernels.lanes.configurations import (
    CONFIGURATIONS,
    configurations_hit,
    scratch_bytes,
)
from warp_collision.kernels.lanes.paths import SEGMENTS, scratch_of_paths, segments_hit
from warp_collision.kernels.path_clearance import joint_path_clearance
from warp_collision.launching.launch import RepeatedLaunch, launch
from warp_collision.launching.recorded_launch import threads_for_each
from warp_collision.queries.dispatch import is_plain
from warp_collision.queries.operator import (
    OPERANDS_OF_SCENE,
    Outputs,
    define_operator,
    one_by_one,
    over_envs,
)
from warp_collision.robot.checks.moving_obstacles import Movers, split
from warp_collision.robot.checks.path_operands import (
    BASE,
    DEGREE,
    N_ENVS,
    N_OPERANDS,
    OPERANDS,
    PathOperands,
)
from warp_collision.robot.model.interpolation import segments_of
from warp_collision.robot.model.sphere_layout import FRAME_POSE, STATE
from warp_collision.world.scene import Scene

# Width of the intervals of clearances by which the nearest moving obstacles are found [m].
_COARSE = 0.1

# Of a thread of the CPU that checks segments in lanes.
bytes_of_paths = functools.cache(scratch_of_paths)


def run_configurations(operands: PathOperands) -> Tensor:
    """Which configurations collide: (batch, horizon) bool."""
    joints, scene, env_index, base, robot, pairs, _ = operands
    rows = joints.shape[:2]
    kernel, dim, scratch = _of_configurations(operands)
    # Threads that share a check write hits alone.
    new = joints.new_zeros if dim[2:] > (1,) else joints.new_empty
    hit = new(rows, dtype=torch.bool)
    tables = scene.completed(kernel, rows[0] * rows[1] * robot.n_bodies)
    launch(
        kernel,
        dim,
        joints,
        env_index,
        tables,
        robot,
        base,
        *pairs,
        *scratch,
        hit,
        device=joints.device,
        items=16 * rows[0] * rows[1],
    )
    return hit


def run_configurations_of_shapes(operands: PathOperands) -> Tensor:
    """Which configurations collide by the shapes of links: (batch, horizon) bool.

    Spheres are asked first, and shapes where these refuse.
    """
    return _refused_configurations(operands, run_configurations(operands))


def _refused_configurations(operands: PathOperands, by_spheres: Tensor) -> Tensor:
    """Which of the configurations that spheres refuse collide by shapes."""
    if _are_free(by_spheres):
        return by_spheres
    from warp_collision.kernels.shape_hit import shape_hit  # few processes need it

    joints, scene, env_index, base, robot, pairs, _ = operands
    dim = _with_lanes(joints.shape[0], joints.shape[1], joints.device)
    hit = torch.zeros_like(by_spheres)
    launch(
        shape_hit,
        dim,
        joints,
        env_index,
        scene.completed(shape_hit),
        robot,
        base,
        *pairs,
        by_spheres,
        *operands.scratch(dim, FRAME_POSE),
        hit,
        device=joints.device,
        items=16 * dim[0] * dim[1],
    )
    return hit


def _are_free(by_spheres: Tensor) -> bool:
    """Whether spheres are known to refuse nothing; a GPU's host does not wait to know."""
    return by_spheres.is_cpu and not by_spheres.any()


def _with_lanes(batch: int, count: int, device: torch.device) -> tuple[int, int, int]:
    """Rows of checks of a robot, and the threads that share each one."""
    threads = 1 if device == CPU else threads_for_each(batch * count, n_multiprocessors(device))
    return batch, count, threads


def _of_configurations(operands: PathOperands) -> tuple[Any, tuple[int, ...], tuple[Tensor, ...]]:
    """The kernel of configurations, its threads and their scratch memory.

    On the CPU eight are checked in the lanes of vector instructions.
    """
    joints, robot = operands.joints, operands.robot
    batch, horizon, _ = joints.shape
    if joints.device != CPU:
        dim = _with_lanes(batch, horizon, joints.device)
        return kernels.configuration_hit, dim, operands.scratch(dim, FRAME_POSE)
    threads = -(-batch * horizon // CONFIGURATIONS)
    size = scratch_bytes(robot.frames.shape[0], robot.n_bodies, robot.spheres.shape[0])
    scratch = joints.new_empty((threads, size), dtype=torch.uint8)
    return configurations_hit, (1, threads), (scratch,)


def _of_segments(
    operands: PathOperands, segments: tuple[int, int], base_moves: bool = False
) -> tuple[Any, tuple[int, ...], tuple[Tensor, ...]]:
    """The kernel of segments, its threads and their scratch memory; see `_of_configurations`."""
    joints, robot, (batch, count) = operands.joints, operands.robot, segments
    if joints.device != CPU or base_moves:
        dim = _with_lanes(batch, count, joints.device)
        return kernels.joint_path_hit, dim, operands.scratch(dim, STATE)
    threads = -(-batch * count // SEGMENTS)
    n_frames, n_spheres = robot.frames.shape[0], robot.spheres.shape[0]
    sizes = n_frames, robot.n_bodies, n_spheres, joints.shape[2]
    scratch = joints.new_empty((threads, bytes_of_paths(*sizes)), dtype=torch.uint8)
    return segments_hit, (1, threads), (scratch,)


def run_paths(operands: PathOperands, tolerance: Tensor, *, of_shapes: bool = False) -> Tensor:
    """Which segments are not proven free: (batch, horizon - 1) bool.

    By shapes as in `run_configurations_of_shapes`.
    """
    run = run_paths_of_shapes_at_rest if of_shapes else run_paths_at_rest
    if not operands.scene.is_moving:
        return run(operands, tolerance)
    rest, movers = split(operands)
    hit = run(rest, tolerance)
    if movers is None:
        return hit
    if hit.device != CPU:  # a choice of segments would be a wait
        hits = run(movers.operands, tolerance, base_moves=True)
        return hit | hits.unflatten(0, (-1, len(movers.slots))).any(1)
    near = ~(movers.lower_bounds(rest) >= tolerance)  # NaN is near
    near[near.clone()] = run(movers.chosen(near), tolerance, base_moves=True)[:, 0]
    return hit | near.any(1)


def run_paths_of_shapes(operands: PathOperands, tolerance: Tensor) -> Tensor:
    """`run_paths` by shapes."""
    return run_paths(operands, tolerance, of_shapes=True)


def run_paths_of_shapes_at_rest(
    operands: PathOperands,
    tolerance: Tensor,
    n_segments: Tensor | None = None,
    *,
    base_moves: bool = False,
) -> Tensor:
    """`run_paths_at_rest` by shapes, which are asked where spheres refuse.

    With numbers of segments those behind a hit are looked at, too.
    """
    by_spheres = run_paths_at_rest(operands, tolerance, base_moves=base_moves)
    if n_segments is None:
        return _refused_segments(operands, by_spheres, tolerance)
    count = by_spheres.shape[1]
    others = torch.arange(count, device=by_spheres.device) >= n_segments[:, None]
    return others | _refused_segments(operands, by_spheres & ~others, tolerance)


def _refused_segments(operands: PathOperands, by_spheres: Tensor, tolerance: Tensor) -> Tensor:
    """Which of the segments that spheres refuse are not proven free by shapes."""
    if _are_free(by_spheres):
        return by_spheres
    from warp_collision.kernels.shape_hit import segment_shape_hit  # few processes need it

    joints, scene, env_index, base, robot, pairs, _ = operands
    segments = operands.segments
    dim = _with_lanes(*segments, joints.device)
    hit = torch.zeros_like(by_spheres)
    launch(
        segment_shape_hit,
        dim,
        joints,
        env_index,
        scene.completed(),
        robot,
        base,
        *pairs,
        tolerance,
        by_spheres,
        *operands.scratch(dim, STATE),
        hit,
        device=joints.device,
        items=256 * segments[0] * segments[1],
    )
    return hit


def run_paths_at_rest(
    operands: PathOperands,
    tolerance: Tensor,
    n_segments: Tensor | None = None,
    *,
    base_moves: bool = False,
) -> Tensor:
    """Which segments are not proven free among obstacles at rest: (batch, horizon - 1) bool.

    Args:
        operands: with root frames as for configurations.
        tolerance: (1,) for all, or (batch,) [m].
        n_segments: (batch,) int32, so many of each path are checked, up to the first hit; the
            others count as hits. All segments of all paths if None.
        base_moves: whether the root may move on a segment.
    """
    joints, scene, env_index, base, robot, pairs, _ = operands
    segments = operands.segments
    kernel, dim, scratch = _of_segments(operands, segments, base_moves)
    # Threads read what others have not written yet, and where they share a check write hits alone.
    is_read = n_segments is not None or dim[2:] > (1,)
    hit = (joints.new_zeros if is_read else joints.new_empty)(segments, dtype=torch.bool)
    launch(
        kernel,
        dim,
        joints,
        env_index,
        scene.completed(),
        robot,
        base,
        *pairs,
        tolerance,
        n_segments,
        *scratch,
        hit,
        device=joints.device,
        items=256 * segments[0] * segments[1],
    )
    return hit


class RepeatedCheck:
    """A check of one CPU thread for many joints of one shape, by a launch that is recorded.

    Small calls spend most of their time around the kernel: nothing is looked up twice. Shapes of
    links are asked where spheres refuse, without a record.

    Attributes:
        shape: of the joints.
    """

    def __init__(
        self,
        kernel: Any,
        operands: PathOperands,
        dim: tuple[int, ...],
        parameters: tuple[Tensor | None, ...],
        accelerated_for: tuple[Any, ...],
        rows: tuple[int, int] | torch.Size,
        of_refused: Callable[[PathOperands, Tensor], Tensor] | None,
    ):
        self.shape, self._accelerated_for = operands.joints.shape, accelerated_for
        self._hit = operands.joints.new_empty(rows, dtype=torch.bool)  # for its shape
        robot, pairs = operands.robot, operands.pairs
        fixed = None, None, None, robot, operands.base, *pairs, *parameters, None
        self._launch = RepeatedLaunch(kernel, dim, fixed, (0, 2, len(fixed) - 1))
        self._operands, self._of_refused = operands, of_refused

    @classmethod
    def of_paths(cls, operands: PathOperands, tolerance: Tensor, is_exact: bool) -> RepeatedCheck:
        """`run_paths_at_rest` for joints like these, or the same by shapes."""
        kernel, dim, scratch = _of_segments(operands, operands.segments)
        given, rows = (tolerance, None, *scratch), operands.segments
        refused = functools.partial(_refused_segments, tolerance=tolerance) if is_exact else None
        return cls(kernel, operands, dim, given, (), rows, refused)

    @classmethod
    def of_configurations(cls, operands: PathOperands, is_exact: bool) -> RepeatedCheck:
        """`run_configurations` for joints like these, or the same by shapes."""
        kernel, dim, scratch = _of_configurations(operands)
        rows = operands.joints.shape[:2]
        accelerated_for = kernel, rows.numel() * operands.robot.n_bodies
        refused = _refused_configurations if is_exact else None
        return cls(kernel, operands, dim, scratch, accelerated_for, rows, refused)

    def answers(self, joints: object) -> TypeGuard[Tensor]:
        """Whether it may be given these joints as they are, in plain eager code."""
        return (
            type(joints) is Tensor
            and joints.shape == self.shape
            and joints.dtype is torch.float32
            and joints.is_cpu
            and joints.is_contiguous()
            and is_plain()
        )

    def __call__(self, joints: Tensor, scene: Scene) -> Tensor:
        """The answer for each row."""
        hit = torch.empty_like(self._hit)
        self._launch(joints, scene.completed(*self._accelerated_for), hit)
        if self._of_refused is None or _are_free(hit):
            return hit
        return self._of_refused(self._operands._replace(joints=joints, scene=scene), hit)


def run_clearance(
    operands: PathOperands, tolerance: Tensor, *, of_shapes: bool = False
) -> tuple[Tensor, Tensor]:
    """Intervals and indices of `JointPathClearance`, see `_allocate_clearance`."""
    kernel: Any = joint_path_clearance
    if of_shapes:
        from warp_collision.kernels.shape_clearance import shape_clearance as kernel
    rest, movers = split(operands)
    found = _clearances(kernel, rest, tolerance)
    if movers is None:
        return found
    if found[0].device == CPU:  # elsewhere a choice of segments would be a wait
        least = movers.lower_bounds(rest)
        bounds, nearest = _by_the_nearest(kernel, movers, least, found[0], tolerance)
    else:
        bounds, nearest = (
            part[:, :, 0].unflatten(0, (-1, len(movers.slots)))
            for part in _clearances(kernel, movers.operands, tolerance)
        )
    # An env of a mover has one obstacle.
    nearest[..., 1] = torch.where(nearest[..., 1] < 0, -1, movers.slots[:, None])
    return _with_smaller(found, _smallest(bounds, nearest))


def run_clearance_of_shapes(operands: PathOperands, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """`run_clearance` by shapes."""
    return run_clearance(operands, tolerance, of_shapes=True)


def _by_the_nearest(
    kernel: Any, movers: Movers, least: Tensor, resting: Tensor, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """Clearances (batch, n, horizon - 1, ...) to moving obstacles, up to the tolerance where least.

    Args:
        kernel: of clearances.
        movers: the obstacles.
        least: lower bounds (batch, n, horizon - 1) of these clearances [m].
        resting: bounds of those to obstacles at rest.
        tolerance: (1,) [m].
    """
    unknown = torch.full_like(least, torch.inf)
    bounds = torch.stack((least, unknown, torch.zeros_like(least)), dim=-1)
    nearest = torch.full((*least.shape, 2), -1, dtype=torch.int32, device=least.device)

    def look(which: Tensor, width: Tensor) -> None:
        for part, found in zip(
            (bounds, nearest), _clearances(kernel, movers.chosen(which), width), strict=True
        ):
            part[which] = found[:, 0, 0]

    def may_be_least() -> Tensor:
        """Not those proven no nearer than the nearest one; NaN is looked at."""
        upper = torch.minimum(resting[:, :, 0, 1], bounds[..., 1].amin(1))
        return ~(bounds[..., 0] >= upper[:, None])

    coarse = tolerance.clamp(min=_COARSE)
    first = torch.zeros_like(least, dtype=torch.bool)
    first.scatter_(1, least.argmin(1, keepdim=True), True)
    look(first, coarse)
    look(may_be_least() & ~first, coarse)
    look(may_be_least(), tolerance)
    return bounds, nearest


def _clearances(kernel: Any, operands: PathOperands, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """`run_clearance` among obstacles at rest."""
    joints, segments = operands.joints, operands.segments
    scratch = operands.scratch(segments, STATE)
    outputs = _allocate_clearance(joints, operands.degree)
    launch(
        kernel,
        segments,
        joints,
        operands.env_index,
        operands.scene.completed(),
        operands.robot,
        operands.base,
        *operands.pairs,
        tolerance,
        *scratch,
        *outputs,
        device=joints.device,
        items=1024 * segments[0] * segments[1],
    )
    return outputs


def _allocate_clearance(joints: Tensor, degree: int, *_: Tensor) -> tuple[Tensor, Tensor]:
    """Of the world and of the robot with itself (batch, horizon - 1, 2, ...).

    The lower and upper bound and the position (3,), and what is nearest (2,) int32.
    """
    rows = (*segments_of(joints, degree), 2)
    return joints.new_empty((*rows, 3)), joints.new_empty((*rows, 2), dtype=torch.int32)


def _smallest(bounds: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest of the clearances to n obstacles (batch, n, horizon - 1, ...)."""
    which = bounds[..., 1].argmin(1, keepdim=True).unsqueeze(-1)
    position = bounds[..., 2:].gather(1, which)
    chosen = nearest.gather(1, which.expand(-1, -1, -1, 2))
    return torch.cat((bounds[..., :2].amin(1), position[:, 0]), dim=-1), chosen[:, 0]


def _with_smaller(
    found: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The smaller one of the clearances to different obstacles; NaN if one of them is."""
    (bounds, nearest), (other_bounds, other_nearest) = found, other
    own = bounds[:, :, 0]
    is_nearer = ~(other_bounds[..., 1:2] >= own[..., 1:2])
    lowest = torch.minimum(own[..., :2], other_bounds[..., :2])
    position = torch.where(is_nearer, other_bounds[..., 2:], own[..., 2:])
    bounds[:, :, 0] = torch.cat((lowest, position), dim=-1)
    nearest[:, :, 0] = torch.where(is_nearer, other_nearest, nearest[:, :, 0])
    return bounds, nearest


# -- operators ----------------------------------------------------------------------------------


@dataclass(eq=False)
class RobotCheck:
    """A check of configurations or paths, without derivatives.

    Attributes:
        name: of the operator.
        run: takes `PathOperands` and parameters.
        allocate: takes joints, their degree and parameters, returns outputs without values.
        parameters: their schema.
        n_outputs: number of outputs.
    """

    name: str
    run: Callable[..., Outputs]
    allocate: Callable[..., Outputs]
    parameters: tuple[str, ...] = ()
    n_outputs: int = 1

    def __post_init__(self) -> None:
        """Defines the operator."""
        self.operator = define_operator(
            self.name,
            ", ".join((OPERANDS, *self.parameters)),
            lambda *flat: self.run(PathOperands.of(*flat), *flat[N_OPERANDS:]),
            lambda *flat: self.allocate(flat[0], flat[DEGREE], *flat[N_OPERANDS:]),
            _over_rows_and_envs,
            self.n_outputs,
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
    base, dim = args[BASE], in_dims[BASE]
    # An axis of the tables adds envs, by which a robot that differs between them would be lost.
    differs = args[N_ENVS] > 1 and any(d is not None for d in in_dims[OPERANDS_OF_SCENE])
    if differs or any(d is not None for d in in_dims[BASE + 1 :]):
        return one_by_one(operator, size, in_dims, *args)
    if base is not None:
        rows = args[0].movedim(in_dims[0] or 0, 0).shape[1 if in_dims[0] is not None else 0]
        base = _of_rows(base, dim, size, rows)
    return over_envs(
        lambda *others: operator(*others[:BASE], base, *others[BASE:]),
        size,
        (*in_dims[:BASE], *in_dims[BASE + 1 :]),
        *args[:BASE],
        *args[BASE + 1 :],
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
    lambda joints, _: joints.new_empty(joints.shape[:2], dtype=torch.bool),
)
SHAPES_IN_COLLISION = RobotCheck(
    "configuration_in_collision_of_shapes",
    run_configurations_of_shapes,
    lambda joints, _: joints.new_empty(joints.shape[:2], dtype=torch.bool),
)
JOINT_PATH_IN_COLLISION = RobotCheck(
    "joint_path_in_collision",
    run_paths,
    lambda joints, degree, _: joints.new_empty(segments_of(joints, degree), dtype=torch.bool),
    ("Tensor tolerance",),
)
SHAPES_IN_COLLISION_ON_PATH = RobotCheck(
    "joint_path_in_collision_of_shapes",
    run_paths_of_shapes,
    lambda joints, degree, _: joints.new_empty(segments_of(joints, degree), dtype=torch.bool),
    ("Tensor tolerance",),
)
JOINT_PATH_CLEARANCE = RobotCheck(
    "joint_path_clearance", run_clearance, _allocate_clearance, ("Tensor tolerance",), n_outputs=2
)
CLEARANCE_OF_SHAPES = RobotCheck(
    "joint_path_clearance_of_shapes",
    run_clearance_of_shapes,
    _allocate_clearance,
    ("Tensor tolerance",),
    n_outputs=2,
)
