"""Robots as spheres on their links: URDF, forward kinematics."""

from warp_collision.robot.robot_spheres import LinkMesh, RobotSpheres

__all__ = ["LinkMesh", "RobotSpheres"]
