"""The pose of a robot's root link in the world: numbers or tensors, for all or by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import validate
from warp_collision.devices import is_capturing, synchronize
from warp_collision.kernels.robot_roots import place_roots_float32, place_roots_float64
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.launching.launch import launch
from warp_collision.poses import PoseLike, pose_rows, quaternion_rotate
from warp_collision.queries import dispatch
from warp_collision.queries.operator import define_operator, over_rows

# Numbers of float32 in a `MovingFrame`.
ROOT = 18
# For so many configurations a launch that places the root once takes less than placing it in each.
_MANY = 64
# Poses of numbers that are kept on devices.
_MAX_KEPT = 256


class _Kept(NamedTuple):
    """A pose of numbers on a device.

    Attributes:
        pose: (7,) float64 with a unit quaternion.
        roots: (1, 1, 18), the `MovingFrame` of the root.
    """

    pose: Tensor
    roots: Tensor


_NUMBERS = {int, float}
_kept: dict[tuple[object, torch.device], _Kept] = {}


def base_operand(base_pose: PoseLike, joints: Tensor) -> Tensor:
    """Poses (..., 7) of a root link for the first axes of joints, with unit quaternions.

    Args:
        base_pose: (..., 7) or rigid matrices (..., 4, 4); or 7 or 4 x 4 numbers for all.
        joints: (..., n_values), whose dtype the poses get.
    """
    if not isinstance(base_pose, Tensor) and not is_compiling():
        return _of_numbers(base_pose, joints.device).pose.to(joints.dtype)
    pose = checked_base(base_pose, joints, None).to(joints.dtype)
    length = torch.linalg.vector_norm(pose[..., 3:], dim=-1, keepdim=True)
    return torch.cat((pose[..., :3], pose[..., 3:] / length), dim=-1)


def root_frames(
    base_pose: PoseLike | None, joints: Tensor, axes: int | None = None
) -> Tensor | None:
    """Base poses as frames of the kernels' `MovingFrame`, without derivatives.

    Args:
        base_pose: see `base_operand`.
        joints: (..., n_values).
        axes: number of axes of the joints for which there may be poses; all but the last if None.

    Returns:
        (..., 18) with the leading axes of the poses, but at least two; None for the origin.
    """
    if base_pose is None:
        return None
    if not isinstance(base_pose, Tensor) and not is_compiling():
        return _of_numbers(base_pose, joints.device).roots
    pose = checked_base(base_pose, joints, axes)
    leading = pose.shape[:-1] if pose.ndim > 2 else (pose.numel() // 7, 1)
    if dispatch.is_plain(pose):
        return run_roots(pose, leading)
    return place_roots_operator(pose.detach().reshape(-1, 7)).reshape(*leading, ROOT)


def root_rows(base_pose: PoseLike | None, joints: Tensor) -> Tensor | None:
    """Base poses for the kernel of kinematics, which places the root by itself.

    Returns:
        Poses (m, 7) float32, each for as many configurations; (m, 18) where they are numbers, of
        another dtype, or each for many, see `root_frames`. None for the origin.
    """
    if (
        not isinstance(base_pose, Tensor)
        or base_pose.dtype != torch.float32
        or joints.numel() > _MANY * base_pose.numel()
    ):
        roots = root_frames(base_pose, joints)
        return None if roots is None else roots.reshape(-1, ROOT)
    poses = checked_base(base_pose, joints, None)
    if poses.requires_grad:
        poses = poses.detach()
    return (poses if poses.ndim == 2 else poses.reshape(-1, 7)).contiguous()


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


def checked_base(base_pose: PoseLike, joints: Tensor, axes: int | None) -> Tensor:
    """Poses (..., 7) as given, which fit the joints; see `root_frames`."""
    most = joints.ndim - 1 if axes is None else axes
    if not isinstance(base_pose, Tensor):  # operands of a graph, whose values cannot be read
        base_pose = torch.as_tensor(base_pose, dtype=torch.float64, device=joints.device)
    pose, shape = base_pose, base_pose.shape
    is_matrix = shape[-2:] == (4, 4)
    leading = shape[: -2 if is_matrix else -1]
    fits = is_matrix or shape[-1:] == (7,)
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
    return pose_rows(pose).reshape(*leading, 7) if is_matrix else pose


def _of_numbers(base_pose: Sequence[object] | np.ndarray, device: torch.device) -> _Kept:
    """A pose of numbers on a device, copied there once."""
    key = _key(base_pose), device
    kept = _kept.get(key)
    if kept is None:
        checked = validate.check_pose("base_pose", base_pose)  # pyright: ignore[reportArgumentType]
        kept = dispatch.run_outside(lambda: _made(checked.tolist(), device), device)
        if key[0] is not None and len(_kept) < _MAX_KEPT and not is_capturing(device):
            synchronize(device)  # what is kept is read on other streams and in other threads
            _kept[key] = kept
    return keep_for_graphs(kept, device)


def _key(base_pose: Sequence[object] | np.ndarray) -> object:
    """What tells poses of numbers apart; None for what has no key."""
    if type(base_pose) is tuple and set(map(type, base_pose)) <= _NUMBERS:
        return base_pose  # the usual form, in the least time
    try:
        values = np.array(base_pose)
    except ValueError:  # ragged
        return None
    if values.dtype.kind not in "fiu":
        return None
    return values.shape, values.astype(np.float64).tobytes()


def _made(numbers: list[float], device: torch.device) -> _Kept:
    with torch.inference_mode(False):  # later calls may need gradients
        # Filled on the device: no copy from the host, so this is safe in a captured graph too.
        filled = [torch.full((), n, dtype=torch.float64, device=device) for n in numbers]
        pose = torch.stack(filled)
        return _Kept(pose, run_roots(pose, (1, 1)))


def run_roots(poses: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Frames (*leading, 18) of roots at poses (..., 7), without derivatives.

    Quaternions have any length but 0.
    """
    kernel = place_roots_float32 if poses.dtype == torch.float32 else place_roots_float64
    if poses.dtype not in (torch.float32, torch.float64):
        poses = poses.double()
    roots = torch.empty((*leading, ROOT), dtype=torch.float32, device=poses.device)
    count = roots.numel() // ROOT
    launch(kernel, (count,), poses.contiguous(), roots, device=roots.device, items=count)
    return roots


place_roots_operator = define_operator(
    "place_roots",
    "Tensor poses",
    lambda poses: run_roots(poses, (len(poses),)),
    lambda poses: poses.new_empty((len(poses), ROOT), dtype=torch.float32),
    over_rows(1),
)
