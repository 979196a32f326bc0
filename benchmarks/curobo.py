"""The drop-in Functions beside cuRobo's, from a checkout that you have: `... curobo PATH`.

Both get the same positional arguments: the same `wp.Mesh` of a caller, tables, spheres and buffers.
Costs and gradients of resting spheres are compared with the float64 reference of the tests; of
moving ones, whose sum of samples and certified minimum are different costs, it is counted which
contacts on the way cost nothing. `benchmarks.curobo_cases` has what differs on purpose. Nothing of
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

from benchmarks import curobo_cases
from benchmarks.foreign import (
    Buffers,
    Scene,
    elapsed,
    make_buffers,
    make_scene,
    panda_spheres,
    placed_meshes,
)
from benchmarks.report import RESULTS
from benchmarks.truth import SAMPLING, reference, reference_sweep
from benchmarks.workloads import ACTIVATION_DISTANCE, Placed
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
TURNS = 9  # how often both are timed


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
    module = importlib.import_module(MODULE)
    if not torch.cuda.is_available():  # it asks for the stream of each launch; CPUs have none
        module.wp = types.SimpleNamespace(**{**vars(wp), "stream_from_torch": lambda _: None})
    return module


class Row(NamedTuple):
    """One line of the table; pairs are theirs and ours.

    Attributes:
        wrong_costs: spheres of the sample whose cost is off by more than 0.1 mm.
        wrong_gradients: those whose gradient by the center is off by more than 0.05 of a unit.
        missed: those that cost 0 though they touch a mesh, on their way where they move.
        scale: sum of their costs over that of ours.
        spread: the same of each path that both make cost something, 10th and 90th percentile.
    """

    meshes: int
    batch: int
    swept: bool
    wrong_costs: tuple[int, int] | None
    wrong_gradients: tuple[int, int] | None
    missed: tuple[int, int]
    scale: float
    spread: tuple[float, float]
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


class Both(NamedTuple):
    """Calls of theirs and ours, and the costs and gradients that they wrote; it owns the meshes."""

    scene: Scene
    calls: list[Callable[[], Tensor]]
    results: list[tuple[np.ndarray, np.ndarray]]


def both(
    module: Any, placed: Sequence[Placed], rows: np.ndarray, swept: bool, device: torch.device
) -> Both:
    """Runs both once, each with its own buffers."""
    scene = make_scene(placed, device)
    found = Both(scene, [], [])
    for owner in (module, warp_primitives):
        buffers = make_buffers(rows, device)
        call = run(owner, scene, buffers, swept)
        call()
        found.calls.append(call)
        found.results.append((buffers.cost.cpu().numpy(), buffers.gradient.cpu().numpy()))
    return found


def compare(module: Any, count: int, batch: int, swept: bool, device: torch.device) -> Row:
    """Compares both on the Panda's paths, and times them in turns."""
    rows = panda_spheres(batch)
    found = both(module, placed_meshes(count), rows, swept, device)
    results = found.results
    times = [[elapsed(call) for call in found.calls] for _ in range(TURNS)]
    theirs, ours = np.median(np.array(times), axis=0) / results[0][0].size
    costs, gradients, missed = wrong(rows, results, count, swept)
    scale, *spread = scales(results[0][0], results[1][0])
    return Row(
        count,
        batch,
        swept,
        costs,
        gradients,
        missed,
        scale,
        (spread[0], spread[1]),
        (float(theirs), float(ours)),
    )


def scales(theirs: np.ndarray, ours: np.ndarray) -> tuple[float, float, float]:
    """Theirs over ours: of all costs, and of single paths, 10th and 90th percentile."""
    paths = np.stack([cost.astype(np.float64).sum(axis=(1, 2)) for cost in (theirs, ours)])
    whole = paths.sum(axis=1)
    each = paths[:, (paths > 0.0).all(axis=0)]
    if not each.size:
        return float("nan"), float("nan"), float("nan")
    low, high = np.percentile(each[0] / each[1], (10, 90))
    return float(whole[0] / whole[1]), float(low), float(high)


def wrong(
    spheres: np.ndarray, results: list[tuple[np.ndarray, np.ndarray]], count: int, swept: bool
) -> tuple[tuple[int, int] | None, tuple[int, int] | None, tuple[int, int]]:
    """How many costs and gradients of each are not the reference's, and contacts that cost 0."""
    rng = np.random.default_rng(3)
    costly = np.flatnonzero((results[0][0] + results[1][0]).ravel() > 0.0)
    size = results[0][0].size
    picked = np.concatenate((
        rng.choice(costly, min(len(costly), SAMPLES // 2), replace=False),
        rng.choice(size, min(size, SAMPLES // 2), replace=False),
    ))  # fmt: skip
    obstacles = [
        reference.Obstacle(p.mesh.vertices, p.mesh.faces, np.array(p.pose, dtype=np.float64))
        for p in placed_meshes(count)
    ]
    given = [cost.ravel()[picked] for cost, _ in results]
    if swept:
        b, h, s = np.unravel_index(picked, spheres.shape[:3])
        # Beyond the ends of a path the first and last waypoints stand still.
        steps = np.clip(h + np.array([[-1], [0], [1]]), 0, spheres.shape[1] - 1)
        paths = spheres[b, steps, s].astype(np.float64)[None]
        truth = reference_sweep.swept_sphere_cost(
            paths, [obstacles], activation_distance=ACTIVATION_DISTANCE, **SAMPLING
        )[0, 1]
        return None, None, _pair(missed_contacts(cost, truth) for cost in given)

    def resting(points: np.ndarray) -> np.ndarray:
        rows, eta = points[None, None], ACTIVATION_DISTANCE
        return reference.sphere_cost(rows, [obstacles], activation_distance=eta)[0, 0]

    sample = spheres.reshape(-1, 4)[picked].astype(np.float64)
    truth = resting(sample)
    slope = np.stack(
        [
            (resting(sample + STEP * axis) - resting(sample - STEP * axis)) / (2.0 * STEP)
            for axis in np.eye(4)[:3]
        ],
        axis=-1,
    )
    slopes = [gradient.reshape(-1, 4)[picked, :3] for _, gradient in results]
    return (
        _pair(int((np.abs(cost - truth) > WRONG_COST).sum()) for cost in given),
        _pair(int((np.linalg.norm(g - slope, axis=-1) > WRONG_GRADIENT).sum()) for g in slopes),
        _pair(missed_contacts(cost, truth) for cost in given),
    )


def missed_contacts(cost: np.ndarray, truth: np.ndarray) -> int:
    """Number of spheres that touch a mesh, which costs more than eta / 2, but cost nothing."""
    return int(((cost == 0.0) & (truth > 0.5 * ACTIVATION_DISTANCE)).sum())


def _pair(numbers: Any) -> tuple[int, int]:
    theirs, ours = numbers
    return theirs, ours


def text(rows: Sequence[Row]) -> str:
    """The table, in Markdown; pairs are theirs / ours."""
    lines = [
        "| meshes | batch | | wrong costs | wrong gradients | contacts missed | sum of costs, "
        "theirs over ours | of one path | µs a sphere | ours over theirs |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        counted = " | ".join(
            "" if p is None else f"{p[0]} / {p[1]}"
            for p in (r.wrong_costs, r.wrong_gradients, r.missed)
        )
        theirs, ours = r.seconds
        lines.append(
            f"| {r.meshes} | {r.batch} | {'swept' if r.swept else 'resting'} | {counted} | "
            f"{r.scale:.3f} | {r.spread[0]:.2f} to {r.spread[1]:.2f} | "
            f"{1e6 * theirs:.3g} / {1e6 * ours:.3g} | {ours / theirs:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 2 if there is no checkout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curobo", description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=Path("curobo"), help="a checkout")
    parser.add_argument("--meshes", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--write", action="store_true", help="keep the tables in results/")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with quiet_warp():
        try:
            module = load(options.path)
        except ImportError as error:
            print(error, file=sys.stderr)
            return 2
        rows = [
            compare(module, count, batch, swept, device)
            for swept in (False, True)
            for count in options.meshes
            for batch in options.batch
        ]
        cases = curobo_cases.compare(lambda *given: both(module, *given, device).results)
    tables = f"{text(rows)}\n\n{curobo_cases.text(cases)}"
    print(tables)
    if options.write:
        (RESULTS / f"curobo-{device.type}.md").write_text(tables + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
