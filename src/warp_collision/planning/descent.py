"""Batched gradient descent on the inner waypoints of joint paths, with a smoothness metric."""

from __future__ import annotations

import torch
from torch import Tensor

LEARNING_RATE = 0.03
CHECK_EVERY = 10  # iterations between checks whether paths are free

# Adam's decay of the mean and of the square of gradients (Kingma and Ba, 2015).
_MEAN, _SQUARE, _SMALL = 0.9, 0.99, 1.0e-8


class SmoothMetric:
    """Coordinates of paths with fixed ends in which the smoothness cost is the squared norm.

    Half the squared velocity of `SmoothnessTerm` is `x^T A x / 2` in the offsets x of the inner
    waypoints from the straight line. With `A = L L^T` a path has the coordinates `z = L^T x`. The
    gradient by z is the preconditioned gradient by x: a step along it changes the path smoothly.

    Args:
        horizon: number of waypoints, at least 3.
        device: of the paths.
    """

    def __init__(self, horizon: int, device: torch.device):
        inner = horizon - 2
        matrix = 2.0 * torch.eye(inner, dtype=torch.float64)
        matrix -= torch.diag(torch.ones(inner - 1, dtype=torch.float64), 1)
        matrix -= torch.diag(torch.ones(inner - 1, dtype=torch.float64), -1)
        factor = torch.linalg.cholesky((horizon - 1) * matrix)
        self._whiten = factor.mT.float().to(device)
        self._smooth = torch.linalg.inv(factor).mT.float().contiguous().to(device)

    def whiten(self, offsets: Tensor) -> Tensor:
        """Coordinates (..., horizon - 2, n_joints) of offsets of the same shape."""
        return self._whiten @ offsets

    def smooth(self, coordinates: Tensor) -> Tensor:
        """Offsets from coordinates."""
        return self._smooth @ coordinates

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Gradient by the coordinates of a gradient by the inner waypoints."""
        return self._smooth.mT @ gradient


def straight_lines(start: Tensor, goal: Tensor, horizon: int) -> Tensor:
    """(batch, horizon, n_joints) from starts (batch, n_joints) to goals, evenly; ends are exact."""
    s = torch.linspace(0.0, 1.0, horizon, device=start.device)[:, None]
    lines = torch.lerp(start[:, None], goal[:, None], s)
    lines[:, -1] = goal
    return lines


class PathDescent:
    """Adam in the coordinates of a `SmoothMetric`; each row is a path with fixed ends.

    Args:
        paths: (rows, horizon, n_joints), horizon at least 3.
        metric: of the same horizon.
        learning_rate: step size of each coordinate.
    """

    def __init__(self, paths: Tensor, metric: SmoothMetric, learning_rate: float):
        self.metric, self.learning_rate = metric, learning_rate
        self._lines = straight_lines(paths[:, 0], paths[:, -1], paths.shape[1])
        self._z = metric.whiten(paths[:, 1:-1] - self._lines[:, 1:-1])
        self._mean, self._square = torch.zeros_like(self._z), torch.zeros_like(self._z)
        self._steps = 0

    def paths(self) -> Tensor:
        """The current paths (rows, horizon, n_joints)."""
        paths = self._lines.clone()
        paths[:, 1:-1] += self.metric.smooth(self._z)
        return paths

    def step(self, gradient: Tensor) -> None:
        """One step of Adam, from the gradient by the paths (rows, horizon, n_joints)."""
        self._steps += 1
        gradient = self.metric.pull_back(gradient[:, 1:-1])
        self._mean.lerp_(gradient, 1.0 - _MEAN)
        self._square.mul_(_SQUARE).addcmul_(gradient, gradient, value=1.0 - _SQUARE)
        rate = (1.0 - _SQUARE**self._steps) ** 0.5 / (1.0 - _MEAN**self._steps)
        scale = self._square.sqrt().add_(_SMALL)
        self._z.addcdiv_(self._mean, scale, value=-self.learning_rate * rate)
