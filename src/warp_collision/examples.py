"""What the examples of the documentation run on: a Franka Panda and motion-planning problems."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warp_collision.io import Obstacle, load_world_mapping
from warp_collision.robot import RobotSpheres
from warp_collision.world import MeshWorld

__all__ = [
    "Problem",
    "load_panda",
    "load_problem",
    "problem_names",
    "straight_path",
    "world_of",
]

_ASSETS = "warp_collision.assets"


@dataclass(frozen=True)
class Problem:
    """A motion-planning problem: joint values from start to goal [rad], among obstacles."""

    name: str
    joint_names: list[str]
    start: list[float]
    goal: list[float]
    obstacles: dict[str, Obstacle]


def load_panda() -> RobotSpheres:
    """Returns the Franka Panda with its 59 spheres."""
    return RobotSpheres(Path(str(files(_ASSETS) / "panda" / "panda.urdf")))


def problem_names() -> list[str]:
    """Returns the names of the problems that come with the package."""
    return list(_read_problems())


def load_problem(name: str) -> Problem:
    """Returns one of the problems that come with the package, its obstacles as exact shapes.

    Raises:
        ValueError: There is no such problem.
    """
    problems = _read_problems()
    if name not in problems:
        raise ValueError(f"problem must be one of {', '.join(problems)}, got {name!r}")
    entry = problems[name]
    kinds = {kind: entry[kind] for kind in ("cuboid", "cylinder")}
    obstacles = load_world_mapping(kinds)
    return Problem(name, entry["joint_names"], entry["start"], entry["goal"], obstacles)


def _read_problems() -> dict[str, dict[str, Any]]:
    folder = files(_ASSETS) / "problems"
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda f: f.name
    )
    return {name: entry for file in found for name, entry in json.loads(file.read_text()).items()}


def straight_path(problem: Problem, robot: RobotSpheres, waypoints: int) -> Tensor:
    """Returns joint values (waypoints, n_joints) float32 on the line from start to goal.

    Raises:
        ValueError: The problem is for other joints than the robot has.
    """
    if tuple(problem.joint_names) != robot.joint_names:
        raise ValueError(
            f"problem {problem.name!r} must be for the joints {robot.joint_names}, "
            f"got {problem.joint_names}"
        )
    share = torch.linspace(0.0, 1.0, waypoints, dtype=torch.float64)[:, None]
    start, goal = (torch.tensor(q, dtype=torch.float64) for q in (problem.start, problem.goal))
    return torch.lerp(start, goal, share).float()


def world_of(problem: Problem, device: torch.device) -> MeshWorld:
    """Returns the world of a problem."""
    world = MeshWorld(max_obstacles=len(problem.obstacles), device=device)
    world.load(problem.obstacles)
    return world
