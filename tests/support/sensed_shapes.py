"""Signed distances of what sensors see, in float64: balls by a k-d tree or one by one."""

from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree

from reference import Array, closest_points
from warp_collision import PointCloud

KINDS = ("volume", "surface", "line", "copies", "one", "powers", "far")
Distance = Callable[[Array], Array]


def random_points(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Points (n, 3), as float32 has them.

    Args:
        rng: random numbers.
        kind: one of `KINDS`: in a box; on its sides; in a row, two of which are the same; at few
            places; a single one; ever closer to a corner, which makes trees deep; far from 0.
        count: how many.
    """
    points = rng.uniform(-0.3, 0.3, (count, 3))
    if kind == "surface":
        points[np.arange(count), rng.integers(3, size=count)] = rng.choice([-0.3, 0.3], count)
    elif kind == "line":
        points = np.linspace((-0.3, -0.2, 0.1), (0.3, 0.25, 0.1), count)
        points[-1] = points[0]
    elif kind == "copies":
        points = points[rng.integers(min(5, count), size=count)]
    elif kind == "one":
        points = points[:1]
    elif kind == "powers":
        points = 2.0 ** -rng.uniform(1.0, 60.0, (count, 1)) * np.sign(rng.normal(size=(count, 3)))
    elif kind == "far":
        points += (40.0, -30.0, 20.0)
    return points.astype(np.float32).astype(np.float64)


def balls_distance(points: Array, radii: Array) -> Distance:
    """The least distance to a point (n, 3) less its radius (n,)."""
    if np.ptp(radii) == 0.0:
        tree = cKDTree(points)
        return lambda places: tree.query(places)[0] - radii[0]

    def distance(places: Array) -> Array:
        found = np.empty(len(places))
        for block in np.array_split(np.arange(len(places)), 1 + len(places) * len(points) // 10**7):
            ways = np.linalg.norm(places[block][:, None] - points, axis=2)
            found[block] = (ways - radii).min(axis=1)
        return found

    return distance


def random_cloud(
    rng: np.random.Generator, kind: str = "volume", count: int = 300, *, equal: bool = True
) -> tuple[Distance, PointCloud]:
    """A cloud and its signed distance; with radii that are equal, or a hundred times apart."""
    points = random_points(rng, kind, count)
    radii = np.full(len(points), 0.02)
    if not equal:
        radii = 10.0 ** rng.uniform(-3.0, -1.0, len(points))
    radii = radii.astype(np.float32).astype(np.float64)
    return balls_distance(points, radii), PointCloud(np.column_stack((points, radii)))


def boxes_distance(cells: Array, edge: float) -> Distance:
    """Distance to the nearest of some cubes, given by their lower corners (n, 3), 0 in them."""
    tree = cKDTree(cells + 0.5 * edge)

    def distance(places: Array) -> Array:
        # Of the nearest by its center, a box is at most half a diagonal nearer than another.
        near = tree.query(places)[0] + 0.5 * np.sqrt(3.0) * edge
        found = np.empty(len(places))
        for i, around in enumerate(tree.query_ball_point(places, near + 1e-9)):
            low = cells[around]
            way = np.maximum(np.maximum(low - places[i], places[i] - low - edge), 0.0)
            found[i] = np.sqrt((way**2).sum(axis=1).min())
        return found

    return distance


def voxels_distance(occupied: Array, edge: float, origin: Array, outside: str = "free") -> Distance:
    """Signed distance of the union of the boxes of occupied voxels (nx, ny, nz)."""
    solid = np.pad(occupied, 1, constant_values=outside == "occupied")
    corner = origin - edge
    to_solid = boxes_distance(np.argwhere(solid) * edge + corner, edge)
    to_free = boxes_distance(np.argwhere(~solid) * edge + corner, edge)
    high = np.array(solid.shape)

    def distance(places: Array) -> Array:
        cells = np.floor((places - corner) / edge).astype(int)
        known = ((cells >= 0) & (cells < high)).all(axis=1)
        cells = np.clip(cells, 0, high - 1)
        inside = np.where(known, solid[tuple(cells.T)], outside == "occupied")
        found = np.empty(len(places))
        found[~inside] = to_solid(places[~inside])
        found[inside] = -to_free(places[inside])
        return found

    return distance


def random_voxels(rng: np.random.Generator, shape: tuple[int, int, int], kind: str) -> Array:
    """Occupied voxels: a few boxes and posts, single ones, a plate, or nearly all."""
    occupied = np.zeros(shape, bool)
    if kind == "boxes":
        for _ in range(6):
            low = rng.integers(0, shape)
            high = low + rng.integers(1, 5, 3)
            occupied[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = True
    elif kind == "dust":
        occupied |= rng.random(shape) < 0.02
    elif kind == "plate":
        occupied[:, :, shape[2] // 2] = True
    else:
        occupied |= rng.random(shape) < 0.97
    occupied[tuple(rng.integers(0, shape))] = True
    occupied[tuple(rng.integers(0, shape))] = False
    return occupied


def heights_distance(heights: Array, size: Array, base: float) -> Distance:
    """Signed distance of a terrain (nx, ny) over a rectangle, down to -base, face by face."""
    axes = [
        np.linspace(-0.5 * length, 0.5 * length, count)
        for length, count in zip(size, heights.shape, strict=True)
    ]
    top = np.stack((*np.meshgrid(*axes, indexing="ij"), heights), axis=2)
    a, b, c, d = top[:-1, :-1], top[1:, :-1], top[1:, 1:], top[:-1, 1:]
    triangles = [np.stack(part, axis=2).reshape(-1, 3, 3) for part in ((a, b, c), (a, c, d))]
    for edge in (top[0], top[-1], top[:, 0], top[:, -1]):
        low = edge * (1, 1, 0) - (0, 0, base)
        for part in ((edge[:-1], edge[1:], low[1:]), (edge[:-1], low[1:], low[:-1])):
            triangles.append(np.stack(part, axis=1))
    corners = top[[0, -1, -1, 0], [0, 0, -1, -1]] * (1, 1, 0) - (0, 0, base)
    triangles.append(corners[[[0, 1, 2], [0, 2, 3]]])
    vertices = np.concatenate(triangles).reshape(-1, 3)
    faces = np.arange(len(vertices)).reshape(-1, 3)

    def distance(places: Array) -> Array:
        found = np.linalg.norm(places - closest_points(places, vertices, faces)[0], axis=1)
        cell = np.array(size) / (np.array(heights.shape) - 1)
        local = (places[:, :2] + 0.5 * np.array(size)) / cell
        i, j = np.clip(np.floor(local).astype(int), 0, np.array(heights.shape) - 2).T
        u, v = local[:, 0] - i, local[:, 1] - j
        first, last = heights[i, j], heights[i + 1, j + 1]
        middle = np.where(u > v, heights[i + 1, j], heights[i, j + 1])
        most, least = np.maximum(u, v), np.minimum(u, v)
        surface = first + most * (middle - first) + least * (last - middle)
        inside = (np.abs(places[:, :2]) < 0.5 * np.array(size)).all(axis=1)
        inside &= (places[:, 2] > -base) & (places[:, 2] < surface)
        return np.where(inside, -found, found)

    return distance


def random_heights(rng: np.random.Generator, kind: str) -> Array:
    """Heights of a terrain, as float32 has them.

    Args:
        rng: random numbers.
        kind: "hills", smooth; "cliffs", steps; "noise"; "flat"; "pit", one deep cell among a plain;
            or "cell", a single one.
    """
    shape = (2, 2) if kind == "cell" else (18, 11)
    x, y = np.meshgrid(*(np.linspace(0.0, 1.0, count) for count in shape), indexing="ij")
    heights = 0.1 * np.sin(7.0 * x) * np.cos(5.0 * y)
    if kind == "cliffs":
        heights = 0.4 * (heights > 0.0)
    elif kind in ("noise", "cell"):
        heights = rng.uniform(-0.1, 0.3, shape)
    elif kind == "flat":
        heights[:] = 0.1
    elif kind == "pit":
        heights[:] = 0.2
        heights[9, 5] = -0.15
    return heights.astype(np.float32).astype(np.float64)
