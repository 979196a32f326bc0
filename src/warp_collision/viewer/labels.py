"""Labels of a picture: placed beside what they name, none over another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from warp_collision.viewer.colors import Floats

_GAP = 6.0  # pixels between two labels
_TURNS = 16  # directions that are tried, upwards first
_EDGE = 0.04  # step of a colour between two pixels, from 0 to 1, from which on something is there
_FARTHEST = 500.0  # pixels from what is named that are as bad as a box full of edges
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
    image: Floats | None = None,
) -> list[Box | None]:
    """Returns where labels stand; None for those that find no room, the first ones find it first.

    They stand near to what they name, and where they hide little.

    Args:
        anchors: (x, y) of what each names.
        sizes: (width, height) of each.
        bounds: in which all stay.
        taken: rectangles that are kept free.
        image: (height, width, 3) from 0 to 1, what is below them.

    Example:
        >>> from warp_collision.viewer.labels import Box, place_labels
        >>> boxes = place_labels([(100, 100)] * 2, [(40, 12)] * 2, Box(0, 0, 200, 200))
        >>> boxes[0].overlaps(boxes[1])
        False
    """
    placed: list[Box | None] = []
    filled = list(taken)
    points = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in anchors]
    edges = None if image is None else _edges(image)
    for (x, y), (width, height) in zip(anchors, sizes, strict=True):
        found, least = None, math.inf
        if bounds.left <= x <= bounds.right and bounds.top <= y <= bounds.bottom:
            others = [point for point in points if point.overlaps(Box(x, y, x, y)) is False]
            for box, reach in _candidates(x, y, width, height, bounds):
                cost = reach / _FARTHEST
                if cost >= least:
                    break
                cost += 0.0 if edges is None else _share(edges, box)
                if cost < least and not any(box.overlaps(o, _GAP) for o in [*filled, *others]):
                    found, least = box, cost
        placed.append(found)
        if found is not None:
            filled.append(found)
    return placed


def _edges(image: Floats) -> Floats:
    """(height + 1, width + 1) how many pixels above and to the left of each have an edge."""
    is_edge = np.zeros(image.shape[:2], bool)
    is_edge[1:] |= np.abs(np.diff(image, axis=0)).max(-1) > _EDGE
    is_edge[:, 1:] |= np.abs(np.diff(image, axis=1)).max(-1) > _EDGE
    return np.pad(is_edge.cumsum(0).cumsum(1), ((1, 0), (1, 0)))


def _share(edges: Floats, box: Box) -> float:
    """How much of a box has edges."""
    left, top, right, bottom = (round(side) for side in box)
    count = edges[bottom, right] - edges[top, right] - edges[bottom, left] + edges[top, left]
    return float(count) / max(1, (right - left) * (bottom - top))


def _candidates(
    x: float, y: float, width: float, height: float, bounds: Box
) -> Iterator[tuple[Box, float]]:
    """Boxes inside bounds, and how far they are, the nearest first."""
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
                yield box, reach
