"""Buffers of the caller: overwritten, aliased or unfit ones raise, never a wrong gradient."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import compare
from primitives import KINDS, Call, paths, scenes
from refusals import forbid_launches
from warp_collision import MeshWorld

Tensor = torch.Tensor


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the two Functions."""
    return request.param


@cache
def world_of(device: torch.device) -> MeshWorld:
    """One for all tests: they change buffers, and no world."""
    return compare.build_world(scenes(), device)


@pytest.fixture
def call(kind: str, device: torch.device) -> Call:
    """A call with spheres that require a gradient."""
    return Call(kind, paths(device).requires_grad_(True), world_of(device))


# -- stale buffers --------------------------------------------------------------------------------

# Torch says the first of a tensor that backward needs, the second of the cost itself.
STALE = "modified by an inplace operation|base has been modified inplace"


def call_again(call: Call) -> None:
    """A second forward into the same buffers, at other spheres."""
    call(query_spheres=(call.spheres.detach() * 0.5).requires_grad_(True))


def call_again_without_gradients(call: Call) -> None:
    """The same inside `no_grad`, as for a line search."""
    with torch.no_grad():
        call(query_spheres=call.spheres * 0.5)


def call_a_leaf_again_without_gradients(call: Call) -> None:
    """The same at spheres that require gradients themselves."""
    with torch.no_grad():
        call(query_spheres=(call.spheres.detach() * 0.5).requires_grad_(True))


def edit_by_hand(call: Call) -> None:
    """One element of the gradient buffer changes."""
    call["out_grad"][0, 0, 0, 0] += 1.0


def clear_by_hand(call: Call) -> None:
    """The buffers are zeroed, as older callers do between calls."""
    for buffer in call.buffers:
        buffer.zero_()


OVERWRITES = (call_again, edit_by_hand, clear_by_hand)


@pytest.mark.parametrize("overwrite", OVERWRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("return_loss", [False, True])
def test_an_overwritten_buffer_raises_in_backward(
    overwrite: Callable[[Call], None], return_loss: bool, call: Call
) -> None:
    loss = call(return_loss=return_loss).sum()
    overwrite(call)
    with pytest.raises(RuntimeError, match=STALE):
        loss.backward()
    assert call.spheres.grad is None


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("compute_esdf", [False, True])
@pytest.mark.parametrize("return_loss", [False, True])
def test_a_call_without_gradients_leaves_those_of_another_alone(
    return_loss: bool, compute_esdf: bool, leaf: bool, call: Call
) -> None:
    """As between forward and backward of an optimizer with a line search."""
    options = {"compute_esdf": True} if compute_esdf and call.kind == "rest" else {}
    loss = call(return_loss=return_loss, **options).sum()
    gradient, version = call["out_grad"].clone(), call["out_grad"]._version
    spheres = call.spheres.detach() * 0.5
    with torch.no_grad():
        again = call(query_spheres=spheres.requires_grad_(leaf), return_loss=return_loss, **options)
    assert not again.requires_grad
    assert torch.equal(call["out_grad"], gradient)
    assert call["out_grad"]._version == version
    loss.backward()
    assert call.spheres.grad is not None
    torch.testing.assert_close(call.spheres.grad, gradient)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_trace_is_refused(call: Call) -> None:
    def cost(spheres: Tensor) -> Tensor:
        return call(query_spheres=spheres).sum()

    with pytest.raises(RuntimeError, match="cannot record the drop-in Functions"):
        torch.jit.trace(cost, call.spheres.detach())


@pytest.mark.parametrize(
    "overwrite", [call_again, call_again_without_gradients, call_a_leaf_again_without_gradients]
)
def test_an_overwritten_cost_says_what_happened(
    overwrite: Callable[[Call], None], call: Call
) -> None:
    cost = call()
    overwrite(call)
    for use in (torch.sum, torch.square, lambda value: 2.0 * value):
        with pytest.raises(RuntimeError, match="a later call of a drop-in Function has written"):
            use(cost)
    assert cost.shape == call["out_cost"].shape
    assert torch.equal(cost.detach(), call["out_cost"])
    assert type(cost.detach()) is Tensor
    again = call(query_spheres=call.spheres)
    again.sum().backward()
    torch.testing.assert_close(call.spheres.grad, call["out_grad"])


def test_a_cost_that_was_cleared_by_hand_is_not_read(call: Call) -> None:
    cost = call()
    clear_by_hand(call)
    with pytest.raises(RuntimeError, match=STALE):
        cost.sum()


@pytest.mark.parametrize("return_loss", [False, True])
def test_the_last_of_two_calls_is_right(return_loss: bool, call: Call) -> None:
    first = call(return_loss=return_loss).sum()
    second = call().sum()
    with pytest.raises(RuntimeError, match=STALE):
        first.backward()
    second.backward()
    assert call.spheres.grad is not None
    torch.testing.assert_close(call.spheres.grad, call["out_grad"], rtol=1e-6, atol=1e-6)
    assert (call.spheres.grad != 0.0).any()


def test_a_function_of_an_overwritten_cost_raises(call: Call) -> None:
    """The square saves the cost itself, which is the caller's buffer."""
    loss = (call() ** 2).sum()
    call(out_grad=torch.empty_like(call["out_grad"]), query_spheres=call.spheres.detach() * 0.5)
    with pytest.raises(RuntimeError, match=STALE):
        loss.backward()


def test_other_buffers_of_a_later_call_do_no_harm(call: Call) -> None:
    """Two sets of buffers, as for two terms of one loss: both gradients are right."""
    first = call()
    other = Call(call.kind, call.spheres, call.world)
    second = other(weight=torch.full((1,), 2.0, device=call.spheres.device))
    (first.sum() + second.sum()).backward()
    assert call.spheres.grad is not None
    torch.testing.assert_close(call.spheres.grad, 3.0 * call["out_grad"], rtol=1e-5, atol=1e-5)


def test_a_leaf_keeps_its_gradient(call: Call) -> None:
    """The gradient that `backward` hands out is no view of a buffer that the next call writes."""
    call().sum().backward()
    kept = call.spheres.grad
    assert kept is not None
    before = kept.clone()
    call_again(call)
    assert torch.equal(kept, before)
    assert not torch.equal(call["out_grad"], before)


def test_backward_twice(call: Call) -> None:
    cost = call()
    (first,) = torch.autograd.grad(cost.sum(), call.spheres, retain_graph=True)
    (second,) = torch.autograd.grad(cost.sum(), call.spheres)
    assert torch.equal(first, second)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, nullcontext])
def test_calls_without_gradients(mode: Callable[[], Any], call: Call) -> None:
    expected = [buffer.clone() for buffer in (call().detach(), *call.buffers[1:])]
    with mode():
        fresh = Call(call.kind, call.spheres.detach(), call.world)
        cost = fresh()
        again = call(query_spheres=call.spheres.detach())
    for buffer, value in zip(fresh.buffers[::2], expected[::2], strict=True):
        assert torch.equal(buffer, value)
    assert torch.equal(cost, expected[0])
    assert torch.equal(again, expected[0])
    assert not cost.requires_grad


# -- what is refused ------------------------------------------------------------------------------

REFUSED = (RuntimeError, NotImplementedError)


@pytest.mark.parametrize("return_loss", [False, True])
@pytest.mark.parametrize("upstream_varies", [False, True])
def test_a_second_derivative_raises(return_loss: bool, upstream_varies: bool, call: Call) -> None:
    """A gradient penalty must not take the gradient for a constant."""
    cost = call(return_loss=return_loss)
    loss = (cost**2 if upstream_varies else cost).sum()

    def penalise() -> None:
        (gradient,) = torch.autograd.grad(loss, call.spheres, create_graph=True)
        (gradient * call.spheres).sum().backward()

    with pytest.raises(REFUSED):
        penalise()


def test_a_hessian_is_not_zero(call: Call) -> None:
    def loss(spheres: Tensor) -> Tensor:
        return Call(call.kind, spheres, call.world)(return_loss=True).sum()

    with pytest.raises(REFUSED):
        torch.autograd.functional.hessian(loss, call.spheres.detach()[:1, :2, :2])


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "grad": lambda f, x: torch.func.grad(lambda s: f(s).sum())(x),
    "vjp": lambda f, x: torch.func.vjp(f, x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda s: f(s).sum())(x),
    "vmap": lambda f, x: torch.func.vmap(f)(x[None]),
}


# Forward mode loads a part of torch that says this of itself.
OLD_TORCH = pytest.mark.filterwarnings("ignore:.*torch.jit.script")


@OLD_TORCH
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_raise(transform: str, call: Call) -> None:
    """A buffer of the caller has no batched or differentiable form."""
    with pytest.raises(REFUSED):
        TRANSFORMS[transform](lambda s: call(query_spheres=s), call.spheres.detach())


@OLD_TORCH
def test_forward_mode_raises(call: Call) -> None:
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level(), pytest.raises(REFUSED):
        call(query_spheres=forward_ad.make_dual(call.spheres, torch.ones_like(call.spheres)))


# -- unfit arguments ------------------------------------------------------------------------------


def meta(tensor: Tensor) -> Tensor:
    """The same on a device that no kernel runs on."""
    return torch.empty_like(tensor, device="meta")


def strided(tensor: Tensor) -> Tensor:
    """The same shape and type with a gap between neighbours."""
    return tensor.new_empty((*tensor.shape, 2))[..., 0]


def retyped(tensor: Tensor) -> Tensor:
    """The same shape in a type that is wrong everywhere."""
    return tensor.to(torch.float16)


BUFFERS = ("out_cost", "out_grad", "sparsity_idx")
SCALARS = ("weight", "activation_distance", "max_dist")
TABLES = ("mesh_idx", "mesh_pose_inverse", "mesh_enable", "n_env_mesh")
TENSORS = (*BUFFERS, *SCALARS, *TABLES)
Unfit = tuple[str, Callable[[Tensor], Any], type[Exception], str]
UNFIT: list[Unfit] = [
    *((name, meta, ValueError, r"must be on device \S+ like query_spheres, got meta")
      for name in TENSORS),
    *((name, retyped, TypeError, r"must be torch\.\w+, got torch\.float16") for name in TENSORS),
    *((name, lambda t: None, TypeError, r"must be a torch\.Tensor.*got NoneType")
      for name in TENSORS),
    *((name, strided, ValueError, r"must be contiguous, got strides")
      for name in (*BUFFERS, "mesh_idx", "mesh_pose_inverse", "mesh_enable")),
    *((name, lambda t: t[:1], ValueError, r"must have shape \(3, 6, 8.*\), got \(1, 6, 8")
      for name in BUFFERS),
    *((name, lambda t: t.transpose(0, 2).contiguous(), ValueError,
       r"must have shape \(3, 6, 8.*\), got \(8, 6, 3") for name in BUFFERS),
    *((name, lambda t: t.reshape(-1)[:-4].clone(), ValueError,
       r"must have shape \(3, 6, 8.*\), got \(\d+,\)") for name in BUFFERS),
    ("out_grad", lambda t: t.reshape(4, -1), ValueError, r"\(3, 6, 8, 4\), got \(4, 144\)"),
    *((name, lambda t: torch.cat([t, t]), ValueError, r"must have shape \(3, 6, 8.*got \(6, 6, 8")
      for name in BUFFERS),
    *((name, lambda t: t.expand(2), ValueError, r"must have shape \(1,\), got \(2,\)")
      for name in SCALARS),
    *((name, lambda t: t[:0], ValueError, r"must have shape \(1,\), got \(0,\)")
      for name in SCALARS),
    *((name, lambda t: 1.0, TypeError, r"must be a torch\.Tensor.*got float") for name in SCALARS),
    ("mesh_idx", lambda t: t[0], ValueError, r"must have shape \(n_envs, max_meshes\).*got \(4,\)"),
    ("mesh_idx", lambda t: t[:, :0], ValueError, r"both above 0, got \(2, 0\)"),
    ("mesh_pose_inverse", lambda t: t[..., :7].contiguous(), ValueError,
     r"must have shape \(2, 4, 8\), got \(2, 4, 7\)"),
    ("mesh_enable", lambda t: t[:, :2], ValueError, r"must have shape \(2, 4\), got \(2, 2\)"),
    ("n_env_mesh", lambda t: t[:1], ValueError, r"must have shape \(2,\), got \(1,\)"),
    ("env_query_idx", lambda _: torch.zeros((2, 1), dtype=torch.int32), ValueError,
     r"must have 3 elements, got shape \(2, 1\)"),
    ("env_query_idx", lambda _: torch.zeros(3), TypeError,
     r"must be integers, got torch\.float32"),
    ("env_query_idx", lambda _: torch.zeros(3, dtype=torch.bool), TypeError,
     r"must be integers, got torch\.bool"),
    ("env_query_idx", lambda _: torch.zeros(3, dtype=torch.int32, device="meta"), ValueError,
     "like query_spheres, got meta"),
    ("env_query_idx", lambda _: [0, 0, 0], TypeError, r"must be a torch\.Tensor.*got list"),
    ("query_spheres", lambda t: t[0], ValueError, r"have shape \(b, h, n, 4\), got \(6, 8, 4\)"),
    ("query_spheres", lambda t: t[..., :3], ValueError, r"\(b, h, n, 4\), got \(3, 6, 8, 3\)"),
    ("query_spheres", lambda t: t.long(), TypeError, r"must be floating point, got torch\.int64"),
    ("query_spheres", meta, ValueError, "must be on a cpu or cuda device, got meta"),
    ("query_spheres", lambda t: t.tolist(), TypeError, r"must be a torch\.Tensor.*got list"),
    ("out_cost", lambda t: t.requires_grad_(True), ValueError, "must not require a gradient"),
    ("out_grad", lambda t: t.requires_grad_(True), ValueError, "must not require a gradient"),
]  # fmt: skip


@pytest.fixture
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test in which a kernel runs."""
    forbid_launches(monkeypatch)


@pytest.mark.parametrize(
    ("name", "spoil", "error", "message"), UNFIT, ids=[f"{i}-{c[0]}" for i, c in enumerate(UNFIT)]
)
@pytest.mark.usefixtures("no_launch")
def test_unfit_arguments(
    name: str, spoil: Callable[[Any], Any], error: type[Exception], message: str, call: Call
) -> None:
    kept = call.buffers
    before = [buffer.clone() for buffer in kept]
    present = call[name]
    spoiled = spoil(present.detach() if isinstance(present, Tensor) else present)
    with pytest.raises(error, match=f"{name}.*{message}"):
        call(**{name: spoiled})
    assert all(map(torch.equal, [buffer.detach() for buffer in kept], before))


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2), (3, 0), (3, 1)])
def test_buffers_that_share_memory(pair: tuple[int, int], call: Call) -> None:
    names = ("out_cost", "out_grad", "sparsity_idx", "query_spheres")
    shared = torch.zeros(8 * call.spheres.nbytes, dtype=torch.uint8, device=call.spheres.device)

    def placed(name: str, begin: int) -> Tensor:
        like = call[name]
        view = shared[begin : begin + like.nbytes].view(like.dtype).reshape(like.shape)
        return view

    first, second = (names[i] for i in pair)
    message = f"{re.escape(first)} and {second}|{second} and {re.escape(first)}"
    overlap = placed(second, call[first].nbytes - 4)
    with pytest.raises(ValueError, match=rf"({message}) must not share memory"):
        call(**{first: placed(first, 0), second: overlap})


def test_buffers_may_lie_side_by_side(call: Call) -> None:
    """Slices of one allocation are no aliases."""
    expected = call().detach().clone()
    count = expected.numel()
    shared = torch.empty(5 * count, device=expected.device)
    cost, gradient = shared[:count].view(3, 6, 8), shared[count:].view(3, 6, 8, 4)
    assert torch.equal(call(out_cost=cost, out_grad=gradient), expected)
    np.testing.assert_array_equal(shared[:count].cpu(), expected.flatten().cpu())


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize("steps", [-1, 1.5, None, "1"])
def test_unfit_sweep_steps(steps: Any, device: torch.device) -> None:
    call = Call("swept", paths(device), world_of(device))
    with pytest.raises(ValueError, match=rf"sweep_steps must be an int, 0 or more, got {steps!r}"):
        call(sweep_steps=steps)
    with pytest.raises(TypeError, match=r"speed_dt must be a torch\.Tensor.*got float"):
        call(sweep_steps=1, speed_dt=0.1)
