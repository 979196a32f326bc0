"""Clearance of the links of a robot by their meshes, in float64, as coal has it.

What is wholly inside of another body touches it, too, which coal does not see.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import coal
import numpy as np
import trimesh
from benchmarks.users import coal_mesh

from reference import Array, winding_number


class Fixed(NamedTuple):
    """An obstacle for coal, in the world.

    Attributes:
        shape: its surface; of a ball the solid.
        pose: (4, 4).
        solid: its closed mesh in its own frame, if it has an inside.
        point: one of its points, in its own frame.
    """

    shape: Any
    pose: Array
    solid: trimesh.Trimesh | None = None
    point: tuple[float, ...] = (0.0, 0.0, 0.0)


def of_mesh(mesh: trimesh.Trimesh, pose: Array, *, is_solid: bool = True) -> Fixed:
    """A mesh at a pose."""
    point = tuple(mesh.vertices[0].tolist())
    return Fixed(coal_mesh(mesh), pose, mesh if is_solid else None, point)


def of_balls(centers: Array, radius: float, pose: Array) -> list[Fixed]:
    """Balls in a frame."""
    made = []
    for center in centers:
        place = pose.copy()
        place[:3, 3] += pose[:3, :3] @ center
        made.append(Fixed(coal.Sphere(radius), place))
    return made


class Ball(NamedTuple):
    """Around a shape of coal."""

    center: Array  # (3,)
    radius: float

    @classmethod
    def around(cls, shape: Any, pose: Array) -> "Ball":
        """That of a shape at a pose (4, 4)."""
        shape.computeLocalAABB()
        return cls(pose[:3, :3] @ shape.aabb_center + pose[:3, 3], shape.aabb_radius)

    def apart(self, other: "Ball") -> float:
        """What the distance of two shapes is at least [m]; below 0 where their balls overlap."""
        return math.dist(self.center, other.center) - self.radius - other.radius


class MeshJudge:
    """Links by their meshes among obstacles."""

    def __init__(self, links: Mapping[str, Sequence[trimesh.Trimesh]], obstacles: Sequence[Fixed]):
        self._links = {
            name: [(mesh, coal_mesh(mesh)) for mesh in meshes] for name, meshes in links.items()
        }
        self._obstacles = [
            (
                fixed,
                coal.Transform3s(fixed.pose[:3, :3], fixed.pose[:3, 3]),
                Ball.around(fixed.shape, fixed.pose),
            )
            for fixed in obstacles
        ]

    def clearance(self, frames: Mapping[str, Array]) -> float:
        """Least distance of links at frames (4, 4) from the obstacles [m]; 0 where they touch."""
        least = np.inf
        request, result = coal.DistanceRequest(), coal.DistanceResult()
        for name, meshes in self._links.items():
            frame = frames[name]
            place = coal.Transform3s(frame[:3, :3], frame[:3, 3])
            for mesh, model in meshes:
                ball = Ball.around(model, frame)
                for fixed, at, other in self._obstacles:
                    if least == 0.0 or ball.apart(other) > least:
                        continue
                    result.clear()
                    found = coal.distance(model, place, fixed.shape, at, request, result)
                    if found > 0.0:
                        found *= not self._is_one_inside(fixed, frame, mesh)
                    least = min(least, max(found, 0.0))
        return least

    def _is_one_inside(self, fixed: Fixed, frame: Array, mesh: trimesh.Trimesh) -> bool:
        """Whether of two bodies whose surfaces do not meet one is inside, by one of its points."""
        of_fixed = fixed.pose @ np.append(fixed.point, 1.0)
        if _encloses(mesh, frame, of_fixed):
            return True
        return fixed.solid is not None and _encloses(
            fixed.solid, fixed.pose, frame @ np.append(mesh.vertices[0], 1.0)
        )


def _encloses(mesh: trimesh.Trimesh, pose: Array, point: Array) -> bool:
    """Whether a point (4,) of the world is inside of a mesh at a pose (4, 4)."""
    local = (np.linalg.inv(pose) @ point)[:3]
    low, high = mesh.bounds
    if not ((local > low) & (local < high)).all():
        return False
    return bool(abs(winding_number(local[None], mesh.vertices, mesh.faces)[0]) > 0.5)
