"""How the cost of a sphere grows: with obstacles, triangles, points, spheres, envs and threads.

`sphere_cost` with its gradient, of spheres of 4 cm. Cuboids have edges of 5 to 30 cm and stand at 8
in a cubic metre, with the spheres anywhere among them; spheres near a torus or a cloud are within
6 cm of its surface. Costs of a sample are compared with the float64 reference first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import trimesh

import exact_shapes
import reference
import warp_collision as wc
from benchmarks import baseline, harness
from benchmarks.harness import CPU, Call, Workload, require
from benchmarks.scenes import ACTIVATION_DISTANCE, DENSITY, random_poses, with_radius

N_SPHERES = 20_000
CHECKED = 20  # spheres of a workload
AROUND = 0.06  # [m] of a surface


def cuboids(rng: np.random.Generator, count: int) -> tuple[dict[str, Any], list[Any], float]:
    """Obstacles as a world takes them, the same for the reference, and the edge of their cube."""
    edge = (count / DENSITY) ** (1.0 / 3.0)
    sizes, poses = rng.uniform(0.05, 0.3, (count, 3)), random_poses(rng, count, edge)
    placed = [*zip(sizes, poses, strict=True)]
    named = {str(i): (wc.Cuboid((*dims,)), pose) for i, (dims, pose) in enumerate(placed)}
    return named, [reference.Body(exact_shapes.cuboid(*dims), pose) for dims, pose in placed], edge


def call(world: wc.MeshWorld, spheres: np.ndarray, scenes: list[Any], **options: Any) -> Call:
    """Cost and gradient; the first and the last row are compared with the reference."""
    rows = torch.from_numpy(spheres)
    ours = baseline.differentiated(partial(wc.sphere_cost, world=world, **options), rows)
    cost = ours.run()[0].numpy()
    for row in (0, len(spheres) - 1):
        index = options.get("env_index")
        scene = scenes[0 if index is None else int(index[row])]
        some = spheres[row : row + 1, :, :CHECKED].astype(np.float64)
        expected = reference.sphere_cost(some, [scene], activation_distance=ACTIVATION_DISTANCE)
        require(np.allclose(cost[row, :, :CHECKED], expected[0], rtol=1e-4, atol=1e-5), "a cost")
    return ours


def among_cuboids(count: int, n_spheres: int = N_SPHERES, threads: int = 1) -> dict[str, Call]:
    """Spheres anywhere among so many."""
    rng = np.random.default_rng(4)
    named, bodies, edge = cuboids(rng, count)
    world = wc.MeshWorld(1, count, CPU)
    world.add_many(named)
    spheres = with_radius(rng.uniform(0.0, edge, (1, 1, n_spheres, 3)))
    return {"library": call(world, spheres, [bodies])._replace(threads=threads)}


def in_envs(n_envs: int, n_spheres: int = 60) -> dict[str, Call]:
    """Ten cuboids in each env, and a row of spheres for each."""
    rng = np.random.default_rng(5)
    made = [cuboids(rng, 10) for _ in range(n_envs)]
    world = wc.MeshWorld(n_envs, 10, CPU)
    for env, (named, _, _) in enumerate(made):
        world.add_many(named, env)
    spheres = with_radius(rng.uniform(0.0, made[0][2], (n_envs, 1, n_spheres, 3)))
    index = torch.arange(n_envs, dtype=torch.int32)
    return {"library": call(world, spheres, [bodies for _, bodies, _ in made], env_index=index)}


def around(world: wc.MeshWorld, surface: np.ndarray, truth: Any) -> dict[str, Call]:
    """Spheres near a surface of which some points (n, 3) are given, and the same as a reference."""
    rng = np.random.default_rng(6)
    centers = surface[rng.integers(len(surface), size=N_SPHERES)]
    centers = centers + rng.uniform(-AROUND, AROUND, centers.shape) / 3.0**0.5
    return {"library": call(world, with_radius(centers[None, None]), [[truth]])}


def torus(n_triangles: int) -> dict[str, Call]:
    """One mesh."""
    sections = round((n_triangles / 8) ** 0.5)
    mesh = trimesh.creation.torus(1.0, 0.3, 4 * sections, sections)
    world = wc.MeshWorld(1, 1, CPU)
    world.add("torus", mesh)
    vertices = mesh.vertices.astype(np.float32).astype(np.float64)
    return around(world, vertices, reference.Obstacle(vertices, np.asarray(mesh.faces)))


def cloud(n_points: int) -> dict[str, Call]:
    """One cloud, of an ellipsoid."""
    points = np.random.default_rng(7).normal(size=(n_points, 3))
    points *= np.array([1.0, 2.0, 0.7]) / np.linalg.norm(points, axis=1, keepdims=True)
    points, radius = points.astype(np.float32), 0.01
    world = wc.MeshWorld(1, 1, CPU)
    world.add("cloud", wc.PointCloud(points, radius))

    def distance(asked: np.ndarray) -> np.ndarray:
        return np.array([np.linalg.norm(points - p, axis=1).min() for p in asked]) - radius

    return around(world, points, reference.Body(distance))


CURVES: dict[str, tuple[Callable[[int], dict[str, Call]], tuple[int, ...]]] = {
    "obstacles": (among_cuboids, (1, 3, 10, 32, 100, 1_000, 10_000)),
    "triangles": (torus, (100, 1_000, 10_000, 100_000, 1_000_000)),
    "points": (cloud, (100, 1_000, 10_000, 100_000, 1_000_000)),
    "spheres": (partial(among_cuboids, 10), (1, 10, 100, 1_000, 10_000, 100_000)),
    "envs": (in_envs, (1, 4, 16, 64, 256, 1_024, 4_096)),
    "threads": (lambda n: among_cuboids(10, 200_000, n), (1, *range(2, 1 + (os.cpu_count() or 1)))),
}
add_options = harness.timing_options


def workloads(options: Any) -> Iterator[Workload]:
    """A workload for each point of each curve."""
    for name, (make, sizes) in CURVES.items():
        for size in sizes[: max(1, round(options.scale * len(sizes)))]:
            yield Workload(f"{name} {size}", "sphere", partial(make, size))


def run(options: Any) -> str:
    """The table, and a picture of it."""
    from benchmarks.plots import curves

    return harness.measure(workloads(options), options, curves)
