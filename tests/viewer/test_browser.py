"""The viewer in a real headless Chromium: what is pressed, moved and read there."""

import gc
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import GOAL, NAMES, Page, buffered, draw_each, path_of, status, until, world_of
from warp_collision.viewer import Viewer


@pytest.fixture(scope="module")
def seen(chromium, panda):
    """One page for all tests, which leave it as they found it."""
    with Viewer(world_of(), panda, port=0) as viewer:
        # Half of what Chromium computes without a GPU, and nothing that these tests look at.
        viewer.server.scene.configure_environment_map(hdri=None)
        viewer.server.scene.configure_default_lights(cast_shadow=False)
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


@pytest.mark.slow
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
