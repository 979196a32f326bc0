"""The collision term of a trajectory optimizer, as a module."""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from warp_collision import validate
from warp_collision.costs import Scalar, clearance, sphere_cost, swept_sphere_cost
from warp_collision.poses import PoseLike
from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.robot.checks.joint_path_cost import PathCost, waypoint_clearance
from warp_collision.robot.model.allowed_pairs import Contacts
from warp_collision.world import MeshWorld

Reduction = Literal["sum", "max", "waypoint", "none"]


class Constraint(NamedTuple):
    """Result of `CollisionCost.constraint`: satisfied where the value is not negative.

    Attributes:
        value: (batch, horizon, n_spheres) [m], clearance minus margin; +inf for disabled spheres
            and without obstacles.
        jacobian: (batch, horizon, n_spheres, 4), d value / d (x, y, z, radius) of the same sphere;
            0 where the value is infinite. With a robot (batch, horizon, n_spheres, n_joints), d
            value / d joints at the same waypoint.
        obstacle: (batch, horizon, n_spheres) int32, index of the nearest obstacle, -1 for none.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import CollisionCost, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> spheres = torch.tensor([[[[0.75, 0.0, 0.0, 0.125]]]])
        >>> found = CollisionCost(world).constraint(spheres, margin=0.25)
        >>> found.value.item()  # 12.5 cm too near
        -0.125
        >>> found.jacobian.flatten().tolist(), found.obstacle.item()
        ([1.0, 0.0, 0.0, -1.0], 0)
    """

    value: Tensor
    jacobian: Tensor
    obstacle: Tensor


class CollisionCost(nn.Module):
    """Collision cost of trajectories against a world, as a term of a planner's objective.

    With a robot it takes joint paths in place of spheres: the cost is `joint_path_cost`, including
    self-collisions.

    The parameters are buffers of one element: they move with ``.to``, are in the ``state_dict`` and
    may be changed in place, also in a captured CUDA graph. A weight that is an `nn.Parameter` stays
    one. The world is not part of the state, as it owns meshes on its device: ``.to`` does not move
    it, and a call with buffers on another device raises; assign a world of that device to
    ``world``. `copy.deepcopy` copies the buffers and shares the world and the robot; pickling
    copies all of them.

    Attributes:
        world: the `MeshWorld` that spheres are checked against.
        weight: (1,) buffer, or the parameter that was given.
        activation_distance: (1,) buffer [m].
        tolerance: (1,) buffer [m], or None.
        dt: (1,) buffer [s], or None.
        min_speed: (1,) buffer [m/s], or None without the speed metric.
        swept: whether the motion between waypoints is checked, or the waypoints only.
        speed_metric: whether costs are scaled by speed; requires `swept` and dt.
        reduction: "sum", "max", "waypoint" or "none"; see `forward`.
        robot: the robot of the joint paths, or None for spheres.
        self_weight: (1,) buffer, factor of the cost of self-collisions, or None.
        self_activation_distance: (1,) buffer [m], or None.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import CollisionCost, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
        0
        >>> collision = CollisionCost(world, weight=10.0, swept=False)
        >>> spheres = torch.tensor([[[[0.45, 0.0, 0.0, 0.1]], [[0.9, 0.0, 0.0, 0.1]]]])
        >>> spheres.requires_grad_()
        tensor([[[[0.4500, 0.0000, 0.0000, 0.1000]],
        <BLANKLINE>
                 [[0.9000, 0.0000, 0.0000, 0.1000]]]], requires_grad=True)
        >>> cost = collision(spheres)  # one number per trajectory
        >>> cost.sum().backward()
        >>> [round(c, 3) for c in cost.tolist()], spheres.grad[0, 0, 0].tolist()
        ([1.6], [-10.0, 0.0, 0.0, 10.0])
        >>> collision.constraint(spheres, margin=0.05).value.flatten().tolist()[1] > 0.2
        True
    """

    world: MeshWorld
    weight: Tensor
    activation_distance: Tensor
    tolerance: Tensor | None
    dt: Tensor | None
    min_speed: Tensor | None
    self_weight: Tensor | None
    self_activation_distance: Tensor | None

    def __init__(
        self,
        robot: RobotSpheres | MeshWorld,
        world: MeshWorld | None = None,
        *,
        weight: Scalar = 1.0,
        activation_distance: Scalar = 0.02,
        swept: bool = True,
        speed_metric: bool = False,
        dt: Scalar | None = None,
        min_speed: Scalar = 0.01,
        tolerance: Scalar | None = None,
        reduction: Reduction = "sum",
        max_deviation: float = 1e-3,
        substeps: int | None = None,
        self_weight: Scalar = 0.0,
        self_activation_distance: Scalar = 0.01,
        pairs: SelfCollisionPairs | None = None,
        ignore: Contacts = (),
    ):
        """Creates the term; its buffers are on the device of the world.

        Args:
            robot: the robot whose joint paths are checked; without one, the world stands here.
            world: the obstacles; shared, not copied.
            weight: factor of the cost.
            activation_distance: clearance [m] below which a sphere costs.
            swept: check the motion between waypoints, not only the waypoints.
            speed_metric: scale costs by the speed of their sphere; see `swept_sphere_cost`.
            dt: seconds between waypoints; required for the speed metric.
            min_speed: minimum scale of the speed metric [m/s].
            tolerance: of the sweep's smallest distance [m]; see `swept_sphere_cost` for None.
            reduction: "sum" and "max" over a trajectory, "waypoint": sum over the spheres of each
                waypoint, "none": no reduction.
            max_deviation: of chords from arcs [m]; this and the arguments below are of a robot, see
                `joint_path_cost`.
            substeps: number of parts of each segment instead, odd.
            self_weight: factor of the cost of self-collisions; 0.0 for none.
            self_activation_distance: eta [m] of self-collisions.
            pairs: pairs of spheres for self-collisions; those of the robot if None.
            ignore: allowed contacts, pairs of a link, or attached object, and an obstacle.

        Raises:
            TypeError, ValueError: an argument of another type, device or range, a speed metric
                without `swept` or dt or with a robot.
        """
        super().__init__()
        of_robot, scene = (None, robot) if world is None else (robot, world)
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be one of {get_args(Reduction)}, got {reduction!r}")
        if speed_metric and not swept:
            raise ValueError("swept must be True for the speed metric, got False")
        if speed_metric and dt is None:
            raise ValueError("dt must be given for the speed metric, got None")
        if of_robot is not None and not isinstance(of_robot, RobotSpheres):
            raise TypeError(f"robot must be a RobotSpheres, got {type(of_robot).__name__}")
        if of_robot is not None and speed_metric:
            raise ValueError("speed_metric must be False with a robot, got True")
        self.world, self.robot = scene, of_robot  # pyright: ignore[reportAttributeAccessIssue]
        self._paths = PathCost(
            substeps=substeps, pairs=pairs, ignore=tuple(ignore), max_deviation=max_deviation
        )
        self.swept, self.speed_metric, self.reduction = bool(swept), bool(speed_metric), reduction
        if isinstance(weight, nn.Parameter):
            validate.scalar_operand(
                "weight", weight, self.world.device, any_sign=True, differentiable=True
            )
            self.weight = weight
        else:
            self._number("weight", weight, any_sign=True)
        self._number("activation_distance", activation_distance)
        has_self = isinstance(self_weight, Tensor) or self_weight != 0.0
        self._number("self_weight", self_weight if has_self else None, any_sign=True)
        self._number("self_activation_distance", self_activation_distance if has_self else None)
        self._number("dt", dt, positive=True)
        self._number("min_speed", min_speed, positive=True)
        if not speed_metric:
            self.min_speed = None
        self._number("tolerance", tolerance, positive=True)

    def _number(self, name: str, value: Scalar | None, **rule: bool) -> None:
        if isinstance(value, Tensor) and value.requires_grad:
            parameter = ", other than an nn.Parameter" if name == "weight" else ""
            raise ValueError(f"{name} must not require a gradient{parameter}: it is a buffer")
        if value is not None:
            # A copy: `scalar_operand` shares tensors, and buffers may be changed.
            value = validate.scalar_operand(name, value, self.world.device, **rule).clone()
        self.register_buffer(name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; `world` must be a `MeshWorld`."""
        if name == "world" and not isinstance(value, MeshWorld):
            raise TypeError(f"world must be a MeshWorld, got {type(value).__name__}")
        super().__setattr__(name, value)  # pyright: ignore[reportArgumentType]

    def __deepcopy__(self, memo: dict[int, Any]) -> CollisionCost:
        memo[id(self.world)] = self.world
        for shared in (self.robot, self._paths.pairs):
            memo[id(shared)] = shared
        result = type(self).__new__(type(self))
        memo[id(self)] = result
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return result

    def extra_repr(self) -> str:
        """Settings, for the `repr` of the module."""
        robot = "" if self.robot is None else f"{self.robot!r}, "
        return (
            f"{self.world!r}, {robot}swept={self.swept}, speed_metric={self.speed_metric}, "
            f"reduction={self.reduction!r}"
        )

    def forward(
        self,
        spheres: Tensor,
        env_index: Tensor | None = None,
        *,
        poses: Tensor | None = None,
        base_pose: PoseLike | None = None,
    ) -> Tensor:
        """The cost of trajectories.

        Args:
            spheres: (batch, horizon, n_spheres, 4) x, y, z, radius [m]; see `sphere_cost`. With a
                robot, its joints (batch, horizon, n_joints) instead.
            env_index: (batch,) int32, the env of each trajectory; env 0 for all if None.
            poses: see `sphere_cost`.
            base_pose: of a robot, (7,) or (batch, 7); see `joint_path_cost`.

        Returns:
            (batch,) for the reductions "sum" and "max", (batch, horizon) for "waypoint",
            (batch, horizon, n_spheres) for "none".

        Raises:
            TypeError, ValueError: as `sphere_cost`.
        """
        self._require_device()
        if self.robot is None:
            self._refuse_base(base_pose)
            cost = self._of_spheres(spheres, env_index, poses)
        else:
            cost = self._cost_of_paths().of_spheres(
                spheres, self.robot, self.world, env_index, base_pose, poses
            )
        if self.reduction == "sum":
            return cost.sum((1, 2))
        if self.reduction == "waypoint":
            return cost.sum(2)
        if self.reduction == "max":
            # Without spheres the largest cost is 0, as is the sum.
            return cost.amax((1, 2)) if 0 not in cost.shape[1:] else cost.sum((1, 2))
        return cost

    def _of_spheres(
        self, spheres: Tensor, env_index: Tensor | None, poses: Tensor | None
    ) -> Tensor:
        options: dict[str, Any] = {"env_index": env_index, "poses": poses}
        if self.swept:
            options |= {"tolerance": self.tolerance, "dt": self.dt}
            if self.speed_metric:
                options |= {"speed_metric": True, "min_speed": self.min_speed}
        function = swept_sphere_cost if self.swept else sphere_cost
        return function(
            spheres,
            self.world,
            weight=self.weight,
            activation_distance=self.activation_distance,
            **options,
        )

    def _cost_of_paths(self) -> PathCost:
        options = self._paths._replace(
            weight=self.weight,
            activation_distance=self.activation_distance,
            tolerance=self.tolerance,
            swept=self.swept,
        )
        if self.self_weight is None:
            return options
        eta = self.self_activation_distance
        return options._replace(self_weight=self.self_weight, self_activation_distance=eta)

    def constraint(
        self,
        spheres: Tensor,
        margin: Scalar = 0.0,
        env_index: Tensor | None = None,
        *,
        poses: Tensor | None = None,
        base_pose: PoseLike | None = None,
    ) -> Constraint:
        """The inequality ``clearance - margin >= 0`` at each waypoint, for constrained solvers.

        At the waypoints only, swept or not: the motion between them is covered by the cost.

        Args:
            spheres: (batch, horizon, n_spheres, 4), or joints; see `forward`.
            margin: clearance to keep [m]; a tensor broadcasts to (batch, horizon, n_spheres).
            env_index: (batch,) int32, the env of each trajectory; env 0 for all if None.
            poses: see `sphere_cost`.
            base_pose: of a robot; see `forward`.

        Returns:
            Value, Jacobian and nearest obstacle; see `Constraint`. The value is differentiable too.

        Raises:
            TypeError, ValueError: as `sphere_cost`.
        """
        self._require_device()
        if self.robot is None:
            self._refuse_base(base_pose)
            found = clearance(spheres, self.world, env_index=env_index, poses=poses)
            by_radius = torch.where(found.obstacle >= 0, -1.0, 0.0).unsqueeze(-1)
            jacobian = torch.cat((found.gradient.detach(), by_radius), dim=-1)
        else:
            options = {"env_index": env_index, "base_pose": base_pose, "poses": poses}
            found = waypoint_clearance(
                spheres, self.robot, self.world, ignore=self._paths.ignore, **options
            )
            by_joints = self.robot.sphere_jacobian(spheres, base_pose)
            jacobian = (found.gradient.detach().unsqueeze(-1) * by_joints).sum(-2)
        return Constraint(found.clearance - margin, jacobian, found.obstacle)

    def _refuse_base(self, base_pose: PoseLike | None) -> None:
        if base_pose is not None:
            raise ValueError("base_pose must be None without a robot, as spheres are in the world")

    def _require_device(self) -> None:
        if self.weight.device != self.world.device:
            raise ValueError(
                f"world must be on device {self.weight.device} like the buffers, got "
                f"{self.world.device}; a world stays on its device: build one there and set "
                "module.world"
            )
