"""The cost of curves: chords close to the arcs, what a knot owns, gradients to control points."""

import numpy as np
import pytest
import torch

from joint_paths import load_crane, random_paths
from warp_collision import Cuboid, MeshWorld, joint_path_cost, swept_sphere_cost
from warp_collision.examples import load_panda
from warp_collision.robot import JointCurve, joint_path_in_collision
from warp_collision.robot.model.interpolation import cut, parts_for


@pytest.fixture(scope="module")
def robots():
    return {"panda": load_panda(), "crane": load_crane()}


def blocks(device: torch.device) -> MeshWorld:
    world = MeshWorld(device=device)
    for i, place in enumerate([(0.5, 0.2, 0.5), (-0.4, 0.3, 0.6), (0.1, -0.5, 0.4)]):
        world.add(f"block {i}", Cuboid((0.25, 0.2, 0.3)), (*place, 0.9, 0.3, 0.1, 0.3))
    return world


def random_curve(robot, seed: int, batch=2, scale=0.5, quintic=False) -> JointCurve:
    rng = np.random.default_rng(seed)
    p = random_paths(robot, rng, batch, 4, scale).double().numpy()
    v = np.gradient(p, axis=1) + 0.3 * rng.normal(size=p.shape)
    a = rng.normal(size=p.shape) if quintic else None
    return JointCurve.from_hermite(np.arange(4.0), p, v, a)


@pytest.mark.parametrize("quintic", [False, True])
@pytest.mark.parametrize("name", ["panda", "crane"])
def test_chords_are_as_close_to_curves_as_asked(robots, name, quintic, device):
    robot = robots[name]
    curve, deviation = random_curve(robot, 1, quintic=quintic), 1e-3
    points = curve.points(device)
    parts = parts_for(points, robot.layout.tables(device), deviation, curve.degree)
    fine = cut(points, parts, curve.degree).joints.cpu().double()
    times = np.linspace(0.0, 3.0, 3 * parts + 1)
    assert (fine - curve.at(times)).abs().max() < 1e-5
    middle = robot(curve.at(0.5 * (times[1:] + times[:-1])))[..., :3]
    ends = robot(curve.at(times))[..., :3]
    away = (middle - 0.5 * (ends[:, 1:] + ends[:, :-1])).norm(dim=-1).max()
    # A bound, but not a wasteful one.
    assert 0.03 * deviation < away <= deviation


def test_a_straight_curve_costs_what_its_waypoints_cost(robots, device):
    robot, world = robots["panda"], blocks(device)
    paths = random_paths(robot, np.random.default_rng(2), 4, 4, 0.5)
    options = {"activation_distance": 0.1, "self_weight": 1.0, "substeps": 5}
    expected = joint_path_cost(paths.to(device), robot, world, **options)
    assert (expected > 0.0).any()
    waypoints = JointCurve.from_waypoints(paths)
    assert torch.equal(joint_path_cost(waypoints, robot, world, **options), expected)
    shares = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)[:, None]
    begin, end = paths[:, :-1, None].double(), paths[:, 1:, None].double()
    cubic = JointCurve(waypoints.times, begin + shares * (end - begin))
    found = joint_path_cost(cubic, robot, world, **options)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_a_knot_costs_the_most_of_what_it_owns(robots, device):
    """Among obstacles that move, with poses at the knots."""
    robot, world = robots["panda"], blocks(device)
    curve, parts = random_curve(robot, 3), 3
    times = np.linspace(0.0, 3.0, 3 * parts + 1)
    fine = curve.at(times).float().to(device)
    knots = world.poses(0).repeat(4, 1, 1)
    knots[:, :, 0] += torch.linspace(-0.1, 0.1, 4, device=device)[:, None]
    between = knots[:1].repeat(len(times), 1, 1)
    between[..., 0] += torch.from_numpy(times / 3.0 * 0.2).to(between)[:, None]
    costs = swept_sphere_cost(robot(fine), world, activation_distance=0.05, poses=between)
    expected = torch.zeros(2, 4, device=device)
    for t in range(4):
        owned = [i for i in range(len(times)) if abs(i - t * parts) <= (parts - 1) / 2]
        expected[:, t] = costs[:, owned].amax(1).sum(-1)
    found = joint_path_cost(
        curve, robot, world, activation_distance=0.05, substeps=parts, poses=knots
    )
    assert (expected > 0.0).float().mean() > 0.3
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["panda", "crane"])
def test_gradients_to_control_points_are_those_of_finite_differences(robots, name, device):
    robot, world, rng = robots[name], blocks(device), np.random.default_rng(5)
    start = random_curve(robot, 5, scale=0.3)
    upstream = torch.tensor(rng.normal(size=(2, 4)), dtype=torch.float32, device=device)

    def loss(coefficients: torch.Tensor) -> torch.Tensor:
        cost = joint_path_cost(
            JointCurve(start.times, coefficients),
            *(robot, world),
            **{"substeps": 5, "activation_distance": 0.5, "tolerance": 1e-5},
            **{"self_weight": 0.5, "self_activation_distance": 0.1},
        )
        return (upstream * cost).sum()

    coefficients = start.coefficients.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(coefficients), coefficients)
    assert gradient.dtype == torch.float64
    moved = [(0, 0, 0), (1, 1, 1), (0, 1, 2), (1, 2, 3)]  # no point that two pieces share
    step, found, expected = 2e-3, [], []
    for row, piece, point in moved:
        for joint in range(robot.n_joints):
            above, below = coefficients.detach().clone(), coefficients.detach().clone()
            above[row, piece, point, joint] += step
            below[row, piece, point, joint] -= step
            expected.append((loss(above) - loss(below)).item() / (2.0 * step))
            found.append(gradient[row, piece, point, joint].item())
    scale = np.abs(expected).max()
    assert scale > 0.1
    # Where the largest of several costs changes hands, a difference is between two slopes.
    assert np.mean(np.abs(np.subtract(found, expected)) < 0.02 * scale) > 0.9


def test_a_curve_that_is_optimized_is_proven_as_it_is(robots, device):
    """Coefficients that a step has changed in place are what later checks see."""
    robot, world = robots["panda"], MeshWorld(device=device)
    world.add("block", Cuboid((0.1, 0.1, 0.8)), (0.45, 0.0, 0.4, 1, 0, 0, 0))
    ends = np.array([[-0.9, 0.3, 0.0, -1.8, 0.0, 2.0, 0.8], [0.9, 0.3, 0.0, -1.8, 0.0, 2.0, 0.8]])
    points = np.linspace(*ends, 6)[None, None]
    curve = JointCurve(torch.tensor([[0.0, 1.0]]), torch.from_numpy(points))
    assert joint_path_in_collision(curve, robot, world).all()
    curve.coefficients[0, 0, :, 0] = -0.9
    assert not joint_path_in_collision(curve, robot, world).any()
    curve.coefficients[0, 0] = torch.from_numpy(points[0, 0])
    curve.coefficients.requires_grad_()
    optimizer = torch.optim.Adam([curve.coefficients], lr=0.03)
    for _ in range(60):
        optimizer.zero_grad()
        joint_path_cost(curve, robot, world, activation_distance=0.05).sum().backward()
        curve.coefficients.grad[:, :, [0, -1]] = 0.0
        optimizer.step()
        if not joint_path_in_collision(curve, robot, world).any():
            break
    assert not joint_path_in_collision(curve, robot, world).any()


def test_the_report_of_a_curve_is_at_its_knots(robots, device):
    robot, world = robots["panda"], blocks(device)
    curve = random_curve(robot, 7, scale=1.0)
    found = robot.report(curve, world)
    expected = robot.report(curve.at([0.0, 1.0, 2.0, 3.0]).float().to(device), world)
    assert len(found.link) > 0
    assert found.link == expected.link
    assert np.array_equal(found.waypoint, expected.waypoint)
    np.testing.assert_allclose(found.depth, expected.depth, atol=1e-6)


def test_wrong_curves(robots):
    robot, world = robots["panda"], MeshWorld()
    short = JointCurve.from_waypoints(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="a curve of the robot's 7 joints, got one of 4"):
        joint_path_cost(short, robot, world)
    jumping = JointCurve(
        torch.arange(3.0)[None], torch.arange(4.0).view(1, 2, 2, 1).repeat(1, 1, 1, 7)
    )
    with pytest.raises(ValueError, match="curves must not jump, got a step of 1 of joint 0"):
        joint_path_cost(jumping, robot, world)
    unknown = JointCurve(torch.arange(2.0)[None], torch.full((1, 1, 4, 7), torch.nan))
    assert joint_path_cost(unknown, robot, world).isnan().all()
    assert joint_path_in_collision(unknown, robot, world).all()
    unknown.coefficients[:, :, [0, 3]] = 0.0
    with pytest.raises(ValueError, match="joints must need at most"):
        joint_path_cost(unknown, robot, world)
    assert joint_path_in_collision(unknown, robot, world).all()
