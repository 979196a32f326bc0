"""Cost of moving spheres against obstacles that move from waypoint to waypoint too."""

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
from warp_collision.kernels.mesh_record import MeshRecord
from warp_collision.kernels.moving_sweep import (
    Curve,
    curve_between,
    curve_sample,
    rotate_back,
    sweep_curve,
)
from warp_collision.kernels.precision import FARTHEST
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    env_of_row,
    filled_slots,
    is_checked,
    is_env,
    load_obstacle,
)
from warp_collision.kernels.swept_cost import mat23, scale_of, scaled, store_cost, sum_of_two
from warp_collision.kernels.transforms import load_transform, to_world, vec8

wp.set_module_options(OPTIONS)


@wp.struct
class ObstacleMotion:
    """mesh_from_world of an obstacle at a waypoint and at its neighbours.

    Where the path of the sphere ends, the neighbour's is that of the waypoint itself.
    """

    previous: wp.transform
    here: wp.transform
    following: wp.transform


@wp.struct
class CurvedHalves:
    """Both half segments at a waypoint in the frame of a moving obstacle, see `half_segments`."""

    begin: wp.vec3
    before: Curve
    after: Curve
    mesh_from_world: wp.transform
    longest: float
    coordinates: float
    is_valid: bool


@wp.func
def load_obstacle_motion(
    poses: wp.array3d[vec8], env: int, waypoint: int, index: int, motion: Motion
) -> ObstacleMotion:
    """Reads the poses of an obstacle at the waypoints of a motion."""
    here = load_transform(poses[env, waypoint, index])
    result = ObstacleMotion(here, here, here)
    if motion.has_previous:
        result.previous = load_transform(poses[env, waypoint - 1, index])
    if motion.has_following:
        result.following = load_transform(poses[env, waypoint + 1, index])
    return result


@wp.func
def coordinates_of(moved: ObstacleMotion, motion: Motion) -> float:
    """Sum of the lengths to which the rounding of positions is relative [m]."""
    steps = wp.length(motion.previous - motion.center) + wp.length(motion.following - motion.center)
    return wp.length(motion.center) + steps + wp.length(wp.transform_get_translation(moved.here))


@wp.func
def half_curve(obstacle: Obstacle, moved: ObstacleMotion, motion: Motion, side: int) -> Curve:
    """Half segment to the neighbour before (side 0) or after, in the frame of the obstacle."""
    there = wp.where(side == 0, moved.previous, moved.following)
    end = wp.where(side == 0, motion.previous, motion.following)
    return curve_between(obstacle, moved.here, there, motion.center, end)


@wp.func
def curved_halves(obstacle: Obstacle, moved: ObstacleMotion, motion: Motion) -> CurvedHalves:
    """The half segments of a motion in the frame of a moving obstacle."""
    halves = CurvedHalves()
    halves.before = half_curve(obstacle, moved, motion, 0)
    halves.after = half_curve(obstacle, moved, motion, 1)
    # Rounding moves what has no neighbour, too, which would take a share of the gradient.
    if not motion.has_previous:
        halves.before.length = 0.0
    if not motion.has_following:
        halves.after.length = 0.0
    halves.begin = halves.before.origin
    halves.mesh_from_world = moved.here
    halves.longest = wp.max(halves.before.length, halves.after.length)
    halves.coordinates = coordinates_of(moved, motion) + halves.longest
    halves.is_valid = halves.before.is_valid and halves.after.is_valid
    return halves


@wp.func
def curved_half(obstacle: Obstacle, halves: CurvedHalves, side: int, reach: float) -> Curve:
    """The half segment to the neighbour before (side 0) or after, whatever is within reach."""
    return wp.where(side == 0, halves.before, halves.after)


@wp.func
def fraction_on_curve(curve: Curve, position: float) -> float:
    """Which fraction of a segment a position on one of its halves is."""
    return wp.where(curve.length > 0.0, position / (2.0 * curve.length), 0.0)


@wp.func
def offset_between(mesh_from_world: wp.transform, center: wp.vec3, middle: wp.vec3) -> wp.vec3:
    """Offset in the world from the middle of an obstacle, given in its frame, to a sphere."""
    return to_world(mesh_from_world, wp.transform_point(mesh_from_world, center) - middle)


@wp.func
def is_far(obstacle: Obstacle, motion: Motion, moved: ObstacleMotion, reach: float) -> bool:
    """Whether a ball around an obstacle is out of reach of both half segments at a waypoint.

    Cheaper than the curves. The offset between the two is linear in time, up to the arc on which
    the middle of the obstacle rotates about its origin.
    """
    record = wp.array(ptr=obstacle.record, shape=(1,), dtype=MeshRecord)
    lower = record[0].lower
    middle = 0.5 * (lower + record[0].upper)
    size = wp.length(middle - lower) + record[0].inside_reach + obstacle.padding
    begin = offset_between(moved.here, motion.center, middle)
    arc = wp.length(middle)
    bound = size + reach + 1.0e-5 * (arc + size + coordinates_of(moved, motion))
    gap = wp.length(begin)
    span = gap
    for side in range(2):
        there = wp.where(side == 0, moved.previous, moved.following)
        end = offset_between(there, wp.where(side == 0, motion.previous, motion.following), middle)
        span += wp.length(end)  # keeps a NaN, which a maximum drops
        half = 0.5 * (end - begin)
        fraction = -wp.dot(begin, half) / wp.max(wp.length_sq(half), 1.0e-20)
        nearest = wp.length(begin + wp.clamp(fraction, 0.0, 1.0) * half)
        first = wp.transform_get_rotation(moved.here)
        second = wp.transform_get_rotation(there)
        gap = wp.min(gap, nearest - arc * (1.0 - wp.min(wp.abs(wp.dot(first, second)), 1.0)))
    # Out of range coordinates are not free.
    return gap > bound and span < FARTHEST


cost_on_curves = make_cost(
    CurvedHalves,
    Curve,
    "curve",
    curved_half,
    curve_sample,
    sweep_curve,
    fraction_on_curve,
    rotate_back,
)


@wp.func
def moving_cost_against(obstacle: Obstacle, query: SweepQuery, moved: ObstacleMotion) -> SweptCost:
    """Cost of the half segments at one waypoint, against one moving obstacle."""
    motion = query.motion
    if is_far(obstacle, motion, moved, motion.radius + query.activation_distance):
        return SweptCost()
    result = cost_on_curves(obstacle, query, curved_halves(obstacle, moved, motion))
    result.center = (1.0 - result.fraction) * to_world(moved.here, result.by_contact)
    return result


@wp.func
def moving_cost_of(
    scene: Scene,
    poses: wp.array3d[vec8],
    env: int,
    waypoint: int,
    motion: Motion,
    activation_distance: float,
    tolerance: float,
) -> SweptCost:
    """Sum of the costs against all enabled obstacles of an env."""
    total = SweptCost()
    if motion.radius < 0.0:
        return total
    if not is_valid(motion, activation_distance) or not is_env(scene, env):
        return not_a_number()
    query = SweepQuery(motion, activation_distance, tolerance)
    slots = filled_slots(scene, env)
    for slot in range(slots[0], slots[1]):
        if is_checked(scene, slot, motion.sphere):
            obstacle = load_obstacle(scene, slot)
            if obstacle.is_present:
                moved = load_obstacle_motion(poses, env, waypoint, slot - slots[0], motion)
                total = sum_of_two(total, moving_cost_against(obstacle, query, moved))
    return total


@wp.kernel(**resident_warps(16))
def moving_swept_cost(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    poses: wp.array3d[vec8],  # (n_envs, horizon, n_slots) mesh_from_world at each waypoint
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
):
    """One thread per sphere and waypoint."""
    row, waypoint, index = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    index += launch_offset[2]
    motion = load_motion(spheres, row, waypoint, index)
    env = env_of_row(env_index, row)
    swept = moving_cost_of(
        scene, poses, env, waypoint, motion, activation_distance[0], tolerance[0]
    )
    result = scaled(swept, scale_of(motion, dt, min_speed, weight[0]))
    store_cost(result, row, waypoint, index, cost, gradient, neighbours)
