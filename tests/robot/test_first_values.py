"""Joint values in degrees are noticed in the first calls."""

import warnings
from pathlib import Path

import pytest
import torch

from warp_collision import (
    MeshWorld,
    RobotSpheres,
    UnitsWarning,
    configuration_in_collision,
    joint_path_cost,
)
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

DEGREES = [0.0, -45.0, 0.0, -120.0, 0.0, 90.0, 45.0]
WHEEL = """<robot name="cart"><link name="base"/>
<link name="wheel"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
<joint name="axle" type="continuous"><parent link="base"/><child link="wheel"/>
<origin xyz="0.5 0 0"/><axis xyz="0 0 1"/></joint></robot>
"""


def test_degrees_are_named_once():
    robot, world = load_panda(), MeshWorld(device="cpu")
    joints = torch.tensor([DEGREES])
    message = r"got -45 of panda_joint2, whose limits are -1\.833 to 1\.833: .* torch\.deg2rad"
    with pytest.warns(UnitsWarning, match=message):
        configuration_in_collision(joints, robot, world)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        configuration_in_collision(joints, robot, world)
        configuration_in_collision(torch.deg2rad(joints), load_panda(), world)


def test_paths_and_later_calls_are_looked_at():
    robot, world = load_panda(), MeshWorld(device="cpu")
    for _ in range(10):
        configuration_in_collision(torch.zeros(1, 7), robot, world)
    with pytest.warns(UnitsWarning, match="panda_joint4"):
        joint_path_cost(torch.tensor([[[0.0] * 7, [0, 0, 0, -120.0, 0, 0, 0]]]), robot, world)


@pytest.mark.parametrize("module", ["torch.utils._contextlib", "torch._dynamo.eval_frame"])
def test_a_plan_in_degrees_is_named_where_it_is_asked_for(module):
    """Not in torch, whose `no_grad` is around the planner, and more once its compiler has run."""
    around = {"__name__": module}
    exec("def call(function, *arguments):\n    return function(*arguments)", around)
    joints, world = torch.tensor([DEGREES]), MeshWorld(device="cpu")
    with pytest.warns(UnitsWarning, match="got -45 of panda_joint2") as caught:
        with pytest.raises(ValueError, match="goal must be free and within joint limits"):
            around["call"](optimize_paths, torch.deg2rad(joints), joints, load_panda(), world)
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}


def test_what_cannot_be_degrees(tmp_path):
    """Wheels turn without end; values of no joint, as NaN or 1e8, are no degrees."""
    (tmp_path / "cart.urdf").write_text(WHEEL)
    world = MeshWorld(device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cart = RobotSpheres(tmp_path / "cart.urdf")
        configuration_in_collision(torch.tensor([[90.0]]), cart, world)
        for value in (float("nan"), float("inf"), 1e8):
            configuration_in_collision(torch.full((1, 7), value), load_panda(), world)
