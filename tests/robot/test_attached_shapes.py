"""Objects that are attached to a robot decide by their convex pieces, beside coal."""

import numpy as np
import pytest
import torch
import trimesh

from arms import LOOSE, arm_in
from cases import mostly_slow
from reference import Array
from warp_collision import (
    Capsule,
    Cuboid,
    Cylinder,
    MeshWorld,
    PointCloud,
    RobotSpheres,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.obstacles.shapes import mesh_of
from warp_collision.robot.model.sampled_pairs import random_joints

pytest.importorskip("coal", reason="the judge needs coal, of the extra 'dev'")
from mesh_judge import Fixed, MeshJudge, of_balls, of_mesh

POSE = (0.05, -0.08, 0.2, 0.8, 0.3, -0.4, 0.3)
LINKS = ("base", "upper", "elbow", "tool")


@pytest.fixture
def arm(tmp_path) -> RobotSpheres:
    return arm_in(tmp_path)


def mug() -> trimesh.Trimesh:
    """A hollow cylinder with a bottom and a handle."""
    body = trimesh.creation.annulus(0.04, 0.045, 0.11, sections=24)
    bottom = trimesh.creation.cylinder(0.045, 0.006, sections=24)
    bottom.apply_translation((0.0, 0.0, -0.058))
    handle = trimesh.creation.torus(0.028, 0.006, major_sections=12, minor_sections=6)
    handle.apply_transform(trimesh.transformations.rotation_matrix(np.pi / 2, (1, 0, 0)))
    handle.apply_translation((0.07, 0.0, 0.0))
    return trimesh.util.concatenate([body, bottom, handle])


OBJECTS = {
    "mug": mug(),
    "bent": trimesh.creation.torus(0.12, 0.02, major_sections=16, minor_sections=6),
    "box": Cuboid((0.3, 0.02, 0.12)),
    "can": Cylinder(0.04, 0.16),
    "pill": Capsule(0.03, 0.2),
}


def scene(device: torch.device) -> tuple[MeshWorld, list[Fixed]]:
    """A turned box, a ring, and a cloud."""
    world, fixed = MeshWorld(device=device), []
    box = trimesh.creation.box((0.5, 0.6, 0.3))
    ring = trimesh.creation.torus(0.35, 0.09)
    rng = np.random.default_rng(3)
    for name, shape, mesh, place in (
        ("box", Cuboid((0.5, 0.6, 0.3)), box, (0.55, 0.2, 0.5)),
        ("ring", ring, ring, (-0.35, -0.45, 0.6)),
    ):
        pose = trimesh.transformations.random_rotation_matrix(rng.random(3))
        pose[:3, 3] = place
        pose = pose.astype(np.float32).astype(float)
        world.add(name, shape, torch.from_numpy(pose))
        fixed.append(of_mesh(mesh, pose))
    points = rng.normal(size=(40, 3)) * (0.2, 0.2, 0.1) + (0.1, 0.7, 0.7)
    points = points.astype(np.float32).astype(float)
    world.add("cloud", PointCloud(points, radius=0.015))
    return world, [*fixed, *of_balls(points, 0.015, np.eye(4))]


def judged(arm: RobotSpheres, thing: object, joints: torch.Tensor, fixed: list[Fixed]) -> Array:
    """(n,) clearance of an object at `POSE` on the tool [m]."""
    mesh = mesh_of(thing).copy()  # pyright: ignore[reportArgumentType]
    placed = trimesh.transformations.quaternion_matrix(POSE[3:])
    placed[:3, 3] = POSE[:3]
    judge = MeshJudge({"thing": [mesh.apply_transform(placed)]}, fixed)
    rows = arm.link_transforms(joints.double().cpu()).numpy()[:, arm.link_names.index("tool")]
    return np.array([judge.clearance({"thing": row}) for row in rows])


@pytest.mark.parametrize("name", mostly_slow([*OBJECTS], ["mug"]))
def test_against_obstacles(arm: RobotSpheres, name: str, device: torch.device) -> None:
    world, fixed = scene(device)
    thing, generator = OBJECTS[name], torch.Generator().manual_seed(6)
    arm.attach("thing", "tool", thing, pose=POSE, max_overshoot=0.02)
    joints = random_joints(arm.joint_limits, 400, generator).float().to(device)
    options = {"self_collision": False}
    options["ignore"] = [(link, other) for link in LINKS for other in world.names()]
    by_spheres = configuration_in_collision(joints, arm, world, **options).cpu().numpy()
    hit = configuration_in_collision(joints, arm, world, shapes="exact", **options).cpu().numpy()
    truth = judged(arm, thing, joints, fixed)
    assert not (hit & ~by_spheres).any()
    assert not (~hit & (truth <= 0.0)).any()
    assert not (hit & (truth > LOOSE)).any()
    assert (by_spheres & ~hit).sum() >= 1
    assert hit.sum() >= 10
    # In motion.
    step = 0.04 * torch.randn((400, 3), generator=generator)
    path = torch.stack((joints, joints + step.to(device)), dim=1)
    shares = torch.linspace(0.0, 1.0, 4, device=device)[:, None]
    dense = path[:, :1] + shares * (path[:, 1:] - path[:, :1])
    truth = judged(arm, thing, dense.flatten(0, 1), fixed).reshape(-1, 4).min(1)
    hit = joint_path_in_collision(path, arm, world, shapes="exact", **options)[:, 0].cpu().numpy()
    assert not (~hit & (truth <= 0.0)).any()
    assert not (hit & (truth > 0.02)).any()
    found = joint_path_clearance(path[:100], arm, world, shapes="exact", **options)
    lower = found.lower[:, 0].cpu().numpy()
    assert (lower <= truth[:100] + 1e-5)[lower > 0.0].all()


THINGS = {
    "ball": Capsule(0.01, 0.01),
    "mesh": trimesh.creation.torus(0.01, 0.004, major_sections=9, minor_sections=5),
    "cloud": PointCloud(np.array([[0.0, 0.0, 0.005], [0.0, 0.004, 0.0]]), radius=0.006),
}


@pytest.mark.parametrize("name", [*THINGS])
def test_what_is_in_a_hollow_is_free(arm: RobotSpheres, name: str, device: torch.device) -> None:
    """In the hole of a ring, and outside; not across its surface, nor wholly inside of that."""
    joints = torch.tensor([[0.4, -0.3, 0.1]], device=device)
    at = arm.link_transforms(joints.double().cpu()).numpy()[0, arm.link_names.index("tool")]
    ring = trimesh.creation.torus(0.15, 0.05, major_sections=32, minor_sections=16)
    arm.attach("ring", "tool", ring, pose=POSE)
    assert arm.layout.bodies["ring"].surface is not None  # pieces fill a part of its hole
    placed = trimesh.transformations.quaternion_matrix(POSE[3:])
    placed[:3, 3] = POSE[:3]
    options = {"self_collision": False, "ignore": [(link, "thing") for link in LINKS]}
    direction = np.array([0.8, -0.6, 0.0])
    for far, is_hit in ((0.07, False), (0.1, True), (0.15, True), (0.2, True), (0.23, False)):
        frame = np.eye(4)
        frame[:3, 3] = far * direction
        world = MeshWorld(device=device)
        world.add("thing", THINGS[name], torch.from_numpy(at @ placed @ frame))
        hit = configuration_in_collision(joints, arm, world, shapes="exact", **options)
        assert hit.item() == is_hit, far
        path = joints[:, None].repeat(1, 2, 1)
        path[:, 1] += 0.01
        hit = joint_path_in_collision(path, arm, world, shapes="exact", **options)
        assert hit.item() == is_hit, far


def test_padding_and_envs(arm: RobotSpheres, device: torch.device) -> None:
    """A box 5 mm above a table is free; not with a padding of 6 mm, and absent in another env."""
    joints = torch.tensor([[[0.4, -0.3, 0.1]]] * 2, device=device)
    at = arm.link_transforms(joints[0].double().cpu()).numpy()[0, arm.link_names.index("tool")]
    below = np.eye(4)
    below[:3, 3] = 0.0, 0.0, -0.2 - 0.005 - 0.05
    world = MeshWorld(n_envs=2, device=device)
    for env in range(2):
        world.add("table", Cuboid((0.6, 0.5, 0.1)), torch.from_numpy(at @ below), env=env)
    options = {"self_collision": False, "ignore": [(link, "table") for link in LINKS]}
    options["env_index"] = torch.tensor([0, 1], dtype=torch.int32, device=device)
    thing, pose = Cuboid((0.2, 0.15, 0.08)), (0.0, 0.0, -0.16, 1.0, 0.0, 0.0, 0.0)
    for padding, expected in ((0.0, [False, False]), (0.006, [True, False])):
        arm.attach("thing", "tool", thing, pose=pose, padding=padding, envs=[0], max_overshoot=0.02)
        spheres = configuration_in_collision(joints, arm, world, **options)
        found = configuration_in_collision(joints, arm, world, shapes="exact", **options)
        assert spheres[:, 0].tolist() == [True, False]
        assert found[:, 0].tolist() == expected
        arm.detach("thing")


def test_in_the_hand_of_a_robot_of_given_spheres(device: torch.device) -> None:
    """The object has pieces, and the links are their spheres."""
    panda, world = load_panda(), MeshWorld(device=device)
    joints = torch.tensor([[0.0, -0.3, 0, -2.2, 0, 2.0, 0.8]], device=device)
    hand = panda.link_transforms(joints.double().cpu()).numpy()[0]
    at = hand[panda.link_names.index("panda_hand")]
    thing, pose = Cuboid((0.12, 0.12, 0.08)), (0.0, 0.0, 0.2, 1.0, 0.0, 0.0, 0.0)
    below = np.eye(4)
    below[:3, 3] = 0.0, 0.0, 0.24 + 0.005 + 0.05
    world.add("table", Cuboid((0.5, 0.5, 0.1)), torch.from_numpy(at @ below))
    panda.attach("thing", "panda_hand", thing, pose=pose, max_overshoot=0.05)
    assert configuration_in_collision(joints, panda, world).item()
    assert not configuration_in_collision(joints, panda, world, shapes="exact").item()
    assert panda.report(joints[None], world).link == ("thing",)
    assert panda.report(joints[None], world, shapes="exact").link == ()
