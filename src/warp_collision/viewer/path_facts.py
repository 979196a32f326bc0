"""What is known of a path among obstacles: clearances, certified intervals, the worst contacts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warp_collision.robot import (
    JointCurve,
    JointPathClearance,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
)
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer.colors import Floats

TOLERANCE = 1e-3  # m, of the certificate
_MOST_CONTACTS = 12
_SAME = 1e-4  # m, by which a clearance and its bound may differ by rounding alone


def _of_motion(scene: RobotScene) -> dict[str, Any]:
    """Arguments of the checks of what moves, without obstacles and links that no joint moves.

    A base that stands on a table is as near to it on any path.
    """
    robot = scene.robot
    # Some joint values, by which spheres that move differ from those that do not.
    joints = torch.rand((4, robot.n_joints), generator=torch.Generator().manual_seed(0))
    moves = robot.sphere_jacobian(joints).abs().amax(dim=(0, 2, 3)) > 0.0
    links = {link for link, moves in zip(robot.sphere_links, moves.tolist(), strict=True)
             if moves}  # fmt: skip
    still = {*robot.sphere_links} - links
    fixed = {(link, name) for link in still for name in scene.world.names(scene.env)}
    return {**scene.of_paths, "ignore": (*scene.ignore, *fixed)}


class Contact(NamedTuple):
    """Where two bodies come nearest to each other on a segment.

    Attributes:
        place: in segments from the start: 2.5 is half way from waypoint 2 to 3.
        link: of the robot.
        other: an obstacle, or another link.
        with_itself: whether the other one is a link.
        lower: lower bound of their clearance [m], certified; of a configuration the clearance.
        clearance: at that place [m].
        is_blocked: whether the segment is not proven free by it.
    """

    place: float
    link: str
    other: str
    with_itself: bool
    lower: float
    clearance: float
    is_blocked: bool

    @property
    def distance(self) -> str:
        """How near the two are: what is proven, which may be less than at the place, or a depth."""
        is_bound = not self.is_blocked and self.clearance - self.lower > _SAME
        if is_bound:
            return f"at least {1000 * max(self.lower, 0.0):.1f} mm"
        return f"{1000 * abs(self.clearance):.1f} mm"

    def __str__(self) -> str:
        state = "into" if self.clearance < 0.0 else "from"
        return f"{self.link} {self.distance} {state} {self.other}"


@dataclass(frozen=True)
class PathFacts:
    """A path, and what is known of it; arrays on the host.

    Attributes:
        scene: the robot and the obstacles.
        joints: (horizon, n_joints), on the device of the world.
        spheres: (horizon, n_spheres, 4) x, y, z, radius in the world [m].
        clearance: (horizon, n_spheres) to the obstacles, see `RobotScene.nearness` [m], +inf
            without.
        motion: the certified intervals of the segments (horizon - 1,), of what moves; of one
            configuration, and where something that does not move collides, of everything.
        blocked: (horizon - 1,) bool, segments that are not proven free.
        curve: the curve whose pieces the segments are, and whose knots the waypoints; None of
            straight motions.
    """

    scene: RobotScene
    joints: Tensor
    spheres: Floats
    clearance: Floats
    motion: JointPathClearance
    blocked: NDArray[np.bool_]
    curve: JointCurve | None = None

    @property
    def axis(self) -> Floats:
        """(horizon,) the numbers of the waypoints, of a curve their times from its begin [s]."""
        if self.curve is None:
            return np.arange(len(self.joints), dtype=float)
        times = self.curve.times[0].numpy()
        return times - times[0]

    def on_axis(self, place: float) -> float:
        """Where on the axis a place is, which is given in segments from the start."""
        return float(np.interp(place, np.arange(len(self.joints)), self.axis))

    def place_of(self, x: float) -> float:
        """The place of a value of the axis, in segments from the start."""
        return float(np.interp(x, self.axis, np.arange(len(self.joints))))

    @property
    def places(self) -> Floats:
        """(horizon,) of the waypoints, from 0 to 1: by time of a curve, else by length."""
        if self.curve is not None:
            return self.axis / self.axis[-1]
        steps = torch.linalg.vector_norm(self.joints[1:] - self.joints[:-1], dim=-1)
        ends = np.concatenate([[0.0], steps.double().cumsum(0).cpu().numpy()])
        return ends / ends[-1] if ends[-1] > 0.0 else np.linspace(0.0, 1.0, len(ends))

    def evenly(self, count: int) -> Tensor:
        """(count, n_joints) joint values, as evenly spaced as `places`."""
        if self.curve is None:
            return evenly_along(self.joints, count)
        first, last = self.curve.times[0, 0].item(), self.curve.times[0, -1].item()
        times = torch.linspace(first, last, count, dtype=torch.float64)
        return self.curve.at(times)[0].to(self.joints)

    @property
    def path(self) -> Tensor | JointCurve:
        """The curve, or the waypoints (horizon, n_joints)."""
        return self.joints if self.curve is None else self.curve

    def costs(self) -> Floats:
        """(horizon,) the cost of each waypoint, by `joint_path_cost` [m], computed anew."""
        scene = self.scene
        options = {
            name: value
            for name, value in scene.of_paths.items()
            if name not in ("self_collision", "shapes")
        }
        path = operand_of(scene, self.path)
        cost = joint_path_cost(path, scene.robot, scene.world, **options)[0]
        return cost[: len(self.joints)].double().cpu().numpy()

    @property
    def is_free(self) -> bool:
        """Whether all motions are proven free."""
        return not bool(self.blocked.any())

    @property
    def n_segments(self) -> int:
        """Motions from waypoint to waypoint; 0 of one configuration."""
        return len(self.joints) - 1

    def at(self, place: float) -> Tensor:
        """Joint values (1, n_joints) at a place, in segments from the start."""
        index = min(max(int(place), 0), max(len(self.joints) - 2, 0))
        after = min(index + 1, len(self.joints) - 1)
        if self.curve is not None:
            times = self.curve.times[0]
            return self.curve.at([torch.lerp(times[index], times[after], place - index)])[0].to(
                self.joints
            )
        return torch.lerp(self.joints[index], self.joints[after], place - index)[None]

    def contacts(self) -> list[Contact]:
        """The nearest contact of each segment with obstacles and with itself, nearest first."""
        names, links = self.scene.world.names(self.scene.env), self.scene.robot.sphere_links
        columns = [np.asarray(column.cpu()) for column in self.motion]
        _, _, _, lower, upper, position, sphere, obstacle, *itself = columns
        own_lower, own_upper, own_at, first, other = itself
        found = []
        for i, blocked in enumerate(self.blocked.tolist()):
            if sphere[i] >= 0:
                found.append(
                    Contact(
                        i + float(position[i]), links[sphere[i]], names[obstacle[i]], False,
                        float(lower[i]), float(upper[i]), blocked and not lower[i] > 0.0,
                    )
                )  # fmt: skip
            if first[i] >= 0:
                found.append(
                    Contact(
                        i + float(own_at[i]), links[first[i]], links[other[i]], True,
                        float(own_lower[i]), float(own_upper[i]),
                        blocked and not own_lower[i] > 0.0,
                    )
                )  # fmt: skip
        return sorted(found, key=lambda contact: contact.lower)

    def worst(self, most: int = _MOST_CONTACTS) -> list[Contact]:
        """The nearest contact of each pair of bodies, nearest first."""
        seen: dict[tuple[str, str], Contact] = {}
        for contact in self.contacts():
            seen.setdefault((contact.link, contact.other), contact)
        return [*seen.values()][:most]

    def closest_points(self, contact: Contact) -> Floats:
        """(2, 3) the points of the two bodies that are nearest to each other, at the place [m]."""
        joints = self.at(contact.place)
        spheres = self.scene.spheres(joints)[0].double().cpu().numpy()
        links = np.array(self.scene.robot.sphere_links)
        own = np.flatnonzero((links == contact.link) & (spheres[:, 3] > 0.0))
        if contact.with_itself:
            others = np.flatnonzero((links == contact.other) & (spheres[:, 3] > 0.0))
            apart = spheres[others][None, :, :3] - spheres[own][:, None, :3]
            far = np.linalg.norm(apart, axis=-1)
            gaps = far - spheres[own][:, None, 3] - spheres[others][None, :, 3]
            i, j = np.unravel_index(np.argmin(gaps), gaps.shape)
            way = apart[i, j] / max(far[i, j], 1e-9)
            a, b = spheres[own[i]], spheres[others[j]]
            return np.stack([a[:3] + a[3] * way, b[:3] - b[3] * way])
        clearance, gradient, obstacle = (part[0, 0].cpu().numpy() for part in
                                         self.scene.clearance(joints))  # fmt: skip
        name = self.scene.world.names(self.scene.env).index(contact.other)
        near = own[obstacle[own] == name] if (obstacle[own] == name).any() else own
        sphere = near[np.argmin(clearance[near])]
        center, radius = spheres[sphere, :3], spheres[sphere, 3]
        outward = gradient[sphere].astype(float)
        distance = float(clearance[sphere]) + radius
        return np.stack([center - radius * outward, center - distance * outward])

    def verdict(self) -> str:
        """One line: proven free and how near, or how much is not, and the worst of it."""
        worst = self.worst(1)
        if not self.n_segments:
            state = "collides" if self.blocked.any() else "free"
            return f"{state}: {worst[0]}" if worst else state
        if not self.is_free:
            state = f"{int(self.blocked.sum())} of {self.n_segments} motions not proven free"
            return f"{state}: {worst[0]}" if worst else state
        if not worst or not math.isfinite(worst[0].lower):
            return "proven free on all of the motion"
        near = f"{worst[0].link} and {worst[0].other}"
        return f"proven free: what moves keeps {worst[0].distance} ({near})"


def path_facts(
    scene: RobotScene, joints: Tensor | JointCurve, tolerance: float = TOLERANCE
) -> PathFacts:
    """Returns what is known of a path (horizon, n_joints) of at least one waypoint, or a curve."""
    curve = joints if isinstance(joints, JointCurve) else None
    path = operand_of(scene, joints)
    if isinstance(joints, JointCurve):
        joints = joints.knots(scene.world.device)[0]
    else:
        joints = joints.detach().to(scene.world.device, torch.float32)
    options = scene.of_paths
    checked = scene.robot, scene.world
    blocked = joint_path_in_collision(path, *checked, tolerance=tolerance, **options)
    motion = joint_path_clearance(path, *checked, tolerance=tolerance, **options)
    if len(joints) > 1:
        moving = _of_motion(scene)
        still = joint_path_in_collision(path, *checked, tolerance=tolerance, **moving) != blocked
        if not still.any():
            motion = joint_path_clearance(path, *checked, tolerance=tolerance, **moving)
    return PathFacts(
        scene,
        joints,
        scene.spheres(joints).double().cpu().numpy(),
        scene.nearness(joints),
        JointPathClearance(*(column[0].cpu() for column in motion)),
        blocked[0].cpu().numpy(),
        curve,
    )


def operand_of(scene: RobotScene, path: Tensor | JointCurve) -> Tensor | JointCurve:
    """What checks take of a path (horizon, n_joints) or of one curve: a batch of one.

    One configuration alone makes no motion, and is no path: it stands.
    """
    if isinstance(path, JointCurve):
        return path
    path = path.detach().to(scene.world.device, torch.float32)
    return (path if len(path) > 1 else path.expand(2, -1))[None].contiguous()


def between(path: Tensor | JointCurve, samples: int) -> Tensor:
    """(samples * segments + 1, n_joints) joint values, so many on each motion of a path.

    Args:
        path: (horizon, n_joints), or one curve, whose pieces are cut at equal times.
        samples: of each motion.
    """
    shares = torch.arange(samples, dtype=torch.float64)[:, None] / samples
    if isinstance(path, JointCurve):
        times = path.times[0]
        inner = (times[:-1] + shares * times.diff()).T.flatten()
        return path.at(torch.cat((inner, times[-1:])))[0].float()
    inner = torch.lerp(path[:-1, None], path[1:, None], shares.to(path)[None])
    return torch.cat((inner.flatten(0, 1), path[-1:]))


def evenly_along(joints: Tensor, count: int) -> Tensor:
    """(count, n_joints) evenly spaced by length along a path (horizon, n_joints)."""
    if len(joints) == 1:
        return joints.expand(count, -1)
    steps = torch.linalg.vector_norm(joints[1:] - joints[:-1], dim=-1).double()
    ends = steps.cumsum(0)
    places = torch.linspace(0.0, 1.0, count, dtype=torch.float64, device=joints.device) * ends[-1]
    segment = torch.searchsorted(ends, places).clamp(max=len(steps) - 1)
    share = (places - (ends - steps)[segment]) / steps[segment].clamp(min=1e-12)
    share = share.clamp(0.0, 1.0).to(joints.dtype)[:, None]
    return torch.lerp(joints[segment], joints[segment + 1], share)
