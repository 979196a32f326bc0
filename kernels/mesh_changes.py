"""Meshes made by callers: reading them, and detecting changes.

Queries use a copy of such a mesh, with record and grid. Before each launch the points
and faces of the caller's meshes are compared with the copies, word by word, by hashes of chunks.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_record import MeshRecord, unknown_record
from warp_collision.kernels.scene_walk import Scene, is_enabled, slot_of_thread

wp.set_module_options(OPTIONS)

# Columns of the table of meshes.
MESH_ID = wp.constant(0)
N_POINTS = wp.constant(1)
N_FACES = wp.constant(2)
FIRST_SLOT = wp.constant(3)  # of its slots, among the slots of all meshes
END_SLOT = wp.constant(4)

# Columns of the table of chunks: 4-byte words of the points or faces of a mesh.
MESH = wp.constant(0)
OF_FACES = wp.constant(1)
BEGIN = wp.constant(2)
END = wp.constant(3)

# Flags for the host.
MESHES_CHANGED = wp.constant(0)
BOXES_CHANGED = wp.constant(1)


@wp.func_native("""
    const wp::Mesh* mesh = (const wp::Mesh*)id;
    const wp::uint32* words = of_faces ? (const wp::uint32*)mesh->indices.data
                                       : (const wp::uint32*)mesh->points.data;
    const wp::int32 n_lanes = 16;
    wp::uint32 lanes[n_lanes];
    for (wp::int32 k = 0; k < n_lanes; ++k)
        lanes[k] = 0x811C9DC5u + k;
    wp::int32 i = begin;
    for (; i + n_lanes <= end; i += n_lanes) {
        for (wp::int32 k = 0; k < n_lanes; ++k) {
            wp::uint32 h = (lanes[k] ^ words[i + k]) * 0x85EBCA6Bu;
            lanes[k] = h ^ (h >> 15);
        }
    }
    for (; i < end; ++i) {
        wp::uint32 h = (lanes[0] ^ words[i]) * 0x85EBCA6Bu;
        lanes[0] = h ^ (h >> 15);
    }
    wp::uint64 hash = 0;
    for (wp::int32 k = 0; k < n_lanes; ++k) {
        hash = (hash ^ lanes[k]) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    return hash;
""")
def hash_words(id: wp.uint64, of_faces: bool, begin: int, end: int) -> wp.uint64:
    """Hash of 4-byte words of the points or faces of a mesh; any one word changes it."""
    ...


@wp.func
def has_size(mesh_id: wp.uint64, n_points: int, n_faces: int) -> bool:
    """Whether a mesh has as many points and faces; else its chunks lie elsewhere."""
    mesh = wp.mesh_get(mesh_id)
    return mesh.points.shape[0] == n_points and mesh.indices.shape[0] == 3 * n_faces


@wp.func
def id_in_use(scene: Scene, mesh_ids: wp.array2d[wp.uint64], slot: int) -> wp.uint64:
    """Id of the mesh that queries check in a filled slot, else 0: that one may be gone."""
    if not is_enabled(scene, slot):
        return wp.uint64(0)
    return mesh_ids[slot // scene.n_slots, slot % scene.n_slots]


@wp.kernel
def mesh_sizes(
    mesh_ids: wp.array[wp.uint64],  # (n,)
    # outputs
    sizes: wp.array2d[wp.int32],  # (n, 2) points and faces
):
    """One thread per mesh and size."""
    index, column = wp.tid()
    mesh = wp.mesh_get(mesh_ids[index])
    sizes[index, column] = wp.where(column == 0, mesh.points.shape[0], mesh.indices.shape[0] // 3)


@wp.kernel
def read_points(
    mesh_id: wp.array[wp.uint64],  # (1,)
    # outputs
    points: wp.array[wp.vec3],  # (n_points,)
):
    """One thread per point."""
    index = wp.tid()
    points[index] = wp.mesh_get(mesh_id[0]).points[index]


@wp.kernel
def read_faces(
    mesh_id: wp.array[wp.uint64],  # (1,)
    # outputs
    faces: wp.array2d[wp.int32],  # (n_faces, 3)
):
    """One thread per corner."""
    face, corner = wp.tid()
    faces[face, corner] = wp.mesh_get(mesh_id[0]).indices[3 * face + corner]


@wp.kernel
def hash_chunks(
    meshes: wp.array2d[wp.int64],  # (n_meshes, 5)
    chunks: wp.array2d[wp.int32],  # (n_chunks, 4)
    # outputs
    hashes: wp.array[wp.uint64],  # (n_chunks,)
):
    """One thread per chunk of meshes that are alive."""
    index = wp.tid()
    mesh_id = wp.uint64(meshes[chunks[index, MESH], MESH_ID])
    of_faces = chunks[index, OF_FACES] != 0
    hashes[index] = hash_words(mesh_id, of_faces, chunks[index, BEGIN], chunks[index, END])


@wp.kernel
def find_changed(
    scene: Scene,  # of the caller, without records
    mesh_ids: wp.array2d[wp.uint64],  # (n_envs, n_slots)
    meshes: wp.array2d[wp.int64],  # (n_meshes, 5)
    slots: wp.array[wp.int32],  # env * n_slots + index of all slots, mesh by mesh
    chunks: wp.array2d[wp.int32],  # (n_chunks, 4)
    hashes: wp.array[wp.uint64],  # (n_chunks,)
    # outputs
    changed: wp.array[wp.int32],  # (n_meshes,) 1: differs from what was read
    flags: wp.array[wp.int32],  # (2,) MESHES_CHANGED, BOXES_CHANGED
):
    """One thread per chunk. Only meshes that queries check are read: others may be gone."""
    index = wp.tid()
    mesh = chunks[index, MESH]
    mesh_id = wp.uint64(meshes[mesh, MESH_ID])
    in_use = bool(False)
    for entry in range(int(meshes[mesh, FIRST_SLOT]), int(meshes[mesh, END_SLOT])):
        slot = slot_of_thread(scene, slots[entry] // scene.n_slots, slots[entry] % scene.n_slots)
        if slot >= 0:
            in_use = id_in_use(scene, mesh_ids, slot) == mesh_id
        if in_use:
            break
    if in_use and changed[mesh] == 0:
        same = has_size(mesh_id, int(meshes[mesh, N_POINTS]), int(meshes[mesh, N_FACES]))
        if same:
            hash = hash_words(
                mesh_id, chunks[index, OF_FACES] != 0, chunks[index, BEGIN], chunks[index, END]
            )
            same = hash == hashes[index]
        if not same:
            changed[mesh] = 1
            flags[MESHES_CHANGED] = 1


@wp.kernel
def substitute(
    scene: Scene,  # of the caller, without records
    mesh_ids: wp.array2d[wp.uint64],  # (n_envs, n_slots)
    read_ids: wp.array2d[wp.uint64],  # (n_envs, n_slots) ids of the meshes that were read, or 0
    mesh_of_slot: wp.array2d[wp.int32],  # (n_envs, n_slots) in the table of meshes, -1: of a world
    records_of_copies: wp.array2d[wp.uint64],  # (n_envs, n_slots) pointers to MeshRecord
    unknown: wp.array2d[wp.uint64],  # (n_envs, n_slots) pointers to MeshRecord, to be written
    changed: wp.array[wp.int32],  # (n_meshes,)
    # outputs
    flags: wp.array[wp.int32],  # (2,) MESHES_CHANGED, BOXES_CHANGED
    records: wp.array2d[wp.uint64],  # (n_envs, n_slots) pointers to MeshRecord, 0: empty
):
    """One thread per slot: the copy of its mesh, where that is still the same, else the mesh.

    Of a mesh that is not the same nothing is known but its id.
    """
    env, index = wp.tid()
    slot = slot_of_thread(scene, env, index)
    mesh_id = wp.uint64(0)
    record = wp.uint64(0)
    if slot >= 0:
        mesh_id = id_in_use(scene, mesh_ids, slot)
    if mesh_id != wp.uint64(0):
        mesh = mesh_of_slot[env, index]
        same = mesh_id == read_ids[env, index]
        if same and mesh >= 0:
            same = changed[mesh] == 0
        if same:
            record = records_of_copies[env, index]
        else:
            record = unknown[env, index]
            target = wp.array(ptr=record, shape=(1,), dtype=MeshRecord)
            target[0] = unknown_record(mesh_id)
            flags[MESHES_CHANGED] = 1
    if record != records[env, index]:
        flags[BOXES_CHANGED] = 1
    records[env, index] = record
