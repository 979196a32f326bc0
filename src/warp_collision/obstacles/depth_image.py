"""Depth images: what of them is a surface, where it is, and how much of it a pixel stands for."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
import torch

from warp_collision.kernels.depth_pixels import LONE, MIXED
from warp_collision.obstacles.depth_evidence import bounds_of, kinds_of, pixel_rules
from warp_collision.obstacles.depth_options import DepthCounts, DepthOptions
from warp_collision.obstacles.shapes import rotation_matrix
from warp_collision.obstacles.units import warn_of_units
from warp_collision.poses import PoseLike
from warp_collision.validate import check_pose, on_host

# Depths in a camera's units are mostly millimetres: no sensor of a robot sees that far [m].
_FARTHEST = 200.0


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
        counts: of pixels.
    """

    def __init__(self, depth: Any, intrinsics: Any, camera_pose: PoseLike, options: DepthOptions):
        """Reads an image; see `PointCloud.from_depth`."""
        given = _array("depth", depth)
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
        self.depth = given.astype(np.float64)
        self.focal, self.middle = _intrinsics(intrinsics)
        self.pose = check_pose("camera_pose", camera_pose).numpy()
        self.rotation = rotation_matrix(self.pose[3:])
        self.counts = DepthCounts()
        with np.errstate(invalid="ignore"):
            is_return = (self.depth > 0.0) & np.isfinite(self.depth)
        self.depth[~is_return] = 0.0
        self.counts.no_return = int((~is_return).sum())
        if is_return.any() and np.median(self.depth[is_return]) > _FARTHEST:
            warn_of_units(
                f"depth must be in metres, got {np.median(self.depth[is_return]):.4g} m in the "
                "middle; multiply millimetres by 0.001"
            )
        self.is_surface = is_return
        self.is_far = np.zeros_like(is_return)
        if options.max_depth is not None:
            self.is_far = self.depth > options.max_depth
            self.is_surface = is_return & ~self.is_far
            self.counts.too_far = int(self.is_far.sum())
        self._rules = pixel_rules(self.focal, self.middle, options)
        self._kinds = kinds_of(self.depth, self._rules)
        flying = self.is_surface & ((self._kinds == int(MIXED)) | (self._kinds == int(LONE)))
        self.is_surface &= ~flying
        self.counts.flying = int(flying.sum())
        if options.robot is not None:
            self._drop_robot(options)

    def slants(self) -> tuple[np.ndarray, np.ndarray]:
        """X and y, by column and row, of the points at a depth of 1 m that pixels see."""
        height, width = self.depth.shape
        x = (np.arange(width) - self.middle[0]) / self.focal[0]
        y = (np.arange(height) - self.middle[1]) / self.focal[1]
        return x, y

    def bounds(self) -> torch.Tensor:
        """(height, width) float32 depths before which nothing is [m], 0 where unknown."""
        return bounds_of(self.depth, self._kinds, self._rules)

    def _drop_robot(self, options: DepthOptions) -> None:
        """Takes the pixels from the surface that lie in spheres of the robot, or near them."""
        robot = options.robot
        placed = robot_spheres(robot, options.joints)
        if placed.ndim != 2:
            raise ValueError(
                f"joints must be of one configuration, got {tuple(options.joints.shape)}"
            )
        spheres = placed.cpu().numpy()
        x, y = self.slants()
        height, width = self.depth.shape
        for (*center, radius), link in zip(spheres, robot.sphere_links, strict=True):
            reach = radius + options.robot_margin
            at = (np.array(center) - self.pose[:3]) @ self.rotation
            if radius < 0.0 or at[2] <= -reach:
                continue
            # Its window, with all pixels where it is beside the camera.
            rows, columns = slice(0, height), slice(0, width)
            if at[2] > 1.5 * reach:
                span = (
                    self.focal
                    * reach
                    / (at[2] - reach)
                    * np.sqrt(1.0 + ((np.abs(at[:2]) + reach) / (at[2] - reach)) ** 2)
                )
                low = np.floor(self.focal * at[:2] / at[2] + self.middle - 1.5 * span - 1)
                high = np.ceil(self.focal * at[:2] / at[2] + self.middle + 1.5 * span + 2)
                low = np.clip(low, 0, (width, height)).astype(int)
                high = np.clip(high, 0, (width, height)).astype(int)
                columns, rows = slice(low[0], high[0]), slice(low[1], high[1])
            depth = self.depth[rows, columns]
            square = (
                (x[columns] * depth - at[0]) ** 2
                + (y[rows, None] * depth - at[1]) ** 2
                + (depth - at[2]) ** 2
            )
            found = self.is_surface[rows, columns] & (square <= reach**2)
            if found.any():
                self.counts.robot[link] = self.counts.robot.get(link, 0) + int(found.sum())
                self.is_surface[rows, columns] &= ~found

    def points(self) -> np.ndarray:
        """(n, 3) of the surface in the world [m], and counts them."""
        x, y = self.slants()
        row, column = np.nonzero(self.is_surface)
        self.counts.points = len(row)
        depth = self.depth[row, column]
        local = (x[column] * depth, y[row] * depth, depth)
        points = np.empty((len(depth), 3))
        for axis, row_of_axis in enumerate(self.rotation):  # a product would wake BLAS's threads
            points[:, axis] = sum(a * b for a, b in zip(row_of_axis, local, strict=True))
        return points + self.pose[:3]


def footprint(image: DepthImage, stride: int, max_angle: float) -> np.ndarray:
    """(n,) radii around the points of an image that cover what their pixels see [m].

    A pixel is a cone around its ray. Its corners are off the ray by the angle alpha, whose sine is
    at most the half diagonal of the pixel over the length of the ray, both at a depth of 1 m. A
    plane whose normal is at the angle theta to the ray is cut by the cone within
    d sin(alpha) / cos(theta + alpha), by the law of sines, with d the length of the ray.
    """
    x, y = image.slants()
    row, column = np.nonzero(image.is_surface)
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


def robot_spheres(robot: Any, joints: Any) -> torch.Tensor:
    """(..., n_spheres, 4) float64 where a `RobotSpheres` is; waits for the device."""
    if not hasattr(robot, "sphere_links"):
        raise TypeError(f"robot must be a RobotSpheres, got {type(robot).__name__}")
    spheres = robot.spheres(joints).detach().double()
    if not spheres.isfinite().all():
        raise ValueError("joints must be finite, got some that are not")
    return spheres


def check_stride(stride: Any) -> int:
    """A number of pixels, at least 1."""
    if not isinstance(stride, Integral) or isinstance(stride, bool) or stride < 1:
        raise ValueError(f"stride must be an int of at least 1, got {stride!r}")
    return int(stride)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(on_host(value))
    except ValueError:
        raise TypeError(f"{name} must be an array, got rows of unequal length") from None


def _intrinsics(value: Any) -> tuple[np.ndarray, np.ndarray]:
    """Focal lengths (2,) and principal point (2,), in pixels."""
    given = _array("intrinsics", value)
    if given.dtype.kind not in "fiu" or given.shape not in ((4,), (3, 3)):
        raise ValueError(
            f"intrinsics must be 4 numbers fx, fy, cx, cy or a 3 x 3 matrix, got {given.dtype} "
            f"{given.shape}"
        )
    given = given.astype(np.float64)
    if given.shape == (3, 3):
        plain = np.array(
            [[given[0, 0], 0.0, given[0, 2]], [0.0, given[1, 1], given[1, 2]], [0.0, 0.0, 1.0]]
        )
        if not np.array_equal(given, plain):
            raise ValueError(
                "intrinsics must be fx, 0, cx; 0, fy, cy; 0, 0, 1, without skew, got "
                f"{given.tolist()}"
            )
        given = given[[0, 1, 0, 1], [0, 1, 2, 2]]
    if not np.isfinite(given).all() or (given[:2] <= 0.0).any():
        raise ValueError(f"intrinsics must be finite with fx, fy > 0, got {given.tolist()}")
    return given[:2], given[2:]
