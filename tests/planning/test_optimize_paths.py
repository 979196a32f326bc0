"""Planned paths: certified, within limits, reproducible, with fixed ends; bad ends are named."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from warp_collision import (
    Cuboid,
    Cylinder,
    MeshWorld,
    RobotSpheres,
    clearance,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda, load_problem
from warp_collision.planning import (
    PlannedPaths,
    PlanningProgress,
    optimize_paths,
    rrt_connect,
    search,
)

LEFT = [-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
RIGHT = [0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]
HIGH = [0.1, -0.9, 0.2, -1.4, -0.3, 1.2, 0.1]
MARGIN = 1e-3


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


def posts(device: torch.device) -> MeshWorld:
    """Two envs: a leaning post in the way, and two plates above each other around the hand."""
    world = MeshWorld(2, max_obstacles=4, device=device)
    world.add("post", Cylinder(0.04, 1.2), (0.5, 0.05, 0.5, 0.98, 0.1, 0.17, 0), env=0)
    world.add("lower", Cuboid((0.5, 0.3, 0.02)), (0.55, 0.1, 0.35, 0.96, 0, 0.1, 0.26), env=1)
    world.add("upper", Cuboid((0.5, 0.3, 0.02)), (0.55, -0.1, 0.95, 0.96, 0.2, 0, 0.2), env=1)
    return world


def plan(panda, world, starts, goals, envs=None, **options) -> PlannedPaths:
    start, goal = (torch.tensor(rows, device=world.device) for rows in (starts, goals))
    index = None if envs is None else torch.tensor(envs, dtype=torch.int32, device=world.device)
    options.setdefault("generator", torch.Generator().manual_seed(1))
    return optimize_paths(start, goal, panda, world, env_index=index, **options)


def test_paths_are_what_was_certified(panda, device):
    world = posts(device)
    starts, goals, envs = [LEFT, RIGHT, LEFT, HIGH], [RIGHT, HIGH, RIGHT, LEFT], [0, 1, 1, 0]
    found = plan(panda, world, starts, goals, envs)
    index = torch.tensor(envs, dtype=torch.int32, device=device)
    straight = torch.tensor([starts, goals], device=device).transpose(0, 1)
    hit = joint_path_in_collision(straight, panda, world, env_index=index)
    assert hit[:, 0].tolist() == [True, False, True, False]
    assert found.joints.shape == (4, 32, 7)
    assert found.free.tolist() == [True] * 4
    assert torch.equal(found.joints[:, 0], straight[:, 0])
    assert torch.equal(found.joints[:, -1], straight[:, 1])
    low, high = panda.joint_limits.to(device).unbind(-1)
    assert ((found.joints >= low) & (found.joints <= high)).all()
    hit = joint_path_in_collision(found.joints, panda, world, tolerance=MARGIN, env_index=index)
    assert not hit.any()
    changing = panda.default_pairs.changing(MARGIN)
    nearest = joint_path_clearance(
        found.joints, panda, world, tolerance=1e-4, env_index=index, self_collision=changing
    )
    for lower, upper in (
        (found.world_clearance, nearest.world_upper),
        (found.self_clearance, nearest.self_upper),
    ):
        true = upper.amin(1)
        assert (0.0 <= lower).all()
        assert (lower <= true).all()
        assert (true - lower < MARGIN + 2e-4).all()
    both = torch.minimum(found.world_clearance, found.self_clearance)
    assert torch.equal(found.clearance, both)
    steps = (found.joints[:, 1:] - found.joints[:, :-1]).norm(dim=-1)
    torch.testing.assert_close(found.length, steps.sum(1))
    # Nothing is in the way of the second and the last: they go straight, in no iteration.
    torch.testing.assert_close(
        found.length[[1, 3]], (straight[:, 1] - straight[:, 0]).norm(dim=1)[[1, 3]]
    )
    assert found.iterations[[1, 3]].tolist() == [0, 0]
    assert (found.length < 1.7 * (straight[:, 1] - straight[:, 0]).norm(dim=1)).all()


@pytest.mark.parametrize("name", ["cage_1", "cage_2", "bookshelf_thin_2"])
def test_real_problems(panda, name):
    task = load_problem(name)
    world = MeshWorld(max_obstacles=len(task.obstacles), device="cpu")
    world.load(task.obstacles)
    found = plan(panda, world, [task.start], [task.goal])
    assert found.free.item()
    assert not joint_path_in_collision(found.joints, panda, world).any()
    assert 0 < found.iterations.item() < 200


def test_the_same_generator_gives_the_same_paths(panda, device):
    world = posts(device)
    before = torch.get_rng_state()
    for until in ("first", "converged"):
        first = plan(panda, world, [LEFT], [RIGHT], [0], until=until)
        again = plan(panda, world, [LEFT], [RIGHT], [0], until=until)
        for value, same in zip(first, again, strict=True):
            torch.testing.assert_close(value, same, rtol=0.0, atol=0.0, equal_nan=True)
    default = plan(panda, world, [LEFT], [RIGHT], [0], generator=None)
    same = plan(panda, world, [LEFT], [RIGHT], [0], generator=None)
    assert torch.equal(default.joints, same.joints)
    other = plan(panda, world, [LEFT], [RIGHT], [0], generator=torch.Generator().manual_seed(2))
    assert not torch.equal(first.joints, other.joints)
    assert torch.equal(before, torch.get_rng_state())


def test_planning_in_inference_mode(device):
    world = posts(device)
    start, goal = (torch.tensor([row], device=device) for row in (LEFT, RIGHT))
    expected = optimize_paths(
        start, goal, load_panda(), world, base_pose=torch.eye(4, device=device)
    )
    with torch.inference_mode():
        start, goal = (torch.tensor([row], device=device) for row in (LEFT, RIGHT))
        index = torch.zeros(1, dtype=torch.int32, device=device)
        options = {"env_index": index, "base_pose": torch.eye(4, device=device)}
        found = optimize_paths(start, goal, load_panda(), world, **options)
    assert found.free.item()
    assert torch.equal(found.joints, expected.joints)


def test_a_term_of_the_user_bends_the_path(panda, device):
    """Without obstacles the path is straight, but terms want joints 2 and 3 elsewhere."""
    world = MeshWorld(device=device)
    seen = []

    def raised(joints: torch.Tensor) -> torch.Tensor:
        return 20.0 * (joints[..., 1] + 0.6).square()

    def of_problem(joints: torch.Tensor, problem: torch.Tensor) -> torch.Tensor:
        seen.append(problem.unique().tolist())
        wanted = torch.tensor([0.5, -0.5], device=joints.device)[problem]
        return 20.0 * (joints[..., 2] - wanted[:, None]).square().mean(1)

    plain = plan(panda, world, [LEFT, LEFT], [RIGHT, RIGHT])
    assert (plain.joints[:, 16, 1] - 0.3).abs().max() < 1e-3
    found = plan(panda, world, [LEFT, LEFT], [RIGHT, RIGHT], terms=[raised, of_problem])
    assert found.free.all()
    assert (found.joints[:, 16, 1] < -0.2).all()
    assert found.joints[0, 16, 2] > 0.15
    assert found.joints[1, 16, 2] < -0.15
    assert [0, 1] in seen
    assert (found.length > plain.length).all()


def divided(device) -> MeshWorld:
    """A wall between start and goal with a hole for the shoulder alone, and an env with a post."""
    world = MeshWorld(2, max_obstacles=3, device=device)
    world.add("front", Cuboid((2.0, 0.01, 4.0)), (1.16, 0.0, 1.0, 1, 0, 0, 0), env=0)
    world.add("back", Cuboid((2.0, 0.01, 4.0)), (-1.16, 0.0, 1.0, 1, 0, 0, 0), env=0)
    world.add("above", Cuboid((2.0, 0.01, 2.0)), (0.0, 0.0, 1.6, 1, 0, 0, 0), env=0)
    world.add("post", Cylinder(0.04, 1.2), (0.5, 0.05, 0.5, 1, 0, 0, 0), env=1)
    return world


def ends_beside_a_divided_world(device) -> tuple:
    """A problem without a path, and one that is solved beside it as if it were alone."""
    return divided(device), [LEFT, LEFT], [RIGHT, RIGHT], [0, 1]


@pytest.mark.parametrize("until", ["first", "converged"])
def test_an_unsolvable_problem_is_not_free(panda, device, until):
    found = plan(panda, *ends_beside_a_divided_world(device), until=until, max_iterations=32)
    assert found.free.tolist() == [False, True]
    assert found.iterations[0] == 32
    assert 0 < found.iterations[1] < 32
    assert not found.clearance[0] >= 0.0  # NaN of first paths
    line = torch.lerp(torch.tensor(LEFT), torch.tensor(RIGHT), torch.linspace(0, 1, 32)[:, None])
    torch.testing.assert_close(found.joints[0].cpu(), line)


def look_after_each_round(monkeypatch):
    """On a GPU too, where many rounds are between two looks otherwise."""
    monkeypatch.setattr(rrt_connect, "_ROUNDS_IN_LANES", (1, 1))
    monkeypatch.setattr(rrt_connect, "_ON_GPU", rrt_connect._ON_CPU)


@pytest.mark.parametrize("until", ["first", "converged"])
def test_a_time_limit_ends_the_search(panda, device, monkeypatch, until):
    """By a clock that goes on a second at each look, after each round; what was found is kept."""
    look_after_each_round(monkeypatch)
    clock = itertools.count(1.0)
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    ends = ends_beside_a_divided_world(device)
    found = plan(panda, *ends, until=until, max_seconds=60.0)
    assert found.free.tolist() == [False, True]
    assert found.iterations[1] < found.iterations[0] < 60
    assert next(clock) < 70.0
    late = plan(panda, *ends, until=until, max_seconds=0.5)
    assert late.free.tolist() == [False, False]
    with pytest.raises(ValueError, match="max_seconds must not be negative, got -1"):
        plan(panda, *ends, max_seconds=-1.0)


def test_the_time_limit_is_over_in_the_middle_of_a_descent(panda, device, monkeypatch):
    """The first path is there, and nothing else of it is done."""
    world, clock = posts(device), itertools.count(1.0)
    look_after_each_round(monkeypatch)
    first = plan(panda, world, [LEFT], [RIGHT], [0], until="first")
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    seconds = 2.5 + first.iterations.item()
    found = plan(panda, world, [LEFT], [RIGHT], [0], max_seconds=seconds)
    assert torch.equal(found.joints, first.joints)


def test_the_first_path_is_proven_without_a_descent(panda, device, monkeypatch):
    """As the trees find it; the paths of the other mode begin with it, and get shorter."""
    world = posts(device)
    ends = world, [LEFT, RIGHT, LEFT], [RIGHT, HIGH, RIGHT], [0, 1, 1]
    seen: list[PlanningProgress] = []
    converged = plan(panda, *ends, progress=seen.append)
    monkeypatch.setattr(search, "PathDescent", None)
    found = plan(panda, *ends, until="first")
    assert found.free.all()
    index = torch.tensor(ends[3], dtype=torch.int32, device=device)
    options = {"tolerance": MARGIN, "env_index": index}
    assert not joint_path_in_collision(found.joints, panda, world, **options).any()
    assert torch.equal(found.iterations, converged.iterations)
    assert (converged.length <= found.length).all()
    unknown = found.clearance, found.world_clearance, found.self_clearance, found.cost
    assert all(value.isnan().all() for value in unknown)
    clearance = joint_path_clearance(found.joints, panda, world, **options)
    lower = clearance.lower.amin(1)
    assert (lower[found.has_preferred_clearance] >= 0.0).all()
    assert found.has_preferred_clearance.tolist() == (lower >= 0.01).tolist()
    assert converged.length[0] < 0.9 * found.length[0]
    with pytest.raises(ValueError, match="until must be 'first' or 'converged', got 'now'"):
        plan(panda, *ends, until="now")


def test_bad_ends_are_named(panda, device):
    world = posts(device)
    middle = [0.0, *LEFT[1:]]
    with pytest.raises(ValueError, match=r"start must be free.*row 1: panda_\w+ is in collision"):
        plan(panda, world, [LEFT, middle], [RIGHT, RIGHT], [1, 0])
    with pytest.raises(ValueError, match=r"goal must be free.*row 0: panda_\w+ .* with post, "):
        plan(panda, world, [LEFT], [middle], [0])
    folded = [0.0, 1.7, 0.0, -3.0, 0.0, 0.0, 0.8]
    with pytest.raises(ValueError, match=r"row 0: panda_\w+ is in collision with link panda_"):
        plan(panda, MeshWorld(device=device), [folded], [RIGHT])
    beyond = [LEFT[0], LEFT[1], 3.0, *LEFT[3:]]
    with pytest.raises(ValueError, match=r"row 0: panda_joint3 = 3.0000 is beyond its limits \[-2"):
        plan(panda, world, [beyond], [RIGHT])
    rows = [LEFT, middle, beyond], [RIGHT, RIGHT, RIGHT]
    found = plan(panda, world, *rows, [0, 0, 0], on_invalid_endpoints="mark")
    assert found.free.tolist() == [True, False, False]
    assert found.clearance[1] < 0.0


def test_wrong_input_raises(panda):
    world = posts(torch.device("cpu"))
    nan = [float("nan"), *LEFT[1:]]
    with pytest.raises(ValueError, match="goal must be finite, got nan in batch row 1 for panda_j"):
        plan(panda, world, [LEFT, LEFT], [RIGHT, nan])
    with pytest.raises(TypeError, match="goal must be a float32 or float64 tensor, got NoneType"):
        optimize_paths(torch.tensor([LEFT]), None, panda, world)
    with pytest.raises(ValueError, match=r"goal must have shape \(\.\.\., 7\).* got \(1, 6\)"):
        plan(panda, world, [LEFT], [RIGHT[:6]])
    with pytest.raises(ValueError, match=r"start must have shape"):
        plan(panda, world, LEFT, [RIGHT])
    with pytest.raises(ValueError, match=r"goal must have the shape of start"):
        plan(panda, world, [LEFT, LEFT], [RIGHT])
    with pytest.raises(ValueError, match="on_invalid_endpoints must be"):
        plan(panda, world, [LEFT], [RIGHT], on_invalid_endpoints="ignore")
    with pytest.raises(ValueError, match="horizon must be at least 2, got 1"):
        plan(panda, world, [LEFT], [RIGHT], horizon=1)
    with pytest.raises(ValueError, match=r"terms must return .* of <lambda>"):
        plan(panda, world, [LEFT], [RIGHT], [0], terms=[lambda joints: joints])
    for scene in (MeshWorld(device="cpu"), world):  # the straight path is free in the first one
        with pytest.raises(ValueError, match=r"finite, got nan of <lambda> in batch row 0, "):
            plan(panda, scene, [LEFT], [RIGHT], terms=[lambda joints: joints[..., 0].sqrt()])
    message = "nan of the derivative of <lambda> in batch row 0, waypoint 0, iteration 1 on free"
    with pytest.raises(ValueError, match=message):  # of a root at 0
        plan(panda, world, [LEFT], [RIGHT], terms=[lambda q: (q - q[:, :1])[..., 0].abs().sqrt()])
    with pytest.raises(ValueError, match=r"env_index must be in \[0, 2\), got 2"):
        plan(panda, world, [LEFT, LEFT], [RIGHT, RIGHT], [0, 2], on_invalid_endpoints="mark")
    with pytest.raises(TypeError, match="terms must be callables, got float"):
        plan(panda, world, [LEFT], [RIGHT], terms=[1.0])


def test_any_horizon_and_no_problems(panda):
    world = posts(torch.device("cpu"))
    for horizon in (3, 5, 17):
        found = plan(panda, world, [LEFT], [RIGHT], [0], horizon=horizon)
        assert found.joints.shape == (1, horizon, 7)
        assert found.free.item()
    found = plan(panda, world, [LEFT, HIGH], [RIGHT, LEFT], [0, 0], horizon=2)
    assert found.free.tolist() == [False, True]
    found = optimize_paths(torch.zeros(0, 7), torch.zeros(0, 7), panda, world)
    assert found.joints.shape == (0, 32, 7)
    resting = plan(panda, world, [LEFT], [LEFT], [0])
    assert resting.free.item()
    assert resting.length.item() == 0.0


def test_a_preferred_clearance_that_is_not_reached_is_told(panda, device):
    """The goal of the second problem is some millimetres from a plate, that of the first is not."""
    world = MeshWorld(device=device)
    world.add("plate", Cuboid((0.3, 0.3, 0.02)), (0.4, 0.3, 0.2, 0.97, 0.15, 0.17, 0))
    options = {"preferred_clearance": 0.03, "n_seeds": 4, "self_collision": False}
    low = _near_the_plate(panda, world)
    found = plan(panda, world, [LEFT, LEFT], [HIGH, low], **options)
    assert found.free.all()
    assert found.has_preferred_clearance.tolist() == [True, False]
    assert found.clearance[0] >= 0.03 - MARGIN
    assert found.clearance[1] < 0.03 - MARGIN
    options["preferred_clearance"] = float(found.clearance[1])
    closer = plan(panda, world, [LEFT], [low], **options)
    assert closer.has_preferred_clearance.tolist() == [True]
    marked = plan(panda, world, [LEFT], [[9.0, *LEFT[1:]]], on_invalid_endpoints="mark")
    assert marked.has_preferred_clearance.tolist() == [False]


def _near_the_plate(panda, world) -> list[float]:
    """Joint values with a clearance of 5 to 15 mm to the plate."""
    share = torch.linspace(0.0, 1.0, 200, device=world.device)[:, None]
    ends = torch.tensor([HIGH, [0.6, 0.9, 0.0, -2.2, 0.0, 3.0, 0.8]], device=world.device)
    joints = torch.lerp(ends[0], ends[1], share)
    nearest = clearance(panda(joints)[None], world).clearance[0].amin(-1)
    itself = configuration_in_collision(joints, panda, MeshWorld(device=world.device))
    fits = (nearest > 0.005) & (nearest < 0.015) & ~itself
    return joints[fits][0].tolist()


def test_progress_sees_better_and_better_proven_paths(panda, device):
    world = posts(device)
    index = torch.tensor([0, 0, 1], dtype=torch.int32, device=device)
    steps: list[PlanningProgress] = []
    ends = [LEFT, HIGH, LEFT], [RIGHT, LEFT, RIGHT], [0, 0, 1]
    found = plan(panda, world, *ends, progress=steps.append)
    for result, name in ((steps[-1], "PlanningProgress"), (found, "PlannedPaths")):
        assert repr(result).startswith(name)
        assert len(repr(result)) < 600  # shapes and ranges, no values
    assert [step.n_problems for step in steps] == [3] * len(steps)
    assert steps[0].free.tolist() == [False, True, False]  # straight
    assert [step.n_free for step in steps] == [int(step.free.sum()) for step in steps]
    assert sorted(step.iterations for step in steps) == [step.iterations for step in steps]
    for before, after in itertools.pairwise(steps):
        assert (after.free | ~before.free).all()
        assert (after.cost <= before.cost).all()
    for step in steps:
        hit = joint_path_in_collision(
            step.joints, panda, world, tolerance=MARGIN, env_index=index
        ).any(1)
        assert not (hit & step.free).any()
        lengths = (step.joints[:, 1:] - step.joints[:, :-1]).norm(dim=-1).sum(1)
        torch.testing.assert_close(step.length, lengths)
        assert torch.equal(step.cost.isfinite(), step.free)
    assert torch.equal(steps[-1].joints, found.joints)
    assert len({round(step.cost[0].item(), 6) for step in steps}) > 3


def test_pairs_at_a_fixed_distance_do_not_prevent_preferred_clearances(panda, device):
    """Of link5 and link7, which are always 15 mm apart; nothing else is near."""
    world = MeshWorld(device=device)
    fixed = [pair for pair in panda.default_pairs.constant if 0.014 < pair.clearance < 0.017]
    assert fixed
    found = plan(panda, world, [LEFT], [RIGHT], preferred_clearance=0.02)
    assert found.has_preferred_clearance.tolist() == [True]
    assert found.self_clearance.item() >= 0.02 - MARGIN
    assert found.world_clearance.item() == torch.inf
    assert found.clearance.item() == found.self_clearance.item()
    kept = panda.default_pairs.changing(1e-4)
    constant = panda.default_pairs.constant
    assert kept.n_sphere_pairs == panda.default_pairs.n_sphere_pairs - len(constant)
    assert kept.link_pairs == panda.default_pairs.link_pairs
    assert kept.constant == ()
    assert panda.default_pairs.changing(1.0) is panda.default_pairs
    within = plan(panda, world, [LEFT], [RIGHT], margin=0.016)  # above the distance of a pair
    assert within.free.tolist() == [True]
    assert within.has_preferred_clearance.tolist() == [True]
    named = [str(near) for near in within.near_ends if near.end == "goal"]
    assert "panda_link5 is 15.18 mm from link panda_link7" in named
    torch.testing.assert_close(within.margin.cpu(), torch.tensor([0.004]))


def test_each_problem_has_its_base(panda, device):
    """The post of one problem is where the robot of the other stands, turned with it."""
    base = torch.tensor([[0.4, -2.0, 0.3, 0.8, 0.0, 0.0, 0.6], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
    around_z = torch.tensor([[0.28, -0.96], [0.96, 0.28]])  # twice the angle of the quaternion
    x, y = (around_z @ torch.tensor([0.5, 0.05])).tolist()
    world = MeshWorld(device=device)
    world.add("near the first", Cylinder(0.04, 1.2), (0.4 + x, -2.0 + y, 0.8, 1, 0, 0, 0))
    world.add("near the second", Cylinder(0.04, 1.2), (0.5, 0.05, 0.5, 1, 0, 0, 0))
    base = base.to(device)
    found = plan(panda, world, [LEFT, LEFT], [RIGHT, RIGHT], base_pose=base)
    assert found.free.tolist() == [True, True]
    hit = joint_path_in_collision(found.joints, panda, world, tolerance=MARGIN, base_pose=base)
    assert not hit.any()
    line = torch.tensor([[LEFT, RIGHT]] * 2, device=device)
    for there, expected in ((base, [True, True]), (base[:1] + 9.0, [False])):
        some = line[: len(there)]
        assert joint_path_in_collision(some, panda, world, base_pose=there).any(1).tolist() == (
            expected
        )
    with pytest.raises(ValueError, match=r"base_pose must have shape \(7,\) or \(batch, 7\)"):
        plan(panda, world, [LEFT], [RIGHT], base_pose=base)


def test_wanted_contacts_are_no_bad_ends(panda, device):
    world = posts(device)
    here = panda.link_transforms(torch.tensor(RIGHT))[panda.link_names.index("panda_hand")]
    x, y, z = here[:3, 3].tolist()
    world.add("held", Cuboid((0.05, 0.05, 0.05)), (x, y, z, 0.9, 0.3, 0.2, 0.1), env=0)
    with pytest.raises(ValueError, match=r"goal must be free .* in collision with held"):
        plan(panda, world, [LEFT], [RIGHT])
    links = {panda.sphere_links[i] for i in range(len(panda.sphere_links))}
    near = [link for link in links if link.startswith(("panda_hand", "panda_left", "panda_right"))]
    ignore = [(link, "held") for link in [*near, "panda_link7", "panda_link6"] if link in links]
    found = plan(panda, world, [LEFT], [RIGHT], ignore=ignore)
    assert found.free.tolist() == [True]
    assert not joint_path_in_collision(
        found.joints, panda, world, tolerance=MARGIN, ignore=ignore
    ).any()
    assert joint_path_in_collision(found.joints, panda, world, tolerance=MARGIN).any()
