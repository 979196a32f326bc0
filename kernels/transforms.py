"""Rigid transforms as rows of eight floats: x, y, z, qw, qx, qy, qz and one of padding."""

import warp as wp


@wp.func
def load_transform(rows: wp.array3d[wp.float32], env: int, slot: int) -> wp.transform:
    """Reads one row and normalises its quaternion; a zero quaternion gives NaN, never a rotation.

    The division is written out because `wp.normalize` maps a zero quaternion to zero, which would
    silently send every point to the frame's origin.
    """
    x = rows[env, slot, 4]
    y = rows[env, slot, 5]
    z = rows[env, slot, 6]
    w = rows[env, slot, 3]
    scale = 1.0 / wp.sqrt(w * w + x * x + y * y + z * z)
    position = wp.vec3(rows[env, slot, 0], rows[env, slot, 1], rows[env, slot, 2])
    return wp.transform(position, wp.quat(x * scale, y * scale, z * scale, w * scale))


@wp.func
def to_world(mesh_from_world: wp.transform, direction: wp.vec3) -> wp.vec3:
    """Rotates a direction of the mesh's frame into the world."""
    return wp.quat_rotate_inv(wp.transform_get_rotation(mesh_from_world), direction)
