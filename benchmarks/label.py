"""Labels of paths: rows a second, against the loop that a user would write; packed worlds; workers.

Paths of 32 waypoints of the Panda, each in the world of a planning problem that stands a little
elsewhere. Whatever is compared gives the same labels, to the bit.
"""

import argparse
import functools
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import RESULTS, Call, Failed, Times, interleave, section, table
from benchmarks.plan import problems
from warp_collision import (
    MeshWorld,
    RobotSpheres,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda, load_problem, problem_names
from warp_collision.io import Obstacle, load_world_mapping
from warp_collision.labeling import PathLabeler, PathRow

WAYPOINTS = 32
CLEARANCES = ("free", "clearance", "self_clearance")
STEP_WORLDS, STEP_PATHS = 64, 4  # of a training step: worlds, and paths in each


_problem = functools.cache(load_problem)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sizes."""
    parser.add_argument("--rows", type=int, default=1000, help="of the batch (default 1000)")
    parser.add_argument("--worlds", type=int, default=200, help="in the batch (default 200)")
    parser.add_argument(
        "--panda-paths",
        metavar="PARQUET",
        help="write the paths of the 700 problems of the Panda for `warp-collision label`, "
        "and measure nothing",
    )


def worlds_of(count: int) -> dict[str, dict[str, Any]]:
    """Worlds as mappings: those of the problems, shifted by up to 5 cm."""
    rng, names, found = np.random.default_rng(0), problem_names(), {}
    for index in range(count):
        world: dict[str, Any] = {}
        shift = rng.uniform(-0.05, 0.05, 3)
        for name, item in _problem(names[index % len(names)]).obstacles.items():
            kind, entry = _entry(item)
            pose = np.array(item.pose, dtype=np.float64)
            pose[:3] += shift
            world.setdefault(kind, {})[name] = {**entry, "pose": pose.tolist()}
        found[f"world {index}"] = world
    return found


def _entry(item: Obstacle) -> tuple[str, dict[str, Any]]:
    shape: Any = item.geometry
    if hasattr(shape, "dims"):
        return "cuboid", {"dims": [*shape.dims]}
    return "cylinder", {"radius": shape.radius, "height": shape.height}


def rows_of(count: int, worlds: Sequence[str]) -> list[PathRow]:
    """Paths from near the start of a problem to half of the way to its goal."""
    rng, names, rows = np.random.default_rng(1), problem_names(), []
    for index in range(count):
        at = index % len(worlds)
        problem = _problem(names[at % len(names)])
        start, goal = (
            np.array(end) + rng.normal(0, 0.1, 7) for end in (problem.start, problem.goal)
        )
        path = np.linspace(start, 0.5 * (start + goal), WAYPOINTS)
        rows.append(PathRow(path.astype(np.float32), worlds[at], index))
    return rows


def plain_loop(
    rows: Sequence[PathRow],
    robot: RobotSpheres,
    loaded: dict[str, MeshWorld],
    *,
    clearances: bool,
) -> dict[str, np.ndarray]:
    """What a user writes around the checks: the worlds are loaded before."""
    found: dict[str, list[float]] = {name: [] for name in CLEARANCES[: 3 if clearances else 1]}
    for row in rows:
        world, path = loaded[row.world], torch.from_numpy(row.path)[None]
        found["free"].append(not joint_path_in_collision(path, robot, world).any().item())
        if clearances:
            bounds = joint_path_clearance(path, robot, world)
            found["clearance"].append(bounds.lower.min().item())
            found["self_clearance"].append(bounds.self_lower.min().item())
    return {name: np.array(values) for name, values in found.items()}


def run(options: argparse.Namespace) -> str:
    """All of it, as Markdown."""
    robot, worlds = load_panda(), worlds_of(options.worlds)
    if options.panda_paths:
        return write_panda_paths(options.panda_paths, robot.joint_names)
    rows = rows_of(options.rows, [*worlds])
    loaded = {name: MeshWorld.from_mapping(world, "cpu") for name, world in worlds.items()}
    some = rows[: max(1, options.rows // 5)]
    ratios: dict[str, float] = {}
    texts = []
    cells = []
    for name, outputs, batch in (
        ("yes or no", CLEARANCES[:1], rows),
        ("and clearances", CLEARANCES, some),
    ):
        times = _against_loop(batch, robot, worlds, loaded, outputs, options.rounds)
        ratios[f"{name}: over the plain loop"] = times.ratio("loop", "labeler")
        ratios[f"{name}: packed over one after another"] = times.ratio("by world", "labeler")
        rate = f"{1.0 / times.median('labeler'):,.0f}"
        both = (
            f"{times.ratio(other, 'labeler'):.1f} times" for other in ("loop", "by world", "cold")
        )
        cells.append((name, rate, *both))
    head = (
        *("labels", "rows a second", "plain loop takes", "world by world takes"),
        "worlds loaded anew take",
    )
    texts.append(section("One process, one thread", table(head, cells)))
    one, two = (_rate(robot, worlds, rows, workers) for workers in (1, 2))
    ratios["two workers over one"] = two / one
    text = f"Two processes label {two / one:.2f} times as many rows a second as one does.\n"
    texts.append(section("Workers", text))
    step = _training_step(robot, worlds, loaded, options.rounds)
    n_worlds = min(STEP_WORLDS, len(worlds))
    ratios["a step in 64 worlds: over one after another"] = step.ratio("one after another", "envs")
    text = (
        f"A step of {n_worlds * STEP_PATHS} paths in {n_worlds} worlds, cost and gradient: "
        f"{1e3 * step.median('envs'):.0f} ms in one batch of envs, "
        f"{1e3 * step.median('one after another'):.0f} ms one world after another, "
        f"{step.ratio('one after another', 'envs'):.1f} times as long.\n"
    )
    texts.append(section("Training", text))
    if options.write:
        _draw(ratios)
    return "\n".join(texts)


def write_panda_paths(file: str, joint_names: Sequence[str]) -> str:
    """Writes a Parquet file of paths; says how to label it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = problems.robot_folder("panda")
    columns: dict[str, list[Any]] = {"id": [], "path": [], "world": []}
    for scene_type, index in problems.list_problems(folder, "panda"):
        problem = problems.read_problem(folder, "panda", scene_type, index, [*joint_names])
        columns["id"].append(f"{scene_type}_{index}")
        columns["path"].append(np.linspace(problem.start, problem.goal, WAYPOINTS).tolist())
        columns["world"].append(str(problem.scene.relative_to(folder / "problems")))
    pq.write_table(pa.table(columns), file)
    return (
        f"{len(columns['id'])} paths\nwarp-collision label {file} --out labels --robot "
        f"{folder / 'panda_spherized.urdf'} --srdf {folder / 'panda_fitting.srdf'} "
        f"--world {folder / 'problems'}\n"
    )


def _same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, values in expected.items():
        if not np.array_equal(found[name], values.astype(found[name].dtype)):
            raise Failed(f"{name} of the labeler is not that of the plain loop")


def _against_loop(
    rows: Sequence[PathRow],
    robot: RobotSpheres,
    worlds: dict[str, Any],
    loaded: dict[str, MeshWorld],
    outputs: Sequence[str],
    rounds: int,
) -> Times:
    labeler = PathLabeler(robot, worlds, outputs=outputs, device="cpu")
    by_world: dict[str, list[PathRow]] = {}
    for row in rows:
        by_world.setdefault(row.world, []).append(row)

    def loop() -> dict[str, np.ndarray]:
        return plain_loop(rows, robot, loaded, clearances=len(outputs) > 1)

    def cold() -> None:
        PathLabeler(robot, worlds, outputs=outputs, device="cpu").label(rows)

    _same(labeler.label(rows), loop())
    count = len(rows)
    calls = {
        "labeler": Call(lambda: labeler.label(rows), count),
        "by world": Call(lambda: [labeler.label(part) for part in by_world.values()], count),
        "loop": Call(loop, count),
        "cold": Call(cold, count),
    }
    return interleave(calls, rounds, seconds=60.0)


def _work(
    robot: RobotSpheres, worlds: Any, rows: list[PathRow], ready: Barrier, times: Any
) -> None:
    """A worker: labels its rows once to warm up, and once with the others."""
    labeler = PathLabeler(robot, worlds, threads=1, device="cpu")
    labeler.label(rows[:64])
    ready.wait()
    begin = time.time()
    labeler.label(rows)
    times.put((begin, time.time()))


def _rate(robot: RobotSpheres, worlds: Any, rows: Sequence[PathRow], workers: int) -> float:
    """Rows a second of processes that label the same number of rows each."""
    context = multiprocessing.get_context("spawn")
    ready, times = context.Barrier(workers), context.Queue()
    part = [*rows[: len(rows) // 2]]
    pool = [
        context.Process(target=_work, args=(robot, worlds, part, ready, times))
        for _ in range(workers)
    ]
    for process in pool:
        process.start()
    found = [times.get(timeout=600) for _ in pool]
    for process in pool:
        process.join()
    return workers * len(part) / (max(end for _, end in found) - min(begin for begin, _ in found))


def _training_step(
    robot: RobotSpheres, worlds: dict[str, Any], loaded: dict[str, MeshWorld], rounds: int
) -> Times:
    """Cost and gradient of paths of a policy in 64 worlds."""
    names = [*loaded][:STEP_WORLDS]
    packed = MeshWorld(len(names), max(len(loaded[name]) for name in names), "cpu")
    for env, name in enumerate(names):
        packed.load(load_world_mapping(worlds[name]), env)
    rows = rows_of(len(names) * STEP_PATHS, names)
    paths = torch.from_numpy(np.stack([row.path for row in rows]))
    env_index = torch.arange(len(rows), dtype=torch.int32) % len(names)

    def step(cost: Callable[[Tensor], Tensor]) -> Tensor:
        leaf = paths.clone().requires_grad_(True)
        cost(leaf).backward()
        assert leaf.grad is not None
        return leaf.grad

    def at_once(leaf: Tensor) -> Tensor:
        return joint_path_cost(leaf, robot, packed, substeps=3, env_index=env_index).sum()

    def in_turns(leaf: Tensor) -> Tensor:
        parts = [
            joint_path_cost(leaf[env :: len(names)], robot, loaded[name], substeps=3).sum()
            for env, name in enumerate(names)
        ]
        return torch.stack(parts).sum()

    calls = {"envs": at_once, "one after another": in_turns}
    return interleave({name: Call(lambda c=cost: step(c)) for name, cost in calls.items()}, rounds)


def _draw(ratios: dict[str, float]) -> None:
    from matplotlib.figure import Figure

    from benchmarks.plots import plain_frame

    figure = Figure(figsize=(8.0, 2.8), layout="constrained")
    axes = figure.add_subplot()
    names = [*ratios][::-1]
    axes.barh(names, [ratios[name] for name in names], color="#1f6feb", height=0.6)
    for place, name in enumerate(names):
        axes.annotate(
            f"{ratios[name]:.1f}", (ratios[name], place), (4, -3), textcoords="offset points"
        )
    axes.axvline(1.0, color="#8a8f98", linewidth=1.0)
    axes.set_xlabel("times as fast, one CPU thread a process")
    plain_frame(axes)
    figure.savefig(RESULTS / "label-cpu.png", dpi=110)
