"""Pictures and films of worlds, robots and paths, without a window."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.devices import CPU
from warp_collision.extras import require_extra
from warp_collision.messages import escaped, known_names, short_repr
from warp_collision.poses import PoseLike
from warp_collision.robot import JointCurve, RobotSpheres, SelfCollisionPairs
from warp_collision.robot.checks.path_operands import require_robot_and_world
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer.camera import Camera, parse_view
from warp_collision.viewer.colors import Floats, Theme, theme_of
from warp_collision.viewer.path_facts import PathFacts, path_facts
from warp_collision.viewer.picture import (
    Label,
    Picture,
    Scene,
    compose,
    curve_of,
    cut,
    path_labels,
    pixels,
    world_labels,
    write_png,
)
from warp_collision.viewer.stage import (
    Painter,
    Scenery,
    Stage,
    choose_camera,
    scenery_of,
    stage_path,
    stage_world,
)
from warp_collision.viewer.triangles import LinkMeshes, Triangles, link_meshes
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world

MOST_SCENES = 4  # side by side
_FILMS = (".gif", ".mp4")
_FRAMES_PER_SECOND = 15
_HOLD = 8  # frames at the goal
_MARKER = 2  # pixels
_SECONDS, _SHORTEST = 4.0, 0.2  # of films
_SIZE, _FILM_SIZE = (1280, 800), (960, 640)


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
    seconds: float | None = None,
    base_pose: PoseLike | None = None,
    ignore: Iterable[tuple[str, str]] = (),
    self_collision: bool | SelfCollisionPairs = True,
    shapes: Literal["spheres", "exact"] = "spheres",
    env: int = 0,
    progress: Callable[[float], object] | None = None,
) -> np.ndarray:
    """Draws a world, a robot in it, or paths of the robot; needs no display and no OpenGL.

    Spheres that come nearer than 20 mm to something have the colours of their clearance; obstacles
    that a path collides with are orange. The trail of the tip is blue where a motion is proven
    free, else orange. What is drawn of a path is in view, and the obstacles around it, not all of a
    large world.

    Args:
        world: the obstacles; None for none.
        robot: the robot.
        joints: joint values (n_joints,) or a path (horizon, n_joints). Up to four paths (batch,
            horizon, n_joints), or a mapping of names to paths, are drawn side by side. What
            `optimize_paths` or `timed` returns is taken too, and a `JointCurve`. The pieces of a
            curve are proven, and its film is in real time. Without joints, the robot is drawn in
            the middle of its limits.
        output: the file to write: .png, or .gif or .mp4 of a robot that moves along one path. An
            existing file is replaced.
        view: "front", "back", "left", "right", "top", "corner", or azimuth and elevation of the eye
            [degrees]; by default a view that shows most of what collides, or of the robot.
        look_at: what is in the middle: a point (3,) [m], or the name of an obstacle or a link.
        size: width and height [pixels]; by default 1280 x 800, and 960 x 640 of films.
        background: "light" or "dark".
        title: a line above; by default what is known of the path, or how many of the paths are
            free. "" for none.
        facts: a line below the title.
        labels: whether start, goal, contacts and obstacles are labelled.
        spheres: whether all spheres of the robot are drawn.
        seconds: length of a film; if None 4, and of a curve its duration.
        base_pose: pose of the robot's root link.
        ignore: contacts that are wanted, see `configuration_in_collision`.
        self_collision: see `configuration_in_collision`.
        shapes: see `configuration_in_collision`; costs and colours stay those of spheres.
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
    require_extra("matplotlib", "a picture")
    theme, direction = theme_of(background), parse_view(view)
    path = None if output is None else _checked_output(output)
    film = path if path is not None and path.suffix.lower() in _FILMS else None
    size = _checked_size(size or (_SIZE if film is None else _FILM_SIZE))
    report = progress or (lambda fraction: None)
    world = checked_world(world, robot)
    scenery = scenery_of(world.obstacles(env))
    paths = _checked_paths(robot, joints)
    found: list[PathFacts] = []
    meshes, stages = LinkMeshes({}, {}), [stage_world(scenery, theme)]
    if robot is not None:
        scene = RobotScene(robot, world, base_pose, tuple(ignore), self_collision, env, shapes)
        found = [path_facts(scene, joints) for joints in paths.values()]
        meshes = link_meshes(robot)
        stages = [stage_path(one, meshes, scenery, theme, with_spheres=spheres) for one in found]
    title = cut(_title(world, found, env) if title is None else title)
    facts = cut(facts)
    curves = [curve_of("" if film else name, one, theme)
              for name, one in zip(paths, found, strict=True) if one.n_segments]  # fmt: skip
    page = Picture(size, len(stages), title, facts, curves, bool(found), theme)
    target = _target(look_at, scenery.meshes, found)
    camera = choose_camera(stages, page.scene_size, direction, target)
    report(0.1)
    if film is not None:
        _require_one_path(found, film)
        if seconds is None:
            curve = found[0].curve
            seconds = _SECONDS if curve is None else max(curve.duration.item(), _SHORTEST)
        # Of a curve frame i is at i frames' time, the goal after the last of them.
        count = _frame_count(seconds) + (found[0].curve is not None)
        seen = found[0], meshes, scenery, stages[0], camera
        return _write_film(film, _frames_of(*seen, page, count, report))
    scenes, names = [], list(paths) or [""]
    for index, stage in enumerate(stages):
        image = Painter(stage, camera, theme, world.device).draw(stage)
        report(0.1 + 0.8 * (index + 1) / len(stages))
        known = found[index] if found else None
        written: list[Label] = []
        if labels and known is not None:
            written = path_labels(known, camera)
        elif labels:
            written = world_labels(scenery.meshes, camera)
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
    if path.suffix.lower() not in (".png", *_FILMS):
        raise ValueError(f"output must end in .png, .gif or .mp4, got {short_repr(str(path))}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"output must be in an existing folder, got {short_repr(str(path))}"
        )
    if path.suffix.lower() == ".mp4":
        require_extra("av", "an .mp4 film")
    return path


def _checked_size(size: Any) -> tuple[int, int]:
    try:
        width, height = (int(value) for value in size)
    except (TypeError, ValueError):
        width = height = 0
    if not (64 <= width <= 8192 and 64 <= height <= 8192):
        raise ValueError(f"size must be a width and a height from 64 to 8192, got {size!r}")
    return width, height


def checked_world(world: MeshWorld | None, robot: RobotSpheres | None) -> MeshWorld:
    """Requires a world, or makes an empty one, and a robot that can be checked against it."""
    if world is None:
        world = MeshWorld(device=CPU)
    if robot is None:
        require_world(world)
    else:
        require_robot_and_world(robot, world)
    return world


def _checked_paths(robot: RobotSpheres | None, joints: Any) -> dict[str, Tensor | JointCurve]:
    """Returns the paths or curves by name."""
    if robot is None:
        if joints is not None:
            raise ValueError("joints must be given with a robot, got no robot")
        return {}
    paths = paths_of(joints, robot)
    if not 1 <= len(paths) <= MOST_SCENES:
        raise ValueError(f"joints must be one to {MOST_SCENES} paths, got {len(paths)}")
    return paths


def middle_of_limits(robot: RobotSpheres) -> Tensor:
    """(n_joints,) joint values in the middle of the limits; 0 where there are none."""
    limits = robot.joint_limits
    middle = limits.mean(dim=-1)
    return torch.where(middle.isfinite(), middle, 0.0)


def paths_of(joints: Any, robot: RobotSpheres) -> dict[str, Tensor | JointCurve]:
    """Returns paths (horizon, n_joints) and curves by name, of what `render` takes; one is "".

    Raises:
        TypeError, ValueError: They are not of this robot, or not finite, or a curve jumps.
    """
    if joints is None:
        return {"": middle_of_limits(robot)[None]}
    if isinstance(joints, Mapping):
        given = dict(joints)
    else:
        values = getattr(joints, "curve", getattr(joints, "joints", joints))
        if not isinstance(values, Tensor | JointCurve):
            values = torch.as_tensor(np.asarray(values, dtype=np.float32))
        given = {"": values}
        if isinstance(values, JointCurve) or values.ndim == 3:
            one = len(values) == 1
            given = {"" if one else f"path {i}": values[i] for i in range(len(values))}
    return {
        str(name): _checked_curve(path, robot)
        if isinstance(path, JointCurve)
        else _checked_path(path, robot)
        for name, path in given.items()
    }


def _checked_curve(curve: JointCurve, robot: RobotSpheres) -> JointCurve:
    if curve.n_joints != robot.n_joints:
        raise ValueError(
            f"joints must be a curve of the robot's {robot.n_joints} joints, got one of "
            f"{curve.n_joints}"
        )
    if len(curve) != 1:
        raise ValueError(f"joints must be one curve by name, got a batch of {len(curve)}")
    curve = JointCurve(curve.times, curve.coefficients.detach())
    if not bool(torch.isfinite(curve.points(CPU)).all()):
        raise ValueError("joints must be finite, got a curve with NaN or infinity")
    return curve


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
    look_at: Any, obstacles: Mapping[str, Triangles], found: Sequence[PathFacts]
) -> Floats | None:
    """Returns (3,) the point in the middle [m]; None for the camera to choose."""
    if look_at is None:
        return None
    if isinstance(look_at, str):
        if look_at in obstacles:
            return obstacles[look_at].middle
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
    if len(found) == 1:
        return escaped(found[0].verdict())
    if found:  # each has its own verdict in its heading
        n_free, moves = sum(one.is_free for one in found), any(one.n_segments for one in found)
        return f"{n_free} of {len(found)} {'paths proven' if moves else 'configurations'} free"
    count = len(world.names(env))
    return f"{count} obstacle{'' if count == 1 else 's'}"


def _scene(
    image: Floats, name: str, facts: PathFacts | None, labels: Sequence[Label], theme: Theme
) -> Scene:
    if facts is None:
        return Scene(image, "", labels, theme.ink)
    heading = escaped(f"{name}: {facts.verdict()}") if name else ""
    return Scene(image, cut(heading), labels, theme.accent(facts.is_free))


def _frame_count(seconds: float) -> int:
    """Returns how many frames a film has, without those that show the goal.

    Raises:
        ValueError: `seconds` is not from 0.2 to 120.
    """
    if not 0.2 <= seconds <= 120.0:
        raise ValueError(f"seconds must be from 0.2 to 120, got {seconds}")
    return max(2, round(_FRAMES_PER_SECOND * seconds))


def _frames_of(
    facts: PathFacts,
    meshes: LinkMeshes,
    scenery: Scenery,
    whole: Stage,
    camera: Camera,
    page: Picture,
    count: int,
    report: Callable[[float], object],
) -> Iterator[np.ndarray]:
    """Makes the frames (height, width, 3) uint8 of a path, one by one.

    Args:
        facts: the path.
        meshes: of the robot's links.
        scenery: the obstacles.
        whole: the stage of the path.
        camera: from where it is seen.
        page: all of a frame but its scene.
        count: of the frames, without those that show the goal.
        report: called with the fraction that is done.
    """
    theme, (width, height) = page.theme, page.scene_size
    paper = np.ones((height, width, 3)) * theme.paper
    scene = Scene(paper, "", [], theme.accent(facts.is_free))
    still = pixels(compose(replace(page, scenes=[scene])))
    painter = Painter(whole, camera, theme, facts.scene.world.device)
    image, joints = still, facts.evenly(count)
    for index in range(count + _HOLD):
        if index < count:
            single = path_facts(facts.scene, joints[index][None])
            stage = stage_path(single, meshes, scenery, theme, film=whole)
            drawn = painter.draw(stage, in_film=True)
            image = still.copy()
            rows = slice(page.top, page.top + height)
            image[rows, :width] = np.uint8(255 * drawn)
            _mark(image, page, index / (count - 1))
            _write(image, page, escaped(single.verdict(), 100))
        report(0.1 + 0.9 * (index + 1) / (count + _HOLD))
        yield image


def _mark(image: np.ndarray, page: Picture, place: float) -> None:
    """Draws where on the curves the robot is."""
    width, height = page.size
    left, bottom, wide, high = page.panel
    x = round((left + place * wide) * (width - 1))
    top = round((1.0 - bottom - high) * height)
    image[top : round((1.0 - bottom) * height), max(0, x - _MARKER // 2) : x + _MARKER] = np.uint8(
        255 * np.array(page.theme.ink)
    )


def _write(image: np.ndarray, page: Picture, text: str) -> None:
    """Writes a line over the scene."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), round(26 * page.scale))
    picture = Image.fromarray(image)
    ink = tuple(round(255 * value) for value in page.theme.ink)
    place = (round(28 * page.scale), page.top + round(16 * page.scale))
    ImageDraw.Draw(picture).text(place, text, fill=ink, font=font)
    image[:] = np.asarray(picture)


def _write_film(path: Path, frames: Iterator[np.ndarray]) -> np.ndarray:
    """Writes a film, .gif or .mp4; returns its last frame."""
    return (_write_gif if path.suffix.lower() == _FILMS[0] else _write_mp4)(path, frames)


def _write_gif(path: Path, frames: Iterator[np.ndarray]) -> np.ndarray:
    from PIL import Image

    images = []
    last = None
    for last in frames:
        images.append(Image.fromarray(last).quantize(255, dither=Image.Dither.NONE))
    assert last is not None
    # Frames last whole hundredths of a second: some longer than others, so that all is in time.
    ends = np.round(100.0 / _FRAMES_PER_SECOND * np.arange(len(images) + 1))
    images[0].save(
        path, "GIF", save_all=True, append_images=images[1:], loop=0,
        duration=[10 * int(step) for step in np.diff(ends)],
    )  # fmt: skip
    return last


def _write_mp4(path: Path, frames: Iterator[np.ndarray]) -> np.ndarray:
    import av

    last = None
    with av.open(str(path), "w") as container:
        stream = None
        for last in frames:
            height, width = (side // 2 * 2 for side in last.shape[:2])
            if stream is None:
                stream = container.add_stream("libx264", rate=_FRAMES_PER_SECOND)
                stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                stream.options = {"crf": "20"}
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(last[:height, :width]))
            container.mux(stream.encode(frame))
        assert stream is not None
        container.mux(stream.encode())
    assert last is not None
    return last
