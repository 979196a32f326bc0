"""Worlds from world files and back: one env for each file, and an env as obstacles of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import trimesh
from torch import Tensor

from warp_collision.io import Obstacle, load_world_file
from warp_collision.io.content import errors_begin_with
from warp_collision.io.placing import matrix_from, pose_from
from warp_collision.messages import escaped
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.poses import invert_pose
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slot

World = TypeVar("World")
PathLike = str | os.PathLike[str]


def world_of_files(
    make: Callable[..., World],
    paths: Sequence[PathLike],
    options: dict[str, Any],
    **reading: Any,
) -> World:
    """A world with an env for each file; arguments are those of `MeshWorld.from_files`."""
    if isinstance(paths, str | os.PathLike):
        raise TypeError(f"paths must be a sequence of paths, got {type(paths).__name__}")
    contents = [load_world_file(path, **reading) for path in paths]
    return world_of_contents(make, contents, [escaped(str(path)) for path in paths], options)


def world_of_contents(
    make: Callable[..., World],
    contents: Sequence[Mapping[str, Obstacle]],
    where: Sequence[str],
    options: dict[str, Any],
) -> World:
    """A world with an env for each mapping, as many slots as the fullest needs.

    Args:
        make: `MeshWorld`.
        contents: obstacles of each env, at least one env.
        where: what errors of each env begin with.
        options: keyword arguments of `make`.
    """
    if not contents:
        raise ValueError("paths must be at least one, got none")
    slots = max(len(obstacles) for obstacles in contents)
    world: Any = make(n_envs=len(contents), **{"max_meshes": slots, **options})
    for env, obstacles in enumerate(contents):
        with errors_begin_with(where[env]):
            world.load(obstacles, env)
    return world


def obstacles_of_env(slots: Sequence[Slot], storage: SceneStorage, env: int) -> dict[str, Obstacle]:
    """What an env holds, by name: exact shapes, and meshes as they stand after repairs."""
    poses = invert_pose(storage.tables.mesh_from_world[env, : len(slots), :7].double().cpu())
    enabled = storage.tables.enabled[env].tolist()
    padding = storage.padding[env].tolist()
    meshes: dict[int, trimesh.Trimesh] = {}
    obstacles: dict[str, Obstacle] = {}
    for index, slot in enumerate(slots):
        pose = poses[index] if slot.pose is None else slot.pose.detach().double().cpu()
        matrix = matrix_from(pose.numpy())
        placed = slot.obstacle.placed
        if placed is None:
            geometry = meshes.setdefault(id(slot.obstacle), _mesh(slot.obstacle))
        else:
            geometry = placed.shape
            matrix = matrix @ matrix_from(np.concatenate((placed.center, placed.turn)))
        obstacles[slot.name] = Obstacle(
            geometry, pose_from(matrix[:3, :3], matrix[:3, 3]), padding[index], bool(enabled[index])
        )
    return obstacles


def _mesh(obstacle: MeshObstacle) -> trimesh.Trimesh:
    vertices, faces = obstacle.mesh.points.numpy(), obstacle.mesh.indices.numpy()
    return trimesh.Trimesh(vertices, faces.reshape(-1, 3), process=False)
