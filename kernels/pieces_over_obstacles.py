"""Convex pieces of a robot's links over obstacles: what spheres refuse.

Spheres stick out of a link, its pieces hardly do. A piece is proven apart from an obstacle with a
formula, or from a cell of another one, by a direction, as two pieces are. Where pieces that fill a
hollow touch, the triangles of the surface decide.
"""

import warp as wp

from warp_collision.kernels.body_check import (
    CLEAR,
    HIT,
    UNDECIDED,
    BodyCheck,
    Interval,
    RestingBody,
    ball_distance,
    body_in_motion,
    check_obstacle,
    interval_around,
    reach_of,
    touches_body,
    travel,
)
from warp_collision.kernels.compiling import compiled_once
from warp_collision.kernels.forward_kinematics import FramePose, Twist, point_in_world, xyz
from warp_collision.kernels.link_surfaces import (
    INSIDE,
    SurfaceTree,
    node_row,
    surface_at,
    winding_in_surface,
)
from warp_collision.kernels.mesh_record import FAR, ExactShape, Shape, is_exact, load_exact
from warp_collision.kernels.obstacle_cells import (
    Cell,
    coordinates_of_cell,
    has_cells,
    is_point_inside,
    make_cell_walk,
    support_of_cell,
    way_from_cell,
)
from warp_collision.kernels.piece_separation import (
    Piece,
    Separation,
    make_separation,
    piece_at,
    row_of,
    support,
    with_all_corners,
)
from warp_collision.kernels.precision import is_finite3, uncertainty
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    RobotBody,
    Segment,
    velocity_of,
)
from warp_collision.kernels.robot_pairs import PIECE_ROUNDING
from warp_collision.kernels.scene_walk import Obstacle, Scene, is_hit, make_walk, record_of
from warp_collision.kernels.shape_distance import POINT, shape_distance, with_signs_of
from warp_collision.kernels.transforms import to_world

# Bounds of what is not proven apart.
TOUCHING = wp.constant(wp.vec3(-1.0e15, -1.0e15, -1.0e15))


@wp.func
def support_of_core(_pieces: wp.uint64, exact: ExactShape, direction: wp.vec3) -> wp.vec3:
    """The point of a shape without its radius that is farthest along a direction, in its frame.

    A sphere is a point with a radius, a capsule a segment; half spaces have none.
    """
    size = exact.size
    if exact.kind == Shape.CUBOID:
        return with_signs_of(size, direction)
    top = wp.where(direction[2] < 0.0, -size[2], size[2])
    across = wp.vec3(0.0)
    if exact.kind == Shape.CYLINDER:
        flat = wp.vec3(direction[0], direction[1], 0.0)
        length = wp.length(flat)
        if length > POINT:
            across = (size[0] / length) * flat
    if exact.kind == Shape.CONE:
        flat = wp.vec3(direction[0], direction[1], 0.0)
        length = wp.length(flat)
        top = size[2]
        if size[0] * length > 2.0 * size[2] * direction[2]:
            top = -size[2]
            across = (size[0] / wp.max(length, POINT)) * flat
    return wp.vec3(across[0], across[1], top)


separate_from_shape = make_separation(ExactShape, "shape", support_of_core)
separate_from_cell = make_separation(Cell, "cell", support_of_cell)


@wp.func
def shape_from_mesh(exact: ExactShape) -> FramePose:
    """The frame of a mesh in that of its shape."""
    rotation = wp.identity(3, dtype=float)
    if exact.is_rotated:
        rotation = wp.quat_to_matrix(exact.rotation)
    return FramePose(rotation, -(rotation * exact.center))


@wp.func
def pose_after(outer: FramePose, inner: FramePose) -> FramePose:
    """The pose of one frame after another."""
    return FramePose(outer.rotation * inner.rotation, point_in_world(outer, inner.origin))


@compiled_once
def separation_from_shape(
    pieces: wp.uint64, piece: Piece, exact: ExactShape, mesh_from_piece: FramePose, needed: float
) -> Separation:
    """Bounds of the distance of a piece from a shape, the lower one improved up to what is needed.

    The normal is in the frame of the mesh.
    """
    pose = pose_after(shape_from_mesh(exact), mesh_from_piece)
    if exact.kind == Shape.HALF_SPACE:
        lowest = support(pieces, piece, wp.transpose(pose.rotation) * (-exact.size))
        height = wp.dot(exact.size, point_in_world(pose, lowest)) - piece.radius
        return Separation(exact.size, height, height)
    radii = float(piece.radius)
    if exact.kind == Shape.SPHERE or exact.kind == Shape.CAPSULE:
        radii += exact.size[0]
    # From where the shape is nearest to the middle of the piece; that is found in its mesh's frame.
    outward = shape_distance(exact, point_in_world(mesh_from_piece, xyz(piece.ball))).gradient
    if exact.is_rotated:
        outward = wp.quat_rotate(exact.rotation, outward)
    found = separate_from_shape(pieces, piece, exact, pose, outward, radii, needed, -radii)
    if exact.is_rotated:
        found.normal = wp.quat_rotate_inv(exact.rotation, found.normal)
    return found


@wp.func
def mesh_from_frame(obstacle: Obstacle, frame_pose: FramePose) -> FramePose:
    """A frame of a robot in that of an obstacle."""
    pose = obstacle.mesh_from_world
    rotation = wp.quat_to_matrix(wp.transform_get_rotation(pose))
    return FramePose(rotation * frame_pose.rotation, wp.transform_point(pose, frame_pose.origin))


@wp.struct
class MovingLink:
    """A body and an interval to check, and what of its pieces matters."""

    pieces: wp.uint64  # pointer, see `Robot`
    check: BodyCheck
    reach: float  # pieces that are farther over the interval do not matter [m]
    least: float  # those that are not farther at the configuration touch [m]


@wp.struct
class MovingPiece:
    """A piece of a body over an interval, at an obstacle."""

    link: MovingLink
    piece: Piece
    pose: FramePose  # mesh_from_frame
    mesh_from_world: wp.transform
    padding: float  # of the obstacle [m]
    error: float  # of its distance, by all but the obstacle's own coordinates [m]
    moved: float  # how far its points move over the interval [m]


@wp.func
def approach_of_piece(check: BodyCheck, ball: wp.vec4, normal: wp.vec3) -> float:
    """Bound of how far any point of a piece moves along a normal over an interval [m].

    Args:
        check: the body of the piece, whose bound of acceleration holds for its pieces.
        ball: around the piece, in the frame of the body.
        normal: unit vector in the world.
    """
    arm = check.state.frame_pose.rotation * xyz(ball)
    speed = wp.abs(wp.dot(normal, velocity_of(check.state, arm)))
    speed += ball[3] * wp.length(wp.cross(normal, check.state.twist.angular))
    return travel(check.interval, speed)


@wp.func
def piece_in_motion(obstacle: Obstacle, link: MovingLink, piece: Piece) -> MovingPiece:
    """A piece of a body at an obstacle; `moved` is not finite where its motion is not."""
    check = link.check
    interval = check.interval
    frame_pose = check.state.frame_pose
    ball = piece.ball
    size = wp.length(wp.transform_get_translation(obstacle.mesh_from_world))
    size += wp.length(frame_pose.origin) + wp.length(xyz(ball)) + ball[3]
    error = interval.slack + (interval.rounding + PIECE_ROUNDING) * size
    arm = frame_pose.rotation * xyz(ball)
    speed = wp.length(velocity_of(check.state, arm))
    moved = travel(interval, speed + wp.length(check.state.twist.angular) * ball[3])
    pose = mesh_from_frame(obstacle, frame_pose)
    return MovingPiece(link, piece, pose, obstacle.mesh_from_world, obstacle.padding, error, moved)


@wp.func
def needed_of(moving: MovingPiece, upper: float) -> float:
    """Distance from which on obstacles do not matter for a piece, as others are nearer [m]."""
    link = moving.link
    within = wp.max(moving.moved + wp.min(link.reach, upper), link.least)
    # A sum keeps a NaN, which a maximum drops.
    return moving.padding + moving.error + within + 0.0 * moving.moved


@wp.func
def with_separation(
    moving: MovingPiece, found: Separation, coordinates: float, bounds: wp.vec3
) -> wp.vec3:
    """Bounds of the distance of pieces, see `bounds_over_obstacle`, with that of one.

    A plane with the obstacle, or a cell of it, below it is at rest: of the motion of the piece only
    that along its normal counts.

    Args:
        moving: the piece.
        found: how it is separated, in the frame of the mesh.
        coordinates: by which distances from the obstacle are rounded [m].
        bounds: of what came before.
    """
    check = moving.link.check
    interval = check.interval
    error = moving.error + (interval.rounding + PIECE_ROUNDING) * coordinates
    normal = to_world(moving.mesh_from_world, found.normal)
    here = found.lower - error - moving.padding
    low = here - approach_of_piece(check, moving.piece.ball, normal)
    # In this order, so that NaN is not free.
    if not (low >= bounds[0]):
        bounds[0] = low
    if not (here >= bounds[1]):
        bounds[1] = here
    upper = found.upper - moving.padding
    if not (here > moving.link.least):
        return wp.vec3(TOUCHING[0], TOUCHING[1], upper)
    bounds[2] = wp.min(bounds[2], upper + error)
    return bounds


@wp.func
def is_touching(bounds: wp.vec3) -> bool:
    """Whether nothing is left to be proven."""
    return bounds[1] <= -FAR


@compiled_once
def over_cell(cell: Cell, moving: MovingPiece, bounds: wp.vec3) -> wp.vec3:
    """The bounds with those of a piece from one cell of an obstacle."""
    coordinates = coordinates_of_cell(cell)
    rounding = moving.link.check.interval.rounding + PIECE_ROUNDING
    needed = needed_of(moving, bounds[2]) + rounding * coordinates
    piece = moving.piece
    center = point_in_world(moving.pose, xyz(piece.ball))
    pieces = moving.link.pieces
    way = way_from_cell(cell, center)
    distance = wp.length(way)
    if distance > 0.0:
        # Most are apart by the ball around the piece already, which any direction may prove.
        normal = way / distance
        height = wp.dot(center - support_of_cell(pieces, cell, normal), normal)
        if height - piece.ball[3] - cell.radius > needed:
            return bounds
    else:
        way = wp.vec3(0.0, 0.0, 1.0)
    radii = piece.radius + cell.radius
    found = separate_from_cell(pieces, piece, cell, moving.pose, way, radii, needed, -radii)
    return with_separation(moving, found, coordinates, bounds)


walk_over_cells = make_cell_walk(over_cell, MovingPiece, wp.vec3, is_touching)


@wp.func
def over_cells(obstacle: Obstacle, moving: MovingPiece, bounds: wp.vec3) -> wp.vec3:
    """The bounds with those of a piece from the cells of an obstacle."""
    pieces = moving.link.pieces
    pose = moving.pose
    first = point_in_world(pose, xyz(row_of(pieces, moving.piece.begin)))
    lower = wp.vec3(first)
    upper = wp.vec3(first)
    for index in range(moving.piece.begin + 1, moving.piece.end):
        corner = point_in_world(pose, xyz(row_of(pieces, index)))
        lower = wp.min(lower, corner)
        upper = wp.max(upper, corner)
    reach = wp.vec3(needed_of(moving, bounds[2]) + moving.piece.radius)
    record = record_of(obstacle)
    return walk_over_cells(record, lower - reach, upper + reach, moving, bounds, TOUCHING)


@compiled_once
def with_piece(obstacle: Obstacle, link: MovingLink, piece: Piece, bounds: wp.vec3) -> wp.vec3:
    """The bounds with those of a piece from an obstacle's surface; from its inside by a formula."""
    moving = piece_in_motion(obstacle, link, piece)
    if not (moving.moved + moving.error + moving.padding < FAR):
        return TOUCHING
    if not is_exact(obstacle.record):
        return over_cells(obstacle, moving, bounds)
    exact = load_exact(obstacle.record)
    size = wp.length(exact.center) + wp.length(exact.size)
    needed = needed_of(moving, bounds[2])
    needed += (link.check.interval.rounding + PIECE_ROUNDING) * size
    found = separation_from_shape(link.pieces, piece, exact, moving.pose, needed)
    return with_separation(moving, found, size, bounds)


@wp.func
def with_corners(obstacle: Obstacle, link: MovingLink, piece: Piece, bounds: wp.vec3) -> wp.vec3:
    """The bounds with those of a piece, by all of its corners where it touches by its slack alone.

    The hull of all corners holds that of some, so it touches what that does without the slack.
    """
    found = with_piece(obstacle, link, piece, bounds)
    if is_touching(found) and piece.behind > piece.end and found[2] + piece.slack > link.least:
        return with_piece(obstacle, link, with_all_corners(piece), bounds)
    return found


@compiled_once
def is_inside(obstacle: Obstacle, link: MovingLink, row: int) -> bool:
    """Whether a point of a link, by its row, is inside of an obstacle of whose cells none is near.

    Those with a formula have no other inside.
    """
    if is_exact(obstacle.record):
        return False
    pose = mesh_from_frame(obstacle, link.check.state.frame_pose)
    point = point_in_world(pose, xyz(row_of(link.pieces, row)))
    return is_point_inside(record_of(obstacle), point)


@wp.func
def bounds_over_obstacle(obstacle: Obstacle, link: MovingLink) -> wp.vec3:
    """Bounds of the distance of a body's shape from an obstacle, less its padding [m].

    By its pieces; by its surface where these fill a hollow that the obstacle is in. A lower one
    over the interval, and a lower and an upper one at the configuration; `TOUCHING` if these touch,
    of bodies without pieces, and of obstacles that have neither a formula nor cells. What is
    farther than matters is FAR.
    """
    body = link.check.body
    has_bounds = is_exact(obstacle.record) or has_cells(record_of(obstacle))
    if body.n_pieces == 0 or not has_bounds:
        return TOUCHING
    bounds = wp.vec3(FAR, FAR, FAR)
    row = int(body.first_piece)
    for _p in range(body.n_pieces):
        if not is_touching(bounds):
            piece = piece_at(link.pieces, row)
            row = piece.behind
            bounds = with_corners(obstacle, link, piece, bounds)
            if not is_touching(bounds) and is_inside(obstacle, link, piece.begin):
                bounds = TOUCHING
    if body.surface == 0 or bounds[0] > 0.0:
        return bounds
    return bounds_of_surface(obstacle, link)


@compiled_once
def bounds_of_surface(obstacle: Obstacle, link: MovingLink) -> wp.vec3:
    """`bounds_over_obstacle` by the elements of a body's surface."""
    pieces = link.pieces
    tree = surface_at(pieces, link.check.body.surface)
    bounds = wp.vec3(FAR, FAR, FAR)
    node = int(1)
    level = int(0)
    while node > 0:
        row = node_row(tree, node)
        if is_near_node(obstacle, link, row, bounds[2]):
            if level < tree.levels:
                node *= 2
                level += 1
                continue
            element = int(row_of(pieces, row)[3])
            for _e in range(int(row_of(pieces, row + 1)[3])):
                piece = piece_at(pieces, element)
                element = piece.behind
                bounds = with_corners(obstacle, link, piece, bounds)
                if is_touching(bounds):
                    return bounds
        while node % 2 == 1 and node > 1:
            node = node / 2
            level -= 1
        node = wp.where(node > 1, node + 1, 0)
    for index in range(tree.n_points):
        if is_inside(obstacle, link, tree.points + index):
            return TOUCHING
    if holds_part(obstacle, link, tree):
        return TOUCHING
    return bounds


@wp.func
def is_near_node(obstacle: Obstacle, link: MovingLink, row: int, upper: float) -> bool:
    """Whether the box of a node of a surface is as near to an obstacle as matters, by its ball."""
    center = xyz(row_of(link.pieces, row))
    radius = wp.length(xyz(row_of(link.pieces, row + 1)))
    ball = wp.vec4(center[0], center[1], center[2], radius)
    moving = piece_in_motion(obstacle, link, Piece(ball, 0.0, 0.0, 0, 0, 0))
    limit = radius + needed_of(moving, upper)
    return not (ball_distance(obstacle, point_in_world(moving.pose, center), limit) >= limit)


@wp.struct
class HollowLink:
    """The surface of a link at an obstacle."""

    pieces: wp.uint64
    tree: SurfaceTree
    frame_from_mesh: FramePose


@wp.func
def is_point_held(link: HollowLink, point: wp.vec3) -> bool:
    """Whether a point of an obstacle that is not near the surface of a link is inside of it."""
    local = point_in_world(link.frame_from_mesh, point)
    # Not a number is inside.
    return not (wp.abs(winding_in_surface(link.pieces, link.tree, local)) < INSIDE)


@wp.func
def holds_cell(cell: Cell, link: HollowLink, found: bool) -> bool:
    """Whether a link holds a cell that does not meet its surface."""
    return found or is_point_held(link, cell.a)


walk_over_held_cells = make_cell_walk(holds_cell, HollowLink, bool, is_hit)


@wp.func
def holds_part(obstacle: Obstacle, link: MovingLink, tree: SurfaceTree) -> bool:
    """Whether a part of an obstacle that does not meet the surface of a link is inside of it."""
    pose = mesh_from_frame(obstacle, link.check.state.frame_pose)
    back = wp.transpose(pose.rotation)
    hollow = HollowLink(link.pieces, tree, FramePose(back, -(back * pose.origin)))
    if is_exact(obstacle.record):
        exact = load_exact(obstacle.record)
        # What has no end is not inside.
        return exact.kind != Shape.HALF_SPACE and is_point_held(hollow, exact.center)
    center = point_in_world(pose, xyz(row_of(link.pieces, tree.begin)))
    reach = wp.vec3(wp.length(xyz(row_of(link.pieces, tree.begin + 1))))
    record = record_of(obstacle)
    return walk_over_held_cells(record, center - reach, center + reach, hollow, False, True)


@wp.func
def check_link(obstacle: Obstacle, link: MovingLink, verdict: int) -> int:
    """Checks a body against one obstacle by its spheres, and where these refuse by its pieces."""
    found = check_obstacle(obstacle, link.check, verdict)
    if verdict == HIT or found == verdict:
        return found
    bounds = bounds_over_obstacle(obstacle, link)
    if is_touching(bounds):
        return found
    return wp.where(bounds[0] > 0.0, verdict, UNDECIDED)


check_links = make_walk(check_link, MovingLink, int)


@wp.func
def link_in_motion(segment: Segment, body: RobotBody, interval: Interval) -> BodyCheck:
    """As `body_in_motion`, with a bound of the acceleration that holds for its pieces too."""
    body.spread = wp.max(body.spread, body.far_piece)
    return body_in_motion(segment, body, interval)


@wp.func
def check_shape_of_body(check: BodyCheck, robot: Robot, scene: Scene, env: int) -> int:
    """Checks a body against all enabled obstacles of an env by its shape."""
    if not is_finite3(check.center):
        return HIT
    link = MovingLink(robot.pieces, check, 0.0, check.interval.tolerance)
    return check_links(scene, env, check.body.begin, check.center, reach_of(check), link, CLEAR)


# -- at rest --------------------------------------------------------------------------------------


@wp.func
def bounds_at_rest(obstacle: Obstacle, link: MovingLink) -> wp.vec3:
    """As `bounds_over_obstacle` for a body at rest: it touches within the rounding of positions."""
    far = wp.length(link.check.center) + link.check.body.radius
    far += wp.length(wp.transform_get_translation(obstacle.mesh_from_world))
    link.least = uncertainty(far, 0.0)
    return bounds_over_obstacle(obstacle, link)


@wp.func
def touches_link(obstacle: Obstacle, link: MovingLink, hit: bool) -> bool:
    """Whether an obstacle touches the spheres of a body at rest, and its pieces."""
    check = link.check
    frame_pose = check.state.frame_pose
    if not touches_body(
        obstacle, RestingBody(check.spheres, check.body, frame_pose, check.center), hit
    ):
        return False
    return is_touching(bounds_at_rest(obstacle, link))


touches_resting_link = make_walk(touches_link, MovingLink, bool, is_hit)


@wp.func
def resting_link(
    robot: Robot, body: RobotBody, frame_pose: FramePose, center: wp.vec3
) -> MovingLink:
    """A body at rest, whose ball is at a center in the world."""
    still = MovingFrame(frame_pose, Twist(wp.vec3(0.0), wp.vec3(0.0)))
    interval = interval_around(0.0, 0.0, 0.0, 0.0, 0.0)
    check = BodyCheck(robot.spheres, body, still, center, 0.0, interval, wp.uint64(0))
    return MovingLink(robot.pieces, check, 0.0, 0.0)


@wp.func
def link_collides(
    robot: Robot, body: RobotBody, frame_pose: FramePose, center: wp.vec3, scene: Scene, env: int
) -> bool:
    """Whether a body touches an enabled obstacle of an env by its shape, or is not finite."""
    if not is_finite3(center):
        return True
    link = resting_link(robot, body, frame_pose, center)
    return touches_resting_link(scene, env, body.begin, center, body.radius, link, False)
