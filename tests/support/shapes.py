"""Meshes, poses and spheres that the tests use, all with fixed seeds.

Vertices, poses and spheres are rounded to float32, which is what the library computes with, so
that the float64 reference sees the same numbers.
"""

from functools import cache
from pathlib import Path

import numpy as np
import trimesh

from reference import Array, Obstacle, mesh_signed_distance, rotation_matrix

ASSETS = Path(__file__).resolve().parents[2] / "assets"
CLOSED = ("box", "icosphere", "torus", "robot_link")
OPEN = ("countertop", "oven")


def rounded(values: Array) -> Array:
    """The float64 values of the nearest float32 numbers."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


@cache
def mesh(name: str) -> Obstacle:
    """A mesh by name, at the origin: one of ``CLOSED`` or ``OPEN``, or "plate"."""
    made = {
        "box": lambda: trimesh.creation.box(extents=(0.5, 0.3, 0.2)),
        "icosphere": lambda: trimesh.creation.icosphere(subdivisions=2, radius=0.25),
        "torus": lambda: trimesh.creation.torus(
            major_radius=0.25, minor_radius=0.08, major_sections=16, minor_sections=8
        ),
        "plate": lambda: trimesh.creation.box(extents=(1.0, 1.0, 0.0005)),
        "countertop": lambda: _centered(ASSETS / "kitchen" / "countertop.stl"),
        "oven": lambda: _centered(ASSETS / "kitchen" / "oven.stl"),
        "robot_link": lambda: trimesh.load_mesh(ASSETS / "panda" / "meshes" / "link5.stl"),
    }[name]()
    return Obstacle(rounded(made.vertices), np.asarray(made.faces))


def _centered(path: Path) -> trimesh.Trimesh:
    loaded = trimesh.load_mesh(path)
    return loaded.apply_translation(-loaded.bounds.mean(axis=0))


def box(extents: tuple[float, float, float]) -> Obstacle:
    """A closed box around the origin."""
    made = trimesh.creation.box(extents=extents)
    return Obstacle(rounded(made.vertices), np.asarray(made.faces))


def random_pose(rng: np.random.Generator, spread: float = 0.3) -> Array:
    """A pose (7,) with a uniform rotation, the position within ``spread`` [m] per axis."""
    quaternion = rng.normal(size=4)
    position = rng.uniform(-spread, spread, size=3)
    return rounded(np.concatenate([position, quaternion / np.linalg.norm(quaternion)]))


def placed(name: str, rng: np.random.Generator, **options: bool) -> Obstacle:
    """A mesh by name at a random pose."""
    return mesh(name)._replace(pose=random_pose(rng), **options)


def to_world(points: Array, obstacle: Obstacle) -> Array:
    """Points (n, 3) of the mesh frame in the world."""
    return points @ rotation_matrix(obstacle.pose[3:]).T + np.asarray(obstacle.pose[:3])


def surface_points(rng: np.random.Generator, obstacle: Obstacle, count: int) -> Array:
    """Points (count, 3) on the mesh, world frame: every face equally likely, small ones too."""
    corners = obstacle.vertices[obstacle.faces[rng.integers(len(obstacle.faces), size=count)]]
    weights = rng.dirichlet(np.ones(3), size=count)
    return to_world(np.einsum("nk,nkx->nx", weights, corners), obstacle)


def near_points(
    rng: np.random.Generator, obstacle: Obstacle, count: int, reach: float = 0.1
) -> Array:
    """Points (count, 3) within ``reach`` [m] of the surface on both sides, world frame."""
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    distance = rng.uniform(0.0, reach, size=(count, 1))
    return rounded(surface_points(rng, obstacle, count) + distance * direction)


def box_points(
    rng: np.random.Generator, obstacle: Obstacle, count: int, scale: float = 1.0
) -> Array:
    """Points (count, 3) in the mesh's bounding box scaled about its middle, world frame."""
    low, high = obstacle.vertices.min(axis=0), obstacle.vertices.max(axis=0)
    local = rng.uniform(-0.5, 0.5, size=(count, 3)) * scale * (high - low) + 0.5 * (low + high)
    return rounded(to_world(local, obstacle))


def mixed_points(rng: np.random.Generator, obstacle: Obstacle, count: int) -> Array:
    """Points (count, 3): half near the surface, the rest in the bounding box and around it."""
    quarter = count // 4
    points = [
        near_points(rng, obstacle, count - 2 * quarter),
        box_points(rng, obstacle, quarter),
        box_points(rng, obstacle, quarter, scale=5.0),
    ]
    return rng.permutation(np.concatenate(points))


def spheres_at(
    rng: np.random.Generator, centers: Array, shape: tuple[int, int, int], disabled: float = 0.0
) -> Array:
    """Spheres (*shape, 4) with radii of 0 to 0.1 m, a fraction of them disabled (radius -1)."""
    radii = rng.uniform(0.0, 0.1, size=shape)
    radii = np.where(rng.uniform(size=shape) < disabled, -1.0, radii)
    return rounded(np.concatenate([centers.reshape(*shape, 3), radii[..., None]], axis=-1))


def random_spheres(
    rng: np.random.Generator,
    obstacle: Obstacle,
    shape: tuple[int, int, int],
    disabled: float = 0.0,
) -> Array:
    """Spheres (batch, horizon, n_spheres, 4) near, inside and far from a mesh."""
    return spheres_at(rng, mixed_points(rng, obstacle, int(np.prod(shape))), shape, disabled)


def random_paths(
    rng: np.random.Generator,
    obstacle: Obstacle,
    shape: tuple[int, int, int],
    step: float = 0.2,
    disabled: float = 0.0,
) -> Array:
    """Spheres (batch, horizon, n_spheres, 4) that stay around a mesh and move up to ``step`` [m].

    A path that wanders off turns back to the bounding box.
    """
    batch, horizon, n_spheres = shape
    centers = np.empty((batch, horizon, n_spheres, 3))
    centers[:, 0] = mixed_points(rng, obstacle, batch * n_spheres).reshape(batch, n_spheres, 3)
    for t in range(1, horizon):
        goal = box_points(rng, obstacle, batch * n_spheres, 1.5).reshape(batch, n_spheres, 3)
        toward = goal - centers[:, t - 1]
        length = np.linalg.norm(toward, axis=-1, keepdims=True)
        stride = rng.uniform(0.0, step, size=length.shape)
        centers[:, t] = centers[:, t - 1] + toward * np.minimum(1.0, stride / length)
    return spheres_at(rng, centers, shape, disabled)


def paths_outside(
    rng: np.random.Generator,
    obstacle: Obstacle,
    shape: tuple[int, int, int],
    clearance: float = 0.02,
    step: float = 0.2,
) -> Array:
    """Like ``random_paths``, of points pushed out to ``clearance`` [m] from a closed mesh.

    Segments may still cut a corner of the mesh.
    """
    spheres = random_paths(rng, obstacle, shape, step)
    centers = spheres[..., :3].reshape(-1, 3)
    rotation = rotation_matrix(obstacle.pose[3:])
    local = (centers - np.asarray(obstacle.pose[:3])) @ rotation
    middle = obstacle.vertices.mean(axis=0)
    outward = local - middle
    reach = np.linalg.norm(obstacle.vertices - middle, axis=1).max() + clearance
    distance = np.linalg.norm(outward, axis=1, keepdims=True)
    near = mesh_signed_distance(local, obstacle.vertices, obstacle.faces).distance < clearance
    pushed = middle + outward * np.maximum(1.0, reach / distance)
    local = np.where(near[:, None], pushed, local)
    spheres[..., :3] = to_world(local, obstacle).reshape(*shape, 3)
    return rounded(spheres)
