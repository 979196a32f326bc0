"""Surfaces of links as kernels read them: trees over triangles, where pieces fill what is hollow.

Pieces fill what is hollow. Where those of two links touch, the links are compared by their surfaces
instead: triangles of meshes that are hollow, and the pieces of all others. The tree is that of
`kernels/link_surfaces.py`: a perfect binary one, of boxes.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.robot.model.convex_pieces import ConvexPiece

_LEAF = 4  # elements of a leaf, at most
_ROUNDING = 1.0e-6  # of coordinates in float32, relative
_ELEMENT_ROWS = 5  # of a triangle: ball, sizes, corners
_NODE_ROWS = 4

Array = NDArray[np.float64]


class LinkSurface:
    """What the links of a robot are compared by where their pieces touch.

    Attributes:
        triangles: (n, 3, 3) float32 in the frame of the link [m].
        n_solid: of the pieces of the body, the first ones, that follow their shapes.
        radius: by which triangles are widened [m].
    """

    def __init__(self, triangles: NDArray[np.float32], n_solid: int, radius: float = 0.0):
        self.triangles, self.n_solid, self.radius = triangles, n_solid, radius
        self._rows: dict[bytes, NDArray[np.float32]] = {}

    def widened(self, padding: float) -> LinkSurface:
        """With another radius, by a length more [m]."""
        return LinkSurface(self.triangles, self.n_solid, self.radius + padding)

    def moved(self, pose: Array) -> LinkSurface:
        """At a pose (4, 4) in the frame of the link."""
        triangles = self.triangles.astype(float) @ pose[:3, :3].T + pose[:3, 3]
        return LinkSurface(triangles.astype(np.float32), self.n_solid, self.radius)

    def rows_in(self, pose: Array, pieces: Sequence[ConvexPiece]) -> NDArray[np.float32]:
        """Rows (n, 4) of the tree in another frame, see `surface_rows`.

        Args:
            pose: (4, 4) of the link in it.
            pieces: of the body, in that frame.
        """
        key = pose.tobytes()
        if key not in self._rows:
            triangles = self.triangles @ pose[:3, :3].T + pose[:3, 3]
            self._rows[key] = surface_rows(triangles, self.radius, pieces[: self.n_solid])
        return self._rows[key]

    def packed(self) -> dict[str, Any]:
        """For JSON."""
        corners, faces = np.unique(self.triangles.reshape(-1, 3), axis=0, return_inverse=True)
        arrays = corners.astype("<f4"), faces.reshape(-1).astype("<i4")
        content = [base64.b64encode(zlib.compress(part.tobytes())).decode() for part in arrays]
        return {"n_solid": self.n_solid, "radius": self.radius, "content": content}

    @classmethod
    def of_solids(cls, count: int) -> LinkSurface:
        """The surface of a body by its pieces alone."""
        return cls(np.empty((0, 3, 3), dtype=np.float32), count)

    @classmethod
    def unpacked(cls, content: dict[str, Any]) -> LinkSurface:
        """From `packed`; raises ValueError, TypeError or KeyError for anything else."""
        try:
            corners, faces = (
                zlib.decompress(base64.b64decode(text)) for text in content["content"]
            )
        except zlib.error as error:
            raise ValueError(f"a surface must be compressed: {error}") from error
        triangles = np.frombuffer(corners, "<f4").reshape(-1, 3)[np.frombuffer(faces, "<i4")]
        if not (np.abs(triangles) < MAX_COORDINATE).all():
            raise ValueError("the corners of a surface must be finite")
        return cls(triangles.reshape(-1, 3, 3), int(content["n_solid"]), float(content["radius"]))


def surface_rows(
    triangles: Array, radius: float, solids: Sequence[ConvexPiece]
) -> NDArray[np.float32]:
    """Rows (n, 4) of the tree over triangles (m, 3, 3) and solid pieces.

    First a head: levels below the root, and number of points. Then the nodes, the points, one of
    each connected part, and the elements, as pieces have their rows. The first row of the elements
    of a leaf counts from that head.
    """
    triangles, points = _connected_parts(triangles)
    far = max([np.abs(triangles).max(initial=0.0), *(np.abs(s.points).max() for s in solids)])
    radii = np.array([radius + _ROUNDING * far] * len(triangles) + [s.radius for s in solids])
    bounds = np.concatenate(
        [
            np.stack([triangles.min(axis=1), triangles.max(axis=1)], axis=1),
            *(np.stack([s.points.min(axis=0), s.points.max(axis=0)])[None] for s in solids),
        ]
    ) + (radii[:, None] + _ROUNDING * far)[:, None] * np.array([[-1.0], [1.0]])
    levels = max(0, int(np.ceil(np.log2(len(bounds) / _LEAF))))
    order = _leaf_order(bounds.mean(axis=1), levels)
    points = np.concatenate([points, *(solid.points[:1] for solid in solids)])
    sizes = np.full(len(order), _ELEMENT_ROWS)
    sizes[len(triangles) :] = [2 + len(solid.points) + len(solid.rest) for solid in solids]
    begin = 1 + _NODE_ROWS * ((2 << levels) - 1) + len(points)
    starts = np.empty(len(order), dtype=np.int64)
    starts[order] = begin + np.cumsum([0, *sizes[order][:-1]])
    rows = np.zeros((begin + int(sizes.sum()), 4))
    rows[0, :2] = levels, len(points)
    nodes = _nodes(triangles, bounds, order, levels)
    firsts, counts = _spans(len(order), levels)
    nodes[-len(firsts) :, 0, 3], nodes[-len(firsts) :, 1, 3] = starts[order][firsts], counts
    rows[1 : begin - len(points)] = nodes.reshape(-1, 4)
    rows[begin - len(points) : begin, :3] = points
    at = starts[: len(triangles), None] + np.arange(_ELEMENT_ROWS)
    rows[at] = _triangle_rows(triangles, radii[: len(triangles)])
    for solid, start in zip(solids, starts[len(triangles) :], strict=True):
        part = piece_rows(solid)
        rows[start : start + len(part)] = part
    return rows.astype(np.float32)


def rows_of_leaves(rows: NDArray[np.float32]) -> slice:
    """Which rows of `surface_rows` name the first element of a leaf, in their last column."""
    n_leaves = 1 << int(rows[0, 0])
    return slice(1 + _NODE_ROWS * (n_leaves - 1), 1 + _NODE_ROWS * (2 * n_leaves - 1), _NODE_ROWS)


def piece_rows(piece: ConvexPiece) -> Array:
    """Rows (n, 4) of a piece: a ball; number of points, radius, slack, number of the rest; all."""
    center = (0.5 * (piece.points.min(axis=0) + piece.points.max(axis=0))).astype(np.float32)
    rows = np.zeros((2 + len(piece.points) + len(piece.rest), 4))
    rows[0] = *center, farthest([piece], center) + piece.radius
    rows[1] = len(piece.points), piece.radius, piece.slack, len(piece.rest)
    rows[2:, :3] = np.concatenate([piece.points, piece.rest])
    return rows


def farthest(pieces: Sequence[ConvexPiece], center: np.ndarray) -> float:
    """Largest distance of a point of pieces from a center [m], by more than the rounding above."""
    distances = [np.linalg.norm(piece.points - center, axis=1).max() for piece in pieces]
    return max(distances) * (1.0 + 1.0e-5) + 1.0e-6 if distances else 0.0


def _triangle_rows(triangles: Array, radii: Array) -> Array:
    """(n, 5, 4): as `piece_rows`, with a -1 that tells triangles from other pieces."""
    centers = (0.5 * (triangles.min(axis=1) + triangles.max(axis=1))).astype(np.float32)
    reach = np.linalg.norm(triangles - centers[:, None], axis=2).max(axis=1)
    rows = np.zeros((len(triangles), _ELEMENT_ROWS, 4))
    rows[:, 0, :3], rows[:, 0, 3] = centers, reach * (1.0 + 1.0e-5) + 1.0e-6 + radii
    rows[:, 1, 0], rows[:, 1, 1], rows[:, 1, 3] = 3.0, radii, -1.0
    rows[:, 2:, :3] = triangles
    return rows


def _connected_parts(triangles: Array) -> tuple[Array, Array]:
    """Triangles with all connected parts turned outward, and a point (n, 3) of each of these.

    So a part within another one, and a hole, count as solid.
    """
    if len(triangles) == 0:
        return triangles, np.empty((0, 3))
    _, index = np.unique(triangles.reshape(-1, 3), axis=0, return_inverse=True)
    a, b, c = index.reshape(-1, 3).T
    ones, count = np.ones(2 * len(a)), int(index.max(initial=-1)) + 1
    edges = coo_array((ones, (np.r_[a, b], np.r_[b, c])), shape=(count, count))
    n_parts, of_corners = connected_components(edges, directed=False)
    parts = of_corners[a]
    _, first = np.unique(parts, return_index=True)
    points = triangles[first, 0]
    # Volumes of cones to a point of the part: of a closed one it does not matter which.
    x, y, z = (triangles - points[parts][:, None]).swapaxes(0, 1)
    volumes = np.bincount(parts, np.einsum("ij,ij->i", x, np.cross(y, z)), minlength=n_parts)
    is_turned = volumes[parts] < 0.0
    return np.where(is_turned[:, None, None], triangles[:, ::-1], triangles), points


def _spans(count: int, levels: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first element of each node at a level, and how many it has."""
    bounds = (np.arange((1 << levels) + 1) * count) >> levels
    return bounds[:-1], np.diff(bounds)


def _leaf_order(centers: Array, levels: int) -> NDArray[np.int64]:
    """Elements in the order of leaves: each node is halved along its longest side."""
    order = np.arange(len(centers))
    for level in range(levels):
        firsts, counts = _spans(len(centers), level)
        here = centers[order]
        extent = np.maximum.reduceat(here, firsts) - np.minimum.reduceat(here, firsts)
        axis = np.repeat(extent.argmax(axis=1), counts)
        along = np.take_along_axis(here, axis[:, None], axis=1)[:, 0]
        node = np.repeat(np.arange(len(firsts)), counts)
        order = order[np.lexsort((along, node))]
    return order


def _nodes(triangles: Array, bounds: Array, order: NDArray[np.int64], levels: int) -> Array:
    """(n_nodes, 4, 4) boxes and dipoles of all nodes, the root first."""
    areas, middles = np.zeros((2, len(bounds), 3))
    a, b, c = triangles.swapaxes(0, 1)
    areas[: len(triangles)] = 0.5 * np.cross(b - a, c - a)
    middles[: len(triangles)] = triangles.mean(axis=1)
    sizes = np.linalg.norm(areas, axis=1)
    sums = np.column_stack([areas, sizes, sizes[:, None] * middles])[order]
    low, high = bounds[order].swapaxes(0, 1)
    found = []
    for level in range(levels, -1, -1):
        firsts = _spans(len(order), level)[0]
        lower, upper = np.minimum.reduceat(low, firsts), np.maximum.reduceat(high, firsts)
        total = np.add.reduceat(sums, firsts)
        node = np.zeros((len(firsts), _NODE_ROWS, 4))
        center = (0.5 * (lower + upper)).astype(np.float32)
        half = np.maximum(upper - center, center - lower) * (1.0 + _ROUNDING)
        weight = total[:, 3:4]
        middle = np.where(weight > 0.0, total[:, 4:] / np.maximum(weight, 1.0e-30), center)
        node[:, 0, :3], node[:, 1, :3] = center, half
        node[:, 2, :3] = middle
        node[:, 2, 3] = np.linalg.norm(np.abs(middle - center) + half, axis=1)
        node[:, 3, :3] = total[:, :3] / (4.0 * np.pi)
        found.append(node)
    return np.concatenate(found[::-1])
