"""Plans among obstacles that move: a path waits, or goes round, and is proven in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.planning.timing import TimedPaths
from warp_collision.poses import poses_between
from warp_collision.robot import (
    JointCurve,
    RobotSpheres,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.world import MeshWorld

_WAITS = 100  # that are tried, from 0 to the time of the last poses
_MOVES = 1.0e-6  # by which a pose changes that counts as motion


class Traffic(NamedTuple):
    """Where obstacles of a world of one env are over time.

    Attributes:
        times: (k,) float64 [s], from 0 on. After the last one obstacles rest.
        poses: (k, n_obstacles, 7), as of the checks.
        movers: names of the obstacles that move.
    """

    times: Tensor
    poses: Tensor
    movers: tuple[str, ...]

    @classmethod
    def of(cls, times: Any, poses: Any, world: MeshWorld) -> Traffic:
        """Reads what a caller gave.

        Raises:
            TypeError, ValueError: another type, shape or device; times that do not begin at 0 and
                grow; more than one env.
        """
        if world.n_envs != 1:
            raise ValueError(f"times must be of a world of one env, got {world.n_envs} envs")
        for name, value in (("times", times), ("poses", poses)):
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
            validate.require_finite(name, value)
        count = len(world.names(0))
        if times.ndim != 1 or len(times) < 2:
            raise ValueError(f"times must have shape (k,), k at least 2, got {tuple(times.shape)}")
        if poses.shape != (len(times), count, 7):
            raise ValueError(
                f"poses must have shape {(len(times), count, 7)}, (times, obstacles, 7), got "
                f"{tuple(poses.shape)}"
            )
        validate.require_device("poses", poses, world.device)
        times = times.detach().cpu().double()
        if times[0] != 0.0 or not bool((times.diff() > 0.0).all()):
            raise ValueError(f"times must begin at 0 and grow, got {times.tolist()[:5]}")
        poses = poses.detach()
        moves = (poses - poses[:1]).abs().amax((0, 2)) > _MOVES
        names = world.names(0)
        return cls(times, poses, tuple(names[i] for i in torch.nonzero(moves)[:, 0].tolist()))

    def at(self, times: Tensor) -> Tensor:
        """Poses (m, n_obstacles, 7) at times (m,)."""
        return poses_between(self.times, self.poses, times)


def soonest(
    motions: TimedPaths,
    problem: Tensor,
    traffic: Traffic,
    robot: RobotSpheres,
    world: MeshWorld,
    options: Callable[[int], dict[str, Any]],
    tolerance: float,
    shapes: Literal["spheres", "exact"],
) -> tuple[TimedPaths, Tensor]:
    """The curve of each problem that arrives first, each after a wait at its start.

    Args:
        motions: curves without obstacles that move.
        problem: (n,) int64, the problem of each; all of 0, 1, ... are there.
        traffic: the obstacles.
        robot: the robot.
        world: the obstacles.
        options: of the checks of a problem.
        tolerance: of the checks [m].
        shapes: of the checks.

    Returns:
        Curves of all problems, `free` where one is proven in time, and which rows they were.
    """
    n, best = int(problem.max()) + 1, {}
    waits = np.linspace(0.0, float(traffic.times[-1]), _WAITS + 1)
    for row, owner in enumerate(problem.tolist()):
        if not bool(motions.free[row]):
            continue
        for wait in waits.tolist():
            arrival = wait + float(motions.duration[row])
            if owner in best and arrival >= best[owner][0]:
                break
            curve = _waiting(motions.curve[row], wait).with_knots(traffic.times)
            poses = traffic.at(curve.times[0])
            given = {"tolerance": tolerance, "poses": poses, "shapes": shapes, **options(owner)}
            hits = joint_path_in_collision(curve, robot, world, **given)
            if not hits.any():
                best[owner] = arrival, row, curve
                break
    first = [int(torch.nonzero(problem == k)[0]) for k in range(n)]
    rows = torch.tensor([best[k][1] if k in best else first[k] for k in range(n)])
    found = motions.of(rows)
    curves = [best[k][2] if k in best else motions.curve[first[k]] for k in range(n)]
    free = torch.tensor([k in best for k in range(n)], device=found.free.device)
    lower = torch.full((2, n), torch.nan, device=free.device)
    for k, curve in enumerate(curves):
        given = {"poses": traffic.at(curve.times[0]), "tolerance": tolerance, **options(k)}
        clearance = joint_path_clearance(curve, robot, world, **given)
        lower[0, k], lower[1, k] = clearance.world_lower.amin(), clearance.self_lower.amin()
    lower = torch.where(free, lower.clamp(min=0.0), lower)
    pieces = [(c.times[0].numpy(), c.coefficients[0].numpy()) for c in curves]
    joined = JointCurve.from_pieces(pieces)
    found = found._replace(curve=joined, free=free, duration=joined.duration)
    clearances = {"world_clearance": lower[0], "self_clearance": lower[1]}
    return found._replace(clearance=lower.amin(0), **clearances), rows


def both(first: TimedPaths, second: TimedPaths) -> TimedPaths:
    """Two batches of curves, one after the other."""
    pieces = [
        (times, coefficients)
        for curve in (first.curve, second.curve)
        for times, coefficients in zip(curve.times.numpy(), curve.coefficients.numpy(), strict=True)
    ]
    values = (torch.cat(each) for each in zip(first[1:], second[1:], strict=True))
    return TimedPaths(JointCurve.from_pieces(pieces), *values)


def _waiting(curve: JointCurve, wait: float) -> JointCurve:
    """The curve of one row after a wait [s] at its start."""
    if wait == 0.0:
        return curve
    still = curve.coefficients[:, :1, :1].expand(-1, 1, curve.degree + 1, -1)
    times = torch.cat((curve.times[:, :1], curve.times + wait), dim=1)
    return JointCurve(times, torch.cat((still, curve.coefficients), dim=1))
