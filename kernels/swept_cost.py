"""Cost of moving spheres against the meshes of their env."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, resident_warps
from warp_collision.kernels.half_segments import (
    Motion,
    SweepQuery,
    SweptCost,
    is_valid,
    load_motion,
    make_cost,
    not_a_number,
)
from warp_collision.kernels.mesh_record import part_in_box
from warp_collision.kernels.precision import is_in_range
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    env_of_row,
    is_env,
    make_walk,
    record_of,
)
from warp_collision.kernels.sweep import Path, path_sample, sweep

wp.set_module_options(OPTIONS)

# Below this speed [m/s] a cost is not scaled, if no minimum speed is given.
STILL = wp.constant(1.0e-3)
# Rounding of the part of a path in a box, relative to the coordinates.
PART_ROUNDING = wp.constant(1.0e-5)

mat23 = wp.types.matrix(shape=(2, 3), dtype=wp.float32)


@wp.struct
class StraightHalves:
    """Both half segments at a waypoint in the frame of an obstacle at rest, see `half_segments`."""

    begin: wp.vec3
    previous: wp.vec3  # the center at the neighbours
    following: wp.vec3
    mesh_from_world: wp.transform
    longest: float
    coordinates: float
    is_valid: bool


@wp.func
def straight_halves(obstacle: Obstacle, motion: Motion) -> StraightHalves:
    """The half segments of a motion in the frame of an obstacle."""
    pose = obstacle.mesh_from_world
    halves = StraightHalves()
    halves.mesh_from_world = pose
    halves.begin = wp.transform_point(pose, motion.center)
    halves.previous = halves.begin
    halves.following = halves.begin
    # Not by the equal centers: their transforms may be rounded differently where they are inlined.
    if motion.has_previous:
        halves.previous = wp.transform_point(pose, motion.previous)
    if motion.has_following:
        halves.following = wp.transform_point(pose, motion.following)
    before = wp.length(halves.previous - halves.begin)
    halves.longest = 0.5 * wp.max(before, wp.length(halves.following - halves.begin))
    coordinates = wp.length(motion.center) + wp.length(wp.transform_get_translation(pose))
    halves.coordinates = coordinates + 2.0 * halves.longest
    halves.is_valid = is_in_range(halves.begin)
    return halves


@wp.func
def straight_half(obstacle: Obstacle, halves: StraightHalves, side: int, reach: float) -> Path:
    """What of the half segment to the neighbour before (side 0) or after may be within reach.

    That is what is in the bounding box of the obstacle, enlarged by the reach; of open meshes all.
    """
    offset = wp.where(side == 0, halves.previous, halves.following) - halves.begin
    path = Path()
    path.record = obstacle.record
    distance = wp.length(offset)
    path.whole = 0.5 * distance
    if distance > 0.0:
        path.direction = offset / distance
    part = wp.vec2(0.0, path.whole)
    record = record_of(obstacle)
    # Of an open mesh points far off its box may be inside, how far depends on what is known of it.
    if record.inside_reach == 0.0:
        size = wp.length(record.lower) + wp.length(record.upper) + wp.length(halves.begin)
        margin = wp.vec3(reach + PART_ROUNDING * (size + distance))
        lower, upper = record.lower - margin, record.upper + margin
        part = part_in_box(halves.begin, path.direction, path.whole, lower, upper)
    path.before = part[0]
    path.length = part[1] - part[0]
    path.after = path.whole - part[1]
    path.origin = halves.begin + path.before * path.direction
    return path


@wp.func
def fraction_on_path(path: Path, position: float) -> float:
    """Which fraction of a segment a position on one of its halves is."""
    return wp.where(path.whole > 0.0, (path.before + position) / (2.0 * path.whole), 0.0)


@wp.func
def unrotated(path: Path, fraction: float, direction: wp.vec3) -> wp.vec3:
    """An obstacle at rest has one frame."""
    return direction


cost_on_paths = make_cost(
    StraightHalves, Path, "straight", straight_half, path_sample, sweep, fraction_on_path, unrotated
)


@wp.func
def swept_cost_against(obstacle: Obstacle, query: SweepQuery) -> SweptCost:
    """Cost of the half segments at one waypoint, against one obstacle at rest."""
    return cost_on_paths(obstacle, query, straight_halves(obstacle, query.motion))


@wp.func
def longest_half(motion: Motion) -> float:
    """Length of the longer half segment at a waypoint."""
    before = wp.length(motion.previous - motion.center)
    return 0.5 * wp.max(before, wp.length(motion.following - motion.center))


@wp.func
def sum_of_two(total: SweptCost, term: SweptCost) -> SweptCost:
    """Sum of two costs and their gradients."""
    total.cost += term.cost
    total.radius += term.radius
    total.previous += term.previous
    total.center += term.center
    total.following += term.following
    return total


@wp.func
def add_swept_cost(obstacle: Obstacle, query: SweepQuery, total: SweptCost) -> SweptCost:
    """Adds the cost against one obstacle."""
    return sum_of_two(total, swept_cost_against(obstacle, query))


sum_of_swept_costs = make_walk(add_swept_cost, SweepQuery, SweptCost)


@wp.func
def swept_cost_of(
    scene: Scene, env: int, motion: Motion, activation_distance: float, tolerance: float
) -> SweptCost:
    """Sum of the costs against all enabled obstacles of an env."""
    if motion.radius < 0.0:
        return SweptCost()
    if not is_valid(motion, activation_distance) or not is_env(scene, env):
        return not_a_number()
    query = SweepQuery(motion, activation_distance, tolerance)
    reach = motion.radius + activation_distance + longest_half(motion)
    return sum_of_swept_costs(scene, env, motion.sphere, motion.center, reach, query, SweptCost())


@wp.struct
class SpeedScale:
    """The scale of a cost and its derivatives with respect to three consecutive centers."""

    value: float
    previous: wp.vec3
    center: wp.vec3
    following: wp.vec3


@wp.func
def speed_scale(motion: Motion, dt: float, min_speed: wp.array[wp.float32]) -> SpeedScale:
    """Speed of a waypoint by central difference, one-sided where a neighbour is missing.

    With ``min_speed`` (1,) the scale is at least that, and so continuous. Without, in an empty
    array, it is 1 at both ends of the path and below `STILL`.
    """
    intervals = wp.where(motion.has_previous, 1.0, 0.0) + wp.where(motion.has_following, 1.0, 0.0)
    scale = SpeedScale()
    scale.value = 1.0
    lowest = STILL
    is_scaled = motion.has_previous and motion.has_following
    if min_speed.shape[0] > 0:
        lowest = min_speed[0]
        scale.value = lowest
        is_scaled = bool(True)
    # A negative time would give a negative cost, a negative minimum speed none at all.
    if not (dt >= 0.0 and lowest > 0.0):
        scale.value = wp.nan
        is_scaled = bool(False)
    # Where a neighbour is missing its center is that of the waypoint.
    change = motion.following - motion.previous
    distance = wp.length(change)
    if is_scaled and distance > lowest * intervals * dt:
        duration = intervals * dt
        scale.value = distance / duration
        along = change / (distance * duration)
        scale.previous = wp.where(motion.has_previous, -along, wp.vec3(0.0))
        scale.following = wp.where(motion.has_following, along, wp.vec3(0.0))
        scale.center = -(scale.previous + scale.following)
    return scale


@wp.func
def scale_of(
    motion: Motion, dt: wp.array[wp.float32], min_speed: wp.array[wp.float32], weight: float
) -> SpeedScale:
    """Weight of a waypoint's cost, times its speed if ``dt`` is given; see `speed_scale`."""
    scale = SpeedScale()
    scale.value = 1.0
    if dt.shape[0] > 0:
        scale = speed_scale(motion, dt[0], min_speed)
    scale.value = weight * scale.value
    scale.previous = weight * scale.previous
    scale.center = weight * scale.center
    scale.following = weight * scale.following
    return scale


@wp.func
def scaled(swept: SweptCost, scale: SpeedScale) -> SweptCost:
    """Product of a cost and the scale of its waypoint, by the product rule."""
    result = SweptCost()
    result.cost = scale.value * swept.cost
    result.radius = scale.value * swept.radius
    result.previous = scale.value * swept.previous + swept.cost * scale.previous
    result.center = scale.value * swept.center + swept.cost * scale.center
    result.following = scale.value * swept.following + swept.cost * scale.following
    return result


@wp.func
def checked_scale(
    query: SweepQuery, dt: wp.array[wp.float32], min_speed: wp.array[wp.float32], weight: float
) -> float:
    """D cost / d unscaled cost; NaN for a motion that is not valid."""
    if not is_valid(query.motion, query.activation_distance):
        return wp.nan
    return scale_of(query.motion, dt, min_speed, weight).value


@wp.func
def store_cost(
    result: SweptCost,
    row: int,
    waypoint: int,
    index: int,
    cost: wp.array3d[wp.float32],
    gradient: wp.array3d[wp.vec4],
    neighbours: wp.array3d[mat23],
):
    """Writes the outputs of a thread; the gradients may be empty."""
    cost[row, waypoint, index] = result.cost
    if gradient.shape[0] > 0:
        center = result.center
        gradient[row, waypoint, index] = wp.vec4(center[0], center[1], center[2], result.radius)
        neighbours[row, waypoint, index] = wp.matrix_from_rows(result.previous, result.following)


@wp.kernel(**resident_warps(16))
def swept_cost(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    tolerance: wp.array[wp.float32],  # (1,) [m]
    dt: wp.array[wp.float32],  # (1,) [s] to scale by the speed, or empty
    min_speed: wp.array[wp.float32],  # (1,) [m/s] minimum of the scale, or empty: see `speed_scale`
    launch_offset: wp.vec3i,  # of this launch in the spheres
    # outputs
    cost: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
    gradient: wp.array3d[wp.vec4],  # d cost / d (x, y, z, radius) of this waypoint, or empty
    neighbours: wp.array3d[mat23],  # d cost / d center at the waypoint before and after
    active: wp.array3d[wp.uint8],  # 1 where the cost is not 0, or empty
):
    """One thread per sphere and waypoint."""
    row, waypoint, index = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    index += launch_offset[2]
    motion = load_motion(spheres, row, waypoint, index)
    swept = swept_cost_of(
        scene, env_of_row(env_index, row), motion, activation_distance[0], tolerance[0]
    )
    result = scaled(swept, scale_of(motion, dt, min_speed, weight[0]))
    store_cost(result, row, waypoint, index, cost, gradient, neighbours)
    if active.shape[0] > 0:
        active[row, waypoint, index] = wp.where(result.cost == 0.0, wp.uint8(0), wp.uint8(1))


@wp.func
def gathered(
    upstream: wp.array3d[wp.float32],
    gradient: wp.array3d[wp.vec4],
    neighbours: wp.array3d[mat23],
    row: int,
    waypoint: int,
    index: int,
) -> wp.vec4:
    """The gradient of the costs of three consecutive waypoints by a sphere of the middle one.

    `upstream` has a number for each sphere, or one for all of a waypoint, or is empty for ones.
    """
    at = wp.min(index, upstream.shape[2] - 1)
    own = float(1.0)
    before = float(1.0)
    after = float(1.0)
    center = wp.vec3(0.0)
    if upstream.shape[0] > 0:
        own = upstream[row, waypoint, at]
    if waypoint > 0:
        if upstream.shape[0] > 0:
            before = upstream[row, waypoint - 1, at]
        center += before * neighbours[row, waypoint - 1, index][1]
    if waypoint + 1 < gradient.shape[1]:
        if upstream.shape[0] > 0:
            after = upstream[row, waypoint + 1, at]
        center += after * neighbours[row, waypoint + 1, index][0]
    return own * gradient[row, waypoint, index] + wp.vec4(center[0], center[1], center[2], 0.0)


@wp.kernel
def swept_vjp(
    # operands
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost; empty: ones
    gradient: wp.array3d[wp.vec4],  # as `swept_cost` writes them
    neighbours: wp.array3d[mat23],
    # outputs
    total: wp.array3d[wp.vec4],  # d loss / d (x, y, z, radius); may be `gradient` itself
):
    """One thread per sphere and waypoint."""
    row, waypoint, index = wp.tid()
    total[row, waypoint, index] = gathered(upstream, gradient, neighbours, row, waypoint, index)
