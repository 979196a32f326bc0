"""The folder that labels are written into: on a file system, or on an object store."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from warp_collision.labeling.places import file_system, joined
from warp_collision.messages import escaped

try:
    import fcntl
except ImportError:  # Windows: two runs of one shard are told apart by their parts alone
    fcntl = None


class LabelFolder(Protocol):
    """Files by name, each of which is whole or not there."""

    def locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Holds a lock that ends with the process, where there are locks."""
        ...

    def names(self) -> list[str]:
        """The names of all files and folders in it."""
        ...

    def read(self, name: str) -> bytes:
        """The content of a file."""
        ...

    def open(self, name: str) -> Any:
        """A file that is read from any position."""
        ...

    def write(self, name: str, content: Any) -> None:
        """Writes a file, or replaces it."""

    def create(self, name: str, content: Any, shard: str) -> None:
        """Writes a file unless it is there; its temporary file has the name of a shard."""

    def remove(self, name: str) -> None:
        """Removes a file if it is there."""


def label_folder(place: Path | str) -> LabelFolder:
    """The folder of a place, which is made if it does not exist."""
    return _Directory(place) if isinstance(place, Path) else _Store(place)


class _Directory:
    """A folder of this machine: files are written under another name and then renamed."""

    def __init__(self, path: Path):
        self._path = path
        with _naming(path):
            path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        with _naming(self._path / name):
            file = (self._path / name).open("w")
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ValueError(
                        f"{escaped(str(self._path))}: another process is labelling into this "
                        "folder; give each its own --shard i/n"
                    ) from None
            yield

    def names(self) -> list[str]:
        return sorted(path.name for path in self._path.iterdir())

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def open(self, name: str) -> Any:
        return (self._path / name).open("rb")

    def write(self, name: str, content: Any) -> None:
        with _naming(self._path / name):
            self._temporary(name, content).replace(self._path / name)

    def create(self, name: str, content: Any, shard: str) -> None:
        with _naming(self._path / name):
            temporary = self._temporary(f"{Path(name).stem}-{shard}", content)
            with contextlib.suppress(FileExistsError):  # of another shard, which began first
                os.link(temporary, self._path / name)
            temporary.unlink()

    def remove(self, name: str) -> None:
        with _naming(self._path / name):
            (self._path / name).unlink(missing_ok=True)

    def _temporary(self, name: str, content: Any) -> Path:
        """Writes a file under another name, which begins as the name does, so that it is found."""
        stem = name.removeprefix("_").removesuffix(".parquet")
        temporary = self._path / f"_{stem}-{secrets.token_hex(4)}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        return temporary


class _Store:
    """A folder of an object store, whose objects are whole by themselves; it has no locks."""

    def __init__(self, place: str):
        self._place = place
        self._system, self._path = file_system(place)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        yield

    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        with self._naming(""):
            found = self._system.get_file_info(FileSelector(self._path, allow_not_found=True))
        return sorted(one.base_name for one in found)

    def read(self, name: str) -> bytes:
        with self._naming(name), self._system.open_input_file(f"{self._path}/{name}") as file:
            return file.read()

    def open(self, name: str) -> Any:
        with self._naming(name):
            return self._system.open_input_file(f"{self._path}/{name}")

    def write(self, name: str, content: Any) -> None:
        with (
            self._naming(name),
            self._system.open_output_stream(f"{self._path}/{name}") as file,
        ):
            file.write(content)

    def create(self, name: str, content: Any, shard: str) -> None:
        if name not in self.names():
            self.write(name, content)

    def remove(self, name: str) -> None:
        if name in self.names():
            with self._naming(name):
                self._system.delete_file(f"{self._path}/{name}")

    def _naming(self, name: str) -> contextlib.AbstractContextManager[None]:
        return _naming(joined(self._place, name) if name else self._place)


@contextlib.contextmanager
def _naming(place: Path | str) -> Iterator[None]:
    """Lets errors of a full disk or of a store name the file."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{escaped(str(place))}: {error}") from error
