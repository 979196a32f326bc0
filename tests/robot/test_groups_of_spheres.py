"""Links of many spheres, which are checked in groups, against every pair in float64."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

import joint_paths
from robots import PANDA, sphere_pairs
from warp_collision import (
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot import (
    RobotSpheres,
    SelfCollisionPairs,
    self_clearance,
    self_collision_cost,
)
from warp_collision.robot.model.sampled_pairs import random_joints
from warp_collision.robot.model.sphere_layout import bounding_balls

TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def robot() -> RobotSpheres:
    """The Panda with up to 22 small spheres on each link, some of them disabled."""
    rng, panda = np.random.default_rng(2), load_panda()
    spheres = {}
    for number, link in enumerate(dict.fromkeys(panda.sphere_links)):
        own = panda.spheres_of(link)
        rows = np.repeat(own, -(-(4 + 3 * (number % 7)) // len(own)), axis=0)
        rows[:, :3] += rng.uniform(-0.7, 0.7, (len(rows), 3)) * rows[:, 3:]
        rows[:, 3] *= rng.uniform(0.3, 1.0, len(rows))
        rows[:: number + 5, 3] = -1.0
        spheres[link] = rows
    return RobotSpheres(PANDA, spheres=spheres)


@pytest.fixture(scope="module", params=[False, True])
def pairs(robot, request) -> SelfCollisionPairs:
    own = robot.self_collision_pairs()
    if not request.param:
        return own
    # A third of all pairs of spheres is left out, and links are inflated by different lengths.
    some = np.random.default_rng(3).permutation(sphere_pairs(own))[::3]
    links = [*dict.fromkeys(own.sphere_links)]
    lengths = [1e-3 * links.index(link) for link in own.sphere_links]
    return replace(own, touching=some, constant=(), buffers=np.array(lengths, dtype=np.float32))


def gaps(robot: RobotSpheres, joints: torch.Tensor, pairs: SelfCollisionPairs) -> torch.Tensor:
    """(n, n_pairs) float64 clearance of all pairs of spheres, infinite where one is disabled."""
    spheres, every = pairs.inflate(robot(joints.double())), sphere_pairs(pairs)
    a, b = (spheres[:, every[:, side]] for side in (0, 1))
    gap = (a[..., :3] - b[..., :3]).norm(dim=-1) - a[..., 3] - b[..., 3]
    return torch.where((a[..., 3] < 0.0) | (b[..., 3] < 0.0), torch.inf, gap)


def test_groups_hold_more_than_one_link_of_spheres(robot):
    counts = [len(robot.spheres_of(link)) for link in dict.fromkeys(robot.sphere_links)]
    assert max(counts) > 16
    assert min(counts) <= 8


def test_configurations(robot, pairs, device):
    joints = random_joints(robot.joint_limits, 500, None)
    smallest, nearest = gaps(robot, joints, pairs).min(1)
    empty = MeshWorld(device=device)
    hit = configuration_in_collision(
        joints[:, None].to(device), robot, empty, self_collision=pairs
    ).cpu()[:, 0]
    known = smallest.abs() > 1e-6
    assert torch.equal(hit[known], smallest[known] < 0.0)
    assert 30 < hit.sum() < 470
    spheres = robot(joints[:, None].to(device))
    found = self_clearance(spheres, pairs)
    torch.testing.assert_close(found.clearance.cpu()[:, 0].double(), smallest, atol=1e-6, rtol=0)
    closest = torch.stack([found.first, found.second], -1).cpu().long()[:, 0]
    assert (closest == torch.tensor(sphere_pairs(pairs))[nearest]).all(-1).double().mean() > 0.99


def test_costs_and_gradients(robot, pairs, device):
    joints = random_joints(robot.joint_limits, 200, None)
    eta, every = 0.02, sphere_pairs(pairs)
    spheres = robot(joints)[:, None].to(device).requires_grad_()
    cost = self_collision_cost(spheres, pairs, activation_distance=eta)
    depth = eta - gaps(robot, joints, pairs)
    of_pairs = torch.where(depth <= eta, depth.clamp(min=0.0) ** 2 / (2 * eta), depth - eta / 2)
    expected = torch.zeros(200, robot.n_spheres, dtype=torch.float64)
    for side in (0, 1):
        expected.index_add_(1, torch.tensor(every[:, side]), 0.5 * of_pairs)
    torch.testing.assert_close(cost.cpu().double()[:, 0], expected, atol=2e-5, rtol=1e-5)
    cost.sum().backward()
    slope = (depth / eta).clamp(0.0, 1.0)
    by_radius = torch.zeros(200, robot.n_spheres, dtype=torch.float64)
    for side in (0, 1):
        by_radius.index_add_(1, torch.tensor(every[:, side]), slope)
    found = spheres.grad.cpu().double()[:, 0, :, 3]
    torch.testing.assert_close(found, by_radius, atol=1e-3, rtol=1e-4)


def test_joint_paths(robot, pairs, device):
    ends = random_joints(robot.joint_limits, 8, None)
    paths = torch.stack((ends[:4], ends[:4] + 0.02 * (ends[4:] - ends[:4])), 1)
    options = {"self_collision": pairs, "tolerance": TOLERANCE}
    empty = MeshWorld(device=device)
    hit = joint_path_in_collision(paths.to(device), robot, empty, **options).cpu()[:, 0]
    found = joint_path_clearance(paths.to(device), robot, empty, **options)
    for row, path in enumerate(paths.double()):
        least = joint_paths.sampled_minimum(
            robot, path[0], path[1], lambda s: gaps_of(s, pairs), speed=2.0
        )
        lower, upper = (part[row, 0].item() for part in (found.self_lower, found.self_upper))
        assert lower <= least + 1e-6
        assert least - 1e-6 - 0.002 <= upper <= lower + TOLERANCE + 1e-4
        if hit[row]:
            assert least < TOLERANCE + 1e-4
        else:
            assert least > 0.0
    assert 0 < hit.sum() < 4


def gaps_of(spheres: torch.Tensor, pairs: SelfCollisionPairs) -> torch.Tensor:
    spheres, every = pairs.inflate(spheres), sphere_pairs(pairs)
    a, b = (spheres[:, every[:, side]] for side in (0, 1))
    gap = (a[..., :3] - b[..., :3]).norm(dim=-1) - a[..., 3] - b[..., 3]
    return torch.where((a[..., 3] < 0.0) | (b[..., 3] < 0.0), torch.inf, gap)


def test_bounding_balls():
    rng = np.random.default_rng(4)
    spheres = rng.uniform(-1.0, 1.0, (60, 4))
    spheres[20:23, 3] = -1.0
    ranges = np.array([[0, 1], [1, 20], [20, 23], [20, 60]])
    balls = bounding_balls(spheres, ranges)
    assert balls.radii[2] == -1.0
    for (begin, end), center, radius, spread in zip(ranges, *balls, strict=True):
        enabled = spheres[begin:end][spheres[begin:end, 3] >= 0.0]
        distances = np.linalg.norm(enabled[:, :3] - center, axis=1)
        reach = (distances + enabled[:, 3]).max(initial=-1.0)
        assert reach <= radius <= reach + 1e-3
        assert spread >= distances.max(initial=0.0)


@pytest.mark.slow
def test_pairs_take_no_memory_by_the_pair_of_spheres(tmp_path):
    """A hand of 12 fingers of 4 links, 3,000 spheres: 4 million pairs of spheres."""
    rng, links, joints = np.random.default_rng(5), [], []
    for finger in range(12):
        for part in range(4):
            name, parent = f"f{finger}_{part}", f"f{finger}_{part - 1}" if part else "palm"
            origin = f"{0.2 * finger} 0 0" if part == 0 else "0 0 0.2"
            links.append(name)
            joints.append(
                f'<joint name="j_{name}" type="revolute"><parent link="{parent}"/>'
                f'<child link="{name}"/><origin xyz="{origin}"/><axis xyz="0 1 0"/>'
                '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
            )
    path = tmp_path / "hand.urdf"
    links.append("palm")
    elements = [*(f'<link name="{name}"/>' for name in links), *joints]
    path.write_text(f'<robot name="hand">{"".join(elements)}</robot>')
    size = np.array([0.05, 0.05, 0.18, 0.02])
    robot = RobotSpheres(path, spheres={name: rng.uniform(0, 1, (62, 4)) * size for name in links})
    tracemalloc.start()
    pairs = robot.self_collision_pairs()
    robot.layout.pair_tables(pairs, torch.device("cpu"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pairs.n_sphere_pairs > 4e6
    assert peak < 100e6
