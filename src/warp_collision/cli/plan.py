"""The command `warp-collision plan`: a free joint path, as a file and as a picture."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from warp_collision.cli import common, plan_timed
from warp_collision.cli.options import (
    Options,
    RobotOptions,
    WorldOptions,
    add_robot_options,
    add_world_options,
)
from warp_collision.cli.terminal import print_json, print_text
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

    from warp_collision.cli.check_waypoints import Uncovered
    from warp_collision.planning import PlannedPaths
    from warp_collision.robot.checks.robot_scene import RobotScene

_MOST_NEAR = 5  # pairs that are named
_SAMPLES = 100  # random configurations, where no path was found

SUMMARY = "plan a robot's path among the obstacles in a file, certified free"
DESCRIPTION = """\
Plans a joint path for a robot from a start to a goal, and writes it. All of the
motion is proven: the robot's spheres stay free of obstacles and of each other.
With --timed it becomes a curve in time, within limits of the motors, and the
curve is proven.
"""

EPILOG = """\
ROBOT is a URDF file. Its collision shapes are covered by spheres, if they are
not spheres; --robot-spheres takes others. What `warp-collision robot --save
robot.yaml` wrote is read at once. The proof is one of the spheres: if they
leave out parts of the robot, the report says so. WORLD is a file as for
`warp-collision check`. Start and goal are a value for each joint that moves, in
the order of the URDF [rad, prismatic: m], separated by spaces or commas.

The path is written as .npz: joints (waypoints, joints), joint_names, free,
clearance (certified: nowhere is the robot nearer to anything, in metres),
world_clearance and self_clearance (to obstacles, and of links that move
relative to each other), has_preferred_clearance (whether that is what
--clearance wanted), margin (of the proof), length, iterations. With
--until first the clearances are NaN: `warp-collision check` computes them.
Files that exist are overwritten, and the report says so.

With --timed the file is .npz, .csv, or .json in the layout of
trajectory_msgs/JointTrajectory: times, joint values, velocities and
accelerations of points. Between them a controller that interpolates quintics
moves on the curve that was proven; `check` and `label` prove it as such.

exit status:
  0 free, 1 no free path was found, 2 wrong usage or input, such as a start in
  collision, 3 an error of the program
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("robot", type=Path, metavar="ROBOT", help="the robot: a file, see below")
    parser.add_argument("world", type=Path, metavar="WORLD", help="the obstacles: a file")
    for name in ("start", "goal"):
        parser.add_argument(
            f"--{name}", nargs="+", required=True, metavar="Q", help=f"joint values of the {name}"
        )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("path.npz"),
        metavar="NPZ",
        help="the path to write (default path.npz); an existing file is overwritten",
    )
    common.add_picture(parser, None, "that of -o, with .png", "write the path only")
    common.add_waypoints(parser)
    parser.add_argument(
        "--clearance",
        type=common.distance,
        default=0.01,
        metavar="M",
        help="clearance to keep where there is room, in metres (default 0.01); the report says if "
        "the path comes nearer",
    )
    parser.add_argument(
        "--margin",
        type=common.positive,
        default=1e-3,
        metavar="M",
        help="tolerance of the proof in metres (default 0.001): a path that comes nearer may be "
        "rejected; where start or goal are nearer it is less, and the report says so",
    )
    parser.add_argument(
        "--until",
        choices=("first", "converged"),
        default="converged",
        help="first: write the first free path, of which no clearance is computed; converged: "
        "improve it until nothing improves any more (default)",
    )
    parser.add_argument(
        "--max-seconds",
        type=common.distance,
        metavar="S",
        help="time limit; without one a problem that has no solution takes minutes",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the random numbers (default 0)"
    )
    plan_timed.add_timed(parser.add_argument_group("trajectories"))
    add_world_options(parser)
    add_robot_options(parser.add_argument_group("robots"))


@dataclass(frozen=True)
class PlanOptions(Options):
    """The options of `plan` that decide the path, and those of its report.

    Attributes:
        world: the obstacles.
        robot: the robot.
        timed: by which the path becomes a trajectory; None: it does not.
        waypoints: of the path.
        clearance: that is wanted [m].
        margin: of the proof [m].
        until: what is enough.
        max_seconds: the time limit.
        seed: of the random numbers.
        output: where the path is written.
        picture: where it is drawn.
        draws: whether it is.
        json: whether the report is printed as JSON.
    """

    world: WorldOptions
    robot: RobotOptions
    timed: plan_timed.TimedOptions | None
    waypoints: int
    clearance: float
    margin: float
    until: Literal["first", "converged"]
    max_seconds: float | None
    seed: int
    output: Path
    picture: Path
    draws: bool
    json: bool


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    ends = {
        name: common.numbers(name, getattr(options, name), finite=True)
        for name in ("start", "goal")
    }
    picture = options.picture or options.output.with_suffix(".png")
    if options.draws and picture == options.output:
        raise ValueError(f"--picture must be another file than --output, got {str(picture)!r}")
    asked = PlanOptions.of(
        options,
        picture=picture,
        world=WorldOptions.of(options),
        robot=RobotOptions.of(options),
        timed=plan_timed.TimedOptions.optional(options),
    )
    files = common.OutputFiles(output=asked.output, picture=asked.picture)
    return _plan(asked, ends, files, common.start(options.device))


def _plan(
    options: PlanOptions,
    ends: dict[str, list[float]],
    files: common.OutputFiles,
    device: torch.device,
) -> int:
    """Plans, writes and reports; returns the exit status."""
    import torch

    from warp_collision.cli.check_waypoints import uncovered
    from warp_collision.cli.path_drawing import show_progress
    from warp_collision.planning import optimize_paths

    joint_names = options.robot.joint_names
    for name, values in ends.items():
        if len(values) != len(joint_names):
            names = escaped(", ".join(joint_names), 200)
            raise ValueError(
                f"--{name} must have {len(joint_names)} values, one for each of {names}, "
                f"got {len(values)}"
            )
    scene = options.robot.load_scene(device, options.world)
    timed, trajectory = options.timed, None
    limits = {} if timed is None else timed.of_robot(scene.robot)
    with show_progress("planning (compiles the kernels the first time)"):
        found = optimize_paths(
            torch.tensor([ends["start"]], device=device),
            torch.tensor([ends["goal"]], device=device),
            scene.robot,
            scene.world,
            until=options.until,
            horizon=options.waypoints,
            margin=options.margin,
            preferred_clearance=options.clearance,
            max_seconds=options.max_seconds,
            generator=torch.Generator().manual_seed(options.seed),
            **scene.placed,
        )
    is_free = bool(found.free.item())
    if is_free and timed is not None:
        with show_progress("timing"):
            trajectory = plan_timed.Trajectory.of(
                scene, found, limits, margin=options.margin, period=timed.period
            )
        is_free = trajectory.is_free
    if is_free:
        _save(options.output, scene, found, trajectory)
        files.add(options.output)
        if options.draws and _draw(options, scene, found, trajectory):
            files.add(options.picture)
    left_out = uncovered(scene.robot)
    if options.json:
        told = {} if trajectory is None else {"trajectory": trajectory.summary()}
        summary = _summary(options, scene, found, left_out)
        print_json({**summary, **told, **files.summary()})
    else:
        told = [] if trajectory is None else trajectory.lines()
        lines = [*_report(options, scene, found, left_out), *told, *files.lines()]
        print_text("\n".join(lines))
    return common.FREE if is_free else common.COLLISION


def _save(
    path: Path, scene: RobotScene, found: PlannedPaths, trajectory: plan_timed.Trajectory | None
) -> None:
    import numpy as np

    if trajectory is not None:
        planned = {"waypoints": found.joints[0].cpu().numpy(), "margin": found.margin.item()}
        trajectory.save(path, scene, planned)
        return
    with path.open("wb") as file:  # as it is: by name alone NumPy adds an ending
        np.savez(
            file,
            joints=found.joints[0].cpu().numpy(),
            joint_names=np.array(scene.robot.joint_names),
            free=np.array(True),
            clearance=np.float32(found.clearance.item()),
            world_clearance=np.float32(found.world_clearance.item()),
            self_clearance=np.float32(found.self_clearance.item()),
            has_preferred_clearance=np.array(found.has_preferred_clearance.item()),
            margin=np.float32(found.margin.item()),
            length=np.float32(found.length.item()),
            iterations=np.int64(found.iterations.item()),
        )


def _summary(
    options: PlanOptions, scene: RobotScene, found: PlannedPaths, left_out: Uncovered
) -> dict[str, Any]:
    free = bool(found.free.item())
    return {
        "robot": str(options.robot.robot),
        "world": str(options.world.world),
        "free": free,
        **{
            name: getattr(found, name).item() if free else None
            for name in ("clearance", "world_clearance", "self_clearance")
        },
        "margin": found.margin.item(),
        "near_ends": [near._asdict() for near in found.near_ends],
        "preferred_clearance": options.clearance,
        "has_preferred_clearance": bool(found.has_preferred_clearance.item()),
        "length": found.length.item() if free else None,
        "iterations": found.iterations.item(),
        "joint_names": list(scene.robot.joint_names),
        "joints": found.joints[0].tolist() if free else None,
        **left_out.summary(),
    }


def _report(
    options: PlanOptions, scene: RobotScene, found: PlannedPaths, left_out: Uncovered
) -> list[str]:
    if not found.free.item():
        failed = f"no free path was found in {found.iterations.item()} iterations"
        if options.max_seconds is not None:
            failed += f", within --max-seconds {options.max_seconds:g}"
        ways = "a smaller --margin, or --ignore for a contact that is wanted, may help"
        advice = (f"note: {line}" for line in [*_advice(scene), ways])
        return [failed, *_near_ends(options, found), *advice]
    contacts = ", contacts of --ignore aside" if options.robot.ignore else ""
    touches = "touch no obstacle and, where they move, not each other"
    if options.until == "converged":
        touches = (
            f"come nowhere nearer than {1000 * found.clearance.item():.1f} mm to an obstacle or, "
            "where they move, to each other"
        )
    lines = [f"certified free: the robot's spheres {touches}{contacts}"]
    if not found.has_preferred_clearance.item():
        lines.append(
            f"the wanted clearance of {1000 * options.clearance:.1f} mm was not reached: nearest "
            f"are {_nearest_on(scene, found.joints, found.margin.item())}"
        )
    lines += _near_ends(options, found)
    straight = (found.joints[0, -1] - found.joints[0, 0]).norm().item()
    return [
        *lines,
        *(f"note: {line}" for line in left_out.lines()),
        f"{found.joints.shape[1]} waypoints, length {found.length.item():.3f} (straight "
        f"{straight:.3f})",
    ]


def _nearest_on(scene: RobotScene, joints: torch.Tensor, tolerance: float) -> str:
    """The nearest two bodies on a path (1, horizon, n_joints), and where, in words."""
    from warp_collision import joint_path_clearance

    robot, world = scene.robot, scene.world
    found = joint_path_clearance(joints, robot, world, tolerance=tolerance, **scene.placed)
    links = robot.sphere_links
    segment, own = int(found.world_upper.argmin()), int(found.self_upper.argmin())
    if found.self_upper[0, own] < found.world_upper[0, segment]:
        segment = own
        two = found.self_sphere, found.self_other
        first, second = (links[int(sphere[0, own])] for sphere in two)
    else:
        first = links[int(found.sphere[0, segment])]
        second = world.names()[int(found.obstacle[0, segment])]
    return (
        f"{escaped(first, 40)} and {escaped(second, 40)}, between waypoints {segment} and "
        f"{segment + 1}"
    )


def _near_ends(options: PlanOptions, found: PlannedPaths) -> list[str]:
    """What is nearer than the margin at start and goal."""
    ends: dict[str, list[str]] = {}
    for near in found.near_ends:
        ends.setdefault(str(near), []).append(near.end)
    if not ends:
        return []
    named = [f"{near} ({' and '.join(where)})" for near, where in ends.items()]
    more = f"; and {len(named) - _MOST_NEAR} more" if len(named) > _MOST_NEAR else ""
    return [
        f"note: nearer than the margin of {1000 * options.margin:.3g} mm, so that the path is "
        f"proven with one of {1000 * found.margin.item():.3g} mm: "
        f"{'; '.join(named[:_MOST_NEAR])}{more}"
    ]


def _advice(scene: RobotScene) -> list[str]:
    """What to do where the robot touches itself at nearly all random joint values."""
    from warp_collision.cli.check_waypoints import often_with_itself
    from warp_collision.robot.model.sampled_pairs import random_joints

    joints = random_joints(scene.robot.joint_limits, _SAMPLES, None)[None].to(scene.world.device)
    return often_with_itself(scene.robot.report(joints, scene.world, **scene.placed), _SAMPLES)


def _draw(
    options: PlanOptions,
    scene: RobotScene,
    found: PlannedPaths,
    trajectory: plan_timed.Trajectory | None,
) -> bool:
    """Draws the straight path, where it is another one, and the motion that is written."""
    from warp_collision import joint_path_in_collision
    from warp_collision.cli.path_drawing import draw
    from warp_collision.planning.descent import straight_lines

    planned = found.joints[0]
    straight = straight_lines(planned[:1], planned[-1:], len(planned))[0]
    paths = {"planned": planned if trajectory is None else trajectory.written}
    hit = joint_path_in_collision(straight[None], scene.robot, scene.world, **scene.placed)
    collides = bool(hit.any())
    if collides:
        paths = {"straight": straight, **paths}
    state = "the straight path collides, the planned path is free"
    obstacles = f"{len(scene.world.names())} obstacles of {options.world.world.name}"
    return draw(
        paths,
        scene,
        options.picture,
        title=f"{options.robot.robot.stem}: {state if collides else 'the straight path is free'}",
        facts=f"{scene.robot.n_spheres} spheres, {obstacles}",
    )
