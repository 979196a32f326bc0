"""An obstacle in the browser: a mesh, the hull of its padding, or the points of a cloud."""

from __future__ import annotations

from typing import Any

import numpy as np

from warp_collision.io import Obstacle
from warp_collision.obstacles.point_cloud import PointCloud
from warp_collision.viewer import panels
from warp_collision.viewer.colors import OBSTACLE, UNSEEN, Color
from warp_collision.viewer.triangles import (
    inflated,
    is_unseen,
    of_geometry,
    outline_of,
    parts_of,
    thinned,
)

_MOST_FACES = 50_000  # of an obstacle that are drawn
_OPACITIES = (0.2, 0.08)  # of an obstacle and the hull of its padding
_SHADES = 0.65, 1.25  # of the points of a cloud
_BOX_OPACITY = 0.03  # of the box around a cloud, which a click finds: points are not found


class DrawnObstacle:
    """An obstacle as it is drawn.

    Args:
        viewer: that draws it.
        name: of it.
        obstacle: what it is.

    Attributes:
        pose: where it is drawn.
        handles: viser's: of its mesh, or the box around its points, which a click finds; of the
            hull of its padding.
        points: viser's of a cloud, else None.
        haze: viser's of what no camera saw of a map, else None.
        kind: what it is.
        is_unseen: whether it is space that no camera saw.
        enabled: whether queries check it.
        size: the longest side of the box around it [m].
        color: its colour, if it has one yet.
    """

    def __init__(self, viewer: panels.Host, name: str, obstacle: Obstacle):
        geometry, self.pose = obstacle.geometry, (*map(float, obstacle.pose),)
        self.kind = type(geometry).__name__
        self.is_unseen, self.enabled = is_unseen(geometry), obstacle.enabled
        self.points: Any = None
        self.haze: Any = None
        self.color: Color | None = None
        placed = {"position": obstacle.pose[:3], "wxyz": obstacle.pose[3:]}
        if isinstance(geometry, PointCloud):
            mesh = outline_of(geometry)
            parts, self._opacities = [mesh], (_BOX_OPACITY,)
            # One color alone would make a surface of them.
            shades = np.random.default_rng(0).uniform(*_SHADES, (len(geometry), 1))
            self._shades = shades
            width = 2.0 * (float(np.median(geometry.radii)) + obstacle.padding)
            self.points = viewer.server.scene.add_point_cloud(
                viewer.new_node("points"), geometry.points.astype(np.float32),
                self._grain(OBSTACLE), point_size=width, point_shape="circle",
                precision="float32", **placed,
            )  # fmt: skip
        else:
            seen, unseen = parts_of(geometry)
            mesh = thinned(of_geometry(seen), _MOST_FACES)
            if unseen is not None:
                hidden = thinned(of_geometry(unseen), _MOST_FACES)
                self.haze = panels.add_mesh(
                    viewer, "unseen", hidden, UNSEEN, 0.4 * _OPACITIES[0], flat_shading=True,
                    side="double", **placed,
                )  # fmt: skip
                self.haze.on_click(lambda event: viewer.select(name))
            parts, self._opacities = [mesh], _OPACITIES
            if obstacle.padding > 0.0:
                parts.append(inflated(mesh, obstacle.padding))
        self.size = float(np.ptp(mesh.vertices, axis=0).max())
        self.handles = []
        for triangles, opacity in zip(parts, self._opacities, strict=False):
            handle = panels.add_mesh(
                viewer, "obstacle", triangles, OBSTACLE, opacity, flat_shading=True,
                side="double", **placed,
            )  # fmt: skip
            handle.on_click(lambda event: viewer.select(name))
            self.handles.append(handle)

    @property
    def _all(self) -> list[Any]:
        others = (self.points, self.haze)
        return [*self.handles, *(handle for handle in others if handle is not None)]

    def remove(self) -> None:
        """Removes it from the page."""
        for handle in self._all:
            handle.remove()

    def move(self, pose: tuple[float, ...]) -> None:
        """Moves it, x, y, z, qw, qx, qy, qz."""
        self.pose = pose
        for handle in self._all:
            handle.position, handle.wxyz = pose[:3], pose[3:]

    def paint(self, color: Color) -> None:
        """Colours it; what is off or was never seen is fainter."""
        if self.color == color:
            return
        self.color = color
        is_clear = self.is_unseen or not self.enabled
        for handle, opacity in zip(self.handles, self._opacities, strict=False):
            handle.color = panels.rgb(color)
            handle.opacity = 0.4 * opacity if is_clear else opacity
        if self.haze is not None:
            self.haze.color = panels.rgb(UNSEEN if self.enabled else color)
        if self.points is not None:
            self.points.colors = self._grain(color)

    def _grain(self, color: Color) -> np.ndarray:
        """(n, 3) colours of the points of a cloud, some lighter and some darker."""
        return (255 * np.clip(self._shades * np.array(color), 0.0, 1.0)).astype(np.uint8)
