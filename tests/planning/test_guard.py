"""The guard of controllers, judged at each millisecond by what shares no code with the library."""

import copy
import gc
import math
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pinocchio", reason="the judge needs pin and coal, of the extra 'dev'")
pytest.importorskip("coal", reason="the judge needs pin and coal, of the extra 'dev'")

import exact_scenes
import guarded
from cases import mostly_slow
from exact_shapes import half_space
from guarded import ACCELERATION, DT, KINDS, PROBLEMS, Cast
from path_judge import Scene
from reference import Body
from warp_collision import Cuboid, MeshWorld, PointCloud, Sphere, VoxelGrid
from warp_collision.planning import MotionGuard

PLATE = {"dims": [1.0, 0.02, 1.0], "pose": [0.3, 0.3, 0.5, 1, 0, 0, 0]}


@pytest.fixture(scope="module")
def casts() -> dict[str, Cast]:
    return {name: Cast(name) for name in ("panda", "arm6")}


def guard_of(cast: Cast, world: MeshWorld, **options) -> MotionGuard:
    return MotionGuard(cast.robot, world, DT, **{"acceleration": ACCELERATION, **options})


def scenes_for(cast: Cast, name: str, rng, count: int) -> list[dict]:
    """Random scenes; for the Panda half of them are those of planning problems."""
    random = [guarded.random_scene(rng, 9) for _ in range(count)]
    if name == "panda":
        random[::2] = [PROBLEMS[key] for key in rng.choice([*PROBLEMS], len(random[::2]))]
    return random


def check_motion(cast: Cast, record: dict, stopped: np.ndarray) -> None:
    """Limits of velocity, acceleration and range, and that joint values follow velocities."""
    q, v = record["q"], record["v"]
    assert (np.abs(v) <= cast.velocity * (1 + 1e-9)).all()
    assert (np.abs(np.diff(v, axis=0)) <= ACCELERATION * DT * (1 + 1e-9)).all()
    low, high = cast.robot.joint_limits.double().numpy().T
    # Limits are float32, of which the last bit is 2.4e-7 beyond 2 rad.
    assert (q >= np.minimum(low, q[0]) - 1e-6).all()
    assert (q <= np.maximum(high, q[0]) + 1e-6).all()
    uniform = np.diff(q, axis=0) - 0.5 * DT * (v[1:] + v[:-1])
    # In its last step a braking ends before the end of the step.
    assert (np.abs(uniform)[~stopped] <= 1e-12).all()


def episodes(cast: Cast, name: str, seed: int, n_scenes: int, each: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    mappings = scenes_for(cast, name, rng, n_scenes)
    world, scenes = guarded.worlds_of(mappings), [Scene.from_mapping(m) for m in mappings]
    starts = [guarded.free_starts(cast, scene, rng, each, 2e-3) for scene in scenes]
    envs = torch.arange(n_scenes, dtype=torch.int32).repeat_interleave(each)
    guard = guard_of(cast, world, env_index=envs)
    commands = np.concatenate(
        [
            guarded.hostile(KINDS[i % len(KINDS)], rng, cast, steps, 1)
            for i in range(n_scenes * each)
        ],
        axis=1,
    )
    record = guarded.run(guard, np.concatenate(starts), commands)
    assert not record["breached"].any()
    assert 0.005 < (record["share"] < 1.0).mean() < 0.9
    check_motion(cast, record, record["rest"] == 0.0)
    for row, env in enumerate(envs.tolist()):
        assert cast.clearance(record["q"][:, row], scenes[env]).min() > 0.0
        # If the guard was asked no more, braking would be free, too.
        moment = int(rng.integers(steps))
        stop = braking(record["q"][moment, row], record["v"][moment, row])
        assert cast.clearance(stop, scenes[env]).min() > 0.0


def braking(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Joint values (n, n_joints) each 0.2 ms of braking as hard as the slowest joint can."""
    duration = np.abs(v).max() / ACCELERATION
    times = np.append(np.arange(0.0, duration, 2e-4), duration)[:, None]
    return q + v * (times - 0.5 * times**2 / max(duration, 1e-12))


@pytest.mark.parametrize("name", ["panda", "arm6"])
def test_no_command_leads_to_contact(casts, name) -> None:
    episodes(casts[name], name, seed=3, n_scenes=2, each=4, steps=250)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["panda", "arm6"])
def test_no_command_leads_to_contact_in_many_scenes(casts, name, seed) -> None:
    episodes(casts[name], name, seed=100 + seed, n_scenes=16, each=8, steps=2000)


@pytest.mark.parametrize("seed", mostly_slow(range(8), (0,)))
def test_motions_among_all_shapes_keep_their_distance(casts, seed) -> None:
    """What planes of shapes prove, in a reference's words: between samples and padded, too."""
    arm, rng = casts["arm6"], np.random.default_rng(seed)
    n, floor = 6, Body(half_space(0.1, 0.2, 1.0, -0.4))

    def clearance(q: np.ndarray, scene: list[Body]) -> np.ndarray:
        centers = arm.judge.centers(q)
        return np.min([body.distance(centers) - arm.judge.radii for body in scene], axis=(0, 2))

    scenes, starts, nothing = [], [], Scene.from_mapping({})
    while len(scenes) < n:  # some are in contact with what does not move
        scene = [*exact_scenes.random_scene(rng, padding=0.02), floor]
        tried = arm.start + rng.uniform(-2.0, 2.0, (500, 6))
        free = (clearance(tried, scene) > 2e-3) & arm.is_free(tried, nothing, 2e-3)
        if free.any():
            scenes.append(scene)
            starts.append(tried[free][clearance(tried[free], scene).argmin()])
    world = exact_scenes.build(scenes, torch.device("cpu"))
    guard = guard_of(arm, world, env_index=torch.arange(n, dtype=torch.int32))
    commands = np.concatenate(
        [guarded.hostile(KINDS[i % 4], rng, arm, 400, 1) for i in range(n)], axis=1
    )
    record = guarded.run(guard, np.array(starts), commands)
    assert not record["breached"].any()
    assert 0.0 < (record["share"] < 1.0).mean() < 0.98
    for row, scene in enumerate(scenes):
        q = record["q"][:, row]
        between = 0.5 * (q[1:] + q[:-1])
        assert clearance(np.concatenate((q, between)), scene).min() > 0.2e-3
        stop = braking(q[200], record["v"][200, row])
        assert clearance(stop, scene).min() > 0.2e-3


def drive(guard: MotionGuard, q, command, steps: int, v=None):
    """Steps with one command; returns the last one."""
    v = [0.0] * len(q) if v is None else v
    step = None
    for _ in range(steps):
        step = guard.step(q, v, command)
        q, v = step.joints, step.velocities
    return step


@pytest.fixture
def plate() -> MeshWorld:
    """A plate beside the Panda's arm, into which its first joint turns it."""
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid(PLATE["dims"]), PLATE["pose"])
    return world


def test_numbers_and_tensors_are_alike(casts, plate) -> None:
    start, command = casts["panda"].start.tolist(), [1.5, 0.2, 0, 0, 0, 0.1, 0]
    lists, tensors = (guard_of(casts["panda"], plate) for _ in range(2))
    batch = guard_of(casts["panda"], plate, env_index=torch.zeros(20, dtype=torch.int32))
    q, v = start, [0.0] * 7
    p, w = torch.tensor(start, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)
    for _ in range(60):
        listed = lists.step(q, v, command)
        single = tensors.step(p, w, torch.tensor(command, dtype=torch.float64))
        rows = batch.step(*(part.expand(20, 7) for part in (p, w)), torch.tensor([command] * 20))
        q, v, p, w = listed.joints, listed.velocities, single.joints, single.velocities
        assert p.tolist() == q
        assert w.tolist() == v
        assert listed.share == single.share.item()
        np.testing.assert_allclose(rows.joints, np.tile(q, (20, 1)), rtol=0, atol=1e-6)
    assert isinstance(q, list)
    array = lists.step(np.array(q), np.array(v), np.array(command))
    assert array.joints.dtype == np.float64
    # Values that were rounded to float32 are still where the guard knows the robot.
    rounded = tensors.step(p.float(), w.float(), torch.tensor(command))
    assert rounded.joints.dtype == torch.float32
    np.testing.assert_allclose(rounded.joints.numpy(), array.joints, rtol=0, atol=1e-6)


def test_stuck_robots_leave(casts, plate) -> None:
    guard, panda = guard_of(casts["panda"], plate), casts["panda"]
    stuck = drive(guard, panda.start.tolist(), [1.5, 0, 0, 0, 0, 0, 0], 1500)
    assert stuck.share == 0.0
    assert stuck.velocities == [0.0] * 7
    refusal = stuck.why()
    assert refusal.obstacle == "plate"
    assert refusal.cause == "not proven free"
    assert refusal.distance < 1e-3
    near = drive(guard, stuck.joints, [1.5, 0, 0, 0, 0, 0, 0], 20)
    away = guard.step(near.joints, near.velocities, [-1.5, 0, 0, 0, 0, 0, 0])
    assert away.share == 1.0
    assert away.velocities[0] == pytest.approx(-ACCELERATION * DT)
    assert away.why() is None


@pytest.mark.parametrize("gap", [3e-4, 1e-4])
def test_a_start_nearer_than_the_tolerance(casts, gap) -> None:
    """It leaves; in all directions it keeps half of what it had."""
    panda, world = casts["panda"], MeshWorld(device="cpu")
    spheres = panda.robot.spheres(torch.from_numpy(panda.start))[-1].tolist()
    world.add("ball", Sphere(0.1), (*spheres[:2], spheres[2] - spheres[3] - 0.1 - gap, 1, 0, 0, 0))
    ball = {"capsule": {"ball": {"radius": 0.1, "base": [0, 0, 0], "tip": [0, 0, 0]}}}
    ball["capsule"]["ball"]["pose"] = [
        *spheres[:2],
        spheres[2] - spheres[3] - 0.1 - gap,
        1,
        0,
        0,
        0,
    ]
    scene = Scene.from_mapping(ball)
    begun = panda.clearance(panda.start[None], scene)[0]
    assert 0.0 < begun <= gap + 1e-6
    rng = np.random.default_rng(4)
    for _ in range(6):
        guard = guard_of(panda, world)
        way = rng.choice([-1.0, 1.0], 7) * panda.velocity
        q, v, moved = panda.start.tolist(), [0.0] * 7, [panda.start]
        for command in (way, -way):
            for _ in range(40):
                step = guard.step(q, v, command.tolist())
                q, v = step.joints, step.velocities
                assert not step.breached
                moved.append(np.array(q))
        assert panda.clearance(np.array(moved), scene).min() > 0.45 * begun
        assert np.abs(np.array(q) - panda.start).max() > 1e-3


def test_why_has_the_distance_of_the_motion_that_was_refused(casts, plate) -> None:
    """A lower bound of it, by less than the tolerance: along the control points of both pieces."""
    panda, scene = casts["panda"], Scene.from_mapping({"cuboid": {"plate": PLATE}})
    rng, compared = np.random.default_rng(2), 0
    for _ in range(4):
        guard = guard_of(panda, plate, slide=False)
        command = [1.5, *rng.uniform(-0.3, 0.3, 6)]
        q, v = panda.start.tolist(), [0.0] * 7
        for i in range(1200):
            step = guard.step(q, v, command)
            q, v = step.joints, step.velocities
            refusal = step.why() if step.share < 1.0 and i % 50 == 0 else None
            if refusal is not None and refusal.cause == "not proven free":
                s = np.linspace(0.0, 1.0, 400)[:, None]
                ways = [
                    (1 - s) ** 2 * a + 2 * s * (1 - s) * b + s**2 * c
                    for a, b, c in (step._points[:3].astype(float), step._points[2:5])
                ]
                least = panda.clearance(np.concatenate(ways), scene).min()
                assert least - 1e-3 <= refusal.distance <= least + 1e-5
                compared += 1
    assert compared > 8


def test_changes_of_the_world_are_proven_again(casts, plate) -> None:
    panda, command = casts["panda"], [1.0, 0, 0, 0, 0, 0, 0]
    guard = guard_of(panda, plate)
    step = drive(guard, panda.start.tolist(), command, 100)
    assert (step.share, step.breached) == (1.0, False)
    pose = plate.pose("plate")
    # Where the arm is before it could stop.
    turned = np.array(step.joints) + np.array([0.03, 0, 0, 0, 0, 0, 0])
    center = panda.judge.centers(turned[None])[0, -1]
    plate.set_pose("plate", (*center, 1, 0, 0, 0))
    hit = guard.step(step.joints, step.velocities, command)
    assert hit.breached
    assert hit.share == 0.0
    assert hit.why().obstacle == "plate"
    assert hit.velocities[0] == pytest.approx(step.velocities[0] - ACCELERATION * DT)
    again = guard.step(hit.joints, hit.velocities, command)
    assert again.breached
    plate.enable("plate", False)
    free = guard.step(again.joints, again.velocities, command)
    assert (free.share, free.breached) == (1.0, False)
    plate.set_pose("plate", pose)
    plate.enable("plate")
    assert guard.step(free.joints, free.velocities, command).share == 1.0


def test_poses_that_were_written_past_torch_are_proven_again(casts, plate) -> None:
    panda, command = casts["panda"], [1.0, 0, 0, 0, 0, 0, 0]
    at_rest = plate.mesh_from_world.clone()
    center = panda.judge.centers(panda.start[None])[0, -1]
    plate.set_pose("plate", (*center, 1, 0, 0, 0))
    rows = plate.mesh_from_world.numpy()
    moved = rows.copy()
    rows[:] = at_rest.numpy()
    guard = guard_of(panda, plate)
    step = drive(guard, panda.start.tolist(), command, 10)
    assert (step.share, step.breached) == (1.0, False)
    rows[:] = moved
    assert guard.step(step.joints, step.velocities, command).breached


def test_a_world_whose_memory_has_moved(casts, plate) -> None:
    """Torch moves what it shares with other processes."""
    panda, command = casts["panda"], [1.0, 0, 0, 0, 0, 0, 0]
    guard = guard_of(panda, plate)
    step = drive(guard, panda.start.tolist(), command, 50)
    for table in (plate.mesh_from_world, plate.enabled, plate.n_meshes):
        table.share_memory_()
    step = guard.step(step.joints, step.velocities, command)
    assert (step.share, step.breached) == (1.0, False)
    center = panda.judge.centers(np.array(step.joints)[None])[0, -1]
    plate.set_pose("plate", (*center, 1, 0, 0, 0))
    assert guard.step(step.joints, step.velocities, command).breached


@pytest.mark.parametrize(("name", "value"), [("enabled", 0), ("padding", -0.5), ("n_meshes", 0)])
def test_a_table_that_has_moved_alone_is_read_where_it_is(casts, plate, name, value) -> None:
    """What is written past torch in its new place has no version."""
    panda, command = casts["panda"], [2.0, 0, 0, 0, 0, 0, 0]
    guard = guard_of(panda, plate)
    step = drive(guard, panda.start.tolist(), command, 1000)
    assert (step.share, step.time_to_rest) == (0.0, 0.0)
    table = getattr(plate, name).share_memory_()
    table.numpy()[:] = value
    assert guard.step(step.joints, step.velocities, command).share == 1.0


def test_what_sensors_see_is_proven_again(casts, plate) -> None:
    panda, far = casts["panda"], np.array([[5.0, 0.0, 0.0]])
    in_the_way = panda.judge.centers(panda.start[None])[0, -1:] + 1e-3
    occupied = np.ones((1, 1, 1), dtype=bool)
    seen = {
        "cloud": lambda at: PointCloud(at, radius=0.01),
        "map": lambda at: VoxelGrid(occupied, voxel_size=0.02, origin=at[0] - 0.01),
    }
    for name, made_of in seen.items():
        plate.add(name, made_of(far))
        guard = guard_of(panda, plate)
        step = drive(guard, panda.start.tolist(), [0.0] * 7, 3)
        assert not step.breached
        plate.update(name, made_of(in_the_way))
        hit = guard.step(step.joints, step.velocities, [0.0] * 7)
        assert hit.breached
        assert hit.why().obstacle == name
        plate.update(name, made_of(far))
        assert not guard.step(hit.joints, hit.velocities, [0.0] * 7).breached


def test_what_is_attached_counts_at_once(casts, plate) -> None:
    panda = Cast("panda")
    guard = guard_of(panda, plate)
    step = drive(guard, panda.start.tolist(), [0.0] * 7, 3)
    assert not step.breached
    panda.robot.attach("beam", "panda_hand", np.array([[0.0, 0.0, 0.1, 0.4]]))
    hit = guard.step(step.joints, step.velocities, [0.0] * 7)
    assert hit.breached
    assert "beam" in (hit.why().link, hit.why().obstacle)
    panda.robot.detach("beam")
    assert not guard.step(hit.joints, hit.velocities, [0.0] * 7).breached


def test_base_poses_and_allowed_contacts(casts, plate) -> None:
    """A robot that stands elsewhere, with all that is around it, is guarded alike."""
    panda, (angle, place) = casts["panda"], (0.7, np.array([0.4, -0.3, 0.2]))
    x, y, z = PLATE["pose"][:3]
    cos, sin, half = np.cos(angle), np.sin(angle), (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
    there = place + np.array([cos * x - sin * y, sin * x + cos * y, z])
    world = MeshWorld(n_envs=2, device="cpu")
    for env, pose in enumerate((PLATE["pose"], (*there, *half))):
        world.add("plate", Cuboid(PLATE["dims"]), pose, env=env)
    bases = torch.tensor([[0, 0, 0, 1, 0, 0, 0], [*place, *half]], dtype=torch.float32)
    envs, ways = torch.tensor([0, 1], dtype=torch.int32), {}
    for key, links in {"none": (), "all": set(panda.robot.sphere_links)}.items():
        ignored = [(link, "plate") for link in links]
        guard = guard_of(panda, world, env_index=envs, base_pose=bases, ignore=ignored)
        commands = np.full((900, 2, 7), [1.5, 0, 0, 0, 0, 0, 0])
        record = guarded.run(guard, np.tile(panda.start, (2, 1)), commands)
        assert not record["breached"].any()
        ways[key] = record["q"][-1] - panda.start
    assert (record["share"][-1] == 1.0).all()  # through the plate
    np.testing.assert_allclose(ways["none"][0], ways["none"][1], atol=1e-3)
    single = drive(guard_of(panda, plate), panda.start.tolist(), [1.5, 0, 0, 0, 0, 0, 0], 900)
    np.testing.assert_allclose(ways["none"][0], single.joints - panda.start, atol=1e-6)
    assert (ways["all"][:, 0] > ways["none"][:, 0] + 0.3).all()


@pytest.mark.slow
def test_memory_is_flat_while_another_thread_changes_the_world(casts, plate) -> None:
    """Less than 100 bytes a step; what rests is not touched, whatever else comes and goes."""
    panda, rng, is_over = casts["panda"], np.random.default_rng(17), threading.Event()
    scene, changes, steps = Scene.from_mapping({"cuboid": {"plate": PLATE}}), [], 40_000

    def change() -> None:
        while not is_over.wait(2e-3):
            place = (5.0 + 0.1 * math.sin(len(changes)), 0.0, 0.0, 1, 0, 0, 0)
            plate.add("ball", Sphere(0.1), place)
            plate.set_pose("ball", (6.0, *place[1:]))
            plate.enable("ball", False)
            plate.remove("ball")
            changes.append(place)

    guard, other = guard_of(panda, plate), threading.Thread(target=change)
    q, v, moved, held, command = panda.start.tolist(), [0.0] * 7, [panda.start], [], [0.0] * 7
    other.start()
    try:
        for i in range(steps):
            if i in (steps // 4, steps - 1):
                gc.collect()
                held.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
            if i % 200 == 0:
                command = (rng.uniform(-1.0, 1.0, 7) * panda.velocity).tolist()
            step = guard.step(q, v, command)
            q, v = step.joints, step.velocities
            assert not step.breached
            if i % 20 == 0:
                moved.append(np.array(q))
    finally:
        is_over.set()
        other.join()
    assert len(changes) > 20
    assert held[1] - held[0] < 100 * (steps * 3 // 4)
    assert panda.clearance(np.array(moved), scene).min() > 0.0


@pytest.mark.parametrize("name", ["panda", "arm6"])
def test_tracking_errors_are_in_the_bounds(casts, name) -> None:
    """Robots that are off by the error, whatever its signs, touch nothing; nor the robot itself."""
    cast, rng = casts[name], np.random.default_rng(11)
    error = rng.uniform(0.0005, 0.003, cast.n_joints)
    mappings = [guarded.random_scene(rng, 12) for _ in range(2)]
    world, scenes = guarded.worlds_of(mappings), [Scene.from_mapping(m) for m in mappings]
    starts = [guarded.free_starts(cast, scene, rng, 3, 0.02) for scene in scenes]
    envs = torch.tensor([0, 0, 0, 1, 1, 1], dtype=torch.int32)
    guard = guard_of(cast, world, env_index=envs, tracking_error=error)
    commands = guarded.hostile("limits", rng, cast, 300, 6)
    record = guarded.run(guard, np.concatenate(starts), commands)
    assert not record["breached"].any()
    least = np.inf
    for row, env in enumerate(envs.tolist()):
        for _ in range(3):
            signs = rng.choice([-1.0, 1.0], cast.n_joints)
            least = min(
                least, cast.clearance(record["q"][:, row] + signs * error, scenes[env]).min()
            )
    assert least > 0.0
    with_error = [
        cast.clearance(record["q"][:, row], scenes[e]).min() for row, e in enumerate(envs)
    ]
    assert min(with_error) < 0.02  # they came near enough for this to say something


@pytest.mark.parametrize("trials", mostly_slow([2, 60], [2]))
def test_obstacles_that_come_meet_a_robot_at_rest(casts, trials) -> None:
    panda, speed, rng = casts["panda"], 1.0, np.random.default_rng(8)
    met = 0
    for trial in range(trials):
        world = MeshWorld(device="cpu")
        heading = rng.standard_normal(3)
        heading /= np.linalg.norm(heading)
        target = panda.judge.centers(panda.start[None])[0, int(rng.integers(30, 59))]
        place = target - heading * 0.5
        world.add("ball", Sphere(0.08), (*place, 1, 0, 0, 0))
        guard = guard_of(panda, world, obstacle_speed=speed)
        q, v = panda.start.tolist(), [0.0] * 7
        commands = guarded.hostile(KINDS[trial % 3], rng, panda, 450, 1)[:, 0]
        for command in commands:
            before, speeds = np.array(q), np.abs(v).max()
            step = guard.step(q, v, command.tolist())
            q, v = step.joints, step.velocities
            # Within the step the ball goes on, and the robot moves.
            place = place + heading * speed * DT
            world.set_pose("ball", (*place, 1, 0, 0, 0))
            if max(speeds, np.abs(v).max()) > 0.0:
                both = panda.judge.centers(np.array([before, q]))
                assert (np.linalg.norm(both[1] - place, axis=1) - panda.judge.radii).min() > 0.08
            else:
                centers = panda.judge.centers(np.array([q]))[0]
                met += bool(
                    ((np.linalg.norm(centers - place, axis=1) - panda.judge.radii) < 0.08).any()
                )
    assert met > 0  # at rest


def test_late_commands_are_in_the_bounds(casts, plate) -> None:
    """Until the next command takes effect, velocities go on, for any time up to the latency."""
    panda, latency, rng = casts["panda"], 5e-3, np.random.default_rng(2)
    scene = Scene.from_mapping({"cuboid": {"plate": PLATE}})
    guard = guard_of(panda, plate, latency=latency)
    q, v = panda.start.copy(), np.zeros(7)
    moved, least_share = [q], 1.0
    for i in range(700):
        command = [1.5 if i < 500 else -1.5, *rng.uniform(-0.3, 0.3, 6)]
        step = guard.step(q, v, np.array(command))
        assert not step.breached
        q, v = step.joints, step.velocities
        moved.append(q)
        if step.share > 0.0 and rng.uniform() < 0.5:
            q = q + v * rng.uniform(0.0, latency)
            moved.append(q)
        least_share = min(least_share, step.share)
    clearance = panda.clearance(np.array(moved), scene)
    assert clearance.min() > 0.0
    assert clearance.min() < 0.01
    assert least_share == 0.0


def test_goals_on_a_free_line_are_reached(casts) -> None:
    """All of them, exactly; and along the line."""
    cast, rng = casts["panda"], np.random.default_rng(5)
    mapping = guarded.random_scene(rng, 6)
    scene, world = Scene.from_mapping(mapping), guarded.worlds_of([mapping])
    ends = guarded.free_starts(cast, scene, rng, 24, 0.01)
    lines = [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True)]
    parts = np.linspace(0.0, 1.0, 60)[:, None]
    lines = [(a, b) for a, b in lines if cast.clearance(a + parts * (b - a), scene).min() > 0.01]
    assert len(lines) >= 3
    goals = torch.tensor(np.array([b for _, b in lines]))
    envs = torch.zeros(len(lines), dtype=torch.int32)
    guard = guard_of(cast, world, env_index=envs, command="position")
    q = start = torch.tensor(np.array([a for a, _ in lines]))
    v = torch.zeros_like(q)
    way = (goals - start) / (goals - start).norm(dim=1, keepdim=True)
    for _ in range(1800):
        step = guard.step(q, v, goals)
        q, v = step.joints, step.velocities
        aside = (q - start) - ((q - start) * way).sum(1, keepdim=True) * way
        assert aside.abs().max() < 1e-6
    assert (q - goals).abs().max() < 1e-9
    assert v.abs().max() < 1e-9


def test_budgets_end_in_braking(casts, plate) -> None:
    panda, fast = casts["panda"], [1.6] * 7
    guard, q, v = guard_of(panda, plate), panda.start.tolist(), fast
    for _ in range(300):  # near the plate it takes several configurations
        step = guard.step(q, v, fast)
        if step.share == 1.0 and guard._report[4] > 1.0:
            break
        q, v = step.joints, step.velocities
    assert guard_of(panda, plate).step(q, v, fast).share == 1.0
    step = guard_of(panda, plate, max_evaluations=1).step(q, v, fast)
    assert step.share == 0.0
    assert step.why().cause == "not decided within the budget"
    assert step.velocities == pytest.approx([x - ACCELERATION * DT for x in v])
    timed = guard_of(panda, plate, max_seconds=1.0)
    assert drive(timed, panda.start.tolist(), [0.5] * 7, 5).share == 1.0
    hurried = guard_of(panda, plate, max_seconds=1e-9, max_evaluations=10_000)
    drive(hurried, panda.start.tolist(), [0.5] * 7, 3)
    assert hurried._robots._call[1] == 8


@pytest.mark.parametrize("jerk", [None, 500.0])
def test_one_configuration_proves_a_step_in_free_space(casts, jerk) -> None:
    """With its braking: the least budget is enough."""
    guard = guard_of(casts["panda"], MeshWorld(device="cpu"), max_evaluations=1, jerk=jerk)
    q, v = [0.0, -0.5, 0.0, -2.0, 0.0, 1.6, 0.8], [0.0] * 7
    for _ in range(40):
        step = guard.step(q, v, [0.3, 0.6, 0.0, 0.9, 0.0, 0.0, 0.3])
        q, v = step.joints, step.velocities
        assert step.share == 1.0
    assert v[3] > 0.1


def test_what_is_not_finite_is_not_passed_on(casts, plate) -> None:
    panda = casts["panda"]
    guard = guard_of(panda, plate)
    step = drive(guard, panda.start.tolist(), [0.5] * 7, 50)
    for bad in (float("nan"), float("inf")):
        braked = guard.step(step.joints, step.velocities, [bad, *[0.5] * 6])
        assert (braked.share, braked.breached) == (0.0, False)
        assert braked.why().cause == "not finite"
        assert braked.velocities[0] < step.velocities[0]
        step = guard.step([bad] * 7, braked.velocities, [0.5] * 7)
        assert (step.share, step.breached) == (0.0, False)
    assert guard.step(step.joints, step.velocities, [0.5] * 7).share == 1.0
    unknown = guard_of(panda, plate).step([float("nan")] * 7, [0.0] * 7, [0.0] * 7)
    assert unknown.breached


def test_a_robot_in_contact_is_breached(casts, plate) -> None:
    panda = casts["panda"]
    plate.add("ball", Sphere(0.2), (*panda.judge.centers(panda.start[None])[0, 40], 1, 0, 0, 0))
    step = guard_of(panda, plate).step(panda.start.tolist(), [0.1] * 7, [0.0] * 7)
    assert step.breached
    assert step.why().obstacle == "ball"
    assert step.why().distance < 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acceleration": None}, "acceleration must be given"),
        ({"acceleration": np.inf}, "acceleration must be finite"),
        ({"dt": 0.0}, "dt must be"),
        ({"command": "torque"}, "command must be one of"),
        ({"tracking_error": -1.0}, "tracking_error must be finite and at least 0"),
        ({"tracking_error": [0.1, 0.2]}, "tracking_error must be a number or have shape"),
        ({"tracking_error": {"panda_joint1": 0.1}}, "tracking_error must have a value for each"),
        ({"latency": -1.0}, "latency must not be negative"),
        ({"obstacle_speed": np.nan}, "obstacle_speed must be"),
        ({"max_evaluations": 0}, "max_evaluations must be"),
        ({"max_seconds": 1.0, "env_index": torch.zeros(2, dtype=torch.int32)}, "max_seconds must"),
        ({"env_index": torch.tensor([3], dtype=torch.int32)}, "env_index must"),
    ],
)
def test_bad_options_are_named(casts, options, message) -> None:
    options = {"dt": DT, "acceleration": ACCELERATION, **options}
    with pytest.raises((TypeError, ValueError), match=message):
        MotionGuard(casts["panda"].robot, MeshWorld(device="cpu"), **options)


def test_guards_are_not_copied(casts, plate) -> None:
    """Two of them would have the same memory, or memory that kernels do not see."""
    guard = guard_of(casts["arm6"], plate)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(guard)


def test_bad_steps_are_named(casts, plate) -> None:
    guard = guard_of(casts["panda"], plate)
    zeros = [0.0] * 7
    for wrong in (zeros[1:], [*zeros, 0.0], 0.0, None, "zeros??", ["a"] * 7, iter(zeros)):
        with pytest.raises(ValueError, match="command must be 7 numbers"):
            guard.step(zeros, zeros, wrong)
    with pytest.raises(ValueError, match="joints must be 7 numbers"):
        guard.step(zeros[1:], [*zeros, 0.0], zeros)  # 21 numbers together
    with pytest.raises(ValueError, match="velocities must be 7 numbers"):
        guard.step(zeros, np.zeros((7, 1)), zeros)
    with pytest.raises(ValueError, match=r"velocities must have shape \(7,\)"):
        guard.step(torch.zeros(7), torch.zeros(8), torch.zeros(7))
    with pytest.raises(TypeError, match="command must be a torch"):
        guard.step(torch.zeros(7), torch.zeros(7), [0.0] * 7)
