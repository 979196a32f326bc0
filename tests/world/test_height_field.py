"""Height fields: the solid under their triangles in every query, against float64 face by face."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from cases import mostly_slow
from compare import to_array, to_device
from reference import Array, Body
from reference_sweep import path_minimum
from reference_sweep import swept_sphere_cost as exact_swept_cost
from resting import assert_resting_queries
from sensed_shapes import heights_distance, random_heights
from warp_collision import (
    Cuboid,
    HeightField,
    MeshWorld,
    joint_path_clearance,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)
from warp_collision.examples import load_panda

POSE = (0.1, -0.2, 0.3, 0.5, -0.4, 0.6, 0.2)
KINDS = ("hills", "cliffs", "noise", "flat", "pit", "cell")
SIZE = (1.5, 0.9)
BASE = 0.25
ETA = 0.05


def rounded(values: Any) -> Array:
    return np.asarray(values, np.float32).astype(np.float64)


def case(kind: str, device: Any = "cpu") -> tuple[Body, MeshWorld]:
    heights = random_heights(np.random.default_rng(len(kind)), kind)
    world = MeshWorld(device=device)
    world.add("hill", HeightField(heights, SIZE, BASE), POSE)
    return Body(heights_distance(heights, np.array(SIZE), BASE), rounded(POSE)), world


def spheres_around(body: Body, *shape: int) -> Array:
    """Spheres (*shape, 4) in the solid and around it."""
    rng = np.random.default_rng(7)
    local = rng.uniform((-1.1, -0.8, -0.5), (1.1, 0.8, 0.7), (*shape, 3))
    frame = trimesh.transformations.quaternion_matrix(np.asarray(body.pose)[3:])
    centers = local @ frame[:3, :3].T + np.asarray(body.pose)[:3]
    radii = rng.uniform(0.0, 0.1, (*shape, 1))
    return rounded(np.concatenate((centers, radii), axis=-1))


@pytest.mark.parametrize("kind", mostly_slow(KINDS, [*KINDS][::2]))
def test_resting_queries(kind: str, device: torch.device) -> None:
    body, world = case(kind, device)
    spheres = spheres_around(body, 1, 1, 900)
    assert_resting_queries(
        body,
        world,
        spheres,
        activation_distance=ETA,
        step=1e-5,
        most_at_kinks=0.02,
        device=device,
    )


@pytest.mark.parametrize("kind", mostly_slow(KINDS, [*KINDS][:1]))
def test_sweeps(kind: str, device: torch.device) -> None:
    body, world = case(kind, device)
    spheres = spheres_around(body, 60, 2, 1)
    spheres[:, 1, :, :3] = spheres[:, 0, :, :3] + 0.4 * np.diff(spheres[..., :3], axis=1)[:, 0]
    spheres[:, 1, :, 3] = spheres[:, 0, :, 3]
    spheres = rounded(spheres)
    fine = {"samples": 65, "levels": 4, "split": 8, "kept": 8}
    expected = exact_swept_cost(spheres, [[body]], activation_distance=ETA, **fine)
    given = to_device(spheres, device)
    cost = swept_sphere_cost(given, world, activation_distance=ETA, tolerance=1e-5)
    np.testing.assert_allclose(to_array(cost), expected, rtol=1e-4, atol=3e-5)
    lowest = path_minimum(spheres[:, 0, 0, :3], spheres[:, 1, 0, :3], body.distance, **fine)
    free = lowest.distance - spheres[:, 0, 0, 3]
    hit = swept_in_collision(given, world, tolerance=1e-4).cpu().numpy().any(axis=(1, 2))
    assert hit[free < -1e-5].all()
    assert not hit[free > 1.2e-4].any()


def test_near_its_surface() -> None:
    """The gradient is the normal, on both sides of each face, and the distance has the sign."""
    rng = np.random.default_rng(8)
    heights = random_heights(rng, "noise")
    field = HeightField(heights, SIZE, BASE)
    world = MeshWorld(device="cpu")
    world.add("hill", field)
    mesh = trimesh.Trimesh(*field.tessellate(), process=False)
    points, faces = trimesh.sample.sample_surface(mesh, 4000, seed=9)
    normals = np.asarray(mesh.face_normals)[faces]
    for off in (1e-5, 1e-7, 0.0, -1e-7, -1e-5):
        places = torch.tensor(points + off * normals, dtype=torch.float32)
        found = signed_distance(places, world)
        wrong = np.abs(found.distance.numpy() - off)
        assert wrong.max() <= abs(off) + 5e-7
        assert (wrong < 5e-7).mean() > 0.99  # of the others another face is nearer
        along = np.einsum("ij,ij->i", found.gradient.numpy(), normals)
        assert (along > 0.999).mean() > 0.98


def test_is_the_mesh_of_it(device: torch.device) -> None:
    """What meshes say of the same triangles, far away too, and of very many more cells."""
    rng = np.random.default_rng(10)
    steps = rng.uniform(-0.02, 0.02, (97, 130)).cumsum(axis=0).cumsum(axis=1)
    heights = 0.5 * steps / np.abs(steps).max()
    field = HeightField(np.asfortranarray(heights), (3.0, 5.0), 0.6)
    vertices, faces = field.tessellate()
    worlds = MeshWorld(device=device), MeshWorld(device=device)
    worlds[0].add("hill", field, padding=0.01)
    worlds[1].add("hill", (vertices, faces), padding=0.01)
    near = rng.uniform((-1.8, -2.8, -0.9), (1.8, 2.8, 1.0), (3000, 3))
    far = rng.normal(0.0, 30.0, (500, 3))
    points = to_device(np.concatenate((near, far)), device)
    first, second = (signed_distance(points, world).distance for world in worlds)
    np.testing.assert_allclose(to_array(first), to_array(second), rtol=1e-6, atol=3e-6)
    spheres = torch.cat((points, torch.full_like(points[:, :1], 0.04)), dim=1)[None, None, :1000]
    moving = spheres.expand(1, 2, -1, 4).contiguous()
    poses = torch.tensor([[0.0, 0, 0, 1, 0, 0, 0], [0.2, 0.1, 0, 1, 0, 0, 0]], device=device)
    costs = [
        swept_sphere_cost(moving, world, activation_distance=0.2, poses=poses[:, None])
        for world in worlds
    ]
    np.testing.assert_allclose(to_array(costs[0]), to_array(costs[1]), rtol=0, atol=1e-3)


def test_a_plain_is_a_cuboid() -> None:
    worlds = MeshWorld(device="cpu"), MeshWorld(device="cpu")
    worlds[0].add("hill", HeightField(np.full((5, 7), 0.2), (1.0, 0.6), 0.3), POSE)
    at = torch.eye(4, dtype=torch.float64)
    at[2, 3] = -0.05
    frame = torch.tensor(trimesh.transformations.quaternion_matrix(POSE[3:]))
    frame[:3, 3] = torch.tensor(POSE[:3], dtype=torch.float64)
    worlds[1].add("box", Cuboid((1.0, 0.6, 0.5)), frame @ at)
    robot = load_panda()
    low, high = robot.joint_limits.T
    paths = low + (high - low) * torch.rand(20, 3, 7, generator=torch.manual_seed(1))
    found = [joint_path_clearance(paths, robot, world, tolerance=2e-4) for world in worlds]
    np.testing.assert_allclose(found[0].upper, found[1].upper, rtol=0, atol=2.2e-4)
    assert (found[0].upper < 0.0).any()


def test_gradients_by_spheres_and_pose() -> None:
    body, world = case("hills")
    spheres = spheres_around(body, 1, 1, 200)
    pose = torch.tensor(POSE, dtype=torch.float32, requires_grad=True)
    leaf = torch.tensor(spheres, dtype=torch.float32, requires_grad=True)
    cost = sphere_cost(leaf, world, activation_distance=ETA, poses=pose[None, None])
    cost.sum().backward()
    assert leaf.grad is not None
    assert pose.grad is not None
    # A shift of all spheres is one of the obstacle the other way.
    shift = leaf.grad[..., :3].sum(dim=(0, 1, 2))
    np.testing.assert_allclose(pose.grad[:3], -shift, rtol=0, atol=1e-3)
    assert shift.norm() > 1.0


def test_files_keep_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    field = HeightField(rng.uniform(-0.1, 0.5, (6, 9)), (2.0, 3.0), 0.2)
    world = MeshWorld(device="cpu")
    world.add("hill", field, POSE, padding=0.02)
    world.save(tmp_path / "scene.yaml")
    read = MeshWorld.from_file(tmp_path / "scene.yaml", "cpu").report("hill").shape
    assert isinstance(read, HeightField)
    assert read.key == field.key
    assert repr(read).startswith("HeightField(6 x 9 heights of -0.0")
    # A .glb has its triangles, which are all of it.
    world.save(tmp_path / "scene.glb")
    mesh = MeshWorld.from_file(tmp_path / "scene.glb", "cpu")
    assert mesh.report("hill").shape is None
    points = torch.tensor(rng.uniform(-1.5, 1.5, (500, 3)), dtype=torch.float32)
    found = [signed_distance(points, w).distance for w in (world, mesh)]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=2e-6)


def test_update_replaces_heights() -> None:
    rng = np.random.default_rng(21)
    world = MeshWorld(device="cpu")
    world.add("hill", HeightField(np.zeros((4, 5)), SIZE, BASE))
    points = rng.uniform((-0.7, -0.4, -0.2), (0.7, 0.4, 0.6), (300, 3)).astype(np.float32)
    for shape in ((4, 5), (12, 7)):
        heights = rounded(rng.uniform(-0.1, 0.4, shape))
        world.update("hill", heights)
        found = signed_distance(torch.from_numpy(points), world).distance.numpy()
        truth = heights_distance(heights, np.array(SIZE), BASE)(points.astype(np.float64))
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="at must be None for 'hill', a HeightField"):
        world.update("hill", np.zeros((2, 2)), at=(0, 0, 0))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.zeros((2, 2), bool), SIZE, 1), TypeError, "heights must be real numbers, got bool"),
        ((np.zeros(4), SIZE, 1), ValueError, r"shape \(nx, ny\), 2 at least, got \(4,\)"),
        ((np.zeros((1, 9)), SIZE, 1), ValueError, r"2 at least, got \(1, 9\)"),
        (([[0, np.nan], [0, 0]], SIZE, 1), ValueError, "must be finite and below 1e9, got nan"),
        (([[0, 1e9], [0, 0]], SIZE, 1), ValueError, "must be finite and below 1e9, got 0"),
        ((np.zeros((2, 2)), 1.0, 1), ValueError, "size must be two lengths along x and y, got 1"),
        ((np.zeros((2, 2)), (1, 0), 1), ValueError, "size must be positive and below 1e9, got 0"),
        ((np.zeros((2, 2)), (1, "a"), 1), TypeError, "size must be a number"),
        ((np.zeros((9, 9)), (1, 1e-6), 1), ValueError, "cells of at least 1e-06 m, got 1e-06 m"),
        ((np.zeros((2, 2)), SIZE, 0), ValueError, "more than -0 m below 0, and"),
        ((np.full((2, 2), -3), SIZE, 2), ValueError, "more than 3 m below 0, and .* got 2.0"),
        ((np.zeros((2, 2)), SIZE, None), TypeError, "base must be a number, got NoneType"),
    ],
)
def test_bad_input_is_named(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        HeightField(*arguments)
