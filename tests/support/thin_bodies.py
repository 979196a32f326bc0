"""Adversarial meshes: long, thin, flat, nested, far, tiny and huge, and points beside them.

Aspect ratios from 1 to a million, sizes from 0.1 mm to 100 m, turned and shifted, closed and open.
All vertices are float32 numbers, which is what the library is given.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import trimesh

from mesh_defects import Mesh, arrays, together
from reference import Array, rotation_matrix
from shapes import rounded


class Body(NamedTuple):
    """A mesh, and what it is called."""

    name: str
    vertices: Array
    faces: Array


def prism(profile: Array, length: float, taper: float = 1.0, twist: float = 0.0) -> Mesh:
    """A body along z over a simple polygon (n, 2), counter-clockwise, star-shaped about its mean.

    Args:
        profile: at the lower end.
        length: along z, around the origin.
        taper: size of the upper end against the lower one.
        twist: turn of the upper end [rad]: its sides are no planes then.
    """
    n = len(profile)
    turn = np.array([[np.cos(twist), np.sin(twist)], [-np.sin(twist), np.cos(twist)]])
    upper = taper * profile @ turn
    middles = np.stack([profile.mean(axis=0), upper.mean(axis=0)])
    flat = np.concatenate([profile, upper, middles])
    z = np.repeat([-0.5, 0.5, -0.5, 0.5], [n, n, 1, 1]) * length
    i, j = np.arange(n), np.roll(np.arange(n), -1)
    sides = [np.stack([i, j, j + n], axis=1), np.stack([i, j + n, i + n], axis=1)]
    caps = [np.stack([j, i, 0 * i + 2 * n], axis=1), np.stack([i + n, j + n, 0 * i + 2 * n + 1], 1)]
    return np.column_stack([flat, z]), np.concatenate(sides + caps)


def circle(n: int, radius: float) -> Array:
    """A regular polygon (n, 2)."""
    angle = 2.0 * np.pi * np.arange(n) / n
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _without_ends(mesh: Mesh) -> Mesh:
    """Only the sides of a prism."""
    heights = mesh[0][mesh[1]][:, :, 2]
    return mesh[0], mesh[1][np.ptp(heights, axis=1) > 0.0]


def _rod(rng: np.random.Generator, aspect: float) -> Mesh:
    sides = int(rng.choice([3, 4, 8, 32]))
    return prism(circle(sides, 0.5), aspect)


def _tube(rng: np.random.Generator, aspect: float) -> Mesh:
    return _without_ends(_rod(rng, aspect))


def _panel(rng: np.random.Generator, aspect: float) -> Mesh:
    width = np.exp(rng.uniform(0.0, np.log(max(aspect, 1.001))))
    return arrays(trimesh.creation.box((1.0, width, aspect)))


def _cone(rng: np.random.Generator, aspect: float) -> Mesh:
    return arrays(
        trimesh.creation.cone(radius=0.5, height=aspect, sections=int(rng.integers(3, 40)))
    )


def _needle(rng: np.random.Generator, aspect: float) -> Mesh:
    corners = rng.normal(size=(4, 3)) * (1.0, 1.0, aspect)
    made = trimesh.Trimesh(corners, [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]], process=False)
    return corners, made.faces if made.volume > 0.0 else made.faces[:, ::-1]


def _strip(rng: np.random.Generator, aspect: float) -> Mesh:
    """Twisted, so that the halves of its sides lie in no plane, but not through each other."""
    profile = np.array([[-0.5, -0.05], [0.5, -0.05], [0.5, 0.05], [-0.5, 0.05]])
    return prism(profile, aspect, twist=rng.uniform(0.0, 0.15))


def _spike(rng: np.random.Generator, aspect: float) -> Mesh:
    return prism(circle(int(rng.integers(3, 20)), 0.5), aspect, taper=10.0 ** rng.uniform(-4, 0))


def _rail(rng: np.random.Generator, aspect: float) -> Mesh:
    """A star for a profile: edges inward and outward."""
    n = 2 * int(rng.integers(3, 12))
    return prism(
        circle(n, 0.5) * np.where(np.arange(n) % 2, 1.0, rng.uniform(0.2, 0.9))[:, None], aspect
    )


def _cable(rng: np.random.Generator, aspect: float) -> Mesh:
    """Rings along a path that bends a little at each."""
    n_rings, n = int(rng.integers(2, 6)), int(rng.integers(3, 16))
    bends = np.cumsum(rng.normal(size=(n_rings, 2)) * 0.02 * aspect, axis=0)
    z = np.linspace(-0.5, 0.5, n_rings) * aspect
    rings = [
        np.column_stack([circle(n, 0.5) + b, np.full(n, h)]) for b, h in zip(bends, z, strict=True)
    ]
    i, j = np.arange(n), np.roll(np.arange(n), -1)
    faces = []
    for k in range(n_rings - 1):
        low, high = k * n, (k + 1) * n
        faces += [
            np.stack([i + low, j + low, j + high], 1),
            np.stack([i + low, j + high, i + high], 1),
        ]
    last = (n_rings - 1) * n
    faces += [
        np.stack([0 * i[1:-1], i[2:], i[1:-1]], 1),
        last + np.stack([0 * i[1:-1], i[1:-1], i[2:]], 1),
    ]
    return np.concatenate(rings), np.concatenate(faces)


def _pipe(rng: np.random.Generator, aspect: float) -> Mesh:
    """A rod with a cavity along it."""
    sides = int(rng.choice([4, 8, 32]))
    outer, inner = prism(circle(sides, 0.5), aspect), prism(circle(sides, 0.4), 0.99 * aspect)
    return together(outer, (inner[0], inner[1][:, ::-1]))


def _mixed(rng: np.random.Generator, aspect: float) -> Mesh:
    """A rod and a speck beside it."""
    speck = prism(circle(6, 0.5), 1.0)
    return together(
        _rod(rng, aspect), (speck[0] + (1.5, 0.0, rng.uniform(-0.5, 0.5) * aspect), speck[1])
    )


KINDS: dict[str, Callable[[np.random.Generator, float], Mesh]] = {
    "rod": _rod,
    "tube": _tube,
    "panel": _panel,
    "cone": _cone,
    "needle": _needle,
    "strip": _strip,
    "spike": _spike,
    "rail": _rail,
    "cable": _cable,
    "pipe": _pipe,
    "mixed": _mixed,
}


def random_body(kind: str, seed: int) -> Body:
    """A mesh of a kind: aspect, size, turn and shift by the seed."""
    rng = np.random.default_rng((seed, list(KINDS).index(kind)))
    aspect = 10.0 ** rng.uniform(0.0, 6.0)
    size = 10.0 ** rng.uniform(-4.0, 2.0)
    vertices, faces = KINDS[kind](rng, aspect)
    vertices = vertices / np.ptp(vertices, axis=0).max() * size
    if rng.random() < 0.7:
        vertices = vertices @ rotation_matrix(rng.normal(size=4)).T
    if rng.random() < 0.7:
        vertices = vertices + rng.normal(size=3) * size * 10.0 ** rng.uniform(-1.0, 1.0)
    name = f"{kind} {seed}: {size:.1e} m, aspect {aspect:.1e}, {len(faces)} faces"
    return Body(name, rounded(vertices), np.asarray(faces, dtype=np.int64))


def points_beside(body: Body, seed: int, count: int) -> Array:
    """Points (count, 3): close to faces, edges and vertices at all scales, inside, and around."""
    rng = np.random.default_rng((seed, 7))
    corners = body.vertices[body.faces[rng.integers(len(body.faces), size=count)]]
    weights = rng.dirichlet(np.ones(3), size=count)
    weights[rng.random(count) < 0.2, 0] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    size = np.ptp(body.vertices, axis=0).max()
    away = rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-7.0, 0.0, size=(count, 1)) * size
    beside = np.einsum("nk,nkx->nx", weights, corners) + away
    # Between two places of the surface: in the body, more often than not.
    others = body.vertices[body.faces[rng.integers(len(body.faces), size=count)]]
    share = rng.random((count, 1))
    between = share * corners.mean(axis=1) + (1.0 - share) * np.einsum(
        "nk,nkx->nx", weights, others
    )
    low, high = body.vertices.min(axis=0), body.vertices.max(axis=0)
    around = rng.uniform(low - 0.1 * size, high + 0.1 * size, size=(count, 3))
    kind = rng.choice(3, size=(count, 1), p=[0.5, 0.35, 0.15])
    return rounded(np.where(kind == 0, beside, np.where(kind == 1, between, around)))
