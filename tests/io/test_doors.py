"""Worlds with joints: doors and drawers stand where values say."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from trimesh.transformations import rotation_matrix, translation_matrix

from warp_collision import MeshWorld, signed_distance
from warp_collision.io import load_world_file
from warp_collision.io.placing import matrix_from

CABINET = """<robot name="cabinet">
  <link name="body"><collision><geometry><box size="0.5 0.6 0.8"/></geometry></collision></link>
  <link name="door"><collision><origin xyz="0 -0.3 0" rpy="0 0.1 0"/>
    <geometry><box size="0.02 0.6 0.7"/></geometry></collision></link>
  <link name="handle"><collision><geometry><sphere radius="0.03"/></geometry></collision></link>
  <link name="drawer"><collision><geometry><cylinder radius="0.1" length="0.3"/></geometry>
    </collision></link>
  <link name="follower"><collision><geometry><sphere radius="0.05"/></geometry></collision></link>
  <joint name="hinge" type="revolute"><parent link="body"/><child link="door"/>
    <origin xyz="0.26 0.3 0" rpy="0.1 0.2 0.3"/><axis xyz="0 0 1"/>
    <limit lower="0" upper="1.6" effort="1" velocity="1"/></joint>
  <joint name="grip" type="fixed"><parent link="door"/><child link="handle"/>
    <origin xyz="0.05 -0.55 0.1"/></joint>
  <joint name="slide" type="prismatic"><parent link="body"/><child link="drawer"/>
    <origin xyz="0 0 -0.6"/><axis xyz="1 2 0"/>
    <limit lower="0" upper="0.4" effort="1" velocity="1"/></joint>
  <joint name="geared" type="prismatic"><parent link="body"/><child link="follower"/>
    <origin xyz="0 0.5 0"/><axis xyz="0 0 1"/><mimic joint="slide" multiplier="-2" offset="0.1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
</robot>"""
MODEL = """<mujoco><worldbody>
  <geom name="body" type="box" size="0.25 0.3 0.4"/>
  <body pos="0.26 0.3 0" euler="10 20 30">
    <joint name="hinge" type="hinge" axis="0 0 1" ref="20" range="0 90" limited="true"/>
    <geom name="door" type="box" size="0.01 0.3 0.35" pos="0 -0.3 0"/>
    <body pos="0.05 -0.55 0.1"><joint name="latch" type="slide" axis="1 0 0"/>
      <geom name="handle" type="sphere" size="0.03"/></body>
  </body>
  <body pos="0 0 2"><joint name="ball" type="ball"/><geom name="lamp" type="sphere" size="0.1"/>
  </body>
</worldbody></mujoco>"""


def matrices(path: Path, **options: object) -> dict[str, np.ndarray]:
    loaded = load_world_file(path, **options)
    return {name: matrix_from(np.array(it.pose)) for name, it in loaded.items()}


@pytest.fixture
def cabinet(tmp_path: Path) -> Path:
    path = tmp_path / "cabinet.urdf"
    path.write_text(CABINET)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pytest.importorskip("mujoco", reason="mujoco reads MJCF: pip install '.[mujoco]'")
    path = tmp_path / "cabinet.xml"
    path.write_text(MODEL)
    return path


def test_doors_and_drawers_of_a_urdf(cabinet: Path) -> None:
    """Against frames that the test computes; what mimics a joint follows it."""
    closed = matrices(cabinet)
    found = matrices(cabinet, joints={"hinge": 1.2, "slide": 0.3})
    hinge = translation_matrix((0.26, 0.3, 0.0)) @ (
        rotation_matrix(0.3, (0, 0, 1))
        @ rotation_matrix(0.2, (0, 1, 0))
        @ rotation_matrix(0.1, (1, 0, 0))
    )
    turn = hinge @ rotation_matrix(1.2, (0, 0, 1)) @ np.linalg.inv(hinge)
    along = 0.3 * np.array([1.0, 2.0, 0.0]) / math.sqrt(5.0)
    expected = {
        "body": closed["body"],
        "door": turn @ closed["door"],
        "handle": turn @ closed["handle"],
        "drawer": translation_matrix(along) @ closed["drawer"],
        "follower": translation_matrix((0.0, 0.0, -0.6)) @ closed["follower"],
    }
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == pytest.approx(expected[name], abs=1e-9), name


def test_hinges_and_slides_of_a_model(model: Path) -> None:
    mujoco = pytest.importorskip("mujoco")
    compiled = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(compiled)
    data.qpos[compiled.joint("hinge").qposadr] = 1.1
    data.qpos[compiled.joint("latch").qposadr] = -0.2
    mujoco.mj_kinematics(compiled, data)
    found = matrices(model, joints={"hinge": 1.1, "latch": -0.2})
    for name, matrix in found.items():
        assert matrix[:3, 3] == pytest.approx(data.geom(name).xpos, abs=1e-9)
        assert np.abs(matrix[:3, :3]) == pytest.approx(
            np.abs(data.geom(name).xmat.reshape(3, 3)), abs=1e-9
        )


def test_a_world_of_a_door_that_is_open(cabinet: Path) -> None:
    handle = matrices(cabinet)["handle"][:3, 3]
    point = torch.from_numpy(handle[None]).float()
    closed = MeshWorld.from_file(cabinet, device="cpu")
    opened = MeshWorld.from_file(cabinet, device="cpu", joints={"hinge": 1.5})
    assert signed_distance(point, closed).distance < 0.0
    assert signed_distance(point, opened).distance > 0.02


@pytest.mark.parametrize(
    ("joints", "error", "text"),
    [
        ({"hing": 0.1}, ValueError, r"joints must be joints that move, got \['hing'\].*'hinge'"),
        ({"grip": 0.1}, ValueError, r"joints must be joints that move, got \['grip'\]"),
        ({"geared": 0.1}, ValueError, r"joints must be joints that move, got \['geared'\]"),
        ({"hinge": 1.7}, ValueError, r"joints\['hinge'\] must be within the limits 0 to 1.6 rad"),
        ({"hinge": 90}, ValueError, "got 90; in degrees?"),
        ({"slide": -0.1}, ValueError, r"joints\['slide'\] must be within the limits 0 to 0.4 m"),
        ({"hinge": math.nan}, ValueError, r"joints\['hinge'\] must be finite, got nan"),
        ({"hinge": "open"}, TypeError, r"joints\['hinge'\] must be a number, got str"),
        ([0.1], TypeError, "joints must be a mapping of joints to values, got list"),
    ],
)
def test_wrong_values(cabinet: Path, joints: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        MeshWorld.from_file(cabinet, device="cpu", joints=joints)


@pytest.mark.parametrize(
    ("joints", "error", "text"),
    [
        ({"ball": 0.1}, ValueError, r"joints must be joints that move, got \['ball'\]"),
        ({"hinge": 2.0}, ValueError, r"joints\['hinge'\] must be within the limits 0 to 1.5708"),
        ({"latch": True}, TypeError, r"joints\['latch'\] must be a number, got bool"),
    ],
)
def test_wrong_values_of_a_model(
    model: Path, joints: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        MeshWorld.from_file(model, device="cpu", joints=joints)


def test_files_without_joints(tmp_path: Path) -> None:
    path = tmp_path / "world.yaml"
    path.write_text("sphere: {ball: {radius: 0.1, position: [0, 0, 0]}}")
    with pytest.raises(ValueError, match="joints must be None, as it is no URDF, MJCF or USD file"):
        MeshWorld.from_file(path, device="cpu", joints={"door": 1.0})
