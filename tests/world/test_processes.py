"""Worlds in other processes: built there, or inherited by a fork, they cost what they cost here."""

import multiprocessing
import pickle

import numpy as np
import pytest
import torch
import trimesh
from torch.utils.data import DataLoader, Dataset

from warp_collision import MeshWorld, signed_distance, sphere_cost, swept_sphere_cost

Figures = tuple[float, float, float]

pytestmark = pytest.mark.usefixtures("two_threads")


def build() -> MeshWorld:
    """A row of boxes and a ball, enough for a tree and for work in several threads."""
    world = MeshWorld(device="cpu")
    for i in range(14):
        pose = (0.2 * i - 1.0, 0.1, 0.0, 1.0, 0.0, 0.0, 0.0)
        world.add(f"box {i}", trimesh.creation.box((0.3, 0.2, 0.1)), pose)
    world.add("ball", trimesh.creation.icosphere(3, 0.3))
    return world


def figures(world: MeshWorld, seed: int) -> Figures:
    """Costs, gradients and distances of random paths."""
    rng = np.random.default_rng(seed)
    spheres = torch.tensor(rng.uniform(-1.0, 1.0, (1500, 4, 1, 4)), dtype=torch.float32)
    spheres[..., 3] = 0.05
    spheres.requires_grad_(True)
    cost = sphere_cost(spheres, world) + swept_sphere_cost(spheres, world)
    cost.sum().backward()
    assert spheres.grad is not None
    distance = signed_distance(spheres.detach()[..., :3], world).distance
    return cost.sum().item(), spheres.grad.double().sum().item(), distance.sum().item()


def figures_of_new_world(seed: int) -> Figures:
    return figures(build(), seed)


class Paths(Dataset[torch.Tensor]):
    """Figures by seed; a worker has no world before it is asked the first time."""

    def __init__(self, world: MeshWorld | None = None):
        self.world = world

    def __len__(self) -> int:
        return 4

    def __getitem__(self, seed: int) -> torch.Tensor:
        if self.world is None:
            self.world = build()
        return torch.tensor(figures(self.world, seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("method", "size"),
    [("spawn", 1), *(pytest.param(m, 2, marks=pytest.mark.slow) for m in ("spawn", "fork"))],
)
def test_pools(method: str, size: int) -> None:
    expected = [figures_of_new_world(seed) for seed in range(4)]
    with multiprocessing.get_context(method).Pool(size) as pool:
        assert pool.map(figures_of_new_world, range(4)) == expected


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
def test_workers_of_a_data_loader(method: str) -> None:
    expected = torch.tensor([figures_of_new_world(seed) for seed in range(4)], dtype=torch.float64)
    loader = DataLoader(
        Paths(), num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    for _ in range(2):
        assert torch.equal(torch.cat(list(loader)), expected)


def test_a_world_that_a_fork_inherits() -> None:
    """After it was used by several threads, which the child does not have."""
    world = build()
    expected = [figures(world, seed) for seed in range(4)]
    loader = DataLoader(Paths(world), num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), torch.tensor(expected, dtype=torch.float64))
    assert figures(world, 0) == expected[0]


def test_a_world_is_not_sent_to_another_process() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Paths(build()))
