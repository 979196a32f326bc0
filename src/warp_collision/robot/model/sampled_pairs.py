"""Spheres of a robot at random joint values, and the pairs of links that these sort."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from warp_collision.robot.model.link_pairs import (
    LeftOutPair,
    SelfCollisionPairs,
    after_samples,
    overshoots,
    random_joints,
    with_lengths,
)
from warp_collision.robot.model.pair_rules import have_few_joints, pairs_of_links
from warp_collision.robot.model.robot_description import RobotDescription
from warp_collision.robot.model.shape_gaps import touching_links
from warp_collision.robot.model.sphere_layout import SphereLayout

_SAMPLES = 1000  # random configurations, by which pairs of links are sorted
_SAMPLES_AT_ONCE = 64


def random_parts(
    limits: Tensor, count: int, generator: torch.Generator | None = None
) -> Iterator[Tensor]:
    """Joint values (n, n_joints) within limits (n_joints, 2), the first ones two."""
    joints = random_joints(limits, count, generator)
    yield from (joints[:2], *joints[2:].split(_SAMPLES_AT_ONCE))


def random_spheres(
    layout: SphereLayout, limits: Tensor, count: int, generator: torch.Generator | None = None
) -> Iterator[Tensor]:
    """Spheres (n, n_spheres, 4) at joint values within limits (n_joints, 2), the first ones two."""
    for part in random_parts(limits, count, generator):
        with torch.no_grad():
            spheres = layout.kinematics.forward(part)
        yield spheres


def contact_counts(
    layout: SphereLayout,
    pairs: SelfCollisionPairs,
    limits: Tensor,
    count: int,
    margin: float = 0.0,
    generator: torch.Generator | None = None,
) -> np.ndarray:
    """(n_pairs,) in how many of some configurations links are nearer than a margin [m]."""
    parts = random_parts(limits, count, generator)
    touch = [touching_links(part, layout, pairs, margin).sum(0) for part in parts]
    return torch.stack(touch).sum(0).numpy()


def sampled_pairs(
    description: RobotDescription,
    layout: SphereLayout,
    limits: Tensor,
    left_out: Iterable[LeftOutPair],
) -> SelfCollisionPairs:
    """The pairs of links to check, see `RobotSpheres.self_collision_pairs`.

    Args:
        description: links and joints.
        layout: the spheres of links and attached objects.
        limits: (n_joints, 2) [rad or m].
        left_out: pairs that are not checked.
    """
    link_of = {name: body.link for name, body in layout.bodies.items()}
    tree = description.tree
    pairs = pairs_of_links(layout.sphere_links, link_of, tree, left_out)
    pairs = with_lengths(pairs, description.spheres.buffers, overshoots(description.fits))
    samples = random_spheres(layout, limits.double(), _SAMPLES)
    return after_samples(pairs, samples, have_few_joints(pairs, link_of, tree))
