"""Smallest clearance of a robot on joint paths, as certified intervals.

Branch and bound: each configuration gives an upper bound of the smallest clearance, and each body,
or pair of bodies, a lower bound over the interval around it. Those whose lower bound is above the
upper bound minus the tolerance are pruned; the others are evaluated in both halves. Towards a
convex shape only motion along the normal of a plane above it counts, so that at a smallest
clearance within an interval the bounds differ by the second derivatives alone.

Most is pruned where the upper bound is near the smallest clearance from the beginning. So both ends
of the segment are evaluated first, for the body and the pair of bodies that cheap bounds suggest.

A struct that is assigned in a branch is copied, which takes longer than what is computed: loops
update its fields.
"""

import warp as wp

from warp_collision.kernels.bisection import (
    NONE,
    Bisection,
    bit_of,
    everything,
    half_of,
    middle_of,
    next_interval,
    parts_of_segment,
)
from warp_collision.kernels.body_check import (
    DISTANCE_ROUNDING,
    BodyCheck,
    Interval,
    ball_distance,
    body_in_motion,
    interval_around,
    padded_distance,
    travel,
)
from warp_collision.kernels.compiling import FEW_THREADS, named, resident_warps
from warp_collision.kernels.forward_kinematics import point_in_world, xyz
from warp_collision.kernels.mesh_record import FAR, is_exact, load_exact
from warp_collision.kernels.precision import is_finite3, is_in_range
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    Segment,
    body_of,
    group_ball,
    group_span,
    n_groups_of,
    robot_in_env,
    root_at,
    segment_of,
    sphere_of,
    velocity_of,
    write_frames,
    write_root,
    write_root_at,
)
from warp_collision.kernels.robot_pairs import (
    BodyPair,
    PairBalls,
    PairMotion,
    approach,
    approach_of_pieces,
    approach_of_spheres,
    balls_of_pair,
    bounds_of_shapes,
    gap_of_balls,
    is_left_out,
    motion_of_pair,
)
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    distance_of_few,
    env_of_row,
    is_env,
    make_walk,
)
from warp_collision.kernels.shape_distance import height_over_support
from warp_collision.kernels.transforms import to_world

wp.set_module_options(FEW_THREADS)

# Intervals are narrower than the tolerance by more than the rounding of their bounds.
WITHIN = wp.constant(0.999)
# The search for what is guessed to be the nearest goes so far beyond its lower bound [m].
NEAR = wp.constant(0.1)
# A part is not halved where its bounds are this many times their rounding or less: the interval is
# then at most 1 more of it wide.
SPLITTING_GAINS = wp.constant(1.5)
# After this many evaluations, half of all, the tolerance doubles with each of 16 equal shares of
# the others, so that the search ends with bounds of the whole segment.
EVALUATIONS_WITHIN = wp.constant(32768)
EVALUATIONS_PER_DOUBLING = wp.constant(2048)


@wp.struct
class Nearest:
    """Bounds of the smallest clearance of a segment."""

    upper: float  # smallest clearance found [m]; FAR if there is none, NaN if not finite
    lower: float  # lower bound over all pruned parts [m]
    floor: float  # lower bound over the last interval [m]
    position: float  # where on the segment the clearance is `upper`
    sphere: int  # whose clearance it is, -1 for none
    other: int  # nearest obstacle or sphere
    is_open: bool  # whether the last body was not pruned
    open: wp.uint64  # bodies that were not pruned: bit i % 64 for number i


@wp.func
def first_bounds(is_valid: bool) -> Nearest:
    """Bounds before the first evaluation, or NaN."""
    return Nearest(wp.where(is_valid, FAR, wp.nan), FAR, FAR, 0.0, -1, -1, False, NONE)


@wp.func
def after_evaluation(interval: Interval, before: Nearest, best: Nearest) -> Nearest:
    """Bounds after a configuration; an interval without length has no lower bound."""
    if best.upper < before.upper:
        best.position = interval.middle
    if interval.half == 0.0:
        best.lower = before.lower
    return best


@wp.func
def nearer_of_body(obstacle: Obstacle, check: BodyCheck, best: Nearest) -> Nearest:
    """Updates the bounds by the spheres of a body against one obstacle."""
    if wp.isnan(best.upper):
        return best
    interval = check.interval
    body = check.body
    point = wp.transform_point(obstacle.mesh_from_world, check.center)
    if not is_in_range(point):
        best.upper = wp.nan
        return best
    size = wp.length(point) + wp.length(check.center)
    error = interval.rounding * size + interval.slack
    threshold = best.upper - interval.tolerance
    decrease = check.ball_travel + error
    reach = body.radius + decrease + threshold
    ball = ball_distance(obstacle, point, reach)
    if ball >= reach:
        best.lower = wp.min(best.lower, threshold)
        return best
    best.floor = wp.min(best.floor, ball - body.radius - decrease)
    smallest = wp.max(body.radius, wp.max(interval.tolerance, error))
    is_coarse = check.ball_travel > smallest and ball > -FAR
    if is_coarse:
        best.is_open = True
    frame_pose = check.state.frame_pose
    is_convex = is_exact(obstacle.record)
    for index in range(body.begin, body.end):
        sphere = sphere_of(check.spheres, index)
        if not (sphere[3] < 0.0):
            local = xyz(sphere)
            arm = frame_pose.rotation * local
            if not is_coarse:
                decrease = travel(interval, wp.length(velocity_of(check.state, arm))) + error
            threshold = best.upper - interval.tolerance
            needed = wp.max(best.upper, threshold + decrease)
            limit = sphere[3] + wp.where(is_coarse, best.upper, needed)
            low = threshold
            if ball - wp.length(local - body.center) < limit + DISTANCE_ROUNDING * size:
                center = point_in_world(frame_pose, local)
                center = wp.transform_point(obstacle.mesh_from_world, center)
                sample = padded_distance(obstacle, center, limit)
                if sample.found:
                    gap = sample.distance - sphere[3]
                    low = gap - decrease
                    if gap + error < best.upper:
                        best.upper = gap + error
                        best.sphere = index
                        best.other = obstacle.slot
                    if low < best.upper - interval.tolerance and is_convex and not is_coarse:
                        plane = lower_by_plane(obstacle, check, arm, center, sample.gradient)
                        low = wp.max(low, plane - sphere[3] - error)
            if not is_coarse:
                if low < best.upper - interval.tolerance and decrease > SPLITTING_GAINS * error:
                    best.is_open = True
                    # It is halved anyway: what is left is whether something is nearer.
                    is_coarse = True
                else:
                    best.lower = wp.min(best.lower, low)
    return best


@wp.func
def lower_by_plane(
    obstacle: Obstacle, check: BodyCheck, arm: wp.vec3, center: wp.vec3, normal: wp.vec3
) -> float:
    """Lower bound of the distance of a sphere's center over an interval, if a shape is convex.

    A plane with the shape below it is at rest: of the motion only that along its normal counts.

    Args:
        obstacle: an exact shape.
        check: the body of the sphere.
        arm: of the center from the origin of its frame, in the world.
        center: in the frame of the mesh.
        normal: of the plane, in the same frame, of about length 1.
    """
    height = height_over_support(load_exact(obstacle.record), center, normal) - obstacle.padding
    along = wp.dot(to_world(obstacle.mesh_from_world, normal), velocity_of(check.state, arm))
    return height - travel(check.interval, wp.abs(along))


def make_nearest_to_bodies(body_at, nearest_obstacle, kind):
    """The function that updates bounds by the bodies of a robot against obstacles.

    Args:
        body_at: device function (segment, body, interval) -> BodyCheck, as `body_in_motion`.
        nearest_obstacle: device function (check: BodyCheck, robot: Robot, scene: Scene, env: int,
            reach: float, best: Nearest) -> Nearest.
        kind: ends its name.
    """

    def nearest_to_bodies(
        segment: Segment,
        interval: Interval,
        scene: Scene,
        env: int,
        requested: wp.uint64,
        balls: wp.array[wp.vec4],
        best: Nearest,
    ) -> Nearest:
        """Updates the bounds by the requested bodies against the obstacles of an env.

        Writes the centers of their balls, and how far these move.
        """
        robot = segment.robot
        best.open = NONE
        best.floor = FAR
        before = best
        for k in range(robot.n_bodies):
            # Those far from the root, which are mostly the nearest to obstacles, limit the others.
            b = robot.n_bodies - 1 - k
            body = body_of(robot, b)
            if requested & bit_of(b) != NONE and body.radius >= 0.0:
                check = body_at(segment, body, interval)
                center = check.center
                balls[b] = wp.vec4(center[0], center[1], center[2], check.ball_travel)
                if wp.isnan(best.upper):
                    continue
                threshold = best.upper - interval.tolerance
                reach = body.radius + check.ball_travel + threshold + interval.slack
                reach += DISTANCE_ROUNDING * (wp.length(center) + wp.abs(reach))
                best.is_open = False
                best = nearest_obstacle(check, robot, scene, env, wp.max(reach, 0.0), best)
                # Obstacles that the walk skips are farther than the threshold.
                best.lower = wp.min(best.lower, threshold)
                if best.is_open:
                    best.open = best.open | bit_of(b)
                if not is_finite3(center):
                    best.upper = wp.nan
        return after_evaluation(interval, before, best)

    return named(nearest_to_bodies, kind)


nearest_sphere_of_body = make_walk(nearer_of_body, BodyCheck, Nearest)


@wp.func
def nearest_by_spheres_of_body(
    check: BodyCheck, robot: Robot, scene: Scene, env: int, reach: float, best: Nearest
) -> Nearest:
    """Updates the bounds by the spheres of a body against the obstacles of an env."""
    return nearest_sphere_of_body(scene, env, check.body.begin, check.center, reach, check, best)


@wp.func
def nearest_of_groups(
    spheres: wp.uint64,
    motion: PairMotion,
    left_out: wp.array[wp.vec2i],
    span: wp.vec2i,
    other_span: wp.vec2i,
    other_ball: wp.vec4,
    moved: wp.vec2,
    best: Nearest,
) -> Nearest:
    """Updates the bounds by a group of spheres of one body against one of the other.

    Args:
        spheres: pointer, see `Robot`.
        motion: the bodies.
        left_out: pairs of spheres that are not checked.
        span: begin and end of the spheres of the first group.
        other_span: of the other one.
        other_ball: around the spheres of the other one, in the world.
        moved: how much any two spheres of the bodies approach, see `farthest_approach`.
        best: the bounds so far.
    """
    tolerance = motion.interval.tolerance
    is_wide = moved[0] > SPLITTING_GAINS * moved[1]
    for index in range(span[0], span[1]):
        a = sphere_of(spheres, index)
        here = point_in_world(motion.first.frame_pose, xyz(a))
        own = a[3] + motion.pair.buffer
        # A sphere far from the ball of the other group is far from all of its spheres.
        low = wp.length(here - xyz(other_ball)) - own - other_ball[3]
        low -= wp.where(best.is_open, tolerance, moved[0])
        if a[3] < 0.0 or low >= best.upper - tolerance:
            best.lower = wp.where(a[3] < 0.0 or best.is_open, best.lower, wp.min(best.lower, low))
            continue
        for other in range(other_span[0], other_span[1]):
            b = sphere_of(spheres, other)
            if b[3] < 0.0 or wp.isnan(best.upper):
                continue
            radii = own + b[3]
            there = point_in_world(motion.second.frame_pose, xyz(b))
            # Once the pair of bodies is halved anyway, only smaller clearances are looked for.
            low = wp.length(here - there) - radii - wp.where(best.is_open, tolerance, moved[0])
            if not (low >= best.upper - tolerance):
                if is_left_out(motion.pair, left_out, index, other):
                    continue
                gap = approach(motion, here, there)
                low = gap[1] - radii
                if not wp.isfinite(gap):
                    best.upper = wp.nan
                elif gap[0] - radii < best.upper:
                    best.upper = gap[0] - radii
                    best.sphere = index
                    best.other = other
            if not best.is_open:
                if low < best.upper - tolerance and is_wide:
                    best.is_open = True
                else:
                    best.lower = wp.min(best.lower, low)
    return best


@wp.func
def nearest_of_pair(
    robot: Robot, motion: PairMotion, left_out: wp.array[wp.vec2i], balls: PairBalls, best: Nearest
) -> Nearest:
    """Updates the bounds by two bodies, whose clearance is the larger one of two.

    Of their spheres, and of their shapes where these are apart.
    """
    found = nearest_by_spheres(robot, motion, left_out, balls, best)
    is_nearer = found.upper < best.upper
    if wp.isnan(found.upper) or not (is_nearer or found.is_open):
        return found
    bounds = bounds_of_shapes(robot, motion, balls, wp.max(best.upper, 0.0), 0.0, -FAR)
    if not (bounds[1] > 0.0) or (is_nearer and bounds[2] <= found.upper):
        return found
    result = best
    result.floor = found.floor
    if not is_nearer:
        result.lower = found.lower
    elif bounds[2] < best.upper:
        result.upper = bounds[2]
        result.sphere = found.sphere
        result.other = found.other
    # Where the pieces may touch within the interval, the clearance is that of the spheres there.
    if bounds[0] > 0.0 and bounds[0] >= result.upper - motion.interval.tolerance:
        result.lower = wp.min(result.lower, bounds[0])
        return result
    moved = approach_of_pieces(robot, motion, balls)
    if found.is_open or moved[0] > SPLITTING_GAINS * moved[1]:
        result.is_open = True
    else:
        result.lower = found.lower
    return result


@wp.func
def nearest_by_spheres(
    robot: Robot, motion: PairMotion, left_out: wp.array[wp.vec2i], balls: PairBalls, best: Nearest
) -> Nearest:
    """Updates the bounds by the spheres of two bodies against each other, whose balls are near."""
    pair = motion.pair
    interval = motion.interval
    moved = approach_of_spheres(robot, motion, balls)
    one = body_of(robot, pair.first)
    other = body_of(robot, pair.second)
    for g in range(n_groups_of(one)):
        ball = group_ball(robot, one, g)
        here = point_in_world(motion.first.frame_pose, xyz(ball))
        for h in range(n_groups_of(other)):
            near = group_ball(robot, other, h)
            if not (ball[3] < 0.0 or near[3] < 0.0):
                there = point_in_world(motion.second.frame_pose, xyz(near))
                least = wp.length(here - there) - ball[3] - near[3] - pair.buffer
                least -= wp.where(best.is_open, interval.tolerance, moved[0])
                if not (least >= best.upper - interval.tolerance):
                    span = group_span(one, g)
                    other_span = group_span(other, h)
                    there_ball = wp.vec4(there[0], there[1], there[2], near[3])
                    best = nearest_of_groups(
                        robot.spheres, motion, left_out, span, other_span, there_ball, moved, best
                    )
                elif not best.is_open:
                    best.lower = wp.min(best.lower, least)
    return best


@wp.func
def nearest_to_itself(
    segment: Segment,
    interval: Interval,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    requested: wp.uint64,
    balls: wp.array[wp.vec4],
    bodies: wp.uint64,
    best: Nearest,
) -> Nearest:
    """Updates the bounds by the requested pairs of bodies; the balls of some bodies are known."""
    robot = segment.robot
    best.open = NONE
    best.floor = FAR
    before = best
    for k in range(body_pairs.shape[0]):
        if requested & bit_of(k) != NONE and not wp.isnan(best.upper):
            pair = body_pairs[k]
            both = bit_of(pair.first) | bit_of(pair.second)
            if bodies & both == both:
                gap = gap_of_balls(pair, robot, balls[pair.first], balls[pair.second], interval)
                least = gap[0] - gap[1]
                if least >= best.upper - interval.tolerance:
                    best.lower = wp.min(best.lower, least)
                    continue
            motion = motion_of_pair(segment, pair, interval)
            near = balls_of_pair(robot, motion)
            moved = approach_of_spheres(robot, motion, near)
            least = near.gap - moved[0]
            if least >= best.upper - interval.tolerance:
                best.lower = wp.min(best.lower, least)
                continue
            best.floor = wp.min(best.floor, least)
            best.is_open = False
            best = nearest_of_pair(robot, motion, left_out, near, best)
            if best.is_open:
                best.open = best.open | bit_of(k)
    return after_evaluation(interval, before, best)


@wp.struct
class Guess:
    """The body and the pair of bodies that are likely the nearest, and within which reach."""

    bodies: wp.uint64  # its bit
    pairs: wp.uint64
    reach: float  # [m]
    pair_reach: float


@wp.func
def guess_nearest(
    segment: Segment,
    interval: Interval,
    scene: Scene,
    env: int,
    body_pairs: wp.array[BodyPair],
    balls: wp.array[wp.vec4],
) -> Guess:
    """By the boxes of few obstacles and the balls of the bodies, which it writes."""
    robot = segment.robot
    guess = Guess(NONE, NONE, FAR, FAR)
    for k in range(robot.n_bodies):
        # Of several whose balls meet a box the one that is farthest from the root.
        b = robot.n_bodies - 1 - k
        body = body_of(robot, b)
        if body.radius >= 0.0:
            center = point_in_world(segment.frames[body.frame].frame_pose, body.center)
            balls[b] = wp.vec4(center[0], center[1], center[2], 0.0)
            gap = wp.max(distance_of_few(scene, env, center) - body.radius, 0.0)
            if gap < guess.reach:
                guess.reach = gap
                guess.bodies = bit_of(b)
    for k in range(body_pairs.shape[0]):
        pair = body_pairs[k]
        gap = gap_of_balls(pair, robot, balls[pair.first], balls[pair.second], interval)[0]
        if gap < guess.pair_reach:
            guess.pair_reach = gap
            guess.pairs = bit_of(k)
    guess.reach += NEAR
    guess.pair_reach = wp.max(guess.pair_reach, 0.0) + NEAR
    return guess


@wp.func
def requested(open: wp.uint64, guess: wp.uint64, span: wp.vec2, n_ends: int) -> wp.uint64:
    """What is evaluated: at the ends first what is guessed, later what else is open."""
    if span[1] > 0.0:
        return open
    return wp.where(n_ends < 2, guess, open & ~guess)


@wp.func
def without_guess(best: Nearest) -> Nearest:
    """Bounds after an end: a reach within which nothing was found is no bound."""
    if best.sphere < 0 and best.upper < FAR:
        best.upper = FAR
    return best


@wp.func
def certified(best: Nearest, whole: float, is_exhausted: bool) -> wp.vec3:
    """Returns (lower, upper, position); `whole` is a lower bound over the whole segment."""
    if wp.isnan(best.upper):
        return wp.vec3(wp.nan, wp.nan, wp.nan)
    if best.sphere < 0:
        return wp.vec3(wp.inf, wp.inf, 0.0)
    lower = best.lower
    if is_exhausted:
        lower = wp.min(lower, whole)
    return wp.vec3(wp.min(lower, best.upper), best.upper, best.position)


@wp.func
def interval_of(search: Bisection, n_ends: int) -> wp.vec2:
    """Returns (middle, half the length); before and after the whole its ends, without length.

    These give upper bounds only, see `requested`: that prunes most bodies and intervals.
    """
    if n_ends < 2 or (search.evaluations > 0 and n_ends < 4):
        return wp.vec2(float(n_ends % 2), 0.0)
    return wp.vec2(middle_of(search), half_of(search))


@wp.func
def interval_at(search: Bisection, span: wp.vec2, slack: float, tolerance: float) -> Interval:
    """The interval of a middle and half a length, with a tolerance at which the search can end."""
    doublings = wp.max(search.evaluations - EVALUATIONS_WITHIN, 0) / EVALUATIONS_PER_DOUBLING
    within = WITHIN * tolerance * float(1 << doublings)
    return interval_around(span[0], span[1], slack, DISTANCE_ROUNDING, within)


@wp.func
def lowest_of_whole(world: Nearest, itself: Nearest) -> wp.vec2:
    """Lower bounds over the whole segment, after its first evaluation."""
    return wp.vec2(wp.min(world.floor, world.lower), wp.min(itself.floor, itself.lower))


@wp.func
def write_bounds(
    bounds: wp.array[wp.vec3], world: Nearest, itself: Nearest, whole: wp.vec2, is_exhausted: bool
):
    """Writes what is certified; `whole` are lower bounds of the whole segment."""
    bounds[0] = certified(world, whole[0], is_exhausted)
    bounds[1] = certified(itself, whole[1], is_exhausted)


@wp.func
def write_nearest(nearest: wp.array[wp.vec2i], world: Nearest, itself: Nearest, first_slot: int):
    """Writes sphere and obstacle, whose slots in its env begin at one, and two spheres."""
    slot = wp.where(world.other < 0, -1, world.other - first_slot)
    nearest[0] = wp.vec2i(world.sphere, slot)
    nearest[1] = wp.vec2i(itself.sphere, itself.other)


def make_clearance_of_segment(nearest_to_bodies, kind):
    """The function that searches one segment; see `make_nearest_to_bodies`."""

    def clearance_of_segment(
        segment: Segment,
        base: wp.array2d[MovingFrame],
        row: int,
        index: int,
        scene: Scene,
        env: int,
        body_pairs: wp.array[BodyPair],
        left_out: wp.array[wp.vec2i],
        tolerance: float,
        balls: wp.array[wp.vec4],
        bounds: wp.array[wp.vec3],
        nearest: wp.array[wp.vec2i],
    ):
        """Writes bounds of its clearances and what is nearest, see `joint_path_clearance`."""
        slack = write_root(segment, root_at(base, row, index))
        is_valid = is_env(scene, env) and wp.isfinite(slack)
        world = first_bounds(is_valid)
        itself = first_bounds(is_valid)
        search = parts_of_segment(0, everything(), 0)
        search.is_done = not is_valid
        whole = wp.vec2(FAR, FAR)
        guess = Guess()
        n_ends = int(0)
        while not search.is_done:
            span = interval_of(search, n_ends)
            write_root_at(segment, root_at(base, row, index), span[0])
            write_frames(segment, span[0], span[1])
            interval = interval_at(search, span, slack, tolerance)
            if n_ends == 0:
                guess = guess_nearest(segment, interval, scene, env, body_pairs, balls)
                world.upper = guess.reach
                itself.upper = guess.pair_reach
            bodies = requested(search.bodies[search.level], guess.bodies, span, n_ends)
            world = nearest_to_bodies(segment, interval, scene, env, bodies, balls, world)
            open_pairs = requested(search.pairs[search.level], guess.pairs, span, n_ends)
            itself = nearest_to_itself(
                segment, interval, body_pairs, left_out, open_pairs, balls, bodies, itself
            )
            if span[1] > 0.0:
                if search.evaluations == 0:
                    whole = lowest_of_whole(world, itself)
                search = next_interval(search, world.open, itself.open)
            else:
                n_ends += 1
                world = without_guess(world)
                itself = without_guess(itself)
        write_bounds(bounds, world, itself, whole, search.is_exhausted)
        write_nearest(nearest, world, itself, env * scene.n_slots)

    return named(clearance_of_segment, kind)


nearest_to_spheres = make_nearest_to_bodies(body_in_motion, nearest_by_spheres_of_body, "spheres")
clearance_of_spheres = make_clearance_of_segment(nearest_to_spheres, "spheres")


def make_clearance_kernel(clearance_of_segment, name, module):
    """The kernel of a search, see `make_clearance_of_segment`, as one of a module."""

    def clearance(
        # operands
        joints: wp.array3d[wp.float32],  # (batch, n, n_joints) [rad or m], see `segment_of`
        env_index: wp.array[wp.int32],  # (batch,) or empty
        scene: Scene,
        robot: Robot,
        base: wp.array2d[MovingFrame],  # (batch or 1, horizon - 1 or 1) of the root, or empty
        body_pairs: wp.array[BodyPair],
        left_out: wp.array[wp.vec2i],  # pairs of spheres that are not checked
        # parameters
        tolerance: wp.array[wp.float32],  # (1,) [m]
        launch_offset: wp.vec2i,  # of this launch in the segments
        # outputs
        states: wp.array3d[MovingFrame],  # (batch, horizon - 1, n_frames) scratch
        balls: wp.array3d[wp.vec4],  # (batch, horizon - 1, n_bodies) scratch
        bounds: wp.array3d[wp.vec3],  # (batch, horizon - 1, 2) lower, upper, position; of itself
        nearest: wp.array3d[wp.vec2i],  # sphere and obstacle, -1 for none; two spheres
    ):
        """One thread per segment."""
        row, index = wp.tid()
        row += launch_offset[0]
        index += launch_offset[1]
        env = env_of_row(env_index, row)
        own_robot, frames = robot_in_env(robot, env), states[row, index]
        segment = segment_of(own_robot, joints, row, index, states.shape[1], frames)
        width = tolerance[0]
        own = balls[row, index]
        found = bounds[row, index]
        near = nearest[row, index]
        clearance_of_segment(
            segment, base, row, index, scene, env, body_pairs, left_out, width, own, found, near
        )

    clearance.__name__ = clearance.__qualname__ = name
    clearance.__module__ = module
    return wp.kernel(clearance, **resident_warps(16, block=32))


joint_path_clearance = make_clearance_kernel(clearance_of_spheres, "joint_path_clearance", __name__)
