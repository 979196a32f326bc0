"""Compiled and exported, alone and with other transforms, each function is what eager code says."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import func
from torch._dynamo.testing import CompileCounterWithBackend

import shapes
from cases import mostly_slow
from differentiable import (
    JIT_WARNING,
    NAMES,
    NAMES_TO_COMPILE,
    Case,
    assert_same,
    backward,
    case_of,
    of_envs,
)
from warp_collision import MeshWorld, clearance
from warp_collision import signed_distance as signed_distance_of
from warp_collision import sphere_cost as sphere_cost_of
from warp_collision.queries import second_derivatives, sphere_queries

Tensor = torch.Tensor
Route = Callable[[Case, Callable[..., Any]], None]

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)

HAS_COMPILER = bool(os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++"))
needs_inductor = pytest.mark.skipif(not HAS_COMPILER, reason="inductor needs a C++ compiler")
# Without vectors, which it compiles something to find, and without headers compiled beforehand.
INDUCTOR = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the four functions."""
    return case_of(request.param, device)


@pytest.fixture(params=NAMES_TO_COMPILE)
def dear_case(request: pytest.FixtureRequest, device: torch.device) -> Case:
    """Each of the four functions, where each takes its time."""
    return case_of(request.param, device)


def whole(function: Callable[..., Any], backend: str = "aot_eager", **options: Any) -> Any:
    """The function as one graph."""
    return torch.compile(function, fullgraph=True, backend=backend, **options)


# -- the function alone ---------------------------------------------------------------------------


def check_forward_and_backward(case: Case, backend: str) -> None:
    """Values and gradients by spheres and poses; without a gradient too."""
    with torch.no_grad():
        assert_same(whole(case, backend)(case.spheres), case(case.spheres))
    assert_same(whole(case, backend)(case.spheres), case(case.spheres))
    gradient = backward(whole(case.loss, backend), case.spheres)
    assert_same(gradient, backward(case.loss, case.spheres))
    gradient = backward(whole(case.loss_of_poses, backend), case.poses)
    assert_same(gradient, backward(case.loss_of_poses, case.poses))


def check_dynamic(case: Case, backend: str) -> None:
    """One graph for all shapes."""

    def loss(spheres: Tensor) -> Tensor:
        return case(spheres).square().sum()

    compiled = whole(loss, backend, dynamic=True)
    with torch.compiler.set_stance("default"):
        assert_same(backward(compiled, case.spheres), backward(loss, case.spheres))
    with torch.compiler.set_stance("fail_on_recompile"):
        for spheres in (case.spheres[:, :, :4], case.spheres.repeat(3, 2, 1, 1)):
            assert_same(backward(compiled, spheres), backward(loss, spheres))


def test_aot_eager(dear_case: Case) -> None:
    check_forward_and_backward(dear_case, "aot_eager")


def test_aot_eager_dynamic(dear_case: Case) -> None:
    check_dynamic(dear_case, "aot_eager")


@needs_inductor
def test_inductor(device: torch.device) -> None:
    """For one function; the slow part has all. Up to its code generator the others are alike.

    Distances have no options. The product of upstream and gradient is all that it writes a kernel
    for, which takes a compiler seconds.
    """
    case = case_of("signed_distance", device)
    points = case.spheres[..., :3].contiguous()

    def distance(points: Tensor) -> Tensor:
        return signed_distance_of(points, case.world).distance

    compiled = whole(distance, "inductor", options=INDUCTOR)
    values, gradients = [], []
    for function in (compiled, distance):
        leaf = points.clone().requires_grad_(True)
        values.append(function(leaf))
        gradients += torch.autograd.grad(values[-1], leaf, case.upstream)
    assert_same(*values)
    assert_same(*gradients)


@needs_inductor
@pytest.mark.slow
def test_inductor_values_and_poses(case: Case) -> None:
    check_forward_and_backward(case, "inductor")


@needs_inductor
@pytest.mark.slow
def test_inductor_dynamic(case: Case) -> None:
    check_dynamic(case, "inductor")


def test_operands_that_change(case: Case) -> None:
    """A second call of the same graph reads new spheres, and another number for a parameter."""
    options = {"activation_distance": 0.05} if case.name in NAMES[:2] else {}
    compiled = whole(case)
    for scale in (1.0, 0.8):
        assert_same(compiled(case.spheres * scale), case(case.spheres * scale))
    for values in (options, dict.fromkeys(options, 0.03)):
        assert_same(compiled(case.spheres, **values), case(case.spheres, **values))


def test_envs(case: Case) -> None:
    many = of_envs(case)
    for rows in ([0, 2], [1, 0]):
        envs = torch.tensor(rows, dtype=torch.int32, device=case.spheres.device)
        compiled = whole(lambda s, e: many(s, env_index=e))
        assert_same(compiled(case.spheres, envs), many(case.spheres, env_index=envs))


# -- together with torch.func ---------------------------------------------------------------------


def _stacked(x: Tensor) -> Tensor:
    return torch.stack([x, x * 0.9])


INSIDE: dict[str, Callable[[Case], tuple[Callable[..., Any], Tensor]]] = {
    "grad": lambda c: (func.grad(c.loss), c.spheres),
    "grad of poses": lambda c: (func.grad(c.loss_of_poses), c.poses),
    "vmap": lambda c: (func.vmap(c.__call__), _stacked(c.spheres)),
    "vmap over poses": lambda c: (func.vmap(c.with_poses), _stacked(c.poses)),
    "vmap of grad": lambda c: (func.vmap(func.grad(c.loss)), _stacked(c.spheres)),
    "vmap of grad of poses": lambda c: (func.vmap(func.grad(c.loss_of_poses)), _stacked(c.poses)),
    "grad of vmap": lambda c: (
        func.grad(lambda s: func.vmap(c.loss)(s).sum()),
        _stacked(c.spheres),
    ),
    "grad of vmap over poses": lambda c: (
        func.grad(lambda p: func.vmap(c.loss_of_poses)(p).sum()),
        _stacked(c.poses),
    ),
    "jacrev": lambda c: (func.jacrev(c), c.spheres),
    "jacrev of poses": lambda c: (func.jacrev(c.with_poses), c.poses),
    "jacfwd": lambda c: (func.jacfwd(c), c.spheres),
    "vjp": lambda c: (lambda s: func.vjp(c, s)[1](c.upstream)[0], c.spheres),
    "jvp": lambda c: (lambda s: func.jvp(c, (s,), (c.direction,)), c.spheres),
}


OFTEN = ("vmap over poses", "vmap of grad", "jacrev", "jvp")


@pytest.mark.parametrize("transform", mostly_slow(INSIDE, OFTEN))
def test_transforms_inside_a_graph(transform: str, dear_case: Case) -> None:
    function, x = INSIDE[transform](dear_case)
    assert_same(whole(function)(x), function(x))


@pytest.mark.parametrize("transform", mostly_slow(("vmap", "vmap over poses"), OFTEN))
def test_backward_of_a_graph_with_vmap(transform: str, dear_case: Case) -> None:
    function, x = INSIDE[transform](dear_case)

    def loss(y: Tensor) -> Tensor:
        return (function(y) * dear_case.upstream).sum()

    assert_same(backward(whole(loss), x), backward(loss, x))


@pytest.mark.parametrize("transform", [func.grad, func.vmap, func.jacrev])
def test_transforms_around_a_full_graph_raise(transform: Callable[..., Any], case: Case) -> None:
    """Torch's own limit, and with a full graph its own words."""
    with pytest.raises(torch._dynamo.exc.Unsupported, match="functorch"):
        transform(whole(case.loss))(case.spheres[None] if transform is func.vmap else case.spheres)


def test_forward_mode_around_a_graph_raises(case: Case) -> None:
    """Torch would pass it by, and give no tangent."""
    compiled = whole(case)
    compiled(case.spheres)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(case.spheres, case.direction)
        with pytest.raises(RuntimeError, match="forward mode through a compiled function"):
            compiled(dual)


# -- the state of the world -----------------------------------------------------------------------


def test_a_graph_follows_the_world(dear_case: Case, device: torch.device) -> None:
    """Moved, switched, added, removed and grown meshes are those of the next call."""
    world = MeshWorld(max_obstacles=2, device=device)
    box, ball = ((m.vertices, m.faces) for m in (shapes.mesh("box"), shapes.mesh("icosphere")))
    world.add("box", box)
    mine = replace(dear_case, world=world)
    compiled = whole(mine.loss)
    seen: list[float] = []

    def assert_follows() -> None:
        assert_same(compiled(mine.spheres), mine.loss(mine.spheres))
        assert_same(backward(compiled, mine.spheres), backward(mine.loss, mine.spheres))
        seen.append(mine.loss(mine.spheres).item())

    assert_follows()
    world.set_pose("box", (0.1, -0.1, 0.0, 1.0, 0.2, 0.0, 0.0))
    assert_follows()
    world.add("ball", ball, (0.2, 0.1, 0.1, 1.0, 0.0, 0.0, 0.0))
    assert_follows()
    world.enable("box", False)
    assert_follows()
    world.grow(n_envs=2, max_obstacles=5)
    world.add("second box", box, (0.1, 0.3, 0.0, 1.0, 0.0, 0.0, 0.0))
    assert_follows()
    world.remove("ball")
    assert_follows()
    assert len(set(seen)) == len(seen)


def test_worlds_of_one_size_share_a_graph(device: torch.device) -> None:
    """The second world makes the handle a variable of the graph, which the others use."""
    case = case_of("sphere_cost", device)
    box = shapes.mesh("box")
    worlds = [MeshWorld(device=device) for _ in range(5)]
    for i, world in enumerate(worlds):
        world.add("box", (box.vertices, box.faces), (0.1 * i, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = whole(lambda s, world: sphere_cost_of(s, world), counter)
    for world in worlds:
        assert_same(compiled(case.spheres, world), sphere_cost_of(case.spheres, world))
    assert counter.frame_count == 2


def test_a_graph_reads_the_masks_and_poses_that_it_writes(device: torch.device) -> None:
    """Writes to the tables of a world come before the queries that follow them."""
    case = case_of("sphere_cost", device)
    world = MeshWorld(device=device)
    box = shapes.mesh("box")
    world.add("box", (box.vertices, box.faces))

    def off_and_moved(spheres: Tensor) -> tuple[Tensor, ...]:
        before = sphere_cost_of(spheres, world)
        world.enabled.fill_(0)
        off = sphere_cost_of(spheres, world)
        world.enabled.fill_(1)
        world.mesh_from_world[..., 0].add_(0.125)
        return before, off, sphere_cost_of(spheres, world)

    expected = off_and_moved(case.spheres)
    assert not torch.equal(expected[0], expected[2])
    world.mesh_from_world[..., 0].sub_(0.125)
    before, off, moved = whole(off_and_moved)(case.spheres)
    assert_same(before, expected[0])
    assert (off == 0.0).all()
    assert_same(moved, expected[2])


# -- gradients as outputs -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["signed_distance", "clearance"])
def test_results_with_their_gradient(name: str, device: torch.device) -> None:
    """The NamedTuple leaves the graph whole; its distance can be differentiated."""
    case = case_of(name, device)

    def function(spheres: Tensor) -> Any:
        if name == "clearance":
            return clearance(spheres, case.world)
        return signed_distance_of(spheres[..., :3], case.world)

    leaf, plain = (case.spheres.clone().requires_grad_(True) for _ in range(2))
    found, expected = whole(function)(leaf), function(plain)
    assert type(found) is type(expected)
    for actual, wanted in zip(found, expected, strict=True):
        assert_same(actual, wanted)
    near = torch.isfinite(found[0])
    found[0][near].sum().backward()
    expected[0][near].sum().backward()
    assert_same(leaf.grad, plain.grad)


# -- export ---------------------------------------------------------------------------------------


class _Module(torch.nn.Module):
    def __init__(self, case: Case):
        super().__init__()
        self.case = case

    def forward(self, spheres: Tensor) -> Tensor:
        return self.case(spheres)


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool, case: Case) -> None:
    program = torch.export.export(_Module(case), (case.spheres,), strict=strict)
    assert "warp_collision" in str(program.graph)
    assert_same(program.module()(case.spheres * 0.9), case(case.spheres * 0.9))


def test_an_exported_program_is_for_inference(case: Case) -> None:
    """Its graph holds the operator without its Function: asking for a gradient raises."""
    module = torch.export.export(_Module(case), (case.spheres,)).module()
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        backward(lambda s: module(s).sum(), case.spheres)


def test_an_exported_program_follows_poses_and_masks(device: torch.device) -> None:
    """It holds the tables of the world, which change in place."""
    world = MeshWorld(device=device)
    box = shapes.mesh("box")
    world.add("box", (box.vertices, box.faces))
    case = replace(case_of("sphere_cost", device), world=world)
    module = torch.export.export(_Module(case), (case.spheres,)).module()
    before = module(case.spheres)
    world.set_pose("box", (0.1, -0.1, 0.0, 1.0, 0.2, 0.0, 0.0))
    assert not torch.equal(case(case.spheres), before)
    assert_same(module(case.spheres), case(case.spheres))
    world.enable("box", False)
    assert (module(case.spheres) == 0.0).all()


def test_export_with_dynamic_shapes(case: Case) -> None:
    sizes = {i: torch.export.Dim.AUTO for i in range(3)}
    program = torch.export.export(_Module(case), (case.spheres,), dynamic_shapes=(sizes,))
    for spheres in (case.spheres[:, :, :4], case.spheres.repeat(3, 2, 1, 1)):
        assert_same(program.module()(spheres), case(spheres))


# -- the operators --------------------------------------------------------------------------------


N_OPERATORS = 12


def operands(device: torch.device, with_index: bool) -> dict[Any, tuple[Any, ...]]:
    """Operands of each operator."""
    case = of_envs(case_of("sphere_cost", device))
    scene = case.world._storage.scene.operands()
    rows = torch.tensor([2, 0], dtype=torch.int32, device=device) if with_index else None
    one, eta = torch.ones(1, device=device), torch.full((1,), 0.02, device=device)
    dt = one if with_index else None
    points = case.spheres[..., :3].flatten(1, 2)
    _, gradient, slot = sphere_queries.SCENE_DISTANCE.operator(points, *scene, rows)
    spheres, upstream = case.spheres, case.upstream
    return {
        sphere_queries.SPHERE_COST.operator: (spheres, *scene, rows, one, eta),
        sphere_queries.SWEPT_COST.operator: (spheres, *scene, rows, one, eta, 0.1 * eta, dt, dt),
        sphere_queries.SCENE_DISTANCE.operator: (points, *scene, rows),
        sphere_queries.CLEARANCE.operator: (spheres, *scene, rows, eta if with_index else None),
        sphere_queries.IN_COLLISION.operator: (spheres, *scene, rows),
        sphere_queries.ANY_IN_COLLISION.operator: (spheres, *scene, rows),
        sphere_queries.SWEPT_IN_COLLISION.operator: (spheres, *scene, rows, 0.1 * eta),
        sphere_queries.sphere_cost_pose_vjp: (spheres, *scene, rows, one, eta, upstream),
        sphere_queries.swept_cost_pose_vjp: (
            *(spheres, *scene, rows, one, eta, 0.1 * eta, dt, dt, upstream),
        ),
        sphere_queries.scene_distance_pose_vjp: (
            *(points, scene[1], rows, gradient, slot, upstream.flatten(1)),
        ),
        second_derivatives.first_order_only: (gradient, points),
        second_derivatives.undefined_second_derivative: (torch.zeros_like(gradient),),
    }


@pytest.mark.parametrize("place", range(N_OPERATORS))
@pytest.mark.parametrize("with_index", mostly_slow((False, True), (True,)))
def test_opcheck(place: int, with_index: bool, device: torch.device) -> None:
    operator, arguments = list(operands(device, with_index).items())[place]
    result = torch.library.opcheck(operator, arguments)
    assert set(result.values()) == {"SUCCESS"}


def test_every_operator_is_checked(device: torch.device) -> None:
    registered = {
        name.split("::")[1].split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("warp_collision::")
    }
    # Those of robots are checked with their robots.
    of_robots = (
        *("forward_kinematics", "self_collision", "closest_pair", "link_distances"),
        *("configuration_in_collision", "joint_path", "place_roots", "segment_acceleration_bound"),
    )
    of_worlds = {name for name in registered if not name.startswith(of_robots)}
    assert of_worlds == {operator._name for operator in operands(device, False)}
    assert len(of_worlds) == N_OPERATORS


def test_sphere_cost_of_a_model(device: torch.device) -> None:
    """The usual place: spheres that a model computes, in the same graph."""
    case = case_of("sphere_cost", device)
    model = torch.nn.Linear(3, 4, device=device)
    with torch.no_grad():
        model.weight.copy_(torch.eye(4, 3, device=device) * 0.2)
        model.bias.fill_(0.05)
    inputs = case.spheres[..., :3].clone()

    def loss(x: Tensor) -> Tensor:
        return sphere_cost_of(model(x), case.world).sum()

    def gradients(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        model.zero_grad()
        function(inputs).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients(loss)
    assert len(expected) == 2
    assert all((g != 0.0).any() for g in expected)
    assert_same(gradients(whole(loss)), expected)
