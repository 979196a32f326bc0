"""Cost of moving spheres against the meshes of their env."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.hinge import hinge
from warp_collision.kernels.mesh_distance import obstacle_distance
from warp_collision.kernels.precision import is_in_range, is_length, uncertainty
from warp_collision.kernels.scene import (
    Obstacle,
    Scene,
    env_of_row,
    is_env,
    make_walk,
)
from warp_collision.kernels.speed import SpeedScale, speed_scale
from warp_collision.kernels.sweep import Path, path_sample, sweep
from warp_collision.kernels.transforms import to_world

wp.set_module_options(OPTIONS)

mat23 = wp.types.matrix(shape=(2, 3), dtype=wp.float32)


@wp.struct
class Motion:
    """One sphere at one waypoint, and its centers at the neighbouring waypoints."""

    center: wp.vec3
    radius: float
    previous: wp.vec3  # the center itself where the path begins
    following: wp.vec3  # the center itself where the path ends
    has_previous: bool
    has_following: bool
    sphere: int  # index of the sphere


@wp.struct
class SweepQuery:
    """The half segments at one waypoint, their activation distance and sweep tolerance."""

    motion: Motion
    activation_distance: float  # [m]
    tolerance: float  # [m]


@wp.struct
class SweptCost:
    """Unweighted cost of one sphere at one waypoint, and its gradient."""

    cost: float
    radius: float  # d cost / d radius
    previous: wp.vec3  # d cost / d center at the waypoint before
    center: wp.vec3
    following: wp.vec3
    contact: wp.vec3  # the point of smallest distance, in the world
    by_contact: wp.vec3  # d cost / d contact, in the frame of the mesh


@wp.func
def neighbour(
    spheres: wp.array3d[wp.vec4], row: int, waypoint: int, index: int, sphere: wp.vec4
) -> wp.vec4:
    """The sphere at a neighbouring waypoint, a disabled one where the path ends."""
    if waypoint < 0 or waypoint >= spheres.shape[1] or spheres[row, waypoint, index][3] < 0.0:
        return wp.vec4(sphere[0], sphere[1], sphere[2], -1.0)
    return spheres[row, waypoint, index]


@wp.func
def load_motion(spheres: wp.array3d[wp.vec4], row: int, waypoint: int, index: int) -> Motion:
    """Reads a sphere and its two neighbours along the horizon."""
    sphere = spheres[row, waypoint, index]
    before = neighbour(spheres, row, waypoint - 1, index, sphere)
    after = neighbour(spheres, row, waypoint + 1, index, sphere)
    motion = Motion()
    motion.center = wp.vec3(sphere[0], sphere[1], sphere[2])
    motion.radius = sphere[3]
    motion.previous = wp.vec3(before[0], before[1], before[2])
    motion.following = wp.vec3(after[0], after[1], after[2])
    motion.has_previous = not (before[3] < 0.0)
    motion.has_following = not (after[3] < 0.0)
    motion.sphere = index
    return motion


@wp.func
def is_valid(motion: Motion, activation_distance: float) -> bool:
    """Whether the coordinates and lengths of a motion that is not disabled are valid."""
    return (
        is_in_range(motion.center)
        and is_in_range(motion.previous)
        and is_in_range(motion.following)
        and is_length(motion.radius)
        and is_length(activation_distance)
    )


@wp.func
def not_a_number() -> SweptCost:
    """NaN, the cost of a path that is not finite: never free."""
    unknown = wp.vec3(wp.nan, wp.nan, wp.nan)
    result = SweptCost()
    result.cost = wp.nan
    result.radius = wp.nan
    result.previous = unknown
    result.center = unknown
    result.following = unknown
    result.by_contact = unknown
    return result


@wp.func
def half_segment(obstacle: Obstacle, begin: wp.vec3, end: wp.vec3) -> Path:
    """The half of a segment at ``begin``, in the frame of an obstacle."""
    path = Path()
    path.mesh_id = obstacle.mesh_id
    path.record = obstacle.record
    path.origin = begin
    distance = wp.length(end - begin)
    path.length = 0.5 * distance
    if distance > 0.0:
        path.direction = (end - begin) / distance
    return path


@wp.func
def swept_cost_against(obstacle: Obstacle, query: SweepQuery) -> SweptCost:
    """Cost of the half segments at one waypoint, against one obstacle."""
    motion = query.motion
    pose = obstacle.mesh_from_world
    center = wp.transform_point(pose, motion.center)
    previous = wp.transform_point(pose, motion.previous)
    following = wp.transform_point(pose, motion.following)
    if not is_in_range(center):
        return not_a_number()
    result = SweptCost()
    longest = 0.5 * wp.max(wp.length(previous - center), wp.length(following - center))
    coordinates = wp.length(motion.center) + wp.length(wp.transform_get_translation(pose))
    unsure = uncertainty(coordinates + 2.0 * longest, query.activation_distance)
    reach = motion.radius + query.activation_distance + obstacle.padding + unsure
    start = obstacle_distance(obstacle.mesh_id, obstacle.record, center, reach + longest)
    if not start.found:
        return result

    # Each half is swept from the center, so that a reversed path has the same cost.
    lowest = path_sample(Path(), 0.0, start)
    neighbour = motion.center
    backward = bool(False)
    # The count is not a constant, so that the sweep is not compiled twice.
    for side in range(wp.where(longest > 0.0, 2, 0)):
        end = wp.where(side == 0, previous, following)
        path = half_segment(obstacle, center, end)
        found = sweep(path, path_sample(path, 0.0, start), reach, query.tolerance)
        if found.distance < lowest.distance:
            lowest = found
            lowest.position = found.position / (2.0 * path.length)
            backward = side == 0
            neighbour = wp.where(backward, motion.previous, motion.following)

    if unsure > 0.0 and lowest.distance < reach and lowest.distance >= reach - unsure:
        return not_a_number()
    term = hinge(reach - unsure - lowest.distance, query.activation_distance)
    result.cost = term[0]
    result.radius = term[1]
    # Envelope theorem: the gradient at the fixed minimiser, shared between the two waypoints.
    result.by_contact = lowest.gradient * (-term[1])
    result.contact = wp.lerp(motion.center, neighbour, lowest.position)
    force = to_world(pose, result.by_contact)
    if backward:
        result.previous = lowest.position * force
    else:
        result.following = lowest.position * force
    result.center = force - result.previous - result.following
    return result


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


@wp.func
def scale_of(
    motion: Motion, dt: wp.array[wp.float32], min_speed: wp.array[wp.float32], weight: float
) -> SpeedScale:
    """Weight of a waypoint's cost, times its speed if ``dt`` is given; see `speed_scale`."""
    scale = SpeedScale()
    scale.value = 1.0
    if dt.shape[0] > 0:
        scale = speed_scale(
            motion.previous,
            motion.center,
            motion.following,
            motion.has_previous,
            motion.has_following,
            dt[0],
            min_speed,
        )
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
def upstream_scale(
    motion: Motion,
    dt: wp.array[wp.float32],
    min_speed: wp.array[wp.float32],
    weight: float,
    activation_distance: float,
    upstream: float,
) -> float:
    """D loss / d unscaled cost, from d loss / d cost; NaN for a motion that is not valid."""
    if not is_valid(motion, activation_distance):
        return wp.nan
    return scale_of(motion, dt, min_speed, weight).value * upstream


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


@wp.kernel
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


@wp.kernel
def swept_vjp(
    # operands
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost; empty: ones
    gradient: wp.array3d[wp.vec4],  # as `swept_cost` writes them
    neighbours: wp.array3d[mat23],
    # outputs
    total: wp.array3d[wp.vec4],  # d loss / d (x, y, z, radius); may be `gradient` itself
):
    """Gathers the gradients of the costs of three consecutive waypoints by the middle one."""
    row, waypoint, index = wp.tid()
    own = float(1.0)
    before = float(1.0)
    after = float(1.0)
    center = wp.vec3(0.0)
    if upstream.shape[0] > 0:
        own = upstream[row, waypoint, index]
    if waypoint > 0:
        if upstream.shape[0] > 0:
            before = upstream[row, waypoint - 1, index]
        center += before * neighbours[row, waypoint - 1, index][1]
    if waypoint + 1 < gradient.shape[1]:
        if upstream.shape[0] > 0:
            after = upstream[row, waypoint + 1, index]
        center += after * neighbours[row, waypoint + 1, index][0]
    total[row, waypoint, index] = own * gradient[row, waypoint, index] + wp.vec4(
        center[0], center[1], center[2], 0.0
    )
