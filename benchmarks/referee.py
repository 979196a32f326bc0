"""How many paths that planners call free touch something, and how deep?

Planning problems of MotionBenchMaker are solved by the library, by OMPL's RRT-Connect at three
resolutions, and by VAMP's, where these are installed; proven paths are blended and splined as in
`motors`; and paths of any other planner are read from a folder. All of them are looked at by a
judge that shares no code with the library or with a planner: kinematics of pinocchio, exact shapes,
coal. With a checkout of Continuous Collision Detection's "Sample Queries", `--queries`, its
vertex-face queries are asked, too.
"""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import face_queries, motors_report, problems, referee_report
from benchmarks.harness import RESULTS, Failed
from benchmarks.motors import ROBOTS, Mover
from benchmarks.planners import Planned, rrt_connect, vamp_rrt_connect
from benchmarks.pool import judge_all
from path_judge import Scene

RESOLUTIONS = (1.0, 0.5, 0.1)  # % of the extent of the joint space
PACKAGES = ("pin", "coal", "ompl", "vamp-planner")
REFUSED = 1e-4  # m: a path that the library calls free and is deeper is a wrong answer


class Referee(Mover):
    """Judges what several planners call free."""

    def __init__(self, folder: Path, name: str, limit: float, others: dict[str, Path]):
        super().__init__(folder, name, limit)
        self.others = others

    def move(self, which: tuple[str, int]) -> dict[str, Any]:
        """Clearances of what is called free [m], by what it is of."""
        problem = problems.read_problem(
            self.folder, self.name, *which, list(self.robot.joint_names)
        )
        row, scene = super().move(which), Scene.from_file(problem.scene)
        ways = {
            way: found["clearance"] for way, found in row["ways"].items() if found.get("free", True)
        }
        for name, planned in self._planned(problem, which).items():
            if planned.free and planned.path is not None:
                ways[name] = self._clearance(planned.path, scene)
        return {**row, "ways": ways}

    def _planned(self, problem: problems.Problem, which: tuple[str, int]) -> dict[str, Planned]:
        found: dict[str, Planned] = {}
        for percent in RESOLUTIONS if find_spec("ompl") else ():
            name = f"OMPL's RRT-Connect, {percent:g} %"
            found[name] = rrt_connect(problem, self.robot, self.limit, 0.01 * percent)
        if find_spec("vamp"):
            found["VAMP's RRT-Connect"] = vamp_rrt_connect(self.name, problem)
        for name, folder in self.others.items():
            file = folder / self.name / which[0] / f"{which[1]:04d}.npy"
            if file.exists():
                path = np.load(file, allow_pickle=False)
                found[name] = Planned(path, True, 0.0, 0)
        return found


def _folder_of(text: str) -> tuple[str, Path]:
    name, _, folder = text.rpartition("=")
    if not name or not Path(folder).is_dir():
        raise ValueError(text)
    return name, Path(folder)


def add_options(parser: Any) -> None:
    """Which problems and paths, and the queries."""
    parser.add_argument("--robots", nargs="*", choices=ROBOTS, default=ROBOTS, metavar="ROBOT")
    parser.add_argument("--every", type=int, default=27, metavar="N", help="take every n-th (27)")
    parser.add_argument("--limit", type=float, default=4.0, help="seconds for a plan (4)")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread (default 1)")
    parser.add_argument(
        "--paths",
        nargs="+",
        type=_folder_of,
        default=[],
        metavar="NAME=FOLDER",
        help="paths of other planners that call them free: FOLDER/ROBOT/TYPE/0001.npy, joint "
        "values (horizon, n_joints)",
    )
    parser.add_argument("--queries", type=Path, metavar="FOLDER", help="a checkout of the queries")
    parser.add_argument("--report", action="store_true", help="only the tables")


def run(options: Any) -> str:
    """Judges; all tables."""
    file = (options.write or RESULTS / "referee").with_suffix(".json")
    results = motors_report.read(file)
    for robot in () if options.report else options.robots:
        folder = problems.robot_folder(robot)
        asked = problems.list_problems(folder, robot, options.every)
        make = partial(Referee, folder, robot, options.limit, dict(options.paths))
        rows = judge_all(make, asked, options.jobs, referee_report.said)
        results = motors_report.replaced(results, robot, rows, options.every, PACKAGES)
    n_missed = 0
    if options.queries and not options.report:
        text, n_missed = face_queries.report(face_queries.read(options.queries))
        results[referee_report.QUERIES] = {"text": text, "rows": []}
    if options.write:
        motors_report.write(results, file)
    text = referee_report.markdown(results)
    if n_missed or referee_report.n_wrong(results, REFUSED):
        raise Failed(text)
    return text
