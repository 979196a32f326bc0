"""What was moved in a world: undo, reset, and the world as a file."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from warp_collision.io import Obstacle, save_world_file

_NAME = "world.yaml"

Pose = tuple[float, ...]


class Move(NamedTuple):
    """An obstacle, and the pose that it was moved from.

    Attributes:
        env: of the obstacle.
        name: of the obstacle.
        pose: before, x, y, z, qw, qx, qy, qz.
        gesture: which drag it is of: a drag of many moves is undone at once.
    """

    env: int
    name: str
    pose: Pose
    gesture: int


class Moves:
    """The moves so far, the last of which can be undone."""

    def __init__(self) -> None:
        self._done: list[Move] = []
        self._gesture = 0

    def __len__(self) -> int:
        return len(self._done)

    def begin(self) -> None:
        """Begins a drag."""
        self._gesture += 1

    def add(self, env: int, name: str, pose: Pose) -> None:
        """Notes that an obstacle is moved from a pose."""
        move = Move(env, name, pose, self._gesture)
        if not self._done or (self._done[-1].env, self._done[-1].name, self._done[-1].gesture) != (
            env, name, self._gesture,
        ):  # fmt: skip
            self._done.append(move)

    def undo(self, env: int) -> Move | None:
        """Takes back the last move in an env; None if there is none."""
        index = next((i for i in reversed(range(len(self))) if self._done[i].env == env), None)
        return None if index is None else self._done.pop(index)

    def reset(self, env: int) -> dict[str, Pose]:
        """Takes back all moves in an env: where each obstacle was before the first."""
        first: dict[str, Pose] = {}
        for move in self._done:
            if move.env == env:
                first.setdefault(move.name, move.pose)
        self._done = [move for move in self._done if move.env != env]
        return first


def as_download(obstacles: Mapping[str, Obstacle]) -> tuple[str, bytes]:
    """Name and content of a world file; with its meshes, if it has some, in a .zip."""
    with tempfile.TemporaryDirectory() as folder:
        save_world_file(Path(folder) / _NAME, obstacles)
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        if len(files) == 1:
            return _NAME, files[0].read_bytes()
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, path.relative_to(folder).as_posix())
        return "world.zip", packed.getvalue()
