"""Signed distances of cuboids, spheres, capsules, cylinders and half spaces in float64, by pieces.

Every shape is here a list of surface pieces: the distance is the least to any piece, the sign that
of containment. Nothing is clamped to an octant or to a profile, as the kernels do it.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np

from reference import Array, lengths


class ExactShape(NamedTuple):
    """A shape by its name, its parameters as the library takes them, and its signed distance."""

    kind: str
    parameters: tuple[float, ...]
    distance: Callable[[Array], Array]

    def __call__(self, points: Array) -> Array:
        """Signed distance (n,) of points (n, 3)."""
        return self.distance(points)

    @property
    def size(self) -> float:
        """The largest length in it [m]."""
        if self.kind == "half_space":
            return 1.0 + abs(self.parameters[3])
        return max(self.parameters)

    @property
    def half_extents(self) -> Array:
        """(3,) half edges of the bounding box, or of one that a plane goes through [m]."""
        if self.kind == "half_space":
            return np.full(3, self.size)
        if self.kind == "cuboid":
            return 0.5 * np.array(self.parameters)
        half = np.full(3, self.parameters[0])
        if self.kind in ("cylinder", "cone"):
            half[2] = 0.5 * self.parameters[1]
        elif self.kind == "capsule":
            half[2] += 0.5 * self.parameters[1]
        return half


def cuboid(x: float, y: float, z: float) -> ExactShape:
    """A box of these edges: six rectangles."""
    half = 0.5 * np.array([x, y, z])

    def distance(points: Array) -> Array:
        nearest = np.full(len(points), np.inf)
        for axis, side in product(range(3), (-1.0, 1.0)):
            foot = np.minimum(np.maximum(points, -half), half)
            foot[:, axis] = side * half[axis]
            nearest = np.minimum(nearest, lengths(points - foot))
        inside = np.all((points > -half) & (points < half), axis=1)
        return np.where(inside, -nearest, nearest)

    return ExactShape("cuboid", (x, y, z), distance)


def sphere(radius: float) -> ExactShape:
    """A ball."""

    def distance(points: Array) -> Array:
        return lengths(points) - radius

    return ExactShape("sphere", (radius,), distance)


def capsule(radius: float, length: float) -> ExactShape:
    """A tube and two half spheres; inside, a half sphere that is not there is never the nearest."""
    ends = np.array([[0.0, 0.0, -0.5 * length], [0.0, 0.0, 0.5 * length]])

    def distance(points: Array) -> Array:
        height = points[:, 2]
        beside = np.abs(height) <= 0.5 * length
        tube = np.hypot(points[:, 0], points[:, 1])
        caps = np.minimum(*(lengths(points - end) for end in ends))
        return np.where(beside, tube, caps) - radius

    return ExactShape("capsule", (radius, length), distance)


def cylinder(radius: float, height: float) -> ExactShape:
    """A tube and two disks."""

    def distance(points: Array) -> Array:
        across = np.hypot(points[:, 0], points[:, 1])
        past = np.maximum(np.abs(points[:, 2]) - 0.5 * height, 0.0)
        nearest = np.hypot(across - radius, past)
        for end in (-0.5 * height, 0.5 * height):
            past = np.maximum(across - radius, 0.0)
            nearest = np.minimum(nearest, np.hypot(past, points[:, 2] - end))
        inside = (across < radius) & (np.abs(points[:, 2]) < 0.5 * height)
        return np.where(inside, -nearest, nearest)

    return ExactShape("cylinder", (radius, height), distance)


def cone(radius: float, height: float) -> ExactShape:
    """A disk and a side that is unrolled from its tip."""
    tip, rim = np.array([0.0, 0.5 * height]), np.array([radius, -0.5 * height])
    way = rim - tip

    def distance(points: Array) -> Array:
        flat = np.stack([np.hypot(points[:, 0], points[:, 1]), points[:, 2]], axis=1)
        along = np.clip((flat - tip) @ way / (way @ way), 0.0, 1.0)
        nearest = lengths(flat - (tip + along[:, None] * way))
        past = np.maximum(flat[:, 0] - radius, 0.0)
        nearest = np.minimum(nearest, np.hypot(past, flat[:, 1] - rim[1]))
        inside = (flat - tip) @ (height, radius) < 0.0
        return np.where(inside & (flat[:, 1] > rim[1]), -nearest, nearest)

    return ExactShape("cone", (radius, height), distance)


def half_space(x: float, y: float, z: float, offset: float) -> ExactShape:
    """All below a plane that is given by its normal and its distance from the origin."""
    normal = np.array([x, y, z]) / np.linalg.norm([x, y, z])

    def distance(points: Array) -> Array:
        return points @ normal - offset

    return ExactShape("half_space", (x, y, z, offset), distance)


def slopes(shape: ExactShape, points: Array, step: Array) -> tuple[Array, Array]:
    """Differences of the signed distance (n, 3) to both sides of a point, by axis."""
    here = shape.distance(points)
    forward, backward = np.empty_like(points), np.empty_like(points)
    for axis in range(3):
        offset = np.zeros_like(points)
        offset[:, axis] = step
        forward[:, axis] = (shape.distance(points + offset) - here) / step
        backward[:, axis] = (here - shape.distance(points - offset)) / step
    return forward, backward


def scattered(shape: ExactShape, count: int, rng: np.random.Generator) -> Array:
    """Points (n, 3) around, in and far from a shape, many of them on planes, axes and edges."""
    half = shape.half_extents
    reach = np.array([0.7, 1.0, 1.0, 1.3, 3.0, 100.0])[rng.integers(0, 6, count)]
    points = rng.uniform(-1.0, 1.0, (count, 3)) * half * reach[:, None]
    # Every coordinate may be one that is special instead: a plane of symmetry, a face, an edge.
    special = half * np.array([0.0, 1.0, -1.0, 0.5])[rng.integers(0, 4, (count, 3))]
    points = np.where(rng.random((count, 3)) < 0.2, special, points)
    # Right on the surface and a hair off it, by walking there along the slope.
    walk = rng.random(count) < 0.3
    step = np.full(count, 1e-4 * half.min())
    forward, _ = slopes(shape, points, step)
    points -= np.where(walk, shape.distance(points), 0.0)[:, None] * forward
    points[:4] = 0.0
    points[1, 2] = 0.5 * half[2]
    points[2, 0] = half[0]
    points[3] = half
    return points
