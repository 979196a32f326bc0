"""Films of a robot that moves along a path, as GIF or MP4."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from warp_collision.messages import escaped
from warp_collision.viewer.camera import Camera
from warp_collision.viewer.captions import curve_of
from warp_collision.viewer.colors import Theme
from warp_collision.viewer.path_facts import PathFacts, evenly_along, path_facts
from warp_collision.viewer.picture import Layout, Picture, Scene, compose, pixels
from warp_collision.viewer.stage import Painter, Scenery, Stage, stage_path
from warp_collision.viewer.triangles import LinkMeshes

FILMS = (".gif", ".mp4")
FRAMES_PER_SECOND = 15
_HOLD = 8  # frames at the goal
_MARKER = 2  # pixels


def require_film_writer(path: Path) -> None:
    """Requires PyAV for an .mp4.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    if path.suffix.lower() == ".mp4" and importlib.util.find_spec("av") is None:
        raise ModuleNotFoundError(
            "av is not installed, which writes .mp4; pip install 'warp-collision[viz]' brings it"
        )


class Film(NamedTuple):
    """Frames (height, width, 3) uint8, made one by one, and how many there are."""

    count: int
    frames: Iterator[np.ndarray]


def film_of(
    facts: PathFacts,
    meshes: LinkMeshes,
    scenery: Scenery,
    whole: Stage,
    theme: Theme,
    camera: Camera,
    layout: Layout,
    *,
    title: str,
    subtitle: str,
    seconds: float,
) -> Film:
    """Returns the film of a path.

    Args:
        facts: the path.
        meshes: of the robot's links.
        scenery: the obstacles.
        whole: the stage of the path.
        theme: the colours.
        camera: from where it is seen.
        layout: of each frame.
        title: a line above.
        subtitle: a line below the title.
        seconds: without what the goal is shown for.

    Raises:
        ValueError: `seconds` is not from 0.2 to 120.
    """
    if not 0.2 <= seconds <= 120.0:
        raise ValueError(f"seconds must be from 0.2 to 120, got {seconds}")
    count = max(2, round(FRAMES_PER_SECOND * seconds))

    def frames() -> Iterator[np.ndarray]:
        width, height = layout.scene
        paper = np.ones((height, width, 3)) * theme.paper
        scene = Scene(paper, "", [], theme.accent(facts.is_free))
        curve = curve_of("", facts, theme)
        still = Picture([scene], [curve], title, subtitle, theme, layout)
        page = pixels(compose(still))
        painter = Painter(whole, camera, theme, facts.scene.world.device)
        image = page
        for index, joints in enumerate(evenly_along(facts.joints, count)):
            single = path_facts(facts.scene, joints[None])
            stage = stage_path(single, meshes, scenery, theme, film=whole)
            drawn = painter.draw(stage, in_film=True)
            image = page.copy()
            rows = slice(layout.top, layout.top + height)
            image[rows, :width] = np.uint8(255 * drawn)
            _mark(image, layout, index / (count - 1), theme)
            _write(image, layout, escaped(single.verdict(), 100), theme)
            yield image
        for _ in range(_HOLD):
            yield image

    return Film(count + _HOLD, frames())


def _mark(image: np.ndarray, layout: Layout, place: float, theme: Theme) -> None:
    """Draws where on the curves the robot is."""
    width, height = layout.size
    left, bottom, wide, high = layout.panel
    x = round((left + place * wide) * (width - 1))
    top = round((1.0 - bottom - high) * height)
    image[top : round((1.0 - bottom) * height), max(0, x - _MARKER // 2) : x + _MARKER] = np.uint8(
        255 * np.array(theme.ink)
    )


def _write(image: np.ndarray, layout: Layout, text: str, theme: Theme) -> None:
    """Writes a line over the scene."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), round(26 * layout.scale))
    picture = Image.fromarray(image)
    ink = tuple(round(255 * value) for value in theme.ink)
    place = (round(28 * layout.scale), layout.top + round(16 * layout.scale))
    ImageDraw.Draw(picture).text(place, text, fill=ink, font=font)
    image[:] = np.asarray(picture)


def write_film(path: Path, film: Film, report: Callable[[float], object]) -> np.ndarray:
    """Writes a film; returns its last frame.

    Args:
        path: .gif or .mp4.
        film: the film.
        report: called with the fraction that is done.
    """

    def told() -> Iterator[np.ndarray]:
        for index, frame in enumerate(film.frames):
            report(0.1 + 0.9 * (index + 1) / film.count)
            yield frame

    return (_write_gif if path.suffix.lower() == FILMS[0] else _write_mp4)(path, told())


def _write_gif(path: Path, frames: Iterator[np.ndarray]) -> np.ndarray:
    from PIL import Image

    images = []
    last = None
    for last in frames:
        images.append(Image.fromarray(last).quantize(255, dither=Image.Dither.NONE))
    assert last is not None
    images[0].save(
        path, "GIF", save_all=True, append_images=images[1:], loop=0,
        duration=round(1000 / FRAMES_PER_SECOND),
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
                stream = container.add_stream("libx264", rate=FRAMES_PER_SECOND)
                stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                stream.options = {"crf": "20"}
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(last[:height, :width]))
            container.mux(stream.encode(frame))
        assert stream is not None
        container.mux(stream.encode())
    assert last is not None
    return last
