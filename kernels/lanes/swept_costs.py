"""Cost of moving spheres, to the bit as `swept_cost`: lanes tell which obstacles matter to which.

The scalar functions sweep those, in the order of the slots. What lanes leave out adds zeros.
"""

import warp as wp

from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.half_segments import Motion, SweepQuery, SweptCost, load_motion
from warp_collision.kernels.lanes.sphere_blocks import (
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
from warp_collision.kernels.mesh_record import ExactShape, is_exact, load_exact
from warp_collision.kernels.precision import FARTHEST
from warp_collision.kernels.scene_walk import Obstacle, Scene, env_of_row, is_env, load_obstacle
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

# Own vectors of a block, see `VECTORS`.
MOTION = """
    F& longest = own[0];
    I& near = (I&)own[1];  // bits of obstacles that may cost something
    (void)longest; (void)near;
"""


@wp.func_native(
    PREAMBLE
    + VECTORS
    + MOTION
    + LOAD
    + f"""
    longest = F{{}};
    const wp::uint64 pointers[2] = {{previous, following}};
    for (const wp::uint64 pointer : pointers) {{
        if (!pointer) continue;
        load(pointer, columns);
        const I is_there = ~(columns[3] < 0.0f);
        F change[3];
        for (int i = 0; i < 3; ++i) change[i] = columns[i] - center[i];
        const F length = root_of(square_of(change));
        longest = larger(longest, is_there ? length : F{{}});
        is_valid &= ~is_there | (square_of(columns) < {FARTHEST}f * {FARTHEST}f);
    }}
    longest = 0.5f * longest;
    reach = reach + longest;
    near = I{{}};
    const wp::uint32 valid = bits_of(is_valid), there = (1u << block.count) - 1;
    return (enabled & valid) | (there & ~valid) << 8;
"""
)
def load_motions(block: Block, previous: wp.uint64, following: wp.uint64) -> wp.uint32:
    """As `load_block`, with the centers at the neighbours; disabled ones that are not valid, too.

    Args:
        block: its vectors are written.
        previous: pointer to the first sphere at the waypoint before; 0: there is none.
        following: and at the one after.
    """
    ...


@wp.func_native(
    PREAMBLE
    + VECTORS
    + MOTION
    + SHAPE
    + PLACE.replace("COORDINATES", "from_origin + offset + 2.0f * longest")
    + f"""
    F normal[3];
    const F distance = shape_distance(local, normal);
    const F size = root_of(local[0] * local[0] + local[1] * local[1] + local[2] * local[2]);
    const F rounding = {MARGIN}f * (from_origin + offset + 2.0f * longest + size);
    return bits & ~bits_of((distance - rounding >= reach + padding) & is_known);
"""
)
def lanes_near_shape(
    exact: ExactShape, pose: wp.transform, padding: float, block: Block, bits: wp.uint32
) -> wp.uint32:
    """In which of some lanes a shape may cost something."""
    ...


@wp.func_native(PREAMBLE + VECTORS + MOTION + "near |= mask_of(bits) & (wp::int32)(1u << index);")
def add_near(block: Block, index: int, bits: wp.uint32):
    """Notes that an obstacle is near in some lanes."""
    ...


@wp.func_native(PREAMBLE + VECTORS + MOTION + "return (wp::uint32)near[lane];")
def near_lane(block: Block, lane: int) -> wp.uint32:
    """Bits of the obstacles that are near in a lane."""
    ...


@wp.func_native(PREAMBLE + VECTORS + MOTION + "return bits_of(near != 0);")
def lanes_near_any(block: Block) -> wp.uint32:
    """Lanes in which an obstacle is near."""
    ...


@wp.func
def note_if_near(obstacle: Obstacle, index: int, block: Block, bits: wp.uint32) -> wp.uint32:
    """Notes in which lanes an obstacle may cost something."""
    near = bits
    if is_exact(obstacle.record):
        exact = load_exact(obstacle.record)
        near = lanes_near_shape(exact, obstacle.mesh_from_world, obstacle.padding, block, bits)
    add_near(block, index, near)
    return wp.uint32(0)


find_near = make_walk_of_block(note_if_near)


@wp.func
def swept_cost_in_lane(
    block: Block,
    lane: int,
    scene: Scene,
    env: int,
    motion: Motion,
    tolerance: float,
    left: wp.uint32,
) -> SweptCost:
    """Sum of the costs against the obstacles near a lane, or all if it is one of those left."""
    eta = block.activation_distance
    if (left >> wp.uint32(lane)) % wp.uint32(2) == wp.uint32(1):
        return swept_cost_of(scene, env, motion, eta, tolerance)
    near = near_lane(block, lane)
    query = SweepQuery(motion, eta, tolerance)
    total = SweptCost()
    while near != wp.uint32(0):
        slot = env * scene.n_slots + lowest_bit(near)
        near &= near - wp.uint32(1)
        obstacle = load_obstacle(scene, slot)
        if obstacle.is_present:
            total = add_swept_cost(obstacle, query, total)
    return total


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
    vectors = wp.zeros(shape=(56,), dtype=wp.float32)
    block = Block()
    block.spheres = spheres_at(spheres, row, waypoint, first)
    block.vectors = memory_of(vectors)
    block.activation_distance = activation_distance[0]
    block.count = wp.min(LANES, spheres.shape[2] - first)
    previous = spheres_at(spheres, row, waypoint - 1, first)
    lanes = load_motions(block, previous, spheres_at(spheres, row, waypoint + 1, first))
    block.asked = lanes & wp.uint32(EIGHT)
    left = lanes >> wp.uint32(8)
    env = env_of_row(env_index, row)
    if block.asked != wp.uint32(0):
        if is_env(scene, env):
            left |= find_near(scene, env, first, block)
        else:
            left |= block.asked
    unknown = wp.uint32(left)
    left |= lanes_near_any(block)
    if scales_zero_to_zero(weight[0], dt, min_speed):
        store_zeros(block, row, waypoint, first, cost, gradient, neighbours, active)
    else:
        left = (wp.uint32(1) << wp.uint32(block.count)) - wp.uint32(1)
    while left != wp.uint32(0):
        lane = lowest_bit(left)
        left &= left - wp.uint32(1)
        motion = load_motion(spheres, row, waypoint, first + lane)
        swept = swept_cost_in_lane(block, lane, scene, env, motion, tolerance[0], unknown)
        result = scaled(swept, scale_of(motion, dt, min_speed, weight[0]))
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
