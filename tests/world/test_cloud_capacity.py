"""Clouds with a capacity: updates written in place, which are those of a cloud made anew."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compare import to_device
from sensed_shapes import random_points
from warp_collision import MeshWorld, PointCloud, in_collision, signed_distance, sphere_cost

Tensor = torch.Tensor
CAPACITY = 500


def world_of(cloud: PointCloud, device: Any = "cpu") -> MeshWorld:
    world = MeshWorld(device=device)
    world.add("camera", cloud, (0.1, 0.2, 0.0, 1, 0, 0, 0), padding=0.01)
    return world


def spheres_around(points: np.ndarray, device: Any) -> Tensor:
    rng = np.random.default_rng(1)
    centers = points[rng.integers(len(points), size=300)] + rng.normal(0.0, 0.1, (300, 3))
    rows = np.c_[centers, rng.uniform(0.0, 0.05, 300)]
    return to_device(rows[None, None], device)


def answers(world: MeshWorld, spheres: Tensor) -> list[Tensor]:
    leaf = spheres.clone().requires_grad_(True)
    cost = sphere_cost(leaf, world, activation_distance=0.1)
    cost.sum().backward()
    points = spheres[:, 0, :, :3].contiguous()
    found = signed_distance(points, world).distance, in_collision(spheres, world), leaf.grad
    return [cost.detach(), *found]


@pytest.mark.parametrize("with_radii", [False, True], ids=["equal", "radii"])
def test_updates_in_place_are_those_of_a_new_cloud(with_radii: bool, device: torch.device) -> None:
    rng = np.random.default_rng(2)
    points = random_points(rng, "surface", CAPACITY)
    world = world_of(PointCloud(points[:40], 0.02, capacity=CAPACITY), device)
    spheres = spheres_around(points, device)
    tensors = world.mesh_ids, world.mesh_from_world, world.enabled, world.padding
    ids = world.mesh_ids.clone()
    pointers = set()
    for count in (CAPACITY, 1, 37, 200, 499):
        chosen: Any = points[rng.permutation(CAPACITY)[:count]]
        if with_radii:
            chosen = np.c_[chosen, rng.uniform(0.01, 0.03, count)]
        world.update("camera", chosen)
        pointers.add(world._slots.envs[0][0].obstacle._uploaded.pointer)
        fresh = PointCloud(chosen, None if with_radii else 0.02)
        for found, expected in zip(
            answers(world, spheres), answers(world_of(fresh, device), spheres), strict=True
        ):
            assert torch.equal(found, expected)
        assert len(world.report("camera").shape) == count
        again = world.mesh_ids, world.mesh_from_world, world.enabled, world.padding
        assert all(a is b for a, b in zip(tensors, again, strict=True))
    assert torch.equal(world.mesh_ids, ids)
    assert len(pointers) == 2  # which take turns


def test_a_capacity_is_kept(tmp_path: Path) -> None:
    points = np.random.default_rng(3).uniform(size=(20, 3))
    world = world_of(PointCloud(points, 0.1, capacity=30))
    message = "points must be at most the capacity of 30, got 31"
    for too_many in (np.zeros((31, 3)), np.ones((31, 4)), PointCloud(np.zeros((31, 3)), 0.1)):
        with pytest.raises(ValueError, match=message):
            world.update("camera", too_many)
    with pytest.raises(ValueError, match="points must be at most the capacity of 3, got 20"):
        PointCloud(points, 0.1, capacity=3)
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        PointCloud(points, 0.1, capacity=0)
    # A slot of its own for each: an update of one is none of the other.
    world.add("twin", PointCloud(points, 0.1, capacity=30))
    assert world.mesh_ids[0, 0] != world.mesh_ids[0, 1]
    world.update("camera", PointCloud(points[:5], 0.2))
    assert repr(world.report("camera").shape) == "PointCloud(5 points, radius=0.2, capacity=30)"
    world.save(tmp_path / "scene.yaml")
    again = MeshWorld.from_file(tmp_path / "scene.yaml", "cpu")
    assert repr(again.report("twin").shape) == "PointCloud(20 points, radius=0.1, capacity=30)"


def test_what_is_dropped_once_is_dropped_in_updates(tmp_path: Path) -> None:
    points = [[0.0, 0.0, 0.0], [np.nan, 0.0, 0.0], [1.0, 0.0, 0.0]]
    world = world_of(PointCloud(points, 0.1, drop_invalid=True))
    world.update("camera", points[:2])
    assert len(world.report("camera").shape) == 1
    world.save(tmp_path / "scene.yaml")
    again = MeshWorld.from_file(tmp_path / "scene.yaml", "cpu")
    again.update("camera", points)
    assert len(again.report("camera").shape) == 2
    world.update("camera", PointCloud(points[:1], 0.1))
    with pytest.raises(ValueError, match="got 1 of 3 that are not"):
        world.update("camera", points)


def test_queries_beside_updates_in_place_see_one_cloud_or_the_other() -> None:
    grid = np.stack(np.meshgrid(*[np.linspace(-0.5, 0.5, 9)] * 3), axis=-1).reshape(-1, 3)
    clouds = (grid, grid + np.array([0.0625, 0.0, 0.0]))
    world = world_of(PointCloud(grid, 0.01, capacity=len(grid)))
    points = torch.rand(2, 400, 3, generator=torch.Generator().manual_seed(1)) - 0.5
    expected = []
    for cloud in clouds:
        world.update("camera", cloud)
        expected.append(signed_distance(points, world).distance)
    done, wrong = threading.Event(), []

    def ask() -> None:
        while not done.is_set():
            found = signed_distance(points, world).distance
            if not ((found == expected[0]) | (found == expected[1])).all():
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for index in range(60):
        world.update("camera", clouds[index % 2])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
