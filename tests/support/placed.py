"""Bodies somewhere in a world, and the signed distance to all of them in float64."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import trimesh
from numpy.typing import NDArray

import exact_shapes
import reference
from warp_collision import MeshWorld, signed_distance

Array = NDArray[np.float64]


class Body(NamedTuple):
    """A body by its signed distance in its own frame, and that frame (4, 4) in the world."""

    distance: Callable[[Array], Array]
    world_from_body: Array
    padding: float = 0.0


def exact(kind: str, *sizes: float, at: Array | None = None, padding: float = 0.0) -> Body:
    """A shape of `exact_shapes` by its name."""
    shape = getattr(exact_shapes, kind)(*sizes)
    return Body(shape.distance, np.eye(4) if at is None else at, padding)


def solid(mesh: trimesh.Trimesh, at: Array | None = None) -> Body:
    """A mesh under any affine transform: it is moved into the world first."""
    transform = np.eye(4) if at is None else at
    vertices = trimesh.transform_points(mesh.vertices, transform)
    faces = np.asarray(mesh.faces)
    if np.linalg.det(transform[:3, :3]) < 0.0:
        faces = faces[:, ::-1]
    return Body(
        lambda points: reference.mesh_signed_distance(points, vertices, faces).distance, np.eye(4)
    )


def random_frame(rng: np.random.Generator, reach: float = 1.0) -> Array:
    """A rigid transform (4, 4) of any rotation."""
    frame = trimesh.transformations.random_rotation_matrix(rng.random(3))
    frame[:3, 3] = rng.uniform(-reach, reach, 3)
    return frame


def assert_distances(
    world: MeshWorld, bodies: list[Body], rng: np.random.Generator, env: int = 0, atol: float = 3e-6
) -> None:
    """Compares distances at random points around the bodies, most of them near one."""
    centers = np.array([body.world_from_body[:3, 3] for body in bodies])
    points = centers[rng.integers(0, len(bodies), 800)] + rng.normal(0.0, 0.5, (800, 3))
    points = np.concatenate((points, rng.uniform(-3.0, 3.0, (400, 3)))).astype(np.float32)
    exact_points = points.astype(np.float64)
    truth = np.min(
        [
            body.distance(
                trimesh.transform_points(exact_points, np.linalg.inv(body.world_from_body))
            )
            - body.padding
            for body in bodies
        ],
        axis=0,
    )
    env_index = torch.tensor([env], dtype=torch.int32)
    found = signed_distance(torch.from_numpy(points)[None], world, env_index=env_index).distance
    np.testing.assert_allclose(found[0].numpy(), truth, rtol=0, atol=atol)
