"""Polygons become triangles that cover them once, whatever their form and orientation."""

import numpy as np
import pytest
import trimesh

from warp_collision.io.solids import triangulate


def outline(rng: np.random.Generator, count: int, ragged: bool) -> np.ndarray:
    """A star-shaped polygon (count, 2), concave in many corners if it is ragged."""
    angles = np.sort(rng.uniform(0.0, 2.0 * np.pi, count) / count * 0.5) + np.linspace(
        0.0, 2.0 * np.pi, count, endpoint=False
    )
    radius = rng.uniform(0.2, 1.0, count) if ragged else np.ones(count)
    return radius[:, None] * np.column_stack((np.cos(angles), np.sin(angles)))


def area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


@pytest.mark.parametrize("ragged", [False, True])
def test_triangles_cover_polygons_once_and_keep_their_side(ragged):
    rng = np.random.default_rng(7)
    counts = rng.integers(3, 30, 60)
    polygons = [outline(rng, int(count), ragged) for count in counts]
    turns = [trimesh.transformations.random_rotation_matrix(rng.random(3)) for _ in counts]
    placed = [
        np.column_stack((p, np.zeros(len(p)))) @ t[:3, :3].T
        for p, t in zip(polygons, turns, strict=True)
    ]
    points = np.concatenate(placed)
    order = rng.permutation(len(points))
    indices = np.argsort(order)  # corners are scattered over the points
    faces = triangulate(points[order], counts, indices)

    assert len(faces) == (counts - 2).sum()
    corners = points[order][faces]
    doubled = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    first = 0
    for count, polygon, turn in zip(counts, polygons, turns, strict=True):
        own = doubled[first : first + count - 2] @ turn[:3, 2]
        first += count - 2
        assert own.min() > -1e-12
        assert 0.5 * own.sum() == pytest.approx(area(polygon))


def test_a_comb_and_quads_with_a_concave_corner():
    teeth = [[i, 1.0 if i % 2 else 3.0] for i in range(9, -1, -1)]
    comb = np.array([[0.0, 0.0], [9.0, 0.0], *teeth])
    arrows = [
        np.roll([[0.0, 0.0], [2.0, 0.0], [0.5, 0.5], [0.0, 2.0]], k, axis=0) for k in range(4)
    ]
    for polygon in (comb, *arrows):
        points = np.column_stack((polygon, np.zeros(len(polygon))))
        faces = triangulate(points, np.array([len(polygon)]), np.arange(len(polygon)))
        areas = [area(polygon[face]) for face in faces]
        assert min(areas) > 0.0
        assert sum(areas) == pytest.approx(area(polygon))
