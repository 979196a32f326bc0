"""URDF files as scenes: all shapes where the joints put them, names, and what is wrong."""

import numpy as np
import pytest
import torch
import trimesh

from hostile_urdf import URDFS, joint, robot
from warp_collision import HalfSpace, MeshWorld, signed_distance
from warp_collision.io import LeftOutWarning, load_world_file
from world_distances import assert_distances, exact, random_frame, solid

BALL = '<geometry><sphere radius="0.1"/></geometry>'
ONE = f'<link name="a"><collision>{BALL}</collision></link>'


def origin(matrix: np.ndarray) -> str:
    x, y, z = matrix[:3, 3]
    roll, pitch, yaw = trimesh.transformations.euler_from_matrix(matrix, "sxyz")
    return f'<origin xyz="{x} {y} {z}" rpy="{roll} {pitch} {yaw}"/>'


def collision(shape: str, matrix: np.ndarray, name: str = "") -> str:
    named = f' name="{name}"' if name else ""
    return f"<collision{named}>{origin(matrix)}<geometry>{shape}</geometry></collision>"


def test_every_shape_stands_where_its_joints_put_it(tmp_path):
    rng = np.random.default_rng(11)
    cone = trimesh.creation.cone(0.3, 0.7, sections=12)
    (tmp_path / "parts" / "meshes").mkdir(parents=True)
    cone.export(tmp_path / "parts" / "meshes" / "cone.stl")
    frames = [random_frame(rng, 0.7) for _ in range(9)]
    arm, lid, slide = frames[:3]
    shapes = "".join(
        [
            collision('<box size="0.3 0.5 0.7"/>', frames[3], "box"),
            collision('<sphere radius="0.2"/>', frames[4]),
            collision('<cylinder radius="0.1" length="0.9"/>', frames[5]),
            collision('<capsule radius="0.1" length="0.6"/>', frames[6]),
        ]
    )
    mesh = '<mesh filename="package://parts/meshes/cone.stl" scale="0.5 -1 2"/>'
    text = f"""<robot name="r" version="1.1">
        <link name="base"/><link name="arm">{shapes}</link>
        <link name="lid">{collision(mesh, frames[7])}</link>
        <link name="slide">{collision('<sphere radius="0.15"/>', frames[8])}</link>
        <joint name="j" type="revolute"><parent link="base"/><child link="arm"/>{origin(arm)}
            <axis xyz="0 1 0"/><limit lower="-1" upper="1"/></joint>
        <joint name="k" type="continuous"><parent link="arm"/><child link="lid"/>{origin(lid)}
            <axis xyz="0 2 2"/><mimic joint="j" offset="0.7"/></joint>
        <joint name="l" type="prismatic"><parent link="lid"/><child link="slide"/>{origin(slide)}
            <axis xyz="0 0 2"/><mimic joint="k" multiplier="3" offset="-0.2"/></joint>
        </robot>"""
    (tmp_path / "scene.urdf").write_text(text)

    world = MeshWorld.from_file(
        tmp_path / "scene.urdf", device="cpu", strict=True, package_dirs=[tmp_path]
    )

    assert world.names() == ["arm/box", "arm/1", "arm/2", "arm/3", "lid", "slide"]
    assert [world.report(name).shape is None for name in world.names()] == [
        name == "lid" for name in world.names()
    ]
    world_from_lid = arm @ lid @ trimesh.transformations.rotation_matrix(0.7, [0, 1, 1])
    world_from_slide = (
        world_from_lid @ slide @ trimesh.transformations.translation_matrix([0, 0, 3 * 0.7 - 0.2])
    )
    bodies = [
        exact("cuboid", 0.3, 0.5, 0.7, at=arm @ frames[3]),
        exact("sphere", 0.2, at=arm @ frames[4]),
        exact("cylinder", 0.1, 0.9, at=arm @ frames[5]),
        exact("capsule", 0.1, 0.6, at=arm @ frames[6]),
        solid(cone, world_from_lid @ frames[7] @ np.diag([0.5, -1.0, 2.0, 1.0])),
        exact("sphere", 0.15, at=world_from_slide @ frames[8]),
    ]
    assert_distances(world, bodies, rng)


def test_planes_are_half_spaces(tmp_path):
    """Solid below; without a normal it is z of the shape's frame, as Bullet has it."""
    rng = np.random.default_rng(5)
    frames = [random_frame(rng, 0.7) for _ in range(3)]
    normal = rng.normal(size=3)
    tilted = '<plane normal="' + " ".join(map(str, normal)) + '"/>'
    links = "".join(
        f'<link name="{name}">{collision(shape, frame)}</link>'
        for name, shape, frame in (("a", "<plane/>", frames[0]), ("b", tilted, frames[1]))
    )
    (tmp_path / "scene.urdf").write_bytes(robot(links + joint("j", "a", "b", origin(frames[2]))))
    world = MeshWorld.from_file(tmp_path / "scene.urdf", device="cpu", strict=True)
    points = rng.normal(size=(200, 3))
    for name, matrix, up in (("a", frames[0], (0, 0, 1)), ("b", frames[2] @ frames[1], normal)):
        assert isinstance(world.report(name).shape, HalfSpace)
        for other in world.names():
            world.enable(other, other == name)
        found = signed_distance(torch.tensor(points, dtype=torch.float32), world).distance
        outward = matrix[:3, :3] @ up / np.linalg.norm(up)
        np.testing.assert_allclose(found, (points - matrix[:3, 3]) @ outward, atol=2e-6)


def test_a_link_with_visuals_alone_is_named(tmp_path):
    path = tmp_path / "scene.urdf"
    path.write_bytes(
        robot(ONE + f'<link name="b"><visual>{BALL}</visual></link>' + joint("j", "a", "b"))
    )
    with pytest.warns(LeftOutWarning, match="link 'b' .it has visuals and no collision shape"):
        assert list(load_world_file(path)) == ["a"]
    with pytest.raises(ValueError, match="link 'b'"):
        load_world_file(path, strict=True)


@pytest.mark.parametrize("name", URDFS)
def test_hostile_files(name, tmp_path):
    path = tmp_path / "scene.urdf"
    path.write_bytes(URDFS[name][0])
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # messages are those of robots
        load_world_file(path)
    assert str(raised.value).startswith(str(path))
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < len(str(path)) + 700


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<link name="a"/>', "holds no obstacle"),
        (ONE + ONE, r"names must be unique, got \['a'\] twice"),
        (ONE + '<link name="b"/>', r"must form one tree, got the roots \['a', 'b'\]"),
        (ONE + joint("j", "a", "c"), r"joint 'j' must join links that exist, got 'c'"),
        (
            ONE + '<link name="b"/><link name="c"/>' + joint("j", "b", "c") + joint("k", "c", "b"),
            r"a loop through \['b', 'c'\]",
        ),
        (
            ONE + '<link name="b"/>' + joint("j", "a", "b") + joint("k", "a", "b"),
            "joint 'k' must be the only joint to its child, got 'b'",
        ),
        (
            ONE + '<link name="b"/><link name="c"/>' + joint("j", "a", "b") + joint("j", "a", "c"),
            r"names must be unique, got \['j'\] twice",
        ),
        (
            ONE + '<link name="b"/>' + joint("j", "a", "b").replace("fixed", "spring"),
            "joint 'j' must be of type fixed, .* got 'spring'",
        ),
        (ONE.replace('radius="0.1"', 'radius="-1"'), "link 'a': radius of <sphere> must be pos"),
        (
            ONE.replace("<geometry>", '<origin xyz="2e9 0 0"/><geometry>'),
            "a: a pose must be finite and below 1e9",
        ),
        (
            ONE.replace('<sphere radius="0.1"/>', '<mesh filename="package://x/y.stl"/>'),
            "link 'a': the file of a mesh must be found, got 'package://x/y.stl'; no folder",
        ),
        (
            ONE.replace('<sphere radius="0.1"/>', '<mesh filename="scene.urdf"/>'),
            "link 'a': .*the name must end in one of",
        ),
    ],
)
def test_errors_name_the_file_the_place_and_the_value(content, message, tmp_path):
    path = tmp_path / "scene.urdf"
    path.write_bytes(robot(content))
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(raised.value).startswith(str(path))


def test_shapes_of_one_name_are_kept(tmp_path):
    path = tmp_path / "scene.urdf"
    named = f'<collision name="x">{BALL}</collision>'
    path.write_bytes(robot(f'<link name="a">{named * 3}</link>'))
    assert list(load_world_file(path)) == ["a/x", "a/x#2", "a/x#3"]
