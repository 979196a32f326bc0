"""Paths and worlds from HDF5 files, also in the layout of MPiNets.

MPiNets: Fishman et al., Motion Policy Networks, CoRL 2022. Trajectories (n, horizon, 7), and for
each of them cuboids and cylinders in slots, of which some are empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.extras import require_extra
from warp_collision.labeling.columns import PATH_NAMES
from warp_collision.labeling.path_row import PathRow
from warp_collision.labeling.places import open_file, place_of
from warp_collision.messages import escaped, short_repr

_SOLUTIONS = ("hybrid_solutions", "global_solutions")
_CHUNK = 64  # rows that are read at a time
# Of each kind of obstacle: its sizes in a file, and its keys in a world.
_KINDS = {
    "cuboid": (("cuboid_dims",), ("dims",)),
    "cylinder": (("cylinder_radii", "cylinder_heights"), ("radius", "height")),
}


@contextlib.contextmanager
def _open(file: str) -> Iterator[Any]:
    require_extra("h5py", f"{escaped(file)}: an HDF5 file")
    import h5py

    where = place_of(file)
    if isinstance(where, Path):
        with h5py.File(where, "r") as archive:
            yield archive
        return
    with open_file(where) as content, h5py.File(content, "r") as archive:
        yield archive


def _path_name(archive: Any, name: str | None) -> str:
    names = (*_SOLUTIONS, *PATH_NAMES) if name is None else (name,)
    there = [name for name in names if name in archive]
    if not there:
        raise ValueError(
            f"must have an array {' or '.join(map(repr, names))}, got {short_repr([*archive])}"
        )
    return there[0]


def count_hdf5(file: str, name: str | None) -> int:
    """How many paths a file has."""
    with _open(file) as archive:
        return archive[_path_name(archive, name)].shape[0]


def read_hdf5(file: str, begin: int, end: int | None, name: str | None) -> Iterator[PathRow]:
    """Paths of a file, with their worlds if it has them.

    Args:
        file: its path.
        begin: the first row.
        end: behind the last one; None for all.
        name: of the array of paths; by default one of those that are usual.
    """
    with _open(file) as archive:
        paths = archive[_path_name(archive, name)]
        last: int = paths.shape[0] if end is None else end
        kinds = [kind for kind, (sizes, _) in _KINDS.items() if sizes[0] in archive]
        for first in range(begin, last, _CHUNK):
            rows = slice(first, min(first + _CHUNK, last))
            values = paths[rows]
            worlds = [_worlds(archive, kind, rows) for kind in kinds]
            named = archive["world"][rows] if "world" in archive else None
            for index, path in enumerate(values):
                world: Any = None
                if named is not None:
                    world = named[index]
                    world = world.decode() if isinstance(world, bytes) else str(world)
                elif kinds:
                    world = {k: found[index] for k, found in zip(kinds, worlds, strict=True)}
                yield PathRow(path, world)


def _worlds(archive: Any, kind: str, rows: slice) -> list[dict[str, Any]]:
    """The obstacles of a kind, by name, for each row."""
    arrays, keys = _KINDS[kind]
    sizes = [_slots(archive[name][rows], 3 if len(arrays) == 1 else 1) for name in arrays]
    centers = _slots(archive[f"{kind}_centers"][rows], 3)
    turns = _slots(archive[f"{kind}_quaternions"][rows], 4)
    found = []
    for row in range(len(centers)):
        world = {}
        for slot in range(centers.shape[1]):
            size = [part[row, slot] for part in sizes]
            # A slot without an obstacle; NaN is none of these, and becomes an error.
            if not turns[row, slot].any() or any((part == 0.0).any() for part in size):
                continue
            values = [part.tolist() if len(part) > 1 else float(part[0]) for part in size]
            pose = [*centers[row, slot].tolist(), *turns[row, slot].tolist()]
            world[f"{kind} {slot}"] = {**dict(zip(keys, values, strict=True)), "pose": pose}
        found.append(world)
    return found


def _slots(values: np.ndarray, width: int) -> np.ndarray:
    """Values (rows, slots, width); a file of one slot a row has no axis of slots."""
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1, width)
