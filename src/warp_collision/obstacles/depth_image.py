"""Depth images: what of them is a surface, where it is, and how much of it a pixel stands for."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
import torch

from warp_collision.kernels.depth_pixels import LONE, MIXED
from warp_collision.obstacles.camera import Camera, warn_of_camera
from warp_collision.obstacles.depth_evidence import complete, drop_near, pixel_rules, sort
from warp_collision.obstacles.depth_options import DepthCounts, DepthOptions
from warp_collision.obstacles.robot_pixels import drop_robot
from warp_collision.obstacles.units import warn_of_units
from warp_collision.validate import on_host

# Depths in a camera's units are mostly millimetres: no sensor of a robot sees that far [m].
_FARTHEST = 200.0
# Half of the last bit of what is at least 1, and of less in proportion.
_ROUNDING = {np.dtype(np.float16): 2.0**-11}
_LOOKS = 24  # the square root of how many pixels tell of mistakes
_BELOW = 0.05  # floors are even up to this [m]
_UNDER = 0.1  # of right images such a part is below the floor at most: reflections, say


class DepthImage:
    """A depth image with its camera: which of its pixels are a surface, and where that is.

    Attributes:
        depth: (height, width) float64 along the optical axis [m], 0 without a return.
        focal: (2,) in pixels.
        middle: (2,) the principal point, where the center of the first pixel is 0, 0.
        pose: (7,) of the camera in the world, z forward, x right, y down.
        rotation: (3, 3) of it.
        is_surface: (height, width) without flying pixels, the robot, and what is too far.
        is_far: (height, width) beyond the largest depth.
        noise: a, b, c: a depth of z is right up to a + b z + c z^2 [m].
        counts: of pixels.
    """

    def __init__(self, depth: Any, camera: Camera, options: DepthOptions):
        """Reads an image; see `PointCloud.from_depth`."""
        given, rounding = _array("depth", depth)
        if given.ndim != 2 or 0 in given.shape:
            raise ValueError(f"depth must have shape (height, width), got {given.shape}")
        if given.dtype.kind in "iu":
            if options.depth_scale is None:
                raise ValueError(
                    "depth_scale must be given for integers, as 0.001 for millimetres, got None"
                )
            given = given * float(options.depth_scale)
        elif given.dtype.kind != "f":
            raise TypeError(f"depth must be real numbers, got {given.dtype}")
        elif options.depth_scale is not None:
            raise ValueError("depth_scale must not be given for floating point depths in metres")
        self.depth = camera.straight(given).astype(np.float64)
        self.focal, self.middle = camera.focal, camera.middle
        self.pose, self.rotation = camera.pose, camera.rotation
        a, b, c = options.noise_terms(self.focal)
        self.noise = a, b + rounding, c
        self.counts = DepthCounts()
        with np.errstate(invalid="ignore"):
            is_return = (self.depth > 0.0) & np.isfinite(self.depth)
        self.depth[~is_return] = 0.0
        self.counts.no_return = int((~is_return).sum())
        some = self.sample()
        if len(some) and np.median(some) > _FARTHEST:
            warn_of_units(
                f"depth must be in metres, got {np.median(some):.4g} m in the middle; multiply "
                "millimetres by 0.001"
            )
        self.is_surface = is_return
        self.is_far = np.zeros_like(is_return)
        if options.max_depth is not None:
            self.is_far = self.depth > options.max_depth
            self.is_surface = is_return & ~self.is_far
            self.counts.too_far = int(self.is_far.sum())
        self._rules = pixel_rules(self.focal, self.middle, self.noise, options)
        self._depths = torch.from_numpy(self.depth.astype(np.float32))
        self._kinds, self._bounds = sort(self._depths, self._rules)
        flying = self.is_surface & ((self._kinds == int(MIXED)) | (self._kinds == int(LONE)))
        self.is_surface &= ~flying
        self.counts.flying = int(flying.sum())
        if options.floor is not None:
            self._warn_of_floor(options.floor, options)
        if options.robot is not None:
            drop_robot(self, options)

    def _warn_of_floor(self, floor: float, options: DepthOptions) -> None:
        """Warns if many points are below the floor by more than their noise and 5 cm."""
        x, y = self.slants()
        row, column = np.nonzero(self.is_surface)
        some = slice(None, None, 1 + len(row) // _LOOKS**2)
        row, column = row[some], column[some]
        depth = self.depth[row, column]
        a, b, c = self.noise
        up = self.rotation[2]
        height = self.pose[2] + depth * (up[0] * x[column] + up[1] * y[row] + up[2])
        below = height < floor - _BELOW - (a + depth * (b + depth * c))
        if len(row) and below.mean() > _UNDER:
            warn_of_camera(
                f"points must be above the floor at {floor:g} m, and {below.mean():.0%} "
                f"are below it, down to {height.min():.3g} m: is the pose that of the optical "
                "frame in the world?"
            )

    def sample(self) -> np.ndarray:
        """Some thousand of the depths [m], without those of the far plane that renderers have."""
        some = self.depth.ravel()[:: 1 + self.depth.size // (16 * _LOOKS**2)]
        some = some[some > 0.0]
        nearer = some[some < some.max(initial=0.0)]
        return nearer if len(nearer) else some

    def slants(self) -> tuple[np.ndarray, np.ndarray]:
        """X and y, by column and row, of the points at a depth of 1 m that pixels see."""
        height, width = self.depth.shape
        x = (np.arange(width) - self.middle[0]) / self.focal[0]
        y = (np.arange(height) - self.middle[1]) / self.focal[1]
        return x, y

    def bounds(self) -> torch.Tensor:
        """(height, width) float32 depths before which nothing is [m], 0 where unknown."""
        return complete(self._depths, self._kinds, self._bounds, self._rules)

    def drop_spheres(self, spheres: np.ndarray, windows: np.ndarray) -> np.ndarray:
        """Takes what may be of spheres from the surface; returns how many pixels that is, of each.

        Args:
            spheres: (n, 4) in the axes of the camera, x, y, z, radius [m]; noise is added.
            windows: (n, 4) int32 first column and row that are looked at, those behind the last.
        """
        found = drop_near(
            self._depths, torch.from_numpy(self.is_surface), self._rules, spheres, windows
        )
        return found.numpy()

    def pixels(self, stride: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n,) and columns (n,) of the surface, of every so manieth one, and counts them."""
        first = stride // 2
        row, column = np.nonzero(self.is_surface[first::stride, first::stride])
        self.counts.points = len(row)
        return first + stride * row, first + stride * column

    def points(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """(n, 3) of pixels in the world [m]."""
        x, y = self.slants()
        depth = self.depth[row, column]
        local = (x[column] * depth, y[row] * depth, depth)
        points = np.empty((len(depth), 3))
        for axis, row_of_axis in enumerate(self.rotation):  # a product would wake BLAS's threads
            points[:, axis] = sum(a * b for a, b in zip(row_of_axis, local, strict=True))
        return points + self.pose[:3]


def footprint(
    image: DepthImage, row: np.ndarray, column: np.ndarray, stride: int, max_angle: float
) -> np.ndarray:
    """(n,) radii around the points of pixels that cover what these see [m].

    A pixel is a cone around its ray. Its corners are off the ray by the angle alpha, whose sine is
    at most the half diagonal of the pixel over the length of the ray, both at a depth of 1 m. The
    length of the ray is d, and theta is the angle between it and the normal of a plane. By the law
    of sines the cone cuts that plane within d sin(alpha) / cos(theta + alpha).
    """
    x, y = image.slants()
    length = np.sqrt(1.0 + x[column] ** 2 + y[row] ** 2)
    half = 0.5 * stride * float(np.hypot(*(1.0 / image.focal)))
    sine = np.minimum(half / length, 1.0)
    angle = max_angle + np.arcsin(sine)
    if (angle >= 0.5 * math.pi).any():
        raise ValueError(
            f"max_angle and half of a pixel's angle must be below pi / 2, got "
            f"{float(angle.max()):.4g} rad with a stride of {stride}"
        )
    return image.depth[row, column] * half / np.cos(angle)


def check_stride(stride: Any) -> int:
    """A number of pixels, at least 1."""
    if not isinstance(stride, Integral) or isinstance(stride, bool) or stride < 1:
        raise ValueError(f"stride must be an int of at least 1, got {stride!r}")
    return int(stride)


def _array(name: str, value: Any) -> tuple[np.ndarray, float]:
    """An array of NumPy, and up to which part of themselves its numbers were rounded."""
    value = on_host(value)
    kind = getattr(value, "dtype", None)
    if kind == torch.bfloat16:
        value = value.float()
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{name} must be an array, got rows of unequal length") from None
    return array, 2.0**-8 if kind == torch.bfloat16 else _ROUNDING.get(array.dtype, 0.0)
