"""Gauss-Newton on residuals: what stands in for second derivatives."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import trimesh
from torch import func
from torch.utils import _pytree as pytree

from differentiable import JIT_WARNING
from warp_collision import (
    CollisionCost,
    GaussNewton,
    MeshWorld,
    clearance,
    clearance_residuals,
    cost_residuals,
    gauss_newton,
    sphere_cost,
    swept_sphere_cost,
)

Tensor = torch.Tensor
Residuals = Callable[[Tensor], Tensor]

ETA = 0.05  # [m] activation distance
RADIUS = 0.1
# Distances [m] of the centers from the face x = 0.5 of the block: within the activation distance,
# touching, deep (near no other face), and free.
CENTERS = torch.tensor(
    [[0.62, 0.0, 0.1], [0.6, -0.2, 0.0], [0.45, 0.1, -0.1], [0.58, 0.2, 0.2], [0.9, 0.0, 0.0]]
)
KINDS = ("cost", "swept", "clearance")


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    made = MeshWorld(device=device)
    made.add("block", trimesh.creation.box((1.0, 1.0, 1.0)))
    return made


@pytest.fixture
def centers(device: torch.device) -> Tensor:
    return CENTERS.to(device)


def residuals_of(world: MeshWorld, kind: str) -> Residuals:
    """Residuals of centers (n, 3), each a trajectory of its own."""

    def residuals(centers: Tensor) -> Tensor:
        spheres = torch.nn.functional.pad(centers, (0, 1), value=RADIUS)[:, None, None]
        if kind == "clearance":
            return clearance_residuals(clearance(spheres, world).clearance, ETA)
        cost = sphere_cost if kind == "cost" else swept_sphere_cost
        return cost_residuals(cost(spheres, world, activation_distance=ETA))

    return residuals


def expected_residuals(centers: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Residual of each center and its slope along x, from the formula of the cost at a plane."""
    depth = (RADIUS + ETA + 0.5 - centers[:, 0]).clamp(min=0.0)
    if kind == "clearance":
        return depth, -(depth > 0.0).float()
    near = depth < ETA
    residual = torch.where(near, depth / ETA**0.5, (2.0 * depth - ETA).clamp(min=0.0).sqrt())
    slope = torch.where(near, -(ETA**-0.5), -1.0 / residual)
    return residual, torch.where(depth > 0.0, slope, 0.0)


@pytest.mark.filterwarnings(JIT_WARNING)
@pytest.mark.parametrize(
    "options",
    [{}, {"chunk_size": 2}, {"mode": "forward"}],
    ids=["reverse", "chunks", "forward"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_at_a_plane(
    world: MeshWorld, centers: Tensor, kind: str, options: dict[str, Any]
) -> None:
    """Residuals, Jacobian, gradient and Hessian are those of the formula."""
    model = gauss_newton(residuals_of(world, kind), centers, **options)
    residual, slope = expected_residuals(centers, kind)
    jacobian = torch.zeros(5, 5, 3, device=centers.device)
    jacobian[range(5), range(5), 0] = slope
    jacobian = jacobian.reshape(5, 15)
    torch.testing.assert_close(model.residual, residual, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.jacobian, jacobian, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.gradient, jacobian.T @ residual, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.hessian, jacobian.T @ jacobian, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_jacobian_by_finite_differences(world: MeshWorld, centers: Tensor, kind: str) -> None:
    """Away from the kinks, which are where a sphere begins to cost."""
    residuals = residuals_of(world, kind)
    model = gauss_newton(residuals, centers)
    step = 1e-3
    for place in range(centers.numel()):
        shift = torch.zeros(15, device=centers.device)
        shift[place] = step
        shift = shift.reshape(5, 3)
        slope = (residuals(centers + shift) - residuals(centers - shift)).flatten() / (2 * step)
        torch.testing.assert_close(model.jacobian[:, place], slope, rtol=1e-2, atol=1e-2)


def test_the_gradient_is_exact(world: MeshWorld, centers: Tensor) -> None:
    """Half the sum of squares of the residuals is the cost, so their gradients are the same."""
    leaf = centers.clone().requires_grad_(True)
    spheres = torch.nn.functional.pad(leaf, (0, 1), value=RADIUS)[:, None, None]
    cost = CollisionCost(world, activation_distance=ETA, swept=False)(spheres).sum()
    cost.backward()
    model = gauss_newton(residuals_of(world, "cost"), centers)
    assert leaf.grad is not None
    torch.testing.assert_close(model.gradient, leaf.grad.flatten(), rtol=1e-4, atol=1e-5)
    half = 0.5 * model.residual.square().sum()
    torch.testing.assert_close(half, cost.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings(JIT_WARNING)
@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_residual_no_step(world: MeshWorld, kind: str, mode: Any) -> None:
    """Where all is free the model is 0, and nothing is NaN."""
    free = torch.tensor([[0.9, 0.0, 0.0], [3.0, 0.0, 1.0]], device=world.device)
    model = gauss_newton(residuals_of(world, kind), free, mode=mode)
    assert all((part == 0.0).all() for part in model)
    assert (model.step() == 0.0).all()


def test_no_world_no_step(device: torch.device) -> None:
    """In an empty env the clearance is infinite."""
    model = gauss_newton(residuals_of(MeshWorld(device=device), "clearance"), CENTERS.to(device))
    assert all((part == 0.0).all() for part in model)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_lead_out_of_collision(world: MeshWorld, centers: Tensor, kind: str) -> None:
    """Each damped step lowers the cost, and a few of them end it."""
    residuals = residuals_of(world, kind)
    x, costs = centers.clone(), []
    for _ in range(12):
        model = gauss_newton(residuals, x)
        costs.append(0.5 * model.residual.square().sum().item())
        x = x + model.step(damping=1e-2).reshape(x.shape)
    assert costs[0] > 1e-3
    assert all(b <= a + 1e-9 for a, b in pairwise(costs))
    assert costs[1] < costs[0]
    assert costs[-1] < 1e-3 * costs[0]
    assert torch.equal(x[4], centers[4])


def test_a_path_around_obstacles(device: torch.device) -> None:
    """Levenberg and Marquardt on a smooth path whose straight line runs through two meshes."""
    world = MeshWorld(device=device)
    world.add("ball", trimesh.creation.icosphere(3, 0.3))
    world.add("post", trimesh.creation.cylinder(0.05, 1.0), (0.6, 0.1, 0.0, 1.0, 0.0, 0.0, 0.0))
    ends = torch.tensor([[-1.0, 0.02, 0.0], [1.2, 0.0, 0.05]], device=device)
    line = torch.lerp(ends[0], ends[1], torch.linspace(0.0, 1.0, 24, device=device)[:, None])

    def spheres(inner: Tensor) -> Tensor:
        whole = torch.cat((ends[:1], inner.reshape(-1, 3), ends[1:]))
        return torch.nn.functional.pad(whole, (0, 1), value=0.05)[None, :, None]

    def residuals(inner: Tensor) -> Tensor:
        path = spheres(inner)
        cost = swept_sphere_cost(path, world, activation_distance=ETA, weight=200.0)
        bend = path[0, :-2, 0, :3] - 2.0 * path[0, 1:-1, 0, :3] + path[0, 2:, 0, :3]
        return torch.cat((3.0 * bend.flatten(), cost_residuals(cost).flatten()))

    x, damping = line[1:-1].flatten(), 1e-2
    losses = [0.5 * residuals(x).square().sum()]
    assert swept_sphere_cost(spheres(x), world, activation_distance=0.0).sum() > 0.5
    for _ in range(40):
        moved = x + gauss_newton(residuals, x).step(damping)
        loss = 0.5 * residuals(moved).square().sum()
        if loss < losses[-1]:
            x, damping = moved, max(damping / 3.0, 1e-6)
            losses.append(loss)
        else:
            damping *= 4.0
    assert losses[-1] < 1e-3 * losses[0]
    assert swept_sphere_cost(spheres(x), world, activation_distance=0.0).sum() == 0.0
    assert clearance(spheres(x), world).clearance.min() > 0.9 * ETA


def test_damping(world: MeshWorld, centers: Tensor) -> None:
    """More of it makes a shorter step, in the limit along the gradient."""
    model = gauss_newton(residuals_of(world, "cost"), centers)
    lengths = [model.step(damping).norm().item() for damping in (1e-3, 1.0, 1e3)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 2 * lengths[2]
    torch.testing.assert_close(1e5 * model.step(1e5), -model.gradient, rtol=1e-3, atol=1e-4)
    given = model.step(torch.tensor(1e-2, device=centers.device))
    assert torch.equal(given, model.step(1e-2))
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="damping must be positive"):
            model.step(bad)


def test_one_model_per_trajectory(world: MeshWorld, centers: Tensor) -> None:
    """Under vmap, as the docstring says."""
    residuals = residuals_of(world, "cost")
    models = func.vmap(lambda x: gauss_newton(residuals, x))(centers[:, None])
    assert isinstance(models, GaussNewton)
    alone = [gauss_newton(residuals, x[None]) for x in centers]
    for together, parts in zip(models, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(together, torch.stack(parts))
    steps = func.vmap(lambda model: model.step(1e-2))(models)
    torch.testing.assert_close(steps, torch.stack([model.step(1e-2) for model in alone]))


def test_the_model_is_a_pytree(world: MeshWorld, centers: Tensor) -> None:
    model = gauss_newton(residuals_of(world, "cost"), centers)
    twice = pytree.tree_map(lambda part: 2.0 * part, {"nested": (model,)})["nested"][0]
    assert isinstance(twice, GaussNewton)
    assert torch.equal(twice.hessian, 2.0 * model.hessian)


def test_bad_options() -> None:
    wrong: Any = "backward"
    with pytest.raises(ValueError, match="mode must be 'reverse' or 'forward', got 'backward'"):
        gauss_newton(torch.sin, torch.ones(2), mode=wrong)
    with pytest.raises(ValueError, match="chunk_size must be None in forward mode, got 2"):
        gauss_newton(torch.sin, torch.ones(2), mode="forward", chunk_size=2)


def test_cost_residuals() -> None:
    cost = torch.tensor([0.0, 0.02, 2.0, -1.0, torch.nan], requires_grad=True)
    values = cost_residuals(cost)
    torch.testing.assert_close(values[:3], torch.tensor([0.0, 0.2, 2.0]))
    assert values[3:].isnan().all()
    values[:3].sum().backward()
    assert cost.grad is not None
    torch.testing.assert_close(cost.grad[:3], torch.tensor([0.0, 5.0, 0.5]))


def test_clearance_residuals() -> None:
    given = torch.tensor([0.5, 0.02, -0.25, torch.inf], requires_grad=True)
    values = clearance_residuals(given, 0.02)
    torch.testing.assert_close(values, torch.tensor([0.0, 0.0, 0.27, 0.0]))
    values.sum().backward()
    assert given.grad is not None
    assert given.grad.tolist() == [0.0, 0.0, -1.0, 0.0]
    margins = torch.tensor([1.0, 0.0, 0.0, 1.0])
    torch.testing.assert_close(
        clearance_residuals(given.detach(), margins), torch.tensor([0.5, 0.0, 0.25, 0.0])
    )
