"""The command `warp-collision plan`: a free joint path, as a file and as a picture."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warp_collision.cli.common import (
    COLLISION,
    FREE,
    count,
    distance,
    find_device,
    load_world,
    start_warp,
)
from warp_collision.cli.terminal import print_text
from warp_collision.messages import escaped

if TYPE_CHECKING:
    from warp_collision import MeshWorld, RobotSpheres
    from warp_collision.planning import PlannedPaths

_MARGIN = 1e-3  # m, the tolerance of the certificate

_DESCRIPTION = """\
Plans a joint path for a robot from a start to a goal, proves it free of
obstacles and of the robot itself on all of its motion, and writes it.
"""

_EPILOG = """\
ROBOT is a URDF file. Its collision shapes are covered by spheres, if they are
not spheres; --spheres takes others. WORLD is a file as for `warp-collision
check`; the root of the robot stands in its origin. Start and goal are a value
for each joint that moves, in the order of the URDF [rad, prismatic: m],
separated by spaces or commas; after a comma any sign may follow:
--start=0,-0.785,0

The path is written as .npz: joints (waypoints, joints), joint_names, free,
clearance (certified: nowhere is the robot nearer to anything, in metres),
margin, length, iterations.

exit status:
  0 free, 1 no free path was found, 2 wrong usage or input, such as a start in
  collision, 3 an error of the program
"""


def add_plan(commands: Any) -> None:
    """Adds the command to a parser's commands."""
    parser = commands.add_parser(
        "plan",
        help="plan a robot's path among the obstacles in a file, certified free",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("robot", type=Path, metavar="ROBOT", help="the robot: a URDF file")
    parser.add_argument("world", type=Path, metavar="WORLD", help="the obstacles: a file")
    for name in ("start", "goal"):
        parser.add_argument(
            f"--{name}", nargs="+", required=True, metavar="Q", help=f"joint values of the {name}"
        )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("path.npz"),
        metavar="NPZ",
        help="the path to write (default path.npz)",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("path.png"),
        metavar="PNG",
        help="the picture to write (default path.png)",
    )
    parser.add_argument(
        "--no-picture", dest="draws", action="store_false", help="write the path only"
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--spheres", type=Path, metavar="YAML", help="the robot's spheres (cuRobo)")
    parser.add_argument("--srdf", type=Path, help="pairs of links that are not checked")
    parser.add_argument(
        "--package-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="where package:// names are looked for; may be repeated",
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail if WORLD has what a check does not see"
    )
    parser.add_argument(
        "--waypoints", type=count, default=32, metavar="N", help="of the path (default 32)"
    )
    parser.add_argument(
        "--clearance",
        type=distance,
        default=0.01,
        metavar="M",
        help="nearer to anything shortcuts do not go, in metres (default 0.01)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the random numbers (default 0)"
    )
    parser.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: cuda where there is one, else cpu)"
    )
    parser.set_defaults(run=_plan)


def _plan(options: argparse.Namespace) -> int:
    start, goal = (_values(name, getattr(options, name)) for name in ("start", "goal"))
    for name in ("output", "picture") if options.draws else ("output",):
        path = getattr(options, name)
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"--{name} must be in an existing folder, got {str(path)!r}")
    device = find_device(options.device)
    start_warp(device)
    import torch

    from warp_collision import RobotSpheres
    from warp_collision.cli.path_drawing import show_progress
    from warp_collision.planning import optimize_paths

    robot = RobotSpheres(
        options.robot,
        spheres=options.spheres,
        srdf=options.srdf,
        package_dirs=options.package_dir,
    )
    for name, values in (("start", start), ("goal", goal)):
        if len(values) != robot.n_joints:
            names = escaped(", ".join(robot.joint_names), 200)
            raise ValueError(
                f"--{name} must have {robot.n_joints} values, one for each of {names}, "
                f"got {len(values)}"
            )
    world = load_world(
        options.world, device, strict=options.strict, package_dirs=options.package_dir
    )
    with show_progress("planning (compiles the kernels the first time)"):
        found = optimize_paths(
            robot,
            world,
            torch.tensor([start], device=device),
            torch.tensor([goal], device=device),
            horizon=options.waypoints,
            margin=_MARGIN,
            preferred_clearance=options.clearance,
            generator=torch.Generator().manual_seed(options.seed),
        )
    if not found.free.item():
        print_text(_report(options, robot, found, []))
        return COLLISION
    written = [options.output]
    _save(options.output, robot, found)
    if options.draws and _draw(options, robot, world, found):
        written.append(options.picture)
    print_text(_report(options, robot, found, written))
    return FREE


def _values(name: str, words: list[str]) -> list[float]:
    texts = [text for word in words for text in word.split(",") if text.strip()]
    try:
        values = [float(text) for text in texts]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        raise ValueError(f"--{name} must be finite numbers, got {escaped(' '.join(words), 100)!r}")
    return values


def _save(path: Path, robot: RobotSpheres, found: PlannedPaths) -> None:
    import numpy as np

    with path.open("wb") as file:  # as it is: by name alone NumPy adds an ending
        np.savez(
            file,
            joints=found.joints[0].cpu().numpy(),
            joint_names=np.array(robot.joint_names),
            free=np.array(True),
            clearance=np.float32(found.clearance.item()),
            margin=np.float32(_MARGIN),
            length=np.float32(found.length.item()),
            iterations=np.int64(found.iterations.item()),
        )


def _report(
    options: argparse.Namespace, robot: RobotSpheres, found: PlannedPaths, written: list[Path]
) -> str:
    free = bool(found.free.item())
    if options.json:
        report = {
            "robot": str(options.robot),
            "world": str(options.world),
            "free": free,
            "clearance": found.clearance.item() if free else None,
            "length": found.length.item() if free else None,
            "iterations": found.iterations.item(),
            "joint_names": list(robot.joint_names),
            "joints": found.joints[0].tolist() if free else None,
            "written": [str(path) for path in written],
        }
        return json.dumps(report, indent=1, allow_nan=False)
    if not free:
        return f"no free path was found in {found.iterations.item()} iterations"
    lines = [
        f"certified free: nowhere nearer than {1000 * found.clearance.item():.1f} mm to an "
        "obstacle or to itself",
        f"{found.joints.shape[1]} waypoints, length {found.length.item():.3f} (straight "
        f"{_straight(found):.3f})",
    ]
    return "\n".join([*lines, *(f"written: {path}" for path in written)])


def _straight(found: PlannedPaths) -> float:
    return (found.joints[0, -1] - found.joints[0, 0]).norm().item()


def _draw(
    options: argparse.Namespace, robot: RobotSpheres, world: MeshWorld, found: PlannedPaths
) -> bool:
    """Draws the straight path, where it is another one, and the planned one."""
    import torch

    from warp_collision import joint_path_in_collision
    from warp_collision.cli.path_drawing import DrawnPath, draw, picture_verdict

    planned = found.joints[0]
    share = torch.linspace(0.0, 1.0, len(planned), device=planned.device)[:, None]
    straight = torch.lerp(planned[0], planned[-1], share)
    paths = [DrawnPath(planned, "planned", "planned: certified free", True)]
    collides = bool(joint_path_in_collision(straight[None], robot, world).any())
    if collides:
        paths.insert(0, DrawnPath(straight, "straight", "straight in joint space", False))
    state = "the straight path collides, the planned path is free"
    return draw(
        paths,
        robot,
        world,
        options.picture,
        title=f"{options.robot.stem}: {state if collides else 'the straight path is free'}",
        facts=f"{robot.n_spheres} spheres, {len(world.names())} obstacles of {options.world.name}",
        verdict=picture_verdict(found),
    )
