"""Libraries of the package's extras, which only some kinds of files need."""

from __future__ import annotations

import importlib
from typing import Any


def import_extra(module: str, purpose: str, package: str, extra: str) -> Any:
    """Imports a library that may not be installed.

    Args:
        module: its module.
        purpose: what needs it, with which the error begins.
        package: what it is called.
        extra: the extra that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {package}: pip install 'warp-collision[{extra}]'"
        ) from error
