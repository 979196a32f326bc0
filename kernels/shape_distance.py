"""Exact signed distance and gradient of the shapes that have a formula, centered on their frames.

Each formula is exact at every depth. Where the closest point is not unique, on edges, axes and at
centers, the gradient is a fixed unit vector.
"""

import warp as wp

from warp_collision.kernels.mesh_record import FAR, ExactShape, Shape

# Shorter vectors have no direction: their squares vanish in float32 [m].
POINT = wp.constant(1.0e-18)


@wp.struct
class ShapeSample:
    """Signed distance of a shape at a point."""

    distance: float  # [m]
    gradient: wp.vec3  # unit, outward


@wp.func
def with_signs_of(value: wp.vec3, signs: wp.vec3) -> wp.vec3:
    """A vector of the first octant, mirrored into the octant of `signs`."""
    return wp.vec3(
        wp.where(signs[0] < 0.0, -value[0], value[0]),
        wp.where(signs[1] < 0.0, -value[1], value[1]),
        wp.where(signs[2] < 0.0, -value[2], value[2]),
    )


@wp.func
def cuboid_distance(half: wp.vec3, point: wp.vec3) -> ShapeSample:
    """A cuboid, given by its half edges; inside, the nearest face counts, x before y before z."""
    sample = ShapeSample()
    beyond = wp.abs(point) - half
    deepest = wp.max(beyond)
    if deepest > POINT:
        outside = wp.max(beyond, wp.vec3(0.0))
        sample.distance = wp.length(outside)
        sample.gradient = outside / sample.distance
    else:
        sample.distance = deepest
        sample.gradient = wp.vec3(0.0, 0.0, 1.0)
        if beyond[0] == deepest:
            sample.gradient = wp.vec3(1.0, 0.0, 0.0)
        elif beyond[1] == deepest:
            sample.gradient = wp.vec3(0.0, 1.0, 0.0)
    sample.gradient = with_signs_of(sample.gradient, point)
    return sample


@wp.func
def sphere_distance(radius: float, point: wp.vec3) -> ShapeSample:
    """A sphere; at its center the gradient is x."""
    distance = wp.length(point)
    gradient = wp.vec3(1.0, 0.0, 0.0)
    if distance > POINT:
        gradient = point / distance
    return ShapeSample(distance - radius, gradient)


@wp.func
def capsule_distance(radius: float, half_length: float, point: wp.vec3) -> ShapeSample:
    """A capsule along z: a sphere around the closest point of its axis."""
    along = wp.clamp(point[2], -half_length, half_length)
    return sphere_distance(radius, wp.vec3(point[0], point[1], point[2] - along))


@wp.func
def cylinder_distance(radius: float, half_height: float, point: wp.vec3) -> ShapeSample:
    """A cylinder along z: a rectangle in the half plane of the point, on the axis that of x."""
    across = wp.vec2(point[0], point[1])
    distance = wp.length(across)
    radial = wp.vec2(1.0, 0.0)
    if distance > POINT:
        radial = across / distance
    sample = cuboid_distance(wp.vec3(radius, FAR, half_height), wp.vec3(distance, 0.0, point[2]))
    outward = sample.gradient[0] * radial
    sample.gradient = wp.vec3(outward[0], outward[1], sample.gradient[2])
    return sample


@wp.func
def cone_profile(size: wp.vec3, across: float, height: float) -> wp.vec3:
    """Normal and signed distance of the triangle that a cone is in the half plane of a point.

    Its tip is up; the size is that of its `ExactShape`. Below the base this is nearest, beside it
    the side with its ends.
    """
    side = wp.vec2(2.0 * size[2] / size[1], size[0] / size[1])
    from_tip = height - size[2]
    over = side[0] * across + side[1] * from_tip
    below = -size[2] - height
    is_inside = over <= POINT and below <= POINT
    if (is_inside and below > over) or (below > POINT and across <= size[0]):
        return wp.vec3(0.0, -1.0, below)
    if is_inside:
        return wp.vec3(side[0], side[1], over)
    along = side[1] * across - side[0] * from_tip
    foot = wp.clamp(along, 0.0, size[1])
    off = wp.vec2(across - side[1] * foot, from_tip + side[0] * foot)
    distance = wp.length(off)
    if distance > POINT and foot != along:
        side = off / distance
    return wp.vec3(side[0], side[1], distance)


@wp.func
def cone_distance(size: wp.vec3, point: wp.vec3) -> ShapeSample:
    """A cone along z, see `cone_profile`; on the axis the radial direction is x."""
    flat = wp.vec2(point[0], point[1])
    across = wp.length(flat)
    radial = wp.vec2(1.0, 0.0)
    if across > POINT:
        radial = flat / across
    found = cone_profile(size, across, point[2])
    return ShapeSample(found[2], wp.vec3(found[0] * radial[0], found[0] * radial[1], found[1]))


@wp.func
def in_frame_of(exact: ExactShape, point: wp.vec3) -> wp.vec3:
    """Transforms a point from the frame of a mesh to that of its shape."""
    local = point - exact.center
    if exact.is_rotated:
        local = wp.quat_rotate(exact.rotation, local)
    return local


@wp.func
def height_over_cuboid(half: wp.vec3, point: wp.vec3) -> float:
    """The distance of `cuboid_distance`, without its gradient."""
    beyond = wp.abs(point) - half
    deepest = wp.max(beyond)
    outside = wp.length(wp.max(beyond, wp.vec3(0.0)))
    return wp.where(deepest > POINT, outside, deepest)  # no branch that is hard to predict


@wp.func
def height_over_shape(exact: ExactShape, point: wp.vec3) -> float:
    """The distance of `shape_distance`, to the last bit, without its gradient."""
    local = in_frame_of(exact, point)
    size = exact.size
    if exact.kind == Shape.CUBOID:
        return height_over_cuboid(size, local)
    if exact.kind == Shape.HALF_SPACE:
        return wp.dot(size, local)
    if exact.kind == Shape.CYLINDER:
        across = wp.length(wp.vec2(local[0], local[1]))
        return height_over_cuboid(wp.vec3(size[0], FAR, size[2]), wp.vec3(across, 0.0, local[2]))
    if exact.kind == Shape.CONE:
        return cone_profile(size, wp.length(wp.vec2(local[0], local[1])), local[2])[2]
    along = wp.clamp(local[2], -size[2], size[2])
    return wp.length(wp.vec3(local[0], local[1], local[2] - along)) - size[0]


@wp.func
def height_over_support(exact: ExactShape, point: wp.vec3, normal: wp.vec3) -> float:
    """Height of a point over the lowest plane of this normal that has a whole shape below it.

    At most the signed distance, whatever the normal is; about that for its gradient.

    Args:
        exact: the shape.
        point: in the frame of its mesh.
        normal: in the same frame, of about length 1.
    """
    local = in_frame_of(exact, point)
    if exact.kind == Shape.HALF_SPACE:
        # It is below planes of its own normal alone.
        return wp.where(normal == exact.size, wp.dot(normal, local), -FAR)
    up = wp.vec3(normal)
    if exact.is_rotated:
        up = wp.quat_rotate(exact.rotation, up)
    top = wp.abs(up[2]) * exact.size[2]
    if exact.kind == Shape.CUBOID:
        top += wp.abs(up[0]) * exact.size[0] + wp.abs(up[1]) * exact.size[1]
    elif exact.kind == Shape.CYLINDER:
        top += wp.length(wp.vec2(up[0], up[1])) * exact.size[0]
    elif exact.kind == Shape.CONE:  # the tip, or the rim
        rim = wp.length(wp.vec2(up[0], up[1])) * exact.size[0] - up[2] * exact.size[2]
        top = wp.max(up[2] * exact.size[2], rim)
    else:
        top += exact.size[0]
    return wp.dot(up, local) - top


@wp.func
def shape_distance(exact: ExactShape, point: wp.vec3) -> ShapeSample:
    """Signed distance of an exact shape, in the frame of its mesh."""
    local = in_frame_of(exact, point)
    size = exact.size
    sample = ShapeSample()
    if exact.kind == Shape.CUBOID:
        sample = cuboid_distance(size, local)
    elif exact.kind == Shape.CYLINDER:
        sample = cylinder_distance(size[0], size[2], local)
    elif exact.kind == Shape.HALF_SPACE:
        sample = ShapeSample(wp.dot(size, local), size)
    elif exact.kind == Shape.CONE:
        sample = cone_distance(size, local)
    else:
        # A sphere is a capsule without length.
        sample = capsule_distance(size[0], size[2], local)
    if exact.is_rotated:
        sample.gradient = wp.quat_rotate_inv(exact.rotation, sample.gradient)
    return sample
