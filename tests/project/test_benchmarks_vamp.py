"""The benchmark beside VAMP says how to get it, and counts rightly with a stand-in for it."""

import itertools
import re
import sys
import types

import numpy as np
import pytest
import torch
import trimesh
from benchmarks import vamp
from benchmarks.__main__ import main

from path_judge import Scene
from warp_collision import Capsule, Cuboid, MeshWorld, configuration_in_collision
from warp_collision.examples import load_panda


class Environment:
    """Obstacles as the library has them."""

    def __init__(self) -> None:
        self.world = MeshWorld(max_obstacles=32, device="cpu")

    def _add(self, given, geometry) -> None:
        center, angles = given[:2]
        turn = trimesh.transformations.quaternion_from_euler(*angles, axes="sxyz")
        self.world.add(str(len(self.world.names())), geometry, (*center, *turn))

    def add_cuboid(self, cuboid) -> None:
        self._add(cuboid, Cuboid(tuple(2.0 * half for half in cuboid[2])))

    def add_capsule(self, capsule) -> None:
        self._add(capsule, Capsule(*capsule[2:]))


class Path(list):
    """Waypoints; all motions between them have to be free."""

    robot: "Panda"

    def validate(self, environment) -> bool:
        motions = itertools.pairwise(self)
        return all(self.robot.validate_motion(*ends, environment, False) for ends in motions)


class Panda:
    """VAMP's functions of a robot, by the library; `is_blind` calls everything free."""

    def __init__(self, is_blind: bool) -> None:
        self.is_blind = is_blind
        self.robot = load_panda()
        ignored = [
            (f"panda_{a}", f"panda_{b}") for a, bs in vamp.IGNORED.items() for b in bs.split()
        ]
        self.pairs = self.robot.self_collision_pairs(ignore=ignored)
        self.Path = type("Path", (Path,), {"robot": self})
        self.halton = object

    def validate(self, row, environment) -> bool:
        return self.is_blind or bool(self._are_free(row[None], environment).all())

    def validate_motion(self, begin, end, environment, check_bounds) -> bool:
        assert not check_bounds
        steps = np.linspace(0.0, 1.0, 9)[1:, None]
        rows = (1.0 - steps) * begin + steps * end
        return self.is_blind or bool(self._are_free(rows, environment).all())

    def _are_free(self, rows, environment) -> torch.Tensor:
        joints = torch.tensor(rows, dtype=torch.float32)
        world = environment.world
        return ~configuration_in_collision(joints, self.robot, world, self_collision=self.pairs)

    def fk(self, row):
        spheres = self.robot(torch.from_numpy(row)).tolist()
        return [
            types.SimpleNamespace(**dict(zip("xyzr", sphere, strict=True))) for sphere in spheres
        ]


def stand_in(is_blind: bool = False) -> types.SimpleNamespace:
    def values(*given):
        return given

    panda = Panda(is_blind)

    def straight(start, goal, environment, settings, sampler):
        path = types.SimpleNamespace(numpy=lambda: np.stack((start, goal)))
        return types.SimpleNamespace(solved=True, path=path, nanoseconds=7e6)

    return types.SimpleNamespace(
        Environment=Environment,
        Cuboid=values,
        Cylinder=values,
        panda=panda,
        configure_robot_and_planner_with_kwargs=lambda robot, name: (panda, straight, None, None),
    )


FEW = ("--scale", "0.012", "--rounds", "1", "--seconds", "0.01", "--only")


def test_without_vamp(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vamp", None)
    assert main(["vamp"]) == 2
    assert "pip install vamp-planner" in capsys.readouterr().err


@pytest.mark.slow
def test_side_by_side(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vamp", stand_in())
    assert main(["vamp", *FEW, "plates"]) == 0
    printed = capsys.readouterr().out
    for question in ("many | conf", "of free motions | conf", "motions of 0.3 rad | motion"):
        assert f"| plates, {question}" in printed
    assert re.search(r"; library: \d+ of \d+ called free, 0 of them wrongly", printed)


@pytest.mark.slow
def test_wrong_answers_are_told(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vamp", stand_in(is_blind=True))
    assert main(["vamp", *FEW, "cage, many"]) == 1
    assert "WrongResultError" in capsys.readouterr().out


def test_first_paths_are_judged(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vamp", stand_in())
    assert main(["vamp", *FEW, "first path"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"library: median .* ms, 1 of 1 solved, 0 of the paths touch", printed)
    assert "(median 7 ms, 95 % 7 ms by its own clock)" in printed
    assert re.search(r"by its own clock\), 1 of 1 solved, 1 of the paths touch, up to \d", printed)


@pytest.mark.parametrize("seed", range(5))
def test_angles_make_the_rotation(seed):
    turn = trimesh.transformations.random_rotation_matrix(np.random.default_rng(seed).random(3))
    angles = vamp.angles_of(turn[:3, :3])
    again = trimesh.transformations.euler_matrix(*angles, axes="sxyz")
    np.testing.assert_allclose(again, turn, atol=1e-12)


def test_scenes():
    for scene, count in (("cage", 8), ("shelf-5", 5), ("shelf-20", 20), ("plates", 8)):
        obstacles = Scene.from_mapping(vamp.mapping_of(scene)).obstacles
        assert len(obstacles) == count
        assert {obstacle.kind for obstacle in obstacles} <= {"box", "capsule"}


def test_truth_of_motions_past_a_plate():
    """The judge and the library have the same scene, spheres and pairs."""
    case = vamp.Case(stand_in(), "shelf-20")
    joints = vamp.random_joints(case, 200)
    centers = case.judge.centers(joints.double().numpy())
    np.testing.assert_allclose(case.robot(joints)[..., :3].numpy(), centers, atol=1e-5)
    least = case.scene.nearest(centers, case.judge.radii).clearance.min(axis=1)
    least = np.minimum(least, case.judge.gaps(centers).min(axis=1))
    assert ((least < 0.0) == case.hits(joints).numpy())[np.abs(least) > 1e-5].all()
    plate = {"cuboid": {"0": {"dims": (0.4, 0.001, 0.4), "pose": (0.55, 0, 0.5, 1, 0, 0, 0)}}}
    begin = np.array([-0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8])
    end = np.array([0.9, *begin[1:]])
    scene, judge = Scene.from_mapping(plate), case.judge.judge
    assert judge(np.stack((begin, end)), scene, vamp.STEPS).clearance < -0.01
    assert judge(np.stack((begin, begin + 1e-3)), scene, vamp.STEPS).clearance > 0.005
