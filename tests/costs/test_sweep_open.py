"""Sweeps beside open meshes: certified for the surface, whatever the sign does at the openings."""

import numpy as np
import pytest
import torch

import compare
import reference
import reference_sweep
import shapes
from cases import mostly_slow
from reference import Array, Obstacle
from truth_open import NAMES, open_mesh
from warp_collision import sphere_cost, swept_sphere_cost

ETA, TOLERANCE = 0.02, 1e-3


def moving(rng: np.random.Generator, mesh: Obstacle, count: int) -> Array:
    """Paths (count, 2, 1, 4) from anywhere around a mesh to anywhere around it."""
    paths = np.zeros((count, 2, 1, 4))
    for waypoint in range(2):
        paths[:, waypoint, 0, :3] = shapes.mixed_points(rng, mesh, count)
    paths[..., 3] = rng.uniform(0.0, 0.05, (count, 1, 1))
    return shapes.rounded(paths)


@pytest.mark.parametrize("name", mostly_slow(NAMES, ("random triangles",)))
def test_no_surface_is_passed(name: str, device: torch.device) -> None:
    """A path costs what the nearest surface on it costs at least, and as much as at its ends."""
    rng = np.random.default_rng(911)
    mesh = Obstacle(*open_mesh(name), shapes.random_pose(rng))
    world, prepared = (compare.build_world([[mesh]], device) for _ in range(2))
    prepared.prepare()
    turn = reference.rotation_matrix(mesh.pose[3:])

    def to_surface(points: Array) -> Array:
        local = (points - np.asarray(mesh.pose[:3])) @ turn
        closest, _ = reference.closest_points(local, mesh.vertices, mesh.faces)
        return np.linalg.norm(local - closest, axis=1)

    paths = moving(rng, mesh, 40)
    given = compare.to_device(paths, device)
    options = {"activation_distance": ETA, "tolerance": TOLERANCE}
    cost = swept_sphere_cost(given, world, **options)
    assert torch.equal(swept_sphere_cost(given, prepared, **options), cost)
    nearest = reference_sweep.swept_distance(paths, to_surface)
    least = reference.hinge(paths[..., 3] + ETA - nearest - TOLERANCE, ETA)
    assert (least > 0.0).sum() > 10
    assert (compare.to_array(cost) >= least - compare.ABSOLUTE).all()
    assert (cost >= sphere_cost(given, world, activation_distance=ETA)).all()
    backward = swept_sphere_cost(given.flip(1).contiguous(), world, **options)
    assert torch.equal(backward.flip(1), cost)
