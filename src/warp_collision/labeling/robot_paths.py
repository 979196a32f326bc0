"""Labels of joint paths, in launches of a bounded number of segments.

A segment is checked by itself, so that a path has the same bits whatever it is launched with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import is_gpu
from warp_collision.robot import (
    JointCurve,
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
_TURNS = 4  # in which the segments of a path are asked on a CPU
_PARTS = 32  # of the first segment that is not free, in which the first contact is looked for
_MAX_DEVIATION = 1e-3  # m, of the chords that cost from the arcs
_MOST_PARTS = 1_023  # of a segment that costs
_NEAREST = ("clearance", "self_clearance", "depth", "position", "link", "obstacle", "with_itself")

Labels = dict[str, np.ndarray]


class PathChecks(NamedTuple):
    """What is asked of paths.

    Attributes:
        tolerance: [m], see `joint_path_in_collision`; of spheres, of the position of the smallest
            clearance.
        activation_distance: [m], of the cost.
        swept: whether paths of spheres are checked between waypoints.
        self_collision: whether a robot is checked with itself, or the pairs to check.
        ignore: pairs of a link and an obstacle that may touch, where there is such an obstacle.
        shapes: what of a link touches an obstacle, see `configuration_in_collision`.
    """

    tolerance: float
    activation_distance: float
    swept: bool
    self_collision: bool | SelfCollisionPairs
    ignore: tuple[tuple[str, str], ...]
    shapes: Literal["spheres", "exact"] = "spheres"


class JointPaths:
    """Paths of a robot to be labelled.

    They are looked at as segments (n, degree + 1, n_joints), path after path; a single waypoint is
    a segment at rest.

    Args:
        paths: (horizon, n_joints) float32 each, finite; control points (segments * degree + 1,
            n_joints) of curves.
        robot: the robot.
        world: the obstacles.
        checks: the options.
        envs: the env of each path.
        bases: (7,) of the root link, one for each path; the origin if None.
        degree: of the segments.
    """

    def __init__(
        self,
        paths: Sequence[np.ndarray],
        robot: RobotSpheres,
        world: MeshWorld,
        checks: PathChecks,
        envs: Sequence[int],
        bases: Sequence[np.ndarray] | None,
        degree: int = 1,
    ):
        self._paths, self._robot, self._world, self._checks = paths, robot, world, checks
        device, self._degree = world.device, degree
        waypoints = np.array([*map(len, paths)])
        counts = np.maximum((waypoints - 1) // degree, 1)
        # Where the segments of each path begin and end.
        self._ends = np.cumsum(counts)
        self._begins = self._ends - counts
        owner = np.repeat(np.arange(len(paths)), counts)
        last = np.cumsum(waypoints)[owner] - 1
        start = last + 1 - waypoints[owner]
        start += degree * (np.arange(len(owner)) - self._begins[owner])
        rows = np.minimum(start[:, None] + np.arange(degree + 1), last[:, None])
        self._segments = torch.from_numpy(np.concatenate(paths)[rows]).to(device)
        self._owner = torch.from_numpy(owner).to(device)
        self._envs = torch.tensor(envs, dtype=torch.int32, device=device)
        self._bases = None if bases is None else torch.from_numpy(np.stack(bases)).to(device)
        self._ignore = [pair for pair in checks.ignore if pair[1] in world]
        self._options: dict[str, Any] = {
            "tolerance": checks.tolerance,
            "shapes": checks.shapes,
            "self_collision": checks.self_collision,
            "ignore": self._ignore,
        }
        self._most, self._turns = (
            (MAX_GPU_SEGMENTS, 1) if is_gpu(device) else (MAX_SEGMENTS, _TURNS)
        )

    def labels(self, outputs: Sequence[str]) -> Labels:
        """Labels, arrays (n_paths,) by name; see `PathLabeler`."""
        if "first_contact" in outputs:
            blocked = self._blocked(torch.arange(len(self._owner)))
            labels: Labels = {"free": ~np.logical_or.reduceat(blocked, self._begins)}
            labels["first_contact"] = self._first_contact(blocked)
        else:
            labels = {"free": self._free()}
        if any(name in outputs for name in _NEAREST):
            labels |= self._nearest(labels["free"])
        if "cost" in outputs:
            labels["cost"] = self._cost()
        if "waypoint_clearance" in outputs:
            labels["waypoint_clearance"] = self._at_waypoints()
        return labels

    def _placed(self, rows: Tensor) -> dict[str, Any]:
        """The arguments of a check that place its rows, which are of paths (n,)."""
        base = None if self._bases is None else self._bases[rows]
        return {"env_index": self._envs[rows], "base_pose": base}

    def _motions(self, segments: Tensor, parts: int = 1) -> Tensor | JointCurve:
        """Segments (n, degree + 1, n_joints) as motions of a check, each cut into equal parts."""
        if self._degree == 1:
            return segments if parts == 1 else cut(segments, parts).joints
        curve = curve_of(segments, self._degree)
        return curve if parts == 1 else curve.split(parts)

    def _of_segments(self, ask: Callable[..., Any], rows: Tensor) -> list[Any]:
        """The answers of a check of segments, a bounded number at a time."""
        return [
            ask(
                self._motions(self._segments[rows[piece]]),
                self._robot,
                self._world,
                **self._options,
                **self._placed(self._owner[rows[piece]]),
            )
            for piece in _pieces(len(rows), self._most)
        ]

    def _blocked(self, rows: Tensor) -> np.ndarray:
        """Which segments are not proven free."""
        return torch.cat(self._of_segments(joint_path_in_collision, rows))[:, 0].cpu().numpy()

    def _free(self) -> np.ndarray:
        """Which paths are proven free.

        Every fourth segment is checked first, and no others of paths where that is not free. A GPU
        takes all at once.
        """
        free = np.ones(len(self._begins), dtype=bool)
        owner = self._owner.cpu().numpy()
        turn = (np.arange(len(owner)) - self._begins[owner]) % self._turns
        for now in range(self._turns):
            rows = np.flatnonzero((turn == now) & free[owner])
            if len(rows):
                free[owner[rows[self._blocked(torch.from_numpy(rows))]]] = False
        return free

    def _first_contact(self, blocked: np.ndarray) -> np.ndarray:
        """Where each path is no longer proven free, in waypoints; NaN where all of it is."""
        found = np.full(len(self._begins), np.nan, dtype=np.float32)
        hits = np.flatnonzero(blocked)
        segment = np.append(hits, 0)[np.searchsorted(hits, self._begins)]
        rows = np.flatnonzero(np.logical_or.reduceat(blocked, self._begins))
        for piece in _pieces(len(rows), self._most // _PARTS):
            row = rows[piece]
            fine = self._motions(self._segments[torch.from_numpy(segment[row])], _PARTS)
            placed = self._placed(torch.from_numpy(row))
            answer = joint_path_in_collision(
                fine, self._robot, self._world, **self._options, **placed
            )
            # Parts may be proven where their whole was not: then it is the beginning of the whole.
            first = answer.cpu().numpy().argmax(1) / _PARTS
            found[row] = segment[row] - self._begins[row] + first
        return found

    def _nearest(self, free: np.ndarray) -> Labels:
        """Certified clearances, and the two bodies that come nearest to each other.

        These are a link and an obstacle, unless links touch each other and are deeper, or they
        alone keep the path from being free. What is free touches nothing: its clearances are at
        least 0, whatever lower bounds the tolerance leaves.
        """
        rows = torch.arange(len(self._owner))
        parts = zip(*self._of_segments(joint_path_clearance, rows), strict=True)
        columns: Any = (torch.cat(column)[:, 0].cpu().numpy() for column in parts)
        found: Any = JointPathClearance(*columns)  # of arrays
        links, world = self._robot.sphere_links, self._world
        names = [world.names(env) for env in range(world.n_envs)]
        count = len(self._begins)
        least = np.where(free, np.float32(0.0), np.float32(-np.inf))
        clearance = np.minimum.reduceat(found.world_lower, self._begins)
        self_clearance = np.minimum.reduceat(found.self_lower, self._begins)
        by_itself = ~free & (clearance > 0.0) & (self_clearance <= 0.0)
        labels: Labels = {
            "clearance": np.maximum(clearance, least),
            "self_clearance": np.maximum(self_clearance, least),
            "depth": np.zeros(count, dtype=np.float32),
            "position": np.full(count, np.nan, dtype=np.float32),
            "link": np.full(count, None, dtype=object),
            "obstacle": np.full(count, None, dtype=object),
            "with_itself": np.zeros(count, dtype=bool),
        }
        envs = self._envs.tolist()
        for row, (begin, end) in enumerate(zip(self._begins, self._ends, strict=True)):
            place = begin + int(found.world_upper[begin:end].argmin())
            own = begin + int(found.self_upper[begin:end].argmin())
            deeper = found.self_upper[own] < min(0.0, found.world_upper[place])
            itself = bool(by_itself[row]) or deeper
            if itself:
                place, upper, at = own, found.self_upper[own], found.self_position[own]
                sphere, other = found.self_sphere[own], found.self_other[own]
            else:
                upper, at = found.world_upper[place], found.world_position[place]
                sphere, other = found.sphere[place], found.obstacle[place]
            if sphere < 0 or other < 0:
                continue
            labels["with_itself"][row] = itself
            labels["depth"][row] = max(0.0, -float(upper))
            labels["position"][row] = place - begin + float(at)
            labels["link"][row] = links[sphere]
            labels["obstacle"][row] = links[other] if itself else names[envs[row]][other]
        return labels

    def _cost(self) -> np.ndarray:
        """`joint_path_cost` of each path, the sum over its waypoints.

        The number of parts of a segment is that of the path alone, rounded up to one less than a
        power of 2, so that few launches have paths of all kinds.
        """
        tables = self._robot.layout.tables(self._world.device)
        bounds = [
            run_acceleration_bound(self._segments[piece].contiguous(), tables, self._degree)
            for piece in _pieces(len(self._segments), self._most)
        ]
        bound = torch.cat(bounds)[:, 0].cpu().numpy()
        parts = np.sqrt(np.maximum.reduceat(bound, self._begins) / (8.0 * _MAX_DEVIATION))
        exponents = np.ceil(np.log2(np.clip(parts * (1.0 + 1e-5), 1.0, _MOST_PARTS) + 1.0))
        groups: dict[tuple[int, int], list[int]] = {}
        for row, (path, exponent) in enumerate(zip(self._paths, exponents, strict=True)):
            groups.setdefault((len(path), 2 ** int(exponent) - 1), []).append(row)
        total = np.zeros(len(self._paths), dtype=np.float32)
        for (horizon, substeps), rows in groups.items():
            most = max(1, self._most // (max(1, horizon - 1) // self._degree * substeps))
            for piece in _pieces(len(rows), most):
                row = rows[piece]
                joints: Any = torch.from_numpy(np.stack([self._paths[index] for index in row]))
                joints = joints.to(self._world.device)
                cost = joint_path_cost(
                    joints if self._degree == 1 else curve_of(joints, self._degree),
                    self._robot,
                    self._world,
                    activation_distance=self._checks.activation_distance,
                    substeps=substeps,
                    ignore=self._ignore,
                    **self._placed(torch.tensor(row)),
                )
                total[row] = [math.fsum(costs) for costs in cost.tolist()]
        return total

    def _at_waypoints(self) -> np.ndarray:
        """Clearance of the robot to the obstacles at each waypoint, an array for each path."""
        paths = [path[:: self._degree] for path in self._paths]
        counts = [*map(len, paths)]
        owner = torch.repeat_interleave(torch.tensor(counts))
        joints = torch.from_numpy(np.concatenate(paths)).to(self._world.device)[:, None]
        parts = []
        for piece in _pieces(len(joints), self._most):
            placed = self._placed(owner[piece])
            found = waypoint_clearance(
                joints[piece], self._robot, self._world, ignore=self._ignore, **placed
            )
            parts.append(found.clearance.amin((1, 2)))
        values = torch.cat(parts).cpu().numpy()
        return array_of(np.split(values, np.cumsum(counts)[:-1]))


def curve_of(points: Tensor, degree: int) -> JointCurve:
    """Curves with control points (batch, n, n_joints), a second for each piece."""
    coefficients = points.double().cpu().unfold(1, degree + 1, degree).transpose(2, 3)
    times = torch.arange(coefficients.shape[1] + 1, dtype=torch.float64)
    return JointCurve(times.expand(len(points), -1), coefficients)


def array_of(values: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays as the elements of one."""
    found = np.empty(len(values), dtype=object)
    for row, part in enumerate(values):
        found[row] = part
    return found


def _pieces(count: int, most: int) -> Iterator[slice]:
    return (slice(begin, min(begin + most, count)) for begin in range(0, count, most))
