"""OpenUSD in the worker process: its modules, and errors that begin with the name of a prim."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from warp_collision.messages import MAX_REPR, escaped, one_line


def openusd(name: str) -> Any:
    """A module of OpenUSD, whose types no checker knows."""
    return importlib.import_module(f"pxr.{name}")


class PrimError(ValueError):
    """An error that begins with the name of a prim."""


@contextlib.contextmanager
def errors_name(name: str) -> Iterator[None]:
    """Any error begins with the name of a prim, that of the innermost one."""
    try:
        yield
    except PrimError:
        raise
    except Exception as error:
        raise PrimError(f"{escaped(name, MAX_REPR)}: {one_line(error)}") from error
