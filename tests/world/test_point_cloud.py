"""Point clouds: balls in every query against a k-d tree of float64, and as values."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
import warp as wp
from scipy.spatial import cKDTree

import reference
from cases import mostly_slow
from compare import to_array, to_device
from primitives import Call
from reference import Array, Body
from reference_sweep import path_minimum
from reference_sweep import swept_sphere_cost as exact_swept_cost
from sensed_shapes import KINDS, balls_distance, random_cloud, random_points
from warp_collision import (
    Cuboid,
    MeshWorld,
    PointCloud,
    UnitsWarning,
    any_in_collision,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
    thin,
)

POSE = (0.1, -0.2, 0.3, 0.5, -0.4, 0.6, 0.2)
ETA = 0.05


def rounded(values: Any) -> Array:
    return np.asarray(values, np.float32).astype(np.float64)


def world_of(cloud: PointCloud, pose: Any = POSE, device: Any = "cpu", **options: Any) -> MeshWorld:
    world = MeshWorld(device=device)
    world.add("cloud", cloud, pose, **options)
    return world


def spheres_around(
    rng: np.random.Generator, body: Body, points: Array, *shape: int, spread: float = 0.15
) -> Array:
    """Spheres (*shape, 4) near the points of a cloud at the pose of a body."""
    frame = trimesh.transformations.quaternion_matrix(np.asarray(body.pose)[3:])
    near = points[rng.integers(len(points), size=shape)] @ frame[:3, :3].T + body.pose[:3]
    centers = near + rng.normal(0.0, spread, (*shape, 3)) * rng.uniform(0.0, 1.0, (*shape, 1))
    return rounded(np.concatenate((centers, rng.uniform(0.0, 0.1, (*shape, 1))), axis=-1))


@pytest.mark.parametrize("equal", mostly_slow((True, False), (False,)), ids=["equal", "radii"])
@pytest.mark.parametrize("kind", mostly_slow(KINDS, [*KINDS][::2]))
def test_resting_queries(kind: str, equal: bool, device: torch.device) -> None:
    rng = np.random.default_rng(len(kind))
    distance, cloud = random_cloud(rng, kind, 700, equal=equal)
    body = Body(distance, POSE, 0.01)
    world = world_of(cloud, device=device, padding=0.01)
    spheres = spheres_around(rng, body, cloud.points, 1, 1, 1500)
    truth = body.distance(spheres[..., :3])
    rounding = 1e-6 * (1.0 + np.abs(cloud.points).max())
    for prepared in (False, True):
        if prepared:
            world.prepare()
        points = to_device(spheres[:, 0, :, :3], device)
        found = signed_distance(points, world)
        np.testing.assert_allclose(to_array(found.distance), truth[:, 0], rtol=0, atol=rounding)
        step = 1e-5
        for axis in range(3):
            moved = spheres[..., :3] + step * np.eye(3)[axis]
            slope = (body.distance(moved) - truth)[0, 0] / step
            off = np.abs(slope - to_array(found.gradient)[0, :, axis])
            assert np.median(off) < 1e-3 + 10.0 * rounding
            assert (off > 0.05 + 10 * rounding / step).mean() < 0.01
        free = truth - spheres[..., 3]
        nearest = clearance(to_device(spheres, device), world, max_distance=0.1)
        near = free < 0.1
        np.testing.assert_allclose(
            to_array(nearest.clearance)[near], free[near], rtol=0, atol=rounding
        )
        hit = in_collision(to_device(spheres, device), world).cpu().numpy()
        sure = np.abs(free) > 2.0 * rounding
        np.testing.assert_array_equal(hit[sure], (free < 0.0)[sure])
        assert 0.0 < hit.mean() < 1.0
        cost = sphere_cost(to_device(spheres, device), world, activation_distance=ETA)
        expected = reference.sphere_cost(spheres, [[body]], activation_distance=ETA)
        np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=rounding)


@pytest.mark.parametrize("equal", mostly_slow((True, False), (False,)), ids=["equal", "radii"])
@pytest.mark.parametrize("kind", mostly_slow(("volume", "surface", "line", "one"), ("line", "one")))
def test_sweeps(kind: str, equal: bool, device: torch.device) -> None:
    """Past, into and through the balls: the least distance on the way, and whether it is free."""
    rng = np.random.default_rng(3 * len(kind))
    distance, cloud = random_cloud(rng, kind, 60, equal=equal)
    body = Body(distance, POSE)
    world = world_of(cloud, device=device)
    spheres = spheres_around(rng, body, cloud.points, 300, 2, 1, spread=0.4)
    spheres[:, 1, :, 3] = spheres[:, 0, :, 3]
    spheres[:100, ..., 3] = 0.001  # that dive into balls
    fine = {"samples": 257, "levels": 6, "split": 8, "kept": 32}  # each ball is a minimum
    expected = exact_swept_cost(spheres, [[body]], activation_distance=ETA, **fine)
    assert (expected > 0.0).mean() > 0.1
    given = to_device(spheres, device)
    for tolerance in (1e-5, 1e-2):
        cost = swept_sphere_cost(given, world, activation_distance=ETA, tolerance=tolerance)
        np.testing.assert_allclose(
            to_array(cost), expected, rtol=1e-5, atol=max(tolerance, 1e-5) + 1e-6
        )
    lowest = path_minimum(
        spheres[:, 0, 0, :3], spheres[:, 1, 0, :3], body.distance, **fine
    ).distance
    free = lowest - spheres[:, 0, 0, 3]
    hit = swept_in_collision(given, world, tolerance=1e-4).cpu().numpy().any(axis=(1, 2))
    assert hit[free < -1e-6].all()
    assert not hit[free > 1.1e-4].any()
    assert 0.1 < hit.mean() < 0.9


def test_moving_clouds(device: torch.device) -> None:
    """A cloud in the hand: its pose at each waypoint, and the gradient by it."""
    rng = np.random.default_rng(5)
    distance, cloud = random_cloud(rng, "surface", 200, equal=False)
    world = world_of(cloud, device=device)
    spheres = spheres_around(rng, Body(distance, POSE), cloud.points, 1, 1, 30)
    spheres = np.repeat(spheres, 5, axis=1)
    poses = np.repeat(np.array(POSE)[None, None], 5, axis=0)
    poses[:, 0, :3] += rng.normal(0.0, 0.05, (5, 3))
    poses = rounded(poses)
    given = torch.tensor(poses, dtype=torch.float32, device=device, requires_grad=True)
    cost = swept_sphere_cost(
        to_device(spheres, device), world, activation_distance=ETA, poses=given, tolerance=1e-5
    )
    at_rest = [
        reference.sphere_cost(
            spheres[:, t : t + 1], [[Body(distance, poses[t, 0])]], activation_distance=ETA
        )
        for t in range(5)
    ]
    # Never less than at the waypoint itself.
    assert (to_array(cost) >= np.concatenate(at_rest, axis=1) - 2e-5).all()
    cost.sum().backward()
    gradient = to_array(given.grad)
    assert np.isfinite(gradient).all()
    step = 1e-3
    for axis in (0, 2, 5):
        moved = []
        for sign in (1.0, -1.0):
            other = poses.copy()
            other[2, 0, axis] += sign * step
            moved.append(
                swept_sphere_cost(
                    to_device(spheres, device),
                    world,
                    activation_distance=ETA,
                    poses=torch.tensor(other, dtype=torch.float32, device=device),
                    tolerance=1e-5,
                ).sum()
            )
        slope = float(moved[0] - moved[1]) / (2.0 * step)
        assert abs(slope - gradient[2, 0, axis]) < 0.02 * abs(gradient).max() + 0.02


def test_gradients_by_pose_and_spheres(device: torch.device) -> None:
    rng = np.random.default_rng(8)
    distance, cloud = random_cloud(rng, "volume", 100)
    world = world_of(cloud, device=device)
    spheres = spheres_around(rng, Body(distance, POSE), cloud.points, 1, 1, 50)
    pose = torch.tensor(rounded(POSE), dtype=torch.float32, device=device, requires_grad=True)
    world.set_pose("cloud", pose)
    leaf = to_device(spheres, device).requires_grad_(True)
    sphere_cost(leaf, world, activation_distance=ETA).sum().backward()

    def total(at: Array, of: Array) -> float:
        return reference.sphere_cost(of, [[Body(distance, at)]], activation_distance=ETA).sum()

    for axis in range(7):
        step = 1e-6 * np.eye(7)[axis]
        slope = (total(rounded(POSE) + step, spheres) - total(rounded(POSE) - step, spheres)) / 2e-6
        assert abs(slope - to_array(pose.grad)[axis]) < 2e-3 * (1.0 + abs(slope))
    for axis in range(4):
        step = np.zeros(4)
        step[axis] = 1e-6
        slope = (total(POSE, spheres + step) - total(POSE, spheres - step)) / 2e-6
        assert abs(slope - to_array(leaf.grad)[..., axis].sum()) < 2e-3 * (1.0 + abs(slope))


def test_drop_in_functions_see_it_by_the_tensors(device: torch.device) -> None:
    rng = np.random.default_rng(9)
    distance, cloud = random_cloud(rng, "surface", 300)
    body = Body(distance, POSE)
    world = world_of(cloud, device=device)
    spheres = spheres_around(rng, body, cloud.points, 2, 3, 50)
    call = Call("rest", to_device(spheres, device), world)
    call(activation_distance=torch.full((1,), ETA, device=device), compute_esdf=False)
    expected = reference.sphere_cost(spheres, [[body]], activation_distance=ETA)
    np.testing.assert_allclose(to_array(call["out_cost"]), expected, rtol=1e-5, atol=2e-6)


def test_envs_share_it_and_may_disable_it() -> None:
    rng = np.random.default_rng(10)
    _, cloud = random_cloud(rng, "volume", 100)
    world = MeshWorld(3, device="cpu")
    for env in range(3):
        world.add("cloud", cloud, env=env)
    assert len({*world.mesh_ids[:, 0].tolist()}) == 1
    world.enable("cloud", False, env=1)
    spheres = torch.tensor(rounded([[[*cloud.points[0], 0.0]]])).float().expand(3, 1, 1, 4)
    envs = torch.arange(3, dtype=torch.int32)
    assert in_collision(spheres.contiguous(), world, env_index=envs).flatten().tolist() == [
        True,
        False,
        True,
    ]


def test_among_other_obstacles() -> None:
    """With a tree of many obstacles, a prepared field, and a cloud that is nearest or not."""
    rng = np.random.default_rng(12)
    world = MeshWorld(max_obstacles=60, device="cpu")
    bodies = []
    for index in range(45):
        distance, cloud = random_cloud(rng, KINDS[index % 4], 40)
        pose = rounded([*rng.uniform(-2.0, 2.0, 3), *rng.normal(size=4)])
        world.add(f"cloud {index}", cloud, pose)
        bodies.append(Body(distance, pose))
    points = rng.uniform(-2.5, 2.5, (3000, 3)).astype(np.float32)
    each = np.stack([body.distance(points.astype(np.float64)) for body in bodies])
    for _ in range(2):
        found = signed_distance(torch.from_numpy(points), world)
        np.testing.assert_allclose(found.distance, each.min(axis=0), rtol=0, atol=3e-6)
        hit = any_in_collision(
            torch.tensor(np.c_[points, np.full(3000, 0.1)]).float()[:, None, None], world
        )
        sure = np.abs(each.min(axis=0) - 0.1) > 1e-5
        np.testing.assert_array_equal(hit.flatten().numpy()[sure], (each.min(axis=0) < 0.1)[sure])
        world.prepare()


@pytest.mark.parametrize("count", mostly_slow((1_000, 100_000, 1_000_000), (1_000,)))
def test_no_sphere_of_many_is_wrong(count: int) -> None:
    """200,000 spheres among points of surfaces, most of them near."""
    rng = np.random.default_rng(count)
    points = random_points(rng, "surface", count)
    radius = rounded(0.05 / count**0.25)
    spheres = np.empty((200_000, 4), np.float32)
    spheres[:, :3] = points[rng.integers(count, size=len(spheres))]
    spheres[:, :3] += rng.normal(0.0, 0.05, (len(spheres), 3))
    spheres[:, 3] = rng.uniform(0.0, 0.05, len(spheres))
    world = world_of(PointCloud(points, float(radius)), (0, 0, 0, 1, 0, 0, 0))
    truth = cKDTree(points).query(spheres[:, :3].astype(np.float64))[0] - radius - spheres[:, 3]
    hit = in_collision(torch.from_numpy(spheres)[None, None], world)[0, 0].numpy()
    sure = np.abs(truth) > 3e-7
    assert sure.mean() > 0.999
    np.testing.assert_array_equal(hit[sure], (truth < 0.0)[sure])
    assert 0.1 < hit.mean() < 0.9
    near = torch.from_numpy(spheres[:50_000])[None, None]
    found = clearance(near, world, max_distance=0.02).clearance[0, 0].numpy()
    within = truth[:50_000] < 0.02
    np.testing.assert_allclose(found[within], truth[:50_000][within], rtol=0, atol=3e-7)


def test_a_cloud_stands_for_its_surface_where_its_balls_cover_it() -> None:
    """What its docstring says: a box is hit wherever its covering cloud would be missed."""
    rng = np.random.default_rng(17)
    box = trimesh.creation.box((0.4, 0.3, 0.2))
    points, _ = trimesh.sample.sample_surface(box, 4000, seed=1)
    dense, _ = trimesh.sample.sample_surface(box, 200_000, seed=2)
    radius = 1.1 * cKDTree(points).query(dense)[0].max()
    centers = rng.uniform(-0.4, 0.4, (4000, 3))
    spheres = torch.tensor(np.c_[centers, np.full(4000, 0.02)]).float()[None, None]
    free = ~in_collision(spheres, world_of(PointCloud(points, radius), (0, 0, 0, 1, 0, 0, 0)))
    exact = MeshWorld(device="cpu")
    exact.add("box", Cuboid((0.4, 0.3, 0.2)))
    gap = signed_distance(spheres[0, :, :, :3], exact).distance.abs()
    assert (gap[free[0]] > 0.02).all()


def test_files_keep_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    _, cloud = random_cloud(rng, "volume", 50, equal=False)
    world = world_of(cloud, padding=0.03, enabled=False)
    world.add("same", cloud)
    world.save(tmp_path / "scene.yaml")
    assert len([*tmp_path.glob("*/*.npz")]) == 1
    again = MeshWorld.from_file(tmp_path / "scene.yaml", "cpu")
    assert again.names() == ["cloud", "same"]
    assert again.mesh_ids[0, 0] == again.mesh_ids[0, 1]
    read = again.report("cloud").shape
    assert isinstance(read, PointCloud)
    np.testing.assert_array_equal(read.points, cloud.points)
    np.testing.assert_array_equal(read.radii, cloud.radii)
    np.testing.assert_allclose(again.pose("cloud"), world.pose("cloud"), atol=1e-6)
    assert again.padding[0].tolist()[:2] == world.padding[0].tolist()[:2]
    assert again.enabled[0].tolist()[:2] == [0, 1]
    with pytest.raises(ValueError, match=r"a \.glb has no place for 'cloud', a PointCloud"):
        world.save(tmp_path / "scene.glb")
    scene = world.to_scene()
    other = MeshWorld(device="cpu")
    other.load(scene)
    assert other.report("cloud").shape is cloud


def test_its_mesh_contains_it() -> None:
    rng = np.random.default_rng(21)
    for count in (5, 30_000):
        _, cloud = random_cloud(rng, "volume", count)
        mesh = trimesh.Trimesh(*cloud.tessellate(), process=False)
        assert mesh.volume > 0.0
        parts = mesh.triangles.reshape(-1, 8, 3, 3)
        assert len(parts) <= 20_000
        if count == 5:
            assert trimesh.Trimesh(*cloud.tessellate()).is_watertight
            heights = (parts[:, :, 0] - cloud.points[:, None]) * mesh.face_normals.reshape(5, 8, 3)
            np.testing.assert_allclose(heights.sum(axis=2), cloud.radii[0], rtol=1e-6)
        box = cloud.bounds
        assert (mesh.bounds[0] <= box[0]).all()
        assert (mesh.bounds[1] >= box[1]).all()


def test_thin_covers() -> None:
    rng = np.random.default_rng(22)
    points = random_points(rng, "surface", 3000)
    kept = thin(points, 0.05)
    assert 50 < len(kept) < 2000
    assert {*map(tuple, kept)} <= {*map(tuple, points)}
    assert cKDTree(kept).query(points)[0].max() <= 0.05
    cloud = PointCloud(np.c_[points, rng.uniform(0.001, 0.02, 3000)])
    thinner = thin(cloud, 0.05)
    assert isinstance(thinner, PointCloud)
    assert len(thinner) == len(kept)
    assert thinner.radii.max() <= cloud.radii.max() + 0.05
    # Each ball lies in one of those that stay.
    ways = np.linalg.norm(points[:, None] - thinner.points.astype(float), axis=2)
    assert ((ways + cloud.radii[:, None]) <= thinner.radii + 1e-9).any(axis=1).all()
    assert thin(torch.zeros(4, 3), 1.0).shape == (1, 3)
    with pytest.raises(ValueError, match=r"spacing must be positive and below 1e9, got 0\.0"):
        thin(points, 0.0)
    with pytest.raises(ValueError, match=r"points must have shape \(n, 3\), got \(3000, 2\)"):
        thin(points[:, :2], 0.1)


def test_update_gives_new_points_in_place(device: torch.device) -> None:
    rng = np.random.default_rng(23)
    _, cloud = random_cloud(rng, "volume", 200)
    world = world_of(cloud, device=device, padding=0.01)
    world.add("twin", cloud, (5, 0, 0, 1, 0, 0, 0))
    tensors = world.mesh_ids, world.mesh_from_world, world.enabled, world.padding
    ids = world.mesh_ids.clone()
    query = to_device(rounded(rng.uniform(-2, 2, (1, 500, 3))), device)
    signed_distance(query, world)
    for count in (1, 30, 4000):
        points = random_points(rng, "surface", count) + 0.5
        world.update("cloud", points)
        assert all(
            a is b
            for a, b in zip(
                tensors,
                (world.mesh_ids, world.mesh_from_world, world.enabled, world.padding),
                strict=True,
            )
        )
        # The first update gives it a mesh of its own.
        assert world.mesh_ids[0, 1] == ids[0, 1]
        assert world.mesh_ids[0, 0] == (ids[0, 0] if count > 1 else world.mesh_ids[0, 0])
        ids = world.mesh_ids.clone()
        assert ids[0, 0] != ids[0, 1]
        body = Body(balls_distance(points, rounded([0.02])), POSE, 0.01)
        twin = Body(
            balls_distance(cloud.points.astype(float), rounded([0.02])), (5, 0, 0, 1, 0, 0, 0)
        )
        truth = [b.distance(to_array(query)) for b in (body, twin)]
        found = signed_distance(query, world).distance
        np.testing.assert_allclose(to_array(found), np.minimum(*truth), rtol=0, atol=3e-6)
    world.update("cloud", np.array([[0.0, 0.0, 0.0, 0.3]]))
    assert repr(world.report("cloud").shape) == "PointCloud(1 points, radius=0.3)"
    world.add("box", Cuboid((1, 1, 1)))
    with pytest.raises(ValueError, match="the obstacle 'box' must be a PointCloud or a grid"):
        world.update("box", points)
    world.update("cloud", PointCloud([[0, 0, 0, 0.1], [0, 0, 1, 0.2]]))
    with pytest.raises(ValueError, match="points must have radii"):
        world.update("cloud", points)


def test_replays_of_graphs_see_updates(gpu: torch.device, cuda: Any) -> None:
    rng = np.random.default_rng(24)
    distance, cloud = random_cloud(rng, "volume", 200)
    world = world_of(cloud, device=gpu)
    spheres = spheres_around(rng, Body(distance, POSE), cloud.points, 1, 2, 60)
    given = to_device(spheres, gpu)
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        sphere_cost(given, world, activation_distance=ETA)
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        cost = sphere_cost(given, world, activation_distance=ETA)
    points = cloud.points
    for shift in (0.0, 0.1, 0.5):
        moved = rounded(points + np.float32(shift))
        world.update("cloud", moved)
        graph.replay()
        body = Body(balls_distance(moved, rounded([0.02])), POSE)
        expected = reference.sphere_cost(spheres, [[body]], activation_distance=ETA)
        np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=2e-6)


def test_queries_beside_updates_see_one_cloud_or_the_other() -> None:
    """Two clouds that take turns: each answer is of one of them, none of the box around them."""
    grid = np.stack(np.meshgrid(*[np.linspace(-0.5, 0.5, 9)] * 3), axis=-1).reshape(-1, 3)
    clouds = (grid, grid + np.array([0.0625, 0.0, 0.0]))
    world = world_of(PointCloud(clouds[0], 0.01), (0, 0, 0, 1, 0, 0, 0))
    points = torch.rand(2, 400, 3, generator=torch.Generator().manual_seed(1)) - 0.5
    answers = []
    for cloud in clouds:
        world.update("cloud", cloud)
        answers.append(signed_distance(points, world).distance)
    done, wrong = threading.Event(), []

    def ask() -> None:
        while not done.is_set():
            found = signed_distance(points, world).distance
            if not ((found == answers[0]) | (found == answers[1])).all():
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for index in range(60):
        world.update("cloud", clouds[index % 2])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


class TestBadInput:
    @pytest.mark.parametrize(
        ("points", "radius", "error", "message"),
        [
            (np.zeros((3, 2)), 0.1, ValueError, r"shape \(n, 3\) or \(n, 4\), got \(3, 2\)"),
            (np.zeros(3), 0.1, ValueError, r"shape \(n, 3\) or \(n, 4\), got \(3,\)"),
            (np.zeros((0, 3)), 0.1, ValueError, "points must be at least one, got none"),
            (np.zeros((3, 3)), None, ValueError, "radius must be given for points"),
            (np.ones((3, 4)), 0.1, ValueError, "radius must not be given for points"),
            (np.zeros((3, 4)), None, ValueError, "points must have positive radii, got 0.0"),
            (np.zeros((3, 3)), 0.0, ValueError, "radius must be positive and below 1e9, got 0.0"),
            (np.zeros((3, 3)), -1, ValueError, "radius must be positive and below 1e9, got -1.0"),
            (np.zeros((3, 3)), np.nan, ValueError, "radius must be positive .*, got nan"),
            (np.zeros((3, 3)), [1.0, 2.0], ValueError, r"shape \(3,\), got \(2,\)"),
            ([[0, 0, np.nan], [0, 0, 0], [np.inf, 0, 0]], 1, ValueError, "got 2 of 3 that are not"),
            ([[0, 0, 2e9]], 1, ValueError, r"points must be below 1e9, got \[0.0, 0.0, 2000000000"),
            ([["a", 0, 0]], 1, TypeError, "points must be real numbers"),
            ([[0, 0, 0], [0, 0]], 1, TypeError, "points must be an array of numbers"),
        ],
    )
    def test_is_named(self, points: Any, radius: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            PointCloud(points, radius)

    def test_invalid_points_are_dropped_where_that_is_asked_for(self) -> None:
        points = [[0, 0, np.nan], [0, 0, 0.5], [np.inf, 0, 0]]
        cloud = PointCloud(points, [0.1, 0.2, 0.3], drop_invalid=True)
        assert cloud.points.tolist() == [[0.0, 0.0, 0.5]]
        assert cloud.radii[0] == np.float32(0.2)
        with pytest.raises(ValueError, match="at least one, got none"):
            PointCloud([[np.nan] * 3], 0.1, drop_invalid=True)

    def test_millimetres_are_suspected(self) -> None:
        with pytest.warns(UnitsWarning, match="got a cloud of 1e.03 x 0 x 500 m"):
            PointCloud([[0, 0, 0], [1000, 0, 500]], 5.0)

    def test_it_has_no_sign(self) -> None:
        with pytest.raises(ValueError, match="sign of 'a' must be 'auto'"):
            MeshWorld(device="cpu").add("a", PointCloud([[0, 0, 0]], 1), sign="sheet")

    def test_it_is_a_value(self) -> None:
        given = np.zeros((2, 3), np.float32)
        cloud = PointCloud(given, 0.5)
        given[:] = 1.0
        assert not cloud.points.any()
        with pytest.raises(ValueError, match="read-only"):
            cloud.points[0] = 1.0
        assert len(cloud) == 2
        assert (
            repr(PointCloud([[0, 0, 0, 1], [0, 0, 0, 2]])) == "PointCloud(2 points, radii 1 to 2 m)"
        )


def test_kernels_of_others_find_the_box_around_it() -> None:
    _, cloud = random_cloud(np.random.default_rng(30), "volume", 100)
    world = world_of(cloud)
    obstacle = world._slots.envs[0][0].obstacle
    assert obstacle.mesh is None  # until somebody asks
    found = world.mesh_ids[0, 0].item()
    mesh = obstacle.mesh
    assert isinstance(mesh, wp.Mesh)
    assert found == mesh.id
    corners = mesh.points.numpy()
    np.testing.assert_allclose(corners.min(axis=0), cloud.bounds[0], atol=1e-6)
    np.testing.assert_allclose(corners.max(axis=0), cloud.bounds[1], atol=1e-6)
