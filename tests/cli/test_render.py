"""`warp-collision render` and `view` on files: what is written, and one line for wrong input."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from robots import PANDA
from warp_collision.cli.__main__ import main

START = [-0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8]


@pytest.fixture
def warns_always():
    """Torch warns of the same thing once in a process otherwise."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.fixture
def world(tmp_path):
    path = tmp_path / "world.yaml"
    path.write_text("cuboid: {top: {dims: [0.4, 0.4, 0.1], pose: [0.6, 0, 0.2, 1, 0, 0, 0]}}")
    return path


def run(capsys, command, *arguments):
    status = main([command, *map(str, arguments)])
    found = capsys.readouterr()
    return status, found.out, found.err


def test_a_world_a_robot_and_a_path(capsys, world, tmp_path):
    joints, picture = tmp_path / "path.npy", tmp_path / "out.png"
    np.save(joints, np.linspace(START, [0.9, *START[1:]], 4, dtype=np.float32))
    size = ["-o", picture, "--size", "320x240"]
    assert run(capsys, "render", world, *size)[:2] == (0, f"written: {picture}\n")
    alone = picture.read_bytes()
    status, out, _ = run(capsys, "render", world, joints, "--robot", PANDA, *size, "--json",
                         "--view", "30,20", "--look-at", "top", "--background", "dark")  # fmt: skip
    assert status == 0
    assert json.loads(out)["overwrote"] == [str(picture)]
    assert picture.read_bytes() != alone
    with Image.open(picture) as image:
        assert image.size == (320, 240)


@pytest.mark.usefixtures("warns_always")
def test_one_row_of_a_data_set_in_its_own_world(capsys, world, tmp_path, recwarn):
    """The picture of a row is that of its path in its world, by hand; nothing warns."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(3)
    paths = np.array(START) + rng.uniform(-0.2, 0.2, (40, 3, 7))
    worlds = [f"world {index}.yaml" for index in range(3)]
    for name, side in zip(worlds, rng.uniform(0.1, 0.5, 3), strict=True):
        cuboid = {"dims": [side] * 3, "pose": [0.7, 0.1, 0.2, 1, 0, 0, 0]}
        (tmp_path / name).write_text(json.dumps({"cuboid": {"block": cuboid}}))
    table = {
        "id": [*range(1000, 1040)],
        "joints": pa.array(paths.tolist(), pa.list_(pa.list_(pa.float32()))),
        "world": [worlds[index % 3] for index in range(40)],
    }
    pq.write_table(pa.table(table), tmp_path / "rows.parquet", row_group_size=7)
    pa_row, picture = tmp_path / "row.npy", tmp_path / "out.png"
    rest = ["--robot", PANDA, "-o", picture, "--size", "320x240", "--view", "corner"]
    np.save(pa_row, paths[25].astype(np.float32))
    assert run(capsys, "render", tmp_path / worlds[25 % 3], pa_row, *rest)[0] == 0
    by_hand = picture.read_bytes()
    for wanted in ("1025", "rows.parquet:25"):
        picture.unlink()
        status, _, err = run(
            capsys, "render", tmp_path, tmp_path / "rows.parquet", *rest, "--row", wanted
        )
        assert status == 0, err
        assert picture.read_bytes() == by_hand
    assert not [str(warning.message) for warning in recwarn]
    for arguments, message in (
        (["--row", "25"], "id must be that of one row, got '25' of no row"),
        ([], "--row must name a row of data sets, by its id"),
    ):
        status, _, err = run(capsys, "render", tmp_path, tmp_path / "rows.parquet", *rest,
                             *arguments)  # fmt: skip
        assert status == 2
        assert message in err
    status, _, err = run(capsys, "render", world, "-o", picture, "--row", "1025")
    assert status == 2
    assert "--row must be given with --robot" in err


@pytest.mark.parametrize("command", ["render", "view"])
def test_wrong_input_is_one_line_and_status_2(capsys, world, tmp_path, command):
    joints, other = tmp_path / "six.npy", tmp_path / "names.csv"
    np.save(joints, np.zeros((3, 6), np.float32))
    other.write_text("a,b,c,d,e,f,g\n0,0,0,0,0,0,0\n")
    rest = ["-o", tmp_path / "x.png"] if command == "render" else ["--port", "0", "--no-browser"]
    for arguments, message in (
        ([tmp_path / "none.yaml"], "none.yaml: no such file"),
        ([world, joints], "PATHS are joint values of a robot: they need --robot URDF"),
        ([world, "--srdf", joints], "--srdf must be given with --robot alone"),
        ([world, joints, "--robot", PANDA], "7"),
        ([world, other, "--robot", PANDA], "panda_joint1"),
    ):
        status, out, err = run(capsys, command, *arguments, *rest)
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert message in err


def test_wrong_pictures(capsys, world, tmp_path):
    for arguments, message in (
        (["-o", tmp_path / "x.jpg"], "output must end in .png, .gif or .mp4"),
        (["-o", tmp_path / "none" / "x.png"], "--output must be in an existing folder"),
        (["-o", tmp_path / "x.png", "--view", "side"], "view must be auto"),
        (["-o", tmp_path / "x.png", "--look-at", "tip"], "look_at must be a point or one of 'top'"),
        (["-o", tmp_path / "x.gif"], "joints must be one path"),
    ):
        status, _, err = run(capsys, "render", world, *arguments)
        assert status == 2
        assert message in err
    assert [*tmp_path.iterdir()] == [world]


def test_a_port_in_use_and_no_viser(capsys, world, monkeypatch):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = run(capsys, "view", world, "--port", port, "--no-browser")
        assert (status, err.count("\n")) == (2, 1)
        assert f"port must be free, got {port}" in err
    monkeypatch.setitem(sys.modules, "viser", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = run(capsys, "view", world, "--no-browser")
    assert status == 2
    assert "pip install 'warp-collision[view]'" in err
