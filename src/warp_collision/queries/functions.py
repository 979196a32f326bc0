"""Autograd Functions by name, as compiled graphs refer to them; see `dispatch.apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Each takes whether a graph is being traced, and its operands.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
