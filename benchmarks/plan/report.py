"""Writes what planners found: JSON, Markdown tables and a picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import section, table, versions
from benchmarks.plan.planners import PLANNERS
from benchmarks.plan.problems import ROBOTS

NAME = "plan-cpu"
OURS, FIRST, THEIRS = PLANNERS  # FIRST is `until="first"` of ours
COLOURS = {OURS: "#1f6feb", FIRST: "#2da44e", THEIRS: "#8a8f98"}

Results = dict[str, Any]
Row = dict[str, Any]


def read(folder: Path) -> Results:
    """Results of earlier runs; empty ones if there are none."""
    file = folder / f"{NAME}.json"
    return json.loads(file.read_text()) if file.exists() else {"robots": {}}


def replaced(results: Results, robot: str, rows: list[Row], options: Any) -> Results:
    """The same with new rows of a robot, and how they came about.

    Rows of planners that were not run again are kept if the problems and options are the same.
    """
    run = {key: getattr(options, key) for key in ("every", "limit", "seed")}
    known = results["robots"].get(robot, {})
    if all(known.get(key) == value for key, value in run.items()):
        rows = rows + [row for row in known["rows"] if row["planner"] not in options.planners]
    run["versions"] = versions("ompl", "pin", "coal")
    run["rows"] = sorted(rows, key=lambda row: (row["type"], row["index"], row["planner"]))
    robots = {**results["robots"], robot: run}
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
    robots = []
    for name, run in results["robots"].items():
        rows = ",\n".join(json.dumps(row) for row in run["rows"])
        facts = json.dumps({key: value for key, value in run.items() if key != "rows"})
        robots.append(f'"{name}": {facts[:-1]}, "rows": [\n{rows}\n]}}')
    motions = json.dumps(results.get("motions", []))
    file = folder / f"{NAME}.json"
    file.write_text(f'{{"motions": {motions},\n"robots": {{\n' + ",\n".join(robots) + "\n}}\n")
    return file


def markdown(results: Results) -> str:
    """All tables."""
    runs = results["robots"].items()
    sections = [
        section("Targets", targets(results)),
        section("Robots", _summaries("robot", {name: run["rows"] for name, run in runs})),
        *(section(f"{name}, by scene", _by_scene(run["rows"])) for name, run in runs),
        section("One motion at a time", motions_table(results.get("motions", []))),
        section("Not solved", _failures(results)),
    ]
    facts = [f"\n{_circumstances(*run)}" for run in runs]
    title = "# Planning problems of MotionBenchMaker, on the CPU\n"
    return "\n".join([title, _FACTS, *facts, *filter(None, sections)])


_FACTS = """Solved is what the judge calls free: float64 kinematics of pinocchio, exact shapes,
coal's verdict, samples between which no sphere moves more than 1 mm, self-collision by the pairs of
the SRDF. Times are those of one core, planning and shortening, without reading and judging; they
and iterations are of solved problems; "first path" is `until="first"`. Lengths are of the path in
joint space [rad, prismatic: m].
Iterations are of the optimizer, and motions checked by RRT-Connect.
"""


def _circumstances(robot: str, run: Results) -> str:
    count = len({(row["type"], row["index"]) for row in run["rows"]})
    used = ", ".join(f"{name} {text}" for name, text in run["versions"].items())
    each = "all" if run["every"] == 1 else f"every {run['every']}th"
    return f"- {robot}: {each}, {count} problems, {run['limit']:g} s each at most; {used}"


def _of(rows: list[Row], planner: str) -> list[Row]:
    return [row for row in rows if row["planner"] == planner]


def _quantile(rows: list[Row], what: str, at: float) -> float:
    """Of the solved problems; NaN without one."""
    values = [row[what] for row in rows if row["solved"]]
    return float(np.quantile(values, at)) if values else float("nan")


def _counts(rows: list[Row]) -> tuple[int, int, int]:
    """How many are solved, can be solved, and are called free but refused by the judge."""
    return tuple(sum(row[key] for row in rows) for key in ("solved", "possible", "refused"))


def _summaries(what: str, groups: dict[str, list[Row]]) -> str:
    """A line for each group of rows and each planner."""
    lines = []
    for group, rows in groups.items():
        for planner in PLANNERS:
            mine = _of(rows, planner)
            if not mine:
                continue
            solved, possible, refused = _counts(mine)
            line = [group, planner, f"{solved}/{possible}"]
            line.append(f"{solved / possible:.1%}" if possible else "")
            for key, digits in (("seconds", 3), ("iterations", 0), ("length", 2)):
                line += [f"{_quantile(mine, key, q):.{digits}f}" for q in (0.5, 0.95)]
            lines.append([*line, f"{1e3 * _quantile(mine, 'clearance', 0.5):.1f}", str(refused)])
    head = [what, "planner", "solved", "", "time [s]", "95 %", "iterations", "95 %", "length"]
    return table([*head, "95 %", "clearance [mm]", "refused"], lines, 2) if lines else ""


def _by_scene(rows: list[Row]) -> str:
    types = sorted({row["type"] for row in rows})
    return _summaries("scene", {f"`{t}`": [r for r in rows if r["type"] == t] for t in types})


def motions_table(rows: list[Row]) -> str:
    """Times of `joint_path_in_collision` for one motion, called from Python."""
    lines = [
        [f"{row['length']:g}", *("" if row[k] is None else f"{row[k]:.0f}" for k in _MOTIONS)]
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
    ours, theirs = (
        {(row["type"], row["index"]): row for row in _of(rows, planner) if row["solved"]}
        for planner in (OURS, THEIRS)
    )
    return [(row, theirs[key]) for key, row in ours.items() if key in theirs]


def targets(results: Results) -> str:
    """What was to be reached with the Panda, and what was."""
    rows = results["robots"].get("panda", {"rows": []})["rows"]
    mine, pairs = _of(rows, OURS), both(rows)
    if not mine:
        return ""
    solved, possible, refused = _counts(mine)
    reached = solved / possible if possible else 0.0
    share = "share of problems that can be solved", "≥ 99 % (all)"
    lines = [[*share, f"{reached:.2%}: {solved} of {possible}", _verdict(reached >= 0.99)]]
    bounds = [
        (f"time of one core [s], {name}", _quantile(mine, "seconds", q), bound)
        for name, q, bound in (("median", 0.5, 1.0), ("95 %", 0.95, 5.0))
    ]
    bounds.append(("called free, deeper than 0.1 mm for the judge", refused, 0))
    for name, q in (("median", 0.5), ("95 %", 0.95)) if pairs else ():
        lengths = (float(np.quantile([pair[i]["length"] for pair in pairs], q)) for i in (0, 1))
        bounds.append((f"length where both planners solve the problem, {name}", *lengths))
    lines += [[w, f"≤ {b:.3g}", f"{v:.3g}", _verdict(v <= b)] for w, v, b in bounds]
    return table(["target", "bound", "measured", ""], lines)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _failures(results: Results) -> str:
    """Problems without a path, those that have none apart from the others."""
    impossible: dict[str, str] = {}
    others = []
    for robot, run in results["robots"].items():
        for row in run["rows"]:
            where = f"- {robot} `{row['type']}/{row['index']:04d}`"
            if not row["possible"]:
                impossible.setdefault(where, f"{where}: {row['reason']}")
            elif not row["solved"]:
                others.append(f"{where}, {row['planner']}: {row['reason']}")
    collides = "Problems whose start or goal collides for the judge, which count nowhere:"
    parts = ("Problems that can be solved:", others), (collides, impossible.values())
    return "\n\n".join("\n".join([text, "", *(k or ["- none"])]) for text, k in parts) + "\n"
