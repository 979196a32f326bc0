"""`link_distances` in lanes of vector instructions: the answers of the kernel without lanes.

Slow, as it compiles both; `test_link_distances.py` compares each with a reference in float64.
"""

from unittest.mock import patch

import numpy as np
import pytest
import torch

from lane_scenes import (
    ROBOTS,
    WITHOUT_FORMULA,
    among,
    far_away,
    fill,
    joint_rows,
    random_pose,
    three_envs,
)
from warp_collision import MeshWorld, link_distances
from warp_collision.devices import CPU
from warp_collision.robot import RobotSpheres

pytestmark = pytest.mark.slow


def assert_same(robot: RobotSpheres, world: MeshWorld, rows: torch.Tensor, **options) -> None:
    found = link_distances(rows, robot, world, self_collision=True, **options)
    # As on a GPU.
    with patch("warp_collision.robot.checks.link_distances.CPU", torch.device("meta")):
        expected = link_distances(rows, robot, world, self_collision=True, **options)
    for name, one, other in zip(found._fields[:-1], found, expected, strict=False):
        # Compilers may fuse other operations.
        bound = 1e-5 * (1.0 + other.nan_to_num(posinf=0.0, neginf=0.0).abs().max().item())
        torch.testing.assert_close(one, other, atol=bound, rtol=1e-5, equal_nan=True, msg=name)
    assert (found.obstacle >= 0).any()


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("count", [1, 5, 12, 32, 40])
def test_among_exact_shapes(name: str, count: int) -> None:
    """Few obstacles, and more than lanes look at."""
    rng = np.random.default_rng(count)
    robot, world = ROBOTS[name](), MeshWorld(device=CPU, max_obstacles=64)
    fill(world, rng, count, spread=2.0 if name == "snake" or count > 20 else 1.0)
    assert_same(robot, world, joint_rows(robot, rng, 40 if name == "snake" else 200)[0])


@pytest.mark.parametrize("count", range(1, 18))
def test_any_number_of_configurations(count: int) -> None:
    rng = np.random.default_rng(count)
    world, robot = MeshWorld(device=CPU), ROBOTS["panda"]()
    fill(world, rng, 4)
    rows = joint_rows(robot, rng, 3 * count)
    for shape in ((count, 3, -1), (1, 3 * count, -1), (3 * count, -1)):
        assert_same(robot, world, rows.reshape(shape))


@pytest.mark.parametrize("kind", WITHOUT_FORMULA)
def test_beside_what_has_no_formula(kind: str) -> None:
    rng = np.random.default_rng(6)
    robot, world = among(rng, kind)
    fill(world, rng, 3)
    assert_same(robot, world, joint_rows(robot, rng, 100)[0])
    groups = {"arm": ["panda_link2", "panda_link5", "panda_link7"], "hand": ["panda_hand"]}
    assert_same(robot, world, joint_rows(robot, rng, 100)[0], links=groups)


def test_envs_bases_and_contacts() -> None:
    """Lanes of one block in different envs, some of which there are not; and bases of their own."""
    rng = np.random.default_rng(4)
    robot, world = three_envs(rng, 5)
    bases = torch.from_numpy(np.stack([random_pose(rng, 0.2) for _ in range(100)])).float()
    options = {
        "env_index": torch.from_numpy(rng.integers(-1, 4, 100)).int(),
        "base_pose": bases,
        "ignore": [("panda_hand", "s1"), ("panda_link4", "s3")],
    }
    assert_same(robot, world, joint_rows(robot, rng, 300).reshape(100, 3, -1), **options)


def test_what_is_not_finite_or_far() -> None:
    rng = np.random.default_rng(3)
    robot, world, base = far_away(rng, 1000.0, 8)
    rows = joint_rows(robot, rng, 200)[0]
    assert_same(robot, world, rows, base_pose=base)
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e4, 1e7, 1e20, 3e38])
    rows[torch.arange(100) * 2, torch.arange(100) % 7] = bad[torch.arange(100) % 7]
    assert_same(robot, world, rows, base_pose=base)
