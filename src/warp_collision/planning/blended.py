"""Splines that round the corners of a path: where the descent of curves begins.

A path is followed at the speed that each of its lines allows, slower near corners that are in the
way of obstacles. Means over windows of time, as long as joints need for their velocity and their
acceleration, make a smooth motion of it, which rounds the corners.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warp_collision.planning.motion_limits import MotionLimits

_Array = NDArray[np.float64]
_FINE = 128  # of positions along a path, and of moments
_WINDOW = 1.5  # of means, in units of the time from rest to the highest speed


class Blend:
    """A path whose corners are passed at some speed each.

    Args:
        corners: (m, n_joints) of the path, m at least 2, with motion between them.
        limits: of the joints.
    """

    def __init__(self, corners: _Array, limits: MotionLimits):
        self._corners = corners
        ways = np.abs(np.diff(corners, axis=0))
        with np.errstate(divide="ignore"):
            speed, acceleration, _ = ((limit / ways).min(axis=1) for limit in limits)
        # At most what is reached within a line from rest, or from one such line to the next.
        speed = np.minimum(speed, np.sqrt(2.0 * acceleration))
        self._slopes = acceleration / speed  # of the share of the speed, at most [1/s]
        self._at = np.concatenate(([0.0], np.cumsum(1.0 / speed)))  # of corners, at full speed [s]
        rise = (limits.acceleration / limits.jerk)[ways.any(axis=0)]  # of joints that move
        self._windows = _WINDOW * float((1.0 / self._slopes).max()), float(rise.max())
        self._shares = np.ones(len(corners))

    def slow_down(self, pieces: NDArray[np.int64]) -> None:
        """Halves the speed at corners that are nearest to some pieces (m,) of the spline."""
        inner = self._place[1:-1]
        if len(inner) > 0 and len(pieces) > 0:
            nearest = np.abs(inner - (pieces[:, None] + 0.5)).argmin(axis=1)
            self._shares[1 + np.unique(nearest)] *= 0.5

    def points(self, n_pieces: int) -> _Array:
        """Control points (n_pieces + 3, n_joints) of a spline, those at each end equal."""
        at = np.union1d(self._at, np.linspace(0.0, self._at[-1], _FINE))
        times = self._times(at)
        pad = 0.5 * sum(self._windows)  # a mean begins before what it is of
        moments = np.linspace(-pad, times[-1] + pad, 2 * _FINE)
        path = _between(np.interp(moments, times, at), self._at, self._corners)
        for window in self._windows:
            path = _means(path, moments, window)
        self._place = (np.interp(self._at, at, times) + pad) * n_pieces / (times[-1] + 2.0 * pad)
        points = _between(np.linspace(moments[0], moments[-1], n_pieces + 1), moments, path)
        points = np.concatenate((points[:1], points, points[-1:]))
        points[:3], points[-3:] = self._corners[0], self._corners[-1]
        return points

    def _times(self, at: _Array) -> _Array:
        """When places are passed [s], by speeds whose squares grow linearly from corners on."""
        squares = np.ones(len(at))
        inner = range(1, len(self._corners) - 1)
        for corner in inner:
            slope = np.where(at < self._at[corner], *self._slopes[corner - 1 : corner + 1])
            grown = self._shares[corner] ** 2 + 2.0 * slope * np.abs(at - self._at[corner])
            squares = np.minimum(squares, grown)
        speeds = np.sqrt(squares)
        return np.concatenate(([0.0], np.cumsum(2.0 * np.diff(at) / (speeds[1:] + speeds[:-1]))))


def _between(at: _Array, knots: _Array, values: _Array) -> _Array:
    """Values (m, n_joints) between those at knots, linearly."""
    index = np.searchsorted(knots[1:-1], at)
    share = (at - knots[index]) / (knots[index + 1] - knots[index])
    share = np.minimum(np.maximum(share, 0.0), 1.0)  # np.clip takes five times as long
    return values[index] + share[:, None] * (values[index + 1] - values[index])


def _means(path: _Array, moments: _Array, window: float) -> _Array:
    """Means over windows of time around moments at equal distances; at rest before and after."""
    step = moments[1] - moments[0]
    if window <= step:
        return path
    reach = int(np.ceil(0.5 * window / step)) + 1
    rows = np.concatenate((path[:1].repeat(reach, 0), path, path[-1:].repeat(reach, 0)))
    knots = moments[0] + step * np.arange(-reach, len(path) + reach)
    whole = np.concatenate((np.zeros_like(rows[:1]), np.cumsum(rows[1:] + rows[:-1], axis=0)))
    begin, end = (
        _between(moments + side * window, knots, 0.5 * step * whole) for side in (-0.5, 0.5)
    )
    return (end - begin) / window
