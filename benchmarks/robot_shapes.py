"""Robots by the shapes of their links against obstacles of all kinds, judged by coal.

Of each robot those links are checked that some joint moves. A third of the configurations are where
spheres refuse and shapes do not, the others are random. coal has the meshes of the URDF, and those
of the obstacles; free motions are judged at four places.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
from torch import Tensor

from benchmarks.harness import Failed, table
from benchmarks.robots import URDFS, load, urdf_of
from mesh_judge import Fixed, MeshJudge, of_balls, of_mesh
from warp_collision import (
    Cuboid,
    HeightField,
    MeshWorld,
    PointCloud,
    VoxelGrid,
    configuration_in_collision,
    joint_path_in_collision,
)
from warp_collision.robot import LinkMesh
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints
from warp_collision.robot.model.urdf_model import LinkShape, LinkSphere

KINDS = ("boxes", "meshes", "scan", "voxels", "field")
NEAR = 0.03  # m, what counts as near contact
RADIUS = 0.015  # m, of the points of a scan
_POOL = 4  # random configurations for each that is judged, and some more
_STEP = 0.05  # rad or m, of motions
_PLACES = (0.25, 0.5, 0.75, 1.0)


class Scene(NamedTuple):
    """Obstacles of the library, and the same for coal."""

    world: MeshWorld
    fixed: list[Fixed]


def scene(kind: str, seed: int, reach: float) -> Scene:
    """A scene of one kind within reach [m] of a robot."""
    rng = np.random.default_rng(seed)
    world, fixed = MeshWorld(device="cpu"), []
    if kind in ("boxes", "meshes"):
        for number in range(6 if kind == "boxes" else 4):
            shape = trimesh.creation.box(reach * rng.uniform(0.05, 0.4, 3))
            given: Any = Cuboid(tuple(shape.extents.tolist()))
            if kind == "meshes":
                given = shape = _mesh(number, reach)
            pose = _pose(rng, reach)
            world.add(f"{kind} {number}", given, torch.from_numpy(pose))
            fixed.append(of_mesh(shape, pose))
        return Scene(world, fixed)
    pose = np.eye(4)
    if kind == "scan":
        points = rng.normal(size=(150, 3))
        points[:, 2] = np.abs(points[:, 2])
        points *= reach * rng.uniform(0.6, 0.9, (150, 1)) / np.linalg.norm(points, axis=1)[:, None]
        points = points.astype(np.float32).astype(float)
        world.add(kind, PointCloud(points, radius=RADIUS), torch.from_numpy(pose))
        return Scene(world, of_balls(points, RADIUS, pose))
    if kind == "voxels":
        occupied = rng.random((14, 14, 12)) < 0.03
        occupied[5:9, 5:9, :6] = False
        sensed: Any = VoxelGrid(occupied, reach / 7.0, (-reach, -reach, -0.1 * reach))
    else:
        heights = (0.25 * reach * rng.random((24, 24))).astype(np.float32)
        sensed = HeightField(heights, (2.2 * reach, 2.2 * reach), base=0.2)
        pose[2, 3] = np.float32(-0.25 * reach)
    world.add(kind, sensed, torch.from_numpy(pose))
    return Scene(world, [of_mesh(trimesh.Trimesh(*sensed.tessellate()), pose)])


def _mesh(number: int, reach: float) -> trimesh.Trimesh:
    """A ring, a ball or a tube."""
    if number % 3 == 0:
        return trimesh.creation.torus(0.25 * reach, 0.05 * reach, major_sections=24)
    if number % 3 == 1:
        return trimesh.creation.icosphere(2, 0.18 * reach)
    return trimesh.creation.annulus(0.15 * reach, 0.2 * reach, 0.2 * reach)


def _pose(rng: np.random.Generator, reach: float) -> np.ndarray:
    """Any rotation, and a place above the base and around it; float32 numbers."""
    away = rng.normal(size=3)
    away[2] = np.abs(away[2])
    pose = trimesh.transformations.random_rotation_matrix(rng.random(3))
    pose[:3, 3] = away / np.linalg.norm(away) * reach * rng.uniform(0.5, 1.0)
    return pose.astype(np.float32).astype(float)


def motions_from(joints: Tensor, seed: int) -> Tensor:
    """Motions (n, 2, n_joints) that begin at joint values (n, n_joints)."""
    step = torch.randn(joints.shape, generator=torch.Generator().manual_seed(seed))
    return torch.stack((joints, joints + _STEP * step), 1)


class Found(NamedTuple):
    """What a robot's shapes say, and coal.

    Attributes:
        hit: (n,) bool, configurations by shapes.
        spheres: (n,) bool, by spheres.
        clearance: (n,) of its meshes, by coal [m].
        free: motions that are proven free, of how many, and how many of them touch.
    """

    hit: np.ndarray
    spheres: np.ndarray
    clearance: np.ndarray
    free: np.ndarray


def _mesh_of(shape: LinkSphere | LinkShape | LinkMesh) -> trimesh.Trimesh:
    """A shape in the frame of its link; a ball is within its sphere by a tenth of a percent."""
    if not isinstance(shape, LinkSphere):
        return mesh_in_link(shape)
    ball = trimesh.creation.icosphere(4, shape.radius)
    return ball.apply_translation(shape.center)


class Judged:
    """A robot, and its moving links for coal."""

    def __init__(self, name: str):
        self.robot = robot = load(name)
        frames = robot.layout.frame_of
        self._still = [link for link in robot.layout.bodies if frames[link] == 0]
        self._links: dict[str, list[trimesh.Trimesh]] = {}
        for shape in urdf_of(robot).collisions:
            if frames.get(shape.link, 0) != 0:
                self._links.setdefault(shape.link, []).append(_mesh_of(shape))
        spheres = robot.spheres(self.random(200, 0))
        self.reach = float(spheres[..., :3].norm(dim=-1).amax(-1).quantile(0.6))

    def random(self, count: int, seed: int) -> Tensor:
        """Joint values (count, n_joints) within the limits."""
        generator = torch.Generator().manual_seed(seed)
        return random_joints(self.robot.joint_limits, count, generator).float()

    def allowed(self, world: MeshWorld) -> list[tuple[str, str]]:
        """Contacts of links that no joint moves."""
        return [(link, name) for link in self._still for name in world.names()]

    def found(self, made: Scene, count: int, motions: int, seed: int) -> Found:
        """Compares some configurations and motions."""
        world, robot = made.world, self.robot
        options: dict[str, Any] = {"self_collision": False}
        options["ignore"] = self.allowed(world)
        pool = self.random(_POOL * count + 1000, seed)
        spheres = configuration_in_collision(pool, robot, world, **options)
        hit = configuration_in_collision(pool, robot, world, shapes="exact", **options)
        near = torch.nonzero(spheres & ~hit)[: count // 3, 0]
        rows = torch.cat((near, torch.arange(count - len(near))))
        judge = MeshJudge(self._links, made.fixed)
        clearance = self._clearance(judge, pool[rows])
        path = motions_from(pool[rows[:motions]], seed)
        blocked = joint_path_in_collision(path, robot, world, shapes="exact", **options)[:, 0]
        free = path[~blocked]
        between = [torch.lerp(free[:, 0], free[:, 1], place) for place in _PLACES]
        touches = [self._clearance(judge, at) <= 0.0 for at in between]
        counts = np.array([len(path), len(free), np.any(touches, axis=0).sum() if len(free) else 0])
        return Found(hit[rows].numpy(), spheres[rows].numpy(), clearance, counts)

    def _clearance(self, judge: MeshJudge, joints: Tensor) -> np.ndarray:
        names = self.robot.link_names
        return np.array(
            [
                judge.clearance({link: row[names.index(link)] for link in self._links}, NEAR)
                for row in self.robot.link_transforms(joints.double()).numpy()
            ]
        )


def row_of(name: str, count: int, motions: int, scenes: int) -> tuple[int, list[str]]:
    """How much is called free and touches, and a robot's line of the table."""
    begin, judged = time.process_time(), Judged(name)
    parts = []
    for seed in range(scenes):
        made = scene(KINDS[seed % len(KINDS)], seed, judged.reach)
        parts.append(judged.found(made, count, motions, seed))
    hit = np.concatenate([part.hit for part in parts])
    spheres = np.concatenate([part.spheres for part in parts])
    clearance = np.concatenate([part.clearance for part in parts])
    tried, free, touching = np.sum([part.free for part in parts], axis=0).tolist()
    truth, near = clearance <= 0.0, clearance < NEAR
    agree = hit == truth
    wrong = int((~hit & truth).sum()) + touching
    return wrong, [
        name,
        str(len(hit)),
        f"{agree.mean():.2%}",
        f"{agree[near].mean():.2%} of {near.sum()}",
        str((~hit & truth).sum()),
        f"{(spheres == truth)[near].mean():.1%}",
        f"{free} of {tried}",
        str(touching),
        f"{time.process_time() - begin:.0f} s",
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds which robots, and how much of each."""
    parser.add_argument("--robots", nargs="+", choices=[*URDFS], default=[*URDFS], metavar="NAME")
    parser.add_argument("--count", type=int, default=1000, help="configurations in each scene")
    parser.add_argument("--motions", type=int, default=200, help="motions in each scene")
    parser.add_argument("--scenes", type=int, default=10, help="of each robot")


def run(options: Any) -> str:
    """Judges the robots, and prints each as soon as it is done; fails where contacts are missed."""
    head = ["robot", "configurations", "agree", "near contact", "missed", "spheres, near"]
    head += ["free motions", "that touch", "time"]
    rows, missed = [], 0
    for name in options.robots:
        wrong, row = row_of(name, options.count, options.motions, options.scenes)
        print(*row, sep=" | ", flush=True)
        rows.append(row)
        missed += wrong
    if missed:
        raise Failed(table(head, rows))
    return table(head, rows)
