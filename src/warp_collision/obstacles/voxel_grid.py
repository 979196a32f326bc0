"""Voxel grids as obstacles: occupied, free and unseen cells of a map, and distances of others."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import torch
import warp as wp

from warp_collision.devices import CPU, sent
from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.kernels.esdf_grid import EsdfMap
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.mesh_record import Shape as ShapeKind
from warp_collision.kernels.voxel_distance import VoxelMap
from warp_collision.launching.structs import sent_struct
from warp_collision.obstacles.part_tree import PartBuffers
from warp_collision.obstacles.sensed import Sensed, Uploaded, length_of
from warp_collision.obstacles.shapes import Triangles, box_around
from warp_collision.obstacles.units import warn_of_extent
from warp_collision.obstacles.voxel_tables import Faces, faces_of, squares_after, squares_of
from warp_collision.validate import float64_array, on_host

Unknown = Literal["occupied", "free"]
Outside = Literal["free", "occupied", "unknown"]

MAX_CELLS = 2_000_000_000
# A face that nothing comes near, of a grid that has none [m]; of a free one no search reaches it.
_NOWHERE = 1e8
_UNREACHED = 16.0 * float(FAR)
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
    arguments = ("values", "voxel_size", "error", "origin")

    def __init__(self, values: Any, voxel_size: float, *, error: float, origin: Any = (0, 0, 0)):
        """See `VoxelGrid.from_esdf`."""
        self.voxel_size = length_of("voxel_size", voxel_size)
        self.error = length_of("error", error, may_be_zero=True)
        self.origin = _corner_of(origin)
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
        _require_extent(self.origin, self.voxel_size, array.shape)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape))
        return f"EsdfGrid({shape} voxels of {self.voxel_size:.3g} m, error {self.error:.3g} m)"

    @property
    def bounds(self) -> np.ndarray:
        """(2, 3) corners of the grid [m]."""
        size = self.voxel_size * np.array(self.values.shape)
        return np.stack((self.origin, self.origin + size))

    def tessellate(self) -> Triangles:
        """The box of the grid."""
        return box_around(self.bounds)

    def upload(self, device: torch.device) -> Uploaded:
        """Copies the values."""
        values = torch.from_numpy(np.ascontiguousarray(self.values.T)).to(device)
        grid = EsdfMap()
        grid.values, grid.is_half = values.data_ptr(), values.dtype == torch.float16
        grid.origin, grid.cell = wp.vec3(*(self.origin + 0.5 * self.voxel_size)), self.voxel_size
        grid.shape = wp.vec3i(*self.values.shape)
        grid.slack = self.error + _HALF_DIAGONAL * self.voxel_size
        return Uploaded(sent_struct(grid, device), [values])


class VoxelGrid(Sensed):
    """A grid of cubic voxels, the union of whose occupied boxes is an obstacle.

    The signed distance is exactly that of the union, inside and outside: not interpolated, and not
    that of the centers. A grid of squared distances bounds it by one read, and where that does not
    decide, the faces between occupied and free voxels do.

    Unobserved voxels are occupied unless `unknown` makes them free. `seen` and `unseen` are the two
    parts of a grid; each can be added under a name of its own.

    Attributes:
        occupied: (nx, ny, nz) bool, read-only; also where unknown voxels count as such.
        unknown_mask: (nx, ny, nz) bool, read-only, or None.
        voxel_size: edge of a voxel [m].
        origin: (3,) lower corner of the grid [m].
        unknown: what unknown voxels count as.
        outside: what is beyond the grid.

    Example:
        >>> import numpy as np, torch
        >>> from warp_collision import MeshWorld, VoxelGrid, signed_distance
        >>> occupied = np.zeros((10, 10, 10), bool)
        >>> occupied[4:6, 4:6, 0:2] = True
        >>> world = MeshWorld()
        >>> world.add("map", VoxelGrid(occupied, voxel_size=0.05, origin=(-0.25, -0.25, 0.0)))
        0
        >>> point = torch.tensor([[0.0, 0.0, 0.3]])
        >>> round(signed_distance(point, world).distance.item(), 4)
        0.2
    """

    kind = ShapeKind.VOXEL_GRID
    arguments = ("occupied", "voxel_size", "origin", "unknown", "outside", "unknown_mask")

    def __init__(
        self,
        occupied: Any,
        voxel_size: float,
        origin: Any = (0.0, 0.0, 0.0),
        unknown_mask: Any = None,
        unknown: Unknown = "occupied",
        outside: Outside = "free",
    ):
        """Copies a grid.

        Args:
            occupied: (nx, ny, nz) bool or integers, array or tensor: what is not 0 is occupied.
            voxel_size: edge of a voxel [m].
            origin: lower corner of the grid, not the center of its first voxel [m].
            unknown_mask: (nx, ny, nz) likewise: voxels that were never seen.
            unknown: what they count as, "occupied" or "free".
            outside: what is beyond the grid: "free", "occupied" or "unknown", which counts as
                unknown voxels do.

        Raises:
            TypeError: the grid holds no bools or integers.
            ValueError: another shape, an edge that is not positive, more than 2e9 voxels.
        """
        self.voxel_size = length_of("voxel_size", voxel_size)
        self.origin = _corner_of(origin)
        for name, value, known in (("unknown", unknown, Unknown), ("outside", outside, Outside)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {get_args(known)}, got {value!r}")
        self.unknown: Unknown = unknown
        self.outside: Outside = outside
        given = _mask("occupied", occupied)
        mask = None if unknown_mask is None else _mask("unknown_mask", unknown_mask)
        if mask is not None and mask.shape != given.shape:
            raise ValueError(
                f"unknown_mask must have the shape {given.shape} of occupied, got {mask.shape}"
            )
        _require_extent(self.origin, self.voxel_size, given.shape)
        if mask is not None:
            given = given | mask if unknown == "occupied" else given & ~mask
            mask.flags.writeable = False
        self.occupied, self.unknown_mask = given, mask
        self.occupied.flags.writeable = False

    @classmethod
    def from_esdf(
        cls, values: Any, voxel_size: float, *, error: float, origin: Any = (0.0, 0.0, 0.0)
    ) -> EsdfGrid:
        """A grid of signed distances that another system computed, as an obstacle.

        Args:
            values: (nx, ny, nz) signed distances at the centers of the voxels, positive outside
                [m]; truncated ones too, as they are below the true ones. Those of float16 stay so,
                on the device and in files.
            voxel_size: edge of a voxel [m].
            error: by how much a value may be above the true signed distance [m]. Distances between
                centers of occupied voxels are off by half the diagonal of a voxel, 0.87 of its
                edge. Rounding to float16 or bfloat16 is accounted for beside it.
            origin: lower corner of the grid [m]; beyond the grid there is nothing.

        Raises:
            TypeError: no floating point numbers.
            ValueError: another shape, NaN, or values that no distances have: neighbours that differ
                by more than their distance and twice the error.

        Example:
            >>> import numpy as np, torch
            >>> from warp_collision import MeshWorld, VoxelGrid, signed_distance
            >>> centers = 0.1 * (np.indices((20, 20, 20)) + 0.5)
            >>> ball = np.linalg.norm(centers - 1.0, axis=0) - 0.3  # in the middle of the grid
            >>> world = MeshWorld()
            >>> world.add("map", VoxelGrid.from_esdf(ball.astype(np.float32), 0.1, error=1e-6))
            0
            >>> found = signed_distance(torch.tensor([[1.0, 1.0, 1.8]]), world).distance
            >>> 0.4 < found.item() < 0.5
            True
        """
        return EsdfGrid(values, voxel_size, error=error, origin=origin)

    def successor(self, name: str, given: Any, at: Any) -> VoxelGrid:
        """A grid of the same size, or this one with a block of voxels in the place of others."""
        if isinstance(given, VoxelGrid):
            block, unknown = given.occupied, given.unknown_mask
        else:
            block, unknown = _mask("occupied", given), None
        if at is None and isinstance(given, VoxelGrid) and block.shape == self.occupied.shape:
            return given
        begin = np.zeros(3, int) if at is None else np.array(at)
        if begin.shape != (3,) or begin.dtype.kind not in "iu":
            raise ValueError(f"at must be three indices of a voxel, got {at!r}")
        end = begin + block.shape
        shape = np.array(self.occupied.shape)
        if (begin < 0).any() or (end > shape).any() or (at is None and (end != shape).any()):
            rule = f"the shape {tuple(shape.tolist())}" if at is None else "a block within it"
            raise ValueError(f"{name!r} must be given {rule}, got {block.shape} at {at}")
        place = tuple(slice(a, b) for a, b in zip(begin, end, strict=True))
        occupied = self.occupied.copy()
        occupied[place] = block
        mask, known = None, self.unknown_mask
        if known is not None or unknown is not None:
            mask = np.zeros_like(occupied) if known is None else known.copy()
            mask[place] = False if unknown is None else unknown
        return VoxelGrid(occupied, self.voxel_size, self.origin, mask, self.unknown, self.outside)

    def is_equal(self, other: Sensed) -> bool:
        """Whether all voxels are the same, as those of maps mostly are from frame to frame."""
        if not isinstance(other, VoxelGrid):
            return False
        pairs = [(getattr(self, name), getattr(other, name)) for name in self.arguments]
        return all(
            (a is None) == (b is None) and np.array_equal(a, b)
            for a, b in pairs  # pyright: ignore
        )

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.occupied.shape))
        parts = [f"{shape} voxels of {self.voxel_size:.3g} m", f"{self.n_occupied} occupied"]
        if self.unknown_mask is not None:
            parts.append(f"{int(self.unknown_mask.sum())} of them unknown")
            if self.unknown == "free":
                parts[-1] = f"{int(self.unknown_mask.sum())} unknown taken for free"
        return f"VoxelGrid({', '.join(parts)}, {self.outside} outside)"

    @property
    def n_occupied(self) -> int:
        """How many voxels are occupied, or count as such."""
        return int(np.count_nonzero(self.occupied))

    @property
    def seen(self) -> VoxelGrid:
        """The grid of the voxels that were seen to be occupied alone."""
        known = self.occupied if self.unknown_mask is None else self.occupied & ~self.unknown_mask
        outside = "free" if self.outside == "unknown" else self.outside
        return VoxelGrid(known, self.voxel_size, self.origin, outside=outside)

    @property
    def unseen(self) -> VoxelGrid:
        """The grid of what was never seen alone, as an obstacle."""
        nothing = np.zeros_like(self.occupied)
        mask = nothing if self.unknown_mask is None else self.unknown_mask
        outside = "unknown" if self.outside == "unknown" else "free"
        return VoxelGrid(nothing, self.voxel_size, self.origin, mask, outside=outside)

    @property
    def is_unseen(self) -> bool:
        """Whether nothing of what is occupied was seen to be."""
        mask = self.unknown_mask
        known_outside = self.outside == "occupied"
        return mask is not None and not known_outside and not (self.occupied & ~mask).any()

    def taken(self, unknown: Unknown) -> VoxelGrid:
        """The grid where what was never seen counts as occupied, or as free.

        Example:
            >>> import numpy as np
            >>> from warp_collision import VoxelGrid
            >>> nothing, never = np.zeros((2, 2, 2), bool), np.ones((2, 2, 2), bool)
            >>> VoxelGrid(nothing, 0.1, unknown_mask=never).taken("free").n_occupied
            0
        """
        mask, place = self.unknown_mask, (self.voxel_size, self.origin)
        return VoxelGrid(self.occupied, *place, mask, unknown, self.outside)

    @property
    def _is_solid_outside(self) -> bool:
        return self.outside == "occupied" or (self.outside, self.unknown) == ("unknown", "occupied")

    @property
    def n_bytes(self) -> int:
        """Of the squares of distances, and those of one axis less while they are found."""
        return 4 * self.occupied.size

    @property
    def bounds(self) -> np.ndarray:
        """(2, 3) corners of the box around the occupied voxels [m]."""
        if self._is_solid_outside:
            return np.array([[-FAR] * 3, [FAR] * 3])
        ranges = _filled_ranges(self.occupied)
        if ranges is None:
            return np.array([[_NOWHERE] * 3, [1.001 * _NOWHERE] * 3])
        ends = [(filled.start, filled.stop) for filled in ranges]
        return self.origin + self.voxel_size * np.array(ends, np.float64).T

    def tessellate(self) -> Triangles:
        """The faces of the occupied voxels, exactly; where all outside is, of the box around."""
        faces = self.faces()
        low, high, sign = faces[:, 0, :3], faces[:, 1, :3], faces[:, 1, 3]
        if self._is_solid_outside or not self.n_occupied:
            bounds = np.clip(self.bounds, -1.001 * _NOWHERE, 1.001 * _NOWHERE)
            return box_around(bounds)
        axis = (low == high).argmax(axis=1)
        rows, ahead = np.arange(len(faces)), (axis + 1) % 3
        corners = np.stack((low, low, high, high), axis=1)
        corners[rows, 1, ahead] = high[rows, ahead]
        corners[rows, 3, ahead] = low[rows, ahead]
        corners[sign < 0.0] = corners[sign < 0.0][:, ::-1]
        halves = np.array([[0, 1, 2], [0, 2, 3]])
        triangles = (4 * rows[:, None, None] + halves).reshape(-1, 3)
        return Triangles(corners.reshape(-1, 3).astype(np.float64), triangles)

    def faces(self) -> np.ndarray:
        """(n, 2, 4) float32 rectangles between occupied and free voxels, as `VoxelMap` has them.

        Runs of faces in a plane are one, and runs of such runs. There is at least one: without any,
        one that no search reaches.
        """
        return self._with_one(self._faces(self._solid_on(CPU))).numpy()

    def _solid_on(self, device: torch.device) -> torch.Tensor:
        """(nz, ny, nx) uint8 on a device."""
        solid = torch.from_numpy(np.array(self.occupied.T, np.uint8, order="C"))
        return sent(solid, device)

    def _faces(self, solid: torch.Tensor, *before: Any) -> Faces:
        return faces_of(solid, self._is_solid_outside, self.origin, self.voxel_size, *before)

    def _with_one(self, faces: Faces) -> torch.Tensor:
        if len(faces.rectangles):
            return faces.rectangles
        nowhere = _NOWHERE if self._is_solid_outside else _UNREACHED
        corner = torch.tensor([nowhere, nowhere, nowhere, 0.0], device=faces.rectangles.device)
        return corner.expand(1, 2, 4).contiguous()

    def upload(self, device: torch.device) -> Uploaded:
        """Transforms distances, and builds the tree of the faces."""
        solid = self._solid_on(device)
        squares = squares_of(solid, self._is_solid_outside)
        return self._uploaded(squares, self._faces(solid))

    def upload_after(self, before: Sensed, uploaded: Uploaded, device: torch.device) -> Uploaded:
        """The same from the tables of another grid, of which only what changed is computed."""
        assert isinstance(before, VoxelGrid)
        assert isinstance(uploaded, VoxelTables)
        places = [(g.occupied.shape, *g.origin, g.voxel_size) for g in (before, self)]
        if places[0] != places[1] or before._is_solid_outside != self._is_solid_outside:
            return self.upload(device)
        ranges = _filled_ranges(before.occupied != self.occupied)
        if ranges is None:
            return uploaded
        solid, changed = self._solid_on(device), ranges[::-1]
        squares = squares_after(uploaded.squares, solid, self._is_solid_outside, changed)
        return self._uploaded(squares, self._faces(solid, uploaded.faces, changed))

    def _uploaded(self, squares: torch.Tensor, faces: Faces) -> VoxelTables:
        rectangles = self._with_one(faces)
        tree = PartBuffers(rectangles, len(rectangles))
        voxels = VoxelMap()
        voxels.faces, voxels.squares = tree.tree, squares.data_ptr()
        voxels.origin, voxels.cell = wp.vec3(*self.origin), self.voxel_size
        voxels.shape = wp.vec3i(*self.occupied.shape)
        voxels.outside = -1.0 if self._is_solid_outside else 1.0
        return VoxelTables(sent_struct(voxels, squares.device), tree, squares, faces)


class VoxelTables(Uploaded):
    """A grid on a device.

    Attributes:
        squares: see `squares_of`.
        faces: see `faces_of`.
    """

    def __init__(
        self, struct: torch.Tensor, tree: PartBuffers, squares: torch.Tensor, faces: Faces
    ):
        """Keeps what kernels read, and what the tables of a changed grid are made of."""
        super().__init__(struct, [tree])
        self.squares, self.faces = squares, faces


def _filled_ranges(mask: np.ndarray) -> list[range] | None:
    """Ranges (3,) of indices x, y, z that all True of a mask is in, None where nothing is."""
    ranges = []
    for axis in range(3):
        others = tuple(other for other in range(3) if other != axis)
        filled = np.flatnonzero(mask.any(axis=others))
        if not len(filled):
            return None
        ranges.append(range(int(filled[0]), int(filled[-1]) + 1))
    return ranges


def _corner_of(value: Any) -> np.ndarray:
    """The lower corner (3,) of a grid, float64 and read-only."""
    corner = float64_array("origin", value)
    if corner.shape != (3,) or not np.isfinite(corner).all():
        raise ValueError(f"origin must be three finite numbers, got {value!r}")
    corner.flags.writeable = False
    return corner


def _require_extent(origin: np.ndarray, edge: float, shape: tuple[int, ...]) -> None:
    """Requires a grid that ends in range, and warns of one that may be in millimetres."""
    reach = np.abs(origin) + edge * np.array(shape)
    if reach.max() >= MAX_COORDINATE:
        raise ValueError(f"the grid must end below 1e9, got {reach.max():.3g}")
    warn_of_extent("voxel_size", "a grid", [edge * n for n in shape])


def _mask(name: str, value: Any) -> np.ndarray:
    """A copy as bools (nx, ny, nz)."""
    array = np.asarray(on_host(value))
    if array.dtype.kind not in "biu":
        raise TypeError(f"{name} must be bools or integers, got {array.dtype}")
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"{name} must have shape (nx, ny, nz), got {array.shape}")
    if array.size > MAX_CELLS:
        raise ValueError(f"{name} must have at most {MAX_CELLS:.0e} voxels, got {array.size}")
    return np.array(array != 0)


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
