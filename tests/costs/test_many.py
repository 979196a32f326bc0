"""The comparisons with the float64 reference again, on thousands of random points and paths."""

import numpy as np
import pytest
import torch
from test_swept_costs import assert_swept

import compare
import reference
import reference_sweep
import shapes
from reference import Obstacle
from warp_collision import signed_distance, swept_sphere_cost

pytestmark = pytest.mark.slow

ROD = (2.0, 0.002, 0.002)  # [m]


@pytest.mark.parametrize("name", [*shapes.CLOSED, *shapes.OPEN, "plate"])
def test_signed_distance_of_many_points(name: str, device: torch.device) -> None:
    for seed in range(4):
        rng = np.random.default_rng(100 + seed)
        obstacle = shapes.placed(name, rng)
        points = shapes.mixed_points(rng, obstacle, 20000)
        if name in shapes.OPEN:
            points = points[compare.clear_of_openings(points, obstacle)]
        result = signed_distance(
            compare.to_device(points[None], device), compare.build_world([[obstacle]], device)
        )
        expected = reference.obstacle_signed_distance(points, obstacle)
        compare.assert_costs(result.distance[0], expected.distance)
        distance = compare.to_array(result.distance)[0]
        clear = np.abs(expected.distance) > compare.ABSOLUTE
        np.testing.assert_array_equal(distance[clear] < 0.0, expected.distance[clear] < 0.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", shapes.CLOSED)
def test_gradients_of_many_paths(name: str, seed: int, device: torch.device) -> None:
    rng = np.random.default_rng(200 + seed)
    obstacle = shapes.placed(name, rng)
    inside = shapes.random_paths(rng, obstacle, (2, 3, 4), disabled=0.1)
    assert_swept(inside, [[obstacle]], device, weight=1.5, activation_distance=0.03)
    outside = shapes.paths_outside(rng, obstacle, (2, 3, 4), clearance=0.05, step=0.6)
    assert_swept(outside, [[obstacle]], device, activation_distance=0.1)
    assert_swept(shapes.random_paths(rng, obstacle, (2, 3, 4)), [[obstacle]], device, dt=0.1)


def scene(kind: str, rng: np.random.Generator) -> list[Obstacle]:
    rod = shapes.box(ROD)._replace(pose=shapes.random_pose(rng, 0.1))
    if kind == "rod":
        return [rod]
    if kind == "all":
        return [rod, *(shapes.placed(name, rng) for name in ("plate", "box"))]
    return [shapes.placed(kind, rng)]


@pytest.mark.parametrize("step", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("kind", ["plate", "rod", "torus", "robot_link", "all"])
def test_many_paths_miss_nothing(kind: str, step: float, device: torch.device) -> None:
    """Straight paths of one step through the middle of a scene."""
    rng = np.random.default_rng(300)
    meshes = scene(kind, rng)
    through = rng.uniform(-0.4, 0.4, size=(400, 3))
    if step < 0.5:  # short ones near the surface, where they have something to hit
        through = shapes.near_points(rng, meshes[0], 400, reach=step)
    direction = rng.normal(size=(400, 3))
    direction *= step / np.linalg.norm(direction, axis=1, keepdims=True)
    share = rng.uniform(size=(400, 1))
    ends = np.stack([through - share * direction, through + (1 - share) * direction], axis=1)
    spheres = shapes.spheres_at(rng, ends, (400, 2, 1))
    expected = reference_sweep.swept_sphere_cost(spheres, [meshes], samples=33 + 4 * int(32 * step))
    world = compare.build_world([meshes], device)
    rounding = compare.ABSOLUTE + compare.RELATIVE * expected
    assert (expected > 0.02).sum() > 20
    for tolerance in (1e-3, 1e-6):
        cost = compare.to_array(
            swept_sphere_cost(compare.to_device(spheres, device), world, tolerance=tolerance)
        )
        assert (cost <= expected + rounding).all()
        assert (cost >= expected - rounding - len(meshes) * tolerance).all()
