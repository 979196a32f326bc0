"""Costs of moving spheres in float64 NumPy: sampled paths, refined around the lowest samples.

A sphere moves on straight lines through its centers. Waypoint t owns the half-segment before
it and the half-segment after it; a disabled neighbour (radius below 0) ends the path there.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from reference import Array, Indices, Scene, hinge, rows_and_obstacles

SPEED_FLOOR = 0.01  # [m/s] keeps the scaled cost above 0 for a sphere at rest in an obstacle


class PathMinimum(NamedTuple):
    """Smallest signed distance on straight paths, and the fraction of the path where it is."""

    distance: Array  # (n,)
    fraction: Array  # (n,) in [0, 1]


def path_minimum(
    starts: Array,
    ends: Array,
    distance: Callable[[Array], Array],
    *,
    samples: int = 33,
    split: int = 16,
    levels: int = 8,
    kept: int = 16,
) -> PathMinimum:
    """Minimum of a signed distance along straight paths.

    Samples each path evenly, then narrows down: around every sample that is not above its
    neighbours, and from where the minimum can be reached by a 1-Lipschitz function, the path is
    sampled again with ``split`` intervals, ``levels`` times.

    Args:
        starts: (n, 3).
        ends: (n, 3).
        distance: signed distance (m,) of points (m, 3).
        samples: evenly spaced samples per path.
        split: intervals around a low sample.
        levels: rounds of narrowing; the last spacing is length / samples * (2 / split)**levels.
        kept: low samples per path and level, the lowest ones, where there are more.
    """
    lengths = np.linalg.norm(ends - starts, axis=1)
    best, where = np.full(len(starts), np.inf), np.zeros(len(starts))
    path = np.arange(len(starts))
    fractions = np.broadcast_to(np.linspace(0.0, 1.0, samples), (len(starts), samples))
    spacing = 1.0 / (samples - 1)
    for _ in range(levels + 1):
        points = starts[path, None] + fractions[..., None] * (ends - starts)[path, None]
        values = distance(points.reshape(-1, 3)).reshape(fractions.shape)
        np.minimum.at(best, path, values.min(axis=1))
        row, at = np.nonzero(values == best[path, None])
        where[path[row]] = fractions[row, at]
        row, at = _low_samples(path, values, best[path] + spacing * lengths[path], kept)
        path, middle = path[row], fractions[row, at]
        begin, end = np.maximum(middle - spacing, 0.0), np.minimum(middle + spacing, 1.0)
        fractions = begin[:, None] + (end - begin)[:, None] * np.linspace(0.0, 1.0, split + 1)
        spacing *= 2.0 / split
    return PathMinimum(best, where)


def _low_samples(path: Indices, values: Array, limit: Array, kept: int) -> tuple[Indices, Indices]:
    """Rows and columns of the local minima below a limit, the lowest ``kept`` of each path."""
    padded = np.pad(values, ((0, 0), (1, 1)), constant_values=np.inf)
    low = (values <= padded[:, :-2]) & (values < padded[:, 2:]) & (values <= limit[:, None])
    row, at = np.nonzero(low)
    order = np.lexsort((values[row, at], path[row]))
    row, at = row[order], at[order]
    first = np.searchsorted(path[row], path[row])
    lowest = np.arange(len(row)) - first < kept
    return row[lowest], at[lowest]


def swept_distance(
    spheres: Array,
    distance: Callable[[Array], Array],
    reach: float = np.inf,
    **sampling: int,
) -> Array:
    """Minimum m(t) of the signed distance along what each waypoint owns.

    Args:
        spheres: (batch, horizon, n_spheres, 4).
        distance: signed distance (m,) of points (m, 3).
        reach: paths whose every place is surely further away than their radius plus this [m] are
            not sampled; for them the distance at the waypoint is returned.
        sampling: options of ``path_minimum``.

    Returns:
        (batch, horizon, n_spheres); +inf for disabled spheres.
    """
    centers, disabled = spheres[..., :3], spheres[..., 3] < 0.0
    lowest = distance(centers.reshape(-1, 3)).reshape(disabled.shape)
    for own, other in ((slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1))):
        moves = ~disabled[:, own] & ~disabled[:, other]
        length = 0.5 * np.linalg.norm(centers[:, own] - centers[:, other], axis=-1)
        moves &= (length > 0.0) & (lowest[:, own] - length < spheres[:, own, :, 3] + reach)
        if moves.any():
            starts = centers[:, own][moves]
            middles = 0.5 * (starts + centers[:, other][moves])
            half = path_minimum(starts, middles, distance, **sampling).distance
            lowest[:, own][moves] = np.minimum(lowest[:, own][moves], half)
    return np.where(disabled, np.inf, lowest)


def speeds(spheres: Array, dt: float) -> Array:
    """Speed [m/s] of every sphere at every waypoint, from its usable neighbours.

    Central difference between two usable neighbours, one-sided towards a single one, 0 without
    any; a neighbour is usable where it exists and is enabled.

    Args:
        spheres: (batch, horizon, n_spheres, 4).
        dt: time between waypoints [s].

    Returns:
        (batch, horizon, n_spheres).
    """
    centers, enabled = spheres[..., :3], spheres[..., 3] >= 0.0
    horizon = spheres.shape[1]
    speed = np.zeros(enabled.shape)
    for b, t, s in np.ndindex(*enabled.shape):
        before = t - 1 if t > 0 and enabled[b, t - 1, s] else t
        after = t + 1 if t + 1 < horizon and enabled[b, t + 1, s] else t
        if before != after:
            moved = np.linalg.norm(centers[b, after, s] - centers[b, before, s])
            speed[b, t, s] = moved / ((after - before) * dt)
    return speed


def swept_sphere_cost(
    spheres: Array,
    scenes: Sequence[Scene],
    *,
    weight: float = 1.0,
    activation_distance: float = 0.02,
    dt: float | None = None,
    min_speed: float = SPEED_FLOOR,
    env_index: Sequence[int] | None = None,
    **sampling: int,
) -> Array:
    """Weighted sum over the enabled meshes of the hinge of ``radius + eta - m(t)``.

    Args:
        spheres: (batch, horizon, n_spheres, 4); a radius below 0 disables the sphere.
        scenes: one per env, each the slots of the env in order.
        weight: factor of the sum.
        activation_distance: eta [m].
        dt: time between waypoints [s]; scales the cost by the speed where it is given.
        min_speed: the least that a cost is scaled by [m/s].
        env_index: the env of each batch row.
        sampling: options of ``path_minimum``.

    Returns:
        (batch, horizon, n_spheres).
    """
    cost = np.zeros(spheres.shape[:3])
    for rows, obstacle in rows_and_obstacles(spheres, scenes, env_index):
        lowest = swept_distance(
            spheres[rows], obstacle.distance, reach=activation_distance, **sampling
        )
        reach = spheres[rows, ..., 3] + activation_distance
        cost[rows] += hinge(reach - lowest, activation_distance)
    scale = 1.0 if dt is None else np.maximum(speeds(spheres, dt), min_speed)
    return np.where(spheres[..., 3] < 0.0, 0.0, weight * scale * cost)


class PathGradient(NamedTuple):
    """Derivatives of a cost (batch, horizon, n_spheres) of which entry t knows t - 1, t, t + 1."""

    jacobian: Array  # (batch, horizon, n_spheres, 3, 4): d cost[t] / d sphere[t - 1, t, t + 1]
    kink: Array  # (batch, horizon, n_spheres): largest difference of the one-sided differences

    def pull_back(self, incoming: Array) -> Array:
        """Vector-Jacobian product with incoming gradients (batch, horizon, n_spheres)."""
        terms = self.jacobian * incoming[..., None, None]
        gradient = terms[..., 1, :].copy()
        gradient[:, :-1] += terms[:, 1:, :, 0]
        gradient[:, 1:] += terms[:, :-1, :, 2]
        return gradient


def path_gradient(
    function: Callable[[Array], Array], spheres: Array, step: float = 1e-5
) -> PathGradient:
    """Finite differences of a cost of paths, on all four components of every sphere.

    Spheres of other columns and rows do not interact, and neither do waypoints three apart:
    they are moved together.
    """
    batch, horizon, n_spheres, _ = spheres.shape
    middle = function(spheres)
    jacobian = np.zeros((batch, horizon, n_spheres, 3, 4))
    kink = np.zeros((batch, horizon, n_spheres))
    for phase in range(min(3, horizon)):
        moved = np.arange(phase, horizon, 3)
        for component in range(4):
            offset = np.zeros_like(spheres)
            offset[:, moved, :, component] = step
            ahead, behind = function(spheres + offset), function(spheres - offset)
            kink = np.maximum(kink, np.abs(ahead - 2.0 * middle + behind) / step)
            slope = (ahead - behind) / (2.0 * step)
            for t in range(horizon):
                neighbour = (phase - t + 1) % 3  # which of t - 1, t, t + 1 has moved
                if 0 <= t + neighbour - 1 < horizon:
                    jacobian[:, t, :, neighbour, component] = slope[:, t]
    return PathGradient(jacobian, kink)
