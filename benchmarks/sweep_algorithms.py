"""How many distance queries a certified sweep takes, by algorithm.

`python -m benchmarks.sweep_algorithms` writes the table that benchmarks/README.md shows.

Each algorithm is written as a generator that asks for the signed distance at places of its segment
and returns the smallest distance that it found, certified to the tolerance. All segments advance
together, one query each, so that the library's `signed_distance` answers thousands at once.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh

from benchmarks.report import RESULTS
from warp_collision import MeshWorld, signed_distance

LENGTH = 0.2  # [m] of a segment
REACH = 0.06  # [m] radius + activation distance: distances above need not be known
TOLERANCE = 1.0e-3  # [m]
DENSE = 4_001  # places of a segment that are looked at to know the truth
ROUNDING = 2.0e-6  # [m]


class Sample(NamedTuple):
    """Signed distance at a place of a segment."""

    place: float  # along the segment [m]
    distance: float
    closest: np.ndarray  # (3,) relative to the segment: along, and two across


Search = Generator[float, Sample, float]


def marching(start: Sample, length: float) -> Search:
    """March by the Lipschitz bound alone: from f a step of f minus the floor is sure."""
    here, best = start, start.distance
    while True:
        floor = min(best, REACH) - TOLERANCE
        step = here.distance - floor
        if here.place + step >= length:
            return best
        here = yield here.place + step
        best = min(best, here.distance)


def _cone(a: Sample, b: Sample) -> tuple[float, float]:
    """Lower bound between two samples by the Lipschitz bound, and where it is attained."""
    width = b.place - a.place
    low = 0.5 * (a.distance + b.distance - width)
    return low, a.place + min(max(a.distance - low, 0.0), width)


def _balls(a: Sample, b: Sample) -> tuple[float, float]:
    """Lower bound by empty balls and closest points, as in kernels/sweep.py, and where to cut."""
    width = b.place - a.place
    low, cut = _cone(a, b)
    if a.distance > 0.0 and b.distance > 0.0 and a.distance + b.distance > width:
        meet = 0.5 * (width + (a.distance**2 - b.distance**2) / width)
        if not 0.0 < meet < width:
            return max(low, min(a.distance, b.distance)), cut
        return max(low, math.sqrt(max(a.distance**2 - meet**2, 0.0))), a.place + meet
    if a.distance < REACH and b.distance < REACH:
        # |q - c|^2 for q on the segment, from both closest points: the lower one is an upper bound
        # of the depth, and its maximum is at an end or where both are equal.
        to_a, to_b = a.closest, b.closest
        depth = max(abs(a.distance), abs(b.distance))
        gap = 2.0 * (to_b[0] - to_a[0])
        if gap > 0.0:
            x = (to_b @ to_b - to_a @ to_a) / gap
            x = min(max(x, a.place), b.place)
            place = np.array([x, 0.0, 0.0])
            nearest = min(np.linalg.norm(place - to_a), np.linalg.norm(place - to_b))
            depth = max(depth, float(nearest))
            cut = x
        return max(low, -depth), cut
    return low, cut


def second_order(start: Sample, length: float) -> Search:
    """Long steps that the second-order bounds confirm, or else halve."""
    floor = min(start.distance, REACH) - TOLERANCE
    return (yield from _confirmed_steps(start, length, _level_step(start.distance, floor)))


def end_first(start: Sample, length: float) -> Search:
    """The same after a look at the end, as in kernels/sweep.py.

    What is low there need not be resolved on the way.
    """
    return (yield from _confirmed_steps(start, length, length))


def _confirmed_steps(here: Sample, length: float, step: float) -> Search:
    best = here.distance
    floor = min(best, REACH) - TOLERANCE
    while here.distance - floor < length - here.place:
        there = yield min(here.place + step, length)
        best = min(best, there.distance)
        floor = min(best, REACH) - TOLERANCE
        if step <= here.distance - floor or _balls(here, there)[0] >= floor:
            here = there
            step = _level_step(here.distance, floor)
        else:
            step = max(0.5 * (there.place - here.place), here.distance - floor)
    return best


def _level_step(distance: float, floor: float) -> float:
    """How far the bounds reach as the distance changes little; at least a sure step.

    2 instead of 1.5 is as far as they reach where it does not change at all: steps that fail on the
    slightest slope, each of which costs a query.
    """
    sure = distance - floor
    if distance > 0.0 and floor > 0.0:
        return max(sure, 1.5 * math.sqrt(max(distance**2 - floor**2, 0.0)))
    if distance < 0.0:
        return max(sure, 1.5 * math.sqrt(max(floor**2 - distance**2, 0.0)))
    return 1.5 * sure


def branch_and_bound(
    bound: Callable[[Sample, Sample], tuple[float, float]],
) -> Callable[[Sample, float], Search]:
    """From both ends: cut the interval with the lowest bound there, until no bound is too low."""

    def search(start: Sample, length: float) -> Search:
        best = start.distance
        if start.distance - length >= min(best, REACH) - TOLERANCE:
            return best
        end = yield length
        best = min(best, end.distance)
        count = 0
        heap = [(*bound(start, end), count, start, end)]
        while heap and heap[0][0] < min(best, REACH) - TOLERANCE:
            _, cut, _, a, b = heapq.heappop(heap)
            width = b.place - a.place
            middle = yield min(max(cut, a.place + 0.1 * width), b.place - 0.1 * width)
            best = min(best, middle.distance)
            for pair in ((a, middle), (middle, b)):
                count += 1
                heapq.heappush(heap, (*bound(*pair), count, *pair))
        return best

    return search


def every_millimetre(start: Sample, length: float) -> Search:
    """No certificate: one sample every millimetre."""
    best = start.distance
    for place in np.arange(1e-3, length + 1e-9, 1e-3):
        best = min(best, (yield float(place)).distance)
    return best


ALGORITHMS: dict[str, Callable[[Sample, float], Search]] = {
    "marching, Lipschitz bound": marching,
    "marching, second-order bounds": second_order,
    "marching, second-order bounds, end first": end_first,
    "branch and bound, Lipschitz bound": branch_and_bound(_cone),
    "branch and bound, second-order bounds": branch_and_bound(_balls),
    "a sample every mm": every_millimetre,
}


@dataclass
class Segments:
    """Straight paths from ``begins`` (n, 3) in unit ``directions`` (n, 3), all of one length."""

    begins: np.ndarray
    directions: np.ndarray


def make_world() -> MeshWorld:
    """A block of half a metre and a torus on it, as one mesh."""
    block = trimesh.creation.box((0.5, 0.5, 0.5))
    torus = trimesh.creation.torus(0.15, 0.05, major_sections=64, minor_sections=32)
    torus.apply_translation((0.0, 0.0, 0.31))
    world = MeshWorld(1, 2, "cpu")
    world.add("block", block)
    world.add("torus", torus)
    return world


def make_segments(kind: str, count: int) -> Segments:
    """Segments by how they lie: "far", "near-parallel", "crossing", "inside"."""
    rng = np.random.default_rng(11)
    u, v = rng.uniform(-0.14, 0.14, (2, count))
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    around = np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], axis=1)
    if kind == "far":
        begins = np.stack([u, v, np.full(count, -0.6)], axis=1)
        tilt = rng.uniform(-0.1, 0.1, count)
    elif kind == "near-parallel":  # a few centimetres below the lower face of the block
        begins = np.stack([u, v, -0.25 - rng.uniform(0.005, 0.05, count)], axis=1)
        tilt = rng.uniform(-0.02, 0.02, count)
    elif kind == "crossing":  # into the torus or the block's upper face
        begins = np.stack([u, v, rng.uniform(0.3, 0.4, count)], axis=1)
        tilt = rng.uniform(-3.0, -0.5, count)
    else:
        begins = np.stack([u, v, rng.uniform(-0.2, 0.1, count)], axis=1)
        tilt = rng.uniform(-0.3, 0.3, count)
    directions = around + tilt[:, None] * np.array([0.0, 0.0, 1.0])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return Segments(begins, directions)


def _frames(directions: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) whose first rows are the directions."""
    helper = np.where(np.abs(directions[:, :1]) < 0.9, [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])
    across = np.cross(directions, helper)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return np.stack([directions, across, np.cross(directions, across)], axis=1)


class Oracle:
    """Answers queries of many segments at once, and keeps count and time."""

    def __init__(self, world: MeshWorld, segments: Segments):
        self._world, self._segments = world, segments
        self._frames = _frames(segments.directions)
        self.queries, self.seconds = 0, 0.0

    def __call__(self, which: Sequence[int], places: Sequence[float] | np.ndarray) -> list[Sample]:
        """Samples of segments, each at a place of its own."""
        index, along = np.asarray(which), np.asarray(places)
        points = self._segments.begins[index] + along[:, None] * self._segments.directions[index]
        begin = time.thread_time()
        found = signed_distance(torch.from_numpy(points).float()[None], self._world)
        self.seconds += time.thread_time() - begin
        self.queries += len(index)
        distance = found.distance[0].numpy().astype(np.float64)
        gradient = found.gradient[0].numpy().astype(np.float64)
        offset = points - distance[:, None] * gradient - self._segments.begins[index]
        closest = np.einsum("nij,nj->ni", self._frames[index], offset)
        return [
            Sample(*row) for row in zip(along.tolist(), distance.tolist(), closest, strict=True)
        ]


def solve(algorithm: Callable[[Sample, float], Search], oracle: Oracle, count: int) -> np.ndarray:
    """Smallest distances (count,) that an algorithm finds."""
    starts = oracle(range(count), [0.0] * count)
    searches = [algorithm(start, LENGTH) for start in starts]
    found = np.empty(count)
    waiting: list[tuple[int, float]] = []

    def advance(index: int, answer: Sample | None) -> None:
        try:
            search = searches[index]
            waiting.append((index, next(search) if answer is None else search.send(answer)))
        except StopIteration as stop:
            found[index] = stop.value

    for index in range(count):
        advance(index, None)
    while waiting:
        asked, waiting[:] = list(waiting), []
        answers = oracle(*zip(*asked, strict=True))
        for (index, _), answer in zip(asked, answers, strict=True):
            advance(index, answer)
    return found


def truth(oracle: Oracle, count: int) -> np.ndarray:
    """Smallest distances (count,) over a dense row of samples."""
    places = np.linspace(0.0, LENGTH, DENSE)
    return np.array([min(s.distance for s in oracle([i] * DENSE, places)) for i in range(count)])


def experiment(count: int, world: MeshWorld | None = None) -> list[dict[str, Any]]:
    """Queries per segment, time per segment and error of every algorithm on every kind of segment.

    Raises:
        AssertionError: a certified algorithm missed the smallest distance by more than it may.
    """
    world = make_world() if world is None else world
    checked = min(count, 40)
    rows = []
    for kind in ("far", "near-parallel", "crossing", "inside"):
        segments = make_segments(kind, count)
        wanted = np.minimum(truth(Oracle(world, segments), checked), REACH)
        for name, algorithm in ALGORITHMS.items():
            oracle = Oracle(world, segments)
            found = np.minimum(solve(algorithm, oracle, count)[:checked], REACH)
            missed = float((found - wanted).max())
            assert missed <= TOLERANCE + ROUNDING or algorithm is every_millimetre, (kind, name)
            rows.append(
                {
                    "segments": kind,
                    "algorithm": name,
                    "queries": oracle.queries / count,
                    "microseconds": 1e6 * oracle.seconds / count,
                    "missed_by": max(0.0, missed),
                }
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the experiment, prints it as a table and writes it to results/sweep.json."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sweep_algorithms", description=__doc__
    )
    parser.add_argument("--segments", type=int, default=1000, help="of each kind (default 1000)")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = experiment(options.segments)
    print("| segments | algorithm | queries | µs | missed by [mm] |")
    print("| --- | --- | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['segments']} | {row['algorithm']} | {row['queries']:.1f} "
            f"| {row['microseconds']:.1f} | {1e3 * row['missed_by']:.3f} |"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sweep.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
