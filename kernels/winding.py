"""Inside or outside of a mesh, by its generalized winding number."""

import warp as wp

from warp_collision.kernels.mesh_record import EXACT_WINDING, MeshRecord

# Cells of the winding-number tree are opened when nearer than this many of their radii.
WINDING_ACCURACY = wp.constant(2.0)
# Most corners of triangles over which a grid sums winding numbers that the tree leaves in doubt.
MAX_SUMMED = wp.constant(6000)


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


@wp.func
def change_of_winding(
    border: wp.array2d[wp.vec3], center: wp.vec3, reach: float, enough: float
) -> float:
    """Bound of how much the winding number changes within ``reach``, with no surface in between.

    By Biot and Savart its gradient at p is the integral of dl x r / (4 pi |r|^3) over the border
    of the surface: nothing but the border counts. An edge at the distance r or more adds at most
    its length by r^2, and as much as a line without end, pi / r. Adds up to ``enough`` only.
    """
    change = float(0.0)
    for edge in range(border.shape[0]):
        a = border[edge, 0]
        along = border[edge, 1] - a
        share = wp.dot(center - a, along) / wp.max(wp.length_sq(along), 1.0e-30)
        nearest = a + wp.clamp(share, 0.0, 1.0) * along
        distance = wp.length(center - nearest) - reach
        if distance <= 1.0e-3 * reach:
            return enough
        change += wp.min(wp.length(along) / distance, wp.pi) / distance * reach / (4.0 * wp.pi)
        if change >= enough:
            break
    return change


@wp.func
def side_of_ball(
    mesh_id: wp.uint64, border: wp.array2d[wp.vec3], center: wp.vec3, reach: float, limit: float
) -> float:
    """-1 if all points within ``reach`` are inside, 1 if all are outside, 0 if that is not sure.

    Args:
        mesh_id: an open mesh.
        border: (n_edges, 2) ends of the edges at which its surface ends.
        center: of the ball.
        reach: radius of the ball, into which no surface may reach [m].
        limit: more than the distance of the center to the surface [m].
    """
    # Beyond this change neither side can be sure, as the tree errs by up to 0.1.
    change = change_of_winding(border, center, reach, 0.39)
    if change >= 0.39:
        return 0.0
    for ask in range(2):
        threshold = 0.5 + (0.1 + change) * (2.0 * float(ask) - 1.0)
        query = wp.mesh_query_point_sign_winding_number(
            mesh_id, center, limit, WINDING_ACCURACY, threshold
        )
        if (query.sign > 0.0) == (ask == 0):
            return wp.sign(query.sign)
    if wp.mesh_get(mesh_id).indices.shape[0] > MAX_SUMMED:
        return 0.0
    excess = winding_number(mesh_id, center) - 0.5
    return wp.where(wp.abs(excess) > change + 1.0e-3, -wp.sign(excess), 0.0)
