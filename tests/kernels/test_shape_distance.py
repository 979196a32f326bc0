"""The formulas of exact shapes against the distances of their pieces in float64."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import warp as wp

from exact_scenes import library_shape
from exact_shapes import (
    ExactShape,
    capsule,
    cone,
    cuboid,
    cylinder,
    half_space,
    scattered,
    slopes,
    sphere,
)
from warp_collision import Capsule, Cuboid, Cylinder, Sphere
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.mesh_distance import exact_distance
from warp_collision.kernels.mesh_record import MeshRecord
from warp_collision.kernels.shape_distance import height_over_shape
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.obstacles.mesh_obstacle import describe_shape
from warp_collision.obstacles.shapes import PlacedShape

wp.set_module_options(OPTIONS)

N_POINTS = 20_000
FAR = 1e15

SHAPES = (
    cuboid(0.4, 0.3, 0.2),
    cuboid(2.0, 0.001, 1.0),
    cuboid(1e-6, 3e-6, 2e-6),
    cuboid(3e5, 2e4, 1e6),
    sphere(0.25),
    sphere(1e-6),
    sphere(3e6),
    capsule(0.05, 0.4),
    capsule(0.3, 0.0),
    capsule(0.001, 10.0),
    capsule(2e5, 1e-3),
    cylinder(0.1, 0.5),
    cylinder(0.5, 0.001),
    cylinder(0.002, 8.0),
    cylinder(1e-5, 2e-5),
    cylinder(4e5, 1e6),
    cone(0.1, 0.5),
    cone(0.5, 0.001),
    cone(0.002, 8.0),
    cone(1e-5, 2e-5),
    cone(4e5, 1e6),
    half_space(0.0, 0.0, 1.0, 0.0),
    half_space(-0.3, 0.5, 0.8, -0.4),
    half_space(0.0, -2.0, 0.0, 300.0),
    half_space(1.0, 1e-3, 0.2, 2e5),
)
TURNS = {
    "straight": (1.0, 0.0, 0.0, 0.0),
    "turned": (0.3, -0.5, 0.7, 0.4),
    "half": (0, 0.6, 0, 0.8),
}


class Sampled(NamedTuple):
    """What the kernels find."""

    distance: np.ndarray
    gradient: np.ndarray
    closest: np.ndarray
    height: np.ndarray


@wp.kernel
def sample_shape(
    record: wp.array[MeshRecord],
    points: wp.array[wp.vec3],
    limit: float,
    distance: wp.array[wp.float32],
    gradient: wp.array[wp.vec3],
    closest: wp.array[wp.vec3],
    height: wp.array[wp.float32],
):
    """The signed distance of an exact shape."""
    index = wp.tid()
    known = record[0]
    sample = exact_distance(known.exact, points[index], limit)
    distance[index] = sample.distance
    gradient[index] = sample.gradient
    closest[index] = sample.closest
    height[index] = height_over_shape(known.exact, points[index])


def record_of(placed: PlacedShape) -> Any:
    record = MeshRecord()
    describe_shape(record, placed)
    return record


def sampled(placed: PlacedShape, points: np.ndarray, limit: float = FAR) -> Sampled:
    """Distances at points (n, 3) float32."""
    count = len(points)
    with quiet_warp():
        outputs = [
            wp.zeros(count, dtype=kind, device="cpu")
            for kind in (wp.float32, wp.vec3, wp.vec3, wp.float32)
        ]
        wp.launch(
            sample_shape,
            count,
            [
                wp.array([record_of(placed)], dtype=MeshRecord, device="cpu"),
                wp.array(points, dtype=wp.vec3, device="cpu"),
                limit,
            ],
            outputs,
            device="cpu",
        )
    return Sampled(*(np.asarray(output.numpy(), np.float64) for output in outputs))


def name_of(exact: ExactShape) -> str:
    return f"{exact.kind}{exact.parameters}"


@pytest.mark.parametrize("exact", SHAPES, ids=name_of)
def test_distance_and_gradient(exact: ExactShape) -> None:
    rng = np.random.default_rng(len(name_of(exact)))
    points = scattered(exact, N_POINTS, rng).astype(np.float32)
    found = sampled(PlacedShape(library_shape(exact)), points)
    assert np.array_equal(found.height, found.distance)
    points = points.astype(np.float64)
    truth = exact.distance(points)
    scale = np.linalg.norm(points, axis=1) + exact.size
    assert (np.abs(found.distance - truth) / scale).max() < 2e-7
    np.testing.assert_allclose(np.linalg.norm(found.gradient, axis=1), 1.0, rtol=0, atol=1e-6)
    # The surface is where the closest point is said to be.
    assert (np.abs(exact.distance(found.closest)) / scale).max() < 4e-7
    way = np.linalg.norm(points - found.closest, axis=1)
    assert (np.abs(way - np.abs(truth)) / scale).max() < 4e-7

    forward, backward = slopes(exact, points, 1e-6 * (exact.half_extents.min() + np.abs(truth)))
    smooth = np.abs(forward - backward).max(axis=1) < 1e-3
    slope = 0.5 * (forward + backward)
    error = np.abs(found.gradient - slope).max(axis=1)
    # Rounding of the point tilts the direction to an edge that is near.
    assert (error / (1e-3 + 4e-7 * scale / np.abs(truth).clip(1e-12 * scale)))[smooth].max() < 1.0
    assert smooth.mean() > 0.5
    # On a kink the gradient is one between those of both sides.
    low, high = np.minimum(forward, backward), np.maximum(forward, backward)
    off = np.abs(truth) > 1e-4 * scale
    assert ((found.gradient > low - 0.01) & (found.gradient < high + 0.01))[off].all()


@pytest.mark.parametrize("turn", list(TURNS))
@pytest.mark.parametrize("exact", SHAPES[::3], ids=name_of)
def test_turned_and_shifted_in_its_frame(exact: ExactShape, turn: str) -> None:
    rng = np.random.default_rng(3)
    quaternion = np.array(TURNS[turn]) / np.linalg.norm(TURNS[turn])
    w, u = quaternion[0], quaternion[1:]
    center = np.array([0.3, -0.2, 0.7]) * exact.size
    local = scattered(exact, N_POINTS, rng)
    cross = 2.0 * np.cross(u, local)
    points = (local + w * cross + np.cross(u, cross) + center).astype(np.float32)
    found = sampled(PlacedShape(library_shape(exact), center, quaternion), points)
    scale = np.linalg.norm(points, axis=1) + exact.size
    assert (np.abs(found.distance - exact.distance(local)) / scale).max() < 1e-6
    way = points - found.distance[:, None] * found.gradient
    assert (np.linalg.norm(way - found.closest, axis=1) / scale).max() < 1e-6
    assert (np.abs(np.linalg.norm(found.gradient, axis=1) - 1.0)).max() < 1e-6
    # Back in the frame of the shape the closest points are on its surface.
    way = found.closest - center
    cross = 2.0 * np.cross(-u, way)
    assert (np.abs(exact.distance(way + w * cross + np.cross(-u, cross))) / scale).max() < 1e-6


@pytest.mark.parametrize("exact", SHAPES[::4], ids=name_of)
def test_what_is_beyond_the_limit_is_not_found(exact: ExactShape) -> None:
    points = scattered(exact, 1000, np.random.default_rng(7)).astype(np.float32)
    limit = 0.1 * exact.size
    placed = PlacedShape(library_shape(exact))
    everywhere, near = sampled(placed, points), sampled(placed, points, limit)
    found = everywhere.distance < np.float32(limit)
    assert 100 < found.sum() < 900
    np.testing.assert_array_equal(near.distance[found], everywhere.distance[found])
    np.testing.assert_array_equal(near.gradient[found], everywhere.gradient[found])
    assert (near.distance[~found] == np.float32(limit)).all()
    assert (near.gradient[~found] == 0.0).all()


def test_fixed_directions() -> None:
    """Where all directions are as good, the same one is taken on every device."""
    cases = (
        (Cuboid((0.4, 0.4, 0.4)), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
        (Cuboid((0.4, 0.4, 0.4)), (0.0, -0.1, -0.1), (0.0, -1.0, 0.0)),
        (Cuboid((0.4, 0.4, 0.4)), (0.1, 0.2, -0.2), (0.0, 1.0, 0.0)),
        (Sphere(0.4), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
        (Capsule(0.1, 0.4), (0.0, 0.0, -0.1), (1.0, 0.0, 0.0)),
        (Cylinder(0.1, 0.4), (0.0, 0.0, 0.05), (1.0, 0.0, 0.0)),
        (Cylinder(0.1, 0.4), (0.0, 0.0, -0.15), (0.0, 0.0, -1.0)),
        (Cylinder(0.1, 0.4), (0.1, 0.0, 0.2), (1.0, 0.0, 0.0)),
    )
    for shape, point, direction in cases:
        found = sampled(PlacedShape(shape), np.array([point], np.float32))
        assert tuple(found.gradient[0]) == direction, (shape, point)
