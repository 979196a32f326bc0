"""Robots against obstacles by the shapes of their links, where spheres refuse.

The judge samples the true shapes, surface and inside, and knows the distances of obstacles in
float64.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from cases import mostly_slow
from exact_scenes import library_shape
from exact_shapes import capsule, cone, cuboid, cylinder, half_space, sphere
from reference import Array, Body, mesh_signed_distance
from warp_collision import (
    Cuboid,
    HalfSpace,
    MeshWorld,
    RobotSpheres,
    VoxelGrid,
    configuration_in_collision,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints

SPACING = 0.015  # of samples of the shapes [m]


def samples_of(arm: RobotSpheres) -> dict[str, Array]:
    """Points (n, 3) of each link's shapes, in its frame: of their surface, and a grid inside."""
    found = {}
    for link, shapes in arm.link_shapes.items():
        points = []
        for mesh in map(mesh_in_link, shapes):
            points += [trimesh.sample.sample_surface(mesh, 2000, seed=1)[0], mesh.vertices]
            low, high = mesh.bounds
            axes = (np.arange(*ends, SPACING) for ends in zip(low, high, strict=True))
            grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 3)
            inside = mesh_signed_distance(grid, mesh.vertices, mesh.faces).distance < 0.0
            points.append(grid[inside])
        found[link] = np.concatenate(points)
    return found


def scene(seed: int, padding: float) -> list[Body]:
    """A floor, a wall that is tilted, and bodies of all kinds within reach of the arm."""
    rng = np.random.default_rng(seed)
    shapes = [cuboid(*rng.uniform(0.05, 0.4, 3)), sphere(0.12), capsule(0.08, 0.3)]
    shapes += [cylinder(0.1, 0.3), cylinder(0.25, 0.02), cuboid(0.5, 0.4, 0.005)]
    shapes += [cone(0.15, 0.3)]
    bodies = [Body(half_space(0.0, 0.0, 1.0, -0.25)), Body(half_space(-1.0, 0.3, 0.2, -0.7))]
    for shape in shapes:
        place = rng.normal(size=3)
        place *= 0.65 / np.linalg.norm(place)
        place[2] += 0.4
        pose = np.concatenate((place, rng.normal(size=4)))
        pose[3:] /= np.linalg.norm(pose[3:])
        bodies.append(Body(shape, pose.astype(np.float32).astype(float), padding))
    return bodies


def world_of(bodies: list[Body], device: torch.device) -> MeshWorld:
    world = MeshWorld(device=device)
    for index, body in enumerate(bodies):
        shape = library_shape(body.shape)  # pyright: ignore[reportArgumentType]
        world.add(f"body {index}", shape, body.pose, padding=body.padding)
    return world


def true_clearance(arm: RobotSpheres, joints: torch.Tensor, bodies: list[Body]) -> Array:
    """(n,) least distance of samples of moving links from obstacles, float64 [m]."""
    at = arm.link_transforms(joints.double().cpu()).numpy()
    least = np.full(len(joints), np.inf)
    samples = samples_of(arm)
    del samples["base"]
    for name, points in samples.items():
        frames = at[:, arm.link_names.index(name)]
        for row, frame in enumerate(frames):
            moved = points @ frame[:3, :3].T + frame[:3, 3]
            least[row] = min(least[row], *(body.distance(moved).min() for body in bodies))
    return least


@pytest.mark.parametrize("case", mostly_slow([(0, 0.0, 160), (1, 0.02, 400)], [(0, 0.0, 160)]))
def test_nothing_is_missed_and_little_is_refused(
    arm: RobotSpheres, case: tuple[int, float, int], device: torch.device
) -> None:
    seed, padding, count = case
    bodies = scene(seed, padding)
    world = world_of(bodies, device)
    generator = torch.Generator().manual_seed(seed)
    joints = random_joints(arm.joint_limits, count, generator).float().to(device)
    options = {"self_collision": False, "ignore": [("base", name) for name in world.names()]}
    by_spheres = configuration_in_collision(joints, arm, world, **options).cpu().numpy()
    hit = configuration_in_collision(joints, arm, world, shapes="exact", **options).cpu().numpy()
    truth = true_clearance(arm, joints, bodies)
    assert not (hit & ~by_spheres).any()
    assert (by_spheres & ~hit).sum() >= 3
    assert not (~hit & (truth < -1e-6)).any()
    assert not (hit & (truth > 0.5 * SPACING)).any()
    assert 0.1 < hit.mean() < 0.9


@pytest.mark.parametrize("turn", [None, (0.2, -0.1, 0.3, 0.9, 0.3, -0.2, 0.1)])
def test_five_millimetres_above_a_table(
    arm: RobotSpheres, turn: tuple[float, ...] | None, device: torch.device
) -> None:
    """The tool flat above a table top, wherever the scene stands; spheres refuse it."""
    joints = torch.tensor([[0.4, -0.3, 0.1]], device=device)
    at = arm.link_transforms(joints.double().cpu()).numpy()[0, arm.link_names.index("tool")]
    for shape in (Cuboid((0.6, 0.5, 0.03)), HalfSpace((0.0, 0.0, 1.0), 0.015)):
        for height, is_hit in ((0.005, False), (0.0007, False), (-0.0005, True)):
            below = np.eye(4)
            below[:3, 3] = 0.0, 0.01, -(0.015 + height)  # the end of the tool is at z = 0
            frame, base = at @ below, None
            if turn is not None:
                base = torch.tensor(turn, device=device)
                moved = trimesh.transformations.quaternion_matrix(turn[3:])
                moved[:3, 3] = turn[:3]
                frame = moved @ frame
            world = MeshWorld(device=device)
            world.add("table", shape, torch.from_numpy(frame))
            options = {"self_collision": False, "base_pose": base}
            options["ignore"] = [(name, "table") for name in ("base", "upper", "elbow")]
            assert configuration_in_collision(joints, arm, world, **options).item()
            found = configuration_in_collision(joints, arm, world, shapes="exact", **options)
            assert found.item() == is_hit, (shape, height)


ROUND = """<robot name="round"><link name="base"/>
  <link name="egg"><collision><geometry><mesh filename="egg.stl"/></geometry></collision></link>
  <joint name="a" type="revolute"><parent link="base"/><child link="egg"/>
    <origin xyz="0.1 0.2 0.3" rpy="0.3 -0.4 0.5"/><axis xyz="1 2 3"/>
    <limit lower="-2" upper="2" effort="1" velocity="1"/></joint>
</robot>"""


@pytest.mark.parametrize("padding", [0.0, 0.01])
def test_a_round_link_is_as_its_mesh(padding: float, tmp_path: Path, device: torch.device) -> None:
    """Obstacles 0.02 mm from a mesh of 2,000 corners are free, and touch 0.02 mm inside of it."""
    rng = np.random.default_rng(4)
    points = rng.normal(size=(2000, 3))
    points *= np.array([0.2, 0.15, 0.1]) / np.linalg.norm(points, axis=1)[:, None]
    mesh = trimesh.convex.convex_hull(points)
    mesh.export(tmp_path / "egg.stl")
    (tmp_path / "round.urdf").write_text(ROUND)
    RobotSpheres(tmp_path / "round.urdf", padding=padding).save(tmp_path / "round.yaml")
    robot = RobotSpheres.from_file(tmp_path / "round.yaml")
    joints = torch.tensor([[0.7]], device=device)
    at = robot.link_transforms(joints.double().cpu()).numpy()[0, robot.link_names.index("egg")]
    for number in range(6):
        frame = trimesh.transformations.random_rotation_matrix(rng.random(3))
        below = -(mesh.vertices @ frame[:3, 2]).max() - padding - 0.1
        obstacle = Cuboid((0.3, 0.4, 0.2)) if number % 2 else trimesh.creation.box((0.3, 0.4, 0.2))
        for gap, is_hit in ((2e-5, False), (-2e-5, True)):
            pose = frame.copy()
            pose[:3, 2] *= -1.0
            pose[:3, 0] *= -1.0
            pose[:3, 3] = frame[:3, 2] * (gap - below)
            world = MeshWorld(device=device)
            world.add("wall", obstacle, torch.from_numpy(at @ pose))
            found = configuration_in_collision(joints, robot, world, shapes="exact")
            assert found.item() == is_hit, (number, gap)
            path = joints[None].expand(1, 2, 1)
            tolerance = 1e-6
            found = joint_path_in_collision(path, robot, world, shapes="exact", tolerance=tolerance)
            assert found.item() == is_hit, (number, gap)


@pytest.mark.parametrize("padding", mostly_slow([0.0, 0.01], [0.0]))
def test_motions_that_touch_are_never_free(
    arm: RobotSpheres, padding: float, device: torch.device
) -> None:
    """Paths by dense samples of configurations and of the shapes."""
    bodies = scene(2, padding)
    world = world_of(bodies, device)
    generator = torch.Generator().manual_seed(5)
    joints = random_joints(arm.joint_limits, 50, generator).float()[:, None]
    step = 0.12 * torch.randn((50, 1, 3), generator=generator)
    joints = torch.cat((joints, joints + step), dim=1).to(device)
    options = {"self_collision": False, "ignore": [("base", name) for name in world.names()]}
    by_spheres = joint_path_in_collision(joints, arm, world, **options)[:, 0].cpu().numpy()
    hit = joint_path_in_collision(joints, arm, world, shapes="exact", **options)[:, 0]
    hit, shares = hit.cpu().numpy(), torch.linspace(0.0, 1.0, 6, device=device)[:, None]
    dense = joints[:, :1] + shares * (joints[:, 1:] - joints[:, :1])
    truth = true_clearance(arm, dense.flatten(0, 1), bodies).reshape(50, 6).min(1)
    assert not (hit & ~by_spheres).any()
    assert not (~hit & (truth < -1e-5)).any()
    assert (by_spheres & ~hit).sum() >= 2
    assert not (hit & (truth > SPACING)).any()
    assert 0.1 < hit.mean() < 0.9


def test_a_tool_slides_above_a_table(arm: RobotSpheres, device: torch.device) -> None:
    """Along its own prismatic joint, and by joints that turn, down to 2 mm above the table."""
    joints = torch.tensor([[[0.4, -0.3, 0.1], [0.4, -0.3, 0.0]]], device=device)
    at = arm.link_transforms(joints[0, 0].double().cpu()).numpy()[arm.link_names.index("tool")]
    below = np.eye(4)
    below[:3, 3] = 0.0, 0.01, -0.017
    world = MeshWorld(device=device)
    options = {"self_collision": False}
    options["ignore"] = [(name, "table") for name in ("base", "upper", "elbow")]
    world.add("table", Cuboid((0.6, 0.5, 0.03)), torch.from_numpy(at @ below))
    back = joints.flip(1)
    for path in (joints, back):
        away = joint_path_in_collision(path, arm, world, shapes="exact", **options)
        assert joint_path_in_collision(path, arm, world, **options).all()
        # The joint slides along an axis that is tilted against the table.
        end = configuration_in_collision(path, arm, world, shapes="exact", **options)
        assert bool(away.any()) == bool(end.any())
    still = joints[:, :1].expand(1, 2, 3).contiguous()
    assert not joint_path_in_collision(still, arm, world, shapes="exact", **options).any()
    turn = still.clone()
    turn[:, 1, :2] += torch.tensor([0.002, -0.001], device=device)
    assert joint_path_in_collision(turn, arm, world, **options).all()
    found = joint_path_in_collision(turn, arm, world, shapes="exact", **options)
    shares = torch.linspace(0.0, 1.0, 50, device=device)[:, None]
    between = turn[:, :1] + shares * (turn[:, 1:] - turn[:, :1])
    sampled = configuration_in_collision(between, arm, world, shapes="exact", **options)
    assert found.any() or not sampled.any()


def test_obstacles_that_move(arm: RobotSpheres, device: torch.device) -> None:
    """A table that rises under the tool: proven free to 2 mm below it, and not through it."""
    joints = torch.tensor([[[0.4, -0.3, 0.1]]], device=device).expand(1, 2, 3).contiguous()
    at = arm.link_transforms(joints[0, 0].double().cpu()).numpy()[arm.link_names.index("tool")]
    world = MeshWorld(device=device)
    world.add("table", Cuboid((0.6, 0.5, 0.03)))
    options = {"self_collision": False, "shapes": "exact"}
    options["ignore"] = [(name, "table") for name in ("base", "upper", "elbow")]
    for top, is_hit in ((-0.002, False), (0.01, True)):
        poses = []
        for height in (-0.1, top):
            below = np.eye(4)
            below[:3, 3] = 0.0, 0.01, height - 0.015
            frame = at @ below
            quaternion = trimesh.transformations.quaternion_from_matrix(frame)
            poses.append(np.concatenate((frame[:3, 3], quaternion)))
        moved = torch.tensor(np.array(poses)[:, None], dtype=torch.float32, device=device)
        found = joint_path_in_collision(joints, arm, world, poses=moved, **options)
        assert found.item() == is_hit


def test_what_has_no_cells_is_decided_by_spheres(arm: RobotSpheres, device: torch.device) -> None:
    """Distances on a grid, and open meshes: their inside ends where there is no surface."""
    joints = random_joints(arm.joint_limits, 300, None).float().to(device)
    ball = trimesh.creation.icosphere(2, 0.15)
    ball.update_faces(ball.triangles_center[:, 2] > -0.1)
    world = MeshWorld(device=device)
    world.add("bowl", ball, (0.4, 0.1, 0.5, 1, 0, 0, 0))
    distances = np.linalg.norm(0.05 * (np.indices((9, 9, 9)) - 4), axis=0) - 0.1
    world.add("grid", VoxelGrid.from_esdf(distances, 0.05, error=0.0, origin=(-0.5, 0.0, 0.4)))
    expected = configuration_in_collision(joints, arm, world)
    assert expected.any()
    assert torch.equal(configuration_in_collision(joints, arm, world, shapes="exact"), expected)


def test_joints_that_are_not_finite_collide(arm: RobotSpheres, device: torch.device) -> None:
    joints = torch.tensor([[0.0, torch.nan, 0.0]], device=device)
    assert configuration_in_collision(joints, arm, MeshWorld(device=device), shapes="exact").all()


def test_bad_input(arm: RobotSpheres) -> None:
    world, joints = MeshWorld(device="cpu"), torch.zeros(1, 3)
    with pytest.raises(ValueError, match=re.escape("shapes must be 'spheres' or 'exact', got 1")):
        configuration_in_collision(joints, arm, world, shapes=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="shapes must be 'spheres' for a robot that was given as"):
        configuration_in_collision(torch.zeros(1, 7), load_panda(), world, shapes="exact")
