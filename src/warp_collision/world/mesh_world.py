"""The world model: which meshes stand where, in each of several parallel envs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from warp_collision import io, validate
from warp_collision.obstacles.distance_grid import GRID_CELLS
from warp_collision.obstacles.geometry import MeshLike, SignMethod
from warp_collision.obstacles.mesh_obstacle import MeshAndPose, PoseLike
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.poses import invert_pose
from warp_collision.world.acceleration import Acceleration
from warp_collision.world.contents import Contents
from warp_collision.world.files import (
    PathLike,
    as_mapping,
    obstacles_of_env,
    world_of_files,
    world_of_mapping,
)
from warp_collision.world.obstacle_cache import ObstacleCache
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slots

if TYPE_CHECKING:
    import trimesh

DeviceLike = torch.device | str | int | None


class MeshWorld:
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
        device: DeviceLike = None,
        *,
        grid_cells: int = GRID_CELLS,
    ):
        """Creates a world without meshes.

        Args:
            n_envs: number of parallel envs, at least 1.
            max_meshes: slots per env, at least 1; `grow` adds more.
            device: where everything lives; by default torch's default device.
            grid_cells: most cells of the distance grid of each mesh, 4 bytes a cell; 0 for none.
        """
        validate.require_count("n_envs", n_envs)
        validate.require_count("max_meshes", max_meshes)
        self.device = validate.canonical_device(device)
        self._lock = threading.RLock()
        self._slots = Slots(n_envs)
        self._obstacles = ObstacleCache(self.device, grid_cells)
        storage = SceneStorage(n_envs, max_meshes, self.device)
        self._acceleration = Acceleration(storage.tables, self._lock)
        self._contents = Contents(self._slots, storage, self._acceleration)

    def __repr__(self) -> str:
        counts = [len(slots) for slots in self._slots.envs]
        return f"MeshWorld({sum(counts)} meshes in {self.n_envs} envs on {self.device})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a MeshWorld owns device memory: it cannot be copied and cannot be pickled; build a "
            "second one from its meshes"
        )

    # -- files ----------------------------------------------------------------------------------

    @classmethod
    def from_file(cls, path: PathLike, device: DeviceLike = None, **options: Any) -> Self:
        """A world of one env with the content of a world file.

        Args:
            path: see `warp_collision.io.load_world_file`, which names all kinds.
            device: where everything lives; by default torch's default device.
            options: of `load_world_file` and the world; without `max_meshes` 32 slots are free.
        """
        return world_of_files(cls, [path], device=device, **options)

    @classmethod
    def from_files(
        cls, paths: Sequence[PathLike], device: DeviceLike = None, **options: Any
    ) -> Self:
        """A world with an env for each file, and 32 slots more than the fullest fills."""
        return world_of_files(cls, paths, device=device, **options)

    @classmethod
    def from_mapping(
        cls, document: Mapping[str, Any], device: DeviceLike = None, **options: Any
    ) -> Self:
        """A world of one env from a mapping, see `warp_collision.io.load_world_mapping`."""
        return world_of_mapping(cls, document, device=device, **options)

    def to_scene(self, env: int = 0) -> trimesh.Scene:
        """The meshes of an env, with names and poses; `load` of the scene restores the env."""
        with self._lock:
            return io.obstacle_scene(obstacles_of_env(self._slots.of(env), self._storage, env))

    def save(self, path: PathLike, env: int = 0) -> None:
        """Writes an env to a .yaml or .glb file, which `from_file` reads back as it was.

        Meshes are written after their repairs, without the `repair` and `sign` that `add` was told.
        """
        with self._lock:
            obstacles = obstacles_of_env(self._slots.of(env), self._storage, env)
        io.save_world_file(path, obstacles)

    # -- what the world holds -------------------------------------------------------------------

    @property
    def _storage(self) -> SceneStorage:
        return self._contents.storage

    @property
    def mesh_ids(self) -> Tensor:
        """(n_envs, max_meshes) int64, Warp mesh ids, 0 where a slot is empty."""
        return self._storage.tables.mesh_ids

    @property
    def mesh_from_world(self) -> Tensor:
        """(n_envs, max_meshes, 8) float32, inverse poses x, y, z, qw, qx, qy, qz and padding."""
        return self._storage.tables.mesh_from_world

    @property
    def enabled(self) -> Tensor:
        """(n_envs, max_meshes) uint8, 1 where queries check the mesh."""
        return self._storage.tables.enabled

    @property
    def n_meshes(self) -> Tensor:
        """(n_envs,) int32, filled slots."""
        return self._storage.tables.n_meshes

    @property
    def padding(self) -> Tensor:
        """(n_envs, max_meshes) float32, what the obstacle of each slot is inflated by [m]."""
        return self._storage.padding

    @property
    def n_envs(self) -> int:
        """Number of envs."""
        return self.mesh_ids.shape[0]

    @property
    def max_meshes(self) -> int:
        """Slots per env."""
        return self.mesh_ids.shape[1]

    def names(self, env: int = 0) -> list[str]:
        """Names of the meshes of an env, in slot order: index i is what queries report as i."""
        return [slot.name for slot in self._slots.of(env)]

    def poses(self, env: int = 0) -> Tensor:
        """Poses (n_meshes, 7) of an env in slot order, as `set_poses` and `poses=` take them."""
        with self._lock:
            rows = self._slots.differentiable_rows(self.mesh_from_world).detach()
            return invert_pose(rows[env, : len(self._slots.of(env)), :7])

    def pose(self, name: str | int, env: int = 0) -> Tensor:
        """Pose (7,) of a mesh in the world: x, y, z, qw, qx, qy, qz, a new tensor on the device."""
        with self._lock:
            return self.poses(env)[self._slots.index(name, env)].clone()

    def report(self, name: str | int, env: int = 0) -> MeshReport:
        """What was found in a mesh when it was loaded; see `MeshReport`.

        Example:
            >>> from warp_collision import Cuboid, MeshWorld
            >>> world = MeshWorld()
            >>> world.add("table", Cuboid((1.2, 0.8, 0.04)))
            0
            >>> print(world.report("table").shape)
            Cuboid(dims=(1.2, 0.8, 0.04))
        """
        with self._lock:
            return self._slots.of(env)[self._slots.index(name, env)].obstacle.report

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
        padding: float = 0.0,
    ) -> int:
        """Adds a mesh or an exact shape to an env.

        Args:
            name: unique in the env.
            mesh: a `trimesh.Trimesh` in metres or the units that it declares, a pair
                (vertices (n, 3) [m], faces (n, 3)), the path of a mesh file, or a `Cuboid`,
                `Sphere`, `Capsule` or `Cylinder`. Trimesh's primitives and meshes that are cuboids
                to rounding become exact shapes too, unless `repair` or `sign` is given. Equal
                geometry is stored once, whatever its names and envs.
            pose: x, y, z, qw, qx, qy, qz of the mesh in the world, a quaternion of any length but
                0, or a rigid 4 x 4 matrix; identity if None. Gradients as in `set_pose`.
            env: which env.
            enabled: whether queries check it.
            replace: give the mesh of this name new geometry, pose and state; its slot stays.
            repair: see `geometry.prepare`, also for what is too thin to be taken.
            sign: how inside and outside are told apart: "auto", "winding" or "exact_winding".
            padding: the obstacle is inflated by this [m]: its signed distance is lowered by it.

        Returns:
            The index of its slot.

        Raises:
            ValueError: the name is taken, the env is full, the pose or the mesh is not valid.
            FileNotFoundError: there is no such file.
        """
        with self._lock:
            index = self._slots.index_for(name, env, self.max_meshes, replace)
            entry = self._obstacles.entry(name, mesh, pose, enabled, repair, sign, padding)
            self._contents.fill(env, index, [entry])
            return index

    def load(
        self, meshes: Mapping[str, MeshAndPose] | trimesh.Scene, env: int = 0, padding: float = 0.0
    ) -> None:
        """Replaces all that an env holds, unless something is not valid; no meshes empty it.

        Args:
            meshes: name to mesh, to a pair of mesh and pose, or to an `io.Obstacle`; or a
                `trimesh.Scene`, whose graph gives the poses.
            env: which env.
            padding: each mesh is inflated by this [m], and an `io.Obstacle` by its own in addition.
        """
        given = as_mapping(meshes)
        with self._lock:
            self._slots.require_room(env, len(given), self.max_meshes)
            entries = [self._obstacles.entry_of(name, v, padding) for name, v in given.items()]
            # In this order, so that queries of other threads never find the env empty.
            self._contents.fill(env, 0, entries)
            self._contents.truncate(env, len(entries))

    def remove(self, name: str | int, env: int = 0) -> None:
        """Removes a mesh; the slots behind it move up by one."""
        with self._lock:
            self._contents.remove(env, self._slots.index(name, env))

    def clear(self, env: int | None = None) -> None:
        """Removes all meshes of an env, or of all envs."""
        with self._lock:
            for index in range(self.n_envs) if env is None else [env]:
                self._slots.of(index)
                self._contents.truncate(index, 0)

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
        validate.require_growth("n_envs", n_envs, self.n_envs)
        validate.require_growth("max_meshes", max_meshes, self.max_meshes)
        with self._lock:
            self._contents.grow(n_envs, max_meshes)

    # -- moving and enabling --------------------------------------------------------------------

    def set_pose(self, name: str | int, pose: PoseLike, env: int = 0) -> None:
        """Moves a mesh.

        Args:
            name: name or slot index.
            pose: x, y, z, qw, qx, qy, qz of the mesh in the world, or a rigid 4 x 4 matrix.
                Numbers and host tensors are checked; a tensor on a CUDA device is used without
                waiting for it, and a pose that is not valid then gives NaN costs (or raises in the
                checking mode). Costs are differentiable with respect to a tensor that requires a
                gradient, and read it anew in every call, until the mesh is moved again. One that
                was computed from others gives them gradients once, as always in torch.
            env: which env.
        """
        if isinstance(pose, Tensor) and pose.is_cuda and not validate.is_checking():
            checked = validate.device_poses("pose", pose, (7,), self.device)
        else:
            checked = validate.check_pose("pose", pose)
        with self._lock:
            index = self._slots.index(name, env)
            slot = slice(index, index + 1)
            self._contents.write_poses(env, slot, checked)
            given = pose if isinstance(pose, Tensor) else checked
            self._slots.track(env, slot, given, self.mesh_from_world)

    def set_poses(self, poses: Tensor, env: int = 0) -> None:
        """Moves all meshes of an env from a tensor on the world's device, without waiting for it.

        Args:
            poses: (n_meshes of the env, 7) x, y, z, qw, qx, qy, qz in slot order, or matrices
                (n_meshes, 4, 4); those that are not rigid give NaN. May require a gradient.
            env: which env.
        """
        with self._lock:
            count = len(self._slots.of(env))
            rows = validate.device_poses("poses", poses, (count, 7), self.device)
            self._contents.write_poses(env, slice(0, count), rows)
            self._slots.track(env, slice(0, count), poses, self.mesh_from_world)

    def enable(self, name: str | int, on: bool | Tensor = True, env: int = 0) -> None:
        """Lets queries check a mesh, or skip it.

        Args:
            name: name or slot index.
            on: a bool, or a one-element tensor on the device, which is not waited for.
            env: which env.
        """
        if not isinstance(on, Tensor):
            on = torch.full((1,), validate.flag("on", on), device=self.device)
        elif on.numel() != 1:
            raise ValueError(f"on must have one element, got {validate.shape_of(on)}")
        mask = validate.device_mask("on", on.reshape(1), 1, self.device)
        with self._lock:
            index = self._slots.index(name, env)
            self._storage.write_enabled(env, slice(index, index + 1), mask)

    def set_enabled(self, mask: Tensor, env: int = 0) -> None:
        """Enables and disables all meshes of an env from a tensor, without waiting for it.

        Args:
            mask: (n_meshes of the env,) bool or integers on the world's device, in slot order.
            env: which env.
        """
        with self._lock:
            count = len(self._slots.of(env))
            enabled = validate.device_mask("mask", mask, count, self.device)
            self._storage.write_enabled(env, slice(0, count), enabled)

    def prepare(self) -> None:
        """Builds what queries build lazily; on the CPU a field of distances, too.

        The field decides most free spheres by one read until anything changes; among more than 32
        obstacles at rest some million queries build it by themselves.

        Example:
            >>> from warp_collision import MeshWorld, Sphere
            >>> world = MeshWorld(device="cpu")
            >>> world.add("ball", Sphere(0.2))
            0
            >>> world.prepare()
        """
        self._acceleration.prepare()

    def refit(self) -> None:
        """Refits the broad phase after writes to the tables that torch does not see.

        All writes on the CPU are noticed, and those of torch operations on CUDA. There, call this
        after a Warp kernel, `.data`, or a replayed CUDA graph without `set_poses` has written
        `mesh_from_world`, or capture it together with that. It does not wait for the device.
        """
        self._acceleration.refit()
