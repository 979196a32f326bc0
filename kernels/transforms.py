"""Rigid transforms as rows of eight floats: x, y, z, qw, qx, qy, qz and one of padding."""

import warp as wp

vec8 = wp.types.vector(length=8, dtype=wp.float32)


@wp.func
def load_transform(row: vec8) -> wp.transform:
    """The transform of a row, its quaternion normalised; a zero quaternion gives NaN.

    The division is written out because `wp.normalize` maps a zero quaternion to zero, which would
    silently send every point to the frame's origin.
    """
    x = row[4]
    y = row[5]
    z = row[6]
    w = row[3]
    length_sq = w * w + x * x + y * y + z * z
    # Squares that over- or underflow would give some other rotation, or none.
    scale = wp.where(length_sq > 1.0e-30 and length_sq < 1.0e30, 1.0 / wp.sqrt(length_sq), wp.nan)
    position = wp.vec3(row[0], row[1], row[2])
    return wp.transform(position, wp.quat(x * scale, y * scale, z * scale, w * scale))


@wp.func
def to_world(mesh_from_world: wp.transform, direction: wp.vec3) -> wp.vec3:
    """Rotates a direction of the mesh's frame into the world."""
    return wp.quat_rotate_inv(wp.transform_get_rotation(mesh_from_world), direction)
