"""Seeds of a descent: straight lines, smooth noise, and paths via random configurations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warp_collision.planning.descent import SmoothMetric
from warp_collision.planning.problems import Problems
from warp_collision.robot import configuration_in_collision

_NOISE = 0.45  # mean size of the coordinates of noisy paths in the first round
_CANDIDATES = 8  # random configurations for each via point


def random_normal(
    shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> Tensor:
    """Normal numbers, the same on all devices."""
    return torch.randn(shape, generator=generator, device=generator.device).to(device)


def random_uniform(
    shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> Tensor:
    """Uniform numbers in [0, 1), the same on all devices."""
    return torch.rand(shape, generator=generator, device=generator.device).to(device)


def bounded(limits: Tensor) -> Tensor:
    """(n_joints, 2) limits for sampling: one revolution for continuous joints."""
    return torch.nan_to_num(limits, nan=0.0, posinf=math.pi, neginf=-math.pi)


def first_paths(
    problems: Problems,
    rows: Tensor,
    lines: Tensor,
    metric: SmoothMetric,
    *,
    n_seeds: int,
    spread: float,
    generator: torch.Generator,
) -> Tensor:
    """Seeds of a descent for each problem.

    The first one is straight. Half of the others have smooth noise; the rest pass near a random
    free configuration, the first ones nearer to the middle of start and goal.

    Args:
        problems: all problems.
        rows: (batch,) int64, those to start on.
        lines: (batch, horizon, n_joints), their straight lines.
        metric: for smoothing the noise.
        n_seeds: paths for each problem.
        spread: of the noise and of the configurations, 1.0 or more.
        generator: of the random numbers.

    Returns:
        (batch, n_seeds, horizon, n_joints).
    """
    batch, horizon, n_joints = lines.shape
    device = lines.device
    paths = lines[:, None].repeat(1, n_seeds, 1, 1)
    n_noisy = max((n_seeds - 1) // 2, 0)
    n_via = n_seeds - 1 - n_noisy
    if n_noisy > 0:
        noise = random_normal((batch, n_noisy, horizon - 2, n_joints), generator, device)
        size = torch.linspace(0.2, 1.0, n_noisy, device=device) * (spread * 2.0 * _NOISE)
        paths[:, 1 : n_noisy + 1, 1:-1] += metric.smooth(noise * size[:, None, None])
    if n_via > 0:
        middle = 0.5 * (lines[:, 0] + lines[:, -1])
        low, high = bounded(problems.limits).unbind(-1)
        draw = random_uniform((batch, n_via * _CANDIDATES, n_joints), generator, device)
        reach = torch.linspace(0.4, 1.0, n_via, device=device) * spread
        reach = reach.clamp(max=1.0).repeat_interleave(_CANDIDATES)[:, None]
        via = middle[:, None] + reach * (low + draw * (high - low) - middle[:, None])
        hit = configuration_in_collision(
            via, problems.robot, problems.world, **problems.world_of(rows)
        )
        order = hit.unflatten(1, (n_via, _CANDIDATES)).int().argmin(-1)
        order = order + _CANDIDATES * torch.arange(n_via, device=device)
        via = via.gather(1, order[..., None].expand(-1, -1, n_joints))
        s = torch.linspace(0.0, 1.0, horizon, device=device)
        tent = (1.0 - (2.0 * s - 1.0).abs())[:, None]
        paths[:, n_noisy + 1 :] += tent * (via - middle[:, None])[:, :, None]
    return paths
