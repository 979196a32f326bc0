"""Labels as the parts of a Parquet data set: each is whole or not there, and runs resume.

A folder of labels holds parts, a manifest that says what they are labels of, and a lock for each
shard that is being labelled. Names of the last two begin with an underscore, so that readers of
data sets pass over them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.extras import require_extra
from warp_collision.labeling.columns import FILES, arrow_table
from warp_collision.labeling.label_folder import label_folder
from warp_collision.labeling.labeler import PathLabeler
from warp_collision.labeling.path_row import PathRow
from warp_collision.labeling.places import joined
from warp_collision.labeling.world_cache import digest_of
from warp_collision.messages import escaped, short_repr

_MANIFEST = "_manifest.json"
_OF_PART = b"warp_collision.world_files"  # in the metadata of its schema
_TOLD = 3  # files that an error names
_PART = re.compile(r"part-[0-9T]+-[0-9a-f]+-(?P<shard>\d+of\d+)-\d+\.parquet")


def labelled(labeler: PathLabeler, rows: Sequence[PathRow], id_type: str) -> Any:
    """The labels of rows as an Arrow table, with their ids, and where in the inputs they were.

    The first row has the files of the worlds, which `PartWriter` takes out of the table.
    """
    sources = [("", -1) if row.source is None else row.source for row in rows]
    first = {
        "id": [row.id for row in rows],
        "source": [source for source, _ in sources],
        "row": [index for _, index in sources],
    }
    labels, files = labeler.label_with_files(rows)
    named = {FILES: [json.dumps(files), *[None] * (len(rows) - 1)][: len(rows)]}
    return arrow_table({**first, **labels, **named}, id_type)


def batches(rows: Iterable[PathRow], size: int) -> Iterator[list[PathRow]]:
    """The rows in lists of a size, the last of which may be shorter."""
    source = iter(rows)
    while batch := list(islice(source, size)):
        yield batch


def _difference(entry: str, found: Any, wanted: Any) -> str:
    """How an entry of a manifest differs: of files the names of a few, each with a word."""
    if not (isinstance(found, dict) and isinstance(wanted, dict)):
        return f"whose {entry} was {short_repr(found)}, got {short_repr(wanted)}"
    told = []
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            how = "added" if name not in found else "changed" if name in wanted else "removed"
            told.append(f"{escaped(name)} {how}")
    more = f" and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return f"with other files of the {entry}: {', '.join(told[:_TOLD])}{more}"


class WrittenRows:
    """Rows that were written, 8 bytes each: two rows are taken for one in 1 of 1e19 pairs."""

    def __init__(self) -> None:
        self._sorted = np.zeros(0, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, sources: Iterable[tuple[str, int]]) -> None:
        """Adds rows, each by its file and its number."""
        self._sorted = np.union1d(self._sorted, _hashes(sources))

    def missing(self, rows: Sequence[PathRow]) -> list[PathRow]:
        """The rows that were not written."""
        if not len(self):
            return [*rows]
        hashes = _hashes(row.source or ("", -1) for row in rows)
        places = np.searchsorted(self._sorted, hashes).clip(max=len(self) - 1)
        written = self._sorted[places] == hashes
        return [row for row, was in zip(rows, written, strict=True) if not was]


def _hashes(sources: Iterable[tuple[str, int]]) -> np.ndarray:
    digests = (hashlib.blake2b(repr(s).encode(), digest_size=8).digest() for s in sources)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


class PartWriter:
    """Writes tables into a folder as parts of a number of rows; a context manager.

    A part is whole or not there. What was not yet in a part when a run ended is not there. Names of
    parts begin with the time of the run and a number drawn for it, so that runs side by side never
    write the same part. A shard reads and changes its own parts alone.

    Args:
        folder: a path, or the URI of an object store; is made if it does not exist.
        rows: of a part.
        manifest: what decides the labels, as JSON has it. The first run into a folder writes it,
            and every other has to have the same.
        worlds: the folder that names of world files start from.
        shard: the index of this run, and of how many.
        overwrite: whether labels of an earlier run are removed.
        retry_errors: whether rows with an error are removed, so that they are labelled again.

    Attributes:
        written: rows of the shard that are in the folder.
        errors: how many of them have an error, by its text.
        ids: a hash of the id of each.

    Raises:
        OSError: the folder cannot be read or written; the error names the file.
        ValueError: the folder has other files, or labels of something else or in worlds that were
            changed since, or the shard is being labelled by another process.
    """

    def __init__(
        self,
        folder: Path | str,
        rows: int,
        manifest: Mapping[str, Any],
        *,
        worlds: Path = Path(),
        shard: tuple[int, int] = (0, 1),
        overwrite: bool = False,
        retry_errors: bool = False,
    ):
        require_extra("pyarrow", "a folder of labels")
        self._place, self._rows = folder, rows
        self._folder = label_folder(folder)
        self._tables: list[Any] = []
        self._held = self._next = 0
        self._worlds = worlds
        self._world_files: dict[str, str] = {}  # of all parts
        self._part_files: dict[str, str] = {}  # of the tables that are held
        self._seen: set[str] = set()  # parts of other shards
        begun = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._shard = f"{shard[0]}of{shard[1]}"
        self._run = f"{begun}-{secrets.token_hex(4)}-{self._shard}"
        self.written, self.errors, self.ids = WrittenRows(), Counter[str](), array("q")
        self._lock = contextlib.ExitStack()
        try:
            self._lock.enter_context(self._folder.locked(f"_lock-{self._shard}"))
            self._require_labels()
            for name in self._folder.names():
                is_part = name.startswith("part-")
                of_shard = f"-{self._shard}-" in name and name.endswith(".tmp")
                if (overwrite and is_part) or of_shard:  # the latter of a run that was killed
                    self._folder.remove(name)
            if overwrite:  # the manifest last, as parts need one
                self._folder.remove(_MANIFEST)
            self._agree(manifest)
            self._known = self._own_parts()
            for part in sorted(self._known):
                self._read(part, retry_errors)
            self._read_other_shards()
            self._require_same_worlds()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        """Writes what was added, also where a run is interrupted."""
        try:
            self.flush()
            self._read_other_shards()
        finally:
            self._lock.close()

    def _own_parts(self) -> set[str]:
        """The names of the parts of the shard."""
        return {
            name
            for name in self._folder.names()
            if (found := _PART.match(name)) and found["shard"] == self._shard
        }

    def _require_labels(self) -> None:
        """Requires that nothing else is in the folder."""
        for name in self._folder.names():
            if not name.startswith(("part-", "_part-", "_lock-", "_manifest")):
                raise ValueError(
                    f"{escaped(str(self._place))}: must be empty or have parts of an earlier run, "
                    f"got {escaped(name, 80)!r}"
                )

    def _agree(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest if there is none, else requires that it is the same."""
        wanted = json.loads(json.dumps(manifest))
        names = self._folder.names()
        if _MANIFEST not in names:
            if any(name.startswith("part-") for name in names):
                raise ValueError(
                    f"{escaped(str(self._place))}: parts must have a manifest, got none; "
                    "--overwrite labels all rows anew"
                )
            content = json.dumps(wanted, indent=1).encode()
            self._folder.create(_MANIFEST, content, self._shard)
        found = json.loads(self._folder.read(_MANIFEST))
        for name in sorted({*found, *wanted}, key=lambda name: (name != "shards", name)):
            if found.get(name) != wanted.get(name):
                raise self._other(_difference(name, found.get(name), wanted.get(name)))

    def _other(self, told: str) -> ValueError:
        return ValueError(
            f"{escaped(str(self._place))}: has labels of another run, {told}; give this run "
            "another folder, or --overwrite labels all rows anew"
        )

    def _require_same_worlds(self) -> None:
        """Requires that the files of worlds that rows were labelled in are as they were then."""
        found = {}
        for name in self._world_files:
            with contextlib.suppress(OSError):
                found[name] = digest_of(self._worlds / name)
        if found != self._world_files:
            raise self._other(_difference("worlds", self._world_files, found))

    def _take_files(self, files: Mapping[str, str]) -> None:
        """Adds files of worlds, each of which must have the content that other rows had."""
        known = {name: self._world_files.get(name, digest) for name, digest in files.items()}
        if known != files:
            raise self._other(_difference("worlds", known, dict(files)))
        self._world_files |= files

    def _read_other_shards(self) -> None:
        """Reads in which worlds other shards have labelled rows, of parts that are new."""
        import pyarrow.parquet as pq

        for name in self._folder.names():
            if _PART.match(name) and name not in self._known | self._seen:
                with self._naming(name), self._folder.open(name) as file:
                    self._take_files(_files_of(pq.read_schema(file)))
                self._seen.add(name)

    @contextlib.contextmanager
    def _naming(self, part: str) -> Iterator[None]:
        """Lets errors of a part that cannot be read name it."""
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            where = escaped(str(joined(self._place, part)))
            raise ValueError(
                f"{where}: must be a part of labels, got one that cannot be read ({error}); "
                "without it, its rows are labelled again"
            ) from error

    def _read(self, part: str, retry_errors: bool) -> None:
        """Reads which rows a part has, and drops those to be labelled again from it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._naming(part):
            content = pa.BufferReader(self._folder.read(part))
            table = pq.read_table(content, columns=["id", "source", "row", "error"])
        self._take_files(_files_of(table.schema))
        is_wrong = table["error"].is_valid()
        if retry_errors and any(is_wrong.to_pylist()):
            from pyarrow.compute import invert  # pyright: ignore[reportAttributeAccessIssue]

            is_right = invert(is_wrong)
            content.seek(0)
            self._write(pq.read_table(content).filter(is_right), part)
            table = table.filter(is_right)
        self.written.add(zip(table["source"].to_pylist(), table["row"].to_pylist(), strict=True))
        self._count(table)

    def _count(self, table: Any) -> None:
        self.errors.update(table["error"].drop_null().to_pylist())
        self.ids.extend(map(hash, map(str, table["id"].to_pylist())))

    @property
    def repeated_ids(self) -> int:
        """How many rows of the shard have an id that another one has too."""
        counts = np.unique(np.frombuffer(self.ids, np.int64), return_counts=True)[1]
        return int(counts[counts > 1].sum())

    def add(self, table: Any) -> None:
        """Adds a table, and writes a part if there are enough rows."""
        if FILES in table.column_names:
            for text in table[FILES].drop_null().to_pylist():
                files = json.loads(text)
                self._take_files(files)
                self._part_files |= files
            table = table.drop_columns([FILES])
        self._count(table)
        self._tables.append(table)
        self._held += table.num_rows
        if self._held >= self._rows:
            self.flush()

    def flush(self) -> None:
        """Writes what was added.

        Raises:
            ValueError: another run of the shard has written a part meanwhile, as it can where
                there are no locks.
        """
        import pyarrow as pa

        if not self._held:
            return
        if foreign := self._own_parts() - self._known:
            self._tables, self._held = [], 0
            raise ValueError(
                f"{escaped(str(self._place))}: another process is labelling shard {self._shard}, "
                f"and has written {min(foreign)!r}; give each its own --shard i/n"
            )
        part = f"part-{self._run}-{self._next:06d}.parquet"
        self._known.add(part)
        table = pa.concat_tables(self._tables)
        self._write(table.replace_schema_metadata({_OF_PART: json.dumps(self._part_files)}), part)
        # An interrupt before this line has the same part written again, under the same name.
        self._tables, self._held, self._next, self._part_files = [], 0, self._next + 1, {}

    def _write(self, table: Any, part: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = pa.BufferOutputStream()
        pq.write_table(table, content)
        self._folder.write(part, content.getvalue())


def _files_of(schema: Any) -> dict[str, str]:
    """The files of worlds of a part, with their digests."""
    return json.loads((schema.metadata or {}).get(_OF_PART, b"{}"))
