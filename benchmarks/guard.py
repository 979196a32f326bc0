"""What a guard passes on, judged at each millisecond, and how long it takes.

Episodes have hostile commands: random ones, jumps, limits of velocity, straight into obstacles.
Half of them begin near contact; in every other part jerk is limited. Scenes are those of the
planning problems. An independent judge looks at each millisecond. With balls that come at the
robot, as fast as the guard was told, contact counts where the robot is in motion.

Parts: contact, moving, goals, loop (times, and contacts beside a slow-down rule and a control
barrier), envs (4,096 at once), memory (a million steps, while another thread moves an obstacle),
ik (inverse kinematics by pink, with its own barrier and with `link_distances`).
`--write` adds episodes and targets to those that are kept, by seeds, so that a run may be cut off;
`--report` prints what is kept.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks import guard_ik, guard_loop, harness
from benchmarks.guard_episodes import ROBOTS, Cast, run_part
from benchmarks.harness import CPU, RESULTS, Failed

PARTS = ("contact", "moving", "goals", "loop", "envs", "memory", "ik")
SPEED = 1.0  # m/s, of what comes
_AT_ONCE = 100  # episodes of a part


def add_options(parser: Any) -> None:
    """Which parts, and how many episodes."""
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS, metavar="ROBOT")
    parser.add_argument("--episodes", type=int, default=60, help="of each robot (default 60)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of an episode (default 2)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of memory (default 10^6)")
    parser.add_argument("--targets", type=int, default=1000, help="of ik (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first 100 episodes (default 0)")
    parser.add_argument("--report", action="store_true", help="only tables")


def run(options: Any) -> str:
    """Runs the parts; all tables."""
    file = (options.write or RESULTS / "guard").with_suffix(".json")
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for part in () if options.report else options.parts:
        if part in ("contact", "moving"):
            for robot in options.robots:
                _episodes(kept, part, robot, options, file)
        elif part == "ik":
            _targets(kept, options, file)
        else:
            kept[part] = getattr(guard_loop, part)(options)
            _keep(kept, options, file)
    text = f"{harness.machine(CPU)}\n\n{report(kept)}"
    if _wrong(kept):
        raise Failed(text)
    return text


def _episodes(kept: dict[str, Any], part: str, robot: str, options: Any, file: Path) -> None:
    cast, speed = Cast(robot), SPEED if part == "moving" else 0.0
    for index in range(-(-options.episodes // _AT_ONCE)):
        seed, began = options.seed + index, time.process_time()
        count = min(_AT_ONCE, options.episodes - index * _AT_ONCE)
        row = run_part(cast, seed, count, options.seconds, speed)
        rows = [r for r in kept.get(part, []) if (r["robot"], r["seed"]) != (robot, seed)]
        kept[part] = [*rows, row]
        took = time.process_time() - began
        print(f"{part} {robot} {seed}: {1e3 * row['least']:.3f} mm, {took:.0f} s", flush=True)
        _keep(kept, options, file)


def _targets(kept: dict[str, Any], options: Any, file: Path) -> None:
    """Those of the first targets that are not kept yet, each as soon as it is found."""
    rows = kept.setdefault("ik", [])
    for seed in {*range(options.targets)} - {row["seed"] for row in rows}:
        rows.append(guard_ik.ik(seed))
        _keep(kept, options, file)


def _keep(kept: dict[str, Any], options: Any, file: Path) -> None:
    if options.write:
        file.write_text(json.dumps(kept) + "\n")


def _wrong(kept: dict[str, Any]) -> int:
    """Episodes in contact, but for robots at rest that something has met."""
    return sum(
        row["contacts"] + row.get("hit_moving", 0)
        for part in PARTS[:2]
        for row in kept.get(part, [])
    )


def report(kept: dict[str, Any]) -> str:
    """Tables of what is kept."""
    rows = []
    for part in PARTS[:2]:
        for robot in ROBOTS:
            some = [row for row in kept.get(part, []) if row["robot"] == robot]
            if some:
                count = {
                    key: sum(row.get(key, 0) for row in some)
                    for key in ("episodes", "contacts", "hit_moving", "met_resting", "near")
                }
                passed = sum(row["passed"] * row["episodes"] for row in some)
                rows.append(
                    [
                        f"{robot}{', something comes' if part == 'moving' else ''}",
                        str(count["episodes"]),
                        str(count["contacts"] + count["hit_moving"]),
                        str(count["met_resting"]),
                        f"{1e3 * min(row['least'] for row in some):.2f}",
                        f"{100 * count['near'] / count['episodes']:.0f} %",
                        f"{100 * passed / count['episodes']:.0f} %",
                    ]
                )
    head = ["robot", "episodes", "contacts", "met at rest", "least clearance [mm]"]
    head += ["came as near as it may", "steps passed on whole"]
    tables = [harness.table(head, rows)] if rows else []
    tables += [guard_loop.table_of(part, kept[part]) for part in PARTS[2:-1] if part in kept]
    tables += [guard_ik.table_of(kept["ik"])] if "ik" in kept else []
    return "\n".join(tables)
