"""Joints of a URDF that follow others, and a base that stands anywhere."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from robots import TREE
from urdf_reference import GRIPPER, reference
from warp_collision import (
    MeshWorld,
    Sphere,
    checking,
    configuration_in_collision,
    in_collision,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.poses import quaternion_rotate
from warp_collision.robot import RobotSpheres


@pytest.fixture
def gripper(tmp_path: Path) -> Path:
    path = tmp_path / "gripper.urdf"
    path.write_text(GRIPPER)
    return path


def test_mimic_joints_follow(gripper):
    robot = RobotSpheres(gripper)
    assert robot.joint_names == ("shoulder", "close_right")
    torch.testing.assert_close(robot.joint_limits, torch.tensor([[-1.0, 2.0], [-0.3, 0.4]]))
    for values in np.random.default_rng(0).uniform(-2.0, 2.0, (20, 2)):
        links = reference(GRIPPER, dict(zip(robot.joint_names, values, strict=True)))
        expected = np.concatenate([links[name][1] for name in robot.sphere_links])
        for dtype, error in ((torch.float32, 2e-6), (torch.float64, 1e-14)):
            found = robot(torch.tensor(values, dtype=dtype)).numpy()
            np.testing.assert_allclose(found, expected, atol=error, rtol=0)
        transforms = robot.link_transforms(torch.tensor(values)).numpy()
        for name, matrix in zip(robot.link_names, transforms, strict=True):
            np.testing.assert_allclose(matrix, links[name][0], atol=1e-14)


def test_gradients_of_mimic_joints(gripper):
    robot = RobotSpheres(gripper)
    joints = torch.tensor([[0.3, -0.2], [1.1, 0.4]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(robot, joints)
    upstream = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(1))
    (exact,) = torch.autograd.grad(robot(joints), joints, upstream.double())
    single = joints.detach().float().requires_grad_()
    (found,) = torch.autograd.grad(robot(single), single, upstream)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lead", [(), (3,), (3, 2)])
def test_a_base_with_a_pose(gripper, lead):
    robot = RobotSpheres(gripper)
    generator = torch.Generator().manual_seed(2)
    joints = torch.randn(3, 2, 2, generator=generator)
    pose = torch.randn(*lead, 7, generator=generator)
    found = robot(joints, pose)
    each = pose.reshape(*lead, *(1,) * (2 - len(lead)), 7).expand(3, 2, 7)
    at_origin, links = robot(joints), robot.link_transforms(joints, pose)
    for i, j in np.ndindex(3, 2):
        unit = each[i, j, 3:] / each[i, j, 3:].norm()
        turned = quaternion_rotate(unit.expand(4, 4), at_origin[i, j, :, :3])
        expected = turned + each[i, j, :3]
        torch.testing.assert_close(found[i, j, :, :3], expected, atol=2e-6, rtol=0)
        here = links[i, j, robot.link_names.index("base")]
        torch.testing.assert_close(here[:3, 3], each[i, j, :3], atol=2e-6, rtol=0)
        column = quaternion_rotate(unit, torch.tensor([0.0, 1.0, 0.0]))
        torch.testing.assert_close(here[:3, 1], column, atol=2e-6, rtol=0)
    assert torch.equal(found[..., 3], at_origin[..., 3])


def test_the_pose_of_a_base_has_gradients(gripper):
    robot = RobotSpheres(gripper)
    generator = torch.Generator().manual_seed(3)
    joints = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    pose = torch.randn(2, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(robot, (joints, pose))


@pytest.mark.parametrize(
    ("pose", "error", "message"),
    [
        (torch.zeros(6), ValueError, r"base_pose must have shape \(7,\) or .* got \(6,\)"),
        (torch.zeros(3, 7), ValueError, r"for joints \(2, 5, 2\), got \(3, 7\)"),
        (torch.zeros(2, 5, 1, 7), ValueError, r"got \(2, 5, 1, 7\)"),
        (torch.zeros(7, dtype=torch.int64), TypeError, "must be floating point, got torch.int64"),
        ([0.0] * 7, ValueError, "base_pose must have a quaternion .* other than 0"),
        ("origin", TypeError, "base_pose must be"),
    ],
)
def test_wrong_poses_of_a_base(gripper, pose, error, message):
    with pytest.raises(error, match=message):
        RobotSpheres(gripper)(torch.zeros(2, 5, 2), pose)


def test_a_pose_without_a_direction_is_never_free(gripper):
    spheres = RobotSpheres(gripper)(torch.zeros(1, 1, 2), torch.zeros(7))
    world = MeshWorld()
    world.add("block", trimesh.creation.box((0.1, 0.1, 0.1)), (5, 0, 0, 1, 0, 0, 0))
    assert in_collision(spheres, world).all()
    with checking(), pytest.raises(ValueError, match=r"base_pose\[0\] must have a quaternion"):
        RobotSpheres(gripper)(torch.zeros(1, 1, 2), torch.zeros(7))


def test_a_floating_joint_below_the_root(gripper):
    text = GRIPPER.replace(
        "</robot>",
        '<link name="odom"/><joint name="float" type="floating"><parent link="odom"/>'
        '<child link="base"/><origin xyz="0 0 1"/></joint></robot>',
    )
    gripper.write_text(text)
    robot = RobotSpheres(gripper)
    assert robot.joint_names == ("shoulder", "close_right")
    np.testing.assert_allclose(robot(torch.zeros(2))[0, :3].numpy(), [0, 0, 1], atol=1e-7)
    text = text.replace(
        '<link name="odom"/>',
        '<link name="odom"><collision><geometry><sphere radius="1"/></geometry></collision></link>',
    )
    gripper.write_text(text)
    with pytest.raises(ValueError, match="the root link 'odom' of a floating joint must have no"):
        RobotSpheres(gripper)


def test_joints_that_move_no_sphere_must_be_finite(tmp_path, device):
    """Nothing is known of a configuration with a NaN, whatever hangs on that joint."""
    path = tmp_path / "tree.urdf"
    path.write_text(TREE)
    robot = RobotSpheres(path, spheres={"root": [[0.0, 0.0, 0.0, 0.05]]})
    world = MeshWorld(device=device)
    world.add("far", Sphere(0.1), (50.0, 0.0, 0.0, 1, 0, 0, 0))
    good = torch.zeros(2, 3, robot.n_joints, device=device)
    assert not configuration_in_collision(good, robot, world).any()
    for bad in (torch.nan, torch.inf):
        joints = good.clone()
        joints[1, 1, -1] = bad
        hit = configuration_in_collision(joints, robot, world)
        assert hit.tolist() == [[False] * 3, [False, True, False]]
        cost = joint_path_cost(joints, robot, world, substeps=3)
        assert cost.isnan().tolist() == [[False] * 3, [True] * 3]
        assert joint_path_in_collision(joints, robot, world).tolist() == [[False] * 2, [True] * 2]
