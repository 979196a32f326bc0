"""Costs of moving spheres and their gradients against the float64 reference."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import compare
import reference_sweep
import shapes
from cases import mostly_slow
from reference import Array, Obstacle
from warp_collision import sphere_cost, swept_sphere_cost

FINE = 1e-6  # [m] tolerance of the sweep where costs and gradients are compared closely
DEFAULT_TOLERANCE = 2e-3  # [m] at most: "well below" the activation distance of 0.02 m
STEP = 5e-6  # [m] of finite differences: minima that tie within FINE show as kinks


def assert_swept(
    spheres: Array,
    scenes: list[list[Obstacle]],
    device: torch.device,
    env_index: list[int] | None = None,
    **options: Any,
) -> Array:
    """Costs and their pulled back gradients are the reference's; returns the costs."""
    incoming = np.random.default_rng(0).normal(size=spheres.shape[:3])
    world = compare.build_world(scenes, device)
    envs = None
    if env_index is not None:
        envs = torch.tensor(env_index, dtype=torch.int32, device=device)
    extra: dict[str, Any] = {"speed_metric": True} if "dt" in options else {}

    def cost(s: torch.Tensor) -> torch.Tensor:
        return swept_sphere_cost(s, world, tolerance=FINE, env_index=envs, **options, **extra)

    actual, gradient = compare.cost_and_gradient(cost, spheres, incoming, device)
    model = partial(
        reference_sweep.swept_sphere_cost, scenes=scenes, env_index=env_index, **options
    )
    expected = model(spheres)
    speed = reference_sweep.speeds(spheres, options["dt"]) if "dt" in options else 1.0
    slack = FINE * options.get("weight", 1.0) * np.max(np.maximum(speed, 1.0))
    compare.assert_costs(actual, expected, tolerance=slack)
    differences = reference_sweep.path_gradient(model, spheres, STEP)
    reached = _spread(differences.kink)
    scale = np.abs(differences.jacobian).max()  # of one, but for weights and speeds
    compare.assert_gradients(
        gradient / scale, differences.pull_back(incoming) / scale, reached / scale, share=0.6
    )
    return actual


def _spread(kink: Array) -> Array:
    """The kinks of all costs that a waypoint's gradient has parts of."""
    padded = np.pad(kink, ((0, 0), (1, 1), (0, 0)))
    return np.maximum(kink, np.maximum(padded[:, :-2], padded[:, 2:]))


@pytest.mark.parametrize("name", mostly_slow(shapes.CLOSED, ("box",)))
def test_cost_and_gradient(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(31)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_paths(rng, obstacle, (2, 3, 3), disabled=0.1)
    cost = assert_swept(spheres, [[obstacle]], device, weight=1.5, activation_distance=0.03)
    assert 0.3 < (cost > 0.0).mean()


@pytest.mark.parametrize("name", mostly_slow(shapes.CLOSED, ("torus",)))
def test_cost_and_gradient_outside(name: str, device: torch.device) -> None:
    """Long steps past a mesh, which mostly come closest between the waypoints."""
    rng = np.random.default_rng(32)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.paths_outside(rng, obstacle, (2, 3, 3), clearance=0.05, step=0.6)
    cost = assert_swept(spheres, [[obstacle]], device, activation_distance=0.1)
    at_waypoints = sphere_cost(
        compare.to_device(spheres, device),
        compare.build_world([[obstacle]], device),
        activation_distance=0.1,
    )
    assert (cost > 1.01 * compare.to_array(at_waypoints)).mean() > 0.3


@pytest.mark.parametrize("name", shapes.OPEN)
def test_cost_around_open_meshes(name: str, device: torch.device) -> None:
    """On paths that stay clear of the openings, where the sign jumps."""
    rng = np.random.default_rng(33)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_paths(rng, obstacle, (40, 2, 1))
    fractions = np.linspace(0.0, 1.0, 200)[:, None]
    along = spheres[:, 0, 0, None, :3] * (1 - fractions) + spheres[:, 1, 0, None, :3] * fractions
    clear = compare.clear_of_openings(along.reshape(-1, 3), obstacle, margin=0.05)
    spheres = spheres[clear.reshape(40, 200).all(axis=1)]
    assert len(spheres) > 10
    world = compare.build_world([[obstacle]], device)
    cost = swept_sphere_cost(compare.to_device(spheres, device), world, tolerance=FINE)
    expected = reference_sweep.swept_sphere_cost(spheres, [[obstacle]])
    assert (expected > 0.0).mean() > 0.3
    compare.assert_costs(cost, expected, tolerance=FINE)


def three_envs(rng: np.random.Generator) -> list[list[Obstacle]]:
    return [
        [
            shapes.placed("box", rng),
            shapes.placed("torus", rng, enabled=False),
            shapes.placed("icosphere", rng),
        ],
        [],
        [shapes.placed("torus", rng)],
    ]


@pytest.mark.parametrize("horizon", mostly_slow((1, 2, 3), (1, 2)))
def test_envs_disabled_meshes_and_spheres(horizon: int, device: torch.device) -> None:
    rng = np.random.default_rng(34)
    env_index = [2, 0, 1, 0]
    spheres = shapes.random_paths(
        rng, shapes.mesh("icosphere"), (4, horizon, 10 // horizon), step=0.15, disabled=0.15
    )
    cost = assert_swept(spheres, three_envs(rng), device, env_index=env_index)
    assert (cost[2] == 0.0).all()
    assert (cost[[0, 1, 3]] > 0.0).any()
    assert (cost[spheres[..., 3] < 0.0] == 0.0).all()


@pytest.mark.parametrize("speed_metric", mostly_slow((False, True), (True,)))
def test_a_long_path_is_the_sum_of_its_windows(speed_metric: bool, device: torch.device) -> None:
    """Every cost knows its two neighbours only: windows of three, which are checked above."""
    rng = np.random.default_rng(43)
    scenes, env_index = three_envs(rng), [2, 0, 1, 0]
    spheres = shapes.random_paths(
        rng, shapes.mesh("icosphere"), (4, 16, 2), step=0.15, disabled=0.1
    )
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world(scenes, device)
    options = {"speed_metric": speed_metric, "dt": 0.1, "tolerance": FINE}

    def run(paths: Array, pulled: Array, rows: list[int]) -> tuple[Array, Array]:
        envs = torch.tensor(rows, dtype=torch.int32, device=device)
        return compare.cost_and_gradient(
            lambda s: swept_sphere_cost(s, world, env_index=envs, **options), paths, pulled, device
        )

    cost, gradient = run(spheres, incoming, env_index)
    expected = reference_sweep.swept_sphere_cost(
        spheres, scenes, env_index=env_index, dt=0.1 if speed_metric else None
    )
    assert (expected > 0.0).any(axis=(1, 2)).tolist() == [True, True, False, True]
    compare.assert_costs(cost, expected, tolerance=2 * FINE)
    summed = np.zeros_like(gradient)
    for t in range(16):
        window = slice(max(t - 1, 0), t + 2)
        alone = np.zeros_like(incoming[:, window])
        alone[:, t - window.start] = incoming[:, t]
        part, slope = run(spheres[:, window], alone, env_index)
        np.testing.assert_array_equal(part[:, t - window.start], cost[:, t])
        summed[:, window] += slope
    np.testing.assert_allclose(gradient, summed, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("eta", mostly_slow((0.0, 0.2), ()))
def test_other_activation_distances(eta: float, device: torch.device) -> None:
    rng = np.random.default_rng(35)
    obstacle = shapes.placed("icosphere", rng)
    spheres = shapes.random_paths(rng, obstacle, (2, 3, 3))
    assert_swept(spheres, [[obstacle]], device, activation_distance=eta)


@pytest.mark.parametrize("name", mostly_slow(("box", "torus"), ("box",)))
def test_speed_metric(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(36)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_paths(rng, obstacle, (2, 4, 4), disabled=0.15)
    cost = assert_swept(spheres, [[obstacle]], device, dt=0.2)
    assert (cost > 0.0).mean() > 0.3


def test_speed_metric_of_a_slow_sphere(device: torch.device) -> None:
    """Below 1 cm/s the scale is 0.01, of which no gradient comes; at rest too."""
    rng = np.random.default_rng(37)
    obstacle = shapes.placed("box", rng)
    spheres = np.repeat(shapes.random_spheres(rng, obstacle, (3, 1, 10)), 3, axis=1)
    spheres[1:, :, :, 0] += np.array([0.0, 5e-4, 9e-4])[:, None]
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world([[obstacle]], device)
    plain, slope = compare.cost_and_gradient(
        lambda s: swept_sphere_cost(s, world), spheres, incoming, device
    )
    slow, slow_slope = compare.cost_and_gradient(
        lambda s: swept_sphere_cost(s, world, dt=0.2, speed_metric=True), spheres, incoming, device
    )
    assert (plain > 0.0).any()
    np.testing.assert_allclose(slow, 0.01 * plain, rtol=1e-6)
    np.testing.assert_allclose(slow_slope, 0.01 * slope, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("min_speed", mostly_slow((1e-4, 0.3), ()))
def test_the_floor_of_the_speed_metric(min_speed: float, device: torch.device) -> None:
    """An argument, of which some spheres are slower and some faster."""
    rng = np.random.default_rng(47)
    obstacle = shapes.placed("torus", rng)
    spheres = shapes.random_paths(rng, obstacle, (2, 4, 4), step=0.2, disabled=0.1)
    spheres[0, :, 0, :3] = spheres[0, :1, 0, :3]
    speed = reference_sweep.speeds(spheres, 0.2)
    assert 0.0 < (speed < min_speed).mean() < 1.0
    assert_swept(spheres, [[obstacle]], device, dt=0.2, min_speed=min_speed)


@pytest.mark.parametrize("name", mostly_slow(shapes.CLOSED, ("robot_link",)))
@pytest.mark.parametrize("tolerance", mostly_slow((None, 1e-3), (None,)))
def test_within_the_tolerance_and_never_above(
    name: str, tolerance: float | None, device: torch.device
) -> None:
    """The smallest distance found is that of a place on the path: the cost can only be low."""
    rng = np.random.default_rng(38)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_paths(rng, obstacle, (15, 3, 2), step=0.4)
    world = compare.build_world([[obstacle]], device)
    cost = compare.to_array(
        swept_sphere_cost(compare.to_device(spheres, device), world, tolerance=tolerance)
    )
    expected = reference_sweep.swept_sphere_cost(spheres, [[obstacle]])
    rounding = compare.ABSOLUTE + compare.RELATIVE * expected
    assert (cost <= expected + rounding).all()
    assert (cost >= expected - rounding - (tolerance or DEFAULT_TOLERANCE)).all()
    assert (cost[expected > 0.02] > 0.0).all()


@pytest.mark.parametrize("speed_metric", [False, True])
def test_time_reversal(speed_metric: bool, device: torch.device) -> None:
    rng = np.random.default_rng(39)
    scene = [shapes.placed("robot_link", rng), shapes.placed("box", rng)]
    spheres = shapes.random_paths(rng, scene[0], (8, 9, 6), step=0.3, disabled=0.1)
    incoming = rng.normal(size=spheres.shape[:3])
    world = compare.build_world([scene], device)
    cost = partial(swept_sphere_cost, world=world, dt=0.1, speed_metric=speed_metric)
    forth, slope = compare.cost_and_gradient(cost, spheres, incoming, device)
    back, slope_back = compare.cost_and_gradient(
        cost, spheres[:, ::-1].copy(), incoming[:, ::-1].copy(), device
    )
    assert (forth > 0.0).any()
    np.testing.assert_array_equal(back[:, ::-1], forth)
    np.testing.assert_allclose(slope_back[:, ::-1], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", shapes.CLOSED + shapes.OPEN)
def test_at_rest_it_is_the_cost_of_the_point(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(40)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_spheres(rng, obstacle, (1, 1, 500))
    incoming = np.ones((1, 1, 500))
    world = compare.build_world([[obstacle]], device)
    points, slope = compare.cost_and_gradient(
        partial(sphere_cost, world=world), spheres, incoming, device
    )
    assert (points > 0.0).any()
    for horizon in (1, 2, 5):
        swept, swept_slope = compare.cost_and_gradient(
            partial(swept_sphere_cost, world=world),
            np.repeat(spheres, horizon, axis=1),
            np.ones((1, horizon, 500)),
            device,
        )
        np.testing.assert_array_equal(swept, np.repeat(points, horizon, axis=1))
        np.testing.assert_allclose(
            swept_slope, np.repeat(slope, horizon, axis=1), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("name", shapes.CLOSED)
def test_never_below_the_cost_of_the_point(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(41)
    obstacle = shapes.placed(name, rng)
    spheres = compare.to_device(
        shapes.random_paths(rng, obstacle, (20, 10, 5), step=0.3, disabled=0.1), device
    )
    world = compare.build_world([[obstacle]], device)
    swept, points = swept_sphere_cost(spheres, world), sphere_cost(spheres, world)
    assert (swept > points).any()
    assert (swept >= points).all()


@pytest.mark.parametrize("step", [0.01, 0.1, 0.5, 2.0])
def test_thin_plates_are_never_passed_over(step: float, device: torch.device) -> None:
    """Spheres of 1 mm at any angle through a plate of 0.5 mm, in steps of up to 2 m."""
    rng = np.random.default_rng(42)
    plate = shapes.placed("plate", rng)
    count = 400
    through = rng.uniform(-0.45, 0.45, size=(count, 3)) * [1, 1, 0]
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    share = rng.uniform(0.001, 0.999, size=(count, 1))
    ends = [through - share * step * direction, through + (1 - share) * step * direction]
    spheres = np.full((count, 2, 1, 4), 0.001)
    for t in (0, 1):
        spheres[:, t, 0, :3] = shapes.to_world(ends[t], plate)
    spheres = shapes.rounded(spheres)
    world = compare.build_world([[plate]], device)
    cost = swept_sphere_cost(
        compare.to_device(spheres, device), world, activation_distance=0.0, tolerance=FINE
    )
    worst = compare.to_array(cost).max(axis=(1, 2))
    np.testing.assert_allclose(worst, 0.00125, atol=FINE + 1e-6)  # radius and half the plate
    cost = swept_sphere_cost(compare.to_device(spheres, device), world, activation_distance=0.02)
    worst = compare.to_array(cost).max(axis=(1, 2))
    np.testing.assert_allclose(worst, 0.01125, atol=DEFAULT_TOLERANCE)


def test_a_waypoint_owns_half_of_the_segment(device: torch.device) -> None:
    """A plate across the path belongs to the waypoint on its side of the middle."""
    world = compare.build_world([[shapes.mesh("plate")]], device)
    spheres = np.zeros((1, 3, 2, 4))
    spheres[0, :, 0, 2] = [-0.4, 0.6, 1.6]
    spheres[0, :, 1, 2] = [-0.6, 0.4, 1.4]
    spheres[..., 3] = 0.05
    cost = compare.to_array(swept_sphere_cost(compare.to_device(spheres, device), world))
    np.testing.assert_array_equal(cost[0] > 0.0, [[True, False], [False, True], [False, False]])


def test_neighbours_share_the_gradient(device: torch.device) -> None:
    """A plate under the middle of a segment pushes both ends up, each by its share."""
    world = compare.build_world([[shapes.box((0.02, 2.0, 0.2))]], device)
    spheres = np.zeros((1, 2, 1, 4))
    spheres[0, :, 0, 0] = [-0.25, 0.75]
    spheres[0, :, 0, 2] = [0.13, 0.14]
    spheres[..., 3] = 0.05
    for t in (0, 1):
        incoming = np.zeros((1, 2, 1))
        incoming[0, t] = 1.0
        cost, gradient = compare.cost_and_gradient(
            partial(swept_sphere_cost, world=world, activation_distance=0.0),
            spheres,
            incoming,
            device,
        )
        if t == 0:
            # Past the box the path still rises, so its lowest place is the near upper edge.
            np.testing.assert_allclose(gradient[0, :, 0, 2], [-0.76, -0.24], atol=0.01)
            np.testing.assert_allclose(gradient[0, :, 0, 3], [1.0, 0.0], atol=1e-6)
        else:
            assert cost[0, 1, 0] == 0.0
            assert (gradient == 0.0).all()


@pytest.mark.parametrize("radius", [0.0, 0.05])
@pytest.mark.parametrize("eta", [0.0, 0.02])
def test_cost_in_the_middle_of_a_block(radius: float, eta: float, device: torch.device) -> None:
    world = compare.build_world([[shapes.box((4.0, 4.0, 4.0))]], device)
    spheres = np.zeros((1, 3, 1, 4))
    spheres[0, :, 0, 0] = [-0.5, 0.0, 0.7]
    spheres[..., 3] = radius
    cost = compare.to_array(
        swept_sphere_cost(
            compare.to_device(spheres, device), world, activation_distance=eta, tolerance=FINE
        )
    )
    depth = np.array([1.75, 2.0, 1.65])  # the deepest place that each waypoint owns
    np.testing.assert_allclose(cost[0, :, 0], radius + eta + depth - eta / 2, atol=2 * FINE)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_nothing_to_check(shape: tuple[int, int, int], device: torch.device) -> None:
    world = compare.build_world([[shapes.mesh("box")]], device)
    spheres = torch.zeros((*shape, 4), device=device, requires_grad=True)
    cost = swept_sphere_cost(spheres, world)
    assert cost.shape == shape
    cost.sum().backward()
    assert spheres.grad is not None
    assert spheres.grad.shape == (*shape, 4)


def test_the_speed_metric_needs_a_time_step(device: torch.device) -> None:
    world = compare.build_world([[shapes.mesh("box")]], device)
    with pytest.raises(ValueError, match="dt"):
        swept_sphere_cost(torch.zeros((1, 2, 1, 4), device=device), world, speed_metric=True)
