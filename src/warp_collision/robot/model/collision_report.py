"""Report of the collisions of a robot, as arrays and as text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import escaped
from warp_collision.obstacles.voxel_grid import VoxelGrid
from warp_collision.poses import PoseLike
from warp_collision.robot.model.allowed_pairs import Contacts, as_pairs, check_names
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_text import without_spheres
from warp_collision.robot.model.sampled_pairs import random_joints
from warp_collision.robot.model.sphere_contacts import (
    Contact,
    contacts_with_itself,
    contacts_with_world,
    gaps_from_obstacles,
    shape_gaps,
)
from warp_collision.robot.model.sphere_layout import SphereLayout, only_where
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world

_SPHERES_SHAPE = "(batch, horizon, n_spheres, 4)"
_MAX_ROWS = 20  # in the text
_RANDOM = 64  # configurations, by which it is decided what touches at all joint values
_WIDTH = 100  # of lines
_ROWS = 9  # fields of a report that have a value for each row
_HEADINGS = ("batch", "waypoint", "link", "obstacle", "depth [mm]", "point [m]")


class CollisionReport(NamedTuple):
    """Pairs of a link and what it touches, deepest first; one row per pair and waypoint.

    Attributes:
        batch: (n,) int64.
        waypoint: (n,) int64.
        link: n names of links and attached objects.
        obstacle: n names of obstacles, or of the other link in self-collisions.
        depth: (n,) [m], minus the clearance; NaN, listed first, where something is not finite, or
            so far from the origin that rounding leaves it open whether they touch.
        point: (n, 3) [m], the point of the obstacle that is nearest to the center of the sphere.
        sphere: (n,) int64, the deepest sphere of the link.
        with_itself: (n,) bool, whether the obstacle is a link.
        at_all_values: (n,) bool, whether they touch at all joint values, as wheels on a floor do.
            Either the link is fixed to the root, or they touch at all configurations of the report
            and at 64 random ones. The latter is found for joints with one `base_pose` for all, and
            not for maps with unobserved voxels.
        beyond_limits: (n_joints,) int64, how many values of each joint are beyond its limits or not
            finite; empty for spheres.
        joint_names: of these joints.
        links_without_spheres: links of the robot that have shapes, but were not checked.
    """

    batch: np.ndarray
    waypoint: np.ndarray
    link: tuple[str, ...]
    obstacle: tuple[str, ...]
    depth: np.ndarray
    point: np.ndarray
    sphere: np.ndarray
    with_itself: np.ndarray
    at_all_values: np.ndarray
    beyond_limits: np.ndarray
    joint_names: tuple[str, ...] = ()
    links_without_spheres: tuple[str, ...] = ()

    def with_limits(
        self, joints: Tensor | None, limits: Tensor, names: tuple[str, ...]
    ) -> CollisionReport:
        """Adds the counts of joint values (..., n_joints) beyond limits (n_joints, 2), if known."""
        if joints is None:
            return self
        low, high = limits.to(joints).unbind(-1)
        within = (joints >= low) & (joints <= high)  # false for NaN
        beyond = (~within).flatten(0, -2).sum(0).cpu().numpy()
        return self._replace(beyond_limits=beyond, joint_names=names)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [_HEADINGS]
        told = np.flatnonzero(~self.at_all_values)
        for i in told[:_MAX_ROWS].tolist():
            rows.append(
                (
                    str(self.batch[i]),
                    str(self.waypoint[i]),
                    escaped(self.link[i], 40),
                    self._obstacle(i),
                    f"{1e3 * self.depth[i]:.1f}",
                    " ".join(f"{value:.3f}" for value in self.point[i]),
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if len(told) == 0:
            lines = ["nothing else collides" if len(self.link) else "nothing collides"]
        elif len(told) > _MAX_ROWS:
            lines.append(f"and {len(told) - _MAX_ROWS} more")
        lines += self.lines_of_constant()
        beyond = int(self.beyond_limits.sum())
        if beyond:
            counts = zip(self.joint_names, self.beyond_limits.tolist(), strict=True)
            named = ", ".join(f"{count} of {escaped(name, 40)}" for name, count in counts if count)
            lines.append(f"{beyond} joint values are beyond the limits: {named}")
        lines += without_spheres(self.links_without_spheres)
        return "\n".join(lines)

    def _obstacle(self, row: int) -> str:
        """The name of what a link touches, and whether it is a link."""
        name = escaped(self.obstacle[row], 40)
        return f"{name} (itself)" if self.with_itself[row] else name

    def constant(self) -> CollisionReport:
        """The rows of what touches at all joint values."""
        rows = np.flatnonzero(self.at_all_values)
        columns = {name: getattr(self, name) for name in self._fields[:_ROWS]}
        return self._replace(
            **{
                name: tuple(column[i] for i in rows) if isinstance(column, tuple) else column[rows]
                for name, column in columns.items()
            }
        )

    def lines_of_constant(self) -> list[str]:
        """What touches at all joint values, each pair once; none if nothing does."""
        depths: dict[tuple[str, str], float] = {}
        for i in np.flatnonzero(self.at_all_values).tolist():
            depths.setdefault((escaped(self.link[i], 40), self._obstacle(i)), self.depth[i])
        told = [f"{one} and {other}, {1e3 * deep:.1f} mm" for (one, other), deep in depths.items()]
        more = [f"and {len(told) - _MAX_ROWS} more"] if len(told) > _MAX_ROWS else []
        text = "; ".join([*told[:_MAX_ROWS], *more])
        return textwrap.wrap(f"at all joint values: {text}", _WIDTH) if told else []


# Batch row, waypoint, link, obstacle, and whether that is a link.
_Key = tuple[int, int, str, str, bool]
# Env, link, obstacle, and whether that is a link.
_Pair = tuple[int, str, str, bool]


class ReportedScene(NamedTuple):
    """What is reported on.

    Attributes:
        layout: of the robot.
        world: the obstacles.
        pairs: of links to check, if any.
        allowed: contacts.
        limits: (n_joints, 2) of the joints; None if spheres are given.
        base_pose: of the root.
        by_pieces: whether convex pieces decide against obstacles where spheres touch them.
    """

    layout: SphereLayout
    world: MeshWorld
    pairs: SelfCollisionPairs | None
    allowed: Contacts
    limits: Tensor | None
    base_pose: PoseLike | None
    by_pieces: bool = False

    def report(
        self, spheres: Tensor, joints: Tensor | None, env_index: Tensor | None, margin: float
    ) -> CollisionReport:
        """See `RobotSpheres.report`; the joints are those of the spheres, if they are known."""
        layout, world, pairs, allowed, *_ = self
        require_world(world)
        validate.require_number("margin", margin)
        bodies = layout.sphere_links
        validate.require_tensor("spheres", spheres, _SPHERES_SHAPE)
        spheres = validate.float_operand(
            "spheres", spheres.detach(), 4, _SPHERES_SHAPE, world.device, ndim=4
        )
        if spheres.shape[2] != len(bodies):
            raise ValueError(
                f"spheres must have shape {_SPHERES_SHAPE} with n_spheres = {len(bodies)} as the "
                f"robot, got {validate.shape_of(spheres)}"
            )
        batch = spheres.shape[0]
        env_index = validate.env_operand(env_index, batch, world.n_envs, world.device, check=True)
        allowed = as_pairs(allowed)
        check_names(allowed, layout.names, world)
        if pairs is not None:
            layout.require_pairs(pairs)
            pairs = pairs.changing(0.0)
        scene = self._replace(pairs=pairs, allowed=allowed)
        worst = scene._worst(spheres, env_index, margin, joints)
        rows = sorted(worst.items(), key=lambda row: row[1].order)
        envs = [0] * batch if env_index is None else env_index.tolist()
        always = scene._at_all_values(worst, envs, spheres.shape[1])
        contacts = [contact for _, contact in rows]
        indices = np.array([contact.index for contact in contacts], dtype=np.int64).reshape(-1, 3)
        return CollisionReport(
            indices[:, 0],
            indices[:, 1],
            tuple(bodies[i] for i in indices[:, 2]),
            tuple(contact.obstacle for contact in contacts),
            np.array([contact.depth for contact in contacts]),
            np.array([contact.point for contact in contacts]).reshape(-1, 3),
            indices[:, 2],
            np.array([contact.with_itself for contact in contacts], dtype=bool),
            np.array([(envs[key[0]], *key[2:]) in always for key, _ in rows], dtype=bool),
            np.empty(0, dtype=np.int64),
        )

    def _worst(
        self,
        spheres: Tensor,
        env_index: Tensor | None,
        margin: float,
        joints: Tensor | None,
        only: Tensor | None = None,
    ) -> dict[_Key, Contact]:
        """The deepest contact of each link and what it touches.

        Args:
            spheres: (batch, horizon, n_spheres, 4).
            env_index: (batch,).
            margin: [m].
            joints: (batch, horizon, n_joints), if they are known.
            only: (n_spheres,) bool, those that are compared with obstacles; all if None.
        """
        found = spheres if only is None else only_where(only, spheres)
        contacts = contacts_with_world(found, self.world, env_index, margin)
        if self.pairs is not None:
            gaps = None
            if joints is not None:
                rows = joints.flatten(0, 1).to(spheres.device)
                gaps = shape_gaps(rows, self.layout, self.pairs, margin)
            contacts += contacts_with_itself(spheres, self.pairs, margin, gaps)
        worst: dict[_Key, Contact] = {}
        for contact in contacts:
            batch, waypoint, sphere = contact.index
            body = self.layout.sphere_links[sphere]
            if not contact.with_itself and (body, contact.obstacle) in self.allowed:
                continue
            key = (batch, waypoint, body, contact.obstacle, contact.with_itself)
            if contact.worse_than(worst.get(key)):
                worst[key] = contact
        if self.by_pieces and joints is not None:
            return self._apart_by_pieces(worst, env_index, margin, joints)
        return worst

    def _apart_by_pieces(
        self, worst: dict[_Key, Contact], env_index: Tensor | None, margin: float, joints: Tensor
    ) -> dict[_Key, Contact]:
        """The contacts, those with obstacles as convex pieces have them; see `_worst`."""
        keys = [key for key in worst if not key[4]]
        horizon, bodies = joints.shape[1], [*dict.fromkeys(self.layout.sphere_links)]
        envs = [0] * len(joints) if env_index is None else env_index.tolist()
        names = {env: self.world.names(env) for env in {envs[key[0]] for key in keys}}
        asked = [
            (
                batch * horizon + waypoint,
                bodies.index(link),
                envs[batch],
                names[envs[batch]].index(other),
            )
            for batch, waypoint, link, other, _ in keys
        ]
        gaps = gaps_from_obstacles(joints, self.layout, self.world, self.base_pose, asked, margin)
        for key, gap in zip(keys, gaps.tolist(), strict=True):
            depth = worst[key].depth
            if not depth <= -gap:  # NaN stays
                worst[key] = worst[key]._replace(depth=depth if np.isnan(depth) else -gap)
            if gap >= margin and not np.isnan(depth):
                del worst[key]
        return worst

    def _is_map(self, obstacle: str, env: int) -> bool:
        """Whether voxels are unobserved: to leave these out is no advice, however many are hit."""
        shape = self.world.report(obstacle, env).shape
        return isinstance(shape, VoxelGrid) and shape.unknown_mask is not None

    def _at_all_values(
        self, worst: Mapping[_Key, Contact], envs: list[int], horizon: int
    ) -> set[_Pair]:
        """Which of the contacts there are at all joint values, see `CollisionReport`.

        Args:
            worst: the contacts of the report.
            envs: of its batch rows.
            horizon: of the report.
        """
        touching = [key for key, contact in worst.items() if not contact.depth < 0.0]
        counts = Counter((envs[key[0]], *key[2:]) for key in touching)
        frames = self.layout.kinematics.point_frames
        links = np.array(self.layout.sphere_links, dtype=object)
        fixed = {str(link) for link in links[frames == 0]}
        found = {pair for pair in counts if pair[1] in fixed and not pair[3]}
        left = {
            pair
            for pair, count in counts.items()
            if pair not in found and count == horizon * envs.count(pair[0])
        }
        left = {pair for pair in left if pair[3] or not self._is_map(pair[2], pair[0])}
        limits, base_pose = self.limits, self.base_pose
        is_one_pose = base_pose is None or tuple(np.shape(base_pose)) in ((7,), (4, 4))
        if limits is None or not left or not is_one_pose:
            return found
        joints = random_joints(limits, _RANDOM, None).to(self.world.device)[:, None]
        spheres = self.layout.kinematics.forward(joints, base_pose).detach()
        only = torch.from_numpy(np.isin(links, [pair[1] for pair in left])).to(spheres.device)
        for env in {pair[0] for pair in left}:
            rows = torch.full((_RANDOM,), env, dtype=torch.int32, device=spheres.device)
            there = self._worst(self.layout.in_env(spheres, rows), rows, 0.0, joints, only)
            times = Counter(key[2:] for key in there)
            found |= {pair for pair in left if pair[0] == env and times[pair[1:]] == _RANDOM}
        return found
