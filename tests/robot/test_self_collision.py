"""The robot with itself, against every pair in float64."""

import copy
import gc
import pickle
import tracemalloc
import weakref

import numpy as np
import pytest
import torch
from torch import func

from differentiable import JIT_WARNING
from joint_paths import load_crane
from robots import PANDA, checked_links, sphere_pairs, tree_robot
from warp_collision import (
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot import (
    RobotSpheres,
    SelfCollisionPairs,
    self_clearance,
    self_collision_cost,
)
from warp_collision.robot.model.sampled_pairs import random_joints

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)


def gaps(spheres: torch.Tensor, pairs: SelfCollisionPairs) -> torch.Tensor:
    """Clearance (..., n_pairs) of each pair in float64; infinite where one is disabled."""
    every = sphere_pairs(pairs)
    a, b = (spheres.double()[..., every[:, i], :] for i in (0, 1))
    gap = (a[..., :3] - b[..., :3]).norm(dim=-1) - a[..., 3] - b[..., 3]
    return torch.where((a[..., 3] < 0.0) | (b[..., 3] < 0.0), torch.inf, gap)


def expected_cost(spheres: torch.Tensor, pairs: SelfCollisionPairs, eta: float) -> torch.Tensor:
    depth = eta - gaps(spheres, pairs)
    cost = torch.where(depth <= eta, depth.clamp(min=0.0) ** 2 / (2 * eta), depth - eta / 2)
    total = torch.zeros(spheres.shape[:-1], dtype=torch.float64)
    every = sphere_pairs(pairs)
    for side in (0, 1):
        total = total.index_add(-1, torch.tensor(every[:, side]), 0.5 * cost)
    return total


def folded(robot: RobotSpheres, *shape: int, seed: int = 0) -> torch.Tensor:
    """Spheres of random joint values, many of which touch."""
    generator = torch.Generator().manual_seed(seed)
    joints = torch.rand((*shape, robot.n_joints), generator=generator) * 6.0 - 3.0
    return robot(joints)


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


@pytest.fixture(scope="module")
def pairs(panda) -> SelfCollisionPairs:
    return panda.self_collision_pairs()


def test_pairs_of_the_panda(panda, pairs):
    links = checked_links(pairs)
    assert all(len(pair) == 2 for pair in links)
    assert frozenset(("panda_link2", "panda_link3")) not in links  # a joint connects them
    assert frozenset(("panda_link7", "panda_hand")) not in links  # one body
    assert frozenset(("panda_link6", "panda_hand")) in links
    near = {
        frozenset(panda.sphere_links[i] for i in (a, b)): gap
        for a, b, gap in sorted(pairs.constant, key=lambda pair: -pair.clearance)
    }
    assert near[frozenset(("panda_link5", "panda_link7"))] == pytest.approx(0.0152, abs=1e-4)


def test_pairs_of_constant_clearance_take_no_part_in_clearances(panda, pairs):
    """link5 and link7 are always 15 mm apart: reports and clearances are of what can change."""
    path = torch.tensor(
        [[[0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8], [0.1, -0.5, 0, -2.2, 0, 1.6, 0.8]]]
    )
    world, two = MeshWorld(device="cpu"), {"panda_link5", "panda_link7"}
    for chosen in (True, pairs):
        found = joint_path_clearance(path, panda, world, self_collision=chosen)
        assert found.self_lower.item() > 0.016
        near = found.self_sphere, found.self_other
        assert {panda.sphere_links[sphere.item()] for sphere in near} != two
        assert len(panda.report(path, world, self_collision=chosen, margin=0.0153).link) == 0
    alone = pairs.without(np.array([{*pair} != two for pair in pairs.link_pairs]), "")
    for fixed in (0.02, torch.tensor(1e-3)):  # not above the tolerance; a tensor is not read
        found = joint_path_clearance(path, panda, world, tolerance=fixed, self_collision=alone)
        assert (found.self_upper.item() < 0.0153) == (fixed == 0.02)


def test_links_to_ignore(panda, pairs):
    fewer = panda.self_collision_pairs(ignore=[("panda_hand", "panda_link0")])
    links = checked_links(fewer)
    assert frozenset(("panda_link0", "panda_hand")) not in links
    spheres = panda.sphere_links.count("panda_hand")  # and one of the other link
    assert pairs.n_sphere_pairs - fewer.n_sphere_pairs == spheres
    with pytest.raises(ValueError, match=r"pairs of links of the robot, got \('panda_hand', 'arm'"):
        panda.self_collision_pairs(ignore=[("panda_hand", "arm")])


def test_pairs_that_always_touch_are_left_out_and_said(tmp_path):
    robot = tree_robot(tmp_path)
    # The wheel's sphere is 0.5 m off the axis, on which the slider's sphere of 0.2 m moves.
    found = robot.self_collision_pairs()
    everything = {*map(tuple, [*sphere_pairs(found).tolist(), *found.touching.tolist()])}
    a, b = (robot.sphere_links.index(link) for link in ("root", "tip"))
    assert (min(a, b), max(a, b)) in everything
    spheres = folded(robot, 500, 1)
    for a, b in found.touching:
        distance = (spheres[..., a, :3] - spheres[..., b, :3]).norm(dim=-1)
        assert (distance < spheres[..., a, 3] + spheres[..., b, 3]).all()


def test_samples_are_within_limits_beyond_half_a_revolution(tmp_path):
    # Outside of its limits, folded back to pi, the tip would be in the base.
    text = """<robot name="folding"><link name="base">
    <collision><geometry><sphere radius="0.1"/></geometry></collision></link>
    <link name="middle"/><link name="tip"><collision><origin xyz="0.3 0 0"/>
    <geometry><sphere radius="0.1"/></geometry></collision></link>
    <joint name="turn" type="revolute"><parent link="base"/><child link="middle"/>
    <axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
    <joint name="fold" type="revolute"><parent link="middle"/><child link="tip"/>
    <origin xyz="0.3 0 0"/><axis xyz="0 0 1"/>
    <limit lower="3.6" upper="6.2" effort="1" velocity="1"/></joint></robot>"""
    path = tmp_path / "folding.urdf"
    path.write_text(text)
    robot = RobotSpheres(path)
    pairs = robot.self_collision_pairs()
    assert pairs.link_pairs == (("base", "tip"),)
    assert len(pairs.touching) == 0
    joints = torch.tensor([[[0.0, 3.6]], [[0.0, 6.0]]])  # deep in the base, and stretched
    assert self_clearance(robot(joints), pairs).clearance[:, 0].sign().tolist() == [-1.0, 1.0]
    limits = torch.tensor([[3.6, 6.2], [-9.0, 9.0], [-torch.inf, torch.inf], [5.0, torch.inf]])
    drawn = random_joints(limits, 2000, None)
    assert torch.allclose(drawn.amin(0), torch.tensor([3.6, -9.0, -3.1416, 5.0]), atol=0.05)
    assert torch.allclose(drawn.amax(0), torch.tensor([6.2, 9.0, 3.1416, 11.2832]), atol=0.05)


def test_pairs_found_by_samples(panda, pairs):
    found = panda.find_pairs(500)
    left_out = [pair for pair in found.left_out if pair.reason == "not near in 500 samples"]
    assert len(found) + len(left_out) == len(pairs)
    assert len(found) < 0.5 * len(pairs)
    wider = panda.find_pairs(500, margin=0.05)
    assert {*found.link_pairs} < {*wider.link_pairs}
    spheres = panda.spheres(random_joints(panda.joint_limits, 500, None)[:, None])
    for pair in pairs.link_pairs:
        alone = SelfCollisionPairs(panda.sphere_links, (pair,))
        is_near = (self_clearance(spheres, alone).clearance < 0.05).any().item()
        assert is_near == (pair in wider.link_pairs)
    with pytest.raises(ValueError, match="n_samples must be at least 1, got 0"):
        panda.find_pairs(0)


@pytest.mark.parametrize("eta", [0.0, 0.01, 0.05])
def test_cost_is_that_of_every_pair(panda, pairs, eta, device):
    spheres = folded(panda, 40, 3)
    spheres[5, 1, 20:40, 3] = -1.0
    spheres[6, 0, 7, :3] = torch.nan
    spheres[6, 0, 7, 3] = -1.0  # disabled: its place does not matter
    found = self_collision_cost(
        spheres.to(device), pairs, weight=3.0, activation_distance=eta
    ).cpu()
    reference = spheres.clone()
    reference[6, 0, 7, :3] = 0.0
    expected = 3.0 * expected_cost(reference, pairs, eta or 1e-12)
    assert (expected > 0).any(-1).double().mean() > 0.3
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=1e-5)


def test_every_incoming_gradient(panda, pairs, device):
    spheres = folded(panda, 10, 2, seed=1).to(device).requires_grad_()
    upstream = torch.randn((10, 2, 59), generator=torch.Generator().manual_seed(1))
    self_collision_cost(spheres, pairs).backward(upstream.to(device))
    exact = spheres.detach().cpu().double().requires_grad_()
    expected_cost(exact, pairs, 0.01).backward(upstream.double())
    torch.testing.assert_close(spheres.grad.cpu().double(), exact.grad, atol=1e-4, rtol=1e-4)
    assert exact.grad.abs().max() > 1.0


def test_coincident_centers_are_pushed_apart():
    pairs = SelfCollisionPairs(("a", "b"), (("a", "b"),))
    spheres = torch.tensor([[[[0.3, -0.2, 0.1, 0.05]] * 2]]).requires_grad_()
    cost = self_collision_cost(spheres, pairs)
    torch.testing.assert_close(cost, torch.full((1, 1, 2), 0.5 * (0.1 + 0.01 - 0.005)))
    cost.sum().backward()
    push = spheres.grad[0, 0, :, :3]
    torch.testing.assert_close(push[0], -push[1])
    torch.testing.assert_close(push.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(spheres.grad[0, 0, :, 3], torch.ones(2))


def test_clearance_of_coincident_centers_has_the_direction_of_the_cost():
    pairs = SelfCollisionPairs(("a", "b"), (("a", "b"),))
    spheres = torch.tensor([[[[0.3, -0.2, 0.1, 0.05], [0.3, -0.2, 0.1, 0.02]]]]).requires_grad_()
    gap = self_clearance(spheres, pairs).clearance
    torch.testing.assert_close(gap, torch.tensor([[-0.07]]))
    (found,) = torch.autograd.grad(gap.sum(), spheres)
    (by_cost,) = torch.autograd.grad(self_collision_cost(spheres, pairs).sum(), spheres)
    torch.testing.assert_close(found, -by_cost)  # half of the pair's cost for each, of slope 1
    torch.testing.assert_close(found[0, 0, :, :3].norm(dim=-1), torch.ones(2))
    forward = func.jacfwd(lambda row: self_clearance(row, pairs).clearance)(spheres.detach())
    torch.testing.assert_close(forward[0, 0], found)


@pytest.mark.parametrize("column", [0, 3])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_free(panda, pairs, column, value):
    for sphere in (3, 58):
        spheres = folded(panda, 2, 1, seed=2)
        spheres[0, 0, sphere, column] = value
        cost = self_collision_cost(spheres, pairs)
        gap = self_clearance(spheres, pairs).clearance[0, 0]
        if value == torch.inf and column == 0:
            continue  # infinitely far away is free
        assert not (cost[0, 0, sphere] < torch.inf)
        assert not (gap > -torch.inf)
        assert cost[1].isfinite().all()


def test_clearance_is_the_smallest_of_all_pairs(panda, pairs, device):
    spheres = folded(panda, 60, 2, seed=3)
    spheres[4, 1, :30, 3] = -1.0
    found = self_clearance(spheres.to(device), pairs)
    expected, place = gaps(spheres, pairs).min(-1)
    torch.testing.assert_close(found.clearance.cpu().double(), expected, atol=1e-6, rtol=0)
    closest = torch.stack([found.first, found.second], -1).cpu().long()
    assert (closest == torch.tensor(sphere_pairs(pairs))[place]).all(-1).double().mean() > 0.99


def test_clearance_has_a_gradient(panda, pairs):
    spheres = folded(panda, 1, 1, seed=4).requires_grad_()
    self_clearance(spheres, pairs).clearance.sum().backward()
    exact = spheres.detach().double().requires_grad_()
    gaps(exact, pairs).amin().backward()
    torch.testing.assert_close(spheres.grad.double(), exact.grad, atol=1e-5, rtol=0)


def test_no_pairs(panda):
    none = SelfCollisionPairs(panda.sphere_links, ())
    spheres = folded(panda, 2, 3)
    assert (self_collision_cost(spheres, none) == 0.0).all()
    found = self_clearance(spheres, none)
    assert (found.clearance == torch.inf).all()
    assert (found.first == -1).all()


def test_transforms(panda, pairs):
    spheres = folded(panda, 3, 2, seed=5)

    def cost(row):
        return self_collision_cost(row, pairs)

    expected = expected_cost(spheres, pairs, 0.01)
    torch.testing.assert_close(func.vmap(cost)(spheres[:, None])[:, 0].double(), expected)
    one = spheres[:1, :1]
    backward, forward = func.jacrev(cost)(one), func.jacfwd(cost)(one)
    torch.testing.assert_close(backward, forward)
    exact = func.jacrev(lambda s: expected_cost(s, pairs, 0.01))(one.double())
    torch.testing.assert_close(backward.double(), exact, atol=1e-4, rtol=1e-4)
    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(spheres), cost(spheres))
    with pytest.raises(RuntimeError, match="second derivative"):
        func.jacfwd(func.jacrev(lambda s: cost(s).sum()))(one)
    closest = func.vmap(lambda row: self_clearance(row, pairs).clearance)(spheres[:, None])
    torch.testing.assert_close(closest[:, 0], self_clearance(spheres, pairs).clearance)


def test_weights_have_gradients(panda, pairs):
    spheres = folded(panda, 3, 2, seed=6)
    weight = torch.tensor(2.0, requires_grad=True)
    self_collision_cost(spheres, pairs, weight=weight).sum().backward()
    expected = expected_cost(spheres, pairs, 0.01).sum().float()
    torch.testing.assert_close(weight.grad, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("spheres", "error", "message"),
    [
        (torch.zeros(1, 1, 58, 4), ValueError, "n_spheres = 59 as the pairs, got"),
        (torch.zeros(1, 59, 4), ValueError, "spheres must have shape"),
        ([0.0], TypeError, "spheres must be a torch.Tensor"),
    ],
)
def test_wrong_spheres(pairs, spheres, error, message):
    for function in (self_collision_cost, self_clearance):
        with pytest.raises(error, match=message):
            function(spheres, pairs)


def test_wrong_pairs(panda):
    with pytest.raises(TypeError, match="pairs must be SelfCollisionPairs, got ndarray"):
        self_collision_cost(folded(panda, 1, 1), np.zeros((1, 2)))


# In self-collision at the end, free at the begin.
FOLDING = torch.tensor([[[0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8], [0.0, 1.7, 0.0, -3.0, 0, 0, 0.8]]])


@pytest.mark.slow
def test_tables_of_pairs_are_dropped_with_them():
    robot, world = load_crane(), MeshWorld(device="cpu")
    path = torch.linspace(-0.5, 0.5, 2)[None, :, None].expand(1, 2, robot.n_joints)
    dropped: list[weakref.ref] = []
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(8):
            own = robot.self_collision_pairs()
            joint_path_in_collision(path, robot, world, self_collision=own)
            tables = robot.layout.pair_tables(own, path.device)
            dropped += [weakref.ref(own), *map(weakref.ref, tables)]
            del own, tables
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert all(ref() is None for ref in dropped)
    assert sizes[-1] - sizes[3] < 30_000  # bytes; the pairs of four calls are over 80,000


@pytest.mark.parametrize("compiled", [False, True])
def test_pairs_are_checked_by_their_own_tables(panda, compiled):
    spheres = panda.spheres(FOLDING[0, 1])
    every = panda.self_collision_pairs()
    depth = -gaps(spheres, every)
    listed = sphere_pairs(every)[[int(depth.argmax()), int(depth.argmin())]]
    deepest, farthest = (tuple(panda.sphere_links[i] for i in pair) for pair in listed)
    world = MeshWorld(device="cpu")

    def check(joints: torch.Tensor, own: SelfCollisionPairs) -> torch.Tensor:
        return configuration_in_collision(joints, panda, world, self_collision=own)

    if compiled:
        torch.compiler.reset()
        check = torch.compile(check, backend="eager", fullgraph=True)
    for turn in range(4 if compiled else 30):  # memory, and so ids, are used again
        touches = turn % 2 == 0
        own = SelfCollisionPairs(panda.sphere_links, (deepest if touches else farthest,))
        assert check(FOLDING[0, 1], own).item() == touches


def test_pairs_may_be_checked_by_robots_of_other_frames(panda):
    """Locked joints merge frames: pairs of equal spheres have other tables then."""
    locked = RobotSpheres(PANDA, lock_joints={"panda_joint1": 0.3})
    assert locked.sphere_links == panda.sphere_links
    own = panda.self_collision_pairs()
    world = MeshWorld(device="cpu")
    for robot, path in ((panda, FOLDING), (locked, FOLDING[..., 1:]), (panda, FOLDING)):
        found = joint_path_clearance(path, robot, world, self_collision=own)
        again = joint_path_clearance(
            path, robot, world, self_collision=SelfCollisionPairs(own.sphere_links, own.link_pairs)
        )
        assert torch.equal(found.self_lower, again.self_lower)
        assert found.self_upper.item() < 0.0


def test_checked_pairs_can_be_pickled(panda):
    own = panda.self_collision_pairs()
    panda.layout.pair_tables(own, FOLDING.device)
    assert pickle.loads(pickle.dumps(own)).link_pairs == own.link_pairs


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda robot: pickle.loads(pickle.dumps(robot))])
def test_copies_of_a_robot_have_tables_of_their_own(panda, copied):
    """Kernels read them by addresses, which hold for one robot in one process."""
    world = MeshWorld(device="cpu")
    expected = joint_path_clearance(FOLDING, panda, world)
    again = copied(panda)
    own, others = again.layout.tables(world.device), panda.layout.tables(world.device)
    assert own.values()[:6] == tuple(table.data_ptr() for table in own[:6])
    assert not set(own.values()[:6]) & set(others.values()[:6]) - {0}  # of empty tables
    for found, same in zip(joint_path_clearance(FOLDING, again, world), expected, strict=True):
        assert torch.equal(found, same)
