"""VAMP's RRT-Connect on the planning problems of the Panda.

Each path, simplified by VAMP with its defaults, is shown to the judge of `benchmarks.plan`, which
shares no code with the library. VAMP has no cylinders: as in its own scripts capsules hold them,
and boxes in the problems of the set `box`; a start or goal that touches those is not possible for
it. The rows of the library's planners are those kept in results/, of the same problems, from
another run with the same judge; their seconds were measured then. All seconds are of one core.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, table
from benchmarks.plan.problems import Problem, list_problems, read_problem, robot_folder
from benchmarks.vamp import environment_of, load

ROBOT = "panda"
NAMES = {
    "RRT-Connect": "OMPL's RRT-Connect, motions proven by the library",
    "optimize_paths": "the library's `optimize_paths`",
}


def plan(vamp: Any, problem: Problem, scene: Any) -> Any:
    """RRT-Connect and the simplifier, with the settings that VAMP has for the robot."""
    from benchmarks.plan.planners import Planned

    settings = vamp.configure_robot_and_planner_with_kwargs(ROBOT, "rrtc")
    robot, planner, planning, simplifying = settings
    environment = environment_of(vamp, scene, capsules=problem.scene_type != "box")
    ends = [end.astype(np.float32) for end in (problem.start, problem.goal)]
    if not all(robot.validate(end, environment) for end in ends):
        return Planned(None, False, 0.0, 0, "an end collides with what stands for a cylinder")
    sampler, begin = robot.halton(), time.thread_time()
    found = planner(*ends, environment, planning, sampler)
    if not found.solved:
        return Planned(None, False, time.thread_time() - begin, found.iterations, "no path")
    simple = robot.simplify(found.path, environment, simplifying, sampler)
    seconds = time.thread_time() - begin
    return Planned(np.array(simple.path.numpy()), True, seconds, found.iterations)


def text(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each planner, in Markdown; times and lengths are of solved problems."""
    head = ["planner", "problems", "called free", "free for the judge"]
    head += ["collide by more than 0.1 mm", "deepest", "time, ms", "95 %", "length", "95 %"]
    lines = []
    for planner in dict.fromkeys(row["planner"] for row in rows):
        mine = [row for row in rows if row["planner"] == planner and row["possible"]]
        found = [row for row in mine if "length" in row]
        solved = [row for row in found if row["solved"]]
        deepest = max((-1e3 * row["clearance"] for row in found), default=0.0)
        counts = len(mine), len(found), len(solved), sum(row["refused"] for row in found)
        figures = [
            f"{scale * np.quantile([row[key] for row in solved], q):.3g}" if solved else ""
            for key, scale in (("seconds", 1e3), ("length", 1.0))
            for q in (0.5, 0.95)
        ]
        depth = f"{deepest:.2f} mm" if deepest > 0.0 else ""
        lines.append([NAMES.get(planner, planner), *map(str, counts), depth, *figures])
    return table(head, lines)


def add_options(parser: Any) -> None:
    """How many problems."""
    parser.add_argument("--every", type=int, default=10, help="every n-th problem of each set")


def run(options: Any) -> str:
    """The table."""
    vamp, folder = load(), robot_folder(ROBOT)
    from benchmarks.plan.judge import Judge
    from benchmarks.plan.problems import load_robot
    from benchmarks.plan.report import read
    from benchmarks.plan.run import judged
    from benchmarks.plan.scene import Scene

    names = load_robot(folder, ROBOT).joint_names
    judge = Judge(folder / f"{ROBOT}_spherized.urdf", folder / f"{ROBOT}.srdf", names)
    asked, rows = list_problems(folder, ROBOT, options.every), []
    for which in asked:
        problem = read_problem(folder, ROBOT, *which, list(names))
        scene = Scene.from_file(problem.scene)
        row = {"type": which[0], "index": which[1], "planner": "VAMP, RRT-Connect"}
        rows.append(row | judged(plan(vamp, problem, scene), problem, scene, judge))
    known = read(RESULTS)["robots"].get(ROBOT, {"rows": []})["rows"]
    failed = [f"{r['type']}/{r['index']}: {r['reason']}" for r in rows if not r["solved"]]
    print(*failed, sep="\n")
    return text(rows + [row for row in known if (row["type"], row["index"]) in set(asked)])
