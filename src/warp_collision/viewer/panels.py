"""What the panels of the browser share: the viewer that holds them, meshes, and text as HTML.

Names in the HTML are text and nothing else.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from warp_collision.messages import escaped
from warp_collision.viewer.colors import Color, clearance_colors
from warp_collision.viewer.triangles import Triangles

_NAME = 60  # characters
_ENDS = (-60, 100)  # mm, of the legend


class Host(Protocol):
    """See `Viewer`, which has all of these."""

    server: Any

    def put(self, name: str, job: Callable[[], object], delay: float = 0.0) -> None:
        """Lets the thread that draws do something."""

    def new_node(self, kind: str) -> str:
        """A name in the scene's tree that was never used."""
        ...

    def update(self, joints: Any, *, delay: float = 0.1) -> None:
        """Moves the robot."""

    def play(self, on: bool = True) -> None:
        """Lets the robot move along the open path, or stand."""

    def draw(self, joints: Tensor) -> None:
        """Draws the robot, in the thread that draws."""

    def select(self, name: str | None) -> None:
        """Shows an obstacle's report and gizmo."""

    def enable(self, name: str, on: bool = True) -> None:
        """Lets queries check an obstacle or skip it."""

    def switch(self, names: Sequence[str], on: bool) -> None:
        """Lets queries check obstacles or skip them, in the thread that draws."""

    def move(self, name: str, pose: tuple[float, ...]) -> None:
        """Moves an obstacle, in the thread that draws."""

    def undo(self) -> None:
        """Takes back the last move of an obstacle, in the thread that draws."""

    def reset(self) -> None:
        """Takes back all moves of obstacles, in the thread that draws."""

    def tell(self, words: str) -> None:
        """Shows a line where the user looks, in the thread that draws."""

    def choose_env(self, env: int) -> None:
        """Shows another env."""

    def show_contact(self, index: int) -> None:
        """Moves the robot to one of the worst contacts."""


def rgb(color: Any) -> tuple[int, int, int]:
    """Returns a colour as viser has it, from 0 to 255."""
    red, green, blue = (round(255 * float(value)) for value in color)
    return red, green, blue


def line_rgb(color: Any) -> tuple[int, int, int]:
    """Returns a colour of lines, whose intensities viser takes for linear."""
    return rgb(np.asarray(color, float) ** 2.2)


def add_mesh(
    viewer: Host, kind: str, triangles: Triangles, color: Any, opacity: float, **options: Any
) -> Any:
    """Adds a mesh without shadows to the scene; returns viser's handle."""
    return viewer.server.scene.add_mesh_simple(
        viewer.new_node(kind), triangles.vertices.astype(np.float32),
        triangles.faces.astype(np.uint32), color=rgb(color), opacity=opacity,
        cast_shadow=False, receive_shadow=False, **options,
    )  # fmt: skip


def text(name: object, length: int = _NAME) -> str:
    """Returns a name as HTML that shows it as it is.

    Example:
        >>> from warp_collision.viewer.panels import text
        >>> text("<script>")
        '&lt;script&gt;'
    """
    return html.escape(escaped(str(name), length))


def css(color: Color | Sequence[float]) -> str:
    """Returns a colour as CSS has it."""
    red, green, blue = rgb(color)
    return f"rgb({red},{green},{blue})"


def millimetres(length: float) -> str:
    """Returns a length with its unit."""
    return f"{1000 * length:.1f} mm" if np.isfinite(length) else "far"


def line(words: str, color: Color | None = None, *, is_bold: bool = False) -> str:
    """Returns a line; `words` are HTML already."""
    style = "padding:0.15em 1em;font-size:0.85em;"
    style += "font-weight:600;" if is_bold else ""
    style += f"border-left:0.4em solid {css(color)};" if color is not None else ""
    return f'<div style="{style}">{words}</div>'


def hint(words: str) -> str:
    """Returns a line in grey; `words` are HTML already."""
    return f'<div style="color:gray">{line(words)}</div>'


def table(rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; cells are HTML already."""
    cells = "".join(
        "<tr>" + "".join(f'<td style="padding:0 0.6em 0 0">{c}</td>' for c in row) + "</tr>"
        for row in rows
    )
    return f'<table style="font-size:0.8em;margin:0.2em 1em">{cells}</table>'


def legend() -> str:
    """Returns the colours of clearances with their numbers."""
    values = np.linspace(*_ENDS, 41)
    stops = ",".join(
        f"{css(color)} {100 * i / 40:.1f}%"
        for i, color in enumerate(clearance_colors(values / 1000))
    )
    ticks = "".join(
        f'<span style="position:absolute;left:{100 * (v - _ENDS[0]) / np.ptp(_ENDS):.0f}%;'
        f'transform:translateX(-50%)">{v}</span>'
        for v in (-30, 0, 20, 50)
    )
    return (
        '<div style="padding:0.3em 1em 1.4em 1em;font-size:0.75em">clearance of a sphere [mm]'
        f'<div style="height:0.7em;background:linear-gradient(90deg,{stops})"></div>'
        f'<div style="position:relative">{ticks}</div></div>'
    )
