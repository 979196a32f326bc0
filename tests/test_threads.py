"""CPU threads: however the work is divided, every output element has one owner."""

from collections.abc import Iterator

import pytest
import torch
import trimesh

from warp_collision import MeshWorld, launch, signed_distance, sphere_cost, swept_sphere_cost


@pytest.fixture(autouse=True)
def many_small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divides even small launches, and gives torch its threads back."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(launch, "_MIN_PARALLEL_ITEMS", 1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("shape", [(5, 7, 11), (1, 32, 3), (1, 1, 60), (64, 1, 1), (1, 1, 1)])
def test_threads_change_no_bit(shape: tuple[int, int, int]) -> None:
    world = MeshWorld(device="cpu")
    world.add("ring", trimesh.creation.torus(0.4, 0.15))
    world.add("crate", trimesh.creation.box((0.5, 0.4, 0.3)), (0.3, 0.1, 0.2, 0.8, 0.1, 0.5, 0.2))
    spheres = torch.rand((*shape, 4), generator=torch.Generator().manual_seed(7)) * 1.2 - 0.6
    spheres[..., 3] = spheres[..., 3].abs() * 0.2

    def everything() -> list[torch.Tensor]:
        leaf = spheres.clone().requires_grad_()
        costs = [sphere_cost(leaf, world), swept_sphere_cost(leaf, world)]
        found = signed_distance(spheres[..., :3], world)
        sum(cost.sum() for cost in costs).backward()
        assert leaf.grad is not None
        return [*costs, leaf.grad, *found]

    torch.set_num_threads(1)
    alone = everything()
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        for one, many in zip(alone, everything(), strict=True):
            assert torch.equal(one, many)
