"""A robot and a world in each other's place: the message names the argument and its type."""

import pytest
import torch

import warp_collision
from warp_collision import MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

JOINTS = (
    "configuration_in_collision",
    "joint_path_in_collision",
    "joint_path_clearance",
    "joint_path_cost",
)
SPHERES = (
    *("sphere_cost", "swept_sphere_cost", "clearance", "signed_distance"),
    *("in_collision", "any_in_collision", "swept_in_collision"),
)
SWAPPED = "robot must be a RobotSpheres, got MeshWorld: robot comes before world"


@pytest.mark.parametrize("name", JOINTS)
def test_swapped_robot_and_world(name):
    function, world, path = getattr(warp_collision, name), MeshWorld(), torch.zeros(1, 2, 7)
    with pytest.raises(TypeError, match=SWAPPED):
        function(path, world, load_panda())
    with pytest.raises(TypeError, match="world must be a MeshWorld, got str"):
        function(path, load_panda(), "world.yaml")
    with pytest.raises(TypeError, match=r"robot must be a RobotSpheres, got str$"):
        function(path, "panda.urdf", world)


@pytest.mark.parametrize("name", SPHERES)
def test_a_robot_in_place_of_the_world(name):
    spheres = torch.zeros(1, 2, 3, 3 if name == "signed_distance" else 4)
    with pytest.raises(TypeError, match="world must be a MeshWorld, got RobotSpheres"):
        getattr(warp_collision, name)(spheres, load_panda())


def test_a_report_and_a_plan():
    panda, ends = load_panda(), torch.zeros(1, 7)
    with pytest.raises(TypeError, match="world must be a MeshWorld, got RobotSpheres"):
        panda.report(torch.zeros(1, 1, 7), panda)
    with pytest.raises(TypeError, match=SWAPPED):
        optimize_paths(ends, ends, MeshWorld(), panda)
    for terms in (torch.sum, 3, "calm"):
        with pytest.raises(TypeError, match="terms must be a sequence of callables, got "):
            optimize_paths(ends, ends, panda, MeshWorld(), terms=terms)
