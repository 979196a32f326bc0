"""Labels as the parts of a Parquet data set: each is whole or not there, and runs resume."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.extras import require_extra
from warp_collision.labeling.columns import arrow_table
from warp_collision.labeling.labeler import PathLabeler
from warp_collision.labeling.path_row import PathRow
from warp_collision.messages import escaped

_PART = "part-{:06d}.parquet"


def labelled(labeler: PathLabeler, rows: Sequence[PathRow]) -> Any:
    """The labels of rows as an Arrow table, with their ids as text."""
    return arrow_table({"id": [str(row.id) for row in rows], **labeler.label(rows)})


def batches(rows: Iterable[PathRow], size: int) -> Iterator[list[PathRow]]:
    """The rows in lists of a size, the last of which may be shorter."""
    source = iter(rows)
    while batch := list(islice(source, size)):
        yield batch


class WrittenIds:
    """Ids of rows that were written, 8 bytes each: two ids are taken for one in 1 of 1e19 pairs."""

    def __init__(self) -> None:
        self._sorted = np.zeros(0, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, ids: Iterable[str]) -> None:
        """Adds ids."""
        self._sorted = np.union1d(self._sorted, _hashes(ids))

    def missing(self, rows: Sequence[PathRow]) -> list[PathRow]:
        """The rows whose ids were not written."""
        if not len(self):
            return [*rows]
        hashes = _hashes(str(row.id) for row in rows)
        places = np.searchsorted(self._sorted, hashes).clip(max=len(self) - 1)
        written = self._sorted[places] == hashes
        return [row for row, was in zip(rows, written, strict=True) if not was]


def _hashes(ids: Iterable[str]) -> np.ndarray:
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in ids)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


class PartWriter:
    """Writes tables into a folder as parts of a number of rows.

    A part is written under another name and then renamed, so that one that is there is whole. What
    was not yet in a part when a run ended is not there.

    Args:
        folder: is made if it does not exist.
        rows: of a part.

    Attributes:
        written: ids of the rows that are in the folder.

    Raises:
        ValueError: the folder has other files than parts.
    """

    def __init__(self, folder: Path, rows: int):
        require_extra("pyarrow", "a folder of labels")
        import pyarrow.parquet as pq

        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rows = folder, rows
        self._tables: list[Any] = []
        self._held = 0
        self.written = WrittenIds()
        parts = sorted(folder.glob("part-*.parquet"))
        others = {path.name for path in folder.iterdir()} - {path.name for path in parts}
        others = {name for name in others if not name.endswith(".tmp")}
        if others:
            raise ValueError(
                f"{escaped(str(folder))}: must be empty or have parts of an earlier run, got "
                f"{escaped(min(others), 80)!r}"
            )
        for part in parts:
            self.written.add(pq.read_table(part, columns=["id"])["id"].to_pylist())
        self._next = 1 + max((int(path.stem.split("-")[1]) for path in parts), default=-1)

    def add(self, table: Any) -> None:
        """Adds a table, and writes a part if there are enough rows."""
        self._tables.append(table)
        self._held += table.num_rows
        if self._held >= self._rows:
            self.flush()

    def flush(self) -> None:
        """Writes what was added."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._held:
            return
        path = self._folder / _PART.format(self._next)
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            pq.write_table(pa.concat_tables(self._tables), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self._next += 1
        self._tables, self._held = [], 0
