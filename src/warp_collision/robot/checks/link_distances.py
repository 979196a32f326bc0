"""Signed distances of links with their derivatives by joints: what a QP or a barrier takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels.lanes.configurations import CONFIGURATIONS
from warp_collision.kernels.lanes.near_links import link_distances_in_lanes, scratch_of_links
from warp_collision.kernels.nearest_of_links import HEAD
from warp_collision.kernels.nearest_of_links import link_distances as one_by_one
from warp_collision.launching.launch import launch
from warp_collision.poses import PoseLike
from warp_collision.queries import dispatch
from warp_collision.queries.functions import FUNCTIONS
from warp_collision.queries.second_derivatives import FirstOrderOnly
from warp_collision.robot.checks.joint_path import checked_rows, path_operands, roots_of
from warp_collision.robot.checks.path_operands import PathOperands, require_robot_and_world
from warp_collision.robot.checks.path_operators import RobotCheck
from warp_collision.robot.model.allowed_pairs import Contacts
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.link_rows import Links, link_rows
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.robot.model.sphere_layout import FRAME_POSE
from warp_collision.summaries import summary
from warp_collision.world import MeshWorld


class LinkDistances(NamedTuple):
    """Result of `link_distances`, of rows for links and pairs of links.

    Attributes:
        distance: (..., n_rows) [m], of the spheres of a link, or group, from the nearest obstacle
            or from each other; negative where they overlap, inf where there is nothing. It is
            differentiable by the joint values.
        gradient: (..., n_rows, n_joints), derivative of the distance by the joint values [m/rad,
            prismatic: 1]. Where two are nearest, that of one of them.
        radius: (..., n_rows), what a change of the joint values may use up: for every change dq
            with ``(weights * dq.abs()).sum(-1) < radius`` the distance stays positive all the way,
            proven. 0 where it is not positive beyond rounding.
        weights: (..., n_rows, n_joints), how far the spheres move at most by each radian, or metre,
            of a joint in such a change [m/rad, prismatic: 1].
        point: (..., n_rows, 3), the point of the link that is nearest [m].
        other_point: (..., n_rows, 3), that of the obstacle, or of the other link.
        normal: (..., n_rows, 3), unit vector from the other point to the link where they are apart.
            An obstacle that moves there at a velocity v changes the distance at the rate
            ``-(normal * v).sum(-1)``.
        obstacle: (..., n_rows) int32, the nearest obstacle, an index of `MeshWorld.names`; -1 for
            none, and for pairs of links.
        rows: for each row the name of its link or group, or the names of both of a pair.
    """

    distance: Tensor
    gradient: Tensor
    radius: Tensor
    weights: Tensor
    point: Tensor
    other_point: Tensor
    normal: Tensor
    obstacle: Tensor
    rows: tuple[tuple[str, ...], ...]

    __repr__ = summary


def link_distances(
    joints: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    links: Links = None,
    self_collision: bool | SelfCollisionPairs = False,
    ignore: Contacts = (),
    env_index: Tensor | None = None,
    base_pose: PoseLike | None = None,
    poses: Tensor | None = None,
) -> LinkDistances:
    """Signed distance of each link, with its derivative by the joints and a proven radius.

    All are computed at once, in one launch: the rows of a quadratic program or of a control
    barrier. Distances are those of spheres. Between links that are fitted they may be negative
    where checks, which look at convex pieces too, find no contact.

    Args:
        joints: (..., n_joints) [rad, prismatic: m], on the device of the world.
        robot: the robot.
        world: the obstacles.
        links: names of links, or attached objects, that have a row each. Or a mapping of names of
            groups to links; a link is in at most one group. By default all with spheres.
        self_collision: whether there are rows for pairs of these links or groups too, by the pairs
            of `RobotSpheres.self_collision_pairs`; or the pairs.
        ignore: see `configuration_in_collision`.
        env_index: (batch,) int32 for joints (batch, ..., n_joints), the env of each row; env 0 for
            all if None.
        base_pose: see `configuration_in_collision`.
        poses: poses of the obstacles in place of the world's, the same for all joints, see
            `sphere_cost`.

    Returns:
        See `LinkDistances`; NaN, with a radius of 0, where joints or poses are not finite.

    Raises:
        TypeError, ValueError: an argument of another type, shape or device, or unknown names.

    Example:
        >>> import torch
        >>> from warp_collision import Cuboid, MeshWorld, link_distances
        >>> from warp_collision.examples import load_panda
        >>> world = MeshWorld()
        >>> world.add("shelf", Cuboid((0.4, 0.4, 0.02)), pose=(0.5, 0, 0.3, 1, 0, 0, 0))
        0
        >>> joints = torch.tensor([[0.0, -0.5, 0, -2.2, 0, 1.6, 0.8]])
        >>> found = link_distances(joints, load_panda(), world, links=["panda_hand"])
        >>> found.rows, [world.names()[i] for i in found.obstacle[0]]
        ((('panda_hand',),), ['shelf'])
        >>> found.gradient.shape, (found.radius <= found.distance).all().item()
        (torch.Size([1, 1, 7]), True)
    """
    require_robot_and_world(robot, world)
    robot.check_joints(joints)
    shape = joints.shape[:-1]
    batch = shape[0] if shape else 1
    flat = joints.reshape(batch, shape[1:].numel(), robot.n_joints)
    flat, env_index = checked_rows(flat, world, env_index)
    base = roots_of(base_pose, joints, flat)
    pairs = robot.default_pairs if self_collision is True else self_collision
    operands = path_operands(flat, robot, world, pairs, ignore, env_index, base, poses)
    kept = link_rows(robot.layout, links, pairs if pairs is not False else None, world.device)
    values, obstacle = LINK_DISTANCES.evaluate(operands, kept.rows, kept.members)
    values, obstacle = (
        values.reshape(*shape, *values.shape[2:]),
        obstacle.reshape(*shape, *obstacle.shape[2:]),
    )
    n = robot.n_joints
    parts = torch.split_with_sizes(values, (1, 1, 3, 3, 3, n, n), -1)  # quicker than `split`
    distance, radius, point, other, normal, gradient, weights = parts
    distance = with_gradient(distance.squeeze(-1), gradient, joints)
    radius = radius.squeeze(-1)
    return LinkDistances(
        distance, gradient, radius, weights, point, other, normal, obstacle, kept.names
    )


# -- the operator ---------------------------------------------------------------------------------


def _run(operands: PathOperands, rows: Tensor, members: Tensor) -> tuple[Tensor, ...]:
    joints, scene, env_index, base, robot, pairs, _ = operands
    n = joints.shape[0], joints.shape[1]
    n_frames = robot.frames.shape[0]
    outputs = _allocate(joints, 1, rows, members)
    if joints.device == CPU:
        kernel, dim = link_distances_in_lanes, (1, -(-n[0] * n[1] // CONFIGURATIONS))
        size = dim[1], scratch_of_links(n_frames, rows.shape[0])
        scratch = (joints.new_empty(size, dtype=torch.uint8),)
    else:
        kernel, dim = one_by_one, n
        scratch = joints.new_empty((*n, n_frames, FRAME_POSE)), joints.new_empty((*n, n_frames))
    launch(
        kernel,
        dim,
        joints,
        env_index,
        scene.completed(kernel, n[0] * n[1] * robot.n_bodies),
        robot,
        base,
        *pairs,
        rows,
        members,
        *scratch,
        *outputs,
        device=joints.device,
        items=64 * n[0] * n[1],
    )
    return outputs


def _allocate(joints: Tensor, _: int, rows: Tensor, members: Tensor) -> tuple[Tensor, ...]:
    shape = *joints.shape[:2], rows.shape[0]
    values = joints.new_empty((*shape, HEAD + 2 * joints.shape[2]))
    return values, joints.new_empty(shape, dtype=torch.int32)


LINK_DISTANCES = RobotCheck(
    "link_distances", _run, _allocate, ("Tensor rows", "Tensor members"), n_outputs=2
)


# -- the derivative -------------------------------------------------------------------------------


class _WithGradient(torch.autograd.Function):
    """Distances of rows as a function of joint values; takes whether a graph is being traced."""

    generate_vmap_rule = True

    @staticmethod
    def forward(traced: bool, distance: Tensor, gradient: Tensor, joints: Tensor) -> Tensor:
        return distance.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, _, gradient, joints = inputs
        ctx.save_for_backward(gradient, joints)
        ctx.save_for_forward(gradient, joints)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
        gradient, joints = ctx.saved_tensors
        gradient = FirstOrderOnly.apply(gradient, joints)
        by_joints = (upstream.unsqueeze(-1) * gradient).sum(-2)
        return None, None, None, by_joints.to(joints.dtype)

    @staticmethod
    def jvp(ctx: Any, traced: None, distance: None, gradient: None, tangent: Tensor) -> Tensor:
        values, joints = ctx.saved_tensors
        values = FirstOrderOnly.apply(values, joints)
        return (values * tangent.to(values.dtype).unsqueeze(-2)).sum(-1)


FUNCTIONS["with_gradient"] = _WithGradient.apply


def with_gradient(distance: Tensor, gradient: Tensor, joints: Tensor) -> Tensor:
    """The distances, differentiable by joint values to first order."""
    if dispatch.is_plain(joints) and not (joints.requires_grad and torch.is_grad_enabled()):
        return distance
    return dispatch.apply("with_gradient", distance, gradient, joints)
