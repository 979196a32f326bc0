"""Labels of a picture: placed beside what they name, none over another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_GAP = 6.0  # pixels between two labels
_TURNS = 16  # directions that are tried, upwards first
_REACHES = (34.0, 60.0, 95.0, 140.0, 200.0, 270.0)  # pixels from what is named


class Label(NamedTuple):
    """A text, and what it points to.

    Attributes:
        text: one line.
        anchor: (x, y) of what it names, in pixels from the top left.
        is_alarm: whether it tells of a collision.
    """

    text: str
    anchor: tuple[float, float]
    is_alarm: bool = False


class Box(NamedTuple):
    """A rectangle in pixels from the top left."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box, gap: float = 0.0) -> bool:
        """Whether two rectangles are nearer to each other than a gap in x and in y."""
        return (
            self.left < other.right + gap
            and other.left < self.right + gap
            and self.top < other.bottom + gap
            and other.top < self.bottom + gap
        )


def place_labels(
    anchors: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    bounds: Box,
    taken: Sequence[Box] = (),
) -> list[Box | None]:
    """Returns where labels stand; None for those that find no room, the first ones find it first.

    Args:
        anchors: (x, y) of what each names.
        sizes: (width, height) of each.
        bounds: in which all stay.
        taken: rectangles that are kept free.

    Example:
        >>> from warp_collision.viewer.labels import Box, place_labels
        >>> boxes = place_labels([(100, 100)] * 2, [(40, 12)] * 2, Box(0, 0, 200, 200))
        >>> boxes[0].overlaps(boxes[1])
        False
    """
    placed: list[Box | None] = []
    filled = list(taken)
    points = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in anchors]
    for (x, y), (width, height) in zip(anchors, sizes, strict=True):
        found = None
        if bounds.left <= x <= bounds.right and bounds.top <= y <= bounds.bottom:
            for box in _candidates(x, y, width, height, bounds):
                others = [point for point in points if point.overlaps(Box(x, y, x, y)) is False]
                if not any(box.overlaps(other, _GAP) for other in [*filled, *others]):
                    found = box
                    break
        placed.append(found)
        if found is not None:
            filled.append(found)
    return placed


def _candidates(x: float, y: float, width: float, height: float, bounds: Box) -> Iterator[Box]:
    for reach in _REACHES:
        for turn in range(_TURNS):
            # Up, then alternately to both sides.
            angle = math.pi * (0.5 + (turn + 1) // 2 * (-1) ** turn * 2.0 / _TURNS)
            dx, dy = math.cos(angle), -math.sin(angle)
            middle = x + dx * (reach + 0.5 * width), y + dy * (reach + 0.5 * height)
            box = Box(
                middle[0] - 0.5 * width, middle[1] - 0.5 * height,
                middle[0] + 0.5 * width, middle[1] + 0.5 * height,
            )  # fmt: skip
            if (
                box.left >= bounds.left
                and box.top >= bounds.top
                and box.right <= bounds.right
                and box.bottom <= bounds.bottom
            ):
                yield box
