"""What an exact cuboid gains over its twelve triangles, in every query of the library.

The same cuboid stands in two worlds: by its formula, and as a mesh. Spheres are anywhere near it or
have their centers inside; paths go 5 cm from waypoint to waypoint. Results are compared first.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warp_collision as wc
from benchmarks import baseline, harness
from benchmarks.harness import Call, WrongResultError
from benchmarks.scenes import ACTIVATION_DISTANCE, RADIUS
from benchmarks.truth import reference

CUBOID = wc.Cuboid((0.5, 0.4, 0.3))
POSE = (0.1, -0.2, 0.3, 0.8, 0.0, 0.6, 0.0)
SHAPE = (64, 16, 20)  # batch, horizon, spheres
STEP = 0.05  # [m]


def worlds() -> dict[str, wc.MeshWorld]:
    """Both; `repair=False` keeps a mesh from being recognised as a cuboid."""
    exact, mesh = wc.MeshWorld(device="cpu"), wc.MeshWorld(device="cpu")
    exact.add("cuboid", CUBOID, POSE)
    mesh.add("cuboid", tuple(CUBOID.tessellate()), POSE, repair=False)
    return {"exact": exact, "mesh": mesh}


def paths(place: str, batch: int) -> Tensor:
    """Spheres (batch, horizon, n, 4) whose paths begin near the cuboid or inside, and go on."""
    rng, shape = np.random.default_rng(5), (batch, *SHAPE[1:])
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
    centers = local @ reference.rotation_matrix(POSE[3:]).T + POSE[:3]
    spheres = np.concatenate((centers, np.full((*shape, 1), RADIUS)), axis=-1)
    return torch.tensor(spheres, dtype=torch.float32)


def queries(spheres: Tensor, world: wc.MeshWorld) -> dict[str, Callable[[], Tensor]]:
    """All of them, by name."""
    options = {"activation_distance": ACTIVATION_DISTANCE}
    points = spheres[..., :3].flatten(1, 2).contiguous()
    found: dict[str, Callable[[], Tensor]] = {}
    for cost in (wc.sphere_cost, wc.swept_sphere_cost):
        found[cost.__name__] = partial(cost, spheres, world, **options)
        found[f"{cost.__name__}, backward"] = baseline.differentiated(
            cost, spheres, world, **options
        )
    return found | {
        "signed_distance": lambda: wc.signed_distance(points, world).distance,
        "clearance": lambda: wc.clearance(spheres, world).clearance,
        "in_collision": lambda: wc.in_collision(spheres, world).float(),
    }


def add_options(parser: Any) -> None:
    """How many trajectories."""
    parser.add_argument("--batch", type=int, default=SHAPE[0], help="trajectories")


def run(options: Any) -> str:
    """The table."""
    rows = []
    for place in ("near", "inside"):
        spheres = paths(place, options.batch)
        exact, mesh = (queries(spheres, world) for world in worlds().values())
        for name, query in exact.items():
            off = (mesh[name]() - query()).abs()
            # A sweep of a mesh is off by its tolerance where it ends beyond reach.
            if (off > 2e-3).any() or (off > 1e-5).float().mean() > 1e-3:
                raise WrongResultError(f"{name}: the mesh is off by {off.max().item():g}")
            items = spheres[..., 0].numel()
            calls = {"exact": Call(query, items), "mesh": Call(mesh[name], items)}
            times = harness.interleave(calls, options.rounds)
            gain = f"{times.ratio('mesh', over='exact'):.1f} x"
            rows.append([name, place, f"{1e9 * times.median('exact'):.0f} ns", gain])
    return harness.table(["query", "where", "exact", "over a mesh"], rows, 2)
