"""The broad phase: a tree over the bounding boxes of all obstacles in the world."""

from __future__ import annotations

import numpy as np
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
from warp_collision.kernels.broad_phase import find_roots, world_boxes
from warp_collision.kernels.mesh_record import FAR
from warp_collision.launching.deferred_free import retire
from warp_collision.launching.launch import launch, warp_stream
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.launching.warp_runtime import quiet_warp


class BroadPhase:
    """The tree over one set of tables; built on the host, refit on the device.

    Attributes:
        tree: (1,) int64 on the device, pointer to the id of Warp's tree and its roots by env, or 0.
            It is replaced in place, in one word: launches in progress read it.
        is_captured: a graph refits this tree, so that it must stay the one that the graph reads.
        moved_by_graphs: graphs move meshes, which no tensor version shows: every query refits it.
    """

    def __init__(self, device: torch.device, *, moved_by_graphs: bool = False):
        self._device = device
        self._tree: wp.Bvh | None = None
        self._boxes: tuple[Tensor, Tensor] | None = None
        # On the CPU: (n_envs, n_blocks, 6, 8) the boxes of the first slots once more.
        self._blocks: Tensor | None = None
        self._versions: tuple[int, ...] = ()
        # On the CPU: what the boxes were computed from, where it lies, and what it was then.
        self._sources: tuple[tuple[np.ndarray, int, bytes], ...] | None = None
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
        return None if self._tree is None else self._sources

    @property
    def boxes(self) -> tuple[Tensor, Tensor]:
        """(n_envs, slots, 3) lower and upper corners of the world boxes that the tree is of [m]."""
        assert self._boxes is not None
        return self._boxes

    def forget(self) -> None:
        """Drops the tree, as the meshes have changed; the next query builds another one."""
        if self._tree is None:
            return
        self.tree.zero_()
        dropped = [self._boxes] if self.is_captured else [self._kept.pop(), self._boxes]
        self._tree = self._boxes = None
        retire(dropped, self._device)

    def is_fresh(self, tables: SceneTables) -> bool:
        """Whether the tree fits the present poses, on a CPU; on a GPU streams have to wait."""
        is_built = self._device == CPU and self._tree is not None
        return is_built and not self._is_outdated(tables)

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
        """Whether tables were written; on the CPU also past torch, as through NumPy or `.data`."""
        # In this order: another thread that computes boxes drops the versions first.
        previous = self._sources
        if self._versions != _versions(tables):
            return True
        if previous is None:
            return False
        sources = _sources(tables)
        if len(sources) != len(previous):
            return True
        # Bytes are equal where numbers are NaN, and several times faster to compare than arrays.
        for table, (values, address, before) in zip(sources, previous, strict=True):
            if table.data_ptr() != address or values.tobytes() != before:
                return True
        return False

    def _fit(self, tables: SceneTables) -> None:
        assert self._tree is not None
        versions = self._compute_boxes(tables)
        with quiet_warp(), warp_stream(self._device):
            self._tree.refit()
        self._versions = versions
        if is_capturing(self._device):
            self.is_captured = True
        elif is_gpu(self._device):
            self._written = record_event(self._device)

    def _build(self, tables: SceneTables) -> None:
        n_envs, slots = tables.mesh_ids.shape
        empty = torch.empty((n_envs, slots, 3), dtype=torch.float32, device=self._device)
        self._boxes = (empty, torch.empty_like(empty))
        words = self._allocate_words(n_envs, slots)
        versions = self._compute_boxes(tables)
        groups = torch.arange(n_envs, dtype=torch.int32, device=self._device)
        groups = groups.repeat_interleave(slots)
        tree = _build_tree(*self._boxes, groups)
        words[0] = int(tree.id)
        launch(find_roots, (n_envs,), words, device=self._device)
        self._kept.append((tree, words))
        self.tree.fill_(words.data_ptr())
        synchronize(self._device)
        self._versions = versions
        self._tree = tree

    def _allocate_words(self, n_envs: int, slots: int) -> Tensor:
        """What `tree` points to: the id of Warp's tree, its roots by env, and blocks of boxes."""
        n_blocks = n_envs * -(-min(slots, int(FEW)) // 8) if self._device == CPU else 0
        size = 1 + n_envs + n_blocks * int(BLOCK_BYTES) // 8
        words = torch.zeros(size, dtype=torch.int64, device=self._device)
        if n_blocks:
            self._blocks = words[1 + n_envs :].view(torch.float32).view(n_envs, -1, 6, 8)
        return words

    def _compute_boxes(self, tables: SceneTables) -> tuple[int, ...]:
        """Computes the world boxes; returns which versions of the tables they are of."""
        assert self._boxes is not None
        # Outdated until the refit is launched.
        self._versions = ()
        # In a graph nothing has run yet.
        versions = () if is_capturing(self._device) else _versions(tables)
        if self._device.type == "cpu":
            # Before the boxes: what another thread writes meanwhile is noticed next time.
            views = ((table.numpy(), table.data_ptr()) for table in _sources(tables))
            self._sources = tuple((view, place, view.tobytes()) for view, place in views)
        corners = self._blocks, *self._boxes
        launch(world_boxes, tables.mesh_ids.shape, tables, *corners, device=self._device)
        return versions


def _build_tree(lower: Tensor, upper: Tensor, groups: Tensor) -> wp.Bvh:
    """A tree over boxes (n_envs, slots, 3), of which some are all of space.

    Warp's builder for GPUs takes boxes together whose centers are in one of 1024 cells along each
    axis of the box around all. One box without bounds leaves all others in a single cell, and so
    in one leaf. Those are built at a corner, where no empty slot is, and get their bounds after it.
    """
    boxes = lower, upper
    bounds = lower.clone(), upper.clone()
    is_bounded = lower.abs() < float(FAR)
    low = torch.where(is_bounded, lower, torch.inf).amin((0, 1))
    high = torch.where(is_bounded, upper, -torch.inf).amax((0, 1))
    corner = torch.where(low.abs() > high.abs(), low, high).nan_to_num(neginf=0.0)
    is_everywhere = lower <= -float(FAR)
    for box in boxes:
        box.copy_(torch.where(is_everywhere, corner, box))
    with quiet_warp(), warp_stream(lower.device):
        rows = [wp.from_torch(box.view(-1, 3), dtype=wp.vec3) for box in boxes]
        tree = wp.Bvh(rows[0], rows[1], groups=wp.from_torch(groups))
        for box, bound in zip(boxes, bounds, strict=True):
            box.copy_(bound)
        tree.refit()
    return tree


def _versions(tables: SceneTables) -> tuple[int, ...]:
    """Changes whenever torch writes what the boxes depend on."""
    padding = tables.padding
    return (  # written out: every query asks
        tables.mesh_from_world._version,
        tables.mesh_ids._version,
        tables.n_meshes._version,
        -1 if padding is None else padding._version,
    )


def _sources(tables: SceneTables) -> tuple[Tensor, ...]:
    """The tables that the boxes depend on."""
    read = tables.mesh_from_world, tables.mesh_ids, tables.n_meshes
    return read if tables.padding is None else (*read, tables.padding)
