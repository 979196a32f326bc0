"""What scans of LiDARs say of a known scene, ray by ray: nothing in a solid is free."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from camera_images import depth_in_solids, random_boxes
from cases import mostly_slow
from depth_scenes import Box, render
from reference import Array
from warp_collision import OccupancyMap
from warp_collision.examples import load_panda

EDGE = 0.03
FLOOR = Box(np.array([-3.0, -3.0, -0.6]), np.array([3.0, 3.0, -0.5]))
ROOM = [FLOOR] + [
    Box(*np.sort([np.array(corner), np.array(corner) + size], axis=0))
    for corner, size in (
        ((2.5, -3.0, -0.5), (0.5, 6.0, 2.0)),
        ((-3.0, -3.0, -0.5), (0.5, 6.0, 2.0)),
        ((-2.5, 2.5, -0.5), (5.0, 0.5, 2.0)),
        ((-2.5, -3.0, -0.5), (5.0, 0.5, 2.0)),
    )
]


def directions(
    step: tuple[float, float], low: float, high: float, rng: Any, jitter: float = 0.0
) -> Array:
    """(rings, steps, 3) of a scanner whose rings are turned against each other [rad]."""
    rings = np.arange(high, low, -step[1])
    steps = np.arange(-np.pi, np.pi - 0.5 * step[0], step[0])
    azimuth = steps + rng.uniform(0.0, step[0], (len(rings), 1)) * (jitter == 0.0)
    elevation = np.broadcast_to(rings[:, None], azimuth.shape)
    azimuth = azimuth + jitter * rng.uniform(-0.5, 0.5, azimuth.shape) * step[0]
    elevation = elevation + jitter * rng.uniform(-0.5, 0.5, azimuth.shape) * step[1]
    flat = np.cos(elevation)
    way = (flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation))
    return np.stack(way, axis=-1)


def scan(boxes: list[Box], pose: Array, ways: Array, noise: Any = None) -> Array:
    """Points (rings, steps, 3) in the world, NaN without a return."""
    world = ways @ pose[:3, :3].T
    depth = render(boxes, pose, way=world)[0]
    depth = np.where(depth > 0.0, depth, np.nan)
    if noise is not None:
        depth = depth + noise.uniform(-0.99, 0.99, depth.shape) * (0.002 + 0.002 * depth)
    return pose[:3, 3] + depth[..., None] * world


def random_pose(rng: np.random.Generator, tilt: float) -> Array:
    """(4, 4) of a scanner beside the origin, tilted by any angle up to one [rad]."""
    pose = np.eye(4)
    around = rng.uniform(0.0, 2.0 * np.pi)
    pose[:3, 3] = 1.6 * np.cos(around), 1.6 * np.sin(around), rng.uniform(0.0, 0.5)
    lean = Rotation.from_rotvec(rng.uniform(-tilt, tilt, 3)).as_matrix()
    pose[:3, :3] = lean @ Rotation.from_euler("z", rng.uniform(0.0, 2.0 * np.pi)).as_matrix()
    return pose


KINDS = {  # angles between rays, how much they are off, and whether depths are
    "rings": (np.radians([0.4, 1.4]), 0.0, False),
    "irregular": (np.radians([0.6, 0.6]), 1.0, False),
    "noise": (np.radians([0.6, 0.8]), 0.5, True),
}


@pytest.mark.parametrize("kind", mostly_slow(KINDS, ["noise"]))
@pytest.mark.parametrize("seed", mostly_slow(range(2), [0]))
def test_nothing_in_a_solid_is_free(kind: str, seed: int) -> None:
    """Boxes and a floor, from scanners at any pose, whose rays are anywhere in their pixels."""
    step, jitter, is_noisy = KINDS[kind]
    rng = np.random.default_rng([seed, len(kind)])
    boxes = [*random_boxes(rng, 4, 0.25), *ROOM]
    seen = OccupancyMap((np.full(3, -0.7), np.full(3, 0.6)), EDGE)
    options = {} if is_noisy else {"noise": 0.0, "noise_per_metre": 0.0}
    for _ in range(4):
        pose = random_pose(rng, 0.3)
        ways = directions(step, np.radians(-50.0), np.radians(30.0), rng, jitter)
        points = scan(boxes, pose, ways, rng if is_noisy else None)
        counts = seen.integrate_points(
            points.reshape(-1, 3), pose, spacing=tuple((1.0 + jitter) * step), **options
        )
        assert counts.points > 0.8 * np.isfinite(points[..., 0]).sum()
        assert counts.no_return == np.isnan(points[..., 0]).sum()
    states = seen.states
    free = np.argwhere(states == 1)
    assert depth_in_solids(free, seen.lower, EDGE, boxes).max(initial=0.0) == 0.0
    centers = seen.lower + EDGE * (np.moveaxis(np.indices(states.shape), 0, -1) + 0.5)
    solid = np.zeros(states.shape, bool)
    for box in boxes:
        solid |= ((centers >= box.lower) & (centers <= box.upper)).all(axis=-1)
    assert len(free) > 0.3 * (~solid).sum(), len(free) / (~solid).sum()
    assert (states == 2).sum() > 300


def test_rings_and_steps_have_their_spacing() -> None:
    """That is found of organized points, NaN among them; a map of it is that of given ones."""
    rng = np.random.default_rng(4)
    step = np.radians([0.9, 2.0])
    ways = directions((step[0], step[1]), np.radians(-31.0), np.radians(15.0), rng)
    pose = random_pose(rng, 0.2)
    boxes = [*random_boxes(rng, 3, 0.25), *ROOM]
    points = scan(boxes, pose, ways)
    maps = []
    for given, options in ((points, {}), (points.reshape(-1, 3), {"spacing": tuple(step)})):
        seen = OccupancyMap((np.full(3, -0.7), np.full(3, 0.6)), EDGE)
        seen.integrate_points(torch.tensor(given), pose, **options)
        maps.append(seen.states)
    assert (maps[0] == 1).mean() > 0.03
    assert (maps[0] != maps[1]).mean() < 0.02
    with pytest.raises(ValueError, match=r"spacing must be given for points \(n, 3\)"):
        seen.integrate_points(points.reshape(-1, 3), pose)


def test_where_rays_are_missing_nothing_is_free() -> None:
    """A sector without points; a spacing of half of theirs shows nothing."""
    rng = np.random.default_rng(5)
    step = np.radians([1.0, 1.0])
    ways = directions((step[0], step[1]), np.radians(-30.0), np.radians(30.0), rng)
    points = 2.0 * ways
    azimuth = np.arctan2(ways[..., 1], ways[..., 0])
    bounds = ((-1.2, -1.2, -0.3), (1.2, 1.2, 0.3))
    whole, part = OccupancyMap(bounds, 0.04), OccupancyMap(bounds, 0.04)
    whole.integrate_points(points, (0, 0, 0), spacing=tuple(step))
    points[np.abs(azimuth) < 0.3] = np.nan
    part.integrate_points(points, (0, 0, 0), spacing=tuple(step))
    centers = 0.04 * (np.moveaxis(np.indices(part.shape), 0, -1) + 0.5) + part.lower
    inside = np.abs(np.arctan2(centers[..., 1], centers[..., 0])) < 0.3
    assert (whole.states[inside] == 1).mean() > 0.8
    assert (part.states[inside] == 0).all()
    beside = np.abs(np.arctan2(centers[..., 1], centers[..., 0])) > 0.6
    np.testing.assert_array_equal(part.states[beside], whole.states[beside])
    # Both sides of the seam at the back are as all others.
    back = np.abs(np.arctan2(centers[..., 1], centers[..., 0])) > 3.0
    assert (whole.states[back] == 1).mean() > 0.8
    fine = OccupancyMap(bounds, 0.04)
    fine.integrate_points(2.0 * ways, (0, 0, 0), spacing=tuple(0.5 * step))
    assert not (fine.states == 1).any()


def test_the_robot_is_no_hit_and_far_points_are_none() -> None:
    robot, joints = load_panda(), torch.zeros(7)
    spheres = robot.spheres(joints).numpy()
    rng = np.random.default_rng(6)
    ways = directions((0.02, 0.02), -0.5, 0.5, rng)
    eye, depth = np.array([-1.0, 0.0, 0.5]), np.full(ways.shape[:2], 3.0)
    for *center, radius in spheres:
        to = np.array(center) - eye
        middle = ways @ to
        room = radius**2 - ((to**2).sum() - middle**2)
        hit = (room > 0.0) & (middle > 0.0)
        depth[hit] = np.minimum(depth, middle - np.sqrt(np.maximum(room, 0.0)))[hit]
    seen = OccupancyMap(((-0.9, -0.6, 0.0), (0.5, 0.6, 1.2)), 0.05)
    points = eye + depth[..., None] * ways
    counts = seen.integrate_points(points, eye, robot=robot, joints=joints, max_depth=2.0)
    assert counts.too_far == (depth > 2.0).sum()
    assert sum(counts.robot.values()) > 0.9 * (depth < 2.0).sum() - counts.flying
    assert counts.points == 0
    assert not (seen.states == 2).any()
    assert (seen.states == 1).mean() > 0.2


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"points": np.zeros((5, 2))}, ValueError, r"points must have shape \(n, 3\) or \(rings"),
        ({"points": ["a"]}, TypeError, "points must be real numbers"),
        ({"origin": (0, 0)}, ValueError, "origin must have shape"),
        ({"spacing": (0.1,)}, ValueError, "spacing must be two angles"),
        ({"spacing": (0.1, 0.0)}, ValueError, "spacing must be positive"),
        ({"spacing": (0.1, 0.3)}, ValueError, "spacing must be at most 0.2 rad, got 0.3"),
        ({"spacing": (1e-6, 1e-6)}, ValueError, "an image of at most 5e"),
        ({"noise": -1.0}, ValueError, "noise must not be negative"),
    ],
)
def test_wrong_input(given: dict[str, Any], error: Any, message: str) -> None:
    seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.1)
    points = np.random.default_rng(7).uniform(0.1, 1.0, (50, 3))
    call = {"points": points, "origin": (0.0, 0.0, 0.0), "spacing": (0.1, 0.1), **given}
    with pytest.raises(error, match=message):
        seen.integrate_points(call.pop("points"), call.pop("origin"), **call)
