"""Plans among what sensors see are free of the mesh of it, too."""

import itertools

import numpy as np
import torch

from warp_collision import (
    HeightField,
    MeshWorld,
    in_collision,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths


def ridge() -> HeightField:
    """Ground with a ridge of 0.5 m before the robot, where straight motions pass."""
    x, y = np.linspace(0.2, 1.0, 33)[:, None], np.linspace(-0.6, 0.6, 49)
    heights = 0.5 * np.exp(-((y / 0.12) ** 2)) * np.ones_like(x)
    return HeightField(heights, size=(0.8, 1.2), base=0.1)


def test_a_path_over_a_ridge() -> None:
    robot, field = load_panda(), ridge()
    pose = (0.6, 0, 0, 1, 0, 0, 0)
    world, exact = MeshWorld(device="cpu"), MeshWorld(device="cpu")
    world.add("ridge", field, pose)
    exact.add("ridge", tuple(field.tessellate()), pose)
    reaching = torch.tensor([0.0, 0.6, 0.0, -1.6, 0.0, 2.2, 0.8])
    ends = reaching + torch.tensor([-0.7, 0.7])[:, None] * torch.eye(7)[0]
    straight = ends[None]
    assert joint_path_in_collision(straight, robot, world).any()
    generator = torch.Generator().manual_seed(0)
    found = optimize_paths(ends[:1], ends[1:], robot, world, until="first", generator=generator)
    assert found.free.all()
    assert not joint_path_in_collision(found.joints, robot, exact).any()
    path = found.joints[0]
    shares = torch.linspace(0.0, 1.0, 50)[:, None]
    dense = torch.cat([a + shares * (b - a) for a, b in itertools.pairwise(path)])
    assert not in_collision(robot.spheres(dense)[:, None], exact).any()
