"""Renders the scene of a picture: obstacles, robot and spheres, without text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import trimesh

from warp_collision.viewer.picture_data import Body, Floats, PathPicture
from warp_collision.viewer.raster import Camera, Layer, blend

SIZE = (1600, 1000)  # pixels
SAMPLES = 2  # rendered pixels for each pixel of the picture and axis: smooth edges

_GHOSTS = 9  # waypoints, start and goal included, of which the free spheres are drawn too
_WALL, _FLOOR = (0.965, 0.973, 0.982), (0.90, 0.92, 0.945)
_OBSTACLE = (0.42, 0.58, 0.76)
_HIT = (0.78, 0.11, 0.23)
_ROBOT = (0.93, 0.93, 0.92)
_STAND = (0.72, 0.75, 0.79)
_FREE = (0.765, 0.808, 0.851)
_OUTLINE = (0.10, 0.16, 0.24)


@dataclass(frozen=True)
class _Glass:
    """A translucent body: meshes or spheres that are seen as one surface."""

    color: tuple[float, float, float]
    front: float  # opacity of the near walls
    outline: float
    back: float = 0.0  # opacity of the far walls
    meshes: Sequence[Body] = ()
    spheres: Floats = field(default_factory=lambda: np.empty((0, 4)))

    def points(self) -> Floats:
        return np.concatenate([_box_corners(self.spheres), *(mesh[0] for mesh in self.meshes)])

    def paint(self, camera: Camera, image: Floats, opaque: Floats) -> None:
        for far, alpha in ((True, self.back), (False, self.front)):
            if alpha > 0.0:
                layer = Layer(camera, self.points(), farthest=far)
                for vertices, faces in self.meshes:
                    layer.add_triangles(vertices, faces, self.color)
                layer.add_spheres(self.spheres, np.tile(self.color, (len(self.spheres), 1)))
                _paint(image, opaque, layer, alpha, 0.4 * self.outline if far else self.outline)


def render(
    picture: PathPicture,
    camera: Camera,
    color_of: Callable[[Floats], Floats],
    progress: Callable[[float], None],
) -> Floats:
    """Renders the scene of a picture.

    Args:
        picture: What to show.
        camera: The view, `SAMPLES` times as large as the picture.
        color_of: Costs (n,) to colours (n, 3).
        progress: Called with the fraction that is done.

    Returns:
        (height, width, 3) the image, from 0 to 1.
    """
    image, opaque = _background(picture, camera)
    costly = picture.cost > 0.0
    layer = Layer(camera)
    layer.add_spheres(picture.spheres[costly], color_of(picture.cost[costly]))
    _paint(image, opaque, layer, alpha=1.0, outline=0.35)
    opaque = np.minimum(opaque, layer.depth)

    bodies = _translucent_bodies(picture)
    bodies.sort(key=lambda body: -float(np.median(camera.view(body.points())[:, 2])))
    for done, body in enumerate(bodies):
        progress(done / len(bodies))
        body.paint(camera, image, opaque)
    for vertices, faces in (picture.obstacles[index] for index in picture.hit_obstacles):
        layer = Layer(camera, vertices)
        layer.add_triangles(vertices, faces, _HIT)
        # Through everything: where the spheres are inside, the obstacle cannot be seen otherwise.
        blend(image, np.inf, layer, _HIT, np.where(layer.edges(), 0.6, 0.06))
    shape = (SIZE[1], SAMPLES, SIZE[0], SAMPLES, 3)
    return image.reshape(shape).mean(axis=(1, 3))


def choose_camera(picture: PathPicture) -> Camera:
    """Returns the view in which most of the spheres with a cost is seen."""
    points = np.concatenate([_all_points(picture), [[0.0, 0.0, _floor(picture)]]])  # the stand
    costly = picture.cost > 0.0
    shown = picture.spheres[costly if costly.any() else ...].reshape(-1, 4)
    # Links as clouds of spheres: quicker than their meshes, and as good at this size.
    ghosts = _ghosts(picture)
    robot = picture.spheres[ghosts][picture.cost[ghosts] <= 0.0]
    best, best_score = (0.0, 20.0), -1.0
    for elevation, azimuth in itertools.product((14.0, 28.0), range(0, 360, 30)):
        camera = _look(points, azimuth, elevation, 96, 60)
        walls, robots, spheres = Layer(camera), Layer(camera), Layer(camera)
        for vertices, faces in picture.obstacles:
            walls.add_triangles(vertices, faces, _OBSTACLE)
        robots.add_spheres(robot, np.zeros((len(robot), 3)))
        spheres.add_spheres(shown, np.zeros((len(shown), 3)))
        in_sight = spheres.covered & (spheres.depth < robots.depth)
        in_front = in_sight & (spheres.depth < walls.depth + 0.05)
        score = in_front.sum() + 0.5 * in_sight.sum()
        if score > best_score:
            best, best_score = (azimuth, elevation), score
    return _look(points, *best, SAMPLES * SIZE[0], SAMPLES * SIZE[1])


def _look(points: Floats, azimuth: float, elevation: float, width: int, height: int) -> Camera:
    """Returns a camera that has all points in view, seen from a direction [degrees]."""
    angles = np.radians([azimuth, elevation])
    away = np.array(
        [np.cos(angles[0]) * np.cos(angles[1]), np.sin(angles[0]) * np.cos(angles[1]),
         np.sin(angles[1])]
    )  # fmt: skip
    target = 0.5 * (points.min(0) + points.max(0))
    distance = 3.0
    for _ in range(8):
        camera = Camera(tuple(target + distance * away), tuple(target), width, height)
        pixels = camera.project(points)
        low, high = pixels.min(0), pixels.max(0)
        size = np.array([width, height])
        distance *= float(((high - low) / (np.array([0.66, 0.80]) * size)).max())
        # Centre what is seen, a little low: the title stands above.
        shift = (0.5 * (low + high) - size * [0.40, 0.54]) * distance / camera.focal_length
        target = target + shift @ camera.camera_from_world[:2]
    return Camera(tuple(target + distance * away), tuple(target), width, height)


def _translucent_bodies(picture: PathPicture) -> list[_Glass]:
    bodies = [
        _Glass(_OBSTACLE, front=0.22, back=0.12, outline=0.5, meshes=[mesh])
        for mesh in picture.obstacles
    ]
    bodies += [
        _Glass(_ROBOT, front=0.85, outline=0.35, meshes=meshes)
        for meshes in (picture.start, picture.goal)
    ]
    floor, foot = _floor(picture), float(picture.start[0][0][:, 2].min())
    if foot > floor + 0.05:
        stand = trimesh.creation.cylinder(0.07, segment=[[0, 0, floor], [0, 0, foot]])
        mesh = np.asarray(stand.vertices), np.asarray(stand.faces)
        bodies.append(_Glass(_STAND, front=0.6, outline=0.25, meshes=[mesh]))
    for waypoint in _ghosts(picture)[1:-1]:
        free = picture.spheres[waypoint][picture.cost[waypoint] <= 0.0]
        if len(free):
            bodies.append(_Glass(_FREE, front=0.3, outline=0.12, spheres=free))
    return bodies


def _ghosts(picture: PathPicture) -> list[int]:
    """Returns some waypoints, the first and the last among them."""
    return np.unique(np.linspace(0, len(picture.spheres) - 1, _GHOSTS).astype(int)).tolist()


def _paint(image: Floats, opaque: Floats, layer: Layer, alpha: float, outline: float) -> None:
    blend(image, opaque, layer, layer.shaded(), alpha)
    blend(image, opaque, layer, _OUTLINE, np.where(layer.edges(), outline, 0.0))


def _all_points(picture: PathPicture) -> Floats:
    meshes = (*picture.obstacles, *picture.start, *picture.goal)
    return np.concatenate([picture.spheres[..., :3].reshape(-1, 3), *(mesh[0] for mesh in meshes)])


def _floor(picture: PathPicture) -> float:
    return float(_all_points(picture)[:, 2].min())


def _box_corners(spheres: Floats) -> Floats:
    offsets = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), axis=-1).reshape(-1, 3)
    return (spheres[:, None, :3] + 1.1 * spheres[:, None, 3:] * offsets).reshape(-1, 3)


def _background(picture: PathPicture, camera: Camera) -> tuple[Floats, Floats]:
    """Returns the image and depth of an empty room: a floor with soft shadows."""
    # Everything here is soft: one ray for each pixel of the picture is enough.
    coarse = Camera(camera.eye, camera.target, *SIZE)
    world = coarse.rays(slice(0, SIZE[0]), slice(0, SIZE[1]))
    world = world @ coarse.camera_from_world.astype(np.float32)
    fade = np.linspace(0.0, 1.0, SIZE[1], dtype=np.float32)[:, None, None]
    image = (1.0 - fade) * np.array(_WALL, np.float32) + fade * np.array(_FLOOR, np.float32)
    image = np.broadcast_to(image, world.shape).copy()

    floor = _floor(picture)
    depth = np.full(world.shape[:2], np.inf, np.float32)
    down = world[..., 2] < -1e-3
    depth[down] = (floor - camera.eye[2]) / world[..., 2][down]
    ground = np.array(camera.eye[:2], np.float32) + world[..., :2][down] * depth[down][:, None]
    shadow, low, scale = _shadow_map(picture, floor)
    cells = np.clip(((ground - low) * scale).astype(int), 0, np.array(shadow.shape)[::-1] - 1)
    image[down] *= 1.0 - 0.30 * shadow[cells[:, 1], cells[:, 0]][:, None]
    for axis in (0, 1):
        image, depth = (np.repeat(array, SAMPLES, axis=axis) for array in (image, depth))
    return image, depth


def _shadow_map(picture: PathPicture, floor: float) -> tuple[Floats, Floats, float]:
    """Returns the soft shadow (rows y, columns x) from 0 to 1, its low corner and cells per m."""
    from PIL import Image, ImageDraw, ImageFilter

    points = _all_points(picture)
    low, scale = points.min(0)[:2] - 1.0, 160.0
    size = np.ceil((points.max(0)[:2] + 1.0 - low) * scale).astype(int)
    canvas = Image.new("L", (int(size[0]), int(size[1])))
    draw = ImageDraw.Draw(canvas)
    lean = np.array([0.12, 0.18])  # the light stands a little aside
    for vertices, faces in (*picture.obstacles, *picture.start, *picture.goal):
        cast = (vertices[:, :2] + (vertices[:, 2:] - floor) * lean - low) * scale
        for triangle in cast[faces]:
            draw.polygon([tuple(corner) for corner in triangle], fill=200)
    canvas = canvas.filter(ImageFilter.GaussianBlur(0.06 * scale))
    return np.asarray(canvas, np.float32) / 255.0, low, scale
