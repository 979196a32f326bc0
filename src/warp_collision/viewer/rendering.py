"""Pictures and films of worlds, robots and paths, without a window."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.devices import CPU
from warp_collision.io import Obstacle
from warp_collision.messages import escaped, known_names, short_repr
from warp_collision.poses import PoseLike
from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.robot.model.robot_and_world import require_robot_and_world
from warp_collision.viewer.camera import Camera, parse_view
from warp_collision.viewer.colors import Floats, Theme, theme_of
from warp_collision.viewer.film import FILMS, frame_count, frames_of, write_film
from warp_collision.viewer.labels import Label
from warp_collision.viewer.path_facts import PathFacts, path_facts
from warp_collision.viewer.picture import (
    Layout,
    Picture,
    Scene,
    compose,
    curve_of,
    cut,
    path_labels,
    pixels,
    require_installed,
    world_labels,
    write_png,
)
from warp_collision.viewer.stage import Painter, choose_camera, scenery_of, stage_path, stage_world
from warp_collision.viewer.triangles import LinkMeshes, link_meshes, of_obstacle
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world

MOST_SCENES = 4  # side by side
_SIZE, _FILM_SIZE = (1600, 1000), (960, 640)


def render(
    world: MeshWorld | None = None,
    robot: RobotSpheres | None = None,
    joints: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    view: str | tuple[float, float] | None = None,
    look_at: str | Sequence[float] | None = None,
    size: tuple[int, int] | None = None,
    background: str = "light",
    title: str | None = None,
    facts: str = "",
    labels: bool = True,
    spheres: bool = False,
    seconds: float = 4.0,
    base_pose: PoseLike | None = None,
    ignore: Iterable[tuple[str, str]] = (),
    self_collision: bool | SelfCollisionPairs = True,
    env: int = 0,
    progress: Callable[[float], object] | None = None,
) -> np.ndarray:
    """Draws a world, a robot in it, or paths of the robot; needs no display and no OpenGL.

    Spheres that come nearer than 20 mm to something have the colours of their clearance; obstacles
    that a path collides with are orange. Proven free is blue. What is drawn of a path is in view,
    and the obstacles around it, not all of a large world.

    Args:
        world: the obstacles; None for none.
        robot: the robot.
        joints: joint values (n_joints,), a path (horizon, n_joints), up to four paths (batch,
            horizon, n_joints) or a mapping of names to paths, side by side; or what
            `optimize_paths` returns. Without, the robot is drawn in the middle of its limits.
        output: the file to write: .png, or .gif or .mp4 of a robot that moves along one path. An
            existing file is replaced.
        view: "front", "back", "left", "right", "top", "corner", or azimuth and elevation of the eye
            [degrees]; by default a view that shows most of what collides, or of the robot.
        look_at: what is in the middle: a point (3,) [m], or the name of an obstacle or a link.
        size: width and height [pixels]; by default 1600 x 1000, and 960 x 640 of films.
        background: "light" or "dark".
        title: a line above; by default what is known of the first path. "" for none.
        facts: a line below the title.
        labels: whether start, goal, contacts and obstacles are labelled.
        spheres: whether all spheres of the robot are drawn.
        seconds: length of a film.
        base_pose: pose of the robot's root link.
        ignore: contacts that are wanted, see `configuration_in_collision`.
        self_collision: see `configuration_in_collision`.
        env: which env of the world.
        progress: called now and then with the fraction that is done.

    Returns:
        (height, width, 3) uint8, the picture, or the last frame of a film.

    Raises:
        ModuleNotFoundError: matplotlib, or what writes an .mp4, is not installed.
        TypeError, ValueError: an argument is of another type, shape or range, or an unknown name.

    Example:
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.viewer import render
        >>> world = MeshWorld()
        >>> world.add("table", Cuboid((0.6, 0.6, 0.05)))
        0
        >>> render(world, size=(160, 100), view="corner").shape
        (100, 160, 3)
    """
    require_installed("matplotlib", "viz")
    theme, direction = theme_of(background), parse_view(view)
    path = None if output is None else _checked_output(output)
    film = path if path is not None and path.suffix.lower() in FILMS else None
    size = _checked_size(size or (_SIZE if film is None else _FILM_SIZE))
    report = progress or (lambda fraction: None)
    world, paths = _checked(world, robot, joints, env)
    obstacles = world.obstacles(env)
    scenery = scenery_of(obstacles)
    found: list[PathFacts] = []
    meshes, stages = LinkMeshes({}, {}), [stage_world(scenery, theme)]
    if robot is not None:
        scene = RobotScene(robot, world, base_pose, tuple(ignore), self_collision, env)
        found = [path_facts(scene, joints) for joints in paths.values()]
        meshes = link_meshes(robot)
        stages = [stage_path(one, meshes, scenery, theme, with_spheres=spheres) for one in found]
    title = cut(_title(world, found, env) if title is None else title)
    facts = cut(facts)
    lines = 0 if not title else 2 if facts else 1
    has_curves = any(one.n_segments for one in found)
    layout = Layout(size, len(stages), lines, has_curves, bool(found))
    curves = [curve_of("" if film else name, one, theme)
              for name, one in zip(paths, found, strict=True) if one.n_segments]  # fmt: skip
    page = Picture([], curves, title, facts, theme, layout)
    camera = choose_camera(stages, layout.scene, direction, _target(look_at, obstacles, found))
    report(0.1)
    if film is not None:
        _require_one_path(found, film)
        count = frame_count(seconds)
        seen = found[0], meshes, scenery, stages[0], camera
        return write_film(film, frames_of(*seen, page, count, report))
    scenes, names = [], list(paths) or [""]
    for index, stage in enumerate(stages):
        image = Painter(stage, camera, theme, world.device).draw(stage)
        report(0.1 + 0.8 * (index + 1) / len(stages))
        known = found[index] if found else None
        written = _labels(known, obstacles, camera) if labels else []
        scenes.append(_scene(image, names[index], known, written, theme))
    drawn = pixels(compose(replace(page, scenes=scenes)))
    if path is not None:
        write_png(drawn, path)
    report(1.0)
    return drawn


def _require_one_path(found: Sequence[PathFacts], film: Path) -> None:
    if len(found) != 1 or not found[0].n_segments:
        raise ValueError(
            f"joints must be one path (horizon, n_joints) for a {film.suffix}, got "
            f"{len(found)} of {[one.n_segments + 1 for one in found]} waypoints"
        )


def _checked_output(output: str | os.PathLike[str]) -> Path:
    path = Path(output)
    if path.suffix.lower() not in (".png", *FILMS):
        raise ValueError(f"output must end in .png, .gif or .mp4, got {short_repr(str(path))}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"output must be in an existing folder, got {short_repr(str(path))}"
        )
    if path.suffix.lower() == ".mp4" and importlib.util.find_spec("av") is None:
        raise ModuleNotFoundError(
            "av is not installed, which writes .mp4; pip install 'warp-collision[viz]' brings it"
        )
    return path


def _checked_size(size: Any) -> tuple[int, int]:
    try:
        width, height = (int(value) for value in size)
    except (TypeError, ValueError):
        width = height = 0
    if not (64 <= width <= 8192 and 64 <= height <= 8192):
        raise ValueError(f"size must be a width and a height from 64 to 8192, got {size!r}")
    return width, height


def _checked(
    world: MeshWorld | None, robot: RobotSpheres | None, joints: Any, env: int
) -> tuple[MeshWorld, dict[str, Tensor]]:
    """Returns the world, and the paths by name."""
    if world is None:
        world = MeshWorld(device=CPU)
    if robot is None:
        require_world(world)
        world.names(env)
        if joints is not None:
            raise ValueError("joints must be given with a robot, got no robot")
        return world, {}
    require_robot_and_world(robot, world)
    world.names(env)
    paths = paths_of(joints, robot)
    if not 1 <= len(paths) <= MOST_SCENES:
        raise ValueError(f"joints must be one to {MOST_SCENES} paths, got {len(paths)}")
    return world, paths


def middle_of_limits(robot: RobotSpheres) -> Tensor:
    """(n_joints,) joint values in the middle of the limits; 0 where there are none."""
    limits = robot.joint_limits
    middle = limits.mean(dim=-1)
    return torch.where(middle.isfinite(), middle, 0.0)


def paths_of(joints: Any, robot: RobotSpheres) -> dict[str, Tensor]:
    """Returns paths (horizon, n_joints) by name, of what `render` takes; one alone is "".

    Raises:
        TypeError, ValueError: They are not of this robot, or not finite.
    """
    if joints is None:
        return {"": middle_of_limits(robot)[None]}
    if isinstance(joints, Mapping):
        given = dict(joints)
    else:
        values = getattr(joints, "joints", joints)
        if not isinstance(values, Tensor):
            values = torch.as_tensor(np.asarray(values, dtype=np.float32))
        if values.ndim == 3 and len(values) == 1:
            values = values[0]
        given = {"": values}
        if values.ndim == 3:
            given = {f"path {index}": path for index, path in enumerate(values)}
    return {str(name): _checked_path(path, robot) for name, path in given.items()}


def _checked_path(path: Any, robot: RobotSpheres) -> Tensor:
    if not isinstance(path, Tensor):
        path = torch.as_tensor(np.asarray(path, dtype=np.float32))
    if path.ndim == 1:
        path = path[None]
    robot.check_joints(path)
    if path.ndim != 2 or not len(path):
        raise ValueError(
            f"joints must have shape (horizon, {robot.n_joints}), got {validate.shape_of(path)}"
        )
    if not bool(torch.isfinite(path).all()):
        raise ValueError("joints must be finite, got NaN or infinity")
    return path


def _target(
    look_at: Any, obstacles: Mapping[str, Obstacle], found: Sequence[PathFacts]
) -> Floats | None:
    """Returns (3,) the point in the middle [m]; None for the camera to choose."""
    if look_at is None:
        return None
    if isinstance(look_at, str):
        if look_at in obstacles:
            vertices = of_obstacle(obstacles[look_at]).vertices
            return 0.5 * (vertices.min(0) + vertices.max(0))
        links = found[0].scene.robot.sphere_links if found else ()
        if look_at in links:
            rows = found[0].spheres[:, [i for i, link in enumerate(links) if link == look_at], :3]
            return rows.reshape(-1, 3).mean(0)
        names = known_names(look_at, [*obstacles, *dict.fromkeys(links)])
        raise ValueError(f"look_at must be a point or one of {names}, got {short_repr(look_at)}")
    point = np.asarray(look_at, float)
    if point.shape != (3,) or not np.isfinite(point).all():
        raise ValueError(f"look_at must be three numbers or a name, got {short_repr(look_at)}")
    return point


def _title(world: MeshWorld, found: Sequence[PathFacts], env: int) -> str:
    if found:
        return cut(escaped(found[0].verdict()))
    count = len(world.names(env))
    return f"{count} obstacle{'' if count == 1 else 's'}"


def _labels(
    facts: PathFacts | None, obstacles: Mapping[str, Obstacle], camera: Camera
) -> list[Label]:
    return world_labels(obstacles, camera) if facts is None else path_labels(facts, camera)


def _scene(
    image: Floats, name: str, facts: PathFacts | None, labels: Sequence[Label], theme: Theme
) -> Scene:
    if facts is None:
        return Scene(image, "", labels, theme.ink)
    heading = escaped(f"{name}: {facts.verdict()}") if name else ""
    return Scene(image, cut(heading), labels, theme.accent(facts.is_free))
