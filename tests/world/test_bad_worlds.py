"""Bad meshes, poses and names: an exception that says so, and a world that stays as it was."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from reference import IDENTITY
from refusals import forbid_launches, refuses
from warp_collision import MeshWorld
from worlds import BALL, BOX, CUBE, SCENES, build, tables

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """The world of `SCENES`: envs of two, three and no meshes."""
    return build(*SCENES, device=device)


@pytest.fixture(autouse=True)
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test in which a kernel runs."""
    forbid_launches(monkeypatch)


# -- meshes ---------------------------------------------------------------------------------------

VERTICES, FACES = np.asarray(BOX.vertices), np.asarray(BOX.faces)


def changed(values: np.ndarray, place: Any, value: float) -> np.ndarray:
    """A copy with other values in one place."""
    result = values.copy()
    result[place] = value
    return result


FLAT = (np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0]]), [[0, 1, 2], [1, 2, 0], [0, 0, 1]])
MESHES: dict[str, tuple[Any, type[Exception], str]] = {
    "nan": ((changed(VERTICES, (3, 1), NAN), FACES), ValueError, r"finite.* got \[.*nan.*\] at 3"),
    "inf": ((changed(VERTICES, (3, 1), -INF), FACES), ValueError, r"finite.* got \[.*-inf.* at 3"),
    "huge": ((changed(VERTICES, (3, 1), 1e30), FACES), ValueError, r"below 1e9, got .* at 3"),
    "no vertices": ((np.zeros((0, 3)), FACES), ValueError, r"\(n, 3\) and n > 0, got \(0, 3\)"),
    "2d vertices": ((VERTICES[:, :2], FACES), ValueError, r"shape \(n, 3\).*got \(8, 2\)"),
    "flat vertices": ((VERTICES.ravel(), FACES), ValueError, r"shape \(n, 3\).*got \(24,\)"),
    "words": ((np.full((8, 3), "a"), FACES), TypeError, "vertices must be real numbers, got <U1"),
    "complex": ((VERTICES + 1j, FACES), TypeError, "real numbers, got complex128"),
    "ragged": (([[0, 0, 0], [1, 0]], FACES), ValueError, r"vertices must be an array \(n, 3\)"),
    "no faces": ((VERTICES, np.zeros((0, 3), int)), ValueError, r"faces.* n > 0.* got \(0, 3\)"),
    "empty list": ((VERTICES, []), ValueError, r"faces must have shape \(n, 3\).* got \(0,\)"),
    "not thirds": ((VERTICES, FACES.ravel()[:-1]), ValueError, r"multiple of three.* got \(35,\)"),
    "quads": ((VERTICES, [[0, 1, 2, 3]]), ValueError, r"faces must have shape.* got \(1, 4\)"),
    "index n": ((VERTICES, changed(FACES, (5, 2), 8)), ValueError, "0 to 7, got 8 in face 5"),
    "index -1": ((VERTICES, changed(FACES, (5, 2), -1)), ValueError, "0 to 7, got -1 in face 5"),
    "index 2^40": ((VERTICES, changed(FACES, 2, 2**40)), ValueError, "got 1099511627776 in face 2"),
    "float faces": ((VERTICES, FACES * 1.0), TypeError, "faces must be integers, got float64"),
    "bool faces": ((VERTICES, FACES > 3), TypeError, "faces must be integers, got bool"),
    "no area": (FLAT, ValueError, "must have a face with area, all 3 have none"),
    "empty Trimesh": (trimesh.Trimesh(), ValueError, r"vertices must.* n > 0, got \(0, 3\)"),
    "a scene": (trimesh.Scene(), TypeError, r"a trimesh\.Trimesh, a pair .* got Scene"),
    "nothing": (None, TypeError, r"a trimesh\.Trimesh, a pair .* or a path, got NoneType"),
    "vertices only": (VERTICES, TypeError, r"a trimesh\.Trimesh, a pair .* got ndarray"),
    "three things": ((VERTICES, FACES, 1), TypeError, r"a trimesh\.Trimesh, a pair .* got tuple"),
    "no file": ("no/such.stl", FileNotFoundError, r"there is no file '.*no/such\.stl'"),
    "a folder": (Path(), FileNotFoundError, "there is no file"),
}


@pytest.mark.parametrize("case", MESHES)
def test_meshes(case: str, world: MeshWorld) -> None:
    mesh, error, message = MESHES[case]
    before = [t.clone() for t in tables(world)]
    named = rf"mesh 'new'.*{message}"
    refuses(lambda: world.add("new", mesh), error, f"(?s){named}")
    refuses(lambda: world.load({"box": BALL, "new": mesh}), error, f"(?s){named}")
    refuses(
        lambda: world.add("box", mesh, replace=True), error, f"(?s){named.replace('new', 'box')}"
    )
    assert all(map(torch.equal, tables(world), before))


FILES = {
    "empty.stl": b"",
    "noise.stl": bytes(range(256)) * 2,
    "empty.obj": b"",
    "no-faces.obj": b"v 0 0 0\nv 1 0 0\nv 0 1 0\n",
    "noise.ply": b"\x00\x01\x02",
    "cut.off": b"OFF\n3 1 0\n0 0 0\n",
    "noise.glb": b"glTF\x02\x00\x00\x00rest",
    "noise.gltf": b"{",
    "noise.dae": b"<COLLADA>",
    "unknown.xyzzy": b"1 2 3",
    "no-ending": b"1 2 3",
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_meshes(name: str, world: MeshWorld, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    refuses(lambda: world.add("new", path), ValueError, r"(?s)mesh 'new'")
    assert world.names() == ["box", "ball"]


# -- worlds ---------------------------------------------------------------------------------------

BAD_POSES: list[tuple[Any, type[Exception], str]] = [
    ((NAN, 0, 0, 1, 0, 0, 0), ValueError, r"finite, got \[nan"),
    ((0, 0, INF, 1, 0, 0, 0), ValueError, r"finite, got .*inf"),
    ((0, 0, 0, 1, 0, NAN, 0), ValueError, r"finite, got .*nan"),
    ((1e39, 0, 0, 1, 0, 0, 0), ValueError, r"finite.*1e\+39"),  # infinite in float32
    ((1, 2, 3, 0, 0, 0, 0), ValueError, r"quaternion .*other than 0, got .*1.*2.*3.*0"),
    ((0, 0, 0, 1, 0, 0), ValueError, r"shape \(7,\).* got \(6,\)"),
    (np.eye(3), ValueError, r"shape \(7,\).* got \(3, 3\)"),
    (7.0, ValueError, r"shape \(7,\).* got \(\)"),
    ("identity", TypeError, r"7 numbers .* got str"),
    ([None] * 7, TypeError, r"7 numbers .* got list"),
    (torch.zeros(6), ValueError, r"shape \(7,\).* got \(6,\)"),
    (torch.zeros(7, device="meta"), ValueError, "cpu or cuda device, got meta"),
]


@pytest.mark.parametrize(("pose", "error", "message"), BAD_POSES)
def test_poses(pose: Any, error: type[Exception], message: str, world: MeshWorld) -> None:
    before = [t.clone() for t in tables(world)]
    for call in (
        lambda: world.set_pose("box", pose),
        lambda: world.add("new", CUBE, pose),
        lambda: world.add("box", CUBE, pose, replace=True),
        lambda: world.load({"ball": BALL, "box": (BOX, pose)}),
    ):
        refuses(call, error, rf"pose\b.* must .*{message}|pose must .*{message}")
    assert all(map(torch.equal, tables(world), before))


UNFIT: dict[str, tuple[Callable[[MeshWorld], Any], type[Exception], str]] = {
    "poses list": (lambda w: w.set_poses([IDENTITY] * 2), TypeError, "poses must .*got list"),
    "poses shape": (
        lambda w: w.set_poses(torch.zeros((3, 7), device=w.device)),
        ValueError,
        r"poses must have shape \(2, 7\).* got \(3, 7\)",
    ),
    "poses dtype": (
        lambda w: w.set_poses(torch.zeros((2, 7), device=w.device).long()),
        TypeError,
        r"poses must be floating point, got torch\.int64",
    ),
    "poses device": (
        lambda w: w.set_poses(torch.zeros((2, 7), device="meta")),
        ValueError,
        "poses must be on device .* got meta",
    ),
    "mask list": (lambda w: w.set_enabled([True] * 2), TypeError, "mask must .*got list"),
    "mask shape": (
        lambda w: w.set_enabled(torch.ones(4, device=w.device).bool()),
        ValueError,
        r"mask must have shape \(n_meshes,\) = \(2,\), got \(4,\)",
    ),
    "mask dtype": (
        lambda w: w.set_enabled(torch.full((2,), NAN, device=w.device)),
        TypeError,
        r"mask must be bool or integers, got torch\.float32",
    ),
    "mask device": (
        lambda w: w.set_enabled(torch.ones(2, device="meta").bool()),
        ValueError,
        "mask must be on device .* got meta",
    ),
    "on shape": (
        lambda w: w.enable("box", torch.ones(2, device=w.device).bool()),
        ValueError,
        r"on must .*got \(2,\)",
    ),
    "name type": (lambda w: w.add(3, BOX), TypeError, "name must be a non-empty string, got 3"),
    "no name": (lambda w: w.add("", BOX), TypeError, "name must be a non-empty string, got ''"),
    "loaded name": (lambda w: w.load({3: BOX}), TypeError, "name must be a .* string, got 3"),
    "load list": (lambda w: w.load([BOX]), TypeError, "obstacles must be a mapping .* got list"),
    "too many": (
        lambda w: w.load({str(i): BOX for i in range(5)}),
        ValueError,
        "got 5 meshes for 4 slots",
    ),
    "env type": (lambda w: w.names("0"), TypeError, "env must be an int, got str"),
    "env bool": (lambda w: w.names(True), TypeError, "env must be an int, got bool"),
    "sign": (
        lambda w: w.add("new", BALL, sign="ray"),
        ValueError,
        "sign must be one of .*'winding'.* got 'ray'",
    ),
    "grow type": (lambda w: w.grow(max_obstacles=4.5), TypeError, "max_obstacles must be an int"),
    "grow less": (lambda w: w.grow(n_envs=1), ValueError, "n_envs must not shrink .* got 1"),
    "no envs": (lambda w: MeshWorld(0), ValueError, "n_envs must be at least 1, got 0"),
    "no slots": (
        lambda w: MeshWorld(1, -2),
        ValueError,
        "max_obstacles must be at least 1, got -2",
    ),
    "envs type": (lambda w: MeshWorld("2"), TypeError, "n_envs must be an int, got str"),
    "envs bool": (lambda w: MeshWorld(True), TypeError, "n_envs must be an int, got bool"),
    "device": (lambda w: MeshWorld(device="meta"), ValueError, "device must be a cpu or cuda"),
    "no device": (
        lambda w: MeshWorld(device="cuda:99"),
        ValueError,
        re.escape("device must be available, got cuda:99"),
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_worlds(case: str, world: MeshWorld) -> None:
    call, error, message = UNFIT[case]
    before = [t.clone() for t in tables(world)]
    refuses(lambda: call(world), error, message)
    assert all(map(torch.equal, tables(world), before))
