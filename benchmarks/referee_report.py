"""Tables of `referee`."""

from typing import Any

import numpy as np

from benchmarks import motors_report
from benchmarks.harness import table
from benchmarks.motors_report import Results, Row

# What the library calls free, and what is made of it, in words.
OWN = {
    "path, converged": "`optimize_paths`",
    "path, first": '`optimize_paths(until="first")`',
    "stops": "`timed(max_iterations=0)`: stops at corners",
    "curve": "`timed`",
}
MADE = {way: words for way, words in motors_report.WAYS.items() if way.split(",")[0] not in OWN}
NAMES = OWN | MADE
QUERIES = "queries"  # the key of their table

_ABOUT = """\
Paths that planners call free, and motions made of proven paths, judged by code that shares nothing
with the library or a planner: kinematics of pinocchio, exact shapes, coal, samples between which no
sphere moves more than 1 mm. *Touch* are those that collide.
"""
_NO_OMPL = "RRT-Connect is missing where OMPL was not installed, VAMP's where VAMP was not.\n"


def said(row: Row) -> str:
    """What to print of a problem."""
    touching = [NAMES.get(way, way) for way, found in row["ways"].items() if found < 0.0]
    return row.get("reason") or f"touch: {', '.join(touching) or 'none'}"


def robots_of(results: Results) -> dict[str, Row]:
    """The runs of robots."""
    return {name: run for name, run in results.items() if name != QUERIES}


def n_wrong(results: Results, refused: float) -> int:
    """Paths and curves that the library calls free and that are deeper than so much [m]."""
    return sum(
        row["ways"].get(way, 0.0) < -refused
        for run in robots_of(results).values()
        for row in run["rows"]
        for way in OWN
    )


def markdown(results: Results) -> str:
    """What this page is about, and all tables."""
    robots = robots_of(results)
    text = ["# What others call free, judged\n", _ABOUT, _NO_OMPL]
    for name, run in robots.items():
        each = "all" if run["every"] == 1 else f"every {run['every']}th"
        text.append(f"- {name}: {each}, {len(run['rows'])} problems; {run['machine']}")
    seen = [way for run in robots.values() for row in run["rows"] for way in row["ways"]]
    ways = [*NAMES, *sorted(set(seen) - NAMES.keys(), reverse=True)]
    head = ["called free"]
    for name in robots:
        head += [f"{name}: touch", "median depth [mm]", "deepest [mm]"]
    lines = [
        [NAMES.get(way, way), *(cell for run in robots.values() for cell in _cells(run, way))]
        for way in ways
        if way in seen
    ]
    text += ["", table(head, lines)] if robots else []
    if QUERIES in results:
        text += ["## Queries with rational truth\n", results[QUERIES]["text"]]
    return "\n".join(text)


def _cells(run: Row, way: str) -> list[str]:
    found = np.array([row["ways"][way] for row in run["rows"] if way in row["ways"]])
    depths = -1e3 * found[found < 0.0]
    deep: list[Any] = (
        [f"{np.median(depths):.2f}", f"{depths.max():.1f}"] if len(depths) else ["", ""]
    )
    return [f"{len(depths)} of {len(found)}", *deep]
