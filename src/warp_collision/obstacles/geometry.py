"""Reads, examines and repairs meshes, and reports what was found."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from warp_collision.formats.files import (
    MAX_COORDINATE,
    check_vertices,
    is_file,
    metres_per_unit,
)
from warp_collision.messages import errors_at, short_repr
from warp_collision.obstacles import orientation, slivers, topology
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import PlacedShape, Shape, Triangles, box_around
from warp_collision.validate import is_trimesh, on_host

if TYPE_CHECKING:
    import trimesh

    MeshLike = (
        trimesh.Trimesh | Shape | Sensed | tuple[Any, Any] | list[Any] | str | os.PathLike[str]
    )
else:
    MeshLike = Any
SignMethod = Literal["auto", "winding", "exact_winding", "sheet"]

# Rounding of closest points that a face may cause, in units of 2e-8 of the mesh's size.
_MAX_LOSS = 10.0
_NO_TRIANGLES = np.empty((0, 3), np.float32), np.empty((0, 3), np.int32)
_NO_BORDER = np.empty((0, 2, 3), np.float32)


@dataclass(frozen=True)
class Geometry:
    """Triangles ready for the device, or a shape that needs none.

    Attributes:
        vertices: (n, 3) float32 [m]; none of a shape.
        faces: (n, 3) int32.
        report: what was found and changed.
        area: surface [m^2]; 0 of a shape.
        border: (m, 2, 3) float32, ends of the edges at which the surface ends.
        shape: the exact shape, None for a mesh.
        sensed: the sensed shape, None for a mesh.
    """

    vertices: np.ndarray
    faces: np.ndarray
    report: MeshReport
    area: float
    border: np.ndarray
    shape: PlacedShape | None = None
    sensed: Sensed | None = None

    @property
    def has_jumps(self) -> bool:
        """Whether the signed distance jumps away from the surface, where it ends."""
        return not self.report.closed and self.report.sign_method != "sheet"

    @classmethod
    def of_shape(
        cls, report: MeshReport, shape: PlacedShape | None = None, sensed: Sensed | None = None
    ) -> Geometry:
        """An exact shape or a sensed one."""
        return cls(*_NO_TRIANGLES, report, 0.0, _NO_BORDER, shape, sensed)

    def box(self) -> Triangles:
        """The box around a shape, for kernels that know triangles only."""
        if self.shape is not None:
            return self.shape.box()
        assert self.sensed is not None
        # What has no end has a box too large for the winding numbers of kernels that look at it.
        return box_around(np.clip(self.sensed.bounds, -MAX_COORDINATE, MAX_COORDINATE))


def read_mesh(name: str, mesh: MeshLike) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (n, 3) float64 [m] and faces (n, 3) int64 of anything that `MeshWorld.add` takes.

    Raises:
        FileNotFoundError: the path does not exist.
        TypeError: not a mesh, a pair of arrays or a path.
        ValueError: empty, not finite, or face indices that fit no vertex.
    """
    if isinstance(mesh, (str, os.PathLike)):
        mesh = _load_file(name, Path(mesh))
    if is_trimesh(mesh):
        scale = metres_per_unit(mesh.units, f"mesh {name!r}")
        mesh = (mesh.vertices * scale if scale != 1.0 else mesh.vertices, mesh.faces)
    if not isinstance(mesh, (tuple, list)) or len(mesh) != 2:
        raise TypeError(
            f"mesh {name!r} must be a trimesh.Trimesh, a pair (vertices, faces), an exact "
            f"shape such as Cuboid, a PointCloud, or a path, got {type(mesh).__name__}"
        )
    return _check_vertices(name, mesh[0]), _check_faces(name, mesh[1], len(mesh[0]))


def _load_file(name: str, path: Path) -> trimesh.Trimesh:
    from warp_collision.formats.mesh_files import load_scene

    if not is_file(path):
        raise FileNotFoundError(f"mesh {name!r}: there is no file {short_repr(str(path))}")
    with errors_at(f"mesh {name!r}"):
        return load_scene(path).to_mesh()


def _to_array(name: str, part: str, value: Any) -> np.ndarray:
    with errors_at(f"mesh {name!r}: {part} must be an array (n, 3)"):
        return np.asarray(on_host(value))


def _check_vertices(name: str, value: Any) -> np.ndarray:
    vertices = _to_array(name, "vertices", value)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or len(vertices) == 0:
        raise ValueError(
            f"mesh {name!r}: vertices must have shape (n, 3) and n > 0, got {vertices.shape}"
        )
    if not (
        np.issubdtype(vertices.dtype, np.floating) or np.issubdtype(vertices.dtype, np.integer)
    ):
        raise TypeError(f"mesh {name!r}: vertices must be real numbers, got {vertices.dtype}")
    with np.errstate(invalid="ignore"):  # NumPy warns of some NaNs; all are refused below
        vertices = vertices.astype(np.float64)
    # Beyond 1e9 the fourth power of a distance, of which queries make use, overflows float32.
    with errors_at(f"mesh {name!r}"):
        check_vertices(vertices)
    return vertices


def _check_faces(name: str, value: Any, n_vertices: int) -> np.ndarray:
    faces = _to_array(name, "faces", value)
    if faces.ndim == 1 and len(faces) % 3 == 0 and len(faces):
        faces = faces.reshape(-1, 3)
    if faces.ndim != 2 or faces.shape[1] != 3 or len(faces) == 0:
        raise ValueError(
            f"mesh {name!r}: faces must have shape (n, 3) and n > 0, or a multiple of three "
            f"indices, got {faces.shape}"
        )
    if not np.issubdtype(faces.dtype, np.integer):
        raise TypeError(f"mesh {name!r}: faces must be integers, got {faces.dtype}")
    bad = (faces < 0) | (faces >= n_vertices)
    if bad.any():
        raise ValueError(
            f"mesh {name!r}: faces must index vertices 0 to {n_vertices - 1}, "
            f"got {faces[bad][0]} in face {int(np.argwhere(bad)[0, 0])}"
        )
    return faces.astype(np.int64)


def content_key(vertices: np.ndarray, faces: np.ndarray, *options: object) -> str:
    """Equal for equal geometry and options."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (vertices, faces):
        digest.update(repr((part.shape, part.dtype.str)).encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(repr(options).encode())
    return digest.hexdigest()


def prepare(
    name: str,
    vertices: np.ndarray,
    faces: np.ndarray,
    *,
    repair: bool = True,
    sign: SignMethod = "auto",
) -> Geometry:
    """Examines a mesh, repairs what is safe, and chooses its sign method.

    Args:
        name: for messages.
        vertices: (n, 3).
        faces: (n, 3).
        repair: drop duplicate faces, one of a face and its reversed copy, and orient components
            outward. In any case vertices at one float32 position are merged, faces without area
            dropped, slivers split and long thin quads sliced. None of this moves the surface by
            more than 2**-22 of the largest coordinate.
        sign: "winding" approximates the winding number of far faces by a tree. "exact_winding" sums
            it over all faces where the approximation is in doubt. "auto" takes the first for closed
            meshes and the second for others. Closed meshes that are certainly convex need neither:
            a point is inside where it is behind the closest face. "sheet" is a surface without an
            inside: the distance to it is positive on both sides.

    Raises:
        ValueError: no face has an area. A face is too thin for queries (a height below 1/450,000 of
            its length, or 1e-18 m^2), and no other face covers it to 2**-22 of the largest
            coordinate. Long thin quads would take more than a million slices.
    """
    if sign not in get_args(SignMethod):
        raise ValueError(f"sign must be one of {get_args(SignMethod)}, got {sign!r}")
    report = MeshReport(n_faces=len(faces))
    vertices, faces = topology.merge_equal_vertices(vertices.astype(np.float32), faces)
    tolerance = slivers.ROUNDING * float(np.abs(vertices[faces]).max())
    faces, flat, slenderest = _set_flat_aside(name, vertices, faces, tolerance, report)
    faces = _drop_duplicates(faces, report, repair)
    faces, edges = orientation.orient(vertices, faces, report, repair)
    report.closed = edges.are_closed
    border = vertices[edges.border(faces)]
    slender = slenderest > slivers.NEEDLE
    resolved = _resolve(name, vertices, faces, flat, tolerance, slender=slender, sliced=True)
    if resolved.lost.any() and resolved.n_sliced:
        # Where a body tapers off, its slices may be too thin though the whole is not.
        resolved = _resolve(name, vertices, faces, flat, tolerance, slender=slender, sliced=False)
    vertices, faces = resolved.vertices, _drop_unseen(name, resolved, report)
    _choose_sign(report, sign, vertices, faces)
    area = topology.surface_area(vertices, faces)
    return Geometry(vertices, faces.astype(np.int32), report, area, border)


def _set_flat_aside(
    name: str, vertices: np.ndarray, faces: np.ndarray, tolerance: float, report: MeshReport
) -> tuple[np.ndarray, np.ndarray, float]:
    """Splits faces into those with area and those without that connect no others.

    The last is the greatest slenderness of all.
    """
    repeated = (faces == np.roll(faces, 1, axis=1)).any(axis=1)
    report.degenerate_faces = int(repeated.sum())
    if repeated.any():
        faces = faces[~repeated]
    slender = topology.slenderness(vertices, faces)
    slenderest = float(slender.max(initial=0.0))
    flat = slender >= topology.UNSEEN
    flat[flat] = slivers.heights(vertices, faces[flat]) <= tolerance
    if flat.all():
        flat = slivers.are_on_a_line(vertices, faces)
    if flat.all():
        raise ValueError(
            f"mesh {name!r} must have a face with area, all {report.n_faces} have none"
        )
    if not flat.any():
        return faces, faces[:0], slenderest
    if _close_a_gap(faces[~flat], faces[flat]):
        # They are needed to find components and their orientation, and are dropped after that.
        return np.concatenate((faces[~flat], faces[flat])), faces[:0], slenderest
    return faces[~flat], faces[flat], slenderest


def _close_a_gap(faces: np.ndarray, flat: np.ndarray) -> bool:
    """Whether faces without area connect others, as where one long edge meets two short ones."""
    without, joined = (
        topology.paired_edges(topology.find_edges(some))[2]
        for some in (faces, np.concatenate((faces, flat)))
    )
    return bool(joined[: len(faces)].sum() < without.sum())


class _Resolved(NamedTuple):
    """Triangles after slicing and splitting, with masks of the faces that queries still miss."""

    vertices: np.ndarray  # (n_vertices, 3) float32
    faces: np.ndarray  # (n, 3)
    unseen: np.ndarray  # (n,) which queries pass over
    lost: np.ndarray  # (n,) which of those the others do not cover
    n_sliced: int
    n_slices: int
    n_split: int


def _resolve(
    name: str,
    vertices: np.ndarray,
    faces: np.ndarray,
    flat: np.ndarray,
    tolerance: float,
    *,
    slender: bool,
    sliced: bool,
) -> _Resolved:
    """Slices long thin faces, splits slivers, and rounds to float32."""
    n_sliced = n_slices = 0
    if slender and sliced:
        n_faces = len(faces)
        try:
            vertices, faces, n_sliced = slivers.slice_needles(vertices, faces, _MAX_LOSS, tolerance)
        except ValueError as error:
            raise ValueError(f"mesh {name!r} {error}") from None
        n_slices = len(faces) - n_faces + n_sliced
    vertices, faces, n_split = slivers.condition_slivers(vertices, faces, _MAX_LOSS)
    vertices = vertices.astype(np.float32)
    if len(flat):
        faces = np.concatenate((faces, flat))
    unseen = lost = np.zeros(len(faces), dtype=bool)
    if n_split or slender:
        unseen = lost = topology.degenerate_faces(vertices, faces)
    if unseen.any():
        lost = slivers.uncovered_faces(vertices, faces, unseen, tolerance)
    return _Resolved(vertices, faces, unseen, lost, n_sliced, n_slices, n_split)


def _drop_unseen(name: str, resolved: _Resolved, report: MeshReport) -> np.ndarray:
    """The faces that queries see; raises if the others do not cover one that they do not see."""
    if resolved.lost.any():
        corners = resolved.vertices[resolved.faces[resolved.lost][0]].tolist()
        raise ValueError(
            f"mesh {name!r} must have faces that float32 can tell from a line, "
            f"{int(resolved.lost.sum())} are below 1/450,000 of their length in height, or below "
            f"1e-18 m2, and no others cover them, got {corners}"
        )
    report.degenerate_faces += int(resolved.unseen.sum())
    if report.degenerate_faces:
        report.repairs.insert(0, f"dropped {report.degenerate_faces} degenerate faces")
    report.sliced_faces = resolved.n_sliced
    if report.sliced_faces:
        report.repairs.append(
            f"sliced {report.sliced_faces} long thin faces into {resolved.n_slices}"
        )
    report.sliver_faces = resolved.n_split
    if report.sliver_faces:
        report.repairs.append(f"split {report.sliver_faces} sliver faces in place")
    return resolved.faces[~resolved.unseen] if resolved.unseen.any() else resolved.faces


def _drop_duplicates(faces: np.ndarray, report: MeshReport, repair: bool) -> np.ndarray:
    first_oriented = topology.first_of_equal_rows(topology.rolled(faces))
    first_of_any = topology.first_of_equal_rows(np.sort(faces, axis=1))
    report.duplicate_faces = int((~first_oriented).sum())
    report.reversed_faces = int((first_oriented & ~first_of_any).sum())
    if not repair:
        return faces
    if report.duplicate_faces:
        report.repairs.append(f"dropped {report.duplicate_faces} duplicate faces")
    kept = faces[first_oriented]
    if report.reversed_faces:
        # Two components that touch share faces of opposite orientation too; there the edges of a
        # wall meet more than two faces, and both copies stay: their winding numbers cancel.
        single = faces[first_of_any]
        _, _, loose = topology.paired_edges(topology.find_edges(single))
        whole = int(first_of_any.sum()) == report.reversed_faces
        if whole or not loose.any():
            report.repairs.append(f"dropped {report.reversed_faces} reversed copies of faces")
            return single
    return kept


def _choose_sign(
    report: MeshReport, sign: SignMethod, vertices: np.ndarray, faces: np.ndarray
) -> None:
    if sign != "auto":
        report.sign_method, report.reason = sign, "chosen by the user"
    elif report.closed and topology.is_convex(vertices, faces):
        report.sign_method = "convex"
        report.reason = "closed and convex: inside is behind the closest face"
    elif report.closed:
        report.sign_method = "winding"
        report.reason = "closed: winding numbers are whole, the tree's approximation suffices"
    else:
        report.sign_method = "exact_winding"
        report.reason = "open or inconsistent: winding numbers near 0.5 are summed exactly"
