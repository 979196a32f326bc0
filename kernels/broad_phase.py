"""Bounding boxes of the obstacles in the world, for the tree of the broad phase."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.precision import is_in_range
from warp_collision.kernels.scene import Obstacle, Scene, load_obstacle, record_of, slot_of_thread

wp.set_module_options(OPTIONS)


@wp.kernel
def world_boxes(
    # operands
    scene: Scene,
    # outputs
    blocks: wp.array4d[wp.float32],  # (n_envs, n_blocks, 6, 8) as in `box_blocks`, or empty
    lower: wp.array2d[wp.vec3],  # (n_envs, slots) corners of the boxes [m]
    upper: wp.array2d[wp.vec3],
):
    """One thread per slot. Without a valid pose the box is all of space; of an empty slot none."""
    env, index = wp.tid()
    low = wp.vec3(FAR, FAR, FAR)
    high = wp.vec3(-FAR, -FAR, -FAR)
    # Enabled or not: a mask that changes does not move the boxes.
    obstacle = Obstacle()
    slot = slot_of_thread(scene, env, index)
    if slot >= 0:
        obstacle = load_obstacle(scene, slot)
    if obstacle.is_present:
        record = record_of(obstacle)
        pose = obstacle.mesh_from_world
        center = 0.5 * (record.lower + record.upper)
        half = 0.5 * (record.upper - record.lower) + wp.vec3(record.inside_reach)
        middle = wp.transform_point(wp.transform_inverse(pose), center)
        rotation = wp.quat_to_matrix(wp.transform_get_rotation(pose))
        # Rows of the inverse rotation are columns of the rotation.
        reach = wp.vec3(
            wp.dot(wp.abs(wp.vec3(rotation[0, 0], rotation[1, 0], rotation[2, 0])), half),
            wp.dot(wp.abs(wp.vec3(rotation[0, 1], rotation[1, 1], rotation[2, 1])), half),
            wp.dot(wp.abs(wp.vec3(rotation[0, 2], rotation[1, 2], rotation[2, 2])), half),
        )
        # Rounding of the pose must not make a box too small.
        reach += wp.vec3(
            obstacle.padding + 1.0e-5 * (wp.length(middle) + wp.length(center) + wp.length(half))
        )
        low = wp.vec3(-FAR, -FAR, -FAR)
        high = wp.vec3(FAR, FAR, FAR)
        if is_in_range(middle) and is_in_range(reach):
            low = middle - reach
            high = middle + reach
    lower[env, index] = low
    upper[env, index] = high
    if index < 8 * blocks.shape[1]:
        for axis in range(3):
            blocks[env, index / 8, axis, index % 8] = low[axis]
            blocks[env, index / 8, 3 + axis, index % 8] = high[axis]


@wp.kernel
def find_roots(
    # outputs
    tree: wp.array[wp.int64],  # (1 + n_envs,) or more: id of the tree, root node of each env
):
    """One thread per env. Found once, so that queries need not search for it."""
    env = wp.tid()
    tree[1 + env] = wp.int64(wp.bvh_get_group_root(wp.uint64(tree[0]), env))
