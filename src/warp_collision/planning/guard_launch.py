"""The state of guarded robots on a device, and the launch of one step of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import CPU, is_capturing, is_gpu
from warp_collision.kernels.guard_motion import N_ROWS
from warp_collision.kernels.guard_slide import N_NEAR
from warp_collision.kernels.guard_step import guard_step
from warp_collision.kernels.nearest_of_links import HEAD
from warp_collision.launching.launch import RepeatedLaunch, launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.planning.obstacle_speeds import SpeedTable
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.checks.joint_path import robot_tables
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.robot.model.base_pose import root_frames
from warp_collision.robot.model.sphere_layout import FRAME_POSE, STATE
from warp_collision.world.world_reader import version_as_fitted

# Robots that one CPU thread steps sooner than several.
_FEW = 16
# Fewest evaluations that a budget of time may leave.
_LEAST_EVALUATIONS = 8
# How fast the slowest known evaluation is forgotten.
_FORGET = 0.999
# Index of the scene in the arguments of the kernel.
_SCENE = 1


class GuardTables(NamedTuple):
    """What holds for all steps, named as the fields of the kernels' `GuardRules` struct.

    Attributes:
        limits: (n_joints, 5) float64, velocity, acceleration, jerk, lowest and highest value.
        errors: (n_joints,) float32, how far a joint may be from its value [rad or m].
        dt: length of a step [s].
        latency: how long its last velocities may go on [s].
        speed: of the fastest obstacles [m/s].
        tolerance: largest clearance that is kept at rest [m].
        least: smallest one [m].
        is_position: whether commands are joint values.
        may_slide: whether what goes along surfaces of a command may be passed on.
        degree: of the polynomials of a step: 3 with limits of jerk, 2 without.
        shares: (n_envs, n_slots) float32, the speed of each obstacle as a share of the fastest;
            None where all are alike.
        poses: (n, n_frames, ...) float32, scratch.
        near: (n, N_NEAR, HEAD + n_joints) float32, scratch.
    """

    limits: Tensor
    errors: Tensor
    dt: float
    latency: float
    speed: float
    tolerance: float
    least: float
    is_position: int
    may_slide: int
    degree: int
    shares: Tensor | None = None
    poses: Tensor | None = None
    near: Tensor | None = None

    def values(self) -> tuple[float, ...]:
        """The fields of a `GuardRules`."""
        tables = self.limits, self.errors, self.shares, self.poses, self.near
        addresses = (0 if table is None else table.data_ptr() for table in tables)
        # The number of evaluations is that of a step.
        return *addresses, *self[2:7], 0, *self[7:10], len(self.limits)

    @classmethod
    def on(cls, device: torch.device, limits: Any, errors: Any, *numbers: Any) -> GuardTables:
        """Tables on a device."""
        with torch.inference_mode(False):
            return cls(
                torch.tensor(np.asarray(limits), dtype=torch.float64, device=device),
                torch.tensor(np.asarray(errors), dtype=torch.float32, device=device),
                *numbers,
            )


class GuardedRobots:
    """Robots of one kind and their proven brakings.

    Args:
        placed: the robot and the obstacles.
        env_index: (n,) int32, the env of each robot; None for one robot in env 0.
        tables: what holds for all steps.
        max_evaluations: of the proofs of a step.
        max_seconds: for the proofs of a step, or None.
        speeds: of the obstacles.

    Attributes:
        given: (n, 3, n_joints) float64, measured joint values and velocities, and commands.
        state: (n, 3, n_joints) float64, joint values, velocities and accelerations that were
            passed on.
        points: (n, N_ROWS, n_joints) float32, control points: of what was asked for and the braking
            after it, and from N_POINTS on, behind those of a step, of the braking that was proven
            again; then scratch.
        report: (n, 13) float64: clearance that is kept at rest [m], 0 where no braking is proven;
            share passed on, time to rest [s], why not all, evaluations. Then whether along
            surfaces, the three phases of the braking, how late its steps were together [s], and
            what the kernel looks at first in the next step.
    """

    def __init__(
        self,
        placed: RobotScene,
        env_index: Tensor | None,
        tables: GuardTables,
        max_evaluations: int,
        max_seconds: float | None,
        speeds: SpeedTable,
    ):
        self._speeds = speeds
        self._placed, self._tables, self._env_index = placed, tables, env_index
        self._max_seconds, self._slowest = max_seconds, 0.0
        self._max_evaluations = max_evaluations
        device, joints = placed.world.device, placed.robot.n_joints
        n = self.n_robots = 1 if env_index is None else len(env_index)
        with torch.inference_mode(False):
            double = {"dtype": torch.float64, "device": device}
            self._state = torch.full((n, 12, joints), torch.nan, **double)
            self.given, self.state = self._state[:, :3], self._state[:, 3:6]
            self.report = torch.zeros((n, 13), **double)
            self.points = torch.zeros((n, N_ROWS, joints), device=device)
            # Whether anything has changed, and how many evaluations there may be.
            self._call = torch.tensor([1, max_evaluations], dtype=torch.int32, device=device)
            like = torch.zeros((n, 1, joints), device=device)
        self._is_on_gpu = is_gpu(device)
        self._root = root_frames(placed.base_pose, like, 1)
        self._links: Any = None
        self._version: Any = None
        self._launched: SceneTables | None = None
        self._launch: Callable[[SceneTables | None], None]

    def run(self) -> None:
        """One step of all robots, from what is given."""
        placed = self._placed
        robot, world = placed.robot, placed.world
        scene = scene_with_contacts(placed.ignore, robot, world)
        tables = scene.completed(guard_step, self.n_robots)
        version = version_as_fitted(world)
        changed = version is None or version != self._version
        # What a graph replays sees later changes by proving the brakings again each time.
        if self._is_on_gpu and is_capturing(self.given.device):
            changed = True
        speeds = self._speeds
        if speeds.shares is not None and speeds.update(tables.shape):
            changed = True
        # Something was attached or detached, or the world has grown.
        if robot.sphere_links is not self._links or speeds.shares is not self._tables.shares:
            self._prepare()
            changed = True
        if changed != self._was_changed:
            self._call[0] = int(changed)
            self._was_changed = changed
        # None: those of the last step, which are where they were.
        given = None if tables is self._launched and not changed else tables
        if self._max_seconds is None:
            self._launch(given)
        else:
            self._launch_within(given, self._max_seconds)
        self._version, self._launched = version, tables  # not where an interrupt has ended it

    def _prepare(self) -> None:
        """Looks up what belongs to the robot with what is attached to it."""
        self._launched = None
        placed, n = self._placed, self.n_robots
        self._links, device = placed.robot.sphere_links, placed.world.device
        tables, pairs = robot_tables(placed.robot, placed.self_collision, device)
        with torch.inference_mode(False):
            frames = torch.empty((n, 2 * len(tables.frames), STATE), device=device)
            balls = torch.empty((n, tables.n_bodies, 4), device=device)
            poses = torch.empty((n, len(tables.frames), FRAME_POSE), device=device)
            near = torch.empty((n, N_NEAR, HEAD + placed.robot.n_joints), device=device)
        self._tables = self._tables._replace(shares=self._speeds.shares, poses=poses, near=near)
        given = self._env_index, None, tables, self._root, *pairs
        outputs = self._state, self.points, frames, balls, self.report
        self._arguments = [*given, self._tables, self._call, *outputs]
        self._was_changed: bool | None = None
        self._launch = self._launch_many
        if device == CPU and n <= _FEW:
            self._launch = RepeatedLaunch(guard_step, (n, 1), self._arguments, (_SCENE,))

    def _launch_many(self, tables: SceneTables | None) -> None:
        n, arguments = self.n_robots, list(self._arguments)
        arguments[_SCENE] = tables or self._launched
        launch(guard_step, (n, 1), *arguments, device=self.given.device, items=1024 * n)

    def _launch_within(self, tables: SceneTables | None, seconds: float) -> None:
        """Leaves as many evaluations as the slowest ones so far would allow in a time."""
        if self._slowest > 0.0:
            left = int(seconds / self._slowest)
            self._call[1] = max(_LEAST_EVALUATIONS, min(left, self._max_evaluations))
        began = time.perf_counter()
        self._launch(tables)
        taken = (time.perf_counter() - began) / max(1.0, float(self.report[0, 4]))
        self._slowest = max(taken, _FORGET * self._slowest)
