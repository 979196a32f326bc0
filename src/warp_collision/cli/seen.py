"""What `view` and `render` show: a world, a robot, its paths, or one row of a data set."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from warp_collision.cli.options import (
    RobotOptions,
    WorldOptions,
    add_column,
    add_optional_robot,
    list_paths,
)
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

    from warp_collision import MeshWorld, RobotSpheres
    from warp_collision.labeling import PathFiles
    from warp_collision.robot import JointCurve
    from warp_collision.robot.checks.robot_scene import RobotScene

_DATA_SETS = (".parquet", ".h5", ".hdf5")
_FEWEST_SLOTS = 32  # of the world of a row


class Seen(NamedTuple):
    """What a command shows.

    Attributes:
        world: the obstacles.
        robot: the robot, if there is one.
        joints: (batch, horizon, n_joints) of its paths, or a curve, if there are any.
        placed: arguments of the checks of the robot, by name.
    """

    world: MeshWorld
    robot: RobotSpheres | None
    joints: torch.Tensor | JointCurve | None
    placed: dict[str, Any]


def add_seen(parser: argparse.ArgumentParser) -> None:
    """Adds what a command shows: a world, paths, a robot and its options."""
    parser.add_argument(
        "world", type=Path, metavar="WORLD",
        help="the obstacles: a file; with --row also the folder that names of worlds start from",
    )  # fmt: skip
    parser.add_argument(
        "paths",
        type=Path,
        nargs="?",
        metavar="PATHS",
        help="joint values of a robot: .npy, .npz or .csv, or a trajectory of `plan --timed`; with "
        "--row a data set: .parquet, .h5",
    )
    group = parser.add_argument_group("data sets")
    add_row(group)
    add_column(group)
    add_optional_robot(parser.add_argument_group("robots"), "the robot")


def add_row(group: argparse._ArgumentGroup) -> None:
    """Adds the row of a data set."""
    group.add_argument(
        "--row",
        metavar="ID",
        help="the row of PATHS with this id, in its own world; or of this number, as FILE:7",
    )


def load_seen(options: argparse.Namespace, device: torch.device) -> Seen:
    """What a command shows, of the options of `add_seen`."""
    world, path = WorldOptions.of(options), options.paths
    if options.robot is None and path is not None:
        raise ValueError("PATHS are joint values of a robot: they need --robot URDF")
    robot = RobotOptions.optional(options, "row")
    if robot is None:
        return Seen(world.load(device), None, None, {})
    if options.row is not None:
        if path is None:
            raise ValueError("--row must be given with PATHS, a data set")
        files = list_paths([path], options.column, robot)
        scene, joints = load_row(files, options.row, world, robot, device)
        return Seen(scene.world, scene.robot, joints, scene.placed)
    for file in (options.world, path):
        if file is not None and (file.is_dir() or file.suffix.lower() in _DATA_SETS):
            where = escaped(str(file))
            raise ValueError(
                f"--row must name a row of data sets, by its id or as FILE:7, got none for {where}"
            )
    joints = None if path is None else robot.load_joints(path)
    scene = robot.load_scene(device, world)
    return Seen(scene.world, scene.robot, joints, scene.placed)


def load_row(
    files: PathFiles, name: str, world: WorldOptions, robot: RobotOptions, device: torch.device
) -> tuple[RobotScene, torch.Tensor]:
    """The robot in the world of one row of a data set, and its path (1, horizon, n_joints)."""
    import torch

    from warp_collision import MeshWorld
    from warp_collision.labeling.path_row import checked_path, checked_pose
    from warp_collision.labeling.world_cache import WorldCache

    row = files.find(name)
    if row.error is not None:
        raise ValueError(f"{escaped(name)}: {row.error}")
    joints = torch.tensor(checked_path(row.path, len(robot.joint_names)))[None]
    worlds = WorldCache(
        None if world.is_folder else str(world.world.absolute()),
        world.folder,
        max_bytes=1 << 62,
        since=None,
        device=device,
        strict=world.strict,
        allow_outside=True,  # as the data set, they are one's own
        package_dirs=world.package_dir,
    )
    obstacles = worlds.read(row.world, row.env)
    own = MeshWorld(max_obstacles=max(_FEWEST_SLOTS, len(obstacles)), device=device)
    own.load(obstacles)
    pose = None if row.base_pose is None else checked_pose(row.base_pose)
    return robot.load_scene(device, own, pose), joints
