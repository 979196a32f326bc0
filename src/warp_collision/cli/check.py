"""The command `warp-collision check`: spheres, or a robot's joint values, against obstacles."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from warp_collision.cli import common
from warp_collision.cli.terminal import print_json, print_text

if TYPE_CHECKING:
    import torch

    from warp_collision.labeling.path_files import PathFiles

SUMMARY = "check spheres in a file against the meshes in a file"
DESCRIPTION = """\
Prints a row for every path, worst first: whether it is free, its certified
clearance, which two bodies come nearest to each other, and where. A clearance
is the distance from a sphere's surface to the nearest obstacle. In contact it
is negative, by the depth. For a single path it prints every waypoint, with its
cost.

With --robot, PATHS are joint values. The report lists contacts at the
waypoints, and checks the motion between them on the arcs that the joints make.
Free is a proof about the robot's spheres. If these leave out parts of the
robot, the report says so. A contact at all joint values, such as a base in a
floor, is a collision. It is listed once, and paths are checked without it.
"""

EPILOG = """\
WORLD is a mesh or scene file (.glb, .obj, .stl, .ply, ...), a URDF, MJCF (.xml)
or USD file, a planning scene of MoveIt (.yaml), or a YAML file in metres:

  mesh:     {shelf: {file_path: shelf.stl, pose: [0.6, 0, 0, 1, 0, 0, 0]}}
  cuboid:   {table: {dims: [1, 0.6, 0.04], pose: [0.5, 0, 0.4, 1, 0, 0, 0]}}
  cylinder: {can: {radius: 0.03, height: 0.1, pose: [0.5, 0, 0.5, 1, 0, 0, 0]}}
  sphere:   {ball: {radius: 0.05, position: [0.5, 0.2, 0.47]}}

A pose is x, y, z, qw, qx, qy, qz. What a check does not see is named.

PATHS are files, and folders of files. Without --robot they hold spheres: .npy,
or .npz with an array "spheres": x, y, z, radius along the last axis, of shape
(spheres, 4), (waypoints, spheres, 4) or (paths, waypoints, spheres, 4). A
negative radius disables a sphere. With --robot they are an array "joints" of
shape (waypoints, joints) or (paths, waypoints, joints), in rad, m for joints
that slide; or a .csv file with a line of the joints' names and one for each
waypoint. The names, or an array "joint_names" of an .npz file, say the order of
the columns; without, it is that of the URDF.

.parquet files have a row for each path: a column "path" or "joints" of lists,
and if there are such columns "id", "world", "base_pose" and "env"; --column
PATH=NAME names others. A world is a file, relative to WORLD, which may be a
folder then, or a mapping as JSON. .h5 files have an array of paths, or the
layout of MPiNets with a world for each; a LeRobot data set is a folder.

A path that cannot be read is named, with the rule, and the others are checked.

exit status:
  0 all free, 1 collision, 2 wrong usage or input, even of one path, 3 an error
  of the program

example, two spheres that move through a table top:
  echo 'cuboid: {top: {dims: [1, 1, 0.1], pose: [0, 0, 0, 1, 0, 0, 0]}}' >w.yaml
  python3 -c 'import numpy as np; np.save("path.npy", [[[0, 0, z, 0.05],
      [0.2, 0, z, 0.1]] for z in (0.3, 0.1, -0.1, -0.3)])'
  warp-collision check w.yaml path.npy             each waypoint
  warp-collision check w.yaml path.npy --swept     and the way between them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "world", type=Path, metavar="WORLD", help="the obstacles: a file, see below"
    )
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATHS", help="files and folders, see below"
    )
    parser.add_argument(
        "--activation-distance",
        type=common.distance,
        metavar="M",
        help="a sphere costs from this clearance on, in metres (default 0.02)",
    )
    parser.add_argument(
        "--swept",
        action="store_true",
        help="check the straight way between the waypoints too: the cost is the swept cost, and a "
        "collision on the way counts",
    )
    parser.add_argument(
        "--unknown",
        choices=("occupied", "free", "report"),
        help="what unobserved voxels count as; with report they are obstacles of their own, so "
        "that the table says which of both is hit (default: as the file says)",
    )
    common.add_world_options(parser)
    _add_many(parser.add_argument_group("many paths"))
    _add_robot(parser.add_argument_group("robots"))


def _add_many(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--csv", action="store_true", help="print CSV and nothing else")
    group.add_argument(
        "-o",
        "--output",
        "--parquet",
        type=Path,
        metavar="OUT",
        help="write the table of the paths to a file, too: .parquet or .csv; an existing file is "
        "overwritten",
    )
    group.add_argument("--quiet", action="store_true", help="print errors only")
    group.add_argument(
        "--min-clearance",
        type=common.distance,
        default=0.0,
        metavar="M",
        help="a path that may be nearer to an obstacle counts as a collision",
    )
    group.add_argument(
        "--first", action="store_true", help="stop at the first path that is not free"
    )
    common.add_column(group)
    group.add_argument(
        "--detail",
        action="store_true",
        help="print the waypoints of one file of few paths, as of a single path",
    )


def _add_robot(group: argparse._ArgumentGroup) -> None:
    common.add_optional_robot(group, "the robot whose joint values PATHS hold")
    group.add_argument(
        "--tolerance",
        type=common.distance,
        metavar="M",
        help="a clearance on the way below this may count as a collision (default 0.001)",
    )
    group.add_argument(
        "--respect-limits",
        action="store_true",
        help="joint values beyond their limits end with status 1 too",
    )


def _check_waypoints(options: argparse.Namespace, files: PathFiles, device: torch.device) -> int:
    """Checks a single file, and reports on its waypoints."""
    from warp_collision.cli.check_paths import paths_of
    from warp_collision.cli.path_check import check_spheres
    from warp_collision.cli.robot_check import check_robot
    from warp_collision.cli.scene_text import world_extents, world_line

    path, scene, refused = options.paths[0], None, False
    head = {"world": str(options.world)}
    if options.robot is None:
        head["spheres"] = str(path)
        world = common.load_world(options, device)
        eta = 0.02 if options.activation_distance is None else options.activation_distance
        result = check_spheres(
            _load_spheres(path).to(device), world, activation_distance=eta, swept=options.swept
        )
    else:
        if options.activation_distance is not None:
            raise ValueError("--activation-distance must not be given with --robot: nothing costs")
        head |= {"joints": str(path), "robot": str(options.robot)}
        tolerance = 0.001 if options.tolerance is None else options.tolerance
        joints = common.load_joints(options, path)
        scene = common.load_scene(options, device)
        world = scene.world
        result = check_robot(scene, joints, tolerance)
        refused = options.respect_limits and result.is_beyond_limits
    if options.json:
        head |= {"device": str(device), "world_extents": world_extents(world), **result.summary()}
        print_json({**head, "paths": paths_of(options, files, scene, world)})
    else:
        print_text(result.text(world_line(options.world.name, world)))
    return common.COLLISION if result.collides or refused else common.FREE


def _wants_table(options: argparse.Namespace) -> bool:
    """Whether an option asks for a table of paths, or paths name their worlds."""
    asked = options.csv, options.output, options.quiet, options.min_clearance, options.first
    return any(asked) or options.world.is_dir()


def _is_single(options: argparse.Namespace, files: PathFiles) -> bool:
    """Whether there is one path, and nothing that asks for a table of paths."""
    if _wants_table(options) or len(files.files) > 1 or files.files[0][1] != "array":
        return False
    if options.activation_distance is not None:  # costs are those of waypoints
        return True
    # A file that cannot be read has its error from the reader of a single one.
    return files.count() in (None, 1)


def _check_many(options: argparse.Namespace, files: PathFiles, device: torch.device) -> int:
    if options.activation_distance is not None:
        raise ValueError("--activation-distance must be given with one path, or --detail")
    if options.output is not None:
        from warp_collision.extras import require_extra

        common.OutputFiles(output=options.output)
        ending = options.output.suffix.lower()
        if ending not in (".parquet", ".csv"):
            raise ValueError(f"--output must end in .parquet or .csv, got {str(options.output)!r}")
        if ending == ".parquet":
            require_extra("pyarrow", "a .parquet file")
    from warp_collision.cli.check_paths import check_paths

    return check_paths(options, files, device)


def _load_spheres(path: Path) -> torch.Tensor:
    """Spheres of a file; the error for a file of joint values says how to check these."""
    from warp_collision.io import load_spheres

    try:
        return load_spheres(path)
    except ValueError as error:
        if " shape " in str(error) or "'joints'" in str(error):
            raise ValueError(f"{error}; joint values of a robot need --robot URDF") from error
        raise


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    common.require_order(options)
    device = common.start(options.device)
    common.require_robot_for_options(options, "tolerance", "respect_limits")
    if options.swept and options.robot is not None:
        raise ValueError("--swept must not be given with --robot: its motion is checked on arcs")
    files = common.list_paths(options)
    if options.detail:
        if len(files.files) > 1 or _wants_table(options):
            raise ValueError(
                "--detail must be given with one file and one world, and without options of many "
                "paths"
            )
    elif not _is_single(options, files):
        return _check_many(options, files, device)
    return _check_waypoints(options, files, device)
