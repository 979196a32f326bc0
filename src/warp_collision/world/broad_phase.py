"""The broad phase: a tree over the bounding boxes of all obstacles in the world."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import (
    CPU,
    Event,
    is_capturing,
    is_gpu,
    record_event,
    synchronize,
    wait_event,
)
from warp_collision.kernels.box_blocks import BLOCK_BYTES, FEW
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.world_boxes import find_roots, world_boxes
from warp_collision.launching.deferred_free import retire
from warp_collision.launching.launch import launch, warp_stream, with_memory
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.launching.warp_runtime import quiet_warp


class Snapshot:
    """What some tables hold at a time.

    Versions show what torch writes, even if it is the same again. On the CPU bytes show what is
    written past torch, as through NumPy or `.data`. Bytes are equal where numbers are NaN, and
    several times faster to compare than arrays.
    """

    def __init__(self, tables: Sequence[Tensor]):
        """Copies the content of tables on the CPU."""
        self._tables = tuple(tables)
        self._versions = [(table, table._version) for table in tables]
        self._known = []
        for table in tables:
            # Views and methods are kept: making them takes longer than all else here.
            array: Any = table.numpy() if table.device == CPU else None
            view = None if array is None else memoryview(array)
            content = None if view is None else bytearray(view)  # compares itself without a copy
            self._known.append((table.data_ptr, table.data_ptr(), view, content))

    def is_of(self, tables: Sequence[Tensor]) -> bool:
        """Whether it is of these tables, and they have not been written or moved since."""
        if tables is not self._tables:  # mostly it is
            if len(tables) != len(self._tables) or not all(map(is_, tables, self._tables)):
                return False
        for table, version in self._versions:
            if table._version != version:
                return False
        for address_of, address, view, content in self._known:
            # The place first: the view of a table that has moved must not be read.
            if address_of() != address or content != view:
                return False
        return True

    def settle(self) -> None:
        """On the CPU content alone decides from now on, unless torch has written meanwhile.

        To be called when what depends on the tables is computed.
        """
        if self.is_of(self._tables) and self._known[0][2] is not None:
            self._versions = []


class BroadPhase:
    """The tree over one set of tables; built on the host, refit on the device.

    Attributes:
        tree: (1,) int64 on the device, pointer to the id of Warp's tree and its roots by env, or 0.
            It is replaced in place, in one word: launches in progress read it.
        is_captured: a graph refits this tree, so that it must stay the one that the graph reads.
        moved_by_graphs: graphs move meshes, which no tensor version shows: every query refits it.
    """

    def __init__(self, device: torch.device, *, moved_by_graphs: bool = False):
        self._device, self._is_on_cpu = device, device == CPU
        self._tree: wp.Bvh | None = None
        self._boxes: tuple[Tensor, Tensor] | None = None
        # On the CPU: (n_envs, n_blocks, 6, 8) the boxes of the first slots once more.
        self._blocks: Tensor | None = None
        self._content: Snapshot | None = None  # of what the boxes were computed from
        self._read: tuple[SceneTables, tuple[Tensor, ...]] | None = None  # see `_sources`
        self._is_fit = False  # whether the tree is of these boxes
        self._written: Event | None = None  # the latest refit
        self.is_captured = False
        self.moved_by_graphs = moved_by_graphs
        with torch.inference_mode(False):
            self.tree = torch.zeros(1, dtype=torch.int64, device=device)
        # The tensor keeps the trees alive: this one, and those that a graph may still refit.
        self._kept: list[tuple[wp.Bvh, Tensor]] = []
        self.tree.untyped_storage().kept = self._kept  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def fitted(self) -> object:
        """On the CPU another object whenever the boxes are computed anew; None without a tree."""
        return self._content if self._is_on_cpu and self._tree is not None else None

    @property
    def boxes(self) -> tuple[Tensor, Tensor]:
        """(n_envs, slots, 3) lower and upper corners of the world boxes that the tree is of [m]."""
        assert self._boxes is not None
        return self._boxes

    def forget(self) -> None:
        """Drops the tree, as the meshes have changed; the next query builds another one."""
        if self._tree is None and (self.is_captured or not self._kept):
            return
        # In this order: it may be interrupted anywhere, and is then called again.
        self.tree.zero_()
        retire([self._boxes, *([] if self.is_captured else self._kept)], self._device)
        if not self.is_captured:
            self._kept.clear()
        self._tree = self._boxes = None

    def is_fresh(self, tables: SceneTables) -> bool:
        """Whether the tree fits the present poses, on a CPU; on a GPU streams have to wait."""
        if self._tree is None or not self._is_on_cpu or not self._is_fit:
            return False
        content = self._content  # after the flag, see `_is_outdated`
        return content is not None and content.is_of(self._sources(tables))

    def make_fresh(self, tables: SceneTables) -> bool:
        """Builds or refits the tree for the present poses; whether there is one."""
        if self._tree is None:
            if is_capturing(self._device):
                return False  # building waits for the device; queries look at every mesh instead
            self._build(tables)
        elif is_capturing(self._device) or self.moved_by_graphs or self._is_outdated(tables):
            # A graph refits it in each replay: poses may have been written since.
            if self._written is not None and not is_capturing(self._device):
                wait_event(self._device, self._written)
            self._fit(tables)
        elif self._written is not None:
            # The caller orders its streams after writes of poses, not after the refit of the tree.
            wait_event(self._device, self._written)
        return True

    def refit(self, tables: SceneTables) -> None:
        """Fits the tree, if there is one, to poses that were written, on the device."""
        self.moved_by_graphs |= is_capturing(self._device)
        if self._tree is not None:
            self._fit(tables)

    def _is_outdated(self, tables: SceneTables) -> bool:
        """Whether tables were written."""
        # In this order: another thread that computes boxes says first that they do not fit.
        content = self._content
        return not self._is_fit or content is None or not content.is_of(self._sources(tables))

    def _fit(self, tables: SceneTables) -> None:
        assert self._tree is not None
        self._compute_boxes(tables)
        with quiet_warp(), warp_stream(self._device):
            self._tree.refit()
        if is_capturing(self._device):
            self.is_captured = True  # and nothing has run yet
            return
        self._boxes_are_computed()
        if is_gpu(self._device):
            self._written = record_event(self._device)

    def _build(self, tables: SceneTables) -> None:
        n_envs, slots = tables.shape
        empty = torch.empty((n_envs, slots, 3), dtype=torch.float32, device=self._device)
        self._boxes = (empty, torch.empty_like(empty))
        words = self._allocate_words(n_envs, slots)
        self._compute_boxes(tables)
        groups = torch.arange(n_envs, dtype=torch.int32, device=self._device)
        groups = groups.repeat_interleave(slots)
        tree = _build_tree(*self._boxes, groups)
        words[0] = int(tree.id)
        launch(find_roots, (n_envs,), words, device=self._device)
        self._kept.append((tree, words))
        self.tree.fill_(words.data_ptr())
        synchronize(self._device)
        self._boxes_are_computed()
        self._tree = tree

    def _allocate_words(self, n_envs: int, slots: int) -> Tensor:
        """What `tree` points to: the id of Warp's tree, its roots by env, and blocks of boxes."""
        n_blocks = n_envs * -(-min(slots, int(FEW)) // 8) if self._device == CPU else 0
        size = 1 + n_envs + n_blocks * int(BLOCK_BYTES) // 8
        words = torch.zeros(size, dtype=torch.int64, device=self._device)
        if n_blocks:
            self._blocks = words[1 + n_envs :].view(torch.float32).view(n_envs, -1, 6, 8)
        return words

    def _boxes_are_computed(self) -> None:
        assert self._content is not None
        self._content.settle()
        self._is_fit = True

    def _sources(self, tables: SceneTables) -> tuple[Tensor, ...]:
        """The tables that the boxes depend on, in the same tuple as long as they are the same."""
        known = self._read
        if known is None or known[0] is not tables:
            read = tables.mesh_from_world, tables.records, tables.n_meshes, tables.padding
            known = tables, tuple(table for table in read if table is not None)
            self._read = known
        return known[1]

    def _compute_boxes(self, tables: SceneTables) -> None:
        assert self._boxes is not None
        self._is_fit = False  # until the refit is launched
        # Before the boxes: what another thread writes meanwhile is noticed next time.
        self._content = Snapshot(self._sources(tables))
        corners = self._blocks, *self._boxes
        launch(world_boxes, tables.shape, tables, *corners, device=self._device)


def _build_tree(lower: Tensor, upper: Tensor, groups: Tensor) -> wp.Bvh:
    """A tree over boxes (n_envs, slots, 3), of which some have no end.

    Warp's builder for GPUs takes boxes together whose centers are in one of 1024 cells along each
    axis of the box around all. One box without bounds leaves all others in a single cell, and so
    in one leaf. Those are built beside all others, as far off as these reach, and get their bounds
    after it: the first split takes them apart, and the others have the tree that they have alone.
    """
    boxes = lower, upper
    bounds = lower.clone(), upper.clone()
    is_endless = ((lower <= -float(FAR)) | (upper >= float(FAR))).any(-1, keepdim=True)
    is_bounded = ~is_endless & (lower <= upper)  # empty slots are built at the origin
    low = torch.where(is_bounded, lower, torch.inf).amin((0, 1))
    high = torch.where(is_bounded, upper, -torch.inf).amax((0, 1))
    beside = torch.where(low.abs() > high.abs(), 2.0 * low - high, 2.0 * high - low)
    beside = beside.nan_to_num(posinf=0.0, neginf=0.0)  # if all are endless
    for box in boxes:
        box.copy_(torch.where(is_endless, beside, box))
    rows = [wp.from_torch(box.view(-1, 3), dtype=wp.vec3) for box in boxes]
    tree = with_memory(lower.device, lambda: wp.Bvh(rows[0], rows[1], groups=wp.from_torch(groups)))
    with quiet_warp(), warp_stream(lower.device):
        for box, bound in zip(boxes, bounds, strict=True):
            box.copy_(bound)
        tree.refit()
    return tree
