"""An obstacle is moved through paths; what the viewer says of each is what a judge says.

The judge has kinematics, distances and contacts of its own, see `path_judge.py`.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason="the extra `view` is not installed")
pytest.importorskip("pinocchio", reason="the judge's kinematics are not installed")
pytest.importorskip("coal", reason="the judge's contacts are not installed")
from path_judge import Judge, Judgement, Scene
from viewer_pages import GOAL, START, Page, hear_gizmo, until
from warp_collision import Cuboid, MeshWorld
from warp_collision.viewer import Viewer

URDF = Path(__file__).resolve().parents[2] / "assets" / "panda" / "panda.urdf"
SIZE, PLACE = (0.12, 0.1, 0.3), (0.45, 0.0, 0.75)
DRAGS = (0.45, 0.3, 0.75), (0.5, -0.1, 0.6), (0.6, -0.4, 0.9)  # where the post is dragged to [m]
SURE = 2e-3  # m: nearer to contact, a path that is free need not be proven so
_VERDICT_BLOCKED = re.compile(
    r"(\d+) of (\d+) motions not proven free: (\S+) ([\d.]+) mm into (\S+)"
)
_VERDICT_FREE = re.compile(
    r"proven free: what moves keeps (at least )?([\d.]+) mm \((\S+) and (\S+)\)"
)


def paths(count: int, seed: int) -> dict[str, torch.Tensor]:
    """Sweeps past the obstacle, at several heights."""
    rng = np.random.default_rng(seed)
    found = {}
    for index in range(count):
        ends = np.array([START, GOAL]) + rng.normal(0.0, [0.15, 0.25, 0.1, 0.3, 0.1, 0.2, 0.1])
        shares = np.linspace(0.0, 1.0, 6)[:, None]
        path = ends[0] + shares * (ends[1] - ends[0])
        found[f"sweep {index}"] = torch.tensor(path, dtype=torch.float32)
    return found


class Trial:
    """A viewer with paths and one obstacle, and the judge of what it says."""

    def __init__(self, viewer: Viewer, count: int, seed: int):
        self.viewer, self.paths = viewer, paths(count, seed)
        viewer.add_paths(self.paths)
        assert viewer.wait(120)
        robot = viewer._robot.scene.robot
        self.judge = Judge(URDF, None, robot.joint_names)
        self.verdicts = {True: 0, False: 0}

    def judged(self, name: str) -> tuple[Judgement, list[Judgement]]:
        """What the judge says of a path, and of each of its motions."""
        pose = self.viewer._world._world.pose("post").tolist()
        scene = Scene.from_mapping({"cuboid": {"post": {"dims": [*SIZE], "pose": pose}}})
        path = self.paths[name].double().numpy()
        parts = [self.judge.judge(path[i : i + 2], scene) for i in range(len(path) - 1)]
        return min(parts, key=lambda part: part.clearance), parts

    def require(self, name: str, label: str, verdict: str) -> None:
        """Compares the words of a path in the list, and its verdict, with the judge's."""
        whole, parts = self.judged(name)
        assert "not proven yet" not in label, label
        is_free = label.endswith(": proven free")
        assert is_free or label.endswith(": not free"), label
        assert whole.free or not is_free, (name, label, whole)
        assert is_free or whole.clearance < SURE, (name, label, whole)
        self.verdicts[is_free] += 1
        if is_free:
            found = _VERDICT_FREE.search(verdict)
            assert found, verdict
            told = float(found[2]) / 1000.0
            assert whole.clearance - SURE < told < whole.clearance + 1e-4, (verdict, whole)
            return
        found = _VERDICT_BLOCKED.search(verdict)
        assert found, verdict
        sure = sum(part.clearance < 0.0 for part in parts)
        possible = sum(part.clearance < SURE for part in parts)
        assert sure <= int(found[1]) <= possible, (verdict, parts)
        assert int(found[2]) == len(parts)
        if whole.clearance < -SURE:
            told = float(found[4]) / 1000.0
            assert abs(told + whole.clearance) < SURE, (verdict, whole)
            if found[5] == "post":
                assert whole.world < 0.0


def world_of_a_post() -> MeshWorld:
    world = MeshWorld(device="cpu")
    world.add("post", Cuboid(SIZE), (*PLACE, 1, 0, 0, 0))
    return world


class Words:
    """What a person reads on a page, who drags the post and opens paths one by one."""

    def __init__(self, chromium, viewer: Viewer):
        self.viewer, self.seen = viewer, Page(chromium, viewer, (900, 640))
        # A notice of WebGL by software stands over the scene.
        self.seen.page.add_style_tag(content="[class*=mantine-Notification] { display: none }")

    def drag(self, end: tuple[float, ...]) -> None:
        """Moves the post by what a page says of its gizmo: steps so quick that proofs lag behind.

        Another test moves one by the mouse.
        """
        world = self.viewer._world._world
        begin = world.pose("post")[:3].numpy()
        hear_gizmo(self.viewer, "start")
        for share in np.linspace(0.0, 1.0, 12):
            place = begin + share * (np.array(end) - begin)
            hear_gizmo(self.viewer, "update", (*place.tolist(), 1.0, 0.0, 0.0, 0.0))
        hear_gizmo(self.viewer, "end")
        assert self.viewer.wait(120)
        np.testing.assert_allclose(world.pose("post")[:3], end, atol=1e-6)

    def of(self, name: str) -> tuple[str, str]:
        """Opens a path; returns its line in the list, and the verdict below the list."""
        page, paths = self.seen.page, self.viewer._paths
        line = page.locator("input[value^=sweep]:visible").first
        line.click()
        page.get_by_role("option", name=paths._label(name), exact=True).click()
        until(lambda: paths._open == name)
        assert self.viewer.wait(120)
        verdict = re.compile("proven free: what moves|motions not proven free:")
        shown = page.get_by_text(verdict).locator("visible=true").first
        # The words of the path before may be there until the page has heard of this one.
        until(lambda: shown.inner_text() == re.sub("<[^>]+>", "", paths._verdict.content))
        until(lambda: line.input_value() == paths._label(name))
        return line.input_value(), shown.inner_text()


def test_each_word_is_that_of_the_judge(panda):
    with Viewer(world_of_a_post(), panda, port=0) as viewer:
        trial = Trial(viewer, 3, seed=1)
        viewer._world.moves.begin()
        for x in (0.45, 0.62, 1.5):
            pose = (x, *PLACE[1:], 1.0, 0.0, 0.0, 0.0)
            viewer.put("gizmo", lambda pose=pose: viewer.move("post", pose))
            assert viewer.wait(120)
            for name, label in zip(trial.paths, viewer._paths._choice.options, strict=True):
                viewer.put("open", lambda name=name: viewer._paths.open(name))
                assert viewer.wait(120)
                trial.require(name, label, re.sub("<[^>]+>", "", viewer._paths._verdict.content))
        assert min(trial.verdicts.values()) > 0, trial.verdicts


@pytest.mark.slow
def test_each_word_of_the_page_is_that_of_the_judge(chromium, panda):
    with Viewer(world_of_a_post(), panda, port=0) as viewer:
        trial = Trial(viewer, 10, seed=3)
        words = Words(chromium, viewer)
        viewer.select("post")
        assert viewer.wait(60)
        words.seen.tab("path")
        for end in DRAGS:
            words.drag(end)
            for name in trial.paths:
                trial.require(name, *words.of(name))
        assert min(trial.verdicts.values()) >= 5, trial.verdicts
        assert words.seen.errors == []
        words.seen.page.close()
