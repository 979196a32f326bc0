"""Which meshes are recognised as exact shapes, and that no other one is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from trimesh import primitives
from trimesh.transformations import random_rotation_matrix

from exact_shapes import capsule, cuboid, cylinder, sphere
from warp_collision import Cuboid, MeshWorld, Sphere, signed_distance
from warp_collision.io import scene_meshes
from warp_collision.obstacles.geometry import Geometry
from warp_collision.obstacles.recognition import read_obstacle
from warp_collision.obstacles.shapes import Shape

BOX = trimesh.creation.box((0.5, 0.3, 0.2))


def read(mesh: Any, **options: Any) -> Geometry:
    return read_obstacle("mesh", mesh, **{"repair": True, "sign": "auto", **options}).examine()


def changed(change: Callable[[np.ndarray, np.ndarray], Any]) -> tuple[np.ndarray, np.ndarray]:
    """A box of 48 faces with something else about its vertices and faces."""
    mesh = BOX.subdivide()
    vertices, faces = np.array(mesh.vertices), np.array(mesh.faces)
    return change(vertices, faces) or (vertices, faces)


def moved(angle_and_axis: bool, shift: float) -> trimesh.Trimesh:
    mesh = BOX.subdivide().subdivide()
    matrix = random_rotation_matrix(np.array([0.3, 0.6, 0.8])) if angle_and_axis else np.eye(4)
    matrix[:3, 3] = shift
    mesh.apply_transform(matrix)
    return mesh


CUBOIDS: dict[str, Any] = {
    "box": BOX,
    "arrays": (np.array(BOX.vertices), np.array(BOX.faces)),
    "float32": (np.array(BOX.vertices, np.float32) + np.float32(3.3), np.array(BOX.faces)),
    "soup": (BOX.triangles.reshape(-1, 3), np.arange(36).reshape(-1, 3)),
    "fine": BOX.subdivide().subdivide(),
    "shifted": moved(False, 2.0),
    "turned": moved(True, 0.0),
    "turned and shifted": moved(True, -5.0),
    "thin": trimesh.creation.box((50.0, 1e-4, 1e-4)),
    "plate": trimesh.creation.box((3.0, 2.0, 1e-3)),
    "cube": trimesh.creation.box((1.0, 1.0, 1.0)),
    "inward": (BOX.vertices, BOX.faces[:, ::-1]),
    "some inward": changed(lambda v, f: (v, np.concatenate((f[:5, ::-1], f[5:])))),
    "unused vertices": (np.concatenate((BOX.vertices, [[9.0, 9.0, 9.0]])), BOX.faces),
}

POLYHEDRA: dict[str, Any] = {
    "a face missing": changed(lambda v, f: (v, f[1:])),
    "a side missing": changed(lambda v, f: (v, f[np.abs(v[f][:, :, 0] - 0.25).max(1) > 1e-9])),
    "a face twice": changed(lambda v, f: (v, np.concatenate((f, f[:1])))),
    "all faces twice": changed(lambda v, f: (v, np.concatenate((f, f)))),
    "half of it twice": changed(lambda v, f: (v, np.concatenate((f[:24], f[:24])))),
    "a corner off by 10 um": changed(lambda v, f: (v + 1e-5 * (v == v.max(0)).all(1)[:, None], f)),
    "a dent": changed(lambda v, f: (np.where((v == v[-1]).all(1)[:, None], 0.9 * v, v), f)),
    "two boxes": trimesh.util.concatenate([BOX, BOX.copy().apply_translation((0.5, 0.0, 0.0))]),
    "a box in a box": trimesh.util.concatenate([BOX, BOX.copy().apply_scale(0.5)]),
    "sheared": (BOX.vertices @ np.array([[1, 0, 0], [1e-3, 1, 0], [0, 0, 1]]), BOX.faces),
    "octahedron": trimesh.creation.icosphere(subdivisions=0),
    "cylinder": trimesh.creation.cylinder(0.1, 0.5, sections=32),
    "square cylinder": trimesh.creation.cylinder(0.1, 0.5, sections=8),
    "wedge": trimesh.creation.extrude_triangulation([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]], 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CUBOIDS)
def test_cuboids(name: str) -> None:
    geometry = read(CUBOIDS[name])
    placed, report = geometry.shape, geometry.report
    assert placed is not None
    assert isinstance(placed.shape, Cuboid)
    assert report.sign_method == "exact"
    assert report.closed
    assert "exact: Cuboid(dims=" in str(report)
    assert "all faces lie in the sides of one cuboid" in str(report)
    assert placed.is_axis_aligned == ("turned" not in name)
    assert bool(report.repairs) == ("inward" in name)
    given = CUBOIDS[name]
    mesh = given if isinstance(given, trimesh.Trimesh) else trimesh.Trimesh(*given, process=False)
    assert report.n_faces == len(mesh.faces)
    if "inward" not in name:
        assert np.prod(placed.shape.dims) == pytest.approx(mesh.volume, rel=1e-5)
    # Inside and out the polyhedron that it stands for.
    corners = np.asarray(mesh.vertices)[mesh.faces].reshape(-1, 3)
    back = (corners - placed.center) @ placed.matrix[:3, :3]
    size = np.abs(corners).max()
    off = np.abs(cuboid(*placed.shape.dims).distance(back)).max()
    assert off < 6e-7 * size
    box = geometry.box().vertices
    assert np.abs(box.min(0) - corners.min(0)).max() < 1e-6 * size
    assert np.abs(box.max(0) - corners.max(0)).max() < 1e-6 * size


@pytest.mark.parametrize("name", POLYHEDRA)
def test_everything_else_is_a_polyhedron(name: str) -> None:
    geometry = read(POLYHEDRA[name])
    assert geometry.shape is None
    assert geometry.report.shape is None
    assert geometry.report.sign_method != "exact"


@pytest.mark.parametrize(
    "options", [{"repair": False}, {"sign": "winding"}, {"sign": "exact_winding"}]
)
def test_not_when_asked_for_otherwise(options: dict[str, Any], device: torch.device) -> None:
    assert read(BOX, **options).shape is None
    if "sign" in options:
        assert read(primitives.Sphere(radius=0.3), **options).shape is None
    world = MeshWorld(device=device)
    world.add("exact", BOX)
    world.add("polyhedron", BOX, **options)
    assert world.mesh_ids[0, 0] != world.mesh_ids[0, 1]
    assert world.report("polyhedron").shape is None


def primitive(kind: str, transform: np.ndarray) -> tuple[Any, Any]:
    """A primitive of trimesh and what it is in float64."""
    if kind == "box":
        return primitives.Box(extents=(0.4, 0.3, 0.2), transform=transform), cuboid(0.4, 0.3, 0.2)
    if kind == "sphere":
        return primitives.Sphere(radius=0.2, transform=transform), sphere(0.2)
    if kind == "capsule":
        made = primitives.Capsule(radius=0.1, height=0.4, transform=transform)
        return made, capsule(0.1, 0.4)
    made = primitives.Cylinder(radius=0.1, height=0.4, transform=transform)
    return made, cylinder(0.1, 0.4)


@pytest.mark.parametrize("route", ["add", "millimetres", "load", "scene"])
@pytest.mark.parametrize("kind", ["box", "sphere", "capsule", "cylinder"])
def test_primitives_of_trimesh(kind: str, route: str, device: torch.device) -> None:
    rng = np.random.default_rng(17)
    transform = random_rotation_matrix(rng.random(3))
    transform[:3, 3] = rng.uniform(-0.3, 0.3, 3)
    mesh, exact = primitive(kind, transform)
    pose = random_rotation_matrix(rng.random(3))
    pose[:3, 3] = rng.uniform(-0.3, 0.3, 3)
    world = MeshWorld(device=device)
    if route == "scene":
        scene = trimesh.Scene()
        scene.add_geometry(mesh, node_name="it", transform=pose)
        world.load(scene)
        assert isinstance(scene_meshes(scene)["it"][0], Shape)
    elif route == "load":
        world.load({"it": (mesh, pose)})
    else:
        if route == "millimetres":
            mesh.apply_scale(1000.0)
            mesh.units = "millimeters"
        world.add("it", mesh, pose)
    if route != "scene":
        # What is moved is the frame of the mesh, wherever the shape stands in it.
        np.testing.assert_allclose(world.pose("it")[:3].cpu(), pose[:3, 3], atol=1e-6)
        world.set_pose("it", pose)
    assert world.report("it").shape is not None
    points = rng.uniform(-1.0, 1.0, (4000, 3)).astype(np.float32)
    local = np.linalg.inv(pose @ transform)
    truth = exact.distance(points @ local[:3, :3].T + local[:3, 3])
    found = signed_distance(torch.tensor(points[None], device=device), world).distance
    np.testing.assert_allclose(found[0].cpu(), truth, rtol=0, atol=2e-6)


def test_what_is_distorted_is_a_mesh() -> None:
    scene = trimesh.Scene()
    ball = primitives.Sphere(radius=0.2)
    scene.add_geometry(ball, node_name="even", transform=np.diag([2.0, 2.0, 2.0, 1.0]))
    scene.add_geometry(ball, node_name="stretched", transform=np.diag([2.0, 2.0, 2.1, 1.0]))
    meshes = scene_meshes(scene)
    even = meshes["even"][0]
    assert isinstance(even, Sphere)
    assert even.radius == pytest.approx(0.4)
    assert isinstance(meshes["stretched"][0], trimesh.Trimesh)


def test_a_turned_cuboid_has_its_distance(device: torch.device) -> None:
    """Its record carries the turn: the pose stays that of the mesh."""
    rng = np.random.default_rng(19)
    mesh = moved(True, 0.4)
    world = MeshWorld(device=device)
    world.add("it", mesh, (0.1, 0.2, -0.3, 0.8, 0.0, 0.6, 0.0), padding=0.02)
    other = MeshWorld(device=device)
    other.add("it", mesh, (0.1, 0.2, -0.3, 0.8, 0.0, 0.6, 0.0), sign="winding", padding=0.02)
    points = torch.tensor(rng.uniform(-1, 1, (1, 3000, 3)), dtype=torch.float32, device=device)
    found, truth = signed_distance(points, world), signed_distance(points, other)
    torch.testing.assert_close(found.distance, truth.distance, rtol=0, atol=2e-6)
    same = (found.gradient * truth.gradient).sum(-1) > 0.999
    assert same.float().mean() > 0.99


def test_boxes_agree_with_pieces(device: torch.device) -> None:
    rng = np.random.default_rng(20)
    world = MeshWorld(device=device)
    world.add("it", BOX)
    points = rng.uniform(-0.6, 0.6, (2000, 3)).astype(np.float32)
    truth = cuboid(0.5, 0.3, 0.2).distance(points.astype(float))
    found = signed_distance(torch.tensor(points[None], device=device), world).distance
    np.testing.assert_allclose(found[0].cpu(), truth, rtol=0, atol=1e-6)
