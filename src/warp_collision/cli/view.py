"""The command `warp-collision view`: a world, a robot and its paths in a browser."""

from __future__ import annotations

import argparse
import signal

from warp_collision.cli import common
from warp_collision.cli.interrupts import INTERRUPTS
from warp_collision.cli.options import RobotOptions, add_world_options
from warp_collision.cli.plan_timed import LIMITS, LimitOptions, add_limits
from warp_collision.cli.seen import add_seen, load_seen
from warp_collision.cli.terminal import print_json, print_text

SUMMARY = "show a world, a robot and its paths in a browser"
DESCRIPTION = """\
Shows a world, a robot in it and the robot's paths in a browser: how near is
what, which motions are proven free, and what changes when an obstacle is moved.
"""

EPILOG = """\
WORLD and PATHS are files as for `warp-collision check`; PATHS are joint values
or a trajectory, and need --robot; --row takes one of a data set. A trajectory
is played in real time, with its velocities, accelerations and jerks. Other
machines do not reach the page, unless --host says otherwise; pages of other
sites in the same browser never do. Ctrl+C ends it.

examples:
  warp-collision view world.yaml path.npz --robot arm.urdf
  warp-collision view world.yaml motion.json --robot arm.urdf --jerk 500
  warp-collision view worlds rows.parquet --robot arm.urdf --row 4711
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_seen(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default 127.0.0.1, which other machines do not reach)",
    )
    parser.add_argument(
        "--port", type=_port, default=8080, help="port to listen on, 0 for any (default 8080)"
    )
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="URL",
        help="a web page that may connect beside the viewer's own, as of a proxy; may be repeated",
    )
    parser.add_argument(
        "--visual",
        action="store_true",
        help="draw the robot by its visual meshes at first, where it has some",
    )
    parser.add_argument(
        "--no-browser", dest="opens", action="store_false", help="only print the address"
    )
    add_limits(parser.add_argument_group("limits, which trajectories are drawn with"))
    add_world_options(parser)


def _port(text: str) -> int:
    """An argument that is a port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    from warp_collision.extras import require_extra
    from warp_collision.viewer.browser import Viewer, free_port

    require_extra("viser", "the viewer")
    port = free_port(options.host, options.port)  # told before files are read
    device = common.start(options.device)
    RobotOptions.optional(options, "limits", *LIMITS)
    seen = load_seen(options, device)
    limits = seen.robot and LimitOptions.of(options).of_robot(seen.robot, is_complete=False)
    with common.warnings_printed():
        viewer = Viewer(
            seen.world, seen.robot, host=options.host, port=port, origins=options.origin,
            visual=options.visual, limits=limits, **seen.placed,
        )  # fmt: skip
    with viewer:
        if seen.joints is not None:
            viewer.add_paths(seen.joints)
        if options.json:
            print_json({"world": str(options.world), "url": viewer.url})
        else:
            print_text(f"{viewer.url}  (Ctrl+C ends it)")
        if options.opens:
            _open(viewer.url)
        try:
            # As Ctrl+C; a process in the background may not hear of that.
            with INTERRUPTS.taken(signal.SIGTERM):
                viewer.wait_forever()
        except KeyboardInterrupt:
            print_text("")
    return common.FREE


def _open(url: str) -> None:
    """Opens the page in a browser; where there is none, says so."""
    import webbrowser

    try:
        is_open = webbrowser.open(url)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        print_text("no browser was found on this machine: open the address in one")
