"""What a cuboid by its formula, or a height field, gains over its triangles, in every query.

The same surface stands in two worlds: as it is, and as a mesh. Spheres are anywhere near a cuboid,
have their centers inside, or are above and below the hills of 40,000 cells; every second one goes
5 cm from waypoint to waypoint. Results are compared first.

What a floor without end costs is told by 100 boxes alone, on a floor, and on a tilted one.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warp_collision as wc
from benchmarks import baseline, harness
from benchmarks.harness import Call, Workload, require
from benchmarks.scenes import ACTIVATION_DISTANCE, DENSITY, random_poses, with_radius
from reference import rotation_matrix

CUBOID = wc.Cuboid((0.5, 0.4, 0.3))
POSE = (0.1, -0.2, 0.3, 0.8, 0.0, 0.6, 0.0)
PLACES = ("near a cuboid", "inside a cuboid", "near hills")
SHAPE = (64, 16, 20)  # batch, horizon, spheres
STEP = 0.05  # [m]
FLOORS = {"floor": wc.HalfSpace((0, 0, 1)), "tilted floor": wc.HalfSpace((0.02, 0.03, 1))}
BOXES, EDGE = 100, (100 / DENSITY) ** (1.0 / 3.0)  # [m] of the cube that they are in


def hills() -> wc.HeightField:
    """A field of 4 m by 4 m."""
    x, y = np.linspace(-2, 2, 201)[:, None], np.linspace(-2, 2, 201)
    heights = 0.2 * np.sin(3.0 * x) * np.cos(2.0 * y) + 0.02 * np.sin(40.0 * (x + y))
    return wc.HeightField(heights, (4.0, 4.0), 0.5)


def worlds(place: str) -> dict[str, wc.MeshWorld]:
    """Both; `repair=False` keeps a mesh from being recognised as a cuboid."""
    shape = hills() if place == "near hills" else CUBOID
    found = {"library": wc.MeshWorld(device="cpu"), "mesh": wc.MeshWorld(device="cpu")}
    found["library"].add("it", shape, POSE)
    found["mesh"].add("it", tuple(shape.tessellate()), POSE, repair=False)
    return found


def paths(place: str, batch: int) -> Tensor:
    """Spheres (batch, horizon, n, 4) whose paths begin near the surface or inside, and go on."""
    rng, shape = np.random.default_rng(5), (batch, *SHAPE[1:])
    if place == "near hills":
        local = rng.uniform((-2.0, -2.0, -0.2), (2.0, 2.0, 0.6), (*shape, 3))
    elif place == "inside a cuboid":
        local = rng.uniform(-1.0, 1.0, (*shape, 3)) * CUBOID.half_extents
    else:  # on a shell: those far away cost the same in both worlds
        local = rng.uniform(-1.0, 1.0, (*shape, 3)) * (CUBOID.half_extents + 0.04)
        axis = rng.integers(0, 3, shape)[..., None]
        side = rng.choice((-1.0, 1.0), shape) * (1.0 + rng.uniform(-0.1, 0.3, shape))
        np.put_along_axis(local, axis, side[..., None] * CUBOID.half_extents[axis], axis=3)
    return moved(local @ rotation_matrix(POSE[3:]).T + POSE[:3], rng)


def moved(centers: np.ndarray, rng: np.random.Generator) -> Tensor:
    """Spheres (batch, horizon, n, 4), every second waypoint a step away from the one before."""
    step = rng.normal(size=centers.shape)
    step *= STEP / np.linalg.norm(step, axis=-1, keepdims=True)
    centers[:, 1::2] = centers[:, ::2] + step[:, 1::2]
    return torch.from_numpy(with_radius(centers))


def boxes_on(floor: wc.HalfSpace | None, count: int = BOXES) -> wc.MeshWorld:
    """Boxes anywhere in a cube on a floor, or without one."""
    rng, world = np.random.default_rng(3), wc.MeshWorld(max_obstacles=BOXES + 1, device="cpu")
    if floor:
        world.add("floor", floor)
    for index, pose in enumerate(random_poses(rng, BOXES, EDGE)[:count]):
        world.add(f"box {index}", wc.Cuboid(tuple(rng.uniform(0.05, 0.3, 3))), tuple(pose))
    return world


def queries(spheres: Tensor, world: wc.MeshWorld, **sweeps: Any) -> dict[str, Any]:
    """All of them, by name; with options of sweeps."""
    points = spheres[..., :3].flatten(1, 2).contiguous()
    found: dict[str, Any] = {}
    for function in (wc.sphere_cost, wc.swept_sphere_cost):
        options = sweeps if function is wc.swept_sphere_cost else {}
        cost = partial(function, world=world, activation_distance=ACTIVATION_DISTANCE, **options)
        both = baseline.differentiated(cost, spheres).run
        found[function.__name__] = partial(cost, spheres)
        found[f"{function.__name__}, backward"] = lambda run=both: run()[0]
    return found | {
        "signed_distance": lambda: wc.signed_distance(points, world).distance,
        "clearance": lambda: wc.clearance(spheres, world).clearance,
        "in_collision": lambda: wc.in_collision(spheres, world).float(),
    }


def contenders(name: str, place: str, spheres: Tensor) -> dict[str, Call]:
    """A query of both worlds."""
    found = {which: queries(spheres, world)[name] for which, world in worlds(place).items()}
    # Two sweeps may end at two minima within their tolerance: they are compared at a fine one.
    fine = {
        w: queries(spheres, world, tolerance=1e-6)[name]() for w, world in worlds(place).items()
    }
    off = (fine["mesh"] - fine["library"]).abs()
    # A sweep of a mesh is off by its tolerance where it ends beyond reach.
    is_right = (off <= 2e-3).all() and (off > 1e-5).float().mean() <= 1e-3
    require(is_right, f"the mesh is off by {off.max():g}")
    return {which: Call(query, spheres[..., 0].numel()) for which, query in found.items()}


def on_floors(name: str, spheres: Tensor) -> dict[str, Call]:
    """A query of boxes alone and on floors, which is that of both one by one."""
    together = {"signed_distance": torch.minimum, "clearance": torch.minimum}
    together["in_collision"] = torch.maximum
    found = {"boxes alone": queries(spheres, boxes_on(None))[name]}
    for which, floor in FLOORS.items():
        found[which] = queries(spheres, boxes_on(floor))[name]
        parts = [queries(spheres, boxes_on(*of))[name]() for of in ((None,), (floor, 0))]
        off = (together.get(name, torch.add)(*parts) - found[which]()).abs().max()
        require(off <= 1e-5, f"with a {which} it is off by {off:g}")
    return {which: Call(query, spheres[..., 0].numel()) for which, query in found.items()}


def workloads(options: Any) -> Iterator[Workload]:
    """All queries at all places."""
    for place in PLACES:
        spheres = paths(place, max(1, round(SHAPE[0] * options.scale)))
        for name in queries(spheres, wc.MeshWorld(device="cpu")):
            yield Workload(f"{place}, {name}", "sphere", partial(contenders, name, place, spheres))
    rng, shape = np.random.default_rng(5), (max(1, round(SHAPE[0] * options.scale)), *SHAPE[1:], 3)
    spheres = moved(rng.uniform(0.0, EDGE, shape), rng)
    for name in queries(spheres, wc.MeshWorld(device="cpu")):
        yield Workload(f"{BOXES} boxes, {name}", "sphere", partial(on_floors, name, spheres))


add_options = harness.timing_options


def run(options: Any) -> str:
    """The table."""
    return harness.measure(workloads(options), options)
