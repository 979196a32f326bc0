"""A robot among obstacles, with what all checks of the two need."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warp_collision.costs import Clearance
from warp_collision.poses import PoseLike
from warp_collision.robot.checks.joint_path_cost import waypoint_clearance
from warp_collision.robot.model.collision_report import CollisionReport
from warp_collision.robot.model.kinematic_tree import neutral_joints
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.world import MeshWorld


class RobotScene(NamedTuple):
    """A robot among the obstacles of an env.

    Attributes:
        robot: the robot.
        world: the obstacles.
        base_pose: of the root link in the world; the origin if None.
        ignore: pairs of a link and an obstacle that may touch.
        self_collision: whether the robot is checked with itself, or the pairs to check.
        env: which env of the world.
        shapes: what of a link touches an obstacle, see `configuration_in_collision`.
    """

    robot: RobotSpheres
    world: MeshWorld
    base_pose: PoseLike | None = None
    ignore: tuple[tuple[str, str], ...] = ()
    self_collision: bool | SelfCollisionPairs = True
    env: int = 0
    shapes: Literal["spheres", "exact"] = "spheres"

    @property
    def placed(self) -> dict[str, Any]:
        """Arguments of the checks of the robot in env 0, by name."""
        return {
            "shapes": self.shapes,
            "ignore": self.ignore,
            "base_pose": self.base_pose,
            "self_collision": self.self_collision,
        }

    @property
    def of_paths(self) -> dict[str, Any]:
        """Arguments of the checks of one joint path (1, horizon, n_joints), by name."""
        return {**self.placed, "env_index": self.env_index}

    @property
    def env_index(self) -> Tensor:
        """(1,) int32, the env of a batch of one."""
        return torch.full((1,), self.env, dtype=torch.int32, device=self.world.device)

    @property
    def pairs(self) -> SelfCollisionPairs:
        """The pairs of links that are checked."""
        pairs = self.self_collision
        if isinstance(pairs, SelfCollisionPairs):
            return pairs
        return (
            self.robot.default_pairs if pairs else SelfCollisionPairs(self.robot.sphere_links, ())
        )

    def spheres(self, joints: Tensor) -> Tensor:
        """Spheres (horizon, n_spheres, 4) at joint values (horizon, n_joints)."""
        path = joints[None].to(self.world.device)
        return self.robot.spheres(path, self.base_pose, self.env_index)[0]

    def transforms(self, joints: Tensor) -> NDArray[np.float64]:
        """world_from_link (horizon, n_links, 4, 4) at joint values (horizon, n_joints)."""
        path = joints.to(self.world.device)
        return self.robot.link_transforms(path, self.base_pose).double().cpu().numpy()

    def nearness(self, joints: Tensor) -> NDArray[np.float64]:
        """Clearance (horizon, n_spheres) of the spheres at joint values (horizon, n_joints) [m].

        To the obstacles; of links that collide with each other, all spheres have the depth of that
        contact if they are not deeper in something else.
        """
        clearance = self.clearance(joints).clearance[0].double().cpu().numpy()
        if not self.self_collision:
            return clearance
        path = joints[None].to(self.world.device)
        found = self.robot.report(path, self.world, **self.of_paths)
        links = np.array(self.robot.sphere_links)
        for row in np.flatnonzero(found.with_itself):
            of_both = (links == found.link[row]) | (links == found.obstacle[row])
            at = clearance[found.waypoint[row]]
            # Where it is not known whether they touch, the depth is NaN, which counts as deepest.
            at[of_both] = np.minimum(at[of_both], -found.depth[row])
        return clearance

    def clearance(self, joints: Tensor) -> Clearance:
        """Clearance of the spheres at joint values (horizon, n_joints), as of a batch of one.

        Contacts that are wanted are left out.
        """
        path = joints[None].to(self.world.device)
        return waypoint_clearance(
            path,
            self.robot,
            self.world,
            ignore=self.ignore,
            base_pose=self.base_pose,
            env_index=self.env_index,
        )

    def constant_contacts(self) -> CollisionReport:
        """What touches at all joint values."""
        neutral = neutral_joints(self.robot.joint_limits.numpy())
        joints = torch.as_tensor(neutral, dtype=torch.float32)[None, None]
        return self.robot.report(joints, self.world, **self.of_paths).constant()

    def without_contacts_of(self, report: CollisionReport) -> RobotScene:
        """The scene, where what touches at all joint values by a report may touch."""
        always = [
            (report.link[i], report.obstacle[i], bool(report.with_itself[i]))
            for i in np.flatnonzero(report.at_all_values)
        ]
        if not always:
            return self
        world = dict.fromkeys((link, other) for link, other, is_link in always if not is_link)
        own = {frozenset((link, other)) for link, other, is_link in always if is_link}
        chosen = np.array([frozenset(pair) in own for pair in self.pairs.link_pairs], dtype=bool)
        pairs = (
            self.pairs.without(chosen, "in contact at all joint values")
            if own
            else self.self_collision
        )
        return self._replace(ignore=(*self.ignore, *world), self_collision=pairs)
