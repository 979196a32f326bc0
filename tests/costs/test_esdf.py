"""The ESDF of the drop-in Function: the distance in place of the cost, positive inside."""

from typing import Any

import numpy as np
import pytest
import torch

import compare
import shapes
from primitives import Call, paths, scenes
from reference import Array
from warp_collision import MeshWorld, signed_distance


def esdf(points: Array, world: MeshWorld, **changes: Any) -> Call:
    """A call that asks for the distance, after it was made."""
    spheres = np.concatenate([points, np.full((len(points), 1), 0.3)], axis=1)
    spheres = compare.to_device(spheres[None, None], world.device).requires_grad_()
    call = Call("rest", spheres, world, changes)
    call(compute_esdf=True)
    return call


def test_esdf_by_hand(device: torch.device) -> None:
    world = compare.build_world([[shapes.box((4.0, 4.0, 4.0))]], device)
    spheres = [
        [0.0, 0.0, 0.0, 0.1],  # the middle: the distance is exact, whatever max_dist is
        [1.5, 0.1, 0.0, 0.1],
        [2.25, 0.0, 0.0, 0.1],
        [2.25, 0.0, 0.0, 9.0],  # the radius plays no part
        [3.5, 0.0, 0.0, 0.1],  # farther than max_dist
        [1.5, 0.1, 0.0, -0.1],  # disabled
        [2.0, 0.0, 0.0, 0.1],  # on the surface
    ]
    call = Call("rest", torch.tensor([[spheres]], device=device, requires_grad=True), world)
    call(compute_esdf=True, weight=torch.full((1,), 3.0, device=device))
    expected = [6.0, 1.5, -0.75, -0.75, -3.0, 0.0, 0.0]
    np.testing.assert_allclose(call["out_cost"].flatten().tolist(), expected, rtol=1e-6, atol=1e-6)
    assert call["sparsity_idx"].flatten().tolist()[:6] == [1, 1, 1, 1, 1, 0]
    gradient = call["out_grad"][0, 0].cpu().numpy()
    slope = [[-3.0, 0.0, 0.0, 0.0]] * 3
    np.testing.assert_allclose(gradient[1:4], slope, rtol=1e-6, atol=1e-6)
    assert (gradient[4:6] == 0.0).all()
    np.testing.assert_allclose(np.linalg.norm(gradient[0]), 3.0, rtol=1e-6)


@pytest.mark.parametrize("limit", [0.0, 0.05, 0.4, 1e3])
def test_esdf_is_the_scene_distance_clamped_outside(limit: float, device: torch.device) -> None:
    rng = np.random.default_rng(63)
    world = compare.build_world(scenes(), device)
    points = shapes.mixed_points(rng, scenes()[0][0], 400)
    call = esdf(points, world, max_dist=torch.full((1,), limit, device=device))
    found = signed_distance(compare.to_device(points[None], device), world)
    expected = -found.distance.clamp(max=limit)
    assert (expected > 0.0).any()
    assert (expected < 0.0).any() or limit == 0.0
    torch.testing.assert_close(call["out_cost"][0], expected, rtol=0.0, atol=1e-6)
    inside = found.distance < limit - 1e-6
    slope = torch.where(inside[..., None], -found.gradient, 0.0)
    sure = (found.distance - limit).abs() > 1e-6
    torch.testing.assert_close(call["out_grad"][0, ..., :3][sure], slope[sure], rtol=0, atol=1e-5)
    assert (call["out_grad"][..., 3] == 0.0).all()


def test_esdf_gradient(device: torch.device) -> None:
    """By differences of the value itself, so that the sign cannot be wrong in both."""
    rng = np.random.default_rng(64)
    world = compare.build_world(scenes(), device)
    points = shapes.mixed_points(rng, scenes()[0][0], 300)
    call = esdf(points, world)
    slopes = np.zeros((300, 3))
    step = 1e-3
    for axis in range(3):
        ends = [
            compare.to_array(esdf(points + sign * step * np.eye(3)[axis], world)["out_cost"])
            for sign in (1.0, -1.0)
        ]
        slopes[:, axis] = (ends[0] - ends[1])[0, 0] / (2.0 * step)
    actual = compare.to_array(call["out_grad"])[0, 0, :, :3]
    error = np.linalg.norm(actual - slopes, axis=1)
    assert np.median(error) < 1e-3
    assert (error < 0.02).mean() > 0.9  # the rest are where the nearest point jumps


@pytest.mark.parametrize("return_loss", [False, True])
def test_esdf_backward(return_loss: bool, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = paths(device).requires_grad_(True)
    call = Call("rest", spheres, world)
    (call(compute_esdf=True, return_loss=return_loss) * 3.0).sum().backward()
    factor = 3.0 if return_loss else 1.0
    assert spheres.grad is not None
    assert torch.equal(spheres.grad, factor * call["out_grad"])
    assert (call["out_grad"] != 0.0).any()


def test_esdf_of_an_empty_env(device: torch.device) -> None:
    world = MeshWorld(device=device)
    call = esdf(np.zeros((2, 3)), world, max_dist=torch.full((1,), 0.7, device=device))
    np.testing.assert_allclose(call["out_cost"].flatten().tolist(), [-0.7, -0.7], rtol=1e-6)
    assert (call["out_grad"] == 0.0).all()
