"""Text of the browser's panels, as HTML whose names are text and nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import numpy as np

from warp_collision.messages import escaped
from warp_collision.viewer.colors import Color, clearance_colors

_NAME = 60  # characters
_ENDS = (-60, 100)  # mm, of the legend


def text(name: object, length: int = _NAME) -> str:
    """Returns a name as HTML that shows it as it is.

    Example:
        >>> from warp_collision.viewer.panel_text import text
        >>> text("<script>")
        '&lt;script&gt;'
    """
    return html.escape(escaped(str(name), length))


def css(color: Color | Sequence[float]) -> str:
    """Returns a colour as CSS has it."""
    red, green, blue = (round(255 * float(value)) for value in color)
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
