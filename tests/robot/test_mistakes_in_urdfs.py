"""Mistakes of URDF files that are told: limits in other units, and links that no check sees."""

import time

import numpy as np
import pytest
import torch
import trimesh

from warp_collision import Cuboid, MeshWorld, RobotSpheres, configuration_in_collision
from warp_collision.cli.__main__ import main
from warp_collision.robot.model import link_shapes
from warp_collision.robot.model.urdf_model import read_urdf_model

ROBOT = """<robot name="r">
  <link name="base">{base}</link>
  <link name="arm">{arm}</link>
  <link name="fingertip"/>
  <joint name="shoulder" type="{kind}"><parent link="base"/><child link="arm"/>
    <origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>
    <limit lower="{low}" upper="{high}" effort="1" velocity="1"/></joint>
  <joint name="end" type="fixed"><parent link="arm"/><child link="fingertip"/></joint>
</robot>"""
BOX = '<{0}><origin xyz="0.1 0 0"/><geometry><box size="0.2 0.1 0.1"/></geometry></{0}>'
MESH = '<{0}><geometry><mesh filename="body.stl"/></geometry></{0}>'
PARTS = {"base": "", "arm": BOX.format("collision"), "kind": "revolute", "low": -1, "high": 1}


def written(folder, **parts):
    path = folder / "robot.urdf"
    path.write_text(ROBOT.format(**PARTS | parts))
    trimesh.creation.icosphere(2, 0.1).export(folder / "body.stl")
    return path


@pytest.mark.parametrize(
    ("kind", "low", "high", "said"),
    [
        ("revolute", -180, 180, "-180 to 180, are read in rad: are they in degrees?"),
        ("prismatic", 0, 400, "0 to 400, are read in m: are they in millimetres?"),
        ("revolute", 1.5, -1.5, "1.5 to -1.5, have the lower above the upper"),
        ("prismatic", 0.1, 0.05, "0.1 to 0.05, have the lower above the upper"),
    ],
)
def test_limits_that_are_likely_mistakes(tmp_path, kind, low, high, said):
    path = written(tmp_path, kind=kind, low=low, high=high)
    with pytest.warns(UserWarning, match="limits") as caught:
        read_urdf_model(path)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("the limits of joint 'shoulder'")
    assert said in str(caught[0].message)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("revolute", -6.2832, 6.2832),
        ("revolute", -12.56, 12.56),
        ("revolute", -1e10, 1e10),
        ("prismatic", -10, 10),
        ("prismatic", 0, 0),
    ],
)
def test_ordinary_limits_are_no_warning(tmp_path, kind, low, high):
    read_urdf_model(written(tmp_path, kind=kind, low=low, high=high))


def test_a_warning_names_the_line_of_the_caller(tmp_path):
    path = written(tmp_path, low=-180, high=180)
    with pytest.warns(UserWarning, match="degrees") as caught:
        RobotSpheres(path)
    assert [warning.filename for warning in caught] == [__file__]


def test_visual_shapes_stand_in(tmp_path):
    """Of links without collision shapes; others keep theirs."""
    base = MESH.format("visual") + BOX.format("visual")
    path = written(tmp_path, arm=MESH.format("visual"), base=base)
    with pytest.raises(ValueError, match=r'but visuals: give shapes="visual", .*or spheres='):
        RobotSpheres(path)
    with pytest.raises(ValueError, match="shapes must be one of collision, visual, got 'visuals'"):
        RobotSpheres(path, shapes="visuals")
    robot = RobotSpheres(path, shapes="visual")
    assert set(robot.sphere_links) == {"base", "arm"}
    assert robot.links_without_spheres == ()
    assert [len(robot.link_shapes[link]) for link in ("base", "arm")] == [2, 1]
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid((0.02, 0.02, 0.02)), pose=(0.19, 0.0, 0.0, 1, 0, 0, 0))
    assert configuration_in_collision(torch.zeros(1, 1, 1), robot, world).item()  # with the box
    robot.save(tmp_path / "robot.yaml")
    again = RobotSpheres.from_file(tmp_path / "robot.yaml")
    assert [len(again.link_shapes[link]) for link in ("base", "arm")] == [2, 1]
    mixed = written(tmp_path, base=MESH.format("visual"), arm=MESH.format("visual") + PARTS["arm"])
    alone = RobotSpheres(mixed)
    assert alone.links_without_spheres == ("base",)
    both = RobotSpheres(mixed, shapes="visual")
    assert both.links_without_spheres == ()
    np.testing.assert_array_equal(both.spheres_of("arm"), alone.spheres_of("arm"))


def test_robots_without_any_shape(tmp_path):
    path = written(tmp_path, arm="")
    with pytest.raises(ValueError, match="must have collision shapes, got none: give spheres="):
        RobotSpheres(path)
    with pytest.raises(ValueError, match="must have collision shapes, got none: give spheres="):
        RobotSpheres(path, shapes="visual")


def test_links_without_any_shape_are_listed(tmp_path):
    robot = RobotSpheres(written(tmp_path))
    assert "without any shape: base, fingertip" in str(robot).splitlines()
    robot.save(tmp_path / "robot.yaml")
    again = RobotSpheres.from_file(tmp_path / "robot.yaml")
    assert "without any shape: base, fingertip" in str(again).splitlines()
    given = RobotSpheres(written(tmp_path), spheres={"fingertip": [[0, 0, 0, 0.01]]})
    assert "without any shape: base" in str(given).splitlines()


def test_the_command_takes_visual_shapes(tmp_path, capsys):
    path = written(tmp_path, arm=MESH.format("visual"))
    assert main(["robot", str(path)]) == 2
    assert "--shapes visual" in capsys.readouterr().err
    assert main(["robot", str(path), "--shapes", "visual", "--json"]) == 0


def test_reading_that_takes_long_says_where_it_is(tmp_path, monkeypatch, capsys):
    path = written(tmp_path, base=BOX.format("collision"))
    fit = link_shapes.CachedParts.fits

    def slowly(parts):
        time.sleep(0.15)
        return fit(parts)

    monkeypatch.setattr(link_shapes.CachedParts, "fits", slowly)
    monkeypatch.setattr(link_shapes, "_PATIENCE", 0.05)
    monkeypatch.delenv("WARP_COLLISION_QUIET", raising=False)
    RobotSpheres(path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("warp-collision: fitting spheres to link 1 of 2, base;")
    RobotSpheres(path, progress=lambda *_: None)
    monkeypatch.setenv("WARP_COLLISION_QUIET", "1")
    RobotSpheres(path)
    monkeypatch.setattr(link_shapes, "_PATIENCE", 60.0)
    monkeypatch.delenv("WARP_COLLISION_QUIET")
    RobotSpheres(path)
    assert capsys.readouterr().err == ""
