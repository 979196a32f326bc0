"""Links that have shapes, but no spheres: they are not checked, and that is said."""

from pathlib import Path

import pytest

from warp_collision.robot import RobotSpheres

ARM = """<robot name="arm" version="1.1">
  <link name="base"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
  <link name="arm">{shape}</link>
  <link name="frame"/>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>
  <limit lower="-2" upper="2"/></joint>
  <joint name="end" type="fixed"><parent link="arm"/><child link="frame"/></joint>
</robot>"""
SHAPES = (
    '<box size="1 1 1"/>',
    '<sphere radius="0.3"/>',
    '<cylinder radius="0.1" length="0.5"/>',
    '<capsule radius="0.1" length="0.5"/>',
    '<mesh filename="no.stl"/>',
)


def saved(folder: Path, shape: str) -> Path:
    path = folder / "arm.urdf"
    path.write_text(ARM.format(shape=shape))
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_a_visual_of_any_kind_is_told(tmp_path, shape):
    path = saved(tmp_path, f"<visual><geometry>{shape}</geometry></visual>")
    robot = RobotSpheres(path)
    assert robot.sphere_links == ("base",)
    assert robot.links_without_spheres == ("arm",)
    given = RobotSpheres(path, spheres={"arm": [[0.1, 0.0, 0.0, 0.2]]})
    assert given.links_without_spheres == ("base",)


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_disabled_spheres_alone_are_none(tmp_path, shape):
    path = saved(tmp_path, f"<collision><geometry>{shape}</geometry></collision>")
    spheres = {"base": [[0.0, 0.0, 0.0, 0.1]], "arm": [[0.1, 0.0, 0.0, -0.2]]}
    assert RobotSpheres(path, spheres=spheres).links_without_spheres == ("arm",)
    spheres["arm"].append([0.0, 0.0, 0.0, 0.0])
    assert RobotSpheres(path, spheres=spheres).links_without_spheres == ()
