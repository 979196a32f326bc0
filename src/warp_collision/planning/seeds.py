"""Paths that a descent begins with: straight, wavy, and by way of random configurations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from warp_collision.planning.descent import SmoothMetric, straight_lines
from warp_collision.robot import RobotSpheres, configuration_in_collision
from warp_collision.world import MeshWorld

_WAVES = 0.45  # of the coordinates of wavy paths in the first round, on average
_CANDIDATES = 8  # random configurations for each that a path goes by way of


def random_normal(
    shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> Tensor:
    """Normal numbers that do not depend on the device of the paths."""
    return torch.randn(shape, generator=generator, device=generator.device).to(device)


def random_uniform(
    shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> Tensor:
    """Uniform numbers in [0, 1) that do not depend on the device of the paths."""
    return torch.rand(shape, generator=generator, device=generator.device).to(device)


def bounded(limits: Tensor) -> Tensor:
    """(n_joints, 2) limits within which to draw: of continuous joints one turn."""
    return torch.nan_to_num(limits, nan=0.0, posinf=math.pi, neginf=-math.pi)


def first_paths(
    robot: RobotSpheres,
    world: MeshWorld,
    start: Tensor,
    goal: Tensor,
    metric: SmoothMetric,
    *,
    options: dict[str, Any],
    n_seeds: int,
    horizon: int,
    spread: float,
    generator: torch.Generator,
) -> Tensor:
    """Paths to begin with, for each of some problems.

    The first one is straight. A half of the others have smooth noise; the rest go by way of a
    random configuration that is free, the earlier ones nearer to the middle of start and goal.

    Args:
        robot: the robot.
        world: the obstacles.
        start: (batch, n_joints).
        goal: (batch, n_joints).
        metric: that smooths the noise.
        options: more arguments of `configuration_in_collision`.
        n_seeds: paths for each problem.
        horizon: waypoints of a path.
        spread: of the noise and of the configurations, 1.0 or more.
        generator: of the random numbers.

    Returns:
        (batch, n_seeds, horizon, n_joints).
    """
    batch, n_joints = start.shape
    lines = straight_lines(start, goal, horizon)
    paths = lines[:, None].repeat(1, n_seeds, 1, 1)
    n_wavy = max((n_seeds - 1) // 2, 0)
    n_by_way = n_seeds - 1 - n_wavy
    if n_wavy > 0:
        noise = random_normal((batch, n_wavy, horizon - 2, n_joints), generator, start.device)
        size = torch.linspace(0.2, 1.0, n_wavy, device=start.device) * (spread * 2.0 * _WAVES)
        paths[:, 1 : n_wavy + 1, 1:-1] += metric.smooth(noise * size[:, None, None])
    if n_by_way > 0:
        middle = 0.5 * (start + goal)
        low, high = bounded(robot.joint_limits).to(start.device).unbind(-1)
        draw = random_uniform((batch, n_by_way * _CANDIDATES, n_joints), generator, start.device)
        reach = torch.linspace(0.4, 1.0, n_by_way, device=start.device) * spread
        reach = reach.clamp(max=1.0).repeat_interleave(_CANDIDATES)[:, None]
        via = middle[:, None] + reach * (low + draw * (high - low) - middle[:, None])
        hit = configuration_in_collision(via, robot, world, **options)
        order = hit.unflatten(1, (n_by_way, _CANDIDATES)).int().argmin(-1)
        order = order + _CANDIDATES * torch.arange(n_by_way, device=start.device)
        via = via.gather(1, order[..., None].expand(-1, -1, n_joints))
        s = torch.linspace(0.0, 1.0, horizon, device=start.device)
        tent = (1.0 - (2.0 * s - 1.0).abs())[:, None]
        paths[:, n_wavy + 1 :] += tent * (via - middle[:, None])[:, :, None]
    return paths
