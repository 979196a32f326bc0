"""The world model: which meshes stand where, in each of several parallel envs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
import trimesh
from torch import Tensor

from warp_collision import validate
from warp_collision.devices import synchronize
from warp_collision.io.scene import scene_meshes
from warp_collision.launching.deferred_free import retire
from warp_collision.obstacles.candidate_lists import LIST_BYTES
from warp_collision.obstacles.geometry import (
    MeshLike,
    MeshReport,
    SignMethod,
    content_key,
    prepare,
    read_mesh,
)
from warp_collision.obstacles.mesh_obstacle import (
    GRID_CELLS,
    MeshAndPose,
    MeshObstacle,
    PoseLike,
    split_pose,
)
from warp_collision.world.placement import PlacedMeshes, Slot, keep_alive

_IDENTITY = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


@dataclass
class _Entry:
    """A slot about to be filled, checked in every respect."""

    name: str
    obstacle: MeshObstacle
    pose: Tensor
    given: Tensor  # the pose as it came, if it was a tensor
    enabled: bool


class MeshWorld(PlacedMeshes):
    """Meshes, poses and enable masks of one or more parallel envs, on one device.

    The tensors can be handed to the drop-in Functions; they are updated in place, and stay the same
    objects until the world grows. Poses and enables may be changed from device tensors without
    waiting for the device, inside a captured CUDA graph too. Adding, replacing, removing and
    growing are for the host; a mesh that is no longer held is freed once no launch can read it.

    Any number of threads may query a world, and get what one thread would. They may do so while
    another thread changes it: envs that are not being changed cost what they did, and a query of
    one that is may see parts of it before the change and others after it.

    On CUDA keep a world as long as graphs that query it. After its meshes have moved, queries and
    replays on several streams must wait for each other, as the tree over the meshes is fit anew.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, signed_distance
        >>> world = MeshWorld()
        >>> world.add("table", trimesh.creation.box((1.0, 1.0, 0.1)), pose=(0, 0, 0.5, 1, 0, 0, 0))
        0
        >>> round(signed_distance(torch.tensor([[0.0, 0.0, 1.0]]), world).distance.item(), 4)
        0.45
    """

    def __init__(
        self,
        n_envs: int = 1,
        max_meshes: int = 32,
        device: torch.device | str | int | None = None,
        *,
        grid_cells: int = GRID_CELLS,
        list_bytes: int = LIST_BYTES,
    ):
        """Creates a world without meshes.

        Args:
            n_envs: number of parallel envs, at least 1.
            max_meshes: slots per env, at least 1; `grow` adds more.
            device: where everything lives; by default torch's default device.
            grid_cells: most cells of the distance grid that each mesh gets, 4 bytes a cell;
                0 for none. Grids make queries faster and change no result.
            list_bytes: most bytes of the candidate lists that `prepare` builds for each mesh on the
                CPU; 0 for none. A mesh of n faces gets at most 400 n + 32,768 bytes.
        """
        validate.require_count("n_envs", n_envs)
        validate.require_count("max_meshes", max_meshes)
        super().__init__(n_envs, max_meshes, validate.canonical_device(device))
        self._grid_cells = grid_cells
        self._list_bytes = list_bytes
        self._obstacles: WeakValueDictionary[str, MeshObstacle] = WeakValueDictionary()

    def __repr__(self) -> str:
        counts = [len(slots) for slots in self._slots]
        return f"MeshWorld({sum(counts)} meshes in {self.n_envs} envs on {self.device})"

    def __copy__(self) -> MeshWorld:
        raise TypeError("a MeshWorld owns device memory and cannot be copied; build a second one")

    def __deepcopy__(self, memo: dict[int, Any]) -> MeshWorld:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError("a MeshWorld owns device memory and cannot be pickled; save its meshes")

    # -- what the world holds -------------------------------------------------------------------

    def report(self, name: str | int, env: int = 0) -> MeshReport:
        """What was found in a mesh when it was loaded; see `MeshReport`.

        Example:
            >>> import trimesh
            >>> from warp_collision import MeshWorld
            >>> world = MeshWorld()
            >>> world.add("ball", trimesh.creation.icosphere(2))
            0
            >>> print(world.report("ball").sign_method)
            convex
        """
        with self._lock:
            return self._env(env)[self._index(name, env)].obstacle.report

    # -- changing what it holds -----------------------------------------------------------------

    def add(
        self,
        name: str,
        mesh: MeshLike,
        pose: PoseLike | None = None,
        env: int = 0,
        enabled: bool = True,
        *,
        replace: bool = False,
        repair: bool = True,
        sign: SignMethod = "auto",
    ) -> int:
        """Adds a mesh to an env.

        Args:
            name: unique in the env.
            mesh: a `trimesh.Trimesh` in metres or the units that it declares, a pair
                (vertices (n, 3) [m], faces (n, 3)), or the path of a mesh file. Equal geometry is
                stored once, whatever its names and envs.
            pose: x, y, z, qw, qx, qy, qz of the mesh in the world; identity if None. It may
                require a gradient as in `set_pose`.
            env: which env.
            enabled: whether queries check it.
            replace: give the mesh of this name new geometry, pose and state; its slot stays.
            repair: see `geometry.prepare`.
            sign: how inside is told from outside: "auto", "winding" or "exact_winding".

        Returns:
            The index of its slot.

        Raises:
            ValueError: the name is taken, the env is full, the pose or the mesh is not valid.
            FileNotFoundError: there is no such file.
        """
        with self._lock:
            slots = self._env(env)
            known = self.names(env)
            if name in known and not replace:
                raise ValueError(
                    f"name must be new in env {env}, got {name!r} again; pass replace=True to give "
                    "it new geometry"
                )
            if name not in known and len(slots) >= self.max_meshes:
                raise ValueError(
                    f"env {env} must have a free slot for {name!r}, all {self.max_meshes} are "
                    "taken; grow(max_meshes=...) adds some"
                )
            entry = self._entry(name, mesh, pose, enabled, repair, sign)
            index = known.index(name) if name in known else len(slots)
            self._fill(env, index, [entry])
            return index

    def load(
        self,
        meshes: Mapping[str, MeshAndPose] | trimesh.Scene,
        env: int = 0,
    ) -> None:
        """Replaces everything that an env holds; an empty mapping empties it.

        Args:
            meshes: name to mesh, or to a pair of mesh and pose; or a `trimesh.Scene`, whose graph
                gives the poses. If any of them is not valid the world stays as it was.
            env: which env.
        """
        given = scene_meshes(meshes) if isinstance(meshes, trimesh.Scene) else meshes
        if not isinstance(given, Mapping):
            raise TypeError(
                f"meshes must be a mapping or a trimesh.Scene, got {type(meshes).__name__}"
            )
        with self._lock:
            self._env(env)
            if len(given) > self.max_meshes:
                raise ValueError(
                    f"env {env} must have a slot for each mesh, got {len(given)} meshes for "
                    f"{self.max_meshes} slots; grow(max_meshes=...) adds some"
                )
            entries = [
                self._entry(name, *split_pose(value), True, True, "auto")
                for name, value in given.items()
            ]
            # In this order, so that queries of other threads never find the env empty.
            self._fill(env, 0, entries)
            self._truncate(env, len(entries))

    def remove(self, name: str | int, env: int = 0) -> None:
        """Removes a mesh; the slots behind it move up by one."""
        with self._lock:
            index = self._index(name, env)
            slots = self._env(env)
            self._forget_tree()
            if index + 1 < len(slots):
                self._move_up(env, index, len(slots))
            removed = slots.pop(index)
            self._empty(env, len(slots))
            self._meshes_changed([removed])

    def clear(self, env: int | None = None) -> None:
        """Removes all meshes of an env, or of all envs."""
        with self._lock:
            for index in range(self.n_envs) if env is None else [env]:
                self._env(index)
                self._truncate(index, 0)

    def grow(self, n_envs: int | None = None, max_meshes: int | None = None) -> None:
        """Adds envs or slots; what the world holds stays.

        The tensors of the world are new objects afterwards: hand them out again, and capture CUDA
        graphs again.

        Args:
            n_envs: new number of envs, not below the present one.
            max_meshes: new number of slots per env, not below the present one.
        """
        n_envs = self.n_envs if n_envs is None else n_envs
        max_meshes = self.max_meshes if max_meshes is None else max_meshes
        for key, value, present in (
            ("n_envs", n_envs, self.n_envs),
            ("max_meshes", max_meshes, self.max_meshes),
        ):
            validate.require_count(key, value)
            if value < present:
                raise ValueError(f"{key} must not shrink below {present}, got {value}")
        with self._lock:
            rows = self.n_envs
            # The old tensors may still be read: they keep the meshes that they name.
            keep_alive(self.tables(), [list(slots) for slots in self._slots])
            larger = self._enlarged(n_envs, max_meshes)
            keep_alive(larger, self._slots)
            self._slots += [[] for _ in range(n_envs - rows)]
            self._use(larger)

    # -- inside ---------------------------------------------------------------------------------

    def _entry(
        self,
        name: str,
        mesh: MeshLike,
        pose: PoseLike | None,
        enabled: bool,
        repair: bool,
        sign: SignMethod,
    ) -> _Entry:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a non-empty string, got {name!r}")
        label = f"pose of {name!r}"
        checked = validate.check_pose(label, _IDENTITY if pose is None else pose)
        vertices, faces = read_mesh(name, mesh)
        key = content_key(vertices, faces, repair, sign)
        obstacle = self._obstacles.get(key)
        if obstacle is None:
            geometry = prepare(name, vertices, faces, repair=repair, sign=sign)
            obstacle = self._obstacles[key] = MeshObstacle(
                geometry, self.device, self._grid_cells, self._list_bytes
            )
            self._unfinished.add(obstacle)
        given = pose if isinstance(pose, Tensor) else checked
        return _Entry(name, obstacle, checked, given, bool(enabled))

    def _fill(self, env: int, first: int, entries: list[_Entry]) -> None:
        """Writes consecutive slots from `first`, then frees what they held."""
        slots = self._slots[env]
        last = first + len(entries)
        dropped = slots[first:last]
        self._forget_tree()
        slots[first:last] = [Slot(entry.name, entry.obstacle) for entry in entries]
        if entries:
            place = slice(first, last)
            for table, values in (
                (self.mesh_ids, [entry.obstacle.mesh_id for entry in entries]),
                (self._records, [entry.obstacle.record.data_ptr() for entry in entries]),
                (self.enabled, [int(entry.enabled) for entry in entries]),
            ):
                table[env, place] = torch.tensor(values, dtype=table.dtype).to(self.device)
            self._write_poses(env, place, torch.stack([entry.pose for entry in entries]))
            for index, entry in enumerate(entries, first):
                self._track(env, slice(index, index + 1), entry.given)
        self.n_meshes[env].fill_(len(slots))
        self._meshes_changed(dropped)

    def _meshes_changed(self, dropped: list[Slot]) -> None:
        self._most_meshes = max(len(slots) for slots in self._slots)
        self._is_settled = False
        retire(dropped, self.device)
        synchronize(self.device)

    def _truncate(self, env: int, count: int) -> None:
        """Empties the slots from `count` on."""
        slots = self._slots[env]
        dropped = slots[count:]
        self._forget_tree()
        del slots[count:]
        self._empty(env, count)
        self._meshes_changed(dropped)
