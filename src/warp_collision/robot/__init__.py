"""Robots as spheres on their links: URDF, kinematics, self-collision, joint paths, fitting."""

from warp_collision.robot.collision_report import CollisionReport
from warp_collision.robot.coverage import Coverage, coverage
from warp_collision.robot.description import LinkMesh
from warp_collision.robot.fitting import SphereFit, fit_spheres
from warp_collision.robot.interpolation import Interpolated
from warp_collision.robot.joint_path import (
    JointPathClearance,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot.joint_path_cost import joint_path_cost
from warp_collision.robot.robot_spheres import RobotSpheres
from warp_collision.robot.self_collision import (
    SelfClearance,
    SelfCollisionPairs,
    self_clearance,
    self_collision_cost,
)

__all__ = [
    "CollisionReport",
    "Coverage",
    "Interpolated",
    "JointPathClearance",
    "LinkMesh",
    "RobotSpheres",
    "SelfClearance",
    "SelfCollisionPairs",
    "SphereFit",
    "configuration_in_collision",
    "coverage",
    "fit_spheres",
    "joint_path_clearance",
    "joint_path_cost",
    "joint_path_in_collision",
    "self_clearance",
    "self_collision_cost",
]
