"""Paths from shards of WebDataset: tar files, in which consecutive members of one key are a sample.

The key of `run/000123.path.npy` is `run/000123`, and what follows its first dot is the field.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.formats.point_files import open_member
from warp_collision.io.arrays import order_of
from warp_collision.labeling.columns import PATH_NAMES, ROLES, column_names
from warp_collision.labeling.path_row import PathRow
from warp_collision.labeling.places import open_file, place_of
from warp_collision.messages import any_error_at, one_line, short_repr

_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)")
_MAX_BYTES = 256 << 20  # of a member that is read
_JOINT_NAMES = "joint_names"
_OF_TRAJECTORIES = {"times", "velocities", "accelerations"}


def read_shard(
    file: str, columns: Mapping[str, str], joint_names: Sequence[str] | None
) -> Iterator[PathRow]:
    """The samples of a shard, each a path; its id is its key, if the sample has none of its own.

    Fields are the arrays of a member `.npz`, the keys of a member `.json`, and members such as
    `.path.npy` and `.world.json`; a member `.npy` is the path. Others are passed over.

    Args:
        file: of the shard.
        columns: role to field, as of `PathLabeler`.
        joint_names: of the robot, whose order the joints of a sample that names them are put in.

    Raises:
        ValueError: the file is damaged, or cut off.
    """
    key, fields = None, dict[str, Any]()
    for name, content in _members(file):
        found = _NAME.fullmatch(name.removeprefix("./"))
        if found is None:
            continue
        if found[1] != key:
            if key is not None:
                yield _row(key, fields, columns, joint_names)
            key, fields = found[1], {}
        try:
            with any_error_at(f".{found[2]}"):
                fields |= _fields(found[2], content, columns)
        except (ValueError, OSError) as error:
            fields["error"] = one_line(error)
    if key is not None:
        yield _row(key, fields, columns, joint_names)


def _members(file: str) -> Iterator[tuple[str, Any]]:
    """Name and file of each member, in their order."""
    with (
        closing(open_file(place_of(file))) as source,
        tarfile.open(fileobj=source, mode="r:") as tar,
    ):
        while (member := tar.next()) is not None:
            if member.isfile():
                yield member.name, tar.extractfile(member)
            tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  # else all are kept
        source.seek(tar.offset)
        if source.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise ValueError("must end as a tar file does, with blocks of zeros: was it cut off?")


def _fields(ending: str, content: Any, columns: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a member."""
    stem, _, kind = ending.lower().rpartition(".")
    if kind not in ("npy", "npz", "json"):
        return {}
    data = content.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"must have at most {_MAX_BYTES} bytes, got more")
    wanted = {*ROLES, *PATH_NAMES, *columns.values(), *_OF_TRAJECTORIES, _JOINT_NAMES}
    if kind == "npy":
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        return {stem or columns.get("path", PATH_NAMES[0]): array}
    if kind == "json":
        document = json.loads(data)
        if stem in wanted:
            return {stem: document}
        if not isinstance(document, dict):
            raise ValueError(f"must be a mapping, got {short_repr(document)}")
        return document
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {}
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in wanted:
                with open_member(archive, member) as array:
                    found[name] = np.lib.format.read_array(array, allow_pickle=False)
    return found


def _row(
    key: str,
    fields: Mapping[str, Any],
    columns: Mapping[str, str],
    joint_names: Sequence[str] | None,
) -> PathRow:
    """A sample as a path; what is wrong with it is its error."""
    try:
        if "error" in fields:
            raise ValueError(fields["error"])
        if has := sorted(_OF_TRAJECTORIES & fields.keys()):
            raise ValueError(
                f"a sample must have waypoints without times, got {', '.join(has)}: a trajectory "
                "must be a file of its own"
            )
        roles = column_names([*fields], columns)
        found = {role: _plain(fields[name], role) for role, name in roles.items()}
        names = fields.get(_JOINT_NAMES)
        if names is not None and joint_names is not None:
            order = order_of(Path(key), tuple(map(str, names)), tuple(joint_names))
            found["path"] = np.asarray(found["path"])[..., order]
        return PathRow(**{"id": key, **found})
    except (ValueError, TypeError, IndexError) as error:
        return PathRow(None, id=key, error=f"sample {short_repr(key)}: {one_line(error)}")


def _plain(value: Any, role: str) -> Any:
    """A field as a row has it: text and numbers of NumPy as Python's."""
    if role in ("path", "base_pose") or not isinstance(value, np.ndarray):
        return value
    return value.item() if value.ndim == 0 else value.tolist()
