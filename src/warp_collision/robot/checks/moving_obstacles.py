"""Checks of joint paths in the frames of moving obstacles.

Between waypoints an obstacle rotates at a constant rate about a fixed axis and its origin moves on
a straight line. In its frame the obstacle rests, and the root of the robot, fixed in the world,
translates at a constant rate and rotates about the origin, like a prismatic joint on a revolute
one: the bounds of joint paths apply. The motion differs between obstacles, so each that moves is
checked by a launch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision.devices import is_capturing
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.poses import PoseLike, product, quaternion_rotate, shorter_rotation
from warp_collision.queries.waypoints import is_moving
from warp_collision.robot.model.kinematics import base_operand, moving_frames, root_frames
from warp_collision.world.acceleration import with_acceleration


class Check(NamedTuple):
    """One launch of a check of joint paths.

    Attributes:
        scene: the obstacles.
        base: root frames for the kernels, None for the origin.
        with_itself: whether self-collisions are checked too.
        slot: slot in the world of the only obstacle; None where slots are those of the world.
    """

    scene: SceneTables
    base: Tensor | None
    with_itself: bool
    slot: int | None


def checks(
    tables: SceneTables, joints: Tensor, base_pose: PoseLike | None, env_index: Tensor | None
) -> Iterator[Check]:
    """The launches that check a scene.

    Args:
        tables: of the scene.
        joints: (batch, horizon, n_joints).
        base_pose: (7,), (batch, 7), or matrices.
        env_index: (batch,) or None.
    """
    base = root_frames(base_pose, joints, 1)
    tables = with_acceleration(tables)
    if not is_moving(tables.mesh_from_world):
        yield Check(tables, base, True, None)
        return
    slots = torch.arange(tables.mesh_ids.shape[1], device=tables.mesh_ids.device)
    is_on = (tables.enabled != 0) & (tables.mesh_ids != 0) & (slots < tables.n_meshes[:, None])
    moves = is_on & _is_moved(tables.mesh_from_world)
    yield Check(_at_rest(tables, is_on & ~moves), base, True, None)
    moved = _used(moves)
    rows = tables.mesh_from_world[:, :, moved].detach().double()
    roots = _roots(rows, moves[:, moved], joints, base_pose, env_index)
    for index, slot in enumerate(moved):
        scene = _one_slot(tables, slot, moves)
        yield Check(scene, roots[:, :, index].contiguous(), False, slot)


def _is_moved(rows: Tensor) -> Tensor:
    """Which poses (n_envs, horizon, slots, 8) differ between waypoints, or are NaN."""
    return ~(rows == rows[:, :1]).all(dim=(1, 3))


def _used(mask: Tensor) -> list[int]:
    """The slots that are set in any env; all of them while a graph is captured."""
    if is_capturing(mask.device):
        return list(range(mask.shape[1]))
    return mask.any(dim=0).nonzero().flatten().tolist()


def _at_rest(tables: SceneTables, mask: Tensor) -> SceneTables:
    """Tables of some obstacles of each env, where they are at the first waypoint."""
    rows = tables.mesh_from_world.detach()[:, 0].contiguous()
    resting = tables.at(rows)._replace(enabled=mask.to(torch.uint8))
    return resting.complete(None)


def _one_slot(tables: SceneTables, slot: int, is_on: Tensor) -> SceneTables:
    """Tables of one obstacle of each env, at the origin."""
    ids = tables.mesh_ids[:, slot : slot + 1].contiguous()
    records, padding, ignored = (
        None if table is None else table[:, slot : slot + 1].contiguous()
        for table in (tables.records, tables.padding, tables.ignored)
    )
    rows = torch.zeros((*ids.shape, 8), dtype=torch.float32, device=ids.device)
    rows[..., 3] = 1.0
    enabled = is_on[:, slot : slot + 1].to(torch.uint8)
    counts = torch.ones_like(tables.n_meshes)
    return SceneTables(ids, rows, enabled, counts, records, padding, ignored).complete(None)


def _roots(
    rows: Tensor,
    is_on: Tensor,
    joints: Tensor,
    base_pose: PoseLike | None,
    env_index: Tensor | None,
) -> Tensor:
    """Root frames (batch, horizon - 1, n, 18) at the start of segments, seen from obstacles.

    Args:
        rows: (n_envs, horizon, n, 8) float64, of mesh_from_world.
        is_on: (n_envs, n), which of them count.
        joints: (batch, horizon, n_joints).
        base_pose: see `checks`.
        env_index: see `checks`.
    """
    batch = joints.shape[0]
    # Disabled obstacles may have invalid poses.
    identity = torch.eye(8, dtype=rows.dtype, device=rows.device)[3]
    rows = torch.where(is_on[:, None, :, None], rows, identity)
    if env_index is None:
        rows = rows[:1].expand(batch, *rows.shape[1:])
    else:
        rows = rows[env_index.long().clamp(0, len(rows) - 1)]
    quaternion = rows[..., 3:7]
    quaternion = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    pose = rows.new_tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    if base_pose is not None:
        pose = base_operand(base_pose, joints, 1, torch.float64).detach()
    pose = pose.expand(batch, 7)[:, None, None].expand(*rows.shape[:-1], 7)
    origins = quaternion_rotate(quaternion, pose[..., :3]) + rows[..., :3]
    first, second = quaternion[:, :-1], quaternion[:, 1:]
    rotation = product(second, torch.cat((first[..., :1], -first[..., 1:]), dim=-1))
    rotation = shorter_rotation(rotation)
    axis = rotation[..., 1:]
    sine = torch.linalg.vector_norm(axis, dim=-1, keepdim=True)
    # Without rotation the factor is its limit.
    factor = torch.where(sine > 0.0, 2.0 * torch.atan2(sine, rotation[..., :1]) / sine, 2.0)
    omega = factor * axis
    inverse = torch.cat((rotation[..., :1], -axis), dim=-1)
    begin = origins[:, :-1]
    shift = quaternion_rotate(inverse, origins[:, 1:]) - begin
    twist = torch.cat((omega, torch.linalg.cross(omega, begin) + shift), dim=-1)
    orientation = product(first, pose[:, :-1, :, 3:])
    return moving_frames(torch.cat((begin, orientation), dim=-1), twist)
