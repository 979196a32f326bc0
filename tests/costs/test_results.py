"""Results print shapes and ranges in place of the elements of their tensors."""

import torch

from warp_collision import Cuboid, MeshWorld
from warp_collision.costs import clearance
from warp_collision.examples import load_panda
from warp_collision.robot import joint_path_clearance


def test_results_are_a_line(device: torch.device) -> None:
    world = MeshWorld(device=device)
    world.add("box", Cuboid((0.2, 0.2, 0.2)))
    found = clearance(torch.full((2, 3, 50, 4), 0.5, device=device), world)
    assert repr(found).startswith("Clearance(clearance=(2, 3, 50)")
    assert "obstacle=(2, 3, 50)" in str(found)
    assert len(repr(found)) < 200
    path = torch.zeros(1, 4, 7, device=device)
    path[0, 3, 2] = torch.nan
    text = repr(joint_path_clearance(path, load_panda(), world))
    assert text.startswith("JointPathClearance(lower=(1, 3)")
    assert ("1 NaN" in text) == (device.type == "cpu")
