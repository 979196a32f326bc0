"""A guard in the viewer: sliders command, and what was passed on and the braking are drawn."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import START, Page, path_of, until, world_of
from warp_collision import MeshWorld, joint_path_in_collision
from warp_collision.planning import MotionGuard
from warp_collision.viewer import Viewer, guard_panel

COMMAND = [1.5, 0.1, 0.0, 0.2, 0.0, -0.1, 0.3]  # towards the plate


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the guard's clock shows."""
    found = [0.0]
    monkeypatch.setattr(guard_panel, "time", SimpleNamespace(monotonic=lambda: found[0]))
    return found


@pytest.fixture
def guarded(panda):
    world = world_of()
    with Viewer(world, panda, port=0) as viewer:
        viewer.add_guard(MotionGuard(panda, world, dt=0.002, acceleration=8.0, slide=False))
        viewer.update(START, delay=0.0)
        assert viewer.wait(60)
        yield viewer


def frames(viewer: Viewer, clock: list[float], count: int, seconds: float = 0.05) -> list:
    """What the guard did in so many frames."""
    found = []
    until(lambda: viewer._guard._joints)  # it has begun
    for _ in range(count):
        clock[0] += seconds
        viewer.put("guard", viewer._guard._frame)
        viewer.put("seen", lambda: found.append(viewer._guard.step))
        end = len(found) + 1
        until(lambda end=end: len(found) == end)
    return found


def words(viewer: Viewer) -> str:
    return re.sub("<[^>]+>", " ", viewer._guard._words.content)


def test_a_command_into_an_obstacle_is_braked(guarded, panda, clock):
    guarded.steer(COMMAND)
    steps = frames(guarded, clock, 30)
    world = guarded._world._world
    assert {steps[3].share, steps[-1].share} == {1.0, 0.0}
    assert "100 % is passed on" in words(guarded) or "0 % is passed on" in words(guarded)
    # It stands before the plate, where nothing touches, and says why.
    assert steps[-1].time_to_rest == 0.0
    assert re.search(r"not proven free: panda_\w+ and plate, at least [\d.]+ mm", words(guarded))
    assert abs(guarded._robot.joints[0].item()) < 0.6
    torch.testing.assert_close(
        guarded._robot.joints, torch.tensor(steps[-1].joints, dtype=torch.float32)
    )
    assert panda.report(guarded._robot.joints[None, None], world).with_itself.sum() == 0
    # At any time the braking that is drawn is free.
    for step in steps:
        braking = step.braking()
        if braking is not None:
            assert not joint_path_in_collision(braking, panda, world).any()
    # Out of the way it goes on.
    before = guarded._robot.joints[0].item()
    guarded.put("gizmo", lambda: guarded.move("plate", (0.5, 3.0, 0.5, 1, 0, 0, 0)))
    frames(guarded, clock, 8)
    assert guarded._robot.joints[0].item() > before + 0.2
    assert "100 % is passed on" in words(guarded)


def test_the_braking_is_drawn_as_the_robot_would_go(guarded, panda, clock):
    """By steps of constant deceleration, until all joints rest."""
    guarded.steer(COMMAND)
    step = frames(guarded, clock, 4)[-1]
    q, v = np.array(step.joints), np.array(step.velocities)
    longest, count = step.time_to_rest, 4000
    assert longest == pytest.approx(np.abs(v / 8.0).max(), rel=1e-6)
    for index in range(count):  # middles of small steps
        q = q + longest / count * v * (1.0 - (index + 0.5) / count)
    np.testing.assert_allclose(step.braking().at([longest])[0, 0], q, atol=1e-9)
    hand = panda.spheres(torch.tensor(np.stack((step.joints, q)), dtype=torch.float32))
    ends = guarded._guard._braking.points
    np.testing.assert_allclose([ends[0, 0], ends[-1, 1]], hand[:, -1, :3], atol=1e-5)
    velocities, share = guarded._guard._plots.drawn
    first = velocities.values["panda_joint1"]
    assert (velocities.x[-1], first[-1]) == (pytest.approx(longest), 0.0)
    assert first[-2] == pytest.approx(step.velocities[0] / panda.velocity_limits[0].item())
    assert velocities.lines == (-1.0, 1.0)
    assert velocities.span == (-3.0, pytest.approx(panda.velocity_limits.max().item() / 8.0))
    assert np.all(np.diff(velocities.x) > 0.0)
    assert share.values["share"].tolist() == [1.0] * 4
    # Only the last seconds are kept.
    guarded.steer([0.0] * 7)
    frames(guarded, clock, 70)
    assert guarded._guard._plots.drawn[0].x[0] >= -3.0
    assert not guarded._guard._braking.visible


def test_a_breach_is_told(guarded, clock):
    guarded.steer(COMMAND)
    frames(guarded, clock, 6)
    hand = guarded._robot.scene.spheres(guarded._robot.joints[None])[0, -1, :3].tolist()
    guarded.put("gizmo", lambda: guarded.move("plate", (*hand, 1, 0, 0, 0)))
    steps = frames(guarded, clock, 2)
    assert steps[-1].breached
    assert "no braking is proven" in words(guarded)
    assert "and plate" in words(guarded)


def test_nothing_is_called_proven_once_it_ends(guarded, clock):
    """An obstacle may come into the way of the braking that was drawn."""
    guarded.steer(COMMAND)
    frames(guarded, clock, 4)
    assert guarded._guard._braking.visible
    guarded._guard.run(False)
    assert guarded.wait(60)
    assert not guarded._guard._braking.visible
    assert "passed on" not in words(guarded)


def test_an_error_ends_the_steps(guarded, clock, monkeypatch):
    guarded.steer(COMMAND)
    frames(guarded, clock, 1)
    with monkeypatch.context() as patched:
        patched.setattr(guarded._guard, "_draw", lambda least: 1 / 0)
        clock[0] += 0.05
        until(lambda: not guarded._guard.is_running)
    assert guarded.wait(60)
    assert "division by zero" in guarded._status.content
    assert guarded._guard._start.label == "start"
    guarded.steer(COMMAND)
    assert guarded._guard.is_running


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_commands_that_are_not_finite_are_refused(guarded, value):
    with pytest.raises(ValueError, match="command must be finite, got NaN or infinity"):
        guarded.steer([value, *COMMAND[1:]])
    assert not guarded._guard.is_running


def test_one_at_a_time_moves_the_robot(guarded):
    """The guard, or the path that is played."""
    guarded.add_path(path_of(), "path")
    guarded.play()
    guarded._guard.run(True)
    assert not guarded._paths.is_playing
    guarded.play()
    assert not guarded._guard.is_running
    guarded.play(False)


def test_positions_are_commands_too(panda, clock):
    world = MeshWorld(device="cpu")
    guard = MotionGuard(panda, world, dt=0.01, acceleration=8.0, command="position")
    with Viewer(world, panda, port=0) as viewer:
        viewer.add_guard(guard)
        viewer.update(START, delay=0.0)
        assert viewer.wait(60)
        goal = [0.3, 0.1, 0.1, -1.5, 0.1, 1.5, 0.7]
        viewer.steer(goal)
        frames(viewer, clock, 60)
        torch.testing.assert_close(viewer._robot.joints, torch.tensor(goal), atol=2e-3, rtol=0)
        viewer._guard._sliders[0].value = 1.0
        viewer.put("halt", viewer._guard.halt)
        until(lambda: abs(viewer._guard._sliders[0].value - 0.3) < 2e-3)
        viewer._guard.run(False)
        assert viewer.wait(60)


def test_guards_of_others_are_refused(guarded, panda):
    world = guarded._world._world
    options = {"dt": 0.01, "acceleration": 8.0}
    many = MotionGuard(panda, world, env_index=torch.zeros(3, dtype=torch.int32), **options)
    with pytest.raises(ValueError, match="guard must be one guard of one robot, got a second one"):
        guarded.add_guard(MotionGuard(panda, world, **options))
    with Viewer(world, panda, port=0) as viewer:
        for other in (
            MotionGuard(panda, MeshWorld(device="cpu"), **options),
            MotionGuard(panda, world, base_pose=(0.0, 0.3, 0, 1, 0, 0, 0), **options),
        ):
            with pytest.raises(ValueError, match="at its base pose, got one of others"):
                viewer.add_guard(other)
    with Viewer(world, panda, port=0) as viewer:
        with pytest.raises(ValueError, match="one of 3 robots"):
            viewer.add_guard(many)
        with pytest.raises(ValueError, match="a guard must be added"):
            viewer.steer(COMMAND)


@pytest.mark.slow
def test_a_person_steers(chromium, guarded):
    """In the page: start, a slider at its end, and stop."""
    seen = Page(chromium, guarded)
    page = seen.tab("guard")
    seen.press("start")
    page.locator("[role=slider]:visible").first.press("End")
    until(lambda: guarded._guard.step is not None and guarded._guard.step.share == 0.0)
    seen.see(re.compile("not proven free: panda_.* and plate"))
    seen.press("stop")
    until(lambda: not guarded._guard.is_running)
    assert seen.errors == []
    page.close()
