"""What the commands say of obstacles and a robot: extents, contacts, and what no sphere covers."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import HalfSpace, MeshWorld, RobotSpheres, joint_path_clearance
from warp_collision.io import obstacle_scene
from warp_collision.messages import escaped, one_line
from warp_collision.robot import CollisionReport
from warp_collision.robot.checks.link_coverage import coverage_of
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.robot.model.kinematic_tree import neutral_joints

_RESOLUTION = 5e-3  # m, by which a share that is covered may be too small


AT_ALL_VALUES = "in contact at all joint values"
# From so many configurations on, and such a share of them, contacts with itself look wrong.
_FEW_CONFIGURATIONS, _OFTEN = 5, 0.9
_MOST_WAYS = 5  # of leaving out a contact, that are named


def world_extents(world: MeshWorld) -> list[list[float]] | None:
    """Lower and upper corner of the box around what has ends [m]; None without any of it."""
    bounded = {
        name: obstacle
        for name, obstacle in world.obstacles().items()
        if not isinstance(obstacle.geometry, HalfSpace)
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


def constant_contacts(scene: RobotScene) -> CollisionReport:
    """What touches at all joint values."""
    neutral = neutral_joints(scene.robot.joint_limits.numpy())
    joints = torch.as_tensor(neutral, dtype=torch.float32)[None, None]
    return scene.robot.report(joints, scene.world, **scene.placed).constant()


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


def without_constant_contacts(scene: RobotScene, report: CollisionReport) -> RobotScene:
    """The scene, where what touches at all joint values may touch, by a report."""
    always = [
        (report.link[i], report.obstacle[i], bool(report.with_itself[i]))
        for i in np.flatnonzero(report.at_all_values)
    ]
    if not always:
        return scene
    world = dict.fromkeys((link, other) for link, other, is_link in always if not is_link)
    own = {frozenset((link, other)) for link, other, is_link in always if is_link}
    chosen = np.array([frozenset(pair) in own for pair in scene.pairs.link_pairs], dtype=bool)
    pairs = scene.pairs.without(chosen, AT_ALL_VALUES) if own else scene.self_collision
    return scene._replace(ignore=(*scene.ignore, *world), self_collision=pairs)


def nearest_on(scene: RobotScene, joints: Tensor, tolerance: float) -> str:
    """The nearest two bodies on a path (1, horizon, n_joints), and where, in words."""
    robot, world = scene.robot, scene.world
    found = joint_path_clearance(joints, robot, world, tolerance=tolerance, **scene.placed)
    links = robot.sphere_links
    segment, own = int(found.world_upper.argmin()), int(found.self_upper.argmin())
    if found.self_upper[0, own] < found.world_upper[0, segment]:
        segment = own
        two = found.self_sphere, found.self_other
        first, second = (links[int(sphere[0, own])] for sphere in two)
    else:
        first = links[int(found.sphere[0, segment])]
        second = world.names()[int(found.obstacle[0, segment])]
    return (
        f"{escaped(first, 40)} and {escaped(second, 40)}, between waypoints {segment} and "
        f"{segment + 1}"
    )


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
            lines.append(f"links without spheres: {escaped(', '.join(self.bare), 200)}")
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
        f"--ignore {escaped(report.link[i], 40)} {escaped(report.obstacle[i], 40)}"
        for i in np.flatnonzero(report.at_all_values)
    ]
    if not always:
        return []
    ways = [*dict.fromkeys(always)]
    more = f", and {len(ways) - _MOST_WAYS} more" if len(ways) > _MOST_WAYS else ""
    return [
        "what touches at all joint values, no motion changes; left out where it is wanted by "
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
    pair = f"{escaped(first, 40)} {escaped(second, 40)}"
    return [
        f"the robot touches itself in {hit} of {total} configurations, most often by {pair}: "
        f"if these do not touch, --ignore {pair} leaves them out, --srdf names such pairs, and "
        "--no-self-collision leaves out all"
    ]
