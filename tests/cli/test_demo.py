"""The demo's numbers against exact primitives, and what it writes."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from reference import hinge, rotation_matrix
from warp_collision import joint_path_in_collision
from warp_collision.cli import demo_report
from warp_collision.cli.check_waypoints import PathCheck
from warp_collision.cli.demo_report import (
    ACTIVATION_DISTANCE,
    DEFAULT_PROBLEM,
    check_joints,
    run_demo,
)
from warp_collision.examples import (
    _read_problems,
    load_panda,
    load_problem,
    problem_names,
    straight_path,
    world_of,
)
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer.path_facts import evenly_along

SWEEP_TOLERANCE = ACTIVATION_DISTANCE / 20  # the documented default


def in_frame(points: np.ndarray, pose: list[float]) -> np.ndarray:
    rotation = rotation_matrix(np.array(pose[3:]) / np.linalg.norm(pose[3:]))
    return (points - pose[:3]) @ rotation


def outside_of(q: np.ndarray) -> np.ndarray:
    """Signed distance from the signed distances to slabs whose intersection is the body."""
    return np.linalg.norm(np.maximum(q, 0), axis=-1) + np.minimum(q.max(axis=-1), 0)


def exact_distances(name: str, points: np.ndarray) -> np.ndarray:
    """Signed distances (n_obstacles, ...) of points (..., 3) to a problem's exact primitives."""
    entry, rows = _read_problems()[name], []
    for item in entry["cuboid"].values():
        local = in_frame(points, item["pose"])
        rows.append(outside_of(np.abs(local) - np.array(item["dims"]) / 2))
    for item in entry["cylinder"].values():
        local = in_frame(points, item["pose"])
        radial = np.hypot(local[..., 0], local[..., 1]) - item["radius"]
        rows.append(outside_of(np.stack([radial, np.abs(local[..., 2]) - item["height"] / 2], -1)))
    return np.array(rows)


def check_problem(name: str, device: torch.device, waypoints: int = 32) -> PathCheck:
    problem, robot = load_problem(name), load_panda()
    joints = straight_path(problem, robot, waypoints)
    return check_joints(joints, RobotScene(robot, world_of(problem, device)))


def test_problems_are_two_sets_of_eight():
    names = [f"{kind}_{i}" for kind in ("bookshelf_thin", "cage") for i in range(1, 9)]
    assert problem_names() == names
    assert DEFAULT_PROBLEM in names


@pytest.mark.parametrize("name", problem_names())
def test_starts_and_goals_are_free_and_straight_lines_collide(name):
    problem, robot = load_problem(name), load_panda()
    spheres = robot(straight_path(problem, robot, 32).double()).numpy()
    exact = (exact_distances(name, spheres[..., :3]) - spheres[..., 3]).min(axis=(0, 2))
    assert exact[0] > 0.0
    assert exact[-1] > 0.0
    assert exact.min() < -0.025


@pytest.mark.parametrize("name", ["cage_2", "bookshelf_thin_7"])
def test_clearance_and_cost_match_exact_primitives(name, device):
    check = check_problem(name, device)
    spheres = check.spheres[0].double().numpy()
    exact = exact_distances(name, spheres[..., :3]) - spheres[..., 3]
    np.testing.assert_allclose(check.clearance[0], exact.min(axis=0), rtol=0, atol=2e-6)

    cost = hinge(ACTIVATION_DISTANCE - exact, ACTIVATION_DISTANCE).sum(axis=0)
    np.testing.assert_allclose(check.cost[0], cost, rtol=0, atol=1e-5)

    two = np.sort(exact, axis=0)[:2]
    clear = two[1] - two[0] > 1e-5
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(check.obstacle[0].numpy()[clear], exact.argmin(axis=0)[clear])


def test_rows_match_exact_primitives(device):
    check, names = check_problem("cage_2", device), list(load_problem("cage_2").obstacles)
    robot = load_panda()
    spheres = check.spheres[0].double().numpy()
    exact = exact_distances("cage_2", spheres[..., :3]) - spheres[..., 3]
    for row, distances in zip(check.waypoints, np.swapaxes(exact, 0, 1), strict=True):
        mesh, sphere = np.unravel_index(distances.argmin(), distances.shape)
        assert row.clearance == pytest.approx(distances.min(), abs=2e-6)
        assert row.obstacle == names[mesh]
        assert row.link == robot.sphere_links[sphere]
        assert row.collides == (distances.min() < 0.0)
        cost = hinge(ACTIVATION_DISTANCE - distances, ACTIVATION_DISTANCE).sum()
        assert row.cost == pytest.approx(cost, abs=1e-5)
    assert check.deepest.waypoint == exact.min(axis=(0, 2)).argmin()


def test_swept_costs_match_dense_samples(device):
    check = check_problem("cage_2", device)
    spheres = check.spheres[0].double().numpy()
    centers, radii = spheres[..., :3], spheres[..., 3]
    last = len(centers) - 1
    share = np.linspace(0.0, 0.5, 200)[:, None, None]
    on_the_way = []
    for waypoint, row in enumerate(check.waypoints):
        here = centers[waypoint]
        paths = [
            here + share * (centers[neighbour] - here)
            for neighbour in (max(waypoint - 1, 0), min(waypoint + 1, last))
        ]
        distances = exact_distances("cage_2", np.concatenate(paths)).min(axis=1) - radii[waypoint]
        costs = hinge(ACTIVATION_DISTANCE - distances, ACTIVATION_DISTANCE)
        assert row.swept_cost == pytest.approx(costs.sum(), abs=SWEEP_TOLERANCE)
        assert row.swept_cost >= row.cost - 1e-6
        if abs(distances.min()) > SWEEP_TOLERANCE:
            assert row.collides_on_the_way == (distances.min() < 0.0)
            on_the_way.append(row.collides_on_the_way and not row.collides)
    assert any(on_the_way)


def test_wanted_contacts_are_left_out_of_clearances(device):
    problem, robot = load_problem("cage_2"), load_panda()
    wanted = [("panda_hand", "side_frontB"), ("panda_link5", "side_frontB")]
    scene = RobotScene(robot, world_of(problem, device), ignore=tuple(wanted))
    check = check_joints(straight_path(problem, robot, 32), scene)
    spheres = check.spheres[0].double().numpy()
    exact = exact_distances("cage_2", spheres[..., :3]) - spheres[..., 3]
    touching = np.isin(robot.sphere_links, ["panda_hand", "panda_link5"])
    exact[list(problem.obstacles).index("side_frontB"), :, touching] = np.inf
    np.testing.assert_allclose(check.clearance[0], exact.min(axis=0), rtol=0, atol=2e-6)
    assert check.deepest.clearance == pytest.approx(exact.min(), abs=2e-6)
    assert (check.deepest.link, check.deepest.obstacle) not in wanted
    assert (check.cost[0].numpy()[exact.min(axis=0) > ACTIVATION_DISTANCE] == 0.0).all()


@pytest.mark.slow
def test_demo_writes_picture_report_and_table(tmp_path, capsys):
    output, report = tmp_path / "demo.png", tmp_path / "report.json"
    assert run_demo(picture=output, report=report) == 0
    printed = capsys.readouterr().out
    written = json.loads(report.read_text())
    assert written["problem"] == DEFAULT_PROBLEM
    assert len(written["waypoints"]) == 32
    assert written["colliding_waypoints"] == list(range(8, 24))
    assert printed.count("COLLISION  ") == 16
    assert "deepest: 74.8 mm, side_frontB and panda_link5 at waypoint 17" in printed
    planned = written["planned"]
    assert planned["free"]
    nearest = f"nowhere nearer than {1000 * planned['clearance']:.1f} mm to an obstacle"
    assert "planned path: certified free" in printed
    assert nearest in printed
    problem = load_problem(DEFAULT_PROBLEM)
    joints = torch.tensor([planned["joints"]])
    torch.testing.assert_close(joints[0, [0, -1]], torch.tensor([problem.start, problem.goal]))
    world = world_of(problem, torch.device("cpu"))
    assert not joint_path_in_collision(joints, load_panda(), world).any()
    assert min(planned["clearances"]) > 0.0

    assert output.stat().st_size < 700_000
    picture = np.asarray(Image.open(output).convert("HSV")).astype(int)
    assert picture.shape == (800, 1280, 3)
    for scene, is_planned in ((picture[112:732, :797], False), (picture[112:732, 803:], True)):
        hue, saturation, value = scene[..., 0], scene[..., 1], scene[..., 2]
        hot = (saturation > 130) & (value > 60) & ((hue < 35) | (hue > 225))
        calm = (saturation > 20) & (hue > 130) & (hue < 175)
        assert (hot.sum() > 4_000) != is_planned  # spheres that collide
        assert calm.sum() > 50_000  # obstacles


def test_positions_evenly_along_a_path():
    joints = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 3.0]])
    expected = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]
    torch.testing.assert_close(evenly_along(joints, 5), torch.tensor(expected))


def test_demo_writes_the_table_as_text(tmp_path, capsys):
    report = tmp_path / "report.txt"
    assert run_demo(problem="bookshelf_thin_2", waypoints=5, report=report, draws=False) == 0
    assert report.read_text() in capsys.readouterr().out
    assert not (tmp_path / "demo.png").exists()


def test_what_is_not_finite_is_null_in_the_report(tmp_path, monkeypatch):
    report = tmp_path / "report.json"
    monkeypatch.setattr(demo_report, "plan_problem", lambda *_: None)
    monkeypatch.setattr(demo_report, "format_table", lambda _: "")
    monkeypatch.setattr(demo_report, "summary", lambda _: {"planned": {"clearance": float("nan")}})
    run_demo(report=report, draws=False)
    assert json.loads(report.read_text()) == {"planned": {"clearance": None}}


def test_demo_without_the_viz_extra(tmp_path, capsys, monkeypatch):
    for name in ("matplotlib", "rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    output = tmp_path / "demo.png"
    assert run_demo(waypoints=4, picture=output, report=tmp_path / "report.json") == 0
    printed, warned = capsys.readouterr()
    assert "side_frontB" in printed
    assert "no picture: drawing needs matplotlib: pip install 'warp-collision[viz]'" in warned
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"problem": "cage_9"}, ValueError, "problem must be one of bookshelf_thin_1, .*'cage_9'"),
        ({"waypoints": 1}, ValueError, "waypoints must be at least 2, got 1"),
        ({"picture": "none/demo.png"}, FileNotFoundError, "picture must be in an existing folder"),
        ({"report": "none/demo.json"}, FileNotFoundError, "report must be in an existing folder"),
    ],
)
def test_wrong_arguments(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        run_demo(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_problem_for_another_robot():
    problem, robot = load_problem("cage_1"), load_panda()
    problem.joint_names.reverse()
    with pytest.raises(ValueError, match="problem 'cage_1' must be for the joints"):
        straight_path(problem, robot, 4)
