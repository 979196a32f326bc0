"""Whether moving spheres collide with moving obstacles; the walk ends at a hit."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, resident_warps
from warp_collision.kernels.half_segments import (
    Motion,
    SweepQuery,
    is_valid,
    load_motion,
    make_touches,
)
from warp_collision.kernels.moving_cost import (
    CurvedHalves,
    curved_half,
    curved_halves,
    is_far,
    load_obstacle_motion,
)
from warp_collision.kernels.moving_sweep import curve_sample, is_curve_free
from warp_collision.kernels.scene_walk import (
    Scene,
    env_of_row,
    filled_slots,
    is_enabled,
    is_env,
    load_obstacle,
)
from warp_collision.kernels.transforms import vec8

wp.set_module_options(OPTIONS)


touches_curve = make_touches(CurvedHalves, "curve", curved_half, curve_sample, is_curve_free)


@wp.func
def collides_with_moving(
    scene: Scene, poses: wp.array3d[vec8], env: int, waypoint: int, motion: Motion, tolerance: float
) -> bool:
    """Whether the half segments at a waypoint are not certified free, or not finite."""
    if motion.radius < 0.0:
        return False
    if not is_valid(motion, tolerance) or not is_env(scene, env):
        return True
    query = SweepQuery(motion, 0.0, tolerance)
    slots = filled_slots(scene, env)
    for slot in range(slots[0], slots[1]):
        if is_enabled(scene, slot):
            obstacle = load_obstacle(scene, slot)
            if obstacle.is_present:
                moved = load_obstacle_motion(poses, env, waypoint, slot - slots[0], motion)
                if not is_far(obstacle, motion, moved, motion.radius + tolerance):
                    if touches_curve(obstacle, query, curved_halves(obstacle, moved, motion)):
                        return True
    return False


@wp.kernel(**resident_warps(16))
def moving_swept_in_collision(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    poses: wp.array3d[vec8],  # (n_envs, horizon, n_slots) mesh_from_world at each waypoint
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
    hit[row, waypoint, index] = collides_with_moving(
        scene, poses, env, waypoint, motion, tolerance[0]
    )
