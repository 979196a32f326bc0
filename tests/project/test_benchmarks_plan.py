"""The benchmark of planners: its judge against cases done by hand, its data, its reports."""

import json
import math
from argparse import Namespace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("pinocchio", reason="the judge needs pin and coal, of the extra 'dev'")
pytest.importorskip("coal", reason="the judge needs pin and coal, of the extra 'dev'")

from benchmarks import functions, plan_report, problems
from benchmarks.__main__ import main
from benchmarks.harness import RESULTS, WrongResultError
from benchmarks.plan import judged
from benchmarks.planners import MARGIN, PLANNERS, Planned
from benchmarks.problems import list_problems, load_robot, read_problem

from panda_problem import write_problem
from path_judge import Judge, Obstacle, Scene
from reference import rotation_matrix
from warp_collision import MeshWorld
from warp_collision.robot import RobotSpheres

ASSETS = Path(str(files("warp_collision.assets")))
PANDA = ASSETS / "panda" / "panda.urdf"

# A pole that turns about z, with an arm of a metre along x and a hand that slides along the arm.
ARM = """<robot name="arm">
<link name="base"><collision><origin xyz="0 0 0"/><geometry><sphere radius="0.1"/></geometry>
</collision></link>
<link name="arm"><collision><origin xyz="1 0 0"/><geometry><sphere radius="0.05"/></geometry>
</collision></link>
<link name="hand"><collision><origin xyz="0 0 0"/><geometry><sphere radius="0.02"/></geometry>
</collision></link>
<link name="nail"><collision><origin xyz="0 0 0.03"/><geometry><sphere radius="0.02"/></geometry>
</collision></link>
<joint name="slide" type="prismatic"><parent link="arm"/><child link="hand"/>
<origin xyz="1 0 0.5"/><axis xyz="1 0 0"/><limit lower="-1" upper="0.5"/></joint>
<joint name="turn" type="revolute"><parent link="base"/><child link="arm"/>
<origin xyz="0 0 0.5"/><axis xyz="0 0 1"/><limit lower="-3" upper="3"/></joint>
<joint name="fixed" type="fixed"><parent link="hand"/><child link="nail"/></joint>
</robot>"""
SRDF = (
    """<robot name="arm"><disable_collisions link1="hand" link2="arm" reason="Adjacent"/></robot>"""
)


@pytest.fixture
def arm(tmp_path: Path) -> Judge:
    (tmp_path / "arm.urdf").write_text(ARM)
    (tmp_path / "arm.srdf").write_text(SRDF)
    return Judge(tmp_path / "arm.urdf", tmp_path / "arm.srdf", ["turn", "slide"])


def box(position: tuple[float, float, float], edge: float = 0.2) -> Obstacle:
    return Obstacle("box", "box", (edge, edge, edge), np.eye(3), np.array(position))


def test_judge_places_spheres_as_by_hand(arm: Judge) -> None:
    centers = arm.centers(np.array([[0.0, 0.0], [math.pi / 2, 0.3]]))
    of = {link: centers[:, arm.links.index(link)] for link in ("base", "arm", "hand", "nail")}
    np.testing.assert_allclose(of["base"], [[0, 0, 0], [0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(of["arm"], [[1, 0, 0.5], [0, 1, 0.5]], atol=1e-15)
    np.testing.assert_allclose(of["hand"], [[1, 0, 1.0], [0, 1.3, 1.0]], atol=1e-15)
    np.testing.assert_allclose(of["nail"], [[1, 0, 1.03], [0, 1.3, 1.03]], atol=1e-15)
    np.testing.assert_array_equal(arm.limits, [[-3, 3], [-1, 0.5]])


def test_judge_heeds_the_srdf(arm: Judge, tmp_path: Path) -> None:
    """Neither links that one body carries, nor those that the SRDF disables; others all."""
    pairs = {frozenset((arm.links[a], arm.links[b])) for a, b in arm.pairs}
    named = [("base", "arm"), ("base", "hand"), ("base", "nail"), ("arm", "nail")]
    assert pairs == {frozenset(pair) for pair in named}
    without = Judge(tmp_path / "arm.urdf", None, ["turn", "slide"])
    pairs = {frozenset((without.links[a], without.links[b])) for a, b in without.pairs}
    assert pairs == {frozenset(pair) for pair in (*named[1:],)}


def test_judge_of_a_clear_path(arm: Judge) -> None:
    """The arm turns by 90 degrees below a box: the nail passes it at 0.87 m of height."""
    scene = Scene([box((math.cos(0.8), math.sin(0.8), 1.3))])
    found = arm.judge(np.array([[0.0, 0.0], [math.pi / 2, 0.0]]), scene)
    assert found.free
    assert found.obstacle == "box"
    assert found.link == "nail"
    assert found.world == pytest.approx(1.2 - 1.03 - 0.02, abs=1e-12)
    assert found.self == pytest.approx(0.53 - 0.05 - 0.02, abs=1e-12)
    assert set(found.links) == {"arm", "nail"}


@pytest.mark.parametrize("depth", [2e-3, 0.03])
def test_judge_finds_what_stands_between_waypoints(arm: Judge, depth: float) -> None:
    """A post in the way of the arm's sphere, which no waypoint and no chord comes near."""
    radius, at = 0.004, 0.7
    away = 1.0 + radius + 0.05 - depth
    position = np.array([away * math.cos(at), away * math.sin(at), 0.5])
    post = Obstacle("post", "cylinder", (0.1, radius), np.eye(3), position)
    path = np.array([[-1.2, -0.5], [2.6, -0.5]])
    found = arm.judge(path, Scene([post]))
    assert not found.free
    assert (found.link, found.obstacle) == ("arm", "post")
    assert found.world == pytest.approx(-depth, abs=2e-4)
    all_samples = arm.judge(path, Scene([post]), (1e-3,))
    assert all_samples.world == pytest.approx(found.world, abs=2e-4)
    assert found.samples < 0.3 * all_samples.samples
    beside = post.__class__("post", "cylinder", (0.1, radius), np.eye(3), position * 1.05)
    assert arm.judge(path, Scene([beside])).free


def test_judge_finds_the_robot_in_itself(tmp_path: Path) -> None:
    """The hand slides through the base's sphere."""
    text = ARM.replace("1 0 0.5", "1 0 -0.45")
    (tmp_path / "arm.urdf").write_text(text)
    judge = Judge(tmp_path / "arm.urdf", None, ["turn", "slide"])
    found = judge.judge(np.array([[0.0, 0.2], [0.4, -0.95]]), Scene([]))
    assert not found.free
    assert set(found.links) == {"base", "hand"}
    assert found.self == pytest.approx(math.hypot(0.05, 0.05) - 0.12, abs=1e-9)
    assert found.world == math.inf


def test_judge_refuses_what_is_not_finite(arm: Judge) -> None:
    with pytest.raises(ValueError, match="finite"):
        arm.judge(np.array([[0.0, math.nan]]), Scene([]))
    with pytest.raises(ValueError, match="joint_names"):
        Judge(PANDA, None, ["panda_joint1"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["box", "cylinder", "capsule", "sphere"])
def test_distances_of_the_judge(kind: str) -> None:
    """Against the nearest of many points of the surface, and coal's verdict for spheres."""
    rng = np.random.default_rng(5)
    dimensions = {
        "box": (0.5, 0.3, 0.2),
        "cylinder": (0.4, 0.15),
        "capsule": (0.4, 0.15),
        "sphere": (0.2,),
    }[kind]
    quaternion = rng.normal(size=4)
    rotation = rotation_matrix(quaternion / np.linalg.norm(quaternion))
    obstacle = Obstacle("it", kind, dimensions, rotation, rng.normal(size=3))
    inside, surface = body(kind, dimensions, rng, 200_000)
    placed = surface @ rotation.T + obstacle.position
    points = rng.uniform(-0.4, 0.4, (60, 3)) @ rotation.T + obstacle.position
    local = (points - obstacle.position) @ rotation
    away = np.array([np.linalg.norm(placed - point, axis=1).min() for point in points])
    expected = np.where(inside(local), -away, away)
    np.testing.assert_allclose(obstacle.signed_distance(points), expected, atol=2e-3)
    scene = Scene([obstacle])
    clearance = scene.nearest(points, np.full(60, 0.05)).clearance
    assert (clearance < 0.0).any()
    assert (clearance > 0.0).any()
    assert [scene.hits(point, 0.05, 0) for point in points] == (clearance < 0.0).tolist()


def body(kind: str, dimensions: tuple[float, ...], rng: np.random.Generator, count: int):
    """Whether points are inside, and points of the surface."""
    if kind == "sphere":
        points = rng.normal(size=(count, 3))
        points *= dimensions[0] / np.linalg.norm(points, axis=1, keepdims=True)
        return lambda p: np.linalg.norm(p, axis=1) < dimensions[0], points
    if kind == "box":
        half = np.array(dimensions) / 2
        points = rng.uniform(-half, half, (count, 3))
        axis = rng.integers(3, size=count)
        points[np.arange(count), axis] = rng.choice([-1.0, 1.0], count) * half[axis]
        return lambda p: (np.abs(p) < half).all(axis=1), points
    height, radius = dimensions
    if kind == "capsule":
        points = rng.normal(size=(count, 3))
        points *= radius / np.linalg.norm(points, axis=1, keepdims=True)
        caps = rng.uniform(size=count) < 2 * radius / (2 * radius + height)
        points[caps, 2] += np.where(points[caps, 2] > 0.0, 0.5, -0.5) * height
        around = points[~caps, :2]
        points[~caps, :2] = radius * around / np.linalg.norm(around, axis=1, keepdims=True)
        points[~caps, 2] = rng.uniform(-height / 2, height / 2, len(around))

        def inside(p: np.ndarray) -> np.ndarray:
            along = np.clip(p[:, 2], -height / 2, height / 2)
            return np.linalg.norm(p - along[:, None] * [0, 0, 1], axis=1) < radius

        return inside, points
    angle, z = rng.uniform(0, 2 * np.pi, count), rng.uniform(-height / 2, height / 2, count)
    out = np.full(count, radius)
    caps = count // 2
    out[:caps] = radius * np.sqrt(rng.uniform(size=caps))
    z[:caps] = rng.choice([-0.5, 0.5], caps) * height
    points = np.stack([out * np.cos(angle), out * np.sin(angle), z], axis=1)
    return (
        lambda p: (np.hypot(p[:, 0], p[:, 1]) < radius) & (np.abs(p[:, 2]) < height / 2),
        points,
    )


def test_scenes_are_read_alike() -> None:
    """The planning scene of MoveIt and the mapping of the same problem."""
    scene = Scene.from_file(ASSETS / "problems" / "cage_2.yaml")
    entry = json.loads((ASSETS / "problems" / "cage.json").read_text())["cage_2"]
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (200, 3))
    same = Scene.from_mapping(entry)
    assert [o.name for o in scene.obstacles] == [o.name for o in same.obstacles]
    found, expected = (s.nearest(points, np.zeros(200)).clearance for s in (scene, same))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scene_with_something_else_is_an_error(tmp_path: Path) -> None:
    text = (ASSETS / "problems" / "cage_2.yaml").read_text()
    (tmp_path / "scene.yaml").write_text(text.replace("type: box", "type: cone", 1))
    with pytest.raises(ValueError, match="cone"):
        Scene.from_file(tmp_path / "scene.yaml")


def test_rows_say_what_counts(arm: Judge) -> None:
    """Ends, limits, and what is called free but is not."""
    problem = SimpleNamespace(start=np.array([0.0, 0.0]), goal=np.array([1.0, 0.2]))
    straight = np.stack([problem.start, problem.goal]).astype(np.float32)
    clear, blocked = Scene([box((0, 0, 3.0))]), Scene([box((math.cos(0.5), math.sin(0.5), 0.5))])

    def row(path, scene, free=True):
        return judged(Planned(path, free, 1.0, 7), problem, scene, arm)

    good = row(straight, clear)
    assert good["solved"]
    assert good["possible"]
    assert good["length"] == pytest.approx(math.hypot(1.0, 0.2), abs=1e-4)
    bad = row(straight, blocked)
    assert (bad["solved"], bad["refused"]) == (False, True)
    assert "arm to box" in bad["reason"]
    assert row(straight, blocked, free=False)["refused"] is False
    assert row(straight, clear, free=False)["solved"] is False
    assert "end" in row(straight + np.float32(1e-3), clear)["reason"]
    beyond = np.array([[0.0, 0.0], [0.5, 0.6], [1.0, 0.2]], dtype=np.float32)
    assert "limits" in row(beyond, clear)["reason"]
    none = judged(Planned(None, False, 1.0, 0, "why"), problem, blocked, arm)
    assert (none["solved"], none["reason"]) == (False, "why")
    at_goal = SimpleNamespace(start=problem.start, goal=np.array([0.5, 0.0]))
    assert not judged(Planned(None, False, 1.0, 0, ""), at_goal, blocked, arm)["possible"]


def test_problems_are_read(tmp_path: Path) -> None:
    write_problem(tmp_path)
    assert list_problems(tmp_path, "panda") == [("cage", 2)]
    robot = load_robot(tmp_path, "panda")
    assert isinstance(robot, RobotSpheres)
    left_out = {frozenset(pair[:2]) for pair in robot.self_collision_pairs().left_out}
    assert frozenset(("panda_link5", "panda_link7")) in left_out
    names = list(robot.joint_names)
    problem = read_problem(tmp_path, "panda", "cage", 2, names)
    entry = json.loads((ASSETS / "problems" / "cage.json").read_text())["cage_2"]
    assert problem.start.tolist() == entry["start"]
    assert problem.goal.tolist() == entry["goal"]
    assert problem.scene.name == "scene0002.yaml"
    with pytest.raises(ValueError, match="panda_joint7"):
        read_problem(tmp_path, "panda", "cage", 2, names[:-1])


@pytest.fixture
def one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_problem(tmp_path / "panda")
    monkeypatch.setattr(problems, "robot_folder", lambda *_: tmp_path / "panda")
    return tmp_path / "panda"


@pytest.mark.slow
@pytest.mark.parametrize("planner", PLANNERS)
def test_a_planner_solves_a_problem(planner: str, one_problem: Path, tmp_path: Path) -> None:
    """The whole command with one planner: solved, written, and read again."""
    if planner in ("RRT-Connect", "its first path"):
        pytest.importorskip("ompl", reason="the extra 'bench' brings OMPL")
    out = tmp_path / "results"
    arguments = ["--robots", "panda", "--planners", planner, "--write", str(out)]
    assert main(["plan", *arguments]) == 0
    (row,) = plan_report.read(out / "plan.json")["panda"]["rows"]
    assert row["solved"]
    assert not row["refused"]
    assert row["clearance"] > 0.0
    text = (out / "plan.md").read_text()
    assert f"| panda | {planner} | 1/1 | 100.0% |" in text
    assert (out / "plan.png").stat().st_size > 5000
    assert main(["plan", "--report", "--write", str(out)]) == 0


def test_kept_results_make_the_kept_tables() -> None:
    """The tables of results/ are those of its figures."""
    assert (
        plan_report.markdown(plan_report.read(RESULTS / "plan.json"))
        == (RESULTS / "plan.md").read_text()
    )


@pytest.mark.parametrize("name", ["kinematics", "joint_path_in_collision"])
def test_functions_are_compared_with_the_judge(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["functions", "--scale", "0.03", "--rounds", "1", "--only", name]) == 0
    assert f"| {name}" in capsys.readouterr().out


@pytest.mark.slow
def test_all_functions_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["functions", "--scale", "0.06", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    on_cpu = [name for name in functions.FUNCTIONS if "graph" not in name]
    assert [name for name in on_cpu if f"| {name} |" in printed] == on_cpu


@pytest.mark.slow
def test_functions_that_are_wrong_are_not_timed() -> None:
    """Results for another scene than the judge's, or another place of the robot, raise."""
    given = functions.set_up(2, torch.device("cpu"))
    high = torch.tensor([0.0, 0.0, 9.0])
    shifted = given._replace(robot=_Shifted(given.robot, high))
    with pytest.raises(WrongResultError, match="a sphere is off"):
        functions.kinematics(shifted)
    empty = given._replace(world=MeshWorld(device="cpu"))
    for wrong in ("configurations", "joint_path_proof", "joint_path_costs", "planner"):
        with pytest.raises(WrongResultError):
            getattr(functions, wrong)(empty)
    with pytest.raises(WrongResultError):
        functions.joint_path_bounds(empty)


class _Shifted:
    """A robot whose spheres are elsewhere."""

    def __init__(self, robot: RobotSpheres, by: torch.Tensor) -> None:
        self.robot, self.by = robot, by

    def __call__(self, joints: torch.Tensor) -> torch.Tensor:
        spheres = self.robot(joints).clone()
        spheres[..., :3] += self.by
        return spheres


def row_of(planner: str, index: int, **what) -> dict:
    row = {"type": "cage", "index": index, "planner": planner, "possible": True, "solved": True}
    row |= {"refused": False, "seconds": 0.5, "iterations": 10, "reason": "", "length": 3.0}
    return row | {"clearance": 0.01} | what


def test_reports(tmp_path: Path) -> None:
    """Counts, quantiles, what was not solved, and rows of planners that are not run again."""
    options = Namespace(every=1, limit=5.0, planners=["optimize_paths", "RRT-Connect"])
    rows = [row_of("optimize_paths", i, length=2.0 + 0.01 * i) for i in range(100)]
    rows += [row_of("RRT-Connect", i, length=3.0) for i in range(100)]
    rows[7] |= {"solved": False, "reason": "no path proven free"}
    rows[8] |= {"solved": False, "possible": False, "reason": "goal in collision"}
    results = plan_report.replaced({}, "panda", rows, options)
    text = plan_report.markdown(results)
    line = "| 98/99 | 99.0% | 0.500 | 0.500 | 10 | 10 | 2.50 | 2.94 | 10.0 | 0 |"
    assert f"| panda | optimize_paths {line}" in text
    assert f"| `cage` | optimize_paths {line}" in text
    assert "- panda `cage/0007`, optimize_paths: no path proven free" in text
    assert "- panda `cage/0008`: goal in collision" in text.partition("count nowhere")[2]
    assert plan_report.unsolved(results, "panda", ["optimize_paths"]) == [("cage", 7)]
    assert plan_report.unsolved(results, "panda", ["RRT-Connect"]) == []
    alone = Namespace(**{**vars(options), "planners": ["RRT-Connect"]})
    assert plan_report.replaced(results, "panda", rows[100:], alone) == results
    plan_report.write(results, tmp_path / "plan.json")
    assert plan_report.read(tmp_path / "plan.json") == results


def test_results_of_problems_with_near_ends() -> None:
    """Ends that are free, but nearer than the margin, are planned from and to.

    One takes longer than the 30 s that problems were given, as another one of the same robot.
    """
    rows = {
        (robot, row["type"], row["index"]): row
        for robot, run in plan_report.read(RESULTS / "plan.json").items()
        for row in run["rows"]
        if row["planner"] == "optimize_paths"
    }
    near = [rows[robot, *which] for robot, some in problems.NEAR_ENDS.items() for which in some]
    assert len(near) == 13
    assert all(row["possible"] and not row["refused"] for row in near)
    solved = [row for row in near if row["solved"]]
    assert len(solved) == 12
    assert all(0.0 < row["clearance"] < MARGIN for row in solved)
    assert all("no path proven free" in row["reason"] for row in near if not row["solved"])
