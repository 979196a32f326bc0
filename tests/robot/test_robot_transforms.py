"""Robot functions under `torch.func`, forward mode, `torch.compile` and `torch.export`."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import func

import joint_paths as jp
from cases import mostly_slow
from differentiable import JIT_WARNING, needs_graphs_of_checks
from warp_collision import CollisionCost, Cuboid, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths
from warp_collision.queries import robot_queries
from warp_collision.robot import (
    configuration_in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
    self_clearance,
    self_collision_cost,
)
from warp_collision.robot.checks import path_operators
from warp_collision.robot.model.base_pose import place_roots_operator
from warp_collision.robot.model.interpolation import segment_acceleration_bound

Tensor = torch.Tensor

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)

FIRST_CALLS = ["configurations", "paths", "clearance", "allowed", "cost", "constraint"]
FIRST_CALLS += ["float64", "links", "self cost", "self clearance"]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def panda():
    return load_panda()


@pytest.fixture(scope="module")
def world(panda) -> MeshWorld:
    """Plates and posts within reach of the arm."""
    rng = np.random.default_rng(2)
    reach = panda(jp.random_paths(panda, rng, 20, 1, 1.0)[:, 0].double())
    places = reach[..., :3].reshape(-1, 3)
    places = places[places.norm(dim=-1) > 0.65]
    boxes = jp.plates_and_posts(rng, 8, places)
    return jp.world_of(boxes, torch.device("cpu"))


@pytest.fixture(scope="module")
def paths(panda) -> Tensor:
    """(calls, batch, horizon, n_joints)."""
    return jp.random_paths(panda, np.random.default_rng(1), 6, 4, 0.5).view(3, 2, 4, 7)


def lower_bounds(joints: Tensor, *args: Any, **options: Any) -> Tensor:
    found = joint_path_clearance(joints, *args, **options)
    return torch.stack(
        (found.world_lower, found.self_lower, found.obstacle, found.self_sphere), dim=-1
    )


CHECKS = {
    "configurations": configuration_in_collision,
    "paths": joint_path_in_collision,
    "clearance": lower_bounds,
}


@pytest.fixture(params=CHECKS)
def check(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    return CHECKS[request.param]


@pytest.fixture(params=mostly_slow(CHECKS, ("paths",)))
def dear_check(request: pytest.FixtureRequest) -> Callable[..., Tensor]:
    """Each of the checks, where each takes its time; they are records of one kind."""
    return CHECKS[request.param]


def poses_of(world: MeshWorld, seed: int, *shape: int) -> Tensor:
    """Poses (*shape, n_meshes, 7) near those of a world."""
    known = torch.stack([world.pose(name) for name in world.names()])
    generator = torch.Generator().manual_seed(seed)
    return known + 0.1 * torch.randn((*shape, *known.shape), generator=generator)


def bases(*shape: int) -> Tensor:
    """Poses of a root link near the origin."""
    generator = torch.Generator().manual_seed(4)
    still = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    return still + 0.1 * torch.randn((*shape, 7), generator=generator)


def check_batched(function: Callable[..., Any], *operands: Tensor) -> None:
    """A batched call gives what calls one after another give, which differs between them."""
    expected = torch.stack([function(*one) for one in zip(*operands, strict=True)])
    assert len(expected.unique(dim=0)) > 1
    assert torch.equal(func.vmap(function)(*operands), expected)


def test_checks_are_batched(check, panda, world, paths) -> None:
    check_batched(lambda q: check(q, panda, world), paths)
    check_batched(lambda q: configuration_in_collision(q, panda, world), paths.view(-1, 7))
    nested = func.vmap(func.vmap(lambda q: check(q[None], panda, world)[0]), in_dims=1, out_dims=1)
    assert torch.equal(nested(paths), check(paths.flatten(0, 1), panda, world).unflatten(0, (3, 2)))


def test_bases_are_batched(check, panda, world, paths) -> None:
    own, shared = bases(3, 2), bases()
    check_batched(lambda q, b: check(q, panda, world, base_pose=b), paths, own)
    check_batched(lambda q, b: check(q, panda, world, base_pose=b), paths, own[:, 0])
    check_batched(lambda b: check(paths[0], panda, world, base_pose=b), own)
    check_batched(lambda q: check(q, panda, world, base_pose=own[0]), paths)
    check_batched(lambda q: check(q, panda, world, base_pose=shared), paths)


@pytest.mark.parametrize("check", [joint_path_in_collision, lower_bounds])
def test_poses_are_batched(check, panda, world, paths) -> None:
    def at(q: Tensor, p: Tensor) -> Tensor:
        return check(q, panda, world, poses=p)

    at_rest, moving = poses_of(world, 5, 3), poses_of(world, 6, 3, 4)
    for poses in (at_rest, moving):
        check_batched(at, paths, poses)
        check_batched(partial(at, paths[0]), poses)
        check_batched(partial(at, p=poses[1]), paths)
    both = bases(3, 2)
    check_batched(lambda q, p, b: check(q, panda, world, poses=p, base_pose=b), paths, moving, both)


@pytest.mark.parametrize("check", [joint_path_in_collision, lower_bounds])
def test_tolerances_are_batched(check, panda, world, paths) -> None:
    tolerance = torch.tensor([1e-3, 3e-2, 0.3])
    check_batched(
        lambda t, b: check(paths[0], panda, world, tolerance=t, base_pose=b),
        tolerance,
        bases(3, 2),
    )


def test_allowed_contacts_are_batched(check, panda, world, paths) -> None:
    ignored = [(link, name) for link in panda.link_names[-3:] for name in world.names()[:5]]
    check_batched(lambda q: check(q, panda, world, ignore=ignored), paths)


def test_rows_in_envs_are_batched(check, paths) -> None:
    """Obstacles and attached objects differ between envs, and so do the poses of obstacles."""
    robot = load_panda()
    robot.attach("rod", "panda_hand", [[0.0, 0.0, 0.1 * i, 0.05] for i in range(1, 5)], envs=[1])
    world = MeshWorld(n_envs=2, max_obstacles=2, device="cpu")
    world.add("block", Cuboid((0.3, 0.3, 0.3)), (0.6, 0.1, 0.5, 1, 0, 0, 0))
    world.add("post", Cuboid((0.1, 0.1, 1.0)), (-0.4, 0.5, 0.5, 1, 0, 0, 0), env=1)
    envs = torch.tensor([[0, 1], [1, 1], [1, 0]], dtype=torch.int32)
    options = {"self_collision": False}
    check_batched(lambda q, e: check(q, robot, world, env_index=e, **options), paths, envs)
    check_batched(lambda e: check(paths[0], robot, world, env_index=e, **options), envs)
    cost = CollisionCost(robot, world, substeps=3, activation_distance=0.2)
    check_batched(lambda q, e: cost(q, e), paths, envs)
    check_batched(lambda q, b: cost(q, envs[0], base_pose=b), paths, bases(3, 2))
    if check is not configuration_in_collision:
        poses = torch.tensor([[0.6, 0.1, 0.5, 1, 0, 0, 0]]).repeat(3, 2, 2, 1)
        poses = poses + 0.1 * torch.randn(poses.shape, generator=torch.Generator().manual_seed(8))
        for rows in (envs[0], None):
            options["env_index"] = rows
            check_batched(lambda q, p: check(q, robot, world, poses=p, **options), paths, poses)


def first_calls(robot: Any, world: MeshWorld) -> dict[str, Callable[[Tensor], Tensor]]:
    """Functions that prepare the tables that they need at their first call."""
    ignored = [("panda_hand", world.names()[0])]
    cost = CollisionCost(robot, world, self_weight=1.0, substeps=3)
    return {
        "configurations": lambda q: configuration_in_collision(q, robot, world),
        "paths": lambda q: joint_path_in_collision(q, robot, world),
        "clearance": lambda q: lower_bounds(q, robot, world),
        "allowed": lambda q: joint_path_in_collision(q, robot, world, ignore=ignored),
        "cost": cost,
        "constraint": lambda q: cost.constraint(q).jacobian,
        "float64": lambda q: robot(q.double()),
        "links": robot.link_transforms,
        "self cost": lambda q: self_collision_cost(robot(q), robot.default_pairs),
        "self clearance": lambda q: self_clearance(robot(q), robot.default_pairs).clearance,
    }


def of_vmap(function: Callable[[Tensor], Tensor], joints: Tensor) -> Tensor:
    return func.vmap(lambda q: function(q[None])[0])(joints)


def of_jvp(function: Callable[[Tensor], Tensor], joints: Tensor) -> Tensor:
    return func.jvp(function, (joints,), (torch.ones_like(joints),))[0]


def of_grad(function: Callable[[Tensor], Tensor], joints: Tensor) -> Tensor:
    def pair(q: Tensor) -> tuple[Tensor, Tensor]:
        return q.sum(), function(q)

    return func.grad(pair, has_aux=True)(joints)[1]


def of_graph(function: Callable[[Tensor], Tensor], joints: Tensor) -> Tensor:
    return torch.compile(function, fullgraph=True, backend="aot_eager")(joints)


def of_export(function: Callable[[Tensor], Tensor], joints: Tensor) -> Tensor:
    class Module(torch.nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return function(q)

    module = function if isinstance(function, torch.nn.Module) else Module()
    return torch.export.export(module, (joints,)).module()(joints)


GRAPH = pytest.param(of_graph, marks=needs_graphs_of_checks)


@pytest.mark.parametrize("way", [of_vmap, of_jvp, of_grad])
@pytest.mark.parametrize("name", mostly_slow(FIRST_CALLS, FIRST_CALLS[::4]))
def test_first_calls(name, way, world, paths) -> None:
    assert_prepared(name, way, world, paths)


@pytest.mark.parametrize("way", [GRAPH, of_export])
@pytest.mark.parametrize("name", mostly_slow(FIRST_CALLS, ("paths",)))
def test_first_calls_in_graphs(name, way, world, paths) -> None:
    assert_prepared(name, way, world, paths)


def assert_prepared(name: str, way: Callable[..., Tensor], world: MeshWorld, paths: Tensor) -> None:
    """What a first call prepares serves later calls, and is what eager calls prepare."""
    robot, joints = load_panda(), paths[0]
    expected = first_calls(load_panda(), world)[name](joints)
    function = first_calls(robot, world)[name]
    torch.testing.assert_close(way(function, joints), expected)
    torch.testing.assert_close(function(joints), expected)


@needs_graphs_of_checks
def test_graphs_follow_the_robot(dear_check, world, paths) -> None:
    """A graph is not tied to the pairs and spheres of the robot that it first saw."""
    robot, joints = load_panda(), paths.flatten(0, 1)
    compiled = torch.compile(
        lambda q, b: dear_check(q, robot, world, base_pose=b), fullgraph=True, backend="aot_eager"
    )
    seen = []
    for base in ((0, 0, 0, 1, 0, 0, 0), (0.3, 0.0, 0.2, 0.9, 0.1, 0.3, 0.2)):
        for change in (None, "rod"):
            if change:
                ball = [[0.0, 0.0, 0.3, 0.3]]
                robot.attach("rod", "panda_hand", ball, touch_links=robot.link_names[:-1])
            seen.append(compiled(joints, base))
            assert torch.equal(seen[-1], dear_check(joints, robot, world, base_pose=base))
        robot.detach("rod")
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


@needs_graphs_of_checks
def test_graphs_of_changing_shapes(dear_check, panda, world, paths) -> None:
    """One graph for all numbers of paths and waypoints."""

    def run(q: Tensor, poses: Tensor) -> Tensor:
        options = {} if dear_check is configuration_in_collision else {"poses": poses}
        return dear_check(q, panda, world, **options)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    joints, moving = paths.flatten(0, 1), poses_of(world, 6, 4)
    # Sizes that no table has: the compiler takes equal ones for the same.
    with torch.compiler.set_stance("default"):
        compiled(joints[:5, :3].clone(), moving[:3].clone())
    with torch.compiler.set_stance("fail_on_recompile"):
        for batch, horizon in ((5, 3), (6, 4), (2, 4)):
            q, poses = joints[:batch, :horizon].clone(), moving[:horizon].clone()
            assert torch.equal(compiled(q, poses), run(q, poses))


# -- costs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cost(panda, world) -> Callable[..., Tensor]:
    """The cost of one path, with as many parts as its values ask for."""

    def of_path(q: Tensor, poses: Tensor | None = None, **options: Any) -> Tensor:
        options = {"activation_distance": 0.1, "self_weight": 1.0, **options}
        return joint_path_cost(q[None], panda, world, poses=poses, **options).sum()

    return of_path


def test_costs_without_substeps(cost, world, paths) -> None:
    """The number of parts depends on values, which derivatives leave readable."""
    q, poses = paths[0, 0], poses_of(world, 7)
    leaf, movable = q.clone().requires_grad_(), poses.clone().requires_grad_()
    value = cost(leaf, movable)
    by_joints, by_poses = torch.autograd.grad(value, (leaf, movable))
    assert by_joints.any()
    assert by_poses.any()
    torch.testing.assert_close(func.grad(cost)(q, poses), by_joints)
    torch.testing.assert_close(func.grad(cost, argnums=1)(q, poses), by_poses)
    torch.testing.assert_close(func.jacrev(cost)(q, poses), by_joints)
    torch.testing.assert_close(func.jacrev(cost, argnums=1)(q, poses), by_poses)
    torch.testing.assert_close(func.jacfwd(lambda x: cost(x))(q), func.grad(cost)(q))
    rate = torch.linspace(-1.0, 1.0, q.numel()).view(q.shape)
    found = func.jvp(cost, (q,), (rate,))[1]
    torch.testing.assert_close(found, (func.grad(cost)(q) * rate).sum())
    with torch.autograd.forward_ad.dual_level():
        dual = cost(torch.autograd.forward_ad.make_dual(q, rate))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, found)
    several = poses_of(world, 7, 3)
    expected = torch.stack([cost(q, one) for one in several])
    torch.testing.assert_close(func.vmap(partial(cost, q))(several), expected)


@pytest.mark.parametrize("substeps", [None, 3])
def test_costs_are_batched(substeps, cost, panda, world, paths) -> None:
    joints = paths.flatten(0, 1)
    one = partial(cost, substeps=substeps)
    nested = func.vmap(func.grad(one))
    module = CollisionCost(panda, world, substeps=substeps)
    if substeps is None:
        for function in (func.vmap(one), nested, func.vmap(lambda q: module(q[None]))):
            with pytest.raises(
                ValueError, match="substeps must be given where vmap batches joints"
            ):
                function(joints)
        with pytest.raises(ValueError, match="joints must have values that can be read"):
            func.vmap(lambda q: panda.interpolate(q[None], 1e-3).joints)(joints)
        return
    torch.testing.assert_close(func.vmap(one)(joints), torch.stack([one(q) for q in joints]))
    torch.testing.assert_close(nested(joints), torch.stack([func.grad(one)(q) for q in joints]))
    torch.testing.assert_close(func.vmap(lambda q: module(q[None])[0])(joints), module(joints))


def test_graphs_without_substeps(panda, world, paths) -> None:
    module, joints = CollisionCost(panda, world), paths[0]
    with pytest.raises(Exception, match="substeps must be given in a compiled graph"):
        torch.compile(module, fullgraph=True, backend="eager")(joints)
    with pytest.raises(RuntimeError, match="substeps must be given in a compiled graph"):
        torch.export.export(module, (joints,))
    broken = torch.compile(module, backend="eager")
    torch.testing.assert_close(broken(joints), module(joints))


# -- functions that read values -------------------------------------------------------------------


def test_functions_that_read_values(panda, world, paths) -> None:
    def report(q: Tensor) -> Tensor:
        return q.sum() + len(panda.report(q[None], world).depth)

    def plan(q: Tensor) -> Tensor:
        return optimize_paths(q[:1], q[1:2], panda, world).joints

    joints = paths[0]
    for name, function in {"report": report, "optimize_paths": plan}.items():
        message = f"{name} reads values of tensors"
        for transformed in (func.vmap(function), func.vmap(func.grad(function))):
            with pytest.raises(RuntimeError, match=message):
                transformed(joints)
        with pytest.raises(RuntimeError, match=message):
            func.jacrev(function)(joints[0])
        with pytest.raises(Exception, match=message):
            torch.compile(function, fullgraph=True, backend="eager")(joints[0])
    broken = torch.compile(report, backend="eager")
    assert broken(joints[0]) == report(joints[0])


def test_pairs_are_found_inside_of_transforms(panda, paths) -> None:
    expected = panda.self_collision_pairs(), panda.find_pairs(50)

    def count(q: Tensor) -> Tensor:
        found = panda.self_collision_pairs(), panda.find_pairs(50)
        assert all(a.link_pairs == b.link_pairs for a, b in zip(found, expected, strict=True))
        return q.sum()

    assert torch.equal(func.vmap(count)(paths), paths.sum((1, 2, 3)))
    assert torch.equal(func.grad(count)(paths), torch.ones_like(paths))
    with pytest.raises(Exception, match="self_collision_pairs must be called outside of compiled"):
        torch.compile(count, fullgraph=True, backend="eager")(paths)


# -- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("based", mostly_slow((False, True), (True,)))
def test_opcheck(based, panda, world, paths, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {}
    for name in ("CONFIGURATION_IN_COLLISION", "JOINT_PATH_IN_COLLISION", "JOINT_PATH_CLEARANCE"):
        check = getattr(path_operators, name)

        def spy(*operands: Any, _operator: Any = check.operator) -> Any:
            calls[_operator] = operands
            return _operator(*operands)

        monkeypatch.setattr(check, "operator", spy)
    base = bases(2) if based else None
    with torch.autograd.forward_ad.dual_level():
        for check in CHECKS.values():
            check(paths[0], panda, world, base_pose=base)
    tables = panda.layout.tables(torch.device("cpu"))
    calls[segment_acceleration_bound] = (paths[0], *tables.operands(), 1)
    points = panda.layout.kinematics.tables(torch.device("cpu"))
    calls[robot_queries.forward_kinematics_jacobian] = (paths[0, 0], *points, None)
    calls[place_roots_operator] = (bases(2).double(),)
    assert len(calls) == 6
    for operator, operands in calls.items():
        assert set(torch.library.opcheck(operator, operands).values()) == {"SUCCESS"}
