"""Kinematics and their derivatives against pinocchio, where it is installed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from differentiable import JIT_WARNING
from robots import PANDA, TREE
from warp_collision.robot import RobotSpheres

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)
pinocchio = pytest.importorskip("pinocchio", reason="pinocchio is pin on PyPI")

SPHERE = "<collision><geometry><sphere radius='0.05'/></geometry></collision>"
LIMIT = "<limit lower='-3' upper='3' effort='1' velocity='1'/>"


def chain(joints: list[tuple[str, str, str, str, str]]) -> str:
    """A URDF of one link after the other; joints are kind, xyz, rpy, axis, what else they have."""
    links = "".join(f"<link name='l{i}'>{SPHERE}</link>" for i in range(len(joints) + 1))
    text = "".join(
        f"<joint name='j{i}' type='{kind}'><parent link='l{i}'/><child link='l{i + 1}'/>"
        f"<origin xyz='{xyz}' rpy='{rpy}'/><axis xyz='{axis}'/>{LIMIT}{more}</joint>"
        for i, (kind, xyz, rpy, axis, more) in enumerate(joints)
    )
    return f"<robot name='chain'>{links}{text}</robot>"


def turns(xyz: str, rpy: str, axis: str, more: str = "") -> tuple[str, str, str, str, str]:
    return "revolute", xyz, rpy, axis, more


def slides(xyz: str, rpy: str, axis: str, more: str = "") -> tuple[str, str, str, str, str]:
    return "prismatic", xyz, rpy, axis, more


# An arm of the proportions of a UR5: shoulder, two long links with parallel axes, three wrists.
SIX_AXES = chain(
    [
        turns("0 0 0.09", "0 0 0", "0 0 1"),
        turns("0 0.135 0", "0 1.5708 0", "0 1 0"),
        turns("0 -0.12 0.425", "0 0 0", "0 1 0"),
        turns("0 0 0.39", "0 1.5708 0", "0 1 0"),
        turns("0 0.093 0", "0 0 0", "0 0 1"),
        turns("0 0 0.095", "0 0 0", "0 1 0"),
    ]
)
# Slides alone, along axes that are no unit vectors, then with turns in between, and a gripper
# whose second finger follows the first, which is its parent here.
GANTRY = chain(
    [
        slides("0.1 0 0", "0 0 0.3", "1 0 0"),
        slides("0 0.2 0", "0.4 0 0", "0 3 4"),
        slides("0 0 -0.1", "0 -1 0", "1 -2 2"),
    ]
)
RAIL = chain(
    [
        slides("0 0 0.4", "0 0 1", "0 1 0"),
        turns("0.1 0 0.2", "0.2 0.1 0", "0 1 1"),
        slides("0.3 0 0", "0 0 0", "1 0.2 0"),
        turns("0.2 0 0", "1 0 0", "0 0 -1"),
        slides("0 0.05 0.1", "0 0 0.5", "0 1 0"),
        slides("0 -0.1 0", "0 0 0", "0 -1 0", "<mimic joint='j4' multiplier='-0.5' offset='0.1'/>"),
    ]
)
TEXTS = {
    "panda": PANDA.read_text(),
    "tree": TREE,
    "six axes": SIX_AXES,
    "gantry": GANTRY,
    "rail": RAIL,
}


class Oracle:
    """pinocchio's model of a URDF, asked with the joint values of this library."""

    def __init__(self, text: str, joint_names: tuple[str, ...]):
        self.model = pinocchio.buildModelFromXML(text, mimic=True)
        self.data = self.model.createData()
        self.joints = [self.model.joints[self.model.getJointId(name)] for name in joint_names]

    def configuration(self, values: np.ndarray) -> np.ndarray:
        q = pinocchio.neutral(self.model)
        for joint, value in zip(self.joints, values, strict=True):
            is_continuous = joint.nq == 2
            q[joint.idx_q : joint.idx_q + joint.nq] = (
                (np.cos(value), np.sin(value)) if is_continuous else value
            )
        return q

    def transforms(self, values: np.ndarray, links: tuple[str, ...]) -> np.ndarray:
        """(n_links, 4, 4)."""
        pinocchio.framesForwardKinematics(self.model, self.data, self.configuration(values))
        return np.array([self.data.oMf[self.model.getFrameId(name)].homogeneous for name in links])

    def velocity_of_origins(self, values: np.ndarray, links: tuple[str, ...]) -> np.ndarray:
        """(n_links, 3, n_joints) derivatives of the origins of links by the joint values."""
        q, frame = self.configuration(values), pinocchio.ReferenceFrame.LOCAL_WORLD_ALIGNED
        columns = [joint.idx_v for joint in self.joints]
        return np.array(
            [
                pinocchio.computeFrameJacobian(
                    self.model, self.data, q, self.model.getFrameId(name), frame
                )[:3, columns]
                for name in links
            ]
        )


@pytest.fixture(params=sorted(TEXTS))
def robot_and_oracle(request: pytest.FixtureRequest, tmp_path: Path):
    text = TEXTS[request.param]
    path = PANDA
    if request.param != "panda":
        path = tmp_path / "robot.urdf"
        path.write_text(text)
    robot = RobotSpheres(path)
    return robot, Oracle(text, robot.joint_names)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_links_are_where_pinocchio_has_them(robot_and_oracle, dtype, error):
    robot, oracle = robot_and_oracle
    values = np.random.default_rng(13).uniform(-1.5, 1.5, (50, robot.n_joints))
    values = values.astype(np.float32).astype(np.float64)
    found = robot.link_transforms(torch.tensor(values, dtype=dtype)).double().numpy()
    for row, transforms in zip(values, found, strict=True):
        expected = oracle.transforms(row, robot.link_names)
        np.testing.assert_allclose(transforms, expected, atol=error, rtol=0)


def test_jacobians_are_those_of_pinocchio(robot_and_oracle):
    robot, oracle = robot_and_oracle
    values = np.random.default_rng(14).uniform(-1.5, 1.5, (10, robot.n_joints))

    def origins(joints: torch.Tensor) -> torch.Tensor:
        return robot.link_transforms(joints)[..., :3, 3]

    for row in values.astype(np.float32):
        expected = oracle.velocity_of_origins(row.astype(np.float64), robot.link_names)
        for transform in (torch.func.jacrev, torch.func.jacfwd):
            found = transform(origins)(torch.from_numpy(row)).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
