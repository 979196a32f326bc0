"""What commands share: statuses, options, and what these name: a device, obstacles, a robot, files.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warp_collision.cli.terminal import StatusLine, print_text
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

    from warp_collision import MeshWorld, RobotSpheres
    from warp_collision.labeling import PathFiles
    from warp_collision.robot import JointCurve, SelfCollisionPairs
    from warp_collision.robot.checks.robot_scene import RobotScene
    from warp_collision.robot.model.robot_description import RobotJoints

FREE, COLLISION, BAD_INPUT, INTERNAL_ERROR = 0, 1, 2, 3  # exit statuses
INTERRUPTED = 130  # as shells have it for Ctrl+C

_POSE = ("X", "Y", "Z", "QW", "QX", "QY", "QZ")
_ARRAYS = (".npy", ".npz")
UNSEEN = " (never seen)"  # ends the name of what of a map no camera saw
_SAVED = (".yaml", ".yml")  # endings of robots that were saved
# What a saved robot has already, and what else is of a robot alone.
_OF_MODELS = ("srdf", "group", "state", "robot_spheres", "lock_joint", "shapes", "save_spheres")
_OF_ROBOTS = (*_OF_MODELS, "no_self_collision", "exact", "ignore", "base_pose")


def count(text: str) -> int:
    """An argument that is a whole number of at least 2."""
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 2, got {text!r}")
    return int(text)


def distance(text: str) -> float:
    """An argument that is a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return value


def positive(text: str) -> float:
    """An argument that is a number above 0."""
    value = distance(text)
    if value == 0.0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def start(name: str | None) -> torch.device:
    """Starts Warp on the device of a name, by default a GPU if there is one, else the CPU.

    Without Warp's greeting and, on the CPU, without its warning of a missing GPU.
    """
    import warp as wp

    from warp_collision import devices
    from warp_collision.launching.warp_runtime import silence_warp

    try:
        device = devices.canonical_device(devices.preferred_device() if name is None else name)
    except (RuntimeError, ValueError):  # torch knows no such type of device, or there is none
        found = devices.describe_gpus()
        raise ValueError(f"--device must be cpu or cuda ({found}), got {name!r}") from None
    silence_warp()
    if device.type != "cpu":
        wp.init()
        return device
    # Warp's native library writes the warning, whatever the log level, so the file is set aside.
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        wp.init()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    return device


def add_world_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command that reads a file of obstacles."""
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: cuda where there is one, else cpu)"
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail if WORLD has what a check does not see"
    )
    parser.add_argument(
        "--up", choices=("y", "z"), help="axis of a mesh file that points up (default z, glTF y)"
    )
    parser.add_argument(
        "--scale", type=float, metavar="M", help="metres in a unit of a mesh file: 0.001 for mm"
    )
    add_package_dirs(parser)


def _column(text: str) -> tuple[str, str]:
    """An argument ROLE=NAME: what a column of a table holds."""
    role, _, name = text.partition("=")
    if not role or not name:
        raise argparse.ArgumentTypeError(f"must be ROLE=NAME, got {text!r}")
    return role, name


def add_column(parser: Any) -> None:
    """Adds what the columns of tables hold."""
    parser.add_argument(
        "--column",
        type=_column,
        action="append",
        default=[],
        metavar="ROLE=NAME",
        help="the column of id, path, world, base_pose or env; may be repeated",
    )


def add_package_dirs(parser: Any) -> None:
    """Adds the folders of packages."""
    parser.add_argument(
        "--package-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="where package:// names in a URDF file are looked for; may be repeated",
    )


def add_robot_model(group: Any) -> None:
    """Adds the options of what a robot is read from."""
    group.add_argument("--srdf", type=Path, help="pairs of links that need no check")
    group.add_argument(
        "--group",
        metavar="NAME",
        help="the planning group of the SRDF whose joints have values; others are held",
    )
    group.add_argument(
        "--state",
        metavar="NAME",
        help="the state of the SRDF at which joints outside the group are held (default: at 0, or "
        "in the middle of limits without 0)",
    )
    group.add_argument(
        "--robot-spheres",
        type=Path,
        metavar="YAML",
        help="a robot file of cuRobo with the spheres (default: those of the URDF, or fitted ones)",
    )
    group.add_argument(
        "--lock-joint",
        type=_lock,
        action="append",
        metavar="NAME=VALUE",
        help="a joint that stays at a value [rad, prismatic: m] and is left out of joint values; "
        "may be repeated",
    )
    group.add_argument(
        "--shapes",
        choices=("collision", "visual"),
        help="with visual, links without collision shapes are covered by their visual ones",
    )
    group.add_argument(
        "--save-spheres",
        type=Path,
        metavar="YAML",
        help="write the robot's spheres, which --robot-spheres reads instead of fitting them again",
    )


def add_optional_robot(group: argparse._ArgumentGroup, use: str) -> None:
    """Adds a robot that may be given, and what it is for, with its options."""
    group.add_argument(
        "--robot",
        type=Path,
        metavar="FILE",
        help=f"{use}: a URDF, or what `warp-collision robot URDF --save robot.yaml` wrote",
    )
    add_robot_options(group)


def require_robot_for_options(options: argparse.Namespace, *more: str) -> None:
    """Requires that no option of robots is given, where there is no robot."""
    for name in (*_OF_ROBOTS, *more):
        if options.robot is None and getattr(options, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} must be given with --robot alone")


def add_robot_options(group: argparse._ArgumentGroup) -> None:
    """Adds the options of a robot; each is None if it is not given."""
    add_robot_model(group)
    group.add_argument(
        "--no-self-collision",
        action="store_true",
        default=None,
        help="the robot is not checked with itself",
    )
    group.add_argument(
        "--exact",
        action="store_true",
        default=None,
        help="where spheres touch an obstacle, the convex pieces of the link decide: a gripper may "
        "be a millimetre above a table (default: spheres alone)",
    )
    group.add_argument(
        "--ignore",
        nargs=2,
        action="append",
        metavar=("LINK", "OTHER"),
        help="a contact that is wanted, of a link and an obstacle or another link; may be repeated",
    )
    group.add_argument(
        "--base-pose",
        nargs=7,
        type=float,
        metavar=_POSE,
        help="where the root link stands in the world (default: in the origin)",
    )


def _lock(text: str) -> tuple[str, float]:
    """An argument NAME=VALUE."""
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        name, number = "", 0.0
    if not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE with a number, got {text!r}")
    return name, number


def add_waypoints(parser: argparse.ArgumentParser) -> None:
    """Adds the number of waypoints of a path."""
    parser.add_argument(
        "--waypoints", type=count, default=32, metavar="N", help="of the path (default 32)"
    )


def add_picture(parser: argparse.ArgumentParser, default: str, otherwise: str) -> None:
    """Adds the file of a picture, and the flag for no picture."""
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path(default),
        metavar="PNG",
        help=f"the picture to write (default {default}); an existing file is overwritten",
    )
    parser.add_argument("--no-picture", dest="draws", action="store_false", help=otherwise)


def load_world(options: argparse.Namespace, device: torch.device) -> MeshWorld:
    """The obstacles; parts that a check does not see are printed as a warning."""
    from warp_collision import MeshWorld

    with warnings_printed():
        world = MeshWorld.from_file(
            options.world,
            device,
            strict=options.strict,
            package_dirs=options.package_dir,
            up=options.up,
            scale=options.scale,
        )
    unknown = vars(options).get("unknown")
    if unknown is not None:
        _take_unknown(world, unknown)
    return world


@contextlib.contextmanager
def warnings_printed() -> Iterator[None]:
    """Prints warnings as lines, at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print_text(f"warp-collision: warning: {warning.message}", sys.stderr)


def _take_unknown(world: MeshWorld, unknown: Any) -> None:
    """Makes the voxels of maps that no camera saw occupied, free, or obstacles of their own."""
    from warp_collision import VoxelGrid

    for name, obstacle in world.obstacles().items():
        grid = obstacle.geometry
        if not isinstance(grid, VoxelGrid) or grid.unknown_mask is None:
            continue
        world.update(name, grid.seen if unknown == "report" else grid.taken(unknown))
        if unknown == "report":
            state = {"enabled": obstacle.enabled, "padding": obstacle.padding}
            world.add(f"{name}{UNSEEN}", grid.unseen, obstacle.pose, **state)


def load_joints(options: argparse.Namespace, path: Path) -> torch.Tensor | JointCurve:
    """Joint values (batch, horizon, n_joints) of a file, or the curve of a trajectory."""
    from warp_collision import io
    from warp_collision.formats.files import existing_file
    from warp_collision.io.trajectories import is_trajectory
    from warp_collision.robot import load_trajectory

    names = load_joint_names(options)
    if is_trajectory(existing_file(path)):
        return load_trajectory(path, names)
    return io.load_joints(path, len(names), joint_names=names)


def list_paths(options: argparse.Namespace) -> PathFiles:
    """The paths of a command, of spheres or of a robot."""
    from warp_collision.labeling import PathFiles

    names = None if options.robot is None else load_joint_names(options)
    return PathFiles(options.paths, columns=dict(options.column), joint_names=names)


def load_scene(
    options: argparse.Namespace, device: torch.device, world: MeshWorld | None = None
) -> RobotScene:
    """The robot among the obstacles of a world, by default of the one that is named."""
    import torch

    from warp_collision import MeshWorld, validate
    from warp_collision.robot.checks.robot_scene import RobotScene

    pose = None
    if options.base_pose is not None:
        pose = validate.check_pose("--base-pose", options.base_pose).to(device, torch.float32)
    # What is wrong with files and options is told before spheres are fitted.
    load_joint_names(options)
    require_not_read(options, "save_spheres")
    if world is None:
        is_folder = options.world.is_dir()  # each path names its own
        world = MeshWorld(device=device) if is_folder else load_world(options, device)
    robot = load_robot(options)
    given = [(link, other) for link, other in options.ignore or ()]
    own = [pair for pair in given if pair[1] in robot.link_names and pair[1] not in world.names()]
    pairs: bool | SelfCollisionPairs = not options.no_self_collision
    if own and pairs:
        pairs = robot.self_collision_pairs(ignore=own)
    ignored = tuple(pair for pair in given if pair not in own)
    scene = RobotScene(robot, world, pose, ignored, pairs)
    return scene._replace(shapes="exact") if options.exact else scene


def require_not_read(options: argparse.Namespace, name: str) -> None:
    """Requires a file to write, if there is one, in an existing folder, and no file to read."""
    wanted: Path | None = getattr(options, name)
    OutputFiles(**{name: wanted})
    read = options.robot, options.world, options.srdf, options.robot_spheres
    if wanted and wanted.resolve() in [path.resolve() for path in read if path is not None]:
        option, path = name.replace("_", "-"), escaped(str(wanted))
        raise ValueError(f"--{option} must not be a file that is read, got {path}")


def load_joint_names(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the robot's joint values, in order, without fitting spheres."""
    return _read_robot(options).joint_names


def _read_robot(options: argparse.Namespace) -> RobotSpheres | RobotJoints:
    """A robot that was saved, or the files of another before spheres are fitted; read once."""
    if not hasattr(options, "read_robot"):
        from warp_collision import RobotSpheres
        from warp_collision.robot.model.robot_description import read_robot_joints
        from warp_collision.robot.model.srdf import Srdf

        with _swapped_files_told(options):
            if _is_saved(options):
                saved = RobotSpheres.from_file(options.robot, package_dirs=options.package_dir)
                options.read_robot = saved
            else:
                srdf = Srdf(options.srdf, options.group, options.state)
                options.read_robot = read_robot_joints(
                    *(options.robot, options.robot_spheres, options.package_dir),
                    *(_locks(options), srdf, options.shapes or "collision"),
                )
    return options.read_robot


def _is_saved(options: argparse.Namespace) -> bool:
    """Whether the robot is one that was saved, by its ending; it comes without other files."""
    if options.robot.suffix.lower() not in _SAVED:
        return False
    for name in _OF_MODELS:
        if getattr(options, name) is not None:
            option, path = name.replace("_", "-"), escaped(str(options.robot))
            raise ValueError(f"--{option} must be given with a URDF, got the saved robot {path}")
    return True


def load_robot(options: argparse.Namespace) -> RobotSpheres:
    """The robot; its spheres are written where that is wanted."""
    from warp_collision import RobotSpheres
    from warp_collision.robot.model.robot_description import with_spheres

    read = _read_robot(options)
    if isinstance(read, RobotSpheres):
        return read
    with _swapped_files_told(options), StatusLine() as line:

        def progress(link: str, number: int, count: int) -> None:
            line.write(
                f"warp-collision: fitting spheres, link {number} of {count}: {escaped(link, 40)}"
            )

        robot = RobotSpheres._described(with_spheres(read, progress=progress))
    if options.save_spheres is not None:
        robot.save_spheres(options.save_spheres)
        path = escaped(str(options.save_spheres))
        print_text(f"warp-collision: the robot's spheres were written to {path}", sys.stderr)
    return robot


def _locks(options: argparse.Namespace) -> dict[str, float]:
    locks: dict[str, float] = {}
    for name, value in options.lock_joint or ():
        if name in locks:
            raise ValueError(f"--lock-joint must name a joint once, got {escaped(name)!r} twice")
        locks[name] = value
    return locks


@contextlib.contextmanager
def _swapped_files_told(options: argparse.Namespace) -> Iterator[None]:
    """An error says so where the files of the robot and the world look swapped."""
    try:
        yield
    except ValueError as error:
        is_robot = options.robot.suffix.lower() in (".urdf", ".xml")
        world = options.world
        if world is not None and world.suffix.lower() == ".urdf" and not is_robot:
            raise ValueError(f"ROBOT and WORLD look swapped: {error}") from error
        raise


def require_order(options: argparse.Namespace) -> None:
    """Requires that the files of `check` do not look swapped."""
    first, second = (path.suffix.lower() in _ARRAYS for path in (options.world, options.paths[0]))
    if first and not second:
        raise ValueError(
            f"WORLD must come before PATHS, which look swapped: got {str(options.world)!r} "
            f"before {str(options.paths[0])!r}"
        )


class OutputFiles:
    """Files that a command writes, and the report on them.

    Args:
        files: by option, None for one that is not wanted. Each must be in an existing folder; one
            that exists is overwritten.
    """

    def __init__(self, **files: Path | None):
        wanted = {name: path for name, path in files.items() if path is not None}
        for name, path in wanted.items():
            if not path.absolute().parent.is_dir():
                raise FileNotFoundError(
                    f"--{name.replace('_', '-')} must be in an existing folder, got {str(path)!r}"
                )
        self._existed = {path: path.exists() for path in wanted.values()}
        self._written: list[Path] = []

    def add(self, path: Path) -> None:
        """Records a file as written."""
        self._written.append(path)

    def left(self) -> list[Path]:
        """Files that existed before and have not been written."""
        return [path for path, was in self._existed.items() if was and path not in self._written]

    def lines(self) -> list[str]:
        """A line for each file that was written, overwritten or left as it was."""
        found = [
            f"{'overwrote' if self._existed[path] else 'written'}: {escaped(str(path))}"
            for path in self._written
        ]
        return [*found, *(f"of an earlier run: {escaped(str(path))}" for path in self.left())]

    def summary(self) -> dict[str, Any]:
        """The same for JSON."""
        overwrote = [str(path) for path in self._written if self._existed[path]]
        return {
            "written": [str(path) for path in self._written],
            "overwrote": overwrote,
            "of_an_earlier_run": [str(path) for path in self.left()],
        }
