"""The targets, as data, and what was measured of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Which workload is compared with which, in turns: time per sphere of the first over the second.
PAIRS = (
    ("deep-link", "near-link"),
    ("deep-torus-16000", "near-torus-16000"),
    ("deep-torus-80000", "near-torus-80000"),
    ("deep-ball-20480", "near-torus-16000"),
    ("middle-ball-20480", "near-torus-16000"),
    ("scene-1000", "scene-10"),
    ("scene-10000", "scene-10"),
    ("panda-swept-1024", "panda-1024"),
)


@dataclass(frozen=True)
class Target:
    """A bound that one measured value has to keep.

    Attributes:
        text: what it is about.
        kind: "speedup" of the library over the baseline of a workload, "threads" the same of all
            threads over one, "floor" of the library's time over the floor's, "pair" of two
            workloads, or "once".
        of: the workload, the pair or the name of the value.
        bound: the target.
        at_least: whether the value must not be below it; else it must not be above.
        stretch: a further aim, or None.
        only: the kind of device that it is for, or None for any.
    """

    text: str
    kind: str
    of: Any
    bound: float
    at_least: bool = False
    stretch: float | None = None
    only: str | None = None


def _target_pair(first: str, second: str, bound: float) -> Target:
    return Target(f"{first}, time over {second}", "pair", (first, second), bound)


TARGETS = (
    Target("near-torus-16000, speed over the baseline", "speedup", "near-torus-16000", 2, True, 5),
    Target("near-torus-80000, speed over the baseline", "speedup", "near-torus-80000", 2, True, 5),
    _target_pair("deep-link", "near-link", 4),
    _target_pair("deep-torus-16000", "near-torus-16000", 4),
    _target_pair("deep-torus-80000", "near-torus-80000", 4),
    Target("scene-1000, speed over the baseline", "speedup", "scene-1000", 30, True, 50),
    _target_pair("scene-1000", "scene-10", 2.5),
    _target_pair("scene-10000", "scene-10", 3.5),
    Target("panda-swept-1024, speed over 1 mm samples", "speedup", "panda-swept-1024", 10, True),
    _target_pair("panda-swept-1024", "panda-1024", 4),
    Target("near-torus-16000, all threads over one", "threads", "near-torus-16000", 1.8, True),
    Target("panda-1024, all threads over one", "threads", "panda-1024", 1.8, True),
    Target("panda-swept-1024, all threads over one", "threads", "panda-swept-1024", 1.8, True),
    Target("tiny, time over two replayed launches", "floor", "tiny", 1.5),
    Target("free, time over two replayed launches", "floor", "free", 1.5),
    Target("free-swept, time over two replayed launches", "floor", "free-swept", 1.5),
    Target("bytes per resting sphere", "once", "bytes per resting sphere, beyond outputs", 32),
    Target("bytes per moving sphere", "once", "bytes per moving sphere, beyond outputs", 32),
    Target("first call, cold [s]", "once", "first call, cold kernel cache [s]", 3.0, only="cpu"),
    Target("first call, warm [s]", "once", "first call, warm kernel cache [s]", 0.05),
    Target("adding 80000 triangles [s]", "once", "adding 80000 triangles [s]", 0.15),
    Target("pose update of 1000 meshes [s]", "once", "pose update of 1000 meshes [s]", 1e-3),
)


def evaluate(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured of every target that the results allow to judge.

    Args:
        results: as they are written to JSON.

    Returns:
        For each target its text, bound, direction, stretch, value, and whether it is met.
    """
    rows = []
    for target in TARGETS:
        if target.only is not None and target.only != results["device_type"]:
            continue
        value = _value(target, results)
        if value is None:
            continue
        met = value >= target.bound if target.at_least else value <= target.bound
        rows.append(
            {
                "target": target.text,
                "bound": target.bound,
                "at_least": target.at_least,
                "stretch": target.stretch,
                "value": value,
                "met": met,
            }
        )
    return rows


def _value(target: Target, results: dict[str, Any]) -> float | None:
    if target.kind == "pair":
        return results["pairs"].get(" / ".join(target.of))
    if target.kind == "once":
        return results["once"].get(target.of)
    row = next((r for r in results["workloads"] if r["workload"] == target.of), None)
    if row is None:
        return None
    if target.kind == "speedup":
        return row["speedups"]["library"]
    return row["against"].get("floor" if target.kind == "floor" else "all threads")
