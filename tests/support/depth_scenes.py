"""Depth images of boxes in float64, ray by ray, and exactly where the boxes are."""

from typing import NamedTuple

import numpy as np

from reference import Array
from warp_collision import Cuboid, MeshWorld

LENS = (130.0, 130.0, 79.5, 59.5)
SIZE = (120, 160)


class Box(NamedTuple):
    """A box by its corners."""

    lower: Array
    upper: Array


def scene() -> list[Box]:
    """A table, a post, a plate on edge and a block behind it."""
    corners = (
        ((0.3, -0.6, -0.05), (1.5, 0.6, 0.0)),
        ((0.6, -0.3, 0.0), (0.63, -0.27, 0.5)),
        ((0.8, -0.1, 0.0), (0.81, 0.4, 0.3)),
        ((1.1, -0.2, 0.0), (1.3, 0.1, 0.25)),
    )
    return [Box(np.array(lower), np.array(upper)) for lower, upper in corners]


def world_of(boxes: list[Box]) -> MeshWorld:
    """The same as the library has it, exactly."""
    world = MeshWorld(device="cpu")
    for index, (lower, upper) in enumerate(boxes):
        middle = 0.5 * (lower + upper)
        world.add(f"box {index}", Cuboid(tuple(upper - lower)), (*middle, 1, 0, 0, 0))
    return world


def look(eye: Array, at: Array) -> Array:
    """The pose (4, 4) of a camera that looks from one point at another, z forward."""
    pose = np.eye(4)
    z = (at - eye) / np.linalg.norm(at - eye)
    x = np.cross(z, (0.0, 0.0, 1.0))
    x /= np.linalg.norm(x)
    pose[:3, :3] = np.stack((x, np.cross(z, x), z), axis=1)
    pose[:3, 3] = eye
    return pose


def cameras(count: int) -> list[Array]:
    """Poses around the scene, above the table."""
    angles = np.linspace(0.0, 2.0 * np.pi, count, endpoint=False) + 2.8
    middle = np.array([0.9, 0.0, 0.1])
    heights = 0.6 + 0.2 * np.sin(3 * angles)
    offsets = np.stack((1.1 * np.cos(angles), 1.1 * np.sin(angles), heights), axis=1)
    return [look(middle + offset, middle) for offset in offsets]


def rays(
    pose: Array,
    finer: int = 1,
    lens: tuple[float, float, float, float] = LENS,
    size: tuple[int, int] = SIZE,
) -> Array:
    """Directions (height, width, 3) in the world, of depth 1; finer ones on a denser grid."""
    fx, fy, cx, cy = lens
    height, width = size
    rows = (np.arange(height * finer) - 0.5 * (finer - 1)) / finer
    columns = (np.arange(width * finer) - 0.5 * (finer - 1)) / finer
    x, y = np.meshgrid((columns - cx) / fx, (rows - cy) / fy)
    return np.stack((x, y, np.ones_like(x)), axis=-1) @ pose[:3, :3].T


def render(
    boxes: list[Box], pose: Array, finer: int = 1, way: Array | None = None
) -> tuple[Array, Array]:
    """Depths (height, width), 0 without a return, and the cosine of the angle at the surface.

    Rays are those of `LENS`, finer ones on a denser grid, or are given with a depth of 1.
    """
    way, eye = rays(pose, finer) if way is None else way, pose[:3, 3]
    best, cosine = np.full(way.shape[:2], np.inf), np.zeros(way.shape[:2])
    length = np.linalg.norm(way, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        for lower, upper in boxes:
            first, second = (lower - eye) / way, (upper - eye) / way
            enter = np.minimum(first, second)
            axis = enter.argmax(axis=-1)
            near, far = enter.max(axis=-1), np.maximum(first, second).min(axis=-1)
            hit = (near < far) & (near > 0.0) & (near < best)
            best[hit] = near[hit]
            along = np.take_along_axis(np.abs(way), axis[..., None], axis=-1)[..., 0]
            cosine[hit] = (along / length)[hit]
    return np.where(np.isfinite(best), best, 0.0), cosine


def damaged(depth: Array, rng: np.random.Generator) -> Array:
    """With noise of up to 2 mm and 2 mm a metre, dropouts, a missing strip, and flying pixels."""
    bound = 0.002 + 0.002 * depth
    seen = depth + rng.uniform(-0.99, 0.99, depth.shape) * bound
    edge = np.abs(np.diff(depth, axis=1, prepend=depth[:, :1])) > 0.1
    edge &= rng.random(depth.shape) < 0.3
    seen[edge] = (0.5 * (depth + np.roll(depth, 1, axis=1)))[edge]
    seen[rng.random(depth.shape) < 0.02] = np.nan
    seen[50:54, 20:90] = 0.0
    return np.where(depth > 0.0, seen, 0.0)
