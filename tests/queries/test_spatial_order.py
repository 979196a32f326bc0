"""Many spheres are asked in an order of their places, where that pays: their results stay."""

import numpy as np
import pytest
import torch
import trimesh

from exact_scenes import build, random_scene
from sensed_shapes import random_cloud
from warp_collision import MeshWorld, any_in_collision, clearance, in_collision, sphere_cost
from warp_collision.devices import CPU
from warp_collision.queries import query, spatial_order

Tensor = torch.Tensor


def results(spheres: Tensor, world: MeshWorld) -> list[Tensor]:
    leaf = spheres.clone().requires_grad_()
    cost = sphere_cost(leaf, world, weight=0.7)
    cost.nan_to_num().sum().backward()
    assert leaf.grad is not None
    found = [cost.detach(), leaf.grad, *clearance(spheres, world)]
    return [*found, in_collision(spheres, world), any_in_collision(spheres, world)]


@pytest.mark.parametrize("kind", ["mesh", "cloud", "shapes"])
def test_results_are_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(30)
    world = build([random_scene(rng, 6)], CPU, room=8)
    if kind != "shapes":
        cloud = random_cloud(rng)[1]
        world.add("large", cloud if kind == "cloud" else trimesh.creation.torus(0.5, 0.2))
    n = spatial_order.FIRST + 1_000
    spheres = torch.from_numpy(rng.uniform(-1.0, 1.0, (2, 1, n // 2, 4))).float()
    spheres[..., 3] *= 0.1  # half of them are disabled
    bad = torch.tensor([np.nan, np.inf, -np.inf, 3e38, -3e38])
    spheres[:, 0, ::50, rng.integers(3)] = bad[
        torch.arange(spheres[:, 0, ::50, 0].numel()) % 5
    ].view(2, -1)
    expected = results(spheres, world)
    orders: list[np.ndarray] = []
    sort = spatial_order.order_of

    def order_of(some: Tensor) -> np.ndarray:
        orders.append(sort(some))
        return orders[-1]

    monkeypatch.setattr(query, "MANY", n)
    monkeypatch.setattr(spatial_order, "DEAR", 0.0)
    monkeypatch.setattr(spatial_order, "order_of", order_of)
    found = results(spheres, world)
    assert len(orders) == 3  # costs, clearances and collisions of single spheres
    for one, other in zip(found, expected, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(1_000))


def test_neighbours_are_near_each_other() -> None:
    """Steps along the order are a tenth of those in no order."""
    rng = np.random.default_rng(31)
    spheres = torch.from_numpy(rng.uniform(-1.0, 3.0, (50_000, 4))).float()
    centers = spheres[:, :3]
    sorted_ones = centers[spatial_order.order_of(spheres)]
    steps = [(some[1:] - some[:-1]).norm(dim=1).mean() for some in (sorted_ones, centers)]
    assert steps[0] < 0.1 * steps[1]


@pytest.mark.parametrize("value", [0.0, 1e-40, 3e38, np.nan, np.inf])
def test_any_numbers_have_an_order(value: float) -> None:
    spheres = torch.tensor([[1.0, -2.0, 0.5, 0.1]]).repeat(9, 1)
    spheres[::2, 1] = value
    for some in (spheres, value * torch.ones(5, 4)):
        order = spatial_order.order_of(some)
        np.testing.assert_array_equal(np.sort(order), np.arange(len(some)))
