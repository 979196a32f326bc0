"""The viewer in a real headless Chromium: what is pressed, moved and read there."""

import gc
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from trimesh.transformations import quaternion_matrix

from robots import PANDA
from warp_collision import Cuboid, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

pytest.importorskip("viser", reason="the extra `view` is not installed")
from warp_collision.viewer import Viewer
from warp_collision.viewer.browser import Worker, free_port, is_loopback
from warp_collision.viewer.world_panel import tree_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
]  # fmt: skip
SLOW = 45_000  # ms, on a machine without a GPU that does other things too
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


@pytest.fixture(scope="module")
def panda():
    return load_panda()


@pytest.fixture
def viewer(panda):
    with Viewer(world_of(), panda, port=0) as found:
        yield found


def status(viewer: Viewer) -> str:
    assert viewer.wait(60)
    return viewer._status.content


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


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


def until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


# -- in the browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(chromium, panda):
    """One page for all tests, which leave it as they found it."""
    with Viewer(world_of(), panda, port=0) as viewer:
        viewer.add_path(path_of(), "sweep across")
        assert viewer.wait(60)
        found = Page(chromium, viewer)
        yield found
        found.page.close()


def test_a_person_sees_moves_and_plays(seen):
    viewer = seen.viewer
    seen.see("motions not proven free")
    seen.see("clearance of a sphere [mm]")
    # A slider of a joint: the robot, its distances and the sliders are the server's.
    page = seen.tab("robot")
    before = viewer._robot.joints.clone()
    page.locator("[role=slider]:visible").first.press("End")
    highest = viewer._robot.scene.robot.joint_limits[0, 1].item()
    until(lambda: abs(viewer._robot.joints[0].item() - highest) < 1e-3)
    torch.testing.assert_close(viewer._robot.joints[1:], before[1:], atol=1e-3, rtol=0)
    # Play: the place moves, and stops.
    seen.tab("path")
    seen.press("play")
    until(lambda: viewer._paths.place > 0.3)
    seen.press("stop")
    until(lambda: not viewer._paths.is_playing)
    # The worst contact is a click away.
    seen.press(re.compile("mm into plate"))
    worst = viewer._paths.facts.worst()[0]
    until(lambda: abs(viewer._paths.place - worst.place) < 1e-6)
    seen.see("collision:")
    assert seen.errors == []


def test_a_toggle_lets_queries_skip_an_obstacle(seen):
    viewer = seen.viewer
    enabled = viewer._world._world.enabled
    seen.tab("world")
    assert viewer._paths.facts.is_free is False
    seen.press("☑ on")
    until(lambda: enabled[0, 0].item() == 0)
    until(lambda: viewer._paths.facts.is_free)
    off = seen.page.get_by_role("button", name="☐ off")
    until(lambda: off.count() == 2)
    off.first.click()
    until(lambda: not viewer._paths.facts.is_free)
    assert enabled[0].tolist()[:3] == [1, 1, 0]
    assert seen.errors == []


def test_names_are_text(seen):
    seen.tab("world")
    for name in NAMES:
        seen.see(name)
        seen.viewer.select(name)
        assert seen.viewer.wait(60)
        seen.see(name, 2)
    seen.viewer.select(None)
    assert seen.page.locator("img[src='x']").count() == 0
    assert seen.errors == []


def test_the_mouse_selects_an_obstacle_and_drags_it_by_its_gizmo(seen):
    viewer, world = seen.viewer, seen.viewer._world
    seen.tab("world")
    viewer.update([0.0, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8])
    assert "collision" in status(viewer)
    until(lambda: seen.colored() > 100, 120)
    colored, color = seen.colored(), world.drawn["plate"].handles[0].color
    # A click on the shape itself.
    seen.page.mouse.click(*seen.pixel_of((0.7, 0.0, 0.7)))
    until(lambda: world.selected == "plate")
    seen.see("Cuboid(dims=(0.5, 0.02, 0.5))")
    # The arrow of y begins in the middle, and is as long as the gizmo is large.
    arrow = np.array([0.5, 0.8 * world._gizmo.scale, 0.5])
    facts = viewer._paths.facts
    seen.drag(arrow, arrow + np.array([0.0, 0.5, 0.0]))
    until(lambda: world._world.pose("plate")[1] > 0.3)
    pose = world._world.pose("plate").tolist()
    np.testing.assert_allclose(pose, (0.5, pose[1], 0.5, 1, 0, 0, 0), atol=1e-4)
    until(lambda: "collision" not in status(viewer))
    assert world.drawn["plate"].handles[0].color != color
    until(lambda: seen.colored() < 0.3 * colored, 120)
    assert viewer._paths.facts.worst()[0].place != facts.worst()[0].place
    seen.press("done")
    until(lambda: world.selected is None)
    viewer.put("gizmo", lambda: viewer.move("plate", (0.5, 0, 0.5, 1, 0, 0, 0)))
    assert seen.errors == []


@pytest.mark.slow
def test_a_second_client_and_one_that_leaves(chromium, seen):
    viewer = seen.viewer
    second = Page(chromium, viewer, (400, 300))
    until(lambda: len(viewer.server.get_clients()) == 2)
    viewer.update(GOAL)
    assert viewer.wait(60)
    for page in (seen, second):
        page.see("panda_")
    second.page.close()
    until(lambda: len(viewer.server.get_clients()) == 1)
    assert seen.errors == second.errors == []


# -- without one ---------------------------------------------------------------------------------


def test_distances_colours_and_the_certificate_follow_an_obstacle(viewer):
    viewer.add_path(path_of())
    viewer.update([0.0, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8], delay=0.0)
    assert "collision" in status(viewer)
    mesh = viewer._world.drawn["plate"].handles[0]
    color = mesh.color
    assert not viewer._paths.facts.is_free
    viewer.put("gizmo", lambda: viewer.move("plate", (0.5, 3.0, 0.5, 1.0, 0.0, 0.0, 0.0)))
    assert "collision" not in status(viewer)
    assert viewer._world._world.pose("plate").tolist()[:3] == [0.5, 3.0, 0.5]
    assert mesh.color != color
    assert viewer._paths.facts.is_free
    assert "proven free" in viewer._paths._verdict.content
    assert viewer._paths._choice.value == "path: proven free"


def test_spheres_have_the_colours_of_their_clearance(viewer):
    viewer.update([0.0, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8], delay=0.0)
    assert viewer.wait(60)
    robot = viewer._robot
    clearance = robot.scene.clearance(robot.joints[None]).clearance[0, 0].numpy()
    colors = robot._spheres.batched_colors.astype(int)
    dark = colors.sum(-1)
    assert dark[np.argmin(clearance)] == dark.min()
    assert dark[clearance < 0].max() < dark[clearance > 0.05].min()


def test_a_click_shows_the_report_and_a_gizmo(viewer):
    viewer.select("plate")
    assert viewer.wait(60)
    assert "Cuboid(dims=(0.5, 0.02, 0.5))" in viewer._world._report.content
    np.testing.assert_allclose(viewer._world._gizmo.position, (0.5, 0, 0.5))
    viewer.select(None)
    assert viewer.wait(60)
    assert viewer._world._gizmo is None


def test_paddings_and_disabled_obstacles_are_drawn(viewer):
    assert viewer.wait(60)
    handles = {name: drawn.handles for name, drawn in viewer._world.drawn.items()}
    assert [len(handles[name]) for name in ("plate", *NAMES)] == [1, 2, 1]
    assert len({*handles[NAMES[1]][0].color}) == 1  # grey
    assert handles[NAMES[1]][0].opacity < handles["plate"][0].opacity
    assert "29 of 32 slots are free" in viewer._world._note.content


def test_many_names_are_listed_when_they_are_asked_for():
    world = MeshWorld(max_obstacles=300, device="cpu")
    for index in range(130):
        world.add(f"shelf/box {index}", Cuboid((0.1, 0.1, 0.1)), (index, 0, 0, 1, 0, 0, 0))
    world.add("room/wall/left", Cuboid((0.1, 0.1, 0.1)))
    with Viewer(world, port=0) as viewer:
        assert viewer.wait(60)
        tree = viewer._world._tree
        assert [*tree._rows] == ["room/wall/left"]
        viewer._world._filter.value = "box 12"
        assert viewer.wait(60)
        assert [*tree._rows] == [f"shelf/box {i}" for i in (12, *range(120, 130))]
        viewer.put("all", lambda: viewer.switch([*tree._rows], False))
        assert viewer.wait(60)
        assert world.enabled[0].sum() == 131 - 11
        assert {row.options[0] for row in tree._rows.values()} == {"☐ off"}


def test_names_make_a_tree():
    root = tree_of({name: "Cuboid" for name in ("a/b/c", "a/b/d", "e", "f/g", "/a//b/c", "/")})
    assert [*root.groups] == ["a/b"]
    assert root.groups["a/b"].names == {"c": "a/b/c", "d": "a/b/d", "/a//b/c": "/a//b/c"}
    assert root.names == {"e": "e", "f/g": "f/g", "/": "/"}
    many = tree_of({f"{kind} {i}": kind for kind in ("Cuboid", "Sphere") for i in range(60)})
    assert {kind: len(group.everything()) for kind, group in many.groups.items()} == {
        "Cuboid": 60, "Sphere": 60,
    }  # fmt: skip


def test_envs_are_chosen(panda):
    world = MeshWorld(2, device="cpu")
    world.add("far", Cuboid((0.1, 0.1, 0.1)), (3, 0, 0, 1, 0, 0, 0))
    world.add("near", Cuboid((0.4, 0.4, 0.4)), (0, 0, 0.9, 1, 0, 0, 0), env=1)
    with Viewer(world, panda, port=0) as viewer:
        viewer.update(START, delay=0.0)
        assert "collision" not in status(viewer)
        viewer.choose_env(1)
        assert "near" in status(viewer)
        assert [*viewer._world.drawn] == ["near"]
        with pytest.raises(IndexError):
            viewer.choose_env(2)


def test_many_paths_are_coloured_by_result(viewer):
    far = path_of().clone()
    far[:, 0] = torch.linspace(1.5, 2.0, 9)
    viewer.add_paths({"hits": path_of(), "free": far})
    assert viewer.wait(60)
    assert viewer._paths._choice.options == ("hits: not free", "free: proven free")
    free, hits = (np.unique(viewer._paths._traces[name].colors.reshape(-1, 3), axis=0)
                  for name in ("free", "hits"))  # fmt: skip
    assert (len(free), len(hits)) == (1, 2)
    viewer.put("open", lambda: viewer._paths.open("free"))
    assert viewer.wait(60)
    assert viewer._paths.facts.is_free
    viewer._paths._sweep.value = True
    assert viewer.wait(60)
    assert len(viewer._paths._ghosts) == 7


def test_certificates_of_all_paths_follow_an_obstacle(viewer):
    """What is said of a path that is not open is never what was true before the move."""
    far = path_of().clone()
    far[:, 0] = torch.linspace(1.5, 2.0, 9)
    viewer.add_paths({"hits": path_of(), "free": far, "free too": far + 0.01})
    assert viewer.wait(60)
    shown = viewer._paths
    before = shown._traces["free"].colors.copy()
    seen = []
    spoken = shown._tell_labels

    def noted() -> None:
        spoken()
        seen.append(shown._choice.options)

    shown._tell_labels = noted
    # Into the two paths that are not open: where the hand is half way.
    hand = viewer._robot.scene.spheres(far[4:5])[0, -1, :3].tolist()
    viewer.put("gizmo", lambda: viewer.move("plate", (*hand, 1.0, 0.0, 0.0, 0.0)))
    assert viewer.wait(60)
    assert seen[0] == tuple(f"{name}: not proven yet" for name in ("hits", "free", "free too"))
    assert shown._choice.options == ("hits: proven free", "free: not free", "free too: not free")
    assert not np.array_equal(shown._traces["free"].colors, before)
    assert shown._choice.value == "hits: proven free"
    assert "proven free" in shown._verdict.content


def test_links_that_collide_with_each_other_are_coloured(viewer, panda):
    viewer.enable("plate", False)
    folded = torch.tensor([0.0, 0.0, 0.0, -3.05, 0.0, 0.0, 0.0])
    viewer.update(folded, delay=0.0)
    words = status(viewer)
    assert "collision" in words
    found = panda.report(folded[None, None], viewer._world._world, self_collision=True)
    assert all(name in words for name in (found.link[0], found.obstacle[0]))
    hit = np.isin(panda.sphere_links, [*found.link, *found.obstacle])
    dark = viewer._robot._spheres.batched_colors.astype(int).sum(-1)
    assert dark[hit].max() < dark[~hit].min()


def test_what_the_planner_finds_is_shown(viewer, panda):
    viewer.enable("plate", False)
    assert viewer.wait(60)
    start, goal = torch.tensor([START]), torch.tensor([GOAL])
    found = optimize_paths(start, goal, panda, viewer._world._world, horizon=6,
                           until="first", progress=viewer.progress)  # fmt: skip
    viewer.show(found)
    assert viewer.wait(60)
    torch.testing.assert_close(viewer._paths.facts.joints, found.joints[0])
    with pytest.raises(TypeError, match="joints"):
        viewer.show(3)


def test_a_robot_alone_a_world_alone_and_nothing(panda):
    with Viewer(port=0) as nothing, Viewer(world_of(), port=0) as world:
        assert "0 obstacles" in status(nothing)
        assert "3 obstacles" in status(world)
        for found in (nothing, world):
            with pytest.raises(ValueError, match="robot must be given to the viewer"):
                found.update(START)
    with Viewer(robot=panda, port=0) as robot:
        robot.update(START, delay=0.0)
        assert "mm" in status(robot) or "nothing within" in status(robot)


def test_a_robot_without_meshes_and_links_without_spheres(tmp_path):
    from warp_collision import RobotSpheres

    text = Path(PANDA).read_text().replace(".stl", ".gone").replace(".obj", ".gone")
    path = tmp_path / "arm.urdf"
    path.write_text(text)
    spheres = {"panda_link5": [[0.0, 0.0, 0.0, 0.1]]}
    robot = RobotSpheres(path, spheres=spheres)
    with pytest.warns(UserWarning, match="the robot is drawn as its spheres, none of its meshes"):
        viewer = Viewer(robot=robot, port=0)
    with viewer:
        assert viewer.wait(60)
        notes = viewer._robot._notes()
        assert "no meshes, spheres alone" in notes
        assert "panda_hand has no spheres: it is not checked" in notes


def test_what_is_attached_is_drawn(viewer):
    robot = viewer._robot.scene.robot
    assert viewer.wait(60)
    robot.attach("can", "panda_hand", [[0.0, 0.0, 0.12, 0.04]])
    try:
        viewer.update(START, delay=0.0)
        assert viewer.wait(60)
        assert len(viewer._robot._spheres.batched_positions) == robot.n_spheres
    finally:
        robot.detach("can")


def buffered(viewer: Viewer) -> int:
    return len(viewer.server._websock_server._broadcast_buffer.message_from_id)


def draw_each(viewer: Viewer, path: torch.Tensor) -> None:
    """Draws all configurations, none of them in place of another."""
    for values in path:
        viewer.put("joints", lambda values=values: viewer.draw(values))
        assert viewer.wait(60)


def test_updates_do_not_wait_and_memory_stays(viewer):
    joints = path_of(1000)
    draw_each(viewer, joints[:20])
    messages, objects = buffered(viewer), len(gc.get_objects())
    begin = time.perf_counter()
    for values in joints:
        viewer.update(values)
    assert time.perf_counter() - begin < 2.0
    assert viewer.wait(60)
    assert torch.equal(viewer._robot.joints, joints[-1])
    draw_each(viewer, joints[::20])
    gc.collect()
    assert buffered(viewer) <= messages + 5
    assert len(gc.get_objects()) < objects + 2000


@pytest.mark.slow
def test_a_thousand_drawings_keep_memory_flat(chromium, viewer):
    """Of the server with a client that sees them, in its resident memory too."""
    viewer.add_path(path_of(), "sweep across")
    seen = Page(chromium, viewer)

    def resident() -> float:  # MB
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    figures = []
    for joints in path_of(1200).split(100):
        draw_each(viewer, joints)
        gc.collect()
        figures.append((buffered(viewer), len(gc.get_objects()), resident()))
    print(*figures, sep="\n")
    messages, objects, memory = np.array(figures[2:]).T  # after caches are filled
    assert np.ptp(messages) <= 5
    assert objects[-1] - objects[0] < 2000
    assert memory[-1] - memory[0] < 20.0
    seen.see("mm")
    assert seen.errors == []
    seen.page.close()


def test_errors_of_drawing_are_shown(viewer):
    def fail() -> None:
        raise ValueError("<b>no</b>")

    viewer.put("bad", fail)
    assert "&lt;b&gt;no&lt;/b&gt;" in status(viewer)


def test_a_worker_does_the_newest_of_each_name():
    done, go = [], threading.Event()
    worker = Worker(lambda error: done.append(error))
    worker.put("wait", lambda: go.wait(10) and None)
    for index in range(100):
        worker.put("number", lambda index=index: done.append(index))
    worker.put("later", lambda: done.append("later"), delay=0.05)
    go.set()
    assert worker.wait(10)
    assert done == [99, "later"]
    worker.put("later", lambda: done.append(0), delay=60)
    assert not worker.wait(0.05)
    worker.put("later", lambda: done.append(1))  # in its place, and at once
    assert worker.wait(1)
    assert done == [99, "later", 1]
    worker.close()


# -- beyond this machine -------------------------------------------------------------------------


def test_no_file_of_the_user_is_served(viewer, tmp_path):
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    host, port = viewer.url.removeprefix("http://").split(":")
    up = "../" * 12
    for target in (f"/{up}etc/passwd", "//etc/passwd", "/%2e%2e/" * 9 + "etc/passwd"):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", target)
        reply = connection.getresponse()
        assert b"root:" not in reply.read()
        connection.close()


def test_another_host_is_told(capsys):
    with Viewer(host="0.0.0.0", port=0):
        assert "can be reached from other machines" in capsys.readouterr().err
    with Viewer(port=0):
        found = capsys.readouterr()
        assert (found.out, found.err) == ("", "")


def test_a_port_in_use_and_wrong_arguments(panda, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port must be free, got {port} of '127.0.0.1'"):
            Viewer(port=port)
    with pytest.raises(OSError, match=r"port must be free, got \d+ of 'no.such.host'"):
        Viewer(host="no.such.host", port=8093)
    with pytest.raises(ValueError, match="port must be from 0 to 65535, got 70000"):
        free_port("127.0.0.1", 70000)
    with pytest.raises(TypeError, match="world must be a MeshWorld, got int"):
        Viewer(3, port=0)
    with Viewer(world_of(), panda, port=0) as viewer:
        with pytest.raises(ValueError, match="joints must have shape"):
            viewer.update([0.0, 1.0])
        with pytest.raises(ValueError, match="joints must be finite"):
            viewer.update([float("nan")] * 7)
        with pytest.raises(ValueError, match="joints must be finite"):
            viewer.add_paths(torch.full((1, 3, 7), torch.inf))
        with pytest.raises(ValueError, match="name must be one of 'plate'"):
            viewer.select("plat")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'warp-collision\[view\]'"):
        Viewer(port=0)


@pytest.mark.slow
def test_the_command_serves_and_ends(tmp_path):
    world, path = tmp_path / "w.yaml", tmp_path / "p.npy"
    world.write_text("cuboid: {top: {dims: [0.4, 0.4, 0.1], pose: [0.6, 0, 0.2, 1, 0, 0, 0]}}")
    np.save(path, path_of(4).numpy())
    command = [
        *(sys.executable, "-m", "warp_collision.cli", "view", str(world), str(path)),
        *("--robot", str(PANDA), "--port", "0", "--no-browser"),
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment) as running:  # fmt: skip
        assert running.stdout is not None
        line = running.stdout.readline()
        url = line.split()[0] if line.strip() else ""
        try:
            assert url.startswith("http://127.0.0.1:"), line
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
            connection.request("GET", "/")
            with connection.getresponse() as reply:
                assert reply.status == 200
                assert b"<html" in reply.read()
            connection.close()
        finally:
            running.terminate()
            ending = threading.Timer(60.0, running.kill)  # or a failure would wait without end
            ending.start()
            errors = running.communicate()[1]
            ending.cancel()
        assert running.returncode == 0, errors
        assert "Traceback" not in errors
