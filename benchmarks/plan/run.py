"""Solves problems and judges the paths, in processes of one thread each."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.plan.judge import Judge
from benchmarks.plan.planners import PLANNERS, Planned
from benchmarks.plan.problems import Problem, list_problems, read_problem
from benchmarks.plan.robots import ALWAYS_TOUCHING, load_robot
from benchmarks.plan.scene import Scene
from warp_collision import MeshWorld

# A path that the library calls free and the judge finds deeper than this is a wrong answer [m].
REFUSED = 1e-4
# How far ends may be from start and goal, and joints beyond their limits, for rounding's sake.
ROUNDING = 1e-5

Row = dict[str, Any]


class Bench:
    """A robot with its problems and its judge.

    Args:
        folder: of the robot, see `benchmarks.plan.data.robot_folder`.
        robot: its name.
        planners: which of `PLANNERS`.
        limit: seconds for a planner and a problem.
        seed: of both.
    """

    def __init__(self, folder: Path, robot: str, planners: Sequence[str], limit: float, seed: int):
        self.folder, self.name, self.planners = folder, robot, planners
        self.limit, self.seed = limit, seed
        self.robot = load_robot(folder, robot)
        self.judge = Judge(
            folder / f"{robot}_spherized.urdf",
            folder / f"{robot}.srdf",
            self.robot.joint_names,
            ALWAYS_TOUCHING.get(robot, ()),
        )

    def warm_up(self) -> None:
        """Compiles kernels, or loads them, which no time of a problem has in it."""
        self.solve(list_problems(self.folder, self.name)[0])

    def solve(self, which: tuple[str, int]) -> list[Row]:
        """A row for each planner: what it found, and what the judge says of it."""
        problem = read_problem(self.folder, self.name, *which, list(self.robot.joint_names))
        scene = Scene.from_file(problem.scene)
        rows = []
        for name in self.planners:
            world = MeshWorld.from_file(problem.scene, device="cpu")
            planned = PLANNERS[name](
                self.robot, world, problem.start, problem.goal, limit=self.limit, seed=self.seed
            )
            row = {"robot": self.name, "type": which[0], "index": which[1], "planner": name}
            rows.append(row | judged(planned, problem, scene, self.judge))
        return rows


def judged(planned: Planned, problem: Problem, scene: Scene, judge: Judge) -> Row:
    """What counts of a path."""
    ends_free = all(judge.judge(end[None], scene).free for end in (problem.start, problem.goal))
    row: Row = {
        "possible": ends_free,
        "solved": False,
        "refused": False,
        "seconds": round(planned.seconds, 4),
        "iterations": planned.iterations,
        "reason": planned.reason,
    }
    if planned.path is None:
        return row
    path = np.asarray(planned.path, dtype=np.float64)
    said = judge.judge(path, scene)
    ends = np.abs(path[[0, -1]] - [problem.start, problem.goal]).max()
    asked_for = np.stack([problem.start, problem.goal])
    low = np.minimum(judge.limits[:, 0], asked_for.min(0))
    high = np.maximum(judge.limits[:, 1], asked_for.max(0))
    beyond = np.maximum(low - path, path - high).max()
    row["solved"] = bool(planned.free and said.free and max(ends, beyond) <= ROUNDING)
    row["refused"] = bool(planned.free and said.clearance < -REFUSED)
    row["length"] = round(float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()), 4)
    row["clearance"] = round(said.clearance, 6)
    if not row["solved"] and not row["reason"]:
        row["reason"] = _reason(planned.free, said, ends, beyond)
    return row


def _reason(free: bool, said: Any, ends: float, beyond: float) -> str:
    if ends > ROUNDING:
        return f"an end is {ends:.1g} from where it should be"
    if beyond > ROUNDING:
        return f"a joint is {beyond:.1g} beyond its limits"
    if said.world <= said.self:
        where = f"{said.link} to {said.obstacle}"
    else:
        where = " to ".join(said.links)
    verdict = "no path proven free" if not free else "called free, but is not"
    return f"{verdict}: clearance of the best {1e3 * said.clearance:.2f} mm, {where}"


_bench: Bench | None = None


def _begin(settings: tuple[Any, ...]) -> None:
    global _bench
    torch.set_num_threads(1)
    _bench = Bench(*settings)
    _bench.warm_up()


def _solve(which: tuple[str, int]) -> list[Row]:
    assert _bench is not None
    return _bench.solve(which)


def run(
    folder: Path,
    robot: str,
    problems: Sequence[tuple[str, int]],
    *,
    planners: Sequence[str],
    limit: float,
    seed: int,
    jobs: int,
) -> Iterator[list[Row]]:
    """Solves problems in processes of one thread each; yields their rows as they come.

    Args:
        folder: of the robot.
        robot: its name.
        problems: which.
        planners: which of `PLANNERS`.
        limit: seconds for a planner and a problem.
        seed: of both planners.
        jobs: number of processes.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    settings = (folder, robot, tuple(planners), limit, seed)
    with context.Pool(jobs, initializer=partial(_begin, settings)) as pool:
        yield from pool.imap_unordered(_solve, problems)
