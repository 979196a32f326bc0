"""Gradients of swept costs by the rows of `mesh_from_world` of obstacles that move.

The gradient of a cost acts as a force at the minimiser on the path. It is distributed to the poses
of the obstacle at both ends of the segment: for its position by the fraction s, for its
rotation as one at a constant rate depends on its ends. With omega the rotation between them and phi
small rotations in the world, exp(s omega) exp(phi) stays on the path from one pose to the other if,
orthogonal to the axis and written as complex numbers,

    phi(s) sin(theta / 2) = sin((1 - s) theta / 2) e^(i s theta / 2) phi(0)
                            + sin(s theta / 2) e^(i (s - 1) theta / 2) phi(1)

and phi(s) = (1 - s) phi(0) + s phi(1) along it.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, resident_warps
from warp_collision.kernels.half_segments import Motion, SweepQuery, SweptCost, load_motion
from warp_collision.kernels.moving_cost import (
    ObstacleMotion,
    half_curve,
    load_obstacle_motion,
    moving_cost_against,
)
from warp_collision.kernels.pose_gradient import sphere_index
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    is_checked,
    is_enabled,
    load_obstacle,
    rows_of_env,
    slot_of_thread,
)
from warp_collision.kernels.swept_cost import checked_scale
from warp_collision.kernels.transforms import to_world, vec8

wp.set_module_options(OPTIONS)


@wp.struct
class PoseGradients:
    """Gradients by the rows of an obstacle at a waypoint and at its neighbours."""

    previous: vec8
    here: vec8
    following: vec8


@wp.func
def moment_at_end(axis: wp.vec3, angle: float, weight: float, moment: wp.vec3) -> wp.vec3:
    """Moment at one end of a segment from the moment at a pose between the ends.

    Args:
        axis: of the rotation between the ends, unit, from this end to the other one.
        angle: of that rotation.
        weight: weight of this end, 1 at the end itself.
        moment: d loss / d small rotation of the pose between the ends.
    """
    along = wp.dot(axis, moment) * axis
    factor = weight
    if angle > 1.0e-3:
        factor = wp.sin(0.5 * weight * angle) / wp.sin(0.5 * angle)
    back = wp.quat_from_axis_angle(axis, -0.5 * (1.0 - weight) * angle)
    return weight * along + factor * wp.quat_rotate(back, moment - along)


@wp.func
def by_row(
    row: vec8, mesh_from_world: wp.transform, force: wp.vec3, moment: wp.vec3, weight: float
) -> vec8:
    """Derivative by a row (t, q), its quaternion normalised.

    Args:
        row: as it is stored.
        mesh_from_world: its transform.
        force: d loss / d contact, in the world.
        moment: d loss / d small rotation of the obstacle about its origin, in the world.
        weight: weight of this pose in the position of the obstacle.
    """
    rotation = wp.transform_get_rotation(mesh_from_world)
    origin = -to_world(mesh_from_world, wp.transform_get_translation(mesh_from_world))
    # The row is the inverse pose: its rotation moves the origin of the obstacle too.
    total = moment - weight * wp.cross(origin, force)
    by_position = weight * wp.quat_rotate(rotation, force)
    length = wp.sqrt(row[3] * row[3] + row[4] * row[4] + row[5] * row[5] + row[6] * row[6])
    by_rotation = rotation * wp.quat(-2.0 * total[0], -2.0 * total[1], -2.0 * total[2], 0.0)
    return vec8(
        by_position[0],
        by_position[1],
        by_position[2],
        by_rotation[3] / length,
        by_rotation[0] / length,
        by_rotation[1] / length,
        by_rotation[2] / length,
        0.0,
    )


@wp.func
def pose_gradients(
    obstacle: Obstacle,
    motion: Motion,
    moved: ObstacleMotion,
    term: SweptCost,
    row: vec8,
    other: vec8,
    scale: float,
) -> PoseGradients:
    """Derivatives of a term by the row at the waypoint and by that at the neighbour."""
    force = to_world(moved.here, term.by_contact) * scale
    fraction = term.fraction
    curve = half_curve(obstacle, moved, motion, wp.where(term.is_backward, 0, 1))
    there = wp.where(term.is_backward, moved.previous, moved.following)
    begin = -to_world(moved.here, wp.transform_get_translation(moved.here))
    end = -to_world(there, wp.transform_get_translation(there))
    moment = -wp.cross(term.contact - wp.lerp(begin, end, fraction), force)
    # In the frame of the mesh the path rotates in the opposite direction.
    axis = -to_world(moved.here, curve.axis)
    at_here = moment_at_end(axis, curve.angle, 1.0 - fraction, moment)
    at_there = moment_at_end(-axis, curve.angle, fraction, moment)
    result = PoseGradients()
    result.here = by_row(row, moved.here, force, at_here, 1.0 - fraction)
    neighbour = by_row(other, there, force, at_there, fraction)
    if term.is_backward:
        result.previous = neighbour
    else:
        result.following = neighbour
    return result


@wp.func
def neighbour_of(waypoint: int, motion: Motion, is_backward: bool) -> int:
    """The neighbour of a waypoint, itself where there is none."""
    before = wp.where(motion.has_previous, waypoint - 1, waypoint)
    after = wp.where(motion.has_following, waypoint + 1, waypoint)
    return wp.where(is_backward, before, after)


@wp.kernel(**resident_warps(16))
def moving_cost_pose_vjp(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    order: wp.array[wp.int32],  # (batch,) rows sorted by env, or empty
    first_rows: wp.array[wp.int32],  # (n_envs + 1,), see `rows_of_env`
    scene: Scene,
    poses: wp.array3d[vec8],  # (n_envs, horizon, n_slots) mesh_from_world at each waypoint
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    tolerance: wp.array[wp.float32],  # (1,) [m]
    dt: wp.array[wp.float32],  # (1,) [s] or empty
    min_speed: wp.array[wp.float32],  # (1,) [m/s] or empty
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost
    # outputs
    previous: wp.array4d[vec8],  # (n_envs, horizon, n_slots, parts) d loss / d row before that of
    here: wp.array4d[vec8],  # the waypoint, at it, and after it, to be summed over parts
    following: wp.array4d[vec8],
):
    """One thread per slot, waypoint and part of the spheres that are checked against its env."""
    env, waypoint, index, part = wp.tid()
    total = PoseGradients()
    slot = slot_of_thread(scene, env, index)
    if slot >= 0 and is_enabled(scene, slot):
        rows = rows_of_env(first_rows, env, spheres.shape[0])
        for item in range(part, (rows[1] - rows[0]) * spheres.shape[2], here.shape[3]):
            at = sphere_index(order, rows[0], item, 1, spheres.shape[2])
            motion = load_motion(spheres, at[0], waypoint, at[2])
            if is_checked(scene, slot, at[2]) and not (motion.radius < 0.0):
                query = SweepQuery(motion, activation_distance[0], tolerance[0])
                obstacle = load_obstacle(scene, slot)
                scale = checked_scale(query, dt, min_speed, weight[0])
                scale *= upstream[at[0], waypoint, at[2]]
                if obstacle.is_present:
                    moved = load_obstacle_motion(poses, env, waypoint, index, motion)
                    term = moving_cost_against(obstacle, query, moved)
                    row = poses[env, waypoint, index]
                    neighbour = neighbour_of(waypoint, motion, term.is_backward)
                    other = poses[env, neighbour, index]
                    terms = pose_gradients(obstacle, motion, moved, term, row, other, scale)
                    total.previous += terms.previous
                    total.here += terms.here
                    total.following += terms.following
    previous[env, waypoint, index, part] = total.previous
    here[env, waypoint, index, part] = total.here
    following[env, waypoint, index, part] = total.following
