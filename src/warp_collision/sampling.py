"""Differentiable sampling, for planning with uncertain obstacles or scenes.

Samples have straight-through gradients: the derivative of a sample by its probability is that of
its mean. For functions that are linear in the samples, as a cost is in the existence of obstacles,
the expected gradient is exact.

Obstacles that exist with a probability: the cost is a sum over meshes, so its mean is the sum of
the costs of single meshes, each times its probability, without sampling. Other statistics, such as
the tail, need samples: one env per sample with all meshes and a sampled mask.

    >>> import torch, trimesh
    >>> from warp_collision import MeshWorld, sphere_cost
    >>> from warp_collision.sampling import sample_bernoulli
    >>> generator = torch.Generator().manual_seed(0)
    >>> exists = torch.tensor([0.9, 0.2])
    >>> world = MeshWorld(n_envs=1000)
    >>> for env, mask in enumerate(sample_bernoulli(exists.expand(1000, 2), generator=generator)):
    ...     for x in (-0.4, 0.4):
    ...         _ = world.add(str(x), trimesh.creation.box((1, 1, 1)), (x, 0, 0, 1, 0, 0, 0), env)
    ...     world.set_enabled(mask > 0, env)
    >>> spheres = torch.tensor([0.0, 0.0, 0.0, 0.1]).expand(1000, 1, 1, 4)
    >>> costs = sphere_cost(spheres, world, env_index=torch.arange(1000)).flatten()
    >>> round(costs.mean().item(), 2)  # 0.21 for each of the meshes, times 1.1
    0.23
    >>> worst = costs.topk(100).values.mean()  # CVaR: the mean of the worst tenth, both exist
    >>> round(worst.item(), 2)
    0.42

Hypotheses of the scene: one env each, and for each batch row one sampled from the belief.

    >>> from warp_collision.sampling import choice
    >>> belief = torch.tensor([0.7, 0.2, 0.1])
    >>> choice(3, k=8, p=belief, dtype=torch.int32, generator=generator).shape
    torch.Size([8])
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.queries import dispatch
from warp_collision.queries.functions import FUNCTIONS

# Tolerance of the sum of probabilities, by their dtype.
_SUM_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
_COARSE_TOLERANCE = 1e-2

__all__ = ["GradFactor", "choice", "sample_bernoulli", "sample_multinomial"]


class GradFactor:
    """``GradFactor.apply(x, f)``: the identity, with gradients multiplied by f in backward.

    Scales, reverses (f = -1) or stops (f = 0) the gradient of a term without changing its value.

    Example:
        >>> import torch
        >>> from warp_collision.sampling import GradFactor
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> y = GradFactor.apply(x, 0.5)
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([1.0, 2.0], [0.5, 0.5])
    """

    @staticmethod
    def apply(x: Tensor, f: float | Tensor) -> Tensor:
        """Returns x.

        Args:
            x: any shape.
            f: a number, or a tensor that broadcasts to x; it gets no gradient. In forward mode
                tangents are multiplied.

        Raises:
            TypeError: x is no tensor, or f neither a number nor a tensor.
            ValueError: f does not broadcast to x.
        """
        validate.require_tensor("x", x, "(...)")
        if isinstance(f, Tensor):
            # Checked here, as torch would raise an error with another wording.
            fits = f.ndim <= x.ndim and all(
                size in (1, expected)
                for size, expected in zip(reversed(f.shape), reversed(x.shape), strict=False)
            )
            if not fits:
                raise ValueError(
                    f"f must broadcast to the shape of x, {validate.shape_of(x)}, "
                    f"got {validate.shape_of(f)}"
                )
        elif not isinstance(f, Real):
            raise TypeError(f"f must be a number or a tensor, got {type(f).__name__}")
        return dispatch.apply("grad_factor", x, f)


def sample_bernoulli(p: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Samples 1 with probability p and 0 otherwise, each element independently.

    Args:
        p: probabilities, any shape, floating point.
        generator: source of randomness on the device of p; torch's default one if None.

    Returns:
        Zeros and ones in the shape and dtype of p, with a straight-through gradient to p.

    Raises:
        TypeError: p is no floating point tensor.
        ValueError: a probability is not in [0, 1]. Values on a GPU, and inside transforms and
            `torch.compile`, are not checked (except in the mode `checking`); there such an element
            gives NaN.

    Example:
        >>> import torch
        >>> from warp_collision.sampling import sample_bernoulli
        >>> p = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> sample = sample_bernoulli(p)
        >>> (sample * torch.tensor([3.0, 4.0])).sum().backward()
        >>> sample.tolist(), p.grad.tolist()
        ([0.0, 1.0], [3.0, 4.0])
    """
    _check_probabilities(p)
    return dispatch.apply("bernoulli", p, _uniform_noise(p.shape, p.device, generator))


def sample_multinomial(
    p: Tensor, dim: int = -1, *, generator: torch.Generator | None = None
) -> Tensor:
    """Samples one category along an axis by its probability, as a one-hot tensor.

    Args:
        p: probabilities, any shape with at least one axis, floating point; they sum to 1 along
            ``dim``.
        dim: the axis of the categories.
        generator: source of randomness on the device of p; torch's default one if None.

    Returns:
        One-hot along ``dim``, in the shape and dtype of p, with a straight-through gradient to p.

    Raises:
        TypeError: p is no floating point tensor.
        ValueError: p has no categories, a probability is not in [0, 1], or a sum is not 1; see
            `sample_bernoulli` for when values are checked.
        IndexError: there is no such axis.

    Example:
        >>> import torch
        >>> from warp_collision.sampling import sample_multinomial
        >>> sample_multinomial(torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    _check_probabilities(p, dim)
    shape = list(p.shape)
    shape[dim] = 1
    return dispatch.apply("multinomial", p, _uniform_noise(shape, p.device, generator), dim)


def choice(
    a: int | Sequence[float] | Tensor,
    k: int = 1,
    replace: bool = True,
    p: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Samples k of the items of a.

    Args:
        a: the items along its first axis; or a number n, for ``torch.arange(n)``.
        k: number of samples, at least 1.
        replace: whether an item can be sampled more than once.
        p: (n,) probability of each item, summing to 1; uniform if None. Without replacement an item
            is sampled from the remaining ones, in proportion to p.
        dtype: of the result; by default that of a.
        device: of the result; by default that of a, or of p where a is a number.
        generator: source of randomness on the device; torch's default one if None.

    Returns:
        (k, ...) items in the order of sampling. If they are floating point, the result is
        differentiable with respect to the items, and with replacement also to p, with the gradient
        of the mean.

    Raises:
        TypeError: an argument of another type.
        ValueError: no items, or fewer than k without replacement. p is not a distribution over a
            (`sample_bernoulli` says when values are checked), or requires a gradient without
            replacement.

    Example:
        >>> import torch
        >>> from warp_collision.sampling import choice
        >>> sorted(choice(4, k=4, replace=False).tolist())
        [0, 1, 2, 3]
        >>> choice(torch.tensor([0.5, 1.5]), k=3, p=torch.tensor([0.0, 1.0])).tolist()
        [1.5, 1.5, 1.5]
    """
    validate.require_count("k", k)
    items = _items(a, p, dtype, device)
    n = items.shape[0]
    if p is not None:
        p = p.to(items.device)
        _check_choice(p, n, k, replace)
    if not replace and k > n:
        raise ValueError(f"k must be at most the number of items without replacement, {n}, got {k}")
    chances = None if p is None else p.detach()
    index = _draw_indices(n, k, replace, chances, items.device, generator)
    return dispatch.apply("choice", items, p, index)


# -- checks ---------------------------------------------------------------------------------------


def _check_probabilities(p: Any, dim: int | None = None) -> None:
    shape = "(...)" if dim is None else "(..., n)"
    validate.require_tensor("p", p, shape)
    if not p.dtype.is_floating_point:
        raise TypeError(f"p must be floating point, got {p.dtype}")
    if dim is not None:
        if not -p.ndim <= dim < p.ndim:
            raise IndexError(f"dim must be an axis of p, in [{-p.ndim}, {p.ndim}), got {dim}")
        if p.shape[dim] == 0:
            raise ValueError(f"p must have categories along dim, got {validate.shape_of(p)}")
    # Reading values waits for a GPU, and is not possible for the batched tensors of transforms.
    if not dispatch.is_plain(p) or (p.device.type != "cpu" and not validate.is_checking()):
        return
    bad = ~((p >= 0.0) & (p <= 1.0))
    if bad.any():
        raise ValueError(f"p must be in [0, 1], got {p[bad][0].item()}")
    if dim is not None:
        total = p.detach().double().sum(dim, keepdim=True)
        wrong = ~_is_distribution(p, total, dim)
        if wrong.any():
            raise ValueError(f"p must sum to 1 along dim {dim}, got {total[wrong][0].item()}")


def _check_choice(p: Tensor, n: int, k: int, replace: bool) -> None:
    if p.shape != (n,):
        raise ValueError(f"p must have shape (n,) = ({n},), got {validate.shape_of(p)}")
    _check_probabilities(p, 0)
    if replace:
        return
    if p.requires_grad:
        raise ValueError(
            "p must not require a gradient without replacement, none is defined; detach it"
        )
    if dispatch.is_plain(p) and (p.device.type == "cpu" or validate.is_checking()):
        possible = int((p > 0.0).sum())
        if k > possible:
            raise ValueError(
                "k must be at most the number of items of probability above 0 without "
                f"replacement, {possible}, got {k}"
            )


def _items(
    a: Any, p: Tensor | None, dtype: torch.dtype | None, device: torch.device | str | None
) -> Tensor:
    if p is not None:
        validate.require_tensor("p", p, "(n,)")
    if isinstance(a, int) and not isinstance(a, bool):
        validate.require_count("a", a)
        target = p.device if device is None and p is not None else device
        return torch.arange(a, dtype=dtype, device=target)
    if isinstance(a, Tensor):
        items = a.to(dtype=a.dtype if dtype is None else dtype, device=device)
    elif isinstance(a, Sequence) and not isinstance(a, str):
        items = torch.tensor(a, dtype=dtype, device=device)
    else:
        raise TypeError(f"a must be an int, a sequence or a tensor, got {type(a).__name__}")
    if items.ndim == 0 or items.shape[0] == 0:
        raise ValueError(f"a must have items along its first axis, got {validate.shape_of(items)}")
    return items


# -- functions of noise ---------------------------------------------------------------------------


class _GradFactor(torch.autograd.Function):
    """Identity with a gradient multiplied by a factor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: float | Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        factor = inputs[1]
        ctx.factor = None if isinstance(factor, Tensor) else factor
        saved = (factor,) if ctx.factor is None else ()
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream * _factor(ctx), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, _: Any) -> Tensor | None:
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


class _Bernoulli(_StraightThrough):
    """Ones where the noise lies below the probability."""

    @staticmethod
    def forward(p: Tensor, noise: Tensor) -> Tensor:
        sample = (noise < p).to(p.dtype)
        return torch.where((p >= 0.0) & (p <= 1.0), sample, torch.nan)


class _Multinomial(_StraightThrough):
    """One-hot of the category whose interval of [0, 1) contains the noise."""

    @staticmethod
    def forward(p: Tensor, noise: Tensor, dim: int) -> Tensor:
        cumulated, point = _cumulated(p, noise, dim)
        above, total = cumulated > point, cumulated.narrow(dim, -1, 1)
        # Ones from the drawn category on: the first one is at the category.
        first = above.diff(dim=dim, prepend=torch.zeros_like(above.narrow(dim, 0, 1)))
        return torch.where(_is_distribution(p, total, dim), first.to(p.dtype), torch.nan)


class _Choice(torch.autograd.Function):
    """The items at an index; its derivative by p is that of the mean."""

    generate_vmap_rule = True

    @staticmethod
    def forward(items: Tensor, p: Tensor | None, index: Tensor) -> Tensor:
        return items[index]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        items, p, index = inputs
        ctx.p_dtype = None if p is None else p.dtype
        ctx.save_for_backward(items, index)
        ctx.save_for_forward(items, index)
        if not output.is_floating_point():
            ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        items, index = ctx.saved_tensors
        by_items = by_p = None
        if ctx.needs_input_grad[0]:
            by_items = torch.zeros_like(items).index_add(0, index, upstream)
        if ctx.needs_input_grad[1]:
            by_p = items.reshape(items.shape[0], -1) @ upstream.sum(0).reshape(-1)
            by_p = by_p.to(ctx.p_dtype)
        return by_items, by_p, None

    @staticmethod
    def jvp(ctx: Any, of_items: Tensor | None, of_p: Tensor | None, _: None) -> Tensor:
        items, index = ctx.saved_tensors
        tangent = torch.zeros_like(items[index])
        if of_items is not None:
            tangent = tangent + of_items[index]
        if of_p is not None:
            tangent = tangent + torch.tensordot(of_p.to(items.dtype), items, dims=1)
        return tangent


def _apply(function: type[torch.autograd.Function], _: bool, *operands: Any) -> Tensor:
    return function.apply(*operands)


for _name, _function in (
    ("bernoulli", _Bernoulli),
    ("choice", _Choice),
    ("grad_factor", _GradFactor),
    ("multinomial", _Multinomial),
):
    FUNCTIONS[_name] = functools.partial(_apply, _function)


def _is_distribution(p: Tensor, total: Tensor, dim: int) -> Tensor:
    """Whether probabilities are in [0, 1] and sum to 1, within the precision of their dtype."""
    tolerance = _SUM_TOLERANCE.get(p.dtype, _COARSE_TOLERANCE)
    inside = ((p >= 0.0) & (p <= 1.0)).all(dim, keepdim=True)
    return inside & ((total - 1.0).abs() <= tolerance)


# -- noise and indices ----------------------------------------------------------------------------


def _uniform_noise(
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


def _draw_indices(
    n: int,
    k: int,
    replace: bool,
    p: Tensor | None,
    device: torch.device,
    generator: torch.Generator | None,
) -> Tensor:
    """Indices (k,) int64 of n items."""
    if replace:
        noise = _uniform_noise((k,), device, generator)
        if p is None:
            return (noise * n).long().clamp(max=n - 1)
        cumulated, point = _cumulated(p, noise, -1)
        return torch.searchsorted(cumulated, point, right=True).clamp(max=n - 1)
    # Efraimidis and Spirakis (2006): the largest of noise ** (1 / p) are drawn without replacement.
    keys = torch.log1p(-_uniform_noise((n,), device, generator))
    if p is not None:
        keys = torch.where(p > 0.0, keys / p, -torch.inf)
    return keys.topk(k).indices
