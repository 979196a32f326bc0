"""`check --robot`: files of joint values, options of robots, and what is read first."""

import json
import sys

import numpy as np
import pytest
import trimesh

from robots import PANDA
from warp_collision.cli.__main__ import main
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model import link_shapes

ENDS = [[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [-0.5, 0, 0, -1.6, 0, 1.6, 0.8]]
NAMES = [f"panda_joint{i}" for i in range(1, 8)]
PLATE = "cuboid: {plate: {dims: [0.5, 0.001, 0.5], pose: [0.5, 0, 0.5, 1, 0, 0, 0]}}"
ARM = """<robot name="arm">
  <link name="base"><collision><geometry><mesh filename="box.stl"/></geometry></collision></link>
  <link name="arm"><collision><origin xyz="0.3 0 0"/>
  <geometry><box size="0.3 0.05 0.05"/></geometry>
  </collision></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/>
  <origin xyz="0 0 0.3"/><axis xyz="0 0 1"/><limit lower="-2" upper="2"/></joint></robot>"""


@pytest.fixture
def check(tmp_path, capsys):
    """Runs the command on a file of joint values; returns status, stdout and stderr."""
    (tmp_path / "world.yaml").write_text(PLATE)

    def run(path, *arguments, robot=PANDA):
        options = (f"--robot={robot}", *map(str, arguments), "--device=cpu")
        status = main(["check", str(tmp_path / "world.yaml"), str(path), *options])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def saved(path, joints):
    np.save(path, np.asarray(joints, dtype=np.float64))
    return path


def table(path, names, rows):
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]))
    return path


def test_joints_are_read_before_spheres_are_fitted(check, tmp_path, monkeypatch):
    trimesh.creation.box((0.1, 0.2, 0.3)).export(tmp_path / "box.stl")
    (tmp_path / "arm.urdf").write_text(ARM)
    monkeypatch.setattr(link_shapes, "CachedParts", None)
    status, _, err = check(saved(tmp_path / "q.npy", np.zeros((3, 2))), robot=tmp_path / "arm.urdf")
    assert status == 2
    assert "got (3, 2); one for each of turn, mimic joints have none" in err


def test_saved_spheres_are_read_back(check, tmp_path, monkeypatch):
    trimesh.creation.box((0.1, 0.2, 0.3)).export(tmp_path / "box.stl")
    (tmp_path / "arm.urdf").write_text(ARM)
    path, file, urdf = (
        saved(tmp_path / "q.npy", [[1.5]]),
        tmp_path / "s.yaml",
        tmp_path / "arm.urdf",
    )
    status, _, err = check(path, "--save-spheres", file, robot=urdf)
    assert (status, f"written to {file}" in err) == (0, True)
    fitted = RobotSpheres(urdf)
    monkeypatch.setattr(link_shapes, "CachedParts", None)
    read = RobotSpheres(urdf, spheres=file)
    assert read.sphere_links == fitted.sphere_links
    for link in read.link_names:
        np.testing.assert_array_equal(read.spheres_of(link), fitted.spheres_of(link))
    status, out, err = check(path, "--robot-spheres", file, robot=urdf)
    assert (status, err, "note:" in out) == (0, "", False)
    read.save_spheres(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == file.read_text()
    assert check(path, "--save-spheres", tmp_path / "no" / "s.yaml", robot=urdf)[0] == 2
    status, _, err = check(path, "--save-spheres", urdf, robot=urdf)
    assert (status, "--save-spheres must not be a file that is read" in err) == (2, True)
    assert urdf.read_text() == ARM
    status, _, err = check(path, "--srdf", tmp_path / "no.srdf", robot=urdf)  # nothing is fitted
    assert (status, "srdf must be an existing file" in err) == (2, True)


def test_spheres_of_a_robot_file_with_more_are_not_saved(tmp_path):
    text = "collision_spheres: {panda_hand: [{center: [0, 0, 0], radius: 0.1}]}"
    for more in ("lock_joints: {panda_joint7: 0.5}", "base_link: panda_link0"):
        (tmp_path / "robot.yml").write_text(f"{{{text}, {more}}}")
        robot = RobotSpheres(PANDA, spheres=tmp_path / "robot.yml")
        with pytest.raises(ValueError, match=r"must be those of links alone, got (locked|a base)"):
            robot.save_spheres(tmp_path / "s.yaml")
    assert not (tmp_path / "s.yaml").exists()


def test_a_table_of_joint_values(check, tmp_path):
    rows = np.array(ENDS)
    expected = check(saved(tmp_path / "q.npy", rows), "--json")
    turned = table(tmp_path / "q.csv", NAMES[::-1], rows[:, ::-1])
    found = check(turned, "--json")
    assert found[0] == expected[0] == 0
    assert json.loads(found[1])["motions"] == json.loads(expected[1])["motions"]
    status, _, err = check(table(tmp_path / "q.csv", [*NAMES[:6], "wrist"], rows))
    assert (status, "unknown is 'wrist'; missing is 'panda_joint7'" in err) == (2, True)


def test_a_locked_joint(check, tmp_path):
    path = saved(tmp_path / "q.npy", np.array(ENDS)[:, :6])
    expected = json.loads(check(saved(tmp_path / "all.npy", ENDS), "--json")[1])["motions"]
    found = json.loads(check(path, "--lock-joint", "panda_joint7=0.8", "--json")[1])["motions"]
    assert found[0]["clearance"] == pytest.approx(expected[0]["clearance"], abs=2e-3)
    twice = check(path, "--lock-joint", "panda_joint7=0.8", "--lock-joint", "panda_joint7=0.1")
    assert twice[0] == 2
    assert "--lock-joint must name a joint once, got 'panda_joint7' twice" in twice[2]
    status, _, err = check(path, "--lock-joint", "panda_joint7=45")
    assert (status, "got 45; in degrees?" in err) == (2, True)
    for wrong in ("panda_joint7", "=1", "panda_joint7=x"):
        with pytest.raises(SystemExit):
            check(path, "--lock-joint", wrong)


def test_values_in_degrees_are_noticed(check, tmp_path):
    path = saved(tmp_path / "q.npy", np.rad2deg(ENDS))
    _, out, _ = check(path)
    note = "note: 8 joint values are beyond 2 pi rad, up to 91.67 of panda_joint6: in degrees?"
    assert note in out
    assert json.loads(check(path, "--json")[1])["beyond_two_pi"] == dict.fromkeys(
        ("panda_joint1", "panda_joint4", "panda_joint6", "panda_joint7"), 2
    )
    assert "degrees" not in check(saved(tmp_path / "q.npy", ENDS))[1]


def test_limits_are_respected_if_told(check, tmp_path):
    beyond = np.array(ENDS)
    beyond[1, 0] = -3.2
    path = saved(tmp_path / "q.npy", beyond)
    assert check(path)[0] == 0
    assert check(path, "--respect-limits")[0] == 1
    assert check(saved(tmp_path / "q.npy", ENDS), "--respect-limits")[0] == 0


def test_links_that_may_touch_each_other(check, tmp_path):
    folded = [-1.5, 0.2, 0, -3.05, 0, -0.0, 0.8]
    path = saved(tmp_path / "q.npy", [folded])
    status, out, _ = check(path, "--json")
    assert status == 1
    contacts = json.loads(out)["contacts"]
    assert all(row["with_itself"] for row in contacts)
    ignored = [word for row in contacts for word in ("--ignore", row["link"], row["obstacle"])]
    status, out, _ = check(path, "--json", *ignored)
    assert (status, json.loads(out)["contacts"]) == (0, [])
    status, _, err = check(path, "--ignore", "panda_hand", "panda_lnk5")
    assert (status, "got no obstacle 'panda_lnk5'" in err) == (2, True)


def test_the_size_of_the_world_is_told(check, tmp_path):
    path = saved(tmp_path / "q.npy", ENDS)
    _, out, _ = check(path)
    size = "1 obstacle in 0.5 x 0.001 x 0.5 m, from 0.25 -0.0005 0.25 to 0.75 0.0005 0.75"
    assert out.startswith(f"world.yaml: {size}\n\n")
    extents = json.loads(check(path, "--json")[1])["world_extents"]
    np.testing.assert_allclose(extents, [[0.25, -0.0005, 0.25], [0.75, 0.0005, 0.75]], atol=1e-6)


def test_saved_spheres_of_a_curved_link_leave_out_nothing(check, tmp_path):
    """At 5 mm it is not decided that spheres, fitted to the limit, cover all; at 1 mm it is."""
    mesh, file = PANDA.parent / "meshes" / "finger.stl", tmp_path / "s.yaml"
    (tmp_path / "arm.urdf").write_text(ARM.replace("box.stl", str(mesh)))
    path = saved(tmp_path / "q.npy", [[1.5]])
    assert "note:" not in check(path, "--save-spheres", file, robot=tmp_path / "arm.urdf")[1]
    read = RobotSpheres(tmp_path / "arm.urdf", spheres=file)
    assert read.coverage(resolution=5e-3)["base"].uncovered > 0.0
    assert "note:" not in check(path, "--robot-spheres", file, robot=tmp_path / "arm.urdf")[1]


def test_a_terminal_shows_which_link_is_fitted(check, tmp_path, monkeypatch):
    trimesh.creation.box((0.1, 0.2, 0.3)).export(tmp_path / "box.stl")
    (tmp_path / "arm.urdf").write_text(ARM)
    path = saved(tmp_path / "q.npy", [[1.5]])
    assert "fitting" not in check(path, robot=tmp_path / "arm.urdf")[2]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = check(path, robot=tmp_path / "arm.urdf")[2]
    first, second, last = shown.split("\r\x1b[K")[1:]
    assert first == "warp-collision: fitting spheres, link 1 of 2: base"
    assert second == "warp-collision: fitting spheres, link 2 of 2: arm"
    assert last == ""
