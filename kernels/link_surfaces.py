"""Distance of two links by their surfaces: bounds that hold where convex pieces fill a hollow.

The surface of a link is a tree of boxes over elements: triangles, and the convex pieces of shapes
that these follow. All of its leaves have one depth, so that nodes are numbered as in a heap: those
of node k are 2 k and 2 k + 1. Two trees are walked at once, and go down in turn; which one goes
down at a level is fixed, so that the way back needs no stack.

Surfaces that do not meet leave one case, a link inside of another: of each connected part one point
is asked for its winding number in the other surface. Far nodes count as dipoles (Barill et al.,
"Fast winding numbers for soups and clouds", 2018), to the first order.
"""

import warp as wp

from warp_collision.kernels.forward_kinematics import FramePose, point_in_world, xyz
from warp_collision.kernels.piece_separation import piece_at, row_of

# Rows of a node: center of its box and first element of a leaf, half sides and number of elements,
# center of its dipole and how far the box reaches from there, the dipole by 4 pi.
NODE_ROWS = wp.constant(4)
# Nodes are dipoles when farther than this many of their radii.
FAR_NODE = wp.constant(3.0)
# Winding numbers above are inside: 0 and 1 are those of closed surfaces, to 0.1.
INSIDE = wp.constant(0.3)
PER_SOLID_ANGLE = wp.constant(0.15915494309189535)  # 1 / (2 pi): angles below are halves


@wp.struct
class SurfaceTree:
    """The tree over the surface of a link, in the table of pieces."""

    begin: int  # row of the first node
    levels: int  # below the root
    points: int  # row of the first point
    n_points: int  # one of each connected part


@wp.func
def surface_at(pieces: wp.uint64, row: int) -> SurfaceTree:
    """The surface whose head is a row."""
    head = row_of(pieces, row)
    levels = int(head[0])
    n_nodes = (2 << levels) - 1
    begin = row + 1
    return SurfaceTree(begin, levels, begin + NODE_ROWS * n_nodes, int(head[1]))


@wp.func
def node_row(tree: SurfaceTree, node: int) -> int:
    """First row of a node; the root is node 1."""
    return tree.begin + NODE_ROWS * (node - 1)


@wp.func
def excess(offset: wp.vec3, own: wp.vec3, turn: wp.mat33, other: wp.vec3) -> float:
    """Distance of a box from the box around another one, in the axes of the first.

    Args:
        offset: of their centers.
        own: half sides of the first box.
        turn: from the axes of the other one.
        other: its half sides.
    """
    square = float(0.0)
    for k in range(3):
        side = wp.abs(turn[k, 0]) * other[0]
        side += wp.abs(turn[k, 1]) * other[1] + wp.abs(turn[k, 2]) * other[2]
        gap = wp.max(wp.abs(offset[k]) - own[k] - side, 0.0)
        square += gap * gap
    return wp.sqrt(square)


@wp.func
def gap_of_boxes(
    pieces: wp.uint64, row: int, other_row: int, second_from_first: FramePose
) -> float:
    """Lower bound of the distance of the boxes of two nodes [m], 0 where they overlap."""
    half = xyz(row_of(pieces, row + 1))
    other_half = xyz(row_of(pieces, other_row + 1))
    offset = point_in_world(second_from_first, xyz(row_of(pieces, row)))
    offset -= xyz(row_of(pieces, other_row))
    turn = second_from_first.rotation
    back = wp.transpose(turn)
    return wp.max(
        excess(offset, other_half, turn, half), excess(back * offset, half, back, other_half)
    )


@wp.struct
class TreeWalk:
    """Where a walk over two trees is; behind the end its level is negative."""

    first: int  # node of the first tree
    second: int
    level: int  # steps down from both roots
    levels: int  # of the first tree
    other_levels: int


@wp.func
def first_goes_down(walk: TreeWalk) -> bool:
    """Whether the first tree goes down to the level of a walk: in turn, then the deeper one."""
    in_turn = walk.level <= 2 * wp.min(walk.levels, walk.other_levels)
    return wp.where(in_turn, walk.level % 2 == 1, walk.levels > walk.other_levels)


@wp.func
def is_at_leaves(walk: TreeWalk) -> bool:
    """Whether both nodes are leaves."""
    return walk.level == walk.levels + walk.other_levels


@wp.func
def descended(walk: TreeWalk) -> TreeWalk:
    """The walk at the first children of its nodes."""
    walk.level += 1
    if first_goes_down(walk):
        walk.first *= 2
    else:
        walk.second *= 2
    return walk


@wp.func
def advanced(walk: TreeWalk) -> TreeWalk:
    """The walk at the next nodes that are not below its nodes."""
    while walk.level > 0:
        if first_goes_down(walk):
            if walk.first % 2 == 0:
                walk.first += 1
                return walk
            walk.first = walk.first / 2
        else:
            if walk.second % 2 == 0:
                walk.second += 1
                return walk
            walk.second = walk.second / 2
        walk.level -= 1
    walk.level = -1
    return walk


@wp.func
def half_solid_angle(a: wp.vec3, b: wp.vec3, c: wp.vec3) -> float:
    """Half the solid angle of a triangle, seen from the origin (van Oosterom, Strackee 1983)."""
    x = wp.length(a)
    y = wp.length(b)
    z = wp.length(c)
    volume = wp.dot(a, wp.cross(b, c))
    base = x * y * z + wp.dot(a, b) * z + wp.dot(b, c) * x + wp.dot(c, a) * y
    return wp.atan2(volume, base)


@wp.func
def winding_in_surface(pieces: wp.uint64, tree: SurfaceTree, point: wp.vec3) -> float:
    """Winding number of the triangles of a surface around a point, far ones as dipoles."""
    total = float(0.0)
    node = int(1)
    level = int(0)
    while node > 0:
        row = node_row(tree, node)
        center = row_of(pieces, row + 2)
        offset = xyz(center) - point
        distance = wp.length(offset)
        is_far = distance > FAR_NODE * center[3]
        if is_far:
            total += wp.dot(xyz(row_of(pieces, row + 3)), offset) / (distance * distance * distance)
        elif level < tree.levels:
            node *= 2
            level += 1
            continue
        else:
            element = int(row_of(pieces, row)[3])
            for _e in range(int(row_of(pieces, row + 1)[3])):
                piece = piece_at(pieces, element)
                if row_of(pieces, element + 1)[3] < 0.0:
                    a = xyz(row_of(pieces, piece.begin)) - point
                    b = xyz(row_of(pieces, piece.begin + 1)) - point
                    c = xyz(row_of(pieces, piece.begin + 2)) - point
                    total += PER_SOLID_ANGLE * half_solid_angle(a, b, c)
                element = piece.behind
        while node % 2 == 1 and node > 1:
            node = node / 2
            level -= 1
        node = wp.where(node > 1, node + 1, 0)
    return total


@wp.func
def has_part_inside(
    pieces: wp.uint64, inner: SurfaceTree, outer: SurfaceTree, outer_from_inner: FramePose
) -> bool:
    """Whether a connected part of a surface that meets no other one is inside of it."""
    center = xyz(row_of(pieces, outer.begin))
    half = xyz(row_of(pieces, outer.begin + 1))
    for index in range(inner.n_points):
        point = point_in_world(outer_from_inner, xyz(row_of(pieces, inner.points + index)))
        offset = point - center
        is_near = wp.abs(offset[0]) <= half[0] and wp.abs(offset[1]) <= half[1]
        if is_near and wp.abs(offset[2]) <= half[2]:
            # Not a number is inside.
            if not (wp.abs(winding_in_surface(pieces, outer, point)) < INSIDE):
                return True
    return False
