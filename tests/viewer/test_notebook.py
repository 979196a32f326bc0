"""What notebooks show: a picture and a table, small, without scripts, names as text."""

import pytest
import torch

from warp_collision import Cuboid, MeshWorld, RobotSpheres
from warp_collision.examples import load_panda
from warp_collision.planning import PlannedPaths


def planned() -> PlannedPaths:
    one = torch.tensor([0.012, 0.02])
    free = torch.tensor([True, False])
    return PlannedPaths(
        torch.rand(2, 8, 7), free, one, one, one, one, torch.tensor([2.0, 3.0]),
        torch.tensor([0, 3]), free, one, (),
    )  # fmt: skip


def world() -> MeshWorld:
    found = MeshWorld(device="cpu")
    found.add("<script>alert(1)</script>", Cuboid((0.6, 0.6, 0.05)), padding=0.01)
    for index in range(20):
        found.add(f"box {index}", Cuboid((0.1, 0.1, 0.1)), (0.1 * index, 0, 0.2, 1, 0, 0, 0))
    return found


@pytest.mark.parametrize("make", [world, load_panda, planned])
def test_a_picture_and_a_table(make, monkeypatch):
    html = make()._repr_html_()
    assert html.count("<img") == 1
    assert "data:image/png;base64," in html
    assert html.count("<table>") == 1
    assert "<script" not in html
    assert len(html) < 200_000
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    alone = make()._repr_html_()
    assert "<img" not in alone
    assert "<table>" in alone


def test_what_the_tables_say():
    html = world()._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "10.0 mm" in html
    assert "and 9 more" in html
    found = planned()
    assert "1 of 2 paths were proven free when they were planned" in found._repr_html_()
    robot = load_panda()
    assert isinstance(robot, RobotSpheres)
    assert "-2.97 to 2.97 rad" in robot._repr_html_()


def test_an_empty_world():
    assert "0 meshes" in MeshWorld(device="cpu")._repr_html_()
