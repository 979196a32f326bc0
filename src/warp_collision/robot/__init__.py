"""Robots as spheres on their links: URDF, kinematics, self-collision, joint paths."""

from warp_collision.robot.interpolation import Interpolated
from warp_collision.robot.joint_path import (
    JointPathClearance,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot.joint_path_cost import joint_path_cost
from warp_collision.robot.robot_spheres import LinkMesh, RobotSpheres
from warp_collision.robot.self_collision import (
    SelfClearance,
    SelfCollisionPairs,
    self_clearance,
    self_collision_cost,
)

__all__ = [
    "Interpolated",
    "JointPathClearance",
    "LinkMesh",
    "RobotSpheres",
    "SelfClearance",
    "SelfCollisionPairs",
    "configuration_in_collision",
    "joint_path_clearance",
    "joint_path_cost",
    "joint_path_in_collision",
    "self_clearance",
    "self_collision_cost",
]
