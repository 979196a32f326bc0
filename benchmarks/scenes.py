"""What the benchmarks run on: meshes by name, scenes, spheres, the Panda's paths, and worlds.

The workloads of `costs` are in scenes.yaml, by the functions here that make them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
import yaml
from torch import Tensor

from benchmarks.harness import ROOT
from warp_collision import MeshWorld, RobotSpheres, signed_distance
from warp_collision.examples import load_panda, load_problem, straight_path

RADIUS = 0.04  # [m]
ACTIVATION_DISTANCE = 0.02  # [m]
ROW = 20  # spheres in a row of the batch where nothing else says how many
DENSITY = 8.0  # meshes per m^3 of a scene
SIZE = 0.5  # [m] longest edge of the box of a mesh that stands alone
ASSETS = ROOT / "assets"
PANDA = ASSETS / "panda" / "panda.urdf"
IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
WORKLOADS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text()
)


class Placed(NamedTuple):
    """A mesh at a pose x, y, z, qw, qx, qy, qz in the world."""

    mesh: trimesh.Trimesh
    pose: np.ndarray | Sequence[float]


class Content(NamedTuple):
    """Meshes and spheres, on no device.

    Attributes:
        scenes: the meshes of each env.
        spheres: (batch, horizon, n_spheres, 4) float32 x, y, z, radius [m].
        env_index: (batch,) int32, or None for one env.
    """

    scenes: list[list[Placed]]
    spheres: np.ndarray
    env_index: np.ndarray | None = None


class Problem(NamedTuple):
    """The same on a device, in a world that is prepared."""

    content: Content
    world: MeshWorld
    spheres: Tensor
    env_index: Tensor | None
    swept: bool


def build(name: str, device: torch.device | str = "cpu", scale: float = 1.0) -> Problem:
    """A workload by its name; `scale` times as many spheres, envs or trajectories."""
    given = dict(WORKLOADS[name])
    make, swept = globals()[given.pop("make")], given.pop("swept", False)
    for key in ("count", "n_envs", "batch"):
        if key in given:
            given[key] = max(1, round(given[key] * scale))
    content = make(**given)
    world = world_of(content.scenes, device)
    world.prepare()
    index = content.env_index
    index = None if index is None else torch.from_numpy(index).to(device)
    return Problem(content, world, torch.from_numpy(content.spheres).to(device), index, swept)


def world_of(scenes: Sequence[Sequence[Placed]], device: torch.device | str = "cpu") -> MeshWorld:
    """A world as `load` leaves it, an env for each scene."""
    world = MeshWorld(len(scenes), max(1, *map(len, scenes)), device)
    for env, placed in enumerate(scenes):
        world.load({f"mesh {i}": (m, tuple(p)) for i, (m, p) in enumerate(placed)}, env)
    return world


@cache
def shape(name: str) -> trimesh.Trimesh:
    """A mesh, centered, its longest edge 0.5 m.

    Args:
        name: "torus-T" or "ball-T" with about T triangles, "link" of the robot, or "kitchen", an
            open mesh of two thin pieces.
    """
    kind, _, size = name.partition("-")
    if kind == "torus":
        sections = max(3, round((int(size) / 2) ** 0.5))
        made = trimesh.creation.torus(0.18, 0.07, major_sections=sections, minor_sections=sections)
    elif kind == "ball":
        made = trimesh.creation.icosphere(max(0, round(np.log(int(size) / 20) / np.log(4))), 0.25)
    else:
        kitchen = ["kitchen/countertop.stl", "kitchen/oven.stl"]
        paths = kitchen if kind == "kitchen" else ["panda/meshes/link5.stl"]
        made = trimesh.util.concatenate([trimesh.load_mesh(ASSETS / p) for p in paths])
    made.apply_translation(-made.bounds.mean(axis=0))
    return made.apply_scale(SIZE / made.extents.max())


@cache
def clutter() -> tuple[trimesh.Trimesh, ...]:
    """Small meshes of different kinds that fill a scene, each about 0.2 m."""
    return (
        trimesh.creation.icosphere(2, 0.1),
        trimesh.creation.box((0.2, 0.15, 0.1)),
        trimesh.creation.torus(0.1, 0.03),
        shape("link").copy().apply_scale(0.4),
    )


def random_poses(rng: np.random.Generator, count: int, edge: float) -> np.ndarray:
    """Poses (count, 7) x, y, z, qw, qx, qy, qz with centers in a cube from 0 to ``edge`` [m]."""
    turns = rng.normal(size=(count, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    return np.hstack([rng.uniform(0.0, edge, (count, 3)), turns]).astype(np.float32)


def scattered(
    rng: np.random.Generator, meshes: int, kinds: Sequence[trimesh.Trimesh] = ()
) -> tuple[list[Placed], float]:
    """Small meshes at constant density in a cube, and its edge [m]."""
    edge = (max(1, meshes) / DENSITY) ** (1.0 / 3.0)
    kinds = kinds or clutter()
    poses = random_poses(rng, meshes, edge)
    return [Placed(kinds[i % len(kinds)], pose) for i, pose in enumerate(poses)], edge


def rows_of(centers: np.ndarray) -> np.ndarray:
    """Spheres (batch, 1, n, 4) of centers (count, 3), the count rounded down to full rows."""
    width = min(ROW, len(centers))
    centers = centers[: len(centers) // width * width]
    return with_radius(centers.reshape(-1, 1, width, 3))


def with_radius(centers: np.ndarray, radius: float = RADIUS) -> np.ndarray:
    """Spheres (..., 4) float32 of centers (..., 3)."""
    return np.insert(centers, 3, radius, axis=-1).astype(np.float32)


def near(mesh: str, count: int) -> Content:
    """Spheres anywhere within twice the box of one mesh."""
    centers = np.random.default_rng(1).uniform(-1.0, 1.0, (count, 3)) * shape(mesh).extents
    return Content([[Placed(shape(mesh), IDENTITY)]], rows_of(centers))


def deep(mesh: str, count: int) -> Content:
    """Spheres with their centers inside one mesh."""
    rng, placed = np.random.default_rng(2), [Placed(shape(mesh), IDENTITY)]
    world, found = world_of([placed]), np.empty((0, 3), np.float32)
    while len(found) < count:
        drawn = (rng.uniform(-0.5, 0.5, (count, 3)) * shape(mesh).extents).astype(np.float32)
        distance = signed_distance(torch.from_numpy(drawn), world).distance
        found = np.vstack([found, drawn[distance.numpy() < 0.0]])
    return Content([placed], rows_of(found[:count]))


def middle(mesh: str, count: int) -> Content:
    """Spheres within 1 mm of the center of a ball, which is equally far from every triangle."""
    centers = np.random.default_rng(3).uniform(-1e-3, 1e-3, (count, 3))
    return Content([[Placed(shape(mesh), IDENTITY)]], rows_of(centers))


def scene(meshes: int, count: int, seed: int = 4) -> Content:
    """One env of many small meshes, spheres anywhere among them; sixty at least."""
    rng = np.random.default_rng(seed)
    placed, edge = scattered(rng, meshes)
    return Content([placed], rows_of(rng.uniform(0.0, edge, (max(60, count), 3))))


def gaps(meshes: int, count: int) -> Content:
    """Spheres between the meshes of a scene that touch none and cost nothing."""
    content = scene(meshes, count)
    centers = torch.from_numpy(content.spheres[..., :3].reshape(-1, 3))
    distance = signed_distance(centers, world_of(content.scenes)).distance
    free = distance > RADIUS + ACTIVATION_DISTANCE + 1e-4
    return content._replace(spheres=rows_of(centers[free].numpy()))


def tori(meshes: int, count: int) -> Content:
    """Spheres anywhere among tori of 512 triangles."""
    torus = trimesh.creation.torus(0.15, 0.05, major_sections=16, minor_sections=16)
    placed, edge = scattered(np.random.default_rng(71), meshes, (torus,))
    return Content([placed], rows_of(np.random.default_rng(72).uniform(0.0, edge, (count, 3))))


def envs(n_envs: int, meshes: int, n_spheres: int) -> Content:
    """One row of spheres for each env, every env with its own meshes and poses."""
    rng = np.random.default_rng(5)
    fields = [scattered(rng, meshes) for _ in range(n_envs)]
    spheres = with_radius(rng.uniform(0.0, fields[0][1], (n_envs, 1, n_spheres, 3)))
    return Content([placed for placed, _ in fields], spheres, np.arange(n_envs, dtype=np.int32))


def free() -> Content:
    """One trajectory of 32 waypoints that comes near none of five meshes."""
    rng = np.random.default_rng(9)
    placed, edge = scattered(rng, 5)
    # Straight lines, beside the scene by its own width and more.
    begin, end = rng.uniform(2.0 * edge, 3.0 * edge, (2, 60, 3))
    return Content([placed], with_radius(np.linspace(begin, end, 32)[None]))


def bent_paths(batch: int, problem: str) -> tuple[RobotSpheres, Any, Tensor]:
    """The Panda, a problem, and joint values (batch, 32, 7): straight ways, bent at random."""
    problem, robot = load_problem(problem), load_panda()
    line = straight_path(problem, robot, 32)
    along = torch.linspace(0.0, torch.pi, 32)[:, None]
    drawn = np.random.default_rng(6).normal(0.0, 0.2, (batch, 3, 1, robot.n_joints))
    waves = torch.stack([torch.sin(k * along) / k for k in (1, 2, 3)])
    return robot, problem, line + (torch.from_numpy(drawn).float() * waves).sum(dim=1)


@cache
def problems() -> dict[str, dict[str, Any]]:
    """The first eight of each of the seven sets of MotionBenchMaker, as mappings."""
    found = [json.loads(file.read_text()) for file in sorted(ASSETS.glob("p*/*.json"))]
    return {name: problem for some in found for name, problem in some.items()}


def panda(batch: int) -> Content:
    """The Panda on its way through a shelf."""
    robot, problem, joints = bent_paths(batch, "bookshelf_thin_1")
    shapes = [(o.geometry, o.pose) for o in problem.obstacles.values()]
    placed = [Placed(trimesh.Trimesh(*s.tessellate(), process=False), p) for s, p in shapes]
    return Content([placed], np.ascontiguousarray(robot(joints).float().numpy()))


def panda_among(count: int) -> list[Placed]:
    """Boxes and cylinders of the Panda's problem, those near its path first; and clutter."""
    content = panda(1)
    centers = content.spheres[..., :3]
    placed = sorted(
        content.scenes[0],
        key=lambda p: float(np.linalg.norm(centers - np.array(p.pose)[:3], axis=-1).min()),
    )[:count]
    rng, kinds = np.random.default_rng(17), clutter()
    poses = random_poses(rng, count - len(placed), 1.6) - np.array([0.8, 0.8, 0.2, 0, 0, 0, 0])
    return placed + [Placed(kinds[i % len(kinds)], pose) for i, pose in enumerate(poses)]
