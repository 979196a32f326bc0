"""The four differentiable functions on a small scene, and what plain backward says of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import compare
import shapes
from warp_collision import MeshWorld, clearance, signed_distance, sphere_cost, swept_sphere_cost

Tensor = torch.Tensor

NAMES = ("sphere_cost", "swept_sphere_cost", "signed_distance", "clearance")
# In graphs all take one way through the library; where a test is dear, the others can wait.
NAMES_TO_COMPILE = (
    "sphere_cost",
    pytest.param("swept_sphere_cost", marks=pytest.mark.slow),
    pytest.param("signed_distance", marks=pytest.mark.slow),
    pytest.param("clearance", marks=pytest.mark.slow),
)
SHAPE = (2, 3, 5)  # batch, horizon, n_spheres
# Forward mode and inductor load parts of torch that warn of their own age, from torch 2.15 on by a
# FutureWarning instead of a DeprecationWarning.
JIT_WARNING = "ignore:`torch.jit.script"
# The compiler of torch 2.11 cannot call a method with pairs of spheres as a constant.
needs_graphs_of_checks = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="full graphs of checks of robots need torch 2.13",
)
# The compiler looks at the gradients of tensors that have none.
LEAF_WARNING = "ignore:The .grad attribute of a Tensor:UserWarning"


def _finite(values: Tensor) -> Tensor:
    """Disabled spheres, and those in an empty env, are infinitely far away."""
    return values.clamp(max=1.0)


_CALLS: dict[str, Callable[..., Tensor]] = {
    "sphere_cost": sphere_cost,
    "swept_sphere_cost": swept_sphere_cost,
    "signed_distance": lambda s, world, **k: _finite(
        signed_distance(s[..., :3], world, **k).distance
    ),
    "clearance": lambda s, world, **k: _finite(clearance(s, world, **k).clearance),
}


@cache
def world_of(device: torch.device) -> MeshWorld:
    """One env with a box and a robot link, and a mesh that is switched off between them."""
    rng = np.random.default_rng(91)
    scene = [
        shapes.placed("box", rng),
        shapes.placed("icosphere", rng, enabled=False),
        shapes.placed("robot_link", rng),
    ]
    return compare.build_world([scene], device)


@dataclass(frozen=True)
class Case:
    """One of the functions, with operands that hit and miss.

    Attributes:
        name: of the function.
        world: the scene.
        spheres: (2, 3, 5, 4), one of them disabled.
        poses: (n_meshes, 7) of the scene.
        upstream: (2, 3, 5), a gradient that comes in.
        direction: (2, 3, 5, 4), a tangent.
    """

    name: str
    world: MeshWorld
    spheres: Tensor
    poses: Tensor
    upstream: Tensor
    direction: Tensor

    def __call__(self, spheres: Tensor, **options: Any) -> Tensor:
        """The values (batch, horizon, n_spheres) of spheres."""
        return _CALLS[self.name](spheres, self.world, **options)

    def with_poses(self, poses: Tensor) -> Tensor:
        """The values by the poses of the meshes."""
        return self(self.spheres, poses=poses)

    def loss(self, spheres: Tensor, **options: Any) -> Tensor:
        """A number, whose gradient is the vector-Jacobian product of ``upstream``."""
        return (self(spheres, **options) * self.upstream).sum()

    def loss_of_poses(self, poses: Tensor) -> Tensor:
        """The same by the poses of the meshes."""
        return self.loss(self.spheres, poses=poses)


@cache
def case_of(name: str, device: torch.device) -> Case:
    """A case by name, always the same."""
    rng = np.random.default_rng(92)
    scene_box = shapes.placed("box", np.random.default_rng(91))
    spheres = shapes.random_spheres(rng, scene_box, SHAPE)
    spheres[0, 1, 2, 3] = -1.0
    world = world_of(device)
    return Case(
        name,
        world,
        compare.to_device(spheres, device),
        torch.stack([world.pose(i) for i in range(3)]),
        compare.to_device(rng.normal(size=SHAPE), device),
        compare.to_device(rng.normal(size=(*SHAPE, 4)), device),
    )


@cache
def _three_envs(device: torch.device) -> MeshWorld:
    """Three envs, the last of which is empty."""
    rng = np.random.default_rng(93)
    full = [shapes.placed("box", rng), shapes.placed("torus", rng)]
    return compare.build_world([full, [shapes.placed("icosphere", rng)], []], device)


def of_envs(case: Case) -> Case:
    """The same function and spheres in a world of three envs with up to four meshes."""
    return replace(case, world=_three_envs(case.world.device))


def backward(loss: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient by plain ``backward``."""
    leaf = x.detach().clone().requires_grad_(True)
    loss(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


def jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian (*outputs, *inputs) by one plain backward pass per output."""
    leaf = x.detach().clone().requires_grad_(True)
    values = function(leaf)
    rows = []
    for place in range(values.numel()):
        (row,) = torch.autograd.grad(values.flatten()[place], leaf, retain_graph=True)
        rows.append(row)
    return torch.stack(rows).reshape(values.shape + x.shape)


def assert_same(actual: Any, expected: Any) -> None:
    """Equal but for the rounding of sums in another order."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-6)
