"""Signed distance of the shapes that sensors see: the one place that chooses among them."""

import warp as wp

from warp_collision.kernels.cloud_distance import cloud_distance, is_nearer_to_cloud
from warp_collision.kernels.esdf_grid import esdf_distance
from warp_collision.kernels.height_distance import field_distance, is_nearer_to_field
from warp_collision.kernels.mesh_record import ExactShape, Shape
from warp_collision.kernels.shape_distance import ShapeSample
from warp_collision.kernels.voxel_distance import (
    is_nearer_to_voxels,
    load_map,
    voxel_bounds,
    voxel_distance,
)


@wp.func
def sensed_distance(exact: ExactShape, point: wp.vec3, limit: float) -> ShapeSample:
    """Signed distance where it is below a limit, else the limit without a gradient."""
    if exact.kind == Shape.POINT_CLOUD:
        return cloud_distance(exact.data, point, limit)
    if exact.kind == Shape.ESDF_GRID:
        return esdf_distance(exact.data, point, limit)
    if exact.kind == Shape.HEIGHT_FIELD:
        return field_distance(exact.data, point, limit)
    voxels = load_map(exact.data)
    bounds = voxel_bounds(voxels, point)
    if bounds[0] >= limit:
        return ShapeSample(limit, wp.vec3(0.0))
    return voxel_distance(voxels, point, limit, bounds[0])


@wp.func
def is_sensed_nearer(exact: ExactShape, point: wp.vec3, limit: float) -> bool:
    """Whether the signed distance is below a limit."""
    if exact.kind == Shape.POINT_CLOUD:
        return is_nearer_to_cloud(exact.data, point, limit)
    if exact.kind == Shape.ESDF_GRID:
        return esdf_distance(exact.data, point, limit).distance < limit
    if exact.kind == Shape.HEIGHT_FIELD:
        return is_nearer_to_field(exact.data, point, limit)
    voxels = load_map(exact.data)
    bounds = voxel_bounds(voxels, point)
    if bounds[0] >= limit:
        return False
    if bounds[1] < limit:
        return True
    return is_nearer_to_voxels(voxels, point, limit)
