"""Threads of a warp that share a motion or a configuration: the answers of one thread alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from lane_scenes import ROBOTS, fill, joint_rows, motions, random_pose, robot_with_pieces
from warp_collision import MeshWorld, configuration_in_collision, joint_path_in_collision
from warp_collision.examples import load_panda
from warp_collision.launching.launch import launch
from warp_collision.robot import JointCurve
from warp_collision.robot.checks import path_operators
from warp_collision.robot.checks.path_operands import PathOperands

Tensor = torch.Tensor
COUNTS = (32, 8, 2)


def shared_by(count: int, answer: Callable[[], Tensor]) -> Tensor:
    """An answer for which so many threads share each item."""
    with patch.object(path_operators, "threads_for_each", lambda *_: count):
        return answer().cpu()


def assert_same(answer: Callable[[], Tensor]) -> None:
    expected = shared_by(1, answer)
    assert 0 < expected.sum() < expected.numel()
    for count in COUNTS:
        assert torch.equal(shared_by(count, answer), expected)


@pytest.mark.parametrize("name", ROBOTS)
def test_motions_and_configurations(gpu: torch.device, name: str) -> None:
    """Of few and many parts at first; the snake has more pairs of bodies than a mask has bits."""
    rng = np.random.default_rng(len(name))
    robot, world = ROBOTS[name](), MeshWorld(device=gpu)
    fill(world, rng, 5, spread=3.0 if name == "snake" else 1.0)
    paths = motions(robot, rng, 60).to(gpu)
    if name == "snake":  # which is rarely free
        paths[:, 1] = paths[:, 0] + 0.05 * (paths[:, 1] - paths[:, 0])
        is_free = ~configuration_in_collision(paths, robot, world).any(1)
        paths = torch.cat((paths[is_free], paths[~is_free][:20]))
    assert_same(lambda: joint_path_in_collision(paths, robot, world))
    assert_same(lambda: configuration_in_collision(paths, robot, world))


def test_curves_envs_and_bases(gpu: torch.device) -> None:
    rng = np.random.default_rng(2)
    robot, world = load_panda(), MeshWorld(device=gpu, n_envs=2)
    for env in (0, 1):
        fill(world, rng, 4, env=env)
    values = 0.3 * joint_rows(robot, rng, 30 * 5).reshape(30, 5, -1).double()
    speeds = 0.3 * torch.from_numpy(rng.normal(size=values.shape))
    curve = JointCurve.from_hermite(range(5), values, speeds)
    options = {
        "env_index": torch.from_numpy(rng.integers(-1, 3, 30)).int().to(gpu),
        "base_pose": torch.from_numpy(np.stack([random_pose(rng, 0.2) for _ in range(30)])).to(gpu),
        "tolerance": 3e-3,
    }
    assert_same(lambda: joint_path_in_collision(curve, robot, world, **options))


def test_shapes_of_links(gpu: torch.device, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    robot, world = robot_with_pieces(tmp_path), MeshWorld(device=gpu)
    fill(world, rng, 4)
    paths = motions(robot, rng, 40).to(gpu)
    assert_same(lambda: joint_path_in_collision(paths, robot, world, shapes="exact"))
    assert_same(lambda: configuration_in_collision(paths, robot, world, shapes="exact"))


def test_lanes_end_once_another_one_has_a_hit(gpu: torch.device) -> None:
    """Without looking at any body, of which they would write the ball."""
    rng = np.random.default_rng(4)
    robot, world = load_panda(), MeshWorld(device=gpu)
    fill(world, rng, 3)
    paths = motions(robot, rng, 8).to(gpu)
    balls: list[Tensor] = []
    scratch = PathOperands.scratch

    def kept_scratch(self: PathOperands, rows: tuple[int, ...], size: int) -> tuple[Tensor, Tensor]:
        made = scratch(self, rows, size)
        balls.append(made[1].fill_(torch.nan))
        return made

    def after_a_hit(*arguments: Any, **options: Any) -> None:
        arguments[-1].fill_(True)
        launch(*arguments, **options)

    def check() -> Tensor:
        return joint_path_in_collision(paths, robot, world)

    with patch.object(PathOperands, "scratch", kept_scratch):
        shared_by(32, check)
        with patch.object(path_operators, "launch", after_a_hit):
            assert shared_by(32, check).all()
    of_those_that_look, of_those_that_know = balls
    assert not of_those_that_look.isnan().all()
    assert of_those_that_know.isnan().all()


def test_few_items_are_shared_by_many_threads(gpu: torch.device) -> None:
    """A GPU of one multiprocessor holds 512 threads of these kernels at once."""
    robot, world = load_panda(), MeshWorld(device=gpu)
    rows: list[tuple[int, ...]] = []
    scratch = PathOperands.scratch

    def seen(self: PathOperands, dim: tuple[int, ...], size: int) -> tuple[Tensor, Tensor]:
        rows.append(tuple(dim))
        return scratch(self, dim, size)

    with (
        patch.object(path_operators, "n_multiprocessors", lambda _: 1),
        patch.object(PathOperands, "scratch", seen),
    ):
        for n in (1, 16, 17, 200, 300):
            joints = torch.zeros(n, 2, robot.n_joints, device=gpu)
            joint_path_in_collision(joints, robot, world)
            configuration_in_collision(joints[:, :1], robot, world)
    assert rows[::2] == rows[1::2]
    assert rows[::2] == [(1, 1, 32), (16, 1, 32), (17, 1, 16), (200, 1, 2), (300, 1, 1)]
