"""A walk through a tree over boxes that needs few registers, and no shared memory on a GPU.

Warp's own queries keep all pointers of the tree with each thread, and on a GPU a stack of 34 KB for
each block; here both are read again after each visit, from local memory and the tree's record.
"""

import warp as wp

# As deep as Warp lets trees be.
Nodes = wp.types.vector(length=32, dtype=wp.int32)


@wp.struct
class TreeWalk:
    """How far a walk has come."""

    nodes: Nodes  # still to be visited
    count: int
    item: int  # next one of the leaf at hand
    end: int


@wp.func
def begin_walk(bvh: wp.uint64, root: int) -> TreeWalk:
    """A walk from a node; of bvh 0 there is nothing to visit."""
    walk = TreeWalk()
    walk.nodes[0] = root
    walk.count = wp.where(bvh != wp.uint64(0), 1, 0)
    return walk


@wp.func_native("""
    const wp::BVH& tree = *(const wp::BVH*)bvh;
    const wp::vec3 lower = center - wp::vec3(reach), upper = center + wp::vec3(reach);
    while (true) {
        while (walk.item < walk.end) {
            const int item = tree.primitive_indices[walk.item++];
            const wp::vec3 low = tree.item_lowers[item], high = tree.item_uppers[item];
            if (wp::intersect_aabb_aabb(lower, upper, low, high)) return item;
        }
        if (!walk.count) return -1;
        const int node = walk.nodes[--walk.count];
        const wp::BVHPackedNodeHalf low = wp::bvh_load_node(tree.node_lowers, node);
        const wp::BVHPackedNodeHalf high = wp::bvh_load_node(tree.node_uppers, node);
        const wp::vec3 begin(low.x, low.y, low.z), end(high.x, high.y, high.z);
        if (!wp::intersect_aabb_aabb(lower, upper, begin, end)) continue;
        if (low.b) {
            walk.item = low.i, walk.end = high.i;
        } else {
            walk.nodes[walk.count++] = low.i;
            walk.nodes[walk.count++] = high.i;
        }
    }
""")
def next_item(bvh: wp.uint64, walk: TreeWalk, center: wp.vec3, reach: float) -> int:
    """The next item whose box overlaps a cube, -1 after the last; the walk is advanced."""
    ...
