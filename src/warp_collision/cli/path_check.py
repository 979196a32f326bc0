"""Clearances, costs and collisions at the waypoints of spheres, for the tables of the commands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import warp_collision
from warp_collision import Clearance, MeshWorld
from warp_collision.cli.terminal import align
from warp_collision.messages import escaped


class WaypointCheck(NamedTuple):
    """The check of one waypoint; costs are sums over the spheres [m].

    Attributes:
        batch: row of the batch.
        waypoint: index on the path.
        clearance: smallest of all spheres [m]; None where all are disabled, as are the next three.
        sphere: which one has it.
        link: of that sphere; None if links are not known.
        obstacle: the obstacle that it is nearest to.
        cost: resting cost; NaN where rounding leaves it open, as is the next one.
        swept_cost: swept cost.
        collides: whether a sphere touches something at the waypoint.
        collides_on_the_way: whether one does on what the waypoint owns of the straight way.
    """

    batch: int
    waypoint: int
    clearance: float | None
    sphere: int | None
    link: str | None
    obstacle: str | None
    cost: float
    swept_cost: float
    collides: bool
    collides_on_the_way: bool

    @property
    def verdict(self) -> str:
        """Whether and where a sphere touches something, in words; empty where none does."""
        on_the_way = "COLLISION on the way" if self.collides_on_the_way else ""
        return "COLLISION" if self.collides else on_the_way


@dataclass(frozen=True)
class PathCheck:
    """Spheres on paths and all that was computed along them, on the CPU.

    Attributes:
        spheres: (batch, horizon, n_spheres, 4) x, y, z, radius in the world frame [m].
        cost: (batch, horizon, n_spheres) cost of each sphere at its waypoint [m].
        clearance: (batch, horizon, n_spheres) [m], +inf for disabled spheres.
        obstacle: (batch, horizon, n_spheres) index of the nearest obstacle, -1 for none.
        waypoints: a summary of each waypoint, batch row by batch row.
        activation_distance: of the costs [m].
        swept: whether the motion between waypoints was checked.
    """

    spheres: Tensor
    cost: Tensor
    clearance: Tensor
    obstacle: Tensor
    waypoints: list[WaypointCheck]
    activation_distance: float
    swept: bool

    @property
    def deepest(self) -> WaypointCheck | None:
        """The waypoint with the smallest clearance, None where all spheres are disabled."""
        known = [row for row in self.waypoints if row.clearance is not None]
        return min(known, key=lambda row: row.clearance or 0.0, default=None)

    @property
    def collides(self) -> bool:
        """Whether something touches, or rounding leaves it open."""
        return any(row.verdict for row in self.waypoints)

    def summary(self) -> dict[str, Any]:
        """The report, for JSON; costs are null where rounding leaves them open."""
        deepest = self.deepest
        return {
            "activation_distance": self.activation_distance,
            "swept": self.swept,
            "collision": self.collides,
            "worst": None if deepest is None else self._row(deepest),
            "rows": [self._row(row) for row in self.waypoints],
        }

    def _row(self, row: WaypointCheck) -> dict[str, Any]:
        """A waypoint for JSON.

        If swept also collision_on_the_way: nothing touches at the waypoint, but on a half-segment
        beside it.
        """
        on_the_way = row.collides_on_the_way and not row.collides
        return {
            "batch": row.batch,
            "waypoint": row.waypoint,
            "clearance": row.clearance,
            "sphere": row.sphere,
            "obstacle": row.obstacle,
            "cost": row.swept_cost,
            "collision": bool(row.verdict),
            **({"collision_on_the_way": on_the_way} if self.swept else {}),
        }

    def text(self, world: str) -> str:
        """The report, with a line on the world."""
        head = ("batch", "waypoint", "clearance [m]", "sphere", "obstacle", "cost", "")
        cells = [head] + [
            (
                str(row.batch),
                str(row.waypoint),
                "-" if row.clearance is None else f"{row.clearance:.4f}",
                "-" if row.sphere is None else str(row.sphere),
                escaped(row.obstacle or "-"),
                f"{row.swept_cost:.4g}" if math.isfinite(row.swept_cost) else "nan",
                row.verdict,
            )
            for row in self.waypoints
        ]
        table = align(cells, right=(0, 1, 2, 3, 5))
        return "\n".join([*table, "", world, self._conclusion()])

    def _conclusion(self) -> str:
        hits, worst = sum(bool(row.verdict) for row in self.waypoints), self.deepest
        state = f"collision at {hits} of {len(self.waypoints)} waypoints" if hits else "free"
        if hits and self.swept:
            state += " or on the way beside them"
        if worst is None:
            return f"{state}: all spheres are disabled"
        return (
            f"{state}; smallest clearance at a waypoint {worst.clearance:.4f} m: batch "
            f"{worst.batch}, waypoint {worst.waypoint}, sphere {worst.sphere}, "
            f"obstacle {escaped(worst.obstacle or '-')}"
        )


def check_spheres(
    spheres: Tensor,
    world: MeshWorld,
    *,
    activation_distance: float,
    swept: bool = True,
    links: Sequence[str] | None = None,
    nearest: Clearance | None = None,
) -> PathCheck:
    """Computes clearances and costs of spheres (batch, horizon, n_spheres, 4) along their paths.

    Args:
        spheres: on the device of the world.
        world: one env.
        activation_distance: of the costs [m].
        swept: whether the motion between waypoints is checked; if not, it counts as at rest.
        links: the link of each sphere.
        nearest: clearance of the spheres where some contacts are wanted; spheres that are not near
            to other obstacles cost nothing at rest.
    """
    eta = activation_distance
    cost = warp_collision.sphere_cost(spheres, world, activation_distance=eta)
    if nearest is None:
        nearest = warp_collision.clearance(spheres, world)
    else:
        cost = torch.where(nearest.clearance >= eta, 0.0, cost)
    clearances, obstacles = nearest.clearance, nearest.obstacle
    # NaN, where rounding leaves it open, is not free.
    hit = ~(clearances >= 0.0).all(dim=-1) | cost.isnan().any(dim=-1)
    swept_cost, way = cost, hit
    if swept:
        swept_cost = warp_collision.swept_sphere_cost(spheres, world, activation_distance=eta)
        # Without an activation distance it is the depth of the deepest contact on the way.
        deepest = warp_collision.swept_sphere_cost(spheres, world, activation_distance=0.0)
        way = ~(deepest <= 0.0).all(dim=-1)
    smallest, sphere = clearances.min(dim=-1)
    obstacle = obstacles.gather(-1, sphere[..., None])[..., 0]
    columns = (smallest, sphere, obstacle, cost.sum(-1), swept_cost.sum(-1), hit, way)
    values = [column.flatten().tolist() for column in columns]
    rows = _rows(values, spheres.shape[1], world.names(), links)
    return PathCheck(spheres.cpu(), cost.cpu(), clearances.cpu(), obstacles.cpu(), rows, eta, swept)


def _rows(
    columns: list[list[Any]], horizon: int, names: Sequence[str], links: Sequence[str] | None
) -> list[WaypointCheck]:
    rows = []
    table: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    for index, (depth, sphere, obstacle, cost, swept_cost, hit, way) in enumerate(table):
        enabled = math.isfinite(depth)
        rows.append(
            WaypointCheck(
                batch=index // horizon,
                waypoint=index % horizon,
                clearance=depth if enabled else None,
                sphere=sphere if enabled else None,
                link=links[int(sphere)] if enabled and links is not None else None,
                obstacle=names[int(obstacle)] if enabled else None,
                cost=cost,
                swept_cost=swept_cost,
                collides=hit,
                collides_on_the_way=way,
            )
        )
    return rows
