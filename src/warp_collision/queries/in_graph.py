"""Calls of Functions in graphs of `torch.compile` and `torch.export`.

The compiler puts these calls into its graph untraced, and runs them to take derivatives. A traced
Function would have neither forward mode nor batching, and would lose its backward inside
`torch.func.grad`.
"""

from __future__ import annotations

from typing import Any

import torch

from warp_collision.queries.functions import FUNCTIONS


@torch.compiler.allow_in_graph
def apply_in_graph(function: str, *operands: Any) -> Any:
    """See `dispatch.apply`."""
    return FUNCTIONS[function](True, *operands)
