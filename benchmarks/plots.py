"""Pictures of a run: throughput of every workload, and growth with the size of the problem."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

matplotlib.use("Agg")

STYLES = {"baseline": ("#8a8f98", "o"), "library": ("#1f6feb", "s")}
FAMILIES = {
    "scene": "meshes in the scene",
    "near-torus": "triangles of the mesh",
    "spheres": "spheres in a call",
}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Writes `<device>-throughput.png` and `<device>-growth.png`; returns those that had data."""
    files = []
    for name, figure in (("throughput", throughput(results)), ("growth", growth(results))):
        if figure is not None:
            figure.suptitle(results["title"], fontsize=11)
            files.append(folder / f"{results['device']}-{name}.png")
            figure.savefig(files[-1], dpi=110)
    return files


def throughput(results: dict[str, Any]) -> Figure | None:
    """Spheres per second of library and baseline, one line for each workload."""
    rows = results["workloads"][::-1]
    if not rows:
        return None
    figure = Figure(figsize=(8.5, 1.5 + 0.25 * len(rows)), layout="constrained")
    axes, places = figure.add_subplot(), range(len(rows))
    values = {n: [1.0 / row["timings"][n]["median"] for row in rows] for n in STYLES}
    axes.hlines(places, *values.values(), color="#c9d7ee", linewidth=2.5, zorder=1)
    for name, (colour, marker) in STYLES.items():
        axes.scatter(values[name], places, color=colour, marker=marker, s=26, label=name, zorder=2)
    both = [*zip(*values.values(), strict=True)]
    for place, row in zip(places, rows, strict=True):
        ratio, at = row["speedups"]["library"], (max(both[place]), place)
        text = f"{ratio:.1f}x" if ratio < 10 else f"{ratio:.0f}x"
        axes.annotate(text, at, (7, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(map(min, both)) / 2.0, 4.0 * max(map(max, both)))
    axes.set_yticks(places, [row["workload"] for row in rows], fontsize=8)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("spheres per second: cost and gradient, forward and backward")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    plain_frame(axes)
    axes.tick_params(axis="y", length=0)
    return figure


def growth(results: dict[str, Any]) -> Figure | None:
    """Lines: time per sphere over meshes and triangles, and spheres per second over spheres."""
    rows = {f: [r for r in results["workloads"] if r["family"] == f] for f in FAMILIES}
    shown = {family: some for family, some in rows.items() if len(some) > 1}
    if not shown:
        return None
    figure = Figure(figsize=(4.0 * len(shown), 3.9), layout="constrained")
    for index, (family, some) in enumerate(shown.items(), start=1):
        axes = figure.add_subplot(1, len(shown), index)
        _lines(axes, some, as_throughput=family == "spheres")
        axes.set_xlabel(FAMILIES[family])
        if index == 1:
            axes.legend(frameon=False, fontsize=8)
    return figure


def _lines(axes: Axes, rows: list[dict[str, Any]], *, as_throughput: bool) -> None:
    for name, (colour, marker) in STYLES.items():
        medians = [row["timings"][name]["median"] for row in rows]
        values = [1.0 / taken if as_throughput else 1e6 * taken for taken in medians]
        sizes = [row["size"] for row in rows]
        axes.loglog(sizes, values, marker=marker, color=colour, label=name, markersize=5)
    axes.set_ylabel("spheres per second" if as_throughput else "µs per sphere")
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        # A range of a decade or two needs more than its powers of ten.
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        axis.set_minor_formatter(NullFormatter())
    plain_frame(axes)


def _short(value: float) -> str:
    units = ((s, u) for s, u in ((1e6, "M"), (1e3, "k"), (0.0, "")) if value >= s)
    size, unit = next(units)
    return f"{value / (size or 1.0):g}{unit}"


def plain_frame(axes: Axes) -> None:
    """Neither a frame above and to the right, nor a dark grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(which="major", color="#e3e6ea", linewidth=0.8)
    axes.set_axisbelow(True)
