"""Planning problems of MotionBenchMaker, on the CPU.

Solved is what the judge calls free: float64 kinematics of pinocchio, exact shapes, coal's verdict,
samples between which no sphere moves more than 1 mm, self-collision by the pairs of the SRDF. Times
are those of one core, planning and shortening, without reading and judging; they and iterations are
of solved problems. "first path" is `until="first"`, "its first path" that of RRT-Connect without
its simplifier. Lengths are of the path in joint space [rad, prismatic: m]. Iterations are of the
optimizer, and motions checked by RRT-Connect.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import CPU, machine, table
from benchmarks.planners import PLANNERS
from benchmarks.problems import ROBOTS

COLOURS = dict(zip(PLANNERS, ("#1f6feb", "#2da44e", "#8a8f98", "#bf8700"), strict=True))

Results = dict[str, Any]
Row = dict[str, Any]


def read(file: Path) -> Results:
    """Results of earlier runs; empty ones if there are none."""
    return json.loads(file.read_text()) if file.exists() else {}


def replaced(results: Results, robot: str, rows: list[Row], options: Any) -> Results:
    """The same with new rows of a robot, and how they came about.

    Rows of planners that were not run again are kept if the problems and options are the same.
    """
    run = {key: getattr(options, key) for key in ("every", "limit")}
    known = results.get(robot, {})
    if all(known.get(key) == value for key, value in run.items()):
        rows = rows + [row for row in known["rows"] if row["planner"] not in options.planners]
    run["machine"] = machine(CPU, "ompl", "pin", "coal")
    run["rows"] = sorted(rows, key=lambda row: (row["type"], row["index"], row["planner"]))
    robots = {**results, robot: run}
    return {name: robots[name] for name in ROBOTS if name in robots}


def unsolved(results: Results, robot: str, planners: list[str]) -> list[tuple[str, int]]:
    """Problems of a robot that can be solved, and that one of some planners did not solve."""
    rows = results[robot]["rows"] if robot in results else []
    left = (row for row in rows if row["possible"] and not row["solved"])
    return sorted({(row["type"], row["index"]) for row in left if row["planner"] in planners})


def write(results: Results, file: Path) -> None:
    """Writes JSON, one problem in a line."""
    robots = []
    for name, run in results.items():
        rows = ",\n".join(json.dumps(row) for row in run["rows"])
        facts = json.dumps({key: value for key, value in run.items() if key != "rows"})
        robots.append(f'"{name}": {facts[:-1]}, "rows": [\n{rows}\n]}}')
    file.write_text("{\n" + ",\n".join(robots) + "\n}\n")


def markdown(results: Results) -> str:
    """What this page is about, and all tables."""
    title, _, facts = str(__doc__).partition("\n")
    text = [f"# {title.rstrip('.')}\n{facts}"]
    for robot, run in results.items():
        each = "all" if run["every"] == 1 else f"every {run['every']}th"
        count = len({(row["type"], row["index"]) for row in run["rows"]})
        used = f"{run['limit']:g} s each at most; {run['machine']}"
        text.append(f"- {robot}: {each}, {count} problems, {used}")
    rows = {robot: run["rows"] for robot, run in results.items()}
    text += ["\n## Robots\n", summaries("robot", rows)]
    for robot, some in rows.items():
        types = sorted({row["type"] for row in some})
        by_type = {f"`{t}`": [row for row in some if row["type"] == t] for t in types}
        text += [f"## {robot}, by scene\n", summaries("scene", by_type)]
    return "\n".join([*text, "## Not solved\n", failures(rows)])


def summaries(what: str, groups: dict[str, list[Row]]) -> str:
    """A line for each group of rows and each planner."""
    head = [what, "planner", "solved", "", "time [s]", "95 %", "iterations", "95 %", "length"]
    lines = []
    for group, planner in ((group, planner) for group in groups for planner in PLANNERS):
        rows = [row for row in groups[group] if row["planner"] == planner]
        if not rows:
            continue
        solved, possible, refused = (
            sum(row[key] for row in rows) for key in ("solved", "possible", "refused")
        )
        line = [group, planner, f"{solved}/{possible}"]
        line.append(f"{solved / possible:.1%}" if possible else "")
        for key, digits in (("seconds", 3), ("iterations", 0), ("length", 2)):
            line += [f"{quantile(rows, key, q):.{digits}f}" for q in (0.5, 0.95)]
        lines.append([*line, f"{1e3 * quantile(rows, 'clearance', 0.5):.1f}", str(refused)])
    return table([*head, "95 %", "clearance [mm]", "refused"], lines, 2)


def quantile(rows: list[Row], what: str, at: float) -> float:
    """Of the solved problems; NaN without one."""
    values = [row[what] for row in rows if row["solved"]]
    return float(np.quantile(values, at)) if values else float("nan")


def failures(results: dict[str, list[Row]]) -> str:
    """Problems without a path, those that have none apart from the others."""
    impossible, others = {}, []
    for robot, rows in results.items():
        for row in rows:
            where = f"- {robot} `{row['type']}/{row['index']:04d}`"
            if not row["possible"]:
                impossible.setdefault(where, f"{where}: {row['reason']}")
            elif not row["solved"]:
                others.append(f"{where}, {row['planner']}: {row['reason']}")
    collides = "Problems whose start or goal collides for the judge, which count nowhere:"
    parts = ("Problems that can be solved:", others), (collides, impossible.values())
    return "\n\n".join("\n".join([text, "", *(k or ["- none"])]) for text, k in parts) + "\n"


def draw(results: Results, path: Path) -> None:
    """Solved within a time of one core, and lengths of paths, of the first robot."""
    from matplotlib.figure import Figure

    from benchmarks.plots import plain_frame

    robot = next(iter(results))
    figure = Figure(figsize=(9.0, 3.7), layout="constrained")
    over_time, over_length = figure.subplots(1, 2, sharey=True)
    for planner, colour in COLOURS.items():
        rows = [row for row in results[robot]["rows"] if row["planner"] == planner]
        solved = [row for row in rows if row["solved"]]
        possible = sum(row["possible"] for row in rows)
        percent = 100.0 * np.arange(1, len(solved) + 1) / max(possible, 1)
        label = f"{planner}: {len(solved)} of {possible}"
        for axes, key in ((over_time, "seconds"), (over_length, "length")) if solved else ():
            values = sorted(row[key] for row in solved)
            axes.step(values, percent, where="post", color=colour, lw=1.8, label=label)
    over_time.set(xscale="log", xlabel="seconds of one core", ylabel="solved, for the judge [%]")
    over_length.set(xlabel="length of the path [rad]")
    over_length.legend(loc="lower right", frameon=False, fontsize=8)
    for axes in (over_time, over_length):
        plain_frame(axes)
    count = len({(row["type"], row["index"]) for row in results[robot]["rows"]})
    figure.suptitle(f"{count} problems of the {robot.capitalize()}", fontsize=11)
    figure.savefig(path, dpi=110)
