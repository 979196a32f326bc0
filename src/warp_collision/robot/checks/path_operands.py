"""What all checks of a robot's configurations and paths read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.queries.operator import AFTER_SCENE, ENV_INDEX, OPERANDS_OF_SCENE, SCENE
from warp_collision.robot.model.interpolation import segments_of
from warp_collision.robot.model.joint_curve import JointCurve
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.robot.model.sphere_layout import ROBOT, RobotTables
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world
from warp_collision.world.scene import Scene

# The schema of `PathOperands.flat`.
OPERANDS = (
    f"Tensor joints, {SCENE}, Tensor? base, {ROBOT}, Tensor? body_pairs, Tensor? left_out, "
    "int degree"
)
# Where it has what the batching rule asks for, and how many they are.
BASE = AFTER_SCENE
N_ENVS, PAIRS, DEGREE, N_OPERANDS = BASE + 8, BASE + 9, BASE + 11, BASE + 12


class PathOperands(NamedTuple):
    """The operands of one check.

    Attributes:
        joints: (batch, horizon, n_joints) float32; control points (batch, pieces * degree + 1,
            n_joints) of curves.
        scene: the obstacles.
        env_index: (batch,) int32, or None.
        base: of the root link, `MovingFrame` (batch or 1, n or 1, 18) with a row for each
            configuration or segment; None for the origin.
        robot: tables of the robot.
        pairs: tables of the pairs for self-collision; or None, None.
        degree: of the polynomials of a segment, 1 where it is straight.
    """

    joints: Tensor
    scene: Scene
    env_index: Tensor | None
    base: Tensor | None
    robot: RobotTables
    pairs: tuple[Tensor | None, Tensor | None]
    degree: int = 1

    @property
    def segments(self) -> tuple[int, int]:
        """Number of paths, and of the segments of each."""
        return segments_of(self.joints, self.degree)

    def scratch(self, rows: Sequence[int], size: int) -> tuple[Tensor, Tensor]:
        """Frames (*rows, n_frames, size) and balls (*rows, n_bodies, 4) for a kernel to write.

        Twice as many frames for curves: the kernels keep bounds of their joints' motion there.
        """
        n_frames = len(self.robot.frames) * (1 if self.degree == 1 else 2)
        frames = self.joints.new_empty((*rows, n_frames, size))
        return frames, self.joints.new_empty((*rows, self.robot.n_bodies, 4))

    def flat(self) -> tuple[Any, ...]:
        """The arguments of operators."""
        scene = self.scene.at(self.scene.mesh_from_world.detach()).operands()
        robot = self.robot.operands()
        return self.joints, *scene, self.env_index, self.base, *robot, *self.pairs, self.degree

    @classmethod
    def of(cls, *args: Any) -> PathOperands:
        """From the arguments of operators, and perhaps more."""
        scene, env_index = Scene.of(*args[OPERANDS_OF_SCENE]), args[ENV_INDEX]
        robot, pairs = RobotTables.of(*args[BASE + 1 : PAIRS]), args[PAIRS:DEGREE]
        return cls(args[0].contiguous(), scene, env_index, args[BASE], robot, pairs, args[DEGREE])


def control_points(
    curve: JointCurve, robot: RobotSpheres, device: torch.device
) -> tuple[Tensor, int]:
    """Control points of a curve for a robot, and its degree."""
    if curve.n_joints != robot.n_joints:
        raise ValueError(
            f"joints must be a curve of the robot's {robot.n_joints} joints, got one of "
            f"{curve.n_joints}"
        )
    return curve.points(device), curve.degree


def require_robot_and_world(robot: object, world: object) -> None:
    """Requires a robot and a world as the arguments `robot` and `world`, which are easily swapped.

    Raises:
        TypeError: one of them is something else.
    """
    if not isinstance(robot, RobotSpheres):
        hint = ": robot comes before world" if isinstance(world, RobotSpheres) else ""
        raise TypeError(f"robot must be a RobotSpheres, got {type(robot).__name__}{hint}")
    if not isinstance(world, MeshWorld):
        require_world(world)
