"""Rigid poses as torch tensors: (x, y, z, qw, qx, qy, qz) or 4 x 4 matrices, differentiable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

__all__ = [
    "PoseLike",
    "invert_pose",
    "is_rigid",
    "pose_from_matrix",
    "pose_rows",
    "poses_between",
    "product",
    "quaternion_rotate",
    "rows_between",
    "shorter_rotation",
    "to_rows",
]

# x, y, z, qw, qx, qy, qz, or a 4 x 4 matrix.
PoseLike = torch.Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]

# Largest entry of R R^T - I of a rotation matrix.
_ORTHONORMAL = 1e-4
# Smallest cosine of half the angle of a `shorter_rotation`, as in the kernels' `moving_sweep`.
HALF_TURN = -1e-6


def quaternion_rotate(quaternion: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Rotates vectors (..., 3) by unit quaternions (..., 4) w, x, y, z.

    The formula v + 2 w (u x v) + 2 u x (u x v), u the vector part.

    Example:
        >>> import torch
        >>> from warp_collision.poses import quaternion_rotate
        >>> quarter = torch.tensor([0.5**0.5, 0.0, 0.0, 0.5**0.5])  # about z
        >>> quaternion_rotate(quarter, torch.tensor([1.0, 0.0, 0.0])).round(decimals=4).tolist()
        [0.0, 1.0, 0.0]
    """
    w, u = quaternion[..., :1], quaternion[..., 1:]
    twice_cross = 2.0 * torch.linalg.cross(u, vector.expand_as(u))
    return vector + w * twice_cross + torch.linalg.cross(u, twice_cross)


def invert_pose(pose: torch.Tensor) -> torch.Tensor:
    """Inverse of poses (..., 7); quaternions of any length but 0 are normalised.

    A zero quaternion gives NaN, which no query takes for free space.

    Example:
        >>> import torch
        >>> from warp_collision.poses import invert_pose
        >>> invert_pose(torch.tensor([1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0]))
        tensor([-1., -2., -3.,  1., -0., -0., -0.])
    """
    quaternion = pose[..., 3:]
    # First by the largest component, so that no square over- or underflows.
    quaternion = quaternion / quaternion.detach().abs().amax(dim=-1, keepdim=True)
    quaternion = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    inverse = torch.cat((quaternion[..., :1], -quaternion[..., 1:]), dim=-1)
    return torch.cat((-quaternion_rotate(inverse, pose[..., :3]), inverse), dim=-1)


def to_rows(mesh_from_world: torch.Tensor) -> torch.Tensor:
    """Poses (..., 7) as rows (..., 8) for the kernels.

    Example:
        >>> import torch
        >>> from warp_collision.poses import to_rows
        >>> to_rows(torch.ones(2, 7)).shape
        torch.Size([2, 8])
    """
    return torch.nn.functional.pad(mesh_from_world, (0, 1))


def is_rigid(matrix: torch.Tensor) -> torch.Tensor:
    """Whether matrices (..., 4, 4) are rigid transforms, to 1e-4; bool (...).

    Example:
        >>> import torch
        >>> from warp_collision.poses import is_rigid
        >>> is_rigid(torch.stack((torch.eye(4), -torch.eye(4)))).tolist()
        [True, False]
    """
    matrix = matrix.detach()
    rotation = matrix[..., :3, :3]
    a, b, c = rotation.unbind(-2)
    eye = torch.eye(4, dtype=matrix.dtype, device=matrix.device)
    error = (rotation @ rotation.mT - eye[:3, :3]).abs().amax(dim=(-2, -1))
    last = (matrix[..., 3, :] - eye[3]).abs().amax(dim=-1)
    is_proper = (torch.linalg.cross(a, b) * c).sum(-1) > 0.0
    return (error < _ORTHONORMAL) & (last < _ORTHONORMAL) & is_proper


def pose_from_matrix(matrix: torch.Tensor) -> torch.Tensor:
    """Poses (..., 7) of matrices (..., 4, 4); those that are not rigid become NaN.

    The products q_i q_j of a quaternion's components are linear in the matrix. Of their four rows
    q_i q the longest one is normalised.

    Example:
        >>> import torch
        >>> from warp_collision.poses import pose_from_matrix
        >>> half_turn = torch.diag(torch.tensor([-1.0, -1.0, 1.0, 1.0]))  # about z
        >>> pose_from_matrix(half_turn).tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """
    (xx, xy, xz, x), (yx, yy, yz, y), (zx, zy, zz, z) = (
        row.unbind(-1) for row in matrix[..., :3, :].unbind(-2)
    )
    one = torch.ones_like(xx)
    products = torch.stack(
        [
            one + xx + yy + zz, zy - yz, xz - zx, yx - xy,
            zy - yz, one + xx - yy - zz, yx + xy, xz + zx,
            xz - zx, yx + xy, one - xx + yy - zz, zy + yz,
            yx - xy, xz + zx, zy + yz, one - xx - yy + zz,
        ],
        dim=-1,
    ).unflatten(-1, (4, 4))  # fmt: skip
    longest = products.diagonal(dim1=-2, dim2=-1).argmax(-1)
    index = longest[..., None, None].expand(*longest.shape, 1, 4)
    row = products.gather(-2, index).squeeze(-2)
    quaternion = row / torch.linalg.vector_norm(row, dim=-1, keepdim=True)
    quaternion = torch.where(is_rigid(matrix).unsqueeze(-1), quaternion, torch.nan)
    return torch.cat((torch.stack((x, y, z), dim=-1), quaternion), dim=-1)


def pose_rows(poses: torch.Tensor) -> torch.Tensor:
    """Rows (n, 7) of poses (..., 7) or matrices (..., 4, 4).

    Example:
        >>> import torch
        >>> from warp_collision.poses import pose_rows
        >>> pose_rows(torch.eye(4)).tolist()
        [[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]
    """
    if poses.shape[-2:] == (4, 4):
        poses = pose_from_matrix(poses)
    return poses.reshape(-1, 7)


def rows_between(rows: torch.Tensor, parts: int) -> torch.Tensor:
    """Interpolates inverse poses of moving obstacles at more waypoints.

    Between two waypoints an obstacle rotates at a constant rate about a fixed axis, by the smaller
    angle, and its origin moves on a straight line. Differentiable with respect to the rows.

    Args:
        rows: (n_envs, horizon, slots, 8) rows of mesh_from_world.
        parts: number of equal parts of each segment.

    Returns:
        (n_envs, (horizon - 1) * parts + 1, slots, 8), waypoint t at index t * parts.

    Example:
        >>> import torch
        >>> from warp_collision.poses import invert_pose, rows_between, to_rows
        >>> poses = torch.tensor([[0.0, 0, 0, 1, 0, 0, 0], [2.0, 0, 0, 0.8, 0, 0, 0.6]])
        >>> rows = to_rows(invert_pose(poses))[None, :, None]
        >>> halfway = rows_between(rows, 2)[0, 1, 0, :7]
        >>> round(invert_pose(halfway)[0].item(), 4)
        1.0
    """
    quaternion = rows[..., 3:7]
    quaternion = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    inverse = torch.cat((quaternion[..., :1], -quaternion[..., 1:]), dim=-1)
    origin = -quaternion_rotate(inverse, rows[..., :3])
    first, second = quaternion[:, :-1], quaternion[:, 1:]
    rotation = shorter_rotation(product(second, inverse[:, :-1]))
    s = torch.arange(parts, dtype=rows.dtype, device=rows.device)[:, None, None] / parts
    rotated = product(_power(rotation.unsqueeze(2), s), first.unsqueeze(2))
    moved = origin[:, :-1, None] + s * (origin[:, 1:] - origin[:, :-1]).unsqueeze(2)
    inner = to_rows(torch.cat((-quaternion_rotate(rotated, moved), rotated), dim=-1))
    return torch.cat((inner.flatten(1, 2), rows[:, -1:]), dim=1)


def poses_between(times: torch.Tensor, poses: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Poses of moving obstacles at any times, as they move between those that are given.

    Each rotates at a constant rate about a fixed axis, by the smaller angle, and its origin moves
    on a straight line. Before the first time and after the last one it rests.

    Args:
        times: (k,), which grow [s].
        poses: (k, n, 7) at these times.
        at: (m,) [s].

    Returns:
        (m, n, 7), of the type and on the device of the poses.

    Example:
        >>> import torch
        >>> from warp_collision.poses import poses_between
        >>> poses = torch.tensor([[[0.0, 0, 0, 1, 0, 0, 0]], [[2.0, 0, 0, 0.8, 0, 0, 0.6]]])
        >>> poses_between(torch.tensor([0.0, 1.0]), poses, torch.tensor([0.5, 7.0]))[:, 0, 0]
        tensor([1., 2.])
    """
    given, times = poses.double(), times.to(poses.device).double()
    at = at.to(poses.device).double().clamp(times[0], times[-1])
    index = (torch.searchsorted(times, at, right=True) - 1).clamp(0, len(times) - 2)
    s = ((at - times[index]) / (times[index + 1] - times[index]))[:, None, None]
    quaternion = given[..., 3:] / torch.linalg.vector_norm(given[..., 3:], dim=-1, keepdim=True)
    first, second = quaternion[index], quaternion[index + 1]
    inverse = torch.cat((first[..., :1], -first[..., 1:]), dim=-1)
    rotated = product(_power(shorter_rotation(product(second, inverse)), s), first)
    origin = torch.lerp(given[index, :, :3], given[index + 1, :, :3], s)
    return torch.cat((origin, rotated), dim=-1).to(poses.dtype)


def shorter_rotation(quaternion: torch.Tensor) -> torch.Tensor:
    """Quaternions (..., 4) of the same rotations, by at most 180 degrees.

    At 180 degrees, within rounding, the quaternion is unchanged: all computations of a motion
    choose the same direction.

    Example:
        >>> import torch
        >>> from warp_collision.poses import shorter_rotation
        >>> rotations = torch.tensor([[-0.6, 0.8, 0.0, 0.0], [-1e-8, 1.0, 0.0, 0.0]])
        >>> shorter_rotation(rotations)[:, 1].tolist()
        [-0.800000011920929, 1.0]
    """
    return torch.where(quaternion[..., :1] < HALF_TURN, -quaternion, quaternion)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products (..., 4) of quaternions w, x, y, z: the rotation b, then the rotation a.

    Example:
        >>> import torch
        >>> from warp_collision.poses import product
        >>> i, j = torch.eye(4)[1:3]
        >>> product(i, j).tolist()
        [0.0, 0.0, 0.0, 1.0]
    """
    a, b = torch.broadcast_tensors(a, b)
    (w, u), (v, x) = (a[..., :1], a[..., 1:]), (b[..., :1], b[..., 1:])
    real = w * v - (u * x).sum(-1, keepdim=True)
    return torch.cat((real, w * x + v * u + torch.linalg.cross(u, x)), dim=-1)


def _power(quaternion: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Powers s of unit quaternions (..., 4), rotations by s times the angle."""
    w, u = quaternion[..., :1], quaternion[..., 1:]
    squared = (u * u).sum(-1, keepdim=True)
    is_small = squared < 1e-12
    # Square root of 1 instead of 0, where its derivative is infinite.
    sine = torch.sqrt(torch.where(is_small, 1.0, squared))
    angle = torch.atan2(sine, w)
    factor = torch.where(is_small, s, torch.sin(s * angle) / sine)
    real = torch.where(is_small, 1.0, torch.cos(s * angle))
    return torch.cat((real, factor * u), dim=-1)
