"""Commands start quickly: what they must not import, and how seldom memory is collected."""

import json
import os
import subprocess
import sys

import pytest

from warp_collision.cli.example import write_example

# Each takes tenths of a second, and none of them is needed.
HEAVY = {
    *("torch._dynamo", "torch._inductor", "sympy", "matplotlib", "viser", "av", "mujoco", "pxr"),
    *("h5py", "ray", "IPython", "setuptools", "coal", "pinocchio"),
}
CODE = """
import gc, json, sys, torch
before = gc.get_stats()[2]["collections"]
from warp_collision.cli.__main__ import main
status = main()
print(json.dumps([status, gc.get_stats()[2]["collections"] - before, [*sys.modules]]))
"""
COMMANDS = {
    "check": (
        "check cage.glb straight.npz --robot panda.urdf --json",
        {"pyarrow", "pandas", "rich"},
    ),
    "plan": (
        "plan panda.urdf cage.glb --no-picture --json --start 0 -0.785 0 -2.356 0 1.571 0.785 "
        "--goal 0.1 -0.785 0 -2.356 0 1.571 0.785",
        {"pyarrow", "pandas"},
    ),
    # pyarrow imports pandas where it is installed.
    "label": ("label straight.npz --world cage.glb --robot panda.urdf --out labels", set()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("start")
    write_example(place)
    return place


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_import_what_they_need_and_collect_seldom(folder, name) -> None:
    line, unwanted = COMMANDS[name]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *line.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, collections, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == (1 if name == "check" else 0)
    assert not (HEAVY | unwanted) & set(modules)
    assert collections <= 1  # four, with the collector as Python sets it
