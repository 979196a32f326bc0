"""Joint paths cut into parts whose chords are close to the arcs that spheres move on."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.kernels.joint_path import segment_bend
from warp_collision.launching.launch import launch
from warp_collision.robot.robot_tables import STATE, RobotTables

_MAX_PARTS = 100_000


class Interpolated(NamedTuple):
    """Result of `RobotSpheres.interpolate`.

    Attributes:
        joints: (batch, (horizon - 1) * parts + 1, n_joints), waypoint t at index t * parts.
        parts: number of equal parts of each segment.

    Example:
        >>> import torch
        >>> from warp_collision.cli.demo import load_panda
        >>> path = torch.linspace(0.0, 1.0, 3)[None, :, None].expand(1, 3, 7)
        >>> cut = load_panda().interpolate(path, max_deviation=1e-2)
        >>> cut.joints.shape[1] == 2 * cut.parts + 1
        True
    """

    joints: Tensor
    parts: int


def cut(joints: Tensor, parts: int) -> Interpolated:
    """Cuts each segment of joint paths (batch, horizon, n_joints) into equal parts."""
    s = torch.arange(parts, dtype=joints.dtype, device=joints.device) / parts
    steps = joints[:, 1:] - joints[:, :-1]
    inner = joints[:, :-1, None] + s[:, None] * steps[:, :, None]
    return Interpolated(torch.cat((inner.flatten(1, 2), joints[:, -1:]), dim=1), parts)


def parts_for(joints: Tensor, tables: RobotTables, max_deviation: Tensor) -> int:
    """Number of parts per segment for which chords are close to the arcs.

    With n parts an arc deviates from its chord by at most the largest second derivative, by the
    position in [0, 1] on the segment, divided by 8 n^2.
    """
    joints = joints.detach().float().contiguous()
    segments = joints.shape[0], max(joints.shape[1] - 1, 0)
    states = joints.new_empty((*segments, tables.frames.shape[0], STATE))
    bend = joints.new_empty(segments)
    launch(
        segment_bend,
        segments,
        *(joints, tables, states, bend),
        device=joints.device,
        items=16 * segments[0] * segments[1],
    )
    if bend.numel() == 0:
        return 1
    parts = torch.sqrt(bend.amax() / (8.0 * max_deviation)).item()
    if not parts <= _MAX_PARTS:
        raise ValueError(
            f"joints must be finite, and need at most {_MAX_PARTS} parts per segment, got {parts}"
        )
    # The bound itself is rounded.
    return max(1, math.ceil(parts * (1.0 + 1.0e-5)))
