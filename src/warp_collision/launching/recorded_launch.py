"""Recorded launches: a kernel's arguments are wrapped once, and later calls patch pointers.

A launch through `wp.launch` spends most of its time on wrapping arguments. Nothing here checks
them: a wrong dtype or layout would read foreign memory, so the callers validate first.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
import warp as wp

from warp_collision.devices import n_multiprocessors, require_warp
from warp_collision.launching.warp_runtime import is_array, is_struct, quiet_warp

_UNKNOWN = object()
_MAX_INT32 = 2**31 - 1  # extents and strides are numbers of 32 bits
_WARP = 32  # threads of a GPU that run together


class SceneTables(NamedTuple):
    """Device tables of the obstacles of all envs, in the order of the kernels' `Scene` struct.

    Attributes:
        mesh_from_world: (n_envs, slots, 8) float32.
        enabled: (n_envs, slots) uint8.
        n_meshes: (n_envs,) int32.
        records: (n_envs, slots) int64 pointers to the records of the obstacles, 0: empty.
        padding: (n_envs, slots) float32, what each obstacle is inflated by [m], or None.
        ignored: (n_envs, slots, n_spheres) uint8, 1 where an obstacle is not checked against a
            sphere of a robot, or None.
        tree: (1,) int64 pointer to a tree over the world boxes of all slots, grouped by env, or 0;
            or None.
        field: bytes that begin with a `SceneField` for each env, of the signed distance of all
            of its obstacles, or None.
    """

    mesh_from_world: torch.Tensor
    enabled: torch.Tensor
    n_meshes: torch.Tensor
    records: torch.Tensor
    padding: torch.Tensor | None = None
    ignored: torch.Tensor | None = None
    tree: torch.Tensor | None = None
    field: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of envs, and of slots of each."""
        return self.enabled.shape[0], self.enabled.shape[1]

    def at(self, mesh_from_world: torch.Tensor) -> SceneTables:
        """The same obstacles at other poses, (n_envs, slots, 8)."""
        return self._replace(mesh_from_world=mesh_from_world, field=None)

    def ignoring(self, ignored: torch.Tensor | None) -> SceneTables:
        """The same obstacles, checked against other spheres; see the attribute."""
        return self._replace(ignored=ignored)

    def rearranged(
        self,
        arrange: Callable[[torch.Tensor], torch.Tensor],
        mesh_from_world: torch.Tensor,
        n_meshes: torch.Tensor,
    ) -> SceneTables:
        """Tables of other slots at other poses, without a tree.

        Args:
            arrange: makes of a table (n_envs, slots, ...) that of the other slots.
            mesh_from_world: of these.
            n_meshes: of their envs.
        """
        by_slot = ("enabled", "records", "padding", "ignored")
        known = {name: table for name in by_slot if (table := getattr(self, name)) is not None}
        others = {name: arrange(table) for name, table in known.items()}
        others |= {"mesh_from_world": mesh_from_world, "n_meshes": n_meshes}
        return self._replace(tree=None, field=None, **others)

    def values(self) -> tuple[float, ...]:
        """See `StructTables`."""
        rows, enabled, n_meshes, records, padding, ignored, tree, field = self
        n_envs, n_slots = enabled.shape
        return (  # written out: every launch asks
            rows.data_ptr(),
            enabled.data_ptr(),
            n_meshes.data_ptr(),
            records.data_ptr(),
            0 if padding is None else padding.data_ptr(),
            0 if ignored is None else ignored.data_ptr(),
            0 if tree is None else tree.data_ptr(),
            0 if field is None else field.data_ptr(),
            n_envs,
            n_slots,
            0 if ignored is None else ignored.shape[2],
        )


class StructTables(Protocol):
    """What a kernel's struct points to, as `SceneTables`."""

    def values(self) -> tuple[float, ...]:
        """The fields of the struct in their order: addresses, which may change, and numbers."""
        ...


Argument = torch.Tensor | StructTables | None


# What a launch is recorded with is unknown while it is written: an interrupt may leave it half
# written, and then all of it is written by the next launch.


class _ArraySlot:
    """One array argument of a recorded launch."""

    def __init__(self, descriptor: Any, kind: Any):
        self._descriptor = descriptor
        self._itemsize = wp.types.type_size_in_bytes(kind.dtype)
        self._nothing = (0,) * kind.ndim
        self._shape: tuple[int, ...] | None = None
        self.is_nothing = False  # whether it is known to point to nothing

    def patch(self, tensor: torch.Tensor | None) -> None:
        if tensor is not None:
            self._descriptor.data = tensor.data_ptr()
            if tensor.shape == self._shape:
                return
        else:
            self._descriptor.data = 0
        self._shape, self.is_nothing = None, False
        shape = self._nothing if tensor is None else self._in_warp(tensor)
        stride = self._itemsize
        for axis in reversed(range(len(self._nothing))):
            if shape[axis] > _MAX_INT32 or (stride > _MAX_INT32 and shape[axis] > 1):
                raise ValueError(
                    f"a row of shape {tuple(shape[axis:])} must take less than 2 GiB, as kernels "
                    "count in 32 bits; split it"
                )
            self._descriptor.shape[axis] = shape[axis]
            self._descriptor.strides[axis] = min(stride, _MAX_INT32)
            stride *= shape[axis]
        self._shape = None if tensor is None else tensor.shape
        self.is_nothing = tensor is None

    def repoint(self, tensor: torch.Tensor) -> None:
        """As `patch`, to a tensor of the same shape."""
        self._descriptor.data = tensor.data_ptr()

    def _in_warp(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """Extents of the array: all further axes of a tensor count to the last one.

        Vectors and matrices are the trailing axes of a tensor, and one item in Warp.
        """
        leading = tuple(tensor.shape[: len(self._nothing) - 1])
        n_items = tensor.numel() * tensor.itemsize // self._itemsize
        return (*leading, n_items // max(1, math.prod(leading)))


class _StructSlot:
    """The struct argument of a recorded launch: the tables of a scene or a robot."""

    is_nothing = False

    def __init__(self, descriptor: Any):
        self._descriptor = descriptor
        self._names = [name for name, *_ in descriptor._fields_]
        self._values: tuple[float, ...] = ()
        self._tables: StructTables | None = None  # that were given to `repoint` last
        self._places: list[tuple[Callable[[], int], int]] = []  # where their tensors were

    def patch(self, tables: StructTables) -> None:
        # Tables stay the same tensors, but torch moves their memory when they are shared with
        # another process.
        values = tables.values()
        if values != self._values:
            self._values = ()
            for name, value in zip(self._names, values, strict=True):
                setattr(self._descriptor, name, value)
            self._values = values

    def repoint(self, tables: StructTables) -> None:
        """As `patch`, sooner where they are those of the last call: only their places may differ.

        Keeps them.
        """
        if tables is self._tables:
            for address_of, address in self._places:
                if address_of() != address:
                    break
            else:
                return
        self._tables = None
        assert isinstance(tables, tuple)
        tensors = [part for part in tables if isinstance(part, torch.Tensor)]
        # Before they are patched: what moves meanwhile is noticed next time.
        self._places = [(tensor.data_ptr, tensor.data_ptr()) for tensor in tensors]
        self.patch(tables)
        self._tables = tables


def threads_per_block(n_threads: int, most: int, n_multiprocessors: int) -> int:
    """The largest blocks of a launch that leave no multiprocessor of a GPU without one.

    Few threads in large blocks would have few multiprocessors at work.

    Args:
        n_threads: of the launch.
        most: what the kernel is compiled for.
        n_multiprocessors: of the GPU.

    Example:
        >>> from warp_collision.launching.recorded_launch import threads_per_block
        >>> [threads_per_block(n, 256, 132) for n in (1920, 8448, 20_000, 1_000_000)]
        [32, 64, 128, 256]
    """
    threads = most
    while threads > _WARP and n_threads < threads * n_multiprocessors:
        threads //= 2
    return threads


def threads_for_each(n_items: int, n_multiprocessors: int) -> int:
    """How many threads of a warp share each of some large items, so that a GPU is full of them.

    Args:
        n_items: configurations or motions, of a kernel with 16 warps on a multiprocessor.
        n_multiprocessors: of the GPU.

    Example:
        >>> from warp_collision.launching.recorded_launch import threads_for_each
        >>> [threads_for_each(n, 132) for n in (1, 2112, 2113, 20_000, 65_536)]
        [32, 32, 16, 2, 1]
    """
    threads = _WARP
    while threads > 1 and n_items * threads > 16 * _WARP * n_multiprocessors:
        threads //= 2
    return threads


class Command:
    """A launch of one kernel on one device, recorded once.

    Not safe for use from two threads; each has its own, see `launch`.
    """

    def __init__(self, kernel: Any, device: str):
        dim = (1,) * _launch_ndim(kernel)
        with quiet_warp():
            require_warp(torch.device(device))
            arguments = [_placeholder(variable.type, device) for variable in kernel.adj.args]
            self._launch: Any = wp.launch(
                kernel, dim, arguments, device=device, record_cmd=True, **_block(kernel, device)
            )
        self._dim: tuple[int, ...] = ()
        self._n_multiprocessors = n_multiprocessors(torch.device(device))
        self._first: Any = None
        self._begin: Any = None
        self._slots: list[Any] = []
        self._device: Any = self._launch.device
        self._is_cpu = device == "cpu"
        self._most_threads = 1 if self._is_cpu else self._launch.block_dim  # of a block
        self._call = _DirectCall(self._launch) if _knows_calls(self._launch) else None
        parameters = self._call.parameters() if self._call else self._launch.params[1:]
        for variable, parameter in zip(kernel.adj.args, parameters, strict=True):
            if is_array(variable.type):
                self._slots.append(_ArraySlot(parameter, variable.type))
            elif is_struct(variable.type):
                self._slots.append(_StructSlot(parameter))
            else:
                self._first = parameter

    def run(
        self,
        dim: tuple[int, ...],
        arguments: tuple[Argument, ...],
        stream: wp.Stream | None = None,
        first: tuple[int, ...] | None = None,
    ) -> None:
        """Launches the kernel.

        Args:
            dim: extents of the launch.
            arguments: of the kernel, but for the index at which it begins.
            stream: on which CUDA stream.
            first: the index at which it begins, where not at the first of all; a kernel that has no
                such parameter always begins there.
        """
        if self._is_cpu and self._device.is_capturing:
            raise RuntimeError("launches on the CPU cannot be captured: leave wp.ScopedCapture")
        for slot, argument in zip(self._slots, arguments, strict=True):
            if argument is not None or not slot.is_nothing:
                slot.patch(argument)
        if first != self._begin and self._first is not None:
            self._begin = _UNKNOWN
            for axis in range(len(dim)):
                self._first[axis] = first[axis] if first else 0
            self._begin = first
        if dim != self._dim:
            self._dim = ()
            if self._most_threads > _WARP:
                self._launch.block_dim = threads_per_block(
                    math.prod(dim), self._most_threads, self._n_multiprocessors
                )
            self._launch.set_dim(dim)
            if self._call is not None:
                self._call.refresh()
            self._dim = dim
        self.rerun(stream)

    def repoint(self, index: int) -> Callable[[Any], None]:
        """Replaces an argument of the recorded launch by another one of the same shape."""
        return self._slots[index].repoint

    def rerun(self, stream: wp.Stream | None = None) -> None:
        """The recorded launch again."""
        if self._call is not None:
            self._call.function(*self._call.operands)
        else:
            self._launch.launch(stream)


class _DirectCall:
    """The call of a kernel on the CPU: a function of the bounds of the launch and its arguments.

    `Launch.launch` does the same, but copies the arguments into a new structure each time, which
    takes longer than all else here.
    """

    def __init__(self, launch: Any):
        self._launch = launch
        self._labels = [variable.label for variable in launch.kernel.adj.args]
        values = launch.params[1:]
        kinds = [(label, type(value)) for label, value in zip(self._labels, values, strict=True)]
        self._arguments = type("Arguments", (ctypes.Structure,), {"_fields_": kinds})(*values)
        self.function = launch.hooks.forward
        self.operands: tuple[Any, Any]
        self.refresh()

    def parameters(self) -> list[Any]:
        """The arguments of the kernel, within the structure."""
        return [getattr(self._arguments, label) for label in self._labels]

    def refresh(self) -> None:
        """Takes notice of new bounds."""
        self.operands = ctypes.byref(self._launch.bounds), ctypes.byref(self._arguments)


def _knows_calls(launch: Any) -> bool:
    """Whether this version of Warp is known to call this kernel as `_DirectCall` does."""
    return launch.device.is_cpu and launch.block_dim == 1 and wp.__version__.startswith("1.19.")


def _block(kernel: Any, device: str) -> dict[str, Any]:
    """The size of blocks on a GPU, an option of the kernel's module."""
    return {} if device == "cpu" else {"block_dim": kernel.module.options["block_dim"]}


def _placeholder(kind: Any, device: str) -> Any:
    """An argument for recording; without memory, which may not be allocated in a capture."""
    if is_array(kind):
        return wp.empty((0,) * kind.ndim, dtype=kind.dtype, device=device)
    return kind()


def _launch_ndim(kernel: Any) -> int:
    """As many axes as the index at which a launch begins, or as the last output."""
    kinds = [variable.type for variable in kernel.adj.args]
    begins = [len(kind()) for kind in kinds if not is_array(kind) and not is_struct(kind)]
    return begins[0] if begins else kinds[-1].ndim
