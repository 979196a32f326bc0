"""The command `warp-collision robot`: what a robot file became, and what its spheres cover."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warp_collision.cli import common
from warp_collision.cli.options import RobotOptions, add_package_dirs, add_robot_model
from warp_collision.cli.terminal import align, print_json, print_text
from warp_collision.messages import escaped

if TYPE_CHECKING:
    from warp_collision.robot import Coverage, RobotSpheres, SelfCollisionMatrix
    from warp_collision.robot.checks.link_coverage import Deviation

_RESOLUTION = 2e-3  # m, of coverages
_MOST_TOUCHING = 10  # pairs in the table

SUMMARY = "show a robot's joints, links, spheres and pairs"
DESCRIPTION = """\
Shows what became of a robot's URDF: joints and limits, links with their spheres
and how well these cover them, how closely their exact shapes are followed, and
which links are checked with each other. What is fitted is kept in a cache; a
second look is quick.
"""

EPILOG = """\
exit status:
  0 shown, 2 wrong usage or input, 3 an error of the program

examples:
  warp-collision robot arm.urdf
  warp-collision robot arm.urdf -o spheres.png
  warp-collision robot arm.urdf --save arm.yaml
  warp-collision robot arm.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "robot", type=Path, metavar="ROBOT", help="a URDF, or what --save wrote of one"
    )
    add_robot_model(parser)
    add_package_dirs(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PNG",
        help="draw all links with their spheres, what is uncovered in orange",
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="YAML",
        help="write the robot with spheres and pairs of links, which all commands take as robot "
        "and read within milliseconds",
    )
    parser.add_argument(
        "--save-srdf",
        type=Path,
        metavar="SRDF",
        help="write the pairs of links that are not checked, which --srdf reads",
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    read = RobotOptions.of(options)
    wanted = {name: getattr(options, name) for name in ("output", "save", "save_srdf")}
    for name, path in wanted.items():
        read.require_not_read(name, path)
    files = common.OutputFiles(**wanted)
    common.start("cpu")
    from warp_collision.robot.checks.link_coverage import coverage_of, deviations_of

    robot = read.load()
    if options.save is not None:
        robot.save(options.save)
        files.add(options.save)
    coverages = coverage_of(robot, robot.link_names, _RESOLUTION)
    deviations = deviations_of(robot)
    matrix = robot.self_collision_matrix()
    if options.save_srdf is not None:
        matrix.save(options.save_srdf)
        files.add(options.save_srdf)
    if options.output is not None:
        from warp_collision.viewer import sphere_sheet

        sphere_sheet(robot, options.output)
        files.add(options.output)
    if options.json:
        print_json(_summary(robot, coverages, deviations, matrix) | files.summary())
    else:
        bare = robot.links_without_spheres
        ways = ["--shapes visual covers links that have visual shapes alone"] if bare else []
        text = [str(robot), *ways, "", *_coverage_table(coverages), ""]
        if deviations:
            text += [*_deviation_table(deviations), ""]
        print_text("\n".join([*text, *_touching(matrix), *files.lines()]))
    return common.FREE


def _coverage_table(coverages: dict[str, Coverage]) -> list[str]:
    """What the spheres of links cover, of all links whose shapes are no spheres."""
    if not coverages:
        return ["The spheres are those of the file, beside which it has no shapes."]
    rows = [("link", "spheres", "stick out [mm]", "uncovered", "by up to [mm]")]
    for link, found in coverages.items():
        overshoot, gap = (
            f"{1e3 * bound:.1f}" if found.count else "-" for bound in (found.overshoot, found.gap)
        )
        name, share = escaped(link, 40), f"{found.uncovered:.1%}"
        rows.append((name, str(found.count), overshoot, share, gap))
    return align(rows, right=(1, 2, 3, 4))


def _deviation_table(deviations: dict[str, Deviation]) -> list[str]:
    """What decides about exact shapes of links, and how far it sticks out of them."""
    rows = [("link", "convex pieces", "stick out by up to [mm]", "triangles, which are exact")]
    for link, (pieces, overshoot, triangles) in deviations.items():
        name, length = escaped(link, 40), f"{1e3 * overshoot:.1f}" if pieces else "-"
        rows.append((name, str(pieces), length, str(triangles or "-")))
    return align(rows, right=(1, 2, 3))


def _touching(matrix: SelfCollisionMatrix) -> list[str]:
    """The pairs that are checked and touch most often, and how many are checked."""
    from warp_collision.robot.model.self_collision_matrix import pairs_in_words

    touching = [entry for entry in matrix.entries if entry.checked and entry.share > 0.0]
    always = [entry for entry in touching if entry.share == 1.0]
    rows = [
        (f"{escaped(e.first, 40)} and {escaped(e.second, 40)}", f"{e.share:.1%}")
        for e in touching[len(always) :]
    ]
    lines = align(
        [("checked, and touching at random", "share"), *rows[:_MOST_TOUCHING]], right=(1,)
    )
    if len(rows) > _MOST_TOUCHING:
        lines.append(f"and {len(rows) - _MOST_TOUCHING} more")
    pairs = pairs_in_words([(entry.first, entry.second) for entry in always])
    told = [f"checked, and in contact at all joint values: {pairs}"] if always else []
    return [*told, *(lines if rows else []), str(matrix).splitlines()[-1]]


def _summary(
    robot: RobotSpheres,
    coverages: dict[str, Coverage],
    deviations: dict[str, Deviation],
    matrix: SelfCollisionMatrix,
) -> dict[str, Any]:
    joints = zip(robot.joint_names, robot.joint_units, robot.joint_limits.tolist(), strict=True)
    return {
        "joints": [{"name": name, "unit": unit, "limits": limits} for name, unit, limits in joints],
        "links": list(robot.link_names),
        "spheres": {link: len(robot.spheres_of(link)) for link in robot.link_names},
        "coverage": {
            link: {
                "spheres": found.count,
                "overshoot": found.overshoot,
                "uncovered": found.uncovered,
                "gap": found.gap,
            }
            for link, found in coverages.items()
        },
        "exact_shapes": {link: found._asdict() for link, found in deviations.items()},
        "pairs_of_links": [
            {
                "links": [entry.first, entry.second],
                "checked": entry.checked,
                "reason": entry.reason,
                "share": entry.share if entry.checked else None,
            }
            for entry in matrix.entries
        ],
    }
