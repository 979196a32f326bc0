"""`plan --timed`, and what `check` and `label` say of the trajectories that it writes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cases import mostly_slow
from robots import PANDA
from warp_collision import MeshWorld, RobotSpheres
from warp_collision.cli import path_drawing
from warp_collision.cli.__main__ import main
from warp_collision.labeling import PathLabeler, PathRow
from warp_collision.robot import (
    JointCurve,
    joint_path_cost,
    joint_path_in_collision,
    load_trajectory,
    save_trajectory,
)

LEFT, RIGHT = "-0.9,0.3,0,-1.6,0,1.9,0.8", "0.9,0.3,0,-1.6,0,1.9,0.8"
LIMITS = ["--acceleration", "15", "--jerk", "500"]


@pytest.fixture(scope="module")
def robot():
    return RobotSpheres(PANDA)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("world") / "world.yaml"
    pose = "[0.5, 0.05, 0.5, 0.98, 0.1, 0.17, 0]"
    path.write_text(f"cylinder: {{post: {{radius: 0.04, height: 1.2, pose: {pose}}}}}")
    return str(path)


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main([*map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def plan(capsys, world, output, *more) -> tuple[int, str, str]:
    ends = [f"--start={LEFT}", f"--goal={RIGHT}"]
    options = ["--no-picture", "--timed", "-o", output, *more]
    return run(capsys, "plan", PANDA, world, *ends, *options)


def test_a_trajectory_is_written_and_proven(capsys, world, robot, tmp_path):
    output = tmp_path / "motion.json"
    status, out, err = plan(capsys, world, output, *LIMITS, "--until", "first", "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)["trajectory"]
    assert told["free"]
    assert 0.9 < max(told[f"{kind}_share"] for kind in ("velocity", "acceleration", "jerk")) <= 1.0
    curve = load_trajectory(output, robot.joint_names)
    assert curve.duration.item() == pytest.approx(told["duration"], abs=2e-9)
    obstacles = MeshWorld.from_file(world, "cpu")
    assert not joint_path_in_collision(curve, robot, obstacles).any()
    ends = curve.at([0.0, 100.0])[0].numpy()
    np.testing.assert_allclose(ends[0], [float(x) for x in LEFT.split(",")], rtol=1e-6)
    np.testing.assert_allclose(ends[1], [float(x) for x in RIGHT.split(",")], rtol=1e-6)
    for order, limit in ((1, robot.velocity_limits), (2, 15.0), (3, 500.0)):
        curve = curve.derivative()
        times = torch.arange(0.0, told["duration"], 1e-3)
        assert (curve.at(times)[0].abs() <= limit * (1.0 + 1e-5)).all(), order
    # The other files are the same motion.
    curve = load_trajectory(output, robot.joint_names)
    for ending in (".csv", ".npz"):
        other = tmp_path / f"motion{ending}"
        save_trajectory(other, curve, robot.joint_names)
    for ending in (".json", ".csv", ".npz"):
        file = tmp_path / f"motion{ending}"
        status, out, err = run(capsys, "check", world, file, "--robot", PANDA, "--json")
        assert (status, err) == (0, "")
        found = json.loads(out)
        assert len(found["motions"]) == curve.coefficients.shape[1]
        assert all(motion["proven_free"] for motion in found["motions"])
        assert found["paths"][0]["free"]
    status, out, _ = run(capsys, "check", world, tmp_path, "--robot", PANDA)
    assert status == 0
    assert "free: all 2 paths are proven" in out


def test_what_is_between_the_points_counts(capsys, world, robot, tmp_path):
    """Points that are free, and a cubic between them that is not; and the other way round."""
    left, right = (np.array([float(x) for x in text.split(",")]) for text in (LEFT, RIGHT))
    rest = np.zeros((2, 7))
    across = JointCurve.from_hermite([0.0, 1.0], [left, right], rest)
    back = JointCurve.from_hermite([0.0, 1.0], [left, left], rest)
    bulge = np.zeros((2, 7))
    bulge[0, 0], bulge[1, 0] = 5.0, -5.0  # swings by 1.25 rad and returns
    swing = JointCurve.from_hermite([0.0, 1.0], [left, left], bulge)
    for name, curve, status in (("across", across, 1), ("back", back, 0), ("swing", swing, 1)):
        file = tmp_path / f"{name}.csv"
        save_trajectory(file, curve, robot.joint_names)
        assert run(capsys, "check", world, file, "--robot", PANDA)[0] == status, name
    table = tmp_path / "labels.csv"
    status, out, _ = run(capsys, "check", world, tmp_path, "--robot", PANDA, "--csv")
    assert status == 1
    free = {line.split(",")[0]: line.split(",")[1] for line in out.splitlines()[1:]}
    assert free == {"across.csv:0": "False", "back.csv:0": "True", "swing.csv:0": "False"}
    assert not table.exists()


def test_labels_of_curves_beside_waypoints(world, robot):
    obstacles = MeshWorld.from_file(world, "cpu")
    rng = np.random.default_rng(4)
    left = np.array([float(x) for x in LEFT.split(",")])
    points = left + 0.6 * rng.normal(size=(3, 7)) * [1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2]
    curve = JointCurve.from_hermite([0, 1, 2], points, rng.normal(size=(3, 7)))
    outputs = ("free", "clearance", "first_contact", "cost", "waypoint_clearance")
    labeler = PathLabeler(robot, obstacles, outputs=outputs, activation_distance=0.3)
    lines = np.float32(points)
    found = labeler.label([PathRow(lines), PathRow(curve), PathRow(curve.split(2))])
    assert found["error"].tolist() == [None] * 3
    alone = labeler.label([PathRow(lines)])
    for name in ("free", "clearance", "cost"):
        assert found[name][0] == alone[name][0]
    assert found["clearance"][1] == pytest.approx(found["clearance"][2], abs=1.1e-3)
    hits = joint_path_in_collision(curve, robot, obstacles)
    assert found["free"][1] == (not hits.any())
    cost = joint_path_cost(curve, robot, obstacles, activation_distance=0.3).sum().item()
    assert found["cost"][1] == pytest.approx(cost, rel=0.02)
    np.testing.assert_allclose(
        found["waypoint_clearance"][1], found["waypoint_clearance"][0], atol=1e-5
    )
    wrong = labeler.label([PathRow(JointCurve.from_waypoints(np.zeros((2, 3))))])
    assert "path must be one curve of 7 joints, got JointCurve(" in wrong["error"][0]


WRONG = {
    "--jerk must be given with --timed alone": ["--jerk", "3"],
    "--output must end in .csv, .npz, .json with --timed": ["--timed", "-o", "motion"],
    "--acceleration must be given, for all joints such as acceleration=10.0": ["--timed"],
    "--jerk must be numbers, got 'fast'": ["--timed", *LIMITS[:2], "--jerk", "fast"],
    "--velocity must be a number or have shape (7,), got (2,)": [
        *("--timed", *LIMITS, "--velocity", "1", "2")
    ],
    "--jerk must be positive, got 0 for joint panda_joint1": [
        *("--timed", *LIMITS[:2], "--jerk", "0")
    ],
    "--period must be a positive number of seconds, got -1": ["--timed", "--period", "-1"],
    "none.yaml: no such file": ["--timed", "--limits", "none.yaml"],
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_options(capsys, world, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = [f"--start={LEFT}", f"--goal={RIGHT}"]
    status, _, err = run(capsys, "plan", PANDA, world, *ends, *WRONG[words])
    assert status == 2
    assert words in err


@pytest.mark.parametrize("ending", mostly_slow(("csv", "npz", "json"), ("json",)))
def test_the_viewer_takes_trajectories(capsys, world, robot, tmp_path, monkeypatch, ending):
    pytest.importorskip("viser", reason="the extra 'view' brings the viewer")
    from warp_collision.viewer import Viewer

    rows = np.array([*[[float(x) for x in side.split(",")] for side in (LEFT, RIGHT)]])
    given = JointCurve.from_hermite([0.0, 0.7], rows, np.zeros((2, 7)))
    file, seen = tmp_path / f"motion.{ending}", []
    save_trajectory(file, given, robot.joint_names)

    def looked_at(viewer: Viewer) -> None:
        assert viewer.wait(600)  # on a busy machine kernels compile first
        seen.append((viewer._paths.facts, viewer._paths.limits))

    monkeypatch.setattr(Viewer, "wait_forever", looked_at)
    options = ["--robot", PANDA, "--port", "0", "--no-browser"]
    status, _, err = run(capsys, "view", world, file, *options, *LIMITS[:2])
    assert (status, err) == (0, "")
    facts, limits = seen[0]
    np.testing.assert_allclose(facts.curve.at([0.3]), given.at([0.3]), atol=1e-9)
    assert facts.curve.duration.item() == pytest.approx(0.7, abs=1e-9)
    assert not facts.is_free
    assert limits.acceleration.tolist() == [15.0] * 7
    assert np.isinf(limits.jerk).all()
    assert torch.equal(torch.from_numpy(limits.velocity), robot.velocity_limits)
    for more, words in (
        (["--jerk", "0"], "--jerk must be positive, got 0 for joint panda_joint1"),
        (["--limits", tmp_path / "none.yaml"], "none.yaml: no such file"),
    ):
        status, _, err = run(capsys, "view", world, file, *options, *more)
        assert status == 2
        assert words in err
    status, _, err = run(capsys, "view", world, *options[2:], "--jerk", "3")
    assert status == 2
    assert "--jerk must be given with --robot alone" in err


def test_the_picture_is_of_the_motion_that_is_written(capsys, world, robot, tmp_path, monkeypatch):
    """Beside it, by its name: a picture of another path in the folder stays as it was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path.png").write_bytes(b"another")
    drawn = []
    monkeypatch.setattr(
        path_drawing, "render", lambda *arguments, output, **more: drawn.append((arguments, output))
    )
    ends = [f"--start={LEFT}", f"--goal={RIGHT}", "--until", "first"]
    status, _, err = run(
        capsys, "plan", PANDA, world, *ends, "--timed", *LIMITS, "-o", "motion.json"
    )
    assert (status, err) == (0, "")
    ((_, _, paths), output) = drawn[0]
    assert output == Path("motion.png")
    written, shown = load_trajectory("motion.json", robot.joint_names), paths["planned"]
    np.testing.assert_allclose(shown.times, written.times, atol=2e-9)
    np.testing.assert_allclose(shown.coefficients, written.coefficients, atol=1e-6)
    assert (tmp_path / "path.png").read_bytes() == b"another"
    run(capsys, "plan", PANDA, world, *ends)
    assert drawn[1][1] == Path("path.png")
    status, _, err = run(capsys, "plan", PANDA, world, *ends, "-o", "one.png")
    assert status == 2
    assert "--picture must be another file than --output" in err
