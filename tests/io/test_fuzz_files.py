"""Valid files with a few bytes changed, cut, repeated or mixed: read soundly or refused by name."""

import random
import struct
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from trimesh.exchange.load import mesh_formats

from hostile_files import REST
from hostile_gltf import GLB, gltf
from hostile_images import png
from hostile_meshes import STL, exported
from hostile_numpy import npy, npz
from hostile_urdf import SPHERE, joint, robot
from warp_collision.io import load_spheres, load_world_file
from warp_collision.robot import RobotSpheres

# A change may make something of a shape that a world has not.
pytestmark = [
    pytest.mark.filterwarnings("ignore::warp_collision.io.LeftOutWarning"),
    # A changed exponent makes a mesh of kilometres.
    pytest.mark.filterwarnings("ignore:.* if it is in millimetres:UserWarning"),
]

CONE = trimesh.creation.cone(radius=0.5, height=1.0, sections=9)
SPHERES = npy((3, 2, 4), data=np.arange(24, dtype="<f4").tobytes())
WORLD = f"""
mesh:
  block: {{file_path: block.stl, pose: {REST}, scale: 0.5}}
cuboid:
  table: &table {{dims: [1.0, 0.6, 4e-2], pose: [0.5, 0, 0.4, 1, 0, 0, 0]}}
  other: {{<<: *table, dims: [1, 2, 3]}}
cylinder: {{can: {{radius: 0.03, height: 0.14, pose: {REST}}}}}
sphere: {{ball: {{radius: 0.05, position: [0.5, 0.2, 0.47], color: "red"}}}}
"""
ROBOT = robot(
    f'<link name="a"><collision><origin xyz="1 2 3" rpy="0 1 0"/>{SPHERE}</collision></link>'
    f'<link name="b"><collision>{SPHERE}</collision></link>{joint("j", "a", "b")}',
    '<?xml version="1.0" encoding="utf-8"?>',
)

PLANNING_SCENE = f"""
world:
  collision_objects:
    - id: shelf
      pose: {{position: [0.5, 0, 1.0], orientation: [0, 0, 0.6, 0.8]}}
      primitives:
        - {{type: box, dimensions: [1.0, 2.0, 0.1]}}
        - {{type: cylinder, dimensions: [0.2, 0.05]}}
      primitive_poses: [{{position: [0, 0, 0]}}, {{orientation: [0, 0, 0, 1]}}]
    - id: corner
      primitives:
        - type: prism
          dimensions: [0.5]
          polygon: {{points: [[0, 0, 0], [2, 0, 0], [1, 1, 0], [0, 2, 0]]}}
        - {{type: cone, dimensions: [0.5, 0.2]}}
    - id: part
      meshes: [{{vertices: {CONE.vertices.round(3).tolist()}, triangles: {CONE.faces.tolist()}}}]
"""
MODEL = b"""<mujoco><worldbody><body name="b" pos="1 2 3" euler="10 20 30"><joint axis="0 0 1"/>
<geom name="rod" type="capsule" fromto="0 0 0 1 0 0" size="0.1"/><geom type="box" size="1 2 3"/>
<replicate count="3" offset="1 0 0"><geom size="0.2"/></replicate></body></worldbody></mujoco>"""
TERRAIN = b"""<mujoco><compiler angle="degree" meshdir="."/><asset>
<hfield name="a" nrow="3" ncol="4" size="1 2 0.5 0.1" elevation="0 1 2 3 4 5 6 7 8 9 8 7"/>
<hfield name="b" nrow="2" ncol="2" size="1 1 1 1"/><mesh name="m" file="block.stl" scale="1 2 3"/>
</asset><default><default class="d"><geom rgba="1 0 0 1"/></default></default><worldbody>
<geom name="hill" type="hfield" hfield="a"/><body pos="1 0 0"><geom type="hfield" hfield="b"/>
<geom type="mesh" mesh="m" class="d"/></body></worldbody></mujoco>"""
STAGE = b"""#usda 1.0
def Cube "cube" {
    double size = 0.5
}
def Mesh "mesh" {
    int[] faceVertexCounts = [3, 4]
    int[] faceVertexIndices = [0, 1, 2, 0, 1, 3, 2]
    point3f[] points = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0.5)]
    double3 xformOp:translate = (1, 2, 3)
    uniform token[] xformOpOrder = ["xformOp:translate"]
}
def Capsule_1 "pin" {
    double radiusTop = 0.25
}
def PointInstancer "many" {
    rel prototypes = [</cube>, </pin>]
    int[] protoIndices = [0, 1, 0]
    point3f[] positions = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]
    quath[] orientations = [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0.5, 0.5, 0.5)]
    int64[] ids = [4, 5, 6]
}
"""


def load_terrain(path: Path) -> Any:
    """Reads a height field by a model that names it."""
    text = f"""<mujoco><asset><hfield name="h" file="{path.name}" size="1 1 1 1"/></asset>
    <worldbody><geom type="hfield" hfield="h"/></worldbody></mujoco>"""
    (path.parent / "model_of_it.xml").write_text(text)
    return load_world_file(path.parent / "model_of_it.xml")


def load_part(path: Path) -> Any:
    """Reads a mesh by a model that names it, in MuJoCo's own readers."""
    text = f"""<mujoco><asset><mesh name="m" file="{path.name}"/></asset>
    <worldbody><geom type="mesh" mesh="m"/></worldbody></mujoco>"""
    (path.parent / "model_of_it.xml").write_text(text)
    return load_world_file(path.parent / "model_of_it.xml")


def load_layer(path: Path) -> Any:
    """Reads a layer by a stage that refers to it, as a sublayer and as a reference."""
    text = f"""#usda 1.0
    (subLayers = [@{path.name}@])
    def "copy" (references = @{path.name}@</mesh>) {{}}
    """
    (path.parent / "stage_of_it.usda").write_text(text)
    return load_world_file(path.parent / "stage_of_it.usda")


def binary_stages() -> dict[str, bytes]:
    """The same stage as a crate, and in a package."""
    from pxr import Sdf, Usd, UsdUtils

    with tempfile.TemporaryDirectory() as folder:
        crate = Path(folder) / "stage.usdc"
        layer = Sdf.Layer.CreateAnonymous(".usda")
        layer.ImportFromString(STAGE.decode())
        Usd.Stage.Open(layer).Export(str(crate))
        package = Path(folder) / "stage.usdz"
        UsdUtils.CreateNewUsdzPackage(Sdf.AssetPath(str(crate)), str(package))
        return {path.name: path.read_bytes() for path in (crate, package)}


# Name of the file, content, what reads it.
FILES: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "cone.stl": (exported("stl", CONE), load_world_file),
    "text.stl": (exported("stl_ascii", CONE), load_world_file),
    "cone.ply": (exported("ply", CONE), load_world_file),
    "text.ply": (exported("ply", CONE, encoding="ascii"), load_world_file),
    "cone.obj": (exported("obj", CONE), load_world_file),
    "cone.off": (exported("off", CONE), load_world_file),
    "cone.dae": (exported("dae", CONE), load_world_file),
    "cone.glb": (exported("glb", CONE), load_world_file),
    "own.glb": (GLB, load_world_file),
    "triangle.gltf": (gltf(), load_world_file),
    "world.yaml": (WORLD.encode(), load_world_file),
    "robot.urdf": (ROBOT, RobotSpheres),
    "scene.urdf": (ROBOT, load_world_file),
    "scene.yaml": (PLANNING_SCENE.encode(), load_world_file),
    "spheres.npy": (SPHERES, load_spheres),
    "stored.npz": (npz(("spheres.npy", SPHERES)), load_spheres),
    "deflated.npz": (npz(("spheres.npy", SPHERES), ("b.npy", SPHERES), method=8), load_spheres),
}
if find_spec("mujoco"):
    FILES["model.xml"] = (MODEL, load_world_file)
    FILES["terrain.xml"] = (TERRAIN, load_world_file)
    FILES["hill.bin"] = (struct.pack("<2i6f", 2, 3, *range(6)), load_terrain)
    FILES["part.stl"] = (exported("stl", CONE), load_part)
    FILES["part.obj"] = (exported("obj", CONE), load_part)
    FILES["hill.png"] = (png(np.arange(12).reshape(3, 4)), load_terrain)
if find_spec("pxr"):
    FILES["stage.usda"] = (STAGE, load_world_file)
    FILES["layer.usda"] = (STAGE, load_layer)
    FILES |= {name: (data, load_world_file) for name, data in binary_stages().items()}
SECONDS = 2.0
ELSEWHERE = ("stage.usdc", "stage.usdz")  # each is read by a process of its own
CORPUS = [data for data, _ in FILES.values()]
NUMBERS = [b"-1", b"0", b"nan", b"inf", b"1e999", b"99999999999999999999", b"4294967295", b"x", b""]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The data after one to three random changes."""
    for _ in range(rng.randint(1, 3)):
        at, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 40))
        other = rng.choice(CORPUS)
        start = rng.randrange(len(other))
        digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
        match rng.randrange(9):
            case 0:
                data = data[:at] + rng.randbytes(length) + data[at + length :]
            case 1 if data:
                at = rng.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 2:
                data = data[:at]
            case 3:
                data = data[:at] + data[at + length :]
            case 4:
                data = data[:at] + data[at : at + length] * rng.randint(2, 5) + data[at + length :]
            case 5:
                data = data[:at] + other[start : start + length] + data[at + length :]
            case 6:
                data = data[:at] + other[start:]
            case 7 if digits:
                at = rng.choice(digits)
                data = data[:at] + rng.choice(NUMBERS) + data[at + 1 :]
            case _:
                data = data[:at] + rng.choice((b"\0", b"\xff")) * length + data[at + length :]
    return data


def check(name: str, seed: int, folder: Path) -> bool:
    """Whether a mutation of a file is read; what is read is sound, what is not names the file."""
    data, load = FILES[name]
    path = folder / name
    path.write_bytes(mutated(data, random.Random(f"{name} {seed}")))
    result, message = None, ""
    begin = time.process_time()  # other programs may keep the clock waiting
    try:
        result = load(path)
    except (ValueError, FileNotFoundError, ImportError) as error:
        message = str(error)
    assert time.process_time() - begin < SECONDS, f"seed {seed}"
    if result is None:
        assert str(path.parent) in message, f"seed {seed}"
        assert message.isprintable(), f"seed {seed}"
        return False
    if isinstance(result, torch.Tensor):
        assert result.isfinite().all()
    elif isinstance(result, dict):
        for geometry, pose, *_ in result.values():
            mesh = geometry if isinstance(geometry, trimesh.Trimesh) else geometry.tessellate()
            assert len(mesh.faces) > 0, f"seed {seed}"
            assert np.isfinite(mesh.vertices).all(), f"seed {seed}"
            assert np.isfinite(pose).all(), f"seed {seed}"
    else:
        assert result.n_spheres > 0, f"seed {seed}"
    return True


def run(name: str, seeds: range, folder: Path) -> None:
    (folder / "block.stl").write_bytes(STL)
    read = sum(check(name, seed, folder) for seed in seeds)
    assert read < len(seeds)


@pytest.mark.parametrize("name", FILES)
def test_files_as_they_are(name, tmp_path):
    (tmp_path / "block.stl").write_bytes(STL)
    (tmp_path / name).write_bytes(FILES[name][0])
    FILES[name][1](tmp_path / name)


@pytest.mark.parametrize("name", FILES)
def test_changed_files(name, tmp_path):
    run(name, range(10 if name in ELSEWHERE else 25), tmp_path)


@pytest.mark.parametrize("ending", sorted(mesh_formats()))
def test_other_content_under_every_ending(ending, tmp_path):
    rng = random.Random(ending)
    for data in (*CORPUS, *(rng.randbytes(n) for n in (1, 3, 50, 1000)), b"", b"\n" * 99):
        path = tmp_path / f"other.{ending}"
        path.write_bytes(data)
        try:
            world = load_world_file(path)
        except ValueError as error:
            message = str(error)
        else:
            assert all(len(mesh.faces) > 0 for mesh, *_ in world.values())
            continue
        assert str(path) in message
        assert message.isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_many_changed_files(name, tmp_path):
    run(name, range(1_000, 1_200 if name in ELSEWHERE else 3_000), tmp_path)
