"""Joint values in degrees, as far as the first calls of a robot tell."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.obstacles.units import warn_of_units
from warp_collision.queries.dispatch import is_plain
from warp_collision.robot.model.kinematic_tree import KinematicTree

_CALLS = 16  # that are looked at: later ones cost nothing
_TURN = 2.0 * math.pi + 1e-5
_MOST_DEGREES = 720.0


class FirstValues:
    """Warns once of joint values that are rather degrees than rad.

    Those are beyond a turn, and beyond the limits of a joint that has some. Values on GPUs are not
    looked at, as that waits for the device, nor those of graphs and transforms.

    Args:
        tree: of the robot.

    Attributes:
        calls_left: how many calls are still looked at.
    """

    def __init__(self, tree: KinematicTree):
        limits = torch.as_tensor(tree.joint_limits, dtype=torch.float64).reshape(-1, 2)
        turns = torch.tensor([unit == "rad" for unit in tree.joint_units], dtype=torch.bool)
        self._low, self._high = limits.unbind(-1)
        self._names = tree.joint_names
        self._limited = turns & limits.isfinite().all(-1)
        self.calls_left = _CALLS

    def look_at(self, joints: Tensor) -> None:
        """Looks at joint values (..., n_joints)."""
        if not is_plain(joints) or joints.device != CPU:
            return
        self.calls_left -= 1
        values = joints.detach()
        sizes = values.abs()
        beyond = (sizes > _TURN) & (sizes <= _MOST_DEGREES) & self._limited
        beyond &= (values < self._low) | (values > self._high)
        if bool(beyond.any()):
            self.calls_left = 0
            place = tuple(beyond.nonzero()[0].tolist())
            joint = place[-1]
            low, high = float(self._low[joint]), float(self._high[joint])
            warn_of_units(
                f"joints must be in rad, got {float(values[place]):.4g} of "
                f"{self._names[joint]}, whose limits are {low:.4g} to {high:.4g}: if these are "
                "degrees, torch.deg2rad converts them"
            )
