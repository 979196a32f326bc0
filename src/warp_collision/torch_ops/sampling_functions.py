"""Sampling as functions of noise, with straight-through gradients.

Given the noise they are deterministic, so that transforms, checkpointing and forward mode treat
them like any function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# Tolerance of the sum of probabilities, by their dtype.
_SUM_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
_COARSE_TOLERANCE = 1e-2


# -- functions of noise ---------------------------------------------------------------------------


class GradFactor(torch.autograd.Function):
    """Identity with a gradient multiplied by a factor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: float | Tensor) -> Tensor:  # noqa: D102
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        factor = inputs[1]
        ctx.factor = None if isinstance(factor, Tensor) else factor
        saved = (factor,) if ctx.factor is None else ()
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # noqa: D102
        return upstream * _factor(ctx), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, _: Any) -> Tensor | None:  # noqa: D102
        return None if tangent is None else tangent * _factor(ctx)


def _factor(ctx: Any) -> float | Tensor:
    return ctx.saved_tensors[0] if ctx.factor is None else ctx.factor


class _StraightThrough(torch.autograd.Function):
    """Base of Functions of probabilities whose gradient is that of the identity."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.n_inputs = len(inputs)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return upstream, *(None,) * (ctx.n_inputs - 1)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent.clone()


class Bernoulli(_StraightThrough):
    """Ones where the noise lies below the probability."""

    @staticmethod
    def forward(p: Tensor, noise: Tensor) -> Tensor:  # noqa: D102
        sample = (noise < p).to(p.dtype)
        return torch.where((p >= 0.0) & (p <= 1.0), sample, torch.nan)


class Multinomial(_StraightThrough):
    """One-hot of the category whose interval of [0, 1) contains the noise."""

    @staticmethod
    def forward(p: Tensor, noise: Tensor, dim: int) -> Tensor:  # noqa: D102
        cumulated, point = _cumulated(p, noise, dim)
        above, total = cumulated > point, cumulated.narrow(dim, -1, 1)
        # Ones from the drawn category on: the first one is at the category.
        first = above.diff(dim=dim, prepend=torch.zeros_like(above.narrow(dim, 0, 1)))
        return torch.where(is_distribution(p, total, dim), first.to(p.dtype), torch.nan)


class Choice(torch.autograd.Function):
    """The items at an index; its derivative by p is that of the mean."""

    generate_vmap_rule = True

    @staticmethod
    def forward(items: Tensor, p: Tensor | None, index: Tensor) -> Tensor:  # noqa: D102
        return items[index]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: D102
        items, p, index = inputs
        ctx.p_dtype = None if p is None else p.dtype
        ctx.save_for_backward(items, index)
        ctx.save_for_forward(items, index)
        if not output.is_floating_point():
            ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: D102
        items, index = ctx.saved_tensors
        by_items = by_p = None
        if ctx.needs_input_grad[0]:
            by_items = torch.zeros_like(items).index_add(0, index, upstream)
        if ctx.needs_input_grad[1]:
            by_p = items.reshape(items.shape[0], -1) @ upstream.sum(0).reshape(-1)
            by_p = by_p.to(ctx.p_dtype)
        return by_items, by_p, None

    @staticmethod
    def jvp(ctx: Any, of_items: Tensor | None, of_p: Tensor | None, _: None) -> Tensor:  # noqa: D102
        items, index = ctx.saved_tensors
        tangent = torch.zeros_like(items[index])
        if of_items is not None:
            tangent = tangent + of_items[index]
        if of_p is not None:
            tangent = tangent + torch.tensordot(of_p.to(items.dtype), items, dims=1)
        return tangent


FUNCTIONS: dict[str, type[torch.autograd.Function]] = {
    "bernoulli": Bernoulli,
    "choice": Choice,
    "grad_factor": GradFactor,
    "multinomial": Multinomial,
}


def is_distribution(p: Tensor, total: Tensor, dim: int) -> Tensor:
    """Whether probabilities are in [0, 1] and sum to 1, within the precision of their dtype."""
    tolerance = _SUM_TOLERANCE.get(p.dtype, _COARSE_TOLERANCE)
    inside = ((p >= 0.0) & (p <= 1.0)).all(dim, keepdim=True)
    return inside & ((total - 1.0).abs() <= tolerance)


# -- noise and indices ----------------------------------------------------------------------------


def uniform_noise(
    shape: Sequence[int], device: torch.device, generator: torch.Generator | None
) -> Tensor:
    """Uniform in [0, 1), so that probability 1 always draws and probability 0 never does.

    In steps of 2^-53: in float32 a probability below 2^-24 would draw too often.
    """
    return torch.rand(tuple(shape), generator=generator, device=device, dtype=torch.float64)


def _cumulated(p: Tensor, noise: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The cumulative distribution, and the noise scaled to [0, its last value).

    The scaled noise may round up to the last value, above which there is no category.
    """
    cumulated = p.double().cumsum(dim)
    total = cumulated.narrow(dim, -1, 1)
    return cumulated, torch.minimum(noise * total, torch.nextafter(total, torch.zeros_like(total)))


def draw_indices(
    n: int,
    k: int,
    replace: bool,
    p: Tensor | None,
    device: torch.device,
    generator: torch.Generator | None,
) -> Tensor:
    """Indices (k,) int64 of n items."""
    if replace:
        noise = uniform_noise((k,), device, generator)
        if p is None:
            return (noise * n).long().clamp(max=n - 1)
        cumulated, point = _cumulated(p, noise, -1)
        return torch.searchsorted(cumulated, point, right=True).clamp(max=n - 1)
    # Efraimidis and Spirakis (2006): the largest of noise ** (1 / p) are drawn without replacement.
    keys = torch.log1p(-uniform_noise((n,), device, generator))
    if p is not None:
        keys = torch.where(p > 0.0, keys / p, -torch.inf)
    return keys.topk(k).indices
