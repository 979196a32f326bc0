"""Meshes with flaws, and what is to be known of one that was prepared."""

from typing import Any, NamedTuple

import numpy as np
import trimesh

from reference import Array, Indices, winding_number
from warp_collision.obstacles.geometry import Geometry, prepare

Mesh = tuple[Array, Indices]


class Numbers(NamedTuple):
    """The fields of a report that count, by their short names."""

    bodies: int = 1
    closed: bool = True
    consistent: bool = True
    degenerate: int = 0
    duplicate: int = 0
    reversed: int = 0
    inverted: int = 0
    overlapping: int = 0


def numbers(geometry: Geometry) -> Numbers:
    """What a report counts."""
    report = geometry.report
    return Numbers(
        report.n_components,
        report.closed,
        report.consistent,
        report.degenerate_faces,
        report.duplicate_faces,
        report.reversed_faces,
        report.inverted_components,
        report.overlapping_components,
    )


def arrays(mesh: trimesh.Trimesh) -> Mesh:
    """Vertices and faces."""
    return np.asarray(mesh.vertices, dtype=np.float64), np.asarray(mesh.faces, dtype=np.int64)


def box(*extents: float, at: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Mesh:
    """A closed box that looks outward; its diagonals run alike on opposite walls."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    quads = [
        *([0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1]),
        *([2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]),
    ]
    faces = np.array([[q[i], q[j], q[k]] for q in quads for i, j, k in ((0, 1, 2), (0, 2, 3))])
    return (corners - 0.5) * np.array(extents) + at, faces


def inverted(mesh: Mesh) -> Mesh:
    """All faces turned."""
    return mesh[0], mesh[1][:, ::-1]


def together(*meshes: Mesh) -> Mesh:
    """One mesh of several bodies."""
    offsets = np.cumsum([0, *(len(vertices) for vertices, _ in meshes)])
    faces = [faces + offset for (_, faces), offset in zip(meshes, offsets, strict=False)]
    return np.concatenate([vertices for vertices, _ in meshes]), np.concatenate(faces)


def with_faces(mesh: Mesh, *more: Any) -> Mesh:
    """The mesh with further faces at its end."""
    return mesh[0], np.concatenate([mesh[1], *(np.atleast_2d(faces) for faces in more)])


def prepared(mesh: Mesh, **options: Any) -> Geometry:
    """The mesh as it goes to the device; the caller's arrays stay as they were."""
    before = [part.copy() for part in mesh]
    geometry = prepare("mesh", *mesh, **options)
    assert all(map(np.array_equal, mesh, before))
    assert geometry.vertices.dtype == np.float32
    assert geometry.faces.dtype == np.int32
    assert geometry.report.n_faces == len(mesh[1])
    return geometry


def volume(geometry: Geometry) -> float:
    """Signed volume, positive if the faces look outward."""
    a, b, c = np.moveaxis(geometry.vertices[geometry.faces].astype(np.float64), 1, 0)
    return float(np.einsum("fi,fi->", a, np.cross(b, c)) / 6.0)


def area(vertices: Array, faces: Indices) -> float:
    """Surface."""
    a, b, c = np.moveaxis(vertices[faces].astype(np.float64), 1, 0)
    return float(0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1).sum())


def windings(geometry: Geometry, *points: tuple[float, float, float]) -> list[float]:
    """Winding numbers of what goes to the device, by the reference."""
    vertices = geometry.vertices.astype(np.float64)
    found = winding_number(np.array(points, dtype=np.float64), vertices, geometry.faces)
    return found.round(6).tolist()


CUBE, BALL = box(1.0, 1.0, 1.0), arrays(trimesh.creation.icosphere(subdivisions=2))
SMALL, AWAY = box(0.4, 0.4, 0.4), box(1.0, 1.0, 1.0, at=(3.0, 0.0, 0.0))
OPEN = (CUBE[0], CUBE[1][:-2])
REVERSED = CUBE[1][:, ::-1]


def moebius_strip(n: int = 24) -> Mesh:
    """A strip of 2 n faces with one side: no choice makes its faces agree."""
    angle = np.arange(n) * 2.0 * np.pi / n
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.cos(angle / 2)[:, None]
    across = 0.2 * np.concatenate([along, np.sin(angle / 2)[:, None]], axis=1)
    middle = np.stack([np.cos(angle), np.sin(angle), 0.0 * angle], axis=1)
    vertices = np.stack([middle - across, middle + across], axis=1).reshape(-1, 3)
    quads = [[2 * i, 2 * i + 1, 2 * i + 3, 2 * i + 2] for i in range(n - 1)]
    quads.append([2 * n - 2, 2 * n - 1, 0, 1])  # the ends meet turned over
    faces = np.array([[q[i], q[j], q[k]] for q in quads for i, j, k in ((0, 1, 2), (0, 2, 3))])
    return vertices, faces
