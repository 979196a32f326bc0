"""What notebooks show of a world, a robot and planned paths: a picture and a table."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from warp_collision.extras import is_installed
from warp_collision.planning import PlannedPaths
from warp_collision.robot import RobotSpheres
from warp_collision.viewer.colors import THEMES
from warp_collision.viewer.panels import millimetres, text
from warp_collision.viewer.picture import new_figure, pixels
from warp_collision.viewer.rendering import render
from warp_collision.world import MeshWorld

_SIZE = (480, 320)  # pixels
_COLORS = 96  # of a picture, which makes it small
_ROWS = 12  # of a table


def html_of(value: Any) -> str:
    """Returns a picture and a table as HTML without scripts, less than 200 kB.

    Without the extra `viz` it is the table alone. Names are shown as text.

    Args:
        value: a `MeshWorld`, a `RobotSpheres` or `PlannedPaths`.

    Example:
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.viewer.notebook import html_of
        >>> world = MeshWorld()
        >>> world.add("table", Cuboid((0.6, 0.6, 0.05)))
        0
        >>> "table" in html_of(world), len(html_of(world)) < 200_000
        (True, True)
    """
    draw, table = next(parts for kind, parts in _PARTS.items() if isinstance(value, kind))
    picture = ""
    if is_installed("matplotlib"):
        picture = f'<img alt="" src="data:image/png;base64,{_png(draw(value))}">'
    return f'<div style="display:flex;gap:1em;flex-wrap:wrap">{picture}{table(value)}</div>'


def _png(image: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).quantize(_COLORS).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    listed = [*rows]
    lines = [f"<tr>{''.join(f'<th>{text(cell)}</th>' for cell in head)}</tr>"]
    lines += [
        f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in listed[:_ROWS]
    ]
    more = f"<p>and {len(listed) - _ROWS} more</p>" if len(listed) > _ROWS else ""
    return f"<div><b>{text(title, 200)}</b><table>{''.join(lines)}</table>{more}</div>"


def _draw_world(world: MeshWorld) -> np.ndarray:
    return render(world, size=_SIZE, title="")


def _world_table(world: MeshWorld) -> str:
    rows = [
        (
            name,
            type(found.geometry).__name__,
            " ".join(f"{value:.3g}" for value in found.pose[:3]),
            "" if found.enabled else "disabled",
            millimetres(found.padding) if found.padding else "",
        )
        for name, found in world.obstacles().items()
    ]
    return _table(repr(world), ("name", "shape", "position [m]", "", "padding"), rows)


def _draw_robot(robot: RobotSpheres) -> np.ndarray:
    return render(None, robot, size=_SIZE, title="", labels=False, spheres=True)


def _robot_table(robot: RobotSpheres) -> str:
    limits = robot.joint_limits.tolist()
    rows = [
        (name, f"{low:.3g} to {high:.3g} {unit}")
        for name, unit, (low, high) in zip(
            robot.joint_names, robot.joint_units, limits, strict=True
        )
    ]
    bare = len(robot.links_without_spheres)
    title = f"{len(robot.link_names)} links, {robot.n_joints} joints, {robot.n_spheres} spheres" + (
        f", {bare} links without spheres" if bare else ""
    )
    return _table(title, ("joint", "limits"), rows)


def _draw_paths(found: PlannedPaths) -> np.ndarray:
    """Returns the joint values of the first path over its waypoints."""
    figure = new_figure(_SIZE, THEMES["light"].label)
    axes = figure.add_axes((0.12, 0.15, 0.85, 0.75))
    axes.plot(found.joints[0].detach().cpu().numpy())
    axes.set_title("joint values of the first path [rad, m]", size=10)
    axes.set_xlabel("waypoint", size=9)
    axes.tick_params(labelsize=8)
    return pixels(figure)


def _paths_table(found: PlannedPaths) -> str:
    rows = [
        (index, "proven free" if free else "none found", millimetres(clearance), f"{length:.3f}")
        for index, (free, clearance, length) in enumerate(
            zip(found.free.tolist(), found.clearance.tolist(), found.length.tolist(), strict=True)
        )
    ]
    count = int(found.free.sum())  # the world may have changed since
    title = f"{count} of {len(found.free)} paths were proven free when they were planned"
    return _table(title, ("path", "result", "certified clearance", "length"), rows)


_PARTS: dict[type, tuple[Callable[[Any], np.ndarray], Callable[[Any], str]]] = {
    MeshWorld: (_draw_world, _world_table),
    RobotSpheres: (_draw_robot, _robot_table),
    PlannedPaths: (_draw_paths, _paths_table),
}
