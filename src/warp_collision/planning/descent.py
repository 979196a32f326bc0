"""Batched gradient descent on the inner waypoints of joint paths, with a smoothness metric."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.kernels import gradient_step as kernels
from warp_collision.launching.launch import launch


def straight_lines(start: Tensor, goal: Tensor, horizon: int) -> Tensor:
    """(batch, horizon, n_joints) from starts (batch, n_joints) to goals, evenly; ends are exact."""
    s = torch.linspace(0.0, 1.0, horizon, device=start.device)[:, None]
    lines = torch.lerp(start[:, None], goal[:, None], s)
    lines[:, -1] = goal
    return lines


class PathDescent:
    """Adam in coordinates of paths in which `SmoothnessTerm` is half the squared norm.

    It descends on a cost whose gradient it is given, on `SmoothnessTerm`, and on `JointLimitsTerm`.
    Each row is a path with fixed ends. A path of which a number is not finite stays where it is.

    Args:
        paths: (rows, horizon, n_joints), horizon at least 3.
        limits: (n_joints, 2) of the joints.

    Attributes:
        paths: the current paths, always the same tensor.
        steps: (rows,) int32, how many steps each has made.
    """

    def __init__(self, paths: Tensor, limits: Tensor):
        self.paths, self._limits = paths.clone(memory_format=torch.contiguous_format), limits
        self._steps = paths.new_zeros(paths[:, 0].shape, dtype=torch.int32)
        self.steps = self._steps[:, 0]  # those of all joints are equal
        self._moments = paths.new_zeros((*paths.shape, 2))

    def step(self, gradient: Tensor, cost: Tensor | None = None) -> None:
        """One step, from the gradient by the paths, and a cost (rows,) that has to be finite."""
        launch(
            kernels.descend,
            self._steps.shape,
            gradient,
            cost,
            self._limits,
            self._steps,
            self._moments,
            self.paths,
            device=self.paths.device,
        )
