"""Distance grids of other systems, as obstacles whose error is stated."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
import warp as wp

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.kernels.esdf_grid import EsdfMap
from warp_collision.kernels.mesh_record import Shape as ShapeKind
from warp_collision.launching.structs import upload_struct
from warp_collision.obstacles.sensed import Sensed, Uploaded, corner_of, length_of
from warp_collision.obstacles.shapes import Triangles, box_around
from warp_collision.obstacles.units import warn_of_extent

_HALF_DIAGONAL = 0.5 * 3.0**0.5


class EsdfGrid(Sensed):
    """A grid of signed distances of another system, made by `VoxelGrid.from_esdf`.

    What queries take for the signed distance is a lower bound of the true one, which the error that
    was stated proves: the trilinear interpolation less the error less half the diagonal of a voxel.
    So what is certified free is free, and contacts may be reported that much too early. Costs and
    gradients are those of the same value: smooth, but for kinks between voxels.

    Attributes:
        values: (nx, ny, nz) float32, or float16 if they were given as such [m], read-only, positive
            outside.
        voxel_size: edge of a voxel [m].
        error: by how much a value may be too large [m], the rounding of float16 not counted.
        origin: (3,) lower corner of the grid [m].
    """

    kind = ShapeKind.ESDF_GRID

    def __init__(self, values: Any, voxel_size: float, *, error: float, origin: Any = (0, 0, 0)):
        """See `VoxelGrid.from_esdf`."""
        self.voxel_size = length_of("voxel_size", voxel_size)
        self.error = length_of("error", error, may_be_zero=True)
        self.origin = corner_of(origin)
        array, rounding = _as_array(values)
        if array.ndim != 3 or min(array.shape) < 2:
            raise ValueError(f"values must have shape (nx, ny, nz), 2 at least, got {array.shape}")
        bad = np.isnan(array) | np.isneginf(array)
        if bad.any():
            raise ValueError(f"values must be distances, got {int(bad.sum())} that are NaN or -inf")
        # What is infinitely far was never reached: it says no more than the largest that was.
        finite = array[np.isfinite(array)]
        if not len(finite):
            raise ValueError("values must be finite somewhere, got none")
        kept = array if array.dtype == np.float16 else array.astype(np.float32)
        self.values = np.clip(kept, finite.min(), finite.max())
        _require_distances(self.values, self.voxel_size, self.error, rounding)
        self.values.flags.writeable = False
        reach = np.abs(self.origin) + self.voxel_size * np.array(array.shape)
        if reach.max() >= MAX_COORDINATE:
            raise ValueError(f"the grid must end below 1e9, got {reach.max():.3g}")
        warn_of_extent("voxel_size", "a grid", [self.voxel_size * n for n in array.shape])

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape))
        return f"EsdfGrid({shape} voxels of {self.voxel_size:.3g} m, error {self.error:.3g} m)"

    @property
    def bounds(self) -> np.ndarray:
        """(2, 3) corners of the grid [m]."""
        size = self.voxel_size * np.array(self.values.shape)
        return np.stack((self.origin, self.origin + size))

    @property
    def key(self) -> str:
        """Equal for equal grids."""
        digest = hashlib.blake2b(self.values.tobytes(), digest_size=16)
        facts = (
            self.values.shape,
            self.values.dtype.str,
            self.voxel_size,
            self.error,
            self.origin.tolist(),
        )
        digest.update(repr(facts).encode())
        return f"esdf {digest.hexdigest()}"

    def tessellate(self) -> Triangles:
        """The box of the grid."""
        return box_around(self.bounds)

    def arrays(self) -> dict[str, np.ndarray]:
        """Its arguments."""
        return {
            "values": self.values,
            "voxel_size": np.array(self.voxel_size),
            "error": np.array(self.error),
            "origin": self.origin,
        }

    def upload(self, device: torch.device) -> Uploaded:
        """Copies the values."""
        values = torch.from_numpy(np.ascontiguousarray(self.values.T)).to(device)
        grid = EsdfMap()
        grid.values, grid.is_half = values.data_ptr(), values.dtype == torch.float16
        grid.origin, grid.cell = wp.vec3(*(self.origin + 0.5 * self.voxel_size)), self.voxel_size
        grid.shape = wp.vec3i(*self.values.shape)
        grid.slack = self.error + _HALF_DIAGONAL * self.voxel_size
        return Uploaded(upload_struct(grid, device), [values])


def _as_array(values: Any) -> tuple[np.ndarray, float]:
    """An array of NumPy, and how much of their sizes its values may be off from each other.

    Values of bfloat16 become float32, lowered by what they may have been rounded up.
    """
    lowered = 0.0
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values, lowered = values.float(), 2.0**-8
        elif values.dtype.itemsize < 2:
            raise TypeError(f"values must have 16 bits at least, got {values.dtype}")
    array = np.asarray(values)
    if array.dtype.kind != "f":
        raise TypeError(f"values must be floating point, got {array.dtype}")
    if lowered:
        return array - np.float32(lowered) * np.abs(array), 4.0 * lowered
    return array, 2.0**-10 if array.dtype == np.float16 else 1e-5


def _require_distances(values: np.ndarray, edge: float, error: float, rounding: float) -> None:
    """Requires values of which none exceeds a neighbour by more than distances can."""
    for axis in range(3):
        steps = np.abs(np.diff(values.astype(np.float32), axis=axis))
        limit = edge + 2.0 * error + rounding * (edge + float(np.abs(values).max()))
        if steps.max() > limit:
            raise ValueError(
                f"values must be distances: neighbours {edge:.3g} m apart differ by at most that "
                f"and twice the error of {error:.3g} m, got {steps.max():.4g} m along axis {axis}"
            )
