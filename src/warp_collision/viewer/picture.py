"""A picture as a whole: scenes side by side, text, labels, curves of clearance, the colour bar.

Text needs matplotlib (the extra `viz`); the scenes are drawn by `ray_tracer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warp_collision.messages import escaped
from warp_collision.viewer.camera import Camera
from warp_collision.viewer.colors import FAR, HIT, Color, Floats, Theme, clearance_colors
from warp_collision.viewer.path_facts import PathFacts
from warp_collision.viewer.ray_tracer import SAMPLES
from warp_collision.viewer.triangles import Triangles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BOLD, _THIN = 3.2, 1.3  # widths of curves: of those that collide, and of others
_GAP = 6  # pixels between two scenes
_BAR = (-0.06, FAR)  # m, ends of the colour bar
_PADDING = 0.35  # of the frame of a label, in sizes of its letters
_LABEL_GAP = 6.0  # pixels between two labels
_LEGEND_GAP = 20.0  # pixels between the title of the curves and their names
_TURNS = 16  # directions that are tried, upwards first
_EDGE = 0.04  # step of a colour between two pixels, from 0 to 1, from which on something is there
_FARTHEST = 500.0  # pixels from what is named that are as bad as a box full of edges
_REACHES = (34.0, 60.0, 95.0, 140.0, 200.0, 270.0)  # pixels from what is named
_MOST_TEXT = 110  # characters of a line
_LABELLED = 6  # obstacles of a world without a robot
_MOST_NAME = 40  # characters of a name in a label


class Label(NamedTuple):
    """A text, and what it points to.

    Attributes:
        text: one line.
        anchor: (x, y) of what it names, in pixels from the top left.
        is_alarm: whether it reports a collision.
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


@dataclass(frozen=True)
class Curve:
    """Clearance along a path: certified bounds on its segments.

    Attributes:
        ends: (n + 1,) where the segments begin and end, from 0 at the start to 1 at the goal.
        lower: (n,) lower bounds [m].
        upper: (n,) upper bounds [m].
        own: (n,) lower bounds of the robot to itself [m].
        label: what it is called.
        color: its colour.
    """

    ends: Floats
    lower: Floats
    upper: Floats
    own: Floats
    label: str
    color: Color


@dataclass(frozen=True)
class Scene:
    """A scene of a picture.

    Attributes:
        image: (height, width, 3) from 0 to 1.
        heading: one line above it.
        labels: of what is in it, the most important first; anchors in pixels of the image.
        accent: colour of the heading.
    """

    image: Floats
    heading: str
    labels: Sequence[Label]
    accent: Color


@dataclass(frozen=True)
class Picture:
    """All that a picture shows, and where it is.

    Attributes:
        size: width and height [pixels].
        count: scenes side by side.
        title: one line, "" for none.
        facts: one line below it.
        curves: of paths; none, no panel of curves.
        has_bar: whether there is a colour bar below.
        theme: the colours.
        scenes: of one size, if they are drawn already.
    """

    size: tuple[int, int]
    count: int
    title: str
    facts: str
    curves: Sequence[Curve]
    has_bar: bool
    theme: Theme
    scenes: Sequence[Scene] = ()

    @property
    def scale(self) -> float:
        """Of all text, 1 in a picture of 1600 x 1000 pixels."""
        return max(0.55, min(self.size[0] / 1600, self.size[1] / 1000))

    @property
    def top(self) -> int:
        """Pixels above the scenes."""
        lines = 0 if not self.title else 2 if self.facts else 1
        return round(self.scale * 112 * lines / 2)

    @property
    def bottom(self) -> int:
        """Pixels below the scenes."""
        height = 268 if self.curves else 104 if self.has_bar else 0
        return round(self.scale * height)

    @property
    def scene_size(self) -> tuple[int, int]:
        """Width and height of a scene [pixels]."""
        width = (self.size[0] - _GAP * (self.count - 1)) // self.count
        return max(width, 16), max(self.size[1] - self.top - self.bottom, 16)

    def left(self, index: int) -> int:
        """Pixels to the left of a scene."""
        return index * (self.scene_size[0] + _GAP)

    @property
    def panel(self) -> tuple[float, float, float, float]:
        """Left, bottom, width, height of the curves, in shares of the picture."""
        height = self.scale / self.size[1]
        right = 0.705 if self.has_bar else 0.955
        left = max(0.055, 64 * self.scale / self.size[0])  # of the numbers beside it
        return left, 62 * height, right - left, 150 * height


def compose(picture: Picture) -> Figure:
    """Returns a picture as a figure of matplotlib, of which one pixel is one dot."""
    (width, height), scale = picture.size, picture.scale
    figure = new_figure(picture.size, picture.theme.paper)
    if picture.title:
        y = 38 if picture.facts else 30
        _text(figure, picture, y * scale, picture.title, 25.0, weight="bold")
        _text(figure, picture, 82 * scale, picture.facts, 14.5)
    scene_width, scene_height = picture.scene_size
    for index, scene in enumerate(picture.scenes):
        axes = figure.add_axes(
            (picture.left(index) / width, picture.bottom / height,
             scene_width / width, scene_height / height)
        )  # fmt: skip
        axes.imshow(scene.image, interpolation="nearest", aspect="auto")
        axes.set_xlim(-0.5, scene_width - 0.5)
        axes.set_ylim(scene_height - 0.5, -0.5)
        axes.set_axis_off()
        _annotate(axes, scene, picture)
    if picture.curves:
        _draw_curves(figure, picture)
    if picture.has_bar:
        _draw_bar(figure, picture)
    return figure


def new_figure(size: tuple[int, int], paper: Color) -> Figure:
    """Returns an empty figure of a width and a height [pixels]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] / 100, size[1] / 100), dpi=100, facecolor=paper)
    FigureCanvasAgg(figure)
    return figure


def pixels(figure: Figure) -> np.ndarray:
    """Returns (height, width, 3) uint8 of a figure."""
    canvas: Any = figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def write_png(drawn: np.ndarray, path: Path) -> None:
    """Writes a picture (height, width, 3) uint8."""
    from PIL import Image

    Image.fromarray(drawn).save(path, "PNG")


def _text(figure: Figure, picture: Picture, y: float, line: str, size: float, **style: Any) -> None:
    """Writes a line so many pixels from the top. Names in it are no formulas."""
    (width, height), scale = picture.size, picture.scale
    text: Any = figure.text(
        40 * scale / width, 1.0 - y / height, line, size=scale * size,
        color=picture.theme.ink, va="center", parse_math=False, **style,
    )  # fmt: skip
    _shrink(text, width - 80 * scale)


def _shrink(text: Any, most: float) -> None:
    """Makes letters smaller until a text is not wider than that."""
    for _ in range(4):  # letters have whole pixels: once is not always enough
        width = text.get_window_extent(text.figure.canvas.get_renderer()).width
        if width > most:
            text.set_size(0.98 * text.get_size() * most / width)


def _annotate(axes: Axes, scene: Scene, picture: Picture) -> None:
    """Writes the heading and the labels, none over another."""
    scale, theme = picture.scale, picture.theme
    taken = []
    height, width = scene.image.shape[:2]
    if scene.heading:
        heading = axes.text(
            28 * scale, 30 * scale, scene.heading, size=16 * scale, weight="bold",
            color=scene.accent, va="center", parse_math=False,
        )  # fmt: skip
        taken.append(fit_text(heading, axes, width - 56 * scale))
    texts = []
    for label in scene.labels:
        color = scene.accent if label.is_alarm else theme.ink
        texts.append(
            axes.text(
                0, 0, label.text, size=12.5 * scale, color=color, ha="center", va="center",
                parse_math=False, weight="bold" if label.is_alarm else "normal",
                bbox={"boxstyle": f"round,pad={_PADDING}", "facecolor": theme.label, "alpha": 0.88,
                      "edgecolor": color if label.is_alarm else "none"},
            )
        )  # fmt: skip
    boxes = [extent_of(text, axes, _PADDING) for text in texts]
    sizes = [(box.right - box.left, box.bottom - box.top) for box in boxes]
    anchors = [label.anchor for label in scene.labels]
    bounds = Box(4, 4, width - 4, height - 4)
    places = place_labels(anchors, sizes, bounds, taken, scene.image)
    for label, text, place in zip(scene.labels, texts, places, strict=True):
        if place is None:
            text.remove()
            continue
        middle = 0.5 * (place.left + place.right), 0.5 * (place.top + place.bottom)
        text.set_position(middle)
        end = (
            float(np.clip(label.anchor[0], place.left, place.right)),
            float(np.clip(label.anchor[1], place.top, place.bottom)),
        )
        color = scene.accent if label.is_alarm else theme.ink
        axes.plot(
            [label.anchor[0], end[0]], [label.anchor[1], end[1]], color=color,
            lw=(1.8 if label.is_alarm else 0.9) * scale, zorder=2,
        )  # fmt: skip


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
        >>> from warp_collision.viewer.picture import Box, place_labels
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
                if cost < least and not any(
                    box.overlaps(o, _LABEL_GAP) for o in [*filled, *others]
                ):
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


def fit_text(text: Any, axes: Axes, width: float) -> Box:
    """Makes letters smaller until a text is as wide as that; returns its box."""
    _shrink(text, width)
    return extent_of(text, axes)


def extent_of(text: Any, axes: Axes, padding: float = 0.0) -> Box:
    """Returns the box of a text, and of its frame of some size of its letters, in the scene."""
    canvas: Any = axes.figure.canvas
    found, area = text.get_window_extent(canvas.get_renderer()), axes.bbox
    pad = padding * text.get_size() * 100 / 72
    return Box(
        found.x0 - area.x0 - pad, area.y1 - found.y1 - pad,
        found.x1 - area.x0 + pad, area.y1 - found.y0 + pad,
    )  # fmt: skip


def _draw_curves(figure: Figure, picture: Picture) -> None:
    """Draws the certified intervals of clearance along the paths."""
    from matplotlib.ticker import MaxNLocator

    scale, theme = picture.scale, picture.theme
    panel = figure.add_axes(picture.panel)
    panel.patch.set_alpha(0.0)
    panel.axhline(0.0, color=theme.ink, lw=scale)
    low, top = _limits_of(picture.curves)
    panel.set_ylim(1100.0 * low - 0.08 * 1000 * top, 1100.0 * top)
    near = [i for i, c in enumerate(picture.curves) if np.nanmin(c.own, initial=np.inf) < 1.1 * top]
    styles = ("solid", "dashed", "dotted", "dashdot")
    for index, (curve, style) in enumerate(zip(picture.curves, styles, strict=False)):
        lower, upper, own = (
            np.minimum(1000.0 * v, 1100.0 * top)
            if np.isfinite(v).any()
            else np.full_like(v, np.nan)
            for v in (curve.lower, curve.upper, curve.own)
        )
        width = _BOLD if (lower < 0.0).any() else _THIN
        panel.stairs(upper, curve.ends, baseline=None, color=curve.color, lw=width * scale,
                     label=curve.label, linestyle=style, clip_on=False)  # fmt: skip
        panel.stairs(upper, curve.ends, baseline=lower, fill=True, color=curve.color, alpha=0.5)
        if index in near:
            touches = bool((own < 0.0).any())
            panel.stairs(
                own,
                curve.ends,
                baseline=None,
                color=curve.color if touches else theme.ink,
                lw=(_BOLD if touches else _THIN) * scale,
                alpha=1.0 if touches else 0.6,
                linestyle="dotted",
                label="to itself" if index == near[-1] else None,
                clip_on=False,
            )
        below = np.where(lower < 0.0, lower, np.nan)
        panel.stairs(np.minimum(below, 0.0), curve.ends, baseline=0.0, fill=True, color=HIT,
                     alpha=0.35)  # fmt: skip
    panel.set_xlim(0.0, 1.0)
    title = panel.set_title(
        "certified clearance [mm]", size=13.5 * scale, color=theme.ink, loc="left"
    )
    panel.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["start", "", "half of the length", "", "goal"])
    panel.yaxis.set_major_locator(MaxNLocator(5, prune="lower"))  # of what "start" would touch
    panel.tick_params(labelsize=11 * scale, colors=theme.ink)
    legend = panel.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(picture.curves) + 1,
        frameon=False, fontsize=12 * scale, labelcolor="linecolor", borderaxespad=0.0,
    )  # fmt: skip
    # Beside each other, in smaller letters where they must be.
    canvas: Any = figure.canvas
    beside, whole = (
        text.get_window_extent(canvas.get_renderer()).width for text in (title, legend)
    )
    most = picture.panel[2] * picture.size[0] - _LEGEND_GAP * scale
    share = min(1.0, most / (beside + whole))
    texts: list[Any] = [title, *legend.get_texts()]
    for text in texts:
        text.set_size(share * text.get_size())
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.ink)


def _limits_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """Lower and upper end of what is in view of curves [m]; what is above is a line along the top.

    What is far from everything needs no room beside what is near or inside. What the colour bar
    tells apart has room.
    """
    least, most = [0.0], [0.01]
    for curve in curves:
        lower, upper, own = (v[np.isfinite(v)] for v in (curve.lower, curve.upper, curve.own))
        least += [float(values.min(initial=0.0)) for values in (lower, own)]
        most += [float(values.max(initial=0.01)) for values in (upper, own)]
    nearest = min(float(np.nanmin(np.abs(curve.lower))) for curve in curves)
    low = min(least)
    return low, min(max(most), max(-2.5 * low, 6.0 * nearest, FAR))


def _draw_bar(figure: Figure, picture: Picture) -> None:
    """Draws the colours of clearances."""
    scale, (width, height), theme = picture.scale, picture.size, picture.theme
    left, wide = (0.75, 0.21) if picture.curves else (40 * scale / width, 0.4)
    y = (192 if picture.curves else 40) * scale
    bar = figure.add_axes((left, y / height, wide, 20 * scale / height))
    values = np.linspace(*_BAR, 321)
    bar.imshow(
        clearance_colors(values)[None], aspect="auto",
        extent=(1000 * _BAR[0], 1000 * _BAR[1], 0.0, 1.0),
    )  # fmt: skip
    bar.set_yticks([])
    ticks = (-60, -30, 0, 20, 50, 100)
    bar.set_xticks(ticks, [str(tick) for tick in ticks])
    title = bar.set_title(
        "clearance of a sphere [mm]", size=13.5 * scale, color=theme.ink, loc="left",
        pad=8 * scale,
    )  # fmt: skip
    _shrink(title, (0.99 - left) * width)
    bar.tick_params(labelsize=11 * scale, colors=theme.ink)
    for spine in bar.spines.values():
        spine.set_visible(False)


def cut(text: str) -> str:
    """Returns a line that is not too long."""
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


def curve_of(name: str, facts: PathFacts, theme: Theme) -> Curve:
    """Returns the certified clearance of a path, to obstacles and to itself."""
    lower, upper, own = (
        column.double().numpy()
        for column in (facts.motion.world_lower, facts.motion.world_upper, facts.motion.self_lower)
    )
    return Curve(
        facts.places, lower, upper, own, name or "to obstacles", theme.accent(facts.is_free)
    )


def path_labels(facts: PathFacts, camera: Camera) -> list[Label]:
    """Returns labels of the worst contacts, and of start and goal."""
    labels = []
    for contact in facts.worst(2):
        if contact.is_blocked or not labels:
            point = facts.closest_points(contact)[1]
            text = escaped(str(contact), 2 * _MOST_NAME)
            labels.append(Label(text, _anchor_of(camera, point), contact.is_blocked))
    if facts.n_segments:
        for text, waypoint in (("start", 0), ("goal", -1)):
            tip = facts.spheres[waypoint, -1, :3]
            labels.append(Label(text, _anchor_of(camera, tip)))
    return labels


def world_labels(meshes: Mapping[str, Triangles], camera: Camera) -> list[Label]:
    """Returns labels of the largest obstacles, by their triangles in the world."""
    sizes = {name: float(np.ptp(mesh.vertices, axis=0).max()) for name, mesh in meshes.items()}
    largest = sorted(meshes, key=lambda name: -sizes[name])[:_LABELLED]
    return [
        Label(escaped(name, _MOST_NAME), _anchor_of(camera, meshes[name].middle))
        for name in largest
    ]


def _anchor_of(camera: Camera, point: Any) -> tuple[float, float]:
    """Returns the pixel (x, y) of a point (3,) in the picture of a camera."""
    x, y = (camera.project(np.asarray(point, float)[None])[0] / SAMPLES).tolist()
    return x, y
