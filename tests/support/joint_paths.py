"""Joint paths among plates and posts, and what float64 kinematics say of them, sampled densely."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import trimesh

from robots import sphere_pairs, turn
from warp_collision import MeshWorld
from warp_collision.robot import RobotSpheres, SelfCollisionPairs

Tensor = torch.Tensor

# How far apart samples are, in motion of the fastest sphere [m].
SPACING = 1e-4
# What the smallest sampled clearance may be above the smallest.
BETWEEN = 1e-4
_COARSE = 20  # fine samples in a coarse one


_JOINTS = (
    # parent, child, place, turned by, axis, type, mimic
    ("base", "column", (0, 0, 0.1), (0, 0, 0), (0, 0, 1), "prismatic", ""),
    ("column", "boom", (0.05, 0, 0.2), (0.2, 0, 0), (0.1, 0, 1), "revolute", ""),
    ("boom", "trolley", (0.1, 0.05, 0), (0, 0.3, 0.1), (1, 0.2, 0), "prismatic", ""),
    ("trolley", "arm", (0.2, 0, -0.1), (0.5, 0.2, 1), (0, 1, 0.3), "revolute", ""),
    ("arm", "hand", (0.3, 0.05, 0), (0, 0, 0.4), (1, 0, 0), "revolute", ""),
    ("hand", "left", (0.1, 0.05, 0), (0, 0, 0), (0, 1, 0), "prismatic", ""),
    ("hand", "right", (0.1, -0.05, 0), (0.3, 0, 0), (0, 1, 0), "prismatic", '"left" -1 0.1'),
    ("boom", "wheel", (-0.3, 0, 0.1), (0, 1, 0), (0, 1, 1), "revolute", '"arm" -1.5 0.3'),
)


def load_crane() -> RobotSpheres:
    """A column that slides, a boom, a trolley on it, an arm, and a hand.

    Prismatic joints between and behind joints that turn; two fingers that one value moves, in
    opposite directions, and a wheel that turns with the arm.
    """
    rng = np.random.default_rng(30)
    links = ("base", *(joint[1] for joint in _JOINTS))
    centers = rng.uniform(-0.12, 0.12, (len(_JOINTS), 4, 3))
    radii = rng.uniform(0.02, 0.06, (len(_JOINTS), 4, 1))
    spheres = dict(zip(links[1:], np.concatenate([centers, radii], axis=2), strict=True))
    lines = ['<robot name="crane">', *(f'<link name="{link}"/>' for link in links)]
    for parent, child, place, turned, axis, kind, mimic in _JOINTS:
        rpy = (0, 0, 0)
        if any(turned):
            rotation = turn(np.array(turned, dtype=float), float(np.linalg.norm(turned)))
            rpy = trimesh.transformations.euler_from_matrix(rotation)
        lines += [
            f'<joint name="{child}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>',
            f'<origin xyz="{_text(place)}" rpy="{_text(rpy)}"/><axis xyz="{_text(axis)}"/>',
            '<limit lower="-0.6" upper="0.6" effort="1" velocity="1"/>',
        ]
        if mimic:
            other, multiplier, offset = mimic.split()
            lines.append(f'<mimic joint={other} multiplier="{multiplier}" offset="{offset}"/>')
        lines.append("</joint>")
    with tempfile.TemporaryDirectory() as folder:
        urdf = Path(folder) / "crane.urdf"
        urdf.write_text("\n".join([*lines, "</robot>"]))
        return RobotSpheres(urdf, spheres=spheres)


def _text(numbers) -> str:
    return " ".join(repr(float(number)) for number in numbers)


class Boxes(NamedTuple):
    """Cuboids: half sides (n, 3) and poses (n, 4, 4) in the world, float64."""

    half: Tensor
    world_from_box: Tensor


def plates_and_posts(rng: np.random.Generator, count: int, around: Tensor) -> Boxes:
    """Plates of 0.5 mm and posts of 2 mm near some places (n, 3)."""
    half, poses = [], []
    for i in range(count):
        size = (0.15, 0.15, 0.00025) if i % 2 else (0.001, 0.001, 0.2)
        pose = turn(rng.normal(size=3), rng.uniform(0.5, 3.0))
        place = around[rng.integers(len(around))].numpy()
        pose[:3, 3] = place + rng.uniform(-0.25, 0.25, 3)
        half.append(size)
        poses.append(pose)
    return Boxes(torch.tensor(half), torch.tensor(np.array(poses)))


def obstacles(robot: RobotSpheres, rng: np.random.Generator, count: int) -> Boxes:
    """Some near a robot, but not in its foot, which would collide in every configuration."""
    reach = robot(random_paths(robot, rng, 20, 1, 1.0)[:, 0].double())
    places = reach[..., :3].reshape(-1, 3)
    return plates_and_posts(rng, count, places[places.norm(dim=-1) > 0.65])


def world_of(boxes: Boxes, device: torch.device) -> MeshWorld:
    """The same as meshes."""
    world = MeshWorld(max_obstacles=len(boxes.half), device=device)
    for i, (half, pose) in enumerate(zip(*boxes, strict=True)):
        quaternion = trimesh.transformations.quaternion_from_matrix(pose.numpy())
        mesh = trimesh.creation.box((2.0 * half).numpy())
        world.add(f"box {i}", mesh, [*pose[:3, 3].tolist(), *quaternion.tolist()])
    return world


def clearance(spheres: Tensor, boxes: Boxes) -> Tensor:
    """(n, n_spheres) float64 clearance of the nearest box, of spheres (n, n_spheres, 4)."""
    smallest = torch.full(spheres.shape[:-1], torch.inf, dtype=torch.float64)
    for half, pose in zip(*boxes, strict=True):
        local = ((spheres[..., :3] - pose[:3, 3]) @ pose[:3, :3]).abs() - half
        outside = local.clamp(min=0.0).norm(dim=-1)
        smallest = torch.minimum(smallest, outside + local.amax(-1).clamp(max=0.0))
    return smallest - spheres[..., 3]


def gaps(spheres: Tensor, pairs: SelfCollisionPairs) -> Tensor:
    """(n, n_pairs) float64 clearance of pairs of spheres."""
    every = sphere_pairs(pairs)
    a, b = (spheres[:, every[:, side]] for side in (0, 1))
    return (a[..., :3] - b[..., :3]).norm(dim=-1) - a[..., 3] - b[..., 3]


def sampled_minimum(
    robot: RobotSpheres, begin: Tensor, end: Tensor, value, *, speed: float = 1.0
) -> float:
    """Smallest value on a segment, at samples between which no sphere moves farther than SPACING.

    Args:
        robot: the robot.
        begin: (n_joints,) float64.
        end: (n_joints,) float64.
        value: of spheres (n, n_spheres, 4), something (n, m) that changes no faster than they move.
        speed: by which factor it may change faster.
    """
    return sampled_on(robot, lambda s: begin + s[:, None] * (end - begin), value, speed=speed)


def sampled_on(robot: RobotSpheres, at, value, *, speed: float = 1.0) -> float:
    """`sampled_minimum` of a motion whose joints (n, n_joints) `at` gives for (n,) in [0, 1]."""
    # Chords of 200 parts are within a few percent of the arcs, and samples a tenth closer.
    places = robot(at(torch.linspace(0, 1, 201, dtype=torch.float64)))
    longest = 220.0 * (places[1:, :, :3] - places[:-1, :, :3]).norm(dim=-1).max().item()
    parts = int(np.ceil(longest / (SPACING * _COARSE))) + 1
    s = torch.linspace(0, 1, parts + 1, dtype=torch.float64)
    coarse = torch.cat([value(robot(at(part))).amin(-1) for part in s.split(512)])
    reach = 2.0 * speed * SPACING * _COARSE
    low = torch.minimum(coarse[1:], coarse[:-1])
    chosen = torch.nonzero(low < coarse.min() + reach)[:, 0]
    inner = torch.linspace(0, 1, _COARSE + 1, dtype=torch.float64)[:-1]
    fine = (s[chosen][:, None] + inner / parts).reshape(-1)
    values = [value(robot(at(part))).min() for part in fine.split(512)]
    return min([coarse.min().item(), *(float(v) for v in values)])


def random_paths(
    robot: RobotSpheres, rng: np.random.Generator, batch: int, horizon: int, step: float
) -> Tensor:
    """Joint paths (batch, horizon, n_joints) float32 with steps up to `step`, ever other sizes."""
    low, high = robot.joint_limits.clamp(-2.0, 2.0).double().numpy().T
    begin = rng.uniform(low, high, (batch, 1, robot.n_joints))
    size = step * rng.uniform(0.05, 1.0, (batch, horizon - 1, 1))
    steps = size * rng.uniform(-1.0, 1.0, (batch, horizon - 1, robot.n_joints))
    paths = np.concatenate([begin, begin + steps.cumsum(axis=1)], axis=1)
    return torch.tensor(paths, dtype=torch.float32)
