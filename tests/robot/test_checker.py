"""Checks whose options are validated once: the answers of the functions, and what may change."""

import copy
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as _registers_tensors  # noqa: F401

from joint_paths import random_paths
from warp_collision import Cuboid, MeshWorld, configuration_in_collision, joint_path_in_collision
from warp_collision.examples import load_panda
from warp_collision.robot import RobotChecker, RobotSpheres, self_collision_cost
from warp_collision.robot.checks import checker as module

BASE = (0.1, -0.2, 0.05, 0.9, 0.1, 0.2, -0.3)
OPTIONS = {
    "none": {},
    "base": {"base_pose": BASE},
    "contacts": {"ignore": [("panda_hand", "post"), ("panda_link5", "plate")]},
    "alone": {"self_collision": False},
}


@pytest.fixture
def panda() -> RobotSpheres:
    return load_panda()


def scene(device: str, n_envs: int = 1) -> MeshWorld:
    world = MeshWorld(device=device, n_envs=n_envs, max_obstacles=4)
    for env in range(n_envs):
        world.add("plate", Cuboid((0.5, 0.01, 0.5)), (0.5, 0.1 * env, 0.5, 1, 0, 0, 0), env=env)
        world.add("post", Cuboid((0.1, 0.1, 1.0)), (-0.3, 0.4, 0.5, 1, 0, 0, 0), env=env)
    return world


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_answers_are_those_of_the_functions(panda, name, batch, device):
    world, options = scene(device), OPTIONS[name]
    rng = np.random.default_rng(batch)
    checker = RobotChecker(panda, world, tolerance=2e-3, **options)
    for horizon in (2, 3, 2):
        paths = random_paths(panda, rng, batch, horizon, 1.0).to(device)
        expected = joint_path_in_collision(paths, panda, world, tolerance=2e-3, **options)
        assert torch.equal(checker.path_in_collision(paths), expected)
        at_rest = configuration_in_collision(paths, panda, world, **options)
        assert torch.equal(checker.configuration_in_collision(paths), at_rest)
    assert torch.equal(checker.configuration_in_collision(paths[0, 0]), at_rest[0, 0])
    assert torch.equal(checker.configuration_in_collision(paths.double()[0]), at_rest[0])
    assert torch.equal(checker.configuration_in_collision(paths[None]), at_rest[None])


def test_rows_have_envs(panda, device):
    world = scene(device, n_envs=2)
    paths = random_paths(panda, np.random.default_rng(0), 6, 2, 1.0).to(device)
    index = torch.tensor([0, 1, 0, 1, 1, 0], dtype=torch.int32, device=device)
    checker = RobotChecker(panda, world)
    expected = joint_path_in_collision(paths, panda, world, env_index=index)
    assert torch.equal(checker.path_in_collision(paths, index), expected)
    at_rest = configuration_in_collision(paths, panda, world, env_index=index)
    assert torch.equal(checker.configuration_in_collision(paths, index), at_rest)


def test_later_changes_of_world_and_robot_are_seen(panda, device):
    world = MeshWorld(device=device, max_obstacles=2)
    checker = RobotChecker(panda, world)
    ready = torch.tensor([[[0.0, -0.5, 0, -2.2, 0, 1.6, 0.8]] * 2], device=device)

    def answers() -> list[bool]:
        path, rest = checker.path_in_collision(ready), checker.configuration_in_collision(ready)
        assert path.all() == rest.all()
        return [bool(path.any()), bool(rest.any())]

    assert answers() == [False, False]
    world.add("block", Cuboid((0.1, 0.1, 0.1)), (0.9, 0.0, 0.6, 1, 0, 0, 0))
    assert answers() == [False, False]
    panda.attach("rod", "panda_hand", Cuboid((0.9, 0.02, 0.02)), touch_links=["panda_hand"])
    hit = joint_path_in_collision(ready, panda, world).any().item()
    assert answers() == [hit, hit]
    panda.detach("rod")
    assert answers() == [False, False]
    hand = panda.link_transforms(ready[0, :1])[0, panda.link_names.index("panda_hand")]
    world.set_pose("block", hand)
    assert answers() == [True, True]
    world.enable("block", False)
    assert answers() == [False, False]
    world.enable("block", True)
    world.mesh_from_world.zero_()  # written past the API: what is not finite is not free
    assert answers()[0]


def test_the_answer_of_a_call_stays(panda, device):
    world = scene(device)
    checker = RobotChecker(panda, world)
    paths = random_paths(panda, np.random.default_rng(3), 30, 2, 1.0).to(device)
    answers = [checker.path_in_collision(row[None]) for row in paths]
    expected = joint_path_in_collision(paths, panda, world)
    assert torch.equal(torch.cat(answers), expected)
    assert expected.any()
    assert not expected.all()


def test_few_joints_launch_a_record(panda, monkeypatch):
    """Neither the options nor the tables of the robot are looked at again."""
    world = scene("cpu")
    checker = RobotChecker(panda, world, **OPTIONS["base"])
    paths = random_paths(panda, np.random.default_rng(3), 4, 2, 1.0)
    expected = checker.path_in_collision(paths)
    for name in ("JOINT_PATH_IN_COLLISION", "root_frames", "robot_tables"):
        monkeypatch.setattr(module, name, None)
    assert torch.equal(checker.path_in_collision(paths), expected)


@pytest.mark.parametrize("batch", [1, 12])
def test_shapes_decide_where_spheres_refuse(arm, batch, device):
    """As in the functions, in calls of few joints, of which some are refused, or many."""
    world = MeshWorld(device=device)
    for name, place in {"one": (0.2, -0.2, 0.7), "other": (0.1, 0.1, 0.8)}.items():
        world.add(name, Cuboid((0.6, 0.02, 0.8)), (*place, 1, 0, 0, 0))
    rng, found = np.random.default_rng(8), []
    given = {"ignore": [("base", "one"), ("base", "other")], "base_pose": BASE}
    checker = RobotChecker(arm, world, shapes="exact", **given)
    given["base_pose"] = torch.tensor(BASE, device=device)
    for _ in range(360 // batch):
        paths = random_paths(arm, rng, batch, 2, 0.1).to(device)
        expected = joint_path_in_collision(paths, arm, world, shapes="exact", **given)
        assert torch.equal(checker.path_in_collision(paths), expected)
        at_rest = configuration_in_collision(paths, arm, world, shapes="exact", **given)
        assert torch.equal(checker.configuration_in_collision(paths), at_rest)
        by_spheres = joint_path_in_collision(paths, arm, world, **given)
        found.append([expected.sum().item(), by_spheres.sum().item()])
    by_shapes, by_spheres = np.sum(found, axis=0)
    assert 0 < by_shapes < by_spheres < 360


def test_shapes_are_not_asked_where_spheres_suffice(arm, monkeypatch):
    """On a CPU, where to know it is no wait."""
    world = MeshWorld(device="cpu")
    world.add("far", Cuboid((1.0, 1.0, 1.0)), (9.0, 0.0, 0.0, 1, 0, 0, 0))
    joints = torch.zeros(1, 2, 3)
    checker = RobotChecker(arm, world, shapes="exact")
    for name in ("shape_hit", "segment_shape_hit"):
        monkeypatch.setattr(f"warp_collision.kernels.shape_hit.{name}", None)
    assert not checker.path_in_collision(joints).any()
    assert not checker.configuration_in_collision(joints).any()
    assert not joint_path_in_collision(joints, arm, world, shapes="exact").any()
    assert not configuration_in_collision(joints, arm, world, shapes="exact").any()


def test_under_vmap(panda, device):
    world = scene(device)
    checker = RobotChecker(panda, world, **OPTIONS["base"])
    paths = random_paths(panda, np.random.default_rng(5), 6, 2, 1.0).to(device)
    mapped = torch.vmap(checker.path_in_collision)(paths[:, None])
    assert torch.equal(mapped[:, 0], checker.path_in_collision(paths))


@pytest.mark.parametrize(
    ("joints", "error", "message"),
    [
        (torch.zeros(1, 1, 7), ValueError, "at least 2 waypoints"),
        (torch.zeros(1, 2, 6), ValueError, "joints must have shape"),
        (torch.zeros(2, 7), ValueError, "joints must have shape"),
        (torch.zeros(1, 2, 7, dtype=torch.int32), TypeError, "float32 or float64"),
        ([[[0.0] * 7] * 2], TypeError, "float32 or float64"),
    ],
)
def test_wrong_joints(panda, joints, error, message):
    with pytest.raises(error, match=message):
        RobotChecker(panda, MeshWorld(device="cpu")).path_in_collision(joints)


def test_wrong_options_are_named_at_once(panda):
    world = scene("cpu")
    for options, message in (
        ({"tolerance": 0.0}, "tolerance must be positive, got 0.0"),
        ({"ignore": [("panda_hand", "vase")]}, "got no obstacle 'vase'"),
        ({"base_pose": torch.zeros(2, 7)}, r"base_pose must have shape \(7,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            RobotChecker(panda, world, **options)
    with pytest.raises(TypeError, match="self_collision must be a bool or SelfCollisionPairs"):
        RobotChecker(panda, world, self_collision="all")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("clearance", [0.0, 0.02])
def test_what_was_sent_to_another_process_answers_as_before(arm, clearance):
    """Tensors that are sent are moved to shared memory: the tables that kernels read stay."""
    world = scene("cpu")
    paths = random_paths(arm, np.random.default_rng(3), 300, 2, 1.0)
    options: Any = {"shapes": "exact", "world_clearance": clearance, "base_pose": BASE}
    checker = RobotChecker(arm, world, **options)
    expected = joint_path_in_collision(paths, arm, world, **options)
    assert 0.05 < expected.float().mean() < 0.95
    assert torch.equal(checker.path_in_collision(paths[:1]), expected[:1])
    self_collision_cost(arm(paths), arm.self_collision_pairs())
    read = [*checker._tables[:6], *checker._pairs]
    read += [checker._root, checker._tolerance]
    places = [table.data_ptr() for table in read]
    sent = ForkingPickler.dumps((checker, arm.self_collision_pairs()))
    assert [table.data_ptr() for table in read] == places
    assert torch.equal(joint_path_in_collision(paths, arm, world, **options), expected)
    for it in (checker, pickle.loads(sent)[0], copy.deepcopy(checker)):
        each = [it.path_in_collision(path[None]) for path in paths]
        assert torch.equal(torch.cat(each), expected)
