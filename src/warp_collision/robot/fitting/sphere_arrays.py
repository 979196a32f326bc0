"""Spheres as arrays (n, 4) of x, y, z, radius [m]: validated, inflated, transformed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.messages import short_repr


def sphere_array(where: str, spheres: Any) -> np.ndarray:
    """(n, 4) float64 from rows x, y, z, radius.

    Raises:
        TypeError: not numbers.
        ValueError: another shape, or values that are not finite.
    """
    if isinstance(spheres, torch.Tensor):
        spheres = spheres.detach().cpu().tolist()
    rule = f"{where} must be rows of 4 finite numbers x, y, z, radius below 1e9"
    try:
        values = np.array(spheres)
    except ValueError as error:  # ragged
        raise ValueError(f"{rule}, got {short_repr(spheres)}") from error
    if values.size == 0:
        return np.empty((0, 4))
    if values.dtype.kind not in "fiu":
        raise TypeError(f"{rule}, got {short_repr(spheres)}")
    if values.ndim != 2 or values.shape[1] != 4:
        raise ValueError(f"{rule}, got shape {values.shape}")
    values = values.astype(np.float64)
    bad = ~(np.abs(values) < MAX_COORDINATE).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{rule}, got {values[row].tolist()} at {row}")
    return values


def inflated(spheres: np.ndarray, padding: float) -> np.ndarray:
    """Spheres with larger radii; disabled ones are unchanged."""
    result = spheres.copy()
    result[:, 3] += np.where(spheres[:, 3] < 0.0, 0.0, padding)
    if (result[spheres[:, 3] >= 0.0, 3] < 0.0).any():
        raise ValueError(f"a padding must not make a radius negative, got {padding}")
    return result


def moved(spheres: np.ndarray, a_from_b: np.ndarray) -> np.ndarray:
    """Transforms spheres (n, 4) from frame b to frame a."""
    centers = spheres[:, :3] @ a_from_b[:3, :3].T + a_from_b[:3, 3]
    return np.concatenate([centers, spheres[:, 3:]], axis=1)
