"""Where spheres and joints of a robot come from: mimic joints, packages, YAML, mappings, SRDF."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from robots import PANDA, checked_links
from urdf_reference import GRIPPER, reference
from warp_collision import (
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres, self_clearance, self_collision_cost

CUROBO = """
robot_cfg:
  kinematics:
    collision_link_names: [left, right, base, held]
    collision_spheres: {source}
    collision_sphere_buffer: {{base: 0.01, left: 0.002}}
    extra_collision_spheres: {{held: 3}}
    extra_links:
      held:
        parent_link_name: right
        fixed_transform: [0.1, 0.2, 0.3, 0.0, 1.0, 0.0, 0.0]
        joint_type: FIXED
    self_collision_ignore: {{left: [base], held: [left]}}
    self_collision_buffer: {{right: 0.12, base: -0.01}}
    ee_link: tip
"""
SPHERES = """collision_spheres:
  right:
  - center: [0.0, 0.0, 0.1]
    radius: 0.02
  - center: [0.0, 0.0, 0.2]
    radius: -1
  left:
  - {center: [1e-1, 0, 0], radius: 3e-2}
  base:
  - {center: [0.0, 0.0, 0.0], radius: 0.05}
  tip:
  - {center: [0.0, 0.0, 0.0], radius: 0.07}
"""


def saved(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def gripper(tmp_path: Path) -> Path:
    return saved(tmp_path, "gripper.urdf", GRIPPER)


def test_spheres_of_a_mapping(gripper):
    given = {"tip": [[0.1, 0.0, 0.2, 0.03], [0.0, 0.0, 0.0, -1.0]], "base": np.ones((1, 4))}
    robot = RobotSpheres(gripper, spheres=given, padding={"tip": 0.005})
    assert robot.sphere_links == ("base", "tip", "tip")
    assert robot.links_without_spheres == ("left", "right")
    np.testing.assert_allclose(robot.spheres_of("tip")[:, 3], [0.035, -1.0])
    assert len(robot.spheres_of("arm")) == 0
    joints = torch.tensor([0.4, 0.1], dtype=torch.float64)
    matrix = reference(GRIPPER, {"shoulder": 0.4, "close_right": 0.1})["tip"][0]
    expected = (matrix @ [0.1, 0.0, 0.2, 1.0])[:3]
    np.testing.assert_allclose(robot(joints)[1, :3].numpy(), expected, atol=1e-14)


@pytest.mark.parametrize(
    ("spheres", "error", "message"),
    [
        ({"hand": [[0, 0, 0, 1]]}, ValueError, r"keys of spheres must be links .* got \['hand'\]"),
        ({"tip": [[0, 0, 1]]}, ValueError, r"spheres\['tip'\] must be rows of 4 .* shape \(1, 3\)"),
        ({"tip": [[0, 0, np.nan, 1]]}, ValueError, r"spheres\['tip'\] must .*got \[0.0, 0.0, nan"),
        ({"tip": [["a"] * 4]}, TypeError, r"spheres\['tip'\] must be rows .* got \[\['a'"),
        ({"tip": []}, ValueError, "spheres must not be empty, got none"),
        ({}, ValueError, "spheres must not be empty"),
        (3, TypeError, "spheres must be a path or a mapping of links to spheres, got int"),
        ("none.yml", FileNotFoundError, "spheres must be an existing file, got 'none.yml'"),
    ],
)
def test_wrong_spheres(gripper, spheres, error, message):
    with pytest.raises(error, match=message):
        RobotSpheres(gripper, spheres=spheres)


@pytest.mark.parametrize("inline", [True, False])
def test_spheres_of_a_curobo_file(gripper, tmp_path, inline):
    saved(tmp_path, "spheres.yml", SPHERES)
    source = "spheres.yml"
    if inline:
        lines = SPHERES.splitlines()[1:]
        source = "\n" + "\n".join(" " * 6 + line for line in lines)
    robot = RobotSpheres(
        gripper, spheres=saved(tmp_path, "robot.yml", CUROBO.format(source=source))
    )
    assert robot.sphere_links == ("base", "left", "right", "right", "held", "held", "held")
    np.testing.assert_allclose(robot.spheres_of("base"), [[0, 0, 0, 0.06]])
    np.testing.assert_allclose(robot.spheres_of("left"), [[0.1, 0, 0, 0.032]])
    np.testing.assert_allclose(robot.spheres_of("right")[:, 3], [0.02, -1.0])
    np.testing.assert_allclose(robot.spheres_of("held"), [[0.1, 0.2, 0.3, -100.0]] * 3)
    pairs = robot.self_collision_pairs()
    links = checked_links(pairs)
    # Named once, ignored both ways; base and right are no neighbours.
    assert frozenset(("left", "base")) not in links
    assert frozenset(("held", "left")) not in links
    assert frozenset(("base", "right")) in links
    assert frozenset(("left", "right")) in links


def test_buffers_of_self_collision(gripper, tmp_path):
    text = CUROBO.format(source="spheres.yml")
    saved(tmp_path, "spheres.yml", SPHERES)
    robot = RobotSpheres(gripper, spheres=saved(tmp_path, "a.yml", text))
    lines = [line for line in text.splitlines() if "self_collision_buffer" not in line]
    plain = RobotSpheres(gripper, spheres=saved(tmp_path, "b.yml", "\n".join(lines)))
    generator = torch.Generator().manual_seed(4)
    joints = torch.rand(40, 1, 2, generator=generator) * 0.4
    spheres = robot(joints)
    assert torch.equal(spheres, plain(joints))
    larger = spheres.clone()
    larger[..., 2, 3] += 0.12
    larger[..., 0, 3] -= 0.01
    found = self_clearance(spheres, robot.self_collision_pairs()).clearance
    expected = self_clearance(larger, plain.self_collision_pairs()).clearance
    torch.testing.assert_close(found, expected)
    assert (found < self_clearance(spheres, plain.self_collision_pairs()).clearance).any()
    cost = self_collision_cost(spheres, robot.self_collision_pairs())
    torch.testing.assert_close(cost, self_collision_cost(larger, plain.self_collision_pairs()))
    world = MeshWorld()
    hit = configuration_in_collision(joints, robot, world)
    assert torch.equal(hit, expected < 0.0)
    assert 0.1 < hit.double().mean() < 0.9
    path = joints.expand(-1, 2, -1).contiguous()
    path[:, 1] += 0.01
    still = joint_path_clearance(path, robot, world)
    ends = self_clearance(robot(path), robot.self_collision_pairs()).clearance.amin(1)
    assert ((still.self_lower[:, 0] <= ends) & (ends <= still.self_upper[:, 0] + 2e-3)).all()
    assert (still.self_lower[:, 0] > ends - 0.02).all()
    assert not (joint_path_in_collision(path, robot, world)[:, 0] < (ends < 0.0)).any()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("base, held]", "base, hand]", "collision_spheres must have the link 'hand', got none"),
        ("parent_link_name: right", "parent_link_name: wrist", r"must be links .* got \['wrist"),
        ("FIXED", "REVOLUTE", r"joint_type must be FIXED, got 'REVOLUTE'"),
        ("held: 3", "held: 0", r"extra_collision_spheres\['held'\] must be at least 1, got 0"),
        ("left: [base]", "left: [bass]", r"self_collision_ignore must be links .* got \['bass'\]"),
        ("left: [base]", "left: base", r"self_collision_ignore\['left'\] must be a list"),
        ("base: 0.01", "base: .nan", r"collision_sphere_buffer must be finite .* got nan"),
        ("base: 0.01", "base: -1", "a padding must not make a radius negative, got -1.0"),
        ("base: -0.01", "base: -0.7", "a padding must not make a radius negative, got -0.7"),
        ("base: -0.01", "base: yes", "self_collision_buffer must be finite numbers .* got True"),
        ("spheres.yml", "none.yml", "collision_spheres must be an existing file"),
        ("collision_spheres: sph", "spheres: sph", "must have the key 'collision_spheres'"),
    ],
)
def test_wrong_curobo_files(gripper, tmp_path, old, new, message):
    text = CUROBO.format(source="spheres.yml")
    assert old in text
    saved(tmp_path, "spheres.yml", SPHERES)
    path = saved(tmp_path, "robot.yml", text.replace(old, new))
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        RobotSpheres(gripper, spheres=path)
    assert "robot.yml" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("radius: 0.02", "radius: x", r"collision_spheres\['right'\] must be rows of 4"),
        (
            "radius: 0.02",
            "size: 0.02",
            r"collision_spheres\['right'\] must have a center and a rad",
        ),
        ("  base:", "  pedestal:", "collision_spheres must have the link 'base', got none"),
    ],
)
def test_wrong_sphere_files(gripper, tmp_path, old, new, message):
    assert old in SPHERES
    saved(tmp_path, "spheres.yml", SPHERES.replace(old, new))
    path = saved(tmp_path, "robot.yml", CUROBO.format(source="spheres.yml"))
    with pytest.raises(ValueError, match=message):
        RobotSpheres(gripper, spheres=path)


def srdf(content: str) -> str:
    return f'<robot name="r">{content}</robot>'


def test_pairs_that_an_srdf_disables(gripper, tmp_path):
    pair = '<disable_collisions link1="right" link2="base" reason="Never"/>'
    robot = RobotSpheres(gripper, srdf=saved(tmp_path, "r.srdf", srdf(pair)))
    kept = RobotSpheres(gripper)

    def links(some):
        return checked_links(some.default_pairs)

    assert links(kept) - links(robot) == {frozenset(("base", "right"))}
    text = srdf('<disable_default_collisions link="tip"/><enable_collisions link1="right" '
                'link2="tip"/>')  # fmt: skip
    robot = RobotSpheres(gripper, srdf=saved(tmp_path, "s.srdf", text))
    assert [pair for pair in links(robot) if "tip" in pair] == [frozenset(("right", "tip"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            srdf('<disable_collisions link1="base" link2="flange"/>'),
            r"got \['flange'",
        ),
        (srdf('<disable_collisions link1="base"/>'), "links of a pair must have names, got none"),
        ("<sdf/>", "root element <robot>, got <sdf>"),
        ("<robot>", "well-formed XML"),
        ('<robot><link name="base"/></robot>', "must be an SRDF, got a URDF: <robot> has a <link>"),
    ],
)
def test_wrong_srdf(gripper, tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as error:
        RobotSpheres(gripper, srdf=saved(tmp_path, "other.srdf", text))
    assert "other.srdf" in str(error.value)
    with pytest.raises(FileNotFoundError, match="srdf must be an existing file"):
        RobotSpheres(gripper, srdf=tmp_path / "none.srdf")


def test_unknown_names_list_those_that_there_are(gripper, tmp_path):
    links = "there is 'right', 'base'"
    unknown = srdf('<disable_collisions link1="base" link2="rihgt"/>')
    for options in (
        {"spheres": {"rihgt": [[0, 0, 0, 0.1]]}},
        {"padding": {"rihgt": 0.1}},
        {"srdf": saved(tmp_path, "u.srdf", unknown)},
    ):
        with pytest.raises(ValueError, match=links):
            RobotSpheres(gripper, **options)
    robot = RobotSpheres(gripper)
    with pytest.raises(ValueError, match=links):
        robot.self_collision_pairs(ignore=[("base", "rihgt")])
    with pytest.raises(ValueError, match=links):
        robot.spheres_of("rihgt")
    choice = f"there is '{robot.joint_names[0]}'"
    with pytest.raises(ValueError, match=choice):
        RobotSpheres(gripper, lock_joints={f"{robot.joint_names[0]}s": 0.0})


def test_padding_of_links(gripper):
    robot, wider = RobotSpheres(gripper), RobotSpheres(gripper, padding=0.01)
    joints = torch.zeros(2)
    torch.testing.assert_close(wider(joints)[:, 3], robot(joints)[:, 3] + 0.01)
    with pytest.raises(ValueError, match=r"keys of padding must be links .* got \['thumb'\]"):
        RobotSpheres(gripper, padding={"thumb": 0.01})
    with pytest.raises(ValueError, match="padding of 'base' must be finite, got nan"):
        RobotSpheres(gripper, padding=float("nan"))


def test_files_of_packages(tmp_path):
    package = tmp_path / "share" / "my_robot"
    (package / "meshes").mkdir(parents=True)
    (package / "urdf").mkdir()
    trimesh.creation.box((0.2, 0.1, 0.1)).export(package / "meshes" / "box.stl")
    mesh = '<geometry><mesh filename="package://my_robot/meshes/box.stl" scale="1 1 2"/></geometry>'
    text = f'<robot name="r"><link name="a"><collision>{mesh}</collision></link></robot>'
    above = RobotSpheres(saved(package / "urdf", "r.urdf", text))
    elsewhere = saved(tmp_path, "r.urdf", text)
    for folders in ([tmp_path / "share"], [package]):
        robot = RobotSpheres(elsewhere, package_dirs=folders)
        np.testing.assert_array_equal(robot.spheres_of("a"), above.spheres_of("a"))
    missing = r"link 'a': .* got 'package://my_robot/meshes/box\.stl'; no folder around .*my_robot'"
    with pytest.raises(FileNotFoundError, match=missing):
        RobotSpheres(elsewhere)
    with pytest.raises(TypeError, match="package_dirs must be a sequence of folders, got '/a'"):
        RobotSpheres(elsewhere, package_dirs="/a")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_encodings(tmp_path, encoding):
    """Of the file as it declares it; comments may be in any."""
    sphere = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
    text = f'<robot name="r"><link name="\xe9">{sphere}</link></robot>'
    path = tmp_path / "r.urdf"
    declared = f"<?xml version='1.0' encoding='{encoding}'?>{text}"
    path.write_bytes(declared.encode(encoding))
    assert RobotSpheres(path).link_names == ("\xe9",)
    path.write_bytes("<!-- caf\xe9\n\xe9 -->".encode("latin-1") + text.encode())
    assert RobotSpheres(path).link_names == ("\xe9",)


def test_the_panda_is_valid_for_strict_readers():
    joints = ElementTree.parse(PANDA).findall("joint")
    limits = {j.get("name"): j.find("limit") for j in joints if j.get("type") != "fixed"}
    assert list(limits) == list(load_panda().joint_names)
    for limit in limits.values():
        for key in ("lower", "upper", "effort", "velocity"):
            assert np.isfinite(float(limit.get(key)))
