"""Robots of the tests, and kinematics in float64 that share nothing with the library's."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.robot.model.kinematic_tree import MovingJoint
from warp_collision.robot.model.kinematics import Kinematics

PANDA = Path(__file__).resolve().parents[2] / "assets" / "panda" / "panda.urdf"


def sphere_pairs(pairs: SelfCollisionPairs) -> np.ndarray:
    """(n, 2) every pair of spheres that is checked, one by one, the smaller index first."""
    links = {frozenset(pair) for pair in pairs.link_pairs}
    unchecked = {tuple(pair) for part in (pairs.touching, pairs.fixed) for pair in part.tolist()}
    found = [
        (a, b)
        for a, b in itertools.combinations(range(pairs.n_spheres), 2)
        if frozenset((pairs.sphere_links[a], pairs.sphere_links[b])) in links
        and (a, b) not in unchecked
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def checked_links(pairs: SelfCollisionPairs) -> set[frozenset[str]]:
    """The pairs of links that are checked."""
    return {frozenset(pair) for pair in pairs.link_pairs}


# Every kind of joint, scaled axes, a branch, fixed joints in chains, children before parents.
TREE = """<robot name="tree">
  <link name="tip"><collision>
    <origin xyz="0.01 0.02 0.03" rpy="1 2 3"/><geometry><sphere radius="0.04"/></geometry>
  </collision></link>
  <link name="slider"><collision><geometry><sphere radius="0.2"/></geometry></collision></link>
  <link name="wheel">
    <collision><origin xyz="0 0.5 0"/><geometry><sphere radius="0.1"/></geometry></collision>
  </link>
  <link name="root"><collision><geometry><sphere radius="0"/></geometry></collision></link>
  <link name="bracket"/>
  <joint name="to_tip" type="fixed">
    <parent link="slider"/><child link="tip"/><origin xyz="0.3 -0.1 0.2" rpy="-0.4 1.1 2.9"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="wheel"/><child link="slider"/><origin xyz="0.1 0 0" rpy="0.3 0 0"/>
    <axis xyz="0 3 4"/><limit lower="-0.5" upper="0.25" effort="1" velocity="1"/>
  </joint>
  <joint name="turn" type="continuous">
    <parent link="bracket"/><child link="wheel"/><origin rpy="0 -0.7 0.2"/><axis xyz="1 -2 2"/>
  </joint>
  <joint name="mount" type="fixed">
    <parent link="root"/><child link="bracket"/><origin xyz="0 0 1" rpy="0.1 0.2 0.3"/>
  </joint>
</robot>"""


def tree_robot(folder: Path) -> RobotSpheres:
    """The robot of `TREE`, read from a file in a folder."""
    (folder / "tree.urdf").write_text(TREE)
    return RobotSpheres(folder / "tree.urdf")


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    """The 4 x 4 rotation about an axis, by way of its quaternion."""
    x, y, z = np.sin(angle / 2) * axis / np.sqrt(axis @ axis)
    w = np.cos(angle / 2)
    matrix = np.eye(4)
    matrix[:3, :3] = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return matrix


def shift(offset: np.ndarray) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, 3] = offset
    return matrix


@dataclass
class Arm:
    """Kinematics with what they were made of."""

    kinematics: Kinematics
    frames: np.ndarray
    points: np.ndarray


def arm_with_mimic() -> Arm:
    """A column that slides, an arm on it, and a hand whose two fingers follow one value."""
    rng = np.random.default_rng(20)

    def joint(parent: int, slides: bool, value: int, *gear: float) -> MovingJoint:
        pose = shift(rng.uniform(-0.4, 0.4, 3)) @ turn(rng.normal(size=3), rng.uniform(0.5, 2.5))
        axis = rng.normal(size=3)
        return MovingJoint(parent, pose, axis / np.linalg.norm(axis), slides, value, *gear)

    joints = [
        joint(0, True, 0),
        joint(1, False, 1),
        joint(2, False, 2),
        joint(3, True, 3),
        joint(3, True, 3, -1.0),
        joint(2, False, 1, 0.5, 0.3),
        joint(6, False, 4),
    ]
    frames = np.repeat(np.arange(8), 3)
    points = np.concatenate(
        [rng.uniform(-0.1, 0.1, (24, 3)), rng.uniform(0.02, 0.06, (24, 1))], axis=1
    )
    return Arm(Kinematics(joints, 5, frames, points), frames, points)


def expected_places(arm: Arm, values: np.ndarray) -> np.ndarray:
    """(n_points, 4) the points in the world."""
    world_from = [np.eye(4)]
    for joint in arm.kinematics.joints:
        value = joint.multiplier * values[joint.value] + joint.shift
        motion = shift(value * joint.axis) if joint.slides else turn(joint.axis, value)
        world_from.append(world_from[joint.parent] @ joint.parent_from_joint @ motion)
    placed = arm.points.copy()
    for point, frame in zip(placed, arm.frames, strict=True):
        point[:3] = (world_from[frame] @ [*point[:3], 1.0])[:3]
    return placed
