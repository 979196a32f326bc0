"""Inside or outside of a mesh, by its generalized winding number."""

import warp as wp

from warp_collision.kernels.mesh_record import EXACT_WINDING, MeshRecord

# Cells of the winding-number tree are opened when nearer than this many of their radii.
WINDING_ACCURACY = wp.constant(2.0)


@wp.func
def solid_angle(a: wp.vec3, b: wp.vec3, c: wp.vec3) -> float:
    """Half the solid angle of a triangle seen from the origin.

    Van Oosterom and Strackee, The solid angle of a plane triangle, 1983.
    """
    length_a = wp.length(a)
    length_b = wp.length(b)
    length_c = wp.length(c)
    volume = wp.dot(a, wp.cross(b - a, c - a))
    # In the plane of the triangle the angle jumps between its two sides: the mean is 0.
    if volume == 0.0:
        return 0.0
    return wp.atan2(
        volume,
        length_a * length_b * length_c
        + wp.dot(a, b) * length_c
        + wp.dot(a, c) * length_b
        + wp.dot(b, c) * length_a,
    )


@wp.func
def winding_number(mesh_id: wp.uint64, point: wp.vec3) -> float:
    """Generalized winding number (Jacobson et al. 2013), summed over every triangle."""
    mesh = wp.mesh_get(mesh_id)
    total = float(0.0)
    lost = float(0.0)  # Kahan's compensation: thousands of terms of both signs are added
    for face in range(mesh.indices.shape[0] // 3):
        term = solid_angle(
            mesh.points[mesh.indices[3 * face]] - point,
            mesh.points[mesh.indices[3 * face + 1]] - point,
            mesh.points[mesh.indices[3 * face + 2]] - point,
        )
        term -= lost
        grown = total + term
        lost = (grown - total) - term
        total = grown
    return total / (2.0 * wp.pi)


@wp.func
def side_of_mesh(mesh_id: wp.uint64, record: MeshRecord, point: wp.vec3, limit: float) -> float:
    """-1 inside the solid, 1 outside, for a point that is nearer to the surface than ``limit``."""
    # The tree's approximation errs by less than 0.1: where whole numbers are not enough, only the
    # sum decides between a threshold below, which most points outside do not reach, and one above.
    exact = record.sign_method == EXACT_WINDING
    margin = wp.where(exact, 0.1, 0.0)
    # Not unrolled, for the count is no constant: the query is compiled once.
    for ask in range(wp.where(exact, 2, 1)):
        threshold = 0.5 - margin + 2.0 * margin * float(ask)
        query = wp.mesh_query_point_sign_winding_number(
            mesh_id, point, limit, WINDING_ACCURACY, threshold
        )
        if not exact or (query.sign > 0.0) == (ask == 0):
            return wp.sign(query.sign)
    return wp.where(winding_number(mesh_id, point) > 0.5, -1.0, 1.0)
