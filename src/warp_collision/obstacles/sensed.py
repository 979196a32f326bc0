"""What shapes that sensors see have in common: no formula, but something to walk over."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from warp_collision.formats.files import MAX_COORDINATE, existing_file
from warp_collision.formats.point_files import read_arrays
from warp_collision.kernels.mesh_record import Shape as ShapeKind
from warp_collision.messages import any_error_at, escaped
from warp_collision.obstacles.shapes import Triangles


class Uploaded:
    """A sensed shape on a device, alive as long as the obstacles that use it.

    Attributes:
        pointer: what the record of its obstacle points to.
    """

    def __init__(self, struct: Tensor, kept: list[Any]):
        """Keeps what kernels read.

        Args:
            struct: (n bytes,) uint8 on the device, which the record points to.
            kept: what that points to.
        """
        self.pointer = struct.data_ptr()
        self._kept = (struct, kept)


class Sensed(ABC):
    """A shape from a sensor, in a frame of its own.

    Its signed distance is 1-Lipschitz, and positive exactly outside: all certificates hold. Where
    it is negative it bounds the depth from below alone.

    Attributes:
        kind: its number for the kernels, and its name in files.
        arguments: of its constructor, which it has as attributes.
        grid_kernel: fills a grid of its distances, None if it needs none.
        is_its_mesh: whether `tessellate` is exactly the shape, so that files of meshes have a place
            for it.
        capacity: up to how many parts updates are written in place, so that no other slot shares
            its buffers; None where each update makes new ones.
    """

    kind: ClassVar[ShapeKind]
    arguments: ClassVar[tuple[str, ...]]
    grid_kernel: ClassVar[Any] = None
    is_its_mesh: ClassVar[bool] = False
    capacity: int | None = None

    @property
    @abstractmethod
    def bounds(self) -> np.ndarray:
        """(2, 3) lower and upper corner of the box around it [m]."""

    @property
    def key(self) -> str:
        """Equal for equal content with the same room."""
        digest = hashlib.blake2b(repr(self.capacity).encode(), digest_size=16)
        for name, array in self.arrays().items():
            digest.update(repr((name, array.shape, array.dtype.str)).encode())
            digest.update((np.packbits(array) if array.dtype == bool else array).tobytes())
        return f"{type(self).__name__} {digest.hexdigest()}"

    @property
    def grid_cells(self) -> int:
        """How many cells of a grid of distances it is worth."""
        return 0

    @property
    def n_bytes(self) -> int:
        """How much memory it takes at least where kernels read it."""
        return sum(array.nbytes for array in self.arrays().values())

    def successor(self, name: str, given: Any, at: Any) -> Sensed:
        """What takes its place, see `MeshWorld.update`; errors call the obstacle by its name."""
        if at is not None:
            raise ValueError(f"at must be None for {name!r}, a {type(self).__name__}")
        if not isinstance(given, type(self)):
            raise TypeError(
                f"{name!r} must be given a {type(self).__name__}, got {type(given).__name__}"
            )
        return given

    def is_equal(self, other: Sensed) -> bool:
        """Whether it is known to be the same again, so that nothing has to be computed anew."""
        return False

    @abstractmethod
    def upload(self, device: torch.device) -> Uploaded:
        """Puts on a device what kernels walk over."""

    def upload_after(self, before: Sensed, uploaded: Uploaded, device: torch.device) -> Uploaded:
        """The same, where another shape that it takes the place of is there already.

        Args:
            before: of the same class.
            uploaded: what that is on the device; nobody may write it.
            device: which.
        """
        return self.upload(device)

    @abstractmethod
    def tessellate(self) -> Triangles:
        """A mesh that contains it, for pictures and for programs that know triangles only."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file has of it: the arguments that make it again, but for those that are None."""
        given = {name: getattr(self, name) for name in self.arguments}
        return {name: np.asarray(value) for name, value in given.items() if value is not None}

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """What an .npz file has, whose arrays are the arguments, as `MeshWorld.save` writes them.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from warp_collision import VoxelGrid
            >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            ...     np.savez(file.name, occupied=np.ones((2, 2, 3), bool), voxel_size=0.1)
            ...     VoxelGrid.from_file(file.name)
            VoxelGrid(2 x 2 x 3 voxels of 0.1 m, 12 occupied, free outside)
        """
        path = existing_file(path)
        with any_error_at(escaped(str(path))):
            arrays: dict[str, Any] = read_arrays(path)
            # Text is an array without axes, too.
            texts = {name: str(value) for name, value in arrays.items() if value.dtype.kind == "U"}
            return cls(**arrays | texts)


def length_of(name: str, value: Any, *, may_be_zero: bool = False) -> float:
    """A length that is positive and below 1e9 [m]."""
    try:
        length = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}") from None
    if not 0.0 < length < MAX_COORDINATE and not (may_be_zero and length == 0.0):
        also = " or 0" if may_be_zero else ""
        raise ValueError(f"{name} must be positive and below 1e9{also}, got {length}")
    return length
