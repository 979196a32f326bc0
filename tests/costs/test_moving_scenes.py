"""Obstacles that stand elsewhere at each waypoint: queries of spheres at rest."""

import numpy as np
import pytest
import torch

import compare
import moving_scenes
import shapes
from warp_collision import (
    Cuboid,
    MeshWorld,
    any_in_collision,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
)

BATCH, HORIZON, N_SPHERES = 6, 4, 20
# Two envs, of three slots: a torus and a cuboid, and a ball.
SCENES = ([shapes.mesh("torus"), shapes.mesh("box")], [shapes.mesh("icosphere")])


@pytest.fixture
def scene(device):
    """World, poses (2, horizon, 3, 7), spheres and envs of their rows."""
    rng = np.random.default_rng(1)
    world = compare.build_world(SCENES, device, max_obstacles=3)
    poses = np.stack(
        [moving_scenes.random_motion(rng, HORIZON, 3, turn=1.5, travel=0.2) for _ in SCENES]
    )
    poses[0, :, 2], poses[1, :, 1:] = 0.0, 0.0  # of empty slots
    centers = rng.uniform(-0.6, 0.6, (BATCH, HORIZON, N_SPHERES, 3))
    radii = rng.uniform(-0.01, 0.1, (BATCH, HORIZON, N_SPHERES, 1))
    spheres = np.concatenate([centers, radii], axis=-1)
    envs = torch.tensor([0, 1, 1, 0, 0, 1], dtype=torch.int32, device=device)
    return world, compare.to_device(poses, device), compare.to_device(spheres, device), envs


def at_waypoint(function, world, poses, spheres, envs, t: int):
    """A query of one waypoint, at the poses of that waypoint alone."""
    return function(
        spheres[:, t : t + 1].contiguous(), world, env_index=envs, poses=poses[:, t].contiguous()
    )


QUERIES = {
    "sphere_cost": lambda *a, **k: sphere_cost(*a, activation_distance=0.1, **k),
    "clearance": lambda *a, **k: clearance(*a, **k).clearance,
    "near": lambda *a, **k: clearance(*a, max_distance=0.1, **k).clearance,
    "mesh": lambda *a, **k: clearance(*a, **k).obstacle,
    "gradient": lambda *a, **k: clearance(*a, **k).gradient,
    "signed_distance": lambda s, *a, **k: signed_distance(s[..., :3], *a, **k).distance,
    "nearest": lambda s, *a, **k: signed_distance(s[..., :3], *a, **k).gradient,
    "in_collision": in_collision,
    "any_in_collision": any_in_collision,
}


@pytest.mark.parametrize("name", QUERIES)
def test_each_waypoint_sees_its_own_poses(name, scene):
    """As if each waypoint were asked alone, to the last bit."""
    world, poses, spheres, envs = scene
    found = QUERIES[name](spheres, world, env_index=envs, poses=poses)
    alone = [at_waypoint(QUERIES[name], world, poses, spheres, envs, t) for t in range(HORIZON)]
    assert torch.equal(found, torch.cat(alone, dim=1))
    still = QUERIES[name](spheres, world, env_index=envs, poses=poses[:, 0].contiguous())
    assert not torch.equal(found, still)


@pytest.mark.parametrize("name", ["sphere_cost", "clearance", "signed_distance"])
def test_gradients_by_spheres_and_poses(name, scene):
    world, poses, spheres, envs = scene
    upstream = torch.randn(spheres.shape[:-1], device=spheres.device)
    if name == "clearance":
        upstream[spheres[..., 3] < 0.0] = 0.0
    spheres.requires_grad_()
    poses.requires_grad_()
    QUERIES[name](spheres, world, env_index=envs, poses=poses).backward(upstream)
    for t in range(HORIZON):
        moved = poses.detach().clone().requires_grad_()
        placed = spheres.detach().clone().requires_grad_()
        value = at_waypoint(QUERIES[name], world, moved, placed, envs, t)
        value.backward(upstream[:, t : t + 1])
        torch.testing.assert_close(placed.grad[:, t], spheres.grad[:, t], rtol=0, atol=0)
        torch.testing.assert_close(moved.grad[:, t], poses.grad[:, t], rtol=1e-5, atol=1e-6)
    assert (poses.grad[:, :, 0] != 0.0).any(-1).all()
    assert (poses.grad[1, :, 1:] == 0.0).all()


def test_poses_of_a_world_of_one_env(device):
    """(horizon, n_meshes, 7), and matrices, stand for (1, horizon, max_obstacles, 7)."""
    rng = np.random.default_rng(2)
    world = MeshWorld(max_obstacles=5, device=device)
    for name in "abc":
        world.add(name, Cuboid((0.1, 0.2, 0.3)))
    poses = moving_scenes.random_motion(rng, HORIZON, 5, turn=2.0, travel=0.2)
    poses = compare.to_device(poses, device)
    spheres = compare.to_device(rng.uniform(-0.5, 0.5, (2, HORIZON, 9, 4)), device)
    full = sphere_cost(spheres, world, activation_distance=0.2, poses=poses[None])
    assert full.max() > 0.0
    short = sphere_cost(spheres, world, activation_distance=0.2, poses=poses[:, :3])
    assert torch.equal(short, full)
    matrices = moving_scenes.matrices_of(poses[:, :3])
    by_matrices = sphere_cost(spheres, world, activation_distance=0.2, poses=matrices)
    torch.testing.assert_close(by_matrices, full, rtol=1e-4, atol=1e-5)


def test_compiled_and_mapped(scene):
    world, poses, spheres, envs = scene

    def cost(balls, places):
        return sphere_cost(balls, world, activation_distance=0.1, env_index=envs, poses=places)

    spheres.requires_grad_()
    poses.requires_grad_()
    expected = cost(spheres, poses)
    wanted = torch.autograd.grad(expected.sum(), (spheres, poses))
    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")(spheres, poses)
    torch.testing.assert_close(compiled, expected)
    for found, grad in zip(
        torch.autograd.grad(compiled.sum(), (spheres, poses)), wanted, strict=True
    ):
        torch.testing.assert_close(found, grad)
    more = torch.stack((poses.detach(), poses.detach().roll(1, dims=1)))
    mapped = torch.func.vmap(lambda p: cost(spheres.detach(), p))(more)
    torch.testing.assert_close(mapped[0], expected)
    torch.testing.assert_close(mapped[1], cost(spheres.detach(), more[1]))


def test_a_world_that_is_gone_before_backward(device):
    """The meshes live as long as a graph needs them."""
    world = compare.build_world(SCENES[:1], device)
    poses = compare.to_device(
        moving_scenes.random_motion(np.random.default_rng(3), 3, 2, turn=1.0, travel=0.1), device
    ).requires_grad_()
    spheres = torch.rand(2, 3, 8, 4, device=device) * 0.4
    cost = sphere_cost(spheres, world, activation_distance=0.3, poses=poses)
    del world
    cost.sum().backward()
    assert poses.grad is not None
    assert (poses.grad != 0.0).any()


def test_what_is_not_finite(scene):
    world, poses, spheres, envs = scene
    poses[0, 2, 1, 4] = torch.nan
    cost = sphere_cost(spheres, world, env_index=envs, poses=poses)
    undefined = cost.isnan().all(dim=-1) | (spheres[..., 3] < 0.0).all(-1)
    assert cost[envs == 0, 2][spheres[envs == 0, 2, :, 3] >= 0.0].isnan().all()
    undefined[envs == 0, 2] = False
    assert not undefined.any()
    hits = in_collision(spheres, world, env_index=envs, poses=poses)
    assert hits[envs == 0, 2][spheres[envs == 0, 2, :, 3] >= 0.0].all()


def test_envs_that_are_none(scene):
    world, poses, spheres, _ = scene
    index = torch.tensor([0, 2, -1, 1, 0, 1], dtype=torch.int32, device=spheres.device)
    cost = sphere_cost(spheres, world, env_index=index, poses=poses)
    counts = spheres[..., 3] >= 0.0
    assert cost[1:3][counts[1:3]].isnan().all()
    assert not cost[[0, 3, 4, 5]].isnan().any()


@pytest.mark.parametrize("shape", [(2, 3, 3, 7), (2, 4, 2, 7), (4, 3, 7), (2, 4, 3, 4)])
def test_wrong_shapes(scene, shape):
    world, _, spheres, _ = scene
    rule = r"shape \(2, 3, 7\), or for each waypoint \(2, 4, 3, 7\), or \(4, 4\) in place of 7, got"
    with pytest.raises(ValueError, match=rule):
        sphere_cost(spheres, world, poses=torch.ones(shape, device=world.device))
