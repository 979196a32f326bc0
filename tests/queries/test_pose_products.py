"""Gradients by poses with batch rows in several envs: by env, with bounded scratch memory."""

import math
from typing import Any

import pytest
import torch

from warp_collision import Cuboid, Cylinder, MeshWorld, sphere_cost, swept_sphere_cost
from warp_collision.queries import sphere_queries

Tensor = torch.Tensor


def problem(device: torch.device) -> tuple[MeshWorld, Tensor, Tensor]:
    """A world of three envs, poses of all slots, and spheres of eight rows among them."""
    world = MeshWorld(3, 2, device)
    for env in range(3):
        for name, shape in (("block", Cuboid((0.4, 0.3, 0.5))), ("can", Cylinder(0.2, 0.4))):
            world.add(name, shape, (0.2 * env, 0.1, 0.0, 0.9, 0.1, 0.2, 0.3), env=env)
    poses = torch.stack([world.poses(env) for env in range(3)])
    generator = torch.Generator().manual_seed(3)
    spheres = torch.rand((8, 4, 3, 4), generator=generator) * 0.6 - 0.1
    spheres[..., 3] = 0.05
    return world, poses, spheres.to(device)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("function", [sphere_cost, swept_sphere_cost])
def test_each_env_has_the_gradients_of_its_rows(
    function: Any, moving: bool, device: torch.device
) -> None:
    world, poses, spheres = problem(device)
    if moving:
        poses = poses[:, None].repeat(1, 4, 1, 1)
        poses[:, 1:, 0, 0] += 0.1

    def gradient(rows: Tensor, index: list[int] | None) -> Tensor:
        leaf = poses.clone().requires_grad_()
        envs = None if index is None else torch.tensor(index, dtype=torch.int32, device=device)
        cost = function(rows, world, poses=leaf, env_index=envs).nan_to_num()
        return torch.autograd.grad(cost.sum(), leaf)[0]

    index = [2, 0, 2, 1, 3, 0, -1, 0]  # two of them are of no env
    found = gradient(spheres, index)
    expected = [gradient(spheres[k : k + 1], [e]) for k, e in enumerate(index) if 0 <= e < 3]
    torch.testing.assert_close(found, torch.stack(expected).sum(0), rtol=1e-4, atol=1e-5)
    assert (found[..., :3].abs().amax((-1, -2) if not moving else (1, 2, 3)) > 0.01).all()
    assert torch.equal(gradient(spheres, None), gradient(spheres, [0] * 8))


@pytest.mark.parametrize("slots", [(1, 8), (1024, 32), (1024, 32, 32)])
def test_scratch_is_bounded(slots: tuple[int, ...], gpu: torch.device) -> None:
    upstream = torch.empty((1, 1, 1), device=gpu).expand(1024, 32, 60)
    parts = sphere_queries._parts(upstream, slots)
    assert parts >= 1
    assert parts == 1 or 32 * parts * math.prod(slots) <= 64 << 20
    assert slots != (1, 8) or parts == 256
