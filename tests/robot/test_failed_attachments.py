"""An attachment that fails, or is interrupted, leaves the robot as it was or as it becomes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from injected import interrupt_at, memory_for, some
from warp_collision import Cuboid
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres

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


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize(
    ("error", "at"), [(MemoryError, memory_for), (KeyboardInterrupt, interrupt_at)]
)
def test_all_or_nothing(
    name: str, error: type[BaseException], at: Callable[..., memory_for], panda: RobotSpheres
) -> None:
    folder = ("robot/model/robot_spheres.py",) if error is KeyboardInterrupt else ()
    EDITS[name](made(panda))  # a shape is fitted once
    robot = made(panda)
    was = content(robot)
    with at(np.inf, *folder) as counter:
        EDITS[name](robot)
    becomes = content(robot)
    assert was != becomes
    for place in some(counter.count, 9):
        robot = made(panda)
        failure = at(place + (error is KeyboardInterrupt), *folder)
        with pytest.raises(error), failure:
            EDITS[name](robot)
        found = content(robot)
        assert found in (was, becomes), f"{name}, place {place}"
        if found == was:
            EDITS[name](robot)
            assert content(robot) == becomes, f"{name} again, place {place}"
