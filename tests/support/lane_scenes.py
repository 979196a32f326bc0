"""Robots among obstacles for checks in lanes: few and many frames, spheres and obstacles."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import trimesh

from joint_paths import load_crane
from sensed_shapes import random_cloud
from warp_collision import (
    Capsule,
    Cone,
    Cuboid,
    Cylinder,
    HeightField,
    MeshWorld,
    Sphere,
    VoxelGrid,
)
from warp_collision.devices import CPU
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres

Tensor = torch.Tensor


def snake(n_joints: int = 20, n_spheres: int = 65) -> RobotSpheres:
    """A chain of many joints with many spheres on each link, some of which are disabled."""
    rng = np.random.default_rng(7)
    lines = ['<robot name="snake"><link name="l0"/>']
    spheres = {}
    for k in range(1, n_joints + 1):
        axis, rpy = (" ".join(map(str, rng.normal(size=3).round(3))) for _ in range(2))
        lines.append(
            f'<link name="l{k}"/><joint name="j{k}" type="revolute"><parent link="l{k - 1}"/>'
            f'<child link="l{k}"/><origin xyz="0.12 0.01 0" rpy="{rpy}"/><axis xyz="{axis}"/>'
            '<limit lower="-0.8" upper="0.8" effort="1" velocity="1"/></joint>'
        )
        centers = rng.uniform(-0.05, 0.05, (n_spheres, 3))
        radii = rng.uniform(0.003, 0.02, (n_spheres, 1))
        radii[::9] = -1.0
        spheres[f"l{k}"] = np.concatenate((centers, radii), axis=1)
    with tempfile.TemporaryDirectory() as folder:
        urdf = Path(folder) / "snake.urdf"
        urdf.write_text("\n".join([*lines, "</robot>"]))
        return RobotSpheres(urdf, spheres=spheres)


ROBOTS = {"panda": load_panda, "crane": load_crane, "snake": snake}


def random_pose(rng: np.random.Generator, reach: float, center=(0.0, 0.0, 0.0)) -> np.ndarray:
    turn = rng.normal(size=4)
    return np.concatenate((np.array(center) + rng.uniform(-reach, reach, 3), turn))


def fill(
    world: MeshWorld, rng: np.random.Generator, count: int, center=(0, 0, 0.4), env=0, spread=1.0
) -> None:
    """Exact shapes of all kinds, some with padding, one of them disabled."""
    for i in range(count):
        a, b, c = rng.uniform(0.02, 0.25, 3)
        shapes = Cuboid((a, b, c)), Sphere(a), Capsule(a, b), Cylinder(a, b), Cone(a, b)
        shape = shapes[i % len(shapes)]
        pose = random_pose(rng, spread, center)
        world.add(f"s{i}", shape, pose, env=env, padding=0.02 if i % 3 == 0 else 0.0)
    if count > 5:
        world.enable("s5", False, env=env)


def joint_rows(robot: RobotSpheres, rng: np.random.Generator, count: int) -> Tensor:
    """(1, count, n_joints), half of them uniform, half in rows that are near each other."""
    limits = robot.joint_limits.double().numpy()
    low, high = np.clip(limits.T, -4.0, 4.0)
    rows = rng.uniform(low, high, (count, len(low)))
    steps = np.repeat(rows[: -(-count // 16)], 8, axis=0)[: count // 2]
    rows[: len(steps)] = steps + 0.02 * rng.normal(size=steps.shape)
    return torch.from_numpy(rows).float()[None]


def motions(robot: RobotSpheres, rng: np.random.Generator, count: int) -> Tensor:
    """(count, 2, n_joints) by 0.01 to 3 rad or m in all joints together."""
    begin = joint_rows(robot, rng, count)[0].double().numpy()
    way = rng.normal(size=begin.shape)
    way *= 10.0 ** rng.uniform(-2.0, 0.5, (count, 1)) / np.linalg.norm(way, axis=1, keepdims=True)
    return torch.from_numpy(np.stack((begin, begin + way), axis=1)).float()


def bowl() -> trimesh.Trimesh:
    ball = trimesh.creation.icosphere(2, 0.3)
    return trimesh.Trimesh(ball.vertices, ball.faces[ball.triangles_center[:, 2] < 0.1])


WITHOUT_FORMULA = {
    "mesh": lambda rng: trimesh.creation.torus(0.3, 0.1),
    "open": lambda rng: bowl(),
    "cloud": lambda rng: random_cloud(rng)[1],
    "voxels": lambda rng: VoxelGrid(rng.random((8, 8, 8)) < 0.02, 0.04, (-0.2, -0.2, -0.2)),
    "field": lambda rng: HeightField(0.2 * rng.random((12, 12)), (0.9, 0.9), 0.1),
}


def robot_with_pieces(folder: Path) -> RobotSpheres:
    """Three links whose shapes are convex."""
    (folder / "arm.urdf").write_text(
        '<robot name="arm"><link name="a"><collision><geometry><box size="0.4 0.1 0.1"/></geometry>'
        '</collision></link><link name="b"><collision><origin xyz="0.2 0 0"/><geometry>'
        '<box size="0.4 0.06 0.06"/></geometry></collision></link><link name="c"><collision>'
        '<origin xyz="0 0 0.2"/><geometry><box size="0.05 0.05 0.3"/></geometry></collision>'
        '</link><joint name="j" type="revolute"><parent link="a"/><child link="b"/>'
        '<origin xyz="0.3 0 0.1"/><axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" '
        'velocity="1"/></joint><joint name="k" type="revolute"><parent link="b"/><child link="c"/>'
        '<origin xyz="0.45 0 0"/><axis xyz="1 1 0"/><limit lower="-3" upper="3" effort="1" '
        'velocity="1"/></joint></robot>'
    )
    return RobotSpheres(folder / "arm.urdf")


def far_away(
    rng: np.random.Generator, far: float, count: int
) -> tuple[RobotSpheres, MeshWorld, np.ndarray]:
    """A Panda on a base at a distance from the origin, among obstacles there, and the base."""
    world, base = MeshWorld(device=CPU), random_pose(rng, 0.0, far * np.array([0.6, -0.5, 0.62]))
    fill(world, rng, count, base[:3])
    return load_panda(), world, base


def three_envs(rng: np.random.Generator, fewest: int) -> tuple[RobotSpheres, MeshWorld]:
    """A Panda that carries a rod in one of three envs, each with one obstacle more."""
    robot, world = load_panda(), MeshWorld(device=CPU, n_envs=3, max_obstacles=8)
    for env in range(3):
        fill(world, rng, fewest + env, env=env)
    robot.attach("rod", "panda_hand", np.array([[0, 0, 0.1, 0.05], [0.1, 0, 0.1, 0.05]]), envs=[1])
    return robot, world


def among(rng: np.random.Generator, kind: str) -> tuple[RobotSpheres, MeshWorld]:
    """A Panda among four obstacles of a kind without a formula."""
    world = MeshWorld(device=CPU)
    for i in range(4):
        center = 0.75 * np.array([(1, 0, 0.5), (-1, 0.3, 0.2), (0, 1, 0.9), (0.2, -1, 0.3)][i])
        world.add(f"{i}", WITHOUT_FORMULA[kind](rng), random_pose(rng, 0.05, center))
    return load_panda(), world
