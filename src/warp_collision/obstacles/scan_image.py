"""Scans of points as images: distances by azimuth and elevation around the scanner."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from warp_collision.devices import CPU
from warp_collision.kernels.depth_pixels import LONE, MIXED
from warp_collision.kernels.scans import lower_bounds
from warp_collision.launching import launch
from warp_collision.obstacles.depth_evidence import complete, pixel_rules, sort
from warp_collision.obstacles.depth_options import DepthCounts, DepthOptions
from warp_collision.obstacles.robot_pixels import robot_spheres
from warp_collision.obstacles.shapes import rotation_matrix
from warp_collision.poses import PoseLike
from warp_collision.validate import check_pose, on_host, require_number

# Rays within so many pixels of a row bend less than half a pixel, up to a quarter of the inverse of
# a pixel as the tangent of their elevation.
_BEND = 0.25
_MOST_PIXELS = 50_000_000


class ScanImage:
    """Points of a scanner as an image, all columns of it twice.

    A pixel has the nearest of its points. So its ray may be anywhere in it.

    Attributes:
        depth: (rows, 2 x columns) float64 distances [m], 0 without a return.
        pose: (7,) of the scanner, whose rays turn about its z axis.
        rotation: (3, 3) of it.
        focal: (2,) columns and rows in a radian.
        middle: (2,) where azimuth and elevation are 0.
        steepest: tangent of the elevation up to which rows are straight.
        hits: (n, 3) points of surfaces in the world [m].
        counts: of points.
    """

    def __init__(self, points: Any, origin: Any, spacing: Any, options: DepthOptions):
        """Sorts points (..., 3) into pixels; see `OccupancyMap.integrate_points`."""
        self.pose = _pose_of(origin)
        self.rotation = rotation_matrix(self.pose[3:])
        given = _points_of(points)
        rows = given.reshape(-1, 3)
        local = (rows - self.pose[:3]) @ self.rotation
        away = np.linalg.norm(local, axis=1)
        is_return = np.isfinite(away) & (away > 0.0)
        self.counts = DepthCounts(no_return=int((~is_return).sum()))
        angles = np.stack(
            (
                np.arctan2(local[:, 1], local[:, 0]),
                -np.arctan2(local[:, 2], np.hypot(local[:, 0], local[:, 1])),
            ),
            axis=-1,
        )
        angles[~is_return] = np.nan
        if spacing is None:
            spacing = _spacing_of(angles.reshape(*given.shape[:-1], 2))
        step = _checked_spacing(spacing)
        columns = max(int(2.0 * math.pi / step[0] + 1e-3), 1)
        step[0] = 2.0 * math.pi / columns
        self.steepest = _BEND / float(step.max())
        seen = angles[is_return]
        low = seen[:, 1].min(initial=0.0)
        first = low - _phase(seen[:, 1] - low, step[1])
        height = 1 + int((seen[:, 1].max(initial=0.0) - first) / step[1] + 0.5)
        if 2 * height * columns > _MOST_PIXELS:
            raise ValueError(
                f"spacing must make an image of at most {_MOST_PIXELS:.0e} pixels, got "
                f"{step.tolist()} rad"
            )
        begin = _phase(seen[:, 0], step[0])
        column = np.floor((seen[:, 0] - begin) / step[0] + 0.5).astype(int)
        row = np.clip(np.floor((seen[:, 1] - first) / step[1] + 0.5).astype(int), 0, height - 1)
        nearest = np.full((height, columns), np.inf)
        column %= columns
        np.minimum.at(nearest, (row, column), away[is_return])
        nearest[np.isinf(nearest)] = 0.0
        self.depth = np.concatenate((nearest, nearest), axis=1)
        self.focal = 1.0 / step
        # Azimuths from -pi to pi are in the middle half of the columns.
        self.middle = np.array([columns - begin / step[0], -first / step[1]])
        # Rays of neighbours are up to two pixels apart.
        focal = 1.0 / (2.0 * step)
        self._rules = pixel_rules(focal, None, options.noise_terms(focal), options)
        self._depths = torch.from_numpy(self.depth.astype(np.float32))
        self._kinds, self._bounds = sort(self._depths, self._rules)
        kinds = self._kinds[row, column]
        self._keep_hits(rows[is_return], away[is_return], kinds, options)

    def bounds(self) -> torch.Tensor:
        """(rows, 2 x columns) float32 distances before which nothing is [m], 0 where unknown."""
        arguments = self._depths, torch.from_numpy(self._kinds), self._rules, self._bounds
        launch.launch(lower_bounds, self.depth.shape, *arguments, device=CPU)
        return complete(self._depths, self._kinds, self._bounds, self._rules)

    def _keep_hits(
        self, points: np.ndarray, away: np.ndarray, kinds: np.ndarray, options: DepthOptions
    ) -> None:
        """Points of surfaces, without those that are too far, and the robot's own."""
        is_hit = np.ones(len(points), bool)
        if options.max_depth is not None:
            is_hit = away <= options.max_depth
            self.counts.too_far = int((~is_hit).sum())
        flying = is_hit & ((kinds == int(MIXED)) | (kinds == int(LONE)))
        self.counts.flying = int(flying.sum())
        is_hit &= ~flying
        if options.robot is not None:
            placed = robot_spheres(options.robot, options.joints).reshape(-1, 4).cpu().numpy()
            a, b, c = options.noise_terms(self.focal)
            noise = a + away * (b + away * c)
            for (*center, radius), link in zip(placed, options.robot.sphere_links, strict=True):
                reach = radius + options.robot_margin + noise
                own = is_hit & (((points - center) ** 2).sum(axis=1) <= reach**2)
                if radius >= 0.0 and own.any():
                    self.counts.robot[link] = self.counts.robot.get(link, 0) + int(own.sum())
                    is_hit &= ~own
        self.hits = points[is_hit]
        self.counts.points = len(self.hits)


def _phase(angles: np.ndarray, step: float) -> float:
    """Where in a step most angles are, from 0 on, so that they are in the middle of pixels."""
    turn = np.exp(2j * np.pi * angles / step)
    return float(np.angle(turn.mean()) * step / (2.0 * np.pi)) if len(angles) else 0.0


def _pose_of(origin: Any) -> np.ndarray:
    """(7,) of three numbers, or a pose."""
    given = np.asarray(on_host(origin))
    if given.shape == (3,):
        return check_pose("origin", (*given.tolist(), 1.0, 0.0, 0.0, 0.0)).numpy()
    pose: PoseLike = origin
    return check_pose("origin", pose).numpy()


def _points_of(points: Any) -> np.ndarray:
    given = np.asarray(on_host(points))
    if given.dtype.kind not in "fiu":
        raise TypeError(f"points must be real numbers, got {given.dtype}")
    if given.ndim not in (2, 3) or given.shape[-1] != 3 or 0 in given.shape:
        raise ValueError(f"points must have shape (n, 3) or (rings, steps, 3), got {given.shape}")
    return given.astype(np.float64)


def _checked_spacing(spacing: Any) -> np.ndarray:
    """(2,) angles between rays [rad]."""
    step = np.asarray(on_host(spacing), np.float64)
    if step.shape != (2,):
        raise ValueError(f"spacing must be two angles, of azimuth and elevation, got {spacing!r}")
    for number in step.tolist():
        require_number("spacing", number, positive=True)
        if number > 0.2:
            raise ValueError(f"spacing must be at most 0.2 rad, got {number:.4g}")
    return step.copy()


def _spacing_of(angles: np.ndarray) -> np.ndarray:
    """(2,) angles between neighbours of an organized scan (rings, steps, 2) [rad]."""
    if angles.ndim != 3 or min(angles.shape[:2]) < 2:
        raise ValueError(
            "spacing must be given for points (n, 3): how far rays are apart in azimuth and "
            "elevation [rad], got None"
        )
    along = np.abs(np.diff(angles[..., 0], axis=1))
    along = np.minimum(along, 2.0 * np.pi - along)
    rings = np.array([np.median(row[np.isfinite(row)]) for row in angles[..., 1] if _any(row)])
    if not np.isfinite(along).any() or len(rings) < 2:
        raise ValueError("points must have returns in two rings, got fewer")
    return np.array([np.nanmedian(along), np.abs(np.diff(np.sort(rings))).max()])


def _any(row: np.ndarray) -> bool:
    return bool(np.isfinite(row).any())
