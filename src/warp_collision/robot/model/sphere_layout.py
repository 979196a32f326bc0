"""The spheres of a robot, sorted by frames, and their tables for the kernels."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.launching.deferred_free import keep_for_graphs
from warp_collision.queries import dispatch
from warp_collision.queries.constants import Constant
from warp_collision.robot.fitting.sphere_arrays import moved
from warp_collision.robot.model.convex_pieces import ConvexPiece
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.kinematics import Kinematics
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_tables import (
    RobotTables,
    pack_pairs,
    pack_robot,
    without_links,
)
from warp_collision.robot.model.sphere_model import Body


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
        parents = [joint.parent for joint in tree.moving]
        content = np.array([len(parents), *parents, *frames], dtype=np.int64)
        self._frames_key = hashlib.blake2b(content.tobytes()).hexdigest()
        self._tables = Constant(self._packed)
        self._is_present = Constant(self._presence)

    def _pieces_of(self, tree: KinematicTree, names: list[str]) -> list[list[ConvexPiece]]:
        """Convex pieces of each body with spheres, in the frames of `kinematics`.

        If any body has some, others have their spheres.
        """
        found = []
        has_pieces = any(body.pieces for body in self.bodies.values())
        for body in (self.bodies[name] for name in names):
            turn = self.kinematics.joint_from_frame[tree.link_frame[body.link]]
            pose = np.linalg.inv(turn) @ tree.frame_from_link[body.link]
            if len(body.spheres):
                found.append(body.pieces_in(pose) if has_pieces else [])
        return found

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

    def tables(self, device: torch.device) -> RobotTables:
        """Tables for the kernels of joint paths."""
        return self._tables.on(device)

    def _packed(self, device: torch.device) -> RobotTables:
        tables = pack_robot(self.kinematics, self.sphere_links, self._pieces, device)
        if len(self._absent) > 1:
            return without_links(tables, self.sphere_links, self._absent)
        return tables

    def _presence(self, device: torch.device) -> Tensor:
        """(n_envs, n_spheres) bool, which spheres are in which env."""
        rows = [[name not in absent for name in self.sphere_links] for absent in self._absent]
        return torch.tensor(rows, device=device)

    def pair_tables(self, pairs: SelfCollisionPairs, device: torch.device) -> tuple[Tensor, Tensor]:
        """Tables of pairs of links for the same kernels; they belong to the pairs.

        They depend on the frames of spheres too, by whose content the pairs keep them.
        """
        self.require_pairs(pairs)
        name = f"{device} {self._frames_key}"
        self._prepare_pairs(name, pairs, device)
        return keep_for_graphs(getattr(pairs.tables_by_frames, name), device)

    @torch_private.run_while_tracing
    def _prepare_pairs(self, name: str, pairs: SelfCollisionPairs, device: torch.device) -> None:
        if not hasattr(pairs.tables_by_frames, name):
            pack = functools.partial(pack_pairs, self.kinematics, pairs, device)
            setattr(pairs.tables_by_frames, name, dispatch.run_outside(pack, device))
