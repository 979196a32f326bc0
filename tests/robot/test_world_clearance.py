"""Proofs that a robot keeps a clearance from obstacles, against float64 kinematics and cuboids."""

import gc

import numpy as np
import pytest
import torch

import joint_paths
from joint_paths import BETWEEN, load_crane, obstacles, random_paths, sampled_minimum
from warp_collision import (
    Cuboid,
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot import RobotChecker, RobotSpheres

TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


@pytest.mark.parametrize(("name", "kept"), [("panda", 0.03), ("crane", 0.002), ("crane", 0.2)])
def test_what_is_proven_keeps_it_and_no_other_is_refused(robots, name, kept, device):
    robot, rng = robots[name], np.random.default_rng(round(1e3 * kept))
    boxes = obstacles(robot, rng, 4)
    world = joint_paths.world_of(boxes, device)
    paths = random_paths(robot, rng, 5, 3, 0.3)
    options = {"self_collision": False, "world_clearance": kept}
    hits = joint_path_in_collision(paths.to(device), robot, world, tolerance=TOLERANCE, **options)
    at_rest = configuration_in_collision(paths.to(device), robot, world, **options).cpu()
    least = joint_paths.clearance(robot(paths.double()).flatten(0, 1), boxes).amin(-1)
    sure = (least - kept).abs() > 1e-5
    assert torch.equal((least < kept)[sure], at_rest.flatten()[sure])
    for row, segment in np.ndindex(5, 2):
        begin, end = paths[row, segment : segment + 2].double()
        smallest = sampled_minimum(robot, begin, end, lambda s: joint_paths.clearance(s, boxes))
        if hits[row, segment]:
            assert smallest < kept + TOLERANCE + BETWEEN
        else:
            assert smallest > kept
    assert 0 < hits.sum() < hits.numel()


@pytest.mark.parametrize("kept", [0.01, 0.1])
def test_links_are_apart_as_without(robots, arm, kept, device):
    """Spheres alone, and spheres with convex pieces."""
    empty, rng = MeshWorld(device=device), np.random.default_rng(5)
    for robot in (robots["crane"], arm):
        paths = random_paths(robot, rng, 150, 2, 0.5).to(device)
        hits = joint_path_in_collision(paths, robot, empty)
        assert 0 < hits.sum() < hits.numel()
        assert torch.equal(joint_path_in_collision(paths, robot, empty, world_clearance=kept), hits)
        at_rest = configuration_in_collision(paths, robot, empty)
        found = configuration_in_collision(paths, robot, empty, world_clearance=kept)
        assert torch.equal(found, at_rest)


def test_exact_shapes_keep_it_too(arm, device):
    world = MeshWorld(device=device)
    for name, place in {"one": (0.2, -0.2, 0.7), "other": (0.1, 0.1, 0.8)}.items():
        world.add(name, Cuboid((0.6, 0.02, 0.8)), (*place, 1, 0, 0, 0))
    paths = random_paths(arm, np.random.default_rng(8), 60, 2, 0.1).to(device)
    ignore, kept = [("base", "one"), ("base", "other")], 0.02
    options = {"shapes": "exact", "ignore": ignore, "self_collision": False}
    hits = joint_path_in_collision(paths, arm, world, world_clearance=kept, **options)
    found = joint_path_clearance(paths, arm, world, **options)
    assert (found.upper[~hits] > kept - 1e-5).all()
    assert (found.lower[hits] < kept + TOLERANCE + 1e-5).all()
    by_spheres = {**options, "shapes": "spheres", "world_clearance": kept}
    assert hits.sum() < joint_path_in_collision(paths, arm, world, **by_spheres).sum() < 60


def test_a_checker_answers_as_the_functions_with_what_is_attached(device):
    panda, world = load_panda(), MeshWorld(device=device)
    world.add("block", Cuboid((0.1, 0.4, 0.4)), (0.75, 0.0, 0.5, 1, 0, 0, 0))
    paths = random_paths(panda, np.random.default_rng(2), 40, 2, 0.5).to(device)
    options = {"world_clearance": 0.07}
    checker = RobotChecker(panda, world, **options)
    counts = []
    for rod in (False, True):
        if rod:
            panda.attach("rod", "panda_hand", Cuboid((0.3, 0.02, 0.02)))
        expected = joint_path_in_collision(paths, panda, world, **options)
        assert torch.equal(checker.path_in_collision(paths), expected)
        one = [checker.path_in_collision(path[None]) for path in paths]
        assert torch.equal(torch.cat(one), expected)
        at_rest = configuration_in_collision(paths, panda, world, **options)
        assert torch.equal(checker.configuration_in_collision(paths), at_rest)
        counts.append(expected.sum().item())
    plain = joint_path_in_collision(paths, panda, world).sum().item()
    assert plain <= counts[0] + counts[1]
    assert 0 < counts[0] < counts[1] < 40


def test_moving_obstacles(robots, device):
    """A bar that passes a robot at rest by 3 cm."""
    panda, world = robots["panda"], MeshWorld(device=device, max_obstacles=1)
    world.add("bar", Cuboid((0.1, 0.1, 0.1)), (2.0, 0.0, 0.0, 1, 0, 0, 0))
    ready = torch.tensor([[[0.0, -0.5, 0, -2.2, 0, 1.6, 0.8]] * 2], device=device)
    top = (panda(ready[0, :1])[0, :, 2] + panda(ready[0, :1])[0, :, 3]).max().item()
    poses = torch.tensor([[[[x, 0.0, top + 0.08, 1, 0, 0, 0]] for x in (-1.0, 1.0)]], device=device)
    for kept, is_hit in ((0.0, False), (0.029, False), (0.031, True)):
        found = joint_path_in_collision(
            ready,
            panda,
            world,
            poses=poses.expand(1, 2, 1, 7),
            world_clearance=kept,
            tolerance=1e-4,
        )
        assert found.item() == is_hit


def test_compiled_calls(robots, device):
    panda, world = robots["panda"], MeshWorld(device=device)
    world.add("block", Cuboid((0.1, 0.4, 0.4)), (0.75, 0.0, 0.5, 1, 0, 0, 0))
    paths = random_paths(panda, np.random.default_rng(2), 40, 2, 0.5).to(device)

    def ask(joints: torch.Tensor) -> torch.Tensor:
        return joint_path_in_collision(joints, panda, world, world_clearance=0.0721)

    compiled = torch.compile(ask, backend="eager", fullgraph=True)(paths)
    assert torch.equal(compiled, ask(paths))


def test_few_widened_robots_are_kept(robots):
    layout = load_panda().layout
    same = layout.widened(0.5)
    assert layout.widened(0.5) is same
    for index in range(20):
        layout.widened(0.01 * index)
    assert len(layout._widened) < 10
    assert layout.widened(0.5) is not same


def test_tables_of_pairs_go_with_the_widened_robots(device):
    panda, world = load_panda(), MeshWorld(device=device)
    paths = random_paths(panda, np.random.default_rng(3), 4, 2, 0.5).to(device)
    pairs = panda.self_collision_pairs()

    def living_tables(first: int) -> int:
        for index in range(first, first + 20):
            options = {"world_clearance": 1e-3 * index, "self_collision": pairs}
            joint_path_in_collision(paths, panda, world, **options)
        gc.collect()
        shape = panda.layout.pair_tables(pairs, world.device)[0].shape
        living = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        return sum(each.dtype is torch.uint8 and each.shape == shape for each in living)

    count = living_tables(1)
    assert living_tables(101) == count


@pytest.mark.parametrize("value", [-0.01, np.nan, np.inf])
def test_lengths_are_required(robots, value):
    joints = torch.zeros(1, 2, 7)
    world = MeshWorld(device="cpu")
    with pytest.raises(ValueError, match="world_clearance must"):
        joint_path_in_collision(joints, robots["panda"], world, world_clearance=value)
    with pytest.raises(ValueError, match="world_clearance must"):
        RobotChecker(robots["panda"], world, world_clearance=value)
    with pytest.raises(TypeError, match="world_clearance must be a number"):
        configuration_in_collision(joints, robots["panda"], world, world_clearance="1 cm")
