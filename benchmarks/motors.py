"""What is done with a proven path before motors move it: does it still touch nothing, and how long?

Paths of `optimize_paths` for planning problems of MotionBenchMaker become motions in several ways.
An independent judge looks at each motion: kinematics of pinocchio, exact shapes, coal, and for the
limits SciPy's polynomials at 10 kHz. Limits are those of the robot's data sheet, with the
accelerations and jerks of cuRobo's `franka.yml`.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.interpolate import BPoly, CubicSpline

from benchmarks import motors_report, problems
from benchmarks.harness import RESULTS, Failed
from benchmarks.planners import MARGIN, optimize
from benchmarks.pool import judge_all
from benchmarks.problems import list_problems
from path_judge import Judge, Scene
from warp_collision import MeshWorld
from warp_collision.planning import TimedPaths, timed
from warp_collision.planning.rest_to_rest import corners_of, unit_motion
from warp_collision.robot import JointCurve, RobotSpheres

ROBOTS = ("panda", "ur5")
# Of each joint [rad/s]: data sheets of Franka Robotics and Universal Robots.
VELOCITY = {
    "panda": np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61]),
    "ur5": np.full(6, np.pi),
}
ACCELERATION, JERK = 15.0, 500.0  # rad/s^2, rad/s^3
BLEND = 0.1  # rad, by which blends may leave corners, as MoveIt's time parametrization does
REFUSED = 1e-4  # m: a curve that is called free and is deeper is a wrong answer
EXCEEDED = 1e-6  # relative, by which a curve may exceed a limit
_SAMPLES = 500  # of splines
_PERIOD, _CLOCK = 1e-3, 1e-4  # s, of the joint values that are judged, and of the limits


def blended(corners: np.ndarray, most: float) -> np.ndarray:
    """Corners replaced by parabolas that come as near to them as `most` [rad], 30 points each."""
    found = [corners[:1]]
    s = np.linspace(0.0, 1.0, 30)[:, None]
    for before, corner, after in zip(corners[:-2], corners[1:-1], corners[2:], strict=True):
        ways = before - corner, after - corner
        lengths = [float(np.linalg.norm(way)) for way in ways]
        u, v = (way / length for way, length in zip(ways, lengths, strict=True))
        # Halfway the parabola is |u + v| / 4 of its reach from the corner.
        reach = 4.0 * most / max(float(np.linalg.norm(u + v)), 1e-9)
        reach = min(reach, *(0.5 * length for length in lengths))
        begin, end = corner + reach * u, corner + reach * v
        found.append((1 - s) ** 2 * begin + 2 * s * (1 - s) * corner + s**2 * end)
    return np.concatenate([*found, corners[-1:]])


def splined(waypoints: np.ndarray) -> np.ndarray:
    """Samples of the cubic spline through waypoints, its parameter their distance."""
    steps = np.linalg.norm(np.diff(waypoints, axis=0), axis=1)
    waypoints = waypoints[np.concatenate(([True], steps > 1e-9))]
    at = np.concatenate(([0.0], np.cumsum(steps[steps > 1e-9])))
    if len(waypoints) < 3:
        return waypoints
    return CubicSpline(at, waypoints, bc_type="clamped")(np.linspace(0.0, at[-1], _SAMPLES))


def fastest(path: np.ndarray, velocity: np.ndarray) -> float | None:
    """Time of TOPP-RA along samples, without a limit of the jerk [s]; None where it is missing."""
    try:
        import toppra
        from toppra import algorithm, constraint
    except ImportError:
        return None
    toppra.setup_logging("CRITICAL")
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    path, steps = path[np.concatenate(([True], steps > 1e-9))], steps[steps > 1e-9]
    at = np.concatenate(([0.0], np.cumsum(steps))) / steps.sum()
    most = np.full(len(velocity), ACCELERATION)
    limits = [
        constraint.JointVelocityConstraint(np.stack((-velocity, velocity), axis=1)),
        constraint.JointAccelerationConstraint(np.stack((-most, most), axis=1)),
    ]
    spline = toppra.SplineInterpolator(at, path)
    found = algorithm.TOPPRA(limits, spline).compute_trajectory()
    return None if found is None else float(found.duration)


def alone(start: np.ndarray, goal: np.ndarray, velocity: np.ndarray) -> float:
    """The time that the slowest joint needs from start to goal, with nothing in its way [s]."""
    ways = np.abs(goal - start)
    return max(
        sum(unit_motion(v / way, ACCELERATION / way, JERK / way)[0])
        for way, v in zip(ways, velocity, strict=True)
        if way > 0.0
    )


def exceeded(curve: JointCurve, velocity: np.ndarray) -> float:
    """By how much samples of a curve exceed a limit, relative; below 0 where they keep all."""
    coefficients = np.swapaxes(curve.coefficients[0].numpy(), 0, 1)
    motion = BPoly(coefficients, curve.times[0].numpy())
    times = np.append(np.arange(motion.x[0], motion.x[-1], _CLOCK), motion.x[-1])
    shares = [
        (np.abs(motion.derivative(order)(times)) / limit).max()
        for order, limit in ((1, velocity), (2, ACCELERATION), (3, JERK))
    ]
    return float(max(shares)) - 1.0


class Mover:
    """A robot with its judge."""

    def __init__(self, folder: Path, name: str, limit: float):
        self.folder, self.name, self.limit = folder, name, limit
        self.robot: RobotSpheres = problems.load_robot(folder, name)
        files = folder / f"{name}_spherized.urdf", folder / f"{name}.srdf"
        touching = problems.ALWAYS_TOUCHING.get(name, ())
        self.judge = Judge(*files, self.robot.joint_names, touching)

    def move(self, which: tuple[str, int]) -> dict[str, Any]:
        """What became of a problem: each way its clearance and time."""
        names = list(self.robot.joint_names)
        problem = problems.read_problem(self.folder, self.name, *which, names)
        scene, velocity = Scene.from_file(problem.scene), VELOCITY[self.name]
        row: dict[str, Any] = {"type": which[0], "index": which[1], "ways": {}}
        for until in ("converged", "first"):
            planned = optimize(problem, self.robot, self.limit, until)  # pyright: ignore[reportArgumentType]
            if planned.path is None or not planned.free:
                row["reason"] = planned.reason or "no path proven free"
                return row
            path = np.asarray(planned.path, dtype=np.float64)
            row["ways"][f"path, {until}"] = {"clearance": self._clearance(path, scene)}
            corners = corners_of(path)
            if until == "converged":
                row["alone"] = round(alone(path[0], path[-1], velocity), 6)
                row["planning"] = round(planned.seconds, 4)
                row["ways"] |= self._own(problem, planned.path, scene)
            for way, motion in {
                "blend": blended(corners, BLEND),
                "spline": splined(path),
                "corner spline": splined(corners),
            }.items():
                seconds = fastest(motion, velocity) if until == "converged" else None
                row["ways"][f"{way}, {until}"] = {
                    "clearance": self._clearance(motion, scene),
                    "seconds": seconds and round(seconds, 4),
                }
        return row

    def _own(self, problem: problems.Problem, path: np.ndarray, scene: Scene) -> dict[str, Any]:
        """The library's curves, with and without stops at corners."""
        world = MeshWorld.from_file(problem.scene, device="cpu")
        given = torch.from_numpy(path)[None]
        velocity, timings = VELOCITY[self.name], {}
        # Nothing of the judge comes between: after it the processor's caches hold other things.
        for way, iterations in (("stops", 0), ("curve", 60)):
            begin = time.process_time()
            found: TimedPaths = timed(
                given,
                self.robot,
                world,
                **{"velocity": velocity, "acceleration": ACCELERATION, "jerk": JERK},
                **{"margin": MARGIN, "max_iterations": iterations},
            )
            timings[way] = found, time.process_time() - begin
        ways = {}
        for way, (found, took) in timings.items():
            _, samples = found.curve.sample(_PERIOD)
            ways[way] = {
                "clearance": self._clearance(samples[0].numpy(), scene),
                "seconds": round(found.duration.item(), 6),
                "free": bool(found.free),
                "exceeded": exceeded(found.curve, velocity),
                "timing": round(took, 5),
            }
        return ways

    def _clearance(self, motion: np.ndarray, scene: Scene) -> float:
        return round(self.judge.judge(motion, scene).clearance, 6)


def _said(row: dict[str, Any]) -> str:
    return row.get("reason") or f"{row['ways']['curve']['seconds']:.3f} s"


def add_options(parser: Any) -> None:
    """Which problems, and for how long."""
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS, metavar="ROBOT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every n-th problem")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for a plan (30)")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread (default 1)")
    parser.add_argument("--report", action="store_true", help="only tables and picture")


def run(options: Any) -> str:
    """Runs the problems; all tables."""
    file = (options.write or RESULTS / "motors").with_suffix(".json")
    results = motors_report.read(file)
    for robot in () if options.report else options.robots:
        folder = problems.robot_folder(robot)
        asked = list_problems(folder, robot, options.every)
        before = results

        def kept(rows: list[dict[str, Any]], robot: str = robot, before: Any = before) -> None:
            nonlocal results
            results = motors_report.replaced(before, robot, rows, options.every)
            if options.write:
                motors_report.write(results, file)

        make = partial(Mover, folder, robot, options.limit)
        kept(judge_all(make, asked, options.jobs, _said, kept))
    if options.write:
        motors_report.draw(results, file.with_suffix(".png"))
    text = motors_report.markdown(results)
    if motors_report.n_wrong(results, REFUSED, EXCEEDED):
        raise Failed(text)
    return text
