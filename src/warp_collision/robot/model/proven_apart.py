"""Links that never touch, which their shapes prove for all values of the joints between them."""

from __future__ import annotations

import numpy as np

from warp_collision.robot.model.false_contacts import LinkScene, SampledContacts
from warp_collision.robot.model.kinematic_tree import KinematicTree, MovingJoint
from warp_collision.robot.model.neutral import neutral_joints
from warp_collision.robot.model.pair_rules import joints_above, joints_between

_LEAST_SHARE = 0.25  # of samples in which spheres touch: of other pairs a proof gains little
_ACCURACY = 5.0e-4  # [m], of the distance of two surfaces, more than twice that of `LinkSurface`
_MAX_DISTANCES = 200  # of a pair
_PARALLEL = 1.0e-4  # [rad], of axes
_ROUNDING = 1.0e-6  # [m], of places along an axis, more than that of float32


def proven_apart(contacts: SampledContacts) -> list[tuple[str, str]]:
    """Pairs of links whose spheres touch, and whose shapes never do.

    Between links beside one joint there is an interval of values. It is cut until the distance of
    the shapes in the middle of each part is above what one of them can move in half of the part.
    Links beyond more joints may be proven apart by a plane, see `_is_behind_plane`.
    """
    scene = contacts.scene
    between = {
        pair: joints_between(scene.tree, *(scene.link_of[name] for name in pair))
        for pair in scene.pairs
    }
    counts = dict.fromkeys(scene.pairs, 0)
    apart = dict.fromkeys(scene.pairs, True)
    for pair, rows, gaps in scene.touching(contacts.transforms, scene.pairs):
        counts[pair] += len(rows)
        if len(between[pair]) == 1:
            apart[pair] &= bool((contacts.distances(pair, rows, gaps) > 0.0).all())
    proven = []
    for pair, count in counts.items():
        if len(between[pair]) > 1:
            is_proven = count > 0 and _is_behind_plane(scene, pair)
        else:
            often = count >= _LEAST_SHARE * contacts.n
            is_proven = often and apart[pair] and _is_apart(scene, pair)
        if is_proven:
            proven.append(pair)
    return proven


def _is_behind_plane(scene: LinkScene, pair: tuple[str, str]) -> bool:
    """Whether a plane is between two links at all values of the joints between them.

    Joints with parallel axes, as those of a leg below its hip, move a link along planes: its extent
    along the axes stays. So a link above these joints, and above one more of any axis, is apart if
    it is beyond that extent at all values of that one.
    """
    tree = scene.tree
    frames = {name: tree.link_frame[scene.link_of[name]] for name in pair}
    upper, lower = sorted(pair, key=lambda name: len(joints_above(tree, frames[name])))
    chain = sorted(joints_above(tree, frames[lower]) - joints_above(tree, frames[upper]))
    surfaces = scene.surface(upper), scene.surface(lower)
    first, *others = (tree.moving[frame - 1] for frame in chain)
    low, high = _values(tree, first)
    is_above = first.parent == frames[upper] and np.isfinite([low, high]).all()
    if None in surfaces or not is_above or any(joint.slides for joint in others):
        return False
    # In the frame of the first joint, which the others do not move.
    pose, axes, reach = np.eye(4), [], 0.0
    for joint in others:
        pose = pose @ joint.parent_from_joint
        reach += float(np.linalg.norm(joint.parent_from_joint[:3, 3]))
        axes.append(pose[:3, :3] @ joint.axis)
    tilt = float(np.linalg.norm(np.cross(axes, axes[0]), axis=1).max())
    if tilt > _PARALLEL:
        return False
    points = _corners(scene, lower, pose)
    reach += float(np.linalg.norm(points - pose[:3, 3], axis=1).max())
    margin = _ROUNDING + 4.0 * len(axes) * tilt * reach
    extent = points @ axes[0]
    seen = _corners(scene, upper, np.linalg.inv(first.parent_from_joint))
    highest = _most_along(seen, axes[0], first, low, high)
    lowest = -_most_along(seen, -axes[0], first, low, high)
    return highest < extent.min() - margin or lowest > extent.max() + margin


def _corners(scene: LinkScene, name: str, pose: np.ndarray) -> np.ndarray:
    """(n, 3) corners of a link, moved by a pose from the frame that it moves with."""
    surface = scene.surface(name)
    assert surface is not None
    transform = pose @ scene.tree.frame_from_link[scene.link_of[name]]
    return surface.solid.triangles.reshape(-1, 3) @ transform[:3, :3].T + transform[:3, 3]


def _values(tree: KinematicTree, joint: MovingJoint) -> tuple[float, float]:
    """Between which values a joint moves [rad or m]; any of a turn where it has no limits."""
    low, high = sorted(joint.multiplier * tree.joint_limits[joint.value] + joint.shift)
    is_endless = not joint.slides and np.isinf([low, high]).any()
    return (-np.pi, np.pi) if is_endless else (float(low), float(high))


def _most_along(
    points: np.ndarray, direction: np.ndarray, joint: MovingJoint, low: float, high: float
) -> float:
    """How far points (n, 3) of the parent reach along a direction in the frame that a joint moves.

    Both are given where the joint is at 0; the most of all values from `low` to `high`.
    """
    axis = joint.axis
    if joint.slides:
        speed = -float(axis @ direction)
        return float((points @ direction).max()) + max(speed * low, speed * high)
    along = (axis @ direction) * axis
    middle, cosine, sine = (
        points @ v for v in (along, direction - along, np.cross(axis, direction))
    )
    size, angle = np.hypot(cosine, sine), np.arctan2(sine, cosine)
    # The most is where the angle is, if that is between the values, or else at one of them.
    after = low + (angle - low) % (2.0 * np.pi)
    ends = [cosine * np.cos(value) + sine * np.sin(value) for value in (low, high)]
    return float((middle + np.where(after <= high, size, np.maximum(*ends))).max())


def _is_apart(scene: LinkScene, pair: tuple[str, str]) -> bool:
    """Whether two links beside one joint are proven not to touch within its limits."""
    one, other = (scene.surface(name) for name in pair)
    tree = scene.tree
    (frame,) = joints_between(tree, *(scene.link_of[name] for name in pair))
    joint = tree.moving[frame - 1]
    low, high = tree.joint_limits[joint.value]
    if np.isinf([low, high]).any():
        low, high = -np.pi, np.pi  # a turn; what slides without limits may be anywhere
        if joint.slides or abs(joint.multiplier) != 1.0:
            return False
    if one is None or other is None:
        return False
    speed = abs(joint.multiplier) * _most_motion(scene, pair, frame)
    neutral = neutral_joints(tree.joint_limits)
    parts, count = [(float(low), float(high))], 0
    while parts:
        begin, end = parts.pop()
        middle, count = 0.5 * (begin + end), count + 1
        joints = neutral.copy()
        joints[joint.value] = middle
        at = scene.transforms(joints[None], pair)
        first, second = (at[name][0] for name in pair)
        gap = one.distance(other, np.linalg.inv(first) @ second) - _ACCURACY
        if gap <= 0.0 or count > _MAX_DISTANCES:
            return False
        if gap <= speed * 0.5 * (end - begin):
            parts += [(begin, middle), (middle, end)]
    return True


def _most_motion(scene: LinkScene, pair: tuple[str, str], frame: int) -> float:
    """How far a point of the link that a joint moves goes for each rad or m of the joint."""
    tree: KinematicTree = scene.tree
    joint = tree.moving[frame - 1]
    if joint.slides:
        return 1.0
    (moved,) = (name for name in pair if tree.link_frame[scene.link_of[name]] == frame)
    surface, link = scene.surface(moved), scene.link_of[moved]
    assert surface is not None
    corners = surface.solid.triangles.reshape(-1, 3)
    transform = tree.frame_from_link[link]
    return float(
        np.linalg.norm(
            np.cross(corners @ transform[:3, :3].T + transform[:3, 3], joint.axis), axis=1
        ).max()
    )
