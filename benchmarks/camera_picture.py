"""A picture of what cameras saw: an image as it came, and a cut through the map of nine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import warp_collision as wc
from benchmarks import plots  # picks a backend without a screen
from benchmarks.camera_scenes import Image, Studio
from camera_images import SETTINGS

COLORS = {"unseen": "#c9ced6", "free": "#eef7ee", "occupied": "#1f6feb"}
HEIGHTS = (0.1, 0.55)  # [m] of the cuts


def draw(studio: Studio, images: list[Image], seen: wc.OccupancyMap, path: Path) -> None:
    """The first image with everything that spoils it, and two cuts with the true obstacles."""
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    axes = figure.subplots(1, 3)
    image = images[0]
    spoil = SETTINGS["everything"].spoil
    depth = spoil(image.fine, image.camera.focal, np.random.default_rng(0))
    axes[0].imshow(np.where(depth < 4.0, depth, np.nan), cmap="viridis_r", vmin=0.8, vmax=3.0)
    axes[0].set_title("one of nine depth images", fontsize=10)
    axes[0].set_axis_off()
    for place, height in zip(axes[1:], HEIGHTS, strict=True):
        cut(place, studio, seen, height)
    names = [Patch(facecolor=color, label=name) for name, color in COLORS.items()]
    names.append(Patch(edgecolor="#d1242f", facecolor="none", label="true obstacles"))
    figure.legend(handles=names, loc="outside lower right", ncols=4, fontsize=9, frameon=False)
    figure.savefig(path, dpi=110)


def cut(axes: Axes, studio: Studio, seen: wc.OccupancyMap, height: float) -> None:
    """The voxels at a height [m], and outlines of the obstacles there."""
    layer = seen.states[:, :, int((height - seen.lower[2]) / seen.voxel_size)].T
    lower = seen.lower[:2]
    upper = lower + seen.voxel_size * np.array(seen.shape[:2])
    extent = (lower[0], upper[0], lower[1], upper[1])
    shades = ListedColormap([*COLORS.values()])
    axes.imshow(layer, shades, vmin=0, vmax=2, origin="lower", extent=extent)
    x, y = (np.linspace(low, high, 600) for low, high in zip(lower, upper, strict=True))
    points = np.stack([*np.meshgrid(x, y), np.full((600, 600), height)], axis=-1)
    inside = np.min([body.signed_distance(points) for body in studio.scene.obstacles], axis=0)
    axes.contour(x, y, inside, [0.0], colors="#d1242f", linewidths=1.2)
    axes.set_title(f"the map at a height of {height:g} m", fontsize=10)
    axes.set_xlabel("x [m]")
    axes.set_ylabel("y [m]")
    plots.plain_frame(axes)
    axes.grid(visible=False)
