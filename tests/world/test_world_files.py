"""Worlds from files and mappings, and back: what is written is read to the same distances."""

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from warp_collision import Capsule, Cuboid, Cylinder, HalfSpace, MeshWorld, Sphere, signed_distance
from warp_collision.io import LeftOutWarning, Obstacle, load_world_file, save_world_file
from world_distances import assert_distances, exact, random_frame

REST = [0, 0, 0, 1, 0, 0, 0]
ODD_NAMES = ["world", "a/b", "Möbel ☃", "<<", "2001-02-03", "1e3", "null", "a: [b", "x" * 300]
ODD_NAMES += ["#1", "y"]


def filled(device: torch.device) -> MeshWorld:
    """A world of two envs; in the second every kind of obstacle at any pose, padded or not."""
    rng = np.random.default_rng(21)
    world = MeshWorld(n_envs=2, max_obstacles=20, device=device)
    world.add("elsewhere", Sphere(5.0))
    cone = trimesh.creation.cone(0.3, 0.8, sections=20)
    open_bowl = trimesh.creation.icosphere(2, radius=0.4)
    open_bowl.update_faces(open_bowl.triangles_center[:, 2] < 0.1)
    turned = trimesh.creation.box((0.2, 0.4, 0.6), transform=random_frame(rng, 0.5))
    shapes = [
        Cuboid((0.3, 0.5, 0.7)),
        Sphere(0.2),
        Capsule(0.1, 0.5),
        Capsule(0.15, 0.0),
        Cylinder(0.2, 0.6),
        cone,
        open_bowl,
        turned,  # recognised as a cuboid that is turned in its frame
        trimesh.primitives.Cylinder(radius=0.1, height=0.9, transform=random_frame(rng, 0.3)),
        cone,
        HalfSpace((0.2, -0.3, 0.9), -1.5),
    ]
    for index, (name, shape) in enumerate(zip(ODD_NAMES, shapes, strict=True)):
        padding = 0.05 * (index % 3 == 1)
        pose = torch.from_numpy(random_frame(rng))
        world.add(name, shape, pose, env=1, enabled=index != 4, padding=padding)
    return world


def distances(world: MeshWorld, env: int) -> tuple[torch.Tensor, list[str]]:
    points = np.random.default_rng(22).uniform(-2.0, 2.0, (1, 4_000, 3)).astype(np.float32)
    device = world.device
    env_index = torch.tensor([env], dtype=torch.int32, device=device)
    found = signed_distance(torch.from_numpy(points).to(device), world, env_index=env_index)
    names = world.names(env)
    return found.distance.cpu(), [names[i] for i in found.obstacle[0].tolist()]


def assert_same(world: MeshWorld, env: int, copy: MeshWorld, copied: int = 0) -> None:
    expected, nearest = distances(world, env)
    found, found_nearest = distances(copy, copied)
    # A pose is rounded once more: at 3 m by up to 12 units of the last place of a distance of 1 m.
    torch.testing.assert_close(found, expected, rtol=0.0, atol=2e-6)
    assert sum(a != b for a, b in zip(nearest, found_nearest, strict=True)) <= 4  # ties
    assert set(copy.names(copied)) == set(world.names(env))
    for name in world.names(env):
        shape, expected_shape = copy.report(name, copied).shape, world.report(name, env).shape
        assert type(shape) is type(expected_shape), name
        for tables in ("enabled", "padding"):
            values = [
                getattr(w, tables)[e, w.names(e).index(name)].item()
                for w, e in ((world, env), (copy, copied))
            ]
            assert values[0] == values[1], (name, tables)


@pytest.mark.parametrize("ending", ["yaml", "yml", "glb"])
def test_what_is_saved_is_read_back(ending, tmp_path, device):
    world = filled(device)
    path = tmp_path / f"saved.{ending}"
    world.save(path, env=1)
    copy = MeshWorld.from_file(path, device=device, strict=True)
    assert_same(world, 1, copy)
    if ending == "glb":
        assert copy.names() == world.names(1)  # slot by slot
    copy.save(path)  # onto itself, and once more
    assert_same(world, 1, MeshWorld.from_file(path, device=device))


@pytest.mark.parametrize("ending", ["yaml", "glb"])
def test_a_sheet_stays_a_sheet(ending, tmp_path, device):
    bowl = trimesh.creation.icosphere(2, radius=0.4)
    bowl.update_faces(bowl.triangles_center[:, 2] < 0.1)
    world = MeshWorld(device=device)
    world.add("bowl", bowl, sign="sheet")
    world.save(tmp_path / f"world.{ending}")
    copy = MeshWorld.from_file(tmp_path / f"world.{ending}", device=device)  # warns of no solid
    assert_same(world, 0, copy)
    assert copy.report("bowl").sign_method == "sheet"
    inside = torch.zeros((1, 1, 3), device=device)
    assert signed_distance(inside, copy).distance.item() > 0.3


@pytest.mark.parametrize("sign", ["sheet", "winding", "inside", 3])
def test_the_sign_of_an_entry(sign, tmp_path, device):
    bowl = trimesh.creation.icosphere(2, radius=0.4)
    bowl.update_faces(bowl.triangles_center[:, 2] < 0.1)
    entry = {"vertices": bowl.vertices, "faces": bowl.faces, "pose": REST, "sign": sign}
    document = {"mesh": {"bowl": entry}}
    if sign in ("sheet", "winding"):
        world = MeshWorld.from_mapping(document, device=device)
        assert world.report("bowl").sign_method == sign
    else:
        with pytest.raises(
            ValueError, match=r"mesh\.bowl\.sign must be one of auto, winding, .*got"
        ):
            MeshWorld.from_mapping(document, device=device)


def test_a_scene_goes_back_into_a_world(device):
    world = filled(device)
    scene = world.to_scene(env=1)
    assert isinstance(scene, trimesh.Scene)
    assert set(scene.graph.nodes_geometry) == set(ODD_NAMES)
    assert len(scene.geometry) == 10  # the cone is shared
    copy = MeshWorld(device=device)
    copy.load(scene)
    assert copy.names() == world.names(1)
    assert_same(world, 1, copy)


def test_a_scene_shows_what_stands_where(device):
    world = MeshWorld(device=device)
    frame = random_frame(np.random.default_rng(1))
    world.add("can", Cylinder(0.2, 0.6), torch.from_numpy(frame))
    (mesh,) = world.to_scene().dump()
    local = trimesh.transform_points(mesh.vertices, np.linalg.inv(frame))
    assert np.abs(local[:, 2]).max() == pytest.approx(0.3, abs=1e-6)
    radius = np.linalg.norm(local[:, :2], axis=1).max()
    assert 0.2 <= radius <= 0.2 * 1.001


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"radius":1.0', b'"radius":0.5', None),
        (b'"radius":1.0', b'"radius":"a"', None),
        (b'"radius":1.0', b'"radius": -1', None),
        (b'"sphere"', b'"cuboid"', None),
        (b'"sphere"', b'[1,2,34]', None),
        (b'"padding":0.0', b'"padding": -1', "part 'ball': padding must not be negative"),
        (b'"padding":0.0', b'"padding":"a"', "part 'ball': padding must be a number, got str"),
    ],
)  # fmt: skip
def test_marks_that_lie_are_not_believed(old, new, message, tmp_path):
    path = tmp_path / "world.glb"
    save_world_file(path, {"ball": Obstacle(Sphere(1.0), tuple(REST))})
    data = path.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))
    if message is not None:
        with pytest.raises(ValueError, match=message):
            load_world_file(path)
    else:
        assert isinstance(load_world_file(path)["ball"].geometry, trimesh.Trimesh)


def test_poses_that_were_moved_or_require_gradients_are_saved(tmp_path, device):
    world = MeshWorld(device=device)
    world.add("a", Sphere(0.3))
    world.add("b", Sphere(0.3))
    moved = torch.tensor([1.0, 2.0, 3.0, 0.0, 2.0, 0.0, 0.0], device=device)
    world.set_pose("a", moved)
    world.set_pose("b", (2.0 * moved).requires_grad_())
    world.save(tmp_path / "world.yaml")
    found = load_world_file(tmp_path / "world.yaml")
    assert found["a"].pose == pytest.approx((1, 2, 3, 0, 1, 0, 0))
    assert found["b"].pose == pytest.approx((2, 4, 6, 0, 1, 0, 0))


def test_what_cannot_be_saved(tmp_path, device):
    world = MeshWorld(device=device)
    with pytest.raises(ValueError, match="obstacles must be at least one, got none"):
        world.save(tmp_path / "world.yaml")
    world.add("a", Sphere(0.3))
    with pytest.raises(ValueError, match=r"must end in .yaml, .yml or .glb, got '.obj'"):
        world.save(tmp_path / "world.obj")
    with pytest.raises(IndexError, match="env must be in"):
        world.save(tmp_path / "world.yaml", env=1)
    world.mesh_from_world[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="pose of 'a': a pose must be finite"):
        world.save(tmp_path / "world.yaml")
    assert list(tmp_path.iterdir()) == []


def text(names: str, radius: float) -> str:
    entries = ", ".join(
        f"{n}: {{radius: {radius}, position: [{i}, 0, 0]}}" for i, n in enumerate(names)
    )
    return f"sphere: {{{entries}}}"


def test_files_become_envs(tmp_path, device):
    for name, content in (("one", text("a", 0.1)), ("three", text("abc", 0.2))):
        (tmp_path / f"{name}.yaml").write_text(content)
    paths = [tmp_path / "one.yaml", str(tmp_path / "three.yaml"), tmp_path / "one.yaml"]
    world = MeshWorld.from_files(paths, device=device)
    assert (world.n_envs, world.max_obstacles, world.device.type) == (3, 35, device.type)
    assert [world.names(env) for env in range(3)] == [["a"], ["a", "b", "c"], ["a"]]
    bodies = [
        exact("sphere", 0.2, at=trimesh.transformations.translation_matrix([i, 0, 0]))
        for i in range(3)
    ]
    if device.type == "cpu":
        assert_distances(world, bodies, np.random.default_rng(0), env=1)
    assert (
        MeshWorld.from_files(paths, device=device, max_obstacles=7, grid_cells=0).max_obstacles == 7
    )
    with pytest.raises(ValueError, match=r"three.yaml: env 1 .*|.*three.yaml.*"):
        MeshWorld.from_files(paths, device=device, max_obstacles=2)
    with pytest.raises(TypeError, match="paths must be a sequence of paths, got str"):
        MeshWorld.from_files("world.yaml")
    with pytest.raises(ValueError, match="paths must be at least one, got none"):
        MeshWorld.from_files([])
    with pytest.raises(FileNotFoundError, match=r": is a folder, must be a file"):
        MeshWorld.from_file(tmp_path, "cpu")
    with pytest.raises(FileNotFoundError, match=r"none.yaml: no such file"):
        MeshWorld.from_file(tmp_path / "none.yaml")


def test_a_mapping_becomes_an_env(tmp_path, device):
    trimesh.creation.icosphere(1).export(tmp_path / "ball.stl")
    document = {
        "cuboid": {"table": {"dims": (1, 1, 0.1), "pose": REST, "padding": 0.02}},
        "mesh": {"ball": {"file_path": "ball.stl", "pose": REST, "enabled": False}},
        "voxel": {"scan": {}},
    }
    with pytest.warns(LeftOutWarning, match=r"voxel.scan") as caught:
        world = MeshWorld.from_mapping(document, device=device, folder=Path(tmp_path))
    assert caught[0].filename == __file__
    assert world.names() == ["table", "ball"]
    assert world.padding[0, :2].tolist() == pytest.approx([0.02, 0.0])
    assert world.enabled[0, :2].tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"mapping: .*voxel.scan"):
        MeshWorld.from_mapping(document, device=device, folder=tmp_path, strict=True)


def test_errors_of_meshes_name_their_file(tmp_path, device):
    flat = {"vertices": [[0, 0, 0], [1, 0, 0], [2, 0, 0]], "faces": [[0, 1, 2]], "pose": REST}
    with pytest.raises(ValueError, match=r"^mapping: mesh 'flat' "):
        MeshWorld.from_mapping({"mesh": {"flat": flat}}, device=device)


def test_worlds_of_files_have_room(tmp_path: Path, device: torch.device) -> None:
    path = tmp_path / "world.yaml"
    path.write_text("sphere: {ball: {radius: 0.1, position: [0, 0, 0]}}")
    world = MeshWorld.from_file(path, device)
    for index in range(32):
        world.add(f"more-{index}", Sphere(0.1), (index, 1, 0, 1, 0, 0, 0))
    points = torch.tensor([[[31.0, 1.0, 0.5]]], device=device)
    assert signed_distance(points, world).obstacle.item() == 32
    with pytest.raises(ValueError, match=r"all 33 are taken; world.grow.*capture CUDA graphs anew"):
        world.add("one too many", Sphere(0.1))
    mapping = {"sphere": {"ball": {"radius": 0.1, "position": [0, 0, 0]}}}
    assert MeshWorld.from_mapping(mapping, device, max_obstacles=1).max_obstacles == 1
