"""The workloads, by name and as data: which meshes, which spheres, which of the two costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import trimesh
from torch import Tensor

from benchmarks.shapes import Array, clutter, random_poses, shape
from warp_collision import MeshWorld, signed_distance
from warp_collision.examples import load_panda, load_problem, straight_path
from warp_collision.obstacles.shapes import mesh_of

RADIUS = 0.04  # [m]
ACTIVATION_DISTANCE = 0.02  # [m]
ROW = 20  # spheres in a row of the batch where nothing else says how many
DENSITY = 8.0  # meshes per m^3 of a scene
PROBLEM = "bookshelf_thin_1"
IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


class Placed(NamedTuple):
    """A mesh at a pose x, y, z, qw, qx, qy, qz in the world."""

    mesh: trimesh.Trimesh
    pose: Array | Sequence[float]


@dataclass(frozen=True)
class Content:
    """What a workload consists of, on no device.

    Attributes:
        scenes: the meshes of each env.
        spheres: (batch, horizon, n_spheres, 4) x, y, z, radius [m].
        env_index: (batch,) int32, or None for one env.
    """

    scenes: list[list[Placed]]
    spheres: Array
    env_index: np.ndarray | None = None


@dataclass(frozen=True)
class Workload:
    """One line of the benchmark.

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


def build(
    workload: Workload,
    device: torch.device | str = "cpu",
    scale: float = 1.0,
    prepared: bool = True,
) -> Problem:
    """Builds the world and the spheres of a workload.

    Args:
        workload: which one.
        device: where to.
        scale: factor of the number of spheres.
        prepared: whether the world has its field of distances built.
    """
    content = workload.make(scale)
    most = max(len(scene) for scene in content.scenes)
    world = MeshWorld(len(content.scenes), max(1, most), device)
    for env, scene in enumerate(content.scenes):
        world.load({f"mesh {i}": (m, tuple(p)) for i, (m, p) in enumerate(scene)}, env)
    if prepared:
        world.prepare()
    env_index = content.env_index
    return Problem(
        workload,
        content,
        world,
        torch.from_numpy(content.spheres).to(device),
        None if env_index is None else torch.from_numpy(env_index).to(device),
    )


def _count(number: int, scale: float) -> int:
    return max(1, round(number * scale))


def _rows(centers: np.ndarray) -> Array:
    """Spheres (batch, 1, n, 4) of centers (count, 3), the count rounded down to full rows."""
    width = min(ROW, len(centers))
    centers = centers[: len(centers) // width * width]
    radii = np.full((len(centers), 1), RADIUS)
    return np.hstack([centers, radii]).astype(np.float32).reshape(-1, 1, width, 4)


def near(name: str, count: int = 20_000) -> Callable[[float], Content]:
    """Spheres anywhere within twice the box of one mesh."""

    def make(scale: float) -> Content:
        mesh = shape(name)
        rng = np.random.default_rng(1)
        centers = rng.uniform(-1.0, 1.0, (_count(count, scale), 3)) * mesh.extents
        return Content([[Placed(mesh, IDENTITY)]], _rows(centers))

    return make


def deep(name: str, count: int = 20_000) -> Callable[[float], Content]:
    """Spheres with their centers inside one mesh."""

    def make(scale: float) -> Content:
        mesh = shape(name)
        rng = np.random.default_rng(2)
        wanted = _count(count, scale)
        world = MeshWorld(1, 1, "cpu")
        world.add("mesh", mesh)
        inside = np.empty((0, 3), np.float32)
        while len(inside) < wanted:
            drawn = (rng.uniform(-0.5, 0.5, (wanted, 3)) * mesh.extents).astype(np.float32)
            distance = signed_distance(torch.from_numpy(drawn), world).distance
            inside = np.vstack([inside, drawn[distance.numpy() < 0.0]])
        return Content([[Placed(mesh, IDENTITY)]], _rows(inside[:wanted]))

    return make


def middle(name: str, count: int = 2_000) -> Callable[[float], Content]:
    """Spheres within 1 mm of the center of a ball, which is equally far from every triangle."""

    def make(scale: float) -> Content:
        rng = np.random.default_rng(3)
        centers = rng.uniform(-1e-3, 1e-3, (_count(count, scale), 3))
        return Content([[Placed(shape(name), IDENTITY)]], _rows(centers))

    return make


def scattered(rng: np.random.Generator, meshes: int) -> tuple[list[Placed], float]:
    """Small meshes at constant density in a cube, and its edge [m]."""
    edge = (meshes / DENSITY) ** (1.0 / 3.0)
    kinds = clutter()
    poses = random_poses(rng, meshes, edge)
    return [Placed(kinds[i % len(kinds)], pose) for i, pose in enumerate(poses)], edge


def scene(meshes: int, count: int = 20_000) -> Callable[[float], Content]:
    """One env of many small meshes, spheres anywhere among them."""

    def make(scale: float) -> Content:
        rng = np.random.default_rng(4)
        placed, edge = scattered(rng, meshes)
        return Content([placed], _rows(rng.uniform(0.0, edge, (_count(count, scale), 3))))

    return make


def envs(n_envs: int, meshes: int, n_spheres: int) -> Callable[[float], Content]:
    """One row of spheres for each env, every env with its own meshes and poses."""

    def make(scale: float) -> Content:
        rng = np.random.default_rng(5)
        fields = [scattered(rng, meshes) for _ in range(_count(n_envs, scale))]
        spheres = np.full((len(fields), 1, n_spheres, 4), RADIUS, np.float32)
        spheres[..., :3] = rng.uniform(0.0, fields[0][1], (*spheres.shape[:3], 3))
        index = np.arange(len(fields), dtype=np.int32)
        return Content([placed for placed, _ in fields], spheres, index)

    return make


def panda(batch: int, horizon: int = 32) -> Callable[[float], Content]:
    """The Panda on its way through a shelf: the straight path, bent at random."""

    def make(scale: float) -> Content:
        problem, robot = load_problem(PROBLEM), load_panda()
        rng = np.random.default_rng(6)
        line = straight_path(problem, robot, horizon)
        share = torch.linspace(0.0, torch.pi, horizon)[:, None]
        rows = _count(batch, scale)
        bends = torch.from_numpy(rng.normal(0.0, 0.2, (rows, 3, 1, robot.n_joints))).float()
        waves = torch.stack([torch.sin(k * share) / k for k in (1, 2, 3)])
        spheres = robot(line + (bends * waves).sum(dim=1)).float().numpy()
        placed = [Placed(mesh_of(body), pose) for body, pose, *_ in problem.obstacles.values()]
        return Content([placed], np.ascontiguousarray(spheres))

    return make


def tiny() -> Callable[[float], Content]:
    """One waypoint of sixty spheres among ten meshes; what counts is the latency."""

    def make(_: float) -> Content:
        rng = np.random.default_rng(7)
        placed, edge = scattered(rng, 10)
        return Content([placed], _rows(rng.uniform(0.0, edge, (60, 3))))

    return make


def free() -> Callable[[float], Content]:
    """One trajectory of 32 waypoints that comes near none of five meshes."""

    def make(_: float) -> Content:
        rng = np.random.default_rng(9)
        placed, edge = scattered(rng, 5)
        spheres = np.full((1, 32, 60, 4), RADIUS, np.float32)
        # Straight lines, beside the scene by its own width and more.
        begin, end = rng.uniform(2.0 * edge, 3.0 * edge, (2, 60, 3))
        spheres[0, ..., :3] = np.linspace(begin, end, 32)
        return Content([placed], spheres)

    return make


def _all() -> list[Workload]:
    found = [
        Workload(f"near-torus-{t}", "near-torus", int(t), f"around a torus of {t} triangles", m)
        for t, m in ((t, near(f"torus-{t}")) for t in ("200", "1600", "16000", "80000"))
    ]
    for name, what in (("link", "a robot link"), ("kitchen", "kitchen pieces, thin and open")):
        found.append(Workload(f"near-{name}", "near", 0, f"around {what}", near(name)))
    for name, what in (
        ("link", "a robot link"),
        ("torus-16000", "a torus of 16000 triangles"),
        ("torus-80000", "a torus of 80000 triangles"),
        ("ball-20480", "a ball of 20480 triangles"),
    ):
        found.append(Workload(f"deep-{name}", "deep", 0, f"inside {what}", deep(name)))
    found.append(
        Workload(
            "middle-ball-20480", "middle", 0, "at the center of that ball", middle("ball-20480")
        )
    )
    for n in (1, 10, 100, 1_000, 10_000):
        found.append(Workload(f"scene-{n}", "scene", n, f"among {n} meshes", scene(n)))
    for n in (60, 600, 6_000, 60_000, 600_000):
        summary = f"{n} spheres around a torus of 16000 triangles"
        found.append(Workload(f"spheres-{n}", "spheres", n, summary, near("torus-16000", n)))
    found.append(
        Workload("envs", "envs", 0, "256 envs of 10 meshes, 60 spheres each", envs(256, 10, 60))
    )
    for n in (1, 16, 1_024):
        summary = f"Panda in a shelf, {n} x 32 x 59 spheres"
        found.append(Workload(f"panda-{n}", "panda", n, summary, panda(n)))
        summary = f"{summary}, moving"
        found.append(Workload(f"panda-swept-{n}", "panda-swept", n, summary, panda(n), swept=True))
    found.append(Workload("tiny", "tiny", 0, "1 x 1 x 60 spheres, 10 meshes: latency", tiny()))
    summary = "1 x 32 x 60 spheres, all far from 5 meshes"
    found.append(Workload("free", "free", 0, summary, free()))
    found.append(Workload("free-swept", "free", 0, f"{summary}, moving", free(), swept=True))
    return found


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _all()}
