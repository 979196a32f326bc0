"""Pictures of what was measured."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.harness import Row, number

matplotlib.use("Agg")


def throughput(rows: Sequence[Row], path: Path) -> None:
    """Items per second of the library and of the baseline, a line for each workload."""
    rows = [row for row in rows if "baseline" in row.calls][::-1]
    figure = Figure(figsize=(8.5, 1.5 + 0.25 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        ours, other = (1.0 / row.times.median(name) for name in ("library", "baseline"))
        axes.hlines(place, other, ours, color="#c9d7ee", linewidth=2.5, zorder=1)
        axes.scatter(ours, place, color="#1f6feb", marker="s", s=26, zorder=2)
        axes.scatter(other, place, color="#8a8f98", marker="o", s=26, zorder=2)
        text, at = f"{number(row.times.ratio('baseline', 'library'))}x", (max(ours, other), place)
        axes.annotate(text, at, (7, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.set_yticks(range(len(rows)), [row.workload.name for row in rows], fontsize=8)
    axes.set_xlabel("spheres per second of the library (squares) and of the baseline")
    plain_frame(axes)
    figure.savefig(path, dpi=110)


def curves(rows: Sequence[Row], path: Path) -> None:
    """Time of an item over what a curve counts: workloads are called by that, and how many."""
    named = [row.workload.name.split() for row in rows]
    kinds = list(dict.fromkeys(kind for kind, _ in named))
    figure = Figure(figsize=(9.0, 1.2 + 2.2 * -(-len(kinds) // 3)), layout="constrained")
    for place, kind in enumerate(kinds, 1):
        axes = figure.add_subplot(-(-len(kinds) // 3), 3, place)
        points = [
            (int(count), 1e9 * row.times.median("library"))
            for (of, count), row in zip(named, rows, strict=True)
            if of == kind
        ]
        axes.loglog(*zip(*points, strict=True), color="#1f6feb", marker="s", markersize=4)
        axes.set_ylim(bottom=min(10.0, 0.8 * min(taken for _, taken in points)))
        axes.set_xlabel(kind)
        axes.set_ylabel("ns a sphere")
        plain_frame(axes)
    figure.savefig(path, dpi=110)


def plain_frame(axes: Axes) -> None:
    """Neither a frame above and to the right, nor a dark grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(which="major", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
