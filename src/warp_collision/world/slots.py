"""Names and obstacles of the slots of each env, and poses that require gradients."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.launching.edit import Edit
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.poses import invert_pose, pose_rows, to_rows

_HOW_TO_GROW = (
    "world.grow(max_obstacles=...) adds some; take its tensors and capture CUDA graphs anew after "
    "that"
)


class TrackedPose(NamedTuple):
    """One of some poses that require a gradient.

    Attributes:
        poses: (n, 7), (7,), (n, 4, 4) or (4, 4).
        row: which of them.
        written: (n, 8) the rows of mesh_from_world that were written for these poses.
    """

    poses: Tensor
    row: int
    written: Tensor


class UnknownNameError(KeyError):
    """A name that no obstacle has; its text is the message, without the quotes of a KeyError."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class Slot:
    """A mesh in an env.

    Attributes:
        name: unique in the env.
        obstacle: the mesh, shared with other slots.
        tracked: its pose, if that requires a gradient. Replaced as a whole: other threads read it.
        rank: increases from slot to slot of an env, and stays where slots before it are removed.
    """

    name: str
    obstacle: MeshObstacle
    tracked: TrackedPose | None = None
    rank: int = 0


_RANK, _NAME = attrgetter("rank"), attrgetter("name")


class Change(NamedTuple):
    """What an edit makes of an env.

    Attributes:
        env: which env.
        slots: all that it has afterwards.
        dropped: those that it has no more.
    """

    env: int
    slots: list[Slot]
    dropped: list[Slot]


class Slots:
    """The filled slots of all envs, in slot order.

    Attributes:
        envs: the slots of each env; replaced as a whole.
        tracks_poses: whether a pose has required a gradient.
    """

    def __init__(self, n_envs: int):
        self.envs: list[list[Slot]] = []
        self._by_name: list[dict[str, Slot]] = []  # slots of each env
        self.extend(n_envs)
        self.tracks_poses = False

    def extend(self, n_envs: int) -> None:
        """Adds empty envs until there are so many."""
        while len(self.envs) < n_envs:
            self.envs.append([])
        while len(self._by_name) < n_envs:
            self._by_name.append({})

    def fill(self, edit: Edit, env: int, first: int, new: Sequence[Slot]) -> Change:
        """Stages consecutive slots from `first`."""
        slots = self.envs[env].copy()
        last = first + len(new)
        dropped = slots[first:last]
        ranks = list(map(_RANK, dropped))
        top = slots[-1].rank + 1 if slots else 0  # of those that are added at the end
        ranks += range(top, top + len(new) - len(dropped))
        for slot, rank in zip(new, ranks, strict=True):
            slot.rank = rank
        slots[first:last] = new
        edit.then(self._publish, env, slots, dropped, new)
        return Change(env, slots, dropped)

    def fill_all(self, edit: Edit, env: int, slots: list[Slot]) -> Change:
        """Stages all slots of an env."""
        for rank, slot in enumerate(slots):
            slot.rank = rank
        dropped = self.envs[env].copy()
        edit.then(self._publish, env, slots, dropped, slots)
        return Change(env, slots, dropped)

    def remove(self, edit: Edit, env: int, index: int) -> Change:
        """Stages that a slot goes, and those behind it move up by one."""
        slots = self.envs[env].copy()
        dropped = [slots.pop(index)]
        edit.then(self._publish, env, slots, dropped, ())
        return Change(env, slots, dropped)

    def _publish(
        self, env: int, slots: list[Slot], dropped: list[Slot], new: Sequence[Slot]
    ) -> None:
        """Gives an env slots; names are looked up under the lock of the world alone."""
        by_name = self._by_name[env]
        self.envs[env] = slots
        for slot in dropped:
            by_name.pop(slot.name, None)
        for slot in new:
            by_name[slot.name] = slot

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
        found = self._find(env, name)
        if found is not None:
            return found
        names = ", ".join(repr(slot.name) for slot in slots) or "no meshes"
        raise UnknownNameError(f"name must be one of env {env}, which holds {names}; got {name!r}")

    def _find(self, env: int, name: object) -> int | None:
        slot = self._by_name[env].get(name) if isinstance(name, str) else None
        return None if slot is None else bisect_left(self.envs[env], slot.rank, key=_RANK)

    def index_for(self, name: str, env: int, max_obstacles: int, replace: bool) -> int:
        """The index of the slot that a mesh is to fill: of its name, or the first free one."""
        slots = self.of(env)
        found = self._find(env, name)
        if found is not None:
            if replace:
                return found
            raise ValueError(
                f"name must be new in env {env}, got {name!r} again; pass replace=True to give it "
                "new geometry"
            )
        if len(slots) >= max_obstacles:
            raise ValueError(
                f"env {env} must have a free slot for {name!r}, all {max_obstacles} are taken; "
                f"{_HOW_TO_GROW}"
            )
        return len(slots)

    def are_sharing(self, obstacle: MeshObstacle) -> bool:
        """Whether several slots have an obstacle."""
        return sum(slot.obstacle is obstacle for slots in self.envs for slot in slots) > 1

    def index_for_many(self, names: Iterable[str], env: int, max_obstacles: int) -> int:
        """The index of the first of consecutive free slots for new names."""
        new = list(names)
        first = len(self.of(env))
        self.require_room(env, first + len(new), max_obstacles)
        for name in new:
            self.index_for(name, env, max_obstacles, replace=False)
        return first

    def require_room(self, env: int, count: int, max_obstacles: int) -> None:
        """Requires an env that exists, with a slot for each of so many meshes."""
        self.of(env)
        if count > max_obstacles:
            raise ValueError(
                f"env {env} must have a slot for each mesh, got {count} meshes for {max_obstacles} "
                f"slots; {_HOW_TO_GROW}"
            )

    def track(self, slots: Sequence[Slot], poses: Tensor, written: Tensor) -> None:
        """Remembers poses that require a gradient, a row each, and forgets those before.

        Args:
            slots: which ones.
            poses: a row for each slot.
            written: (n, 8) the rows of mesh_from_world that are written for them.
        """
        is_tracked = poses.requires_grad and torch.is_grad_enabled()
        if not is_tracked and not self.tracks_poses:
            return
        self.tracks_poses = True
        for row, slot in enumerate(slots):
            slot.tracked = TrackedPose(poses, row, written) if is_tracked else None

    def differentiable_rows(self, rows: Tensor) -> Tensor:
        """Rows of mesh_from_world (n_envs, slots, 8) as functions of the poses of their slots.

        Rows that others were written to since are taken as they are. What the rows have no room for
        is left out: another thread may add envs and slots.
        """
        runs = _tracked_runs(self.envs, *rows.shape[:2]) if self.tracks_poses else []
        if not runs:
            return rows
        # One inverse for all, and pieces put together: indices would have to come from the host.
        poses = torch.cat([poses.to(rows) for _, poses, _ in runs])
        inverses = to_rows(invert_pose(poses)).split([len(poses) for _, poses, _ in runs])
        flat, pieces, end = rows.flatten(0, 1), [], 0
        for (begin, _, written), inverse in zip(runs, inverses, strict=True):
            pieces.append(flat[end:begin])
            end = begin + len(inverse)
            pieces.append(_unless_written(flat[begin:end], written, inverse))
        return torch.cat([*pieces, flat[end:]]).view_as(rows)


def _unless_written(rows: Tensor, written: Tensor, inverses: Tensor) -> Tensor:
    """Inverse poses (..., 8), but rows that are not those written for them, without waiting."""
    is_same = (rows == written) | (rows.isnan() & written.isnan())
    return torch.where(is_same.all(-1, keepdim=True), inverses, rows)


def _tracked_runs(
    envs: Sequence[Sequence[Slot]], n_envs: int, n_slots: int
) -> list[tuple[int, Tensor, Tensor]]:
    """Poses (n, 7) that require a gradient, of consecutive slots, from a slot of all envs.

    And the rows (n, 8) that were written for them.
    """
    runs: list[tuple[int, TrackedPose, int]] = []
    for env, slots in enumerate(envs[:n_envs]):
        for index, slot in enumerate(slots[:n_slots], env * n_slots):
            tracked = slot.tracked
            if tracked is None:
                continue
            if runs:
                begin, first, count = runs[-1]
                follows = (begin + count, first.row + count) == (index, tracked.row)
                if follows and tracked.written is first.written:
                    runs[-1] = (begin, first, count + 1)
                    continue
            runs.append((index, tracked, 1))
    return [(begin, *_rows_from(tracked, count)) for begin, tracked, count in runs]


def _rows_from(tracked: TrackedPose, count: int) -> tuple[Tensor, Tensor]:
    """Poses (count, 7) from one on, and the rows (count, 8) written for them."""
    rows = slice(tracked.row, tracked.row + count)
    return pose_rows(tracked.poses)[rows], tracked.written[rows]
