"""Point clouds beside other structures, their updates, and depth images.

Queries are those of a Panda's spheres on paths among points of a problem's scene. Beside them stand
a plain walk over a tree of Warp and, where it is installed, the k-d tree of SciPy, which looks for
the nearest point within the same reach.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from typing import Any

import numpy as np
import torch
import trimesh
import warp as wp

import reference
import warp_collision as wc
from benchmarks import baseline, harness
from benchmarks.harness import CPU, Call, Workload, require
from benchmarks.scenes import panda
from warp_collision.examples import load_panda, load_problem, world_of

RADIUS = 0.005  # [m] of points
REACH = 0.1  # [m] of costs
POINTS = (1_000, 100_000, 1_000_000)
_LENS, _BESIDE = (520.0, 520.0, 319.5, 239.5), (0.2, -1.5, 0.5, 0.7071068, -0.7071068, 0.0, 0.0)


@wp.kernel(enable_backward=False)
def plain_walk(
    tree: wp.uint64,
    points: wp.array[wp.vec3],
    spheres: wp.array[wp.vec4],
    radius: float,
    hit: wp.array[wp.bool],
):
    """Whether a point in the box around a sphere is near enough."""
    i = wp.tid()
    center = baseline.center_of(spheres[i])
    reach = spheres[i][3] + radius
    query = wp.bvh_query_aabb(tree, center - wp.vec3(reach), center + wp.vec3(reach))
    index = wp.int32(0)
    nearest = wp.float32(reach * reach)
    while wp.bvh_query_next(query, index):
        nearest = wp.min(nearest, wp.length_sq(points[index] - center))
        if nearest < reach * reach:
            break
    hit[i] = nearest < reach * reach


def points_of(count: int) -> np.ndarray:
    """Points (n, 3) of the surfaces of a problem, as a camera with 1 mm of noise has them."""
    scene = world_of(load_problem("cage_2"), CPU).to_scene().to_mesh()
    table = trimesh.creation.box((2.0, 2.4, 0.02))
    table.apply_translation((0.2, 0.0, -0.05))
    mesh: Any = trimesh.util.concatenate([scene, table])
    points, _ = trimesh.sample.sample_surface(mesh, count, seed=0)
    noise = np.random.default_rng(0).normal(0.0, 0.001, points.shape)
    return (points + noise).astype(np.float32)


def cloud_of(points: np.ndarray, capacity: int | None = None) -> wc.MeshWorld:
    """A world with a cloud alone."""
    world = wc.MeshWorld(device="cpu")
    world.add("cloud", wc.PointCloud(points, RADIUS, capacity=capacity))
    return world


def yes_or_no(count: int, spheres: torch.Tensor) -> dict[str, Call]:
    """Whether spheres (1, 1, n, 4) touch a cloud."""
    points, rows = points_of(count), spheres[0, 0]
    world, hit = cloud_of(points), torch.empty(len(rows), dtype=torch.bool)
    world.prepare()
    centers = wp.array(points, dtype=wp.vec3, device="cpu")
    tree = wp.Bvh(centers, centers, constructor="sah")
    given = [tree.id, centers, wp.from_torch(rows, dtype=wp.vec4), RADIUS, wp.from_torch(hit)]

    def walk(_kept: Any = tree) -> None:
        wp.launch(plain_walk, len(rows), given, device="cpu")

    walk()
    wrong = int((wc.in_collision(spheres, world)[0, 0] != hit).sum())
    require(wrong <= len(rows) / 1e4, f"{wrong} of {len(rows)} answers differ")
    ours = Call(partial(wc.in_collision, spheres, world), len(rows))
    return {"library": ours, "plain walk": Call(walk, len(rows)), **by_kd_tree(points, rows, 0.0)}


def cost(count: int, spheres: torch.Tensor) -> dict[str, Call]:
    """Cost with its gradient, forward."""
    points, world = points_of(count), cloud_of(points_of(count))
    world.prepare()
    leaf = spheres.clone().requires_grad_(True)
    ours = partial(wc.sphere_cost, leaf, world, activation_distance=REACH)
    some = spheres[0, 0, ::1000].double().numpy()
    nearest = np.array([np.linalg.norm(points - row[:3], axis=1).min() for row in some])
    right = reference.hinge(some[:, 3] + RADIUS + REACH - nearest, REACH)
    require(np.allclose(ours()[0, 0, ::1000].detach(), right, atol=1e-5), "another cost")
    return {"library": Call(ours, spheres.shape[2]), **by_kd_tree(points, spheres[0, 0], REACH)}


def by_kd_tree(points: np.ndarray, spheres: torch.Tensor, reach: float) -> dict[str, Call]:
    """The nearest point to each of the spheres (n, 4), within the largest reach of all."""
    if not find_spec("scipy"):
        return {}
    from scipy.spatial import cKDTree

    known: Any = cKDTree(points)
    limit = float(spheres[:, 3].max()) + RADIUS + reach
    query = partial(known.query, spheres[:, :3].numpy(), distance_upper_bound=limit)
    return {"cKDTree": Call(query, len(spheres))}


def update(count: int, in_place: bool) -> dict[str, Call]:
    """A new cloud in the place of another, in its buffers or in new ones."""
    points = points_of(count)
    world, moved = cloud_of(points, count if in_place else None), cycle((points, points + 1e-3))
    return {"library": Call(lambda: world.update("cloud", next(moved)))}


def frame(spheres: torch.Tensor) -> dict[str, Call]:
    """What a loop at 50 Hz does: a cloud of 10,000 points, cost and gradient."""
    points = points_of(10_000)
    world, moved = cloud_of(points), cycle((points, points + 1e-3))
    leaf = spheres[:, :, :1920].clone().requires_grad_(True)

    def run() -> None:
        world.update("cloud", next(moved))
        wc.sphere_cost(leaf, world, activation_distance=0.05).sum().backward()

    return {"library": Call(run)}


def image() -> dict[str, Call]:
    """An image of 640 x 480 into a map of 2 m at 1 cm."""
    depth = np.full((480, 640), 1.5, np.float32)
    depth[200:300, 250:350] = 0.8
    depth += np.random.default_rng(0).normal(0.0, 0.001, depth.shape).astype(np.float32)
    lens, camera = (520.0, 520.0, 319.5, 239.5), (0, 0, 0, 0.5, -0.5, 0.5, -0.5)

    def run() -> None:
        seen = wc.OccupancyMap(((0.3, -1.0, -1.0), (2.3, 1.0, 1.0)), 0.01)
        seen.integrate(depth, lens, camera)

    return {"library": Call(run)}


def frame_to_proof(count: int) -> dict[str, Call]:
    """Depth in, map and cloud of the world updated, 30 waypoints of a path proven or refused."""
    robot, frames = load_panda(), [noisy(seed) for seed in range(4)]
    joints = torch.tensor([0.0, -0.8, 0.0, -2.2, 0.0, 1.5, 0.8])
    goal = joints + torch.tensor([0.3, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    way = torch.lerp(joints, goal, torch.linspace(0.0, 1.0, 30)[:, None])[None]
    camera = wc.Camera(_LENS, _BESIDE, size=(480, 640))
    seen, world = wc.OccupancyMap(((-0.9, -0.9, -0.1), (0.9, 0.9, 1.3)), 0.02), wc.MeshWorld()
    times: list[tuple[float, float]] = []  # on the clock, and of all cores together

    def parts(depth: np.ndarray) -> dict[str, Any]:
        seen.integrate(depth, camera, max_depth=3.0)
        grid = seen.to_voxel_grid()
        cloud = wc.PointCloud.from_depth(depth, camera, stride=4, max_depth=3.0)
        return {"seen": grid.seen, "never seen": grid.unseen, "camera": cloud}

    for name, part in parts(frames[0]).items():
        world.add(name, part)
    following = cycle(frames)

    def run() -> None:
        begin, used = time.perf_counter(), time.process_time()
        for name, part in parts(next(following)).items():
            world.update(name, part)
        wc.joint_path_in_collision(way, robot, world).any().item()
        times.append((time.perf_counter() - begin, time.process_time() - used))

    for _ in range(count):
        run()
    p50, p99 = 1e3 * np.quantile(times[count // 10 :], (0.5, 0.99), axis=0)
    note = "; ".join(
        f"{what} p50 {p50[i]:.0f} ms, p99 {p99[i]:.0f} ms"
        for i, what in enumerate(("on the clock", "of CPU"))
    )
    return {"library": Call(run, note=note)}


def noisy(seed: int) -> np.ndarray:
    """A wall with a box before it, 1 mm of noise, and 0.5 % of the pixels without a return."""
    rng, depth = np.random.default_rng(seed), np.full((480, 640), 1.9, np.float32)
    depth[200:300, 250 + 10 * seed : 350 + 10 * seed] = 1.2
    depth += rng.uniform(-0.001, 0.001, depth.shape).astype(np.float32)
    depth[rng.random(depth.shape) < 0.005] = 0.0
    return depth


def workloads(options: Any) -> Iterator[Workload]:
    """Clouds of all sizes, then frames and images."""
    paths = panda(max(1, round(64 * options.scale)))
    spheres = torch.from_numpy(paths.spheres).reshape(1, 1, -1, 4)
    spheres = spheres[:, :, spheres[0, 0, :, 3] > 0.0].contiguous()
    for count in (max(500, round(points * options.scale)) for points in POINTS):
        name = f"{count:,} points"
        yield Workload(f"{name}, yes or no", "sphere", partial(yes_or_no, count, spheres))
        yield Workload(f"{name}, cost at {REACH} m", "sphere", partial(cost, count, spheres))
        for what, in_place in (("update", False), ("update in place", True)):
            yield Workload(f"{name}, {what}", "update", partial(update, count, in_place))
    yield Workload("10,000 points and 1,920 spheres", "frame", partial(frame, spheres))
    yield Workload("640 x 480 pixels", "image", image)
    proof = partial(frame_to_proof, max(10, round(200 * options.scale)))
    yield Workload("frame of 640 x 480 to a proof of 30 waypoints", "frame", proof)


add_options = harness.timing_options


def run(options: Any) -> str:
    """The table."""
    return harness.measure(workloads(options), options)
