"""Whether spheres collide, at rest and in motion; a walk over the obstacles ends at a hit."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, resident_warps
from warp_collision.kernels.half_segments import (
    Motion,
    SweepQuery,
    is_valid,
    load_motion,
    make_touches,
)
from warp_collision.kernels.mesh_distance import is_nearer
from warp_collision.kernels.precision import is_in_range, is_length, uncertainty
from warp_collision.kernels.scene_walk import (
    NOTHING_IGNORED,
    Obstacle,
    Scene,
    env_of_row,
    env_of_sphere,
    is_env,
    is_hit,
    make_walk,
)
from warp_collision.kernels.sweep import is_free, path_sample
from warp_collision.kernels.swept_cost import (
    StraightHalves,
    longest_half,
    straight_half,
    straight_halves,
)

wp.set_module_options(OPTIONS)


@wp.func
def touches(obstacle: Obstacle, sphere: wp.vec4, hit: bool) -> bool:
    """Whether a sphere touches an obstacle, within rounding, or its pose is not finite."""
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    pose = obstacle.mesh_from_world
    point = wp.transform_point(pose, center)
    if not is_in_range(point):
        return True
    coordinates = wp.length(center) + wp.length(wp.transform_get_translation(pose))
    limit = sphere[3] + obstacle.padding + uncertainty(coordinates, 0.0)
    return is_nearer(obstacle.record, point, limit)


touches_any = make_walk(touches, wp.vec4, bool, is_hit)


@wp.func
def sphere_collides(scene: Scene, env: int, sphere: wp.vec4) -> bool:
    """Whether a sphere touches an enabled obstacle of its env, or is not finite."""
    if sphere[3] < 0.0:
        return False
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    if not is_in_range(center) or not is_length(sphere[3]) or not is_env(scene, env):
        return True
    return touches_any(scene, env, NOTHING_IGNORED, center, sphere[3], sphere, False)


touches_path = make_touches(StraightHalves, "straight", straight_half, path_sample, is_free)


@wp.func
def touches_on_path(obstacle: Obstacle, query: SweepQuery, hit: bool) -> bool:
    """Whether the half segments at a waypoint are not certified free of an obstacle at rest."""
    return touches_path(obstacle, query, straight_halves(obstacle, query.motion))


touches_any_on_path = make_walk(touches_on_path, SweepQuery, bool, is_hit)


@wp.func
def motion_collides(scene: Scene, env: int, motion: Motion, tolerance: float) -> bool:
    """Whether the half segments at a waypoint are not certified free, or not finite."""
    if motion.radius < 0.0:
        return False
    if not is_valid(motion, tolerance) or not is_env(scene, env):
        return True
    query = SweepQuery(motion, 0.0, tolerance)
    reach = motion.radius + tolerance + longest_half(motion)
    return touches_any_on_path(scene, env, NOTHING_IGNORED, motion.center, reach, query, False)


@wp.kernel(**resident_warps(24))
def in_collision(
    # operands
    spheres: wp.array[wp.vec4],  # (n,) of all batch rows and waypoints: x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the spheres
    # outputs
    hit: wp.array[wp.bool],  # (n,)
):
    """One thread per sphere; see `env_of_sphere` for why their axes are one."""
    _row, index = wp.tid()
    index += launch_offset[1]
    env = env_of_sphere(env_index, index, spheres.shape[0])
    hit[index] = sphere_collides(scene, env, spheres[index])


@wp.kernel(**resident_warps(24))
def any_in_collision(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the waypoints
    # outputs
    hit: wp.array2d[wp.bool],  # (batch, horizon)
):
    """One thread per waypoint; it ends at the first sphere that collides."""
    row, waypoint = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    env = env_of_row(env_index, row)
    collides = bool(False)
    index = int(0)
    while index < spheres.shape[2] and not collides:
        collides = sphere_collides(scene, env, spheres[row, waypoint, index])
        index += 1
    hit[row, waypoint] = collides


@wp.kernel(**resident_warps(16))
def swept_in_collision(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    tolerance: wp.array[wp.float32],  # (1,) [m]
    launch_offset: wp.vec3i,  # of this launch in the spheres
    # outputs
    hit: wp.array3d[wp.bool],  # (batch, horizon, n_spheres)
):
    """One thread per sphere and waypoint."""
    row, waypoint, index = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    index += launch_offset[2]
    motion = load_motion(spheres, row, waypoint, index)
    env = env_of_row(env_index, row)
    hit[row, waypoint, index] = motion_collides(scene, env, motion, tolerance[0])
