"""Configurations in lanes of vector instructions: the answers of the kernel without lanes.

At random, and bisected until contact and freedom are a unit of rounding apart.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

from joint_paths import load_crane
from robots import PANDA
from sensed_shapes import random_cloud
from warp_collision import (
    Capsule,
    Cuboid,
    Cylinder,
    HeightField,
    MeshWorld,
    Sphere,
    VoxelGrid,
    configuration_in_collision,
)
from warp_collision.devices import CPU
from warp_collision.examples import load_panda
from warp_collision.kernels import joint_path
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.lanes.configurations import configurations_hit
from warp_collision.robot import RobotChecker, RobotSpheres
from warp_collision.robot.checks import path_operators
from warp_collision.robot.model.sphere_layout import FRAME_POSE

Tensor = torch.Tensor


@pytest.fixture
def without_lanes(monkeypatch: pytest.MonkeyPatch):
    """The same function by the kernel that has a thread for each configuration."""

    def of_configurations(operands):
        rows = tuple(operands.joints.shape[:2])
        return joint_path.configuration_hit, rows, operands.scratch(rows, FRAME_POSE)

    def hits(*operands, **options) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(path_operators, "_of_configurations", of_configurations)
            return configuration_in_collision(*operands, **options)

    return hits


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
        shape = (Cuboid((a, b, c)), Sphere(a), Capsule(a, b), Cylinder(a, b))[i % 4]
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


def at_contact(hits, rows: Tensor, **options) -> Tensor:
    """Rows on both sides of contacts, a unit of rounding apart."""
    is_hit = hits(rows)[0]
    touching, free = rows[0][is_hit], rows[0][~is_hit]
    count = min(len(touching), len(free))
    touching, free = touching[:count], free[:count]
    for _ in range(26):
        middle = 0.5 * (touching + free)
        found = hits(middle[None])[0][:, None]
        touching, free = torch.where(found, middle, touching), torch.where(found, free, middle)
    return torch.cat((touching, free))[None]


def assert_same(without_lanes, robot, world, rows: Tensor, **options) -> None:
    expected = without_lanes(rows, robot, world, **options)
    assert torch.equal(configuration_in_collision(rows, robot, world, **options), expected)
    near = at_contact(lambda q: without_lanes(q, robot, world, **options), rows)
    expected = without_lanes(near, robot, world, **options)
    assert 0 < expected.sum() < expected.numel()
    assert torch.equal(configuration_in_collision(near, robot, world, **options), expected)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("count", [5, 12, 40])
def test_among_exact_shapes(without_lanes, name: str, count: int) -> None:
    """Fewer obstacles than `FEW`, and more: by boxes, and by a tree."""
    rng = np.random.default_rng(count)
    robot, world = ROBOTS[name](), MeshWorld(device=CPU, max_obstacles=64)
    fill(world, rng, count, spread=2.0 if name == "snake" or count > 32 else 1.0)
    rows = joint_rows(robot, rng, 100 if name == "snake" else 400)
    assert_same(without_lanes, robot, world, rows)
    expected = without_lanes(rows, robot, world, self_collision=False)
    found = configuration_in_collision(rows, robot, world, self_collision=False)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("count", range(1, 18))
def test_any_number_of_configurations(without_lanes, count: int) -> None:
    """Blocks that are not full, and paths that blocks begin and end within."""
    rng = np.random.default_rng(count)
    robot, world = load_panda(), MeshWorld(device=CPU)
    fill(world, rng, 4)
    rows = joint_rows(robot, rng, 3 * count)
    checker = RobotChecker(robot, world)
    for shape in ((count, 3, -1), (1, 3 * count, -1), (3 * count, 1, -1)):
        expected = without_lanes(rows.reshape(shape), robot, world)
        assert torch.equal(configuration_in_collision(rows.reshape(shape), robot, world), expected)
        assert torch.equal(checker.configuration_in_collision(rows.reshape(shape)), expected)


def test_joint_values_that_are_not_numbers(without_lanes) -> None:
    rng = np.random.default_rng(3)
    robot, world = load_crane(), MeshWorld(device=CPU)
    fill(world, rng, 6)
    rows = joint_rows(robot, rng, 400)
    bad = torch.tensor([np.nan, np.inf, -np.inf, 1e4, 1e7, 3e9, 1e20, 3e38]).float()
    where = torch.from_numpy(rng.integers(0, rows.shape[2], 200))
    rows[0, torch.arange(200) * 2, where] = bad[torch.arange(200) % len(bad)]
    for options in ({}, {"self_collision": False}):
        expected = without_lanes(rows, robot, world, **options)
        assert torch.equal(configuration_in_collision(rows, robot, world, **options), expected)
        assert expected[~rows.isfinite().all(-1)].all()
        assert not expected.all()


@pytest.mark.filterwarnings("ignore:joints must be in rad")
@pytest.mark.parametrize("far", [1.0, 100.0, 1000.0])
@pytest.mark.parametrize("turns", [0.0, 1000.0])
def test_far_from_the_origin_and_after_many_turns(without_lanes, far: float, turns: float) -> None:
    rng = np.random.default_rng(int(far + turns))
    robot, world = load_panda(), MeshWorld(device=CPU)
    base = random_pose(rng, 0.0, far * np.array([0.6, -0.5, 0.62]))
    fill(world, rng, 8, base[:3])
    rows = joint_rows(robot, rng, 400)
    rows += turns * torch.from_numpy(rng.choice([-1.0, 1.0], rows.shape)).float()
    assert_same(without_lanes, robot, world, rows, base_pose=base)


def test_envs_bases_and_contacts(without_lanes) -> None:
    """Lanes of one block in different envs, some of which there are not; and bases of their own."""
    rng = np.random.default_rng(4)
    robot, world = load_panda(), MeshWorld(device=CPU, n_envs=3, max_obstacles=8)
    for env in range(3):
        fill(world, rng, 6 + env, env=env)
    robot.attach("rod", "panda_hand", np.array([[0, 0, 0.1, 0.05], [0.1, 0, 0.1, 0.05]]), envs=[1])
    rows = joint_rows(robot, rng, 600)
    bases = torch.from_numpy(np.stack([random_pose(rng, 0.2) for _ in range(600)])).float()
    for shape in ((200, 3), (600, 1)):
        batch = rows.reshape(*shape, -1)
        envs = torch.from_numpy(rng.integers(-1, 4, shape[0])).int()
        options = {
            "env_index": envs,
            "base_pose": bases.reshape(*shape, 7)[:, 0],
            "ignore": [("panda_hand", "s1"), ("panda_link4", "s3")],
        }
        expected = without_lanes(batch, robot, world, **options)
        found = configuration_in_collision(batch, robot, world, **options)
        assert torch.equal(found, expected)
        assert 0.0 < expected.float().mean() < 1.0


def test_locked_joints(without_lanes) -> None:
    rng = np.random.default_rng(5)
    robot = RobotSpheres(PANDA, lock_joints={"panda_joint2": 0.4, "panda_joint4": -1.0})
    world = MeshWorld(device=CPU)
    fill(world, rng, 10)
    assert_same(without_lanes, robot, world, joint_rows(robot, rng, 500))


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


@pytest.mark.parametrize("kind", WITHOUT_FORMULA)
def test_among_what_has_no_formula(without_lanes, kind: str) -> None:
    """Bounds of lanes find what is near; the scalar functions decide."""
    rng = np.random.default_rng(6)
    robot, world = load_panda(), MeshWorld(device=CPU)
    for i in range(4):
        center = 0.75 * np.array([(1, 0, 0.5), (-1, 0.3, 0.2), (0, 1, 0.9), (0.2, -1, 0.3)][i])
        world.add(f"{i}", WITHOUT_FORMULA[kind](rng), random_pose(rng, 0.05, center))
    assert_same(without_lanes, robot, world, joint_rows(robot, rng, 300))


@pytest.mark.slow  # fits spheres to the links; test_convex_pieces.py has a fast sibling
def test_links_with_convex_pieces(without_lanes, tmp_path: Path) -> None:
    """Spheres that touch are no contact where pieces prove that links are apart."""
    (tmp_path / "arm.urdf").write_text(
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
    robot, world = RobotSpheres(tmp_path / "arm.urdf"), MeshWorld(device=CPU)
    rng = np.random.default_rng(8)
    assert_same(without_lanes, robot, world, joint_rows(robot, rng, 2000))


@pytest.mark.slow  # compiles the kernel
def test_without_vector_instructions(without_lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for any CPU of its kind, vectors are what the compiler makes of them."""
    plain = wp.Module("lanes_of_any_cpu", None)
    plain.options.update(OPTIONS | {"cpu_compiler_flags": ""})
    kernel = wp.Kernel(configurations_hit.func, key="of_any_cpu", module=plain)
    monkeypatch.setattr(path_operators, "configurations_hit", kernel)
    rng = np.random.default_rng(9)
    robot, world = load_panda(), MeshWorld(device=CPU)
    fill(world, rng, 10)
    assert_same(without_lanes, robot, world, joint_rows(robot, rng, 500))


@pytest.mark.slow
def test_a_million_at_random_and_at_contact(without_lanes) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        for name, robot in ROBOTS.items():
            robot, world = robot(), MeshWorld(device=CPU, max_obstacles=64)
            fill(world, rng, (4, 9, 40)[seed % 3], spread=1.0 + (name == "snake" or seed % 3 == 2))
            count = 5000 if name == "snake" else 50000
            rows = joint_rows(robot, rng, count)
            expected = without_lanes(rows, robot, world)
            assert torch.equal(configuration_in_collision(rows, robot, world), expected)
            assert_same(without_lanes, robot, world, rows[:, : count // 8])
