"""Height fields: terrains over a grid, as an obstacle."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor
from torch.nn.functional import max_pool2d

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.kernels.height_distance import HeightMap
from warp_collision.kernels.mesh_record import Shape as ShapeKind
from warp_collision.launching.structs import sent_struct
from warp_collision.obstacles.sensed import Sensed, Uploaded, length_of
from warp_collision.obstacles.shapes import Triangles
from warp_collision.obstacles.units import warn_of_extent
from warp_collision.validate import on_host

# A cell thinner than this has faces whose normals are lost in float32 [m].
_LARGE = 1_000.0  # terrain may be larger than what a robot sees [m]
_LEAST_CELL = 1e-6
_MOST_NODES = 2_000_000_000


class HeightField(Sensed):
    """A terrain of triangles over a grid of heights, solid down to a flat base.

    The middle of the grid is the origin of its frame. The signed distance is exactly that of the
    solid under the triangles, inside and outside: each cell is cut from its corner of least x and y
    to the opposite one, as MuJoCo does.

    Attributes:
        heights: (nx, ny) float32 [m], read-only.
        size: full lengths along x and y [m].
        base: how far the flat bottom is below 0 [m].

    Example:
        >>> import numpy as np, torch
        >>> from warp_collision import HeightField, MeshWorld, signed_distance
        >>> x = np.linspace(-1, 1, 21)[:, None]
        >>> hill = 0.3 * np.exp(-4 * (x**2 + np.linspace(-1, 1, 31) ** 2))
        >>> world = MeshWorld()
        >>> world.add("hill", HeightField(hill, size=(2, 2), base=0.1))
        0
        >>> round(signed_distance(torch.tensor([[0.0, 0.0, 1.0]]), world).distance.item(), 4)
        0.7
    """

    kind = ShapeKind.HEIGHT_FIELD
    arguments = ("heights", "size", "base")
    is_its_mesh = True

    def __init__(self, heights: Any, size: Any, base: float):
        """Copies heights.

        Args:
            heights: (nx, ny) array or tensor [m], at least 2 of both, of nodes that begin at least
                x and y and end at the largest.
            size: lengths along x and y [m], positive.
            base: how far the bottom is below 0 [m]; all heights are above it.

        Raises:
            TypeError: no real numbers.
            ValueError: another shape, heights that are not finite or not above the base, sizes that
                are not positive, cells below 1e-6 m, more than 2e9 nodes.
        """
        if hasattr(heights, "detach"):
            heights = heights.detach().float().cpu()
        array = np.asarray(heights)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"heights must be real numbers, got {array.dtype}")
        if array.ndim != 2 or min(array.shape) < 2:
            raise ValueError(f"heights must have shape (nx, ny), 2 at least, got {array.shape}")
        if array.size > _MOST_NODES:
            raise ValueError(f"heights must be at most {_MOST_NODES:.0e}, got {array.size}")
        self.size = _size_of(size)
        for length, count in zip(self.size, array.shape, strict=True):
            if length / (count - 1) < _LEAST_CELL:
                raise ValueError(
                    f"size must have cells of at least {_LEAST_CELL:g} m, got {length} m in "
                    f"{count - 1}"
                )
        self.heights = np.array(array, np.float32, order="C")
        # NaN is neither above nor below.
        low, high = float(self.heights.min()), float(self.heights.max())
        if not (-MAX_COORDINATE < low and high < MAX_COORDINATE):
            raise ValueError(f"heights must be finite and below 1e9, got {low} to {high}")
        try:
            self.base = float(base)
        except (TypeError, ValueError):
            raise TypeError(f"base must be a number, got {type(base).__name__}") from None
        if not -low < self.base < MAX_COORDINATE:
            raise ValueError(
                f"base must be below all heights, more than {-low:.6g} m below 0, and less than "
                f"1e9, got {self.base}"
            )
        warn_of_extent("size", "a height field", (*self.size, high - low), _LARGE)
        self.heights.flags.writeable = False

    def __repr__(self) -> str:
        nx, ny = self.heights.shape
        x, y = self.size
        low, high = float(self.heights.min()), float(self.heights.max())
        return f"HeightField({nx} x {ny} heights of {low:.3g} to {high:.3g} m, {x:g} x {y:g} m)"

    @property
    def bounds(self) -> np.ndarray:
        """(2, 3) lower and upper corner of the box around it [m]."""
        x, y = 0.5 * np.array(self.size)
        return np.array([[-x, -y, -self.base], [x, y, float(self.heights.max())]])

    def tessellate(self) -> Triangles:
        """The solid, exactly."""
        x, y = (
            np.linspace(-0.5 * length, 0.5 * length, count)
            for length, count in zip(self.size, self.heights.shape, strict=True)
        )
        top = np.stack((*np.meshgrid(x, y, indexing="ij"), self.heights), axis=2).reshape(-1, 3)
        index = np.arange(len(top)).reshape(self.heights.shape)
        a, b, c, d = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
        # The border counter-clockwise from above, and below each of its points one of the bottom.
        border = np.concatenate((index[:-1, 0], index[-1, :-1], index[:0:-1, -1], index[0, :0:-1]))
        below = len(top) + np.arange(len(border))
        next_top, next_below = np.roll(border, -1), np.roll(below, -1)
        center = np.full(len(border), len(top) + len(border))
        vertices = np.concatenate((top, top[border] * (1, 1, 0), np.zeros((1, 3))))
        vertices[len(top) :, 2] = -self.base
        faces = (
            (a, b, c),
            (a, c, d),
            (below, next_below, next_top),
            (below, next_top, border),
            (center, next_below, below),
        )
        triangles = np.concatenate([np.stack(corners, axis=-1).reshape(-1, 3) for corners in faces])
        return Triangles(vertices, triangles)

    def successor(self, name: str, given: Any, at: Any) -> Sensed:
        """Another height field, or heights over the same rectangle."""
        if at is None and not isinstance(given, Sensed):
            given = HeightField(given, self.size, self.base)
        return super().successor(name, given, at)

    def upload(self, device: torch.device) -> Uploaded:
        """Copies the heights, and finds the least and the largest of each block."""
        heights = torch.tensor(self.heights, device=device)
        blocks, levels = _pyramid(heights)
        shape = np.array(self.heights.shape) - 1
        field = HeightMap()
        field.heights = heights.data_ptr()
        field.highest, field.lowest = blocks[0].data_ptr(), blocks[1].data_ptr()
        field.levels, field.top = levels.data_ptr(), len(levels)
        field.shape = wp.vec2i(*shape)
        field.lower = wp.vec2(*(-0.5 * np.array(self.size)))
        field.cell = wp.vec2(*(np.array(self.size) / shape))
        field.base = -self.base
        return Uploaded(sent_struct(field, device), [heights, blocks, levels])


def _pyramid(heights: Tensor) -> tuple[Tensor, Tensor]:
    """Largest heights of blocks (2, n), right way up and upside down, and levels (top, 2)."""
    both = torch.stack((heights, -heights))
    values = max_pool2d(both, 3, stride=2, ceil_mode=True)  # of the corners of 2 x 2 cells
    parts, levels, begin = [values.flatten(1)], [(0, values.shape[2])], 0
    while parts[-1].shape[1] > 1:
        begin += parts[-1].shape[1]
        values = max_pool2d(values, 2, ceil_mode=True)
        parts.append(values.flatten(1))
        levels.append((begin, values.shape[2]))
    return torch.cat(parts, dim=1), torch.tensor(levels, dtype=torch.int32, device=heights.device)


def _size_of(value: Any) -> tuple[float, float]:
    """Lengths along x and y."""
    lengths = np.asarray(on_host(value))
    if lengths.shape != (2,):
        raise ValueError(f"size must be two lengths along x and y, got {value!r}")
    return length_of("size", lengths[0]), length_of("size", lengths[1])
