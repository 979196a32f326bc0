"""Renders the scene of a picture: obstacles, robot and spheres, without text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import trimesh

from warp_collision.viewer.picture_data import Body, Floats, PathScene
from warp_collision.viewer.raster import Camera, Layer, blend

SAMPLES = 2  # rendered pixels for each pixel of the picture and axis: smooth edges

_GHOSTS = 9  # waypoints, start and goal included, of which the free spheres are drawn too
_WALL, _FLOOR = (0.965, 0.973, 0.982), (0.90, 0.92, 0.945)
_OBSTACLE = (0.42, 0.58, 0.76)
_HIT = (0.78, 0.11, 0.23)
_ROBOT = (0.93, 0.93, 0.92)
_STAND = (0.72, 0.75, 0.79)
_TRAIL_RADIUS = 0.006  # m
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
    scene: PathScene,
    camera: Camera,
    color_of: Callable[[Floats], Floats],
    progress: Callable[[float], None],
) -> Floats:
    """Renders the scene of a scene.

    Args:
        scene: What to show.
        camera: The view, `SAMPLES` times as large as the scene.
        color_of: Costs (n,) to colours (n, 3).
        progress: Called with the fraction that is done.

    Returns:
        (height, width, 3) the image, from 0 to 1.
    """
    image, opaque = _background(scene, camera)
    costly = scene.cost > 0.0
    layer = Layer(camera)
    layer.add_spheres(scene.spheres[costly], color_of(scene.cost[costly]))
    _paint(image, opaque, layer, alpha=1.0, outline=0.35)
    opaque = np.minimum(opaque, layer.depth)

    bodies = _translucent_bodies(scene)
    bodies.sort(key=lambda body: -float(np.median(camera.view(body.points())[:, 2])))
    for done, body in enumerate(bodies):
        progress(done / len(bodies))
        body.paint(camera, image, opaque)
    for vertices, faces in (scene.obstacles[index] for index in scene.hit_obstacles):
        layer = Layer(camera, vertices)
        layer.add_triangles(vertices, faces, _HIT)
        # Through everything: where the spheres are inside, the obstacle cannot be seen otherwise.
        blend(image, np.inf, layer, _HIT, np.where(layer.edges(), 0.6, 0.06))
    _paint_trail(image, scene, camera)
    height, width = camera.height // SAMPLES, camera.width // SAMPLES
    shape = (height, SAMPLES, width, SAMPLES, 3)
    return image.reshape(shape).mean(axis=(1, 3))


def choose_camera(scenes: Sequence[PathScene], width: int, height: int) -> Camera:
    """Returns the view of all scenes in which most of their paths is seen.

    Args:
        scenes: Paths among the same obstacles.
        width: Pixels of the picture; the camera has `SAMPLES` times as many.
        height: The same.
    """
    stand = [[0.0, 0.0, min(map(_floor, scenes))]]
    points = np.concatenate([*map(_all_points, scenes), stand])
    best, best_score = (0.0, 20.0), -1.0
    for elevation, azimuth in itertools.product((14.0, 28.0), range(0, 360, 30)):
        camera = _look(points, azimuth, elevation, 96, 96 * height // width)
        score = sum(_seen(scene, camera) for scene in scenes)
        if score > best_score:
            best, best_score = (azimuth, elevation), score
    return _look(points, *best, SAMPLES * width, SAMPLES * height)


def _seen(scene: PathScene, camera: Camera) -> float:
    """Returns how many pixels show spheres with a cost, or of a path without any its spheres."""
    costly = scene.cost > 0.0
    ghosts = _ghosts(scene)
    shown = scene.spheres[costly if costly.any() else ...].reshape(-1, 4)
    # Links as clouds of spheres: quicker than their meshes, and as good at this size.
    robot = scene.spheres[ghosts][scene.cost[ghosts] <= 0.0]
    walls, robots, spheres = Layer(camera), Layer(camera), Layer(camera)
    for vertices, faces in scene.obstacles:
        walls.add_triangles(vertices, faces, _OBSTACLE)
    robots.add_spheres(robot, np.zeros((len(robot), 3)))
    spheres.add_spheres(shown, np.zeros((len(shown), 3)))
    in_sight = spheres.covered & (spheres.depth <= robots.depth)
    in_front = in_sight & (spheres.depth < walls.depth + 0.05)
    return float(in_front.sum() + 0.5 * in_sight.sum())


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
        distance *= float(((high - low) / (np.array([0.90, 0.82]) * size)).max())
        # Centre what is seen, a little low: the heading stands above.
        shift = (0.5 * (low + high) - size * [0.50, 0.53]) * distance / camera.focal_length
        target = target + shift @ camera.camera_from_world[:2]
    return Camera(tuple(target + distance * away), tuple(target), width, height)


def _translucent_bodies(scene: PathScene) -> list[_Glass]:
    bodies = [
        _Glass(_OBSTACLE, front=0.22, back=0.12, outline=0.5, meshes=[mesh])
        for mesh in scene.obstacles
    ]
    bodies += [
        _Glass(_ROBOT, front=0.85, outline=0.35, meshes=meshes)
        for meshes in (scene.start, scene.goal)
    ]
    floor, foot = _floor(scene), float(scene.start[0][0][:, 2].min())
    if foot > floor + 0.05:
        stand = trimesh.creation.cylinder(0.07, segment=[[0, 0, floor], [0, 0, foot]])
        mesh = np.asarray(stand.vertices), np.asarray(stand.faces)
        bodies.append(_Glass(_STAND, front=0.6, outline=0.25, meshes=[mesh]))
    bodies += [
        _Glass(scene.tint, front=0.5, outline=0.25, meshes=meshes) for meshes in scene.between
    ]
    for waypoint in _ghosts(scene)[1:-1] if not scene.between else ():
        free = scene.spheres[waypoint][scene.cost[waypoint] <= 0.0]
        if len(free):
            bodies.append(_Glass(scene.tint, front=0.3, outline=0.12, spheres=free))
    return bodies


def _paint_trail(image: Floats, scene: PathScene, camera: Camera) -> None:
    """Draws the trail over everything, for it would be hidden by the robot that follows it."""
    layer = Layer(camera)
    radii = np.full((len(scene.trail), 1), _TRAIL_RADIUS)
    trail = np.concatenate([scene.trail, radii], axis=1)
    layer.add_spheres(trail, np.tile(scene.accent, (len(trail), 1)))
    blend(image, np.inf, layer, scene.accent, 0.85)


def _ghosts(scene: PathScene) -> list[int]:
    """Returns some waypoints, the first and the last among them."""
    return np.unique(np.linspace(0, len(scene.spheres) - 1, _GHOSTS).astype(int)).tolist()


def _paint(image: Floats, opaque: Floats, layer: Layer, alpha: float, outline: float) -> None:
    blend(image, opaque, layer, layer.shaded(), alpha)
    blend(image, opaque, layer, _OUTLINE, np.where(layer.edges(), outline, 0.0))


def _all_points(scene: PathScene) -> Floats:
    meshes = (*scene.obstacles, *scene.start, *scene.goal)
    return np.concatenate([scene.spheres[..., :3].reshape(-1, 3), *(mesh[0] for mesh in meshes)])


def _floor(scene: PathScene) -> float:
    return float(_all_points(scene)[:, 2].min())


def _box_corners(spheres: Floats) -> Floats:
    offsets = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3), axis=-1).reshape(-1, 3)
    return (spheres[:, None, :3] + 1.1 * spheres[:, None, 3:] * offsets).reshape(-1, 3)


def _background(scene: PathScene, camera: Camera) -> tuple[Floats, Floats]:
    """Returns the image and depth of an empty room: a floor with soft shadows."""
    # Everything here is soft: one ray for each pixel of the picture is enough.
    size = camera.width // SAMPLES, camera.height // SAMPLES
    coarse = Camera(camera.eye, camera.target, *size)
    world = coarse.rays(slice(0, size[0]), slice(0, size[1]))
    world = world @ coarse.camera_from_world.astype(np.float32)
    fade = np.linspace(0.0, 1.0, size[1], dtype=np.float32)[:, None, None]
    image = (1.0 - fade) * np.array(_WALL, np.float32) + fade * np.array(_FLOOR, np.float32)
    image = np.broadcast_to(image, world.shape).copy()

    floor = _floor(scene)
    depth = np.full(world.shape[:2], np.inf, np.float32)
    down = world[..., 2] < -1e-3
    depth[down] = (floor - camera.eye[2]) / world[..., 2][down]
    ground = np.array(camera.eye[:2], np.float32) + world[..., :2][down] * depth[down][:, None]
    shadow, low, scale = _shadow_map(scene, floor)
    cells = np.clip(((ground - low) * scale).astype(int), 0, np.array(shadow.shape)[::-1] - 1)
    image[down] *= 1.0 - 0.30 * shadow[cells[:, 1], cells[:, 0]][:, None]
    for axis in (0, 1):
        image, depth = (np.repeat(array, SAMPLES, axis=axis) for array in (image, depth))
    return image, depth


def _shadow_map(scene: PathScene, floor: float) -> tuple[Floats, Floats, float]:
    """Returns the soft shadow (rows y, columns x) from 0 to 1, its low corner and cells per m."""
    from PIL import Image, ImageDraw, ImageFilter

    points = _all_points(scene)
    low, scale = points.min(0)[:2] - 1.0, 160.0
    size = np.ceil((points.max(0)[:2] + 1.0 - low) * scale).astype(int)
    canvas = Image.new("L", (int(size[0]), int(size[1])))
    draw = ImageDraw.Draw(canvas)
    lean = np.array([0.12, 0.18])  # the light stands a little aside
    for vertices, faces in (*scene.obstacles, *scene.start, *scene.goal):
        cast = (vertices[:, :2] + (vertices[:, 2:] - floor) * lean - low) * scale
        for triangle in cast[faces]:
            draw.polygon([tuple(corner) for corner in triangle], fill=200)
    canvas = canvas.filter(ImageFilter.GaussianBlur(0.06 * scale))
    return np.asarray(canvas, np.float32) / 255.0, low, scale
