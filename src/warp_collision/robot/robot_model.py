"""A robot as spheres on the links of a tree of joints: kinematics, pairs, kernels' tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.robot.interpolation import Interpolated, cut, parts_for
from warp_collision.robot.kinematics import (
    CORNERS,
    Kinematics,
    MovingJoint,
    corner_points,
    transforms_of,
)
from warp_collision.robot.robot_tables import RobotTables, pack_pairs, pack_robot
from warp_collision.robot.self_collision import (
    SelfCollisionPairs,
    pairs_of_links,
    without_far,
    without_touching,
)


class RobotModel:
    """What `RobotSpheres` is once its files are read."""

    joint_names: tuple[str, ...]
    joint_limits: Tensor
    link_names: tuple[str, ...]
    sphere_links: tuple[str, ...]

    def _build(
        self,
        joints: Sequence[MovingJoint],
        sphere_frames: np.ndarray,
        spheres: np.ndarray,
        link_frames: np.ndarray,
        frame_from_link: np.ndarray,
        adjacent: Sequence[tuple[str, str]],
    ) -> None:
        """Builds the kinematics, once the attributes are set.

        Args:
            joints: that move, parents before children.
            sphere_frames: (n_spheres,) the frame of each sphere: 0 for the root, i + 1 for what
                joint i moves.
            spheres: (n_spheres, 4) x, y, z in the frame of the joint, radius [m].
            link_frames: (n_links,) the frame of each link.
            frame_from_link: (n_links, 4, 4).
            adjacent: pairs of links that a joint connects, moving or fixed.
        """
        self._kinematics = Kinematics(joints, self.n_joints, sphere_frames, spheres)
        self._adjacent = tuple(adjacent)
        order = np.argsort(link_frames, kind="stable")
        self._link_corners = Kinematics(
            joints,
            self.n_joints,
            np.repeat(link_frames[order], len(CORNERS)),
            corner_points(frame_from_link[order]),
        )
        self._link_places = torch.from_numpy(np.argsort(order))
        self._tables: dict[torch.device, RobotTables] = {}
        self._pair_tables: dict[Any, tuple[Tensor, Tensor]] = {}

    @property
    def n_joints(self) -> int:
        """Number of joint values."""
        return len(self.joint_names)

    @property
    def n_spheres(self) -> int:
        """Number of spheres."""
        return len(self.sphere_links)

    def __call__(self, joints: Tensor) -> Tensor:
        """Moves the spheres to joint values.

        Args:
            joints: (..., n_joints) float32 or float64 on any device [rad, prismatic: m]. Values
                beyond the joint limits are accepted.

        Returns:
            (..., n_spheres, 4) spheres x, y, z, radius in the world frame [m], in the dtype and on
            the device of `joints`, differentiable.

        Raises:
            TypeError: `joints` is not a float32 or float64 tensor.
            ValueError: Its last dimension is not n_joints.
        """
        self.check_joints(joints)
        return self._kinematics.place(joints)

    def link_transforms(self, joints: Tensor) -> Tensor:
        """Returns world_from_link (..., n_links, 4, 4) for joints (..., n_joints), as in a call."""
        self.check_joints(joints)
        corners = self._link_corners.place(joints).unflatten(-2, (-1, len(CORNERS)))
        return transforms_of(corners).index_select(-3, self._link_places.to(joints.device))

    def self_collision_pairs(self, *, ignore: Iterable[tuple[str, str]] = ()) -> SelfCollisionPairs:
        """The pairs of spheres that count for the robot with itself.

        All of different links, but for links that a joint connects or fixed joints make one body,
        pairs of links that are to be ignored, and pairs of spheres that touch at all of 1,000
        random joint values within the limits.

        Args:
            ignore: pairs of link names, in any order.

        Raises:
            ValueError: a link that the robot has not.

        Example:
            >>> from warp_collision.cli.demo import load_panda
            >>> pairs = load_panda().self_collision_pairs(ignore=[("panda_link5", "panda_link7")])
            >>> len(pairs), len(pairs.touching)
            (1056, 0)
        """
        frames = self._kinematics.point_frames
        pairs = pairs_of_links(self.sphere_links, frames, self.link_names, self._adjacent, ignore)
        return without_touching(pairs, self._random_spheres(1000, torch.float64))

    def find_pairs(
        self,
        n_samples: int,
        *,
        margin: float = 0.0,
        ignore: Iterable[tuple[str, str]] = (),
        generator: torch.Generator | None = None,
    ) -> SelfCollisionPairs:
        """The pairs of `self_collision_pairs` that come near at random joint values.

        Fewer pairs are faster. But nothing is proven of the pairs that are left out, which may
        touch between the samples; they are listed in `never_near`.

        Args:
            n_samples: number of random joint values within the limits.
            margin: clearance [m] that counts as near.
            ignore: see `self_collision_pairs`.
            generator: of the joint values; the same in every call if None.
        """
        validate.require_count("n_samples", n_samples)
        samples = self._random_spheres(n_samples, torch.float32, generator)
        return without_far(self.self_collision_pairs(ignore=ignore), samples, margin)

    def interpolate(
        self, joints: Tensor, max_deviation: float, *, odd: bool = False
    ) -> Interpolated:
        """Cuts segments of joint paths, so that straight chords are close to the spheres' arcs.

        The number of parts is the same for the whole batch: the smallest that a bound of the
        spheres' second derivatives allows. Continuous joints go the way of the numbers, they do not
        wrap.

        Args:
            joints: (batch, horizon, n_joints) [rad, prismatic: m]; the result is differentiable.
            max_deviation: [m], of the chords from the arcs of all spheres.
            odd: whether the number of parts must be odd, so that middles of segments are in one.

        Raises:
            ValueError: joints that are not finite, or too far apart for the deviation.

        Example:
            >>> import torch
            >>> from warp_collision.cli.demo import load_panda
            >>> path = torch.tensor([[[0, 0, 0, -1.6, 0, 1.6, 0.8], [0.5, 0, 0, -1.6, 0, 1.6, 0]]])
            >>> found = load_panda().interpolate(path, max_deviation=1e-3)
            >>> found.parts, tuple(found.joints.shape)
            (6, (1, 7, 7))
        """
        self.check_joints(joints)
        if joints.ndim != 3:
            shape = f"(batch, horizon, {self.n_joints})"
            raise ValueError(f"joints must have shape {shape}, got {validate.shape_of(joints)}")
        limit = validate.scalar_operand(
            "max_deviation", max_deviation, joints.device, positive=True
        )
        parts = parts_for(joints, self.tables(joints.device), limit)
        return cut(joints, parts + 1 if odd and parts % 2 == 0 else parts)

    def _random_spheres(
        self, count: int, dtype: torch.dtype, generator: torch.Generator | None = None
    ) -> Tensor:
        """Spheres (count, n_spheres, 4) at joint values within the limits."""
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        low, high = self.joint_limits.to(dtype).clamp(-torch.pi, torch.pi).unbind(-1)
        draw = torch.rand((count, self.n_joints), generator=generator, dtype=dtype)
        with torch.no_grad():
            return self(low + draw * (high - low))

    @cached_property
    def default_pairs(self) -> SelfCollisionPairs:
        """What `self_collision_pairs` returns without arguments, found once."""
        return self.self_collision_pairs()

    def tables(self, device: torch.device) -> RobotTables:
        """The robot as the kernels of joint paths read it."""
        known = self._tables.get(device)
        if known is None:
            known = pack_robot(self._kinematics, self.sphere_links, device)
            self._tables[device] = known
        return known

    def pair_tables(self, pairs: SelfCollisionPairs, device: torch.device) -> tuple[Tensor, Tensor]:
        """Pairs of spheres of this robot as the same kernels read them."""
        known = self._pair_tables.get((pairs, device))
        if known is None:
            if pairs.sphere_links != self.sphere_links:
                raise ValueError("self_collision must be pairs of this robot, got another one's")
            known = pack_pairs(self._kinematics, pairs, device)
            self._pair_tables[pairs, device] = known
        return known

    def check_joints(self, joints: Tensor) -> None:
        """Requires joint values (..., n_joints)."""
        if not isinstance(joints, Tensor) or joints.dtype not in (torch.float32, torch.float64):
            kind = joints.dtype if isinstance(joints, Tensor) else type(joints).__name__
            raise TypeError(f"joints must be a float32 or float64 tensor, got {kind}")
        if joints.ndim == 0 or joints.shape[-1] != self.n_joints:
            raise ValueError(
                f"joints must have shape (..., {self.n_joints}), one value for each of "
                f"{', '.join(self.joint_names)}, got {tuple(joints.shape)}"
            )
