"""The kinematic tree of links and joints, reduced to the moving frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from warp_collision.formats.urdf_joints import Joint, followed_joints, joints_from_root
from warp_collision.messages import shown
from warp_collision.robot.kinematics import MovingJoint


@dataclass
class Chain:
    """The moving frames of a robot; fixed joints are merged into constant transforms (float64).

    Frame 0 is the root link; frame i + 1 moves with `moving[i]`. Each link is fixed to its frame.

    Attributes:
        joint_names: joints with a value of their own, in the order of the file.
        joint_limits: lower and upper limit of each of them.
        moving: joints that move, including mimic joints, parents before children.
        link_frame: the frame of each link.
        frame_from_link: (4, 4) for each link [m].
        floats: whether a floating joint connects the root link to all others.
        sliding: joints with a value of their own that slide.
    """

    joint_names: tuple[str, ...]
    joint_limits: np.ndarray
    moving: list[MovingJoint] = field(default_factory=list)
    link_frame: dict[str, int] = field(default_factory=dict)
    frame_from_link: dict[str, np.ndarray] = field(default_factory=dict)
    floats: bool = False
    sliding: frozenset[str] = frozenset()

    @property
    def joint_units(self) -> tuple[str, ...]:
        """For each joint name "rad", or "m" if it slides."""
        return tuple("m" if name in self.sliding else "rad" for name in self.joint_names)

    def require_free_root(self, links: Iterable[str]) -> None:
        """Requires that the root link has no spheres if a floating joint moves all others."""
        root = next(iter(self.link_frame))
        if self.floats and root in links:
            raise ValueError(
                f"the root link {shown(root)} of a floating joint must have no spheres, as the "
                "pose of the base moves them"
            )


def fold_chain(links: Sequence[str], joints: Sequence[Joint]) -> Chain:
    """Builds the chain from the root of the tree, merging fixed joints into constants.

    Raises:
        ValueError: names that are not unique, or links and joints that are not one tree.
    """
    root, ordered = joints_from_root(links, joints)
    gears = followed_joints(joints)
    free = [joint for joint in joints if joint.moves and joint.mimic is None]
    index = {joint.name: i for i, joint in enumerate(free)}
    limits = np.array([joint.limits for joint in free]).reshape(-1, 2)
    chain = Chain(tuple(index), limits, [], {root: 0}, {root: np.eye(4)})
    chain.sliding = frozenset(joint.name for joint in free if joint.kind == "prismatic")
    for joint in ordered:
        frame = chain.link_frame[joint.parent]
        frame_from_joint = chain.frame_from_link[joint.parent] @ joint.parent_from_joint
        if joint.kind == "floating":
            if [other.name for other in joints if other.parent == root] != [joint.name]:
                raise ValueError(
                    f"joint {shown(joint.name)} of type floating must be the only joint of "
                    f"the root link {shown(root)}, got the parent {shown(joint.parent)}"
                )
            chain.floats = True
        if joint.moves:
            gear = gears[joint.name]
            slides = joint.kind == "prismatic"
            moved = (frame, frame_from_joint, joint.axis, slides, index[gear.joint])
            chain.moving.append(MovingJoint(*moved, gear.multiplier, gear.offset))
            frame, frame_from_joint = len(chain.moving), np.eye(4)
        chain.link_frame[joint.child] = frame
        chain.frame_from_link[joint.child] = frame_from_joint
    return chain
