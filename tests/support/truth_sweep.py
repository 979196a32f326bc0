"""Scenes that a moving sphere can miss, paths through them, and how close those truly come."""

import importlib.util
from collections.abc import Callable
from functools import cache
from types import ModuleType

import numpy as np
import torch
import trimesh
import warp as wp

import compare
import shapes
from reference import Array, Obstacle
from truth_solids import Solid, box, convex, joined, scattered_bodies, torus
from warp_collision import MeshWorld, signed_distance
from warp_collision.kernels import mesh_distance as distance_module
from warp_collision.kernels import sweep as sweep_module
from warp_collision.kernels.mesh_distance import SdfSample, obstacle_distance
from warp_collision.obstacles.shapes import Shape

SCENES = ("plates", "posts", "grid of rods", "clutter")


def _turned(solid: Solid, rng: np.random.Generator, spread: float) -> Solid:
    pose = shapes.random_pose(rng, spread)
    placed = shapes.to_world(solid.vertices, Obstacle(solid.vertices, solid.faces, pose))
    return Solid(shapes.rounded(placed), solid.faces, ())


@cache
def scene(name: str) -> Obstacle:
    """One mesh of many thin bodies, within half a metre of the origin."""
    rng = np.random.default_rng(120)
    if name == "plates":
        sizes = [(*rng.uniform(0.1, 0.5, size=2), 0.0005) for _ in range(6)]
        bodies = [_turned(box(size), rng, 0.3) for size in sizes]
    elif name == "posts":
        bodies = [box((0.002, 0.002, 0.8), (*rng.uniform(-0.4, 0.4, 2), 0.0)) for _ in range(20)]
    elif name == "grid of rods":
        places = np.linspace(-0.4, 0.4, 9)
        bodies = [box((0.004, 0.8, 0.004), (x, 0.0, 0.0)) for x in places]
        bodies += [box((0.8, 0.004, 0.004), (0.0, y, 0.01)) for y in places]
    else:
        bodies = [_turned(made, rng, 0.3) for made in (torus(), box((0.3, 0.2, 0.1)))]
        bodies += [scattered_bodies(8, seed=5), _turned(convex_needle(), rng, 0.3)]
    return obstacle(joined(bodies))


def obstacle(solid: Solid) -> Obstacle:
    """A solid at the origin."""
    return Obstacle(solid.vertices, solid.faces)


def convex_needle() -> Solid:
    """A thin tetrahedron."""
    corners = [[0, 0, 0], [0.5, 0, 0], [0.5, 0.002, 0], [0.5, 0, 0.002]]
    return convex(trimesh.convex.convex_hull(np.array(corners)))


def segments(
    rng: np.random.Generator,
    mesh: Obstacle,
    count: int,
    reach: float = 0.1,
    lengths: tuple[float, float] = (0.01, 2.0),
) -> Array:
    """Begins and ends (count, 2, 3) of segments that pass a mesh within ``reach`` [m].

    Lengths are spread evenly on a logarithmic scale; one in eight runs along an axis, as the edges
    and faces of much of the world do.
    """
    through = shapes.near_points(rng, mesh, count, reach)[:, None]
    direction = rng.normal(size=(count, 1, 3))
    aligned = rng.random(count) < 0.125
    direction[aligned] = np.eye(3)[rng.integers(3, size=aligned.sum())][:, None]
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    length = np.exp(rng.uniform(*np.log(lengths), size=(count, 1, 1)))
    share = rng.uniform(size=(count, 1, 1)) + np.array([-1.0, 0.0])[:, None]
    return shapes.rounded(through + share * length * direction)


def as_paths(centers: Array, radii: Array | float) -> Array:
    """Spheres (n, waypoints, 1, 4) from centers (n, waypoints, 3) and a radius for each path."""
    radii = np.broadcast_to(np.reshape(radii, (-1, 1, 1)), (*centers.shape[:2], 1))
    return shapes.rounded(np.concatenate([centers, radii], axis=2))[:, :, None]


def library_distance(mesh: Obstacle, device: torch.device) -> Callable[[Array], Array]:
    """The library's signed distance of points (n, 3), which other tests compare with the truth."""
    world = compare.build_world([[mesh]], device)

    def distance(points: Array) -> Array:
        found = signed_distance(compare.to_device(points[None], device), world)
        return compare.to_array(found.distance)[0]

    return distance


def lowest_on(
    distance: Callable[[Array], Array],
    begin: Array,
    end: Array,
    precision: float,
    reach: Array | float = np.inf,
) -> Array:
    """Smallest signed distance (n,) on segments, by bisection, to the precision [m].

    An interval is cut until the values at its ends, which change by no more than its length, rule
    out that it holds anything lower than what is known, or than ``reach``.
    """
    lengths = np.linalg.norm(end - begin, axis=1)
    reaches = np.broadcast_to(reach, lengths.shape)
    owner = np.arange(len(begin))
    left, right = np.zeros(len(begin)), np.ones(len(begin))
    low, high = distance(begin), distance(end)
    best = np.minimum(low, high)
    while len(owner):
        bound = 0.5 * (low + high - (right - left) * lengths[owner])
        kept = bound < np.minimum(best[owner], reaches[owner]) - precision
        owner, left, right = owner[kept], left[kept], right[kept]
        low, high = low[kept], high[kept]
        middle = 0.5 * (left + right)
        value = distance(begin[owner] + middle[:, None] * (end - begin)[owner])
        np.minimum.at(best, owner, value)
        owner = np.concatenate([owner, owner])
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        low, high = np.concatenate([low, value]), np.concatenate([value, high])
    return best


def lowest_of_halves(
    distance: Callable[[Array], Array],
    ends: Array,
    precision: float,
    reach: Array | float = np.inf,
) -> Array:
    """Smallest signed distance (n, 2) on the two halves of segments (n, 2, 3)."""
    middles = 0.5 * (ends[:, 0] + ends[:, 1])
    halves = [lowest_on(distance, ends[:, t], middles, precision, reach) for t in (0, 1)]
    return np.stack(halves, axis=1)


# -- counting queries -----------------------------------------------------------------------------


@wp.func_native("static int counter = 0; counter += more; return counter;")
def count(more: int) -> int:  # kernels of a CPU run in one thread here
    """Number of queries since the process began, with some more."""
    ...


@wp.func
def counted_distance(record: wp.uint64, point: wp.vec3, limit: float) -> SdfSample:
    count(1)
    return obstacle_distance(record, point, limit)


def _counted_sweep() -> ModuleType:
    """The library's own sweep, compiled with distance queries that count themselves."""
    assert sweep_module.__file__
    spec = importlib.util.spec_from_file_location("counted_sweep", sweep_module.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    original = distance_module.distance_of_obstacle
    distance_module.distance_of_obstacle = counted_distance
    try:
        spec.loader.exec_module(module)
    finally:
        distance_module.distance_of_obstacle = original
    return module


counted = _counted_sweep()
CountedPath, counted_path_sample, counted_sweep = counted.Path, counted.path_sample, counted.sweep


@wp.kernel(enable_backward=False)
def _count(
    record: wp.uint64,
    begin: wp.array[wp.vec3],
    end: wp.array[wp.vec3],
    reach: float,
    tolerance: float,
    counts: wp.array[wp.int32],
    lowest: wp.array[wp.float32],
):
    i = wp.tid()
    before = count(0)
    path = CountedPath()
    path.record = record
    path.origin = begin[i]
    path.length = wp.length(end[i] - begin[i])
    path.direction = (end[i] - begin[i]) / path.length
    start = counted_distance(record, begin[i], reach + path.length)
    lowest[i] = start.distance
    if start.found:
        found = counted_sweep(path, counted_path_sample(path, 0.0, start), reach, tolerance)
        lowest[i] = found.distance
    counts[i] = count(0) - before


def count_queries(
    mesh: Obstacle | Shape, begin: Array, end: Array, reach: float, tolerance: float
) -> tuple[Array, Array]:
    """Distance queries (n,) that the library's sweep makes on paths, and what it finds (n,).

    A mesh is never taken for an exact shape.
    """
    world = MeshWorld(device="cpu")
    if isinstance(mesh, Obstacle):
        world.add("mesh", (mesh.vertices, mesh.faces), repair=False)
    else:
        world.add("mesh", mesh)
    records = world._storage.records
    arrays = [wp.array(x.astype(np.float32), dtype=wp.vec3, device="cpu") for x in (begin, end)]
    counts = wp.zeros(len(begin), dtype=wp.int32, device="cpu")
    lowest = wp.zeros(len(begin), dtype=wp.float32, device="cpu")
    inputs = [wp.uint64(int(records[0, 0])), *arrays, reach, tolerance]
    wp.launch(_count, len(begin), inputs, [counts, lowest], device="cpu")
    return counts.numpy(), lowest.numpy().astype(np.float64)
