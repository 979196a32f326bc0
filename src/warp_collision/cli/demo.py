"""The command `warp-collision demo`: a robot's paths through a motion-planning problem."""

from __future__ import annotations

import argparse
from pathlib import Path

from warp_collision.cli import common

SUMMARY = "plan a robot's path on a motion-planning problem and draw it"
DESCRIPTION = """\
Moves a Franka Panda, modelled by spheres, through a motion-planning problem:
along a straight path in joint space, of which it prints what each waypoint
collides with, and along a path that it plans and proves free. Draws both.
"""
EPILOG = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "--problem", metavar="NAME", help="the problem (default: a cage); a wrong name lists all"
    )
    common.add_waypoints(parser)
    common.add_picture(parser, Path("demo.png"), "demo.png", "write the report only")
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("demo-report.json"),
        metavar="FILE",
        help="the report to write, JSON or, by its ending, text (default demo-report.json)",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    common.start(None)
    from warp_collision.cli.demo_report import run_demo

    return run_demo(
        problem=options.problem,
        waypoints=options.waypoints,
        picture=options.picture,
        report=options.report,
        draws=options.draws,
    )
