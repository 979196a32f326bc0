"""Motion planning problems of MotionBenchMaker: a scene, a start and a goal in joint space."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem; the robot stands in the origin of its scene.

    Attributes:
        robot: name of the robot.
        scene_type: the set that it is of, without the name of the robot.
        index: in the set, from 1.
        scene: path of a MoveIt planning scene.
        start: (n_joints,) float64, in the order asked for [rad, prismatic: m].
        goal: (n_joints,) float64.
    """

    robot: str
    scene_type: str
    index: int
    scene: Path
    start: np.ndarray
    goal: np.ndarray

    @property
    def name(self) -> str:
        """For example `cage/0002`."""
        return f"{self.scene_type}/{self.index:04d}"


def read_yaml(path: Path) -> Any:
    """What a YAML file holds."""
    with path.open() as file:
        return yaml.load(file, _Loader)


def list_problems(folder: Path, robot: str, every: int = 1) -> list[tuple[str, int]]:
    """Scene types and indices of the problems of a robot.

    Args:
        folder: of the robot, with `problems/<scene type>_<robot>/request0001.yaml` in it.
        robot: its name.
        every: take every n-th problem of each set, the first one among them.
    """
    found = []
    for one_set in sorted((folder / "problems").iterdir()):
        requests = sorted(one_set.glob("request*.yaml"))
        scene_type = one_set.name.removesuffix(f"_{robot}")
        found += [
            (scene_type, int(path.stem.removeprefix("request"))) for path in requests[::every]
        ]
    return found


def read_problem(
    folder: Path, robot: str, scene_type: str, index: int, joint_names: list[str]
) -> Problem:
    """Reads a problem.

    Args:
        folder: of the robot, see `list_problems`.
        robot: its name.
        scene_type: which set.
        index: which of it.
        joint_names: the order of joint values. Joints that the goal does not name, and that the
            robot has, stay where they are.

    Raises:
        ValueError: the goal asks for a joint that is not among the names.
    """
    of_set = folder / "problems" / f"{scene_type}_{robot}"
    request = read_yaml(of_set / f"request{index:04d}.yaml")
    state = request["start_state"]["joint_state"]
    start = dict(zip(state["name"], state["position"], strict=True))
    (constraints,) = request["goal_constraints"]
    wanted = {c["joint_name"]: c["position"] for c in constraints["joint_constraints"]}
    unknown = sorted(wanted.keys() - set(joint_names))
    if unknown:
        raise ValueError(f"{of_set.name} {index}: joints of the goal must be moved, got {unknown}")
    goal = start | wanted
    return Problem(
        robot,
        scene_type,
        index,
        of_set / f"scene{index:04d}.yaml",
        np.array([start[name] for name in joint_names], dtype=np.float64),
        np.array([goal[name] for name in joint_names], dtype=np.float64),
    )
