"""Meshes that callers made themselves, in the drop-in Functions.

Against what such callers have today: straightforward kernels that search radius + eta around each
sphere with Warp's default sign, and, where spheres move, the sum over samples of the path. Both get
the same `wp.Mesh` without a tree of winding numbers, tables and spheres, and run in turns.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
from torch import Tensor

from benchmarks import baseline, harness, truth
from benchmarks.harness import Call, micro
from benchmarks.scenes import (
    ACTIVATION_DISTANCE,
    RADIUS,
    Content,
    panda,
    panda_among,
    scattered,
)
from warp_collision import warp_primitives

COUNTS, BATCHES = (1, 5, 20, 100), (1, 32, 500)
# How many times its time the library may take, by number of meshes.
TARGETS = {1: 2.0, 5: 1.5, 20: 1.0, 100: 1.0}
LONG_TARGET = 2.0  # of steps much longer than the meshes
SAMPLES = 2  # of each half segment, beside the waypoint itself
MOST_SECONDS = 0.3  # of a call of the straightforward kernels: slow ones run fewer rows


class Buffers(NamedTuple):
    """A caller's spheres and buffers."""

    spheres: Tensor
    cost: Tensor
    gradient: Tensor
    active: Tensor


def make_buffers(rows: np.ndarray, device: torch.device) -> Buffers:
    """Spheres, and buffers of zeros for them, as callers make them."""
    spheres = torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(device)
    cost = torch.zeros(spheres.shape[:3], device=device)
    active = torch.zeros(spheres.shape[:3], dtype=torch.uint8, device=device)
    return Buffers(spheres, cost, torch.zeros_like(spheres), active)


def dropin(
    tables: baseline.Tables,
    buffers: Buffers,
    swept: bool,
    module: Any = warp_primitives,
    *,
    reach: float = 1.0,
    steps: int = 1,
    envs: Tensor | None = None,
) -> Callable[[], Tensor]:
    """A forward and backward of a drop-in Function; the caller keeps the meshes alive."""

    def scalar(value: float) -> Tensor:
        return torch.full((1,), value, device=tables.rows.device)

    weights, known = (scalar(1.0), scalar(ACTIVATION_DISTANCE)), (*tables, scalar(reach))
    if swept:
        function = module.SweptSdfMeshWarpPy
        given = (*weights, scalar(0.1), *known, steps, False, envs, False)
    else:
        function = module.SdfMeshWarpPy
        given = (*weights, *known, envs, False, False)
    spheres = buffers.spheres.detach().requires_grad_(True)

    def call() -> Tensor:
        spheres.grad = None
        function.apply(spheres, *buffers[1:], *given).sum().backward()
        return buffers.cost

    return call


def short_search(tables: baseline.Tables, spheres: Tensor, swept: bool) -> Callable[[], Tensor]:
    """A forward and backward of what callers have."""
    options = {"activation_distance": ACTIVATION_DISTANCE, "samples": SAMPLES if swept else 0}
    options |= {"limit": -1.0, "kernel": baseline.summed_by_default}
    return baseline.differentiated(baseline.sphere_cost, spheres, tables, **options)


def robot(count: int, batch: int) -> Content:
    """A Panda on paths of short steps among meshes."""
    return Content([panda_among(count)], panda(batch).spheres)


def long_steps(count: int, batch: int, step: float = 0.9) -> Content:
    """Spheres that fly far [m] from waypoint to waypoint, among small curved meshes."""
    rng = np.random.default_rng(0)
    kinds = trimesh.creation.icosphere(3, 0.1), trimesh.creation.torus(0.1, 0.03)
    placed, edge = scattered(rng, count, kinds)
    moves = rng.normal(size=(batch, 31, 32, 3))
    moves *= step / np.linalg.norm(moves, axis=-1, keepdims=True)
    begin = rng.uniform(0.0, edge, (batch, 1, 32, 3))
    centers = np.concatenate([begin, begin + moves.cumsum(axis=1)], axis=1)
    centers = np.abs((centers + edge) % (2.0 * edge) - edge)  # reflected by walls
    return Content([placed], np.insert(centers, 3, RADIUS, axis=-1).astype(np.float32))


def measure(
    content: Content, swept: bool, target: float, device: torch.device, seconds: float
) -> list[str]:
    """Figures of a row."""
    batch = len(content.spheres)
    kept, tables = baseline.callers_meshes(content.scenes[0], device)
    buffers = make_buffers(content.spheres, device)
    width = buffers.cost[0].numel()
    ours = dropin(tables, buffers, swept)
    first = harness.seconds_of(ours, device).clock
    right = buffers.cost.clone()
    truth.check(content, right, buffers.gradient, swept)

    def theirs(rows: int) -> Call:
        return Call(short_search(tables, buffers.spheres[:rows], swept), rows * width)

    calls = {"library": Call(ours, batch * width)}
    calls["short"] = harness.within(theirs, batch, MOST_SECONDS, device)
    times = harness.interleave(calls, 1000, seconds=seconds, device=device)
    wrong = "" if swept else differing(calls["short"].run(), right)
    library = times.median("library")
    later = max(0.0, first - batch * width * library)
    figures = [micro(library), micro(times.median("short"))]
    figures += [f"{times.ratio('library', over='short'):.2f}", f"{target:.1f}"]
    del kept
    return [*figures, f"{1e3 * later:.0f}", wrong]


def differing(given: Tensor, right: Tensor) -> str:
    """How many results of the first rows differ by more than rounding."""
    off = (given.float() - right[: len(given)].float()).abs() > 1e-4
    return f"{int(off.sum())} of {off.numel()}"


def add_options(parser: Any) -> None:
    """How many meshes and trajectories."""
    parser.add_argument("--meshes", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line (default 1)")


def run(options: Any) -> str:
    """The table."""
    head = ["meshes", "batch", "", "library, µs a sphere", "short search, µs", "ratio", "target"]
    head += ["first sight, ms", "wrong costs of the short search"]
    rows = []
    for what, swept, content in (
        ("resting", False, robot),
        ("swept", True, robot),
        ("steps of 0.9 m", True, long_steps),
    ):
        measure(robot(1, 1), swept, 1.0, options.device, 0.0)  # compiles the kernels
        for count, batch in itertools.product(options.meshes, options.batch):
            target = LONG_TARGET if content is long_steps else TARGETS.get(count, math.nan)
            given = content(count, batch), swept, target, options.device, options.seconds
            rows.append([str(count), str(batch), what, *measure(*given)])
    return harness.table(head, rows)
