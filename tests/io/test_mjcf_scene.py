"""MuJoCo models as scenes, compared with MuJoCo's own kinematics."""

import time

import numpy as np
import pytest
import trimesh

from hostile_files import LAUGHS
from placed import assert_distances, exact, solid
from warp_collision import Capsule, Cuboid, Cylinder, MeshWorld, Sphere
from warp_collision.io import LeftOutWarning, load_world_file

mujoco = pytest.importorskip("mujoco", reason="mujoco reads MJCF: pip install '.[mujoco]'")

TEXTURE = '<texture name="wood" type="2d" file="nowhere.png"/>'
MODEL = f"""
<mujoco>
  <compiler angle="degree" meshdir="meshes" eulerseq="zyx"/>
  <default><default class="round"><geom size="0.2 0.3"/></default></default>
  <asset>
    {TEXTURE}
    <material name="wood" texture="wood"/>
    <mesh name="cone" file="cone.stl" scale="0.5 1 2" refpos="0.1 0.2 0.3"/>
  </asset>
  <worldbody>
    <geom name="slab" type="box" size="0.5 0.4 0.1" pos="0 0 -1" euler="10 20 30" material="wood"/>
    <body name="base" pos="0.3 -0.2 0.5" quat="1 2 3 4">
      <freejoint/>
      <geom type="sphere" size="0.25"/>
      <body name="arm" pos="0 0 0.6" axisangle="1 1 0 40">
        <joint type="hinge" axis="0 1 0" ref="30" range="-90 90"/>
        <geom name="rod" type="capsule" fromto="0 0 0 0.4 0.5 -0.6" size="0.1"/>
        <geom class="round" type="cylinder" pos="0.5 0 0"/>
        <geom type="mesh" mesh="cone" pos="-0.6 0 0" quat="1 -1 2 0"/>
        <replicate count="2" offset="0 0 0.7"><geom type="sphere" size="0.05"/></replicate>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def write(folder, text=MODEL):
    (folder / "meshes").mkdir(exist_ok=True)
    # Not symmetric and not centered: compiling moves and turns it.
    cone = trimesh.creation.cone(0.4, 0.6, sections=9)
    cone.vertices = cone.vertices @ np.array([[1, 0.3, 0], [0, 1, 0.2], [0, 0, 1]]) + (0.2, 0.1, 0)
    cone.export(folder / "meshes" / "cone.stl")
    (folder / "scene.xml").write_text(text)
    return folder / "scene.xml", trimesh.load(folder / "meshes" / "cone.stl")


def frames_of(path) -> list[np.ndarray]:
    """The frame (4, 4) of each geom by MuJoCo's kinematics."""
    plain = path.with_name("plain.xml")
    plain.write_text(path.read_text().replace(' texture="wood"', "").replace(TEXTURE, ""))
    spec = mujoco.MjSpec.from_file(str(plain))
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    frames = []
    for position, rotation in zip(data.geom_xpos, data.geom_xmat, strict=True):
        frame = np.eye(4)
        frame[:3, :3], frame[:3, 3] = rotation.reshape(3, 3), position
        frames.append(frame)
    return frames


def test_geoms_stand_where_mujoco_puts_them(tmp_path):
    path, cone = write(tmp_path)
    world = MeshWorld.from_file(path, device="cpu", strict=True)

    assert world.names() == ["slab", "base", "rod", *(f"arm/{i}" for i in (1, 2, 3, 4))]
    shapes = [world.report(name).shape for name in world.names()]
    length = float(np.linalg.norm([0.4, 0.5, 0.6]))
    assert shapes[:2] == [Cuboid((1.0, 0.8, 0.2)), Sphere(0.25)]
    assert isinstance(shapes[2], Capsule)
    assert shapes[2].length == pytest.approx(length)
    assert shapes[3] == Cylinder(radius=0.2, height=0.6)
    assert shapes[4] is None

    frames = frames_of(path)
    # The mesh where the file has it: by its own vertices and not by what the compiler made.
    body = frames[3] @ np.linalg.inv(trimesh.transformations.translation_matrix([0.5, 0, 0]))
    own = trimesh.transformations.quaternion_matrix([1, -1, 2, 0])
    own[:3, 3] = [-0.6, 0.0, 0.0]
    into = np.diag([0.5, 1.0, 2.0, 1.0]) @ trimesh.transformations.translation_matrix(
        [-0.1, -0.2, -0.3]
    )
    bodies = [
        exact("cuboid", 1.0, 0.8, 0.2, at=frames[0]),
        exact("sphere", 0.25, at=frames[1]),
        exact("capsule", 0.1, length, at=frames[2]),
        exact("cylinder", 0.2, 0.6, at=frames[3]),
        solid(cone, body @ own @ into),
        exact("sphere", 0.05, at=frames[5]),
        exact("sphere", 0.05, at=frames[6]),
    ]
    assert_distances(world, bodies, np.random.default_rng(2), atol=1e-5)


def test_what_mujoco_itself_wrote_is_read(tmp_path):
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="b", pos=[1, 2, 3])
    body.add_geom(name="g", type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.1, 0.2, 0.3])
    spec.compile()
    (tmp_path / "scene.xml").write_text(spec.to_xml())
    ((name, found),) = load_world_file(tmp_path / "scene.xml").items()
    assert (name, found.geometry) == ("g", Cuboid((0.2, 0.4, 0.6)))
    assert found.pose == (1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0)


def test_an_ellipsoid_is_contained_and_hardly_exceeded(tmp_path):
    text = '<mujoco><worldbody><geom type="ellipsoid" size="1 2 3"/></worldbody></mujoco>'
    path, _ = write(tmp_path, text)
    mesh, *_ = load_world_file(path)["world"]
    unit = mesh.vertices / (1.0, 2.0, 3.0)
    assert np.linalg.norm(unit, axis=1).max() <= 1.0012
    corners = unit[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    assert np.einsum("ij,ij->i", normals, corners[:, 0]).min() >= 1.0 - 1e-12


def test_what_a_world_has_not_is_named(tmp_path):
    text = """
    <mujoco><asset><hfield name="h" nrow="4" ncol="4" size="1 1 1 1"/></asset><worldbody>
      <geom name="floor" type="plane" size="0 0 1"/>
      <geom name="hill" type="hfield" hfield="h"/>
      <geom name="look" type="sphere" size="1" contype="0" conaffinity="0"/>
      <geom name="half" type="sphere" size="1" contype="0"/>
      <body name="b"><freejoint/>
        <geom name="paired" type="sphere" size="1" contype="0" conaffinity="0"/></body>
    </worldbody><contact><pair geom1="paired" geom2="floor"/></contact></mujoco>
    """
    path, _ = write(tmp_path, text)
    with pytest.warns(LeftOutWarning, match="geom 'floor' .a plane has no end") as caught:
        assert list(load_world_file(path)) == ["half", "paired"]
    entries = [entry for entry, _ in caught[0].message.entries]  # pyright: ignore
    assert entries == ["geom 'floor'", "geom 'hill'", "geom 'look'"]
    with pytest.raises(ValueError, match=r"geom 'look' .it collides with nothing"):
        load_world_file(path, strict=True)


def test_included_files_are_read(tmp_path):
    path, _ = write(tmp_path, '<mujoco><include file="sub/other.xml"/></mujoco>')
    (tmp_path / "sub").mkdir()
    ball = '<mujoco><worldbody><geom name="g" size="0.1"/></worldbody></mujoco>'
    (tmp_path / "sub" / "other.xml").write_text(ball)
    assert load_world_file(path)["g"].geometry == Sphere(0.1)


GEOM = '<geom size="0.1"/>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco>", "must be well-formed XML"),
        ("<sdf/>", "root element must be <mujoco>, got <sdf>"),
        ("<mujoco/>", "holds no obstacle"),
        (f"<!DOCTYPE l [{LAUGHS}]><mujoco>&l9;</mujoco>", "must not declare a document type"),
        ("<mujoco>" + "<body>" * 200 + "</body>" * 200 + "</mujoco>", "nested at most 100 deep"),
        ("<mujoco><worldbody><geom/></worldbody></mujoco>", "size 0 must be positive"),
        ('<mujoco><include file="none.xml"/></mujoco>', "included file must exist, got 'none.xml'"),
        ('<mujoco><include file="scene.xml"/></mujoco>', "must be included once, got 'scene.xml'"),
        (
            '<mujoco><asset><mesh name="m" file="none.stl"/></asset><worldbody>'
            '<geom type="mesh" mesh="m"/></worldbody></mujoco>',
            "none.stl",
        ),
        (
            f'<mujoco><worldbody><replicate count="1000"><replicate count="1000">{GEOM}'
            "</replicate></replicate></worldbody></mujoco>",
            "must come to at most 200000 elements",
        ),
        (
            '<mujoco><asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>'
            f"<worldbody>{GEOM}</worldbody></mujoco>",
            "at most .* 10000000 numbers",
        ),
        (
            f'<mujoco><size nuser_geom="2000000000"/><worldbody>{GEOM}</worldbody></mujoco>',
            "nuser_geom must be at most 1000, got 2000000000",
        ),
        (
            f'<mujoco><worldbody><replicate count="many">{GEOM}</replicate></worldbody></mujoco>',
            "count of <replicate> must be whole numbers, got 'many'",
        ),
        (
            '<mujoco><worldbody><geom pos="2e9 0 0" size="1"/></worldbody></mujoco>',
            "world: a pose must be finite and below 1e9",
        ),
        (
            '<mujoco><worldbody><geom size="1e300"/></worldbody></mujoco>',
            "geom 'world': radius must be positive and below 1e.09|mujoco|size",
        ),
    ],
)
def test_wrong_and_hostile_files(text, message, tmp_path):
    path, _ = write(tmp_path, text)
    begin = time.monotonic()
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(raised.value).startswith(str(path))
    assert str(raised.value).isprintable()
    assert time.monotonic() - begin < 20.0


def test_numbers_that_are_none_are_an_error_and_no_log_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = MODEL.replace('size="0.5 0.4 0.1"', 'size="nan 0.4 0.1"')
    with pytest.raises(ValueError, match=r"scene\.xml: .*(NaN|nan)"):
        load_world_file(write(tmp_path, text)[0])
    assert {path.name for path in tmp_path.iterdir()} == {"meshes", "scene.xml"}
    assert mujoco.get_mju_user_warning() is None


@pytest.mark.parametrize(
    ("place", "entry"), [('pos="0.3 -0.2 0.5"', ""), ('pos="0 0 -1"', "geom 'slab': ")]
)
def test_positions_that_mujoco_lets_pass(place, entry, tmp_path):
    path, _ = write(tmp_path, MODEL.replace(place, 'pos="1e300 0 0"'))
    # Older MuJoCo has a word for the first of these itself.
    message = rf"scene\.xml: ({entry}positions .* below 1e100, got|Nan, Inf or huge value in QPOS)"
    with pytest.raises(ValueError, match=message):
        load_world_file(path)


def test_without_mujoco(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "mujoco", None)
    path, _ = write(tmp_path)
    with pytest.raises(ImportError, match=r"needs mujoco: pip install 'warp-collision\[mujoco\]'"):
        load_world_file(path)
