"""Cost of resting spheres, eight in the lanes of vector instructions, to the bit as `sphere_cost`.

Lanes do what the scalar functions do, in the same order, so that nothing is rounded in another way.
Spheres near what has no formula, with many obstacles, or far from the origin are left to these.
"""

import warp as wp

from warp_collision.kernels.box_blocks import FEW, lowest_bit
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.lanes.vectors import LANES, PREAMBLE
from warp_collision.kernels.mesh_record import FAR, ExactShape, Shape, is_exact, load_exact
from warp_collision.kernels.precision import FARTHEST, LARGEST, NEGLIGIBLE, ROUND_OFF
from warp_collision.kernels.scene_walk import (
    Scene,
    env_of_sphere,
    filled_slots,
    is_checked,
    is_enabled,
    is_env,
    load_obstacle,
    tree_of,
)
from warp_collision.kernels.shape_distance import POINT
from warp_collision.kernels.sphere_cost import SphereCost, cost_of_sphere

wp.set_module_options(OPTIONS)

EIGHT = wp.constant(0xFF)


@wp.struct
class Block:
    """Eight spheres."""

    spheres: wp.uint64  # pointer to vec4
    vectors: wp.uint64  # to 10 vectors: center, reach, its distance from the origin, sums
    activation_distance: float
    count: int  # of spheres
    asked: wp.uint32  # lanes that are enabled and valid


# What the native functions begin with: the vectors of a block, at names of their own.
VECTORS = """
    F* const vectors = (F*)block.vectors;
    F* const center = vectors;
    F& reach = vectors[3];
    F& from_origin = vectors[4];
    F& cost = vectors[5];
    F* const gradient = vectors + 6;
    F& by_radius = vectors[9];
    const wp::float32 eta = block.activation_distance;
    (void)center; (void)reach; (void)from_origin; (void)cost; (void)gradient; (void)by_radius;
    (void)eta;
"""


@wp.func_native("return (wp::uint64)(a.data + first);")
def spheres_from(a: wp.array[wp.vec4], first: int) -> wp.uint64:
    """Pointer to a sphere."""
    ...


@wp.func_native("return (wp::uint64)a.data;")
def memory_of(a: wp.array[wp.float32]) -> wp.uint64:
    """Pointer to numbers."""
    ...


@wp.func_native(
    PREAMBLE
    + VECTORS
    + f"""
    const wp::float32* const rows = (const wp::float32*)block.spheres;
    const wp::float32* row[8];  // behind the last one that one again
    for (int i = 0; i < 8; ++i) row[i] = rows + 4 * (i < block.count ? i : block.count - 1);
    F columns[4];
    for (int i = 0; i < 4; ++i)
        columns[i] = F{{row[0][i], row[1][i], row[2][i], row[3][i], row[4][i], row[5][i], row[6][i],
            row[7][i]}};
    const F radius = columns[3];
    for (int i = 0; i < 3; ++i) center[i] = columns[i];
    reach = radius + eta;
    const F square = columns[0] * columns[0] + columns[1] * columns[1] + columns[2] * columns[2];
    from_origin = root_of(square);
    cost = by_radius = gradient[0] = gradient[1] = gradient[2] = F{{}};
    const I is_valid = (square < {FARTHEST}f * {FARTHEST}f) & (radius <= {LARGEST}f)
        & (I{{}} - (eta >= 0.0f && eta <= {LARGEST}f));
    const wp::uint32 there = (1u << block.count) - 1;
    const wp::uint32 enabled = bits_of(~(radius < 0.0f)) & there;
    const wp::uint32 valid = bits_of(is_valid);
    return (enabled & valid) | (enabled & ~valid) << 8;
"""
)
def load_block(block: Block) -> wp.uint32:
    """Loads eight spheres; returns those that are enabled and valid, and behind them the others."""
    ...


@wp.func_native(
    PREAMBLE
    + VECTORS
    + """
    const F far = F{} + 3.0e38f;
    const I asked = mask_of(block.asked);
    wp::float32 lower[3], upper[3];
    for (int k = 0; k < 3; ++k) {
        lower[k] = lowest(asked ? center[k] - reach : far);
        upper[k] = -lowest(asked ? -(center[k] + reach) : far);
    }
    wp::uint32 near = 0;
    const F* corners = (const F*)blocks;
    for (int first = 0; first < count; first += 8, corners += 6)
        near |= bits_of((lower[0] <= corners[3]) & (upper[0] >= corners[0])
            & (lower[1] <= corners[4]) & (upper[1] >= corners[1])
            & (lower[2] <= corners[5]) & (upper[2] >= corners[2])) << first;
    return near & (wp::uint32)((1ull << count) - 1);
"""
)
def boxes_near_block(blocks: wp.uint64, count: int, block: Block) -> wp.uint32:
    """Which of the first boxes, `FEW` at most, overlap a box around all lanes, as bits."""
    ...


@wp.func_native(
    PREAMBLE
    + VECTORS
    + """
    const F* corners = (const F*)blocks + 6 * (index / 8);
    const int i = index % 8;
    I near = mask_of(block.asked);
    for (int k = 0; k < 3; ++k)
        near &= (center[k] - reach <= corners[3 + k][i]) & (center[k] + reach >= corners[k][i]);
    return bits_of(near);
"""
)
def lanes_near_box(blocks: wp.uint64, index: int, block: Block) -> wp.uint32:
    """In which lanes the box around a sphere overlaps one of the first boxes."""
    ...


# Rotations as of Warp, and the distance and gradient of `shape_distance`.
SHAPE = """
    const auto rotate = [](const wp::quat_t<wp::float32>& q, const F* x, wp::float32 way, F* result)
            __attribute__((always_inline)) {
        const wp::float32 c = 2.0f * q.w * q.w - 1.0f;
        const F d = 2.0f * (q.x * x[0] + q.y * x[1] + q.z * x[2]);
        const F u = (q.y * x[2] - q.z * x[1]) * q.w * 2.0f;
        const F v = (q.z * x[0] - q.x * x[2]) * q.w * 2.0f;
        const F w = (q.x * x[1] - q.y * x[0]) * q.w * 2.0f;
        result[0] = x[0] * c + q.x * d + way * u;
        result[1] = x[1] * c + q.y * d + way * v;
        result[2] = x[2] * c + q.z * d + way * w;
    };
    const F zero = {}, one = zero + 1.0f;
    // A cuboid, of which a half edge may be without end.
    const auto cuboid = [&](const F* half, const F* p, F* normal) __attribute__((always_inline)) {
        F beyond[3], outside[3];
        for (int i = 0; i < 3; ++i) {
            beyond[i] = size_of(p[i]) - half[i];
            outside[i] = larger(beyond[i], zero);
        }
        const F deepest = larger(larger(beyond[0], beyond[1]), beyond[2]);
        const F length = root_of(outside[0] * outside[0] + outside[1] * outside[1]
            + outside[2] * outside[2]);
        const I is_outside = deepest > TINY;
        const I is_x = beyond[0] == deepest, is_y = ~is_x & (beyond[1] == deepest);
        const F along[3] = {is_x ? one : zero, is_y ? one : zero, is_x | is_y ? zero : one};
        for (int i = 0; i < 3; ++i) {
            const F n = is_outside ? outside[i] / length : along[i];
            normal[i] = p[i] < 0.0f ? -n : n;
        }
        return is_outside ? length : deepest;
    };
    const auto shape_distance = [&](const F* p, F* normal) __attribute__((always_inline)) -> F {
        const wp::float32 x = exact.size[0], y = exact.size[1], z = exact.size[2];
        if (exact.kind == CUBOID) {
            const F half[3] = {zero + x, zero + y, zero + z};
            return cuboid(half, p, normal);
        }
        if (exact.kind == HALF_SPACE) {
            for (int i = 0; i < 3; ++i) normal[i] = zero + exact.size[i];
            return x * p[0] + y * p[1] + z * p[2];
        }
        if (exact.kind == CYLINDER) {
            const F across = root_of(p[0] * p[0] + p[1] * p[1]);
            const I has_side = across > TINY;
            const F half[3] = {zero + x, zero + ENDLESS, zero + z}, at[3] = {across, zero, p[2]};
            const F distance = cuboid(half, at, normal);
            const F outward = normal[0];
            normal[0] = outward * (has_side ? p[0] / across : one);
            normal[1] = outward * (has_side ? p[1] / across : zero);
            return distance;
        }
        const F up = p[2] < -z ? zero - z : (p[2] > z ? zero + z : p[2]);
        const F at[3] = {p[0], p[1], p[2] - up};
        const F length = root_of(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]);
        const I is_off = length > TINY;
        for (int i = 0; i < 3; ++i) normal[i] = is_off ? at[i] / length : (i ? zero : one);
        return length - x;
    };
"""
for _kind in (Shape.CUBOID, Shape.CYLINDER, Shape.HALF_SPACE):
    SHAPE = SHAPE.replace(f"== {_kind.name}", f"== {int(_kind)}")
SHAPE = SHAPE.replace("TINY", f"{POINT}f").replace("ENDLESS", f"{FAR}f")


@wp.func_native(
    PREAMBLE
    + VECTORS
    + SHAPE
    + f"""
    const I asked = mask_of(bits);
    // Far from the origin rounding counts; see `uncertainty`.
    const wp::float32 offset = wp::sqrt(wp::dot(pose.p, pose.p));
    const wp::float32 negligible = eta > {NEGLIGIBLE}f ? eta : {NEGLIGIBLE}f;
    const I is_known = {ROUND_OFF}f * (from_origin + offset) <= negligible;
    F at[3], local[3], normal[3], term[3];
    rotate(pose.q, center, 1.0f, at);
    for (int i = 0; i < 3; ++i) at[i] = at[i] + pose.p[i];
    const I is_near = at[0] * at[0] + at[1] * at[1] + at[2] * at[2] < {FARTHEST}f * {FARTHEST}f;
    for (int i = 0; i < 3; ++i) local[i] = at[i] - exact.center[i];
    if (exact.is_rotated) {{
        rotate(exact.rotation, local, 1.0f, at);
        for (int i = 0; i < 3; ++i) local[i] = at[i];
    }}
    const wp::uint32 unknown = bits_of(~(is_known & is_near)) & bits;
    const F distance = shape_distance(local, term);
    const F depth = reach + padding - distance;
    const I is_hit = asked & (distance < reach + padding) & (depth > 0.0f);
    if (!any(is_hit)) return unknown;
    shape_distance(local, normal);  // here alone the gradient takes time
    if (exact.is_rotated) {{
        rotate(exact.rotation, normal, -1.0f, term);
        for (int i = 0; i < 3; ++i) normal[i] = term[i];
    }}
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
def lanes_of_slot(scene: Scene, slot: int, first: int, bits: wp.uint32) -> wp.uint32:
    """Those of some lanes in which the obstacle of a slot is checked, of spheres from one on."""
    if not is_enabled(scene, slot):
        return wp.uint32(0)
    if scene.ignored == wp.uint64(0):
        return bits
    checked = wp.uint32(0)
    for lane in range(LANES):
        if is_checked(scene, slot, first + lane):
            checked |= wp.uint32(1) << wp.uint32(lane)
    return bits & checked


@wp.func
def add_costs(scene: Scene, env: int, first: int, block: Block) -> wp.uint32:
    """Adds the costs of a block against all obstacles; returns lanes in which they are not known.

    Args:
        scene: the obstacles.
        env: that all spheres are checked against.
        first: index of the first sphere.
        block: with its vectors.
    """
    tree = tree_of(scene, env)
    slots = filled_slots(scene, env)
    count = slots[1] - slots[0]
    if tree.bvh == wp.uint64(0) or count > FEW:
        return block.asked
    unknown = wp.uint32(0)
    few = boxes_near_block(tree.blocks, count, block)
    while few != wp.uint32(0):
        index = lowest_bit(few)
        few &= few - wp.uint32(1)
        bits = lanes_near_box(tree.blocks, index, block) & ~unknown
        if bits != wp.uint32(0):
            bits = lanes_of_slot(scene, slots[0] + index, first, bits)
        if bits != wp.uint32(0):
            obstacle = load_obstacle(scene, slots[0] + index)
            if obstacle.is_present:
                if is_exact(obstacle.record):
                    pose = obstacle.mesh_from_world
                    shape = load_exact(obstacle.record)
                    unknown |= add_costs_of_shape(shape, pose, obstacle.padding, block, bits)
                else:
                    unknown |= bits
    return unknown


@wp.func_native(
    PREAMBLE
    + VECTORS
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


@wp.func
def have_one_env(env_index: wp.array[wp.int32], first: int, count: int, n_spheres: int) -> bool:
    """Whether all spheres of a block are checked against one env: it may have several rows."""
    if env_index.shape[0] == 0:
        return True
    n_of_row = n_spheres / env_index.shape[0]
    row = first / n_of_row
    env = env_index[row]
    for other in range(row + 1, (first + count - 1) / n_of_row + 1):
        if env_index[other] != env:
            return False
    return True


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
