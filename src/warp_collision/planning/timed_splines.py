"""Curves made faster: cubic B-splines within limits, whose time shrinks while they stay free.

A spline has equal spans of h seconds, so that its velocities, accelerations and jerks are first,
second and third differences of its control points over h, h^2 and h^3. Each iteration takes h a
little longer than the limits need for the control points as they are, and makes a Newton step of
them on a barrier: the sum of -log(1 - u^2) over all differences u relative to their limits. This
gives slack to the limits that were the tightest, so that h can shrink further. Collision costs push
curves away from obstacles. A step is kept if the curve is proven free; else it is shortened, and
the control points that it hits with are held by a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.planning.objective import CollisionGradient
from warp_collision.planning.problems import Problems
from warp_collision.planning.terms import CollisionTerm
from warp_collision.robot import SelfCollisionPairs

_Array = NDArray[np.float64]
_Rows = NDArray[np.int64]
DEGREE = 3
# Control points at each end, which are equal: the curve begins and ends at rest.
_FIXED = 3
# h relative to the shortest one that the limits allow: at first, and at last.
_SLACK, _LEAST_SLACK, _LESS = 0.03, 0.004, 0.4
_PATIENCE = 2  # iterations without a gain, then the slack is reduced
_GAIN = 0.003
# Of collision costs against the barrier [1/m], and from which clearance on they count [m].
_PUSH, _ACTIVATION = 1.0e3, 0.01
_TRIES = 4  # of a step, each shorter than the one before by this factor
_SHORTER = 0.4
# Weights of control points: where nothing was hit, factor of a hit, largest, factor of each step.
_FREE, _HELD, _FIRMEST, _FORGET = 1.0, 100.0, 1.0e9, 0.5
_INSIDE = 0.9  # of the way to the nearest limit, at most, in a step
_FROM_LIMITS = 1.0e-4  # rad or m, how far inner control points are from joint limits at first
_AT_LIMIT, _NO_ROOM = 1.0e-5, 1.0e-9  # rad or m, of paths at joint limits and beyond them
_STENCILS = ((-1.0, 1.0), (1.0, -2.0, 1.0), (-1.0, 3.0, -3.0, 1.0))


@dataclass
class Splines:
    """Splines of a batch, each with its span of time.

    Attributes:
        points: (batch, n, n_joints) control points.
        span: (batch,) [s], the shortest one that the limits allow.
    """

    points: _Array
    span: _Array

    @property
    def duration(self) -> _Array:
        """(batch,) [s]."""
        return self.span * (self.points.shape[1] - DEGREE)


def bernstein(points: _Array) -> _Array:
    """Bernstein coefficients (batch, pieces, 4, n_joints) of splines (batch, n, n_joints)."""
    a, b, c, d = points[:, :-3], points[:, 1:-2], points[:, 2:-1], points[:, 3:]
    middle = (2.0 * b + c) / 3.0, (b + 2.0 * c) / 3.0
    pieces = np.stack([(a + 4.0 * b + c) / 6.0, *middle, (b + 4.0 * c + d) / 6.0], axis=2)
    pieces[:, 0, 0], pieces[:, -1, -1] = points[:, 0], points[:, -1]  # to the bit
    pieces[:, :-1, -1] = pieces[:, 1:, 0]
    return pieces


def differences(points: _Array) -> list[_Array]:
    """First, second and third differences (batch, n - k, n_joints)."""
    first = points[:, 1:] - points[:, :-1]
    second = first[:, 1:] - first[:, :-1]
    return [first, second, second[:, 1:] - second[:, :-1]]


def shortest_span(points: _Array, limits: MotionLimits) -> _Array:
    """The shortest span (batch,) [s] with which splines (batch, n, n_joints) keep limits."""
    largest = [
        (np.abs(part) / limit).max(axis=(1, 2)) ** (1.0 / (k + 1))
        for k, (part, limit) in enumerate(zip(differences(points), limits, strict=True))
    ]
    return np.max(largest, axis=0)


class SplineDescent:
    """Makes splines faster, all rows side by side.

    Args:
        problems: the scene of each row, with the margin to be kept.
        limits: of the joints' motion.
    """

    def __init__(self, problems: Problems, limits: MotionLimits):
        self._problems, self._limits = problems, limits
        pairs = problems.changing_pairs
        self._term = CollisionTerm(
            problems.robot,
            problems.world,
            weight=1.0,
            activation_distance=_ACTIVATION,
            self_weight=0.0 if pairs is False else 1.0,
            self_activation_distance=_ACTIVATION,
            pairs=pairs if isinstance(pairs, SelfCollisionPairs) else None,
            ignore=problems.ignore,
            env_index=problems.env_index,
            base_pose=problems.base_pose,
        )

    def hits(self, points: _Array, rows: _Rows) -> NDArray[np.bool_]:
        """Pieces (m, pieces) of the splines of rows (m,) that are not proven free."""
        pieces = bernstein(points)
        shared = np.concatenate(
            (pieces[:, :, :-1].reshape(len(points), -1, points.shape[2]), pieces[:, -1, -1:]),
            axis=1,
        )
        device = self._problems.world.device
        on_device = torch.from_numpy(shared).float().to(device)
        index = torch.from_numpy(rows).to(device)
        return self._problems.curve_hits(on_device, index, DEGREE).cpu().numpy()

    def run(self, points: _Array, rows: _Rows, max_iterations: int) -> Splines:
        """Makes free splines (batch, n, n_joints) of rows (batch,) faster."""
        best = Splines(points.copy(), shortest_span(points, self._limits))
        limits = self._joint_limits(points)
        state = _State(points, best.span.copy(), np.arange(len(points)), limits)
        push = _Push(self._term, points, rows)
        for _ in range(max_iterations):
            self._step(state, push(state.points), push.rows)
            state.span = shortest_span(state.points, self._limits)
            state.count(state.span < (1.0 - _GAIN) * best.span[state.index])
            better = state.span < best.span[state.index]
            best.points[state.index[better]] = state.points[better]
            best.span[state.index[better]] = state.span[better]
            if not state.going.all():
                state = state.of_going()
                if len(state.index) == 0:
                    break
                push = _Push(self._term, state.points, rows[state.index])
        return best

    def start(self, points: _Array) -> _Array:
        """Moves the inner control points of splines off the joint limits, if they keep them."""
        low, high = self._problems.limits.cpu().double().numpy().T
        room = np.minimum(_FROM_LIMITS, 0.25 * (high - low))
        inside = ((points >= low - _AT_LIMIT) & (points <= high + _AT_LIMIT)).all(axis=1)
        moved = np.where(inside[:, None], np.clip(points, low + room, high - room), points)
        moved[:, :_FIXED], moved[:, -_FIXED:] = points[:, :_FIXED], points[:, -_FIXED:]
        return moved

    def _joint_limits(self, points: _Array) -> _Array:
        """Limits (batch, 2, n_joints) of inner control points; of paths beyond them their own."""
        limits = self._problems.limits.cpu().double().numpy()
        inner = points[:, _FIXED:-_FIXED]
        low = np.minimum(limits[:, 0], inner.min(axis=1) - _NO_ROOM)
        high = np.maximum(limits[:, 1], inner.max(axis=1) + _NO_ROOM)
        return np.stack((low, high), axis=1)

    def _step(self, state: _State, push: _Array, rows: _Rows) -> None:
        """One Newton step of each row, as far as it is proven free."""
        span = state.span * (1.0 + state.slack)
        scale = [limit * (span ** (k + 1))[:, None, None] for k, limit in enumerate(self._limits)]
        step, size = self._newton(state, scale, push)
        open_rows = np.arange(len(step))
        for attempt in range(_TRIES):
            moved = state.points[open_rows] + size[open_rows, None, None] * step[open_rows]
            hits = self.hits(moved, rows[open_rows])
            free = ~hits.any(axis=1)
            state.points[open_rows[free]] = moved[free]
            state.hold(open_rows, hits)
            open_rows = open_rows[~free]
            if len(open_rows) == 0:
                break
            size[open_rows] *= _SHORTER
            if attempt % 2 == 0:
                again = state.at(open_rows)
                parts = [part[open_rows] for part in scale]
                step[open_rows], size[open_rows] = self._newton(again, parts, push[open_rows])
        state.weight = np.maximum(_FORGET * state.weight, _FREE)

    def _newton(self, state: _State, scale: list[_Array], push: _Array) -> tuple[_Array, _Array]:
        """Newton steps (batch, n, n_joints), and which share of them stays within the limits."""
        points, n = state.points, state.points.shape[1]
        gradient = push.copy()
        bands = np.zeros((DEGREE + 1, *points.shape))
        bands[0] += state.weight[..., None]
        relative = [part / s for part, s in zip(differences(points), scale, strict=True)]
        for part, s, stencil in zip(relative, scale, _STENCILS, strict=True):
            above, below = 1.0 / (s * (1.0 - part)), 1.0 / (s * (1.0 + part))
            slope, curvature = above - below, above * above + below * below
            m = part.shape[1]
            for i, first in enumerate(stencil):
                gradient[:, i : i + m] += first * slope
                for j in range(i, len(stencil)):
                    bands[j - i][:, i : i + m] += first * stencil[j] * curvature
        inner = slice(_FIXED, n - _FIXED)
        below = points[:, inner] - state.limits[:, :1]
        above = state.limits[:, 1:] - points[:, inner]
        gradient[:, inner] += 1.0 / above - 1.0 / below
        bands[0][:, inner] += above**-2 + below**-2
        step = np.zeros_like(points)
        step[:, inner] = -_solved(bands, gradient, inner)
        return step, _within(points, step, relative, scale, state.limits)


def _solved(bands: _Array, gradient: _Array, inner: slice) -> _Array:
    """Solves for all rows and joints at once: one band matrix of blocks."""
    batch, n, joints = gradient.shape
    m = n - 2 * _FIXED
    matrix = np.zeros((len(bands), batch, joints, m))
    for k, band in enumerate(bands):
        matrix[k, ..., : m - k] = band[:, _FIXED : n - _FIXED - k].transpose(0, 2, 1)
    right = gradient[:, inner].transpose(0, 2, 1).reshape(-1)
    found = solveh_banded(matrix.reshape(len(bands), -1), right, lower=True, check_finite=False)
    return found.reshape(batch, joints, m).transpose(0, 2, 1)


def _within(
    points: _Array, step: _Array, relative: list[_Array], scale: list[_Array], limits: _Array
) -> _Array:
    """The largest share (batch,) of steps, up to 1, that is inside of all limits."""
    rooms = [
        _room(part, move / s)
        for part, move, s in zip(relative, differences(step), scale, strict=True)
    ]
    middle, half = 0.5 * (limits[:, :1] + limits[:, 1:]), 0.5 * (limits[:, 1:] - limits[:, :1])
    bounded = np.isfinite(half)
    half, middle = np.where(bounded, half, 1.0), np.where(bounded, middle, 0.0)
    inner = slice(_FIXED, -_FIXED)
    at = np.where(bounded, points - middle, 0.0) / half
    move = np.where(bounded, step, 0.0) / half
    rooms.append(_room(at[:, inner], move[:, inner]))
    return np.minimum(1.0, _INSIDE * np.min(rooms, axis=0))


def _room(value: _Array, move: _Array) -> _Array:
    """How many moves (batch,) lead values within -1 and 1 to one of these."""
    left = (1.0 - np.sign(move) * value) / np.maximum(np.abs(move), 1.0e-300)
    return left.min(axis=(1, 2))


class _State:
    """Rows that are being made faster."""

    def __init__(self, points: _Array, span: _Array, index: _Rows, limits: _Array):
        self.points, self.span, self.index, self.limits = points, span, index, limits
        self.weight = np.full(points.shape[:2], _FREE)
        self.slack = np.full(len(points), _SLACK)
        self.idle = np.zeros(len(points), dtype=int)

    @property
    def going(self) -> NDArray[np.bool_]:
        """Rows that are not done (batch,)."""
        return self.slack > _LEAST_SLACK * _LESS

    def count(self, gains: NDArray[np.bool_]) -> None:
        """Reduces the slack of rows that gained nothing for some iterations."""
        self.idle = np.where(gains, 0, self.idle + 1)
        self.slack[self.idle > _PATIENCE] *= _LESS
        self.idle[self.idle > _PATIENCE] = 0

    def hold(self, rows: _Rows, hits: NDArray[np.bool_]) -> None:
        """Raises the weights of the control points of pieces (m, pieces) that hit."""
        held = np.zeros((len(rows), self.points.shape[1]), dtype=bool)
        for k in range(DEGREE + 1):
            held[:, k : k + hits.shape[1]] |= hits
        heavier = np.minimum(self.weight[rows] * _HELD, _FIRMEST)
        self.weight[rows] = np.where(held, heavier, self.weight[rows])

    def at(self, rows: _Rows | NDArray[np.bool_]) -> _State:
        """Copies of some rows."""
        part = _State(self.points[rows], self.span[rows], self.index[rows], self.limits[rows])
        part.weight, part.slack, part.idle = self.weight[rows], self.slack[rows], self.idle[rows]
        return part

    def of_going(self) -> _State:
        """The rows that are not done."""
        return self.at(self.going)


class _Push:
    """Derivative of the collision cost of splines of rows (batch,) by their control points."""

    def __init__(self, term: CollisionTerm, points: _Array, rows: _Rows):
        self.rows = rows
        index = torch.from_numpy(rows).to(term.world.device)
        self._knots = torch.empty(
            (len(points), points.shape[1] - 2, points.shape[2]), device=term.world.device
        )
        self._gradient = CollisionGradient(term, self._knots, index)

    def __call__(self, points: _Array) -> _Array:
        knots = (points[:, :-2] + 4.0 * points[:, 1:-1] + points[:, 2:]) / 6.0
        self._knots.copy_(torch.from_numpy(knots))
        found = (_PUSH / 6.0) * self._gradient().cpu().double().numpy()
        push = np.zeros_like(points)
        for k, weight in enumerate((1.0, 4.0, 1.0)):
            push[:, k : k + found.shape[1]] += weight * found
        return np.where(np.isfinite(push), push, 0.0)
