"""First paths by one launch on a CPU: what the planner finds by its other functions, too.

A planner that reports progress uses those.
"""

from typing import Any

import pytest
import torch

from warp_collision import Cuboid, Cylinder, MeshWorld, RobotSpheres, joint_path_in_collision
from warp_collision.examples import load_panda, load_problem, problem_names
from warp_collision.planning import PlannedPaths, Planner
from warp_collision.planning.rrt_connect import FirstPaths, TreesInLanes

LEFT = [-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
RIGHT = [0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


@pytest.fixture
def begun(monkeypatch) -> list[str]:
    """Which trees were begun."""
    seen: list[str] = []
    for kind in (FirstPaths, TreesInLanes):
        begin = kind._begin

        def note(self: Any, *args: Any, begin: Any = begin, kind: Any = kind) -> None:
            if type(self) is kind:
                seen.append(kind.__name__)
            begin(self, *args)

        monkeypatch.setattr(kind, "_begin", note)
    return seen


def plan_both_ways(planner: Planner, ends: torch.Tensor, **call: Any) -> PlannedPaths:
    """Plans (n, 2, n_joints) by one launch as far as it goes; the other functions find the same.

    To the bit, but for the points of straight lines.
    """
    start, goal = ends.unbind(1)
    call["generator"] = torch.Generator().manual_seed(4)
    found = planner.plan(start, goal, **call)
    call["generator"].manual_seed(4)
    other = planner.plan(start, goal, progress=lambda step: None, **call)
    for name in ("free", "iterations", "has_preferred_clearance", "margin"):
        assert torch.equal(getattr(found, name), getattr(other, name)), name
    assert found.near_ends == other.near_ends
    bent = found.iterations > 0
    assert torch.equal(found.joints[bent], other.joints[bent])
    torch.testing.assert_close(found.joints, other.joints, rtol=0.0, atol=1e-6)
    torch.testing.assert_close(found.length, other.length)
    assert all(values.isnan().all() for values in found[2:6])
    return found


def posts(n_envs: int = 1) -> MeshWorld:
    """A post between the ends in all envs but the last of several, where nothing is."""
    world = MeshWorld(n_envs, max_obstacles=5, device="cpu")
    for env in range(max(n_envs - 1, 1)):
        world.add("post", Cylinder(0.05, 1.0 + 0.1 * env), (0.5, 0.0, 0.5, 1, 0, 0, 0), env=env)
    return world


@pytest.mark.parametrize("name", problem_names()[::7])
def test_a_launch_finds_what_the_other_functions_find(panda, begun, name):
    problem = load_problem(name)
    world = MeshWorld(max_obstacles=40, device="cpu")
    for other, obstacle in problem.obstacles.items():
        world.add(other, obstacle.geometry, obstacle.pose)
    planner = Planner(panda, world, until="first", margin=5e-4)
    found = plan_both_ways(planner, torch.tensor([[problem.start, problem.goal]]))
    assert found.free.all()
    assert begun == ["FirstPaths"] + ["TreesInLanes"] * int(found.iterations > 0)
    assert not joint_path_in_collision(found.joints, panda, world, tolerance=5e-4).any()


def test_problems_of_several_envs_bases_and_options(panda, begun):
    """Straight lines among them, a tool in the hand, and an obstacle that is ignored."""
    world, panda = posts(4), load_panda()
    panda.attach("tool", "panda_hand", Cuboid((0.02, 0.03, 0.1)), pose=(0, 0, 0.12, 1, 0, 0, 0))
    for env in range(2):
        world.add("at hand", Cuboid((0.1, 0.1, 0.1)), (0.4, -0.5, 0.5, 1, 0, 0, 0), env=env)
    ends = torch.tensor([[LEFT, RIGHT], [RIGHT, LEFT], [LEFT, RIGHT], [LEFT, RIGHT], [LEFT, LEFT]])
    base = torch.tensor([0.02, -0.03, 0.01, 1.0, 0.02, -0.01, 0.03]).repeat(5, 1)
    base[2, :3] += 0.02
    base[:, 3:] = torch.nn.functional.normalize(base[:, 3:])
    names = "link5", "link6", "link7", "hand", "leftfinger", "rightfinger"
    links = [*(f"panda_{name}" for name in names), "tool"]
    options: dict[str, Any] = {"ignore": [(link, "at hand") for link in links]}
    for horizon, clearance in ((32, 0.01), (9, 0.08), (100, 0.0)):
        planner = Planner(
            panda, world, until="first", horizon=horizon, preferred_clearance=clearance, **options
        )
        env_index = torch.tensor([0, 1, 2, 3, 0], dtype=torch.int32)
        found = plan_both_ways(planner, ends, env_index=env_index, base_pose=base)
        assert found.free.all()
        assert found.iterations.tolist()[3:] == [0, 0]
        assert (found.iterations[:3] > 0).all()
        assert begun == ["FirstPaths", "TreesInLanes"]
        begun.clear()


def test_problems_that_are_not_solved_at_once_go_on(panda, begun):
    """Beside one that is, and one without a path; rounds are counted on."""
    world = posts(3)
    for x in (1.16, -1.16):  # a wall with a hole for the shoulder alone
        world.add(f"wall at {x}", Cuboid((2.0, 0.01, 4.0)), (x, 0.0, 1.0, 1, 0, 0, 0), env=1)
    world.add("above", Cuboid((2.0, 0.01, 2.0)), (0.0, 0.0, 1.6, 1, 0, 0, 0), env=1)
    ends = torch.tensor([[LEFT, RIGHT]]).repeat(3, 1, 1)
    planner = Planner(panda, world, until="first", max_iterations=40)
    env_index = torch.tensor([0, 1, 2], dtype=torch.int32)
    found = plan_both_ways(planner, ends, env_index=env_index)
    assert found.free.tolist() == [True, False, True]
    assert found.iterations.tolist()[1:] == [40, 0]
    assert begun == ["FirstPaths", "TreesInLanes"]  # the second are of the other functions


def test_peculiar_problems_are_left_to_the_other_functions(panda, begun):
    """Ends nearer than the margin, beside the range of joints, and paths of too many vertices."""
    world = posts()
    high = panda.joint_limits[:, 1].float()
    near = Planner(panda, world, until="first", margin=0.2)
    found = plan_both_ways(near, torch.tensor([[LEFT, RIGHT]]))
    assert found.near_ends
    assert begun == ["FirstPaths", *["TreesInLanes"] * 2]
    begun.clear()
    beside = torch.tensor([[LEFT, RIGHT]])
    beside[0, 1, 6] = high[6] + 5e-6
    assert beside[0, 1, 6] > high[6]
    assert plan_both_ways(Planner(panda, world, until="first"), beside).free.all()
    assert begun == ["FirstPaths", *["TreesInLanes"] * 2]
    begun.clear()
    few = Planner(panda, world, until="first", horizon=3)
    plan_both_ways(few, torch.tensor([[LEFT, RIGHT]]))
    assert begun[:2] == ["FirstPaths", "TreesInLanes"]


def test_bad_ends_are_named_or_marked(panda, begun):
    world = posts()
    inside = [0.0, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
    ends = torch.tensor([[LEFT, RIGHT], [LEFT, inside], [LEFT, [float("nan"), *RIGHT[1:]]]])
    planner = Planner(panda, world, until="first")
    with pytest.raises(ValueError, match=r"goal must be free .* row 1: .* in collision with post"):
        planner.plan(*ends[:2].unbind(1))
    marking = Planner(panda, world, until="first", on_invalid_endpoints="mark")
    assert plan_both_ways(marking, ends[:2]).free.tolist() == [True, False]
    start, goal = ends.unbind(1)
    assert marking.plan(start, goal).free.tolist() == [True, False, False]
