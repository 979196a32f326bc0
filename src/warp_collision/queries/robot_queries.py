"""Forward kinematics, and the cost of a robot's spheres against each other.

Both are operators with Jacobian products in both modes, which are operators too. Each has one
differentiable operand, and constants; all but the constants, tables of a robot, have a row for each
configuration. The first output is differentiable to first order; further outputs are saved for the
products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warp_collision.kernels import forward_kinematics, gradient_step, pair_cost
from warp_collision.launching.launch import launch
from warp_collision.queries import dispatch
from warp_collision.queries.autograd import is_launched
from warp_collision.queries.functions import FUNCTIONS
from warp_collision.queries.operator import (
    BatchingRule,
    Outputs,
    batch_first,
    define_operator,
    over_rows,
)
from warp_collision.queries.second_derivatives import NO_SECOND, FirstOrderOnly, refuse_tangents

# Sizes in float32 of the structs that kernels store for each frame.
_FRAME_POSE, _WRENCH, _TWIST = 12, 6, 6


# -- queries of rows ------------------------------------------------------------------------------


@dataclass(eq=False)
class FirstOrderQuery:
    """A function of rows, and its Jacobian products.

    Attributes:
        name: of the operator.
        run: (operand, *constants), returns a tuple of outputs.
        run_vjp: (gradient by the first output, operand, *further outputs, *constants).
        run_jvp: (tangent of the operand, operand, *further outputs, *constants).
        allocate: (operand, *constants), returns a tuple of outputs without values.
        operands: the schema: operand, further outputs, constants.
        no_second: message where a second derivative is asked for.
        batched: the batching rule, from the number of the first operands that have rows.
    """

    name: str
    run: Callable[..., tuple[Tensor, ...]]
    run_vjp: Callable[..., Tensor]
    run_jvp: Callable[..., Tensor]
    allocate: Callable[..., tuple[Tensor, ...]]
    operands: tuple[str, tuple[str, ...], str]
    no_second: str = NO_SECOND
    batched: Callable[[int], BatchingRule] = over_rows

    def __post_init__(self) -> None:
        """Defines the operator and those of its products."""
        _QUERIES[self.name] = self
        operand, further, constants = self.operands
        n_further = len(further)
        self.operator = define_operator(
            self.name,
            f"{operand}, {constants}",
            lambda *operands: _one_or_all(_by_rows(self.run, 1)(*operands)),
            lambda *operands: _one_or_all(self.allocate(*operands)),
            self.batched(1),
            n_outputs=1 + n_further,
        )

        def tangent(vector: Tensor, operand: Tensor, *others: Tensor) -> Tensor:
            return self.allocate(operand, *others[n_further:])[0]

        schema = ", ".join(("Tensor vector", operand, *further, constants))
        self.vjp, self.jvp = (
            define_operator(
                f"{self.name}_{suffix}",
                schema,
                _by_rows(run, 2 + n_further),
                fake,
                self.batched(2 + n_further),
            )
            for suffix, run, fake in (
                ("vjp", self.run_vjp, lambda _, operand, *__: operand.new_empty(operand.shape)),
                ("jvp", self.run_jvp, tangent),
            )
        )

    def evaluate(self, operand: Tensor, *constants: Tensor | None) -> Tensor:
        """The first output, differentiable in the operand, which is contiguous."""
        if not dispatch.is_plain(operand):
            return dispatch.apply("first_order", self.name, operand, *constants)[0]
        if operand.requires_grad and torch.is_grad_enabled():
            return DirectFirstOrder.apply(operand, self, constants)
        return self.run(operand, *constants)[0]


def _one_or_all(outputs: tuple[Tensor, ...]) -> Outputs:
    return outputs[0] if len(outputs) == 1 else outputs


def _by_rows(run: Callable[..., Any], n_rowwise: int) -> Callable[..., Any]:
    """The implementation of an operator, whose first operands have rows of any layout."""

    def call(*operands: Tensor) -> Any:
        refuse_tangents()
        rows = (operand.contiguous() for operand in operands[:n_rowwise])
        return run(*rows, *operands[n_rowwise:])

    return call


# By name, as graphs refer to them.
_QUERIES: dict[str, FirstOrderQuery] = {}


class JacobianProduct(torch.autograd.Function):
    """A Jacobian product: linear in the vector; its derivative by the operand raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, forward: bool, vector: Tensor, *saved: Tensor | None) -> Tensor:  # noqa: D102
        query = _QUERIES[name]
        return (query.jvp if forward else query.vjp)(vector, *saved)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        ctx.name, ctx.forward_mode = inputs[:2]
        ctx.n_inputs = len(inputs)
        ctx.save_for_backward(*inputs[3:])
        ctx.save_for_forward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:  # noqa: D102
        if any(ctx.needs_input_grad[3:]):
            raise RuntimeError(_QUERIES[ctx.name].no_second)
        # The transpose of each product is the other one.
        saved = ctx.saved_tensors
        transposed = JacobianProduct.apply(ctx.name, not ctx.forward_mode, upstream, *saved)
        return None, None, transposed, *[None] * (ctx.n_inputs - 3)

    @staticmethod
    def jvp(ctx: Any, name: None, forward: None, tangent: Tensor | None, *others: Any) -> Tensor:  # noqa: D102
        if tangent is None or any(other is not None for other in others):
            raise RuntimeError(_QUERIES[ctx.name].no_second)
        return JacobianProduct.apply(ctx.name, ctx.forward_mode, tangent, *ctx.saved_tensors)


class TransformedFirstOrder(torch.autograd.Function):
    """A query by its operator: whether a graph is being traced, its name, operand and constants."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # noqa: D102
        traced: bool, name: str, operand: Tensor, *constants: Tensor | None
    ) -> tuple[Tensor, ...]:
        outputs = _QUERIES[name].operator(operand, *constants)
        return (outputs,) if isinstance(outputs, Tensor) else outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: D102
        ctx.set_materialize_grads(False)
        ctx.traced, ctx.name, operand, *constants = inputs
        ctx.n_constants, ctx.n_further = len(constants), len(output) - 1
        ctx.save_for_backward(operand, *output[1:], *constants)
        ctx.save_for_forward(operand, *output[1:], *constants)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Any, ...]:  # noqa: D102
        gradient = None
        if upstream is not None:
            operand, *rest = ctx.saved_tensors
            gradient = JacobianProduct.apply(ctx.name, False, upstream, operand, *rest)
            if ctx.traced:
                gradient = FirstOrderOnly.apply(gradient, operand)
        return None, None, gradient, *[None] * ctx.n_constants

    @staticmethod
    def jvp(  # noqa: D102
        ctx: Any, traced: None, name: None, tangent: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        further = [None] * ctx.n_further
        if tangent is None:
            return None, *further
        return JacobianProduct.apply(ctx.name, True, tangent, *ctx.saved_tensors), *further


class DirectFirstOrder(torch.autograd.Function):
    """A query by its launch, with its constants in one tuple."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, operand: Tensor, query: FirstOrderQuery, constants: tuple[Tensor | None, ...]
    ) -> Tensor:
        value, *further = query.run(operand, *constants)
        ctx.query, ctx.further, ctx.constants = query, further, constants
        ctx.save_for_backward(operand)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102
        saved = *ctx.saved_tensors, *ctx.further, *ctx.constants
        if is_launched(upstream):
            return ctx.query.run_vjp(upstream.contiguous(), *saved), None, None
        return JacobianProduct.apply(ctx.query.name, False, upstream, *saved), None, None


FUNCTIONS["first_order"] = TransformedFirstOrder.apply


# -- batching and launches ------------------------------------------------------------------------


def _launch(kernel: Any, rows: Tensor, *arguments: Tensor | None, work: int) -> None:
    """Launches a thread for each row."""
    n = rows.shape[0]
    launch(kernel, (n,), *arguments, device=rows.device, items=work * n)


def _over_rows_and_roots(n_rowwise: int) -> BatchingRule:
    """As `over_rows` where the last operand, the roots, may be for rows too."""

    def rule(operator: Any, size: int, in_dims: tuple[int | None, ...], *args: Any) -> Outputs:
        *others, roots = args
        *dims, dim = in_dims
        if roots is None or (dim is None and roots.numel() == roots.shape[-1]):
            return over_rows(n_rowwise)(operator, size, in_dims, *args)
        rows = others[0].shape[0] if dims[0] is None else others[0].movedim(dims[0], 0).shape[1]
        roots = batch_first(roots, dim, size).flatten(1, -2)
        roots = roots.repeat_interleave(rows // roots.shape[1], 1)
        return over_rows(n_rowwise + 1)(
            lambda roots, *others: operator(*others, roots), size, (0, *dims), roots, *others
        )

    return rule


# -- forward kinematics ---------------------------------------------------------------------------


def _allocate_points(
    joints: Tensor, frames: Tensor, ranges: Tensor, points: Tensor, roots: Tensor | None
) -> tuple[Tensor, Tensor]:
    n = joints.shape[0]
    frame_poses = joints.new_empty((n, frames.shape[0], _FRAME_POSE))
    return joints.new_empty((n, points.shape[0], 4)), frame_poses


def _place_points(joints: Tensor, *robot: Any) -> tuple[Tensor, Tensor]:
    outputs = _allocate_points(joints, *robot)
    _launch(forward_kinematics.place_points, joints, joints, *robot, *outputs, work=1)
    return outputs


# The poses of the frames tell the products where the root is.


def _place_points_vjp(upstream: Tensor, joints: Tensor, frame_poses: Tensor, *robot: Any) -> Tensor:
    wrenches = joints.new_empty((*frame_poses.shape[:2], _WRENCH))
    total = torch.empty_like(joints)
    operands = upstream, frame_poses, *robot[:3], wrenches, total
    _launch(forward_kinematics.place_points_vjp, joints, *operands, work=1)
    return total


def run_path_cost_vjp(
    upstream: Tensor | None,
    joints: Tensor,
    gradient: Tensor,
    neighbours: Tensor,
    by_pairs: Tensor | None,
    frame_poses: Tensor,
    *tables: Tensor,
) -> Tensor:
    """Gradient of costs of paths by their joints (batch, horizon, n_joints).

    Args:
        upstream: (batch, horizon), by the cost of each waypoint. None: by the sum of all, and
            `gradient` is overwritten.
        joints: the paths.
        gradient: that by the spheres, as an output of `SWEPT_COST`.
        neighbours: the output after it.
        by_pairs: gradient of a further cost by the spheres.
        frame_poses: (batch, horizon, n_frames, 12).
        tables: of the robot's points.
    """
    by_spheres = gradient
    if upstream is not None:
        upstream, by_spheres = upstream.contiguous().unsqueeze(-1), torch.empty_like(gradient)
    wrenches = joints.new_empty((*frame_poses.shape[:3], _WRENCH))
    total, rows = torch.empty_like(joints), joints.shape[:2]
    operands = upstream, gradient, neighbours, by_pairs, frame_poses, *tables
    outputs = by_spheres, wrenches, total
    launch(
        gradient_step.path_cost_vjp,
        rows,
        *operands,
        *outputs,
        device=joints.device,
        items=rows.numel(),
    )
    return total


def _place_points_jvp(rates: Tensor, joints: Tensor, frame_poses: Tensor, *robot: Any) -> Tensor:
    twists = joints.new_empty((*frame_poses.shape[:2], _TWIST))
    velocity = _allocate_points(joints, *robot)[0]
    operands = rates, frame_poses, *robot[:3], twists, velocity
    _launch(forward_kinematics.place_points_jvp, joints, *operands, work=1)
    return velocity


# Points (n, n_points, 4) of frames at joint values (n, n_joints), and poses of the frames. Roots
# (..., 18), m of them, or poses (m, 7), are for n / m rows each; without them the root is at the
# origin.
_ROBOT = "Tensor frames, Tensor ranges, Tensor points, Tensor? roots"
FORWARD_KINEMATICS = FirstOrderQuery(
    "forward_kinematics",
    _place_points,
    _place_points_vjp,
    _place_points_jvp,
    _allocate_points,
    ("Tensor joints", ("Tensor frame_poses",), _ROBOT),
    "the second derivative of float32 kinematics is not defined; joints of float64 have all "
    "derivatives",
    _over_rows_and_roots,
)


def run_jacobian(joints: Tensor, *robot: Any) -> Tensor:
    """Jacobian (n, n_points, 3, n_joints) of the points by the joint values (n, n_joints)."""
    joints = joints.contiguous()
    n, n_joints = joints.shape
    frame_poses = _place_points(joints, *robot)[1]
    # A row for each configuration and joint, which alone moves.
    rates = torch.eye(n_joints, dtype=joints.dtype, device=joints.device).repeat(n, 1)
    repeated = frame_poses.repeat_interleave(n_joints, 0)
    columns = _place_points_jvp(rates, rates, repeated, *robot)[..., :3]
    return columns.unflatten(0, (n, n_joints)).movedim(1, -1).contiguous()


# It has no derivative; callers pass detached joints.
forward_kinematics_jacobian = define_operator(
    "forward_kinematics_jacobian",
    f"Tensor joints, {_ROBOT}",
    run_jacobian,
    lambda joints, frames, ranges, points, roots: joints.new_empty(
        (joints.shape[0], points.shape[0], 3, joints.shape[1])
    ),
    _over_rows_and_roots(1),
)


# -- self-collision -------------------------------------------------------------------------------


def _balls(spheres: Tensor, groups: Tensor, links: Tensor) -> Tensor:
    """Scratch for balls around the groups and links of spheres (n, n_spheres, 4)."""
    return spheres.new_empty((spheres.shape[0], groups.shape[0] + links.shape[0], 4))


def _self_collision(
    spheres: Tensor,
    constants: tuple[Tensor, ...],
    *outputs: Tensor | None,
    upstream: Tensor | None = None,
    rates: Tensor | None = None,
) -> None:
    balls = _balls(spheres, *constants[:2])
    operands = spheres, *constants, upstream, rates, balls, *outputs
    _launch(pair_cost.self_collision, spheres, *operands, work=8)


def _allocate_cost(spheres: Tensor, *_: Tensor) -> tuple[Tensor]:
    return (spheres.new_empty(spheres.shape[:-1]),)


def _cost(spheres: Tensor, *constants: Tensor) -> tuple[Tensor]:
    outputs = _allocate_cost(spheres)
    _self_collision(spheres, constants, *outputs, None)
    return outputs


def _cost_vjp(upstream: Tensor | None, spheres: Tensor, *constants: Tensor) -> Tensor:
    total = torch.empty_like(spheres)
    _self_collision(spheres, constants, None, total, upstream=upstream)
    return total


def run_self_collision(spheres: Tensor, *constants: Tensor) -> tuple[Tensor, Tensor]:
    """The cost, and the derivative of the sum of a row by its spheres, by one launch."""
    (cost,) = _allocate_cost(spheres)
    total = torch.empty_like(spheres)
    _self_collision(spheres, constants, cost, total)
    return cost, total


def _cost_jvp(rates: Tensor, spheres: Tensor, *constants: Tensor) -> Tensor:
    outputs = _allocate_cost(spheres)
    _self_collision(spheres, constants, *outputs, None, rates=rates)
    return outputs[0]


# Cost (n, n_spheres) of spheres (n, n_spheres, 4): half the cost of each pair for each of its two.
_PAIRS = "Tensor groups, Tensor links, Tensor link_pairs, Tensor left_out"
SELF_COLLISION = FirstOrderQuery(
    "self_collision",
    _cost,
    _cost_vjp,
    _cost_jvp,
    _allocate_cost,
    ("Tensor spheres", (), f"{_PAIRS}, Tensor weight, Tensor activation_distance"),
)


def _allocate_pair(spheres: Tensor, *_: Tensor) -> Tensor:
    return spheres.new_empty((spheres.shape[0], 2), dtype=torch.int32)


def _closest_pair(spheres: Tensor, *pairs: Tensor) -> Tensor:
    spheres = spheres.contiguous()
    balls = _balls(spheres, *pairs[:2])
    closest = _allocate_pair(spheres)
    _launch(pair_cost.closest_pair, spheres, spheres, *pairs, balls, closest, work=8)
    return closest


# The pair of spheres (n, 2) int32 of each row with the smallest clearance; -1: no pairs.
closest_pair = define_operator(
    "closest_pair", f"Tensor spheres, {_PAIRS}", _closest_pair, _allocate_pair, over_rows(1)
)
