"""Motions in lanes of vector instructions: the answers of the kernel without lanes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import lanes

from cases import mostly_slow
from lane_scenes import (
    ROBOTS,
    WITHOUT_FORMULA,
    among,
    far_away,
    fill,
    joint_rows,
    motions,
    random_pose,
    robot_with_pieces,
    three_envs,
)
from warp_collision import Cuboid, MeshWorld, configuration_in_collision, joint_path_in_collision
from warp_collision.devices import CPU
from warp_collision.examples import load_panda
from warp_collision.queries.evaluate import scene_of
from warp_collision.robot import JointCurve, RobotChecker
from warp_collision.robot.checks import path_operators
from warp_collision.robot.checks.path_operands import PathOperands

Tensor = torch.Tensor


def without_lanes(*operands, **options) -> Tensor:
    """The same function by the kernel that has a thread for each segment."""
    return lanes.without_lanes(lambda: joint_path_in_collision(*operands, **options))


def assert_same(robot, world, paths: Tensor, **options) -> None:
    """At random, and with an end that is bisected until a unit of rounding decides."""
    expected = without_lanes(paths, robot, world, **options)
    assert torch.equal(joint_path_in_collision(paths, robot, world, **options), expected)
    assert 0 < expected.sum() < expected.numel()
    at_rest = {name: value for name, value in options.items() if name != "tolerance"}
    is_free = ~configuration_in_collision(paths, robot, world, **at_rest)[:, 0]
    paths = paths[is_free & expected[:, 0]]
    low, high = torch.zeros(len(paths), 1), torch.ones(len(paths), 1)
    for _ in range(24):
        middle = 0.5 * (low + high)
        part = torch.stack((paths[:, 0], torch.lerp(paths[:, 0], paths[:, 1], middle)), dim=1)
        found = without_lanes(part, robot, world, **options)
        assert torch.equal(joint_path_in_collision(part, robot, world, **options), found)
        low, high = torch.where(found, low, middle), torch.where(found, middle, high)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("count", [5, 40])
def test_among_exact_shapes(name: str, count: int) -> None:
    rng = np.random.default_rng(count)
    robot, world = ROBOTS[name](), MeshWorld(device=CPU, max_obstacles=64)
    fill(world, rng, count, spread=4.0 if name == "snake" or count > 32 else 1.0)
    paths = motions(robot, rng, 300 if name == "snake" else 150)
    if name == "snake":  # which is rarely free
        paths[:, 1] = paths[:, 0] + 0.05 * (paths[:, 1] - paths[:, 0])
        is_free = ~configuration_in_collision(paths, robot, world).any(1)
        paths = torch.cat((paths[is_free], paths[~is_free][:20]))
    assert_same(robot, world, paths)
    for options in ({"self_collision": False}, {"tolerance": 0.02}):
        expected = without_lanes(paths, robot, world, **options)
        assert torch.equal(joint_path_in_collision(paths, robot, world, **options), expected)


def curves(robot, rng: np.random.Generator, count: int, degree: int) -> Tensor:
    """(count, 3, degree + 1, n_joints) of 1e-6 to 10 rad: with cusps, still pieces and loops."""
    steps = rng.normal(size=(count, 3 * degree, robot.n_joints))
    steps[::4, ::2] = 0.0  # cusps
    steps[1::4, degree : 2 * degree] = 0.0
    steps[2::4, 1::2] = -steps[2::4, : 3 * degree - 1 : 2][:, : steps[2::4, 1::2].shape[1]]
    size = 10.0 ** np.where(rng.random(count) < 0.8, rng.uniform(0.0, 1.3), rng.uniform(-6.0, 1.0))
    steps *= size[:, None, None] / np.abs(steps).sum(axis=(1, 2), keepdims=True)
    begin = joint_rows(robot, rng, count)[0].double().numpy()[:, None]
    points = np.concatenate((begin, begin + np.cumsum(steps, axis=1)), axis=1)
    pieces = [points[:, i * degree : (i + 1) * degree + 1] for i in range(3)]
    return torch.from_numpy(np.stack(pieces, axis=1))


@pytest.mark.filterwarnings("ignore:joints must be in rad")  # control points beyond the limits
@pytest.mark.parametrize("degree", mostly_slow((2, 3, 4, 5), (3,)))
@pytest.mark.parametrize("name", mostly_slow(tuple(ROBOTS), ("panda", "crane")))
def test_pieces_of_curves(name: str, degree: int) -> None:
    """At random, and where curves that shrink to their begin are bisected to a unit of rounding."""
    rng = np.random.default_rng(degree)
    robot, world = ROBOTS[name](), MeshWorld(device=CPU)
    fill(world, rng, 5, spread=4.0 if name == "snake" else 1.0)
    times = torch.arange(4.0).double()
    pieces = curves(robot, rng, 40 if name == "snake" else 200, degree)

    def hits(rows: Tensor) -> Tensor:
        curve = JointCurve(times.expand(len(rows), -1), rows)
        found = joint_path_in_collision(curve, robot, world)
        assert torch.equal(found, without_lanes(curve, robot, world))
        return found

    found = hits(pieces)
    assert 0 < found.sum() < found.numel()
    if name == "snake":  # which is rarely free
        return
    is_free = ~configuration_in_collision(pieces[:, :1, 0].float(), robot, world)[:, 0]
    pieces = pieces[is_free & found.any(1)]
    assert len(pieces) > 5
    low, high = torch.zeros(len(pieces)).double(), torch.ones(len(pieces)).double()
    for _ in range(24):
        middle = 0.5 * (low + high)
        found = hits(torch.lerp(pieces[:, :1, :1], pieces, middle[:, None, None, None])).any(1)
        low, high = torch.where(found, low, middle), torch.where(found, middle, high)


@pytest.mark.parametrize("shape", [(1, 2), (1, 3), (5, 4), (1, 40), (3, 18)])
def test_any_number_of_segments(shape: tuple[int, int]) -> None:
    """Of one path and of several, in one thread and in several."""
    rng = np.random.default_rng(shape[1])
    robot, world = load_panda(), MeshWorld(device=CPU)
    fill(world, rng, 4)
    paths = joint_rows(robot, rng, shape[0] * shape[1]).reshape(*shape, -1)
    paths[:] = paths[:, :1] + 0.1 * (paths - paths[:, :1])
    expected = without_lanes(paths, robot, world)
    assert torch.equal(joint_path_in_collision(paths, robot, world), expected)
    checker = RobotChecker(robot, world)
    assert torch.equal(checker.path_in_collision(paths), expected)


def test_joint_values_that_are_not_numbers() -> None:
    rng = np.random.default_rng(3)
    robot, world = ROBOTS["crane"](), MeshWorld(device=CPU)
    fill(world, rng, 6)
    paths = motions(robot, rng, 200)
    bad = torch.tensor([np.nan, np.inf, -np.inf, 1e7, 3e9, 1e20, 3e38]).float()
    where = torch.from_numpy(rng.integers(0, paths.shape[2], 100))
    end = torch.arange(100) % 2
    paths[torch.arange(100) * 2, end, where] = bad[torch.arange(100) % len(bad)]
    expected = without_lanes(paths, robot, world)
    assert torch.equal(joint_path_in_collision(paths, robot, world), expected)
    assert expected[~paths.isfinite().all(-1).all(-1)].all()


@pytest.mark.filterwarnings("ignore:joints must be in rad")
@pytest.mark.parametrize(("far", "turns"), [(1.0, 0.0), (100.0, 0.0), (1000.0, 0.0), (1.0, 1e3)])
def test_far_from_the_origin_and_after_many_turns(far: float, turns: float) -> None:
    rng = np.random.default_rng(int(far + turns))
    robot, world, base = far_away(rng, far, 5)
    paths = motions(robot, rng, 150)
    paths += turns * torch.from_numpy(rng.choice([-1.0, 1.0], (150, 1, paths.shape[2]))).float()
    assert_same(robot, world, paths, base_pose=base, tolerance=5e-3)


def test_envs_bases_and_contacts() -> None:
    rng = np.random.default_rng(4)
    robot, world = three_envs(rng, 4)
    paths = motions(robot, rng, 200)
    options = {
        "env_index": torch.from_numpy(rng.integers(-1, 4, 200)).int(),
        "base_pose": torch.from_numpy(np.stack([random_pose(rng, 0.2) for _ in range(200)])),
        "ignore": [("panda_hand", "s1"), ("panda_link4", "s3")],
        "tolerance": torch.from_numpy(10.0 ** rng.uniform(-4.0, -2.0, 1)).float(),
    }
    expected = without_lanes(paths, robot, world, **options)
    assert torch.equal(joint_path_in_collision(paths, robot, world, **options), expected)
    assert 0.0 < expected.float().mean() < 1.0


@pytest.mark.parametrize("kind", WITHOUT_FORMULA)
def test_among_what_has_no_formula(kind: str) -> None:
    rng = np.random.default_rng(6)
    robot, world = among(rng, kind)
    paths = motions(robot, rng, 60)
    expected = without_lanes(paths, robot, world)
    assert torch.equal(joint_path_in_collision(paths, robot, world), expected)
    assert 0 < expected.sum() < expected.numel()


def test_each_path_up_to_its_first_hit() -> None:
    """As trees ask for: the segments behind a hit, and beyond a count, are hits."""
    rng = np.random.default_rng(12)
    robot, world = load_panda(), MeshWorld(device=CPU)
    fill(world, rng, 5)
    world.add("wall", Cuboid((0.02, 2.0, 2.0)), (0.45, 0, 0, 1, 0, 0, 0))
    paths = joint_rows(robot, rng, 40 * 12).reshape(40, 12, -1)
    paths = paths[:, :1] + 0.3 * (paths - paths[:, :1])
    tables = robot.layout.tables(CPU)
    pairs = robot.layout.pair_tables(robot.default_pairs, CPU)
    scene = scene_of(world)
    operands = PathOperands(paths.contiguous(), scene, None, None, tables, pairs)
    counts = torch.from_numpy(rng.integers(0, 12, 40)).int()
    found = path_operators.run_paths_at_rest(operands, torch.tensor([1e-3]), counts)
    each = without_lanes(paths, robot, world)
    expected = each.cummax(dim=1).values | (torch.arange(11) >= counts[:, None])
    assert torch.equal(found, expected)
    assert 0.1 < (~found).float().mean() < 0.9


@pytest.mark.slow  # fits spheres to the links
def test_links_with_convex_pieces(tmp_path: Path) -> None:
    robot, world = robot_with_pieces(tmp_path), MeshWorld(device=CPU)
    assert_same(robot, world, motions(robot, np.random.default_rng(8), 1000))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROBOTS)
def test_many_motions(name: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        robot, world = ROBOTS[name](), MeshWorld(device=CPU, max_obstacles=64)
        fill(world, rng, (3, 6, 9, 40)[seed], spread=1.0 + (name == "snake" or seed == 3))
        paths = motions(robot, rng, 500 if name == "snake" else 10000)
        expected = without_lanes(paths, robot, world)
        assert torch.equal(joint_path_in_collision(paths, robot, world), expected)
        assert_same(robot, world, paths[:500])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:joints must be in rad")  # ends may be beyond the limits
@pytest.mark.parametrize("seed", range(10))
def test_no_proven_motion_of_a_million_touches(seed: int) -> None:
    """100,000 for each seed, of 0.1 to 3 rad; those that are proven are sampled at 129 places."""
    rng = np.random.default_rng(seed)
    robot, world = load_panda(), MeshWorld(device=CPU, max_obstacles=64)
    fill(world, rng, (2, 4, 8, 16, 40)[seed % 5], spread=1.4)
    begin = joint_rows(robot, rng, 100_000)[0]
    ways = torch.from_numpy(rng.normal(size=begin.shape)).float()
    lengths = torch.tensor([0.1, 0.3, 1.0, 3.0]).repeat(25_000)[:, None]
    end = begin + lengths * ways / ways.norm(dim=1, keepdim=True)
    paths = torch.stack((begin, end), dim=1)
    hits = joint_path_in_collision(paths, robot, world)
    assert torch.equal(hits, without_lanes(paths, robot, world))
    free = paths[~hits[:, 0]]
    assert 10_000 < len(free) < 90_000
    for place in torch.linspace(0.0, 1.0, 129):
        rows = torch.lerp(free[:, 0], free[:, 1], place)[None]
        assert not configuration_in_collision(rows, robot, world).any()
