"""The kinematic tree of links and joints, reduced to the moving frames; locked joints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from warp_collision.formats.joint_values import joint_value, require_joint_names
from warp_collision.formats.urdf_joints import Joint, followed_joints, joints_from_root
from warp_collision.messages import short_repr


@dataclass(frozen=True, eq=False)
class MovingJoint:
    """A moving joint and its frame, whose z axis is the axis of the joint.

    Attributes:
        parent: the parent frame: 0 for the root, i + 1 for that of joint i.
        parent_from_joint: (4, 4) pose of the joint at value 0 [m], with the fixed joints before it.
        axis: (3,) in the frame of the joint, unit.
        slides: whether it is prismatic.
        value: index of the joint value; that of another joint for mimic joints.
        multiplier: of the joint value.
        shift: value of the joint where the joint value is 0.
    """

    parent: int
    parent_from_joint: np.ndarray
    axis: np.ndarray
    slides: bool
    value: int
    multiplier: float = 1.0
    shift: float = 0.0


@dataclass
class KinematicTree:
    """The moving frames of a robot; fixed joints are merged into constant transforms (float64).

    Frame 0 is the root link; frame i + 1 moves with `moving[i]`. Each link is fixed to its frame.

    Attributes:
        joint_names: joints with a value of their own, in the order of the file.
        joint_limits: lower and upper limit of each of them.
        velocity_limits: of each of them, infinite without one; also that of joints that mimic it.
        moving: joints that move, including mimic joints, parents before children.
        link_frame: the frame of each link.
        frame_from_link: (4, 4) for each link [m].
        floats: whether a floating joint connects the root link to all others.
        sliding: joints with a value of their own that slide.
    """

    joint_names: tuple[str, ...]
    joint_limits: np.ndarray
    velocity_limits: np.ndarray
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
                f"the root link {short_repr(root)} of a floating joint must have no spheres, as "
                "the pose of the base moves them"
            )


def kinematic_tree(links: Sequence[str], joints: Sequence[Joint]) -> KinematicTree:
    """Builds the tree from its root, merging fixed joints into constants.

    Raises:
        ValueError: names that are not unique, or links and joints that are not one tree.
    """
    root, ordered = joints_from_root(links, joints)
    gears = followed_joints(joints)
    free = [joint for joint in joints if joint.moves and joint.mimic is None]
    index = {joint.name: i for i, joint in enumerate(free)}
    limits = np.array([joint.limits for joint in free]).reshape(-1, 2)
    velocities = np.array([joint.velocity for joint in free])
    for joint in joints:
        if joint.moves and gears[joint.name].multiplier != 0.0:
            gear = gears[joint.name]
            followed = index[gear.joint]
            own = joint.velocity / abs(gear.multiplier)
            velocities[followed] = min(velocities[followed], own)
    tree = KinematicTree(tuple(index), limits, velocities, [], {root: 0}, {root: np.eye(4)})
    tree.sliding = frozenset(joint.name for joint in free if joint.kind == "prismatic")
    for joint in ordered:
        frame = tree.link_frame[joint.parent]
        frame_from_joint = tree.frame_from_link[joint.parent] @ joint.parent_from_joint
        if joint.kind == "floating":
            if [other.name for other in joints if other.parent == root] != [joint.name]:
                raise ValueError(
                    f"joint {short_repr(joint.name)} of type floating must be the only joint of "
                    f"the root link {short_repr(root)}, got the parent {short_repr(joint.parent)}"
                )
            tree.floats = True
        if joint.moves:
            gear = gears[joint.name]
            slides = joint.kind == "prismatic"
            moved = (frame, frame_from_joint, joint.axis, slides, index[gear.joint])
            tree.moving.append(MovingJoint(*moved, gear.multiplier, gear.offset))
            frame, frame_from_joint = len(tree.moving), np.eye(4)
        tree.link_frame[joint.child] = frame
        tree.frame_from_link[joint.child] = frame_from_joint
    return tree


def check_locks(locks: Any, joints: Sequence[Joint]) -> dict[str, float | None]:
    """Values by names of joints; None for a joint that stays free.

    Raises:
        TypeError, ValueError: another type, a joint that is unknown or that does not move,
            or a value that is not finite or beyond the limits of its joint.
    """
    moving = {joint.name: joint for joint in joints if joint.moves}
    values: dict[str, float | None] = {}
    for name, value in require_joint_names("lock_joints", locks, moving).items():
        joint = moving[name]
        if value is not None:
            where, slides = f"lock_joints[{name!r}]", joint.kind == "prismatic"
            value = joint_value(where, value, joint.limits, slides=slides)
        values[name] = value
    return values


def with_locked(joints: Sequence[Joint], locks: Mapping[str, float]) -> tuple[Joint, ...]:
    """The joints, with some fixed at a value [rad, prismatic: m].

    A locked mimic joint is fixed at its own value; mimic joints of a locked joint are fixed too.
    """
    values = dict(locks)
    n_before = -1
    while len(values) > n_before:  # mimic joints of mimic joints too
        n_before = len(values)
        for joint in joints:
            if joint.moves and joint.mimic is not None and joint.mimic.joint in values:
                value = values[joint.mimic.joint]
                values.setdefault(joint.name, joint.mimic.multiplier * value + joint.mimic.offset)
    return tuple(
        replace(
            joint,
            kind="fixed",
            parent_from_joint=joint.parent_from_child(values[joint.name]),
            mimic=None,
        )
        if joint.name in values
        else joint
        for joint in joints
    )


def neutral_joints(limits: np.ndarray) -> np.ndarray:
    """(n_joints,) 0 where limits (n_joints, 2) allow it, else their middle [rad or m]."""
    low, high = limits.T
    middle = 0.5 * (np.nan_to_num(low, neginf=0.0) + np.nan_to_num(high, posinf=0.0))
    return np.where((low <= 0.0) & (high >= 0.0), 0.0, middle)


def ancestors(joints: Sequence[MovingJoint], frame: int) -> list[int]:
    """A moving frame and its ancestors, the root last."""
    frames = [int(frame)]
    while frames[-1] != 0:
        frames.append(joints[frames[-1] - 1].parent)
    return frames
