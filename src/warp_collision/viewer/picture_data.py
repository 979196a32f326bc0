"""The data of a picture of a path."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Body = tuple[Floats, NDArray[np.integer]]  # vertices (n, 3) in the world frame [m], faces (m, 3)


@dataclass(frozen=True)
class PathPicture:
    """What a picture shows; positions in the world frame [m].

    Attributes:
        obstacles: The meshes of the world.
        hit_obstacles: Which of them the path collides with.
        start: The robot's meshes at the first waypoint.
        goal: The robot's meshes at the last waypoint.
        spheres: (horizon, n_spheres, 4) x, y, z, radius along the path.
        cost: (horizon, n_spheres) cost of each sphere.
        clearance: (horizon, n_spheres) clearance of each sphere.
        title: One line.
        facts: One line below it.
        callout: Text at the deepest sphere, written if it collides.
    """

    obstacles: Sequence[Body]
    hit_obstacles: Collection[int]
    start: Sequence[Body]
    goal: Sequence[Body]
    spheres: Floats
    cost: Floats
    clearance: Floats
    title: str
    facts: str
    callout: str
