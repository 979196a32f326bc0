"""The command `warp-collision`: a demo, checks and labels of files, plans, pictures, compiling.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from warp_collision.cli.check import add_check
from warp_collision.cli.common import BAD_INPUT, INTERNAL_ERROR, find_device, start_warp
from warp_collision.cli.compiling import add_compile
from warp_collision.cli.label import add_label
from warp_collision.cli.options import add_picture, add_waypoints
from warp_collision.cli.plan import add_plan
from warp_collision.cli.render import add_render
from warp_collision.cli.robot import add_robot
from warp_collision.cli.terminal import Parser, plain_numbers, print_text
from warp_collision.cli.view import add_view

_DEMO_DESCRIPTION = """\
Moves a Franka Panda, modelled by spheres, through a motion-planning problem:
along a straight path in joint space, of which it prints what each waypoint
collides with, and along a path that it plans and proves free. Draws both.
"""

_EPILOG = """\
examples:
  warp-collision demo                            a robot, a problem, a picture
  warp-collision check world.yaml spheres.npy    is anything in collision?
  warp-collision check kitchen.glb path.npz --swept --json
  warp-collision plan arm.urdf world.yaml --start 0 0.5 -1 --goal 1 0.5 -1
  warp-collision view world.yaml path.npz --robot arm.urdf
  warp-collision render world.yaml path.npz --robot arm.urdf -o path.gif

`warp-collision check --help` describes the files.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: without the program's name; by default those of the process.

    Returns:
        The exit status: 0 free, 1 collision or no path, 2 wrong input, 3 an error of the program.
        Wrong usage and `--help` leave by SystemExit, as argparse does.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(plain_numbers(given))
    try:
        with warnings.catch_warnings():
            # Reports say it in a line of their own.
            warnings.filterwarnings("ignore", message="joints must be in rad")
            return options.run(options)
    except (OSError, ValueError, ImportError) as error:
        message = " ".join(str(error).split())
        print_text(f"warp-collision: error: {message}", sys.stderr)
        return BAD_INPUT
    except Exception:  # Python's own status, 1, would read as a collision
        print_text(traceback.format_exc(), sys.stderr, end="")
        return INTERNAL_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="warp-collision",
        description="Collision checks of spheres, such as those of a robot, and planned paths.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"warp-collision {version('warp-collision')}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    add_check(commands)
    add_plan(commands)
    add_robot(commands)
    add_label(commands)
    add_render(commands)
    add_view(commands)
    add_compile(commands)
    return parser


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="plan a robot's path on a motion-planning problem and draw it",
        description=_DEMO_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--problem", metavar="NAME", help="the problem (default: a cage); a wrong name lists all"
    )
    add_waypoints(parser)
    add_picture(parser, "demo.png", "write the report only")
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("demo-report.json"),
        metavar="FILE",
        help="the report to write, JSON or, by its ending, text (default demo-report.json)",
    )
    parser.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    start_warp(find_device(None))
    from warp_collision.cli.demo import run_demo

    return run_demo(
        problem=options.problem,
        waypoints=options.waypoints,
        picture=options.picture,
        report=options.report,
        draws=options.draws,
    )


if __name__ == "__main__":
    sys.exit(main())
