"""The kinematic tree of links and joints, reduced to the moving frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from warp_collision.messages import shown
from warp_collision.robot.description import Joint, Mimic
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
    """

    joint_names: tuple[str, ...]
    joint_limits: np.ndarray
    moving: list[MovingJoint] = field(default_factory=list)
    link_frame: dict[str, int] = field(default_factory=dict)
    frame_from_link: dict[str, np.ndarray] = field(default_factory=dict)
    floats: bool = False

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
    root = _check_names(links, joints)
    gears = _gears(joints)
    free = [joint for joint in joints if joint.moves and joint.mimic is None]
    index = {joint.name: i for i, joint in enumerate(free)}
    limits = np.array([joint.limits for joint in free]).reshape(-1, 2)
    chain = Chain(tuple(index), limits, [], {root: 0}, {root: np.eye(4)})
    children: dict[str, list[Joint]] = {}
    for joint in joints:
        children.setdefault(joint.parent, []).append(joint)
    reached = [root]
    for link in reached:
        for joint in children.get(link, []):
            frame = chain.link_frame[link]
            frame_from_joint = chain.frame_from_link[link] @ joint.parent_from_joint
            if joint.kind == "floating":
                if link != root or len(children[root]) > 1:
                    raise ValueError(
                        f"joint {shown(joint.name)} of type floating must be the only joint of "
                        f"the root link {shown(root)}, got the parent {shown(link)}"
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
            reached.append(joint.child)
    if len(reached) != len(links):
        loop = sorted(set(links) - set(reached))
        raise ValueError(f"the links must form one tree, got a loop through {shown(loop)}")
    return chain


def _check_names(links: Sequence[str], joints: Sequence[Joint]) -> str:
    """Raises unless all names are unique and all links exist; returns the root link."""
    for names in (links, tuple(joint.name for joint in joints)):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ValueError(f"names must be unique, got {shown(twice)} twice")
    known = set(links)
    for joint in joints:
        for link in (joint.parent, joint.child):
            if link not in known:
                raise ValueError(
                    f"joint {shown(joint.name)} must join links that exist, got {shown(link)}"
                )
    children = {joint.child for joint in joints}
    roots = [link for link in links if link not in children]
    if len(roots) != 1 or len(children) != len(joints):
        raise ValueError(f"the links must form one tree, got the roots {shown(roots)}")
    return roots[0]


def _gears(joints: Sequence[Joint]) -> dict[str, Mimic]:
    """For each moving joint the joint whose value it has, and multiplier and offset."""
    moving = {joint.name: joint for joint in joints if joint.moves}
    gears: dict[str, Mimic] = {}
    for name, joint in moving.items():
        multiplier, offset, followed, seen = 1.0, 0.0, joint, {name}
        while followed.mimic is not None:
            other = followed.mimic
            if other.joint not in moving or other.joint in seen:
                what = "itself" if other.joint in seen else shown(other.joint)
                raise ValueError(
                    f"joint {shown(followed.name)} must mimic a joint that moves, got {what}"
                )
            offset += multiplier * other.offset
            multiplier *= other.multiplier
            followed = moving[other.joint]
            seen.add(other.joint)
        gears[name] = Mimic(followed.name, multiplier, offset)
    return gears
