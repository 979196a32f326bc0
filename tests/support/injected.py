"""Failures at each place of a call: memory that runs out, and Ctrl-C at each line."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import warp as wp
from torch.utils._python_dispatch import TorchDispatchMode

import warp_collision

PACKAGE = str(Path(warp_collision.__file__).parent)


def some(count: int, most: int) -> list[int]:
    """At most so many of 0 to count - 1, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, most))})


class _Memory(TorchDispatchMode):
    """Lets a number of allocations succeed, and none after these."""

    def __init__(self, most: float):
        super().__init__()
        self.most, self.count = most, 0

    def allocate(self) -> None:
        self.count += 1
        if self.count > self.most:
            raise MemoryError(f"allocation {self.count} fails here")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(result.alias_info is None for result in func._schema.returns):
            self.allocate()
        return func(*args, **(kwargs or {}))


class memory_for:
    """Memory for so many tensors, arrays, meshes and trees; counts them."""

    def __init__(self, most: float):
        self._memory = _Memory(most)
        self._patched = [
            patch.object(owner, name, self._counted(getattr(owner, name)))
            for owner, name in ((wp, "Mesh"), (wp, "Bvh"), (wp, "array"))
        ]

    @property
    def count(self) -> int:
        return self._memory.count

    def _counted(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._memory.allocate()
            return make(*args, **kwargs)

        return call

    def __enter__(self) -> "memory_for":
        for each in self._patched:
            each.start()
        self._memory.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._memory.__exit__(*raised)
        for each in self._patched:
            each.stop()


@cache
def _lines_of_with(path: str) -> frozenset[int]:
    """Lines on which blocks of `with` begin, to which Python goes back as they end."""
    return frozenset(
        line
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.With)
        for line in range(node.lineno, node.body[0].lineno)
    )


@cache
def _first_lines_of_try(path: str) -> frozenset[int]:
    """Lines of `try`, and the first ones of their blocks and of their `finally`."""
    blocks = [
        node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.Try)
    ]
    first = [block[0].lineno for node in blocks for block in (node.body, node.finalbody) if block]
    return frozenset([*first, *(node.lineno for node in blocks)])


class interrupt_at:
    """Ctrl-C as the n-th line of the package begins, of those in files that match; counts them.

    Not between the end of a block of `with` and its exit, or between an assignment and the `try` or
    `finally` that follows it: Python looks for signals after calls and where functions begin.
    """

    def __init__(self, line: float, *folders: str):
        self.line, self.count = line, 0
        self._roots = tuple(f"{PACKAGE}/{folder}" for folder in folders)
        self._entered: set[tuple[FrameType, int]] = set()

    def __enter__(self) -> "interrupt_at":
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        self._entered.clear()

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._roots) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "line":
            return self._line
        if frame.f_lineno in _lines_of_with(frame.f_code.co_filename):
            if (frame, frame.f_lineno) in self._entered:
                return self._line
            self._entered.add((frame, frame.f_lineno))
        if frame.f_lineno in _first_lines_of_try(frame.f_code.co_filename):
            return self._line
        self.count += 1
        if self.count == self.line:
            raise KeyboardInterrupt(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return self._line
