"""Forward kinematics against an independent float64 one, written with quaternions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from robots import PANDA as URDF
from robots import TREE, tree_robot
from urdf_reference import reference
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres


def expected_spheres(robot: RobotSpheres, text: str, joints: np.ndarray) -> np.ndarray:
    """(n, n_spheres, 4) in the robot's order, which is that of the file within a link."""
    rows = []
    for values in joints:
        links = reference(text, dict(zip(robot.joint_names, values, strict=True)))
        order = list(dict.fromkeys(robot.sphere_links))
        rows.append(np.concatenate([links[name][1] for name in order]))
    return np.array(rows)


@pytest.fixture
def tree(tmp_path: Path) -> RobotSpheres:
    return tree_robot(tmp_path)


def test_the_panda_is_what_its_file_says():
    panda = load_panda()
    assert panda.joint_names == tuple(f"panda_joint{i}" for i in range(1, 8))
    assert (panda.n_joints, panda.n_spheres) == (7, 59)
    assert panda.sphere_links.count("panda_hand") == 18
    limits = [[-2.9671, 2.9671], [-0.0873, 3.8223]]
    torch.testing.assert_close(panda.joint_limits[[0, 5]], torch.tensor(limits))
    assert len(panda.link_meshes) == 11
    assert all(mesh.path.is_file() for mesh in panda.link_meshes)


def test_a_first_call_in_inference_mode(tree):
    joints = torch.full((1, tree.n_joints), 0.3)
    with torch.inference_mode():
        expected = tree(joints)
    joints.requires_grad_(True)
    spheres = tree(joints)
    spheres.sum().backward()
    assert torch.equal(spheres, expected)
    assert (joints.grad != 0.0).any()


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_panda_spheres_match_the_reference(dtype, error, device):
    panda = load_panda()
    joints = np.random.default_rng(1).uniform(-3.0, 3.0, (40, 7))
    spheres = panda(torch.tensor(joints, dtype=dtype, device=device))
    assert spheres.dtype == dtype
    assert spheres.device.type == device.type
    expected = expected_spheres(panda, URDF.read_text(), joints)
    np.testing.assert_allclose(spheres.cpu().numpy(), expected, atol=error, rtol=0)


def test_every_kind_of_joint_matches_the_reference(tree):
    assert tree.joint_names == ("slide", "turn")
    np.testing.assert_allclose(
        tree.joint_limits.numpy(), [[-0.5, 0.25], [-np.inf, np.inf]], rtol=1e-6
    )
    joints = np.random.default_rng(2).uniform(-4.0, 4.0, (50, 2))
    expected = expected_spheres(tree, TREE, joints)
    np.testing.assert_allclose(tree(torch.tensor(joints)).numpy(), expected, atol=1e-14)


def test_link_transforms_match_the_reference(tree):
    joints = np.array([0.3, -1.2])
    matrices = tree.link_transforms(torch.tensor(joints)).numpy()
    links = reference(TREE, {"slide": 0.3, "turn": -1.2})
    assert tree.link_names == tuple(links)
    for matrix, (expected, _) in zip(matrices, links.values(), strict=True):
        np.testing.assert_allclose(matrix, expected, atol=1e-14)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,), (2, 0, 3)])
def test_any_batch_shape(shape):
    panda = load_panda()
    joints = torch.rand((*shape, 7), generator=torch.Generator().manual_seed(3))
    spheres = panda(joints)
    assert spheres.shape == (*shape, 59, 4)
    each = [panda(row) for row in joints.reshape(-1, 7)]
    stacked = torch.stack(each) if each else spheres.new_empty(0, 59, 4)
    torch.testing.assert_close(spheres.reshape(-1, 59, 4), stacked, atol=1e-6, rtol=0)


def test_gradients_match_finite_differences(tree):
    generator = torch.Generator().manual_seed(4)
    for robot in (load_panda(), tree):
        joints = torch.rand((2, robot.n_joints), generator=generator, dtype=torch.float64)
        assert torch.autograd.gradcheck(robot, joints.requires_grad_())


def test_batched_by_vmap():
    panda = load_panda()
    joints = torch.rand((4, 7), generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(torch.func.vmap(panda)(joints), panda(joints))


@pytest.mark.parametrize(
    ("joints", "error", "message"),
    [
        (torch.zeros(6), ValueError, r"joints must have shape \(\.\.\., 7\).*got \(6,\)"),
        (torch.tensor(0.0), ValueError, r"joints must have shape .* got \(\)"),
        (torch.zeros(7, dtype=torch.int64), TypeError, "joints must be a float32.*torch.int64"),
        ([0.0] * 7, TypeError, "joints must be a float32 or float64 tensor, got list"),
    ],
)
def test_wrong_joint_values(joints, error, message):
    with pytest.raises(error, match=message):
        load_panda()(joints)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"urdf must be an existing file, got .*none\.urdf"):
        RobotSpheres(tmp_path / "none.urdf")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</robot>", "", "well-formed XML"),
        ("robot", "model", "root element <robot>, got <model>"),
        ('"continuous"', '"planar"', "'turn' must be of type .* got 'planar'"),
        ('<axis xyz="1 -2 2"/>', '<axis xyz="0 0 0"/>', "axis of joint 'turn' must not be zero"),
        ('xyz="1 -2 2"', 'xyz="1 -2"', "axis of joint 'turn' must be 3 finite numbers"),
        ('rpy="0 -0.7 0.2"', 'rpy="0 nan 0"', "rpy must be 3 finite numbers, got '0 nan 0'"),
        ('<axis xyz="1 -2 2"/>', '<mimic joint="turn"/>', "'turn' must mimic .* got itself"),
        ('<axis xyz="1 -2 2"/>', '<mimic joint="mount"/>', "moves, got 'mount'"),
        ('<axis xyz="1 -2 2"/>', '<mimic joint="slide" offset="x"/>', "of joint 'turn' must be"),
        ('<axis xyz="1 -2 2"/>', "<mimic/>", "<mimic> must have the attribute 'joint'"),
        ('"continuous"', '"floating"', "'turn' of type floating must be"),
        ('<child link="wheel"/>', "", "'turn' must have a <parent> and a <child>"),
        ('<sphere radius="0.2"/>', '<cone size="1"/>', "'slider': shapes must .* got <cone>"),
        ('<sphere radius="0.2"/>', '<box size="1 0 1"/>', "link 'slider': size of <box> must be"),
        ('<sphere radius="0.2"/>', '<box size="1 1"/>', "link 'slider': size of <box> must be"),
        ('<sphere radius="0.2"/>', '<mesh filename="a.stl" scale="1 0 1"/>', "must not be 0"),
        ('radius="0.2"', 'radius="-0.2"', "radius of link 'slider' must not be negative"),
        ('radius="0.2"', "", "<sphere> must have the attribute 'radius'"),
        ('<parent link="root"/>', '<parent link="rot"/>', "links that exist, got 'rot'"),
        ('<link name="bracket"/>', '<link name="tip"/>', r"must be unique, got \['tip'\] twice"),
        ('name="slide"', 'name="turn"', r"must be unique, got \['turn'\] twice"),
        ('<parent link="root"/>', '<parent link="tip"/>', "one tree, got a loop through"),
        ('<parent link="slider"/><child link="tip"/>',
         '<parent link="slider"/><child link="wheel"/>', "only joint to its child, got 'wheel'"),
    ],
)  # fmt: skip
def test_wrong_files(old, new, message, tmp_path):
    assert old in TREE
    (tmp_path / "wrong.urdf").write_text(TREE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        RobotSpheres(tmp_path / "wrong.urdf")


def test_a_robot_without_spheres(tmp_path):
    (tmp_path / "bare.urdf").write_text('<robot name="bare"><link name="a"/></robot>')
    with pytest.raises(ValueError, match="links must have collision shapes, got none"):
        RobotSpheres(tmp_path / "bare.urdf")


def test_a_robot_without_joints(tmp_path):
    sphere = '<collision><geometry><sphere radius="1"/></geometry></collision>'
    text = f'<robot name="rock"><link name="a">{sphere}</link></robot>'
    (tmp_path / "rock.urdf").write_text(text)
    spheres = RobotSpheres(tmp_path / "rock.urdf")(torch.zeros(2, 0))
    torch.testing.assert_close(spheres, torch.tensor([[[0.0, 0.0, 0.0, 1.0]]] * 2))
