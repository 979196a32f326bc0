"""What a sphere costs that nothing is near, and one among tori; forward only.

Worlds are not prepared where it does not say so. They are compared with

- **read and write**: a kernel that reads a sphere and writes a number, recorded once;
- **short**: one query with the winding sign of r + eta for each mesh. It reads as free what is
  deeper than that, and what it computes is compared with the library where it is right.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import trimesh
import warp as wp
from torch import Tensor

from benchmarks import baseline, harness
from benchmarks.harness import Call, WrongResultError
from benchmarks.scenes import ACTIVATION_DISTANCE, RADIUS, rows_of, scattered, world_of
from warp_collision import MeshWorld, signed_distance, sphere_cost

FAR = (0, 1, 5, 11, 100, 1_000)
# Meshes to times of read and write that a sphere in a gap may take, and in a prepared world.
GAPS = {5: (9.0, 5.0), 11: (14.0, 6.0), 100: (45.0, 20.0)}
FAR_BOUND = 4.0
# Tori to how many times as fast as the short search the library should be.
AMONG = {1: 1.0, 5: 1.5, 10: 1.6, 20: 2.0, 100: 4.0}


@wp.kernel(enable_backward=False)
def read_and_write(spheres: wp.array3d[wp.vec4], cost: wp.array3d[wp.float32]):
    """The least that a kernel of one thread per sphere does."""
    b, h, s = wp.tid()
    sphere = spheres[b, h, s]
    cost[b, h, s] = sphere[0] + sphere[1] + sphere[2] + sphere[3]


def least(spheres: Tensor) -> Callable[[], None]:
    """Runs `read_and_write`."""
    cost = spheres.new_empty(spheres.shape[:3])
    given = [wp.from_torch(spheres, dtype=wp.vec4), wp.from_torch(cost)]
    return wp.launch(read_and_write, cost.shape, given, device="cpu", record_cmd=True).launch


def clutter(count: int) -> tuple[MeshWorld, float]:
    """The world of the workload `scene`, of so many meshes, and its edge [m]."""
    placed, edge = scattered(np.random.default_rng(4), count)
    return world_of([placed]), edge


def tori(count: int) -> tuple[MeshWorld, float]:
    """The same of tori of 512 triangles."""
    torus = trimesh.creation.torus(0.15, 0.05, major_sections=16, minor_sections=16)
    placed, edge = scattered(np.random.default_rng(71), count, (torus,))
    return world_of([placed]), edge


def spheres_in(low: float, high: float, count: int) -> Tensor:
    """Spheres anywhere in a cube."""
    centers = np.random.default_rng(72).uniform(low, high, (count, 3))
    return torch.from_numpy(rows_of(centers))


def in_gaps(world: MeshWorld, edge: float, count: int) -> Tensor:
    """Spheres between meshes that touch none and cost nothing."""
    centers = spheres_in(0.0, edge, count)[..., :3].reshape(1, -1, 3).contiguous()
    free = signed_distance(centers, world).distance > RADIUS + ACTIVATION_DISTANCE + 1e-4
    return torch.from_numpy(rows_of(centers[free].numpy()))


def library(spheres: Tensor, world: MeshWorld) -> Callable[[], Tensor]:
    """The library's cost."""
    return partial(sphere_cost, spheres, world, activation_distance=ACTIVATION_DISTANCE)


def free_rows(count: int, rounds: int) -> list[list[str]]:
    """Far from everything, and in gaps; against read and write."""
    rows = []
    for meshes in FAR:
        world, edge = clutter(meshes)
        sets = [("far from", spheres_in(edge + 9.0, edge + 10.0, count), world, FAR_BOUND)]
        if meshes in GAPS:
            gaps, prepared = in_gaps(world, edge, count), clutter(meshes)[0]
            prepared.prepare()
            sets.append(("in a gap of", gaps, world, GAPS[meshes][0]))
            sets.append(("prepared, in a gap of", gaps, prepared, GAPS[meshes][1]))
        for name, spheres, queried, bound in sets:
            cost = library(spheres, queried)
            if cost().any():
                raise WrongResultError(f"{name} {meshes} meshes costs something")
            figures = row(f"{name} {meshes}", spheres, cost, least(spheres), rounds)
            rows.append([*figures, f"<= {bound:g}"])
    return rows


def among_rows(count: int, rounds: int) -> list[list[str]]:
    """Spheres anywhere among tori; against the short search."""
    rows = []
    for meshes, bound in AMONG.items():
        world, edge = tori(meshes)
        spheres = spheres_in(0.0, edge, count)
        cost = library(spheres, world)
        short = partial(baseline.sphere_cost, spheres, world, limit=RADIUS + ACTIVATION_DISTANCE)
        exact = baseline.sphere_cost(spheres, world)
        # A query that ends at r + eta is wrong where that is less than how deep a sphere is.
        if not short().any() or not torch.allclose(cost(), exact, rtol=1e-4, atol=1e-6):
            raise WrongResultError("the library is wrong")
        figures = row(f"among {meshes} tori", spheres, cost, short, rounds, is_speed=True)
        rows.append([*figures, f">= {bound:g}"])
    return rows


def row(
    name: str, spheres: Tensor, ours: Any, other: Any, rounds: int, is_speed: bool = False
) -> list[str]:
    """Nanoseconds a sphere of the library and another, and the ratio of their times or speeds."""
    items = spheres[..., 0].numel()
    times = harness.interleave({"library": Call(ours, items), "other": Call(other, items)}, rounds)
    ratio = times.ratio(*("other", "library") if is_speed else ("library", "other"))
    figures = 1e9 * times.median("library"), 1e9 * times.median("other"), ratio
    return [name, *(f"{figure:.2f}" for figure in figures)]


def add_options(parser: Any) -> None:
    """How many spheres."""
    parser.add_argument("--count", type=int, default=20_000, help="spheres of each measurement")


def run(options: Any) -> str:
    """Two tables."""
    asked = options.count, options.rounds
    free = ["ns per sphere", "library", "read and write", "ratio", "target"]
    among = ["ns per sphere", "library", "short search", "times as fast", "target"]
    return f"{harness.table(free, free_rows(*asked))}\n{harness.table(among, among_rows(*asked))}"
