"""The meshes of parallel envs, as device tables, and how a kernel walks them."""

import warp as wp

from warp_collision.kernels.mesh_record import MeshRecord, load_record
from warp_collision.kernels.transforms import load_transform


@wp.struct
class Scene:
    """Tables of the meshes of all envs; ``slots`` is the second axis."""

    mesh_ids: wp.array2d[wp.uint64]  # (n_envs, slots) Warp mesh ids, 0: empty
    mesh_from_world: wp.array3d[wp.float32]  # (n_envs, slots, 8) x, y, z, qw, qx, qy, qz, pad
    enabled: wp.array2d[wp.uint8]  # (n_envs, slots) 1: checked
    n_meshes: wp.array[wp.int32]  # (n_envs,) filled slots
    records: wp.array2d[wp.uint64]  # (n_envs, slots) pointers to MeshRecord; may be empty
    tree: wp.array[wp.uint64]  # (2,) id of a tree over world boxes by env, and whether it is used


@wp.func
def env_of_row(env_index: wp.array[wp.int32], row: int) -> int:
    """The env that a batch row is checked against; without an index, env 0."""
    if env_index.shape[0] == 0:
        return 0
    return env_index[row]


@wp.func
def is_env(scene: Scene, env: int) -> bool:
    """Whether there is such an env; reading any other would read foreign memory."""
    return env >= 0 and env < scene.mesh_ids.shape[0]


@wp.func
def count_slots(scene: Scene, env: int) -> int:
    """Filled slots of an env, never more than there are."""
    return wp.clamp(scene.n_meshes[env], 0, scene.mesh_ids.shape[1])


@wp.func
def has_tree(scene: Scene) -> bool:
    """Whether a tree finds the meshes near a place; else every slot is looked at."""
    return scene.tree[1] != wp.uint64(0)


@wp.func
def slots_in_box(scene: Scene, env: int, center: wp.vec3, reach: float) -> wp.BvhQuery:
    """Items of the tree near a place; the slot of an item is what remains after full envs.

    Without a tree there is an empty one, for a query must be of something.
    """
    half = wp.vec3(reach)
    root = wp.bvh_get_group_root(scene.tree[0], env)
    return wp.bvh_query_aabb(scene.tree[0], center - half, center + half, root)


@wp.func
def is_checked(scene: Scene, env: int, slot: int) -> bool:
    """Whether a slot takes part: filled, enabled, and holding a mesh."""
    if slot >= count_slots(scene, env):
        return False
    return scene.enabled[env, slot] != wp.uint8(0) and scene.mesh_ids[env, slot] != wp.uint64(0)


@wp.func
def pointer_of(scene: Scene, env: int, slot: int) -> wp.uint64:
    """Where what is known of the mesh in a slot lies, 0 if nothing is."""
    if scene.records.shape[0] == 0:
        return wp.uint64(0)
    return scene.records[env, slot]


@wp.func
def record_of(scene: Scene, env: int, slot: int) -> MeshRecord:
    """What is known of the mesh in a slot."""
    return load_record(scene.mesh_ids[env, slot], pointer_of(scene, env, slot))


@wp.func
def mesh_from_world(scene: Scene, env: int, slot: int) -> wp.transform:
    """Pose of the world in the mesh of a slot."""
    return load_transform(scene.mesh_from_world, env, slot)
