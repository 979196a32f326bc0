"""The drop-in Functions and the compiler: graphs break at them, and no buffer is mixed up."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import compare
from cases import mostly_slow
from differentiable import JIT_WARNING, LEAF_WARNING, assert_same
from primitives import KINDS, Call, paths, scenes

Tensor = torch.Tensor
Loss = Callable[[Tensor], Tensor]

pytestmark = [
    pytest.mark.filterwarnings(JIT_WARNING),
    # The compiler makes the one and looks at the other where it breaks a graph.
    pytest.mark.filterwarnings(LEAF_WARNING),
    pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning"),
]

# Torch says the first of a tensor that backward needs, the second of the cost itself.
STALE = "modified by an inplace operation|base has been modified inplace|has written another cost"
# Of the two Functions one, where a call is compiled and takes its time; the slow part has both.
of_one_kind = pytest.mark.parametrize("call", mostly_slow(KINDS, ("swept",)), indirect=True)
BACKENDS = ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(params=KINDS)
def call(request: pytest.FixtureRequest, device: torch.device) -> Call:
    """A call of each of the two Functions."""
    return Call(request.param, paths(device), compare.build_world(scenes(), device))


def value_and_gradient(loss: Loss, spheres: Tensor) -> tuple[Tensor, Tensor]:
    """By plain backward."""
    leaf = spheres.clone().requires_grad_(True)
    value = loss(leaf)
    value.backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def test_a_full_graph_raises(call: Call) -> None:
    """With the reason, and with or without gradients."""

    def loss(spheres: Tensor) -> Tensor:
        return call(query_spheres=spheres).sum()

    whole = torch.compile(loss, fullgraph=True, backend="aot_eager")
    refusal = pytest.raises(torch._dynamo.exc.Unsupported, match="write buffers of the caller")
    with refusal:
        value_and_gradient(whole, call.spheres)
    with refusal, torch.no_grad():
        whole(call.spheres)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("return_loss", mostly_slow((False, True), (True,)))
@of_one_kind
def test_a_broken_graph_is_right(backend: str, return_loss: bool, call: Call) -> None:
    """What stands before and behind the call is compiled, the call is as it ever was."""

    def loss(spheres: Tensor) -> Tensor:
        moved = spheres * 0.9 + 0.01
        cost = call(query_spheres=moved, return_loss=return_loss)
        return (cost * (2.0 if return_loss else 1.0)).sum()

    expected = value_and_gradient(loss, call.spheres)
    buffers = [buffer.clone() for buffer in call.buffers]
    assert (expected[1] != 0.0).any()
    compiled = torch.compile(loss, backend=backend)
    for _ in range(2):
        for buffer in call.buffers:
            buffer.fill_(7)
        assert_same(value_and_gradient(compiled, call.spheres), expected)
        assert_same(call.buffers, buffers)


@pytest.mark.parametrize("backend", BACKENDS)
@of_one_kind
def test_two_calls_with_their_own_buffers(backend: str, call: Call) -> None:
    other = Call(call.kind, call.spheres, call.world)

    def loss(spheres: Tensor) -> Tensor:
        first = call(query_spheres=spheres)
        second = other(query_spheres=spheres * 0.5)
        return (first + second).sum()

    expected = value_and_gradient(loss, call.spheres)
    assert_same(value_and_gradient(torch.compile(loss, backend=backend), call.spheres), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("return_loss", mostly_slow((False, True), (True,)))
@of_one_kind
def test_two_calls_that_share_buffers(backend: str, return_loss: bool, call: Call) -> None:
    """Their costs are right, and backward of the first one raises instead of taking the second."""

    def loss(spheres: Tensor) -> Tensor:
        first = call(query_spheres=spheres, return_loss=return_loss) * 1.0
        second = call(query_spheres=spheres * 0.5, return_loss=return_loss)
        return (first + second).sum()

    compiled = torch.compile(loss, backend=backend)
    with torch.no_grad():
        assert_same(compiled(call.spheres), loss(call.spheres))
    for function in (loss, compiled):
        with pytest.raises(RuntimeError, match=STALE):
            value_and_gradient(function, call.spheres)


@pytest.mark.parametrize("backend", BACKENDS)
@of_one_kind
def test_the_last_of_two_calls_has_its_gradient(backend: str, call: Call) -> None:
    """As a line search does it: a look at a cost, and then one with gradients."""

    def loss(spheres: Tensor) -> Tensor:
        with torch.no_grad():
            first = call(query_spheres=spheres) * 1.0
        return first.sum() + (call(query_spheres=spheres * 0.5) * 1.0).sum()

    expected = value_and_gradient(loss, call.spheres)
    assert_same(value_and_gradient(torch.compile(loss, backend=backend), call.spheres), expected)


@of_one_kind
def test_an_overwritten_cost_is_not_read(call: Call) -> None:
    def loss(spheres: Tensor) -> Tensor:
        first = call(query_spheres=spheres)
        second = call(query_spheres=spheres * 0.5)
        return (first + second).sum()

    for function in (loss, torch.compile(loss, backend="aot_eager")):
        with pytest.raises(RuntimeError, match=STALE):
            value_and_gradient(function, call.spheres)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.jacfwd])
@of_one_kind
def test_transforms_raise(transform: Callable[..., Any], call: Call) -> None:
    """A buffer of the caller has no batched form, and no tangent."""
    spheres = call.spheres[None] if transform is torch.func.vmap else call.spheres
    function = transform(lambda s: call(query_spheres=s).sum())
    with pytest.raises(RuntimeError, match="setup_context"):
        function(spheres)
    with pytest.raises(Exception, match=r"setup_context|write buffers of the caller"):
        torch.compile(function, backend="aot_eager")(spheres)


def test_forward_mode_raises(call: Call) -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(call.spheres, call.spheres)
        with pytest.raises(NotImplementedError, match="must implement the jvp function"):
            call(query_spheres=dual)


@pytest.mark.parametrize("strict", [False, True])
def test_export_raises(strict: bool, call: Call) -> None:
    """An exported program has no buffers of the caller."""

    class Model(torch.nn.Module):
        def forward(self, spheres: Tensor) -> Tensor:
            return call(query_spheres=spheres)

    with pytest.raises(Exception, match="write buffers of the caller"):
        torch.export.export(Model(), (call.spheres,), strict=strict)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("return_loss", [False, True])
def test_checkpointing(return_loss: bool, use_reentrant: bool, call: Call) -> None:
    """The buffers are written again before backward reads them."""

    def loss(spheres: Tensor) -> Tensor:
        cost = call(query_spheres=spheres, return_loss=return_loss)
        return (cost * (2.0 if return_loss else 1.0)).sum()

    def checkpointed(spheres: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(loss, spheres, use_reentrant=use_reentrant)

    expected = value_and_gradient(loss, call.spheres)
    assert_same(value_and_gradient(checkpointed, call.spheres), expected)
    assert (expected[1] != 0.0).any()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(mode: Callable[[], Any], call: Call) -> None:
    """The buffers are the same as with gradients."""
    expected = call().detach().clone()
    buffers = [buffer.clone() for buffer in call.buffers]
    for buffer in call.buffers:
        buffer.fill_(7)
    with mode():
        cost = call()
    assert not cost.requires_grad
    assert torch.equal(cost, expected)
    assert all(map(torch.equal, call.buffers, buffers))


def test_autocast_computes_in_float32(call: Call) -> None:
    expected = value_and_gradient(lambda s: call(query_spheres=s).sum(), call.spheres)
    with torch.autocast(call.spheres.device.type, dtype=torch.bfloat16):
        found = value_and_gradient(lambda s: call(query_spheres=s).sum(), call.spheres)
    assert found[0].dtype == torch.float32
    assert_same(found, expected)
