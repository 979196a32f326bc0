"""Shared by all commands: exit statuses, types of arguments, the device, the start of Warp.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FREE, COLLISION, BAD_INPUT, INTERNAL_ERROR = 0, 1, 2, 3  # exit statuses


def count(text: str) -> int:
    """An argument that is a whole number of at least 2."""
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 2, got {text!r}")
    return int(text)


def distance(text: str) -> float:
    """An argument that is a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return value


def column(text: str) -> tuple[str, str]:
    """An argument ROLE=NAME: what a column of a table holds."""
    role, _, name = text.partition("=")
    if not role or not name:
        raise argparse.ArgumentTypeError(f"must be ROLE=NAME, got {text!r}")
    return role, name


def find_device(name: str | None) -> torch.device:
    """The device of a name; by default a GPU if there is one, else the CPU."""
    from warp_collision import devices

    try:
        return devices.canonical_device(devices.preferred_device() if name is None else name)
    except (RuntimeError, ValueError):  # torch knows no such type of device, or there is none
        found = devices.describe_gpus()
        raise ValueError(f"--device must be cpu or cuda ({found}), got {name!r}") from None


def start_warp(device: torch.device) -> None:
    """Starts Warp without its greeting and, on the CPU, without its warning of a missing GPU."""
    import warp as wp

    from warp_collision.launching.warp_runtime import silence_warp

    silence_warp()
    if device.type != "cpu":
        wp.init()
        return
    # Warp's native library writes the warning, whatever the log level, so the file is set aside.
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        wp.init()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
