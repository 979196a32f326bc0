"""Gradients by the poses of meshes against finite differences of float64 models.

``pytest -s -m slow tests/world/test_truth_poses.py`` prints the errors of thousands of
configurations.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

import compare
import reference
import reference_sweep
import shapes
from cases import mostly_slow
from reference import Array, Obstacle
from truth_boxes import Box, spheres_around
from truth_gradients import ABSOLUTE, FINE, KINK, RELATIVE, assert_relative
from warp_collision import clearance, signed_distance, sphere_cost, swept_sphere_cost

Values = Callable[[Array], Array]  # poses (n_meshes, 7) -> values of spheres


def pose_gradient(
    library: Callable[[torch.Tensor], torch.Tensor],
    model: Values,
    poses: Array,
    incoming: Array,
    device: torch.device,
) -> tuple[Array, Array, float]:
    """Pulled back gradients (n_meshes, 7) of the library and the model, and the smooth share.

    Spheres at which a difference of the model has a kink take no part.
    """
    step = 2e-6
    slopes = np.zeros((*poses.shape, *incoming.shape))
    smooth = np.ones(incoming.shape, dtype=bool)
    middle = model(poses)
    for index in np.ndindex(poses.shape):
        ahead, behind = poses.copy(), poses.copy()
        ahead[index] += step
        behind[index] -= step
        high, low = model(ahead), model(behind)
        slopes[index] = (high - low) / (2.0 * step)
        smooth &= np.abs(high - 2.0 * middle + low) / step < KINK
    weights = np.where(smooth, incoming, 0.0)
    leaf = compare.to_device(poses, device).requires_grad_(True)
    values = library(leaf)
    np.testing.assert_allclose(compare.to_array(values), middle, rtol=1e-5, atol=1e-5)
    values.backward(compare.to_device(weights, device))
    assert leaf.grad is not None
    return compare.to_array(leaf.grad), (slopes * weights).sum(axis=(2, 3, 4)), smooth.mean()


def minimum_over(boxes: list[Box], points: Array) -> Array:
    return np.min([one.distance(points.reshape(-1, 3)) for one in boxes], axis=0).reshape(
        points.shape[:-1]
    )


POSE_MODELS: dict[str, Callable[[list[Box], Array], Array]] = {
    "sphere_cost": lambda boxes, s: reference.sphere_cost(s, [boxes]),
    "swept_sphere_cost": lambda boxes, s: reference_sweep.swept_sphere_cost(s, [boxes]),
    "with the speed metric": lambda boxes, s: reference_sweep.swept_sphere_cost(s, [boxes], dt=0.1),
    "signed_distance": lambda boxes, s: minimum_over(boxes, s[..., :3]),
    "clearance": lambda boxes, s: minimum_over(boxes, s[..., :3]) - s[..., 3],
}
POSE_CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "sphere_cost": sphere_cost,
    "swept_sphere_cost": partial(swept_sphere_cost, tolerance=FINE),
    "with the speed metric": partial(swept_sphere_cost, tolerance=FINE, dt=0.1, speed_metric=True),
    "signed_distance": lambda s, **to: signed_distance(s[..., :3], **to).distance,
    "clearance": lambda s, **to: clearance(s, **to).clearance,
}


@pytest.mark.parametrize("name", mostly_slow(POSE_MODELS, ("sphere_cost", "clearance")))
@pytest.mark.parametrize("length", mostly_slow((1.0, 1.7), (1.7,)))
def test_gradient_by_poses(name: str, length: float, device: torch.device) -> None:
    """Translation and quaternion of three boxes, one of which nothing touches or all do.

    Quaternions of another length than 1 mean the same turn, and so does their gradient.
    """
    rng = np.random.default_rng(135)
    boxes = [
        Box(shapes.rounded(rng.uniform(0.2, 0.5, 3)), shapes.random_pose(rng, 0.2))
        for _ in range(3)
    ]
    poses = np.stack([one.pose for one in boxes])
    poses[:, 3:] *= length
    poses = shapes.rounded(poses)
    spheres = spheres_around(rng, boxes, (20, 3, 10), 0.1)
    spheres[..., 3] = np.abs(spheres[..., 3])
    world = compare.build_world([[one.obstacle for one in boxes]], device, max_obstacles=3)
    on_device = compare.to_device(spheres, device)

    def model(moved: Array) -> Array:
        return POSE_MODELS[name](
            [Box(one.extents, pose) for one, pose in zip(boxes, moved, strict=True)], spheres
        )

    actual, expected, share = pose_gradient(
        lambda p: POSE_CALLS[name](on_device, world=world, poses=p),
        model,
        poses,
        rng.normal(size=spheres.shape[:3]),
        device,
    )
    assert share > 0.7
    assert (np.abs(expected) > 0.1).mean() > 0.7
    error = np.linalg.norm(actual - expected, axis=1) / np.linalg.norm(expected, axis=1)
    print(f"gradient: {name} by poses, relative error {error.max():.1e}")
    np.testing.assert_array_less(error, RELATIVE)


def test_gradient_by_the_poses_of_each_env(device: torch.device) -> None:
    """(n_envs, max_obstacles, 7): poses take what their env's rows cost, empty slots nothing."""
    rng = np.random.default_rng(136)
    boxes = [Box(shapes.rounded(rng.uniform(0.2, 0.5, 3)), shapes.random_pose(rng)) for _ in "abc"]
    scenes: list[list[Obstacle]] = [[boxes[0].obstacle, boxes[1].obstacle], [boxes[2].obstacle], []]
    world = compare.build_world(scenes, device, max_obstacles=3)
    poses = np.tile([0.0, 0, 0, 1, 0, 0, 0], (3, 3, 1))
    poses[0, 0], poses[0, 1], poses[1, 0] = (one.pose for one in boxes)
    spheres = compare.to_device(spheres_around(rng, boxes, (6, 2, 20), 0.1), device)
    envs = torch.tensor([0, 1, 2, 0, 1, 0], dtype=torch.int32, device=device)
    leaf = compare.to_device(poses, device).requires_grad_(True)
    sphere_cost(spheres, world, env_index=envs, poses=leaf).sum().backward()
    assert leaf.grad is not None
    touched = (leaf.grad != 0.0).any(dim=-1).tolist()
    assert touched == [[True, True, False], [True, False, False], [False] * 3]
    for env, count in ((0, 2), (1, 1)):
        alone = compare.build_world([scenes[env]], device, max_obstacles=count)
        part = compare.to_device(poses[env, :count], device).requires_grad_(True)
        sphere_cost(spheres[envs == env].contiguous(), alone, poses=part).sum().backward()
        torch.testing.assert_close(leaf.grad[env, :count], part.grad, rtol=1e-4, atol=1e-4)


# -- one configuration in each env ----------------------------------------------------------------

EXTENTS = shapes.rounded([[0.4, 0.3, 0.2], [0.6, 0.5, 0.001], [0.05, 0.05, 0.8]])
STEP = 2e-6
SWEPT = ("swept_sphere_cost", "with the speed metric")


def to_local(points: Array, poses: Array) -> Array:
    """Points (n, ..., 3) in the frames of poses (n, 7), whose quaternions may have any length."""
    shape = (len(poses), *(1,) * (points.ndim - 2))
    unit = poses[:, 3:] / np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    w, u = unit[:, 0].reshape(*shape, 1), -unit[:, 1:].reshape(*shape, 3)
    moved = points - poses[:, :3].reshape(*shape, 3)
    across = np.cross(u, moved)
    return moved + 2.0 * (w * across + np.cross(u, across))


class Configurations:
    """In each env a plate, a post and a block at random poses, and one path among them."""

    def __init__(self, count: int, seed: int):
        rng = np.random.default_rng(seed)
        poses = np.stack(
            [[shapes.random_pose(rng, 0.3) for _ in EXTENTS] for _ in range(count)], axis=0
        )
        poses[..., 3:] *= rng.uniform(0.5, 2.0, (count, len(EXTENTS), 1))
        self.poses = shapes.rounded(poses)
        # The path begins near a surface of one of them.
        chosen = rng.integers(len(EXTENTS), size=count)
        near = rng.uniform(-0.5, 0.5, (count, 3)) * EXTENTS[chosen]
        near += rng.normal(size=(count, 3)) * 0.03
        at = self.poses[np.arange(count), chosen]
        back = np.concatenate([np.zeros((count, 3)), at[:, 3:] * [1, -1, -1, -1]], axis=1)
        begin = to_local(near, back) + at[:, :3]
        moves = rng.normal(size=(count, 3, 3)) * 0.05
        moves[:, 0] = 0.0
        centers = (begin[:, None] + np.cumsum(moves, axis=1))[:, :, None]
        radii = rng.uniform(0.0, 0.08, (count, 3, 1, 1))
        self.spheres = shapes.rounded(np.concatenate([centers, radii], axis=-1))
        self.incoming = rng.uniform(0.5, 1.5, (count, 3)) * rng.choice([-1, 1], (count, 3))

    def value(self, name: str, slot: int, poses: Array) -> Array:
        """What one mesh at poses (count, 7) adds to the values, (count, 3)."""
        local = self.spheres.copy()
        local[..., :3] = to_local(self.spheres[..., :3], poses)
        alone = Box(EXTENTS[slot], np.array([0.0, 0, 0, 1, 0, 0, 0]))
        return POSE_MODELS[name]([alone], local)[..., 0]

    def slopes(self, name: str) -> tuple[Array, Array, Array]:
        """Values (count, 3), their slopes (count, 3, slots, 7), and kinks (count, 3, slots)."""
        combine = np.min if name in ("signed_distance", "clearance") else np.sum
        each = np.stack([self.value(name, k, self.poses[:, k]) for k in range(len(EXTENTS))])
        middle = combine(each, axis=0)
        slopes = np.zeros((*middle.shape, *self.poses.shape[1:]))
        kinks = np.zeros(slopes.shape[:-1])
        for slot, component in np.ndindex(self.poses.shape[1:]):
            ends = []
            for side in (-STEP, STEP):
                moved = self.poses[:, slot].copy()
                moved[:, component] += side
                parts = each.copy()
                parts[slot] = self.value(name, slot, moved)
                ends.append(combine(parts, axis=0))
            low, high = ends
            slopes[..., slot, component] = (high - low) / (2.0 * STEP)
            kink = np.abs(high - 2.0 * middle + low) / STEP
            kinks[..., slot] = np.maximum(kinks[..., slot], kink)
        return middle, slopes, kinks


def assert_poses_of_all(name: str, count: int, device: torch.device) -> None:
    made = Configurations(count, 137)
    scenes = [
        [Box(size, pose).obstacle for size, pose in zip(EXTENTS, poses, strict=True)]
        for poses in made.poses
    ]
    world = compare.build_world(scenes, device, max_obstacles=len(EXTENTS))
    envs = torch.arange(count, dtype=torch.int32, device=device)
    leaf = compare.to_device(made.poses, device).requires_grad_(True)
    spheres = compare.to_device(made.spheres, device)
    values = POSE_CALLS[name](spheres, world=world, poses=leaf, env_index=envs)[..., 0]
    expected, slopes, kinks = made.slopes(name)
    np.testing.assert_allclose(compare.to_array(values), expected, rtol=1e-5, atol=2e-5)
    actual = np.zeros(slopes.shape)
    # One waypoint after the other: in their sum slopes may cancel that are wrong by as much.
    for t in range(3):
        incoming = torch.zeros_like(values)
        incoming[:, t] = compare.to_device(made.incoming[:, t], device)
        (gradient,) = torch.autograd.grad(values, leaf, incoming, retain_graph=True)
        actual[:, t] = compare.to_array(gradient) / made.incoming[:, t, None, None]
    speed = np.ones((count, 3, 1))
    if name == "with the speed metric":
        speed = np.maximum(reference_sweep.speeds(made.spheres, 0.1), 1.0)
    assert_relative(
        actual / speed[..., None],
        slopes / speed[..., None],
        kinks / speed,
        0.6,
        f"{name} by the pose of each mesh",
        # The smallest distance of a path is higher than it is by the tolerance at most.
        ABSOLUTE + (FINE / 0.02 if name in SWEPT else 0.0),
    )


@pytest.mark.parametrize("name", mostly_slow(POSE_MODELS, [*POSE_MODELS][::2]))
def test_each_pose(name: str, device: torch.device) -> None:
    """Every mesh of 100 configurations by itself: sums hide what single gradients have wrong."""
    assert_poses_of_all(name, 100, device)


@pytest.mark.slow
@pytest.mark.parametrize("name", POSE_MODELS)
def test_each_pose_of_many(name: str, device: torch.device) -> None:
    assert_poses_of_all(name, 3000, device)
