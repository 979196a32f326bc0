"""Cost of resting spheres in the lanes of vector instructions, to the bit as `sphere_cost`."""

import warp as wp

from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.lanes.sphere_blocks import (
    EIGHT,
    PLACE,
    SHAPE,
    VECTORS,
    Block,
    have_one_env,
    load_block,
    make_walk_of_block,
    memory_of,
    spheres_from,
)
from warp_collision.kernels.lanes.vectors import LANES, PREAMBLE
from warp_collision.kernels.mesh_record import ExactShape, is_exact, load_exact
from warp_collision.kernels.scene_walk import Obstacle, Scene, env_of_sphere, is_env
from warp_collision.kernels.sphere_cost import SphereCost, cost_of_sphere

wp.set_module_options(OPTIONS)

# The sums of a block, see `VECTORS`.
SUMS = """
    F& cost = own[0];
    F* const gradient = own + 1;
    F& by_radius = own[4];
    (void)cost; (void)gradient; (void)by_radius;
"""


@wp.func_native(
    PREAMBLE
    + VECTORS
    + SUMS
    + SHAPE
    + PLACE.replace("COORDINATES", "from_origin + offset")
    + """
    const I asked = mask_of(bits);
    F normal[3], term[3];
    const wp::uint32 unknown = bits_of(~is_known) & bits;
    const F distance = shape_distance(local, term);
    const F depth = reach + padding - distance;
    const I is_hit = asked & (distance < reach + padding) & (depth > 0.0f);
    if (!any(is_hit)) return unknown;
    shape_distance(local, normal);  // here alone the gradient takes time
    turn_back(normal);
    const I is_square = depth <= eta;
    const F slope = is_square ? depth / eta : one;
    const F value = is_square ? 0.5f * depth * slope : depth - 0.5f * eta;
    for (int i = 0; i < 3; ++i) normal[i] = normal[i] * -slope;
    rotate(pose.q, normal, -1.0f, term);
    cost += is_hit ? value : zero;
    by_radius += is_hit ? slope : zero;
    for (int i = 0; i < 3; ++i) gradient[i] += is_hit ? term[i] : zero;
    return unknown;
"""
)
def add_costs_of_shape(
    exact: ExactShape, pose: wp.transform, padding: float, block: Block, bits: wp.uint32
) -> wp.uint32:
    """Adds the costs against a shape in some lanes; returns those in which it is not known."""
    ...


@wp.func
def add_costs_of(obstacle: Obstacle, index: int, block: Block, bits: wp.uint32) -> wp.uint32:
    """As `add_costs_of_shape`, of any obstacle."""
    if not is_exact(obstacle.record):
        return bits
    exact = load_exact(obstacle.record)
    return add_costs_of_shape(exact, obstacle.mesh_from_world, obstacle.padding, block, bits)


add_costs = make_walk_of_block(add_costs_of)


@wp.func_native(
    PREAMBLE
    + VECTORS
    + SUMS
    + """
    for (int i = 0; i < 3; ++i) gradient[i][lane] = found.center[i];
    cost[lane] = found.cost;
    by_radius[lane] = found.radius;
"""
)
def set_lane(block: Block, lane: int, found: SphereCost):
    """Replaces the sums of a lane."""
    ...


@wp.func_native(
    PREAMBLE
    + VECTORS
    + SUMS
    + """
    const F value = weight * cost;
    for (int lane = 0; lane < block.count; ++lane) costs.data[first + lane] = value[lane];
    if (gradients.shape[0] > 0) {
        const F columns[4] = {weight * gradient[0], weight * gradient[1], weight * gradient[2],
            weight * by_radius};
        wp::float32* const rows = (wp::float32*)(gradients.data + first);
        for (int lane = 0; lane < block.count; ++lane)
            for (int i = 0; i < 4; ++i) rows[4 * lane + i] = columns[i][lane];
    }
    if (active.shape[0] > 0)
        for (int lane = 0; lane < block.count; ++lane)
            active.data[first + lane] = value[lane] == 0.0f ? 0 : 1;
"""
)
def store_block(
    block: Block,
    weight: float,
    first: int,
    costs: wp.array[wp.float32],
    gradients: wp.array[wp.vec4],
    active: wp.array[wp.uint8],
):
    """Writes the outputs of the kernel."""
    ...


@wp.kernel
def sphere_costs(
    # operands
    spheres: wp.array[wp.vec4],  # (n,) of all batch rows and waypoints: x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    launch_offset: wp.vec2i,  # of this launch in the blocks
    # outputs
    cost: wp.array[wp.float32],  # (n,)
    gradient: wp.array[wp.vec4],  # (n,) d cost / d (x, y, z, radius), or empty
    active: wp.array[wp.uint8],  # (n,) 1 where the cost is not 0, or empty
):
    """As `sphere_cost`, with one thread for eight spheres."""
    _row, thread = wp.tid()
    first = (thread + launch_offset[1]) * LANES
    count = wp.min(LANES, spheres.shape[0] - first)
    env = env_of_sphere(env_index, first, spheres.shape[0])
    vectors = wp.zeros(shape=(80,), dtype=wp.float32)
    eta = activation_distance[0]
    block = Block(spheres_from(spheres, first), memory_of(vectors), eta, count, wp.uint32(0))
    lanes = load_block(block)
    block.asked = lanes & wp.uint32(EIGHT)
    unknown = lanes >> wp.uint32(8)
    if is_env(scene, env) and have_one_env(env_index, first, count, spheres.shape[0]):
        if block.asked != wp.uint32(0):
            unknown |= add_costs(scene, env, first, block)
    else:
        unknown |= block.asked
    while unknown != wp.uint32(0):
        lane = lowest_bit(unknown)
        unknown &= unknown - wp.uint32(1)
        own = env_of_sphere(env_index, first + lane, spheres.shape[0])
        found = cost_of_sphere(scene, own, first + lane, spheres[first + lane], eta)
        set_lane(block, lane, found)
    store_block(block, weight[0], first, cost, gradient, active)
