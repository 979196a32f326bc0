"""A robot's joint path against obstacles and itself: at waypoints, and proven between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warp_collision.cli import common, scene_text
from warp_collision.cli.terminal import align
from warp_collision.messages import escaped
from warp_collision.robot import (
    CollisionReport,
    JointCurve,
    JointPathClearance,
    RobotSpheres,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.robot.model.link_pairs import IN_CONTACT

_HEAD = (
    *("batch", "from", "to", "obstacles [mm]", "at", "link", "obstacle", "itself [mm]"),
    *("others", ""),
)
_MOST_ROWS = 20  # of pairs of bodies


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
    left_out: scene_text.Uncovered
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
            "contacts": scene_text.contacts_for_json(report),
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
            shown = nearest[:_MOST_ROWS]
            cells = [_HEAD, *(_cells(motion, more) for motion, more in shown)]
            lines += ["between waypoints, nearest first:", *align(cells, right=(0, 1, 2, 3, 7, 8))]
            if len(nearest) > len(shown):
                lines.append(f"and {len(nearest) - len(shown)} more pairs")
            lines += [*map(str, self.resting), ""]
        advice = [
            *scene_text.often_with_itself(contacts, self.joints.shape[0] * self.joints.shape[1]),
            *scene_text.always_in_contact(contacts),
        ]
        notes = *self.left_out.lines(), *self.beyond.lines(), *advice
        lines += [f"note: {line}" for line in notes]
        pairs = self.scene.pairs
        scope = f"with itself by {pairs.n_sphere_pairs} pairs of spheres"
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
                state += f", {int(self.only_unseen.sum())} of them but for what was never seen"
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
        **scene_text.without_constant_contacts(scene, report).placed,
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
    told = scene_text.uncovered(robot), beyond_turn(path, robot)
    return RobotCheck(
        *(scene, path, tolerance, report, blocked, only_unseen, clearance),
        _resting_links(scene, path[0, :1], resting, options["ignore"]),
        *told,
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
    is_on = world.enabled[0].tolist()
    names = [name for name, on in zip(world.names(), is_on, strict=False) if on]
    unseen = [name for name in names if name.endswith(common.UNSEEN)]
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


def _nearest_of_pairs(motions: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Of each pair of bodies the motion where they are nearest, and on how many others they are.

    A pair is the one that comes nearest on a motion. Motions that are not proven free come first.
    """
    rows: dict[tuple[bool, str], list[Any]] = {}
    for motion in sorted(motions, key=lambda row: (row["proven_free"], _closeness(row))):
        row = rows.setdefault((motion["proven_free"], _nearest(motion)), [motion, -1])
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


def _nearest(motion: dict[str, Any]) -> str:
    """The two bodies that come nearest to each other on a motion."""
    found, itself = motion["clearance"], motion["self_clearance"]
    if itself and not (found and found[1] <= itself[1]):
        first, second = motion["self_links"]
    else:
        first, second = motion["link"] or "-", motion["obstacle"] or "-"
    return f"{escaped(first, 40)} and {escaped(second, 40)}"


def _text(interval: list[float] | None) -> str:
    return "-" if interval is None else " to ".join(f"{1000 * value:.1f}" for value in interval)
