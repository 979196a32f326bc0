"""What users ask most, of a Panda among few obstacles, next to what they have without this library.

Boxes and cylinders of the problem `bookshelf`, those near the path first, then clutter of meshes;
59 spheres of the Panda on 32 paths bent at random, of 32 waypoints. The library's world is as `add`
leaves it. It is compared with

- **drop-in**: its drop-in Functions, on meshes that a caller made;
- **short search**: a kernel with one query of the search distance for each mesh, by Warp's default
  sign. It reads as free what is deeper than that; a sweep samples four places of each waypoint;
- **coal**, where it is installed: dynamic AABB trees over the same meshes and over the spheres,
  called from Python, for yes or no.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import trimesh
from torch import Tensor

import primitives
from benchmarks import baseline, harness, truth
from benchmarks.harness import Call, Workload, require
from benchmarks.scenes import (
    ACTIVATION_DISTANCE,
    Content,
    Placed,
    panda,
    panda_among,
    scattered,
    with_radius,
    world_of,
)
from warp_collision import any_in_collision, sphere_cost, swept_sphere_cost

OBSTACLES, BATCH = (1, 5, 10, 20), 32


def yes_or_no(content: Content, device: torch.device) -> dict[str, Call]:
    """Calls that return (rows, horizon); all must say the same."""
    (placed,), spheres = content.scenes, torch.from_numpy(content.spheres).to(device)
    tables = baseline.callers_meshes(placed, device)
    hit = torch.empty(spheres.shape[:2], dtype=torch.bool, device=device)
    arguments = (spheres, tables.mesh_ids, tables.mesh_from_world, tables.n_meshes, hit)

    def short_search() -> Tensor:
        baseline.launch(baseline.any_hit, hit.shape, arguments, device)
        return hit

    answers: dict[str, Callable[[], Tensor]] = {
        "library": partial(any_in_collision, spheres, world_of([placed], device)),
        "short search": short_search,
    }
    if find_spec("coal"):
        answers["coal"] = by_coal(placed, spheres[:1].cpu())  # it takes some hundred times as long
    right = answers["library"]().cpu()
    for name, answer in answers.items():
        found = answer().cpu()
        require(torch.equal(found, right[: len(found)]), f"{name} has other answers")
    return {name: Call(answer, answer().numel()) for name, answer in answers.items()}


def coal_mesh(mesh: trimesh.Trimesh) -> Any:
    """A mesh as coal has it."""
    coal = importlib.import_module("coal")
    model = coal.BVHModelOBBRSS()
    model.beginModel(len(mesh.faces), len(mesh.vertices))
    vertices, faces = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    vertices.extend([*np.asarray(mesh.vertices, dtype=float)])
    faces.extend([coal.Triangle(*map(int, face)) for face in mesh.faces])
    model.addSubModel(vertices, faces)
    model.endModel()
    return model


def by_coal(placed: Sequence[Placed], spheres: Tensor) -> Callable[[], Tensor]:
    """Yes or no by coal: (rows, horizon)."""
    coal = importlib.import_module("coal")
    rows, fixed = spheres.double().numpy(), []
    bodies = [coal.CollisionObject(coal.Sphere(float(r))) for r in rows[0, 0, :, 3]]
    for mesh, pose in placed:
        pose = np.asarray(pose, np.float64)
        transform = coal.Transform3s(truth.reference.rotation_matrix(pose[3:]), pose[:3])
        fixed.append(coal.CollisionObject(coal_mesh(mesh), transform))
    obstacles, robot = (coal.DynamicAABBTreeCollisionManager() for _ in range(2))
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


def costs(content: Content, swept: bool, options: Any) -> dict[str, Call]:
    """Cost and gradient, for each configuration; of fewer rows where that is slow."""
    (placed,), spheres = content.scenes, torch.from_numpy(content.spheres).to(options.device)
    tables = baseline.callers_meshes(placed, options.device)
    known = {
        "world": world_of([placed], options.device),
        "activation_distance": ACTIVATION_DISTANCE,
    }
    cost = partial(swept_sphere_cost if swept else sphere_cost, **known)
    ours = baseline.differentiated(cost, spheres)
    truth.check(content, *ours.run(), swept)
    function = primitives.Call("swept" if swept else "rest", spheres, tables)
    other = baseline.differentiated(lambda rows: function(query_spheres=rows), spheres)
    first, later = (harness.seconds_of(other, options.device)[0] for _ in range(2))
    truth.check(content, *function.buffers[:2], swept)
    other = other._replace(note=f"{1e3 * max(first - later, 0.0):.0f} ms more at first sight")

    def short(rows: int) -> Call:
        return baseline.short_search(spheres[:rows], tables, swept=swept)

    limits = len(spheres), 0.1 * options.seconds, options.device
    calls = {"library": ours, "drop-in": other, "short search": harness.within(short, *limits)}
    return {n: call._replace(items=call.items // spheres.shape[2]) for n, call in calls.items()}


def long_steps(count: int, batch: int, step: float = 0.9) -> Content:
    """32 spheres that fly far [m] from waypoint to waypoint, among small curved meshes."""
    rng = np.random.default_rng(0)
    kinds = trimesh.creation.icosphere(3, 0.1), trimesh.creation.torus(0.1, 0.03)
    placed, edge = scattered(rng, count, kinds)
    moves = rng.normal(size=(batch, 31, 32, 3))
    moves *= step / np.linalg.norm(moves, axis=-1, keepdims=True)
    begin = rng.uniform(0.0, edge, (batch, 1, 32, 3))
    centers = np.concatenate([begin, begin + moves.cumsum(axis=1)], axis=1)
    return Content([placed], with_radius(np.abs((centers + edge) % (2.0 * edge) - edge)))


def workloads(options: Any) -> Iterator[Workload]:
    """Three questions among few and among more obstacles."""
    batch = max(1, round(BATCH * options.scale))
    spheres = panda(batch).spheres
    for count in OBSTACLES:
        content = Content([panda_among(count)], spheres)
        questions = {
            "yes or no": partial(yes_or_no, content, options.device),
            "cost and gradient": partial(costs, content, False, options),
            "swept cost and gradient": partial(costs, content, True, options),
        }
        for question, make in questions.items():
            yield Workload(f"{count} obstacles, {question}", "configuration", make)
    for count in (1, 5, 20, 100):
        make = partial(costs, long_steps(count, batch), True, options)
        yield Workload(f"{count} balls and tori, swept, steps of 0.9 m", "32 spheres", make)


add_options = partial(harness.timing_options, on_gpu=True)


def run(options: Any) -> str:
    """The table."""
    return harness.measure(workloads(options), options)
