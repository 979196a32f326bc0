"""Links beside a joint that never touch, which their shapes prove for all values of the joint."""

from __future__ import annotations

import numpy as np

from warp_collision.robot.model.false_contacts import LinkScene, SampledContacts
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.neutral import neutral_joints
from warp_collision.robot.model.pair_rules import joints_between

_LEAST_SHARE = 0.25  # of samples in which spheres touch: of other pairs a proof gains little
_ACCURACY = 5.0e-4  # [m], of the distance of two surfaces, more than twice that of `LinkSurface`
_MAX_DISTANCES = 200  # of a pair


def proven_apart(contacts: SampledContacts) -> list[tuple[str, str]]:
    """Pairs of links beside one joint, whose spheres often touch, and whose shapes never do.

    Of one joint there is an interval of values. It is cut until the distance of the shapes in the
    middle of each part is above what one of them can move in half of the part.
    """
    scene = contacts.scene
    beside = tuple(
        pair
        for pair in scene.pairs
        if len(joints_between(scene.tree, *(scene.link_of[name] for name in pair))) == 1
    )
    counts = dict.fromkeys(beside, 0)
    apart = dict.fromkeys(beside, True)
    for pair, rows, gaps in scene.touching(contacts.transforms, beside):
        counts[pair] += len(rows)
        apart[pair] = apart[pair] and bool((contacts.distances(pair, rows, gaps) > 0.0).all())
    often = [pair for pair in beside if counts[pair] >= _LEAST_SHARE * contacts.n and apart[pair]]
    return [pair for pair in often if _is_apart(scene, pair)]


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
