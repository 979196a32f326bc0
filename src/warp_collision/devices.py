"""What torch's devices need beyond torch's own functions."""

from __future__ import annotations

import torch

# Comparing devices is a good deal cheaper than asking one for its type.
CPU = torch.device("cpu")


def is_capturing(device: torch.device) -> bool:
    """Whether work on a device goes into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def synchronize(device: torch.device) -> None:
    """Waits for torch's current stream, so that any stream may read what it wrote."""
    if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(device).synchronize()
