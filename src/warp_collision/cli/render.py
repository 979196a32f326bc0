"""The command `warp-collision render`: pictures and films of a world, a robot and its path."""

from __future__ import annotations

import argparse
from pathlib import Path

from warp_collision.cli import common
from warp_collision.cli.options import add_world_options
from warp_collision.cli.seen import add_seen, load_seen
from warp_collision.cli.terminal import print_json, print_text

SUMMARY = "draw a world, a robot and its paths into a picture or a film"
DESCRIPTION = """\
Draws a world, a robot in it, or the robot's paths, into a picture or a film. It
needs no display and no OpenGL. The colours of spheres are their clearances;
obstacles that a path collides with are orange, what is proven free is blue.
"""

EPILOG = """\
WORLD and PATHS are files as for `warp-collision check`; PATHS are joint values
and need --robot. Up to four paths are drawn side by side. Without PATHS the
robot stands in the middle of its joint limits. --row takes one row of a data
set in its world, of which WORLD is the folder.

exit status:
  0 drawn, 2 wrong usage or input, 3 an error of the program

examples:
  warp-collision render kitchen.glb -o kitchen.png --view corner
  warp-collision render world.yaml path.npz --robot arm.urdf -o path.png
  warp-collision render world.yaml path.npz --robot arm.urdf -o path.gif
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_seen(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="what to write: .png, .gif or .mp4; an existing file is overwritten",
    )
    parser.add_argument(
        "--view",
        default="auto",
        metavar="VIEW",
        help="auto, front, back, left, right, top, corner, or azimuth,elevation of the eye in "
        "degrees, such as 30,20 (default auto)",
    )
    parser.add_argument(
        "--look-at",
        metavar="NAME|X,Y,Z",
        help="what is in the middle: an obstacle, a link or a point in metres",
    )
    parser.add_argument(
        "--size", type=_size, metavar="WxH", help="in pixels (default 1280x800; films 960x640)"
    )
    parser.add_argument(
        "--background", choices=("light", "dark"), default="light", help="(default light)"
    )
    parser.add_argument("--title", metavar="TEXT", help="a line above; '' for none")
    parser.add_argument(
        "--no-labels", dest="labels", action="store_false", help="write no names into the scene"
    )
    parser.add_argument("--spheres", action="store_true", help="draw all spheres of the robot")
    parser.add_argument(
        "--seconds",
        type=common.distance,
        metavar="S",
        help="length of a film (default 4; of a trajectory its own, in real time)",
    )
    add_world_options(parser)


def _size(text: str) -> tuple[int, int]:
    """An argument WIDTHxHEIGHT."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"must be WIDTHxHEIGHT, such as 1600x1000, got {text!r}")
    return int(parts[0]), int(parts[1])


def _look_at(text: str | None) -> str | list[float] | None:
    """A name, or three numbers."""
    try:
        return text if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        return text


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    files = common.OutputFiles(output=options.output)
    device = common.start(options.device)
    from warp_collision.cli.path_drawing import show_progress
    from warp_collision.viewer import render
    from warp_collision.viewer.camera import parse_view

    parse_view(options.view)  # what is wrong with it is told before files are read
    seen = load_seen(options, device)
    with common.warnings_printed(), show_progress("drawing") as progress:
        render(
            seen.world,
            seen.robot,
            seen.joints,
            output=options.output,
            view=options.view,
            look_at=_look_at(options.look_at),
            size=options.size,
            background=options.background,
            title=options.title,
            labels=options.labels,
            spheres=options.spheres,
            seconds=options.seconds,
            progress=progress,
            **seen.placed,
        )
    files.add(options.output)
    if options.json:
        print_json({"world": str(options.world), **files.summary()})
    else:
        print_text("\n".join(files.lines()))
    return common.FREE
