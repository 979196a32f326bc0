"""The viewer without a browser: what the server says, lists and colours."""

import gc
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from robots import PANDA
from warp_collision import Cuboid, MeshWorld, PointCloud
from warp_collision.planning import optimize_paths

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import GOAL, NAMES, START, buffered, draw_each, path_of, status, world_of
from warp_collision.viewer import Viewer
from warp_collision.viewer.browser import Worker
from warp_collision.viewer.camera import Camera
from warp_collision.viewer.world_panel import tree_of


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


def test_names_with_a_scheme_keep_its_slashes():
    names = "http://lab.example/table", "http://lab.example/shelf", "file:///home/x.stl"
    root = tree_of(dict.fromkeys(names, "Cuboid"))
    assert [*root.groups] == ["http://lab.example"]
    assert root.groups["http://lab.example"].names == {"table": names[0], "shelf": names[1]}
    assert root.names == {"file:///home/x.stl": names[2]}


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
        assert viewer._world._envs.value == "1"
        with pytest.raises(IndexError):
            viewer.choose_env(2)


def test_certificates_are_of_the_env_that_is_shown(panda):
    """What was proven in another env, of the open path and of others, is not said here."""
    world = MeshWorld(2, device="cpu")
    world.add("plate", Cuboid((0.5, 0.02, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0), env=1)
    with Viewer(world, panda, port=0) as viewer:
        viewer.add_paths({"open": path_of(), "closed": path_of() + 0.01})
        for env, result in ((0, "proven free"), (1, "not free"), (0, "proven free")):
            viewer.choose_env(env)
            assert viewer.wait(60)
            options = viewer._paths._choice.options
            assert options == (f"open: {result}", f"closed: {result}")
            assert viewer._paths.facts.is_free == (result == "proven free")
            assert ("not proven free" in viewer._paths._verdict.content) == bool(env)


def test_a_large_cloud_is_points(panda, monkeypatch):
    """Triangles of 100,000 points, which take seconds, are never made."""
    monkeypatch.setattr(PointCloud, "tessellate", None)
    rng = np.random.default_rng(1)
    ball = rng.normal(size=(100_000, 3))
    ball *= [[0.3, 0.4, 0.2]] / np.linalg.norm(ball, axis=1, keepdims=True)
    world = MeshWorld(2, device="cpu")
    cloud = PointCloud(ball.astype(np.float32), radius=0.004)
    world.add("cloud", cloud, (0.9, 0.2, 0.3, 1, 0, 0, 0), env=1, padding=0.01)
    with Viewer(world, panda, port=0) as viewer:
        assert viewer.wait(60)
        viewer.choose_env(1)
        assert viewer.wait(60)
        drawn = viewer._world.drawn["cloud"]
        np.testing.assert_array_equal(drawn.points.points, cloud.points)
        assert drawn.points.point_size == pytest.approx(2 * 0.014)
        np.testing.assert_allclose(drawn.points.position, (0.9, 0.2, 0.3), atol=1e-6)
        assert len(drawn.handles[0].vertices) == 8  # of the box around it
        low, high = drawn.handles[0].vertices.min(0), drawn.handles[0].vertices.max(0)
        np.testing.assert_allclose([low, high], cloud.bounds, atol=1e-6)
        # It is grey when it is off, and goes where it is moved.
        viewer.enable("cloud", False)
        assert viewer.wait(60)
        assert np.ptp(drawn.points.colors.astype(int), axis=1).max() == 0
        viewer.put("gizmo", lambda: viewer.move("cloud", (1.0, 0, 0, 1, 0, 0, 0)))
        assert viewer.wait(60)
        np.testing.assert_allclose(drawn.points.position, (1.0, 0, 0), atol=1e-6)


def test_the_camera_sees_the_whole_robot_without_a_path(viewer):
    """Also where it was moved to before anyone looked."""
    for joints in ([0.0, 0, 0, -0.1, 0, 0.1, 0], [1.5, 1.6, 0, -0.1, 0, 1.6, 0]):
        viewer.update(joints, delay=0.0)
        assert viewer.wait(60)
        camera = viewer.server.initial_camera
        seen = Camera(tuple(camera.position), tuple(camera.look_at), 160, 140, 75.0)
        rows = viewer._robot.scene.spheres(torch.tensor([joints]))[0].numpy()
        low, high = (seen.project(rows[:, :3]).reshape(-1, 2).min(0),
                     seen.project(rows[:, :3]).reshape(-1, 2).max(0))  # fmt: skip
        assert (low > 0).all()
        assert (high < [160, 140]).all()
        assert np.max((high - low) / [160, 140]) > 0.25  # and not from far away


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


def test_a_path_is_opened_while_others_are_proven(viewer):
    """The page says what was known before; labels may change before the choice is read."""
    far = path_of().clone()
    far[:, 0] = torch.linspace(1.5, 2.0, 9)
    viewer.add_paths({"hits": path_of(), "free": far})
    shown = viewer._paths
    for name, known in (("free", "not proven yet"), ("hits", "proven free")):
        assert viewer.wait(60)
        shown._choice._impl.value = f"{name}: {known}"  # as a message of the page sets it
        shown._tell_labels()
        shown._chosen(SimpleNamespace(client=object(), target=shown._choice))
        assert viewer.wait(60)
        assert shown._open == name
        assert shown._choice.value in shown._choice.options
        assert shown._choice.value.startswith(f"{name}: ")
        assert shown.facts.is_free == (name == "free")


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


@pytest.mark.slow
def test_updates_do_not_wait_and_memory_stays(viewer):
    joints = path_of(1000)
    draw_each(viewer, joints[:20])
    messages, objects = buffered(viewer), len(gc.get_objects())
    drawn, go = [], threading.Event()
    viewer.put("wait", lambda: drawn.append(go.wait(60)))
    for values in joints:
        viewer.update(values)
    assert not drawn  # all return while another job is at work
    go.set()
    assert viewer.wait(60)
    assert drawn == [True]
    assert torch.equal(viewer._robot.joints, joints[-1])
    draw_each(viewer, joints[::20])
    gc.collect()
    assert buffered(viewer) <= messages + 5
    assert len(gc.get_objects()) < objects + 2000


def test_errors_of_drawing_are_shown(viewer):
    def fail() -> None:
        raise ValueError("<b>no</b>")

    viewer.put("bad", fail)
    assert "&lt;b&gt;no&lt;/b&gt;" in status(viewer)


def test_a_worker_does_the_newest_of_each_name():
    done, go = [], threading.Event()
    worker = Worker(lambda error: done.append(error))
    worker.put("wait", lambda: go.wait(60) and None)
    for index in range(100):
        worker.put("number", lambda index=index: done.append(index))
    worker.put("later", lambda: done.append("later"), delay=0.05)
    go.set()
    assert worker.wait(60)
    assert done == [99, "later"]
    worker.put("later", lambda: done.append(0), delay=60)
    assert not worker.wait(0.05)
    worker.put("later", lambda: done.append(1))  # in its place, and at once
    assert worker.wait(60)
    assert done == [99, "later", 1]
    worker.close()
