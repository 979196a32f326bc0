"""Meshes without an inside of their own: what is solid about them is their winding number."""

from functools import cache

import numpy as np
import trimesh

import shapes
from reference import Array, Indices
from shapes import rounded
from truth_solids import box, convex

Mesh = tuple[Array, Indices]

NAMES = (
    *("open box", "open tube", "countertop", "oven"),
    *("sheets", "random triangles", "half of the faces flipped"),
)


@cache
def open_mesh(name: str) -> Mesh:
    """A mesh of ``NAMES``: vertices, float32 numbers, and faces."""
    if name in shapes.OPEN:
        return shapes.mesh(name).vertices, shapes.mesh(name).faces
    rng = np.random.default_rng(101)
    if name == "open box":
        vertices, faces = box((0.5, 0.3, 0.2)).mesh
        return vertices, faces[vertices[faces][:, :, 2].min(axis=1) < 0.0]
    if name == "open tube":
        tube = convex(trimesh.creation.cylinder(radius=0.1, height=0.4, sections=32))
        return tube.vertices, tube.faces[np.ptp(tube.vertices[tube.faces][:, :, 2], axis=1) > 0.0]
    if name == "sheets":
        return _sheets(20)
    if name == "random triangles":
        return rounded(rng.uniform(-0.5, 0.5, (300, 3))), np.arange(300).reshape(-1, 3)
    ball = trimesh.creation.icosphere(subdivisions=2, radius=0.25)
    # Each face apart from its neighbours by a hair, so that nothing tells which way it should look.
    corners = rounded(np.asarray(ball.triangles) * rng.uniform(0.999, 1.0, (len(ball.faces), 1, 1)))
    faces = np.arange(3 * len(corners)).reshape(-1, 3)
    faces[::2] = faces[::2, ::-1]
    return corners.reshape(-1, 3), faces


def _sheets(count: int) -> Mesh:
    """Parallel squares that look the same way: winding numbers far above 1."""
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    heights = np.linspace(0.0, 0.5, count)
    vertices = np.concatenate([np.column_stack([corners, np.full(4, z)]) for z in heights])
    square = np.array([[0, 1, 2], [0, 2, 3]])
    return rounded(vertices), np.concatenate([square + 4 * i for i in range(count)])
