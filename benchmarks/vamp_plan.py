"""VAMP's RRT-Connect on the planning problems of the Panda: `python -m benchmarks.vamp_plan`.

Each path, simplified by VAMP with its defaults, is shown to the judge of `benchmarks.plan`, which
shares no code with the library. VAMP has no cylinders: as in its own scripts capsules hold them,
and boxes in the problems of the set `box`; a start or goal that touches those is not possible for
it. The rows of the library's planners are those kept in results/, of the same problems, from
another run with the same judge; their seconds were measured then. All seconds are of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.data import robot_folder
from benchmarks.plan.planners import Planned
from benchmarks.plan.problems import Problem, list_problems, read_problem
from benchmarks.plan.report import read
from benchmarks.plan.robots import load_robot
from benchmarks.plan.run import judged
from benchmarks.plan.scene import Scene
from benchmarks.report import RESULTS
from benchmarks.vamp_scenes import angles_of, load

ROBOT = "panda"
NAMES = {
    "RRT-Connect": "OMPL's RRT-Connect, motions proven by the library",
    "optimize_paths": "the library's `optimize_paths`",
}


def environment_of(vamp: Any, scene: Scene, scene_type: str) -> Any:
    """A scene as VAMP has it."""
    environment = vamp.Environment()
    for obstacle in scene.obstacles:
        place = obstacle.position.tolist(), angles_of(obstacle.rotation)
        if obstacle.kind == "sphere":
            environment.add_sphere(vamp.Sphere(place[0], obstacle.dimensions[0]))
        elif obstacle.kind == "box":
            halves = [0.5 * edge for edge in obstacle.dimensions]
            environment.add_cuboid(vamp.Cuboid(*place, halves))
        else:
            height, radius = obstacle.dimensions
            if scene_type == "box":
                environment.add_cuboid(vamp.Cuboid(*place, [radius, radius, 0.5 * height]))
            else:
                environment.add_capsule(vamp.Cylinder(*place, radius, height))
    return environment


def plan(vamp: Any, problem: Problem, scene: Scene) -> Planned:
    """RRT-Connect and the simplifier, with the settings that VAMP has for the robot."""
    settings = vamp.configure_robot_and_planner_with_kwargs(ROBOT, "rrtc")
    robot, planner, planning, simplifying = settings
    environment = environment_of(vamp, scene, problem.scene_type)
    ends = [end.astype(np.float32) for end in (problem.start, problem.goal)]
    if not all(robot.validate(end, environment) for end in ends):
        return Planned(None, False, 0.0, 0, "an end collides with what stands for a cylinder")
    sampler = robot.halton()
    begin = time.thread_time()
    found = planner(*ends, environment, planning, sampler)
    if not found.solved:
        return Planned(None, False, time.thread_time() - begin, found.iterations, "no path")
    simple = robot.simplify(found.path, environment, simplifying, sampler)
    seconds = time.thread_time() - begin
    return Planned(np.array(simple.path.numpy()), True, seconds, found.iterations)


def solve(vamp: Any, folder: Path, problems: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """A row for each problem, as in `benchmarks.plan`."""
    from benchmarks.plan.judge import Judge

    names = load_robot(folder, ROBOT).joint_names
    judge = Judge(folder / f"{ROBOT}_spherized.urdf", folder / f"{ROBOT}.srdf", names)
    rows = []
    for scene_type, index in problems:
        problem = read_problem(folder, ROBOT, scene_type, index, list(names))
        scene = Scene.from_file(problem.scene)
        planned = plan(vamp, problem, scene)
        row = {"type": scene_type, "index": index, "planner": "VAMP, RRT-Connect"}
        rows.append(row | judged(planned, problem, scene, judge))
    return rows


def text(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each planner, in Markdown; times and lengths are of solved problems."""
    lines = [
        "| planner | problems | called free | free for the judge | collide by more than 0.1 mm | "
        "deepest | time, ms | 95 % | length | 95 % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for planner in dict.fromkeys(row["planner"] for row in rows):
        mine = [row for row in rows if row["planner"] == planner and row["possible"]]
        found = [row for row in mine if "length" in row]
        solved = [row for row in found if row["solved"]]
        deepest = max((-row["clearance"] for row in found), default=0.0)
        figures = [
            f"{scale * np.quantile([row[key] for row in solved], q):.3g}" if solved else ""
            for key, scale in (("seconds", 1e3), ("length", 1.0))
            for q in (0.5, 0.95)
        ]
        lines.append(
            f"| {NAMES.get(planner, planner)} | {len(mine)} | {len(found)} | {len(solved)} | "
            f"{sum(row['refused'] for row in found)} | "
            f"{f'{1e3 * deepest:.2f} mm' if deepest > 0.0 else ''} | {' | '.join(figures)} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 2 without VAMP."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vamp_plan", description=__doc__)
    parser.add_argument("--every", type=int, default=10, help="every n-th problem of each set")
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    options = parser.parse_args(arguments)
    try:
        vamp = load()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    folder = robot_folder(ROBOT)
    problems = list_problems(folder, ROBOT, options.every)
    rows = solve(vamp, folder, problems)
    known = read(RESULTS)["robots"].get(ROBOT, {"rows": []})["rows"]
    asked = set(problems)
    rows += [row for row in known if (row["type"], row["index"]) in asked]
    table = text(rows)
    print(table)
    for row in rows:
        if row["planner"].startswith("VAMP") and not row["solved"]:
            print(f"{row['type']}/{row['index']}: {row['reason']}", file=sys.stderr)
    if options.write:
        (RESULTS / "vamp-plan-cpu.md").write_text(table + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
