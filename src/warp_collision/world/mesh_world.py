"""The world model: which obstacles stand where, in each of several parallel envs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from warp_collision import io, validate
from warp_collision.devices import is_capturing, is_gpu, synchronize
from warp_collision.io.scene_builder import Obstacle
from warp_collision.launching.deferred_free import retire
from warp_collision.launching.edit import Edit
from warp_collision.launching.graph_memory import keep_for_graphs, memory_key
from warp_collision.messages import errors_at, escaped
from warp_collision.obstacles.distance_grid import GRID_CELLS
from warp_collision.obstacles.geometry import MeshLike, SignMethod
from warp_collision.obstacles.mesh_obstacle import MeshAndPose
from warp_collision.poses import PoseLike
from warp_collision.world.obstacle_cache import Entry
from warp_collision.world.slots import Change, Slot
from warp_collision.world.world_copy import WorldContent
from warp_collision.world.world_reader import DeviceLike, PathLike, WorldReader

if TYPE_CHECKING:
    import trimesh

ROOM = 32  # slots beside what a file fills


class MeshWorld(WorldReader):
    """Meshes, poses and enable masks of one or more parallel envs, on one device.

    The tensors can be handed to the drop-in Functions; they are updated in place, and stay the same
    objects until the world grows. Poses and enables may be changed from device tensors without
    waiting for the device, inside a captured CUDA graph too. Adding, replacing, removing and
    growing are for the host; a mesh that is no longer held is freed once no launch can read it.

    Any number of threads may query a world, and get what one thread would. They may do so while
    another thread changes it. Other envs cost what they did. A query of the env that is being
    changed may see some obstacles before the change and others after it.

    An edit is all or nothing: where memory runs out, the world is as it was before, and an
    interrupted edit leaves it as before or as the whole edit makes it.

    `len(world)` counts the obstacles of all envs, `name in world` says whether an env has one of
    this name, and iterating gives the names.

    A world can be pickled and copied: its content is sent, and the copy makes tables of its own, on
    a device of the same name. Gradients by poses stay with the original.

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
        max_obstacles: int = 32,
        device: DeviceLike = None,
        *,
        grid_cells: int = GRID_CELLS,
    ):
        """Creates a world without meshes.

        Args:
            n_envs: number of parallel envs, at least 1.
            max_obstacles: slots per env, at least 1; `grow` adds more.
            device: where everything lives; by default torch's default device.
            grid_cells: most cells of the distance grid of each mesh, 4 bytes a cell; 0 for none.
        """
        super().__init__(n_envs, max_obstacles, device, grid_cells)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with self._lock:
            content = WorldContent.of(self._slots, self._obstacles, self._storage)
        return type(self)._from_content, (content,)

    @classmethod
    def _from_content(cls, content: WorldContent) -> Self:
        n_envs, slots = content.enabled.shape
        world = cls(n_envs, slots, content.device, grid_cells=content.grid_cells)
        for env, entries in enumerate(content.entries(world._obstacles)):
            world._fill(env, 0, entries)
        # To the bit: poses that are inverted twice are rounded.
        world.mesh_from_world.copy_(torch.from_numpy(content.rows))
        return world

    # -- files ----------------------------------------------------------------------------------

    @classmethod
    def from_file(cls, path: PathLike, device: DeviceLike = None, **options: Any) -> Self:
        """A world of one env with the content of a world file.

        Args:
            path: see `warp_collision.io.load_world_file`, which names all kinds.
            device: where everything lives; by default torch's default device.
            options: of `load_world_file` and the world; without `max_obstacles` 32 slots are free.
        """
        return cls.from_files([path], device, **options)

    @classmethod
    def from_files(
        cls,
        paths: Sequence[PathLike],
        device: DeviceLike = None,
        *,
        strict: bool = False,
        package_dirs: Sequence[PathLike] = (),
        up: str | None = None,
        scale: float | None = None,
        joints: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Self:
        """A world with an env for each file, and 32 slots more than the fullest fills."""
        if isinstance(paths, str | os.PathLike) or not isinstance(paths, Sequence):
            raise TypeError(f"paths must be a sequence of paths, got {type(paths).__name__}")
        if not paths:
            raise ValueError("paths must be at least one, got none")
        reading: dict[str, Any] = {"strict": strict, "package_dirs": package_dirs}
        reading |= {"up": up, "scale": scale, "joints": joints}
        files = [io.load_world_file(path, **reading) for path in paths]
        return cls._of_envs(files, [escaped(str(path)) for path in paths], device, options)

    @classmethod
    def from_mapping(
        cls,
        document: Mapping[str, Any],
        device: DeviceLike = None,
        *,
        folder: PathLike = ".",
        strict: bool = False,
        **options: Any,
    ) -> Self:
        """A world of one env from a mapping, see `warp_collision.io.load_world_mapping`."""
        obstacles = io.load_world_mapping(document, folder=folder, strict=strict)
        return cls._of_envs([obstacles], ["mapping"], device, options)

    @classmethod
    def _of_envs(
        cls,
        envs: Sequence[Mapping[str, Obstacle]],
        where: Sequence[str],
        device: DeviceLike,
        options: dict[str, Any],
    ) -> Self:
        slots = max(len(obstacles) for obstacles in envs) + ROOM
        world = cls(len(envs), **{"max_obstacles": slots, "device": device, **options})
        for env, obstacles in enumerate(envs):
            with errors_at(where[env]):  # one of the world names the obstacle, but not its file
                world.load(obstacles, env)
        return world

    # -- changing what it holds -----------------------------------------------------------------

    def add(
        self,
        name: str,
        obstacle: MeshLike,
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
            obstacle: a mesh, a shape or a sensed obstacle. A mesh is a `trimesh.Trimesh` in metres
                or the units that it declares, a pair (vertices (n, 3) [m], faces (n, 3)), or the
                path of a file. Shapes are `Cuboid`, `Sphere`, `Capsule`, `Cylinder`, `Cone` and
                `HalfSpace`. A sensed obstacle is, for example, a `PointCloud`.
                Trimesh's primitives and meshes that are cuboids to rounding become exact shapes
                too, unless `repair` or `sign` is given. Equal geometry is stored once, whatever
                its names.
            pose: x, y, z, qw, qx, qy, qz of it in the world, or a rigid 4 x 4 matrix; identity if
                None. The quaternion may have any length but 0. Gradients as in `set_pose`.
            env: which env.
            enabled: whether queries check it.
            replace: give the obstacle of this name new geometry, pose and state; its slot stays.
            repair: see `geometry.prepare`, also for what is too thin to be taken.
            sign: what decides between inside and outside: "auto", "winding" or "exact_winding", or
                not at all: "sheet", for which both sides of the surface are outside. An open mesh
                at "auto" is a solid, with an `OpenMeshWarning`.
            padding: the obstacle is inflated by this [m]: its signed distance is lowered by it.

        Returns:
            The index of its slot.

        Raises:
            ValueError: the name is taken, the env is full, the pose or the mesh is not valid.
            FileNotFoundError: there is no such file.
        """
        with self._lock:
            index = self._slots.index_for(name, env, self._storage.shape[1], replace)
            entry = self._obstacles.entry(name, obstacle, pose, enabled, repair, sign, padding)
            self._fill(env, index, [entry])
            return index

    def add_many(self, obstacles: Mapping[str, Any], env: int = 0, padding: float = 0.0) -> None:
        """Adds obstacles at once, see `load`; all or, with errors as of `add`, none.

        Example:
            >>> from warp_collision import MeshWorld, Sphere
            >>> world = MeshWorld(max_obstacles=100)
            >>> world.add_many({f"drop {i}": (Sphere(0.01), (i, 0, 1, 1, 0, 0, 0)) for i in (1, 2)})
            >>> len(world)
            2
        """
        validate.require_mapping("obstacles", obstacles, "a mapping")
        with self._lock:
            first = self._slots.index_for_many(obstacles, env, self.max_obstacles)
            entries = [self._obstacles.entry_of(name, v, padding) for name, v in obstacles.items()]
            self._fill(env, first, entries)

    def load(
        self,
        obstacles: Mapping[str, MeshAndPose] | Mapping[str, Obstacle] | trimesh.Scene,
        env: int = 0,
        padding: float = 0.0,
    ) -> None:
        """Replaces all that an env holds, unless something is not valid; none empty it.

        Args:
            obstacles: name to mesh or shape, to a pair of it and a pose, or to an `io.Obstacle`; or
                a `trimesh.Scene`, whose graph gives the poses.
            env: which env.
            padding: each is inflated by this [m], and an `io.Obstacle` by its own in addition.
        """
        if validate.is_scene(obstacles):
            given: Mapping[str, Any] = io.scene_meshes(obstacles)
        else:
            validate.require_mapping("obstacles", obstacles, "a mapping or a trimesh.Scene")
            given = obstacles
        with self._lock:
            self._slots.require_room(env, len(given), self.max_obstacles)
            entries = [self._obstacles.entry_of(name, v, padding) for name, v in given.items()]
            self._fill(env, 0, entries, is_all=True)

    def update(self, name: str | int, seen: Any, env: int = 0, *, at: Any = None) -> None:
        """Gives an obstacle that a sensor sees new content, in its slot, pose and state.

        The tensors of the world stay as they are, and each sphere that another thread asks about is
        checked against the old content or the new one. Kernels of other libraries still find the
        box around the first content behind the mesh id. The id changes if other slots share the
        obstacle.

        A CUDA graph may capture an update of a cloud with a capacity by points on the device: each
        replay reads them anew. From then on queries of other streams must wait for updates and
        replays, and these for them. Other updates are for the host; replays see what is there.

        Args:
            name: name or slot index of a `PointCloud`, a grid or a `HeightField`.
            seen: another of its kind. Or for a cloud points, (n, 3) with the radius that the balls
                have, all of them the same, or (n, 4), treated by its `drop_invalid` and `capacity`.
                Or voxels or heights, as these take them.
            env: which env.
            at: for a `VoxelGrid`, index (3,) of the first of the voxels that `seen` replaces.

        Raises:
            TypeError: something that such an obstacle cannot become.
            ValueError: the obstacle is no sensed one, or content that it cannot have.

        Example:
            >>> import numpy as np
            >>> from warp_collision import MeshWorld, PointCloud
            >>> world = MeshWorld()
            >>> world.add("camera", PointCloud(np.zeros((1, 3)), radius=0.01))
            0
            >>> world.update("camera", np.random.default_rng(0).uniform(size=(1000, 3)))
            >>> world.report("camera").shape
            PointCloud(1000 points, radius=0.01)
        """
        with self._lock:
            index = self._slots.index(name, env)
            slot = self._slots.envs[env][index]
            if slot.obstacle.sensed is None:
                raise ValueError(f"the obstacle {slot.name!r} must be a PointCloud or a grid")
            if is_capturing(self.device):
                slot.obstacle.capture_update(slot.name, seen)
                return self._acceleration.refit()
            sensed = slot.obstacle.sensed.successor(slot.name, seen, at)
            if sensed.is_equal(slot.obstacle.sensed):
                return
            edit = Edit()
            self._acceleration.drop_tree(edit)
            if self._slots.are_sharing(slot.obstacle):
                obstacle = self._obstacles.obstacle(slot.name, sensed)
            else:
                obstacle = slot.obstacle.updated(edit, sensed)
                edit.then(self._obstacles.forget, slot.obstacle)
            change = self._slots.fill(edit, env, index, [replace(slot, obstacle=obstacle)])
            edit.then(self._acceleration.add, [obstacle])
            self._storage.replace_geometry(edit, env, index, obstacle)
            self._finish(edit, [change])

    def remove(self, name: str | int, env: int = 0) -> None:
        """Removes an obstacle; the slots behind it move up by one."""
        with self._lock:
            index = self._slots.index(name, env)
            edit = Edit()
            self._acceleration.drop_tree(edit)
            change = self._slots.remove(edit, env, index)
            self._storage.remove(edit, env, index, len(self._slots.envs[env]))
            self._finish(edit, [change])

    def clear(self, env: int | None = None) -> None:
        """Removes all obstacles of an env, or of all envs."""
        with self._lock:
            edit, changes = Edit(), []
            self._acceleration.drop_tree(edit)
            for index in range(self.n_envs) if env is None else [env]:
                self._slots.of(index)
                changes.append(self._slots.fill_all(edit, index, []))
                self._storage.truncate(edit, index, 0)
            self._finish(edit, changes)

    def grow(self, n_envs: int | None = None, max_obstacles: int | None = None) -> None:
        """Adds envs or slots; what the world holds stays.

        The tensors of the world are new objects afterwards: hand them out again, and capture CUDA
        graphs again. Graphs of before would not see later edits: in their replays all of space is
        in collision from now on, and costs are infinite.

        Args:
            n_envs: new number of envs, not below the present one.
            max_obstacles: new number of slots per env, not below the present one.
        """
        n_envs = self.n_envs if n_envs is None else n_envs
        max_obstacles = self.max_obstacles if max_obstacles is None else max_obstacles
        validate.require_growth("n_envs", n_envs, self.n_envs)
        validate.require_growth("max_obstacles", max_obstacles, self.max_obstacles)
        with self._lock:
            # The old tensors may still be read: they keep the meshes that they name.
            old = self._storage
            old.keep_alive([list(slots) for slots in self._slots.envs])
            larger = old.enlarged(n_envs, max_obstacles)
            larger.keep_alive(self._slots.envs)
            edit = Edit()
            edit.then(self._slots.extend, n_envs)
            # In this order: records of larger tables fit smaller ones, but not the reverse.
            self._acceleration.use(edit, larger.tables)
            edit.then(setattr, self, "_storage", larger)
            old.block_graphs(edit)
            edit.run()
            synchronize(self.device)

    def _fill(self, env: int, first: int, entries: list[Entry], *, is_all: bool = False) -> None:
        """Fills consecutive slots from `first`, or all of an env, and frees what they held."""
        edit, slots = Edit(), [Slot(entry.name, entry.obstacle) for entry in entries]
        obstacles = [slot.obstacle for slot in slots]
        self._acceleration.drop_tree(edit)
        if is_all:
            change = self._slots.fill_all(edit, env, slots)
        else:
            change = self._slots.fill(edit, env, first, slots)
        edit.then(self._acceleration.add, obstacles)
        if entries:
            rows = self._storage.fill(edit, env, first, entries)
            for slot, row, entry in zip(slots, rows.split(1), entries, strict=True):
                self._slots.track([slot], entry.given, row)
                if entry.padding > 0.0:
                    edit.then(setattr, entry.obstacle, "is_padded", True)
        # Last, so that queries of other threads never find the env empty.
        count = len(change.slots)
        if is_all:
            self._storage.truncate(edit, env, count)
        else:
            edit.then(self._storage.tables.n_meshes[env].fill_, count)
        self._finish(edit, [change])

    def _finish(self, edit: Edit, changes: list[Change]) -> None:
        """Runs an edit of some envs, and frees what they held once no launch can read it."""
        for change in changes:
            self._storage.ignored.stage(edit, change.env, change.slots)
        edit.then(self._changed)
        waits = False
        for change in changes:
            if change.dropped:
                edit.then(retire, change.dropped, self.device)
                waits = True
        edit.run()
        if not waits:  # so that other streams may read what was written
            synchronize(self.device)

    def _changed(self) -> None:
        self._storage.ids_are_written()
        self._acceleration.meshes_changed(max(map(len, self._slots.envs)))

    # -- moving and enabling --------------------------------------------------------------------

    def set_pose(self, name: str | int, pose: PoseLike, env: int = 0) -> None:
        """Moves a mesh.

        Args:
            name: name or slot index.
            pose: x, y, z, qw, qx, qy, qz of the mesh in the world, or a rigid 4 x 4 matrix.
                Numbers and host tensors are checked. A tensor on a GPU is used without waiting for
                it. A pose that is not valid then gives NaN costs, or raises in the checking mode.
                Costs are differentiable with respect to a tensor that requires a gradient. They
                read it anew in every call, until the mesh is moved again. A tensor that was
                computed from others gives them gradients once, as always in torch.
            env: which env.
        """
        if isinstance(pose, Tensor) and is_gpu(pose.device) and not validate.is_checking():
            checked = validate.device_poses("pose", pose, (7,), self.device)
        else:
            checked = validate.check_pose("pose", pose)
        with self._lock:
            index = self._slots.index(name, env)
            given = pose if isinstance(pose, Tensor) else checked
            self._move(env, slice(index, index + 1), checked, given)

    def set_poses(self, poses: Tensor, env: int = 0) -> None:
        """Moves all meshes of an env from a tensor on the world's device, without waiting for it.

        Args:
            poses: (n_obstacles of the env, 7) x, y, z, qw, qx, qy, qz in slot order, or matrices
                (n_obstacles, 4, 4); those that are not rigid give NaN. May require a gradient.
            env: which env.
        """
        with self._lock:
            count = len(self._slots.of(env))
            rows = validate.device_poses("poses", poses, (count, 7), self.device)
            self._move(env, slice(0, count), rows, poses)

    def _move(self, env: int, slots: slice, poses: Tensor, given: Tensor) -> None:
        """Writes poses (n, 7) of consecutive slots, which are these given ones."""
        edit = Edit()
        rows = self._storage.move(edit, env, slots, poses)
        edit.then(self._slots.track, self._slots.envs[env][slots], given, rows)
        edit.run()
        keep_for_graphs(self.mesh_from_world, self.device, memory_key(self.mesh_from_world))
        self._acceleration.refit()

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
            mask: (n_obstacles of the env,) bool or integers on the world's device, in slot order.
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


def require_world(world: object) -> None:
    """Requires a `MeshWorld` as the argument `world`."""
    if not isinstance(world, MeshWorld):
        raise TypeError(f"world must be a MeshWorld, got {type(world).__name__}")
