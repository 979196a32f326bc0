"""Episodes of LeRobot data sets of version 3 as paths: Parquet files with a row for each frame."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.labeling.columns import open_parquet
from warp_collision.labeling.path_row import PathRow
from warp_collision.labeling.places import joined, open_file
from warp_collision.messages import any_error_at, escaped, short_repr

_INFO = "meta/info.json"
_STATE = "observation.state"
_EPISODE, _FRAME = "episode_index", "frame_index"
_BATCH = 4_096  # frames that are read at a time


def is_lerobot(names: Sequence[str]) -> bool:
    """Whether a folder with files of these names is a LeRobot data set of any version."""
    return _INFO in names and any(name.startswith("data/") for name in names)


def lerobot_names(folder: Path | str, names: Sequence[str]) -> list[str]:
    """The names of the files of frames of a data set, of those of all of its files.

    Raises:
        ValueError: it has another version.
        FileNotFoundError: it has no files of frames.
    """
    where = joined(folder, _INFO)
    with any_error_at(escaped(str(where))), open_file(where) as file:
        version = json.loads(file.read()).get("codebase_version")
        if not str(version).startswith("v3."):
            raise ValueError(f"codebase_version must be v3, got {short_repr(version)}")
    frames = [name for name in names if name.startswith("data/") and name.endswith(".parquet")]
    if not frames:
        raise FileNotFoundError(f"{escaped(str(folder))}: must have data/**/*.parquet, has none")
    return frames


def read_episodes(file: str, columns: Mapping[str, str]) -> Iterator[PathRow]:
    """The episodes of a file of frames, each as a path, with its index as id.

    Args:
        file: of a data set.
        columns: the column of a path, by default `observation.state`, and of a world if there is
            one, of which the first frame of an episode has the value.
    """
    frames = open_parquet(file)
    state, world = columns.get("path", _STATE), columns.get("world", "world")
    present = frames.schema_arrow.names
    for name in (state, _EPISODE):
        if name not in present:
            raise ValueError(f"must have a column {name!r}, got {short_repr(present)}")
    wanted = [name for name in (state, _EPISODE, _FRAME, world) if name in present]
    parts: list[np.ndarray] = []
    first: dict[str, Any] = {}
    for batch in frames.iter_batches(_BATCH, columns=wanted):
        episodes = batch[_EPISODE].to_numpy()
        cuts = np.flatnonzero(np.diff(episodes)) + 1
        for begin, end in zip([0, *cuts], [*cuts, len(episodes)], strict=True):
            head = {name: batch[name][int(begin)].as_py() for name in wanted if name != state}
            if parts and head[_EPISODE] != first[_EPISODE]:
                yield _row(parts, first, world)
                parts = []
            if not parts:
                first = head
            piece = batch[state].slice(begin, end - begin)
            # Frames of different widths become rows of different lengths, which is an error later.
            values = piece.flatten().to_numpy(zero_copy_only=False)
            parts.append(values.reshape(len(piece), -1))
    if parts:
        yield _row(parts, first, world)


def _row(parts: list[np.ndarray], first: dict[str, Any], world: str) -> PathRow:
    row = PathRow(np.concatenate(parts), first.get(world), int(first[_EPISODE]))
    frame = first.get(_FRAME, 0)
    if frame != 0:
        return row._replace(
            error=f"episode must begin in this file with frame 0, got frame {frame}"
        )
    return row
