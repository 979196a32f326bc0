"""Configurations in lanes of vector instructions: the answers of the kernel without lanes.

At random, and bisected until contact and freedom are a unit of rounding apart.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import warp as wp
from benchmarks import lanes

from cases import mostly_slow
from joint_paths import load_crane
from lane_scenes import (
    ROBOTS,
    WITHOUT_FORMULA,
    among,
    far_away,
    fill,
    joint_rows,
    random_pose,
    robot_with_pieces,
    three_envs,
)
from robots import PANDA
from warp_collision import (
    MeshWorld,
    configuration_in_collision,
)
from warp_collision.devices import CPU
from warp_collision.examples import load_panda
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.lanes.configurations import configurations_hit
from warp_collision.robot import RobotChecker, RobotSpheres
from warp_collision.robot.checks import path_operators

Tensor = torch.Tensor


def without_lanes(*operands, **options) -> Tensor:
    """The same function by the kernel that has a thread for each configuration."""
    return lanes.without_lanes(lambda: configuration_in_collision(*operands, **options))


def at_contact(hits, rows: Tensor, **options) -> Tensor:
    """Rows on both sides of contacts, a unit of rounding apart."""
    is_hit = hits(rows)[0]
    touching, free = rows[0][is_hit], rows[0][~is_hit]
    count = min(len(touching), len(free))
    touching, free = touching[:count], free[:count]
    for _ in range(26):
        middle = 0.5 * (touching + free)
        found = hits(middle[None])[0][:, None]
        touching, free = torch.where(found, middle, touching), torch.where(found, free, middle)
    return torch.cat((touching, free))[None]


def assert_same(robot, world, rows: Tensor, **options) -> None:
    expected = without_lanes(rows, robot, world, **options)
    assert torch.equal(configuration_in_collision(rows, robot, world, **options), expected)
    near = at_contact(lambda q: without_lanes(q, robot, world, **options), rows)
    expected = without_lanes(near, robot, world, **options)
    assert 0 < expected.sum() < expected.numel()
    assert torch.equal(configuration_in_collision(near, robot, world, **options), expected)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("count", mostly_slow((5, 12, 40), (5, 40)))
def test_among_exact_shapes(name: str, count: int) -> None:
    """Fewer obstacles than `FEW`, and more: by boxes, and by a tree."""
    rng = np.random.default_rng(count)
    robot, world = ROBOTS[name](), MeshWorld(device=CPU, max_obstacles=64)
    fill(world, rng, count, spread=2.0 if name == "snake" or count > 32 else 1.0)
    rows = joint_rows(robot, rng, 100 if name == "snake" else 400)
    assert_same(robot, world, rows)
    expected = without_lanes(rows, robot, world, self_collision=False)
    found = configuration_in_collision(rows, robot, world, self_collision=False)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("count", mostly_slow(range(1, 18), (1, 3, 7, 8, 9, 17)))
def test_any_number_of_configurations(count: int) -> None:
    """Blocks that are not full, and paths that blocks begin and end within."""
    rng = np.random.default_rng(count)
    robot, world = load_panda(), MeshWorld(device=CPU)
    fill(world, rng, 4)
    rows = joint_rows(robot, rng, 3 * count)
    checker = RobotChecker(robot, world)
    for shape in ((count, 3, -1), (1, 3 * count, -1), (3 * count, 1, -1)):
        expected = without_lanes(rows.reshape(shape), robot, world)
        assert torch.equal(configuration_in_collision(rows.reshape(shape), robot, world), expected)
        assert torch.equal(checker.configuration_in_collision(rows.reshape(shape)), expected)


def test_joint_values_that_are_not_numbers() -> None:
    rng = np.random.default_rng(3)
    robot, world = load_crane(), MeshWorld(device=CPU)
    fill(world, rng, 6)
    rows = joint_rows(robot, rng, 400)
    bad = torch.tensor([np.nan, np.inf, -np.inf, 1e4, 1e7, 3e9, 1e20, 3e38]).float()
    where = torch.from_numpy(rng.integers(0, rows.shape[2], 200))
    rows[0, torch.arange(200) * 2, where] = bad[torch.arange(200) % len(bad)]
    for options in ({}, {"self_collision": False}):
        expected = without_lanes(rows, robot, world, **options)
        assert torch.equal(configuration_in_collision(rows, robot, world, **options), expected)
        assert expected[~rows.isfinite().all(-1)].all()
        assert not expected.all()


@pytest.mark.filterwarnings("ignore:joints must be in rad")
@pytest.mark.parametrize("far", [1.0, 100.0, 1000.0])
@pytest.mark.parametrize("turns", [0.0, 1000.0])
def test_far_from_the_origin_and_after_many_turns(far: float, turns: float) -> None:
    rng = np.random.default_rng(int(far + turns))
    robot, world, base = far_away(rng, far, 8)
    rows = joint_rows(robot, rng, 400)
    rows += turns * torch.from_numpy(rng.choice([-1.0, 1.0], rows.shape)).float()
    assert_same(robot, world, rows, base_pose=base)


def test_envs_bases_and_contacts() -> None:
    """Lanes of one block in different envs, some of which there are not; and bases of their own."""
    rng = np.random.default_rng(4)
    robot, world = three_envs(rng, 6)
    rows = joint_rows(robot, rng, 600)
    bases = torch.from_numpy(np.stack([random_pose(rng, 0.2) for _ in range(600)])).float()
    for shape in ((200, 3), (600, 1)):
        batch = rows.reshape(*shape, -1)
        envs = torch.from_numpy(rng.integers(-1, 4, shape[0])).int()
        options = {
            "env_index": envs,
            "base_pose": bases.reshape(*shape, 7)[:, 0],
            "ignore": [("panda_hand", "s1"), ("panda_link4", "s3")],
        }
        expected = without_lanes(batch, robot, world, **options)
        found = configuration_in_collision(batch, robot, world, **options)
        assert torch.equal(found, expected)
        assert 0.0 < expected.float().mean() < 1.0


def test_locked_joints() -> None:
    rng = np.random.default_rng(5)
    robot = RobotSpheres(PANDA, lock_joints={"panda_joint2": 0.4, "panda_joint4": -1.0})
    world = MeshWorld(device=CPU)
    fill(world, rng, 10)
    assert_same(robot, world, joint_rows(robot, rng, 500))


@pytest.mark.parametrize("kind", WITHOUT_FORMULA)
def test_among_what_has_no_formula(kind: str) -> None:
    """Bounds of lanes find what is near; the scalar functions decide."""
    rng = np.random.default_rng(6)
    robot, world = among(rng, kind)
    assert_same(robot, world, joint_rows(robot, rng, 300))


@pytest.mark.slow  # fits spheres to the links; test_convex_pieces.py has a fast sibling
def test_links_with_convex_pieces(tmp_path: Path) -> None:
    """Spheres that touch are no contact where pieces prove that links are apart."""
    robot, world = robot_with_pieces(tmp_path), MeshWorld(device=CPU)
    rng = np.random.default_rng(8)
    assert_same(robot, world, joint_rows(robot, rng, 2000))


@pytest.mark.slow  # compiles the kernel
def test_without_vector_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for any CPU of its kind, vectors are what the compiler makes of them."""
    plain = wp.Module("lanes_of_any_cpu", None)
    plain.options.update(OPTIONS | {"cpu_compiler_flags": ""})
    kernel = wp.Kernel(configurations_hit.func, key="of_any_cpu", module=plain)
    monkeypatch.setattr(path_operators, "configurations_hit", kernel)
    rng = np.random.default_rng(9)
    robot, world = load_panda(), MeshWorld(device=CPU)
    fill(world, rng, 10)
    assert_same(robot, world, joint_rows(robot, rng, 500))


@pytest.mark.slow
def test_a_million_at_random_and_at_contact() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        for name, robot in ROBOTS.items():
            robot, world = robot(), MeshWorld(device=CPU, max_obstacles=64)
            fill(world, rng, (4, 9, 40)[seed % 3], spread=1.0 + (name == "snake" or seed % 3 == 2))
            count = 5000 if name == "snake" else 50000
            rows = joint_rows(robot, rng, count)
            expected = without_lanes(rows, robot, world)
            assert torch.equal(configuration_in_collision(rows, robot, world), expected)
            assert_same(robot, world, rows[:, : count // 8])
