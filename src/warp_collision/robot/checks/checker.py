"""Collision checks of one robot in one world, whose options are validated once."""

from __future__ import annotations

import threading
from typing import Any, Literal

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.devices import CPU
from warp_collision.poses import PoseLike
from warp_collision.queries.dispatch import is_plain
from warp_collision.queries.evaluate import scene_of
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.checks.joint_path import (
    checked_rows,
    require_motion,
    robot_tables,
)
from warp_collision.robot.checks.path_operands import (
    PathOperands,
    control_points,
    require_robot_and_world,
)
from warp_collision.robot.checks.path_operators import (
    CONFIGURATION_IN_COLLISION,
    JOINT_PATH_IN_COLLISION,
    SHAPES_IN_COLLISION,
    SHAPES_IN_COLLISION_ON_PATH,
    RepeatedCheck,
)
from warp_collision.robot.model.allowed_pairs import Contacts, as_pairs
from warp_collision.robot.model.base_pose import root_frames
from warp_collision.robot.model.joint_curve import JointCurve
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.world import MeshWorld
from warp_collision.world.scene import Scene

# Configurations that one thread checks sooner than several.
_FEW = 16


class RobotChecker:
    """`configuration_in_collision` and `joint_path_in_collision` for callers with many small calls.

    The options are validated once, not in each call, and with them the pose of the base and the
    allowed contacts. The answers are those of the two functions, with the same proof. Obstacles
    that are added or moved, and objects that are attached to the robot, are seen by later calls.

    Args:
        robot: the robot.
        world: the obstacles.
        tolerance: of paths, see `joint_path_in_collision` [m].
        shapes: see `configuration_in_collision`.
        self_collision: see `configuration_in_collision`.
        ignore: see `configuration_in_collision`.
        base_pose: (7,), pose of the root link in the world, or a 4 x 4 matrix; the origin if None.
        world_clearance: see `joint_path_in_collision` [m].

    Raises:
        TypeError, ValueError: an option of another type or range, or unknown names in `ignore`; the
            names are looked up again when obstacles change.

    Example:
        >>> import torch
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.robot import RobotChecker
        >>> world = MeshWorld()
        >>> world.add("plate", Cuboid((0.5, 0.001, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0))
        0
        >>> checker = RobotChecker(load_panda(), world, tolerance=1e-3)
        >>> motion = torch.tensor([[[q, 0, 0, -1.6, 0, 1.6, 0.8] for q in (-0.9, 0.9)]])
        >>> checker.path_in_collision(motion).tolist()
        [[True]]
        >>> checker.configuration_in_collision(motion).tolist()
        [[False, False]]
    """

    def __init__(
        self,
        robot: RobotSpheres,
        world: MeshWorld,
        *,
        tolerance: float | Tensor = 1e-3,
        shapes: Literal["spheres", "exact"] = "spheres",
        self_collision: bool | SelfCollisionPairs = True,
        ignore: Contacts = (),
        base_pose: PoseLike | None = None,
        world_clearance: float = 0.0,
    ):
        require_robot_and_world(robot, world)
        self._robot, self._world, self._device = robot, world, world.device
        self._tolerance = validate.scalar_operand(
            "tolerance", tolerance, world.device, positive=True
        )
        self._is_exact = robot.layout.is_exact(shapes)
        self._self_collision, self._ignore = self_collision, as_pairs(ignore)
        self._world_clearance = world_clearance
        self._n_joints = robot.n_joints
        like = torch.zeros((1, 1, robot.n_joints), device=world.device)
        self._root = root_frames(base_pose, like, 0)
        self._prepare()
        scene_with_contacts(self._ignore, robot, world)  # looks up the names

    def __getstate__(self) -> dict[str, Any]:
        """Without what is looked up anew; copies of tensors, as torch moves those that it sends."""
        kept = self.__dict__.keys() - {"_layout", "_tables", "_pairs", "_recorded"}
        return {
            name: value.clone() if isinstance(value := getattr(self, name), Tensor) else value
            for name in kept
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"RobotChecker({self._robot!r}, {self._world!r})"

    def configuration_in_collision(self, joints: Tensor, env_index: Tensor | None = None) -> Tensor:
        """Whether the robot at joint values touches an obstacle or itself.

        Args:
            joints: (..., n_joints), see the function of this name.
            env_index: (batch,) int32 for joints (batch, ..., n_joints); env 0 for all if None.

        Returns:
            (...,) bool.

        Raises:
            TypeError, ValueError: an argument of another type, shape, device or range.
        """
        self._follow_robot()
        repeated = self._recorded.configurations
        if env_index is None and repeated is not None and repeated.answers(joints):
            if not validate.is_checking():
                return repeated(joints, self._scene())
        rows = joints
        if not isinstance(joints, Tensor) or joints.ndim != 3:
            self._robot.check_joints(joints)
            batch = joints.shape[0] if joints.ndim > 1 else 1
            rows = joints.reshape(batch, -1 if batch else 1, self._n_joints)
        rows, env_index = self._checked(rows, env_index)
        operands = self._operands(rows, env_index)
        if _is_small(rows, env_index):
            if repeated is None or not repeated.answers(rows):
                repeated = RepeatedCheck.of_configurations(operands, self._is_exact)
                self._recorded.configurations = repeated
            hit = repeated(rows, operands.scene)
        else:
            check = SHAPES_IN_COLLISION if self._is_exact else CONFIGURATION_IN_COLLISION
            hit = check.evaluate(operands)
        return hit if rows is joints else hit.reshape(joints.shape[:-1])

    def path_in_collision(
        self, joints: Tensor | JointCurve, env_index: Tensor | None = None
    ) -> Tensor:
        """Which segments of joint paths are not proven free; see `joint_path_in_collision`.

        Args:
            joints: (batch, horizon, n_joints) [rad, prismatic: m], or a `JointCurve`.
            env_index: (batch,) int32, the env of each row; env 0 for all if None.

        Returns:
            (batch, horizon - 1) bool; False is a proof that the whole segment is free.

        Raises:
            TypeError, ValueError: an argument of another type, shape, device or range, or fewer
                than two waypoints.
        """
        self._follow_robot()
        repeated = self._recorded.paths
        if env_index is None and repeated is not None and repeated.answers(joints):
            if not validate.is_checking():
                return repeated(joints, self._scene())
        degree = 1
        if isinstance(joints, JointCurve):
            joints, degree = control_points(joints, self._robot, self._device)
        joints, env_index = self._checked(joints, env_index)
        require_motion(joints)
        operands = self._operands(joints, env_index)._replace(degree=degree)
        if degree == 1 and _is_small(joints, env_index):
            if repeated is None or not repeated.answers(joints):
                repeated = RepeatedCheck.of_paths(operands, self._tolerance, self._is_exact)
                self._recorded.paths = repeated
            return repeated(joints, operands.scene)
        check = SHAPES_IN_COLLISION_ON_PATH if self._is_exact else JOINT_PATH_IN_COLLISION
        return check.evaluate(operands, self._tolerance)

    def _checked(self, joints: Tensor, env_index: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Contiguous float32 joints (batch, horizon, n_joints), and the env index."""
        is_usual = (
            type(joints) is Tensor
            and joints.dtype is torch.float32
            and joints.ndim == 3
            and joints.shape[2] == self._n_joints
            and joints.device == self._device
            and joints.is_contiguous()
        )
        if not is_usual or validate.is_checking():
            self._robot.check_joints(joints)
            return checked_rows(joints, self._world, env_index)
        if env_index is not None:
            n_envs = self._world.n_envs
            env_index = validate.env_operand(env_index, joints.shape[0], n_envs, self._device)
        return joints, env_index

    def _operands(self, joints: Tensor, env_index: Tensor | None) -> PathOperands:
        scene = self._scene()
        return PathOperands(joints, scene, env_index, self._root, self._tables, self._pairs)

    def _scene(self) -> Scene:
        if not self._ignore:
            return scene_of(self._world)
        return scene_with_contacts(self._ignore, self._robot, self._world)

    def _follow_robot(self) -> None:
        """Looks up what belongs to the robot anew where something was attached or detached."""
        if self._robot.layout is not self._layout:
            self._prepare()

    def _prepare(self) -> None:
        """Looks up what belongs to the robot with what is attached to it."""
        self._layout = self._robot.layout
        operands = self._robot, self._self_collision, self._device, self._world_clearance
        self._tables, self._pairs = robot_tables(*operands)
        self._recorded = _Recorded()


class _Recorded(threading.local):
    """The launches that a thread has recorded, of the joints that came last."""

    configurations: RepeatedCheck | None = None
    paths: RepeatedCheck | None = None


def _is_small(joints: Tensor, env_index: Tensor | None) -> bool:
    """Whether one thread of the CPU checks joints (batch, horizon, n_joints) by a record."""
    if env_index is not None or joints.device != CPU:
        return False
    return 0 < joints.shape[0] * joints.shape[1] <= _FEW and is_plain(joints)
