"""Paths between configurations that spheres refuse: proven by the shapes of links."""

import numpy as np
import pytest
import torch
import trimesh

from arms import arm_in
from warp_collision import (
    Cuboid,
    MeshWorld,
    RobotSpheres,
    configuration_in_collision,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths
from warp_collision.robot import RobotChecker
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints

pytest.importorskip("coal", reason="the judge needs coal, of the extra 'dev'")
from mesh_judge import MeshJudge, of_mesh

IGNORED = [(name, "table") for name in ("base", "upper", "elbow")]


@pytest.fixture(scope="module")
def arm(tmp_path_factory) -> RobotSpheres:
    return arm_in(tmp_path_factory.mktemp("arm"))


def table_below(arm: RobotSpheres, joints: torch.Tensor, height: float) -> np.ndarray:
    """The pose (4, 4) of a table that is so far below the end of the tool [m]."""
    at = arm.link_transforms(joints.double().cpu()).numpy()[arm.link_names.index("tool")]
    below = np.eye(4)
    below[:3, 3] = 0.0, 0.01, -(0.015 + height)
    return (at @ below).astype(np.float32).astype(float)


@pytest.mark.parametrize("exact_mesh", [False, True])
def test_from_five_millimetres_above_a_table(
    arm: RobotSpheres, exact_mesh: bool, device: torch.device
) -> None:
    near = torch.tensor([0.4, -0.3, 0.1], device=device)
    pose = table_below(arm, near, 0.005)
    mesh = trimesh.creation.box((0.6, 0.5, 0.03))
    if exact_mesh:  # no cuboid: a corner is moved
        mesh.vertices[0] += (0.003, 0.002, -0.004)
    world = MeshWorld(device=device)
    shape = mesh if exact_mesh else Cuboid((0.6, 0.5, 0.03))
    world.add("table", shape, torch.from_numpy(pose))
    contacts = {"self_collision": False, "ignore": IGNORED}
    goals = random_joints(arm.joint_limits, 20, torch.Generator().manual_seed(2)).float().to(device)
    goals = goals[~configuration_in_collision(goals, arm, world, **contacts)][:2]
    starts = near.expand(2, 3).contiguous()
    options = {**contacts, "horizon": 16}
    with pytest.raises(ValueError, match="tool"):
        optimize_paths(starts, goals, arm, world, **options)
    found = optimize_paths(starts, goals, arm, world, shapes="exact", **options)
    assert found.free.all()
    checker = RobotChecker(arm, world, shapes="exact", tolerance=1e-5, **contacts)
    assert not checker.path_in_collision(found.joints).any()
    tool = [*map(mesh_in_link, arm.link_shapes["tool"])]
    judge = MeshJudge({"tool": tool}, [of_mesh(mesh, pose)])
    shares = torch.linspace(0.0, 1.0, 9, device=device)[:, None]
    dense = found.joints[:, :-1, None] + shares * found.joints.diff(dim=1)[:, :, None]
    number = arm.link_names.index("tool")
    for frames in arm.link_transforms(dense.flatten(0, 2).double().cpu()).numpy():
        assert judge.clearance({"tool": frames[number]}) > 0.0


def test_a_checker_has_the_answers_of_the_functions(
    arm: RobotSpheres, device: torch.device
) -> None:
    near = torch.tensor([0.4, -0.3, 0.1], device=device)
    world = MeshWorld(device=device)
    world.add("table", Cuboid((0.6, 0.5, 0.03)), torch.from_numpy(table_below(arm, near, 0.005)))
    options = {"self_collision": False, "ignore": IGNORED}
    checker = RobotChecker(arm, world, shapes="exact", **options)
    joints = random_joints(arm.joint_limits, 40, torch.Generator().manual_seed(1)).float()
    joints = torch.cat((near.cpu()[None], joints)).to(device)
    expected = configuration_in_collision(joints, arm, world, shapes="exact", **options)
    assert not expected[0]
    assert RobotChecker(arm, world, **options).configuration_in_collision(joints)[0]
    assert torch.equal(checker.configuration_in_collision(joints), expected)
    assert not checker.configuration_in_collision(near)
    paths = torch.stack((joints[:-1], joints[1:]), dim=1)
    expected = joint_path_in_collision(paths, arm, world, shapes="exact", **options)
    assert torch.equal(checker.path_in_collision(paths), expected)


def test_a_robot_of_given_spheres_has_none(device: torch.device) -> None:
    world, ends = MeshWorld(device=device), torch.zeros((1, 7), device=device)
    with pytest.raises(ValueError, match="shapes must be 'spheres' for a robot that was given as"):
        optimize_paths(ends, ends, load_panda(), world, shapes="exact")
    with pytest.raises(ValueError, match="shapes must be 'spheres' or 'exact', got 'meshes'"):
        RobotChecker(load_panda(), world, shapes="meshes")  # pyright: ignore[reportArgumentType]
