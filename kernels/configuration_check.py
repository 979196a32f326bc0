"""Collision checks of a robot at rest: its bodies against obstacles and against each other."""

import warp as wp

from warp_collision.kernels.body_check import DISTANCE_ROUNDING, ball_distance
from warp_collision.kernels.finite import is_finite3
from warp_collision.kernels.kinematics import (
    FramePose,
    child_pose,
    point_in_world,
    xyz,
)
from warp_collision.kernels.mesh_distance import is_nearer
from warp_collision.kernels.precision import is_in_range, uncertainty
from warp_collision.kernels.robot_motion import (
    Robot,
    RobotBody,
    body_of,
    frame_of,
    group_ball,
    group_span,
    n_groups_of,
    sphere_of,
)
from warp_collision.kernels.robot_pairs import (
    BodyPair,
    is_left_out,
    pieces_at_rest,
    relative_pose,
)
from warp_collision.kernels.scene import Obstacle, Scene, is_hit, make_walk


@wp.struct
class RestingBody:
    """A body at a configuration."""

    spheres: wp.uint64  # pointer, see `Robot`
    body: RobotBody
    frame_pose: FramePose
    center: wp.vec3  # of the body's ball, in the world


@wp.func
def touches_body(obstacle: Obstacle, resting: RestingBody, hit: bool) -> bool:
    """Whether an obstacle touches a sphere of a body, after a check of its ball."""
    body = resting.body
    pose = obstacle.mesh_from_world
    point = wp.transform_point(pose, resting.center)
    if not is_in_range(point):
        return True
    # As in `touches` of single spheres.
    far = wp.length(resting.center) + body.radius + wp.length(wp.transform_get_translation(pose))
    rounding = uncertainty(far, 0.0)
    ball = ball_distance(obstacle, point, body.radius + rounding)
    if ball >= body.radius + rounding:
        return False
    error = DISTANCE_ROUNDING * (wp.length(point) + wp.length(resting.center)) + rounding
    for index in range(body.begin, body.end):
        sphere = sphere_of(resting.spheres, index)
        if not (sphere[3] < 0.0):
            local = xyz(sphere)
            if ball - wp.length(local - body.center) < sphere[3] + error:
                center = wp.transform_point(pose, point_in_world(resting.frame_pose, local))
                limit = sphere[3] + obstacle.padding + rounding
                if is_nearer(obstacle.mesh_id, obstacle.record, center, limit):
                    return True
    return False


touches_resting = make_walk(touches_body, RestingBody, bool, is_hit)


@wp.func
def body_collides(
    robot: Robot, body: RobotBody, frame_pose: FramePose, center: wp.vec3, scene: Scene, env: int
) -> bool:
    """Whether a body touches an enabled obstacle of an env, or is not finite."""
    if not is_finite3(center):
        return True
    resting = RestingBody(robot.spheres, body, frame_pose, center)
    return touches_resting(scene, env, body.begin, center, body.radius, resting, False)


@wp.func
def frame_at_value(robot: Robot, k: int, parent: FramePose, value: float) -> FramePose:
    """Frame k from its parent and the value of its joint in `joints`."""
    frame = frame_of(robot, k)
    return child_pose(frame, parent, frame.multiplier * value + frame.shift)


@wp.func
def are_apart(offset: wp.vec3, reach: float) -> bool:
    """Whether the distance of two centers is at least the sum of the radii."""
    return reach <= 0.0 or wp.dot(offset, offset) >= reach * reach


@wp.func
def groups_touch(
    spheres: wp.uint64,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    span: wp.vec2i,
    other_span: wp.vec2i,
    second_from_first: FramePose,
    ball: wp.vec4,
) -> bool:
    """Whether spheres of two groups overlap, computed in the frame of the second body.

    Args:
        spheres: pointer, see `Robot`.
        pair: the bodies.
        left_out: pairs of spheres that are not checked.
        span: begin and end of the spheres of the first group.
        other_span: of the other one.
        second_from_first: relative pose of the bodies' frames.
        ball: of the other group.
    """
    for index in range(span[0], span[1]):
        a = sphere_of(spheres, index)
        radius = a[3] + pair.buffer
        center = point_in_world(second_from_first, xyz(a))
        # A sphere far from the ball of the other group is far from all of its spheres.
        if not (a[3] < 0.0 or are_apart(center - xyz(ball), radius + ball[3])):
            for other in range(other_span[0], other_span[1]):
                b = sphere_of(spheres, other)
                if not (b[3] < 0.0 or are_apart(center - xyz(b), radius + b[3])):
                    if not is_left_out(pair, left_out, index, other):
                        return True
    return False


@wp.func
def spheres_touch(
    robot: Robot,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    first: FramePose,
    second: FramePose,
) -> bool:
    """Whether spheres of two bodies overlap: the balls of their groups first."""
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    second_from_first = relative_pose(first, second)
    for g in range(n_groups_of(one)):
        ball = group_ball(robot, one, g)
        center = point_in_world(second_from_first, xyz(ball))
        reach = ball[3] + pair.buffer
        if not (ball[3] < 0.0 or are_apart(center - other.center, reach + other.radius)):
            for h in range(n_groups_of(other)):
                near = group_ball(robot, other, h)
                if not (near[3] < 0.0 or are_apart(center - xyz(near), reach + near[3])):
                    span = group_span(one, g)
                    other_span = group_span(other, h)
                    if groups_touch(
                        robot.spheres, pair, left_out, span, other_span, second_from_first, near
                    ):
                        return True
    return False


@wp.func
def bodies_touch(
    robot: Robot,
    pair: BodyPair,
    left_out: wp.array[wp.vec2i],
    first: FramePose,
    second: FramePose,
) -> bool:
    """Whether two bodies overlap by their spheres, and are not apart by their convex pieces."""
    if not spheres_touch(robot, pair, left_out, first, second):
        return False
    return not (pieces_at_rest(robot, pair, first, second, 0.0)[1] > 0.0)


@wp.func
def balls_meet(first: wp.vec4, second: wp.vec4, buffer: float) -> bool:
    """Whether the balls of two bodies, in the world, overlap."""
    offset = xyz(first) - xyz(second)
    return not are_apart(offset, first[3] + second[3] + buffer)
