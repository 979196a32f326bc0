"""Transforms of torch.func and forward mode: each function is what it is in eager code."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func
from torch.autograd import forward_ad

from differentiable import (
    JIT_WARNING,
    NAMES,
    Case,
    assert_same,
    backward,
    case_of,
    jacobian,
    of_envs,
)

Tensor = torch.Tensor

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the four functions."""
    return case_of(request.param, device)


def several(poses: Tensor) -> Tensor:
    """Poses (3, n_meshes, 7) of three scenes."""
    moved = poses.repeat(3, 1, 1)
    moved[1, :, 0] += 0.05
    moved[2, :, 1] -= 0.03
    return moved


def test_the_scene_is_worth_it(case: Case) -> None:
    """Values and gradients are not all zero, nor all alike, so that a wrong one shows."""
    values = case(case.spheres)
    assert 0.3 < (values != 0.0).float().mean()
    for loss, x in ((case.loss, case.spheres), (case.loss_of_poses, case.poses)):
        gradient = backward(loss, x)
        assert (gradient != 0.0).any()
        assert torch.isfinite(gradient).all()


# -- torch.func: spheres --------------------------------------------------------------------------


def test_grad(case: Case) -> None:
    assert_same(func.grad(case.loss)(case.spheres), backward(case.loss, case.spheres))


def test_grad_and_value(case: Case) -> None:
    gradient, value = func.grad_and_value(case.loss)(case.spheres)
    assert_same(value, case.loss(case.spheres))
    assert_same(gradient, backward(case.loss, case.spheres))


@pytest.mark.parametrize("in_dim", [0, 1, 3])
def test_vmap_over_spheres(in_dim: int, case: Case) -> None:
    mapped = torch.stack([case.spheres, case.spheres * 0.5, case.spheres + 0.1])
    expected = torch.stack([case(spheres) for spheres in mapped])
    actual = func.vmap(case, in_dims=in_dim)(mapped.movedim(0, in_dim))
    assert_same(actual, expected)


def test_vmap_over_spheres_in_chunks(case: Case) -> None:
    mapped = torch.stack([case.spheres, case.spheres * 0.5, case.spheres + 0.1])
    assert_same(func.vmap(case, chunk_size=2)(mapped), func.vmap(case)(mapped))


def test_vmap_of_grad(case: Case) -> None:
    mapped = torch.stack([case.spheres, case.spheres * 0.5])
    expected = torch.stack([backward(case.loss, spheres) for spheres in mapped])
    assert_same(func.vmap(func.grad(case.loss))(mapped), expected)


def test_backward_of_vmap(case: Case) -> None:
    mapped = torch.stack([case.spheres, case.spheres * 0.5])
    expected = torch.stack([backward(case.loss, spheres) for spheres in mapped])
    assert_same(backward(lambda s: func.vmap(case.loss)(s).sum(), mapped), expected)
    assert_same(func.grad(lambda s: func.vmap(case.loss)(s).sum())(mapped), expected)


def test_jacrev(case: Case) -> None:
    assert_same(func.jacrev(case)(case.spheres), jacobian(case, case.spheres))


def test_jacfwd(case: Case) -> None:
    assert_same(func.jacfwd(case)(case.spheres), jacobian(case, case.spheres))


def test_jvp(case: Case) -> None:
    value, tangent = func.jvp(case, (case.spheres,), (case.direction,))
    assert_same(value, case(case.spheres))
    by_spheres = jacobian(case, case.spheres)
    assert_same(tangent, torch.tensordot(by_spheres, case.direction, dims=4))


def test_vmap_of_jvp_and_jvp_of_vmap(case: Case) -> None:
    spheres = torch.stack([case.spheres, case.spheres * 0.5])
    tangents = torch.stack([case.direction, case.direction * -2.0])
    each = [func.jvp(case, (s,), (t,))[1] for s, t in zip(spheres, tangents, strict=True)]
    mapped = func.vmap(lambda s, t: func.jvp(case, (s,), (t,))[1])(spheres, tangents)
    assert_same(mapped, torch.stack(each))
    assert_same(func.jvp(func.vmap(case), (spheres,), (tangents,))[1], torch.stack(each))


def test_vjp(case: Case) -> None:
    value, pull_back = func.vjp(case, case.spheres)
    assert_same(value, case(case.spheres))
    assert_same(pull_back(case.upstream)[0], backward(case.loss, case.spheres))
    assert_same(pull_back(2.0 * case.upstream)[0], 2.0 * backward(case.loss, case.spheres))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_linearize(case: Case) -> None:
    value, push_forward = func.linearize(case, case.spheres)
    assert_same(value, case(case.spheres))
    _, tangent = func.jvp(case, (case.spheres,), (case.direction,))
    assert_same(push_forward(case.direction), tangent)


def test_forward_mode(case: Case) -> None:
    _, expected = func.jvp(case, (case.spheres,), (case.direction,))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(case.spheres, case.direction)
        value, tangent = forward_ad.unpack_dual(case(dual))
    assert_same(value, case(case.spheres))
    assert_same(tangent, expected)


def test_functional_jvp(case: Case) -> None:
    """By differentiating backward in its incoming gradient, in which it is linear."""
    expected = func.jvp(case, (case.spheres,), (case.direction,))
    actual = torch.autograd.functional.jvp(case, case.spheres, case.direction)
    assert_same(actual, expected)


# -- torch.func: poses ----------------------------------------------------------------------------


def test_grad_of_poses(case: Case) -> None:
    expected = backward(case.loss_of_poses, case.poses)
    assert_same(func.grad(case.loss_of_poses)(case.poses), expected)


def test_pose_gradients_are_those_of_finite_differences(case: Case) -> None:
    """Since all other tests of poses compare with plain backward."""
    gradient = backward(case.loss_of_poses, case.poses)
    direction = torch.zeros_like(case.poses)
    direction[0, :3] = direction.new_tensor([0.3, -0.5, 0.8])
    direction[2, 3:] = direction.new_tensor([0.2, 0.7, -0.4, 0.1])
    step = 1e-3
    ahead = case.loss_of_poses(case.poses + step * direction).double()
    behind = case.loss_of_poses(case.poses - step * direction).double()
    slope = ((ahead - behind) / (2 * step)).item()
    assert (gradient * direction).sum().item() == pytest.approx(slope, rel=0.02, abs=2e-3)


def test_vmap_over_poses(case: Case) -> None:
    poses = several(case.poses)
    expected = torch.stack([case.with_poses(p) for p in poses])
    assert not torch.equal(expected[0], expected[1])
    assert_same(func.vmap(case.with_poses)(poses), expected)


def test_nested_vmap(case: Case) -> None:
    """Each of the poses with each of the spheres, and the other way round."""
    poses = several(case.poses)
    spheres = torch.stack([case.spheres, case.spheres * 0.5])
    expected = torch.stack([torch.stack([case(s, poses=p) for s in spheres]) for p in poses])

    def pair(p: Tensor, s: Tensor) -> Tensor:
        return case(s, poses=p)

    outer = func.vmap(func.vmap(pair, (None, 0)), (0, None))
    assert_same(outer(poses, spheres), expected)
    swapped = func.vmap(func.vmap(pair, (0, None)), (None, 0))
    assert_same(swapped(poses, spheres), expected.transpose(0, 1))


def test_vmap_of_grad_of_poses(case: Case) -> None:
    poses = several(case.poses)
    expected = torch.stack([backward(case.loss_of_poses, p) for p in poses])
    assert_same(func.vmap(func.grad(case.loss_of_poses))(poses), expected)


def test_backward_of_vmap_over_poses(case: Case) -> None:
    """Under `vmap` no tensor says that it requires a gradient."""
    poses = several(case.poses)
    expected = torch.stack([backward(case.loss_of_poses, p) for p in poses])

    def total(p: Tensor) -> Tensor:
        return func.vmap(case.loss_of_poses)(p).sum()

    assert_same(backward(total, poses), expected)
    assert_same(func.grad(total)(poses), expected)


def test_jacrev_of_poses(case: Case) -> None:
    expected = jacobian(case.with_poses, case.poses)
    assert_same(func.jacrev(case.with_poses)(case.poses), expected)


def test_both_gradients_at_once(case: Case) -> None:
    by_spheres, by_poses = func.grad(lambda s, p: case.loss(s, poses=p), argnums=(0, 1))(
        case.spheres, case.poses
    )
    # Not the gradient without poses: an inverse pose rounds, and a sweep may stop elsewhere.
    assert_same(by_spheres, backward(lambda s: case.loss(s, poses=case.poses), case.spheres))
    assert_same(by_poses, backward(case.loss_of_poses, case.poses))


FORWARD: dict[str, Callable[[Case], Any]] = {
    "jvp": lambda c: func.jvp(c.with_poses, (c.poses,), (c.poses,)),
    "jacfwd": lambda c: func.jacfwd(c.with_poses)(c.poses),
    "jvp of vmap": lambda c: func.jvp(func.vmap(c.with_poses), (c.poses[None],), (c.poses[None],)),
    "vmap of jvp": lambda c: func.vmap(lambda p: func.jvp(c.with_poses, (p,), (p,)))(c.poses[None]),
}


@pytest.mark.parametrize("route", FORWARD)
def test_forward_mode_of_poses_raises(route: str, case: Case) -> None:
    with pytest.raises(RuntimeError, match="use reverse mode for poses"):
        FORWARD[route](case)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="use reverse mode for poses"):
        case.with_poses(forward_ad.make_dual(case.poses, case.poses))


# -- envs -----------------------------------------------------------------------------------------


def test_vmap_over_rows_of_several_envs(case: Case) -> None:
    """Over spheres and the index of their env, and over one of the two."""
    many = of_envs(case)
    spheres = torch.stack([case.spheres, case.spheres * 0.5])
    envs = torch.tensor([[0, 2], [1, 0]], dtype=torch.int32, device=spheres.device)

    def pair(s: Tensor, e: Tensor) -> Tensor:
        return many(s, env_index=e)

    expected = torch.stack([pair(s, e) for s, e in zip(spheres, envs, strict=True)])
    assert not torch.equal(pair(spheres[0], envs[0]), pair(spheres[0], envs[1]))
    assert_same(func.vmap(pair)(spheres, envs), expected)
    for i in range(2):
        first = torch.stack([pair(s, envs[i]) for s in spheres])
        assert_same(func.vmap(pair, (0, None))(spheres, envs[i]), first)
        second = torch.stack([pair(spheres[i], e) for e in envs])
        assert_same(func.vmap(pair, (None, 0))(spheres[i], envs), second)


@pytest.mark.parametrize("with_index", [False, True])
def test_vmap_over_poses_of_several_envs(with_index: bool, case: Case) -> None:
    many = of_envs(case)
    rows = torch.tensor([2, 0], device=case.spheres.device) if with_index else None
    poses = case.poses.new_zeros(3, 4, 7)
    poses[..., 3] = 1.0
    poses[:, :3] = several(case.poses)
    poses = torch.stack([poses, poses.flip(0)])

    def loss(p: Tensor) -> Tensor:
        return many.loss(case.spheres, poses=p, env_index=rows)

    assert loss(poses[0]) != loss(poses[1])
    assert_same(func.vmap(loss)(poses), torch.stack([loss(p) for p in poses]))
    expected = torch.stack([backward(loss, p) for p in poses])
    assert (expected != 0.0).any()
    assert_same(func.vmap(func.grad(loss))(poses), expected)
    assert_same(backward(lambda p: func.vmap(loss)(p).sum(), poses), expected)


# -- parameters -----------------------------------------------------------------------------------


@pytest.fixture(params=NAMES[:2])
def cost(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the two costs."""
    return case_of(request.param, device)


def test_gradient_of_the_weight(cost: Case) -> None:
    weight = torch.tensor(0.7, device=cost.spheres.device)

    def loss(w: Tensor) -> Tensor:
        return cost.loss(cost.spheres, weight=w)

    expected = cost.loss(cost.spheres)
    assert_same(backward(loss, weight), expected)
    assert_same(func.grad(loss)(weight), expected)
    assert_same(func.jvp(loss, (weight,), (torch.ones_like(weight),))[1], expected)
    weights = torch.stack([weight, 2.0 * weight])
    assert_same(func.vmap(loss)(weights), expected * weights)
    assert_same(func.vmap(func.grad(loss))(weights), expected.expand(2))
    assert_same(backward(lambda w: func.vmap(loss)(w).sum(), weights), expected.expand(2))


def test_weight_and_spheres_together(cost: Case) -> None:
    weight = torch.tensor([2.0], device=cost.spheres.device, requires_grad=True)
    spheres = cost.spheres.clone().requires_grad_(True)
    cost.loss(spheres, weight=weight).backward()
    assert_same(spheres.grad, 2.0 * backward(cost.loss, cost.spheres))


PARAMETERS = [
    ("sphere_cost", "activation_distance"),
    ("swept_sphere_cost", "activation_distance"),
    ("swept_sphere_cost", "tolerance"),
    ("swept_sphere_cost", "dt"),
    ("swept_sphere_cost", "min_speed"),
]


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_parameters_without_a_derivative(name: str, parameter: str, device: torch.device) -> None:
    """They may be mapped over; their gradient raises, and is not zero."""
    case = case_of(name, device)
    timed = {"dt": {"speed_metric": True}, "min_speed": {"speed_metric": True, "dt": 10.0}}
    extra: dict[str, Any] = timed.get(parameter, {})

    def loss(value: Tensor) -> Tensor:
        return case.loss(case.spheres, **{parameter: value}, **extra)

    values = torch.tensor([0.05, 0.02], device=device)
    assert_same(func.vmap(loss)(values), torch.stack([loss(value) for value in values]))
    names = f"{parameter}.*detach|detach.*{parameter}"
    refusal = pytest.raises((ValueError, RuntimeError), match=names)
    for route in (
        lambda: backward(loss, values[0]),
        lambda: func.grad(loss)(values[0]),
        lambda: func.vmap(func.grad(loss))(values),
        lambda: func.grad(lambda v: func.vmap(loss)(v).sum())(values),
        lambda: func.jvp(loss, (values[0],), (values[0],)),
    ):
        with refusal:
            route()
