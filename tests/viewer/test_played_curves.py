"""Trajectories in the viewer: pieces are proven as they are, and played in real time."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline, PPoly

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import GOAL, START, path_of, world_of
from warp_collision import MeshWorld, joint_path_in_collision
from warp_collision.planning import load_motion_limits, optimize_paths, timed
from warp_collision.robot import JointCurve
from warp_collision.viewer import Viewer, path_panel

LIMITS = {"velocity": 1.5, "acceleration": [6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0], "jerk": 200.0}


def spline() -> CubicSpline:
    """A sweep past the plate and back, with a bow in each joint."""
    rng = np.random.default_rng(5)
    rows = np.array([START, START, GOAL, START]) + rng.normal(0.0, 0.1, (4, 7))
    return CubicSpline([0.0, 0.3, 1.1, 1.7], rows, bc_type="clamped")


def words(html: str) -> str:
    return re.sub("<[^>]+>", "", html)


@pytest.fixture
def shown(panda):
    with Viewer(world_of(), panda, port=0, limits=LIMITS) as viewer:
        viewer.add_path(JointCurve.from_spline(spline()), "swing")
        assert viewer.wait(60)
        yield viewer


def test_pieces_of_a_curve_are_proven_and_coloured(shown, panda):
    curve, paths = JointCurve.from_spline(spline()), shown._paths
    blocked = joint_path_in_collision(curve, panda, shown._world._world)[0].numpy()
    assert blocked.any()
    assert not blocked.all()
    assert (paths.facts.blocked == blocked).all()
    assert paths._choice.value == "swing: not free"
    trace = paths._traces["swing"]
    samples = len(trace.points) // len(blocked)
    # The hand is on the curve, not on the straight line between its knots.
    ends = [0.0, 0.3, 1.1, 1.7]
    parts = [np.linspace(*ends[i : i + 2], samples, endpoint=False) for i in range(3)]
    times = np.concatenate(parts)
    joints = torch.tensor(spline()(times), dtype=torch.float32)
    hand = panda.spheres(joints)[:, -1, :3].numpy()
    np.testing.assert_allclose(trace.points[:, 0], hand, atol=1e-5)
    colors = trace.colors[:, 0].reshape(len(blocked), samples, 3)
    assert (colors == colors[:, :1]).all()
    assert len(np.unique(colors[:, 0], axis=0)) == 2
    assert shown._paths._slider.label == "time [s]"
    assert shown._paths._slider.max == pytest.approx(1.7)


def test_derivatives_are_shares_of_the_limits(shown):
    """Against SciPy's own derivatives; limits are lines."""
    drawn = {curves.title: curves for curves in shown._paths.plots.drawn}
    reference = PPoly(spline().c, spline().x)
    for order, (kind, limit) in enumerate(LIMITS.items(), 1):
        curves = drawn[f"{kind} [share of the limit]"]
        assert curves.lines == (-1.0, 1.0)
        assert np.all(np.diff(curves.x) >= 0.0)
        expected = reference.derivative(order)(curves.x) / limit
        # Jerks have steps, where SciPy has the value after them.
        inner = ~np.isin(curves.x, spline().x)
        values = np.stack([*curves.values.values()], axis=-1)
        np.testing.assert_allclose(values[inner], expected[inner], atol=1e-9)
        assert curves.range[0] < -1.0 < 1.0 < curves.range[1]
    assert [*drawn][:2] == ["clearance [mm], certified", "cost [mm]"]
    np.testing.assert_allclose(drawn["clearance [mm], certified"].x, [0, 0.3, 0.3, 1.1, 1.1, 1.7])


def test_shares_of_limits_are_told(shown, panda):
    """As bounds, which are at least what samples find, and hardly more."""
    told = words(shown._paths._timing.content)
    fine = np.linspace(0.0, 1.7, 20_001)
    shares = dict(re.findall(r"(\w+) ([\d.]+) %", told))
    for order, (kind, limit) in enumerate(LIMITS.items(), 1):
        sampled = 100.0 * np.abs(spline()(fine, order) / limit).max()
        assert sampled - 0.051 < float(shares[kind]) < 1.001 * sampled + 0.051
    assert told.startswith("1.700 s")
    # Above a limit the line has the colour of contacts.
    assert "213,94,0" in shown._paths._timing.content
    start = torch.tensor([START])
    moved = torch.cat((start, start + 0.2))[None]
    found = timed(moved, panda, MeshWorld(), **LIMITS)
    shown.add_path(found.curve, "within")
    assert shown.wait(60)
    assert "213,94,0" not in shown._paths._timing.content
    told = dict(re.findall(r"(\w+) ([\d.]+) %", words(shown._paths._timing.content)))
    for kind in LIMITS:  # the planner's own bounds are of whole pieces
        assert 50.0 < float(told[kind]) < 100.0 * getattr(found, f"{kind}_share").item() + 0.051


def test_a_curve_is_played_in_real_time(shown, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(path_panel, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown._paths._speed.value = 0.5
    for now, at in ((0.0, 0.0), (0.8, 0.4), (1.7, 0.85), (2.8, 1.4), (3.9, 1.95 - 1.7)):
        shown._paths.play(True) if now == 0.0 else None
        clock[0] = now
        shown.put("play", shown._paths._step)  # not after its pause
        shown.put("done", lambda: None)
        while shown._worker._is_busy or "done" in shown._worker._jobs:
            pass
        place = shown._paths.place
        assert shown._paths.facts.on_axis(place) == pytest.approx(at, abs=1e-6)
        expected = torch.tensor(spline()(at), dtype=torch.float32)
        torch.testing.assert_close(shown._robot.joints, expected, atol=1e-4, rtol=0)
    shown.play(False)


@pytest.mark.slow
def test_paths_and_curves_stand_side_by_side(shown):
    """Plots follow what is open: derivatives are of curves alone."""
    paths = shown._paths
    shown.add_paths({"straight": path_of(), "turn": JointCurve.from_waypoints([START, GOAL])})
    assert shown.wait(60)
    assert paths._choice.options[1:] == ("straight: not free", "turn: not free")
    assert [plot.visible for plot in paths.plots._plots] == [True] * 2 + [False] * 3
    assert (paths._slider.label, paths._slider.max) == ("waypoint", 8)
    assert not paths._timing.visible
    assert paths.plots._plots[0].series[0]["label"] == "waypoint"
    shown.put("open", lambda: paths.open("swing"))
    assert shown.wait(60)
    assert all(plot.visible for plot in paths.plots._plots)
    assert paths.plots._plots[0].series[0]["label"] == "time [s]"
    # Contacts are told by their times, and are a click away.
    contact = paths.facts.worst()[0]
    at = paths.facts.on_axis(contact.place)
    assert f"at {at:.3f} s" in paths._contacts[0].label
    shown.show_contact(0)
    assert shown.wait(60)
    expected = torch.tensor(spline()(at), dtype=torch.float32)
    torch.testing.assert_close(shown._robot.joints, expected, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_what_is_shown_is_what_was_given(shown):
    """A script may go on with its tensors and arrays: what was proven is what is drawn."""
    curve, path, array = JointCurve.from_spline(spline()), path_of(), path_of().numpy().copy()
    given = {"curve": curve, "tensor": path, "array": array}
    shown.add_paths(given)
    for values in (curve.coefficients, curve.times, path, array):
        values += 1.0
    assert shown.wait(60)
    panels = shown._paths
    assert torch.equal(panels._paths["tensor"], path_of())
    assert torch.equal(panels._paths["array"], path_of())
    kept, like = panels._paths["curve"], JointCurve.from_spline(spline())
    assert torch.equal(kept.coefficients, like.coefficients)
    assert torch.equal(kept.times, like.times)


def test_certificates_of_curves_follow_an_obstacle(shown):
    shown.put("gizmo", lambda: shown.move("plate", (0.5, 3.0, 0.5, 1.0, 0.0, 0.0, 0.0)))
    assert shown.wait(60)
    assert shown._paths._choice.value == "swing: proven free"
    assert shown._paths.facts.is_free


def test_planned_again_a_curve_has_times_within_the_limits(shown):
    shown.enable("plate", False)
    shown.put("plan", shown._paths.plan_again)
    assert shown.wait(120)
    assert shown._paths._choice.value == "swing (planned again): proven free"
    curve = shown._paths.facts.curve
    assert max(float(share[0]) for share in shown._paths.limits.shares(curve)) <= 1.0 + 1e-9
    np.testing.assert_allclose(curve.at([0.0])[0, 0], spline()(0.0), atol=1e-6)
    np.testing.assert_allclose(curve.at([99.0])[0, 0], spline()(1.7), atol=1e-6)


def test_limits_are_those_of_the_urdf_or_unknown(panda, tmp_path):
    curve = JointCurve.from_spline(spline())
    with Viewer(robot=panda, port=0) as viewer:
        viewer.add_path(curve)
        assert viewer.wait(60)
        drawn = {curves.title: curves for curves in viewer._paths.plots.drawn}
        assert [*drawn][2:] == [
            "velocity [share of the limit]", "acceleration [rad/s²]", "jerk [rad/s³]",
        ]  # fmt: skip
        first = drawn["acceleration [rad/s²]"].values["panda_joint1"]
        expected = spline()(drawn["acceleration [rad/s²]"].x, 2)[:, 0]
        np.testing.assert_allclose(first, expected, atol=1e-9)
    file = tmp_path / "joint_limits.yaml"
    entries = "\n".join(
        f"  {name}: {{has_acceleration_limits: true, max_acceleration: 7.5}}"
        for name in panda.joint_names
    )
    file.write_text(f"joint_limits:\n{entries}\n")
    with Viewer(robot=panda, port=0, limits=load_motion_limits(file, panda)) as viewer:
        assert viewer._paths.limits.acceleration.tolist() == [7.5] * 7
        assert np.isinf(viewer._paths.limits.jerk).all()


def test_what_is_planned_in_time_is_shown_as_curves(panda):
    world = MeshWorld(device="cpu")
    start = torch.tensor([START])
    goals = torch.cat((start + 0.1, start + 0.2))
    found = optimize_paths(
        start.expand(2, -1), goals, panda, world, horizon=4, until="first", limits=LIMITS
    )
    with Viewer(world, panda, port=0) as viewer:
        viewer.show(found)
        assert viewer.wait(60)
        assert [*viewer._paths._paths] == ["path 0", "path 1"]
        curve = viewer._paths.facts.curve
        assert torch.equal(curve.coefficients, found.motion.curve[0].coefficients)
        viewer.show(found.motion.of(torch.tensor([1])))
        assert viewer.wait(60)
        assert torch.equal(viewer._paths.facts.curve.times, found.motion.curve[1].times)


@pytest.mark.slow
def test_of_very_many_pieces_the_largest_are_drawn(panda):
    times = np.linspace(0.0, 4.0, 2_001)
    rows = START + 0.1 * np.sin(times)[:, None]
    rows[999] += 1e-3  # of one sample
    curve = JointCurve.from_samples(times, rows)
    with Viewer(robot=panda, port=0, limits=LIMITS) as viewer:
        viewer.add_path(curve)
        assert viewer.wait(120)
        jerk = viewer._paths.plots.drawn[-1]
        assert len(jerk.x) < 1000
        largest = (curve.derivative().derivative().derivative().largest()[0] / 200.0).amax(0)
        for values, most in zip(jerk.values.values(), largest.tolist(), strict=True):
            assert np.abs(values).max() == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        (
            JointCurve.from_waypoints(np.zeros((2, 6))),
            "curve of the robot's 7 joints, got one of 6",
        ),
        (
            JointCurve(torch.tensor([[0.0, 1.0, 2.0]]), torch.arange(28.0).view(1, 2, 2, 7) ** 2),
            "curves must not jump",
        ),
        (
            JointCurve(torch.tensor([[0.0, 1.0]]), torch.full((1, 1, 2, 7), torch.nan)),
            "joints must be finite, got a curve with NaN",
        ),
    ],
)
def test_curves_of_others_are_refused(viewer, curve, words):
    with pytest.raises(ValueError, match=words):
        viewer.add_path(curve)
    with pytest.raises(ValueError, match="limits must be given with a robot"):
        Viewer(port=0, limits=LIMITS)
