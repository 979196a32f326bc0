"""Contact sheets: every link of a robot with its spheres, and what they leave out."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import numpy as np
import trimesh

from warp_collision.extras import require_extra
from warp_collision.io.placing import joined
from warp_collision.messages import escaped, one_line
from warp_collision.robot import RobotSpheres
from warp_collision.robot.checks.link_coverage import coverage_of
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.viewer import triangles as shapes
from warp_collision.viewer.camera import VIEWS, look
from warp_collision.viewer.colors import FREE, UNCOVERED, Floats, Theme, theme_of
from warp_collision.viewer.picture import fit_text, new_figure, pixels, write_png
from warp_collision.viewer.ray_tracer import SAMPLES, Body, RayTracer, over
from warp_collision.viewer.triangles import Triangles

_TILE, _CAPTION, _TOP = (300, 230), 62, 64  # pixels
_COLUMNS = 5
_PARTS = 24  # of a link's size, into which its faces are cut
_RESOLUTION = 2e-3  # m, of the figures
_MOST_FACES = 40_000


def sphere_sheet(
    robot: RobotSpheres,
    output: str | os.PathLike[str] | None = None,
    *,
    background: str = "light",
) -> np.ndarray:
    """Draws each link with its spheres, the surface that they leave out in orange, and figures.

    Args:
        robot: the robot.
        output: the file to write, a PNG; an existing file is replaced.
        background: "light" or "dark".

    Returns:
        (height, width, 3) uint8, the picture.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: another background.

    Example:
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.viewer import sphere_sheet
        >>> sphere_sheet(load_panda()).shape[2]
        3
    """
    require_extra("matplotlib", "a picture")
    theme = theme_of(background)
    links = [
        name
        for name in robot.body_names
        if len(robot.spheres_of(name)) or name in robot.links_without_spheres
    ]
    columns = min(_COLUMNS, max(1, len(links)))
    rows = math.ceil(len(links) / columns)
    width, height = columns * _TILE[0], _TOP + rows * (_TILE[1] + _CAPTION)
    figure = new_figure((width, height), theme.paper)
    page = figure.add_axes((0, 0, 1, 1))
    page.set_xlim(0, width)
    page.set_ylim(height, 0)
    page.set_axis_off()
    title = f"{robot.n_spheres} spheres on {len(links)} bodies; uncovered surface is orange"
    fit_text(
        page.text(14, 30, title, size=16, weight="bold", color=theme.ink, va="center"),
        page, width - 28,
    )  # fmt: skip
    for index, link in enumerate(links):
        x, y = index % columns * _TILE[0], _TOP + index // columns * (_TILE[1] + _CAPTION)
        surface, why = _surface(robot, link)
        axes = figure.add_axes(
            (x / width, 1 - (y + _TILE[1]) / height, _TILE[0] / width, _TILE[1] / height)
        )
        axes.imshow(_tile(robot.spheres_of(link), surface, theme), aspect="auto")
        axes.set_axis_off()
        lines = [(escaped(link, 60), "bold"), *((line, "normal") for line in _figures(robot, link))]
        if why:
            lines.append((why, "normal"))
        for number, (line, weight) in enumerate(lines[:3]):
            text = page.text(
                x + 10, y + _TILE[1] + 12 + 18 * number, line, size=10.5, weight=weight,
                color=theme.ink, va="center", parse_math=False,
            )  # fmt: skip
            fit_text(text, page, _TILE[0] - 20)
    drawn = pixels(figure)
    if output is not None:
        write_png(drawn, Path(output))
    return drawn


def _surface(robot: RobotSpheres, link: str) -> tuple[Triangles | None, str]:
    """Returns the surface that the spheres of a link approximate, or why there is none."""
    if not robot.link_shapes.get(link):
        return None, ""
    try:
        mesh = joined([mesh_in_link(shape) for shape in robot.link_shapes[link]])
    except (OSError, ValueError, ImportError) as error:
        return None, one_line(error)
    thin = shapes.thinned(shapes.of_mesh(mesh))
    size = float(np.linalg.norm(np.ptp(thin.vertices, axis=0)))
    vertices, faces = trimesh.remesh.subdivide_to_size(
        thin.vertices, thin.faces, size / _PARTS, max_iter=20
    )[:2]
    if len(faces) > _MOST_FACES:
        return thin, ""
    return Triangles(np.asarray(vertices), np.asarray(faces)), ""


def uncovered_faces(surface: Triangles, spheres: Floats) -> np.ndarray:
    """(n_faces,) bool: whether the middle of a face lies in no sphere (n, 4) [m].

    Example:
        >>> import numpy as np
        >>> from warp_collision import Cuboid
        >>> from warp_collision.viewer.contact_sheet import uncovered_faces
        >>> from warp_collision.viewer.triangles import of_geometry
        >>> box = of_geometry(Cuboid((0.2, 0.2, 0.2)))
        >>> uncovered_faces(box, np.array([[0.0, 0.0, 0.0, 0.18]])).sum().item()
        0
    """
    rows = spheres[spheres[:, 3] > 0.0]
    middles = surface.vertices[surface.faces].mean(axis=1)
    bare = np.ones(len(middles), dtype=bool)
    for row in rows:
        bare &= ((middles - row[:3]) ** 2).sum(-1) > row[3] ** 2
    return bare


def _tile(spheres: Floats, surface: Triangles | None, theme: Theme) -> Floats:
    """Returns the picture of a link in its own frame."""
    bodies, points = [], []
    rows = spheres[spheres[:, 3] > 0.0]
    if surface is not None:
        bare = uncovered_faces(surface, rows)
        for faces, color in ((surface.faces[~bare], theme.robot), (surface.faces[bare], UNCOVERED)):
            if len(faces):
                bodies.append(Body([Triangles(surface.vertices, faces)], color))
        points.append(surface.vertices)
    if len(rows):
        balls = shapes.of_spheres(rows, 3)
        bodies.append(Body([balls], FREE, 0.3))
        points.append(balls.vertices)
    if not points:
        points = [np.eye(3)]
    size = SAMPLES * _TILE[0], SAMPLES * _TILE[1]
    camera = look(np.concatenate(points), *VIEWS["corner"], size)
    paper = np.ones((_TILE[1], _TILE[0], 3)) * theme.wall
    return np.clip(over(paper, RayTracer(bodies).image(camera, theme.outline)), 0.0, 1.0)


def _figures(robot: RobotSpheres, link: str) -> list[str]:
    """Returns lines of figures about the spheres of a link."""
    if link in robot.links_without_spheres:
        return ["no spheres: not checked"]
    count = int((robot.spheres_of(link)[:, 3] >= 0.0).sum())
    spheres = f"{count} sphere{'' if count == 1 else 's'}"
    found = None
    if link in robot.link_shapes:
        with contextlib.suppress(OSError, ValueError, ImportError):
            found = coverage_of(robot, [link], _RESOLUTION).get(link)
    if found is None:
        return [spheres]
    beyond = f"{spheres}, {1000 * max(found.overshoot, 0.0):.0f} mm beyond the link at most"
    if found.uncovered == 0.0:
        return [beyond, "all of the surface is covered"]
    gap = "" if math.isinf(found.gap) else f", by up to {1000 * found.gap:.0f} mm"
    return [beyond, f"{100 * found.uncovered:.0f} % uncovered{gap}"]
