"""Names and obstacles of the slots of each env, and poses that require gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.poses import invert_pose, pose_rows, to_rows

_HOW_TO_GROW = (
    "world.grow(max_meshes=...) adds some; take its tensors and capture CUDA graphs anew after that"
)


@dataclass
class Slot:
    """A mesh in an env.

    Attributes:
        name: unique in the env.
        obstacle: the mesh, shared with other slots.
        poses: (n, 7), (7,), (n, 4, 4) or (4, 4) poses that require a gradient, of which the mesh
            has one; or None.
        row: which of them.
    """

    name: str
    obstacle: MeshObstacle
    poses: Tensor | None = None
    row: int = 0

    @property
    def pose(self) -> Tensor | None:
        """Its pose (7,) that requires a gradient, if it has one."""
        return None if self.poses is None else pose_rows(self.poses)[self.row]


class Slots:
    """The filled slots of all envs, in slot order; index errors name what there is.

    Attributes:
        envs: the slots of each env.
    """

    def __init__(self, n_envs: int):
        self.envs: list[list[Slot]] = [[] for _ in range(n_envs)]
        self._tracks_poses = False  # whether a pose has required a gradient

    @property
    def most(self) -> int:
        """How many the fullest env has."""
        return max(len(slots) for slots in self.envs)

    def of(self, env: int) -> list[Slot]:
        """The slots of an env."""
        validate.require_int("env", env)
        if not 0 <= env < len(self.envs):
            raise IndexError(f"env must be in [0, {len(self.envs)}), got {env}")
        return self.envs[env]

    def index(self, name: str | int, env: int) -> int:
        """The index of a slot by name or index."""
        slots = self.of(env)
        if isinstance(name, Integral) and not isinstance(name, bool):
            index = int(name)
            if not 0 <= index < len(slots):
                raise IndexError(f"index must be in [0, {len(slots)}) in env {env}, got {name}")
            return index
        for index, slot in enumerate(slots):
            if slot.name == name:
                return index
        known = ", ".join(repr(slot.name) for slot in slots) or "no meshes"
        raise KeyError(f"name must be one of env {env}, which holds {known}; got {name!r}")

    def index_for(self, name: str, env: int, max_meshes: int, replace: bool) -> int:
        """The index of the slot that a mesh is to fill: of its name, or the first free one."""
        slots = self.of(env)
        for index, slot in enumerate(slots):
            if slot.name == name:
                if replace:
                    return index
                raise ValueError(
                    f"name must be new in env {env}, got {name!r} again; pass replace=True to give "
                    "it new geometry"
                )
        if len(slots) >= max_meshes:
            raise ValueError(
                f"env {env} must have a free slot for {name!r}, all {max_meshes} are taken; "
                f"{_HOW_TO_GROW}"
            )
        return len(slots)

    def require_room(self, env: int, count: int, max_meshes: int) -> None:
        """Requires an env that exists, with a slot for each of so many meshes."""
        self.of(env)
        if count > max_meshes:
            raise ValueError(
                f"env {env} must have a slot for each mesh, got {count} meshes for {max_meshes} "
                f"slots; {_HOW_TO_GROW}"
            )

    def track(self, env: int, slots: slice, poses: Tensor) -> None:
        """Remembers poses that require a gradient, a row each, and forgets those before."""
        tracked = poses.requires_grad and torch.is_grad_enabled()
        if not tracked and not self._tracks_poses:
            return
        self._tracks_poses = True
        for row, slot in enumerate(self.envs[env][slots]):
            slot.poses, slot.row = (poses, row) if tracked else (None, 0)

    def differentiable_rows(self, rows: Tensor) -> Tensor:
        """Rows of mesh_from_world (n_envs, slots, 8) as functions of the poses of their slots.

        What the rows have no room for is left out: another thread may add envs and slots.
        """
        runs = _tracked_runs(self.envs, *rows.shape[:2]) if self._tracks_poses else []
        if not runs:
            return rows
        # One inverse for all, and pieces put together: indices would have to come from the host.
        poses = torch.cat([poses.to(rows) for _, poses in runs])
        inverses = to_rows(invert_pose(poses)).split([len(poses) for _, poses in runs])
        flat, pieces, end = rows.flatten(0, 1), [], 0
        for (begin, _), inverse in zip(runs, inverses, strict=True):
            pieces += [flat[end:begin], inverse]
            end = begin + len(inverse)
        return torch.cat([*pieces, flat[end:]]).view_as(rows)


def _tracked_runs(
    envs: Sequence[Sequence[Slot]], n_envs: int, n_slots: int
) -> list[tuple[int, Tensor]]:
    """Poses (n, 7) that require a gradient, of consecutive slots, from a slot of all envs."""
    found: list[tuple[int, Tensor, int, int]] = []
    for env, slots in enumerate(envs[:n_envs]):
        for index, slot in enumerate(slots[:n_slots], env * n_slots):
            if slot.poses is None:
                continue
            begin, poses, first, count = found[-1] if found else (-1, None, 0, 0)
            if poses is slot.poses and (begin + count, first + count) == (index, slot.row):
                found[-1] = (begin, slot.poses, first, count + 1)
            else:
                found.append((index, slot.poses, slot.row, 1))
    return [
        (begin, pose_rows(poses)[first : first + count]) for begin, poses, first, count in found
    ]
