"""Solids whose inside is known exactly, and the meshes of them that people really have.

A solid is a union of convex polytopes, so a point is inside where some polytope has it below all
of its planes: float64 arithmetic without rays, normals or winding numbers. The planes are those of
the float32 vertices that the library is given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import trimesh
from numpy.typing import NDArray

from reference import Array, Indices
from shapes import rounded

Mask = NDArray[np.bool_]
Mesh = tuple[Array, Indices]

PAIRS_AT_ONCE = 1 << 21  # (point, plane) pairs per block


@dataclass(frozen=True)
class Solid:
    """A mesh as a user would hand it over, and the convex pieces of what it means.

    Attributes:
        vertices: (n, 3), float32 numbers.
        faces: (n, 3).
        pieces: (k, 4) each: unit outward normals and offsets, ``normal . x - offset < 0`` inside.
    """

    vertices: Array
    faces: Indices
    pieces: tuple[Array, ...]

    @property
    def mesh(self) -> Mesh:
        """What `MeshWorld.add` takes."""
        return self.vertices, self.faces

    @property
    def center(self) -> Array:
        """Middle of the bounding box (3,)."""
        return 0.5 * (self.vertices.min(axis=0) + self.vertices.max(axis=0))

    @property
    def extents(self) -> Array:
        """Edges of the bounding box (3,)."""
        return np.ptp(self.vertices, axis=0)

    def inside(self, points: Array, tolerance: float = 0.0) -> tuple[Mask, Mask]:
        """Whether points (n, 3) are inside, and whether they keep off every plane's own piece.

        A point is clear where it is farther than the tolerance [m] from the surface of each piece,
        walls between pieces included.
        """
        within = np.zeros(len(points), dtype=bool)
        clear = np.ones(len(points), dtype=bool)
        for piece in self.pieces:
            size = max(1, PAIRS_AT_ONCE // len(piece))
            for start in range(0, len(points), size):
                block = slice(start, start + size)
                height = (points[block] @ piece[:, :3].T - piece[:, 3]).max(axis=1)
                within[block] |= height < 0.0
                clear[block] &= np.abs(height) > tolerance
        return within, clear


def planes(vertices: Array, faces: Indices) -> Array:
    """Planes (k, 4) of the faces of a convex body, equal ones once."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    normal = np.cross(b - a, c - a)
    length = np.linalg.norm(normal, axis=1)
    normal = normal[length > 0.0] / length[length > 0.0, None]
    offset = np.einsum("fi,fi->f", normal, a[length > 0.0])
    return np.unique(np.column_stack([normal, offset]), axis=0)


def convex(made: trimesh.Trimesh) -> Solid:
    """A convex body as it is."""
    vertices = rounded(made.vertices)
    faces = np.asarray(made.faces)
    return Solid(vertices, faces, (planes(vertices, faces),))


def joined(solids: Sequence[Solid]) -> Solid:
    """Several bodies in one mesh; their union."""
    starts = np.cumsum([0, *(len(solid.vertices) for solid in solids)])
    return Solid(
        np.concatenate([solid.vertices for solid in solids]),
        np.concatenate([s.faces + start for s, start in zip(solids, starts, strict=False)]),
        tuple(piece for solid in solids for piece in solid.pieces),
    )


def box(extents: Sequence[float], center: Sequence[float] = (0.0, 0.0, 0.0)) -> Solid:
    """An axis-aligned box."""
    made = trimesh.creation.box(extents=extents)
    made.apply_translation(center)
    return convex(made)


def tetrahedron(vertices: Sequence[Sequence[float]]) -> Solid:
    """A tetrahedron with its faces outward."""
    made = trimesh.Trimesh(vertices, [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]], process=False)
    if made.volume < 0.0:
        made.invert()
    return convex(made)


def torus() -> Solid:
    """A ring of convex slices."""
    major, minor = 16, 8
    made = trimesh.creation.torus(0.25, 0.08, major_sections=major, minor_sections=minor)
    vertices = rounded(made.vertices)
    turn = np.round(np.arctan2(vertices[:, 1], vertices[:, 0]) / (2 * np.pi / major)).astype(int)
    slices = []
    for index in range(major):
        ends = (turn % major == index) | (turn % major == (index + 1) % major)
        hull = trimesh.convex.convex_hull(vertices[ends])
        slices.append(planes(np.asarray(hull.vertices), np.asarray(hull.faces)))
    return Solid(vertices, np.asarray(made.faces), tuple(slices))


def scattered_bodies(count: int, seed: int = 3) -> Solid:
    """Overlapping boxes and balls in one mesh."""
    rng = np.random.default_rng(seed)
    bodies = []
    for index in range(count):
        made = (
            trimesh.creation.box(extents=rng.uniform(0.1, 0.4, size=3))
            if index % 2
            else trimesh.creation.icosphere(subdivisions=1, radius=rng.uniform(0.05, 0.2))
        )
        made.apply_transform(trimesh.transformations.random_rotation_matrix(rng.random(3)))
        made.apply_translation(rng.uniform(-0.2, 0.2, size=3))
        bodies.append(convex(made))
    return joined(bodies)


# -- what happens to meshes on their way to a user ------------------------------------------------


def soup(solid: Solid) -> Solid:
    """Every face with vertices of its own."""
    corners = solid.vertices[solid.faces].reshape(-1, 3)
    return Solid(corners, np.arange(len(corners)).reshape(-1, 3), solid.pieces)


def flipped(solid: Solid) -> Solid:
    """Every face the wrong way round."""
    return Solid(solid.vertices, solid.faces[:, ::-1].copy(), solid.pieces)


def with_copies(solid: Solid, every: int = 3) -> Solid:
    """Some faces twice, the copy beginning with another vertex."""
    copies = np.roll(solid.faces[::every], 1, axis=1)
    return Solid(solid.vertices, np.concatenate([solid.faces, copies]), solid.pieces)


def double_sided(solid: Solid, every: int = 1, reverse_first: bool = False) -> Solid:
    """Some or all faces with a reversed copy, as exporters write two-sided materials."""
    both = [solid.faces, solid.faces[::every, ::-1]]
    if reverse_first:
        both.reverse()
    return Solid(solid.vertices, np.concatenate(both), solid.pieces)


def moved(solid: Solid, offset: Sequence[float]) -> Solid:
    """The mesh elsewhere; its vertices are rounded anew, so it must be convex."""
    vertices = rounded(solid.vertices + np.asarray(offset))
    return Solid(vertices, solid.faces, (planes(vertices, solid.faces),))


def shuffled(solid: Solid, seed: int) -> Solid:
    """The same faces in another order, each beginning with any of its vertices."""
    rng = np.random.default_rng(seed)
    faces = rng.permutation(solid.faces)
    start = rng.integers(3, size=(len(faces), 1))
    return Solid(
        solid.vertices,
        np.take_along_axis(faces, (start + np.arange(3)) % 3, axis=1),
        solid.pieces,
    )


def with_some_flipped(solid: Solid, share: float, seed: int) -> Solid:
    """A share of the faces the wrong way round."""
    faces = solid.faces.copy()
    chosen = np.random.default_rng(seed).random(len(faces)) < share
    faces[chosen] = faces[chosen, ::-1]
    return Solid(solid.vertices, faces, solid.pieces)


def with_some_missing(solid: Solid, share: float, seed: int) -> Solid:
    """A share of the faces lost."""
    kept = np.random.default_rng(seed).random(len(solid.faces)) >= share
    return Solid(solid.vertices, solid.faces[kept], solid.pieces)


# -- the classes ----------------------------------------------------------------------------------


def _icosphere(subdivisions: int = 3) -> Solid:
    return convex(trimesh.creation.icosphere(subdivisions=subdivisions, radius=0.25))


def _needle() -> Solid:
    return tetrahedron([[0, 0, 0], [1, 0, 0], [1, 0.001, 0], [1, 0, 0.001]])


def _roof() -> Solid:
    """Four faces with one angle near 180 degrees each."""
    return tetrahedron([[0, 0, 0], [1, 0, 0], [0.4, 0.001, 0], [0.5, 0.0005, 0.001]])


def _abutting() -> Solid:
    return joined([box((0.2, 0.2, 0.2), (-0.1, 0, 0)), box((0.2, 0.2, 0.2), (0.1, 0, 0))])


def _abutting_by_a_part() -> Solid:
    return joined([box((0.2, 0.2, 0.2), (-0.1, 0, 0)), box((0.2, 0.3, 0.1), (0.1, 0.1, 0.05))])


CLEAN: dict[str, Callable[[], Solid]] = {
    "box": lambda: box((0.5, 0.3, 0.2)),
    "icosphere": _icosphere,
    "cylinder": lambda: convex(trimesh.creation.cylinder(radius=0.1, height=0.4, sections=32)),
    "capsule": lambda: convex(trimesh.creation.capsule(height=0.3, radius=0.1, count=[16, 16])),
    "cone": lambda: convex(trimesh.creation.cone(radius=0.15, height=0.4, sections=24)),
    "torus": torus,
    "tetrahedron": lambda: tetrahedron([[0, 0, 0], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0.3]]),
    "needle": _needle,
    "roof": _roof,
    "plate": lambda: box((1.0, 1.0, 0.0005)),
    "20 bodies": lambda: scattered_bodies(20),
    "abutting boxes": _abutting,
    "boxes abutting by a part": _abutting_by_a_part,
    "nested boxes": lambda: joined([box((0.4, 0.4, 0.4)), box((0.2, 0.2, 0.2))]),
    "1 km away": lambda: moved(_icosphere(2), (1000.0, -1000.0, 1000.0)),
    "plate 1 km away": lambda: moved(box((1.0, 1.0, 0.01)), (1000.0, 1000.0, -1000.0)),
}
FLAWED: dict[str, Callable[[], Solid]] = {
    "soup": lambda: soup(_icosphere()),
    "duplicate faces": lambda: with_copies(_icosphere()),
    "reversed duplicates": lambda: double_sided(_icosphere()),
    "some reversed duplicates": lambda: double_sided(_icosphere(), every=3, reverse_first=True),
    "reversed soup": lambda: soup(double_sided(box((0.5, 0.3, 0.2)))),
    "flipped": lambda: flipped(_icosphere()),
    "flipped needle": lambda: flipped(_needle()),
    "flipped torus": lambda: soup(flipped(torus())),
    "20 bodies soup": lambda: soup(scattered_bodies(20)),
    "20 bodies flipped": lambda: flipped(scattered_bodies(20)),
    "abutting soup": lambda: soup(_abutting()),
    "nested boxes, another flipped": lambda: joined(
        [box((0.4, 0.4, 0.4)), box((0.2, 0.2, 0.2)), flipped(box((0.1, 0.1, 0.1), (0.5, 0, 0)))]
    ),
    "a flipped box abutting by a part": lambda: joined(
        [box((0.2, 0.2, 0.2), (-0.1, 0, 0)), flipped(box((0.2, 0.3, 0.1), (0.1, 0.1, 0.05)))]
    ),
}


@cache
def solid(name: str) -> Solid:
    """A mesh class by name, of ``CLEAN`` or ``FLAWED``."""
    return (CLEAN | FLAWED)[name]()
