"""Certified joint paths against float64 kinematics, sampled every 0.1 mm, and exact cuboids."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import torch
import trimesh

import joint_paths
from cases import mostly_slow
from joint_paths import BETWEEN, load_crane, obstacles, random_paths, sampled_minimum
from robots import sphere_pairs
from warp_collision import Cuboid, MeshWorld, in_collision
from warp_collision.examples import load_panda
from warp_collision.robot import (
    JointPathClearance,
    RobotSpheres,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
    self_clearance,
)

TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


def check_interval(lower, upper, smallest, between):
    """Whether an interval holds the smallest clearance, which samples overestimate."""
    assert lower <= smallest
    assert smallest - between <= upper
    assert upper - lower <= TOLERANCE


def check_segments(robot, seed, batch, device):
    """Every segment: never free where a sample collides, never hit above the tolerance."""
    rng = np.random.default_rng(seed)
    boxes = obstacles(robot, rng, 8)
    world = joint_paths.world_of(boxes, device)
    paths = random_paths(robot, rng, batch, 4, 1.0)
    options = {"tolerance": TOLERANCE, "self_collision": False}
    hits = joint_path_in_collision(paths.to(device), robot, world, **options).cpu()
    found = joint_path_clearance(paths.to(device), robot, world, **options)
    assert hits.shape == (batch, 3)
    assert (found.self_lower == torch.inf).all()
    for row, segment in np.ndindex(batch, 3):
        begin, end = paths[row, segment : segment + 2].double()
        smallest = sampled_minimum(robot, begin, end, lambda s: joint_paths.clearance(s, boxes))
        if hits[row, segment]:
            assert smallest < TOLERANCE + BETWEEN
        else:
            assert smallest > 0.0
        one = JointPathClearance(*(part[row, segment].item() for part in found))
        check_interval(one.world_lower, one.world_upper, smallest, BETWEEN)
        there = robot(begin + one.world_position * (end - begin))[None]
        one_box = joint_paths.Boxes(*(part[one.obstacle : one.obstacle + 1] for part in boxes))
        gap = joint_paths.clearance(there, one_box)[0, one.sphere].item()
        assert gap == pytest.approx(one.world_upper, abs=4e-5)
    return hits.float().mean().item()


@pytest.mark.parametrize("name", ["panda", "crane"])
def test_no_collision_is_missed_and_no_free_segment_refused(robots, name, device):
    share = np.mean([check_segments(robots[name], seed, 6, device) for seed in (1, 2)])
    assert 0.05 < share < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", ["panda", "crane"])
def test_many_segments(robots, name, device):
    for seed in range(10, 18):
        check_segments(robots[name], seed, 10, device)


def check_pairs(robot, seed, batch, device):
    rng = np.random.default_rng(seed)
    pairs = robot.default_pairs.changing(TOLERANCE)  # those of constant clearance take no part
    paths = random_paths(robot, rng, batch, 3, 1.0)
    empty = MeshWorld(device=device)
    hits = joint_path_in_collision(paths.to(device), robot, empty, tolerance=TOLERANCE).cpu()
    found = joint_path_clearance(paths.to(device), robot, empty, tolerance=TOLERANCE)
    assert (found.world_lower == torch.inf).all()
    assert (found.obstacle == -1).all()
    for row, segment in np.ndindex(batch, 2):
        begin, end = paths[row, segment : segment + 2].double()
        smallest = sampled_minimum(
            robot, begin, end, lambda s: joint_paths.gaps(s, pairs), speed=2.0
        )
        if hits[row, segment]:
            assert smallest < TOLERANCE + 2.0 * BETWEEN
        else:
            assert smallest > 0.0
        one = JointPathClearance(*(part[row, segment].item() for part in found))
        check_interval(one.self_lower, one.self_upper, smallest, 2.0 * BETWEEN)
        there = robot(begin + one.self_position * (end - begin))
        a, b = there[one.self_sphere], there[one.self_other]
        gap = (a[:3] - b[:3]).norm() - a[3] - b[3]
        assert gap.item() == pytest.approx(one.self_upper, abs=4e-5)
    return hits.float().mean().item()


@pytest.mark.parametrize("name", mostly_slow(("panda", "crane"), ("crane",)))
def test_the_robot_with_itself(robots, name, device):
    assert 0.05 < check_pairs(robots[name], 3, 10, device) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", ["panda", "crane"])
def test_many_segments_of_the_robot_with_itself(robots, name, device):
    for seed in range(40, 46):
        check_pairs(robots[name], seed, 10, device)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.9])
def test_any_choice_and_order_of_pairs(robots, share, device):
    panda = robots["panda"]
    rng = np.random.default_rng(9)
    of_links = panda.default_pairs.link_pairs
    chosen = rng.permutation(len(of_links))[: int(share**0.05 * len(of_links))]
    every = rng.permutation(sphere_pairs(panda.default_pairs))
    pairs = replace(
        panda.default_pairs,
        link_pairs=tuple(of_links[i][:: rng.choice([-1, 1])] for i in chosen),
        touching=every[int(share * len(every)) :],
        constant=(),
    )
    # What is left out of pairs of links that are not checked does not matter.
    assert len(sphere_pairs(pairs)) < share * len(every)
    joints = torch.tensor(rng.uniform(-3.0, 3.0, (2000, 1, panda.n_joints)), dtype=torch.float32)
    smallest = joint_paths.gaps(panda(joints[:, 0].double()), pairs).amin(-1)
    assert 20 < (smallest < 0.0).sum() < 1900

    empty, joints = MeshWorld(device=device), joints.to(device)
    at_rest = configuration_in_collision(joints, panda, empty, self_collision=pairs).cpu()[:, 0]
    standing = joints.expand(-1, 2, -1)
    options = {"self_collision": pairs, "tolerance": TOLERANCE}
    proven = ~joint_path_in_collision(standing, panda, empty, **options).cpu()[:, 0]
    known = smallest.abs() > 1e-6
    assert torch.equal(at_rest[known], smallest[known] < 0.0)
    assert (smallest[proven] > 0.0).all()
    assert (smallest[~proven] < TOLERANCE + 1e-6).all()


def test_thin_plate_between_free_waypoints(robots, device):
    """Free at both waypoints, and free in straight lines: the arc goes through the plate."""
    panda = robots["panda"]
    path = torch.tensor([[[-0.6, 0.4, 0, -1.6, 0, 2, 0.8], [0.6, 0.4, 0, -1.6, 0, 2, 0.8]]])
    ends, middle = panda(path[0].double()), panda(path[0].double().mean(0))
    straight = 0.5 * (ends[0] + ends[1])
    far = int((middle[:, :3] - straight[:, :3]).norm(dim=-1).argmax())
    place = middle[far, :3].clone()
    outward = torch.nn.functional.normalize(place - straight[far, :3], dim=-1)
    place = place + (middle[far, 3] - 0.01) * outward
    world = MeshWorld(device=device)
    world.add("bead", trimesh.creation.box((0.0005, 0.002, 0.002)), [*place.tolist(), 1, 0, 0, 0])
    path = path.to(device)
    assert not configuration_in_collision(path, panda, world, self_collision=False).any()
    assert joint_path_in_collision(path, panda, world, self_collision=False).item()


@pytest.mark.parametrize("name", ["panda", "crane"])
def test_configurations_are_those_of_in_collision(robots, name, device):
    robot = robots[name]
    rng = np.random.default_rng(5)
    world = joint_paths.world_of(obstacles(robot, rng, 6), device)
    joints = random_paths(robot, rng, 300, 5, 1.0).to(device)
    spheres = robot(joints)
    expected = in_collision(spheres, world).any(-1)
    found = configuration_in_collision(joints, robot, world, self_collision=False)
    assert 0.05 < expected.float().mean() < 0.95
    assert torch.equal(found, expected)
    with_itself = expected | (self_clearance(spheres, robot.default_pairs).clearance < 0.0)
    found = configuration_in_collision(joints, robot, world)
    assert torch.equal(found, with_itself)
    assert with_itself.sum() > expected.sum()


def test_open_meshes_as_in_collision(robots, device):
    """A hand enters a bowl, where the side changes without a surface in between."""
    panda = robots["panda"]
    bowl = trimesh.creation.icosphere(subdivisions=3, radius=0.35)
    bowl.update_faces(bowl.triangles_center[:, 2] < 0.1)
    joints = torch.tensor([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8], device=device)
    spheres = panda(joints)
    verdicts = []
    for height in np.linspace(0.1, 0.4, 10):
        world = MeshWorld(device=device)
        world.add("bowl", bowl, (0.67, 0.0, height, 1, 0, 0, 0))
        expected = in_collision(spheres[None, None], world).any().item()
        options = {"self_collision": False}
        assert configuration_in_collision(joints, panda, world, **options).item() == expected
        path = joints.expand(1, 2, 7).contiguous()
        assert joint_path_in_collision(path, panda, world, **options).item() >= expected
        verdicts.append(expected)
    assert 1 < sum(verdicts) < 9


def test_any_shape_of_joints(robots):
    panda, world = robots["panda"], MeshWorld(device="cpu")
    world.add("block", trimesh.creation.box((0.6, 0.6, 0.6)), (0.5, 0, 0.3, 1, 0, 0, 0))
    joints = random_paths(panda, np.random.default_rng(6), 4, 6, 1.0)
    flat = configuration_in_collision(joints.reshape(-1, 7), panda, world)
    assert torch.equal(configuration_in_collision(joints, panda, world).flatten(), flat)
    deep = configuration_in_collision(joints.reshape(4, 2, 3, 7), panda, world)
    assert torch.equal(deep.flatten(), flat)
    assert configuration_in_collision(joints[0, 0], panda, world).shape == ()
    assert configuration_in_collision(joints[:0], panda, world).shape == (0, 6)
    assert joint_path_in_collision(joints[:0], panda, world).shape == (0, 5)


def test_each_row_in_its_env(robots, device):
    panda = robots["panda"]
    world = MeshWorld(2, device=device)
    world.add("block", trimesh.creation.box((2.0, 2.0, 2.0)), (0, 0, 0.5, 1, 0, 0, 0), env=1)
    paths = torch.zeros((3, 3, 7), device=device)
    paths[:, 1, 3], paths[:, 2, 3] = -1.5, -1.0
    paths[:, :, 5] = 1.5
    index = torch.tensor([0, 1, 5], dtype=torch.int32, device=device)
    hit = joint_path_in_collision(paths, panda, world, env_index=index)
    assert hit.tolist() == [[False] * 2, [True] * 2, [True] * 2]
    hit = configuration_in_collision(paths, panda, world, env_index=index)
    assert hit.tolist() == [[False] * 3, [True] * 3, [True] * 3]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("joint", [0, 6])
def test_what_is_not_finite_is_not_free(robots, value, joint):
    panda, world = robots["panda"], MeshWorld(device="cpu")
    world.add("far", trimesh.creation.box((0.1, 0.1, 0.1)), (5, 0, 0, 1, 0, 0, 0))
    paths = random_paths(panda, np.random.default_rng(7), 1, 4, 0.2)
    paths[0, 2, joint] = value
    hit = joint_path_in_collision(paths, panda, world, self_collision=False)
    assert hit.tolist() == [[False, True, True]]
    hit = configuration_in_collision(paths, panda, world, self_collision=False)
    assert hit.tolist() == [[False, False, True, False]]


@pytest.mark.parametrize("length", [1.0e8, 1.0e15, 1.0e25, 1.0e37])
def test_bounds_that_overflow_are_not_free(length):
    # One sphere, and a joint at rest: the products of its bounds are 0 times infinity.
    urdf = str(files("warp_collision.assets") / "panda" / "panda.urdf")
    robot = RobotSpheres(urdf, spheres={"panda_link7": [[0.0, 0.0, 0.1, 0.03]]})
    world = MeshWorld(device="cpu")
    world.add("block", Cuboid((0.6, 0.6, 0.6)), (0.5, 0.0, 0.5, 1, 0, 0, 0))
    begin = torch.tensor([3.1, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8])
    moves = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1.0]])
    paths = torch.stack((begin.expand(2, 7), begin + length * moves), dim=1)
    assert joint_path_in_collision(paths, robot, world).all()
    found = joint_path_clearance(paths, robot, world)
    assert not (found.world_lower > 0.0).any()


def test_clearance_of_what_is_not_finite(robots):
    panda, world = robots["panda"], MeshWorld(device="cpu")
    world.add("far", trimesh.creation.box((0.1, 0.1, 0.1)), (5, 0, 0, 1, 0, 0, 0))
    paths = random_paths(panda, np.random.default_rng(7), 1, 3, 0.2)
    paths[0, 2, 4] = torch.nan
    found = joint_path_clearance(paths, panda, world)
    assert found.world_lower.isnan().tolist() == [[False, True]]
    assert found.self_upper.isnan().tolist() == [[False, True]]
    assert found.world_upper[0, 0] > 3.0


@pytest.mark.parametrize("distance", [0.5, 0.9])
def test_an_obstacle_far_from_its_box(robots, distance):
    """What is evaluated first is guessed by the boxes of obstacles, here by one all around."""
    panda = robots["panda"]
    half = torch.tensor([[1.8, 0.002, 0.002]], dtype=torch.float64)
    # A bar from the x to the y axis: its box begins at the foot of the robot.
    pose = torch.from_numpy(joint_paths.turn(np.array([0.0, 0.0, 1.0]), 0.75 * np.pi))
    pose[:3, 3] = torch.tensor([distance, distance, 0.4])
    bar = joint_paths.Boxes(half, pose[None])
    world = joint_paths.world_of(bar, torch.device("cpu"))
    path = torch.tensor([[[0.0, 0.0, 0.0, -2.6, 0.0, 2.6, 0.8]]]).repeat(1, 2, 1)
    path[0, 1, 0] = 0.25
    found = joint_path_clearance(path, panda, world, self_collision=False)
    smallest = sampled_minimum(panda, *path[0].double(), lambda s: joint_paths.clearance(s, bar))
    check_interval(found.world_lower.item(), found.world_upper.item(), smallest, BETWEEN)
    assert smallest > 0.1


def test_a_tolerance_below_rounding_gives_a_wide_interval(robots):
    panda = robots["panda"]
    rng = np.random.default_rng(9)
    boxes = obstacles(panda, rng, 3)
    world = joint_paths.world_of(boxes, torch.device("cpu"))
    paths = random_paths(panda, rng, 1, 2, 0.3)
    options = {"self_collision": False}
    found = joint_path_clearance(paths, panda, world, tolerance=1e-7, **options)
    usual = joint_path_clearance(paths, panda, world, tolerance=1e-4, **options)
    assert found.world_upper - found.world_lower > 1e-6
    assert found.world_lower <= usual.world_upper
    assert usual.world_lower <= found.world_upper
    smallest = sampled_minimum(panda, *paths[0].double(), lambda s: joint_paths.clearance(s, boxes))
    assert found.world_lower.item() <= smallest <= found.world_upper.item() + BETWEEN


@pytest.mark.parametrize(("distance", "tolerance"), [(10.0, 1e-4), (100.0, 1e-3), (100.0, 1e-6)])
def test_a_tolerance_below_rounding_ends_with_the_best_bound(robots, distance, tolerance):
    """Far from the origin, where intervals of the tolerance cannot be certified."""
    panda = robots["panda"]
    paths = random_paths(panda, np.random.default_rng(9), 4, 3, 0.6)
    found = []
    for shift, width in ((0.0, 1e-4), (distance, tolerance)):
        world = MeshWorld(device="cpu")
        for x, y, z in ((0.5, 0.3, 0.9), (0.9, -0.5, 0.4), (-0.6, 0.5, 0.5)):
            ball = trimesh.creation.icosphere(2, 0.1)
            world.add(f"{x}", ball, (x + shift, y, z, 1, 0, 0, 0))
        base = (shift, 0, 0, 1, 0, 0, 0)
        found.append(joint_path_clearance(paths, panda, world, tolerance=width, base_pose=base))
    near, far = found
    rounding = 1.2e-5 * (distance + 2.0)
    for names in (("world_lower", "world_upper"), ("self_lower", "self_upper")):
        lower, upper = (getattr(far, name) for name in names)
        assert (upper - lower).max() <= max(tolerance, rounding)
        assert (lower <= getattr(near, names[1])).all()
        assert (upper >= getattr(near, names[0])).all()


def test_more_evaluations_than_allowed_give_a_bound_of_the_whole_segment(robots):
    """A turn inside of a ring keeps the clearance: no part is farther away than another."""
    panda, world = robots["panda"], MeshWorld(device="cpu")
    world.add("ring", trimesh.creation.annulus(1.2, 1.3, 3.0, sections=512))
    joints = torch.tensor([[-1.5, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8]]).repeat(2, 1)
    joints[1, 0] = 1.5
    options = {"self_collision": False}
    fine = joint_path_clearance(joints[None], panda, world, tolerance=1e-6, **options)
    usual = joint_path_clearance(joints[None], panda, world, **options)
    assert usual.world_lower <= fine.world_upper
    assert fine.world_lower <= usual.world_upper
    assert fine.world_upper - fine.world_lower < 2e-3


def test_a_contact_at_rest_is_a_hit_and_rest_is_decided_at_once(robots):
    """A path that stays where it is, with a clearance above and below the tolerance."""
    panda = robots["panda"]
    joints = torch.tensor([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8])
    hand = panda(joints)[37:]
    lowest = (hand[:, 2] - hand[:, 3]).min().item()
    for gap, expected in ((0.0015, False), (0.0005, True), (-0.001, True)):
        world = MeshWorld(device="cpu")
        pose = (0.6, 0, lowest - gap - 0.05, 1, 0, 0, 0)
        world.add("floor", trimesh.creation.box((0.6, 0.6, 0.1)), pose)
        paths = joints.expand(1, 2, 7).contiguous()
        assert joint_path_in_collision(paths, panda, world).item() is expected


def test_a_path_along_a_wall_ends(robots):
    """Half a turn about the vertical axis, 2 mm above a table: free, but nothing else tells so."""
    panda = robots["panda"]
    joints = torch.tensor([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8])
    hand = panda(joints)[37:]
    lowest = (hand[:, 2] - hand[:, 3]).min().item()
    paths = joints.repeat(1, 2, 1)
    paths[0, :, 0] = torch.tensor([-1.5, 1.5])
    for gap, expected in ((0.002, False), (0.0009, True)):
        world = MeshWorld(device="cpu")
        for side in (-1, 1):
            pose = (0.75 * side, 0, lowest - gap - 0.05, 1, 0, 0, 0)
            world.add(f"table {side}", trimesh.creation.box((1.0, 2.0, 0.1)), pose)
        assert joint_path_in_collision(paths, panda, world).item() is expected


@pytest.mark.usefixtures("two_threads")
def test_on_threads_as_on_one(robots):
    panda = robots["panda"]
    rng = np.random.default_rng(8)
    world = joint_paths.world_of(obstacles(panda, rng, 5), torch.device("cpu"))
    paths = random_paths(panda, rng, 400, 3, 0.5)
    found = joint_path_in_collision(paths, panda, world)
    torch.set_num_threads(1)
    assert torch.equal(joint_path_in_collision(paths, panda, world), found)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"joints": torch.zeros(1, 2, 6)}, ValueError, "joints must have shape"),
        ({"joints": torch.zeros(2, 7)}, ValueError, "joints must have shape .batch, horizon"),
        ({"joints": torch.zeros(3, 1, 7)}, ValueError, "at least 2 waypoints .*configuration_in"),
        ({"joints": torch.zeros(3, 0, 7)}, ValueError, "at least 2 waypoints"),
        ({"joints": torch.zeros(1, 2, 7, dtype=torch.int32)}, TypeError, "joints must be a float"),
        ({"tolerance": 0.0}, ValueError, "tolerance must be positive, got 0.0"),
        ({"self_collision": 1}, TypeError, "self_collision must be a bool or Self.*, got int"),
        ({"env_index": torch.zeros(2, dtype=torch.int32)}, ValueError, "env_index must have shape"),
    ],
)
def test_wrong_arguments(robots, change, error, message):
    arguments = {"joints": torch.zeros(1, 2, 7), **change}
    with pytest.raises(error, match=message):
        joint_path_in_collision(
            arguments.pop("joints"), robots["panda"], MeshWorld(device="cpu"), **arguments
        )
    arguments = {"joints": torch.zeros(1, 2, 7), **change}
    with pytest.raises(error, match=message):
        joint_path_clearance(
            arguments.pop("joints"), robots["panda"], MeshWorld(device="cpu"), **arguments
        )


def test_pairs_of_another_robot(robots):
    with pytest.raises(ValueError, match="self_collision must be pairs of this robot"):
        joint_path_in_collision(
            torch.zeros(1, 2, 7),
            robots["panda"],
            MeshWorld(device="cpu"),
            self_collision=robots["crane"].default_pairs,
        )
