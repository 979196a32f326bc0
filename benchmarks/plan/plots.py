"""A picture of a run: how many problems are solved within a time, and how long the paths are."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from benchmarks.plan.report import COLOURS, OURS, THEIRS, Results, Row, both
from benchmarks.plots import plain_frame


def draw(results: Results, path: Path) -> list[Path]:
    """Draws the first robot of the results; returns the file, none without rows."""
    for robot, run in results["robots"].items():
        figure = Figure(figsize=(9.0, 3.7), layout="constrained")
        over_time, lengths = figure.subplots(1, 2, width_ratios=[1.45, 1.0])
        _success(over_time, run["rows"])
        _lengths(lengths, run["rows"])
        count = len({(row["type"], row["index"]) for row in run["rows"]})
        figure.suptitle(f"{count} problems of the {robot.capitalize()}", fontsize=11)
        figure.savefig(path, dpi=110)
        return [path]
    return []


def _success(axes: Axes, rows: list[Row]) -> None:
    """Fraction of the problems that can be solved, solved within a time of one core."""
    longest = max((row["seconds"] for row in rows if row["solved"]), default=1.0)
    for planner, colour in COLOURS.items():
        mine = [row for row in rows if row["planner"] == planner]
        possible = sum(row["possible"] for row in mine)
        seconds = sorted(row["seconds"] for row in mine if row["solved"])
        percent = [100.0 * (i + 1) / possible for i in range(len(seconds))]
        if seconds:
            label = f"{planner}: {len(seconds)} of {possible}"
            line = [*seconds, 1.5 * longest], [*percent, percent[-1]]
            axes.step(*line, where="post", color=colour, lw=1.8, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0.0, 103.0)
    axes.set_xlabel("seconds of one core")
    axes.set_ylabel("solved, for the judge [%]")
    if axes.lines:
        axes.legend(loc="lower right", frameon=False, fontsize=8)
    plain_frame(axes)


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
    text, corner = f"{OURS} is shorter for {(ours <= theirs).mean():.0%}", (0.97, 0.04)
    axes.annotate(text, corner, xycoords="axes fraction", ha="right", fontsize=8)
    axes.set(xlim=(0.0, limit), ylim=(0.0, limit), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(2.0))
    axes.set_xlabel(f"length of the path [rad], {THEIRS}")
    axes.set_ylabel(OURS)
    plain_frame(axes)
