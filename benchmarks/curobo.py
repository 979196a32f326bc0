"""The drop-in Functions beside cuRobo's, from a checkout that you have: `... curobo PATH`.

Both get the same positional arguments: the same `wp.Mesh` of a caller, tables, spheres and buffers.
Costs and gradients of resting spheres are compared with the float64 reference of the tests; of
moving ones, whose sum of samples and certified minimum are different costs, it is counted which
contacts on the way cost nothing. A second table has what differs on purpose. Nothing of cuRobo is
in this repository; its Functions run as they are in the checkout.
"""

import functools
import importlib
import itertools
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
import warp as wp
from torch import Tensor

from benchmarks import baseline, external, harness, truth
from benchmarks.harness import Call, Failed
from benchmarks.scenes import (
    ACTIVATION_DISTANCE,
    IDENTITY,
    Placed,
    panda,
    panda_among,
    random_poses,
    shape,
)
from benchmarks.truth import reference
from warp_collision import warp_primitives

MODULE = "curobo.geom.sdf.warp_primitives"
NO_CHECKOUT = f"""\
{{path}} has no {MODULE}. Get a checkout of version 0.7, whose license is its own, and name it:

    git clone --depth 1 --branch v0.7.8 https://github.com/NVlabs/curobo.git
    python -m benchmarks curobo curobo
"""
MAX_DISTANCE = 0.1  # [m] how far their queries search
SWEEP_STEPS = 4
SAMPLES = 400  # spheres that are compared with the reference, half of them with a cost
WRONG_COST, WRONG_GRADIENT = 1e-4, 0.05
COUNT, RADIUS = 400, 0.02  # spheres of a case, and their radius [m]


class Result(NamedTuple):
    """A Function, and the costs and gradients that it wrote."""

    call: Callable[[], Tensor]
    cost: np.ndarray
    gradient: np.ndarray


# Theirs and ours, for meshes, spheres (batch, horizon, n, 4), and whether these move.
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
        raise Failed(NO_CHECKOUT.format(path=path), 2)
    sys.path.insert(0, str(folder))
    module = importlib.import_module(MODULE)
    if not torch.cuda.is_available():  # it asks for the stream of each launch; CPUs have none
        module.wp = types.SimpleNamespace(**{**vars(wp), "stream_from_torch": lambda _: None})
    return module


def both(
    module: Any, device: torch.device, placed: Sequence[Placed], rows: np.ndarray, swept: bool
) -> list[Result]:
    """Runs both once, each with its own buffers."""
    meshes, tables = baseline.callers_meshes(placed, device)
    found = []
    for owner in (module, warp_primitives):
        buffers = external.make_buffers(rows, device)
        envs = torch.zeros((len(rows), 1), dtype=torch.int32, device=device)
        call = external.dropin(
            tables, buffers, swept, owner, envs=envs, reach=MAX_DISTANCE, steps=SWEEP_STEPS
        )
        call()
        results = buffers.cost.cpu().numpy(), buffers.gradient.cpu().numpy()
        call.kept = meshes
        found.append(Result(call, *results))
    return found


def compare(pair: Both, count: int, batch: int, swept: bool, options: Any) -> list[str]:
    """Compares both on the Panda's paths, and times them in turns: a row of the table."""
    rows = panda(batch).spheres
    results = pair(panda_among(count), rows, swept)
    calls = {n: Call(r.call, r.cost.size) for n, r in zip(("theirs", "ours"), results, strict=True)}
    times = harness.interleave(calls, options.rounds, device=options.device)
    whole, low, high = scales(*(result.cost for result in results))
    counted = [" / ".join(map(str, pair)) for pair in wrong(rows, results, count, swept)]
    taken = " / ".join(harness.micro(times.median(name)) for name in calls)
    row = [str(count), str(batch), "swept" if swept else "resting", *counted, f"{whole:.3f}"]
    return [*row, f"{low:.2f} to {high:.2f}", taken, f"{times.ratio('ours', over='theirs'):.2f}"]


def scales(theirs: np.ndarray, ours: np.ndarray) -> tuple[float, float, float]:
    """Theirs over ours: of all costs, and of single paths, 10th and 90th percentile."""
    paths = np.stack([cost.astype(np.float64).sum(axis=(1, 2)) for cost in (theirs, ours)])
    each = paths[:, (paths > 0.0).all(axis=0)]
    if not each.size:
        return (float("nan"),) * 3
    low, high = np.percentile(each[0] / each[1], (10, 90))
    return float(paths[0].sum() / paths[1].sum()), float(low), float(high)


def wrong(spheres: np.ndarray, results: list[Result], count: int, swept: bool) -> list[list[int]]:
    """Of each, a sample's costs and gradients that are not the reference's, contacts that cost 0.

    Of moving spheres costs and gradients are not counted. A sphere that touches a mesh costs more
    than eta / 2.
    """
    b, h, s = truth.choose(results[0].cost + results[1].cost, SAMPLES).T
    # Beyond the ends of a path the first and last waypoints stand still.
    steps = h + np.array([[-1], [0], [1]] if swept else [[0]])
    paths = spheres[b, np.clip(steps, 0, spheres.shape[1] - 1), s].astype(np.float64)
    paths = paths.transpose(1, 0, 2)[:, :, None]  # (samples, 3 or 1, 1, 4)
    placed = panda_among(count)
    found = truth.expected(paths, [truth.obstacles_of(placed, p[:, 0]) for p in paths], swept)
    expected = found.cost[:, len(steps) // 2, 0]
    costs = [result.cost[b, h, s] for result in results]
    missed = [int(((c == 0.0) & (expected > 0.5 * ACTIVATION_DISTANCE)).sum()) for c in costs]
    if found.gradient is None:
        return [[], [], missed]
    slopes = [r.gradient[b, h, s, :3] - found.gradient[:, :3] for r in results]
    return [
        [int((np.abs(cost - expected) > WRONG_COST).sum()) for cost in costs],
        [int((np.linalg.norm(slope, axis=-1) > WRONG_GRADIENT).sum()) for slope in slopes],
        missed,
    ]


def _spheres(centers: np.ndarray, radius: float = RADIUS) -> np.ndarray:
    return np.concatenate([centers, np.full((*centers.shape[:-1], 1), radius)], axis=-1)


def deep(pair: Both) -> tuple[str, list[str]]:
    """The middle of a large block."""
    block = Placed(trimesh.creation.box((4.0, 4.0, 4.0)), IDENTITY)
    results = pair([block], _spheres(np.zeros((1, 1, 1, 3)), 0.1), False)
    title = "cost in the middle of a block of 4 m, radius 0.1 m"
    return title, [f"{float(r.cost[0, 0, 0]):.2f}" for r in results]


def signs(pair: Both, name: str, mesh: Any, points: np.ndarray) -> tuple[str, list[str]]:
    """Points in and around meshes."""
    spheres = _spheres(points).astype(np.float32)
    obstacles = truth.obstacles_of([Placed(mesh, IDENTITY)], spheres)
    given = spheres.astype(np.float64)[None, None]
    expected = reference.sphere_cost(given, [obstacles], activation_distance=ACTIVATION_DISTANCE)
    results = pair([Placed(mesh, IDENTITY)], given, False)
    off = [f"{int((np.abs(r.cost - expected) > WRONG_COST).sum())}" for r in results]
    return f"wrong costs of {len(points)}, {name}", off


def on_faces(pair: Both) -> tuple[str, list[str]]:
    """Centers on the faces of a turned ball of triangles, as float32 has them."""
    ball = trimesh.creation.icosphere(2, 0.2)
    pose = random_poses(np.random.default_rng(12), 1, 0.4)[0].astype(np.float64)
    points, faces = trimesh.sample.sample_surface(ball, COUNT, seed=1)
    turn = reference.rotation_matrix(pose[3:])
    spheres = _spheres(np.asarray(points) @ turn.T + pose[:3])[None, None]
    results, normals = pair([Placed(ball, pose)], spheres, False), ball.face_normals[faces] @ turn.T
    slopes = [np.linalg.norm(r.gradient[0, 0, :, :3] + normals, axis=-1) for r in results]
    off = [f"{int((~(slope < WRONG_GRADIENT)).sum())}" for slope in slopes]  # a NaN is wrong too
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
    paths = _spheres(np.stack((begin, begin + way), axis=1)[:, :, None])
    results = pair([Placed(plate, IDENTITY)], paths, True)
    missed = [f"{int((r.cost.sum(axis=(1, 2)) == 0.0).sum())}" for r in results]
    return f"motions through a plate of 1 mm that cost 0, of {COUNT}", missed


def by_radius(pair: Both) -> tuple[str, list[str]]:
    """The fourth column of the gradient."""
    box = Placed(trimesh.creation.box((0.2, 0.2, 0.2)), IDENTITY)
    results = pair([box], np.array([[[[0.0, 0.02, 0.11, 0.05]]]]), False)
    slopes = [f"{float(r.gradient[0, 0, 0, 3]):.0f}" for r in results]
    return "d cost / d radius of a sphere in contact", slopes


def reversed_paths(pair: Both) -> tuple[str, list[str]]:
    """The cost of paths of three waypoints there and back."""
    rng, ball = np.random.default_rng(14), Placed(trimesh.creation.icosphere(3, 0.2), IDENTITY)
    middle = rng.uniform(-0.3, 0.3, (COUNT, 1, 1, 3))
    paths = _spheres(middle + rng.uniform(-0.1, 0.1, (COUNT, 3, 1, 3)))
    ways = [pair([ball], np.ascontiguousarray(p), True) for p in (paths, paths[:, ::-1])]
    most = [np.abs(a.cost - b.cost[:, ::-1]).max() for a, b in zip(*ways, strict=True)]
    title = "largest difference of a cost from that of the path reversed [m]"
    return title, [f"{float(difference):.2g}" for difference in most]


def cases(pair: Both) -> list[tuple[str, list[str]]]:
    """What the drop-in Functions do otherwise than cuRobo's on purpose, one figure for each."""
    rng, steps = np.random.default_rng(11), np.linspace(-1.0, 1.0, 21)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    two = [trimesh.creation.box((0.3, 0.2, 0.1)), trimesh.creation.box((0.1, 0.3, 0.2))]
    cylinder, boxes = trimesh.creation.cylinder(0.1, 0.3), trimesh.util.concatenate(two)
    # The grid is in line with the edges of the mesh.
    of_link = "in the box of a robot link", (link := shape("link"))
    return [
        deep(pair),
        signs(pair, "a grid in a cylinder", cylinder, grid * np.array([0.1, 0.1, 0.15])),
        signs(pair, "in two boxes that overlap", boxes, rng.uniform(-0.15, 0.15, (4000, 3))),
        signs(pair, *of_link, rng.uniform(-0.5, 0.5, (4000, 3)) * link.extents),
        *(case(pair) for case in (on_faces, through_plates, by_radius, reversed_paths)),
    ]


def add_options(parser: Any) -> None:
    """Where the checkout is; how many meshes and trajectories."""
    parser.add_argument("path", type=Path, nargs="?", default=Path("curobo"), help="a checkout")
    parser.add_argument("--meshes", type=int, nargs="+", default=(1, 5, 20))
    parser.add_argument("--batch", type=int, nargs="+", default=(1, 32))


def run(options: Any) -> str:
    """Two tables; pairs are theirs / ours."""
    pair = functools.partial(both, load(options.path), options.device)
    head = ["meshes", "batch", "", "wrong costs", "wrong gradients", "contacts missed"]
    head += ["sum of costs, theirs over ours", "of one path", "µs a sphere", "ours over theirs"]
    asked = itertools.product((False, True), options.meshes, options.batch)
    rows = [compare(pair, count, batch, swept, options) for swept, count, batch in asked]
    second = [[title, *answers] for title, answers in cases(pair)]
    return f"{harness.table(head, rows)}\n{harness.table(['', 'theirs', 'ours'], second)}"
