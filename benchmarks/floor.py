"""The least that a cost can take in torch: an autograd Function that replays two launches.

The kernels are the library's own, on arguments prepared once; nothing is validated or allocated.
`python -m benchmarks.floor` takes the latency of a small call apart: one CPU thread by its own
time, forward and backward, all in turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import warp as wp
from torch import Tensor

from benchmarks.workloads import ACTIVATION_DISTANCE, WORKLOADS, Problem, build
from warp_collision import sphere_cost as sphere_cost_of
from warp_collision.kernels.scene import Scene
from warp_collision.kernels.sphere_cost import sphere_cost
from warp_collision.kernels.swept_cost import swept_cost, swept_vjp
from warp_collision.launching.warp_runtime import is_array, quiet_warp
from warp_collision.queries.sphere_queries import default_tolerance
from warp_collision.world.acceleration import with_acceleration


@wp.kernel
def sphere_vjp(
    upstream: wp.array[wp.float32], gradient: wp.array[wp.vec4], total: wp.array[wp.vec4]
):
    """Gradient by spheres, for costs that each depend on one sphere."""
    index = wp.tid()
    total[index] = upstream[index] * gradient[index]


class Floor:
    """Replays the cost of one problem, forward and backward, on buffers of its own.

    Right only for the spheres of the problem, and for the incoming gradient `ones`.
    """

    def __init__(self, problem: Problem):
        spheres = problem.spheres.detach()
        device, shape = spheres.device, spheres.shape[:3]
        self._stream = wp.stream_from_torch() if spheres.is_cuda else None
        self._cost, self._total = spheres.new_empty(shape), torch.empty_like(spheres)
        self.ones = torch.ones_like(self._cost)
        eta = torch.full((1,), ACTIVATION_DISTANCE, device=device)
        # All that the kernels take, by the names of their arguments; what is missing is empty.
        self._known = {
            "spheres": spheres,
            "env_index": problem.env_index,
            "scene": _scene(problem),
            "weight": torch.ones(1, device=device),
            "activation_distance": eta,
            "tolerance": default_tolerance(eta),
            "cost": self._cost,
            "gradient": torch.empty_like(spheres),
            "neighbours": spheres.new_empty((*shape, 2, 3)),
            "upstream": self.ones,
            "total": self._total,
        }
        swept = problem.workload.swept
        n = self._cost.numel()
        forward, backward = ((swept_cost, shape), (swept_vjp, shape))
        if not swept:
            forward, backward = ((sphere_cost, (1, n)), (sphere_vjp, (n,)))
        self._forward = self._record(*forward)
        self._backward = self._record(*backward)

    def _record(self, kernel: Any, dim: tuple[int, ...]) -> Any:
        device = self._cost.device
        with quiet_warp():
            arguments = [
                _argument(a.type, self._known.get(a.label), device) for a in kernel.adj.args
            ]
            return wp.launch(kernel, dim, arguments, device=str(device), record_cmd=True)

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
    scene = Scene()
    with_acceleration(problem.world._storage.tables).write(scene)
    return scene


def _argument(kind: Any, value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        array = wp.from_torch(value, dtype=kind.dtype)
        return array.flatten() if kind.ndim == 1 else array
    if value is None and is_array(kind):
        return wp.empty((0,) * kind.ndim, dtype=kind.dtype, device=str(device))
    return kind() if value is None else value


class _Nothing(torch.autograd.Function):
    """What autograd itself takes."""

    @staticmethod
    def forward(ctx: Any, spheres: Tensor, floor: Floor) -> Tensor:
        ctx.floor = floor
        return floor._cost.detach()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.floor._total.detach(), None


def _microseconds(run: Callable[[], object], calls: int = 50) -> float:
    begin = time.thread_time()
    for _ in range(calls):
        run()
    return 1e6 * (time.thread_time() - begin) / calls


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args(arguments)
    problem = build(WORKLOADS["tiny"])
    floor, leaf = Floor(problem), problem.spheres.clone().requires_grad_(True)

    def library() -> Tensor:
        return sphere_cost_of(leaf, problem.world, activation_distance=ACTIVATION_DISTANCE)

    def differentiated(cost: Callable[[], Tensor]) -> Callable[[], object]:
        def run() -> None:
            leaf.grad = None
            cost().backward(floor.ones)

        return run

    runs: dict[str, Callable[[], object]] = {
        "two replayed launches": lambda: (floor.replay_forward(), floor.replay_backward()),
        "an autograd Function of nothing": differentiated(lambda: _Nothing.apply(leaf, floor)),
        "a Function around the launches": differentiated(lambda: floor.cost(leaf)),
        "the library": differentiated(library),
    }
    torch.set_num_threads(1)
    library()  # builds what queries build
    assert torch.equal(library().detach(), floor.replay_forward()), "other costs"
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            taken[name].append(_microseconds(run))
    least = {name: min(values) for name, values in taken.items()}
    reference = least["a Function around the launches"]
    for name, value in least.items():
        print(f"{name:32s} {value:7.1f} us {value / reference:6.2f} times a Function around them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
