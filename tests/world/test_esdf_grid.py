"""Grids of distances of others: bounds that hold for what they are of, in every query."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from cases import mostly_slow
from reference import Array
from sensed_shapes import random_voxels, voxels_distance
from warp_collision import (
    MeshWorld,
    Sphere,
    VoxelGrid,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
)
from warp_collision.obstacles.voxel_grid import EsdfGrid
from warp_collision.poses import quaternion_rotate


def ball(points: Array) -> Array:
    return np.linalg.norm(points - (0.5, 0.4, 0.6), axis=-1) - 0.2


def grid_of_ball(edge: float, dtype: Any = np.float32, shift: float = 0.0) -> EsdfGrid:
    shape = np.ceil(1.0 / edge * np.array([1.0, 0.9, 1.1])).astype(int)
    centers = edge * (np.moveaxis(np.indices(shape), 0, -1) + 0.5)
    values = (ball(centers) + shift).astype(dtype)
    return VoxelGrid.from_esdf(values, edge, error=abs(shift) + 1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("edge", mostly_slow((0.01, 0.05), (0.05,)))
def test_no_value_is_above_the_distance(edge: float, dtype: Any) -> None:
    """A million points, inside the grid and around it; nor is it far below."""
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.02):
        grid = grid_of_ball(edge, dtype, shift)
        world = MeshWorld(device="cpu")
        world.add("map", grid)
        points = rng.uniform(-0.3, 1.4, (250_000, 3)).astype(np.float32)
        found = signed_distance(torch.from_numpy(points), world).distance.numpy()
        truth = ball(points.astype(np.float64))
        assert (found <= truth + 1e-6).all()
        inside = ((points > edge) & (points < 0.9 - edge)).all(axis=1)
        slack = grid.error + 0.87 * edge + (1e-3 if dtype == np.float16 else 0.0)
        assert (found >= truth - 2.0 * slack - edge)[inside].all()
        # A sphere that is certified free is.
        spheres = torch.tensor(np.c_[points, rng.uniform(0, 0.1, len(points))]).float()
        hit = in_collision(spheres[None, None], world)[0, 0].numpy()
        assert hit[truth < spheres[:, 3].numpy() - 1e-6].all()
        assert 0.0 < hit.mean() < 0.5


def test_what_reaches_to_the_border_of_the_grid() -> None:
    """A ball that touches its sides: some of it lies beyond the last centers."""
    centers = 0.05 * (np.moveaxis(np.indices((12, 12, 12)), 0, -1) + 0.5)
    values = np.linalg.norm(centers - 0.3, axis=-1) - 0.3
    world = MeshWorld(device="cpu")
    world.add("map", VoxelGrid.from_esdf(values.astype(np.float32), 0.05, error=1e-6))
    points = np.random.default_rng(5).uniform(-0.05, 0.65, (50_000, 3)).astype(np.float32)
    leaf = torch.from_numpy(points).requires_grad_(True)
    found = signed_distance(leaf, world).distance
    truth = np.linalg.norm(points.astype(np.float64) - 0.3, axis=1) - 0.3
    assert (found.detach().numpy() <= truth + 1e-6).all()
    found.sum().backward()
    assert leaf.grad is not None
    for axis in range(3):
        step = 1e-3 * torch.eye(3)[axis]
        ahead, behind = (
            signed_distance(leaf.detach() + way * step, world).distance for way in (1, -1)
        )
        off = ((ahead - behind) / 2e-3 - leaf.grad[:, axis]).abs()
        assert (off > 0.02).float().mean() < 0.08  # kinks between voxels


def test_distances_between_centers_of_voxels() -> None:
    """What SciPy and others compute of occupied voxels, with the error that they have."""
    rng = np.random.default_rng(2)
    occupied = random_voxels(rng, (30, 24, 20), "boxes")
    values = ndimage.distance_transform_edt(~occupied) * 0.02
    grid = VoxelGrid.from_esdf(
        values.astype(np.float32), 0.02, error=0.5 * 3.0**0.5 * 0.02 + 1e-6, origin=(1, 0, 0)
    )
    world = MeshWorld(device="cpu")
    world.add("map", grid)
    points = np.array([1.0, 0, 0]) + rng.uniform(-0.2, 1.2, (5000, 3)) * (0.6, 0.48, 0.4)
    truth = voxels_distance(occupied, 0.02, np.array([1.0, 0, 0]))(points)
    found = signed_distance(torch.tensor(points).float(), world).distance.numpy()
    outside = truth > 0.0
    assert (found[outside] <= truth[outside] + 1e-6).all()


def test_paths_that_are_certified_are_free() -> None:
    rng = np.random.default_rng(3)
    world = MeshWorld(device="cpu")
    world.add("map", grid_of_ball(0.03, shift=0.01), (0.1, 0, 0, 0.6, 0, 0.8, 0))
    exact = MeshWorld(device="cpu")
    exact.add("ball", Sphere(0.2), (0.1, 0, 0, 0.6, 0, 0.8, 0))
    turn = torch.tensor([0.6, 0.0, 0.8, 0.0], dtype=torch.float64)
    center = quaternion_rotate(turn, torch.tensor([0.5, 0.4, 0.6], dtype=torch.float64))
    exact.set_pose("ball", (*(center + torch.tensor([0.1, 0, 0])).tolist(), 1, 0, 0, 0))
    ends = center.numpy() + rng.normal(0.0, 0.4, (3000, 2, 1, 3))
    spheres = torch.tensor(np.concatenate((ends, np.full((3000, 2, 1, 1), 0.03)), axis=-1)).float()
    for tolerance in (1e-3, 1e-2):
        mine = swept_in_collision(spheres, world, tolerance=tolerance)
        truth = swept_in_collision(spheres, exact, tolerance=1e-5)
        assert not (truth & ~mine).any()
        assert mine.float().mean() < 0.75


def test_gradients_are_those_of_the_value(device: torch.device) -> None:
    rng = np.random.default_rng(4)
    world = MeshWorld(device=device)
    world.add("map", grid_of_ball(0.05))
    given = np.c_[rng.uniform(0.1, 0.8, (200, 3)), np.full(200, 0.1)]
    spheres = torch.tensor(given, dtype=torch.float32, device=device)
    leaf = spheres.clone().requires_grad_(True)
    sphere_cost(leaf[None, None], world, activation_distance=0.2).sum().backward()
    assert leaf.grad is not None
    for axis in range(3):
        step = torch.zeros(4, device=device)
        step[axis] = 1e-3
        ahead, behind = (
            sphere_cost((spheres + way * step)[None, None], world, activation_distance=0.2)
            for way in (1, -1)
        )
        slope = ((ahead - behind) / 2e-3)[0, 0]
        assert ((slope - leaf.grad[:, axis]).abs() > 0.02).float().mean() < 0.1


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_files_and_updates(dtype: Any, tmp_path: Path) -> None:
    grid = grid_of_ball(0.1, dtype)
    world = MeshWorld(device="cpu")
    world.add("map", grid)
    world.save(tmp_path / "scene.yaml")
    read = MeshWorld.from_file(tmp_path / "scene.yaml", "cpu").report("map").shape
    assert isinstance(read, EsdfGrid)
    assert read.key == grid.key
    assert read.values.dtype == dtype
    assert repr(read) == "EsdfGrid(10 x 9 x 11 voxels of 0.1 m, error 1e-06 m)"
    point = torch.tensor([[0.5, 0.4, 0.95]])
    before = signed_distance(point, world).distance
    world.update("map", grid_of_ball(0.1, shift=-0.05))
    assert signed_distance(point, world).distance < before - 0.05
    with pytest.raises(TypeError, match="'map' must be given a EsdfGrid, got ndarray"):
        world.update("map", np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        (np.zeros((3, 3, 3), int), {}, TypeError, "values must be floating point, got int64"),
        (np.zeros((3, 3)), {}, ValueError, r"shape \(nx, ny, nz\), 2 at least, got \(3, 3\)"),
        (np.full((3, 3, 3), np.nan), {}, ValueError, "got 27 that are NaN or -inf"),
        (np.full((3, 3, 3), np.inf), {}, ValueError, "finite somewhere, got none"),
        (np.arange(27.0).reshape(3, 3, 3), {}, ValueError, "got 9 m along axis 0"),
        (
            np.zeros((3, 3, 3)),
            {"error": -1.0},
            ValueError,
            "error must be positive and below 1e9 or 0",
        ),
        (
            np.zeros((3, 3, 3)),
            {"origin": (1, np.inf, 0)},
            ValueError,
            "origin must be three finite",
        ),
    ],
)
def test_bad_input_is_named(
    values: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        VoxelGrid.from_esdf(values, 0.1, **({"error": 0.01} | options))
