"""The command line: tables, JSON, exit statuses and errors on real files."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

import warp_collision
from warp_collision.cli.__main__ import main

TABLE_TOP = "top: {dims: [1, 1, 0.04], pose: [0, 0, 0, 1, 0, 0, 0]}"
WALL = "wall: {dims: [0.2, 4, 4], pose: [1.1, 0, 0, 1, 0, 0, 0]}"  # its near face is at x = 1


@pytest.fixture
def world(tmp_path) -> str:
    path = tmp_path / "world.yaml"
    path.write_text(f"cuboid: {{{TABLE_TOP}, {WALL}}}", encoding="utf-8")
    return str(path)


@pytest.fixture
def spheres(tmp_path):
    """Writes spheres to a file and returns its path."""

    def write(array) -> str:
        path = tmp_path / "spheres.npy"
        np.save(path, np.asarray(array, dtype=np.float32))
        return str(path)

    return write


def check(capsys, *arguments) -> tuple[int, str, str]:
    """Runs `warp-collision check` and returns status, stdout and stderr."""
    status = main(["check", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def hinge(depth: float, activation_distance: float) -> float:
    if depth <= 0:
        return 0.0
    if depth <= activation_distance:
        return depth**2 / (2 * activation_distance)
    return depth - activation_distance / 2


def test_free_spheres(capsys, world, spheres):
    path = spheres([[0.0, 0.0, 0.3, 0.05], [0.5, 0.0, 1.0, 0.1]])
    status, out, err = check(capsys, world, path)
    assert status == 0
    assert err == ""
    header, row, _, size, conclusion = out.splitlines()
    assert size == "world.yaml: 2 obstacles in 1.7 x 4 x 4 m, from -0.5 -2 -2 to 1.2 2 2"
    assert header.split() == ["batch", "waypoint", "clearance", "[m]", "sphere", "obstacle", "cost"]
    assert row.split() == ["0", "0", "0.2300", "0", "top", "0"]
    assert conclusion == (
        "free; smallest clearance at a waypoint 0.2300 m: batch 0, waypoint 0, sphere 0, "
        "obstacle top"
    )


def test_collisions_name_sphere_and_mesh(capsys, world, spheres):
    free = [0.0, 0.0, 0.5, 0.1]
    path = spheres(
        [
            [[free, [0.0, 0.0, 0.1, 0.2]], [free, free]],
            [[[0.9, 0.0, 2.0, 0.15], free], [free, [0.9, 0.0, 0.5, 0.05]]],
        ]
    )
    status, out, _ = check(capsys, world, path, "--activation-distance", "0.01")
    assert status == 1
    lines = [line.split() for line in out.splitlines()[1:5]]
    assert [line[:5] for line in lines] == [
        ["0", "0", "-0.1200", "1", "top"],
        ["0", "1", "0.3800", "0", "top"],
        ["1", "0", "-0.0500", "0", "wall"],
        ["1", "1", "0.0500", "1", "wall"],
    ]
    assert [line[6:] for line in lines] == [["COLLISION"], [], ["COLLISION"], []]
    assert float(lines[0][5]) == pytest.approx(hinge(0.12 + 0.01, 0.01), rel=1e-3)
    assert "collision at 2 of 4 waypoints; smallest clearance at a waypoint -0.1200 m" in out


@pytest.mark.parametrize("activation_distance", [0.0, 0.02, 0.5])
def test_json_has_every_row(capsys, world, spheres, activation_distance):
    path = spheres([[[0.0, 0.0, 0.1, 0.2], [0.9, 0.0, 0.5, 0.05]], [[0.0, 0.0, 0.5, 0.1]] * 2])
    status, out, err = check(
        capsys,
        world,
        path,
        "--json",
        "--device=cpu",
        f"--activation-distance={activation_distance}",
    )
    assert status == 1
    assert err == ""
    result = json.loads(out)
    rows = result.pop("rows")
    labels = result.pop("paths")  # as of many paths
    assert [(row["path"], row["free"]) for row in labels] == [("spheres.npy:0", False)]
    assert labels[0]["clearance"] == rows[0]["clearance"]
    lower, upper = result.pop("world_extents")  # of the top, and the wall that is 4 m wide and high
    assert lower == pytest.approx([-0.5, -2.0, -2.0], abs=1e-6)
    assert upper == pytest.approx([1.2, 2.0, 2.0], abs=1e-6)
    assert result == {
        "world": world,
        "spheres": path,
        "device": "cpu",
        "activation_distance": activation_distance,
        "swept": False,
        "collision": True,
        "worst": rows[0],
    }
    # The distances of each sphere to the table top and to the wall.
    distances = [
        [((0.2, 0.08), (0.2, 1.0)), ((0.05, np.hypot(0.4, 0.48)), (0.05, 0.1))],
        [((0.1, 0.48), (0.1, 1.0))] * 2,
    ]
    costs = [
        sum(hinge(r + activation_distance - d, activation_distance) for s in row for r, d in s)
        for row in distances
    ]
    assert [row.pop("cost") for row in rows] == pytest.approx(costs, rel=1e-5, abs=1e-6)
    assert [row.pop("clearance") for row in rows] == pytest.approx([-0.12, 0.38], abs=1e-6)
    assert rows == [
        {"batch": 0, "waypoint": 0, "sphere": 0, "obstacle": "top", "collision": True},
        {"batch": 0, "waypoint": 1, "sphere": 0, "obstacle": "top", "collision": False},
    ]


def test_swept_finds_what_lies_between_waypoints(capsys, world, spheres):
    # The middle segment passes through the top; the first and the last stay away from it.
    heights = [1.0, 0.3, -0.3, -1.0]
    path = spheres([[[0.0, 0.0, z, 0.05]] for z in heights])
    assert check(capsys, world, path)[0] == 0

    status, out, _ = check(capsys, world, path, "--swept")
    assert status == 1
    verdicts = [line.partition("COLLISION")[1:] for line in out.splitlines()[1:5]]
    assert verdicts == [("", ""), *[("COLLISION", " on the way")] * 2, ("", "")]
    assert "collision at 2 of 4 waypoints or on the way beside them" in out

    status, out, _ = check(capsys, world, path, "--swept", "--json")
    assert status == 1
    result = json.loads(out)
    assert result["swept"]
    rows = result["rows"]
    assert [row["collision"] for row in rows] == [False, True, True, False]
    assert [row["collision_on_the_way"] for row in rows] == [False, True, True, False]
    # The center reaches the middle of the top, 0.02 m deep.
    deep = hinge(0.05 + 0.02 + 0.02, 0.02)
    assert [row["cost"] for row in rows] == pytest.approx([0.0, deep, deep, 0.0], rel=0.1)


def test_swept_keeps_collisions_of_waypoints(capsys, world, spheres):
    path = spheres([[[0.0, 0.0, 0.0, 0.05]], [[0.0, 0.0, 1.0, 0.05]]])
    status, out, _ = check(capsys, world, path, "--swept", "--json")
    assert status == 1
    rows = json.loads(out)["rows"]
    assert [row["collision"] for row in rows] == [True, False]
    assert [row["collision_on_the_way"] for row in rows] == [False, False]


def test_disabled_spheres_collide_with_nothing(capsys, world, spheres):
    path = spheres([[[0.0, 0.0, 0.0, -0.05]]])
    status, out, _ = check(capsys, world, path)
    assert status == 0
    assert out.splitlines()[1].split() == ["0", "0", "-", "-", "-", "0"]
    assert out.splitlines()[-1] == "free: all spheres are disabled"

    status, out, _ = check(capsys, world, path, "--json")
    assert status == 0
    result = json.loads(out)
    assert result["worst"] is None
    assert result["rows"][0]["clearance"] is None
    assert result["rows"][0]["obstacle"] is None


def test_what_rounding_leaves_open_is_not_free(capsys, tmp_path, spheres):
    world = tmp_path / "map.yaml"
    world.write_text("cuboid: {house: {dims: [1, 1, 1], pose: [5.0e+5, 0, 0, 1, 0, 0, 0]}}")
    path = spheres([[[5.0e5 + 0.6, 0.0, 0.0, 0.05]], [[5.0e5 + 9.0, 0.0, 0.0, 0.05]]])
    status, out, _ = check(capsys, world, path)
    assert status == 1
    assert out.splitlines()[1].split()[-2:] == ["nan", "COLLISION"]
    assert "collision at 1 of 2 waypoints" in out
    status, out, _ = check(capsys, world, path, "--json")
    assert status == 1
    rows = json.loads(out)["rows"]
    assert [row["cost"] for row in rows] == [None, 0.0]
    assert [row["collision"] for row in rows] == [True, False]


def test_a_scene_with_more_meshes_than_a_default_world(capsys, tmp_path, spheres):
    boxes = ", ".join(
        f"box{i}: {{dims: [1, 1, 1], pose: [{2 * i}, 0, 0, 1, 0, 0, 0]}}" for i in range(40)
    )
    world = tmp_path / "boxes.yaml"
    world.write_text(f"cuboid: {{{boxes}}}", encoding="utf-8")
    status, out, _ = check(capsys, world, spheres([[2.0 * 39, 0.0, 0.55, 0.1]]))
    assert status == 1
    assert "obstacle box39" in out


def test_wrong_input_is_one_line_and_status_2(capsys, tmp_path, world, spheres):
    good = spheres([[0.0, 0.0, 1.0, 0.1]])
    bad_world = tmp_path / "bad.yaml"
    bad_world.write_text("cuboid: {top: {dims: [1, 1], pose: [0, 0, 0, 1, 0, 0, 0]}}")
    bad_spheres = tmp_path / "bad.npy"
    np.save(bad_spheres, np.full((1, 4), np.nan))
    empty_mesh = tmp_path / "empty.stl"
    empty_mesh.write_bytes(b"")
    for arguments, message in [
        ((tmp_path / "no.yaml", good), "no.yaml: no such file"),
        ((world, tmp_path / "no.npy"), "no.npy: no such file"),
        ((bad_world, good), "cuboid.top.dims must be 3 positive numbers, got [1, 1]"),
        ((empty_mesh, good), str(empty_mesh)),
        ((world, bad_spheres), "spheres must be finite"),
        ((world, good, "--device", "abacus"), "--device must be"),
        ((world, good, "--device", "cuda:99"), "--device must be"),
    ]:
        status, out, err = check(capsys, *arguments)
        assert status == 2
        assert out == ""
        assert err.startswith("warp-collision: error: ")
        assert message in err
        assert err.count("\n") == 1


def test_an_interrupt_is_no_traceback(capsys, monkeypatch, world, spheres):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(warp_collision, "clearance", interrupted)
    status, out, err = check(capsys, world, spheres([[0.0, 0.0, 0.0, 0.1]]))
    assert (status, out, err) == (130, "", "interrupted\n")


def test_an_interrupt_that_a_library_takes_for_an_error_is_one(capsys, monkeypatch, world, spheres):
    """As NumPy does while it compares structured arrays."""

    def swallow(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise TypeError("no common dtype")

    monkeypatch.setattr(warp_collision, "clearance", swallow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind a shell
    try:
        found = check(capsys, world, spheres([[0.0, 0.0, 0.0, 0.1]]))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["check"],
        ["check", "world.yaml"],
        ["check", "world.yaml", "s.npy", "--activation-distance", "-1"],
        ["check", "world.yaml", "s.npy", "--activation-distance", "inf"],
        ["check", "world.yaml", "s.npy", "--activation-distance", "far"],
        ["demo", "--waypoints", "1"],
        ["demo", "--waypoints", "many"],
    ],
)
def test_wrong_usage_is_status_2(capsys, arguments):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "warp-collision" in capsys.readouterr().err.splitlines()[-1]


def test_an_error_of_the_program_is_no_collision(capsys, monkeypatch, world, spheres):
    def broken(*_, **__):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(warp_collision, "clearance", broken)
    status, out, err = check(capsys, world, spheres([[0.0, 0.0, 0.0, 0.1]]))
    assert status == 3
    assert out == ""
    assert "RuntimeError: out of luck" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *(
            [command, "--help"]
            for command in ("check", "compile", "demo", "example", "label", "plan")
        ),
        *([command, "--help"] for command in ("render", "robot", "view")),
    ],
)
def test_help_fits_a_terminal(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_the_example_of_the_help_runs(capsys, tmp_path):
    """Runs the lines of the example in a shell, with this environment's programs first."""
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    example = capsys.readouterr().out.partition("example, ")[2].split("\n", 1)[1]
    # What follows two or more spaces on the lines of the command is an explanation.
    script = "\n".join(
        line.split("     ")[0] if "warp-collision check" in line else line
        for line in (line.removeprefix("  ") for line in example.splitlines())
    )
    programs = Path(sys.executable).parent
    result = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    assert result.returncode == 1
    # Two tables and nothing else, such as what Warp says when it starts.
    heads = [line for line in result.stdout.splitlines() if line.startswith("batch")]
    assert result.stdout.startswith("batch")
    assert len(heads) == result.stdout.count("smallest clearance at a waypoint") == 2


def test_a_reader_that_stops_early_is_no_error():
    code = "from warp_collision.cli.terminal import print_text\n"
    code += "for line in range(20_000): print_text(f'waypoint {line}')"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=120) == 0


def test_demo_writes_what_its_options_ask_for(capsys, tmp_path):
    report = tmp_path / "report.json"
    options = ["--problem", "cage_1", "--waypoints", "5", "--report", str(report)]
    status = main(["demo", *options, "--picture", str(tmp_path / "no.png"), "--no-picture"])
    assert status == 0
    written = json.loads(report.read_text())
    assert written["problem"] == "cage_1"
    assert [row["waypoint"] for row in written["waypoints"]] == [0, 1, 2, 3, 4]
    assert "cage_1" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["report.json"]


def test_demo_names_its_problems(capsys):
    assert main(["demo", "--problem", "maze", "--no-picture"]) == 2
    message = capsys.readouterr().err
    assert "cage_1" in message
    assert "got 'maze'" in message
    assert message.count("\n") == 1


def test_cuda_is_the_default_where_there_is_one(capsys, world, spheres):
    _, out, _ = check(capsys, world, spheres([[0.0, 0.0, 1.0, 0.1]]), "--json")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert json.loads(out)["device"].partition(":")[0] == expected


def test_what_a_file_has_and_a_check_does_not_see_is_said(tmp_path, spheres, capsys):
    world = tmp_path / "scene.yaml"
    world.write_text(f"cuboid: {{{TABLE_TOP}}}\nvoxel: {{scan: {{}}}}", encoding="utf-8")
    status, out, err = check(capsys, world, spheres([[[0, 0, 1, 0.1]]]), "--json")
    assert status == 0
    assert json.loads(out)
    assert err == (
        f"warp-collision: warning: {world}: a world cannot hold 1 of its entries: voxel.scan "
        "(a grid of voxels without values)\n"
    )
    status, out, err = check(capsys, world, spheres([[[0, 0, 1, 0.1]]]), "--strict")
    assert (status, out) == (2, "")
    assert "voxel.scan" in err


def test_packages_of_a_urdf_file_are_looked_for(tmp_path, spheres, capsys):
    (tmp_path / "packages" / "parts").mkdir(parents=True)
    trimesh.creation.icosphere(1).export(tmp_path / "packages" / "parts" / "ball.stl")
    world = tmp_path / "scene.urdf"
    world.write_text(
        '<robot name="r"><link name="a"><collision><geometry>'
        '<mesh filename="package://parts/ball.stl"/></geometry></collision></link></robot>'
    )
    path = spheres([[[0, 0, 0, 0.1]]])
    assert check(capsys, world, path, "--package-dir", tmp_path / "packages")[0] == 1
    status, _, err = check(capsys, world, path)
    assert (status, "--package-dir in the shell, must name a DIR" in err) == (2, True)
