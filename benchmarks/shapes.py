"""Meshes of the workloads, by name, and poses for them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import trimesh
from numpy.typing import NDArray

Array = NDArray[np.float32]

ASSETS = Path(__file__).resolve().parents[1] / "assets"
SIZE = 0.5  # [m] longest edge of the box of a mesh that stands alone


@cache
def shape(name: str) -> trimesh.Trimesh:
    """A mesh, centered, its longest edge 0.5 m.

    Args:
        name: "torus-T" or "ball-T" with about T triangles, "link" or "hand" of the robot, or
            "kitchen", an open mesh of two thin pieces.
    """
    kind, _, size = name.partition("-")
    if kind == "torus":
        sections = max(3, round((int(size) / 2) ** 0.5))
        made = trimesh.creation.torus(0.18, 0.07, major_sections=sections, minor_sections=sections)
    elif kind == "ball":
        made = trimesh.creation.icosphere(max(0, round(np.log(int(size) / 20) / np.log(4))), 0.25)
    elif kind == "kitchen":
        pieces = (_asset("kitchen/countertop.stl"), _asset("kitchen/oven.stl"))
        made = trimesh.util.concatenate(list(pieces))
    else:
        made = _asset({"link": "panda/meshes/link5.stl", "hand": "panda/meshes/hand.stl"}[kind])
    made.apply_translation(-made.bounds.mean(axis=0))
    return made.apply_scale(SIZE / made.extents.max())


@cache
def clutter() -> tuple[trimesh.Trimesh, ...]:
    """Small meshes of different kinds that fill a scene, each about 0.2 m."""
    return (
        trimesh.creation.icosphere(2, 0.1),
        trimesh.creation.box((0.2, 0.15, 0.1)),
        trimesh.creation.torus(0.1, 0.03),
        shape("link").copy().apply_scale(0.4),
    )


def random_poses(rng: np.random.Generator, count: int, edge: float) -> Array:
    """Poses (count, 7) x, y, z, qw, qx, qy, qz with centers in a cube from 0 to ``edge`` [m]."""
    turns = rng.normal(size=(count, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    return np.hstack([rng.uniform(0.0, edge, (count, 3)), turns]).astype(np.float32)


def _asset(path: str) -> trimesh.Trimesh:
    loaded = trimesh.load_mesh(ASSETS / path)
    assert isinstance(loaded, trimesh.Trimesh)
    return loaded
