"""An arm of boxes, a cylinder, a ball and a bracket, each turned in its link."""

from pathlib import Path

import trimesh

from warp_collision import RobotSpheres

LOOSE = 0.004  # by which pieces may stick out of a link [m]
ARM = """<robot name="arm">
  <link name="base">
    <collision><origin xyz="0.05 0 0.1" rpy="0.2 0.1 0.4"/>
      <geometry><box size="0.4 0.3 0.3"/></geometry></collision>
  </link>
  <link name="upper">
    <collision><origin xyz="0 0.02 0.15" rpy="0.1 -0.3 0"/>
      <geometry><cylinder radius="0.05" length="0.3"/></geometry></collision>
    <collision><origin xyz="0.02 0 0.3"/><geometry><sphere radius="0.07"/></geometry></collision>
  </link>
  <link name="elbow">
    <collision><origin xyz="0 0 0.05" rpy="0.3 0.2 -0.5"/>
      <geometry><mesh filename="bracket.stl"/></geometry></collision>
  </link>
  <link name="tool">
    <collision><origin xyz="0 0.01 0.1"/>
      <geometry><box size="0.06 0.05 0.2"/></geometry></collision>
  </link>
  <joint name="a" type="revolute"><parent link="base"/><child link="upper"/>
    <origin xyz="0.05 0 0.3" rpy="0.1 0 0"/><axis xyz="1 2 0"/>
    <limit lower="-2.3" upper="2.3" effort="1" velocity="1"/></joint>
  <joint name="b" type="revolute"><parent link="upper"/><child link="elbow"/>
    <origin xyz="0.03 0 0.32" rpy="0 0.4 0"/><axis xyz="0 1 1"/>
    <limit lower="-2.8" upper="2.8" effort="1" velocity="1"/></joint>
  <joint name="c" type="prismatic"><parent link="elbow"/><child link="tool"/>
    <origin xyz="0.1 0 0.1" rpy="0.5 1.2 0"/><axis xyz="0 0.6 0.8"/>
    <limit lower="-0.1" upper="0.3" effort="1" velocity="1"/></joint>
</robot>"""


def bracket() -> trimesh.Trimesh:
    """An L of two boxes, whose convex hull is far from it."""
    parts = [trimesh.creation.box((0.3, 0.05, 0.04)), trimesh.creation.box((0.05, 0.05, 0.25))]
    parts[1].apply_translation((0.125, 0.0, 0.145))
    return trimesh.util.concatenate(parts)


def arm_in(folder: Path) -> RobotSpheres:
    """The arm, from files that are written to a folder."""
    bracket().export(folder / "bracket.stl")
    (folder / "arm.urdf").write_text(ARM)
    return RobotSpheres(folder / "arm.urdf")
