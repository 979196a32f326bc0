"""Mesh files as worlds of a command: which axis is up, and what a unit is."""

import json

import numpy as np
import pytest
import trimesh

from warp_collision.cli.__main__ import main

SPHERE = np.array([[[[0.0, 0.0, 0.9, 0.2]]]], np.float32)  # above a table of 0.8 m


@pytest.fixture
def files(tmp_path):
    table = trimesh.creation.box((1200.0, 800.0, 800.0)).apply_translation((0.0, 0.0, 400.0))
    table.export(tmp_path / "table.stl")
    table.apply_scale(0.001)
    table.export(tmp_path / "table.glb")
    np.save(tmp_path / "spheres.npy", SPHERE)
    return tmp_path


def check(capsys, files, name, *options) -> tuple[int, str]:
    status = main(["check", str(files / name), str(files / "spheres.npy"), "--json", *options])
    printed = capsys.readouterr()
    json.loads(printed.out)
    return status, printed.err


def test_millimetres(files, capsys):
    status, said = check(capsys, files, "table.stl", "--scale", "0.001")
    assert (status, said) == (1, "")
    assert "1200 m long: if it is in millimetres" in check(capsys, files, "table.stl")[1]


def test_axes(files, capsys):
    assert check(capsys, files, "table.glb", "--up", "z") == (1, "")  # trimesh turned nothing
    assert check(capsys, files, "table.glb") == (0, "")
