"""Gradients of the costs with respect to the rows of `mesh_from_world`.

A change of the pose of a mesh moves the contact point of each sphere in the frame of the mesh. One
thread sums the gradients by contact points over one slot and one part of the spheres; the parts are
summed by the caller. The queries are repeated here, so that costs without pose gradients are not
slowed down.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, resident_warps
from warp_collision.kernels.half_segments import SweepQuery, load_motion
from warp_collision.kernels.scene_walk import (
    Scene,
    is_checked,
    is_enabled,
    load_obstacle,
    pose_row,
    rows_of_env,
    slot_of_thread,
)
from warp_collision.kernels.sphere_cost import cost_against, is_valid, sphere_query
from warp_collision.kernels.swept_cost import checked_scale, swept_cost_against
from warp_collision.kernels.transforms import vec8

wp.set_module_options(OPTIONS)


@wp.func
def row_gradient(row: vec8, contact: wp.vec3, by_contact: wp.vec3) -> vec8:
    """Derivative of ``by_contact . (R(q) contact + t)`` by a row (t, q), q normalised."""
    u = wp.vec3(row[4], row[5], row[6])
    w = row[3]
    length = wp.sqrt(w * w + wp.length_sq(u))
    w = w / length
    u = u / length
    by_w = 2.0 * wp.dot(wp.cross(u, contact), by_contact)
    by_u = 2.0 * (
        w * wp.cross(contact, by_contact)
        + wp.dot(u, contact) * by_contact
        + wp.dot(u, by_contact) * contact
        - 2.0 * wp.dot(by_contact, contact) * u
    )
    # Only the component orthogonal to the quaternion changes the rotation.
    along = by_w * w + wp.dot(by_u, u)
    by_w = (by_w - along * w) / length
    by_u = (by_u - along * u) / length
    return vec8(by_contact[0], by_contact[1], by_contact[2], by_w, by_u[0], by_u[1], by_u[2], 0.0)


@wp.func
def sphere_index(
    order: wp.array[wp.int32], first: int, item: int, horizon: int, n_spheres: int
) -> wp.vec3i:
    """Row, waypoint and index of a sphere.

    Args:
        order: (batch,) rows sorted by env; empty: they are.
        first: where those of an env begin.
        item: number of the sphere among those of these rows.
        horizon: waypoints of a row.
        n_spheres: spheres of a waypoint.
    """
    rest = item // n_spheres
    row = first + rest // horizon
    if order.shape[0] > 0:
        row = order[row]
    return wp.vec3i(row, rest % horizon, item % n_spheres)


@wp.kernel
def sphere_cost_pose_vjp(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    order: wp.array[wp.int32],  # (batch,) rows sorted by env, or empty
    first_rows: wp.array[wp.int32],  # (n_envs + 1,), see `rows_of_env`
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost
    # outputs
    partial: wp.array3d[vec8],  # (n_envs, slots, parts) d loss / d row, to be summed over parts
):
    """One thread per slot and part of the spheres that are checked against its env."""
    env, index, part = wp.tid()
    total = vec8()
    slot = slot_of_thread(scene, env, index)
    if slot >= 0 and is_enabled(scene, slot):
        rows = rows_of_env(first_rows, env, spheres.shape[0])
        count = (rows[1] - rows[0]) * spheres.shape[1] * spheres.shape[2]
        for item in range(part, count, partial.shape[2]):
            at = sphere_index(order, rows[0], item, spheres.shape[1], spheres.shape[2])
            sphere = spheres[at[0], at[1], at[2]]
            if is_checked(scene, slot, at[2]) and not (sphere[3] < 0.0):
                # Reloaded each time: a pose kept live takes ten registers of a GPU.
                obstacle = load_obstacle(scene, slot)
                query = sphere_query(sphere, activation_distance[0])
                scale = weight[0] * upstream[at[0], at[1], at[2]]
                if not is_valid(query):
                    scale = wp.nan
                if obstacle.is_present:
                    by_contact = cost_against(obstacle, query).by_contact * scale
                    total += row_gradient(pose_row(scene, slot), query.center, by_contact)
    partial[env, index, part] = total


@wp.kernel(**resident_warps(16))
def swept_cost_pose_vjp(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    order: wp.array[wp.int32],  # (batch,) rows sorted by env, or empty
    first_rows: wp.array[wp.int32],  # (n_envs + 1,), see `rows_of_env`
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    tolerance: wp.array[wp.float32],  # (1,) [m]
    dt: wp.array[wp.float32],  # (1,) [s] or empty
    min_speed: wp.array[wp.float32],  # (1,) [m/s] or empty
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) d loss / d cost
    # outputs
    partial: wp.array3d[vec8],  # (n_envs, slots, parts) d loss / d row, to be summed over parts
):
    """One thread per slot and part of the spheres that are checked against its env."""
    env, index, part = wp.tid()
    total = vec8()
    slot = slot_of_thread(scene, env, index)
    if slot >= 0 and is_enabled(scene, slot):
        rows = rows_of_env(first_rows, env, spheres.shape[0])
        count = (rows[1] - rows[0]) * spheres.shape[1] * spheres.shape[2]
        for item in range(part, count, partial.shape[2]):
            at = sphere_index(order, rows[0], item, spheres.shape[1], spheres.shape[2])
            motion = load_motion(spheres, at[0], at[1], at[2])
            if is_checked(scene, slot, at[2]) and not (motion.radius < 0.0):
                query = SweepQuery(motion, activation_distance[0], tolerance[0])
                obstacle = load_obstacle(scene, slot)
                scale = checked_scale(query, dt, min_speed, weight[0])
                scale *= upstream[at[0], at[1], at[2]]
                if obstacle.is_present:
                    term = swept_cost_against(obstacle, query)
                    total += row_gradient(
                        pose_row(scene, slot), term.contact, term.by_contact * scale
                    )
    partial[env, index, part] = total
