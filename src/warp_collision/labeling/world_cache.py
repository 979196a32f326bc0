"""Worlds of many rows, packed as envs of one `MeshWorld` within a bound of bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warp_collision.devices import canonical_device
from warp_collision.formats.files import About, about_file, found_files
from warp_collision.io import Obstacle, load_world_file, load_world_mapping
from warp_collision.io.yaml_world import ENTRIES
from warp_collision.messages import escaped, known_names, one_line, short_repr
from warp_collision.obstacles.distance_grid import GRID_CELLS
from warp_collision.obstacles.point_cloud import PointCloud
from warp_collision.obstacles.sensed import Sensed
from warp_collision.validate import is_trimesh
from warp_collision.world import MeshWorld

_SLOT_BYTES = 512  # of an exact shape: its slot in the tables and its record
# Of a mesh: its points, its faces with their tree and winding numbers, and a cell of its grid.
_VERTEX_BYTES, _FACE_BYTES, _CELL_BYTES = 24, 256, 8
# Of a point of a cloud with its tree, a voxel, and how much more one that is not free takes.
_POINT_BYTES, _VOXEL_BYTES, _SOLID_BYTES = 128, 8, 600
_VALUES_FACTOR = 3  # of other shapes that sensors see: their values are kept thrice
_KINDS = {"mesh", *ENTRIES, "voxel", "world"}  # keys of a world, and of a planning scene
_LONG_NAME = 256  # characters, from which on text is a world itself
_MOST_KEYS = 10_000
_FEWEST_SLOTS, _FEWEST_ENVS = 32, 16


class WorldKey(NamedTuple):
    """Which world a row is in.

    Attributes:
        kind: "file", "mapping", or "given" for a `MeshWorld`.
        content: the path of the file, the mapping as JSON, or the env of the `MeshWorld`.
    """

    kind: str
    content: str


class FileVersion(NamedTuple):
    """A file as it was when it was first read.

    Attributes:
        about: when it was written, its size and its number.
        digest: of its content.
        name: relative to the folder of the worlds.
    """

    about: About
    digest: str
    name: str


class Pack(NamedTuple):
    """Worlds that are in one `MeshWorld` at the same time.

    Attributes:
        world: the obstacles.
        envs: the env of each world.
    """

    world: MeshWorld
    envs: dict[WorldKey, int]


@dataclass(eq=False)
class WorldCache:
    """Keeps worlds that were used last, as envs of one `MeshWorld`.

    Attributes:
        worlds: by name: a world file, a mapping, or a sequence of these, one for each env. Or one
            of them, or a `MeshWorld`, for all rows without a name.
        folder: what relative paths start from.
        max_bytes: bound of what is kept, by an estimate from above. A world that is larger is
            alone.
        since: seconds since the epoch: a file that was written later is an error. By default files
            may be as they are when they are first read.
        device: where the worlds live.
        strict: whether what a check does not see is an error.
        allow_outside: whether a row may name a file outside of the folder.
        package_dirs: where `package://` names are looked for.
    """

    worlds: Any
    folder: str | os.PathLike[str]
    max_bytes: int
    since: float | None
    device: Any
    strict: bool
    allow_outside: bool
    package_dirs: Sequence[str | os.PathLike[str]]

    def __post_init__(self) -> None:
        """Begins without worlds."""
        self.device = canonical_device(self.device)
        self._keys: dict[tuple[str | None, int | None], WorldKey] = {}
        self._versions: dict[str, FileVersion] = {}
        self._reset(_FEWEST_SLOTS)

    def _reset(self, slots: int) -> None:
        self._world = MeshWorld(_FEWEST_ENVS, slots, self.device)
        self._envs: OrderedDict[WorldKey, int] = OrderedDict()
        self._bytes: dict[WorldKey, int] = {}
        self._files: dict[WorldKey, list[str]] = {}
        self._free = [*range(_FEWEST_ENVS)][::-1]

    @property
    def n_bytes(self) -> int:
        """Estimate of what is kept, from above."""
        return sum(self._bytes.values())

    def key(self, world: Any, env: int | None = None) -> WorldKey:
        """The key of what a row says of its world.

        Raises:
            ValueError: there is no such world or env.
        """
        if world is not None and not isinstance(world, str):
            return self._find_key(world, env)
        found = self._keys.get((world, env))
        if found is None:
            found = self._find_key(world, env)
            if world is None or len(world) < _LONG_NAME:
                if len(self._keys) >= _MOST_KEYS:
                    self._keys.clear()
                self._keys[world, env] = found
        return found

    def _find_key(self, world: Any, env: int | None) -> WorldKey:
        if world is None and isinstance(self.worlds, MeshWorld):
            env = env or 0
            if not 0 <= env < self.worlds.n_envs:
                raise ValueError(f"env must be in [0, {self.worlds.n_envs}), got {env}")
            return WorldKey("given", str(env))
        named = isinstance(self.worlds, Mapping) and not _is_document(self.worlds)
        is_trusted = self.allow_outside
        if world is None:
            is_trusted = True
            if named and self.worlds:
                names = known_names(None, [*self.worlds])
                raise ValueError(f"world must be given, one of {names}, or a file; got none")
            if self.worlds is None or named:
                raise ValueError("world must be given, got none")
            world = self.worlds
        elif isinstance(world, str) and named and world in self.worlds:
            world, is_trusted = self.worlds[world], True
        if isinstance(world, list | tuple | np.ndarray):
            if env is None or not 0 <= env < len(world):
                raise ValueError(f"env must be in [0, {len(world)}), got {env}")
            world = world[env]
        elif env:
            raise ValueError(f"env must be 0 in a world of one env, got {env}")
        if isinstance(world, Mapping):
            return WorldKey("mapping", json.dumps(_plain(world), sort_keys=True))
        if isinstance(world, str) and world.lstrip().startswith("{"):
            return WorldKey("mapping", world)
        if not isinstance(world, str | os.PathLike):
            raise ValueError(f"world must be a name, a file or a mapping, got {short_repr(world)}")
        path = Path(self.folder, world)
        if not path.exists() and named and self.worlds and not path.suffix:
            names = known_names(os.fspath(world), [*self.worlds])
            raise ValueError(f"world must be one of {names}, or a file; got {short_repr(world)}")
        if not is_trusted and not path.resolve().is_relative_to(Path(self.folder).resolve()):
            place, given = escaped(str(self.folder)), short_repr(os.fspath(world))
            raise ValueError(
                f"world must be a file in {place}, got {given}; "
                "allow_world_outside=True, or --allow-world-outside, takes others"
            )
        return WorldKey("file", str(path))

    def read(self, world: Any, env: int | None = None) -> dict[str, Obstacle]:
        """The obstacles of what a row says of its world, which are not kept.

        Raises:
            OSError, ValueError: there is no such world or env, or it cannot be read.
        """
        return self._read(self.key(world, env))

    def digests(self, keys: Iterable[WorldKey]) -> dict[str, str]:
        """The files that worlds of the last pack were read from, and digests of their content.

        Names are relative to the folder.
        """
        files = {file for key in keys for file in self._files.get(key, ())}
        return {found.name: found.digest for found in map(self._versions.__getitem__, files)}

    def pack(self, keys: Iterable[WorldKey]) -> Iterator[tuple[Pack, dict[WorldKey, str]]]:
        """Packs worlds, as many at a time as there is room for.

        Yields:
            A pack, which is valid until the next, and the errors of worlds that are in none.
        """
        packed: dict[WorldKey, int] = {}
        errors: dict[WorldKey, str] = {}
        distinct = dict.fromkeys(keys)
        given = {key: int(key.content) for key in distinct if key.kind == "given"}
        if given:
            yield Pack(self.worlds, given), {}
        for key in distinct:
            if key in given:
                continue
            try:
                obstacles, files = None, [(file, None) for file in self._files.get(key, ())]
                if key not in self._envs:
                    with found_files() as found:
                        obstacles = self._read(key)
                    files = [(os.path.abspath(file), about) for file, about in found.items()]
                for file, about in files:
                    self._require_unchanged(file, about)
            except (OSError, ValueError, ImportError) as error:
                errors[key] = one_line(error)
                continue
            if obstacles is not None and not self._make_room(key, obstacles, packed):
                yield Pack(self._world, packed), errors
                packed, errors = {}, {}
                self._make_room(key, obstacles, packed)
            try:
                packed[key] = self._place(key, obstacles)
                self._files[key] = [file for file, _ in files]
            except (ValueError, TypeError) as error:
                errors[key] = one_line(error)
        if packed or errors:
            yield Pack(self._world, packed), errors

    def _require_unchanged(self, file: str, read: About | None) -> None:
        """Requires that a file is as it was when it was first read, and as labelling began.

        Args:
            file: its path.
            read: what it was before it was read now. As it is the same afterwards, the digest is of
                what was read.
        """
        try:
            if file not in self._versions:
                assert read is not None
                name = name_from(self.folder, file)
                self._versions[file] = FileVersion(read, digest_of(file), name)
            about = about_file(os.stat(file))
        except OSError:
            raise FileNotFoundError(f"{escaped(file)}: no such file") from None
        is_late = self.since is not None and about[0] > self.since * 1e9
        if is_late or {about, read or about} != {self._versions[file].about}:
            raise ValueError(
                f"{escaped(file)}: a world file must not change while paths are labelled, "
                "but it was written since"
            )

    def _read(self, key: WorldKey) -> dict[str, Obstacle]:
        if key.kind == "file":
            return load_world_file(key.content, strict=self.strict, package_dirs=self.package_dirs)
        try:
            document = json.loads(key.content)
        except ValueError as error:
            raise ValueError(f"world must be valid JSON: {error}") from error
        # A scene without obstacles is valid in a data set, where each row has its own.
        if _is_document(document) and not any(document.values()):
            return {}
        return load_world_mapping(document, folder=self.folder, strict=self.strict)

    def _make_room(
        self, key: WorldKey, obstacles: dict[str, Obstacle], packed: dict[WorldKey, int]
    ) -> bool:
        """Drops worlds that are not packed, the one used longest ago first; whether it suffices."""
        needed, slots = _n_bytes(key, obstacles), len(obstacles)
        others = [key for key in self._envs if key not in packed]
        tables = max(slots, self._world.max_obstacles) * (len(packed) + 1) * _SLOT_BYTES
        while others and self.n_bytes + needed > self.max_bytes:
            self._drop(others.pop(0))
        fits = self.n_bytes + needed <= self.max_bytes and tables <= self.max_bytes
        if packed and not fits:
            return False
        if slots > self._world.max_obstacles:
            rows = self._world.n_envs * slots * _SLOT_BYTES
            if not packed and rows > self.max_bytes:
                self._reset(slots)
            else:
                self._world.grow(max_obstacles=max(slots, 2 * self._world.max_obstacles))
        return True

    def _place(self, key: WorldKey, obstacles: dict[str, Obstacle] | None) -> int:
        """The env of a world, into which it is loaded if it is not there."""
        if obstacles is None:
            self._envs.move_to_end(key)
            return self._envs[key]
        if not self._free:
            count = self._world.n_envs
            self._world.grow(n_envs=2 * count)
            self._free = [*range(count, 2 * count)][::-1]
        env = self._free[-1]
        self._world.load(obstacles, env)
        self._free.pop()
        self._envs[key] = env
        self._bytes[key] = _n_bytes(key, obstacles)
        return env

    def _drop(self, key: WorldKey) -> None:
        env = self._envs.pop(key)
        del self._bytes[key], self._files[key]
        self._world.clear(env)
        self._free.append(env)


def digest_of(file: str | os.PathLike[str]) -> str:
    """A digest of the content of a file."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def name_from(folder: str | os.PathLike[str], file: str | os.PathLike[str]) -> str:
    """The name of a file, relative to a folder where both are on one drive."""
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:
        return Path(file).as_posix()


def _is_document(value: Any) -> bool:
    """Whether a mapping is a world: kinds of obstacles to names, or a planning scene."""
    return isinstance(value, Mapping) and (not value or any(key in _KINDS for key in value))


def _plain(value: Any) -> Any:
    """A mapping as JSON can have it; keys without a value, as tables have them, are left out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _n_bytes(key: WorldKey, obstacles: Mapping[str, Obstacle]) -> int:
    total = _SLOT_BYTES + len(key.content)
    for obstacle in obstacles.values():
        total += _SLOT_BYTES
        mesh = obstacle.geometry
        if is_trimesh(mesh):
            total += _VERTEX_BYTES * len(mesh.vertices) + _FACE_BYTES * len(mesh.faces)
            total += _CELL_BYTES * GRID_CELLS
        elif isinstance(mesh, Sensed):
            total += _sensed_bytes(mesh)
    return total


def _sensed_bytes(shape: Sensed) -> int:
    if isinstance(shape, PointCloud):
        return _POINT_BYTES * len(shape.points)
    total = 0
    for array in shape.arrays().values():
        if array.dtype == bool:
            total += _VOXEL_BYTES * array.size + _SOLID_BYTES * int(np.count_nonzero(array))
        else:
            total += _VALUES_FACTOR * array.nbytes
    return total
