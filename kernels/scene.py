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
    tree: wp.array[wp.uint64]  # (2,) ids of a tree over world boxes by env or 0, of an empty one


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
def tree_of(scene: Scene) -> wp.uint64:
    """Id of a tree that finds the meshes near a place; 0: every slot is looked at.

    To be read once for a walk: another thread may drop the tree, or build one, in the middle of it.
    """
    return scene.tree[0]


@wp.func
def slots_in_box(
    scene: Scene, tree: wp.uint64, env: int, center: wp.vec3, reach: float
) -> wp.BvhQuery:
    """Items of a tree near a place; the slot of an item is what remains after full envs.

    Without a tree there is an empty one, for a query must be of something.
    """
    half = wp.vec3(reach)
    searched = wp.where(tree == wp.uint64(0), scene.tree[1], tree)
    root = wp.bvh_get_group_root(searched, env)
    return wp.bvh_query_aabb(searched, center - half, center + half, root)


@wp.func
def checked_mesh(scene: Scene, env: int, slot: int) -> wp.uint64:
    """Warp's id of the mesh in a slot that takes part: filled and enabled; else 0.

    To be read once for a mesh: another thread may empty the slot, and a query of id 0 crashes.
    """
    if slot >= count_slots(scene, env) or scene.enabled[env, slot] == wp.uint8(0):
        return wp.uint64(0)
    return scene.mesh_ids[env, slot]


@wp.func
def pointer_of(scene: Scene, env: int, slot: int) -> wp.uint64:
    """Where what is known of the mesh in a slot lies, 0 if nothing is."""
    if scene.records.shape[0] == 0:
        return wp.uint64(0)
    return scene.records[env, slot]


@wp.func
def record_of(scene: Scene, env: int, slot: int, mesh_id: wp.uint64) -> MeshRecord:
    """What is known of the mesh of a slot."""
    return load_record(mesh_id, pointer_of(scene, env, slot))


@wp.func
def mesh_from_world(scene: Scene, env: int, slot: int) -> wp.transform:
    """Pose of the world in the mesh of a slot."""
    return load_transform(scene.mesh_from_world, env, slot)
