"""Costs of spheres and their gradients against the float64 reference."""

from typing import Any

import numpy as np
import pytest
import torch

import compare
import reference
import shapes
from reference import Array, Obstacle
from warp_collision import sphere_cost

ETA = 0.03


def sphere_gradient(
    spheres: Array, scenes: list[list[Obstacle]], **options: Any
) -> reference.RowGradient:
    """Finite differences of the reference on all four components of every sphere."""
    return reference.row_gradient(
        lambda s: reference.sphere_cost(s, scenes, **options), spheres, compare.STEP
    )


@pytest.mark.parametrize("name", shapes.CLOSED + shapes.OPEN)
def test_cost_and_gradient(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(11)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_spheres(rng, obstacle, (5, 8, 15), disabled=0.1)
    certain = compare.clear_of_openings(spheres[..., :3].reshape(-1, 3), obstacle)
    spheres[~certain.reshape(spheres.shape[:3]), 3] = -1.0
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world([[obstacle]], device)
    cost, gradient = compare.cost_and_gradient(
        lambda s: sphere_cost(s, world, weight=2.0, activation_distance=ETA),
        spheres,
        incoming,
        device,
    )
    options: dict[str, Any] = {"weight": 2.0, "activation_distance": ETA}
    compare.assert_costs(cost, reference.sphere_cost(spheres, [[obstacle]], **options))
    assert 0.3 < (cost > 0.0).mean() < 0.95
    expected = sphere_gradient(spheres, [[obstacle]], **options)
    compare.assert_gradients(gradient, incoming[..., None] * expected.gradient, expected.kink)


def three_envs(rng: np.random.Generator) -> list[list[Obstacle]]:
    """Three envs: overlapping meshes with one disabled, a single mesh, nothing."""
    return [
        [
            shapes.placed("box", rng),
            shapes.placed("torus", rng, enabled=False),
            shapes.placed("icosphere", rng),
            shapes.placed("robot_link", rng),
        ],
        [shapes.placed("torus", rng)],
        [],
    ]


@pytest.mark.parametrize("horizon", [1, 2, 32])
def test_envs_disabled_meshes_and_spheres(horizon: int, device: torch.device) -> None:
    rng = np.random.default_rng(12)
    scenes = three_envs(rng)
    env_index = [2, 0, 1, 0, 1]
    spheres = shapes.random_spheres(
        rng, shapes.mesh("icosphere"), (5, horizon, max(4, 24 // horizon)), disabled=0.2
    )
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world(scenes, device)
    envs = torch.tensor(env_index, dtype=torch.int32, device=device)
    cost, gradient = compare.cost_and_gradient(
        lambda s: sphere_cost(s, world, env_index=envs), spheres, incoming, device
    )
    compare.assert_costs(cost, reference.sphere_cost(spheres, scenes, env_index=env_index))
    expected = reference.row_gradient(
        lambda s: reference.sphere_cost(s, scenes, env_index=env_index), spheres, compare.STEP
    )
    compare.assert_gradients(gradient, incoming[..., None] * expected.gradient, expected.kink)
    disabled = spheres[..., 3] < 0.0
    assert disabled.any()
    assert (cost[disabled] == 0.0).all()
    assert (gradient[disabled] == 0.0).all()
    assert (cost[0] == 0.0).all()
    assert (gradient[0] == 0.0).all()
    assert (cost[1:] > 0.0).any(axis=(1, 2)).all()


def test_env_0_without_an_index(device: torch.device) -> None:
    rng = np.random.default_rng(13)
    scenes = three_envs(rng)
    spheres = shapes.random_spheres(rng, scenes[0][0], (3, 4, 5))
    world = compare.build_world(scenes, device)
    expected = reference.sphere_cost(spheres, scenes[:1])
    compare.assert_costs(sphere_cost(compare.to_device(spheres, device), world), expected)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_nothing_to_check(shape: tuple[int, int, int], device: torch.device) -> None:
    world = compare.build_world([[shapes.mesh("box")]], device)
    spheres = torch.zeros((*shape, 4), device=device, requires_grad=True)
    cost = sphere_cost(spheres, world)
    assert cost.shape == shape
    cost.sum().backward()
    assert spheres.grad is not None
    assert spheres.grad.shape == (*shape, 4)


def test_nothing_to_hit(device: torch.device) -> None:
    world = compare.build_world([[]], device)
    spheres = torch.rand((2, 3, 4, 4), device=device, requires_grad=True)
    cost = sphere_cost(spheres, world)
    assert (cost == 0.0).all()
    cost.sum().backward()
    assert spheres.grad is not None
    assert (spheres.grad == 0.0).all()


@pytest.mark.parametrize("radius", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("eta", [0.0, 0.01, 0.5])
def test_cost_in_the_middle_of_a_block(radius: float, eta: float, device: torch.device) -> None:
    world = compare.build_world([[shapes.box((4.0, 4.0, 4.0))]], device)
    spheres = torch.tensor([0.0, 0.0, 0.0, radius], device=device).reshape(1, 1, 1, 4)
    cost = sphere_cost(spheres, world, weight=3.0, activation_distance=eta)
    np.testing.assert_allclose(cost.item(), 3.0 * (radius + eta + 2.0 - eta / 2), rtol=1e-6)


@pytest.mark.parametrize("eta", [0.0, 0.25])
def test_other_activation_distances(eta: float, device: torch.device) -> None:
    rng = np.random.default_rng(14)
    obstacle = shapes.placed("robot_link", rng)
    spheres = shapes.random_spheres(rng, obstacle, (2, 10, 10))
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world([[obstacle]], device)
    cost, gradient = compare.cost_and_gradient(
        lambda s: sphere_cost(s, world, activation_distance=eta), spheres, incoming, device
    )
    options: dict[str, Any] = {"activation_distance": eta}
    compare.assert_costs(cost, reference.sphere_cost(spheres, [[obstacle]], **options))
    expected = sphere_gradient(spheres, [[obstacle]], **options)
    compare.assert_gradients(gradient, incoming[..., None] * expected.gradient, expected.kink)


def test_cost_rises_from_the_activation_distance_on(device: torch.device) -> None:
    """A sphere comes down onto a box: free until the clearance is eta, no jump after that."""
    obstacle = shapes.box((1.0, 1.0, 1.0))
    world = compare.build_world([[obstacle]], device)
    heights = np.linspace(0.6, 0.5 - 0.1, 2001)
    spheres = np.zeros((1, 2001, 1, 4))
    spheres[0, :, 0, 2], spheres[..., 3] = heights, 0.04
    spheres = shapes.rounded(spheres)
    cost = sphere_cost(compare.to_device(spheres, device), world, activation_distance=0.02)
    compare.assert_costs(
        cost, reference.sphere_cost(spheres, [[obstacle]], activation_distance=0.02)
    )
    walk = compare.to_array(cost)[0, :, 0]
    clearance = spheres[0, :, 0, 2] - 0.5 - 0.04
    assert (walk[clearance > 0.02 + 1e-6] == 0.0).all()
    assert (walk[clearance < 0.02 - 1e-4] > 0.0).all()
    assert np.diff(walk).min() > -1e-6
    assert np.diff(walk).max() < 1e-4 + 1e-6


def test_meshes_add_up(device: torch.device) -> None:
    rng = np.random.default_rng(15)
    obstacle = shapes.placed("torus", rng)
    spheres = compare.to_device(shapes.random_spheres(rng, obstacle, (2, 4, 5)), device)
    once = sphere_cost(spheres, compare.build_world([[obstacle]], device))
    twice = sphere_cost(spheres, compare.build_world([[obstacle, obstacle]], device))
    assert (once > 0.0).any()
    torch.testing.assert_close(twice, 2.0 * once, rtol=0.0, atol=0.0)


def test_switching_a_mesh_off_and_moving_it(device: torch.device) -> None:
    rng = np.random.default_rng(16)
    scene = [shapes.placed("box", rng), shapes.placed("icosphere", rng)]
    spheres = shapes.random_spheres(rng, scene[0], (2, 4, 5))
    world = compare.build_world([scene], device)
    on_device = compare.to_device(spheres, device)
    world.enable("mesh_0", False)
    scene[0] = scene[0]._replace(enabled=False)
    compare.assert_costs(sphere_cost(on_device, world), reference.sphere_cost(spheres, [scene]))
    scene[0] = scene[0]._replace(enabled=True, pose=shapes.random_pose(rng))
    world.enable("mesh_0")
    world.set_pose("mesh_0", scene[0].pose)
    compare.assert_costs(sphere_cost(on_device, world), reference.sphere_cost(spheres, [scene]))


def test_weight_and_activation_distance_as_tensors(device: torch.device) -> None:
    rng = np.random.default_rng(17)
    obstacle = shapes.placed("box", rng)
    spheres = compare.to_device(shapes.random_spheres(rng, obstacle, (2, 4, 5)), device)
    world = compare.build_world([[obstacle]], device)
    plain = sphere_cost(spheres, world, weight=2.5, activation_distance=0.0625)
    weight, eta = torch.tensor([2.5], device=device), torch.tensor([0.0625], device=device)
    tensors = sphere_cost(spheres, world, weight=weight, activation_distance=eta)
    assert (plain > 0.0).any()
    torch.testing.assert_close(tensors, plain, rtol=0.0, atol=0.0)


def test_gradient_is_exact_for_each_incoming_gradient(device: torch.device) -> None:
    """A vector-Jacobian product is linear, and one sphere's cost is no other's business."""
    rng = np.random.default_rng(18)
    obstacle = shapes.placed("robot_link", rng)
    spheres = shapes.random_spheres(rng, obstacle, (2, 3, 4))
    world = compare.build_world([[obstacle]], device)

    def pull_back(incoming: Array) -> Array:
        return compare.cost_and_gradient(
            lambda s: sphere_cost(s, world), spheres, incoming, device
        )[1]

    whole = pull_back(np.ones(spheres.shape[:3]))
    assert np.abs(whole).max() > 0.5
    scale = shapes.rounded(rng.normal(size=spheres.shape[:3]))
    np.testing.assert_allclose(pull_back(scale), scale[..., None] * whole, rtol=1e-6, atol=1e-7)
    single = np.zeros(spheres.shape[:3])
    single[1, 2, 3] = 1.0
    np.testing.assert_array_equal(pull_back(single), single[..., None] * whole)
    assert (pull_back(np.zeros(spheres.shape[:3])) == 0.0).all()
