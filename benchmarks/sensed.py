"""Point clouds beside other structures, what updates take, height fields, maps of depth images.

Queries are those of a Panda's spheres on paths among points of a problem's scene. Yes or no is
compared with a plain walk over a tree of Warp, the cost at a reach of 0.1 m with reading a grid of
distances at 1 cm with trilinear interpolation, which is only about right, and both with SciPy's k-d
tree, if it is installed. A height field is compared with the mesh of it. Results are compared
first.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimesh
import warp as wp

import warp_collision as wc
from benchmarks import harness
from benchmarks.harness import CPU, Call, WrongResultError
from benchmarks.scenes import panda
from warp_collision.examples import load_problem, world_of
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.launching.warp_runtime import quiet_warp

wp.set_module_options(OPTIONS)

RADIUS = 0.005
REACH = 0.1
CELL = 0.01
KEEPS_TABLES = True


@wp.kernel
def plain_walk(
    tree: wp.uint64,
    points: wp.array[wp.vec3],
    spheres: wp.array[wp.vec4],
    radius: float,
    hit: wp.array[wp.bool],
):
    """Whether a point in the box around a sphere is near enough."""
    i = wp.tid()
    sphere = spheres[i]
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    reach = sphere[3] + radius
    query = wp.bvh_query_aabb(tree, center - wp.vec3(reach), center + wp.vec3(reach))
    index = wp.int32(0)
    nearest = wp.float32(reach * reach)
    while wp.bvh_query_next(query, index):
        nearest = wp.min(nearest, wp.length_sq(points[index] - center))
        if nearest < reach * reach:
            break
    hit[i] = nearest < reach * reach


@wp.kernel
def read_grid(
    grid: wp.array3d[wp.float32],
    origin: wp.vec3,
    cell: float,
    spheres: wp.array[wp.vec4],
    reach: float,
    cost: wp.array[wp.float32],
    gradient: wp.array[wp.vec4],
):
    """The hinge of a trilinear interpolation, and its gradient."""
    i = wp.tid()
    sphere = spheres[i]
    place = (wp.vec3(sphere[0], sphere[1], sphere[2]) - origin) / cell
    last = wp.vec3(float(grid.shape[0]), float(grid.shape[1]), float(grid.shape[2]))
    place = wp.min(wp.max(place, wp.vec3(0.0)), last - wp.vec3(1.001))
    x = int(place[0])
    y = int(place[1])
    z = int(place[2])
    u = place[0] - float(x)
    v = place[1] - float(y)
    w = place[2] - float(z)
    a = wp.lerp(grid[x, y, z], grid[x, y, z + 1], w)
    b = wp.lerp(grid[x, y + 1, z], grid[x, y + 1, z + 1], w)
    c = wp.lerp(grid[x + 1, y, z], grid[x + 1, y, z + 1], w)
    d = wp.lerp(grid[x + 1, y + 1, z], grid[x + 1, y + 1, z + 1], w)
    distance = wp.lerp(wp.lerp(a, b, v), wp.lerp(c, d, v), u)
    depth = sphere[3] + reach - distance
    slope = wp.clamp(depth / reach, 0.0, 1.0)
    cost[i] = wp.where(depth > reach, depth - 0.5 * reach, 0.5 * slope * depth)
    by_x = wp.lerp(c, d, v) - wp.lerp(a, b, v)
    by_y = wp.lerp(b - a, d - c, u)
    by_z = grid[x, y, z + 1] - grid[x, y, z]
    gradient[i] = -slope * wp.vec4(by_x / cell, by_y / cell, by_z / cell, -1.0)


def cloud(count: int, seed: int = 0) -> np.ndarray:
    """Points (n, 3) of the surfaces of a problem, as a camera with 1 mm of noise has them."""
    scene = world_of(load_problem("cage_2"), CPU).to_scene().to_mesh()
    table = trimesh.creation.box((2.0, 2.4, 0.02))
    table.apply_translation((0.2, 0.0, -0.05))
    mesh: Any = trimesh.util.concatenate([scene, table])
    points, _ = trimesh.sample.sample_surface(mesh, count, seed=seed)
    return (points + np.random.default_rng(seed).normal(0.0, 0.001, points.shape)).astype(
        np.float32
    )


def grid_of(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances to points at the nodes of a grid, and its lower corner."""
    low, high = points.min(axis=0) - 0.2, points.max(axis=0) + 0.2
    world = wc.MeshWorld(device="cpu")
    world.add("cloud", wc.PointCloud(points, RADIUS))
    axes = [np.arange(a, b, CELL, dtype=np.float32) for a, b in zip(low, high, strict=True)]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    flat = torch.from_numpy(nodes.reshape(-1, 3))
    values = wc.signed_distance(flat, world).distance.numpy().reshape(nodes.shape[:3])
    return values, low


def contenders(
    points: np.ndarray, spheres: torch.Tensor
) -> tuple[dict[str, Call], dict[str, Call]]:
    """Calls for yes or no, and for the cost."""
    world = wc.MeshWorld(device="cpu")
    world.add("cloud", wc.PointCloud(points, RADIUS))
    world.prepare()
    count = len(spheres)
    shaped = spheres[None, None]
    with quiet_warp():
        given = wp.from_torch(spheres, dtype=wp.vec4)
        centers = wp.array(points, dtype=wp.vec3, device="cpu")
        tree = wp.Bvh(centers, centers, constructor="sah")
        hit = wp.zeros(count, dtype=wp.bool, device="cpu")
        values, low = grid_of(points)
        grid = wp.array(values, dtype=wp.float32, device="cpu")
        cost = wp.zeros(count, dtype=wp.float32, device="cpu")
        gradient = wp.zeros(count, dtype=wp.vec4, device="cpu")

    def walk() -> None:  # keeps the tree, too
        wp.launch(plain_walk, count, [tree.id, centers, given, RADIUS], [hit], device="cpu")

    read = partial(
        wp.launch,
        read_grid,
        count,
        [grid, wp.vec3(*low), CELL, given, REACH],
        [cost, gradient],
        device="cpu",
    )
    leaf = shaped.clone().requires_grad_(True)

    def with_gradient() -> torch.Tensor:
        return wc.sphere_cost(leaf, world, activation_distance=REACH)

    yes = {
        "library": Call(lambda: wc.in_collision(shaped, world), count),
        "plain": Call(walk, count),
    }
    costs = {"library": Call(with_gradient, count), "grid": Call(read, count)}
    walk()
    wrong = int((wc.in_collision(shaped, world)[0, 0].numpy() != hit.numpy()).sum())
    if wrong > count / 1e4:
        raise WrongResultError(f"yes or no differ for {wrong} of {count} spheres")
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        return yes, costs
    known: Any = cKDTree(points)
    local = spheres[:, :3].numpy()
    limit = float(spheres[:, 3].max()) + RADIUS
    yes["cKDTree"] = Call(lambda: known.query(local, distance_upper_bound=limit), count)
    reach = limit + REACH
    costs["cKDTree"] = Call(lambda: known.query(local, distance_upper_bound=reach), count)
    return yes, costs


def height_calls(cells: int, queries: int = 20_000) -> dict[str, dict[str, Call]]:
    """Calls of a height field, and of the mesh of its triangles, which have the same distances."""
    rng = np.random.default_rng(0)
    field = wc.HeightField(hills(cells), (4.0, 4.0), 0.5)
    centers = rng.uniform((-2.0, -2.0, -0.2), (2.0, 2.0, 0.6), (queries, 3))
    radii = rng.uniform(0.02, 0.1, (queries, 1))
    spheres = torch.tensor(np.concatenate((centers, radii), axis=1)).float()[None, None]
    worlds = {}
    for name, given in (("library", field), ("its mesh", tuple(field.tessellate()))):
        worlds[name] = wc.MeshWorld(device="cpu")
        worlds[name].add("hills", given)
        worlds[name].prepare()
    found = [wc.in_collision(spheres, world) for world in worlds.values()]
    if (wrong := int((found[0] != found[1]).sum())) > 1:
        raise WrongResultError(f"height field and mesh differ for {wrong} of {queries} spheres")

    def calls(ask: Callable[[wc.MeshWorld], object]) -> dict[str, Call]:
        return {name: Call(partial(ask, world), queries) for name, world in worlds.items()}

    leaf = spheres.clone().requires_grad_(True)
    points = spheres[:, 0, :, :3].contiguous()
    return {
        "yes or no": calls(lambda world: wc.in_collision(spheres, world)),
        f"cost, {REACH} m": calls(
            lambda world: wc.sphere_cost(leaf, world, activation_distance=REACH)
        ),
        "distance": calls(lambda world: wc.signed_distance(points, world)),
    }


def hills(cells: int) -> np.ndarray:
    """Heights at (cells + 1) x (cells + 1) nodes [m]."""
    x, y = np.linspace(-2, 2, cells + 1)[:, None], np.linspace(-2, 2, cells + 1)
    return 0.2 * np.sin(3.0 * x) * np.cos(2.0 * y) + 0.02 * np.sin(40.0 * (x + y))


def height_seconds(cells: int) -> float:
    """Of one thread, for a height field that is added to a world."""
    heights = hills(cells)
    world = wc.MeshWorld(device="cpu")
    world.add("small", wc.HeightField(hills(4), (4.0, 4.0), 0.5))
    begin = time.thread_time()
    world.add("hills", wc.HeightField(heights, (4.0, 4.0), 0.5))
    return time.thread_time() - begin


def update_milliseconds(count: int, rounds: int, *, in_place: bool = False) -> float:
    """Of one thread, for a new cloud in the place of another, in its buffers or in new ones."""
    points = cloud(count)
    world = wc.MeshWorld(device="cpu")
    world.add("cloud", wc.PointCloud(points, RADIUS, capacity=count if in_place else None))
    moved = [points + np.float32(0.001 * i) for i in range(rounds + 1)]
    world.update("cloud", moved[0])
    taken = []
    for other in moved[1:]:
        begin = time.thread_time()
        world.update("cloud", other)
        taken.append(time.thread_time() - begin)
    return 1e3 * float(np.median(taken))


def integrate_milliseconds(rounds: int) -> float:
    """Of one thread, for an image of 640 x 480 into a map of 2 m at 1 cm."""
    rng = np.random.default_rng(0)
    depth = np.full((480, 640), 1.5, np.float32)
    depth[200:300, 250:350] = 0.8
    depth += rng.normal(0.0, 0.001, depth.shape).astype(np.float32)
    lens, camera = (520.0, 520.0, 319.5, 239.5), (0, 0, 0, 0.5, -0.5, 0.5, -0.5)
    taken = []
    for _ in range(rounds + 1):
        seen = wc.OccupancyMap(((0.3, -1.0, -1.0), (2.3, 1.0, 1.0)), 0.01)
        begin = time.thread_time()
        seen.integrate(depth, lens, camera)
        taken.append(time.thread_time() - begin)
    return 1e3 * float(np.median(taken[1:]))


def loop(frames: int) -> tuple[float, float]:
    """Milliseconds of a frame of the loop at 50 Hz, and by how much the memory grew [MB]."""
    points = cloud(10_000)
    world = wc.MeshWorld(device="cpu")
    world.add("camera", wc.PointCloud(points, RADIUS))
    spheres = panda(1).spheres
    leaf = torch.from_numpy(np.resize(spheres, (1, 32, 60, 4)).astype(np.float32))
    leaf.requires_grad_(True)
    taken, before = [], 0.0
    for frame in range(frames):
        begin = time.thread_time()
        world.update("camera", points + np.float32(1e-4 * (frame % 100)))
        wc.sphere_cost(leaf, world, activation_distance=0.05).sum().backward()
        taken.append(time.thread_time() - begin)
        if frame == frames // 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0 - before
    return 1e3 * float(np.median(taken)), grown


def plot(path: Path, counts: list[int], columns: dict[str, list[float]]) -> None:
    """Draws milliseconds or nanoseconds, by their names, over numbers of points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, values in columns.items():
        axes.loglog(counts, values, "o-", label=name)
    axes.set_xlabel("points")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def add_options(parser: Any) -> None:
    """How many points and frames."""
    parser.add_argument("--points", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--frames", type=int, default=1_000, help="of the loop at 50 Hz")
    parser.add_argument("--cells", type=int, default=200, help="along a side of the height field")
    parser.add_argument("--plot", type=Path, help="a picture of the times by numbers of points")


def run(options: Any) -> str:
    """The tables."""
    spheres = torch.from_numpy(panda(64).spheres.reshape(-1, 4).astype(np.float32))
    spheres = spheres[spheres[:, 3] > 0.0].contiguous()
    rows = []
    columns: dict[str, list[float]] = {}
    with harness.cpu_threads(1):
        for count in options.points:
            points = cloud(count)
            for what, calls in zip(
                ("yes or no", f"cost, {REACH} m"), contenders(points, spheres), strict=True
            ):
                times = harness.interleave(calls, options.rounds)
                others = [
                    f"{name} {times.ratio('library', over=name):.2f}"
                    for name in calls
                    if name != "library"
                ]
                taken = 1e9 * times.median("library")
                columns.setdefault(f"{what} [ns a sphere]", []).append(taken)
                row = [f"{count:,}", what, f"{taken:.0f} ns"]
                rows.append([*row, ", ".join(others)])
        text = harness.table(["points", "query", "library", "of the time of"], rows, 2)
        milliseconds = [update_milliseconds(count, options.rounds) for count in options.points]
        updates = [
            [
                f"{count:,}",
                f"{taken:.1f} ms",
                f"{update_milliseconds(count, options.rounds, in_place=True):.1f} ms",
            ]
            for count, taken in zip(options.points, milliseconds, strict=True)
        ]
        heights = []
        for what, calls in height_calls(options.cells).items():
            times = harness.interleave(calls, options.rounds)
            mesh = times.ratio("its mesh", over="library")
            heights.append([what, f"{1e9 * times.median('library'):.0f} ns", f"{mesh:.1f}"])
        columns["update [ms]"] = milliseconds
        if options.plot is not None:
            plot(options.plot, options.points, columns)
        frame, grown = loop(options.frames)
        image = integrate_milliseconds(options.rounds)
    return "\n\n".join(
        (
            text,
            harness.table(["points", "update", "with a capacity"], updates, 1),
            f"height field of {options.cells} x {options.cells} cells, and the mesh of it:\n"
            + harness.table(["query", "library", "mesh takes times that"], heights, 1),
            f"a height field of 2,000 x 2,000 cells is added in {height_seconds(2000):.2f} s",
            f"image of 640 x 480 into a map of 200 x 200 x 200: {image:.0f} ms",
            f"loop, 10,000 points and 1,920 spheres: {frame:.1f} ms a frame, "
            f"{grown:.1f} MB more after {options.frames} frames",
        )
    )
