"""Warp meshes made by callers of the drop-in Functions, as fast and as exact as those of a world.

Only the id of such a mesh is given. At its first use its points and faces are copied to an obstacle
of our own, with bounds, sign method, grid and tree; queries use the copy. Before each launch
kernels compare the caller's meshes with the copies, which detects a refit, or another mesh under
the same id: on the CPU it is copied again at once; on CUDA the kernels query it directly until the
host, which does not wait, has received the message.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import (
    CPU,
    Event,
    is_capturing,
    record_event,
    stream_handle,
    synchronize,
)
from warp_collision.kernels import mesh_changes as kernels
from warp_collision.kernels.mesh_record import MeshRecord
from warp_collision.launching.deferred_free import free_with, retire
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.launching.launch import launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.launching.structs import dtype_of
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.world.broad_phase import BroadPhase
from warp_collision.world.obstacle_cache import ObstacleCache
from warp_collision.world.scene import Scene, living_scenes

# Tables that are cached; a caller that alternates between more reads meshes again.
_MAX_TABLES = 64
# Cells of a copy's distance grid, a quarter of those of a world's obstacles: a finer grid makes
# calls at most 8 % faster (CPU, all spheres near).
_GRID_CELLS = 8_192
# Queries that pay for the grid of a mesh on a CPU: filling it takes as long as some thousands.
_QUERIES_PER_GRID = 16_384
_LEAST_QUERIES = 2_048  # that a call counts for
# Words that one thread compares; a GPU needs thousands of threads.
_CHUNK = 4_096
_GPU_CHUNK = 64
# Readings in one call, if another thread keeps changing the meshes.
_MAX_READINGS = 3

_lock = threading.RLock()
_scenes: OrderedDict[tuple[int, tuple[int, ...], torch.device], ExternalScene] = OrderedDict()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads: no holder of the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)

_caches: dict[torch.device, ObstacleCache] = {}
_with_grids: WeakSet[MeshObstacle] = WeakSet()


class MeshTables(NamedTuple):
    """The loose tensors of a caller.

    Attributes:
        mesh_ids: (n_envs, slots) int64; filled and enabled slots have ids of living meshes.
        mesh_from_world: (n_envs, slots, 8).
        enabled: (n_envs, slots) uint8.
        n_meshes: (n_envs,) int32.
        padding: (n_envs, slots) float32 of the slots of a world, if that is known [m].
    """

    mesh_ids: Tensor
    mesh_from_world: Tensor
    enabled: Tensor
    n_meshes: Tensor
    padding: Tensor | None = None

    def with_records(self, records: Tensor, padding: Tensor | None) -> SceneTables:
        """The tables of a scene."""
        return SceneTables(*self[1:4], records, padding)


def scene_of_tables(tables: MeshTables, n_queries: int) -> Scene:
    """The scene of a caller's tables: of the ids of a living world, or of other ids.

    Args:
        tables: of the caller.
        n_queries: how many spheres are asked about.

    Raises:
        ValueError: a mesh without faces of positive area, or with values that are not finite; a
            copy of the ids of a world with padded obstacles.
    """
    mesh_ids = tables.mesh_ids
    memory = mesh_ids.untyped_storage()
    of_world: Scene | None = getattr(memory, "scene", lambda: None)()
    if of_world is not None and _is_of(mesh_ids, of_world):
        own = of_world.tables
        return Scene(tables.with_records(own.records, own.padding), of_world.source)
    padding: Tensor | None = getattr(memory, "padding", None)
    if padding is not None:  # of a world that is no more, or has grown, or a view of one
        place = mesh_ids.shape, mesh_ids.stride(), mesh_ids.storage_offset()
        tables = tables._replace(padding=padding.as_strided(*place))
    key = mesh_ids.data_ptr(), tuple(mesh_ids.shape), mesh_ids.device
    with _lock:
        scene = _scenes.pop(key, None) or ExternalScene(mesh_ids.device)
        completed = scene.complete(tables, n_queries)
        _scenes[key] = scene
        while len(_scenes) > _MAX_TABLES:
            _scenes.popitem(last=False)
    return Scene(completed)


def _is_of(mesh_ids: Tensor, scene: Scene) -> bool:
    """Whether ids are all those of a world, as it wrote them."""
    of_world = scene.mesh_ids
    return (
        of_world is not None
        and mesh_ids.shape == of_world.shape
        and mesh_ids.data_ptr() == of_world.data_ptr()
        and mesh_ids._version == scene.version_of_ids
        and (scene.content_of_ids is None or of_world.numpy().tobytes() == scene.content_of_ids)
    )


def living_obstacles(mesh_ids: Tensor) -> dict[int, MeshObstacle]:
    """The obstacles with meshes of all living scenes on a device by Warp's id, and of some ids.

    Args:
        mesh_ids: of a world, which may be no more, or of anything else.
    """
    of_worlds = (scene.mesh_ids for scene in living_scenes(mesh_ids.device))
    tables = [mesh_ids, *(ids for ids in of_worlds if ids is not None)]
    # The memory of a world's ids keeps the slots of each env alive.
    envs = [env for ids in tables for env in getattr(ids.untyped_storage(), "holder", ())]
    obstacles = [slot.obstacle for slots in envs for slot in slots]
    return {o.mesh_id: o for o in obstacles if o.mesh is not None}


def _has_padding(mesh_ids: Tensor) -> bool:
    """Whether a slot of any world has one of some ids and a padding; waits for the device."""
    return any(
        bool(torch.isin(scene.mesh_ids[scene.tables.padding != 0.0], mesh_ids).any())
        for scene in living_scenes(mesh_ids.device)
        if scene.mesh_ids is not None
    )


class ExternalScene:
    """The copies of the meshes in one table of ids."""

    def __init__(self, device: torch.device):
        self._device = device
        self._copies: _Copies | None = None
        self._flags_sent: Event | None = None  # when the flags are on the host
        self._held: list[Any] = []
        free_with(self, self._held, device)

    def complete(self, tables: MeshTables, n_queries: int) -> SceneTables:
        """The tables with records of the meshes, and a tree; see `scene_of_tables`."""
        if is_capturing(self._device):
            copies = self._copies or _Copies.of_nothing(tables.mesh_ids)
            return keep_for_graphs(copies, self._device).substitute(tables)
        is_told = self._flags_sent is not None and self._flags_sent.query()
        if self._copies is None or (is_told and self._copies.meshes_changed()):
            self._read(tables)
        assert self._copies is not None
        if self._device == CPU:
            self._copies.require_no_padding(tables)  # one may have been written since
            self._copies.pay_for_grids(max(n_queries, _LEAST_QUERIES))
        completed = self._copies.substitute(tables)
        if self._device != CPU:
            self._copies.send_flags()
            self._flags_sent = record_event(self._device)
            return completed
        readings = 0
        while self._copies.meshes_changed() and readings < _MAX_READINGS:
            self._read(tables)
            completed = self._copies.substitute(tables)
            readings += 1
        return completed

    def _read(self, tables: MeshTables) -> None:
        """Reads the meshes that are not known, or no longer; waits for the device."""
        previous = self._copies
        self._flags_sent = None
        unchanged = {} if previous is None else previous.unchanged()
        self._copies = _Copies(tables, unchanged)
        if previous is not None:
            retire([previous], self._device)
        self._held[:] = [self._copies]


class _Copies:
    """Copies of the meshes of one table, for as long as none of them changes."""

    def __init__(self, tables: MeshTables, unchanged: dict[int, _Mesh]):
        mesh_ids, ids = tables.mesh_ids, _ids_in_use(tables)
        # By id of the caller's mesh; those of a world are their own copies.
        known = living_obstacles(mesh_ids)
        own = {i: known[i] for i in np.unique(ids[ids != 0]).tolist() if i in known}
        external = [int(i) for i in np.unique(ids[ids != 0]) if i not in own]
        self._lay_out(_table(ids, mesh_ids.device), own)
        self.require_no_padding(tables)
        read = {i: unchanged[i] for i in external if i in unchanged}
        read |= _read_meshes({i: ids for i in external if i not in unchanged}, self._device)
        self._read = {i: read[i] for i in external}
        obstacles = own | {i: mesh.obstacle for i, mesh in self._read.items()}
        if self._device != CPU:  # which does not wait in later calls
            self.pay_for_grids(len(read) * _QUERIES_PER_GRID)
        self._index(ids, external)
        pointers = {i: o.record.data_ptr() for i, o in obstacles.items()}
        self._records_of_copies = _table(_mapped(ids, pointers), self._device)
        with torch.inference_mode(False):
            self._changed = torch.zeros(len(external), dtype=torch.int32, device=self._device)
        self._obstacles = list(obstacles.values())
        if self._device != CPU:
            self._on_host = torch.zeros(2, dtype=torch.int32).pin_memory()
            self._received = self._on_host.numpy()

    @classmethod
    def of_nothing(cls, mesh_ids: Tensor) -> _Copies:
        """No copies, for a graph that is captured before any call: queries ask the meshes."""
        copies = cls.__new__(cls)
        copies._lay_out(torch.zeros_like(mesh_ids), {})
        return copies

    def _lay_out(self, known_ids: Tensor, own: dict[int, MeshObstacle]) -> None:
        """Allocates what kernels read, without copies.

        Args:
            known_ids: (n_envs, slots) int64, of the meshes that queries check, or 0.
            own: obstacles of worlds, by id.
        """
        self._device = device = known_ids.device
        self._known_ids, self._own = known_ids, own
        self._read: dict[int, _Mesh] = {}
        self._obstacles: list[MeshObstacle] = []
        self._outputs: dict[int, _Outputs] = {}
        self._paid = 0  # queries
        with torch.inference_mode(False):
            self._records_of_copies = torch.zeros_like(known_ids)
            self._mesh_of_slot = torch.full_like(known_ids, -1, dtype=torch.int32)
            self._meshes = torch.zeros((0, 5), dtype=torch.int64, device=device)
            self._chunks = torch.zeros((0, 4), dtype=torch.int32, device=device)
            self._hashes = torch.zeros(0, dtype=torch.int64, device=device)
            self._slots = torch.zeros(0, dtype=torch.int32, device=device)
            self._changed = torch.zeros(0, dtype=torch.int32, device=device)
            self._flags = torch.zeros(2, dtype=torch.int32, device=device)
        self._on_host = self._flags
        self._received = np.zeros(2, dtype=np.int32) if device != CPU else self._flags.numpy()

    def pay_for_grids(self, n_queries: int) -> None:
        """Fills the grids of as many meshes as queries have paid for; results are the same.

        Those of open meshes first: without a grid they take several times as long as closed ones.
        """
        self._paid += n_queries
        if self._paid < _QUERIES_PER_GRID:
            return
        obstacles = [m.obstacle for m in self._read.values()]
        missing = [o for o in obstacles if o.grid_kernels and o not in _with_grids]
        missing.sort(key=lambda obstacle: not obstacle.has_jumps)
        paid = missing[: self._paid // _QUERIES_PER_GRID]
        for obstacle in paid:
            obstacle.fill_grid()
        if paid:
            synchronize(paid[0].record.device)
        _with_grids.update(paid)
        self._paid -= len(paid) * _QUERIES_PER_GRID

    def require_no_padding(self, tables: MeshTables) -> None:
        """Requires that obstacles of worlds have no padding that is not known; waits for it."""
        if tables.padding is not None or not self._own:
            return
        padded = any(own.is_padded for own in self._own.values())
        if padded or _has_padding(torch.tensor([*self._own], device=self._device)):
            raise ValueError(
                "mesh_idx must be the mesh_ids of the world, or a view of them, where obstacles "
                "have a padding: a copy does not know it"
            )

    def _index(self, ids: np.ndarray, external: list[int]) -> None:
        """Lays out the tables of meshes, slots and chunks."""
        rows, slots, chunks, hashes = [], [], [], []
        for index, mesh_id in enumerate(external):
            mesh = self._read[mesh_id]
            positions = np.flatnonzero(ids.ravel() == mesh_id)
            rows.append([mesh_id, *mesh.size, len(slots), len(slots) + len(positions)])
            slots += positions.tolist()
            chunks += [[index, *chunk] for chunk in mesh.chunks]
            hashes.append(mesh.hashes)
        self._meshes = _table(np.array(rows, dtype=np.int64).reshape(-1, 5), self._device)
        self._slots = _table(np.array(slots, dtype=np.int32), self._device)
        self._chunks = _table(np.array(chunks, dtype=np.int32).reshape(-1, 4), self._device)
        self._hashes = _table(np.concatenate([np.zeros(0, np.int64), *hashes]), self._device)
        index_of = {mesh_id: index for index, mesh_id in enumerate(external)}
        self._mesh_of_slot = _table(_mapped(ids, index_of, -1).astype(np.int32), self._device)

    def substitute(self, tables: MeshTables) -> SceneTables:
        """Tables with the records of the copies of all unchanged meshes, and of what is unknown."""
        flags, device = self._flags, self._device
        received = self._received
        outputs = self._outputs_of_stream()
        copies = tables.with_records(outputs.records, tables.padding)
        launch(
            kernels.find_changed,
            (len(self._chunks),),
            copies,
            tables.mesh_ids,
            self._meshes,
            self._slots,
            self._chunks,
            self._hashes,
            self._changed,
            flags,
            device=device,
        )
        launch(
            kernels.substitute,
            tuple(tables.mesh_ids.shape),
            copies,
            tables.mesh_ids,
            self._known_ids,
            self._mesh_of_slot,
            self._records_of_copies,
            outputs.unknown,
            self._changed,
            flags,
            outputs.records,
            device=device,
        )
        if device == CPU and received[kernels.BOXES_CHANGED]:
            received[kernels.BOXES_CHANGED] = 0
            outputs.broad_phase.refit(copies)
        # With a tree from the first mesh on, far spheres cost the same for any number of meshes.
        has_tree = outputs.broad_phase.make_fresh(copies)
        return copies._replace(tree=outputs.broad_phase.tree if has_tree else None)

    def _outputs_of_stream(self) -> _Outputs:
        """What the current stream overwrites; a graph shares that of the latest call before it."""
        if self._outputs and is_capturing(self._device):
            return next(reversed(self._outputs.values()))
        stream = 0 if self._device == CPU else stream_handle(self._device)
        outputs = self._outputs.pop(stream, None)
        if outputs is None:
            outputs = _Outputs(tuple(self._known_ids.shape), self._obstacles, self._device)
        self._outputs[stream] = outputs
        return outputs

    def send_flags(self) -> None:
        """Copies the messages to the host, without waiting."""
        self._on_host.copy_(self._flags, non_blocking=True)

    def meshes_changed(self) -> bool:
        """Whether the host has received the message that a mesh has changed."""
        return bool(self._received[kernels.MESHES_CHANGED])

    def unchanged(self) -> dict[int, _Mesh]:
        """The unchanged meshes; waits for the device."""
        changed = self._changed.tolist()
        return {i: m for (i, m), new in zip(self._read.items(), changed, strict=False) if not new}


class _Outputs:
    """Tables of copies and the tree over them: of one stream, since each query overwrites them.

    Attributes:
        records: (n_envs, n_slots) int64, pointers to the records that queries use.
        unknown: (n_envs, n_slots) int64, pointers to records of meshes that are no copies.
        broad_phase: the tree.
    """

    def __init__(self, shape: tuple[int, ...], obstacles: list[MeshObstacle], device: torch.device):
        with torch.inference_mode(False):
            self.records = torch.zeros(shape, dtype=torch.int64, device=device)
            size, count = dtype_of(MeshRecord).itemsize, math.prod(shape)
            of_unknown = torch.zeros((count, size), dtype=torch.uint8, device=device)
            places = torch.arange(count, dtype=torch.int64, device=device).view(shape)
            self.unknown = of_unknown.data_ptr() + size * places
        # The tensor keeps the meshes alive.
        storage: Any = self.records.untyped_storage()
        storage.kept = obstacles, of_unknown
        # On a GPU writes of poses cannot be detected without waiting.
        self.broad_phase = BroadPhase(device, moved_by_graphs=device != CPU)


class _Mesh:
    """The copy of one mesh, and the hashes that detect changes.

    Attributes:
        obstacle: the copy.
        size: points and faces.
        chunks: rows: 1 for faces or 0 for points, begin, end.
        hashes: (n_chunks,) int64.
    """

    def __init__(self, name: str, mesh_id: int, size: list[int], device: torch.device):
        self.size = size
        step = _CHUNK if device == CPU else _GPU_CHUNK
        self.chunks = [
            [of_faces, begin, min(begin + step, 3 * count)]
            for of_faces, count in enumerate(size)
            for begin in range(0, 3 * count, step)
        ]
        rows = _table(np.array([[mesh_id, *size, 0, 0]], dtype=np.int64), device)
        chunks = _table(np.array([[0, *c] for c in self.chunks], dtype=np.int32), device)
        hashes = torch.empty(len(self.chunks), dtype=torch.int64, device=device)
        launch(kernels.hash_chunks, (len(chunks),), rows, chunks, hashes, device=device)
        points = torch.empty((size[0], 3), dtype=torch.float32, device=device)
        faces = torch.empty((size[1], 3), dtype=torch.int32, device=device)
        one = _table(np.array([mesh_id]), device)
        launch(kernels.read_points, (size[0],), one, points, device=device)
        launch(kernels.read_faces, tuple(faces.shape), one, faces, device=device)
        self.hashes = hashes.cpu().numpy()
        self.obstacle = _cache(device).obstacle(name, (points, faces))


def _read_meshes(ids_of: dict[int, np.ndarray], device: torch.device) -> dict[int, _Mesh]:
    """Reads meshes by id; the tables of ids say in messages where they are from."""
    if not ids_of:
        return {}
    sizes = torch.empty((len(ids_of), 2), dtype=torch.int32, device=device)
    launch(
        kernels.mesh_sizes,
        tuple(sizes.shape),
        _table(np.array(list(ids_of)), device),
        sizes,
        device=device,
    )
    meshes = {}
    for (mesh_id, ids), size in zip(ids_of.items(), sizes.tolist(), strict=True):
        env, slot = np.argwhere(ids == mesh_id)[0]
        meshes[mesh_id] = _Mesh(f"mesh_idx[{env}, {slot}]", mesh_id, size, device)
    return meshes


def _cache(device: torch.device) -> ObstacleCache:
    return _caches.setdefault(device, ObstacleCache(device, _GRID_CELLS))


def _ids_in_use(tables: MeshTables) -> np.ndarray:
    """The ids (n_envs, slots) of the meshes that queries check, 0 elsewhere; waits."""
    mesh_ids = tables.mesh_ids
    slots = torch.arange(mesh_ids.shape[1], device=mesh_ids.device)
    used = (slots < tables.n_meshes[:, None]) & (tables.enabled != 0)
    return torch.where(used, mesh_ids, 0).cpu().numpy()


def _mapped(ids: np.ndarray, values: dict[int, int], otherwise: int = 0) -> np.ndarray:
    """The value of each id in a dictionary."""
    keys, inverse = np.unique(ids, return_inverse=True)
    mapped = np.array([values.get(int(key), otherwise) for key in keys], dtype=np.int64)
    return mapped[inverse].reshape(ids.shape)


def _table(values: np.ndarray, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)
