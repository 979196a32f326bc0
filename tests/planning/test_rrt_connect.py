"""Motion trees of the planner: in the plane, where is known what is free, and for a robot."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from warp_collision import Cuboid, MeshWorld, RobotSpheres
from warp_collision.kernels.trees import RANGE
from warp_collision.planning import optimize_paths
from warp_collision.planning.rrt_connect import RrtConnect

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
    limits = torch.tensor([[-3.0, 3.0], [-3.0, 3.0]], device=device)
    return SimpleNamespace(start=start, goal=goal, limits=limits, hits=hits_of_walls)


def grown(trees: RrtConnect, rounds: int = 100) -> list[tuple[int, torch.Tensor]]:
    """The problems that are solved within some rounds, with paths (n_nodes, n_joints)."""
    found = []
    while rounds > 0 and len(trees.rows):
        count, solved = trees.grow(rounds)
        assert 0 < count <= rounds
        rounds -= count
        for paths, problem, n_vertices in solved:
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
