"""Labels of paths, against the loop that a user would write; packed worlds; workers; training.

1,000 paths of 32 waypoints of the Panda, each in one of 200 worlds: planning problems that stand a
little elsewhere. Labels of all contenders have to be the same bits.

- **plain loop**: `joint_path_in_collision`, and `joint_path_clearance` for clearances, for one path
  after the other, whose worlds are loaded before;
- **world by world**: the labeler with the rows of one world after another, not all in one batch;
- **worlds loaded anew**: the labeler with an empty cache of worlds;
- **one worker**: two workers are timed by the clock, with half of the rows each.

`--command ROWS` labels a Parquet file of so many paths of 30 waypoints by `warp-collision label`
instead, yes or no. It prints what the command prints, and the rate by the CPU time of the process,
which other work changes little.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Call, Workload, require
from benchmarks.scenes import problems
from warp_collision import (
    MeshWorld,
    RobotSpheres,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda, problem_names
from warp_collision.io import load_world_mapping
from warp_collision.labeling import PathLabeler, PathRow

ROWS, WORLDS, WAYPOINTS = 1000, 200, 32
CLEARANCES = ("free", "clearance", "self_clearance")
STEP_WORLDS, STEP_PATHS = 64, 4  # of a training step: worlds, and paths in each


class Setup(NamedTuple):
    """A robot, worlds as mappings and loaded, and rows."""

    robot: RobotSpheres
    worlds: dict[str, dict[str, Any]]
    loaded: dict[str, MeshWorld]
    rows: list[PathRow]


def set_up(rows: int, worlds: int) -> Setup:
    """The same each time."""
    known = worlds_of(worlds)
    loaded = {name: MeshWorld.from_mapping(world, "cpu") for name, world in known.items()}
    return Setup(load_panda(), known, loaded, rows_of(rows, [*known]))


def worlds_of(count: int) -> dict[str, dict[str, Any]]:
    """Worlds as mappings: those of the problems, shifted by up to 5 cm."""
    rng, names, found = np.random.default_rng(0), problem_names(), {}
    for index in range(count):
        problem = problems()[names[index % len(names)]]
        shift = np.append(rng.uniform(-0.05, 0.05, 3), np.zeros(4))
        found[f"world {index}"] = {
            kind: {
                name: item | {"pose": (np.array(item["pose"]) + shift).tolist()}
                for name, item in problem[kind].items()
            }
            for kind in ("cuboid", "cylinder")
        }
    return found


def rows_of(count: int, worlds: Sequence[str], seed: int = 1) -> list[PathRow]:
    """Paths from near the start of a problem to half of the way to its goal."""
    rng, names, rows = np.random.default_rng(seed), problem_names(), []
    for index in range(count):
        at = index % len(worlds)
        problem = problems()[names[at % len(names)]]
        start, goal = rng.normal((problem["start"], problem["goal"]), 0.1)
        path = np.linspace(start, 0.5 * (start + goal), WAYPOINTS)
        rows.append(PathRow(path.astype(np.float32), worlds[at], index))
    return rows


def plain_loop(given: Setup, outputs: Sequence[str]) -> dict[str, np.ndarray]:
    """What a user writes around the checks."""
    found: dict[str, list[float]] = {name: [] for name in outputs}
    for row in given.rows:
        asked = torch.from_numpy(row.path)[None], given.robot, given.loaded[row.world]
        found["free"].append(not joint_path_in_collision(*asked).any().item())
        if len(outputs) > 1:
            bounds = joint_path_clearance(*asked)
            found["clearance"].append(bounds.world_lower.min().item())
            found["self_clearance"].append(bounds.self_lower.min().item())
    return {name: np.array(values) for name, values in found.items()}


def against_loop(given: Setup, outputs: Sequence[str]) -> dict[str, Call]:
    """The labeler, and what stands beside it."""
    make = partial(PathLabeler, given.robot, given.worlds, outputs=outputs, device="cpu")
    labeler, by_world = make(), dict[str, list[PathRow]]()
    for row in given.rows:
        by_world.setdefault(row.world, []).append(row)
    found, expected = labeler.label(given.rows), plain_loop(given, outputs)
    for name, values in expected.items():
        is_same = np.array_equal(found[name], values.astype(found[name].dtype))
        require(is_same, f"{name} of the labeler is not that of the plain loop")
    answers: dict[str, Callable[[], object]] = {
        "library": lambda: labeler.label(given.rows),
        "plain loop": lambda: plain_loop(given, outputs),
        "world by world": lambda: [*map(labeler.label, by_world.values())],
        "worlds loaded anew": lambda: make().label(given.rows),
    }
    return {name: Call(answer, len(given.rows)) for name, answer in answers.items()}


def workers(given: Setup) -> dict[str, Call]:
    """Two processes with half of the rows each, and one with half of them."""
    part = given.rows[: max(1, len(given.rows) // 2)]
    one, two = (ProcessPoolExecutor(n, get_context("spawn"), _begin, given[:2]) for n in (1, 2))
    calls = {
        "library": Call(lambda: [*two.map(_label, [part] * 2)], 2 * len(part), threads=2),
        "one worker": Call(lambda: [*one.map(_label, [part])], len(part), threads=2),
    }
    for call in calls.values():
        call.run()
    return calls


_labeler: PathLabeler


def _begin(robot: RobotSpheres, worlds: Any) -> None:
    global _labeler
    _labeler = PathLabeler(robot, worlds, threads=1, device="cpu")


def _label(rows: list[PathRow]) -> None:
    _labeler.label(rows)


def training_step(given: Setup) -> dict[str, Call]:
    """Cost and gradient of paths in some worlds at once, and in one world after another."""
    names = [*given.loaded][:STEP_WORLDS]
    packed = MeshWorld(len(names), max(len(given.loaded[name]) for name in names), "cpu")
    for env, name in enumerate(names):
        packed.load(load_world_mapping(given.worlds[name]), env)
    rows = rows_of(len(names) * STEP_PATHS, names)
    paths = torch.from_numpy(np.stack([row.path for row in rows])).requires_grad_(True)
    env_index = torch.arange(len(rows), dtype=torch.int32) % len(names)
    cost = partial(joint_path_cost, robot=given.robot, substeps=3)

    def at_once() -> Tensor:
        return cost(paths, world=packed, env_index=env_index).sum()

    def in_turns() -> Tensor:
        parts = [
            cost(paths[env :: len(names)], world=given.loaded[name]).sum()
            for env, name in enumerate(names)
        ]
        return torch.stack(parts).sum()

    gradients = [torch.autograd.grad(value(), paths)[0] for value in (at_once, in_turns)]
    require(torch.allclose(*gradients, rtol=1e-3, atol=1e-4), "other gradients")
    return {
        "library": Call(lambda: at_once().backward(), len(rows)),
        "one world after another": Call(lambda: in_turns().backward(), len(rows)),
    }


def workloads(given: Setup) -> Iterator[Workload]:
    """Labels, workers and a step of training."""
    some = given._replace(rows=given.rows[: max(1, len(given.rows) // 5)])
    yield Workload("yes or no", "path", partial(against_loop, given, CLEARANCES[:1]))
    yield Workload("and clearances", "path", partial(against_loop, some, CLEARANCES))
    yield Workload("two workers", "path", partial(workers, given))
    name = f"a step of training in {min(STEP_WORLDS, len(given.worlds))} worlds"
    yield Workload(name, "path", partial(training_step, given))


def by_command(count: int) -> str:
    """The summary of the command `label` for a file of rows in 200 worlds, on one thread."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from warp_collision.cli.__main__ import main

    lists = pa.list_(pa.list_(pa.float32()))
    schema = pa.schema({"path": lists, "world": pa.string()})
    worlds = worlds_of(WORLDS)
    torch.set_num_threads(1)
    told = io.StringIO()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for world, content in worlds.items():
            (folder / f"{world}.yaml").write_text(json.dumps(content))
        with pq.ParquetWriter(folder / "paths.parquet", schema) as file:
            for begin in range(0, count, 10_000):
                rows = rows_of(min(10_000, count - begin), [*worlds], begin)
                paths = [row.path[:30].tolist() for row in rows]
                names = [f"{row.world}.yaml" for row in rows]
                file.write_table(pa.table([paths, names], schema))
        robot = str(files("warp_collision.assets") / "panda" / "panda.urdf")
        arguments = [str(folder / "paths.parquet"), "--robot", robot, "--world", name]
        arguments += ["--out", str(folder / "labels"), "--device=cpu"]
        begin = time.process_time()
        with contextlib.redirect_stdout(told):
            require(main(["label", *arguments, "--outputs", "free"]) == 0, "rows have errors")
        rate = count / (time.process_time() - begin)
    return f"{told.getvalue()}{rate:,.0f} rows a second of CPU, with loading\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    harness.timing_options(parser)
    parser.add_argument("--command", type=int, metavar="ROWS", help="label a file by the command")


def run(options: Any) -> str:
    """The table."""
    if options.command is not None:
        return by_command(options.command)
    sizes = (max(2, round(count * options.scale)) for count in (ROWS, WORLDS))
    return harness.measure(workloads(set_up(*sizes)), options)
