"""Text on a terminal: what is not printable, or cannot be encoded, is escaped; tables, numbers."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, NoReturn, Self, TextIO

from warp_collision.messages import escaped

_CLEAR_LINE = "\r\x1b[K"
_LOG_SECONDS = 60.0  # between two lines of progress where standard error is no terminal
_NUMBER = re.compile(r"[-+]?(\d{1,40}\.?\d{0,40}|\.\d{1,40})([eE][-+]?\d{1,2})?")


def print_text(text: str, stream: TextIO | None = None, *, end: str = "\n") -> None:
    """Prints lines; characters that the stream cannot encode or that are unprintable are escaped.

    Args:
        text: lines, of which each is escaped by itself.
        stream: by default standard output. A reader that has gone away is no error.
        end: what follows the text.
    """
    stream = stream or sys.stdout
    if stream is None:  # it was closed before the program started
        return
    encoding = stream.encoding or "utf-8"
    text = "\n".join(escaped(line) for line in text.split("\n"))
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(text, file=stream, end=end, flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_stderr(text: str) -> None:
    """Prints a line on standard error, behind the name of the program."""
    print_text(f"warp-collision: {text}", sys.stderr)


def for_json(value: Any) -> Any:
    """A value of a report as JSON has it: numbers that are not finite are null."""
    if isinstance(value, dict):
        return {name: for_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(summary: dict[str, Any]) -> None:
    """Prints a report as JSON."""
    print_text(json.dumps(for_json(summary), indent=1, allow_nan=False))


def align(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Pads cells so that columns line up.

    Args:
        rows: the cells, the same number in each row; the first row may be the head.
        right: the columns that are aligned to the right, as numbers are.

    Returns:
        A line for each row, without spaces at its end.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def plain_numbers(arguments: Sequence[str]) -> list[str]:
    """Negative numbers as argparse knows them from options.

    It takes `-1e-1`, `-1.` and `-1,2` for options; here they become `-0.1`, `-1`, and `-1` and `2`.

    Example:
        >>> from warp_collision.cli.terminal import plain_numbers
        >>> plain_numbers(["--start", "-1e-1", "-0.5,2", "--json"])
        ['--start', '-0.1', '-0.5', '2', '--json']
    """
    plain: list[str] = []
    for argument in arguments:
        words = argument.rstrip(",").split(",")
        if argument.startswith("-") and all(map(_NUMBER.fullmatch, words)):
            plain += [format(Decimal(word), "f") for word in words]
        else:
            plain.append(argument)
    return plain


class StatusLine:
    """One line on standard error, written again and again, where that is a terminal.

    Args:
        shown: whether anything is written at all.
    """

    def __init__(self, shown: bool = True):
        self._shown = shown and sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.write("")

    def write(self, text: str) -> None:
        """Writes a text in place of the one before."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            print_text(text, sys.stderr, end="")


class Progress(StatusLine):
    """How much is done, and how long the rest may take; a line a minute off a terminal.

    Args:
        total: of what is counted, None where it is not known.
        what: the plural of what is counted.
        shown: whether anything is written at all.
        done: how much was done before.
    """

    def __init__(self, total: int | None, what: str, *, shown: bool = True, done: int = 0):
        super().__init__(shown)
        self._logs = shown and not self._shown and sys.stderr is not None
        self._total, self._what, self._done = total, what, done
        self._begin = self._logged = time.monotonic()

    def show(self, done: int, told: str = "") -> None:
        """Writes how much is done."""
        count = f"{done:,}" if self._total is None else f"{done:,} of {self._total:,}"
        parts = [f"{count} {self._what}", told]
        now, new = time.monotonic(), done - self._done
        if self._total is not None and new > 0 and done < self._total:
            left = (now - self._begin) * (self._total - done) / new
            parts.append(f"{left / 60:.0f} min left" if left > 90 else f"{left:.0f} s left")
        text = ", ".join(part for part in parts if part)
        self.write(text)
        if self._logs and now - self._logged >= _LOG_SECONDS:
            self._logged = now
            print_text(text, sys.stderr)


class Parser(argparse.ArgumentParser):
    """A parser of arguments whose messages are printed by `print_text`."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with one line: a usage of many options would hide it."""
        self.exit(2, f"{self.prog}: error: {message}; {self.prog} --help lists the options\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        print_text(message, file or sys.stderr, end="")
