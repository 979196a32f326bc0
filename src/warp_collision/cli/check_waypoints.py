"""Checks of one file of paths, waypoint by waypoint: spheres, or a robot and its motion between.

Beside them the notes on a robot that other reports have, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import warp_collision
from warp_collision import Clearance, HalfSpace, MeshWorld, RobotSpheres, VoxelGrid
from warp_collision.cli.terminal import align
from warp_collision.io import obstacle_scene
from warp_collision.messages import escaped, one_line, shell_words
from warp_collision.robot import (
    CollisionReport,
    JointCurve,
    JointPathClearance,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot.checks.link_coverage import coverage_of
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.robot.model.link_pairs import IN_CONTACT

_RESOLUTION = 5e-3  # m, by which a share that is covered may be too small
# From so many configurations on, and such a share of them, contacts with itself look wrong.
_FEW_CONFIGURATIONS, _OFTEN = 5, 0.9
_MOST_WAYS = 5  # of leaving out a contact, that are named
_MOST_ROWS = 20  # of pairs of bodies
_FARTHEST = 1e7  # of what has ends [m]
_HEAD = (
    "batch",
    "from",
    "to",
    "obstacles [mm]",
    "at",
    "link",
    "obstacle",
    "itself [mm]",
    "others",
    "",
)


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


class RobotCheck(NamedTuple):
    """Result of `check_robot`.

    Attributes:
        scene: the robot and the obstacles.
        joints: (batch, horizon, n_joints); of a curve at the ends of its pieces.
        tolerance: [m] of the motion.
        contacts: at waypoints.
        blocked: (batch, horizon - 1) bool, motions that are not proven free, contacts at all joint
            values aside.
        only_unseen: (batch, horizon - 1) bool, those of them that are, but for what was never seen.
        clearance: of the motions, these contacts aside, and what no motion changes.
        resting: links that stay where they are, and the nearest obstacle of each.
        left_out: parts of the robot that no sphere covers.
        beyond: joint values beyond 2 pi, which may be degrees.
    """

    scene: RobotScene
    joints: Tensor
    tolerance: float
    contacts: CollisionReport
    blocked: Tensor
    only_unseen: Tensor
    clearance: JointPathClearance
    resting: tuple[RestingLink, ...]
    left_out: Uncovered
    beyond: BeyondTurn

    @property
    def collides(self) -> bool:
        """Whether something touches at a waypoint, or a motion is not proven free."""
        return len(self.contacts.link) > 0 or bool(self.blocked.any())

    @property
    def is_beyond_limits(self) -> bool:
        """Whether a joint value is beyond its limits."""
        return bool(self.contacts.beyond_limits.any())

    def motions(self) -> list[dict[str, Any]]:
        """The motions from waypoint to waypoint, as JSON has them; null where nothing is near."""
        found = [column.cpu() for column in self.clearance]
        links, names, rows = self.scene.robot.sphere_links, self.scene.world.names(), []
        for batch in range(self.blocked.shape[0]):
            for segment in range(self.blocked.shape[1]):
                values: list[Any] = [column[batch, segment].item() for column in found]
                lower, upper, position, sphere, obstacle, *itself = values[3:]
                rows.append(
                    {
                        "batch": batch,
                        "waypoint": segment,
                        "proven_free": not bool(self.blocked[batch, segment]),
                        "only_unseen": bool(self.only_unseen[batch, segment]),
                        "clearance": _interval(lower, upper),
                        "position": position if sphere >= 0 else None,
                        "link": links[sphere] if sphere >= 0 else None,
                        "obstacle": names[obstacle] if obstacle >= 0 else None,
                        "self_clearance": _interval(*itself[:2]),
                        "self_position": itself[2] if itself[3] >= 0 else None,
                        "self_links": [links[i] for i in itself[3:]] if itself[3] >= 0 else None,
                    }
                )
        return rows

    def summary(self) -> dict[str, Any]:
        """The report, for JSON; depths are null where rounding leaves open whether they touch."""
        report = self.contacts
        robot = self.scene.robot
        beyond = dict(zip(robot.joint_names, report.beyond_limits.tolist(), strict=True))
        pairs = self.scene.pairs
        return {
            "tolerance": self.tolerance,
            "collision": self.collides,
            "contacts": contacts_for_json(report),
            "motions": self.motions(),
            "resting": [link._asdict() for link in self.resting],
            "beyond_limits": {name: count for name, count in beyond.items() if count},
            "beyond_two_pi": self.beyond.counts,
            "pairs_of_links": len(pairs),
            "pairs_of_spheres": pairs.n_sphere_pairs,
            "pairs_that_always_touch": len(pairs.touching),
            **self.left_out.summary(),
        }

    def text(self, world: str) -> str:
        """The report, below a line on the world."""
        contacts = self.contacts._replace(links_without_spheres=())  # a note tells them below
        lines = [world, "", "at waypoints:", str(contacts), ""]
        motions = self.motions()
        if motions:
            nearest = _nearest_of_pairs(motions)
            closest = _nearest_to_obstacles(motions)
            shown = nearest[:_MOST_ROWS]
            shown += [row for row in nearest[_MOST_ROWS:] if row[0] is closest]
            cells = [_HEAD, *(_cells(motion, more) for motion, more in shown)]
            lines += ["between waypoints, nearest first:", *align(cells, right=(0, 1, 2, 3, 7, 8))]
            if len(nearest) > len(shown):
                lines.append(f"and {len(nearest) - len(shown)} more pairs")
            lines += [*map(str, self.resting), ""]
        advice = [
            *often_with_itself(contacts, self.joints.shape[0] * self.joints.shape[1]),
            *always_in_contact(contacts),
        ]
        notes = *self.left_out.lines(), *self.beyond.lines(), *advice
        lines += [f"note: {line}" for line in notes]
        pairs = self.scene.pairs
        scope = f"checked with itself by {pairs.n_sphere_pairs} pairs of spheres"
        if len(pairs.touching):
            scope += f", without {len(pairs.touching)} that always touch"
        beside = [pair for pair in pairs.left_out if pair.reason.startswith(IN_CONTACT)]
        if beside:
            scope += f", without {len(beside)} pairs of links that touch as neighbours do"
        blocked = int(self.blocked.sum())
        state = "collision" if self.collides else "free"
        if motions and blocked:
            state += f": {blocked} of {len(motions)} motions are not proven free"
            if self.only_unseen.any():
                state += f", {int(self.only_unseen.sum())} of them for unobserved space alone"
        elif motions:
            state += f": all {len(motions)} motions of the robot's spheres are proven"
        if motions and contacts.at_all_values.any():
            state += ", contacts at all joint values aside"
        bare = len(self.left_out.bare)
        if bare:
            scope += f"; {bare} link{'s' if bare > 1 else ''} with shapes not checked"
        return "\n".join([*lines, f"{state} ({scope})"])


class RestingLink(NamedTuple):
    """A link that stays where it is, and the obstacle that is nearest to it."""

    link: str
    obstacle: str
    clearance: float  # [m]

    def __str__(self) -> str:
        distance = f"{1000.0 * self.clearance:.1f} mm"
        return f"rests: {escaped(self.link, 40)}, {distance} from {escaped(self.obstacle, 40)}"


class BeyondTurn(NamedTuple):
    """Values of joints that turn, in rad, that are larger than a turn.

    Attributes:
        counts: how many, by joint; joints without are left out.
        largest: of their magnitudes, and the joint that has it.
    """

    counts: dict[str, int]
    largest: tuple[float, str]

    def lines(self) -> list[str]:
        """A line for a report, none if there are none."""
        if not self.counts:
            return []
        value, name = self.largest
        return [
            f"{sum(self.counts.values())} joint values are beyond 2 pi rad, up to {value:.4g} of "
            f"{escaped(name, 40)}: in degrees?"
        ]


def beyond_turn(joints: Tensor, robot: RobotSpheres) -> BeyondTurn:
    """Which values of a path (..., n_joints) are larger than a turn."""
    sizes = joints.detach().abs().flatten(0, -2).cpu()
    counts, largest = {}, (0.0, "")
    for index, (name, unit) in enumerate(zip(robot.joint_names, robot.joint_units, strict=True)):
        beyond = sizes[:, index] > 2.0 * math.pi + 1e-5
        if unit == "rad" and bool(beyond.any()):
            counts[name] = int(beyond.sum())
            largest = max(largest, (float(sizes[:, index].max()), name))
    return BeyondTurn(counts, largest)


def check_robot(
    scene: RobotScene, joints: Tensor | JointCurve, tolerance: float = 1e-3
) -> RobotCheck:
    """Checks joint values (batch, horizon, n_joints), or curves, whose pieces are the motions."""
    robot, world = scene.robot, scene.world
    is_curve = isinstance(joints, JointCurve)
    path = joints.knots(world.device) if is_curve else joints.to(world.device)
    report = robot.report(path, world, **scene.placed)
    options: dict[str, Any] = {
        "tolerance": tolerance,
        **scene.without_contacts_of(report).placed,
    }
    # One configuration alone makes no motion, and is no path.
    n_motions = path.shape[1] - 1
    motions = joints if is_curve else path.expand(-1, max(2, path.shape[1]), -1)
    blocked = joint_path_in_collision(motions, robot, world, **options)[:, :n_motions].cpu()
    only_unseen = _without_unseen(motions, scene, options)[..., :n_motions] & blocked
    resting = [link for link in robot.layout.names if robot.layout.frame_of.get(link) == 0]
    still = [(link, name) for link in resting for name in world.names()]
    ignored = {**options, "ignore": [*options["ignore"], *still]}
    clearance = joint_path_clearance(motions, robot, world, **ignored)
    clearance = JointPathClearance(*(column[:, :n_motions] for column in clearance))
    return RobotCheck(
        scene,
        path,
        tolerance,
        report,
        blocked,
        only_unseen,
        clearance,
        resting=_resting_links(scene, path[0, :1], resting, options["ignore"]),
        left_out=uncovered(robot),
        beyond=beyond_turn(path, robot),
    )


def _resting_links(
    scene: RobotScene, joints: Tensor, links: Sequence[str], ignore: Sequence[tuple[str, str]]
) -> tuple[RestingLink, ...]:
    """Links that stay where they are, with the nearest obstacle that they may not touch."""
    found = scene._replace(ignore=tuple(ignore)).clearance(joints)
    names, of_sphere = scene.world.names(), scene.robot.sphere_links
    gaps, obstacles = (column[0, 0].tolist() for column in (found.clearance, found.obstacle))
    rows = []
    for link in links:
        own = [i for i, name in enumerate(of_sphere) if name == link and math.isfinite(gaps[i])]
        if own:
            nearest = min(own, key=lambda i: gaps[i])
            rows.append(RestingLink(link, names[obstacles[nearest]], gaps[nearest]))
    return tuple(rows)


def _without_unseen(
    motions: Tensor | JointCurve, scene: RobotScene, options: dict[str, Any]
) -> Tensor:
    """Which motions are proven free, if there is nothing where no camera saw."""
    world = scene.world
    unseen = [
        name
        for name, obstacle in world.obstacles().items()
        if obstacle.enabled and isinstance(obstacle.geometry, VoxelGrid)
        if obstacle.geometry.is_unseen
    ]
    if not unseen:
        return torch.zeros((1, 1), dtype=torch.bool)
    for name in unseen:
        world.enable(name, False)
    free = ~joint_path_in_collision(motions, scene.robot, world, **options)
    for name in unseen:
        world.enable(name, True)
    return free.cpu()


def _interval(lower: float, upper: float) -> list[float] | None:
    return [lower, upper] if math.isfinite(upper) else None


def _closeness(motion: dict[str, Any]) -> float:
    found = (motion["clearance"], motion["self_clearance"])
    return min([math.inf, *(interval[0] for interval in found if interval)])


def _nearest_to_obstacles(motions: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The motion that comes nearest to obstacles."""
    near = [motion for motion in motions if motion["clearance"]]
    return min(near, key=lambda motion: motion["clearance"][0], default=None)


def _nearest_of_pairs(motions: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Of each pair of bodies the motion where they are nearest, and on how many others they are.

    A pair is the one that comes nearest on a motion; of the motion that comes nearest to obstacles
    it is that with the obstacle. Motions that are not proven free come first.
    """
    rows: dict[tuple[bool, str], list[Any]] = {}
    closest = _nearest_to_obstacles(motions)
    for motion in sorted(motions, key=lambda row: (row["proven_free"], _closeness(row))):
        pair = _nearest(motion, with_itself=motion is not closest)
        row = rows.setdefault((motion["proven_free"], pair), [motion, -1])
        row[1] += 1
    return [(motion, more) for motion, more in rows.values()]


def _cells(motion: dict[str, Any], others: int) -> tuple[str, ...]:
    place = motion["position"]
    return (
        str(motion["batch"]),
        str(motion["waypoint"]),
        str(motion["waypoint"] + 1),
        _text(motion["clearance"]),
        "-" if place is None else f"{place:.3f}",
        escaped(motion["link"] or "-", 40),
        escaped(motion["obstacle"] or "-", 40),
        _text(motion["self_clearance"]),
        str(others or "-"),
        _verdict(motion),
    )


def _verdict(motion: dict[str, Any]) -> str:
    if motion["proven_free"]:
        return ""
    state = "NEVER SEEN" if motion["only_unseen"] else "NOT PROVEN FREE"
    return f"{state}: {_nearest(motion)}"


def _nearest(motion: dict[str, Any], *, with_itself: bool = True) -> str:
    """The two bodies that come nearest to each other on a motion, or a link and an obstacle."""
    found, itself = motion["clearance"], motion["self_clearance"]
    if with_itself and itself and not (found and found[1] <= itself[1]):
        first, second = motion["self_links"]
    else:
        first, second = motion["link"] or "-", motion["obstacle"] or "-"
    return f"{escaped(first, 40)} and {escaped(second, 40)}"


def _text(interval: list[float] | None) -> str:
    return "-" if interval is None else " to ".join(f"{1000 * value:.1f}" for value in interval)


def contacts_for_json(report: CollisionReport) -> list[dict[str, Any]]:
    """The rows of a report, for JSON; depths are NaN where rounding leaves open if they touch."""
    return [
        {
            "batch": int(report.batch[i]),
            "waypoint": int(report.waypoint[i]),
            "link": report.link[i],
            "obstacle": report.obstacle[i],
            "with_itself": bool(report.with_itself[i]),
            "depth": float(report.depth[i]),
            "point": report.point[i].tolist(),
            "at_all_values": bool(report.at_all_values[i]),
        }
        for i in range(len(report.link))
    ]


class Uncovered(NamedTuple):
    """The parts of a robot's links that no sphere covers.

    Attributes:
        share: by link, up to how much of the surface lies in no sphere; links that are covered
            are left out.
        bare: links with shapes, but without spheres.
        unknown: by link, why it is not known.
    """

    share: dict[str, float]
    bare: tuple[str, ...]
    unknown: dict[str, str]

    def summary(self) -> dict[str, Any]:
        """For JSON; null where it is not known."""
        shares = {**self.share, **dict.fromkeys(self.unknown)}
        return {"uncovered": shares, "links_without_spheres": list(self.bare)}

    def lines(self) -> list[str]:
        """Lines for a report, none if all is covered."""
        lines = []
        if self.unknown:
            link, why = next(iter(self.unknown.items()))
            others = f" and {len(self.unknown) - 1} more links" if len(self.unknown) > 1 else ""
            lines.append(
                f"not known is what the spheres leave out of {escaped(link, 40)}{others}: {why}"
            )
        if self.share:
            worst = max(self.share, key=lambda link: self.share[link])
            others = len(self.share) - 1
            lines.append(
                f"the spheres leave out up to {100 * self.share[worst]:.0f} % of the surface of "
                f"{escaped(worst, 40)}" + (f", and parts of {others} more links" if others else "")
            )
        if self.bare:
            bare = escaped(", ".join(self.bare), 200)
            lines.append(
                f"links without spheres, which nothing checks: {bare}; --shapes visual covers "
                "those that have visual shapes alone"
            )
        return lines


def uncovered(robot: RobotSpheres) -> Uncovered:
    """The parts of a robot that no sphere covers; fitted spheres cover all."""
    bare = tuple(robot.links_without_spheres)
    given = [link for link in robot.link_names if link not in robot.fits and link not in bare]
    share, unknown = {}, {}
    for link in given:
        try:
            found = coverage_of(robot, [link], _RESOLUTION)
        except (OSError, ValueError, ImportError) as error:
            unknown[link] = one_line(error)
        else:
            share |= {name: cover.uncovered for name, cover in found.items() if cover.uncovered}
    return Uncovered(share, bare, unknown)


def always_in_contact(report: CollisionReport) -> list[str]:
    """What to do about contacts that exist at all joint values, none if there are none."""
    always = [
        f"--ignore {shell_words(report.link[i], report.obstacle[i])}"
        for i in np.flatnonzero(report.at_all_values)
    ]
    if not always:
        return []
    ways = [*dict.fromkeys(always)]
    more = f", and {len(ways) - _MOST_WAYS} more" if len(ways) > _MOST_WAYS else ""
    return [
        "no motion can change contacts at all joint values; if they are wanted, leave them out by "
        f"{' '.join(ways[:_MOST_WAYS])}{more}"
    ]


def often_with_itself(report: CollisionReport, total: int) -> list[str]:
    """What to do where the robot touches itself in nearly all of some configurations."""
    rows = [
        (int(report.batch[i]), int(report.waypoint[i]), report.link[i], report.obstacle[i])
        for i in range(len(report.link))
        if report.with_itself[i]
    ]
    hit = len({row[:2] for row in rows})
    if total < _FEW_CONFIGURATIONS or hit < _OFTEN * total:
        return []
    (first, second), _ = Counter(row[2:] for row in rows).most_common(1)[0]
    pair = shell_words(first, second)
    return [
        f"the robot touches itself in {hit} of {total} configurations, most often by {pair}: "
        f"if these do not touch, --ignore {pair} leaves them out, --srdf names such pairs, and "
        "--no-self-collision leaves out all"
    ]


def world_extents(world: MeshWorld) -> list[list[float]] | None:
    """Lower and upper corner of the box around what has ends [m]; None without any of it."""
    bounded = {
        name: obstacle
        for name, obstacle in world.obstacles().items()
        if not isinstance(obstacle.geometry, HalfSpace)
        # Grids that are empty, or solid outside, have bounds far away.
        and not (
            isinstance(obstacle.geometry, VoxelGrid)
            and np.abs(obstacle.geometry.bounds).max() > _FARTHEST
        )
    }
    bounds = obstacle_scene(bounded).bounds
    return None if bounds is None else bounds.tolist()


def world_line(file: str, world: MeshWorld) -> str:
    """One line: how many obstacles there are, and the box around them."""
    count, extents = len(world.names()), world_extents(world)
    line = f"{escaped(file)}: {count} obstacle{'s' if count != 1 else ''}"
    if extents is None:
        return line
    lower, upper = extents
    sides = " x ".join(f"{high - low:.4g}" for low, high in zip(lower, upper, strict=True))
    corners = (" ".join(f"{value:.4g}" for value in corner) for corner in extents)
    return f"{line} in {sides} m, from {' to '.join(corners)}"
