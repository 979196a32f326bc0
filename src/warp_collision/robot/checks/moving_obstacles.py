"""Checks of joint paths in the frames of moving obstacles.

Between waypoints an obstacle rotates at a constant rate about a fixed axis and its origin moves on
a straight line. In its frame the obstacle rests, and the root of the robot, fixed in the world,
translates at a constant rate and rotates about the origin, like a prismatic joint on a revolute
one: the bounds of joint paths apply. The motion differs between obstacles, so each path has a row
for each that moves, with an env in which that one rests alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.kernels import robot_roots as kernels
from warp_collision.kernels.near_movers import bound_movers
from warp_collision.launching.launch import launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.robot.checks.path_operands import PathOperands
from warp_collision.robot.model.base_pose import ROOT
from warp_collision.robot.model.sphere_layout import STATE, RobotTables
from warp_collision.world.scene import Scene


class Movers(NamedTuple):
    """The check of moving obstacles.

    Attributes:
        operands: of a launch with the rows path 0, obstacle 0; path 0, obstacle 1; ...
        slots: (n,) int32, slots of these obstacles in the world.
        tables: of these slots, with poses for each waypoint.
        moving: (n_envs, n) uint8, which of them count.
    """

    operands: PathOperands
    slots: Tensor
    tables: SceneTables
    moving: Tensor

    def lower_bounds(self, paths: PathOperands) -> Tensor:
        """Bounds (batch, n, horizon - 1) [m] of the clearances to the obstacles on the segments.

        By balls around the obstacles and the bodies of the robot; +inf where an obstacle is not,
        NaN where nothing is known.

        Args:
            paths: the check of obstacles at rest.
        """
        joints, tables, robot = paths.joints, self.tables, paths.robot
        segments = paths.segments
        states, balls = paths.scratch(segments, STATE)
        least = joints.new_empty((segments[0], len(self.slots), segments[1]))
        launch(
            bound_movers,
            segments,
            joints,
            paths.env_index,
            robot,
            paths.base,
            self.moving,
            tables.records,
            tables.padding,
            tables.mesh_from_world,
            states,
            balls,
            least,
            device=joints.device,
            items=64 * segments[0] * segments[1],
        )
        return least

    def chosen(self, which: Tensor) -> PathOperands:
        """The check of k of the segments (batch, n, horizon - 1) bool, in their order."""
        joints, _, env_index, base, *_, degree = self.operands
        assert env_index is not None
        assert base is not None
        index, segment = which.flatten(0, 1).nonzero().unbind(1)
        return self.operands._replace(
            joints=torch.stack(
                [joints[index, segment * degree + k] for k in range(degree + 1)], dim=1
            ),
            env_index=env_index[index],
            base=base[index, segment, None],
        )


def split(operands: PathOperands) -> tuple[PathOperands, Movers | None]:
    """The check of obstacles at rest and of the robot with itself, and that of moving obstacles.

    Without poses for each waypoint there is no second one. On a GPU, where the host knows no
    values, it has a row for every slot.
    """
    if not operands.scene.is_moving:
        return operands, None
    tables = operands.scene.completed()
    tables = tables.at(tables.mesh_from_world.detach())
    resting, moving = _resting_and_moving(tables)
    rest = tables.at(tables.mesh_from_world[:, 0].contiguous())._replace(enabled=resting)
    operands = operands._replace(scene=Scene(rest))
    slots = _candidates(moving)
    if len(slots) == 0:
        return operands, None
    if len(slots) < moving.shape[1]:
        poses = tables.mesh_from_world[:, :, slots].contiguous()
        counts, moving = tables.n_meshes, moving[:, slots].contiguous()
        tables = tables.rearranged(lambda table: table[:, slots].contiguous(), poses, counts)
    return operands, Movers(_alone(operands, tables, moving), slots, tables, moving)


def _resting_and_moving(tables: SceneTables) -> tuple[Tensor, Tensor]:
    """Which slots (n_envs, slots) uint8 hold obstacles at rest, and such that move or are NaN."""
    slots = torch.arange(tables.shape[1], device=tables.enabled.device)
    is_on = (tables.enabled != 0) & (tables.records != 0) & (slots < tables.n_meshes[:, None])
    resting, moving = (torch.empty_like(tables.enabled) for _ in range(2))
    launch(
        kernels.find_moving,
        tuple(is_on.shape),
        tables.mesh_from_world,
        is_on.view(torch.uint8),
        resting,
        moving,
        device=is_on.device,
    )
    return resting, moving


def _candidates(moving: Tensor) -> Tensor:
    """(n,) int32, the slots that have an obstacle that moves; on a GPU all, without a wait."""
    if moving.device == CPU:
        return moving.any(dim=0).nonzero().flatten().int()
    return torch.arange(moving.shape[1], dtype=torch.int32, device=moving.device)


def _alone(operands: PathOperands, tables: SceneTables, moving: Tensor) -> PathOperands:
    """A row for each path and slot, with an env for each env and slot, the obstacle at rest in it.

    Args:
        operands: of the paths.
        tables: of the slots.
        moving: (n_envs, n) uint8, which of them count.
    """
    joints, n = operands.joints, moving.shape[1]
    batch, segments = operands.segments
    env_index = torch.empty((batch, n), dtype=torch.int32, device=joints.device)
    roots = joints.new_empty((batch, n, segments, ROOT))
    launch(
        kernels.place_roots_in_obstacles,
        (batch, n, segments),
        tables.mesh_from_world,
        moving,
        operands.env_index,
        operands.base,
        env_index,
        roots,
        device=joints.device,
        items=roots.numel() // ROOT,
    )
    count = moving.numel()
    at_origin = torch.zeros((count, 1, 8), dtype=torch.float32, device=joints.device)
    at_origin[..., 3] = 1.0
    ones = torch.ones((count,), dtype=torch.int32, device=joints.device)
    alone = tables.rearranged(lambda t: t.reshape(count, 1, *t.shape[2:]), at_origin, ones)
    return PathOperands(
        joints.repeat_interleave(n, 0),
        Scene(alone._replace(enabled=moving.reshape(count, 1))),
        env_index.flatten(),
        roots.flatten(0, 1),
        _repeated(operands.robot, n),
        (None, None),
        operands.degree,
    )


def _repeated(robot: RobotTables, n: int) -> RobotTables:
    """The tables of a robot with n envs in place of each."""
    if robot.n_envs == 1:
        return robot
    bodies = robot.bodies.unflatten(0, (robot.n_envs, -1)).repeat_interleave(n, 0)
    return robot._replace(bodies=bodies.flatten(0, 1), n_envs=n * robot.n_envs, fields=())
