"""Contacts beside random open meshes, as their winding numbers say: none is missed or false.

Of sweeps and joint paths that is asked where no winding number on the way is near 1/2.
"""

import numpy as np
import pytest
import torch
import trimesh

import reference
import shapes
from reference import Array, Obstacle
from robots import PANDA
from warp_collision import (
    MeshWorld,
    configuration_in_collision,
    in_collision,
    joint_path_in_collision,
    swept_in_collision,
)
from warp_collision.robot import RobotSpheres

TOLERANCE = 1e-3
ROUNDING = 2e-6  # of coordinates
SAMPLES = 101  # of a motion


def open_mesh(rng: np.random.Generator) -> tuple[Array, np.ndarray]:
    """A part of a body, a body with holes, a curled or rough sheet."""
    size = 10.0 ** rng.uniform(-1.0, 0.3)
    kind = rng.choice(["cut", "holes", "sheet"])
    if kind == "sheet":
        n = int(rng.integers(2, 9))
        u, v = np.meshgrid(np.linspace(-1.0, 1.0, n), np.linspace(-1.0, 1.0, n), indexing="ij")
        angle = rng.uniform(0.1, 3.0) * u
        rough = rng.choice([0.0, 0.2]) * rng.normal(size=u.shape)
        vertices = size * np.stack([np.sin(angle), v, 1.0 - np.cos(angle) + rough], axis=-1)
        index = np.arange(n * n).reshape(n, n)
        a, b, c, d = (
            index[i, j].ravel()
            for i, j in (
                (slice(-1), slice(-1)),
                (slice(1, None), slice(-1)),
                (slice(1, None), slice(1, None)),
                (slice(-1), slice(1, None)),
            )
        )
        faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
        return shapes.rounded(vertices.reshape(-1, 3)), faces[:, :: rng.choice([-1, 1])].copy()
    body = rng.choice(
        [
            trimesh.creation.icosphere(2, size),
            trimesh.creation.box(size * rng.uniform(0.05, 1.0, 3)).subdivide(),
            trimesh.creation.cylinder(size * rng.uniform(0.05, 0.6), size, sections=12),
            trimesh.creation.torus(size, 0.3 * size, major_sections=16, minor_sections=8),
        ]
    )
    if kind == "holes":
        kept = rng.uniform(size=len(body.faces)) > rng.choice([0.05, 0.3])
    else:
        heights = body.triangles_center @ shapes.random_pose(rng)[:3]
        kept = heights < np.quantile(heights, rng.uniform(0.3, 0.95))
    return shapes.rounded(body.vertices), np.asarray(body.faces)[kept]


def distances(points: Array, scene: list[Obstacle]) -> tuple[Array, Array]:
    """Signed distances (...) of points (..., 3), and how near a winding number is to 1/2."""
    flat = points.reshape(-1, 3)
    nearest, doubt = np.full(len(flat), np.inf), np.full(len(flat), np.inf)
    for obstacle in scene:
        local = reference.in_frame(flat, obstacle.pose)
        closest, _ = reference.closest_points(local, obstacle.vertices, obstacle.faces)
        excess = reference.winding_number(local, obstacle.vertices, obstacle.faces) - 0.5
        distance = np.linalg.norm(local - closest, axis=1)
        nearest = np.minimum(nearest, np.where(excess > 0.0, -distance, distance))
        doubt = np.minimum(doubt, np.abs(excess))
    return nearest.reshape(points.shape[:-1]), doubt.reshape(points.shape[:-1])


class Beside:
    """Open meshes in a world and in float64, around a place that may be far from the origin."""

    def __init__(self, seed: int):
        self.rng = rng = np.random.default_rng(seed)
        far = rng.choice([0.0, 10.0, 64.0])
        self.place = shapes.rounded(rng.uniform(-far, far, 3))
        self.rounding = ROUNDING * (float(np.abs(self.place).max()) + 4.0)
        self.world = MeshWorld(device="cpu", grid_cells=int(rng.choice([0, 16**3, 32**3])))
        self.scene: list[Obstacle] = []
        for index in range(rng.integers(1, 5)):
            pose = shapes.random_pose(rng, spread=0.8)
            pose[:3] = shapes.rounded(pose[:3] + self.place)
            obstacle = Obstacle(*open_mesh(rng), pose)
            mesh = obstacle.vertices, obstacle.faces
            self.world.add(f"mesh {index}", mesh, pose=pose.tolist(), repair=False)
            self.scene.append(obstacle)

    def require(self, hits: Array, gaps: Array, doubts: Array, slack: float, least: float) -> None:
        """Requires contacts to be those of clearances, within the slack of what is sampled."""
        sure = doubts > least
        assert not (hits & sure & (gaps > slack + self.rounding)).any()
        assert (hits | ~sure | (gaps > -self.rounding)).all()


def on_device(values: Array) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.filterwarnings("ignore::warp_collision.OpenMeshWarning")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 25))]
)
def test_contacts_are_those_of_winding_numbers(seed: int) -> None:
    beside = Beside(seed)
    rng, scene, world = beside.rng, beside.scene, beside.world
    around = [shapes.mixed_points(rng, obstacle, 60) for obstacle in scene]
    points = np.concatenate([beside.place + rng.uniform(-2.0, 2.0, (60, 3)), *around])
    points = shapes.rounded(points)
    radii = shapes.rounded(rng.uniform(0.0, 0.1, len(points)))
    spheres = np.column_stack([points, radii])
    hits = in_collision(on_device(spheres)[:, None, None], world)[:, 0, 0].numpy()
    gaps, doubts = distances(points, scene)
    beside.require(hits, gaps - radii, doubts, 0.0, 1e-4)

    begin = spheres[rng.integers(len(spheres), size=20)]
    end = begin.copy()
    end[:, :3] += rng.normal(size=(20, 3)) * 10.0 ** rng.uniform(-2.0, 0.2, (20, 1))
    paths = shapes.rounded(np.stack([begin, end], axis=1))[:, :, None]
    hits = swept_in_collision(on_device(paths), world, tolerance=TOLERANCE).numpy()
    shares = np.linspace(0.0, 1.0, SAMPLES)[:, None]
    motion = paths[:, :1, 0, :3] * (1.0 - shares) + paths[:, 1:, 0, :3] * shares
    require_motion(beside, hits.any(axis=(1, 2)), motion[:, :, None], paths[:, 0, :1, 3])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::warp_collision.OpenMeshWarning")
@pytest.mark.parametrize("seed", range(100, 112))
def test_contacts_of_a_robot_are_those_of_winding_numbers(seed: int) -> None:
    beside, robot = Beside(seed), RobotSpheres(PANDA)
    rng, limits = beside.rng, robot.joint_limits.numpy()
    base = shapes.rounded([*(beside.place + rng.uniform(-1.0, 1.0, 3)), 1.0, 0.0, 0.0, 0.0])
    placed = {"self_collision": False, "base_pose": on_device(base)}
    joints = on_device(rng.uniform(*limits.T, (40, 7)))
    hits = configuration_in_collision(joints, robot, beside.world, **placed).numpy()
    spheres = robot.spheres(joints.double(), torch.tensor(base)).numpy()
    gaps, doubts = distances(spheres[..., :3], beside.scene)
    beside.require(hits, (gaps - spheres[..., 3]).min(1), doubts.min(1), 1e-5, 1e-3)

    ends = joints[:12] + on_device(rng.normal(scale=0.15, size=(12, 7)))
    segments = torch.stack([joints[:12], ends], 1)
    options = {"tolerance": TOLERANCE, **placed}
    hits = joint_path_in_collision(segments, robot, beside.world, **options)[:, 0].numpy()
    shares = torch.linspace(0.0, 1.0, 41, dtype=torch.float64)[:, None]
    between = segments[:, :1].double() * (1.0 - shares) + segments[:, 1:].double() * shares
    motion = robot.spheres(between, torch.tensor(base)).numpy()
    require_motion(beside, hits, motion[..., :3], motion[0, 0, :, 3])


def require_motion(beside: Beside, hits: Array, centers: Array, radii: Array) -> None:
    """Requires contacts of motions, centers (n, n_samples, n_spheres, 3) with radii."""
    signed, doubts = distances(centers, beside.scene)
    step = np.linalg.norm(np.diff(centers, axis=1), axis=-1).max(axis=(1, 2))
    sure, rounding = doubts.min(axis=(1, 2)) > 0.02, beside.rounding + 1e-5
    radii = np.broadcast_to(np.reshape(radii, (-1, 1, radii.shape[-1])), signed.shape)
    free = (signed - radii).min(axis=(1, 2)) > TOLERANCE + step + rounding
    touching = (np.abs(signed) - radii).min(axis=(1, 2)) < -rounding
    assert not (hits & free & sure).any()
    assert hits[touching].all()
