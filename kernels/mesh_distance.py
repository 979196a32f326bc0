"""Signed distance from a point to one mesh or exact shape, in the frame of the mesh."""

import warp as wp

from warp_collision.kernels.compiling import compiled_once, runs_on_cpu
from warp_collision.kernels.mesh_record import (
    CONVEX,
    FAR,
    ROUNDING,
    SHEET,
    ExactShape,
    MeshRecord,
    Shape,
    bounds_of_distance,
    is_exact,
    load_exact,
    load_record,
)
from warp_collision.kernels.nearest_face import closest_of_mesh
from warp_collision.kernels.precision import ROUND_OFF
from warp_collision.kernels.sensed_distance import is_sensed_nearer, sensed_distance
from warp_collision.kernels.shape_distance import ShapeSample, height_over_shape, shape_distance
from warp_collision.kernels.winding import side_of_mesh

# Closest-point queries return hits strictly nearer than the limit they are given, so a limit
# is widened by far more than its rounding before it is used.
WIDEN = wp.constant(1.0 + 1.0e-5)
# Steps away from the surface, to where the side may be known, before a winding query.
MAX_STEPS = wp.constant(6)


@wp.struct
class SdfSample:
    """Signed distance at a point, or that it is not below the limit of the query."""

    distance: float  # [m]; the limit where the point is not nearer than that
    gradient: wp.vec3  # unit, outward; zero where the limit was not undercut
    closest: wp.vec3  # closest point of the surface
    found: bool  # whether the distance is below the limit
    rounding: float  # distances that differ by less are equal [m]
    on_surface: bool  # the gradient is the normal of the face, whatever the side
    over_face: bool  # the closest point is not on an edge or vertex
    behind: bool  # the point is behind the plane of the face


@wp.func_native("""
#if defined(__CUDA_ARCH__)
#define WC_TIMES(x, y) __fmul_rn(x, y)
#define WC_FUSED(x, y, z) __fmaf_rn(x, y, z)
#else
#define WC_TIMES(x, y) ((x) * (y))
#define WC_FUSED(x, y, z) __builtin_fmaf(x, y, z)
#endif
    wp::vec3 offset;
    for (wp::int32 i = 0; i < 3; ++i) {
        // Differences, and what each lost by rounding (Knuth's sum).
        const wp::float32 pc = c[i] - point[i], ca = a[i] - c[i], cb = b[i] - c[i];
        const wp::float32 p = pc - c[i], q = ca - a[i], r = cb - b[i];
        const wp::float32 pc_lost = (c[i] - (pc - p)) - (point[i] + p);
        const wp::float32 ca_lost = (a[i] - (ca - q)) - (c[i] + q);
        const wp::float32 cb_lost = (b[i] - (cb - r)) - (c[i] + r);
        // Their multiples, likewise; no compiler may fuse these with the sums below.
        const wp::float32 to_a = WC_TIMES(u, ca), to_b = WC_TIMES(v, cb);
        const wp::float32 a_lost = WC_FUSED(u, ca, -to_a) + u * ca_lost;
        const wp::float32 b_lost = WC_FUSED(v, cb, -to_b) + v * cb_lost;
        const wp::float32 first = pc + to_a, s = first - pc;
        const wp::float32 first_lost = (pc - (first - s)) + (to_a - s);
        const wp::float32 sum = first + to_b, t = sum - first;
        const wp::float32 sum_lost = (first - (sum - t)) + (to_b - t);
        offset[i] = sum + (((first_lost + sum_lost) + (a_lost + b_lost)) + pc_lost);
    }
#undef WC_TIMES
#undef WC_FUSED
    return offset;
""")
def offset_by_pairs(
    point: wp.vec3, a: wp.vec3, b: wp.vec3, c: wp.vec3, u: float, v: float
) -> wp.vec3:
    """As `offset_to_barycentric`, in pairs of float32 whose sum has twice the digits."""
    ...


@wp.func
def offset_to_barycentric(
    point: wp.vec3, a: wp.vec3, b: wp.vec3, c: wp.vec3, u: float, v: float
) -> wp.vec3:
    """From a point to ``u a + v b + (1 - u - v) c``, however far the corners a, b, c are.

    Beside a face of a hundred metres the corners cancel to the last centimetre: in float64, which
    most GPUs compute at a 64th of their speed, so that they take pairs of float32.
    """
    if not runs_on_cpu():
        return offset_by_pairs(point, a, b, c, u, v)
    to_c = wp.vec3d(c) - wp.vec3d(point)
    to_a = wp.vec3d(a) - wp.vec3d(c)
    to_b = wp.vec3d(b) - wp.vec3d(c)
    return wp.vec3(to_c + wp.float64(u) * to_a + wp.float64(v) * to_b)


@wp.func
def sample_face(mesh_id: wp.uint64, point: wp.vec3, face: int, u: float, v: float) -> SdfSample:
    """Unsigned distance and its gradient from the closest point, given by face and barycentrics.

    Inside a face the gradient is the face's normal, which has no rounding however near the point
    is; on edges and vertices it is the direction to the point, or the normal when that is noise.
    """
    mesh = wp.mesh_get(mesh_id)
    a = mesh.points[mesh.indices[3 * face]]
    b = mesh.points[mesh.indices[3 * face + 1]]
    c = mesh.points[mesh.indices[3 * face + 2]]
    w = 1.0 - u - v
    offset = offset_to_barycentric(point, a, b, c, u, v)
    normal = wp.normalize(wp.cross(b - a, c - a))
    # The height over the face is sharper than any blend: where it is taken from does not matter.
    depth = wp.dot(normal, offset)
    upright = depth * normal
    scale = wp.length(a - point) + wp.length(point)
    # A blend that differs by rounding only lies over an edge between faces in one plane, say.
    over_face = wp.min(wp.min(u, v), w) > 1.0e-4 or wp.length(offset - upright) < 2.0e-7 * scale
    if over_face:
        offset = upright

    sample = SdfSample()
    sample.found = True
    sample.closest = point + offset
    sample.distance = wp.length(offset)
    sample.rounding = ROUNDING * scale + 1.0e-3 * sample.distance
    sample.on_surface = sample.distance <= sample.rounding
    sample.over_face = over_face
    sample.behind = depth > 0.0
    if sample.on_surface:
        sample.gradient = normal
    elif over_face:
        sample.gradient = wp.where(sample.behind, -normal, normal)
    else:
        sample.gradient = offset / -sample.distance
    return sample


@wp.func
def nearest_surface(
    mesh_id: wp.uint64, point: wp.vec3, search: float, without_limit: bool
) -> SdfSample:
    """Unsigned distance; found if nearer than the search.

    Args:
        mesh_id: the mesh.
        point: in its frame.
        search: limit of the search [m].
        without_limit: search again without a limit if nothing was found.
    """
    sample = SdfSample()
    search = search * WIDEN + ROUND_OFF * wp.length(point)
    closest = closest_of_mesh(mesh_id, point, search)
    if closest.face < 0 and without_limit:
        closest = closest_of_mesh(mesh_id, point, FAR)
    if closest.face >= 0:
        sample = sample_face(mesh_id, point, closest.face, closest.u, closest.v)
    return sample


@wp.func
def side_by_bounds(bounds: wp.vec2) -> float:
    """-1 inside, 1 outside, 0 where bounds of the signed distance do not decide."""
    if bounds[0] > 0.0:
        return 1.0
    if bounds[1] < 0.0:
        return -1.0
    return 0.0


@wp.func
def side_by_sample(record: MeshRecord, sample: SdfSample, bounds: wp.vec2) -> float:
    """-1 inside, 1 outside, 0 where neither the closest point nor the bounds decide."""
    # The bounds come from a point nearby whose distance is known, give or take the offset. Where no
    # surface is as near as that, both points have the same side.
    distance_nearby = 0.5 * (bounds[0] + bounds[1])
    reach = 0.5 * (bounds[1] - bounds[0])
    if sample.distance > reach + sample.rounding and wp.abs(distance_nearby) > sample.rounding:
        return wp.sign(distance_nearby)
    # Normals of slivers, and whether a closest point is on an edge, are rounded too.
    if record.sign_method == CONVEX and sample.distance > 30.0 * sample.rounding:
        # Outside of an edge a point can be behind one of its two faces, but not within a face.
        if sample.over_face or not sample.behind:
            return wp.where(sample.behind, -1.0, 1.0)
    return 0.0


@wp.func
def side_farther_away(record: MeshRecord, point: wp.vec3, sample: SdfSample) -> float:
    """-1 inside, 1 outside of a closed mesh, from points farther off its surface; 0 if unknown.

    No surface is nearer to a point than the closest one: all points nearer than that have the side
    of the point. At the farthest of them the surface is twice as far, where nothing else is near.
    """
    probe = wp.vec3(point)
    here = sample
    side = float(0.0)
    least = float(0.0)
    steps = int(0)
    while side == 0.0 and steps < MAX_STEPS:
        step = here.distance - 2.0 * here.rounding
        if step < wp.max(least, 6.0 * here.rounding):
            break
        probe += step * here.gradient
        bounds = bounds_of_distance(record, probe)
        side = side_by_bounds(bounds)
        if side == 0.0:
            here = nearest_surface(record.mesh_id, probe, 2.0 * here.distance, False)
            side = side_by_sample(record, here, bounds)
        least = 1.3 * step
        steps += 1
    return side


@wp.func
def is_inside(record: MeshRecord, point: wp.vec3, sample: SdfSample, bounds: wp.vec2) -> bool:
    """The side of a point, by the cheapest method that decides."""
    if record.sign_method == SHEET:
        return False
    side = side_by_bounds(bounds)
    if side == 0.0:
        side = side_by_sample(record, sample, bounds)
    # Of an open mesh points of both sides are connected without crossing a surface. On a GPU, where
    # a warp waits for its slowest thread, this may not pay, and takes registers.
    is_closed = record.inside_reach == 0.0 and bounds[1] < FAR
    if side == 0.0 and is_closed and runs_on_cpu():
        side = side_farther_away(record, point, sample)
    if side == 0.0:
        return side_of_mesh(record, point) < 0.0
    return side < 0.0


@wp.func
def nothing_nearer(limit: float) -> SdfSample:
    """The sample where nothing is nearer than a limit; its closest point limits no other search."""
    sample = SdfSample()
    sample.distance = limit
    sample.closest = wp.vec3(FAR)
    return sample


@wp.func
def found_sample(shape_sample: ShapeSample, point: wp.vec3, limit: float) -> SdfSample:
    """The sample of a shape, found where its signed distance is below the limit."""
    sample = nothing_nearer(limit)
    if shape_sample.distance < limit:
        sample.found = True
        sample.distance = shape_sample.distance
        sample.gradient = shape_sample.gradient
        sample.closest = point - shape_sample.distance * shape_sample.gradient
    return sample


@wp.func
def mesh_distance(record: MeshRecord, point: wp.vec3, limit: float) -> SdfSample:
    """Exact signed distance wherever it is below ``limit``, at every depth.

    The bounds of the record decide most calls: beyond the limit nothing is searched, a known side
    needs no winding number, and the upper bound limits the search for the closest point. Without
    bounds a point without a surface within the limit is either far outside or deep inside, and is
    searched without a limit.
    """
    sample = nothing_nearer(limit)
    bounds = bounds_of_distance(record, point)
    if bounds[0] >= limit:
        return sample
    if record.exact.kind >= Shape.POINT_CLOUD:
        # As below, strictly nearer than the limit counts: the bound itself is widened.
        search = wp.min(limit, bounds[1] + wp.abs(bounds[1]) * (WIDEN - 1.0) + ROUND_OFF)
        return found_sample(sensed_distance(record.exact, point, search), point, limit)
    search = wp.max(bounds[1], -bounds[0])
    if bounds[0] > 0.0 or search >= FAR:
        search = wp.clamp(limit, 0.0, search)

    surface = nearest_surface(record.mesh_id, point, search, bounds[0] <= 0.0)
    if not surface.found:
        return sample
    if is_inside(record, point, surface, bounds):
        surface.distance = -surface.distance
        if not surface.on_surface:
            surface.gradient = -surface.gradient
    # In this order, so that a distance of NaN is not one beyond the limit.
    if surface.distance >= limit:
        return sample
    return surface


@wp.func
def exact_distance(exact: ExactShape, point: wp.vec3, limit: float) -> SdfSample:
    """Signed distance of an exact shape wherever it is below ``limit``."""
    return found_sample(shape_distance(exact, point), point, limit)


@wp.func
def obstacle_distance(record: wp.uint64, point: wp.vec3, limit: float) -> SdfSample:
    """Exact signed distance wherever it is below ``limit``, by a formula where there is one.

    Args:
        record: pointer to its record.
        point: in its frame.
        limit: [m].
    """
    if is_exact(record):
        return exact_distance(load_exact(record), point, limit)
    return mesh_distance(load_record(record), point, limit)


@compiled_once
def distance_of_obstacle(record: wp.uint64, point: wp.vec3, limit: float) -> SdfSample:
    """`obstacle_distance`, for kernels that ask it at several places."""
    return obstacle_distance(record, point, limit)


@wp.func
def is_nearer(pointer: wp.uint64, point: wp.vec3, limit: float) -> bool:
    """Whether `obstacle_distance` is below ``limit``; a surface nearer than that needs no side.

    Of a distance of NaN nothing is known: it is nearer.
    """
    if is_exact(pointer):
        return not (height_over_shape(load_exact(pointer), point) >= limit)
    record = load_record(pointer)
    bounds = bounds_of_distance(record, point)
    if bounds[0] >= limit:
        return False
    if bounds[1] < limit:
        return True
    if record.exact.kind >= Shape.POINT_CLOUD:
        return is_sensed_nearer(record.exact, point, limit)
    surface = nearest_surface(record.mesh_id, point, limit, False)
    if surface.found and not (surface.distance >= limit):
        return True
    if bounds[0] > 0.0:
        return False
    return mesh_distance(record, point, limit).found
