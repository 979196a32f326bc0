"""MuJoCo models as scenes, compared with MuJoCo's own kinematics."""

import struct
import time

import numpy as np
import pytest
import torch
import trimesh

from hostile_files import LAUGHS
from hostile_images import png
from warp_collision import Capsule, Cuboid, Cylinder, HalfSpace, MeshWorld, Sphere, signed_distance
from warp_collision.io import LeftOutWarning, load_world_file
from warp_collision.io.placing import matrix_from
from warp_collision.obstacles.shapes import mesh_of
from world_distances import assert_distances, exact, solid

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
    <mujoco><worldbody>
      <geom name="floor" type="plane" size="0 0 1"/>
      <geom name="look" type="sphere" size="1" contype="0" conaffinity="0"/>
      <geom name="drawn" type="plane" size="1 1 1" contype="0" conaffinity="0"/>
      <geom name="half" type="sphere" size="1" contype="0"/>
      <body name="b"><freejoint/>
        <geom name="paired" type="sphere" size="1" contype="0" conaffinity="0"/></body>
    </worldbody><contact><pair geom1="paired" geom2="floor"/></contact></mujoco>
    """
    path, _ = write(tmp_path, text)
    with pytest.warns(LeftOutWarning, match="geom 'look' .it collides with nothing") as caught:
        assert list(load_world_file(path)) == ["floor", "half", "paired"]
    entries = [entry for entry, _ in caught[0].message.entries]  # pyright: ignore
    assert entries == ["geom 'look'", "geom 'drawn'"]
    with pytest.raises(ValueError, match=r"geom 'look' .it collides with nothing"):
        load_world_file(path, strict=True)


def test_planes_have_no_end(tmp_path):
    """Solid below, wherever the model's frames turn and move them."""
    text = """
    <mujoco><worldbody>
      <geom name="floor" type="plane" size="0 0 1" pos="0.5 0 -0.2"/>
      <geom name="wall" type="plane" size="3 2 1" zaxis="-1 0 0" pos="2 0 0"/>
      <body pos="0 0 -1" euler="0 30 10">
        <geom name="ramp" type="plane" size="0 0 1" euler="5 0 0" pos="0.3 0 0.1"/>
      </body>
    </worldbody></mujoco>
    """
    path, _ = write(tmp_path, text)
    model = mujoco.MjModel.from_xml_path(str(path))
    obstacles = load_world_file(path)
    assert obstacles["floor"].geometry == HalfSpace((0.0, 0.0, 1.0))
    assert obstacles["wall"].geometry == HalfSpace((-1.0, 0.0, 0.0))
    world = MeshWorld.from_file(path)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    points = np.random.default_rng(5).uniform(-3.0, 3.0, (500, 3)).astype(np.float32)
    heights = [
        (points - data.geom(name).xpos) @ data.geom(name).xmat.reshape(3, 3)[:, 2]
        for name in obstacles
    ]
    found = signed_distance(torch.from_numpy(points)[None], world).distance[0].numpy()
    np.testing.assert_allclose(found, np.min(heights, axis=0), rtol=0, atol=3e-6)


def height_fields(folder, source: str, n_rows: int = 7, n_columns: int = 10):
    """An MJCF file with a height field of random heights, inline, binary or as an image."""
    heights = np.random.default_rng(21).integers(0, 256, (n_rows, n_columns))
    (folder / "terrain").mkdir(exist_ok=True)
    given = 'file="hill.png"' if source == "image" else 'file="below/hill.bin"'
    if source == "inline":
        words = " ".join(map(str, heights.ravel()))
        given = f'nrow="{n_rows}" ncol="{n_columns}" elevation="{words}"'
    elif source == "image":
        (folder / "terrain" / "hill.png").write_bytes(png(heights))
    else:
        data = struct.pack("<2i", n_rows, n_columns) + heights.astype("<f4").tobytes()
        (folder / "terrain" / "hill.bin").write_bytes(data)
    strip = ' strippath="true"' if source == "binary" else ""
    text = f"""
    <mujoco><compiler meshdir="terrain"{strip}/>
    <asset><hfield name="h" {given} size="0.9 0.6 0.5 0.2"/></asset>
    <worldbody>
      <body pos="0.3 -0.2 0.5" quat="1 2 3 4"><geom name="hill" type="hfield" hfield="h"
        pos="0.1 0.2 -0.1" euler="20 30 40"/></body>
    </worldbody></mujoco>
    """
    return write(folder, text)[0]


@pytest.mark.skipif(
    int(mujoco.__version__.split(".")[0]) < 4,
    reason="rays of MuJoCo before 4 end in wrong places at the sides of height fields",
)
@pytest.mark.parametrize("source", ["inline", "binary", "image"])
def test_height_fields_are_those_of_mujoco(source, tmp_path):
    path = height_fields(tmp_path, source)
    world = MeshWorld.from_file(path, device="cpu", strict=True)
    assert world.report("hill").closed
    rng = np.random.default_rng(22)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    # Rays from everywhere: they end where MuJoCo says, on the top, the sides and the bottom.
    to = data.geom_xpos[0] + rng.uniform(-0.5, 0.5, (3_000, 3))
    start = data.geom_xpos[0] + 4.0 * unit(rng.normal(size=(3_000, 3)))
    away = unit(to - start)
    hit = np.zeros(1, np.int32)
    length = np.array(
        [mujoco.mj_ray(model, data, p, v, None, 1, -1, hit) for p, v in zip(start, away)]  # noqa: B905
    )
    assert (length > 0.0).mean() > 0.5
    ends = start + length[:, None] * away
    local = (ends - data.geom_xpos[0]) @ data.geom_xmat[0].reshape(3, 3)
    for side in (local[:, 2] > 1e-6, abs(local[:, 0]) > 0.9 - 1e-6, local[:, 2] < -0.2 + 1e-6):
        assert ((length > 0.0) & side).sum() > 100

    def distance(points: np.ndarray) -> np.ndarray:
        tensor = torch.tensor(points, dtype=torch.float32)
        return signed_distance(tensor, world).distance.numpy()

    struck = length > 0.0
    np.testing.assert_allclose(distance(ends[struck]), 0.0, rtol=0, atol=2e-6)
    # Before its end a ray is outside; one that strikes nothing is outside everywhere.
    for share in rng.uniform(0.0, 0.999, (5, struck.sum(), 1)):
        assert distance(start[struck] + share * length[struck, None] * away[struck]).min() > 0.0
    for share in rng.uniform(0.0, 8.0, (5, (~struck).sum(), 1)):
        assert distance(start[~struck] + share * away[~struck]).min() > 0.0
    # Behind it there is the body, and nothing but this mesh: one of the same volume.
    assert (distance(ends[struck] + 1e-4 * away[struck]) < 0.0).mean() > 0.99
    heights = model.hfield_data.reshape(7, 10) * 0.5 + 0.2
    cells = np.lib.stride_tricks.sliding_window_view(heights, (2, 2))
    wedge = np.array([[2.0, 1.0], [1.0, 2.0]]) / 6.0  # the diagonal belongs to both triangles
    volume = (cells * wedge).sum() * (1.8 / 9) * (1.2 / 6)
    assert mesh_of(load_world_file(path)["hill"].geometry).volume == pytest.approx(volume)


def test_height_fields_have_the_distance_of_the_reference(tmp_path):
    path = height_fields(tmp_path, "inline", 5, 40)
    found = load_world_file(path)["hill"]
    assert_distances(
        MeshWorld.from_file(path, device="cpu"),
        [solid(mesh_of(found.geometry), matrix_from(found.pose))],
        np.random.default_rng(23),
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_flat_height_field_is_a_plate(tmp_path):
    text = """<mujoco><asset><hfield name="h" nrow="30" ncol="20" size="1 2 1 0.25"/></asset>
    <worldbody><geom type="hfield" hfield="h"/></worldbody></mujoco>"""
    world = MeshWorld.from_file(write(tmp_path, text)[0], device="cpu", strict=True)
    at = np.eye(4)
    at[2, 3] = -0.125
    body = exact("cuboid", 2.0, 4.0, 0.25, at=at)
    assert_distances(world, [body], np.random.default_rng(4))


def test_a_signed_distance_field_of_a_mesh_is_that_mesh(tmp_path):
    text = """<mujoco><asset><mesh name="m" file="meshes/cone.stl"/></asset>
    <worldbody><geom name="g" type="sdf" mesh="m"/></worldbody></mujoco>"""
    path, cone = write(tmp_path, text)
    try:
        mujoco.MjModel.from_xml_path(str(path))
    except ValueError:
        pytest.skip("this MuJoCo has them by plugins alone")
    world = MeshWorld.from_file(path, device="cpu", strict=True)
    assert_distances(world, [solid(cone)], np.random.default_rng(5), atol=1e-5)


def test_files_that_changed_within_a_second_are_read_anew(tmp_path):
    for n_rows in (3, 4, 5):
        found = load_world_file(height_fields(tmp_path, "binary", n_rows, 6))["hill"]
        assert found.geometry.heights.shape == (6, n_rows)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (png(np.zeros((4, 3)), 2_500_001), "error decoding PNG file"),
        (png(np.zeros((4_000, 4_000)), 9), "error decoding PNG file"),
        (png(np.zeros((4, 3)))[:20], "error decoding PNG file"),
        (
            png(np.zeros((4, 3)))[:-30] + bytes(30),
            "error decoding PNG file",
        ),
        (struct.pack("<2i", 100_000, 100_000), "unexpected file size"),
        (struct.pack("<2i9f", 3, 3, *[float("nan")] * 9), "invalid data range"),
        (struct.pack("<2i4f", 2, 2, 0, 1, 2, float("inf")), "heights must be finite"),
    ],
)
def test_hostile_height_fields(data, message, tmp_path):
    name = "hill.png" if data.startswith(b"\x89PNG") else "hill.bin"
    text = f"""<mujoco><asset><hfield name="h" file="{name}" size="1 1 1 1"/></asset>
    <worldbody><geom type="hfield" hfield="h"/></worldbody></mujoco>"""
    path, _ = write(tmp_path, text)
    (tmp_path / name).write_bytes(data)
    begin = time.process_time()  # the process that parses has a limit of its own
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(raised.value).startswith(str(path))
    assert time.process_time() - begin < 5.0


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
        ("<mujoco>", "XML parse error"),
        ("<sdf/>", "Unrecognized XML model type: 'sdf'"),
        ("<mujoco/>", "holds no obstacle"),
        (f"<!DOCTYPE l [{LAUGHS}]><mujoco>&l9;</mujoco>", "holds no obstacle"),
        ("<mujoco>" + "<body>" * 9999 + "</body>" * 9999 + "</mujoco>", "XML parse error"),
        ("<mujoco><worldbody><geom/></worldbody></mujoco>", "size 0 must be positive"),
        ('<mujoco><include file="none.xml"/></mujoco>', "Error opening file 'none.xml'"),
        ('<mujoco><include file="scene.xml"/></mujoco>', "File 'scene.xml' already included"),
        (
            '<mujoco><asset><mesh name="m" file="none.stl"/></asset><worldbody>'
            '<geom type="mesh" mesh="m"/></worldbody></mujoco>',
            "none.stl",
        ),
        pytest.param(
            f'<mujoco><worldbody><replicate count="1000"><replicate count="1000">{GEOM}'
            "</replicate></replicate></worldbody></mujoco>",
            "in 3 s and 1024 MiB, .* got",
            marks=pytest.mark.slow,
        ),
        (
            '<mujoco><asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>'
            f"<worldbody>{GEOM}</worldbody></mujoco>",
            "MuJoCo must .* got|unknown exception",
        ),
        (
            f'<mujoco><size nuser_geom="2000000000"/><worldbody>{GEOM}</worldbody></mujoco>',
            "MuJoCo must .* got|unknown exception",
        ),
        (
            f'<mujoco><worldbody><replicate count="many">{GEOM}</replicate></worldbody></mujoco>',
            "bad format in attribute 'count'",
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
    begin = time.process_time()  # the process that parses has a limit of its own
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(raised.value).startswith(str(path))
    assert str(raised.value).isprintable()
    assert time.process_time() - begin < 20.0


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
