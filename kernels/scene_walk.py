"""Device tables of the obstacles of parallel envs, and the walk over them."""

from typing import Any

import warp as wp

from warp_collision.kernels.box_blocks import (
    BLOCK_BYTES,
    FEW,
    count_blocks,
    distance_to_boxes,
    lowest_bit,
    near_boxes,
)
from warp_collision.kernels.compiling import named, runs_on_cpu
from warp_collision.kernels.mesh_record import MeshRecord, cell_along, load_record
from warp_collision.kernels.precision import LARGEST
from warp_collision.kernels.transforms import load_transform, vec8

# In place of the index of a sphere: queries that check all obstacles.
NOTHING_IGNORED = wp.constant(-1)


@wp.struct
class Scene:
    """Tables of the obstacles of all envs, contiguous and given by their pointers.

    Functions take it by value: a struct of arrays would be seven times as large, and copying it
    would be most of what a sphere in free space costs on a CPU.
    """

    mesh_from_world: wp.uint64  # to (n_envs, n_slots) vec8: x, y, z, qw, qx, qy, qz, padding
    enabled: wp.uint64  # to (n_envs, n_slots) uint8, 1: checked
    n_meshes: wp.uint64  # to (n_envs,) int32, filled slots
    records: wp.uint64  # to (n_envs, n_slots) pointers to MeshRecord, 0: empty
    padding: wp.uint64  # to (n_envs, n_slots) float32 [m]; 0: none
    ignored: wp.uint64  # to (n_envs, n_slots, n_spheres) uint8, 1: not checked; 0: none is ignored
    tree: wp.uint64  # to (1,) pointer to a tree as `find_roots` describes it; 0: there is none
    field: wp.uint64  # to (n_envs,) SceneField; 0: there is none
    n_envs: int
    n_slots: int
    n_spheres: int  # that an obstacle may ignore, each of which is one of a robot


@wp.struct
class SceneField:
    """Bounds of the signed distance of an env at the centers of cubic cells, x running fastest.

    Bounds are 1-Lipschitz: a bound minus the distance to its center, where positive, is a bound at
    any point of the cell.
    """

    values: wp.uint64  # pointer to (nz, ny, nx) float32 [m]
    origin: wp.vec3  # lower corner of the first cell [m]
    cell: float  # edge of a cell [m]
    per_metre: float  # cells
    shape: wp.vec3i  # nx, ny, nz; 0, 0, 0: there is no field


@wp.struct
class Obstacle:
    """What a query needs of one obstacle.

    Slots are counted through all envs: those of an env begin at ``env * n_slots``.
    """

    is_present: bool  # False: skipped, the other fields are undefined
    slot: int
    record: wp.uint64  # pointer to a MeshRecord
    padding: float  # its signed distance is lowered by this [m]
    mesh_from_world: wp.transform


@wp.struct
class EnvTree:
    """The part of a tree that holds the obstacles of one env."""

    bvh: wp.uint64  # 0: there is no tree, every slot is visited
    root: int  # node that the query begins at
    blocks: wp.uint64  # pointer to the boxes of its first slots; on a CPU


@wp.func
def env_of_row(env_index: wp.array[wp.int32], row: int) -> int:
    """The env that a batch row is checked against; without an index, env 0."""
    if env_index.shape[0] == 0:
        return 0
    return env_index[row]


@wp.func
def rows_of_env(first_rows: wp.array[wp.int32], env: int, batch: int) -> wp.vec2i:
    """Which of the batch rows, sorted by env, are checked against an env: from, to.

    Args:
        first_rows: (n_envs + 1,), where those of each env begin; empty: all are checked against
            env 0.
        env: which env.
        batch: number of rows.
    """
    if first_rows.shape[0] == 0:
        return wp.vec2i(0, wp.where(env == 0, batch, 0))
    return wp.vec2i(first_rows[env], first_rows[env + 1])


@wp.func
def env_of_sphere(env_index: wp.array[wp.int32], index: int, n_spheres: int) -> int:
    """The env that one of the spheres of all batch rows is checked against.

    Kernels that look at each sphere for itself have one axis for batch, horizon and spheres: on a
    CPU a thread begins with reading extents and strides of all arrays, which is a third of what a
    free sphere costs. They are launched with two, for Warp compiles those of one axis twice.
    """
    if env_index.shape[0] == 0:
        return 0
    return env_index[index / (n_spheres / env_index.shape[0])]


@wp.func
def is_env(scene: Scene, env: int) -> bool:
    """Whether there is such an env; reading any other would read foreign memory."""
    return env >= 0 and env < scene.n_envs


@wp.func
def filled_slots(scene: Scene, env: int) -> wp.vec2i:
    """First slot of an env and the one behind its last filled one, counted through all envs."""
    first = env * scene.n_slots
    n_meshes = wp.array(ptr=scene.n_meshes, shape=(scene.n_envs,), dtype=wp.int32)[env]
    return wp.vec2i(first, first + wp.clamp(n_meshes, 0, scene.n_slots))


@wp.func
def pose_row(scene: Scene, slot: int) -> vec8:
    """The row of a slot in ``mesh_from_world``."""
    return wp.array(ptr=scene.mesh_from_world, shape=(scene.n_slots,), dtype=vec8)[slot]


@wp.func
def load_obstacle(scene: Scene, slot: int) -> Obstacle:
    """The obstacle of a filled slot, enabled or not; without a record it is not present.

    The pointer is read once: another thread may empty the slot.
    """
    obstacle = Obstacle()
    obstacle.record = wp.array(ptr=scene.records, shape=(scene.n_slots,), dtype=wp.uint64)[slot]
    if obstacle.record == wp.uint64(0):
        return obstacle
    obstacle.is_present = True
    obstacle.slot = slot
    if scene.padding != wp.uint64(0):
        paddings = wp.array(ptr=scene.padding, shape=(scene.n_slots,), dtype=wp.float32)
        # What is not finite is a contact everywhere: NaN would compare as free.
        obstacle.padding = wp.where(paddings[slot] > -LARGEST, paddings[slot], wp.inf)
    obstacle.mesh_from_world = load_transform(pose_row(scene, slot))
    return obstacle


@wp.func
def is_enabled(scene: Scene, slot: int) -> bool:
    """Whether queries check the obstacle of a slot."""
    enabled = wp.array(ptr=scene.enabled, shape=(scene.n_slots,), dtype=wp.uint8)
    return enabled[slot] != wp.uint8(0)


@wp.func
def is_checked(scene: Scene, slot: int, sphere: int) -> bool:
    """Whether queries check the obstacle of a slot against a sphere.

    Args:
        scene: the obstacles.
        slot: counted through all envs.
        sphere: of the robot, or of all batch rows and waypoints; or `NOTHING_IGNORED`.
    """
    if not is_enabled(scene, slot):
        return False
    if sphere < 0 or scene.ignored == wp.uint64(0):
        return True
    row = scene.ignored + wp.uint64(slot) * wp.uint64(scene.n_spheres)
    ignored = wp.array(ptr=row, shape=(scene.n_spheres,), dtype=wp.uint8)
    return ignored[sphere % scene.n_spheres] == wp.uint8(0)


@wp.func
def slot_of_thread(scene: Scene, env: int, index: int) -> int:
    """The slot at an index of an env, for kernels with a thread for each; -1: not filled."""
    slots = filled_slots(scene, env)
    return wp.where(slots[0] + index < slots[1], slots[0] + index, -1)


@wp.func
def record_of(obstacle: Obstacle) -> MeshRecord:
    """The record of an obstacle."""
    return load_record(obstacle.record)


@wp.func
def tree_of(scene: Scene, env: int) -> EnvTree:
    """The tree over the obstacles of an env, if there is one.

    Read once per walk: another thread may drop the tree, or build one, in the meantime.
    """
    tree = EnvTree()
    if scene.tree != wp.uint64(0):
        address = wp.array(ptr=scene.tree, shape=(1,), dtype=wp.uint64)[0]
        if address != wp.uint64(0):
            words = wp.array(ptr=address, shape=(1 + scene.n_envs,), dtype=wp.int64)
            tree.root = int(words[1 + env])
            if runs_on_cpu():
                block = env * count_blocks(scene.n_slots)
                roots = wp.uint64(8) * wp.uint64(1 + scene.n_envs)
                tree.blocks = address + roots + wp.uint64(BLOCK_BYTES) * wp.uint64(block)
            # The root of an absent group is -1, with which a query would search the whole tree.
            if tree.root >= 0:
                tree.bvh = wp.uint64(words[0])
    return tree


@wp.func_native("""
    const wp::BVH bvh = wp::bvh_get(tree.bvh);
    const wp::BVHPackedNodeHalf lower = bvh.node_lowers[tree.root];
    const wp::BVHPackedNodeHalf upper = bvh.node_uppers[tree.root];
    const wp::float32 x = wp::max(wp::max(lower.x - point[0], point[0] - upper.x), 0.0f);
    const wp::float32 y = wp::max(wp::max(lower.y - point[1], point[1] - upper.y), 0.0f);
    const wp::float32 z = wp::max(wp::max(lower.z - point[2], point[2] - upper.z), 0.0f);
    return wp::sqrt(x * x + y * y + z * z);
""")
def distance_to_root(tree: EnvTree, point: wp.vec3) -> float:
    """Distance to the box around all obstacles of an env: a lower bound of theirs."""
    ...


@wp.func
def distance_of_few(scene: Scene, env: int, point: wp.vec3) -> float:
    """Lower bound of the distance to all obstacles of an env, by boxes; 0 if it takes a search."""
    tree = tree_of(scene, env)
    slots = filled_slots(scene, env)
    count = slots[1] - slots[0]
    if not runs_on_cpu() or tree.bvh == wp.uint64(0) or count > FEW:
        return 0.0
    return distance_to_boxes(tree.blocks, count, point)


@wp.func
def is_clear_by_field(fields: wp.uint64, env: int, center: wp.vec3, reach: float) -> bool:
    """Whether the field proves that no enabled obstacle of an env is within ``reach``.

    Args:
        fields: see `Scene`, which is not passed itself, as a call would copy all of it.
        env: the env.
        center: of a ball.
        reach: radius of the ball [m].
    """
    if not runs_on_cpu() or fields == wp.uint64(0):
        return False
    field = wp.array(ptr=fields, shape=(env + 1,), dtype=SceneField)
    shape = field[env].shape
    if shape[0] == 0:
        return False
    # The bound of the closest cell holds for points outside, too. Whether a point is outside is
    # hard to predict for a CPU, so there is no branch.
    local = (center - field[env].origin) * field[env].per_metre
    x = cell_along(local[0], shape[0])
    y = cell_along(local[1], shape[1])
    z = cell_along(local[2], shape[2])
    cells = wp.array(ptr=field[env].values, shape=(shape[2], shape[1], shape[0]), dtype=wp.float32)
    offset = wp.length(local - wp.vec3(float(x) + 0.5, float(y) + 0.5, float(z) + 0.5))
    return cells[z, y, x] - offset * field[env].cell >= reach


@wp.func
def is_hit(hit: bool) -> bool:
    """Ends a walk at the first hit."""
    return hit


def make_is_clear(kind):
    """A device function that tells at once of most free spheres that they are free, on CPUs.

    Args:
        kind: ends its name: each caller has its own, for what is called twice is not inlined.
    """

    def is_clear(scene: Scene, env: int, center: wp.vec3, reach: float) -> bool:
        """Whether a field or few boxes tell that no enabled obstacle is as near as that."""
        if not runs_on_cpu():
            return False
        slots = filled_slots(scene, env)
        tree = tree_of(scene, env)
        if tree.bvh != wp.uint64(0) and slots[1] - slots[0] <= FEW:
            # First, for reading a field takes longer.
            half = wp.vec3(reach)
            count = slots[1] - slots[0]
            if near_boxes(tree.blocks, count, center - half, center + half) == wp.uint32(0):
                return True
        return is_clear_by_field(scene.field, env, center, reach)

    return named(is_clear, kind)


@wp.func
def is_never_over(state: Any) -> bool:
    """All obstacles are visited."""
    return False


def make_walk(visit, Query, State, is_over=is_never_over):
    """A device function that walks over the enabled obstacles near a point.

    The state is passed from obstacle to obstacle, in an order that depends on the tree. No other
    function opens a query of a tree, and this one only where there is a tree: on CUDA all queries
    of a block share one stack.

    Args:
        visit: device function (obstacle: Obstacle, query: Query, state: State) -> State.
        Query: type of the constant argument of the visitor.
        State: type of the state that it updates.
        is_over: device function (state: State) -> bool, whether the walk ends.
    """
    is_clear = make_is_clear(visit.key)

    def walk(
        scene: Scene,
        env: int,
        sphere: int,
        center: wp.vec3,
        reach: float,
        query: Query,
        state: State,
    ) -> State:
        """Visits all obstacles that may be within reach of a center, and some more.

        Within reach: their signed distance at the center, lowered by their padding, is below it.
        Those that ignore the sphere are left out, see `is_checked`.
        """
        if is_clear(scene, env, center, reach):
            return state
        tree = tree_of(scene, env)
        slots = filled_slots(scene, env)
        slot = slots[0] - 1
        more = bool(True)
        half = wp.vec3(reach)
        is_few = runs_on_cpu() and tree.bvh != wp.uint64(0) and slots[1] - slots[0] <= FEW
        few = wp.uint32(0)
        if is_few:
            few = near_boxes(tree.blocks, slots[1] - slots[0], center - half, center + half)
        elif tree.bvh != wp.uint64(0):
            near = wp.bvh_query_aabb(tree.bvh, center - half, center + half, tree.root)
        while more:
            if is_few:
                more = few != wp.uint32(0)
                if more:
                    slot = slots[0] + lowest_bit(few)
                    few &= few - wp.uint32(1)
            elif tree.bvh != wp.uint64(0):
                more = wp.bvh_query_next(near, slot)
            else:
                slot += 1
                more = slot < slots[1]
            if more and slot < slots[1] and is_checked(scene, slot, sphere):
                obstacle = load_obstacle(scene, slot)
                if obstacle.is_present:
                    state = visit(obstacle, query, state)
                    # Not by a branch: whether it is over is hard to predict.
                    few = wp.where(is_over(state), wp.uint32(0), few)
                    more = is_few or not is_over(state)
        return state

    return named(walk, visit.key)
