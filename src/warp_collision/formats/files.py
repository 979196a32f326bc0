"""What readers of all formats share: limits, libraries of extras, existing files, XML."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.lenient_xml import parse_lenient
from warp_collision.messages import any_error_at, escaped, short_repr

_COMMENT, _NOT_ASCII = re.compile(rb"<!--.*?-->", re.DOTALL), re.compile(rb"[\x80-\xff]")
MAX_FACES = 50_000_000  # of a file, those of every instance counted
MAX_COORDINATE = 1e9  # as in a world; trimesh merges vertices far beyond it, all into one


# When a file was written [ns], its size [bytes], and its number in the file system.
About = tuple[int, int, int]
_FOUND: ContextVar[dict[Path, About] | None] = ContextVar("_FOUND", default=None)


def is_file(path: Path) -> bool:
    """Whether there is such a file; False for names that no file can have.

    Readers ask before they open a file, so that `found_files` has all that were read.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(found.st_mode):
        return False
    add_found({path: about_file(found)})
    return True


def about_file(found: os.stat_result) -> About:
    """What tells a file from a later one of its name."""
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextlib.contextmanager
def found_files() -> Iterator[dict[Path, About]]:
    """The files that `is_file` finds until the end of the context, also in the worker process."""
    found: dict[Path, About] = {}
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


def add_found(files: Mapping[Path, About]) -> None:
    """Adds files to those of `found_files`, each as it was when it was first found."""
    found = _FOUND.get()
    if found is not None:
        for path, about in files.items():
            found.setdefault(path, about)


def existing_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file, which exists."""
    path = Path(path)
    if not is_file(path):
        is_folder = os.path.isdir(path)
        reason = "is a folder, must be a file" if is_folder else "no such file"
        raise FileNotFoundError(f"{escaped(str(path))}: {reason}")
    return path


def read_xml(path: Path) -> Element:
    """Reads the root element of an XML file; the caller names the file.

    The parser bounds what entities expand to, and reads no other files. Comments may be in another
    encoding than the file, whose names and values must be in its own.

    Raises:
        ValueError: no well-formed XML.
    """
    with any_error_at("must be well-formed XML"):
        return ElementTree.fromstring(_with_readable_comments(path.read_bytes()))


def read_xml_leniently(path: Path) -> tuple[Element, list[str]]:
    """As `read_xml`, of XML whose prefixes need not be declared; returns these names too."""
    with any_error_at("must be well-formed XML"):
        return parse_lenient(_with_readable_comments(path.read_bytes()))


def _with_readable_comments(content: bytes) -> bytes:
    """The content, with question marks in comments for what is not UTF-8 in it."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return _COMMENT.sub(lambda comment: _NOT_ASCII.sub(b"?", comment[0]), content)
    return content


def check_vertices(vertices: np.ndarray) -> None:
    """Requires vertices (n, 3) that are finite and below 1e9."""
    bad = ~(np.abs(vertices) < MAX_COORDINATE).all(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"vertices must be finite and below 1e9, got {vertices[row].tolist()} at {row}"
        )


def metres_per_unit(units: str | None, where: str) -> float:
    """Length of the unit that a scene or mesh declares, 1 if none [m].

    Raises:
        ValueError: there is no such unit.
    """
    if units is None:
        return 1.0
    import trimesh

    try:
        return float(trimesh.units.unit_conversion(units, "meters"))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{where}: units must be a unit of length, got {short_repr(units)}"
        ) from error
