"""Robots in one file: all of it is read back, and a file that no longer fits is an error."""

import json
import sys
from pathlib import Path

import pytest
import torch

from robots import PANDA
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres

# Of a box that is fitted, a sphere, and joints of which one is locked.
ARM = """<robot name="arm">
  <link name="base"><collision><geometry><box size="0.2 0.2 0.1"/></geometry></collision></link>
  <link name="arm"><collision><origin xyz="0.3 0 0"/>
    <geometry><box size="0.3 0.05 0.05"/></geometry></collision></link>
  <link name="tip"><collision><geometry><sphere radius="0.03"/></geometry></collision></link>
  <link name="bare"><visual><geometry><box size="1 1 1"/></geometry></visual></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/>
    <origin xyz="0 0 0.05"/><axis xyz="0 0 1"/><limit lower="-2" upper="2"/></joint>
  <joint name="bend" type="continuous"><parent link="arm"/><child link="tip"/>
    <origin xyz="0.5 0 0"/><axis xyz="0 1 0"/></joint>
  <joint name="hold" type="fixed"><parent link="tip"/><child link="bare"/></joint></robot>"""


@pytest.fixture
def urdf(tmp_path) -> Path:
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    return path


def parts(robot: RobotSpheres) -> tuple:
    """What is read back of a robot."""
    pairs = robot.self_collision_matrix(n_samples=50).entries
    default = robot.default_pairs
    return (
        robot.joint_names,
        robot.joint_units,
        robot.joint_limits.tolist(),
        robot.locked_joints,
        robot.links_without_spheres,
        robot.fits,
        robot.named_states,
        robot.sphere_links,
        {frozenset(pair[:2]): str(pair[2:]) for pair in pairs},
        (default.link_pairs, default.constant, default.touching.tolist()),
    )


def test_a_saved_robot_is_read_where_a_urdf_is(urdf, tmp_path):
    file = tmp_path / "arm.yaml"
    robot = RobotSpheres(urdf, padding={"tip": 0.01})
    robot.save(file)
    assert parts(RobotSpheres(file)) == parts(robot)
    assert parts(RobotSpheres(str(file), package_dirs=[tmp_path])) == parts(robot)
    for name, value in (("padding", 0.01), ("spheres", {"tip": [[0, 0, 0, 1]]}), ("group", "arm"),
                        ("lock_joints", {"turn": 0.0})):  # fmt: skip
        rule = f"{name} must be given with a URDF, got the saved robot .*arm.yaml"
        with pytest.raises(ValueError, match=rule):
            RobotSpheres(file, **{name: value})
    file.write_text("robot_cfg: {}")
    with pytest.raises(ValueError, match=r"must be a robot that RobotSpheres\.save"):
        RobotSpheres(file)


def test_all_is_read_back(urdf, tmp_path):
    robot = RobotSpheres(urdf, lock_joints={"bend": 0.3}, padding={"tip": 0.01})
    robot.allow("base", "tip", reason="they cannot meet")
    file = tmp_path / "arm.yaml"
    robot.save(file)
    copy = RobotSpheres.from_file(file)
    assert parts(copy) == parts(robot)
    assert "they cannot meet" in str(copy)
    joints = torch.linspace(-2, 2, 5)[:, None]
    assert torch.equal(copy(joints), robot(joints))
    copy.save(file)  # onto itself
    assert parts(RobotSpheres.from_file(file)) == parts(robot)


def test_a_robot_of_curobo(tmp_path):
    spheres = tmp_path / "curobo.yaml"
    spheres.write_text(
        "collision_spheres:\n"
        "  panda_link0: [{center: [0, 0, 0.05], radius: 0.08}]\n"
        "  panda_hand: [{center: [0, 0, 0], radius: 0.05}]\n"
        "  tool: [{center: [0, 0, 0.1], radius: 0.01}]\n"
        "extra_links: {tool: {parent_link_name: panda_hand, fixed_transform: [0,0,1,1,0,0,0]}}\n"
        "self_collision_buffer: {panda_hand: 0.02}\n"
        "self_collision_ignore: {panda_hand: [tool]}\n"
    )
    robot = RobotSpheres(PANDA, spheres=spheres)
    robot.save(tmp_path / "robot.yaml")
    copy = RobotSpheres.from_file(tmp_path / "robot.yaml")
    assert parts(copy) == parts(robot)
    assert copy.default_pairs.buffers.tolist() == robot.default_pairs.buffers.tolist()


def test_pairs_are_found_anew_with_an_object(urdf, tmp_path):
    robot = RobotSpheres(urdf)
    robot.save(tmp_path / "arm.yaml")
    copy = RobotSpheres.from_file(tmp_path / "arm.yaml")
    for one in (robot, copy):
        one.attach("can", "tip", [[0.0, 0.0, 0.1, 0.05]])
    assert parts(copy) == parts(robot)
    with pytest.raises(ValueError, match="detached before a robot is saved, got \\['can'\\]"):
        copy.save(tmp_path / "arm.yaml")
    copy.detach("can")
    assert len(copy.default_pairs) == 1


def test_files_that_are_no_saved_robot(urdf, tmp_path):
    with pytest.raises(ValueError, match="must be a saved robot, got a URDF, which RobotSpheres"):
        RobotSpheres.from_file(urdf)
    world = tmp_path / "world.yaml"
    world.write_text("cuboid: {}")
    with pytest.raises(ValueError, match=r"_robot: .*, got a file without this entry"):
        RobotSpheres.from_file(world)


def test_neither_fit_nor_samples(urdf, tmp_path, monkeypatch):
    RobotSpheres(urdf).save(tmp_path / "arm.yaml")
    from warp_collision.robot.model import link_shapes, sampled_pairs

    monkeypatch.setattr(link_shapes, "CachedParts", None)
    monkeypatch.setattr(sampled_pairs, "random_joints", None)
    assert len(RobotSpheres.from_file(tmp_path / "arm.yaml").default_pairs) == 1


def test_loading_takes_few_calls(tmp_path):
    """Of Python functions, of all libraries: some 7,600 calls."""
    load_panda().save(tmp_path / "panda.yaml")
    RobotSpheres.from_file(tmp_path / "panda.yaml")
    events = []
    sys.setprofile(lambda frame, event, _: events.append(event))
    try:
        RobotSpheres.from_file(tmp_path / "panda.yaml")
    finally:
        sys.setprofile(None)
    assert events.count("call") < 20_000


def test_another_urdf_is_an_error(urdf, tmp_path):
    file = tmp_path / "arm.yaml"
    RobotSpheres(urdf).save(file)
    urdf.write_text(ARM.replace("0.5 0 0", "0.6 0 0"))
    with pytest.raises(ValueError, match=r"was changed since: save it again, with `warp-collision"):
        RobotSpheres.from_file(file)
    urdf.unlink()
    with pytest.raises(FileNotFoundError, match=r"its URDF must exist, got .*arm\.urdf"):
        RobotSpheres.from_file(file)


def test_file_and_urdf_move_together(urdf, tmp_path):
    RobotSpheres(urdf).save(tmp_path / "arm.yaml")
    (tmp_path / "moved").mkdir()
    for name in ("arm.yaml", "arm.urdf"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert RobotSpheres.from_file(tmp_path / "moved" / "arm.yaml").n_joints == 2


def test_edited_as_yaml(urdf, tmp_path):
    file = tmp_path / "arm.yaml"
    RobotSpheres(urdf).save(file)
    expected = parts(RobotSpheres.from_file(file))
    file.write_text(file.read_text().replace('"touching_spheres"', "# a note\n  touching_spheres"))
    assert parts(RobotSpheres.from_file(file)) == expected


def damaged(key, value):
    return lambda content: {**content, key: value}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: [], "must be a robot that RobotSpheres.save"),
        (damaged("warp_collision_robot", 99), "with warp_collision_robot: 4"),
        (lambda content: {"collision_spheres": {}}, "must be a robot that RobotSpheres.save"),
        (lambda content: {k: v for k, v in content.items() if k != "spheres"}, "spheres"),
        (damaged("urdf", 3), "the path of the URDF"),
        (damaged("joints", ["bend"]), r"joints must be \['turn', 'bend'\], got \['bend'\]"),
        (damaged("spheres", {"hand": [[0, 0, 0, 1]]}), "there is"),
        (damaged("spheres", {"arm": [[0, 0, 1]]}), "rows of 4 finite numbers"),
        (damaged("checked", [["arm", "hand"]]), "'hand'"),
        (damaged("checked", [["arm"]]), "arm.yaml"),
        (damaged("touching_spheres", [[0, 10**6]]), "pairs of spheres must be below"),
        (damaged("constant_spheres", [[0, "x", 1]]), "arm.yaml"),
        (damaged("locked_joints", {"turn": 9}), "must be within the limits"),
        (damaged("coverage", {"arm": [[1]]}), "coverage"),
        (damaged("neutral_contacts", [["arm"]]), "neutral_contacts"),
        (damaged("self_collision_buffer", [1]), "arm.yaml"),
    ],
)
def test_what_is_wrong_is_named(urdf, tmp_path, damage, message):
    file = tmp_path / "arm.yaml"
    RobotSpheres(urdf).save(file)
    content = json.loads(file.read_text().split("\n", 1)[1])
    file.write_text(json.dumps(damage(content)))
    with pytest.raises(ValueError, match=message) as error:
        RobotSpheres.from_file(file)
    assert str(error.value).count(str(file)) == 1
