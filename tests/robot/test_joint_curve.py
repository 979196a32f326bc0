"""Joint curves: what they are made of, and proofs on them against float64 samples."""

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline, CubicSpline, PPoly, make_interp_spline

import joint_paths
from cases import mostly_slow
from joint_paths import load_crane, random_paths, sampled_on
from warp_collision import Cuboid, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.robot import (
    JointCurve,
    RobotChecker,
    RobotSpheres,
    joint_path_clearance,
    joint_path_in_collision,
)

TOLERANCE = 1e-3
# What the smallest sampled clearance may be above the smallest.
BETWEEN_SAMPLES = 1e-4
SHAPES = ("smooth", "overshooting", "cusp", "loop", "at rest", "nearly straight", "tiny", "huge")


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


def random_curve(robot, rng, batch, shape, quintic) -> JointCurve:
    """Curves of three pieces of one second, of one of `SHAPES`."""
    p = random_paths(robot, rng, batch, 4, 0.0 if shape == "at rest" else 1.0).double().numpy()
    if shape == "loop":
        p[:, 2] = p[:, 1]
    if shape in ("tiny", "huge"):
        size = {"tiny": 1e-6, "huge": 10.0}[shape]
        p = p[:, :1] + (p - p[:, :1]) * size / np.abs(np.diff(p, axis=1)).max()
    along = np.gradient(p, axis=1)
    away = rng.normal(size=p.shape)
    v = {
        "smooth": along,
        "overshooting": 4.0 * along + 0.5 * away,
        "cusp": 0.0 * along,
        "loop": 0.5 * along + 2.0 * away,
        "at rest": 0.0 * along,
        "nearly straight": along + 1e-5 * away,
        "tiny": along + 1e-6 * away,
        "huge": along,
    }[shape]
    a = rng.normal(size=p.shape) * np.abs(v) if quintic else None
    return JointCurve.from_hermite(np.arange(4.0), p, v, a)


def random_boxes(robot, rng):
    """Plates and posts where links may be, but not around the base."""
    reach = robot(random_paths(robot, rng, 20, 1, 1.0)[:, 0].double())[..., :3].reshape(-1, 3)
    return joint_paths.plates_and_posts(rng, 8, reach[reach.norm(dim=-1) > 0.65])


def check_curve(robot, curve, rng, device):
    """Every piece: never free where a sample collides, and the interval holds the smallest."""
    boxes = random_boxes(robot, rng)
    world = joint_paths.world_of(boxes, device)
    options = {"tolerance": TOLERANCE, "self_collision": False}
    hits = joint_path_in_collision(curve, robot, world, **options).cpu()
    found = joint_path_clearance(curve, robot, world, **options)
    assert hits.shape == (len(curve.times), 3)
    for row, piece in np.ndindex(*hits.shape):

        def at(s, row=row, piece=piece):
            return curve.at((s + piece).expand(len(curve.times), -1))[row]

        smallest = sampled_on(robot, at, lambda x: joint_paths.clearance(x, boxes))
        lower, upper, position = (part[row, piece].item() for part in found[:3])
        if hits[row, piece]:
            assert smallest < TOLERANCE + BETWEEN_SAMPLES
        else:
            assert smallest > 0.0
        assert lower <= smallest
        assert smallest - BETWEEN_SAMPLES <= upper <= lower + TOLERANCE
        there = robot(at(torch.tensor([position], dtype=torch.float64)))
        assert joint_paths.clearance(there, boxes).min().item() <= upper + 1e-5
    return hits.float().mean().item()


@pytest.mark.parametrize("quintic", mostly_slow((False, True), (True,)))
@pytest.mark.parametrize("name", ["panda", "crane"])
def test_no_collision_is_missed_on_curves(robots, name, quintic, device):
    rng = np.random.default_rng(50 + quintic)
    shares = [
        check_curve(robots[name], random_curve(robots[name], rng, 1, shape, quintic), rng, device)
        for shape in SHAPES[1:4]
    ]
    assert 0.0 < np.mean(shares) < 1.0


@pytest.mark.filterwarnings("ignore:joints must be in rad")
@pytest.mark.parametrize("shape", mostly_slow(SHAPES[4:], ("huge",)))
def test_no_collision_is_missed_at_extremes(robots, shape, device):
    rng = np.random.default_rng(60)
    check_curve(robots["panda"], random_curve(robots["panda"], rng, 1, shape, True), rng, device)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[:7])
@pytest.mark.parametrize("name", ["panda", "crane"])
def test_many_curves(robots, name, shape, device):
    rng = np.random.default_rng(70)
    for quintic in (False, True):
        check_curve(robots[name], random_curve(robots[name], rng, 6, shape, quintic), rng, device)


@pytest.mark.parametrize("pieces", mostly_slow((900, 1_000_000), (900,)))
def test_no_free_piece_has_a_sample_that_touches(robots, pieces, device):
    """Few samples of many pieces, at random positions."""
    rng, generator = np.random.default_rng(80), torch.Generator().manual_seed(80)
    robot = robots["crane" if pieces < 1000 else "panda"]
    n_free, batch = 0, min(pieces // 3, 1000)
    for index in range(pieces // (3 * batch)):
        shape = SHAPES[index % 7 if pieces > 1000 else 1]
        curve = random_curve(robot, rng, batch, shape, True)
        boxes = random_boxes(robot, rng)
        world = joint_paths.world_of(boxes, device)
        free = ~joint_path_in_collision(
            curve, robot, world, tolerance=1e-5, self_collision=False
        ).cpu()
        s = torch.rand(batch, 3, 8, generator=generator, dtype=torch.float64)
        at = curve.at((s + torch.arange(3)[:, None]).flatten(1)).view(batch, 3, 8, -1)
        if free.any():  # in some scenes a box is where the robot always is
            smallest = joint_paths.clearance(robot(at[free].flatten(0, 1)), boxes)
            assert smallest.min().item() > 0.0
        n_free += int(free.sum())
    assert 0.1 * pieces < n_free < pieces


@pytest.mark.parametrize("name", mostly_slow(("panda", "crane"), ("panda",)))
def test_the_robot_with_itself_on_curves(robots, name, device):
    robot, rng = robots[name], np.random.default_rng(3)
    pairs = robot.default_pairs.changing(TOLERANCE)
    rows = 1 if name == "panda" else 4  # with many pairs
    curve = random_curve(robot, rng, rows, "overshooting", True)
    empty = MeshWorld(device=device)
    hits = joint_path_in_collision(curve, robot, empty, tolerance=TOLERANCE).cpu()
    found = joint_path_clearance(curve, robot, empty, tolerance=TOLERANCE)
    for row, piece in np.ndindex(rows, 3):
        smallest = sampled_on(
            robot,
            lambda s, row=row, piece=piece: curve.at((s + piece).expand(rows, -1))[row],
            lambda x: joint_paths.gaps(x, pairs),
            speed=2.0,
        )
        assert smallest > 0.0 if not hits[row, piece] else smallest < TOLERANCE + 2e-4
        lower, upper = found.self_lower[row, piece].item(), found.self_upper[row, piece].item()
        assert lower <= smallest
        assert smallest - 2e-4 <= upper <= lower + TOLERANCE
    assert hits.float().mean() < 1.0
    assert hits.any() or name == "panda"


@pytest.mark.parametrize("degree", [2, 3, 5])
def test_a_straight_curve_of_higher_degree_is_its_chord(robots, degree, device):
    """The same answers as of waypoints, with base poses, contacts, envs and moving obstacles."""
    robot, rng = robots["panda"], np.random.default_rng(5)
    paths = random_paths(robot, rng, 6, 3, 1.0)
    world = MeshWorld(n_envs=2, max_obstacles=2, device=device)
    for env in range(2):
        world.add("box", Cuboid((0.1, 0.8, 0.1)), (0.45, 0.2, 0.5, 1, 0, 0, 0), env=env)
        world.add("post", Cuboid((0.1, 0.1, 0.7)), (0.3 * env, 0.5, 0.3, 1, 0, 0, 0), env=env)
    shares = torch.linspace(0.0, 1.0, degree + 1, dtype=torch.float64)[:, None]
    begin, end = paths[:, :-1, None].double(), paths[:, 1:, None].double()
    times = torch.arange(3.0, dtype=torch.float64).expand(6, 3)
    curve = JointCurve(times, begin + shares * (end - begin))
    options = {
        "env_index": torch.arange(6, dtype=torch.int32, device=device) % 2,
        "base_pose": (0.05, -0.1, 0.02, 0.9689124, 0.0, 0.0, 0.2474040),
        "ignore": [("panda_hand", "post")],
    }
    straight = joint_path_clearance(paths.to(device), robot, world, **options)
    curved = joint_path_clearance(curve, robot, world, **options)
    for one, other in (("world_lower", "world_upper"), ("self_lower", "self_upper")):
        assert (getattr(straight, one) <= getattr(curved, other) + 1e-5).all()
        assert (getattr(curved, one) <= getattr(straight, other) + 1e-5).all()
    moving = torch.stack([world.poses(env) for env in range(2)])[:, None].repeat(1, 3, 1, 1)
    moving[:, :, 0, 2] += torch.linspace(-0.3, 0.3, 3, device=device)
    hit = joint_path_in_collision(paths.to(device), robot, world, poses=moving, **options)
    assert torch.equal(hit, joint_path_in_collision(curve, robot, world, poses=moving, **options))
    assert 0 < hit.sum() < hit.numel()


def test_waypoints_are_what_they_were(robots, device):
    robot = robots["panda"]
    paths = random_paths(robot, np.random.default_rng(8), 8, 4, 1.0)
    world = MeshWorld(device=device)
    world.add("plate", Cuboid((0.02, 0.8, 0.8)), (0.45, 0.2, 0.5, 1, 0, 0, 0))
    straight = joint_path_clearance(paths.to(device), robot, world)
    curved = joint_path_clearance(JointCurve.from_waypoints(paths), robot, world)
    for one, other in zip(straight, curved, strict=True):
        assert torch.equal(one, other)
    checker = RobotChecker(robot, world)
    hits = checker.path_in_collision(paths.to(device))
    assert torch.equal(hits, checker.path_in_collision(JointCurve.from_waypoints(paths)))


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_splines_are_exact(degree):
    rng = np.random.default_rng(degree)
    times = np.sort(rng.uniform(0.0, 3.0, 9))
    spline = make_interp_spline(times, rng.normal(size=(9, 4)), k=degree)
    curve = JointCurve.from_spline(spline)
    asked = rng.uniform(times[0], times[-1], 50)
    assert np.abs(curve.at(asked)[0].numpy() - spline(asked)).max() < 1e-10
    slopes = curve.derivative().at(asked)[0].numpy()
    assert np.abs(slopes - spline(asked, nu=1)).max() < 1e-8
    hull = curve.derivative().largest().amax(1)[0].numpy()
    assert (hull >= np.abs(slopes).max(0)).all()


def test_a_list_of_splines_is_a_batch(robots):
    rng = np.random.default_rng(1)
    splines = [
        CubicSpline(np.linspace(0, 2, 6), rng.normal(size=(6, 7))),
        make_interp_spline(np.linspace(1, 2, 8), rng.normal(size=(8, 7)), k=5),
    ]
    curve = JointCurve.from_spline(splines)
    for row, spline in enumerate(splines):
        asked = np.linspace(1.0, 2.0, 33)
        assert np.abs(curve.at(asked)[row].numpy() - spline(asked)).max() < 1e-10
    assert curve.degree == 5
    s = np.linspace(0, 2, 20001)
    chords = np.linalg.norm(np.diff(splines[0](s), axis=0), axis=1).sum()
    assert curve.length[0].item() == pytest.approx(chords, rel=1e-4)
    assert curve.duration.tolist() == pytest.approx([2.0, 1.0])


def test_checker_takes_curves(robots, device):
    robot = robots["panda"]
    curve = random_curve(robot, np.random.default_rng(4), 2, "overshooting", False)
    world = MeshWorld(device=device)
    world.add("plate", Cuboid((0.02, 0.8, 0.8)), (0.45, 0.2, 0.5, 1, 0, 0, 0))
    expected = joint_path_in_collision(curve, robot, world)
    assert torch.equal(RobotChecker(robot, world).path_in_collision(curve), expected)


ZEROS = np.zeros((3, 7))
WRONG = {
    "times must grow, got 1 before 1 at index 1": lambda: JointCurve.from_waypoints(
        ZEROS, [0.0, 1.0, 1.0]
    ),
    "times must be finite, got nan at": lambda: JointCurve.from_samples([0.0, np.nan, 1.0], ZEROS),
    "positions must be finite": lambda: JointCurve.from_hermite([0, 1, 2], ZEROS + np.inf, ZEROS),
    r"joints must be finite, got nan at \(0, 0\)": lambda: JointCurve.from_waypoints(
        ZEROS * np.nan
    ),
    r"velocities must be finite, got nan at \(0, 0\)": lambda: JointCurve.from_hermite(
        [0, 1, 2], ZEROS, ZEROS * np.nan
    ),
    r"accelerations must be finite, got nan at \(0, 0\)": lambda: JointCurve.from_hermite(
        [0, 1, 2], ZEROS, ZEROS, ZEROS * np.nan
    ),
    r"spline must be finite, got nan at \(0, 0, 0\)": lambda: JointCurve.from_spline(
        PPoly(np.full((4, 2, 7), np.nan), range(3))
    ),
    r"coefficients must be finite, got nan at \(0, 0, 0\)": lambda: JointCurve.from_pieces(
        [(np.arange(2.0), np.zeros((1, 2, 7))), (np.arange(2.0), np.full((1, 2, 7), np.nan))]
    ),
    "velocities must have shape": lambda: JointCurve.from_hermite([0, 1, 2], ZEROS, ZEROS[:2]),
    "joints must have shape": lambda: JointCurve.from_waypoints(ZEROS[:1]),
    "splines must have degree 5 or less, got 6": lambda: JointCurve.from_spline(
        BSpline(np.arange(20.0), np.zeros((13, 7)), 6)
    ),
    "splines must have values of shape": lambda: JointCurve.from_spline(
        CubicSpline([0.0, 1.0], [0.0, 1.0])
    ),
    "an empty list": lambda: JointCurve.from_spline([]),
    "splines must have the same joints": lambda: JointCurve.from_spline(
        [CubicSpline(range(3), ZEROS), CubicSpline(range(3), ZEROS[:, :2])]
    ),
    r"coefficients of a curve must have shape.*degree of 0 to 5, got \(1, 2, 7, 3\)": lambda: (
        JointCurve(torch.arange(3.0)[None], torch.zeros(1, 2, 7, 3))
    ),
    r"times of a curve must have shape.*\(1, 3\) as its coefficients have, got \(1, 2\)": lambda: (
        JointCurve(torch.arange(2.0)[None], torch.zeros(1, 2, 4, 3))
    ),
    "times must grow, got 1 before 0 at index 0 in batch row 1": lambda: JointCurve(
        torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.zeros(2, 1, 2, 3)
    ),
    "times must be finite, got inf": lambda: JointCurve(
        torch.tensor([[0.0, torch.inf]]), torch.zeros(1, 1, 2, 3)
    ),
    "dt must be positive, got 0": lambda: JointCurve.from_waypoints(ZEROS).sample(0.0),
    "dt must be finite, got nan": lambda: JointCurve.from_waypoints(ZEROS).sample(np.nan),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_curves(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


def test_wrong_types():
    with pytest.raises(TypeError, match="spline must be a BSpline"):
        JointCurve.from_spline("spline")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"coefficients of a curve must be.*got torch.int64"):
        JointCurve(torch.arange(2.0)[None], torch.zeros(1, 1, 2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match="dt must be a number, got bool"):
        JointCurve.from_waypoints(ZEROS).sample(True)
    with pytest.raises(TypeError, match="joints must be numbers"):
        JointCurve.from_waypoints("waypoints")


def test_curves_that_jump_are_no_path(robots):
    jumping = JointCurve.from_spline(PPoly(np.array([np.ones((2, 7)) * [[0], [1]]]), [0, 1, 2]))
    with pytest.raises(ValueError, match=r"must not jump, got a step of 1 of joint 0 at 1 s"):
        joint_path_in_collision(jumping, robots["panda"], MeshWorld())
    with pytest.raises(ValueError, match="a curve of the robot's 7 joints, got one of 3"):
        joint_path_in_collision(
            JointCurve.from_waypoints(ZEROS[:, :3]), robots["panda"], MeshWorld()
        )
