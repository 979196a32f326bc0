"""Checks of starts and goals: joint limits and collisions."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import escaped
from warp_collision.planning.problems import Problems
from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.world import MeshWorld

_ROUNDING = 1.0e-5  # of limits [rad or m]


def endpoint_operand(name: str, value: Tensor, robot: RobotSpheres, world: MeshWorld) -> Tensor:
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


def check_endpoints(problems: Problems, on_invalid: str) -> Tensor:
    """Which problems (batch,) have valid ends."""
    ends = torch.stack((problems.start, problems.goal))
    low, high = problems.limits.unbind(-1)
    beyond = ((ends < low - _ROUNDING) | (ends > high + _ROUNDING)).any(2)
    every = torch.arange(ends.shape[1], device=ends.device)
    at_rest = ends.flatten(0, 1)[:, None].repeat(1, 2, 1)
    valid = ~beyond & problems.is_free(at_rest, every.repeat(2)).view(2, -1)
    if on_invalid == "raise" and not bool(valid.all()):
        end, row = (~valid).nonzero()[0].tolist()
        raise ValueError(
            f"{('start', 'goal')[end]} must be free and within joint limits, got batch row {row}: "
            f"{_reason(problems, ends[end], row)}"
        )
    return valid.all(0)


def _reason(problems: Problems, ends: Tensor, row: int) -> str:
    """Why a row of ends (batch, n_joints) is not valid."""
    robot, only = problems.robot, slice(row, row + 1)
    for name, value, (low, high) in zip(
        robot.joint_names, ends[row].tolist(), problems.limits.tolist(), strict=True
    ):
        if not low - _ROUNDING <= value <= high + _ROUNDING:
            return f"{escaped(name)} = {value:.4f} is beyond its limits [{low:.4f}, {high:.4f}]"
    report = robot.report(
        ends[only, None],
        problems.world,
        margin=problems.margin,
        self_collision=problems.self_collision,
        **problems.world_of(only),
    )
    if len(report.link) == 0:
        return _always_near(problems) or "it cannot be proven free"
    link, other, depth = report.link[0], report.obstacle[0], 1e3 * float(report.depth[0])
    what = f"link {escaped(other)}" if report.with_itself[0] else escaped(other)
    if depth <= 0.0:
        return (
            f"{escaped(link)} is {-depth:.2f} mm from {what}, below the margin of "
            f"{1e3 * problems.margin:.2f} mm"
        )
    hint = f"; {_too_large(link, other)}" if report.with_itself[0] else ""
    if report.at_all_values[0] and not report.with_itself[0]:
        pair = f"({escaped(link)!r}, {escaped(other)!r})"
        hint = f", as at all joint values: ignore=[{pair}] allows it"
    return f"{escaped(link)} is in collision with {what}, {depth:.1f} mm deep{hint}"


def _always_near(problems: Problems) -> str | None:
    """Two links whose clearance no joint value changes, and which is below the margin."""
    pairs = problems.changing_pairs
    if not isinstance(pairs, SelfCollisionPairs) or not pairs.constant:
        return None
    first, second, clearance = min(pairs.constant, key=lambda pair: pair.clearance)
    link, other = pairs.sphere_links[first], pairs.sphere_links[second]
    return (
        f"{escaped(link)} is {1e3 * clearance:.2f} mm from link {escaped(other)} at all joint "
        f"values, below the margin of {1e3 * problems.margin:.2f} mm; {_too_large(link, other)}"
    )


def _too_large(link: str, other: str) -> str:
    """What to do about two links whose spheres touch."""
    pair = f"({escaped(link)!r}, {escaped(other)!r})"
    return (
        "if they do not touch, their spheres may be too large: leave the pair out by "
        f"self_collision=robot.self_collision_pairs(ignore=[{pair}])"
    )
