"""Bodies somewhere in a world, and the signed distance to all of them in float64."""

from collections.abc import Sequence

import numpy as np
import torch
import trimesh

import exact_shapes
from reference import Array, Body, Obstacle
from warp_collision import MeshWorld, signed_distance


def pose_of(frame: Array) -> Array:
    """The pose (7,) of a rigid transform (4, 4)."""
    assert np.linalg.det(frame[:3, :3]) > 0.0
    return np.concatenate([frame[:3, 3], trimesh.transformations.quaternion_from_matrix(frame)])


def exact(kind: str, *sizes: float, at: Array | None = None, padding: float = 0.0) -> Body:
    """A shape of `exact_shapes` by its name, in a frame (4, 4), which may be mirrored."""
    frame = np.eye(4) if at is None else at
    if np.linalg.det(frame[:3, :3]) < 0.0:  # every shape is its own mirror image
        frame = frame @ np.diag([1.0, 1.0, -1.0, 1.0])
    return Body(getattr(exact_shapes, kind)(*sizes), pose_of(frame), padding)


def solid(mesh: trimesh.Trimesh, at: Array | None = None) -> Obstacle:
    """A mesh under any affine transform: it is moved into the world first."""
    transform = np.eye(4) if at is None else at
    vertices = trimesh.transform_points(mesh.vertices, transform)
    faces = np.asarray(mesh.faces)
    return Obstacle(vertices, faces[:, ::-1] if np.linalg.det(transform[:3, :3]) < 0.0 else faces)


def random_frame(rng: np.random.Generator, reach: float = 1.0) -> Array:
    """A rigid transform (4, 4) of any rotation."""
    frame = trimesh.transformations.random_rotation_matrix(rng.random(3))
    frame[:3, 3] = rng.uniform(-reach, reach, 3)
    return frame


def assert_distances(
    world: MeshWorld,
    bodies: Sequence[Body | Obstacle],
    rng: np.random.Generator,
    env: int = 0,
    atol: float = 3e-6,
) -> None:
    """Compares distances at random points around the bodies, most of them near one."""
    centers = np.array([body.pose[:3] for body in bodies])
    points = centers[rng.integers(0, len(bodies), 800)] + rng.normal(0.0, 0.5, (800, 3))
    points = np.concatenate((points, rng.uniform(-3.0, 3.0, (400, 3)))).astype(np.float32)
    truth = np.min([body.distance(points.astype(np.float64)) for body in bodies], axis=0)
    env_index = torch.tensor([env], dtype=torch.int32)
    found = signed_distance(torch.from_numpy(points)[None], world, env_index=env_index).distance
    np.testing.assert_allclose(found[0].numpy(), truth, rtol=0, atol=atol)
