"""Cost of resting spheres against the meshes of their env."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS, resident_warps
from warp_collision.kernels.hinge import hinge
from warp_collision.kernels.mesh_distance import obstacle_distance
from warp_collision.kernels.precision import is_in_range, is_length, uncertainty
from warp_collision.kernels.scene_walk import Obstacle, Scene, env_of_sphere, is_env, make_walk
from warp_collision.kernels.transforms import to_world

wp.set_module_options(OPTIONS)


@wp.struct
class SphereQuery:
    """A sphere at rest, and its activation distance."""

    center: wp.vec3
    radius: float
    activation_distance: float  # [m]


@wp.struct
class SphereCost:
    """Unweighted cost of one sphere, and its gradient."""

    cost: float
    center: wp.vec3  # d cost / d center
    radius: float  # d cost / d radius
    by_contact: wp.vec3  # d cost / d center, in the frame of the mesh


@wp.func
def not_a_number() -> SphereCost:
    """NaN, the cost of a sphere that is not finite: never free."""
    unknown = wp.vec3(wp.nan, wp.nan, wp.nan)
    return SphereCost(wp.nan, unknown, wp.nan, unknown)


@wp.func
def sphere_query(sphere: wp.vec4, activation_distance: float) -> SphereQuery:
    """The query of a sphere x, y, z, radius."""
    return SphereQuery(wp.vec3(sphere[0], sphere[1], sphere[2]), sphere[3], activation_distance)


@wp.func
def is_valid(query: SphereQuery) -> bool:
    """Whether the coordinates and lengths of a sphere that is not disabled are valid."""
    return (
        is_in_range(query.center)
        and is_length(query.radius)
        and is_length(query.activation_distance)
    )


@wp.func
def cost_against(obstacle: Obstacle, query: SphereQuery) -> SphereCost:
    """Cost of a sphere against one obstacle."""
    pose = obstacle.mesh_from_world
    point = wp.transform_point(pose, query.center)
    if not is_in_range(point):
        return not_a_number()
    result = SphereCost()
    reach = query.radius + query.activation_distance + obstacle.padding
    coordinates = wp.length(query.center) + wp.length(wp.transform_get_translation(pose))
    rounding = uncertainty(coordinates, query.activation_distance)
    sample = obstacle_distance(obstacle.record, point, reach + rounding)
    if sample.found:
        if rounding > 0.0 and sample.distance >= reach:
            return not_a_number()
        term = hinge(reach - sample.distance, query.activation_distance)
        result.cost = term[0]
        result.radius = term[1]
        result.by_contact = sample.gradient * (-term[1])
        result.center = to_world(pose, result.by_contact)
    return result


@wp.func
def add_cost(obstacle: Obstacle, query: SphereQuery, total: SphereCost) -> SphereCost:
    """Adds the cost against one obstacle."""
    term = cost_against(obstacle, query)
    total.cost += term.cost
    total.center += term.center
    total.radius += term.radius
    return total


sum_of_costs = make_walk(add_cost, SphereQuery, SphereCost)


@wp.func
def cost_of_sphere(
    scene: Scene, env: int, index: int, sphere: wp.vec4, activation_distance: float
) -> SphereCost:
    """Sum of the costs against all enabled obstacles of an env."""
    if sphere[3] < 0.0:
        return SphereCost()
    query = sphere_query(sphere, activation_distance)
    if not is_valid(query) or not is_env(scene, env):
        return not_a_number()
    reach = query.radius + activation_distance
    return sum_of_costs(scene, env, index, query.center, reach, query, SphereCost())


@wp.kernel(**resident_warps(24))
def sphere_cost(
    # operands
    spheres: wp.array[wp.vec4],  # (n,) of all batch rows and waypoints: x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    weight: wp.array[wp.float32],  # (1,)
    activation_distance: wp.array[wp.float32],  # (1,) [m]
    launch_offset: wp.vec2i,  # of this launch in the spheres
    # outputs
    cost: wp.array[wp.float32],  # (n,)
    gradient: wp.array[wp.vec4],  # (n,) d cost / d (x, y, z, radius), or empty
    active: wp.array[wp.uint8],  # (n,) 1 where the cost is not 0, or empty
):
    """One thread per sphere; see `env_of_sphere` for why their axes are one."""
    _row, index = wp.tid()
    index += launch_offset[1]
    env = env_of_sphere(env_index, index, spheres.shape[0])
    result = cost_of_sphere(scene, env, index, spheres[index], activation_distance[0])
    value = weight[0] * result.cost
    cost[index] = value
    if gradient.shape[0] > 0:
        center = weight[0] * result.center
        gradient[index] = wp.vec4(center[0], center[1], center[2], weight[0] * result.radius)
    if active.shape[0] > 0:
        active[index] = wp.where(value == 0.0, wp.uint8(0), wp.uint8(1))
