"""Labels of joint paths, in launches of a bounded number of segments.

A segment is checked by itself, so that a path has the same bits whatever it is launched with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import is_gpu
from warp_collision.robot import (
    JointPathClearance,
    RobotSpheres,
    SelfCollisionPairs,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.robot.checks.joint_path_cost import waypoint_clearance
from warp_collision.robot.model.interpolation import cut, run_acceleration_bound
from warp_collision.world import MeshWorld

MAX_SEGMENTS, MAX_GPU_SEGMENTS = 4_096, 1 << 17  # of a launch
_PARTS = 32  # of the first segment that is not free, in which the first contact is looked for
_MAX_DEVIATION = 1e-3  # m, of the chords that cost from the arcs
_MOST_PARTS = 1_023  # of a segment that costs
_NEAREST = ("clearance", "self_clearance", "depth", "position", "link", "obstacle", "with_itself")

Labels = dict[str, np.ndarray]


class RobotChecks(NamedTuple):
    """What is asked of joint paths.

    Attributes:
        tolerance: [m], see `joint_path_in_collision`.
        activation_distance: [m], of the cost.
        self_collision: whether the robot is checked with itself, or the pairs to check.
        ignore: pairs of a link and an obstacle that may touch, where there is such an obstacle.
    """

    tolerance: float = 1e-3
    activation_distance: float = 0.02
    self_collision: bool | SelfCollisionPairs = True
    ignore: tuple[tuple[str, str], ...] = ()


class _Paths(NamedTuple):
    """Paths as segments (n, 2, n_joints), path after path; a single waypoint is a segment at rest.

    Attributes:
        segments: on the device.
        starts: (n_paths + 1,) int64, where the segments of each path begin.
        env_index: (n_paths,) int32 on the device.
        base_pose: (n_paths, 7) or None.
    """

    segments: Tensor
    starts: np.ndarray
    env_index: Tensor
    base_pose: Tensor | None

    @classmethod
    def of(
        cls, paths: Sequence[np.ndarray], envs: Sequence[int], bases: Any, device: torch.device
    ) -> _Paths:
        pairs = [
            np.stack((path[:-1], path[1:]), 1) if len(path) > 1 else path[None].repeat(2, 1)
            for path in paths
        ]
        starts = np.cumsum([0, *map(len, pairs)])
        segments = torch.from_numpy(np.concatenate(pairs)).to(device)
        base = None if bases is None else torch.from_numpy(np.stack(bases)).to(device)
        return cls(segments, starts, torch.tensor(envs, dtype=torch.int32, device=device), base)

    @property
    def owner(self) -> Tensor:
        """(n_segments,) the path of each segment."""
        counts = torch.from_numpy(np.diff(self.starts)).to(self.env_index.device)
        return torch.repeat_interleave(counts)

    @property
    def most(self) -> int:
        """Most segments of a launch."""
        return MAX_GPU_SEGMENTS if is_gpu(self.segments.device) else MAX_SEGMENTS

    def placed(self, rows: Tensor) -> dict[str, Any]:
        """The arguments of a check that place its rows, which are of paths (n,)."""
        base = None if self.base_pose is None else self.base_pose[rows]
        return {"env_index": self.env_index[rows], "base_pose": base}


def label_joint_paths(
    paths: Sequence[np.ndarray],
    robot: RobotSpheres,
    world: MeshWorld,
    checks: RobotChecks,
    outputs: Sequence[str],
    envs: Sequence[int],
    bases: Sequence[np.ndarray] | None = None,
) -> Labels:
    """Labels of joint paths, arrays (n_paths,) by name; see `PathLabeler`.

    Args:
        paths: (horizon, n_joints) float32 each, finite.
        robot: the robot.
        world: the obstacles.
        checks: the options.
        outputs: which labels.
        envs: the env of each path.
        bases: (7,) of the root link, one for each path; the origin if None.
    """
    given = _Paths.of(paths, envs, bases, world.device)
    options: dict[str, Any] = {
        "tolerance": checks.tolerance,
        "self_collision": checks.self_collision,
        "ignore": [pair for pair in checks.ignore if pair[1] in world],
    }
    owner = given.owner
    blocked = np.zeros(len(given.segments), dtype=bool)
    for piece in _pieces(len(blocked), given.most):
        motion = given.segments[piece]
        answer = joint_path_in_collision(
            motion, robot, world, **options, **given.placed(owner[piece])
        )
        blocked[piece] = answer[:, 0].cpu().numpy()
    labels: Labels = {"free": ~np.logical_or.reduceat(blocked, given.starts[:-1])}
    if "first_contact" in outputs:
        labels["first_contact"] = _first_contact(given, blocked, robot, world, options)
    if any(name in outputs for name in _NEAREST):
        labels |= _nearest(given, owner, robot, world, options)
    if "cost" in outputs:
        labels["cost"] = _cost(paths, given, robot, world, checks, options["ignore"])
    if "waypoint_clearance" in outputs:
        labels["waypoint_clearance"] = _at_waypoints(paths, given, robot, world, options["ignore"])
    return labels


def _pieces(count: int, most: int) -> Iterator[slice]:
    return (slice(begin, min(begin + most, count)) for begin in range(0, count, most))


def _first_contact(
    given: _Paths,
    blocked: np.ndarray,
    robot: RobotSpheres,
    world: MeshWorld,
    options: dict[str, Any],
) -> np.ndarray:
    """Where each path is no longer proven free, in waypoints; NaN where all of it is."""
    found = np.full(len(given.starts) - 1, np.nan, dtype=np.float32)
    hits = np.flatnonzero(blocked)
    segment = np.append(hits, 0)[np.searchsorted(hits, given.starts[:-1])]
    rows = np.flatnonzero(np.logical_or.reduceat(blocked, given.starts[:-1]))
    for piece in _pieces(len(rows), given.most // _PARTS):
        row = rows[piece]
        fine = cut(given.segments[torch.from_numpy(segment[row])], _PARTS).joints
        answer = joint_path_in_collision(
            fine, robot, world, **options, **given.placed(torch.from_numpy(row))
        )
        # Parts may be proven where their whole was not: then it is the beginning of the whole.
        first = answer.cpu().numpy().argmax(1) / _PARTS
        found[row] = segment[row] - given.starts[row] + first
    return found


def _nearest(
    given: _Paths,
    owner: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    options: dict[str, Any],
) -> Labels:
    """Certified clearances, and the two bodies that come nearest to each other.

    These are a link and an obstacle, unless links touch each other and are deeper.
    """
    parts = [
        joint_path_clearance(
            given.segments[piece], robot, world, **options, **given.placed(owner[piece])
        )
        for piece in _pieces(len(given.segments), given.most)
    ]
    columns: Any = (torch.cat(column)[:, 0].cpu().numpy() for column in zip(*parts, strict=True))
    found: Any = JointPathClearance(*columns)  # of arrays
    begins, links = given.starts[:-1], robot.sphere_links
    names = [world.names(env) for env in range(world.n_envs)]
    lower = np.minimum.reduceat(found.lower, begins)
    self_lower = np.minimum.reduceat(found.self_lower, begins)
    count = len(begins)
    labels: Labels = {
        "clearance": lower,
        "self_clearance": self_lower,
        "depth": np.zeros(count, dtype=np.float32),
        "position": np.full(count, np.nan, dtype=np.float32),
        "link": np.full(count, None, dtype=object),
        "obstacle": np.full(count, None, dtype=object),
        "with_itself": np.zeros(count, dtype=bool),
    }
    envs = given.env_index.tolist()
    for row, (begin, end) in enumerate(zip(begins, given.starts[1:], strict=True)):
        place = begin + int(found.upper[begin:end].argmin())
        own = begin + int(found.self_upper[begin:end].argmin())
        itself = found.self_upper[own] < min(0.0, found.upper[place])
        if itself:
            place, upper, at = own, found.self_upper[own], found.self_position[own]
            sphere, other = found.self_sphere[own], found.self_other[own]
        else:
            upper, at = found.upper[place], found.position[place]
            sphere, other = found.sphere[place], found.obstacle[place]
        if sphere < 0 or other < 0:
            continue
        labels["with_itself"][row] = itself
        labels["depth"][row] = max(0.0, -float(upper))
        labels["position"][row] = place - begin + float(at)
        labels["link"][row] = links[sphere]
        labels["obstacle"][row] = links[other] if itself else names[envs[row]][other]
    return labels


def _cost(
    paths: Sequence[np.ndarray],
    given: _Paths,
    robot: RobotSpheres,
    world: MeshWorld,
    checks: RobotChecks,
    ignore: list[tuple[str, str]],
) -> np.ndarray:
    """`joint_path_cost` of each path, the sum over its waypoints.

    The number of parts of a segment is that of the path alone, rounded up to one less than a power
    of 2, so that few launches have paths of all kinds.
    """
    bound = np.concatenate(
        [
            run_acceleration_bound(given.segments[piece], robot.tables(world.device))[:, 0]
            .cpu()
            .numpy()
            for piece in _pieces(len(given.segments), given.most)
        ]
    )
    parts = np.sqrt(np.maximum.reduceat(bound, given.starts[:-1]) / (8.0 * _MAX_DEVIATION))
    exponents = np.ceil(np.log2(np.clip(parts * (1.0 + 1e-5), 1.0, _MOST_PARTS) + 1.0))
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (path, exponent) in enumerate(zip(paths, exponents, strict=True)):
        groups.setdefault((len(path), 2 ** int(exponent) - 1), []).append(row)
    total = np.zeros(len(paths), dtype=np.float32)
    for (horizon, substeps), rows in groups.items():
        most = max(1, given.most // (max(1, horizon - 1) * substeps))
        for piece in _pieces(len(rows), most):
            row = rows[piece]
            joints = torch.from_numpy(np.stack([paths[index] for index in row])).to(world.device)
            cost = joint_path_cost(
                joints,
                robot,
                world,
                activation_distance=checks.activation_distance,
                substeps=substeps,
                ignore=ignore,
                **given.placed(torch.tensor(row)),
            )
            total[row] = [math.fsum(costs) for costs in cost.tolist()]
    return total


def _at_waypoints(
    paths: Sequence[np.ndarray],
    given: _Paths,
    robot: RobotSpheres,
    world: MeshWorld,
    ignore: list[tuple[str, str]],
) -> np.ndarray:
    """Clearance of the robot to the obstacles at each waypoint, an array for each path."""
    counts = [len(path) for path in paths]
    owner = torch.repeat_interleave(torch.tensor(counts))
    joints = torch.from_numpy(np.concatenate(paths)).to(world.device)[:, None]
    values = np.concatenate(
        [
            waypoint_clearance(
                joints[piece], robot, world, ignore=ignore, **given.placed(owner[piece])
            )
            .clearance.amin((1, 2))
            .cpu()
            .numpy()
            for piece in _pieces(len(joints), given.most)
        ]
    )
    found = np.empty(len(paths), dtype=object)
    for row, part in enumerate(np.split(values, np.cumsum(counts)[:-1])):
        found[row] = part
    return found
