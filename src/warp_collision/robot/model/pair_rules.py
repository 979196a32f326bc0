"""Which pairs of links are checked for self-collision, and why others are not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from warp_collision.messages import known_names, short_repr
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.link_pairs import LeftOutPair, SelfCollisionPairs

ADJACENT = "adjacent"
ONE_BODY = "connected by fixed joints"
IGNORED = "ignored"
OF_ROBOT_FILE = "ignored by the robot's file"
CARRIED = "carried"
IN_CONTACT = "in contact at the neutral configuration"
# Joints between two links that may leave spheres on their axes at a constant distance: the axes of
# a wrist meet.
_FEW_JOINTS = 3


def pairs_of_links(
    sphere_links: Sequence[str],
    link_of: Mapping[str, str],
    tree: KinematicTree,
    given: Iterable[LeftOutPair],
) -> SelfCollisionPairs:
    """All pairs of links and attached objects, except for those that are left out.

    Args:
        sphere_links: the link, or object, of each sphere.
        link_of: the link that each of them moves with.
        tree: the moving frames.
        given: pairs that are left out, the first reason of each counts.
    """
    reasons: dict[frozenset[str], str] = {}
    for first, second, reason in given:
        reasons.setdefault(frozenset((first, second)), reason)
    kept, left_out = [], []
    for one, other in itertools.combinations(dict.fromkeys(sphere_links), 2):
        reason = reasons.get(frozenset((one, other)))
        if reason is None and tree.link_frame[link_of[one]] == tree.link_frame[link_of[other]]:
            reason = ONE_BODY
        if reason is None:
            kept.append((one, other))
        else:
            left_out.append(LeftOutPair(one, other, reason))
    return SelfCollisionPairs(tuple(sphere_links), tuple(kept), tuple(left_out))


def checked_pairs(
    name: str, pairs: Iterable[tuple[str, str]], known: Sequence[str]
) -> list[tuple[str, str]]:
    """Pairs of links of the robot, or of attached objects.

    Args:
        name: of the argument.
        pairs: of names.
        known: names of links and objects.

    Raises:
        ValueError: no pair, or an unknown name.
    """
    result = []
    for given in pairs:
        pair = tuple(given)
        unknown = [name for name in pair if name not in known]
        if len(pair) != 2 or unknown:
            choice = f"; there is {known_names(unknown[0], known)}" if unknown else ""
            raise ValueError(
                f"{name} must be pairs of links of the robot, got {short_repr(pair)}{choice}"
            )
        result.append((pair[0], pair[1]))
    return result


def have_few_joints(
    pairs: SelfCollisionPairs, link_of: Mapping[str, str], tree: KinematicTree
) -> np.ndarray:
    """(n_pairs,) bool, whether few joints are between the links of a pair."""
    above = {
        name: joints_above(tree, tree.link_frame[link_of[name]])
        for name in dict.fromkeys(pairs.sphere_links)
    }
    counts = [len(above[one] ^ above[other]) for one, other in pairs.link_pairs]
    return np.array(counts, dtype=np.int64) <= _FEW_JOINTS


def joints_above(tree: KinematicTree, frame: int) -> frozenset[int]:
    """A moving frame and its ancestors, without the root."""
    frames = []
    while frame != 0:
        frames.append(frame)
        frame = tree.moving[frame - 1].parent
    return frozenset(frames)
