"""Floors and walls without end: every query against float64, and what they cost the others."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import exact_shapes
import reference
from compare import to_array, to_device
from exact_scenes import build, random_scene
from moving_scenes import random_motion, rotation_matrix, swept_cost, swept_distance
from reference import Array, Body
from reference_sweep import swept_sphere_cost as exact_swept_cost
from warp_collision import (
    Cuboid,
    HalfSpace,
    MeshWorld,
    clearance,
    configuration_in_collision,
    in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.io import load_world_mapping
from warp_collision.kernels.mesh_record import FAR

ETA = 0.05
REST = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
TURNED = np.array([0.1, -0.2, 0.05, 0.3, -0.5, 0.7, 0.4]) / np.array([1, 1, 1, *[0.99**0.5] * 4])


def walls(rng: np.random.Generator, count: int, padding: float = 0.0) -> list[Body]:
    """Half spaces whose planes are 0.5 to 0.9 m off the origin, every other one across an axis."""
    bodies = []
    for index in range(count):
        normal = rng.normal(size=3)
        pose = TURNED.copy()
        if index % 2 == 0:
            normal = np.eye(3)[index % 3] * rng.choice([-1.0, 1.0])
            pose = REST.copy()
        pose = pose.astype(np.float32).astype(float)
        unit = rotation_matrix(pose[3:]) @ normal / np.linalg.norm(normal)
        offset = -rng.uniform(0.5, 0.9) - float(unit @ pose[:3])
        shape = exact_shapes.half_space(*map(float, normal), offset)
        bodies.append(Body(shape, pose, padding * (index % 3 == 0)))
    return bodies


def mixed(seed: int, count: int, n_walls: int, padding: float) -> list[Body]:
    """Half spaces among other shapes."""
    rng = np.random.default_rng(seed)
    scene = walls(rng, n_walls, padding) + random_scene(rng, count, padding)
    return [scene[i] for i in rng.permutation(len(scene))]


def random_spheres(rng: np.random.Generator, *shape: int) -> Array:
    spheres = np.concatenate(
        (rng.uniform(-1.0, 1.0, (*shape, 3)), rng.uniform(0.0, 0.15, (*shape, 1))), axis=-1
    )
    return spheres.astype(np.float32).astype(np.float64)


def random_paths(rng: np.random.Generator, count: int = 30) -> Array:
    spheres = random_spheres(rng, 2, 5, count)
    steps = rng.normal(0.0, 0.15, (2, 5, count, 3))
    spheres[..., :3] = 0.5 * spheres[:, :1, :, :3] + np.cumsum(steps, axis=1)
    spheres[..., 3] = spheres[:, :1, :, 3]
    return spheres.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(("count", "padding"), [(0, 0.0), (3, 0.08), (40, 0.0)])
def test_resting_queries(count: int, padding: float, device: torch.device) -> None:
    """Alone, among few boxes and in a tree; at once and by a field."""
    scene = mixed(count, count, 3, padding)
    world = build([scene], device, 50)
    spheres = random_spheres(np.random.default_rng(1), 1, 1, 4000)
    truth = np.min([body.distance(spheres[..., :3]) for body in scene], axis=0)
    free = truth - spheres[..., 3]
    for _ in range(2):
        found = signed_distance(to_device(spheres[:, 0, :, :3], device), world)
        np.testing.assert_allclose(to_array(found.distance), truth[:, 0], rtol=0, atol=1e-6)
        nearest = clearance(to_device(spheres, device), world)
        np.testing.assert_allclose(to_array(nearest.clearance), free, rtol=0, atol=1e-6)
        hit = in_collision(to_device(spheres, device), world).cpu().numpy()
        sure = np.abs(free) > 2e-6
        np.testing.assert_array_equal(hit[sure], (free < 0.0)[sure])
        assert 0.02 < hit.mean() < 0.98
        cost = sphere_cost(to_device(spheres, device), world, activation_distance=ETA)
        expected = reference.sphere_cost(spheres, [scene], activation_distance=ETA)
        np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=1e-6)
        world.prepare()


@pytest.mark.parametrize(("count", "padding"), [(0, 0.0), (4, 0.08), (40, 0.0)])
def test_sweeps(count: int, padding: float, device: torch.device) -> None:
    scene = mixed(100 + count, count, 3, padding)
    world = build([scene], device, 50)
    spheres = random_paths(np.random.default_rng(2))
    expected = exact_swept_cost(spheres, [scene], activation_distance=ETA)
    assert 0.03 < (expected > 0.0).mean() < 0.97
    for tolerance in (1e-5, 0.01):
        cost = swept_sphere_cost(
            to_device(spheres, device), world, activation_distance=ETA, tolerance=tolerance
        )
        np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=50 * 2e-6)
    free = exact_swept_cost(spheres, [scene], activation_distance=0.0) == 0.0
    hit = swept_in_collision(to_device(spheres, device), world, tolerance=1e-5).cpu().numpy()
    near = exact_swept_cost(spheres, [scene], activation_distance=1e-4) > 0.0
    assert not (hit & ~near).any()
    assert not (~hit & ~free & (expected > 1e-3)).any()


@pytest.mark.parametrize("swept", [False, True])
def test_gradients(swept: bool, device: torch.device) -> None:
    scene = mixed(21, 2, 3, 0.03)
    world = build([scene], device)
    costs = exact_swept_cost if swept else reference.sphere_cost
    row = random_paths(np.random.default_rng(3), 8)[0, :4]

    def loss(values: Array) -> Array:
        rows = values.reshape(-1, *row.shape)
        return costs(rows, [scene], activation_distance=ETA).sum((1, 2))

    leaf = to_device(row[None], device).requires_grad_(True)
    query = swept_sphere_cost if swept else sphere_cost
    query(leaf, world, activation_distance=ETA).sum().backward()
    assert leaf.grad is not None
    found, steps = to_array(leaf.grad)[0].ravel(), 1e-6 * np.eye(row.size)
    here, plus, minus = (loss(row.ravel() + s) for s in (0.0 * steps[:1], steps, -steps))
    forward, backward = (plus - here) / 1e-6, (here - minus) / 1e-6
    smooth = abs(forward - backward) < 2e-3
    assert smooth.sum() > 0.5 * len(smooth)
    assert np.abs(found).max() > 0.1
    assert (abs(found - 0.5 * (forward + backward))[smooth] <= 2e-3).all()


def test_gradients_by_its_pose(device: torch.device) -> None:
    """A floor that is tilted and lifted, which may be calibrated by gradients."""
    scene = walls(np.random.default_rng(4), 2)
    world = build([scene], device)
    spheres = random_paths(np.random.default_rng(5))
    poses = np.stack([body.pose for body in scene])
    leaf = to_device(poses, device).requires_grad_(True)
    cost = sphere_cost(to_device(spheres, device), world, activation_distance=ETA, poses=leaf)
    cost.sum().backward()
    assert leaf.grad is not None

    def total(slot: int, pose: Array) -> float:
        moved = np.concatenate((pose[:3], pose[3:] / np.linalg.norm(pose[3:])))
        one = replace(scene[slot], pose=moved)
        return float(reference.sphere_cost(spheres, [[one]], activation_distance=ETA).sum())

    for slot in range(2):
        slope = [
            (total(slot, poses[slot] + step) - total(slot, poses[slot] - step)) / 2e-5
            for step in 1e-5 * np.eye(7)
        ]
        np.testing.assert_allclose(to_array(leaf.grad)[slot], slope, rtol=5e-3, atol=0.02)
        assert np.abs(slope).max() > 0.1


def test_far_from_the_origin(device: torch.device) -> None:
    """Exact beside a floor at z = 0 wherever a robot is; else to the rounding of coordinates."""
    rng = np.random.default_rng(6)
    points = rng.uniform(-1.0, 1.0, (1, 2000, 3)) * [3e5, 3e5, 1.0]
    points = points.astype(np.float32).astype(float)
    world = MeshWorld(max_obstacles=50, device=device)
    world.add("floor", HalfSpace((0, 0, 1)))
    for index in range(40):
        world.add(f"box {index}", Cuboid((0.2, 0.2, 0.2)), (0.5 * index, 0, -5, 1, 0, 0, 0))
    found = signed_distance(to_device(points, device), world).distance
    assert np.array_equal(to_array(found), points[..., 2])
    for body in walls(rng, 6):
        world = build([[body]], device)
        truth = body.distance(points[0])
        found = to_array(signed_distance(to_device(points, device), world).distance)[0]
        scale = 1.0 + np.linalg.norm(points[0], axis=1)
        assert (np.abs(found - truth) / scale).max() < 1e-6
        balls = np.concatenate((points[:, None], np.full((1, 1, 2000, 1), 0.3)), axis=-1)
        hit = in_collision(to_device(balls, device), world).cpu().numpy()[0, 0]
        assert hit[truth < 0.3].all()  # free is a proof
        assert not hit[truth > 0.3 + 3e-6 * scale].any()


@pytest.mark.parametrize("turn", [0.0, 1.2])
def test_walls_that_move(turn: float, device: torch.device) -> None:
    """Never above the truth, and below it by no more than the tolerance."""
    rng = np.random.default_rng(7)
    scene = walls(rng, 2)
    poses = random_motion(rng, 4, 2, turn=turn, travel=0.3)
    poses[..., 3:] = np.where(turn == 0.0, poses[:1, :, 3:], poses[..., 3:])
    world = build([scene], device, 2)
    spheres = random_paths(rng, 10)[:, :4]
    shapes = [body.shape for body in scene]
    lowest = np.min([swept_distance(spheres, poses[:, k], shapes[k]) for k in range(2)], axis=0)
    lowest -= spheres[..., 3]
    operands = to_device(spheres, device), world
    moved = to_device(poses, device)
    hit = swept_in_collision(*operands, tolerance=1e-3, poses=moved).cpu().numpy()
    assert 0.05 < hit.mean() < 0.95
    assert not (~hit & (lowest < -1e-6)).any()
    assert not (hit & (lowest > 1e-3 + 1e-6)).any()
    expected = swept_cost(spheres, poses, shapes, ETA)
    found = swept_sphere_cost(*operands, activation_distance=ETA, tolerance=1e-3, poses=moved)
    off = expected - to_array(found)
    assert -2e-6 < off.min()
    assert off.max() < 2e-3


def test_joint_paths(device: torch.device) -> None:
    """A robot on a floor beside a wall: bounds hold, and are as tight as asked for."""
    panda, rng = load_panda(), np.random.default_rng(8)
    world = MeshWorld(device=device)
    world.add("floor", HalfSpace((0, 0, 1), 0.02), padding=0.01)
    world.add("wall", HalfSpace((-0.8, 0.3, 0.1)), (0.55, 0.0, 0.3, 0.9, 0.1, 0.2, 0.3))
    limits = panda.joint_limits.numpy()
    ends = rng.uniform(limits[:, 0], limits[:, 1], (60, 1, 7))
    ends = np.concatenate((ends, ends + rng.normal(0.0, 0.15, (60, 1, 7))), axis=1)
    joints = to_device(np.clip(ends, limits[:, 0], limits[:, 1]), device)
    shares = torch.linspace(0.0, 1.0, 201, device=device)[:, None]
    spheres = panda(joints[:, :1] + shares * (joints[:, 1:] - joints[:, :1])).double()
    moving = torch.tensor([link != "panda_link0" for link in panda.sphere_links])
    spheres = spheres[:, :, moving.to(device)]
    options = {"ignore": [("panda_link0", name) for name in world.names()]}
    heights = torch.stack(
        [
            spheres[..., :3] @ torch.tensor(normal, dtype=torch.float64, device=device) - offset
            for normal, offset in (planes_of(world, name) for name in world.names())
        ]
    )
    truth = (heights.amin(0) - spheres[..., 3]).amin((1, 2)).cpu().numpy()
    found = joint_path_clearance(
        joints, panda, world, tolerance=1e-3, self_collision=False, **options
    )
    lower, upper = to_array(found.lower)[:, 0], to_array(found.upper)[:, 0]
    near = truth < 0.5
    assert 0.2 < (truth < 0.0).mean() < 0.9
    assert (lower <= truth + 1e-5).all()
    assert (upper >= truth - 1e-3)[near].all()
    assert (upper - lower)[near].max() <= 1e-3 + 1e-5
    hit = joint_path_in_collision(
        joints, panda, world, tolerance=1e-3, self_collision=False, **options
    )
    hit = hit[:, 0].cpu().numpy()
    assert not (~hit & (truth < -1e-5)).any()
    assert not (hit & (truth > 1e-3 + 1e-5)).any()
    cost = joint_path_cost(joints, panda, world, activation_distance=ETA)
    assert (cost.sum(-1) > 0.0).any()


@pytest.mark.parametrize("normal", [(0, 0, 1), (0.2, -0.3, 0.9)])
def test_configurations(normal: tuple[float, float, float], device: torch.device) -> None:
    """Many at once, which a CPU checks in lanes, and one by one."""
    panda = load_panda()
    world = MeshWorld(device=device)
    world.add("floor", HalfSpace(normal, 0.1), (0.0, 0.1, 0.05, 0.9, 0.1, 0.2, 0.3), padding=0.01)
    limits = panda.joint_limits.numpy()
    joints = np.random.default_rng(11).uniform(limits[:, 0], limits[:, 1], (500, 7))
    joints = to_device(joints, device)
    axis, offset = planes_of(world, "floor")
    spheres = to_array(panda(joints))
    lowest = (spheres[..., :3] @ axis - offset - spheres[..., 3]).min(1)
    hit = configuration_in_collision(joints, panda, world, self_collision=False).cpu().numpy()
    sure = np.abs(lowest) > 1e-5
    np.testing.assert_array_equal(hit[sure], (lowest < 0.0)[sure])
    for row in range(40):
        alone = configuration_in_collision(joints[row], panda, world, self_collision=False)
        assert alone.item() == hit[row]


def planes_of(world: MeshWorld, name: str) -> tuple[Array, float]:
    """Normal and offset of the plane of a half space in the world, padding included."""
    obstacle = world.obstacles()[name]
    shape, pose = obstacle.geometry, np.array(obstacle.pose)
    assert isinstance(shape, HalfSpace)
    normal = rotation_matrix(pose[3:]) @ shape.normal
    return normal, shape.offset + float(normal @ pose[:3]) + obstacle.padding


def test_the_tree_is_that_of_the_others(device: torch.device) -> None:
    """Boxes of planes across axes end at them; a field of a world on a floor is as fine."""
    rng = np.random.default_rng(9)
    worlds = [MeshWorld(max_obstacles=60, device=device) for _ in range(2)]
    for world in worlds:
        world.add("floor", HalfSpace((0, 0, 1)), enabled=world is worlds[1])
    for index in range(40):
        pose = (*rng.uniform(-1.0, 1.0, 2), 1.0 + rng.random(), *rng.normal(size=4))
        for world in worlds:
            world.add(f"box {index}", Cuboid((0.1, 0.1, 0.1)), pose)
    points = torch.tensor([[[[0.0, 0.0, 1.5, 0.1]]]], device=device)
    for world in worlds:
        sphere_cost(points, world)
        lower, upper = world._acceleration._state.broad_phase.boxes
        assert lower[0, 0].tolist() == [-float(np.float32(FAR))] * 3
        assert upper[0, 0].tolist() == [float(np.float32(FAR))] * 2 + [0.0]
        world.prepare()
    if device.type == "cpu":
        sizes = [len(world._acceleration._state.field.buffer) for world in worlds]
        assert sizes[0] == sizes[1] > 4096


@pytest.mark.parametrize("normal", [(0, 0, 1), (0, -1, 0), (1, 0, 0), (1, 2, 2)])
def test_what_scales_and_mirrors_it(normal: tuple[int, int, int]) -> None:
    """The half space of a map is the map of the half space."""
    rng = np.random.default_rng(10)
    shape = HalfSpace(normal, 0.3)
    for linear in (np.diag([2.0, 3.0, -0.5]), rng.normal(size=(3, 3)), np.eye(3)):
        made = shape.transformed(linear)
        points = rng.normal(size=(200, 3))
        before = points @ shape.normal - shape.offset
        after = points @ linear.T @ made.normal - made.offset
        assert (np.sign(before) == np.sign(after)).all()
        assert np.linalg.norm(made.normal) == pytest.approx(1.0, abs=1e-15)
        axis = np.abs(linear - np.diag(np.diag(linear))).max() == 0.0 and sum(normal) ** 2 == 1
        assert not axis or sorted(np.abs(made.normal)) == [0.0, 0.0, 1.0]


def test_bad_input() -> None:
    for made, error, message in (
        (lambda: HalfSpace((0, 0, 0)), ValueError, "normal must be finite and not 0, got .0.0"),
        (lambda: HalfSpace((0, np.nan, 1)), ValueError, "normal must be finite"),
        (lambda: HalfSpace((0, 1)), TypeError, "normal must be three numbers, got .0, 1."),  # pyright: ignore
        (lambda: HalfSpace((0, 0, 1), np.inf), ValueError, "offset must be finite and below 1e"),
        (lambda: HalfSpace((0, 0, 1), "a"), TypeError, "offset must be a number, got 'a'"),  # pyright: ignore
    ):
        with pytest.raises(error, match=message):
            made()
    with pytest.raises(ValueError, match=r"half_space\.f: normal must be finite and not 0"):
        load_world_mapping({"half_space": {"f": {"normal": [0, 0, 0]}}})
    assert HalfSpace((0, 0, 2)) == HalfSpace((0, 0, 1)) == eval(repr(HalfSpace((0, 0, 1))))
