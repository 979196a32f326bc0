"""Labels of paths of spheres: at their waypoints, and on the straight way between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from warp_collision.collisions import in_collision, swept_in_collision
from warp_collision.costs import clearance, signed_distance, sphere_cost, swept_sphere_cost
from warp_collision.kernels.precision import ROUND_OFF
from warp_collision.labeling.robot_paths import Labels, PathChecks, array_of
from warp_collision.world import MeshWorld

_MAX_SPHERES = 1 << 18  # of a launch
_MAX_BISECTIONS = 40


def label_sphere_paths(
    paths: Sequence[np.ndarray],
    world: MeshWorld,
    checks: PathChecks,
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
    spheres: Tensor, world: MeshWorld, checks: PathChecks, outputs: Sequence[str], env: Tensor
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
        smallest = at_waypoints.clearance.amin(-1).cpu().numpy()
        labels["waypoint_clearance"] = array_of([*smallest])
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


# -- the smallest clearance between waypoints, by bisection ---------------------------------------


class Nearest(NamedTuple):
    """The smallest clearance of each path (n,), and where it is.

    Attributes:
        lower: float64 [m], certified.
        upper: float64 [m], at the position.
        position: float64, in waypoints.
        sphere: int64, which one.
        obstacle: int32, nearest to it, -1 for none.
    """

    lower: np.ndarray
    upper: np.ndarray
    position: np.ndarray
    sphere: np.ndarray
    obstacle: np.ndarray


class _Motions(NamedTuple):
    """Spheres (m,) that move on straight lines; all move for the same part of a segment.

    Attributes:
        begin: (m, 3) centers [m].
        end: (m, 3).
        radius: (m,) [m].
        at_begin: (m,) clearance there [m].
        at_end: (m,).
        owner: (m,) the path.
        sphere: (m,) which of its spheres.
        position: (m,) of the beginning, in waypoints, float64.
    """

    begin: Tensor
    end: Tensor
    radius: Tensor
    at_begin: Tensor
    at_end: Tensor
    owner: Tensor
    sphere: Tensor
    position: Tensor

    @classmethod
    def of(cls, spheres: Tensor, values: Tensor, world: MeshWorld, env: Tensor) -> Self:
        """Half segments of paths, each with the radius of its waypoint.

        A disabled neighbour ends a path.
        """
        enabled = spheres[..., 3] >= 0.0
        path, step, sphere = torch.nonzero(enabled[:, 1:] & enabled[:, :-1]).unbind(-1)
        begin, end = spheres[path, step, sphere], spheres[path, step + 1, sphere]
        middle = 0.5 * (begin[:, :3] + end[:, :3])
        distance = _distance(middle, world, env[path])[0]
        before, after = values[path, step, sphere], values[path, step + 1, sphere]
        first = (begin[:, :3], middle, begin[:, 3], before, distance - begin[:, 3])
        second = (middle, end[:, :3], end[:, 3], distance - end[:, 3], after)
        position = step.double()
        halves = (*first, path, sphere, position), (*second, path, sphere, position + 0.5)
        return cls(*(torch.cat(parts) for parts in zip(*halves, strict=True)))

    def kept(self, mask: Tensor) -> Self:
        """Those of a mask (m,)."""
        return type(self)(*(part[mask] for part in self))

    def bound(self) -> Tensor:
        """A lower bound of the clearance on each motion, (m,) float64 [m].

        A signed distance is 1-Lipschitz: on a line of length l with clearances f and g at its ends
        no clearance is below (f + g - l) / 2.
        """
        begin, end = self.begin.double(), self.end.double()
        f, g = self.at_begin.double(), self.at_end.double()
        within = 0.5 * (f + g - (end - begin).norm(dim=-1))
        rounding = ROUND_OFF * (begin.norm(dim=-1) + end.norm(dim=-1))
        return torch.minimum(within, torch.minimum(f, g)) - rounding

    def halved(self, width: float, world: MeshWorld, env: Tensor) -> Self:
        """Both halves of each motion, each as long as `width` segments."""
        middle = 0.5 * (self.begin + self.end)
        at_middle = _distance(middle, world, env[self.owner])[0] - self.radius
        first = self._replace(end=middle, at_end=at_middle)
        second = self._replace(begin=middle, at_begin=at_middle, position=self.position + width)
        return type(self)(*(torch.cat(parts) for parts in zip(first, second, strict=True)))


def nearest_on_the_way(
    spheres: Tensor,
    values: Tensor,
    world: MeshWorld,
    env: Tensor,
    found: Nearest,
    tolerance: float,
) -> Nearest:
    """The smallest clearance of paths, between waypoints too.

    Args:
        spheres: (n, horizon, n_spheres, 4) [m].
        values: (n, horizon, n_spheres) clearance at waypoints [m].
        world: the obstacles.
        env: (n,) the env of each path.
        found: the smallest at waypoints.
        tolerance: [m], how much the certified clearance may be below that at the position.
    """
    device = spheres.device
    upper = torch.from_numpy(found.upper).to(device)
    position = torch.from_numpy(found.position).to(device)
    sphere = torch.from_numpy(found.sphere).to(device)
    lower, width = upper.clone(), 0.5
    motions = _Motions.of(spheres, values, world, env)
    for _ in range(_MAX_BISECTIONS):
        for clearances, offset in ((motions.at_begin, 0.0), (motions.at_end, width)):
            smallest = upper.scatter_reduce(0, motions.owner, clearances.double(), "amin")
            of_path = motions.owner
            better = (clearances == smallest[of_path]) & (clearances < upper[of_path])
            position[of_path[better]] = motions.position[better] + offset
            sphere[of_path[better]] = motions.sphere[better]
            upper = smallest
        bound = motions.bound()
        is_open = bound < upper[motions.owner] - tolerance
        # Whatever is left out bounds its path from below.
        lower = lower.scatter_reduce(0, motions.owner[~is_open], bound[~is_open], "amin")
        motions, bound = motions.kept(is_open), bound[is_open]
        if not len(bound):
            break
        width *= 0.5
        motions = motions.halved(width, world, env)
    else:
        bound = motions.bound()
        lower = lower.scatter_reduce(0, motions.owner, bound, "amin")
    step = position.floor().long().clamp(max=spheres.shape[1] - 2)
    path = torch.arange(len(spheres), device=device)
    begin, end = spheres[path, step, sphere, :3], spheres[path, step + 1, sphere, :3]
    center = torch.lerp(begin, end, (position - step)[:, None].to(begin))
    obstacle = torch.where(upper.isinf(), -1, _distance(center, world, env)[1])
    outputs = (lower, upper, position, sphere, obstacle)
    return Nearest(*(column.cpu().numpy() for column in outputs))


def _distance(points: Tensor, world: MeshWorld, env: Tensor) -> tuple[Tensor, Tensor]:
    """Signed distance of points (n, 3), and the nearest obstacle."""
    found = signed_distance(points[:, None].contiguous(), world, env_index=env)
    return found.distance[:, 0], found.obstacle[:, 0]
