"""A planner whose options are validated once: the paths of `optimize_paths`, call after call."""

import pytest
import torch

from warp_collision import Cuboid, Cylinder, MeshWorld, RobotSpheres
from warp_collision.examples import load_panda
from warp_collision.planning import PlannedPaths, Planner, optimize_paths, planner
from warp_collision.robot import joint_path_in_collision

LEFT = [-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
RIGHT = [0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
HIGH = [0.1, -0.9, 0.2, -1.4, -0.3, 1.2, 0.1]
ENDS = [[LEFT, RIGHT, HIGH], [RIGHT, HIGH, LEFT]]


def posts(device: torch.device) -> MeshWorld:
    world = MeshWorld(2, max_obstacles=4, device=device)
    world.add("post", Cylinder(0.04, 1.2), (0.5, 0.05, 0.5, 0.98, 0.1, 0.17, 0), env=0)
    world.add("plate", Cuboid((0.5, 0.3, 0.02)), (0.55, 0.1, 0.35, 0.96, 0, 0.1, 0.26), env=1)
    return world


def require_same(found: PlannedPaths, expected: PlannedPaths) -> None:
    for name in ("joints", "free", "length", "iterations", "margin", "has_preferred_clearance"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_paths_are_those_of_the_function(device):
    robot, world = load_panda(), posts(device)
    options = {"until": "first", "margin": 5e-4, "preferred_clearance": 0.02, "horizon": 20}
    keep = Planner(robot, world, **options)
    start, goal = torch.tensor(ENDS, device=device)
    base = torch.tensor([0.1, -0.02, 0.03, 0.99, 0.0, 0.0, 0.1], device=device)
    envs = torch.tensor([1, 0, 1], dtype=torch.int32, device=device)
    for rows in (slice(0, 1), slice(0, 3), slice(1, 2)):
        for call in ({}, {"env_index": envs[rows]}, {"base_pose": base}):
            ends = start[rows], goal[rows]
            expected = optimize_paths(*ends, robot, world, **options, **call)
            require_same(keep.plan(*ends, **call), expected)
            assert expected.free.all()
    seeded = [torch.Generator().manual_seed(5) for _ in range(2)]
    found = keep.plan(start, goal, generator=seeded[0])
    other = optimize_paths(start, goal, robot, world, **options, generator=seeded[1])
    require_same(found, other)
    assert not torch.equal(found.joints, keep.plan(start, goal).joints)


def test_later_plans_notice_what_has_changed(device):
    """Obstacles that are added or moved, and objects that are attached and detached."""
    robot, world = load_panda(), posts(device)
    start, goal = (torch.tensor([row], device=device) for row in (LEFT, RIGHT))
    keep, lengths = Planner(robot, world, until="first"), []

    def look() -> torch.Tensor:
        expected = optimize_paths(start, goal, robot, world, until="first")
        require_same(keep.plan(start, goal), expected)
        lengths.append(expected.length.item())
        return expected.joints

    look()
    world.add("table", Cuboid((1.0, 1.5, 0.1)), (0.6, 0.0, 0.1, 1, 0, 0, 0))
    before = look()
    robot.attach("can", "panda_hand", Cuboid((0.1, 0.1, 0.16)), pose=(0, 0, 0.18, 1, 0, 0, 0))
    assert joint_path_in_collision(before, robot, world).any()
    look()
    robot.detach("can")
    look()
    world.enable("post", False)
    look()
    assert lengths[1] == lengths[3] != lengths[2]
    assert lengths[4] == pytest.approx(1.8, abs=1e-5)


def test_later_plans_notice_links_that_are_allowed_to_touch():
    robot, world = load_panda(), MeshWorld()
    folded = torch.tensor([[-2.58, 0.169, -1.856, -3.032, 2.636, 3.354, -2.96]])
    keep = Planner(robot, world, on_invalid_endpoints="mark")
    assert keep.plan(folded, folded + 0.002).free.tolist() == [False]
    for link in robot.link_names:
        for other in robot.link_names:
            if link < other:
                robot.allow(link, other)
    assert keep.plan(folded, folded + 0.002).free.tolist() == [True]


def test_options_are_validated_once(monkeypatch):
    robot, world = load_panda(), posts(torch.device("cpu"))
    keep = Planner(robot, world, until="first")
    for name in ("_require_counts", "_require_amounts", "_require_choices", "require_callables"):
        monkeypatch.delattr(planner, name)
    start, goal = torch.tensor([HIGH]), torch.tensor([LEFT])
    assert keep.plan(start, goal).free.all()
    with pytest.raises(NameError, match="_require_counts"):
        Planner(robot, world)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"until": "now"}, "until must be 'first' or 'converged', got 'now'"),
        ({"horizon": 1}, "horizon must be at least 2, got 1"),
        ({"margin": 0.0}, "margin must be positive"),
        ({"terms": [3]}, "terms must be callables, got int"),
        ({"ignore": [("panda_hand", "pst")]}, "pst"),
        ({"shapes": "boxes"}, "shapes must be"),
        ({"times": torch.zeros(2)}, "limits must be given with times and poses, got None"),
        ({"hurry": True}, "options must be those of optimize_paths but not of plan, got 'hurry'"),
    ],
)
def test_bad_options_raise_when_it_is_made(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Planner(load_panda(), posts(torch.device("cpu")), **options)


def test_bad_calls_raise(device):
    robot: RobotSpheres = load_panda()
    keep = Planner(robot, posts(device), until="first")
    start, goal = torch.tensor(ENDS, device=device)
    with pytest.raises(ValueError, match="goal must have the shape of start"):
        keep.plan(start, goal[:1])
    with pytest.raises(ValueError, match=r"goal must be finite, got nan in batch row 2 for"):
        keep.plan(start, torch.where(torch.arange(3, device=device)[:, None] == 2, torch.nan, goal))
    with pytest.raises(ValueError, match=r"env_index must be in \[0, 2\), got 2"):
        keep.plan(start, goal, env_index=torch.tensor([0, 1, 2], device=device))
    with pytest.raises(TypeError, match="start must be a float32 or float64 tensor"):
        keep.plan(ENDS[0], goal)
