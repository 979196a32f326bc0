"""Tables of allowed contacts: against float64, as robots and worlds change, and over many calls."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from differentiable import JIT_WARNING
from joint_paths import random_paths
from warp_collision import (
    CollisionCost,
    Cuboid,
    MeshWorld,
    RobotSpheres,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.world.ignored_spheres import MOST_TABLES

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)
Contact = tuple[str, str]

DIMS = (0.25, 0.2, 0.3)
ENVS = (("a", "b", "c", "d"), ("d", "b", "e"))


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


def random_pose(rng: np.random.Generator) -> tuple[float, ...]:
    return (*rng.uniform((-0.3, -0.5, 0.1), (0.6, 0.5, 0.8)), *rng.normal(size=4))


def crowded(device: torch.device, seed: int = 3) -> MeshWorld:
    rng = np.random.default_rng(seed)
    world = MeshWorld(len(ENVS), max_obstacles=5, device=device)
    for env, names in enumerate(ENVS):
        for name in names:
            world.add(name, Cuboid(DIMS), random_pose(rng), env=env)
    return world


def random_contacts(robot: RobotSpheres, rng: np.random.Generator, count: int) -> list[Contact]:
    links, names = sorted(set(robot.sphere_links)), sorted({*ENVS[0], *ENVS[1]})
    pairs = [(link, name) for link in links for name in names]
    return [pairs[i] for i in rng.permutation(len(pairs))[:count]]


def gaps(
    robot: RobotSpheres, world: MeshWorld, joints: torch.Tensor, ignore: list[Contact]
) -> np.ndarray:
    """Clearances (envs, batch, horizon, n_spheres, obstacles) float64; inf for allowed contacts."""
    spheres = robot(joints.double().cpu()).numpy()
    found = np.full((len(ENVS), *spheres.shape[:-1], world.max_obstacles), np.inf)
    for env in range(len(ENVS)):
        for slot, name in enumerate(world.names(env)):
            x, y, z, *quaternion = world.pose(name, env).double().cpu().numpy()
            w, *axis = quaternion / np.linalg.norm(quaternion)
            offset = spheres[..., :3] - (x, y, z)
            turned = np.cross(offset, axis)  # by the inverse rotation
            local = offset + 2.0 * (w * turned + np.cross(turned, axis))
            beyond = np.abs(local) - 0.5 * np.array(DIMS)
            outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)
            clear = outside + np.minimum(beyond.max(-1), 0.0) - spheres[..., 3]
            allowed = [(link, name) in ignore for link in robot.sphere_links]
            found[env, ..., slot] = np.where(allowed, np.inf, clear)
    return found


@pytest.mark.parametrize("count", [1, 7, 20, 40])
def test_any_contacts(panda, device, count):
    world, rng = crowded(device), np.random.default_rng(count)
    ignore = random_contacts(panda, rng, count)
    paths = random_paths(panda, rng, 60, 3, 0.5).to(device)
    envs = (torch.arange(60, device=device) % 2).to(torch.int32)
    exact = gaps(panda, world, paths, ignore)[envs.cpu().numpy(), np.arange(60)]
    options = {"ignore": ignore, "env_index": envs}
    least = exact.min((-2, -1))
    hits = configuration_in_collision(paths, panda, world, self_collision=False, **options)
    sure = np.abs(least) > 1e-5
    assert sure.mean() > 0.9
    assert 0.02 < (least < 0.0).mean() < 0.99
    np.testing.assert_array_equal(hits.cpu().numpy()[sure], least[sure] < 0.0)
    # The ends of segments bound their clearance.
    found = joint_path_clearance(paths, panda, world, self_collision=False, **options)
    ends = np.minimum(least[:, :-1], least[:, 1:])
    assert (found.world_lower.cpu().numpy() <= ends + 1e-5).all()
    segments = joint_path_in_collision(paths, panda, world, self_collision=False, **options)
    assert segments.cpu().numpy()[ends < -1e-5].all()
    # Costs and constraints at waypoints.
    eta = 0.05
    depth = np.maximum(eta - exact, 0.0)
    terms = np.where(depth > eta, depth - eta / 2.0, depth**2 / (2.0 * eta))
    term = CollisionCost(
        panda, world, swept=False, activation_distance=eta, ignore=ignore,
        reduction="none",
    )  # fmt: skip
    torch.testing.assert_close(
        term(paths, envs).double().cpu(), torch.from_numpy(terms.sum(-1)), atol=1e-5, rtol=1e-4
    )
    values = term.constraint(paths, env_index=envs).value.double().cpu()
    torch.testing.assert_close(values, torch.from_numpy(exact.min(-1)), atol=1e-5, rtol=1e-4)


def moved(poses: torch.Tensor, joints: torch.Tensor) -> torch.Tensor:
    """Poses (n_envs, horizon, slots, 7) for each waypoint, which drift."""
    drift = torch.linspace(0.0, 0.03, joints.shape[1], device=poses.device)
    poses = poses[:, None].repeat(1, len(drift), 1, 1)
    poses[..., 0] += drift[:, None]
    return poses


def world_poses(world: MeshWorld) -> torch.Tensor:
    poses = torch.zeros((len(ENVS), world.max_obstacles, 7), device=world.device)
    poses[..., 3] = 1.0
    for env, names in enumerate(ENVS):
        poses[env, : len(names)] = world.poses(env)
    return poses


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_poses_of_what_is_ignored_have_no_gradient(panda, device, swept, moves):
    world, rng = crowded(device), np.random.default_rng(5)
    paths = random_paths(panda, rng, 20, 3, 0.4).to(device)
    poses = world_poses(world)
    poses = (moved(poses, paths) if moves else poses).requires_grad_()
    links = sorted(set(panda.sphere_links))
    ignore = [(link, "b") for link in links] + [(link, "a") for link in links[1:]]
    gradients = {}
    for name, pairs in (("all", []), ("some", ignore)):
        term = CollisionCost(
            panda, world, swept=swept, activation_distance=0.05, substeps=3, ignore=pairs
        )
        (gradients[name],) = torch.autograd.grad(term(paths, poses=poses).sum(), poses)
    index = {name: (0, ..., ENVS[0].index(name), slice(None)) for name in "abc"}
    assert gradients["all"][index["b"]].abs().max() > 0.1
    assert gradients["some"][index["b"]].abs().max() == 0.0
    if not swept:  # otherwise the largest cost of the parts is that of another one
        torch.testing.assert_close(gradients["some"][index["c"]], gradients["all"][index["c"]])
    assert not torch.equal(gradients["some"][index["a"]], gradients["all"][index["a"]])


def test_obstacles_that_move_may_touch_too(panda, device):
    world, rng = crowded(device), np.random.default_rng(6)
    paths = random_paths(panda, rng, 20, 3, 0.4).to(device)
    ignore = random_contacts(panda, rng, 30)
    options = {"self_collision": False, "ignore": ignore}
    poses = world_poses(world)
    fast = moved(poses, paths)
    hits = joint_path_in_collision(paths, panda, world, poses=fast, **options)
    found = joint_path_clearance(paths, panda, world, poses=fast, **options)
    expected = torch.zeros_like(hits)
    lower, upper = (torch.full_like(found.world_lower, torch.inf) for _ in range(2))
    for name in ENVS[0]:
        for other in world.names(0):
            world.enable(other, other == name)
        one = joint_path_clearance(paths, panda, world, poses=fast, **options)
        lower, upper = torch.minimum(lower, one.world_lower), torch.minimum(upper, one.world_upper)
        expected |= joint_path_in_collision(paths, panda, world, poses=fast, **options)
    assert torch.equal(hits, expected)
    assert torch.equal(found.world_lower, lower)
    assert torch.equal(found.world_upper, upper)
    every = [(link, name) for link in set(panda.sphere_links) for name in ENVS[0]]
    options["ignore"] = every
    assert not joint_path_in_collision(paths, panda, world, poses=fast, **options).any()


def edits() -> dict[str, Callable[[MeshWorld], None]]:
    pose = (0.3, 0.1, 0.4, 1, 0, 0, 0)

    def again(world: MeshWorld) -> None:
        world.remove("c", env=0)
        world.add("c", Cuboid(DIMS), pose, env=0)

    def load(world: MeshWorld) -> None:
        world.load({"c": (Cuboid(DIMS), pose), "new": (Cuboid(DIMS), pose)}, env=0)

    return {
        "remove": lambda world: world.remove("a", env=0),
        "again": again,
        "load": load,
        "add": lambda world: world.add("e", Cuboid(DIMS), pose, env=0) and None,
        "replace": lambda world: world.add("c", Cuboid(DIMS), pose, replace=True) and None,
        "grow": lambda world: world.grow(max_obstacles=9),
        "grow envs": lambda world: world.grow(n_envs=4),
        "clear": lambda world: world.clear(0),
    }


@pytest.mark.parametrize("edit", edits())
def test_the_next_call_sees_edits(panda, device, edit):
    world, rng = crowded(device), np.random.default_rng(7)
    paths = random_paths(panda, rng, 60, 2, 0.4).to(device)
    ignore = [(link, name) for link in sorted(set(panda.sphere_links))[:5] for name in "bde"]
    envs = (torch.arange(60, device=device) % 2).to(torch.int32)
    options = {"self_collision": False, "env_index": envs, "ignore": ignore}
    before = configuration_in_collision(paths, panda, world, **options)
    edits()[edit](world)
    exact = gaps(panda, world, paths, ignore)[envs.cpu().numpy(), np.arange(60)].min((-2, -1))
    hits = configuration_in_collision(paths, panda, world, **options)
    sure = np.abs(exact) > 1e-5
    np.testing.assert_array_equal(hits.cpu().numpy()[sure], exact[sure] < 0.0)
    assert torch.equal(hits, before) == edit.startswith("grow")


def test_obstacles_that_are_gone_are_unknown(panda, device):
    world = crowded(device)
    joints = torch.zeros((1, 2, 7), device=device)
    ignore = [("panda_hand", "a")]
    joint_path_in_collision(joints, panda, world, ignore=ignore)
    world.remove("a")
    with pytest.raises(ValueError, match=r"got no obstacle 'a' in \('panda_hand', 'a'\)"):
        joint_path_in_collision(joints, panda, world, ignore=ignore)
    world.add("a", Cuboid(DIMS), env=1)
    joint_path_in_collision(joints, panda, world, ignore=ignore)


def test_attached_objects_shift_spheres(device):
    panda, world, rng = load_panda(), crowded(device), np.random.default_rng(8)
    paths = random_paths(panda, rng, 60, 2, 0.4).to(device)
    for count, attach in enumerate((True, True, False, True, False)):
        rods = [link for link in panda.sphere_links if link.startswith("rod")]
        if attach:
            panda.attach(f"rod{count}", "panda_link4", [[0.0, 0.2, 0.0, 0.05]])
        else:
            panda.detach(rods[0])
        bodies = {link for link in panda.sphere_links if link.startswith("rod")}
        ignore = [*random_contacts(panda, rng, 12), *((body, "c") for body in sorted(bodies)[:1])]
        exact = gaps(panda, world, paths, ignore)[0].min((-2, -1))
        hits = configuration_in_collision(paths, panda, world, ignore=ignore, self_collision=False)
        sure = np.abs(exact) > 1e-5
        np.testing.assert_array_equal(hits.cpu().numpy()[sure], exact[sure] < 0.0)


def test_further_calls_copy_nothing_from_the_host(panda, device, monkeypatch):
    world, rng = crowded(device), np.random.default_rng(9)
    paths = random_paths(panda, rng, 4, 3, 0.4).to(device)
    ignore = random_contacts(panda, rng, 9)
    calls = [
        lambda: configuration_in_collision(paths, panda, world, ignore=ignore),
        lambda: joint_path_in_collision(paths, panda, world, ignore=ignore),
        lambda: joint_path_clearance(paths, panda, world, ignore=ignore).world_upper,
        lambda: joint_path_cost(paths, panda, world, ignore=ignore, substeps=3),
    ]
    first = [call() for call in calls]
    table = scene_with_contacts(ignore, panda, world).tables.ignored

    def refuse(*_, **__):
        raise AssertionError("a table is made again")

    monkeypatch.setattr(torch, "from_numpy", refuse)
    monkeypatch.setattr("warp_collision.world.ignored_spheres.np.zeros", refuse)
    for call, expected in zip(calls, first, strict=True):
        assert torch.equal(call(), expected)
    monkeypatch.undo()
    world.set_pose("a", (0.1, 0, 0, 1, 0, 0, 0))
    world.enable("b", False)
    # Lists of lists are the same contacts.
    for same in (ignore, tuple(ignore), iter(ignore), [list(pair) for pair in ignore]):
        assert scene_with_contacts(same, panda, world).tables.ignored is table
    assert scene_with_contacts((), panda, world).tables.ignored is None


def test_few_tables_are_kept(panda, device):
    world = crowded(device)
    joints = torch.zeros((1, 2, 7), device=device)
    pairs = [(link, name) for link in panda.link_names for name in "abcde"]
    sets = [(one, other) for one in pairs for other in pairs[:3] if one != other]
    assert len(sets) > 2 * MOST_TABLES
    for ignore in sets:
        configuration_in_collision(joints, panda, world, ignore=ignore)
    assert len(world._storage.ignored._tables) == MOST_TABLES
    one = scene_with_contacts(sets[-1], panda, world).tables.ignored
    assert scene_with_contacts(sets[-1], panda, world).tables.ignored is one


def test_compiled_calls_see_edits(panda):
    device = torch.device("cpu")
    world, rng = crowded(device), np.random.default_rng(10)
    paths = random_paths(panda, rng, 10, 3, 0.4)
    ignore = random_contacts(panda, rng, 12)

    def cost(joints):
        return joint_path_cost(joints, panda, world, substeps=3, ignore=ignore)

    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(paths), cost(paths))
    for edit in ("add", "grow", "replace"):
        edits()[edit](world)
        torch.testing.assert_close(compiled(paths), cost(paths))
