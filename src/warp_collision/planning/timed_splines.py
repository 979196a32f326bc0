"""Curves made faster: cubic B-splines within limits, whose time shrinks while they stay free.

A spline has equal spans of h seconds, so that its velocities, accelerations and jerks are first,
second and third differences of its control points over h, h^2 and h^3. Each iteration makes some
Newton steps: h is a little longer than the limits need for the control points as they are. These
move on a barrier, the sum of -log(1 - u^2) over all differences u relative to their limits. This
gives slack to the limits that were the tightest, so that h can shrink further. Collision costs
push curves away from obstacles. The steps are kept if the curve is proven free; else they are
shortened, and the control points that they hit with are held by a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels.lanes.spline_step import LANES, N_ROWS, spline_step
from warp_collision.launching.launch import launch
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
_SLACK, _LEAST_SLACK, _LESS = 0.03, 0.004, 0.3
_GAIN = 0.01  # of an iteration; after a smaller one the slack is reduced
_NEWTON_STEPS = torch.tensor([14], dtype=torch.int32)  # of an iteration
_ACTIVATION = 0.01  # m, from which clearance on collision costs count
_TRIES = 4  # of a step, each shorter than the one before by this factor
_SHORTER = 0.4
# Weights of control points: where nothing was hit, factor of a hit, largest, factor of each step.
_FREE, _HELD, _FIRMEST, _FORGET = 1.0, 100.0, 1.0e9, 0.5
_FROM_LIMITS = 1.0e-4  # rad or m, how far inner control points are from joint limits at first
_AT_LIMIT, _NO_ROOM = 1.0e-5, 1.0e-9  # rad or m, of paths at joint limits and beyond them


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


def control_points(points: _Array) -> _Array:
    """Bernstein coefficients (batch, 3 pieces + 1, n_joints) of splines (batch, n, n_joints).

    Neighbouring pieces share the one where they meet.
    """
    before, inner, after = points[:, :-2], points[:, 1:-1], points[:, 2:]
    batch, n, joints = inner.shape
    found = np.empty((batch, DEGREE * n - 2, joints))
    found[:, ::DEGREE] = (before + 4.0 * inner + after) / 6.0
    found[:, 1::DEGREE] = (2.0 * inner[:, :-1] + inner[:, 1:]) / 3.0
    found[:, 2::DEGREE] = (inner[:, :-1] + 2.0 * inner[:, 1:]) / 3.0
    found[:, 0], found[:, -1] = points[:, 0], points[:, -1]  # to the bit
    return found


def bernstein(points: _Array) -> _Array:
    """Bernstein coefficients (batch, pieces, 4, n_joints) of splines (batch, n, n_joints)."""
    shared = control_points(points)
    first = DEGREE * np.arange(points.shape[1] - DEGREE)
    return shared[:, first[:, None] + np.arange(DEGREE + 1)]


def differences(points: _Array) -> list[_Array]:
    """First, second and third differences (batch, n - k, n_joints)."""
    first = points[:, 1:] - points[:, :-1]
    second = first[:, 1:] - first[:, :-1]
    return [first, second, second[:, 1:] - second[:, :-1]]


def shortest_span(points: _Array, limits: MotionLimits) -> _Array:
    """The shortest span (batch,) [s] with which splines (batch, n, n_joints) keep limits."""
    first, second, third = (
        (np.abs(part) / limit).max(axis=(1, 2))
        for part, limit in zip(differences(points), limits, strict=True)
    )
    return np.maximum(np.maximum(first, second**0.5), third ** (1.0 / 3.0))


class SplineDescent:
    """Makes splines faster, all rows side by side.

    Args:
        problems: the scene of each row, with the margin to be kept.
        limits: of the joints' motion.
    """

    def __init__(self, problems: Problems, limits: MotionLimits):
        self.problems, self.limits = problems, limits
        with np.errstate(divide="ignore"):
            self._inverse_limits = torch.from_numpy(1.0 / np.stack(limits))
        self._low, self._high = problems.limits.cpu().double().numpy().T
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
        device = self.problems.world.device
        on_device = torch.from_numpy(control_points(points)).float().to(device)
        index = torch.from_numpy(rows).to(device)
        return self.problems.curve_hits(on_device, index, DEGREE).cpu().numpy()

    def run(self, points: _Array, rows: _Rows, max_iterations: int) -> Splines:
        """Makes free splines (batch, n, n_joints) of rows (batch,) faster."""
        best = Splines(points.copy(), shortest_span(points, self.limits))
        limits = self._joint_limits(points)
        state = _State(points, best.span.copy(), np.arange(len(points)), limits)
        gradient = _Gradient(self._term, points, rows)
        for _ in range(max_iterations):
            self._step(state, gradient(state.points), gradient.rows)
            state.span = shortest_span(state.points, self.limits)
            gains = state.span < (1.0 - _GAIN) * best.span[state.index]
            state.slack[~gains] *= _LESS
            better = state.span < best.span[state.index]
            best.points[state.index[better]] = state.points[better]
            best.span[state.index[better]] = state.span[better]
            if not state.going.all():
                state = state.of_going()
                if len(state.index) == 0:
                    break
                gradient = _Gradient(self._term, state.points, rows[state.index])
        return best

    def start(self, points: _Array) -> _Array:
        """Moves the inner control points of splines off the joint limits, if they keep them."""
        low, high = self._low, self._high
        room = np.minimum(_FROM_LIMITS, 0.25 * (high - low))
        inside = ((points >= low - _AT_LIMIT) & (points <= high + _AT_LIMIT)).all(axis=1)
        moved = np.where(inside[:, None], np.clip(points, low + room, high - room), points)
        moved[:, :_FIXED], moved[:, -_FIXED:] = points[:, :_FIXED], points[:, -_FIXED:]
        return moved

    def _joint_limits(self, points: _Array) -> _Array:
        """Limits (batch, n_joints, 2) of inner control points; of paths beyond them their own."""
        inner = points[:, _FIXED:-_FIXED]
        low = np.minimum(self._low, inner.min(axis=1) - _NO_ROOM)
        high = np.maximum(self._high, inner.max(axis=1) + _NO_ROOM)
        return np.stack((low, high), axis=2)

    def _step(self, state: _State, gradient: Tensor, rows: _Rows) -> None:
        """Some Newton steps of each row, as far as they are proven free."""
        open_rows = np.arange(len(rows))
        move, size = self._newton(state, gradient), 1.0
        for attempt in range(_TRIES):
            moved = state.points[open_rows] + size * move
            hits = self.hits(moved, rows[open_rows])
            hit = hits.any(axis=1)
            state.points[open_rows[~hit]] = moved[~hit]
            if not hit.any():
                break
            open_rows, move, size = open_rows[hit], move[hit], size * _SHORTER
            state.hold(open_rows, hits[hit])
            if attempt % 2 == 0:
                held = state if len(open_rows) == len(rows) else state.at(open_rows)
                move = self._newton(held, gradient[torch.from_numpy(open_rows)])
        state.weight = np.maximum(_FORGET * state.weight, _FREE)

    def _newton(self, state: _State, gradient: Tensor) -> _Array:
        """Moves (batch, n, n_joints) by Newton steps, which stay within the limits."""
        numbers = state.points, state.span, state.slack, state.weight, state.limits
        points, span, slack, weight, limits = map(torch.from_numpy, numbers)
        batch, n, joints = points.shape
        moved = torch.empty_like(points)
        launch(
            spline_step,
            (batch,),
            points,
            span,
            slack,
            weight,
            gradient,
            self._inverse_limits,
            limits,
            _NEWTON_STEPS,
            points.new_empty((batch * -(-joints // LANES), N_ROWS, n, LANES)),
            moved,
            device=CPU,
            items=256 * batch * n,
        )
        return (moved - points).numpy()


class _State:
    """Rows that are being made faster."""

    def __init__(self, points: _Array, span: _Array, index: _Rows, limits: _Array):
        self.points, self.span, self.index, self.limits = points, span, index, limits
        self.weight = np.full(points.shape[:2], _FREE)
        self.slack = np.full(len(points), _SLACK)

    @property
    def going(self) -> NDArray[np.bool_]:
        """Rows that are not done (batch,)."""
        return self.slack > _LEAST_SLACK * _LESS

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
        part.weight, part.slack = self.weight[rows], self.slack[rows]
        return part

    def of_going(self) -> _State:
        """The rows that are not done."""
        return self.at(self.going)


class _Gradient:
    """Derivative of the collision cost of splines by the values at their knots, on the CPU."""

    def __init__(self, term: CollisionTerm, points: _Array, rows: _Rows):
        self.rows = rows
        index = torch.from_numpy(rows).to(term.world.device)
        shape = len(points), points.shape[1] - 2, points.shape[2]
        self._knots = torch.empty(shape, device=term.world.device)
        self._derivative = CollisionGradient(term, self._knots, index)

    def __call__(self, points: _Array) -> Tensor:
        knots = (points[:, :-2] + 4.0 * points[:, 1:-1] + points[:, 2:]) / 6.0
        self._knots.copy_(torch.from_numpy(knots))
        return self._derivative().cpu()
