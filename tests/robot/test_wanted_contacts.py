"""Contacts that are wanted, against checks of one link and one obstacle at a time."""

import numpy as np
import pytest
import torch

from differentiable import JIT_WARNING
from joint_paths import load_crane, random_paths
from warp_collision import (
    Capsule,
    Cuboid,
    MeshWorld,
    RobotSpheres,
    clearance,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
    swept_sphere_cost,
)
from warp_collision.examples import load_panda

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)
Contact = tuple[str, str]

# For each robot: contacts that several links share, and one that another link has with the same.
IGNORED = {
    "panda": [
        *((f"panda_{link}", "can") for link in ("hand", "leftfinger", "rightfinger", "link6")),
        *((f"panda_{link}", "wall") for link in ("hand", "leftfinger", "rightfinger", "link6")),
        *(("panda_link5", "can"), ("panda_link7", "shelf"), ("panda_hand", "shelf")),
    ],
    "crane": [("arm", "can"), ("hand", "can"), ("hand", "wall"), ("boom", "shelf")],
}


@pytest.fixture(params=["panda", "crane"])
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def robots() -> dict[str, RobotSpheres]:
    return {"panda": load_panda(), "crane": load_crane()}


def worlds(robot: RobotSpheres, ignored: list[Contact], device: torch.device) -> MeshWorld:
    """Obstacles where the links come that may touch them, in one env in another order."""
    rng = np.random.default_rng(1)
    reach = robot(random_paths(robot, rng, 30, 1, 1.0)[:, 0])[..., :3].numpy()
    world = MeshWorld(2, max_obstacles=4, device=device)
    shapes = {
        "can": Capsule(0.06, 0.2),
        "shelf": Cuboid((0.3, 0.2, 0.03)),
        "wall": Cuboid((0.02, 0.3, 0.3)),
    }
    for env, names in ((0, ["can", "shelf", "wall"]), (1, ["wall", "floor", "can"])):
        for obstacle in names:
            near = [(link, obstacle) in ignored for link in robot.sphere_links]
            places = reach[:, near].reshape(-1, 3) if any(near) else np.array([[0.0, 0.0, -0.5]])
            place = places[rng.integers(len(places))]
            pose = (*place.tolist(), *(rng.normal(size=4) if any(near) else (1, 0, 0, 0)))
            world.add(obstacle, shapes.get(obstacle, Cuboid((2, 2, 0.1))), pose, env=env)
    return world


class Alone:
    """The same world with one obstacle enabled, and the robot's spheres of one link."""

    def __init__(self, robot: RobotSpheres, world: MeshWorld):
        self.robot, self.world = robot, world
        self.links = sorted(set(robot.sphere_links))
        self.obstacles = sorted({n for env in range(2) for n in world.names(env)})

    def spheres(self, spheres: torch.Tensor, link: str) -> torch.Tensor:
        kept = torch.tensor([other == link for other in self.robot.sphere_links])
        alone = spheres.clone()
        alone[..., 3] = torch.where(kept.to(spheres.device), spheres[..., 3], -1.0)
        return alone

    def enable(self, obstacle: str | None) -> None:
        for env in range(2):
            for name in self.world.names(env):
                self.world.enable(name, obstacle in (None, name), env=env)

    def contacts(self, ignored: list[Contact]) -> list[Contact]:
        pairs = [(link, obstacle) for link in self.links for obstacle in self.obstacles]
        return [pair for pair in pairs if pair not in ignored]


def envs_of(batch: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(batch, device=device) % 2).to(torch.int32)


@pytest.fixture
def case(robots, name, device):
    robot = robots[name]
    world = worlds(robot, IGNORED[name], device)
    paths = random_paths(robot, np.random.default_rng(2), 40, 3, 0.6).to(device)
    return robot, world, paths, envs_of(40, device), IGNORED[name]


def test_configurations(case):
    robot, world, paths, envs, ignored = case
    alone = Alone(robot, world)
    options = {"self_collision": False, "env_index": envs}
    plain = configuration_in_collision(paths, robot, world, **options)
    found = configuration_in_collision(paths, robot, world, ignore=ignored, **options)
    expected = torch.zeros_like(plain)
    spheres = robot(paths)
    for link, obstacle in alone.contacts(ignored):
        alone.enable(obstacle)
        gaps = clearance(alone.spheres(spheres, link), world, env_index=envs).clearance
        expected |= (gaps < 0.0).any(-1)
    alone.enable(None)
    assert torch.equal(found, expected)
    assert (plain & ~found).any()
    assert found.any()
    every = [(link, obstacle) for link in alone.links for obstacle in alone.obstacles]
    assert not configuration_in_collision(paths, robot, world, ignore=every, **options).any()
    itself = configuration_in_collision(paths, robot, MeshWorld(device=world.device))
    options["self_collision"] = True
    assert torch.equal(
        configuration_in_collision(paths, robot, world, ignore=every, **options), itself
    )


def test_paths(case):
    robot, world, paths, envs, ignored = case
    alone = Alone(robot, world)
    options = {"self_collision": False, "env_index": envs}
    plain = joint_path_in_collision(paths, robot, world, **options)
    hits = joint_path_in_collision(paths, robot, world, ignore=ignored, **options)
    found = joint_path_clearance(paths, robot, world, ignore=ignored, tolerance=1e-3, **options)
    assert (plain & ~hits).any()
    assert hits.any()
    # The other way round: all but one pair ignored, for every pair that is not.
    every = [(link, obstacle) for link in alone.links for obstacle in alone.obstacles]
    lower = torch.full_like(found.world_lower, torch.inf)
    upper, expected = lower.clone(), torch.zeros_like(hits)
    for pair in alone.contacts(ignored):
        others = [other for other in every if other != pair]
        one = joint_path_clearance(paths, robot, world, ignore=others, **options)
        lower, upper = torch.minimum(lower, one.world_lower), torch.minimum(upper, one.world_upper)
        expected |= joint_path_in_collision(paths, robot, world, ignore=others, **options)
    # Intervals of the same minimum overlap, and are no wider than the tolerance.
    assert (found.world_lower <= upper + 1e-6).all()
    assert (lower <= found.world_upper + 1e-6).all()
    assert (found.world_upper - found.world_lower <= 1e-3).all()
    # Answers may differ where the clearance is between nothing and the tolerance.
    sure = (found.world_lower > 1.1e-3) | (found.world_upper < -1e-4)
    assert sure.double().mean() > 0.9
    assert torch.equal(hits[sure], expected[sure])
    for row, segment in np.ndindex(*found.world_upper.shape):
        s, sphere = found.world_position[row, segment], int(found.sphere[row, segment])
        mesh = int(found.obstacle[row, segment])
        obstacle = world.names(int(envs[row]))[mesh]
        assert (robot.sphere_links[sphere], obstacle) not in ignored
        q = paths[row, segment] + s * (paths[row, segment + 1] - paths[row, segment])
        alone.enable(obstacle)
        gap = clearance(robot(q)[None, None], world, env_index=envs[row : row + 1])
        assert gap.clearance[0, 0, sphere].item() == pytest.approx(
            found.world_upper[row, segment].item(), abs=2e-5
        )
    alone.enable(None)


def test_the_robot_with_itself_stays(case):
    robot, world, paths, envs, ignored = case
    plain = joint_path_clearance(paths, robot, world, env_index=envs)
    found = joint_path_clearance(paths, robot, world, env_index=envs, ignore=ignored)
    torch.testing.assert_close(found.self_upper, plain.self_upper)
    assert torch.equal(found.self_sphere, plain.self_sphere)
    itself = joint_path_in_collision(paths, robot, MeshWorld(device=world.device))
    hits = joint_path_in_collision(paths, robot, world, env_index=envs, ignore=ignored)
    assert (hits | ~itself).all()


@pytest.mark.parametrize("substeps", [1, 5])
def test_costs_and_gradients(case, substeps):
    robot, world, paths, envs, ignored = case
    alone = Alone(robot, world)
    options = {"activation_distance": 0.05, "substeps": substeps, "env_index": envs}
    joints = paths.clone().requires_grad_()
    cost = joint_path_cost(joints, robot, world, ignore=ignored, **options)
    upstream = torch.randn(cost.shape, generator=torch.Generator().manual_seed(1)).to(cost)
    cost.backward(upstream)
    other = paths.clone().requires_grad_()
    steps = torch.arange(2 * substeps + 1, device=paths.device) / substeps
    at = steps.long().clamp(max=1)
    part = (steps - at)[:, None]
    fine = other[:, at] * (1.0 - part) + other[:, at + 1] * part
    total = 0.0
    for link, obstacle in alone.contacts(ignored):
        alone.enable(obstacle)
        spheres = alone.spheres(robot(fine), link)
        total += swept_sphere_cost(spheres, world, activation_distance=0.05, env_index=envs)
    alone.enable(None)
    beyond = (substeps - 1) // 2
    padded = torch.nn.functional.pad(total, (0, 0, beyond, beyond))
    expected = padded.unflatten(1, (-1, substeps)).amax(2).sum(-1)
    expected.backward(upstream)
    torch.testing.assert_close(cost, expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(joints.grad, other.grad, atol=2e-2, rtol=2e-2)
    assert (joint_path_cost(paths, robot, world, **options) - cost).max() > 0.01


def test_other_poses(robots, device):
    panda = robots["panda"]
    world = worlds(panda, IGNORED["panda"], device)
    paths = random_paths(panda, np.random.default_rng(4), 6, 3, 0.4).to(device)
    envs, ignored = envs_of(6, device), IGNORED["panda"]
    poses = torch.zeros((2, 4, 7), device=device)
    poses[..., 3] = 1.0
    for env in range(2):
        for slot, obstacle in enumerate(world.names(env)):
            poses[env, slot] = world.pose(obstacle, env)
    poses[..., 0] += 0.05
    poses.requires_grad_()
    options = {"ignore": ignored, "env_index": envs, "substeps": 3}
    cost = joint_path_cost(paths, panda, world, poses=poses, **options)
    cost.sum().backward()
    for env in range(2):
        for slot, obstacle in enumerate(world.names(env)):
            world.set_pose(obstacle, poses[env, slot].detach(), env=env)
    assert cost.max() > 0.0
    torch.testing.assert_close(joint_path_cost(paths, panda, world, **options), cost)
    assert poses.grad.isfinite().all()
    assert poses.grad.abs().max() > 0.0


def test_compiled(robots):
    panda, device = robots["panda"], torch.device("cpu")
    world = worlds(panda, IGNORED["panda"], device)
    paths = random_paths(panda, np.random.default_rng(3), 4, 3, 0.4)

    def cost(joints):
        options = {"substeps": 3, "env_index": envs_of(4, device), "ignore": IGNORED["panda"]}
        return joint_path_cost(joints, panda, world, **options)

    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(paths), cost(paths))


def test_what_is_disabled_stays_disabled(robots, device):
    panda = robots["panda"]
    world = MeshWorld(device=device)
    world.add("block", Cuboid((2, 2, 2)), (0, 0, 0.5, 1, 0, 0, 0))
    world.add("far", Cuboid((0.1, 0.1, 0.1)), (5, 0, 0, 1, 0, 0, 0))
    joints = torch.tensor([[[0.0, -0.5, 0, -2.2, 0, 1.6, 0.8]] * 2], device=device)
    ignored = [("panda_hand", "block"), ("panda_link3", "far")]
    assert joint_path_in_collision(joints, panda, world, ignore=ignored).all()
    world.enable("block", False)
    assert not joint_path_in_collision(joints, panda, world, ignore=ignored).any()


def test_attached_objects_may_touch_too(device):
    panda = load_panda()
    panda.attach("rod", "panda_hand", [[0.0, 0.0, 0.05 * i, 0.01] for i in range(3, 8)])
    joints = torch.tensor([[[0.0, 0.4, 0, -1.6, 0, 2, 0.8]]], device=device)
    tip = panda(joints)[0, 0, panda.sphere_links.index("rod") + 4, :3].tolist()
    world = MeshWorld(device=device)
    world.add("post", Cuboid((0.02, 0.02, 0.02)), (*tip, 1, 0, 0, 0))
    assert configuration_in_collision(joints, panda, world).all()
    assert not configuration_in_collision(joints, panda, world, ignore=[("rod", "post")]).any()
    panda.detach("rod")
    with pytest.raises(ValueError, match=r"got no link 'rod' in \('rod', 'post'\); there is 'pan"):
        configuration_in_collision(joints, panda, world, ignore=[("rod", "post")])


def test_what_is_not_finite_is_not_free(robots):
    panda = robots["panda"]
    world = worlds(panda, IGNORED["panda"], torch.device("cpu"))
    paths = random_paths(panda, np.random.default_rng(5), 2, 3, 0.1)
    paths[0, 1, 2] = torch.nan
    every = [(link, obstacle) for link in panda.link_names for obstacle in ("can", "wall", "shelf")]
    hits = joint_path_in_collision(paths, panda, world, ignore=every, self_collision=False)
    assert hits.tolist() == [[True, True], [False, False]]
    found = joint_path_clearance(paths, panda, world, ignore=every)
    assert found.world_upper.isnan().tolist() == [[True, True], [False, False]]
    assert found.world_lower.isnan().tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize(
    "wrong",
    [("hand", "can"), ("panda_hand", "cup"), ("panda_hand",), "ab", ("panda_hand", "can", "can")],
)
def test_unknown_names(robots, wrong):
    panda = robots["panda"]
    world = worlds(panda, IGNORED["panda"], torch.device("cpu"))
    functions = (
        configuration_in_collision,
        joint_path_in_collision,
        joint_path_clearance,
        joint_path_cost,
    )
    for function in functions:
        with pytest.raises(ValueError, match="ignore must be pairs of a link of the robot and an"):
            function(torch.zeros(1, 2, 7), panda, world, ignore=[("panda_hand", "can"), wrong])


def test_names_that_are_near_are_listed(robots):
    panda = robots["panda"]
    world = worlds(panda, IGNORED["panda"], torch.device("cpu"))
    for wrong, message in (
        (("panda_hnd", "can"), "got no link 'panda_hnd' in .*; there is 'panda_hand'"),
        (("panda_hand", "cans"), "got no obstacle 'cans' in .*; there is 'can', "),
        (("can", "panda_hand"), "in this order, got"),
    ):
        with pytest.raises(ValueError, match=message):
            panda.report(torch.zeros(1, 2, 7), world, ignore=[wrong])
