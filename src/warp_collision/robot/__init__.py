"""Robots as spheres on their links: URDF, kinematics, self-collision, joint paths, fitting."""

from warp_collision.robot.checks.checker import RobotChecker
from warp_collision.robot.checks.joint_path import (
    JointPathClearance,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot.checks.joint_path_cost import joint_path_cost
from warp_collision.robot.checks.link_distances import LinkDistances, link_distances
from warp_collision.robot.checks.self_collision import (
    SelfClearance,
    self_clearance,
    self_collision_cost,
)
from warp_collision.robot.fitting.coverage import Coverage, coverage
from warp_collision.robot.fitting.sphere_fit import SphereFit, fit_spheres
from warp_collision.robot.model.collision_report import CollisionReport
from warp_collision.robot.model.interpolation import Interpolated
from warp_collision.robot.model.joint_curve import JointCurve
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.robot.model.self_collision_matrix import MatrixEntry, SelfCollisionMatrix
from warp_collision.robot.model.trajectory import load_trajectory, save_trajectory
from warp_collision.robot.model.urdf_model import LinkMesh

__all__ = [
    "CollisionReport",
    "Coverage",
    "Interpolated",
    "JointCurve",
    "JointPathClearance",
    "LinkDistances",
    "LinkMesh",
    "MatrixEntry",
    "RobotChecker",
    "RobotSpheres",
    "SelfClearance",
    "SelfCollisionMatrix",
    "SelfCollisionPairs",
    "SphereFit",
    "configuration_in_collision",
    "coverage",
    "fit_spheres",
    "joint_path_clearance",
    "joint_path_cost",
    "joint_path_in_collision",
    "link_distances",
    "load_trajectory",
    "save_trajectory",
    "self_clearance",
    "self_collision_cost",
]
