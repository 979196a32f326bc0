"""What the library asks of torch's private parts; these fail first when torch changes."""

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from warp_collision import torch_private


class Idle(TorchDispatchMode):
    """A dispatch mode that changes nothing."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_plain_code_is_not_transformed() -> None:
    assert not torch_private.is_transformed()
    assert not torch_private.is_func_transformed()
    assert not torch_private.has_forward_tangents()


@pytest.mark.parametrize("transform", [func.vmap, func.grad])
def test_transforms_of_func_are_seen(transform: Callable[..., Callable[..., Tensor]]) -> None:
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append((torch_private.is_transformed(), torch_private.is_func_transformed()))
        return (x * x).sum()

    transform(function)(torch.ones(3))
    assert seen == [(True, True)]


def test_forward_mode_is_seen() -> None:
    with forward_ad.dual_level():
        assert torch_private.is_transformed()
        assert torch_private.has_forward_tangents()
        assert not torch_private.is_func_transformed()
    with torch.no_grad():
        assert not torch_private.has_forward_tangents()


def test_dispatch_modes_are_seen() -> None:
    with Idle():
        assert torch_private.is_transformed()
    assert not torch_private.is_transformed()


@pytest.mark.filterwarnings("ignore:.*vmap.*")
def test_a_batch_of_gradients_is_seen() -> None:
    seen = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx, upstream: Tensor) -> Tensor:
            seen.append(torch_private.is_batched_gradient(upstream))
            return upstream.clone()

    x = torch.ones(2, requires_grad=True)
    y = Watch.apply(x)
    torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True, retain_graph=True)
    torch.autograd.grad(y, x, torch.ones(2))
    assert seen == [True, False]


def test_a_broken_graph_raises_where_it_must_be_whole() -> None:
    def function(x: Tensor) -> Tensor:
        torch_private.break_graph("for a reason")
        return x + 1.0

    with pytest.raises(torch._dynamo.exc.Unsupported, match="for a reason"):
        torch.compile(function, backend="eager", fullgraph=True)(torch.ones(1))
    assert torch.compile(function, backend="eager")(torch.ones(1)).item() == 2.0


def test_the_compiler_is_kept_out() -> None:
    seen = []

    def inner(x: Tensor) -> Tensor:
        seen.append(torch.compiler.is_compiling())
        return x + 1.0

    disabled = torch_private.keep_compiler_out(inner, "for a reason")
    assert disabled is not None
    torch.compile(lambda x: disabled(x) * 2.0, backend="eager")(torch.ones(1))
    assert seen == [False]


def test_a_compiled_backward_that_is_differentiated_is_seen() -> None:
    def _double_backward() -> bool:
        return torch_private.is_double_backward_of_graph()

    assert _double_backward()
    assert not torch_private.is_double_backward_of_graph()
    # The name is that of torch's own function.
    from torch._functorch._aot_autograd import runtime_wrappers

    assert "def _double_backward(" in inspect.getsource(runtime_wrappers)


class Scaled(torch.autograd.Function):
    """A multiple; its forward reads memory, as launches do."""

    @staticmethod
    def forward(ctx, x, factor):
        assert x.data_ptr()
        ctx.factor = factor
        return factor * x

    @staticmethod
    def backward(ctx, upstream):
        return ctx.factor * upstream, None


def test_functions_are_applied_outside_of_transforms() -> None:
    x = torch.rand(3, requires_grad=True)
    result = torch_private.apply_outside(Scaled, x, 3.0)
    assert torch.equal(result, Scaled.apply(x, 3.0))
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0] * 3


def test_what_has_left_a_transform_is_the_tensor_inside() -> None:
    left: list[Tensor] = []
    func.grad(lambda x: (left.append(x), x.sum())[1])(torch.arange(3.0))
    with pytest.raises(RuntimeError, match="data"):
        left[0].data_ptr()
    assert torch_private.apply_outside(Scaled, left[0], 3.0).tolist() == [0.0, 3.0, 6.0]
