"""The command `warp-collision check`: spheres, or a robot's joint values, against obstacles."""

from __future__ import annotations

import argparse
from pathlib import Path

from warp_collision.cli import common
from warp_collision.cli.options import (
    RobotOptions,
    WorldOptions,
    add_column,
    add_optional_robot,
    add_world_options,
)
from warp_collision.cli.seen import add_row

_ARRAYS = (".npy", ".npz", ".csv", ".parquet")

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
Motions on which the same two bodies are nearest share a row, where they come
nearest; "others" counts the rest.
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
layout of MPiNets with a world for each; a LeRobot data set is a folder. --row
checks one row of them, waypoint by waypoint.

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
    add_world_options(parser)
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
    add_column(group)
    add_row(group)
    group.add_argument(
        "--detail",
        action="store_true",
        help="print the waypoints of one file of few paths, as of a single path",
    )


def _add_robot(group: argparse._ArgumentGroup) -> None:
    add_optional_robot(group, "the robot whose joint values PATHS hold")
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


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    first, second = (path.suffix.lower() in _ARRAYS for path in (options.world, options.paths[0]))
    if first and not second:
        raise ValueError(
            f"WORLD must come before PATHS, which look swapped: got {str(options.world)!r} "
            f"before {str(options.paths[0])!r}"
        )
    device = common.start(options.device)
    robot = RobotOptions.optional(options, "tolerance", "respect_limits", "row")
    if options.swept and robot is not None:
        raise ValueError("--swept must not be given with --robot: its motion is checked on arcs")
    from warp_collision.cli.check_paths import CheckOptions, check

    world = WorldOptions.of(options)
    return check(CheckOptions.of(options, world=world, robot=robot), device)
