"""Bodies in lanes against the obstacles of an env: boxes first, then shapes, then spheres.

**Rounding.** The distance of a point from a shape gains at most 30 u times the coordinates that it
is computed from: in lanes by a matrix made of one or two quaternions, in scalar functions by these
themselves; u is half a unit of float32 rounding. Scalar functions also widen spheres by
`uncertainty`, at most 17 u times the same coordinates. With EPSILON = 4 u they differ from lanes by
at most 20 EPSILON times these coordinates, and the `slack` of the positions.
"""

import warp as wp

from warp_collision.kernels.body_check import RestingBody, ball_distance, touches_body
from warp_collision.kernels.box_blocks import FEW, lowest_bit
from warp_collision.kernels.compiling import named
from warp_collision.kernels.forward_kinematics import point_in_world
from warp_collision.kernels.lanes.frames import Lanes, pose_of_lane
from warp_collision.kernels.lanes.vectors import FUSED, PLACE_SPHERES, SHAPE_ROUNDING
from warp_collision.kernels.mesh_distance import WIDEN
from warp_collision.kernels.mesh_record import ExactShape, Shape, is_exact, load_exact
from warp_collision.kernels.robot_motion import Robot, RobotBody, body_of
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    filled_slots,
    is_checked,
    load_obstacle,
    make_walk,
    record_of,
    tree_of,
)

# Obstacles that are larger or farther are left to the scalar functions [m].
LARGEST_SIZE = wp.constant(1.0e8)


@wp.struct
class BodyInLanes:
    """A body in all lanes of a block. One for all bodies: copies of structs are slow."""

    robot: Robot
    lanes: Lanes
    index: int  # of the body


@wp.func_native(
    FUSED
    + """
    wp::uint32 near = 0;
    const F* ball = (const F*)lanes.balls + 5 * index;
    const I asked = mask_of(bits);
    const F far = F{} + 3.0e38f;
    const F reach = ball[3], square_of_reach = reach * reach;
    wp::float32 lower[3], upper[3];
    for (int k = 0; k < 3; ++k) {
        lower[k] = lowest(asked ? ball[k] - reach : far);
        upper[k] = -lowest(asked ? -(ball[k] + reach) : far);
    }
    const F* corners = (const F*)blocks;
    for (int first = 0; first < count; first += 8, corners += 6) {
        // Those that overlap a box around the balls of all lanes.
        wp::uint32 some = bits_of((lower[0] <= corners[3]) & (upper[0] >= corners[0])
            & (lower[1] <= corners[4]) & (upper[1] >= corners[1])
            & (lower[2] <= corners[5]) & (upper[2] >= corners[2]));
        if (count - first < 8) some &= (1u << (count - first)) - 1;
        for (; some; some &= some - 1) {
            const int i = __builtin_ctz(some);
            F square = {};
            for (int k = 0; k < 3; ++k) {
                const F outside = larger(larger(corners[k][i] - ball[k],
                    ball[k] - corners[3 + k][i]), F{});
                square += outside * outside;
            }
            if (any((square < square_of_reach) & asked)) near |= 1u << (first + i);
        }
    }
    return near;
"""
)
def boxes_near_lanes(
    blocks: wp.uint64, count: int, lanes: Lanes, index: int, bits: wp.uint32
) -> wp.uint32:
    """Which of the first boxes, `FEW` at most, are within reach of a ball in some of the lanes."""
    ...


# The signed distance of a shape from points in lanes: `height_over`.
SHAPE = """
    // Rotation and offset to the frame of the shape, from the world.
    wp::quat_t<wp::float32> turn = pose.q;
    wp::vec3 shift = pose.p - exact.center;
    if (exact.is_rotated) {
        turn = wp::mul(exact.rotation, turn);
        shift = wp::quat_rotate(exact.rotation, shift);
    }
    const auto rotation = wp::quat_to_matrix(turn);
    const wp::float32 x = exact.size[0], y = exact.size[1], z = exact.size[2];
    const int kind = exact.kind;
    const auto height_over = [&](const F* at) __attribute__((always_inline)) -> F {
        F p[3];
        for (int i = 0; i < 3; ++i)
            p[i] = at[0] * rotation.data[i][0] + at[1] * rotation.data[i][1]
                + at[2] * rotation.data[i][2] + shift[i];
        const F zero = {};
        if (kind == CUBOID) {
            const F a = size_of(p[0]) - x, b = size_of(p[1]) - y, c = size_of(p[2]) - z;
            const F deepest = larger(larger(a, b), c);
            const F u = larger(a, zero), v = larger(b, zero), w = larger(c, zero);
            return deepest > 0.0f ? root_of(u * u + v * v + w * w) : deepest;
        }
        if (kind == CYLINDER) {
            const F a = root_of(p[0] * p[0] + p[1] * p[1]) - x, c = size_of(p[2]) - z;
            const F deepest = larger(a, c);
            const F u = larger(a, zero), w = larger(c, zero);
            return deepest > 0.0f ? root_of(u * u + w * w) : deepest;
        }
        if (kind == CONE) {
            const wp::float32 side[2] = {2.0f * z / y, x / y};
            const F a = root_of(p[0] * p[0] + p[1] * p[1]), drop = p[2] - z, below = -z - p[2];
            const F over = side[0] * a + side[1] * drop, along = side[1] * a - side[0] * drop;
            const F foot = along < 0.0f ? zero : (along > y ? zero + y : along);
            const F off = a - side[1] * foot, rise = drop + side[0] * foot;
            const F beside = root_of(off * off + rise * rise);
            const I is_inside = (over <= 0.0f) & (below <= 0.0f);
            const I is_under = (below > 0.0f) & (a <= x);
            return is_inside ? larger(over, below) : (is_under ? below : beside);
        }
        if (kind == HALF_SPACE) return p[0] * x + p[1] * y + p[2] * z;
        const F along = larger(size_of(p[2]) - z, zero);
        return root_of(p[0] * p[0] + p[1] * p[1] + along * along) - x;
    };
"""
for _kind in (Shape.CUBOID, Shape.CYLINDER, Shape.CONE, Shape.HALF_SPACE):
    SHAPE = SHAPE.replace(_kind.name, str(int(_kind)))


@wp.func_native(
    FUSED
    + SHAPE
    + """
    const F* ball = (const F*)lanes.balls + 5 * index;
    return bits_of(~(height_over(ball) >= ball[3] + extra)) & bits;
"""
)
def balls_near_shape(
    exact: ExactShape, pose: wp.transform, lanes: Lanes, index: int, extra: float, bits: wp.uint32
) -> wp.uint32:
    """In which lanes the center of a ball is less than its reach above a shape.

    Args:
        exact: a shape with a formula.
        pose: to its mesh, from the world.
        lanes: with placed balls.
        index: of the ball.
        extra: what is added to the reach [m].
        bits: the lanes to check.
    """
    ...


@wp.func_native(
    FUSED
    + PLACE_SPHERES
    + SHAPE
    + """
    place_spheres(body, index);
    I hit = {}, open = {};
    const I asked = mask_of(bits);
    for (int s = body.begin; s < body.end; ++s) {
        const wp::float32 radius = ((const wp::float32*)robot.spheres)[4 * s + 3];
        if (radius < 0.0f) continue;
        const F gap = height_over((const F*)lanes.spheres + 3 * s) - padding - radius;
        hit |= gap < -margin;
        open |= ~(gap > margin);
        if (!any(asked & ~hit)) break;
    }
    const wp::uint32 certain = bits_of(hit) & bits;
    return certain | (bits_of(open) & bits & ~certain) << 8;
"""
)
def spheres_touch_shape(
    exact: ExactShape,
    pose: wp.transform,
    padding: float,
    robot: Robot,
    body: RobotBody,
    lanes: Lanes,
    index: int,
    margin: float,
    bits: wp.uint32,
) -> wp.uint32:
    """In which lanes spheres of a body touch a shape: the lower eight bits; behind them, may."""
    ...


@wp.func
def box_of(obstacle: Obstacle) -> ExactShape:
    """The box of a mesh, or of what a sensor saw, as a cuboid."""
    record = record_of(obstacle)
    half = 0.5 * (record.upper - record.lower) + wp.vec3(record.inside_reach)
    box = ExactShape()
    box.kind = Shape.CUBOID
    box.center = 0.5 * (record.lower + record.upper)
    box.size = half
    return box


@wp.func
def touches_in_lane(obstacle: Obstacle, query: BodyInLanes, lane: int) -> bool:
    """Whether an obstacle touches a body in one lane, by the scalar functions."""
    body = body_of(query.robot, query.index)
    pose = pose_of_lane(query.robot, query.lanes, lane, body.frame)
    resting = RestingBody(query.robot.spheres, body, pose, point_in_world(pose, body.center))
    return touches_body(obstacle, resting, False)


@wp.func_native("""
    typedef wp::float32 F __attribute__((vector_size(32), aligned(4)));
    const F* ball = (const F*)lanes.balls + 5 * index;
    return wp::vec3(ball[0][lane], ball[1][lane], ball[2][lane]);
""")
def ball_of_lane(lanes: Lanes, index: int, lane: int) -> wp.vec3:
    """Center of the ball of a body in one lane, within the slack."""
    ...


@wp.func
def may_touch_mesh(obstacle: Obstacle, query: BodyInLanes, margin: float, lane: int) -> bool:
    """Whether a mesh may touch the ball of a body; True for all but closed meshes."""
    record = record_of(obstacle)
    if record.exact.kind != Shape.MESH or record.inside_reach > 0.0:
        return True
    center = ball_of_lane(query.lanes, query.index, lane)
    point = wp.transform_point(obstacle.mesh_from_world, center)
    reach = body_of(query.robot, query.index).radius + 2.0 * margin
    return not (ball_distance(obstacle, point, reach) >= reach)


@wp.func
def lanes_free_of(obstacle: Obstacle, query: BodyInLanes, free: wp.uint32) -> wp.uint32:
    """Those of some lanes in which an obstacle does not touch a body."""
    lanes = query.lanes
    pose = obstacle.mesh_from_world
    shape_is_exact = is_exact(obstacle.record)
    shape = ExactShape()
    if shape_is_exact:
        shape = load_exact(obstacle.record)
    else:
        shape = box_of(obstacle)
    size = lanes.far + wp.length(wp.transform_get_translation(pose)) + wp.length(shape.center)
    size += wp.length(shape.size) + wp.abs(obstacle.padding)
    margin = lanes.slack + SHAPE_ROUNDING * size
    near = free
    if size < LARGEST_SIZE:
        near = balls_near_shape(shape, pose, lanes, query.index, obstacle.padding + margin, free)
    open = near
    if near != wp.uint32(0) and shape_is_exact and size < LARGEST_SIZE:
        body = body_of(query.robot, query.index)
        found = spheres_touch_shape(
            shape, pose, obstacle.padding, query.robot, body, lanes, query.index, margin, near
        )
        free &= ~found
        open = found >> wp.uint32(8)
    while open != wp.uint32(0):
        lane = lowest_bit(open)
        open &= open - wp.uint32(1)
        if shape_is_exact or may_touch_mesh(obstacle, query, margin, lane):
            if touches_in_lane(obstacle, query, lane):
                free &= ~(wp.uint32(1) << wp.uint32(lane))
    return free


@wp.func_native(
    FUSED
    + """
    const F* ball = (const F*)lanes.balls + 5 * index;
    const I asked = mask_of(bits);
    const F far = F{} + 3.0e38f;
    wp::vec3 middle;
    F square = {};
    for (int k = 0; k < 3; ++k) {
        const wp::float32 lower = lowest(asked ? ball[k] : far);
        const wp::float32 upper = -lowest(asked ? -ball[k] : far);
        middle[k] = 0.5f * (lower + upper);
        square += (ball[k] - middle[k]) * (ball[k] - middle[k]);
    }
    const wp::float32 radius = __builtin_reduce_max(asked ? root_of(square) + ball[3] : F{});
    return wp::vec4(middle[0], middle[1], middle[2], radius);
"""
)
def ball_around_lanes(lanes: Lanes, index: int, bits: wp.uint32) -> wp.vec4:
    """A ball around those of a body in some lanes, with their reach."""
    ...


def make_walk_in_lanes(visit, Query, is_over):
    """A device function that walks over the enabled obstacles near a body in some lanes.

    The first obstacles by their boxes in lanes; where there are more, by a ball around all lanes.

    Args:
        visit: see `make_walk`; of a query that has `lanes` and the `index` of a body.
        Query: see `make_walk`.
        is_over: see `make_walk`; the state is a uint32.
    """
    walk_many = make_walk(visit, Query, wp.uint32, is_over)

    def walk(
        query: Query, scene: Scene, env: int, begin: int, bits: wp.uint32, state: wp.uint32
    ) -> wp.uint32:
        """Visits all obstacles that may be within reach of the ball in some lanes, and more.

        Of a body whose spheres begin at ``begin``.
        """
        lanes = query.lanes
        slots = filled_slots(scene, env)
        tree = tree_of(scene, env)
        count = slots[1] - slots[0]
        if tree.bvh == wp.uint64(0) or count > FEW:
            ball = ball_around_lanes(lanes, query.index, bits)
            middle = wp.vec3(ball[0], ball[1], ball[2])
            return walk_many(scene, env, begin, middle, WIDEN * ball[3], query, state)
        few = boxes_near_lanes(tree.blocks, count, lanes, query.index, bits)
        while few != wp.uint32(0) and not is_over(state):
            slot = slots[0] + lowest_bit(few)
            few &= few - wp.uint32(1)
            if is_checked(scene, slot, begin):
                obstacle = load_obstacle(scene, slot)
                if obstacle.is_present:
                    state = visit(obstacle, query, state)
        return state

    return named(walk, f"{visit.key}_in_lanes")


@wp.func
def none_is_free(free: wp.uint32) -> bool:
    """Ends a walk."""
    return free == wp.uint32(0)


# Takes the lanes in which a body is free so far, twice, and returns those in which it is free.
free_lanes = make_walk_in_lanes(lanes_free_of, BodyInLanes, none_is_free)
