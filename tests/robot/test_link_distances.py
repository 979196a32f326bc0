"""Distances of links, their derivatives and their proven radii, against float64 references."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from torch import func

import exact_scenes
from cases import mostly_slow
from differentiable import JIT_WARNING
from reference import Body, Obstacle
from robots import PANDA, TREE, sphere_pairs
from urdf_reference import GRIPPER, reference
from warp_collision import (
    Cuboid,
    MeshWorld,
    PointCloud,
    RobotSpheres,
    Sphere,
    VoxelGrid,
    clearance,
    link_distances,
)
from warp_collision.robot import LinkDistances

Array = np.ndarray
pytestmark = pytest.mark.filterwarnings(JIT_WARNING)
Scene = list[Body | Obstacle]
TEXTS = {"panda": PANDA.read_text(), "tree": TREE, "gripper": GRIPPER}
BASE = (0.1, -0.2, 0.3, 0.8, 0.0, 0.6, 0.0)


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RobotSpheres]:
    folder = tmp_path_factory.mktemp("robots")
    for name, text in TEXTS.items():
        (folder / f"{name}.urdf").write_text(text)
    return {name: RobotSpheres(folder / f"{name}.urdf") for name in TEXTS} | {
        "panda": RobotSpheres(PANDA)
    }


def mixed_scene(rng: np.random.Generator) -> Scene:
    """Exact shapes, some inflated, and a mesh."""
    ball = trimesh.creation.icosphere(1, 0.25)
    pose = np.array([*rng.uniform(-0.5, 0.5, 3), 1.0, 0.0, 0.0, 0.0]).astype(np.float32)
    mesh = Obstacle(ball.vertices.astype(np.float32).astype(float), ball.faces, pose.astype(float))
    return [*exact_scenes.random_scene(rng, 6, padding=0.03), mesh]


def world_of(scene: Scene, device: torch.device) -> MeshWorld:
    exact = [body for body in scene if isinstance(body, Body)]
    world = exact_scenes.build([exact], device, room=len(scene))
    for body in scene:
        if isinstance(body, Obstacle):
            mesh = trimesh.Trimesh(body.vertices, body.faces, process=False)
            world.add("mesh", mesh, body.pose)
    return world


def spheres_at(robot: RobotSpheres, joints: Array) -> Array:
    """Spheres (n, n_spheres, 4) by kinematics in float64."""
    return robot.spheres(torch.tensor(joints)).numpy()


def expected_rows(
    robot: RobotSpheres, scene: Scene, rows: tuple[tuple[str, ...], ...]
) -> Callable[[Array], Array]:
    """A function of joint values (n, n_joints): distances (n, n_rows) by brute force in float64."""
    links = np.array(robot.sphere_links)
    pairs = sphere_pairs(robot.default_pairs)

    def distances(joints: Array) -> Array:
        flat = joints.reshape(-1, joints.shape[-1])
        spheres = spheres_at(robot, flat)
        centers, radii = spheres[..., :3], spheres[..., 3]
        gaps = np.min([body.distance(centers) for body in scene], axis=0) - radii
        one, other = pairs.T
        apart = np.linalg.norm(centers[:, one] - centers[:, other], axis=-1)
        apart -= radii[:, one] + radii[:, other]
        columns = []
        for row in rows:
            if len(row) == 1:
                columns.append(gaps[:, links == row[0]].min(axis=1))
            else:
                both = (links[pairs] == row).all(axis=1) | (links[pairs] == row[::-1]).all(axis=1)
                columns.append(apart[:, both].min(axis=1))
        return np.stack(columns, axis=-1).reshape(*joints.shape[:-1], len(rows))

    return distances


def random_joints(robot: RobotSpheres, rng: np.random.Generator, count: int) -> Array:
    low, high = robot.joint_limits.double().clamp(-3.0, 3.0).numpy().T
    return rng.uniform(low, high, (count, len(low))).astype(np.float32).astype(float)


def found_for(joints: Array, robot: RobotSpheres, world: MeshWorld, **options) -> LinkDistances:
    values = torch.tensor(joints, dtype=torch.float32, device=world.device)
    return link_distances(values, robot, world, **options)


@pytest.mark.parametrize("name", TEXTS)
def test_distances_and_gradients(
    name: str, robots: dict[str, RobotSpheres], device: torch.device
) -> None:
    """All components, inside of obstacles and outside, of every kind of joint, with mimics."""
    rng = np.random.default_rng(31)
    robot, scene = robots[name], mixed_scene(rng)
    joints = random_joints(robot, rng, 3)
    found = found_for(joints, robot, world_of(scene, device), self_collision=True)
    distances = expected_rows(robot, scene, found.rows)
    links = reference(TEXTS[name], dict(zip(robot.joint_names, joints[0].tolist(), strict=True)))
    placed = [links[link][1] for link in dict.fromkeys(robot.sphere_links)]
    np.testing.assert_allclose(spheres_at(robot, joints[:1])[0], np.concatenate(placed), atol=1e-6)
    expected = distances(joints)
    assert (expected < -0.01).any()
    assert (expected > 0.1).any()
    np.testing.assert_allclose(found.distance.cpu().numpy(), expected, atol=5e-6)
    step, ones = 1e-6, np.eye(joints.shape[1])
    ahead = np.stack([distances(joints + step * one) for one in ones], axis=-1)
    behind = np.stack([distances(joints - step * one) for one in ones], axis=-1)
    numeric = (ahead - behind) / (2 * step)
    is_kink = np.abs(ahead - 2 * expected[..., None] + behind) / step > 1e-4
    assert is_kink.mean() < 0.01
    actual = found.gradient.cpu().numpy()
    np.testing.assert_allclose(actual[~is_kink], numeric[~is_kink], atol=2e-4)


@pytest.mark.filterwarnings("ignore:joints must be in rad")  # radii may be turns
@pytest.mark.parametrize("name", mostly_slow(TEXTS, ("gripper", "tree")))
def test_radii_are_proven(name: str, robots: dict[str, RobotSpheres], device: torch.device) -> None:
    """Changes that use up a radius, one joint at a time and straight at obstacles, are free."""
    rng = np.random.default_rng(32)
    robot, scene = robots[name], exact_scenes.random_scene(rng, 6, padding=0.03)
    joints = random_joints(robot, rng, 6)
    found = found_for(joints, robot, world_of(scene, device), self_collision=True)
    distances = expected_rows(robot, scene, found.rows)
    expected = distances(joints)
    radius, weights = (part.cpu().double().numpy() for part in (found.radius, found.weights))
    assert (radius <= np.maximum(expected, 0.0)).all()
    assert (radius[expected > 1e-3] > 0.9 * expected[expected > 1e-3] - 1e-4).all()
    n_joints, used = joints.shape[1], []
    random = rng.normal(size=(2, n_joints))
    for config, row in zip(*np.nonzero(radius > 0.0), strict=True):
        w, r = weights[config, row], radius[config, row]
        toward = -np.sign(found.gradient[config, row].cpu().double().numpy())
        directions = np.concatenate((np.eye(n_joints), -np.eye(n_joints), random, toward[None]))
        size = (np.abs(directions) * w).sum(-1, keepdims=True)
        # Joints that move nothing may turn by anything.
        change = np.where(size > 0.0, 0.999 * min(r, 10.0) / np.maximum(size, 0.1 * r), 1.0)
        least = distances(joints[config] + change * directions)[:, row]
        assert (least > 0.0).all()
        used.append((1.0 - least / expected[config, row]).max())
    assert max(used) > 0.45  # weights are not much larger than they must be


def test_points_and_obstacles(robots: dict[str, RobotSpheres], device: torch.device) -> None:
    rng = np.random.default_rng(33)
    robot, scene = robots["panda"], mixed_scene(rng)
    world = world_of(scene, device)
    joints = random_joints(robot, rng, 8)
    found = found_for(joints, robot, world, self_collision=True)
    n_links = sum(len(row) == 1 for row in found.rows)
    offset = (found.point - found.other_point).cpu()
    along = (offset * found.normal.cpu()).sum(-1)
    torch.testing.assert_close(along, found.distance.cpu(), atol=2e-6, rtol=0.0)
    torch.testing.assert_close(found.normal.norm(dim=-1).cpu(), torch.ones_like(along))
    others = found.other_point.cpu().double().numpy()
    for config, row in np.ndindex(len(joints), n_links):
        nearest = scene[found.obstacle[config, row]]
        # On the surface, which for an inflated one is that far from the shape.
        assert abs(nearest.distance(others[config, row][None])[0]) < 5e-6
    assert (found.obstacle[:, n_links:] == -1).all()
    # A point of a link is one of a sphere of that link.
    spheres = spheres_at(robot, joints)
    links = np.array(robot.sphere_links)
    for row, names in enumerate(found.rows):
        own = spheres[:, links == names[0]]
        gap = np.linalg.norm(own[..., :3] - found.point[:, None, row].cpu().numpy(), axis=-1)
        assert np.abs(gap - own[..., 3]).min(axis=1).max() < 5e-6


def test_obstacles_that_move(robots: dict[str, RobotSpheres], device: torch.device) -> None:
    """A distance changes by the velocity of its obstacle at the nearest point, along the normal."""
    rng = np.random.default_rng(34)
    robot, world = robots["panda"], world_of(mixed_scene(rng), device)
    joints, half = random_joints(robot, rng, 8), 5e-4  # s
    at = found_for(joints, robot, world)
    twists = rng.uniform(-1.0, 1.0, (2, len(world), 3))
    names, poses = world.names(), np.array([world.pose(name).tolist() for name in world.names()])
    others = []
    for time in (-half, half):
        for name, pose, way, turn in zip(names, poses, *twists, strict=True):
            angle = time * np.linalg.norm(turn)
            turned = trimesh.transformations.quaternion_multiply(
                trimesh.transformations.quaternion_about_axis(angle, turn), pose[3:]
            )
            world.set_pose(name, (*(pose[:3] + time * way), *turned))
        others.append(found_for(joints, robot, world))
    before, after = (other.distance.cpu().double().numpy() for other in others)
    which, point = at.obstacle.cpu().numpy(), at.other_point.cpu().double().numpy()
    velocity = twists[0][which] + np.cross(twists[1][which], point - poses[which, :3])
    expected = -(at.normal.cpu().double().numpy() * velocity).sum(-1)
    is_smooth = np.abs(before + after - 2.0 * at.distance.cpu().double().numpy()) < 1e-5
    is_smooth &= np.all([other.obstacle.cpu().numpy() == which for other in others], axis=0)
    assert is_smooth.mean() > 0.8
    assert np.abs(expected).max() > 0.5
    rates = (after - before) / (2.0 * half)
    np.testing.assert_allclose(rates[is_smooth], expected[is_smooth], atol=1.2e-2)


def test_groups(robots: dict[str, RobotSpheres], device: torch.device) -> None:
    rng = np.random.default_rng(34)
    robot = robots["panda"]
    world, joints = world_of(mixed_scene(rng), device), random_joints(robot, rng, 5)
    each = found_for(joints, robot, world, self_collision=True)
    arm, hand = [f"panda_link{i}" for i in (1, 2, 3)], ["panda_hand", "panda_leftfinger"]
    groups = {"arm": arm, "hand": hand}
    both = found_for(joints, robot, world, links=groups, self_collision=True)
    assert both.rows[:2] == (("arm",), ("hand",))
    assert ("arm", "hand") in both.rows
    for row, names in enumerate(both.rows):
        members = [groups[name] for name in names]
        of_row = [
            i
            for i, own in enumerate(each.rows)
            if len(own) == len(members)
            and any(
                all(name in some for name, some in zip(order, members, strict=True))
                for order in (own, own[::-1])
            )
        ]
        least, where = each.distance[:, of_row].min(dim=1)
        torch.testing.assert_close(both.distance[:, row], least)
        gradient = each.gradient[:, of_row][torch.arange(5), where]
        torch.testing.assert_close(both.gradient[:, row], gradient)
        # A radius of a group holds for each of its members.
        assert (both.weights[:, row, None] >= each.weights[:, of_row] - 1.0).all()


@pytest.mark.parametrize("n_more", [0, 50])
def test_groups_deep_inside(
    n_more: int, robots: dict[str, RobotSpheres], device: torch.device
) -> None:
    """The deepest of several links counts, in either order, metres deep."""
    rng = np.random.default_rng(36)
    robot = robots["panda"]
    world = MeshWorld(max_obstacles=60, device=device)
    world.add("rock", Cuboid((20.0, 20.0, 20.0)), (3.0, 1.0, 2.0, 1.0, 0.0, 0.0, 0.0))
    for index in range(n_more):
        place = (*rng.uniform(30.0, 40.0, 3), 1.0, 0.0, 0.0, 0.0)
        world.add(f"pebble {index}", Cuboid((0.1, 0.1, 0.1)), place)
    joints = random_joints(robot, rng, 5)
    each = found_for(joints, robot, world)
    names = [row[0] for row in each.rows]
    least, where = each.distance.min(dim=1)
    assert (least < -6.0).all()
    assert (where > 0).any()
    for order in (names, names[::-1]):
        both = found_for(joints, robot, world, links={"all": order})
        torch.testing.assert_close(both.distance[:, 0], least)


def test_other_arguments(robots: dict[str, RobotSpheres], device: torch.device) -> None:
    """Envs, base poses, allowed contacts, other poses, attached objects and one configuration."""
    robot = RobotSpheres(PANDA)
    robot.attach("tool", "panda_hand", [[0.0, 0.0, 0.15, 0.03]], envs=[1])
    world = MeshWorld(2, 2, device)
    world.add("block", Cuboid((0.3, 0.2, 0.4)), (0.5, 0.2, 0.5, 1, 0, 0, 0))
    world.add("ball", Sphere(0.1), (0.4, -0.3, 0.4, 1, 0, 0, 0), env=1)
    joints = torch.tensor([[0.0, -0.5, 0, -2.2, 0, 1.6, 0.8]] * 2, device=device)
    envs = torch.tensor([0, 1], dtype=torch.int32, device=device)
    found = link_distances(joints, robot, world, env_index=envs)
    tool = [row[0] for row in found.rows].index("tool")
    assert found.distance[0, tool] == torch.inf  # it is not in that env
    assert found.radius[0, tool] == torch.inf
    assert found.distance[1, tool] < 1.0
    assert (found.obstacle[0, :tool] == 0).all()
    alone = link_distances(joints[0], robot, world)
    torch.testing.assert_close(alone.distance[:tool], found.distance[0, :tool])
    # A base that moves with the obstacle changes nothing.
    moved = found_for(joints[:1].cpu().numpy(), robot, world, base_pose=BASE)
    poses = torch.zeros((2, 2, 7), device=device)
    poses[..., 3] = 1.0
    from_base = MeshWorld(device=device)
    from_base.add("block", Cuboid((0.3, 0.2, 0.4)), (0.5, 0.2, 0.5, 1, 0, 0, 0))
    spheres = robot.spheres(joints[:1], BASE)[0]
    gap = clearance(spheres[None, None], from_base).clearance[0, 0]
    links = np.array(robot.sphere_links)
    for row, name in enumerate(moved.rows[:tool]):
        least = gap[torch.tensor(links == name[0], device=device)].min()
        torch.testing.assert_close(moved.distance[0, row], least, atol=3e-6, rtol=0.0)
    # Poses in place of the world's.
    poses[:, 0, :3] = torch.tensor([0.5, 0.2, 1.9], device=device)
    far = link_distances(joints[:1], robot, world, poses=poses)
    assert (far.distance[0, :tool] > 0.5).all()
    hand = [row[0] for row in found.rows].index("panda_hand")
    allowed = link_distances(joints[:1], robot, world, ignore=[("panda_hand", "block")])
    assert allowed.distance[0, hand] == torch.inf
    assert allowed.obstacle[0, hand] == -1
    torch.testing.assert_close(allowed.distance[0, :hand], found.distance[0, :hand])


def test_many_spheres_of_a_link(device: torch.device) -> None:
    """More than eight, some without a radius; several are allowed to touch an obstacle."""
    rng = np.random.default_rng(37)
    robot = RobotSpheres(PANDA)
    radii = np.where(rng.random((21, 1)) < 0.2, -1.0, rng.uniform(0.005, 0.02, (21, 1)))
    tool = np.concatenate((rng.uniform(-0.15, 0.15, (21, 3)), radii), axis=1)
    robot.attach("tool", "panda_hand", tool.tolist())
    world = world_of(mixed_scene(rng), device)
    joints = torch.tensor(random_joints(robot, rng, 12), dtype=torch.float32, device=device)
    ignored = [("tool", world.names()[1])]
    found = link_distances(joints, robot, world, links=["tool"], ignore=ignored)
    own = torch.tensor([link == "tool" for link in robot.sphere_links], device=device)
    for index, name in enumerate(world.names()):
        world.enable(name, index != 1)
    spheres = robot.spheres(joints)[:, own][:, None]
    gap = clearance(spheres, world).clearance[:, 0]
    assert ((spheres[..., 3] < 0.0).sum(), spheres.shape[2]) == ((radii < 0.0).sum() * 12, 21)
    torch.testing.assert_close(
        found.distance, gap.min(dim=1, keepdim=True).values, atol=2e-6, rtol=0.0
    )
    assert len(set(gap.argmin(dim=1).tolist())) > 3


def test_sensed_obstacles(robots: dict[str, RobotSpheres], device: torch.device) -> None:
    """Distances and gradients are those of the spheres alone, as `clearance` has them."""
    robot, rng = robots["panda"], np.random.default_rng(35)
    world = MeshWorld(device=device)
    world.add("seen", PointCloud(rng.uniform(-0.6, 0.6, (60, 3)), radius=0.03))
    occupied = rng.random((6, 6, 6)) < 0.1
    world.add("map", VoxelGrid(occupied, voxel_size=0.1, origin=(0.2, -0.3, 0.3)))
    joints = torch.tensor(random_joints(robot, rng, 4), dtype=torch.float32, device=device)
    found = link_distances(joints, robot, world)
    angles = joints.clone().requires_grad_()
    gap = clearance(robot.spheres(angles)[:, None], world).clearance[:, 0]
    links = np.array(robot.sphere_links)
    for row, name in enumerate(found.rows):
        least = gap[:, torch.tensor(links == name[0], device=device)].min(dim=1).values
        torch.testing.assert_close(found.distance[:, row], least.detach(), atol=5e-6, rtol=0.0)
        (expected,) = torch.autograd.grad(least.sum(), angles, retain_graph=True)
        torch.testing.assert_close(found.gradient[:, row], expected, atol=1e-4, rtol=0.0)


def test_at_kinks_one_of_the_gradients(tmp_path: Path, device: torch.device) -> None:
    """In the middle between two walls, and in the middle of a cube."""
    (tmp_path / "slide.urdf").write_text(
        '<robot name="slide"><link name="rail"/><link name="car"><collision><geometry>'
        '<sphere radius="0.1"/></geometry></collision></link><joint name="x" type="prismatic">'
        '<parent link="rail"/><child link="car"/><axis xyz="1 0 0"/>'
        '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>'
    )
    robot, world = RobotSpheres(tmp_path / "slide.urdf"), MeshWorld(device=device)
    for name, x in (("left", -0.5), ("right", 0.5)):
        world.add(name, Cuboid((0.2, 1.0, 1.0)), (x, 0, 0, 1, 0, 0, 0))
    found = link_distances(torch.zeros(1, 1, device=device), robot, world)
    assert found.distance.item() == pytest.approx(0.3)
    assert abs(found.gradient.item()) == pytest.approx(1.0)
    assert found.radius.item() == pytest.approx(0.3, abs=1e-5)
    assert found.weights.item() == pytest.approx(1.0, abs=1e-4)
    inside = MeshWorld(device=device)
    inside.add("cube", Cuboid((1.0, 1.2, 1.4)))
    found = link_distances(torch.zeros(1, 1, device=device), robot, inside)
    assert found.distance.item() == pytest.approx(-0.6)
    assert abs(found.gradient.item()) == pytest.approx(1.0)
    assert found.radius.item() == 0.0


def test_what_is_not_finite_is_never_free(
    robots: dict[str, RobotSpheres], device: torch.device
) -> None:
    robot, world = robots["panda"], MeshWorld(device=device)
    world.add("ball", Sphere(0.1), (0.4, -0.3, 0.4, 1, 0, 0, 0))
    joints = torch.zeros(2, 7, device=device)
    joints[0, 6] = torch.nan
    found = link_distances(joints, robot, world, self_collision=True)
    assert found.distance[0].isnan().all()
    assert (found.radius[0] == 0.0).all()
    assert found.gradient[0].isnan().all()
    assert found.distance[1].isfinite().all()
    poses = torch.full((1, 1, 7), torch.nan, device=device)
    found = link_distances(joints[1:], robot, world, poses=poses)
    assert found.distance.isnan().all()
    assert (found.radius == 0.0).all()


# -- in torch -------------------------------------------------------------------------------------


@pytest.fixture
def operands(robots: dict[str, RobotSpheres], device: torch.device):
    rng = np.random.default_rng(36)
    robot, world = robots["panda"], world_of(mixed_scene(rng), device)
    joints = torch.tensor(random_joints(robot, rng, 3), dtype=torch.float32, device=device)
    return joints, lambda q: link_distances(q, robot, world, self_collision=True).distance


def test_derivatives_in_all_modes(operands, device: torch.device) -> None:
    joints, distance = operands
    angles = joints.clone().requires_grad_()
    found = distance(angles)
    upstream = torch.linspace(-1.0, 2.0, found.numel(), device=device).reshape(found.shape)
    (gradient,) = torch.autograd.grad(found, angles, upstream)
    jacobian = func.vmap(func.jacrev(distance))(joints)
    expected = (upstream[..., None] * jacobian).sum(1)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(func.vmap(func.jacfwd(distance))(joints), jacobian)
    tangent = torch.linspace(1.0, 2.0, joints.numel(), device=device).reshape(joints.shape)
    _, rate = func.jvp(distance, (joints,), (tangent,))
    torch.testing.assert_close(rate, (jacobian * tangent[:, None]).sum(-1))
    torch.testing.assert_close(func.vmap(distance)(joints[:, None])[:, 0], distance(joints))


def test_second_derivatives_raise(operands) -> None:
    joints, distance = operands
    angles = joints.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(distance(angles).sum(), angles, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()
    with pytest.raises(RuntimeError, match="second derivative"):
        func.hessian(lambda q: distance(q).sum())(joints)


@pytest.mark.slow
def test_compiled_by_inductor(operands) -> None:
    joints, distance = operands
    angles = joints.clone().requires_grad_()
    compiled = torch.compile(lambda q: distance(q).square(), fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(angles).sum(), angles)
    (expected,) = torch.autograd.grad(distance(angles).square().sum(), angles)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize(
    ("links", "error", "words"),
    [
        ("panda_hand", TypeError, "links must be names of links"),
        (
            ["panda_hand", "nothing"],
            ValueError,
            r"links must be links of the robot, got \['nothing'\]",
        ),
        (["panda_link8"], ValueError, "links must have spheres, but 'panda_link8' has none"),
        ({"a": ["panda_hand"], "b": ["panda_hand"]}, ValueError, "each link once"),
    ],
)
def test_wrong_links(
    links, error: type[Exception], words: str, robots: dict[str, RobotSpheres], device: torch.device
) -> None:
    with pytest.raises(error, match=words):
        link_distances(
            torch.zeros(1, 7, device=device), robots["panda"], MeshWorld(device=device), links=links
        )
