"""Inside or outside of a mesh, by its generalized winding number."""

import warp as wp

from warp_collision.kernels.mesh_record import EXACT_WINDING, SHEET, UNORIENTED, MeshRecord

# Nodes of the winding-number tree are opened when nearer than this many of their radii.
WINDING_ACCURACY = wp.constant(2.0)
# All of them: the sum over every triangle.
SUMMED = wp.constant(1.0e15)
# Corners of triangles that are summed as soon as the tree is walked at an accuracy of 1; nodes that
# are opened at a larger one grow with its square.
CORNERS_PER_WALK = wp.constant(200.0)


@wp.func_native("""
    const wp::Mesh mesh = wp::mesh_get(mesh_id);
    const bool summed = !mesh.solid_angle_props;  // of a caller: no node can be approximated
    int stack[BVH_QUERY_STACK_SIZE];
    int count = 1;
    stack[0] = *mesh.bvh.root;
    wp::float32 total = 0.0f, lost = 0.0f;  // Kahan's compensation: many terms of both signs
    while (count) {
        const int node = stack[--count];
        const wp::BVHPackedNodeHalf lower = wp::bvh_load_node(mesh.bvh.node_lowers, node);
        const wp::BVHPackedNodeHalf upper = wp::bvh_load_node(mesh.bvh.node_uppers, node);
        wp::float32 angle = 0.0f;
        for (int k = lower.i; lower.b && k < (int)upper.i; ++k) {
            const int* corner = &mesh.indices.data[3 * mesh.bvh.primitive_indices[k]];
            wp::vec3 x = wp::normalize(mesh.points[corner[0]] - point);
            wp::vec3 y = wp::normalize(mesh.points[corner[1]] - point);
            wp::vec3 z = wp::normalize(mesh.points[corner[2]] - point);
            const wp::float32 xy = dot(x, y), yz = dot(y, z), zx = dot(z, x);
            const wp::vec3 first = x;
            if (xy > yz && xy >= zx) {
                x = z; z = y; y = first;
            } else if (zx > yz) {
                x = y; y = z; z = first;
            }
            const wp::vec3 across = x + y;
            angle += wp::atan2(dot(across, cross(y, z - y)), dot(across, x + z));
        }
        if (!lower.b && (summed || wp::evaluate_node_solid_angle(
                point, &mesh.solid_angle_props[node], angle, accuracy * accuracy))) {
            stack[count++] = upper.i;
            stack[count++] = lower.i;
        } else {
            const wp::float32 term = (lower.b ? 2.0f * angle : angle) - lost;
            const wp::float32 grown = total + term;
            lost = (grown - total) - term;
            total = grown;
        }
    }
    return total * 0.07957747154f;
""")
def winding_number(mesh_id: wp.uint64, point: wp.vec3, accuracy: float) -> float:
    """Generalized winding number (Jacobson et al. 2013), far nodes of the tree approximated.

    The solid angle of a triangle is van Oosterom's and Strackee's (1983), 1 + x.y + y.z + z.x for
    unit vectors written as (x + y).(x + z), and the determinant as (x + y).(y cross (z - y)), with
    y and z the two that are nearest to each other. So nothing cancels near an edge that is seen
    from end to end, where x is nearly -y, and the rounding is that of the three directions, which
    are the same for all triangles at a vertex.
    """
    ...


@wp.func
def doubt_of_tree(accuracy: float) -> float:
    """Bound of the error of winding numbers by a tree: 0.1 at the accuracy 2, 0 of the sum.

    Nodes are expanded to second order (Barill et al. 2018): their error falls with the third power
    of the distance in radii.
    """
    return 0.8 / (accuracy * accuracy * accuracy)


@wp.func
def finer_accuracy(mesh_id: wp.uint64, accuracy: float) -> float:
    """The next accuracy to ask the tree with, or the sum, where that takes no longer."""
    finer = 2.0 * accuracy
    n_corners = float(wp.mesh_get(mesh_id).indices.shape[0])
    return wp.where(CORNERS_PER_WALK * finer * finer < n_corners, finer, SUMMED)


@wp.func
def side_of_mesh(record: MeshRecord, point: wp.vec3) -> float:
    """-1 inside the solid, 1 outside."""
    if record.sign_method == SHEET:
        return 1.0
    is_unoriented = record.sign_method == UNORIENTED
    is_exact = is_unoriented or record.sign_method == EXACT_WINDING
    accuracy = float(WINDING_ACCURACY)
    number = float(0.0)
    is_open = bool(True)
    while is_open:
        number = winding_number(record.mesh_id, point, accuracy)
        if is_unoriented:
            number = wp.abs(number)  # a mesh that was turned inside out is not free inside
        # Where numbers are not whole, near 1/2 the tree is asked again.
        is_open = is_exact and accuracy < SUMMED
        is_open = is_open and wp.abs(number - 0.5) <= doubt_of_tree(accuracy)
        # A caller's mesh may have no tree to ask: each walk is a sum.
        accuracy = wp.where(is_unoriented, SUMMED, finer_accuracy(record.mesh_id, accuracy))
    return wp.where(number > 0.5, -1.0, 1.0)
