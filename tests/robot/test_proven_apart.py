"""Links that a plane keeps apart at all joint values, against coal at many of them."""

import coal
import numpy as np
import pytest
import torch

from warp_collision.robot.model.false_contacts import LinkScene
from warp_collision.robot.model.kinematics import LinkFrames
from warp_collision.robot.model.link_shapes import shapes_of_links
from warp_collision.robot.model.proven_apart import _is_behind_plane
from warp_collision.robot.model.robot_description import read_robot_joints

# A hip that turns about x, and a thigh and a calf that turn about y beside the trunk. By these
# numbers, the A1's, the calf comes as near as 0.065 mm to the edge of the trunk.
LEG = """<robot name="leg">
  <link name="trunk"><collision><geometry><box size="0.267 0.194 0.114"/></geometry></collision></link>
  <link name="hip"/>
  <link name="thigh"><collision><origin xyz="0 0 -0.1"/>
    <geometry><box size="0.034 0.0245 0.2"/></geometry></collision></link>
  <link name="calf"><collision><origin xyz="0 0 -0.1"/>
    <geometry><box size="0.016 {width} 0.2"/></geometry></collision></link>
  <joint name="a" type="{kind}"><parent link="trunk"/><child link="hip"/><axis xyz="{hip}"/>
    <origin xyz="0.1805 0.047 0"/><limit lower="{low}" upper="{high}" effort="1" velocity="1"/></joint>
  <joint name="b" type="revolute"><parent link="hip"/><child link="thigh"/><axis xyz="0 1 0"/>
    <origin xyz="0 {offset} 0"/><limit lower="-1" upper="4.2" effort="1" velocity="1"/></joint>
  <joint name="c" type="revolute"><parent link="thigh"/><child link="calf"/><axis xyz="{knee}"/>
    <origin xyz="0 0 -0.2"/><limit lower="-2.7" upper="-0.9" effort="1" velocity="1"/></joint>
</robot>"""  # noqa: E501
A1 = {"width": 0.016, "low": -0.80285, "high": 0.80285, "offset": 0.0838, "knee": "0 1 0"}
A1 |= {"hip": "1 0 0", "kind": "revolute"}


def leg(folder, **changes) -> LinkScene:
    path = folder / "leg.urdf"
    path.write_text(LEG.format(**A1 | changes))
    robot = read_robot_joints(path, None, (), {})
    names = {name: name for name in robot.urdf.link_names}
    return LinkScene(robot.tree, {}, names, shapes_of_links(robot.urdf), ())


@pytest.mark.parametrize(
    ("changes", "is_apart"),
    [
        ({}, True),
        ({"width": 0.01625}, False),  # 0.06 mm nearer, and a margin of rounding
        ({"high": 0.86}, False),
        ({"offset": -0.19}, True),  # on the other side
        ({"knee": "0 -1 0"}, True),
        ({"knee": "0.001 1 0"}, False),
        ({"knee": "1 0 0"}, False),
        ({"kind": "continuous"}, False),
        ({"kind": "prismatic", "hip": "0 1 0", "low": 0.0, "high": 0.1}, True),
        ({"kind": "prismatic", "hip": "0 1 0", "low": -0.05, "high": 0.1}, False),
        ({"kind": "prismatic", "hip": "1 0 0"}, True),
    ],
)
def test_a_plane_beside_parallel_joints(tmp_path, changes, is_apart):
    scene = leg(tmp_path, **changes)
    assert _is_behind_plane(scene, ("trunk", "calf")) == is_apart
    assert _is_behind_plane(scene, ("calf", "trunk")) == is_apart


def test_what_is_proven_never_touches(tmp_path):
    rng, proven = np.random.default_rng(3), 0
    for _ in range(30):
        low = rng.uniform(-1.5, 0.5)
        axis = rng.normal(size=3)
        changes = {
            "low": low, "high": low + rng.uniform(0.1, 1.0), "offset": rng.uniform(0.05, 0.2),
            "hip": " ".join(map(str, axis / np.linalg.norm(axis))),
        }  # fmt: skip
        scene = leg(tmp_path, **changes)
        if not _is_behind_plane(scene, ("trunk", "calf")):
            continue
        proven += 1
        limits = np.nan_to_num(scene.tree.joint_limits)
        joints = rng.uniform(*limits.T, (100, 3))
        at = LinkFrames(scene.tree, ["trunk", "calf"]).transforms(torch.from_numpy(joints)).numpy()
        boxes = coal.Box(0.267, 0.194, 0.114), coal.Box(0.016, A1["width"], 0.2)
        for trunk, calf in at:
            middle = calf[:3, 3] - 0.1 * calf[:3, 2]
            distance = coal.distance(
                boxes[0], coal.Transform3s(trunk[:3, :3], trunk[:3, 3]),
                boxes[1], coal.Transform3s(calf[:3, :3], middle),
                coal.DistanceRequest(), coal.DistanceResult(),
            )  # fmt: skip
            assert distance > 0.0
    assert 5 < proven < 30
