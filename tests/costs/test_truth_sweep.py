"""The sweep misses nothing: thin plates, posts and grids of rods, in steps of 1 cm to 2 m.

What is true is found by bisection of the library's signed distance, to a twentieth of the
tolerance, after that distance has been compared with the reference.

``pytest -s -m slow tests/costs/test_truth_sweep.py`` prints what was counted on 100,000 segments.
"""

import threading
from functools import partial

import numpy as np
import pytest
import torch
import trimesh

import compare
import reference
import shapes
from cases import mostly_slow
from concurrent_changes import HANGING
from reference import Array, Obstacle, hinge
from truth_solids import box, convex
from truth_sweep import (
    SCENES,
    as_paths,
    convex_needle,
    count_queries,
    library_distance,
    lowest_of_halves,
    lowest_on,
    obstacle,
    scene,
    segments,
)
from warp_collision import sphere_cost, swept_sphere_cost

ETA = 0.02  # [m]
TOLERANCE = 1e-3  # [m] the default for this activation distance
PRECISION = TOLERANCE / 20
ROUNDING = 1e-6  # [m]


@pytest.mark.parametrize("name", SCENES)
def test_the_distance_is_the_reference(name: str, device: torch.device) -> None:
    """What the bisection relies on, along the paths that it walks."""
    rng = np.random.default_rng(121)
    ends = segments(rng, scene(name), 400)
    points = shapes.rounded(ends[:, 0] + rng.random((400, 1)) * (ends[:, 1] - ends[:, 0]))
    expected = reference.obstacle_signed_distance(points, scene(name)).distance
    assert (expected < 0.05).mean() > 0.3
    np.testing.assert_allclose(
        library_distance(scene(name), device)(points), expected, rtol=0.0, atol=2e-6
    )


@pytest.mark.slow
def test_the_bisection_finds_what_samples_find(device: torch.device) -> None:
    rng = np.random.default_rng(122)
    ends = segments(rng, scene("clutter"), 100, lengths=(0.01, 0.3))
    distance = library_distance(scene("clutter"), device)
    found = lowest_on(distance, ends[:, 0], ends[:, 1], PRECISION)
    shares = np.linspace(0.0, 1.0, 3001)[:, None]
    for (begin, end), lowest in zip(ends, found, strict=True):
        sampled = distance(begin + shares * (end - begin)).min()
        assert sampled - PRECISION <= lowest <= sampled + PRECISION


# -- nothing is missed ----------------------------------------------------------------------------


def assert_nothing_missed(name: str, count: int, device: torch.device) -> None:
    """Costs of random segments against one mesh of many bodies."""
    rng = np.random.default_rng(123)
    ends = segments(rng, scene(name), count)
    radii = shapes.rounded(rng.uniform(0.001, 0.1, count))
    world = compare.build_world([[scene(name)]], device)
    cost = swept_sphere_cost(
        compare.to_device(as_paths(ends, radii), device), world, activation_distance=ETA
    )
    reach = radii + ETA
    lowest = lowest_of_halves(library_distance(scene(name), device), ends, PRECISION, reach)
    overlap = reach[:, None] - lowest
    actual = compare.to_array(cost)[..., 0]
    within = overlap > 0.0
    low = hinge(overlap, ETA) - actual
    high = actual - hinge(overlap, ETA)
    missed = int(((overlap > TOLERANCE + ROUNDING) & (actual <= 0.0)).sum())
    print(
        f"sweep: {name}, {len(scene(name).faces)} faces, {count} segments, "
        f"{int(within.any(axis=1).sum())} in reach, {missed} missed, "
        f"at most {1e3 * low.max():.3f} mm below the truth and {1e3 * high.max():.3f} mm above"
    )
    assert within.mean() > 0.3
    assert (~within).mean() > 0.05
    assert missed == 0
    assert low.max() < TOLERANCE + ROUNDING
    assert high.max() < PRECISION + ROUNDING
    # Where the cost is linear it is a distance: the sweep is sharper than what it certifies.
    assert low[within].mean() < 0.1 * TOLERANCE


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_missed(name: str, device: torch.device) -> None:
    assert_nothing_missed(name, 750, device)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_missed_on_many_segments(name: str, device: torch.device) -> None:
    assert_nothing_missed(name, 25_000, device)


def forest() -> list[Obstacle]:
    """Posts and plates as meshes of their own, turned, some of them touching."""
    rng = np.random.default_rng(124)
    meshes = [obstacle(box((0.002, 0.002, 0.8))), obstacle(box((0.3, 0.2, 0.0005)))]
    return [meshes[i % 2]._replace(pose=shapes.random_pose(rng, 0.3)) for i in range(12)]


@pytest.mark.parametrize("tolerance", [None, 1e-4, 5e-3])
def test_nothing_is_missed_among_many_meshes(tolerance: float | None, device: torch.device) -> None:
    """The sum over the meshes, each of which may be low by the tolerance."""
    rng = np.random.default_rng(125)
    meshes = forest()
    ends = np.concatenate([segments(rng, mesh, 60) for mesh in meshes])
    radii = shapes.rounded(rng.uniform(0.001, 0.05, len(ends)))
    world = compare.build_world([meshes], device, max_obstacles=len(meshes))
    cost = swept_sphere_cost(
        compare.to_device(as_paths(ends, radii), device),
        world,
        weight=2.0,
        activation_distance=ETA,
        tolerance=tolerance,
    )
    actual = compare.to_array(cost)[..., 0]
    bound = TOLERANCE if tolerance is None else tolerance
    low, high, nearest = (np.zeros(actual.shape) for _ in range(3))
    reach = radii + ETA
    for mesh in meshes:
        distance = library_distance(mesh, device)
        overlap = reach[:, None] - lowest_of_halves(distance, ends, bound / 20, reach)
        low += 2.0 * hinge(overlap - bound - ROUNDING, ETA)
        high += 2.0 * hinge(overlap + bound / 20 + ROUNDING, ETA)
        nearest = np.maximum(nearest, overlap)
    assert (actual > 0.0).mean() > 0.3
    assert (actual[nearest > bound + ROUNDING] > 0.0).all()
    assert (actual >= low).all()
    assert (actual <= high).all()


# -- symmetries -----------------------------------------------------------------------------------


def winding_paths(name: str, count: int, waypoints: int) -> Array:
    """Spheres (count, waypoints, 1, 4) on paths of several segments past a mesh."""
    rng = np.random.default_rng(126)
    stops = [segments(rng, scene(name), count, lengths=(0.01, 0.5))[:, 0] for _ in range(waypoints)]
    centers = np.stack(stops, axis=1)
    first = centers[:, :1]
    # Some short steps, some long ones.
    centers = first + (centers - first) * rng.choice([0.02, 0.3, 1.0], size=(count, 1, 1))
    return as_paths(centers, shapes.rounded(rng.uniform(0.001, 0.05, count)))


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_reversed_paths_cost_the_same(name: str, count: int, device: torch.device) -> None:
    """To the last bit."""
    paths = compare.to_device(winding_paths(name, count, 7), device)
    world = compare.build_world([[scene(name)]], device)
    forth = swept_sphere_cost(paths, world)
    back = swept_sphere_cost(paths.flip(1), world)
    differ = int((forth != back.flip(1)).sum())
    print(f"reversal: {name}, {forth.numel()} waypoints, {differ} cost something else reversed")
    assert (forth > 0.0).float().mean() > 0.2
    assert differ == 0


@pytest.mark.parametrize("name", SCENES)
def test_at_rest_it_is_the_cost_of_the_point(name: str, device: torch.device) -> None:
    """To the last bit, and never below it in motion."""
    paths = compare.to_device(winding_paths(name, 300, 4), device)
    world = compare.build_world([[scene(name)]], device)
    points = sphere_cost(paths, world)
    assert (points > 0.0).any()
    still = paths[:, :1].expand(-1, 4, -1, -1)
    assert torch.equal(swept_sphere_cost(still, world), points[:, :1].expand(-1, 4, -1))
    assert torch.equal(swept_sphere_cost(paths[:, :1], world), points[:, :1])
    assert (swept_sphere_cost(paths, world) >= points).all()


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_splitting_a_segment_changes_nothing(name: str, count: int, device: torch.device) -> None:
    """The smallest clearance over the path stays, wherever a segment is cut, within tolerance."""
    rng = np.random.default_rng(127)
    ends = segments(rng, scene(name), count)
    world = compare.build_world([[scene(name)]], device)
    radius = 0.05
    cost = partial(swept_sphere_cost, world=world, activation_distance=0.0, tolerance=TOLERANCE)

    def overlap(centers: Array) -> Array:
        costs = cost(compare.to_device(as_paths(shapes.rounded(centers), radius), device))
        return compare.to_array(costs).max(axis=(1, 2))

    whole = overlap(ends)
    assert (whole > 0.0).mean() > 0.5
    for pieces in (2, 3, 8):
        shares = np.sort(rng.random((len(ends), pieces - 1, 1)), axis=1)
        inner = ends[:, :1] + shares * (ends[:, 1:] - ends[:, :1])
        split = overlap(np.concatenate([ends[:, :1], inner, ends[:, 1:]], axis=1))
        change = np.abs(split - whole).max()
        print(
            f"splits: {name}, {count} segments in {pieces} pieces, the smallest clearance changes "
            f"by at most {1e3 * change:.3f} mm"
        )
        assert change < TOLERANCE + ROUNDING


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["ball", "needle", "plate"])
def test_nothing_is_missed_from_the_surface_of_a_convex_mesh(
    name: str, count: int, device: torch.device
) -> None:
    """Where tangents bound the distance, which rounding tilts beside edges and vertices."""
    rng = np.random.default_rng(130)
    ball = trimesh.creation.icosphere(2, 0.1)
    solids = {"ball": convex(ball), "needle": convex_needle(), "plate": box((0.3, 0.2, 0.0005))}
    mesh = obstacle(solids[name])
    assert compare.build_world([[mesh]], device).report("mesh_0").sign_method == "convex"
    corners = mesh.vertices[mesh.faces[rng.integers(len(mesh.faces), size=count)]]
    weights = rng.dirichlet(np.ones(3), count)
    weights[: count // 2, 2] = 0.0  # on edges
    weights[: count // 8, 1:] = 0.0  # at vertices
    weights /= weights.sum(axis=1, keepdims=True)
    begin = (corners * weights[:, :, None]).sum(axis=1)
    along = rng.normal(size=(2, count, 3))
    along /= np.linalg.norm(along, axis=2, keepdims=True)
    begin += along[0] * 10.0 ** rng.uniform(-9, -2, (count, 1))
    end = begin + along[1] * np.exp(rng.uniform(*np.log([0.01, 1.0]), (count, 1)))
    ends = shapes.rounded(np.stack([begin, end], axis=1))
    world = compare.build_world([[mesh]], device)
    paths = compare.to_device(as_paths(ends, 0.01), device)
    actual = compare.to_array(swept_sphere_cost(paths, world, activation_distance=ETA))[..., 0]
    distance = library_distance(mesh, device)
    reach = 0.01 + ETA
    expected = hinge(reach - lowest_of_halves(distance, ends, PRECISION, reach), ETA)
    assert (expected > 0.0).mean() > 0.4
    assert (expected - actual).max() < TOLERANCE + ROUNDING
    assert (actual - expected).max() < PRECISION + ROUNDING


# -- queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow(SCENES, [*SCENES][:1]))
def test_a_far_segment_takes_one_query(name: str) -> None:
    rng = np.random.default_rng(128)
    ends = segments(rng, scene(name), 500) + np.array([0.0, 0.0, 6.0])
    counts, _ = count_queries(scene(name), ends[:, 0], ends[:, 1], 0.05, TOLERANCE)
    assert (counts == 1).all()


@pytest.mark.parametrize("name", mostly_slow(SCENES, [*SCENES][::2]))
@pytest.mark.parametrize("tolerance", mostly_slow((TOLERANCE, 1e-4), (1e-4,)))
def test_few_queries_near_an_obstacle(name: str, tolerance: float) -> None:
    """Well under one per tolerance of the length, of the sweep's own code with counting queries.

    Only a path that runs along a surface nearer than the tolerance needs as many: nothing that is
    known at two places 2 mm apart tells what is 1 mm from both.
    """
    rng = np.random.default_rng(129)
    ends = segments(rng, scene(name), 2000)
    reach = 0.05
    counts, lowest = count_queries(scene(name), ends[:, 0], ends[:, 1], reach, tolerance)
    lengths = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    near = lowest < reach
    per_tolerance = counts[near].sum() / (lengths[near].sum() / tolerance)
    print(
        f"queries: {name}, tolerance {tolerance:g} m, near segments {near.sum()}: mean "
        f"{counts[near].mean():.1f}, median {np.median(counts[near]):.0f}, 99 % below "
        f"{np.quantile(counts[near], 0.99):.0f}, most {counts.max()}; {per_tolerance:.3f} per "
        f"tolerance of length; others: mean {counts[~near].mean():.1f}"
    )
    assert near.mean() > 0.4
    assert np.median(counts[near]) < 30
    assert per_tolerance < 0.1
    assert (counts < 40 + 2.5 * lengths / tolerance).all()
    # What was counted is what is found: no more than the tolerance above the truth.
    distance = library_distance(scene(name), torch.device("cpu"))
    truth = lowest_on(distance, ends[:200, 0], ends[:200, 1], tolerance / 20, reach)
    error = np.minimum(lowest[:200], reach) - np.minimum(truth, reach)
    assert error.max() < tolerance + ROUNDING
    assert error.min() > -tolerance / 20 - ROUNDING


# -- tolerances -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", mostly_slow((1e-9, 1e-30), (1e-30,)))
def test_a_tolerance_below_rounding_ends(tolerance: float, device: torch.device) -> None:
    """Along a surface every step is as short as the tolerance, which float32 must still add up."""
    world = compare.build_world([[shapes.box((0.01, 0.01, 1.0))]], device)
    paths = np.zeros((1, 2, 3, 4))
    paths[0, :, :, 0] = [0.0, 0.005, 0.0053]
    paths[0, :, :, 2] = np.array([-0.3, 0.3])[:, None]
    paths[..., 3] = 0.03
    found: list[Array] = []

    def run() -> None:
        cost = swept_sphere_cost(
            compare.to_device(paths, device), world, activation_distance=0.0, tolerance=tolerance
        )
        found.append(compare.to_array(cost))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=HANGING)
    assert found, "the sweep does not end"
    np.testing.assert_allclose(found[0][0], [[0.035, 0.03, 0.0297]] * 2, atol=2e-6)
