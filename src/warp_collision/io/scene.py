"""Scenes of trimesh to obstacles, with poses from their transforms, and back.

A written scene has names, slots and exact shapes of obstacles under the key `warp_collision` in the
metadata of its nodes, which glTF keeps as extras. What it says of a shape is believed only if the
mesh is the one that contains that shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import trimesh

from warp_collision.formats.files import metres_per_unit
from warp_collision.formats.mesh_files import load_scene
from warp_collision.io.placing import (
    Z_FROM_Y_UP,
    joined,
    matrix_from,
    place_mesh,
    place_shape,
    require_invertible,
    transformed,
)
from warp_collision.io.scene_builder import Obstacle
from warp_collision.messages import errors_at, escaped, short_repr
from warp_collision.obstacles.geometry import SignMethod
from warp_collision.obstacles.recognition import shape_of
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import SHAPES, Shape, mesh_of
from warp_collision.validate import check_padding

_KEY = "warp_collision"
_ROUNDING = 1e-6  # of vertices in float32, in units of the largest


class _NodeMetadata:
    """What the metadata of a node says, as far as it is valid."""

    def __init__(self, scene: trimesh.Scene, node: str, where: str) -> None:
        transforms = scene.graph.transforms
        edge = transforms.edge_data.get((transforms.parents.get(node), node), {})
        metadata = edge.get("metadata")
        own = metadata.get(_KEY) if isinstance(metadata, dict) else None
        values: dict[str, Any] = own if isinstance(own, dict) else {}
        name, slot = values.get("name"), values.get("slot")
        self.name = name if isinstance(name, str) and name else None
        self.slot = slot if isinstance(slot, int) else None
        with errors_at(where, (TypeError, ValueError)):
            self.padding = check_padding("padding", values.get("padding", 0.0))
        self.enabled = values.get("enabled", True) is not False
        self.sign: SignMethod = "sheet" if values.get("sign") == "sheet" else "auto"
        self._shape: Any = values.get("shape")

    def shape_of(self, mesh: trimesh.Trimesh) -> Shape | Sensed | None:
        """The exact shape that is named, if the mesh is the one that contains it."""
        if isinstance(self._shape, Sensed):
            return self._shape
        if not isinstance(self._shape, dict):
            return None
        values = dict(self._shape)
        try:
            shape = SHAPES[values.pop("kind")](**values)
        except (TypeError, ValueError, KeyError):
            return None
        vertices, faces = shape.tessellate()
        corners = vertices[faces]
        if corners.shape != mesh.triangles.shape:
            return None
        off = np.abs(corners - mesh.triangles).max()
        return shape if off <= _ROUNDING * np.abs(corners).max() else None


class SceneNode(NamedTuple):
    """A node of a scene graph that has a mesh."""

    name: str
    mesh: trimesh.Trimesh
    world_from_mesh: np.ndarray  # (4, 4), [m], may scale and shear
    metadata: _NodeMetadata


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
    return obstacles_of(nodes_of(scene, "scene"), None)


def read_nodes(path: Path, up: str = "z", scale: float | None = None) -> list[SceneNode]:
    """Reads the meshes of a file, at least one, with their transforms.

    Args:
        path: the file.
        up: "y" or "z", which of its axes becomes z.
        scale: metres in its unit, None for the unit that it declares, or metres.

    Raises:
        ValueError: trimesh cannot read the file, it is damaged, holds no mesh, a part that is no
            mesh, or a transform that is not finite and invertible.
    """
    scene = load_scene(path)
    for mesh in scene.geometry.values():
        if isinstance(mesh, trimesh.Trimesh):
            mesh.merge_vertices()
    return nodes_of(scene, escaped(str(path)), up, scale)


class MeshFiles:
    """Mesh files as one mesh each; each file is read once."""

    def __init__(self) -> None:
        self._read: dict[Path, trimesh.Trimesh] = {}

    def read(self, path: Path) -> trimesh.Trimesh:
        """All parts of a file as one mesh [m]; errors are those of `read_nodes`."""
        if path not in self._read:
            self._read[path] = joined(
                [
                    transformed(
                        node.mesh, node.world_from_mesh[:3, :3], node.world_from_mesh[:3, 3]
                    )
                    for node in read_nodes(path)
                ]
            )
        return self._read[path]


def obstacles_of(nodes: list[SceneNode], only_name: str | None) -> dict[str, Obstacle]:
    """Obstacles of nodes, by their names.

    Args:
        nodes: in any order; those that know their slot are put in that order.
        only_name: what a single node without metadata is called, None for its own name.
    """
    if all(node.metadata.slot is not None for node in nodes):
        nodes = sorted(nodes, key=lambda node: node.metadata.slot or 0)
    obstacles: dict[str, Obstacle] = {}
    for node in nodes:
        name = node.name if only_name is None or len(nodes) > 1 else only_name
        name = node.metadata.name or name
        while name in obstacles:  # two of one name
            name = node.name if node.name not in obstacles else f"{name}#2"
        obstacles[name] = _obstacle(node)
    return obstacles


def nodes_of(
    scene: trimesh.Scene, where: str, up: str = "z", scale: float | None = None
) -> list[SceneNode]:
    """The nodes of a scene that have a mesh, as `read_nodes`; `where` begins errors."""
    nodes = []
    world_from_file = Z_FROM_Y_UP.copy() if up == "y" else np.eye(4)
    world_from_file[:3, :3] *= metres_per_unit(scene.units, where) if scale is None else scale
    for name in scene.graph.nodes_geometry:
        transform, key = scene.graph[name]
        mesh = scene.geometry[key]
        if not isinstance(mesh, trimesh.Trimesh):
            raise ValueError(
                f"{where}: part {short_repr(name)} must be a triangle mesh, got a "
                f"{type(mesh).__name__}"
            )
        world_from_mesh = world_from_file @ np.asarray(transform, dtype=np.float64)
        require_invertible(world_from_mesh, f"{where}: the transform of part {short_repr(name)}")
        metadata = _NodeMetadata(scene, name, f"{where}: part {short_repr(name)}")
        nodes.append(SceneNode(str(name), mesh, world_from_mesh, metadata))
    return nodes


def _obstacle(node: SceneNode) -> Obstacle:
    shape = node.metadata.shape_of(node.mesh)
    primitive = shape_of(node.mesh)  # of trimesh, in memory alone
    if shape is not None:
        placed = place_shape(shape, node.world_from_mesh)
    elif primitive is not None:
        placed = place_shape(primitive.shape, node.world_from_mesh @ primitive.matrix)
    else:
        placed = place_mesh(node.mesh, node.world_from_mesh)
    return placed._replace(
        padding=node.metadata.padding, enabled=node.metadata.enabled, sign=node.metadata.sign
    )


def obstacle_scene(obstacles: Mapping[str, Obstacle], *, up: str = "z") -> trimesh.Scene:
    """A scene of obstacles: each is a node under its name, an exact shape a mesh around it.

    The metadata of a node says what its mesh does not: the exact shape, padding and whether it is
    enabled. glTF files keep it, so `scene_meshes` and `load_world_file` give back the same. With
    ``up="y"`` the scene is turned as glTF files have it.

    Example:
        >>> from warp_collision import Sphere
        >>> from warp_collision.io import Obstacle, obstacle_scene
        >>> ball = Obstacle(Sphere(0.1), (0, 0, 0.5, 1, 0, 0, 0))
        >>> obstacle_scene({"ball": ball}).graph.nodes_geometry
        ['ball']
    """
    base = "world"
    while base in obstacles:  # a name of its own for the root
        base += "_"
    scene = trimesh.Scene(base_frame=base)
    scene_from_world = Z_FROM_Y_UP.T if up == "y" else np.eye(4)
    names: dict[int, str] = {}  # of geometry, by identity: shared meshes are stored once
    for slot, (name, obstacle) in enumerate(obstacles.items()):
        geometry = obstacle.geometry
        values: dict[str, Any] = {
            "name": name,
            "slot": slot,
            "padding": obstacle.padding,
            "enabled": obstacle.enabled,
            "sign": obstacle.sign,
        }
        if isinstance(geometry, Sensed):
            values["shape"] = geometry  # in memory alone: no file of a scene has a place for it
        elif not isinstance(geometry, trimesh.Trimesh):
            values["shape"] = {"kind": geometry.kind.name.lower(), **asdict(geometry)}
        transform = scene_from_world @ matrix_from(obstacle.pose)
        if id(geometry) not in names:
            names[id(geometry)] = name
            scene.geometry[name] = mesh_of(geometry)
        scene.graph.update(
            frame_to=name,
            frame_from=base,
            matrix=transform,
            geometry=names[id(geometry)],
            metadata={_KEY: values},
        )
    return scene
