"""What a world holds, to be read: tables, names, poses, obstacles and reports."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from warp_collision import io, validate
from warp_collision.devices import canonical_device, is_capturing, require_warp, synchronize
from warp_collision.io.scene_builder import Obstacle, check_pose
from warp_collision.launching.edit import Edit
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.notebooks import notebook_html
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.poses import invert_pose
from warp_collision.world.acceleration import Acceleration
from warp_collision.world.obstacle_cache import ObstacleCache
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slots

if TYPE_CHECKING:
    import trimesh

DeviceLike = torch.device | str | int | None
PathLike = str | os.PathLike[str]


class WorldReader:
    """The parts of a world, and all that is read of them; `MeshWorld` changes them."""

    def __init__(self, n_envs: int, max_obstacles: int, device: DeviceLike, grid_cells: int):
        """Creates empty tables."""
        validate.require_count("n_envs", n_envs)
        validate.require_count("max_obstacles", max_obstacles)
        self.device = canonical_device(device)
        with quiet_warp():
            require_warp(self.device)
        self._lock = threading.RLock()
        self._slots = Slots(n_envs)
        self._obstacles = ObstacleCache(self.device, grid_cells)
        self._storage = SceneStorage(n_envs, max_obstacles, self.device)  # growing replaces it
        self._storage.keep_alive(self._slots.envs)
        self._acceleration = Acceleration(self._storage.tables, self._lock)
        self._storage.scene.source = self._acceleration

    def __repr__(self) -> str:
        counts = [len(slots) for slots in self._slots.envs]
        return f"MeshWorld({sum(counts)} meshes in {self.n_envs} envs on {self.device})"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def __len__(self) -> int:
        return sum(map(len, self._slots.envs))

    def __bool__(self) -> bool:
        return True  # a world, with or without obstacles

    def __contains__(self, name: object) -> bool:
        return any(slot.name == name for slots in self._slots.envs for slot in slots)

    def __iter__(self) -> Iterator[str]:
        """Names of the obstacles, each once, in the order of envs and slots."""
        return iter(dict.fromkeys(slot.name for slots in self._slots.envs for slot in slots))

    def to_scene(self, env: int = 0) -> trimesh.Scene:
        """The meshes of an env, with names and poses; `load` of the scene restores the env."""
        return io.obstacle_scene(self.obstacles(env))

    def save(self, path: PathLike, env: int = 0) -> None:
        """Writes an env to a .yaml or .glb file, which `from_file` reads back as it was.

        Meshes are written after their repairs, and as sheets if they are; otherwise without the
        `repair` and `sign` that were passed to `add`.
        """
        io.save_world_file(path, self.obstacles(env))

    @property
    def mesh_ids(self) -> Tensor:
        """(n_envs, max_obstacles) int64, Warp mesh ids, 0 where a slot is empty.

        They are for kernels of others and the drop-in Functions. The first read gives each exact or
        sensed shape a Warp mesh, the box around it. In a captured graph it must not be the first.
        Queries of this library do not read them.
        """
        if not self._obstacles.with_meshes:
            with self._lock:
                self._give_meshes()
        return self._storage.mesh_ids

    def _give_meshes(self) -> None:
        """Gives all obstacles a Warp mesh, from now on."""
        if is_capturing(self.device):
            raise RuntimeError("mesh_ids must be read once before they are in a captured graph")
        edit, envs = Edit(), self._slots.envs
        obstacles = {id(slot.obstacle): slot.obstacle for slots in envs for slot in slots}
        meshes = {key: obstacle.mesh_for_others() for key, obstacle in obstacles.items()}
        for env, slots in enumerate(envs):
            ids = [int(meshes[id(slot.obstacle)].id) for slot in slots]
            self._storage.write_ids(edit, env, ids)
        for key, obstacle in obstacles.items():
            edit.then(setattr, obstacle, "mesh", meshes[key])
        edit.then(self._storage.ids_are_written)
        edit.then(setattr, self._obstacles, "with_meshes", True)
        edit.run()
        synchronize(self.device)

    @property
    def mesh_from_world(self) -> Tensor:
        """(n_envs, max_obstacles, 8) float32, inverse poses x, y, z, qw, qx, qy, qz and padding."""
        return self._storage.tables.mesh_from_world

    @property
    def enabled(self) -> Tensor:
        """(n_envs, max_obstacles) uint8, 1 where queries check the mesh."""
        return self._storage.tables.enabled

    @property
    def n_meshes(self) -> Tensor:
        """(n_envs,) int32, filled slots."""
        return self._storage.tables.n_meshes

    @property
    def padding(self) -> Tensor:
        """(n_envs, max_obstacles) float32, what the obstacle of each slot is inflated by [m]."""
        return self._storage.padding

    @property
    def n_envs(self) -> int:
        """Number of envs."""
        return self._storage.shape[0]

    @property
    def max_obstacles(self) -> int:
        """Slots per env."""
        return self._storage.shape[1]

    def names(self, env: int = 0) -> list[str]:
        """Names of the meshes of an env, in slot order: index i is what queries report as i."""
        return [slot.name for slot in self._slots.of(env)]

    def poses(self, env: int = 0) -> Tensor:
        """Poses (n_obstacles, 7) of an env in slot order, as `set_poses` and `poses=` take them."""
        with self._lock:
            rows = self._slots.differentiable_rows(self.mesh_from_world).detach()
            return invert_pose(rows[env, : len(self._slots.of(env)), :7])

    def pose(self, name: str | int, env: int = 0) -> Tensor:
        """Pose (7,) of a mesh in the world: x, y, z, qw, qx, qy, qz, a new tensor on the device."""
        with self._lock:
            return self.poses(env)[self._slots.index(name, env)].clone()

    def obstacles(self, env: int = 0) -> dict[str, Obstacle]:
        """The obstacles of an env by name, in slot order: exact shapes, meshes after their repairs.

        Example:
            >>> from warp_collision import MeshWorld, Sphere
            >>> world = MeshWorld()
            >>> world.add("ball", Sphere(0.1), (0.0, 0.0, 0.5, 1, 0, 0, 0))
            0
            >>> world.obstacles()["ball"].geometry
            Sphere(radius=0.1)
        """
        from warp_collision.io.placing import matrix_from, pose_from

        with self._lock:
            slots = self._slots.of(env)
            rows = self._slots.differentiable_rows(self.mesh_from_world).detach()[env]
            poses = invert_pose(rows[: len(slots), :7].double().cpu())
            enabled, padding = self.enabled[env].tolist(), self.padding[env].tolist()
            meshes: dict[int, trimesh.Trimesh] = {}
            obstacles: dict[str, Obstacle] = {}
            for index, slot in enumerate(slots):
                check_pose(f"pose of {slot.name!r}", poses[index].tolist())
                matrix = matrix_from(poses[index].numpy())
                placed, sensed = slot.obstacle.placed, slot.obstacle.sensed
                if sensed is not None:
                    geometry = sensed
                elif placed is not None:
                    geometry = placed.shape
                    matrix = matrix @ placed.matrix
                else:
                    key = id(slot.obstacle)
                    if key not in meshes:
                        meshes[key] = slot.obstacle.to_trimesh()
                    geometry = meshes[key]
                pose = pose_from(matrix[:3, :3], matrix[:3, 3])
                state = padding[index], bool(enabled[index])
                sign = "sheet" if slot.obstacle.report.sign_method == "sheet" else "auto"
                obstacles[slot.name] = Obstacle(geometry, pose, *state, sign)
        return obstacles

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


def version_of(world: WorldReader) -> Any:
    """Changes with each edit of a world that torch sees, and where its tables move.

    None where it cannot be told.
    """
    storage = world._storage
    tables, slots = storage.tables, world._slots
    if slots.tracks_poses:
        if slots.differentiable_rows(tables.mesh_from_world) is not tables.mesh_from_world:
            return None
    known = [(part._version, part.data_ptr()) for part in tables if part is not None]
    return storage.scene.handle, known


def version_as_fitted(world: WorldReader) -> Any:
    """As `version_of`, right behind `Scene.completed`: on a CPU by what that has compared.

    So it takes less time, and changes with poses that were written past torch, too.
    """
    fitted = None if world._slots.tracks_poses else world._acceleration.fitted
    if fitted is None:
        return version_of(world)
    enabled = world._storage.tables.enabled  # the only table of a launch that it does not compare
    return fitted, enabled._version, enabled.data_ptr()
