"""World files to worlds, one env for each file, and envs to obstacles for files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from warp_collision import io, validate
from warp_collision.io.content import Obstacle, check_pose
from warp_collision.messages import errors_at, escaped
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.poses import invert_pose
from warp_collision.validate import is_scene
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slot

if TYPE_CHECKING:
    import trimesh

World = TypeVar("World")
PathLike = str | os.PathLike[str]

ROOM = 32  # slots beside what a file fills


def world_of_files(
    make: Callable[..., World],
    paths: Sequence[PathLike],
    *,
    strict: bool = False,
    package_dirs: Sequence[PathLike] = (),
    **options: Any,
) -> World:
    """A world with an env for each file.

    Args:
        make: `MeshWorld`.
        paths: at least one.
        strict: see `load_world_file`.
        package_dirs: see `load_world_file`.
        options: arguments of `make`; without `max_meshes` there are 32 slots more than what the
            fullest env fills.
    """
    if isinstance(paths, str | os.PathLike) or not isinstance(paths, Sequence):
        raise TypeError(f"paths must be a sequence of paths, got {type(paths).__name__}")
    if not paths:
        raise ValueError("paths must be at least one, got none")
    contents = [
        io.load_world_file(path, strict=strict, package_dirs=package_dirs) for path in paths
    ]
    return _world_of(make, contents, [escaped(str(path)) for path in paths], options)


def world_of_mapping(
    make: Callable[..., World],
    document: Mapping[str, Any],
    *,
    folder: PathLike = ".",
    strict: bool = False,
    **options: Any,
) -> World:
    """A world of one env from a mapping; arguments as in `world_of_files`."""
    content = io.load_world_mapping(document, folder=folder, strict=strict)
    return _world_of(make, [content], ["mapping"], options)


def _world_of(
    make: Callable[..., World],
    contents: Sequence[Mapping[str, Obstacle]],
    where: Sequence[str],
    options: dict[str, Any],
) -> World:
    slots = max(len(obstacles) for obstacles in contents) + ROOM
    world: Any = make(n_envs=len(contents), **{"max_meshes": slots, **options})
    for env, obstacles in enumerate(contents):
        with errors_at(where[env]):  # an error of the world names the obstacle, but not its file
            world.load(obstacles, env)
    return world


def obstacles_of_env(slots: Sequence[Slot], storage: SceneStorage, env: int) -> dict[str, Obstacle]:
    """The obstacles of an env by name: exact shapes, and meshes after their repairs."""
    from warp_collision.io.placing import matrix_from, pose_from

    rows = storage.tables.mesh_from_world[env]
    enabled = storage.tables.enabled[env].tolist()
    padding = storage.padding[env].tolist()
    meshes: dict[int, trimesh.Trimesh] = {}
    obstacles: dict[str, Obstacle] = {}
    for index, slot in enumerate(slots):
        row = slot.differentiable_row(rows[index]).detach()
        pose = invert_pose(row[:7].double().cpu())
        check_pose(f"pose of {slot.name!r}", pose.tolist())
        matrix = matrix_from(pose.numpy())
        placed = slot.obstacle.placed
        if placed is not None:
            geometry = placed.shape
            matrix = matrix @ placed.matrix
        else:
            key = id(slot.obstacle)
            if key not in meshes:
                meshes[key] = _mesh(slot.obstacle)
            geometry = meshes[key]
        obstacles[slot.name] = Obstacle(
            geometry, pose_from(matrix[:3, :3], matrix[:3, 3]), padding[index], bool(enabled[index])
        )
    return obstacles


def as_mapping(meshes: Any) -> Mapping[str, Any]:
    """The argument of `MeshWorld.load`, a mapping or a scene, as a mapping."""
    if is_scene(meshes):
        return io.scene_meshes(meshes)
    validate.require_mapping("meshes", meshes, "a mapping or a trimesh.Scene")
    return meshes


def _mesh(obstacle: MeshObstacle) -> trimesh.Trimesh:
    import trimesh

    vertices, faces = obstacle.mesh.points.numpy(), obstacle.mesh.indices.numpy()
    return trimesh.Trimesh(vertices, faces.reshape(-1, 3), process=False)
