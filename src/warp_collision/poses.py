"""Rigid poses as torch tensors: (x, y, z, qw, qx, qy, qz), differentiable."""

from __future__ import annotations

import torch


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
    turn = 2.0 * torch.linalg.cross(u, vector.expand_as(u))
    return vector + w * turn + torch.linalg.cross(u, turn)


def invert_pose(pose: torch.Tensor) -> torch.Tensor:
    """Inverse of poses (..., 7); quaternions of any length but 0 are normalised.

    A zero quaternion gives NaN, so that no query can mistake it for free space.

    Example:
        >>> import torch
        >>> from warp_collision.poses import invert_pose
        >>> invert_pose(torch.tensor([1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0]))
        tensor([-1., -2., -3.,  1., -0., -0., -0.])
    """
    quaternion = pose[..., 3:]
    # First by the largest component, whose square neither over- nor underflows afterwards.
    quaternion = quaternion / quaternion.detach().abs().amax(dim=-1, keepdim=True)
    quaternion = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    inverse = torch.cat((quaternion[..., :1], -quaternion[..., 1:]), dim=-1)
    return torch.cat((-quaternion_rotate(inverse, pose[..., :3]), inverse), dim=-1)


def to_rows(mesh_from_world: torch.Tensor) -> torch.Tensor:
    """Poses (..., 7) as the rows of eight that the kernels read.

    Example:
        >>> import torch
        >>> from warp_collision.poses import to_rows
        >>> to_rows(torch.ones(2, 7)).shape
        torch.Size([2, 8])
    """
    return torch.nn.functional.pad(mesh_from_world, (0, 1))
