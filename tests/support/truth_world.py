"""A plain model of MeshWorld: lists of analytic boxes, and what they cost."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import trimesh

from reference import Array, sphere_cost
from reference_sweep import swept_sphere_cost
from truth_boxes import Box
from truth_solids import box as solid_box
from truth_solids import double_sided, flipped, shuffled, soup

SIZES = ((0.3, 0.2, 0.1), (0.1, 0.1, 0.4), (0.5, 0.5, 0.001), (0.05, 0.05, 0.05))
FLAWS = {
    "as it is": lambda body: body,
    "soup": soup,
    "flipped": flipped,
    "double-sided": double_sided,
    "shuffled": lambda body: shuffled(body, 7),
}


@cache
def mesh(size: int, flaw: str) -> tuple[Array, Array]:
    """Vertices and faces of one of the boxes, as one of the ways to write it down."""
    return FLAWS[flaw](solid_box(SIZES[size])).mesh


@cache
def geometry_of(size: int, flaw: str) -> bytes:
    """Equal for the same arrays."""
    vertices, faces = mesh(size, flaw)
    return vertices.tobytes() + faces.tobytes()


@dataclass
class Entry:
    """A mesh of the model."""

    name: str
    size: int
    flaw: str
    pose: Array  # (7,)
    enabled: bool = True

    @property
    def given(self) -> trimesh.Trimesh | tuple[Array, Array]:
        """What the world is handed."""
        vertices, faces = mesh(self.size, self.flaw)
        if self.flaw == "as it is":
            return trimesh.Trimesh(vertices, faces, process=False)
        return vertices, faces


@dataclass
class Model:
    """What a world should hold: entries in slot order for each env, and room for so many."""

    n_envs: int
    max_obstacles: int
    envs: list[list[Entry]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.envs = [[] for _ in range(self.n_envs)]

    def find(self, env: int, name: str) -> int | None:
        """Slot of a name."""
        names = [entry.name for entry in self.envs[env]]
        return names.index(name) if name in names else None

    def box(self, entry: Entry) -> Box:
        """What an entry is a mesh of."""
        return Box(np.array(SIZES[entry.size], dtype=np.float32).astype(np.float64), entry.pose)

    def boxes(self, env: int) -> list[Box]:
        """The enabled boxes of an env."""
        return [self.box(entry) for entry in self.envs[env] if entry.enabled]

    def geometries(self) -> set[bytes]:
        """Each different mesh that is held."""
        return {geometry_of(entry.size, entry.flaw) for slots in self.envs for entry in slots}

    def cost(self, env: int, spheres: Array, swept: bool = False) -> Array:
        """Cost of spheres (1, horizon, n, 4) against an env."""
        return (swept_sphere_cost if swept else sphere_cost)(spheres, [self.boxes(env)])

    def distances(self, env: int, points: Array) -> Array:
        """Signed distance (n_meshes, n) of points (n, 3) to each, +inf to those that are off."""
        far = np.full(len(points), np.inf)
        slots = self.envs[env]
        each = [self.box(entry).distance(points) if entry.enabled else far for entry in slots]
        return np.reshape(each, (len(slots), len(points)))
