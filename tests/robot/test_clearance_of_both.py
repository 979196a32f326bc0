"""Clearances of paths: of obstacles, of the robot with itself, and the smaller one of both."""

import numpy as np
import pytest
import torch

from warp_collision import (
    Cuboid,
    MeshWorld,
    RobotSpheres,
    VoxelGrid,
    clearance,
    configuration_in_collision,
    joint_path_clearance,
    sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.robot import JointPathClearance

NAMES = ("lower", "upper", "position")


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


def some_paths(panda: RobotSpheres, count: int, device: torch.device) -> torch.Tensor:
    low, high = panda.joint_limits.unbind(-1)
    drawn = torch.rand((count, 2, 7), generator=torch.Generator().manual_seed(5))
    begin = low + (high - low) * drawn[:, :1]
    return torch.cat((begin, begin + 0.3 * (drawn[:, 1:] - 0.5)), dim=1).to(device)


def test_the_smaller_one_of_both(panda, device):
    world = MeshWorld(device=device)
    world.add("plate", Cuboid((0.3, 0.5, 0.05)), (0.45, 0.1, 0.4, 0.9, 0.1, 0.3, 0.2))
    paths = some_paths(panda, 24, device)
    found = joint_path_clearance(paths, panda, world)
    alone = joint_path_clearance(paths, panda, world, self_collision=False)
    itself = joint_path_clearance(paths, panda, MeshWorld(device=device))
    is_own = itself.upper < alone.upper
    assert 0 < int(is_own.sum()) < len(paths)  # both kinds are there
    for name in NAMES:
        column = getattr(found, name)
        torch.testing.assert_close(
            getattr(found, f"world_{name}"), getattr(alone, name), rtol=0, atol=2e-3
        )
        torch.testing.assert_close(
            getattr(found, f"self_{name}"), getattr(itself, name), rtol=0, atol=2e-3
        )
        own, other = (getattr(found, f"{kind}_{name}") for kind in ("self", "world"))
        chosen = found.self_upper < found.world_upper
        least = torch.where(chosen, own, other) if name == "position" else torch.minimum(own, other)
        assert torch.equal(column, least)
    assert (found.upper - found.lower <= 1e-3 + 3e-5).all()
    assert (alone.self_lower == torch.inf).all()
    assert (itself.world_lower == torch.inf).all()
    nan = paths.clone()
    nan[3, 1, 2] = torch.nan
    assert joint_path_clearance(nan, panda, world).lower.isnan().flatten().nonzero().tolist() == [
        [3]
    ]
    nothing = joint_path_clearance(paths, panda, MeshWorld(device=device), self_collision=False)
    assert (nothing.lower == torch.inf).all()
    assert (nothing.upper == torch.inf).all()


def test_an_empty_grid_is_no_obstacle(panda, device):
    world = MeshWorld(device=device)
    world.add("map", VoxelGrid(np.zeros((6, 5, 7), dtype=bool), 0.1, origin=(0.2, -0.3, 0.1)))
    paths = some_paths(panda, 6, device)
    found = joint_path_clearance(paths, panda, world, self_collision=False)
    for bound in (found.lower, found.upper, found.world_lower, found.world_upper):
        assert (bound == torch.inf).all()
    assert (found.obstacle == -1).all()
    spheres = panda(paths)
    assert (clearance(spheres, world).clearance == torch.inf).all()
    assert not sphere_cost(spheres, world, activation_distance=10.0).any()
    both = joint_path_clearance(paths, panda, world)
    assert torch.equal(both.lower, both.self_lower)


def test_a_solid_grid_without_a_surface_is_everywhere(panda, device):
    """All outside is occupied too: there is no nearest face, and nothing is free."""
    grid = VoxelGrid(
        np.ones((6, 5, 7), dtype=bool), 0.1, origin=(0.2, -0.3, 0.1), outside="occupied"
    )
    world = MeshWorld(device=device)
    world.add("map", grid)
    paths = some_paths(panda, 6, device)
    assert configuration_in_collision(paths, panda, world, self_collision=False).all()
    assert (joint_path_clearance(paths, panda, world).lower < -1.0).all()


def test_fields_are_in_three_groups():
    assert JointPathClearance._fields == (
        *NAMES,
        *(f"world_{name}" for name in NAMES),
        *("sphere", "obstacle"),
        *(f"self_{name}" for name in NAMES),
        *("self_sphere", "self_other"),
    )
