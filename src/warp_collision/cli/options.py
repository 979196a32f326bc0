"""Records of options that name obstacles and a robot: how they are declared, parsed and read.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from warp_collision.cli.common import OutputFiles, option_name, warnings_printed
from warp_collision.cli.terminal import StatusLine, print_stderr
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

    from warp_collision import MeshWorld, RobotSpheres
    from warp_collision.labeling import PathFiles
    from warp_collision.poses import PoseLike
    from warp_collision.robot import JointCurve, SelfCollisionPairs
    from warp_collision.robot.checks.robot_scene import RobotScene
    from warp_collision.robot.model.robot_description import RobotJoints

_UNSEEN = " (never seen)"  # ends the name of what of a map no camera saw
_POSE = ("X", "Y", "Z", "QW", "QX", "QY", "QZ")
_SAVED = (".yaml", ".yml")  # endings of robots that were saved
# What a saved robot has already.
_OF_MODELS = ("srdf", "group", "state", "robot_spheres", "lock_joint", "shapes", "save_spheres")


class Options:
    """Base of records of options: dataclasses, whose fields have the names of options."""

    @classmethod
    def of(cls, options: argparse.Namespace, **more: Any) -> Self:
        """The record of parsed options; fields whose option a command has not keep their default.

        Args:
            options: as they were parsed.
            **more: fields that are records themselves, or have other names.
        """
        given = vars(options) | more
        names = [field.name for field in fields(cls)]  # pyright: ignore[reportArgumentType]
        return cls(**{name: given[name] for name in names if name in given})


@dataclass(frozen=True)
class WorldOptions(Options):
    """The file of the obstacles, or a folder of files that paths name, and how it is read.

    Attributes:
        world: the file or folder.
        strict: whether what a check does not see is an error.
        package_dir: folders in which package:// names are looked for.
        up: the axis of mesh files that points up.
        scale: metres in a unit of mesh files.
        unknown: what unobserved voxels count as; None: as the file says.
    """

    world: Path
    strict: bool = False
    package_dir: Sequence[Path] = ()
    up: Literal["y", "z"] | None = None
    scale: float | None = None
    unknown: Literal["occupied", "free", "report"] | None = None

    @property
    def is_folder(self) -> bool:
        """Whether each path names its own world, relative to a folder."""
        return self.world.is_dir()

    @property
    def folder(self) -> Path:
        """Where worlds that paths name are."""
        return self.world if self.is_folder else self.world.absolute().parent

    def load(self, device: torch.device) -> MeshWorld:
        """The obstacles, none of a folder; what a check does not see is printed as a warning."""
        from warp_collision import MeshWorld

        if self.is_folder:
            return MeshWorld(device=device)
        with warnings_printed():
            world = MeshWorld.from_file(
                self.world,
                device,
                strict=self.strict,
                package_dirs=self.package_dir,
                up=self.up,
                scale=self.scale,
            )
        if self.unknown is not None:
            _take_unknown(world, self.unknown)
        return world


def _take_unknown(world: MeshWorld, unknown: Literal["occupied", "free", "report"]) -> None:
    """Makes the voxels of maps that no camera saw occupied, free, or obstacles of their own."""
    from warp_collision import VoxelGrid

    for name, obstacle in world.obstacles().items():
        grid = obstacle.geometry
        if not isinstance(grid, VoxelGrid) or grid.unknown_mask is None:
            continue
        if unknown == "report" and grid.is_unseen:  # an obstacle of its own already
            continue
        world.update(name, grid.seen if unknown == "report" else grid.taken(unknown))
        if unknown == "report":
            state = {"enabled": obstacle.enabled, "padding": obstacle.padding}
            world.add(f"{name}{_UNSEEN}", grid.unseen, obstacle.pose, **state)


@dataclass(frozen=True)
class RobotOptions(Options):
    """The files of a robot, what is changed of it, and how it stands among obstacles.

    Attributes:
        robot: a URDF, or a robot that was saved.
        world: the file of the obstacles, which may be swapped with that of the robot.
        package_dir: folders in which package:// names are looked for.
        srdf: pairs of links that need no check.
        group: the planning group whose joints have values.
        state: at which other joints are held.
        robot_spheres: a robot file of cuRobo with the spheres.
        lock_joint: joints that stay at a value.
        shapes: which shapes of links are covered.
        save_spheres: where the spheres are written.
        no_self_collision: whether the robot is not checked with itself.
        exact: whether the convex pieces of links decide.
        ignore: contacts that are wanted.
        base_pose: where the root link stands.
    """

    robot: Path
    world: Path | None = None
    package_dir: Sequence[Path] = ()
    srdf: Path | None = None
    group: str | None = None
    state: str | None = None
    robot_spheres: Path | None = None
    lock_joint: Sequence[tuple[str, float]] | None = None
    shapes: Literal["collision", "visual"] | None = None
    save_spheres: Path | None = None
    no_self_collision: bool | None = None
    exact: bool | None = None
    ignore: Sequence[Sequence[str]] | None = None
    base_pose: Sequence[float] | None = None

    @classmethod
    def optional(cls, options: argparse.Namespace, *more: str) -> Self | None:
        """The record, or None without a robot: then its options and `more` must not be given."""
        if options.robot is not None:
            return cls.of(options)
        of_robots = [field.name for field in fields(cls) if field.name not in _OF_BOTH]
        for name in (*of_robots, *more):
            if getattr(options, name) not in (None, False):
                raise ValueError(f"{option_name(name)} must be given with --robot alone")
        return None

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the robot's joint values, in order, without fitting spheres."""
        return self._read.joint_names

    @cached_property
    def _read(self) -> RobotSpheres | RobotJoints:
        """A robot that was saved, or the files of another before spheres are fitted; read once."""
        from warp_collision import RobotSpheres
        from warp_collision.robot.model.robot_description import read_robot_joints
        from warp_collision.robot.model.srdf import Srdf

        with self._swapped_files_reported(), warnings_printed():
            if self._is_saved():
                return RobotSpheres.from_file(self.robot, package_dirs=self.package_dir)
            return read_robot_joints(
                self.robot,
                self.robot_spheres,
                self.package_dir,
                self._locks(),
                Srdf(self.srdf, self.group, self.state),
                self.shapes or "collision",
            )

    def _is_saved(self) -> bool:
        """Whether the robot is one that was saved, by its ending; it comes without other files."""
        if self.robot.suffix.lower() not in _SAVED:
            return False
        for name in _OF_MODELS:
            if getattr(self, name) is not None:
                path = escaped(str(self.robot))
                raise ValueError(
                    f"{option_name(name)} must be given with a URDF, got the saved robot {path}"
                )
        return True

    def _locks(self) -> dict[str, float]:
        locks: dict[str, float] = {}
        for name, value in self.lock_joint or ():
            if name in locks:
                raise ValueError(
                    f"--lock-joint must name a joint once, got {escaped(name)!r} twice"
                )
            locks[name] = value
        return locks

    @contextlib.contextmanager
    def _swapped_files_reported(self) -> Iterator[None]:
        """An error says so where the files of the robot and the world look swapped."""
        try:
            yield
        except ValueError as error:
            is_robot = self.robot.suffix.lower() in (".urdf", ".xml")
            if self.world and self.world.suffix.lower() == ".urdf" and not is_robot:
                raise ValueError(f"ROBOT and WORLD look swapped: {error}") from error
            raise

    def require_not_read(self, name: str, wanted: Path | None) -> None:
        """Requires a file to write, if there is one, in an existing folder, and no file to read."""
        OutputFiles(**{name: wanted})
        read = self.robot, self.world, self.srdf, self.robot_spheres
        if wanted and wanted.resolve() in [path.resolve() for path in read if path is not None]:
            path = escaped(str(wanted))
            raise ValueError(f"{option_name(name)} must not be a file that is read, got {path}")

    def load(self) -> RobotSpheres:
        """The robot; its spheres are written where that is wanted."""
        from warp_collision import RobotSpheres
        from warp_collision.robot.model.robot_description import with_spheres

        read = self._read
        if isinstance(read, RobotSpheres):
            return read
        with self._swapped_files_reported(), StatusLine() as line:

            def progress(link: str, number: int, count: int) -> None:
                fitted = f"link {number} of {count}: {escaped(link, 40)}"
                line.write(f"warp-collision: fitting spheres, {fitted}")

            robot = RobotSpheres._described(with_spheres(read, progress=progress))
        if self.save_spheres is not None:
            robot.save_spheres(self.save_spheres)
            print_stderr(f"the robot's spheres were written to {escaped(str(self.save_spheres))}")
        return robot

    def load_joints(self, path: Path) -> torch.Tensor | JointCurve:
        """Joint values (batch, horizon, n_joints) of a file, or the curve of a trajectory."""
        from warp_collision import io
        from warp_collision.formats.files import existing_file
        from warp_collision.io.trajectories import is_trajectory
        from warp_collision.robot import load_trajectory

        names = self.joint_names
        if is_trajectory(existing_file(path)):
            return load_trajectory(path, names)
        return io.load_joints(path, len(names), joint_names=names)

    def load_scene(
        self,
        device: torch.device,
        world: WorldOptions | MeshWorld,
        base_pose: PoseLike | None = None,
    ) -> RobotScene:
        """The robot among obstacles.

        Args:
            device: of the obstacles.
            world: the obstacles, or the options by which they are read.
            base_pose: instead of the option.
        """
        import torch

        from warp_collision import validate
        from warp_collision.robot.checks.robot_scene import RobotScene

        pose = self.base_pose if base_pose is None else base_pose
        if pose is not None:
            pose = validate.check_pose("--base-pose", pose).to(device, torch.float32)
        # Spheres are fitted once files and options are right.
        _ = self.joint_names
        self.require_not_read("save_spheres", self.save_spheres)
        if isinstance(world, WorldOptions):
            world = world.load(device)
        robot = self.load()
        given = [(link, other) for link, other in self.ignore or ()]
        links, obstacles = robot.link_names, world.names()
        own = [pair for pair in given if pair[1] in links and pair[1] not in obstacles]
        pairs: bool | SelfCollisionPairs = not self.no_self_collision
        if own and pairs:
            pairs = robot.self_collision_pairs(ignore=own)
        ignored = tuple(pair for pair in given if pair not in own)
        shapes = "exact" if self.exact else "spheres"
        return RobotScene(robot, world, pose, ignored, pairs, shapes=shapes)


_OF_BOTH = ("robot", "world", "package_dir")  # fields that need no robot


def list_paths(
    paths: Sequence[Path | str], column: Sequence[tuple[str, str]], robot: RobotOptions | None
) -> PathFiles:
    """The paths of a command, of spheres or of a robot."""
    from warp_collision.labeling import PathFiles

    names = None if robot is None else robot.joint_names
    return PathFiles(paths, columns=dict(column), joint_names=names)


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


def _column(text: str) -> tuple[str, str]:
    """An argument ROLE=NAME: what a column of a table holds."""
    role, _, name = text.partition("=")
    if not role or not name:
        raise argparse.ArgumentTypeError(f"must be ROLE=NAME, got {text!r}")
    return role, name


def add_optional_robot(group: argparse._ArgumentGroup, use: str) -> None:
    """Adds a robot that may be given, and what it is for, with its options."""
    group.add_argument(
        "--robot",
        type=Path,
        metavar="FILE",
        help=f"{use}: a URDF, or what `warp-collision robot URDF --save robot.yaml` wrote",
    )
    add_robot_options(group)


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
