"""An attachment that fails, or is interrupted, leaves the robot as it was or as it becomes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from cases import mostly_slow
from injected import Trial
from warp_collision import Cuboid
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres

WRITERS = ("robot/model",)
JOINTS = torch.tensor(np.random.default_rng(3).uniform(-1.0, 1.0, (5, 7))).float()
EDITS: dict[str, Callable[[RobotSpheres], object]] = {
    "attach": lambda robot: robot.attach("can", "panda_hand", [[0.0, 0.0, 0.12, 0.04]]),
    "attach a shape": lambda robot: robot.attach("tray", "panda_link7", Cuboid((0.2, 0.1, 0.02))),
    "detach": lambda robot: robot.detach("held"),
    "allow": lambda robot: robot.allow("held", "panda_link5", reason="for a test"),
}


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


def made(panda: RobotSpheres) -> RobotSpheres:
    """The robot with one object."""
    for name in panda.attached:
        panda.detach(name)
    vars(panda).update(_allowed=())
    panda.attach("held", "panda_hand", [[0.0, 0.05, 0.1, 0.03], [0.1, 0.0, 0.1, 0.02]])
    return panda


def content(robot: RobotSpheres) -> list[object]:
    pairs = robot.self_collision_pairs()
    spheres = robot.spheres(JOINTS)
    return [
        robot.attached,
        robot.sphere_links,
        spheres.tolist(),
        str(robot),
        str(pairs),
        len(pairs),
    ]


@pytest.mark.parametrize("name", mostly_slow(EDITS, [*EDITS][1::2]))
@pytest.mark.parametrize(
    "most", [3, pytest.param(np.inf, marks=pytest.mark.slow)], ids=["few", "all"]
)
@pytest.mark.parametrize("what", ["memory", "interrupts"])
def test_all_or_nothing(name: str, most: float, what: str, panda: RobotSpheres) -> None:
    trial = Trial(lambda: made(panda), EDITS[name], content, WRITERS)
    getattr(trial, what)(most)
