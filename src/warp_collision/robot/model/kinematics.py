"""Forward kinematics of a tree of joints, reduced to the moving frames.

float32 runs as Warp kernels, with exact Jacobian products in both modes of differentiation; float64
is computed by torch's own operations, which have all derivatives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import torch_private
from warp_collision.kernels.forward_kinematics import RobotFrame
from warp_collision.launching.structs import dtype_of
from warp_collision.poses import PoseLike
from warp_collision.queries import dispatch
from warp_collision.queries.constants import Constant
from warp_collision.queries.robot_queries import (
    FORWARD_KINEMATICS,
    forward_kinematics_jacobian,
    run_jacobian,
)
from warp_collision.robot.model.base_pose import root_rows, with_base_pose
from warp_collision.robot.model.kinematic_tree import KinematicTree, MovingJoint

# Four points determine the transform of a link: its origin and the ends of its axes.
CORNERS = np.concatenate([np.zeros((1, 3)), np.eye(3)])
# Of every transform.
_LAST_ROW = Constant(torch.tensor([0.0, 0.0, 0.0, 1.0]).to)


class PointTables(NamedTuple):
    """Tables of points on frames for the kernels.

    Attributes:
        frames: (n_frames, bytes) uint8, structs `RobotFrame`.
        ranges: (n_frames, 2) int32, begin and end of the points of each frame.
        points: (n_points, 4) float32 x, y, z in the frame [m], and a radius.
    """

    frames: Tensor
    ranges: Tensor
    points: Tensor


class _TorchTables(NamedTuple):
    """Tables of points on frames for torch's own operations."""

    parent_from_frame: Tensor  # (n_joints, 4, 4)
    values: Tensor  # (n_joints,) int64
    gears: Tensor  # (n_joints, 2) multiplier and shift
    points: Tensor  # (n_points, 4)


class Kinematics:
    """Forward kinematics of points on the frames of a tree of joints.

    Args:
        joints: parents before children.
        n_values: number of joint values.
        frames: (n_points,) the frame of each point, 0 for the root; points of a frame are
            consecutive.
        points: (n_points, 4) x, y, z in the frame of the joint, and a radius [m].

    Attributes:
        joint_from_frame: (n_frames, 4, 4) float64 rotations, from frames whose z axis is that of
            the joint.
        point_frames: (n_points,) int64.
    """

    def __init__(
        self, joints: Sequence[MovingJoint], n_values: int, frames: np.ndarray, points: np.ndarray
    ):
        self.joints, self.n_values = tuple(joints), n_values
        self.joint_from_frame = rotations = _axis_rotations(self.joints)
        self.point_frames = np.asarray(frames, dtype=np.int64)
        # Of the points of frames that have some, in their order.
        self._counts = tuple(Counter(self.point_frames.tolist()).items())
        self._points = np.array(points, dtype=np.float64).reshape(-1, 4)
        for frame, rotation in enumerate(rotations):
            chosen = self.point_frames == frame
            self._points[chosen, :3] = self._points[chosen, :3] @ rotation[:3, :3]
        self._parent_from_frame = np.array(
            [
                np.linalg.inv(rotations[joint.parent]) @ joint.parent_from_joint @ rotations[i + 1]
                for i, joint in enumerate(self.joints)
            ]
        ).reshape(-1, 4, 4)
        self._tables = Constant(self._pack)
        self._in_torch = Constant(self._pack_for_torch)

    @property
    def n_frames(self) -> int:
        """Number of frames, the root included."""
        return len(self.joints) + 1

    @property
    def local_points(self) -> np.ndarray:
        """(n_points, 4) float64 x, y, z in frames whose z axis is that of the joint, and radius."""
        return self._points

    def forward(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Points (..., n_points, 4) in the world at joint values (..., n_values).

        Args:
            joints: the joint values.
            base_pose: of the root, see `base_operand`; the origin if None.
        """
        if joints.dtype == torch.float64:
            return with_base_pose(self._forward_in_torch(joints), joints, base_pose)
        if not _is_in_kernel(base_pose):
            return with_base_pose(self.forward(joints), joints, base_pose)
        operands = *self.tables(joints.device), root_rows(base_pose, joints)
        if joints.ndim == 2:
            return FORWARD_KINEMATICS.evaluate(joints.contiguous(), *operands)
        shape = joints.shape[:-1]
        flat = joints.reshape(math.prod(shape), self.n_values)
        points = FORWARD_KINEMATICS.evaluate(flat.contiguous(), *operands)
        return points.reshape(*shape, len(self._points), 4)

    def jacobian(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Jacobian (..., n_points, 3, n_values) float32 of points at joint values (..., n_values).

        Args:
            joints: the joint values, without derivatives.
            base_pose: see `forward`.
        """
        joints = joints.float()
        roots = root_rows(base_pose, joints)
        flat = joints.reshape(-1, self.n_values)
        operands = flat, *self.tables(joints.device), roots
        if dispatch.is_plain(joints):
            jacobian = run_jacobian(*operands)
        else:
            jacobian = forward_kinematics_jacobian(*operands)
        return jacobian.reshape(*joints.shape[:-1], *jacobian.shape[1:])

    def tables(self, device: torch.device) -> PointTables:
        """The tables for the kernels, on a device."""
        return self._tables.on(device)

    def _pack(self, device: torch.device) -> PointTables:
        frames = _frame_records(self.joints, self._parent_from_frame)
        ranges = ranges_of_frames(self.point_frames, self.n_frames)
        parts = (frames, ranges, self._points.astype(np.float32))
        return PointTables(*(torch.from_numpy(part).to(device) for part in parts))

    def _pack_for_torch(self, device: torch.device) -> _TorchTables:
        parts = (
            self._parent_from_frame,
            np.array([joint.value for joint in self.joints], dtype=np.int64),
            np.array([(j.multiplier, j.shift) for j in self.joints]).reshape(-1, 2),
            self._points,
        )
        return _TorchTables(*(torch.from_numpy(part).to(device) for part in parts))

    def _forward_in_torch(self, joints: Tensor) -> Tensor:
        tables = self._in_torch.on(joints.device)
        multipliers, shifts = tables.gears.unbind(-1)
        values = joints[..., tables.values] * multipliers + shifts
        root = torch.eye(4, dtype=joints.dtype, device=joints.device)
        frames = [root.expand(*joints.shape[:-1], 4, 4)]
        for i, joint in enumerate(self.joints):
            x, y, z, origin = (frames[joint.parent] @ tables.parent_from_frame[i]).unbind(-1)
            value = values[..., i, None]
            if joint.slides:
                origin = origin + value * z
            else:
                cosine, sine = torch.cos(value), torch.sin(value)
                x, y = cosine * x + sine * y, cosine * y - sine * x
            frames.append(torch.stack((x, y, z, origin), dim=-1))
        # One product per frame: gathering a matrix for each point is several times slower.
        centers = tables.points[:, :3].split([count for _, count in self._counts])
        parts = [
            center @ frames[frame][..., :3, :3].mT + frames[frame][..., None, :3, 3]
            for (frame, _), center in zip(self._counts, centers, strict=True)
        ]
        moved = torch.cat(parts, dim=-2)
        radii = tables.points[:, 3].expand(moved.shape[:-1]).unsqueeze(-1)
        return torch.cat([moved, radii], dim=-1)


class LinkFrames:
    """Transforms of the links.

    Args:
        tree: the moving frames.
        names: of the links, in the order of their transforms.
    """

    def __init__(self, tree: KinematicTree, names: Sequence[str]):
        frames = np.array([tree.link_frame[name] for name in names])
        order = np.argsort(frames, kind="stable")
        inverse = torch.from_numpy(np.argsort(order))
        self._inverse_order = Constant(inverse.to)
        corners = corner_points(np.stack([tree.frame_from_link[name] for name in names])[order])
        self._kinematics = Kinematics(
            tree.moving, len(tree.joint_names), np.repeat(frames[order], 4), corners
        )

    def transforms(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Transforms (..., n_links, 4, 4) at joint values; see `Kinematics.forward`."""
        corners = self._kinematics.forward(joints, base_pose).unflatten(-2, (-1, 4))
        return transforms_of(corners).index_select(-3, self._inverse_order.on(joints.device))


def _is_in_kernel(base_pose: PoseLike | None) -> bool:
    """Whether the kernel places the root: there are no derivatives by it."""
    if base_pose is None:
        return True
    if is_compiling():
        return False
    return not isinstance(base_pose, Tensor) or not torch_private.may_have_derivatives(base_pose)


def corner_points(frame_from_link: np.ndarray) -> np.ndarray:
    """(n_links * 4, 4) points from which `transforms_of` computes transforms (n_links, 4, 4)."""
    corners = np.einsum("lrc,pc->lpr", frame_from_link[:, :3, :3], CORNERS)
    corners += frame_from_link[:, None, :3, 3]
    return np.concatenate([corners, np.zeros((*corners.shape[:2], 1))], axis=-1).reshape(-1, 4)


def transforms_of(corners: Tensor) -> Tensor:
    """Transforms (..., n_links, 4, 4) from the points (..., n_links, 4, 4) of `corner_points`."""
    points = corners[..., :3]
    origin = points[..., :1, :]
    columns = torch.cat((points[..., 1:, :] - origin, origin), dim=-2).mT
    last = _LAST_ROW.on(corners.device).to(corners.dtype)
    return torch.cat((columns, last.expand(*columns.shape[:-2], 1, 4)), dim=-2)


def ranges_of_frames(frames: np.ndarray, n_frames: int) -> np.ndarray:
    """(n_frames, 2) int32, begin and end of each frame in (n,) frames, equal ones consecutive."""
    ranges = np.zeros((n_frames, 2), dtype=np.int32)
    occupied, begin, count = np.unique(frames, return_index=True, return_counts=True)
    ranges[occupied] = np.stack((begin, begin + count), axis=1)
    return ranges


def zeros_of(struct: Any, count: int) -> np.ndarray:
    """An array of a Warp struct."""
    return np.zeros(count, dtype=dtype_of(struct))


def as_bytes(structs: np.ndarray) -> np.ndarray:
    """Structs as (n, bytes) uint8, for a tensor."""
    return structs.view(np.uint8).reshape(len(structs), structs.dtype.itemsize)


def _frame_records(joints: Sequence[MovingJoint], parent_from_frame: np.ndarray) -> np.ndarray:
    """(n_frames, bytes) uint8, structs `RobotFrame`: the root, then one for each joint."""
    records = zeros_of(RobotFrame, len(joints) + 1)
    records["rotation"][0] = np.eye(3)
    records["rotation"][1:] = parent_from_frame[:, :3, :3]
    records["offset"][1:] = parent_from_frame[:, :3, 3]
    for record, joint in zip(records[1:], joints, strict=True):
        record["multiplier"], record["shift"] = joint.multiplier, joint.shift
        record["value"], record["parent"] = joint.value, joint.parent
        record["slides"] = int(joint.slides)
    return as_bytes(records)


def _axis_rotations(joints: Sequence[MovingJoint]) -> np.ndarray:
    """(n_frames, 4, 4), rotations joint_from_frame, with z along the axis of the joint."""
    rotations = np.tile(np.eye(4), (1 + len(joints), 1, 1))
    axes = np.array([joint.axis for joint in joints]).reshape(-1, 3)
    # Any normal of the axis: that to the coordinate axis of its smallest component.
    normals = np.cross(np.eye(3)[np.abs(axes).argmin(axis=1)], axes)
    normals /= np.array([np.linalg.norm(normal) for normal in normals])[:, None]
    rotations[1:, :3, :3] = np.stack([normals, np.cross(axes, normals), axes], axis=2)
    return rotations
