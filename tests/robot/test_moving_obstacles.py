"""Joint paths among obstacles that move between waypoints."""

import numpy as np
import pytest
import torch

import moving_scenes
from joint_paths import random_paths
from warp_collision import Cuboid, MeshWorld, joint_path_cost, swept_sphere_cost
from warp_collision.cli.demo import load_panda
from warp_collision.poses import invert_pose, rows_between, to_rows
from warp_collision.robot import RobotSpheres

SIZES = ((0.3, 0.2, 0.4), (0.5, 0.4, 0.0005))


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


@pytest.mark.parametrize("turn", [2.8, 0.5, 0.0])
def test_rows_between_are_those_of_a_steady_turn(turn):
    rng = np.random.default_rng(1)
    poses = moving_scenes.random_motion(rng, 4, 3, turn=turn, travel=0.5)
    rows = to_rows(invert_pose(torch.tensor(poses)))[None]
    fine = rows_between(rows, 5)
    assert fine.shape == (1, 16, 3, 8)
    torch.testing.assert_close(fine[:, ::5, :, :3], rows[..., :3], rtol=0, atol=1e-12)
    point = rng.normal(size=(1, 3))
    for t, k, part in np.ndindex(3, 3, 5):
        segment = moving_scenes.Segments(point, point, poses[t, k][None], poses[t + 1, k][None])
        expected = segment.places(np.array([[part / 5]]))[0, 0]
        row = fine[0, 5 * t + part, k].numpy()
        turned = moving_scenes.rotation_matrix(row[3:7]) @ point[0]
        np.testing.assert_allclose(turned + row[:3], expected, rtol=0, atol=1e-9)


def test_rows_between_are_differentiable():
    rng = np.random.default_rng(2)
    rows = to_rows(
        invert_pose(torch.tensor(moving_scenes.random_motion(rng, 3, 2, turn=1.0, travel=0.5)))
    )
    rows = rows[None].requires_grad_()
    assert torch.autograd.gradcheck(lambda r: rows_between(r, 3), (rows,))
    still = rows[:, :1].detach().expand(1, 3, 2, 8).clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda r: rows_between(r, 3), (still,), atol=1e-4)


def scene(panda, seed, device):
    rng = np.random.default_rng(seed)
    world = MeshWorld(device=device)
    for size in SIZES:
        world.add(str(size), Cuboid(size))
    joints = random_paths(panda, rng, 3, 3, 0.4)
    poses = moving_scenes.random_motion(rng, 3, 2, turn=1.0, travel=0.3)
    poses[..., 0] += 0.4
    poses[..., 2] += 0.4
    return world, joints.to(device), torch.tensor(poses, dtype=torch.float32, device=device)


def test_cost_with_one_part_is_the_swept_cost(panda, device):
    world, joints, poses = scene(panda, 3, device)
    found = joint_path_cost(joints, panda, world, substeps=1, poses=poses)
    expected = swept_sphere_cost(panda(joints), world, poses=poses).sum(-1)
    assert expected.max() > 0.0
    torch.testing.assert_close(found, expected)


def test_more_parts_come_nearer_to_the_arcs(panda, device):
    """The obstacles' own motion does not depend on the parts: the costs converge."""
    world, joints, poses = scene(panda, 4, device)
    options = {"activation_distance": 0.3, "tolerance": 1e-5, "poses": poses}
    finest = joint_path_cost(joints, panda, world, substeps=81, **options)
    away = [
        (joint_path_cost(joints, panda, world, substeps=parts, **options) - finest).abs().max()
        for parts in (1, 3, 9, 27)
    ]
    assert finest.max() > 0.1
    assert away[2] < 0.2 * away[0]
    assert away[3] < 2e-3


def test_robots_that_stay_see_what_passes_by(panda, device):
    """A plate between waypoints, at neither of them, through a robot at rest."""
    world = MeshWorld(device=device)
    world.add("plate", Cuboid((2.0, 2.0, 0.001)))
    joints = torch.tensor([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8], device=device).expand(1, 2, 7)
    poses = torch.tensor([[[0.3, 0, 2.0, 1, 0, 0, 0]], [[0.3, 0, -2.0, 1, 0, 0, 0]]], device=device)
    cost = joint_path_cost(joints.contiguous(), panda, world, poses=poses)
    assert (cost > 0.0).all()


def test_gradient_by_the_poses(panda, device):
    world, joints, poses = scene(panda, 5, device)
    leaf = poses.clone().requires_grad_()
    options = {"activation_distance": 0.3, "tolerance": 1e-5, "substeps": 3}
    joint_path_cost(joints, panda, world, poses=leaf, **options).sum().backward()
    rng = np.random.default_rng(6)
    for _ in range(4):
        step = 1e-3 * torch.tensor(rng.normal(size=poses.shape)).to(poses)
        high, low = (
            joint_path_cost(joints, panda, world, poses=poses + way * step, **options).sum()
            for way in (1, -1)
        )
        torch.testing.assert_close(
            (leaf.grad * step).sum(), 0.5 * (high - low), rtol=0.03, atol=0.01
        )
