"""The least that a cost can take in torch: an autograd Function that replays two launches.

The kernel is the library's own, on arguments prepared once; nothing is validated or allocated.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from benchmarks.workloads import ACTIVATION_DISTANCE, Problem
from warp_collision.kernels.scene import Scene
from warp_collision.kernels.sphere_cost import sphere_cost
from warp_collision.launch import quiet_warp
from warp_collision.tables import completed


@wp.kernel(enable_backward=False)
def scale_gradient(
    upstream: wp.array3d[wp.float32],  # (batch, horizon, n_spheres)
    gradient: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
    total: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
):
    """The vector-Jacobian product of a cost whose entries do not depend on each other."""
    b, h, s = wp.tid()
    total[b, h, s] = upstream[b, h, s] * gradient[b, h, s]


class Floor:
    """Replays the cost of one problem, forward and backward, on buffers of its own.

    Right only for the spheres of the problem, and for the incoming gradient `ones`.
    """

    def __init__(self, problem: Problem):
        spheres = problem.spheres.detach()
        device = spheres.device
        self._stream = wp.stream_from_torch() if spheres.is_cuda else None
        self._cost, self._gradient = spheres.new_empty(spheres.shape[:3]), torch.empty_like(spheres)
        self._total = torch.empty_like(spheres)
        self.ones = torch.ones_like(self._cost)
        known = {
            "spheres": spheres,
            "env_index": problem.env_index,
            "scene": _scene(problem),
            "weight": torch.ones(1, device=device),
            "activation_distance": torch.full((1,), ACTIVATION_DISTANCE, device=device),
            "first": wp.vec3i(0, 0, 0),
            "cost": self._cost,
            "gradient": self._gradient,
            "active": None,
        }
        self._kept = known
        arguments = [_argument(a.type, known[a.label], device) for a in sphere_cost.adj.args]
        self._forward = self._record(sphere_cost, arguments)
        buffers = (self.ones, self._gradient, self._total)
        arguments = [
            _argument(a.type, tensor, device)
            for a, tensor in zip(scale_gradient.adj.args, buffers, strict=True)
        ]
        self._backward = self._record(scale_gradient, arguments)

    def _record(self, kernel: Any, arguments: list[Any]) -> Any:
        dim, device = tuple(self._cost.shape), str(self._cost.device)
        with quiet_warp():
            return wp.launch(kernel, dim, arguments, device=device, record_cmd=True)

    def cost(self, spheres: Tensor) -> Tensor:
        """The cost (b, h, n), differentiable by the spheres, which must be the problem's."""
        return _Replay.apply(spheres, self)

    def replay_forward(self) -> Tensor:
        """Runs the first launch; the cost."""
        self._forward.launch(self._stream)
        return self._cost.detach()

    def replay_backward(self) -> Tensor:
        """Runs the second launch; the gradient by the spheres."""
        self._backward.launch(self._stream)
        return self._total.detach()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spheres: Tensor, floor: Floor) -> Tensor:
        ctx.floor = floor
        return floor.replay_forward()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.floor.replay_backward(), None


def _scene(problem: Problem) -> Any:
    tables = completed(problem.world.tables())
    scene = Scene()
    for name, variable in Scene.vars.items():
        value = getattr(tables, name)
        setattr(scene, name, _argument(variable.type, value, problem.world.device))
    return scene


def _argument(kind: Any, value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return wp.from_torch(value, dtype=kind.dtype)
    if value is None:
        return wp.empty((0,) * kind.ndim, dtype=kind.dtype, device=str(device))
    return value
