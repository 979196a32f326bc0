"""`warp-collision plan`: what it writes, its exit statuses, and errors in one line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from robots import PANDA
from warp_collision import MeshWorld, RobotSpheres, joint_path_clearance, joint_path_in_collision
from warp_collision.cli.__main__ import main
from warp_collision.viewer import rendering

LEFT = "-0.9 0.3 0 -1.6 0 1.9 0.8".split()
RIGHT = "0.9,0.3,0,-1.6,0,1.9,0.8"
ACROSS = "0,0.3,0,-1.6,0,1.9,0.8"


@pytest.fixture
def world(tmp_path) -> str:
    path = tmp_path / "world.yaml"
    pose = "[0.5, 0.05, 0.5, 0.98, 0.1, 0.17, 0]"
    path.write_text(f"cylinder: {{post: {{radius: 0.04, height: 1.2, pose: {pose}}}}}")
    return str(path)


def plan(capsys, *arguments) -> tuple[int, str, str]:
    status = main(["plan", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def size_of(picture: Path) -> tuple[int, int]:
    with Image.open(picture) as image:
        return image.size


def test_a_path_and_a_picture_are_written(capsys, world, tmp_path, monkeypatch):
    monkeypatch.setattr(rendering, "_SIZE", (480, 300))  # of a demo it is drawn in full
    output, picture = tmp_path / "found", tmp_path / "found.png"
    ends = ["--start", *LEFT, f"--goal={RIGHT}"]
    status, out, err = plan(
        capsys, PANDA, world, *ends, "--output", output, "--picture", picture, "--json"
    )
    assert (status, err) == (0, "")
    printed = json.loads(out)
    assert printed["free"]
    assert printed["written"] == [str(output), str(picture)]
    written = np.load(output)
    robot = RobotSpheres(PANDA)
    assert tuple(written["joint_names"]) == robot.joint_names
    joints = torch.from_numpy(written["joints"])[None]
    assert joints.shape == (1, 32, 7)
    np.testing.assert_allclose(joints[0, 0], np.array(LEFT, float), rtol=1e-6)
    np.testing.assert_allclose(joints[0, -1], np.array(RIGHT.split(","), float), rtol=1e-6)
    obstacles = MeshWorld.from_file(world, "cpu")
    assert not joint_path_in_collision(joints, robot, obstacles).any()
    found = joint_path_clearance(joints, robot, obstacles)
    smallest = found.upper.min().item()
    assert 0.0 < written["clearance"].item() <= smallest
    assert written["free"]
    assert size_of(picture) == (480, 300)

    again = tmp_path / "again.npz"
    status, out, _ = plan(
        capsys, PANDA, world, *ends, "--output", again, "--no-picture", "--clearance", "0.01"
    )
    assert status == 0
    assert "certified free: the robot's spheres come nowhere nearer than " in out
    assert "note: the spheres leave out up to 80 % of the surface of panda_leftfinger" in out
    assert "wanted" not in out
    assert out.splitlines()[-1] == f"written: {again}"
    np.testing.assert_array_equal(np.load(again)["joints"], written["joints"])
    assert sorted(os.listdir(tmp_path)) == ["again.npz", "found", "found.png", "world.yaml"]


def test_no_path_is_status_1_and_writes_nothing(capsys, world, tmp_path):
    arguments = [PANDA, world, "--start", *LEFT, f"--goal={RIGHT}", "--waypoints", 2]
    output = ["--output", tmp_path / "p.npz", "--picture", tmp_path / "p.png"]
    status, out, err = plan(capsys, *arguments, *output)
    assert (status, err) == (1, "")
    assert out.startswith("no free path was found in ")
    status, out, _ = plan(capsys, *arguments, *output, "--json")
    assert status == 1
    assert not json.loads(out)["free"]
    status, out, _ = plan(capsys, *arguments[:-2], *output, "--max-seconds", 0)
    assert status == 1
    assert out.startswith("no free path was found in 0 iterations, within --max-seconds 0\nnote: ")
    assert os.listdir(tmp_path) == ["world.yaml"]


def test_what_was_there_is_named(capsys, world, tmp_path):
    """A path is overwritten; a picture of another path stays, but not without a word."""
    files = ["--output", tmp_path / "p.npz", "--picture", tmp_path / "p.png", "--no-picture"]
    for path in (tmp_path / "p.npz", tmp_path / "p.png"):
        path.write_bytes(b"old")
    ends = ["--start", *LEFT, "--goal=-0.6,0.1,0,-1.8,0,1.9,0.8"]
    _, out, _ = plan(capsys, PANDA, world, *ends, *files)
    assert out.splitlines()[-2:] == [
        f"overwrote: {tmp_path / 'p.npz'}",
        f"of an earlier run: {tmp_path / 'p.png'}",
    ]
    assert (tmp_path / "p.png").read_bytes() == b"old"
    assert np.load(tmp_path / "p.npz")["free"]
    _, out, _ = plan(capsys, PANDA, world, *ends, *files, "--json")
    told = json.loads(out)
    assert told["overwrote"] == told["written"] == [str(tmp_path / "p.npz")]
    assert told["of_an_earlier_run"] == [str(tmp_path / "p.png")]


def test_a_wanted_clearance_that_is_not_reached_is_told(capsys, world, tmp_path):
    """Two links at the start are 15 mm from each other, whatever is wanted."""
    ends = ["--start", *LEFT, "--goal=-0.6,0.1,0,-1.8,0,1.9,0.8", "--clearance", "0.3"]
    files = ["--output", tmp_path / "p.npz", "--no-picture"]
    _, out, _ = plan(capsys, PANDA, world, *ends, *files)
    line = next(line for line in out.splitlines() if "wanted" in line)
    assert line.startswith("the wanted clearance of 300.0 mm was not reached: nearest are panda_li")
    assert ", between waypoints " in line
    assert not np.load(tmp_path / "p.npz")["has_preferred_clearance"]


def test_the_first_path_is_written_without_a_clearance(capsys, world, tmp_path):
    ends = ["--start", *LEFT, f"--goal={RIGHT}", "--until", "first"]
    files = ["--output", tmp_path / "p.npz", "--no-picture"]
    status, out, _ = plan(capsys, PANDA, world, *ends, *files)
    assert status == 0
    told = "certified free: the robot's spheres touch no obstacle and, where they move, not each "
    assert out.startswith(told)
    written = np.load(tmp_path / "p.npz")
    obstacles = MeshWorld.from_file(world, "cpu")
    joints = torch.from_numpy(written["joints"])[None]
    assert not joint_path_in_collision(joints, RobotSpheres(PANDA), obstacles).any()
    assert np.isnan([written["clearance"], written["world_clearance"]]).all()
    assert plan(capsys, PANDA, world, *ends, *files, "--json")[0] == 0
    shortened = plan(capsys, PANDA, world, *ends[:-2], *files, "--json")[1]
    assert json.loads(shortened)["length"] < written["length"]


@pytest.mark.slow
def test_contacts_that_are_wanted_and_a_base_elsewhere(capsys, world, tmp_path):
    """What stands around the post may touch it; and where the robot stands elsewhere, it is far.

    A straight path that is free is drawn alone.
    """
    ends = [f"--start={LEFT[0]}," + ACROSS[2:], f"--goal={RIGHT}"]
    files = ["--output", tmp_path / "p.npz", "--picture", tmp_path / "p.png"]
    links = RobotSpheres(PANDA).link_names
    ignore = [word for link in links for word in ("--ignore", link, "post")]
    base = ["--base-pose", *"0 -1e-2 0 -3 0 0 0".split()]  # by a centimetre
    status, out, err = plan(capsys, PANDA, world, *ends, *files, *ignore, *base)
    assert (status, err) == (0, "")
    assert "length 1.800 (straight 1.800)" in out  # through the post
    assert "where they move, to each other, contacts of --ignore aside" in out
    assert size_of(tmp_path / "p.png") == (1280, 800)
    base[-4:] = "0 0 0 -3".split()  # turned away from the post
    status, out, _ = plan(capsys, PANDA, world, *ends, *files, *base, "--no-picture")
    assert status == 0
    assert "length 1.800 (straight 1.800)" in out


def test_numbers_of_any_form_and_swapped_files(capsys, world, tmp_path):
    files = ["--output", tmp_path / "p.npz", "--no-picture"]
    start, goal = "-9e-1 .3 0 -1.6 0 1.9 8E-1", "-0.6,1e-1,0,-1.8,0,1.9,0.8"
    ends = ["--start", *start.split(), "--goal", goal]
    status, out, _ = plan(capsys, PANDA, world, *ends, *files)
    assert status == 0
    assert "length 0.412 (straight 0.412)" in out
    np.testing.assert_allclose(np.load(files[1])["joints"][0], np.array(LEFT, float), rtol=1e-6)
    status, _, err = plan(capsys, world, PANDA, *ends, *files)
    assert status == 2
    assert "ROBOT and WORLD look swapped: " in err


def test_wrong_input_is_one_line_and_status_2(capsys, world, tmp_path):
    files = ["--output", tmp_path / "p.npz", "--no-picture"]
    for start, goal, message in [
        (ACROSS, RIGHT, r"start must be free and within joint limits, got batch row 0: panda_link"),
        (RIGHT, ACROSS, "in collision with post"),
        (RIGHT, "0,0", "--goal must have 7 values, one for each of panda_joint1, "),
        ("0,x", RIGHT, "--start must be finite numbers, got '0,x'"),
        ("0,nan", RIGHT, "--start must be finite numbers"),
        (RIGHT, RIGHT.replace("-1.6", "-4"), "panda_joint4 = -4.0000 is beyond its limits"),
    ]:
        status, out, err = plan(capsys, PANDA, world, f"--start={start}", f"--goal={goal}", *files)
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    nowhere = ["--output", tmp_path / "none" / "p.npz"]
    ends = [f"--start={RIGHT}", f"--goal={RIGHT}"]
    status, _, err = plan(capsys, PANDA, world, *ends, *nowhere)
    assert status == 2
    assert "--output must be in an existing folder" in err
    status, _, err = plan(capsys, tmp_path / "no.urdf", world, *ends, *files)
    assert status == 2
    assert "no.urdf" in err
    assert os.listdir(tmp_path) == ["world.yaml"]


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "a.urdf", "w.yaml"], ["plan", "a", "w", "--start", "1"]]
)
def test_wrong_usage_is_status_2(capsys, arguments):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "warp-collision" in capsys.readouterr().err.splitlines()[-1]


# A ball that slides into another one, which is free at the ends of the path alone.
SLIDER = """<robot name="slider">
  <link name="base"><collision><geometry><sphere radius="0.2"/></geometry></collision></link>
  <link name="mid"/>
  <link name="ball"><collision><geometry><sphere radius="0.02"/></geometry></collision></link>
  <joint name="slide" type="prismatic"><parent link="base"/><child link="mid"/>
    <origin xyz="0.23 0 0"/><axis xyz="1 0 0"/><limit lower="-0.46" upper="0.005"/></joint>
  <joint name="hold" type="fixed"><parent link="mid"/><child link="ball"/></joint></robot>"""


def test_a_robot_that_touches_itself_nearly_always_is_named(capsys, world, tmp_path):
    urdf = tmp_path / "slider.urdf"
    urdf.write_text(SLIDER)
    ends = ("--start=0", "--goal=-0.46", "--max-seconds=1", "--no-picture", "--device=cpu")
    status, out, err = plan(capsys, urdf, world, *ends, f"--output={tmp_path / 'p.npz'}")
    assert err == ""
    assert status == 1
    assert "no free path was found" in out
    assert "note: the robot touches itself in 9" in out
    assert "--ignore base ball leaves them out" in out


def test_a_near_start_is_planned_from_and_named(capsys, tmp_path):
    robot = RobotSpheres(PANDA)
    spheres = robot(torch.tensor([float(value) for value in LEFT]))[37:]  # of the hand
    floor = (spheres[:, 2] - spheres[:, 3]).min().item() - 0.4e-3
    x, y = spheres[:, :2].mean(0).tolist()
    world = tmp_path / "floor.yaml"
    pose = [x, y, floor - 0.1, 1, 0, 0, 0]
    world.write_text(json.dumps({"cuboid": {"floor": {"dims": [0.4, 0.4, 0.2], "pose": pose}}}))
    ends = ["--start", *LEFT, f"--goal={RIGHT}", "-o", tmp_path / "p.npz", "--no-picture"]
    status, out, err = plan(capsys, PANDA, world, *ends)
    assert (status, err) == (0, "")
    assert "nearer than the margin of 1 mm, so that the path is proven with one of 0.125" in out
    assert "mm from floor (start)" in out
    assert np.load(tmp_path / "p.npz")["margin"] == pytest.approx(1.25e-4)
    status, out, _ = plan(capsys, PANDA, world, *ends, "--margin", 1e-4, "--json")
    printed = json.loads(out)
    assert (status, printed["near_ends"], printed["margin"]) == (0, [], pytest.approx(1e-4))
    with pytest.raises(SystemExit):
        plan(capsys, PANDA, world, *ends, "--margin", 0)
    assert "--margin: must be a number above 0" in capsys.readouterr().err
