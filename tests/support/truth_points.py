"""Points at which a sign can be wrong: random ones, and aligned ones where rays and normals tie."""

import numpy as np

from reference import Array, Indices
from shapes import rounded


def _bounds(vertices: Array) -> tuple[Array, Array]:
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    # Around the largest extent, so that 5 times the size of a plate is not a plate as well.
    return 0.5 * (low + high), np.full(3, (high - low).max())


def random_points(rng: np.random.Generator, vertices: Array, faces: Indices, count: int) -> Array:
    """Points (count, 3) in the bounding box, around it, out to 5 times its size, near the faces."""
    center, size = _bounds(vertices)
    extents = np.ptp(vertices, axis=0)
    quarter = count // 4
    corners = vertices[faces[rng.integers(len(faces), size=count - 3 * quarter)]]
    on_faces = np.einsum("nk,nkx->nx", rng.dirichlet(np.ones(3), size=len(corners)), corners)
    offsets = rng.normal(size=on_faces.shape) * 10.0 ** rng.uniform(-5, -1, size=(len(corners), 1))
    return rounded(
        np.concatenate(
            [
                center + rng.uniform(-0.5, 0.5, size=(quarter, 3)) * extents,
                center + rng.uniform(-0.75, 0.75, size=(quarter, 3)) * size,
                center + rng.uniform(-2.5, 2.5, size=(quarter, 3)) * size,
                on_faces + offsets * size,
            ]
        )
    )


def aligned_points(rng: np.random.Generator, vertices: Array, faces: Indices, count: int) -> Array:
    """Points (count, 3) in line with what a mesh is made of.

    Regular grids through its center and through the origin, the product of its vertices'
    coordinates, its axes of symmetry, places in the planes of its faces, on the lines of its edges
    and beyond its vertices along the axes; inside of it and out to 5 times its size.
    """
    share = count // 7 + 1
    makers = (
        _centered_grid,
        _origin_grid,
        _coordinate_products,
        _symmetry_axes,
        _planes_of_faces,
        _lines_of_edges,
        _axes_through_vertices,
    )
    points = np.concatenate([maker(rng, vertices, faces, share) for maker in makers])
    return rounded(points[rng.permutation(len(points))[:count]])


def _some(rng: np.random.Generator, points: Array, count: int) -> Array:
    return points[rng.choice(len(points), size=count, replace=len(points) < count)]


def _grid(side: int) -> Array:
    steps = np.arange(-side, side + 1) / side
    return np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)


def _centered_grid(rng: np.random.Generator, vertices: Array, _: Indices, count: int) -> Array:
    center, size = _bounds(vertices)
    extents = np.ptp(vertices, axis=0)
    scales = [0.5 * extents, 0.75 * size, 2.5 * size]
    return np.concatenate(
        [center + _some(rng, _grid(20), count // 3 + 1) * scale for scale in scales]
    )


def _origin_grid(rng: np.random.Generator, vertices: Array, _: Indices, count: int) -> Array:
    """Multiples of a power of two of a metre, which float32 adds without rounding."""
    center, size = _bounds(vertices)
    cell = 2.0 ** np.floor(np.log2(size[0] / 20.0))
    begin = np.round(center / cell)
    return (
        begin + _some(rng, _grid(25) * 25.0, count) * rng.choice([0.5, 1.0, 4.0], (count, 1))
    ) * cell


def _coordinate_products(
    rng: np.random.Generator, vertices: Array, _: Indices, count: int
) -> Array:
    center, size = _bounds(vertices)
    columns = []
    for axis in range(3):
        values = np.unique(vertices[:, axis])
        values = np.concatenate([values, 0.5 * (values[1:] + values[:-1])])
        outer = center[axis] + np.array([-2.5, 0.0, 2.5]) * size[axis]
        columns.append(rng.choice(np.concatenate([values, outer]), size=count))
    return np.column_stack(columns)


def _symmetry_axes(rng: np.random.Generator, vertices: Array, _: Indices, count: int) -> Array:
    center, size = _bounds(vertices)
    directions = _grid(1)
    along = np.concatenate([np.linspace(-2.5, 2.5, 2001), np.linspace(-0.5, 0.5, 2001)])
    chosen = directions[rng.integers(len(directions), size=count)]
    return center + chosen * rng.choice(along, size=(count, 1)) * size


def _planes_of_faces(
    rng: np.random.Generator, vertices: Array, faces: Indices, count: int
) -> Array:
    corners = vertices[faces[rng.integers(len(faces), size=count)]]
    reach = rng.choice([1.0, 4.0, 20.0], size=(count, 1))
    weights = reach * rng.integers(-8, 9, size=(count, 2)) / 8.0
    sides = corners[:, 1:] - corners[:, :1]
    return corners[:, 0] + np.einsum("nk,nkx->nx", weights, sides)


def _lines_of_edges(rng: np.random.Generator, vertices: Array, faces: Indices, count: int) -> Array:
    corners = vertices[faces[rng.integers(len(faces), size=count)]]
    along = rng.choice([1.0, 4.0, 20.0], size=(count, 1)) * rng.integers(-8, 9, size=(count, 1)) / 8
    return corners[:, 0] + along * (corners[:, 1] - corners[:, 0])


def _axes_through_vertices(
    rng: np.random.Generator, vertices: Array, _: Indices, count: int
) -> Array:
    _, size = _bounds(vertices)
    points = vertices[rng.integers(len(vertices), size=count)].copy()
    axis = rng.integers(3, size=count)
    points[np.arange(count), axis] += rng.uniform(-2.5, 2.5, size=count) * size[0]
    return points
