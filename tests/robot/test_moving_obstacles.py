"""Joint paths among obstacles that move between waypoints."""

import numpy as np
import pytest
import torch
import trimesh

import exact_shapes
import moving_scenes
from cases import mostly_slow
from joint_paths import random_paths
from warp_collision import (
    Cuboid,
    MeshWorld,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
    swept_in_collision,
    swept_sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.kernels import moving_sweep
from warp_collision.poses import HALF_TURN, invert_pose, product, rows_between, to_rows
from warp_collision.robot import RobotSpheres
from warp_collision.robot.checks import moving_obstacles, path_operators
from warp_collision.robot.checks.path_operands import PathOperands

SIZES = ((0.3, 0.2, 0.4), (0.5, 0.4, 0.0005))


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


@pytest.mark.parametrize("turn", [2.8, 0.5, 0.0])
def test_rows_between_are_those_of_a_steady_turn(turn):
    rng = np.random.default_rng(1)
    poses = moving_scenes.random_motion(rng, 4, 3, turn=turn, travel=0.5)
    rows = to_rows(invert_pose(torch.tensor(poses)))[None]
    fine = rows_between(rows, 5)
    assert fine.shape == (1, 16, 3, 8)
    torch.testing.assert_close(fine[:, ::5, :, :3], rows[..., :3], rtol=0, atol=1e-12)
    point = rng.normal(size=(1, 3))
    for t, k, part in np.ndindex(3, 3, 5):
        segment = moving_scenes.Segments(point, point, poses[t, k][None], poses[t + 1, k][None])
        expected = segment.places(np.array([[part / 5]]))[0, 0]
        row = fine[0, 5 * t + part, k].numpy()
        turned = moving_scenes.rotation_matrix(row[3:7]) @ point[0]
        np.testing.assert_allclose(turned + row[:3], expected, rtol=0, atol=1e-9)


def test_rows_between_are_differentiable():
    rng = np.random.default_rng(2)
    rows = to_rows(
        invert_pose(torch.tensor(moving_scenes.random_motion(rng, 3, 2, turn=1.0, travel=0.5)))
    )
    rows = rows[None].requires_grad_()
    assert torch.autograd.gradcheck(lambda r: rows_between(r, 3), (rows,))
    still = rows[:, :1].detach().expand(1, 3, 2, 8).clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda r: rows_between(r, 3), (still,), atol=1e-4)


def scene(panda, seed, device):
    rng = np.random.default_rng(seed)
    world = MeshWorld(device=device)
    for size in SIZES:
        world.add(str(size), Cuboid(size))
    joints = random_paths(panda, rng, 3, 3, 0.4)
    poses = moving_scenes.random_motion(rng, 3, 2, turn=1.0, travel=0.3)
    poses[..., 0] += 0.4
    poses[..., 2] += 0.4
    return world, joints.to(device), torch.tensor(poses, dtype=torch.float32, device=device)


def test_cost_with_one_part_is_the_swept_cost(panda, device):
    world, joints, poses = scene(panda, 3, device)
    found = joint_path_cost(joints, panda, world, substeps=1, poses=poses)
    expected = swept_sphere_cost(panda(joints), world, poses=poses).sum(-1)
    assert expected.max() > 0.0
    torch.testing.assert_close(found, expected)


def test_more_parts_come_nearer_to_the_arcs(panda, device):
    """The obstacles' own motion does not depend on the parts: the costs converge."""
    world, joints, poses = scene(panda, 4, device)
    options = {"activation_distance": 0.3, "tolerance": 1e-5, "poses": poses}
    finest = joint_path_cost(joints, panda, world, substeps=81, **options)
    away = [
        (joint_path_cost(joints, panda, world, substeps=parts, **options) - finest).abs().max()
        for parts in (1, 3, 9, 27)
    ]
    assert finest.max() > 0.1
    assert away[2] < 0.2 * away[0]
    assert away[3] < 2e-3


def test_robots_that_stay_see_what_passes_by(panda, device):
    """A plate between waypoints, at neither of them, through a robot at rest."""
    world = MeshWorld(device=device)
    world.add("plate", Cuboid((2.0, 2.0, 0.001)))
    joints = torch.tensor([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8], device=device).expand(1, 2, 7)
    poses = torch.tensor([[[0.3, 0, 2.0, 1, 0, 0, 0]], [[0.3, 0, -2.0, 1, 0, 0, 0]]], device=device)
    cost = joint_path_cost(joints.contiguous(), panda, world, poses=poses)
    assert (cost > 0.0).all()


def test_gradient_by_the_poses(panda, device):
    world, joints, poses = scene(panda, 5, device)
    leaf = poses.clone().requires_grad_()
    options = {"activation_distance": 0.3, "tolerance": 1e-5, "substeps": 3}
    joint_path_cost(joints, panda, world, poses=leaf, **options).sum().backward()
    rng = np.random.default_rng(6)
    for _ in range(4):
        step = 1e-3 * torch.tensor(rng.normal(size=poses.shape)).to(poses)
        high, low = (
            joint_path_cost(joints, panda, world, poses=poses + way * step, **options).sum()
            for way in (1, -1)
        )
        torch.testing.assert_close(
            (leaf.grad * step).sum(), 0.5 * (high - low), rtol=0.03, atol=0.01
        )


# -- certified ------------------------------------------------------------------------------------

TOLERANCE = 1e-3


def test_movers_that_stay_far_are_not_looked_at(panda, monkeypatch):
    """The answers on a CPU are those of all obstacles on all segments, as on a GPU."""
    rng = np.random.default_rng(10)
    world = MeshWorld(device="cpu")
    for k in range(8):
        world.add(f"box {k}", Cuboid(tuple(rng.uniform(0.02, 0.1, 3))), padding=0.01 * (k % 2))
    poses = moving_scenes.random_motion(rng, 6, 8, turn=1.0, travel=0.3)
    poses[..., :3] += rng.normal((0.2, 0.0, 0.4), 0.8, (1, 8, 3))
    options = {"tolerance": TOLERANCE, "self_collision": False}
    options |= {"poses": torch.tensor(poses, dtype=torch.float32)}
    joints = random_paths(panda, rng, 6, 6, 0.4)
    looked_at = []

    def counted(run):
        def call(*args, **named):
            (operands,) = (each for each in args if isinstance(each, PathOperands))
            looked_at.append(len(operands.joints) * (operands.joints.shape[1] - 1))
            return run(*args, **named)

        return call

    for name in ("run_paths_at_rest", "_clearances"):
        monkeypatch.setattr(path_operators, name, counted(getattr(path_operators, name)))
    few = joint_path_in_collision(joints, panda, world, **options)
    near = joint_path_clearance(joints, panda, world, **options)
    seen = looked_at.copy()
    monkeypatch.setattr(path_operators, "CPU", None)
    every = joint_path_in_collision(joints, panda, world, **options)
    expected = joint_path_clearance(joints, panda, world, **options)
    assert torch.equal(few, every)
    assert 0.1 < few.float().mean() < 0.9
    for found, bound in (
        (near.world_lower, expected.world_lower),
        (near.world_upper, expected.world_upper),
    ):
        torch.testing.assert_close(found, bound, rtol=0, atol=TOLERANCE)
    assert torch.equal(near.obstacle, expected.obstacle)
    # What rests, and what moves: by hits, then the nearest by balls, those that may be as near,
    # and the nearest to the tolerance.
    assert looked_at[len(seen) :] == [30, 8 * 30] * 2
    assert seen[1] < 0.6 * 8 * 30
    assert seen[3] == 30
    assert seen[4] < 0.6 * 8 * 30
    assert seen[5] < 0.4 * 8 * 30


def sampled_clearance(robot, ends, poses, base, samples: int = 1501):
    """Smallest clearance (samples,) of a robot to the cuboids of SIZES, float64."""
    s = torch.linspace(0.0, 1.0, samples, dtype=torch.float64)
    joints = ends[0].double() + s[:, None] * (ends[1] - ends[0]).double()
    spheres = robot(joints, base.double()).numpy()
    smallest = np.full(samples, np.inf)
    for k, size in enumerate(SIZES):
        places = moving_scenes.seen_on_the_way(spheres[..., :3], s.numpy(), *poses[:, k])
        distance = exact_shapes.cuboid(*size).distance(places.reshape(-1, 3))
        clearance = distance.reshape(spheres.shape[:2]) - spheres[..., 3]
        smallest = np.minimum(smallest, clearance.min(axis=1))
    return smallest


@pytest.mark.parametrize("seed", mostly_slow((7, 8, 9), (7,)))
@pytest.mark.parametrize("with_base", [False, True])
def test_certified_paths(panda, seed, with_base, device):
    """Free is a proof, a hit is near, intervals hold the smallest clearance."""
    world, joints, poses = scene(panda, seed, device)
    rng = np.random.default_rng(seed)
    bases = torch.eye(7)[3].expand(3, 7)
    if with_base:
        bases = bases + torch.tensor(rng.normal(0.0, 0.1, (3, 7)), dtype=torch.float32)
    options = {"self_collision": False, "poses": poses, "base_pose": bases.to(device)}
    hits = joint_path_in_collision(joints, panda, world, **options).cpu()
    found = joint_path_clearance(joints, panda, world, **options)
    found = type(found)(*(part.cpu() for part in found))
    for row, segment in np.ndindex(3, 2):
        ends = joints[row, segment : segment + 2].cpu()
        moved = poses[segment : segment + 2].double().cpu().numpy()
        values = sampled_clearance(panda, ends, moved, bases[row])
        smallest = values.min()
        between = np.abs(np.diff(values)).max()  # what samples may miss
        lower, upper = (
            found.world_lower[row, segment].item(),
            found.world_upper[row, segment].item(),
        )
        assert lower <= smallest
        assert smallest - between <= upper
        assert upper - lower <= TOLERANCE
        if hits[row, segment]:
            assert smallest < TOLERANCE + between
        else:
            assert smallest > 0.0


def test_a_share_of_certified_paths_is_free(panda, device):
    """What the test above asserts is not always the same half of it."""
    shares = []
    for seed in (7, 8, 9):
        world, joints, poses = scene(panda, seed, device)
        hits = joint_path_in_collision(joints, panda, world, poses=poses, self_collision=False)
        shares.append(hits.float().mean().item())
    assert 0.1 < np.mean(shares) < 0.95


def test_a_plate_that_passes_by_is_a_certified_hit(panda, device):
    world = MeshWorld(device=device)
    world.add("far", Cuboid((0.1, 0.1, 0.1)))
    world.add("plate", Cuboid((2.0, 2.0, 0.0005)))
    joints = torch.tensor([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8], device=device).repeat(1, 3, 1)
    poses = torch.tensor([0.3, 0, 2.0, 1, 0, 0, 0], device=device).repeat(3, 2, 1)
    poses[:, 0, 0] = 5.0
    poses[1, 1, 2] = -2.0
    poses[2, 1, 2] = -3.0
    hits = joint_path_in_collision(joints, panda, world, poses=poses)
    assert hits.tolist() == [[True, False]]
    found = joint_path_clearance(joints, panda, world, poses=poses)
    assert found.obstacle.tolist() == [[1, 1]]
    assert found.world_upper[0, 0] < 0.0 < found.world_lower[0, 1]
    still = joint_path_clearance(joints, panda, world)
    assert torch.equal(found.self_upper, still.self_upper)


def test_obstacles_that_stay_are_those_of_a_still_scene(panda, device):
    world, joints, poses = scene(panda, 10, device)
    still = poses[0]
    moving = joint_path_clearance(joints, panda, world, poses=still.expand(3, 2, 7))
    expected = joint_path_clearance(joints, panda, world, poses=still)
    torch.testing.assert_close(moving.world_upper, expected.world_upper, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(moving.world_lower, expected.world_lower, rtol=0, atol=TOLERANCE)
    assert torch.equal(moving.self_upper, expected.self_upper)


def test_what_rests_beside_what_moves(panda, device, monkeypatch):
    """Resting obstacles share a launch, with the answers that each has in one of its own."""
    world, joints, poses = scene(panda, 13, device)
    rng = np.random.default_rng(14)
    for index in range(6):
        pose = np.concatenate((rng.uniform(-0.8, 0.8, 3), rng.normal(size=4)))
        world.add(f"rests {index}", Cuboid((0.1, 0.2, 0.3)), pose)
    world.enable("rests 2", False)
    rest = torch.stack([world.pose(f"rests {k}") for k in range(6)]).to(poses)
    both = torch.cat((poses, rest.expand(len(poses), 6, 7)), dim=1)
    found = joint_path_clearance(joints, panda, world, poses=both)
    hits = joint_path_in_collision(joints, panda, world, poses=both)
    on = world.enabled & (torch.arange(world.max_obstacles, device=device) < 6 + poses.shape[1])
    monkeypatch.setattr(
        moving_obstacles, "_resting_and_moving", lambda tables: (torch.zeros_like(on), on)
    )
    expected = joint_path_clearance(joints, panda, world, poses=both)
    torch.testing.assert_close(found.world_upper, expected.world_upper, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.world_lower, expected.world_lower, rtol=0, atol=TOLERANCE)
    assert (found.obstacle > 1).any()
    decided = (expected.world_upper < 0.0) | (expected.world_lower > 2.0 * TOLERANCE)
    free = joint_path_in_collision(joints, panda, world, poses=both)
    assert torch.equal(hits[decided], free[decided])


def test_each_row_in_its_env_and_wanted_contacts(panda, device):
    world, joints, poses = scene(panda, 11, device)
    two = MeshWorld(2, max_obstacles=3, device=device)
    for size in SIZES:
        two.add(str(size), Cuboid(size), env=1)
    full = torch.zeros(2, 3, 3, 7, device=device)
    full[1, :, :2] = poses
    index = torch.tensor([1, 0, 7], dtype=torch.int32, device=device)
    found = joint_path_clearance(joints, panda, two, env_index=index, poses=full)
    alone = joint_path_clearance(joints, panda, world, poses=poses)
    torch.testing.assert_close(found.world_upper[0], alone.world_upper[0])
    assert torch.equal(found.obstacle[0], alone.obstacle[0])
    assert (found.world_upper[1] == torch.inf).all()
    assert found.world_upper[2].isnan().all()
    every = [(link, str(SIZES[0])) for link in panda.body_names]
    without = joint_path_clearance(joints, panda, world, poses=poses, ignore=every)
    assert (without.obstacle == 1).all()


def test_what_is_nowhere_is_not_free(panda, device):
    world, joints, poses = scene(panda, 12, device)
    poses[..., 0] += 10.0
    assert not joint_path_in_collision(
        joints, panda, world, poses=poses, self_collision=False
    ).any()
    for index, value in (((2, 1, 5), torch.nan), ((2, 0, 1), torch.inf)):
        broken = poses.clone()
        broken[index] = value
        hits = joint_path_in_collision(joints, panda, world, poses=broken, self_collision=False)
        assert hits.tolist() == [[False, True]] * 3
        found = joint_path_clearance(joints, panda, world, poses=broken)
        assert found.world_lower.isnan().tolist() == [[False, True]] * 3
    world.enable(str(SIZES[0]), False)
    hits = joint_path_in_collision(joints, panda, world, poses=broken, self_collision=False)
    assert not hits.any()


def half_turns(rng, count):
    """Poses (count, 2, 1, 7) of obstacles that turn by 180 degrees, as rounding leaves them."""
    first, axis = rng.normal(size=(2, count, 4))
    axis[:, 0] = 0.0
    first, axis = (
        torch.tensor(q / np.linalg.norm(q, axis=1, keepdims=True)) for q in (first, axis)
    )
    signs = torch.tensor(rng.choice([-1.0, 1.0], size=(count, 1)))
    at = torch.tensor(rng.uniform([-0.3, -0.6, 0.2], [0.7, 0.6, 0.9], size=(count, 3)))
    poses = [torch.cat((at, q), dim=1) for q in (first, signs * product(axis, first))]
    return torch.stack(poses, dim=1)[:, :, None].float()


def test_all_agree_which_way_round_a_half_turn_goes(panda, device):
    rng, count = np.random.default_rng(3), 300
    poses = half_turns(rng, count).to(device)
    ball = trimesh.creation.icosphere(subdivisions=2, radius=0.15)
    ball.apply_translation((0.1, 0.45, -0.2))
    world = MeshWorld(count, max_obstacles=1, device=device)
    for env in range(count):
        world.add("ball", ball, env=env)
    joints = panda.joint_limits.mean(1).expand(count, 2, -1).to(device, torch.float32).contiguous()
    index = torch.arange(count, dtype=torch.int32, device=device)
    options = {"poses": poses, "env_index": index}
    hit = joint_path_in_collision(joints, panda, world, self_collision=False, **options)[:, 0]
    swept = swept_in_collision(panda(joints), world, **options).flatten(1).any(1)
    assert 0.2 < hit.float().mean() < 0.8
    assert not (swept & ~hit).any()
    nearest = joint_path_clearance(joints, panda, world, self_collision=False, **options)
    assert not ((nearest.world_lower[:, 0] > 2e-3) & swept).any()
    assert not ((nearest.world_upper[:, 0] < -2e-3) & ~swept).any()
    tolerance = 1e-4
    whole, parts = (
        joint_path_cost(joints, panda, world, substeps=n, tolerance=tolerance, **options)
        for n in (1, 3)
    )
    # Tolerances of each sphere add up.
    torch.testing.assert_close(parts, whole, rtol=0.0, atol=1.1 * tolerance * 59)


def test_shorter_turns_are_those_of_the_kernels():
    assert float(HALF_TURN) == float(moving_sweep.HALF_TURN)
