"""Problem sets and robots of vamp-planner's source distribution.

Motion planning problems of MotionBenchMaker: a scene, a start and a goal in joint space.
"""

import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks.downloads import downloaded
from warp_collision.robot import RobotSpheres

PACKAGE = {
    "vamp-planner==0.6.4": "d3150c6b67ff941af9ad56480b31d3fb73b12211ea21dc684f7737b059f6daba"
}
ROBOTS = ("panda", "ur5", "fetch", "baxter")
# Pairs of links that touch at all joint values, and that the SRDF leaves out under a name which the
# URDF with spheres does not have: the UR5's force sensor is screwed to its wrist.
ALWAYS_TOUCHING = {"ur5": (("fts_robotside", "wrist_2_link"),)}

# Problems with an end that is free, but nearer to contact than the planners' margin of 0.5 mm.
NEAR_ENDS: dict[str, list[tuple[str, int]]] = {
    "ur5": [("bookshelf_tall", 58), ("bookshelf_thin", 26), ("bookshelf_thin", 36)],
    "fetch": [
        ("bookshelf_small", 8),
        ("bookshelf_thin", 31),
        ("bookshelf_thin", 95),
        ("cage", 76),
    ],
    "baxter": [
        ("bookshelf_tall_both_arms_hard", 263),
        ("bookshelf_tall_both_arms_hard", 422),
        ("bookshelf_tall_both_arms_hard", 589),
        ("bookshelf_tall_both_arms_medium", 27),
        ("bookshelf_tall_both_arms_medium", 225),
        ("bookshelf_tall_both_arms_medium", 422),
    ],
}


class Problem(NamedTuple):
    """A problem; the robot stands in the origin of its scene.

    Attributes:
        scene: path of a MoveIt planning scene.
        start: (n_joints,) float64, in the order asked for [rad, prismatic: m].
        goal: (n_joints,) float64.
    """

    scene: Path
    start: np.ndarray
    goal: np.ndarray


def robot_folder(robot: str) -> Path:
    """The folder of a robot, with its spherized URDF, its SRDF and `problems`; 65 MB once."""
    options = "--no-binary vamp-planner"
    return downloaded("vamp-planner-0.6.4", PACKAGE, options, _unpack) / robot


def _unpack(files: Path, folder: Path) -> None:
    """URDF, SRDF and problems of the robots, without the meshes."""
    (archive,) = files.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        for robot in ROBOTS:
            (folder / robot).mkdir()
            for name in (f"{robot}_spherized.urdf", f"{robot}.srdf", "problems.tar.bz2"):
                part = source.extractfile(f"vamp_planner-0.6.4/resources/{robot}/{name}")
                assert part is not None
                (folder / robot / name).write_bytes(part.read())
            with tarfile.open(folder / robot / "problems.tar.bz2") as problems:
                problems.extractall(folder / robot, filter="data")


def list_problems(folder: Path, robot: str, every: int = 1) -> list[tuple[str, int]]:
    """Scene types and indices of the problems of a robot.

    Args:
        folder: of the robot, with `problems/<scene type>_<robot>/request0001.yaml` in it.
        robot: its name.
        every: take every n-th problem of each set, the first one among them.
    """
    return [
        (one_set.name.removesuffix(f"_{robot}"), int(path.stem.removeprefix("request")))
        for one_set in sorted((folder / "problems").iterdir())
        for path in sorted(one_set.glob("request*.yaml"))[::every]
    ]


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
    with (of_set / f"request{index:04d}.yaml").open() as file:
        request: Any = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    state = request["start_state"]["joint_state"]
    start = dict(zip(state["name"], state["position"], strict=True))
    (constraints,) = request["goal_constraints"]
    wanted = {c["joint_name"]: c["position"] for c in constraints["joint_constraints"]}
    unknown = sorted(wanted.keys() - set(joint_names))
    if unknown:
        raise ValueError(f"{of_set.name} {index}: joints of the goal must be moved, got {unknown}")
    ends = [np.array([e[name] for name in joint_names]) for e in (start, start | wanted)]
    return Problem(of_set / f"scene{index:04d}.yaml", *ends)


def load_robot(folder: Path, robot: str) -> RobotSpheres:
    """A robot from its URDF with spheres, its pairs for self-collision from its SRDF.

    The URDF fixes all joints that no problem moves. The SRDF is of the robot's whole model, with
    links that the URDF with spheres lacks: the library refuses those, so that they are left out.
    """
    urdf = folder / f"{robot}_spherized.urdf"
    links = {link.get("name") for link in ET.parse(urdf).getroot().iter("link")}
    disabled = ET.parse(folder / f"{robot}.srdf").getroot().iter("disable_collisions")
    pairs = [(str(entry.get("link1")), str(entry.get("link2"))) for entry in disabled]
    pairs += ALWAYS_TOUCHING.get(robot, ())
    fitting = ET.Element("robot", name=str(ET.parse(urdf).getroot().get("name")))
    for link1, link2 in pairs:
        if link1 in links and link2 in links:
            ET.SubElement(fitting, "disable_collisions", link1=link1, link2=link2)
    path, text = folder / f"{robot}_fitting.srdf", ET.tostring(fitting, encoding="unicode")
    if not path.exists() or path.read_text() != text:  # which other processes may be reading
        path.write_text(text)
    return RobotSpheres(urdf, srdf=path)
