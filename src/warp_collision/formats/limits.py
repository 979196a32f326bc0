"""Limits of the content of files."""

from __future__ import annotations

import numpy as np

MAX_FACES = 50_000_000  # of a file, those of every instance counted
MAX_COORDINATE = 1e9  # as in a world; trimesh merges vertices far beyond it, all into one
MAX_PARTS = 4_000  # of a text file: trimesh takes quadratic time to name them


def check_vertices(vertices: np.ndarray) -> None:
    """Requires vertices (n, 3) that are finite and below 1e9."""
    bad = ~(np.abs(vertices) < MAX_COORDINATE).all(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"vertices must be finite and below 1e9, got {vertices[row].tolist()} at {row}"
        )
