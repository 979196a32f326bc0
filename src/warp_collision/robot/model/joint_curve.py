"""Joint curves: pieces that are polynomials of each joint, with their times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import short_repr

MAX_DEGREE = 5
# How far a piece may begin from the end of the one before it, relative to the joint values.
_JUMP = 1.0e-9
_QUADRATURE = 16

_Array = NDArray[np.float64]


class JointCurve:
    """A batch of curves in joint space, whose pieces are polynomials of degree up to 5.

    Made by `from_waypoints`, `from_hermite`, `from_spline` or `from_samples`. All is kept in
    float64. The checks, such as `joint_path_in_collision`, take a curve in place of joint values,
    and prove the curve itself: their bounds include its rounding to float32. To optimize a curve,
    make it of a tensor of coefficients that requires a gradient, `JointCurve(times, coefficients)`:
    `joint_path_cost` is differentiable in them.

    Args:
        times: (batch, pieces + 1), which grow.
        coefficients: (batch, pieces, degree + 1, n_joints), degree 0 to 5. Those that are not
            finite cost NaN, and are never free.

    Raises:
        TypeError, ValueError: other types or shapes; times that are not finite or do not grow.

    Attributes:
        times: (batch, pieces + 1) float64, ends of the pieces [s].
        coefficients: (batch, pieces, degree + 1, n_joints) float64, Bernstein coefficients of each
            piece [rad, prismatic: m].

    Example:
        >>> from scipy.interpolate import CubicSpline
        >>> from warp_collision import MeshWorld, joint_path_in_collision
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.robot import JointCurve
        >>> ready = [0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8]
        >>> turned = [0.5, *ready[1:]]
        >>> spline = CubicSpline([0.0, 1.0, 2.0], [ready, turned, ready], bc_type="clamped")
        >>> curve = JointCurve.from_spline(spline)
        >>> curve
        JointCurve(batch=1, pieces=2, degree=3, n_joints=7)
        >>> joint_path_in_collision(curve, load_panda(), MeshWorld()).tolist()
        [[False, False]]
    """

    def __init__(self, times: Tensor, coefficients: Tensor):
        _require_pieces(times, coefficients)
        self.times = times.double()
        self.coefficients = coefficients.double()
        self._points: dict[torch.device, tuple[int, Tensor]] = {}

    @classmethod
    def from_waypoints(cls, joints: Any, times: Any = None) -> JointCurve:
        """Straight lines between waypoints, at constant velocities.

        Args:
            joints: (batch, horizon, n_joints) or (horizon, n_joints) [rad, prismatic: m].
            times: (batch, horizon) or (horizon,), of the waypoints [s]; 0, 1, 2, ... if None.

        Raises:
            TypeError, ValueError: a wrong shape, values that are not finite, times that do not
                grow, fewer than two waypoints.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> JointCurve.from_waypoints([[0.0, 0.0], [1.0, 2.0]], [0.0, 2.0]).at([0.5]).tolist()
            [[[0.25, 0.5]]]
        """
        values = _knots("joints", joints)
        knots = _times(np.arange(values.shape[1]) if times is None else times, values.shape[:2])
        return cls._of(knots, np.stack((values[:, :-1], values[:, 1:]), axis=2))

    @classmethod
    def from_hermite(
        cls, times: Any, positions: Any, velocities: Any, accelerations: Any = None
    ) -> JointCurve:
        """Cubic pieces by positions and velocities at times; with accelerations quintic ones.

        Args:
            times: (batch, horizon) or (horizon,) [s].
            positions: (batch, horizon, n_joints) or (horizon, n_joints) [rad, prismatic: m].
            velocities: of the same shape, per second.
            accelerations: of the same shape, per second squared, or None.

        Raises:
            TypeError, ValueError: a wrong shape, values that are not finite, times that do not
                grow, fewer than two times.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> curve = JointCurve.from_hermite([0.0, 1.0], [[0.0], [1.0]], [[0.0], [0.0]])
            >>> curve.at([0.5]).item(), curve.derivative().at([0.5]).item()
            (0.5, 1.5)
        """
        p = _knots("positions", positions)
        v = _knots("velocities", velocities, p.shape)
        knots = _times(times, p.shape[:2])
        span = np.diff(knots, axis=1)[..., None]
        begin, end = (p[:, :-1], v[:, :-1] * span), (p[:, 1:], v[:, 1:] * span)
        if accelerations is None:
            inner = [begin[0] + begin[1] / 3.0, end[0] - end[1] / 3.0]
        else:
            a = _knots("accelerations", accelerations, p.shape)
            first, last = (part * span**2 / 20.0 for part in (a[:, :-1], a[:, 1:]))
            inner = [
                begin[0] + 0.2 * begin[1],
                begin[0] + 0.4 * begin[1] + first,
                end[0] - 0.4 * end[1] + last,
                end[0] - 0.2 * end[1],
            ]
        return cls._of(knots, np.stack([begin[0], *inner, end[0]], axis=2))

    @classmethod
    def from_spline(cls, spline: Any) -> JointCurve:
        """A spline of SciPy, exactly: `BSpline`, `PPoly`, `CubicSpline` and those derived from it.

        Args:
            spline: with values (n_joints,), of degree up to 5; or a list of them for a batch. Where
                one of these has fewer pieces, its last piece is cut into equal parts.

        Raises:
            TypeError, ValueError: another type, degree or shape, values that are not finite, a
                spline that jumps.

        Example:
            >>> import numpy as np
            >>> from scipy.interpolate import make_interp_spline
            >>> from warp_collision.robot import JointCurve
            >>> times = np.linspace(0.0, 1.0, 8)
            >>> spline = make_interp_spline(times, np.sin(times)[:, None] * np.ones(7), k=5)
            >>> curve = JointCurve.from_spline(spline)
            >>> bool(np.allclose(curve.at([0.3])[0], spline([0.3]), atol=1e-12))
            True
        """
        if not isinstance(spline, list | tuple):
            return cls._of(*(part[None] for part in _of_spline(spline)))
        if not spline:
            raise ValueError("spline must be a spline or a list of at least one, got an empty list")
        parts = [_of_spline(each) for each in spline]
        joints = parts[0][1].shape[2]
        for index, (_, c) in enumerate(parts):
            if c.shape[2] != joints:
                raise ValueError(
                    f"splines must have the same joints, got {joints} in the first one and "
                    f"{c.shape[2]} in number {index}"
                )
        return cls.from_pieces(parts)

    @classmethod
    def from_samples(cls, times: Any, joints: Any) -> JointCurve:
        """Recorded motion: the natural cubic spline through samples.

        Between samples it is as smooth as motors move; straight lines are `from_waypoints`.

        Args:
            times: (horizon,) [s].
            joints: (batch, horizon, n_joints) or (horizon, n_joints) [rad, prismatic: m].

        Raises:
            TypeError, ValueError: a wrong shape, values that are not finite, times that do not
                grow, fewer than two samples.

        Example:
            >>> import numpy as np
            >>> from warp_collision.robot import JointCurve
            >>> times = np.linspace(0.0, 1.0, 101)
            >>> curve = JointCurve.from_samples(times, np.sin(times)[:, None])
            >>> bool(abs(curve.at([0.505]).item() - np.sin(0.505)) < 1e-6)
            True
        """
        from scipy.interpolate import CubicSpline  # few processes need it

        values = _knots("joints", joints)
        knots = _times(times, values.shape[:2])
        return cls.from_spline(
            [CubicSpline(t, q, bc_type="natural") for t, q in zip(knots, values, strict=True)]
        )

    @classmethod
    def from_pieces(cls, curves: Sequence[tuple[_Array, _Array]]) -> JointCurve:
        """A batch of curves by their times and Bernstein coefficients.

        Args:
            curves: of each curve the times (pieces + 1,) and coefficients (pieces, degree + 1,
                n_joints) float64. Where one has fewer pieces, its last piece is cut into equal
                parts.

        Raises:
            ValueError: values that are not finite, times that do not grow, other shapes.

        Example:
            >>> import numpy as np
            >>> from warp_collision.robot import JointCurve
            >>> bend = np.array([[[0.0], [0.0], [1.0], [1.0]]])
            >>> JointCurve.from_pieces([(np.array([0.0, 2.0]), bend)]).at([1.0]).item()
            0.5
        """
        curves = [(knots, _finite("coefficients", c)) for knots, c in curves]
        most = max(len(c) for _, c in curves)
        degree = max(c.shape[1] for _, c in curves) - 1
        rows = [_with_pieces(knots, _elevated(c, degree), most) for knots, c in curves]
        return cls._of(*(np.stack(column) for column in zip(*rows, strict=True)))

    @classmethod
    def _of(cls, times: _Array, coefficients: _Array) -> JointCurve:
        return cls(torch.from_numpy(times), torch.from_numpy(np.ascontiguousarray(coefficients)))

    def __getitem__(self, rows: int | slice) -> JointCurve:
        """Some of the batch; of a number a batch of one.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> JointCurve.from_waypoints([[[0.0], [1.0]], [[0.0], [2.0]]])[1].at([1.0]).item()
            2.0
        """
        if isinstance(rows, int):
            rows = range(len(self.times))[rows]  # an IndexError beyond them
            rows = slice(rows, rows + 1)
        return JointCurve(self.times[rows], self.coefficients[rows])

    def __len__(self) -> int:
        """Number of curves."""
        return len(self.times)

    def __repr__(self) -> str:
        batch, pieces, count, joints = self.coefficients.shape
        return f"JointCurve(batch={batch}, pieces={pieces}, degree={count - 1}, n_joints={joints})"

    @property
    def degree(self) -> int:
        """Of the polynomials."""
        return self.coefficients.shape[2] - 1

    @property
    def n_joints(self) -> int:
        """Number of joint values."""
        return self.coefficients.shape[3]

    @property
    def duration(self) -> Tensor:
        """(batch,) float64 [s]."""
        return self.times[:, -1] - self.times[:, 0]

    @property
    def length(self) -> Tensor:
        """(batch,) float64, Euclidean length in joint space [rad, prismatic: m], by quadrature."""
        nodes, weights = np.polynomial.legendre.leggauss(_QUADRATURE)
        s = torch.from_numpy(0.5 * (nodes + 1.0))
        steps = self.degree * self.coefficients.diff(dim=2)
        rates = torch.einsum("si,bpij->bpsj", bernstein(s, self.degree - 1), steps)
        return (rates.norm(dim=-1) @ torch.from_numpy(0.5 * weights)).sum(1)

    def at(self, times: Any) -> Tensor:
        """Joint values at times; before its begin and behind its end a curve rests there.

        Args:
            times: (m,) for all curves or (batch, m) [s].

        Returns:
            (batch, m, n_joints) float64.

        Raises:
            ValueError: another shape, or times that are not finite.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> JointCurve.from_waypoints([[0.0], [1.0]]).at([0.25, 7.0]).flatten().tolist()
            [0.25, 1.0]
        """
        batch = len(self.times)
        given = _finite("times", times)
        if given.ndim not in (1, 2) or (given.ndim == 2 and len(given) != batch):
            raise ValueError(f"times must have shape (m,) or ({batch}, m), got {given.shape}")
        at = torch.from_numpy(given).expand(batch, -1).contiguous()
        at = torch.minimum(torch.maximum(at, self.times[:, :1]), self.times[:, -1:])
        piece = torch.searchsorted(self.times.contiguous(), at, right=True) - 1
        piece = piece.clamp(0, self.coefficients.shape[1] - 1)
        begin, end = self.times.gather(1, piece), self.times.gather(1, piece + 1)
        weights = bernstein((at - begin) / (end - begin), self.degree)
        rows = torch.arange(batch)[:, None]
        return (weights[..., None] * self.coefficients[rows, piece]).sum(2)

    def derivative(self) -> JointCurve:
        """The curve of the joints' velocities, which may jump between pieces.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> JointCurve.from_waypoints([[0.0], [1.0]], [0.0, 4.0]).derivative().at([1.0]).item()
            0.25
        """
        steps = self.coefficients.diff(dim=2)
        if self.degree == 0:
            steps = torch.zeros_like(self.coefficients)
        return JointCurve(self.times, max(self.degree, 1) * steps / self._spans)

    def largest(self) -> Tensor:
        """(batch, pieces, n_joints) bound of the absolute value on each piece, by its coefficients.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> curve = JointCurve.from_waypoints([[0.0], [1.0]], [0.0, 4.0])
            >>> curve.derivative().largest().item()
            0.25
        """
        return self.coefficients.abs().amax(dim=2)

    def sample(self, dt: float) -> tuple[Tensor, Tensor]:
        """Times and joint values every so many seconds, and at the end.

        Args:
            dt: [s].

        Returns:
            (batch, m) and (batch, m, n_joints) float64; shorter curves of a batch rest at the end.

        Raises:
            TypeError, ValueError: dt is no number, or not positive and finite.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> times, joints = JointCurve.from_waypoints([[0.0], [1.0]]).sample(0.4)
            >>> times.tolist()
            [[0.0, 0.4, 0.8, 1.0]]
        """
        validate.require_number("dt", dt, positive=True)
        count = math.ceil(float(self.duration.max()) / dt * (1.0 - 1.0e-12))
        times = self.times[:, :1] + dt * torch.arange(count + 1, dtype=torch.float64)
        times = torch.minimum(times, self.times[:, -1:])
        return times, self.at(times)

    def split(self, parts: int) -> JointCurve:
        """The same curves with each piece cut into equal parts.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> JointCurve.from_waypoints([[0.0], [1.0]]).split(4).times.tolist()
            [[0.0, 0.25, 0.5, 0.75, 1.0]]
        """
        rows = []
        for times, pieces in zip(self.times.numpy(), self.coefficients.numpy(), strict=True):
            cut = [_with_pieces(times[i : i + 2], pieces[i : i + 1], parts)
                   for i in range(len(pieces))]  # fmt: skip
            knots = np.concatenate([times[:1], *(inner[1:] for inner, _ in cut)])
            rows.append((knots, np.concatenate([part for _, part in cut])))
        return JointCurve.from_pieces(rows)

    def with_knots(self, times: Any) -> JointCurve:
        """The same curve with pieces that end at more times, as for poses of moving obstacles.

        Args:
            times: (m,) [s]; those beyond the curve's own are left out.

        Raises:
            ValueError: a batch of more than one curve, or times that are not finite.

        Example:
            >>> from warp_collision.robot import JointCurve
            >>> curve = JointCurve.from_waypoints([[0.0], [1.0]]).with_knots([0.25, 3.0])
            >>> curve.times.tolist(), curve.at([0.5]).item()
            ([[0.0, 0.25, 1.0]], 0.5)
        """
        if len(self.times) != 1:
            raise ValueError(f"with_knots must be of one curve, got a batch of {len(self.times)}")
        knots, pieces = self.times[0].numpy(), list(self.coefficients[0].numpy())
        for time in np.setdiff1d(_finite("times", times), knots):
            index = int(np.searchsorted(knots, time)) - 1
            if 0 <= index < len(pieces):
                s = (time - knots[index]) / (knots[index + 1] - knots[index])
                pieces[index : index + 1] = _cut(pieces[index], s)
                knots = np.insert(knots, index + 1, time)
        return JointCurve._of(knots[None], np.stack(pieces)[None])

    def points(self, device: torch.device) -> Tensor:
        """Control points (batch, pieces * degree + 1, n_joints) float32, pieces sharing their ends.

        Differentiable in the coefficients.

        Raises:
            ValueError: the curve jumps.
        """
        if self.coefficients.requires_grad:
            return self._shared().float().to(device)
        version, points = self._points.get(device, (None, None))
        if points is None or version != self.coefficients._version:
            points = self._shared().float().to(device)
            self._points[device] = self.coefficients._version, points
        return points

    def knots(self, device: torch.device) -> Tensor:
        """Joint values (batch, pieces + 1, n_joints) float32 at the ends of the pieces."""
        return self.points(device)[:, :: self.degree]

    @property
    def _spans(self) -> Tensor:
        """Durations of the pieces, for coefficients."""
        return self.times.diff(dim=1)[..., None, None]

    def require_no_jumps(self) -> None:
        """Raises a ValueError where a piece does not begin at the end of the one before it."""
        c = self.coefficients
        if torch.equal(c[:, 1:, 0], c[:, :-1, -1]):
            return
        gap = (c[:, 1:, 0] - c[:, :-1, -1]).detach().abs()
        wrong = torch.nonzero(gap > _JUMP * (1.0 + c[:, 1:, 0].abs()))
        if len(wrong):
            row, piece, joint = wrong[0].tolist()
            raise ValueError(
                f"curves must not jump, got a step of {gap[row, piece, joint].item():.3g} of joint "
                f"{joint} at {self.times[row, piece + 1].item():.6g} s in batch row {row}"
            )

    def _shared(self) -> Tensor:
        self.require_no_jumps()
        c = self.coefficients
        if self.degree == 0:
            raise ValueError("curves must have a degree of at least 1, got 0")
        return torch.cat((c[:, :, :-1].flatten(1, 2), c[:, -1, -1:]), dim=1)


def _require_pieces(times: Any, coefficients: Any) -> None:
    """Raises where tensors are no curve."""
    for name, value in (("times", times), ("coefficients", coefficients)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            what = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} of a curve must be a floating-point tensor, got {what}")
    shape = tuple(coefficients.shape)
    if len(shape) != 4 or not all(shape) or shape[2] > MAX_DEGREE + 1:
        raise ValueError(
            "coefficients of a curve must have shape (batch, pieces, degree + 1, n_joints) with a "
            f"degree of 0 to {MAX_DEGREE}, got {shape}"
        )
    if times.shape != (shape[0], shape[1] + 1):
        raise ValueError(
            f"times of a curve must have shape (batch, pieces + 1), {(shape[0], shape[1] + 1)} as "
            f"its coefficients have, got {tuple(times.shape)}"
        )
    _require_growing(_finite("times", times))


def _finite(name: str, value: Any) -> _Array:
    """An array of finite float64."""
    array = validate.float64_array(name, value)
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise ValueError(f"{name} must be finite, got {array[place]} at {place}")
    return array


def _knots(name: str, value: Any, shape: tuple[int, ...] | None = None) -> _Array:
    """Values (batch, horizon, n_joints) at knots."""
    array = _finite(name, value)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[0] == 0 or array.shape[1] < 2 or array.shape[2] == 0:
        raise ValueError(
            f"{name} must have shape (batch, horizon, n_joints) or (horizon, n_joints) with at "
            f"least 2 rows, got {np.shape(value)}"
        )
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} as positions, got {array.shape}")
    return array


def _times(value: Any, shape: tuple[int, ...]) -> _Array:
    """Times (batch, horizon) that grow."""
    array = _finite("times", value)
    if array.shape not in (shape, shape[1:]):
        raise ValueError(f"times must have shape {shape} or {shape[1:]}, got {array.shape}")
    array = np.array(np.broadcast_to(array, shape))
    _require_growing(array)
    return array


def _require_growing(array: _Array) -> None:
    """Raises where times (batch, horizon) do not grow."""
    wrong = np.argwhere(~(np.diff(array, axis=1) > 0.0))
    if len(wrong):
        row, at = wrong[0].tolist()
        first, second = array[row, at : at + 2]
        raise ValueError(
            f"times must grow, got {first:g} before {second:g} at index {at} in batch row {row}"
        )


def _of_spline(spline: Any) -> tuple[_Array, _Array]:
    """Times (pieces + 1,) and Bernstein coefficients (pieces, degree + 1, n_joints)."""
    from scipy.interpolate import BSpline, PPoly  # few processes need it

    if isinstance(spline, BSpline):
        knots = np.unique(spline.t[spline.k : len(spline.t) - spline.k])
        _require_degree(spline.k, np.shape(spline.c)[1:])
        powers = np.stack(
            [spline(knots[:-1], nu=order) / math.factorial(order) for order in range(spline.k + 1)]
        )
    elif isinstance(spline, PPoly):
        _require_degree(spline.c.shape[0] - 1, spline.c.shape[2:])
        knots, powers = spline.x, spline.c[::-1]
    else:
        raise TypeError(
            "spline must be a BSpline, CubicSpline or PPoly of scipy.interpolate, or a list of "
            f"them, got {short_repr(spline)}"
        )
    knots = _times(knots, (1, len(knots)))[0]
    degree = len(powers) - 1
    if degree == 0:
        powers, degree = np.concatenate((powers, np.zeros_like(powers))), 1
    orders = np.arange(degree + 1)
    scaled = _finite("spline", powers) * np.diff(knots)[None, :, None] ** orders[:, None, None]
    shares = np.array(
        [[math.comb(i, k) / math.comb(degree, k) for k in orders] for i in orders], dtype=np.float64
    )
    coefficients = np.einsum("ik,kpj->pij", shares, scaled)
    # Pieces share their ends up to rounding; a spline that jumps keeps both.
    end, begin = coefficients[:-1, -1], coefficients[1:, 0]
    same = np.abs(end - begin) <= _JUMP * (1.0 + np.abs(begin))
    coefficients[:-1, -1] = np.where(same, begin, end)
    return knots, coefficients


def _require_degree(degree: int, shape: Sequence[int]) -> None:
    if degree > MAX_DEGREE:
        raise ValueError(f"splines must have degree {MAX_DEGREE} or less, got {degree}")
    if len(shape) != 1 or shape[0] == 0:
        raise ValueError(f"splines must have values of shape (n_joints,), got {tuple(shape)}")


def _elevated(coefficients: _Array, degree: int) -> _Array:
    """The same polynomials (pieces, n + 1, n_joints) with more coefficients."""
    while coefficients.shape[1] <= degree:
        n = coefficients.shape[1]
        share = (np.arange(1, n) / n)[:, None]
        inner = share * coefficients[:, :-1] + (1.0 - share) * coefficients[:, 1:]
        ends = coefficients[:, :1], coefficients[:, -1:]
        coefficients = np.concatenate((ends[0], inner, ends[1]), axis=1)
    return coefficients


def _with_pieces(times: _Array, coefficients: _Array, count: int) -> tuple[_Array, _Array]:
    """The same curve in so many pieces: the last one is cut into equal parts."""
    if count == len(coefficients):
        return times, coefficients
    parts = count - len(coefficients) + 1
    rest, pieces = coefficients[-1], list(coefficients[:-1])
    for left in range(parts, 1, -1):
        first, rest = _cut(rest, 1.0 / left)
        pieces.append(first)
    pieces.append(rest)
    inner = np.linspace(times[-2], times[-1], parts + 1)
    return np.concatenate((times[:-2], inner)), np.stack(pieces)


def _cut(coefficients: _Array, s: float) -> tuple[_Array, _Array]:
    """Both parts of a piece (degree + 1, n_joints), by de Casteljau's algorithm."""
    first, second, level = [coefficients[0]], [coefficients[-1]], coefficients
    while len(level) > 1:
        level = (1.0 - s) * level[:-1] + s * level[1:]
        first.append(level[0])
        second.append(level[-1])
    return np.stack(first), np.stack(second[::-1])


def bernstein(s: Tensor, degree: int) -> Tensor:
    """(..., degree + 1) Bernstein polynomials at s (...), float64."""
    orders = torch.arange(degree + 1, dtype=torch.float64)
    counts = torch.tensor([math.comb(degree, k) for k in range(degree + 1)], dtype=torch.float64)
    s = s[..., None]
    return counts * s**orders * (1.0 - s) ** (degree - orders)
