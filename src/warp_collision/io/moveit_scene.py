"""MoveIt planning scenes: the collision objects of a `moveit_msgs/PlanningScene` as YAML."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.io.fields import Fields, check_keys, is_number, mapping, plain, sequence
from warp_collision.io.placing import matrix_from, place_mesh, place_shape
from warp_collision.io.scene_builder import ClippingBudget, Obstacle, SceneBuilder
from warp_collision.io.solids import prism
from warp_collision.messages import MAX_REPR, any_error_at, errors_at, escaped, short_repr
from warp_collision.obstacles.geometry import read_mesh
from warp_collision.obstacles.shapes import Cone, Cuboid, Cylinder, Shape, Sphere

# Numbers of shape_msgs/SolidPrimitive.
_NUMBERED = {1: "box", 2: "sphere", 3: "cylinder", 4: "cone", 5: "prism"}
_SIZES = {"box": 3, "sphere": 1, "cylinder": 2, "cone": 2, "prism": 1}
_ADD = (0, "ADD", "add")
_SCENE = (
    "name is_diff robot_model_name robot_state fixed_frame_transforms allowed_collision_matrix "
    "link_padding link_scale object_colors world"
).split()
# In MoveIt both sides of it are free, and it is touched where a shape crosses it.
_PLANE = "a plane without a solid side: add a HalfSpace for it"
_WORLD = ("collision_objects", "octomap", "fixed_frame_transforms")
_OBJECT = (
    "header pose id type operation primitives primitive_poses meshes mesh_poses planes plane_poses "
    "subframe_names subframe_poses"
).split()


def is_planning_scene(document: object) -> bool:
    """Whether a YAML document is a planning scene, or the `world` of one."""
    return isinstance(document, dict) and ("world" in document or "collision_objects" in document)


def add_planning_scene(builder: SceneBuilder, document: dict[Any, Any], folder: Path) -> None:
    """Adds the collision objects of a planning scene.

    Boxes have full edges, cylinders and cones height and radius, prisms a height along z and a
    polygon of x and y in the middle of it. Quaternions are x, y, z, w, and what is in an object
    stands in the frame of the object's pose. An object of one part keeps its name, the parts of
    others are `id/0`, `id/1` and so on. Objects stand in the frame that they name, if the scene has
    a fixed transform for it; one other frame is that of the world.

    Raises:
        ValueError: anything that is wrong; it names the object, the rule and the value.
    """
    world = document
    if "world" in document:
        check_keys(document, builder.where, allowed=_SCENE)
        world = mapping(document["world"], f"{builder.where}: world", "collision_objects")
        _leave_out_attached(builder, document)
    check_keys(world, f"{builder.where}: world", allowed=_WORLD)
    octomap = world.get("octomap")
    if isinstance(octomap, dict) and isinstance(octomap.get("octomap"), dict):
        octomap = octomap["octomap"].get("data")  # an empty one is often there
    if octomap:
        builder.leave_out("octomap", "a tree of voxels")
    frames = _Frames(builder.where, [document] if world is document else [document, world])
    ids: set[str] = set()
    objects = sequence(
        world.get("collision_objects"), f"{builder.where}: collision_objects", "objects"
    )
    for index, item in enumerate(objects):
        fields = Fields(f"{builder.where}: collision_objects[{index}]", item, folder)
        if "id" not in fields:
            raise ValueError(
                f"{fields.where}: the key 'id' is required, got {short_repr(list(item))}"
            )
        name = fields.text("id")
        fields.where = f"{builder.where}: object {escaped(name, MAX_REPR)}"
        if name in ids:
            raise ValueError(f"{fields.where}: ids must be unique, got it twice")
        ids.add(name)
        _add_object(builder, name, fields, frames)


class _Frames:
    """The frames that objects may stand in."""

    def __init__(self, where: str, documents: list[dict[Any, Any]]) -> None:
        self._known: dict[str, np.ndarray] = {"": np.eye(4)}
        self._world: str | None = None  # a name of the world's own frame
        key = "fixed_frame_transforms"
        given = [
            item
            for document in documents
            for item in sequence(document.get(key), f"{where}: {key}", "transforms")
        ]
        parents: list[tuple[dict[Any, Any], str]] = []
        for index, item in enumerate(given):
            entry = f"{where}: fixed_frame_transforms[{index}]"
            values = mapping(item, entry, "keys")
            check_keys(values, entry, allowed=("header", "child_frame_id", "transform"))
            name = values.get("child_frame_id")
            if not isinstance(name, str):
                raise ValueError(f"{entry}.child_frame_id must be text, got {short_repr(name)}")
            self._known[name.lstrip("/")] = _matrix(
                values.get("transform", {}), f"{entry}.transform", "translation", "rotation"
            )
            parents.append((values, entry))
        for values, entry in parents:
            if (self.matrix(values, entry) != np.eye(4)).any():
                name = short_repr(values["header"]["frame_id"])
                raise ValueError(f"{entry}: header.frame_id must be that of the world, got {name}")

    def matrix(self, item: dict[Any, Any], entry: str) -> np.ndarray:
        """The frame (4, 4) of an object, or of a transform."""
        header = mapping(item.get("header") or {}, f"{entry}: header", "keys")
        name = header.get("frame_id", "")
        if not isinstance(name, str):
            raise ValueError(f"{entry}: header.frame_id must be text, got {short_repr(name)}")
        name = name.lstrip("/")
        if name in self._known:
            return self._known[name]
        if self._world not in (None, name):
            raise ValueError(
                f"{entry}: header.frame_id must be {short_repr(self._world)}, as before, or have a "
                f"transform in fixed_frame_transforms, got {short_repr(name)}"
            )
        self._world = name
        return np.eye(4)


def _add_object(builder: SceneBuilder, name: str, fields: Fields, frames: _Frames) -> None:
    item, entry = fields.values, fields.where
    check_keys(item, entry, allowed=_OBJECT)
    operation = item.get("operation", 0)
    if operation not in _ADD:
        raise ValueError(f"{entry}: operation must be 0, to add, got {short_repr(operation)}")
    world_from_object = frames.matrix(item, entry)
    if item.get("pose") is not None:
        world_from_object = world_from_object @ _matrix(item["pose"], f"{entry}: pose")
    parts: list[Obstacle] = []
    for kind, poses, read in (
        ("primitives", "primitive_poses", _primitive),
        ("meshes", "mesh_poses", _mesh),
    ):
        values = sequence(item.get(kind), f"{entry}: {kind}", "shapes")
        given = sequence(item.get(poses), f"{entry}: {poses}", "poses")
        if given and len(given) != len(values):  # without any they stand where the object does
            raise ValueError(f"{entry}: {poses} must be {len(values)}, got {len(given)}")
        for index, value in enumerate(values):
            matrix = world_from_object
            if given:
                matrix = matrix @ _matrix(given[index], f"{entry}: {poses}[{index}]")
            part = mapping(value, f"{entry}: {kind}[{index}]", "keys")
            parts.append(read(part, entry, matrix, builder.clipping))
    planes = sequence(item.get("planes"), f"{entry}: planes", "planes")
    for index in range(len(planes)):
        builder.leave_out(f"{name}: planes[{index}]", _PLANE)
    if not parts and not planes:
        raise ValueError(f"{entry}: must have primitives or meshes, got {short_repr(list(item))}")
    for index, part in enumerate(parts):
        builder.add(name if len(parts) == 1 else f"{name}/{index}", part)


def _primitive(
    values: dict[Any, Any], entry: str, matrix: np.ndarray, clipping: ClippingBudget
) -> Obstacle:
    check_keys(values, f"{entry}: a primitive", allowed=("type", "dimensions", "polygon"))
    kind = values.get("type")
    kind = _NUMBERED.get(kind, kind) if isinstance(kind, int) else kind
    if not isinstance(kind, str) or kind.lower() not in _SIZES:
        raise ValueError(
            f"{entry}: type must be one of {', '.join(_SIZES)}, got {short_repr(kind)}"
        )
    kind = kind.lower()
    sizes = plain(values.get("dimensions"))
    if (
        not isinstance(sizes, list)
        or len(sizes) != _SIZES[kind]
        or not all(is_number(size) and 0.0 < size < MAX_COORDINATE for size in sizes)
    ):
        raise ValueError(
            f"{entry}: dimensions of a {kind} must be {_SIZES[kind]} positive numbers below 1e9, "
            f"got {short_repr(sizes)}"
        )
    if kind == "prism":
        return place_mesh(_prism(values.get("polygon"), sizes[0], entry, clipping), matrix)
    shape: Shape
    if kind == "box":
        shape = Cuboid((sizes[0], sizes[1], sizes[2]))
    elif kind == "sphere":
        shape = Sphere(sizes[0])
    else:
        shape = (Cone if kind == "cone" else Cylinder)(radius=sizes[1], height=sizes[0])
    return place_shape(shape, matrix)


def _prism(value: object, height: float, entry: str, clipping: ClippingBudget) -> trimesh.Trimesh:
    """A prism over a geometry_msgs/Polygon, of whose points only x and y count."""
    where = f"{entry}: polygon"
    polygon = mapping(value, where, "keys")
    check_keys(polygon, where, allowed=("points",))
    points = sequence(polygon.get("points"), f"{where}.points", "points")
    corners = [
        _numbers(point, "xyz", f"{where}.points[{index}]") for index, point in enumerate(points)
    ]
    xy = np.array(corners).reshape(-1, 3)[:, :2]
    if not (np.abs(xy) < MAX_COORDINATE).all():
        raise ValueError(f"{where}.points must be below 1e9, got {short_repr(corners)}")
    with errors_at(where):
        return prism(xy, height, clipping)


def _mesh(values: dict[Any, Any], entry: str, matrix: np.ndarray, _: ClippingBudget) -> Obstacle:
    """A mesh of shape_msgs/Mesh."""
    check_keys(values, f"{entry}: a mesh", allowed=("triangles", "vertices"))
    triangles = sequence(values.get("triangles"), f"{entry}: triangles", "triangles")
    vertices = sequence(values.get("vertices"), f"{entry}: vertices", "vertices")
    faces = [t.get("vertex_indices") if isinstance(t, dict) else t for t in triangles]
    corners = [[v.get(k) for k in "xyz"] if isinstance(v, dict) else v for v in vertices]
    with any_error_at(entry):
        points, indices = read_mesh("of an object", (corners, faces))
    return place_mesh(trimesh.Trimesh(points, indices, process=False), matrix)


def _matrix(
    value: object, entry: str, position: str = "position", orientation: str = "orientation"
) -> np.ndarray:
    """The matrix of a pose: position x, y, z and quaternion x, y, z, w, lists or by their names."""
    values = mapping(value, entry, "keys")
    check_keys(values, entry, allowed=(position, orientation))
    x, y, z = _numbers(values.get(position, [0.0, 0.0, 0.0]), "xyz", f"{entry}.{position}")
    where = f"{entry}.{orientation}"
    qx, qy, qz, qw = _numbers(values.get(orientation, [0.0, 0.0, 0.0, 1.0]), "xyzw", where)
    norm = math.hypot(qx, qy, qz, qw)
    if not 0.0 < norm < math.inf:
        raise ValueError(f"{where} must be a quaternion that is not zero, got {short_repr(value)}")
    return matrix_from((x, y, z, qw / norm, qx / norm, qy / norm, qz / norm))


def _numbers(value: object, names: str, entry: str) -> list[float]:
    if isinstance(value, dict):
        check_keys(value, entry, allowed=tuple(names))
        value = [value.get(name, 0.0) for name in names]
    value = plain(value)
    if not isinstance(value, list) or len(value) != len(names) or not all(map(is_number, value)):
        raise ValueError(f"{entry} must be {len(names)} finite numbers, got {short_repr(value)}")
    return [float(number) for number in value]


def _leave_out_attached(builder: SceneBuilder, document: dict[Any, Any]) -> None:
    state = document.get("robot_state")
    attached = state.get("attached_collision_objects") if isinstance(state, dict) else None
    for index, item in enumerate(attached if isinstance(attached, list) else []):
        attached_object = item.get("object") if isinstance(item, dict) else None
        name = attached_object.get("id") if isinstance(attached_object, dict) else index
        builder.leave_out(f"attached object {name}", "it moves with a link of the robot")
