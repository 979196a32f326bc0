"""Limits of joints' motion from files of MoveIt and cuRobo."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from warp_collision import MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import load_motion_limits, timed


@pytest.fixture(scope="module")
def panda():
    return load_panda()


def moveit(panda, **changes) -> str:
    """The text of a file of MoveIt; the changes are those of joint 3."""
    lines = ["default_velocity_scaling_factor: 0.1", "joint_limits:"]
    for index, name in enumerate([*panda.joint_names, "panda_finger_joint1"]):
        entry = {
            "has_velocity_limits": "true",
            "max_velocity": 1.5 + index,
            "has_acceleration_limits": "true",
            "max_acceleration": 3.75,
            "has_jerk_limits": "false",
            "max_jerk": 0.0,
        }
        entry |= changes if index == 2 else {}
        lines.append(f"  {name}: {{{', '.join(f'{k}: {v}' for k, v in entry.items())}}}")
    return "\n".join(lines)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "limits.yaml"
    path.write_text(text)
    return path


def test_limits_of_moveit(panda, tmp_path):
    found = load_motion_limits(write(tmp_path, moveit(panda)), panda)
    assert {*found} == {"velocity", "acceleration"}
    assert found["velocity"].tolist() == [1.5 + k for k in range(7)]
    assert found["acceleration"].tolist() == [3.75] * 7
    changes = {"has_velocity_limits": "false", "has_deceleration_limits": "true"}
    text = moveit(panda, max_deceleration=-2.0, **changes)
    text = "/**:\n  ros__parameters:\n" + "\n".join(f"    {line}" for line in text.splitlines())
    found = load_motion_limits(write(tmp_path, text), panda)
    assert found["velocity"][2] == panda.velocity_limits[2].item()
    assert found["acceleration"].tolist() == [3.75, 3.75, 2.0, 3.75, 3.75, 3.75, 3.75]


def test_limits_of_curobo(panda, tmp_path):
    names = ", ".join([*panda.joint_names[::-1], "panda_finger_joint1"])
    space = f"joint_names: [{names}], max_acceleration: 15.0, max_jerk: [7, 6, 5, 4, 3, 2, 1, 9]"
    text = f"robot_cfg: {{kinematics: {{cspace: {{{space}, velocity_scale: [0.5]}}}}}}"
    found = load_motion_limits(write(tmp_path, text), panda)
    assert found["jerk"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert found["acceleration"].tolist() == [15.0] * 7
    np.testing.assert_allclose(found["velocity"], 0.5 * panda.velocity_limits.numpy())


def test_a_path_within_the_limits_of_a_file(panda, tmp_path):
    path = torch.zeros(1, 2, 7)
    path[:, :, 3], path[:, :, 5], path[0, 1, 0] = -1.5, 1.5, 1.0
    limits = load_motion_limits(write(tmp_path, moveit(panda)), panda)
    found = timed(path, panda, MeshWorld(), **limits, jerk=100.0)
    acceleration = found.curve.derivative().derivative()
    assert 0.9 * 3.75 < acceleration.largest().max() <= 3.75


WRONG = {
    "limits.yaml: must have joint_limits as of MoveIt, or cspace as of cuRobo, got": "{a: 1}",
    "limits.yaml: no valid YAML": "{",
    "cspace.joint_names must be names": "cspace: {max_jerk: 1}",
    "cspace.max_jerk must be a number or 1 as joint_names": (
        "cspace: {joint_names: [a], max_jerk: [1, 2]}"
    ),
    "cspace.max_jerk of a must be a positive number, got -1": (
        "cspace: {joint_names: [a], max_jerk: -1}"
    ),
    "panda_joint1 must be a mapping": "joint_limits: {panda_joint1: 3}",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_files(panda, tmp_path, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        load_motion_limits(write(tmp_path, WRONG[words]), panda)


WRONG_JOINTS = {
    "joint_limits.panda_joint3.max_velocity must be a positive number, got 0": {"max_velocity": 0},
    "joint_limits.panda_joint3.max_velocity must be a positive number, got .*nan": {
        "max_velocity": ".nan"
    },
    "joint_limits.panda_joint3.max_acceleration must be a positive number, got None": {
        "max_acceleration": "null"
    },
    "must have a limit of the acceleration for each joint .* none for panda_joint3": {
        "has_acceleration_limits": "false"
    },
}


@pytest.mark.parametrize("words", WRONG_JOINTS)
def test_wrong_limits(panda, tmp_path, words):
    with pytest.raises(ValueError, match=words):
        load_motion_limits(write(tmp_path, moveit(panda, **WRONG_JOINTS[words])), panda)


def test_what_the_file_has_not(panda, tmp_path):
    limits = load_motion_limits(write(tmp_path, moveit(panda)), panda)
    with pytest.raises(ValueError, match=r"jerk must be given.*load_motion_limits, .* reads"):
        timed(torch.zeros(1, 2, 7), panda, MeshWorld(), **limits)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_motion_limits(tmp_path / "none.yaml", panda)
