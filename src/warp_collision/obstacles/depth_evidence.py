"""What the pixels of a depth image are of, and what they say of the space before them."""

from __future__ import annotations

import math

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels.depth_pixels import (
    PixelRules,
    bound_mixed,
    drop_spheres,
    fill_holes,
    sort_pixels,
)
from warp_collision.launching import launch
from warp_collision.launching.structs import upload_struct
from warp_collision.obstacles.depth_options import DepthOptions

_FAR = 1e6  # what is seen through without a largest depth [m]


def pixel_rules(
    focal: np.ndarray,
    middle: np.ndarray | None,
    noise: tuple[float, float, float],
    options: DepthOptions,
) -> Tensor:
    """A camera and what is assumed of its images, for the kernels.

    Args:
        focal: (2,) pixels, of a depth of 1 m or in a radian.
        middle: (2,) of the image, None where all pixels are as those in the middle.
        noise: a, b, c: a depth of z is right up to a + b z + c z^2 [m].
        options: what else is assumed.
    """
    rules = PixelRules()
    rules.focal, rules.middle = wp.vec2(_FAR, _FAR), wp.vec2(0.0, 0.0)
    if middle is not None:
        rules.focal, rules.middle = wp.vec2(*focal), wp.vec2(*middle)
    # A plane at that angle changes the depth along a pixel's width by its tangent, roughly.
    rules.steepness = 1.5 * float(np.hypot(*(1.0 / focal))) * math.tan(options.max_angle)
    rules.noise = wp.vec3(*noise)
    rules.max_depth = _FAR if options.max_depth is None else options.max_depth
    rules.max_hole = options.max_hole
    return upload_struct(rules, CPU)


def sort(depth: Tensor, rules: Tensor) -> tuple[np.ndarray, Tensor]:
    """What pixels (height, width) float32 are of, and up to where they see nothing.

    Returns:
        kinds: (height, width) uint8, as kernels/depth_pixels.py numbers them.
        bounds: (height, width) float32 depths before which nothing is [m], 0 where that is not
            known; of mixed pixels and holes not yet, see `complete`.
    """
    kinds, bounds = torch.empty_like(depth, dtype=torch.uint8), torch.empty_like(depth)
    launch.launch(sort_pixels, depth.shape[:1], depth, rules, kinds, bounds, device=CPU)
    return kinds.numpy(), bounds


def complete(depth: Tensor, kinds: np.ndarray, bounds: Tensor, rules: Tensor) -> Tensor:
    """The bounds with those of mixed pixels and holes."""
    of = torch.from_numpy(kinds)
    launch.launch(bound_mixed, depth.shape, depth, of, rules, bounds, device=CPU)
    scratch = torch.empty((3, depth.numel()), dtype=torch.int32)
    around = torch.empty(depth.numel())
    launch.launch(fill_holes, (1,), of, rules, *scratch, around, bounds, device=CPU)
    return bounds


def drop_near(
    depth: Tensor, is_surface: Tensor, rules: Tensor, spheres: np.ndarray, windows: np.ndarray
) -> Tensor:
    """Takes pixels near spheres from a surface; returns how many (n,), see `drop_spheres`."""
    found = torch.zeros(len(spheres), dtype=torch.int32)
    given = torch.from_numpy(spheres.astype(np.float32)), torch.from_numpy(windows)
    launch.launch(drop_spheres, (len(found),), depth, rules, *given, is_surface, found, device=CPU)
    return found
