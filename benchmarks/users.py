"""What users ask most, of a Panda among few obstacles, next to what they have without this library.

Run with `python -m benchmarks.users`; `--write` keeps the table in results/.

One CPU thread by its own time, all contenders in turns; figures are medians, ratios are medians of
the ratios within a round. Boxes and cylinders of the problem `bookshelf`, those near the path
first, then clutter of meshes; 59 spheres of the Panda on paths bent at random, 32 waypoints. The
library's world is as `add` leaves it. It is compared with

- **short search**: a kernel with one query of the search distance for each mesh, by Warp's default
  sign. It reads as free what is deeper than that; a sweep samples four places of each waypoint;
- **coal**, where it is installed: dynamic AABB trees over the same meshes and over the spheres,
  called from Python, for yes or no. Its answers are compared, too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from benchmarks import foreign
from benchmarks.baseline import pose_of
from benchmarks.measure import cpu_threads
from benchmarks.report import RESULTS
from benchmarks.workloads import ACTIVATION_DISTANCE, Placed
from warp_collision import MeshWorld, any_in_collision, sphere_cost, swept_sphere_cost
from warp_collision.launching.launch import quiet_warp

CPU = torch.device("cpu")
OBSTACLES = (5, 10, 20)
# Rows that coal gets: it takes some hundred times as long.
_ROWS_OF_COAL = 1

Call = Callable[[], Tensor]


@wp.kernel(enable_backward=False)
def any_hit(
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
    mesh_ids: wp.array2d[wp.uint64],  # (1, slots)
    mesh_from_world: wp.array3d[wp.float32],  # (1, slots, 8)
    n_meshes: wp.array[wp.int32],  # (1,)
    hit: wp.array2d[wp.bool],  # (batch, horizon)
):
    """One thread per waypoint, one query per sphere and mesh until one is hit."""
    b, h = wp.tid()
    found = bool(False)
    s = int(0)
    while s < spheres.shape[2] and not found:
        sphere = spheres[b, h, s]
        center = wp.vec3(sphere[0], sphere[1], sphere[2])
        slot = int(0)
        while slot < n_meshes[0] and not found:
            local = wp.transform_point(pose_of(mesh_from_world, 0, slot), center)
            found = wp.mesh_query_point(mesh_ids[0, slot], local, sphere[3]).result
            slot += 1
        s += 1
    hit[b, h] = found


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        question: what is asked.
        obstacles: how many there are.
        library: microseconds of a configuration.
        others: the same of all others that answer it, by name.
        ratios: their time over the library's.
        wrong: answers of the others that differ, by name.
    """

    question: str
    obstacles: int
    library: float
    others: dict[str, float]
    ratios: dict[str, float]
    wrong: dict[str, str]


def world_of(placed: Sequence[Placed]) -> MeshWorld:
    """The library's world, as `load` leaves it."""
    world = MeshWorld(1, len(placed), CPU)
    world.load({str(i): (mesh, tuple(pose)) for i, (mesh, pose) in enumerate(placed)})
    return world


def library_calls(world: MeshWorld, spheres: Tensor) -> dict[str, Call]:
    """What the library answers, by question."""
    leaf = spheres.detach().requires_grad_(True)

    def cost(function: Any) -> Call:
        def call() -> Tensor:
            leaf.grad = None
            value = function(leaf, world, activation_distance=ACTIVATION_DISTANCE)
            value.sum().backward()
            return value.detach()

        return call

    return {
        "yes or no": lambda: any_in_collision(spheres, world),
        "cost and gradient": cost(sphere_cost),
        "swept cost and gradient": cost(swept_sphere_cost),
    }


def short_calls(placed: Sequence[Placed], buffers: foreign.Buffers) -> dict[str, Call]:
    """What straightforward kernels answer, by question."""
    scene = foreign.make_scene(placed, CPU)
    spheres, rows = buffers.spheres, len(buffers.spheres)
    hit = torch.empty(spheres.shape[:2], dtype=torch.bool)

    def yes_or_no() -> Tensor:
        arguments = [
            wp.from_torch(spheres, dtype=wp.vec4),
            wp.from_torch(scene.ids, dtype=wp.uint64),
            *map(wp.from_torch, (scene.rows, scene.counts, hit)),
        ]
        wp.launch(any_hit, hit.shape, arguments, device="cpu")
        return hit

    return {
        "yes or no": yes_or_no,
        "cost and gradient": foreign.straightforward_call(scene, buffers, False, rows),
        "swept cost and gradient": foreign.straightforward_call(scene, buffers, True, rows),
    }


def coal_call(placed: Sequence[Placed], spheres: Tensor) -> Call:
    """Yes or no by coal for the first rows: (rows, horizon)."""
    coal = importlib.import_module("coal")
    obstacles = coal.DynamicAABBTreeCollisionManager()
    kept = []
    for mesh, pose in placed:
        vertices, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        for vertex in np.asarray(mesh.vertices, np.float64):
            vertices.append(vertex)
        for face in np.asarray(mesh.faces):
            triangles.append(coal.Triangle(*(int(i) for i in face)))
        model = coal.BVHModelOBBRSS()
        model.beginModel(len(triangles), len(vertices))
        model.addSubModel(vertices, triangles)
        model.endModel()
        x, y, z, w, *turn = (float(value) for value in pose)
        matrix = _rotation(w, *turn)
        kept.append(coal.CollisionObject(model, coal.Transform3s(matrix, np.array([x, y, z]))))
        obstacles.registerObject(kept[-1])
    obstacles.setup()
    rows = spheres[:_ROWS_OF_COAL].double().numpy()
    bodies = [coal.CollisionObject(coal.Sphere(float(r))) for r in rows[0, 0, :, 3]]
    robot = coal.DynamicAABBTreeCollisionManager()
    for body in bodies:
        robot.registerObject(body)
    robot.setup()

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


def _rotation(w: float, x: float, y: float, z: float) -> np.ndarray:
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2.0 * (w * skew + skew @ skew)


def measure(count: int, batch: int, rounds: int) -> list[Row]:
    """All questions among so many obstacles."""
    placed = foreign.placed_meshes(count)
    buffers = foreign.make_buffers(foreign.panda_spheres(batch), CPU)
    spheres = buffers.spheres
    horizon = spheres.shape[1]
    library = library_calls(world_of(placed), spheres)
    short = short_calls(placed, buffers)
    rows = []
    for question, ours in library.items():
        others = {"short search": (short[question], batch)}
        if question == "yes or no" and importlib.util.find_spec("coal"):
            others["coal"] = coal_call(placed, spheres), min(batch, _ROWS_OF_COAL)
        right = ours().clone()
        wrong = {}
        for name, (call, n_rows) in others.items():
            off = (call().float() - right[:n_rows].float()).abs() > 1e-4
            wrong[name] = f"{int(off.sum())} of {off.numel()}" if "swept" not in question else ""
        taken: dict[str, list[float]] = {name: [] for name in ("library", *others)}
        for _ in range(rounds):
            taken["library"].append(1e6 * foreign.elapsed(ours) / (batch * horizon))
            for name, (call, n_rows) in others.items():
                taken[name].append(1e6 * foreign.elapsed(call) / (n_rows * horizon))
        medians = {name: float(np.median(values)) for name, values in taken.items()}
        base = np.array(taken.pop("library"))
        ratios = {name: float(np.median(np.array(v) / base)) for name, v in taken.items()}
        rows.append(Row(question, count, medians.pop("library"), medians, ratios, wrong))
    return rows


def text(rows: Sequence[Row]) -> str:
    """The table, in Markdown."""
    lines = [
        "| Panda among | | library, µs a configuration | | µs | times the library's | differs at |",
        "|---:|---|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        for name, value in row.others.items():
            lines.append(
                f"| {row.obstacles} | {row.question} | {row.library:.2f} | {name} | {value:.3g} | "
                f"{row.ratios[name]:.2g} | {row.wrong[name]} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.users", description=__doc__)
    parser.add_argument("--obstacles", type=int, nargs="+", default=OBSTACLES)
    parser.add_argument("--batch", type=int, default=32, help="trajectories of 32 waypoints")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    options = parser.parse_args(arguments)
    rows = []
    with quiet_warp(), cpu_threads(1):
        for count in options.obstacles:
            rows += measure(count, options.batch, options.rounds)
    print(text(rows))
    if options.write:
        (RESULTS / "users-cpu.md").write_text(text(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
