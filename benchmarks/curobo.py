"""The drop-in Functions beside cuRobo's, from a checkout of version 0.7, whose license is its own.

    git clone --depth 1 --branch v0.7.8 https://github.com/NVlabs/curobo.git
    python -m benchmarks curobo curobo

Both get the same positional arguments: the same `wp.Mesh` of a caller, tables, spheres and buffers.
Costs of resting spheres of both are compared with the float64 reference of the tests; of moving
ones, whose sum of samples and certified minimum are different costs, ours alone. A second table has
what differs on purpose. Nothing of cuRobo is in this repository; its Functions run as they are in
the checkout.
"""

import importlib
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
import warp as wp
from torch import Tensor

import primitives
import reference
from benchmarks import baseline, harness, truth
from benchmarks.harness import Call, Failed, Workload
from benchmarks.scenes import (
    ACTIVATION_DISTANCE,
    IDENTITY,
    Content,
    Placed,
    panda,
    panda_among,
    random_poses,
    with_radius,
)
from warp_collision import warp_primitives

MODULE = "curobo.geom.sdf.warp_primitives"
MAX_DISTANCE = 0.1  # [m] how far their queries search
SWEEP_STEPS = 4
MESHES, BATCHES = (1, 5, 20), (1, 32)
COUNT, CASE_RADIUS = 400, 0.02  # spheres of a case, and their radius [m]


class Result(NamedTuple):
    """A Function, and the costs and gradients that it wrote."""

    call: Call
    cost: np.ndarray
    gradient: np.ndarray


# Ours and theirs, for meshes, spheres (batch, horizon, n, 4), and whether these move.
Both = Callable[[Sequence[Placed], np.ndarray, bool], list[Result]]


def load(path: Path) -> Any:
    """The module of a checkout.

    Warp 1.13 dropped `wp.torch`, which version 0.7 calls: the functions are those of `wp` itself.
    """
    if not hasattr(wp, "torch"):
        names = ("device_from_torch", "from_torch", "stream_from_torch", "to_torch")
        wp.torch = types.SimpleNamespace(**{name: getattr(wp, name) for name in names})
    folder = path / "src" if (path / "src").is_dir() else path
    if not (folder / Path(*MODULE.split(".")).with_suffix(".py")).is_file():
        raise Failed(f"{path} has no {MODULE}.\n\n{__doc__}", 2)
    sys.path.insert(0, str(folder))
    module = importlib.import_module(MODULE)
    if not torch.cuda.is_available():  # it asks for the stream of each launch; CPUs have none
        module.wp = types.SimpleNamespace(**{**vars(wp), "stream_from_torch": lambda _: None})
    return module


def both(
    module: Any, device: torch.device, placed: Sequence[Placed], rows: np.ndarray, swept: bool
) -> list[Result]:
    """Runs both once, each with its own buffers."""
    tables, kind = baseline.callers_meshes(placed, device), "swept" if swept else "rest"
    spheres = torch.from_numpy(rows.astype(np.float32)).to(device)
    changes = {
        "max_dist": torch.full((1,), MAX_DISTANCE, device=device),
        "env_query_idx": torch.zeros((len(rows), 1), dtype=torch.int32, device=device),
        "sweep_steps": SWEEP_STEPS,
    }
    found = []
    for owner in (warp_primitives, module):
        given: Any = primitives.Call(kind, spheres, tables, changes)
        for buffer in given.buffers:
            buffer.zero_()
        function = getattr(owner, primitives.FUNCTIONS[kind].__name__)
        others = [given[name] for name in primitives.NAMES[kind][1:]]
        call = baseline.differentiated(partial(_apply, function, others), spheres)
        call.run()
        cost, gradient, _ = (buffer.cpu().numpy() for buffer in given.buffers)
        found.append(Result(call, cost, gradient))
    return found


def _apply(function: Any, others: list[Any], spheres: Tensor) -> Tensor:
    return function.apply(spheres, *others)


def contenders(pair: Both, count: int, batch: int, swept: bool) -> dict[str, Call]:
    """Both on the Panda's paths; says how their sums of costs compare."""
    content = Content([panda_among(count)], panda(batch).spheres)
    ours, theirs = pair(content.scenes[0], content.spheres, swept)
    for result in [ours] if swept else [ours, theirs]:
        cost, gradient = torch.from_numpy(result.cost), torch.from_numpy(result.gradient)
        # There is no gradient by the radius in theirs.
        truth.check(content, cost, gradient if result is ours else None, swept)
    note = compared(theirs.cost, ours.cost)
    return {"library": ours.call, "cuRobo": theirs.call._replace(note=note)}


def compared(theirs: np.ndarray, ours: np.ndarray) -> str:
    """Sums of costs (batch, horizon, n), theirs over ours, and contacts that theirs pay nothing."""
    missed = int(((theirs == 0.0) & (ours > 0.5 * ACTIVATION_DISTANCE)).sum())
    paths = np.stack([cost.astype(np.float64).sum(axis=(1, 2)) for cost in (theirs, ours)])
    each = paths[:, (paths > 0.0).all(axis=0)]
    low, high = np.percentile(each[0] / each[1], (10, 90)) if each.size else (np.nan, np.nan)
    whole = paths[0].sum() / max(paths[1].sum(), 1e-30)
    return f"{whole:.3f} of our costs, by path {low:.2f} to {high:.2f}, {missed} contacts missed"


def workloads(pair: Both, options: Any) -> Iterator[Workload]:
    """Resting and moving, among few meshes and more."""
    for swept, count, batch in itertools.product((False, True), MESHES, BATCHES):
        rows = max(1, round(batch * options.scale))
        name = f"{'swept' if swept else 'resting'}, {count} meshes, {rows} paths"
        yield Workload(name, "sphere", partial(contenders, pair, count, rows, swept))


def deep(pair: Both) -> tuple[str, list[str]]:
    """The middle of a large block."""
    block = Placed(trimesh.creation.box((4.0, 4.0, 4.0)), IDENTITY)
    results = pair([block], with_radius(np.zeros((1, 1, 1, 3)), 0.1), False)
    title = "cost in the middle of a block of 4 m, radius 0.1 m"
    return title, [f"{float(r.cost[0, 0, 0]):.2f}" for r in results]


def in_cylinder(pair: Both) -> tuple[str, list[str]]:
    """A grid of points in line with the edges of a mesh."""
    steps, mesh = np.linspace(-1.0, 1.0, 21), trimesh.creation.cylinder(0.1, 0.3)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    spheres = with_radius(grid * np.array([0.1, 0.1, 0.15]), CASE_RADIUS)[None, None]
    scene = truth.obstacles_near([Placed(mesh, IDENTITY)], spheres[0, 0].astype(np.float64))
    given, eta = spheres.astype(np.float64), ACTIVATION_DISTANCE
    expected = reference.sphere_cost(given, [scene], activation_distance=eta)
    results = pair([Placed(mesh, IDENTITY)], spheres, False)
    off = [f"{int((np.abs(r.cost - expected) > 1e-4).sum())}" for r in results]
    return f"wrong costs of {len(grid)}, a grid in a cylinder", off


def on_faces(pair: Both) -> tuple[str, list[str]]:
    """Centers on the faces of a turned ball of triangles, as float32 has them."""
    ball = trimesh.creation.icosphere(2, 0.2)
    pose = random_poses(np.random.default_rng(12), 1, 0.4)[0].astype(np.float64)
    points, faces = trimesh.sample.sample_surface(ball, COUNT, seed=1)
    turn = reference.rotation_matrix(pose[3:])
    spheres = with_radius(np.asarray(points) @ turn.T + pose[:3], CASE_RADIUS)[None, None]
    results, normals = pair([Placed(ball, pose)], spheres, False), ball.face_normals[faces] @ turn.T
    slopes = [np.linalg.norm(r.gradient[0, 0, :, :3] + normals, axis=-1) for r in results]
    off = [f"{int((~(slope < 0.05)).sum())}" for slope in slopes]  # a NaN is wrong too
    return f"gradients that are not the face's normal, of {COUNT} centers on faces", off


def through_plates(pair: Both) -> tuple[str, list[str]]:
    """Spheres that pass through a plate of 1 mm in one step of 0.2 to 1 m."""
    rng, plate = np.random.default_rng(13), trimesh.creation.box((2.0, 2.0, 1e-3))
    direction = rng.normal(size=(COUNT, 3))
    direction[:, 2] = np.abs(direction[:, 2]) + 1.0
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    way = rng.uniform(0.2, 1.0, (COUNT, 1)) * direction
    crossing = rng.uniform(-0.3, 0.3, (COUNT, 3)) * np.array([1.0, 1.0, 0.0])
    begin = crossing - rng.uniform(0.2, 0.8, (COUNT, 1)) * way
    paths = with_radius(np.stack((begin, begin + way), axis=1)[:, :, None], CASE_RADIUS)
    results = pair([Placed(plate, IDENTITY)], paths, True)
    missed = [f"{int((r.cost.sum(axis=(1, 2)) == 0.0).sum())}" for r in results]
    return f"motions through a plate of 1 mm that cost 0, of {COUNT}", missed


def reversed_paths(pair: Both) -> tuple[str, list[str]]:
    """The cost of paths of three waypoints there and back."""
    rng, ball = np.random.default_rng(14), Placed(trimesh.creation.icosphere(3, 0.2), IDENTITY)
    middle = rng.uniform(-0.3, 0.3, (COUNT, 1, 1, 3))
    paths = with_radius(middle + rng.uniform(-0.1, 0.1, (COUNT, 3, 1, 3)), CASE_RADIUS)
    ways = [pair([ball], np.ascontiguousarray(p), True) for p in (paths, paths[:, ::-1])]
    most = [np.abs(a.cost - b.cost[:, ::-1]).max() for a, b in zip(*ways, strict=True)]
    title = "largest difference of a cost from that of the path reversed [m]"
    return title, [f"{float(difference):.2g}" for difference in most]


CASES = (deep, in_cylinder, on_faces, through_plates, reversed_paths)


def add_options(parser: Any) -> None:
    """Where the checkout is."""
    parser.add_argument("path", type=Path, nargs="?", default=Path("curobo"), help="a checkout")
    harness.timing_options(parser, on_gpu=True)


def run(options: Any) -> str:
    """Two tables."""
    pair = partial(both, load(options.path), options.device)
    times = harness.measure(workloads(pair, options), options)
    rows = [[title, *answers] for title, answers in (case(pair) for case in CASES)]
    return f"{times}\n{harness.table(['on purpose', 'library', 'cuRobo'], rows)}"
