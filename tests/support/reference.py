"""What the library must compute, in float64 NumPy and by brute force.

Nothing here knows Warp, torch or the library. Lengths are metres, spheres are
``(batch, horizon, n_spheres, 4)`` with x, y, z, radius in the world frame, and a
signed distance is negative inside. A scene is a sequence of obstacles: meshes
(`Obstacle`), or anything with a signed distance of its own (`Body`). The costs of
moving spheres are in ``reference_sweep``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
ON_SURFACE = 1e-9  # [m] nearer than this, (p - c) / |p - c| is rounding, not a direction
PAIRS_AT_ONCE = 1 << 15  # (point, triangle) pairs per block, to stay within the cache


class Obstacle(NamedTuple):
    """A triangle mesh at a pose ``(x, y, z, qw, qx, qy, qz)`` in the world."""

    vertices: Array  # (n_vertices, 3)
    faces: Indices  # (n_faces, 3), counter-clockwise seen from outside
    pose: Sequence[float] | Array = IDENTITY
    enabled: bool = True

    def distance(self, points: Array) -> Array:
        """Signed distance (...) of points (..., 3) in the world."""
        flat = obstacle_signed_distance(points.reshape(-1, 3), self).distance
        return flat.reshape(points.shape[:-1])


@dataclass
class Body:
    """An obstacle by the signed distance in its own frame, at a pose in the world."""

    shape: Callable[[Array], Array]  # signed distance (n,) of points (n, 3)
    pose: Sequence[float] | Array = IDENTITY
    padding: float = 0.0
    enabled: bool = True

    def distance(self, points: Array) -> Array:
        """Signed distance (...) of points (..., 3) in the world."""
        flat = self.shape(in_frame(points, self.pose).reshape(-1, 3))
        return flat.reshape(points.shape[:-1]) - self.padding


Scene = Sequence[Obstacle] | Sequence[Body]


class SignedDistance(NamedTuple):
    """Signed distance, its unit outward gradient, and what attains it.

    The source is a face for one mesh, a slot for a scene, -1 where there is nothing.
    """

    distance: Array  # (n,)
    gradient: Array  # (n, 3)
    source: Indices  # (n,)


def dots(a: Array, b: Array) -> Array:
    """Dot products (...) of vectors (..., k); of few components faster than a product and a sum."""
    return np.einsum("...i,...i->...", a, b)


def lengths(vectors: Array) -> Array:
    """Lengths (...) of vectors (..., k)."""
    return np.sqrt(dots(vectors, vectors))


def _dot(a: Array, b: Array) -> Array:
    """Dot products (...) of vectors (3, ...)."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Array, b: Array) -> Array:
    """Cross products (3, ...) of vectors (3, ...)."""
    return np.stack([a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))])


def closest_on_triangles(points: Array, corners: Array) -> Array:
    """Closest point of triangle i to point i.

    The candidates are the foot of the perpendicular, where it lies in the triangle, and
    the closest points of the three edges. Every candidate is a convex combination of the
    corners, so that slivers and collinear corners can only lose the foot, which the edges
    then replace.

    Args:
        points: (n, 3).
        corners: (n, 3, 3), the corners of a triangle for each point.

    Returns:
        (n, 3).
    """
    # By components (3, n): operations on whole rows take a third of the time of those on triples.
    p, a, b, c = (np.ascontiguousarray(v.T) for v in (points, *corners.swapaxes(0, 1)))
    ab, ac, ap = b - a, c - a, p - a
    normal = _cross(ab, ac)
    area = _dot(normal, normal)
    safe = np.where(area > 0.0, area, 1.0)
    v = _dot(_cross(ap, ac), normal) / safe
    w = _dot(_cross(ab, ap), normal) / safe
    best = a + v * ab + w * ac
    inside = (area > 0.0) & (v >= 0.0) & (w >= 0.0) & (v + w <= 1.0)
    offset = p - best
    best_squared = np.where(inside, _dot(offset, offset), np.inf)
    for start, end in ((a, b), (b, c), (c, a)):
        edge = end - start
        length = _dot(edge, edge)
        along = _dot(p - start, edge) / np.where(length > 0.0, length, 1.0)
        candidate = start + np.minimum(np.maximum(along, 0.0), 1.0) * edge
        offset = p - candidate
        squared = _dot(offset, offset)
        closer = squared < best_squared
        best = np.where(closer, candidate, best)
        best_squared = np.where(closer, squared, best_squared)
    return best.T


def _distances(points: Array, targets: Array) -> Array:
    """Distances (n, m) of all points (n, 3) to all targets (m, 3), to about 1e-8 of the scale."""
    squared = (points**2).sum(1)[:, None] - 2.0 * points @ targets.T + (targets**2).sum(1)
    return np.sqrt(np.maximum(squared, 0.0))


def _blocks(n_points: int, n_faces: int) -> list[slice]:
    size = max(1, PAIRS_AT_ONCE // max(1, n_faces))
    return [slice(start, start + size) for start in range(0, n_points, size)]


def closest_points(points: Array, vertices: Array, faces: Indices) -> tuple[Array, Indices]:
    """Closest points of a triangle mesh, over all its triangles.

    A triangle whose bounding ball is further away than some other centroid is not
    examined: it cannot hold the closest point.

    Args:
        points: (n, 3).
        vertices: (n_vertices, 3).
        faces: (n_faces, 3).

    Returns:
        The closest points (n, 3) and the faces (n,) that hold them.
    """
    corners = vertices[faces]
    centroids = corners.mean(axis=1)
    radii = lengths(corners - centroids[:, None]).max(axis=1)
    slack = 1e-6 * (1.0 + np.abs(centroids).max() + np.abs(points).max(initial=0.0))
    closest = np.empty_like(points)
    face = np.empty(len(points), dtype=np.intp)
    for block in _blocks(len(points), len(faces)):
        to_centroid = _distances(points[block], centroids)
        bound = to_centroid.min(axis=1, keepdims=True) + slack
        row, candidate = np.nonzero(to_centroid - radii <= bound)
        on_triangle = closest_on_triangles(points[block][row], corners[candidate])
        offset = points[block][row] - on_triangle
        squared = dots(offset, offset)
        starts = np.searchsorted(row, np.arange(len(to_centroid)))
        nearest = np.flatnonzero(squared == np.minimum.reduceat(squared, starts)[row])
        first = nearest[np.unique(row[nearest], return_index=True)[1]]
        closest[block] = on_triangle[first]
        face[block] = candidate[first]
    return closest, face


def winding_number(points: Array, vertices: Array, faces: Indices) -> Array:
    """Generalized winding number: the solid angle of all triangles over 4 pi.

    Args:
        points: (n, 3).
        vertices: (n_vertices, 3).
        faces: (n_faces, 3).

    Returns:
        (n,), 1 inside and 0 outside of a closed mesh, anything between for an open one.

    Source: van Oosterom and Strackee, "The solid angle of a plane triangle", 1983.
    """
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    normals = np.cross(a, b) + np.cross(b, c) + np.cross(c, a)
    volumes = dots(a, np.cross(b, c))
    squared_edges = [dots(i - j, i - j) for i, j in ((b, c), (c, a), (a, b))]
    winding = np.empty(len(points))
    for block in _blocks(len(points), len(faces)):
        # The norms need every digit near a vertex, hence no expansion into products here.
        offsets = points[block].T[..., None] - vertices.T[:, None]
        norms = np.sqrt(_dot(offsets, offsets))
        la, lb, lc = (norms[:, faces[:, i]] for i in range(3))
        products = [
            0.5 * (first**2 + second**2 - edge)
            for (first, second), edge in zip(
                ((lb, lc), (lc, la), (la, lb)), squared_edges, strict=True
            )
        ]
        determinant = volumes - points[block] @ normals.T
        denominator = la * lb * lc + products[0] * la + products[1] * lb + products[2] * lc
        winding[block] = np.arctan2(determinant, denominator).sum(axis=1) / (2.0 * np.pi)
    return winding


def mesh_signed_distance(points: Array, vertices: Array, faces: Indices) -> SignedDistance:
    """Signed distance of one mesh in its own frame; inside is where the winding exceeds 0.5.

    The gradient is ``sign * (p - c) / |p - c|`` with c the closest point, and on the surface
    the normal of the face that holds c.

    Args:
        points: (n, 3).
        vertices: (n_vertices, 3).
        faces: (n_faces, 3).
    """
    closest, face = closest_points(points, vertices, faces)
    offset = points - closest
    magnitude = lengths(offset)
    sign = np.where(winding_number(points, vertices, faces) > 0.5, -1.0, 1.0)
    on_surface = magnitude < ON_SURFACE
    gradient = sign[:, None] * offset / np.where(on_surface, 1.0, magnitude)[:, None]
    gradient[on_surface] = face_normals(vertices, faces[face[on_surface]])
    return SignedDistance(sign * magnitude, gradient, face)


def face_normals(vertices: Array, faces: Indices) -> Array:
    """Unit outward normals (n_faces, 3)."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    normal = np.cross(b - a, c - a)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def rotation_matrix(quaternion: Sequence[float] | Array) -> Array:
    """Rotation matrices (..., 3, 3) of quaternions (..., 4), w, x, y, z, of any length but 0."""
    given = np.asarray(quaternion, dtype=np.float64)
    w, x, y, z = np.moveaxis(given / lengths(given)[..., None], -1, 0)
    entries = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    return np.moveaxis(entries, (0, 1), (-2, -1))


def in_frame(points: Array, pose: Sequence[float] | Array) -> Array:
    """Points (..., 3) of the world in a frame at a pose."""
    return (points - np.asarray(pose[:3], dtype=np.float64)) @ rotation_matrix(pose[3:])


def obstacle_signed_distance(points: Array, obstacle: Obstacle) -> SignedDistance:
    """Signed distance of one posed mesh; points and gradients (n, 3) in the world."""
    in_mesh = in_frame(points, obstacle.pose)
    sample = mesh_signed_distance(in_mesh, obstacle.vertices, obstacle.faces)
    return sample._replace(gradient=sample.gradient @ rotation_matrix(obstacle.pose[3:]).T)


def scene_signed_distance(points: Array, scene: Sequence[Obstacle]) -> SignedDistance:
    """Minimum over the enabled meshes of a scene, with the slot that attains it.

    Returns:
        Distance +inf, gradient 0 and source -1 where no mesh is enabled.
    """
    nearest = SignedDistance(
        np.full(len(points), np.inf), np.zeros((len(points), 3)), np.full(len(points), -1)
    )
    for slot, obstacle in enumerate(scene):
        if not obstacle.enabled:
            continue
        sample = obstacle_signed_distance(points, obstacle)
        closer = sample.distance < nearest.distance
        nearest = SignedDistance(
            np.where(closer, sample.distance, nearest.distance),
            np.where(closer[:, None], sample.gradient, nearest.gradient),
            np.where(closer, slot, nearest.source),
        )
    return nearest


def hinge(d: Array, activation_distance: float) -> Array:
    """Cost of an overlap d [m]: 0, then quadratic up to the activation distance, then linear."""
    if activation_distance == 0.0:
        return np.maximum(d, 0.0)
    quadratic = d * d / (2.0 * activation_distance)
    linear = d - 0.5 * activation_distance
    return np.where(d <= 0.0, 0.0, np.where(d <= activation_distance, quadratic, linear))


def rows_and_obstacles(
    spheres: Array, scenes: Sequence[Scene], env_index: Sequence[int] | None
) -> Iterator[tuple[Indices, Obstacle | Body]]:
    """Each enabled obstacle with the batch rows of its env; env 0 has all without an index."""
    envs = np.asarray(env_index or [0] * len(spheres))
    for env in np.unique(envs):
        rows = np.flatnonzero(envs == env)
        yield from ((rows, obstacle) for obstacle in scenes[env] if obstacle.enabled)


def sphere_cost(
    spheres: Array,
    scenes: Sequence[Scene],
    *,
    weight: float = 1.0,
    activation_distance: float = 0.02,
    env_index: Sequence[int] | None = None,
) -> Array:
    """Weighted sum over the enabled meshes of the hinge of ``radius + eta - sdf(center)``.

    Args:
        spheres: (batch, horizon, n_spheres, 4); a radius below 0 disables the sphere.
        scenes: one per env, each the slots of the env in order.
        weight: factor of the sum.
        activation_distance: eta [m].
        env_index: the env of each batch row.

    Returns:
        (batch, horizon, n_spheres).
    """
    cost = np.zeros(spheres.shape[:3])
    for rows, obstacle in rows_and_obstacles(spheres, scenes, env_index):
        reach = spheres[rows, ..., 3] + activation_distance
        cost[rows] += hinge(reach - obstacle.distance(spheres[rows, ..., :3]), activation_distance)
    return np.where(spheres[..., 3] < 0.0, 0.0, weight * cost)


def central_difference(function: Callable[[Array], float], x: Array, step: float = 1e-6) -> Array:
    """Gradient of a scalar function of an array, in the shape of the array."""
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        ahead, behind = x.copy(), x.copy()
        ahead[index] += step
        behind[index] -= step
        gradient[index] = (function(ahead) - function(behind)) / (2.0 * step)
    return gradient


class RowGradient(NamedTuple):
    """Gradient of a function of rows, and how far its one-sided differences disagree."""

    gradient: Array  # (..., k)
    kink: Array  # (...)


def row_gradient(function: Callable[[Array], Array], x: Array, step: float = 1e-6) -> RowGradient:
    """Gradients of a function (..., k) -> (...) whose rows do not depend on each other.

    ``kink`` is the largest difference between the forward and the backward difference: of the
    order of ``step`` times the curvature where the function is smooth, of the order of the
    gradient where it has a kink within ``step``.
    """
    middle = function(x)
    gradient, kink = np.empty_like(x), np.zeros(x.shape[:-1])
    for k in range(x.shape[-1]):
        offset = step * np.eye(x.shape[-1])[k]
        ahead, behind = function(x + offset), function(x - offset)
        gradient[..., k] = (ahead - behind) / (2.0 * step)
        kink = np.maximum(kink, np.abs(ahead - 2.0 * middle + behind) / step)
    return RowGradient(gradient, kink)
