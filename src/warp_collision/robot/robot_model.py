"""A robot as spheres on the links of a kinematic tree: kinematics, pairs, tables for kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from warp_collision import torch_private, validate
from warp_collision.messages import MAX_SHOWN, escaped
from warp_collision.obstacles.mesh_obstacle import PoseLike
from warp_collision.queries import dispatch
from warp_collision.robot.interpolation import Interpolated, cut, parts_for
from warp_collision.robot.kinematics import base_operand, with_base_pose
from warp_collision.robot.robot_files import RobotFiles
from warp_collision.robot.robot_tables import RobotTables
from warp_collision.robot.robot_text import robot_text
from warp_collision.robot.self_collision import (
    SelfCollisionPairs,
    pairs_of_links,
    random_joints,
    with_buffers,
    without_far,
    without_touching,
)
from warp_collision.robot.sphere_layout import LinkFrames, SphereLayout
from warp_collision.robot.sphere_models import Body
from warp_collision.world.queries import require_world


class Attachment(NamedTuple):
    """An object attached to a link, other links that it may touch, and its envs, None for all."""

    body: Body
    touch_links: tuple[str, ...]
    envs: frozenset[int] | None = None


def require_robot_and_world(robot: object, world: object) -> None:
    """Requires a robot and a world as the arguments `robot` and `world`, which are easily swapped.

    Raises:
        TypeError: one of them is something else.
    """
    if not isinstance(robot, RobotModel):
        hint = ": robot comes before world" if isinstance(world, RobotModel) else ""
        raise TypeError(f"robot must be a RobotSpheres, got {type(robot).__name__}{hint}")
    require_world(world)


class RobotModel:
    """Kinematics, pairs and tables for kernels of a robot; see `RobotSpheres`.

    Args:
        files: links, joints and spheres.
    """

    def __init__(self, files: RobotFiles):
        self._files = files
        self.link_names = files.link_names
        self.joint_names = files.chain.joint_names
        self.joint_units = files.chain.joint_units
        self.joint_limits = torch.tensor(files.chain.joint_limits, dtype=torch.float32)
        self._link_frames = LinkFrames(files.chain, self.link_names)
        self._attached: dict[str, Attachment] = {}
        self._update_layout()

    def _update_layout(self) -> None:
        """Builds the layout of the spheres of links and attached objects."""
        bodies = dict(self._files.spheres.bodies)
        bodies |= {name: attachment.body for name, attachment in self._attached.items()}
        envs = {name: attachment.envs for name, attachment in self._attached.items()}
        only_in = {name: found for name, found in envs.items() if found is not None}
        self._layout = SphereLayout(self._files.chain, bodies, only_in)
        self._default_pairs: SelfCollisionPairs | None = None

    def __repr__(self) -> str:
        carried = ", ".join(map(repr, self._attached))
        return (
            f"{type(self).__name__}({len(self.link_names)} links, {self.n_joints} joints: "
            f"{escaped(', '.join(self.joint_names), MAX_SHOWN)}; {self.n_spheres} spheres"
            + (f", carries {escaped(carried, MAX_SHOWN)})" if carried else ")")
        )

    def __str__(self) -> str:
        return robot_text(type(self).__name__, self._files, self.sphere_links, self._attached)

    @property
    def n_joints(self) -> int:
        """Number of joint values."""
        return len(self.joint_names)

    @property
    def n_spheres(self) -> int:
        """Number of spheres, including those of attached objects."""
        return len(self.sphere_links)

    @property
    def sphere_links(self) -> tuple[str, ...]:
        """For each sphere the name of its link or attached object.

        Spheres are in the order of the file, except that those that move with the same joint are
        consecutive.
        """
        return self._layout.sphere_links

    def __call__(
        self,
        joints: Tensor,
        base_pose: PoseLike | None = None,
        env_index: Tensor | None = None,
    ) -> Tensor:
        """Forward kinematics: the spheres at joint values.

        Args:
            joints: (..., n_joints) float32 or float64 on any device [rad, prismatic: m]. Values
                beyond the joint limits are accepted.
            base_pose: pose x, y, z, qw, qx, qy, qz of the root link in the world, 7 numbers or a
                tensor (7,) for all, or (batch, 7), (batch, horizon, 7), ... for the first axes of
                `joints`; or rigid 4 x 4 matrices in place of the 7 numbers. Quaternions of any
                length but 0 are normalised.
            env_index: (batch,) integers for joints (batch, ..., n_joints), the env of each row: the
                spheres of objects that are attached in other envs are disabled. Env 0 for all if
                None.

        Returns:
            (..., n_spheres, 4) spheres x, y, z, radius in the world frame [m], in the dtype and on
            the device of `joints`, differentiable with respect to both.

        Raises:
            TypeError: `joints` is not a float32 or float64 tensor.
            ValueError: Its last dimension is not n_joints, or the shape of `base_pose` is another.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> panda = load_panda()
            >>> on_a_table = (0.0, 0.0, 0.8, 1.0, 0.0, 0.0, 0.0)
            >>> joints = torch.zeros(2, 5, 7)
            >>> (panda(joints, on_a_table) - panda(joints))[0, 0, 0].tolist()
            [0.0, 0.0, 0.800000011920929, 0.0]
        """
        self.check_joints(joints)
        if env_index is not None:
            validate.require_tensor("env_index", env_index, "(batch,)")
            if joints.ndim < 2 or env_index.shape != joints.shape[:1]:
                raise ValueError(
                    f"env_index must have shape (batch,) for joints {validate.shape_of(joints)}, "
                    f"got {validate.shape_of(env_index)}"
                )
        spheres = with_base_pose(self._layout.kinematics.forward(joints), joints, base_pose)
        return self._layout.in_env(spheres, env_index)

    def link_transforms(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Returns world_from_link (..., n_links, 4, 4) for joints (..., n_joints), as in a call."""
        self.check_joints(joints)
        frames = self._link_frames
        return frames.transforms(with_base_pose(frames.forward(joints), joints, base_pose))

    def sphere_jacobian(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Jacobian (..., n_spheres, 3, n_joints) of centers, float32 and without derivatives.

        Args:
            joints: (..., n_joints).
            base_pose: see a call.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> load_panda().sphere_jacobian(torch.zeros(4, 7)).shape
            torch.Size([4, 59, 3, 7])
        """
        self.check_joints(joints)
        flat = joints.detach().reshape(-1, self.n_joints).float().contiguous()
        jacobian = self._layout.kinematics.jacobian(flat)
        jacobian = jacobian.reshape(*joints.shape[:-1], self.n_spheres, 3, self.n_joints)
        if base_pose is None:
            return jacobian
        pose = base_operand(base_pose, joints, dtype=torch.float32).detach()
        rotation = torch.cat((torch.zeros_like(pose[..., :3]), pose[..., 3:]), dim=-1)
        columns = jacobian.movedim(-1, -2).flatten(-3, -2)  # as points, which the base rotates
        return (
            with_base_pose(columns, joints.detach().float(), rotation)
            .unflatten(-2, (-1, self.n_joints))
            .movedim(-1, -2)
        )

    @dispatch.outside_graphs("self_collision_pairs must be called outside of compiled graphs")
    def self_collision_pairs(self, *, ignore: Iterable[tuple[str, str]] = ()) -> SelfCollisionPairs:
        """The pairs of spheres to check for self-collision.

        All pairs of spheres of different links, except for adjacent links, links connected by fixed
        joints, ignored pairs of links, and pairs of spheres that touch at each of 1,000 random
        joint values within the limits.

        Args:
            ignore: pairs of link names, in any order.

        Raises:
            ValueError: an unknown link.

        Example:
            >>> from warp_collision.examples import load_panda
            >>> pairs = load_panda().self_collision_pairs(ignore=[("panda_link5", "panda_link7")])
            >>> len(pairs), len(pairs.touching)
            (1056, 0)
        """
        requested = [*ignore]
        return dispatch.run_outside(lambda: self._self_collision_pairs(requested))

    def _self_collision_pairs(self, ignore: Iterable[tuple[str, str]]) -> SelfCollisionPairs:
        adjacent = list(self._files.ignored_pairs)
        for name, attachment in self._attached.items():
            adjacent += [(name, other) for other in (attachment.body.link, *attachment.touch_links)]
        frames = self._layout.kinematics.point_frames
        pairs = pairs_of_links(self.sphere_links, frames, self._layout.names, adjacent, ignore)
        pairs = with_buffers(pairs, self._files.spheres.buffers)
        return without_touching(pairs, self._random_spheres(1000, torch.float64))

    @dispatch.outside_graphs("find_pairs must be called outside of compiled graphs")
    def find_pairs(
        self,
        n_samples: int,
        *,
        margin: float = 0.0,
        ignore: Iterable[tuple[str, str]] = (),
        generator: torch.Generator | None = None,
    ) -> SelfCollisionPairs:
        """The pairs of `self_collision_pairs` that come near at random joint values.

        Fewer pairs are faster. But the pairs that are left out are not checked, and may collide
        between the samples; they are listed in `never_near`.

        Args:
            n_samples: number of random joint values within the limits.
            margin: clearance [m] that counts as near.
            ignore: see `self_collision_pairs`.
            generator: of the joint values; the same in every call if None.
        """
        validate.require_count("n_samples", n_samples)
        requested = [*ignore]

        def find() -> SelfCollisionPairs:
            samples = self._random_spheres(n_samples, torch.float32, generator)
            return without_far(self._self_collision_pairs(requested), samples, margin)

        return dispatch.run_outside(find)

    def interpolate(
        self, joints: Tensor, max_deviation: float, *, odd: bool = False
    ) -> Interpolated:
        """Cuts segments of joint paths, so that straight chords are close to the spheres' arcs.

        The number of parts is the same for the whole batch: the smallest that a bound of the
        spheres' second derivatives allows. Values of continuous joints do not wrap.

        Args:
            joints: (batch, horizon, n_joints) [rad, prismatic: m]; the result is differentiable.
            max_deviation: [m], of the chords from the arcs of all spheres.
            odd: whether the number of parts must be odd: no part ends in the middle of a segment.

        Raises:
            ValueError: joints that are not finite, too far apart for the deviation, or batched by
                `vmap`, which hides their values.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
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
        with torch.no_grad():
            joints = random_joints(self.joint_limits.to(dtype), count, generator)
            return self._layout.kinematics.forward(joints)

    @property
    def default_pairs(self) -> SelfCollisionPairs:
        """`self_collision_pairs` without arguments, computed once."""
        self._prepare_default_pairs()
        assert self._default_pairs is not None
        return self._default_pairs

    @torch_private.run_while_tracing
    def _prepare_default_pairs(self) -> None:
        if self._default_pairs is None:
            self._default_pairs = dispatch.run_outside(lambda: self._self_collision_pairs(()))

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of all links and attached objects, with spheres or without."""
        return self._layout.names

    def tables(self, device: torch.device, without: frozenset[str] = frozenset()) -> RobotTables:
        """Tables for the kernels of joint paths, without the spheres of some links."""
        return self._layout.tables(device, without)

    def pair_tables(self, pairs: SelfCollisionPairs, device: torch.device) -> tuple[Tensor, Tensor]:
        """Tables of pairs of spheres for the same kernels."""
        return self._layout.pair_tables(pairs, device)

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
