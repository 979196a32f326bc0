"""Collision checks of a robot: at joint values, and certified along joint paths."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.poses import PoseLike
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.checks.path_operands import (
    PathOperands,
    control_points,
    require_robot_and_world,
)
from warp_collision.robot.checks.path_operators import (
    CLEARANCE_OF_SHAPES,
    CONFIGURATION_IN_COLLISION,
    JOINT_PATH_CLEARANCE,
    JOINT_PATH_IN_COLLISION,
    SHAPES_IN_COLLISION,
    SHAPES_IN_COLLISION_ON_PATH,
)
from warp_collision.robot.model.allowed_pairs import Contacts
from warp_collision.robot.model.base_pose import root_frames
from warp_collision.robot.model.interpolation import segments_of, waypoints_of
from warp_collision.robot.model.joint_curve import JointCurve
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.robot.model.sphere_layout import RobotTables
from warp_collision.summaries import summary
from warp_collision.world import MeshWorld


def configuration_in_collision(
    joints: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    shapes: Literal["spheres", "exact"] = "spheres",
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Contacts = (),
    env_index: Tensor | None = None,
    base_pose: PoseLike | None = None,
    world_clearance: float = 0.0,
) -> Tensor:
    """Whether a robot at joint values touches an obstacle or itself.

    Args:
        joints: (..., n_joints) [rad, prismatic: m], on the device of the world.
        robot: the robot.
        world: the obstacles.
        shapes: what of a link touches an obstacle. "spheres": its spheres. "exact": where spheres
            touch an obstacle, the convex pieces of the link decide, as they do between links. A
            gripper may then be a millimetre above a table. Open meshes with an inside and grids of
            distances are left to the spheres.
        self_collision: whether self-collisions count, by the pairs of
            `RobotSpheres.self_collision_pairs`; or the pairs to check. Links to which spheres were
            fitted touch where their convex pieces do too.
        ignore: allowed contacts: pairs of names of a link, or attached object, and an obstacle,
            in every env that has it.
        env_index: (batch,) int32 for joints (batch, ..., n_joints), the env of each row; env 0 for
            all if None.
        base_pose: pose of the root link in the world, see `RobotSpheres.spheres`: (7,) for all, or
            one for each index of the first axes of the joints; or 4 x 4 matrices. The origin if
            None.
        world_clearance: [m], what is nearer to an obstacle touches it. Links touch as without.

    Returns:
        (...,) bool. True also where joints or poses are not finite.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range, unknown names
            in `ignore`, or exact shapes of a robot that has none.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, configuration_in_collision
        >>> from warp_collision.examples import load_panda
        >>> world = MeshWorld()
        >>> world.add("shelf", trimesh.creation.box((0.4, 0.4, 0.02)), (0.5, 0, 0.3, 1, 0, 0, 0))
        0
        >>> joints = torch.tensor([[0.0, -0.5, 0, -2.2, 0, 1.6, 0.8], [0, 0.4, 0, -1.6, 0, 2, 0.8]])
        >>> configuration_in_collision(joints, load_panda(), world).tolist()
        [False, True]
    """
    require_robot_and_world(robot, world)
    is_exact = robot.layout.is_exact(shapes)
    check = SHAPES_IN_COLLISION if is_exact else CONFIGURATION_IN_COLLISION
    robot.check_joints(joints)
    shape, flat = joints.shape[:-1], joints
    if joints.ndim != 3:
        batch = shape[0] if shape else 1
        flat = joints.reshape(batch, shape[1:].numel(), robot.n_joints)
    flat, env_index = checked_rows(flat, world, env_index)
    base = roots_of(base_pose, joints, flat)
    operands = path_operands(
        *(flat, robot, world, self_collision, ignore, env_index, base),
        world_clearance=world_clearance,
    )
    hit = check.evaluate(operands)
    return hit if joints.ndim == 3 else hit.reshape(shape)


def joint_path_in_collision(
    joints: Tensor | JointCurve,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    tolerance: float | Tensor = 1e-3,
    shapes: Literal["spheres", "exact"] = "spheres",
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Contacts = (),
    env_index: Tensor | None = None,
    base_pose: PoseLike | None = None,
    poses: Tensor | None = None,
    world_clearance: float = 0.0,
) -> Tensor:
    """Whether a robot collides between waypoints, on the arcs of its spheres.

    Joint values are interpolated linearly between waypoints; spheres then move on arcs, not on the
    chords that `swept_sphere_cost` checks. Each segment is bisected until bounds of the spheres'
    first and second derivatives prove it free, or a configuration on it has a clearance below the
    tolerance.

    Args:
        joints: (batch, horizon, n_joints) [rad, prismatic: m], on the device of the world.
            Values of continuous joints do not wrap. Or a `JointCurve` with as many joints: its
            pieces, which need not be straight, are the segments.
        robot: the robot.
        world: the obstacles.
        tolerance: [m], a clearance below it may count as a collision. At a tolerance below some
            hundredths of a millimetre the rounding of float32 may prevent a proof.
        shapes: see `configuration_in_collision`; with "exact" the proof is one of the shapes.
        self_collision: see `configuration_in_collision`; the proof holds for the pairs checked.
        ignore: see `configuration_in_collision`; the proof does not include these pairs.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        base_pose: pose of the root link in the world, constant along a path: (7,), (batch, 7), or
            4 x 4 matrices in place of the 7 numbers. The origin if None.
        poses: see `sphere_cost`; those for each waypoint, of a curve for each end of a piece, move
            obstacles as in `swept_sphere_cost`.
        world_clearance: [m], how far the robot has to stay away from obstacles: what is nearer to
            one collides with it. Links collide with each other as without.

    Returns:
        (batch, horizon - 1) bool for each segment. False is a proof that the whole segment is free,
        and keeps `world_clearance` everywhere.
        True is a collision, or a clearance below the tolerance. It is also True for values that are
        not finite, an env that does not exist, and a segment that 65,536 evaluations could not
        decide.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range, fewer than two
            waypoints, unknown names in `ignore`, or exact shapes of a robot that has none.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, joint_path_in_collision
        >>> from warp_collision.examples import load_panda
        >>> world = MeshWorld()
        >>> world.add("plate", trimesh.creation.box((0.5, 0.001, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0))
        0
        >>> path = torch.tensor([[[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [0.9, 0, 0, -1.6, 0, 1.6, 0.8]]])
        >>> joint_path_in_collision(path, load_panda(), world).tolist()
        [[True]]
    """
    joints, env_index, degree = _checked_paths(joints, robot, world, env_index)
    base = None if base_pose is None else root_frames(base_pose, joints, 1)
    operands = path_operands(
        *(joints, robot, world, self_collision, ignore, env_index, base, poses, degree),
        world_clearance,
    )
    limit = validate.scalar_operand("tolerance", tolerance, world.device, positive=True)
    is_exact = robot.layout.is_exact(shapes)
    check = SHAPES_IN_COLLISION_ON_PATH if is_exact else JOINT_PATH_IN_COLLISION
    return check.evaluate(operands, limit)


class JointPathClearance(NamedTuple):
    """Result of `joint_path_clearance`; all (batch, horizon - 1).

    Attributes:
        lower: [m], lower bound of the clearance on the segment, to obstacles and of the robot with
            itself: the smaller one of `world_lower` and `self_lower`. NaN if joints or poses are
            not finite, +inf without obstacles and pairs.
        upper: [m], clearance at `position`, at most the tolerance above `lower`.
        position: on the segment, from 0 to 1.
        world_lower: [m], lower bound of the clearance to obstacles, +inf without any.
        world_upper: [m], clearance to obstacles at `world_position`.
        world_position: on the segment, from 0 to 1.
        sphere: int32, the sphere with the smallest clearance to obstacles there, -1 for none.
        obstacle: int32, the obstacle nearest to it, -1 for none.
        self_lower: [m], the same between links of the robot, by the pairs checked, without spheres
            whose clearance is constant; +inf if there are none. Of two links it is the distance of
            their convex pieces where these are farther apart than their spheres.
        self_upper: [m].
        self_position: on the segment, from 0 to 1.
        self_sphere: int32, one of the two spheres, -1 for none.
        self_other: int32, the other one.
    """

    lower: Tensor
    upper: Tensor
    position: Tensor
    world_lower: Tensor
    world_upper: Tensor
    world_position: Tensor
    sphere: Tensor
    obstacle: Tensor
    self_lower: Tensor
    self_upper: Tensor
    self_position: Tensor
    self_sphere: Tensor
    self_other: Tensor

    __repr__ = summary


def joint_path_clearance(
    joints: Tensor | JointCurve,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    tolerance: float | Tensor = 1e-3,
    shapes: Literal["spheres", "exact"] = "spheres",
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Contacts = (),
    env_index: Tensor | None = None,
    base_pose: PoseLike | None = None,
    poses: Tensor | None = None,
) -> JointPathClearance:
    """Smallest clearance of a robot between waypoints, on the arcs of its spheres, as an interval.

    Branch and bound with the bounds of `joint_path_in_collision`. On open meshes the lower bound is
    certified for the distance to the surface. Spheres of the robot whose clearance from each other
    is the same at all joint values and above the tolerance (`SelfCollisionPairs.constant`) take no
    part: no path could change it.

    Args:
        joints: (batch, horizon, n_joints); see `joint_path_in_collision`.
        robot: the robot.
        world: the obstacles.
        tolerance: [m], width of the intervals; that of a tensor counts as 0 for constant
            clearances, as it is not read. They are wider where float32 rounds by more: by about
            7e-6 of the distance from the world's origin, and 1.2e-5 between spheres of the robot.
            Within 2 m that is at most 0.03 mm. From 32,768 evaluations of a segment on, the
            tolerance doubles with each 2,048.
        shapes: see `configuration_in_collision`. With "exact" the clearance of a link from an
            obstacle is the distance of its convex pieces where these are farther than its spheres.
        self_collision: see `configuration_in_collision`.
        ignore: see `configuration_in_collision`.
        env_index: (batch,) int32, the env of each batch row; env 0 for all if None.
        base_pose: pose of the root link in the world, constant along a path: (7,), (batch, 7), or
            4 x 4 matrices in place of the 7 numbers. The origin if None.
        poses: see `sphere_cost`; those for each waypoint, of a curve for each end of a piece, move
            obstacles as in `swept_sphere_cost`.

    Returns:
        Intervals, and the position of the smallest clearance; see `JointPathClearance`.

    Raises:
        TypeError, ValueError: see `joint_path_in_collision`.

    Example:
        >>> import torch, trimesh
        >>> from warp_collision import MeshWorld, joint_path_clearance
        >>> from warp_collision.examples import load_panda
        >>> world = MeshWorld()
        >>> world.add("plate", trimesh.creation.box((0.5, 0.001, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0))
        0
        >>> panda = load_panda()
        >>> path = torch.tensor([[[-0.9, 0, 0, -1.6, 0, 2, 0.8], [-0.5, 0, 0, -1.6, 0, 2, 0.8]]])
        >>> found = joint_path_clearance(path, panda, world)
        >>> round(found.upper.item(), 2), 0.0 <= (found.upper - found.lower).item() <= 1e-3
        (0.03, True)
        >>> panda.sphere_links[found.sphere.item()], found.world_position.item()
        ('panda_link5', 1.0)
    """
    require_robot_and_world(robot, world)
    is_exact = robot.layout.is_exact(shapes)
    width = validate.scalar_operand("tolerance", tolerance, world.device, positive=True)
    pairs = robot.default_pairs if self_collision is True else self_collision
    if isinstance(pairs, SelfCollisionPairs):
        pairs = pairs.changing(0.0 if isinstance(tolerance, Tensor) else tolerance)
    joints, env_index, degree = _checked_paths(joints, robot, world, env_index)
    base = root_frames(base_pose, joints, 1)
    operands = path_operands(joints, robot, world, pairs, ignore, env_index, base, poses, degree)
    check = CLEARANCE_OF_SHAPES if is_exact else JOINT_PATH_CLEARANCE
    bounds, nearest = check.evaluate(operands, width)
    of_both = zip(bounds.unbind(-2), nearest.unbind(-2), strict=True)
    world_columns, own_columns = (
        tuple(column for part in parts for column in part.unbind(-1)) for parts in of_both
    )
    lower, upper = torch.minimum(bounds[..., 0, :2], bounds[..., 1, :2]).unbind(-1)
    is_own = own_columns[1] < world_columns[1]
    position = torch.where(is_own, own_columns[2], world_columns[2])
    return JointPathClearance(lower, upper, position, *world_columns, *own_columns)


def _checked_paths(
    joints: Tensor | JointCurve, robot: RobotSpheres, world: MeshWorld, env_index: Tensor | None
) -> tuple[Tensor, Tensor | None, int]:
    """Waypoints or control points, the env index, and the degree of the segments."""
    require_robot_and_world(robot, world)
    degree = 1
    if isinstance(joints, JointCurve):
        joints, degree = control_points(joints, robot, world.device)
    robot.check_joints(joints if degree == 1 else waypoints_of(joints, degree))
    joints, env_index = checked_rows(joints, world, env_index)
    if joints.shape[1] < 2:
        require_motion(joints)
    return joints, env_index, degree


def roots_of(base_pose: PoseLike | None, joints: Tensor, flat: Tensor) -> Tensor | None:
    """Root frames for joints (batch, n, n_joints), from poses for the first axes of joints."""
    roots = root_frames(base_pose, joints)
    if roots is None or roots.shape[1] == 1:
        return roots
    roots = roots.reshape(*roots.shape[:-1], *(1,) * (joints.ndim - roots.ndim), roots.shape[-1])
    return roots.expand(*joints.shape[:-1], -1).reshape(*flat.shape[:2], roots.shape[-1])


def path_operands(
    joints: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    self_collision: bool | SelfCollisionPairs,
    ignore: Contacts,
    env_index: Tensor | None,
    base: Tensor | None,
    poses: Tensor | None = None,
    degree: int = 1,
    world_clearance: float = 0.0,
) -> PathOperands:
    """The operands of a check of joints that are valid, with frames of the root link."""
    tables, pairs = robot_tables(robot, self_collision, world.device, world_clearance)
    horizon = None if poses is None else segments_of(joints, degree)[1] + 1
    scene = scene_with_contacts(ignore, robot, world, poses, horizon)
    return PathOperands(joints, scene, env_index, base, tables, pairs, degree)


def robot_tables(
    robot: RobotSpheres,
    self_collision: bool | SelfCollisionPairs,
    device: torch.device,
    world_clearance: float = 0.0,
) -> tuple[RobotTables, tuple[Tensor | None, Tensor | None]]:
    """Tables of a robot, and of the pairs that `self_collision` names; None, None for none.

    A robot that keeps a clearance [m] from obstacles is wider by it, but not to itself.
    """
    layout = robot.layout
    if world_clearance != 0.0:
        validate.require_number("world_clearance", world_clearance)
        layout = layout.widened(float(world_clearance))
    tables = layout.tables(device)
    if self_collision is False:
        return tables, (None, None)
    pairs = robot.default_pairs if self_collision is True else self_collision
    return tables, layout.pair_tables(pairs, device)


def checked_rows(
    joints: Tensor, world: MeshWorld, env_index: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Joints (batch, horizon, n_joints) float32 without a gradient, and the env index."""
    shape = "(batch, horizon, n_joints)"
    joints = validate.float_operand(
        "joints", joints.detach(), joints.shape[-1], shape, world.device, ndim=3
    )
    if env_index is not None:
        env_index = validate.env_operand(env_index, joints.shape[0], world.n_envs, world.device)
    return joints, env_index


def require_motion(joints: Tensor) -> None:
    """Requires two waypoints: no answer at all would read like a free path."""
    if joints.shape[1] < 2:
        raise ValueError(
            "joints must have at least 2 waypoints (batch, horizon, n_joints), got "
            f"{validate.shape_of(joints)}; configuration_in_collision checks single ones"
        )
