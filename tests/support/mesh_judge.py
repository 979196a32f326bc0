"""Clearance of the links of a robot by their meshes, in float64, as coal has it.

What is wholly inside of another body touches it, too, which coal does not see.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import coal
import numpy as np
import trimesh
from benchmarks.users import coal_mesh

from reference import Array, winding_number

_ROUNDING = 1e-9  # m, of the distances of balls from boxes, in float64

_SLENDER = 1e-6  # m, the height of a face that is a line


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


class _Body(NamedTuple):
    """A mesh of a link: for coal, and as balls that hold it.

    Attributes:
        link: its name.
        mesh: in the frame of the link.
        model: the same for coal.
        balls: (n, 4) centers and radii.
    """

    link: str
    mesh: trimesh.Trimesh
    model: Any
    balls: Array


class MeshJudge:
    """Links by their meshes among obstacles.

    Left out are bodies whose balls are farther from the box around an obstacle than what is asked
    for; what counts is coal's.
    """

    def __init__(self, links: Mapping[str, Sequence[trimesh.Trimesh]], obstacles: Sequence[Fixed]):
        self._bodies = [
            _Body(name, mesh, coal_mesh(_without_slivers(mesh)), _balls_around(mesh))
            for name, meshes in links.items()
            for mesh in meshes
        ]
        self._obstacles = [
            (fixed, coal.Transform3s(fixed.pose[:3, :3], fixed.pose[:3, 3])) for fixed in obstacles
        ]
        self._owner = np.repeat(np.arange(len(self._bodies)), [len(b.balls) for b in self._bodies])
        boxes = [_box_around(fixed) for fixed in obstacles]
        self._half = np.array([half for _, half in boxes])
        self._into = np.array([np.linalg.inv(place) for place, _ in boxes])

    def clearance(self, frames: Mapping[str, Array], within: float = np.inf) -> float:
        """Least distance of links at frames (4, 4) from the obstacles [m]; 0 where they touch.

        What is farther away than `within` counts as that far.
        """
        request, result = coal.DistanceRequest(), coal.DistanceResult()
        asked, contacts = coal.CollisionRequest(), coal.CollisionResult()
        apart, least = self._at_least(frames), within
        for index, number in zip(*np.nonzero(apart <= within), strict=True):
            (link, mesh, model, _), (fixed, at) = self._bodies[index], self._obstacles[number]
            frame = frames[link]
            pair = (model, coal.Transform3s(frame[:3, :3], frame[:3, 3]), fixed.shape, at)
            contacts.clear()
            if coal.collide(*pair, asked, contacts):
                return 0.0
            if apart[index, number] <= 0.0 and _is_one_inside(fixed, frame, mesh):
                return 0.0
            if apart[index, number] < least:
                result.clear()
                result.min_distance = least  # where coal's search ends
                least = min(least, max(coal.distance(*pair, request, result), 0.0))
        return least

    def _at_least(self, frames: Mapping[str, Array]) -> Array:
        """Bounds (n_bodies, n_obstacles) of distances: those of balls from boxes."""
        balls = np.concatenate(
            [
                body.balls[:, :3] @ frames[body.link][:3, :3].T + frames[body.link][:3, 3]
                for body in self._bodies
            ]
        )
        local = np.einsum("oij,bj->boi", self._into[:, :3, :3], balls) + self._into[:, :3, 3]
        beyond = np.linalg.norm(np.maximum(np.abs(local) - self._half, 0.0), axis=-1)
        beyond -= np.concatenate([body.balls[:, 3] for body in self._bodies])[:, None]
        least = np.full((len(self._bodies), len(self._obstacles)), np.inf)
        np.minimum.at(least, self._owner, beyond)
        return least - _ROUNDING


def _without_slivers(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """A mesh without faces that are lines: coal says that balls far away touch them."""
    sides = np.linalg.norm(mesh.triangles - np.roll(mesh.triangles, 1, axis=1), axis=-1)
    heights = 2.0 * mesh.area_faces / np.maximum(sides.max(axis=1), _SLENDER)
    return trimesh.Trimesh(mesh.vertices, mesh.faces[heights > _SLENDER], process=False)


def _balls_around(mesh: trimesh.Trimesh) -> Array:
    """Balls (n, 4) around the cells of a grid over the box of a mesh."""
    low, high = mesh.bounds
    cells = np.clip(
        np.ceil((high - low) / max((high - low).min(), 0.2 * np.ptp(mesh.bounds))), 1, 5
    )
    size = (high - low) / cells
    places = np.indices(cells.astype(int)).reshape(3, -1).T + 0.5
    radius = np.full((len(places), 1), 0.5 * np.linalg.norm(size))
    return np.concatenate((low + places * size, radius), axis=1)


def _box_around(fixed: Fixed) -> tuple[Array, Array]:
    """The pose (4, 4) of the center of a box around an obstacle, and its half edges."""
    fixed.shape.computeLocalAABB()
    around, place = fixed.shape.aabb_local, np.eye(4)
    place[:3, 3] = around.center()
    size = np.array((around.width(), around.height(), around.depth()))
    return fixed.pose @ place, 0.5 * size


def _is_one_inside(fixed: Fixed, frame: Array, mesh: trimesh.Trimesh) -> bool:
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
