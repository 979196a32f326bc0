"""Signed distance of a point cloud: the least distance to a center less the radius of its ball."""

import warp as wp

from warp_collision.kernels.nearest_part import PartTree, nearest_part, part_vector
from warp_collision.kernels.shape_distance import ShapeSample, sphere_distance


@wp.func
def load_tree(pointer: wp.uint64) -> PartTree:
    """The balls that an exact shape points to."""
    return wp.array(ptr=pointer, shape=(1,), dtype=PartTree)[0]


@wp.func
def cloud_distance(pointer: wp.uint64, point: wp.vec3, limit: float) -> ShapeSample:
    """Signed distance of a cloud where it is below a limit, else the limit without a gradient."""
    tree = load_tree(pointer)
    index = nearest_part(tree, point, limit, False)
    if index < 0:
        return ShapeSample(limit, wp.vec3(0.0))
    ball = part_vector(tree, index, 0)
    return sphere_distance(ball[3], point - wp.vec3(ball[0], ball[1], ball[2]))


@wp.func
def is_nearer_to_cloud(pointer: wp.uint64, point: wp.vec3, limit: float) -> bool:
    """Whether the signed distance of a cloud is below a limit."""
    return nearest_part(load_tree(pointer), point, limit, True) >= 0
