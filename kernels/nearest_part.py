"""The part of a union that is nearest to a point, of parts in a tree: balls, or boxes of any size.

The walk goes to the nearer child first, so that the best part so far soon prunes most others; the
largest radius bounds how much nearer a ball is than its center. What a part hides of another does
not matter: the minimum is 1-Lipschitz, and negative in all balls.
"""

import warp as wp


@wp.struct
class PartTree:
    """The parts of a union, in the frame of its mesh and in the order of the leaves."""

    bvh: wp.uint64  # id of a wp.Bvh over centers of balls, or over boxes
    parts: wp.uint64  # pointer to (n, stride) vec4: center or lower corner, radius; upper corner, 0
    stride: int  # 1: balls, 2: boxes
    largest: float  # radius [m]


@wp.func_native("""
    const wp::BVH bvh = wp::bvh_get(tree.bvh);
    const wp::vec4* parts = (const wp::vec4*)tree.parts;
    const auto square = [&](const wp::vec3 low, const wp::vec3 high) {
        const wp::vec3 way = wp::max(wp::max(low - point, point - high), wp::vec3(0.0f));
        return wp::dot(way, way);
    };
    const auto square_to = [&](const int node) {
        const wp::BVHPackedNodeHalf low = wp::bvh_load_node(bvh.node_lowers, node);
        const wp::BVHPackedNodeHalf high = wp::bvh_load_node(bvh.node_uppers, node);
        return square(wp::vec3(low.x, low.y, low.z), wp::vec3(high.x, high.y, high.z));
    };
    int stack[40], count = 1, found = -1;
    wp::float32 squares[40], best = limit;
    stack[0] = *bvh.root, squares[0] = 0.0f;
    // Centers at this distance, or farther, belong to no part that is nearer than the best.
    wp::float32 bound = wp::max(best + tree.largest, 0.0f);
    bound *= bound;
    while (count) {
        if (squares[--count] >= bound) continue;
        int node = stack[count], begin = 0, end = 0;
        while (true) {
            const wp::BVHPackedNodeHalf low = wp::bvh_load_node(bvh.node_lowers, node);
            const wp::BVHPackedNodeHalf high = wp::bvh_load_node(bvh.node_uppers, node);
            begin = low.i, end = high.i;
            if (low.b) break;
            const wp::float32 left = square_to(begin), right = square_to(end);
            node = left < right ? begin : end;
            const int other = left < right ? end : begin;
            begin = end = 0;
            if (wp::min(left, right) >= bound) break;
            if (wp::max(left, right) >= bound) continue;
            if (count == 40) {  // deeper than a tree on a CPU can be: every part, then
                count = 0, end = bvh.num_items;
                break;
            }
            stack[count] = other;
            squares[count++] = wp::max(left, right);
        }
        for (int k = begin; k < end; ++k) {
            const wp::vec4 low = parts[k * tree.stride];
            const wp::vec4 high = parts[k * tree.stride + tree.stride - 1];
            const wp::vec3 corner = wp::vec3(low[0], low[1], low[2]);
            const wp::float32 here = square(corner, wp::vec3(high[0], high[1], high[2]));
            if (here >= bound || wp::sqrt(here) - low[3] >= best) continue;
            if (any) return k;
            best = wp::sqrt(here) - low[3], found = k;
            bound = (best + tree.largest) * (best + tree.largest);
        }
    }
    return found;
""")
def nearest_part(tree: PartTree, point: wp.vec3, limit: float, any: bool) -> int:
    """Index of the part whose surface is nearest, if nearer than a limit, else -1.

    With `any` set it is one of those that are nearer than the limit.
    """
    ...


@wp.func
def part_vector(tree: PartTree, index: int, row: int) -> wp.vec4:
    """One of the vectors of a part: see `PartTree`."""
    place = index * tree.stride + row
    return wp.array(ptr=tree.parts, shape=(place + 1,), dtype=wp.vec4)[place]
