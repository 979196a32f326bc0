"""Which lines of the package only a GPU reaches, and which of them tests on the simulated one ran.

`pytest --simulated --gpu-lines` says how many of them the chosen tests executed, and which not; the
processes of pytest-xdist add up. Of device code there is another proof: with `--ptx` all of it is
what a GPU would run.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch.autograd.function import BackwardCFunction

import warp_collision

ROOT = Path(warp_collision.__file__).parent
# What conditions say of devices, as Python writes it, and whether it holds on a GPU.
_SIGNS = (
    *(("is_gpu(", True), ("is_capturing(", True), (" in GPUS", True), ("_has_several(", True)),
    *((" != CPU", True), (".type != 'cpu'", True), (" == CPU", False), (".type == 'cpu'", False)),
)


def _asks(condition: ast.expr) -> bool | None:
    """Whether a condition holds on a GPU alone, or everywhere but there; None: it asks nothing."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        inner = _asks(condition.operand)
        return None if inner is None else not inner
    if isinstance(condition, ast.BoolOp):
        # What is joined by "and" holds on a GPU alone if one part does; by "or", if all do.
        parts = [_asks(part) for part in condition.values]
        decides = isinstance(condition.op, ast.And)
        if decides in parts:
            return decides
        return parts[0] if len(set(parts)) == 1 else None
    text = ast.unparse(condition)
    return next((on_gpu for sign, on_gpu in _SIGNS if sign in text), None)


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether nothing behind a block is reached from it."""
    return isinstance(block[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _statements(block: list[ast.stmt]) -> Iterator[int]:
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
                yield node.lineno


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def lines_of(path: Path) -> set[int]:
    """The lines of a module that only a GPU reaches."""
    found: set[int] = set()
    for block in _blocks(ast.parse(path.read_text())):
        for place, statement in enumerate(block):
            if not isinstance(statement, ast.If):
                continue
            on_gpu = _asks(statement.test)
            if on_gpu:
                found.update(_statements(statement.body))
            elif on_gpu is False:
                found.update(_statements(statement.orelse))
                if _leaves(statement.body):
                    found.update(_statements(block[place + 1 :]))
    return found


class Recorder:
    """The lines that ran, in this process since `start`, or in others.

    Attributes:
        lines: that only a GPU reaches, by file.
        ran: which of them, by file.
    """

    def __init__(self) -> None:
        self.lines = {str(p): n for p in sorted(ROOT.rglob("*.py")) if (n := lines_of(p))}
        self.ran: dict[str, set[int]] = {name: set() for name in self.lines}
        self._tracers: dict[int, Any] = {}
        self._codes: list[CodeType] = []
        self._backward: Any = BackwardCFunction.apply

    def start(self) -> None:
        """Records from now on, in all threads."""

        def backward(node: Any, *upstream: Any) -> Any:
            sys.settrace(self._call)  # in torch's own threads, of which Python knows nothing
            return self._backward(node, *upstream)

        BackwardCFunction.apply = backward
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> dict[str, list[int]]:
        """What ran, for other processes."""
        BackwardCFunction.apply = self._backward
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return {name: sorted(self.lines[name] & ran) for name, ran in self.ran.items()}

    def add(self, ran: dict[str, list[int]]) -> None:
        """Adds what ran in another process."""
        for name, lines in ran.items():
            self.ran[name].update(lines)

    def missing(self) -> dict[str, list[int]]:
        """The lines that did not run, of files that have some."""
        found = {name: sorted(lines - self.ran[name]) for name, lines in self.lines.items()}
        return {name: lines for name, lines in found.items() if lines}

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        # For every call of all Python: codes are known by their places, as their hash is slow.
        code = frame.f_code
        try:
            return self._tracers[id(code)]
        except KeyError:
            lines = {line for *_, line in code.co_lines() if line is not None}
            is_wanted = not self.lines.get(code.co_filename, set()).isdisjoint(lines)
            self._tracers[id(code)] = tracer = self._line if is_wanted else None
            self._codes.append(code)  # so that no other takes its place
            return tracer

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.ran[frame.f_code.co_filename].add(frame.f_lineno)
        return self._line

    def report(self) -> Iterator[str]:
        """How many ran, and those that did not."""
        total, missing = sum(map(len, self.lines.values())), self.missing()
        yield f"{total - sum(map(len, missing.values()))} of {total} lines ran"
        for name, lines in missing.items():
            yield f"{Path(name).relative_to(ROOT)}: {', '.join(map(str, lines))}"
