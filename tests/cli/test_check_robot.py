"""`warp-collision check --robot`: joint values of a file, waypoints and proven motions."""

import json
from pathlib import Path

import numpy as np
import pytest

from robots import PANDA
from warp_collision import MeshWorld, VoxelGrid
from warp_collision.cli.__main__ import main
from warp_collision.examples import load_panda
from warp_collision.robot.model import urdf_model

# The ends are free, the arc between them goes through the plate.
ENDS = [[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [0.9, 0, 0, -1.6, 0, 1.6, 0.8]]
PLATE = "cuboid: {plate: {dims: [0.5, 0.001, 0.5], pose: [0.5, 0, 0.5, 1, 0, 0, 0]}}"
SRDF = """<robot name="panda">
  <disable_collisions link1="panda_link5" link2="panda_link7" reason="Never"/>
</robot>"""
BOX = """<collision><origin xyz="0.2 0 0"/>
  <geometry><box size="0.4 0.05 0.05"/></geometry></collision>"""
BALL = """<visual><geometry><mesh filename="no.stl"/></geometry></visual>
  <collision><geometry><sphere radius="0.1"/></geometry></collision>"""
ARM = f"""<robot name="arm"><link name="base"/><link name="arm">{BOX}</link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>
  <limit lower="-2" upper="2"/></joint></robot>"""


@pytest.fixture
def world(tmp_path) -> str:
    path = tmp_path / "world.yaml"
    path.write_text(PLATE)
    return str(path)


@pytest.fixture
def check(tmp_path, world, capsys):
    """Runs the command on joint values; returns status, stdout and stderr."""

    def run(joints, *arguments, name="joints.npz"):
        path = tmp_path / name
        if path.suffix == ".npz":
            np.savez(path, joints=np.asarray(joints, dtype=np.float64), times=np.zeros(2))
        else:
            np.save(path, np.asarray(joints, dtype=np.float32))
        options = (*map(str, arguments), "--device=cpu")
        # The last of equal options counts.
        status = main(["check", world, str(path), f"--robot={PANDA}", *options])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_motion_between_free_waypoints(check):
    status, out, err = check(ENDS)
    assert status == 1
    assert err == ""
    assert "at waypoints:\nnothing collides" in out
    row = next(line for line in out.splitlines() if "NOT PROVEN FREE" in line).split()
    assert row[:3] == ["0", "0", "1"]
    assert row[-3:-1] == [row[7], "and"]  # the link that is nearest on the way
    assert row[-1] == "plate"
    assert "obstacles [mm]" in out
    assert float(row[3]) < -30.0
    assert float(row[5]) - float(row[3]) <= 1.0
    assert "collision: 1 of 1 motions are not proven free (checked with itself by 1116 pairs" in out


def test_free_motions_are_proven(check, tmp_path):
    status, out, _ = check(np.linspace(ENDS[0], [-0.5, *ENDS[0][1:]], 4), name="joints.npy")
    assert status == 0
    assert "free: all 3 motions of the robot's spheres are proven" in out
    assert "(checked with itself by 1116 pairs of spheres)" in out
    (tmp_path / "panda.srdf").write_text(SRDF)
    _, out, _ = check(ENDS[:1] * 2, "--srdf", tmp_path / "panda.srdf")
    assert "with itself by 1056 pairs" in out


@pytest.mark.parametrize("is_saved", [False, True])
def test_the_urdf_is_read_once(check, tmp_path, monkeypatch, is_saved):
    saved = tmp_path / "panda.yaml"
    load_panda().save(saved)
    read, files = urdf_model.read_urdf, []
    monkeypatch.setattr(urdf_model, "read_urdf", lambda path: files.append(path) or read(path))
    assert check(ENDS, *([f"--robot={saved}"] if is_saved else []))[0] == 1
    assert len(files) == 1


def test_what_cannot_change_is_told_apart(check, world):
    """The base stands near a floor, all along; the rows are of what moves, one for a pair."""
    floor = "floor: {dims: [2, 2, 0.1], pose: [0, 0, -0.2, 1, 0, 0, 0]}"
    far = PLATE.replace("0.5, 0, 0.5, 1", "0.5, 0, 1.9, 1").rstrip("}")
    Path(world).write_text(f"{far}}}, {floor}}}")
    path = np.linspace(ENDS[0], [-0.3, 0.2, *ENDS[0][2:]], 9)
    status, out, _ = check(path)
    assert status == 0
    lines = out[out.index("between waypoints") :].splitlines()
    rows = [line.split() for line in lines[2 : lines.index("")] if not line.startswith("rests")]
    pairs = [tuple(row[row.index("to", 3) + 3 : row.index("to", 3) + 5]) for row in rows]
    assert "panda_link0" not in {link for link, _ in pairs}
    assert sum(1 + int(row[-1].replace("-", "0")) for row in rows) == 8
    assert len(rows) < 8
    rest = [line for line in lines if line.startswith("rests: panda_link0, ")]
    assert len(rest) == 1
    assert rest[0].endswith("mm from floor")
    found = json.loads(check(path, "--json")[1])
    (base,) = found["resting"]
    assert (base["link"], base["obstacle"]) == ("panda_link0", "floor")
    spheres = load_panda().spheres_of("panda_link0")
    lowest = (spheres[:, 2] - spheres[:, 3]).min()
    assert base["clearance"] == pytest.approx(lowest + 0.15, abs=1e-5)
    assert {motion["link"] for motion in found["motions"]} & {"panda_link0"} == set()


def test_json(check):
    middle = [0.0, *ENDS[0][1:]]
    status, out, _ = check(
        [[ENDS[0], middle], [ENDS[0], ENDS[0]]], "--json", "--detail", "--tolerance=0.002"
    )
    assert status == 1
    result = json.loads(out)
    assert result["collision"] is True
    assert result["tolerance"] == 0.002
    assert {(row["batch"], row["waypoint"]) for row in result["contacts"]} == {(0, 1)}
    assert {row["obstacle"] for row in result["contacts"]} == {"plate"}
    assert all(row["depth"] > 0.0 for row in result["contacts"])
    first, second = result["motions"]
    assert not first["proven_free"]
    assert first["clearance"][0] < 0.0
    assert first["obstacle"] == "plate"
    assert second["proven_free"]
    assert 0.0 <= second["clearance"][1] - second["clearance"][0] <= 0.002
    assert second["self_clearance"][0] > 0.01
    assert len(set(second["self_links"])) == 2
    assert result["beyond_limits"] == {}


def test_wanted_contacts_and_limits(check):
    links = {row["link"] for row in json.loads(check([0.0, *ENDS[0][1:]], "--json")[1])["contacts"]}
    ignore = [word for link in links for word in ("--ignore", link, "plate")]
    path = [[0.0, *ENDS[0][1:]], [0.001, *ENDS[0][1:]]]
    assert check(path)[0] == 1
    assert check(path, *ignore)[0] == 0
    beyond = [*ENDS[0][:3], 0.2, *ENDS[0][4:]]
    out = json.loads(check([beyond], "--json")[1])
    assert out["beyond_limits"] == {"panda_joint4": 1}
    assert out["motions"] == []


def test_the_robot_with_itself_is_named(check):
    """The hand is pulled to the forearm: the plate is far, and a joint is beyond its limit."""
    folded = [1.5, 0.2, 0, -3.3, 0, -0.6, 0.8]
    status, out, _ = check([[1.5, 0.2, 0, -2.6, 0, 0.4, 0.8], folded])
    assert status == 1
    row = next(line for line in out.splitlines() if "NOT PROVEN FREE" in line)
    assert row.rpartition("NOT PROVEN FREE: ")[2].count("panda_") == 2
    assert "plate" in row  # the nearest obstacle has its own column
    beyond = "2 joint values are beyond the limits: 1 of panda_joint4, 1 of panda_joint6"
    assert beyond in out


def test_one_row_of_a_data_set_in_its_own_world(capsys, tmp_path):
    """The report on a row is that on its path in its world, by hand."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(5)
    paths = np.array(ENDS, np.float32) + rng.uniform(-0.1, 0.1, (6, 2, 7)).astype(np.float32)
    worlds, rows = tmp_path / "worlds", tmp_path / "rows.parquet"
    worlds.mkdir()
    (worlds / "far.yaml").write_text(PLATE.replace("[0.5, 0, 0.5,", "[1.5, 0, 0.5,"))
    (worlds / "near.yaml").write_text(PLATE)
    names = ["near.yaml", "far.yaml"] * 3
    table = {"id": [*range(4708, 4714)], "path": paths.tolist(), "world": names}
    pq.write_table(pa.table(table), rows)
    asked = [f"--robot={PANDA}", "--device=cpu"]
    for wanted, index in (("4711", 3), ("rows.parquet:4", 4)):
        np.save(tmp_path / "row.npy", paths[index])
        reports = []
        for arguments in (
            [worlds / names[index], tmp_path / "row.npy"],
            [worlds, rows, "--row", wanted],
        ):
            status = main(["check", *map(str, arguments), *asked])
            assert status == (names[index] == "near.yaml")
            reports.append(capsys.readouterr().out.partition("at waypoints:")[2])
        assert reports[0] == reports[1] != ""
    found = json.loads(check_row(capsys, worlds, rows, *asked, "--json")[1])
    assert found["row"] == "4711"
    assert [row["path"] for row in found["paths"]] == ["4711"]
    for more in ("--csv", "--detail", "--first"):
        status, _, err = check_row(capsys, worlds, rows, *asked, more)
        assert status == 2
        assert "--row must be given without options of many paths" in err
    status, _, err = check_row(capsys, worlds, rows)
    assert status == 2
    assert "--row must be given with --robot alone" in err


def check_row(capsys, *arguments) -> tuple[int, str, str]:
    status = main(["check", *map(str, arguments), "--row", "4711"])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_what_the_spheres_leave_out_is_said(check, tmp_path):
    path = np.linspace(ENDS[0], [-0.5, *ENDS[0][1:]], 3)
    _, out, _ = check(path)
    assert "note: the spheres leave out up to 80 % of the surface of panda_leftfinger, and" in out
    assert json.loads(check(path, "--json")[1])["uncovered"].keys() >= {"panda_link0"}
    (tmp_path / "arm.urdf").write_text(ARM)
    _, out, _ = check([[0.1], [0.2]], f"--robot={tmp_path / 'arm.urdf'}")
    assert "note:" not in out  # spheres were fitted
    (tmp_path / "ball.urdf").write_text(ARM.replace(BOX, BALL))
    _, out, _ = check([[0.1], [0.2]], f"--robot={tmp_path / 'ball.urdf'}")
    assert "note: not known is what the spheres leave out of arm: link 'arm': mesh 'no.stl'" in out
    told = json.loads(check([[0.1], [0.2]], f"--robot={tmp_path / 'ball.urdf'}", "--json")[1])
    assert told["uncovered"] == {"arm": None}
    assert "free: all 1 motions of the robot's spheres are proven" in out


def test_a_base_elsewhere(check):
    """The robot stands turned, so that the plate is behind it; a quaternion of any length."""
    pose = "--base-pose 0 -1e-2 0 0 0 0 -3e0".split()
    assert check(ENDS, *pose)[0] == 0
    status, _, err = check(ENDS, *pose[:-1], "0")
    assert status == 2
    assert "--base-pose must have a quaternion (qw, qx, qy, qz) other than 0" in err


def test_what_rounding_leaves_open_is_not_free(check, world):
    Path(world).write_text("cuboid: {house: {dims: [1, 1, 1], pose: [5.0e+5, 0, 0, 1, 0, 0, 0]}}")
    # 0.6 m in front of the wall, where rounding may be 1 m, and far away from it.
    status, out, _ = check(ENDS[:1], *"--base-pose 499998.4 0 0 1 0 0 0 --json".split())
    assert status == 1
    contacts = json.loads(out)["contacts"]
    assert {contact["depth"] for contact in contacts if not contact["with_itself"]} == {None}
    assert "house" in {contact["obstacle"] for contact in contacts}
    assert check(ENDS[:1], *"--base-pose 0 0 0 1 0 0 0".split())[0] == 0


def test_files_in_the_other_order_and_joints_without_a_robot(capsys, world, tmp_path):
    path = tmp_path / "joints.npz"
    np.savez(path, joints=np.zeros((3, 7)), free=np.array(True))
    assert main(["check", str(path), world]) == 2
    assert "WORLD must come before PATHS, which look swapped" in capsys.readouterr().err
    (tmp_path / "joints.csv").write_text("a,b\n0,0\n")
    assert main(["check", str(tmp_path / "joints.csv"), world]) == 2
    assert "WORLD must come before PATHS, which look swapped" in capsys.readouterr().err
    for file in (path, tmp_path / "joints.csv"):
        assert main(["check", world, str(file)]) == 2
        assert capsys.readouterr().err.endswith("; joint values of a robot need --robot URDF\n")
    np.savez(tmp_path / "map.npz", states=np.zeros(3))
    assert main(["check", str(tmp_path / "map.npz"), str(path)]) == 2
    assert "swapped" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--swept",), "--swept must not be given with --robot"),
        (("--activation-distance=0",), "--activation-distance must not be given with --robot"),
        (("--tolerance=0",), "tolerance must be positive, got 0.0"),
        (("--ignore", "hand", "plate"), "ignore must be pairs of a link of the robot and an obst"),
        (("--srdf", "none.srdf"), "srdf must be an existing file, got 'none.srdf'"),
    ],
)
def test_wrong_arguments(check, arguments, message):
    status, out, err = check(ENDS, *arguments)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("joints", "message"),
    [
        (np.zeros((2, 6)), "joints must have shape (7,), (horizon, 7) or (batch, horizon, 7), got"),
        (np.full((2, 7), np.nan), "joints must be finite, got"),
        (np.zeros((0, 7)), "holds no joints, got shape (0, 7)"),
    ],
)
def test_wrong_joint_values(check, joints, message):
    status, _, err = check(joints)
    assert status == 2
    assert message in err


def test_options_of_robots_need_one(capsys, world, tmp_path):
    np.save(tmp_path / "spheres.npy", np.zeros((1, 4)))
    pose = ("--base-pose", *"1000000")
    for option in (("--tolerance=0.01",), ("--ignore", "a", "b"), ("--srdf=a.srdf",), pose):
        assert main(["check", world, str(tmp_path / "spheres.npy"), *option]) == 2
        assert "must be given with --robot alone" in capsys.readouterr().err


def test_links_that_are_only_seen_are_said(check, capsys, tmp_path):
    seen = BOX.replace("collision>", "visual>")
    ball = "<collision><geometry><sphere radius='0.1'/></geometry></collision>"
    text = ARM.replace(BOX, seen).replace('name="base"/>', f'name="base">{ball}</link>')
    (tmp_path / "seen.urdf").write_text(text)
    robot = f"--robot={tmp_path / 'seen.urdf'}"
    out = check([[0.1], [0.2]], robot)[1]
    assert "note: links without spheres, which nothing checks: arm; --shapes visual" in out
    assert out.rstrip().endswith(
        "(checked with itself by 0 pairs of spheres; 1 link with shapes not checked)"
    )
    assert main(["robot", str(tmp_path / "seen.urdf")]) == 0
    assert "\n--shapes visual covers links that have" in capsys.readouterr().out
    assert json.loads(check([[0.1]], robot, "--json")[1])["links_without_spheres"] == ["arm"]


def test_what_no_camera_saw(check, world):
    """A wall that was seen, and a slab on the way that was not: three answers."""
    occupied, unknown = np.zeros((2, 20, 20, 20), bool)
    occupied[19], unknown[:, 9:11] = True, True
    place = (0.1, (0.2, -1.0, 0.0))
    scene = MeshWorld(device="cpu")
    scene.add("map", VoxelGrid(occupied, *place, unknown), padding=0.001)
    scene.save(world)
    status, out, _ = check(ENDS)
    assert (status, "NOT PROVEN FREE" in out) == (1, True)
    status, out, _ = check(ENDS, "--unknown=free")
    assert (status, "all 1 motions" in out) == (0, True)
    assert check(ENDS, "--unknown=occupied")[0] == 1
    status, out, _ = check(ENDS, "--unknown=report")
    assert status == 1
    assert "1 of 1 motions are not proven free, 1 of them for unobserved space alone" in out
    row = next(line for line in out.splitlines() if "NEVER SEEN" in line)
    assert row.endswith("and map (never seen)")
    motion = json.loads(check(ENDS, "--unknown=report", "--json")[1])["motions"][0]
    assert motion["only_unseen"]
    assert motion["obstacle"] == "map (never seen)"
    # What was seen to be in the way is no question of what was not.
    occupied[:, 9:11] = True
    scene.update("map", VoxelGrid(occupied, *place, unknown & ~occupied))
    scene.save(world)
    status, out, _ = check(ENDS, "--unknown=report")
    assert (status, "NEVER SEEN" in out) == (1, False)
    assert check([ENDS, ENDS[::-1]], "--unknown=free")[0] == 1


@pytest.mark.parametrize("options", [(), ("--unknown=report",)])
def test_unobserved_space_that_is_an_obstacle_of_its_own(check, world, options):
    unknown = np.zeros((20, 20, 20), bool)
    unknown[:, 9:11] = True
    grid = VoxelGrid(np.zeros_like(unknown), 0.1, (0.2, -1.0, 0.0), unknown)
    scene = MeshWorld(device="cpu")
    scene.add("never seen", grid.unseen)
    scene.add("nothing", grid.seen)
    scene.save(world)
    status, out, _ = check(ENDS, *options)
    assert (status, "1 of them for unobserved space alone" in out) == (1, True)
    assert "2 obstacles in 2 x 0.2 x 2 m, from 0.2 -0.1 0 to 2.2 0.1 2" in out
    row = next(line for line in out.splitlines() if "NEVER SEEN" in line)
    assert row.endswith("and never seen")
