"""What the drop-in Functions do otherwise than cuRobo's on purpose, one figure for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import trimesh

from benchmarks.shapes import random_poses, shape
from benchmarks.truth import reference
from benchmarks.workloads import ACTIVATION_DISTANCE, IDENTITY, Placed

# (cost, gradient) of theirs and of ours, for meshes, spheres (batch, horizon, n, 4), swept or not.
Results = list[tuple[np.ndarray, np.ndarray]]
Evaluate = Callable[[Sequence[Placed], np.ndarray, bool], Results]
COUNT = 400
RADIUS = 0.02  # [m]


class Case(NamedTuple):
    """What was asked, and the answers."""

    question: str
    theirs: str
    ours: str


def compare(evaluate: Evaluate) -> list[Case]:
    """All cases."""
    return [
        deep(evaluate),
        *signs(evaluate),
        on_faces(evaluate),
        through_plates(evaluate),
        by_radius(evaluate),
        reversed_paths(evaluate),
    ]


def deep(evaluate: Evaluate) -> Case:
    """The middle of a large block."""
    block = Placed(trimesh.creation.box((4.0, 4.0, 4.0)), IDENTITY)
    spheres = np.array([[[[0.0, 0.0, 0.0, 0.1]]]])
    theirs, ours = (f"{float(cost[0, 0, 0]):.2f}" for cost, _ in evaluate([block], spheres, False))
    return Case("cost in the middle of a block of 4 m, radius 0.1 m", theirs, ours)


def signs(evaluate: Evaluate) -> list[Case]:
    """Points in and around meshes, those of a grid in line with the edges of the mesh."""
    rng = np.random.default_rng(11)
    cylinder = trimesh.creation.cylinder(0.1, 0.3)
    steps = np.linspace(-1.0, 1.0, 21)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    boxes = [trimesh.creation.box((0.3, 0.2, 0.1)), trimesh.creation.box((0.1, 0.3, 0.2))]
    both = trimesh.util.concatenate(boxes)
    link = shape("link")
    found = []
    for name, mesh, points in (
        ("a grid in a cylinder", cylinder, grid * np.array([0.1, 0.1, 0.15])),
        ("in two boxes that overlap", both, rng.uniform(-0.15, 0.15, (4000, 3))),
        ("in the box of a robot link", link, rng.uniform(-0.5, 0.5, (4000, 3)) * link.extents),
    ):
        spheres = np.hstack([points, np.full((len(points), 1), RADIUS)])[None, None]
        obstacle = reference.Obstacle(
            mesh.vertices.astype(np.float32).astype(np.float64),
            np.asarray(mesh.faces),
            np.array(IDENTITY),
        )
        truth = reference.sphere_cost(
            spheres.astype(np.float32).astype(np.float64),
            [[obstacle]],
            activation_distance=ACTIVATION_DISTANCE,
        )
        wrong = (
            f"{int((np.abs(cost - truth) > 1e-4).sum())}"
            for cost, _ in evaluate([Placed(mesh, IDENTITY)], spheres, False)
        )
        found.append(Case(f"wrong costs of {len(points)}, {name}", *wrong))
    return found


def on_faces(evaluate: Evaluate) -> Case:
    """Centers on the faces of a turned ball of triangles, as float32 has them."""
    rng = np.random.default_rng(12)
    ball = trimesh.creation.icosphere(2, 0.2)
    pose = random_poses(rng, 1, 0.4)[0].astype(np.float64)
    points, faces = trimesh.sample.sample_surface(ball, COUNT, seed=1)
    turn = reference.rotation_matrix(pose[3:])
    centers = np.asarray(points) @ turn.T + pose[:3]
    spheres = np.hstack([centers, np.full((COUNT, 1), RADIUS)])[None, None]
    normals = ball.face_normals[faces] @ turn.T
    off = [
        # A NaN is wrong too.
        f"{int((~(np.linalg.norm(slope[0, 0, :, :3] + normals, axis=-1) < 0.05)).sum())}"
        for _, slope in evaluate([Placed(ball, pose)], spheres, False)
    ]
    return Case(f"gradients that are not the face's normal, of {COUNT} centers on faces", *off)


def through_plates(evaluate: Evaluate) -> Case:
    """Spheres that pass through a plate of 1 mm in one step of 0.2 to 1 m."""
    rng = np.random.default_rng(13)
    plate = Placed(trimesh.creation.box((2.0, 2.0, 1e-3)), IDENTITY)
    paths = np.full((COUNT, 2, 1, 4), RADIUS)
    direction = rng.normal(size=(COUNT, 3))
    direction[:, 2] = np.abs(direction[:, 2]) + 1.0
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    length = rng.uniform(0.2, 1.0, (COUNT, 1))
    crossing = rng.uniform(-0.3, 0.3, (COUNT, 3)) * np.array([1.0, 1.0, 0.0])
    before = rng.uniform(0.2, 0.8, (COUNT, 1))
    paths[:, 0, 0, :3] = crossing - before * length * direction
    paths[:, 1, 0, :3] = crossing + (1.0 - before) * length * direction
    missed = [
        f"{int((cost.sum(axis=(1, 2)) == 0.0).sum())}" for cost, _ in evaluate([plate], paths, True)
    ]
    return Case(f"motions through a plate of 1 mm that cost 0, of {COUNT}", *missed)


def by_radius(evaluate: Evaluate) -> Case:
    """The fourth column of the gradient."""
    box = Placed(trimesh.creation.box((0.2, 0.2, 0.2)), IDENTITY)
    spheres = np.array([[[[0.0, 0.02, 0.11, 0.05]]]])
    slopes = (f"{float(slope[0, 0, 0, 3]):.0f}" for _, slope in evaluate([box], spheres, False))
    return Case("d cost / d radius of a sphere in contact", *slopes)


def reversed_paths(evaluate: Evaluate) -> Case:
    """The cost of paths of three waypoints there and back."""
    rng = np.random.default_rng(14)
    ball = Placed(trimesh.creation.icosphere(3, 0.2), IDENTITY)
    middle = rng.uniform(-0.3, 0.3, (COUNT, 1, 1, 3))
    paths = np.full((COUNT, 3, 1, 4), RADIUS)
    paths[..., :3] = middle + rng.uniform(-0.1, 0.1, (COUNT, 3, 1, 3))
    forward = evaluate([ball], paths, True)
    backward = evaluate([ball], np.ascontiguousarray(paths[:, ::-1]), True)
    most = [
        f"{float(np.abs(there[0] - back[0][:, ::-1]).max()):.2g}"
        for there, back in zip(forward, backward, strict=True)
    ]
    return Case("largest difference of a cost from that of the path reversed [m]", *most)


def text(cases: Sequence[Case]) -> str:
    """The table, in Markdown."""
    lines = ["| | theirs | ours |", "|---|---:|---:|"]
    lines += [f"| {case.question} | {case.theirs} | {case.ours} |" for case in cases]
    return "\n".join(lines)
