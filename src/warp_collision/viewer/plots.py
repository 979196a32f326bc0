"""Curves along a path in the browser: clearance, cost, and the derivatives of trajectories."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.robot import JointCurve
from warp_collision.robot.model.joint_curve import bernstein
from warp_collision.viewer import panels
from warp_collision.viewer.colors import FREE, HIT, Floats
from warp_collision.viewer.path_facts import PathFacts

_MOST_MM = 250.0  # of clearances: what is farther needs no room
_POINTS = 300  # of a derivative that are drawn
_BOUNDED = 256  # parts of a curve by which its derivatives are bounded
LABELLED = 8  # series in a legend
_UNITS = ("rad/s", "rad/s²", "rad/s³")
# Told apart by the colour-blind too; of more series colours come again.
_COLORS = (
    panels.css(HIT), panels.css(FREE), "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip


class Curves(NamedTuple):
    """Curves over the waypoints, or over time.

    Attributes:
        title: what they are.
        x: (n,) waypoints, or seconds.
        values: by name, (n,).
        most: what is farther away is left out, if nothing is as deep.
        lines: heights of horizontal lines, such as limits.
        has_legend: whether the names are listed.
        span: ends of x; those of the data if None. Data that move need ends that do not.
    """

    title: str
    x: np.ndarray
    values: dict[str, np.ndarray]
    most: float = np.inf
    lines: tuple[float, ...] = ()
    has_legend: bool = True
    span: tuple[float, float] | None = None

    @property
    def range(self) -> tuple[float, float]:
        """What is shown: what is near or inside, lines, and 0."""
        known = np.concatenate([v[np.isfinite(v)] for v in self.values.values()] or [self.x])
        if not len(known):
            return 0.0, 1.0
        known = np.append(known, self.lines)
        low, high = min(float(known.min()), 0.0), max(float(known.max()), 0.0)
        high = high if low < high else 1.0
        high = min(high, max(self.most, -3.0 * low))
        return low - 0.05 * (high - low), high + 0.05 * (high - low)

    def marked(self, place: float) -> tuple[np.ndarray, ...]:
        """Returns x, the values, lines and a vertical line at a place, as a browser draws them."""
        low, high = self.range
        at = int(np.searchsorted(self.x, place))
        columns = [np.insert(self.x, at, [place] * 2)]
        for values in self.values.values():
            shown = np.clip(np.nan_to_num(values, nan=low), low, high)
            near = np.interp(place, self.x, shown)
            columns.append(np.insert(shown, at, [near] * 2))
        columns += [np.full(len(columns[0]), height) for height in self.lines]
        mark = np.full(len(columns[0]), np.nan)
        mark[at : at + 2] = low, high
        return (*columns, mark)


class Plots:
    """The plots of a folder, which are changed in place from one path to the next.

    Args:
        gui: viser's.
        folder: that holds them.
    """

    def __init__(self, gui: Any, folder: Any):
        self._gui, self._folder = gui, folder
        self._plots: list[Any] = []
        self.drawn: list[Curves] = []

    def draw(self, drawn: list[Curves], place: float, axis: str) -> None:
        """Draws curves, with a mark at a place of their axis."""
        from viser import uplot

        self.drawn = drawn
        for plot in self._plots[len(drawn) :]:
            plot.visible = False
        for index, curves in enumerate(drawn):
            across = uplot.Scale(time=False)
            if curves.span is not None:
                across = uplot.Scale(time=False, range=curves.span)
            scales = {"x": across, "y": uplot.Scale(range=curves.range)}
            if index == len(self._plots):
                with self._folder:
                    plot = self._gui.add_uplot(
                        curves.marked(place), self._series(curves, axis), title=curves.title,
                        legend=uplot.Legend(show=curves.has_legend), aspect=2.0, scales=scales,
                    )  # fmt: skip
                self._plots.append(plot)
                continue
            plot = self._plots[index]
            plot.visible = True
            plot.scales, plot.data = scales, curves.marked(place)
            if plot.title != curves.title or plot.series[0]["label"] != axis:
                plot.title, plot.series = curves.title, self._series(curves, axis)

    def mark(self, place: float) -> None:
        """Moves the mark."""
        for plot, curves in zip(self._plots, self.drawn, strict=False):
            plot.data = curves.marked(place)

    def _series(self, curves: Curves, axis: str) -> tuple[Any, ...]:
        from viser import uplot

        colors = [_COLORS[index % len(_COLORS)] for index in range(len(curves.values))]
        named = zip(curves.values, colors, strict=True)
        return (
            uplot.Series(label=axis),
            *(uplot.Series(label=name, stroke=color, width=2) for name, color in named),
            *(uplot.Series(label="limit", stroke="#888888", width=1, dash=(6, 4))
              for _ in curves.lines),
            uplot.Series(label="here", stroke="#888888", width=2),
        )  # fmt: skip


def curves_of(facts: PathFacts, limits: MotionLimits) -> list[Curves]:
    """Returns what is drawn of a path: certified clearances, cost, and derivatives of a curve."""
    motion, axis = facts.motion, facts.axis
    # Steps: each segment has two ends. One configuration has one value.
    steps = np.repeat(axis, 2)[1:-1] if facts.n_segments else np.array([0.0, 1.0])
    bounds = {
        name: 1000 * np.repeat(column.double().numpy(), 2)
        for name, column in (
            ("lower", motion.world_lower), ("upper", motion.world_upper),
            ("itself", motion.self_lower),
        )
    }  # fmt: skip
    found = [
        Curves("clearance [mm], certified", steps, bounds, _MOST_MM),
        Curves("cost [mm]", axis, {"cost": 1000 * facts.costs()}),
    ]
    if facts.curve is not None:
        found += derivatives_of(facts.curve, facts.scene.robot.joint_names, limits)
    return found


def derivatives_of(curve: JointCurve, names: tuple[str, ...], limits: MotionLimits) -> list[Curves]:
    """Returns velocity, acceleration and jerk of each joint, as shares of the limits if known."""
    found = []
    for kind, unit, limit in zip(limits._fields, _UNITS, limits, strict=True):
        curve = curve.derivative()
        times, values = _points_of(curve)
        is_known = bool(np.isfinite(limit).any())
        if is_known:
            values = values / limit
        what = "share of the limit" if is_known else unit
        series = dict(zip(names, values.T, strict=True))
        lines = (-1.0, 1.0) if is_known else ()
        has_legend = not found and len(names) <= LABELLED  # of all three: colours are the same
        found.append(Curves(f"{kind} [{what}]", times, series, np.inf, lines, has_legend))
    return found


def shares_of(curve: JointCurve, limits: MotionLimits) -> list[float]:
    """Returns bounds of the shares of the limits that one curve uses."""
    parts = _BOUNDED // curve.coefficients.shape[1]
    found = []
    for limit in limits:
        # Cut after the derivative: differences within short pieces are rounded by more.
        curve = curve.derivative()
        cut = curve.split(parts) if parts > 1 else curve
        found.append(float((cut.largest().numpy() / limit).max()))
    return found


def _points_of(curve: JointCurve) -> tuple[Floats, Floats]:
    """Points (n,), (n, n_joints) of one curve, which may have steps between its pieces.

    Of very many pieces some at a time are one point: for each joint, the largest of them.
    """
    pieces = curve.coefficients.shape[1]
    s = torch.linspace(0.0, 1.0, max(2, _POINTS // pieces), dtype=torch.float64)
    weights = bernstein(s, curve.degree)
    values = torch.einsum("mi,pij->pmj", weights, curve.coefficients[0]).flatten(0, 1).numpy()
    begin, span = curve.times[0, :-1, None], curve.times[0].diff()[:, None]
    times = (begin + s * span).flatten().numpy() - curve.times[0, 0].item()
    size = len(times) // (2 * _POINTS)
    if size > 1:
        count = len(times) // size * size
        parts = values[:count].reshape(-1, size, values.shape[1])
        largest = np.abs(parts).argmax(axis=1, keepdims=True)
        values = np.concatenate((np.take_along_axis(parts, largest, 1)[:, 0], values[count:]))
        times = np.concatenate((times[:count:size], times[count:]))
    return times, values
