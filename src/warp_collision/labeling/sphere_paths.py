"""Labels of paths of spheres: at their waypoints, and on the straight way between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.collisions import in_collision, swept_in_collision
from warp_collision.costs import clearance, sphere_cost, swept_sphere_cost
from warp_collision.labeling.robot_paths import Labels
from warp_collision.labeling.swept_clearance import Nearest, nearest_on_the_way
from warp_collision.world import MeshWorld

_MAX_SPHERES = 1 << 18  # of a launch


class SphereChecks(NamedTuple):
    """What is asked of paths of spheres.

    Attributes:
        tolerance: [m], of the certified clearance on the way.
        activation_distance: [m], of the cost.
        swept: whether the straight way between waypoints is checked, too.
    """

    tolerance: float = 1e-3
    activation_distance: float = 0.02
    swept: bool = False


def label_sphere_paths(
    paths: Sequence[np.ndarray],
    world: MeshWorld,
    checks: SphereChecks,
    outputs: Sequence[str],
    envs: Sequence[int],
) -> Labels:
    """Labels of paths of spheres, arrays (n_paths,) by name; see `PathLabeler`.

    Args:
        paths: (horizon, n_spheres, 4) float32 each, finite.
        world: the obstacles.
        checks: the options.
        outputs: which labels.
        envs: the env of each path.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, path in enumerate(paths):
        groups.setdefault(path.shape, []).append(row)
    labels: Labels = {}
    for shape, rows in groups.items():
        most = max(1, _MAX_SPHERES // (shape[0] * shape[1]))
        for begin in range(0, len(rows), most):
            piece = rows[begin : begin + most]
            spheres = torch.from_numpy(np.stack([paths[row] for row in piece])).to(world.device)
            env = torch.tensor([envs[row] for row in piece], dtype=torch.int32).to(world.device)
            for name, values in _label(spheres, world, checks, outputs, env).items():
                column = labels.setdefault(name, np.empty(len(paths), dtype=values.dtype))
                column[piece] = values
    return labels


def _label(
    spheres: Tensor, world: MeshWorld, checks: SphereChecks, outputs: Sequence[str], env: Tensor
) -> Labels:
    """Labels of paths (n, horizon, n_spheres, 4) of one shape."""
    hits = in_collision(spheres, world, env_index=env).any(-1)
    if checks.swept and spheres.shape[1] > 1:
        hits = hits | swept_in_collision(spheres, world, env_index=env).any(-1)
    touched = hits.cpu().numpy()
    labels: Labels = {"free": np.logical_not(touched.any(1))}
    if "first_contact" in outputs:
        first = np.where(labels["free"], np.nan, touched.argmax(1))
        # A waypoint owns the half segment before it, on which the contact may be.
        half = 0.5 if checks.swept else 0.0
        labels["first_contact"] = np.maximum(first - half, 0.0).astype(np.float32)
    if "cost" in outputs:
        cost = swept_sphere_cost if checks.swept and spheres.shape[1] > 1 else sphere_cost
        values = cost(spheres, world, activation_distance=checks.activation_distance, env_index=env)
        flat = np.ascontiguousarray(values.cpu().numpy().reshape(len(touched), -1))
        labels["cost"] = flat.astype(np.float64).sum(1).astype(np.float32)
    at_waypoints = clearance(spheres, world, env_index=env)
    if "waypoint_clearance" in outputs:
        labels["waypoint_clearance"] = np.empty(len(touched), dtype=object)
        smallest = at_waypoints.clearance.amin(-1).cpu().numpy()
        for row, values in enumerate(smallest):
            labels["waypoint_clearance"][row] = values
    found = _at_waypoints(spheres, at_waypoints.clearance, at_waypoints.obstacle)
    if checks.swept and spheres.shape[1] > 1:
        found = nearest_on_the_way(
            spheres, at_waypoints.clearance, world, env, found, checks.tolerance
        )
    return labels | _columns(found, world, env)


def _at_waypoints(spheres: Tensor, values: Tensor, obstacle: Tensor) -> Nearest:
    flat = values.flatten(1)
    # argmin takes NaN for the smallest; it is not free.
    index = flat.argmin(1)
    upper = flat.gather(1, index[:, None])[:, 0].double().cpu().numpy()
    nearest = obstacle.flatten(1).gather(1, index[:, None])[:, 0].cpu().numpy()
    waypoint, sphere = np.divmod(index.cpu().numpy(), spheres.shape[2])
    return Nearest(upper, upper.copy(), waypoint.astype(np.float64), sphere, nearest)


def _columns(found: Nearest, world: MeshWorld, env: Tensor) -> Labels:
    count = len(found.upper)
    names = [world.names(index) for index in range(world.n_envs)]
    link, obstacle = (np.full(count, None, dtype=object) for _ in range(2))
    known = (found.obstacle >= 0) & ~np.isinf(found.upper)
    for row in np.flatnonzero(known):
        link[row] = f"sphere {int(found.sphere[row])}"
        obstacle[row] = names[int(env[row])][int(found.obstacle[row])]
    depth = np.where(known, np.maximum(0.0, -found.upper), 0.0).astype(np.float32)
    return {
        # Towards minus infinity: a bound in float64 may not be rounded up.
        "clearance": _rounded_down(found.lower),
        "self_clearance": np.full(count, np.inf, dtype=np.float32),
        "depth": depth,
        "position": np.where(known, found.position, np.nan).astype(np.float32),
        "link": link,
        "obstacle": obstacle,
        "with_itself": np.zeros(count, dtype=bool),
    }


def _rounded_down(values: np.ndarray) -> np.ndarray:
    """float32 that is not above values in float64."""
    rounded = values.astype(np.float32)
    above = rounded > values
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)
