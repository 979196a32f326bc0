"""Limits of jerk, sliding along surfaces, and obstacles of several speeds, of guarded robots."""

import numpy as np
import pytest

pytest.importorskip("pinocchio", reason="the judge needs pin and coal, of the extra 'dev'")
pytest.importorskip("coal", reason="the judge needs pin and coal, of the extra 'dev'")

import guarded
from guarded import ACCELERATION, DT, KINDS, PROBLEMS, Cast
from path_judge import Scene
from warp_collision import Cuboid, MeshWorld, Sphere
from warp_collision.kernels.guard_step import NOT_PROVEN
from warp_collision.planning import MotionGuard, guard_launch

PLATE = {"dims": [1.0, 0.02, 1.0], "pose": [0.3, 0.3, 0.5, 1, 0, 0, 0]}


@pytest.fixture(scope="module")
def panda() -> Cast:
    return Cast("panda")


@pytest.fixture(scope="module")
def arm6() -> Cast:
    return Cast("arm6")


def plate() -> MeshWorld:
    """A plate beside the Panda's arm, into which its first joint turns it."""
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid(PLATE["dims"]), PLATE["pose"])
    return world


def guard_of(cast: Cast, world: MeshWorld, **options) -> MotionGuard:
    return MotionGuard(cast.robot, world, DT, **{"acceleration": ACCELERATION, **options})


class Driven:
    """A robot that a guard drives, with all that it passed on."""

    def __init__(self, guard: MotionGuard, start: np.ndarray):
        self.guard, self.q, self.v = guard, start.tolist(), [0.0] * len(start)
        self.states = [np.array([self.q, self.v, self.v])]
        self.steps: list = []

    def drive(self, commands) -> None:
        for command in commands:
            step = self.guard.step(self.q, self.v, [*command])
            self.q, self.v = step.joints, step.velocities
            self.states.append(np.array([self.q, self.v, step.accelerations]))
            self.steps.append(step)

    @property
    def moved(self) -> np.ndarray:
        """Joint values (n, n_joints)."""
        return np.array(self.states)[:, 0]


@pytest.mark.parametrize(
    ("jerk", "trials"), [(500.0, 4), pytest.param(7500.0, 40, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ["panda", "arm6"])
def test_jerk_is_limited(name, jerk, trials, request) -> None:
    """Hostile commands, then none: the robot brakes, and keeps all limits the whole time."""
    cast, rng = request.getfixturevalue(name), np.random.default_rng(21)
    velocity, (low, high) = cast.velocity, cast.robot.joint_limits.double().numpy().T
    refused = 0
    for trial in range(trials):
        is_problem = name == "panda" and trial % 2
        mapping = PROBLEMS["cage_2"] if is_problem else guarded.random_scene(rng, 9)
        scene, world = Scene.from_mapping(mapping), guarded.worlds_of([mapping])
        starts = guarded.free_starts(cast, scene, rng, 12, 2e-3)
        start = starts[cast.clearance(starts, scene).argmin()]
        driven = Driven(guard_of(cast, world, jerk=jerk), start)
        steps = int(rng.integers(300, 500))
        driven.drive(guarded.hostile(KINDS[-1 - trial % 4], rng, cast, steps, 1)[:, 0])
        time_to_rest = driven.steps[-1].time_to_rest
        driven.drive([[np.nan] * cast.n_joints] * (int(time_to_rest / DT) + 2))
        assert driven.v == [0.0] * cast.n_joints
        assert driven.steps[-1].time_to_rest == 0.0
        assert not any(step.breached for step in driven.steps)
        q, v, a = np.array(driven.states).transpose(1, 0, 2)
        assert (np.abs(v) <= velocity * (1 + 1e-8)).all()
        assert (np.abs(a) <= ACCELERATION * (1 + 1e-9)).all()
        assert (np.abs(np.diff(a, axis=0)) <= jerk * DT * (1 + 1e-6)).all()
        assert (np.abs(np.diff(v, axis=0)) <= ACCELERATION * DT * (1 + 1e-9)).all()
        # Accelerations are linear within a step that was passed on.
        passed = np.array([step.share > 0.0 for step in driven.steps])
        speeds = np.diff(v, axis=0) - 0.5 * DT * (a[1:] + a[:-1])
        ways = np.diff(q, axis=0) - DT * v[:-1] - DT**2 / 6 * (2 * a[:-1] + a[1:])
        assert np.abs(speeds[passed]).max() < 1e-12
        assert np.abs(ways[passed]).max() < 1e-12
        # In others, where phases of the braking end, they still add up to the change.
        assert np.abs(speeds).max() < jerk * DT**2
        assert (q >= np.minimum(low, start) - 1e-6).all()
        assert (q <= np.maximum(high, start) + 1e-6).all()
        assert cast.clearance(q, scene).min() > 0.0
        refused += sum(step._report[3] == NOT_PROVEN for step in driven.steps)
    assert refused > 10


def test_jerk_and_goals(panda) -> None:
    """Towards joint values, straight and without overshoot; and times of stops that add up."""
    driven = Driven(
        guard_of(panda, MeshWorld(device="cpu"), jerk=500.0, command="position"), panda.start
    )
    way = np.array([0.5, -0.3, 0.2, 0.4, 0.1, -0.6, 0.3])
    driven.drive([panda.start + way] * 2500)
    offsets = driven.moved - panda.start
    along = offsets @ way / (way @ way)
    assert np.abs(offsets - along[:, None] * way).max() < 1e-6
    assert along.max() < 1 + 1e-6
    assert along[-1] == pytest.approx(1.0, abs=1e-6)
    assert max(np.abs(driven.v)) < 1e-6


@pytest.mark.parametrize("jerk", [None, 500.0])
def test_commands_slide_along_surfaces(panda, jerk) -> None:
    """Into a plate and along it: the robot goes on along it; joints that do not move stay."""
    scene = Scene.from_mapping({"cuboid": {"plate": PLATE}})
    command, ways = [1.5, 0.3, 0, 0.4, 0, 0, 0], {}
    for slide in (True, False):
        driven = Driven(guard_of(panda, plate(), jerk=jerk, slide=slide), panda.start)
        driven.drive([command] * 1100)
        assert panda.clearance(driven.moved[::2], scene).min() > 0.0
        assert any(step.slides for step in driven.steps) == slide
        ways[slide] = driven.moved[-1] - panda.start
        assert (ways[slide][[2, 4, 5, 6]] == 0.0).all()
    assert ways[False][3] < 0.2  # at rest since it met the plate
    assert ways[True][3] > 0.33  # of 0.44 that were asked


@pytest.mark.parametrize("jerk", [None, 300.0])
def test_the_braking_is_what_follows(panda, jerk) -> None:
    """Where nothing of a command is passed on, and to rest."""
    driven = Driven(guard_of(panda, plate(), jerk=jerk, slide=False), panda.start)
    driven.drive([[1.5, 0.0, 0.3, 0.0, 0.0, 0.2, 0.0]] * 900)
    brakings = [step.braking() for step in driven.steps]
    compared = 0
    for braking, step in zip(brakings[:-1], driven.steps[1:], strict=True):
        if braking is not None and step.share == 0.0 and braking.duration.item() > DT:
            found = braking.at([DT])[0, 0]
            np.testing.assert_allclose(found, step.joints, atol=1e-7)
            compared += 1
    assert compared > 20
    (braking,) = brakings[100:101]
    assert braking is not None
    speed = braking.derivative()
    np.testing.assert_allclose(speed.at([0.0])[0, 0], driven.steps[100].velocities, atol=1e-9)
    np.testing.assert_allclose(speed.at([braking.duration.item()])[0, 0], 0.0, atol=1e-9)


def test_a_command_straight_into_a_surface_stops(panda) -> None:
    driven = Driven(guard_of(panda, plate()), panda.start)
    driven.drive([[1.5, 0, 0, 0, 0, 0, 0]] * 900)
    assert driven.v == [0.0] * 7
    assert driven.steps[-1].share == 0.0
    assert not driven.steps[-1].slides


def test_speeds_of_single_obstacles(panda) -> None:
    """One ball comes, one rests as near: only the first one keeps the robot away."""
    world, center = MeshWorld(device="cpu"), panda.judge.centers(panda.start[None])[0, -1]
    for name, y in (("left", 0.35), ("right", -0.35)):
        world.add(name, Sphere(0.1), (center[0], center[1] + y, center[2], 1, 0, 0, 0))
    ways = {}
    for key, speed in {"rest": 0.0, "all": 1.0, "one": {"left": 1.0, "right": 0.0}}.items():
        for sign in (1.0, -1.0):
            driven = Driven(guard_of(panda, world, obstacle_speed=speed), panda.start)
            driven.drive([[sign * 2.0, 0, 0, 0, 0, 0, 0]] * 600)
            ways[key, sign] = driven.moved[:, 0] - panda.start[0]
    final = {key: abs(way[-1]) for key, way in ways.items()}
    # A stop takes 0.2 s at full speed, in which obstacles come: the robot is slower before it.
    assert np.abs(ways["all", 1.0]).max() < np.abs(ways["rest", 1.0]).max() + 1e-6
    np.testing.assert_array_equal(ways["one", 1.0], ways["all", 1.0])
    np.testing.assert_allclose(ways["one", -1.0], ways["rest", -1.0], atol=1e-4)
    assert final["rest", -1.0] > 0.1
    moments = [np.flatnonzero(np.abs(ways[key, -1.0]) > 0.1)[0] for key in ("all", "one", "rest")]
    assert moments[0] > moments[1] + 3
    assert moments[1] - moments[2] <= 1


def test_a_table_of_speeds_fits_the_scene(panda, monkeypatch) -> None:
    """Also where another thread makes the world larger, or takes obstacles away, in a step."""
    world = MeshWorld(max_obstacles=2, device="cpu")
    for name in ("person", "wall"):
        world.add(name, Sphere(0.1), (5.0, 0.0, 0.0, 1, 0, 0, 0))
    guard = guard_of(panda, world, obstacle_speed={"person": 2.0})
    shares, asked = guard._robots._speeds, guard_launch.scene_with_contacts
    guard.step(panda.start, [0.0] * 7, [0.0] * 7)
    assert shares.shares[0].tolist() == [1.0, 0.0]
    world.remove("wall")
    guard.step(panda.start, [0.0] * 7, [0.0] * 7)
    assert shares.shares[0].tolist() == [1.0, 1.0]  # of what may come there

    def grown(*given):
        world.grow(n_envs=2, max_obstacles=5)
        return asked(*given)

    monkeypatch.setattr(guard_launch, "scene_with_contacts", grown)
    guard.step(panda.start, [0.0] * 7, [0.0] * 7)
    assert shares.shares.shape == (2, 5)


@pytest.mark.parametrize("jerk", [None, 2000.0])
def test_no_step_leads_beyond_a_limit(panda, jerk) -> None:
    """Of long steps, which could end later than the braking does."""
    rng, dt, beyond = np.random.default_rng(31), 0.04, 0
    low, high = panda.robot.joint_limits.double().numpy().T
    for _ in range(60):
        guard = MotionGuard(
            panda.robot, MeshWorld(device="cpu"), dt, acceleration=ACCELERATION, jerk=jerk,
            self_collision=False,
        )  # fmt: skip
        v = rng.uniform(-1.0, 1.0, 7) * ACCELERATION * dt
        q = np.where(v > 0, high, low) - v * rng.uniform(0.5, 1.5) * np.abs(v).max() / ACCELERATION
        for _ in range(20):
            step = guard.step(q, v, rng.uniform(-0.5, 0.5, 7) * rng.integers(0, 2))
            if step.share > 0.0:
                most = np.maximum(high, q), np.minimum(low, q)
                assert (step.joints <= most[0] + 1e-9).all()
                assert (step.joints >= most[1] - 1e-9).all()
            q, v = step.joints, step.velocities
            beyond += step.share < 1.0
    assert beyond > 20


def test_a_braking_that_is_late_again_is_proven_again(panda) -> None:
    """Each of its steps takes effect late: the robot comes nearer than the proven braking ends."""
    scene = Scene.from_mapping({"cuboid": {"plate": PLATE}})
    latency = 10 * DT
    driven = Driven(guard_of(panda, plate(), latency=latency, slide=False), panda.start)
    driven.drive([[1.5, 0, 0, 0, 0, 0, 0]] * 400)
    while driven.v != [0.0] * 7 and not driven.steps[-1].breached:
        q = np.array(driven.q) + latency * np.array(driven.v)
        driven.q = q.tolist()
        assert panda.clearance(q[None], scene)[0] > 0.0
        driven.drive([[1.5, 0, 0, 0, 0, 0, 0]])
    assert driven.steps[-1].breached


def test_speeds_follow_names(panda) -> None:
    """When others come and go, and when the world grows."""
    world = MeshWorld(max_obstacles=2, device="cpu")
    for name in ("other", "person"):
        world.add(name, Sphere(0.1), (5.0, 0.0, 0.0, 1, 0, 0, 0))
    guard = guard_of(panda, world, obstacle_speed={"person": 2.0, "other": 0.5})
    shares = guard._robots._speeds
    start, rest = panda.start.tolist(), [0.0] * 7
    guard.step(start, rest, rest)
    assert shares.shares[0].tolist() == [0.25, 1.0]
    world.remove("other")
    guard.step(start, rest, rest)
    assert shares.shares[0, 0].item() == 1.0
    world.grow(max_obstacles=3)
    world.add("wall", Sphere(0.1), (5.0, 0.0, 1.0, 1, 0, 0, 0))
    world.add("other", Sphere(0.1), (5.0, 0.0, 2.0, 1, 0, 0, 0))
    guard.step(start, rest, rest)
    assert shares.shares[0].tolist() == [1.0, 0.0, 0.25]
    assert guard._robots._tables.shares is shares.shares
    # The person comes near: the robot has to be slow. The wall as near does not matter.
    spheres = panda.judge.centers(panda.start[None])[0, -1]
    near = (spheres[0], spheres[1], spheres[2] - 0.16, 1, 0, 0, 0)
    passed = {}
    for name in ("person", "wall"):
        world.set_pose(name, near)
        driven = Driven(guard, panda.start + 1e-3)
        driven.drive([[1.0, 0, 0, 0, 0, 0, 0]] * 100)
        passed[name] = driven.moved[-1, 0] - driven.moved[0, 0]
        world.set_pose(name, (5.0, 0.0, 0.0, 1, 0, 0, 0))
    assert passed["wall"] > 0.04
    assert 0.0 <= passed["person"] < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jerk": -1.0}, "jerk must be positive"),
        ({"jerk": 500.0, "latency": 0.01}, "latency must be 0 where jerk is limited"),
        ({"obstacle_speed": {"nobody": 1.0}}, "must name obstacles of the world, got 'nobody'"),
        ({"obstacle_speed": {"plate": -1.0}}, r"obstacle_speed\['plate'\] must not be negative"),
    ],
)
def test_bad_options_are_named(panda, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        guard_of(panda, plate(), **options)
