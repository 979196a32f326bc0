"""The result of a planner."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from warp_collision.notebooks import notebook_html
from warp_collision.planning.endpoints import NearEnd
from warp_collision.planning.timing import TimedPaths, timed
from warp_collision.robot import RobotSpheres
from warp_collision.summaries import summary
from warp_collision.world import MeshWorld


class PlannedPaths(NamedTuple):
    """Result of `optimize_paths`.

    Attributes:
        joints: (batch, horizon, n_joints) float32, from start to goal, straight between waypoints.
        free: (batch,) bool, whether `joint_path_in_collision` proves these paths free.
        clearance: (batch,) [m], the smaller one of the two following. NaN, as these two and the
            cost, of `until="first"`, which does not compute them.
        world_clearance: (batch,) [m], lower bound of the clearance to the world on the path: the
            `world_lower` of `joint_path_clearance`, at least 0 where `free`; +inf without any.
        self_clearance: (batch,) [m], the same between spheres of the robot, +inf if no pairs are
            checked. Pairs above the margin whose clearance is the same at all joint values
            (`SelfCollisionPairs.constant`) are left out: no path could change it.
        cost: (batch,) the objective of these paths: the sum of all terms; with `limits` the time
            of `motion` [s], +inf where it is not free.
        length: (batch,) sum of the Euclidean lengths of the segments [rad, prismatic: m].
        iterations: (batch,) int64, rounds of the trees until the first free path, 0 where the
            straight line is free.
        has_preferred_clearance: (batch,) bool, whether `clearance` reaches `preferred_clearance`
            minus `margin`, the uncertainty of `clearance`; of `until="first"`, whether it is proven
            to be kept. False if start or goal have a smaller clearance, if all paths found have,
            and where `free` is false.
        margin: (batch,) [m], the tolerance of the proof: the argument `margin`, and less where a
            start or goal that is proven free is nearer to something.
        near_ends: what is nearer than the argument `margin` at starts and goals, see `NearEnd`.
        motion: with `limits` the paths as curves in time, see `TimedPaths`; else None.
    """

    joints: Tensor
    free: Tensor
    clearance: Tensor
    world_clearance: Tensor
    self_clearance: Tensor
    cost: Tensor
    length: Tensor
    iterations: Tensor
    has_preferred_clearance: Tensor
    margin: Tensor
    near_ends: tuple[NearEnd, ...]
    motion: TimedPaths | None = None

    __repr__ = summary
    _repr_html_ = notebook_html

    def timed(self, robot: RobotSpheres, world: MeshWorld, **options: Any) -> TimedPaths:
        """The paths as curves in time within limits of the motors, proven free; see `timed`.

        Args:
            robot: the robot.
            world: the obstacles.
            **options: of `timed`: the limits, and the options of the scene as they were planned
                with, such as `env_index` and `ignore`.

        Example:
            >>> import torch
            >>> from warp_collision import MeshWorld
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.planning import optimize_paths
            >>> robot, world = load_panda(), MeshWorld()
            >>> ready = torch.tensor([[0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8]])
            >>> found = optimize_paths(ready, ready + 0.3, robot, world)
            >>> motion = found.timed(robot, world, acceleration=10.0, jerk=200.0)
            >>> motion.free.item(), round(motion.duration.item(), 1)
            (True, 0.4)
        """
        return timed(self.joints, robot, world, **options)
