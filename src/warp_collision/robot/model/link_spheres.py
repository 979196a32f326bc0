"""Spheres on the links of a robot at joint values: forward kinematics, Jacobians and chords."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import validate
from warp_collision.poses import PoseLike
from warp_collision.robot.model.first_values import FirstValues
from warp_collision.robot.model.interpolation import Interpolated, cut, parts_for
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.kinematics import LinkFrames
from warp_collision.robot.model.sphere_layout import SphereLayout
from warp_collision.robot.model.sphere_model import require_links


class LinkSpheres:
    """Spheres on links that joints move.

    Names, units and limits of joints are described in `RobotSpheres`.

    Attributes:
        layout: the spheres by frame; replaced as a whole.
    """

    layout: SphereLayout

    def _place_on(self, tree: KinematicTree, link_names: tuple[str, ...]) -> None:
        """Takes the joints and the links."""
        self.link_names = link_names
        self.joint_names, self.joint_units = tree.joint_names, tree.joint_units
        self.joint_limits = torch.tensor(tree.joint_limits, dtype=torch.float32)
        self.velocity_limits = torch.tensor(tree.velocity_limits, dtype=torch.float64)
        self._first_values = FirstValues(tree)
        self._link_frames = LinkFrames(tree, link_names)

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
        return self.layout.sphere_links

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names of all links and attached objects, with spheres or without."""
        return self.layout.names

    def spheres_of(self, name: str) -> np.ndarray:
        """Spheres (n, 4) float64 of a link or attached object, in the frame of the link [m]."""
        if name in self.layout.bodies:
            return self.layout.bodies[name].spheres.copy()
        require_links("name", [name], self.link_names)
        return np.empty((0, 4))

    def spheres(
        self,
        joints: Tensor,
        base_pose: PoseLike | None = None,
        env_index: Tensor | None = None,
    ) -> Tensor:
        """Forward kinematics: the spheres at joint values.

        Args:
            joints: (..., n_joints) float32 or float64 on any device [rad, prismatic: m]. Values
                beyond the joint limits are accepted.
            base_pose: pose x, y, z, qw, qx, qy, qz of the root link in the world: 7 numbers or a
                tensor (7,) for all, or (batch, 7), (batch, horizon, 7), ... for the first axes of
                `joints`. Rigid 4 x 4 matrices may replace the 7 numbers. Quaternions of any length
                but 0 are normalised.
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
            >>> (panda.spheres(joints, on_a_table) - panda.spheres(joints))[0, 0, 0].tolist()
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
        spheres = self.layout.kinematics.forward(joints, base_pose)
        return self.layout.in_env(spheres, env_index)

    def __call__(
        self,
        joints: Tensor,
        base_pose: PoseLike | None = None,
        env_index: Tensor | None = None,
    ) -> Tensor:
        """Short form of `spheres`."""
        return self.spheres(joints, base_pose, env_index)

    def link_transforms(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Transforms world_from_link (..., n_links, 4, 4) at joint values; see `spheres`."""
        self.check_joints(joints)
        return self._link_frames.transforms(joints, base_pose)

    def sphere_jacobian(self, joints: Tensor, base_pose: PoseLike | None = None) -> Tensor:
        """Jacobian (..., n_spheres, 3, n_joints) of centers, float32 and without derivatives.

        Args:
            joints: (..., n_joints).
            base_pose: see `spheres`.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> load_panda().sphere_jacobian(torch.zeros(4, 7)).shape
            torch.Size([4, 59, 3, 7])
        """
        self.check_joints(joints)
        return self.layout.kinematics.jacobian(joints.detach(), base_pose)

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
            ValueError: joints too far apart for the deviation, or batched by `vmap`, which hides
                their values.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> path = torch.tensor([[[0, 0, 0, -1.6, 0, 1.6, 0.8], [0.5, 0, 0, -1.6, 0, 1.6, 0]]])
            >>> fine = load_panda().interpolate(path, max_deviation=1e-3)
            >>> fine.parts, tuple(fine.joints.shape)
            (6, (1, 7, 7))
        """
        self.check_joints(joints)
        if joints.ndim != 3:
            shape = f"(batch, horizon, {self.n_joints})"
            raise ValueError(f"joints must have shape {shape}, got {validate.shape_of(joints)}")
        validate.require_number("max_deviation", max_deviation, positive=True)
        parts = parts_for(joints, self.layout.tables(joints.device), max_deviation)
        return cut(joints, parts + 1 if odd and parts % 2 == 0 else parts)

    def check_joints(self, joints: Tensor, name: str = "joints") -> None:
        """Requires joint values (..., n_joints); the name is for the message."""
        if not isinstance(joints, Tensor) or joints.dtype not in (torch.float32, torch.float64):
            kind = joints.dtype if isinstance(joints, Tensor) else type(joints).__name__
            raise TypeError(f"{name} must be a float32 or float64 tensor, got {kind}")
        if joints.ndim == 0 or joints.shape[-1] != len(self.joint_names):
            raise ValueError(
                f"{name} must have shape (..., {self.n_joints}), one value for each of "
                f"{', '.join(self.joint_names)}, got {tuple(joints.shape)}"
            )
        # In this order: graphs would be compiled once more for each number of calls.
        if not is_compiling() and self._first_values.calls_left > 0:
            self._first_values.look_at(joints)
