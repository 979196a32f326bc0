"""Solves problem sets of MotionBenchMaker, and lets an independent judge look at every path.

In processes of one thread each. `--write` keeps results as they come, and those of robots and
planners that are not run again. The status is 1 if the judge refused a path that was called free.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import plan_report, problems
from benchmarks.harness import RESULTS, Failed
from benchmarks.planners import PLANNERS, Planned
from benchmarks.pool import in_any_order
from benchmarks.problems import ROBOTS, Problem, list_problems
from path_judge import Judge, Judgement, Scene

# A path that the library calls free and the judge finds deeper than this is a wrong answer [m].
REFUSED = 1e-4
# How far ends may be from start and goal, and joints beyond their limits, for rounding's sake.
ROUNDING = 1e-5


def judged(planned: Planned, problem: Problem, scene: Scene, judge: Judge) -> dict[str, Any]:
    """What counts of a path."""
    asked = np.stack([problem.start, problem.goal])
    row: dict[str, Any] = {
        "possible": all(judge.judge(end[None], scene).free for end in asked),
        **{"solved": False, "refused": False, "seconds": round(planned.seconds, 4)},
        **{"iterations": planned.iterations, "reason": planned.reason},
    }
    if planned.path is None:
        return row
    path = np.asarray(planned.path, dtype=np.float64)
    said = judge.judge(path, scene)
    ends = np.abs(path[[0, -1]] - asked).max()
    low = np.minimum(judge.limits[:, 0], asked.min(0))
    high = np.maximum(judge.limits[:, 1], asked.max(0))
    beyond = np.maximum(low - path, path - high).max()
    row["solved"] = bool(planned.free and said.free and max(ends, beyond) <= ROUNDING)
    row["refused"] = bool(planned.free and said.clearance < -REFUSED)
    row["length"] = round(float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()), 4)
    row["clearance"] = round(said.clearance, 6)
    if not row["solved"] and not row["reason"]:
        row["reason"] = _reason(planned.free, said, ends, beyond)
    return row


def _reason(free: bool, said: Judgement, ends: float, beyond: float) -> str:
    if ends > ROUNDING:
        return f"an end is {ends:.1g} from where it should be"
    if beyond > ROUNDING:
        return f"a joint is {beyond:.1g} beyond its limits"
    nearest = (said.link, said.obstacle) if said.world <= said.self else said.links
    verdict = "called free, but is not" if free else "no path proven free"
    where = " to ".join(nearest)
    return f"{verdict}: clearance of the best {1e3 * said.clearance:.2f} mm, {where}"


class Solver:
    """A robot with its judge, in a process of its own."""

    current: "Solver"

    def __init__(self, folder: Path, name: str, planners: list[str], limit: float):
        self.folder, self.name, self.planners, self.limit = folder, name, planners, limit
        self.robot = problems.load_robot(folder, name)
        files = folder / f"{name}_spherized.urdf", folder / f"{name}.srdf"
        touching = problems.ALWAYS_TOUCHING.get(name, ())
        self.judge = Judge(*files, self.robot.joint_names, touching)

    def solve(self, which: tuple[str, int]) -> list[dict[str, Any]]:
        """A row for each planner: what it found, and what the judge says of it."""
        names = list(self.robot.joint_names)
        problem = problems.read_problem(self.folder, self.name, *which, names)
        scene, rows = Scene.from_file(problem.scene), []
        for name in self.planners:
            planned = PLANNERS[name](problem, self.robot, self.limit)
            row = {"type": which[0], "index": which[1], "planner": name}
            rows.append(row | judged(planned, problem, scene, self.judge))
        return rows


def _begin(*settings: Any) -> None:
    torch.set_num_threads(1)
    Solver.current = Solver(*settings)
    # Compiles kernels, or loads them, which no time of a problem has in it.
    _solve(list_problems(*settings[:2])[0])


def _solve(which: tuple[str, int]) -> list[dict[str, Any]]:
    return Solver.current.solve(which)


def add_options(parser: Any) -> None:
    """Which problems and planners, and for how long."""
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS, metavar="ROBOT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every n-th problem")
    near = "only the 13 problems with an end nearer to contact than the margin; not written"
    parser.add_argument("--near-ends", action="store_true", help=near)
    unsolved = "only problems without a path in the results that are kept; not written"
    parser.add_argument("--unsolved", action="store_true", help=unsolved)
    parser.add_argument("--planners", nargs="+", choices=PLANNERS, default=[*PLANNERS])
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for a problem (30)")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread (default 1)")
    parser.add_argument("--report", action="store_true", help="only tables and picture")


def run(options: Any) -> str:
    """Runs the problems; all tables."""
    file = (options.write or RESULTS / "plan").with_suffix(".json")
    some = options.near_ends or options.unsolved
    if some and options.write:
        raise Failed("--write keeps results of all problems, not of --near-ends or --unsolved")
    known, refused = plan_report.read(file), 0
    results = {} if some else known
    for robot in () if options.report else options.robots:
        folder, rows = problems.robot_folder(robot), []
        asked = list_problems(folder, robot, options.every)
        if options.near_ends:
            asked = problems.NEAR_ENDS.get(robot, [])
        if options.unsolved:
            asked = plan_report.unsolved(known, robot, options.planners)
        begin = partial(_begin, folder, robot, options.planners, options.limit)
        for done, found in enumerate(in_any_order(_solve, begin, asked, options.jobs), start=1):
            print(f"[{done}/{len(asked)}] {robot} {found[0]['type']}/{found[0]['index']:04d}")
            for row in found:
                if not row["solved"] or row["refused"]:
                    print(f"  {row['planner']}: {row['reason']}", flush=True)
            rows += found
            if options.write and (done % 100 == 0 or done == len(asked)):
                kept = plan_report.replaced(results, robot, rows, options)
                plan_report.write(kept, file)
        results = plan_report.replaced(results, robot, rows, options)
        refused += sum(row["refused"] for row in rows)
    if options.write:
        plan_report.draw(results, file.with_suffix(".png"))
    if refused:
        raise Failed(plan_report.markdown(results))
    return plan_report.markdown(results)
