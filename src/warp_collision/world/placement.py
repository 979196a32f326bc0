"""Where the meshes of a world stand, and which of them take part."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.launching.launch import SceneTables
from warp_collision.obstacles.mesh_obstacle import MeshObstacle, PoseLike
from warp_collision.poses import invert_pose, to_rows
from warp_collision.world.tables import WorldTables


@dataclass
class Slot:
    """A mesh in an env.

    Attributes:
        name: unique in the env.
        obstacle: the mesh, shared with other slots.
        poses: (n, 7) or (7,) poses that require a gradient, of which the mesh has one; or None.
        row: which of them.
    """

    name: str
    obstacle: MeshObstacle
    poses: Tensor | None = None
    row: int = 0


class PlacedMeshes(WorldTables):
    """Names, poses and enable masks on top of the tables."""

    def __init__(self, n_envs: int, max_meshes: int, device: torch.device):
        super().__init__(n_envs, max_meshes, device)
        self._slots: list[list[Slot]] = [[] for _ in range(n_envs)]
        keep_alive(self.tables(), self._slots)
        self._tracks_poses = False  # whether a pose has required a gradient

    def names(self, env: int = 0) -> list[str]:
        """Names of the meshes of an env, in slot order: index i is what queries report as i."""
        return [slot.name for slot in self._env(env)]

    def pose(self, name: str | int, env: int = 0) -> Tensor:
        """Pose (7,) of a mesh in the world: x, y, z, qw, qx, qy, qz, a new tensor on the device."""
        with self._lock:
            index = self._index(name, env)
            slot = self._slots[env][index]
            row = self.mesh_from_world[env, index, :7]
            if slot.poses is not None:
                row = invert_pose(slot.poses.detach().reshape(-1, 7)[slot.row].to(row))
            return invert_pose(row)

    def set_pose(self, name: str | int, pose: PoseLike, env: int = 0) -> None:
        """Moves a mesh.

        Args:
            name: name or slot index.
            pose: x, y, z, qw, qx, qy, qz of the mesh in the world. Numbers and host tensors are
                checked; a tensor on a CUDA device is used without waiting for it, and a pose that
                is not finite then gives NaN costs (or raises in the checking mode). Costs are
                differentiable with respect to a tensor that requires a gradient, and read it anew
                in every call, until the mesh is moved again; `mesh_from_world` keeps what it was
                here. One that was computed from others gives all of them gradients, once: each
                backward frees how it was computed, as always in torch.
            env: which env.
        """
        if isinstance(pose, Tensor) and pose.is_cuda and not validate.is_checking():
            checked = validate.device_poses("pose", pose, (7,), self.device)
        else:
            checked = validate.check_pose("pose", pose)
        with self._lock:
            index = self._index(name, env)
            place = slice(index, index + 1)
            self._write_poses(env, place, checked)
            self._track(env, place, pose if isinstance(pose, Tensor) else checked)

    def set_poses(self, poses: Tensor, env: int = 0) -> None:
        """Moves all meshes of an env from a tensor on the world's device, without waiting for it.

        Args:
            poses: (n_meshes of the env, 7) x, y, z, qw, qx, qy, qz in slot order; may require a
                gradient as in `set_pose`.
            env: which env.
        """
        with self._lock:
            count = len(self._env(env))
            poses = validate.device_poses("poses", poses, (count, 7), self.device)
            if validate.is_checking():
                for row in range(count):
                    validate.check_pose(f"poses[{row}]", poses[row])
            self._write_poses(env, slice(0, count), poses)
            self._track(env, slice(0, count), poses)

    def enable(self, name: str | int, on: bool | Tensor = True, env: int = 0) -> None:
        """Lets queries check a mesh, or skip it.

        Args:
            name: name or slot index.
            on: a bool, or a one-element tensor on the device, which is not waited for.
            env: which env.
        """
        if isinstance(on, Tensor) and on.numel() != 1:
            raise ValueError(f"on must have one element, got {validate.shape_of(on)}")
        with self._lock:
            index = self._index(name, env)
            if isinstance(on, Tensor):
                self._write_enabled(on.reshape(1), env, slice(index, index + 1))
            else:
                self.enabled[env, index].fill_(int(bool(on)))

    def set_enabled(self, mask: Tensor, env: int = 0) -> None:
        """Enables and disables all meshes of an env from a tensor, without waiting for it.

        Args:
            mask: (n_meshes of the env,) bool or integers on the world's device, in slot order.
            env: which env.
        """
        with self._lock:
            self._write_enabled(mask, env, slice(0, len(self._env(env))))

    # -- inside ---------------------------------------------------------------------------------

    def _write_enabled(self, mask: Tensor, env: int, place: slice) -> None:
        count = place.stop - place.start
        mask = validate.require_tensor("mask", mask, f"({count},)")
        if mask.shape != (count,):
            raise ValueError(
                f"mask must have shape (n_meshes,) = ({count},), got {validate.shape_of(mask)}"
            )
        if mask.dtype.is_floating_point or mask.dtype.is_complex:
            raise TypeError(f"mask must be bool or integers, got {mask.dtype}")
        validate.require_device("mask", mask, self.device)
        self.enabled[env, place].copy_(mask != 0)

    def differentiable_tables(self) -> SceneTables:
        """The tables, with rows that are functions of the poses that require a gradient."""
        tables = self.tables()
        if not self._tracks_poses:
            return tables
        rows = tables.mesh_from_world
        runs = self._tracked_runs(*rows.shape[:2])
        if not runs:
            return tables
        # One inverse for all, and pieces put together: indices would have to come from the host.
        poses = torch.cat([poses.to(rows) for _, poses in runs])
        inverses = to_rows(invert_pose(poses)).split([len(poses) for _, poses in runs])
        flat, pieces, end = rows.flatten(0, 1), [], 0
        for (begin, _), inverse in zip(runs, inverses, strict=True):
            pieces += [flat[end:begin], inverse]
            end = begin + len(inverse)
        whole = torch.cat([*pieces, flat[end:]])
        return tables._replace(mesh_from_world=whole.view_as(rows))

    def _tracked_runs(self, n_envs: int, n_slots: int) -> list[tuple[int, Tensor]]:
        """Poses that require a gradient: of consecutive slots, counted over all envs, from one."""
        found: list[tuple[int, Tensor, int, int]] = []
        # Slices: another thread may add envs and slots that the tables at hand do not have.
        for env, slots in enumerate(self._slots[:n_envs]):
            for place, slot in enumerate(slots[:n_slots], env * n_slots):
                if slot.poses is None:
                    continue
                begin, poses, first, count = found[-1] if found else (-1, None, 0, 0)
                if poses is slot.poses and (begin + count, first + count) == (place, slot.row):
                    found[-1] = (begin, slot.poses, first, count + 1)
                else:
                    found.append((place, slot.poses, slot.row, 1))
        return [
            (begin, poses.reshape(-1, 7)[first : first + count])
            for begin, poses, first, count in found
        ]

    def _track(self, env: int, place: slice, poses: Tensor) -> None:
        """Remembers poses that require a gradient, a row each, and forgets those before."""
        tracked = poses.requires_grad and torch.is_grad_enabled()
        if not tracked and not self._tracks_poses:
            return
        self._tracks_poses = True
        for row, slot in enumerate(self._slots[env][place]):
            slot.poses, slot.row = (poses, row) if tracked else (None, 0)

    def _env(self, env: int) -> list[Slot]:
        validate.require_int("env", env)
        if not 0 <= env < len(self._slots):
            raise IndexError(f"env must be in [0, {len(self._slots)}), got {env}")
        return self._slots[env]

    def _index(self, name: str | int, env: int) -> int:
        slots = self._env(env)
        if isinstance(name, Integral) and not isinstance(name, bool):
            place = int(name)
            if not 0 <= place < len(slots):
                raise IndexError(f"index must be in [0, {len(slots)}) in env {env}, got {name}")
            return place
        for index, slot in enumerate(slots):
            if slot.name == name:
                return index
        known = ", ".join(repr(slot.name) for slot in slots) or "no meshes"
        raise KeyError(f"name must be one of env {env}, which holds {known}; got {name!r}")


def keep_alive(tables: SceneTables, holder: object) -> None:
    """Ties meshes to the memory of the ids: whoever still has the tensor has the meshes."""
    tables.mesh_ids.untyped_storage().holder = holder  # pyright: ignore[reportAttributeAccessIssue]
