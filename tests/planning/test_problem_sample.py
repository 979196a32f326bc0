"""Real planning problems, solved, and judged by what shares no code with the library."""

from functools import cache

import numpy as np
import pytest
import torch

pytest.importorskip("pinocchio", reason="the judge needs pin and coal, of the extra 'dev'")
pytest.importorskip("coal", reason="the judge needs pin and coal, of the extra 'dev'")

from path_judge import STEPS, Judge, Judgement, Scene
from problem_sample import ASSETS, PROBLEMS, QUICK, ends_of, obstacles_of, world_of
from warp_collision import MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths


@cache
def judge() -> Judge:
    """All pairs of links count but those that a joint connects, as for the robot of the tests."""
    return Judge(ASSETS / "panda" / "panda.urdf", None, load_panda().joint_names)


def judgement(name: str, path: torch.Tensor) -> Judgement:
    """What the judge says of a path (horizon, 7), which must be from start to goal."""
    start, goal = ends_of(name)
    torch.testing.assert_close(path[[0, -1]], torch.cat((start, goal)), rtol=0, atol=1e-5)
    limits = judge().limits
    assert (path.double().numpy() >= limits[:, 0] - 1e-5).all()
    assert (path.double().numpy() <= limits[:, 1] + 1e-5).all()
    return judge().judge(path.numpy(), Scene.from_mapping(PROBLEMS[name]))


@pytest.mark.slow
def test_the_problems_are_problems() -> None:
    """Starts and goals are free for the judge; most straight lines between them are not."""
    assert len(PROBLEMS) == 56
    free = []
    for name in PROBLEMS:
        scene, ends = Scene.from_mapping(PROBLEMS[name]), torch.cat(ends_of(name)).numpy()
        for end in ends:
            said = judge().judge(end[None], scene)
            assert said.free, name
            assert said.clearance > 1e-4
        # Samples 16 mm apart find that most are not.
        free.append(judge().judge(ends, scene, STEPS[:1]).free)
    assert np.mean(free) < 0.2


@pytest.mark.slow
def test_problems_of_a_batch_are_solved(device: torch.device) -> None:
    """Some sets at once, each problem in an env of its own."""
    world = world_of(*QUICK, device=device)
    index = torch.arange(len(QUICK), dtype=torch.int32, device=device)
    start, goal = (end.to(device) for end in ends_of(*QUICK))
    generator = torch.Generator().manual_seed(0)
    found = optimize_paths(start, goal, load_panda(), world, env_index=index, generator=generator)
    assert found.free.all()
    for name, path, clearance in zip(
        QUICK, found.joints.cpu(), found.clearance.tolist(), strict=True
    ):
        said = judgement(name, path)
        assert said.free, name
        assert clearance <= said.clearance + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_solved(name: str) -> None:
    world = MeshWorld.from_mapping(obstacles_of(name), device="cpu")
    generator = torch.Generator().manual_seed(0)
    found = optimize_paths(*ends_of(name), load_panda(), world, generator=generator)
    assert found.free.all()
    said = judgement(name, found.joints[0])
    assert said.free
    assert found.clearance.item() <= said.clearance + 1e-4
