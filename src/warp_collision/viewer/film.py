"""Films of a robot that moves along a path, as GIF or MP4."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from warp_collision.messages import escaped
from warp_collision.viewer.camera import Camera
from warp_collision.viewer.colors import Theme
from warp_collision.viewer.path_facts import PathFacts, evenly_along, path_facts
from warp_collision.viewer.picture import Layout, Picture, Scene, compose, pixels
from warp_collision.viewer.stage import Painter, Scenery, Stage, stage_path
from warp_collision.viewer.triangles import LinkMeshes

FILMS = (".gif", ".mp4")
FRAMES_PER_SECOND = 15
_HOLD = 8  # frames at the goal
_MARKER = 2  # pixels


def frame_count(seconds: float) -> int:
    """Returns how many frames a film has, without those that show the goal.

    Raises:
        ValueError: `seconds` is not from 0.2 to 120.
    """
    if not 0.2 <= seconds <= 120.0:
        raise ValueError(f"seconds must be from 0.2 to 120, got {seconds}")
    return max(2, round(FRAMES_PER_SECOND * seconds))


def frames_of(
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
    theme, layout = page.theme, page.layout
    width, height = layout.scene
    paper = np.ones((height, width, 3)) * theme.paper
    scene = Scene(paper, "", [], theme.accent(facts.is_free))
    still = pixels(compose(replace(page, scenes=[scene])))
    painter = Painter(whole, camera, theme, facts.scene.world.device)
    image, joints = still, evenly_along(facts.joints, count)
    for index in range(count + _HOLD):
        if index < count:
            single = path_facts(facts.scene, joints[index][None])
            stage = stage_path(single, meshes, scenery, theme, film=whole)
            drawn = painter.draw(stage, in_film=True)
            image = still.copy()
            rows = slice(layout.top, layout.top + height)
            image[rows, :width] = np.uint8(255 * drawn)
            _mark(image, layout, index / (count - 1), theme)
            _write(image, layout, escaped(single.verdict(), 100), theme)
        report(0.1 + 0.9 * (index + 1) / (count + _HOLD))
        yield image


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


def write_film(path: Path, frames: Iterator[np.ndarray]) -> np.ndarray:
    """Writes a film, .gif or .mp4; returns its last frame."""
    return (_write_gif if path.suffix.lower() == FILMS[0] else _write_mp4)(path, frames)


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
