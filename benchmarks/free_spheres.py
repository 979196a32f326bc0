"""What a sphere costs that nothing is near, and one among tori.

Run with `python -m benchmarks.free_spheres`.

One CPU thread by its own time, worlds not prepared where it does not say so, forward only;
contenders run in turns, figures are medians, ratios are medians of the ratios within a round. They
are compared with

- **read and write**: a kernel that reads a sphere and writes a number, launched like the library's;
- **short**: one query with the winding sign of r + eta for each mesh. It reads as free what is
  deeper than that, and what it computes is compared with the library where it is right.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
import trimesh
import warp as wp
from torch import Tensor

from benchmarks import baseline
from benchmarks.measure import cpu_threads, ratio, seconds_of
from benchmarks.shapes import random_poses
from benchmarks.workloads import DENSITY, scattered
from warp_collision import MeshWorld, signed_distance, sphere_cost
from warp_collision.cli.terminal import align
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.launching.launch import launch

wp.set_module_options(OPTIONS)

CPU = torch.device("cpu")
RADIUS, ETA = 0.04, 0.02  # [m]
ROW = 20  # spheres in a row of the batch
FAR = (0, 1, 5, 11, 100, 1_000)
# Meshes to times of read and write that a sphere in a gap may take, and in a prepared world.
GAPS = {5: (9.0, 5.0), 11: (14.0, 6.0), 100: (45.0, 20.0)}
FAR_BOUND = 4.0
# Tori to how many times as fast as the short search the library should be.
AMONG = {1: 1.0, 5: 1.5, 10: 1.6, 20: 2.0, 100: 4.0}


@wp.kernel
def read_and_write(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    # parameters
    launch_offset: wp.vec3i,  # of this launch in the spheres
    # outputs
    cost: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
):
    """The least that a kernel of one thread per sphere does."""
    row, waypoint, index = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    index += launch_offset[2]
    sphere = spheres[row, waypoint, index]
    cost[row, waypoint, index] = sphere[0] + sphere[1] + sphere[2] + sphere[3]


def least(spheres: Tensor) -> Tensor:
    """Runs `read_and_write`."""
    cost = spheres.new_empty(spheres.shape[:3])
    launch(read_and_write, cost.shape, spheres, cost, device=CPU, items=cost.numel())
    return cost


def tori(count: int) -> tuple[MeshWorld, float]:
    """A world of tori of 512 triangles, scattered over a cube, and the cube's edge [m]."""
    rng = np.random.default_rng(71)
    world = MeshWorld(1, max(1, count), CPU)
    edge = (max(1, count) / DENSITY) ** (1.0 / 3.0)
    torus = trimesh.creation.torus(0.15, 0.05, major_sections=16, minor_sections=16)
    for index, pose in enumerate(random_poses(rng, count, edge)):
        world.add(f"torus {index}", torus, pose)
    return world, edge


def clutter(count: int) -> tuple[MeshWorld, float]:
    """The world of the workload `scene`, of so many meshes, and its edge [m]."""
    placed, edge = scattered(np.random.default_rng(4), count)
    world = MeshWorld(1, max(1, count), CPU)
    for index, (mesh, pose) in enumerate(placed):
        world.add(f"mesh {index}", mesh, tuple(pose))
    return world, edge


def spheres_in(low: float, high: float, count: int) -> Tensor:
    """Spheres (rows, 1, ROW, 4) anywhere in a cube."""
    centers = np.random.default_rng(72).uniform(low, high, (count // ROW, 1, ROW, 3))
    radii = np.full((*centers.shape[:3], 1), RADIUS)
    return torch.from_numpy(np.concatenate((centers, radii), axis=-1).astype(np.float32))


def in_gaps(world: MeshWorld, edge: float, count: int) -> Tensor:
    """Spheres between meshes that touch none and cost nothing."""
    spheres = spheres_in(0.0, edge, count).reshape(-1, 4)
    distance = signed_distance(spheres[None, :, :3], world).distance[0]
    free = spheres[distance > RADIUS + ETA + 1e-4]
    return free[: len(free) // ROW * ROW].reshape(-1, 1, ROW, 4).contiguous()


def interleaved(
    runs: Sequence[Callable[[], object]], rounds: int, spheres: int
) -> list[list[float]]:
    """Nanoseconds per sphere of each, by round."""
    found: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(rounds):
        for run, taken in zip(runs, found, strict=True):
            taken.append(1e9 / spheres * seconds_of(run, CPU).thread)
    return found


def compare(
    name: str, spheres: Tensor, ours: Callable[[], Tensor], other: Callable[[], Tensor], rounds: int
) -> list[str]:
    """A row of the table: the library, what it is compared with, and the ratio."""
    mine, theirs = interleaved((ours, other), rounds, spheres[..., 0].numel())
    figures = [statistics.median(mine), statistics.median(theirs), ratio(mine, theirs)]
    return [name, *(f"{figure:.2f}" for figure in figures)]


def free_rows(count: int, rounds: int) -> list[list[str]]:
    """Far from everything, and in gaps; against read and write."""
    rows = []
    for meshes in FAR:
        world, edge = clutter(meshes)
        far = spheres_in(edge + 9.0, edge + 10.0, count)
        sets = [("far from", far, world, FAR_BOUND)]
        if meshes in GAPS:
            gaps, prepared = in_gaps(world, edge, count), clutter(meshes)[0]
            prepared.prepare()
            lazy, field = GAPS[meshes]
            sets.append(("in a gap of", gaps, world, lazy))
            sets.append(("prepared, in a gap of", gaps, prepared, field))
        for name, spheres, queried, bound in sets:

            def cost(world: MeshWorld = queried, spheres: Tensor = spheres) -> Tensor:
                return sphere_cost(spheres, world, activation_distance=ETA)

            assert not cost().any(), f"{name} {meshes} meshes costs something"
            row = compare(
                f"{name} {meshes}", spheres, cost, lambda spheres=spheres: least(spheres), rounds
            )
            rows.append([*row, f"<= {bound:g}"])
    return rows


def among_rows(count: int, rounds: int) -> list[list[str]]:
    """Spheres anywhere among tori; against the short search."""
    rows = []
    for meshes, bound in AMONG.items():
        world, edge = tori(meshes)
        spheres = spheres_in(0.0, edge, count)

        def cost(world: MeshWorld = world, spheres: Tensor = spheres) -> Tensor:
            return sphere_cost(spheres, world, activation_distance=ETA)

        def short(world: MeshWorld = world, spheres: Tensor = spheres) -> Tensor:
            limit = RADIUS + ETA
            with torch.no_grad():
                return baseline.sphere_cost(spheres, world, activation_distance=ETA, limit=limit)

        # A query that ends at r + eta is wrong where that is less than how deep a sphere is.
        right = short() > 0.0
        assert right.any()
        exact = baseline.sphere_cost(spheres, world, activation_distance=ETA)
        assert torch.allclose(cost(), exact, rtol=1e-4, atol=1e-6), "the library is wrong"
        mine, theirs = interleaved((cost, short), rounds, count // ROW * ROW)
        figures = [statistics.median(mine), statistics.median(theirs), ratio(theirs, mine)]
        rows.append(
            [f"among {meshes} tori", *(f"{figure:.2f}" for figure in figures), f">= {bound:g}"]
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.free_spheres", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="spheres of each measurement")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    with cpu_threads(1):
        head = ["ns per sphere", "library", "read and write", "ratio", "target"]
        rows = free_rows(options.count, options.rounds)
        print("\n".join(align([head, *rows], right=(1, 2, 3))), flush=True)
        head = ["ns per sphere", "library", "short search", "times as fast", "target"]
        rows = among_rows(options.count, options.rounds)
        print("\n".join(align([head, *rows], right=(1, 2, 3))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
