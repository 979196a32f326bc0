"""USD stages as scenes: units, axes, shapes under any transform, polygons, what collides."""

import time

import numpy as np
import pytest
import torch
import trimesh

from reference import Body, Obstacle
from warp_collision import (
    Capsule,
    Cone,
    Cuboid,
    Cylinder,
    HalfSpace,
    MeshWorld,
    Sphere,
    signed_distance,
)
from warp_collision.io import LeftOutWarning, load_world_file
from world_distances import assert_distances, exact, random_frame, solid

pytest.importorskip("pxr", reason="usd-core reads USD: pip install '.[usd]'")
from pxr import Gf, Usd, UsdGeom, UsdPhysics  # after the check

from usd_stages import define_mesh, instanced, put, stage_at

Y_UP = trimesh.transformations.rotation_matrix(np.pi / 2, [1, 0, 0])


@pytest.mark.parametrize("ending", ["usda", "usdc"])
@pytest.mark.parametrize("up", ["Y", "Z"])
@pytest.mark.parametrize("metres", [1.0, 0.01])
def test_shapes_and_meshes_in_metres_with_z_up(metres, up, ending, tmp_path):
    rng = np.random.default_rng(5)
    path = tmp_path / f"scene.{ending}"
    # usd-core writes what is its own default, too: where nothing is said it is centimetres, y up.
    stage = stage_at(path, None if metres == 0.01 else metres, None if up == "Y" else up)
    world_from_stage = (Y_UP if up == "Y" else np.eye(4)) @ np.diag([metres] * 3 + [1.0])
    unit = 1.0 / metres
    frames = [random_frame(rng, unit) for _ in range(8)]
    group = UsdGeom.Xform.Define(stage, "/World")
    put(group.GetPrim(), frames[0])
    bodies: list[Body | Obstacle] = []

    def placed(prim, matrix: np.ndarray) -> np.ndarray:
        put(prim.GetPrim(), matrix)
        full = world_from_stage @ frames[0] @ matrix
        rigid = full.copy()
        rigid[:3, :3] /= np.linalg.norm(full[:3, :3], axis=0)
        return rigid

    cube = UsdGeom.Cube.Define(stage, "/World/cube")  # of size 2
    scale = np.diag([0.1 * unit, -0.2 * unit, 0.3 * unit, 1.0])
    bodies.append(exact("cuboid", 0.2, 0.4, 0.6, at=placed(cube, frames[1] @ scale)))
    ball = UsdGeom.Sphere.Define(stage, "/World/ball")
    ball.CreateRadiusAttr(0.2 * unit)
    bodies.append(exact("sphere", 0.3, at=placed(ball, frames[2] @ np.diag([1.5, 1.5, 1.5, 1.0]))))
    can = UsdGeom.Cylinder.Define(stage, "/World/can")
    can.CreateRadiusAttr(0.1 * unit)
    can.CreateHeightAttr(0.5 * unit)
    matrix = frames[3] @ np.diag([2.0, 2.0, 3.0, 1.0])
    bodies.append(exact("cylinder", 0.2, 1.5, at=placed(can, matrix)))
    rod = UsdGeom.Capsule.Define(stage, "/World/rod")
    rod.CreateAxisAttr("X")
    rod.CreateRadiusAttr(0.1 * unit)
    rod.CreateHeightAttr(0.7 * unit)
    along_x = trimesh.transformations.rotation_matrix(np.pi / 2, [0, 1, 0])
    bodies.append(exact("capsule", 0.1, 0.7, at=placed(rod, frames[4]) @ along_x))
    solid_mesh = trimesh.creation.box((0.4, 0.6, 0.8))
    solid_mesh.vertices[0] *= 1.5  # no cuboid any more
    solid_mesh.vertices *= unit
    shear = np.array([[1, 0.5, 0, 0], [0, 1, 0.2, 0], [0, 0, -1, 0], [0, 0, 0, 1]])
    mesh = define_mesh(
        stage, "/World/mesh", solid_mesh.vertices, [3] * 12, solid_mesh.faces.ravel()
    )
    placed(mesh, frames[5] @ shear)
    bodies.append(solid(solid_mesh, world_from_stage @ frames[0] @ frames[5] @ shear))
    stage.GetRootLayer().Save()

    world = MeshWorld.from_file(path, device="cpu", strict=True)

    assert world.names() == [f"World/{name}" for name in ("cube", "ball", "can", "rod", "mesh")]
    kinds = [type(world.report(name).shape) for name in world.names()]
    assert kinds == [Cuboid, Sphere, Cylinder, Capsule, type(None)]
    assert_distances(world, bodies, rng, atol=1e-5)


def test_sheared_shapes_are_contained_in_their_meshes(tmp_path):
    stage = stage_at(tmp_path / "scene.usda")
    ball = UsdGeom.Sphere.Define(stage, "/ball")
    put(ball.GetPrim(), np.diag([1.0, 2.0, 3.0, 1.0]))
    can = UsdGeom.Cylinder.Define(stage, "/can")
    put(can.GetPrim(), np.diag([1.0, 2.0, 1.0, 1.0]))
    stage.GetRootLayer().Save()
    found = load_world_file(tmp_path / "scene.usda")
    ellipsoid, can_mesh = found["ball"].geometry, found["can"].geometry
    assert np.linalg.norm(ellipsoid.vertices / (1.0, 2.0, 3.0), axis=1).max() <= 1.003
    assert ellipsoid.volume >= 4.0 / 3.0 * np.pi * 6.0
    assert np.linalg.norm((can_mesh.vertices / (1.0, 2.0, 1.0))[:, :2], axis=1).max() <= 1.003
    assert can_mesh.volume >= np.pi * 2.0 * 2.0


@pytest.mark.parametrize("mirrored", [1.0, -1.0])
@pytest.mark.parametrize("axis", ["X", "Y", "Z"])
def test_cones_are_exact_whatever_their_axis(axis, mirrored, tmp_path):
    rng = np.random.default_rng(8)
    frame, scale = random_frame(rng), np.array([1.5, 1.5, 1.5])
    scale["XYZ".index(axis)] = 2.0 * mirrored
    stage = stage_at(tmp_path / "scene.usda", 1.0, "Z")
    pylon = UsdGeom.Cone.Define(stage, "/pylon")
    pylon.CreateRadiusAttr(0.2)
    pylon.CreateHeightAttr(0.6)
    pylon.CreateAxisAttr(axis)
    put(pylon.GetPrim(), frame @ np.diag([*scale, 1.0]))
    stage.GetRootLayer().Save()
    world = MeshWorld.from_file(tmp_path / "scene.usda", device="cpu", strict=True)
    shape = world.report("pylon").shape
    assert isinstance(shape, Cone)
    assert (shape.radius, shape.height) == pytest.approx((0.3, 1.2))
    tip = mirrored * np.eye(3)["XYZ".index(axis)]
    expected = frame @ trimesh.geometry.align_vectors([0, 0, 1], tip)
    assert_distances(world, [exact("cone", 0.3, 1.2, at=expected)], rng, atol=1e-5)


@pytest.mark.parametrize(("bottom", "top"), [(0.3, 0.1), (0.1, 0.4), (0.25, 0.0), (0.0, 0.2)])
def test_tapered_cylinders_are_contained_in_their_meshes(bottom, top, tmp_path):
    rng = np.random.default_rng(9)
    frame, height = random_frame(rng), 0.6
    stage = stage_at(tmp_path / "scene.usda", 1.0, "Z")
    cup = UsdGeom.Cylinder_1.Define(stage, "/cup")
    cup.CreateRadiusBottomAttr(bottom)
    cup.CreateRadiusTopAttr(top)
    cup.CreateHeightAttr(height)
    cup.CreateAxisAttr("Y")
    put(cup.GetPrim(), frame)
    stage.GetRootLayer().Save()
    world = MeshWorld.from_file(tmp_path / "scene.usda", device="cpu", strict=True)
    # On the surface, where a share of the way up has a radius between the two.
    share, angle = rng.random(500), rng.uniform(0.0, 2.0 * np.pi, 500)
    radius = bottom + (top - bottom) * share
    x, z = radius * np.cos(angle), radius * np.sin(angle)
    points = trimesh.transform_points(np.stack((x, height * (share - 0.5), z), axis=1), frame)
    distance = signed_distance(torch.tensor(points, dtype=torch.float32), world).distance.numpy()
    assert distance.max() < 1e-6
    assert distance.min() > -0.0025 * max(bottom, top)
    assert world.report("cup").closed
    volume = load_world_file(tmp_path / "scene.usda")["cup"].geometry.volume
    truth = np.pi * height * (bottom**2 + bottom * top + top**2) / 3.0
    assert truth < volume < 1.001 * truth  # also: its faces look outward


@pytest.mark.parametrize(
    ("bottom", "top", "length"),
    [(0.3, 0.1, 0.6), (0.1, 0.3, 0.4), (0.25, 0.0, 0.5), (0.0, 0.2, 0.3), (0.3, 0.2, 0.0)],
)
def test_tapered_capsules_are_contained_in_their_meshes(bottom, top, length, tmp_path):
    rng = np.random.default_rng(10)
    frame = random_frame(rng)
    stage = stage_at(tmp_path / "scene.usda", 1.0, "Z")
    pin = UsdGeom.Capsule_1.Define(stage, "/pin")
    pin.CreateRadiusBottomAttr(bottom)
    pin.CreateRadiusTopAttr(top)
    pin.CreateHeightAttr(length)
    put(pin.GetPrim(), frame)
    stage.GetRootLayer().Save()
    world = MeshWorld.from_file(tmp_path / "scene.usda", device="cpu", strict=True)
    # On the surface: a truncated cone between two half spheres.
    share, angle = rng.random(2000), rng.uniform(0.0, 2.0 * np.pi, 2000)
    latitude = 0.5 * np.pi * rng.random(2000)
    part = rng.integers(0, 3, 2000)
    radius = np.choose(part, (bottom * np.cos(latitude), bottom + (top - bottom) * share,
                              top * np.cos(latitude)))  # fmt: skip
    z = np.choose(part, (-0.5 * length - bottom * np.sin(latitude), length * (share - 0.5),
                         0.5 * length + top * np.sin(latitude)))  # fmt: skip
    points = np.stack((radius * np.cos(angle), radius * np.sin(angle), z), axis=1)
    if length == 0.0:  # the ring between the half spheres is in the larger of the two
        points = points[part != 1]
    points = trimesh.transform_points(points, frame)
    distance = signed_distance(torch.tensor(points, dtype=torch.float32), world).distance.numpy()
    assert distance.max() < 1e-6
    assert distance.min() > -0.0025 * max(bottom, top)
    assert world.report("pin").closed
    volume = load_world_file(tmp_path / "scene.usda")["pin"].geometry.volume
    truth = np.pi * length * (bottom**2 + bottom * top + top**2) / 3.0
    truth += 2.0 / 3.0 * np.pi * (bottom**3 + top**3)
    assert truth < volume < 1.004 * truth


def test_concave_polygons_holes_and_left_handed_faces(tmp_path):
    # A prism over an L: two concave hexagons and six quads; counted so that it looks inward.
    outline = np.array([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]], float)
    points = np.concatenate([np.column_stack((outline, np.full(6, z))) for z in (0.0, 1.0)])
    quads = [[i, (i + 1) % 6, (i + 1) % 6 + 6, i + 6] for i in range(6)]
    faces = [list(range(5, -1, -1)), list(range(6, 12)), *quads]
    faces.append([0, 1, 7])  # a face that is a hole
    backwards = [face[::-1] for face in faces]
    stage = stage_at(tmp_path / "scene.usda")
    for name, some, orientation in (
        ("right", faces, "rightHanded"),
        ("left", backwards, "leftHanded"),
    ):
        indices = [corner for face in some for corner in face]
        mesh = define_mesh(stage, f"/{name}", points, [len(f) for f in some], indices)
        mesh.CreateHoleIndicesAttr([8])
        mesh.CreateOrientationAttr(orientation)
    stage.GetRootLayer().Save()
    for mesh, *_ in load_world_file(tmp_path / "scene.usda").values():
        assert mesh.is_watertight
        assert mesh.volume == pytest.approx(3.0)
        assert mesh.area == pytest.approx(2 * 3.0 + 8.0)  # a fan of an L would have more


def test_what_collides_is_what_has_a_collision_api(tmp_path):
    stage = stage_at(tmp_path / "scene.usda")
    UsdGeom.Xform.Define(stage, "/table")
    UsdPhysics.CollisionAPI.Apply(stage.GetPrimAtPath("/table"))
    UsdGeom.Cube.Define(stage, "/table/top")
    hidden = UsdGeom.Cube.Define(stage, "/table/hidden")
    hidden.CreateVisibilityAttr("invisible")
    off = UsdGeom.Cube.Define(stage, "/table/off")
    UsdPhysics.CollisionAPI.Apply(off.GetPrim()).CreateCollisionEnabledAttr(False)
    UsdGeom.Sphere.Define(stage, "/look")
    stage.GetRootLayer().Save()
    with pytest.warns(LeftOutWarning) as caught:
        assert set(load_world_file(tmp_path / "scene.usda")) == {"table/top", "table/hidden"}
    assert dict(caught[0].message.entries) == {  # pyright: ignore
        "table/off": "a Cube: its collision is off",
        "look": "a Sphere: it has no collision API",
    }


def test_what_a_world_has_not_is_named(tmp_path):
    stage = stage_at(tmp_path / "scene.usda")
    UsdGeom.Cube.Define(stage, "/cube")
    UsdGeom.Plane.Define(stage, "/floor")
    UsdGeom.Points.Define(stage, "/cloud")
    UsdGeom.Sphere.Define(stage, "/hidden").CreateVisibilityAttr("invisible")
    UsdGeom.Sphere.Define(stage, "/guide").CreatePurposeAttr("guide")
    UsdGeom.Sphere.Define(stage, "/guide/below")
    UsdGeom.Sphere.Define(stage, "/guide/drawn").CreatePurposeAttr("render")
    stage.DefinePrim("/odd", "RoundedBox")
    UsdGeom.Cylinder_1.Define(stage, "/even")
    define_mesh(stage, "/empty", [], [], [])
    UsdGeom.Xform.Define(stage, "/group")
    UsdGeom.Camera.Define(stage, "/camera")
    stage.GetRootLayer().Save()
    with pytest.warns(LeftOutWarning) as caught:
        loaded = load_world_file(tmp_path / "scene.usda")
    assert set(loaded) == {"cube", "floor", "even", "guide/drawn"}
    reasons = dict(caught[0].message.entries)  # pyright: ignore
    below = ("guide", "guide/below")
    assert set(reasons) == {"cloud", "hidden", *below, "odd", "empty"}
    assert reasons["guide/below"] == "a Sphere: its purpose is guide"
    with pytest.raises(ValueError, match="cloud"):
        load_world_file(tmp_path / "scene.usda", strict=True)


def test_planes_have_no_end(tmp_path):
    """In the stage's unit with y up: a floor, a wall along x, one that is turned and scaled."""
    stage = stage_at(tmp_path / "scene.usda", 0.01, "Y")
    UsdGeom.Plane.Define(stage, "/floor").CreateAxisAttr("Y")
    wall = UsdGeom.Plane.Define(stage, "/wall")
    wall.CreateAxisAttr("X")
    UsdGeom.XformCommonAPI(wall).SetTranslate((-150.0, 0.0, 0.0))
    ramp = UsdGeom.XformCommonAPI(UsdGeom.Plane.Define(stage, "/ramp"))
    ramp.SetTranslate((0.0, -40.0, 0.0))
    ramp.SetRotate((-70.0, 0.0, 0.0))
    ramp.SetScale((1.0, 2.0, 3.0))
    stage.GetRootLayer().Save()
    world = MeshWorld.from_file(tmp_path / "scene.usda", strict=True)
    shapes = {name: obstacle.geometry for name, obstacle in world.obstacles().items()}
    assert shapes["floor"] == HalfSpace((0.0, 0.0, 1.0))
    assert shapes["wall"] == HalfSpace((1.0, 0.0, 0.0))
    points = np.random.default_rng(5).uniform(-3.0, 3.0, (500, 3)).astype(np.float32)
    x, y, z = points.T
    angle = np.radians(20.0)  # the normal of the ramp is z of the stage, turned by -70 degrees
    ramps = np.cos(angle) * (z + 0.4) - np.sin(angle) * y
    found = signed_distance(torch.from_numpy(points)[None], world).distance[0].numpy()
    np.testing.assert_allclose(found, np.minimum(np.minimum(z, x + 1.5), ramps), atol=3e-6)


def test_instances_references_and_the_earliest_time(tmp_path):
    part = stage_at(tmp_path / "part.usda")
    part.SetDefaultPrim(UsdGeom.Xform.Define(part, "/part").GetPrim())
    UsdGeom.Cube.Define(part, "/part/cube")
    part.GetRootLayer().Save()
    stage = stage_at(tmp_path / "scene.usda")
    for index in range(2):
        prim = stage.DefinePrim(f"/copy{index}", "Xform")
        prim.GetReferences().AddReference("./part.usda")
        prim.SetInstanceable(True)
        UsdGeom.Xformable(prim).AddTranslateOp().Set(Gf.Vec3d(10.0 * index, 0, 0))
    ball = UsdGeom.Sphere.Define(stage, "/ball")
    ball.CreateRadiusAttr().Set(0.5, Usd.TimeCode(3.0))
    ball.GetRadiusAttr().Set(0.25, Usd.TimeCode(1.0))
    stage.GetRootLayer().Save()
    found = load_world_file(tmp_path / "scene.usda")
    assert set(found) == {"copy0/cube", "copy1/cube", "ball"}
    assert found["copy1/cube"].pose[:3] == (10.0, 0.0, 0.0)
    assert found["ball"].geometry == Sphere(0.25)


def broken(edit) -> str:
    """The text of a stage with a mesh, after an edit."""
    stage = Usd.Stage.CreateInMemory()
    UsdGeom.Cube.Define(stage, "/cube")
    mesh = define_mesh(stage, "/mesh", np.eye(3), [3], [0, 1, 2])
    edit(stage, mesh)
    return stage.GetRootLayer().ExportToString()


BROKEN = {
    "bytes that are no text": ("#usda 1.0\ndef Cube \xe5 {}\n", "scene.usda: ErrorException"),
    "garbage": ("garbage", "is not a valid usda layer|Failed to open"),
    "cut": ('#usda 1.0\ndef Cube "a" {', "Failed to open|Error"),
    "a reference to nothing": (
        broken(lambda s, _: s.GetPrimAtPath("/cube").GetReferences().AddReference("./none.usda")),
        "all parts of a stage must open, got .*none.usda",
    ),
    "counts that lie": (
        broken(lambda _, m: m.GetFaceVertexCountsAttr().Set([4])),
        r"mesh: faceVertexCounts must be 3 or more and add up to 3, got \[4\]",
    ),
    "two corners": (
        broken(lambda _, m: m.GetFaceVertexCountsAttr().Set([2, 1])),
        "mesh: faceVertexCounts must be 3 or more",
    ),
    "a negative count": (
        broken(lambda _, m: m.GetFaceVertexCountsAttr().Set([-3, 6])),
        "mesh: faceVertexCounts must be 3 or more",
    ),
    "indices that lie": (
        broken(lambda _, m: m.GetFaceVertexIndicesAttr().Set([0, 1, 3])),
        "mesh: faceVertexIndices must be from 0 to 2, got 0 to 3",
    ),
    "points of NaN": (
        broken(lambda _, m: m.GetPointsAttr().Set([Gf.Vec3f(float("nan"))] * 3)),
        "mesh: points must be finite",
    ),
    "a flat transform": (
        broken(lambda s, _: put(s.GetPrimAtPath("/cube"), np.diag([1.0, 0.0, 1.0, 1.0]))),
        "cube: the transform must be finite and invertible",
    ),
    "a far transform": (
        broken(lambda s, _: UsdGeom.Xformable(s.GetPrimAtPath("/cube")).AddTranslateOp().Set(
            Gf.Vec3d(1e12, 0, 0)
        )),
        "cube: the transform must be finite",
    ),
    "a negative size": (
        broken(lambda s, _: UsdGeom.Cube(s.GetPrimAtPath("/cube")).CreateSizeAttr(-1.0)),
        "cube: dims must be positive",
    ),
    "instances of nothing": (
        broken(lambda s, _: instanced(s, "/none", [0])),
        "many: prototypes must be prims of the stage, got '/none'",
    ),
    "instances of a number": (
        broken(lambda s, _: instanced(s, "/cube.size", [0])),
        "many: prototypes must be prims of the stage, got '/cube.size'",
    ),
    "another prototype": (
        broken(lambda s, _: instanced(s, "/cube", [0, 1])),
        "many: protoIndices must be 0 to 0, got 1",
    ),
    "an instancer of itself": (
        broken(lambda s, _: instanced(s, "/many", [0])),
        "many: a prototype must not hold itself, got '/many'",
    ),
    "positions that lie": (
        broken(lambda s, _: instanced(s, "/cube", [0, 0]).CreatePositionsAttr([Gf.Vec3f(1)])),
        "many: positions, orientations and scales must be 2, as protoIndices",
    ),
    "ids that lie": (
        broken(lambda s, _: instanced(s, "/cube", [0, 0]).CreateIdsAttr([3])),
        "many: ids must be 2, as protoIndices, got 1",
    ),
    "positions of NaN": (
        broken(lambda s, _: instanced(s, "/cube", [0]).CreatePositionsAttr([Gf.Vec3f(np.nan)])),
        "many/0: the transform must be finite and invertible",
    ),
    "instances of instances of instances": (
        broken(lambda s, _: [
            instanced(s, f"/many{i + 1}" if i < 5 else "/cube", [0] * 100, f"/many{i}")
            for i in range(6)
        ]),
        "instances must come to at most 100000 prims, got more",
    ),
    "value clips": (
        broken(lambda s, _: Usd.ClipsAPI(s.GetPrimAtPath("/cube")).SetClipPrimPath("/x")),
        "cube: it must not have value clips",
    ),
    "a tapered capsule of no size": (
        broken(lambda s, _: UsdGeom.Capsule_1.Define(s, "/pin").CreateRadiusTopAttr(-1.0)),
        "pin: radii and height must not be negative, got 0.5, -1.0 and 1.0",
    ),
    "a layer elsewhere": (
        broken(lambda s, _: s.GetPrimAtPath("/cube").GetReferences().AddReference("../far.usda")),
        "layers must lie in the folder of the file or below, or in package_dirs, got '.*far.usda'",
    ),
    "a sublayer elsewhere": (
        broken(lambda s, _: s.GetRootLayer().subLayerPaths.append("/dev/null.usda/../zero")),
        "layers must lie in the folder .* got '/dev/zero'|all parts of a stage must open",
    ),
    "units of nothing": (
        broken(lambda s, _: s.SetMetadata("metersPerUnit", 0.0)),
        "metersPerUnit must be positive, got 0.0",
    ),
    "a huge concave polygon": (
        broken(lambda s, _: define_mesh(
            s, "/star", [[np.cos(i), np.sin(i), 0.1 * (i % 2)] for i in range(3_000)],
            [3_000], range(3_000),
        )),
        "star: squared corners of concave polygons must be at most 4000000, got 9000000",
    ),
    "nothing": ("#usda 1.0\n", "holds no obstacle"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_wrong_and_hostile_files(name, tmp_path):
    text, message = BROKEN[name]
    (tmp_path / "far.usda").write_text("#usda 1.0\n")
    (tmp_path / "near").mkdir()
    path = tmp_path / "near" / "scene.usda"
    path.write_bytes(text.encode("latin-1"))
    begin = time.process_time()  # the process that parses has a limit of its own
    with pytest.raises(ValueError, match=message) as raised:
        load_world_file(path)
    assert str(raised.value).startswith(str(path))
    assert str(raised.value).isprintable()
    assert time.process_time() - begin < 10.0


def test_large_files_are_not_opened(tmp_path):
    path = tmp_path / "scene.usdc"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)  # takes no space
    with pytest.raises(
        ValueError, match="a file and its layers must have at most 1073741824 bytes, got"
    ):
        load_world_file(path)


def test_without_usd(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pxr.Usd", None)
    (tmp_path / "scene.usda").write_text("#usda 1.0\n")
    with pytest.raises(ImportError, match=r"needs usd-core: pip install 'warp-collision\[usd\]'"):
        load_world_file(tmp_path / "scene.usda")
