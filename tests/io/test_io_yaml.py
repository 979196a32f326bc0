"""YAML worlds: the obstacles that they become, and the errors of wrong ones."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
import yaml

from warp_collision import Capsule, Cuboid, Cylinder, Sphere
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.io import LeftOutWarning, load_world_file, load_world_mapping

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
          can: {radius: 0.03, height: 0.14, pose: [0, 0, 0, 1, 0, 0, 0], padding: 0.01}
        capsule:
          arm: {radius: 0.05, base: [0, 0, 0.1], tip: [0, 0.3, 0.1], pose: [1, 0, 0, 1, 0, 0, 0]}
          dot: {radius: 0.05, base: [1, 2, 3], tip: [1, 2, 3], pose: [0, 0, 0, 1, 0, 0, 0]}
        """,
    )

    world = load_world_file(path)

    assert list(world) == ["ball", "globe", "shelf", "stretched", "table", "can", "arm", "dot"]
    assert world["ball"][1] == (1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0)
    assert world["globe"][1] == (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    assert world["shelf"][1] == (0.5, 0.0, 0.1, 0.0, 0.0, 0.0, 1.0)
    assert world["shelf"][0].extents == pytest.approx([0.001, 0.002, 0.003])
    assert world["stretched"][0].extents == pytest.approx([1.0, 4.0, 9.0])
    assert world["table"][1] == pytest.approx([0.5, 0.0, 0.4, *QUARTER_TURN_Z])
    assert world["ball"].geometry == Sphere(0.05)
    assert world["globe"].geometry == Sphere(1.5)
    assert world["table"].geometry == Cuboid((1.0, 0.6, 0.04))
    assert world["can"].geometry == Cylinder(radius=0.03, height=0.14)
    assert world["can"].padding == 0.01
    assert world["table"].padding == 0.0
    assert world["arm"].geometry == Capsule(radius=0.05, length=0.3)
    assert world["arm"].pose[:3] == pytest.approx([1.0, 0.15, 0.1])
    z_axis = trimesh.transformations.quaternion_matrix(world["arm"].pose[3:])[:3, 2]
    assert z_axis == pytest.approx([0.0, 1.0, 0.0])
    assert world["dot"].geometry == Capsule(radius=0.05, length=0.0)
    for name in ("shelf", "stretched"):
        assert world[name][0].is_watertight
        assert world[name][0].volume > 0.0


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

    mesh, *_ = load_world_file(path)["pair"]

    assert mesh.bounds == pytest.approx(np.array([[-0.25, -0.5, -0.5], [2.5, 0.5, 0.5]]))
    assert mesh.volume == pytest.approx(0.5**3 + 1.0)


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
        (
            "cubiod: {}",
            "keys must be among mesh, cuboid, sphere, capsule, cylinder, cone, half_space, "
            "point_cloud, voxel_grid, esdf_grid, height_field, blox, voxel, got 'cubiod'",
        ),
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
            "cuboid.a: keys must be among dims, pose, color, .*, padding, enabled, got 'mass'",
        ),
        ("cuboid: {a: {dims: [1, 1, 1]}}", "cuboid.a: the key 'pose' is required, got dims"),
        ("cuboid: {a: {}}", "cuboid.a: the key 'dims' is required, got none"),
        (f"mesh: {{a: {{file_path: 3, pose: {REST}}}}}", "mesh.a.file_path must be text, got 3"),
        (
            f"sphere: {{a: {{radius: 1, pose: {REST}, position: [0, 0, 0]}}}}",
            "sphere.a: either 'pose' or 'position' is required, got radius, pose, position",
        ),
        (
            f"capsule: {{a: {{radius: 1, base: [0, 0, 0], pose: {REST}}}}}",
            "capsule.a: the key 'tip' is required, got radius, base, pose",
        ),
        (
            f"capsule: {{a: {{radius: 1, base: [0, 0, -9e8], tip: [0, 0, 9e8], pose: {REST}}}}}",
            "capsule.a must be shorter than 1e9, got 1800000000.0",
        ),
        (
            f"cuboid: {{a: {{dims: [1, 1, 1], pose: {REST}, padding: -0.1}}}}",
            "cuboid.a: padding must not be negative, and below 1e9, got -0.1",
        ),
        (
            f"cuboid: {{a: {{dims: [1, 1, 1], pose: {REST}, padding: wide}}}}",
            "cuboid.a: padding must be a number, got str",
        ),
        (
            f"cuboid: {{a: {{dims: [1, 1, 1], pose: {REST}, enabled: 1}}}}",
            "cuboid.a.enabled must be true or false, got 1",
        ),
        (
            f"mesh: {{a: {{vertices: [[0, 0, 0]], faces: [[0, 1, 2]], pose: {REST}}}}}",
            "mesh.a: .* faces must index vertices 0 to 0",
        ),
        (
            f"mesh: {{a: {{vertices: [[0, 0, a]], faces: [[0, 1, 2]], pose: {REST}}}}}",
            "mesh.a: .* vertices must be real numbers",
        ),
        (f"mesh: {{a: {{pose: {REST}}}}}", "either 'file_path' or 'vertices' is required"),
        ("voxel: {scan: {}}", "cannot hold 1 of its entries: voxel.scan"),
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
    assert world["a"].geometry == Cuboid((1.0, 1.0, 1.0))
    assert world["b"].geometry == Cuboid((2.0, 2.0, 2.0))


def test_numbers_are_those_of_yaml(tmp_path):
    """Decimal ones are read without PyYAML's resolvers; text, whole numbers and others by them."""
    rng = np.random.default_rng(5)
    decimal = [f"{sign}{value:.{digits}{kind}}" for sign in ("", "-", "+") for kind in "fe"
               for digits in (1, 6, 17) for value in rng.lognormal(0.0, 20.0, 4)]  # fmt: skip
    others = ["1.", "-0.0", "1.e5", "1.5e3", "1e-3", ".5", "-.5e-3", "010", "10", "1_0.5", "1:30.5",
              ".inf", "-.nan", "1.5.2", "1.5e", "1.5 ", "'1.5'", '"2.0"', "!!str 1.5", "!!float 2",
              "1.0x", "0x1.8"]  # fmt: skip
    texts = decimal + others
    path = write(tmp_path / "numbers.yaml", "".join(f"- {text}\n" for text in texts))
    found = read_yaml(path)
    known = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
    expected = [
        float(text) if known.fullmatch(text) and re.search("[.eE]", text) else yaml.safe_load(text)
        for text in texts
    ]
    assert [*map(repr, found)] == [*map(repr, expected)]


def test_what_a_world_has_not_is_named(tmp_path):
    text = f"cuboid: {{a: {GOOD_CUBOID}}}\nblox: {{map: {{pose: {REST}}}}}\nvoxel: {{scan: 3}}\n"
    path = write(tmp_path / "world.yaml", text)
    with pytest.warns(LeftOutWarning, match="2 of its entries: blox.map .*voxel.scan") as caught:
        assert list(load_world_file(path)) == ["a"]
    warning = caught[0].message
    assert isinstance(warning, LeftOutWarning)
    assert [entry for entry, _ in warning.entries] == ["blox.map", "voxel.scan"]
    assert warning.where == str(path)
    assert caught[0].filename == __file__  # the line that called the library
    with pytest.raises(ValueError, match=r"world\.yaml: .*blox.map"):
        load_world_file(path, strict=True)


def test_a_mapping_may_hold_arrays():
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    pose = torch.tensor([1.0, 2.0, 3.0, 2.0, 0.0, 0.0, 0.0])
    world = load_world_mapping(
        {
            "cuboid": {"a": {"dims": np.float32([1, 2, 3]), "pose": pose}},
            "sphere": {"b": {"radius": np.float32(0.5), "position": (1, 2, 3)}},
            "mesh": {
                "c": {"vertices": box.vertices, "faces": box.faces, "pose": REST, "scale": 0.5},
                "d": {"vertices": box.vertices.tolist(), "faces": box.faces.tolist(), "pose": REST},
            },
        }
    )
    assert world["a"].geometry == Cuboid((1.0, 2.0, 3.0))
    assert world["a"].pose == (1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0)
    assert world["b"].geometry == Sphere(0.5)
    assert world["c"][0].extents == pytest.approx([0.5, 1.0, 1.5])
    assert world["d"][0].extents == pytest.approx([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"mapping: cuboid.a.dims must be 3 positive numbers"):
        load_world_mapping({"cuboid": {"a": {"dims": np.ones(4), "pose": REST}}})
