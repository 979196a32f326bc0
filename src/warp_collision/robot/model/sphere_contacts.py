"""Contacts of a robot with obstacles, by its spheres, and with itself, by its convex pieces too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.kernels.precision import NEGLIGIBLE, ROUND_OFF
from warp_collision.launching.launch import launch
from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.poses import PoseLike
from warp_collision.queries.evaluate import scene_of
from warp_collision.queries.sphere_queries import SCENE_DISTANCE
from warp_collision.robot.model.base_pose import ROOT, root_frames
from warp_collision.robot.model.link_pairs import SelfCollisionPairs, ranges_of_links
from warp_collision.robot.model.sphere_layout import FRAME_POSE, SphereLayout
from warp_collision.world import MeshWorld
from warp_collision.world.scene import Scene


class Contact(NamedTuple):
    """A sphere and what it touches."""

    index: tuple[int, int, int]  # batch, waypoint, sphere
    obstacle: str
    depth: float
    point: np.ndarray
    with_itself: bool

    @property
    def order(self) -> tuple[float, tuple[int, int, int]]:
        """By which contacts are sorted: the deepest one first."""
        return -np.inf if np.isnan(self.depth) else -self.depth, self.index

    def worse_than(self, other: Contact | None) -> bool:
        """Whether this is deeper; NaN is deeper than any number."""
        return other is None or not (self.depth <= other.depth or np.isnan(other.depth))


def contacts_with_world(
    spheres: Tensor, world: MeshWorld, env_index: Tensor | None, margin: float
) -> list[Contact]:
    """Contacts of spheres with all obstacles that are nearer than a margin."""
    flat = spheres.flatten(1, 2)
    enabled = ~(flat[..., 3] < 0.0)
    centers = torch.where(enabled[..., None], flat[..., :3], 0.0).contiguous()
    scene = scene_of(world)
    tables = scene.tables
    nearest = SCENE_DISTANCE.run(centers, scene, env_index)[0]
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
            contacts.append(Contact(sphere, *contact, False))
    return contacts


def _uncertainty(coordinates: Tensor) -> Tensor:
    """Rounding of clearances from coordinates of these lengths, as `precision.uncertainty` [m]."""
    rounding = float(ROUND_OFF) * coordinates
    return torch.where(rounding <= float(NEGLIGIBLE), 0.0, rounding)


def _within_rounding(depth: Tensor, coordinates: Tensor, margin: float) -> Tensor:
    """NaN in place of depths that are below minus the margin by rounding alone."""
    is_open = (depth <= -margin) & (depth + _uncertainty(coordinates) > -margin)
    return torch.where(is_open, torch.nan, depth)


def _one_by_one(tables: SceneTables, env: int, count: int) -> Scene:
    """A scene with each obstacle of an env in an env of its own."""

    def alone(table: Tensor) -> Tensor:
        return table[env, :count].unsqueeze(1).contiguous()

    ones = torch.ones(count, dtype=torch.int32, device=tables.n_meshes.device)
    return Scene(tables.rearranged(alone, alone(tables.mesh_from_world), ones))


def contacts_with_itself(
    spheres: Tensor,
    pairs: SelfCollisionPairs,
    margin: float,
    by_pieces: Tensor | None = None,
) -> list[Contact]:
    """The deepest contact of each pair of links nearer than a margin, by its first sphere.

    Args:
        spheres: (batch, horizon, n_spheres, 4).
        pairs: of links.
        margin: [m].
        by_pieces: (batch * horizon, n_pairs) [m], clearance of their shapes where it is known.
    """
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
        if by_pieces is not None:
            depth = torch.minimum(depth, -by_pieces[rows, k].to(depth))
        first, second = deepest // gaps.shape[2], deepest % gaps.shape[2]
        first, second = first + one.start, second + other.start
        a, b = flat[rows, first, :3], flat[rows, second, :3]
        direction = (a - b) / (a - b).norm(dim=-1, keepdim=True).clamp(min=1e-12)
        surface = (b + flat[rows, second, 3:] * direction).cpu().numpy()
        for i in torch.nonzero(~(depth <= -margin))[:, 0].tolist():
            index = (*divmod(int(rows[i]), spheres.shape[1]), int(first[i]))
            obstacle = pairs.sphere_links[int(second[i])]
            contacts.append(Contact(index, obstacle, float(depth[i]), surface[i], True))
    return contacts


def shape_gaps(
    joints: Tensor, layout: SphereLayout, pairs: SelfCollisionPairs, margin: float
) -> Tensor | None:
    """Clearance (n, n_pairs) float32 [m] of pairs of links by their convex pieces.

    A lower bound, found to rounding below the margin; far below 0 where they touch or one of them
    has none. None if the robot has none.

    Args:
        joints: (n, n_joints).
        layout: the bodies.
        pairs: of links.
        margin: [m].
    """
    from warp_collision.kernels.piece_gaps import piece_gaps  # few processes need it

    device = joints.device
    robot, (body_pairs, _) = layout.tables(device), layout.pair_tables(pairs, device)
    if len(robot.pieces) == 0:
        return None
    values = joints.detach().float().contiguous()
    gaps = values.new_empty((len(values), len(pairs)))
    frame_poses = values.new_empty((len(values), len(robot.frames), FRAME_POSE))
    limit = torch.full((1,), margin, device=device)
    operands = values, robot, body_pairs, limit, frame_poses, gaps
    launch(piece_gaps, values.shape[:1], *operands, device=device, items=64 * gaps.numel())
    return gaps


def gaps_from_obstacles(
    joints: Tensor,
    layout: SphereLayout,
    world: MeshWorld,
    base_pose: PoseLike | None,
    asked: Sequence[tuple[int, int, int, int]],
    margin: float,
) -> Tensor:
    """Clearance (n,) float32 [m] of bodies from obstacles by their convex pieces; see `shape_gaps`.

    Args:
        joints: (batch, horizon, n_joints).
        layout: the bodies.
        world: the obstacles.
        base_pose: of the root, for the first axes of the joints.
        asked: n times the row of the joints, the body, the env and the obstacle in it.
        margin: [m].
    """
    from warp_collision.kernels.obstacle_gaps import obstacle_gaps  # few processes need it

    device = world.device
    values = joints.detach().to(device, torch.float32).flatten(0, 1).contiguous()
    roots = root_frames(base_pose, joints)
    if roots is not None and roots.shape[:2].numel() > 1:
        roots = roots.reshape(*roots.shape[:2], ROOT).expand(*joints.shape[:2], ROOT)
        roots = roots.reshape(-1, 1, ROOT).contiguous()
    robot, scene = layout.tables(device), scene_of(world)
    rows = torch.tensor(asked, dtype=torch.int32, device=device).reshape(-1, 4)
    gaps = values.new_empty(len(rows))
    frame_poses = values.new_empty((len(rows), len(robot.frames), FRAME_POSE))
    limit = torch.full((1,), margin, device=device)
    operands = rows, values, scene.completed(), robot, roots, limit, frame_poses, gaps
    launch(obstacle_gaps, rows.shape[:1], *operands, device=device, items=256 * len(rows))
    return gaps


def touching_links(
    joints: Tensor, layout: SphereLayout, pairs: SelfCollisionPairs, margin: float = 0.0
) -> Tensor:
    """Which pairs of links are nearer than a margin [m]: (n, n_pairs) bool.

    Args:
        joints: (n, n_joints).
        layout: the bodies.
        pairs: of links.
        margin: [m].
    """
    with torch.no_grad():
        spheres = pairs.inflate(layout.kinematics.forward(joints))
    found = torch.zeros((len(joints), len(pairs)), dtype=torch.bool, device=joints.device)
    for k, rows, gaps in pairs.near(spheres, margin):
        found[rows, k] = (gaps < margin).flatten(1).any(1)
    by_shapes = shape_gaps(joints, layout, pairs, margin)
    return found if by_shapes is None else found & ~(by_shapes >= margin)
