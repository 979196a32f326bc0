"""Writes what was measured: JSON, a Markdown table and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.targets import evaluate

RESULTS = Path(__file__).resolve().parent / "results"


def write(results: dict[str, Any], folder: Path = RESULTS) -> list[Path]:
    """Writes `<device>.json`, `<device>.md` and, with matplotlib, two pictures.

    Args:
        results: what `benchmarks.__main__.run` returns.
        folder: made if it is not there.

    Returns:
        The files.
    """
    files = [write_figures(results, folder), folder / f"{results['device']}.md"]
    results = {**results, "targets": evaluate(results)}
    files[1].write_text(markdown(results))
    try:
        from benchmarks.plots import draw
    except ImportError:
        return files
    return files + draw(results, folder)


def write_figures(results: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Writes `<device>.json` alone; see `write`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{results['device']}.json"
    results = {**results, "targets": evaluate(results)}
    file.write_text(json.dumps(results, indent=1, default=_plain) + "\n")
    return file


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def markdown(results: dict[str, Any]) -> str:
    """All tables of a run."""
    parts = [f"# {results['title']}\n", _facts(results)]
    for heading, table in (
        ("Targets", _targets(results["targets"])),
        ("Workloads", _workloads(results["workloads"])),
        ("Pairs", _pairs(results["pairs"])),
        ("Paid once, and memory", _once(results["once"])),
        ("Other libraries", _peers(results["peers"])),
        ("Failed", "\n".join(f"- {k}: {v}" for k, v in results["failed"].items())),
    ):
        if table:
            parts.append(f"\n## {heading}\n\n{table}")
    return "\n".join(parts)


def _facts(results: dict[str, Any]) -> str:
    facts = [f"{key} {value}" for key, value in results["versions"].items()]
    return (
        f"{', '.join(facts)}. Medians of calls in turns, forward and backward. Every result was "
        "checked against the float64 reference before it counted.\n"
    )


def _table(head: list[str], rows: list[list[str]], right: int = 1) -> str:
    """A Markdown table, its columns aligned to the right from the given one on."""
    rule = ["---" if i < right else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"


def _targets(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        sign = "≥" if row["at_least"] else "≤"
        stretch = f" ({_number(row['stretch'])})" if row["stretch"] else ""
        verdict = "met" if row["met"] else "**missed**"
        bound = f"{sign} {_number(row['bound'])}{stretch}"
        cells.append([row["target"], bound, _number(row["value"]), verdict])
    return _table(["target", "bound (stretch)", "measured", ""], cells) if cells else ""


def _workloads(rows: list[dict[str, Any]]) -> str:
    others = ("short search", "all threads", "floor")
    shown = [name for name in others if any(name in row["timings"] for row in rows)]
    head = ["workload", "what", "spheres", "active", "baseline [µs]", "library [µs]", "speed"]
    cells = []
    for row in rows:
        timings = row["timings"]
        line = [
            f"`{row['workload']}`",
            row["summary"],
            str(row["spheres"]),
            f"{row['active']:.0%}",
            _micro(timings["baseline"]),
            _micro(timings["library"]),
            f"{_number(row['speedups']['library'])}x",
        ]
        line += [_micro(timings[name]) if name in timings else "" for name in shown]
        cells.append(line)
    return _table(head + [f"{name} [µs]" for name in shown], cells, right=2) if cells else ""


def _pairs(pairs: dict[str, float]) -> str:
    cells = [[name, _number(value)] for name, value in pairs.items()]
    return _table(["time of the library per sphere", "ratio"], cells) if cells else ""


def _once(values: dict[str, float]) -> str:
    cells = [[name, _number(value)] for name, value in values.items()]
    return _table(["what", "measured"], cells) if cells else ""


def _peers(rows: list[dict[str, Any]]) -> str:
    head = ["mesh", "library", "points per second, relative", "µs per point", "largest error [mm]"]
    cells = [
        [
            row["mesh"],
            row["peer"],
            f"{row['speed']:.2f}",
            f"{row['microseconds']:.2f}",
            f"{1000 * row['error']:.5f}",
            "none known" if row["wrong_signs"] is None else f"{row['wrong_signs']}/{row['sample']}",
        ]
        for row in rows
    ]
    return _table([*head, "wrong signs"], cells, right=2) if cells else ""


def _micro(timing: dict[str, Any]) -> str:
    return f"{1e6 * timing['median']:.3g}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
