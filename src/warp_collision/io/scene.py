"""Scenes to obstacles: the meshes of a scene graph, with poses from their transforms."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import trimesh

from warp_collision.formats.files import metres_per_unit
from warp_collision.formats.mesh_files import load_scene
from warp_collision.io.content import Obstacle
from warp_collision.io.marks import Marked
from warp_collision.io.placing import (
    joined,
    place_mesh,
    place_shape,
    require_invertible,
    transformed,
)
from warp_collision.messages import escaped, shown
from warp_collision.obstacles.recognition import shape_of


class Part(NamedTuple):
    """A node of a scene graph that has a mesh."""

    name: str
    mesh: trimesh.Trimesh
    world_from_mesh: np.ndarray  # (4, 4), [m], may scale and shear
    marked: Marked


def scene_meshes(scene: trimesh.Scene) -> dict[str, Obstacle]:
    """Obstacles of a scene, ready for `MeshWorld.load`.

    Every node of the scene graph that has a mesh becomes an obstacle under the node's name. The
    rigid part of its transform becomes the pose; scale, shear and mirroring are baked into the
    vertices. A primitive of trimesh that is not distorted becomes an exact shape. Coordinates are
    metres unless the scene declares another unit. What `MeshWorld.to_scene` made keeps its names,
    slots, exact shapes, paddings and masks.

    Args:
        scene: the scene; it is not changed.

    Returns:
        Name to `Obstacle`: geometry, pose, padding, enabled.

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
    return obstacles_of(parts_of(scene, "scene"), None)


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
    return parts_of(scene, escaped(str(path)))


class MeshFiles:
    """Mesh files as one mesh each; each file is read once."""

    def __init__(self) -> None:
        self._read: dict[Path, trimesh.Trimesh] = {}

    def read(self, path: Path) -> trimesh.Trimesh:
        """All parts of a file as one mesh [m]; errors are those of `read_parts`."""
        if path not in self._read:
            self._read[path] = joined(
                [
                    transformed(
                        part.mesh, part.world_from_mesh[:3, :3], part.world_from_mesh[:3, 3]
                    )
                    for part in read_parts(path)
                ]
            )
        return self._read[path]


def obstacles_of(parts: list[Part], only_name: str | None) -> dict[str, Obstacle]:
    """Obstacles of parts, by their names.

    Args:
        parts: in any order; those that know their slot are put in that order.
        only_name: what a single part without a mark is called, None for its own name.
    """
    if all(part.marked.slot is not None for part in parts):
        parts = sorted(parts, key=lambda part: part.marked.slot or 0)
    obstacles: dict[str, Obstacle] = {}
    for part in parts:
        name = part.name if only_name is None or len(parts) > 1 else only_name
        name = part.marked.name or name
        while name in obstacles:  # two marks of one name
            name = part.name if part.name not in obstacles else f"{name}#2"
        obstacles[name] = _obstacle(part)
    return obstacles


def parts_of(scene: trimesh.Scene, where: str) -> list[Part]:
    """The nodes of a scene that have a mesh, in metres; `where` begins errors."""
    parts = []
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
        require_invertible(world_from_mesh, f"{where}: the transform of part {shown(node)}")
        marked = Marked(scene, node, f"{where}: part {shown(node)}")
        parts.append(Part(str(node), mesh, world_from_mesh, marked))
    return parts


def _obstacle(part: Part) -> Obstacle:
    shape = part.marked.shape_of(part.mesh)
    primitive = shape_of(part.mesh)  # of trimesh, in memory alone
    if shape is not None:
        placed = place_shape(shape, part.world_from_mesh)
    elif primitive is not None:
        placed = place_shape(primitive.shape, part.world_from_mesh @ primitive.matrix)
    else:
        placed = place_mesh(part.mesh, part.world_from_mesh)
    return placed._replace(padding=part.marked.padding, enabled=part.marked.enabled)
