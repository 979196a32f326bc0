"""Structs of kernels in device memory, to which tables and other structs point."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import CPU, sent


def offset_in(kind: Any, name: str) -> int:
    """Where a field stands in a struct, in bytes."""
    return getattr(kind.ctype, name).offset


def upload_struct(value: Any, device: torch.device) -> Tensor:
    """An instance of a Warp struct as bytes (1, n) on a device."""
    # Not by a NumPy dtype: each time NumPy parses its fields with Python's own parser, which
    # threads of Python 3.11 upset for each other (CPython issue 106905).
    return torch.from_numpy(np.frombuffer(value.__ctype__(), np.uint8).copy()).to(device)[None]


def sent_struct(value: Any, device: torch.device) -> Tensor:
    """The same for work on torch's current stream, without a wait; see `devices.sent`."""
    return sent(upload_struct(value, CPU), device)


@functools.cache
def dtype_of(kind: Any) -> np.dtype[Any]:
    """The NumPy dtype of a Warp struct, parsed once."""
    return np.dtype(kind.numpy_dtype())
