"""The spheres of a robot, sorted by frames, and their tables for the kernels."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import torch_private
from warp_collision.devices import CPU
from warp_collision.kernels.robot_motion import RobotBody
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.messages import short_repr
from warp_collision.queries import dispatch
from warp_collision.queries.constants import Constant
from warp_collision.robot.fitting.sphere_arrays import moved
from warp_collision.robot.model.convex_pieces import ConvexPiece
from warp_collision.robot.model.kinematic_tree import KinematicTree, ancestors
from warp_collision.robot.model.kinematics import Kinematics, as_bytes, ranges_of_frames, zeros_of
from warp_collision.robot.model.link_pairs import (
    SelfCollisionPairs,
    TablesByName,
    groups_of_links,
    ranges_of_links,
)
from warp_collision.robot.model.link_surface import (
    LinkSurface,
    farthest,
    piece_rows,
    rows_of_leaves,
)
from warp_collision.robot.model.sphere_model import Body

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
_MOST_ROWS = 1 << 24  # of pieces and surfaces: kernels have their numbers as float32
_MOST_WIDENED = 8  # layouts that are kept, and tables of pairs by each of them


class RobotTables(NamedTuple):
    """Tables, named as the fields of the kernels' `Robot` struct.

    Attributes:
        frames: (n_frames, bytes) uint8, structs `RobotFrame`.
        bodies: (n_envs * n_bodies, bytes) uint8, structs `RobotBody`; those of the last env are for
            all further envs.
        ranges: (n_frames, 2) int32, begin and end of the bodies of each frame.
        spheres: (n_spheres, 4) float32 in their frames.
        groups: (n_groups, 4) float32, balls around the spheres of groups, in their frames.
        pieces: (n, 4) float32, the convex pieces of bodies, in their frames, see `_convex_rows`.
        reach: of the farthest sphere, without prismatic travel [m].
        n_envs: tables of bodies; 1 if the robot is the same in all envs.
        fields: what `values` gives, of tables that many launches read: these are private, and never
            move.
    """

    frames: Tensor
    bodies: Tensor
    ranges: Tensor
    spheres: Tensor
    groups: Tensor
    pieces: Tensor
    reach: float
    n_envs: int
    fields: tuple[float, ...] = ()

    @property
    def n_bodies(self) -> int:
        """Number of links, or attached objects, with spheres."""
        return self.bodies.shape[0] // self.n_envs  # `len` of a tensor takes longer

    def operands(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, int]:
        """The arguments of operators."""
        return *self[:6], self.reach, self.n_envs

    @classmethod
    def of(cls, *operands: Any) -> RobotTables:
        """From the arguments of operators."""
        return cls(*operands)

    def values(self) -> tuple[float, ...]:
        """The fields of a `Robot`."""
        if self.fields:
            return self.fields
        addresses = (tensor.data_ptr() for tensor in self[:6])
        return *addresses, self.frames.shape[0], self.n_bodies, self.n_envs, 0, self.reach


class _OfPairs(NamedTuple):
    """Tables of pairs on a device."""

    pairs: SelfCollisionPairs
    device: torch.device
    tables: tuple[Tensor, Tensor]


def only_where(mask: Tensor, spheres: Tensor) -> Tensor:
    """Spheres (..., 4), disabled where a mask (...) is false."""
    radii = torch.where(mask, spheres[..., 3], -1.0)
    return torch.cat((spheres[..., :3], radii.unsqueeze(-1)), dim=-1)


class SphereLayout:
    """The spheres of a set of bodies, in the order in which kernels read them.

    Args:
        tree: the moving frames.
        bodies: by name; spheres of one frame keep this order.

    Attributes:
        bodies: as given.
        frame_of: the moving frame of each body.
        names: of all links and bodies.
        sphere_links: for each sphere the name of its body. Those of one frame are consecutive.
        kinematics: of the spheres.
        rows_by_name: tables of rows of its links, see `link_rows`.
    """

    def __init__(self, tree: KinematicTree, bodies: Mapping[str, Body]):
        self.bodies = dict(bodies)
        self.frame_of = {name: tree.link_frame[body.link] for name, body in bodies.items()}
        only_in = {name: body.envs for name, body in bodies.items() if body.envs is not None}
        # By env, the bodies that are not in it; the last one is for all further envs.
        n_envs = 2 + max(itertools.chain(*only_in.values())) if only_in else 1
        self._absent = [
            frozenset(name for name, envs in only_in.items() if env not in envs)
            for env in range(n_envs)
        ]
        self.names = tuple(dict.fromkeys((*tree.link_frame, *bodies)))
        names = sorted(bodies, key=lambda name: self.frame_of[name])  # stable
        counts = [len(bodies[name].spheres) for name in names]
        self.sphere_links = tuple(np.repeat(np.array(names, dtype=object), counts))
        points, frames = [np.empty((0, 4))], []
        for name in names:
            body = bodies[name]
            points.append(moved(body.spheres, tree.frame_from_link[body.link]))
            frames += [self.frame_of[name]] * len(body.spheres)
        self.kinematics = Kinematics(
            tree.moving, len(tree.joint_names), np.array(frames), np.concatenate(points)
        )
        self._pieces = self._pieces_of(tree, names)
        self._poses = {name: self._pose_of(tree, bodies[name]) for name in names}
        parents = [joint.parent for joint in tree.moving]
        content = np.array([len(parents), *parents, *frames], dtype=np.int64)
        self._frames_key = hashlib.blake2b(content.tobytes()).hexdigest()
        self._tables = Constant(self._packed)
        self._is_present = Constant(self._presence)
        self._tree, self._asked = tree, 0.0
        self._widened: tuple[SphereLayout, ...] = ()  # the last ones
        self._pairs_of_widened: tuple[_OfPairs, ...] = ()  # the last ones, too
        self._of_graphs = TablesByName()
        self.rows_by_name = TablesByName()

    def __getstate__(self) -> dict[str, Any]:
        """Without tables, see `Constant`."""
        return self.__dict__ | {"_widened": (), "_pairs_of_widened": ()}

    def widened(self, length: float) -> SphereLayout:
        """The same bodies with radii larger by a length [m], but not to each other.

        Larger by more than it: what is as far as that from them is so with the rounding of float32.
        """
        if is_compiling():
            return getattr(self._of_graphs, self._widen_for_graphs(length))
        return self._widened_by(length)

    @torch_private.run_while_tracing
    def _widen_for_graphs(self, length: float) -> str:
        """Keeps the layout for a graph, which reads an attribute of this name."""
        layout = self._widened_by(length)
        setattr(self._of_graphs, layout._frames_key, layout)
        return layout._frames_key

    def _widened_by(self, length: float) -> SphereLayout:
        """One of the last ones, or a new one."""
        for layout in self._widened:
            if layout._asked == length:
                return layout
        added = length * _SCALE + _MARGIN
        bodies = {name: body.widened(added) for name, body in self.bodies.items()}
        layout = SphereLayout(self._tree, bodies)
        # Compilers take names apart at points.
        layout._asked, name = length, repr(length).replace(".", " ")
        layout._frames_key = f"{self._frames_key} {name}"
        self._widened = (layout, *self._widened[: _MOST_WIDENED - 1])
        return layout

    def _pieces_of(self, tree: KinematicTree, names: list[str]) -> list[list[ConvexPiece]]:
        """Convex pieces of each body with spheres, in the frames of `kinematics`.

        If any body has some, others have their spheres.
        """
        found = []
        has_pieces = any(body.pieces for body in self.bodies.values())
        for body in (self.bodies[name] for name in names):
            pose = self._pose_of(tree, body)
            if len(body.spheres):
                found.append(body.pieces_in(pose) if has_pieces else [])
        return found

    def _pose_of(self, tree: KinematicTree, body: Body) -> np.ndarray:
        """(4, 4) of a body's link in the frame that kernels have for it."""
        turn = self.kinematics.joint_from_frame[tree.link_frame[body.link]]
        return np.linalg.inv(turn) @ tree.frame_from_link[body.link]

    def _with_surfaces(self, rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Rows (n, 4) of pieces, and behind them of surfaces; where each begins, 0 without.

        If the pieces of any body follow its shapes loosely, others have surfaces of pieces alone.
        """
        names, none = [*dict.fromkeys(self.sphere_links)], [0] * len(self._pieces)
        if not any(self.bodies[name].surface for name in names):
            return rows, none
        parts, begins, count = [rows], [], len(rows)
        for name, pieces in zip(names, self._pieces, strict=True):
            surface = self.bodies[name].surface or LinkSurface.of_solids(len(pieces))
            begins.append(count if pieces else 0)
            if pieces:
                part = surface.rows_in(self._poses[name], pieces).copy()
                part[rows_of_leaves(part), 3] += count
                parts.append(part)
                count += len(part)
        return (np.concatenate(parts), begins) if count < _MOST_ROWS else (rows, none)

    def in_env(self, spheres: Tensor, env_index: Tensor | None) -> Tensor:
        """Disables the spheres (batch, ..., n_spheres, 4) that are not in the env of their row.

        Args:
            spheres: of all bodies.
            env_index: (batch,) integers; env 0 for all if None.
        """
        if len(self._absent) == 1:
            return spheres
        is_present = self._is_present.on(spheres.device)
        if env_index is None:
            return only_where(is_present[0], spheres)
        mask = is_present[env_index.long().clamp(0, len(self._absent) - 1)]
        return only_where(mask.reshape(len(mask), *(1,) * (spheres.ndim - 3), -1), spheres)

    def require_pairs(self, pairs: SelfCollisionPairs) -> None:
        """Requires pairs of these spheres."""
        if not isinstance(pairs, SelfCollisionPairs):
            raise TypeError(
                f"self_collision must be a bool or SelfCollisionPairs, got {type(pairs).__name__}"
            )
        if pairs.sphere_links != self.sphere_links:
            raise ValueError(
                "self_collision must be pairs of this robot with what is attached to it, got "
                "another one's"
            )

    def is_exact(self, shapes: object) -> bool:
        """Whether convex pieces are asked for: "exact", not "spheres"; bodies must have some."""
        if shapes not in ("spheres", "exact"):
            raise ValueError(f"shapes must be 'spheres' or 'exact', got {short_repr(shapes)}")
        if shapes == "exact" and not any(body.pieces for body in self.bodies.values()):
            raise ValueError(
                "shapes must be 'spheres' for a robot that was given as spheres, got 'exact': "
                "convex pieces of links come from its URDF, where RobotSpheres fits the spheres"
            )
        return shapes == "exact"

    def tables(self, device: torch.device) -> RobotTables:
        """Tables for the kernels of joint paths."""
        return self._tables.on(device)

    def _packed(self, device: torch.device) -> RobotTables:
        points, n_frames = self.kinematics.local_points, self.kinematics.n_frames
        links = ranges_of_links(self.sphere_links)
        groups, groups_of = groups_of_links(links)
        balls = _kept_balls(points.tobytes(), np.concatenate((groups, links)).tobytes())
        of_groups, of_links = slice(len(groups)), slice(len(groups), None)
        bodies = zeros_of(RobotBody, len(links))
        owners = self.kinematics.point_frames[links[:, 0]]
        bodies["frame"], bodies["first_group"] = owners, groups_of[:, 0]
        bodies["begin"], bodies["end"] = links.T
        bodies["center"], bodies["radius"], bodies["spread"] = (part[of_links] for part in balls)
        pieces, bodies["first_piece"] = _convex_rows(self._pieces)
        pieces, bodies["surface"] = self._with_surfaces(pieces)
        bodies["n_pieces"] = [*map(len, self._pieces)]
        both = zip(self._pieces, bodies["center"], strict=True)
        bodies["far_piece"] = [farthest(some, center) for some, center in both]
        offsets = np.zeros(n_frames)
        for i, joint in enumerate(self.kinematics.joints, start=1):
            offset = np.linalg.norm(joint.parent_from_joint[:3, 3])
            offsets[i] = offsets[joint.parent] + offset
        with np.errstate(over="ignore"):  # beyond 1e19 m it is infinite, and nothing is free
            far = np.linalg.norm(bodies["center"], axis=1) + bodies["radius"]
        group_balls = np.column_stack((balls.centers[of_groups], balls.radii[of_groups]))
        base = self.kinematics.tables(device)
        tables = RobotTables(
            base.frames,
            torch.from_numpy(as_bytes(self._in_envs(bodies))).to(device),
            torch.from_numpy(ranges_of_frames(owners, n_frames)).to(device),
            base.points,
            torch.from_numpy(group_balls.astype(np.float32)).to(device),
            torch.from_numpy(pieces).to(device),
            float((offsets[owners] + far).max(initial=0.0)),
            len(self._absent),
        )
        return tables._replace(fields=tables.values())

    def _in_envs(self, bodies: np.ndarray) -> np.ndarray:
        """Structs `RobotBody` of all envs, from those of bodies that are in all."""
        names = [*dict.fromkeys(self.sphere_links)]
        copies = np.tile(bodies, (len(self._absent), 1))
        for copy, absent in zip(copies, self._absent, strict=True):
            # So far below 0 that the sum with any other radius and buffer is negative.
            copy["radius"][[name in absent for name in names]] = _ABSENT_RADIUS
        return copies.reshape(-1)

    def _presence(self, device: torch.device) -> Tensor:
        """(n_envs, n_spheres) bool, which spheres are in which env."""
        rows = [[name not in absent for name in self.sphere_links] for absent in self._absent]
        return torch.tensor(rows, device=device)

    def pair_tables(self, pairs: SelfCollisionPairs, device: torch.device) -> tuple[Tensor, Tensor]:
        """Tables of pairs of links for the same kernels; they belong to the pairs.

        They depend on the frames of spheres too, by whose content the pairs keep them. A layout
        that is widened keeps its own, which go with it.
        """
        self.require_pairs(pairs)
        if self._asked and not is_compiling():
            return keep_for_graphs(self._pair_tables_of_widened(pairs, device), device)
        name = f"{device} {self._frames_key}"
        if is_compiling() or not hasattr(pairs.tables_by_frames, name):
            self._prepare_pairs(name, pairs, device)
        tables = getattr(pairs.tables_by_frames, name)
        return tables if device == CPU else keep_for_graphs(tables, device)

    def _pair_tables_of_widened(
        self, pairs: SelfCollisionPairs, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        for kept in self._pairs_of_widened:
            if kept.pairs is pairs and kept.device == device:
                return kept.tables
        pack = functools.partial(self._packed_pairs, pairs, device)
        made = _OfPairs(pairs, device, dispatch.run_outside(pack, device))
        self._pairs_of_widened = (made, *self._pairs_of_widened[: _MOST_WIDENED - 1])
        return made.tables

    @torch_private.run_while_tracing
    def _prepare_pairs(self, name: str, pairs: SelfCollisionPairs, device: torch.device) -> None:
        if not hasattr(pairs.tables_by_frames, name):
            pack = functools.partial(self._packed_pairs, pairs, device)
            setattr(pairs.tables_by_frames, name, dispatch.run_outside(pack, device))

    def _packed_pairs(
        self, pairs: SelfCollisionPairs, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Structs `BodyPair` (n, bytes) uint8, and pairs of spheres left out (m, 2) int32."""
        tables = pairs.tables(torch.device("cpu"))
        link_pairs = tables.link_pairs.numpy()
        records = zeros_of(BodyPair, len(link_pairs))
        records["first"], records["second"], records["begin"], records["end"] = link_pairs.T
        first_spheres = ranges_of_links(pairs.sphere_links)[:, 0]
        if pairs.buffers is not None:
            buffers = pairs.buffers[first_spheres]
            records["buffer"] = buffers[link_pairs[:, :2]].sum(axis=1)
        # Of what the radii are larger by; the rounding of that is less than `_MARGIN`.
        records["buffer"] -= 2.0 * self._asked
        joints, frames = self.kinematics.joints, self.kinematics.point_frames[first_spheres]
        of_links = [ancestors(joints, frame) for frame in frames]
        for record, (first, second) in zip(records, link_pairs[:, :2].tolist(), strict=True):
            common = (frame for frame in of_links[first] if frame in of_links[second])
            record["ancestor"] = next(common)
        with torch.inference_mode(False):
            return torch.from_numpy(as_bytes(records)).to(device), tables.left_out.to(device)


def _convex_rows(pieces: Sequence[Sequence[ConvexPiece]]) -> tuple[np.ndarray, list[int]]:
    """Rows (n, 4) float32 of the pieces of bodies, as kernels read them, and where each begins."""
    rows, begins, count = [np.empty((0, 4), dtype=np.float32)], [], 0
    for some in pieces:
        begins.append(count)
        for piece in some:
            rows.append(piece_rows(piece).astype(np.float32))
            count += len(rows[-1])
    return np.concatenate(rows), begins


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


@functools.lru_cache(maxsize=32)
def _kept_balls(spheres: bytes, ranges: bytes) -> Balls:
    """`bounding_balls` of float64 and int32 arrays: reading a robot makes three equal layouts."""
    return bounding_balls(
        np.frombuffer(spheres, np.float64).reshape(-1, 4),
        np.frombuffer(ranges, np.int32).reshape(-1, 2),
    )


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
