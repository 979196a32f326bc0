"""Surfaces without an inside: `sign="sheet"`, and the warning of open meshes that are solids."""

import warnings

import numpy as np
import pytest
import torch
import trimesh

from cases import mostly_slow
from reference import closest_points
from warp_collision import (
    MeshWorld,
    OpenMeshWarning,
    clearance,
    in_collision,
    signed_distance,
    swept_in_collision,
)


@pytest.fixture(scope="module")
def bowl() -> trimesh.Trimesh:
    """The lower half of a ball of 0.25 m."""
    ball = trimesh.creation.icosphere(4, 0.25)
    lower = ball.triangles_center[:, 2] < 0.0
    return trimesh.Trimesh(ball.vertices, ball.faces[lower], process=True)


def points(rng: np.random.Generator, count: int) -> torch.Tensor:
    return torch.tensor(rng.uniform(-0.4, 0.4, (1, count, 3)), dtype=torch.float32)


@pytest.mark.parametrize("grid_cells", mostly_slow((0, 32**3), (32**3,)))
@pytest.mark.parametrize("mesh", ["bowl", "ball"])
def test_a_sheet_is_as_far_as_its_surface(bowl, mesh, grid_cells, device):
    """At all points, of open and of closed surfaces; the gradient leads away from it."""
    given = bowl if mesh == "bowl" else trimesh.creation.icosphere(2, 0.25)
    world = MeshWorld(device=device, grid_cells=grid_cells)
    world.add("sheet", given, sign="sheet")
    where = points(np.random.default_rng(3), 2000)
    for _ in range(2):  # with the grid from the second on
        found = signed_distance(where.to(device), world)
        asked = where[0].double().numpy()
        closest, _ = closest_points(asked, given.vertices.astype(np.float64), given.faces)
        expected = np.linalg.norm(asked - closest, axis=1)
        np.testing.assert_allclose(found.distance[0].cpu(), expected, atol=2e-6)
        assert (found.distance >= 0.0).all()
        away = (asked - closest) / expected[:, None]
        aligned = (found.gradient[0].cpu().numpy() * away).sum(-1)
        assert np.quantile(aligned, 0.01) > 0.999


def test_a_ball_in_a_bowl_is_free(bowl, device):
    world = MeshWorld(device=device)
    world.add("bowl", bowl, sign="sheet")
    sphere = torch.tensor([[[[0.0, 0.0, -0.19 + 0.02, 0.02]]]], device=device)
    assert clearance(sphere, world).clearance.item() == pytest.approx(0.06, abs=1e-3)
    assert not in_collision(sphere, world).any()
    assert world.report("bowl").sign_method == "sheet"


def test_a_sweep_through_a_sheet_is_found(bowl, device):
    world = MeshWorld(device=device)
    world.add("bowl", bowl, sign="sheet")
    rng = np.random.default_rng(5)
    turn = torch.nn.functional.normalize(torch.tensor(rng.normal(size=(64, 3))).float(), dim=-1)
    turn[:, 2] = -turn[:, 2].abs() - 0.2  # not past the rim
    path = torch.zeros(64, 2, 1, 4)
    path[..., 3] = 1e-3
    path[:, 0, 0, :3], path[:, 1, 0, :3] = 0.1 * turn, 0.8 * turn
    assert not in_collision(path.to(device), world).any()
    assert swept_in_collision(path.to(device), world).flatten(1).any(1).all()


def test_an_open_mesh_is_named(bowl):
    world = MeshWorld(device="cpu")
    named = r"mesh 'bowl' is open, its border is 1\.76 m"
    with pytest.warns(OpenMeshWarning, match=named) as seen:
        world.add("bowl", bowl)
    assert seen[0].filename == __file__
    assert seen[0].message.name == "bowl"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world.add("again", bowl)  # the same geometry
        world.add("sheet", bowl, sign="sheet")
        world.add("solid", bowl, sign="exact_winding")
        world.add("ball", trimesh.creation.icosphere(1, 0.2))
