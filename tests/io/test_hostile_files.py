"""Damaged, hostile and odd files: a ValueError that names the file and the rule, quickly."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from cases import mostly_slow
from hostile_files import REST, Case
from hostile_gltf import CORNERS, GLB, glb, triangle
from hostile_meshes import MESHES, STL
from hostile_numpy import NUMPY
from hostile_urdf import SPHERE, URDF, URDFS, joint, robot
from hostile_yaml import YAML
from warp_collision import Cuboid, MeshWorld
from warp_collision.io import load_spheres, load_world_file
from warp_collision.robot import RobotSpheres

WORLDS = {f"yaml: {name}": case for name, case in YAML.items()} | {
    f"mesh: {name}": case for name, case in MESHES.items()
}


def refuses(load, folder: Path, case: Case) -> None:
    name, content, message = case
    path = folder / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        load(path)
    text = str(raised.value)
    assert str(path) in text
    assert text.isprintable()
    assert len(text) < len(str(path)) + 700


LONG = {"mesh: a dae that doubles", "yaml: a list of half a million"}


@pytest.mark.parametrize("name", mostly_slow(WORLDS, WORLDS.keys() - LONG))
def test_worlds(name, tmp_path):
    refuses(load_world_file, tmp_path, WORLDS[name])


@pytest.mark.parametrize("name", NUMPY)
def test_spheres(name, tmp_path):
    refuses(load_spheres, tmp_path, NUMPY[name])


@pytest.mark.parametrize("name", URDFS)
def test_robots(name, tmp_path):
    refuses(RobotSpheres, tmp_path, ("robot.urdf", *URDFS[name]))


# Each file that needs too much is read for 3 s.
@pytest.mark.parametrize("name", mostly_slow(MESHES, MESHES.keys() - {"a dae that doubles"}))
def test_meshes_of_a_world(name, tmp_path):
    file, content, _ = MESHES[name]
    refuses(
        lambda path: MeshWorld(device="cpu").add("new", path),
        tmp_path,
        (file, content, "mesh 'new'"),
    )


def test_meshes_of_a_yaml_file_are_refused_by_their_own_name(tmp_path):
    (tmp_path / "cut.stl").write_bytes(STL[:-3])
    text = f"mesh: {{a: {{file_path: cut.stl, pose: {REST}}}}}"
    refuses(
        load_world_file, tmp_path, ("world.yaml", text.encode(), r"mesh\.a\.file_path: .*cut\.stl")
    )


@pytest.mark.slow
def test_without_the_c_parser_of_yaml(tmp_path, monkeypatch):
    import yaml

    from warp_collision.formats import yaml_values

    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    yaml_values._loader_class.cache_clear()
    try:
        slow = (
            "a huge text",
            "a list of half a million",
            "a huge file",
            "a huge key",
            "deep dashes",
        )
        for name, case in YAML.items():
            if name not in slow:
                refuses(load_world_file, tmp_path, case)
    finally:
        yaml_values._loader_class.cache_clear()


# -- what is right stays right --------------------------------------------------------------------


def test_odd_but_right_yaml(tmp_path):
    path = tmp_path / "world.yaml"
    path.write_bytes(
        b"\xef\xbb\xbf# a mark of the byte order\n"
        b"cuboid:\n"
        b"  &n first: &base {dims: &d [1, 0x2, !!float 3], pose: [0, 0, 0, 1, 0, 0, 0]}\n"
        b"  2001-02-03: {<<: [*base, {color: red}], dims: [2, 2, 2]}\n"
        b"  '<<': {<<: *base}\n"
        b"  third: {dims: *d, pose: [1e0, 1_0, .5, 1, 0, 0, 0]}\n"
    )
    world = load_world_file(path)
    assert list(world) == ["first", "2001-02-03", "<<", "third"]
    assert world["2001-02-03"].geometry == Cuboid((2.0, 2.0, 2.0))
    assert world["<<"].geometry == Cuboid((1.0, 2.0, 3.0))
    assert world["third"][1][:3] == (1.0, 10.0, 0.5)


@pytest.mark.parametrize("dtype", [">f8", "<f2", ">i4", "|u1"])
@pytest.mark.parametrize("compressed", [False, True])
def test_odd_but_right_arrays(tmp_path, dtype, compressed):
    array = np.random.default_rng(5).integers(1, 9, (3, 5, 4)).astype(dtype)
    array = np.asfortranarray(array)
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "s.npz", other=np.array(["text"]), spheres=array)
    np.save(tmp_path / "s.npy", array)
    for name in ("s.npz", "s.npy"):
        spheres = load_spheres(tmp_path / name)
        assert spheres.dtype == torch.float32
        np.testing.assert_array_equal(spheres[0].numpy(), array.astype(np.float32))


def test_odd_but_right_meshes(tmp_path):
    corners = b"\tv 0 0 0\n  v\t1 0 0\nv 0 1 0\r\nv 0 0 1\n"
    faces = b"f 1//1 2//1 3//1\n f\t-4 -1 \\\n -3\n"
    (tmp_path / "odd.obj").write_bytes(corners + faces)
    mesh, *_ = load_world_file(tmp_path / "odd.obj")["odd"]
    assert mesh.area == pytest.approx(1.0)

    tree = triangle()
    tree["nodes"] = [{"camera": 0, "children": [1], "translation": [1, 2, 3]}, {"mesh": 0}]
    tree["cameras"] = [{"type": "perspective", "perspective": {"yfov": 1, "znear": 0.1}}]
    tree["accessors"].append({"componentType": 5126, "type": "VEC3", "count": 10**9, "sparse": {}})
    tree["meshes"][0]["primitives"][0]["attributes"]["NORMAL"] = 1
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a b.bin").write_bytes(CORNERS)
    tree["buffers"][0]["uri"] = "deep/a%20b.bin"
    for name, data, node in (
        ("odd.gltf", json.dumps(tree).encode(), "odd"),
        ("odd.glb", glb(tree), "odd"),
        ("plain.glb", GLB, "t"),
    ):
        (tmp_path / name).write_bytes(data)
        mesh, pose, *_ = load_world_file(tmp_path / name)[node]
        assert mesh.area == pytest.approx(0.5)
        assert pose[:3] == ((0.0, 0.0, 0.0) if name == "plain.glb" else (1.0, -3.0, 2.0))  # y up


def test_collada_with_broken_textures_is_read_and_keeps_all_of_its_parts(tmp_path):
    scene = trimesh.Scene()
    for index in range(3):
        mesh = trimesh.creation.box((1.0, 1.0, 1.0 + index))
        mesh.apply_translation((3.0 * index, 0.0, 0.0))
        scene.add_geometry(mesh, node_name=f"n{index}")
    text = trimesh.exchange.dae.export_collada(scene.dump()).decode()
    broken, count = re.subn(
        r"<phong>.*?</phong>", "<phong><diffuse><texture/></diffuse></phong>", text, flags=re.DOTALL
    )
    assert count == 3
    (tmp_path / "scene.dae").write_text(broken)
    world = load_world_file(tmp_path / "scene.dae")
    assert sorted(mesh.volume for mesh, *_ in world.values()) == pytest.approx([1.0, 2.0, 3.0])


def test_a_robot_of_several_shapes_and_foreign_elements(tmp_path):
    shapes = f'<collision>{SPHERE}</collision><collision><origin xyz="1 0 0"/>{SPHERE}</collision>'
    text = URDF.replace("</link>", f"{shapes}</link>").replace(
        "</robot>",
        '<transmission name="t"><joint name="j"><hardwareInterface/></joint></transmission>'
        '<gazebo><model><link name="x"><collision/></link></model></gazebo>'
        '<ros2_control><joint name="j"/></ros2_control><material name="red"/></robot>',
    )
    (tmp_path / "robot.urdf").write_text(text)
    assert RobotSpheres(tmp_path / "robot.urdf").sphere_links == ("a", "a", "a")


def test_a_large_robot_is_read_in_linear_time(tmp_path):
    n = 5_000
    links = "".join(f'<link name="l{i}"/>' for i in range(n))
    joints = "".join(joint(f"j{i}", f"l{i}", f"l{i + 1}") for i in range(n - 1))
    last = f'<link name="l{n}"><collision>{SPHERE}</collision></link>'
    joints += joint("last", f"l{n - 1}", f"l{n}")
    (tmp_path / "robot.urdf").write_bytes(robot(links + last + joints))
    assert RobotSpheres(tmp_path / "robot.urdf").n_spheres == 1
