"""The cost of joint paths: arcs instead of chords, shares of waypoints, gradients."""

from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from differentiable import JIT_WARNING
from joint_paths import load_crane, random_paths
from warp_collision import (
    Cuboid,
    MeshWorld,
    RobotSpheres,
    joint_path_cost,
    self_collision_cost,
    sphere_cost,
    swept_sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.robot.checks.joint_path_cost import PathCost

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


def blocks(device: torch.device) -> MeshWorld:
    world = MeshWorld(device=device)
    for i, place in enumerate([(0.5, 0.2, 0.5), (-0.4, 0.3, 0.6), (0.1, -0.5, 0.4)]):
        world.add(
            f"block {i}", trimesh.creation.box((0.25, 0.2, 0.3)), (*place, 0.9, 0.3, 0.1, 0.3)
        )
    return world


@pytest.mark.parametrize("name", ["panda", "crane"])
@pytest.mark.parametrize("deviation", [1e-2, 1e-3, 1e-4])
def test_chords_are_as_close_to_the_arcs_as_asked(robots, name, deviation, device):
    robot = robots[name]
    paths = random_paths(robot, np.random.default_rng(1), 3, 3, 1.0)
    cut = robot.interpolate(paths.to(device), deviation)
    assert cut.joints.shape == (3, 2 * cut.parts + 1, robot.n_joints)
    assert torch.equal(cut.joints[:, :: cut.parts].cpu(), paths)
    knots = cut.joints.cpu().double()
    middle = robot(0.5 * (knots[:, 1:] + knots[:, :-1]))[..., :3]
    ends = robot(knots)[..., :3]
    away = (middle - 0.5 * (ends[:, 1:] + ends[:, :-1])).norm(dim=-1).max()
    # A bound, but not a wasteful one: the number of parts goes with the root of the deviation.
    assert 0.1 * deviation < away <= deviation


@pytest.mark.filterwarnings("ignore:joints must be in rad")
def test_numbers_of_parts(robots):
    panda = robots["panda"]
    resting = torch.zeros(2, 4, 7)
    assert panda.interpolate(resting, 1e-3).parts == 1
    assert panda.interpolate(resting[:, :1], 1e-3).parts == 1
    turned = resting.clone()
    turned[:, :, 0] = torch.linspace(0.0, 40.0, 4)  # more than a turn: the numbers are followed
    cut = panda.interpolate(turned, 1e-3, odd=True)
    assert cut.parts % 2 == 1
    assert (cut.joints[0, :, 0].diff() > 0.0).all()
    turned[0, 0, 3] = torch.nan
    assert panda.interpolate(turned, 1e-3, odd=True).parts == cut.parts
    turned[1, :, 0] = torch.linspace(0.0, 1e12, 4)
    with pytest.raises(ValueError, match=r"joints must need at most 100000 parts .* got \d"):
        panda.interpolate(turned, 1e-3)
    with pytest.raises(ValueError, match="max_deviation must be positive, got 0"):
        panda.interpolate(resting, 0.0)
    with pytest.raises(ValueError, match=r"joints must have shape \(batch, horizon, 7\), got"):
        panda.interpolate(resting[0], 1e-3)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_one_seed_that_is_not_finite_leaves_the_others(robots, device, bad):
    panda, world = robots["panda"], blocks(device)
    joints = random_paths(panda, np.random.default_rng(8), 3, 4, 1.0).to(device)
    expected = joint_path_cost(joints[[0, 2]], panda, world)
    joints[1, 2, 0] = bad
    cost = joint_path_cost(joints, panda, world)
    assert cost[1].isnan().any()
    torch.testing.assert_close(cost[[0, 2]], expected, rtol=0.05, atol=1e-4)


def test_at_rest_it_is_the_cost_of_the_spheres(robots, device):
    panda, world = robots["panda"], blocks(device)
    joints = random_paths(panda, np.random.default_rng(2), 20, 1, 1.0).to(device)
    expected = 3.0 * sphere_cost(panda(joints), world, activation_distance=0.05).sum(-1)
    options = {"weight": 3.0, "activation_distance": 0.05}
    assert (expected > 0.0).float().mean() > 0.2
    torch.testing.assert_close(joint_path_cost(joints, panda, world, **options), expected)
    still = joints.expand(-1, 3, -1)
    found = joint_path_cost(still, panda, world, **options)
    torch.testing.assert_close(found, expected.expand(-1, 3))


@pytest.mark.parametrize("substeps", [1, 3, 7])
def test_a_waypoint_costs_the_most_of_what_it_owns(robots, substeps, device):
    """Against waypoints in the middle of segments too, whose chords are owned one by one."""
    panda, world = robots["panda"], blocks(device)
    paths = random_paths(panda, np.random.default_rng(3), 4, 4, 0.5).to(device)
    s = torch.arange(substeps * 3 + 1, device=device) / substeps
    at = s.long().clamp(max=2)
    part = (s - at)[:, None]
    fine = paths[:, at] * (1.0 - part) + paths[:, at + 1] * part
    costs = swept_sphere_cost(panda(fine), world, activation_distance=0.05)
    expected = torch.zeros(4, 4, device=device)
    for t in range(4):
        owned = [i for i in range(fine.shape[1]) if abs(i - t * substeps) <= (substeps - 1) / 2]
        expected[:, t] = costs[:, owned].amax(1).sum(-1)
    found = joint_path_cost(paths, panda, world, activation_distance=0.05, substeps=substeps)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_reversed_in_time(robots, device):
    panda, world = robots["panda"], blocks(device)
    paths = random_paths(panda, np.random.default_rng(4), 10, 5, 0.7).to(device)
    cost = joint_path_cost(paths, panda, world, self_weight=2.0)
    backward = joint_path_cost(paths.flip(1), panda, world, self_weight=2.0)
    assert cost.max() > 0.0
    torch.testing.assert_close(backward.flip(1), cost, atol=2e-4, rtol=1e-3)


def test_what_chords_pass_by_and_arcs_do_not(robots, device):
    """A bead where the arc of a sphere is farthest from its chord costs on the joint path alone."""
    panda = robots["panda"]
    path = torch.tensor([[[-0.6, 0.4, 0, -1.6, 0, 2, 0.8], [0.6, 0.4, 0, -1.6, 0, 2, 0.8]]])
    ends, middle = panda(path[0].double()), panda(path[0].double().mean(0))
    away = middle[:, :3] - 0.5 * (ends[0] + ends[1])[:, :3]
    far = int(away.norm(dim=-1).argmax())
    place = middle[far, :3] + (middle[far, 3] - 0.01) * away[far] / away[far].norm()
    world = MeshWorld(device=device)
    world.add("bead", trimesh.creation.box((0.0005, 0.002, 0.002)), [*place.tolist(), 1, 0, 0, 0])
    path = path.to(device)
    assert swept_sphere_cost(panda(path), world).sum() == 0.0
    assert (joint_path_cost(path, panda, world) > 0.0).all()


@pytest.mark.parametrize("name", ["panda", "crane"])
def test_gradients_are_those_of_finite_differences(robots, name, device):
    """By each joint value, of neighbours too, for an incoming gradient of any sign."""
    robot, world = robots[name], blocks(device)
    rng = np.random.default_rng(5)
    joints = random_paths(robot, rng, 3, 4, 0.3).to(device).requires_grad_()
    upstream = torch.tensor(rng.normal(size=(3, 4)), dtype=torch.float32, device=device)

    def loss(paths: torch.Tensor) -> torch.Tensor:
        cost = joint_path_cost(
            paths,
            robot,
            world,
            substeps=5,
            activation_distance=0.5,
            tolerance=1e-5,
            self_weight=0.5,
            self_activation_distance=0.1,
        )
        return (upstream * cost).sum((1, 2) if cost.ndim == 3 else 1)

    (gradient,) = torch.autograd.grad(loss(joints).sum(), joints)
    step = 2e-3
    numbers = torch.zeros_like(gradient)
    for t, j in np.ndindex(*joints.shape[1:]):
        shifted = joints.detach().clone()
        shifted[:, t, j] += step
        above = loss(shifted)
        shifted[:, t, j] -= 2.0 * step
        numbers[:, t, j] = (above - loss(shifted)) / (2.0 * step)
    scale = numbers.abs().max()
    assert scale > 0.5
    # Where the largest of several costs changes hands, a difference is between two slopes.
    close = (gradient - numbers).abs() < 0.02 * scale
    assert close.float().mean() > 0.95


def test_the_robot_with_itself(robots):
    panda, world = robots["panda"], MeshWorld(device="cpu")
    paths = random_paths(panda, np.random.default_rng(6), 20, 1, 1.0)
    paths[:, :, 3], paths[:, :, 1] = -3.0, 1.7
    expected = 4.0 * self_collision_cost(
        panda(paths), panda.default_pairs, activation_distance=0.03
    ).sum(-1)
    assert (expected > 0.0).any()
    options = {"self_weight": 4.0, "self_activation_distance": 0.03}
    found = joint_path_cost(paths, panda, world, **options)
    torch.testing.assert_close(found, expected)
    assert (joint_path_cost(paths, panda, world) == 0.0).all()
    fewer = panda.self_collision_pairs(
        ignore=[(a, b) for a in panda.link_names for b in panda.link_names if a != b]
    )
    assert (joint_path_cost(paths, panda, world, pairs=fewer, **options) == 0.0).all()


def test_compiled_with_a_fixed_number_of_parts(robots):
    panda, world = robots["panda"], blocks(torch.device("cpu"))
    paths = random_paths(panda, np.random.default_rng(7), 2, 3, 0.4).requires_grad_()

    def cost(joints):
        return joint_path_cost(joints, panda, world, substeps=3, activation_distance=0.3)

    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")
    expected = cost(paths)
    found = compiled(paths)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), paths)
    (plain,) = torch.autograd.grad(expected.sum(), paths)
    torch.testing.assert_close(gradient, plain)
    with pytest.raises(Exception, match="substeps must be given in a compiled graph"):
        torch.compile(
            lambda joints: joint_path_cost(joints, panda, world), fullgraph=True, backend="eager"
        )(paths)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"substeps": 4}, "substeps must be odd, got 4"),
        ({"substeps": 0}, "substeps must be at least 1, got 0"),
        ({"joints": torch.zeros(2, 7)}, "joints must have shape .batch, horizon, n_joints"),
        ({"substeps": True}, "substeps must be an int, got bool"),
        ({"substeps": 1.0}, "substeps must be an int, got float"),
        ({"max_deviation": -1.0}, "max_deviation must not be negative|must be positive"),
    ],
)
def test_wrong_arguments(robots, change, message):
    arguments = {"joints": torch.zeros(1, 2, 7), **change}
    with pytest.raises((TypeError, ValueError), match=message):
        joint_path_cost(
            arguments.pop("joints"), robots["panda"], MeshWorld(device="cpu"), **arguments
        )


def test_one_node_of_autograd_has_the_gradient_of_the_operators(robots, device, monkeypatch):
    """By random incoming gradients, in envs, with itself; batched and recorded ones too."""
    robot = robots["panda"]
    numbers = torch.Generator().manual_seed(3)
    world = MeshWorld(2, max_obstacles=3, device=device)
    world.add("block", Cuboid((0.3, 0.4, 0.3)), (0.4, 0.1, 0.5, 0.9, 0.1, 0.0, 0.2), env=0)
    world.add("plate", Cuboid((0.6, 0.6, 0.02)), (0.3, -0.2, 0.4, 0.9, 0.0, 0.3, 0.2), env=1)
    joints = 2.0 * torch.randn((5, 4, robot.n_joints), generator=numbers).to(device)
    upstream = torch.randn((5, 4), generator=numbers).to(device)
    envs = torch.tensor([0, 1, 1, 0, 1], dtype=torch.int32, device=device)
    options: dict[str, Any] = {"substeps": 1, "weight": 3.0, "activation_distance": 0.1}
    options |= {"env_index": envs, "self_activation_distance": 0.1}

    def found(self_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = joints.clone().requires_grad_()
        cost = joint_path_cost(leaf, robot, world, self_weight=self_weight, **options)
        return cost.detach(), *torch.autograd.grad(cost, leaf, upstream)

    by_self = {weight: found(weight) for weight in (0.0, 2.0)}
    assert (by_self[2.0][0] > 1.1 * by_self[0.0][0]).any()
    for weight, (cost, _) in by_self.items():  # without a gradient, too
        plain = joint_path_cost(joints, robot, world, self_weight=weight, **options)
        assert torch.equal(plain, cost)
    monkeypatch.setattr(PathCost, "_is_direct", lambda *_: False)
    for weight, (cost, gradient) in by_self.items():
        expected, by_operators = found(weight)
        torch.testing.assert_close(cost, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient, by_operators, rtol=1e-5, atol=1e-4)
    monkeypatch.undo()

    def summed(leaf: torch.Tensor) -> torch.Tensor:
        return joint_path_cost(leaf, robot, world, self_weight=2.0, **options).sum(1)

    one_by_one = torch.autograd.functional.jacobian(summed, joints)
    at_once = torch.autograd.functional.jacobian(summed, joints, vectorize=True)
    torch.testing.assert_close(at_once, one_by_one, rtol=1e-5, atol=1e-4)
    leaf = joints.clone().requires_grad_()
    total = summed(leaf).sum()
    world.set_pose("block", (9.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))  # a gradient is of its cost
    (gradient,) = torch.autograd.grad(total, leaf, create_graph=True)
    torch.testing.assert_close(gradient.detach(), one_by_one.sum(0), rtol=1e-5, atol=1e-4)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()


def test_joint_values_that_are_written_before_backward_raise(robots, device):
    joints = torch.zeros((1, 2, robots["panda"].n_joints), device=device)
    leaf = joints.requires_grad_()
    moved = leaf + 0.1
    cost = joint_path_cost(moved, robots["panda"], MeshWorld(device=device), substeps=1)
    moved.detach().add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        cost.sum().backward()
