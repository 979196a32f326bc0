"""Distance of a convex piece of a robot's link: a lower bound that any direction proves.

A piece is the convex hull of points, widened by a radius. The other body is another piece, or any
convex one with a support function. Along any unit vector n the least of n (a - b), less both radii,
is a lower bound of the distance, and any points of both give an upper one. The algorithm of
Gilbert, Johnson and Keerthi (1988) finds the best direction: from the nearest point of a simplex of
differences of support points to the origin.
"""

import warp as wp

from warp_collision.kernels.compiling import named
from warp_collision.kernels.forward_kinematics import FramePose, point_in_world, xyz
from warp_collision.kernels.mesh_record import FAR

MOST_STEPS = wp.constant(32)
# Bounds of a distance that differ by no more are not improved [m].
CONVERGED = wp.constant(5.0e-6)
# Volume of a tetrahedron without one, relative to the product of its sides.
FLAT = wp.constant(1.0e-6)
# Rows of a piece before its points: a ball; number of points, radius, slack, number of the rest.
HEAD_ROWS = wp.constant(2)


@wp.struct
class Piece:
    """A convex piece: the hull of some corners, and within it that of these and the rest."""

    ball: wp.vec4  # around it: center in its frame, radius [m]
    radius: float  # by which the hull of its points is widened [m]
    slack: float  # of the radius, what the hull of all corners does not need [m]
    begin: int  # first of its points in the table
    end: int  # behind the last of them
    behind: int  # behind the rest of its corners


@wp.struct
class Separation:
    """Bounds of the distance of two convex bodies."""

    normal: wp.vec3  # unit vector from the second one to the first
    lower: float  # what it proves [m], negative where they overlap along it
    upper: float  # distance of two of their points, less the radii [m]


@wp.func
def row_of(pieces: wp.uint64, index: int) -> wp.vec4:
    """A row of the table of pieces."""
    return wp.array(ptr=pieces, shape=(index + 1,), dtype=wp.vec4)[index]


@wp.func
def piece_at(pieces: wp.uint64, index: int) -> Piece:
    """The piece that begins at a row; the next one begins at its `behind`."""
    size = row_of(pieces, index + 1)
    begin = index + HEAD_ROWS
    end = begin + int(size[0])
    return Piece(row_of(pieces, index), size[1], size[2], begin, end, end + wp.max(int(size[3]), 0))


@wp.func
def with_all_corners(piece: Piece) -> Piece:
    """The hull of all corners of a piece, without its slack."""
    return Piece(
        piece.ball, piece.radius - piece.slack, 0.0, piece.begin, piece.behind, piece.behind
    )


@wp.func
def support(pieces: wp.uint64, piece: Piece, direction: wp.vec3) -> wp.vec3:
    """The point of a piece that is farthest along a direction."""
    best = wp.vec3(0.0)
    most = float(-FAR)
    for index in range(piece.begin, piece.end):
        point = xyz(row_of(pieces, index))
        along = wp.dot(point, direction)
        if along > most:
            most = along
            best = point
    return best


@wp.func
def nearest_in_triangle(a: wp.vec3, b: wp.vec3, c: wp.vec3) -> wp.vec3:
    """Weights of the corners of a triangle in its point nearest to the origin (Ericson, 2004).

    Corners may coincide.
    """
    ab = b - a
    ac = c - a
    d1 = -wp.dot(ab, a)
    d2 = -wp.dot(ac, a)
    if d1 <= 0.0 and d2 <= 0.0:
        return wp.vec3(1.0, 0.0, 0.0)
    d3 = -wp.dot(ab, b)
    d4 = -wp.dot(ac, b)
    if d3 >= 0.0 and d4 <= d3:
        return wp.vec3(0.0, 1.0, 0.0)
    of_c = d1 * d4 - d3 * d2
    if of_c <= 0.0 and d1 >= 0.0 and d3 <= 0.0:
        share = d1 / (d1 - d3)
        return wp.vec3(1.0 - share, share, 0.0)
    d5 = -wp.dot(ab, c)
    d6 = -wp.dot(ac, c)
    if d6 >= 0.0 and d5 <= d6:
        return wp.vec3(0.0, 0.0, 1.0)
    of_b = d5 * d2 - d1 * d6
    if of_b <= 0.0 and d2 >= 0.0 and d6 <= 0.0:
        share = d2 / (d2 - d6)
        return wp.vec3(1.0 - share, 0.0, share)
    of_a = d3 * d6 - d5 * d4
    if of_a <= 0.0 and d4 - d3 >= 0.0 and d5 - d6 >= 0.0:
        share = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        return wp.vec3(0.0, 1.0 - share, share)
    return wp.vec3(of_a, of_b, of_c) / (of_a + of_b + of_c)


@wp.struct
class Simplex:
    """Three differences of points, some of which may be the same, and their nearest point."""

    a: wp.vec3
    b: wp.vec3
    c: wp.vec3
    nearest: wp.vec3  # to the origin


@wp.func
def of_triangle(a: wp.vec3, b: wp.vec3, c: wp.vec3, best: Simplex) -> Simplex:
    """The triangle, without what its nearest point does not need, if that is nearer."""
    weights = nearest_in_triangle(a, b, c)
    nearest = weights[0] * a + weights[1] * b + weights[2] * c
    if not (wp.length_sq(nearest) < wp.length_sq(best.nearest)):
        return best
    used = wp.where(weights[0] > 0.0, a, wp.where(weights[1] > 0.0, b, c))
    first = wp.where(weights[0] > 0.0, a, used)
    second = wp.where(weights[1] > 0.0, b, used)
    return Simplex(first, second, wp.where(weights[2] > 0.0, c, used), nearest)


@wp.func
def holds_origin(a: wp.vec3, b: wp.vec3, c: wp.vec3, d: wp.vec3) -> bool:
    """Whether the origin is in a tetrahedron."""
    u = a - d
    v = b - d
    w = c - d
    across = wp.cross(v, w)
    volume = wp.dot(u, across)
    if not (wp.abs(volume) > FLAT * wp.length(u) * wp.length(v) * wp.length(w)):
        return False
    x = -wp.dot(d, across) / volume
    y = -wp.dot(d, wp.cross(w, u)) / volume
    z = -wp.dot(d, wp.cross(u, v)) / volume
    return x > 0.0 and y > 0.0 and z > 0.0 and x + y + z < 1.0


def make_separation(Second, kind, support_of_second):
    """The function that separates a piece from another convex body.

    Args:
        Second: type of the other body.
        kind: name of that kind of body.
        support_of_second: device function (pieces: uint64, second: Second, direction: vec3) ->
            vec3, its point that is farthest along a direction, in its frame.
    """

    def separate(
        pieces: wp.uint64,
        first: Piece,
        second: Second,
        second_from_first: FramePose,
        offset: wp.vec3,
        radii: float,
        needed: float,
        least: float,
    ) -> Separation:
        """Bounds of the distance of two bodies, improved while it matters.

        Args:
            pieces: pointer to the table.
            first: one body.
            second: the other one, in whose frame the normal is.
            second_from_first: relative pose of their frames.
            offset: about from the second to the first, in the frame of the second.
            radii: by which both are widened together [m].
            needed: a lower bound above it is not improved [m].
            least: an upper bound below it is not improved [m].
        """
        best = Separation(wp.vec3(1.0, 0.0, 0.0), -FAR, FAR)
        simplex = Simplex(offset, offset, offset, offset)
        first_from_second = wp.transpose(second_from_first.rotation)
        for step in range(MOST_STEPS):
            distance = wp.length(simplex.nearest)
            if not (distance > CONVERGED):
                best.upper = -radii
                return best
            normal = simplex.nearest / distance
            if step > 0:
                best.upper = wp.min(best.upper, distance - radii)
            here = support(pieces, first, first_from_second * (-normal))
            there = support_of_second(pieces, second, normal)
            difference = point_in_world(second_from_first, here) - there
            lower = wp.dot(difference, normal) - radii
            if lower > best.lower:
                best.lower = lower
                best.normal = normal
            is_known = best.lower > needed or best.upper <= least
            if is_known or best.upper - best.lower <= CONVERGED:
                return best
            if step == 0:
                simplex = Simplex(difference, difference, difference, difference)
            elif holds_origin(simplex.a, simplex.b, simplex.c, difference):
                best.upper = -radii
                return best
            else:
                found = Simplex(difference, difference, difference, difference)
                found = of_triangle(difference, simplex.a, simplex.b, found)
                found = of_triangle(difference, simplex.b, simplex.c, found)
                found = of_triangle(difference, simplex.c, simplex.a, found)
                if not (wp.length_sq(found.nearest) < wp.length_sq(simplex.nearest)):
                    return best  # no nearer by rounding
                simplex = found
        return best

    return named(separate, kind)


separate_pieces = make_separation(Piece, "pieces", support)


@wp.func
def separation(
    pieces: wp.uint64,
    first: Piece,
    second: Piece,
    second_from_first: FramePose,
    needed: float,
    least: float,
) -> Separation:
    """Bounds of the distance of two pieces; see `make_separation`."""
    offset = point_in_world(second_from_first, xyz(first.ball)) - xyz(second.ball)
    radii = first.radius + second.radius
    return separate_pieces(pieces, first, second, second_from_first, offset, radii, needed, least)
