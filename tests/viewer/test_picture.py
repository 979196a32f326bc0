"""The renderer's depths, normals and blending against geometry, and the choice of the view."""

import numpy as np
import pytest
from warp_collision.viewer.picture_data import PathScene
from warp_collision.viewer.raster import Camera, Layer, blend
from warp_collision.viewer.renderer import choose_camera, render

CAMERA = Camera((3.0, -1.0, 2.0), (0.2, 0.1, 0.0), 160, 120)
BOX = np.array([[x, y, z] for x in (-0.4, 0.4) for y in (-0.4, 0.4) for z in (-0.4, 0.4)])
BOX_FACES = np.array(
    [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
     [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]
)  # fmt: skip


def rays() -> tuple[np.ndarray, np.ndarray]:
    """Eye (3,) and directions (height, width, 3) with depth 1, both in the world."""
    directions = CAMERA.rays(slice(0, CAMERA.width), slice(0, CAMERA.height))
    return np.array(CAMERA.eye), directions @ CAMERA.camera_from_world


def test_camera_axes_and_projection():
    rotation = CAMERA.camera_from_world
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(rotation) == pytest.approx(1.0)
    np.testing.assert_allclose(CAMERA.project([CAMERA.target]), [[80.0, 60.0]], atol=1e-9)
    above = CAMERA.project(np.add(CAMERA.target, [[0.0, 0.0, 0.1]]))[0]
    assert above[1] < 60.0


@pytest.mark.parametrize("farthest", [False, True])
def test_sphere_matches_ray_casting(farthest):
    center, radius = np.array([0.1, 0.3, 0.2]), 0.35
    layer = Layer(CAMERA, farthest=farthest)
    layer.add_spheres([[*center, radius]], [[1.0, 0.5, 0.2]])
    eye, directions = rays()
    a = (directions**2).sum(-1)
    b = directions @ (center - eye)
    root = b**2 - a * (np.sum((center - eye) ** 2) - radius**2)
    sure = np.abs(root) > 1e-3  # not on the silhouette
    np.testing.assert_array_equal(layer.covered[sure], root[sure] > 0)
    inside = sure & (root > 0)
    depth = (b[inside] + (1 if farthest else -1) * np.sqrt(root[inside])) / a[inside]
    np.testing.assert_allclose(layer.depth[inside], depth, atol=1e-4)
    points = eye + directions[inside] * depth[:, None]
    normals = (points - center) / radius @ CAMERA.camera_from_world.T
    np.testing.assert_allclose(layer.normal[inside], normals, atol=2e-3)


@pytest.mark.parametrize("farthest", [False, True])
def test_box_matches_ray_casting(farthest):
    layer = Layer(CAMERA, BOX, farthest=farthest)
    layer.add_triangles(BOX, BOX_FACES, (1.0, 1.0, 1.0))
    eye, directions = rays()
    bounds = np.stack([(side - eye) / directions for side in (-0.4, 0.4)])
    enter, leave = bounds.min(axis=0).max(axis=-1), bounds.max(axis=0).min(axis=-1)
    window = (layer.y, layer.x)
    enter, leave = enter[window], leave[window]
    sure = np.abs(leave - enter) > 0.03
    np.testing.assert_array_equal(layer.covered[sure], (enter < leave)[sure])
    inside = sure & (enter < leave)
    assert inside.sum() > 500
    np.testing.assert_allclose(
        layer.depth[inside], (leave if farthest else enter)[inside], rtol=1e-4
    )


def test_nearest_surface_wins_in_any_order():
    spheres, colors = np.array([[0.0, 0, 0, 0.3], [1.0, -0.3, 0.6, 0.2]]), np.eye(3)[:2]
    layers = [Layer(CAMERA), Layer(CAMERA)]
    layers[0].add_spheres(spheres, colors)
    layers[1].add_spheres(spheres[::-1], colors[::-1])
    np.testing.assert_array_equal(layers[0].color, layers[1].color)
    at = np.round(CAMERA.project(spheres[1:, :3])[0]).astype(int)
    np.testing.assert_array_equal(layers[0].color[at[1], at[0]], colors[1])


def test_what_is_behind_the_eye_is_not_drawn():
    layer = Layer(CAMERA)
    behind = 2 * np.array(CAMERA.eye) - CAMERA.target
    layer.add_spheres([[*behind, 0.3]], [[1.0, 1.0, 1.0]])
    layer.add_triangles(BOX + behind, BOX_FACES, (1.0, 1.0, 1.0))
    assert not layer.covered.any()


def test_blending_heeds_depth_and_opacity():
    layer = Layer(CAMERA)
    layer.add_spheres([[0.2, 0.1, 0.0, 0.4]], [[1.0, 1.0, 1.0]])
    seen = layer.covered
    for behind, expected in ((np.inf, 0.25), (0.1, 0.0)):
        image = np.zeros((*seen.shape, 3), np.float32)
        blend(image, behind, layer, (1.0, 1.0, 1.0), 0.25)
        np.testing.assert_allclose(image[seen], expected)
        assert not image[~seen].any()


def test_the_view_shows_the_colliding_spheres():
    """A wall with a sphere on one side, which also hides it from half of all directions."""
    wall = (BOX * [0.1, 2.5, 2.5], BOX_FACES)
    spheres = np.array([[[0.3, 0.0, 0.0, 0.25]], [[0.6, 0.0, 0.0, 0.1]]])
    scene = PathScene(
        obstacles=[wall], hit_obstacles=[0], start=[(BOX * 0.01, BOX_FACES)],
        goal=[(BOX * 0.01, BOX_FACES)], spheres=spheres, cost=np.array([[0.1], [0.0]]),
        clearance=np.array([[-0.1], [0.4]]),
    )  # fmt: skip
    camera = choose_camera([scene], 800, 500)
    assert (camera.width, camera.height) == (1600, 1000)
    assert camera.eye[0] > 0.5
    pixels = camera.project(np.concatenate([wall[0], spheres[:, 0, :3]]))
    assert pixels.min() > 0
    assert (pixels < [camera.width, camera.height]).all()


def white(costs: np.ndarray) -> np.ndarray:
    return np.ones((len(costs), 3))


def test_a_trail_is_seen_through_the_robot():
    ball = np.array([[[0.0, 0.0, 0.0, 0.3]]])
    near = [(BOX * 0.1, BOX_FACES)]
    trail = np.linspace([-0.2, 0.0, 0.0], [0.2, 0.0, 0.0], 50)
    camera, images = Camera((3.0, -1.0, 2.0), (0.0, 0.0, 0.0), 320, 200), []
    for points in (trail, np.empty((0, 3))):
        scene = PathScene(
            obstacles=[], hit_obstacles=[], start=near, goal=near, spheres=ball,
            cost=np.array([[0.1]]), clearance=np.array([[-0.1]]), trail=points,
            accent=(0.0, 1.0, 0.0),
        )  # fmt: skip
        images.append(render(scene, camera, white, lambda done: None))
    assert images[0].shape == (100, 160, 3)
    changed = np.abs(images[0] - images[1]).max(-1) > 0.05
    assert 10 < changed.sum() < 1000
    assert (images[0][changed][:, 1] > images[0][changed][:, 0]).all()
