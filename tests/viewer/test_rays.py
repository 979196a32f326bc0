"""The renderer's depths, normals and blending against geometry, and the choice of the view."""

import numpy as np
import pytest
import torch

from warp_collision.viewer.camera import Camera, best_view, look, parse_view
from warp_collision.viewer.ray_tracer import SAMPLES, Body, RayTracer, over
from warp_collision.viewer.triangles import Triangles, of_spheres

CAMERA = Camera((3.0, -1.0, 2.0), (0.2, 0.1, 0.0), 160, 120)
BOX = np.array([[x, y, z] for x in (-0.4, 0.4) for y in (-0.4, 0.4) for z in (-0.4, 0.4)])
BOX_FACES = np.array(
    [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
     [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]
)  # fmt: skip
WHITE = (1.0, 1.0, 1.0)


def box(scale: float = 1.0, at: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Triangles:
    return Triangles(scale * BOX + at, BOX_FACES)


def rays() -> tuple[np.ndarray, np.ndarray]:
    """Eye (3,) and directions (height, width, 3) with depth 1, both in the world."""
    corner, right, down = CAMERA.rays()
    columns, rows = np.arange(CAMERA.width) + 0.5, np.arange(CAMERA.height) + 0.5
    return np.array(CAMERA.eye), corner + columns[:, None] * right + rows[:, None, None] * down


def test_camera_axes_and_projection():
    rotation = CAMERA.camera_from_world
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(rotation) == pytest.approx(1.0)
    np.testing.assert_allclose(CAMERA.project([CAMERA.target]), [[80.0, 60.0]], atol=1e-9)
    above = CAMERA.project(np.add(CAMERA.target, [[0.0, 0.0, 0.1]]))[0]
    assert above[1] < 60.0


def test_rays_go_through_the_pixels_of_their_points():
    eye, directions = rays()
    np.testing.assert_allclose(CAMERA.project([eye + 2.5 * directions[7, 31]]), [[31.5, 7.5]])


@pytest.mark.parametrize("is_glass", [False, True])
def test_a_box_matches_ray_casting(is_glass):
    found = RayTracer([Body([box()], WHITE, 0.5, is_glass)]).cast(CAMERA).layers.numpy()
    eye, directions = rays()
    bounds = np.stack([(side - eye) / directions for side in (-0.4, 0.4)])
    enter, leave = bounds.min(axis=0).max(axis=-1), bounds.max(axis=0).min(axis=-1)
    sure = np.abs(leave - enter) > 0.03
    inside = sure & (enter < leave)
    assert inside.sum() > 500
    for layer, depth in ((1, enter), (2, leave)) if is_glass else ((0, enter),):
        seen = np.isfinite(found[..., layer, 3])
        np.testing.assert_array_equal(seen[sure], (enter < leave)[sure])
        np.testing.assert_allclose(found[..., layer, 3][inside], depth[inside], rtol=1e-4)
    normals = found[..., 1 if is_glass else 0, :3][inside]
    np.testing.assert_allclose(np.abs(normals).max(-1), 1.0, atol=1e-5)  # its sides are flat


def test_a_sphere_is_round():
    center, radius = np.array([0.1, 0.3, 0.2]), 0.35
    ball = of_spheres([[*center, radius]], 4)
    found = RayTracer([Body([ball], WHITE)]).cast(CAMERA).layers.numpy()[..., 0, :]
    eye, directions = rays()
    a, b = (directions**2).sum(-1), directions @ (center - eye)
    root = b**2 - a * (np.sum((center - eye) ** 2) - radius**2)
    sure = np.abs(root) > 0.02  # not on the silhouette
    np.testing.assert_array_equal(np.isfinite(found[..., 3])[sure], root[sure] > 0)
    inside = sure & (root > 0)
    depth = (b[inside] - np.sqrt(root[inside])) / a[inside]
    np.testing.assert_allclose(found[..., 3][inside], depth, atol=2e-3)
    normals = (eye + directions[inside] * depth[:, None] - center) / radius
    np.testing.assert_allclose(found[..., :3][inside], normals, atol=0.02)


def test_the_nearest_surface_wins_in_any_order():
    near, far = (
        Body([of_spheres([row])], color)
        for row, color in (([1.0, -0.3, 0.6, 0.2], (1, 0, 0)), ([0.0, 0, 0, 0.3], (0, 1, 0)))
    )
    images = []
    for bodies in ((near, far), (far, near)):
        tracer = RayTracer(bodies)
        found = tracer.cast(CAMERA)
        x, y = np.round(CAMERA.project([[1.0, -0.3, 0.6]])[0]).astype(int)
        assert found.first[y, x] == tracer.numbers[0 if bodies[0] is near else 1]
        images.append(found.color)
    torch.testing.assert_close(*images)


def test_what_is_behind_the_eye_is_not_drawn():
    behind = 2 * np.array(CAMERA.eye) - CAMERA.target
    bodies = [Body([box(at=behind)], WHITE, 0.5, is_glass) for is_glass in (True, False)]
    assert not RayTracer(bodies).cast(CAMERA).color.any()


def test_no_bodies_and_empty_bodies_are_an_empty_image():
    nothing = Triangles(np.zeros((0, 3)), np.zeros((0, 3), int))
    for bodies in ([], [Body([nothing], WHITE)], [Body([], WHITE, 0.5, True)]):
        assert not RayTracer(bodies).image(CAMERA, WHITE).any()


def test_opacity_of_glass_and_of_solids():
    """A wall of glass and its far wall; of a solid body the first surface alone."""
    camera = Camera((3.0, 0.0, 0.0), (0.0, 0.0, 0.0), 40, 30)
    for is_glass, expected in ((True, 1 - (1 - 0.4) * (1 - 0.2)), (False, 0.4)):
        found = RayTracer([Body([box()], WHITE, 0.4, is_glass)]).cast(camera)
        assert found.color[15, 20, 3].item() == pytest.approx(expected, abs=1e-5)


def test_outlines_are_at_silhouettes_and_creases():
    tracer = RayTracer([Body([box()], WHITE)])
    plain, inked = (
        tracer.image(CAMERA, (1.0, 0.0, 0.0), (strength, 0.0, 0.0)).numpy() for strength in (0, 1)
    )
    assert plain.shape == (CAMERA.height // SAMPLES, CAMERA.width // SAMPLES, 4)
    changed = np.abs(plain - inked).max(-1) > 0.1
    edges = [(0, 1), (1, 3), (3, 2), (2, 0), (4, 5), (5, 7), (7, 6), (6, 4), (0, 4), (1, 5),
             (2, 6), (3, 7)]  # fmt: skip
    shares = np.linspace(0, 1, 40)[:, None]
    near = np.zeros_like(changed)
    for a, b in edges:
        points = (1 - shares) * BOX[a] + shares * BOX[b]
        for x, y in np.round(CAMERA.project(points) / SAMPLES).astype(int):
            near[y - 2 : y + 2, x - 2 : x + 2] = True
    assert changed.sum() > 60
    assert (changed & ~near).sum() == 0


def test_a_shadow_is_where_the_light_does_not_reach():
    tracer = RayTracer([Body([box(0.5, (0.0, 0.0, 1.0))], WHITE)])
    shadow = tracer.shadows(np.array([-1.0, -1.0]), np.array([1.0, 1.0]), 0.0)
    share = shadow.mean() * 4.0  # m^2
    assert share == pytest.approx(0.16, rel=0.5)  # a box of 0.4 m, seen a little from the side
    assert set(np.unique(shadow)) == {0.0, 1.0}


def test_blending_over_a_picture():
    drawn = torch.tensor([[[0.25, 0.0, 0.0, 0.5]]])
    np.testing.assert_allclose(over(np.ones((1, 1, 3)), drawn), [[[0.75, 0.5, 0.5]]])


def test_all_points_are_in_view():
    points = np.random.default_rng(0).uniform(-1.0, 2.0, (50, 3))
    for azimuth, elevation in ((0, 10), (130, 60), (-90, -20)):
        camera = look(points, azimuth, elevation, (320, 200))
        pixels = camera.project(points)
        assert (pixels > 0).all()
        assert (pixels < [320, 200]).all()
        assert np.ptp(pixels, axis=0).max() > 120  # and fill it
    camera = look(points, 30, 20, (320, 200), points[0])
    np.testing.assert_allclose(camera.project(points[:1]), [[160, 100]], atol=1e-6)


def test_the_best_view_is_the_one_of_the_highest_score():
    found = best_view(BOX, (320, 200), lambda camera: camera.eye[1] / np.linalg.norm(camera.eye))
    assert found == (90.0, 14.0)


@pytest.mark.parametrize("view", ["side", "1", "1,2,3", (0, 95), "nan,0", 5])
def test_views_that_are_none(view):
    with pytest.raises(ValueError, match="view must be auto, front"):
        parse_view(view)
