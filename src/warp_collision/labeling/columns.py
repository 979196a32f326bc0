"""Batches of tables: dicts of NumPy arrays and Arrow tables to rows, and labels back."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.extras import require_extra
from warp_collision.labeling.path_row import PathRow
from warp_collision.labeling.places import open_file, place_of
from warp_collision.messages import escaped, one_line, short_repr

ROLES = ("id", "path", "world", "base_pose", "env", "robot")
# What the column of paths is called where `columns` does not say it.
PATH_NAMES = ("path", "joints", "spheres", "trajectory")
FILES = "_world_files"  # a column that the labels of a batch have until they are in a part
_BUFFER = 1 << 20  # bytes, of a column that is read


def column_names(present: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The column of each role that a table has.

    Args:
        present: columns of the table.
        columns: role to column; by default a role's own name, for paths one of `PATH_NAMES`.

    Raises:
        ValueError: a column that is named is not there, or there is none of paths.
    """
    unknown = [role for role in columns if role not in ROLES]
    if unknown:
        raise ValueError(f"columns must be of {', '.join(ROLES)}, got {unknown[0]!r}")
    found = {}
    for role in ROLES:
        names = PATH_NAMES if role == "path" else (role,)
        names = (columns[role],) if role in columns else names
        there = [name for name in names if name in present]
        if there:
            found[role] = there[0]
        elif role == "path" or role in columns:
            raise ValueError(
                f"the column of {role}s must be {' or '.join(map(repr, names))}, got columns "
                f"{short_repr([*present])}"
            )
    return found


def is_arrow(batch: Any) -> bool:
    """Whether a batch is a table or a record batch of pyarrow."""
    return type(batch).__module__.partition(".")[0] == "pyarrow"


def rows_of(batch: Any, columns: Mapping[str, str]) -> list[PathRow]:
    """The rows of a batch, a dict of arrays or an Arrow table.

    A value that cannot be read is an error in its row.
    """
    if is_arrow(batch):
        present, read = batch.column_names, _arrow_values
        count = batch.num_rows
    elif isinstance(batch, Mapping):
        present, read = [*batch], _numpy_values
        lengths = {name: len(values) for name, values in batch.items()}
        count = next(iter(lengths.values()), 0)
        if len({*lengths.values()}) > 1:
            raise ValueError(f"batch must have columns of one length, got {short_repr(lengths)}")
    else:
        raise TypeError(
            "batch must be a dict of NumPy arrays or an Arrow table, got " + type(batch).__name__
        )
    if not count:
        return []
    names = column_names(present, columns)
    values = {role: read(batch[name], role) for role, name in names.items()}
    rows = []
    for index in range(count):
        fields = {role: column[index] for role, column in values.items()}
        errors = [value for value in fields.values() if isinstance(value, ValueError)]
        if errors:
            fields = {"path": None, "id": fields.get("id"), "error": str(errors[0])}
        elif fields.get("env") is not None:
            fields["env"] = int(fields["env"])
        rows.append(PathRow(**fields))
    return rows


def _numpy_values(column: Any, role: str) -> list[Any]:
    values = [*column]
    if role in ("path", "base_pose"):
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _arrow_values(column: Any, role: str) -> list[Any]:
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    if role not in ("path", "base_pose"):
        return [value for chunk in chunks for value in chunk.to_pylist()]
    return [value for chunk in chunks for value in _arrow_arrays(chunk)]


def _arrow_arrays(array: Any) -> list[Any]:
    """The NumPy array of each value: nested lists, or tensors of one shape."""
    if hasattr(array, "to_numpy_ndarray") and array.null_count == 0:
        return [*array.to_numpy_ndarray()]
    if hasattr(array, "storage") and hasattr(array.type, "shape"):  # tensors of Ray Data
        shape, storage = array.type.shape, array.storage
        return [
            np.asarray(item.values).reshape(shape) if item.is_valid else None for item in storage
        ]
    if (rows := _rows_at_once(array)) is not None:
        return rows
    found: list[Any] = []
    for item in array:
        try:
            found.append(_dense(item.values) if item.is_valid else None)
        except (ValueError, AttributeError) as error:
            found.append(ValueError(f"path {one_line(error)}"))
    return found


def _rows_at_once(array: Any) -> list[np.ndarray] | None:
    """The arrays of lists that differ in their first axis alone; None of others."""
    import pyarrow as pa

    if array.null_count or not pa.types.is_nested(array.type):
        return None
    try:
        values = _dense(array.flatten())
    except ValueError:
        return None
    lengths_of: Any = importlib.import_module("pyarrow.compute").list_value_length
    ends = np.cumsum(lengths_of(array).to_numpy(zero_copy_only=False)).tolist()
    return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _dense(values: Any) -> np.ndarray:
    """The array of nested lists, all of the same lengths."""
    import pyarrow as pa

    lengths_of: Any = importlib.import_module("pyarrow.compute").list_value_length
    shape = [len(values)]
    while pa.types.is_nested(values.type):
        lengths = np.unique(lengths_of(values).to_numpy(zero_copy_only=False))
        if values.null_count or len(lengths) != 1:
            raise ValueError("must have the same number of values at each waypoint, and no nulls")
        shape.append(int(lengths[0]))
        values = values.flatten()
    if values.null_count:
        raise ValueError("must have no nulls")
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def open_parquet(file: str) -> Any:
    """A Parquet file; buffered: not the whole of a row group is in memory."""
    require_extra("pyarrow", f"{escaped(file)}: a Parquet file")
    import pyarrow.parquet as pq

    where = place_of(file)
    source = where if isinstance(where, Path) else open_file(where)
    return pq.ParquetFile(source, buffer_size=_BUFFER)


def arrow_table(columns: Mapping[str, Any], id_type: str | None = None) -> Any:
    """An Arrow table of labels.

    Its types are the same for every batch, also where all values of a column are missing.

    Args:
        columns: by name.
        id_type: Arrow type of ids, None for that of the values. Values that are not of it, as of
            rows that cannot be read, are missing where it is a number, else become text.
    """
    require_extra("pyarrow", "a table")
    import pyarrow as pa

    texts = ("source", "link", "obstacle", "error", FILES)
    arrays = {}
    for name, values in columns.items():
        if name == "id" and id_type is not None:
            of_number = [value if isinstance(value, int) else None for value in values]
            of_text = [None if value is None else str(value) for value in values]
            arrays[name] = pa.array(of_text if id_type == "string" else of_number, id_type)
        elif name in texts:
            arrays[name] = pa.array([*values], pa.string())
        elif name == "waypoint_clearance":
            arrays[name] = pa.array([*values], pa.list_(pa.float32()))
        else:
            arrays[name] = pa.array(values)
    return pa.table(arrays)
