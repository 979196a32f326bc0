"""The demo: a Franka Panda on a motion-planning problem, by the straight path and a planned one.

The first one is straight in joint space and runs into things: the table says where, how deep, and
what both costs make of it. The second one is planned around them, and proven free.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.cli import common
from warp_collision.cli.check_waypoints import PathCheck, check_spheres
from warp_collision.cli.path_drawing import draw, show_progress
from warp_collision.cli.terminal import align, for_json, print_text
from warp_collision.devices import preferred_device
from warp_collision.examples import Problem, load_panda, load_problem, straight_path, world_of
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.planning import PlannedPaths, optimize_paths
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer.path_facts import evenly_along

ACTIVATION_DISTANCE = 0.02  # m, of the costs in the table
DEFAULT_PROBLEM = "cage_2"


class Demo(NamedTuple):
    """A problem, the straight path through it, and the path that was planned.

    Attributes:
        problem: what was planned.
        device: where.
        straight: the straight path, checked at its waypoints.
        planned: the result of `optimize_paths`.
        planned_clearance: (waypoints,) [m], of the planned path at the same shares of its length.
    """

    problem: Problem
    device: torch.device
    straight: PathCheck
    planned: PlannedPaths
    planned_clearance: Tensor


def run_demo(
    *,
    problem: str | None = None,
    waypoints: int = 32,
    picture: str | os.PathLike[str] = "demo.png",
    report: str | os.PathLike[str] = "demo-report.json",
    draws: bool = True,
) -> int:
    """Checks the straight path through a problem, and plans one that is free.

    Prints a table, and writes a report and a picture of both paths.

    Args:
        problem: One of `problem_names()`; None: `DEFAULT_PROBLEM`.
        waypoints: Number of waypoints at which both paths are checked, at least 2.
        picture: The picture, a PNG file.
        report: The report: JSON if its name ends in .json, else the printed table.
        draws: Whether to draw the picture. Without the extra `viz` the demo says how to install
            it, and does the rest.

    Returns:
        0, the exit status: that the straight path collides is what the demo is for.

    Raises:
        ValueError: Unknown problem, or fewer than 2 waypoints.
        FileNotFoundError: The folder of a file to write does not exist.
    """
    if waypoints < 2:
        raise ValueError(f"waypoints must be at least 2, got {waypoints}")
    picture, report = Path(picture), Path(report)
    files = common.OutputFiles(report=report, picture=picture)
    task = load_problem(DEFAULT_PROBLEM if problem is None else problem)
    device = preferred_device()
    scene = RobotScene(load_panda(), world_of(task, device))
    joints = straight_path(task, scene.robot, waypoints)
    with quiet_warp(), show_progress("planning (compiles the kernels the first time)"):
        demo = plan_problem(task, scene, joints)
    table = format_table(demo)
    print_text(table)
    if report.suffix == ".json":
        report.write_text(json.dumps(for_json(summary(demo)), indent=1, allow_nan=False) + "\n")
    else:
        report.write_text(table + "\n", encoding="utf-8")
    files.add(report)
    if draws and _draw(demo, scene, joints, picture):
        files.add(picture)
    print_text("\n".join(files.lines()))
    return 0


def plan_problem(problem: Problem, scene: RobotScene, joints: Tensor) -> Demo:
    """Checks the straight path (waypoints, n_joints) of a problem, and plans another one."""
    device = scene.world.device
    start, goal = joints[[0, -1], None].to(device)
    planned = optimize_paths(start, goal, scene.robot, scene.world)
    along = evenly_along(planned.joints[0], len(joints))
    straight = check_joints(joints, scene)
    clearance = scene.clearance(along).clearance[0].amin(-1).cpu()
    return Demo(problem, device, straight, planned, clearance)


def format_table(demo: Demo) -> str:
    """Returns the table that the demo prints, lengths in mm."""
    head = ("waypoint", "straight [mm]", "obstacle", "link", "cost [mm]", "swept cost [mm]", "")
    cells: list[tuple[str, ...]] = [(*head, "planned [mm]")]
    for row, planned in zip(demo.straight.waypoints, demo.planned_clearance.tolist(), strict=True):
        on_the_way = "on the way" if row.collides_on_the_way else ""
        cells.append(
            (
                str(row.waypoint),
                _millimetres(row.clearance),
                str(row.obstacle),
                str(row.link),
                _millimetres(row.cost),
                _millimetres(row.swept_cost),
                "COLLISION" if row.collides else on_the_way,
                _millimetres(planned),
            )
        )
    lines = align(cells, right=(0, 1, 4, 5, 7))
    title = f"{_title(demo)}\n{_facts(demo)}, on {demo.device}"
    explained = (
        "straight, planned: smallest clearances at equal shares of the two paths, negative inside\n"
        "an obstacle. Costs of the straight path: sums over the spheres, from "
        f"{1000 * ACTIVATION_DISTANCE:.0f} mm clearance on;\nswept: the worst on the way to the "
        "neighbours. COLLISION: at the waypoint; on the way: only\nbetween it and a neighbour."
    )
    return "\n".join([title, "", *lines, "", explained, _deepest(demo), *_verdict(demo)])


def _millimetres(length: float | None) -> str:
    return "-" if length is None else f"{1000 * length:.1f}"


def _title(demo: Demo) -> str:
    found = "the planned path is free" if _is_free(demo) else "no free path was found"
    state = "collides" if _hits(demo) else "does not collide"
    return f"{demo.problem.name}: the straight path {state}, {found}"


def _is_free(demo: Demo) -> bool:
    return bool(demo.planned.free.item())


def _hits(demo: Demo) -> list[int]:
    return [row.waypoint for row in demo.straight.waypoints if row.collides]


def _facts(demo: Demo) -> str:
    return (
        f"Franka Panda, {demo.straight.spheres.shape[2]} spheres, "
        f"{len(demo.problem.obstacles)} obstacles"
    )


def _deepest(demo: Demo) -> str:
    row = demo.straight.deepest
    if row is None or row.clearance is None:
        return "straight path: all spheres are disabled"
    where = f"{row.obstacle} and {row.link} at waypoint {row.waypoint}"
    if row.collides:
        return f"straight path, deepest: {-1000 * row.clearance:.1f} mm, {where}"
    return f"straight path, closest: {1000 * row.clearance:.1f} mm, {where}"


def _verdict(demo: Demo) -> list[str]:
    """Lines about the planned path."""
    if not _is_free(demo):
        return ["planned path: none was found that is free"]
    return [
        "planned path: certified free on all of its motion, between waypoints too: the robot's",
        f"spheres come nowhere nearer than {_millimetres(demo.planned.clearance.item())} mm to an "
        "obstacle or, where they move, to each other. They are",
        "the usual ones of the Panda, which leave out parts of its surface.",
    ]


def summary(demo: Demo) -> dict[str, Any]:
    """Returns the report, ready for JSON; lengths and costs in metres."""
    deepest, planned = demo.straight.deepest, demo.planned
    return {
        "problem": demo.problem.name,
        "robot": "Franka Panda",
        "device": str(demo.device),
        "n_spheres": demo.straight.spheres.shape[2],
        "n_meshes": len(demo.problem.obstacles),
        "activation_distance": ACTIVATION_DISTANCE,
        "colliding_waypoints": _hits(demo),
        "deepest": None if deepest is None else deepest._asdict(),
        "waypoints": [row._asdict() for row in demo.straight.waypoints],
        "planned": {
            "free": _is_free(demo),
            "clearance": planned.clearance.item(),
            "length": planned.length.item(),
            "iterations": planned.iterations.item(),
            "joints": planned.joints[0].tolist(),
            "clearances": demo.planned_clearance.tolist(),
        },
    }


def check_joints(joints: Tensor, scene: RobotScene) -> PathCheck:
    """Clearance, cost and swept cost along joint values (horizon, n_joints)."""
    return check_spheres(
        scene.spheres(joints)[None],
        scene.world,
        activation_distance=ACTIVATION_DISTANCE,
        links=scene.robot.sphere_links,
        nearest=scene.clearance(joints) if scene.ignore else None,
    )


def _draw(demo: Demo, scene: RobotScene, joints: Tensor, output: Path) -> bool:
    paths = {"straight": joints.to(scene.world.device)}
    if _is_free(demo):
        paths["planned"] = demo.planned.joints[0]
    return draw(paths, scene, output, title=_title(demo), facts=_facts(demo))
