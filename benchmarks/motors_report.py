"""Tables and picture of `motors`."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import CPU, machine, table

# What is done with a path, and in words.
WAYS = {
    "stops, converged": "stop at each corner, jerk-limited",
    "curve, converged": "`timed`, jerk-limited, proven",
    "blend, converged": "blends of 0.1 rad",
    "spline, converged": "spline through waypoints",
    "corner spline, converged": "spline through corners",
    "blend, first": 'blends of 0.1 rad after `until="first"`',
    "spline, first": 'spline through waypoints after `until="first"`',
    "corner spline, first": 'spline through corners after `until="first"`',
}
OWN = ("stops", "curve")

Results = dict[str, Any]
Row = dict[str, Any]

_ABOUT = """\
Motions made of proven paths of `optimize_paths`, for planning problems of MotionBenchMaker, looked
at by a judge that shares no code with the library: kinematics of pinocchio, exact shapes, coal,
samples between which no sphere moves more than 1 mm; limits at 10 kHz. *Touches* are motions that
collide. Times of blends and splines are those of TOPP-RA, which has no limit of the jerk; "-" where
it was not installed. *Alone* is the time that the slowest joint needs from start to goal with
nothing in its way: no motion is faster.
"""


def read(file: Path) -> Results:
    """Results of earlier runs; empty ones if there are none."""
    return json.loads(file.read_text()) if file.exists() else {}


def replaced(
    results: Results,
    robot: str,
    rows: list[Row],
    every: int,
    packages: tuple[str, ...] = ("pin", "coal", "toppra"),
) -> Results:
    """The same with new rows of a robot, and the versions of packages."""
    rows = sorted(rows, key=lambda row: (row["type"], row["index"]))
    run = {"every": every, "machine": machine(CPU, *packages), "rows": rows}
    return {**results, robot: run}


def write(results: Results, file: Path) -> None:
    """Writes JSON, one problem in a line."""
    robots = []
    for name, run in results.items():
        rows = ",\n".join(json.dumps(row) for row in run["rows"])
        facts = json.dumps({key: value for key, value in run.items() if key != "rows"})
        robots.append(f'"{name}": {facts[:-1]}, "rows": [\n{rows}\n]}}')
    file.write_text("{\n" + ",\n".join(robots) + "\n}\n")


def found(run: Row, way: str) -> list[Row]:
    """What became of all planned problems in one way."""
    key = way.removesuffix(", converged") if way.split(",")[0] in OWN else way
    return [row["ways"][key] for row in run["rows"] if key in row["ways"]]


def n_wrong(results: Results, refused: float, exceeded: float) -> int:
    """Curves that are called free and touch, or that exceed a limit."""
    return sum(
        (one["free"] and one["clearance"] < -refused) or one["exceeded"] > exceeded
        for run in results.values()
        for way in OWN
        for one in found(run, f"{way}, converged")
    )


def _median(values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.median(known):.3f}" if known else "-"


def markdown(results: Results) -> str:
    """What this page is about, and all tables."""
    text = ["# Paths that motors follow\n", _ABOUT]
    for robot, run in results.items():
        each = "all" if run["every"] == 1 else f"every {run['every']}th"
        rows = [row for row in run["rows"] if row["ways"]]
        text.append(f"- {robot}: {each}, {len(rows)} planned problems; {run['machine']}")
    head = ["what is done next"]
    for robot in results:
        head += [f"{robot}: touches", "deepest [mm]", "median time [s]"]
    lines = []
    for way, words in WAYS.items():
        line = [words]
        for run in results.values():
            some = found(run, way)
            touching = [one["clearance"] for one in some if one["clearance"] < 0.0]
            line.append(f"{len(touching)} of {len(some)}")
            line.append(f"{-1e3 * min(touching):.1f}" if touching else "")
            line.append(_median([one["seconds"] for one in some]))
        lines.append(line)
    text += ["", table(head, lines, 1), "## Curves of `timed`\n"]
    head = ["robot", "median time [s]", "95 %", "of alone, median", "95 %", "stops at corners"]
    head += ["limits exceeded by", "time to make one [ms]", "95 %"]
    return "\n".join([*text, table(head, [_own(*item) for item in results.items()], 1)])


def _own(robot: str, run: Row) -> list[str]:
    """A line on the library's curves."""
    rows = [row for row in run["rows"] if "curve" in row["ways"]]
    curves = [row["ways"]["curve"] for row in rows]
    seconds = np.array([one["seconds"] for one in curves])
    ratios = seconds / [row["alone"] for row in rows]
    timing = 1e3 * np.array([one["timing"] for one in curves])
    stops = sum(row["ways"]["stops"]["seconds"] <= row["ways"]["curve"]["seconds"] for row in rows)
    worst = max(one["exceeded"] for one in curves)
    line = [robot]
    for values, digits in ((seconds, 3), (ratios, 2)):
        line += [f"{np.quantile(values, q):.{digits}f}" for q in (0.5, 0.95)]
    line += [f"{stops} of {len(rows)}", f"{max(worst, 0.0):.1g}"]
    return [*line, *(f"{np.quantile(timing, q):.1f}" for q in (0.5, 0.95))]


def draw(results: Results, path: Path) -> None:
    """How many motions touch, and how long they take."""
    from matplotlib.figure import Figure

    from benchmarks.plots import plain_frame

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    names, height = list(WAYS.values()), 0.8 / max(len(results), 1)
    for number, (robot, run) in enumerate(results.items()):
        at = np.arange(len(WAYS)) + number * height
        rows = [found(run, way) for way in WAYS]
        shares = [
            100.0 * np.mean([one["clearance"] < 0.0 for one in some] or [0.0]) for some in rows
        ]
        color = ("#1f6feb", "#2da44e")[number % 2]
        left.barh(at, shares, height, color=color, label=robot)
        for way in OWN:
            seconds = np.sort([one["seconds"] for one in found(run, f"{way}, converged")])
            ends = np.linspace(0.0, 100.0, len(seconds))
            style = "-" if way == "curve" else ":"
            label = f"{robot}, {'timed' if way == 'curve' else 'with stops'}"
            right.plot(seconds, ends, style, color=color, label=label)
    names = [name.replace("`", "") for name in names]
    left.set_yticks(np.arange(len(WAYS)) + 0.4 - 0.5 * height, names)
    left.invert_yaxis()
    left.set_xlabel("motions that touch [%]")
    right.set_xlabel("time [s]")
    right.set_ylabel("motions within that time [%]")
    for axes in (left, right):
        plain_frame(axes)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
