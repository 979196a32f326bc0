"""What an image contradicts: a map that it does not see, a floor, what stood there before."""

from __future__ import annotations

import numpy as np

from warp_collision.kernels.carving import OCCUPIED
from warp_collision.obstacles.camera import warn_of_camera
from warp_collision.obstacles.depth_image import DepthImage

_LOOKS = 24  # rows and columns of pixels that are looked at
# An image that sees this part of its rays, or more, through what stood there has moved or is wrong.
# Of right images that is up to a tenth: rays that pass an edge within its voxels.
_THROUGH = 1.0 / 3.0
_BEHIND = 0.15  # what a ray has behind an occupied voxel before that counts as seen through [m]


def warn_of_view(
    image: DepthImage,
    lower: np.ndarray,
    voxel_size: float,
    shape: tuple[int, ...],
    states: np.ndarray | None,
) -> None:
    """Warns where an image shows nothing of a map, or sees through most of what it holds.

    Args:
        image: before the map has it.
        lower: (3,) corner of the map [m].
        voxel_size: edge of a voxel [m].
        shape: nx, ny, nz, the numbers of its voxels.
        states: (nx, ny, nz) of these; None to leave out what the map holds.
    """
    counts = np.array(shape)
    upper = lower + voxel_size * counts
    way, enter, leave, depth = _rays_through(image, lower, upper)
    if not len(way):
        _warn_of_none(image, lower, upper)
        return
    if states is None:
        return
    length = np.linalg.norm(way, axis=1)
    step = 0.5 * voxel_size
    n_steps = int(np.ceil(((leave - enter) * length).max() / step))
    at = enter[:, None] + (np.arange(n_steps) + 0.5) * step / length[:, None]
    within = at < leave[:, None]
    places = image.pose[:3] + at[..., None] * way[:, None]
    index = np.clip(((places - lower) / voxel_size).astype(int), 0, counts - 1)
    hit = within & (states[tuple(np.moveaxis(index, -1, 0))] == int(OCCUPIED))
    # Rays along a surface stay in its voxels: what counts is what is seen behind them.
    after = np.arange(n_steps) > np.where(hit.any(axis=1), hit.argmax(axis=1), n_steps)[:, None]
    behind = step * (after & within & ~hit).sum(axis=1) + (depth - leave) * length
    part = float((hit.any(axis=1) & (behind > _BEHIND)).mean())
    if part > _THROUGH:
        warn_of_camera(
            f"images must agree, and {part:.0%} of the pixels that see into the map see through "
            "what earlier images hit: is the pose that of the optical frame in the world, and the "
            "map of this scene?"
        )


def _rays_through(
    image: DepthImage, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of some hundred pixels, those that see into a box.

    Returns:
        (n, 3) ways of their rays to a depth of 1 m, in the world; (n,) depths where they enter the
        box, and where they leave it or end; (n,) depths of their surfaces.
    """
    row, column = (
        np.unique(np.linspace(0, count - 1, _LOOKS).astype(int)) for count in image.depth.shape
    )
    x, y = image.slants()
    depth = image.depth[np.ix_(row, column)].ravel()
    slant = np.stack(np.meshgrid(x[column], y[row]), axis=-1).reshape(-1, 2)
    way = np.column_stack((slant, np.ones(len(slant)))) @ image.rotation.T
    way = np.where(np.abs(way) < 1e-12, 1e-12, way)
    ends = np.stack(((lower - image.pose[:3]) / way, (upper - image.pose[:3]) / way))
    enter = np.maximum(ends.min(axis=0).max(axis=1), 0.0)
    leave = np.minimum(ends.max(axis=0).min(axis=1), depth)
    some = enter < leave
    return way[some], enter[some], leave[some], depth[some]


def _warn_of_none(image: DepthImage, lower: np.ndarray, upper: np.ndarray) -> None:
    """Warns if the image has points, and none is in the map."""
    points = image.points()
    if len(points) and not ((points >= lower) & (points < upper)).all(axis=1).any():
        low, high = (np.round(part, 2).tolist() for part in (points.min(0), points.max(0)))
        warn_of_camera(
            f"the camera must look at the map, and of {len(points)} points, from {low} to "
            f"{high}, none is in it or behind it: is the pose that of the optical frame in "
            "the world?"
        )
