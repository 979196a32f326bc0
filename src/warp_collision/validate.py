"""Validation of arguments; each message has the argument, the rule and the value.

Shapes, dtypes and devices are always checked; they are known on the host. Values of device tensors
(spheres, env indices, mesh ids) are checked only in the mode `checking`, because reading them waits
for the device.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.compiler import is_compiling

from warp_collision import torch_private
from warp_collision.devices import TYPES, is_capturing, is_known, synchronize
from warp_collision.messages import short_repr
from warp_collision.poses import PoseLike, is_rigid, pose_from_matrix, pose_rows

if TYPE_CHECKING:
    import trimesh
    from typing_extensions import TypeIs

_checking: ContextVar[bool] = ContextVar(
    "warp_collision_checking", default=os.environ.get("WARP_COLLISION_CHECK", "0") not in ("", "0")
)
# Fast path: the context variable is not read before the mode is first used.
_was_enabled = _checking.get()


@contextmanager
def checking(on: bool = True) -> Iterator[None]:
    """Validates the values of all inputs, not only their shapes, in a `with` block.

    In this mode every call also rejects

    - spheres, points and poses that are not finite, and quaternions of length 0;
    - env indices that are out of range;
    - negative activation distances that are given as tensors;
    - mesh ids that belong to no living `wp.Mesh`.

    Each check waits for the device. The
    environment variable ``WARP_COLLISION_CHECK=1`` turns the mode on for a whole process.

    Args:
        on: False turns the mode off inside the block.

    Example:
        >>> import torch, warp_collision as wc
        >>> with wc.checking():
        ...     wc.sphere_cost(torch.full((1, 1, 1, 4), torch.nan), wc.MeshWorld())
        Traceback (most recent call last):
        ValueError: spheres must be finite, got nan at (0, 0, 0, 0)
    """
    global _was_enabled
    _was_enabled |= on
    token = _checking.set(on)
    try:
        yield
    finally:
        _checking.reset(token)


def is_checking() -> bool:
    """Whether the values of device tensors are to be checked."""
    return _was_enabled and not is_compiling() and _checking.get()


def shape_of(value: Any) -> str:
    """Shape of a tensor for a message, as a plain tuple."""
    return str(tuple(value.shape))


def on_host(value: Any) -> Any:
    """A tensor without its history on the host, where NumPy reads it; anything else as it is."""
    return value.detach().cpu() if hasattr(value, "detach") else value


def float64_array(name: str, value: Any) -> NDArray[np.float64]:
    """Numbers that a caller gave, a copy."""
    value = on_host(value)
    try:
        return np.asarray(value, dtype=np.float64).copy()
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, got {short_repr(value)}") from None


def require_tensor(name: str, value: Any, shape: str) -> torch.Tensor:
    """Requires a tensor; ``shape`` is the expected one, for the message."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor of shape {shape}, got {type(value).__name__}"
        )
    return value


def require_device(name: str, value: torch.Tensor, device: torch.device) -> None:
    """Requires a tensor on a device."""
    if value.device != device:
        raise ValueError(f"{name} must be on device {device} like the world, got {value.device}")


def require_finite(name: str, value: torch.Tensor) -> None:
    """Requires finite values; waits for the device."""
    bad = torch.nonzero(~torch.isfinite(value))
    if len(bad):
        index = tuple(bad[0].tolist())
        raise ValueError(f"{name} must be finite, got {value[index].item()} at {index}")


def float_operand(
    name: str, value: Any, width: int, shape: str, device: torch.device, *, ndim: int | None = None
) -> torch.Tensor:
    """A contiguous float32 operand of shape ``(..., width)`` on a device, converted if necessary.

    Args:
        name: the argument, for messages.
        value: the argument, of any floating dtype and layout.
        width: extent of the last axis.
        shape: the expected shape, for messages.
        device: the device it must be on.
        ndim: number of axes; None for at least two.
    """
    tensor = value if isinstance(value, torch.Tensor) else require_tensor(name, value, shape)
    axes_fit = tensor.ndim == ndim if ndim is not None else tensor.ndim >= 2
    if not axes_fit or tensor.shape[-1] != width:
        raise ValueError(f"{name} must have shape {shape}, got {shape_of(tensor)}")
    if tensor.dtype is not torch.float32:
        if not tensor.dtype.is_floating_point:
            raise TypeError(f"{name} must be floating point, got {tensor.dtype}")
        tensor = tensor.to(torch.float32)
    if tensor.device != device:
        require_device(name, tensor, device)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if _was_enabled and is_checking():
        require_finite(name, tensor)
    return tensor


# Cache of tensors for numbers that have been checked, by the name of the argument.
_scalars: dict[tuple[str, float, torch.device], torch.Tensor] = {}


def scalar_operand(
    name: str,
    value: Any,
    device: torch.device,
    *,
    positive: bool = False,
    any_sign: bool = False,
    finite: bool = True,
    differentiable: bool = False,
) -> torch.Tensor:
    """A (1,) float32 tensor on a device from a number or a one-element tensor.

    Numbers are checked at once; the values of tensors only in the checking mode.

    Args:
        name: the argument, for messages.
        value: a number, or a tensor with one element.
        device: where the kernels read it.
        positive: 0 is not allowed.
        any_sign: negative values are allowed.
        finite: infinity is not allowed.
        differentiable: a tensor may require a gradient.
    """
    if type(value) is float and not is_compiling():
        cached = _scalars.get((name, value, device))
        if cached is not None:
            return cached
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must be a number or have one element, got {shape_of(value)}")
        if not differentiable and value.requires_grad:
            raise ValueError(f"{name} must not require a gradient, none is defined; detach it")
        if value.device != device:
            require_device(name, value, device)
        tensor = value.reshape(1).to(torch.float32).contiguous()
        if is_checking():
            _require_range(name, float(value.detach()), positive, any_sign, finite)
        return tensor
    if is_compiling():
        return _filled(name, value, device, positive, any_sign, finite)
    with torch.inference_mode(False):
        tensor = _filled(name, value, device, positive, any_sign, finite)
    keep_scalar(name, value, tensor)
    return tensor


def _filled(
    name: str, value: Any, device: torch.device, positive: bool, any_sign: bool, finite: bool
) -> torch.Tensor:
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number or a tensor, got {type(value).__name__}")
    number = float(value)
    _require_range(name, number, positive, any_sign, finite)
    # Filled on the device: no copy from the host, so this is safe in a captured graph too.
    return torch.full((1,), number, dtype=torch.float32, device=device)


def known_scalar(name: str, value: Any, device: torch.device) -> torch.Tensor | None:
    """The cached tensor of a number, if there is one."""
    return _scalars.get((name, value, device)) if type(value) is float else None


def keep_scalar(name: str, value: Any, tensor: torch.Tensor) -> None:
    """Caches the tensor of a number that has been checked for an argument."""
    if type(value) is float and len(_scalars) < 256 and outlives_call(tensor):
        synchronize(tensor.device)
        _scalars[name, value, tensor.device] = tensor


def outlives_call(tensor: torch.Tensor) -> bool:
    """Whether a tensor may be cached: it is of no `torch.func` transform, trace or captured graph.

    Tensors of a captured graph have no value before the graph is replayed.
    """
    return (
        type(tensor) is torch.Tensor
        and not torch_private.is_func_transformed()
        and not is_capturing(tensor.device)
    )


def _require_range(name: str, number: float, positive: bool, any_sign: bool, finite: bool) -> None:
    # Comparisons, not math.isfinite: they can be traced for symbolic numbers.
    if not (number == math.inf and not finite) and not (-math.inf < number < math.inf):
        raise ValueError(f"{name} must be finite, got {number}")
    if positive and number <= 0.0:
        raise ValueError(f"{name} must be positive, got {number}")
    if not any_sign and number < 0.0:
        raise ValueError(f"{name} must not be negative, got {number}")


def env_operand(
    value: torch.Tensor | None,
    batch: int,
    n_envs: int,
    device: torch.device,
    name: str = "env_index",
    check: bool = False,
) -> torch.Tensor | None:
    """An int32 (batch,) index of envs, or None for env 0; int64 is converted.

    Its values are read in the checking mode alone, or where `check` asks for it.
    """
    if value is None:
        return None
    tensor = require_tensor(name, value, f"({batch},)")
    if tensor.shape != (batch,):
        raise ValueError(f"{name} must have shape (batch,) = ({batch},), got {shape_of(tensor)}")
    if tensor.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} must be int32 or int64, got {tensor.dtype}")
    require_device(name, tensor, device)
    if check or is_checking():
        bad = tensor[(tensor < 0) | (tensor >= n_envs)]
        if len(bad):
            raise ValueError(f"{name} must be in [0, {n_envs}), got {bad[0].item()}")
    if tensor.dtype is not torch.int32 or not tensor.is_contiguous():
        # An index out of range stays out of range, instead of wrapping to an env.
        tensor = tensor.clamp(-1, n_envs).to(torch.int32).contiguous()
    return tensor


def check_pose(name: str, pose: PoseLike) -> torch.Tensor:
    """A (7,) float64 pose x, y, z, qw, qx, qy, qz on the host, with a unit quaternion.

    Args:
        name: the argument, for messages.
        pose: 7 numbers, or a rigid 4 x 4 matrix.
    """
    if isinstance(pose, torch.Tensor) and not is_known(pose.device):
        raise ValueError(f"{name} must be on a {TYPES} device, got {pose.device}")
    numbers = pose.detach().cpu().tolist() if isinstance(pose, torch.Tensor) else pose
    try:
        values = np.array(numbers)
    except ValueError:  # ragged
        values = np.array(None)
    if values.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} must be 7 numbers (x, y, z, qw, qx, qy, qz), got {type(pose).__name__}"
        )
    values = values.astype(np.float64)  # a copy, as it is normalised below
    if values.shape not in ((7,), (4, 4)):
        raise ValueError(
            f"{name} must have shape (7,): x, y, z, qw, qx, qy, qz, or (4, 4), got {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got {values.tolist()}")
    # The limit of the kernels, beyond which distances overflow in float32.
    if not (np.abs(values) < 1e9).all():
        raise ValueError(f"{name} must be finite and below 1e9, got {values.tolist()}")
    if values.shape == (4, 4):
        matrix = torch.from_numpy(values)
        if not is_rigid(matrix):
            raise ValueError(
                f"{name} must be a rigid transform: an orthonormal rotation of determinant 1, a "
                f"translation, and a last row 0, 0, 0, 1, got {values.tolist()}"
            )
        values = pose_from_matrix(matrix).numpy()
    length = float(np.linalg.norm(values[3:]))
    if length < 1e-6:
        raise ValueError(f"{name} must have a quaternion (qw, qx, qy, qz) other than 0, got {pose}")
    values[3:] /= length
    return torch.from_numpy(values)


def device_poses(
    name: str, poses: Any, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    """Poses of a shape (..., 7) on a device, as rows (n, 7); values are checked in `checking` only.

    Matrices (..., 4, 4) become rows; those that are not rigid become NaN.
    """
    tensor = require_tensor(name, poses, str(shape))
    matrices = (*shape[:-1], 4, 4)
    if tensor.shape not in (shape, matrices):
        raise ValueError(
            f"{name} must have shape {shape}: x, y, z, qw, qx, qy, qz, or {matrices}, "
            f"got {shape_of(tensor)}"
        )
    if not tensor.dtype.is_floating_point:
        raise TypeError(f"{name} must be floating point, got {tensor.dtype}")
    require_device(name, tensor, device)
    if is_checking():
        for index, pose in enumerate(tensor.reshape(-1, *tensor.shape[len(shape) - 1 :])):
            check_pose(f"{name}[{index}]" if len(shape) > 1 else name, pose)
    return pose_rows(tensor)


def device_mask(name: str, mask: Any, count: int, device: torch.device) -> torch.Tensor:
    """A mask (count,) of bools or integers on a device; its values are not read."""
    mask = require_tensor(name, mask, f"({count},)")
    if mask.shape != (count,):
        raise ValueError(f"{name} must have shape (n_meshes,) = ({count},), got {shape_of(mask)}")
    if mask.dtype.is_floating_point or mask.dtype.is_complex:
        raise TypeError(f"{name} must be bool or integers, got {mask.dtype}")
    require_device(name, mask, device)
    return mask


def flag(name: str, value: Any) -> bool:
    """A bool; None, which would read as off, and text, which would read as on, are none."""
    if not isinstance(value, (bool, np.bool_, Integral)):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return bool(value)


def check_padding(name: str, value: Any) -> float:
    """A length that is finite and not negative [m]."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    number = float(value)
    if not 0.0 <= number < 1e9:
        raise ValueError(f"{name} must not be negative, and below 1e9, got {number}")
    return number


def require_int(name: str, value: Any) -> None:
    """Requires an int, of Python or NumPy."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")


def require_count(name: str, value: Any) -> None:
    """Requires an int of at least 1."""
    require_int(name, value)
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def env_set(envs: Iterable[int], end: int) -> frozenset[int]:
    """Indices of envs, at least one, each below `end`."""
    chosen = list(envs)
    if not chosen:
        raise ValueError("envs must not be empty, got none")
    for env in chosen:
        if not isinstance(env, int) or isinstance(env, bool):
            raise TypeError(f"envs must be integers, got {short_repr(env)}")
        if not 0 <= env < end:
            raise ValueError(f"envs must be from 0 to {end - 1}, got {env}")
    return frozenset(chosen)


def require_growth(name: str, value: Any, present: int) -> None:
    """Requires an int that is not below the current one."""
    require_count(name, value)
    if value < present:
        raise ValueError(f"{name} must not shrink below {present}, got {value}")


def require_number(name: str, value: Any, *, positive: bool = False, signed: bool = False) -> None:
    """Requires a finite number that is not negative, or positive, or of any sign."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    _require_range(name, float(value), positive, signed, True)


def require_name(name: str, value: Any) -> None:
    """Requires a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be text that is not empty, got {value!r}")


def require_mapping(name: str, value: Any, rule: str) -> None:
    """Requires a mapping; the rule is for the message."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be {rule}, got {type(value).__name__}")


def is_trimesh(value: Any) -> TypeIs[trimesh.Trimesh]:
    """Whether something is a `trimesh.Trimesh`; trimesh is not imported, which takes long."""
    return _is_of_trimesh("Trimesh", value)


def is_scene(value: Any) -> TypeIs[trimesh.Scene]:
    """Whether something is a `trimesh.Scene`."""
    return _is_of_trimesh("Scene", value)


def _is_of_trimesh(name: str, value: Any) -> bool:
    kind = getattr(sys.modules.get("trimesh"), name, None)
    return kind is not None and isinstance(value, kind)
