"""Helpers for torch devices: CUDA graph capture and synchronisation."""

from __future__ import annotations

import torch

# Comparing devices is faster than reading the type of one.
CPU = torch.device("cpu")


def is_capturing(device: torch.device) -> bool:
    """Whether work on a device is captured in a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def synchronize(device: torch.device) -> None:
    """Waits for torch's current stream, so that other streams may read its results."""
    if device.type == "cuda" and not is_capturing(device):
        torch.cuda.current_stream(device).synchronize()
