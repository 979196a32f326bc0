"""Eight spheres in the lanes of vector instructions, and the obstacles near them.

Lanes do what the scalar functions do, in the same order, so that nothing is rounded in another way.
Spheres near what has no formula, with many obstacles, or far from the origin are left to these.
"""

import warp as wp

from warp_collision.kernels.box_blocks import FEW, lowest_bit
from warp_collision.kernels.compiling import named
from warp_collision.kernels.lanes.vectors import LANES, PREAMBLE
from warp_collision.kernels.mesh_record import FAR, Shape
from warp_collision.kernels.precision import FARTHEST, LARGEST, NEGLIGIBLE, ROUND_OFF
from warp_collision.kernels.scene_walk import (
    Scene,
    filled_slots,
    is_checked,
    is_enabled,
    load_obstacle,
    tree_of,
)
from warp_collision.kernels.shape_distance import POINT

EIGHT = wp.constant(0xFF)
# Vectors of a block that all kernels have, see `Block`.
COMMON = 5


@wp.struct
class Block:
    """Eight spheres."""

    spheres: wp.uint64  # pointer to vec4
    vectors: wp.uint64  # to center, reach, distance from the origin, and a kernel's own vectors
    activation_distance: float
    count: int  # of spheres
    asked: wp.uint32  # lanes that are enabled and valid


# What the native functions begin with: the vectors of a block, at names of their own.
VECTORS = f"""
    F* const center = (F*)block.vectors;
    F& reach = center[3];
    F& from_origin = center[4];
    F* const own = center + {COMMON};
    const wp::float32 eta = block.activation_distance;
    (void)center; (void)reach; (void)from_origin; (void)own; (void)eta;
"""


@wp.func_native("return (wp::uint64)(a.data + first);")
def spheres_from(a: wp.array[wp.vec4], first: int) -> wp.uint64:
    """Pointer to a sphere."""
    ...


@wp.func_native("""
    if (waypoint < 0 || waypoint >= spheres.shape[1]) return 0;
    return (wp::uint64)&wp::index(spheres, row, waypoint, first);
""")
def spheres_at(spheres: wp.array3d[wp.vec4], row: int, waypoint: int, first: int) -> wp.uint64:
    """Pointer to a sphere of a waypoint; 0 where there is no such waypoint."""
    ...


@wp.func_native("return (wp::uint64)a.data;")
def memory_of(a: wp.array[wp.float32]) -> wp.uint64:
    """Pointer to numbers."""
    ...


# Loads eight spheres; behind the last one that one again.
LOAD = f"""
    const auto load = [&](wp::uint64 pointer, F* columns) __attribute__((always_inline)) {{
        const wp::float32* const rows = (const wp::float32*)pointer;
        if (block.count == 8) {{
            // Rows i and i + 4 side by side, of which each half is transposed.
            F row[4], pair[4];
            for (int i = 0; i < 4; ++i)
                row[i] = __builtin_shufflevector(*(const Q*)(rows + 4 * i),
                    *(const Q*)(rows + 4 * i + 16), 0, 1, 2, 3, 4, 5, 6, 7);
            for (int i = 0; i < 2; ++i) {{
                pair[2 * i] = __builtin_shufflevector(row[2 * i], row[2 * i + 1],
                    0, 8, 1, 9, 4, 12, 5, 13);
                pair[2 * i + 1] = __builtin_shufflevector(row[2 * i], row[2 * i + 1],
                    2, 10, 3, 11, 6, 14, 7, 15);
            }}
            for (int i = 0; i < 2; ++i) {{
                columns[2 * i] = __builtin_shufflevector(pair[i], pair[2 + i],
                    0, 1, 8, 9, 4, 5, 12, 13);
                columns[2 * i + 1] = __builtin_shufflevector(pair[i], pair[2 + i],
                    2, 3, 10, 11, 6, 7, 14, 15);
            }}
            return;
        }}
        for (int lane = 0; lane < 8; ++lane)
            for (int i = 0; i < 4; ++i)
                columns[i][lane] = rows[4 * (lane < block.count ? lane : block.count - 1) + i];
    }};
    const auto square_of = [](const F* x) __attribute__((always_inline)) -> F {{
        return x[0] * x[0] + x[1] * x[1] + x[2] * x[2];
    }};
    F columns[4];
    load(block.spheres, columns);
    const F radius = columns[3];
    for (int i = 0; i < 3; ++i) center[i] = columns[i];
    reach = radius + eta;
    const F square = square_of(center);
    from_origin = root_of(square);
    I is_valid = (square < {FARTHEST}f * {FARTHEST}f) & (radius <= {LARGEST}f)
        & (I{{}} - (eta >= 0.0f && eta <= {LARGEST}f));
    const wp::uint32 enabled = bits_of(~(radius < 0.0f)) & ((1u << block.count) - 1);
"""


@wp.func_native(
    PREAMBLE
    + VECTORS
    + LOAD
    + """
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
        if (exact.kind == CONE) {
            const F across = root_of(p[0] * p[0] + p[1] * p[1]);
            const I has_side = across > TINY;
            const wp::float32 side[2] = {2.0f * z / y, x / y};
            const F drop = p[2] - z, over = side[0] * across + side[1] * drop, below = -z - p[2];
            const F along = side[1] * across - side[0] * drop;
            const F foot = along < 0.0f ? zero : (along > y ? zero + y : along);
            const F off[2] = {across - side[1] * foot, drop + side[0] * foot};
            const F length = root_of(off[0] * off[0] + off[1] * off[1]);
            const I is_inside = (over <= TINY) & (below <= TINY);
            const I is_below = (is_inside & (below > over)) | ((below > TINY) & (across <= x));
            const I is_end = ~is_inside & (foot != along) & (length > TINY);
            const F outward = is_below ? zero : (is_end ? off[0] / length : zero + side[0]);
            normal[0] = outward * (has_side ? p[0] / across : one);
            normal[1] = outward * (has_side ? p[1] / across : zero);
            normal[2] = is_below ? -one : (is_end ? off[1] / length : zero + side[1]);
            return is_below ? below : (is_inside ? over : length);
        }
        const F up = p[2] < -z ? zero - z : (p[2] > z ? zero + z : p[2]);
        const F at[3] = {p[0], p[1], p[2] - up};
        const F length = root_of(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]);
        const I is_off = length > TINY;
        for (int i = 0; i < 3; ++i) normal[i] = is_off ? at[i] / length : (i ? zero : one);
        return length - x;
    };
"""
for _kind in (Shape.CUBOID, Shape.CYLINDER, Shape.CONE, Shape.HALF_SPACE):
    SHAPE = SHAPE.replace(f"== {_kind.name}", f"== {int(_kind)}")
SHAPE = SHAPE.replace("TINY", f"{POINT}f").replace("ENDLESS", f"{FAR}f")

# The centers in the frames of an obstacle and of its shape, and in which lanes rounding need not be
# looked at.
PLACE = f"""
    // Far from the origin rounding counts; see `uncertainty`.
    const wp::float32 offset = wp::sqrt(wp::dot(pose.p, pose.p));
    const wp::float32 negligible = eta > {NEGLIGIBLE}f ? eta : {NEGLIGIBLE}f;
    const auto in_obstacle = [&](const F* point, F* result) __attribute__((always_inline)) {{
        rotate(pose.q, point, 1.0f, result);
        for (int i = 0; i < 3; ++i) result[i] = result[i] + pose.p[i];
    }};
    const auto in_shape = [&](const F* point, F* result) __attribute__((always_inline)) {{
        F moved[3];
        for (int i = 0; i < 3; ++i) result[i] = moved[i] = point[i] - exact.center[i];
        if (exact.is_rotated) rotate(exact.rotation, moved, 1.0f, result);
    }};
    // A direction of the shape, in the frame of the obstacle.
    const auto turn_back = [&](F* direction) __attribute__((always_inline)) {{
        if (!exact.is_rotated) return;
        const F turned[3] = {{direction[0], direction[1], direction[2]}};
        rotate(exact.rotation, turned, -1.0f, direction);
    }};
    F at[3], local[3];
    in_obstacle(center, at);
    in_shape(at, local);
    const I is_near = at[0] * at[0] + at[1] * at[1] + at[2] * at[2] < {FARTHEST}f * {FARTHEST}f;
    const I is_known = ({ROUND_OFF}f * (COORDINATES) <= negligible) & is_near;
    (void)turn_back;
"""


@wp.func
def lanes_of_slot(scene: Scene, slot: int, first: int, bits: wp.uint32) -> wp.uint32:
    """Those of some lanes in which the obstacle of a slot is checked, of spheres from one on."""
    if not is_enabled(scene, slot):
        return wp.uint32(0)
    if first < 0 or scene.ignored == wp.uint64(0):
        return bits
    checked = wp.uint32(0)
    for lane in range(LANES):
        if is_checked(scene, slot, first + lane):
            checked |= wp.uint32(1) << wp.uint32(lane)
    return bits & checked


def make_walk_of_block(visit):
    """A device function that walks over the enabled obstacles near eight spheres.

    Args:
        visit: device function (obstacle: Obstacle, index: int, block: Block, bits: uint32) ->
            uint32, lanes that no further obstacle is visited in: those that are left to the scalar
            functions, and those that are done shifted by 8. The index of the obstacle is among
            those of its env, the bits are lanes near it.
    """

    def walk(scene: Scene, env: int, first: int, block: Block) -> wp.uint32:
        """Visits all obstacles that may be within reach in some lanes.

        Args:
            scene: the obstacles.
            env: that all spheres are checked against.
            first: index of the first sphere, or `NOTHING_IGNORED`.
            block: with its vectors.
        """
        tree = tree_of(scene, env)
        slots = filled_slots(scene, env)
        count = slots[1] - slots[0]
        if tree.bvh == wp.uint64(0) or count > FEW:
            return block.asked
        found = wp.uint32(0)
        few = boxes_near_block(tree.blocks, count, block)
        while few != wp.uint32(0):
            index = lowest_bit(few)
            few &= few - wp.uint32(1)
            bits = lanes_near_box(tree.blocks, index, block) & ~(found | (found >> wp.uint32(8)))
            if bits != wp.uint32(0):
                bits = lanes_of_slot(scene, slots[0] + index, first, bits)
            if bits != wp.uint32(0):
                obstacle = load_obstacle(scene, slots[0] + index)
                if obstacle.is_present:
                    found |= visit(obstacle, index, block, bits)
        return found

    return named(walk, visit.key)


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
