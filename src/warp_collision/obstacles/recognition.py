"""Recognition of exact shapes: those given as such, and meshes that are cuboids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np

from warp_collision.formats.files import metres_per_unit
from warp_collision.obstacles import topology
from warp_collision.obstacles.geometry import (
    Geometry,
    MeshLike,
    SignMethod,
    content_key,
    prepare,
    read_mesh,
)
from warp_collision.obstacles.mesh_report import MeshReport
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import (
    SIDES_OF_CUBE,
    Capsule,
    Cuboid,
    Cylinder,
    PlacedShape,
    Shape,
    Sphere,
)
from warp_collision.validate import is_trimesh

# Vertices off the side of a cuboid by less are rounded, in units of the largest coordinate: four
# steps of float32, in which files store them.
_ROUNDING = 4.0 * 2.0**-23
_RIGID = 1e-9
# Largest faces of a mesh that tell most other meshes from cuboids.
_LOOKED_AT = 32


class Source(NamedTuple):
    """An obstacle that has been read, and may be in the cache already.

    Attributes:
        key: equal for equal geometry and options.
        examine: makes its geometry, which is expensive.
    """

    key: str
    examine: Callable[[], Geometry]


class _Cuboid(NamedTuple):
    """A cuboid that a mesh was recognised as.

    Attributes:
        placed: the cuboid.
        inward: (n,) which faces are oriented inward.
    """

    placed: PlacedShape
    inward: np.ndarray


def read_obstacle(name: str, given: MeshLike, *, repair: bool, sign: SignMethod) -> Source:
    """Reads what `MeshWorld.add` takes; errors are those of `read_mesh` and `prepare`."""
    if isinstance(given, (*get_args(Shape), Sensed)) and sign != "auto":
        raise ValueError(f"sign of {name!r} must be 'auto' for an exact shape, got {sign!r}")
    if isinstance(given, Sensed):
        report = _exact_report(given, f"given as {type(given).__name__}")
        return Source(given.key, lambda: Geometry.of_shape(report, sensed=given))
    placed = shape_of(given) if sign == "auto" else None
    if placed is not None:
        if placed.shape is not given and is_trimesh(given):
            placed = placed.scaled(metres_per_unit(given.units, f"mesh {name!r}"))
        reason = f"given as {type(given).__name__}"
        key = content_key(placed.center, placed.rotation, placed.shape, reason)
        report = _exact_report(placed.shape, reason)
        return Source(key, partial(Geometry.of_shape, report, placed))
    vertices, faces = read_mesh(name, given)

    def examine() -> Geometry:
        cuboid = find_cuboid(vertices, faces) if repair and sign == "auto" else None
        if cuboid is None:
            return prepare(name, vertices, faces, repair=repair, sign=sign)
        return _cuboid_geometry(cuboid, len(faces))

    return Source(content_key(vertices, faces, repair, sign), examine)


def shape_of(given: Any) -> PlacedShape | None:
    """The exact shape of an argument: one of ours, or a primitive of trimesh; None for others.

    A primitive whose transform is not rigid is a mesh. Units are those of the primitive.
    """
    if isinstance(given, get_args(Shape)):
        return PlacedShape(given)
    if not is_trimesh(given):
        return None
    from trimesh import primitives

    read: dict[type, Callable[[Any], Shape]] = {
        primitives.Box: lambda box: Cuboid(box.extents),
        primitives.Sphere: lambda sphere: Sphere(sphere.radius),
        primitives.Cylinder: lambda cylinder: Cylinder(cylinder.radius, cylinder.height),
        primitives.Capsule: lambda capsule: Capsule(capsule.radius, capsule.height),
    }
    primitive: Any = given
    kind = next((kind for kind in read if isinstance(primitive, kind)), None)
    if kind is None:
        return None
    values = primitive.primitive
    shape = read[kind](values)
    transform = np.asarray(values.transform, dtype=np.float64)
    axes = transform[:3, :3]
    if np.abs(axes @ axes.T - np.eye(3)).max() > _RIGID:
        return None
    return _placed(shape, transform[:3, 3], axes)


def find_cuboid(vertices: np.ndarray, faces: np.ndarray) -> _Cuboid | None:
    """The cuboid that a mesh is, if its faces lie in the sides of one and cover each side once.

    Args:
        vertices: (n, 3) float64 [m].
        faces: (n, 3).
    """
    corners = vertices[faces]
    normals = topology.area_vectors(corners)
    areas = topology.lengths(normals)
    if len(faces) < 12 or areas.min() <= 0.0:
        return None
    if not _look_along_axes(normals, areas):
        return None
    normals = normals / areas[:, None]
    for axes in (np.eye(3), _axes_of(normals, areas)):
        cuboid = None if axes is None else _cuboid_along(axes, corners, normals, areas)
        if cuboid is not None:
            merged = topology.merge_equal_vertices(vertices.astype(np.float32), faces)[1]
            outward = np.where(cuboid.inward[:, None], merged[:, ::-1], merged)
            # Without a border, faces oriented outward cover all sides equally often.
            return cuboid if topology.find_edges(outward).are_closed else None
    return None


def _look_along_axes(normals: np.ndarray, areas: np.ndarray) -> bool:
    """Whether the largest faces are about parallel or perpendicular to each other.

    Other meshes need not be looked at closely. Small faces may look anywhere, by rounding.
    """
    largest = np.argpartition(areas, -min(_LOOKED_AT, len(areas)))[-_LOOKED_AT:]
    directions = normals[largest] / areas[largest, None]
    along = np.abs(directions @ directions.T)
    return bool(((along < 0.2) | (along > 0.8)).all())


def _axes_of(normals: np.ndarray, areas: np.ndarray) -> np.ndarray | None:
    """Axes (rows) of a cuboid from its two largest faces that are not parallel, or None."""
    first = normals[areas.argmax()]
    along = normals @ first
    if (np.abs(np.abs(along) - np.round(np.abs(along))) > 1e-2).any():
        return None
    across = np.abs(along) < 0.5
    if not across.any():
        return None
    second = normals[np.where(across, areas, 0.0).argmax()]
    second = second - (second @ first) * first
    second /= np.linalg.norm(second)
    return np.stack((first, second, np.cross(first, second)))


def _cuboid_along(
    axes: np.ndarray, corners: np.ndarray, normals: np.ndarray, areas: np.ndarray
) -> _Cuboid | None:
    """The bounding box along some axes, if all faces lie in its sides and have its area."""
    local = corners @ axes.T
    lower, upper = local.min(axis=(0, 1)), local.max(axis=(0, 1))
    extents = upper - lower
    tolerance = _ROUNDING * float(np.abs(corners).max())
    if extents.min() <= 8.0 * tolerance:
        return None
    directions = normals @ axes.T
    axis = np.abs(directions).argmax(axis=1)
    level = np.take_along_axis(local, axis[:, None, None], axis=2)[:, :, 0]
    on_lower = (np.abs(level - lower[axis][:, None]) <= tolerance).all(axis=1)
    on_upper = (np.abs(level - upper[axis][:, None]) <= tolerance).all(axis=1)
    if not (on_lower | on_upper).all():
        return None
    x, y, z = extents
    # Of a whole number of covers only one has an area near that of the cuboid.
    if abs(0.5 * areas.sum() / (2.0 * (x * y + y * z + z * x)) - 1.0) > 0.1:
        return None
    outward = np.take_along_axis(directions, axis[:, None], axis=1)[:, 0]
    shape = Cuboid((float(x), float(y), float(z)))
    return _Cuboid(
        _placed(shape, 0.5 * (lower + upper) @ axes, axes.T), (outward > 0.0) != on_upper
    )


def _placed(shape: Shape, center: np.ndarray, axes: np.ndarray) -> PlacedShape:
    """A shape with its axes in columns; a mirror image is the same, as all shapes are symmetric."""
    from trimesh.transformations import quaternion_from_matrix

    matrix = np.eye(4)
    matrix[:3, :3] = axes * (1.0, 1.0, np.sign(np.linalg.det(axes)))
    return PlacedShape(shape, np.array(center), quaternion_from_matrix(matrix)).axis_aligned()


def _exact_report(shape: Shape | Sensed, reason: str) -> MeshReport:
    """The report of a shape that queries see, and no triangles."""
    return MeshReport(
        n_faces=len(SIDES_OF_CUBE),  # of the box around it
        n_components=1,
        closed=True,
        consistent=True,
        sign_method="exact",
        reason=reason,
        shape=shape,
    )


def _cuboid_geometry(cuboid: _Cuboid, n_faces: int) -> Geometry:
    """The cuboid that a mesh was recognised as."""
    report = _exact_report(cuboid.placed.shape, "all faces lie in the sides of one cuboid")
    report.n_faces = n_faces  # as given
    if cuboid.inward.all():
        report.inverted_components = 1
        report.repairs.append("oriented 1 components outward")
    elif cuboid.inward.any():
        report.consistent = False
        report.repairs.append("flipped faces to agree with their neighbours")
    return Geometry.of_shape(report, cuboid.placed)
