"""How well spheres cover links, as fine as the figures need, and how closely pieces follow them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NamedTuple

from warp_collision.io.placing import joined
from warp_collision.obstacles.mesh_report import OpenMeshWarning
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.fitting.solid import Solid
from warp_collision.robot.model.convex_pieces import overshoot_of
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.robot_spheres import RobotSpheres

_SMALL_SHARE, _SMALL_GAP = 0.05, 0.01  # [m], which may be nothing but the resolution


def coverage_of(
    robot: RobotSpheres, links: Iterable[str], resolution: float
) -> dict[str, Coverage]:
    """`robot.coverage` of links, finer where that leaves in doubt that all is covered."""
    found = robot.coverage(resolution=resolution, links=links)
    in_doubt = [link for link, cover in found.items() if _is_in_doubt(cover)]
    return found | robot.coverage(links=in_doubt)


def _is_in_doubt(cover: Coverage) -> bool:
    """Whether a finer resolution may show that all is covered."""
    return 0.0 < cover.uncovered < _SMALL_SHARE or 0.0 < cover.gap < _SMALL_GAP


class Deviation(NamedTuple):
    """How closely a link is followed by what decides about it.

    Attributes:
        pieces: convex pieces that decide, exact spheres among them.
        overshoot: how far these stick out of the shapes of the link, at most [m]; they leave out
            nothing of these.
        triangles: of shapes that these decide about instead.
    """

    pieces: int
    overshoot: float
    triangles: int


def deviations_of(robot: RobotSpheres) -> dict[str, Deviation]:
    """How closely pieces and triangles follow the links that have them."""
    found = {}
    for link, shapes in robot._description.shapes.items():
        body = robot.layout.bodies.get(link)
        if body is None or not body.pieces:
            continue
        surface = body.surface
        pieces = body.pieces if surface is None else body.pieces[: surface.n_solid]
        hulls, overshoot = [piece for piece in pieces if len(piece.points) > 1], 0.0
        if hulls:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OpenMeshWarning)
                solid = Solid(link, joined([*map(mesh_in_link, shapes)]), grid_cells=0)
            overshoot = overshoot_of(hulls, solid)
        triangles = 0 if surface is None else len(surface.triangles)
        found[link] = Deviation(len(pieces), overshoot, triangles)
    return found
