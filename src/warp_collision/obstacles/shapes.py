"""Shapes whose distance has a formula, and the meshes that contain them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, get_args

import numpy as np

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.kernels.mesh_record import FAR
from warp_collision.kernels.mesh_record import Shape as ShapeKind
from warp_collision.validate import is_trimesh, on_host

if TYPE_CHECKING:
    import trimesh

SIDES = 128
CAPSULE_SIDES = 64
_RINGS = 16  # of each cap of a capsule
_SUBDIVISIONS = 4  # of an icosahedron: 5,120 triangles
_NO_ROTATION = np.array([1.0, 0.0, 0.0, 0.0])
_ROUNDING = 1e-14  # of a cosine: an angle of 1e-7
_UNIT = 1e-12  # of the length of a unit vector
_SHORTEST = 1e-30  # of a normal
# Of the parts of a half space that meshes have [m].
_DRAWN_SIDE, _DRAWN_DEPTH, _MESH_SIDE = 20.0, 1.0, 2000.0
# The cube between -1 and 1: corner 4 x + 2 y + z is on the upper sides of the axes that count.
_CORNERS = 2.0 * np.indices((2, 2, 2)).reshape(3, 8).T - 1.0
SIDES_OF_CUBE = np.array(
    [
        (0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5),  # x
        (0, 4, 5), (0, 5, 1), (2, 3, 7), (2, 7, 6),  # y
        (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3),  # z
    ]
)  # fmt: skip


class Triangles(NamedTuple):
    """A closed mesh whose faces are oriented outward."""

    vertices: np.ndarray  # (n, 3) float64 [m]
    faces: np.ndarray  # (n, 3) int64


class HasTriangles(Protocol):
    """A shape, exact or sensed."""

    def tessellate(self) -> Triangles:
        """A mesh that contains it."""
        ...


class _Symmetric:
    """What shapes share that are round about the z axis, unless they say otherwise.

    Attributes:
        kernel_center: (3,) point that the formula of the kernels is about [m].
    """

    kernel_center: Any = (0.0, 0.0, 0.0)

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) half edges of the bounding box [m]."""
        raise NotImplementedError

    def box(self) -> Triangles:
        """The bounding box."""
        return box_around(self.half_extents * np.array([[-1.0], [1.0]]))

    @property
    def kernel_size(self) -> np.ndarray:
        """(3,) size as the kernels' `MeshRecord` has it [m]."""
        return self.half_extents

    def without(self, rotation: np.ndarray) -> Any:
        """The shape that looks the same unrotated; None if there is none.

        Args:
            rotation: (3, 3) by which the shape is rotated.
        """
        return self if 1.0 - abs(rotation[2, 2]) < _ROUNDING else None


@dataclass(frozen=True)
class Cuboid(_Symmetric):
    """A box around the origin of its frame, with the axes of the frame.

    Attributes:
        dims: full lengths of its edges along x, y and z [m].

    Example:
        >>> from warp_collision import Cuboid, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("table", Cuboid((1.2, 0.8, 0.04)), pose=(0.6, 0.0, 0.4, 1, 0, 0, 0))
        0
    """

    kind: ClassVar[ShapeKind] = ShapeKind.CUBOID
    dims: tuple[float, float, float]

    def __new__(cls, *dims: Any, **named: Any) -> Cuboid:
        """Requires the edges as one argument; without, the error would count those of Python."""
        if len(dims) > 1:
            raise TypeError(
                f"dims must be one sequence of three numbers, as in Cuboid((1.0, 1.0, 0.5)), got "
                f"{len(dims)} arguments"
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        values = _numbers(self.dims)
        if values is None or values.shape != (3,):
            raise TypeError(f"dims must be three numbers, got {self.dims!r}")
        if not ((values > 0.0) & (values < MAX_COORDINATE)).all():
            for value in values:  # says which
                _require_length("dims", value)
        object.__setattr__(self, "dims", tuple(values.tolist()))

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) half edges of the bounding box [m]."""
        return 0.5 * np.array(self.dims)

    def without(self, rotation: np.ndarray) -> Cuboid | None:
        """The cuboid in a frame without the rotation, if that turns edges onto axes."""
        if (1.0 - np.abs(rotation).max(axis=1) >= _ROUNDING).any():
            return None
        return Cuboid(tuple(np.array(self.dims)[np.abs(rotation).argmax(axis=1)].tolist()))

    def stretched(self, scale: np.ndarray, tolerance: float) -> Shape | None:
        """The shape scaled along its axes (3,), None if it is not of its kind any more."""
        return Cuboid(tuple((np.array(self.dims) * scale).tolist()))

    def tessellate(self) -> Triangles:
        """Twelve triangles, exactly the shape."""
        return Triangles(self.half_extents * _CORNERS, SIDES_OF_CUBE.copy())


@dataclass(frozen=True)
class Sphere(_Symmetric):
    """A ball around the origin of its frame, as an obstacle.

    Attributes:
        radius: [m].

    Example:
        >>> from warp_collision import MeshWorld, Sphere
        >>> world = MeshWorld()
        >>> world.add("ball", Sphere(0.1))
        0
    """

    kind: ClassVar[ShapeKind] = ShapeKind.SPHERE
    radius: float

    def __post_init__(self) -> None:
        _require_lengths(self)

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) half edges of the bounding box [m]."""
        return np.full(3, self.radius)

    @property
    def kernel_size(self) -> np.ndarray:
        """(3,) what kernels read: a capsule without a length [m]."""
        return np.array([self.radius, self.radius, 0.0])

    def without(self, rotation: np.ndarray) -> Sphere:
        """The sphere itself: a rotation does not change it."""
        return self

    def stretched(self, scale: np.ndarray, tolerance: float) -> Shape | None:
        """As `Cuboid.stretched`; scales are equal within a relative tolerance."""
        across, is_even = _even_scale(scale, tolerance)
        return Sphere(self.radius * across) if is_even else None

    def tessellate(self) -> Triangles:
        """A mesh around the shape, which sticks out by at most 0.12 % of the radius."""
        return _around_sphere(self.radius)


@dataclass(frozen=True)
class Capsule(_Symmetric):
    """All points within a radius of a segment of the z axis, whose middle is the origin.

    Attributes:
        radius: [m].
        length: of the segment, without the caps [m]; 0 is a sphere.

    Example:
        >>> from warp_collision import Capsule, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("forearm", Capsule(radius=0.05, length=0.3))
        0
    """

    kind: ClassVar[ShapeKind] = ShapeKind.CAPSULE
    radius: float
    length: float

    def __post_init__(self) -> None:
        _require_lengths(self, may_be_zero=("length",))

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) half edges of the bounding box [m]."""
        return np.array([self.radius, self.radius, 0.5 * self.length + self.radius])

    @property
    def kernel_size(self) -> np.ndarray:
        """(3,) what kernels read: radius, radius, half of the segment [m]."""
        return np.array([self.radius, self.radius, 0.5 * self.length])

    def stretched(self, scale: np.ndarray, tolerance: float) -> Shape | None:
        """As `Sphere.stretched`."""
        across, is_even = _even_scale(scale, tolerance)
        along = float(scale[2])
        return Capsule(self.radius * across, self.length * along) if is_even else None

    def tessellate(self) -> Triangles:
        """A mesh around the shape, which sticks out by at most 0.25 % of the radius."""
        upper = cap_outline(self.radius) + np.array([0.0, 0.5 * self.length])
        return revolved(np.concatenate((upper[::-1] * (1.0, -1.0), upper)), CAPSULE_SIDES)


@dataclass(frozen=True)
class _Round(_Symmetric):
    """A shape around the z axis, of a radius and a height, whose middle is the origin."""

    radius: float
    height: float

    def __post_init__(self) -> None:
        _require_lengths(self)

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) half edges of the bounding box [m]."""
        return np.array([self.radius, self.radius, 0.5 * self.height])

    def stretched(self, scale: np.ndarray, tolerance: float) -> Self | None:
        """As `Sphere.stretched`, but that the scale along its axis may be another."""
        across, along = float(scale[:2].mean()), float(scale[2])
        if np.ptp(scale[:2]) > tolerance * across:
            return None
        return replace(self, radius=self.radius * across, height=self.height * along)


@dataclass(frozen=True)
class Cylinder(_Round):
    """A cylinder around the z axis, whose middle is the origin.

    Attributes:
        radius: [m].
        height: [m].

    Example:
        >>> from warp_collision import Cylinder, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("can", Cylinder(radius=0.03, height=0.14))
        0
    """

    kind: ClassVar[ShapeKind] = ShapeKind.CYLINDER

    def tessellate(self) -> Triangles:
        """A mesh around the shape, which sticks out by at most 0.031 % of the radius."""
        radius, half = self.radius, 0.5 * self.height
        outline = np.array([[0.0, -half], [radius, -half], [radius, half], [0.0, half]])
        return revolved(outline, SIDES)


@dataclass(frozen=True)
class Cone(_Round):
    """A cone around the z axis with its tip up, whose middle is the origin.

    Attributes:
        radius: of its base, half a height below the origin [m].
        height: [m].

    Example:
        >>> from warp_collision import Cone, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("pylon", Cone(radius=0.15, height=0.5))
        0
    """

    kind: ClassVar[ShapeKind] = ShapeKind.CONE

    @property
    def kernel_size(self) -> np.ndarray:
        """(3,) what kernels read: radius, length of the side, half height [m]."""
        return np.array([self.radius, math.hypot(self.radius, self.height), 0.5 * self.height])

    def without(self, rotation: np.ndarray) -> Cone | None:
        """The cone itself, if its tip is still up."""
        return self if 1.0 - rotation[2, 2] < _ROUNDING else None

    def tessellate(self) -> Triangles:
        """A mesh around the shape, which sticks out by at most 0.031 % of the radius."""
        half = 0.5 * self.height
        return revolved(np.array([[0.0, -half], [self.radius, -half], [0.0, half]]), SIDES)


@dataclass(frozen=True)
class HalfSpace(_Symmetric):
    """All points below a plane: a floor or a wall without end.

    Solid are the points p with ``normal @ p <= offset``. As a mesh, for pictures and for programs
    that know triangles only, it is a slab of 20 x 20 x 1 m below the plane.

    Attributes:
        normal: of the plane, out of the solid; it may have any length but 0, and is made a unit
            vector.
        offset: of the plane from the origin, along the normal [m].

    Example:
        >>> from warp_collision import HalfSpace, MeshWorld
        >>> world = MeshWorld()
        >>> world.add("floor", HalfSpace((0.0, 0.0, 1.0)))
        0
        >>> world.add("wall", HalfSpace((-1.0, 0.0, 0.0), offset=-2.0))  # all beyond x = 2 m
        1
    """

    kind: ClassVar[ShapeKind] = ShapeKind.HALF_SPACE
    normal: tuple[float, float, float]
    offset: float = 0.0

    def __post_init__(self) -> None:
        normal, offset = _numbers(self.normal), _numbers(self.offset)
        if normal is None or normal.shape != (3,):
            raise TypeError(f"normal must be three numbers, got {self.normal!r}")
        if offset is None or offset.size != 1:
            raise TypeError(f"offset must be a number, got {self.offset!r}")
        length = float(np.linalg.norm(normal))
        if not _SHORTEST < length < MAX_COORDINATE:
            raise ValueError(f"normal must be finite and not 0, got {tuple(normal.tolist())}")
        if abs(length - 1.0) > _UNIT:  # else it stays what it was, as files have it
            normal /= length
        number = float(offset.reshape(()))
        if not abs(number) < MAX_COORDINATE:
            raise ValueError(f"offset must be finite and below {MAX_COORDINATE:g}, got {number}")
        object.__setattr__(self, "normal", tuple(normal.tolist()))
        object.__setattr__(self, "offset", number)

    @property
    def half_extents(self) -> np.ndarray:
        """(3,) half edges of a box that stands for one without end [m]."""
        return np.full(3, float(FAR))

    @property
    def kernel_center(self) -> np.ndarray:
        """(3,) the point of the plane that is nearest to the origin [m]."""
        return self.offset * np.array(self.normal)

    @property
    def kernel_size(self) -> np.ndarray:
        """(3,) what kernels read: the normal."""
        return np.array(self.normal)

    def without(self, rotation: np.ndarray) -> HalfSpace:
        """The half space in a frame without the rotation: its normal is rotated."""
        return self.transformed(rotation)

    def stretched(self, scale: np.ndarray, tolerance: float) -> HalfSpace:
        """As `Cuboid.stretched`."""
        return self.transformed(np.diag(scale))

    def transformed(self, linear: np.ndarray) -> HalfSpace:
        """The half space that an invertible map (3, 3) makes of it, which may mirror and shear."""
        normal = np.linalg.solve(linear.T, np.array(self.normal))
        length = float(np.linalg.norm(normal))
        normal /= length
        normal[np.abs(normal) < _ROUNDING] = 0.0  # planes across an axis stay so
        return HalfSpace(tuple(normal.tolist()), self.offset / length)

    def box(self) -> Triangles:
        """A cube below the plane, for kernels that know triangles only."""
        return self._slab(_MESH_SIDE, _MESH_SIDE)

    def tessellate(self) -> Triangles:
        """A slab of 20 x 20 x 1 m below the plane, as an example of it."""
        return self._slab(_DRAWN_SIDE, _DRAWN_DEPTH)

    def _slab(self, side: float, depth: float) -> Triangles:
        """A part of it around the point of its plane that is nearest to the origin."""
        normal = np.array(self.normal)
        first = np.cross(np.eye(3)[np.abs(normal).argmin()], normal)
        first /= np.linalg.norm(first)
        axes = np.stack((first, np.cross(normal, first), normal))
        slab = box_around(
            np.array([[-0.5 * side, -0.5 * side, -depth], [0.5 * side, 0.5 * side, 0.0]])
        )
        return Triangles(slab.vertices @ axes + self.kernel_center, slab.faces)


Shape = Cuboid | Sphere | Capsule | Cylinder | HalfSpace | Cone


@dataclass(frozen=True)
class PlacedShape:
    """A shape with its pose in the frame of a mesh.

    Attributes:
        shape: the shape.
        center: (3,) of its own frame in that of the mesh [m].
        rotation: (4,) unit quaternion w, x, y, z of its frame in that of the mesh.
    """

    shape: Shape
    center: np.ndarray = field(default_factory=partial(np.zeros, 3))
    rotation: np.ndarray = field(default_factory=_NO_ROTATION.copy)

    @property
    def matrix(self) -> np.ndarray:
        """(4, 4) transform from the frame of the shape to that of the mesh."""
        matrix = np.eye(4)
        matrix[:3, :3] = rotation_matrix(self.rotation)
        matrix[:3, 3] = self.center
        return matrix

    @property
    def is_axis_aligned(self) -> bool:
        """Whether the axes of the shape are those of the mesh."""
        return bool((self.rotation == _NO_ROTATION).all())

    def scaled(self, factor: float) -> PlacedShape:
        """The shape of a mesh whose unit is that many metres."""
        if factor == 1.0:
            return self
        make: Any = type(self.shape)
        values = (factor * np.array(getattr(self.shape, part.name)) for part in fields(self.shape))
        return PlacedShape(make(*values), factor * self.center, self.rotation)

    def box(self) -> Triangles:
        """The box around the shape along its own axes, in the frame of the mesh."""
        return self._moved(self.shape.box())

    def tessellate(self) -> Triangles:
        """The mesh that contains the shape, in the frame of the mesh."""
        return self._moved(self.shape.tessellate())

    def _moved(self, mesh: Triangles) -> Triangles:
        return Triangles(mesh.vertices @ self.matrix[:3, :3].T + self.center, mesh.faces)

    def axis_aligned(self) -> PlacedShape:
        """The same without a rotation, if axes lie along those of the mesh: queries are faster."""
        if self.is_axis_aligned:
            return self
        shape = self.shape.without(self.matrix[:3, :3])
        return self if shape is None else PlacedShape(shape, self.center)


# By the names of their kinds, as in files: "cuboid", "sphere", "half_space" and so on.
SHAPES: dict[str, Any] = {shape.kind.name.lower(): shape for shape in get_args(Shape)}


def box_around(bounds: np.ndarray) -> Triangles:
    """The box between a lower and an upper corner (2, 3)."""
    middle, half = bounds.mean(axis=0), 0.5 * (bounds[1] - bounds[0])
    return Triangles(middle + half * _CORNERS, SIDES_OF_CUBE.copy())


def mesh_of(body: trimesh.Trimesh | HasTriangles) -> trimesh.Trimesh:
    """A mesh itself, or the mesh that contains a shape."""
    if is_trimesh(body):
        return body
    import trimesh

    return trimesh.Trimesh(*body.tessellate(), process=False)


def rotation_matrix(quaternion: np.ndarray) -> np.ndarray:
    """The matrix (3, 3) of a unit quaternion w, x, y, z."""
    w, x, y, z = quaternion
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2.0 * (w * skew + skew @ skew)


def cap_outline(radius: float) -> np.ndarray:
    """An outline (n, 2) around a half sphere, from above its rim to its pole, as in `revolved`."""
    # Tangents of a quarter circle meet at these angles; the first is the side of a capsule.
    half_step = 0.25 * math.pi / _RINGS
    angles = half_step * np.arange(1, 2 * _RINGS, 2)
    corner = radius / math.cos(half_step)
    across = np.append(corner * np.cos(angles), 0.0)
    return np.column_stack((across, np.append(corner * np.sin(angles), radius)))


def revolved(outline: np.ndarray, sides: int) -> Triangles:
    """The tessellated surface of revolution around the z axis that contains an outline's.

    Args:
        outline: (n, 2) distance from the axis and height, from one point of the axis up to another.
        sides: of each ring.
    """
    angles = 2.0 * math.pi / sides * np.arange(sides)
    circle = np.column_stack((np.cos(angles), np.sin(angles))) / math.cos(math.pi / sides)
    rings = np.empty((len(outline) - 2, sides, 3))
    rings[..., :2] = outline[1:-1, None, :1] * circle
    rings[..., 2] = outline[1:-1, None, 1]
    poles = np.array([[0.0, 0.0, outline[0, 1]], [0.0, 0.0, outline[-1, 1]]])
    index = np.arange(rings.shape[0] * sides).reshape(-1, sides)
    following = np.roll(index, -1, axis=1)
    low, high = (len(rings) * sides + pole for pole in np.indices((2, sides))[0])
    faces = [
        np.stack((low, following[0], index[0])),
        np.stack((high, index[-1], following[-1])),
        np.stack((index[:-1], following[:-1], following[1:])).reshape(3, -1),
        np.stack((index[:-1], following[1:], index[1:])).reshape(3, -1),
    ]
    vertices = np.concatenate((rings.reshape(-1, 3), poles))
    return Triangles(vertices, np.concatenate(faces, axis=1).T.astype(np.int64))


def _around_sphere(radius: float) -> Triangles:
    vertices, faces = _icosahedron()
    for _ in range(_SUBDIVISIONS):
        vertices, faces = _subdivided(vertices, faces)
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    normals = np.cross(b - a, c - a)
    heights = np.einsum("ij,ij->i", a, normals) / np.linalg.norm(normals, axis=1)
    return Triangles(vertices * (radius / heights.min()), faces)  # that face touches the sphere


def _icosahedron() -> Triangles:
    """With its corners on the unit sphere."""
    # Corners of three golden rectangles; faces are those whose corners are nearest to each other.
    golden = 0.5 * (1.0 + math.sqrt(5.0))
    signs = np.array([(1.0, golden), (1.0, -golden), (-1.0, golden), (-1.0, -golden)])
    rectangle = np.column_stack((np.zeros(4), signs))
    vertices = np.concatenate([np.roll(rectangle, axis, axis=1) for axis in range(3)])
    vertices /= math.hypot(1.0, golden)
    near = vertices @ vertices.T > 0.4
    triples = [t for t in itertools.combinations(range(12), 3) if near[np.ix_(t, t)].all()]
    faces = np.array(triples, np.int64)
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    inward = np.einsum("ij,ij->i", a, np.cross(b - a, c - a)) < 0.0
    faces[inward] = faces[inward, ::-1]
    return Triangles(vertices, faces)


def _subdivided(vertices: np.ndarray, faces: np.ndarray) -> Triangles:
    """Four triangles for each, whose new corners are on the unit sphere."""
    edges = np.sort(np.stack((faces, np.roll(faces, -1, axis=1)), axis=-1), axis=-1)
    unique, index = np.unique(edges.reshape(-1, 2), axis=0, return_inverse=True)
    middles = vertices[unique].mean(axis=1)
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    a, b, c = faces.T
    ab, bc, ca = len(vertices) + index.reshape(-1, 3).T
    parts = ((a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca))
    return Triangles(
        np.concatenate((vertices, middles)),
        np.concatenate([np.column_stack(part) for part in parts]),
    )


def _even_scale(scale: np.ndarray, tolerance: float) -> tuple[float, bool]:
    """The scale across the z axis, and whether all three (3,) are the same."""
    across, along = float(scale[:2].mean()), float(scale[2])
    is_round = np.ptp(scale[:2]) <= tolerance * across
    return across, bool(is_round and abs(across - along) <= tolerance * along)


def _numbers(value: Any) -> np.ndarray | None:
    """Real numbers as float64, None if something is none."""
    try:
        array = np.asarray(on_host(value))
    except ValueError:  # ragged
        return None
    return array.astype(np.float64) if array.dtype.kind in "fiu" else None


def _require_lengths(shape: Any, may_be_zero: tuple[str, ...] = ()) -> None:
    """Makes all fields of a shape floats that are lengths."""
    for name in (part.name for part in fields(shape)):
        given = getattr(shape, name)
        value = _numbers(given)
        if value is None or value.size != 1:
            raise TypeError(f"{name} must be a number, got {given!r}")
        number = float(value.reshape(()))
        _require_length(name, number, name in may_be_zero)
        object.__setattr__(shape, name, number)


def _require_length(name: str, value: float, may_be_zero: bool = False) -> None:
    if not 0.0 < value < MAX_COORDINATE and not (may_be_zero and value == 0.0):
        also = " or 0" if may_be_zero else ""
        raise ValueError(f"{name} must be positive and below {MAX_COORDINATE:g}{also}, got {value}")
