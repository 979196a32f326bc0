"""Draws paths of a robot among obstacles side by side, and their clearances, into a PNG file.

Needs matplotlib (the extra `viz`) for text, the colour bar and the clearance curves. The scenes are
rendered in NumPy (raster.py): OpenGL is not to be had on every machine without a display.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from warp_collision.viewer.picture_data import Floats, PathPicture, PathScene
from warp_collision.viewer.raster import Camera
from warp_collision.viewer.renderer import SAMPLES, choose_camera, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

SIZE = (1600, 1000)  # pixels
_TOP, _BOTTOM = 112, 268  # pixels above and below the scenes
_GAP = 6  # between two scenes

_INK = "#22303f"
_ALARM = "#c81d3a"
_PAPER = "#fbfcfd"
_COSTS = [(0.0, "#ffd65c"), (0.3, "#fb9a2c"), (0.65, "#dd2c3c"), (1.0, "#6d0f45")]


def draw_paths(
    picture: PathPicture,
    path: str | os.PathLike[str],
    progress: Callable[[float], None],
) -> None:
    """Renders a picture into a PNG file.

    Args:
        picture: What it shows.
        path: The file to write; an existing file is replaced.
        progress: Called now and then with the fraction that is done.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    colormap, top = _colormap(), _top_cost(picture)
    count = len(picture.scenes)
    width = (SIZE[0] - _GAP * (count - 1)) // count
    camera = choose_camera(picture.scenes, width, SIZE[1] - _TOP - _BOTTOM)
    images = [
        render(
            scene,
            camera,
            lambda cost: colormap(cost / top)[:, :3],
            lambda done, index=index: progress((index + done) / count),
        )
        for index, scene in enumerate(picture.scenes)
    ]
    _write(picture, path, images, camera)
    progress(1.0)


def _colormap() -> LinearSegmentedColormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("cost", _COSTS)


def _top_cost(picture: PathPicture) -> float:
    """Returns the cost at the end of the colour bar."""
    return max(1e-3, *(float(scene.cost.max()) for scene in picture.scenes))


def _write(
    picture: PathPicture, path: str | os.PathLike[str], images: list[Floats], camera: Camera
) -> None:
    """Adds text, curves and colour bar to the rendered scenes; writes the file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100, facecolor=_PAPER)
    canvas = FigureCanvasAgg(figure)
    _text(figure, 40, 38, picture.title, min(25.0, 1500 / len(picture.title)), weight="bold")
    _text(figure, 40, 82, picture.facts, 14.5)
    width, height = camera.width // SAMPLES, camera.height // SAMPLES
    for index, (scene, image) in enumerate(zip(picture.scenes, images, strict=True)):
        left = index * (width + _GAP)
        axes = figure.add_axes(
            (left / SIZE[0], _BOTTOM / SIZE[1], width / SIZE[0], height / SIZE[1])
        )
        axes.imshow(np.clip(image, 0.0, 1.0), interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        axes.text(28, 30, scene.heading, size=16, weight="bold", color=scene.accent, va="center")
        _label(axes, scene, camera)
    _clearance_panel(figure, picture)
    if any((scene.cost > 0.0).any() for scene in picture.scenes):
        _cost_bar(figure, picture)
    for line, text in enumerate(picture.verdict):
        _text(figure, 1200, SIZE[1] - _BOTTOM + 134 + 27 * line, text, 14)
    canvas.draw()
    Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(path, "PNG", optimize=True)


def _text(figure: Figure, x: float, y: float, text: str, size: float, weight: str = "normal"):
    """Writes a line; x and y are pixels from the top left."""
    figure.text(
        x / SIZE[0], 1.0 - y / SIZE[1], text, size=size, weight=weight, color=_INK, va="center"
    )


def _label(axes: Axes, scene: PathScene, camera: Camera) -> None:
    """Writes start and goal beside the hand, and what is hit beside the deepest sphere."""
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "alpha": 0.88}
    for waypoint, text in ((0, "start"), (-1, "goal")):
        x, y = camera.project(scene.spheres[waypoint, -1:, :3])[0] / SAMPLES
        axes.annotate(
            text, (x, y), (x, y + 44), size=12, color=_INK, ha="center",
            bbox={**box, "edgecolor": "none"},
            arrowprops={"arrowstyle": "-", "color": _INK, "lw": 1},
        )  # fmt: skip
    deepest = np.unravel_index(np.argmin(scene.clearance), scene.clearance.shape)
    if scene.clearance[deepest] >= 0.0:
        return
    x, y = camera.project(scene.spheres[deepest][None, :3])[0] / SAMPLES
    axes.annotate(
        scene.callout, (x, y), (x, max(y - 150.0, 75.0)), size=13.5, weight="bold", color=_ALARM,
        ha="center", bbox={**box, "edgecolor": _ALARM},
        arrowprops={"arrowstyle": "-", "color": _ALARM, "lw": 1.8},
    )  # fmt: skip


def _clearance_panel(figure: Figure, picture: PathPicture) -> None:
    """Draws the smallest clearances along the paths, red where they are negative."""
    panel = figure.add_axes((0.055, 0.062, 0.65, 0.165))
    panel.patch.set_alpha(0.0)
    panel.axhline(0.0, color=_INK, lw=1)
    for curve in picture.curves:
        smallest = 1000.0 * curve.clearance
        panel.plot(curve.position, smallest, color=curve.accent, lw=2.2, label=curve.label)
        hit = smallest < 0.0
        panel.fill_between(
            curve.position,
            smallest,
            0.0,
            where=hit,
            interpolate=True,
            color=_ALARM,
            alpha=0.3,
            lw=0,
        )
        below = np.where(hit, smallest, np.nan)
        panel.plot(curve.position, below, color=_ALARM, lw=2.6)
    panel.set_xlim(0.0, 1.0)
    lowest, highest = (f([f(c.clearance) for c in picture.curves]) for f in (min, max))
    # What is far from everything needs no room beside what is deep inside.
    most = max(-2.5 * lowest, 0.05) if lowest < 0.0 else highest
    top = 1100.0 * float(min(highest, most))
    panel.set_ylim(min(1100.0 * float(lowest), 0.0) - 0.08 * top, top)
    panel.set_title(
        "smallest clearance to an obstacle along the way [mm]",
        size=13.5, color=_INK, loc="left",
    )  # fmt: skip
    panel.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["start", "", "half of the length", "", "goal"])
    panel.tick_params(labelsize=11, colors=_INK)
    panel.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=12,
        labelcolor="linecolor", borderaxespad=0.0,
    )  # fmt: skip
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))


def _cost_bar(figure: Figure, picture: PathPicture) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = figure.add_axes((0.75, 0.192, 0.21, 0.02))
    scale = Normalize(0.0, 1000.0 * _top_cost(picture))
    colorbar = figure.colorbar(
        ScalarMappable(scale, _colormap()), cax=bar, orientation="horizontal"
    )
    bar.set_title("cost of a sphere [mm]", size=13.5, color=_INK, loc="left", pad=8)
    bar.tick_params(labelsize=11, colors=_INK)
    colorbar.outline.set_visible(False)  # type: ignore[operator]
