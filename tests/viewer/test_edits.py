"""What a person changes in the viewer: looks, moves that are undone and saved, plans, the hand."""

import time
import zipfile
from io import BytesIO

import numpy as np
import pytest
import torch
import trimesh
from trimesh.transformations import quaternion_from_matrix

from warp_collision import Cuboid, MeshWorld
from warp_collision.robot.checks.robot_scene import RobotScene

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import START, hear_gizmo, path_of, status, until, world_of
from warp_collision.viewer import Viewer
from warp_collision.viewer.hand import reach
from warp_collision.viewer.moves import Moves, as_download

HAND = "panda_hand"


def pose_of(viewer: Viewer, name: str) -> list[float]:
    return viewer._world._world.pose(name).tolist()


def drag(viewer: Viewer, name: str, *places: tuple[float, float, float]) -> None:
    """As a gizmo does: a drag is many moves."""
    viewer._world.moves.begin()
    for place in places:
        viewer.put("gizmo", lambda place=place: viewer.move(name, (*place, 1.0, 0.0, 0.0, 0.0)))
        assert viewer.wait(60)


def test_moves_are_undone_one_drag_at_a_time(viewer):
    viewer.add_path(path_of())
    assert viewer.wait(60)
    before = pose_of(viewer, "plate")
    drag(viewer, "plate", (0.5, 1.0, 0.5), (0.5, 2.0, 0.5), (0.5, 3.0, 0.5))
    drag(viewer, "plate", (0.5, 4.0, 0.5))
    assert viewer._paths.facts.is_free
    viewer.put("undo", viewer.undo)
    assert viewer.wait(60)
    assert pose_of(viewer, "plate")[1] == 3.0
    viewer.put("undo", viewer.undo)
    assert viewer.wait(60)
    assert pose_of(viewer, "plate") == before
    # What was proven of the path where the plate was away is not said any more.
    assert not viewer._paths.facts.is_free
    assert viewer._paths._choice.value == "path: not free"
    np.testing.assert_allclose(viewer._world.drawn["plate"].handles[0].position, before[:3])
    viewer.put("undo", viewer.undo)  # of nothing
    assert viewer.wait(60)
    assert pose_of(viewer, "plate") == before


def test_a_press_of_the_gizmo_without_a_move_changes_nothing(viewer):
    viewer.add_path(path_of())
    viewer.select("plate")
    assert viewer.wait(60)
    world, facts, version = viewer._world._world, viewer._paths.facts, viewer._state()
    for _ in range(2):
        hear_gizmo(viewer, "start")
        hear_gizmo(viewer, "end")
        time.sleep(0.2)  # of an event that is handled in another thread
        assert viewer.wait(60)
    assert len(viewer._world.moves) == 0
    assert viewer._paths.facts is facts
    assert viewer._state()[0] == version[0]
    before = pose_of(viewer, "plate")
    hear_gizmo(viewer, "start")
    for y in (0.5, 1.0):
        hear_gizmo(viewer, "update", (0.5, y, 0.5, 1.0, 0.0, 0.0, 0.0))
        until(lambda y=y: world.pose("plate")[1] == y)
    hear_gizmo(viewer, "end")
    assert viewer.wait(60)
    assert len(viewer._world.moves) == 1
    viewer.put("undo", viewer.undo)
    assert viewer.wait(60)
    assert pose_of(viewer, "plate") == before


def test_reset_puts_everything_back(viewer):
    names = viewer._world._world.names()
    before = [pose_of(viewer, name) for name in names]
    for shift in range(3):
        for name in names:
            drag(viewer, name, (1.0, 0.1 * shift, 2.0))
    viewer.put("reset", viewer.reset)
    assert viewer.wait(60)
    assert [pose_of(viewer, name) for name in names] == before
    assert len(viewer._world.moves) == 0


def test_moves_are_of_their_env():
    moves = Moves()
    for env, name, x in ((0, "a", 1.0), (1, "a", 2.0), (0, "b", 3.0), (0, "a", 4.0)):
        moves.begin()
        moves.add(env, name, (x,))
    assert moves.undo(0).pose == (4.0,)
    assert moves.reset(0) == {"a": (1.0,), "b": (3.0,)}
    assert moves.undo(0) is None
    assert moves.undo(1).pose == (2.0,)


def test_a_moved_world_is_saved(viewer, tmp_path):
    drag(viewer, "plate", (0.5, 0.25, 0.75))
    name, content = as_download(viewer._world.obstacles())
    assert name == "world.yaml"
    (tmp_path / name).write_bytes(content)
    found = MeshWorld.from_file(tmp_path / name, device="cpu")
    assert found.pose("plate").tolist() == pose_of(viewer, "plate")
    assert found.names() == viewer._world._world.names()
    # Meshes are in files of their own, beside it.
    world = MeshWorld(device="cpu")
    world.add("ball", trimesh.creation.icosphere(2, 0.1), (0.1, 0.2, 0.3, 1, 0, 0, 0))
    name, content = as_download(world.obstacles())
    assert name == "world.zip"
    with zipfile.ZipFile(BytesIO(content)) as archive:
        archive.extractall(tmp_path / "zip")
    found = MeshWorld.from_file(tmp_path / "zip" / "world.yaml", device="cpu")
    np.testing.assert_allclose(found.pose("ball"), world.pose("ball"))


def test_a_path_is_planned_again_after_a_drag(panda):
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid((0.3, 0.02, 0.3)), (0.5, 3.0, 0.3, 1, 0, 0, 0))
    with Viewer(world, panda, port=0) as viewer:
        viewer.add_path(path_of(), "sweep")
        assert viewer.wait(60)
        assert viewer._paths.facts.is_free
        drag(viewer, "plate", (0.5, 0.0, 0.5))
        assert not viewer._paths.facts.is_free
        viewer.put("plan", viewer._paths.plan_again)
        assert viewer.wait(60)
        facts = viewer._paths.facts
        assert facts.is_free
        ends = path_of()[[0, -1]]
        torch.testing.assert_close(facts.joints[[0, -1]], ends)
        assert viewer._paths._choice.options == (
            "sweep: not free", "sweep (planned again): proven free",
        )  # fmt: skip
        # Into its start: nothing is found, and it is said.
        hand = viewer._robot.scene.spheres(ends[:1])[0, -1, :3].tolist()
        drag(viewer, "plate", tuple(hand))
        viewer.put("plan", viewer._paths.plan_again)
        assert "no free path was found" in status(viewer)
        assert not viewer._paths.facts.is_free


def test_links_spheres_and_visual_meshes_are_switched(viewer, panda):
    assert viewer.wait(60)
    robot = viewer._robot

    def shown() -> set[str]:
        assert viewer.wait(60)
        kinds = {kind for kind, handles in robot._bodies.items()
                 if all(handle.visible for handle in handles.values())}  # fmt: skip
        return kinds | ({"spheres"} if robot._spheres.visible else set())

    assert shown() == {"links", "spheres"}
    link = robot._bodies["links"]["panda_link5"]
    assert link.opacity < 1.0  # spheres are seen in it
    robot.switches["spheres"].value = False
    assert shown() == {"links"}
    assert link.opacity == 1.0
    robot.switches["visual"].value = True
    robot.switches["links"].value = False
    assert shown() == {"visual"}
    viewer.update(START, delay=0.0)
    assert viewer.wait(60)
    transforms = robot.scene.transforms(torch.tensor([START]))[0]
    handle, matrix = robot._bodies["visual"][HAND], transforms[panda.link_names.index(HAND)]
    np.testing.assert_allclose(handle.position, matrix[:3, 3], atol=1e-6)
    np.testing.assert_allclose(handle.wxyz, quaternion_from_matrix(matrix), atol=1e-6)


def test_visual_meshes_at_first(panda):
    with Viewer(robot=panda, port=0, visual=True) as viewer:
        assert viewer.wait(60)
        assert {k for k, box in viewer._robot.switches.items() if box.value} == {"visual"}
        assert len(viewer._robot._bodies["visual"]) == len({m.link for m in panda.link_meshes})


def test_the_grid_and_the_axes_are_switched(viewer):
    assert viewer.server.scene.world_axes.visible


@pytest.mark.parametrize("seed", range(6))
def test_the_hand_goes_where_the_handle_is(panda, seed):
    """To a pose that it can reach, in position and direction, from another configuration."""
    scene = RobotScene(panda, MeshWorld(device="cpu"), (0.3, -0.2, 0.1, 0.9, 0.1, -0.3, 0.3))
    rng = torch.Generator().manual_seed(seed)
    low, high = panda.joint_limits.T
    goal = low + (high - low) * (0.2 + 0.6 * torch.rand(7, generator=rng))
    begin = (goal + 0.4 * torch.randn(7, generator=rng)).clamp(low, high)
    index = panda.link_names.index(HAND)
    target = scene.transforms(goal[None])[0, index]
    found = reach(scene, HAND, begin, target)
    np.testing.assert_allclose(scene.transforms(found[None])[0, index], target, atol=2e-3)
    assert (found >= low).all()
    assert (found <= high).all()


def test_a_handle_that_is_too_far_away_is_approached(panda):
    """Near the limits and beyond what the arm reaches; nothing leaves the limits or is NaN."""
    scene = RobotScene(panda, MeshWorld(device="cpu"))
    index = panda.link_names.index(HAND)
    begin = torch.tensor(START)
    target = scene.transforms(begin[None])[0, index].copy()
    target[:3, 3] = (3.0, 0.0, 0.5)
    joints = begin
    for _ in range(5):  # as a drag goes on
        joints = reach(scene, HAND, joints, target)
    tip = scene.transforms(joints[None])[0, index, :3, 3]
    assert tip[0] > 0.6
    low, high = panda.joint_limits.T
    assert ((joints >= low) & (joints <= high)).all()


def test_the_handle_moves_the_robot_and_follows_it(panda):
    with Viewer(world_of(), panda, port=0) as viewer:
        viewer.update(START, delay=0.0)
        assert viewer.wait(60)
        robot, hand = viewer._robot, viewer._robot.hand
        viewer.put("hand", lambda: hand.show(robot.joints, True))
        assert viewer.wait(60)
        index = panda.link_names.index(hand._link)

        def tip() -> np.ndarray:
            return robot.scene.transforms(robot.joints[None])[0, index, :3, 3]

        np.testing.assert_allclose(hand._handle.position, tip(), atol=1e-6)
        wanted = tip() + np.array([0.05, 0.1, -0.05])
        hand._handle.position = wanted
        viewer.put("hand", hand.dragged)
        assert viewer.wait(60)
        np.testing.assert_allclose(tip(), wanted, atol=2e-3)
        np.testing.assert_allclose(hand._handle.position, wanted)
        viewer.update(START, delay=0.0)
        assert viewer.wait(60)
        np.testing.assert_allclose(hand._handle.position, tip(), atol=1e-6)
        viewer.put("hand", lambda: hand.show(robot.joints, False))
        assert viewer.wait(60)
        assert hand._handle is None


def told(viewer: Viewer) -> list[tuple[str, ...]]:
    """All that the list of paths has said, from now on."""
    shown, seen = viewer._paths, []
    spoken = shown._tell_labels

    def noted() -> None:
        spoken()
        seen.append(shown._choice.options)

    shown._tell_labels = noted
    return seen


def test_what_a_script_changes_is_drawn_and_proven_again(viewer):
    """Moves, switches, and new obstacles: nothing that was proven before is said any more."""
    world = viewer._world._world
    viewer.add_path(path_of())
    assert viewer.wait(60)
    seen = told(viewer)
    world.set_pose("plate", (0.5, 3.0, 0.5, 1, 0, 0, 0))
    until(lambda: seen and seen[-1] == ("path: proven free",))
    assert seen[0] == ("path: not proven yet",)
    np.testing.assert_allclose(viewer._world.drawn["plate"].handles[0].position, (0.5, 3, 0.5))
    world.set_pose("plate", (0.5, 0.0, 0.5, 1, 0, 0, 0))
    until(lambda: seen[-1] == ("path: not free",))
    world.enable("plate", False)
    until(lambda: seen[-1] == ("path: proven free",))
    assert not viewer._world.drawn["plate"].enabled
    world.add("pole", Cuboid((0.02, 0.02, 2.0)), (0.5, 0.0, 0.5, 1, 0, 0, 0))
    until(lambda: seen[-1] == ("path: not free",))
    assert "pole" in viewer._world.drawn
    world.remove("pole")
    until(lambda: seen[-1] == ("path: proven free",))
    assert "pole" not in viewer._world.drawn


def test_waiting_sees_what_a_script_has_changed(viewer):
    """At once: the viewer looks for changes itself only now and then."""
    world, robot = viewer._world._world, viewer._robot.scene.robot
    viewer.add_path(path_of())
    for y, words in ((3.0, "proven free"), (0.0, "not free")) * 3:
        world.set_pose("plate", (0.5, y, 0.5, 1, 0, 0, 0))
        assert viewer.wait(60)
        assert viewer._paths._choice.value == f"path: {words}"
        assert viewer._paths.facts.is_free == (words == "proven free")
    world.enable("plate", False)
    world.add("post", Cuboid((0.02, 0.02, 0.02)), (0.8, 0.9, 1.5, 1, 0, 0, 0))
    for spheres in ([[0.0, 0.0, 0.0, 0.01]], [[0.0, 0.0, 0.2, 2.0]]):
        robot.attach("held", HAND, spheres)
        try:
            assert viewer.wait(60)
            assert viewer._paths.facts.is_free == (spheres[0][3] < 1.0)
            assert "held is attached" in viewer._robot._note.content
        finally:
            robot.detach("held")
    assert viewer.wait(60)
    assert viewer._paths._choice.value == "path: proven free"


def test_what_the_viewer_changes_takes_back_proofs_first(viewer):
    """Before anything of the change is sent: the page never shows both."""
    viewer.add_path(path_of())
    assert viewer.wait(60)
    said, drawn = [], viewer._world.drawn["plate"]
    for name in ("move", "paint"):
        told_to = getattr(drawn, name)

        def noted(*arguments, told_to=told_to) -> None:
            said.append((viewer._paths._choice.value, viewer._paths._verdict.content))
            told_to(*arguments)

        setattr(drawn, name, noted)
    steps = {
        "move": lambda: viewer.move("plate", (0.5, 3.0, 0.5, 1, 0, 0, 0)),
        "undo": viewer.undo,
        "off": lambda: viewer.switch(["plate"], False),
        "on": lambda: viewer.switch(["plate"], True),
        "again": lambda: viewer.move("plate", (0.5, 3.0, 0.5, 1, 0, 0, 0)),
        "reset": viewer.reset,
    }
    for name, step in steps.items():
        said.clear()
        viewer.put(name, step)
        assert viewer.wait(60)
        assert said[0][0] == "path: not proven yet", name
        assert "not proven yet" in said[0][1], name


def test_a_change_while_a_path_is_proven_is_not_lost(viewer):
    """What is proven of the world before is not said of the one after."""
    world, paths = viewer._world._world, viewer._paths
    viewer.add_path(path_of())
    viewer.enable("plate", False)
    assert viewer.wait(60)
    assert paths.facts.is_free
    refresh, said = paths.refresh, []

    def refresh_late() -> None:
        paths.refresh = refresh
        refresh()
        world.enable("plate", True)

    def certify() -> None:
        viewer._certify(paths)
        said.append(paths._choice.value)

    paths.refresh = refresh_late
    viewer.put("certify", certify)
    assert viewer.wait(60)
    assert said == ["path: not proven yet"]
    assert paths._choice.value == "path: not free"


def test_what_a_robot_carries_is_proven_with_it(viewer):
    """Also where as many spheres are attached as were before."""
    robot = viewer._robot.scene.robot
    viewer.enable("plate", False)
    viewer.add_path(path_of())
    assert viewer.wait(60)
    assert viewer._paths.facts.is_free
    seen = told(viewer)
    try:
        robot.attach("long", HAND, [[0.0, 0.0, 0.5, 0.02], [0.0, 0.0, 0.9, 0.02]])
        viewer._world._world.enable("plate", True)
        until(lambda: seen and seen[-1] == ("path: not free",))
        assert seen[0] == ("path: not proven yet",)
        assert "long is attached" in viewer._robot._note.content
        robot.detach("long")
        robot.attach("other", HAND, [[0.0, 0.0, 0.1, 0.01], [0.0, 0.0, 0.12, 0.01]])
        seen.clear()
        until(lambda: seen and seen[-1] == ("path: not free",))
        assert "other is attached" in viewer._robot._note.content
    finally:
        for name in robot.attached:
            robot.detach(name)


def test_links_spheres_pieces_and_visual_meshes_are_switched(viewer):
    panel = viewer._robot
    panel.switches["pieces"].value = True
    assert viewer.wait(60)
    handles = panel._bodies["pieces"]
    assert all(handle.visible for handle in handles.values())
    transforms = panel.scene.transforms(panel.joints[None])[0]
    for link, handle in handles.items():
        pieces = panel.scene.robot.layout.bodies[link].pieces
        index = panel.scene.robot.link_names.index(link)
        np.testing.assert_allclose(handle.position, transforms[index][:3, 3], atol=1e-6)
        # Pieces are drawn as wide as they are: every ball of one is inside of the box around all.
        low = np.min([(piece.points - piece.radius).min(0) for piece in pieces], axis=0)
        high = np.max([(piece.points + piece.radius).max(0) for piece in pieces], axis=0)
        np.testing.assert_allclose(handle.vertices.min(0), low, atol=2e-3)
        np.testing.assert_allclose(handle.vertices.max(0), high, atol=2e-3)
    panel.switches["pieces"].value = False
    assert viewer.wait(60)
    assert not any(handle.visible for handle in handles.values())
