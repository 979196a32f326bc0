"""What an exact cuboid gains over its twelve triangles, in every query of the library.

`python -m benchmarks.exact_shapes` prints the table.

The same cuboid stands in two worlds: by its formula, and as a mesh. Spheres are anywhere near it
or have their centers inside; paths go 5 cm from waypoint to waypoint. Results are compared first;
then both run in turns, on one CPU thread, and ratios are medians over the rounds of the ratio
within a round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import cpu_threads, seconds_of
from warp_collision import (
    Cuboid,
    MeshWorld,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)

CUBOID = Cuboid((0.5, 0.4, 0.3))
POSE = (0.1, -0.2, 0.3, 0.8, 0.0, 0.6, 0.0)
RADIUS, ACTIVATION_DISTANCE = 0.04, 0.02  # [m]
SHAPE = (64, 16, 20)  # batch, horizon, spheres
STEP = 0.05  # [m]
WORLDS = ("exact", "mesh")

Query = Callable[[Tensor, MeshWorld], Tensor]


def build(name: str) -> MeshWorld:
    """The world of one of the names; `repair=False` keeps a mesh from being recognised."""
    world = MeshWorld(device="cpu")
    if name == "exact":
        world.add("cuboid", CUBOID, POSE)
    else:
        world.add("cuboid", tuple(CUBOID.tessellate()), POSE, repair=False)
    return world


def paths(place: str, batch: int = SHAPE[0]) -> Tensor:
    """Spheres (batch, horizon, n, 4) whose paths begin near the cuboid or inside, and go on."""
    rng = np.random.default_rng(5)
    shape = (batch, *SHAPE[1:])
    # All of them are there: those far away cost the same in all worlds.
    half = CUBOID.half_extents if place == "inside" else CUBOID.half_extents + RADIUS
    local = rng.uniform(-1.0, 1.0, (*shape, 3)) * half
    if place == "near":  # on a shell
        axis = rng.integers(0, 3, shape)[..., None]
        side = rng.choice((-1.0, 1.0), shape) * (1.0 + rng.uniform(-0.1, 0.3, shape))
        np.put_along_axis(local, axis, side[..., None] * CUBOID.half_extents[axis], axis=3)
    step = rng.normal(size=(*shape, 3))
    step *= STEP / np.linalg.norm(step, axis=-1, keepdims=True)
    local[:, 1::2] = local[:, ::2] + step[:, 1::2]
    w, u = POSE[3], np.array(POSE[4:])
    turn = 2.0 * np.cross(u, local)
    centers = local + w * turn + np.cross(u, turn) + POSE[:3]
    spheres = np.concatenate((centers, np.full((*shape, 1), RADIUS)), axis=-1)
    return torch.tensor(spheres, dtype=torch.float32)


def _backward(cost: Callable[..., Tensor]) -> Query:
    def query(spheres: Tensor, world: MeshWorld) -> Tensor:
        leaf = spheres.detach().requires_grad_(True)
        value = cost(leaf, world, activation_distance=ACTIVATION_DISTANCE)
        value.sum().backward()
        return value.detach()

    return query


def _distance(spheres: Tensor, world: MeshWorld) -> Tensor:
    return signed_distance(spheres[..., :3].flatten(1, 2).contiguous(), world).distance


QUERIES: dict[str, Query] = {
    "sphere_cost": lambda s, w: sphere_cost(s, w, activation_distance=ACTIVATION_DISTANCE),
    "sphere_cost, backward": _backward(sphere_cost),
    "swept_sphere_cost": lambda s, w: swept_sphere_cost(
        s, w, activation_distance=ACTIVATION_DISTANCE
    ),
    "swept_sphere_cost, backward": _backward(swept_sphere_cost),
    "signed_distance": _distance,
    "clearance": lambda s, w: clearance(s, w).clearance,
    "in_collision": lambda s, w: in_collision(s, w).float(),
}


def check(query: Query, spheres: Tensor, worlds: dict[str, MeshWorld]) -> None:
    """Raises where a world has other results than the exact one."""
    truth = query(spheres, worlds["exact"])
    for name, world in worlds.items():
        off = (query(spheres, world) - truth).abs()
        # A sweep of a mesh is off by its tolerance where it ends beyond reach.
        if (off > 2e-3).any() or (off > 1e-5).float().mean() > 1e-3:
            raise RuntimeError(f"{name} is off by {off.max().item():g}")


def measure(query: Query, spheres: Tensor, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds of this thread per sphere, of each world in each round."""
    worlds = {name: build(name) for name in WORLDS}
    check(query, spheres, worlds)
    count = spheres[..., 0].numel()
    taken: dict[str, list[float]] = {name: [] for name in WORLDS}
    for _ in range(rounds):
        for name, world in worlds.items():
            seconds = seconds_of(lambda w=world: query(spheres, w), spheres.device).thread
            taken[name].append(1e9 * seconds / count)
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exact_shapes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of all worlds in turns")
    parser.add_argument("--batch", type=int, default=SHAPE[0], help="trajectories")
    options = parser.parse_args(arguments)
    print(f"{'query':28s} {'where':7s} {'exact':>9s} {'over a mesh':>12s}")
    with cpu_threads(1):
        for label, query in QUERIES.items():
            for place in ("near", "inside"):
                taken = measure(query, paths(place, options.batch), options.rounds)
                pairs = zip(taken["mesh"], taken["exact"], strict=True)
                gain = statistics.median(mesh / exact for mesh, exact in pairs)
                exact = statistics.median(taken["exact"])
                print(f"{label:28s} {place:7s} {exact:6.0f} ns {gain:10.1f} x", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
