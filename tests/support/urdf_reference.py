"""Forward kinematics of a URDF in float64, written with quaternions and recursion."""

import xml.etree.ElementTree as ElementTree

import numpy as np

from robots import shift, turn

# Joints that follow others, also by way of a third, before those that they follow; a slide.
GRIPPER = """<robot name="gripper">
  <link name="base"><collision><geometry><sphere radius="0.05"/></geometry></collision></link>
  <link name="left">
    <collision><origin xyz="0 0.02 0.1"/><geometry><sphere radius="0.01"/></geometry></collision>
  </link>
  <link name="right">
    <collision><origin xyz="0 -0.02 0.1"/><geometry><sphere radius="0.02"/></geometry></collision>
  </link>
  <link name="tip">
    <collision><origin xyz="0.3 0 0"/><geometry><sphere radius="0.03"/></geometry></collision>
  </link>
  <link name="arm"/>
  <joint name="turn_tip" type="revolute">
    <parent link="left"/><child link="tip"/><origin xyz="0 0 0.1" rpy="0.3 -1 0.2"/>
    <axis xyz="1 2 -1"/><mimic joint="close_left" multiplier="-3" offset="0.4"/>
  </joint>
  <joint name="close_left" type="prismatic">
    <parent link="arm"/><child link="left"/><origin xyz="0.1 0 0" rpy="0 0.5 0"/>
    <axis xyz="0 1 0"/><limit lower="0" upper="0.04"/>
    <mimic joint="close_right" multiplier="-0.5" offset="0.01"/>
  </joint>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="arm"/><origin rpy="0.1 0.2 0.3"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="2"/>
  </joint>
  <joint name="close_right" type="prismatic">
    <parent link="arm"/><child link="right"/><origin xyz="0.1 0 0"/><axis xyz="0 -1 0"/>
    <limit lower="-0.3" upper="0.4"/>
  </joint>
</robot>"""


def words(element: ElementTree.Element | None, key: str, default: str) -> np.ndarray:
    return np.array(
        [float(w) for w in (default if element is None else element.get(key, default)).split()]
    )


def origin_of(element: ElementTree.Element) -> np.ndarray:
    origin = element.find("origin")
    roll, pitch, yaw = words(origin, "rpy", "0 0 0")
    x, y, z = np.eye(3)
    return shift(words(origin, "xyz", "0 0 0")) @ turn(z, yaw) @ turn(y, pitch) @ turn(x, roll)


def reference(text: str, values: dict[str, float]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """World from link, and its spheres (n, 4) in the world, of each link of a URDF."""
    robot = ElementTree.fromstring(text)
    joints = {j.find("child").get("link"): j for j in robot.findall("joint")}

    def value_of(name: str) -> float:
        mimic = robot.find(f"joint[@name='{name}']/mimic")
        if mimic is None:
            return values.get(name, 0.0)
        other = value_of(mimic.get("joint"))
        return float(mimic.get("multiplier", 1)) * other + float(mimic.get("offset", 0))

    def world_from(link: str) -> np.ndarray:
        joint = joints.get(link)
        if joint is None:
            return np.eye(4)
        world_from_joint = world_from(joint.find("parent").get("link")) @ origin_of(joint)
        axis = words(joint.find("axis"), "xyz", "1 0 0")
        value = value_of(joint.get("name"))
        match joint.get("type"):
            case "fixed":
                return world_from_joint
            case "prismatic":
                return world_from_joint @ shift(value * axis / np.linalg.norm(axis))
        return world_from_joint @ turn(axis, value)

    links = {}
    for link in robot.findall("link"):
        matrix = world_from(link.get("name"))
        spheres = [
            [*(matrix @ origin_of(c))[:3, 3], float(c.find("geometry/sphere").get("radius"))]
            for c in link.findall("collision")
            if c.find("geometry/sphere") is not None
        ]
        links[link.get("name")] = matrix, np.array(spheres).reshape(-1, 4)
    return links
