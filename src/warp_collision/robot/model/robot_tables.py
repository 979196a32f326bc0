"""Tables of a robot for the kernels of joint paths: frames, spheres, bounding balls of links."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.kernels.robot_motion import RobotBody
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.launching.recorded_launch import new_token
from warp_collision.robot.model.convex_pieces import ConvexPiece
from warp_collision.robot.model.kinematic_tree import ancestors
from warp_collision.robot.model.kinematics import Kinematics, as_bytes, ranges_of_frames, zeros_of
from warp_collision.robot.model.link_pairs import (
    SelfCollisionPairs,
    groups_of_links,
    ranges_of_links,
)

# Radius of the ball of a body that is absent [m].
_ABSENT_RADIUS = -1.0e15
# Numbers of float32 in the structs `FramePose` and `MovingFrame` that kernels keep for each frame.
FRAME_POSE, STATE = 12, 18
# The schema of `RobotTables.operands`.
ROBOT = (
    "Tensor frames, Tensor bodies, Tensor ranges, Tensor spheres, Tensor groups, Tensor pieces, "
    "float reach, int n_envs"
)


# Balls are enlarged by more than the rounding of float32: a factor and a length [m].
_SCALE, _MARGIN = 1.0 + 1.0e-6, 1.0e-7
_STEPS = 300


class RobotTables(NamedTuple):
    """Tables, named as the fields of the kernels' `Robot` struct.

    Attributes:
        frames: (n_frames, bytes) uint8, structs `RobotFrame`.
        bodies: (n_envs * n_bodies, bytes) uint8, structs `RobotBody`; those of the last env are for
            all further envs.
        ranges: (n_frames, 2) int32, begin and end of the bodies of each frame.
        spheres: (n_spheres, 4) float32 in their frames.
        groups: (n_groups, 4) float32, balls around the spheres of groups, in their frames.
        pieces: (n, 4) float32, the convex pieces of bodies, in their frames: rows of `convex_rows`.
        reach: of the farthest sphere, without prismatic travel [m].
        n_envs: tables of bodies; 1 if the robot is the same in all envs.
        token: a recorded launch that saw this number last still points to these tensors; 0 for
            tables that it has to write anew.
    """

    frames: Tensor
    bodies: Tensor
    ranges: Tensor
    spheres: Tensor
    groups: Tensor
    pieces: Tensor
    reach: float
    token: int
    n_envs: int = 1

    @property
    def n_bodies(self) -> int:
        """Number of links, or attached objects, with spheres."""
        return len(self.bodies) // self.n_envs

    def operands(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, int]:
        """The arguments of operators."""
        return *self[:6], self.reach, self.n_envs

    @classmethod
    def of(cls, *operands: Any) -> RobotTables:
        """From the arguments of operators, for one launch."""
        return cls(*operands[:7], token=0, n_envs=operands[7])

    def addresses(self) -> list[int]:
        """None: these tables are private, and never move."""
        return []

    def write(self, scene: Any) -> None:
        """Writes pointers to these tables into a `Robot`, or into that of a recorded launch."""
        scene.n_frames, scene.n_bodies = len(self.frames), self.n_bodies
        scene.n_envs, scene.first_body = self.n_envs, 0
        scene.reach = self.reach
        for name in self._fields[:6]:
            setattr(scene, name, getattr(self, name).data_ptr())


def pack_robot(
    kinematics: Kinematics,
    sphere_links: Sequence[str],
    pieces: Sequence[Sequence[ConvexPiece]],
    device: torch.device,
) -> RobotTables:
    """Tables of a robot; its bodies are the links, in the order of their spheres.

    Args:
        kinematics: of the spheres.
        sphere_links: of the spheres.
        pieces: of each link, in its frame; none if it is its spheres.
        device: of the tables.
    """
    points, frames = kinematics.local_points, kinematics.point_frames
    links = ranges_of_links(sphere_links)
    groups, groups_of = groups_of_links(links)
    balls, group_balls = bounding_balls(points, links), bounding_balls(points, groups)
    bodies = zeros_of(RobotBody, len(links))
    bodies["frame"], bodies["first_group"] = frames[links[:, 0]], groups_of[:, 0]
    bodies["begin"], bodies["end"] = links.T
    bodies["center"], bodies["radius"], bodies["spread"] = balls
    rows, begins = _convex_rows(pieces)
    bodies["first_piece"], bodies["n_pieces"] = begins, [*map(len, pieces)]
    bodies["far_piece"] = [
        _farthest(some, center) for some, center in zip(pieces, bodies["center"], strict=True)
    ]
    owners = bodies["frame"]
    offsets = np.zeros(kinematics.n_frames)
    for i, joint in enumerate(kinematics.joints, start=1):
        offset = np.linalg.norm(joint.parent_from_joint[:3, 3])
        offsets[i] = offsets[joint.parent] + offset
    far = np.linalg.norm(bodies["center"], axis=1) + bodies["radius"]
    reach = float((offsets[owners] + far).max(initial=0.0))
    base = kinematics.tables(device)
    with torch.inference_mode(False):
        return RobotTables(
            base.frames,
            torch.from_numpy(as_bytes(bodies)).to(device),
            torch.from_numpy(ranges_of_frames(owners, kinematics.n_frames)).to(device),
            base.points,
            torch.from_numpy(_rows(group_balls)).to(device),
            torch.from_numpy(rows).to(device),
            reach,
            new_token(),
        )


def without_links(
    tables: RobotTables, sphere_links: Sequence[str], absent: Sequence[frozenset[str]]
) -> RobotTables:
    """Tables repeated for each of some sets of links or objects, without the spheres of these."""
    names = [name for name, _ in itertools.groupby(sphere_links)]
    bodies = tables.bodies.cpu().numpy().copy().view(zeros_of(RobotBody, 0).dtype)
    bodies = np.tile(bodies.reshape(1, len(names)), (len(absent), 1))
    for copy, links in zip(bodies, absent, strict=True):
        # So far below 0 that the sum with any other radius and buffer is negative.
        copy["radius"][[name in links for name in names]] = _ABSENT_RADIUS
    with torch.inference_mode(False):
        packed = torch.from_numpy(as_bytes(bodies.reshape(-1))).to(tables.bodies.device)
        return tables._replace(bodies=packed, token=new_token(), n_envs=len(absent))


def _rows(balls: Balls) -> np.ndarray:
    """(n, 4) float32 x, y, z, radius."""
    return np.column_stack([balls.centers, balls.radii]).astype(np.float32)


def _convex_rows(pieces: Sequence[Sequence[ConvexPiece]]) -> tuple[np.ndarray, list[int]]:
    """Rows (n, 4) float32 of the pieces of bodies, as kernels read them, and where each begins.

    Of a piece a ball around it, the number of its points and its radius, and then the points.
    """
    rows, begins, count = [np.empty((0, 4), dtype=np.float32)], [], 0
    for piece in itertools.chain.from_iterable([None, *some] for some in pieces):
        if piece is None:
            begins.append(count)
            continue
        center = (0.5 * (piece.points.min(axis=0) + piece.points.max(axis=0))).astype(np.float32)
        part = np.zeros((2 + len(piece.points), 4), dtype=np.float32)
        part[0] = *center, _farthest([piece], center) + piece.radius
        part[1, :2] = len(piece.points), piece.radius
        part[2:, :3] = piece.points
        rows.append(part)
        count += len(part)
    return np.concatenate(rows), begins


def _farthest(pieces: Sequence[ConvexPiece], center: np.ndarray) -> float:
    """Largest distance of a point of pieces from a center [m], by more than the rounding above."""
    distances = [np.linalg.norm(piece.points - center, axis=1).max() for piece in pieces]
    return max(distances) * (1.0 + 1.0e-5) + 1.0e-6 if distances else 0.0


def pack_pairs(
    kinematics: Kinematics, pairs: SelfCollisionPairs, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Structs `BodyPair` (n, bytes) uint8, and pairs of spheres that are left out (m, 2) int32."""
    tables = pairs.tables(torch.device("cpu"))
    link_pairs = tables.link_pairs.numpy()
    records = zeros_of(BodyPair, len(link_pairs))
    records["first"], records["second"], records["begin"], records["end"] = link_pairs.T
    first_spheres = ranges_of_links(pairs.sphere_links)[:, 0]
    if pairs.buffers is not None:
        buffers = pairs.buffers[first_spheres]
        records["buffer"] = buffers[link_pairs[:, :2]].sum(axis=1)
    joints, frames = kinematics.joints, kinematics.point_frames[first_spheres]
    of_links = [ancestors(joints, frame) for frame in frames]
    for record, (first, second) in zip(records, link_pairs[:, :2].tolist(), strict=True):
        record["ancestor"] = next(frame for frame in of_links[first] if frame in of_links[second])
    with torch.inference_mode(False):
        return torch.from_numpy(as_bytes(records)).to(device), tables.left_out.to(device)


# -- bounding balls of consecutive spheres --------------------------------------------------------


class Balls(NamedTuple):
    """Bounding balls, float64.

    Attributes:
        centers: (n, 3) exact in float32 [m].
        radii: (n,) [m]; -1 where no sphere is enabled.
        spreads: (n,) largest distance of a sphere's center from that of the ball [m].
    """

    centers: np.ndarray
    radii: np.ndarray
    spreads: np.ndarray


def bounding_balls(spheres: np.ndarray, ranges: np.ndarray) -> Balls:
    """Balls around the enabled spheres of ranges (n, 2) of spheres (n_spheres, 4).

    Shrinking steps towards the farthest sphere (Badoiu and Clarkson, 2003) approximate the smallest
    ball; any bounding ball is valid.
    """
    if len(ranges) == 0:
        return Balls(np.empty((0, 3)), np.empty(0), np.empty(0))
    members = ranges[:, :1] + np.arange(int((ranges[:, 1] - ranges[:, 0]).max()))
    rows = spheres[np.minimum(members, len(spheres) - 1)]
    enabled = (members < ranges[:, 1:]) & ~(rows[..., 3] < 0.0)
    counts = enabled.sum(axis=1)
    centers = np.where(enabled[..., None], rows[..., :3], 0.0).sum(axis=1)
    centers /= np.maximum(counts, 1)[:, None]
    best, least = centers, np.full(len(ranges), np.inf)
    radii = np.where(enabled, rows[..., 3], -np.inf)
    index = np.arange(len(ranges))
    for step in range(1, _STEPS):
        offsets = rows[..., :3] - centers[:, None]
        reach = np.sqrt(np.einsum("ijk,ijk->ij", offsets, offsets)) + radii
        far = reach.argmax(axis=1)
        is_better = reach[index, far] < least
        best = np.where(is_better[:, None], centers, best)
        least = np.where(is_better, reach[index, far], least)
        centers = centers + offsets[index, far] / (step + 1)
    centers = best.astype(np.float32).astype(np.float64)
    distances = np.linalg.norm(rows[..., :3] - centers[:, None], axis=2)
    radii = np.where(enabled, distances + rows[..., 3], 0.0).max(axis=1) * _SCALE + _MARGIN
    spreads = np.where(enabled, distances, 0.0).max(axis=1) * _SCALE + _MARGIN
    is_empty = counts == 0
    centers[is_empty] = 0.0
    return Balls(centers, np.where(is_empty, -1.0, radii), np.where(is_empty, 0.0, spreads))
