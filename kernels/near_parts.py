"""Which parts of a tree are within a box: faces of a mesh, parts of a union, some at a time.

A walk is resumed by how many parts came before. It keeps its own stack, so that it may run within
another walk, which Warp's queries of trees may not on a GPU.
"""

import warp as wp

from warp_collision.kernels.nearest_part import PartTree

# Parts that are told at once.
AT_ONCE = wp.constant(16)
near_parts = wp.types.vector(length=17, dtype=wp.int32)  # their number, and the parts

# Of `bvh`, by whether a box is far, and the part at a place among the leaves.
WALK = """
    wp::vec_t<17, wp::int32> near;
    const int deepest = 128;
    int stack[deepest], count = 1, found = 0, passed = 0;
    stack[0] = *bvh.root;
    while (count && found < 16) {
        const int node = stack[--count];
        const wp::BVHPackedNodeHalf low = wp::bvh_load_node(bvh.node_lowers, node);
        const wp::BVHPackedNodeHalf high = wp::bvh_load_node(bvh.node_uppers, node);
        if (is_far(wp::vec3(low.x, low.y, low.z), wp::vec3(high.x, high.y, high.z))) continue;
        if (!low.b) {
            if (count + 2 > deepest) {
                near[0] = -1;
                return near;
            }
            stack[count++] = high.i;
            stack[count++] = low.i;
            continue;
        }
        for (int k = low.i; k < (int)high.i && found < 16; ++k)
            if (is_near(k) && passed++ >= skip) near[++found] = place_of(k);
    }
    near[0] = found;
    return near;
"""
# NaN is not far.
FAR_BOX = """
    const auto is_far = [&](const wp::vec3 low, const wp::vec3 high) {
        return low[0] > upper[0] || low[1] > upper[1] || low[2] > upper[2] || high[0] < lower[0]
            || high[1] < lower[1] || high[2] < lower[2];
    };
"""


@wp.func_native(f"""
    const wp::Mesh& mesh = *(const wp::Mesh*)mesh_id;
    const wp::BVH& bvh = mesh.bvh;
    {FAR_BOX}
    const auto place_of = [&](int k) {{ return bvh.primitive_indices[k]; }};
    const auto is_near = [&](int k) {{
        const wp::int32* corners = mesh.indices.data + 3 * bvh.primitive_indices[k];
        const wp::vec3* points = mesh.points.data;
        const wp::vec3 a = points[corners[0]], b = points[corners[1]], c = points[corners[2]];
        return !is_far(wp::min(wp::min(a, b), c), wp::max(wp::max(a, b), c));
    }};
    {WALK}
""")
def faces_in_box(mesh_id: wp.uint64, lower: wp.vec3, upper: wp.vec3, skip: int) -> near_parts:
    """Faces of a mesh whose boxes meet a box, up to `AT_ONCE` behind the first ones.

    Their number is -1 where the tree is too deep.
    """
    ...


@wp.func_native(f"""
    const wp::BVH& bvh = *(const wp::BVH*)tree.bvh;
    const wp::vec4* parts = (const wp::vec4*)tree.parts;
    const wp::vec3 room = wp::vec3(tree.largest);
    lower = lower - room, upper = upper + room;
    {FAR_BOX}
    const auto place_of = [&](int k) {{ return k; }};
    const auto is_near = [&](int k) {{
        const wp::vec4 low = parts[k * tree.stride];
        const wp::vec4 high = parts[k * tree.stride + tree.stride - 1];
        return !is_far(wp::vec3(low[0], low[1], low[2]), wp::vec3(high[0], high[1], high[2]));
    }};
    {WALK}
""")
def parts_in_box(tree: PartTree, lower: wp.vec3, upper: wp.vec3, skip: int) -> near_parts:
    """Parts of a union that may meet a box, as `faces_in_box`."""
    ...
