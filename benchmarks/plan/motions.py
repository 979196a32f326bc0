"""What one question of a planner costs: a motion at a time, through Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.plan.planners import MotionChecker
from benchmarks.plan.problems import list_problems, read_problem
from benchmarks.plan.robots import load_robot
from warp_collision import MeshWorld, configuration_in_collision

LENGTHS = (0.0, 0.1, 0.3, 1.0, 3.0)  # of motions, Euclidean in joint space [rad]
COUNT = 400


def measure(folder: Path, robot: str) -> list[dict[str, Any]]:
    """Times of motions in the first scene of each set, on one core.

    Motions begin at random free configurations and go in random directions.

    Returns:
        For each length the median and the 95th percentile [µs] of motions that are proven free, and
        the median of others; None where there are too few.
    """
    arm = load_robot(folder, robot)
    names = list(arm.joint_names)
    firsts = {kind: index for kind, index in reversed(list_problems(folder, robot))}
    generator = torch.Generator().manual_seed(0)
    low, high = arm.joint_limits.unbind(-1)
    times: dict[float, list[tuple[bool, float]]] = {length: [] for length in LENGTHS}
    for kind, index in firsts.items():
        problem = read_problem(folder, robot, kind, index, names)
        world = MeshWorld.from_file(problem.scene, device="cpu")
        checker = MotionChecker(arm, world)
        begin = low + torch.rand((COUNT, len(low)), generator=generator) * (high - low)
        begin = begin[~configuration_in_collision(begin, arm, world)]
        for length in LENGTHS:
            step = torch.randn(begin.shape, generator=generator)
            end = begin + length * step / step.norm(dim=1, keepdim=True)
            for pair in zip(begin.tolist(), end.tolist(), strict=True):
                before = time.perf_counter()
                free = checker.motion_is_free(*pair)
                times[length].append((free, 1e6 * (time.perf_counter() - before)))
    return [_row(length, found) for length, found in times.items()]


def _row(length: float, found: list[tuple[bool, float]]) -> dict[str, Any]:
    free, hit = ([micro for is_free, micro in found if is_free == kind] for kind in (True, False))
    quantiles = [round(float(np.quantile(free, q)), 1) for q in (0.5, 0.95)] if free else [None] * 2
    return {
        "length": length,
        "free": quantiles[0],
        "free95": quantiles[1],
        "hit": round(float(np.median(hit)), 1) if len(hit) > 10 else None,
    }
