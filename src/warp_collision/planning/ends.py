"""Checks of starts and goals: joint limits and collisions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import escaped
from warp_collision.robot import RobotSpheres, joint_path_in_collision
from warp_collision.world import MeshWorld

_ROUNDING = 1.0e-5  # of limits [rad or m]


def end_operand(name: str, value: Tensor, robot: RobotSpheres, world: MeshWorld) -> Tensor:
    """Joint values (batch, n_joints) float32, finite, a copy without a gradient."""
    robot.check_joints(value)
    if value.ndim != 2:
        raise ValueError(
            f"{name} must have shape (batch, n_joints), got {validate.shape_of(value)}"
        )
    value = value.detach().float().contiguous().clone()
    if value.device != world.device:
        raise ValueError(f"{name} must be on device {world.device}, got {value.device}")
    wrong = torch.nonzero(~value.isfinite())
    if len(wrong):
        row, joint = wrong[0].tolist()
        raise ValueError(
            f"{name} must be finite, got {value[row, joint].item()} in batch row {row} for "
            f"{robot.joint_names[joint]}"
        )
    return value


def bad_ends(
    ends: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    margin: float,
    **options: Any,
) -> Tensor:
    """Which ends (batch, n_joints) are beyond joint limits or not proven free, (batch,) bool.

    Args:
        ends: joint values.
        robot: the robot.
        world: the obstacles.
        margin: [m], a clearance below it may count as a collision.
        options: more arguments of `joint_path_in_collision`.
    """
    low, high = robot.joint_limits.to(ends.device).unbind(-1)
    beyond = ((ends < low - _ROUNDING) | (ends > high + _ROUNDING)).any(1)
    at_rest = ends[:, None].repeat(1, 2, 1)
    hit = joint_path_in_collision(at_rest, robot, world, tolerance=margin, **options)
    return beyond | hit[:, 0]


def reason(
    end: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    margin: float,
    **options: Any,
) -> str:
    """Why an end (1, n_joints) is bad; arguments as in `bad_ends`."""
    for name, value, (low, high) in zip(
        robot.joint_names, end[0].tolist(), robot.joint_limits.tolist(), strict=True
    ):
        if not low - _ROUNDING <= value <= high + _ROUNDING:
            return f"{escaped(name)} = {value:.4f} is beyond its limits [{low:.4f}, {high:.4f}]"
    report = robot.report(end[:, None], world, margin=margin, **options)
    if len(report.link) == 0:
        return "it cannot be proven free"
    link, other, depth = report.link[0], report.obstacle[0], 1e3 * float(report.depth[0])
    what = f"link {escaped(other)}" if report.with_itself[0] else escaped(other)
    if depth <= 0.0:
        return (
            f"{escaped(link)} is {-depth:.2f} mm from {what}, below the margin of "
            f"{1e3 * margin:.2f} mm"
        )
    return f"{escaped(link)} is in collision with {what}, {depth:.1f} mm deep"
