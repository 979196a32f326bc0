"""Libraries that the package does not depend on: which extra installs each of them."""

from __future__ import annotations

import importlib.util

# Of each module: the name of its package, and the extra of this package that installs it.
EXTRAS = {
    "av": ("PyAV", "viz"),
    "h5py": ("h5py", "label"),
    "matplotlib": ("matplotlib", "viz"),
    "mujoco": ("mujoco", "mujoco"),
    "pxr.Usd": ("usd-core", "usd"),
    "pyarrow": ("pyarrow", "label"),
    "ray.data": ("Ray Data", "ray"),
    "viser": ("viser", "view"),
    "yaml": ("PyYAML", "io"),
}


def is_installed(module: str) -> bool:
    """Returns whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that the module is in
        return False


def require_extra(module: str, purpose: str) -> None:
    """Requires a library that an extra of this package installs.

    Args:
        module: the module of the library, one of `EXTRAS`.
        purpose: what needs it; the error begins with it.

    Raises:
        ModuleNotFoundError: the library is not installed.
    """
    if not is_installed(module):
        package, extra = EXTRAS[module]
        raise ModuleNotFoundError(
            f"{purpose} needs {package}: pip install 'warp-collision[{extra}]'", name=module
        )
