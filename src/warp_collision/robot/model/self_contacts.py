"""Links in contact at the neutral configuration, found when a robot is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.link_pairs import LeftOutPair, random_joints
from warp_collision.robot.model.neutral import neutral_joints
from warp_collision.robot.model.pair_rules import IN_CONTACT, pairs_of_links
from warp_collision.robot.model.shape_gaps import touching_links
from warp_collision.robot.model.sphere_layout import SphereLayout
from warp_collision.robot.model.sphere_model import SphereModel

_SAMPLES = 400  # random configurations
_AT_ONCE = 32
_ORDINARY_SHARE = 0.25  # of random configurations


class Contact(NamedTuple):
    """Two links in contact at the neutral configuration.

    Attributes:
        first: one link.
        second: the other.
        share: of random configurations, in which they are in contact.
    """

    first: str
    second: str
    share: float

    @property
    def is_ordinary(self) -> bool:
        """Whether links touch there as neighbours do, and not by chance.

        A hand may touch a thigh there, as it does in few other configurations: that is a collision.
        """
        return self.share >= _ORDINARY_SHARE

    def left_out(self) -> LeftOutPair:
        """The pair as one that is not checked."""
        reason = f"{IN_CONTACT} and in {self.share:.0%} of random ones"
        return LeftOutPair(self.first, self.second, reason)


def neutral_contacts(
    tree: KinematicTree, model: SphereModel, left_out: Iterable[LeftOutPair]
) -> tuple[Contact, ...]:
    """Contacts at the neutral configuration of links that are checked.

    Args:
        tree: the moving frames.
        model: the spheres.
        left_out: pairs of links that are not checked.
    """
    layout = SphereLayout(tree, model.bodies, {})
    link_of = {name: body.link for name, body in model.bodies.items()}
    pairs = pairs_of_links(layout.sphere_links, link_of, tree, left_out)
    limits = np.asarray(tree.joint_limits, dtype=np.float64)
    neutral = torch.from_numpy(neutral_joints(limits))[None]
    touch = touching_links(neutral, layout, pairs)[0].tolist()
    near = pairs.without(~np.array(touch, dtype=bool), "")
    if len(near) == 0:
        return ()
    joints = random_joints(torch.from_numpy(limits), _SAMPLES, None)
    counts = sum(touching_links(part, layout, near).sum(0) for part in joints.split(_AT_ONCE))
    shares = (torch.as_tensor(counts) / _SAMPLES).tolist()
    return tuple(Contact(*pair, share) for pair, share in zip(near.link_pairs, shares, strict=True))
