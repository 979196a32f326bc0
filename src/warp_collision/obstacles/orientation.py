"""Orientation of the faces of each component of a mesh, and flipping them where it is a repair."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warp_collision.obstacles import topology
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.obstacles.topology import Faces, Vertices

# No ray runs along an axis: rows of a rotation matrix, of no small whole numbers.
_AXES = np.linalg.qr(np.array([[0.61, -0.37, 0.55], [0.29, 0.83, -0.41], [-0.47, 0.23, 0.71]]))[0]
# Nearer than this to an edge or a face, relative to the largest coordinate, a crossing is invalid.
_DOUBT = 2.0**-20
_PAIRS_AT_ONCE = 1 << 20


def orient(
    vertices: Vertices, faces: Faces, report: MeshReport, repair: bool
) -> tuple[Faces, topology.Edges]:
    """The faces, flipped where that is a repair, and their edges."""
    edges = topology.find_edges(faces)
    pairs, agree, _ = topology.paired_edges(edges)
    report.consistent = bool(agree.all())
    component = topology.connected_components(len(faces), pairs)
    report.n_components = int(component.max()) + 1
    report.overlapping_components = _overlapping_boxes(vertices, faces, component)
    # Only a component without a border has an outside for its faces to look at.
    whole = topology.closed_components(edges, component)
    if repair and not report.consistent:
        flip = topology.consistent_flips(len(faces), pairs, agree) & whole[component]
        if flip.any():
            faces = np.where(flip[:, None], faces[:, ::-1], faces)
            edges = topology.find_edges(faces)
            report.repairs.append("flipped faces to agree with their neighbours")
    flipped = _inward_components(vertices, faces, component, whole, edges.are_closed)
    report.inverted_components = int(flipped.sum())
    if repair and flipped.any():
        faces = np.where(flipped[component][:, None], faces[:, ::-1], faces)
        edges = topology.find_edges(faces)
        report.repairs.append(f"oriented {report.inverted_components} components outward")
    return faces, edges


def _inward_components(
    vertices: Vertices, faces: Faces, component: np.ndarray, whole: np.ndarray, closed: bool
) -> np.ndarray:
    """Which components are oriented inward by mistake; a cavity in another component is so rightly.

    From the largest component to the smallest: one oriented inward is wrong if it reaches to where
    all the larger ones, cavities included, leave free space.
    """
    volumes = topology.component_volumes(vertices, faces, component)
    inside_out = volumes.sum() < 0 and closed
    flipped = np.full(len(volumes), inside_out)
    if inside_out:
        volumes = -volumes
    order = np.argsort(-np.abs(volumes), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    suspects = order[(volumes[order] < 0) & whole[order]]
    if len(suspects) == 0:
        return flipped
    points, owner = _extremes(vertices, faces, component, suspects)
    solid = whole[component]
    point, other, number = component_windings(
        points, rank[owner], vertices, faces[solid], rank[component[solid]]
    )
    by_owner = np.argsort(rank[owner[point]], kind="stable")
    point, other, number = point[by_owner], order[other[by_owner]], number[by_owner]
    ends = np.searchsorted(rank[owner[point]], rank[suspects], side="right")
    begin = 0
    for index, end in zip(suspects, ends, strict=True):
        signed = np.where(flipped[other[begin:end]], -1.0, 1.0) * number[begin:end]
        around = np.bincount(point[begin:end] % 6, weights=signed, minlength=6)
        # Components that touch have points on each other's surface: between 0.1 and 0.5.
        if (around < 0.1).any():
            flipped[index] = not flipped[index]
        begin = end
    return flipped


def _extremes(
    vertices: Vertices, faces: Faces, component: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The extreme vertices of components along each axis (6 n, 3), and their components (6 n,)."""
    mask = np.zeros(int(component.max()) + 1, dtype=bool)
    mask[chosen] = True
    owner = np.repeat(component[mask[component]], 3)
    corners = vertices[faces[mask[component]].ravel()]
    ends = []
    for axis in range(3):
        order = np.lexsort((corners[:, axis], owner))
        last = np.flatnonzero(np.diff(owner[order], append=-1))
        ends += [corners[order[np.r_[0, last[:-1] + 1]]], corners[order[last]]]
    return np.stack(ends, axis=1).reshape(-1, 3), np.repeat(np.unique(owner), 6)


def _overlapping_boxes(vertices: np.ndarray, faces: np.ndarray, component: np.ndarray) -> int:
    """Pairs of components whose bounding boxes intersect; counted among the first 1,000."""
    count = min(int(component.max()) + 1, 1000)
    if count < 2:
        return 0
    corners = vertices[faces]
    order = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[order], np.arange(int(component.max()) + 1))
    lower = np.minimum.reduceat(corners.min(axis=1)[order], starts)[:count]
    upper = np.maximum.reduceat(corners.max(axis=1)[order], starts)[:count]
    apart = (lower[:, None] > upper[None]).any(axis=2) | (upper[:, None] < lower[None]).any(axis=2)
    return int((np.triu(~apart, 1)).sum())


def component_windings(
    points: np.ndarray, before: np.ndarray, vertices: Vertices, faces: Faces, component: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Winding numbers of closed components around points: whole, but for points on their surface.

    By the faces that a ray from each point crosses, which are found by a grid over the plane across
    the rays, of cells as large as each face: thousands of components take no longer than their
    faces and points do.

    Args:
        points: (n, 3).
        before: (n,) each is only asked about components of lower numbers than this.
        vertices: (n_vertices, 3).
        faces: (n_faces, 3), of closed components.
        component: (n_faces,) the component of each face.

    Returns:
        Where they are not zero: indices of points, components, and the winding numbers.
    """
    center = vertices[faces].mean(axis=(0, 1), dtype=np.float64)
    corners = ((vertices - center) @ _AXES.T)[faces]
    projected = (points - center) @ _AXES.T
    n_components = int(component.max(initial=0)) + 1
    crossings: list[tuple[np.ndarray, np.ndarray]] = []
    doubtful: list[np.ndarray] = []
    for point, face in _pairs(projected[:, :2], corners[..., :2]):
        earlier = component[face] < before[point]
        point, face = point[earlier], face[earlier]
        sign, doubt = _crossings(projected[point], corners[face])
        key = point * n_components + component[face]
        crossings.append((key[sign != 0], sign[sign != 0]))
        doubtful.append(np.unique(key[doubt]))
    keys = np.concatenate([key for key, _ in crossings] or [np.zeros(0, dtype=np.int64)])
    signs = np.concatenate([sign for _, sign in crossings] or [np.zeros(0)])
    keys, inverse = np.unique(keys, return_inverse=True)
    numbers = np.bincount(inverse, weights=signs, minlength=len(keys))
    uncertain = np.unique(np.concatenate(doubtful or [keys[:0]]))
    certain = ~np.isin(keys, uncertain) & (numbers != 0.0)
    order = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[order], np.arange(n_components + 1))
    summed = [
        winding_number(points[i], vertices, faces[order[starts[b] : starts[b + 1]]])
        for i, b in zip(*np.divmod(uncertain, n_components), strict=True)
    ]
    keys = np.concatenate((keys[certain], uncertain))
    return (
        keys // n_components,
        keys % n_components,
        np.concatenate((numbers[certain], np.array(summed))),
    )


def _pairs(points: np.ndarray, corners: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points (n, 2) and triangles (m, 3, 2) that share a cell: indices of both, some at a time."""
    if len(points) == 0:
        return
    lower, upper = corners.min(axis=1), corners.max(axis=1)
    slack = 2.0 * _DOUBT * np.abs(corners).max()
    lower, upper = lower - slack, upper + slack
    level = np.ceil(np.log2((upper - lower).max(axis=1))).astype(np.int64)
    for size in np.unique(level):
        chosen = np.flatnonzero(level == size)
        first, last = (np.floor(x[chosen] * 0.5**size).astype(np.int64) for x in (lower, upper))
        cells, owners = [], []
        for dx, dy in ((0, 0), (0, 1), (1, 0), (1, 1)):
            inside = (first[:, 0] + dx <= last[:, 0]) & (first[:, 1] + dy <= last[:, 1])
            cells.append(first[inside] + (dx, dy))
            owners.append(chosen[inside])
        keys = _cell_keys(np.concatenate(cells))
        order = np.argsort(keys, kind="stable")
        keys, owner = keys[order], np.concatenate(owners)[order]
        at = _cell_keys(np.floor(points * 0.5**size).astype(np.int64))
        begin, end = np.searchsorted(keys, at), np.searchsorted(keys, at, side="right")
        ends = np.cumsum(end - begin)
        start = 0
        while start < len(points):
            done = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + _PAIRS_AT_ONCE, side="right")))
            count = (end - begin)[start:stop]
            point = np.repeat(np.arange(start, stop), count)
            skip = np.repeat(begin[start:stop] - (np.cumsum(count) - count), count)
            face = owner[np.arange(len(point)) + skip]
            position, low, high = points[point].T, lower[face].T, upper[face].T
            hit = (position[0] >= low[0]) & (position[1] >= low[1])
            hit &= (position[0] <= high[0]) & (position[1] <= high[1])
            yield point[hit], face[hit]
            start = stop


def _cell_keys(cells: np.ndarray) -> np.ndarray:
    """One number for each cell (n, 2); cells that share one by accident only cost time."""
    return cells[:, 0] * np.int64(0x1F1F1F1F1) + cells[:, 1]


def _crossings(points: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How rays upward from points cross triangles, 1 from behind, and where that is uncertain."""
    margin = _DOUBT * np.maximum(np.abs(points).max(axis=1), np.abs(corners).max(axis=(1, 2)))
    offsets = corners - points[:, None]
    edges = np.roll(offsets, -1, axis=1) - offsets
    flat = topology.lengths(edges * (1.0, 1.0, 0.0))
    across = offsets[..., 0] * edges[..., 1] - offsets[..., 1] * edges[..., 0]
    normal = np.cross(edges[:, 0], edges[:, 1])
    up = np.where(normal[:, 2] < 0.0, -1.0, 1.0)
    # How far inside of each edge the ray passes, and how far above the point it meets the plane.
    inside = (up[:, None] * across / np.maximum(flat, 1e-300)).min(axis=1)
    height = np.einsum("ni,ni->n", normal, offsets[:, 0])
    steep = np.abs(normal[:, 2]) < 1e-6 * topology.lengths(normal)
    height = height / np.where(steep, 1.0, normal[:, 2])
    reach = margin * topology.lengths(normal) / np.maximum(np.abs(normal[:, 2]), 1e-300)
    doubt = (inside > -margin) & (steep | (np.abs(height) <= reach) | (inside < margin))
    doubt &= steep | (height > -reach)
    return np.where((inside > 0.0) & (height > 0.0) & ~doubt, up, 0.0), doubt


def winding_number(point: np.ndarray, vertices: Vertices, faces: Faces) -> float:
    """Generalized winding number of a point, summed over all faces in float64.

    In the plane of a face, where its share jumps, it is the mean of both sides: on a surface 1/2.
    """
    return winding_number_of_cones(point, cones(vertices[faces]))


def cones(triangles: np.ndarray) -> np.ndarray:
    """(3, 3, n) float64, corners and their coordinates first, of triangles (n, 3, 3)."""
    return np.ascontiguousarray(triangles.transpose(1, 2, 0), dtype=np.float64)


def winding_number_of_cones(point: np.ndarray, cones: np.ndarray) -> float:
    """`winding_number` of a point of `cones`, which are made once for many points."""
    offsets = cones - point[:, None]
    a, b, c = offsets
    la, lb, lc = np.sqrt((offsets**2).sum(axis=1))
    volume = a[0] * (b[1] * c[2] - b[2] * c[1])
    volume += a[1] * (b[2] * c[0] - b[0] * c[2])
    volume += a[2] * (b[0] * c[1] - b[1] * c[0])
    ab, bc, ca = ((x * y).sum(axis=0) for x, y in ((a, b), (b, c), (c, a)))
    product = la * lb * lc
    off_plane = np.abs(volume) > 1e-9 * product
    angles = np.arctan2(volume[off_plane], (product + ab * lc + bc * la + ca * lb)[off_plane])
    return float(angles.sum() / (2.0 * np.pi))
