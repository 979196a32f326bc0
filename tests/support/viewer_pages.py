"""Worlds and paths that the viewer shows in tests, and a page of it in a headless Chromium."""

import asyncio
import re
import time
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from trimesh.transformations import quaternion_matrix

from warp_collision import Cuboid, MeshWorld
from warp_collision.viewer import Viewer

SLOW = 180_000  # ms, on a machine without a GPU that does many other things too
START, GOAL = [-0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8], [0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8]
NAMES = "<img src=x onerror=alert(1)>", "**bold**/../x"


def path_of(count: int = 9) -> torch.Tensor:
    shares = torch.linspace(0, 1, count)[:, None]
    return torch.lerp(torch.tensor(START), torch.tensor(GOAL), shares)


def world_of() -> MeshWorld:
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid((0.5, 0.02, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0))
    world.add(NAMES[0], Cuboid((0.1, 0.1, 0.1)), (0, 0.9, 0.1, 1, 0, 0, 0), padding=0.05)
    world.add(NAMES[1], Cuboid((0.1, 0.1, 0.1)), (0, -0.9, 0.1, 1, 0, 0, 0), enabled=False)
    return world


def status(viewer: Viewer) -> str:
    assert viewer.wait(60)
    return viewer._status.content


class Page:
    """A page of the viewer, and what its console said."""

    def __init__(self, chromium, viewer: Viewer, size: tuple[int, int] = (620, 440)):
        self.errors: list[str] = []
        self.viewer = viewer
        self.page = chromium.new_page(viewport={"width": size[0], "height": size[1]})
        self.page.set_default_timeout(SLOW)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append("a dialog"))
        self.page.goto(viewer.url)
        self.page.get_by_role("tab", name="world").wait_for()

    def _heard(self, message) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def tab(self, name: str):
        self.page.get_by_role("tab", name=name).click()
        return self.page

    def see(self, text: str, count: int = 1) -> None:
        """Waits for a text that is seen so often, in the open tab."""
        self.page.get_by_text(text).locator("visible=true").nth(count - 1).wait_for()

    def press(self, button: str | re.Pattern) -> None:
        self.page.get_by_role("button", name=button).first.click()

    def pixel_of(self, point) -> tuple[float, float]:
        """Where a point of the world is on the page."""
        camera = next(iter(self.viewer.server.get_clients().values())).camera
        rotation = quaternion_matrix(camera.wxyz)[:3, :3]
        x, y, depth = (np.asarray(point, float) - camera.position) @ rotation
        box = self.page.locator("canvas").first.bounding_box()
        focal = 0.5 * box["height"] / np.tan(0.5 * camera.fov)
        return (box["x"] + 0.5 * box["width"] + focal * x / depth,
                box["y"] + 0.5 * box["height"] + focal * y / depth)  # fmt: skip

    def drag(self, start, end) -> None:
        """Presses the mouse at one point of the world, and releases it at another."""
        mouse, first, last = self.page.mouse, self.pixel_of(start), self.pixel_of(end)
        mouse.move(*first)
        time.sleep(0.3)  # the page finds out what is under the mouse
        mouse.down()
        mouse.move(*np.add(first, last) / 2, steps=3)
        mouse.move(*last, steps=3)
        mouse.up()

    def colored(self) -> int:
        """Pixels of the scene that are orange or darker: what collides."""
        canvas = self.page.locator("canvas").first
        shot = Image.open(BytesIO(canvas.screenshot(timeout=SLOW)))
        pixels = np.asarray(shot.convert("RGB")).astype(int)[150:]
        return int((pixels[..., 0] - pixels[..., 2] > 70).sum())


def until(condition, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def hear_gizmo(viewer: Viewer, phase: str, pose: tuple[float, ...] = ()) -> None:
    """What a page says of the gizmo while the mouse is pressed, moved and released on it."""
    from viser import _messages as messages

    scene, name = viewer.server.scene, viewer._world._gizmo.name
    if phase == "start":
        heard = scene._handle_transform_controls_drag_start(
            0, messages.TransformControlsDragStartMessage(name)
        )
    elif phase == "end":
        heard = scene._handle_transform_controls_drag_end(
            0, messages.TransformControlsDragEndMessage(name)
        )
    else:
        heard = scene._handle_transform_controls_updates(
            0, messages.TransformControlsUpdateMessage(name, pose[3:], pose[:3])
        )
    asyncio.run_coroutine_threadsafe(heard, viewer.server.get_event_loop()).result(60)


def buffered(viewer: Viewer) -> int:
    return len(viewer.server._websock_server._broadcast_buffer.message_from_id)


def draw_each(viewer: Viewer, path: torch.Tensor) -> None:
    """Draws all configurations, none of them in place of another."""
    for values in path:
        viewer.put("joints", lambda values=values: viewer.draw(values))
        assert viewer.wait(60)
