"""A scene for the judge: exact distances in float64 and coal's verdict, no code of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import coal
import numpy as np
import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Nearest(NamedTuple):
    """Clearances of spheres, and which obstacle is nearest; both (...)."""

    clearance: np.ndarray
    obstacle: np.ndarray


@dataclass(frozen=True, eq=False)
class Obstacle:
    """A box, cylinder, capsule or sphere.

    Attributes:
        name: in the scene.
        kind: "box", "cylinder", "capsule" or "sphere".
        dimensions: full edges; height, that of a capsule without caps, and radius; radius [m].
        rotation: (3, 3), world_from_obstacle.
        position: (3,) of the center [m].
    """

    name: str
    kind: str
    dimensions: tuple[float, ...]
    rotation: np.ndarray
    position: np.ndarray

    def signed_distance(self, points: np.ndarray) -> np.ndarray:
        """Exact signed distance (...,) of points (..., 3) [m], negative inside."""
        local = (points - self.position) @ self.rotation
        if self.kind == "sphere":
            return np.linalg.norm(local, axis=-1) - self.dimensions[0]
        if self.kind == "capsule":
            half = 0.5 * self.dimensions[0]
            local[..., 2] -= local[..., 2].clip(-half, half)
            return np.linalg.norm(local, axis=-1) - self.dimensions[1]
        if self.kind == "box":
            beyond = np.abs(local) - 0.5 * np.asarray(self.dimensions)
        else:
            height, radius = self.dimensions
            around = np.hypot(local[..., 0], local[..., 1]) - radius
            beyond = np.stack([around, np.abs(local[..., 2]) - 0.5 * height], axis=-1)
        outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)
        return outside + np.minimum(beyond.max(axis=-1), 0.0)

    def coal_object(self) -> coal.CollisionObject:
        """The same for coal."""
        kind = getattr(coal, self.kind.capitalize())
        # Those of round bodies are radius and height.
        shape = kind(*(self.dimensions if self.kind == "box" else self.dimensions[::-1]))
        return coal.CollisionObject(shape, self.rotation, self.position)


class Scene:
    """Obstacles of a scene.

    Args:
        obstacles: all of them.
    """

    def __init__(self, obstacles: list[Obstacle]):
        self.obstacles = obstacles
        self._coal = [obstacle.coal_object() for obstacle in obstacles]

    @classmethod
    def from_file(cls, path: Path) -> Scene:
        """Reads a MoveIt planning scene.

        Raises:
            ValueError: it has something else than boxes, cylinders and spheres.
        """
        with Path(path).open() as file:
            world = yaml.load(file, _Loader)["world"]
        others = {key for key in world if key != "collision_objects" and world[key]}
        obstacles = []
        for item in world["collision_objects"]:
            others |= {key for key in ("meshes", "planes", "subframe_names") if item.get(key)}
            base = _moveit_matrix(item["pose"]) if "pose" in item else np.eye(4)
            for part, pose in zip(item["primitives"], item["primitive_poses"], strict=True):
                placed = base @ _moveit_matrix(pose)
                kind, dimensions = part["type"], tuple(map(float, part["dimensions"]))
                if kind not in ("box", "cylinder", "sphere"):
                    others.add(kind)
                obstacle = Obstacle(item["id"], kind, dimensions, placed[:3, :3], placed[:3, 3])
                obstacles.append(obstacle)
        if others:
            raise ValueError(f"{path} must have boxes, cylinders and spheres alone, got {others}")
        return cls(obstacles)

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> Scene:
        """Obstacles in the layout of `assets/problems`, other keys are passed over.

        Capsules reach from base to tip, which are at the same distance from their origin along z.
        """
        obstacles = []
        for key, (kind, dimensions_of) in _KINDS.items():
            for name, item in mapping.get(key, {}).items():
                placed = _matrix(item["pose"][:3], *item["pose"][3:])
                dimensions = tuple(dimensions_of(item))
                obstacles.append(Obstacle(name, kind, dimensions, placed[:3, :3], placed[:3, 3]))
        return cls(obstacles)

    def nearest(self, centers: np.ndarray, radii: np.ndarray) -> Nearest:
        """Clearance of spheres with centers (..., n_spheres, 3) and radii (n_spheres,)."""
        best = np.full(centers.shape[:-1], np.inf)
        which = np.full(centers.shape[:-1], -1)
        for i, obstacle in enumerate(self.obstacles):
            clearance = obstacle.signed_distance(centers) - radii
            nearer = clearance < best
            best[nearer], which[nearer] = clearance[nearer], i
        return Nearest(best, which)

    def hits(self, center: np.ndarray, radius: float, obstacle: int) -> bool:
        """Whether a sphere touches an obstacle, as coal sees it."""
        sphere = coal.CollisionObject(coal.Sphere(float(radius)), np.eye(3), center)
        request, result = coal.CollisionRequest(), coal.CollisionResult()
        return bool(coal.collide(sphere, self._coal[obstacle], request, result))


_KINDS: dict[str, tuple[str, Callable[[dict[str, Any]], Sequence[float]]]] = {
    "cuboid": ("box", lambda item: item["dims"]),
    "cylinder": ("cylinder", lambda item: (item["height"], item["radius"])),
    "capsule": ("capsule", lambda item: (item["tip"][2] - item["base"][2], item["radius"])),
}


def _moveit_matrix(pose: dict[str, Any]) -> np.ndarray:
    x, y, z, w = pose["orientation"]
    return _matrix(pose["position"], w, x, y, z)


def _matrix(position: Sequence[float], w: float, x: float, y: float, z: float) -> np.ndarray:
    """A 4 x 4 matrix of a position and a quaternion."""
    w, x, y, z = np.array([w, x, y, z]) / np.linalg.norm([w, x, y, z])
    matrix = np.eye(4)
    matrix[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    matrix[:3, 3] = position
    return matrix
