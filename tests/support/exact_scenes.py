"""Costs of spheres, at rest and moving, among exact shapes in float64."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from exact_shapes import ExactShape, capsule, cuboid, cylinder, sphere
from reference import hinge, rotation_matrix
from warp_collision import Capsule, Cuboid, Cylinder, MeshWorld, Sphere
from warp_collision.obstacles.shapes import Shape

Array = NDArray[np.float64]

THIRDS = 40  # each leaves two thirds of a segment


class Placed(NamedTuple):
    """A shape in a slot."""

    exact: ExactShape
    pose: Array  # (7,)
    padding: float = 0.0

    def distance(self, points: Array) -> Array:
        """Signed distance (...) of points (..., 3) in the world."""
        local = (points - self.pose[:3]) @ rotation_matrix(self.pose[3:])
        flat = self.exact.distance(local.reshape(-1, 3))
        return flat.reshape(points.shape[:-1]) - self.padding


def library_shape(exact: ExactShape) -> Shape:
    """The same as the library takes it."""
    if exact.kind == "cuboid":
        x, y, z = exact.parameters
        return Cuboid((x, y, z))
    kinds = {"sphere": Sphere, "capsule": Capsule, "cylinder": Cylinder}
    return kinds[exact.kind](*exact.parameters)


def random_scene(rng: np.random.Generator, count: int = 4, padding: float = 0.0) -> list[Placed]:
    """Shapes of all kinds in a cube of 2 m, some of them inflated."""
    placed = []
    for index in range(count):
        a, b, c = rng.uniform(0.05, 0.6, 3)
        made = (cuboid(a, b, c), sphere(0.5 * a), capsule(0.3 * a, b), cylinder(0.4 * a, b))
        pose = np.concatenate((rng.uniform(-0.7, 0.7, 3), rng.normal(size=4)))
        pose[3:] /= np.linalg.norm(pose[3:])
        inflated = padding * float(rng.random() < 0.6)
        placed.append(Placed(made[index % 4], pose.astype(np.float32).astype(float), inflated))
    return placed


def build(scenes: Sequence[Sequence[Placed]], device: torch.device, room: int = 4) -> MeshWorld:
    """A world with one env per scene."""
    world = MeshWorld(len(scenes), max(room, *map(len, scenes)), device)
    for env, scene in enumerate(scenes):
        for slot, placed in enumerate(scene):
            shape = library_shape(placed.exact)
            world.add(f"shape_{slot}", shape, placed.pose, env, padding=placed.padding)
    return world


def scene_distance(points: Array, scene: Sequence[Placed]) -> Array:
    """The least signed distance (...) of points (..., 3)."""
    return np.min([placed.distance(points) for placed in scene], axis=0)


def sphere_cost(spheres: Array, scene: Sequence[Placed], eta: float) -> Array:
    """Costs (...) of spheres (..., 4)."""
    reach = spheres[..., 3] + eta
    terms = [hinge(reach - placed.distance(spheres[..., :3]), eta) for placed in scene]
    return np.sum(terms, axis=0)


def path_minimum(placed: Placed, begin: Array, end: Array) -> Array:
    """The least signed distance (n,) on segments: that of a convex shape is convex on a line."""
    low, high = np.zeros(len(begin)), np.ones(len(begin))
    for _ in range(THIRDS):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        values = [
            placed.distance(begin + share[:, None] * (end - begin)) for share in (left, right)
        ]
        lower = values[0] < values[1]
        low, high = np.where(lower, low, left), np.where(lower, right, high)
    places = (low, high, np.zeros_like(low), np.ones_like(low))
    return np.min(
        [placed.distance(begin + share[:, None] * (end - begin)) for share in places], axis=0
    )


def swept_cost(spheres: Array, scene: Sequence[Placed], eta: float) -> Array:
    """Costs (b, h, n) of spheres (b, h, n, 4) that move from waypoint to waypoint."""
    horizon = spheres.shape[1]
    centers = spheres[..., :3]
    total = np.zeros(spheres.shape[:-1])
    for placed in scene:
        for t in range(horizon):
            least = placed.distance(centers[:, t])
            for other in {max(t - 1, 0), min(t + 1, horizon - 1)} - {t}:
                begin = centers[:, t].reshape(-1, 3)
                end = 0.5 * (begin + centers[:, other].reshape(-1, 3))
                least = np.minimum(least, path_minimum(placed, begin, end).reshape(least.shape))
            total[:, t] += hinge(spheres[:, t, :, 3] + eta - least, eta)
    return total
