"""Spheres of a body against a shape with a formula, eight at once in the lanes of a CPU.

Lanes do the operations of the scalar functions, so the rounding of their distances is the same.
"""

import warp as wp

from warp_collision.kernels.forward_kinematics import FramePose
from warp_collision.kernels.lanes.sphere_blocks import SHAPE
from warp_collision.kernels.lanes.vectors import PREAMBLE
from warp_collision.kernels.mesh_record import ExactShape
from warp_collision.kernels.precision import FARTHEST
from warp_collision.kernels.robot_motion import RobotBody
from warp_collision.kernels.transforms import vec8

# Eight spheres from `first` on in the world and, as `local`, in the frame of the shape.
PLACED = """
        const wp::quat_t<wp::float32> none(0.0f, 0.0f, 0.0f, 1.0f);
        const I numbers = {0, 1, 2, 3, 4, 5, 6, 7};
        F placed[3], at[3], local[3], normal[3], radius;
        const wp::float32* sphere = (const wp::float32*)spheres + 4 * first;
        for (int i = 0; i < 8; ++i, sphere += first + i < body.end ? 4 : 0) {
            for (int k = 0; k < 3; ++k) local[k][i] = sphere[k];
            radius[i] = sphere[3];
        }
        const auto& turn = frame_pose.rotation.data;
        for (int k = 0; k < 3; ++k)
            placed[k] = turn[k][0] * local[0] + turn[k][1] * local[1] + turn[k][2] * local[2]
                + frame_pose.origin[k];
        rotate(pose.q, placed, 1.0f, local);
        for (int k = 0; k < 3; ++k) local[k] = local[k] + pose.p[k];
        const F square = local[0] * local[0] + local[1] * local[1] + local[2] * local[2];
        if (any(~(square < FARTHEST * FARTHEST))) found[0] = __builtin_nanf("");
        for (int k = 0; k < 3; ++k) local[k] = local[k] - exact.center[k];
        for (int k = 0; k < 3; ++k) at[k] = local[k];
        if (exact.is_rotated) rotate(exact.rotation, at, 1.0f, local);
""".replace("FARTHEST", f"{FARTHEST}f")


@wp.func_native(
    """
    wp::vec_t<8, wp::float32> found;
    found[0] = limit;
    found[1] = -1.0f;
#if !defined(__CUDA_ARCH__)
"""
    + PREAMBLE
    + SHAPE
    + """
    for (int first = body.begin; first < body.end; first += 8) {
"""
    + PLACED
    + """
        const F gap = shape_distance(local, normal) - padding - radius;
        const I is_asked = ~(radius < 0.0f) & (first + numbers < body.end);
        const F least = is_asked ? gap : zero + limit;
        const wp::float32 lowest_gap = lowest(least);
        if (lowest_gap < found[0]) {
            const int lane = __builtin_ctz(bits_of(least == lowest_gap));
            shape_distance(local, normal);  // here alone the gradient takes time
            rotate(exact.is_rotated ? exact.rotation : none, normal, -1.0f, local);
            rotate(pose.q, local, -1.0f, normal);
            found[0] = lowest_gap;
            found[1] = (wp::float32)(first + lane);
            for (int k = 0; k < 3; ++k) {
                found[2 + k] = normal[k][lane];
                found[5 + k] = placed[k][lane];
            }
        }
    }
#endif
    return found;
"""
)
def lowest_sphere(
    exact: ExactShape,
    pose: wp.transform,
    padding: float,
    frame_pose: FramePose,
    spheres: wp.uint64,
    body: RobotBody,
    limit: float,
) -> vec8:
    """The smallest clearance of some spheres over a shape, and which of them has it, or -1.

    Behind these the normal of the shape and the center of that sphere, in the world. The limit, if
    there is none; NaN, if a sphere is out of range.

    Args:
        exact: a shape with a formula.
        pose: to its mesh, from the world.
        padding: of the shape [m].
        frame_pose: of the spheres.
        spheres: pointer to all.
        body: whose these are, fewer than 2^24.
        limit: none that is not below this [m].
    """
    ...


@wp.func_native(
    """
    wp::uint32 near = 255;
#if !defined(__CUDA_ARCH__)
    wp::vec_t<1, wp::float32> found;
"""
    + PREAMBLE
    + SHAPE
    + PLACED
    + """
    const F gap = shape_distance(local, normal) - padding - radius;
    if (found[0] == 0.0f) near = bits_of(~(gap >= zero + limit));
#endif
    return near;
"""
)
def near_spheres(
    exact: ExactShape,
    pose: wp.transform,
    padding: float,
    frame_pose: FramePose,
    spheres: wp.uint64,
    body: RobotBody,
    first: int,
    limit: float,
) -> wp.uint32:
    """Which of eight spheres of a body, from the first on, may be nearer than a limit, as bits.

    On a GPU all; on a CPU but for rounding those that are. See `lowest_sphere`.
    """
    ...
