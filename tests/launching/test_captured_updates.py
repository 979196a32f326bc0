"""Point clouds that a captured graph updates: each replay reads the points anew."""

from typing import Any

import numpy as np
import pytest
import torch

from compare import to_device
from sensed_shapes import random_points
from warp_collision import Cuboid, MeshWorld, PointCloud, VoxelGrid, sphere_cost

Tensor = torch.Tensor
RADIUS = 0.02


def captured(cuda: Any, world: MeshWorld, points: Tensor, spheres: Tensor) -> tuple[Any, Tensor]:
    """The graph of an update and a query after it, and its cost."""
    sphere_cost(spheres, world, activation_distance=0.1)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        world.update("camera", points)
        cost = sphere_cost(spheres, world, activation_distance=0.1)
    return graph, cost


def world_of(cloud: PointCloud, device: torch.device, others: int = 0) -> MeshWorld:
    world = MeshWorld(max_obstacles=others + 3, device=device)
    for index in range(others):
        world.add(f"box {index}", Cuboid((0.1, 0.1, 0.1)), (5.0 + index, 0, 0, 1, 0, 0, 0))
    world.add("camera", cloud, (0.1, 0.2, 0.0, 1, 0, 0, 0), padding=0.01)
    return world


def expected_cost(points: np.ndarray, spheres: Tensor) -> Tensor:
    world = world_of(PointCloud(points, RADIUS), torch.device("cpu"))
    return sphere_cost(spheres.cpu(), world, activation_distance=0.1)


def spheres_around(points: np.ndarray, device: torch.device) -> Tensor:
    rng = np.random.default_rng(1)
    rows = np.c_[points[rng.integers(len(points), size=100)], rng.uniform(0.0, 0.05, 100)]
    rows[:, :3] += rng.normal(0.0, 0.1, (100, 3))
    return to_device(rows[None, None], device)


@pytest.mark.parametrize("others", [0, 40])
def test_each_replay_sees_the_points_of_its_moment(
    others: int, gpu: torch.device, cuda: Any
) -> None:
    """Far away, back again, after updates of the host between replays, and without waiting."""
    rng = np.random.default_rng(2)
    clouds = [random_points(rng, "surface", 120) + shift for shift in (0.0, 0.3, 4.0, -2.0)]
    spheres = torch.cat([spheres_around(cloud, gpu) for cloud in clouds], dim=2)
    points = to_device(clouds[0], gpu)
    world = world_of(PointCloud(clouds[0][:50], RADIUS, capacity=200), gpu, others)
    graph, cost = captured(cuda, world, points, spheres)
    for cloud in (*clouds, clouds[0]):
        points.copy_(to_device(cloud, gpu))
        graph.replay()
        expected = expected_cost(cloud, spheres)
        assert (expected > 0.0).any()
        torch.testing.assert_close(cost.cpu(), expected, rtol=1e-4, atol=1e-5)
        # The world knows what the graph has written.
        found = sphere_cost(spheres, world, activation_distance=0.1)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
        known = world.report("camera").shape
        assert isinstance(known, PointCloud)
        rounded = np.unique(cloud.astype(np.float32), axis=0)
        np.testing.assert_array_equal(np.unique(known.points, axis=0), rounded)
        world.update("camera", clouds[3][:7])  # of the host
        found = sphere_cost(spheres, world, activation_distance=0.1).cpu()
        torch.testing.assert_close(found, expected_cost(clouds[3][:7], spheres))


def test_a_graph_outlives_the_obstacle(gpu: torch.device, cuda: Any) -> None:
    """Its replays write to what was kept for it, not to what stands in the slot now."""
    cloud = random_points(np.random.default_rng(3), "surface", 30)
    spheres = spheres_around(cloud, gpu)
    world = world_of(PointCloud(cloud, RADIUS, capacity=30), gpu)
    world.add("box", Cuboid((0.2, 0.2, 0.2)))
    graph, _ = captured(cuda, world, to_device(cloud + 0.1, gpu), spheres)
    world.remove("camera")
    before = sphere_cost(spheres, world)
    graph.replay()
    assert torch.equal(sphere_cost(spheres, world), before)
    assert world.names() == ["box"]


@pytest.mark.parametrize("drop_invalid", [True, False])
def test_points_that_are_not_finite(drop_invalid: bool, gpu: torch.device, cuda: Any) -> None:
    cloud = random_points(np.random.default_rng(4), "surface", 30).astype(np.float32)
    spheres = spheres_around(cloud, gpu)
    given = PointCloud(cloud, RADIUS, capacity=30, drop_invalid=drop_invalid)
    world, points = world_of(given, gpu), to_device(cloud, gpu)
    graph, cost = captured(cuda, world, points, spheres)
    points[:2] = torch.nan
    points[5, 1] = torch.inf
    graph.replay()
    if drop_invalid:
        kept = np.delete(cloud, [0, 1, 5], axis=0)
        torch.testing.assert_close(cost.cpu(), expected_cost(kept, spheres), rtol=1e-4, atol=1e-5)
    else:
        assert (cost > 1e8).all()
    points[:] = torch.nan  # nothing is known: nothing is free
    graph.replay()
    assert (cost > 1e8).all()


def test_what_cannot_be_captured_is_named(gpu: torch.device, cuda: Any) -> None:
    cloud = np.random.default_rng(5).uniform(size=(10, 3))
    world = world_of(PointCloud(cloud, RADIUS), gpu)
    room = PointCloud(np.c_[cloud, np.linspace(0.1, 0.2, 10)], capacity=10)
    world.add("room", room)
    world.add("voxels", VoxelGrid(np.ones((2, 2, 2), bool), 0.1))
    points = to_device(cloud, gpu)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        for name, given, error, message in (
            ("camera", points, ValueError, "'camera' must have a capacity to be updated in a"),
            ("voxels", points, ValueError, "'voxels' must be a PointCloud to be updated in a"),
            ("room", points, ValueError, "points must have radii"),
            ("room", cloud, TypeError, r"points must be a torch.Tensor of shape \(n, 3\)"),
            ("room", torch.zeros(5, 3), ValueError, "points must be on device"),
            ("room", points[:0], ValueError, r"shape \(n, 3\) or \(n, 4\), got \(0, 3\)"),
            ("room", torch.cat([points] * 2), ValueError, "at most the capacity of 10, got 20"),
        ):
            with pytest.raises(error, match=message):
                world.update(name, given)


def test_the_first_read_of_ids_is_not_captured(gpu: torch.device, cuda: Any) -> None:
    """It makes meshes; the second one reads them."""
    world = MeshWorld(device=gpu)
    world.add("box", Cuboid((0.1, 0.2, 0.3)))
    with cuda.graph(cuda.CUDAGraph()), pytest.raises(RuntimeError, match="must be read once"):
        _ = world.mesh_ids
    ids = world.mesh_ids
    with cuda.graph(cuda.CUDAGraph()):
        assert world.mesh_ids is ids
