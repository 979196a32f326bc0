"""A query is a record: what is asked of a scene about spheres or points.

All between torch and a kernel follows from it: allocation, the launch, obstacles that move, the
torch operator with its fake implementation and batching rule, and the autograd Functions around
both; see `autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels.lanes.vectors import LANES
from warp_collision.launching.launch import launch
from warp_collision.queries.operator import SCENE, Outputs, define_operator, over_envs
from warp_collision.queries.second_derivatives import refuse_tangents
from warp_collision.queries.spatial_order import MANY, launch_in_order
from warp_collision.queries.waypoints import at_waypoints
from warp_collision.world.scene import Scene

# Waypoints of fewer spheres fill too few lanes.
_FEW_SPHERES = 4
_LANES = int(LANES)


def blocks_of(rows: Sequence[int]) -> tuple[int, ...]:
    """Extents of a launch with a thread for eight spheres of (*rows,)."""
    return (*rows[:-1], -(-rows[-1] // _LANES))


class Output(NamedTuple):
    """One output of a query.

    Attributes:
        trailing: its further axes, behind those of the spheres.
        dtype: its dtype.
        like_spheres: whether it has the shape of the spheres, as a gradient by them.
        per_waypoint: whether it has no axis of spheres.
    """

    trailing: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    like_spheres: bool = False
    per_waypoint: bool = False

    def shape(self, spheres: Sequence[int]) -> tuple[int, ...]:
        """Its shape, from that of the spheres."""
        if self.like_spheres:
            return tuple(spheres)
        return (*spheres[: -2 if self.per_waypoint else -1], *self.trailing)

    def allocator(self) -> Callable[[Tensor, Sequence[int]], Tensor]:
        """Allocates it for spheres (*rows, 4), in the way that takes torch the least time."""
        trailing, dtype = self.trailing, self.dtype
        if self.like_spheres:
            return lambda spheres, _: torch.empty_like(spheres)
        if self.per_waypoint:
            return lambda spheres, rows: spheres.new_empty((*rows[:-1], *trailing), dtype=dtype)
        if dtype is torch.float32:
            return lambda spheres, rows: spheres.new_empty(*rows, *trailing)
        return lambda spheres, rows: spheres.new_empty((*rows, *trailing), dtype=dtype)


class Derivative(NamedTuple):
    """Jacobian products of the first output of a query, from its outputs of gradients.

    Attributes:
        vjp: (upstream, *gradients), the gradient by the spheres.
        jvp: (tangent of the spheres, *gradients), that of the output.
        pose_vjp: (operands of the operator, all further outputs, upstream), the gradient by the
            rows of mesh_from_world.
        launched_vjp: as `vjp`, by a kernel, where that is not to be differentiated.
    """

    vjp: Callable[..., Tensor]
    jvp: Callable[..., Tensor]
    pose_vjp: Callable[[Sequence[Any], Sequence[Tensor], Tensor], Tensor]
    launched_vjp: Callable[..., Tensor] | None = None


@dataclass(eq=False)
class Query:
    """A question about spheres (batch, horizon, n_spheres, 4), or points (batch, n_points, 3).

    Attributes:
        name: of its operator.
        kernel: for obstacles at rest; it takes spheres, env index, scene, parameters and outputs.
        outputs: those of the kernel. The first is the answer, its gradients follow, then integers.
        parameters: the schema of each parameter of the kernel.
        derivative: of the first output; None: it has none.
        moving_kernel: for obstacles with a pose for each waypoint, with these poses behind the
            scene. None: each waypoint is an env at rest.
        is_flat: whether the kernel at rest is launched over all spheres at once.
        in_lanes: that kernel with eight spheres at once, for the CPU; or None.
        has_flags: whether the kernel at rest has a last output that may be empty.
        reports_gradients: whether callers get all outputs, not the first one alone.
        uses_field: whether the kernel reads the field of the scene.
        work: of a sphere, relative to that of one at rest.
    """

    name: str
    kernel: Any
    outputs: tuple[Output, ...]
    parameters: tuple[str, ...] = ()
    derivative: Derivative | None = None
    moving_kernel: Any = None
    is_flat: bool = False
    in_lanes: Any = None
    has_flags: bool = False
    reports_gradients: bool = False
    uses_field: bool = True
    work: int = 1

    def __post_init__(self) -> None:
        """Defines the operator."""
        self._allocators = tuple(output.allocator() for output in self.outputs)
        self.n_further = len(self.outputs) - 1
        self.n_floats = sum(output.dtype is torch.float32 for output in self.outputs)
        self._no_gradients = (None,) * self.n_further
        self.operator = define_operator(
            self.name,
            ", ".join(("Tensor spheres", SCENE, *self.parameters)),
            self._run_operator,
            self._fake,
            over_envs,
            n_outputs=len(self.outputs),
        )

    def run(
        self,
        spheres: Tensor,
        scene: Scene,
        env_index: Tensor | None,
        parameters: Sequence[Tensor | None] = (),
        with_gradients: bool = True,
        outputs: Sequence[Any] | None = None,
        flags: Tensor | None = None,
    ) -> Sequence[Any]:
        """Launches the kernel. Small calls spend most of their time here: nothing is done twice.

        Args:
            spheres: (batch, horizon, n_spheres, 4), or points; float32, contiguous.
            scene: the obstacles.
            env_index: (batch,) int32, or None.
            parameters: of the kernel.
            with_gradients: False: only the first output.
            outputs: buffers of the caller.
            flags: another one, for obstacles at rest.

        Returns:
            The outputs, None for gradients that are not asked for.
        """
        rows = spheres.shape[:-1]
        if outputs is None:
            if with_gradients:
                outputs = []
                for allocate in self._allocators:  # a comprehension would be another call
                    outputs.append(allocate(spheres, rows))
            else:
                outputs = (self._allocators[0](spheres, rows), *self._no_gradients)
        if scene.is_moving:
            return self._run_moving(spheres, scene, env_index, parameters, outputs)
        n, device = rows.numel(), spheres.device
        kernel, dim = self.kernel, (1, n) if self.is_flat else outputs[0].shape
        if self.in_lanes is not None and device == CPU:
            if self.is_flat or rows[-1] >= _FEW_SPHERES:
                kernel = self.in_lanes
                if not self.outputs[0].per_waypoint:
                    dim = (*dim[:-1], -(-dim[-1] // _LANES))  # `blocks_of` would be another call
        tables = scene.completed(kernel, n if self.uses_field else 0)
        written = (*outputs, flags) if self.has_flags else outputs
        if self.is_flat and n >= MANY and device == CPU and env_index is None:
            if tables.ignored is None:
                self._run_many(kernel, spheres, tables, parameters, written)
                return outputs
        launch(
            kernel,
            dim,
            spheres,
            env_index,
            tables,
            *parameters,
            *written,
            device=device,
            items=self.work * n,
        )
        return outputs

    def _run_many(
        self,
        kernel: Any,
        spheres: Tensor,
        tables: Any,
        parameters: Sequence[Tensor | None],
        written: Sequence[Any],
    ) -> None:
        """Launches a kernel over many spheres of one env, each of them for itself, on the CPU."""

        def launch_some(some: Tensor, *outputs: Tensor | None) -> None:
            threads = len(some) if kernel is self.kernel else -(-len(some) // int(LANES))
            operands = some, None, tables, *parameters, *outputs
            items = self.work * len(some)
            launch(kernel, (1, threads), *operands, device=some.device, items=items)

        rows = spheres.view(-1, 4)
        flat = [None if array is None else array.view(len(rows), -1) for array in written]
        launch_in_order(launch_some, rows, flat)

    def _run_moving(
        self,
        spheres: Tensor,
        scene: Scene,
        env_index: Tensor | None,
        parameters: Sequence[Tensor | None],
        outputs: Sequence[Any],
    ) -> Sequence[Any]:
        """As `run` for obstacles with a pose for each waypoint."""
        if self.moving_kernel is None:
            at_rest = at_waypoints(spheres, scene, env_index)
            views = [
                None if buffer is None else buffer.view(output.shape(at_rest[0].shape))
                for buffer, output in zip(outputs, self.outputs, strict=True)
            ]
            self.run(*at_rest, parameters, outputs=views)
            return outputs
        tables = scene.completed(self.moving_kernel), scene.mesh_from_world
        launch(
            self.moving_kernel,
            outputs[0].shape,
            spheres,
            env_index,
            *tables,
            *parameters,
            *outputs,
            device=spheres.device,
            items=2 * self.work * spheres.shape[:-1].numel(),
        )
        return outputs

    def _run_operator(self, spheres: Tensor, *operands: Any) -> Outputs:
        if self.derivative is not None:
            refuse_tangents()
        scene = Scene.of(*operands[:3])
        env_index, *parameters = operands[3:]
        outputs = self.run(spheres.contiguous(), scene, env_index, parameters)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _fake(self, spheres: Tensor, *_: Any) -> Outputs:
        outputs = tuple(
            spheres.new_empty(output.shape(spheres.shape), dtype=output.dtype)
            for output in self.outputs
        )
        return outputs[0] if len(outputs) == 1 else outputs
