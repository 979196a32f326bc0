"""The data of a picture of paths."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Color = tuple[float, float, float]
Body = tuple[Floats, NDArray[np.integer]]  # vertices (n, 3) in the world frame [m], faces (m, 3)

# Paths that nobody planned, and paths that are proven free.
PLAIN: Color = (0.765, 0.808, 0.851)
PLAIN_ACCENT: Color = (0.33, 0.40, 0.47)
PROVEN: Color = (0.62, 0.83, 0.74)
PROVEN_ACCENT: Color = (0.05, 0.47, 0.34)


@dataclass(frozen=True)
class PathScene:
    """One path among obstacles; positions in the world frame [m].

    Attributes:
        obstacles: The meshes of the world.
        hit_obstacles: Which of them the path collides with.
        start: The robot's meshes at the first waypoint.
        goal: The robot's meshes at the last waypoint.
        spheres: (horizon, n_spheres, 4) x, y, z, radius along the path.
        cost: (horizon, n_spheres) cost of each sphere, which is drawn in its colour above 0.
        clearance: (horizon, n_spheres) clearance of each sphere.
        heading: One line above the scene.
        callout: Text at the deepest sphere, written if it collides.
        between: The robot's meshes at waypoints between; without any, spheres are drawn there.
        trail: (n, 3) where a point of the robot goes, drawn as a line.
        tint: Colour of what is drawn between start and goal, of spheres where they cost nothing.
        accent: Colour of heading and trail.
    """

    obstacles: Sequence[Body]
    hit_obstacles: Collection[int]
    start: Sequence[Body]
    goal: Sequence[Body]
    spheres: Floats
    cost: Floats
    clearance: Floats
    heading: str = ""
    callout: str = ""
    between: Sequence[Sequence[Body]] = ()
    trail: Floats = field(default_factory=lambda: np.empty((0, 3)))
    tint: Color = PLAIN
    accent: Color = PLAIN_ACCENT


@dataclass(frozen=True)
class ClearanceCurve:
    """Smallest clearance along a path.

    Attributes:
        position: (n,) from 0 at the start to 1 at the goal, in shares of the length.
        clearance: (n,) [m], of the robot to the obstacles.
        label: What the curve is called.
        accent: Its colour.
    """

    position: Floats
    clearance: Floats
    label: str
    accent: Color


@dataclass(frozen=True)
class PathPicture:
    """One or two paths side by side, and their clearances.

    Attributes:
        scenes: One or two, among the same obstacles.
        curves: One for each scene.
        title: One line.
        facts: One line below it.
        verdict: Lines beside the curves.
    """

    scenes: Sequence[PathScene]
    curves: Sequence[ClearanceCurve]
    title: str
    facts: str
    verdict: Sequence[str]
