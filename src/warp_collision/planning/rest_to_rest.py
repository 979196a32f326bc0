"""Motion from rest to rest along straight lines, as fast as limits allow: it stops at corners."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from warp_collision.planning.motion_limits import MotionLimits

_Array = NDArray[np.float64]
# How far a waypoint may be from the line through its neighbours, which is then one line.
_STRAIGHT = 1.0e-6
# Durations below this share of the whole are left out.
_SHORT = 1.0e-9
_TINY = 1.0e-300  # rad^2 or m^2, of neighbours at one place
_REST = 1.0e-2  # s, of a path without motion


def corners_of(path: _Array) -> _Array:
    """The corners (m, n_joints) of a path (horizon, n_joints), m at least 2."""
    kept = [0]
    for end in (*_bends(path).tolist(), len(path) - 1):
        if not _is_straight(path[kept[-1] : end + 1]):
            for index in range(kept[-1] + 1, end):
                if not _is_straight(path[kept[-1] : index + 2]):
                    kept.append(index)
        kept.append(end)
    kept.pop()
    corners = path[[*kept, len(path) - 1]]
    moves = np.abs(np.diff(corners, axis=0)).max(axis=1) > 0.0
    moves[-1] |= not moves.any()
    return corners[np.concatenate(([True], moves))]


def _bends(path: _Array) -> NDArray[np.int64]:
    """Waypoints so far from the line through their neighbours that no straight line has them.

    Of three points that are `_STRAIGHT` from one line, in order, the middle one is at most twice
    that from the line through the others; their joint values are rounded, too.
    """
    along, offsets = path[2:] - path[:-2], path[1:-1] - path[:-2]
    squares = np.maximum((along * along).sum(axis=1), _TINY)
    shares = (offsets * along).sum(axis=1) / squares
    off = np.abs(offsets - shares[:, None] * along).max(axis=1)
    return 1 + np.flatnonzero(off > 3.0 * _STRAIGHT)


def _is_straight(points: _Array) -> bool:
    """Whether all points are near the line from the first to the last one, and in order."""
    begin, along = points[0], points[-1] - points[0]
    square = along @ along
    if square == 0.0:
        return bool(np.abs(points - begin).max() <= _STRAIGHT)
    offsets = points - begin
    shares = offsets @ along / square
    off = np.abs(offsets - shares[:, None] * along).max()
    return bool(off <= _STRAIGHT and (shares[1:] - shares[:-1] >= -_STRAIGHT).all())


def stopping_curve(corners: _Array, limits: MotionLimits) -> tuple[_Array, _Array]:
    """Times (pieces + 1,) and Bernstein coefficients (pieces, 4, n_joints) with a stop at corners.

    Args:
        corners: (m, n_joints).
        limits: of the joints. Each line is as fast as the joint that limits it allows.
    """
    spans, pieces = [], []
    changes = corners[1:] - corners[:-1]
    with np.errstate(divide="ignore"):
        bounds = [(limit / np.abs(changes)).min(axis=1).tolist() for limit in limits]
    for begin, end, change, *most in zip(corners[:-1], corners[1:], changes, *bounds, strict=True):
        if not change.any():
            spans.append(_REST)
            pieces.append(np.repeat(begin[None, None], 4, axis=1))
            continue
        try:
            durations, positions = unit_motion(*most)
        except ArithmeticError:  # a limit so small that no float64 has the time
            durations, positions = [math.inf], np.zeros((1, 4))
        spans += durations
        part = begin + positions[..., None] * change
        part[-1, -1] = end
        pieces.append(part)
    return np.concatenate(([0.0], np.cumsum(spans))), np.concatenate(pieces)


def braking_curve(begin: _Array, rate: _Array, limits: MotionLimits) -> tuple[_Array, _Array]:
    """Durations (pieces,) and coefficients (pieces, 4, n_joints) from a velocity to rest.

    On the line of the velocity, as fast as its joint that limits it allows.

    Args:
        begin: (n_joints,).
        rate: (n_joints,), the velocity at the begin.
        limits: of the joints.
    """
    if not np.abs(rate).max() > 0.0:
        return np.empty(0), np.empty((0, 4, len(begin)))
    with np.errstate(divide="ignore"):
        most, jerk = (float((limit / np.abs(rate)).min()) for limit in limits[1:])
    rise = min(most / jerk, math.sqrt(1.0 / jerk))
    peak = most if rise == most / jerk else jerk * rise
    stay = max(1.0 / peak - rise, 0.0)
    phases = [(rise, 0.0, -peak), (stay, -peak, -peak), (rise, -peak, 0.0)]
    durations, ways = _integrated([each for each in phases if each[0] > _SHORT / peak], 1.0)
    return np.array(durations), begin + ways[..., None] * rate


def _integrated(
    phases: list[tuple[float, float, float]], speed: float
) -> tuple[list[float], _Array]:
    """Durations and Bernstein coefficients (pieces, 4) of positions by linear accelerations.

    Args:
        phases: the duration, and the acceleration at first and at last, of each.
        speed: at first.
    """
    durations, rows, s, v = [], [], 0.0, speed
    for d, first, last in phases:
        square = d * d
        end = s + v * d + first * square / 3.0 + last * square / 6.0
        rows.append([s, s + v * d / 3.0, s + 2.0 * v * d / 3.0 + first * square / 6.0, end])
        durations.append(d)
        s, v = end, v + 0.5 * (first + last) * d
    return durations, np.array(rows)


def unit_motion(velocity: float, acceleration: float, jerk: float) -> tuple[list[float], _Array]:
    """The fastest motion from 0 to 1, from rest to rest, with a jerk of one size.

    Seven phases: the acceleration rises, stays and falls, the speed stays, and the same backwards.
    Those without duration are left out.

    Returns:
        Durations of the pieces, and their Bernstein coefficients (pieces, 4).
    """
    rise = min(acceleration / jerk, math.sqrt(velocity / jerk), (0.5 / jerk) ** (1.0 / 3.0))
    peak = acceleration if rise == acceleration / jerk else jerk * rise
    # From 0 to 1 without constant speed: peak (rise + stay) (2 rise + stay) = 1.
    root = 9.0 * rise * rise - 4.0 * (2.0 * rise * rise - 1.0 / peak)
    stay = max(min(0.5 * (math.sqrt(max(root, 0.0)) - 3.0 * rise), velocity / peak - rise), 0.0)
    speed = peak * (rise + stay)
    cruise = max((1.0 - speed * (2.0 * rise + stay)) / speed, 0.0)
    whole = 4.0 * rise + 2.0 * stay + cruise
    ramps = [(rise, 0.0, peak), (stay, peak, peak), (rise, peak, 0.0)]
    back = [(duration, -last, -first) for duration, first, last in reversed(ramps)]
    phases = [*ramps, (cruise, 0.0, 0.0), *back]
    durations, rows = _integrated([each for each in phases if each[0] > _SHORT * whole], 0.0)
    if not durations:  # of limits so small that no float64 has the time
        return [math.inf], np.zeros((1, 4))
    return durations, rows / rows[-1, -1]
