"""A picture of a run: how many problems are solved within a time, and how long the paths are."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from benchmarks.plan.report import OURS, THEIRS, Results, both
from benchmarks.plan.run import Row

matplotlib.use("Agg")

COLOURS = {OURS: "#1f6feb", THEIRS: "#8a8f98"}


def draw(results: Results, path: Path) -> list[Path]:
    """Draws the first robot of the results; returns the file, none without rows."""
    if not results["robots"]:
        return []
    robot, run = next(iter(results["robots"].items()))
    figure = Figure(figsize=(9.0, 3.7), layout="constrained")
    over_time, lengths = figure.subplots(1, 2, width_ratios=[1.45, 1.0])
    _success(over_time, run["rows"])
    _lengths(lengths, run["rows"])
    count = len({(row["type"], row["index"]) for row in run["rows"]})
    figure.suptitle(f"{count} problems of the {robot.capitalize()}", fontsize=11)
    figure.savefig(path, dpi=110)
    return [path]


def _success(axes: Axes, rows: list[Row]) -> None:
    """Share of the problems that can be solved, solved within a time of one core."""
    longest = max((row["seconds"] for row in rows if row["solved"]), default=1.0)
    for planner, colour in COLOURS.items():
        of_planner = [row for row in rows if row["planner"] == planner]
        possible = sum(row["possible"] for row in of_planner)
        seconds = np.sort([row["seconds"] for row in of_planner if row["solved"]])
        if len(seconds) == 0:
            continue
        share = 100.0 * np.arange(1, len(seconds) + 1) / possible
        axes.step(
            [*seconds, 1.5 * longest], [*share, share[-1]], where="post", color=colour, lw=1.8
        )
        label = f"{planner}: {len(seconds)} of {possible}"
        axes.plot([], [], color=colour, lw=1.8, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0.0, 103.0)
    axes.set_xlabel("seconds of one core")
    axes.set_ylabel("solved, for the judge [%]")
    if axes.lines:
        axes.legend(loc="lower right", frameon=False, fontsize=8)
    _plain(axes)


def _lengths(axes: Axes, rows: list[Row]) -> None:
    """Lengths of both planners' paths, problem by problem."""
    pairs = both(rows)
    if not pairs:
        axes.set_axis_off()
        return
    ours, theirs = (np.array([pair[i]["length"] for pair in pairs]) for i in (0, 1))
    limit = 1.05 * max(ours.max(), theirs.max())
    axes.plot([0.0, limit], [0.0, limit], color="#c9d7ee", lw=1.2, zorder=1)
    axes.scatter(theirs, ours, s=7, color=COLOURS[OURS], alpha=0.5, linewidths=0, zorder=2)
    shorter = (ours <= theirs).mean()
    axes.annotate(
        f"{OURS} is shorter for {shorter:.0%}",
        (0.97, 0.04),
        xycoords="axes fraction",
        ha="right",
        fontsize=8,
    )
    axes.set_xlim(0.0, limit)
    axes.set_ylim(0.0, limit)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(2.0))
    axes.set_xlabel(f"length of the path [rad], {THEIRS}")
    axes.set_ylabel(f"{OURS}")
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(color="#eef1f5", zorder=0)
    axes.set_axisbelow(True)
