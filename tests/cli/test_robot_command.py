"""The command that shows what a robot file became."""

import json

import numpy as np
import pytest
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
