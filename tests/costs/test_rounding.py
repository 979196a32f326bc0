"""Rounding of distances far from the origin, at the turned poses that the guarantees speak of."""

import numpy as np
import pytest
import torch

import shapes
from reference import rotation_matrix
from warp_collision import Cuboid, MeshWorld, signed_distance

SIZE = (0.8, 0.5, 1.0)
POSES = 600


@pytest.mark.parametrize(("offset", "bound"), [(0.0, 2.1e-6), (100.0, 7e-5), (1000.0, 7e-4)])
def test_distances_far_from_the_origin(offset: float, bound: float, device: torch.device) -> None:
    rng = np.random.default_rng(int(offset))
    world = MeshWorld(POSES, 1, device)
    directions = rng.normal(size=(POSES, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middles = directions * offset
    local = rng.uniform(-2.0, 2.0, (POSES, 40, 3))
    points = np.empty_like(local, dtype=np.float32)
    expected = np.empty(local.shape[:2])
    for env, middle in enumerate(middles):
        pose = np.array(shapes.random_pose(rng, 1.0))
        pose[:3] = middle
        world.add("cuboid", Cuboid(SIZE), pose, env)
        turn = rotation_matrix(pose[3:])
        points[env] = local[env] @ turn.T + middle
        beyond = np.abs((points[env].astype(float) - middle) @ turn) - 0.5 * np.array(SIZE)
        outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=1)
        expected[env] = outside + np.minimum(beyond.max(axis=1), 0.0)
    index = torch.arange(POSES, device=device)
    asked = torch.from_numpy(points).to(device)
    found = signed_distance(asked, world, env_index=index).distance.cpu().numpy()
    assert np.abs(found - expected).max() < bound
