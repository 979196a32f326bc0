"""What commands share: exit statuses, kinds of arguments, the device, warnings, files to write.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warp_collision.cli.interrupts import INTERRUPTS
from warp_collision.cli.terminal import print_stderr
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

FREE, COLLISION, BAD_INPUT, INTERNAL_ERROR = 0, 1, 2, 3  # exit statuses


def count(text: str, least: int = 2) -> int:
    """An argument that is a whole number of at least 2."""
    if not text.isdecimal() or int(text) < least:
        wanted = f"a whole number of at least {least}"
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return int(text)


def at_least_one(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    return count(text, 1)


def distance(text: str) -> float:
    """An argument that is a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return value


def positive(text: str) -> float:
    """An argument that is a number above 0."""
    value = distance(text)
    if value == 0.0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def numbers(name: str, words: Sequence[str], *, finite: bool = False) -> list[float]:
    """Numbers of an option, separated by spaces or commas; NaN where there are none."""
    texts = [text for word in words for text in word.split(",") if text.strip()]
    try:
        values = [float(text) for text in texts] or [math.nan]
    except ValueError:
        values = []
    if not values or (finite and not all(map(math.isfinite, values))):
        wanted, got = "finite numbers" if finite else "numbers", escaped(" ".join(words), 100)
        raise ValueError(f"{option_name(name)} must be {wanted}, got {got!r}")
    return values


def option_name(name: str) -> str:
    """An option as users write it, of the name of its attribute."""
    return f"--{name.replace('_', '-')}"


def start(name: str | None) -> torch.device:
    """Starts Warp on the device of a name, by default a GPU if there is one, else the CPU.

    Without Warp's greeting and, on the CPU, without its warning of a missing GPU.
    """
    device = _started(name)
    if INTERRUPTS.at_once:
        importlib.import_module("warp_collision.robot")
        INTERRUPTS.at_once = False
    return device


def _started(name: str | None) -> torch.device:
    import warp as wp

    from warp_collision import devices
    from warp_collision.launching.warp_runtime import silence_warp

    try:
        device = devices.canonical_device(devices.preferred_device() if name is None else name)
    except (RuntimeError, ValueError):  # torch knows no such type of device, or there is none
        found = devices.describe_gpus()
        raise ValueError(f"--device must be cpu or cuda ({found}), got {name!r}") from None
    silence_warp()
    if device.type != "cpu":
        wp.init()
        return device
    # Warp's native library writes the warning, whatever the log level, so the file is set aside.
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        wp.init()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    return device


def add_waypoints(parser: argparse.ArgumentParser) -> None:
    """Adds the number of waypoints of a path."""
    parser.add_argument(
        "--waypoints",
        type=count,
        default=32,
        metavar="N",
        help="number of waypoints (default 32)",
    )


def add_picture(
    parser: argparse.ArgumentParser, default: Path | None, words: str, otherwise: str
) -> None:
    """Adds the file of a picture, and the flag for no picture; words say what the default is."""
    parser.add_argument(
        "--picture",
        type=Path,
        default=default,
        metavar="PNG",
        help=f"the picture to write (default {words}); an existing file is overwritten",
    )
    parser.add_argument("--no-picture", dest="draws", action="store_false", help=otherwise)


@contextlib.contextmanager
def warnings_printed() -> Iterator[None]:
    """Prints warnings as lines, at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print_stderr(f"warning: {warning.message}")


class OutputFiles:
    """Files that a command writes, and the report on them.

    Args:
        files: by option, None for one that is not wanted. Each must be in an existing folder; one
            that exists is overwritten.
    """

    def __init__(self, **files: Path | None):
        wanted = {name: path for name, path in files.items() if path is not None}
        for name, path in wanted.items():
            if not path.absolute().parent.is_dir():
                raise FileNotFoundError(
                    f"{option_name(name)} must be in an existing folder, got {str(path)!r}"
                )
        self._existed = {path: path.exists() for path in wanted.values()}
        self._written: list[Path] = []

    def add(self, path: Path) -> None:
        """Records a file as written."""
        self._written.append(path)

    def left(self) -> list[Path]:
        """Files that existed before and have not been written."""
        return [path for path, was in self._existed.items() if was and path not in self._written]

    def lines(self) -> list[str]:
        """A line for each file that was written, overwritten or left as it was."""
        found = [
            f"{'overwrote' if self._existed[path] else 'written'}: {escaped(str(path))}"
            for path in self._written
        ]
        return [*found, *(f"of an earlier run: {escaped(str(path))}" for path in self.left())]

    def summary(self) -> dict[str, Any]:
        """The same for JSON."""
        overwrote = [str(path) for path in self._written if self._existed[path]]
        return {
            "written": [str(path) for path in self._written],
            "overwrote": overwrote,
            "of_an_earlier_run": [str(path) for path in self.left()],
        }
