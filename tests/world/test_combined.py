"""All kinds of obstacles, changed by every route, asked by every query: against float64.

Single features have tests of their own; here they meet. A failure names seed and last changes.
"""

from collections import Counter

import numpy as np
import pytest
import torch

import compare
from moving_scenes import random_motion
from primitives import KINDS, Call
from random_changes import ROUTES, ChangingWorld
from reference import Array, hinge
from warp_collision import (
    any_in_collision,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)

ETA, TAU = 0.05, 2e-3
ATOL = 4e-6  # [m] of coordinates of a few metres
COUNTS = ([0, 3, 12], [1, 33], [45, 6])  # both sides of 32, from where on a tree is asked
SHARES = np.linspace(0.0, 0.5, 9)  # of half a segment


def asked(case: ChangingWorld, spheres: Array) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    envs = torch.arange(len(spheres), dtype=torch.int32)
    return compare.to_device(spheres, torch.device("cpu")), {"env_index": envs}


def truth(case: ChangingWorld, spheres: Array, poses: Array | None = None) -> Array:
    """(n_envs, horizon, n, slots) distances; poses (n_envs, horizon, slots, 7) or the world's."""
    horizon, count = spheres.shape[1:3]
    found = np.full((*spheres.shape[:3], case.world.max_obstacles), np.inf)
    for env, rows in enumerate(spheres):
        at = None if poses is None else np.repeat(poses[env], count, axis=0)
        each = case.distances(env, rows[..., :3].reshape(-1, 3), at)
        found[env, ..., : each.shape[1]] = each.reshape(horizon, count, -1)
    return found


def check_at_rest(
    case: ChangingWorld, spheres: Array, poses: Array | None = None, kept: Array | None = None
) -> None:
    """Every query at rest, at the poses of the world or at others."""
    leaf, options = asked(case, spheres)
    if kept is not None:
        options["poses"] = torch.tensor(kept, dtype=torch.float32)
    each = truth(case, spheres, poses)
    off = spheres[..., 3] < 0.0
    nearest = each.min(-1)
    free = np.where(off, np.inf, nearest - spheres[..., 3])
    found = signed_distance(leaf[..., :3], case.world, **options)
    np.testing.assert_allclose(compare.to_array(found.distance), nearest, rtol=0, atol=ATOL)
    value = compare.to_array(clearance(leaf, case.world, **options).clearance)
    np.testing.assert_allclose(value, free, rtol=0, atol=ATOL)
    value = compare.to_array(clearance(leaf, case.world, max_distance=ETA, **options).clearance)
    sure = np.abs(free - ETA) > ATOL
    expected = np.where(free > ETA, np.inf, free)
    np.testing.assert_allclose(value[sure], expected[sure], rtol=0, atol=ATOL)
    hit = in_collision(leaf, case.world, **options).numpy()
    sure = np.abs(free) > ATOL
    np.testing.assert_array_equal(hit[sure], free[sure] < 0.0)
    any_hit = any_in_collision(leaf, case.world, **options).numpy()
    np.testing.assert_array_equal(any_hit, hit.any(-1))
    cost = compare.to_array(sphere_cost(leaf, case.world, activation_distance=ETA, **options))
    expected = hinge(spheres[..., 3:] + ETA - each, ETA).sum(-1)
    compare.assert_costs(cost, np.where(off, 0.0, expected), tolerance=ATOL)
    assert (cost[free < ETA - 1e-3] > 0.0).all()


def lowest(case: ChangingWorld, spheres: Array) -> Array:
    """(n_envs, horizon, n, slots) sampled minima along what each waypoint owns."""
    found = truth(case, spheres)
    horizon, on = spheres.shape[1], spheres[..., 3] >= 0.0
    for own in range(horizon):
        for other in {max(own - 1, 0), min(own + 1, horizon - 1)} - {own}:
            both = on[:, own] & on[:, other]
            begin, end = spheres[:, own, None], spheres[:, other, None]
            on_the_way = truth(case, begin + SHARES[:, None, None] * (end - begin)).min(1)
            least = np.minimum(found[:, own], on_the_way)
            found[:, own] = np.where(both[..., None], least, found[:, own])
    return found


def check_motion(case: ChangingWorld, spheres: Array) -> None:
    """Never less than samples say, and hardly more."""
    leaf, options = asked(case, spheres)
    off, radii = spheres[..., 3:] < 0.0, spheres[..., 3:]
    least = lowest(case, spheres)
    # How much lower the distance may be between samples.
    steps = np.linalg.norm(np.diff(spheres[..., :3], axis=1), axis=-1).max(initial=0.0)
    between = 0.25 * steps / (len(SHARES) - 1)
    cost = compare.to_array(
        swept_sphere_cost(leaf, case.world, activation_distance=ETA, tolerance=TAU, **options)
    )
    for slack, sign in ((TAU + ATOL, 1.0), (-between - ATOL, -1.0)):
        bound = np.where(off, 0.0, hinge(radii + ETA - least - slack, ETA)).sum(-1)
        assert (sign * (cost - bound) > -1e-5 * (1.0 + bound)).all()
    hit = swept_in_collision(leaf, case.world, tolerance=TAU, **options).numpy()
    free = np.where(off, np.inf, least - radii).min(-1)
    assert hit[free < -ATOL].all()
    assert not hit[free > TAU + between + ATOL].any()


def check_others(case: ChangingWorld, spheres: Array) -> None:
    """The drop-in Functions, and a fresh world of the same obstacles in another order."""
    leaf, options = asked(case, spheres)
    fresh = case.rebuilt()
    for kind, query in zip(KINDS, (sphere_cost, swept_sphere_cost), strict=True):
        cost = query(leaf, case.world, **options)
        call = Call(kind, leaf, case.world, {"env_query_idx": options["env_index"]})
        compare.assert_costs(call(), compare.to_array(cost), tolerance=ATOL)
        same = query(leaf, fresh, **options)
        # Of two minima within the tolerance of the sweep either may be found.
        tolerance = ATOL if kind == "rest" else 1e-3 * case.world.max_obstacles
        compare.assert_costs(same, compare.to_array(cost), tolerance=tolerance)


def check_other_poses(case: ChangingWorld) -> None:
    """Poses of the call, the same for all waypoints and one for each."""
    spheres = case.spheres(3, 12)
    n_envs, slots = len(case.envs), case.world.max_obstacles
    moving = random_motion(case.rng, 3, n_envs * slots, turn=0.5, travel=0.2)
    moving = moving.reshape(3, n_envs, slots, 7).swapaxes(0, 1)
    check_at_rest(case, spheres, moving, moving)
    still = np.broadcast_to(moving[:, :1], moving.shape)
    check_at_rest(case, spheres, still, moving[:, 0])


def check_everything(case: ChangingWorld) -> None:
    """All queries, at rest and in motion, here and at other poses."""
    spheres = case.spheres(3, 12)
    check_at_rest(case, spheres)
    check_motion(case, spheres)
    check_others(case, spheres)
    check_other_poses(case)


@pytest.mark.parametrize(("counts", "prepared"), [([34, 5], True), ([9, 0, 2], False)], ids=str)
def test_every_route_among_all_kinds(counts: list[int], prepared: bool) -> None:
    case = ChangingWorld(11, counts)
    for route in case.rng.permutation([*ROUTES]):
        if prepared:
            case.world.prepare()
        case.change(str(route))
        try:
            check_at_rest(case, case.spheres(2, 30))
        except AssertionError as error:
            raise AssertionError(f"after {route}") from error
    check_everything(case)


@pytest.mark.slow
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_everything_many_times(counts: list[int]) -> None:
    done = Counter[str]()
    for seed in range(100, 112):
        case, recent = ChangingWorld(seed, counts), []
        for _ in range(10):
            try:
                check_everything(case)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {counts}, after {recent}") from error
            recent = [case.change() for _ in range(3)]
            done.update(recent)
    print(f"combined: {dict(done)}")
    assert set(done) == set(ROUTES)
