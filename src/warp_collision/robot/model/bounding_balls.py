"""Bounding balls of consecutive spheres."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from warp_collision.kernels.robot_motion import GROUP_SIZE

# Balls are enlarged by more than the rounding of float32: a factor and a length [m].
_SCALE, _MARGIN = 1.0 + 1.0e-6, 1.0e-7
_STEPS = 300


class Balls(NamedTuple):
    """Bounding balls, float64.

    Attributes:
        centers: (n, 3) exact in float32 [m].
        radii: (n,) [m]; -1 where no sphere is enabled.
        spreads: (n,) largest distance of a sphere's center from that of the ball [m].
    """

    centers: np.ndarray
    radii: np.ndarray
    spreads: np.ndarray


def bounding_balls(spheres: np.ndarray, ranges: np.ndarray) -> Balls:
    """Balls around the enabled spheres of ranges (n, 2) of spheres (n_spheres, 4).

    Shrinking steps towards the farthest sphere (Badoiu and Clarkson, 2003) approximate the smallest
    ball; any bounding ball is valid.
    """
    if len(ranges) == 0:
        return Balls(np.empty((0, 3)), np.empty(0), np.empty(0))
    members = ranges[:, :1] + np.arange(int((ranges[:, 1] - ranges[:, 0]).max()))
    rows = spheres[np.minimum(members, len(spheres) - 1)]
    enabled = (members < ranges[:, 1:]) & ~(rows[..., 3] < 0.0)
    counts = enabled.sum(axis=1)
    centers = np.where(enabled[..., None], rows[..., :3], 0.0).sum(axis=1)
    centers /= np.maximum(counts, 1)[:, None]
    best, least = centers, np.full(len(ranges), np.inf)
    radii = np.where(enabled, rows[..., 3], -np.inf)
    index = np.arange(len(ranges))
    for step in range(1, _STEPS):
        offsets = rows[..., :3] - centers[:, None]
        reach = np.sqrt(np.einsum("ijk,ijk->ij", offsets, offsets)) + radii
        far = reach.argmax(axis=1)
        is_better = reach[index, far] < least
        best = np.where(is_better[:, None], centers, best)
        least = np.where(is_better, reach[index, far], least)
        centers = centers + offsets[index, far] / (step + 1)
    centers = best.astype(np.float32).astype(np.float64)
    distances = np.linalg.norm(rows[..., :3] - centers[:, None], axis=2)
    radii = np.where(enabled, distances + rows[..., 3], 0.0).max(axis=1) * _SCALE + _MARGIN
    spreads = np.where(enabled, distances, 0.0).max(axis=1) * _SCALE + _MARGIN
    is_empty = counts == 0
    centers[is_empty] = 0.0
    return Balls(centers, np.where(is_empty, -1.0, radii), np.where(is_empty, 0.0, spreads))


def ranges_of_links(sphere_links: Sequence[str]) -> np.ndarray:
    """(n_links, 2) int32, begin and end of the spheres of each link, which are consecutive."""
    counts = [len(list(spheres)) for _, spheres in itertools.groupby(sphere_links)]
    ends = np.cumsum(counts, dtype=np.int32)
    return np.stack((ends - np.array(counts, dtype=np.int32), ends), axis=1)


def groups_of_links(links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups of a few consecutive spheres of each link, the level below it.

    Args:
        links: (n_links, 2) begin and end of their spheres.

    Returns:
        (n_groups, 2) int32, begin and end of the spheres of each group; (n_links, 2) int32, begin
        and end of the groups of each link.
    """
    groups = [
        (begin, min(begin + GROUP_SIZE, end))
        for first, end in links.tolist()
        for begin in range(first, end, GROUP_SIZE)
    ]
    counts = -(-(links[:, 1] - links[:, 0]) // GROUP_SIZE)
    ends = np.cumsum(counts, dtype=np.int32)
    of_links = np.stack((ends - counts.astype(np.int32), ends), axis=1)
    return np.array(groups, dtype=np.int32).reshape(-1, 2), of_links.astype(np.int32)
