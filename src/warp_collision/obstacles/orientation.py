"""Orientation of the faces of each component of a mesh, and flipping them where it is a repair."""

from __future__ import annotations

import numpy as np

from warp_collision.obstacles import topology
from warp_collision.obstacles.crossings import component_windings
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.obstacles.topology import Faces, Vertices


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
