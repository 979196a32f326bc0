"""First splines of curves: they round corners, and slow down where they are told to."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

from warp_collision.planning.blended import Blend
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.planning.timed_splines import bernstein, shortest_span

PIECES, JOINTS = 150, 3


def limits_of(rng: np.random.Generator, velocity: float = 2.0, jerk: float = 500.0):
    return MotionLimits(*(limit * rng.uniform(0.7, 1.0, JOINTS) for limit in (velocity, 15, jerk)))


def distance_from_path(points: np.ndarray, corners: np.ndarray) -> float:
    """The largest distance of points (m, n) from the lines between corners."""
    begin, way = corners[:-1], np.diff(corners, axis=0)
    share = ((points[:, None] - begin) * way).sum(2) / (way**2).sum(1)
    near = begin + np.clip(share, 0.0, 1.0)[..., None] * way
    return float(np.linalg.norm(points[:, None] - near, axis=2).min(axis=1).max())


def values(points: np.ndarray) -> np.ndarray:
    """The spline at many places."""
    return BSpline(np.arange(len(points) + 4), points, 3)(np.linspace(3, len(points), 2_000))


@pytest.mark.parametrize("seed", range(6))
def test_corners_are_rounded_less_when_they_are_passed_more_slowly(seed):
    rng = np.random.default_rng(seed)
    limits = limits_of(rng, np.inf if seed == 0 else 2.0, np.inf if seed == 1 else 500.0)
    corners = rng.uniform(-1.0, 1.0, (6, JOINTS))
    blend, off = Blend(corners, limits), []
    for _ in range(4):
        points = blend.points(PIECES)
        assert points.shape == (PIECES + 3, JOINTS)
        assert (points[:3] == corners[0]).all()
        assert (points[-3:] == corners[-1]).all()
        assert (points >= corners.min(axis=0) - 1e-9).all()
        assert (points <= corners.max(axis=0) + 1e-9).all()
        off.append(distance_from_path(values(points), corners))
        blend.slow_down(np.arange(PIECES))
    assert off[0] > 0.02
    assert (np.diff(off) < 0.0).all()
    assert off[-1] < 0.75 * off[0]
    assert bernstein(points[None]).shape == (1, PIECES, 4, JOINTS)


def test_only_corners_that_are_near_become_slower():
    rng = np.random.default_rng(7)
    corners = np.array([[0.0, 0, 0], [1.5, 0, 0], [1.5, 1.5, 0], [1.5, 1.5, 1.5]])
    blend = Blend(corners, limits_of(rng))
    before = values(blend.points(PIECES))
    nearest = np.abs(before - corners[1]).sum(axis=1).argmin() * PIECES // len(before)
    for _ in range(4):
        blend.slow_down(np.array([nearest]))
    after = values(blend.points(PIECES))
    first, second = (
        [np.linalg.norm(each - corner, axis=1).min() for each in (before, after)]
        for corner in corners[1:3]
    )
    assert first[1] < 0.5 * first[0]
    assert second[1] == pytest.approx(second[0], rel=0.15)


def test_a_line_is_as_fast_as_its_slowest_joint():
    rng = np.random.default_rng(8)
    limits, corners = limits_of(rng), np.array([[0.0, 0.0, 0.0], [1.8, -0.9, 0.3]])
    blend = Blend(corners, limits)
    duration = PIECES * shortest_span(blend.points(PIECES)[None], limits)[0]
    blend.slow_down(np.array([3]))  # it has no corner
    assert PIECES * shortest_span(blend.points(PIECES)[None], limits)[0] == duration
    alone = (np.abs(corners[1]) / limits.velocity).max()
    assert alone < duration < 2.0 * alone


def test_limits_of_joints_that_rest_count_for_nothing():
    rng = np.random.default_rng(9)
    limits, corners = limits_of(rng), rng.uniform(-1.0, 1.0, (5, JOINTS))
    corners[:, 1] = 0.3
    slow = MotionLimits(
        *(
            limit * np.array([1.0, part, 1.0])
            for limit, part in zip(limits, (1e-3, 1e-3, 1e-6), strict=True)
        )
    )
    expected = Blend(corners, limits).points(PIECES)
    assert (Blend(corners, slow).points(PIECES) == expected).all()
