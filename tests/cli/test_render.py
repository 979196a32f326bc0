"""`warp-collision render` and `view` on files: what is written, and one line for wrong input."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from robots import PANDA
from warp_collision.cli.__main__ import main

START = [-0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8]


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
