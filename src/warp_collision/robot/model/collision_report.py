"""Report of the collisions of a robot, as arrays and as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.kernels.precision import NEGLIGIBLE, ROUND_OFF
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.messages import escaped
from warp_collision.queries.sphere_queries import SCENE_DISTANCE
from warp_collision.robot.model.allowed_pairs import as_pairs, check_names
from warp_collision.robot.model.bounding_balls import ranges_of_links
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_text import without_spheres
from warp_collision.robot.model.sphere_layout import SphereLayout
from warp_collision.world import MeshWorld
from warp_collision.world.mesh_world import require_world, scene_tables

_SPHERES_SHAPE = "(batch, horizon, n_spheres, 4)"
_MAX_ROWS = 20  # in the text
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
    beyond_limits: np.ndarray
    joint_names: tuple[str, ...] = ()
    links_without_spheres: tuple[str, ...] = ()

    def with_limits(
        self, joints: Tensor, limits: Tensor, names: tuple[str, ...]
    ) -> CollisionReport:
        """Adds the counts of joint values (..., n_joints) beyond limits (n_joints, 2)."""
        low, high = limits.to(joints).unbind(-1)
        within = (joints >= low) & (joints <= high)  # false for NaN
        beyond = (~within).flatten(0, -2).sum(0).cpu().numpy()
        return self._replace(beyond_limits=beyond, joint_names=names)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [_HEADINGS]
        for i in range(min(len(self.link), _MAX_ROWS)):
            obstacle = escaped(self.obstacle[i], 40)
            rows.append(
                (
                    *(str(self.batch[i]), str(self.waypoint[i]), escaped(self.link[i], 40)),
                    f"{obstacle} (itself)" if self.with_itself[i] else obstacle,
                    f"{1e3 * self.depth[i]:.1f}",
                    " ".join(f"{value:.3f}" for value in self.point[i]),
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if len(self.link) == 0:
            lines = ["nothing collides"]
        elif len(self.link) > _MAX_ROWS:
            lines.append(f"and {len(self.link) - _MAX_ROWS} more")
        beyond = int(self.beyond_limits.sum())
        if beyond:
            counts = zip(self.joint_names, self.beyond_limits.tolist(), strict=True)
            named = ", ".join(f"{count} of {escaped(name, 40)}" for name, count in counts if count)
            lines.append(f"{beyond} joint values are beyond the limits: {named}")
        lines += without_spheres(self.links_without_spheres)
        return "\n".join(lines)


class _Contact(NamedTuple):
    """A sphere and what it touches."""

    index: tuple[int, int, int]  # batch, waypoint, sphere
    obstacle: str
    depth: float
    point: np.ndarray
    with_itself: bool

    def worse_than(self, other: _Contact | None) -> bool:
        """Whether this is deeper; NaN is deeper than any number."""
        return other is None or not (self.depth <= other.depth or np.isnan(other.depth))


def report_collisions(
    spheres: Tensor,
    layout: SphereLayout,
    world: MeshWorld,
    pairs: SelfCollisionPairs | None,
    margin: float,
    ignore: Iterable[tuple[str, str]],
    env_index: Tensor | None,
) -> CollisionReport:
    """See `RobotSpheres.report`."""
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
    allowed = as_pairs(ignore)
    check_names(allowed, layout.names, world)
    worst: dict[tuple[int, int, str, str, bool], _Contact] = {}
    contacts = _with_world(spheres, world, env_index, margin)
    if pairs is not None:
        layout.require_pairs(pairs)
        contacts += _with_itself(spheres, pairs.changing(0.0), margin)
    for contact in contacts:
        batch, waypoint, sphere = contact.index
        body = bodies[sphere]
        if not contact.with_itself and (body, contact.obstacle) in allowed:
            continue
        key = (batch, waypoint, body, contact.obstacle, contact.with_itself)
        if contact.worse_than(worst.get(key)):
            worst[key] = contact
    rows = sorted(
        worst.values(), key=lambda c: (-np.inf if np.isnan(c.depth) else -c.depth, c.index)
    )
    indices = np.array([row.index for row in rows], dtype=np.int64).reshape(-1, 3)
    return CollisionReport(
        indices[:, 0],
        indices[:, 1],
        tuple(bodies[i] for i in indices[:, 2]),
        tuple(row.obstacle for row in rows),
        np.array([row.depth for row in rows]),
        np.array([row.point for row in rows]).reshape(-1, 3),
        indices[:, 2],
        np.array([row.with_itself for row in rows], dtype=bool),
        np.empty(0, dtype=np.int64),
    )


def _with_world(
    spheres: Tensor, world: MeshWorld, env_index: Tensor | None, margin: float
) -> list[_Contact]:
    """Contacts of spheres with all obstacles that are nearer than a margin."""
    flat = spheres.flatten(1, 2)
    enabled = ~(flat[..., 3] < 0.0)
    centers = torch.where(enabled[..., None], flat[..., :3], 0.0).contiguous()
    tables = scene_tables(world)
    nearest = SCENE_DISTANCE.run(centers, tables, env_index)[0]
    lengths = centers.norm(dim=-1), tables.mesh_from_world[..., :3].detach().norm(dim=-1)
    farthest = torch.where(tables.enabled != 0, lengths[1], 0.0).amax(-1)
    farthest = farthest[0] if env_index is None else farthest[env_index.long(), None]
    gap = nearest - flat[..., 3] - _uncertainty(lengths[0] + farthest)
    rows, indices = torch.nonzero(enabled & ~(gap >= margin)).unbind(-1)
    envs = torch.zeros_like(rows) if env_index is None else env_index[rows]
    contacts = []
    for env in envs.unique().tolist():
        row, index = rows[envs == env], indices[envs == env]
        names = world.names(env)
        points = centers[row, index].expand(len(names), -1, -1).contiguous()
        each = torch.arange(len(names), dtype=torch.int32, device=points.device)
        distance, gradient, _ = SCENE_DISTANCE.run(
            points, _one_by_one(tables, env, len(names)), each
        )
        depth = flat[row, index, 3] - distance
        far = lengths[0][row, index] + lengths[1][env, : len(names), None]
        depth = _within_rounding(depth, far, margin)
        surface = (points - distance[..., None] * gradient).cpu().numpy()
        is_on = tables.enabled[env, : len(names), None] != 0
        for obstacle, k in torch.nonzero(is_on & ~(depth <= -margin)).tolist():
            sphere = (int(row[k]), *divmod(int(index[k]), spheres.shape[2]))
            contact = (names[obstacle], float(depth[obstacle, k]), surface[obstacle, k])
            contacts.append(_Contact(sphere, *contact, False))
    return contacts


def _uncertainty(coordinates: Tensor) -> Tensor:
    """Rounding of clearances from coordinates of these lengths, as `precision.uncertainty` [m]."""
    rounding = float(ROUND_OFF) * coordinates
    return torch.where(rounding <= float(NEGLIGIBLE), 0.0, rounding)


def _within_rounding(depth: Tensor, coordinates: Tensor, margin: float) -> Tensor:
    """NaN in place of depths that are below minus the margin by rounding alone."""
    is_open = (depth <= -margin) & (depth + _uncertainty(coordinates) > -margin)
    return torch.where(is_open, torch.nan, depth)


def _one_by_one(tables: SceneTables, env: int, count: int) -> SceneTables:
    """Tables with each obstacle of an env in an env of its own."""
    ids, poses, enabled = (table[env, :count].unsqueeze(1).contiguous() for table in tables[:3])
    records, padding = (
        None if table is None else table[env, :count].unsqueeze(1).contiguous()
        for table in (tables.records, tables.padding)
    )
    counts = torch.ones(count, dtype=torch.int32, device=tables.n_meshes.device)
    return SceneTables(ids, poses, enabled, counts, records, padding)


def _with_itself(spheres: Tensor, pairs: SelfCollisionPairs, margin: float) -> list[_Contact]:
    """The deepest contact of each pair of links nearer than a margin, by its first sphere."""
    flat = pairs.inflate(spheres).flatten(0, 1)
    ranges, indices = ranges_of_links(pairs.sphere_links), pairs.link_indices()
    lengths = flat[..., :3].norm(dim=-1)
    farthest = float(lengths.nan_to_num(posinf=0.0).amax()) if lengths.numel() else 0.0
    reach = margin + 2.0 * float(ROUND_OFF) * farthest
    contacts = []
    for k, rows, gaps in pairs.near(flat, reach):
        one, other = (slice(*ranges[link].tolist()) for link in indices[k])
        far = lengths[rows, one, None] + lengths[rows, None, other]
        depth = _within_rounding(-gaps, far, margin).flatten(1)
        # NaN is deeper than any number.
        deepest = torch.where(depth.isnan(), torch.inf, depth).argmax(1)
        depth = depth.gather(1, deepest[:, None])[:, 0]
        first, second = deepest // gaps.shape[2], deepest % gaps.shape[2]
        first, second = first + one.start, second + other.start
        a, b = flat[rows, first, :3], flat[rows, second, :3]
        direction = (a - b) / (a - b).norm(dim=-1, keepdim=True).clamp(min=1e-12)
        surface = (b + flat[rows, second, 3:] * direction).cpu().numpy()
        for i in torch.nonzero(~(depth <= -margin))[:, 0].tolist():
            index = (*divmod(int(rows[i]), spheres.shape[1]), int(first[i]))
            obstacle = pairs.sphere_links[int(second[i])]
            contacts.append(_Contact(index, obstacle, float(depth[i]), surface[i], True))
    return contacts
