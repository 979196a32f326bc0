"""Planning where obstacles, or whole scenes, are uncertain."""

import itertools
import math

import pytest
import torch

import compare
import shapes
from differentiable import assert_same
from warp_collision import MeshWorld, sphere_cost
from warp_collision.sampling import choice, sample_bernoulli, sample_multinomial

Tensor = torch.Tensor

EXISTS = (0.9, 0.4, 0.15)  # probability of each of three boxes
SIGMAS = 5.0  # a right sampler fails one in two million times; the seeds are fixed anyway


def seeded(device: torch.device, seed: int = 131) -> torch.Generator | None:
    """A generator on a device."""
    return compare.seeded(device, seed)


def place_boxes(world: MeshWorld, env: int) -> None:
    """Three boxes that overlap in the middle."""
    box = shapes.box((0.5, 0.5, 0.5))
    for i, x in enumerate((-0.2, 0.1, 0.25)):
        world.add(f"box {i}", (box.vertices, box.faces), (x, 0, 0.1 * i, 1, 0, 0, 0), env)


def path(device: torch.device) -> Tensor:
    """Spheres (1, 5, 1, 4) through the boxes."""
    spheres = torch.zeros(1, 5, 1, 4, device=device)
    spheres[0, :, 0, 0] = torch.linspace(-0.7, 0.7, 5, device=device)
    spheres[..., 3] = 0.05
    return spheres


def costs_of(masks: Tensor, device: torch.device) -> Tensor:
    """Cost (n,) of the path in each of n hypotheses, given by which boxes exist (n, 3)."""
    world = MeshWorld(n_envs=len(masks), max_obstacles=3, device=device)
    for env, mask in enumerate(masks):
        place_boxes(world, env)
        world.set_enabled(mask > 0, env)
    envs = torch.arange(len(masks), device=device)
    return sphere_cost(path(device).expand(len(masks), -1, -1, -1), world, env_index=envs).sum(
        (1, 2)
    )


def cvar(costs: Tensor, weights: Tensor, tail: float) -> float:
    """Mean of the costs in the worst share of the outcomes."""
    order = costs.argsort(descending=True)
    left, total = tail, 0.0
    for cost, weight in zip(costs[order].tolist(), weights[order].tolist(), strict=True):
        part = min(weight, left)
        total, left = total + part * cost, left - part
    return total / tail


@pytest.fixture
def outcomes(device: torch.device) -> tuple[Tensor, Tensor]:
    """Cost and probability of each of the eight sets of boxes, one by one."""
    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), device=device)
    exists = torch.tensor(EXISTS, device=device)
    weights = torch.where(masks > 0, exists, 1.0 - exists).prod(1)
    assert weights.sum().item() == pytest.approx(1.0)
    return costs_of(masks, device), weights


def test_the_mean_cost_is_exact(outcomes: tuple[Tensor, Tensor], device: torch.device) -> None:
    """A sum of single boxes, each times its probability: no draw, no set of boxes."""
    costs, weights = outcomes
    single = costs_of(torch.eye(3, device=device), device)
    assert (single > 0.0).all()
    mean = (single * torch.tensor(EXISTS, device=device)).sum()
    assert_same(mean, (costs * weights).sum())


@pytest.mark.slow
def test_drawn_masks_give_mean_and_tail(
    outcomes: tuple[Tensor, Tensor], device: torch.device
) -> None:
    costs, weights = outcomes
    draws, tail = 2000, 0.1
    exists = torch.tensor(EXISTS, device=device)
    masks = sample_bernoulli(exists.expand(draws, 3), generator=seeded(device))
    sampled = costs_of(masks, device)
    mean = (costs * weights).sum()
    spread = ((costs - mean) ** 2 * weights).sum().sqrt()
    assert abs(sampled.mean() - mean) < SIGMAS * spread / math.sqrt(draws)
    expected = cvar(costs, weights, tail)
    assert expected > 1.3 * mean
    worst = sampled.topk(int(tail * draws)).values.mean().item()
    assert worst == pytest.approx(
        cvar(sampled, torch.full_like(sampled, 1 / draws), tail), rel=1e-5
    )
    assert worst == pytest.approx(expected, rel=0.05)


def test_the_gradient_by_existence_is_the_cost_of_the_box(device: torch.device) -> None:
    """Masks times the costs of single boxes: what a planner that looks before it goes may weigh."""
    single = costs_of(torch.eye(3, device=device), device)
    exists = torch.tensor(EXISTS, device=device, requires_grad=True)
    masks = sample_bernoulli(exists.expand(500, 3), generator=seeded(device))
    (masks * single).sum(1).mean().backward()
    assert_same(exists.grad, single)


def test_hypotheses_drawn_by_belief(device: torch.device) -> None:
    """One env per hypothesis of the scene, one draw per row of the batch."""
    belief = torch.tensor([0.7, 0.2, 0.1], device=device)
    rows = 3000
    world = MeshWorld(n_envs=3, max_obstacles=3, device=device)
    for env in range(3):
        place_boxes(world, env)
        world.set_enabled(torch.tensor([1, env > 0, env > 1], device=device), env)
    envs = choice(3, k=rows, p=belief, dtype=torch.int32, generator=seeded(device))
    spheres = path(device)

    def costs(index: Tensor) -> Tensor:
        batch = spheres.expand(len(index), -1, -1, -1)
        return sphere_cost(batch, world, env_index=index).sum((1, 2))

    each = costs(torch.arange(3, device=device))
    assert len(set(each.tolist())) == 3
    assert torch.equal(costs(envs), each[envs.long()])
    mean = (belief * each).sum()
    spread = (belief * (each - mean) ** 2).sum().sqrt()
    assert abs(costs(envs).mean() - mean) < SIGMAS * spread / math.sqrt(rows)
    one_hot = sample_multinomial(belief.expand(rows, 3), generator=seeded(device, 132))
    assert abs((one_hot @ each).mean() - mean) < SIGMAS * spread / math.sqrt(rows)
