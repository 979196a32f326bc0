"""A start or goal that is proven free is planned from and to, however near something is."""

import pytest
import torch

from warp_collision import (
    Cuboid,
    MeshWorld,
    RobotSpheres,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

LOW = [-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
OTHER = [0.7, 0.1, 0.2, -1.5, 0.1, 1.7, 0.3]
HAND = 37  # the first sphere of the hand
FINGER = """
  <link name="{side}"><collision><geometry><sphere radius="0.05"/></geometry></collision></link>
  <joint name="{side}_joint" type="prismatic"><parent link="palm"/><child link="{side}"/>
    <axis xyz="{sign}1 0 0"/><limit lower="0.05" upper="0.3" effort="1" velocity="1"/></joint>"""


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


def floors(panda: RobotSpheres, gaps: list[float]) -> MeshWorld:
    """A floor in each env, so far below the hand at `LOW` [m]."""
    spheres = panda(torch.tensor(LOW))[HAND:]
    lowest = (spheres[:, 2] - spheres[:, 3]).min().item()
    center = spheres[:, :2].mean(0).tolist()
    world = MeshWorld(len(gaps), max_obstacles=1, device="cpu")
    for env, gap in enumerate(gaps):
        pose = (*center, lowest - gap - 0.1, 1, 0, 0, 0)
        world.add("floor", Cuboid((0.4, 0.4, 0.2)), pose, env=env)
    return world


def test_free_ends_below_the_margin_are_planned_from_and_to(panda):
    gaps = [0.93e-3, 0.41e-3, 3.0e-3, 0.05e-3, -0.1e-3, 0.7e-3]
    world, batch = floors(panda, gaps), len(gaps)
    index = torch.arange(batch, dtype=torch.int32)
    low, other = (torch.tensor([row] * batch) for row in (LOW, OTHER))
    is_goal = torch.arange(batch) % 2 == 1  # the low end
    start, goal = (torch.where(w[:, None], other, low) for w in (is_goal, ~is_goal))
    touches = configuration_in_collision(low, panda, world, env_index=index)
    assert touches.tolist() == [gap < 0.0 for gap in gaps]
    options = {"env_index": index, "on_invalid_endpoints": "mark"}
    for until in ("first", "converged"):
        found = optimize_paths(start, goal, panda, world, until=until, **options)
        assert found.free.tolist() == [gap > 0.0 for gap in gaps]
        assert found.margin.tolist() == pytest.approx(
            [2.5e-4, 1.25e-4, 1e-3, 1.5625e-5, 1e-3, 2.5e-4]
        )
        for row in torch.nonzero(found.free)[:, 0].tolist():
            one = slice(row, row + 1)
            own = {"tolerance": found.margin[row], "env_index": index[one]}
            path = found.joints[one]
            assert torch.equal(path[0, [0, -1]], torch.stack((start[row], goal[row])))
            assert not joint_path_in_collision(path, panda, world, **own).any()
            lower = joint_path_clearance(path, panda, world, **own | {"tolerance": 1e-5}).lower
            assert lower.min() > 0.0
        near = {(each.problem, each.end, each.obstacle) for each in found.near_ends}
        assert near == {
            (row, "goal" if is_goal[row] else "start", "floor")
            for row, gap in enumerate(gaps)
            if 0.0 < gap < 1e-3
        }
        for each in found.near_ends:
            assert each.clearance == pytest.approx(gaps[each.problem], abs=5e-6)
            assert not each.with_itself
    assert found.clearance[3] > 0.0
    assert "mm from floor" in str(found.near_ends[0])


def test_fingers_that_are_nearly_closed(tmp_path):
    """Links of the robot itself below the margin are as obstacles are, at both ends."""
    fingers = (FINGER.format(side=side, sign=sign) for side, sign in (("left", "-"), ("right", "")))
    path = tmp_path / "gripper.urdf"
    path.write_text(f'<robot name="gripper"><link name="palm"/>{"".join(fingers)}</robot>')
    robot, world = RobotSpheres(path), MeshWorld(device="cpu")
    closed = [[0.0502, 0.05044], [0.0504, 0.05003], [0.05, 0.05]]  # 0.64, 0.43 and 0 mm apart
    start = torch.tensor([closed[0], [0.2, 0.27], closed[2]])
    goal = torch.tensor([[0.13, 0.21], closed[1], [0.24, 0.11]])
    found = optimize_paths(start, goal, robot, world, on_invalid_endpoints="mark")
    assert found.free.tolist() == [True, True, False]
    near = [(each.problem, each.end, each.with_itself) for each in found.near_ends]
    assert near == [(0, "start", True), (1, "goal", True)]
    assert [each.clearance for each in found.near_ends] == pytest.approx([6.4e-4, 4.3e-4], abs=1e-6)
    assert str(found.near_ends[0]) == "left is 0.64 mm from link right"
    free, margin = found.joints[:2], found.margin[:2].min()
    assert not joint_path_in_collision(free, robot, world, tolerance=margin).any()


def test_others_are_planned_as_without_a_near_row(panda):
    world = floors(panda, [0.47e-3, 4.0e-3])
    start, goal = torch.tensor([LOW, LOW]), torch.tensor([OTHER, OTHER])
    index = torch.tensor([0, 1], dtype=torch.int32)
    both = optimize_paths(start, goal, panda, world, env_index=index)
    assert both.margin.tolist() == pytest.approx([1.25e-4, 1e-3])
    assert {near.problem for near in both.near_ends} == {0}
    hit = joint_path_in_collision(both.joints, panda, world, tolerance=1e-3, env_index=index)
    assert not hit[1].any()


def test_rows_that_are_not_finite_are_marked(panda):
    world = floors(panda, [0.2])
    nan = [float("nan"), *LOW[1:]]
    infinite = [float("inf"), *LOW[1:]]
    start = torch.tensor([LOW, nan, LOW, OTHER, LOW])
    goal = torch.tensor([OTHER, OTHER, infinite, LOW, nan])
    for until in ("first", "converged"):
        found = optimize_paths(start, goal, panda, world, until=until, on_invalid_endpoints="mark")
        assert found.free.tolist() == [True, False, False, True, False]
        assert found.joints[[0, 3]].isfinite().all()
    assert found.clearance[[0, 3]].isfinite().all()
    alone = optimize_paths(start[[0, 3]], goal[[0, 3]], panda, world)
    torch.testing.assert_close(found.length[[0, 3]], alone.length, rtol=0.05, atol=0.0)
    with pytest.raises(ValueError, match="start must be finite, got nan in batch row 1 for panda"):
        optimize_paths(start, goal, panda, world)


def test_the_error_says_what_touches(panda):
    world = floors(panda, [-1e-3])
    ends = torch.tensor([LOW]), torch.tensor([OTHER])
    with pytest.raises(ValueError, match=r"start must be free .* in collision with floor, 1\.0 mm"):
        optimize_paths(*ends, panda, world)
    world = floors(panda, [5e-6])
    with pytest.raises(ValueError, match=r"0\.00\d mm from floor, too near for a proof"):
        optimize_paths(*ends, panda, world)
