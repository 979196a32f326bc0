"""Vertex-face queries of others with rational truth: does a moving point meet a triangle?

The "Sample Queries" of Continuous Collision Detection, from a checkout: vertices of rational
coordinates at two times, and whether they meet in between. Taken are those whose face only
translates, which is a sphere of radius 0 on a straight line beside a face at rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.harness import Failed, table
from warp_collision import MeshWorld, swept_in_collision

TOLERANCES = (1e-3, 1e-5, 1e-6, 1e-7)  # relative to the longest edge of a face
TRANSLATES = 1e-9  # by how much more one vertex of a face may move than another, relative to it
_ROWS, _PART = 8, 200  # lines of a query; queries that are asked together


class Query(NamedTuple):
    """A query in the frame of the face, in units of its longest edge.

    Attributes:
        face: (3, 3) float64.
        begin: (3,) float64, where the vertex begins.
        end: (3,) float64, where it ends.
        hits: the truth.
    """

    face: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    hits: bool


def read(folder: Path) -> list[Query]:
    """Queries below a folder, all of `*/vertex-face/*.csv`; pointers of Git LFS are passed over."""
    files = sorted(folder.glob("*/vertex-face/*.csv"))
    found = [query for file in files for query in _of_file(file.read_text().split())]
    if not found:
        raise Failed(f"{folder} has no files */vertex-face/*.csv with queries", 2)
    return found


def _of_file(lines: list[str]) -> Iterator[Query]:
    if not lines or lines[0].count(",") != 6:
        return
    for begin in range(0, len(lines) - _ROWS + 1, _ROWS):
        numbers = [[int(x) for x in line.split(",")] for line in lines[begin : begin + _ROWS]]
        exact = [[Fraction(n[i], n[i + 1]) for i in (0, 2, 4)] for n in numbers]
        # Differences are exact before they are rounded.
        vertex, face, moved = exact[0], exact[1:4], exact[5:8]
        ways = [
            [b - a for a, b in zip(*ends, strict=True)] for ends in zip(face, moved, strict=True)
        ]
        uneven = _array([[x - y for x, y in zip(way, ways[0], strict=True)] for way in ways])
        origin = [sum(corners) / 3 for corners in zip(*face, strict=True)]
        place = _array([[x - o for x, o in zip(corner, origin, strict=True)] for corner in face])
        edges = np.linalg.norm(place - np.roll(place, 1, axis=0), axis=1)
        size = float(edges.max())
        if size == 0.0 or np.abs(uneven).max() > TRANSLATES * size:
            continue
        goes = zip(exact[4], ways[0], origin, strict=True)
        first = _array([x - o for x, o in zip(vertex, origin, strict=True)])
        last = _array([x - way - o for x, way, o in goes])
        yield Query(place / size, first / size, last / size, bool(numbers[0][6]))


def _array(values: list[Fraction] | list[list[Fraction]]) -> np.ndarray:
    return np.array(values, dtype=object).astype(np.float64)


def distance(query: Query) -> float:
    """Distance of the segment from begin to end to the face, in float64."""
    corners, begin, end = query[:3]
    normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    heights = [float((point - corners[0]) @ normal) for point in (begin, end)]
    through = [begin, end]
    if heights[0] * heights[1] < 0.0:
        through.append(begin + heights[0] / (heights[0] - heights[1]) * (end - begin))
    area, found = float(np.linalg.norm(normal)), [np.inf]
    sides = list(zip(corners, np.roll(corners, -1, axis=0), strict=True))
    for point in through if area > 0.0 else ():
        if all(np.cross(b - a, point - a) @ normal >= 0.0 for a, b in sides):
            found.append(abs(float((point - corners[0]) @ normal)) / area)
    return float(min(*found, *(_between(begin, end, *side) for side in sides)))


def _between(p: np.ndarray, q: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Distance of two segments."""
    ends = [_to_segment(x, a, b) for x in (p, q)] + [_to_segment(x, p, q) for x in (a, b)]
    matrix = np.stack((q - p, a - b), axis=1)
    try:
        s, t = np.linalg.solve(matrix.T @ matrix, matrix.T @ (a - p))
    except np.linalg.LinAlgError:  # parallel
        return min(ends)
    if 0.0 <= s <= 1.0 and 0.0 <= t <= 1.0:
        ends.append(float(np.linalg.norm(p + s * (q - p) - a - t * (b - a))))
    return min(ends)


def _to_segment(point: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    way = b - a
    square = float(way @ way)
    s = 0.0 if square == 0.0 else float(np.clip((point - a) @ way / square, 0.0, 1.0))
    return float(np.linalg.norm(point - a - s * way))


def answers(queries: list[Query], tolerance: float) -> np.ndarray:
    """What the library says (n,): whether the point, a sphere of radius 0, meets the face."""
    found = []
    for first in range(0, len(queries), _PART):
        part = queries[first : first + _PART]
        world = MeshWorld(n_envs=len(part), max_obstacles=1)
        for env, query in enumerate(part):
            mesh = query.face.astype(np.float32), np.array([[0, 1, 2]])
            world.add("face", mesh, env=env, sign="sheet")
        ends = np.stack([[query.begin, query.end] for query in part]).astype(np.float32)
        spheres = torch.zeros((len(part), 2, 1, 4))
        spheres[:, :, 0, :3] = torch.from_numpy(ends)
        env_index = torch.arange(len(part), dtype=torch.int32)
        hits = swept_in_collision(spheres, world, env_index=env_index, tolerance=tolerance)
        found.append(hits.flatten(1).any(1).numpy())
    return np.concatenate(found)


def report(queries: list[Query]) -> tuple[str, int]:
    """The table, and how many hits are missed."""
    truth = np.array([query.hits for query in queries])
    away = np.array([distance(query) for query in queries])
    rows, n_missed = [], 0
    for tolerance in TOLERANCES:
        hits = answers(queries, tolerance)
        missed, refused = (truth & ~hits).sum(), ~truth & hits
        n_missed += int(missed)
        near = (~truth & (away <= tolerance)).sum()
        row = [f"{tolerance:g}", f"{missed} of {truth.sum()}"]
        row += [f"{refused.sum()} of {(~truth).sum()}", str(near)]
        rows.append([*row, str((refused & (away > tolerance)).sum())])
    head = ["tolerance, of the longest edge", "hits missed", "others refused"]
    head += ["others that are nearer than the tolerance", "refused farther away"]
    below = ", ".join(f"{(~truth & (away <= x)).sum()} within {x:g}" for x in (1e-15, 1e-10, 1e-8))
    text = f"{len(queries)} vertex-face queries whose face only translates. Of those that do not "
    return f"{text}meet, {below} of the face.\n\n{table(head, rows)}", n_missed
