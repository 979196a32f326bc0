"""Draws a scene and the spheres of a path through it, coloured by cost, into a PNG file.

Needs matplotlib (the extra `viz`) for text, the colour bar and the clearance curve. The scene is
rendered in NumPy (raster.py): OpenGL is not to be had on every machine without a display.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from warp_collision.viewer.picture_data import Floats, PathPicture
from warp_collision.viewer.raster import Camera
from warp_collision.viewer.renderer import SAMPLES, SIZE, choose_camera, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

__all__ = ["PathPicture", "draw_path"]

_INK = "#22303f"
_ALARM = "#c81d3a"
_COSTS = [(0.0, "#ffd65c"), (0.3, "#fb9a2c"), (0.65, "#dd2c3c"), (1.0, "#6d0f45")]


def draw_path(
    picture: PathPicture,
    path: str | os.PathLike[str],
    progress: Callable[[float], None] = lambda fraction: None,
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
    camera = choose_camera(picture)
    image = render(picture, camera, lambda cost: colormap(cost / top)[:, :3], progress)
    _write(picture, path, image, camera)
    progress(1.0)


def _colormap() -> LinearSegmentedColormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("cost", _COSTS)


def _top_cost(picture: PathPicture) -> float:
    """Returns the cost at the end of the colour bar."""
    return max(float(picture.cost.max()), 1e-3)


def _write(
    picture: PathPicture, path: str | os.PathLike[str], image: Floats, camera: Camera
) -> None:
    """Adds the text and the two panels to the rendered image; writes the file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(np.clip(image, 0.0, 1.0), interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    figure.text(
        0.03,
        0.952,
        picture.title,
        size=min(25, 1500 / len(picture.title)),
        weight="bold",
        color=_INK,
        va="center",
    )
    figure.text(0.03, 0.908, picture.facts, size=14.5, color=_INK, va="center")
    _label(axes, picture, camera)
    _clearance_panel(figure, picture)
    _cost_bar(figure, picture)
    canvas.draw()
    Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(path, "PNG", optimize=True)


def _label(axes: Axes, picture: PathPicture, camera: Camera) -> None:
    """Writes start and goal beside the hand, and what is hit beside the deepest sphere."""
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "alpha": 0.88}
    for waypoint, text in ((0, "start"), (-1, "goal")):
        x, y = camera.project(picture.spheres[waypoint, -1:, :3])[0] / SAMPLES
        axes.annotate(
            text, (x, y), (x, y + 48), size=13, color=_INK, ha="center",
            bbox={**box, "edgecolor": "none"},
            arrowprops={"arrowstyle": "-", "color": _INK, "lw": 1},
        )  # fmt: skip
    deepest = np.unravel_index(np.argmin(picture.clearance), picture.clearance.shape)
    if picture.clearance[deepest] >= 0.0:
        return
    x, y = camera.project(picture.spheres[deepest][None, :3])[0] / SAMPLES
    axes.annotate(
        picture.callout, (x, y), (x, max(y - 170.0, 150.0)), size=15, weight="bold", color=_ALARM,
        ha="center", bbox={**box, "edgecolor": _ALARM},
        arrowprops={"arrowstyle": "-", "color": _ALARM, "lw": 1.8},
    )  # fmt: skip


def _clearance_panel(figure: Figure, picture: PathPicture) -> None:
    """Draws the smallest clearance over the waypoints, red where it is negative."""
    smallest = 1000.0 * picture.clearance.min(axis=1)
    waypoint = np.arange(len(smallest))
    panel = figure.add_axes((0.775, 0.52, 0.20, 0.27))
    panel.patch.set_alpha(0.6)
    panel.axhline(0.0, color=_INK, lw=1)
    panel.plot(waypoint, smallest, color=_INK, lw=1.8, marker="o", ms=3)
    hit = smallest < 0.0
    panel.fill_between(waypoint, smallest, 0.0, where=hit, color=_ALARM, alpha=0.25, lw=0)
    panel.plot(waypoint[hit], smallest[hit], color=_ALARM, lw=0, marker="o", ms=5)
    panel.set_title("smallest clearance [mm]", size=13.5, color=_INK, loc="left")
    panel.set_xlabel("waypoint", size=12, color=_INK)
    panel.tick_params(labelsize=11, colors=_INK)
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))


def _cost_bar(figure: Figure, picture: PathPicture) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = figure.add_axes((0.775, 0.38, 0.20, 0.022))
    scale = Normalize(0.0, 1000.0 * _top_cost(picture))
    colorbar = figure.colorbar(
        ScalarMappable(scale, _colormap()), cax=bar, orientation="horizontal"
    )
    bar.set_title("cost of a sphere [mm] (grey: 0)", size=13.5, color=_INK, loc="left", pad=8)
    bar.tick_params(labelsize=11, colors=_INK)
    colorbar.outline.set_visible(False)  # type: ignore[operator]
