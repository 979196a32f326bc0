"""What users ask most, of a Panda among few obstacles, next to what they have without this library.

Boxes and cylinders of the problem `bookshelf`, those near the path first, then clutter of meshes;
59 spheres of the Panda on paths bent at random, 32 waypoints. The library's world is as `add`
leaves it. It is compared with

- **short search**: a kernel with one query of the search distance for each mesh, by Warp's default
  sign. It reads as free what is deeper than that; a sweep samples four places of each waypoint;
- **coal**, where it is installed: dynamic AABB trees over the same meshes and over the spheres,
  called from Python, for yes or no. Its answers are compared, too.
"""

import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import baseline, harness
from benchmarks.external import differing, short_search
from benchmarks.harness import CPU, Call
from benchmarks.peers import coal_model
from benchmarks.scenes import ACTIVATION_DISTANCE, Placed, panda, panda_among, world_of
from benchmarks.truth import reference
from warp_collision import any_in_collision, sphere_cost, swept_sphere_cost


def questions(
    placed: Sequence[Placed], spheres: Tensor
) -> dict[str, dict[str, Callable[[], Tensor]]]:
    """Who answers what, the library first."""
    world = world_of([placed])
    kept, tables = baseline.callers_meshes(placed, CPU)
    hit = torch.empty(spheres.shape[:2], dtype=torch.bool)
    arguments = (spheres, tables.ids, tables.rows, tables.counts, hit)

    def yes_or_no(_kept: Any = kept) -> Tensor:
        baseline.launch(baseline.any_hit, hit.shape, arguments, CPU)
        return hit

    def cost(function: Any) -> Callable[[], Tensor]:
        eta = ACTIVATION_DISTANCE
        return baseline.differentiated(function, spheres, world, activation_distance=eta)

    hits = {"library": lambda: any_in_collision(spheres, world), "short search": yes_or_no}
    if find_spec("coal"):
        hits["coal"] = coal_call(placed, spheres[:1])  # it takes some hundred times as long
    return {
        "yes or no": hits,
        **{
            f"{kind}cost and gradient": {
                "library": cost(function),
                "short search": short_search(tables, spheres, bool(kind)),
            }
            for kind, function in (("", sphere_cost), ("swept ", swept_sphere_cost))
        },
    }


def coal_call(placed: Sequence[Placed], spheres: Tensor) -> Callable[[], Tensor]:
    """Yes or no by coal: (rows, horizon)."""
    coal = importlib.import_module("coal")
    obstacles, robot = (coal.DynamicAABBTreeCollisionManager() for _ in range(2))
    rows = spheres.double().numpy()
    bodies = [coal.CollisionObject(coal.Sphere(float(r))) for r in rows[0, 0, :, 3]]
    fixed = []
    for mesh, pose in placed:
        pose = np.asarray(pose, np.float64)
        transform = coal.Transform3s(reference.rotation_matrix(pose[3:]), pose[:3])
        fixed.append(coal.CollisionObject(coal_model(coal, mesh), transform))
    for manager, objects in ((obstacles, fixed), (robot, bodies)):
        for body in objects:
            manager.registerObject(body)
        manager.setup()

    def call() -> Tensor:
        hit = np.zeros(rows.shape[:2], bool)
        for b, h in np.ndindex(hit.shape):
            for body, sphere in zip(bodies, rows[b, h], strict=True):
                body.setTranslation(sphere[:3])
                body.computeAABB()
            robot.update()
            callback = coal.CollisionCallBackDefault()
            robot.collide(obstacles, callback)
            hit[b, h] = callback.data.result.isCollision()
        return torch.from_numpy(hit)

    return call


def add_options(parser: Any) -> None:
    """How many obstacles and trajectories."""
    parser.add_argument("--obstacles", type=int, nargs="+", default=(5, 10, 20))
    parser.add_argument("--batch", type=int, default=32, help="trajectories of 32 waypoints")


def run(options: Any) -> str:
    """The table."""
    head = ["Panda among", "", "library, µs a configuration", "", "µs", "times the library's"]
    spheres = torch.from_numpy(panda(options.batch).spheres)
    rows = []
    for count in options.obstacles:
        for question, answers in questions(panda_among(count), spheres).items():
            results = {name: call().clone() for name, call in answers.items()}
            horizon = spheres.shape[1]
            calls = {n: Call(call, len(results[n]) * horizon) for n, call in answers.items()}
            times = harness.interleave(calls, options.rounds)
            for name in [*answers][1:]:
                wrong = differing(results[name], results["library"])
                row = [str(count), question, f"{1e6 * times.median('library'):.2f}", name]
                row += [harness.micro(times.median(name)), f"{times.ratio(name, 'library'):.2g}"]
                rows.append([*row, "" if "swept" in question else wrong])
    return harness.table([*head, "differs at"], rows)
