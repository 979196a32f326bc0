"""Candidate lists: the distances are those of the tree, and they cost what they may."""

import threading

import numpy as np
import pytest
import torch
import trimesh

import compare
import reference
import shapes
from warp_collision import MeshWorld, signed_distance
from warp_collision.obstacles.mesh_obstacle import MeshObstacle

CPU = torch.device("cpu")
NEEDLE = trimesh.Trimesh(
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.003, 0.0], [0.5, 0.001, 0.002]],
    [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]],
)
MESHES = {
    **{name: (shapes.mesh(name).vertices, shapes.mesh(name).faces) for name in shapes.CLOSED},
    **{name: (shapes.mesh(name).vertices, shapes.mesh(name).faces) for name in shapes.OPEN},
    "plate": (shapes.mesh("plate").vertices, shapes.mesh("plate").faces),
    "needle": NEEDLE,
    "groups of two": trimesh.creation.icosphere(4, 0.25),
    "groups of four": trimesh.creation.torus(0.18, 0.07, major_sections=80, minor_sections=70),
    "far away": trimesh.creation.icosphere(3, 0.25).apply_translation((300.0, -200.0, 100.0)),
}


def obstacle_of(world: MeshWorld, index: int = 0) -> MeshObstacle:
    """A mesh of a world."""
    return world._slots.envs[0][index].obstacle


def world_of(name: str, **options: int) -> MeshWorld:
    """A world of one mesh, prepared."""
    world = MeshWorld(device=CPU, **options)
    world.add(name, MESHES[name], repair=False)  # boxes as polyhedra
    world.prepare()
    return world


def points_around(obstacle: MeshObstacle, count: int) -> torch.Tensor:
    """Points (count, 3) within the box and a little around it: at random, and on a lattice."""
    rng = np.random.default_rng(71)
    vertices = obstacle.mesh.points.numpy()
    lower, upper = vertices.min(axis=0), vertices.max(axis=0)
    share = rng.uniform(-0.1, 1.1, (count, 3))
    # Centers, edges and faces of cells and triangles: there many triangles are equally near.
    share[::3] = np.round(share[::3] * 8.0) / 8.0
    surface = obstacle.mesh.indices.numpy().reshape(-1, 3)
    corners = vertices[surface[rng.integers(len(surface), size=len(share[1::3]))]]
    weights = rng.dirichlet(np.ones(3), size=len(corners))
    points = lower + share * (upper - lower)
    points[1::3] = np.einsum("nk,nkx->nx", weights, corners) + rng.normal(
        0.0, 0.01, (len(corners), 3)
    ) * rng.integers(2, size=(len(corners), 1))
    return torch.tensor(points, dtype=torch.float32)


@pytest.mark.parametrize("name", MESHES)
def test_distances_are_those_of_the_tree(name: str) -> None:
    with_lists, without = world_of(name), world_of(name, list_bytes=0)
    obstacle = obstacle_of(with_lists)
    assert obstacle_of(without).lists is None
    assert obstacle.lists is not None
    assert (obstacle.lists.cells[:, 1] > 0).float().mean() > 0.8
    points = points_around(obstacle, 6_000)
    listed, plain = signed_distance(points, with_lists), signed_distance(points, without)
    size = float(points.abs().max())
    torch.testing.assert_close(listed.distance, plain.distance, rtol=0.0, atol=4e-7 * size)
    # Where another triangle is equally near, its gradient is as good: but that is rare.
    same = (listed.gradient - plain.gradient).norm(dim=-1) < 1e-3
    assert same.float().mean() > 0.9


@pytest.mark.parametrize("name", ["robot_link", "plate", "needle", "groups of two"])
def test_distances_are_those_of_the_reference(name: str) -> None:
    world = world_of(name)
    obstacle = obstacle_of(world)
    points = points_around(obstacle, 600)
    faces = obstacle.mesh.indices.numpy().reshape(-1, 3)
    expected = reference.mesh_signed_distance(
        points.double().numpy(), obstacle.mesh.points.numpy().astype(np.float64), faces
    )
    compare.assert_costs(signed_distance(points, world).distance, expected.distance)


@pytest.mark.parametrize("list_bytes", [500_000, 1_000_000])
def test_lists_keep_to_their_bytes(list_bytes: int) -> None:
    lists = obstacle_of(world_of("groups of two", list_bytes=list_bytes)).lists
    assert lists is not None
    assert 0.4 * list_bytes < lists.cells.nbytes + lists.candidates.nbytes <= list_bytes


def test_no_lists_where_there_is_no_room_for_them() -> None:
    assert obstacle_of(world_of("groups of two", list_bytes=30_000)).lists is None


def test_only_prepare_builds_lists() -> None:
    world = MeshWorld(device=CPU)
    world.add("ball", trimesh.creation.icosphere(2, 0.25))
    points = points_around(obstacle_of(world), 30_000)
    without = signed_distance(points, world).distance
    assert obstacle_of(world).lists is None
    world.prepare()
    lists = obstacle_of(world).lists
    assert lists is not None
    compare.assert_costs(signed_distance(points, world).distance, without.double().numpy())
    world.add("another", trimesh.creation.cylinder(0.1, 0.1))
    world.prepare()
    assert obstacle_of(world, 0).lists is lists
    assert obstacle_of(world, 1).lists is not None


def test_queries_go_on_while_lists_are_built() -> None:
    world = MeshWorld(device=CPU)
    world.add("fine", MESHES["groups of four"])
    points = points_around(obstacle_of(world), 2_000)
    expected = signed_distance(points, world).distance.double().numpy()
    thread = threading.Thread(target=world.prepare)
    thread.start()
    asked = 0
    while thread.is_alive() or asked < 3:
        compare.assert_costs(signed_distance(points, world).distance, expected)
        asked += 1
    thread.join()
    assert obstacle_of(world).lists is not None
