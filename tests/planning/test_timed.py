"""Joint paths with time: judged by samples in float64, and by polynomials of SciPy."""

import numpy as np
import pytest
import torch
from scipy.interpolate import BPoly

import joint_paths
from cases import mostly_slow
from joint_paths import load_crane, random_paths
from warp_collision import Cuboid, Cylinder, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import TimedPaths, optimize_paths, timed
from warp_collision.planning.rest_to_rest import corners_of, unit_motion
from warp_collision.robot import RobotSpheres, joint_path_in_collision

ACCELERATION, JERK = 15.0, 500.0
# By how much rounding may exceed a limit, relative.
ROUNDING = 1e-9


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


def polynomial(curve, row: int) -> BPoly:
    """The same curve in SciPy."""
    coefficients = curve.coefficients[row].numpy()
    return BPoly(np.swapaxes(coefficients, 0, 1), curve.times[row].numpy())


def judge(found: TimedPaths, paths, limits, jerk_is_limited=True) -> None:
    """Ends, rest, smoothness and limits, at 10 kHz and on both sides of each knot."""
    for row, path in enumerate(paths.double().cpu().numpy()):
        curve = polynomial(found.curve, row)
        begin, end = curve.x[[0, -1]]
        assert begin == 0.0
        assert end == pytest.approx(found.duration[row].item(), abs=1e-12)
        assert np.array_equal(curve(begin), path[0])
        assert np.array_equal(curve(end), path[-1])
        knots = curve.x[1:-1]
        shares = found.velocity_share, found.acceleration_share, found.jerk_share
        times = np.arange(begin, end, 1e-4)
        for order, (limit, share) in enumerate(zip(limits, shares, strict=True), 1):
            motion = curve.derivative(order)
            largest = (np.abs(motion(times)).max(0) / limit).max()
            assert largest <= share[row].item() + ROUNDING
            assert share[row].item() <= 1.0
            if order < 3 and (order == 1 or jerk_is_limited):
                scale = limit * np.ones(path.shape[1])
                assert (np.abs(motion([begin, end])) <= 1e-7 * scale).all()
                jump = np.abs(motion(knots) - motion(knots * (1.0 - 1e-15) - 1e-15))
                assert (jump <= 1e-6 * scale).all()


def smallest_clearance(robot, found: TimedPaths, row: int, boxes) -> float:
    """At samples of 1 ms."""
    times = np.arange(0.0, found.duration[row].item(), 1e-3)
    joints = torch.from_numpy(polynomial(found.curve, row)(times))
    values = [joint_paths.clearance(robot(part), boxes).min() for part in joints.split(512)]
    return min(float(value) for value in values)


def free_paths(robot, world, rng, batch: int, horizon: int) -> torch.Tensor:
    """Random paths that are proven free."""
    paths = random_paths(robot, rng, 200, horizon, 0.8)
    low, high = robot.joint_limits.unbind(-1)
    paths = paths.clamp(low, high)
    hits = joint_path_in_collision(paths.to(world.device), robot, world).any(1).cpu()
    assert (~hits).sum() >= batch
    return paths[~hits][:batch].to(world.device)


@pytest.mark.parametrize("seed", mostly_slow(range(12), (0,)))
@pytest.mark.parametrize("name", ["panda", "crane"])
def test_curves_touch_nothing_and_keep_limits(robots, name, seed, device):
    robot, rng = robots[name], np.random.default_rng(100 + seed)
    reach = robot(random_paths(robot, rng, 20, 1, 1.0)[:, 0].double())[..., :3].reshape(-1, 3)
    boxes = joint_paths.plates_and_posts(rng, 6, reach[reach.norm(dim=-1) > 0.65])
    world = joint_paths.world_of(boxes, device)
    paths = free_paths(robot, world, rng, 3, int(rng.integers(3, 7)))
    velocity = rng.uniform(1.0, 3.0, robot.n_joints)
    limits = velocity, rng.uniform(5.0, 20.0, robot.n_joints), rng.uniform(50.0, 900.0)
    options = dict(zip(("velocity", "acceleration", "jerk"), limits, strict=True))
    found = timed(paths, robot, world, **options)
    stopping = timed(paths, robot, world, **options, max_iterations=0)
    assert found.free.all()
    assert stopping.free.all()
    assert stopping.stops.all()
    assert (found.duration <= stopping.duration + 1e-6).all()
    assert (~found.stops).any()
    for each in (found, stopping):
        judge(each, paths, limits)
        for row in range(len(paths)):
            smallest = smallest_clearance(robot, each, row, boxes)
            assert smallest > 0.0
            assert each.world_clearance[row].item() <= smallest
    low, high = robot.joint_limits.double().unbind(-1)
    points = found.curve.coefficients
    assert (points >= low - 1e-6).all()
    assert (points <= high + 1e-6).all()


def test_corners_become_wide_where_nothing_is_near(robots, device):
    """Nearly as fast as the slowest joint alone, and much faster than with stops."""
    robot = robots["panda"]
    ready = torch.tensor([0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8])
    path = ready.repeat(1, 4, 1)
    path[0, :, 0] = torch.tensor([-0.9, -0.4, 0.3, 0.9])
    path[0, 1:3, 1] += torch.tensor([0.3, -0.2])
    limits = {"velocity": 2.0, "acceleration": ACCELERATION, "jerk": JERK}
    found = timed(path.to(device), robot, MeshWorld(device=device), **limits)
    stopping = timed(path.to(device), robot, MeshWorld(device=device), max_iterations=0, **limits)
    alone = sum(unit_motion(2.0 / 1.8, ACCELERATION / 1.8, JERK / 1.8)[0])
    assert alone < found.duration.item() < 1.05 * alone
    assert stopping.duration.item() > 1.25 * alone


def test_planned_paths_among_obstacles(robots, device):
    robot, world = robots["panda"], MeshWorld(device=device)
    world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
    start = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]], device=device)
    goal = torch.tensor([[0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]], device=device)
    planned = optimize_paths(start, goal, robot, world)
    found = planned.timed(robot, world, acceleration=ACCELERATION, jerk=JERK)
    stopping = planned.timed(robot, world, acceleration=ACCELERATION, jerk=JERK, max_iterations=0)
    assert found.free.item()
    assert not found.stops.item()
    assert found.duration.item() < 0.85 * stopping.duration.item()
    velocity = robot.velocity_limits.numpy()
    judge(found, planned.joints, (velocity, ACCELERATION, JERK))


def test_a_curve_depends_on_no_other_one_of_its_batch(robots, device):
    robot, world = robots["panda"], MeshWorld(device=device)
    world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
    paths = free_paths(robot, world, np.random.default_rng(21), 3, 5)
    paths[1, 1:-1] = paths[1, :1].lerp(paths[1, -1:], 0.5)  # one with fewer corners
    limits = {"velocity": 2.0, "acceleration": ACCELERATION, "jerk": JERK}
    together = timed(paths, robot, world, **limits)
    alone = [timed(path[None], robot, world, **limits).duration.item() for path in paths]
    # Rows with fewer pieces are cut into as many as others, by which bounds change a little.
    assert together.duration.tolist() == pytest.approx(alone, rel=1e-6)


def test_the_scene_of_each_row(robots, device):
    """Envs, bases and allowed contacts are those of the paths."""
    robot, world = robots["panda"], MeshWorld(n_envs=2, device=device)
    world.add("wall", Cuboid((0.02, 2.0, 2.0)), (0.3, 0.0, 1.0, 1, 0, 0, 0), env=1)
    ready = torch.tensor([0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8])
    corner = ready + 0.1 * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    paths = torch.stack([ready - 0.2, ready, corner]).repeat(3, 1, 1).to(device)
    bases = torch.tensor([[0.0, 0, 0, 1, 0, 0, 0]] * 2 + [[-2.0, 0, 0, 1, 0, 0, 0]], device=device)
    limits = {"velocity": 2.0, "acceleration": ACCELERATION, "jerk": JERK}
    options = {"env_index": torch.tensor([0, 1, 1], dtype=torch.int32, device=device), **limits}
    found = timed(paths, robot, world, base_pose=bases, **options)
    assert found.free.tolist() == [True, False, True]
    assert found.stops.tolist() == [False, True, False]
    assert found.clearance[1].item() < 0.0
    links = [(link, "wall") for link in robot.link_names]
    assert timed(paths, robot, world, base_pose=bases, ignore=links, **options).free.all()


def test_paths_at_joint_limits_and_without_motion(robots, device):
    robot, world = robots["panda"], MeshWorld(device=device)
    low, high = robot.joint_limits.unbind(-1)
    middle = 0.5 * (low + high)
    paths = middle.repeat(2, 3, 1)
    paths[0, 0, 0], paths[0, 1:, 0] = low[0], low[0]
    paths[0, :, 2] = torch.tensor([0.0, 0.4, -0.3])
    limits = 2.0, ACCELERATION, JERK
    options = dict(zip(("velocity", "acceleration", "jerk"), limits, strict=True))
    found = timed(paths.to(device), robot, world, self_collision=False, **options)
    judge(found, paths, limits)
    assert found.duration[1].item() == pytest.approx(1e-2)
    assert (found.curve.coefficients[0, :, :, 0] >= low[0].double()).all()


def test_without_a_limit_of_jerk(robots, device):
    robot = robots["panda"]
    paths = free_paths(robot, MeshWorld(device=device), np.random.default_rng(5), 2, 4)
    limits = 2.0, ACCELERATION, np.inf
    options = dict(zip(("velocity", "acceleration", "jerk"), limits, strict=True))
    for most in (0, 60):
        found = timed(paths, robot, MeshWorld(device=device), max_iterations=most, **options)
        judge(found, paths, limits, jerk_is_limited=False)
        assert (found.jerk_share == 0.0).all()


@pytest.mark.parametrize("seed", range(40))
def test_motion_from_rest_to_rest(seed):
    """Within limits, of which it uses what the fastest motion uses."""
    rng = np.random.default_rng(seed)
    velocity, acceleration, jerk = 10.0 ** rng.uniform(-2.0, 4.0, 3)
    jerk = np.inf if seed % 8 == 0 else jerk
    durations, rows = unit_motion(velocity, acceleration, jerk)
    times = np.concatenate(([0.0], np.cumsum(durations)))
    motion = BPoly(rows.T, times)
    assert motion(times[-1]) == pytest.approx(1.0, abs=1e-12)
    used = []
    for order, limit in ((1, velocity), (2, acceleration), (3, jerk)):
        largest = np.abs(motion.derivative(order).c).max()
        assert largest <= limit * (1.0 + 1e-6)
        used.append(largest >= limit * (1.0 - 1e-6))
        if order < 3 and (order == 1 or np.isfinite(jerk)):
            assert abs(motion.derivative(order)(times[-1])) < 1e-6 * largest
    speed = motion.derivative()(times).max()
    assert used[2] or np.isinf(jerk)
    stays_fast = np.abs(rows - rows[:, :1]).max() > 0.0
    assert stays_fast
    # Constant speed, if any, is the limit; constant acceleration likewise.
    constant = motion.derivative(2).c
    for index, piece in enumerate(constant.T):
        if np.abs(piece).max() < 1e-9 * np.abs(constant).max():
            assert speed == pytest.approx(velocity, rel=1e-6)
        elif np.ptp(piece) < 1e-9 * np.abs(piece).max():
            assert np.abs(piece).max() == pytest.approx(acceleration, rel=1e-6), index


def test_known_durations():
    assert sum(unit_motion(np.inf, 1e9, 4.0)[0]) == pytest.approx(2.0)  # (32 / j)^(1/3)
    assert sum(unit_motion(np.inf, 4.0, np.inf)[0]) == pytest.approx(1.0)  # 2 / sqrt(a)
    assert sum(unit_motion(0.5, 4.0, np.inf)[0]) == pytest.approx(1 / 0.5 + 0.5 / 4.0)
    expected = 1 / 0.5 + 0.5 / 4.0 + 4.0 / 100.0
    assert sum(unit_motion(0.5, 4.0, 100.0)[0]) == pytest.approx(expected)


def test_corners():
    line = np.linspace([0.0, 0.0], [1.0, 2.0], 9)
    path = np.concatenate((line, line[-1:], [[1.5, 2.0], [2.0, 2.0], [1.7, 2.0]]))
    expected = [[0.0, 0.0], [1.0, 2.0], [2.0, 2.0], [1.7, 2.0]]
    assert np.abs(corners_of(path) - expected).max() < 1e-12
    back = np.array([[0.0, 0.0], [0.4, 0.0], [0.2, 0.0], [0.2, 0.0], [1.0, 0.0]])
    assert corners_of(back).tolist() == [[0.0, 0.0], [0.4, 0.0], [0.2, 0.0], [1.0, 0.0]]
    # Each waypoint is within the tolerance of its neighbours' line, and all of them are not.
    s = np.linspace(-1.0, 1.0, 9)[:, None]
    bow = np.concatenate((s, 1.5e-5 * s**2), axis=1)
    assert 2 < len(corners_of(bow)) < 9
    still = np.ones((4, 2))
    assert corners_of(still).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_velocities_of_urdf(robots):
    assert robots["panda"].velocity_limits.tolist()[0] == pytest.approx(2.3925)
    names = robots["crane"].joint_names
    expected = {"arm": 1.0 / 1.5}  # a wheel follows it 1.5 times as fast
    limits = dict(zip(names, robots["crane"].velocity_limits.tolist(), strict=True))
    assert limits == pytest.approx({name: expected.get(name, 1.0) for name in names})


WRONG = {
    "acceleration must be given, for all joints such as acceleration=10.0": {"acceleration": None},
    "jerk must be given": {"jerk": None},
    "acceleration must be finite, got inf for joint panda_joint1": {"acceleration": np.inf},
    "velocity must be positive, got 0 for joint panda_joint3": {"velocity": [1, 1, 0, 1, 1, 1, 1]},
    "jerk must be positive, got nan for joint panda_joint1": {"jerk": np.nan},
    "velocity must be positive, got -1": {"velocity": -1.0},
    r"velocity must be a number or have shape \(7,\), got \(3,\)": {"velocity": [1, 1, 1]},
    "jerk must have a value for each joint of the robot, got no panda_joint2": {
        "jerk": {"panda_joint1": 1.0}
    },
    "start_velocity must be finite and within the limit of the velocity, 2, got -2.5 for joint "
    "panda_joint2 in batch row 0": {"start_velocity": [0, -2.5, 0, 0, 0, 0, 0]},
    "end_velocity must be finite .*got nan for joint panda_joint1": {
        "end_velocity": np.full((1, 7), np.nan)
    },
    r"end_velocity must have shape \(1, 7\) or \(7,\), got \(2, 7\)": {
        "end_velocity": np.zeros((2, 7))
    },
    "margin must be": {"margin": 0.0},
    "max_iterations must": {"max_iterations": -1},
    r"path must have shape \(batch, horizon, n_joints\) with at least 2": {
        "path": torch.zeros(1, 1, 7)
    },
    "path must be finite": {"path": torch.full((1, 2, 7), torch.nan)},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(robots, message):
    options = {"velocity": 2.0, "acceleration": 1.0, "jerk": 10.0, "path": torch.zeros(1, 2, 7)}
    options |= WRONG[message]
    with pytest.raises(ValueError, match=message):
        timed(options.pop("path"), robots["panda"], MeshWorld(), **options)


@pytest.mark.parametrize("jerk", [JERK, np.inf])
def test_curves_that_begin_and_end_with_velocities(robots, jerk, device):
    """Along the path and not, in one row each; a row at rest is what it is without them."""
    robot, world, rng = robots["panda"], MeshWorld(device=device), np.random.default_rng(8)
    paths = free_paths(robot, world, rng, 3, 4)
    limits = {"velocity": 2.0, "acceleration": ACCELERATION, "jerk": jerk}
    along = (paths[:, 1] - paths[:, 0]).cpu().double().numpy()
    begin = 0.7 * along / np.abs(along).max(axis=1, keepdims=True)
    begin[1], begin[2] = rng.uniform(-0.5, 0.5, 7), 0.0
    end = np.zeros((3, 7))
    end[:2] = rng.uniform(-0.4, 0.4, (2, 7))
    options = {"start_velocity": begin, "end_velocity": torch.from_numpy(end), **limits}
    for most in (0, 60):
        found = timed(paths, robot, world, self_collision=False, max_iterations=most, **options)
        assert found.free.all()
        rest = timed(paths[2:], robot, world, self_collision=False, max_iterations=most, **limits)
        assert found.duration[2].item() == pytest.approx(rest.duration.item(), rel=1e-2)
        for row in range(3):
            curve, last = polynomial(found.curve, row), found.duration[row].item()
            assert np.abs(curve(0.0) - paths[row, 0].cpu().double().numpy()).max() < 1e-9
            assert np.abs(curve(last) - paths[row, -1].cpu().double().numpy()).max() < 1e-9
            rates = curve.derivative()
            assert np.abs(rates(0.0) - begin[row]).max() < 1e-9
            assert np.abs(rates(last) - end[row]).max() < 1e-6
            times = np.linspace(0.0, last, 20_001)
            limit = 2.0, ACCELERATION, jerk
            for order, most_of in enumerate(limit[: 3 if np.isfinite(jerk) else 2], 1):
                values = np.abs(curve.derivative(order)(times))
                assert values.max() <= most_of * (1.0 + ROUNDING)
            assert np.abs(np.diff(rates(times), axis=0)).max() <= 1.01 * ACCELERATION * times[1]
    assert found.velocity_share.max() <= 1.0


def test_braking_that_touches_is_not_free(robots, device):
    robot, world = robots["panda"], MeshWorld(device=device)
    ready = torch.tensor([0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8])
    path = torch.stack((ready, ready + 0.3 * torch.eye(7)[0]))[None].to(device)
    hand = robot(path[:, :1])[0, 0, -1, :3].cpu()
    world.add("plate", Cuboid((0.5, 0.01, 0.5)), (0.5, hand[1].item() - 0.2, 0.5, 1, 0, 0, 0))
    limits = {"velocity": 2.0, "acceleration": 3.0, "jerk": JERK}
    away, toward = ([sign, 0, 0, 0, 0, 0, 0] for sign in (1.5, -1.5))
    assert timed(path, robot, world, **limits, start_velocity=away).free.all()
    assert not timed(path, robot, world, **limits, start_velocity=toward).free.any()


def test_braking_stays_within_joint_limits(robots):
    """The room is that of the distance of braking, on either side, at either end."""
    robot, rng = robots["panda"], np.random.default_rng(12)
    low, high = robot.joint_limits.double().numpy().T
    limits = {"velocity": 2.0, "acceleration": 10.0, "jerk": np.inf}
    for side, end in ((-1.0, "start_velocity"), (1.0, "start_velocity"), (1.0, "end_velocity")):
        path = torch.from_numpy(
            rng.uniform(0.7 * low + 0.3 * high, 0.3 * low + 0.7 * high, (2, 3, 7))
        )
        joint, speed = rng.integers(7), rng.uniform(0.5, 1.5)
        velocity = np.zeros((2, 7))
        velocity[1, joint] = side * speed if end == "start_velocity" else -side * speed
        at = 0 if end == "start_velocity" else -1
        limit, way = (high if side > 0.0 else low)[joint], 0.5 * speed**2 / 10.0
        options = {"self_collision": False, "max_iterations": 0, end: velocity, **limits}
        path[1, at, joint] = limit - side * 1.01 * way
        timed(path.float(), robot, MeshWorld(), **options)
        path[1, at, joint] = limit - side * 0.9 * way
        message = f"{end} must leave room .*joint {robot.joint_names[joint]} in batch row 1"
        with pytest.raises(ValueError, match=message) as error:
            timed(path.float(), robot, MeshWorld(), **options)
        rest = float(str(error.value).split(" rest at ")[1].split()[0])
        assert rest == pytest.approx(limit + side * 0.1 * way, abs=1e-5)
        # A path that is beyond the limit itself may brake towards it.
        path[1, at, joint], options[end] = limit + side * 2.0 * way, -velocity
        timed(path.float(), robot, MeshWorld(), **options)


@pytest.mark.parametrize("name", ["velocity", "acceleration", "jerk"])
def test_a_path_without_a_finite_time_names_joint_and_piece(robots, name):
    path = torch.zeros(2, 3, 7)
    path[:, 1:, 0] = 0.4
    path[1, 2, 3] = -0.5
    options = {"velocity": 2.0, "acceleration": 10.0, "jerk": 500.0}
    options[name] = [1.0, 1.0, 1.0, 5e-324, 1.0, 1.0, 1.0]
    message = f"finite time.*joint panda_joint4 on piece 1 .*batch row 1: .* limit of the {name} is"
    with pytest.raises(ValueError, match=message):
        timed(path, robots["panda"], MeshWorld(), **options)


def test_limits_that_the_urdf_has_not(robots):
    robot = load_panda()
    robot.velocity_limits[4] = torch.inf
    with pytest.raises(ValueError, match=r"velocity must be given.*none for joint panda_joint5"):
        timed(torch.zeros(1, 2, 7), robot, MeshWorld(), acceleration=1.0, jerk=1.0)
    with pytest.raises(TypeError, match="jerk must be numbers"):
        timed(torch.zeros(1, 2, 7), robot, MeshWorld(), velocity=1.0, acceleration=1.0, jerk="fast")
