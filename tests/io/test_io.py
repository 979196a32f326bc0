"""Mesh and scene files, and sphere files: what they become, and the errors of wrong ones."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from warp_collision import MeshWorld, UnitsWarning
from warp_collision.io import load_spheres, load_world_file, scene_meshes

REST = [0, 0, 0, 1, 0, 0, 0]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def world_vertices(obstacle) -> np.ndarray:
    """The vertices in the world frame, (n, 3) float64."""
    mesh, pose, *_ = obstacle
    matrix = trimesh.transformations.quaternion_matrix(pose[3:])
    matrix[:3, 3] = pose[:3]
    return trimesh.transform_points(mesh.vertices, matrix)


def assert_same_points(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6):
    """Compares point sets, whatever their order."""
    expected = np.asarray(expected)
    assert len(actual) == len(expected)
    distance = np.linalg.norm(actual[:, None] - expected[None], axis=-1)
    assert distance.min(axis=1).max() < tolerance
    assert distance.min(axis=0).max() < tolerance


@pytest.mark.parametrize("ending", ["stl", "obj", "ply", "off", "glb", "dae"])
def test_a_file_of_one_mesh_is_one_obstacle_named_as_the_file(tmp_path, ending):
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    path = tmp_path / f"shelf.{ending}"
    exported = box.export(file_type=ending)
    path.write_bytes(exported.encode() if isinstance(exported, str) else exported)

    world = load_world_file(path, up="z")  # trimesh exports glTF as it stands

    assert list(world) == ["shelf"]
    mesh, pose, *_ = world["shelf"]
    assert pose == pytest.approx(REST)
    assert_same_points(mesh.vertices, box.vertices)
    assert mesh.volume == pytest.approx(6.0)


def test_scene_transforms_become_poses_and_instances_get_their_own_names(tmp_path):
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    turned = trimesh.transformations.rotation_matrix(np.pi / 2, [0, 0, 1], [1.0, 0.0, 0.0])
    scene = trimesh.Scene()
    scene.add_geometry(box, geom_name="box", node_name="left")
    scene.graph.update(frame_to="group", frame_from="world", matrix=turned)
    scene.graph.update(frame_to="right", frame_from="group", geometry="box", matrix=turned)
    scene.export(tmp_path / "scene.glb")

    world = load_world_file(str(tmp_path / "scene.glb"), up="z")

    assert set(world) == {"left", "right"}
    assert world["left"][1] == pytest.approx(REST)
    both = turned @ turned
    pose = np.array(world["right"][1])
    assert pose[:3] == pytest.approx(both[:3, 3], abs=1e-6)
    half_turn_z = np.array([0.0, 0.0, 0.0, 1.0])
    assert abs(pose[3:] @ half_turn_z) == pytest.approx(1.0, abs=1e-6)
    # The rigid part is only in the pose: both instances have the same geometry.
    assert np.array_equal(world["left"][0].vertices, world["right"][0].vertices)
    assert_same_points(world_vertices(world["right"]), trimesh.transform_points(box.vertices, both))


@pytest.mark.parametrize(
    "linear",
    [
        np.diag([2.0, 2.0, 2.0]),
        np.diag([1.0, 3.0, 0.5]),
        np.diag([1.0, -1.0, 1.0]),
        np.diag([-2.0, -1.0, -1.0]),
        np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.25], [0.0, 0.0, 1.0]]),
    ],
    ids=["uniform", "per axis", "mirrored", "point mirrored", "sheared"],
)
def test_what_is_not_rigid_is_baked_into_the_vertices(tmp_path, linear):
    mesh = trimesh.creation.cone(radius=0.5, height=1.0, sections=7)
    turn = trimesh.transformations.rotation_matrix(0.7, [1.0, 2.0, 3.0])[:3, :3]
    transform = np.eye(4)
    transform[:3, :3] = turn @ linear
    transform[:3, 3] = [1.0, -2.0, 3.0]
    scene = trimesh.Scene()
    scene.add_geometry(mesh, node_name="part", transform=transform)
    scene.add_geometry(mesh, node_name="other")
    scene.export(tmp_path / "scene.glb")

    obstacle = load_world_file(tmp_path / "scene.glb", up="z")["part"]

    assert_same_points(world_vertices(obstacle), trimesh.transform_points(mesh.vertices, transform))
    assert obstacle[1][:3] == pytest.approx([1.0, -2.0, 3.0])
    assert np.linalg.norm(obstacle[1][3:]) == pytest.approx(1.0)
    # Faces look outward, also after mirroring: the volume has a sign.
    assert obstacle[0].volume == pytest.approx(mesh.volume * abs(np.linalg.det(linear)), rel=1e-5)


def test_declared_units_are_converted_to_metres(tmp_path):
    exported = trimesh.creation.box((10.0, 20.0, 30.0)).export(file_type="dae").decode()
    assert exported.count("<asset>") == 1
    path = write(
        tmp_path / "box.dae",
        exported.replace("<asset>", '<asset><unit name="millimeter" meter="0.001"/>'),
    )
    mesh, pose, *_ = load_world_file(path)["box"]
    assert mesh.extents == pytest.approx([0.01, 0.02, 0.03])
    assert pose == pytest.approx(REST)


def test_a_scene_in_memory_keeps_its_node_names():
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    scene = trimesh.Scene()
    scene.add_geometry(box, node_name="crate", transform=np.diag([2.0, 2.0, 2.0, 1.0]))
    ((name, (mesh, pose, *_)),) = scene_meshes(scene).items()
    assert name == "crate"
    assert pose == pytest.approx(REST)
    assert mesh.extents == pytest.approx([2.0, 4.0, 6.0])
    assert box.extents == pytest.approx([1.0, 2.0, 3.0])
    assert scene_meshes(trimesh.Scene()) == {}


def test_a_flat_transform_is_refused(tmp_path):
    scene = trimesh.Scene()
    scene.add_geometry(
        trimesh.creation.box(), node_name="sheet", transform=np.diag([1.0, 1.0, 0.0, 1.0])
    )
    scene.export(tmp_path / "scene.glb")
    with pytest.raises(ValueError, match="'sheet' must be finite and invertible, got"):
        load_world_file(tmp_path / "scene.glb")


def test_a_part_that_is_no_mesh_is_refused(tmp_path):
    scene = trimesh.Scene()
    scene.add_geometry(trimesh.creation.box(), node_name="box")
    scene.add_geometry(trimesh.PointCloud(np.eye(3)), node_name="scan")
    scene.export(tmp_path / "scene.glb")
    with pytest.raises(ValueError, match="part 'scan' must be a triangle mesh, got a PointCloud"):
        load_world_file(tmp_path / "scene.glb")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("world.glb", b"glTF, or not", "must have at least 20 bytes, got 12"),
        ("world.ply", b"ply\n", "must have a line end_header"),
        ("world.txt", b"box", "must end in one of .*glb.*stl.*; got 'txt'"),
        ("world.stl", b"nothing", "must be a text that ends in endsolid, .* got 7 bytes"),
    ],
)
def test_unreadable_files_are_refused_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("load", [load_world_file, load_spheres])
def test_missing_files_are_named(tmp_path, load):
    for path, reason in ((tmp_path / "nowhere.yaml", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(FileNotFoundError, match=reason) as raised:
            load(path)
        assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((3, 4), (1, 1, 3, 4)), ((2, 3, 4), (1, 2, 3, 4)), ((5, 2, 3, 4), (5, 2, 3, 4))],
)
def test_spheres_get_leading_axes(tmp_path, shape, expected):
    array = np.random.default_rng(0).normal(size=shape)
    np.save(tmp_path / "spheres.npy", array)
    np.savez(tmp_path / "single.npz", anything=array)
    np.savez_compressed(tmp_path / "named.npz", other=np.zeros(2), spheres=array)
    for name in ("spheres.npy", "single.npz", "named.npz"):
        spheres = load_spheres(tmp_path / name)
        assert spheres.shape == expected
        assert spheres.dtype == torch.float32
        assert spheres.is_contiguous()
        np.testing.assert_array_equal(spheres.numpy().reshape(shape), array.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, ">f4"])
def test_spheres_of_other_number_types_are_converted(tmp_path, dtype):
    array = np.array([[1, 2, 3, 4]], dtype=dtype)
    np.save(tmp_path / "spheres.npy", np.asfortranarray(array))
    spheres = load_spheres(tmp_path / "spheres.npy")
    assert spheres.dtype == torch.float32
    assert spheres.tolist() == [[[[1.0, 2.0, 3.0, 4.0]]]]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4), r"must have shape .* got \(4,\)"),
        (np.zeros((2, 3)), r"must have shape .* got \(2, 3\)"),
        (np.zeros((1, 1, 1, 1, 4)), "must have shape"),
        (np.zeros((0, 4)), r"holds no spheres, got shape \(0, 4\)"),
        (np.zeros((1, 4), dtype=bool), "must be numbers, got dtype bool"),
        (np.zeros((1, 4), dtype=complex), "must be numbers, got dtype complex128"),
        (np.array([["a"] * 4]), "must be numbers, got dtype"),
        (np.array([[0, 0, 0, 1], [0, np.nan, 0, 1]]), r"must be finite, got .* at index \(1,\)"),
        (np.array([[[0, 0, 0, 1e300]]]), r"must be finite, got .* at index \(0, 0\)"),
        (np.array([[None] * 4]), "spheres must be numbers, got dtype object"),
    ],
)
def test_wrong_spheres_are_refused(tmp_path, array, message):
    np.save(tmp_path / "spheres.npy", array)
    with pytest.raises(ValueError, match=message) as raised:
        load_spheres(tmp_path / "spheres.npy")
    assert "spheres.npy" in str(raised.value)


def test_wrong_sphere_files_are_refused(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.zeros((1, 4)), b=np.zeros((1, 4)))
    with pytest.raises(
        ValueError, match=r"one array 'spheres' or a single array, got \['a', 'b'\]"
    ):
        load_spheres(tmp_path / "two.npz")
    for name, message in [
        ("spheres.csv", "must be a .npy or .npz file, got '.csv'"),
        ("empty.npy", "empty.npy"),
        ("broken.npz", "broken.npz"),
    ]:
        path = tmp_path / name
        path.write_bytes(b"" if name == "empty.npy" else b"PK\x03\x04 1, 2, 3, 4")
        with pytest.raises(ValueError, match=message):
            load_spheres(path)


def test_an_unknown_ending_names_all_kinds_of_files(tmp_path):
    path = write(tmp_path / "scene.sdf", "<sdf/>")
    with pytest.raises(ValueError, match=r"end in one of dae, .*urdf, usd, .* yml; got 'sdf'"):
        load_world_file(path)


@pytest.mark.parametrize("ending", ["glb", "obj", "stl"])
@pytest.mark.parametrize("up", [None, "y", "z"])
def test_what_points_up(tmp_path, ending, up):
    """A room of 5 by 4 m and 3 m height, whose height is along y or z of the file."""
    is_y = up == "y" or (up is None and ending == "glb")
    turn = np.eye(4)
    turn[:3, :3] = [[1, 0, 0], [0, 0, 1], [0, -1, 0]] if is_y else np.eye(3)
    room = trimesh.creation.box((5.0, 4.0, 3.0)).apply_translation((0.5, 0.2, 1.5))
    corner = trimesh.creation.box((0.1, 0.1, 0.2)).apply_translation((1.0, -1.0, 0.1))
    scene = trimesh.Scene([room.apply_transform(turn), corner.apply_transform(turn)])
    exported = scene.export(file_type=ending)
    path = tmp_path / f"room.{ending}"
    path.write_bytes(exported.encode() if isinstance(exported, str) else exported)
    world = load_world_file(path, up=up)
    corners = np.concatenate([world_vertices(obstacle) for obstacle in world.values()])
    low, high = corners.min(axis=0), corners.max(axis=0)
    np.testing.assert_allclose(low, (-2.0, -1.8, 0.0), atol=1e-6)
    np.testing.assert_allclose(high, (3.0, 2.2, 3.0), atol=1e-6)
    small = min(world.values(), key=lambda obstacle: obstacle.geometry.volume)
    if len(world) == 2:
        assert small.geometry.volume > 0.0  # turned, not mirrored
        np.testing.assert_allclose(world_vertices(small).mean(axis=0), (1.0, -1.0, 0.1), atol=1e-6)


@pytest.mark.parametrize("ending", ["stl", "glb"])
def test_millimetres_are_named_and_scaled(tmp_path, ending):
    path = tmp_path / f"table.{ending}"
    trimesh.creation.box((1200.0, 800.0, 40.0)).export(path)
    with pytest.warns(UnitsWarning, match=r"is 1200 m long: if it is in milli.* pass scale=0\.001"):
        load_world_file(path)
    (table,) = load_world_file(path, scale=0.001, up="z").values()
    assert table.geometry.extents == pytest.approx([1.2, 0.8, 0.04])
    world = MeshWorld.from_file(path, scale=0.001, up="z", device="cpu")
    assert world.report(world.names()[0]).n_faces == 12
    text = f"mesh: {{table: {{file_path: table.{ending}, pose: {list(REST)}}}}}"
    write(tmp_path / "world.yaml", text)
    with pytest.warns(UnitsWarning, match=r"mesh\.table is 1200 m long.* pass scale: 0\.001"):
        load_world_file(tmp_path / "world.yaml")


def test_a_scale_replaces_the_unit_of_the_file(tmp_path):
    exported = trimesh.creation.box((10.0, 20.0, 30.0)).export(file_type="dae").decode()
    unit = '<asset><unit name="millimeter" meter="0.001"/>'
    path = write(tmp_path / "box.dae", exported.replace("<asset>", unit))
    (box,) = load_world_file(path, scale=0.01).values()
    assert box.geometry.extents == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"up": "x"}, ValueError, "up must be 'y' or 'z', got 'x'"),
        ({"scale": 0.0}, ValueError, "scale must be positive, got 0"),
        ({"scale": "mm"}, TypeError, "scale must be a number, got str"),
    ],
)
def test_wrong_axes_and_scales(tmp_path, options, error, message):
    trimesh.creation.box((1.0, 1.0, 1.0)).export(tmp_path / "box.stl")
    with pytest.raises(error, match=message):
        load_world_file(tmp_path / "box.stl", **options)


@pytest.mark.parametrize("options", [{"up": "y"}, {"scale": 0.001}])
def test_only_mesh_files_have_axes_and_scales(tmp_path, options):
    write(tmp_path / "world.yaml", "sphere: {ball: {radius: 1, position: [0, 0, 0]}}")
    with pytest.raises(ValueError, match=r"world\.yaml: up and scale must be None"):
        load_world_file(tmp_path / "world.yaml", **options)


@pytest.mark.parametrize("ending", ["glb", "gltf"])
@pytest.mark.parametrize(
    ("node", "name"), [("boxA", "boxA"), (None, "file"), ("geometry_0", "file"), ("0", "file")]
)
def test_a_single_node_of_gltf_keeps_its_name(tmp_path, ending, node, name):
    scene = trimesh.Scene()
    scene.add_geometry(trimesh.creation.cone(0.1, 0.3), node_name=node)
    path = tmp_path / f"file.{ending}"
    if ending == "glb":
        scene.export(path)
    else:
        for file, data in scene.export(file_type="gltf").items():
            (tmp_path / file.replace("model", "file")).write_bytes(data)
    assert list(load_world_file(path)) == [name]
    stored = tmp_path / "cone.stl"
    trimesh.creation.cone(0.1, 0.3).export(stored)
    assert list(load_world_file(stored)) == ["cone"]
