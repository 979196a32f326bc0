"""`CollisionCost` of joint paths: what `joint_path_cost` and its parts say."""

import copy

import numpy as np
import pytest
import torch

from joint_paths import random_paths
from moving_scenes import random_motion
from warp_collision import (
    CollisionCost,
    Cuboid,
    MeshWorld,
    clearance,
    joint_path_cost,
    self_collision_cost,
    sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


@pytest.fixture
def world(device) -> MeshWorld:
    world = MeshWorld(device=device)
    world.add("block", Cuboid((0.3, 0.2, 0.4)), pose=(0.5, 0.1, 0.4, 0.9, 0.1, 0.3, 0.2))
    world.add("post", Cuboid((0.02, 0.02, 1.0)), pose=(-0.3, 0.4, 0.5, 1, 0, 0, 0))
    return world


@pytest.fixture
def operands(panda, device):
    """Joints (3, 4, 7), base poses (3, 7), and obstacles that move (4, 2, 7)."""
    rng = np.random.default_rng(1)
    joints = random_paths(panda, rng, 3, 4, 0.3)
    bases = rng.normal(0.0, 0.1, (3, 7)) + np.eye(7)[3]
    poses = random_motion(rng, 4, 2, turn=1.0, travel=0.2)
    poses[..., 0] += 0.4
    parts = (joints, torch.tensor(bases), torch.tensor(poses))
    return tuple(part.float().to(device) for part in parts)


OPTIONS = {"weight": 3.0, "activation_distance": 0.2}
ITSELF = {"self_weight": 2.0, "self_activation_distance": 0.05}


def test_swept_it_is_the_cost_of_joint_paths(panda, world, operands):
    joints, bases, poses = operands
    term = CollisionCost(panda, world, substeps=3, **OPTIONS, **ITSELF)
    expected = joint_path_cost(joints, panda, world, substeps=3, **OPTIONS, **ITSELF)
    torch.testing.assert_close(term(joints), expected.sum(1))
    moved = joint_path_cost(
        joints, panda, world, substeps=3, base_pose=bases, poses=poses, **OPTIONS, **ITSELF
    )
    torch.testing.assert_close(term(joints, base_pose=bases, poses=poses), moved.sum(1))
    assert (moved - expected).abs().max() > 0.1
    term.reduction = "waypoint"
    torch.testing.assert_close(term(joints), expected)
    term.reduction = "none"
    assert term(joints).shape == (3, 4, panda.n_spheres)
    largest = term(joints).amax((1, 2))
    term.reduction = "max"
    torch.testing.assert_close(term(joints), largest)


def test_at_rest_it_is_the_cost_of_placed_spheres(panda, world, operands):
    joints, bases, poses = operands
    term = CollisionCost(panda, world, swept=False, reduction="none", **OPTIONS, **ITSELF)
    spheres = panda(joints, bases)
    expected = sphere_cost(spheres, world, poses=poses, **OPTIONS)
    expected = expected + self_collision_cost(
        spheres, panda.default_pairs, weight=2.0, activation_distance=0.05
    )
    torch.testing.assert_close(term(joints, base_pose=bases, poses=poses), expected)


@pytest.mark.parametrize("swept", [True, False])
def test_gradient_by_joints(panda, world, operands, swept):
    joints, bases, poses = operands
    term = CollisionCost(panda, world, swept=swept, substeps=3, tolerance=1e-5, **OPTIONS)
    leaf = joints.clone().requires_grad_()
    term(leaf, base_pose=bases, poses=poses).sum().backward()
    rng = np.random.default_rng(2)
    for _ in range(4):
        step = 1e-3 * torch.tensor(rng.normal(size=joints.shape)).to(joints)
        high, low = (term(joints + way * step, base_pose=bases, poses=poses) for way in (1, -1))
        slope = 0.5 * (high - low).sum()
        torch.testing.assert_close((leaf.grad * step).sum(), slope, rtol=0.03, atol=2e-3)


def test_constraint_by_joints(panda, world, operands):
    joints, bases, poses = operands
    term = CollisionCost(panda, world)
    found = term.constraint(joints, 0.05, base_pose=bases, poses=poses)
    expected = clearance(panda(joints, bases), world, poses=poses)
    torch.testing.assert_close(found.value, expected.clearance - 0.05)
    assert torch.equal(found.obstacle, expected.obstacle)
    assert found.jacobian.shape == (3, 4, panda.n_spheres, 7)
    leaf = joints.clone().requires_grad_()
    value = term.constraint(leaf, 0.05, base_pose=bases, poses=poses).value
    weights = torch.randn_like(value)
    value.backward(weights)
    product = (weights.unsqueeze(-1) * found.jacobian).sum(2)
    torch.testing.assert_close(product, leaf.grad, rtol=1e-3, atol=1e-3)


def test_wanted_contacts_do_not_count(panda, world, operands):
    joints = operands[0]
    every = [(link, "block") for link in panda.body_names]
    term = CollisionCost(panda, world, swept=False, ignore=every, **OPTIONS)
    world.enable("block", False)
    without = CollisionCost(panda, world, swept=False, **OPTIONS)(joints)
    found = without, CollisionCost(panda, world).constraint(joints).value
    world.enable("block", True)
    torch.testing.assert_close(term(joints), found[0])
    torch.testing.assert_close(term.constraint(joints).value, found[1])
    assert (CollisionCost(panda, world, swept=False, **OPTIONS)(joints) > without).any()


def test_state_and_copies(panda, world, operands):
    joints = operands[0]
    term = CollisionCost(panda, world, substeps=1, **OPTIONS, **ITSELF)
    assert {"self_weight", "self_activation_distance"} <= set(term.state_dict())
    twin = copy.deepcopy(term)
    assert twin.robot is panda
    torch.testing.assert_close(twin(joints), term(joints))
    before = term(joints)
    twin.self_weight.fill_(0.0)
    torch.testing.assert_close(term(joints), before)


def test_wrong_arguments(panda, world, operands):
    joints, bases, _ = operands
    with pytest.raises(ValueError, match="speed_metric must be False with a robot"):
        CollisionCost(panda, world, speed_metric=True, dt=0.1)
    with pytest.raises(TypeError, match="robot must be a RobotSpheres, got str"):
        CollisionCost("panda", world)
    with pytest.raises(ValueError, match="base_pose must be None without a robot"):
        CollisionCost(world)(panda(joints), base_pose=bases)
    with pytest.raises(ValueError, match="joints must have shape"):
        CollisionCost(panda, world)(panda(joints))
