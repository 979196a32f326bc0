"""Definition of torch operators: `torch.ops.warp_collision.*`.

An operator has a schema, a fake implementation for tracing, and a batching rule for `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# A scene and the env index, which follow the first operand of a query; see `Scene.operands`. What a
# graph may write, or differentiate by, are tensors of their own beside the handle.
SCENE = "SymInt scene, Tensor mesh_from_world, Tensor enabled, Tensor? env_index"
# The parameters of costs, of spheres at rest and in motion.
COST = ("Tensor weight", "Tensor activation_distance")
SWEPT_COST = (*COST, "Tensor tolerance", "Tensor? dt", "Tensor? min_speed")
# Where the parts of a scene are among the operands, and where those after it begin.
OPERANDS_OF_SCENE, ROWS, ENV_INDEX, AFTER_SCENE = slice(1, 4), 2, 4, 5
_TABLES = slice(ROWS, ENV_INDEX)

Outputs = Tensor | tuple[Tensor, ...]
# Takes the operator, torch's description of the mapped axis, the axis of each operand, and the
# operands; returns outputs with the mapped axis first.
BatchingRule = Callable[..., Outputs]


def define_operator(
    name: str,
    operands: str,
    run: Callable[..., Outputs],
    fake: Callable[..., Outputs],
    batched: BatchingRule,
    n_outputs: int = 1,
) -> Any:
    """Defines an operator.

    Args:
        name: under `torch.ops.warp_collision`.
        operands: their schema.
        run: the implementation.
        fake: allocates the outputs.
        batched: the batching rule.
        n_outputs: number of outputs, all tensors.
    """
    returns = "Tensor" if n_outputs == 1 else f"({', '.join(['Tensor'] * n_outputs)})"
    operator = torch.library.custom_op(
        f"warp_collision::{name}", run, mutates_args=(), schema=f"({operands}) -> {returns}"
    )
    operator.register_fake(fake)

    @operator.register_vmap
    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Outputs, Any]:
        outputs = batched(operator, info.batch_size, in_dims, *args)
        return outputs, 0 if isinstance(outputs, Tensor) else (0,) * len(outputs)

    return operator


# -- batching rules -------------------------------------------------------------------------------


def one_by_one(
    operator: Callable[..., Outputs], size: int, in_dims: tuple[int | None, ...], *args: Any
) -> Outputs:
    """Runs the mapped calls one after another."""
    calls = [
        operator(*(a if d is None else a.select(d, i) for a, d in zip(args, in_dims, strict=True)))
        for i in range(size)
    ]
    if isinstance(calls[0], tuple):
        return tuple(torch.stack(parts) for parts in zip(*calls, strict=True))
    return torch.stack(calls)  # pyright: ignore[reportArgumentType]


def over_rows(n_rowwise: int) -> BatchingRule:
    """A mapped axis adds rows.

    Args:
        n_rowwise: number of the first operands, which have rows; the others are constants of a
            robot.
    """

    def rule(
        operator: Callable[..., Outputs], size: int, in_dims: tuple[int | None, ...], *args: Any
    ) -> Outputs:
        if any(dim is not None for dim in in_dims[n_rowwise:]):
            raise NotImplementedError("the constants of a robot cannot be mapped by vmap")
        rows = (fold(*operand, size) for operand in zip(args[:n_rowwise], in_dims, strict=False))
        return _unfolded(operator(*rows, *args[n_rowwise:]), size, -1)

    return rule


def over_envs(
    operator: Callable[..., Outputs], size: int, in_dims: tuple[int | None, ...], *args: Any
) -> Outputs:
    """A mapped axis of spheres adds rows, one of poses or masks adds envs.

    The operator takes spheres, the scene and the env index first. Further parameters are
    scalars to the kernels: with a mapped axis there the calls run one after another.
    """
    if any(dim is not None for dim in in_dims[AFTER_SCENE:]):
        return one_by_one(operator, size, in_dims, *args)
    spheres, env_index = args[0], args[ENV_INDEX]
    rows = spheres.shape[0] if in_dims[0] is None else spheres.movedim(in_dims[0], 0).shape[1]
    tables, index_dim = args[_TABLES], in_dims[ENV_INDEX]
    if any(dim is not None for dim in in_dims[_TABLES]):
        if env_index is None:
            env_index = spheres.new_zeros(rows, dtype=torch.int32)
        tables = [fold(t, d, size) for t, d in zip(tables, in_dims[_TABLES], strict=True)]
        n_envs = len(tables[0]) // size
        offset = torch.arange(size, device=spheres.device, dtype=torch.int32) * n_envs
        env_index = batch_first(env_index, index_dim, size)
        # An index out of range stays out of range, instead of selecting another call's env.
        is_env = (env_index >= 0) & (env_index < n_envs)
        env_index = torch.where(is_env, env_index + offset[:, None], -1)
        index_dim = 0
    env_index = fold(env_index, index_dim, size)
    spheres = fold(spheres, in_dims[0], size)
    return _unfolded(
        operator(spheres, args[1], *tables, env_index, *args[AFTER_SCENE:]), size, rows
    )


def batch_first(value: Tensor, dim: int | None, size: int) -> Tensor:
    """Moves the mapped axis to the front; an operand without one is expanded."""
    return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def fold(value: Any, dim: int | None, size: int) -> Any:
    """Merges the mapped axis into the first one."""
    return None if value is None else batch_first(value, dim, size).flatten(0, 1).contiguous()


def _unfolded(outputs: Outputs, size: int, rows: int) -> Outputs:
    if isinstance(outputs, Tensor):
        return outputs.unflatten(0, (size, rows))
    return tuple(output.unflatten(0, (size, rows)) for output in outputs)
