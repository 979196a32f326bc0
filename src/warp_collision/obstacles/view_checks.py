"""What an image contradicts: a map that it does not see, a floor, what stood there before."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import sent
from warp_collision.kernels.sight import find_through
from warp_collision.launching import launch
from warp_collision.obstacles.camera import warn_of_camera
from warp_collision.obstacles.depth_image import DepthImage
from warp_collision.obstacles.units import warn_of_units

_LOOKS = 24  # rows and columns of pixels that are looked at
# An image that sees this part of its rays, or more, through what stood there has moved or is wrong.
# Of right images that is up to a tenth: rays that pass an edge within its voxels.
_THROUGH = 1.0 / 3.0
# Depths in other units are at least ten times what they should be.
_FAR_BEHIND = 10.0
_BEHIND = 0.15  # what a ray has behind an occupied voxel before that counts as seen through [m]


def warn_of_view(
    image: DepthImage, lower: np.ndarray, upper: np.ndarray, grid: Tensor, states: Tensor | None
) -> None:
    """Warns where an image shows nothing of a map, or sees through most of what it holds.

    Args:
        image: before the map has it.
        lower: (3,) corner of the map [m].
        upper: (3,) the other one.
        grid: (1,) its `VoxelBlock` on its device.
        states: of its voxels there, which is waited for; None to leave out what the map holds.
    """
    rays, beyond = _rays_through(image, lower, upper)
    if not len(rays):
        _warn_of_none(image, lower, upper)
        return
    _warn_of_unit(image, lower, upper)
    if states is None:
        return
    device = states.device
    given = [sent(torch.from_numpy(array), device) for array in (rays, beyond - _BEHIND)]
    found = torch.empty(len(rays), dtype=torch.bool, device=device)
    launch.launch(find_through, (len(rays),), *given, grid, states, found, device=device)
    part = found.float().mean().item()
    if part > _THROUGH:
        warn_of_camera(
            f"images must agree, and {part:.0%} of the pixels that see into the map see through "
            "what earlier images hit: is the pose that of the optical frame in the world, and the "
            "map of this scene?"
        )


def _rays_through(
    image: DepthImage, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of some hundred pixels, those that see into a box.

    Returns:
        (n, 2, 3) float32 where their rays enter the box, and where they leave it or end [m]; (n,)
        float32 how far they go on behind it [m].
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
    depths = np.stack((enter, leave), axis=1)[some]
    rays = image.pose[:3] + depths[..., None] * way[some, None]
    beyond = (depth - leave)[some] * np.linalg.norm(way[some], axis=1)
    return rays.astype(np.float32), beyond.astype(np.float32)


def _warn_of_unit(image: DepthImage, lower: np.ndarray, upper: np.ndarray) -> None:
    """Warns if most of what an image sees is far behind a map: what stands in it would be free."""
    farthest = float(np.linalg.norm(np.maximum(image.pose[:3] - lower, upper - image.pose[:3])))
    depths = image.sample()
    middle = float(np.median(depths)) if len(depths) else 0.0
    if middle > _FAR_BEHIND * farthest:
        warn_of_units(
            f"depth must be in metres, got {middle:.4g} m in the middle, where all of the map is "
            f"within {farthest:.3g} m; multiply centimetres by 0.01, and disparities are no depths"
        )


def _warn_of_none(image: DepthImage, lower: np.ndarray, upper: np.ndarray) -> None:
    """Warns if the image has no return, or points of which none is in the map."""
    if image.counts.no_return == image.depth.size:
        warn_of_camera(
            "depth must be positive along the optical axis, and all "
            f"{image.depth.size} pixels are 0, negative, NaN or infinite"
        )
    points = image.points(*image.pixels())
    if len(points) and not ((points >= lower) & (points < upper)).all(axis=1).any():
        low, high = (np.round(part, 2).tolist() for part in (points.min(0), points.max(0)))
        warn_of_camera(
            f"the camera must look at the map, and of {len(points)} points, from {low} to "
            f"{high}, none is in it or behind it: is the pose that of the optical frame in "
            "the world?"
        )
