"""The float64 reference against truths that are known without it."""

import numpy as np
import pytest
import trimesh

import reference
import shapes
from reference import Array, Obstacle

HALF = np.array([0.25, 0.15, 0.1])  # of shapes.mesh("box")


def box_distance(points: Array, half: Array) -> Array:
    """Exact signed distance (n,) of a box around the origin."""
    excess = np.abs(points) - half
    outside = np.linalg.norm(np.maximum(excess, 0.0), axis=1)
    return outside + np.minimum(excess.max(axis=1), 0.0)


def sample(name: str, points: Array) -> reference.SignedDistance:
    obstacle = shapes.mesh(name)
    return reference.mesh_signed_distance(points, obstacle.vertices, obstacle.faces)


@pytest.mark.parametrize("narrow", [1.0, 1e-3, 1e-6, 0.0])
def test_closest_point_of_a_triangle_is_its_projection(narrow: float) -> None:
    """A point c of a convex set is closest to p iff no v of the set has (p - c).(v - c) > 0."""
    rng = np.random.default_rng(1)
    corners = rng.normal(size=(2000, 3, 3))
    corners[:, 2] = 0.3 * corners[:, 0] + 0.7 * corners[:, 1] + narrow * corners[:, 2]
    points = rng.normal(size=(2000, 3))
    closest = reference.closest_on_triangles(points, corners)
    slope = np.einsum("nx,nkx->nk", points - closest, corners - closest[:, None])
    assert slope.max() < 1e-9
    faces = np.arange(6000).reshape(2000, 3)
    for i in range(0, 2000, 40):  # c lies in the triangle: its distance to it is 0
        at = closest[i : i + 1]
        assert np.linalg.norm(reference.closest_on_triangles(at, corners[i : i + 1]) - at) < 1e-12
    by_mesh, _ = reference.closest_points(points[:20], corners.reshape(-1, 3), faces)
    every = np.repeat(points[:20], 2000, axis=0)
    direct = reference.closest_on_triangles(every, np.tile(corners, (20, 1, 1)))
    nearest = np.linalg.norm(every - direct, axis=1).reshape(20, 2000).min(axis=1)
    np.testing.assert_allclose(np.linalg.norm(points[:20] - by_mesh, axis=1), nearest, atol=1e-14)


def test_a_collinear_triangle_is_a_segment() -> None:
    """Distance to a segment, the axis of a capsule: to the ends beyond them, else to the line."""
    corners = np.array([[-1.0, 0, 0], [1.0, 0, 0], [0.25, 0, 0]])
    points = np.array([[0.5, 0.3, 0.4], [3.0, 0.0, 0.0], [-2.0, 2.0, 2.0], [0.1, 0.0, 0.0]])
    closest, _ = reference.closest_points(points, corners, np.array([[0, 1, 2]]))
    distance = np.linalg.norm(points - closest, axis=1)
    np.testing.assert_allclose(distance, [0.5, 2.0, 3.0, 0.0], atol=1e-15)


def test_box_distance_is_exact() -> None:
    rng = np.random.default_rng(2)
    points = shapes.mixed_points(rng, shapes.mesh("box"), 4000)
    half = shapes.mesh("box").vertices.max(axis=0)
    np.testing.assert_allclose(
        sample("box", points).distance, box_distance(points, half), atol=1e-14
    )


def test_plate_distance_is_exact() -> None:
    rng = np.random.default_rng(3)
    plate = shapes.mesh("plate")
    points = rng.uniform(-1.0, 1.0, size=(2000, 3)) * [0.6, 0.6, 0.002]
    expected = box_distance(points, plate.vertices.max(axis=0))
    assert (expected < 0.0).any()
    np.testing.assert_allclose(sample("plate", points).distance, expected, atol=1e-14)


def test_sphere_distance_is_between_the_inscribed_and_the_circumscribed() -> None:
    points = np.random.default_rng(4).normal(size=(2000, 3)) * 0.3
    ball = trimesh.creation.icosphere(subdivisions=3, radius=0.25)
    distance = reference.mesh_signed_distance(points, ball.vertices, ball.faces).distance
    inscribed = np.linalg.norm(ball.triangles_center, axis=1).min()
    radius = np.linalg.norm(points, axis=1)
    assert (distance >= radius - 0.25 - 1e-12).all()
    assert (distance <= radius - inscribed + 1e-12).all()


@pytest.mark.parametrize("name", shapes.CLOSED)
def test_winding_of_a_closed_mesh_is_0_or_1(name: str) -> None:
    obstacle = shapes.mesh(name)
    points = shapes.mixed_points(np.random.default_rng(5), obstacle, 2000)
    winding = reference.winding_number(points, obstacle.vertices, obstacle.faces)
    np.testing.assert_allclose(winding, np.round(winding), atol=1e-9)
    assert set(np.round(winding)) == {0.0, 1.0}


def test_winding_of_a_cube_without_a_face_is_five_sixths_in_the_middle() -> None:
    cube = shapes.box((1.0, 1.0, 1.0))
    top = np.all(cube.vertices[cube.faces][:, :, 2] == 0.5, axis=1)
    assert top.sum() == 2
    middle = np.zeros((1, 3))
    for faces, expected in (
        (cube.faces[~top], 5 / 6),
        (cube.faces[top], 1 / 6),
        (cube.faces[:, ::-1], -1.0),
        (np.concatenate([cube.faces, cube.faces]), 2.0),
    ):
        winding = reference.winding_number(middle, cube.vertices, faces)
        np.testing.assert_allclose(winding, expected, atol=1e-12)


@pytest.mark.parametrize("name", shapes.CLOSED)
def test_distance_agrees_with_its_gradient(name: str) -> None:
    points = shapes.mixed_points(np.random.default_rng(6), shapes.mesh(name), 400)
    gradient = sample(name, points).gradient
    differences = reference.row_gradient(lambda p: sample(name, p).distance, points, step=1e-7)
    smooth = differences.kink < 1e-3
    assert smooth.mean() > 0.95
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(gradient[smooth], differences.gradient[smooth], atol=1e-4)


def test_gradient_on_the_surface_is_the_face_normal() -> None:
    points = HALF * np.array([[1, 0.3, -0.2], [0.1, -1, 0.3], [0.2, 0.4, 1], [-1, -0.9, 0.9]])
    result = sample("box", shapes.rounded(points))
    normals = [[1, 0, 0], [0, -1, 0], [0, 0, 1], [-1, 0, 0]]
    np.testing.assert_allclose(result.gradient, normals, atol=1e-12)
    np.testing.assert_allclose(result.distance, 0.0, atol=1e-15)


def test_pose_moves_the_mesh() -> None:
    """A quarter turn about z and a shift, by hand: mesh x is world y."""
    turned = shapes.mesh("box")._replace(pose=(1.0, 0, 0, np.sqrt(0.5), 0, 0, np.sqrt(0.5)))
    result = reference.obstacle_signed_distance(np.array([[1.0, 0.35, 0.0]]), turned)
    np.testing.assert_allclose(result.distance, [0.1], atol=1e-7)
    np.testing.assert_allclose(result.gradient, [[0, 1, 0]], atol=1e-7)


def test_pose_of_any_kind_keeps_distances() -> None:
    rng = np.random.default_rng(7)
    moved = shapes.placed("robot_link", rng)
    local = shapes.mixed_points(rng, shapes.mesh("robot_link"), 200)
    posed = reference.obstacle_signed_distance(shapes.to_world(local, moved), moved)
    np.testing.assert_allclose(posed.distance, sample("robot_link", local).distance, atol=1e-12)


def test_scene_takes_the_nearest_enabled_mesh() -> None:
    near = shapes.mesh("box")._replace(pose=(0.5, 0, 0, 1, 0, 0, 0))
    far = shapes.mesh("box")._replace(pose=(-1.5, 0, 0, 1, 0, 0, 0))
    origin = np.zeros((1, 3))
    both = reference.scene_signed_distance(origin, [far, near])
    np.testing.assert_allclose(both.distance, [0.25], atol=1e-7)
    assert both.source[0] == 1
    one = reference.scene_signed_distance(origin, [far, near._replace(enabled=False)])
    np.testing.assert_allclose(one.distance, [1.25], atol=1e-7)
    assert one.source[0] == 0
    none = reference.scene_signed_distance(origin, [])
    assert none.distance[0] == np.inf
    assert none.source[0] == -1


@pytest.mark.parametrize("eta", [0.02, 0.5])
def test_hinge_is_continuous_with_its_slope(eta: float) -> None:
    d = np.array([-1.0, 0.0, eta / 2, eta, eta + 1.0])
    np.testing.assert_allclose(
        reference.hinge(d, eta), [0, 0, eta / 8, eta / 2, 1 + eta / 2], atol=1e-15
    )
    for at in (0.0, eta):
        left, middle, right = reference.hinge(at + np.array([-1e-7, 0.0, 1e-7]), eta)
        np.testing.assert_allclose([left, right], middle, atol=1.1e-7)
        np.testing.assert_allclose((right - middle) / 1e-7, (middle - left) / 1e-7, atol=1e-5)


def test_hinge_without_activation_distance_is_the_penetration() -> None:
    np.testing.assert_array_equal(reference.hinge(np.array([-1.0, 0, 2]), 0.0), [0.0, 0.0, 2.0])


def test_cost_in_the_middle_of_a_block() -> None:
    block = shapes.box((4.0, 4.0, 4.0))
    spheres = np.array([0.0, 0.0, 0.0, 0.05]).reshape(1, 1, 1, 4)
    cost = reference.sphere_cost(spheres, [[block]], weight=3.0, activation_distance=0.02)
    np.testing.assert_allclose(cost, 3.0 * (0.05 + 0.02 + 2.0 - 0.01))


def test_cost_sums_enabled_meshes_of_the_right_env() -> None:
    block = shapes.box((4.0, 4.0, 4.0))
    scenes: list[list[Obstacle]] = [[block, block, block._replace(enabled=False)], [block], []]
    spheres = np.zeros((3, 1, 2, 4))
    spheres[..., 1, 3] = -0.1
    cost = reference.sphere_cost(spheres, scenes, activation_distance=0.0, env_index=[2, 0, 1])
    np.testing.assert_allclose(cost[:, 0], [[0, 0], [4, 0], [2, 0]])


def test_finite_differences_know_slopes_and_kinks() -> None:
    x = np.array([[0.3, -0.7], [0.5, 0.0]])
    slope = reference.central_difference(lambda a: float((a**3).sum()), x, step=1e-5)
    np.testing.assert_allclose(slope, 3 * x**2, atol=1e-9)
    rows = reference.row_gradient(lambda a: np.abs(a).sum(axis=-1), x)
    np.testing.assert_allclose(rows.gradient, np.sign(x), atol=1e-9)
    np.testing.assert_allclose(rows.kink, [0.0, 2.0], atol=1e-9)
