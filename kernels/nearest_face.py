"""The point of a mesh that is closest to a point.

On a CPU Warp's tree is walked for four triangles at a time. Which of its cases a triangle is, no
CPU can predict, so all of them are computed, and the smallest counts.
"""

import warp as wp

from warp_collision.kernels.compiling import runs_on_cpu


@wp.struct
class PointOfMesh:
    """A point of the surface of a mesh."""

    face: int  # -1: none
    u: float  # barycentric coordinates
    v: float


# Squared distances from `point` to four faces, given by pointers to the indices of their corners.
FOUR_FACES = """
    typedef wp::float32 floats __attribute__((vector_size(16)));
    typedef wp::int32 ints __attribute__((vector_size(16)));
    const auto dot = [](const floats* a, const floats* b) {
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    };
    const auto clamped = [](floats t) {
        t = t > 0.0f ? t : 0.0f;
        return t < 1.0f ? t : 1.0f;
    };
    const auto squared_distances = [&](const wp::int32* const* f) {
        floats a[3], u[3], v[3], x[3];
        const auto corners = [&](wp::int32 corner, wp::int32 i) {
            return floats{points[f[0][corner]][i], points[f[1][corner]][i],
                points[f[2][corner]][i], points[f[3][corner]][i]};
        };
        for (wp::int32 i = 0; i < 3; ++i) {
            a[i] = corners(0, i);
            u[i] = corners(1, i) - a[i];
            v[i] = corners(2, i) - a[i];
            a[i] -= point[i];
        }
        const auto squared = [&](floats s, floats t) {
            for (wp::int32 i = 0; i < 3; ++i)
                x[i] = a[i] + s * u[i] + t * v[i];
            return dot(x, x);
        };
        const floats uu = dot(u, u), vv = dot(v, v), uv = dot(u, v), ww = uu + vv - 2.0f * uv;
        const floats d1 = -dot(u, a), d2 = -dot(v, a), d3 = d1 - uu, d4 = d2 - uv;
        const floats d5 = d1 - uv, d6 = d2 - vv;
        // On the three edges, and where all three barycentric coordinates are positive.
        const floats w = clamped((d4 - d3) / ww), zero = {};
        floats least = squared(clamped(d1 / uu), zero), other = squared(zero, clamped(d2 / vv));
        least = other < least ? other : least;
        other = squared(1.0f - w, w);
        least = other < least ? other : least;
        const floats c = d1 * d4 - d3 * d2, b = d5 * d2 - d1 * d6, r = d3 * d6 - d5 * d4;
        const floats area = r + b + c;
        other = squared(b / area, c / area);
        const ints is_over = (c > 0.0f) & (b > 0.0f) & (r > 0.0f);
        least = (is_over & (other < least)) ? other : least;
        // What Warp's queries take for a line they pass over.
        const floats n[3] = {u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2],
            u[0] * v[1] - u[1] * v[0]};
        const floats edges = uu + vv + ww;
        return dot(n, n) > 1.0e-12f * edges * edges ? least : zero + FLT_MAX;
    };
"""


@wp.func_native(f"""
#if defined(__CUDA_ARCH__) || WP_TILE_BLOCK_DIM > 1
    return -1;
#else
    const wp::Mesh& mesh = *(const wp::Mesh*)mesh_id;
    const wp::vec3* points = mesh.points.data;
    const wp::int32* order = mesh.bvh.primitive_indices;
    const wp::BVHPackedNodeHalf *lowers = mesh.bvh.node_lowers, *uppers = mesh.bvh.node_uppers;
    {FOUR_FACES}
    const auto squared_to_box = [&](wp::int32 node) {{
        const wp::BVHPackedNodeHalf lower = lowers[node], upper = uppers[node];
        const wp::float32 x = wp::max(wp::max(lower.x - point[0], point[0] - upper.x), 0.0f);
        const wp::float32 y = wp::max(wp::max(lower.y - point[1], point[1] - upper.y), 0.0f);
        const wp::float32 z = wp::max(wp::max(lower.z - point[2], point[2] - upper.z), 0.0f);
        return x * x + y * y + z * z;
    }};
    wp::int32 nodes[BVH_QUERY_STACK_SIZE] = {{*mesh.bvh.root}}, count = 1, found = -1;
    wp::float32 bounds[BVH_QUERY_STACK_SIZE] = {{}}, best = limit * limit;
    while (count) {{
        wp::int32 node = nodes[--count];
        wp::float32 bound = bounds[count];
        while (bound < best && !lowers[node].b) {{
            const wp::int32 left = lowers[node].i, right = uppers[node].i;
            const wp::float32 to_left = squared_to_box(left), to_right = squared_to_box(right);
            const bool is_left = to_left < to_right;
            node = is_left ? left : right;
            bound = is_left ? to_left : to_right;
            nodes[count] = is_left ? right : left;
            bounds[count] = is_left ? to_right : to_left;
            count += bounds[count] < best;
        }}
        const wp::int32 end = bound < best ? uppers[node].i : 0, last = end - 1;
        for (wp::int32 k = end ? lowers[node].i : 0; k < end; k += 4) {{
            const wp::int32* f[4];
            for (wp::int32 j = 0; j < 4; ++j)
                f[j] = mesh.indices.data + 3 * order[wp::min(k + j, last)];
            const floats squares = squared_distances(f);
            for (wp::int32 j = 0; j < 4; ++j) {{
                if (squares[j] < best) {{
                    best = squares[j];
                    found = order[wp::min(k + j, last)];
                }}
            }}
        }}
    }}
    return found;
#endif
""")
def nearest_face(mesh_id: wp.uint64, point: wp.vec3, limit: float) -> int:
    """Index of the nearest face that is strictly nearer than the limit [m], -1: none. On CPUs."""
    ...


@wp.func_native("""
    const wp::Mesh& mesh = *(const wp::Mesh*)mesh_id;
    const wp::int32* corners = mesh.indices.data + 3 * face;
    const wp::vec3* points = mesh.points.data;
    return wp::closest_point_to_triangle(
        points[corners[0]], points[corners[1]], points[corners[2]], point);
""")
def closest_of_face(mesh_id: wp.uint64, face: int, point: wp.vec3) -> wp.vec2:
    """Barycentric coordinates of the point of a face that is closest to a point."""
    ...


@wp.func
def closest_of_mesh(mesh_id: wp.uint64, point: wp.vec3, limit: float) -> PointOfMesh:
    """The closest point of a mesh, if it is strictly nearer than the limit [m]."""
    closest = PointOfMesh()
    closest.face = -1
    if runs_on_cpu():
        closest.face = nearest_face(mesh_id, point, limit)
        if closest.face >= 0:
            weights = closest_of_face(mesh_id, closest.face, point)
            closest.u = weights[0]
            closest.v = weights[1]
    else:
        query = wp.mesh_query_point_no_sign(mesh_id, point, limit)
        if query.result:
            closest.face = query.face
            closest.u = query.u
            closest.v = query.v
    return closest
