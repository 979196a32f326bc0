"""Kinematics as kernels: transforms of torch, and robots with every kind of joint and coupling."""

import numpy as np
import pytest
import torch
from torch import func
from torch.autograd import forward_ad

from cases import mostly_slow
from differentiable import JIT_WARNING
from robots import arm_with_mimic, expected_places, tree_robot
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.base_pose import place_roots_operator

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)


@pytest.fixture(params=["panda", "tree"])
def robot(request: pytest.FixtureRequest, tmp_path) -> RobotSpheres:
    return load_panda() if request.param == "panda" else tree_robot(tmp_path)


def joints_of(robot: RobotSpheres, *shape: int, seed: int = 0, device=None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand((*shape, robot.n_joints), generator=generator) * 5.0 - 2.5).to(device)


def jacobian_of(robot: RobotSpheres, joints: torch.Tensor) -> torch.Tensor:
    """By torch's own operations in float64."""
    return func.jacrev(robot)(joints.double()).float()


def test_every_incoming_gradient(robot, device):
    joints = joints_of(robot, 5, 3, device=device).requires_grad_()
    upstream = torch.randn((5, 3, robot.n_spheres, 4), generator=torch.Generator().manual_seed(1))
    upstream = upstream.to(device)
    robot(joints).backward(upstream)
    exact = joints.detach().double().requires_grad_()
    robot(exact).backward(upstream.double())
    torch.testing.assert_close(joints.grad, exact.grad.float(), atol=2e-5, rtol=1e-5)


def test_link_transforms_are_differentiable(robot, device):
    joints = joints_of(robot, 4, device=device).requires_grad_()
    upstream = torch.randn((4, len(robot.link_names), 4, 4), generator=torch.Generator())
    robot.link_transforms(joints).backward(upstream.to(device))
    exact = joints.detach().double().requires_grad_()
    robot.link_transforms(exact).backward(upstream.to(exact))
    torch.testing.assert_close(joints.grad, exact.grad.float(), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(
        robot.link_transforms(joints), robot.link_transforms(exact).float(), atol=2e-6, rtol=0
    )


@pytest.mark.parametrize("transform", [func.jacrev, func.jacfwd])
def test_jacobians(robot, transform):
    joints = joints_of(robot, seed=2)
    expected = jacobian_of(robot, joints)
    torch.testing.assert_close(transform(robot)(joints), expected, atol=3e-6, rtol=1e-5)


def test_forward_mode(robot):
    joints, rates = joints_of(robot, 3, seed=3), joints_of(robot, 3, seed=4)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(robot(forward_ad.make_dual(joints, rates))).tangent
    _, expected = func.jvp(robot, (joints.double(),), (rates.double(),))
    torch.testing.assert_close(found, expected.float(), atol=2e-5, rtol=1e-5)


def test_vmap_of_gradients(robot):
    joints = joints_of(robot, 4, seed=5)

    def height(row):
        return robot(row)[..., 2].square().sum()

    found = func.vmap(func.grad(height))(joints)
    expected = func.vmap(func.grad(height))(joints.double())
    torch.testing.assert_close(found, expected.float(), atol=1e-4, rtol=1e-5)
    nested = func.vmap(func.vmap(robot), in_dims=1)(joints.expand(2, 4, -1))
    torch.testing.assert_close(nested, robot(joints)[:, None].expand(-1, 2, -1, -1))


@pytest.mark.parametrize("dynamic", mostly_slow((False, True), (True,)))
def test_compiled(robot, dynamic):
    compiled = torch.compile(robot.__call__, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (2, 3):
        joints = joints_of(robot, n, seed=n).requires_grad_()
        spheres = compiled(joints)
        assert torch.equal(spheres, robot(joints))
        (gradient,) = torch.autograd.grad(spheres.square().sum(), joints)
        (expected,) = torch.autograd.grad(robot(joints).square().sum(), joints)
        torch.testing.assert_close(gradient, expected)


def test_gradients_inside_of_a_compiled_function(robot):
    def gradient(joints):
        return func.grad(lambda j: robot(j).square().sum())(joints)

    joints = joints_of(robot, 2, seed=6)
    compiled = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(joints), gradient(joints))


@pytest.mark.parametrize("n_roots", [0, 1, 3])
def test_operator_checks(n_roots, robot):
    joints = joints_of(robot, 3, seed=7)
    poses = torch.randn((n_roots, 7), dtype=torch.float64)
    roots = place_roots_operator(poses) if n_roots else None
    tables = *robot.layout.kinematics.tables(joints.device), roots
    operators = torch.ops.warp_collision
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(operators.forward_kinematics.default, (joints, *tables), test_utils=tests)
    placed, frame_poses = operators.forward_kinematics(joints, *tables)
    if n_roots:  # the kernel places poses of float32 by itself
        rounded = poses.float()
        by_pose = operators.forward_kinematics(joints, *tables[:-1], rounded)
        by_root = operators.forward_kinematics(joints, *tables[:-1], place_roots_operator(rounded))
        assert torch.equal(by_pose[0], by_root[0])
    torch.library.opcheck(
        operators.forward_kinematics_vjp.default,
        (placed, joints, frame_poses, *tables),
        test_utils=tests,
    )
    torch.library.opcheck(
        operators.forward_kinematics_jvp.default,
        (joints, joints, frame_poses, *tables),
        test_utils=tests,
    )


def test_a_batch_of_incoming_gradients(robot):
    joints = joints_of(robot, 2, seed=8).requires_grad_()
    spheres = robot(joints)
    upstream = torch.randn((3, *spheres.shape), generator=torch.Generator().manual_seed(2))
    (found,) = torch.autograd.grad(spheres, joints, upstream, is_grads_batched=True)
    for row, gradient in zip(found, upstream, strict=True):
        (expected,) = torch.autograd.grad(robot(joints), joints, gradient)
        torch.testing.assert_close(row, expected)


def test_second_derivatives_raise_in_float32_and_are_right_in_float64(robot):
    def cost(joints):
        return robot(joints)[..., :3].square().sum() ** 2

    joints = joints_of(robot, 1, seed=9)
    for second in (func.jacfwd(func.jacrev(cost)), func.grad(lambda j: func.grad(cost)(j).sum())):
        with pytest.raises(RuntimeError, match="second derivative of float32 kinematics"):
            second(joints)
    joints.requires_grad_()
    (gradient,) = torch.autograd.grad(cost(joints), joints, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative of float32 kinematics"):
        gradient.sum().backward()
    assert torch.autograd.gradgradcheck(cost, joints.detach().double().requires_grad_())


def test_results_may_be_changed_in_place(robot):
    """Padding a radius in place does not spoil the gradient."""
    joints = joints_of(robot, 2, seed=10).requires_grad_()
    spheres = robot(joints)
    spheres[..., 3] += 0.01
    spheres[..., :3].sum().backward()
    (expected,) = torch.autograd.grad(robot(joints)[..., :3].sum(), joints)
    assert torch.equal(joints.grad, expected)


@pytest.mark.usefixtures("two_threads")
def test_on_threads_as_on_one(robot):
    joints = joints_of(robot, 20_000, seed=11)
    both = robot(joints)
    torch.set_num_threads(1)
    assert torch.equal(robot(joints), both)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-6), (torch.float64, 1e-14)])
def test_branches_and_mimic_joints(dtype, error, device):
    """Two fingers follow one value, in both directions, one with a shift; after a branch."""
    arm = arm_with_mimic()
    values = np.random.default_rng(12).uniform(-2.0, 2.0, (30, arm.kinematics.n_values))
    joints = torch.tensor(values, dtype=dtype, device=device, requires_grad=True)
    placed = arm.kinematics.forward(joints)
    expected = np.stack([expected_places(arm, row) for row in values])
    np.testing.assert_allclose(placed.detach().cpu().numpy(), expected, atol=error)
    placed[..., :3].square().sum().backward()
    exact = joints.detach().double().requires_grad_()
    arm.kinematics.forward(exact)[..., :3].square().sum().backward()
    torch.testing.assert_close(joints.grad.double(), exact.grad, atol=1e-4, rtol=1e-5)
