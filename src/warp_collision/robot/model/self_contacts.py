"""What is found of a robot's contacts with itself when it is read."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from warp_collision.robot.fitting.fit_cache import cached_result
from warp_collision.robot.model.false_contacts import (
    Contact,
    LinkScene,
    SampledContacts,
    shrink_false_contacts,
)
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.link_pairs import LeftOutPair
from warp_collision.robot.model.link_shapes import FittedModel, Progress
from warp_collision.robot.model.pair_rules import APART, IN_CONTACT, pairs_of_links
from warp_collision.robot.model.proven_apart import proven_apart
from warp_collision.robot.model.sphere_model import Body, SphereModel

# Of the algorithm: another one for each change of what it returns.
_VERSION = 9
_ORDINARY_SHARE = 0.25  # of random configurations


class SelfContacts(NamedTuple):
    """Spheres without most false contacts, and the contacts at the neutral configuration.

    Attributes:
        bodies: spheres by link.
        contacts: at the neutral configuration, of the spheres before they were made smaller.
        apart: pairs of links that are proven apart, though their spheres touch.
    """

    bodies: dict[str, Body]
    contacts: tuple[Contact, ...]
    apart: tuple[tuple[str, str], ...] = ()

    def left_out(self, is_automatic: bool) -> list[LeftOutPair]:
        """Pairs of links that are proven apart.

        And if `is_automatic` those in contact at the neutral configuration, and often elsewhere.
        """
        apart = [LeftOutPair(*pair, APART) for pair in self.apart]
        if not is_automatic:
            return apart
        return apart + [
            LeftOutPair(
                contact.first,
                contact.second,
                f"{IN_CONTACT} and in {contact.share:.0%} of random ones",
            )
            for contact in self.contacts
            if is_ordinary(contact)
        ]


def is_ordinary(contact: Contact) -> bool:
    """Whether links touch at the neutral configuration as neighbours do, and not by chance.

    There a hand may touch a thigh, as it does in few other configurations: that is a collision.
    """
    return not contact.distance > 0.0 and contact.share >= _ORDINARY_SHARE


def find_self_contacts(
    tree: KinematicTree,
    model: SphereModel,
    fitted: FittedModel | None,
    shapes: Any,
    left_out: Iterable[LeftOutPair],
    is_automatic: bool,
    progress: Progress | None,
) -> SelfContacts:
    """Contacts at the neutral configuration; fitted spheres are made smaller where they touch.

    Args:
        tree: the moving frames.
        model: the spheres.
        fitted: how they were fitted; None if they are given.
        shapes: of each link, but of those with spheres of their own.
        left_out: pairs of links that are not checked.
        is_automatic: whether links in contact at the neutral configuration are not checked.
        progress: see `RobotSpheres`.
    """
    bodies = model.bodies
    sphere_links = [name for name, body in bodies.items() for _ in body.spheres]
    link_of = {name: body.link for name, body in bodies.items()}
    pairs = pairs_of_links(sphere_links, link_of, tree, left_out).link_pairs
    spheres = {name: body.spheres for name, body in bodies.items()}
    if fitted is None or not fitted.overshoots:
        contacts = SampledContacts(LinkScene(tree, spheres, link_of, {}, pairs))
        return SelfContacts(bodies, tuple(contacts.at_neutral()))
    scene = LinkScene(tree, spheres, link_of, shapes, pairs)

    def make() -> dict[str, Any]:
        contacts = SampledContacts(scene)
        found, apart = contacts.at_neutral(), proven_apart(contacts)
        unchecked = {*apart}
        if is_automatic:
            unchecked |= {contact[:2] for contact in found if is_ordinary(contact)}
        scene.pairs = tuple(pair for pair in pairs if pair not in unchecked)
        shrink_false_contacts(contacts, fitted.overshoots, progress)
        return {
            "contacts": [[*contact] for contact in found],
            "apart": apart,
            "spheres": {name: rows.tolist() for name, rows in scene.spheres.items()},
        }

    def parse(content: dict[str, Any]) -> SelfContacts:
        rows = {name: np.array(some).reshape(-1, 4) for name, some in content["spheres"].items()}
        if [*rows] != [*bodies]:
            raise ValueError(f"links must be {[*bodies]}, got {[*rows]}")
        found = {name: replace(bodies[name], spheres=some) for name, some in rows.items()}
        contacts = tuple(Contact(*values) for values in content["contacts"])
        return SelfContacts(found, contacts, tuple((a, b) for a, b in content["apart"]))

    return cached_result("robots", _key(scene, fitted, is_automatic), make, parse)


def _key(scene: LinkScene, fitted: FittedModel, *options: object) -> str:
    """Equal for equal links, joints, spheres, shapes and pairs."""
    tree, digest = scene.tree, hashlib.blake2b(digest_size=16)
    texts = (_VERSION, options, scene.pairs, fitted.content, fitted.overshoots, tree.link_frame)
    digest.update(repr(texts).encode())
    for joint in tree.moving:
        rest = joint.parent, joint.slides, joint.value, joint.multiplier, joint.shift
        digest.update(repr(rest).encode() + joint.parent_from_joint.tobytes())
        digest.update(joint.axis.tobytes())
    arrays = tree.joint_limits, *tree.frame_from_link.values(), *scene.spheres.values()
    for array in itertools.chain(arrays):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
