"""The drop-in Functions beside cuRobo's, from a checkout that you have: `... curobo PATH`.

Both get the same positional arguments: the same `wp.Mesh` of a caller, tables, spheres and buffers.
Costs and gradients of resting spheres are compared with the float64 reference of the tests, moving
ones with each other: a sum of samples and a certified minimum are different costs. Nothing of
cuRobo is in this repository; its Functions run as they are in the checkout.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from benchmarks.foreign import Buffers, Scene, elapsed, make_buffers, make_scene, placed_meshes
from benchmarks.report import RESULTS
from benchmarks.truth import reference
from benchmarks.workloads import ACTIVATION_DISTANCE
from warp_collision import warp_primitives
from warp_collision.launching.launch import quiet_warp

MODULE = "curobo.geom.sdf.warp_primitives"
NO_CHECKOUT = f"""\
{{path}} has no {MODULE}. Get a checkout of version 0.7, whose license is its own, and name it:

    git clone --depth 1 --branch v0.7.8 https://github.com/NVlabs/curobo.git
    python -m benchmarks.curobo curobo
"""
COUNTS, BATCHES = (1, 5, 20), (1, 32)
MAX_DISTANCE = 0.1  # [m] how far their queries search
SWEEP_STEPS = 4
SAMPLES = 400  # spheres that are compared with the reference, half of them with a cost
STEP = 1e-5  # [m] of finite differences
WRONG_COST, WRONG_GRADIENT = 1e-4, 0.05


def load(path: Path) -> Any:
    """The module of a checkout; ImportError if there is none.

    Warp 1.13 dropped `wp.torch`, which version 0.7 calls: the functions are those of `wp` itself.
    """
    if not hasattr(wp, "torch"):
        names = ("device_from_torch", "from_torch", "stream_from_torch", "to_torch")
        wp.torch = types.SimpleNamespace(**{name: getattr(wp, name) for name in names})
    folder = path / "src" if (path / "src").is_dir() else path
    if not (folder / Path(*MODULE.split(".")).with_suffix(".py")).is_file():
        raise ImportError(NO_CHECKOUT.format(path=path))
    sys.path.insert(0, str(folder))
    return importlib.import_module(MODULE)


class Row(NamedTuple):
    """One line of the table; pairs are theirs and ours.

    Attributes:
        wrong_costs: spheres of the sample whose cost is off by more than 0.1 mm.
        wrong_gradients: those whose gradient by the center is off by more than 0.05 of a unit.
        scale: sum of their costs over that of ours.
    """

    meshes: int
    batch: int
    swept: bool
    wrong_costs: tuple[int, int] | None
    wrong_gradients: tuple[int, int] | None
    scale: float
    seconds: tuple[float, float]


def run(module: Any, scene: Scene, buffers: Buffers, swept: bool) -> Callable[[], Tensor]:
    """A forward and backward of a module's Function, into the buffers."""
    device = buffers.spheres.device

    def number(value: float) -> Tensor:
        return torch.full((1,), value, device=device)

    spheres = buffers.spheres.detach().requires_grad_(True)
    envs = torch.zeros((len(spheres), 1), dtype=torch.int32, device=device)
    tables = (scene.ids, scene.rows, scene.enabled, scene.counts, number(MAX_DISTANCE))
    arguments = (*buffers[1:], number(1.0), number(ACTIVATION_DISTANCE))
    if swept:
        function = module.SweptSdfMeshWarpPy
        arguments += (number(0.1), *tables, SWEEP_STEPS, False, envs, False)
    else:
        function = module.SdfMeshWarpPy
        arguments += (*tables, envs, False, False)

    def call() -> Tensor:
        spheres.grad = None
        function.apply(spheres, *arguments).sum().backward()
        return buffers.cost

    return call


def compare(module: Any, count: int, batch: int, swept: bool, device: torch.device) -> Row:
    """Runs both in turns."""
    scene = make_scene(count, device)
    results = []
    calls = []
    for owner in (module, warp_primitives):
        buffers = make_buffers(batch, device)
        calls.append(run(owner, scene, buffers, swept))
        calls[-1]()
        results.append((buffers.cost.cpu().numpy(), buffers.gradient.cpu().numpy()))
    spheres = buffers.spheres.cpu().numpy()
    times = [[elapsed(call) for call in calls] for _ in range(5)]
    seconds = np.median(np.array(times), axis=0) / results[0][0].size
    (theirs, _), (ours, _) = results
    scale = float(theirs.sum() / max(ours.sum(), 1e-12))
    pair = float(seconds[0]), float(seconds[1])
    if swept:
        return Row(count, batch, swept, None, None, scale, pair)
    costs, gradients = wrong(spheres, results, count)
    return Row(count, batch, swept, costs, gradients, scale, pair)


def wrong(
    spheres: np.ndarray, results: list[tuple[np.ndarray, np.ndarray]], count: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many costs and gradients of each are not those of the reference, on a sample."""
    rng = np.random.default_rng(3)
    flat = spheres.reshape(-1, 4)
    costly = np.flatnonzero((results[0][0] + results[1][0]).ravel() > 0.0)
    picked = np.concatenate((
        rng.choice(costly, min(len(costly), SAMPLES // 2), replace=False),
        rng.choice(len(flat), min(len(flat), SAMPLES // 2), replace=False),
    ))  # fmt: skip
    obstacles = [
        reference.Obstacle(p.mesh.vertices, p.mesh.faces, np.array(p.pose, dtype=np.float64))
        for p in placed_meshes(count)
    ]

    def truth(points: np.ndarray) -> np.ndarray:
        rows = points.astype(np.float64)[None, None]
        eta = ACTIVATION_DISTANCE
        return reference.sphere_cost(rows, [obstacles], activation_distance=eta)[0, 0]

    sample = flat[picked].astype(np.float64)
    cost = truth(sample)
    gradient = np.stack(
        [
            (truth(sample + STEP * axis) - truth(sample - STEP * axis)) / (2.0 * STEP)
            for axis in np.eye(4)[:3]
        ],
        axis=-1,
    )
    costs, gradients = [], []
    for given, slope in results:
        costs.append(int((np.abs(given.ravel()[picked] - cost) > WRONG_COST).sum()))
        off = np.linalg.norm(slope.reshape(-1, 4)[picked, :3] - gradient, axis=-1)
        gradients.append(int((off > WRONG_GRADIENT).sum()))
    return (costs[0], costs[1]), (gradients[0], gradients[1])


def text(rows: Sequence[Row]) -> str:
    """The table, in Markdown; pairs are theirs / ours."""
    lines = [
        "| meshes | batch | | wrong costs | wrong gradients | sum of costs, theirs over ours | "
        "µs a sphere | ours over theirs |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        costs, gradients = (
            "" if p is None else f"{p[0]} / {p[1]}" for p in (r.wrong_costs, r.wrong_gradients)
        )
        theirs, ours = r.seconds
        lines.append(
            f"| {r.meshes} | {r.batch} | {'swept' if r.swept else 'resting'} | {costs} | "
            f"{gradients} | {r.scale:.3f} | {1e6 * theirs:.3g} / {1e6 * ours:.3g} | "
            f"{ours / theirs:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 2 if there is no checkout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curobo", description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=Path("curobo"), help="a checkout")
    parser.add_argument("--meshes", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    options = parser.parse_args(arguments)
    try:
        module = load(options.path)
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with quiet_warp():
        rows = [
            compare(module, count, batch, swept, device)
            for swept in (False, True)
            for count in options.meshes
            for batch in options.batch
        ]
    print(text(rows))
    if options.write:
        (RESULTS / f"curobo-{device.type}.md").write_text(text(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
