"""The colours of all pictures: told apart by the colour-blind too, on light and on dark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating]
Color = tuple[float, float, float]


def _rgb(text: str) -> Color:
    red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


# Blue and orange, of different lightness: nobody confuses these two.
FREE, HIT = _rgb("#0072b2"), _rgb("#d55e00")
OBSTACLE: Color = (0.42, 0.58, 0.76)
UNSEEN: Color = (0.62, 0.55, 0.72)  # space that no camera saw
DISABLED: Color = (0.62, 0.62, 0.62)
UNCOVERED: Color = HIT
UNPROVEN: Color = (0.55, 0.55, 0.55)  # a path of which nothing is known yet
ATTACHED: Color = _rgb("#009e73")
BARE: Color = _rgb("#cc79a7")  # links without spheres

NEAR = 0.02  # m, below which a sphere is marked
FAR = 0.1  # m, the clearance from which on nothing changes
# Clearance [m] and colour; the lightness rises from one end to the other.
_CLEARANCES = (
    (-0.1, _rgb("#240433")),
    (-0.03, _rgb("#9c1c4a")),
    (0.0, _rgb("#d55e00")),
    (0.0, _rgb("#f0a830")),
    (NEAR, _rgb("#f5d76a")),
    (0.05, _rgb("#b9dcec")),
    (FAR, _rgb("#e4eff5")),
)


@dataclass(frozen=True)
class Theme:
    """The colours that depend on the background.

    Attributes:
        paper: behind text.
        wall: the room at the top.
        floor: the room at the bottom.
        ink: text.
        outline: of bodies.
        robot: its links.
        plain: accent of a path that is not proven free.
        proven: accent of one that is.
        label: behind labels.
    """

    paper: Color
    wall: Color
    floor: Color
    ink: Color
    outline: Color
    robot: Color
    plain: Color
    proven: Color
    label: Color

    def accent(self, is_free: bool) -> Color:
        """The colour of a path by its result."""
        return self.proven if is_free else self.plain


THEMES = {
    "light": Theme(
        paper=_rgb("#fbfcfd"),
        wall=(0.965, 0.973, 0.982),
        floor=(0.90, 0.92, 0.945),
        ink=_rgb("#22303f"),
        outline=(0.10, 0.16, 0.24),
        robot=(0.93, 0.93, 0.92),
        plain=_rgb("#b34700"),
        proven=_rgb("#005f94"),
        label=(1.0, 1.0, 1.0),
    ),
    "dark": Theme(
        paper=_rgb("#14191f"),
        wall=(0.11, 0.14, 0.17),
        floor=(0.18, 0.21, 0.25),
        ink=_rgb("#dfe6ec"),
        outline=(0.02, 0.03, 0.05),
        robot=(0.80, 0.81, 0.82),
        plain=_rgb("#ff9a4d"),
        proven=_rgb("#6fc3f2"),
        label=(0.13, 0.16, 0.19),
    ),
}


def theme_of(background: str) -> Theme:
    """Returns a theme by name.

    Raises:
        ValueError: There is no such theme.
    """
    if background not in THEMES:
        raise ValueError(f"background must be one of {', '.join(THEMES)}, got {background!r}")
    return THEMES[background]


def clearance_colors(clearance: ArrayLike) -> Floats:
    """Returns colours (..., 3) from 0 to 1 of clearances (...) [m].

    NaN, which is never free, has the colour of the deepest.

    Example:
        >>> from warp_collision.viewer.colors import clearance_colors
        >>> clearance_colors([-1.0, 1.0]).round(2).tolist()
        [[0.14, 0.02, 0.2], [0.89, 0.94, 0.96]]
    """
    values = np.nan_to_num(np.asarray(clearance, float), nan=-1.0, posinf=1.0, neginf=-1.0)
    knots = np.array([value for value, _ in _CLEARANCES])
    knots[2] -= 1e-9  # so that zero itself, which touches nothing, is free
    colors = np.array([color for _, color in _CLEARANCES])
    return np.stack([np.interp(values, knots, colors[:, i]) for i in range(3)], axis=-1)
