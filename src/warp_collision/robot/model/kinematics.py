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

from warp_collision import validate
from warp_collision.devices import CPU
from warp_collision.kernels.kinematics import RobotFrame
from warp_collision.launching.deferred_free import keep_for_graphs
from warp_collision.poses import PoseLike, pose_rows, quaternion_rotate
from warp_collision.queries import dispatch
from warp_collision.queries.first_order import evaluate_first_order
from warp_collision.queries.robot_queries import (
    FORWARD_KINEMATICS,
    forward_kinematics_jacobian,
    run_jacobian,
)
from warp_collision.robot.model.kinematic_tree import KinematicTree, MovingJoint

# Four points determine the transform of a link: its origin and the ends of its axes.
CORNERS = np.concatenate([np.zeros((1, 3)), np.eye(3)])


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
    """

    def __init__(
        self, joints: Sequence[MovingJoint], n_values: int, frames: np.ndarray, points: np.ndarray
    ):
        self.joints, self.n_values = tuple(joints), n_values
        rotations = _axis_rotations(self.joints)
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
        self._host_tables = self._pack()
        self._on_device = {CPU: self._host_tables}
        self._in_torch: dict[torch.device, _TorchTables] = {}

    @property
    def n_frames(self) -> int:
        """Number of frames, the root included."""
        return len(self.joints) + 1

    @property
    def local_points(self) -> np.ndarray:
        """(n_points, 4) float64 x, y, z in frames whose z axis is that of the joint, and radius."""
        return self._points

    def forward(self, joints: Tensor) -> Tensor:
        """Points (..., n_points, 4) in the world at joint values (..., n_values)."""
        if joints.dtype == torch.float64:
            return self._forward_in_torch(joints)
        tables = self.tables(joints.device)
        if joints.ndim == 2:
            return evaluate_first_order(FORWARD_KINEMATICS, joints.contiguous(), *tables)
        shape = joints.shape[:-1]
        flat = joints.reshape(math.prod(shape), self.n_values)
        points = evaluate_first_order(FORWARD_KINEMATICS, flat.contiguous(), *tables)
        return points.reshape(*shape, len(self._points), 4)

    def jacobian(self, joints: Tensor) -> Tensor:
        """Jacobian (n, n_points, 3, n_values) of points at float32 joint values (n, n_values)."""
        tables = self.tables(joints.device)
        if dispatch.is_plain(joints):
            return run_jacobian(joints, *tables)
        return forward_kinematics_jacobian(joints, *tables)

    def tables(self, device: torch.device) -> PointTables:
        """The tables for the kernels, on a device."""
        tables = self._on_device.get(device)
        if tables is None:
            with torch.inference_mode(False):  # later calls may need gradients
                tables = PointTables(*(part.to(device) for part in self._host_tables))
            if validate.outlives_call(tables.points):
                self._on_device[device] = tables
        return keep_for_graphs(tables, device)

    def _pack(self) -> PointTables:
        frames = _frame_records(self.joints, self._parent_from_frame)
        ranges = ranges_of_frames(self.point_frames, self.n_frames)
        parts = (frames, ranges, self._points.astype(np.float32))
        with torch.inference_mode(False):
            return PointTables(*(torch.from_numpy(part) for part in parts))

    def _forward_in_torch(self, joints: Tensor) -> Tensor:
        tables = self._torch_tables(joints.device)
        multipliers, shifts = tables.gears.unbind(-1)
        values = joints[..., tables.values] * multipliers + shifts
        root = torch.eye(4, dtype=joints.dtype, device=joints.device)
        frames = [root.expand(*joints.shape[:-1], 4, 4)]
        for i, joint in enumerate(self.joints):
            step = tables.parent_from_frame[i] @ _about_z(values[..., i], joint.slides)
            frames.append(frames[joint.parent] @ step)
        # One product per frame: gathering a matrix for each point is several times slower.
        centers = tables.points[:, :3].split([count for _, count in self._counts])
        parts = [
            center @ frames[frame][..., :3, :3].mT + frames[frame][..., None, :3, 3]
            for (frame, _), center in zip(self._counts, centers, strict=True)
        ]
        moved = torch.cat(parts, dim=-2)
        radii = tables.points[:, 3].expand(moved.shape[:-1]).unsqueeze(-1)
        return torch.cat([moved, radii], dim=-1)

    def _torch_tables(self, device: torch.device) -> _TorchTables:
        tables = self._in_torch.get(device)
        if tables is None:
            parts = (
                self._parent_from_frame,
                np.array([joint.value for joint in self.joints], dtype=np.int64),
                np.array([(j.multiplier, j.shift) for j in self.joints]).reshape(-1, 2),
                self._points,
            )
            with torch.inference_mode(False):
                tables = _TorchTables(*(torch.from_numpy(part).to(device) for part in parts))
            if validate.outlives_call(tables.points):
                self._in_torch[device] = tables
        return keep_for_graphs(tables, device)


class LinkFrames:
    """Transforms of the links.

    Args:
        tree: the moving frames.
        names: of the links, in the order of their transforms.
    """

    def __init__(self, tree: KinematicTree, names: Sequence[str]):
        frames = np.array([tree.link_frame[name] for name in names])
        order = np.argsort(frames, kind="stable")
        self._inverse_order = torch.from_numpy(np.argsort(order))
        corners = corner_points(np.stack([tree.frame_from_link[name] for name in names])[order])
        self._kinematics = Kinematics(
            tree.moving, len(tree.joint_names), np.repeat(frames[order], 4), corners
        )

    def forward(self, joints: Tensor) -> Tensor:
        """Points (..., n_points, 4) in the frame of the root link, four of each link."""
        return self._kinematics.forward(joints)

    def transforms(self, points: Tensor) -> Tensor:
        """Transforms (..., n_links, 4, 4) from these points, in any frame."""
        corners = points.unflatten(-2, (-1, 4))
        return transforms_of(corners).index_select(-3, self._inverse_order.to(points.device))


def base_operand(
    base_pose: PoseLike,
    joints: Tensor,
    axes: int | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Poses (..., 7) of a root link for the first axes of joints, with unit quaternions.

    Args:
        base_pose: (..., 7) or rigid matrices (..., 4, 4); or 7 or 4 x 4 numbers for all.
        joints: (..., n_values).
        axes: number of axes of the joints for which there may be poses; all but the last if None.
        dtype: of the result; that of the joints if None.
    """
    most = joints.ndim - 1 if axes is None else axes
    if not isinstance(base_pose, Tensor):
        base_pose = _of_numbers(base_pose, joints.device)
    pose = validate.require_tensor("base_pose", base_pose, "(..., 7)")
    is_matrix = pose.shape[-2:] == (4, 4)
    leading = pose.shape[: -2 if is_matrix else -1]
    fits = is_matrix or pose.shape[-1:] == (7,)
    if not fits or len(leading) > most or leading != joints.shape[: len(leading)]:
        rule = ("(7,)", "(7,) or (batch, 7)", "(7,) or (batch, ..., 7)")[min(most, 2)]
        raise ValueError(
            f"base_pose must have shape {rule}, or (4, 4) in place of 7, for joints "
            f"{validate.shape_of(joints)}, got {validate.shape_of(pose)}"
        )
    if not pose.dtype.is_floating_point:
        raise TypeError(f"base_pose must be floating point, got {pose.dtype}")
    if pose.device != joints.device:
        raise ValueError(f"base_pose must be on the device of joints, got {pose.device}")
    if validate.is_checking():
        for index, row in enumerate(pose.reshape(-1, *pose.shape[len(leading) :])):
            validate.check_pose(f"base_pose[{index}]", row)
    pose = pose_rows(pose.to(dtype or joints.dtype)).reshape(*leading, 7)
    length = torch.linalg.vector_norm(pose[..., 3:], dim=-1, keepdim=True)
    return torch.cat((pose[..., :3], pose[..., 3:] / length), dim=-1)


def _of_numbers(base_pose: PoseLike, device: torch.device) -> Tensor:
    if is_compiling():  # numbers may be operands of the graph, whose values cannot be read
        return torch.as_tensor(base_pose, dtype=torch.float64, device=device)
    return validate.check_pose("base_pose", base_pose).to(device)


def with_base_pose(points: Tensor, joints: Tensor, base_pose: PoseLike | None) -> Tensor:
    """Transforms points of a robot by the pose of its root link in the world.

    Args:
        points: (..., n_points, 4) in the frame of the root link.
        joints: (..., n_values) of the points.
        base_pose: (..., 7) or (..., 4, 4) for the first axes of the joints; quaternions are
            normalised.
    """
    if base_pose is None:
        return points
    pose = base_operand(base_pose, joints)
    pose = pose.reshape(*pose.shape[:-1], *(1,) * (joints.ndim - pose.ndim + 1), 7)
    centers = points[..., :3]
    rotated = quaternion_rotate(pose[..., 3:].expand(*centers.shape[:-1], 4), centers)
    return torch.cat((rotated + pose[..., :3], points[..., 3:]), dim=-1)


def root_frames(base_pose: PoseLike | None, joints: Tensor, axes: int) -> Tensor | None:
    """Base poses as `MovingFrame` (batch or 1, horizon or 1, 18); None for the origin.

    Args:
        base_pose: see `base_operand`.
        joints: (batch, horizon, n_values).
        axes: see `base_operand`.
    """
    if base_pose is None:
        return None
    pose = base_operand(base_pose, joints, axes, torch.float64).detach()
    pose = pose.reshape(*pose.shape[:-1], *(1,) * (3 - pose.ndim), 7)
    at_rest = torch.zeros_like(pose[..., :6])
    return moving_frames(pose, at_rest)


def moving_frames(pose: Tensor, twist: Tensor) -> Tensor:
    """Poses (..., 7) and twists (..., 6), angular and linear, as `MovingFrame` (..., 18)."""
    axes = torch.eye(3, dtype=pose.dtype, device=pose.device).expand(*pose.shape[:-1], 3, 3)
    columns = quaternion_rotate(pose[..., None, 3:].expand(*pose.shape[:-1], 3, 4), axes)
    # NaN in the rotation makes positions NaN too.
    origin = pose[..., :3] + 0.0 * pose.sum(-1, keepdim=True)
    return torch.cat((columns.mT.flatten(-2), origin, twist), dim=-1).float().contiguous()


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
    last = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=corners.dtype, device=corners.device)
    return torch.cat((columns, last.expand(*columns.shape[:-2], 1, 4)), dim=-2)


def ranges_of_frames(frames: np.ndarray, n_frames: int) -> np.ndarray:
    """(n_frames, 2) int32, begin and end of each frame in (n,) frames, equal ones consecutive."""
    ranges = np.zeros((n_frames, 2), dtype=np.int32)
    occupied, begin, count = np.unique(frames, return_index=True, return_counts=True)
    ranges[occupied] = np.stack((begin, begin + count), axis=1)
    return ranges


def zeros_of(struct: Any, count: int) -> np.ndarray:
    """An array of a Warp struct."""
    return np.zeros(count, dtype=np.dtype(struct.numpy_dtype()))


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


def _axis_rotations(joints: Sequence[MovingJoint]) -> list[np.ndarray]:
    """For each frame a (4, 4) rotation joint_from_frame, with z along the axis of the joint."""
    rotations = [np.eye(4)]
    for joint in joints:
        # Any normal of the axis: that to the coordinate axis of its smallest component.
        normal = np.cross(np.eye(3)[np.argmin(np.abs(joint.axis))], joint.axis)
        normal /= np.linalg.norm(normal)
        rotation = np.eye(4)
        rotation[:3, :3] = np.stack([normal, np.cross(joint.axis, normal), joint.axis], axis=1)
        rotations.append(rotation)
    return rotations


def _about_z(values: Tensor, slides: bool) -> Tensor:
    """(..., 4, 4) motion of a joint about or along z."""
    one, zero = torch.ones_like(values), torch.zeros_like(values)
    if slides:
        cosine, sine, height = one, zero, values
    else:
        cosine, sine, height = torch.cos(values), torch.sin(values), zero
    rows = [
        (cosine, -sine, zero, zero),
        (sine, cosine, zero, zero),
        (zero, zero, one, height),
        (zero, zero, zero, one),
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
