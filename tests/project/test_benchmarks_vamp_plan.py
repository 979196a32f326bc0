"""The benchmark of VAMP's planner: scenes are passed on whole, and its paths are judged."""

import sys
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pinocchio", reason="the judge needs pin and coal, of the extra 'dev'")
pytest.importorskip("coal", reason="the judge needs pin and coal, of the extra 'dev'")

from benchmarks import vamp, vamp_plan
from benchmarks.__main__ import main
from benchmarks.plan.judge import Judge
from benchmarks.plan.problems import Problem
from benchmarks.plan.run import judged
from benchmarks.plan.scene import Obstacle, Scene

from warp_collision.examples import load_panda, load_problem

ASSETS = Path(str(files("warp_collision.assets")))


class Environment:
    def __init__(self):
        self.cuboids, self.capsules, self.spheres = [], [], []
        self.add_cuboid, self.add_capsule = self.cuboids.append, self.capsules.append
        self.add_sphere = self.spheres.append


def stand_in(is_free: bool = True) -> SimpleNamespace:
    """VAMP's interface; its planner takes the straight way."""

    def straight(start, goal, environment, settings, sampler):
        assert len(environment.cuboids) == 8
        return SimpleNamespace(solved=True, path=np.stack((start, goal)), iterations=3)

    def simplify(path, environment, settings, sampler):
        return SimpleNamespace(path=SimpleNamespace(numpy=lambda: path))

    robot = SimpleNamespace(
        validate=lambda end, environment: is_free, halton=lambda: None, simplify=simplify
    )
    return SimpleNamespace(
        Environment=Environment,
        Cuboid=lambda *given: given,
        Cylinder=lambda *given: given,
        Sphere=lambda *given: given,
        configure_robot_and_planner_with_kwargs=lambda *names: (robot, straight, None, None),
    )


@pytest.fixture
def problem() -> Problem:
    cage = load_problem("cage_2")
    ends = np.array(cage.start), np.array(cage.goal)
    return Problem("panda", "cage", 2, ASSETS / "problems" / "cage_2.yaml", *ends)


def test_a_colliding_path_is_counted(problem):
    scene = Scene.from_file(problem.scene)
    planned = vamp_plan.plan(stand_in(), problem, scene)
    judge = Judge(ASSETS / "panda" / "panda.urdf", None, load_panda().joint_names)
    row = {"type": "cage", "index": 2, "planner": "VAMP"} | judged(planned, problem, scene, judge)
    cells = [cell.strip() for cell in vamp_plan.text([row]).splitlines()[2].split("|")]
    assert cells[1:6] == ["VAMP", "1", "1", "0", "1"]
    assert float(cells[6].removesuffix(" mm")) > 28.0


def test_ends_that_collide(problem):
    planned = vamp_plan.plan(stand_in(is_free=False), problem, Scene.from_file(problem.scene))
    assert planned.path is None
    assert "an end collides" in planned.reason


def test_what_stands_for_cylinders():
    post = Obstacle("post", "cylinder", (0.4, 0.1), np.eye(3), np.array([0.5, 0.0, 0.2]))
    ball = Obstacle("ball", "sphere", (0.3,), np.eye(3), np.zeros(3))
    shelf = vamp.environment_of(stand_in(), Scene([post, ball]))
    assert shelf.capsules == [([0.5, 0.0, 0.2], [0.0, 0.0, 0.0], 0.1, 0.4)]
    assert shelf.spheres == [([0.0, 0.0, 0.0], 0.3)]
    box = vamp.environment_of(stand_in(), Scene([post]), capsules=False)
    assert box.cuboids == [([0.5, 0.0, 0.2], [0.0, 0.0, 0.0], [0.1, 0.1, 0.2])]


def test_without_vamp(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vamp", None)
    assert main(["vamp-plan"]) == 2
    assert "pip install vamp-planner" in capsys.readouterr().err
