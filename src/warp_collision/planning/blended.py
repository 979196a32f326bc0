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
        self._shares = np.ones(len(corners) - 2)  # of speeds at inner corners
        places = np.sort(np.concatenate((self._at, np.linspace(0.0, self._at[-1], _FINE))))
        self._places = places[np.concatenate(([True], places[1:] > places[:-1]))]
        self._grown = self._grown_squares()

    def slow_down(self, pieces: NDArray[np.int64]) -> None:
        """Halves the speed at corners that are nearest to some pieces (m,) of the spline."""
        inner = self._place[1:-1]
        if len(inner) > 0 and len(pieces) > 0:
            nearest = np.abs(inner - (pieces[:, None] + 0.5)).argmin(axis=1)
            self._shares[np.unique(nearest)] *= 0.5

    def points(self, n_pieces: int) -> _Array:
        """Control points (n_pieces + 3, n_joints) of a spline, those at each end equal."""
        at, times = self._places, self._times()
        pad = 0.5 * sum(self._windows)  # a mean begins before what it is of
        moments = np.linspace(-pad, times[-1] + pad, 2 * _FINE)
        path = _between(np.interp(moments, times, at), self._at, self._corners.T)
        for window in self._windows:
            path = _means(path, moments, window)
        self._place = (np.interp(self._at, at, times) + pad) * n_pieces / (times[-1] + 2.0 * pad)
        knots = np.linspace(moments[0], moments[-1], n_pieces + 1)
        points = np.empty((n_pieces + 3, len(path)))
        points[2:-2] = _between(knots, moments, path)[:, 1:-1].T
        points[:3], points[-3:] = self._corners[0], self._corners[-1]
        return points

    def _grown_squares(self) -> _Array:
        """By how much squares of speeds (inner corners, places) grow from a corner to a place."""
        slopes, corners = self._slopes[:, None], self._at[1:-1, None]
        slope = np.where(self._places < corners, slopes[:-1], slopes[1:])
        return 2.0 * slope * np.abs(self._places - corners)

    def _times(self) -> _Array:
        """When places are passed [s], by speeds whose squares grow linearly from corners on."""
        squares = self._shares[:, None] ** 2 + self._grown
        speeds = np.sqrt(squares.min(axis=0, initial=1.0))
        steps = 2.0 * np.diff(self._places) / (speeds[1:] + speeds[:-1])
        return np.concatenate(([0.0], np.cumsum(steps)))


def _between(at: _Array, knots: _Array, values: _Array) -> _Array:
    """Values (n_joints, m) between those at knots, linearly."""
    index = np.searchsorted(knots[1:-1], at)
    begin, span = knots.take(index), (knots[1:] - knots[:-1]).take(index)
    # np.clip takes five times as long.
    share = np.minimum(np.maximum((at - begin) / span, 0.0), 1.0)
    change = (values[:, 1:] - values[:, :-1]).take(index, axis=1)
    return values.take(index, axis=1) + share * change


def _means(path: _Array, moments: _Array, window: float) -> _Array:
    """Means over windows of time around moments at equal distances; at rest before and after."""
    step = moments[1] - moments[0]
    if window <= step:
        return path
    reach = int(np.ceil(0.5 * window / step)) + 1
    rest = path[:, :1].repeat(reach, axis=1), path[:, -1:].repeat(reach, axis=1)
    rows = np.concatenate((rest[0], path, rest[1]), axis=1)
    knots = moments[0] + step * np.arange(-reach, path.shape[1] + reach)
    whole = np.zeros_like(rows)
    np.cumsum(rows[:, 1:] + rows[:, :-1], axis=1, out=whole[:, 1:])
    ends = np.concatenate((moments - 0.5 * window, moments + 0.5 * window))
    sums = _between(ends, knots, 0.5 * step * whole)
    return (sums[:, len(moments) :] - sums[:, : len(moments)]) / window
