"""The command `warp-collision`: a demo, checks and labels of files, plans, pictures, compiling.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version

from warp_collision.cli import (
    check,
    compile_kernels,
    demo,
    example,
    label,
    plan,
    render,
    robot,
    view,
)
from warp_collision.cli.common import BAD_INPUT, INTERNAL_ERROR
from warp_collision.cli.interrupts import INTERRUPTED, INTERRUPTS
from warp_collision.cli.terminal import Parser, plain_numbers, print_text

_COMMANDS = {
    "demo": demo,
    "example": example,
    "check": check,
    "plan": plan,
    "robot": robot,
    "label": label,
    "render": render,
    "view": view,
    "compile": compile_kernels,
}
_EPILOG = """\
examples, which run in an empty folder:
  warp-collision example                   files to try the others with
  warp-collision plan panda.urdf cage.glb \\
      --start 0 -0.785 0 -2.356 0 1.571 0.785 \\
      --goal -0.03 0.53 0.02 -1.61 2.89 2.56 -2.16
  warp-collision check cage.glb path.npz --robot panda.urdf
  warp-collision view cage.glb path.npz --robot panda.urdf
  warp-collision render cage.glb path.npz --robot panda.urdf -o path.gif

`warp-collision check --help` describes the files.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: without the program's name; by default those of the process.

    Returns:
        The exit status: 0 free, 1 collision or no path, 2 wrong input, 3 an error of the program,
        130 interrupted.
        Wrong usage and `--help` leave by SystemExit, as argparse does.
    """
    if is_process := arguments is None:
        arguments = sys.argv[1:]
        _collect_seldom()
        # Before torch is imported: threads of its operations that wait take no CPU.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        with INTERRUPTS.of_command(at_once=is_process), warnings.catch_warnings():
            options = _parser().parse_args(plain_numbers(arguments))
            # Reports say it in a line of their own.
            warnings.filterwarnings("ignore", message="joints must be in rad")
            return options.run(options)
    except (OSError, ValueError, ImportError) as error:
        message = " ".join(str(error).split())
        print_text(f"warp-collision: error: {message}", sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print_text("interrupted", sys.stderr)
        return INTERRUPTED
    except Exception:  # Python's own status, 1, would read as a collision
        print_text(traceback.format_exc(), sys.stderr, end="")
        return INTERNAL_ERROR


def _collect_seldom() -> None:
    """Starts and ends the process quicker, by a second of four.

    Imports make 750,000 objects that stay. Python's collector walks over them again and again as
    they come, and once more at the end of the process.
    """
    gc.set_threshold(1_000_000, 20, 100)
    atexit.register(gc.freeze)


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
    for name, command in _COMMANDS.items():
        own = commands.add_parser(
            name,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
