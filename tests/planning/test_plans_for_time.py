"""Paths that are planned for the time of motors, not for their length."""

import pytest
import torch

from cases import mostly_slow
from warp_collision import Cuboid, Cylinder, MeshWorld, joint_path_in_collision
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

START = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8], [0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8]])
GOAL = START * torch.tensor([[-1.0, 1, 1, 1, 1, 1, 1]]) + torch.tensor([[0.0], [0.2]])
LIMITS = {"velocity": 2.0, "acceleration": 15.0, "jerk": 500.0}


def scene(device: torch.device) -> MeshWorld:
    world = MeshWorld(2, device=device)
    world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
    world.add("shelf", Cuboid((0.3, 0.6, 0.02)), (0.5, 0.1, 0.95, 0.98, 0.1, 0.1, 0.0), env=1)
    return world


@pytest.fixture(scope="module")
def panda():
    return load_panda()


@pytest.mark.parametrize("seed", mostly_slow(range(8), (3,)))
def test_the_fastest_curve_of_each_problem(panda, seed, device):
    world, last = scene(device), []
    start, goal = START.to(device), GOAL.to(device)
    env_index = torch.tensor([0, 1], dtype=torch.int32, device=device)
    options = {"env_index": env_index, "generator": torch.Generator().manual_seed(seed)}
    found = optimize_paths(
        start, goal, panda, world, limits=LIMITS, progress=last.append, **options
    )
    motion = found.motion
    assert motion.free.all()
    assert found.free.all()
    for share in (motion.velocity_share, motion.acceleration_share, motion.jerk_share):
        assert (share <= 1.0).all()
    assert torch.equal(motion.curve.at([0.0])[:, 0].float(), start.cpu())
    ends = motion.curve.at(motion.duration[:, None])
    assert torch.equal(ends[:, 0].float(), goal.cpu())
    assert not joint_path_in_collision(motion.curve, panda, world, env_index=env_index).any()
    torch.testing.assert_close(found.cost.cpu().double(), motion.duration, rtol=1e-6, atol=0.0)
    assert torch.equal(last[-1].cost, found.cost)
    assert torch.equal(last[-1].joints, found.joints)
    again = found.timed(panda, world, env_index=env_index, **LIMITS)
    torch.testing.assert_close(again.duration, motion.duration, rtol=1e-2, atol=0.0)
    slowest = ((goal - start).abs() / LIMITS["velocity"]).amax(1).double().cpu()
    assert (motion.duration > slowest).all()
    options["generator"].manual_seed(seed)
    shortest = optimize_paths(start, goal, panda, world, **options)
    other = shortest.timed(panda, world, env_index=env_index, **LIMITS)
    assert (motion.duration <= 1.1 * other.duration).all()


def test_plans_for_time_do_not_depend_on_threads(panda, device):
    """Nor on what ran before, and what memory held: the bits are those of the generator."""
    start, goal, before, found = START.to(device), GOAL.to(device), torch.get_num_threads(), []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        try:
            env_index = torch.tensor([0, 1], dtype=torch.int32, device=device)
            generator = torch.Generator().manual_seed(4)
            options = {"env_index": env_index, "generator": generator, "limits": LIMITS}
            found.append(optimize_paths(start, goal, panda, scene(device), **options))
        finally:
            torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(other.joints, found[0].joints)
        assert torch.equal(other.motion.curve.times, found[0].motion.curve.times)
        assert torch.equal(other.motion.curve.coefficients, found[0].motion.curve.coefficients)


def test_slow_joints_decide(panda, device):
    """Around the post over it is shorter; where those joints are slow the way around it is not."""
    velocity = torch.tensor([2.0, 0.15, 2.0, 0.15, 2.0, 2.0, 2.0])
    limits = {**LIMITS, "velocity": velocity}
    found = optimize_paths(START[:1].to(device), GOAL[:1].to(device), panda, scene(device))
    other = found.timed(panda, scene(device), **limits)
    fast = optimize_paths(
        START[:1].to(device), GOAL[:1].to(device), panda, scene(device), limits=limits
    )
    assert fast.motion.free.all()
    assert fast.motion.duration.item() < 0.9 * other.duration.item()


def test_when_time_is_over_it_stops_at_corners(panda, device):
    options = {"limits": LIMITS, "max_seconds": 0.0, "on_invalid_endpoints": "mark"}
    start, goal = START.to(device), GOAL.to(device).clone()
    goal[1, 3] = torch.nan
    found = optimize_paths(start, goal, panda, MeshWorld(device=device), **options)
    assert found.free.tolist() == [True, False]
    assert found.motion.free[0]
    assert found.cost.isinf().tolist() == [False, True]


def test_wrong_limits(panda):
    ends = START[:1], GOAL[:1], panda, MeshWorld()
    with pytest.raises(
        TypeError,
        match=r"limits must be a mapping with velocity, acceleration and jerk, got .*'speed'",
    ):
        optimize_paths(*ends, limits={"speed": 1.0})
    with pytest.raises(TypeError, match=r"limits must be a mapping.*got 2\.0"):
        optimize_paths(*ends, limits=2.0)
    with pytest.raises(ValueError, match="jerk must be given"):
        optimize_paths(*ends, limits={"acceleration": 1.0})
    with pytest.raises(ValueError, match="limits must be without terms, got 1 terms"):
        optimize_paths(*ends, limits=LIMITS, terms=[lambda joints: joints[..., 0]])
