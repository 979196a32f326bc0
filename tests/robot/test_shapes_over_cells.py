"""Robots by the shapes of their links against obstacles without a formula, beside coal."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
import trimesh

from arms import LOOSE
from cases import mostly_slow
from reference import Array
from warp_collision import (
    HeightField,
    MeshWorld,
    PointCloud,
    RobotSpheres,
    VoxelGrid,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot import JointCurve
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints

pytest.importorskip("coal", reason="the judge needs coal, of the extra 'dev'")
from mesh_judge import Fixed, MeshJudge, of_balls, of_mesh


class Placed(NamedTuple):
    """An obstacle of the library, and the same for the judge."""

    world: MeshWorld
    fixed: list[Fixed]


def tilted(seed: int, place: tuple[float, float, float]) -> Array:
    """A pose (4, 4), float32 numbers."""
    frame = trimesh.transformations.random_rotation_matrix(np.random.default_rng(seed).random(3))
    frame[:3, 3] = place
    return frame.astype(np.float32).astype(float)


def meshes(device: torch.device) -> Placed:
    """A ring, a ball in which a link has room, a room around the arm, and a sheet."""
    ring = trimesh.creation.torus(0.25, 0.04, major_sections=24, minor_sections=8)
    ball = trimesh.creation.icosphere(2, 0.45)
    room, cavity = trimesh.creation.box((2.6, 2.4, 2.2)), trimesh.creation.box((2.2, 2.0, 1.9))
    cavity.invert()
    room = trimesh.util.concatenate([room, cavity])
    grid = trimesh.creation.box((0.5, 0.4, 0.1)).subdivide()
    grid.update_faces(grid.triangles_center[:, 2] > -0.04)  # without its bottom
    world, fixed = MeshWorld(device=device), []
    for number, (mesh, place, is_solid) in enumerate(
        [
            (ring, (0.5, 0.2, 0.6), True),
            (ball, (-0.3, -0.5, 0.5), True),
            (room, (0.1, 0.0, 0.3), True),
            (grid, (-0.2, 0.6, 0.6), False),
        ]
    ):
        pose = tilted(number, place)
        sign = "auto" if is_solid else "sheet"
        world.add(f"mesh {number}", mesh, torch.from_numpy(pose), sign=sign)
        fixed.append(of_mesh(mesh, pose, is_solid=is_solid))
    return Placed(world, fixed)


def cloud(device: torch.device) -> Placed:
    """Balls of one radius."""
    rng = np.random.default_rng(5)
    points = rng.normal(size=(60, 3)) * (0.5, 0.4, 0.3)
    points = points[np.linalg.norm(points, axis=1) > 0.3].astype(np.float32).astype(float)
    pose = tilted(7, (0.1, 0.0, 0.6))
    world = MeshWorld(device=device)
    world.add("cloud", PointCloud(points, radius=0.02), torch.from_numpy(pose))
    return Placed(world, of_balls(points, 0.02, pose))


def voxels(device: torch.device) -> Placed:
    """Voxels here and there, in a tilted grid."""
    occupied = np.random.default_rng(8).random((9, 10, 11)) < 0.04
    occupied[3:7, 3:7, 3:7] = False
    occupied[:3, :3, :3] = True  # a block that is larger than a link
    grid = VoxelGrid(occupied, 0.125, (-0.56, -0.62, -0.68))
    return _tessellated(grid, tilted(9, (0.05, 0.0, 0.3)), device)


def unseen(device: torch.device) -> Placed:
    """A carved room: what is beyond the grid is occupied."""
    occupied = np.zeros((12, 11, 13), dtype=bool)
    occupied[3, :7, 4], occupied[6:8, 5, 10:] = True, True
    grid = VoxelGrid(occupied, 0.125, (-0.75, -0.7, -0.75), outside="occupied")
    pose = tilted(2, (0.1, 0.0, 0.5))
    world = MeshWorld(device=device)
    world.add("unseen", grid, torch.from_numpy(pose))
    around = np.pad(occupied, 8, constant_values=True)
    wide = VoxelGrid(around, 0.125, (-1.75, -1.7, -1.75))
    mesh = trimesh.Trimesh(*wide.tessellate())
    return Placed(world, [of_mesh(mesh, pose)])


def field(device: torch.device) -> Placed:
    """A terrain under and beside the arm."""
    rng = np.random.default_rng(3)
    heights = 0.15 * rng.random((40, 34)) + 0.5 * (rng.random((40, 34)) < 0.03)
    terrain = HeightField(heights.astype(np.float32), (2.4, 2.0), base=0.2)
    pose = tilted(0, (0.0, 0.0, 0.0))
    pose[:3, :3] = trimesh.transformations.euler_matrix(0.1, -0.2, 0.4)[:3, :3]
    pose[:3, 3] = 0.1, 0.1, -0.4
    return _tessellated(terrain, pose.astype(np.float32).astype(float), device)


def _tessellated(shape: VoxelGrid | HeightField, pose: Array, device: torch.device) -> Placed:
    world = MeshWorld(device=device)
    world.add("obstacle", shape, torch.from_numpy(pose))
    return Placed(world, [of_mesh(trimesh.Trimesh(*shape.tessellate()), pose)])


KINDS = (meshes, cloud, voxels, unseen, field)


def true_clearance(arm: RobotSpheres, joints: torch.Tensor, fixed: list[Fixed]) -> Array:
    """(n,) of the links that move, by their meshes [m]."""
    links = {name: [*map(mesh_in_link, shapes)] for name, shapes in arm.link_shapes.items()}
    del links["base"]
    ball = trimesh.creation.icosphere(2, 0.07)  # which is no mesh of the robot's
    links["upper"].append(ball.apply_translation((0.02, 0.0, 0.3)))
    judge = MeshJudge(links, fixed)
    rows = arm.link_transforms(joints.double().cpu()).numpy()
    numbers = {name: arm.link_names.index(name) for name in links}
    return np.array([judge.clearance({n: row[k] for n, k in numbers.items()}) for row in rows])


@pytest.mark.parametrize("make", mostly_slow(KINDS, (meshes, cloud, field)))
def test_configurations(
    arm: RobotSpheres, make: Callable[[torch.device], Placed], device: torch.device
) -> None:
    world, fixed = make(device)
    joints = random_joints(arm.joint_limits, 300, torch.Generator().manual_seed(3)).float()
    options = {"self_collision": False, "ignore": [("base", name) for name in world.names()]}
    joints = joints.to(device)
    by_spheres = configuration_in_collision(joints, arm, world, **options).cpu().numpy()
    hit = configuration_in_collision(joints, arm, world, shapes="exact", **options).cpu().numpy()
    truth = true_clearance(arm, joints, fixed)
    assert not (hit & ~by_spheres).any()
    assert not (~hit & (truth <= 0.0)).any()
    assert not (hit & (truth > LOOSE)).any()
    assert (by_spheres & ~hit).sum() >= 2
    assert 0.03 < hit.mean() < 0.9


@pytest.mark.parametrize("make", mostly_slow(KINDS, (voxels,)))
def test_motions(
    arm: RobotSpheres, make: Callable[[torch.device], Placed], device: torch.device
) -> None:
    """Free ones are free where they are sampled, and those far from contact are free."""
    world, fixed = make(device)
    generator = torch.Generator().manual_seed(4)
    count = 250
    begin = random_joints(arm.joint_limits, count, generator).float()[:, None]
    end = begin + 0.03 * torch.randn((count, 1, 3), generator=generator)
    path = torch.cat((begin, end), dim=1).to(device)
    options = {"self_collision": False, "ignore": [("base", name) for name in world.names()]}
    by_spheres = joint_path_in_collision(path, arm, world, **options)[:, 0].cpu().numpy()
    hit = joint_path_in_collision(path, arm, world, shapes="exact", **options)[:, 0].cpu().numpy()
    shares = torch.linspace(0.0, 1.0, 4, device=device)[:, None]
    dense = path[:, :1] + shares * (path[:, 1:] - path[:, :1])
    truth = true_clearance(arm, dense.flatten(0, 1), fixed).reshape(count, 4).min(1)
    assert not (hit & ~by_spheres).any()
    assert not (~hit & (truth <= 0.0)).any()
    assert not (hit & (truth > 0.02)).any()
    assert (by_spheres & ~hit).sum() >= 1
    assert 0.03 < hit.mean() < 0.9


@pytest.mark.parametrize("make", mostly_slow(KINDS, (cloud,)))
def test_curves(
    arm: RobotSpheres, make: Callable[[torch.device], Placed], device: torch.device
) -> None:
    """As motions, of cubic pieces that bend by as much as they move."""
    world, fixed = make(device)
    rng = np.random.default_rng(9)
    count, shares = 200, np.linspace(0.0, 1.0, 5)
    begin = random_joints(arm.joint_limits, count, torch.Generator().manual_seed(5)).numpy()
    ends = np.stack((begin, begin + 0.03 * rng.normal(size=begin.shape)), axis=1)
    rates = 0.12 * rng.normal(size=ends.shape)
    curve = JointCurve.from_hermite([0.0, 1.0], ends, rates)
    options = {"self_collision": False, "ignore": [("base", name) for name in world.names()]}
    by_spheres = joint_path_in_collision(curve, arm, world, **options)[:, 0].cpu().numpy()
    hit = joint_path_in_collision(curve, arm, world, shapes="exact", **options)[:, 0].cpu().numpy()
    found = joint_path_clearance(curve, arm, world, shapes="exact", **options)
    dense = curve.at(shares)
    truth = true_clearance(arm, dense.flatten(0, 1), fixed).reshape(count, -1).min(1)
    assert not (hit & ~by_spheres).any()
    assert not (~hit & (truth <= 0.0)).any()
    assert not (hit & (truth > 0.03)).any()
    assert (by_spheres & ~hit).sum() >= 1
    assert 0.03 < hit.mean() < 0.9
    lower = found.lower[:, 0].cpu().numpy()
    assert (lower <= truth + 1e-5)[lower > 0.0].all()
