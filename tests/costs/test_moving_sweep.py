"""Moving spheres against obstacles that move too, and float64 samples of the relative motion."""

import numpy as np
import pytest
import torch
import trimesh

import compare
import exact_shapes
import moving_scenes
import shapes
from cases import mostly_slow
from differentiable import JIT_WARNING
from reference import Array
from reference_sweep import path_gradient
from warp_collision import (
    Cuboid,
    MeshWorld,
    in_collision,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)

# A plate of 0.5 mm, a post of 2 mm, a block.
SIZES = ((0.5, 0.4, 0.0005), (0.002, 0.002, 0.8), (0.3, 0.2, 0.4))
DISTANCES = [exact_shapes.cuboid(*size).distance for size in SIZES]
ROUNDING = 1e-6  # [m]


def world_of_cuboids(device: torch.device, *, as_meshes: bool = False) -> MeshWorld:
    world = MeshWorld(max_obstacles=3, device=device)
    for size in SIZES:
        if as_meshes:
            # Not recognised as cuboids, but the same bodies: the plates are in several pieces.
            world.add(str(size), moving_scenes.split_box(size))
        else:
            world.add(str(size), Cuboid(size))
    return world


def random_spheres(rng: np.random.Generator, shape: tuple[int, int, int], step: float) -> Array:
    """Spheres that move by `step` or so [m] between waypoints, some of them disabled."""
    batch, horizon, n = shape
    steps = rng.normal(0.0, step, (batch, horizon, n, 3))
    steps[:, 0] = rng.uniform(-0.5, 0.5, (batch, n, 3))
    radii = rng.uniform(0.0, 0.1, (*shape, 1))
    radii[rng.random(radii.shape) < 0.05] = -1.0
    return shapes.rounded(np.concatenate([steps.cumsum(axis=1), radii], axis=-1))


def lowest_clearance(spheres: Array, poses: Array) -> Array:
    """Smallest clearance of what each waypoint owns, of all obstacles."""
    each = [
        moving_scenes.swept_distance(spheres, poses[:, k], distance)
        for k, distance in enumerate(DISTANCES)
    ]
    return np.min(each, axis=0) - spheres[..., 3]


@pytest.mark.parametrize("as_meshes", mostly_slow((False, True), (True,)))
@pytest.mark.parametrize(
    ("turn", "travel", "step"),
    [(1.5, 0.3, 0.1), (0.1, 0.02, 0.3), (3.1, 0.0, 0.0), (0.0, 0.4, 0.1)],
)
def test_cost_of_the_relative_motion(turn, travel, step, as_meshes, device):
    """Never above the truth, and below it by no more than the tolerance of each obstacle."""
    rng = np.random.default_rng(1)
    poses = moving_scenes.random_motion(rng, 4, 3, turn=turn, travel=travel)
    spheres = random_spheres(rng, (4, 4, 12), step)
    expected = moving_scenes.swept_cost(spheres, poses, DISTANCES, 0.05)
    assert 0.02 < (expected > 0.0).mean() < 0.7
    world = world_of_cuboids(device, as_meshes=as_meshes)
    for tolerance in (1e-4, 3e-3):
        found = swept_sphere_cost(
            compare.to_device(spheres, device),
            world,
            activation_distance=0.05,
            tolerance=tolerance,
            poses=compare.to_device(poses, device),
        )
        found = compare.to_array(found)
        assert (found - expected).max() < ROUNDING
        assert (expected - found).max() < 2.0 * tolerance + ROUNDING
        at_rest = sphere_cost(
            compare.to_device(spheres, device),
            world,
            activation_distance=0.05,
            poses=compare.to_device(poses, device),
        )
        assert (compare.to_array(at_rest) - found).max() < ROUNDING


@pytest.mark.parametrize("as_meshes", [False, True])
@pytest.mark.parametrize(("turn", "travel", "step"), [(1.5, 0.3, 0.1), (0.3, 0.0, 0.0)])
def test_yes_or_no(turn, travel, step, as_meshes, device):
    """Free is a proof; a hit has a clearance below the tolerance."""
    rng = np.random.default_rng(2)
    poses = moving_scenes.random_motion(rng, 4, 3, turn=turn, travel=travel)
    spheres = random_spheres(rng, (4, 4, 12), step)
    lowest = lowest_clearance(spheres, poses)
    operands = compare.to_device(spheres, device), world_of_cuboids(device, as_meshes=as_meshes)
    for tolerance in (1e-4, 5e-3):
        found = swept_in_collision(
            *operands, tolerance=tolerance, poses=compare.to_device(poses, device)
        )
        hit = found.cpu().numpy()
        assert 0.02 < hit.mean() < 0.7
        assert not (~hit & (lowest < -ROUNDING)).any()
        assert not (hit & (lowest > tolerance + ROUNDING)).any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_nothing_is_missed_on_many_paths(seed, device):
    rng = np.random.default_rng(seed)
    turn, travel, step = rng.uniform(0.0, 3.1), rng.uniform(0.0, 0.5), rng.uniform(0.0, 0.3)
    poses = moving_scenes.random_motion(rng, 4, 3, turn=turn, travel=travel)
    spheres = random_spheres(rng, (5, 4, 60), step)
    lowest = lowest_clearance(spheres, poses)
    hit = swept_in_collision(
        compare.to_device(spheres, device),
        world_of_cuboids(device, as_meshes=seed % 2 == 0),
        poses=compare.to_device(poses, device),
    )
    hit = hit.cpu().numpy()
    assert not (~hit & (lowest < -ROUNDING)).any()
    assert not (hit & (lowest > 1e-4 + ROUNDING)).any()


def test_a_thin_plate_sweeps_past_spheres_at_rest(device):
    """Spheres do not move, and are free of the plate at both waypoints."""
    rng = np.random.default_rng(3)
    world = MeshWorld(device=device)
    world.add("door", Cuboid((1.0, 0.0005, 1.0)))
    # A door, hung askew: it turns by 1.2 about its own z axis and through all spheres before it.
    hinge = rng.normal(size=4)
    hinge /= np.linalg.norm(hinge)
    half = np.array([np.cos(0.3), 0.0, 0.0, np.sin(0.3)])
    poses = moving_scenes.chained(
        [[0.1, 0.2, 0.3, *hinge]] * 2, [[0, 0, 0, *half], [0, 0, 0, *half * [1, 1, 1, -1]]]
    )
    radii = rng.uniform(0.001, 0.02, 40)
    distances = rng.uniform(0.2, 0.45, 40)
    beside = np.stack([distances, 0.0 * distances, rng.uniform(-0.4, 0.4, 40)], axis=-1)
    centers = beside @ moving_scenes.rotation_matrix(hinge).T + [0.1, 0.2, 0.3]
    spheres = np.broadcast_to(np.concatenate([centers, radii[:, None]], axis=-1), (1, 2, 40, 4))
    spheres = compare.to_device(spheres, device)
    poses = compare.to_device(poses[:, None], device)
    assert not in_collision(spheres, world, poses=poses).any()
    assert swept_in_collision(spheres, world, poses=poses).all()
    assert (swept_sphere_cost(spheres, world, activation_distance=0.0, poses=poses) > 0.0).all()


def test_obstacles_that_stay_are_those_of_a_still_scene(device):
    rng = np.random.default_rng(4)
    world = world_of_cuboids(device)
    poses = moving_scenes.random_motion(rng, 1, 3, turn=0.0, travel=0.0)
    spheres = compare.to_device(random_spheres(rng, (6, 4, 20), 0.1), device)
    still = compare.to_device(poses[0], device)
    options = {"activation_distance": 0.05, "tolerance": 1e-5}
    found = swept_sphere_cost(spheres, world, poses=still.expand(4, 3, 7), **options)
    expected = swept_sphere_cost(spheres, world, poses=still, **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=3e-5)
    hits = swept_in_collision(spheres, world, poses=still.expand(4, 3, 7))
    assert (hits != swept_in_collision(spheres, world, poses=still)).float().mean() < 0.01


def test_the_common_motion_of_all_does_not_count(device):
    """Spheres that ride on an obstacle rest, as it sees them, however both move.

    Its origin is where the sphere is: other places of a turning body do not move straight.
    """
    rng = np.random.default_rng(5)
    world = MeshWorld(device=device)
    world.add("block", Cuboid((0.4, 0.3, 0.2)), padding=-0.0)
    poses = moving_scenes.random_motion(rng, 5, 1, turn=2.5, travel=1.0)
    spheres = np.concatenate([poses[:, :, :3], np.full((5, 1, 1), 0.05)], axis=-1)[None]
    options = {"activation_distance": 0.01, "poses": compare.to_device(poses, device)}
    found = swept_sphere_cost(compare.to_device(spheres, device), world, **options)
    torch.testing.assert_close(found, torch.full_like(found, 0.155), rtol=0, atol=2e-6)


def test_reversed_in_time_the_costs_are_reversed(device):
    rng = np.random.default_rng(6)
    world = world_of_cuboids(device)
    poses = compare.to_device(moving_scenes.random_motion(rng, 4, 3, turn=3.0, travel=0.3), device)
    # Half turns, whose sense is that of the quaternions.
    poses[1, 0, 3:], poses[2, 0, 3:] = torch.tensor(
        [[1.0, 0, 0, 0], [0.0, 0.6, 0, 0.8]], device=device
    )
    spheres = compare.to_device(random_spheres(rng, (6, 4, 20), 0.1), device)
    options = {"activation_distance": 0.05, "tolerance": 1e-5}
    cost = swept_sphere_cost(spheres, world, poses=poses, **options)
    back = swept_sphere_cost(spheres.flip(1), world, poses=poses.flip(0), **options)
    assert (cost > 0.0).float().mean() > 0.1
    torch.testing.assert_close(back.flip(1), cost, rtol=0, atol=3e-5)


def test_quaternions_of_either_sign_are_the_same_turn(device):
    rng = np.random.default_rng(7)
    world = world_of_cuboids(device)
    poses = compare.to_device(moving_scenes.random_motion(rng, 4, 3, turn=2.0, travel=0.3), device)
    spheres = compare.to_device(random_spheres(rng, (6, 4, 20), 0.1), device)
    other = poses.clone()
    other[1::2, :, 3:] *= -1.7
    cost = swept_sphere_cost(spheres, world, poses=poses)
    torch.testing.assert_close(
        swept_sphere_cost(spheres, world, poses=other), cost, rtol=0, atol=1e-5
    )


def test_each_row_in_its_env(device):
    """Two envs of other obstacles and poses, as two worlds."""
    rng = np.random.default_rng(8)
    worlds = [MeshWorld(2, max_obstacles=2, device=device)] + [
        MeshWorld(max_obstacles=2, device=device) for _ in range(2)
    ]
    for env, sizes in enumerate((SIZES[:2], SIZES[2:])):
        for size in sizes:
            worlds[0].add(str(size), Cuboid(size), env=env)
            worlds[1 + env].add(str(size), Cuboid(size))
    poses = np.stack(
        [moving_scenes.random_motion(rng, 3, 2, turn=2.0, travel=0.3) for _ in range(2)]
    )
    poses = compare.to_device(poses, device)
    spheres = compare.to_device(random_spheres(rng, (6, 3, 20), 0.1), device)
    envs = torch.tensor([1, 0, 0, 1, 5, 0], dtype=torch.int32, device=device)
    cost = swept_sphere_cost(spheres, worlds[0], env_index=envs, poses=poses)
    hits = swept_in_collision(spheres, worlds[0], env_index=envs, poses=poses)
    for env in range(2):
        own = spheres[envs == env].contiguous()
        alone = swept_sphere_cost(own, worlds[1 + env], poses=poses[env : env + 1].contiguous())
        assert torch.equal(cost[envs == env], alone)
        alone = swept_in_collision(own, worlds[1 + env], poses=poses[env : env + 1].contiguous())
        assert torch.equal(hits[envs == env], alone)
    enabled = spheres[4, ..., 3] >= 0.0
    assert cost[4][enabled].isnan().all()
    assert hits[4][enabled].all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e12])
def test_what_is_nowhere_reaches_the_neighbours(value, device):
    rng = np.random.default_rng(9)
    world = world_of_cuboids(device)
    poses = compare.to_device(moving_scenes.random_motion(rng, 5, 3, turn=1.0, travel=0.1), device)
    poses[3, 1, 2] = value
    spheres = compare.to_device(np.abs(random_spheres(rng, (2, 5, 6), 0.1)), device)
    cost = swept_sphere_cost(spheres, world, poses=poses)
    assert cost.isnan().all(-1).tolist() == [[False, False, True, True, True]] * 2
    assert not cost[:, :2].isnan().any()
    hits = swept_in_collision(spheres, world, poses=poses)
    assert hits[:, 2:].all()
    # Where the path of a sphere ends, nobody asks where obstacles are later.
    spheres[:, 3:, :, 3] = -1.0
    assert not swept_sphere_cost(spheres, world, poses=poses).isnan().any()


def test_one_waypoint_and_none(device):
    rng = np.random.default_rng(10)
    world = world_of_cuboids(device)
    poses = compare.to_device(moving_scenes.random_motion(rng, 1, 3, turn=1.0, travel=0.1), device)
    spheres = compare.to_device(random_spheres(rng, (3, 1, 20), 0.1), device)
    at_rest = sphere_cost(spheres, world, poses=poses)
    torch.testing.assert_close(swept_sphere_cost(spheres, world, poses=poses), at_rest)
    nothing = swept_sphere_cost(spheres[:, :0], world, poses=poses[:0])
    assert nothing.shape == (3, 0, 20)


# -- gradients ------------------------------------------------------------------------------------


def few_spheres(rng: np.random.Generator, poses: Array) -> Array:
    """Spheres (2, 3, 8, 4) whose paths are near the obstacles, and go in and out of them."""
    spheres = random_spheres(rng, (2, 3, 8), 0.08)
    spheres[..., :3] = 0.4 * spheres[..., :3] + poses[1, 2, :3]
    spheres[..., 3] = np.abs(spheres[..., 3]).clip(0.02, 0.1)
    return shapes.rounded(spheres)


@pytest.mark.parametrize("dt", mostly_slow((None, 0.5), (0.5,)))
@pytest.mark.parametrize("seed", mostly_slow((11, 12), (11,)))
def test_gradient_by_spheres(seed, dt, device):
    """Exact for any incoming gradient, the neighbours' part included."""
    rng = np.random.default_rng(seed)
    poses = moving_scenes.random_motion(rng, 3, 3, turn=1.2, travel=0.2)
    spheres = few_spheres(rng, poses)
    truth = path_gradient(
        lambda moved: moving_scenes.swept_cost(moved, poses, DISTANCES, 0.2, dt), spheres
    )
    incoming = np.where(truth.kink < 0.02, rng.normal(size=truth.kink.shape), 0.0)
    assert (incoming != 0.0).mean() > 0.7
    leaf = compare.to_device(spheres, device).requires_grad_()
    speed = {} if dt is None else {"dt": dt, "speed_metric": True}
    cost = swept_sphere_cost(
        leaf,
        world_of_cuboids(device),
        activation_distance=0.2,
        tolerance=1e-6,
        poses=compare.to_device(poses, device),
        **speed,
    )
    cost.backward(compare.to_device(incoming, device))
    expected = truth.pull_back(incoming)
    error = np.linalg.norm(compare.to_array(leaf.grad) - expected) / np.linalg.norm(expected)
    assert np.abs(expected).max() > 0.1
    assert error < 3e-3


@pytest.mark.parametrize(
    ("seed", "turn", "dt"),
    [
        pytest.param(13, 1.2, None, marks=pytest.mark.slow),
        pytest.param(14, 2.9, 0.5, marks=pytest.mark.slow),
        pytest.param(15, 1e-5, None, marks=pytest.mark.slow),
    ],
)
def test_gradient_by_poses(seed, turn, dt, device):
    """By positions and by quaternions, of any length, of each waypoint."""
    rng = np.random.default_rng(seed)
    poses = moving_scenes.random_motion(rng, 3, 3, turn=turn, travel=0.2)
    poses[..., 3:] *= rng.uniform(0.5, 2.0, (3, 3, 1))
    poses = shapes.rounded(poses)
    spheres = few_spheres(rng, poses)

    def model(moved: Array, k: int) -> Array:
        options = {"levels": 7, "kept": 4}
        return moving_scenes.swept_cost(
            spheres, moved[:, k : k + 1], DISTANCES[k : k + 1], 0.2, dt, **options
        )

    step = 1e-5
    slopes, kink = np.zeros((*poses.shape, *spheres.shape[:3])), np.zeros(spheres.shape[:3])
    middle = [model(poses, k) for k in range(3)]
    for index in np.ndindex(poses.shape):
        ahead, behind = poses.copy(), poses.copy()
        ahead[index] += step
        behind[index] -= step
        high, low = model(ahead, index[1]), model(behind, index[1])
        slopes[index] = (high - low) / (2.0 * step)
        kink = np.maximum(kink, np.abs(high - 2.0 * middle[index[1]] + low) / step)
    incoming = np.where(kink < 0.02, rng.normal(size=kink.shape), 0.0)
    assert (incoming != 0.0).mean() > 0.5
    leaf = compare.to_device(poses, device).requires_grad_()
    cost = swept_sphere_cost(
        compare.to_device(spheres, device),
        world_of_cuboids(device),
        activation_distance=0.2,
        tolerance=1e-6,
        poses=leaf,
        **({} if dt is None else {"dt": dt, "speed_metric": True}),
    )
    cost.backward(compare.to_device(incoming, device))
    expected = (slopes * incoming).sum(axis=(3, 4, 5))
    assert (np.abs(expected) > 0.01).mean() > 0.3
    actual = compare.to_array(leaf.grad)
    for t in range(3):
        error = np.linalg.norm(actual[t] - expected[t]) / np.linalg.norm(expected[t])
        assert error < 5e-3, t


def test_the_gradient_where_a_path_ends_is_that_at_rest(device):
    """All of it: a pose beside its own inverse is rounding, which is no motion to a neighbour."""
    rng, n_envs, batch = np.random.default_rng(0), 30, 1500
    world = MeshWorld(device=device, n_envs=n_envs, max_obstacles=1)
    for env in range(n_envs):
        world.add("ring", trimesh.creation.torus(0.3, 0.1, 16, 8), env=env)
    turns = rng.normal(size=(n_envs, 1, 1, 4)) + 0.1 * rng.normal(size=(n_envs, 2, 1, 4))
    places = rng.uniform(-0.3, 0.3, (n_envs, 2, 1, 3))
    poses = compare.to_device(shapes.rounded(np.concatenate([places, turns], axis=-1)), device)
    spheres = rng.uniform(-0.4, 0.4, (batch, 2, 1, 4))
    spheres[:, 0, :, 3], spheres[:, 1, :, 3] = 0.03, -1.0  # disabled: there the path ends
    leaf = compare.to_device(shapes.rounded(spheres), device).requires_grad_()
    envs = torch.arange(batch, dtype=torch.int32, device=device) % n_envs
    cost = swept_sphere_cost(leaf, world, poses=poses, env_index=envs, activation_distance=0.05)
    (swept,) = torch.autograd.grad(cost.sum(), leaf)
    cost = sphere_cost(
        leaf[:, :1], world, poses=poses[:, 0], env_index=envs, activation_distance=0.05
    )
    (at_rest,) = torch.autograd.grad(cost.sum(), leaf)
    assert (compare.to_array(at_rest)[:, 0, 0, 3] > 0.0).sum() > 200
    np.testing.assert_allclose(compare.to_array(swept), compare.to_array(at_rest), atol=1e-5)


@pytest.mark.filterwarnings(JIT_WARNING)
def test_transforms_of_torch(device):
    """Compiled, mapped and in forward mode as in eager code."""
    rng = np.random.default_rng(16)
    world = world_of_cuboids(device)
    poses = moving_scenes.random_motion(rng, 3, 3, turn=1.2, travel=0.2)
    spheres = compare.to_device(few_spheres(rng, poses), device)
    poses = compare.to_device(poses, device)

    def cost(balls, places):
        return swept_sphere_cost(balls, world, activation_distance=0.2, poses=places)

    leaves = spheres.clone().requires_grad_(), poses.clone().requires_grad_()
    expected = cost(*leaves)
    wanted = torch.autograd.grad(expected.sum(), leaves)
    assert (wanted[1] != 0.0).any()
    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")(*leaves)
    torch.testing.assert_close(compiled, expected)
    for found, grad in zip(torch.autograd.grad(compiled.sum(), leaves), wanted, strict=True):
        torch.testing.assert_close(found, grad)
    mapped = torch.func.vmap(cost)(torch.stack((spheres, spheres)), torch.stack((poses, poses)))
    torch.testing.assert_close(mapped[1], expected)
    (by_spheres,) = torch.func.grad(lambda s: cost(s, poses).sum(), argnums=(0,))(spheres)
    torch.testing.assert_close(by_spheres, wanted[0])
    direction = torch.randn_like(spheres)
    _, rate = torch.func.jvp(lambda s: cost(s, poses).sum(), (spheres,), (direction,))
    torch.testing.assert_close(rate, (wanted[0] * direction).sum(), rtol=1e-4, atol=1e-4)
    (first,) = torch.autograd.grad(cost(*leaves).sum(), leaves[1], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        first.sum().backward()
