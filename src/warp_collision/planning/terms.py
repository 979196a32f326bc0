"""Terms of a planner's objective: callables of joint paths; users can add their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.poses import PoseLike
from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.robot.checks.joint_path_cost import PathCost
from warp_collision.world import MeshWorld

Term = Callable[..., Tensor]

SELF_WEIGHT = 20.0


class CollisionTerm:
    """Collision cost of the robot with the world and with itself, see `joint_path_cost`.

    Args:
        robot: the robot.
        world: the obstacles.
        weight: factor of the cost against the world.
        activation_distance: eta [m] against the world.
        self_weight: factor of the cost of self-collisions; 0.0 for none.
        self_activation_distance: eta [m] of self-collisions.
        substeps: number of chords of each segment, odd.
        tolerance: of the sweep along the chords [m].
        pairs: pairs of spheres for self-collisions; the robot's default pairs if None.
        ignore: allowed contacts, pairs of a link and an obstacle, see `joint_path_cost`.
        env_index: (n_problems,) int32, the env of each problem; env 0 for all if None.
        base_pose: (n_problems, 7), or (7,) for all, pose of the root link in the world, or 4 x 4
            matrices; the origin if None.

    Example:
        >>> import torch
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import CollisionTerm
        >>> world = MeshWorld()
        >>> world.add("block", Cuboid((0.3, 0.3, 0.3)), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> term = CollisionTerm(load_panda(), world)
        >>> bool((term(torch.tensor([[[0, 0.4, 0, -1.6, 0, 2, 0.8]] * 2])) > 0).all())
        True
    """

    def __init__(
        self,
        robot: RobotSpheres,
        world: MeshWorld,
        *,
        weight: float = 20.0,
        activation_distance: float = 0.05,
        self_weight: float = SELF_WEIGHT,
        self_activation_distance: float = 0.02,
        substeps: int = 1,
        tolerance: float = 5e-3,
        pairs: SelfCollisionPairs | None = None,
        ignore: Iterable[tuple[str, str]] = (),
        env_index: Tensor | None = None,
        base_pose: PoseLike | None = None,
    ):
        self.robot, self.world = robot, world
        if not (base_pose is None or isinstance(base_pose, Tensor)):
            base_pose = validate.check_pose("base_pose", base_pose).to(world.device)
        self.env_index, self.base_pose = env_index, base_pose
        # One pose for all has one axis, or two if it is a matrix.
        shape = () if base_pose is None else tuple(base_pose.shape)
        self._has_bases = len(shape) == 3 or (len(shape) == 2 and shape != (4, 4))
        self.options = PathCost(
            weight,
            activation_distance,
            tolerance,
            substeps,
            self_weight,
            self_activation_distance,
            pairs,
            tuple(ignore),
        )

    def __repr__(self) -> str:
        return f"CollisionTerm({self.robot!r}, {self.world!r})"

    def __call__(self, joints: Tensor, problem: Tensor | None = None) -> Tensor:
        """The cost (batch, horizon) of joint paths (batch, horizon, n_joints).

        Args:
            joints: the paths.
            problem: (batch,) int64, which problem each path is of; the paths themselves if None.
        """
        index, base = self.operands(problem)
        costs = self.options.of_spheres(joints, self.robot, self.world, index, base, None)
        return costs.sum(-1)

    def operands(self, problem: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The envs and poses of the root for paths of problems (batch,)."""
        index, base = self.env_index, self.base_pose
        if index is not None and problem is not None:
            index = index[problem]
        if base is not None and problem is not None and self._has_bases:
            base = base[problem]
        return index, base


class SmoothnessTerm:
    """Half the squared joint velocity, integrated along the path, which takes unit time.

    The cheapest of the paths along one line is that at constant speed: half its squared length.

    Args:
        weight: factor of the cost.

    Example:
        >>> import torch
        >>> from warp_collision.planning import SmoothnessTerm
        >>> SmoothnessTerm()(torch.tensor([[[0.0], [1.0], [2.0]]])).tolist()
        [2.0]
    """

    def __init__(self, weight: float = 1.0):
        self.weight = float(weight)

    def __repr__(self) -> str:
        return f"SmoothnessTerm(weight={self.weight})"

    def __call__(self, joints: Tensor) -> Tensor:
        """The cost (batch,) of joint paths (batch, horizon, n_joints)."""
        steps = joints[:, 1:] - joints[:, :-1]
        return (0.5 * self.weight * (joints.shape[1] - 1)) * steps.square().sum((1, 2))


class JointLimitsTerm:
    """Half the squared distance of joint values beyond their limits.

    Args:
        limits: (n_joints, 2) lower and upper limits [rad or m], such as `robot.joint_limits`.
        weight: factor of the cost.
        buffer: distance to the limits within which a joint value costs [rad or m].

    Example:
        >>> import torch
        >>> from warp_collision.planning import JointLimitsTerm
        >>> term = JointLimitsTerm(torch.tensor([[-1.0, 1.0]]), weight=2.0)
        >>> term(torch.tensor([[[0.0], [1.5]]])).tolist()
        [[0.0, 0.25]]
    """

    def __init__(self, limits: Tensor, *, weight: float = 100.0, buffer: float = 0.0):
        if not isinstance(limits, Tensor) or limits.ndim != 2 or limits.shape[1] != 2:
            raise ValueError(
                f"limits must have shape (n_joints, 2), got {validate.shape_of(limits)}"
            )
        self.lower, self.upper = (limits[:, 0] + buffer, limits[:, 1] - buffer)
        self.weight = float(weight)

    def __repr__(self) -> str:
        return f"JointLimitsTerm({len(self.lower)} joints, weight={self.weight})"

    def __call__(self, joints: Tensor) -> Tensor:
        """The cost (batch, horizon) of joint paths (batch, horizon, n_joints)."""
        if self.lower.device != joints.device:
            self.lower, self.upper = self.lower.to(joints.device), self.upper.to(joints.device)
        beyond = joints - torch.clamp(joints, self.lower, self.upper)
        return 0.5 * self.weight * beyond.square().sum(-1)
