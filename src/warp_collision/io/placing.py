"""Transforms of files, which may scale, shear and mirror, to rigid poses of shapes and meshes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import trimesh
from trimesh.transformations import quaternion_from_matrix, quaternion_matrix

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.io.scene_builder import Obstacle
from warp_collision.messages import short_repr
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import HalfSpace, Shape, Triangles, mesh_of

# Without rounding.
Z_FROM_Y_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
_RIGID_TOLERANCE = 1e-6  # files store rotations in float32, whose rounding is below this


def require_invertible(matrix: np.ndarray, where: str) -> None:
    """Raises unless a transform (4, 4) is finite, below 1e9 and flattens nothing."""
    if not (np.abs(matrix) < MAX_COORDINATE).all() or np.linalg.matrix_rank(matrix[:3, :3]) < 3:
        raise ValueError(
            f"{where} must be finite and invertible, got {short_repr(np.asarray(matrix).tolist())}"
        )


def place_mesh(mesh: trimesh.Trimesh, world_from_mesh: np.ndarray) -> Obstacle:
    """Splits a transform (4, 4) into a pose and a rest that is baked into the vertices."""
    linear = world_from_mesh[:3, :3]
    # Polar decomposition: linear = rotation @ stretch, where stretch holds scale, shear, mirroring.
    left, _, right = np.linalg.svd(linear)
    rotation = left @ right
    rotation *= np.sign(np.linalg.det(rotation))
    stretch = rotation.T @ linear
    if np.abs(stretch - np.eye(3)).max() < _RIGID_TOLERANCE:
        stretch = np.eye(3)
    return Obstacle(transformed(mesh, stretch), pose_from(rotation, world_from_mesh[:3, 3]))


def place_shape(shape: Shape | Sensed, world_from_shape: np.ndarray) -> Obstacle:
    """An exact shape under a transform (4, 4), as an exact shape wherever it stays one.

    It does where the transform scales along the axes of the shape alone, and a round shape equally
    across them. A half space always does. A sensed obstacle must be neither scaled nor mirrored.
    Anything else, as an ellipsoid, becomes a mesh that contains it.
    """
    linear = world_from_shape[:3, :3]
    if isinstance(shape, HalfSpace):
        is_rigid = np.abs(linear.T @ linear - np.eye(3)).max() < _RIGID_TOLERANCE
        if not is_rigid or np.linalg.det(linear) < 0.0:
            shape, linear = shape.transformed(linear), np.eye(3)
        return Obstacle(shape, pose_from(linear, world_from_shape[:3, 3]))
    scale = np.linalg.norm(linear, axis=0)
    axes = linear / scale
    if np.abs(axes.T @ axes - np.eye(3)).max() < _RIGID_TOLERANCE:
        unchanged = np.abs(scale - 1.0).max() < _RIGID_TOLERANCE
        if isinstance(shape, Sensed):
            resized = shape if unchanged and np.linalg.det(axes) > 0.0 else None
        else:
            resized = shape if unchanged else shape.stretched(scale, _RIGID_TOLERANCE)
        if resized is not None:
            axes = axes * (np.sign(np.linalg.det(axes)), 1.0, 1.0)  # the shapes are symmetric
            return Obstacle(resized, pose_from(axes, world_from_shape[:3, 3]))
    return place_mesh(mesh_of(shape), world_from_shape)


def place_plane(
    world_from_plane: np.ndarray, normal: tuple[float, float, float] = (0.0, 0.0, 1.0)
) -> Obstacle:
    """All below a plane through the origin of a frame (4, 4), which may be scaled.

    Its normal is turned, not its pose: a plane across an axis of the world stays exactly so.
    """
    below = HalfSpace(normal).transformed(world_from_plane[:3, :3])
    return Obstacle(below, pose_from(np.eye(3), world_from_plane[:3, 3]))


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


def joined(meshes: Sequence[trimesh.Trimesh | Triangles]) -> trimesh.Trimesh:
    """One mesh of several: one name is one obstacle, enabled and moved as a whole."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    return trimesh.Trimesh(
        vertices=np.concatenate([mesh.vertices for mesh in meshes]),
        faces=np.concatenate(
            [mesh.faces + start for mesh, start in zip(meshes, starts, strict=False)]
        ),
        process=False,
    )


def pose_from(rotation: np.ndarray, position: np.ndarray) -> tuple[float, ...]:
    """The pose x, y, z, qw, qx, qy, qz of a rotation (3, 3) and a position (3,)."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation
    return tuple(float(v) for v in (*position, *quaternion_from_matrix(matrix)))


def matrix_from(pose: Sequence[float] | np.ndarray) -> np.ndarray:
    """The matrix (4, 4) of a pose x, y, z, qw, qx, qy, qz."""
    matrix = quaternion_matrix(pose[3:])
    matrix[:3, 3] = pose[:3]
    return matrix


def frame_along(direction: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """A rigid matrix (4, 4) whose z axis has a direction (3,), that of z itself if it is zero."""
    length = np.linalg.norm(direction)
    x, y, z = direction / length if length > 0.0 else (0.0, 0.0, 1.0)
    # Half the turn from z: 1 + z, without cancellation for directions near -z.
    w = 1.0 + z if z > 0.0 else (x * x + y * y) / (1.0 - z)
    turn = (w, -y, x, 0.0) if max(w, abs(x), abs(y)) > 0.0 else (0.0, 1.0, 0.0, 0.0)
    return matrix_from((*origin, *turn))
