"""What results look like: one line with shapes and ranges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warp_collision import torch_private

_MOST_ENTRIES = 4  # of a tuple that is shown


def summary(self: Any) -> str:
    """`__repr__` of a named tuple: shapes of its tensors, and ranges of numbers on the CPU.

    Example:
        >>> import torch
        >>> from warp_collision.costs import SignedDistance
        >>> distance = torch.tensor([[0.0, 1.0]])
        >>> SignedDistance(distance, torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.int32))
        SignedDistance(distance=(1, 2) 0 to 1, gradient=(1, 2, 3) 0 to 0, obstacle=(1, 2) 0 to 0)
    """
    parts = (f"{name}={_text(getattr(self, name))}" for name in self._fields)
    return f"{type(self).__name__}({', '.join(parts)})"


def _text(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > _MOST_ENTRIES:
        return f"{len(value)} entries"
    if not isinstance(value, Tensor):
        return repr(value)
    shape = str(tuple(value.shape))
    if torch_private.has_hidden_values(value) or value.device.type != "cpu" or value.numel() == 0:
        return shape
    if value.dtype is torch.bool:
        return f"{shape} {int(value.sum())} true"
    value = value.detach()
    n_nan = int(value.isnan().sum())
    if n_nan == value.numel():
        return f"{shape} NaN"
    low, high = (f"{getattr(value[~value.isnan()], name)().item():.4g}" for name in ("min", "max"))
    return f"{shape} {low} to {high}" + (f", {n_nan} NaN" if n_nan else "")
