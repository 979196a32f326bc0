"""Cost of moving spheres in the lanes of vector instructions, to the bit as `swept_cost`.

Most distances of shapes with a formula fall or rise along all of a half segment: the smallest one
is at an end, where lanes take it. The scalar functions sweep what is left, in the order of the
slots. Half segments that tangents keep farther away than matters add zeros.
"""

import warp as wp

from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.half_segments import (
    SLIGHTLY,
    Motion,
    SweepQuery,
    SweptCost,
    load_motion,
)
from warp_collision.kernels.lanes.sphere_blocks import (
    COMMON,
    EIGHT,
    LOAD,
    PLACE,
    SHAPE,
    VECTORS,
    Block,
    make_walk_of_block,
    memory_of,
    spheres_at,
)
from warp_collision.kernels.lanes.vectors import LANES, PREAMBLE
from warp_collision.kernels.mesh_record import ROUNDING, ExactShape, MeshRecord, is_exact
from warp_collision.kernels.precision import FARTHEST
from warp_collision.kernels.scene_walk import Obstacle, Scene, env_of_row, is_env
from warp_collision.kernels.sweep import PATH_ROUNDING
from warp_collision.kernels.swept_cost import (
    add_swept_cost,
    gathered,
    mat23,
    scale_of,
    scaled,
    store_cost,
    swept_cost_of,
)

wp.set_module_options(OPTIONS)

# Bound of the rounding of a distance, and of how far from it a sweep may round its own, relative to
# all coordinates: 80 units of float32, of which each takes a dozen operations.
MARGIN = 1.0e-5
# Weights, times and speeds between which no product of them over- or underflows.
SMALLEST, GREATEST = wp.constant(1.0e-9), wp.constant(1.0e9)

# Own vectors of a block, see `VECTORS`: the motions, and the sums of their costs.
BEFORE, AFTER, TOLERANCE, COST, BY_RADIUS = map(wp.constant, (0, 3, 8, 9, 10))
BY_BEFORE, BY_CENTER, BY_AFTER = map(wp.constant, (11, 14, 17))
MOTION = f"""
    F* const neighbours[2] = {{own + {BEFORE}, own + {AFTER}}};  // their centers
    F& touching = own[6];  // radius and activation distance
    F& longest = own[7];
    wp::float32& tolerance = (wp::float32&)own[{TOLERANCE}];
    F& cost = own[{COST}];
    F& by_radius = own[{BY_RADIUS}];
    F* const by_centers = own + {BY_BEFORE};  // before, here, after
    (void)neighbours; (void)touching; (void)longest; (void)tolerance; (void)cost; (void)by_radius;
    (void)by_centers;
"""
FLOATS = wp.constant(LANES * (COMMON + 20))  # of all vectors of a block


@wp.func_native(
    PREAMBLE
    + VECTORS
    + MOTION
    + LOAD
    + f"""
    longest = F{{}};
    const wp::uint64 pointers[2] = {{previous, following}};
    for (int side = 0; side < 2; ++side) {{
        for (int i = 0; i < 3; ++i) neighbours[side][i] = center[i];
        if (!pointers[side]) continue;
        load(pointers[side], columns);
        const I is_there = ~(columns[3] < 0.0f);
        F change[3];
        for (int i = 0; i < 3; ++i) {{
            change[i] = columns[i] - center[i];
            neighbours[side][i] = is_there ? columns[i] : center[i];
        }}
        const F length = root_of(square_of(change));
        longest = larger(longest, is_there ? length : F{{}});
        is_valid &= ~is_there | (square_of(columns) < {FARTHEST}f * {FARTHEST}f);
    }}
    longest = 0.5f * longest;
    touching = reach;
    reach = reach + longest;
    tolerance = most;
    const wp::uint32 valid = bits_of(is_valid), there = (1u << block.count) - 1;
    return (enabled & valid) | (there & ~valid) << 8;
"""
)
def load_motions(block: Block, previous: wp.uint64, following: wp.uint64, most: float) -> wp.uint32:
    """As `load_block`, with the centers at the neighbours; disabled ones that are not valid, too.

    Args:
        block: its vectors are written; the sums are zeros.
        previous: pointer to the first sphere at the waypoint before; 0: there is none.
        following: and at the one after.
        most: sweep tolerance [m].
    """
    ...


# The sweep of both half segments, as `make_cost` and `sweep` do it for a convex shape, where they
# take the distance at the waypoint or at the end. That is where it falls or rises all the way, and
# where what a box would cut off does not matter. `is_left` are the lanes in which it may.
SWEEP = f"""
    const F reach_here = touching + padding;
    const F from_origin_here = root_of(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]);
    F ends[2][3];
    for (int side = 0; side < 2; ++side) in_obstacle(neighbours[side], ends[side]);
    const auto dot = [](const F* a, const F* b) __attribute__((always_inline)) -> F {{
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    }};
    const auto is_in_box = [&](const F* point, F margin) __attribute__((always_inline)) -> I {{
        I is_in = point[0] == point[0];
        for (int i = 0; i < 3; ++i)
            is_in &= (lower[i] - margin < point[i]) & (point[i] < upper[i] + margin);
        return is_in;
    }};
    // The half that is swept first, see `is_before`.
    I is_swapped = neighbours[1][2] < neighbours[0][2];
    for (int i = 1; i >= 0; --i)
        is_swapped = neighbours[1][i] != neighbours[0][i]
            ? neighbours[1][i] < neighbours[0][i] : is_swapped;
    F least = zero + __builtin_inff(), limit = reach_here, share = zero, force[3];
    I is_left = near & ~is_known, is_backward = near;
    for (int i = 0; i < 3; ++i) force[i] = normal[i];
    for (int index = 0; index < 2; ++index) {{
        const I is_before = is_swapped == (index ? -1 : 0);
        F direction[3], end[3], end_normal[3];
        for (int i = 0; i < 3; ++i) direction[i] = (is_before ? ends[0][i] : ends[1][i]) - at[i];
        const F segment = root_of(dot(direction, direction)), half = 0.5f * segment;
        for (int i = 0; i < 3; ++i) {{
            direction[i] = segment > 0.0f ? direction[i] / segment : zero;
            end[i] = at[i] + half * direction[i];
        }}
        const F slope = dot(normal, direction), fall = slope < 0.0f ? slope * half : zero;
        const F cutoff = least < reach_here ? least : reach_here;
        const I matters = near & ~(distance + fall - rounding >= cutoff);
        if (!any(matters)) continue;
        const I ends_in_box = is_in_box(end, limit), is_whole = is_in_box(at, limit)
            & (distance < limit + half) & (from_origin_here > 0.0f);
        const I takes_start = (slope >= 0.0f) | (ends_in_box & (distance + slope * half >= limit))
            | (zero + (__builtin_isinf(tolerance) ? 1.0f : 0.0f) > zero);
        I takes_end = matters & ~takes_start;
        F end_distance = distance;
        if (any(takes_end)) {{
            end_distance = distance_at(end, end_normal);
            const F lowest = distance < limit ? distance : limit;
            const F floor = lowest - 2.0f * ({PATH_ROUNDING}f * (from_origin_here + half));
            const F proven = distance - floor;
            F to_start[3], nearest[3];  // a point of the surface, which limits the search
            for (int i = 0; i < 3; ++i) {{
                nearest[i] = at[i] - distance * normal[i];
                to_start[i] = nearest[i] - end[i];
            }}
            const F search = root_of(dot(to_start, to_start)) * 1.001f + {ROUNDING}f
                * (root_of(dot(nearest, nearest)) + root_of(dot(end, end)));
            takes_end &= ends_in_box & ((distance < limit) | (proven < half))
                & (end_distance < larger(floor + (half - proven), lowest))
                & (end_distance < search) & (end_distance < distance)
                & (dot(end_normal, direction) <= 0.0f);
        }}
        is_left |= matters & ~((takes_start | takes_end) & is_whole);
        const F found = takes_end ? end_distance : distance;
        const I is_lower = matters & ~(found >= least);
        const F above = found + {SLIGHTLY}f * size_of(found) + tolerance;
        least = is_lower ? found : least;
        limit = is_lower ? (above < reach_here ? above : reach_here) : limit;
        share = is_lower ? (takes_end ? zero + 0.5f : zero) : share;
        is_backward = is_lower ? is_before : is_backward;
        for (int i = 0; i < 3; ++i)
            force[i] = is_lower ? (takes_end ? end_normal[i] : normal[i]) : force[i];
    }}
"""


# Adds the costs of the smallest distances, and their gradients, as `make_cost` has them.
ADD = """
    const F depth = reach_here - least;
    const I is_hit = near & ~is_left & (least < reach_here) & (depth > 0.0f);
    if (any(is_hit)) {
        const I is_square = depth <= eta;
        const F slope = is_square ? depth / eta : one;
        F pushed[3];
        for (int i = 0; i < 3; ++i) force[i] = force[i] * -slope;
        rotate(pose.q, force, -1.0f, pushed);
        cost += is_hit ? (is_square ? 0.5f * depth * slope : depth - 0.5f * eta) : zero;
        by_radius += is_hit ? slope : zero;
        for (int i = 0; i < 3; ++i) {
            const F shared = share * pushed[i];
            const F before = is_backward ? shared : zero, after = is_backward ? zero : shared;
            by_centers[i] += is_hit ? before : zero;
            by_centers[3 + i] += is_hit ? pushed[i] - before - after : zero;
            by_centers[6 + i] += is_hit ? after : zero;
        }
    }
    return bits_of(is_left);
"""


@wp.func_native(
    PREAMBLE
    + VECTORS
    + MOTION
    + SHAPE
    + PLACE.replace("COORDINATES", "1.0001f * (from_origin + offset + 2.0f * longest)")
    + f"""
    F normal[3];
    const auto distance_at = [&](const F* point, F* gradient) -> F {{
        F moved[3];
        in_shape(point, moved);
        const F found = shape_distance(moved, gradient);
        turn_back(gradient);
        return found;
    }};
    const F distance = distance_at(at, normal);
    const F size = root_of(local[0] * local[0] + local[1] * local[1] + local[2] * local[2]);
    const F rounding = {MARGIN}f * (from_origin + offset + 2.0f * longest + size);
    const I near = mask_of(bits) & ~((distance - rounding >= reach + padding) & is_known);
    if (!any(near)) return 0;
"""
    + SWEEP
    + ADD
)
def add_swept_costs_of_shape(
    exact: ExactShape,
    pose: wp.transform,
    padding: float,
    lower: wp.vec3,
    upper: wp.vec3,
    block: Block,
    bits: wp.uint32,
) -> wp.uint32:
    """Adds the costs against a shape in some lanes; returns those in which it is not known.

    Args:
        exact: the shape.
        pose: mesh_from_world.
        padding: of the obstacle [m].
        lower: corners of its bounding box [m].
        upper: the other one.
        block: with its motions.
        bits: the lanes.
    """
    ...


@wp.func_native(PREAMBLE + VECTORS + "return own[vector][lane];")
def number_in_lane(block: Block, vector: int, lane: int) -> float:
    """Of an own vector of a block."""
    ...


@wp.func
def vector_in_lane(block: Block, first: int, lane: int) -> wp.vec3:
    """Of three own vectors."""
    return wp.vec3(
        number_in_lane(block, first, lane),
        number_in_lane(block, first + 1, lane),
        number_in_lane(block, first + 2, lane),
    )


@wp.func
def query_in_lane(block: Block, lane: int) -> SweepQuery:
    """The motion of a lane, for the scalar functions."""
    sphere = wp.array(ptr=block.spheres, shape=(LANES,), dtype=wp.vec4)[lane]
    motion = Motion()
    motion.center = wp.vec3(sphere[0], sphere[1], sphere[2])
    motion.radius = sphere[3]
    motion.previous = vector_in_lane(block, BEFORE, lane)
    motion.following = vector_in_lane(block, AFTER, lane)
    # A neighbour at the center counts as little as one that there is not.
    motion.has_previous = not (motion.previous == motion.center)
    motion.has_following = not (motion.following == motion.center)
    return SweepQuery(motion, block.activation_distance, number_in_lane(block, TOLERANCE, 0))


@wp.func
def swept_in_lane(block: Block, lane: int) -> SweptCost:
    """The sums of a lane."""
    swept = SweptCost()
    swept.cost = number_in_lane(block, COST, lane)
    swept.radius = number_in_lane(block, BY_RADIUS, lane)
    swept.previous = vector_in_lane(block, BY_BEFORE, lane)
    swept.center = vector_in_lane(block, BY_CENTER, lane)
    swept.following = vector_in_lane(block, BY_AFTER, lane)
    return swept


@wp.func_native(
    PREAMBLE
    + VECTORS
    + MOTION
    + """
    cost[lane] = swept.cost;
    by_radius[lane] = swept.radius;
    for (int i = 0; i < 3; ++i) {
        by_centers[i][lane] = swept.previous[i];
        by_centers[3 + i][lane] = swept.center[i];
        by_centers[6 + i][lane] = swept.following[i];
    }
"""
)
def set_lane(block: Block, lane: int, swept: SweptCost):
    """Replaces the sums of a lane."""
    ...


@wp.func_native(
    PREAMBLE + VECTORS + MOTION + "return bits_of((cost != 0.0f) | (by_radius != 0.0f));"
)
def lanes_with_cost(block: Block) -> wp.uint32:
    """Lanes whose sums are not zeros."""
    ...


@wp.func
def add_swept_costs_of(obstacle: Obstacle, index: int, block: Block, bits: wp.uint32) -> wp.uint32:
    """Adds the costs against any obstacle in some lanes, by scalar functions where they must."""
    left = bits
    if is_exact(obstacle.record):
        record = wp.array(ptr=obstacle.record, shape=(1,), dtype=MeshRecord)
        if record[0].inside_reach == 0.0:
            left = add_swept_costs_of_shape(
                record[0].exact,
                obstacle.mesh_from_world,
                obstacle.padding,
                record[0].lower,
                record[0].upper,
                block,
                bits,
            )
    while left != wp.uint32(0):
        lane = lowest_bit(left)
        left &= left - wp.uint32(1)
        total = add_swept_cost(obstacle, query_in_lane(block, lane), swept_in_lane(block, lane))
        set_lane(block, lane, total)
    return wp.uint32(0)


add_swept_costs = make_walk_of_block(add_swept_costs_of)


@wp.func
def add_swept_costs_of_env(scene: Scene, env: int, first: int, block: Block) -> wp.uint32:
    """Adds the costs against all obstacles; returns lanes that the scalar functions are to do."""
    if not is_env(scene, env):
        return block.asked
    return add_swept_costs(scene, env, first, block)


@wp.func
def is_between(value: float) -> bool:
    """Whether products of such numbers are finite, and positive."""
    return value >= SMALLEST and value <= GREATEST


@wp.func
def scales_zero_to_zero(
    weight: float, dt: wp.array[wp.float32], min_speed: wp.array[wp.float32]
) -> bool:
    """Whether `scaled` makes zeros of a cost of 0 and its gradient, of any valid motion."""
    if not is_between(weight):
        return False
    if dt.shape[0] == 0:
        return True
    return is_between(dt[0]) and (min_speed.shape[0] == 0 or is_between(min_speed[0]))


@wp.func_native("""
    const wp::uint64 size = block.count;
    __builtin_memset(&wp::index(cost, row, waypoint, first), 0, 4 * size);
    if (gradient.shape[0] > 0) {
        __builtin_memset(&wp::index(gradient, row, waypoint, first), 0, 16 * size);
        __builtin_memset(&wp::index(neighbours, row, waypoint, first), 0, 24 * size);
    }
    if (active.shape[0] > 0) __builtin_memset(&wp::index(active, row, waypoint, first), 0, size);
""")
def store_zeros(
    block: Block,
    row: int,
    waypoint: int,
    first: int,
    cost: wp.array3d[wp.float32],
    gradient: wp.array3d[wp.vec4],
    neighbours: wp.array3d[mat23],
    active: wp.array3d[wp.uint8],
):
    """Writes the outputs of spheres that cost nothing."""
    ...


@wp.kernel
def swept_costs(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    tolerance: wp.array[wp.float32],  # (1,) [m]
    dt: wp.array[wp.float32],  # (1,) [s] or empty, see `swept_cost`
    min_speed: wp.array[wp.float32],  # (1,) [m/s] or empty
    launch_offset: wp.vec3i,  # of this launch in the blocks
    # outputs
    cost: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
    gradient: wp.array3d[wp.vec4],  # d cost / d (x, y, z, radius) of this waypoint, or empty
    neighbours: wp.array3d[mat23],  # d cost / d center at the waypoint before and after
    active: wp.array3d[wp.uint8],  # 1 where the cost is not 0, or empty
):
    """As `swept_cost`, with one thread for eight spheres of a waypoint."""
    row, waypoint, thread = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    first = (thread + launch_offset[2]) * LANES
    vectors = wp.zeros(shape=(FLOATS,), dtype=wp.float32)
    block = Block()
    block.spheres = spheres_at(spheres, row, waypoint, first)
    block.vectors = memory_of(vectors)
    block.activation_distance = activation_distance[0]
    block.count = wp.min(LANES, spheres.shape[2] - first)
    previous = spheres_at(spheres, row, waypoint - 1, first)
    following = spheres_at(spheres, row, waypoint + 1, first)
    lanes = load_motions(block, previous, following, tolerance[0])
    block.asked = lanes & wp.uint32(EIGHT)
    left = lanes >> wp.uint32(8)
    env = env_of_row(env_index, row)
    if block.asked != wp.uint32(0):
        left |= add_swept_costs_of_env(scene, env, first, block)
    while left != wp.uint32(0):
        lane = lowest_bit(left)
        left &= left - wp.uint32(1)
        motion = load_motion(spheres, row, waypoint, first + lane)
        swept = swept_cost_of(scene, env, motion, block.activation_distance, tolerance[0])
        set_lane(block, lane, swept)
    left = lanes_with_cost(block)
    if scales_zero_to_zero(weight[0], dt, min_speed):
        store_zeros(block, row, waypoint, first, cost, gradient, neighbours, active)
    else:
        left = (wp.uint32(1) << wp.uint32(block.count)) - wp.uint32(1)
    while left != wp.uint32(0):
        lane = lowest_bit(left)
        left &= left - wp.uint32(1)
        motion = load_motion(spheres, row, waypoint, first + lane)
        result = scaled(swept_in_lane(block, lane), scale_of(motion, dt, min_speed, weight[0]))
        store_cost(result, row, waypoint, first + lane, cost, gradient, neighbours)
        if active.shape[0] > 0:
            is_free = result.cost == 0.0
            active[row, waypoint, first + lane] = wp.where(is_free, wp.uint8(0), wp.uint8(1))


@wp.func_native("""
    typedef wp::uint32 word __attribute__((may_alias));
    word bits = 0, infinite = 0;
    const auto read = [&](int index) {
        if (index < 0 || index >= gradient.shape[1]) return;
        const word* rows = (const word*)&wp::index(neighbours, row, index, first);
        if (index == waypoint) rows = (const word*)&wp::index(gradient, row, index, first);
        for (int i = 0; i < (index == waypoint ? 4 : 6) * count; ++i) bits |= rows[i];
        if (upstream.shape[0] == 0) return;
        const word* factors = (const word*)&wp::index(upstream, row, index, first);
        for (int i = 0; i < count; ++i) infinite |= (factors[i] & 0x7f800000) == 0x7f800000;
    };
    for (int index = waypoint - 1; index < waypoint + 2; ++index) read(index);
    if (bits || infinite) return false;
    if (total.data != gradient.data)
        __builtin_memset(&wp::index(total, row, waypoint, first), 0, 16 * count);
    return true;
""")
def leaves_zeros(
    upstream: wp.array3d[wp.float32],
    gradient: wp.array3d[wp.vec4],
    neighbours: wp.array3d[mat23],
    total: wp.array3d[wp.vec4],
    row: int,
    waypoint: int,
    first: int,
    count: int,
) -> bool:
    """Whether all that spheres gather is 0 times finite numbers: then so are their gradients."""
    ...


@wp.kernel
def swept_vjp_of_eight(
    # operands
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost; empty: ones
    gradient: wp.array3d[wp.vec4],  # as `swept_costs` writes them
    neighbours: wp.array3d[mat23],
    # outputs
    total: wp.array3d[wp.vec4],  # d loss / d (x, y, z, radius); may be `gradient` itself
):
    """As `swept_vjp`, with one thread for eight spheres of a waypoint: most cost nothing."""
    row, waypoint, thread = wp.tid()
    first = thread * LANES
    count = wp.min(LANES, gradient.shape[2] - first)
    if leaves_zeros(upstream, gradient, neighbours, total, row, waypoint, first, count):
        return
    for index in range(first, first + count):
        total[row, waypoint, index] = gathered(upstream, gradient, neighbours, row, waypoint, index)
