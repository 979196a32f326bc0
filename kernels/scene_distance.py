"""Signed distance of points to the nearest enabled mesh of their env."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_distance import obstacle_distance
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.precision import LARGEST, is_finite4, is_in_range, is_nan
from warp_collision.kernels.scene_walk import (
    NOTHING_IGNORED,
    Obstacle,
    Scene,
    distance_to_root,
    env_of_row,
    env_of_sphere,
    is_env,
    make_is_clear,
    make_walk,
    tree_of,
)
from warp_collision.kernels.transforms import to_world

wp.set_module_options(OPTIONS)

# First search radius, beyond the distance to the box around all obstacles [m].
FIRST_STEP = wp.constant(0.1)


@wp.struct
class SceneSample:
    """Signed distance of a scene: the minimum over its meshes."""

    distance: float  # [m]
    gradient: wp.vec3  # unit, outward, world frame
    slot: int  # of the nearest mesh, counted through all envs; -1: none below the limit


@wp.func
def no_sample() -> SceneSample:
    """NaN: a point or a pose is not finite."""
    return SceneSample(wp.nan, wp.vec3(wp.nan, wp.nan, wp.nan), -1)


@wp.func
def nearer(obstacle: Obstacle, point: wp.vec3, best: SceneSample) -> SceneSample:
    """The nearer of an obstacle and the best so far; NaN from the first NaN pose on."""
    if obstacle.slot == best.slot or wp.isnan(best.distance):
        return best
    pose = obstacle.mesh_from_world
    local = wp.transform_point(pose, point)
    if not is_in_range(local):
        return no_sample()
    # The best so far limits the search.
    limit = best.distance + obstacle.padding
    sample = obstacle_distance(obstacle.record, local, limit)
    if sample.found:
        best.distance = sample.distance - obstacle.padding
        best.gradient = to_world(pose, sample.gradient)
        best.slot = obstacle.slot
    return best


has_clearance = make_is_clear("spheres")
nearest = make_walk(nearer, wp.vec3, SceneSample)


@wp.func
def scene_distance_at(
    scene: Scene, env: int, sphere: int, point: wp.vec3, limit: float
) -> SceneSample:
    """Exact below the limit, else the limit; NaN where the point or a pose is NaN."""
    if not is_in_range(point) or not is_env(scene, env):
        return no_sample()
    best = SceneSample(limit, wp.vec3(0.0), -1)
    # With a tree: boxes of growing size until the best obstacle lies within the last one.
    reach = float(limit)
    if limit > FIRST_STEP:
        tree = tree_of(scene, env)
        if tree.bvh != wp.uint64(0):
            box_distance = distance_to_root(tree, point)
            if box_distance >= limit:
                return best
            reach = box_distance + FIRST_STEP
    searched = float(-1.0)  # a limit of 0 still finds meshes around the point
    while searched < best.distance:
        searched = wp.min(reach, best.distance)
        best = nearest(scene, env, sphere, point, searched, point, best)
        reach = 4.0 * searched  # not as far as what was found: a tilted floor is in every box
    return best


@wp.kernel
def scene_distance(
    # operands
    points: wp.array2d[wp.vec3],  # (batch, n_points) [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the points
    # outputs
    distance: wp.array2d[wp.float32],  # (batch, n_points) [m], inf without a mesh
    gradient: wp.array2d[wp.vec3],  # (batch, n_points)
    slot: wp.array2d[wp.int32],  # (batch, n_points) -1 without a mesh
):
    """One thread per point."""
    row, index = wp.tid()
    row += launch_offset[0]
    index += launch_offset[1]
    env = env_of_row(env_index, row)
    sample = scene_distance_at(scene, env, NOTHING_IGNORED, points[row, index], FAR)
    if sample.slot < 0 and not wp.isnan(sample.distance):
        sample.distance = wp.inf
    distance[row, index] = sample.distance
    gradient[row, index] = sample.gradient
    slot[row, index] = wp.where(sample.slot < 0, -1, sample.slot - env * scene.n_slots)


@wp.kernel
def sphere_clearance(
    # operands
    spheres: wp.array[wp.vec4],  # (n,) of all batch rows and waypoints: x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    max_distance: wp.array[wp.float32],  # (1,) [m] or empty
    launch_offset: wp.vec2i,  # of this launch in the spheres
    # outputs
    clearance: wp.array[wp.float32],  # (n,) [m], inf: none up to the limit
    gradient: wp.array[wp.vec4],  # (n,) d clearance / d (x, y, z, radius)
    slot: wp.array[wp.int32],  # (n,) -1: none
):
    """One thread per sphere, see `env_of_sphere`; a disabled one is clear of everything."""
    _row, index = wp.tid()
    index += launch_offset[1]
    sphere = spheres[index]
    env = env_of_sphere(env_index, index, spheres.shape[0])
    sample = SceneSample(0.0, wp.vec3(0.0), -1)
    if not (sphere[3] < 0.0):
        center = wp.vec3(sphere[0], sphere[1], sphere[2])
        limit = float(FAR)
        if max_distance.shape[0] > 0:
            limit = sphere[3] + max_distance[0]
            if not (wp.abs(limit) <= LARGEST):
                center = wp.vec3(wp.nan, wp.nan, wp.nan)
        is_free = bool(False)
        if is_in_range(center) and is_env(scene, env):
            is_free = has_clearance(scene, env, center, limit)
        if not is_free:
            sample = scene_distance_at(scene, env, index, center, limit)
    if sample.slot >= 0:
        sample.slot -= env * scene.n_slots
    elif not is_nan(sample.distance):
        sample.distance = wp.inf
    value = sample.distance - sphere[3]
    clearance[index] = value
    by_radius = wp.where(value == wp.inf, 0.0, -1.0)
    by_radius = wp.where(is_nan(value), value, by_radius)
    by_center = sample.gradient
    gradient[index] = wp.vec4(by_center[0], by_center[1], by_center[2], by_radius)
    slot[index] = sample.slot


@wp.kernel
def sphere_esdf(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    max_distance: wp.array[wp.float32],  # (1,) [m]
    launch_offset: wp.vec3i,  # of this launch in the spheres
    # outputs
    esdf: wp.array3d[wp.float32],  # (batch, horizon, n_spheres) weighted, positive inside
    gradient: wp.array3d[wp.vec4],  # d esdf / d (x, y, z, radius), or empty
    active: wp.array3d[wp.uint8],  # 1 where the value is not 0
):
    """One thread per sphere center, in the older convention: positive inside."""
    row, waypoint, index = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    index += launch_offset[2]
    sphere = spheres[row, waypoint, index]
    value = float(0.0)
    slope = wp.vec3(0.0)
    # A disabled sphere has the value 0; one with a NaN radius is not disabled, its value is NaN.
    if not (sphere[3] < 0.0):
        center = wp.vec3(sphere[0], sphere[1], sphere[2])
        if not is_finite4(sphere):
            center = wp.vec3(wp.nan, wp.nan, wp.nan)
        env = env_of_row(env_index, row)
        sample = scene_distance_at(scene, env, NOTHING_IGNORED, center, max_distance[0])
        value = -weight[0] * sample.distance
        slope = -weight[0] * sample.gradient
    # Recomputed: indices kept live across the queries take a dozen registers of a GPU.
    row, waypoint, index = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    index += launch_offset[2]
    esdf[row, waypoint, index] = value
    if gradient.shape[0] > 0:
        gradient[row, waypoint, index] = wp.vec4(slope[0], slope[1], slope[2], 0.0)
    active[row, waypoint, index] = wp.where(value == 0.0, wp.uint8(0), wp.uint8(1))
