"""The spheres of a robot, sorted by frames, and their tables for the kernels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.queries import dispatch
from warp_collision.robot.chain import Chain
from warp_collision.robot.kinematics import Kinematics, corner_points, transforms_of
from warp_collision.robot.robot_tables import RobotTables, pack_pairs, pack_robot, without_links
from warp_collision.robot.self_collision import SelfCollisionPairs
from warp_collision.robot.sphere_models import Body, moved


def only_where(mask: Tensor, spheres: Tensor) -> Tensor:
    """Spheres (..., 4), disabled where a mask (...) is false."""
    radii = torch.where(mask, spheres[..., 3], -1.0)
    return torch.cat((spheres[..., :3], radii.unsqueeze(-1)), dim=-1)


class LinkFrames:
    """Transforms of the links.

    Args:
        chain: the moving frames.
        names: of the links, in the order of their transforms.
    """

    def __init__(self, chain: Chain, names: Sequence[str]):
        frames = np.array([chain.link_frame[name] for name in names])
        order = np.argsort(frames, kind="stable")
        self._inverse_order = torch.from_numpy(np.argsort(order))
        corners = corner_points(np.stack([chain.frame_from_link[name] for name in names])[order])
        self._kinematics = Kinematics(
            chain.moving, len(chain.joint_names), np.repeat(frames[order], 4), corners
        )

    def forward(self, joints: Tensor) -> Tensor:
        """Points (..., n_points, 4) in the frame of the root link, four of each link."""
        return self._kinematics.forward(joints)

    def transforms(self, points: Tensor) -> Tensor:
        """Transforms (..., n_links, 4, 4) from these points, in any frame."""
        corners = points.unflatten(-2, (-1, 4))
        return transforms_of(corners).index_select(-3, self._inverse_order.to(points.device))


class _Known:
    """Tables that are known, as attributes.

    Compilers see attributes that appear while they trace, but not items of a dictionary.
    """


class _KnownPairs(NamedTuple):
    """Pairs, kept alive as they are known by their identity, and their tables."""

    pairs: SelfCollisionPairs
    tables: tuple[Tensor, Tensor]


class SphereLayout:
    """The spheres of a set of bodies, in the order in which kernels read them.

    Args:
        chain: the moving frames.
        bodies: by name; spheres of one frame keep this order.
        only_in: envs of the bodies that are not in all envs.

    Attributes:
        bodies: as given.
        names: of all links and bodies.
        sphere_links: for each sphere the name of its body. Those of one frame are consecutive.
        kinematics: of the spheres.
    """

    def __init__(
        self, chain: Chain, bodies: Mapping[str, Body], only_in: Mapping[str, frozenset[int]]
    ):
        self.bodies = dict(bodies)
        # By env, the bodies that are not in it; the last one is for all further envs.
        n_envs = 2 + max(itertools.chain(*only_in.values())) if only_in else 1
        self._absent = [
            frozenset(name for name, envs in only_in.items() if env not in envs)
            for env in range(n_envs)
        ]
        self.names = tuple(dict.fromkeys((*chain.link_frame, *bodies)))
        names = sorted(bodies, key=lambda name: chain.link_frame[bodies[name].link])  # stable
        counts = [len(bodies[name].spheres) for name in names]
        self.sphere_links = tuple(np.repeat(np.array(names, dtype=object), counts))
        points, frames = [np.empty((0, 4))], []
        for name in names:
            link = bodies[name].link
            points.append(moved(bodies[name].spheres, chain.frame_from_link[link]))
            frames += [chain.link_frame[link]] * len(bodies[name].spheres)
        self.kinematics = Kinematics(
            chain.moving, len(chain.joint_names), np.array(frames), np.concatenate(points)
        )
        self._known = _Known()

    def in_env(self, spheres: Tensor, env_index: Tensor | None) -> Tensor:
        """Disables the spheres (batch, ..., n_spheres, 4) that are not in the env of their row.

        Args:
            spheres: of all bodies.
            env_index: (batch,) integers; env 0 for all if None.
        """
        if len(self._absent) == 1:
            return spheres
        is_present = torch.tensor(
            [[name not in absent for name in self.sphere_links] for absent in self._absent],
            device=spheres.device,
        )
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

    def tables(self, device: torch.device, without: frozenset[str] = frozenset()) -> RobotTables:
        """Tables for the kernels of joint paths, without the spheres of some bodies."""
        name = f"{device} {sorted(without)}" if without else str(device)
        self._prepare(name, device, without)
        return getattr(self._known, name)

    @torch_private.run_while_tracing
    def _prepare(self, name: str, device: torch.device, without: frozenset[str]) -> None:
        if not hasattr(self._known, name):
            known = dispatch.run_outside(lambda: self._packed(device, without), device)
            setattr(self._known, name, known)

    def _packed(self, device: torch.device, without: frozenset[str]) -> RobotTables:
        if without:
            return without_links(self.tables(device), self.sphere_links, [without])
        known = pack_robot(self.kinematics, self.sphere_links, device)
        if len(self._absent) > 1:
            return without_links(known, self.sphere_links, self._absent)
        return known

    def pair_tables(self, pairs: SelfCollisionPairs, device: torch.device) -> tuple[Tensor, Tensor]:
        """Tables of pairs of spheres for the same kernels."""
        self.require_pairs(pairs)
        name = f"{device} {id(pairs)}"
        self._prepare_pairs(name, pairs, device)
        return getattr(self._known, name).tables

    @torch_private.run_while_tracing
    def _prepare_pairs(self, name: str, pairs: SelfCollisionPairs, device: torch.device) -> None:
        if not hasattr(self._known, name):
            pack = functools.partial(pack_pairs, self.kinematics, pairs, device)
            setattr(self._known, name, _KnownPairs(pairs, dispatch.run_outside(pack, device)))
