"""Pictures and films of curves: pieces are proven as they are, films run in real time."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from warp_collision import Cuboid, MeshWorld
from warp_collision.cli.__main__ import main
from warp_collision.examples import load_panda
from warp_collision.robot import JointCurve, joint_path_in_collision, save_trajectory
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import render
from warp_collision.viewer.path_facts import path_facts

ASSETS = Path(__file__).resolve().parents[2] / "assets"
START = torch.tensor([-0.7, 0.2, 0.0, -1.9, 0.0, 2.0, 0.8])
SIZE = (160, 120)


@pytest.fixture(scope="module")
def panda():
    return load_panda()


@pytest.fixture
def world() -> MeshWorld:
    """A plate in the way of the last third."""
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid((0.6, 0.01, 0.6)), (0.5, 0.25, 0.5, 1, 0, 0, 0))
    return world


def curve(seconds: float) -> JointCurve:
    """A turn by 1.4 rad whose pieces take longer and longer."""
    times = seconds * np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    positions = START.double().repeat(5, 1)
    positions[:, 0] += torch.tensor([0.0, 0.4, 0.8, 1.1, 1.4])
    velocities = torch.zeros_like(positions)
    velocities[1:4, 0] = 2.0 / seconds
    return JointCurve.from_hermite(times, positions, velocities)


def test_what_is_known_of_a_curve_is_of_its_pieces(panda, world):
    given = curve(0.6)
    facts = path_facts(RobotScene(panda, world), given)
    expected = joint_path_in_collision(given, panda, world)[0].numpy()
    assert expected.any()
    assert not expected.all()
    assert (facts.blocked == expected).all()
    assert np.abs(facts.places - [0.0, 0.1, 0.3, 0.6, 1.0]).max() < 1e-12
    assert torch.equal(facts.joints, given.knots(torch.device("cpu"))[0])
    even = given.at(np.linspace(0.0, 0.6, 13))[0].float()
    assert (facts.evenly(13) - even).abs().max() < 1e-6
    middle = given.at([0.5 * (0.06 + 0.18)])[0].float()
    assert (facts.at(1.5) - middle).abs().max() < 1e-6
    where = facts.closest_points(facts.worst(1)[0])
    assert np.isfinite(where).all()


@pytest.mark.parametrize(("seconds", "asked", "frames"), [(0.6, None, 9), (2.0, 0.4, 6)])
def test_films_are_in_real_time(seconds, asked, frames, panda, tmp_path):
    """15 frames a second, as long as the curve takes; unless another length is asked for."""
    file = tmp_path / "it.gif"
    given = curve(seconds)
    options = {"output": file, "size": SIZE, "labels": False}
    render(None, panda, given, **options, **({} if asked is None else {"seconds": asked}))
    with Image.open(file) as film:
        shown = [film.seek(i) or film.info["duration"] for i in range(frames)]
        moving = [np.array(film.seek(i) or film.convert("RGB")) for i in range(frames + 1)]
    assert set(shown) <= {60, 70}
    assert sum(shown) == pytest.approx(1000 * (asked or seconds), abs=10)
    assert all((a != b).any() for a, b in itertools.pairwise(moving))


def test_pictures_of_curves(panda, world):
    both = JointCurve.from_pieces(
        [(c.times[0].numpy(), c.coefficients[0].numpy()) for c in (curve(1.0), curve(2.0))]
    )
    assert render(world, panda, both, size=(300, 200)).shape == (200, 300, 3)
    other = JointCurve.from_waypoints(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="a curve of the robot's 7 joints, got one of 3"):
        render(world, panda, other)


def test_the_command_draws_trajectories(panda, tmp_path, capsys):
    robot, out = ASSETS / "panda" / "panda.urdf", tmp_path / "it.gif"
    save_trajectory(tmp_path / "motion.json", curve(0.24), panda.joint_names)
    (tmp_path / "world.yaml").write_text(
        "cuboid: {far: {dims: [1, 1, 1], pose: [9, 0, 0, 1, 0, 0, 0]}}"
    )
    given = [str(tmp_path / "world.yaml"), str(tmp_path / "motion.json"), "--robot", str(robot)]
    assert main(["render", *given, "-o", str(out), "--size", "160x120"]) == 0
    assert str(out) in capsys.readouterr().out
    with Image.open(out) as film:
        assert film.n_frames >= 4
