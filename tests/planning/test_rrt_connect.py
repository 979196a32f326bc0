"""Motion trees of the planner: in the plane, where is known what is free, and for a robot."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from warp_collision import Cuboid, MeshWorld, RobotSpheres, joint_path_in_collision
from warp_collision.examples import load_panda, load_problem, problem_names
from warp_collision.kernels.lanes.growing_trees import scratch_of_steps
from warp_collision.kernels.trees import RANGE
from warp_collision.planning import optimize_paths, rrt_connect
from warp_collision.planning.problems import Problems
from warp_collision.planning.rrt_connect import RrtConnect, TreesInLanes
from warp_collision.poses import product, quaternion_rotate

# Walls x = const with a gap each: x, lower and upper end of the gap.
WALLS = [(-1.0, 2.2, 2.5), (0.5, -2.6, -2.3)]


def hits_of_walls(
    paths: torch.Tensor, problem: torch.Tensor, n_segments: torch.Tensor | None = None
) -> torch.Tensor:
    """Segments (n, horizon - 1) that pass walls beside their gaps; nothing passes in problem 2."""
    (x0, y0), (x1, y1) = paths[:, :-1].unbind(-1), paths[:, 1:].unbind(-1)
    hit = (x0 + x1).isnan()
    for x, low, high in WALLS:
        crosses = (x0 < x) != (x1 < x)
        y = torch.lerp(y0, y1, ((x - x0) / (x1 - x0)).nan_to_num())
        hit |= crosses & ~((low < y) & (y < high) & (problem[:, None] != 2))
    if n_segments is not None:
        hit |= torch.arange(hit.shape[1], device=hit.device) >= n_segments[:, None]
    return hit


@pytest.fixture
def maze(device: torch.device) -> Any:
    start = torch.tensor([[-2.0, -2.0], [-2.5, 2.4], [-2.0, 0.0], [2.0, 0.0]], device=device)
    goal = torch.tensor([[2.0, 2.0], [1.0, -2.5], [2.0, 0.0], [-2.0, 0.1]], device=device)
    joint_range = torch.tensor([[-3.0, -3.0], [3.0, 3.0]], device=device)
    return SimpleNamespace(start=start, goal=goal, joint_range=joint_range, hits=hits_of_walls)


def grown(trees: RrtConnect, rounds: int = 100) -> list[tuple[int, torch.Tensor]]:
    """The problems that are solved within some rounds, with paths (n_nodes, n_joints)."""
    found = []
    while rounds > 0 and len(trees.rows):
        count, solved = trees.grow(rounds)
        assert 0 < count <= rounds
        rounds -= count
        for paths, problem, n_vertices, n_rounds in solved:
            assert (n_rounds > 0).all()
            most = paths.shape[1]
            assert int(n_vertices.max()) == most
            for path, row, n in zip(
                paths.cpu(), problem.tolist(), n_vertices.tolist(), strict=True
            ):
                assert (path[: most - n + 1] == path[0]).all()
                found.append((row, path[most - n :]))
    return found


def test_paths_lead_through_narrow_gaps(maze):
    rows = torch.tensor([0, 1, 2, 3], device=maze.start.device)
    trees = RrtConnect(maze, rows, random.Random(3))
    solved = dict(grown(trees))
    assert sorted(solved) == [0, 1, 3]
    assert trees.rows.tolist() == [2]
    for row, path in solved.items():
        assert torch.equal(path[0], maze.start[row].cpu())
        assert torch.equal(path[-1], maze.goal[row].cpu())
        motions = torch.stack((path[:-1], path[1:]), dim=1)
        assert not hits_of_walls(motions, torch.full((len(motions),), row)).any()
        length = torch.linalg.vector_norm(motions[:, 1] - motions[:, 0], dim=1)
        assert length.max() <= RANGE + 1e-6
        assert length.min() > 0.0


def test_a_problem_may_have_several_trees(maze):
    rows = torch.tensor([1, 1, 0, 1], device=maze.start.device)
    solved = grown(RrtConnect(maze, rows, random.Random(0)))
    assert sorted(row for row, _ in solved) == [0, 1, 1, 1]
    lengths = [torch.diff(path, dim=0).norm(dim=1).sum().item() for _, path in solved]
    assert len(set(lengths)) == 4


def test_the_same_numbers_give_the_same_paths(maze):
    rows = torch.tensor([0, 3], device=maze.start.device)
    first, second = (grown(RrtConnect(maze, rows, random.Random(5))) for _ in range(2))
    assert len(first) == 2
    for (row, path), (other, again) in zip(first, second, strict=True):
        assert row == other
        assert torch.equal(path, again)


def test_a_robot_finds_its_way_through_a_maze(tmp_path):
    """A ball on two slides, walls with gaps at alternating ends."""
    urdf = tmp_path / "slides.urdf"
    joint = (
        '<joint name="{0}" type="prismatic"><parent link="{1}"/><child link="{2}"/>'
        '<axis xyz="{3}"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
    )
    ball = '<collision><geometry><sphere radius="0.05"/></geometry></collision>'
    urdf.write_text(
        '<robot name="slides"><link name="base"/><link name="carriage"/>'
        f'<link name="ball">{ball}</link>'
        + joint.format("x", "base", "carriage", "1 0 0")
        + joint.format("y", "carriage", "ball", "0 1 0")
        + "</robot>"
    )
    robot, world = RobotSpheres(urdf), MeshWorld(device="cpu", max_obstacles=4)
    for i, y in enumerate((0.15, -0.15, 0.15, -0.15)):
        pose = (0.3 * i - 0.45, y, 0.0, 1, 0, 0, 0)
        world.add(f"wall{i}", Cuboid((0.05, 1.9, 0.5)), pose)
    start, goal = torch.tensor([[-0.9, 0.3]]), torch.tensor([[0.9, -0.2]])

    found = optimize_paths(start, goal, robot, world, max_iterations=300)
    assert found.free.all()
    assert found.clearance.item() >= 0.0
    assert 7.5 < found.length.item() < 9.0  # the shortest one is 7.7 long


NAMES = [*problem_names()[:3], *problem_names()[-3:]]


@pytest.fixture(scope="module")
def apart() -> Problems:
    """Problems of an env each, around turned and shifted robots, with own margins."""
    numbers = torch.Generator().manual_seed(7)
    turned = torch.tensor([2.0, 0.0, 0.0, 0.0]) + torch.randn((len(NAMES), 4), generator=numbers)
    shifted = torch.randn((len(NAMES), 3), generator=numbers)
    base = torch.cat((shifted, torch.nn.functional.normalize(turned, dim=1)), dim=1)
    world, ends = MeshWorld(len(NAMES), max_obstacles=40, device="cpu"), []
    for env, name in enumerate(NAMES):
        problem, there = load_problem(name), base[env]
        ends.append((problem.start, problem.goal))
        for other, obstacle in problem.obstacles.items():
            here = torch.as_tensor(obstacle.pose, dtype=torch.float32)
            placed = there[:3] + quaternion_rotate(there[3:], here[:3])
            pose = (*placed.tolist(), *product(there[3:], here[3:]).tolist())
            world.add(other, obstacle.geometry, pose, env=env)
    start, goal = torch.tensor(ends).unbind(1)
    index = torch.arange(len(NAMES), dtype=torch.int32)
    margins = torch.tensor([1e-3, 2e-4, 5e-4, 1e-4, 4e-4, 2e-3])
    options = (1e-3, margins, 0.01, True, (), base, "spheres", True)
    return Problems(load_panda(), world, start, goal, index, *options)


def drawn(kind: type[RrtConnect], problems: Problems, rows: list[int]) -> list[Any]:
    """What trees of a fixed seed find: problem, path, and rounds up to it."""
    trees, found = kind(problems, torch.tensor(rows), random.Random(3)), []
    while len(trees.rows):
        _, solved = trees.grow(200)
        for paths, problem, n_vertices, n_rounds in solved:
            facts = problem.tolist(), paths, n_vertices.tolist(), n_rounds.tolist()
            for row, path, n, rounds in zip(*facts, strict=True):
                found.append((row, path[len(path) - n :].tolist(), rounds))
    return sorted(found)


def test_trees_in_lanes_find_what_rounds_of_launches_find(apart, monkeypatch):
    """Of each problem alone, and of all where the host looks after each round."""
    for row in range(len(NAMES)):
        found = drawn(TreesInLanes, apart, [row])
        assert found == drawn(RrtConnect, apart, [row])
        monkeypatch.setattr(rrt_connect, "_ROUNDS_IN_LANES", (1, 1))
        assert drawn(TreesInLanes, apart, [row]) == found
        monkeypatch.undo()
    every = [*range(len(NAMES)), 2, 4]
    monkeypatch.setattr(rrt_connect, "_ROUNDS_IN_LANES", (1, 1))
    together = drawn(TreesInLanes, apart, every)
    assert [row for row, *_ in together] == sorted(every)
    assert together == drawn(RrtConnect, apart, every)
    assert max(rounds for *_, rounds in together) > 2


@pytest.mark.parametrize("n_joints", [1, 6, 7])
@pytest.mark.parametrize("most", [16, 97, 113])
@pytest.mark.parametrize("parts", [1, 5, 64])
def test_memory_behind_that_of_steps_is_aligned(most, parts, n_joints):
    """There are pointers and bits of 64."""
    assert scratch_of_steps(most, parts, n_joints) % 8 == 0


def test_few_problems_share_a_launch_of_many_rounds(apart):
    """Or many problems one of few: a time limit is looked at between launches."""
    for count, most in ((1, 16), (10, 8), (100, 4), (1000, 1)):
        rows = torch.arange(count) % len(NAMES)
        trees = TreesInLanes(apart, rows, random.Random(5))
        assert 1 <= trees.grow(100)[0] <= most
    assert TreesInLanes(apart, rows[:1], random.Random(5)).grow(100)[0] == 16


def test_paths_of_trees_in_lanes_are_proven(apart):
    """A problem is in one thread, whatever their number; the library proves each path."""
    every, before, found = list(range(len(NAMES))), torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(drawn(TreesInLanes, apart, every))
    torch.set_num_threads(before)
    assert found[0] == found[1]
    for row, vertices, _ in found[0]:
        path = torch.tensor([vertices])
        assert torch.equal(path[0, 0], apart.start[row])
        assert torch.equal(path[0, -1], apart.goal[row])
        options: Any = {"tolerance": apart.margins[row].item(), "env_index": torch.tensor([row])}
        options["base_pose"] = apart.base_pose[row]
        hit = joint_path_in_collision(path, apart.robot, apart.world, **options)
        assert not hit.any()
