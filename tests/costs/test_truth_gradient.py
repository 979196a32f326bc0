"""Gradients against finite differences of float64 models, on thousands of configurations.

Kinks, where the one-sided differences of the model disagree, are left out; the share that is left
in is asserted. ``pytest -s tests/costs/test_truth_gradient.py`` prints the errors.
"""

from functools import partial

import numpy as np
import pytest
import torch

import compare
import reference
import reference_sweep
import shapes
from cases import mostly_slow
from reference import Array
from truth_boxes import Box, random_boxes, spheres_around
from truth_gradients import FINE, assert_relative
from warp_collision import MeshWorld, clearance, signed_distance, sphere_cost, swept_sphere_cost

# -- spheres --------------------------------------------------------------------------------------


def boxes_and_world(
    seed: int, device: torch.device
) -> tuple[np.random.Generator, list[Box], MeshWorld]:
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, 6)
    world = compare.build_world([[one.obstacle for one in boxes]], device, max_obstacles=6)
    return rng, boxes, world


@pytest.mark.parametrize("eta", [0.0, 0.02, 0.2])
def test_sphere_cost_among_boxes(eta: float, device: torch.device) -> None:
    """6,000 spheres, any incoming gradient."""
    rng, boxes, world = boxes_and_world(131, device)
    spheres = spheres_around(rng, boxes, (20, 15, 20), 0.1)
    incoming = rng.normal(size=spheres.shape[:3])
    model = partial(reference.sphere_cost, scenes=[boxes], activation_distance=eta)
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


@pytest.mark.parametrize("dt", mostly_slow((None, 0.1), ()))
def test_swept_cost_among_boxes(dt: float | None, device: torch.device) -> None:
    """1,200 waypoints with their neighbours' parts, at rest and with the speed metric."""
    rng, boxes, world = boxes_and_world(133, device)
    spheres = spheres_around(rng, boxes, (20, 5, 12), 0.15)
    options = {} if dt is None else {"dt": dt, "speed_metric": True}
    cost = partial(swept_sphere_cost, world=world, tolerance=FINE, **options)
    model = partial(reference_sweep.swept_sphere_cost, scenes=[boxes], dt=dt)
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


@pytest.mark.parametrize("nearest_to_edge", [2e-5, 2e-4])
def test_no_slope_along_the_path_at_its_minimum(
    nearest_to_edge: float, device: torch.device
) -> None:
    """Beside an edge, where rounding of distances hides the last micrometres to the minimum.

    Samples that certify a fine tolerance come that near, and may be lower than it by rounding.
    """
    rng = np.random.default_rng(139)
    obstacle = shapes.box((0.6, 0.5, 0.4))._replace(pose=shapes.random_pose(rng, 0.3))
    world = compare.build_world([[obstacle]], device)
    count = 4000
    # In the frame of the box: past an edge along x, at up to ten times the least distance [m].
    angle = rng.uniform(0.2, 0.5 * np.pi - 0.2, count)
    away = np.stack([np.zeros(count), np.cos(angle), np.sin(angle)], axis=1)
    along = np.stack([rng.normal(size=count), -np.sin(angle), np.cos(angle)], axis=1)
    nearest = np.stack([rng.uniform(-0.2, 0.2, count), *np.full((2, count), 0.0)], axis=1)
    nearest += [0.0, 0.25, 0.2] + away * nearest_to_edge * rng.uniform(1, 10, (count, 1))
    ends = [nearest + s * along * rng.uniform(0.01, 0.03, (count, 1)) for s in (-1.0, 3.0)]
    centers = shapes.to_world(np.stack(ends, axis=1).reshape(-1, 3), obstacle)
    spheres = shapes.rounded(
        np.concatenate([centers.reshape(-1, 2, 3), np.full((count, 2, 1), 0.03)], axis=-1)
    )
    path = compare.to_device(spheres[:, :, None], device).requires_grad_(True)
    swept_sphere_cost(path, world, tolerance=1e-7)[:, 0].sum().backward()
    force = compare.to_array(path.grad)[:, :, 0]
    move = spheres[:, 1, :3] - spheres[:, 0, :3]
    slope = (force[..., :3].sum(axis=1) * move).sum(axis=1) / np.linalg.norm(move, axis=1)
    share = np.linalg.norm(force[:, 1, :3], axis=1)
    assert (share > 0.05).mean() > 0.9
    assert np.abs(slope[share > 0.05]).max() < 1e-5


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


@pytest.mark.parametrize(
    "name", mostly_slow(("box", "icosphere", "torus", "robot_link"), ("box", "torus"))
)
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
