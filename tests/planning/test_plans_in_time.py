"""Plans among obstacles that move: they wait, or go round, and are proven in time."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation, Slerp

from warp_collision import Cuboid, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import Planner, optimize_paths
from warp_collision.poses import poses_between
from warp_collision.robot import JointCurve

START = torch.tensor([[-0.7, 0.4, 0.0, -1.7, 0.0, 2.1, 0.8]])
GOAL = torch.tensor([[0.7, 0.4, 0.0, -1.7, 0.0, 2.1, 0.8]])
BELT, LENGTH, WALL = (2.0, 0.3, 0.1), 0.2, 1.2
LIMITS = {"velocity": 2.0, "acceleration": 15.0, "jerk": 500.0}


@pytest.fixture(scope="module")
def panda():
    return load_panda()


def conveyor(
    device: torch.device, x: float, seconds: float, length: float = LENGTH
) -> tuple[MeshWorld, torch.Tensor, torch.Tensor]:
    """A tall box that goes away along x, from across the robot's way, and a belt that rests."""
    world = MeshWorld(device=device)
    world.add("belt", Cuboid(BELT), (0.9, 0.0, -0.1, 1, 0, 0, 0))
    world.add("box", Cuboid((length, 0.2, 1.6)), (x, 0.0, 0.8, 1, 0, 0, 0))
    poses = world.poses().repeat(3, 1, 1)
    poses[1, 1, 0], poses[2, 1, 0] = x + 0.2, x + 1.2
    poses[2, 1, 3:] = torch.tensor([0.8, 0.0, 0.0, 0.6], device=device)
    return world, torch.tensor([0.0, 0.4 * seconds, seconds]), poses


def smallest_gap(found, panda, times, poses, length=LENGTH) -> float:
    """The least clearance to both boxes at samples of 2 ms, in float64, poses by SciPy [m]."""
    at = np.arange(0.0, found.motion.duration[0].item(), 2e-3)
    spheres = panda(found.motion.curve.at(at)[0].float()).double().numpy()
    inside, least = np.clip(at, 0.0, times[-1].item()), np.inf
    for k, size in enumerate((BELT, (length, 0.2, 1.6))):
        rows = poses[:, k].cpu().double().numpy()
        turns = Slerp(times.numpy(), Rotation.from_quat(rows[:, [4, 5, 6, 3]]))(inside).as_matrix()
        place = np.stack([np.interp(inside, times, rows[:, i]) for i in range(3)], axis=1)
        local = np.einsum("tij,tsi->tsj", turns, spheres[..., :3] - place[:, None])
        beyond = np.abs(local) - 0.5 * np.array(size)
        away = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1) + np.minimum(beyond.max(-1), 0.0)
        least = min(least, float((away - spheres[..., 3]).min()))
    return least


def test_it_waits_for_what_goes_away(panda, device):
    world, times, poses = conveyor(device, 0.3 + 0.5 * WALL, 0.6, WALL)
    start, goal = START.to(device), GOAL.to(device)
    found = optimize_paths(start, goal, panda, world, limits=LIMITS, times=times, poses=poses)
    assert found.free.all()
    least = smallest_gap(found, panda, times, poses, WALL)
    assert 0.0 <= found.motion.world_clearance.item() <= least + 1e-5
    alone = optimize_paths(start, goal, panda, world, limits=LIMITS, ignore=every(panda))
    assert found.motion.duration.item() > alone.motion.duration.item() + 0.05
    still = found.motion.curve.at([0.05])[0, 0].float()
    assert torch.equal(still, START[0])
    assert found.cost.item() == pytest.approx(found.motion.duration.item(), rel=1e-6)


def test_it_goes_round_what_leaves_late(panda, device):
    world, times, poses = conveyor(device, 0.55, 30.0)
    start, goal = START.to(device), GOAL.to(device)
    found = optimize_paths(start, goal, panda, world, limits=LIMITS, times=times, poses=poses)
    assert found.free.all()
    least = smallest_gap(found, panda, times, poses)
    assert 0.0 <= found.motion.world_clearance.item() <= least + 1e-5
    assert found.motion.duration.item() < 5.0


def test_it_says_where_nothing_is_proven(panda, device):
    """A box that comes to the goal, and stays."""
    world, times, poses = conveyor(device, 1.5, 0.2)
    hand = panda(GOAL)[0, :, :3].amax(0)
    poses[1:, 1, :2] = torch.tensor([0.4, 0.35])
    found = optimize_paths(
        *(START.to(device), GOAL.to(device), panda, world),
        **{"limits": LIMITS, "times": times, "poses": poses},
    )
    assert hand[1] > 0.25
    assert found.free.tolist() == [False]
    assert found.cost.isinf().all()


def test_a_planner_notices_links_and_obstacles_that_come_and_go(device):
    """Its plans among obstacles that move are those of the function."""
    robot = load_panda()
    world, times, poses = conveyor(device, 0.55, 1.5)
    start, goal = START.to(device), GOAL.to(device)
    robot.attach("rod", "panda_hand", Cuboid((0.02, 0.02, 0.16)), pose=(0, 0, 0.18, 1, 0, 0, 0))
    given = {"limits": LIMITS, "times": times, "poses": poses, "until": "first"}
    keep = Planner(robot, world, **given)

    def require_same() -> None:
        expected = optimize_paths(start, goal, robot, world, **given)
        found = keep.plan(start, goal)
        for name in ("joints", "free", "cost"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name

    require_same()
    robot.detach("rod")
    require_same()
    # Longer: where the box stands, the hand holds it in what it is to pay no heed to.
    robot.attach("bar", "panda_hand", Cuboid((0.02, 0.02, 0.3)), pose=(0, 0, 0.25, 1, 0, 0, 0))
    require_same()
    world.add("post", Cuboid((0.1, 0.1, 0.1)), (-0.6, 0.0, 0.5, 1, 0, 0, 0))
    with pytest.raises(ValueError, match=r"poses must have shape \(3, 3, 7\)"):
        keep.plan(start, goal)


def every(panda) -> list[tuple[str, str]]:
    return [(link, "box") for link in panda.link_names]


def test_curves_with_more_knots(panda):
    rng = np.random.default_rng(2)
    curve = JointCurve.from_hermite([0.0, 1.0, 3.0], *rng.normal(size=(2, 3, 4)))
    asked = rng.uniform(-1.0, 4.0, 40)
    finer = curve.with_knots([0.5, 2.5, 1.0, 0.25, -3.0, 3.0, 9.0])
    assert finer.times.tolist() == [[0.0, 0.25, 0.5, 1.0, 2.5, 3.0]]
    assert (finer.at(asked) - curve.at(asked)).abs().max() < 1e-14
    finer.require_no_jumps()
    with pytest.raises(ValueError, match="of one curve, got a batch of 2"):
        JointCurve.from_waypoints(np.zeros((2, 2, 1))).with_knots([0.5])


def test_poses_at_any_time():
    """Against SciPy's rotations."""
    rng = np.random.default_rng(7)
    times, poses = np.array([0.0, 0.3, 1.0, 4.0]), rng.normal(size=(4, 3, 7))
    at = rng.uniform(0.0, 4.0, 50)
    found = poses_between(*(torch.from_numpy(x) for x in (times, poses, at))).numpy()
    for k in range(3):
        turns = Slerp(times, Rotation.from_quat(poses[:, k, [4, 5, 6, 3]]))(at)
        off = (Rotation.from_quat(found[:, k, [4, 5, 6, 3]]).inv() * turns).magnitude()
        assert off.max() < 1e-9
        for i in range(3):
            assert np.abs(found[:, k, i] - np.interp(at, times, poses[:, k, i])).max() < 1e-12


def test_wrong_times(panda, device):
    world, times, poses = conveyor(device, 0.55, 1.5)
    given = {"limits": LIMITS, "times": times, "poses": poses}
    wrong = {
        "limits must be given with times": {"limits": None},
        "times must begin at 0 and grow": {"times": torch.tensor([0.0, 0.0, 1.0])},
        r"times must have shape \(k,\)": {"times": torch.tensor([0.0])},
        "times must be finite": {"times": torch.tensor([0.0, torch.nan, 1.0])},
        r"poses must have shape \(3, 2, 7\)": {"poses": poses[:, :1]},
    }
    for message, change in wrong.items():
        with pytest.raises(ValueError, match=message):
            optimize_paths(START, GOAL, panda, world, **{**given, **change})
    with pytest.raises(TypeError, match="times must be a tensor, got NoneType"):
        optimize_paths(START, GOAL, panda, world, **{**given, "times": None})
    with pytest.raises(ValueError, match="one env, got 2"):
        optimize_paths(START, GOAL, panda, MeshWorld(2), **given)
