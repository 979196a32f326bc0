"""Joint paths cut into parts whose chords are close to the arcs that spheres move on."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import torch_private
from warp_collision.kernels import joint_path_hit as kernels
from warp_collision.launching.launch import launch
from warp_collision.queries import dispatch
from warp_collision.queries.operator import define_operator, over_rows
from warp_collision.robot.model.joint_curve import bernstein
from warp_collision.robot.model.sphere_layout import ROBOT, STATE, RobotTables
from warp_collision.summaries import summary

_MAX_PARTS = 100_000


class Interpolated(NamedTuple):
    """Result of `RobotSpheres.interpolate`.

    Attributes:
        joints: (batch, (horizon - 1) * parts + 1, n_joints), waypoint t at index t * parts.
        parts: number of equal parts of each segment.

    Example:
        >>> import torch
        >>> from warp_collision.examples import load_panda
        >>> path = torch.linspace(0.0, 1.0, 3)[None, :, None].expand(1, 3, 7)
        >>> cut = load_panda().interpolate(path, max_deviation=1e-2)
        >>> cut.joints.shape[1] == 2 * cut.parts + 1
        True
    """

    joints: Tensor
    parts: int

    __repr__ = summary


def cut(joints: Tensor, parts: int, degree: int = 1) -> Interpolated:
    """Cuts each segment of joint paths into equal parts.

    Args:
        joints: (batch, horizon, n_joints); control points (batch, segments * degree + 1, n_joints)
            of curves.
        parts: of each segment.
        degree: of the segments.
    """
    if parts == 1:
        return Interpolated(waypoints_of(joints, degree), 1)
    if degree > 1:
        shares = bernstein(torch.arange(parts, dtype=torch.float64) / parts, degree).to(joints)
        inner = joints.unfold(1, degree + 1, degree) @ shares.T  # (..., n_joints, parts)
        inner = inner.transpose(2, 3).flatten(1, 2)
        return Interpolated(torch.cat((inner, joints[:, -1:]), dim=1), parts)
    s = torch.arange(parts, dtype=joints.dtype, device=joints.device) / parts
    steps = joints[:, 1:] - joints[:, :-1]
    inner = joints[:, :-1, None] + s[:, None] * steps[:, :, None]
    return Interpolated(torch.cat((inner.flatten(1, 2), joints[:, -1:]), dim=1), parts)


def has_unknown_values(joints: Tensor) -> bool:
    """Whether the values of joints cannot be read: batched by `vmap`, or fake."""
    return not is_compiling() and torch_private.has_hidden_values(joints)


@dispatch.outside_graphs(
    "substeps must be given in a compiled graph, and interpolate called outside of it: the number "
    "of parts depends on the values of joints"
)
def parts_for(joints: Tensor, tables: RobotTables, max_deviation: float, degree: int = 1) -> int:
    """Number of parts per segment for which chords are close to the arcs.

    Segments with joints that are not finite need none: what is computed from them is NaN.

    With n parts an arc deviates from its chord by at most the largest second derivative, by the
    position in [0, 1] on the segment, divided by 8 n^2.

    Args:
        joints: as of `cut`.
        tables: of the robot.
        max_deviation: [m].
        degree: of the segments.
    """
    if has_unknown_values(joints):
        raise ValueError(
            "joints must have values that can be read, as the number of parts depends on them, got "
            "joints batched by vmap; cut them outside of it"
        )
    joints = joints.detach().float().contiguous()
    if dispatch.is_plain(joints):
        bound = run_acceleration_bound(joints, tables, degree)
    else:
        bound = segment_acceleration_bound(joints, *tables.operands(), degree)
    if bound.numel() == 0:
        return 1
    largest = np.float32(bound.amax().item())  # the host waits: shapes depend on it
    parts = float(np.sqrt(largest / (np.float32(8.0) * np.float32(max_deviation))))
    if not parts <= _MAX_PARTS:
        raise ValueError(f"joints must need at most {_MAX_PARTS} parts per segment, got {parts}")
    # The bound itself is rounded.
    return max(1, math.ceil(parts * (1.0 + 1.0e-5)))


def run_acceleration_bound(joints: Tensor, robot: RobotTables, degree: int = 1) -> Tensor:
    """Bounds (batch, segments) [m] of the second derivatives, by the position on a segment."""
    segments = segments_of(joints, degree)
    n_frames = robot.frames.shape[0] * (1 if degree == 1 else 2)
    states = joints.new_empty((*segments, n_frames, STATE))
    bound = joints.new_empty(segments)
    launch(
        kernels.segment_acceleration_bound,
        segments,
        joints,
        robot,
        states,
        bound,
        device=joints.device,
        items=16 * segments[0] * segments[1],
    )
    return bound


segment_acceleration_bound = define_operator(
    "segment_acceleration_bound",
    f"Tensor joints, {ROBOT}, int degree",
    lambda joints, *rest: run_acceleration_bound(
        joints.contiguous(), RobotTables.of(*rest[:-1]), rest[-1]
    ),
    lambda joints, *rest: joints.new_empty(segments_of(joints, rest[-1])),
    over_rows(1),
)


def waypoints_of(joints: Tensor, degree: int) -> Tensor:
    """The ends of segments (batch, segments + 1, n_joints) of paths as of `cut`."""
    return joints if degree == 1 else joints[:, ::degree]


def segments_of(joints: Tensor, degree: int = 1) -> tuple[int, int]:
    """Number of joint paths (batch, degree * segments + 1, n_joints), and of segments of each."""
    return joints.shape[0], max(joints.shape[1] - 1, 0) // degree
