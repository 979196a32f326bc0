"""Files of trajectories: what is written is the same motion when it is read; damaged files."""

import json
import re

import numpy as np
import pytest
import torch
from scipy.interpolate import make_interp_spline

from warp_collision.robot import JointCurve, load_trajectory, save_trajectory

ENDINGS = (".csv", ".npz", ".json")
NAMES = ("base", "arm, upper", "hand")


def spline_curve(seed=0) -> JointCurve:
    """A cubic with steady accelerations that rests at both ends, its spans no round numbers."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.01, 0.3, 9)) + 0.7
    spline = make_interp_spline(times, rng.normal(size=(9, 3)), k=3, bc_type="clamped")
    return JointCurve.from_spline(spline)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_motion_comes_back(tmp_path, ending):
    curve, path = spline_curve(), tmp_path / f"motion{ending}"
    save_trajectory(path, curve, NAMES)
    read = load_trajectory(path)
    assert read.degree == 5
    assert read.times[0, 0] == 0.0
    assert 0.0 <= read.duration - curve.duration < 2e-9
    since = np.linspace(0.0, curve.duration.item(), 5001)
    begin = curve.times[0, 0].item()
    for order in range(4):
        scale = max(1.0, curve.largest().max().item())
        difference = (read.at(since) - curve.at(begin + since)).abs()
        # A third derivative has steps at the points, whose times are rounded.
        assert difference.quantile(0.99) < 1e-5 * scale, order
        assert order == 3 or difference.max() < 1e-6 * scale, order
        read, curve = read.derivative(), curve.derivative()


@pytest.mark.parametrize("ending", ENDINGS)
def test_joints_in_another_order(tmp_path, ending):
    curve, path = spline_curve(1), tmp_path / f"motion{ending}"
    save_trajectory(path, curve, NAMES)
    order = [2, 0, 1]
    turned = load_trajectory(path, [NAMES[i] for i in order])
    same = load_trajectory(path, NAMES)
    assert torch.equal(turned.coefficients, same.coefficients[..., order])
    with pytest.raises(ValueError, match=f"motion{ending}: joint names must be .*; unknown is"):
        load_trajectory(path, ("base", "arm", "hand"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_has_steps_is_left_out(tmp_path, ending):
    """Straight lines, and cubics with steps of the acceleration, are what they were."""
    path = tmp_path / f"motion{ending}"
    rng = np.random.default_rng(2)
    lines = JointCurve.from_waypoints(rng.normal(size=(5, 3)), [0.0, 0.5, 0.75, 1.5, 2.0])
    save_trajectory(path, lines, NAMES)
    read = load_trajectory(path, NAMES)
    assert read.degree == 1
    assert (read.coefficients - lines.coefficients).abs().max() < 1e-15
    bent = JointCurve.from_hermite([0, 1, 2, 4], rng.normal(size=(4, 3)), rng.normal(size=(4, 3)))
    save_trajectory(path, bent, NAMES)
    read = load_trajectory(path, NAMES)
    assert read.degree == 3
    assert (read.coefficients - bent.coefficients).abs().max() < 1e-12
    save_trajectory(path, bent, NAMES, period=0.01)
    sampled = load_trajectory(path, NAMES)
    assert sampled.times.shape == (1, 401)
    times = np.linspace(0.0, 4.0, 999)
    assert (sampled.at(times) - bent.at(times)).abs().max() < 1e-3


def message(**changes) -> dict:
    point = {"positions": [0.0, 1.0], "time_from_start": {"sec": 1, "nanosec": 500_000_000}}
    first = {**point, "time_from_start": {"sec": 0, "nanosec": 0}}
    return {"joint_names": ["a", "b"], "points": [first, point | changes]}


def test_messages_of_ros(tmp_path):
    path = tmp_path / "motion.json"
    path.write_text(json.dumps(message(positions=[2.0, -1])))
    assert load_trajectory(path).at([0.75]).tolist() == [[[1.0, 0.0]]]
    old = message()
    for point in old["points"]:
        time = point["time_from_start"]
        point["time_from_start"] = {"secs": time["sec"], "nsecs": time["nanosec"]}
        point["velocities"], point["accelerations"] = [], []
    path.write_text(json.dumps(old))
    assert load_trajectory(path).duration.item() == 1.5
    save_trajectory(path, spline_curve(), NAMES)
    point = json.loads(path.read_text())["points"][-1]
    assert {*point} == {"positions", "velocities", "accelerations", "effort", "time_from_start"}
    assert point["velocities"] == pytest.approx([0.0] * 3, abs=1e-12)


WRONG_MESSAGES = {
    "points[1].positions must be 2 numbers, one for each of joint_names": {"positions": [0.0]},
    "points[0].velocities must be 2 numbers": {"velocities": [0.0, 0.0]},
    "points[1].time_from_start must have numbers sec and nanosec, got 1.5": {
        "time_from_start": 1.5
    },
    "times must grow, got 0 before -1 at index 0": {"time_from_start": {"sec": -1, "nanosec": 0}},
    "joints must be finite, got nan at (1, 0)": {"positions": [float("nan"), 0.0]},
}


@pytest.mark.parametrize("words", WRONG_MESSAGES)
def test_damaged_messages(tmp_path, words):
    path = tmp_path / "motion.json"
    path.write_text(json.dumps(message(**WRONG_MESSAGES[words])))
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: {re.escape(words)}"):
        load_trajectory(path)


WRONG_TEXTS = {
    "motion.json: no valid JSON": ("motion.json", "{"),
    "must be a trajectory_msgs/JointTrajectory: joint_names and points, got []": (
        "motion.json", "[]",
    ),
    "points must be a list of points": ("motion.json", '{"joint_names": ["a"], "points": []}'),
    "joint_names must be names": ("motion.json", '{"joint_names": [1], "points": []}'),
    "must have one column 'time', got 0": ("motion.csv", "a,b\n0,1\n1,2\n"),
    "at least 2 points, got 1": ("motion.csv", "time,a\n0,1\n"),
    "columns of velocity must be a.velocity, b.velocity": (
        "motion.csv", "time,a,b,a.velocity\n0,1,1,1\n1,1,1,1\n",
    ),
    "accelerations must come with velocities": (
        "motion.csv", "time,a,a.acceleration\n0,1,1\n1,1,1\n",
    ),
    "times must grow, got 1 before 1": ("motion.csv", "time,a\n0,1\n1,1\n1,2\n"),
    "row 1 must be 2 numbers": ("motion.csv", "time,a\n0,1\n1,x\n"),
    "trajectories must be files that end in .csv, .npz, .json, got '.txt'": ("motion.txt", ""),
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG_TEXTS)
def test_damaged_files(tmp_path, words):
    name, text = WRONG_TEXTS[words]
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)):
        load_trajectory(tmp_path / name)


def test_damaged_arrays(tmp_path):
    path = tmp_path / "motion.npz"
    np.savez(path, times=np.arange(3.0))
    with pytest.raises(ValueError, match=r"motion\.npz: must hold an array 'joints'"):
        load_trajectory(path)
    np.savez(path, times=np.arange(4.0), joints=np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"times must have shape \(3,\) as the joints, got \(4,\)"):
        load_trajectory(path)
    np.savez(path, times=np.arange(3.0), joints=np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"joints must have shape \(horizon, 3\), got \(3, 2\)"):
        load_trajectory(path, NAMES)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"motion\.npz: "):
        load_trajectory(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_trajectory(tmp_path / "other.npz")


def test_wrong_curves(tmp_path):
    path, curve = tmp_path / "motion.csv", spline_curve()
    with pytest.raises(ValueError, match=r"must be files that end in \.csv, \.npz, \.json, got"):
        save_trajectory(tmp_path / "motion.bag", curve, NAMES)
    with pytest.raises(ValueError, match="joint_names must be 3 names as the curve has joints"):
        save_trajectory(path, curve, NAMES[:2])
    both = JointCurve.from_pieces([(c.times[0].numpy(), c.coefficients[0].numpy()) for c in
                                   (curve, curve)])  # fmt: skip
    with pytest.raises(ValueError, match="must be one curve, got a batch of 2"):
        save_trajectory(path, both, NAMES)
    save_trajectory(path, both[1], NAMES)
    with pytest.raises(ValueError, match="period must be positive, got -1"):
        save_trajectory(path, curve, NAMES, period=-1.0)
    rng = np.random.default_rng(3)
    quintic = JointCurve(torch.arange(3.0)[None], torch.from_numpy(rng.normal(size=(1, 2, 6, 3))))
    with pytest.raises(ValueError, match="curves must not jump"):
        save_trajectory(path, quintic, NAMES)
    quintic.coefficients[:, 1, 0] = quintic.coefficients[:, 0, -1]
    with pytest.raises(ValueError, match="no steps of the velocity where its degree is 5"):
        save_trajectory(path, quintic, NAMES)
