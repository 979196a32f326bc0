"""Signed distance of a point cloud, a union of balls: the least distance to a center less radius.

Centers are in a tree of Warp. The walk goes to the nearer child first, so that the best ball so far
soon prunes most others; the largest radius bounds how much nearer a ball is than its center. What a
ball hides of another does not matter: the minimum is 1-Lipschitz, and negative in all balls.
"""

import warp as wp

from warp_collision.kernels.shape_distance import ShapeSample, sphere_distance


@wp.struct
class PointTree:
    """The balls of a cloud, in the frame of its mesh."""

    bvh: wp.uint64  # id of a wp.Bvh over the centers
    balls: wp.uint64  # pointer to (n,) vec4: x, y, z, radius [m], in the order of the leaves
    largest: float  # radius [m]


@wp.func_native("""
    const wp::BVH bvh = wp::bvh_get(tree.bvh);
    const wp::vec4* balls = (const wp::vec4*)tree.balls;
    const auto square_to = [&](const int node) {
        const wp::BVHPackedNodeHalf low = wp::bvh_load_node(bvh.node_lowers, node);
        const wp::BVHPackedNodeHalf high = wp::bvh_load_node(bvh.node_uppers, node);
        const wp::vec3 below = wp::vec3(low.x, low.y, low.z) - point;
        const wp::vec3 above = point - wp::vec3(high.x, high.y, high.z);
        const wp::vec3 way = wp::max(wp::max(below, above), wp::vec3(0.0f));
        return wp::dot(way, way);
    };
    int stack[40], count = 1, found = -1;
    wp::float32 squares[40], best = limit;
    stack[0] = *bvh.root, squares[0] = 0.0f;
    // Centers at this distance, or farther, belong to no ball that is nearer than the best.
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
            if (count == 40) {  // deeper than a tree on a CPU can be: every ball, then
                count = 0, end = bvh.num_items;
                break;
            }
            stack[count] = other;
            squares[count++] = wp::max(left, right);
        }
        for (int k = begin; k < end; ++k) {
            const wp::vec4 ball = balls[k];
            const wp::vec3 way = wp::vec3(ball[0], ball[1], ball[2]) - point;
            const wp::float32 square = wp::dot(way, way);
            if (square >= bound || wp::sqrt(square) - ball[3] >= best) continue;
            if (any) return k;
            best = wp::sqrt(square) - ball[3], found = k;
            bound = (best + tree.largest) * (best + tree.largest);
        }
    }
    return found;
""")
def nearest_ball(tree: PointTree, point: wp.vec3, limit: float, any: bool) -> int:
    """Index of the ball whose surface is nearest, if nearer than a limit, else -1.

    With `any` set it is one of those that are nearer than the limit.
    """
    ...


@wp.func
def load_tree(pointer: wp.uint64) -> PointTree:
    """The balls that an exact shape points to."""
    return wp.array(ptr=pointer, shape=(1,), dtype=PointTree)[0]


@wp.func
def cloud_distance(pointer: wp.uint64, point: wp.vec3, limit: float) -> ShapeSample:
    """Signed distance of a cloud where it is below a limit, else the limit without a gradient."""
    tree = load_tree(pointer)
    sample = ShapeSample()
    sample.distance = limit
    index = nearest_ball(tree, point, limit, False)
    if index >= 0:
        ball = wp.array(ptr=tree.balls, shape=(index + 1,), dtype=wp.vec4)[index]
        sample = sphere_distance(ball[3], point - wp.vec3(ball[0], ball[1], ball[2]))
    return sample


@wp.func
def is_nearer_to_cloud(pointer: wp.uint64, point: wp.vec3, limit: float) -> bool:
    """Whether the signed distance of a cloud is below a limit."""
    return nearest_ball(load_tree(pointer), point, limit, True) >= 0
