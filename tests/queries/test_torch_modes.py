"""The rest of eager torch: checkpoints, modes, dtypes, threads, copies and nested results."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import func
from torch.utils.checkpoint import checkpoint

from differentiable import JIT_WARNING, NAMES, Case, assert_same, backward, case_of
from warp_collision import (
    Clearance,
    SignedDistance,
    clearance,
    signed_distance,
    validate,
)
from warp_collision.queries.query import Query

Tensor = torch.Tensor

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the four functions."""
    return case_of(request.param, device)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(use_reentrant: bool, case: Case) -> None:
    def loss(x: Tensor) -> Tensor:
        return checkpoint(case.loss, x * 1.0, use_reentrant=use_reentrant)

    assert_same(backward(loss, case.spheres), backward(case.loss, case.spheres))

    def loss_of_poses(x: Tensor) -> Tensor:
        return checkpoint(case.loss_of_poses, x * 1.0, use_reentrant=use_reentrant)

    assert_same(backward(loss_of_poses, case.poses), backward(case.loss_of_poses, case.poses))


@pytest.mark.parametrize("count", [5, 1_500])
def test_a_batch_of_incoming_gradients(count: int, case: Case) -> None:
    """`is_grads_batched`, with few spheres and with many: they take different ways."""
    spheres = case.spheres.repeat(1, 1, -(-count // 5), 1).requires_grad_(True)
    values = case(spheres)
    generator = torch.Generator().manual_seed(5)
    upstream = torch.rand((3, *values.shape), generator=generator).to(spheres.device)

    def gradient(incoming: Tensor, **options: bool) -> Tensor:
        return torch.autograd.grad(values, spheres, incoming, retain_graph=True, **options)[0]

    expected = torch.stack([gradient(one) for one in upstream])
    assert (expected != 0.0).any()
    assert_same(gradient(upstream, is_grads_batched=True), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(
    mode: Callable[[], Any], case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not compute what only a gradient needs."""
    asked = []
    run = Query.run

    def spy(*args: Any) -> Any:
        asked.append(args[-1])
        return run(*args)

    monkeypatch.setattr(Query, "run", spy)
    spheres = case.spheres.clone().requires_grad_(True)
    with mode():
        values = case(spheres)
        moved = case(spheres, poses=case.poses)
    assert not values.requires_grad
    assert asked == [case.name in NAMES[2:]] * 2
    assert_same(values.clone(), case(case.spheres))
    assert_same(moved.clone(), case.with_poses(case.poses))


def test_inference_tensors_afterwards(case: Case) -> None:
    """What was made in inference mode serves outside of it; for a gradient torch wants a copy."""
    with torch.inference_mode():
        spheres, poses = case.spheres.clone(), case.poses.clone()
    assert_same(case(spheres), case(case.spheres))
    assert_same(case(spheres, poses=poses), case.with_poses(case.poses))
    assert_same(backward(case.loss, spheres.clone()), backward(case.loss, case.spheres))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32(dtype: torch.dtype, case: Case) -> None:
    with torch.autocast(case.spheres.device.type, dtype=dtype):
        values = case(case.spheres)
        gradient = backward(case.loss, case.spheres)
    assert values.dtype is torch.float32
    assert torch.equal(values, case(case.spheres))
    assert torch.equal(gradient, backward(case.loss, case.spheres))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_come_back_in_their_gradient(dtype: torch.dtype, case: Case) -> None:
    spheres = case.spheres.to(dtype)
    values, gradient = case(spheres), backward(case.loss, spheres)
    assert values.dtype is torch.float32
    assert gradient.dtype is dtype
    assert torch.equal(values, case(spheres.float()))
    assert_same(gradient, backward(case.loss, spheres.float()).to(dtype))


def test_threads(case: Case) -> None:
    """As the replicas of a data-parallel model: forward and backward from several threads."""
    batch = [case.spheres * (1.0 - 0.05 * i) for i in range(8)]
    expected = [backward(case.loss, spheres) for spheres in batch]
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda s: backward(case.loss, s), batch * 4))
    for i, gradient in enumerate(actual):
        assert torch.equal(gradient, expected[i % len(batch)])


def test_each_device_has_its_own_world(case: Case) -> None:
    """Operands of another device raise; nothing is copied in secret."""
    elsewhere = torch.empty(case.spheres.shape, device="meta")
    with pytest.raises(ValueError, match=r"must be on device .* like the world, got meta"):
        case(elsewhere)
    with pytest.raises(ValueError, match="poses must be on device"):
        case(case.spheres, poses=torch.empty(case.poses.shape, device="meta"))


def test_copies(case: Case) -> None:
    """Results and worlds can be copied and pickled, with the same values."""
    found = signed_distance(case.spheres[..., :3], case.world)
    for result in (found, clearance(case.spheres, case.world)):
        for twin in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
            assert type(twin) is type(result)
            assert all(torch.equal(a, b) for a, b in zip(twin, result, strict=True))
    for world in (copy.deepcopy(case.world), pickle.loads(pickle.dumps(case.world))):
        assert world is not case.world
        again = signed_distance(case.spheres[..., :3], world)
        assert all(torch.equal(a, b) for a, b in zip(again, found, strict=True))


@pytest.mark.parametrize("transform", [func.grad, func.jacfwd, func.vmap])
def test_numbers_first_met_in_a_transform(
    transform: Callable[..., Any], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number's tensor is kept between calls, but not one that belongs to a transform."""
    monkeypatch.setattr(validate, "_scalars", {})
    case = case_of("swept_sphere_cost", device)
    options = {"activation_distance": 0.043, "tolerance": 0.0021, "speed_metric": True, "dt": 0.11}
    spheres = case.spheres[None] if transform is func.vmap else case.spheres
    transform(lambda s: case.loss(s, weight=1.7, **options))(spheres)
    tensors = {k: torch.tensor(v, device=device) for k, v in options.items() if k != "speed_metric"}
    expected = case(case.spheres, weight=1.7, speed_metric=True, **tensors)
    assert torch.equal(case(case.spheres, weight=1.7, **options), expected)


# -- results as trees -----------------------------------------------------------------------------


def test_results_pass_through_transforms(device: torch.device) -> None:
    """Nested in other structures, as the NamedTuples that they are."""
    case = case_of("signed_distance", device)
    points = case.spheres[..., :3]

    def both(p: Tensor) -> dict[str, Any]:
        found = signed_distance(p, case.world)
        return {"found": (found, [p.sum()]), "distance": found.distance}

    leaves, spec = torch.utils._pytree.tree_flatten(both(points))
    assert len(leaves) == 5
    assert type(torch.utils._pytree.tree_unflatten(leaves, spec)["found"][0]) is SignedDistance
    mapped = func.vmap(both)(torch.stack([points, points * 0.5]))
    assert type(mapped["found"][0]) is SignedDistance
    for i, p in enumerate((points, points * 0.5)):
        for actual, expected in zip(
            mapped["found"][0], signed_distance(p, case.world), strict=True
        ):
            assert_same(actual[i], expected)
    value, pull_back, aux = func.vjp(
        lambda p: (both(p)["distance"].sum(), both(p)), points, has_aux=True
    )
    assert_same(value, both(points)["distance"].sum())
    assert type(aux["found"][0]) is SignedDistance
    assert_same(pull_back(torch.ones_like(value))[0], aux["found"][0].gradient)
    near = func.jacfwd(lambda s: Clearance(*clearance(s, case.world))._asdict()["clearance"])
    assert near(case.spheres).shape == (*case.spheres.shape[:3], *case.spheres.shape)
