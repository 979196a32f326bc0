"""What of a world, a robot and a path a picture shows, and from where."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision.devices import CPU
from warp_collision.io import Obstacle
from warp_collision.io.placing import matrix_from
from warp_collision.obstacles.shapes import HalfSpace
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import colors
from warp_collision.viewer import triangles as shapes
from warp_collision.viewer.camera import VIEWS, Camera, best_view, look
from warp_collision.viewer.colors import Color, Floats, Theme, clearance_colors
from warp_collision.viewer.path_facts import PathFacts, between
from warp_collision.viewer.ray_tracer import SAMPLES, Body, RayTracer, Room, over
from warp_collision.viewer.triangles import LinkMeshes, Triangles

_BETWEEN = 5  # places between start and goal at which the robot is drawn
_TRAIL_POINTS = 300
# Clearances [m] between which spheres have one colour.
_STEPS = np.array([-0.06, -0.045, -0.03, -0.02, -0.01, 0.0, 0.01, 0.02, 0.035, 0.05, 0.1])
# Of the size of the robot's way, by which obstacles around it are in the frame; of those that are
# larger than that a part is.
_MARGIN, _LARGE_MARGIN = 0.25, 0.06


class Scenery(NamedTuple):
    """The obstacles of a picture.

    Attributes:
        bodies: of glass.
        meshes: by name, their triangles in the world, without paddings.
        endless: names of those of which only a part is drawn.
    """

    bodies: Sequence[Body]
    meshes: Mapping[str, Triangles]
    endless: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Stage:
    """Bodies of a picture.

    Attributes:
        bodies: all of them.
        marked: indices of the solid bodies that the picture is about.
        hit: obstacles that collide, by name; they are seen through everything.
        trail: where the tip of the robot goes, which is seen through everything: pieces (n, 3) with
            their colours, blue where the motion is proven free.
        framed: (n, 3) points that are in view [m].
        floor: height of the floor [m].
        casting: what casts shadows on it.
    """

    bodies: Sequence[Body]
    marked: Sequence[int]
    hit: Mapping[str, Triangles]
    trail: Sequence[tuple[Floats, Color]]
    framed: Floats
    floor: float
    casting: Sequence[Triangles]

    @cached_property
    def tracer(self) -> RayTracer:
        """Its bodies, for rays on the CPU."""
        return RayTracer(self.bodies)


def scenery_of(
    obstacles: Mapping[str, Obstacle],
    triangles_of: Callable[[Any], Triangles] = shapes.of_geometry,
) -> Scenery:
    """Returns obstacles as they are drawn, or by other triangles of their geometries."""
    meshes = {
        name: triangles_of(obstacle.geometry).moved(matrix_from(obstacle.pose))
        for name, obstacle in obstacles.items()
    }
    bodies = []
    for name, obstacle in obstacles.items():
        color, opacity = (colors.OBSTACLE, 0.22) if obstacle.enabled else (colors.DISABLED, 0.08)
        if obstacle.enabled and shapes.is_unseen(obstacle.geometry):
            color, opacity = colors.UNSEEN, 0.08
        mesh, (seen, unseen) = meshes[name], shapes.parts_of(obstacle.geometry)
        if unseen is not None:
            placed = matrix_from(obstacle.pose)
            mesh, haze = (triangles_of(part).moved(placed) for part in (seen, unseen))
            shade = colors.UNSEEN if obstacle.enabled else color
            bodies.append(Body([haze], shade, 0.08, is_glass=True))
        bodies.append(Body([mesh], color, opacity, is_glass=True))
        if obstacle.padding > 0.0:
            hull = shapes.inflated(meshes[name], obstacle.padding)
            bodies.append(Body([hull], color, 0.3 * opacity, is_glass=True))
    endless = {name for name in meshes if isinstance(obstacles[name].geometry, HalfSpace)}
    return Scenery(bodies, meshes, frozenset(endless))


def stage_world(scenery: Scenery, theme: Theme) -> Stage:
    """Returns a stage of obstacles alone, around those that have ends."""
    bounded = [mesh for name, mesh in scenery.meshes.items() if name not in scenery.endless]
    parts = bounded or [*scenery.meshes.values()]
    framed = np.eye(3)
    if parts:
        vertices = np.concatenate([part.vertices for part in parts])
        framed = shapes.box_corners(vertices)
    floor = float(framed[:, 2].min())
    if bounded and scenery.endless:
        endless = [scenery.meshes[name] for name in scenery.endless]
        framed = np.concatenate([framed, *_around(framed, endless)])
        floor, _ = _ground(framed, endless)
    return Stage(scenery.bodies, (), {}, (), framed, floor, parts)


def stage_path(
    facts: PathFacts,
    meshes: LinkMeshes,
    scenery: Scenery,
    theme: Theme,
    *,
    with_spheres: bool = False,
    film: Stage | None = None,
) -> Stage:
    """Returns a stage of a path, or of one configuration, among obstacles.

    Args:
        facts: the path.
        meshes: of the robot's links.
        scenery: the obstacles.
        theme: the colours.
        with_spheres: whether all spheres are drawn, not those alone that come near to something.
        film: the stage of the whole path if this is one configuration of it, with the same view,
            floor and trail.
    """
    bodies = [*scenery.bodies]
    ends = facts.joints[[0, -1]] if facts.n_segments else facts.joints
    between = facts.evenly(_BETWEEN + 2)[1:-1] if facts.n_segments else ends[:0]
    at_ends = robots_at(facts.scene, meshes, ends)
    opacity, attached = 0.35 if with_spheres else 0.85, facts.scene.robot.attached
    for robot in at_ends:
        own = [part for name, part in robot.items() if name not in attached]
        carried = [part for name, part in robot.items() if name in attached]
        if own:
            bodies.append(Body(own, theme.robot, opacity))
        if carried:
            bodies.append(Body(carried, colors.ATTACHED, opacity))
    tint = 0.75 * np.array(theme.robot) + 0.25 * np.array(theme.accent(facts.is_free))
    for robot in robots_at(facts.scene, meshes, between):
        moved = [part for name, part in robot.items() if not _is_same(part, at_ends[0][name])]
        if moved:
            bodies.append(Body(moved, tint, 0.45))
    near = sphere_bodies(facts.spheres, facts.clearance, with_all=with_spheres)
    if facts.n_segments and facts.is_free and not with_spheres:
        near = []  # nothing of it collides: links are clearer than spheres then
    marked = range(len(bodies), len(bodies) + len(near))
    bodies += near
    blocked = {contact.other for contact in facts.contacts()
               if contact.is_blocked and contact.lower < 0 and not contact.with_itself}  # fmt: skip
    hit = {name: mesh for name, mesh in scenery.meshes.items() if name in blocked}
    of_ends = [part for robot in at_ends for part in robot.values()]
    obstacles = [*scenery.meshes.values()]
    if film is not None:
        casting = [*_ground(film.framed, obstacles)[1], *of_ends]
        return replace(film, bodies=bodies, marked=marked, hit=hit, casting=casting)
    framed = _framed(facts, of_ends, obstacles)
    floor, casting = _ground(framed, obstacles)
    return Stage(
        bodies, marked, hit, trail_of(facts, theme), framed, floor, [*casting, *of_ends],
    )  # fmt: skip


def trail_of(facts: PathFacts, theme: Theme) -> list[tuple[Floats, Color]]:
    """Returns where the tip goes, as pieces (n, 3) of neighbouring motions of one result."""
    if not facts.n_segments:
        return []
    samples = max(2, round(_TRAIL_POINTS / facts.n_segments))
    joints = between(facts.path, samples)
    tips = facts.scene.spheres(joints)[:, -1, :3].double().cpu().numpy()
    changes = np.flatnonzero(np.diff(facts.blocked)) + 1
    ends = [0, *changes.tolist(), facts.n_segments]
    return [
        (tips[samples * begin : samples * end + 1], theme.accent(not facts.blocked[begin]))
        for begin, end in itertools.pairwise(ends)
    ]


def robots_at(
    scene: RobotScene, meshes: LinkMeshes, joints: torch.Tensor
) -> list[dict[str, Triangles]]:
    """Returns the robot at joint values (n, n_joints), by name of links and what they carry.

    Links without a mesh, and what is attached, are drawn as their spheres.
    """
    if not len(joints):
        return []
    robot, names = scene.robot, np.array(scene.robot.sphere_links)
    spheres = scene.spheres(joints).double().cpu().numpy()
    found = []
    for transform, rows in zip(scene.transforms(joints), spheres, strict=True):
        parts = {
            link: meshes.links[link].moved(transform[index])
            for index, link in enumerate(robot.link_names)
            if link in meshes.links
        }
        for name in dict.fromkeys(robot.sphere_links):
            if name not in parts:
                parts[name] = shapes.of_spheres(rows[names == name])
        found.append(parts)
    return found


def sphere_bodies(spheres: Floats, clearance: Floats, *, with_all: bool = False) -> list[Body]:
    """Returns spheres (..., 4) in the colours of their clearances (...) [m].

    Without `with_all` only those that come nearer than 20 mm to something.
    """
    rows, values = spheres.reshape(-1, 4), clearance.reshape(-1)
    drawn = (rows[:, 3] > 0.0) & (with_all | ~(values >= colors.NEAR))
    rows, values = rows[drawn], np.nan_to_num(values[drawn], nan=-1.0)
    if not len(rows):
        return []
    bins = np.digitize(values, _STEPS)
    kinds = np.unique(bins)
    shades = clearance_colors([np.median(values[bins == kind]) for kind in kinds])
    return [Body([shapes.of_spheres(rows[bins == kind]) for kind in kinds], shades)]


def _is_same(part: Triangles, other: Triangles) -> bool:
    return part.vertices.shape == other.vertices.shape and np.allclose(
        part.vertices, other.vertices, atol=1e-3
    )


def _framed(
    facts: PathFacts, robots: Sequence[Triangles], obstacles: Sequence[Triangles]
) -> Floats:
    """Returns what is in view: the robot and its way, and what of the world is around them.

    A floor of many metres would shrink the robot to nothing.
    """
    rows = facts.spheres[facts.spheres[..., 3] > 0.0]
    points = [rows[:, :3] - rows[:, 3:], rows[:, :3] + rows[:, 3:]]
    points += [part.vertices for part in robots if len(part.vertices)]
    joined = np.concatenate(points)
    return np.concatenate([shapes.box_corners(joined), *_around(joined, obstacles)])


def _around(framed: Floats, obstacles: Sequence[Triangles]) -> list[Floats]:
    """Corners (8, 3) of what of the obstacles is near to points (n, 3)."""
    low, high = framed.min(0), framed.max(0)
    size = float(np.linalg.norm(high - low))
    around = []
    for part in obstacles:
        part_low, part_high = part.vertices.min(0), part.vertices.max(0)
        near_low, near_high = low - _MARGIN * size, high + _MARGIN * size
        if (part_low < near_low).any() or (part_high > near_high).any():
            near_low, near_high = low - _LARGE_MARGIN * size, high + _LARGE_MARGIN * size
        inner_low, inner_high = np.maximum(part_low, near_low), np.minimum(part_high, near_high)
        if (inner_low <= inner_high).all():
            around.append(shapes.box_corners(np.stack([inner_low, inner_high])))
    return around


def _ground(framed: Floats, obstacles: Sequence[Triangles]) -> tuple[float, list[Triangles]]:
    """Returns the height of the floor [m], and the obstacles that cast shadows on it.

    An obstacle that is wider than what is in view is a floor itself, or a ceiling.
    """
    low, high = framed.min(0), framed.max(0)
    floor, casting = float(low[2]), []
    for part in obstacles:
        part_low, part_high = part.vertices.min(0), part.vertices.max(0)
        if (part_low <= low)[:2].all() and (part_high >= high)[:2].all():
            floor = max(floor, float(part_high[2])) if part_high[2] < low[2] + 0.1 else floor
        else:
            casting.append(part)
    return floor, casting


def choose_camera(
    stages: Sequence[Stage],
    size: tuple[int, int],
    direction: tuple[float, float] | None = None,
    target: Floats | None = None,
) -> Camera:
    """Returns the view of all stages, in the pixels that rays are cast for.

    Args:
        stages: the same obstacles, and different paths.
        size: of the picture [pixels]; the camera has `SAMPLES` times as many.
        direction: azimuth and elevation [degrees]; by default most of what is marked is seen, and
            obstacles alone from a corner.
        target: (3,) what is in the middle [m].
    """
    points = np.concatenate([stage.framed for stage in stages])
    if direction is None and all(body.is_glass for stage in stages for body in stage.bodies):
        direction = VIEWS["corner"]
    elif direction is None:
        direction = best_view(
            points, size, lambda camera: sum(_seen(stage, camera) for stage in stages), target
        )
    return look(points, *direction, (SAMPLES * size[0], SAMPLES * size[1]), target)


def _seen(stage: Stage, camera: Camera) -> float:
    """Returns how many pixels show what the picture is about, half as much through glass."""
    rays = stage.tracer.cast(camera)
    numbers = {stage.tracer.numbers[index] for index in stage.marked}
    first = rays.first.cpu().numpy()
    shown = np.isin(first, [*numbers]) if numbers else first >= 0
    through_glass = np.isfinite(rays.layers[..., 1, 3].cpu().numpy())
    return float((shown * np.where(through_glass, 0.5, 1.0)).sum())


class Painter:
    """Draws stages that differ in what moves; what stands still is drawn once.

    Args:
        first: a stage, whose view, floor and trail are those of all.
        camera: in the pixels that rays are cast for.
        theme: the colours.
        device: where rays are cast.
    """

    def __init__(self, first: Stage, camera: Camera, theme: Theme, device: torch.device = CPU):
        self._camera, self._theme, self._device = camera, theme, device
        low, high = first.framed.min(0), first.framed.max(0)
        size = float(np.linalg.norm(high - low))
        corners = low[:2] - 0.3 * size, high[:2] + 0.3 * size
        self._room = Room(camera, theme, *corners, first.floor)
        tubes = [shapes.tube(points, 0.0025 * size) for points, _ in first.trail]
        self._trail = self._glass = None
        if any(len(tube.faces) for tube in tubes):
            body = Body(tubes, np.array([color for _, color in first.trail]))
            self._trail = self._image([body], strengths=(0, 0, 0))
        self._hits: dict[tuple[str, ...], torch.Tensor] = {}

    def draw(self, stage: Stage, *, in_film: bool = False) -> Floats:
        """Returns the picture (height, width, 3), from 0 to 1, without text.

        Args:
            stage: what is drawn.
            in_film: whether other stages with the same obstacles follow: rays are then cast where
                something moves, and nowhere else.
        """
        casting = Body(stage.casting, self._theme.ink, is_glass=True)
        image = self._room.draw(RayTracer([casting], self._device))
        tracer = stage.tracer if self._device == CPU and not in_film else None
        image = over(image, self._moving(stage) if in_film else self._image(stage.bodies, tracer))
        if stage.hit:  # through everything: where spheres are inside, it cannot be seen otherwise
            image = over(image, self._hit(stage.hit))
        if self._trail is not None:
            image = over(image, self._trail, 0.85)
        return np.clip(image, 0.0, 1.0)

    def _image(
        self,
        bodies: Sequence[Body],
        tracer: RayTracer | None = None,
        outline: Color | None = None,
        window: tuple[slice, slice] | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """The image (height, width, 4) of bodies, by rays around them alone, or of a window."""
        tracer, ink = tracer or RayTracer(bodies, self._device), outline or self._theme.outline
        if window is not None:
            return tracer.image(self._camera, ink, window=window, **options)
        height, width = self._camera.height // SAMPLES, self._camera.width // SAMPLES
        image = torch.zeros((height, width, 4), device=self._device)
        parts = [part.vertices for body in bodies for part in body.parts if len(part.faces)]
        if parts:
            around = self._camera.window(np.concatenate(parts), SAMPLES)
            rows, columns = (slice(s.start // SAMPLES, s.stop // SAMPLES) for s in around)
            drawn = tracer.image(self._camera, ink, window=around, **options)
            image[rows, columns] = drawn
        return image

    def _hit(self, hit: Mapping[str, Triangles]) -> torch.Tensor:
        if (key := tuple(hit)) not in self._hits:
            body = Body([*hit.values()], colors.HIT, 0.1, is_glass=True)
            self._hits[key] = self._image([body], outline=colors.HIT, strengths=(0.0, 0.7, 0.5))
        return self._hits[key]

    def _moving(self, stage: Stage) -> torch.Tensor:
        """The bodies of a stage, by rays where it differs from the obstacles alone."""
        if self._glass is None:
            self._glass = self._image([body for body in stage.bodies if body.is_glass])
        image = self._glass.clone()
        parts = [part for body in stage.bodies if not body.is_glass for part in body.parts]
        window = self._camera.window(np.concatenate([part.vertices for part in parts]), SAMPLES)
        drawn = self._image(stage.bodies, window=window)
        # Outlines of its first and last pixels are known where those are the picture's, too.
        inner, place = [], []
        sizes = self._camera.height, self._camera.width
        for part, size in zip(window, sizes, strict=True):
            first, last = int(part.start > 0), int(part.stop < size)
            inner.append(slice(first, (part.stop - part.start) // SAMPLES - last))
            place.append(slice(part.start // SAMPLES + first, part.stop // SAMPLES - last))
        image[tuple(place)] = drawn[tuple(inner)]
        return image
