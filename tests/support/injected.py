"""Failures at each place of a call: memory that runs out, and Ctrl-C at each line."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar
from unittest.mock import patch

import numpy as np
import warp as wp
from torch.utils._python_dispatch import TorchDispatchMode

import warp_collision

PACKAGE = str(Path(warp_collision.__file__).parent)
_Edited = TypeVar("_Edited")


def some(count: int, most: float) -> list[int]:
    """At most so many of 0 to count - 1, the first and the last among them; `inf` for all."""
    return sorted({round(place) for place in np.linspace(0, count - 1, int(min(count, most)))})


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
def _lines_of_comprehensions(path: str) -> frozenset[int]:
    """Those of Python 3.12 and later, where they are part of the function around them.

    What a tracer raises there passes by the blocks of `with` and `try` around them. An error and
    Ctrl-C do not.
    """
    if sys.version_info < (3, 12):
        return frozenset()
    return frozenset(
        line
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
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
        if frame.f_lineno in _lines_of_comprehensions(frame.f_code.co_filename):
            return self._line
        if frame.f_lineno in _first_lines_of_try(frame.f_code.co_filename):
            return self._line
        self.count += 1
        if self.count == self.line:
            raise KeyboardInterrupt(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return self._line


class Trial(Generic[_Edited]):
    """An edit of something that fails is as none, or as a whole one; done again it is a whole one.

    Args:
        make: makes what is edited, equal each time.
        edit: the edit.
        content: all that it may change, to be compared.
        folders: in whose files of the package lines are interrupted.
    """

    def __init__(
        self,
        make: Callable[[], _Edited],
        edit: Callable[[_Edited], object],
        content: Callable[[_Edited], object],
        folders: tuple[str, ...],
    ):
        self._make, self._edit, self._content, self._folders = make, edit, content, folders
        edit(make())  # the first launches of kernels are recorded: more lines, once
        self._was, self._becomes = content(make()), content(self._edited(memory_for(np.inf)))

    def _edited(self, counter: Any) -> _Edited:
        edited = self._make()
        with counter:
            self._edit(edited)
        return edited

    def memory(self, most: float) -> None:
        """Memory that runs out at this many of its allocations; none where it needs none."""
        self._edited(counter := memory_for(np.inf))
        for allowed in some(counter.count, most):
            self._fails(MemoryError, memory_for(allowed))

    def interrupts(self, most: float) -> None:
        """Ctrl-C at this many of its lines."""
        self._edited(counter := interrupt_at(np.inf, *self._folders))
        assert counter.count > 0
        for before in some(counter.count, most):
            failure = interrupt_at(before + 1, *self._folders)
            # An edit has a few lines less where nothing waits to be freed.
            if not self._fails(KeyboardInterrupt, failure):
                assert failure.count > 0.9 * counter.count

    def _fails(self, error: type[BaseException], failure: Any) -> bool:
        """Whether it did fail."""
        edited, where = self._make(), ""
        try:
            with failure:
                self._edit(edited)
        except error as raised:
            where = str(raised)
        found = self._content(edited)
        assert found in (self._was, self._becomes), where or "the whole edit"
        if found == self._was and self._was != self._becomes:
            self._edit(edited)
            assert self._content(edited) == self._becomes, f"again, after: {where}"
        return bool(where)
