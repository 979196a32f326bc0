"""What is not finite, or not there, is NaN or a collision: never free space, never a crash."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from not_finite import BAD_NUMBERS, BAD_POSES, COSTS, INF, NAN, WAYS, env, pass_on, some_spheres
from primitives import KINDS, Call
from warp_collision import (
    MeshWorld,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)
from worlds import SCENES, build


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """The world of `SCENES`: envs of two, three and no meshes."""
    return build(*SCENES, device=device)


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("component", range(4))
@pytest.mark.parametrize("scene", [0, 2])
def test_a_sphere_that_is_nowhere_is_not_free(
    number: float, component: int, scene: int, world: MeshWorld
) -> None:
    """In an empty env too; only a radius of minus infinity is below 0, which disables a sphere."""
    spheres = some_spheres(world.device)
    spheres[1, 1, 2, component] = number
    disabled = component == 3 and number == -INF
    rows = env(world.device, scene, scene)
    bad = torch.zeros((2, 3, 4), dtype=torch.bool, device=world.device)
    bad[1, 1, 2] = not disabled
    leaf = spheres.clone().requires_grad_(True)
    cost = sphere_cost(leaf, world, env_index=rows)
    assert torch.equal(cost.isnan(), bad)
    cost.sum().backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad.isnan().any(-1), bad)
    collides = in_collision(spheres, world, env_index=rows)
    assert collides[bad].all()
    assert collides[1, 1, 2].item() is not disabled
    value = clearance(spheres, world, env_index=rows).clearance[1, 1, 2].item()
    if disabled:
        assert value == INF
    else:
        assert not value > 0.0
        assert component == 3 or np.isnan(value)


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("component", range(4))
@pytest.mark.parametrize("scene", [0, 2])
def test_a_path_to_nowhere_is_not_free(
    number: float, component: int, scene: int, world: MeshWorld
) -> None:
    """The neighbours of a sphere that is nowhere move there, so their costs are not known."""
    spheres = some_spheres(world.device)
    spheres[1, 0, 2, component] = number
    rows = env(world.device, scene, scene)
    cost = swept_sphere_cost(spheres, world, env_index=rows)
    disabled = component == 3 and number == -INF
    bad = torch.zeros((2, 3, 4), dtype=torch.bool, device=world.device)
    bad[1, 0, 2] = not disabled
    bad[1, 1, 2] = component < 3
    sure = torch.ones_like(bad)
    sure[1, 1, 2] = component < 3  # next to a bad radius alone either is right: it is no free space
    assert torch.equal(cost.isnan()[sure], bad[sure])
    assert not cost[1, 1, 2] < sphere_cost(spheres, world, env_index=rows)[1, 1, 2] - 1e-6


def test_a_disabled_sphere_may_be_anywhere(world: MeshWorld) -> None:
    spheres = some_spheres(world.device)
    spheres[1, 1, 2] = torch.tensor([NAN, INF, 0.0, -1.0], device=world.device)
    for function in COSTS:
        cost = function(spheres, world)
        assert cost[1, 1, 2] == 0.0
        assert (cost.flatten() > 0.0).sum() == cost.numel() - 1
    assert not in_collision(spheres, world)[1, 1, 2]


def test_a_disabled_sphere_that_is_nowhere_pulls_nothing(world: MeshWorld) -> None:
    for function in (*COSTS, lambda s, world: clearance(s, world).clearance.clamp(max=9.0)):
        spheres = some_spheres(world.device)
        spheres[1, 1, 2] = torch.tensor([NAN, INF, 0.0, -1.0], device=world.device)
        spheres.requires_grad_(True)
        function(spheres, world).sum().backward()
        assert spheres.grad is not None
        assert spheres.grad.isfinite().all()
        assert (spheres.grad[1, 1, 2] == 0.0).all()


def test_poses_of_empty_slots_may_be_anything(world: MeshWorld) -> None:
    """And get no gradient."""
    spheres = some_spheres(world.device)
    poses = torch.zeros((3, 4, 7), device=world.device)
    used = torch.arange(4, device=world.device) < world.n_meshes[:, None]
    poses[used] = torch.tensor([0.0, 0, 0, 1, 0, 0, 0], device=world.device)
    poses[~used] = torch.tensor([NAN, INF, 0, 0, 0, 0, 0], device=world.device)
    assert used.any()
    assert not used.all()
    clean = torch.where(used[..., None], poses, poses[0, 0])
    poses.requires_grad_(True)
    for function in COSTS:
        cost = function(spheres, world, poses=poses)
        assert torch.equal(cost, function(spheres, world, poses=clean))
        (gradient,) = torch.autograd.grad(cost.sum(), poses)
        assert gradient.isfinite().all()
        assert (gradient[~used] == 0.0).all()


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_a_point_that_is_nowhere(number: float, world: MeshWorld) -> None:
    for row, scene in enumerate((0, 2)):
        points = torch.zeros((2, 3, 3), device=world.device)
        points[1, 1, row] = number
        found = signed_distance(points, world, env_index=env(world.device, scene, scene))
        bad = torch.zeros((2, 3), dtype=torch.bool, device=world.device)
        bad[1, 1] = True
        assert torch.equal(found.distance.isnan(), bad)
        assert torch.equal(found.gradient.isnan().any(-1), bad)
        assert found.obstacle[1, 1] == -1


@pytest.mark.parametrize("pose", BAD_POSES)
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_a_mesh_that_is_nowhere_is_not_free(
    pose: str, way: Callable[..., dict[str, Any]], world: MeshWorld
) -> None:
    options = way(world, BAD_POSES[pose])
    far = some_spheres(world.device) + 5.0
    envs = env(world.device, 0, 1)
    for function in COSTS:
        cost = function(far, world, env_index=envs, **options)
        assert cost[0].isnan().all()
        assert (cost[1] == 0.0).all()
    found = clearance(far, world, env_index=envs, **options)
    assert found.clearance[0].isnan().all()
    if way is not pass_on:
        assert torch.equal(in_collision(far, world, env_index=envs)[0], cost[0].isnan())
    world.enable("ball", False)
    for function in COSTS:
        assert (function(far, world, env_index=envs, **options) == 0.0).all()


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1, -(2**31)])
def test_an_env_out_of_range_is_not_free(index: int, world: MeshWorld) -> None:
    """One env out of range is no other env, and no foreign memory."""
    spheres = some_spheres(world.device)
    rows = env(world.device, index, 0)
    for function in COSTS:
        cost = function(spheres, world, env_index=rows)
        assert cost[0].isnan().all()
        assert torch.equal(cost[1], function(spheres, world)[1])
    assert in_collision(spheres, world, env_index=rows)[0].all()
    found = signed_distance(spheres[..., :3], world, env_index=rows)
    assert found.distance[0].isnan().all()
    assert (found.obstacle[0] == -1).all()
    for kind in KINDS:
        call = Call(kind, spheres, world)
        assert call(env_query_idx=rows)[0].isnan().all()
        assert (call["sparsity_idx"] == 1).all()


@pytest.mark.parametrize("index", [2**32, -(2**32), 2**32 + 1, 2**31, 3 * 2**32 + 2, 2**63 - 1])
def test_an_int64_env_does_not_wrap(index: int, world: MeshWorld) -> None:
    spheres = some_spheres(world.device)
    rows = env(world.device, index, 0)
    assert rows.dtype is torch.int64
    assert in_collision(spheres, world, env_index=rows)[0].all()
    assert signed_distance(spheres[..., :3], world, env_index=rows).distance[0].isnan().all()
    for function in COSTS:
        expected = function(spheres, world)[1]
        cost = function(spheres, world, env_index=rows)
        assert cost[0].isnan().all()
        assert torch.equal(cost[1], expected)
        many = torch.func.vmap(lambda r, f=function: f(spheres, world, env_index=r))(rows[None])
        assert many[0, 0].isnan().all()
        assert torch.equal(many[0, 1], expected)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_env_out_of_range_with_poses_that_require_a_gradient(
    index: int, world: MeshWorld
) -> None:
    spheres = some_spheres(world.device)
    poses = torch.zeros((3, 4, 7), device=world.device)
    poses[..., 3] = 1.0
    poses.requires_grad_(True)
    rows = env(world.device, index, 0)
    for function in COSTS:
        cost = function(spheres, world, env_index=rows, poses=poses)
        assert cost[0].isnan().all()
        assert (cost[1] > 0.0).all()
    distance = signed_distance(spheres[..., :3], world, env_index=rows, poses=poses).distance
    assert distance[0].isnan().all()
    assert distance[1].isfinite().all()
    # Nor is it one of another element of a batch.
    many = torch.stack([poses.detach()] * 3)
    cost = torch.func.vmap(lambda p: sphere_cost(spheres, world, env_index=rows, poses=p))(many)
    assert cost[:, 0].isnan().all()
    assert (cost[:, 1] > 0.0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["weight", "activation_distance"])
def test_parameters_that_are_not_finite(kind: str, name: str, world: MeshWorld) -> None:
    call = Call(kind, some_spheres(world.device), world)
    call(**{name: torch.full((1,), NAN, device=world.device)})
    assert call["out_cost"].isnan().all()
    assert (call["sparsity_idx"] == 1).all()
