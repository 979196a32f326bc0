"""Gradients against finite differences of float64 models, on thousands of configurations.

Kinks, where the one-sided differences of the model disagree, are left out; the share that is left
in is asserted. ``pytest -s tests/test_truth_gradient.py`` prints the errors.
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
import truth_boxes
from reference import Array, Obstacle
from truth_boxes import Box, random_boxes, spheres_around
from warp_collision import MeshWorld, clearance, signed_distance, sphere_cost, swept_sphere_cost

RELATIVE = 1e-3
# Slopes of the quadratic part are overlaps over eta: 0.3 um of rounding over 2 cm.
ABSOLUTE = 3e-5
FINE = 1e-6  # [m] tolerance of the sweep
KINK = 1e-3


def assert_relative(actual: Array, expected: Array, kink: Array, share: float, what: str) -> None:
    """Rows (..., k) equal to 1e-3 of their length where the model is smooth.

    Args:
        actual: (..., k).
        expected: (..., k).
        kink: (...), by how much one-sided differences disagree, relative to the weight.
        share: of the rows that must be smooth.
        what: for the print.
    """
    assert np.isfinite(actual).all()
    smooth = kink < KINK
    assert smooth.mean() > share
    error = np.linalg.norm(actual - expected, axis=-1)[smooth]
    size = np.linalg.norm(expected, axis=-1)[smooth]
    assert (size > 0.1).mean() > 0.2
    steep = size > 0.1
    print(
        f"gradient: {what}, {smooth.sum()} configurations, {steep.sum()} with a slope, largest "
        f"relative error {(error[steep] / size[steep]).max():.1e}"
    )
    assert (error <= RELATIVE * size + ABSOLUTE).all()


# -- spheres --------------------------------------------------------------------------------------


def boxes_and_world(
    seed: int, device: torch.device
) -> tuple[np.random.Generator, list[Box], MeshWorld]:
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, 6)
    world = compare.build_world([[one.obstacle for one in boxes]], device, max_meshes=6)
    return rng, boxes, world


@pytest.mark.parametrize("eta", [0.0, 0.02, 0.2])
def test_sphere_cost_among_boxes(eta: float, device: torch.device) -> None:
    """6,000 spheres, any incoming gradient."""
    rng, boxes, world = boxes_and_world(131, device)
    spheres = spheres_around(rng, boxes, (20, 15, 20), 0.1)
    incoming = rng.normal(size=spheres.shape[:3])
    model = partial(truth_boxes.sphere_cost, boxes=boxes, weight=1.0, eta=eta)
    cost, gradient = compare.cost_and_gradient(
        partial(sphere_cost, world=world, activation_distance=eta), spheres, incoming, device
    )
    compare.assert_costs(cost, model(spheres))
    expected = reference.row_gradient(model, spheres, step=1e-6)
    enabled = spheres[..., 3] >= 0.0
    assert (gradient[~enabled] == 0.0).all()
    assert_relative(
        gradient[enabled] / incoming[enabled][:, None],
        expected.gradient[enabled],
        expected.kink[enabled],
        0.8,
        f"sphere_cost, eta {eta:g}",
    )


@pytest.mark.parametrize("name", ["icosphere", "torus", "robot_link"])
def test_sphere_cost_around_curved_meshes(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(132)
    mesh = shapes.placed(name, rng)
    spheres = shapes.random_spheres(rng, mesh, (1, 1, 600))
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world([[mesh]], device)
    _, gradient = compare.cost_and_gradient(
        partial(sphere_cost, world=world), spheres, incoming, device
    )
    expected = reference.row_gradient(
        lambda s: reference.sphere_cost(s, [[mesh]]), spheres, step=1e-6
    )
    scaled = gradient / incoming[..., None]
    assert_relative(scaled, expected.gradient, expected.kink, 0.8, f"sphere_cost, {name}")


def path_jacobian(cost: compare.Cost, spheres: Array, device: torch.device) -> Array:
    """The library's d cost[t] / d sphere[t - 1, t, t + 1], (batch, horizon, n_spheres, 3, 4)."""
    horizon = spheres.shape[1]
    jacobian = np.zeros((*spheres.shape[:3], 3, 4))
    for t in range(horizon):
        incoming = np.zeros(spheres.shape[:3])
        incoming[:, t] = 1.0
        _, gradient = compare.cost_and_gradient(cost, spheres, incoming, device)
        for neighbour in range(max(t - 1, 0), min(t + 2, horizon)):
            jacobian[:, t, :, neighbour - t + 1] = gradient[:, neighbour]
        others = [n for n in range(horizon) if abs(n - t) > 1]
        assert (gradient[:, others] == 0.0).all()
    return jacobian


@pytest.mark.parametrize("dt", [None, 0.1])
def test_swept_cost_among_boxes(dt: float | None, device: torch.device) -> None:
    """3,000 waypoints with their neighbours' parts, at rest and with the speed metric."""
    rng, boxes, world = boxes_and_world(133, device)
    spheres = spheres_around(rng, boxes, (50, 5, 12), 0.15)
    options = {} if dt is None else {"dt": dt, "speed_metric": True}
    cost = partial(swept_sphere_cost, world=world, tolerance=FINE, **options)
    model = partial(truth_boxes.swept_cost, boxes=boxes, weight=1.0, eta=0.02, dt=dt)
    speed = np.ones(spheres.shape[:3])
    if dt is not None:
        speed = np.maximum(reference_sweep.speeds(spheres, dt), 1.0)
    jacobian = path_jacobian(cost, spheres, device)
    expected = reference_sweep.path_gradient(model, spheres, step=5e-6)
    neighbours = np.abs(expected.jacobian[..., [0, 2], :3]).max(axis=(-1, -2))
    assert (neighbours > 0.1).mean() > 0.1
    what = "swept_sphere_cost" + ("" if dt is None else " with the speed metric")
    rows = (*spheres.shape[:3], 12)
    assert_relative(
        jacobian.reshape(rows) / speed[..., None],
        expected.jacobian.reshape(rows) / speed[..., None],
        expected.kink / speed,
        0.8,
        what,
    )
    # Any incoming gradient takes the costs together.
    incoming = rng.normal(size=spheres.shape[:3])
    actual, gradient = compare.cost_and_gradient(cost, spheres, incoming, device)
    compare.assert_costs(actual, model(spheres), tolerance=6 * FINE * speed.max())
    pulled = reference_sweep.PathGradient(jacobian, expected.kink).pull_back(incoming)
    np.testing.assert_allclose(gradient, pulled, rtol=1e-4, atol=1e-5 * speed.max())


def test_torch_agrees(device: torch.device) -> None:
    """`torch.autograd.gradcheck` with steps that float32 can take, away from kinks."""
    world = compare.build_world([[shapes.box((1.0, 0.8, 0.6))]], device)
    centers = torch.tensor([[0.48, 0.1, 0.1], [0.1, 0.38, -0.1], [0.52, 0.05, 0.02]])
    radii = torch.tensor([[0.05], [0.1], [0.08]])
    spheres = torch.cat([centers, radii], dim=1).double().to(device)
    path = torch.stack([spheres, spheres + 0.01], dim=0)[None].requires_grad_(True)
    check = partial(torch.autograd.gradcheck, eps=1e-3, atol=2e-3, rtol=2e-3)
    for function in (
        lambda s: sphere_cost(s, world),
        lambda s: swept_sphere_cost(s, world, tolerance=FINE),
        lambda s: swept_sphere_cost(s, world, tolerance=FINE, dt=0.1, speed_metric=True),
        lambda s: signed_distance(s[..., :3], world).distance,
        lambda s: clearance(s, world).clearance,
    ):
        assert check(lambda s, f=function: f(s).double(), (path,))


# -- descent --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["box", "icosphere", "torus", "robot_link"])
def test_descent_leaves_an_obstacle(name: str, device: torch.device) -> None:
    """1,000 colliding spheres in all: the reference's sdf grows on every accepted small step."""
    rng = np.random.default_rng(134)
    mesh = shapes.placed(name, rng)
    inside = shapes.box_points(rng, mesh, 3000, scale=1.1)
    depth = reference.obstacle_signed_distance(inside, mesh).distance
    centers = inside[depth < 0.02][:250]
    assert len(centers) == 250
    before = depth[depth < 0.02][:250]
    assert (before < 0.0).sum() > 100
    radius, eta = 0.03, 0.02
    world = compare.build_world([[mesh]], device)
    cost = partial(sphere_cost, world=world, activation_distance=eta)

    def cost_and_slope(places: Array) -> tuple[Array, Array]:
        spheres = np.concatenate([places, np.full((len(places), 1), radius)], axis=1)[None, None]
        value, slope = compare.cost_and_gradient(
            cost, spheres, np.ones((1, 1, len(places))), device
        )
        return value[0, 0], slope[0, 0, :, :3]

    value, slope = cost_and_slope(centers)
    step, accepted, refused = 2e-3, 0, 0
    for _ in range(300):
        active = value > 0.0
        if not active.any():
            break
        length = np.linalg.norm(slope[active], axis=1, keepdims=True)
        assert (length > 0.0).all()
        trial = shapes.rounded(centers[active] - step * slope[active] / length)
        new_value, new_slope = cost_and_slope(trial)
        after = reference.obstacle_signed_distance(trial, mesh).distance
        better = new_value < value[active]
        accepted, refused = accepted + int(better.sum()), refused + int((~better).sum())
        grown = after - before[active]
        assert (grown[better] > 0.0).all()
        # From inside, along the way to the closest point, by all of the step.
        from_inside = before[active] < -step
        assert better[from_inside].all()
        np.testing.assert_allclose(grown[from_inside], step, rtol=1e-3, atol=2e-6)
        # The last place counts whether or not it was accepted: a refused step is at the border.
        chosen = np.flatnonzero(active)[better]
        centers[chosen], before[chosen] = trial[better], after[better]
        value[chosen], slope[chosen] = new_value[better], new_slope[better]
        assert better.any()
    print(f"descent: {name}, 250 spheres, {accepted} steps accepted, {refused} refused")
    assert (before > radius + eta - step).all()


# -- poses ----------------------------------------------------------------------------------------

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
    "sphere_cost": lambda boxes, s: truth_boxes.sphere_cost(s, boxes, 1.0, 0.02),
    "swept_sphere_cost": lambda boxes, s: truth_boxes.swept_cost(s, boxes, 1.0, 0.02),
    "with the speed metric": lambda boxes, s: truth_boxes.swept_cost(s, boxes, 1.0, 0.02, 0.1),
    "signed_distance": lambda boxes, s: minimum_over(boxes, s[..., :3]),
    "clearance": lambda boxes, s: minimum_over(boxes, s[..., :3]) - s[..., 3],
}
POSE_CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "sphere_cost": sphere_cost,
    "swept_sphere_cost": partial(swept_sphere_cost, tolerance=FINE),
    "with the speed metric": partial(swept_sphere_cost, tolerance=FINE, dt=0.1, speed_metric=True),
    "signed_distance": lambda s, world, poses: (
        signed_distance(s[..., :3], world, poses=poses).distance
    ),
    "clearance": lambda s, world, poses: clearance(s, world, poses=poses).clearance,
}


@pytest.mark.parametrize("name", POSE_MODELS)
@pytest.mark.parametrize("length", [1.0, 1.7])
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
    world = compare.build_world([[one.obstacle for one in boxes]], device, max_meshes=3)
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
    """(n_envs, max_meshes, 7): an env's poses take what its own rows cost, empty slots nothing."""
    rng = np.random.default_rng(136)
    boxes = [Box(shapes.rounded(rng.uniform(0.2, 0.5, 3)), shapes.random_pose(rng)) for _ in "abc"]
    scenes: list[list[Obstacle]] = [[boxes[0].obstacle, boxes[1].obstacle], [boxes[2].obstacle], []]
    world = compare.build_world(scenes, device, max_meshes=3)
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
        alone = compare.build_world([scenes[env]], device, max_meshes=count)
        part = compare.to_device(poses[env, :count], device).requires_grad_(True)
        sphere_cost(spheres[envs == env].contiguous(), alone, poses=part).sum().backward()
        torch.testing.assert_close(leaf.grad[env, :count], part.grad, rtol=1e-4, atol=1e-4)
