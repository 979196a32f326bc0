"""The demo: a Franka Panda on a motion-planning problem, checked along the straight path.

The path is straight in joint space, which no planner was asked about, so it runs into things: the
table says where, how deep, and what both costs make of it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimesh
from torch import Tensor

from warp_collision import MeshWorld
from warp_collision.cli.path_check import PathCheck, check_spheres
from warp_collision.cli.terminal import print_text
from warp_collision.cli.text_table import align
from warp_collision.io import Obstacle, load_world_mapping
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.obstacles.shapes import Shape, mesh_of
from warp_collision.robot import RobotSpheres

DEFAULT_PROBLEM = "cage_2"
ACTIVATION_DISTANCE = 0.02  # m

_ASSETS = "warp_collision.assets"


@dataclass(frozen=True)
class Problem:
    """A motion-planning problem: joint values from start to goal [rad], among obstacles."""

    name: str
    joint_names: list[str]
    start: list[float]
    goal: list[float]
    obstacles: dict[str, Obstacle]


def run_demo(
    *,
    problem: str | None = None,
    waypoints: int = 32,
    output: str | os.PathLike[str] = "demo.png",
    report: str | os.PathLike[str] = "demo-report.json",
    picture: bool = True,
) -> int:
    """Checks a robot's straight path through a problem; prints a table, writes report and picture.

    Args:
        problem: One of `problem_names()`; None: `DEFAULT_PROBLEM`.
        waypoints: Number of waypoints of the path, at least 2.
        output: The picture, a PNG file.
        report: The report: JSON if its name ends in .json, else the printed table.
        picture: Whether to draw the picture. Without the extra `viz` the demo says how to install
            it, and does the rest.

    Returns:
        0, the exit status: that the path collides is what the demo is for.

    Raises:
        ValueError: Unknown problem, or fewer than 2 waypoints.
        FileNotFoundError: The folder of a file to write does not exist.
    """
    if waypoints < 2:
        raise ValueError(f"waypoints must be at least 2, got {waypoints}")
    output, report = Path(output), Path(report)
    for name, path in (("output", output), ("report", report)):
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{name} must be in an existing folder, got {str(path)!r}")
    task = load_problem(DEFAULT_PROBLEM if problem is None else problem)
    robot = load_panda()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    with quiet_warp(), _progress("checking the path (compiles the kernels the first time)"):
        joints = straight_path(task, robot, waypoints)
        check = check_path(task, robot, joints, device)
    table = format_table(task, check, device)
    print_text(table)
    if report.suffix == ".json":
        report.write_text(json.dumps(summary(task, check, device), indent=1) + "\n")
    else:
        report.write_text(table + "\n", encoding="utf-8")
    print_text(f"report: {report}")
    if picture:
        _draw(task, robot, joints, check, output)
    return 0


def problem_names() -> list[str]:
    """Returns the names of the problems that come with the package."""
    return list(_read_problems())


def load_problem(name: str) -> Problem:
    """Returns one of the problems that come with the package, its obstacles as exact shapes.

    Raises:
        ValueError: There is no such problem.
    """
    problems = _read_problems()
    if name not in problems:
        raise ValueError(f"problem must be one of {', '.join(problems)}, got {name!r}")
    entry = problems[name]
    kinds = {kind: entry[kind] for kind in ("cuboid", "cylinder")}
    obstacles = load_world_mapping(kinds)
    return Problem(name, entry["joint_names"], entry["start"], entry["goal"], obstacles)


def _read_problems() -> dict[str, dict[str, Any]]:
    folder = files(_ASSETS) / "problems"
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda f: f.name
    )
    return {name: entry for file in found for name, entry in json.loads(file.read_text()).items()}


def load_panda() -> RobotSpheres:
    """Returns the Franka Panda with its 59 spheres."""
    return RobotSpheres(Path(str(files(_ASSETS) / "panda" / "panda.urdf")))


def straight_path(problem: Problem, robot: RobotSpheres, waypoints: int) -> Tensor:
    """Returns joint values (waypoints, n_joints) float32 on the line from start to goal.

    Raises:
        ValueError: The problem is for other joints than the robot has.
    """
    if tuple(problem.joint_names) != robot.joint_names:
        raise ValueError(
            f"problem {problem.name!r} must be for the joints {robot.joint_names}, "
            f"got {problem.joint_names}"
        )
    share = torch.linspace(0.0, 1.0, waypoints, dtype=torch.float64)[:, None]
    start, goal = (torch.tensor(q, dtype=torch.float64) for q in (problem.start, problem.goal))
    return torch.lerp(start, goal, share).float()


def check_path(
    problem: Problem, robot: RobotSpheres, joints: Tensor, device: torch.device
) -> PathCheck:
    """Computes clearance, cost and swept cost along a path of joint values (horizon, n_joints)."""
    world = MeshWorld(max_meshes=len(problem.obstacles), device=device)
    world.load(problem.obstacles)
    spheres = robot(joints.to(device))[None]
    return check_spheres(
        spheres, world, activation_distance=ACTIVATION_DISTANCE, links=robot.sphere_links
    )


def format_table(problem: Problem, check: PathCheck, device: torch.device) -> str:
    """Returns the table that the demo prints, lengths in mm."""
    cells = [("waypoint", "clearance [mm]", "mesh", "link", "cost [mm]", "swept cost [mm]", "")]
    for row in check.waypoints:
        on_the_way = "on the way" if row.collides_on_the_way else ""
        cells.append(
            (
                str(row.waypoint),
                f"{1000 * row.clearance:.1f}",
                row.mesh,
                row.link,
                f"{1000 * row.cost:.1f}",
                f"{1000 * row.swept_cost:.1f}",
                "COLLISION" if row.collides else on_the_way,
            )
        )
    lines = align(cells, right=(0, 1, 4, 5))
    title = f"{_title(problem, check)}\n{_facts(problem, check)}, on {device}"
    explained = (
        "clearance: the smallest of all spheres, negative inside a mesh. Costs: sums over the\n"
        f"spheres, from {1000 * ACTIVATION_DISTANCE:.0f} mm clearance on; swept: the worst on the "
        "way to the neighbours.\nCOLLISION: at the waypoint; on the way: only between it and a "
        "neighbour."
    )
    return "\n".join([title, "", *lines, "", explained, _conclusion(check)])


def _title(problem: Problem, check: PathCheck) -> str:
    hits = sum(row.collides for row in check.waypoints)
    count = len(check.waypoints)
    return f"{problem.name}: the straight path collides at {hits} of {count} waypoints"


def _facts(problem: Problem, check: PathCheck) -> str:
    return (
        f"Franka Panda, {check.spheres.shape[2]} spheres, {len(problem.obstacles)} obstacles; "
        "the path is straight in joint space"
    )


def _conclusion(check: PathCheck) -> str:
    row = check.deepest
    where = f"{row.mesh} and {row.link} at waypoint {row.waypoint}"
    if row.collides:
        return f"deepest: {-1000 * row.clearance:.1f} mm, {where}"
    return f"closest: {1000 * row.clearance:.1f} mm, {where}"


def summary(problem: Problem, check: PathCheck, device: torch.device) -> dict[str, Any]:
    """Returns the report, ready for JSON; lengths and costs in metres."""
    return {
        "problem": problem.name,
        "robot": "Franka Panda",
        "device": str(device),
        "n_spheres": check.spheres.shape[2],
        "n_meshes": len(problem.obstacles),
        "activation_distance": ACTIVATION_DISTANCE,
        "colliding_waypoints": [row.waypoint for row in check.waypoints if row.collides],
        "deepest": check.deepest._asdict(),
        "waypoints": [row._asdict() for row in check.waypoints],
    }


def _draw(
    problem: Problem, robot: RobotSpheres, joints: Tensor, check: PathCheck, output: Path
) -> None:
    from warp_collision.viewer.path_picture import PathPicture, draw_path

    try:
        import matplotlib  # noqa: F401  # asked for now, so that nothing is rendered in vain
    except ModuleNotFoundError as error:
        print_text(
            f"no picture: {error.name} is not installed; "
            "pip install 'warp-collision[viz]' brings what it needs"
        )
        return
    hit = check.mesh[check.clearance < 0.0].unique().tolist()
    row = check.deepest
    picture = PathPicture(
        obstacles=[_placed(body, pose) for body, pose, *_ in problem.obstacles.values()],
        hit_obstacles=hit,
        start=_robot_meshes(robot, joints[0]),
        goal=_robot_meshes(robot, joints[-1]),
        spheres=check.spheres[0].double().numpy(),
        cost=check.cost[0].double().numpy(),
        clearance=check.clearance[0].double().numpy(),
        title=_title(problem, check),
        facts=_facts(problem, check),
        callout=f"{row.link}: {-1000 * row.clearance:.0f} mm into {row.mesh}",
    )
    with _progress("drawing the picture") as progress:
        draw_path(picture, output, progress)
    print_text(f"picture: {output}")


def _placed(
    body: trimesh.Trimesh | Shape, pose: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    world_from_mesh = trimesh.transformations.quaternion_matrix(pose[3:])
    world_from_mesh[:3, 3] = pose[:3]
    return _transformed(mesh_of(body), world_from_mesh)


def _transformed(mesh: trimesh.Trimesh, transform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return trimesh.transform_points(mesh.vertices, transform), np.asarray(mesh.faces)


def _robot_meshes(robot: RobotSpheres, joints: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    world_from_link = robot.link_transforms(joints).double().numpy()
    bodies = []
    for item in robot.link_meshes:
        mesh = trimesh.load_mesh(item.path)
        link = robot.link_names.index(item.link)
        bodies.append(_transformed(mesh, world_from_link[link] @ item.link_from_mesh))
    return bodies


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Callable[[float], None]]:
    """Shows progress on the standard error stream while it is a terminal and rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        yield lambda fraction: None
        return
    columns = (SpinnerColumn(), TextColumn(title), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(title, total=None)
        yield lambda fraction: bar.update(task, total=1.0, completed=fraction)
