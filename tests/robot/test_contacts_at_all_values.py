"""What touches at all joint values: a base in the floor, wheels on it; told once, and apart."""

import json

import numpy as np
import pytest
import torch

from warp_collision import Cuboid, MeshWorld, VoxelGrid
from warp_collision.cli.__main__ import main
from warp_collision.cli.check_waypoints import check_robot
from warp_collision.planning import optimize_paths
from warp_collision.robot import RobotSpheres
from warp_collision.robot.checks.robot_scene import RobotScene

BALL = """<collision><origin xyz="{}"/><geometry><sphere radius="{}"/></geometry></collision>"""
# The wheel's sphere lies on its axis. The arm reaches the floor at some values of its joint.
ROVER = f"""<robot name="rover">
  <link name="base">{BALL.format("0 0 0", 0.11)}</link>
  <link name="wheel">{BALL.format("0 0 0", 0.105)}</link>
  <link name="arm">{BALL.format("0.5 0 0", 0.05)}</link>
  <joint name="roll" type="continuous"><parent link="base"/><child link="wheel"/>
    <origin xyz="0 0.3 0"/><axis xyz="0 1 0"/></joint>
  <joint name="lift" type="revolute"><parent link="base"/><child link="arm"/>
    <origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
</robot>"""
ALWAYS = {("base", "floor"), ("wheel", "floor")}
LOW, HIGH = [0.0, 0.9], [0.4, -0.3]  # the arm in the floor, and not


@pytest.fixture(scope="module")
def rover(tmp_path_factory) -> RobotSpheres:
    path = tmp_path_factory.mktemp("rover") / "rover.urdf"
    path.write_text(ROVER)
    return RobotSpheres(path)


@pytest.fixture
def world() -> MeshWorld:
    world = MeshWorld(device="cpu", n_envs=2)
    world.add("floor", Cuboid((4.0, 4.0, 1.0)), pose=(0, 0, -0.6, 1, 0, 0, 0))
    return world


def always(report) -> set[tuple[str, str]]:
    rows = np.flatnonzero(report.at_all_values)
    return {(report.link[i], report.obstacle[i]) for i in rows}


def test_a_base_and_wheels_in_the_floor_are_told_apart(rover, world):
    report = rover.report(torch.tensor([[LOW, HIGH]]), world)
    assert always(report) == ALWAYS
    # At one of the waypoints alone the arm is in the floor, and is deepest.
    assert report.link.count("arm") == 1
    assert report.link[0] == "arm"
    assert report.link.count("base") == 2
    table, *told = str(report).split("at all joint values: ")
    assert "arm" in table
    assert not {"base", "wheel"} & {*table.split()}
    assert told == ["base and floor, 10.0 mm; wheel and floor, 5.0 mm"]
    free = rover.report(torch.tensor([[HIGH]]), world)
    assert str(free).startswith("nothing else collides\nat all joint values: base and floor")


def test_a_contact_at_all_waypoints_is_not_one_at_all_values(rover, world):
    report = rover.report(torch.tensor([[LOW, LOW], [LOW, LOW]]), world)
    assert report.link.count("arm") == 4
    assert always(report) == ALWAYS


def test_what_moves_may_leave_unobserved_space(rover):
    """A map that saw nearly nothing is no reason to leave a link out; a base does not move."""
    unknown = np.ones((30, 30, 30), bool)
    grid = VoxelGrid(np.zeros_like(unknown), 0.1, (-1.5, -1.5, -1.5), unknown)
    world = MeshWorld(device="cpu")
    world.add("map", grid)
    report = rover.report(torch.tensor([[LOW, HIGH]]), world)
    assert set(report.link) == {"base", "wheel", "arm"}
    assert always(report) == {("base", "map")}
    solid = MeshWorld(device="cpu")
    solid.add("map", VoxelGrid(grid.occupied, 0.1, (-1.5, -1.5, -1.5)))
    links = ("base", "wheel", "arm")
    assert always(rover.report(torch.tensor([[LOW, HIGH]]), solid)) == {(x, "map") for x in links}


def test_envs_and_poses_of_the_base_are_their_own(rover, world):
    joints, envs = torch.tensor([[LOW], [LOW]]), torch.tensor([0, 1], dtype=torch.int32)
    report = rover.report(joints, world, env_index=envs)
    assert set(report.batch) == {0}
    assert always(report) == ALWAYS
    lifted = rover.report(joints, world, base_pose=(0, 0, 0.007, 1, 0, 0, 0))
    assert always(lifted) == {("base", "floor")}
    # The base is fixed whatever its pose; for others it has to be one.
    poses = torch.tensor([[0, 0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0]], dtype=torch.float32)
    assert always(rover.report(joints, world, base_pose=poses)) == {("base", "floor")}
    # Of spheres it is not known what moves them.
    assert always(rover.report(rover(joints), world)) == {("base", "floor")}


def test_allowed_contacts_are_not_told(rover, world):
    report = rover.report(torch.tensor([[HIGH]]), world, ignore=[*ALWAYS])
    assert str(report) == "nothing collides"


def test_motions_are_checked_without_them(rover, world):
    scene = RobotScene(rover, world)
    up = torch.tensor([[HIGH, [0.0, -0.5]]])
    checked = check_robot(scene, up)
    assert checked.collides
    assert not checked.blocked.any()
    text = checked.text("floor.yaml")
    assert "--ignore base floor --ignore wheel floor" in text
    assert "all 1 motions of the robot's spheres are proven, contacts at all joint values" in text
    assert checked.clearance.world_lower.item() > 0.3
    down = check_robot(scene, torch.tensor([[HIGH, LOW]]))
    assert down.blocked.all()
    assert "NOT PROVEN FREE: arm and floor" in down.text("floor.yaml")
    assert {row["link"]: row["at_all_values"] for row in down.summary()["contacts"]} == {
        "arm": False, "base": True, "wheel": True
    }  # fmt: skip


FLOOR = "cuboid: {floor: {dims: [4, 4, 1], pose: [0, 0, -0.6, 1, 0, 0, 0]}}"


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs the command on many paths; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rover.urdf").write_text(ROVER)
    (tmp_path / "world.yaml").write_text(FLOOR)
    np.save("up.npy", [[HIGH, [0.0, -0.5]], [[1.0, -0.3], HIGH]])
    np.save("down.npy", [[HIGH, LOW]])

    def run(*arguments):
        status = main(["check", "world.yaml", *arguments, "--robot=rover.urdf", "--device=cpu"])
        return status, *capsys.readouterr()

    return run


def test_many_paths_are_checked_without_them(check):
    status, out, _ = check("up.npy")
    assert status == 1
    assert "at all joint values: base and floor, 10.0 mm; wheel and floor, 5.0 mm" in out
    assert "--ignore base floor --ignore wheel floor" in out
    assert "collision: by contacts at all joint values alone; 2 are proven free" in out
    status, out, _ = check("up.npy", "down.npy", "--json")
    found = json.loads(out)
    assert (status, found["collision"], found["n_paths"], found["n_not_free"]) == (1, True, 3, 1)
    assert found["worst"]["path"] == "down.npy:0"
    assert found["worst"]["link"] == "arm"
    told = {(row["link"], row["obstacle"]) for row in found["at_all_values"]}
    assert told == ALWAYS
    status, out, err = check("up.npy", "--csv")
    assert (status, out.count(",True,")) == (1, 2)
    assert err.startswith("warp-collision: at all joint values: base and floor")
    assert check("up.npy", "--quiet") == (1, "", "")
    allowed = ["--ignore", "base", "floor", "--ignore", "wheel", "floor"]
    status, out, _ = check("up.npy", *allowed)
    assert (status, "joint values" in out) == (0, False)


def test_paths_of_their_own_place_have_all_contacts(check, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    poses = [[0.0, 0.0, z, 1.0, 0.0, 0.0, 0.0] for z in (0.0, 1.0)]
    path = [HIGH, [0.0, -0.5]]
    table = {"id": ["low", "high"], "path": [path, path], "base_pose": poses}
    pq.write_table(pa.table(table), tmp_path / "paths.parquet")
    status, out, _ = check("paths.parquet", "--json")
    found = json.loads(out)
    assert (status, found["at_all_values"]) == (1, [])
    rows = {row["path"]: row for row in found["paths"]}
    assert [rows[name]["free"] for name in ("low", "high")] == [False, True]
    assert rows["low"]["link"] == "base"


def test_planning_says_how_to_allow_them(rover, world):
    start, goal = torch.tensor([HIGH]), torch.tensor([[0.0, -0.5]])
    rule = r"ignore=\[\('base', 'floor'\)\] allows it, in commands --ignore base floor$"
    with pytest.raises(ValueError, match=rule):
        optimize_paths(start, goal, rover, world)
