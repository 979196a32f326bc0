"""The arguments `robot` and `world`, which are easily swapped."""

from __future__ import annotations

from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.world.mesh_world import require_world


def require_robot_and_world(robot: object, world: object) -> None:
    """Requires a robot and a world as the arguments `robot` and `world`, which are easily swapped.

    Raises:
        TypeError: one of them is something else.
    """
    if not isinstance(robot, RobotSpheres):
        hint = ": robot comes before world" if isinstance(world, RobotSpheres) else ""
        raise TypeError(f"robot must be a RobotSpheres, got {type(robot).__name__}{hint}")
    require_world(world)
