"""What the panels of the browser share: what they ask of the viewer that holds them, meshes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from warp_collision.viewer.triangles import Triangles


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
