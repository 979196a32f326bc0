"""Writes what planners found: JSON, Markdown tables and a picture."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.data import ROBOTS
from benchmarks.plan.planners import PLANNERS
from benchmarks.plan.run import Row

RESULTS = Path(__file__).resolve().parents[1] / "results"
NAME = "plan-cpu"
OURS, THEIRS = PLANNERS

Results = dict[str, Any]


def read(folder: Path) -> Results:
    """Results of earlier runs; empty ones if there are none."""
    file = folder / f"{NAME}.json"
    return json.loads(file.read_text()) if file.exists() else {"robots": {}}


def replaced(results: Results, robot: str, rows: list[Row], options: argparse.Namespace) -> Results:
    """The same with new rows of a robot, and how they came about.

    Rows of planners that were not run again are kept if the problems and options are the same.
    """
    rows = [{key: value for key, value in row.items() if key != "robot"} for row in rows]
    run = {"every": options.every, "limit": options.limit, "seed": options.seed}
    known = results["robots"].get(robot, {})
    if all(known.get(key) == value for key, value in run.items()):
        rows += [row for row in known["rows"] if row["planner"] not in options.planners]
    rows = sorted(rows, key=lambda row: (row["type"], row["index"], row["planner"]))
    robots = {**results["robots"], robot: {**run, "versions": _versions(), "rows": rows}}
    return {**results, "robots": {name: robots[name] for name in ROBOTS if name in robots}}


def write(results: Results, folder: Path) -> list[Path]:
    """Writes JSON, Markdown and, with matplotlib, a picture; returns the files."""
    files = [write_figures(results, folder), folder / f"{NAME}.md"]
    files[1].write_text(markdown(results))
    try:
        from benchmarks.plan.plots import draw
    except ImportError:
        return files
    return files + draw(results, folder / f"{NAME}.png")


def write_figures(results: Results, folder: Path) -> Path:
    """Writes the JSON alone, one problem in a line."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{NAME}.json"
    robots = []
    for name, run in results["robots"].items():
        rows = ",\n".join(json.dumps(row) for row in run["rows"])
        facts = json.dumps({key: value for key, value in run.items() if key != "rows"})
        robots.append(f'"{name}": {facts[:-1]}, "rows": [\n{rows}\n]}}')
    motions = json.dumps(results.get("motions", []))
    text = f'{{"motions": {motions},\n"robots": {{\n' + ",\n".join(robots) + "\n}}\n"
    file.write_text(text)
    return file


def markdown(results: Results) -> str:
    """All tables."""
    parts = ["# Planning problems of MotionBenchMaker, on the CPU\n", _FACTS]
    for robot, run in results["robots"].items():
        parts.append(f"\n{_circumstances(robot, run)}")
    for heading, text in (
        ("Targets", targets(results)),
        ("Robots", robots_table(results)),
        *((f"{name}, by scene", scenes_table(run)) for name, run in results["robots"].items()),
        ("One motion at a time", motions_table(results.get("motions", []))),
        ("Not solved", _failures(results)),
    ):
        if text:
            parts.append(f"\n## {heading}\n\n{text}")
    return "\n".join(parts)


_FACTS = """Solved is what the judge calls free: float64 kinematics of pinocchio, exact shapes,
coal's verdict, samples between which no sphere moves more than 1 mm, self-collision by the pairs of
the SRDF. Times are those of one core, planning and shortening, without reading and judging; they
and iterations are of solved problems. Lengths are of the path in joint space [rad, prismatic: m].
Iterations are of the optimizer, and motions checked by RRT-Connect.
"""


def _circumstances(robot: str, run: Results) -> str:
    count = len({(row["type"], row["index"]) for row in run["rows"]})
    versions = ", ".join(f"{name} {text}" for name, text in run["versions"].items())
    each = "all" if run["every"] == 1 else f"every {run['every']}th"
    return f"- {robot}: {each}, {count} problems, {run['limit']:g} s each at most; {versions}"


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("torch", "warp-lang", "warp-collision", "ompl", "pin", "coal"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


class Summary:
    """Figures of one planner on some problems.

    Args:
        rows: of one planner.
    """

    def __init__(self, rows: list[Row]):
        self.rows = rows
        self.solved = [row for row in rows if row["solved"]]
        self.possible = sum(row["possible"] for row in rows)
        self.refused = sum(row["refused"] for row in rows)

    def quantile(self, what: str, at: float) -> float:
        """Of the solved problems; NaN without one."""
        values = [row[what] for row in self.solved]
        return float(np.quantile(values, at)) if values else float("nan")

    def cells(self) -> list[str]:
        """Solved, times, iterations, lengths, clearance."""
        counts = f"{len(self.solved)}/{self.possible}"
        iterations = [f"{self.quantile('iterations', q):.0f}" for q in (0.5, 0.95)]
        return [
            counts,
            f"{len(self.solved) / self.possible:.1%}" if self.possible else "",
            *(f"{self.quantile('seconds', q):.2f}" for q in (0.5, 0.95)),
            *iterations,
            *(f"{self.quantile('length', q):.2f}" for q in (0.5, 0.95)),
            f"{1e3 * self.quantile('clearance', 0.5):.1f}",
            str(self.refused),
        ]


_COLUMNS = [
    *("solved", "", "time [s]", "95 %", "iterations", "95 %", "length", "95 %"),
    *("clearance [mm]", "refused"),
]


def _of(rows: list[Row], planner: str) -> list[Row]:
    return [row for row in rows if row["planner"] == planner]


def table(head: list[str], rows: list[list[str]], left: int) -> str:
    """A Markdown table whose first columns are aligned to the left."""
    rule = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"


def robots_table(results: Results) -> str:
    """A line for each robot and planner."""
    lines = []
    for robot, run in results["robots"].items():
        for planner in PLANNERS:
            rows = _of(run["rows"], planner)
            if rows:
                lines.append([robot, planner, *Summary(rows).cells()])
    return table(["robot", "planner", *_COLUMNS], lines, 2) if lines else ""


def scenes_table(run: Results) -> str:
    """A line for each scene type and planner."""
    lines = []
    for scene_type in sorted({row["type"] for row in run["rows"]}):
        of_type = [row for row in run["rows"] if row["type"] == scene_type]
        for planner in PLANNERS:
            rows = _of(of_type, planner)
            if rows:
                lines.append([f"`{scene_type}`", planner, *Summary(rows).cells()])
    return table(["scene", "planner", *_COLUMNS], lines, 2)


def motions_table(rows: list[Row]) -> str:
    """Times of `joint_path_in_collision` for one motion, called from Python."""
    lines = [
        [f"{row['length']:g}", *("" if row[key] is None else f"{row[key]:.0f}" for key in _MOTIONS)]
        for row in rows
    ]
    head = ["motion [rad]", "free [µs]", "95 %", "not free [µs]"]
    return f"{_MOTIONS_TEXT}\n{table(head, lines, 0)}" if lines else ""


_MOTIONS = "free", "free95", "hit"
_MOTIONS_TEXT = """What RRT-Connect waits for: `joint_path_in_collision` for one motion of the Panda
and its 59 spheres, in the first scene of each set, medians by the clock, the call from Python
included.
"""


def both(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Rows of both planners for problems that both solved."""
    theirs = {(row["type"], row["index"]): row for row in _of(rows, THEIRS) if row["solved"]}
    solved = [row for row in _of(rows, OURS) if row["solved"]]
    keys = [(row["type"], row["index"]) for row in solved]
    return [(row, theirs[key]) for row, key in zip(solved, keys, strict=True) if key in theirs]


def targets(results: Results) -> str:
    """What was to be reached with the Panda, and what was."""
    run = results["robots"].get("panda")
    if run is None or not _of(run["rows"], OURS):
        return ""
    found = Summary(_of(run["rows"], OURS))
    lines = [
        _line("share of problems that can be solved", found, "≥ 99 % (all)", 0.99),
        *(
            _bound(f"time of one core [s], {name}", found.quantile("seconds", q), bound)
            for name, q, bound in (("median", 0.5, 1.0), ("95 %", 0.95, 5.0))
        ),
        _bound("called free, deeper than 0.1 mm for the judge", found.refused, 0),
    ]
    pairs = both(run["rows"])
    for name, q in (("median", 0.5), ("95 %", 0.95)):
        if pairs:
            ours, theirs = (np.quantile([p[i]["length"] for p in pairs], q) for i in (0, 1))
            what = f"length where both planners solve the problem, {name}"
            lines.append(_bound(what, float(ours), float(theirs)))
    return table(["target", "bound", "measured", ""], lines, 1)


def _line(what: str, found: Summary, bound: str, share: float) -> list[str]:
    reached = len(found.solved) / found.possible if found.possible else 0.0
    met = "met" if reached >= share else "**missed**"
    return [what, bound, f"{reached:.2%}: {len(found.solved)} of {found.possible}", met]


def _bound(what: str, value: float, bound: float) -> list[str]:
    return [what, f"≤ {bound:.3g}", f"{value:.3g}", "met" if value <= bound else "**missed**"]


def _failures(results: Results) -> str:
    """Problems without a path, those that have none apart from the others."""
    impossible: dict[str, str] = {}
    others = []
    for robot, run in results["robots"].items():
        for row in run["rows"]:
            where = f"- {robot} `{row['type']}/{row['index']:04d}`"
            if not row["possible"]:
                impossible.setdefault(where, f"{where}: {row['reason']}")
            elif row["possible"] and not row["solved"]:
                others.append(f"{where}, {row['planner']}: {row['reason']}")
    parts = []
    for text, lines in (
        ("Problems that can be solved:", others),
        (
            "Problems whose start or goal collides for the judge, which count nowhere:",
            impossible.values(),
        ),
    ):
        parts.append("\n".join([text, "", *(lines or ["- none"])]))
    return "\n\n".join(parts) + "\n"
