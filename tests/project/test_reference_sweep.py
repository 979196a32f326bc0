"""The float64 reference of moving spheres against truths that are known without it."""

from collections.abc import Callable

import numpy as np
import pytest

import reference_sweep
import shapes
from cases import mostly_slow
from reference import Array, closest_on_triangles, mesh_signed_distance, sphere_cost


def distance_of(name: str) -> Callable[[Array], Array]:
    obstacle = shapes.mesh(name)
    return lambda p: mesh_signed_distance(p, obstacle.vertices, obstacle.faces).distance


def path(*centers: tuple[float, float, float], radius: float = 0.05) -> Array:
    """One sphere on a path, (1, horizon, 1, 4)."""
    return np.array([[*center, radius] for center in centers]).reshape(1, -1, 1, 4)


def segment_distance(starts: Array, ends: Array, name: str) -> Array:
    """Distance (n,) of segments to a mesh, by golden sections of each triangle's convex one."""
    obstacle = shapes.mesh(name)
    corners = np.tile(obstacle.vertices[obstacle.faces], (len(starts), 1, 1))
    begin, end = (np.repeat(p, len(obstacle.faces), axis=0) for p in (starts, ends))

    def at(fraction: Array) -> Array:
        points = begin + fraction[:, None] * (end - begin)
        return np.linalg.norm(points - closest_on_triangles(points, corners), axis=1)

    low, high = np.zeros(len(begin)), np.ones(len(begin))
    golden = 0.5 * (np.sqrt(5.0) - 1.0)
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        rises = at(left) < at(right)
        low, high = np.where(rises, low, left), np.where(rises, right, high)
    return at(0.5 * (low + high)).reshape(len(starts), -1).min(axis=1)


@pytest.mark.parametrize("name", mostly_slow(shapes.CLOSED, ("torus",)))
def test_minimum_outside_is_the_distance_of_segment_and_triangles(name: str) -> None:
    rng = np.random.default_rng(1)
    spheres = shapes.paths_outside(rng, shapes.mesh(name), (30, 2, 1), step=0.5)
    starts, ends = spheres[:, 0, 0, :3], spheres[:, 1, 0, :3]
    lowest = reference_sweep.path_minimum(starts, ends, distance_of(name)).distance
    exact = segment_distance(starts, ends, name)
    outside = lowest > 0.0
    assert outside.sum() > 10
    np.testing.assert_allclose(lowest[outside], exact[outside], atol=2e-9)
    np.testing.assert_allclose(exact[~outside], 0.0, atol=1e-9)  # these cut the surface


@pytest.mark.parametrize("name", mostly_slow(shapes.CLOSED, ("torus",)))
def test_minimum_inside_is_that_of_many_samples(name: str) -> None:
    rng = np.random.default_rng(2)
    points = shapes.box_points(rng, shapes.mesh(name), 12)
    starts, ends = points[:6], points[6:]
    result = reference_sweep.path_minimum(starts, ends, distance_of(name))
    fractions = np.linspace(0.0, 1.0, 2001)
    dense = starts[:, None] + fractions[:, None] * (ends - starts)[:, None]
    values = distance_of(name)(dense.reshape(-1, 3)).reshape(6, -1)
    spacing = np.linalg.norm(ends - starts, axis=1) / 2000
    assert (result.distance < -0.005).any()
    assert (result.distance <= values.min(axis=1) + 1e-12).all()
    assert (result.distance >= values.min(axis=1) - spacing).all()
    at = starts + result.fraction[:, None] * (ends - starts)
    np.testing.assert_allclose(distance_of(name)(at), result.distance, atol=1e-12)


def test_a_sphere_that_passes_over_a_box_comes_as_close_as_its_height() -> None:
    top = shapes.mesh("box").vertices[:, 2].max()
    lowest = reference_sweep.swept_distance(
        path((-1, 0, 0.15), (1, 0, 0.15), (1, 0, 0.5)), distance_of("box")
    )
    corner = np.hypot(0.75, 0.15 - top)  # the waypoint's own place, past the box's edge
    np.testing.assert_allclose(lowest[0, :2, 0], 0.15 - top, atol=1e-9)
    np.testing.assert_allclose(lowest[0, 2, 0], np.hypot(0.75, 0.325 - top), atol=1e-9)
    assert lowest[0, 1, 0] < corner


def test_a_thin_plate_is_not_passed_over() -> None:
    """The plate lies in the half that waypoint 0 owns; its middle is 0.25 mm deep."""
    spheres = path((0.1, 0.2, -0.3), (0.1, 0.2, 1.7))
    lowest = reference_sweep.swept_distance(spheres, distance_of("plate"))
    np.testing.assert_allclose(lowest.ravel(), [-0.00025, 0.7 - 0.00025], atol=1e-8)


def test_a_disabled_neighbour_ends_the_path() -> None:
    spheres = path((0, 0, -0.5), (0, 0, 0.5), (0, 0, 1.0))
    spheres[0, 0, 0, 3] = -1.0
    lowest = reference_sweep.swept_distance(spheres, distance_of("plate"))
    np.testing.assert_allclose(lowest.ravel(), [np.inf, 0.49975, 0.74975], atol=1e-8)


def test_at_rest_and_reversed() -> None:
    rng = np.random.default_rng(3)
    scenes = [[shapes.mesh("box"), shapes.mesh("icosphere")]]
    spheres = shapes.random_paths(rng, shapes.mesh("box"), (2, 3, 2), disabled=0.2)
    cost = reference_sweep.swept_sphere_cost(spheres, scenes, dt=0.1)
    backward = reference_sweep.swept_sphere_cost(spheres[:, ::-1], scenes, dt=0.1)
    np.testing.assert_allclose(backward[:, ::-1], cost, atol=1e-9)
    assert (cost > 0.0).any()
    rest = np.repeat(spheres[:, :1], 3, axis=1)
    np.testing.assert_array_equal(
        reference_sweep.swept_sphere_cost(rest, scenes), sphere_cost(rest, scenes)
    )


def test_speeds_by_hand() -> None:
    spheres = path((0, 0, 0), (1, 0, 0), (1, 2, 0), (1, 2, 4))
    speed = reference_sweep.speeds(spheres, 0.5).ravel()
    np.testing.assert_allclose(speed, [2, np.sqrt(5), np.sqrt(20), 8])
    spheres[0, 2, 0, 3] = -1.0
    speed = reference_sweep.speeds(spheres, 0.5).ravel()
    np.testing.assert_allclose(speed[[0, 1, 3]], [2, 2, 0])
    assert reference_sweep.speeds(path((1, 2, 3)), 0.5).item() == 0.0


def test_the_speed_scales_the_cost_down_to_a_floor() -> None:
    block = shapes.box((4.0, 4.0, 4.0))
    for step, scale in ((0.0, 0.01), (0.0005, 0.01), (0.3, 3.0)):
        spheres = path((0, 0, 0), (0, 0, step))
        plain = reference_sweep.swept_sphere_cost(spheres, [[block]])
        scaled = reference_sweep.swept_sphere_cost(spheres, [[block]], dt=0.1)
        np.testing.assert_allclose(scaled, scale * plain)


def test_path_gradient_of_a_fall_onto_a_block() -> None:
    """The lowest place that a waypoint owns is half way to the next one, so both share it."""
    block = shapes.box((2.0, 2.0, 2.0))
    spheres = path((0, 0, 1.24), (0.1, 0, 1.04), (0.1, 0.1, 1.2))

    def cost(paths: Array) -> Array:
        return reference_sweep.swept_sphere_cost(
            paths, [[block]], weight=2.0, activation_distance=0.1, levels=6
        )

    np.testing.assert_allclose(
        cost(spheres).ravel(), [2 * 0.01**2 / 0.2, 2 * 0.06, 0.009], atol=1e-9
    )
    result = reference_sweep.path_gradient(cost, spheres)
    expected = np.zeros((3, 3, 4))
    expected[0, 1:, 2] = [-0.1, -0.1]  # d = 0.01: slope 2 * 0.01 / 0.1, halved
    expected[0, 1, 3] = 0.2
    expected[1, 1, 2:] = [-2.0, 2.0]  # d = 0.11: slope 2, at the waypoint itself
    expected[2, :2, 2] = [-0.3, -0.3]
    expected[2, 1, 3] = 0.6
    np.testing.assert_allclose(result.jacobian[0, :, 0], expected, atol=1e-3)


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_pulling_back_is_the_gradient_of_the_weighted_sum(horizon: int) -> None:
    rng = np.random.default_rng(4)
    spheres = rng.uniform(0.1, 1.0, size=(2, horizon, 2, 4))
    incoming = rng.normal(size=spheres.shape[:3])

    def cost(paths: Array) -> Array:
        padded = np.pad(paths, ((0, 0), (1, 1), (0, 0), (0, 0)))
        return np.sin(paths * (1 + padded[:, :-2] + 2 * padded[:, 2:] ** 2)).sum(axis=-1)

    result = reference_sweep.path_gradient(cost, spheres).pull_back(incoming)
    expected = np.empty_like(spheres)
    for index in np.ndindex(spheres.shape):
        offset = np.zeros_like(spheres)
        offset[index] = 1e-6
        change = cost(spheres + offset) - cost(spheres - offset)
        expected[index] = (incoming * change).sum() / 2e-6
    np.testing.assert_allclose(result, expected, atol=1e-6)
