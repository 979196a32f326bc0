"""Convex pieces of a robot's links over obstacles that have a formula: what spheres refuse.

Spheres stick out of a link, its pieces hardly do. A piece is proven apart from an obstacle by a
direction, as two pieces are.
"""

import warp as wp

from warp_collision.kernels.body_check import (
    CLEAR,
    HIT,
    UNDECIDED,
    BodyCheck,
    Interval,
    RestingBody,
    body_in_motion,
    check_obstacle,
    reach_of,
    touches_body,
    travel,
)
from warp_collision.kernels.compiling import compiled_once
from warp_collision.kernels.convex_pieces import (
    Piece,
    Separation,
    make_separation,
    piece_at,
    support,
)
from warp_collision.kernels.kinematics import FramePose, point_in_world, xyz
from warp_collision.kernels.mesh_record import FAR, ExactShape, Shape, is_exact, load_exact
from warp_collision.kernels.precision import is_finite3, uncertainty
from warp_collision.kernels.robot_motion import Robot, RobotBody, Segment, velocity_of
from warp_collision.kernels.robot_pairs import PIECE_ROUNDING
from warp_collision.kernels.scene import Obstacle, Scene, is_hit, make_walk
from warp_collision.kernels.shape_distance import POINT, shape_distance, with_signs_of
from warp_collision.kernels.transforms import to_world


@wp.func
def support_of_core(_pieces: wp.uint64, exact: ExactShape, direction: wp.vec3) -> wp.vec3:
    """The point of a shape without its radius that is farthest along a direction, in its frame.

    A sphere is a point with a radius, a capsule a segment; half spaces have none.
    """
    size = exact.size
    if exact.kind == Shape.CUBOID:
        return with_signs_of(size, direction)
    top = wp.where(direction[2] < 0.0, -size[2], size[2])
    across = wp.vec3(0.0)
    if exact.kind == Shape.CYLINDER:
        flat = wp.vec3(direction[0], direction[1], 0.0)
        length = wp.length(flat)
        if length > POINT:
            across = (size[0] / length) * flat
    return wp.vec3(across[0], across[1], top)


separate_from_shape = make_separation(ExactShape, "shape", support_of_core)


@wp.func
def shape_from_mesh(exact: ExactShape) -> FramePose:
    """The frame of a mesh in that of its shape."""
    rotation = wp.identity(3, dtype=float)
    if exact.is_rotated:
        rotation = wp.quat_to_matrix(exact.rotation)
    return FramePose(rotation, -(rotation * exact.center))


@wp.func
def pose_after(outer: FramePose, inner: FramePose) -> FramePose:
    """The pose of one frame after another."""
    return FramePose(outer.rotation * inner.rotation, point_in_world(outer, inner.origin))


@compiled_once
def separation_from_shape(
    pieces: wp.uint64, piece: Piece, exact: ExactShape, mesh_from_piece: FramePose, needed: float
) -> Separation:
    """Bounds of the distance of a piece from a shape, the lower one improved up to what is needed.

    The normal is in the frame of the mesh.
    """
    pose = pose_after(shape_from_mesh(exact), mesh_from_piece)
    if exact.kind == Shape.HALF_SPACE:
        lowest = support(pieces, piece, wp.transpose(pose.rotation) * (-exact.size))
        height = wp.dot(exact.size, point_in_world(pose, lowest)) - piece.radius
        return Separation(exact.size, height, height)
    radii = float(piece.radius)
    if exact.kind == Shape.SPHERE or exact.kind == Shape.CAPSULE:
        radii += exact.size[0]
    # From where the shape is nearest to the middle of the piece; that is found in its mesh's frame.
    outward = shape_distance(exact, point_in_world(mesh_from_piece, xyz(piece.ball))).gradient
    if exact.is_rotated:
        outward = wp.quat_rotate(exact.rotation, outward)
    found = separate_from_shape(pieces, piece, exact, pose, outward, radii, needed, -radii)
    if exact.is_rotated:
        found.normal = wp.quat_rotate_inv(exact.rotation, found.normal)
    return found


@wp.func
def mesh_from_frame(obstacle: Obstacle, frame_pose: FramePose) -> FramePose:
    """A frame of a robot in that of an obstacle."""
    pose = obstacle.mesh_from_world
    rotation = wp.quat_to_matrix(wp.transform_get_rotation(pose))
    return FramePose(rotation * frame_pose.rotation, wp.transform_point(pose, frame_pose.origin))


@wp.func
def coordinates_of(obstacle: Obstacle, exact: ExactShape, frame_pose: FramePose) -> float:
    """Sum of the lengths that distances are rounded by, but those of a piece [m].

    Of poses, and of the sizes of a shape; a half space has its unit normal.
    """
    size = wp.length(wp.transform_get_translation(obstacle.mesh_from_world))
    return size + wp.length(frame_pose.origin) + wp.length(exact.center) + wp.length(exact.size)


@wp.func
def pieces_are_apart(
    obstacle: Obstacle, pieces: wp.uint64, body: RobotBody, frame_pose: FramePose, limit: float
) -> bool:
    """Whether all pieces of a body are proven farther from an obstacle than a limit [m].

    Never of bodies without pieces and obstacles without a formula.
    """
    if body.n_pieces == 0 or not is_exact(obstacle.mesh_id, obstacle.record):
        return False
    exact = load_exact(obstacle.record)
    pose = mesh_from_frame(obstacle, frame_pose)
    fixed = coordinates_of(obstacle, exact, frame_pose)
    row = int(body.first_piece)
    for _p in range(body.n_pieces):
        piece = piece_at(pieces, row)
        row = piece.end
        size = fixed + wp.length(xyz(piece.ball)) + piece.ball[3]
        needed = limit + PIECE_ROUNDING * size
        if not (separation_from_shape(pieces, piece, exact, pose, needed).lower > needed):
            return False
    return True


@wp.struct
class RestingLink:
    """A body at a configuration, and where its pieces are."""

    pieces: wp.uint64  # pointer, see `Robot`
    resting: RestingBody


@wp.func
def touches_link(obstacle: Obstacle, link: RestingLink, hit: bool) -> bool:
    """Whether an obstacle touches the spheres of a body, and is not apart from its pieces."""
    resting = link.resting
    if not touches_body(obstacle, resting, hit):
        return False
    far = wp.length(resting.center) + resting.body.radius
    far += wp.length(wp.transform_get_translation(obstacle.mesh_from_world))
    limit = obstacle.padding + uncertainty(far, 0.0)
    return not pieces_are_apart(obstacle, link.pieces, resting.body, resting.frame_pose, limit)


touches_resting_link = make_walk(touches_link, RestingLink, bool, is_hit)


@wp.func
def link_collides(
    robot: Robot, body: RobotBody, frame_pose: FramePose, center: wp.vec3, scene: Scene, env: int
) -> bool:
    """Whether a body touches an enabled obstacle of an env by its shape, or is not finite."""
    if not is_finite3(center):
        return True
    link = RestingLink(robot.pieces, RestingBody(robot.spheres, body, frame_pose, center))
    return touches_resting_link(scene, env, body.begin, center, body.radius, link, False)


# -- in motion ------------------------------------------------------------------------------------


@wp.struct
class MovingLink:
    """A body and an interval to check, and where its pieces are."""

    pieces: wp.uint64  # pointer, see `Robot`
    check: BodyCheck


@wp.func
def approach_of_piece(check: BodyCheck, ball: wp.vec4, normal: wp.vec3) -> float:
    """Bound of how far any point of a piece moves along a normal over an interval [m].

    Args:
        check: the body of the piece, whose bound of acceleration holds for its pieces.
        ball: around the piece, in the frame of the body.
        normal: unit vector in the world.
    """
    arm = check.state.frame_pose.rotation * xyz(ball)
    speed = wp.abs(wp.dot(normal, velocity_of(check.state, arm)))
    speed += ball[3] * wp.length(wp.cross(normal, check.state.twist.angular))
    return travel(check.interval, speed)


@wp.func
def bounds_over_shape(obstacle: Obstacle, link: MovingLink) -> wp.vec2:
    """Lower bounds of the distance of a body's pieces from an obstacle, less its padding [m].

    Over the interval, and at the configuration; -FAR without pieces or a formula. A plane with the
    shape below it is at rest: of the motion of a piece only that along its normal counts.
    """
    check = link.check
    interval = check.interval
    body = check.body
    bounds = wp.vec2(FAR, FAR)
    if body.n_pieces == 0 or not is_exact(obstacle.mesh_id, obstacle.record):
        return wp.vec2(-FAR, -FAR)
    exact = load_exact(obstacle.record)
    frame_pose = check.state.frame_pose
    pose = mesh_from_frame(obstacle, frame_pose)
    fixed = coordinates_of(obstacle, exact, frame_pose)
    turning = wp.length(check.state.twist.angular)
    row = int(body.first_piece)
    for _p in range(body.n_pieces):
        piece = piece_at(link.pieces, row)
        row = piece.end
        ball = piece.ball
        size = fixed + wp.length(xyz(ball)) + ball[3]
        error = interval.slack + (interval.rounding + PIECE_ROUNDING) * size + obstacle.padding
        arm = frame_pose.rotation * xyz(ball)
        speed = wp.length(velocity_of(check.state, arm)) + turning * ball[3]
        needed = error + wp.max(travel(interval, speed), interval.tolerance)
        found = separation_from_shape(link.pieces, piece, exact, pose, needed)
        normal = to_world(obstacle.mesh_from_world, found.normal)
        low = found.lower - error - approach_of_piece(check, ball, normal)
        # In this order, so that NaN is not free.
        if not (low >= bounds[0]):
            bounds[0] = low
        if not (found.lower - error >= bounds[1]):
            bounds[1] = found.lower - error
        if not (bounds[1] > interval.tolerance):
            return bounds
    return bounds


@wp.func
def check_link(obstacle: Obstacle, link: MovingLink, verdict: int) -> int:
    """Checks a body against one obstacle by its spheres, and where these refuse by its pieces."""
    found = check_obstacle(obstacle, link.check, verdict)
    if verdict == HIT or found == verdict:
        return found
    bounds = bounds_over_shape(obstacle, link)
    if bounds[1] > link.check.interval.tolerance:
        return wp.where(bounds[0] > 0.0, verdict, UNDECIDED)
    return found


check_links = make_walk(check_link, MovingLink, int)


@wp.func
def link_in_motion(segment: Segment, body: RobotBody, interval: Interval) -> BodyCheck:
    """As `body_in_motion`, with a bound of the acceleration that holds for its pieces too."""
    body.spread = wp.max(body.spread, body.far_piece)
    return body_in_motion(segment, body, interval)


@wp.func
def check_shape_of_body(check: BodyCheck, robot: Robot, scene: Scene, env: int) -> int:
    """Checks a body against all enabled obstacles of an env by its shape."""
    if not is_finite3(check.center):
        return HIT
    link = MovingLink(robot.pieces, check)
    return check_links(scene, env, check.body.begin, check.center, reach_of(check), link, CLEAR)
