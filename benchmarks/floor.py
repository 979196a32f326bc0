"""What the latency of a small call consists of, forward and backward, on the workload `tiny`.

The floor is an autograd Function that does nothing but replay two launches: those of the library,
on arguments that are filled in once; nothing is validated or allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import warp as wp
from torch import Tensor

from benchmarks.harness import Call, interleave, table
from benchmarks.scenes import ACTIVATION_DISTANCE, WORKLOADS, Problem, build
from warp_collision import sphere_cost, swept_sphere_cost
from warp_collision.launching.recorded_launch import Command


@wp.kernel(enable_backward=False)
def sphere_vjp(
    upstream: wp.array[wp.float32], gradient: wp.array[wp.vec4], total: wp.array[wp.vec4]
):
    """Gradient by spheres, for costs that each depend on one sphere."""
    index = wp.tid()
    total[index] = upstream[index] * gradient[index]


@contextmanager
def _launches() -> Iterator[list[Callable[[], None]]]:
    """Collects what the library launches within, each with a command of its own to replay it."""
    found, run = [], Command.run

    def record(self: Any, dim: Any, arguments: Any, stream: Any = None, first: Any = None) -> None:
        own = Command(self._launch.kernel, str(self._launch.device))
        run(own, dim, arguments, stream, first)
        kept = arguments  # what the launch points to
        if own._call is None:
            found.append(lambda _=kept: own._launch.launch(stream))
        else:
            found.append(lambda _=kept: own._call.function(*own._call.operands))

    Command.run = record
    try:
        yield found
    finally:
        Command.run = run


class Floor:
    """Replays the cost of one problem, forward and backward, on buffers of its own.

    Right only for the spheres of the problem, and for the incoming gradient `ones`.
    """

    def __init__(self, problem: Problem):
        cost = swept_sphere_cost if problem.workload.swept else sphere_cost
        leaf = problem.spheres.detach().requires_grad_(True)

        def forward() -> Tensor:
            return cost(leaf, problem.world, activation_distance=ACTIVATION_DISTANCE)

        self.ones = torch.ones_like(forward().detach())  # builds what queries build
        with _launches() as launched:
            value = forward()
        (self.replay_forward,) = launched
        with _launches() as launched:
            (self._total,) = torch.autograd.grad(value, leaf, self.ones)
        self._cost = value.detach()
        if not launched:  # one multiplication, for which a launch stands
            device, gradient = str(leaf.device), self._total.clone()
            arrays = [self.ones.flatten(), gradient.view(-1, 4), self._total.view(-1, 4)]
            given = [wp.from_torch(a, dtype=wp.vec4 if a.ndim > 1 else None) for a in arrays]
            command = wp.launch(sphere_vjp, len(given[0]), given, device=device, record_cmd=True)
            stream = wp.stream_from_torch() if leaf.is_cuda else None
            launched = [lambda _=arrays: command.launch(stream)]
        (self.replay_backward,) = launched

    def cost(self, spheres: Tensor, is_replayed: bool = True) -> Tensor:
        """The cost (b, h, n), differentiable by the spheres, which must be the problem's."""
        return _Replay.apply(spheres, self, is_replayed)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spheres: Tensor, floor: Floor, is_replayed: bool) -> Tensor:
        ctx.floor, ctx.is_replayed = floor, is_replayed
        if is_replayed:
            floor.replay_forward()
        return floor._cost.detach()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.is_replayed:
            ctx.floor.replay_backward()
        return ctx.floor._total.detach(), None, None


def run(options: Any) -> str:
    """A line for each part."""
    problem = build(WORKLOADS["tiny"], options.device)
    floor, leaf = Floor(problem), problem.spheres.clone().requires_grad_(True)

    def differentiated(cost: Callable[[], Tensor]) -> Call:
        def call() -> None:
            leaf.grad = None
            cost().backward(floor.ones)

        return Call(call)

    def library() -> Tensor:
        return sphere_cost(leaf, problem.world, activation_distance=ACTIVATION_DISTANCE)

    floor._cost.zero_()
    floor.replay_forward()
    assert torch.equal(library().detach(), floor._cost), "other costs"
    around = "a Function around the launches"
    calls = {
        "two replayed launches": Call(lambda: (floor.replay_forward(), floor.replay_backward())),
        "an autograd Function of nothing": differentiated(lambda: floor.cost(leaf, False)),
        around: differentiated(lambda: floor.cost(leaf)),
        "the library": differentiated(library),
    }
    counted = interleave(calls, options.rounds, device=options.device).counted
    least = {name: float(values.min()) for name, values in counted.items()}
    head = ["forward and backward", "µs", "times a Function around the launches"]
    rows = [[n, f"{1e6 * v:.1f}", f"{v / least[around]:.2f}"] for n, v in least.items()]
    return table(head, rows)
