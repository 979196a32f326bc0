"""Voxels of a map as those of an OctoMap, and the other way."""

from __future__ import annotations

import numpy as np

from warp_collision.formats.octomap_files import ORIGIN, OctoLeaves
from warp_collision.kernels.carving import FREE, OCCUPIED, UNSEEN
from warp_collision.obstacles.voxel_grid import MAX_CELLS


def aligned(states: np.ndarray, lower: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """Voxels that begin at multiples of their edge.

    Of one that lies across up to eight of the map's, all must be free for it to be free, and one
    occupied for it to be occupied.

    Args:
        states: (nx, ny, nz) uint8.
        lower: (3,) corner of the map [m].
        edge: of a voxel [m].

    Returns:
        The states, and the key (3,) of the first voxel in an OctoMap.
    """
    place = lower / edge
    corner = np.rint(place)
    is_across = np.abs(place - corner) > 1e-3
    corner = np.where(is_across, np.floor(place), corner).astype(np.int64)
    for axis in np.flatnonzero(is_across):
        around = np.pad(states, [(int(other == axis),) * 2 for other in range(3)])
        before, after = (
            np.take(around, range(begin, states.shape[axis] + 1 + begin), axis) for begin in (0, 1)
        )
        is_hit = (before == OCCUPIED) | (after == OCCUPIED)
        is_free = (before == FREE) & (after == FREE)
        states = np.where(is_hit, OCCUPIED, np.where(is_free, FREE, UNSEEN)).astype(np.uint8)
    return states, corner + ORIGIN


def filled(leaves: OctoLeaves, bounds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Voxels of the leaves of an OctoMap.

    Args:
        leaves: of the file.
        bounds: (2, 3) corners of the box that is wanted [m]; by default that around all leaves.

    Returns:
        The states (nx, ny, nz) uint8, and the corner (3,) of the first voxel [m].

    Raises:
        ValueError: no leaves and no bounds, or too many voxels.
    """
    low, high = leaves.corners, leaves.corners + leaves.sizes[:, None]
    if bounds is not None:
        scaled = bounds / leaves.resolution + ORIGIN
        begin, end = np.floor(scaled[0] + 1e-3), np.ceil(scaled[1] - 1e-3)
    elif len(low):
        begin, end = low.min(axis=0), high.max(axis=0)
    else:
        raise ValueError("bounds must be given for an OctoMap without voxels, got None")
    begin, end = begin.astype(np.int64), end.astype(np.int64)
    if (count := float(np.prod(end - begin, dtype=np.float64))) > MAX_CELLS:
        raise ValueError(
            f"the map must have at most {MAX_CELLS:.0e} voxels, got {count:.3g} in the box around "
            "all leaves: give the bounds of a part"
        )
    states = np.full(end - begin, UNSEEN, np.uint8)
    kinds = np.where(leaves.is_occupied, OCCUPIED, FREE).astype(np.uint8)
    low, high = np.maximum(low, begin) - begin, np.minimum(high, end) - begin
    is_there = (low < high).all(axis=1)
    is_one = is_there & (high - low == 1).all(axis=1)
    states[tuple(low[is_one].T)] = kinds[is_one]
    for first, last, kind in zip(
        *(part[is_there & ~is_one] for part in (low, high, kinds)), strict=True
    ):
        states[tuple(map(slice, first, last))] = kind
    return states, (begin - ORIGIN) * leaves.resolution
