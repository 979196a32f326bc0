"""The command that shows what a robot file became."""

import json

import numpy as np
import pytest
import trimesh
from PIL import Image

from robots import PANDA
from warp_collision import RobotSpheres
from warp_collision.cli.__main__ import main
from warp_collision.examples import load_panda


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main(["robot", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_tables(capsys):
    status, out, err = run(capsys, PANDA)
    assert (status, err) == (0, "")
    assert out.startswith("RobotSpheres: 12 links, 7 joints, 59 spheres")
    (hand,) = (line.split() for line in out.splitlines() if line.startswith("panda_hand "))
    found = load_panda().coverage(resolution=2e-3)["panda_hand"]
    expected = [f"{1e3 * found.overshoot:.1f}", f"{found.uncovered:.1%}", f"{1e3 * found.gap:.1f}"]
    assert hand[1:] == ["18", *expected]
    assert "42 of 55 pairs of links are checked" in out


def test_json_has_the_same(capsys):
    status, out, _ = run(capsys, PANDA, "--json", "--lock-joint", "panda_joint1=0.3")
    told, robot = json.loads(out), load_panda()
    assert status == 0
    assert [joint["name"] for joint in told["joints"]] == list(robot.joint_names[1:])
    np.testing.assert_allclose(told["joints"][0]["limits"], robot.joint_limits[1], rtol=1e-6)
    assert sum(told["spheres"].values()) == 59
    assert told["coverage"]["panda_link5"]["spheres"] == 12
    assert {pair["checked"] for pair in told["pairs_of_links"]} == {True, False}


def test_what_decides_about_exact_shapes(capsys, tmp_path):
    trimesh.creation.torus(0.1, 0.02, major_sections=12, minor_sections=8).export(
        tmp_path / "r.stl"
    )
    shapes = '<box size="0.2 0.1 0.3"/>', '<sphere radius="0.1"/>', '<mesh filename="r.stl"/>'
    collision = "<collision><geometry>{}</geometry></collision>".format
    links = {"plain": collision(shapes[0]) + collision(shapes[1]), "hollow": collision(shapes[2])}
    text = "".join(f'<link name="{name}">{content}</link>' for name, content in links.items())
    text += '<joint name="j" type="continuous"><parent link="plain"/><child link="hollow"/></joint>'
    (tmp_path / "arm.urdf").write_text(f'<robot name="arm">{text}</robot>')
    status, out, _ = run(capsys, tmp_path / "arm.urdf")
    lines = [line.split() for line in out.splitlines()]
    assert status == 0
    assert ["plain", "2", "2.0", "-"] in lines
    assert ["hollow", "0", "-", "192"] in lines
    told = json.loads(run(capsys, tmp_path / "arm.urdf", "--json")[1])["exact_shapes"]
    assert told["plain"] == {"pieces": 2, "overshoot": 0.002, "triangles": 0}
    assert (told["hollow"]["pieces"], told["hollow"]["triangles"]) == (0, 192)


def test_what_is_written_is_read_back(capsys, tmp_path):
    sheet, srdf, spheres = (tmp_path / name for name in ("sheet.png", "panda.srdf", "panda.yaml"))
    written = ("-o", sheet, "--save-srdf", srdf, "--save-spheres", spheres)
    status, out, err = run(capsys, PANDA, *written)
    assert status == 0
    assert out.count("written: ") == 2
    assert "spheres were written" in err
    assert np.ptp(np.asarray(Image.open(sheet).convert("L")).astype(int)) > 100
    copy = RobotSpheres(PANDA, spheres=spheres, srdf=srdf)
    assert len(copy.sphere_links) == 59
    pairs = [set(map(frozenset, r.self_collision_pairs().link_pairs)) for r in (copy, load_panda())]
    assert pairs[0] == pairs[1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("none.urdf", None),
        ("broken.urdf", "<robot"),
        ("arm.urdf", '<robot name="a"><link name="b"/></robot>'),
    ],
)
def test_what_is_no_robot_is_one_line(capsys, tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    status, out, err = run(capsys, path)
    assert (status, out) == (2, "")
    assert err.startswith("warp-collision: error: ")
    assert name in err
    assert err.count("\n") == 1


PLATE = "cuboid: {plate: {dims: [0.5, 0.001, 0.5], pose: [0.5, 0, 0.5, 1, 0, 0, 0]}}"
SRDF = """<robot name="panda">
  <group name="wrist"><joint name="panda_joint6"/><joint name="panda_joint7"/></group>
  <group_state name="ready" group="arm"><joint name="panda_joint4" value="-1.6"/></group_state>
</robot>"""


@pytest.fixture
def files(tmp_path):
    """A world, joint values of two paths, and a saved robot."""
    (tmp_path / "world.yaml").write_text(PLATE)
    ends = [[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [-0.5, 0, 0, -1.6, 0, 1.6, 0.8]]
    np.save(tmp_path / "q.npy", np.array([ends, ends[::-1]]))
    load_panda().save(tmp_path / "panda.yaml")
    return tmp_path


def test_a_saved_robot_is_one_for_all_commands(files, capsys):
    world, paths, robot = (files / name for name in ("world.yaml", "q.npy", "panda.yaml"))
    told = []
    for given in (PANDA, robot):
        assert main(["check", str(world), str(paths), f"--robot={given}", "--device=cpu"]) == 0
        told.append(capsys.readouterr().out)
        out = str(files / "out")
        arguments = ("--world", str(world), f"--out={out}-{given.stem}{given.suffix}", "--json")
        assert main(["label", str(paths), f"--robot={given}", *arguments, "--device=cpu"]) == 0
        told.append(json.loads(capsys.readouterr().out)["free"])
    assert told[0] == told[2]
    assert told[1] == told[3] == 2
    from_to = ("--start=-0.9,0,0,-1.6,0,1.6,0.8", "--goal=-0.5,0,0,-1.6,0,1.6,0.8")
    ends = (*from_to, "--until=first", f"--output={files / 'p.npz'}", "--no-picture", "--json")
    assert main(["plan", str(robot), str(world), *ends, "--device=cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["joint_names"] == list(load_panda().joint_names)
    status, out, _ = run(capsys, robot)
    assert status == 0
    assert "42 of 55 pairs of links are checked" in out


def test_save_is_read_back(capsys, tmp_path):
    status, out, _ = run(capsys, PANDA, "--save", tmp_path / "panda.yaml", "--json")
    assert status == 0
    assert json.loads(out)["written"] == [str(tmp_path / "panda.yaml")]
    assert len(RobotSpheres.from_file(tmp_path / "panda.yaml").default_pairs) == 42


def test_what_a_saved_robot_has_is_not_given_again(files, capsys):
    (files / "panda.srdf").write_text(SRDF)
    for option, value in (("--srdf", files / "panda.srdf"), ("--lock-joint", "panda_joint1=0")):
        status, _, err = run(capsys, files / "panda.yaml", option, value)
        assert status == 2
        assert f"{option} must be given with a URDF, got the saved robot" in err


def test_no_file_that_is_read_is_written(files, capsys):
    copy = files / "copy.urdf"
    copy.write_text("<robot/>")
    for option in ("--save", "--save-srdf", "-o"):
        status, _, err = run(capsys, copy, option, copy)
        assert (status, copy.read_text()) == (2, "<robot/>")
        assert "must not be a file that is read" in err


def test_groups_and_states(files, capsys):
    (files / "panda.srdf").write_text(SRDF)
    chosen = ("--srdf", files / "panda.srdf", "--group=wrist", "--state=ready")
    status, out, _ = run(capsys, PANDA, *chosen, "--json", "--save", files / "wrist.yaml")
    assert status == 0
    assert [j["name"] for j in json.loads(out)["joints"]] == ["panda_joint6", "panda_joint7"]
    robot = RobotSpheres.from_file(files / "wrist.yaml")
    assert robot.locked_joints["panda_joint4"] == -1.6
    np.save(files / "two.npy", [[1.6, 0.8], [1.6, 0.0]])
    for given in ([PANDA, *chosen], [files / "wrist.yaml"]):
        first, *more = map(str, given)
        arguments = ["check", str(files / "world.yaml"), str(files / "two.npy"), "--quiet"]
        main([*arguments, f"--robot={first}", *more, "--device=cpu"])
        assert capsys.readouterr().err == ""
    status, _, err = run(capsys, PANDA, *chosen[:2], "--group=hand")
    assert status == 2
    assert "there is 'wrist'" in err
