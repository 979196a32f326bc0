"""Cost and clearance of the spheres of a robot against each other."""

import warp as wp

from warp_collision.kernels.compiling import FEW_THREADS
from warp_collision.kernels.forward_kinematics import vec1i, xyz
from warp_collision.kernels.hinge import hinge
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
def is_listed(pairs: wp.array[wp.vec2i], begin: int, end: int, a: int, b: int) -> bool:
    """Whether a pair of spheres is among some sorted ones."""
    low = int(begin)
    high = int(end)
    while low < high:
        middle = (low + high) / 2
        entry = pairs[middle]
        if entry[0] < a or (entry[0] == a and entry[1] < b):
            low = middle + 1
        else:
            high = middle
    found = bool(False)
    if low < end:
        found = pairs[low][0] == a and pairs[low][1] == b
    return found


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


@wp.func
def write_balls(
    spheres: wp.array2d[wp.vec4],
    groups: wp.array[wp.vec2i],
    links: wp.array[wp.vec2i],
    row: int,
    balls: wp.array2d[wp.vec4],
):
    """Writes the balls of the groups of a configuration, and behind them those of the links."""
    n_groups = groups.shape[0]
    for group in range(n_groups):
        balls[row, group] = ball_around(spheres, row, groups[group][0], groups[group][1])
    for link in range(links.shape[0]):
        begin = links[link][0]
        end = links[link][1]
        ball = balls[row, begin]
        if end > begin + 1:
            ball = ball_around(balls, row, begin, end)
        balls[row, n_groups + link] = ball


@wp.struct
class CostRow:
    """A configuration: its spheres, and what is computed of them; see `self_collision`."""

    spheres: wp.array[wp.vec4]
    left_out: wp.array[wp.vec2i]
    upstream: wp.array2d[wp.float32]
    rates: wp.array2d[wp.vec4]
    cost: wp.array2d[wp.float32]
    total: wp.array2d[wp.vec4]
    row: int
    eta: float  # activation distance [m]
    half: float  # half the weight


@wp.func
def add_cost(values: CostRow, a: int, b: int, term: PairCost):
    """Adds the cost of two spheres, or its rate, and its product with an upstream gradient."""
    row = values.row
    cost = values.cost
    total = values.total
    if total.shape[0] > 0:
        factor = 2.0 * values.half
        if values.upstream.shape[0] > 0:
            factor = values.half * (values.upstream[row, a] + values.upstream[row, b])
        force = factor * term.center
        by_radius = factor * term.radius
        total[row, a] += wp.vec4(force[0], force[1], force[2], by_radius)
        total[row, b] += wp.vec4(-force[0], -force[1], -force[2], by_radius)
    if cost.shape[0] > 0:
        value = term.cost
        if values.rates.shape[0] > 0:
            rate = values.rates[row, a] - values.rates[row, b]
            value = wp.dot(term.center, xyz(rate))
            value += term.radius * (values.rates[row, a][3] + values.rates[row, b][3])
        cost[row, a] += values.half * value
        cost[row, b] += values.half * value


@wp.func
def add_groups(values: CostRow, group: wp.vec2i, other: wp.vec2i, ball: wp.vec4, pair: wp.vec4i):
    """Adds the costs of the spheres of a group against those of another, which has a ball."""
    for a in range(group[0], group[1]):
        sphere = values.spheres[a]
        if not are_apart(sphere, ball, values.eta):
            for b in range(other[0], other[1]):
                term = pair_cost(sphere, values.spheres[b], values.eta)
                if term.radius != 0.0:
                    if not is_listed(values.left_out, pair[2], pair[3], a, b):
                        add_cost(values, a, b, term)


@wp.kernel
def self_collision(
    # operands
    spheres: wp.array2d[wp.vec4],  # (n, n_spheres) x, y, z, radius [m]
    groups: wp.array[wp.vec2i],  # (n_groups,) begin and end of some spheres of a link
    links: wp.array[wp.vec2i],  # (n_links,) begin and end of the groups of a link
    link_pairs: wp.array[wp.vec4i],  # two links, begin and end of what is left out of them
    left_out: wp.array[wp.vec2i],  # pairs of spheres that are not checked
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    upstream: wp.array2d[wp.float32],  # (n, n_spheres) d loss / d cost; empty: ones
    rates: wp.array2d[wp.vec4],  # (n, n_spheres) of the spheres, or empty
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    balls: wp.array2d[wp.vec4],  # (n, n_groups + n_links) scratch
    cost: wp.array2d[wp.float32],  # (n, n_spheres); its rate where `rates` are given; or empty
    total: wp.array2d[wp.vec4],  # d loss / d (x, y, z, radius), or empty
):
    """One thread per configuration: balls first, then pairs of links, groups and spheres."""
    row = wp.tid()
    row += launch_offset[0]
    for index in range(spheres.shape[1]):
        if cost.shape[0] > 0:
            cost[row, index] = 0.0
        if total.shape[0] > 0:
            total[row, index] = wp.vec4(0.0)
    write_balls(spheres, groups, links, row, balls)
    eta = activation_distance[0]
    values = CostRow(
        spheres[row], left_out, upstream, rates, cost, total, row, eta, 0.5 * weight[0]
    )
    n_groups = groups.shape[0]
    for k in range(link_pairs.shape[0]):
        pair = link_pairs[k]
        far = balls[row, n_groups + pair[1]]
        if not are_apart(balls[row, n_groups + pair[0]], far, eta):
            for g in range(links[pair[0]][0], links[pair[0]][1]):
                ball = balls[row, g]
                if not are_apart(ball, far, eta):
                    for h in range(links[pair[1]][0], links[pair[1]][1]):
                        if not are_apart(ball, balls[row, h], eta):
                            add_groups(values, groups[g], groups[h], balls[row, h], pair)


@wp.struct
class Closest:
    """The two spheres nearest to each other, -1 for none, and their clearance [m]."""

    first: int
    second: int
    gap: float


@wp.func
def closest_of_groups(
    spheres: wp.array[wp.vec4],
    left_out: wp.array[wp.vec2i],
    group: wp.vec2i,
    other: wp.vec2i,
    pair: wp.vec4i,
    best: Closest,
) -> Closest:
    """Updates the closest spheres by two groups."""
    for first in range(group[0], group[1]):
        a = spheres[first]
        for second in range(other[0], other[1]):
            b = spheres[second]
            if not is_disabled(a) and not is_disabled(b):
                gap = wp.length(xyz(a) - xyz(b)) - a[3] - b[3]
                if not (gap >= best.gap) and not wp.isnan(best.gap):
                    if not is_listed(left_out, pair[2], pair[3], first, second):
                        best = Closest(first, second, gap)
    return best


@wp.kernel
def closest_pair(
    # operands
    spheres: wp.array2d[wp.vec4],  # (n, n_spheres) x, y, z, radius [m]
    groups: wp.array[wp.vec2i],
    links: wp.array[wp.vec2i],
    link_pairs: wp.array[wp.vec4i],
    left_out: wp.array[wp.vec2i],
    # parameters
    launch_offset: vec1i,  # of this launch in the rows
    # outputs
    balls: wp.array2d[wp.vec4],  # (n, n_groups + n_links) scratch
    closest: wp.array2d[wp.int32],  # (n, 2) the two spheres nearest to each other, or -1
):
    """One thread per configuration. A pair that is not finite is the nearest of all."""
    row = wp.tid()
    row += launch_offset[0]
    write_balls(spheres, groups, links, row, balls)
    n_groups = groups.shape[0]
    best = Closest(-1, -1, FAR)
    for k in range(link_pairs.shape[0]):
        pair = link_pairs[k]
        far = balls[row, n_groups + pair[1]]
        if not are_apart(balls[row, n_groups + pair[0]], far, best.gap):
            for g in range(links[pair[0]][0], links[pair[0]][1]):
                ball = balls[row, g]
                if not are_apart(ball, far, best.gap):
                    for h in range(links[pair[1]][0], links[pair[1]][1]):
                        if not are_apart(ball, balls[row, h], best.gap):
                            best = closest_of_groups(
                                spheres[row], left_out, groups[g], groups[h], pair, best
                            )
    closest[row, 0] = best.first
    closest[row, 1] = best.second
