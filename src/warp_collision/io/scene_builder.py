"""Obstacles of a world file with their poses, and entries that were left out."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warp_collision.formats.files import MAX_COORDINATE, MAX_FACES
from warp_collision.messages import MAX_REPR, depth_of_caller, escaped, one_line, short_repr
from warp_collision.obstacles.geometry import SignMethod
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import Shape
from warp_collision.obstacles.units import warn_of_units
from warp_collision.validate import is_trimesh

if TYPE_CHECKING:
    import trimesh

MAX_OBSTACLES = 100_000
MAX_CONCAVE = 4_000_000  # squared corners of concave polygons, each is clipped in quadratic time
_LONGEST = 100.0  # [m]; what is longer is warned of
_LISTED = 5  # entries that the text of a warning lists


class Obstacle(NamedTuple):
    """An obstacle of a world file, ready for `MeshWorld.load`.

    Attributes:
        geometry: a `trimesh.Trimesh`, an exact shape such as `Cuboid`, or a sensed one such as
            `PointCloud`.
        pose: x, y, z, qw, qx, qy, qz of it in the world.
        padding: what it is inflated by [m].
        enabled: whether queries check it.
        sign: of a mesh, see `MeshWorld.add`.
    """

    geometry: trimesh.Trimesh | Shape | Sensed
    pose: tuple[float, ...]
    padding: float = 0.0
    enabled: bool = True
    sign: SignMethod = "auto"


class LeftOut(NamedTuple):
    """An entry of a file that a world cannot hold.

    Attributes:
        entry: where it stands in the file: "geom 'floor'".
        reason: what it is and why it is left out.
    """

    entry: str
    reason: str


class LeftOutWarning(UserWarning):
    """A file has entries that a world cannot hold, so that checks against the world miss them.

    Attributes:
        where: the file.
        entries: all that was left out, a tuple of `LeftOut`.

    Example:
        >>> import warnings
        >>> from warp_collision.io import LeftOutWarning, load_world_mapping
        >>> document = {
        ...     "cuboid": {"table": {"dims": [1, 1, 0.1], "pose": [0, 0, 0, 1, 0, 0, 0]}},
        ...     "voxel": {"scan": {}},
        ... }
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     obstacles = load_world_mapping(document)
        >>> caught[0].category is LeftOutWarning, caught[0].message.entries[0].entry
        (True, 'voxel.scan')
    """

    def __init__(self, where: str, entries: Sequence[LeftOut]):
        self.where = where
        self.entries = tuple(entries)
        super().__init__(_text(where, entries))


class ClippingBudget:
    """Bounds the work that the concave polygons of a file make together."""

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, squared: int) -> None:
        """Counts squared numbers of corners.

        Raises:
            ValueError: they add up to over 4,000,000.
        """
        self._spent += squared
        if self._spent > MAX_CONCAVE:
            raise ValueError(
                f"squared corners of concave polygons must be at most {MAX_CONCAVE}, got "
                f"{self._spent}"
            )


@dataclass
class SceneBuilder:
    """Collects the obstacles of a file.

    Attributes:
        where: the file, with which errors and warnings begin, safe to print.
        obstacles: by name, in the order of the file.
        left_out: entries that a world cannot hold.
        clipping: bounds the work for concave polygons.
    """

    where: str
    obstacles: dict[str, Obstacle] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    clipping: ClippingBudget = field(default_factory=ClippingBudget)
    _numbers: dict[str, int] = field(default_factory=dict)
    _n_faces: int = 0

    def add(self, name: str, obstacle: Obstacle) -> None:
        """Adds an obstacle; of a name that is taken the second becomes `name#2`.

        Raises:
            ValueError: a pose that no obstacle can have, or too many obstacles.
        """
        entry = f"{self.where}: {escaped(name, MAX_REPR)}"
        check_pose(entry, obstacle.pose)
        if is_trimesh(obstacle.geometry):
            self._n_faces += len(obstacle.geometry.faces)
            if self._n_faces > MAX_FACES:
                raise ValueError(f"{self.where}: must hold at most {MAX_FACES} faces, got more")
        if len(self.obstacles) >= MAX_OBSTACLES:
            raise ValueError(f"{self.where}: must hold at most {MAX_OBSTACLES} obstacles, got more")
        unique = name
        while unique in self.obstacles:
            self._numbers[name] = self._numbers.get(name, 1) + 1
            unique = f"{name}#{self._numbers[name]}"
        self.obstacles[unique] = obstacle

    def leave_out(self, entry: str, reason: str) -> None:
        """Notes an entry that a world cannot hold."""
        self.left_out.append(LeftOut(escaped(entry, MAX_REPR), reason))

    def finish(self, strict: bool) -> dict[str, Obstacle]:
        """The obstacles, at least one.

        Raises:
            ValueError: there is none, or, if `strict`, something was left out.
        """
        if self.left_out and (strict or not self.obstacles):
            raise ValueError(_text(self.where, self.left_out))
        if not self.obstacles:
            raise ValueError(
                f"{self.where}: holds no obstacle, so every check against it would be free"
            )
        if self.left_out:
            warn_of_left_out(self.where, self.left_out)
        return self.obstacles


def warn_of_left_out(where: str, entries: Sequence[LeftOut]) -> None:
    """Warns of what was left out, at the line that called the library."""
    warnings.warn(LeftOutWarning(where, entries), stacklevel=depth_of_caller())


def warn_of_millimetres(entry: str, geometry: object, advice: str) -> None:
    """Warns of a mesh so long that it is hardly in metres, with how to read it in others."""
    if is_trimesh(geometry) and (length := float(geometry.extents.max())) > _LONGEST:
        warn_of_units(f"{entry} is {length:.4g} m long: if it is in millimetres, pass {advice}")


def check_pose(entry: str, pose: Sequence[float]) -> None:
    """Raises unless a pose is finite with a position below 1e9 and a rotation."""
    values = np.asarray(pose, dtype=np.float64)
    if not (np.isfinite(values).all() and (np.abs(values[:3]) < MAX_COORDINATE).all()):
        raise ValueError(
            f"{entry}: a pose must be finite and below 1e9, got {short_repr(tuple(pose))}"
        )


@contextlib.contextmanager
def errors_begin_with(entry: str) -> Iterator[None]:
    """Any error becomes a ValueError that begins with the entry; libraries raise many kinds.

    One that begins so already stays as it is.
    """
    try:
        yield
    except (ImportError, FileNotFoundError):
        raise
    except Exception as error:
        if type(error) is ValueError and str(error).startswith(entry):
            raise
        raise ValueError(f"{entry}: {one_line(error)}") from error


def _text(where: str, entries: Sequence[LeftOut]) -> str:
    listed = "; ".join(f"{entry} ({reason})" for entry, reason in entries[:_LISTED])
    more = f"; and {len(entries) - _LISTED} more" if len(entries) > _LISTED else ""
    return f"{where}: a world cannot hold {len(entries)} of its entries: {listed}{more}"
