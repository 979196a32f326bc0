"""What USD stages are made of: instances of any kind, and layers within bounds."""

import os

import numpy as np
import pytest
import trimesh

from reference import Body
from warp_collision import Cuboid, MeshWorld
from warp_collision.formats import usd_stage
from warp_collision.io import LeftOutWarning, load_world_file, scene_builder
from world_distances import assert_distances, exact, random_frame, solid

pytest.importorskip("pxr", reason="usd-core reads USD: pip install '.[usd]'")
from pxr import Sdf, UsdGeom, UsdPhysics, UsdUtils  # after the check

from usd_stages import add_instances, define_mesh, put, stage_at

Y_UP = trimesh.transformations.rotation_matrix(np.pi / 2, [1, 0, 0])


def scaled(kind: str, *sizes: float, at: np.ndarray) -> Body:
    """A shape under a transform of an even scale."""
    scale = float(np.cbrt(np.linalg.det(at[:3, :3])))
    rigid = at.copy()
    rigid[:3, :3] /= scale
    return exact(kind, *(scale * size for size in sizes), at=rigid)


@pytest.mark.parametrize("physics", [False, True])
def test_instances_of_a_point_instancer(physics, tmp_path):
    rng = np.random.default_rng(31)
    stage = stage_at(tmp_path / "scene.usda", 0.1, "Y")
    to_metres = Y_UP @ np.diag([0.1, 0.1, 0.1, 1.0])
    group, own, *frames = (random_frame(rng) for _ in range(6))
    put(UsdGeom.Xform.Define(stage, "/group").GetPrim(), group)
    instancer = UsdGeom.PointInstancer.Define(stage, "/group/many")
    put(instancer.GetPrim(), own)
    # One prototype below the instancer, of two parts; one that is a shape; one that is a class.
    lamp = UsdGeom.Xform.Define(stage, "/group/many/lamp")
    put(lamp.GetPrim(), frames[0])
    rod = UsdGeom.Cylinder.Define(stage, "/group/many/lamp/rod")
    rod.CreateRadiusAttr(0.5)
    rod.CreateHeightAttr(4.0)
    put(rod.GetPrim(), frames[1])
    ball = UsdGeom.Sphere.Define(stage, "/group/many/lamp/ball")
    put(ball.GetPrim(), frames[2])
    unseen = UsdGeom.Scope.Define(stage, "/unseen")
    unseen.CreateVisibilityAttr("invisible")  # of what stands there, not of the instances
    crate = UsdGeom.Cube.Define(stage, "/unseen/crate")
    put(crate.GetPrim(), frames[3])
    stage.CreateClassPrim("/kept")
    solid_mesh = trimesh.creation.icosahedron()
    define_mesh(stage, "/kept/rock", solid_mesh.vertices, [3] * 20, solid_mesh.faces.ravel())
    if physics:
        for prim in (rod, ball, crate, UsdGeom.Mesh(stage.GetPrimAtPath("/kept/rock"))):
            UsdPhysics.CollisionAPI.Apply(prim.GetPrim())
        crate.CreateVisibilityAttr("invisible")
    targets = ("/group/many/lamp", "/unseen/crate", "/kept/rock")
    for target in targets:
        instancer.CreatePrototypesRel().AddTarget(target)
    indices = [0, 1, 2, 2, 1, 0, 1]
    placed = add_instances(instancer, rng, indices, 30.0)
    instancer.CreateIdsAttr([10, 11, 12, 13, 14, 15, 16])
    instancer.CreateInvisibleIdsAttr([14])
    instancer.DeactivateId(16)
    stage.GetRootLayer().Save()

    if physics:
        found = load_world_file(tmp_path / "scene.usda")
    else:
        with pytest.warns(LeftOutWarning) as caught:
            found = load_world_file(tmp_path / "scene.usda")
        reasons = dict(caught[0].message.entries)  # pyright: ignore
        hidden = "a Cube: it is invisible"
        assert reasons == {"group/many/4": hidden, "unseen/crate": hidden}
    lamps = [f"group/many/{i}/{part}" for i in (0, 5) for part in ("rod", "ball")]
    cubes = [1, 4] if physics else [1]
    on_stage = {"unseen/crate"} if physics else set()
    expected = {*lamps, *(f"group/many/{i}" for i in (*cubes, 2, 3)), *on_stage}
    assert set(found) == expected

    world = MeshWorld(device="cpu")
    world.load(found)
    root = to_metres @ group @ own
    bodies = [
        *(
            scaled("cylinder", 0.5, 4.0, at=root @ placed[i] @ frames[0] @ frames[1])
            for i in (0, 5)
        ),
        *(scaled("sphere", 1.0, at=root @ placed[i] @ frames[0] @ frames[2]) for i in (0, 5)),
        *(scaled("cuboid", 2.0, 2.0, 2.0, at=root @ placed[i] @ frames[3]) for i in cubes),
        *(solid(solid_mesh, root @ placed[i]) for i in (2, 3)),
    ]
    if physics:
        bodies.append(scaled("cuboid", 2.0, 2.0, 2.0, at=to_metres @ frames[3]))
    assert_distances(world, bodies, rng, atol=1e-5)


def test_instancers_in_prototypes_and_in_native_instances(tmp_path):
    rng = np.random.default_rng(32)
    part = stage_at(tmp_path / "part.usda")
    part.SetDefaultPrim(UsdGeom.Xform.Define(part, "/part").GetPrim())
    row = UsdGeom.PointInstancer.Define(part, "/part/row")
    row.CreatePrototypesRel().AddTarget("/part/row/ball")
    UsdGeom.Sphere.Define(part, "/part/row/ball").CreateRadiusAttr(0.2)
    inner = add_instances(row, rng, [0, 0, 0], 0.5)
    part.GetRootLayer().Save()
    stage = stage_at(tmp_path / "scene.usda", 1.0, "Z")
    outer = UsdGeom.PointInstancer.Define(stage, "/rows")
    outer.CreatePrototypesRel().AddTarget("/rows/part")
    stage.DefinePrim("/rows/part").GetReferences().AddReference("./part.usda")
    placed = add_instances(outer, rng, [0, 0], 2.0)
    copies = [random_frame(rng) for _ in range(2)]
    for index, frame in enumerate(copies):
        prim = stage.DefinePrim(f"/copy{index}", "Xform")
        prim.GetReferences().AddReference("./part.usda")
        prim.SetInstanceable(True)
        put(prim, frame)
    stage.GetRootLayer().Save()
    found = load_world_file(tmp_path / "scene.usda", strict=True)
    balls = [f"{row}/{i}" for row in ("rows/0/row", "rows/1/row") for i in range(3)]
    copied = [f"copy{k}/row/{i}" for k in range(2) for i in range(3)]
    assert list(found) == [*balls, *copied]
    world = MeshWorld(device="cpu")
    world.load(found)
    roots = [*placed, *copies]
    bodies = [scaled("sphere", 0.2, at=root @ matrix) for root in roots for matrix in inner]
    assert_distances(world, bodies, rng, atol=1e-5)


def test_meshes_of_instances_are_read_once(tmp_path, monkeypatch):
    rng = np.random.default_rng(33)
    stage = stage_at(tmp_path / "scene.usda", 1.0, "Z")
    star = [[(1 + i % 2) * np.cos(i), (1 + i % 2) * np.sin(i), 0] for i in 0.6 * np.arange(10)]
    define_mesh(stage, "/kept/star", star, [10], range(10))
    instancer = UsdGeom.PointInstancer.Define(stage, "/many")
    instancer.CreatePrototypesRel().AddTarget("/kept/star")
    add_instances(instancer, rng, [0] * 100, 9.0)
    stage.GetRootLayer().Save()
    monkeypatch.setattr(scene_builder, "MAX_CONCAVE", 150)
    found = load_world_file(tmp_path / "scene.usda")
    assert len(found) == 101
    volumes = [abs(obstacle.geometry.area) for obstacle in found.values()]
    assert max(volumes) < 2.0 * volumes[0]


def part_at(path, size: float) -> None:
    path.parent.mkdir(exist_ok=True)
    part = stage_at(path)
    cube = UsdGeom.Cube.Define(part, "/part")
    cube.CreateSizeAttr(size)
    part.SetDefaultPrim(cube.GetPrim())
    part.GetRootLayer().Save()


@pytest.mark.parametrize("how", ["reference", "payload", "sublayer", "variant", "package"])
def test_layers_lie_in_the_folder_in_package_dirs_or_behind_links(how, tmp_path):
    part_at(tmp_path / "far" / "part.usdc", 0.5)
    near = tmp_path / "near"
    near.mkdir()
    name = "part.usdc"
    if how == "package":
        name = "part.usdz"
        assert UsdUtils.CreateNewUsdzPackage(
            Sdf.AssetPath(str(tmp_path / "far" / "part.usdc")), str(tmp_path / "far" / name)
        )
    stage = stage_at(near / "scene.usda", 1.0, "Z")
    prim = stage.DefinePrim("/here")
    asset = f"../far/{name}"
    if how == "sublayer":
        stage.GetRootLayer().subLayerPaths.append(asset)
    elif how == "payload":
        prim.GetPayloads().AddPayload(asset)
    elif how == "variant":
        variants = prim.GetVariantSets().AddVariantSet("size")
        variants.AddVariant("small")
        variants.SetVariantSelection("small")
        with variants.GetVariantEditContext():
            prim.GetReferences().AddReference(asset)
    else:
        prim.GetReferences().AddReference(asset)
    stage.GetRootLayer().Save()
    path = near / "scene.usda"
    with pytest.raises(ValueError, match=r"scene\.usda: layers must lie in .* got '.*part\.usd.'"):
        load_world_file(path)
    ((_, obstacle),) = load_world_file(path, package_dirs=[tmp_path / "far"]).items()
    assert obstacle.geometry == Cuboid((0.5, 0.5, 0.5))
    del stage, prim  # an open layer is not read again
    (near / "below").symlink_to(tmp_path / "far")
    path.write_text(path.read_text().replace("../far/", "below/"))
    ((_, obstacle),) = load_world_file(path, strict=True).items()
    assert obstacle.geometry == Cuboid((0.5, 0.5, 0.5))


def test_layers_are_bounded_before_they_are_opened(tmp_path, monkeypatch):
    stage = stage_at(tmp_path / "scene.usda")
    UsdGeom.Cube.Define(stage, "/cube")
    for index in range(3):
        part_at(tmp_path / f"part{index}.usda", 1.0)
        stage.DefinePrim(f"/here{index}").GetReferences().AddReference(f"part{index}.usda")
    stage.GetRootLayer().Save()
    path = tmp_path / "scene.usda"
    monkeypatch.setattr(usd_stage, "MAX_LAYERS", 4)
    assert len(load_world_file(path)) == 4
    monkeypatch.setattr(usd_stage, "MAX_LAYERS", 3)
    with pytest.raises(ValueError, match="a stage must have at most 3 layers, got more"):
        load_world_file(path)
    monkeypatch.setattr(usd_stage, "MAX_LAYERS", 4)
    with (tmp_path / "part1.usda").open("r+b") as file:
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match="its layers must have at most 1073741824 bytes, got"):
        load_world_file(path)
    (tmp_path / "part1.usda").unlink()
    os.mkfifo(tmp_path / "part1.usda")
    with pytest.raises(ValueError, match=r"a layer must be a regular file, got '.*part1\.usda'"):
        load_world_file(path)


def test_an_internal_reference_is_no_layer(tmp_path):
    """`</Prototype>`: a reference without the name of a file."""
    stage = stage_at(tmp_path / "scene.usda", 1.0, "Z")
    UsdGeom.Cube.Define(stage, "/Prototype/crate").CreateSizeAttr(0.5)
    for name in ("one", "two"):
        stage.DefinePrim(f"/{name}").GetReferences().AddInternalReference("/Prototype")
    stage.GetRootLayer().Save()
    obstacles = load_world_file(tmp_path / "scene.usda")
    assert sorted(obstacles) == ["Prototype/crate", "one/crate", "two/crate"]
    assert {obstacle.geometry for obstacle in obstacles.values()} == {Cuboid((0.5, 0.5, 0.5))}
