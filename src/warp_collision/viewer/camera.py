"""A pinhole camera, and the views that show most of what a picture is about.

Camera frame: x to the right, y down, z forward.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from warp_collision.viewer.colors import Floats

# By name azimuth and elevation of the eye, seen from what is looked at [degrees].
VIEWS = {
    "front": (0.0, 8.0),
    "back": (180.0, 8.0),
    "left": (90.0, 8.0),
    "right": (270.0, 8.0),
    "top": (0.0, 88.0),
    "corner": (-45.0, 28.0),
}
_AZIMUTHS, _ELEVATIONS = range(0, 360, 30), (14.0, 28.0)  # that are tried
_TRIED_WIDTH = 96  # pixels of the pictures that are compared


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: eye and target in the world [m], z up, vertical field of view [degrees]."""

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    width: int
    height: int
    field_of_view: float = 30.0

    @property
    def focal_length(self) -> float:
        """Distance of the image plane [pixels]."""
        return 0.5 * self.height / np.tan(np.radians(self.field_of_view) / 2.0)

    @cached_property
    def camera_from_world(self) -> Floats:
        """(3, 3) rotation; its rows are the camera's right, down and forward axes."""
        forward = np.subtract(self.target, self.eye)
        forward = forward / np.linalg.norm(forward)
        right = np.array([forward[1], -forward[0], 0.0])  # across z
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(forward, right), forward])

    def view(self, points: ArrayLike) -> Floats:
        """Returns world points (..., 3) in the camera frame [m]."""
        return (np.asarray(points, float) - self.eye) @ self.camera_from_world.T

    def project(self, points: ArrayLike) -> Floats:
        """Returns pixel coordinates (..., 2) of world points (..., 3), origin at the top left."""
        seen = self.view(points)
        center = np.array([0.5 * self.width, 0.5 * self.height])
        return self.focal_length * seen[..., :2] / seen[..., 2:] + center

    def bounds(self, points: ArrayLike, multiple: int = 1) -> np.ndarray:
        """Returns (..., 2, 2) first and last column and row around points (..., n, 3).

        With a margin of two multiples; everything where a point is not in front of the camera.
        Bounds are multiples of a number, of which `width` and `height` must be multiples too.
        """
        points, size = np.asarray(points, float), np.array([self.width, self.height]) // multiple
        in_front = np.all(self.view(points)[..., 2:] > 1e-3, axis=-2, keepdims=True)
        pixels = self.project(np.where(in_front, points, self.target)) / multiple
        around = np.stack([np.floor(pixels.min(-2)) - 2, np.ceil(pixels.max(-2)) + 2], -2)
        whole = np.stack([0 * size, size])
        return multiple * np.where(in_front, np.clip(around, 0, size), whole).astype(int)

    def window(self, points: ArrayLike, multiple: int) -> tuple[slice, slice]:
        """Returns the rows and columns around world points (n, 3), see `bounds`."""
        rows, columns = self.bounds(points, multiple).T[::-1].tolist()
        return slice(*rows), slice(*columns)

    def rays(self) -> Floats:
        """Returns (3, 3): ray of the top left corner, steps to the right and down; depth 1."""
        right, down, forward = self.camera_from_world
        corner = forward - (0.5 * self.width * right + 0.5 * self.height * down) / self.focal_length
        return np.stack([corner, right / self.focal_length, down / self.focal_length])


def parse_view(view: str | tuple[float, float] | None) -> tuple[float, float] | None:
    """Returns azimuth and elevation [degrees] of a view; None for one to be chosen.

    Args:
        view: one of `VIEWS`, "auto" or None, two numbers, or a text of them.

    Raises:
        ValueError: It is something else, or the elevation is beyond 89 degrees.

    Example:
        >>> from warp_collision.viewer.camera import parse_view
        >>> parse_view("top"), parse_view("30,20")
        ((0.0, 88.0), (30.0, 20.0))
    """
    if view is None or view == "auto":
        return None
    if isinstance(view, str) and view in VIEWS:
        return VIEWS[view]
    given = re.split("[ ,]+", view) if isinstance(view, str) else view
    try:
        azimuth, elevation = (float(value) for value in given)
    except (TypeError, ValueError):
        azimuth = elevation = np.nan
    if not (np.isfinite(azimuth) and abs(elevation) <= 89.0):
        names = ", ".join(VIEWS)
        raise ValueError(
            f"view must be auto, {names}, or an azimuth and an elevation of at most 89 degrees, "
            f"got {view!r}"
        )
    return azimuth, elevation


def look(
    points: Floats,
    azimuth: float,
    elevation: float,
    size: tuple[int, int],
    target: Floats | None = None,
) -> Camera:
    """Returns a camera that has points (n, 3) in view, seen from a direction [degrees].

    With a target that one is in the middle.
    """
    angles = np.radians([azimuth, elevation])
    away = np.array(
        [np.cos(angles[0]) * np.cos(angles[1]), np.sin(angles[0]) * np.cos(angles[1]),
         np.sin(angles[1])]
    )  # fmt: skip
    middle = 0.5 * (points.min(0) + points.max(0)) if target is None else target
    width, height = size
    distance = 3.0 * max(1e-3, float(np.ptp(points, axis=0).max()))
    for _ in range(10):
        camera = Camera(tuple(middle + distance * away), tuple(middle), width, height)
        seen = camera.view(points)
        if (seen[:, 2] <= 0.05 * distance).any():
            distance *= 1.6
            continue
        pixels = camera.project(points)
        low, high = pixels.min(0), pixels.max(0)
        if target is not None:  # as much on both sides
            reach = np.maximum(np.array(size) / 2 - low, high - np.array(size) / 2)
            low, high = np.array(size) / 2 - reach, np.array(size) / 2 + reach
        distance *= float(((high - low) / (np.array([0.90, 0.82]) * size)).max())
        if target is None:
            # Centre what is seen, a little low: the heading stands above.
            shift = (0.5 * (low + high) - np.array(size) * [0.50, 0.53]) * distance
            middle = middle + shift / camera.focal_length @ camera.camera_from_world[:2]
    return Camera(tuple(middle + distance * away), tuple(middle), width, height)


def best_view(
    points: Floats,
    size: tuple[int, int],
    score: Callable[[Camera], float],
    target: Floats | None = None,
) -> tuple[float, float]:
    """Returns the direction [degrees] of the view that a score of small pictures is highest for."""
    small = (_TRIED_WIDTH, max(1, _TRIED_WIDTH * size[1] // size[0]))
    tried = [
        (score(look(points, azimuth, elevation, small, target)), (float(azimuth), elevation))
        for elevation, azimuth in itertools.product(_ELEVATIONS, _AZIMUTHS)
    ]
    return max(tried, key=lambda found: found[0])[1]
