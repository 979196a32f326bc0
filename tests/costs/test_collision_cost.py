"""The module of a planner: the functions' costs, reduced, with its numbers as buffers."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import func, nn
from torch.utils import _pytree as pytree

import compare
import shapes
from cases import mostly_slow
from differentiable import (
    JIT_WARNING,
    LEAF_WARNING,
    assert_same,
    backward,
    case_of,
    jacobian,
    world_of,
)
from warp_collision import (
    CollisionCost,
    Constraint,
    MeshWorld,
    clearance,
    sphere_cost,
    swept_sphere_cost,
)

Tensor = torch.Tensor

REDUCTIONS = {
    "sum": lambda cost: cost.sum(2).sum(1),
    "max": lambda cost: cost.flatten(1).max(1).values,
    "waypoint": lambda cost: cost.sum(2),
    "none": lambda cost: cost,
}
NUMBERS: dict[str, Any] = {"weight": 3.0, "activation_distance": 0.05}
SPEED: dict[str, Any] = {"speed_metric": True, "dt": 0.1}


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    return world_of(device)


@pytest.fixture
def spheres(device: torch.device) -> Tensor:
    """(2, 3, 5, 4), one of them disabled; some hit and some miss."""
    return case_of("sphere_cost", device).spheres


def by_hand(spheres: Tensor, world: MeshWorld, swept: bool, **options: Any) -> Tensor:
    """Costs of the spheres from the function that the module stands for."""
    return (swept_sphere_cost if swept else sphere_cost)(spheres, world, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("swept", "options"),
    [
        (False, {}),
        (True, {}),
        (True, {"tolerance": 1e-4}),
        (True, SPEED),
    ],
    ids=["points", "swept", "tolerance", "speed"],
)
def test_reductions(
    world: MeshWorld, spheres: Tensor, reduction: Any, swept: bool, options: dict[str, Any]
) -> None:
    """Values and gradients are those of the function, reduced."""
    module = CollisionCost(world, swept=swept, reduction=reduction, **NUMBERS, **options)

    def expected(x: Tensor) -> Tensor:
        return REDUCTIONS[reduction](by_hand(x, world, swept, **NUMBERS, **options))

    values = module(spheres)
    assert values.shape == expected(spheres).shape
    assert (values > 0).any()
    assert_same(values, expected(spheres))
    upstream = torch.rand(values.shape, generator=torch.Generator().manual_seed(5)).to(values)
    gradient = backward(lambda x: (module(x) * upstream).sum(), spheres)
    assert gradient.abs().sum() > 0
    assert_same(gradient, backward(lambda x: (expected(x) * upstream).sum(), spheres))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (2, 0, 5, 4), (0, 3, 5, 4)])
def test_nothing_costs_nothing(world: MeshWorld, reduction: Any, shape: tuple[int, ...]) -> None:
    result = CollisionCost(world, reduction=reduction)(torch.zeros(shape, device=world.device))
    lengths = {"sum": 1, "max": 1, "waypoint": 2, "none": 3}
    assert result.shape == shape[: lengths[reduction]]
    assert not result.any()


def test_the_speed_metric_counts_motion(world: MeshWorld, spheres: Tensor) -> None:
    """Half the time step is twice the speed; the plain cost knows no time."""
    slow, fast = (
        CollisionCost(world, speed_metric=True, dt=dt, reduction="none")(spheres)
        for dt in (0.02, 0.01)
    )
    # The neighbours of the disabled sphere have no speed: their factor is the smallest one.
    still = torch.zeros_like(slow, dtype=torch.bool)
    still[0, :, 2] = True
    for mask, factor in ((~still, 2.0), (still, 1.0)):
        assert (slow[mask] > 0).any()
        assert_same(fast[mask], factor * slow[mask])
    plain = CollisionCost(world, reduction="none")
    timed = CollisionCost(world, dt=0.1, reduction="none")
    assert torch.equal(plain(spheres), timed(spheres))


def test_envs_and_poses(device: torch.device, spheres: Tensor) -> None:
    rng = np.random.default_rng(7)
    scenes = [[shapes.placed("box", rng)], [shapes.placed("icosphere", rng)]]
    world = compare.build_world(scenes, device, max_obstacles=1)
    module = CollisionCost(world, swept=False, activation_distance=0.3, reduction="none")
    envs = torch.tensor([1, 0], dtype=torch.int32, device=device)
    poses = torch.stack([world.pose("mesh_0", env) for env in (1, 0)])[:, None]
    for options in ({"env_index": envs}, {"env_index": envs, "poses": poses}):
        expected = sphere_cost(spheres, world, activation_distance=0.3, **options)
        assert (expected > 0).any()
        assert torch.equal(module(spheres, **options), expected)
        assert torch.equal(
            module.constraint(spheres, **options).value,
            clearance(spheres, world, **options).clearance,
        )

    def loss(x: Tensor) -> Tensor:
        return module(spheres, envs, poses=x).sum()

    moved = backward(loss, poses)
    assert moved.abs().sum() > 0


def test_the_weight_is_a_buffer(world: MeshWorld, spheres: Tensor) -> None:
    module = CollisionCost(world, weight=2.0)
    assert list(module.parameters()) == []
    assert set(dict(module.named_buffers())) == {"weight", "activation_distance"}
    other = CollisionCost(world, weight=2.0)
    before = module(spheres)
    module.weight.fill_(6.0)
    assert_same(module(spheres), 3.0 * before)
    # Equal numbers are not one tensor.
    assert torch.equal(other(spheres), before)
    assert torch.equal(CollisionCost(world, weight=2.0)(spheres), before)


def test_a_tensor_given_is_copied(world: MeshWorld) -> None:
    given = torch.tensor([2.0], device=world.device)
    module = CollisionCost(world, weight=given)
    given.fill_(9.0)
    assert module.weight.item() == 2.0


def test_the_weight_as_parameter(world: MeshWorld, spheres: Tensor) -> None:
    weight = nn.Parameter(torch.tensor([2.0], device=world.device))
    module = CollisionCost(world, weight=weight)
    assert list(module.parameters()) == [weight]
    module(spheres).sum().backward()
    assert weight.grad is not None
    assert_same(weight.grad, CollisionCost(world)(spheres).sum().reshape(1))


def test_state_dict(world: MeshWorld, spheres: Tensor) -> None:
    """Holds the numbers, not the world."""
    settings: dict[str, Any] = {"weight": 3.0, "activation_distance": 0.1, "tolerance": 1e-3}
    settings["min_speed"] = 0.25
    module = CollisionCost(world, **settings, **SPEED)
    state = pickle.loads(pickle.dumps(module.state_dict()))
    assert {name: round(value.item(), 6) for name, value in state.items()} == {
        **settings,
        "dt": 0.1,
    }
    twin = CollisionCost(world, tolerance=1.0, dt=1.0, speed_metric=True)
    assert not torch.equal(twin(spheres), module(spheres))
    twin.load_state_dict(state)
    assert torch.equal(twin(spheres), module(spheres))
    with pytest.raises(RuntimeError, match=r"dt.*tolerance|tolerance.*dt"):
        CollisionCost(world).load_state_dict(state)


def test_to_moves_the_numbers_alone(world: MeshWorld, spheres: Tensor) -> None:
    module = CollisionCost(world)
    before = module(spheres)
    assert torch.equal(module.to(world.device)(spheres), before)
    module.to("meta")
    assert module.weight.device.type == "meta"
    assert module.world is world
    for call in (module, module.constraint):
        with pytest.raises(ValueError, match=r"world must be on device meta.*set module\.world"):
            call(spheres)
    assert world.device == spheres.device


def test_another_precision_of_the_numbers(world: MeshWorld, spheres: Tensor) -> None:
    """A model that is cast as a whole takes the module along; it computes in float32."""
    module = CollisionCost(world, weight=2.0, activation_distance=0.25)
    before = module(spheres)
    assert torch.equal(module.to(torch.float64)(spheres), before)
    assert torch.equal(module.to(torch.bfloat16)(spheres), before)


def test_another_world(world: MeshWorld, spheres: Tensor) -> None:
    module = CollisionCost(world)
    assert module(spheres).sum() > 0
    module.world = MeshWorld(device=world.device)
    assert not module(spheres).any()
    with pytest.raises(TypeError, match="world must be a MeshWorld, got str"):
        module.world = "kitchen"  # pyright: ignore[reportAttributeAccessIssue]


def test_deepcopy_shares_the_world(world: MeshWorld, spheres: Tensor) -> None:
    module = CollisionCost(world, weight=2.0, reduction="max", **SPEED)
    twin = copy.deepcopy(nn.Sequential(module))[0]
    assert isinstance(twin, CollisionCost)
    assert twin.world is world
    assert (twin.reduction, twin.swept, twin.speed_metric) == ("max", True, True)
    before = module(spheres)
    assert torch.equal(twin(spheres), before)
    twin.weight.fill_(0.0)
    assert not twin(spheres).any()
    assert torch.equal(module(spheres), before)
    sent = pickle.loads(pickle.dumps(module))
    assert sent.world is not world
    assert torch.equal(sent(spheres), before)


def test_text(world: MeshWorld) -> None:
    text = repr(nn.Sequential(CollisionCost(world, swept=False, reduction="max")))
    assert "swept=False, speed_metric=False, reduction='max'" in text
    assert "MeshWorld" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "mean"}, "reduction must be one of .*'sum'.*got 'mean'"),
        ({"weight": float("nan")}, "weight must be finite"),
        ({"weight": torch.ones(2)}, "weight must be a number or have one element"),
        ({"weight": torch.ones(1, requires_grad=True)}, r"weight .*other than an nn\.Parameter"),
        ({"weight": nn.Parameter(torch.ones(2))}, "weight must be a number or have one element"),
        ({"weight": torch.ones(1, device="meta")}, "weight must be on device"),
        ({"activation_distance": -0.1}, "activation_distance must not be negative"),
        (
            {"activation_distance": nn.Parameter(torch.ones(1))},
            "activation_distance must not require a gradient: it is a buffer",
        ),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"dt": 0.0}, "dt must be positive"),
        ({"min_speed": 0.0}, "min_speed must be positive"),
        ({"speed_metric": True}, "dt must be given for the speed metric"),
        ({**SPEED, "swept": False}, "swept must be True for the speed metric"),
    ],
)
def test_bad_values(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CollisionCost(MeshWorld(device="cpu"), **options)


@pytest.mark.parametrize("name", ["weight", "activation_distance", "tolerance", "dt", "min_speed"])
def test_bad_types(name: str) -> None:
    options: Any = {name: "many"}
    with pytest.raises(TypeError, match=f"{name} must be a number or a tensor, got str"):
        CollisionCost(MeshWorld(device="cpu"), **options)
    with pytest.raises(TypeError, match="world must be a MeshWorld, got NoneType"):
        CollisionCost(None)  # pyright: ignore[reportArgumentType]


def test_constraint(world: MeshWorld, spheres: Tensor) -> None:
    """Clearance less the margin, and the diagonal of its Jacobian by autograd."""
    module = CollisionCost(world)
    found = module.constraint(spheres, margin=0.03)
    direct = clearance(spheres, world)
    assert torch.equal(found.value, direct.clearance - 0.03)
    assert torch.equal(found.obstacle, direct.obstacle)
    assert not found.jacobian.requires_grad
    by_autograd = jacobian(
        lambda x: module.constraint(x, margin=0.03).value.clamp(max=1.0), spheres
    ).reshape(30, 30, 4)
    assert_same(found.jacobian.reshape(30, 4), by_autograd[range(30), range(30)])
    by_autograd[range(30), range(30)] = 0.0
    assert not by_autograd.any()


def test_constraint_without_anything_to_hit(world: MeshWorld, spheres: Tensor) -> None:
    found = CollisionCost(world).constraint(spheres)
    disabled = spheres[..., 3] < 0
    assert disabled.sum() == 1
    for mask, result in (
        (disabled, found),
        (
            torch.ones_like(disabled),
            CollisionCost(MeshWorld(device=world.device)).constraint(spheres),
        ),
    ):
        assert (result.value[mask] == torch.inf).all()
        assert not result.jacobian[mask].any()
        assert (result.obstacle[mask] == -1).all()


def test_constraint_by_finite_differences(world: MeshWorld, spheres: Tensor) -> None:
    """A step along the Jacobian's row changes the value by the square of its length."""
    module = CollisionCost(world)
    found = module.constraint(spheres, margin=0.03)
    step = 1e-3
    slope = torch.zeros_like(found.jacobian)
    for axis in range(4):
        shift = step * torch.eye(4, device=spheres.device)[axis]
        # The disabled sphere stays disabled; its value is infinite on both sides.
        ahead, behind = (module.constraint(spheres + s, 0.03).value for s in (shift, -shift))
        slope[..., axis] = torch.where(found.obstacle >= 0, (ahead - behind) / (2 * step), 0.0)
    off = (slope - found.jacobian).abs().amax(-1)
    # Within a step of the medial axis, or of an edge, the slope is another one.
    assert (off < 0.02).float().mean() > 0.9


def test_constraint_by_margin_of_each_sphere(world: MeshWorld, spheres: Tensor) -> None:
    margin = torch.linspace(0.0, 0.1, 5, device=spheres.device)
    found = CollisionCost(world).constraint(spheres, margin)
    assert torch.equal(found.value, clearance(spheres, world).clearance - margin)


def test_constraint_is_a_pytree(world: MeshWorld, spheres: Tensor) -> None:
    found = CollisionCost(world).constraint(spheres)
    first = pytree.tree_map(lambda leaf: leaf[:1], {"nested": [found]})["nested"][0]
    assert isinstance(first, Constraint)
    assert torch.equal(first.jacobian, found.jacobian[:1])
    assert torch.equal(first.obstacle, found.obstacle[:1])


@pytest.mark.parametrize("swept", [False, True])
def test_function_transforms(world: MeshWorld, spheres: Tensor, swept: bool) -> None:
    """The module is a function like the one inside it."""
    module = CollisionCost(world, swept=swept, **NUMBERS)
    stack = torch.stack((spheres, spheres.flip(2)))
    assert_same(func.vmap(module)(stack), torch.stack([module(x) for x in stack]))

    def loss(x: Tensor) -> Tensor:
        return module(x).sum()

    assert_same(func.grad(loss)(spheres), backward(loss, spheres))
    expected = torch.stack([backward(loss, x) for x in stack])
    assert_same(func.vmap(func.grad(loss))(stack), expected)
    mapped = func.vmap(module.constraint)(stack)
    assert isinstance(mapped, Constraint)
    assert_same(mapped.jacobian, torch.stack([module.constraint(x).jacobian for x in stack]))


def test_functional_call_by_weight(world: MeshWorld, spheres: Tensor) -> None:
    """The cost is linear in its weight, which another tensor may stand in for."""
    module = CollisionCost(world, weight=1.0)

    def loss(weight: Tensor) -> Tensor:
        return func.functional_call(module, {"weight": weight}, (spheres,)).sum()

    slope = func.grad(loss)(torch.tensor([4.0], device=spheres.device))
    assert_same(slope, module(spheres).sum().reshape(1))


@pytest.mark.filterwarnings(JIT_WARNING)
@pytest.mark.filterwarnings(LEAF_WARNING)
@pytest.mark.parametrize(
    "reduction", mostly_slow(("sum", "max", "waypoint", "none"), ("max", "waypoint"))
)
def test_compiled(world: MeshWorld, spheres: Tensor, reduction: Any) -> None:
    """A module in one graph, with its constraint as a tree among other results."""
    module = CollisionCost(world, reduction=reduction)

    def step(x: Tensor) -> dict[str, Any]:
        return {"cost": module(x), "more": [module.constraint(x, 0.01)]}

    def gradient(function: Any) -> tuple[dict[str, Any], Tensor]:
        leaf = spheres.clone().requires_grad_(True)
        found = function(leaf)
        loss = found["cost"].sum() + found["more"][0].value.clamp(max=1.0).sum()
        return found, torch.autograd.grad(loss, leaf)[0]

    expected = gradient(step)
    found = gradient(torch.compile(step, fullgraph=True, backend="aot_eager"))
    assert type(found[0]["more"][0]) is Constraint
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
