"""Where paths and labels are: on a file system of this machine, or on an object store.

A place is a `Path`, or the URI of an object store as text, such as `s3://bucket/paths`. What
`pyarrow.fs.FileSystem.from_uri` knows is read and written. Its options follow a question mark, as
in `s3://bucket/paths?region=eu-central-1`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from warp_collision.extras import require_extra
from warp_collision.messages import any_error_at, escaped

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*\[]")  # and ?, which begins the options of a URI
_LOCAL_MAGIC = re.compile(r"[*?\[]")


def place_of(name: str | os.PathLike[str]) -> Path | str:
    """The place of a name: a `Path`, or a URI as it is.

    Example:
        >>> from warp_collision.labeling.places import place_of
        >>> place_of("s3://bucket/paths"), place_of("paths").name
        ('s3://bucket/paths', 'paths')
    """
    text = os.fspath(name)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return text if _URI.match(text) else Path(text)


def base_name(place: Path | str) -> str:
    """The last part of a place's name."""
    return place.name if isinstance(place, Path) else _cut(place)[0].rpartition("/")[2]


def joined(place: Path | str, name: str) -> Path | str:
    """The place of a name below another."""
    if isinstance(place, Path):
        return place / name
    uri, options = _cut(place)
    return f"{uri}/{name}{options}"


def about(place: Path | str) -> tuple[int, int] | None:
    """Size in bytes of a file, and when it was written [ns]; None if there is no such file."""
    if isinstance(place, Path):
        if not place.is_file():
            return None
        found = place.stat()
        return found.st_size, found.st_mtime_ns
    system, path = file_system(place)
    with any_error_at(escaped(place)):
        found = system.get_file_info(path)
    return (found.size, found.mtime_ns or 0) if found.is_file else None


def names_below(place: Path | str) -> list[str]:
    """The names of all files below a folder, from there; none if there is no such folder."""
    if isinstance(place, Path):
        files = (path for path in sorted(place.rglob("*")) if path.is_file())
        return [path.relative_to(place).as_posix() for path in files]
    from pyarrow.fs import FileSelector

    system, path = file_system(place)
    with any_error_at(escaped(place)):
        found = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return sorted(one.path.removeprefix(path).lstrip("/") for one in found if one.is_file)


def open_file(place: Path | str) -> BinaryIO | Any:
    """A file that is read from any position."""
    if isinstance(place, Path):
        return place.open("rb")
    system, path = file_system(place)
    with any_error_at(escaped(place)):
        return system.open_input_file(path)


def file_system(place: str) -> tuple[Any, str]:
    """The file system of `pyarrow.fs` of a URI, and the path there.

    Raises:
        ValueError: there is none for this URI.
    """
    require_extra("pyarrow", f"{escaped(place)}: an object store")
    from pyarrow.fs import FileSystem

    if place.startswith("s3://"):  # an object of a few MB is one request then, not three
        option = f"{'&' if '?' in place else '?'}allow_delayed_open=true"
        with contextlib.suppress(Exception):  # older versions do not know it
            system, path = FileSystem.from_uri(place + option)
            return system, path.rstrip("/")
    with any_error_at(escaped(place)):
        system, path = FileSystem.from_uri(place)
    return system, path.rstrip("/")


def split_pattern(place: Path | str) -> tuple[Path | str, str] | None:
    """The folder that a pattern of names begins in, and the pattern there; None if it is a name.

    Example:
        >>> from warp_collision.labeling.places import split_pattern
        >>> split_pattern("s3://bucket/run-*/paths.parquet?region=x")
        ('s3://bucket?region=x', 'run-*/paths.parquet')
    """
    if isinstance(place, Path) and place.exists():
        return None
    is_local = isinstance(place, Path)
    text, options = (place.as_posix(), "") if is_local else _cut(place)
    found = (_LOCAL_MAGIC if is_local else _MAGIC).search(text)
    if found is None:
        return None
    folder, _, _ = text[: found.start()].rpartition("/")
    pattern = text[len(folder) :].lstrip("/")
    if is_local:
        return Path(folder or ("/" if text.startswith("/") else ".")), pattern
    return f"{folder}{options}", pattern


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is of a file, or of a folder that it is in; `**` is any number of folders.

    Example:
        >>> from warp_collision.labeling.places import matches
        >>> [matches("a/b/x.npy", pattern) for pattern in ("a/*", "*.npy", "**/x*")]
        [True, False, True]
    """
    return _matches(name.split("/"), pattern.split("/"))


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    from fnmatch import fnmatchcase

    if not patterns:
        return True
    if patterns[0] == "**":
        return any(_matches(names[skipped:], patterns[1:]) for skipped in range(len(names)))
    return bool(names) and fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])


def _cut(uri: str) -> tuple[str, str]:
    """A URI without its options, and these."""
    name, mark, options = uri.partition("?")
    return name.rstrip("/"), mark + options
