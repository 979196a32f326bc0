"""The command `warp-collision label`: labels of a data set of paths, in parts of Parquet."""

from __future__ import annotations

import argparse
from pathlib import Path

from warp_collision.cli import common
from warp_collision.cli.options import (
    RobotOptions,
    WorldOptions,
    add_column,
    add_optional_robot,
    add_package_dirs,
)
from warp_collision.messages import escaped

SUMMARY = "label the paths of a data set: proven free, clearance, cost, contact"
DESCRIPTION = """\
Writes a row for every path of a data set, as Parquet files in a folder:
whether it is proven free, its certified clearance, its cost, the first contact,
and which two bodies are nearest. After an interruption, run the same command
again: it goes on behind the rows that are written.
"""

EPILOG = """\
PATHS are as for `warp-collision check`: .parquet files with a row for each
path, HDF5 files in the layout of MPiNets or with an array of paths, a folder of
a LeRobot data set of version 3, whose episodes are paths, .tar shards of
WebDataset, .npy, .npz and .csv files, folders of these, and patterns such as
'run-*/**/*.parquet'. PATHS (but .npy, .npz and .csv) and DIR may be on an
object store, as s3://bucket/paths or gs://bucket/paths.

The columns are id, source and row (the file and its row), free, clearance,
self_clearance, cost, first_contact, depth, position, link, obstacle,
with_itself and error [m; positions in waypoints]. A row that could not be
labelled has its reason in error, and is not free. Ids keep their type.

DIR has a manifest of the inputs, the robot, the world and the options. A run
with others is refused, unless --overwrite is given.

exit status:
  0 all rows are written, 1 some have errors, 2 all have errors, or wrong usage
  or input, 3 an error of the program, 130 interrupted: what was labelled is
  written

example, on two processes of a local Ray:
  warp-collision label paths.parquet --robot panda.urdf --world worlds/ \\
      --out labels --ray --workers 2
  python3 -c 'import pandas; print(pandas.read_parquet("labels").free.mean())'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "paths", type=place, nargs="+", metavar="PATHS", help="files, folders and quoted patterns"
    )
    parser.add_argument(
        "--out", type=place, required=True, metavar="DIR", help="the folder of the parts"
    )
    parser.add_argument(
        "--world",
        type=place,
        default=Path(),
        metavar="WORLD",
        help="the obstacles of rows that name no world: a file; or the folder of the worlds that "
        "rows name (default: the current one)",
    )
    add_column(parser)
    parser.add_argument(
        "--outputs",
        nargs="+",
        metavar="LABEL",
        help="which labels; free alone takes a small part of the time (default: all but "
        "waypoint_clearance)",
    )
    parser.add_argument(
        "--min-clearance",
        type=common.distance,
        default=0.0,
        metavar="M",
        help="a path that may be nearer to an obstacle is not free",
    )
    parser.add_argument(
        "--activation-distance",
        type=common.distance,
        default=0.02,
        metavar="M",
        help="clearance from which on a sphere costs, in metres (default 0.02)",
    )
    parser.add_argument(
        "--batch-rows",
        type=common.at_least_one,
        default=512,
        metavar="N",
        help="rows that are labelled at a time (default 512)",
    )
    parser.add_argument(
        "--part-rows",
        type=common.at_least_one,
        default=10_000,
        metavar="N",
        help="rows of each file; a killed run loses those of its last one (default 10000)",
    )
    parser.add_argument(
        "--cache-mib",
        type=common.at_least_one,
        default=256,
        metavar="MIB",
        help="memory for the worlds that a process keeps (default 256)",
    )
    parser.add_argument(
        "--shard",
        type=shard,
        default=(0, 1),
        metavar="I/N",
        help="label one of N shares of the rows, I from 0 to N - 1; runs of all shares may write "
        "into one folder at the same time",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="remove the labels of an earlier run first"
    )
    parser.add_argument(
        "--retry-errors", action="store_true", help="label rows again that have an error"
    )
    parser.add_argument(
        "--allow-world-outside",
        action="store_true",
        help="rows may name world files outside of the folder of worlds",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    parser.add_argument(
        "--strict", action="store_true", help="a world with what a check does not see is an error"
    )
    add_package_dirs(parser)
    robots = parser.add_argument_group("robots")
    add_optional_robot(robots, "the robot, without which paths are spheres")
    robots.add_argument(
        "--tolerance",
        type=common.distance,
        metavar="M",
        help="a clearance below this may count as a collision (default 0.001)",
    )
    cluster = parser.add_argument_group("clusters")
    cluster.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="label on a cluster of Ray, by default a local one; after PATHS",
    )
    cluster.add_argument(
        "--workers",
        type=common.at_least_one,
        metavar="N",
        help="most processes (default: one for each CPU)",
    )
    cluster.add_argument(
        "--gpus-per-worker",
        type=common.distance,
        default=0.0,
        metavar="SHARE",
        help="of a GPU, such as 0.5 (default 0: one CPU thread)",
    )


def place(text: str) -> Path | str:
    """An argument that is a path, or the URI of an object store."""
    from warp_collision.labeling.places import place_of

    return place_of(text)


def shard(text: str) -> tuple[int, int]:
    """An argument that is the index of a share and how many there are, as 0/4."""
    index, slash, count = text.partition("/")
    is_share = slash and index.isdecimal() and count.isdecimal() and int(index) < int(count)
    if not is_share:
        raise argparse.ArgumentTypeError(f"must be I/N with I from 0 to N - 1, got {text!r}")
    return int(index), int(count)


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    if options.overwrite and options.shard[1] > 1:
        raise ValueError("--overwrite must be given without --shard: other shards may be running")
    if isinstance(options.world, str):
        raise ValueError(
            f"--world must be on a file system of this machine, got {escaped(options.world)!r}"
        )
    if options.ray is None and (options.workers is not None or options.gpus_per_worker):
        raise ValueError("--workers and --gpus-per-worker must be given with --ray")
    robot = RobotOptions.optional(options, "tolerance")
    device = common.start(options.device)
    from warp_collision.cli.label_paths import LabelOptions, label_paths

    world = WorldOptions.of(options)
    return label_paths(LabelOptions.of(options, world=world, robot=robot), device)
