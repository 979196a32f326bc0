"""Links that have shapes, but no spheres: they are not checked, and that is said."""

from pathlib import Path

import pytest
import torch

from robots import PANDA, tree_robot
from warp_collision import MeshWorld
from warp_collision.robot import RobotSpheres

ARM = """<robot name="arm" version="1.1">
  <link name="base"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
  <link name="arm">{shape}</link>
  <link name="frame"/>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>
  <limit lower="-2" upper="2"/></joint>
  <joint name="end" type="fixed"><parent link="arm"/><child link="frame"/></joint>
</robot>"""
SHAPES = (
    '<box size="1 1 1"/>',
    '<sphere radius="0.3"/>',
    '<cylinder radius="0.1" length="0.5"/>',
    '<capsule radius="0.1" length="0.5"/>',
    '<mesh filename="no.stl"/>',
)


def saved(folder: Path, shape: str) -> Path:
    path = folder / "arm.urdf"
    path.write_text(ARM.format(shape=shape))
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_visual_of_any_kind_is_told(tmp_path, shape):
    path = saved(tmp_path, f"<visual><geometry>{shape}</geometry></visual>")
    robot = RobotSpheres(path)
    assert robot.sphere_links == ("base",)
    assert robot.links_without_spheres == ("arm",)
    given = RobotSpheres(path, spheres={"arm": [[0.1, 0.0, 0.0, 0.2]]})
    assert given.links_without_spheres == ("base",)


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_disabled_spheres_alone_are_none(tmp_path, shape):
    path = saved(tmp_path, f"<collision><geometry>{shape}</geometry></collision>")
    spheres = {"base": [[0.0, 0.0, 0.0, 0.1]], "arm": [[0.1, 0.0, 0.0, -0.2]]}
    robot = RobotSpheres(path, spheres=spheres)
    assert robot.links_without_spheres == ("arm",)
    assert str(robot).splitlines()[-3:] == [
        "spheres: base 1",
        "without spheres, so not checked: arm",
        "without any shape: frame",
    ]
    spheres["arm"].append([0.0, 0.0, 0.0, 0.0])
    assert RobotSpheres(path, spheres=spheres).links_without_spheres == ()


def test_the_text_of_a_robot_and_of_a_report(tmp_path):
    robot = RobotSpheres(
        PANDA, spheres={"panda_link1": [[0, 0, 0, 0.06]]}, lock_joints={"panda_joint7": 0.5}
    )
    lines = str(robot).splitlines()
    assert lines[0] == "RobotSpheres: 12 links, 6 joints, 1 spheres"
    assert lines[1] == "  panda_joint1  -2.967 to 2.967 rad"
    assert lines[7:9] == ["locked: panda_joint7 at 0.5", "spheres: panda_link1 1"]
    assert lines[-1] == "without any shape: panda_link8"
    bare = " ".join(line.strip() for line in lines[9:-1])
    assert bare == "without spheres, so not checked: " + ", ".join(robot.links_without_spheres)
    assert len(robot.links_without_spheres) == 10
    assert all(len(line) <= 100 for line in lines)
    report = robot.report(torch.zeros(1, 1, 6), MeshWorld())
    assert report.links_without_spheres == robot.links_without_spheres
    assert str(report).splitlines() == ["nothing collides", *lines[9:-1]]


def test_the_text_of_limits_and_units(tmp_path):
    robot = tree_robot(tmp_path)
    assert robot.joint_units == ("m", "rad")
    robot.attach("can\n", "tip", [[0.0, 0.0, 0.1, 0.04], [0.0, 0.0, 0.2, 0.04]])
    assert str(robot).splitlines() == [
        "RobotSpheres: 5 links, 2 joints, 6 spheres",
        "  slide  -0.5 to 0.25 m",
        "  turn   without limits, rad",
        "spheres: root 1, wheel 1, tip 1, slider 1",
        r"carries: can\n 2",
        "without any shape: bracket",
    ]
