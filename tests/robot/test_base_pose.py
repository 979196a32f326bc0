"""Robots that stand somewhere in the world: joint paths against obstacles seen from the base."""

import numpy as np
import pytest
import torch
import trimesh

import joint_paths
from cases import mostly_slow
from joint_paths import load_crane, random_paths, sampled_minimum
from warp_collision import CollisionCost, Cuboid, MeshWorld, any_in_collision
from warp_collision.examples import load_panda
from warp_collision.planning import CollisionTerm, optimize_paths
from warp_collision.robot import (
    RobotSpheres,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)

TOLERANCE, BETWEEN_SAMPLES = 1e-3, 1e-4


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


def random_bases(rng: np.random.Generator, count: int, spread: float = 3.0) -> torch.Tensor:
    """Poses (count, 7) of any rotation, quaternions of any length."""
    quaternions = rng.normal(size=(count, 4))
    places = rng.uniform(-spread, spread, (count, 3))
    return torch.tensor(np.concatenate([places, quaternions], axis=1), dtype=torch.float32)


def bases_near(rng: np.random.Generator, base: torch.Tensor, count: int) -> torch.Tensor:
    """Poses (count, 7) beside one, turned a little."""
    return base + torch.tensor(rng.normal(0.0, 0.1, (count, 7)), dtype=torch.float32)


def matrix_of(pose: torch.Tensor) -> torch.Tensor:
    """The 4 x 4 matrix of a pose, float64."""
    matrix = trimesh.transformations.quaternion_matrix(pose[3:].double().numpy())
    matrix[:3, 3] = pose[:3].double().numpy()
    return torch.from_numpy(matrix)


def boxes_around(robot: RobotSpheres, rng: np.random.Generator, base: torch.Tensor):
    """Plates and posts near a robot on its base, and the same as it sees them."""
    places = robot(random_paths(robot, rng, 20, 1, 1.0)[:, 0].double())[..., :3].reshape(-1, 3)
    seen = joint_paths.plates_and_posts(rng, 8, places[places.norm(dim=-1) > 0.65])
    return seen._replace(world_from_box=matrix_of(base) @ seen.world_from_box), seen


@pytest.mark.parametrize("name", ["panda", "crane"])
@pytest.mark.parametrize("seed", [1, 2])
def test_paths_are_certified_where_the_robot_stands(robots, name, seed, device):
    robot, rng = robots[name], np.random.default_rng(seed)
    base = random_bases(rng, 1)[0]
    boxes, seen = boxes_around(robot, rng, base)
    world = joint_paths.world_of(boxes, device)
    paths = random_paths(robot, rng, 6, 3, 1.0)
    options = {"self_collision": False, "base_pose": base.to(device)}
    hits = joint_path_in_collision(paths.to(device), robot, world, **options).cpu()
    found = joint_path_clearance(paths.to(device), robot, world, **options)
    assert 0.05 < hits.float().mean() < 0.95
    for row, segment in np.ndindex(6, 2):
        ends = paths[row, segment : segment + 2].double()
        smallest = sampled_minimum(robot, *ends, lambda s: joint_paths.clearance(s, seen))
        low, high = found.world_lower[row, segment].item(), found.world_upper[row, segment].item()
        assert low <= smallest
        assert smallest - BETWEEN_SAMPLES <= high
        assert high - low <= TOLERANCE
        if hits[row, segment]:
            assert smallest < TOLERANCE + BETWEEN_SAMPLES
        else:
            assert smallest > 0.0


def test_a_base_for_each_row(robots, device):
    """Each row as if it were alone; the robot with itself does not see where it stands."""
    panda, rng = robots["panda"], np.random.default_rng(3)
    base = random_bases(rng, 1)[0]
    bases = bases_near(rng, base, 5).to(device)
    world = joint_paths.world_of(boxes_around(panda, rng, base)[0], device)
    paths = random_paths(panda, rng, 5, 4, 0.8).to(device)
    hits = joint_path_in_collision(paths, panda, world, base_pose=bases)
    found = joint_path_clearance(paths, panda, world, base_pose=bases)
    options = {"activation_distance": 0.2, "substeps": 5}
    cost = joint_path_cost(paths, panda, world, base_pose=bases, **options)
    assert 0.05 < hits.float().mean() < 0.95
    assert cost.max() > 0.0
    for row in range(5):
        one, base = paths[row : row + 1], bases[row]
        alone = joint_path_in_collision(one, panda, world, base_pose=base)
        assert torch.equal(alone, hits[row : row + 1])
        alone = joint_path_clearance(one, panda, world, base_pose=base)
        assert torch.equal(alone.world_upper, found.world_upper[row : row + 1])
        alone = joint_path_cost(one, panda, world, base_pose=base, **options)
        torch.testing.assert_close(alone, cost[row : row + 1])
    somewhere = joint_path_clearance(paths, panda, MeshWorld(device=device), base_pose=bases)
    at_home = joint_path_clearance(paths, panda, MeshWorld(device=device))
    torch.testing.assert_close(somewhere.self_upper, at_home.self_upper, rtol=0, atol=2e-3)


def test_configurations_are_those_of_placed_spheres(robots, device):
    """Bases for the first axes of the joints, whatever their number."""
    panda, rng = robots["panda"], np.random.default_rng(4)
    base = random_bases(rng, 1)[0]
    world = joint_paths.world_of(boxes_around(panda, rng, base)[0], device)
    joints = random_paths(panda, rng, 24, 5, 1.0).reshape(4, 6, 5, 7).to(device)
    bases = bases_near(rng, base, 24).reshape(4, 6, 7).to(device)
    for given, base in ((1, bases[:, 0]), (2, bases), (0, bases[0, 0])):
        spheres = panda(joints, base).reshape(4, 30, -1, 4)
        expected = any_in_collision(spheres, world).reshape(4, 6, 5)
        found = configuration_in_collision(
            joints, panda, world, self_collision=False, base_pose=base
        )
        assert 0.05 < expected.float().mean() < 0.95
        # The places of spheres are rounded otherwise.
        assert (found != expected).sum() <= 1, given
    single = configuration_in_collision(joints[0, 0, 0], panda, world, base_pose=bases[0, 0])
    assert single.shape == ()


@pytest.mark.parametrize("offset", mostly_slow((1.0e5, 5.0e5, 5.0e6), (5.0e5,)))
def test_rounding_far_from_the_origin_hides_no_contact(robots, offset, device):
    panda, rng = robots["panda"], np.random.default_rng(3)
    joints = random_paths(panda, rng, 400, 1, 1.0)[:, 0]
    base = torch.tensor([offset, offset / 3, 0.0, 1.0, 0.0, 0.0, 0.0]).float().tolist()
    options = {"self_collision": False, "base_pose": base}
    contacts = 0
    for _ in range(6):
        place = rng.uniform((-0.6, -0.6, -0.1), (0.6, 0.6, 1.1))
        near, far = MeshWorld(device=device), MeshWorld(device=device)
        for world, origin in ((near, (0.0, 0.0, 0.0)), (far, base[:3])):
            world.add("block", Cuboid((0.2, 0.3, 0.4)), (*(place + origin), 1, 0, 0, 0))
        touches = any_in_collision(panda(joints[:, None].to(device)), near)[:, 0]
        assert configuration_in_collision(joints.to(device), panda, far, **options)[touches].all()
        report = panda.report(joints[:, None].to(device), far, **options)
        assert {*touches.nonzero()[:, 0].tolist()} <= {*report.batch.tolist()}
        contacts += int(touches.sum())
    assert contacts > 100
    # The same of the robot with itself: it is not proven free where rounding is that large.
    folded = configuration_in_collision(joints.to(device), panda, MeshWorld(device=device))
    empty = MeshWorld(device=device)
    assert configuration_in_collision(joints.to(device), panda, empty, base_pose=base)[folded].all()
    assert 20 < folded.sum() < 380


def test_a_link_whose_squared_distance_is_no_float32_is_not_proven_free(tmp_path):
    """Nor is it warned of: NumPy's overflow would be, when the robot is loaded."""
    far = (
        "<collision><origin xyz='1 1e20 3'/><geometry><sphere radius='0.1'/></geometry></collision>"
    )
    near = "<collision><geometry><sphere radius='0.1'/></geometry></collision>"
    (tmp_path / "far.urdf").write_text(
        f"<robot name='far'><link name='a'>{far}</link><link name='b'>{near}</link>"
        "<joint name='turn' type='revolute'><parent link='a'/><child link='b'/>"
        "<axis xyz='0 0 1'/><limit lower='-1' upper='1'/></joint></robot>"
    )
    robot, world = RobotSpheres(tmp_path / "far.urdf"), MeshWorld(device="cpu")
    world.add("box", Cuboid((0.1, 0.1, 0.1)), (5.0, 5.0, 5.0, 1.0, 0.0, 0.0, 0.0))
    assert joint_path_in_collision(torch.tensor([[[0.0], [0.5]]]), robot, world).all()


def test_matrices_are_poses(robots):
    panda, rng = robots["panda"], np.random.default_rng(5)
    bases = random_bases(rng, 3)
    matrices = torch.stack([matrix_of(base) for base in bases]).float()
    paths = random_paths(panda, rng, 3, 3, 0.5)
    torch.testing.assert_close(panda(paths, matrices), panda(paths, bases), rtol=0, atol=2e-6)
    world = joint_paths.world_of(boxes_around(panda, rng, bases[0])[0], torch.device("cpu"))
    options = {"self_collision": False}
    by_poses = joint_path_clearance(paths, panda, world, base_pose=bases, **options)
    by_matrices = joint_path_clearance(paths, panda, world, base_pose=matrices, **options)
    torch.testing.assert_close(by_poses.world_upper, by_matrices.world_upper, rtol=0, atol=1e-3)


def test_gradient_of_the_cost_by_the_base(robots):
    panda, rng = robots["panda"], np.random.default_rng(6)
    world = MeshWorld(device="cpu")
    world.add("block", trimesh.creation.box((0.3, 0.2, 0.4)), (0.6, 0.1, 0.3, 0.9, 0.1, 0.3, 0.2))
    paths = random_paths(panda, rng, 2, 3, 0.3)
    bases = random_bases(rng, 2, 0.1).requires_grad_()

    def cost(base: torch.Tensor) -> torch.Tensor:
        return joint_path_cost(
            paths, panda, world, substeps=3, activation_distance=1.0, base_pose=base, tolerance=1e-5
        ).sum(-1)

    (gradient,) = torch.autograd.grad(cost(bases).sum(), bases)
    for k in range(7):
        step = 1e-3 * torch.eye(7)[k]
        with torch.no_grad():
            slope = (cost(bases + step) - cost(bases - step)) / 2e-3
        torch.testing.assert_close(gradient[:, k], slope, rtol=0.03, atol=0.05)


def test_what_is_nowhere_is_not_free(robots):
    panda, world = robots["panda"], MeshWorld(device="cpu")
    paths = random_paths(panda, np.random.default_rng(7), 4, 2, 0.1)
    bases = random_bases(np.random.default_rng(8), 4)
    bases[0, 1], bases[1, 3:], bases[2, 5] = torch.nan, 0.0, torch.inf
    options = {"self_collision": False, "base_pose": bases}
    hits = joint_path_in_collision(paths, panda, world, **options)
    assert hits[:, 0].tolist() == [True, True, True, False]
    hits = configuration_in_collision(paths, panda, world, **options)
    assert hits.all(-1).tolist() == [True, True, True, False]
    found = joint_path_clearance(paths, panda, world, **options)
    assert found.world_lower[:, 0].isnan().tolist() == [True, True, True, False]
    sheared = torch.eye(4)
    sheared[0, 1] = 0.1
    assert configuration_in_collision(paths, panda, world, base_pose=sheared).all()


@pytest.mark.parametrize("function", [joint_path_in_collision, joint_path_clearance])
@pytest.mark.parametrize("shape", [(6,), (3, 7), (2, 3, 7), (4, 3)])
def test_wrong_shapes(robots, function, shape):
    paths = torch.zeros(2, 3, 7)
    with pytest.raises(ValueError, match=r"base_pose must have shape \(7,\) or \(batch, 7\), or"):
        function(paths, robots["panda"], MeshWorld(device="cpu"), base_pose=torch.ones(shape))
    with pytest.raises(ValueError, match=r"base_pose must have shape \(7,\) or \(batch, 7\), or"):
        joint_path_cost(
            paths, robots["panda"], MeshWorld(device="cpu"), base_pose=torch.ones(shape)
        )


def test_a_base_may_be_plain_numbers(robots, device):
    panda, rng = robots["panda"], np.random.default_rng(9)
    base = random_bases(rng, 1)[0]
    boxes, _ = boxes_around(panda, rng, base)
    world = joint_paths.world_of(boxes, device)
    paths = random_paths(panda, rng, 6, 3, 0.6).to(device)
    tensor, matrix = base.to(device), matrix_of(base).numpy()
    functions = (
        panda.report,
        lambda joints, world, **options: configuration_in_collision(
            joints, panda, world, **options
        ),
        lambda joints, world, **options: joint_path_in_collision(joints, panda, world, **options),
        lambda joints, world, **options: joint_path_clearance(joints, panda, world, **options)[1],
        lambda joints, world, **options: joint_path_cost(joints, panda, world, **options),
        lambda joints, world, **options: CollisionCost(panda, world)(joints, **options),
        lambda joints, world, **options: CollisionTerm(panda, world, **options)(joints),
        lambda joints, world, **options: panda(joints, **options),
        lambda joints, world, **options: panda.link_transforms(joints, **options),
        lambda joints, world, **options: panda.sphere_jacobian(joints, **options),
    )
    for function in functions:
        expected = function(paths, world, base_pose=tensor)
        for numbers in (base.tolist(), tuple(base.tolist()), matrix):
            found = function(paths, world, base_pose=numbers)
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)
            else:
                assert found.obstacle == expected.obstacle
    start, goal = paths[:1, 0], paths[:1, 1]
    options = {"on_invalid_endpoints": "mark", "max_iterations": 0}
    found, expected = (
        optimize_paths(start, goal, panda, world, base_pose=pose, **options).cost
        for pose in (base.tolist(), tensor)
    )
    torch.testing.assert_close(found, expected)
    for function in functions:
        with pytest.raises(ValueError, match=r"base_pose must have a quaternion .* other than 0"):
            function(paths, world, base_pose=(0, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_poses_of_any_dtype_and_layout(robots, dtype, device):
    """Kernels read float32 and float64, contiguous; what they place is rounded once."""
    robot = robots["panda"]
    joints = torch.zeros((3, 2, 7), device=device)
    poses = torch.linspace(0.1, 1.0, 21, device=device).reshape(3, 7).to(dtype)
    expected = robot.spheres(joints, poses.double())
    assert torch.equal(robot.spheres(joints, poses), expected)
    assert torch.equal(robot.spheres(joints, poses.T.contiguous().T), expected)
    by_row = poses[:, None].expand(3, 2, 7)
    assert torch.equal(robot.spheres(joints, by_row), expected)
    assert torch.equal(robot.spheres(joints[0], poses[0])[0], expected[0, 0])
