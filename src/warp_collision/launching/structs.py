"""Structs of kernels in device memory, to which tables and other structs point."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.launching.warp_runtime import quiet_warp


def offset_in(kind: Any, name: str) -> int:
    """Where a field stands in a struct, in bytes."""
    layout: dict[str, Any] = kind.numpy_dtype()
    return layout["offsets"][layout["names"].index(name)]


def upload_struct(value: Any, kind: Any, device: torch.device) -> Tensor:
    """A struct as bytes (1, n) on a device.

    Args:
        value: an instance.
        kind: its type, as `wp.struct` made it.
        device: where to.
    """
    with quiet_warp():
        host = wp.array([value], dtype=kind, device="cpu").numpy()
    return torch.from_numpy(np.frombuffer(host.tobytes(), np.uint8).copy()).to(device)[None]
