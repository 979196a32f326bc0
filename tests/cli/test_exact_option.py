"""`--exact` of the commands: the convex pieces of links decide where spheres touch."""

import json

import numpy as np
import pytest

from warp_collision import RobotSpheres
from warp_collision.cli.__main__ import main
from warp_collision.labeling import PathLabeler

BOX = """<collision><origin xyz="0.2 0 0"/>
  <geometry><box size="0.4 0.05 0.05"/></geometry></collision>"""
ARM = f"""<robot name="arm"><link name="base"/><link name="arm">{BOX}</link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>
  <limit lower="-2" upper="2" velocity="1" effort="1"/></joint></robot>"""
# 5 mm below the box, by which its spheres stick out.
TABLE = "cuboid: {table: {dims: [1, 1, 0.1], pose: [0, 0, -0.08, 1, 0, 0, 0]}}"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "arm.urdf").write_text(ARM)
    (tmp_path / "world.yaml").write_text(TABLE)
    paths = np.array([[[-0.5], [0.5]], [[0.3], [0.8]]])
    np.savez(tmp_path / "one.npz", joints=paths[0])
    np.savez(tmp_path / "two.npz", joints=paths)
    return tmp_path


@pytest.fixture
def run(files, capsys):
    """Runs a command of the files; returns status and output."""

    def run(name, *arguments):
        status = main([name, *map(str, arguments), f"--robot={files / 'arm.urdf'}", "--device=cpu"])
        return status, capsys.readouterr().out

    return run


def test_check(files, run) -> None:
    world = files / "world.yaml"
    for paths in ("one.npz", "two.npz"):
        status, _ = run("check", world, files / paths)
        assert status == 1
        status, out = run("check", world, files / paths, "--exact", "--json")
        assert status == 0
        found = json.loads(out)
        assert not found["collision"]
        for row in found["paths"]:
            assert row["free"]
            assert 0.0035 < row["clearance"] < 0.0051
    status, out = run("check", world, files / "one.npz", "--exact")
    assert status == 0
    assert "nothing collides" in out


def test_label(files, run) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="label needs pyarrow")
    options = [files / "two.npz", f"--world={files / 'world.yaml'}", "--quiet"]
    free = []
    for extra in ((), ("--exact",)):
        out = files / f"labels{len(extra)}"
        status, _ = run("label", *options, f"--out={out}", *extra)
        assert status == 0
        free.append(pq.read_table(out).column("free").to_pylist())
    assert free == [[False, False], [True, True]]
    # A run with other options is refused.
    status, _ = run("label", *options, f"--out={files / 'labels1'}")
    assert status == 2


def test_plan(files, capsys) -> None:
    words = ["plan", str(files / "arm.urdf"), str(files / "world.yaml"), "--start=-0.5", "--goal=1"]
    words += [f"--output={files / 'path.npz'}", "--no-picture", "--until=first", "--device=cpu"]
    assert main(words) == 2
    assert "start must be free" in capsys.readouterr().err
    assert main([*words, "--exact"]) == 0


def test_labeler(files) -> None:
    robot, world = RobotSpheres(files / "arm.urdf"), str(files / "world.yaml")
    batch = {"path": np.array([[[-0.5], [0.5]]])}
    assert not PathLabeler(robot, world)(batch)["free"].any()
    assert PathLabeler(robot, world, shapes="exact")(batch)["free"].all()
    with pytest.raises(
        ValueError, match="shapes must be 'spheres' for paths of spheres, got 'exact'"
    ):
        PathLabeler(shapes="exact")
    given = RobotSpheres(files / "arm.urdf", spheres={"arm": [[0.2, 0, 0, 0.03]]})
    with pytest.raises(ValueError, match="shapes must be 'spheres' for a robot that was given as"):
        PathLabeler(given, world, shapes="exact")


def test_it_needs_a_robot(files, capsys) -> None:
    np.save(files / "spheres.npy", np.zeros((1, 1, 4)))
    words = ["check", str(files / "world.yaml"), str(files / "spheres.npy"), "--exact"]
    assert main(words) == 2
    assert "--exact must be given with --robot alone" in capsys.readouterr().err
