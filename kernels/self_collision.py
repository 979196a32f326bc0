"""Cost and clearance of the spheres of a robot against each other."""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.hinge import hinge
from warp_collision.kernels.kinematics import vec1i, xyz
from warp_collision.kernels.mesh_record import FAR

wp.set_module_options(FEW_THREADS)

# Below this squared distance the direction between two centers is noise [m^2].
COINCIDENT = wp.constant(1.0e-30)


@wp.struct
class PairCost:
    """Cost of two spheres against each other."""

    cost: float
    center: wp.vec3  # d cost / d center of the first; of the second it is the negative
    radius: float  # d cost / d radius of either


@wp.func
def is_disabled(sphere: wp.vec4) -> bool:
    """Whether a sphere is disabled; one with a NaN radius is not."""
    return sphere[3] < 0.0


@wp.func
def ball_around(spheres: wp.array2d[wp.vec4], row: int, begin: int, end: int) -> wp.vec4:
    """Bounding ball of consecutive spheres; radius -FAR without any, NaN if one is not finite."""
    total = wp.vec3(0.0)
    count = float(0.0)
    for index in range(begin, end):
        if not is_disabled(spheres[row, index]):
            total += xyz(spheres[row, index])
            count += 1.0
    if count == 0.0:
        return wp.vec4(0.0, 0.0, 0.0, -FAR)
    center = total / count
    radius = float(0.0)
    for index in range(begin, end):
        sphere = spheres[row, index]
        if not is_disabled(sphere):
            reach = wp.length(xyz(sphere) - center) + sphere[3]
            if not (reach <= radius) and not wp.isnan(radius):
                radius = reach
    return wp.vec4(center[0], center[1], center[2], radius)


@wp.func
def are_apart(first: wp.vec4, second: wp.vec4, reach: float) -> bool:
    """Whether the clearance of two balls is above the reach for certain."""
    offset = xyz(first) - xyz(second)
    # Enlarged by more than the rounding of a ball.
    sum = 1.00001 * (first[3] + second[3]) + reach
    return sum < 0.0 or wp.dot(offset, offset) > sum * sum


@wp.func
def pair_cost(first: wp.vec4, second: wp.vec4, activation_distance: float) -> PairCost:
    """Hinge of the clearance of two spheres."""
    result = PairCost()
    if is_disabled(first) or is_disabled(second):
        return result
    offset = xyz(first) - xyz(second)
    square = wp.dot(offset, offset)
    reach = first[3] + second[3] + activation_distance
    if square >= reach * reach:
        return result
    distance = wp.sqrt(square)
    direction = wp.vec3(1.0, 0.0, 0.0)
    if not (square < COINCIDENT):
        direction = offset / distance
    term = hinge(reach - distance, activation_distance)
    result.cost = term[0]
    result.radius = term[1]
    result.center = -term[1] * direction
    return result


@wp.kernel
def self_collision(
    # operands
    spheres: wp.array2d[wp.vec4],  # (n, n_spheres) x, y, z, radius [m]
    groups: wp.array[wp.vec2i],  # (n_groups,) begin and end of the spheres of a link
    group_pairs: wp.array[wp.vec4i],  # two groups, begin and end of their pairs
    pairs: wp.array[wp.vec2i],  # (n_pairs,) two spheres
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    upstream: wp.array2d[wp.float32],  # (n, n_spheres) d loss / d cost, or empty
    rates: wp.array2d[wp.vec4],  # (n, n_spheres) of the spheres, or empty
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    balls: wp.array2d[wp.vec4],  # (n, n_groups) scratch
    cost: wp.array2d[wp.float32],  # (n, n_spheres); its rate where `rates` are given; or empty
    total: wp.array2d[wp.vec4],  # d loss / d (x, y, z, radius), or empty
):
    """One thread per configuration: balls around the links first, then pairs of spheres."""
    row = wp.tid()
    row += launch_offset[0]
    for index in range(spheres.shape[1]):
        if cost.shape[0] > 0:
            cost[row, index] = 0.0
        if total.shape[0] > 0:
            total[row, index] = wp.vec4(0.0)
    for group in range(groups.shape[0]):
        balls[row, group] = ball_around(spheres, row, groups[group][0], groups[group][1])
    eta = activation_distance[0]
    half = 0.5 * weight[0]
    for k in range(group_pairs.shape[0]):
        group_pair = group_pairs[k]
        if not are_apart(balls[row, group_pair[0]], balls[row, group_pair[1]], eta):
            for p in range(group_pair[2], group_pair[3]):
                a = pairs[p][0]
                b = pairs[p][1]
                term = pair_cost(spheres[row, a], spheres[row, b], eta)
                if term.radius != 0.0:
                    if total.shape[0] > 0:
                        factor = half * (upstream[row, a] + upstream[row, b])
                        force = factor * term.center
                        by_radius = factor * term.radius
                        total[row, a] += wp.vec4(force[0], force[1], force[2], by_radius)
                        total[row, b] += wp.vec4(-force[0], -force[1], -force[2], by_radius)
                    else:
                        value = term.cost
                        if rates.shape[0] > 0:
                            rate = rates[row, a] - rates[row, b]
                            value = wp.dot(term.center, xyz(rate))
                            value += term.radius * (rates[row, a][3] + rates[row, b][3])
                        cost[row, a] += half * value
                        cost[row, b] += half * value


@wp.kernel
def closest_pair(
    # operands
    spheres: wp.array2d[wp.vec4],  # (n, n_spheres) x, y, z, radius [m]
    groups: wp.array[wp.vec2i],
    group_pairs: wp.array[wp.vec4i],
    pairs: wp.array[wp.vec2i],
    # parameters
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    balls: wp.array2d[wp.vec4],  # (n, n_groups) scratch
    closest: wp.array2d[wp.int32],  # (n, 2) the two spheres nearest to each other, or -1
):
    """One thread per configuration. A pair that is not finite is the nearest of all."""
    row = wp.tid()
    row += launch_offset[0]
    for group in range(groups.shape[0]):
        balls[row, group] = ball_around(spheres, row, groups[group][0], groups[group][1])
    best = float(FAR)
    closest[row, 0] = -1
    closest[row, 1] = -1
    for k in range(group_pairs.shape[0]):
        group_pair = group_pairs[k]
        if not are_apart(balls[row, group_pair[0]], balls[row, group_pair[1]], best):
            for p in range(group_pair[2], group_pair[3]):
                a = spheres[row, pairs[p][0]]
                b = spheres[row, pairs[p][1]]
                if not is_disabled(a) and not is_disabled(b):
                    gap = wp.length(xyz(a) - xyz(b)) - a[3] - b[3]
                    if not (gap >= best) and not wp.isnan(best):
                        best = gap
                        closest[row, 0] = pairs[p][0]
                        closest[row, 1] = pairs[p][1]
