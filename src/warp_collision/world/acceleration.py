"""Acceleration structures of a world, built lazily: distance grids, the tree and the field."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakSet

from warp_collision.devices import CPU, is_capturing, synchronize
from warp_collision.kernels.box_blocks import FEW
from warp_collision.kernels.world_boxes import world_boxes
from warp_collision.launching.deferred_free import free_with, retire
from warp_collision.launching.edit import Edit
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.launching.launch import load_kernels
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.world.broad_phase import BroadPhase
from warp_collision.world.scene_field import QUERIES_PER_CELL, Rest, SceneField


class _State(NamedTuple):
    """The tables of one size with their broad phase, replaced all at once.

    Attributes:
        tables: without a tree.
        with_tree: the same with the tree of the broad phase.
        broad_phase: keeps that tree.
        field: of a world at rest, if it was prepared.
        with_field: the same as `with_tree` with that field.
    """

    tables: SceneTables
    with_tree: SceneTables
    broad_phase: BroadPhase
    field: SceneField | None = None
    with_field: SceneTables | None = None

    @classmethod
    def of(cls, tables: SceneTables, broad_phase: BroadPhase) -> _State:
        """Tables with records and a broad phase for them."""
        return cls(tables, tables._replace(tree=broad_phase.tree), broad_phase)


class Acceleration:
    """The acceleration structures of one world.

    Any thread may complete tables while another, under the lock of the world, changes
    what they hold.
    """

    def __init__(self, tables: SceneTables, lock: threading.RLock):
        """Creates it for tables without meshes.

        Args:
            tables: of the world, with records.
            lock: of the world.
        """
        self._device = tables.enabled.device
        self._lock = lock
        self._known: WeakSet[MeshObstacle] = WeakSet()
        self._without_grids: WeakSet[MeshObstacle] = WeakSet()
        self._most_meshes = 0
        # Whether all grids are built, until the meshes change.
        self._is_complete = True
        self._rest = Rest()
        self._held: list[Any] = []
        free_with(self, self._held, self._device)
        self._state: _State
        self._publish(_State.of(tables, BroadPhase(self._device)))

    def complete(self, tables: SceneTables, kernel: Any = None, n_queries: int = 0) -> SceneTables:
        """Adds the tree where the poses are this world's, see `Scene.completed`.

        Args:
            tables: of this world, perhaps at other poses or from before it grew.
            kernel: to launch.
            n_queries: how many spheres or points are asked about.
        """
        state = self._state
        # Without the lock, which most queries do not need.
        is_fresh = self._most_meshes == 0 or (
            tables.mesh_from_world is state.tables.mesh_from_world
            and state.broad_phase.is_fresh(state.tables)
        )
        if self._is_complete and is_fresh:
            has_tree = self._most_meshes > 0
        else:
            has_tree = self._build(tables, state, kernel)
        known = state.with_tree if has_tree else state.tables
        if has_tree and (self._most_meshes > FEW or state.field is not None):
            known = self._with_field(state, n_queries)
        if tables is state.tables:
            return known
        if (
            tables.mesh_from_world is known.mesh_from_world
            and tables.enabled is known.enabled
            and tables.n_meshes is known.n_meshes
        ):
            return known if tables.ignored is None else known.ignoring(tables.ignored)
        return tables._replace(tree=known.tree)

    @property
    def fitted(self) -> object:
        """See `BroadPhase`."""
        return self._state.broad_phase.fitted

    def add(self, obstacles: Iterable[MeshObstacle]) -> None:
        """Registers obstacles; grids of new ones are built at the next query."""
        for obstacle in obstacles:
            if obstacle not in self._known:
                self._without_grids.add(obstacle)  # first: what is known gets a grid
                self._known.add(obstacle)

    def meshes_changed(self, most_meshes: int) -> None:
        """To be called when slots were filled or emptied; the fullest env has that many."""
        self._most_meshes = most_meshes
        self._is_complete = False

    def drop_tree(self, edit: Edit) -> None:
        """Stages that the tree goes before the meshes change: it has their old boxes."""
        old = self._state.broad_phase
        new = None
        if old.is_captured:
            # Graphs keep its tensor, which from now on says that there is no tree: a new tree
            # would be one that they do not refit.
            new = BroadPhase(self._device, moved_by_graphs=old.moved_by_graphs)
        edit.then(self._drop_tree, old, new)
        if new is not None:
            edit.then(retire, [old], self._device)

    def _drop_tree(self, old: BroadPhase, new: BroadPhase | None) -> None:
        old.forget()
        if new is None:
            return self._publish(self._state._replace(field=None, with_field=None))
        return self._publish(_State.of(self._state.tables, new))

    def use(self, edit: Edit, tables: SceneTables) -> None:
        """Stages larger tables, all at once: other threads may be reading the old ones."""
        # A tree belongs to tables of one shape; readers of the old ones do without.
        previous = self._state
        moved = previous.broad_phase.moved_by_graphs
        broad_phase = BroadPhase(self._device, moved_by_graphs=moved)
        edit.then(self._publish, _State.of(tables, broad_phase))
        edit.then(previous.broad_phase.forget)
        # Launches of other streams may still read the old tensors.
        edit.then(retire, [previous], self._device)

    def refit(self) -> None:
        """Refits the tree, if there is one, to poses that were written, on the device."""
        with self._lock:
            self._state.broad_phase.refit(self._state.tables)

    def prepare(self) -> None:
        """Builds what queries would build, and on the CPU the field."""
        self.complete(self._state.tables)
        if self._device == CPU:
            with self._lock:
                self._fill_field()

    def _with_field(self, state: _State, n_queries: int) -> SceneTables:
        """The tables with their tree, and with the field where it is valid.

        Among many obstacles queries pay for a field little by little, while nothing moves.
        """
        field, fitted = state.field, state.broad_phase.fitted
        if field is not None and state.with_field is not None and field.fits(fitted):
            if not field.is_filled and self._lock.acquire(blocking=False):
                try:
                    field.fill(n_queries / QUERIES_PER_CELL)
                finally:
                    self._lock.release()
            return state.with_field
        if self._most_meshes > FEW and self._rest.is_long(fitted, n_queries):
            with self._lock:
                if state is self._state and state.broad_phase.fitted is fitted:
                    self._rest.field_begins(is_wasted=field is not None and not field.is_filled)
                    self._lay_field(state)
        return state.with_tree

    def _fill_field(self) -> None:
        """Computes the field, if there is no valid one."""
        self.complete(self._state.tables)  # other threads may have moved things
        field, fitted = self._state.field, self._state.broad_phase.fitted
        if fitted is not None:
            if field is None or not field.fits(fitted):
                field = self._lay_field(self._state)
            field.fill()

    def _lay_field(self, state: _State) -> SceneField:
        """Publishes a field that is not filled yet."""
        broad_phase = state.broad_phase
        field = SceneField(state.with_tree, broad_phase.boxes, broad_phase.fitted)
        with_field = state.with_tree._replace(field=field.buffer)
        self._publish(state._replace(field=field, with_field=with_field))
        return field

    def _publish(self, state: _State) -> None:
        self._state = state
        self._held[:] = [state]

    def _build(self, tables: SceneTables, state: _State, kernel: Any) -> bool:
        """Builds what is missing; whether there is a tree for the poses of these tables."""
        keep_for_graphs(self, self._device)
        with self._lock:
            if self._most_meshes > 0:
                builders = {k for obstacle in self._without_grids for k in obstacle.grid_kernels}
                load_kernels([*filter(None, [kernel]), world_boxes, *builders], self._device)
            if self._without_grids and not is_capturing(self._device):
                self._fill_grids()
            self._is_complete = not self._without_grids
            if self._most_meshes == 0:
                return False
            # If the world has grown meanwhile, its tree has other slots.
            if state is not self._state:
                return False
            if tables.mesh_from_world.data_ptr() != state.tables.mesh_from_world.data_ptr():
                return False
            return state.broad_phase.make_fresh(state.tables)

    def _fill_grids(self) -> None:
        filled = list(self._without_grids)
        for obstacle in filled:
            obstacle.fill_grid()
        synchronize(self._device)
        # Not before: threads that find a mesh here wait for its grid, so that all see the same.
        self._without_grids.difference_update(filled)
