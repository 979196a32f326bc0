"""Scenes to meshes and poses: the parts of a scene graph and what their transforms become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import trimesh

from warp_collision.formats.mesh_files import MAX_COORDINATE, load_scene
from warp_collision.messages import escaped, shown
from warp_collision.obstacles.recognition import shape_of
from warp_collision.obstacles.shapes import Shape
from warp_collision.obstacles.units import metres_per_unit

# A mesh or an exact shape, and its pose x, y, z, qw, qx, qy, qz.
Obstacle = tuple[trimesh.Trimesh | Shape, tuple[float, ...]]

_RIGID_TOLERANCE = 1e-6  # files store rotations in float32, whose rounding is below this


class Part(NamedTuple):
    """A node of a scene graph that has a mesh."""

    name: str
    mesh: trimesh.Trimesh
    world_from_mesh: np.ndarray  # (4, 4), [m], may scale and shear


def scene_meshes(scene: trimesh.Scene) -> dict[str, Obstacle]:
    """Meshes and poses of a scene, ready for `MeshWorld.load`.

    Every node of the scene graph that has a mesh becomes an obstacle under the node's name. The
    rigid part of its transform becomes the pose; scale, shear and mirroring are baked into the
    vertices. A primitive of trimesh that is not distorted becomes an exact shape. Coordinates are
    metres unless the scene declares another unit.

    Args:
        scene: the scene; it is not changed.

    Returns:
        Name to (mesh or shape, pose), where a pose is x, y, z, qw, qx, qy, qz in the world.

    Raises:
        ValueError: a part is no triangle mesh, or its transform is not finite and invertible.

    Example:
        >>> import trimesh
        >>> from warp_collision.io import scene_meshes
        >>> scene = trimesh.Scene()
        >>> _ = scene.add_geometry(trimesh.creation.box((1, 1, 1)), node_name="crate")
        >>> list(scene_meshes(scene))
        ['crate']
    """
    return {part.name: obstacle(part) for part in _parts_of_scene(scene, "scene")}


def read_parts(path: Path) -> list[Part]:
    """Reads the meshes of a file, at least one, with their transforms.

    Raises:
        ValueError: trimesh cannot read the file, it is damaged, holds no mesh, a part that is no
            mesh, or a transform that is not finite and invertible.
    """
    scene = load_scene(path)
    for mesh in scene.geometry.values():
        if isinstance(mesh, trimesh.Trimesh):
            mesh.merge_vertices()
    return list(_parts_of_scene(scene, escaped(str(path))))


def _parts_of_scene(scene: trimesh.Scene, where: str) -> Iterator[Part]:
    to_metres = np.eye(4)
    to_metres[:3, :3] *= metres_per_unit(scene.units, where)
    for node in scene.graph.nodes_geometry:
        transform, key = scene.graph[node]
        mesh = scene.geometry[key]
        if not isinstance(mesh, trimesh.Trimesh):
            raise ValueError(
                f"{where}: part {shown(node)} must be a triangle mesh, got a {type(mesh).__name__}"
            )
        world_from_mesh = to_metres @ np.asarray(transform, dtype=np.float64)
        linear = world_from_mesh[:3, :3]
        if (
            not (np.abs(world_from_mesh) < MAX_COORDINATE).all()
            or np.linalg.matrix_rank(linear) < 3
        ):
            raise ValueError(
                f"{where}: the transform of part {shown(node)} must be finite and invertible, "
                f"got {shown(world_from_mesh.tolist())}"
            )
        yield Part(str(node), mesh, world_from_mesh)


def obstacle(part: Part) -> Obstacle:
    """Splits a part's transform into a pose and a rest that is baked into the vertices."""
    linear = part.world_from_mesh[:3, :3]
    # Polar decomposition: linear = rotation @ stretch, where stretch holds scale, shear, mirroring.
    left, _, right = np.linalg.svd(linear)
    rotation = left @ right
    rotation *= np.sign(np.linalg.det(rotation))
    stretch = rotation.T @ linear
    if np.abs(stretch - np.eye(3)).max() < _RIGID_TOLERANCE:
        stretch = np.eye(3)
    world_from_body = part.world_from_mesh.copy()
    world_from_body[:3, :3] = rotation
    factor = float(np.cbrt(np.linalg.det(stretch)))
    if np.abs(stretch - factor * np.eye(3)).max() < _RIGID_TOLERANCE * factor:
        placed = shape_of(part.mesh)
        if placed is not None:
            placed = placed.scaled(factor)
            return placed.shape, pose_of(world_from_body @ placed.matrix)
    return transformed(part.mesh, stretch), pose_of(world_from_body)


def pose_of(matrix: np.ndarray) -> tuple[float, ...]:
    """Pose x, y, z, qw, qx, qy, qz of a rigid matrix (4, 4)."""
    quaternion = trimesh.transformations.quaternion_from_matrix(matrix)
    return tuple(float(value) for value in (*matrix[:3, 3], *quaternion))


def transformed(
    mesh: trimesh.Trimesh, linear: np.ndarray, offset: np.ndarray | float = 0.0
) -> trimesh.Trimesh:
    """A bare copy, without colours and textures, whose faces still look outward if mirrored."""
    mirrored = np.linalg.det(linear) < 0
    return trimesh.Trimesh(
        vertices=mesh.vertices @ linear.T + offset,
        faces=mesh.faces[:, ::-1] if mirrored else mesh.faces,
        process=False,
    )
