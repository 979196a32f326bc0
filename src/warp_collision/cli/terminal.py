"""Text on a terminal: names cannot control it, and one that cannot encode them changes nothing."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, TextIO

from warp_collision.messages import escaped


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


class Parser(argparse.ArgumentParser):
    """A parser of arguments that prints what it repeats of them by `print_text`."""

    def _print_message(self, message: str, file: Any = None) -> None:
        print_text(message, file or sys.stderr, end="")
