"""Lengths that are more likely millimetres than metres."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from warp_collision.messages import depth_of_caller

# What a robot sees is smaller [m]; a scene in millimetres is not.
LARGE = 100.0


class UnitsWarning(UserWarning):
    """Lengths that may be in millimetres.

    Example:
        >>> import warnings
        >>> from warp_collision import PointCloud, UnitsWarning
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always", UnitsWarning)
        ...     _ = PointCloud([[0, 0, 0], [900, 0, 400]], radius=5)
        >>> print(caught[0].message)
        points must be in metres, got a cloud of 900 x 0 x 400 m; multiply millimetres by 0.001
    """


def warn_of_units(text: str) -> None:
    """Warns at the line that called the library."""
    warnings.warn(UnitsWarning(text), stacklevel=depth_of_caller())


def warn_of_extent(name: str, what: str, extents: Sequence[float], most: float = LARGE) -> None:
    """Warns of something that is larger than its kind ever is.

    Args:
        name: of the argument.
        what: it is, for the message.
        extents: along x, y, z [m].
        most: how large it may be along each of them [m].
    """
    if max(extents) > most:
        x, y, z = extents
        warn_of_units(
            f"{name} must be in metres, got {what} of {x:.3g} x {y:.3g} x {z:.3g} m; multiply "
            "millimetres by 0.001"
        )
