"""The speed metric of the drop-in Functions: the rule of the callers that hold their arguments."""

import numpy as np
import pytest
import torch

import compare
import shapes
from primitives import Call, paths, scenes
from warp_collision import sphere_cost, swept_sphere_cost

Tensor = torch.Tensor
DT = 0.05
STILL = 1e-3  # [m/s] below this a sphere costs in full


def factors(spheres: Tensor) -> Tensor:
    """What each cost is multiplied by: the speed, but 1 at both ends of the path and at rest."""
    centers, disabled = spheres[..., :3], spheres[..., 3] < 0.0
    factor = torch.ones_like(spheres[..., 0])
    moved = (centers[:, 2:] - centers[:, :-2]).norm(dim=-1) / (2.0 * DT)
    ends = disabled[:, 2:] | disabled[:, :-2]
    inner = torch.where(ends | (moved.detach() < STILL), 1.0, moved)
    return torch.cat([factor[:, :1], inner, factor[:, :1]], dim=1)[:, : spheres.shape[1]]


def moving(device: torch.device) -> Tensor:
    """Paths with some disabled spheres, one sphere at rest and one that is nearly so."""
    spheres = paths(device, (3, 6, 8))
    spheres[0, :, 0] = spheres[0, :1, 1]
    spheres[0, :, 1] = spheres[0, :1, 1]
    spheres[0, :, 1, 0] += 0.9 * STILL * DT * torch.arange(6, device=device)
    spheres[0, :, :2, 3] = 0.3
    return spheres


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("return_loss", [False, True])
def test_cost_and_gradient(return_loss: bool, steps: int, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = moving(device).requires_grad_(True)
    dt = torch.full((1,), DT, device=device)
    call = Call("swept", spheres, world, {"sweep_steps": steps, "speed_dt": dt})
    plain = call().detach().clone()
    cost = call(enable_speed_metric=True, return_loss=return_loss)
    factor = factors(spheres)
    assert (factor[0, :, :2] == 1.0).all()
    assert (plain[0, :, :2] > 0.0).all()
    assert 0.3 < (factor != 1.0).float().mean() < 0.7
    torch.testing.assert_close(cost.detach(), plain * factor.detach(), rtol=1e-5, atol=0)
    function = swept_sphere_cost if steps else sphere_cost
    expected = function(spheres, world) * factor
    (total,) = torch.autograd.grad(expected.sum(), spheres, retain_graph=True)
    torch.testing.assert_close(call["out_grad"], total, rtol=1e-4, atol=1e-4)
    incoming = torch.linspace(-1.0, 2.0, cost.numel(), device=device).reshape(cost.shape)
    (found,) = torch.autograd.grad(cost, spheres, incoming)
    if return_loss:
        (pulled,) = torch.autograd.grad(expected, spheres, incoming)
        torch.testing.assert_close(found, pulled, rtol=1e-4, atol=1e-4)
    else:
        assert torch.equal(found, call["out_grad"])


def test_by_hand(device: torch.device) -> None:
    """Through a block at 2 m/s and at rest: 1 at the ends, the speed between them."""
    world = compare.build_world([[shapes.box((1.0, 4.0, 4.0))]], device)
    spheres = torch.zeros((1, 5, 2, 4), device=device)
    spheres[..., 3], spheres[..., 1] = 0.1, 0.3
    spheres[0, :, 0, 0] = torch.arange(5, device=device) * 0.02 + 0.2
    spheres[0, :, 1, 0] = 0.45
    options = {"speed_dt": torch.full((1,), 0.01, device=device), "enable_speed_metric": True}
    call = Call("swept", spheres, world, {**options, "sweep_steps": 0})
    depth = 0.1 + 0.02 - 0.01 - (spheres[0, :, :, 0].cpu().numpy() - 0.5)
    depth[1:-1, 0] *= 2.0
    np.testing.assert_allclose(call()[0].cpu().numpy(), depth, rtol=1e-4)


@pytest.mark.parametrize("horizon", [1, 2])
def test_a_path_of_ends_costs_in_full(horizon: int, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = paths(device, (3, horizon, 8))
    plain = Call("swept", spheres, world)()
    assert (plain > 0.0).any()
    timed = Call("swept", spheres, world, {"enable_speed_metric": True})
    assert torch.equal(timed(), plain)


def test_the_least_speed(device: torch.device) -> None:
    """What is slower than the limit costs in full; so does what rests for no time at all."""
    world = compare.build_world([[shapes.box((1.0, 1.0, 1.0))]], device)
    dt = 0.5
    steps = torch.tensor([0.0, 0.5, 0.99, 1.01, 2.0], device=device) * STILL * dt
    spheres = torch.zeros((1, 3, 5, 4), device=device)
    spheres[..., 0], spheres[..., 3] = 0.45, 0.1
    spheres[0, 1, :, 1], spheres[0, 2, :, 1] = steps, 2.0 * steps
    call = Call("swept", spheres, world, {"speed_dt": torch.full((1,), dt, device=device)})
    plain = call()[0, 1].clone()
    cost = call(enable_speed_metric=True)[0, 1]
    expected = plain * torch.tensor([1.0, 1.0, 1.0, 1.01e-3, 2e-3], device=device)
    torch.testing.assert_close(cost, expected, rtol=1e-3, atol=0)
    still = spheres[:, :1].expand(-1, 3, -1, -1).contiguous()
    frozen = call(query_spheres=still, speed_dt=torch.zeros(1, device=device))
    torch.testing.assert_close(frozen[0, 1], plain, rtol=1e-5, atol=0)
