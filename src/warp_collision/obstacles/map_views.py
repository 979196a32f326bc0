"""Cameras and scanners as the kernels of maps see them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp

from warp_collision.kernels.carving import BESIDE, View
from warp_collision.kernels.scans import BESIDE_RAYS
from warp_collision.obstacles.camera import Camera
from warp_collision.obstacles.depth_image import DepthImage
from warp_collision.obstacles.scan_image import ScanImage


def image_view(image: DepthImage, is_strict: bool) -> Any:
    """The view of an image."""
    view = _view(image, image.depth.shape, is_strict)
    view.beside = float(BESIDE)
    return view


def camera_view(camera: Camera) -> Any:
    """The view of a camera that has not taken an image.

    Raises:
        TypeError: no camera.
        ValueError: one without a size.
    """
    if not isinstance(camera, Camera):
        raise TypeError(f"cameras must be Cameras, got {type(camera).__name__}")
    if camera.size is None:
        raise ValueError("cameras must have a size, height and width of their images, got None")
    return _view(camera, camera.size, False)


def scan_view(scan: ScanImage, is_strict: bool) -> Any:
    """The view of a scanner."""
    view = _view(scan, scan.depth.shape, is_strict)
    view.beside, view.steepest = float(BESIDE_RAYS), scan.steepest
    return view


def voxels_in(
    name: str, spheres: Any, lower: np.ndarray, edge: float, shape: tuple[int, ...]
) -> tuple[np.ndarray, int]:
    """Voxels of a grid (nx, ny, nz) whose centers are in spheres (..., 4), and how many beyond.

    Raises:
        TypeError: no tensor or array of numbers; the message has the name.
        ValueError: another shape, or a sphere that is not finite.
    """
    wanted = "spheres (..., 4) x, y, z, radius"
    try:
        tensor = torch.as_tensor(spheres).detach().double().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be {wanted}, got {type(spheres).__name__}") from None
    if tensor.ndim == 0 or tensor.shape[-1] != 4:
        raise ValueError(f"{name} must be {wanted}, got shape {tuple(tensor.shape)}")
    rows = tensor.reshape(-1, 4).numpy()
    bad = rows[~(rows[:, 3] < 0.0) & ~np.isfinite(rows).all(axis=1)]
    if len(bad):
        raise ValueError(f"{name} must be finite, got {bad[0].tolist()}")
    known = np.zeros(shape, bool)
    outer: set[tuple[int, int, int]] = set()
    for *center, radius in rows[rows[:, 3] >= 0.0]:
        local = (np.array(center) - lower) / edge
        reach = radius / edge
        low = np.floor(local - reach - 0.5).astype(int)
        high = np.ceil(local + reach + 0.5).astype(int)
        cells = np.stack(np.meshgrid(*map(np.arange, low, high), indexing="ij"), axis=-1)
        cells = cells.reshape(-1, 3)
        cells = cells[((cells + 0.5 - local) ** 2).sum(axis=1) <= reach**2]
        inside = ((cells >= 0) & (cells < shape)).all(axis=1)
        known[tuple(cells[inside].T)] = True
        outer.update(map(tuple, cells[~inside].tolist()))
    return known, len(outer)


def _view(image: Any, size: tuple[int, int], is_strict: bool) -> Any:
    view = View()
    view.rotation = wp.mat33(*image.rotation.T.ravel())
    view.place = wp.vec3(*(-image.pose[:3] @ image.rotation))
    view.eye = wp.vec3(*image.pose[:3])
    view.focal, view.middle = wp.vec2(*image.focal), wp.vec2(*image.middle)
    view.height, view.width = size
    view.extent = wp.vec3(*(0.5 * (1.0 + 1e-6) * np.abs(image.rotation).sum(axis=0)))
    view.is_strict = int(is_strict)
    return view
