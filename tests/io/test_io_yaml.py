"""YAML worlds: the obstacles that they become, and the errors of wrong ones."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from reference import rotation_matrix
from warp_collision import Capsule, Cuboid, Cylinder, MeshWorld, Sphere, signed_distance
from warp_collision.io import load_world_file

REST = [0, 0, 0, 1, 0, 0, 0]
QUARTER_TURN_Z = [0.5**0.5, 0.0, 0.0, 0.5**0.5]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_yaml_world_keeps_names_order_and_poses(tmp_path):
    (tmp_path / "meshes").mkdir()
    trimesh.creation.box((1.0, 2.0, 3.0)).export(tmp_path / "meshes" / "block.stl")
    path = write(
        tmp_path / "world.yaml",
        """
        sphere:
          ball: {radius: 5e-2, position: [1, 2, 3]}
          globe: {radius: 1.5e0, pose: [0, 0, 1, 1, 0, 0, 0]}
        mesh:
          shelf: {file_path: meshes/block.stl, pose: [0.5, 0, 1e-1, 0, 0, 0, 2], scale: 0.001}
          stretched: {file_path: meshes/block.stl, pose: [0, 0, 0, 1, 0, 0, 0], scale: [1, 2, 3]}
        cuboid:
          table: {dims: [1.0, 0.6, 0.04], pose: [0.5, 0, 0.4, 0.70710678, 0, 0, 0.70710678]}
        cylinder:
          can: {radius: 0.03, height: 0.14, pose: [0, 0, 0, 1, 0, 0, 0]}
        """,
    )

    world = load_world_file(path)

    assert list(world) == ["ball", "globe", "shelf", "stretched", "table", "can"]
    assert world["ball"][1] == (1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0)
    assert world["globe"][1] == (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    assert world["shelf"][1] == (0.5, 0.0, 0.1, 0.0, 0.0, 0.0, 1.0)
    assert world["shelf"][0].extents == pytest.approx([0.001, 0.002, 0.003])
    assert world["stretched"][0].extents == pytest.approx([1.0, 4.0, 9.0])
    assert world["table"][1] == pytest.approx([0.5, 0.0, 0.4, *QUARTER_TURN_Z])
    assert world["table"][0] == Cuboid((1.0, 0.6, 0.04))
    assert all(world[name][0].is_watertight for name in ("shelf", "stretched"))


def test_a_mesh_file_of_several_parts_is_one_obstacle(tmp_path):
    scene = trimesh.Scene()
    moved = trimesh.transformations.translation_matrix([4.0, 0.0, 0.0])
    mirrored = moved @ np.diag([-1.0, 1.0, 1.0, 1.0])
    scene.add_geometry(trimesh.creation.box((1.0, 1.0, 1.0)), node_name="a")
    scene.add_geometry(trimesh.creation.box((2.0, 2.0, 2.0)), node_name="b", transform=mirrored)
    scene.export(tmp_path / "pair.glb")
    path = write(
        tmp_path / "world.yml",
        f"mesh: {{pair: {{file_path: '{tmp_path / 'pair.glb'}', pose: {REST}, scale: 0.5}}}}",
    )

    mesh, _ = load_world_file(path)["pair"]

    assert mesh.bounds == pytest.approx(np.array([[-0.25, -0.5, -0.5], [2.5, 0.5, 0.5]]))
    assert mesh.volume == pytest.approx(0.5**3 + 1.0)


def test_shapes_are_exact(tmp_path):
    path = write(
        tmp_path / "world.yaml",
        f"""
        cylinder: {{can: {{radius: 0.5, height: 2.0, pose: {REST}}}}}
        sphere: {{ball: {{radius: 2.0, pose: {REST}}}}}
        cuboid: {{table: {{dims: [1, 2, 3], pose: {REST}}}}}
        """,
    )
    assert [shape for shape, _ in load_world_file(path).values()] == [
        Cylinder(0.5, 2.0),
        Sphere(2.0),
        Cuboid((1.0, 2.0, 3.0)),
    ]


@pytest.mark.parametrize("tip", [(0.0, 0.0, 0.3), (0.1, -0.2, 0.2), (0.0, 0.0, -0.4), (0.1, 0, 0)])
def test_capsules_go_from_base_to_tip(tip, tmp_path):
    base, radius = (0.1, 0.0, 0.0), 0.05
    pose = [1.0, 2.0, 3.0, 0.8, 0.0, 0.6, 0.0]
    entry = f"{{radius: {radius}, base: {list(base)}, tip: {list(tip)}, pose: {pose}}}"
    path = write(tmp_path / "world.yaml", f"capsule: {{arm: {entry}}}")
    world = MeshWorld(device="cpu")
    world.load(load_world_file(path))
    assert world.report("arm").shape == Capsule(radius, np.linalg.norm(np.subtract(tip, base)))
    rotation = rotation_matrix(np.array(pose[3:]))
    begin, end = (rotation @ np.array(p) + pose[:3] for p in (base, tip))
    points = np.random.default_rng(8).uniform(-0.5, 0.5, (500, 3)) + begin
    along = (points - begin) @ (end - begin) / max(((end - begin) ** 2).sum(), 1e-300)
    nearest = begin + np.clip(along, 0.0, 1.0)[:, None] * (end - begin)
    truth = np.linalg.norm(points - nearest, axis=1) - radius
    found = signed_distance(torch.tensor(points[None], dtype=torch.float32), world).distance
    np.testing.assert_allclose(found[0], truth, rtol=0, atol=2e-6)


GOOD_CUBOID = f"{{dims: [1, 1, 1], pose: {REST}}}"


def test_colors_and_kinds_without_obstacles_make_no_difference(tmp_path):
    text = f"cuboid: {{a: {{dims: [1, 1, 1], pose: {REST}, color: [1, 0, 0, 1]}}}}\nsphere:\n"
    obstacles = load_world_file(write(tmp_path / "world.yaml", text))
    assert list(obstacles) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a mapping of kinds of obstacles, got None"),
        ("[1, 2]", r"must be a mapping of kinds of obstacles, got \[1, 2\]"),
        ("{}", "holds no obstacle"),
        ("cuboid: {}", "holds no obstacle"),
        ("cuboid: {a: [", "no valid YAML"),
        ("cuboid: 3", "cuboid must be a mapping of names, got 3"),
        ("cuboid: {a: 3}", "cuboid.a must be a mapping of keys, got 3"),
        ("cubiod: {}", "keys must be among mesh, cuboid, cylinder, sphere, capsule, got 'cubiod'"),
        (f"cuboid: {{1: {GOOD_CUBOID}}}", "cuboid: names must be text, got 1"),
        (
            f"cuboid: {{a: {GOOD_CUBOID}, a: {GOOD_CUBOID}}}",
            "the key 'a' stands again in line 1",
        ),
        (
            f"cuboid: {{a: {GOOD_CUBOID}}}\nsphere: {{a: {{radius: 1, pose: {REST}}}}}",
            "names must be unique, got 'a' in cuboid and in sphere",
        ),
        (
            f"cuboid: {{a: {{dims: [1, 1, 1], pose: {REST}, mass: 3}}}}",
            "cuboid.a: keys must be among dims, pose, color, got 'mass'",
        ),
        ("cuboid: {a: {dims: [1, 1, 1]}}", "cuboid.a: the key 'pose' is required, got dims"),
        ("cuboid: {a: {}}", "cuboid.a: the key 'dims' is required, got none"),
        (f"mesh: {{a: {{file_path: 3, pose: {REST}}}}}", "mesh.a.file_path must be text, got 3"),
        (
            f"sphere: {{a: {{radius: 1, pose: {REST}, position: [0, 0, 0]}}}}",
            "sphere.a: either 'pose' or 'position' is required, got radius, pose, position",
        ),
        ("sphere: {a: {radius: 1}}", "either 'pose' or 'position' is required, got radius"),
        (
            "sphere: {a: {radius: 1, position: [0, 0]}}",
            r"sphere.a.position must be 3 finite numbers x, y, z, got \[0, 0\]",
        ),
    ],
)
def test_yaml_errors_name_the_key_the_rule_and_the_value(tmp_path, text, message):
    path = write(tmp_path / "world.yaml", text)
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "dims",
    [
        "[1, 1]",
        "[1, 1, 0]",
        "[1, -1, 1]",
        "[1, 1, .nan]",
        "[1, 1, .inf]",
        f"[1, 1, {10**400}]",
        "[1, yes, 1]",
        "[1, 1, a]",
        "['1', 1, 1]",
        "2",
        "null",
    ],
)
def test_bad_dims(tmp_path, dims):
    path = write(tmp_path / "world.yaml", f"cuboid: {{box: {{dims: {dims}, pose: {REST}}}}}")
    with pytest.raises(ValueError, match=r"cuboid\.box\.dims must be 3 positive numbers, got"):
        load_world_file(path)


@pytest.mark.parametrize(
    "pose",
    [
        "[0, 0, 0]",
        "[0, 0, 0, 1, 0, 0, 0, 0]",
        "[0, 0, 0, 0, 0, 0, 0]",
        "[0, .nan, 0, 1, 0, 0, 0]",
        "[0, 0, 0, .inf, 0, 0, 0]",
        "here",
        "{x: 1}",
    ],
)
@pytest.mark.parametrize("shape", ["sphere: {a: {radius: 1", "cylinder: {a: {radius: 1, height: 1"])
def test_bad_poses(tmp_path, shape, pose):
    path = write(tmp_path / "world.yaml", f"{shape}, pose: {pose}}}}}")
    with pytest.raises(ValueError, match=r"a\.pose must be 7 finite numbers .* not zero, got"):
        load_world_file(path)


@pytest.mark.parametrize("value", ["0", "-1", ".nan", "[1]", "wide", "null", "true"])
@pytest.mark.parametrize("key", ["radius", "height"])
def test_bad_radius_and_height(tmp_path, key, value):
    good = {"radius": "1", "height": "1", key: value}
    fields = ", ".join(f"{k}: {v}" for k, v in good.items())
    path = write(tmp_path / "world.yaml", f"cylinder: {{can: {{{fields}, pose: {REST}}}}}")
    with pytest.raises(ValueError, match=f"cylinder.can.{key} must be a positive number, got"):
        load_world_file(path)


@pytest.mark.parametrize("scale", ["0", "-1", "[1, 1]", "[1, 1, -1]", "big", "true"])
def test_bad_scale(tmp_path, scale):
    trimesh.creation.box().export(tmp_path / "box.stl")
    path = write(
        tmp_path / "world.yaml",
        f"mesh: {{box: {{file_path: box.stl, pose: {REST}, scale: {scale}}}}}",
    )
    with pytest.raises(ValueError, match=r"mesh\.box\.scale must be 1 or 3 positive numbers, got"):
        load_world_file(path)


def test_missing_mesh_file_of_a_yaml_world(tmp_path):
    path = write(tmp_path / "world.yaml", f"mesh: {{box: {{file_path: no.stl, pose: {REST}}}}}")
    with pytest.raises(FileNotFoundError, match=r"box\.file_path must be an existing file") as e:
        load_world_file(path)
    assert str(tmp_path / "no.stl") in str(e.value)


def test_yaml_merge_keys_are_no_duplicates(tmp_path):
    path = write(
        tmp_path / "world.yaml",
        f"""
        cuboid:
          a: &base {{dims: [1, 1, 1], pose: {REST}}}
          b: {{<<: *base, dims: [2, 2, 2]}}
        """,
    )
    world = load_world_file(path)
    assert world["a"][0] == Cuboid((1.0, 1.0, 1.0))
    assert world["b"][0] == Cuboid((2.0, 2.0, 2.0))
