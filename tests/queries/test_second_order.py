"""Second derivatives are not defined: every way to one raises, and none gives zeros."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import func
from torch.autograd import forward_ad, functional

from cases import mostly_slow
from differentiable import (
    JIT_WARNING,
    LEAF_WARNING,
    NAMES,
    NAMES_TO_COMPILE,
    Case,
    assert_same,
    backward,
    case_of,
)
from warp_collision import clearance, signed_distance

Tensor = torch.Tensor
Loss = Callable[[Tensor], Tensor]

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)

REFUSAL = "the second derivative of a collision cost or distance is not defined"
# In forward mode poses have no first derivative either.
FORWARD_REFUSAL = "forward mode is defined for spheres and points only"


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the four functions."""
    return case_of(request.param, device)


@pytest.fixture(params=[False, True], ids=["alone", "in a sum"])
def in_a_sum(request: pytest.FixtureRequest) -> bool:
    """Whether another term has a second derivative, beside which a zero would go unnoticed."""
    return request.param


@pytest.fixture(params=["spheres", "poses"])
def problem(request: pytest.FixtureRequest, case: Case, in_a_sum: bool) -> tuple[Loss, Tensor]:
    """A loss and a point, by spheres or by poses."""
    return problem_of(case, request.param, in_a_sum)


def problem_of(case: Case, operand: str, in_a_sum: bool) -> tuple[Loss, Tensor]:
    """A loss by one of the operands, and where to differentiate it."""
    loss = case.loss if operand == "spheres" else case.loss_of_poses
    return ((lambda y: loss(y) + (y**2).sum()) if in_a_sum else loss), getattr(case, operand)


def gradient_graph(loss: Loss, x: Tensor) -> tuple[Tensor, Tensor]:
    """A leaf and its gradient, made with ``create_graph``."""
    leaf = x.detach().clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    return leaf, gradient


def twice(loss: Loss, x: Tensor) -> None:
    """By `torch.autograd.grad`, which looks for nothing but the way to x."""
    leaf, gradient = gradient_graph(loss, x)
    torch.autograd.grad(gradient.sum(), leaf)


def twice_by_backward(loss: Loss, x: Tensor) -> None:
    """By ``backward`` on a norm of the gradient."""
    _, gradient = gradient_graph(loss, x)
    gradient.square().sum().backward()


def twice_unused(loss: Loss, x: Tensor) -> None:
    """Where torch is told to take what it does not find for zero."""
    leaf, gradient = gradient_graph(loss, x)
    torch.autograd.grad(gradient.sum(), leaf, allow_unused=True, materialize_grads=True)


def forward_over_reverse(loss: Loss, x: Tensor) -> None:
    """Dual numbers through backward."""
    with forward_ad.dual_level():
        leaf = x.detach().clone().requires_grad_(True)
        value = loss(forward_ad.make_dual(leaf, torch.ones_like(leaf)))
        torch.autograd.grad(value, leaf, create_graph=True)


def reverse_over_forward(loss: Loss, x: Tensor) -> None:
    """Backward of a tangent."""
    with forward_ad.dual_level():
        leaf = x.detach().clone().requires_grad_(True)
        value = loss(forward_ad.make_dual(leaf, torch.ones_like(leaf)))
        tangent = forward_ad.unpack_dual(value).tangent
        torch.autograd.grad(tangent, leaf)


def slope(loss: Loss, x: Tensor) -> Tensor:
    """The derivative along a direction, by forward mode."""
    return func.jvp(loss, (x,), (torch.ones_like(x),))[1]


ROUTES: dict[str, Callable[[Loss, Tensor], Any]] = {
    "create_graph twice": twice,
    "create_graph, then backward": twice_by_backward,
    "create_graph, unused as zeros": twice_unused,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "functional.hessian": lambda f, x: functional.hessian(f, x),
    "functional.hvp": lambda f, x: functional.hvp(f, x, torch.ones_like(x)),
    "functional.vhp": lambda f, x: functional.vhp(f, x, torch.ones_like(x)),
    "func.hessian": lambda f, x: func.hessian(f)(x),
    "jacrev of jacrev": lambda f, x: func.jacrev(func.jacrev(f))(x),
    "jacfwd of jacrev": lambda f, x: func.jacfwd(func.jacrev(f))(x),
    "jacrev of jacfwd": lambda f, x: func.jacrev(func.jacfwd(f))(x),
    "jacfwd of jacfwd": lambda f, x: func.jacfwd(func.jacfwd(f))(x),
    "grad of grad": lambda f, x: func.grad(lambda y: func.grad(f)(y).sum())(x),
    "jvp of grad": lambda f, x: slope(func.grad(f), x),
    "grad of jvp": lambda f, x: func.grad(lambda y: slope(f, y))(x),
    "jvp of jvp": lambda f, x: slope(lambda y: slope(f, y), x),
    "vmap of grad of grad": lambda f, x: func.vmap(
        func.grad(lambda y: func.grad(f)(y).sum()),
    )(x[None]),
    "grad of grad of vmap": lambda f, x: func.grad(
        lambda y: func.grad(lambda z: func.vmap(f)(z).sum())(y).sum()
    )(x[None]),
}


@pytest.mark.parametrize("route", ROUTES)
def test_routes(route: str, problem: tuple[Loss, Tensor]) -> None:
    with pytest.raises(RuntimeError, match=f"{REFUSAL}|{FORWARD_REFUSAL}"):
        ROUTES[route](*problem)


@pytest.mark.parametrize("first", [0, 1])
def test_mixed_derivatives(first: int, case: Case) -> None:
    """By spheres and then by poses, and the other way round."""
    operands = (case.spheres, case.poses)

    def loss(spheres: Tensor, poses: Tensor) -> Tensor:
        return case.loss(spheres, poses=poses) + spheres.sum() * poses.sum()

    def slope_of_one(x: Tensor) -> Tensor:
        """The gradient by one operand, as a function of the other."""
        arguments = (operands[0], x) if first == 0 else (x, operands[1])
        return func.grad(loss, argnums=first)(*arguments)

    x = operands[1 - first]
    for route in (func.jacrev(slope_of_one), func.jacfwd(slope_of_one)):
        with pytest.raises(RuntimeError, match=f"{REFUSAL}|{FORWARD_REFUSAL}"):
            route(x)
    leaves = [operand.clone().requires_grad_(True) for operand in operands]
    (gradient,) = torch.autograd.grad(loss(*leaves), leaves[first], create_graph=True)
    with pytest.raises(RuntimeError, match=REFUSAL):
        torch.autograd.grad(gradient.sum(), leaves[1 - first])


def test_a_square_of_the_cost(case: Case) -> None:
    """Half of its second derivative is defined, the whole is not."""
    with pytest.raises(RuntimeError, match=REFUSAL):
        func.hessian(lambda s: case.loss(s) ** 2)(case.spheres)


def test_first_derivatives_in_a_graph_are_right(case: Case, problem: tuple[Loss, Tensor]) -> None:
    """``create_graph`` itself does no harm, and a second derivative of other terms is there."""
    loss, x = problem
    _, gradient = gradient_graph(loss, x)
    assert_same(gradient.detach(), backward(loss, x))
    scale = torch.tensor(2.0, device=x.device, requires_grad=True)
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(scale * case(case.spheres).sum() + leaf.sum(), leaf)
    assert (gradient == 1.0).all()


# -- gradients that are results -------------------------------------------------------------------


def _distance_gradient(spheres: Tensor, case: Case, **options: Any) -> Tensor:
    return signed_distance(spheres[..., :3], case.world, **options).gradient.sum()


def _clearance_gradient(spheres: Tensor, case: Case, **options: Any) -> Tensor:
    return clearance(spheres, case.world, **options).gradient.sum()


@pytest.fixture(params=[_distance_gradient, _clearance_gradient])
def of_gradient(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    """A sum of the gradients that come as a result."""
    return request.param


@pytest.mark.parametrize("operand", ["spheres", "poses"])
def test_gradients_that_are_results(
    operand: str, of_gradient: Callable[..., Tensor], in_a_sum: bool, device: torch.device
) -> None:
    case = case_of("signed_distance", device)
    x = getattr(case, operand)

    def loss(y: Tensor) -> Tensor:
        if operand == "spheres":
            value = of_gradient(y, case)
        else:
            value = of_gradient(case.spheres, case, poses=y)
        return value + (y**2).sum() if in_a_sum else value

    for route in (
        lambda: backward(loss, x),
        lambda: func.grad(loss)(x),
        lambda: func.jacrev(loss)(x),
        lambda: func.vmap(func.grad(loss))(x[None]),
        lambda: func.grad(lambda y: func.vmap(loss)(y).sum())(x[None]),
    ):
        with pytest.raises(RuntimeError, match=REFUSAL):
            route()
    if operand == "poses":
        with pytest.raises(RuntimeError, match=FORWARD_REFUSAL):
            slope(loss, x)
    else:
        # Forward mode computes all tangents, whether anyone looks at them or not: NaN, not zero.
        assert torch.isnan(slope(loss, x))


def test_its_distance_has_a_slope_all_the_same(device: torch.device) -> None:
    case = case_of("signed_distance", device)
    points, direction = case.spheres[..., :3], case.direction[..., :3]
    found, tangents = func.jvp(
        lambda p: signed_distance(p, case.world)[:2], (points,), (direction,)
    )
    assert_same(tangents[0], (found[1] * direction).sum(-1))
    assert torch.isnan(tangents[1]).all()


# -- in compiled code -----------------------------------------------------------------------------


@pytest.fixture
def whole() -> Iterator[Callable[[Loss], Loss]]:
    """Compiles a function as one graph."""
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, fullgraph=True, backend="aot_eager")
    torch._dynamo.reset()


@pytest.fixture(params=["spheres", "poses"])
def sum_of_terms(request: pytest.FixtureRequest, dear_case: Case) -> tuple[Loss, Tensor]:
    """A loss with another term, by spheres or by poses."""
    return problem_of(dear_case, request.param, in_a_sum=True)


@pytest.fixture(params=NAMES_TO_COMPILE)
def dear_case(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the four functions, where each takes its time."""
    return case_of(request.param, device)


COMPILED: dict[str, Callable[[Loss], Loss]] = {
    name: (lambda f, name=name: lambda x: ROUTES[name](f, x))
    for name in (
        "func.hessian",
        "jacrev of jacrev",
        "jacfwd of jacrev",
        "jacrev of jacfwd",
        "grad of grad",
        "jvp of grad",
    )
}


@pytest.mark.parametrize("route", mostly_slow(COMPILED, ("func.hessian",)))
def test_routes_inside_a_graph(
    route: str, sum_of_terms: tuple[Loss, Tensor], whole: Callable[[Loss], Loss]
) -> None:
    loss, x = sum_of_terms
    with pytest.raises(Exception, match=f"{REFUSAL}|{FORWARD_REFUSAL}") as caught:
        whole(COMPILED[route](loss))(x)
    assert isinstance(caught.value, (RuntimeError, torch._dynamo.exc.TorchRuntimeError))


def is_refused(route: Callable[[Loss, Tensor], Any], loss: Loss, x: Tensor) -> bool:
    """Whether a way to a second derivative raises what it should."""
    try:
        route(loss, x)
    except RuntimeError as error:
        return REFUSAL in str(error)
    return False


AROUND = (
    "create_graph twice",
    "create_graph, then backward",
    "create_graph, unused as zeros",
    "functional.hessian",
    "functional.hvp",
    "functional.vhp",
)


@pytest.mark.parametrize(
    "inner",
    [pytest.param(False, marks=pytest.mark.slow, id="operand"), pytest.param(True, id="computed")],
)
@pytest.mark.filterwarnings(LEAF_WARNING)
def test_routes_around_a_graph(
    inner: bool, sum_of_terms: tuple[Loss, Tensor], whole: Callable[[Loss], Loss]
) -> None:
    """Torch itself takes the backward of a graph for a constant on some of these ways."""
    loss, x = sum_of_terms
    compiled = whole((lambda y: loss(2.0 * y)) if inner else loss)
    accepted = [route for route in AROUND if not is_refused(ROUTES[route], compiled, x)]
    assert not accepted


def test_a_graph_beside_other_terms(case: Case, whole: Callable[[Loss], Loss]) -> None:
    compiled = whole(case.loss)
    with pytest.raises(RuntimeError, match=REFUSAL):
        twice(lambda y: compiled(y) + (y**2).sum(), case.spheres)


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(False, marks=pytest.mark.slow, id="sum outside"),
        pytest.param(True, id="sum inside"),
    ],
)
def test_gradients_that_are_results_of_a_graph(
    inside: bool, of_gradient: Callable[..., Tensor], whole: Callable[[Loss], Loss]
) -> None:
    """A graph cannot refuse while it is traced, only when its backward gets something to do."""
    case = case_of("signed_distance", torch.device("cpu"))

    def loss(y: Tensor) -> Tensor:
        return of_gradient(y, case) + ((y**2).sum() if inside else 0.0)

    compiled = whole(loss)
    with pytest.raises(RuntimeError, match=REFUSAL):
        backward(lambda y: compiled(y) + (y**2).sum(), case.spheres)
    with pytest.raises(RuntimeError, match=REFUSAL):
        whole(func.grad(loss))(case.spheres)
