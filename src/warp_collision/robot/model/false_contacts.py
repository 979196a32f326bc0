"""Links in contact at the neutral configuration, and smaller spheres where links only stand near.

Fitted spheres stick out of their links, so that they touch where the links do not. Where that
happens, at the neutral configuration or at random ones, the spheres in contact are replaced by
smaller ones that cover the same part of the surface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from warp_collision.io.placing import joined
from warp_collision.robot.fitting.link_surface import LinkSurface
from warp_collision.robot.fitting.sphere_fit import TooManyPieces, refit
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.kinematics import LinkFrames
from warp_collision.robot.model.link_pairs import SelfCollisionPairs, random_joints
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.neutral import neutral_joints
from warp_collision.robot.model.urdf_model import LinkMesh, LinkShape

_SAMPLES = 200, 600  # random configurations, at least and at most
_PAIR_SAMPLES = 120_000  # about, of all pairs of links: of robots with many there are fewer samples
_ROUNDS = 8
_WANTED = 0.01  # of the configurations in false contact at most
_GAIN = 0.98  # of those before a round: if more are left, it was the last
_LEAST_OVERSHOOT = 1.0e-3  # [m]
_SHRINKING = 0.5, 0.65, 0.8  # of the overshoot in one round; the next where spheres are too many
_HOPELESS = 0.5  # of the overshoot: nearer links are in contact by their spheres still
_MAX_SPHERES = 300  # of a link


class Contact(NamedTuple):
    """Two links whose spheres touch at the neutral configuration.

    Attributes:
        first: one link.
        second: the other.
        distance: of their shapes [m], not above 0 in contact; that of the spheres where shapes are
            not known, or spheres are given.
        share: of random configurations, in which they are in contact.
    """

    first: str
    second: str
    distance: float
    share: float


@dataclass(eq=False)
class LinkScene:
    """Links with their spheres and shapes at some configurations.

    Attributes:
        tree: the moving frames.
        spheres: of each link, or what is fixed to one, in the frame of the link.
        link_of: the link of each of them.
        shapes: of each link.
        pairs: of links to consider.
        surfaces: of the links, made where needed; None where a shape cannot be read.
    """

    tree: KinematicTree
    spheres: dict[str, np.ndarray]
    link_of: Mapping[str, str]
    shapes: Mapping[str, Sequence[LinkShape | LinkMesh]]
    pairs: tuple[tuple[str, str], ...]
    surfaces: dict[str, LinkSurface | None] = field(default_factory=dict)

    def transforms(
        self, joints: np.ndarray, names: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """By link, all or some, its transforms (n, 4, 4) at joint values (n, n_joints)."""
        names = [*self.spheres] if names is None else names
        frames = LinkFrames(self.tree, [self.link_of[name] for name in names])
        values = frames.transforms(torch.from_numpy(joints)).numpy()
        return {name: values[:, i] for i, name in enumerate(names)}

    def touching(
        self, transforms: Mapping[str, np.ndarray], link_pairs: tuple[tuple[str, str], ...]
    ) -> Iterable[tuple[tuple[str, str], np.ndarray, np.ndarray]]:
        """Pairs of links whose spheres touch, rows (m,), and clearances (m, n_first, n_second)."""
        links = [name for name, rows in self.spheres.items() for _ in rows]
        parts = []
        for name, rows in self.spheres.items():
            at = transforms[name]
            centers = rows[:, :3] @ at[:, :3, :3].swapaxes(1, 2) + at[:, None, :3, 3]
            radii = np.broadcast_to(rows[:, 3:], (*centers.shape[:2], 1))
            parts.append(np.concatenate([centers, radii], axis=2))
        pairs = SelfCollisionPairs(tuple(links), link_pairs)
        order = pairs.link_indices()
        names = [*self.spheres]
        for k, rows, gaps in pairs.near(torch.from_numpy(np.concatenate(parts, axis=1)), 0.0):
            touch = (gaps < 0.0).flatten(1).any(1)
            if touch.any():
                first, second = (names[i] for i in order[k])
                yield (first, second), rows[touch].numpy(), gaps[touch].numpy()

    def surface(self, link: str) -> LinkSurface | None:
        """The surface of a link's shapes; None if there are none that can be read."""
        if link not in self.surfaces:
            self.surfaces[link] = None
            if link in self.shapes:
                try:
                    mesh = joined([*map(mesh_in_link, self.shapes[link])])
                    self.surfaces[link] = LinkSurface(link, mesh)
                except (OSError, ValueError, ImportError):
                    pass
        return self.surfaces[link]


class SampledContacts:
    """Contacts of links at the neutral configuration, number 0, and at random ones."""

    def __init__(self, scene: LinkScene):
        limits = torch.from_numpy(np.asarray(scene.tree.joint_limits, dtype=np.float64))
        count = int(np.clip(_PAIR_SAMPLES // max(1, len(scene.pairs)), *_SAMPLES))
        joints = random_joints(limits, count, None).numpy()
        neutral = neutral_joints(scene.tree.joint_limits)
        self.scene, self.n = scene, 1 + count
        self.transforms = scene.transforms(np.concatenate([neutral[None], joints]))
        self._distances: dict[tuple[str, str], np.ndarray] = {}

    def at_neutral(self) -> list[Contact]:
        """Pairs of links whose spheres touch at the neutral configuration."""
        scene, found = self.scene, []
        at = {link: transforms[:1] for link, transforms in self.transforms.items()}
        pairs = tuple(pair for pair, _, _ in scene.touching(at, scene.pairs))
        for pair, rows, gaps in scene.touching(self.transforms, pairs):
            distance = self.distances(pair, rows, gaps)
            share = float((distance[1:] <= 0.0).sum()) / (self.n - 1)
            found.append(Contact(*pair, float(distance[0]), share))
        return found

    def false_contacts(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The configurations (n,) bool with a false contact and no true one.

        Also by link the largest distance (n_spheres,) [m] of the links where a sphere is in false
        contact, 0 without.
        """
        scene = self.scene
        false, true = np.zeros(self.n, dtype=bool), np.zeros(self.n, dtype=bool)
        largest = {link: np.zeros(len(rows)) for link, rows in scene.spheres.items()}
        found = []
        for pair, rows, gaps in scene.touching(self.transforms, scene.pairs):
            matters = ~true[rows] | (rows == 0)  # other configurations are in contact anyway
            rows, gaps = rows[matters], gaps[matters]
            distance = self.distances(pair, rows, gaps)
            is_false = distance > 0.0
            true[rows[~is_false]] = True
            found.append((pair, rows[is_false], gaps[is_false], distance[is_false]))
        for (first, second), rows, gaps, distance in found:
            counts = ~true[rows] | (rows == 0)
            false[rows[counts]] = True
            touch = np.where(gaps[counts] < 0.0, distance[counts, None, None], 0.0)
            if counts.any():
                largest[first] = np.maximum(largest[first], touch.max(axis=(0, 2)))
                largest[second] = np.maximum(largest[second], touch.max(axis=(0, 1)))
        return false, largest

    def distances(self, pair: tuple[str, str], rows: np.ndarray, gaps: np.ndarray) -> np.ndarray:
        """Distance (m,) of two links in some rows; of the spheres where shapes are not known.

        Args:
            pair: the links.
            rows: (m,) configurations.
            gaps: (m, n_first, n_second) clearance of their spheres.
        """
        one, other = (self.scene.surface(link) for link in pair)
        if one is None or other is None:
            return gaps.min(axis=(1, 2))
        known = self._distances.setdefault(pair, np.full(self.n, np.nan))
        new = rows[np.isnan(known[rows])]
        if len(new):
            first, second = (self.transforms[link][new] for link in pair)
            relative = np.linalg.inv(first) @ second
            known[new] = one.distances(other, relative)
            # Points of a surface are up to half of their spacing from what is nearest.
            is_open = (known[new] > 0.0) & (known[new] < 0.6 * max(one.spacing, other.spacing))
            for row, pose in zip(new[is_open], relative[is_open], strict=True):
                known[row] = one.distance(other, pose)
        return known[rows]


def shrink_false_contacts(
    contacts: SampledContacts,
    overshoots: Mapping[str, float],
    progress: Callable[[str, int, int], object] | None = None,
) -> None:
    """Makes spheres of the links smaller where these are in contact by their spheres alone.

    Args:
        contacts: of the links.
        overshoots: of the spheres of links that may be replaced [m].
        progress: see `RobotSpheres`.
    """
    scene, reduced, last = contacts.scene, dict(overshoots), np.inf
    for _ in range(_ROUNDS):
        false, largest = contacts.false_contacts()
        share = false.mean()
        if not false[0] and (share <= _WANTED or share > _GAIN * last):
            break
        last = share
        chosen = [link for link in reduced if largest[link].any()]
        is_changed = False
        for number, link in enumerate(chosen, start=1):
            if progress is not None:
                progress(link, number, len(chosen))
            is_changed |= _refit_link(scene, link, largest[link], reduced)
        if not is_changed:
            break


def _refit_link(
    scene: LinkScene, link: str, largest: np.ndarray, overshoots: dict[str, float]
) -> bool:
    """Replaces the spheres of a link that are in false contact; whether it did.

    All of them by one smaller overshoot: others are near that the samples missed.
    """
    surface = scene.surface(link)
    old, rows = overshoots[link], scene.spheres[link]
    if surface is None:
        return False
    for share in _SHRINKING:
        overshoot = max(share * old, _LEAST_OVERSHOOT)
        gone = largest >= _HOPELESS * overshoot
        if overshoot >= old or not gone.any():
            return False
        try:
            new = refit(surface.solid, rows[~gone], rows[gone], overshoot)
        except TooManyPieces:
            continue
        if len(rows) - gone.sum() + len(new) <= _MAX_SPHERES:
            scene.spheres[link] = np.concatenate([rows[~gone], new])
            overshoots[link] = overshoot
            return True
    return False
