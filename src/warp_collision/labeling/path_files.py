"""Paths from files and folders, in slices of a bounded number of rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warp_collision.extras import require_extra
from warp_collision.io.trajectories import is_trajectory
from warp_collision.labeling.columns import PATH_NAMES, ROLES, open_parquet, rows_of
from warp_collision.labeling.hdf5_paths import count_hdf5, read_hdf5
from warp_collision.labeling.lerobot import is_lerobot, lerobot_names, read_episodes
from warp_collision.labeling.path_row import PathRow
from warp_collision.labeling.places import (
    about,
    base_name,
    joined,
    matches,
    names_below,
    place_of,
    split_pattern,
)
from warp_collision.labeling.shards import read_shard
from warp_collision.messages import escaped, one_line, short_repr
from warp_collision.robot import load_trajectory

ARRAYS, TABLES, HDF5 = (".npy", ".npz", ".csv", ".json"), (".parquet",), (".h5", ".hdf5")
SHARDS = (".tar",)
ENDINGS = (*ARRAYS, *TABLES, *HDF5, *SHARDS)
_KINDS = {
    **dict.fromkeys(ARRAYS, "array"),
    **dict.fromkeys(TABLES, "table"),
    **dict.fromkeys(HDF5, "hdf5"),
    **dict.fromkeys(SHARDS, "shard"),
}
_SEQUENTIAL = ("lerobot", "shard")  # kinds that are read from the beginning alone
_SCANNED = tuple(ending for ending in ENDINGS if ending != ".json")  # in folders
_BATCH = 256  # rows that are read at a time
_MOST_PIECES = 16  # of a row group


class FileSlice(NamedTuple):
    """Consecutive rows of a file of paths.

    Attributes:
        file: its path.
        begin: the first row.
        end: behind the last one; None for all that there are.
        kind: "array", "table", "hdf5", "shard" or "lerobot".
    """

    file: str
    begin: int
    end: int | None
    kind: str


class PathFiles:
    """Rows of files and folders of paths, which are read in slices.

    - `.npy`, `.npz` and `.csv` as `warp_collision.io.load_joints` and `load_spheres` read them: a
      path, or a batch of paths of the same length. Those with times, and `.json`, are trajectories
      of a robot as `warp_collision.robot.load_trajectory` reads them: a curve, which is labelled as
      it is.
    - `.parquet`: a row for each path, see `PathLabeler`.
    - `.h5`, `.hdf5`: an array of paths under one of the names of that column, or the layout of
      MPiNets: `hybrid_solutions` or `global_solutions` with a world of cuboids and cylinders for
      each. Slots with a quaternion or a size of 0 are empty.
    - `.tar`: a shard of WebDataset, with a path for each sample. The path is in a member `.npy`, or
      under the names of the columns in members `.npz` and `.json`. For example, `0001.npz` has an
      array `path`, and `0001.json` a `world`. The id is the key, `0001`. A shard is read as a
      whole.
    - a folder of a LeRobot data set of version 3: an episode is a path, of its `observation.state`.
    - any other folder: all such files in it and below, by name;
    - a pattern such as `run-*/**/*.parquet`: all such files that match it, or in folders that do.

    Folders, Parquet and HDF5 files and shards may be on an object store: `s3://bucket/paths`,
    `gs://...`, and what else `pyarrow.fs.FileSystem.from_uri` reads.

    The id of a row that has none is that of its file and its number, as `paths.npz:7`; that of an
    episode is its index.

    Args:
        paths: files, folders and patterns.
        columns: as of `PathLabeler`; those of a path in HDF5 and LeRobot data sets, too.
        joint_names: of the robot, whose order the columns of files that name them are put in; None
            for spheres.

    Raises:
        FileNotFoundError: a file does not exist, a folder has none, or nothing matches a pattern.
        ValueError: a file of another kind, or an object store that cannot be read.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from warp_collision.labeling import PathFiles
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/paths.npy", np.zeros((3, 32, 2)))
        ...     files = PathFiles([folder], joint_names=("turn", "slide"))
        ...     rows = [row for part in files.slices(2) for row in files.read(part)]
        >>> [row.id for row in rows], rows[0].path.shape
        (['paths.npy:0', 'paths.npy:1', 'paths.npy:2'], (32, 2))
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        columns: Mapping[str, str] | None = None,
        joint_names: Sequence[str] | None = None,
    ):
        self._columns = dict(columns or {})
        self._names = None if joint_names is None else tuple(joint_names)
        found = [(where, _files(where)) for where in map(place_of, paths)]
        self.files = [(file, kind) for _, files in found for file, kind, _ in files]
        # Names in ids: short, and the same wherever the data set lies.
        self._name_of = {file: name for _, files in found for file, _, name in files}
        if len({*self._name_of.values()}) < len(self._name_of):
            self._name_of = {file: file for file in self._name_of}

    def slices(self, rows: int = _BATCH) -> Iterator[FileSlice]:
        """The slices of all files, each of at most some rows; those that cannot be cut are whole.

        A row group of Parquet is cut into 16 slices at most, as reading one begins with the group.
        A file whose rows cannot be counted is one slice, and reading it gives the error.
        """
        for file, kind in self.files:
            begin, counts = 0, self._counts(file, kind)
            if counts is None:
                yield FileSlice(file, 0, None, kind)
                continue
            for count in counts:
                size = max(rows, -(-count // _MOST_PIECES)) if kind == "table" else rows
                for first in range(begin, begin + count, size):
                    yield FileSlice(file, first, min(first + size, begin + count), kind)
                begin += count

    def count(self) -> int | None:
        """How many rows there are, None where that is known only when they are read."""
        counts = [self._counts(file, kind) for file, kind in self.files]
        return None if None in counts else sum(sum(count or ()) for count in counts)

    def _counts(self, file: str, kind: str) -> list[int] | None:
        """Rows of each part of a file that is read from its beginning."""
        if kind in _SEQUENTIAL:
            return None
        try:
            if kind == "table":
                groups = open_parquet(file).metadata
                return [groups.row_group(index).num_rows for index in range(groups.num_row_groups)]
            if kind == "hdf5":
                return [count_hdf5(file, self._columns.get("path"))]
            if file.lower().endswith((".csv", ".json")) or self._is_trajectory(Path(file)):
                return [1]
            return [len(self._array(Path(file)))]
        except (OSError, ValueError, ImportError):
            return None

    def read(self, part: FileSlice) -> Iterator[PathRow]:
        """The rows of a slice; what cannot be read is a row with an error."""
        readers: dict[str, Callable[[FileSlice], Iterator[PathRow]]] = {
            "array": self._read_array,
            "table": self._read_table,
            "hdf5": lambda s: read_hdf5(s.file, s.begin, s.end, self._columns.get("path")),
            "lerobot": lambda s: read_episodes(s.file, self._columns),
            "shard": lambda s: read_shard(s.file, self._columns, self._names),
        }
        index = part.begin
        name = self._name_of[part.file]
        try:
            for row in readers[part.kind](part):
                at = f"{name}:{index}" if row.id is None else row.id
                yield row._replace(id=at, source=(name, index))
                index += 1
        except ImportError:
            raise
        except Exception as error:  # libraries raise many kinds
            text = one_line(error)
            where = escaped(part.file)
            text = text if text.startswith(where) else f"{where}: {text}"
            yield PathRow(None, id=f"{name}:{index}", error=text, source=(name, index))

    def rows(self) -> Iterator[PathRow]:
        """The rows of all files."""
        whole = (FileSlice(file, 0, None, kind) for file, kind in self.files)
        return (row for part in whole for row in self.read(part))

    def find(self, wanted: str) -> PathRow:
        """The row of an id; `name:number` is that row of a file, whatever its id.

        Of a Parquet file only the ids are read, and the slice of the row. Of one file without ids
        the number is enough.

        Raises:
            ValueError: no row has this id, or several have it.
        """
        found = [
            (file, kind, index)
            for file, kind in self.files
            for index in self._indices(file, kind, wanted)
        ]
        if len(found) != 1:
            names = [f"{self._name_of[file]}:{index}" for file, _, index in found]
            given = f"the rows {', '.join(names[:3])}" if found else "no row"
            raise ValueError(
                f"id must be that of one row, got {short_repr(wanted)} of {given}; FILE:7 names a "
                "row by its number"
            )
        file, kind, index = found[0]
        if kind in _SEQUENTIAL:
            return next(itertools.islice(self.read(FileSlice(file, 0, None, kind)), index, None))
        return next(self.read(FileSlice(file, index, index + 1, kind)))

    def _indices(self, file: str, kind: str, wanted: str) -> list[int]:
        """Numbers of the rows of a file that an id is of."""
        name, _, number = wanted.rpartition(":")
        ids = self._ids(file, kind)
        is_number = number.isdecimal() and (
            name == self._name_of[file] or (ids is None and not name and len(self.files) == 1)
        )
        if is_number:
            counts = self._counts(file, kind)
            count = sum(1 for _ in ids or ()) if counts is None else sum(counts)
            return [int(number)] if int(number) < count else []
        return [index for index, value in enumerate(ids or ()) if wanted == value]

    def _ids(self, file: str, kind: str) -> Iterator[str] | None:
        """The ids of a file as text, None where rows have none."""
        if kind in _SEQUENTIAL:
            return (str(row.id) for row in self.read(FileSlice(file, 0, None, kind)))
        column = self._columns.get("id", "id")
        if kind != "table" or column not in (table := open_parquet(file)).schema_arrow.names:
            return None
        batches = table.iter_batches(columns=[column])
        return (str(value) for batch in batches for value in batch[column].to_pylist())

    def id_type(self) -> str:
        """The Arrow type of the ids: that of their column, where all files agree on whole numbers.

        Elsewhere ids are text. Episodes of LeRobot have whole numbers.
        """
        require_extra("pyarrow", "the type of ids")
        import pyarrow as pa

        name = self._columns.get("id", "id")
        types = set()
        for file, kind in self.files:
            if kind == "lerobot":
                types.add(pa.int64())
                continue
            try:
                schema = open_parquet(file).schema_arrow if kind == "table" else pa.schema([])
            except (OSError, ValueError):  # its row has the error
                continue
            types.add(schema.field(name).type if name in schema.names else pa.string())
        (only,) = types if len(types) == 1 else (pa.string(),)
        return str(only) if pa.types.is_integer(only) else str(pa.string())

    def listing(self) -> list[tuple[str, int, int]]:
        """Of each file its name, its size in bytes, and when it was written [ns]."""
        found = []
        for file, _ in self.files:
            known = about(place_of(file))
            if known is None:
                raise FileNotFoundError(f"{escaped(file)}: no such file")
            found.append((self._name_of[file], *known))
        return found

    def _is_trajectory(self, path: Path) -> bool:
        """Whether a file is a trajectory of a robot: one row, a curve."""
        return self._names is not None and is_trajectory(path)

    def _array(self, path: Path) -> np.ndarray:
        """The paths (n, horizon, ...) of a file of NumPy or CSV."""
        from warp_collision.io.arrays import read_joints, read_spheres

        if self._names is None:
            array = read_spheres(path)
            return array.reshape((1,) * (4 - array.ndim) + array.shape)
        array = read_joints(path, len(self._names), self._names)
        return array.reshape((1,) * (3 - array.ndim) + array.shape)

    def _read_array(self, part: FileSlice) -> Iterator[PathRow]:
        if self._is_trajectory(Path(part.file)):
            return iter([PathRow(load_trajectory(part.file, self._names))])
        return (PathRow(path) for path in self._array(Path(part.file))[part.begin : part.end])

    def _read_table(self, part: FileSlice) -> Iterator[PathRow]:
        file = open_parquet(part.file)
        end = file.metadata.num_rows if part.end is None else part.end
        wanted = {*self._columns.values(), *ROLES, *PATH_NAMES}
        names = [name for name in file.schema_arrow.names if name in wanted]
        row = 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            begin, row = row, row + count
            if row <= part.begin or begin >= end:
                continue
            for batch in file.iter_batches(_BATCH, row_groups=[group], columns=names):
                first, last = max(part.begin - begin, 0), min(end - begin, len(batch))
                begin += len(batch)
                if first < last:
                    yield from rows_of(batch.slice(first, last - first), self._columns)


def _files(where: Path | str) -> list[tuple[str, str, str]]:
    """The files of a place: of each its place, its kind, and its name in ids."""
    split = split_pattern(where)
    if split is None and about(where) is not None:
        return [(str(where), _kind(where), base_name(where))]
    folder, pattern = (where, "**") if split is None else split
    names = names_below(folder)
    if split is None and is_lerobot(names):
        return [
            (str(joined(folder, name)), "lerobot", name) for name in lerobot_names(where, names)
        ]
    # Files of facts beside paths end in .json, too: a pattern must ask for them.
    endings = ENDINGS if pattern.lower().endswith(".json") else _SCANNED
    found = [
        (str(joined(folder, name)), _kind(joined(folder, name)), name)
        for name in names
        if name.lower().endswith(endings) and matches(name, pattern)
    ]
    if not found:
        rule = f"files that end in {', '.join(endings)}"
        if split is not None:
            raise FileNotFoundError(f"{escaped(str(where))}: must match {rule}, matches none")
        if names or (isinstance(where, Path) and where.is_dir()):
            raise FileNotFoundError(f"{escaped(str(where))}: must have {rule}, has none")
        raise FileNotFoundError(f"{escaped(str(where))}: no such file")
    return found


def _kind(where: Path | str) -> str:
    ending = Path(base_name(where)).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(
            f"{escaped(str(where))}: paths must be files that end in {', '.join(ENDINGS)}, got "
            f"{escaped(ending, 40)!r}"
        )
    if ending in ARRAYS and isinstance(where, str):
        raise ValueError(
            f"{escaped(where)}: {', '.join(ARRAYS)} must be on a file system of this machine, not "
            "on an object store"
        )
    return _KINDS[ending]
