"""Coverage of links by their spheres, as fine as its figures need."""

from __future__ import annotations

from collections.abc import Iterable

from warp_collision.robot.fitting.coverage import Coverage
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
