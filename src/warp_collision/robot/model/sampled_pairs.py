"""Links of a robot at random joint values: which ones touch, and which pairs are checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.model.kinematic_tree import KinematicTree, ancestors, neutral_joints
from warp_collision.robot.model.link_pairs import (
    CONSTANT,
    IN_CONTACT,
    ONE_BODY,
    ConstantPair,
    LeftOutPair,
    SelfCollisionPairs,
    balls_of_links,
    ranges_of_links,
)
from warp_collision.robot.model.sphere_contacts import touching_links
from warp_collision.robot.model.sphere_layout import SphereLayout
from warp_collision.robot.model.sphere_model import SphereModel

_SAMPLES = 1000  # random configurations, by which pairs of links are sorted
_SAMPLES_AT_ONCE = 256
_SAMPLES_OF_CONTACTS = 400  # at the neutral configuration
_ORDINARY_SHARE = 0.25  # of these
# Joints between two links that may leave spheres on their axes at a constant distance: the axes of
# a wrist meet.
_FEW_JOINTS = 3


def random_joints(limits: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """(count, n_joints) values within limits (n_joints, 2); a fixed seed without a generator.

    All of the range of a joint is drawn from: a pair that touches in a part of it only is checked.
    Joints without limits have one revolution.
    """
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    low, high = limits.unbind(-1)
    low = torch.where(low.isinf(), high.clamp(max=torch.pi) - 2.0 * torch.pi, low)
    high = torch.where(high.isinf(), low + 2.0 * torch.pi, high)
    draw = torch.rand((count, len(low)), generator=generator, dtype=limits.dtype)
    return low + draw * (high - low)


def _random_parts(limits: Tensor, count: int, generator: torch.Generator | None) -> list[Tensor]:
    """Joint values (n, n_joints) within limits (n_joints, 2), the first ones two."""
    joints = random_joints(limits, count, generator)
    return [joints[:2], *joints[2:].split(_SAMPLES_AT_ONCE)]


def contact_counts(
    layout: SphereLayout,
    pairs: SelfCollisionPairs,
    limits: Tensor,
    count: int,
    margin: float = 0.0,
    generator: torch.Generator | None = None,
) -> np.ndarray:
    """(n_pairs,) in how many of some configurations links are nearer than a margin [m]."""
    parts = _random_parts(limits, count, generator)
    touch = [touching_links(part, layout, pairs, margin).sum(0) for part in parts]
    return torch.stack(touch).sum(0).numpy()


# -- contacts at the neutral configuration, found when a robot is read ---------------------------


class NeutralContact(NamedTuple):
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
) -> tuple[NeutralContact, ...]:
    """Contacts at the neutral configuration of links that are checked.

    Links that are often in contact are ordinary if their pieces touch there; the surfaces of a
    joint's two sides may be a hair apart in one place of all.

    Args:
        tree: the moving frames.
        model: the spheres.
        left_out: pairs of links that are not checked.
    """
    bodies = {name: replace(body, surface=None) for name, body in model.bodies.items()}
    coarse, layout = SphereLayout(tree, bodies), SphereLayout(tree, model.bodies)
    pairs = _pairs_of_links(layout, left_out)
    limits = np.asarray(tree.joint_limits, dtype=np.float64)
    neutral = torch.from_numpy(neutral_joints(limits))[None]
    near = pairs.without(~touching_links(neutral, coarse, pairs)[0].numpy(), "")
    if len(near) == 0:
        return ()
    touch = touching_links(neutral, layout, near)[0].tolist()
    counts = contact_counts(layout, near, torch.from_numpy(limits), _SAMPLES_OF_CONTACTS)
    shares = (torch.from_numpy(counts) / _SAMPLES_OF_CONTACTS).tolist()
    found = (
        NeutralContact(*pair, share) for pair, share in zip(near.link_pairs, shares, strict=True)
    )
    return tuple(
        contact
        for contact, is_hit in zip(found, touch, strict=True)
        if is_hit or contact.is_ordinary
    )


# -- pairs to check -------------------------------------------------------------------------------


def sampled_pairs(
    layout: SphereLayout,
    limits: Tensor,
    left_out: Iterable[LeftOutPair],
    buffers: Mapping[str, float],
    fits: Mapping[str, Sequence[Coverage]],
) -> SelfCollisionPairs:
    """The pairs of links to check, see `RobotSpheres.self_collision_pairs`.

    Args:
        layout: the spheres of links and attached objects.
        limits: (n_joints, 2) [rad or m].
        left_out: pairs that are not checked.
        buffers: of links [m].
        fits: of links with fitted spheres.
    """
    pairs = _pairs_of_links(layout, left_out).with_lengths(buffers, fits)
    parts = _random_parts(limits.double(), _SAMPLES, None)
    with torch.no_grad():
        samples = map(layout.kinematics.forward, parts)
        return _after_samples(pairs, samples, _have_few_joints(pairs, layout))


def _pairs_of_links(layout: SphereLayout, given: Iterable[LeftOutPair]) -> SelfCollisionPairs:
    """All pairs of links and attached objects, except for those that are left out.

    Args:
        layout: the spheres of links and attached objects.
        given: pairs that are left out, the first reason of each counts.
    """
    reasons: dict[frozenset[str], str] = {}
    for first, second, reason in given:
        reasons.setdefault(frozenset((first, second)), reason)
    kept, left_out = [], []
    for one, other in itertools.combinations(dict.fromkeys(layout.sphere_links), 2):
        reason = reasons.get(frozenset((one, other)))
        if reason is None and layout.frame_of[one] == layout.frame_of[other]:
            reason = ONE_BODY
        if reason is None:
            kept.append((one, other))
        else:
            left_out.append(LeftOutPair(one, other, reason))
    return SelfCollisionPairs(layout.sphere_links, tuple(kept), tuple(left_out))


def _have_few_joints(pairs: SelfCollisionPairs, layout: SphereLayout) -> np.ndarray:
    """(n_pairs,) bool, whether few joints are between the links of a pair."""
    joints = layout.kinematics.joints
    above = {name: {*ancestors(joints, frame)} for name, frame in layout.frame_of.items()}
    counts = [len(above[one] ^ above[other]) for one, other in pairs.link_pairs]
    return np.array(counts, dtype=np.int64) <= _FEW_JOINTS


class _Followed:
    """Pairs of spheres of two links that touched in all samples so far, or kept their clearance.

    Those touch that do so by more than their overshoots.

    Args:
        ranges: (2, 2), begin and end of the spheres of each link.
        spheres: (n, n_spheres, 4), the first samples.
        overshoots: (n_spheres,) [m].
    """

    def __init__(self, ranges: np.ndarray, spheres: np.ndarray, overshoots: np.ndarray):
        first, second = (slice(*span) for span in ranges.tolist())
        one, other = spheres[:, first, None], spheres[:, None, second]
        gap = _clearances(one, other)
        disabled = (one[..., 3] < 0.0) | (other[..., 3] < 0.0)
        lowest, highest = gap.min(axis=0), gap.max(axis=0)
        least = -overshoots[first, None] - overshoots[None, second]
        stay = _stay(lowest, highest, least) & ~disabled.any(axis=0)
        self.pairs = np.argwhere(stay) + ranges[:, 0]
        self.lowest, self.highest, self.least = lowest[stay], highest[stay], least[stay]

    def follow(self, spheres: np.ndarray) -> None:
        """Compares with further samples (n, n_spheres, 4)."""
        gap = _clearances(*(spheres[:, column] for column in self.pairs.T))
        lowest = np.minimum(self.lowest, gap.min(axis=0))
        highest = np.maximum(self.highest, gap.max(axis=0))
        stay = _stay(lowest, highest, self.least)
        self.pairs, self.lowest, self.highest = self.pairs[stay], lowest[stay], highest[stay]
        self.least = self.least[stay]


def _clearances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Clearances of spheres (..., 4), which broadcast."""
    x, y, z = (one[..., axis] - other[..., axis] for axis in range(3))
    return np.sqrt(x * x + y * y + z * z) - one[..., 3] - other[..., 3]


def _stay(lowest: np.ndarray, highest: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Whether spheres of these clearances are always below the least, or keep their clearance."""
    return (highest < least) | (highest - lowest < CONSTANT)


def _after_samples(
    pairs: SelfCollisionPairs, samples: Iterator[Tensor], few_joints: np.ndarray
) -> SelfCollisionPairs:
    """Pairs of links sorted by how near they come, without spheres that touch in all samples.

    Args:
        pairs: of links.
        samples: spheres (n, n_spheres, 4) float64; the first ones few.
        few_joints: (n_pairs,) bool, whether a pair is connected by so few joints that spheres may
            have the same clearance at all joint values.
    """
    if len(pairs) == 0:
        return pairs
    ranges, indices = ranges_of_links(pairs.sphere_links), pairs.link_indices()
    followed: dict[int, _Followed] = {}
    lowest = np.full(len(pairs), np.inf)
    out = pairs.overshoots if pairs.overshoots is not None else np.zeros(pairs.n_spheres)
    for number, part in enumerate(map(pairs.inflate, samples)):
        centers, radii = (values.numpy() for values in balls_of_links(part, ranges))
        one, other = indices.T
        distance = np.linalg.norm(centers[:, one] - centers[:, other], axis=-1)
        gap = distance - radii[:, one] - radii[:, other]
        lowest = np.minimum(lowest, gap.min(axis=0))
        values = part.numpy()
        if number == 0:
            chosen = np.flatnonzero(few_joints | (gap < 0.0).all(axis=0)).tolist()
            followed = {k: _Followed(ranges[indices[k]], values, out) for k in chosen}
        else:
            for spheres_of_pair in followed.values():
                spheres_of_pair.follow(values)
        followed = {k: some for k, some in followed.items() if len(some.pairs)}
    rows = [
        (*pair, low, high, least)
        for some in followed.values()
        for pair, low, high, least in zip(
            some.pairs.tolist(), some.lowest, some.highest, some.least, strict=True
        )
    ]
    return replace(
        pairs,
        link_pairs=tuple(pairs.link_pairs[k] for k in np.argsort(lowest, kind="stable")),
        touching=np.array([row[:2] for row in rows if row[3] < row[4]]).astype(int).reshape(-1, 2),
        constant=tuple(
            ConstantPair(a, b, float(low)) for a, b, low, high, _ in rows if high >= 0.0
        ),
    )
