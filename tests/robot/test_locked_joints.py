"""Joints that are locked at a value, by an argument or by a robot file of cuRobo."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from robots import PANDA, TREE, checked_links
from urdf_reference import GRIPPER, reference
from warp_collision import (
    Cuboid,
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres

CUROBO = """
kinematics:
  lock_joints: {locks}
  collision_spheres:
    tip:
    - {{center: [0.0, 0.0, 0.0], radius: 0.07}}
    base:
    - {{center: [0.0, 0.0, 0.0], radius: 0.05}}
"""


def saved(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "locks", "free", "values"),
    [
        (TREE, {"slide": 0.17}, ("turn",), {"slide": 0.17}),
        (TREE, {"turn": -2.1}, ("slide",), {"turn": -2.1}),
        (TREE, {"turn": 9, "slide": 0.25}, (), {"turn": 9.0, "slide": 0.25}),
        # Two joints follow this one, one of them by way of the other.
        (GRIPPER, {"close_right": 0.2}, ("shoulder",), {"close_right": 0.2}),
        (GRIPPER, {"shoulder": 1.1}, ("close_right",), {"shoulder": 1.1}),
    ],
)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-14), (torch.float32, 2e-6)])
def test_locked_joints_stand_at_their_value(tmp_path, text, locks, free, values, dtype, error):
    robot = RobotSpheres(saved(tmp_path, "robot.urdf", text), lock_joints=locks)
    assert robot.joint_names == free
    assert robot.joint_limits.shape == (len(free), 2)
    assert robot.locked_joints == {name: float(value) for name, value in locks.items()}
    rows = np.random.default_rng(1).uniform(-2.0, 2.0, (20, len(free))).astype(np.float32)
    found = robot.link_transforms(torch.from_numpy(rows).to(dtype)).double().numpy()
    spheres = robot(torch.from_numpy(rows).to(dtype)).double().numpy()
    for row, transforms, placed in zip(rows.astype(np.float64), found, spheres, strict=True):
        links = reference(text, values | dict(zip(free, row, strict=True)))
        for name, transform in zip(robot.link_names, transforms, strict=True):
            np.testing.assert_allclose(transform, links[name][0], atol=error * 10, rtol=0)
        for name in dict.fromkeys(robot.sphere_links):
            mine = [i for i, link in enumerate(robot.sphere_links) if link == name]
            np.testing.assert_allclose(placed[mine], links[name][1], atol=error * 10, rtol=0)


def test_a_locked_mimic_joint_leaves_its_leader(tmp_path):
    """It stands where it is told, and what follows it does too."""
    path = saved(tmp_path, "gripper.urdf", GRIPPER)
    robot = RobotSpheres(path, lock_joints={"close_left": 0.03})
    assert robot.joint_names == ("shoulder", "close_right")
    moves = torch.tensor([[0.0, 0.0], [0.0, 0.4]], dtype=torch.float64)
    spheres = dict(zip(robot.sphere_links, robot(moves).unbind(1), strict=True))
    assert torch.equal(spheres["left"][0], spheres["left"][1])
    assert torch.equal(spheres["tip"][0], spheres["tip"][1])
    assert not torch.equal(spheres["right"][0], spheres["right"][1])
    # As its leader would have it where that stands at (0.01 - 0.03) / 0.5.
    links = reference(GRIPPER, {"close_right": -0.04})
    np.testing.assert_allclose(spheres["tip"][0], links["tip"][1][0], atol=1e-14)


def test_checks_of_joint_paths_are_those_of_the_whole_robot():
    panda = load_panda()
    locked = RobotSpheres(PANDA, lock_joints={"panda_joint4": -1.6, "panda_joint7": 0.8})
    assert locked.n_joints == 5
    generator = torch.Generator().manual_seed(3)
    free = torch.rand((40, 3, 5), generator=generator) * 1.6 - 0.8
    free[..., 4] += 1.6
    whole = torch.cat((free[..., :3], torch.full((40, 3, 1), -1.6), free[..., 3:]), dim=-1)
    whole = torch.cat((whole, torch.full((40, 3, 1), 0.8)), dim=-1)
    torch.testing.assert_close(locked(free), panda(whole), atol=2e-6, rtol=0)
    world = MeshWorld()
    world.add("box", Cuboid((0.3, 0.3, 0.3)), (0.5, 0.1, 0.5, 0.9, 0.1, 0.3, 0.2))
    options = {"self_collision": False}
    hits = configuration_in_collision(whole, panda, world, **options)
    assert 0.05 < hits.double().mean() < 0.95
    assert torch.equal(configuration_in_collision(free, locked, world, **options), hits)
    hits = joint_path_in_collision(whole, panda, world, **options)
    assert torch.equal(joint_path_in_collision(free, locked, world, **options), hits)
    found = joint_path_clearance(free, locked, world, **options)
    expected = joint_path_clearance(whole, panda, world, **options)
    torch.testing.assert_close(found.world_upper, expected.world_upper, atol=1.1e-3, rtol=0)


def test_what_a_locked_joint_connects_is_one_body(tmp_path):
    robot = RobotSpheres(saved(tmp_path, "g.urdf", GRIPPER), lock_joints={"close_right": 0.1})
    pairs = checked_links(robot.self_collision_pairs())
    # The shoulder alone still moves: the base against all else, the others not at all.
    assert pairs == {frozenset(("base", other)) for other in ("left", "right", "tip")}


def test_all_joints_locked(tmp_path):
    robot = RobotSpheres(
        saved(tmp_path, "tree.urdf", TREE), lock_joints={"turn": 0.3, "slide": 0.1}
    )
    world = MeshWorld()
    world.add("box", Cuboid((9.0, 9.0, 9.0)))
    assert configuration_in_collision(torch.zeros(2, 3, 0), robot, world).all()
    assert robot(torch.zeros(4, 0)).shape == (4, 4, 4)


def test_lock_joints_of_a_curobo_file(tmp_path):
    urdf = saved(tmp_path, "gripper.urdf", GRIPPER)
    file = saved(tmp_path, "robot.yml", CUROBO.format(locks="{close_right: 0.2, close_left: 0.03}"))
    robot = RobotSpheres(urdf, spheres=file)
    assert robot.joint_names == ("shoulder",)
    assert robot.locked_joints == {"close_right": 0.2, "close_left": 0.03}
    more = RobotSpheres(urdf, spheres=file, lock_joints={"close_left": None, "shoulder": 1})
    assert more.locked_joints == {"close_right": 0.2, "shoulder": 1.0}
    free = saved(tmp_path, "free.yml", CUROBO.format(locks="null"))
    assert RobotSpheres(urdf, spheres=free).locked_joints == {}


@pytest.mark.parametrize(
    ("locks", "error", "message"),
    [
        ({"slid": 0.1}, ValueError, r"lock_joints must be joints that move, got \['slid'\]"),
        ({"mount": 0.1}, ValueError, r"lock_joints must be joints that move, got \['mount'\]"),
        ({"turn": float("nan")}, ValueError, r"lock_joints\['turn'\] must be finite, got nan"),
        ({"slide": 0.26}, ValueError, r"\['slide'\] must be within the limits -0.5 to 0.25 m, got"),
        ({"turn": "0"}, TypeError, r"lock_joints\['turn'\] must be a number, got str"),
        ({"turn": True}, TypeError, r"lock_joints\['turn'\] must be a number, got bool"),
        (["turn"], TypeError, "lock_joints must be a mapping of joints to values, got list"),
    ],
)
def test_wrong_locks(tmp_path, locks, error, message):
    with pytest.raises(error, match=message):
        RobotSpheres(saved(tmp_path, "tree.urdf", TREE), lock_joints=locks)


@pytest.mark.parametrize(
    ("locks", "message"),
    [
        ("{hand: 0.1}", r"robot\.yml: lock_joints must be joints that move, got \['hand'\]"),
        ("[shoulder]", r"robot\.yml: lock_joints must be a mapping of joints .* got list"),
        ("{shoulder: far}", r"robot\.yml: lock_joints\['shoulder'\] must be a number, got str"),
        ("{shoulder: .nan}", r"robot\.yml: lock_joints\['shoulder'\] must be finite, got nan"),
        ("{shoulder: null}", r"robot\.yml: lock_joints\['shoulder'\] must be a number, got None"),
    ],
)
def test_wrong_locks_in_a_file(tmp_path, locks, message):
    urdf = saved(tmp_path, "gripper.urdf", GRIPPER)
    file = saved(tmp_path, "robot.yml", CUROBO.format(locks=locks))
    with pytest.raises(ValueError, match=message):
        RobotSpheres(urdf, spheres=file)


def test_a_file_with_another_base_is_refused(tmp_path):
    urdf = saved(tmp_path, "tree.urdf", TREE)
    robot = RobotSpheres(urdf)
    root, far = "root", next(name for name in robot.link_names if name != "root")
    spheres = f"collision_spheres: {{{root}: [{{center: [0, 0, 0], radius: 0.1}}]}}"
    file = saved(tmp_path, "root.yml", f"{{base_link: {root}, {spheres}}}")
    assert len(RobotSpheres(urdf, spheres=file).sphere_links) == 1
    for other in (far, "nowhere"):
        file = saved(tmp_path, "other.yml", f"{{base_link: {other}, {spheres}}}")
        with pytest.raises(ValueError, match=f"base_link must be the root link '{root}'.*{other}"):
            RobotSpheres(urdf, spheres=file)


def test_another_order_of_joint_values_is_a_warning(tmp_path):
    urdf = saved(tmp_path, "tree.urdf", TREE)
    robot = RobotSpheres(urdf)
    names = list(robot.joint_names)
    assert len(names) > 1
    spheres = f"{robot.link_names[0]}: [{{center: [0, 0, 0], radius: 0.1}}]"

    def read(order, locks="{}"):
        text = f"cspace: {{joint_names: {order}}}, lock_joints: {locks}"
        file = saved(tmp_path, "robot.yml", f"{{{text}, collision_spheres: {{{spheres}}}}}")
        return RobotSpheres(urdf, spheres=file)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(names)
        read(names[::-1], "{" + names[0] + ": 0.1}")  # of one joint there is one order
    with pytest.warns(UserWarning, match=f"values are those of {', '.join(names)}") as told:
        read(names[::-1])
    assert told[0].filename == __file__


def test_a_lock_in_degrees_is_refused():
    message = (
        r"lock_joints\['panda_joint7'\] must be within the limits .* rad, got 45; in degrees\?"
    )
    with pytest.raises(ValueError, match=message):
        RobotSpheres(PANDA, lock_joints={"panda_joint7": 45})
