"""Bounding boxes of the obstacles in the world, for the tree of the broad phase."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_record import FAR, MeshRecord, Shape
from warp_collision.kernels.precision import is_in_range
from warp_collision.kernels.scene_walk import (
    Obstacle,
    Scene,
    load_obstacle,
    record_of,
    slot_of_thread,
)
from warp_collision.kernels.transforms import to_world

wp.set_module_options(OPTIONS)


@wp.struct
class WorldBox:
    """An axis-aligned box."""

    lower: wp.vec3  # [m]
    upper: wp.vec3


@wp.func
def box_of_record(record: MeshRecord, pose: wp.transform, padding: float) -> WorldBox:
    """The box around what has ends; all of space where the pose is not valid."""
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
    reach += wp.vec3(padding + 1.0e-5 * (wp.length(middle) + wp.length(center) + wp.length(half)))
    if is_in_range(middle) and is_in_range(reach):
        return WorldBox(middle - reach, middle + reach)
    return WorldBox(wp.vec3(-FAR), wp.vec3(FAR))


@wp.func
def box_of_half_space(record: MeshRecord, pose: wp.transform, padding: float) -> WorldBox:
    """All that is below a plane across an axis of the world; of other planes all of space."""
    box = WorldBox(wp.vec3(-FAR), wp.vec3(FAR))
    normal = to_world(pose, record.exact.size)
    foot = wp.transform_point(wp.transform_inverse(pose), record.exact.center)
    # Rounding of the pose must not make a box too small.
    reach = padding + 1.0e-5 * (wp.length(foot) + wp.length(record.exact.center))
    if is_in_range(foot) and reach < FAR:
        if normal[1] == 0.0 and normal[2] == 0.0:
            box = cut_box(box, 0, normal[0], foot[0], reach)
        elif normal[2] == 0.0 and normal[0] == 0.0:
            box = cut_box(box, 1, normal[1], foot[1], reach)
        elif normal[0] == 0.0 and normal[1] == 0.0:
            box = cut_box(box, 2, normal[2], foot[2], reach)
    return box


@wp.func
def cut_box(box: WorldBox, axis: int, normal: float, foot: float, reach: float) -> WorldBox:
    """The part of a box that is below a plane across an axis, or within reach of it."""
    if normal > 0.0:
        box.upper[axis] = foot + reach
    else:
        box.lower[axis] = foot - reach
    return box


@wp.kernel
def world_boxes(
    # operands
    scene: Scene,
    # outputs
    blocks: wp.array4d[wp.float32],  # (n_envs, n_blocks, 6, 8) as in `box_blocks`, or empty
    lower: wp.array2d[wp.vec3],  # (n_envs, slots) corners of the boxes [m]
    upper: wp.array2d[wp.vec3],
):
    """One thread per slot; an empty slot has no box."""
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
        box = box_of_record(record, obstacle.mesh_from_world, obstacle.padding)
        if record.exact.kind == Shape.HALF_SPACE:
            box = box_of_half_space(record, obstacle.mesh_from_world, obstacle.padding)
        low = box.lower
        high = box.upper
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
