"""Collision cost of joint paths: a sweep over chords close to the arcs of the spheres."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from warp_collision import validate
from warp_collision.costs import (
    Clearance,
    Scalar,
    clearance_to,
    resting_options,
    swept_options,
    weight_operand,
)
from warp_collision.poses import PoseLike
from warp_collision.queries.autograd import is_launched
from warp_collision.queries.dispatch import is_plain
from warp_collision.queries.robot_queries import (
    FORWARD_KINEMATICS,
    SELF_COLLISION,
    JacobianProduct,
    run_path_cost_vjp,
    run_self_collision,
)
from warp_collision.queries.sphere_queries import swept_vjp
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.checks.path_operands import control_points, require_robot_and_world
from warp_collision.robot.checks.self_collision import self_collision_cost, spheres_operand
from warp_collision.robot.model.allowed_pairs import Contacts
from warp_collision.robot.model.base_pose import checked_base
from warp_collision.robot.model.interpolation import (
    Interpolated,
    cut,
    has_unknown_values,
    parts_for,
    segments_of,
    waypoints_of,
)
from warp_collision.robot.model.joint_curve import JointCurve
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.world import MeshWorld


def joint_path_cost(
    joints: Tensor | JointCurve,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    weight: float | Tensor = 1.0,
    activation_distance: float | Tensor = 0.02,
    max_deviation: float = 1e-3,
    substeps: int | None = None,
    tolerance: float | Tensor | None = None,
    self_weight: float | Tensor = 0.0,
    self_activation_distance: float | Tensor = 0.01,
    pairs: SelfCollisionPairs | None = None,
    ignore: Contacts = (),
    env_index: Tensor | None = None,
    base_pose: PoseLike | None = None,
    poses: Tensor | None = None,
) -> Tensor:
    """Collision cost of a robot between waypoints, on straight lines of its joints or on curves.

    A waypoint owns the half segment before it and the half segment after it. They are cut into
    parts whose chords deviate from the spheres' arcs by at most `max_deviation`. The cost of a
    sphere is its largest `swept_sphere_cost` over the parts that the waypoint owns. The cost of
    self-collisions is the largest `self_collision_cost` at the ends of the parts. The deviation is
    not added to the cost; `joint_path_in_collision` certifies the arcs.

    Differentiable in the joint values: exact for any incoming gradient at a fixed number of parts,
    including the gradients by neighbouring waypoints.

    Args:
        joints: (batch, horizon, n_joints) [rad, prismatic: m], on the device of the world. Or a
            `JointCurve`, whose ends of pieces are the waypoints; the cost is differentiable in its
            coefficients.
        robot: the robot.
        world: the obstacles.
        weight: factor of the cost against the world.
        activation_distance: eta [m] against the world.
        max_deviation: [m], of chords from arcs; it determines the number of parts, the same for the
            whole batch, which waits for the device.
        substeps: the number of parts of each segment instead, odd; required in CUDA graphs, in
            `torch.compile`, and where `vmap` batches joints. Curves can be in none of these.
        tolerance: of the sweep, see `swept_sphere_cost`.
        self_weight: factor of the cost of self-collisions, by default 0.0: none. Checks include
            self-collisions by default. Their weight in a cost is up to you.
        self_activation_distance: eta [m] of self-collisions.
        pairs: pairs of spheres for self-collisions; by default those of
            `RobotSpheres.self_collision_pairs`.
        ignore: allowed contacts, which cost nothing; see `configuration_in_collision`.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        base_pose: pose of the root link in the world, constant along a path: (7,), (batch, 7), or
            4 x 4 matrices in place of the 7 numbers; it may require a gradient. The origin if None.
        poses: see `sphere_cost`; those for each waypoint move obstacles as in `swept_sphere_cost`.

    Returns:
        (batch, horizon) float32, the sum over the spheres.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range, or unknown names
            in `ignore`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, joint_path_cost
        >>> from warp_collision.examples import load_panda
        >>> world = MeshWorld()
        >>> world.add("plate", trimesh.creation.box((0.5, 0.001, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0))
        0
        >>> path = torch.tensor([[[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [0.9, 0, 0, -1.6, 0, 1.6, 0.8]]])
        >>> path.requires_grad_()
        tensor([[[-0.9000,  0.0000,  0.0000, -1.6000,  0.0000,  1.6000,  0.8000],
                 [ 0.9000,  0.0000,  0.0000, -1.6000,  0.0000,  1.6000,  0.8000]]],
               requires_grad=True)
        >>> cost = joint_path_cost(path, load_panda(), world)
        >>> cost.sum().backward()
        >>> (cost > 0.0).tolist(), path.grad.isfinite().all().item()
        ([[True, True]], True)
    """
    options = PathCost(
        weight,
        activation_distance,
        tolerance,
        substeps,
        self_weight,
        self_activation_distance,
        pairs,
        ignore,
        max_deviation,
    )
    return options.of_waypoints(joints, robot, world, env_index, base_pose, poses)


class PathCost(NamedTuple):
    """Options of `joint_path_cost`; without a sweep it is the `sphere_cost` at the waypoints."""

    weight: Scalar = 1.0
    activation_distance: Scalar = 0.02
    tolerance: Scalar | None = None
    substeps: int | None = None
    self_weight: Scalar = 0.0
    self_activation_distance: Scalar = 0.01
    pairs: SelfCollisionPairs | None = None
    ignore: Contacts = ()
    max_deviation: float = 1e-3
    swept: bool = True

    def of_waypoints(
        self,
        joints: Tensor | JointCurve,
        robot: RobotSpheres,
        world: MeshWorld,
        env_index: Tensor | None,
        base_pose: PoseLike | None,
        poses: Tensor | None,
    ) -> Tensor:
        """The cost of each waypoint, (batch, horizon).

        With one chord for each segment, in eager code, it is one node of autograd.
        """
        scene = robot, world, env_index, base_pose, poses
        if isinstance(joints, Tensor) and self._is_direct(joints, *scene):
            return DirectPathCost.apply(joints, self, robot, world, env_index)
        return self.of_spheres(joints, *scene).sum(-1)

    def _is_direct(
        self,
        joints: Tensor,
        robot: RobotSpheres,
        world: MeshWorld,
        env_index: Tensor | None,
        base_pose: PoseLike | None,
        poses: Tensor | None,
    ) -> bool:
        """Whether all but the joints is constant, and arguments are of the usual kind."""
        numbers = self.weight, self.self_weight
        return (
            type(self.substeps) is int
            and self.substeps == 1
            and self.swept
            and base_pose is None
            and poses is None
            and is_plain(joints, env_index)
            and isinstance(world, MeshWorld)
            and isinstance(robot, RobotSpheres)
            and joints.dtype == torch.float32
            and joints.ndim == 3
            and joints.device == world.device
            and joints.is_contiguous()
            and joints.numel() > 0
            and not validate.is_checking()
            and not world._slots.tracks_poses
            and not any(isinstance(n, Tensor) and n.requires_grad for n in numbers)
        )

    def of_spheres(
        self,
        joints: Tensor | JointCurve,
        robot: RobotSpheres,
        world: MeshWorld,
        env_index: Tensor | None,
        base_pose: PoseLike | None,
        poses: Tensor | None,
    ) -> Tensor:
        """The cost of each sphere, (batch, horizon, n_spheres)."""
        require_robot_and_world(robot, world)
        device, eta, degree = world.device, self.activation_distance, 1
        if isinstance(joints, JointCurve):
            joints, degree = control_points(joints, robot, device)
        if self.swept:
            fine = _cut(joints, robot, self.max_deviation, self.substeps, degree)
            options = swept_options(device, 1.0, eta, self.tolerance)
        else:
            fine = Interpolated(waypoints_of(joints, degree), 1)
            options = resting_options(device, 1.0, eta)
        spheres = world_spheres(fine.joints, robot, world, base_pose, env_index)
        waypoints = segments_of(joints, degree)[1] + 1
        scene = scene_with_contacts(self.ignore, robot, world, poses, waypoints, fine.parts)
        cost = options.cost(spheres, scene, env_index)
        total = _weighted("weight", self.weight, _largest(cost, fine.parts))
        if isinstance(self.self_weight, Tensor) or self.self_weight != 0.0:
            pairs = robot.default_pairs if self.pairs is None else self.pairs
            eta = self.self_activation_distance
            cost = self_collision_cost(spheres, pairs, activation_distance=eta)
            total = total + _weighted("self_weight", self.self_weight, _largest(cost, fine.parts))
        return total


class DirectPathCost(torch.autograd.Function):
    """The cost (batch, horizon) of straight paths by launches alone, and its gradient."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        joints: Tensor,
        options: PathCost,
        robot: RobotSpheres,
        world: MeshWorld,
        env_index: Tensor | None,
    ) -> Tensor:
        robot.check_joints(joints)
        device, layout, rows = joints.device, robot.layout, joints.shape[:2]
        tables = layout.kinematics.tables(device)
        flat = joints.view(-1, joints.shape[2])
        placed, frames = FORWARD_KINEMATICS.run(flat, *tables, None)
        placed += (0.0 * flat).sum(-1)[:, None, None]  # NaN as in `world_spheres`
        spheres = layout.in_env(placed.view(*rows, *placed.shape[1:]), env_index)
        scene = scene_with_contacts(options.ignore, robot, world)
        query, parameters, weight = swept_options(
            device, options.weight, options.activation_distance, options.tolerance
        )
        if env_index is not None:
            env_index = validate.env_operand(env_index, len(joints), scene.n_envs, device)
        has_gradient, operands = ctx.needs_input_grad[0], (weight, *parameters)
        cost, *by_spheres = query.run(spheres, scene, env_index, operands, has_gradient)
        total = cost.sum(-1)
        by_pairs = []
        if isinstance(options.self_weight, Tensor) or options.self_weight != 0.0:
            pairs = robot.default_pairs if options.pairs is None else options.pairs
            eta = options.self_activation_distance
            eta = validate.scalar_operand("activation_distance", eta, device)
            factor = weight_operand("self_weight", options.self_weight, device)
            drawn_in = spheres_operand(spheres, pairs).flatten(0, 1)
            itself = drawn_in, *pairs.tables(device), factor, eta
            cost, *by_pairs = (run_self_collision if has_gradient else SELF_COLLISION.run)(*itself)
            total += cost.sum(-1).view(rows)
        ctx.found = by_spheres, by_pairs, frames, tables
        ctx.save_for_backward(joints)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: D102
        (joints,) = ctx.saved_tensors
        (gradient, neighbours), by_pairs, frames, tables = ctx.found
        none = None, None, None, None
        by_pairs = [part.view_as(gradient) for part in by_pairs]
        if is_launched(upstream):
            frames = frames.view(*joints.shape[:2], *frames.shape[1:])
            parts = gradient, neighbours, *(by_pairs or [None])
            return run_path_cost_vjp(upstream, joints, *parts, frames, *tables), *none
        of_pairs = [part * upstream[:, :, None, None] for part in by_pairs]
        by_spheres = swept_vjp(upstream.unsqueeze(-1), gradient, neighbours)
        by_spheres = sum(of_pairs, by_spheres).reshape(-1, *gradient.shape[2:])
        saved = joints.view(-1, joints.shape[2]), frames, *tables, None
        by_joints = JacobianProduct.apply(FORWARD_KINEMATICS.name, False, by_spheres, *saved)
        return by_joints.view_as(joints), *none


def waypoint_clearance(
    joints: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    ignore: Contacts = (),
    env_index: Tensor | None = None,
    base_pose: PoseLike | None = None,
    poses: Tensor | None = None,
) -> Clearance:
    """`clearance` of a robot's spheres at waypoints (batch, horizon, n_joints)."""
    spheres = world_spheres(joints, robot, world, base_pose, env_index)
    scene = scene_with_contacts(ignore, robot, world, poses, joints.shape[1])
    return clearance_to(scene, spheres, env_index)


def world_spheres(
    joints: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    base_pose: PoseLike | None,
    env_index: Tensor | None,
) -> Tensor:
    """Spheres (batch, horizon, n_spheres, 4) float32 of a robot with a constant base pose."""
    _check_paths(joints, robot)
    if isinstance(base_pose, Tensor):
        base_pose = checked_base(base_pose, joints, 1)
    shape = "(batch, horizon, n_spheres, 4)"
    spheres = robot.spheres(joints, base_pose, env_index)
    # NaN also for joints that move no spheres: such a configuration is not valid.
    validity = (0.0 * joints.detach()).sum(-1)
    spheres = spheres + validity[..., None, None].to(spheres.dtype)
    return validate.float_operand("spheres", spheres, 4, shape, world.device, ndim=4)


def _cut(
    joints: Tensor, robot: RobotSpheres, max_deviation: float, substeps: int | None, degree: int
) -> Interpolated:
    """Cuts paths into an odd number of parts, so that middles of segments are inside of one."""
    _check_paths(joints, robot)
    if substeps is None:
        if has_unknown_values(joints):
            raise ValueError(
                "substeps must be given where vmap batches joints, got None: the number of parts "
                "depends on their values"
            )
        if degree == 1:
            return robot.interpolate(joints, max_deviation, odd=True)
        validate.require_number("max_deviation", max_deviation, positive=True)
        parts = parts_for(joints, robot.layout.tables(joints.device), max_deviation, degree)
        return cut(joints, parts + 1 - parts % 2, degree)
    validate.require_count("substeps", substeps)
    if substeps % 2 == 0:
        raise ValueError(f"substeps must be odd, got {substeps}")
    return cut(joints, substeps, degree)


def _check_paths(joints: Tensor, robot: RobotSpheres) -> None:
    robot.check_joints(joints)
    if joints.ndim != 3:
        raise ValueError(
            f"joints must have shape (batch, horizon, n_joints), got {validate.shape_of(joints)}"
        )


def _weighted(name: str, weight: Scalar, cost: Tensor) -> Tensor:
    if type(weight) is float and weight == 1.0:
        return cost
    return weight_operand(name, weight, cost.device) * cost


def _largest(cost: Tensor, parts: int) -> Tensor:
    """The largest cost of the parts that each waypoint owns, for each sphere.

    With an odd number of parts each waypoint owns that number of their ends, whose half parts
    together are the half segments of the waypoint.
    """
    if parts == 1:
        return cost
    half = (parts - 1) // 2
    return pad(cost, (0, 0, half, half)).unflatten(1, (-1, parts)).amax(2)
