"""Whether spheres collide, in the lanes of vector instructions: the answers of `collision`."""

import warp as wp

from warp_collision.kernels.box_blocks import lowest_bit
from warp_collision.kernels.collision import sphere_collides
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.lanes.sphere_blocks import (
    EIGHT,
    PLACE,
    SHAPE,
    VECTORS,
    Block,
    have_one_env,
    load_block,
    make_walk_of_block,
    memory_of,
    spheres_at,
    spheres_from,
)
from warp_collision.kernels.lanes.vectors import LANES, PREAMBLE
from warp_collision.kernels.mesh_record import ExactShape, is_exact, load_exact
from warp_collision.kernels.scene_walk import (
    NOTHING_IGNORED,
    Obstacle,
    Scene,
    env_of_row,
    env_of_sphere,
    is_env,
)

wp.set_module_options(OPTIONS)


@wp.func_native(
    PREAMBLE
    + VECTORS
    + SHAPE
    + PLACE.replace("COORDINATES", "from_origin + offset")
    + """
    F normal[3];
    const wp::uint32 unknown = bits_of(~is_known) & bits;
    const wp::uint32 hit = bits_of(~(shape_distance(local, normal) >= reach + padding)) & bits;
    return unknown | (hit & ~unknown) << 8;
"""
)
def lanes_touching_shape(
    exact: ExactShape, pose: wp.transform, padding: float, block: Block, bits: wp.uint32
) -> wp.uint32:
    """In which lanes it is not known whether a shape touches, and behind them where it does."""
    ...


@wp.func
def lanes_touching(obstacle: Obstacle, index: int, block: Block, bits: wp.uint32) -> wp.uint32:
    """As `lanes_touching_shape`, of any obstacle."""
    if not is_exact(obstacle.record):
        return bits
    exact = load_exact(obstacle.record)
    return lanes_touching_shape(exact, obstacle.mesh_from_world, obstacle.padding, block, bits)


find_touching = make_walk_of_block(lanes_touching)


@wp.func
def lanes_found(scene: Scene, env: int, block: Block) -> wp.uint32:
    """Loads a block; in which lanes the scalar functions decide, and behind them which collide."""
    lanes = load_block(block)
    block.asked = lanes & wp.uint32(EIGHT)
    unknown = lanes >> wp.uint32(8)
    if not is_env(scene, env):
        return unknown | block.asked
    if block.asked == wp.uint32(0):
        return unknown
    return unknown | find_touching(scene, env, NOTHING_IGNORED, block)


@wp.func_native(
    "for (int lane = 0; lane < block.count; ++lane) hit.data[first + lane] = hits >> lane & 1;"
)
def store_hits(block: Block, hits: wp.uint32, first: int, hit: wp.array[wp.bool]):
    """Writes the outputs of a block."""
    ...


@wp.kernel
def spheres_in_collision(
    # operands
    spheres: wp.array[wp.vec4],  # (n,) of all batch rows and waypoints: x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the blocks
    # outputs
    hit: wp.array[wp.bool],  # (n,)
):
    """As `in_collision`, with one thread for eight spheres."""
    _row, thread = wp.tid()
    first = (thread + launch_offset[1]) * LANES
    n = spheres.shape[0]
    count = wp.min(LANES, n - first)
    env = env_of_sphere(env_index, first, n)
    if not have_one_env(env_index, first, count, n):
        env = -1
    vectors = wp.zeros(shape=(40,), dtype=wp.float32)
    block = Block(spheres_from(spheres, first), memory_of(vectors), 0.0, count, wp.uint32(0))
    found = lanes_found(scene, env, block)
    hits = found >> wp.uint32(8)
    unknown = found & wp.uint32(EIGHT)
    while unknown != wp.uint32(0):
        lane = lowest_bit(unknown)
        unknown &= unknown - wp.uint32(1)
        own = env_of_sphere(env_index, first + lane, n)
        if sphere_collides(scene, own, spheres[first + lane]):
            hits |= wp.uint32(1) << wp.uint32(lane)
    store_hits(block, hits, first, hit)


@wp.kernel
def waypoints_in_collision(
    # operands
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres) x, y, z, radius [m]
    env_index: wp.array[wp.int32],  # (batch,) or empty
    scene: Scene,
    # parameters
    launch_offset: wp.vec2i,  # of this launch in the waypoints
    # outputs
    hit: wp.array2d[wp.bool],  # (batch, horizon)
):
    """As `any_in_collision`, with eight spheres at once; it ends at the first that collide."""
    row, waypoint = wp.tid()
    row += launch_offset[0]
    waypoint += launch_offset[1]
    n = spheres.shape[2]
    env = env_of_row(env_index, row)
    vectors = wp.zeros(shape=(40,), dtype=wp.float32)
    collides = bool(False)
    first = int(0)
    while first < n and not collides:
        count = wp.min(LANES, n - first)
        begin = spheres_at(spheres, row, waypoint, first)
        block = Block(begin, memory_of(vectors), 0.0, count, wp.uint32(0))
        found = lanes_found(scene, env, block)
        collides = found >= wp.uint32(256)
        unknown = found & wp.uint32(EIGHT)
        while unknown != wp.uint32(0) and not collides:
            lane = lowest_bit(unknown)
            unknown &= unknown - wp.uint32(1)
            collides = sphere_collides(scene, env, spheres[row, waypoint, first + lane])
        first += LANES
    hit[row, waypoint] = collides
