"""Pictures of joint paths: scenes and clearance curves of a robot among obstacles."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import trimesh
from torch import Tensor

from warp_collision.cli.path_check import PathCheck, check_spheres
from warp_collision.cli.robot_scene import RobotScene
from warp_collision.cli.terminal import print_text
from warp_collision.io import scene_meshes
from warp_collision.io.placing import matrix_from
from warp_collision.obstacles.shapes import mesh_of
from warp_collision.planning import PlannedPaths
from warp_collision.viewer.path_picture import draw_paths
from warp_collision.viewer.picture_data import (
    PLAIN,
    PLAIN_ACCENT,
    PROVEN,
    PROVEN_ACCENT,
    Body,
    ClearanceCurve,
    Floats,
    PathPicture,
    PathScene,
)

ACTIVATION_DISTANCE = 0.02  # m, of the costs that are drawn
_CURVE_POINTS = 385  # of a clearance curve
_BETWEEN = 5  # positions of a proven path at which the robot is drawn
_TRAIL_POINTS = 400
_FAR = 100.0  # m, the largest clearance that is drawn


class DrawnPath(NamedTuple):
    """A path to draw.

    Attributes:
        joints: (horizon, n_joints).
        name: what its curve is called.
        heading: one line above the scene.
        is_proven: whether it is proven free.
    """

    joints: Tensor
    name: str
    heading: str
    is_proven: bool


def evenly_along(joints: Tensor, count: int) -> Tensor:
    """(count, n_joints) evenly spaced by length along a path (horizon, n_joints)."""
    steps = torch.linalg.vector_norm(joints[1:] - joints[:-1], dim=-1).double()
    ends = steps.cumsum(0)
    places = torch.linspace(0.0, 1.0, count, dtype=torch.float64, device=joints.device) * ends[-1]
    segment = torch.searchsorted(ends, places).clamp(max=len(steps) - 1)
    share = (places - (ends - steps)[segment]) / steps[segment].clamp(min=1e-12)
    share = share.clamp(0.0, 1.0).to(joints.dtype)[:, None]
    return torch.lerp(joints[segment], joints[segment + 1], share)


def clearance_along(joints: Tensor, scene: RobotScene) -> Tensor:
    """Smallest clearance (n,) [m] to an obstacle at joint values (n, n_joints)."""
    return scene.clearance(joints).clearance[0].amin(-1).cpu()


def check_joints(joints: Tensor, scene: RobotScene) -> PathCheck:
    """Clearance, cost and swept cost along joint values (horizon, n_joints)."""
    return check_spheres(
        scene.spheres(joints)[None],
        scene.world,
        activation_distance=ACTIVATION_DISTANCE,
        links=scene.robot.sphere_links,
        nearest=scene.clearance(joints) if scene.ignore else None,
    )


def draw(
    paths: list[DrawnPath],
    scene: RobotScene,
    output: Path,
    *,
    title: str,
    facts: str,
    verdict: list[str],
) -> bool:
    """Draws one or two paths with the same ends into a PNG file.

    Without matplotlib it says so instead, and returns false.
    """
    if importlib.util.find_spec("matplotlib") is None:
        print_text(
            "no picture: matplotlib is not installed; "
            "pip install 'warp-collision[viz]' brings what it needs",
            sys.stderr,
        )
        return False
    obstacles = [
        _transformed(mesh_of(item.geometry), matrix_from(item.pose))
        for item in scene_meshes(scene.world.to_scene()).values()
    ]
    ends = [_robot_meshes(scene, paths[0].joints[index]) for index in (0, -1)]
    picture = PathPicture(
        scenes=[_scene(path, scene, obstacles, ends) for path in paths],
        curves=[_curve(path, scene) for path in paths],
        title=title,
        facts=facts,
        verdict=verdict,
    )
    with show_progress("drawing the picture") as progress:
        draw_paths(picture, output, progress)
    return True


def picture_verdict(planned: PlannedPaths) -> list[str]:
    """Lines of a picture about the first of planned paths."""
    if not planned.free[0].item():
        return ["no free path was found"]
    clearance = planned.clearance[0].item()
    if math.isnan(clearance):  # of a first path
        touch = ["the spheres touch no obstacle and,", "where they move, not each other."]
    else:
        touch = [
            "the spheres come nowhere nearer than",
            f"{1000 * clearance:.1f} mm to an obstacle or,",
            "where they move, to each other.",
        ]
    return ["Certified on all of the planned motion:", *touch]


def _scene(
    path: DrawnPath,
    scene: RobotScene,
    obstacles: list[Body],
    ends: list[list[Body]],
) -> PathScene:
    check = check_joints(evenly_along(path.joints, len(path.joints)), scene)
    hit = check.obstacle[check.clearance < 0.0].unique().tolist()
    row, callout = check.deepest, ""
    if row is not None and row.clearance is not None:
        callout = f"{row.link}: {-1000 * row.clearance:.0f} mm into {row.obstacle}"
    trail = scene.spheres(evenly_along(path.joints, _TRAIL_POINTS))[:, -1, :3]
    cost = check.cost[0].double().numpy()
    between = []
    if path.is_proven:  # nothing of it is in collision: links are clearer than spheres then
        cost = np.zeros_like(cost)
        inner = evenly_along(path.joints, _BETWEEN + 2)[1:-1]
        between = [_moved(_robot_meshes(scene, joints), ends[0]) for joints in inner]
    return PathScene(
        obstacles=obstacles,
        hit_obstacles=hit,
        start=ends[0],
        goal=ends[1],
        spheres=check.spheres[0].double().numpy(),
        cost=cost,
        clearance=check.clearance[0].double().numpy(),
        heading=path.heading,
        callout=callout,
        between=between,
        trail=trail.double().cpu().numpy(),
        tint=PROVEN if path.is_proven else PLAIN,
        accent=PROVEN_ACCENT if path.is_proven else PLAIN_ACCENT,
    )


def _moved(bodies: list[Body], others: list[Body]) -> list[Body]:
    """Bodies whose position differs from that of the same body in another list."""
    pairs = zip(bodies, others, strict=True)
    return [body for body, other in pairs if not np.allclose(body[0], other[0], atol=1e-3)]


def _curve(path: DrawnPath, scene: RobotScene) -> ClearanceCurve:
    smallest = clearance_along(evenly_along(path.joints, _CURVE_POINTS), scene)
    smallest = smallest.clamp(max=_FAR)  # where there is nothing to hit
    return ClearanceCurve(
        position=np.linspace(0.0, 1.0, _CURVE_POINTS),
        clearance=smallest.double().numpy(),
        label=path.name,
        accent=PROVEN_ACCENT if path.is_proven else PLAIN_ACCENT,
    )


def _transformed(mesh: trimesh.Trimesh, transform: Floats) -> Body:
    return trimesh.transform_points(mesh.vertices, transform), np.asarray(mesh.faces)


def _robot_meshes(scene: RobotScene, joints: Tensor) -> list[Body]:
    """The visual meshes of the links; all spheres instead if a mesh cannot be read."""
    robot, device = scene.robot, scene.world.device
    transforms = robot.link_transforms(joints.to(device), scene.base_pose)
    world_from_link = transforms.double().cpu().numpy()
    bodies = []
    try:
        for item in robot.link_meshes:
            mesh = trimesh.load_mesh(item.path)
            link = robot.link_names.index(item.link)
            bodies.append(_transformed(mesh, world_from_link[link] @ item.link_from_mesh))
    except (OSError, ValueError, ImportError):
        bodies = []
    if bodies:
        return bodies
    ball = trimesh.creation.icosphere(subdivisions=2)
    return [
        (sphere[3] * ball.vertices + sphere[:3], np.asarray(ball.faces))
        for sphere in scene.spheres(joints).double().cpu().numpy()
        if sphere[3] > 0.0
    ]


@contextlib.contextmanager
def show_progress(title: str) -> Iterator[Callable[[float], None]]:
    """Shows progress on the standard error stream while it is a terminal and rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        yield lambda fraction: None
        return
    columns = (SpinnerColumn(), TextColumn(title), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    if not console.is_terminal:  # a disabled bar of old versions still ends with an empty line
        yield lambda fraction: None
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda fraction: bar.update(task, total=1.0, completed=fraction)
