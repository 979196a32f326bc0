"""Objects that a robot carries in some envs alone, against robots that carry them everywhere."""

import numpy as np
import pytest
import torch

from differentiable import JIT_WARNING
from joint_paths import random_paths
from robots import checked_links
from warp_collision import (
    Cuboid,
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)
OBJECTS = {
    "rod": [[0.0, 0.0, 0.05 * i, 0.02] for i in range(3, 9)],
    "plate": [[0.06 * i, 0.0, 0.15, 0.03] for i in range(-3, 4)],
    "ball": [[0.0, 0.0, 0.2, 0.06]],
}
# What is carried in the envs 0 to 3.
CARRIED = (("rod", "ball"), ("plate", "ball"), ("ball",), ("rod", "ball"))


def everything() -> RobotSpheres:
    """With each object in its own envs; the ball, on another link, in all."""
    panda = load_panda()
    panda.attach("rod", "panda_hand", OBJECTS["rod"], envs=[0, 3])
    panda.attach("plate", "panda_hand", OBJECTS["plate"], envs=[1])
    panda.attach("ball", "panda_link5", OBJECTS["ball"])
    return panda


def carrying(names: tuple[str, ...]) -> RobotSpheres:
    panda = load_panda()
    for name in names:
        panda.attach(name, "panda_link5" if name == "ball" else "panda_hand", OBJECTS[name])
    return panda


@pytest.fixture(scope="module")
def robots() -> list[RobotSpheres]:
    return [everything(), *map(carrying, CARRIED)]


@pytest.fixture
def case(robots, device):
    world = MeshWorld(4, device=device)
    for env in range(4):
        for i, place in enumerate([(0.5, 0.3, 0.5), (-0.3, 0.4, 0.7), (0.3, -0.5, 0.3)]):
            pose = (*place, 0.9, 0.1 * i, 0.3, 0.2)
            world.add(f"box {i}", Cuboid((0.2, 0.3, 0.25)), pose, env=env)
    paths = random_paths(robots[1], np.random.default_rng(5), 48, 3, 0.5).to(device)
    envs = torch.arange(48, dtype=torch.int32, device=device) % 4
    return robots, world, paths, envs


def rows_of(envs: torch.Tensor, env: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.nonzero(envs == env)[:, 0]
    return rows, envs[rows]


def test_spheres(case):
    robots, _, paths, envs = case
    spheres = robots[0](paths, None, envs)
    for env in range(4):
        rows, _ = rows_of(envs, env)
        own = robots[env + 1]
        for name in {*OBJECTS, "panda_hand"}:
            mine = [i for i, link in enumerate(robots[0].sphere_links) if link == name]
            found = spheres[rows][..., mine, :]
            there = [i for i, link in enumerate(own.sphere_links) if link == name]
            if there:
                assert torch.equal(found, own(paths[rows])[..., there, :])
            else:
                assert (found[..., 3] == -1.0).all()
    # Without an index all rows are in env 0, also where there is no row.
    first = robots[0](paths)
    assert torch.equal(first, robots[0](paths, None, torch.zeros_like(envs)))
    assert torch.equal(robots[0](paths[0, 0]), first[0, 0])
    with pytest.raises(ValueError, match=r"env_index must have shape \(batch,\) for joints"):
        robots[0](paths, None, envs[:3])


@pytest.mark.parametrize("with_itself", [False, True])
def test_checks(case, with_itself):
    robots, world, paths, envs = case
    options = {"self_collision": with_itself}
    hits = configuration_in_collision(paths, robots[0], world, env_index=envs, **options)
    motions = joint_path_in_collision(paths, robots[0], world, env_index=envs, **options)
    found = joint_path_clearance(paths, robots[0], world, env_index=envs, **options)
    cost = joint_path_cost(
        paths, robots[0], world, env_index=envs, substeps=3, self_weight=float(with_itself)
    )
    differs = False
    for env in range(4):
        rows, index = rows_of(envs, env)
        own, part = robots[env + 1], paths[rows]
        assert torch.equal(
            hits[rows], configuration_in_collision(part, own, world, env_index=index, **options)
        )
        assert torch.equal(
            motions[rows], joint_path_in_collision(part, own, world, env_index=index, **options)
        )
        expected = joint_path_clearance(part, own, world, env_index=index, **options)
        for name in ("lower", "upper", "world_lower", "world_upper", "self_lower", "self_upper"):
            torch.testing.assert_close(getattr(found, name)[rows], getattr(expected, name))
        names = [own.sphere_links[i] for i in expected.sphere.flatten()]
        assert [robots[0].sphere_links[i] for i in found.sphere[rows].flatten()] == names
        self_weight = float(with_itself)
        torch.testing.assert_close(
            cost[rows],
            joint_path_cost(part, own, world, env_index=index, substeps=3, self_weight=self_weight),
            atol=1e-5,
            rtol=1e-5,
        )
        bare = carrying(("ball",))
        differs |= not torch.equal(
            hits[rows], configuration_in_collision(part, bare, world, env_index=index, **options)
        )
    assert differs


def test_wanted_contacts_in_envs(case):
    robots, world, paths, envs = case
    ignore = [("rod", "box 0"), ("plate", "box 0"), ("panda_hand", "box 1")]
    hits = configuration_in_collision(paths, robots[0], world, env_index=envs, ignore=ignore)
    for env in range(4):
        rows, index = rows_of(envs, env)
        known = [pair for pair in ignore if pair[0] in robots[env + 1].body_names]
        expected = configuration_in_collision(
            paths[rows], robots[env + 1], world, env_index=index, ignore=known
        )
        assert torch.equal(hits[rows], expected)


def test_reports(case):
    robots, world, paths, envs = case
    report = robots[0].report(paths, world, env_index=envs)
    carried = {"rod": {0, 3}, "plate": {1}, "ball": {0, 1, 2, 3}}
    for name, own in carried.items():
        found = {int(envs[b]) for b, link in zip(report.batch, report.link, strict=True)
                 if link == name}  # fmt: skip
        assert found <= own
    assert "rod" in report.link
    assert "plate" in report.link


def test_pairs_are_those_of_all_objects():
    robot, rod = everything(), carrying(("rod", "ball"))
    links, own = checked_links(robot.default_pairs), checked_links(rod.default_pairs)
    assert own <= links
    assert frozenset(("plate", "panda_link3")) in links


@pytest.mark.parametrize(
    ("envs", "error", "message"),
    [
        ([], ValueError, "envs must not be empty, got none"),
        ([0.5], TypeError, "envs must be integers, got 0.5"),
        ([True], TypeError, "envs must be integers, got True"),
        ([-1], ValueError, "envs must be from 0 to 1048575, got -1"),
    ],
)
def test_wrong_envs(envs, error, message):
    with pytest.raises(error, match=message):
        load_panda().attach("rod", "panda_hand", OBJECTS["rod"], envs=envs)
