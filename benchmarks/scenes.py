"""What the benchmarks run on: meshes by name, scenes, spheres, the Panda's paths, and worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
from torch import Tensor

from benchmarks.harness import ROOT
from warp_collision import MeshWorld, RobotSpheres, signed_distance
from warp_collision.examples import load_panda, load_problem, straight_path

RADIUS = 0.04  # [m]
ACTIVATION_DISTANCE = 0.02  # [m]
MANY = 20_000  # spheres of most workloads
ROW = 20  # spheres in a row of the batch where nothing else says how many
DENSITY = 8.0  # meshes per m^3 of a scene
SIZE = 0.5  # [m] longest edge of the box of a mesh that stands alone
PROBLEM = "bookshelf_thin_1"
IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


class Placed(NamedTuple):
    """A mesh at a pose x, y, z, qw, qx, qy, qz in the world."""

    mesh: trimesh.Trimesh
    pose: np.ndarray | Sequence[float]


class Content(NamedTuple):
    """What a workload of costs consists of, on no device.

    Attributes:
        scenes: the meshes of each env.
        spheres: (batch, horizon, n_spheres, 4) x, y, z, radius [m].
        env_index: (batch,) int32, or None for one env.
    """

    scenes: list[list[Placed]]
    spheres: np.ndarray
    env_index: np.ndarray | None = None


@dataclass(frozen=True)
class Workload:
    """One line of the benchmark of costs.

    Attributes:
        name: what `--only` and the results call it.
        family: workloads of a family differ in size only.
        size: that size: meshes, triangles or spheres, whatever the family grows in.
        summary: what it is, for the tables.
        make: builds the content; the number of spheres, and of envs and trajectories, is
            multiplied by the factor that it is given.
        swept: whether the spheres move.
    """

    name: str
    family: str
    size: int
    summary: str
    make: Callable[[float], Content]
    swept: bool = False


@dataclass
class Problem:
    """A workload on a device, ready to run."""

    workload: Workload
    content: Content
    world: MeshWorld
    spheres: Tensor
    env_index: Tensor | None


def build(workload: Workload, device: torch.device | str = "cpu", scale: float = 1.0) -> Problem:
    """Builds the world, prepared, and the spheres of a workload; `scale` times as many."""
    content = workload.make(scale)
    index = content.env_index
    world = world_of(content.scenes, device)
    world.prepare()
    return Problem(
        workload,
        content,
        world,
        torch.from_numpy(content.spheres).to(device),
        None if index is None else torch.from_numpy(index).to(device),
    )


def world_of(scenes: Sequence[Sequence[Placed]], device: torch.device | str = "cpu") -> MeshWorld:
    """A world as `load` leaves it, an env for each scene."""
    world = MeshWorld(len(scenes), max(1, *map(len, scenes)), device)
    for env, scene in enumerate(scenes):
        world.load({f"mesh {i}": (m, tuple(p)) for i, (m, p) in enumerate(scene)}, env)
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
        made = trimesh.util.concatenate([trimesh.load_mesh(ROOT / "assets" / p) for p in paths])
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
    radii = np.full((len(centers), 1), RADIUS)
    return np.hstack([centers, radii]).astype(np.float32).reshape(-1, 1, width, 4)


def _count(number: int, scale: float) -> int:
    return max(1, round(number * scale))


def _inside(mesh: trimesh.Trimesh, rng: np.random.Generator, count: int) -> np.ndarray:
    world = world_of([[Placed(mesh, IDENTITY)]])
    found = np.empty((0, 3), np.float32)
    while len(found) < count:
        drawn = (rng.uniform(-0.5, 0.5, (count, 3)) * mesh.extents).astype(np.float32)
        distance = signed_distance(torch.from_numpy(drawn), world).distance
        found = np.vstack([found, drawn[distance.numpy() < 0.0]])
    return found[:count]


def near(name: str, count: int, scale: float) -> Content:
    """Spheres anywhere within twice the box of one mesh."""
    mesh, size = shape(name), (_count(count, scale), 3)
    centers = np.random.default_rng(1).uniform(-1.0, 1.0, size) * mesh.extents
    return Content([[Placed(mesh, IDENTITY)]], rows_of(centers))


def deep(name: str, count: int, scale: float) -> Content:
    """Spheres with their centers inside one mesh."""
    centers = _inside(shape(name), np.random.default_rng(2), _count(count, scale))
    return Content([[Placed(shape(name), IDENTITY)]], rows_of(centers))


def middle(name: str, count: int, scale: float) -> Content:
    """Spheres within 1 mm of the center of a ball, which is equally far from every triangle."""
    centers = np.random.default_rng(3).uniform(-1e-3, 1e-3, (_count(count, scale), 3))
    return Content([[Placed(shape(name), IDENTITY)]], rows_of(centers))


def scene(meshes: int, count: int, seed: int, scale: float) -> Content:
    """One env of many small meshes, spheres anywhere among them; sixty at any scale."""
    rng = np.random.default_rng(seed)
    placed, edge = scattered(rng, meshes)
    size = (max(60, _count(count, scale)), 3)
    return Content([placed], rows_of(rng.uniform(0.0, edge, size)))


def envs(n_envs: int, meshes: int, n_spheres: int, scale: float) -> Content:
    """One row of spheres for each env, every env with its own meshes and poses."""
    rng = np.random.default_rng(5)
    fields = [scattered(rng, meshes) for _ in range(_count(n_envs, scale))]
    spheres = np.full((len(fields), 1, n_spheres, 4), RADIUS, np.float32)
    spheres[..., :3] = rng.uniform(0.0, fields[0][1], (*spheres.shape[:3], 3))
    index = np.arange(len(fields), dtype=np.int32)
    return Content([placed for placed, _ in fields], spheres, index)


def free(_: float) -> Content:
    """One trajectory of 32 waypoints that comes near none of five meshes."""
    rng = np.random.default_rng(9)
    placed, edge = scattered(rng, 5)
    spheres = np.full((1, 32, 60, 4), RADIUS, np.float32)
    # Straight lines, beside the scene by its own width and more.
    begin, end = rng.uniform(2.0 * edge, 3.0 * edge, (2, 60, 3))
    spheres[0, ..., :3] = np.linspace(begin, end, 32)
    return Content([placed], spheres)


def bent_paths(
    batch: int, horizon: int = 32, problem: str = PROBLEM
) -> tuple[RobotSpheres, Any, Tensor]:
    """The Panda, a problem, and joint values (batch, horizon, 7): straight ways, bent at random."""
    problem, robot = load_problem(problem), load_panda()
    line = straight_path(problem, robot, horizon)
    along = torch.linspace(0.0, torch.pi, horizon)[:, None]
    drawn = np.random.default_rng(6).normal(0.0, 0.2, (batch, 3, 1, robot.n_joints))
    waves = torch.stack([torch.sin(k * along) / k for k in (1, 2, 3)])
    return robot, problem, line + (torch.from_numpy(drawn).float() * waves).sum(dim=1)


def panda(batch: int, scale: float = 1.0) -> Content:
    """The Panda on its way through a shelf."""
    robot, problem, joints = bent_paths(_count(batch, scale))
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


def _workloads() -> Iterator[Workload]:
    def one(
        name: str, size: int, summary: str, make: Any, *given: Any, family: str = ""
    ) -> Workload:
        family = family or name.removesuffix(f"-{size}")
        return Workload(name, family, size, summary, partial(make, *given), "-swept" in name)

    torus = "a torus of {} triangles"
    for n in (200, 1600, 16000, 80000):
        around = f"around {torus.format(n)}"
        yield one(f"near-torus-{n}", n, around, near, f"torus-{n}", MANY)
    for name, what in (("link", "a robot link"), ("kitchen", "kitchen pieces, thin and open")):
        yield one(f"near-{name}", 0, f"around {what}", near, name, MANY, family="near")
    inside = {"link": "a robot link", "ball-20480": "a ball of 20480 triangles"}
    for name in ("link", "torus-16000", "torus-80000", "ball-20480"):
        what = f"inside {inside.get(name, torus.format(name[6:]))}"
        yield one(f"deep-{name}", 0, what, deep, name, MANY, family="deep")
    ball = "ball-20480", 2_000
    yield one(f"middle-{ball[0]}", 0, "at the center of that ball", middle, *ball, family="middle")
    for n in (1, 10, 100, 1_000, 10_000):
        yield one(f"scene-{n}", n, f"among {n} meshes", scene, n, MANY, 4)
    for n in (60, 600, 6_000, 60_000, 600_000):
        what = f"{n} spheres around {torus.format(16000)}"
        yield one(f"spheres-{n}", n, what, near, "torus-16000", n)
    yield one("envs", 0, "256 envs of 10 meshes, 60 spheres each", envs, 256, 10, 60)
    for n in (1, 16, 1_024):
        what = f"Panda in a shelf, {n} x 32 x 59 spheres"
        yield one(f"panda-{n}", n, what, panda, n)
        yield one(f"panda-swept-{n}", n, f"{what}, moving", panda, n)
    yield one("tiny", 0, "1 x 1 x 60 spheres, 10 meshes: latency", scene, 10, 60, 7)
    far = "1 x 32 x 60 spheres, all far from 5 meshes"
    yield one("free", 0, far, free)
    yield one("free-swept", 0, f"{far}, moving", free, family="free")


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _workloads()}
