"""A Panda and scenes as both the library and VAMP have them, and float64 clearances of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import Capsule, Cuboid, Cylinder, MeshWorld
from warp_collision.examples import load_panda, load_problem
from warp_collision.io.scene_builder import Obstacle
from warp_collision.robot import RobotSpheres, SelfCollisionPairs

MISSING = """\
There is no module `vamp`. It is VAMP, whose license is its own, and is built from its sources:

    pip install vamp-planner
"""
CPU = torch.device("cpu")
# Pairs of links that VAMP's Panda leaves out beside adjacent ones.
IGNORED = {
    "link0": ("link2", "link3", "link4"),
    "link1": ("link3", "link4"),
    "link2": ("link4", "link6"),
    "link3": ("link5", "link6", "link7", "hand", "leftfinger", "rightfinger"),
    "link4": ("link6", "link7", "hand", "leftfinger", "rightfinger"),
    "link6": ("hand", "leftfinger", "rightfinger"),
}
SHELF = "bookshelf_thin_2"
SCENES = ("cage", "shelf-5", "shelf-10", "shelf-20", "plates")
COARSE, NEAR = 2e-3, 5e-3  # [m] of the samples of a motion


def load() -> Any:
    """The module `vamp`; ImportError says how one gets it."""
    try:
        return importlib.import_module("vamp")
    except ImportError:
        raise ImportError(MISSING) from None


class Case(NamedTuple):
    """A scene for both."""

    name: str
    obstacles: list[Obstacle]
    world: MeshWorld
    environment: Any


def obstacles_of(scene: str) -> list[Obstacle]:
    """A cage of eight boxes, so many obstacles of a shelf from its middle, or plates.

    The plates are eight of 30 cm by 30 cm by 1 mm, anywhere around the robot.
    """
    if scene == "cage":
        return list(load_problem("cage_2").obstacles.values())
    if scene == "plates":
        rng = np.random.default_rng(4)
        ways, turns = rng.normal(size=(8, 3)), rng.normal(size=(8, 4))
        places = ways / np.linalg.norm(ways, axis=1, keepdims=True) * rng.uniform(0.5, 0.9, (8, 1))
        places += [0.0, 0.0, 0.4]
        turns /= np.linalg.norm(turns, axis=1, keepdims=True)
        poses = np.concatenate((places, turns), axis=1)
        return [Obstacle(Cuboid((0.3, 0.3, 0.001)), tuple(pose)) for pose in poses.tolist()]
    found = list(load_problem(SHELF).obstacles.values())
    middle = np.median([o.pose[:3] for o in found], axis=0)
    found.sort(key=lambda o: float(np.linalg.norm(np.subtract(o.pose[:3], middle))))
    return [
        o._replace(geometry=Capsule(o.geometry.radius, o.geometry.height))
        if isinstance(o.geometry, Cylinder)
        else o
        for o in found[: int(scene.removeprefix("shelf-"))]
    ]


def make_case(vamp: Any, scene: str) -> Case:
    """A scene as both have it."""
    obstacles = obstacles_of(scene)
    world = MeshWorld(1, len(obstacles), CPU)
    world.load({str(i): obstacle for i, obstacle in enumerate(obstacles)})
    environment = vamp.Environment()
    for geometry, pose, *_ in obstacles:
        place = list(map(float, pose[:3])), angles_of(rotation_of(pose[3:]))
        if isinstance(geometry, Cuboid):
            environment.add_cuboid(vamp.Cuboid(*place, [0.5 * edge for edge in geometry.dims]))
        else:
            assert isinstance(geometry, Capsule)
            environment.add_capsule(vamp.Cylinder(*place, geometry.radius, geometry.length))
    return Case(scene, obstacles, world, environment)


def rotation_of(quaternion: Sequence[float]) -> np.ndarray:
    """A (3, 3) matrix of a unit quaternion w, x, y, z."""
    w, x, y, z = np.asarray(quaternion, dtype=np.float64)
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2.0 * (w * skew + skew @ skew)


def angles_of(rotation: np.ndarray) -> list[float]:
    """Angles about the fixed x, y and z axes, one after the other, that make a (3, 3) rotation."""
    r = rotation
    about_x, about_z = np.arctan2(r[2, 1], r[2, 2]), np.arctan2(r[1, 0], r[0, 0])
    return [float(about_x), float(np.arctan2(-r[2, 0], np.hypot(r[0, 0], r[1, 0]))), float(about_z)]


def panda() -> tuple[RobotSpheres, SelfCollisionPairs]:
    """The robot with the pairs that VAMP checks."""
    robot = load_panda()
    ignored = [
        (f"panda_{link}", f"panda_{other}") for link, others in IGNORED.items() for other in others
    ]
    return robot, robot.self_collision_pairs(ignore=ignored)


def random_joints(robot: RobotSpheres, count: int, seed: int) -> Tensor:
    """(count, n_joints) values anywhere within the limits."""
    generator = torch.Generator().manual_seed(seed)
    low, high = robot.joint_limits.float().unbind(-1)
    return low + (high - low) * torch.rand((count, robot.n_joints), generator=generator)


def clearance(spheres: Tensor, obstacles: Sequence[Obstacle]) -> Tensor:
    """(n, n_spheres) float64 clearance of the nearest obstacle, of spheres (n, n_spheres, 4)."""
    smallest = torch.full(spheres.shape[:-1], torch.inf, dtype=torch.float64)
    for geometry, pose, *_ in obstacles:
        turned = torch.from_numpy(rotation_of(pose[3:]))
        local = (spheres[..., :3] - torch.tensor(pose[:3], dtype=torch.float64)) @ turned
        if isinstance(geometry, Cuboid):
            beyond = local.abs() - 0.5 * torch.tensor(geometry.dims, dtype=torch.float64)
            gap = beyond.clamp(min=0.0).norm(dim=-1) + beyond.amax(-1).clamp(max=0.0)
        else:
            assert isinstance(geometry, Capsule)
            half = 0.5 * geometry.length
            local[..., 2] -= local[..., 2].clamp(-half, half)
            gap = local.norm(dim=-1) - geometry.radius
        smallest = torch.minimum(smallest, gap)
    return smallest - spheres[..., 3]


def gaps(spheres: Tensor, pairs: SelfCollisionPairs) -> Tensor:
    """(n, n_pairs) clearance of the robot's spheres (n, n_spheres, 4) of each other."""
    a, b = (spheres[:, pairs.pairs[:, side]] for side in (0, 1))
    return (a[..., :3] - b[..., :3]).norm(dim=-1) - a[..., 3] - b[..., 3]


def smallest_on(
    robot: RobotSpheres,
    pairs: SelfCollisionPairs,
    obstacles: Sequence[Obstacle],
    begin: Tensor,
    end: Tensor,
) -> float:
    """Smallest clearance [m] at samples of a motion between joint values (n_joints,) in float64.

    Spheres move by 2 mm at most between two samples, and by 0.1 mm where these are nearer than
    5 mm to anything, more than two spheres can move towards each other.
    """

    def at(s: Tensor) -> Tensor:
        found = []
        for part in s.split(512):
            spheres = robot(begin + part[:, None] * (end - begin))
            nearest = clearance(spheres, obstacles).amin(-1)
            found.append(torch.minimum(nearest, gaps(spheres, pairs).amin(-1)))
        return torch.cat(found)

    places = robot(begin + torch.linspace(0.0, 1.0, 201).double()[:, None] * (end - begin))
    step = (places[1:, :, :3] - places[:-1, :, :3]).norm(dim=-1).max().item()
    # Chords are shorter than arcs by less than a tenth.
    parts = int(np.ceil(200 * 1.1 * step / COARSE)) + 1
    s = torch.linspace(0.0, 1.0, parts + 1).double()
    coarse = at(s)
    if coarse.min() < -COARSE or coarse.min() > NEAR:
        return float(coarse.min())
    near = torch.nonzero(torch.minimum(coarse[:-1], coarse[1:]) < NEAR)
    between = torch.linspace(0.0, 1.0, 21).double()
    return float(at((s[near] + between / parts).flatten()).min())
