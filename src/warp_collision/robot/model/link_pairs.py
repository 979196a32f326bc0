"""The pairs of links of a robot that are checked for self-collision, by their spheres."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.kernels.robot_motion import GROUP_SIZE
from warp_collision.messages import known_names, short_repr
from warp_collision.queries.constants import Constant
from warp_collision.robot.fitting.coverage import Coverage

# Why pairs are not checked.
ADJACENT = "adjacent"
ONE_BODY = "connected by fixed joints"
IGNORED = "ignored"
OF_ROBOT_FILE = "ignored by the robot's file"
CARRIED = "carried"
IN_CONTACT = "in contact at the neutral configuration"

# Clearances whose samples differ by less are constant, up to rounding [m].
CONSTANT = 1.0e-5
# Of the overshoots: smaller spheres seldom touch where links do not, and where these touch they are
# nearer to each other than the default activation distance of costs, 1 cm.
_DRAWN_IN = 0.5
_MAX_GAPS = 10_000  # clearances of pairs of spheres at once: for more, torch wakes other threads


class PairTables(NamedTuple):
    """Tables of pairs for the kernels.

    Attributes:
        groups: (n_groups, 2) int32, begin and end of some consecutive spheres of a link.
        links: (n_links, 2) int32, begin and end of the groups of a link.
        link_pairs: (n_pairs, 4) int32, two links, begin and end of what is left out of them.
        left_out: (n, 2) int32, pairs of spheres that are not checked, sorted within those of links.
    """

    groups: Tensor
    links: Tensor
    link_pairs: Tensor
    left_out: Tensor


class TablesByName:
    """Tables as attributes.

    Compilers see attributes that appear while they trace, but not items of a dictionary.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are filled anew, see `Constant`."""
        return TablesByName, ()


class ConstantPair(NamedTuple):
    """Two spheres with the same clearance [m] at all joint values."""

    first: int
    second: int
    clearance: float


class LeftOutPair(NamedTuple):
    """Two links that are not checked against each other, and why."""

    first: str
    second: str
    reason: str


def _no_pairs() -> np.ndarray:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class SelfCollisionPairs:
    """The pairs of links that are checked for self-collision; see `self_collision_pairs`.

    Each sphere of one link is checked against each of the other. Proofs of self-collision checks
    hold for these pairs, and for no others.

    Attributes:
        sphere_links: the link of each sphere; those of a link are consecutive.
        link_pairs: pairs of links, those that come nearest to each other first.
        left_out: pairs of links that are not checked, and why.
        touching: (n, 2) int64, pairs of spheres of checked links that are not checked, because they
            touch in all samples; the smaller index first.
        constant: pairs of spheres of checked links whose clearance does not depend on the joint
            values; they cost everywhere if the activation distance is above it.
        fixed: (n, 2) int64, those of them that `changing` has left out.
        buffers: (n_spheres,) float32 [m], added to the radii for self-collision, the same for all
            spheres of a link; None for 0.
        overshoots: (n_spheres,) float32 [m], how far fitted spheres may stick out of their link;
            None for 0. Costs take them smaller by half of it, and checks ask the convex pieces.
        tables_by_frames: for the kernels of joint paths, filled by the robots that check the pairs.

    Example:
        >>> from warp_collision.examples import load_panda
        >>> pairs = load_panda().self_collision_pairs()
        >>> len(pairs), pairs.n_sphere_pairs, pairs.left_out[0].reason
        (42, 1116, 'adjacent')
        >>> min(pairs.constant, key=lambda pair: pair.clearance).clearance < 0.016
        True
    """

    sphere_links: tuple[str, ...]
    link_pairs: tuple[tuple[str, str], ...]
    left_out: tuple[LeftOutPair, ...] = ()
    touching: np.ndarray = field(default_factory=_no_pairs)
    constant: tuple[ConstantPair, ...] = ()
    fixed: np.ndarray = field(default_factory=_no_pairs)
    buffers: np.ndarray | None = None
    overshoots: np.ndarray | None = None
    tables_by_frames: TablesByName = field(default_factory=TablesByName, init=False)
    _tables: Constant[PairTables] = field(init=False)
    _changing: TablesByName = field(default_factory=TablesByName, init=False)
    _device_lengths: Constant[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        """Prepares what is copied to devices."""
        object.__setattr__(self, "_tables", Constant(self._packed))
        object.__setattr__(self, "_device_lengths", Constant(self._length_rows))

    def _length_rows(self, device: torch.device) -> Tensor:
        """Buffers and overshoots (2, n_spheres, 1)."""
        none = np.zeros(self.n_spheres, dtype=np.float32)
        rows = [none if lengths is None else lengths for lengths in (self.buffers, self.overshoots)]
        return torch.from_numpy(np.stack(rows)).to(device)[..., None]

    def __len__(self) -> int:
        return len(self.link_pairs)

    def __repr__(self) -> str:
        return (
            f"SelfCollisionPairs({len(self)} pairs of links, {self.n_sphere_pairs} of "
            f"{self.n_spheres} spheres; left out {len(self.left_out)} pairs of links, "
            f"{len(self.touching)} of spheres that always touch)"
        )

    @property
    def n_spheres(self) -> int:
        """Number of spheres of the robot."""
        return len(self.sphere_links)

    @property
    def n_sphere_pairs(self) -> int:
        """Number of pairs of spheres that are checked."""
        counts = np.diff(ranges_of_links(self.sphere_links), axis=1)[:, 0].astype(np.int64)
        indices = self.link_indices()
        total = counts[indices[:, 0]] @ counts[indices[:, 1]]
        return int(total) - len(self.touching) - len(self.fixed)

    def link_indices(self) -> np.ndarray:
        """(n_pairs, 2) int64, the pairs as numbers of links in the order of their spheres."""
        names = dict.fromkeys(self.sphere_links)
        number = {name: i for i, name in enumerate(names)}
        pairs = [sorted((number[one], number[other])) for one, other in self.link_pairs]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def changing(self, margin: float) -> SelfCollisionPairs:
        """Without spheres at a constant clearance above a margin [m]: no path changes it."""
        count = len([pair for pair in self.constant if pair.clearance > margin + CONSTANT])
        if count == 0:
            return self
        name = f"without_{count}"
        self._prepare_changing(name, count)
        return getattr(self._changing, name)

    @torch_private.run_while_tracing
    def _prepare_changing(self, name: str, count: int) -> None:
        """Leaves out so many of constant clearance, the farthest ones."""
        if not hasattr(self._changing, name):
            farthest = sorted(self.constant, key=lambda pair: pair.clearance, reverse=True)
            kept = replace(
                self,
                constant=tuple(farthest[count:]),
                fixed=np.concatenate([self.fixed, [pair[:2] for pair in farthest[:count]]]),
            )
            setattr(self._changing, name, kept)

    def without(self, chosen: np.ndarray, reason: str) -> SelfCollisionPairs:
        """Leaves out some pairs of links, (n_pairs,) bool."""
        pairs = [*zip(self.link_pairs, chosen.tolist(), strict=True)]
        gone = {frozenset(pair) for pair, is_chosen in pairs if is_chosen}
        links = np.array(self.sphere_links, dtype=object)

        def stays(first: int, second: int) -> bool:
            return frozenset((links[first], links[second])) not in gone

        touching, fixed = (
            part[[stays(*pair) for pair in part.tolist()]] if len(part) else part
            for part in (self.touching, self.fixed)
        )
        return replace(
            self,
            link_pairs=tuple(pair for pair, is_chosen in pairs if not is_chosen),
            left_out=(
                *self.left_out,
                *(LeftOutPair(*pair, reason) for pair, is_chosen in pairs if is_chosen),
            ),
            touching=touching,
            constant=tuple(pair for pair in self.constant if stays(*pair[:2])),
            fixed=fixed,
        )

    def with_lengths(
        self, buffers: Mapping[str, float], fits: Mapping[str, Sequence[Coverage]]
    ) -> SelfCollisionPairs:
        """With buffers [m] of some links, and how far the fitted spheres of links stick out."""
        overshoots = {link: max(report.overshoot for report in some) for link, some in fits.items()}
        of_spheres = [
            np.array([lengths.get(link, 0.0) for link in self.sphere_links], dtype=np.float32)
            for lengths in (buffers, overshoots)
        ]
        added, out = (lengths if lengths.any() else None for lengths in of_spheres)
        return replace(self, buffers=added, overshoots=out)

    def inflate(self, spheres: Tensor) -> Tensor:
        """Spheres (..., n_spheres, 4) inflated by the buffers; disabled ones stay disabled."""
        if self.buffers is None:
            return spheres
        return _with_radii(spheres, self._device_lengths.on(spheres.device)[0])

    def drawn_in(self, spheres: Tensor) -> Tensor:
        """`inflate`, and smaller by half of the overshoots, but not smaller than points."""
        inflated = self.inflate(spheres)
        if self.overshoots is None:
            return inflated
        return _with_radii(inflated, -_DRAWN_IN * self._device_lengths.on(spheres.device)[1])

    def near(self, spheres: Tensor, margin: float) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Pairs of links that may be nearer than a margin, with the clearance of their spheres.

        Args:
            spheres: (n, n_spheres, 4), inflated.
            margin: [m].

        Yields:
            The number of the pair of links, some rows (m,) of the spheres, and the clearance
            (m, n_first, n_second) [m] of the first link's spheres from the second's there. It is
            infinite for pairs of spheres that are disabled or not checked.
        """
        ranges, indices = ranges_of_links(self.sphere_links), self.link_indices()
        centers, radii = balls_of_links(spheres, ranges)
        unchecked = self._unchecked()
        for k, (one, other) in enumerate(indices.tolist()):
            distance = torch.linalg.vector_norm(centers[:, one] - centers[:, other], dim=-1)
            # Not finite counts as near.
            is_near = ~(distance - radii[:, one] - radii[:, other] >= margin)
            rows = torch.nonzero(is_near)[:, 0]
            if len(rows) == 0:
                continue
            (begin, end), (first, last) = ranges[one].tolist(), ranges[other].tolist()
            size = max(1, _MAX_GAPS // ((end - begin) * (last - first)))
            mask = np.zeros((end - begin, last - first), dtype=bool)
            for a, b in unchecked.get((one, other), ()):
                mask[a - begin, b - first] = True
            left_out = torch.from_numpy(mask).to(spheres.device)
            for part in rows.split(size):
                gaps = _gaps(spheres[part, begin:end], spheres[part, first:last])
                yield k, part, gaps.masked_fill_(left_out, torch.inf)

    def _unchecked(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """By two links, their pairs of spheres that are not checked, sorted."""
        ranges = ranges_of_links(self.sphere_links)
        pairs = np.unique(np.concatenate([self.touching, self.fixed]), axis=0)
        links = np.searchsorted(ranges[:, 1], pairs, side="right")
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for (one, other), (a, b) in zip(links.tolist(), pairs.tolist(), strict=True):
            found.setdefault((one, other), []).append((a, b))
        return found

    def tables(self, device: torch.device) -> PairTables:
        """The tables for the kernels, on a device."""
        return self._tables.on(device)

    def _packed(self, device: torch.device) -> PairTables:
        groups, links = groups_of_links(ranges_of_links(self.sphere_links))
        unchecked, left_out, records = self._unchecked(), [], []
        for one, other in self.link_indices().tolist():
            begin = len(left_out)
            left_out += unchecked.get((one, other), ())
            records.append((one, other, begin, len(left_out)))
        link_pairs = np.array(records, dtype=np.int32).reshape(-1, 4)
        pairs_left_out = np.array(left_out, dtype=np.int32).reshape(-1, 2)
        parts = groups, links, link_pairs, pairs_left_out
        return PairTables(*(torch.from_numpy(part).to(device) for part in parts))


def ranges_of_links(sphere_links: Sequence[str]) -> np.ndarray:
    """(n_links, 2) int32, begin and end of the spheres of each link, which are consecutive."""
    counts = [len(list(spheres)) for _, spheres in itertools.groupby(sphere_links)]
    ends = np.cumsum(counts, dtype=np.int32)
    return np.stack((ends - np.array(counts, dtype=np.int32), ends), axis=1)


def groups_of_links(links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups of a few consecutive spheres of each link, the level below it.

    Args:
        links: (n_links, 2) begin and end of their spheres.

    Returns:
        (n_groups, 2) int32, begin and end of the spheres of each group; (n_links, 2) int32, begin
        and end of the groups of each link.
    """
    groups = [
        (begin, min(begin + GROUP_SIZE, end))
        for first, end in links.tolist()
        for begin in range(first, end, GROUP_SIZE)
    ]
    counts = -(-(links[:, 1] - links[:, 0]) // GROUP_SIZE)
    ends = np.cumsum(counts, dtype=np.int32)
    of_links = np.stack((ends - counts.astype(np.int32), ends), axis=1)
    return np.array(groups, dtype=np.int32).reshape(-1, 2), of_links.astype(np.int32)


def _with_radii(spheres: Tensor, lengths: Tensor) -> Tensor:
    """Spheres (..., n_spheres, 4) with radii changed by lengths (n_spheres, 1)."""
    centers, radii = spheres[..., :3], spheres[..., 3:]
    changed = torch.where(radii < 0.0, radii, (radii + lengths.to(radii.dtype)).clamp(min=0.0))
    return torch.cat((centers, changed), dim=-1)


def balls_of_links(spheres: Tensor, ranges: np.ndarray) -> tuple[Tensor, Tensor]:
    """Centers (n, n_links, 3) and radii (n, n_links) of balls around the spheres of links.

    Of links without enabled spheres the radius is minus infinity.
    """
    enabled = ~(spheres[..., 3] < 0.0)
    points = torch.where(enabled[..., None], spheres[..., :3], 0.0)
    reaches = torch.where(enabled, spheres[..., 3], -torch.inf)
    centers, radii = [], []
    for begin, end in ranges.tolist():
        weights, part = enabled[:, begin:end].to(spheres), points[:, begin:end]
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
        center = (part * weights[..., None]).sum(1)
        distances = torch.linalg.vector_norm(part - center[:, None], dim=-1)
        centers.append(center)
        # By more than the rounding of float32.
        radii.append((distances + reaches[:, begin:end]).amax(1) * (1.0 + 1.0e-5) + 1.0e-6)
    return torch.stack(centers, 1), torch.stack(radii, 1)


def _gaps(first: Tensor, second: Tensor) -> Tensor:
    """Clearance (n, n_first, n_second) of spheres (n, ., 4), infinite where one is disabled."""
    a, b = first[:, :, None], second[:, None]
    gap = torch.linalg.vector_norm(a[..., :3] - b[..., :3], dim=-1) - a[..., 3] - b[..., 3]
    return torch.where((a[..., 3] < 0.0) | (b[..., 3] < 0.0), torch.inf, gap)


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
