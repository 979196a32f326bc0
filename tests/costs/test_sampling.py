"""Draws: their laws and their gradients."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func

import compare
import shapes
from differentiable import JIT_WARNING, assert_same
from warp_collision import MeshWorld, checking, sphere_cost
from warp_collision.sampling import GradFactor, choice, sample_bernoulli, sample_multinomial

Tensor = torch.Tensor

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)

N = 40_000  # draws of a statistical test
SIGMAS = 5.0  # a right sampler fails one in two million times; the seeds are fixed anyway


def seeded(device: torch.device, seed: int = 121) -> torch.Generator | None:
    """A generator on a device."""
    return compare.seeded(device, seed)


def assert_frequency(share: Tensor, p: Tensor, draws: int = N) -> None:
    """Shares of draws are what binomial noise allows."""
    p = p.double()
    bound = SIGMAS * torch.sqrt(p * (1.0 - p) / draws) + 1e-12
    assert ((share.double() - p).abs() <= bound).all(), (share, p)


# -- the law of the draws -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_bernoulli(dtype: torch.dtype, device: torch.device) -> None:
    p = torch.tensor([0.0, 0.01, 0.3, 0.5, 0.99, 1.0], dtype=dtype, device=device)
    sample = sample_bernoulli(p.expand(N, 6), generator=seeded(device))
    assert sample.shape == (N, 6)
    assert sample.dtype is dtype
    assert ((sample == 0.0) | (sample == 1.0)).all()
    assert_frequency(sample.double().mean(0), p)


def test_bernoulli_draws_each_element_for_itself(device: torch.device) -> None:
    sample = sample_bernoulli(torch.full((N, 2), 0.5, device=device), generator=seeded(device))
    both = (sample.sum(1) == 2.0).float().mean()
    assert_frequency(both, torch.tensor(0.25, device=device))


def test_what_is_rare_stays_rare(device: torch.device) -> None:
    """Noise of 24 bits would draw one in 17 million, whatever smaller the probability."""
    p = torch.full((4_000_000,), 1e-12, device=device)
    assert all(sample_bernoulli(p, generator=seeded(device, s)).sum() == 0.0 for s in range(5))


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_multinomial(dim: int, device: torch.device) -> None:
    p = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0], device=device)
    shape = [N, 3]
    shape.insert(dim if dim >= 0 else 3 + dim, 6)
    view = [1, 1, 1]
    view[dim] = 6
    sample = sample_multinomial(p.view(view).expand(shape), dim, generator=seeded(device))
    assert list(sample.shape) == shape
    assert ((sample == 0.0) | (sample == 1.0)).all()
    assert (sample.sum(dim) == 1.0).all()
    shares = sample.movedim(dim, -1).reshape(-1, 6).mean(0)
    assert_frequency(shares, p, 3 * N)


def test_a_single_category() -> None:
    assert sample_multinomial(torch.ones(4, 1)).tolist() == [[1.0]] * 4


def test_choice_with_replacement(device: torch.device) -> None:
    p = torch.tensor([0.1, 0.0, 0.6, 0.3], device=device)
    index = choice(4, k=N, p=p, generator=seeded(device))
    assert index.dtype is torch.int64
    assert_frequency(torch.bincount(index, minlength=4) / N, p)
    even = choice(4, k=N, device=device, generator=seeded(device))
    assert_frequency(torch.bincount(even, minlength=4) / N, torch.full((4,), 0.25, device=device))


def test_many_draws_of_many_items(device: torch.device) -> None:
    """The memory grows with the sum of both numbers; frequencies pass Pearson's test."""
    p = torch.rand(50_000, device=device, generator=seeded(device))
    p[::3] = 0.0
    p /= p.sum()
    count = 1_000_000
    drawn = torch.bincount(
        choice(50_000, k=count, p=p, generator=seeded(device, 1)), minlength=50_000
    )
    assert (drawn[::3] == 0).all()
    expected = count * p.double()[p > 0.0]
    excess = ((drawn[p > 0.0] - expected) ** 2 / expected).sum().item()
    freedom = len(expected) - 1  # Pearson's sum has this mean; cells of one draw widen it a little
    assert abs(excess - freedom) < 6.0 * (2.0 * freedom + (1.0 / expected).sum().item()) ** 0.5


@pytest.mark.parametrize("weights", [(0.1, 0.0, 0.6, 0.3), None])
def test_choice_without_replacement(
    weights: tuple[float, ...] | None, device: torch.device
) -> None:
    """Ordered pairs have the law of one draw after the other from what is left."""
    law = weights or (0.25,) * 4
    p = None if weights is None else torch.tensor(weights, device=device)
    generator, draws = seeded(device), 3000
    counts: dict[tuple[int, ...], int] = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for _ in range(draws):
        pair = choice(4, k=2, replace=False, p=p, device=device, generator=generator)
        counts[tuple(pair.tolist())] += 1
    for (i, j), count in counts.items():
        expected = law[i] * law[j] / (1.0 - law[i])
        assert_frequency(torch.tensor(count / draws), torch.tensor(expected), draws)


def test_choice_of_all_is_a_permutation(device: torch.device) -> None:
    generator = seeded(device)
    for p in (None, torch.tensor([0.7, 0.1, 0.1, 0.1], device=device)):
        drawn = choice(4, k=4, replace=False, p=p, device=device, generator=generator)
        assert sorted(drawn.tolist()) == [0, 1, 2, 3]


def test_items(device: torch.device) -> None:
    """Numbers, sequences and tensors of any shape, in the dtype and on the device asked for."""
    generator = seeded(device)
    assert choice([2.5], k=3, device=device, generator=generator).tolist() == [2.5] * 3
    table = torch.arange(12, device=device).reshape(4, 3)
    rows = choice(table, k=5, generator=generator)
    assert rows.shape == (5, 3)
    assert all(row in table.tolist() for row in rows.tolist())
    envs = choice(3, k=2, dtype=torch.int32, device=device, generator=generator)
    assert envs.dtype is torch.int32
    assert envs.device.type == device.type
    assert choice((1, 2), k=2, dtype=torch.float64, generator=None).dtype is torch.float64
    assert choice(7, p=torch.full((7,), 1 / 7, device=device)).device.type == device.type


def test_generators(device: torch.device) -> None:
    """The same seed draws the same; without a generator torch's own seed does."""
    p = torch.full((64,), 0.5, device=device)
    draws: tuple[Callable[..., Tensor], ...] = (
        lambda **k: sample_bernoulli(p, **k),
        lambda **k: sample_multinomial(p / 32.0, **k),
        lambda **k: choice(1000, k=64, device=device, **k),
        lambda **k: choice(1000, k=64, replace=False, device=device, **k),
    )
    for draw in draws:
        first, second, third = (draw(generator=seeded(device, s)) for s in (1, 1, 2))
        assert torch.equal(first, second)
        assert not torch.equal(first, third)
        torch.manual_seed(5)
        fourth = draw()
        torch.manual_seed(5)
        assert torch.equal(fourth, draw())


# -- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [sample_bernoulli, sample_multinomial])
def test_gradients_pass_straight_through(draw: Callable[..., Tensor], device: torch.device) -> None:
    p = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], device=device, requires_grad=True)
    upstream = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, 7.0]], device=device)
    (draw(p) * upstream).sum().backward()
    assert torch.equal(p.grad, upstream)
    plain = p.detach()
    assert torch.equal(func.grad(lambda q: (draw(q) * upstream).sum())(plain), upstream)
    assert torch.equal(func.jvp(draw, (plain,), (upstream,))[1], upstream)
    identity = torch.eye(6, device=device).reshape(2, 3, 2, 3)
    assert torch.equal(func.jacrev(draw)(plain), identity)
    rows = func.vmap(func.grad(lambda q, u: (draw(q) * u).sum()), randomness="different")(
        plain, upstream
    )
    assert torch.equal(rows, upstream)


def test_gradients_of_choice(device: torch.device) -> None:
    """By the items that were drawn exactly, by p that of the mean."""
    items = torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]], device=device)
    p = torch.tensor([0.2, 0.5, 0.3], device=device)
    upstream = torch.tensor([[1.0, 0.0], [2.0, -1.0], [0.5, 0.5], [0.0, 3.0]], device=device)

    def loss(a: Tensor, q: Tensor) -> Tensor:
        return (choice(a, k=4, p=q, generator=seeded(device)) * upstream).sum()

    drawn = choice(torch.arange(3, device=device), k=4, p=p, generator=seeded(device))
    by_items = torch.zeros_like(items).index_add(0, drawn, upstream)
    by_p = (items * upstream.sum(0)).sum(1)
    leaves = [x.clone().requires_grad_(True) for x in (items, p)]
    loss(*leaves).backward()
    assert_same([leaf.grad for leaf in leaves], [by_items, by_p])
    assert_same(func.grad(loss, argnums=(0, 1))(items, p), (by_items, by_p))
    _, tangent = func.jvp(loss, (items, p), (torch.ones_like(items), p))
    assert_same(tangent, by_items.sum() + (by_p * p).sum())


def test_the_gradient_of_choice_is_right_on_average(device: torch.device) -> None:
    """The mean of many draws has the gradient of the mean."""
    items = torch.tensor([1.0, 3.0, 7.0], device=device, requires_grad=True)
    p = torch.tensor([0.2, 0.5, 0.3], device=device, requires_grad=True)
    choice(items, k=N, p=p, generator=seeded(device)).mean().backward()
    assert_same(p.grad, items.detach())
    assert_frequency(items.grad, p.detach())


def test_what_is_not_differentiable(device: torch.device) -> None:
    p = torch.tensor([0.2, 0.5, 0.3], device=device, requires_grad=True)
    index = choice(3, k=4, p=p)
    assert not index.requires_grad
    with pytest.raises(ValueError, match="p must not require a gradient without replacement"):
        choice(3, k=2, replace=False, p=p)
    items = torch.tensor([1.0, 3.0, 7.0], device=device, requires_grad=True)
    choice(items, k=2, replace=False, p=p.detach(), generator=seeded(device)).sum().backward()
    assert sorted(items.grad.tolist()) == [0.0, 1.0, 1.0]


def test_vmap_wants_to_be_told_of_randomness(device: torch.device) -> None:
    p = torch.full((200, 3), 1 / 3, device=device)
    for draw in (sample_bernoulli, sample_multinomial, lambda q: choice(3, k=3, p=q)):
        with pytest.raises(RuntimeError, match="randomness"):
            func.vmap(draw)(p)
        same = func.vmap(draw, randomness="same")(p)
        assert (same == same[0]).all()
        different = func.vmap(draw, randomness="different")(p)
        assert (different != different[0]).any()


@pytest.mark.parametrize(
    "draw",
    [sample_bernoulli, sample_multinomial, lambda p: choice(torch.arange(3.0), k=2, p=p)],
    ids=["bernoulli", "multinomial", "choice"],
)
def test_compiled(draw: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    p = torch.tensor([0.0, 1.0, 0.0])
    expected = func.grad(lambda q: (2.0 * draw(q)).sum())(p)
    compiled = torch.compile(lambda q: (2.0 * draw(q)).sum(), fullgraph=True, backend="aot_eager")
    leaf = p.clone().requires_grad_(True)
    compiled(leaf).backward()
    assert torch.equal(leaf.grad, expected)
    torch._dynamo.reset()
    whole = torch.compile(draw, fullgraph=True, backend="aot_eager")
    assert torch.equal(whole(p), draw(p))


# -- GradFactor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.25, 0.0, -1.0, 3])
def test_grad_factor(factor: float, device: torch.device) -> None:
    x = torch.tensor([[1.0, -2.0], [3.0, 0.5]], device=device)

    def loss(y: Tensor) -> Tensor:
        return (GradFactor.apply(y, factor) ** 2).sum()

    assert torch.equal(GradFactor.apply(x, factor), x)
    leaf = x.clone().requires_grad_(True)
    loss(leaf).backward()
    assert torch.equal(leaf.grad, 2.0 * factor * x)
    assert torch.equal(func.grad(loss)(x), 2.0 * factor * x)
    assert torch.equal(func.vmap(func.grad(loss))(x), 2.0 * factor * x)
    assert torch.equal(func.jvp(lambda y: GradFactor.apply(y, factor), (x,), (x,))[1], factor * x)
    assert torch.equal(
        torch.autograd.functional.hessian(loss, x).sum((2, 3)), x * 0 + 2 * factor**2
    )


def test_factors_that_are_tensors(device: torch.device) -> None:
    x = torch.tensor([[1.0, -2.0], [3.0, 0.5]], device=device)
    factor = torch.tensor([0.1, 10.0], device=device)

    def gradient(y: Tensor, f: Tensor) -> Tensor:
        return func.grad(lambda z: GradFactor.apply(z, f).sum())(y)

    assert torch.equal(gradient(x, factor), factor.expand(2, 2))
    assert torch.equal(func.vmap(gradient)(x, factor), factor[:, None].expand(2, 2))
    assert torch.equal(func.vmap(gradient, (None, 0))(x[0], factor), factor[:, None].expand(2, 2))
    leaf = factor.clone().requires_grad_(True)
    by_factor = torch.autograd.grad(
        GradFactor.apply(x.requires_grad_(True), leaf).sum(), leaf, allow_unused=True
    )
    assert by_factor == (None,)


def test_grad_factor_compiled() -> None:
    """Inside `func.grad` too, where the compiler forgets the backward of Functions it reads."""
    x = torch.tensor([1.0, 2.0, 3.0])

    def loss(y: Tensor, factor: float) -> Tensor:
        return GradFactor.apply(y, factor).sum()

    for function in (func.grad(loss), func.vmap(func.grad(loss), (0, None))):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for factor in (0.5, 0.25):
            assert torch.equal(compiled(x, factor), torch.full((3,), factor))


def test_a_collision_term_is_balanced(device: torch.device) -> None:
    world = MeshWorld(device=device)
    block = shapes.box((1.0, 1.0, 1.0))
    world.add("block", (block.vertices, block.faces))
    sphere = torch.tensor([0.45, 0.0, 0.0, 0.1], device=device, requires_grad=True)
    cost = GradFactor.apply(sphere_cost(sphere.reshape(1, 1, 1, 4), world), 0.1)
    cost.sum().backward()
    assert cost.item() == pytest.approx(0.16)
    assert_same(sphere.grad, torch.tensor([-0.1, 0.0, 0.0, 0.1], device=device))


# -- bad input ------------------------------------------------------------------------------------

OK = torch.tensor([0.25, 0.75])
BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: sample_bernoulli(0.5), TypeError, "p must be a torch.Tensor"),  # pyright: ignore
    (lambda: sample_bernoulli(torch.ones(2, dtype=torch.int64)), TypeError, "floating point"),
    (
        lambda: sample_bernoulli(torch.tensor([0.5, -0.1])),
        ValueError,
        r"p must be in \[0, 1\], got",
    ),
    (lambda: sample_bernoulli(torch.tensor([1.5])), ValueError, r"p must be in \[0, 1\], got 1.5"),
    (lambda: sample_bernoulli(torch.tensor([torch.nan])), ValueError, "got nan"),
    (
        lambda: sample_multinomial(torch.tensor([0.5, 0.6])),
        ValueError,
        "p must sum to 1 .* got 1.1",
    ),
    (lambda: sample_multinomial(torch.tensor([-0.5, 1.5])), ValueError, r"in \[0, 1\]"),
    (
        lambda: sample_multinomial(torch.ones(2, 0)),
        ValueError,
        r"categories along dim, got \(2, 0\)",
    ),
    (lambda: sample_multinomial(torch.tensor(1.0)), IndexError, r"dim must be an axis of p"),
    (lambda: sample_multinomial(OK, 1), IndexError, r"in \[-1, 1\), got 1"),
    (lambda: choice(0), ValueError, "a must be at least 1, got 0"),
    (lambda: choice(True), TypeError, "a must be an int, a sequence or a tensor, got bool"),
    (lambda: choice("abc"), TypeError, "got str"),  # pyright: ignore[reportArgumentType]
    (lambda: choice([]), ValueError, r"a must have items along its first axis, got \(0,\)"),
    (lambda: choice(torch.tensor(1.0)), ValueError, r"got \(\)"),
    (lambda: choice(2, k=0), ValueError, "k must be at least 1, got 0"),
    (lambda: choice(2, k=1.5), TypeError, "k must be an int"),  # pyright: ignore
    (lambda: choice(2, k=3, replace=False), ValueError, "k must be at most .* 2, got 3"),
    (lambda: choice(2, p=torch.ones(3) / 3), ValueError, r"p must have shape \(n,\) = \(2,\)"),
    (lambda: choice(2, p=torch.tensor([0.5, 0.4])), ValueError, "p must sum to 1"),
    (lambda: choice(2, p=[0.5, 0.5]), TypeError, "p must be a torch.Tensor"),  # pyright: ignore
    (
        lambda: choice(3, k=2, replace=False, p=torch.tensor([1.0, 0.0, 0.0])),
        ValueError,
        "items of probability above 0 without replacement, 1, got 2",
    ),
    (lambda: GradFactor.apply(OK, "f"), TypeError, "f must be a number or a tensor, got str"),  # pyright: ignore
    (lambda: GradFactor.apply(1.0, 2.0), TypeError, "x must be a torch.Tensor"),  # pyright: ignore
    (lambda: GradFactor.apply(OK, torch.ones(3)), ValueError, r"f must broadcast .* got \(3,\)"),
    (lambda: GradFactor.apply(OK, torch.ones(2, 2)), ValueError, r"f must broadcast"),
]


@pytest.mark.parametrize("place", range(len(BAD)))
def test_bad_input(place: int) -> None:
    call, error, message = BAD[place]
    with pytest.raises(error, match=message):
        call()


def test_values_that_are_not_looked_at_give_nan() -> None:
    """Under `vmap` there is no looking at values; nothing false comes of it."""
    p = torch.tensor([[0.5, 0.5], [-0.1, 1.1], [torch.nan, 0.5], [0.3, 0.3]])
    different = {"randomness": "different"}
    bernoulli = func.vmap(sample_bernoulli, **different)(p)
    assert torch.isnan(bernoulli).tolist() == [[False] * 2, [True] * 2, [True, False], [False] * 2]
    multinomial = func.vmap(sample_multinomial, **different)(p)
    assert torch.isnan(multinomial).all(1).tolist() == [False, True, True, True]
    with checking(), pytest.raises(ValueError, match=r"p must be in \[0, 1\]"):
        sample_bernoulli(p)
