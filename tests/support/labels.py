"""Paths among the obstacles of planning problems, and the labels that a plain loop gives them."""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import torch

from warp_collision import (
    MeshWorld,
    RobotSpheres,
    clearance,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.examples import load_problem, problem_names
from warp_collision.labeling import PathRow

PROBLEMS = problem_names()
_TABLES = {
    name: entry
    for file in (files("warp_collision.assets") / "problems").iterdir()
    if file.name.endswith(".json")
    for name, entry in json.loads(file.read_text()).items()
}


_problem = functools.cache(load_problem)


def world_of(problem: str) -> dict[str, Any]:
    """The obstacles of a problem as a mapping."""
    return {kind: _TABLES[problem][kind] for kind in ("cuboid", "cylinder")}


def problem_rows(count: int, seed: int, horizon: int | None = None) -> list[PathRow]:
    """Straight paths near those of the problems, of 1 to 12 waypoints."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        problem = _problem(PROBLEMS[index % len(PROBLEMS)])
        start, goal = (
            np.array(end) + rng.normal(0.0, 0.25, 7) for end in (problem.start, problem.goal)
        )
        length = rng.integers(1, 13) if horizon is None else horizon
        path = np.linspace(start, start + 0.5 * (goal - start), length).astype(np.float32)
        rows.append(PathRow(path, problem.name, f"row {index}"))
    return rows


def plain_loop(
    rows: Sequence[PathRow], robot: RobotSpheres, worlds: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Labels as a user would write them: a world, and a call of each check, for every path."""
    labels: dict[str, list[Any]] = {}
    for row in rows:
        world = MeshWorld.from_mapping(worlds[row.world], "cpu")
        path = torch.from_numpy(row.path)[None]
        if path.shape[1] == 1:
            path = path.expand(-1, 2, -1)
        found = joint_path_clearance(path, robot, world)
        spheres = robot(torch.from_numpy(row.path)[None])
        parts = robot.interpolate(path, 1e-3).parts
        substeps = 2 ** int(np.ceil(np.log2(parts + 1))) - 1
        exact = torch.from_numpy(row.path)[None]
        free = not joint_path_in_collision(path, robot, world).any().item()
        least = 0.0 if free else -np.inf
        values = {
            "free": free,
            "clearance": max(found.world_lower.min().item(), least),
            "self_clearance": max(found.self_lower.min().item(), least),
            "cost": joint_path_cost(exact, robot, world, substeps=substeps).double().sum().item(),
            "waypoint_clearance": clearance(spheres, world).clearance[0].amin(-1).numpy(),
        }
        for name, value in values.items():
            labels.setdefault(name, []).append(value)
    columns = {name: np.array(v) for name, v in labels.items() if name != "waypoint_clearance"}
    lists = np.empty(len(rows), dtype=object)
    lists[:] = labels["waypoint_clearance"]
    kinds = {"clearance": np.float32, "self_clearance": np.float32, "cost": np.float32}
    columns = {name: values.astype(kinds.get(name, bool)) for name, values in columns.items()}
    return {**columns, "waypoint_clearance": lists}


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Requires that labels are the same bits, in all columns that are expected."""
    for name, values in expected.items():
        if name == "waypoint_clearance":
            for one, other in zip(found[name], values, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=name)
        elif values.dtype == object:
            assert found[name].tolist() == values.tolist(), name
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)
            assert found[name].dtype == values.dtype, name
