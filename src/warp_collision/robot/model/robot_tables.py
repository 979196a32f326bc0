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
from warp_collision.robot.model.kinematics import Kinematics, as_bytes, ranges_of_frames, zeros_of
from warp_collision.robot.model.sphere_pairs import SelfCollisionPairs, ranges_of_links

# Balls are enlarged by more than the rounding of float32: a factor and a length [m].
_SCALE, _MARGIN = 1.0 + 1.0e-6, 1.0e-7
# Radius of the ball of a body that is absent [m].
_ABSENT_RADIUS = -1.0e15
# Numbers of float32 in the structs `FramePose` and `MovingFrame` that kernels keep for each frame.
FRAME_POSE, STATE = 12, 18


class RobotTables(NamedTuple):
    """Tables, named as the fields of the kernels' `Robot` struct.

    Attributes:
        frames: (n_frames, bytes) uint8, structs `RobotFrame`.
        bodies: (n_envs * n_bodies, bytes) uint8, structs `RobotBody`; those of the last env are for
            all further envs.
        ranges: (n_frames, 2) int32, begin and end of the bodies of each frame.
        spheres: (n_spheres, 4) float32 in their frames.
        reach: of the farthest sphere, without prismatic travel [m].
        n_envs: tables of bodies; 1 if the robot is the same in all envs.
        token: a recorded launch that saw this number last still points to these tensors; 0 for
            tables that it has to write anew.
    """

    frames: Tensor
    bodies: Tensor
    ranges: Tensor
    spheres: Tensor
    reach: float
    token: int
    n_envs: int = 1

    @property
    def n_bodies(self) -> int:
        """Number of links, or attached objects, with spheres."""
        return len(self.bodies) // self.n_envs

    def operands(self) -> tuple[Tensor, Tensor, Tensor, Tensor, float, int]:
        """The arguments of operators."""
        return self.frames, self.bodies, self.ranges, self.spheres, self.reach, self.n_envs

    @classmethod
    def of(cls, *operands: Any) -> RobotTables:
        """From the arguments of operators, for one launch."""
        return cls(*operands[:5], token=0, n_envs=operands[5])

    def addresses(self) -> list[int]:
        """None: these tables are private, and never move."""
        return []

    def write(self, scene: Any) -> None:
        """Writes pointers to these tables into a `Robot`, or into that of a recorded launch."""
        scene.n_frames, scene.n_bodies = len(self.frames), self.n_bodies
        scene.n_envs, scene.first_body = self.n_envs, 0
        scene.reach = self.reach
        for name in self._fields[:4]:
            setattr(scene, name, getattr(self, name).data_ptr())


def pack_robot(
    kinematics: Kinematics, sphere_links: Sequence[str], device: torch.device
) -> RobotTables:
    """Tables of a robot; its bodies are the links, in the order of their spheres."""
    points, frames = kinematics.local_points, kinematics.point_frames.tolist()
    spheres_of = ranges_of_links(sphere_links)
    bodies = zeros_of(RobotBody, len(spheres_of))
    for body, (begin, end) in zip(bodies, spheres_of, strict=True):
        center, radius, spread = bounding_ball(points[begin:end])
        body["frame"], body["begin"], body["end"] = frames[begin], begin, end
        body["center"], body["radius"], body["spread"] = center, radius, spread
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


def bounding_ball(spheres: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Center, radius and spread of a ball around spheres (n, 4); radius -1 if none is enabled.

    Shrinking steps towards the farthest sphere (Badoiu and Clarkson, 2003) approximate the smallest
    ball; any bounding ball is valid.
    """
    spheres = spheres[~(spheres[:, 3] < 0.0)]
    if len(spheres) == 0:
        return np.zeros(3), -1.0, 0.0
    center = spheres[:, :3].mean(axis=0)
    best = center, np.inf
    for step in range(1, 300):
        offsets = spheres[:, :3] - center
        reach = np.linalg.norm(offsets, axis=1) + spheres[:, 3]
        far = int(reach.argmax())
        if reach[far] < best[1]:
            best = center, float(reach[far])
        center = center + offsets[far] / (step + 1)
    center = best[0].astype(np.float32).astype(np.float64)
    distances = np.linalg.norm(spheres[:, :3] - center, axis=1)
    radius = float((distances + spheres[:, 3]).max())
    return center, radius * _SCALE + _MARGIN, float(distances.max()) * _SCALE + _MARGIN


def pack_pairs(
    kinematics: Kinematics, pairs: SelfCollisionPairs, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Structs `BodyPair` (n, bytes) uint8, and the pairs of spheres (n_pairs, 2) int32."""
    tables = pairs.tables(torch.device("cpu"))
    group_pairs = tables.group_pairs.numpy()
    records = zeros_of(BodyPair, len(group_pairs))
    first_spheres = tables.groups.numpy()[:, 0]
    frames = kinematics.point_frames.tolist()
    for record, (first, second, begin, end) in zip(records, group_pairs, strict=True):
        record["first"], record["second"] = first, second
        record["begin"], record["end"] = begin, end
        own, other = (_ancestors(kinematics, frames[first_spheres[b]]) for b in (first, second))
        if pairs.buffers is not None:
            record["buffer"] = sum(pairs.buffers[first_spheres[body]] for body in (first, second))
        record["ancestor"] = next(frame for frame in own if frame in other)
    with torch.inference_mode(False):
        return torch.from_numpy(as_bytes(records)).to(device), tables.pairs.to(device)


def _ancestors(kinematics: Kinematics, frame: int) -> list[int]:
    """A frame and its ancestors, the root last."""
    frames = [frame]
    while frames[-1] != 0:
        frames.append(kinematics.joints[frames[-1] - 1].parent)
    return frames
