"""A handle at the robot's hand, which moves the robot by differential inverse kinematics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from trimesh.transformations import quaternion_from_matrix, quaternion_matrix

from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import panels
from warp_collision.viewer.colors import Floats

_STEP = 1e-3  # rad or m, of finite differences
_DAMPING = 0.02  # of the least squares [m, or rad of a turn that counts as _TURN m]
_TURN = 0.3  # m, as which a radian of the hand counts
_MOST = 0.2  # rad or m, of a joint in one step
_STEPS = 20
_SCALE = 0.2  # m, of the handle


def reach(scene: RobotScene, link: str, joints: Tensor, target: Floats) -> Tensor:
    """Joint values (n_joints,) near others, within the limits, whose link is nearest to a pose.

    Damped least squares (Nakamura and Hanafusa 1986): each step solves for the joints that move
    the link towards the pose, and for small steps where it cannot go.

    Args:
        scene: the robot in its place.
        link: that is moved.
        joints: (n_joints,) to begin with.
        target: world_from_link (4, 4).
    """
    low, high = scene.robot.joint_limits.double().cpu().numpy().T
    index = scene.robot.link_names.index(link)
    values = joints.double().cpu().numpy()
    count = len(values)
    best, least = values, np.inf
    for _ in range(_STEPS):
        tried = np.concatenate([values[None], values + _STEP * np.eye(count)])
        poses = scene.transforms(torch.from_numpy(tried).float())[:, index]
        missing = np.stack([_between(pose, target) for pose in poses])
        error = float(np.linalg.norm(missing[0]))
        if error < least:
            best, least = values, error
        jacobian = (missing[0] - missing[1:]).T / _STEP
        square = jacobian @ jacobian.T + _DAMPING**2 * np.eye(6)
        step = jacobian.T @ np.linalg.solve(square, missing[0])
        step *= min(1.0, _MOST / max(float(np.abs(step).max()), 1e-12))
        moved = np.clip(values + step, low, high)
        if np.abs(moved - values).max() < 1e-5:
            break
        values = moved
    return torch.from_numpy(best).float()


def _between(pose: Floats, target: Floats) -> Floats:
    """(6,) the way and the turn from a pose to another [m]."""
    turn = target[:3, :3] @ pose[:3, :3].T
    axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    sine, cosine = 0.5 * float(np.linalg.norm(axis)), 0.5 * (float(np.trace(turn)) - 1.0)
    angle = np.arctan2(sine, cosine)
    # At half a turn the axis is not known from these, and any that leads away from there is right.
    axis = axis / (2.0 * sine) if sine > 1e-9 else np.array([0.0, 0.0, 1.0])
    return np.concatenate([target[:3, 3] - pose[:3, 3], _TURN * angle * axis])


class HandHandle:
    """The handle in the scene, hidden until it is asked for.

    Args:
        viewer: that holds it.
        scene: the robot.
    """

    def __init__(self, viewer: panels.Host, scene: RobotScene):
        self._viewer, self._scene = viewer, scene
        self._link = next(
            name for name in reversed(scene.robot.sphere_links) if name in scene.robot.link_names
        )
        self._handle: Any = None
        self._joints: Tensor | None = None  # that the handle itself led to
        self._shown = torch.zeros(0)

    def show(self, joints: Tensor, on: bool) -> None:
        """Shows the handle at joint values (n_joints,), or hides it."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if on:
            self._handle = self._viewer.server.scene.add_transform_controls(
                self._viewer.new_node("hand"), scale=_SCALE, depth_test=False
            )
            self._handle.on_update(lambda event: self._viewer.put("hand", self.dragged))
            self._joints = None
            self.follow(joints)

    def follow(self, joints: Tensor) -> None:
        """Moves the handle to the hand, unless the robot is where the handle led it."""
        self._shown = joints
        if self._handle is None or (self._joints is not None and joints.equal(self._joints)):
            return
        index = self._scene.robot.link_names.index(self._link)
        matrix = self._scene.transforms(joints[None])[0, index]
        self._handle.position, self._handle.wxyz = matrix[:3, 3], quaternion_from_matrix(matrix)

    def dragged(self) -> None:
        """Moves the robot so that its hand is at the handle, as near as it can."""
        if self._handle is None:
            return
        target = quaternion_matrix(self._handle.wxyz)
        target[:3, 3] = self._handle.position
        self._joints = reach(self._scene, self._link, self._shown, target)
        self._viewer.draw(self._joints)
