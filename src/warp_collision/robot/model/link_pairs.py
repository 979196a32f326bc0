"""The pairs of links of a robot that are checked for self-collision, by their spheres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.devices import is_capturing
from warp_collision.launching.deferred_free import keep_for_graphs
from warp_collision.queries import dispatch
from warp_collision.queries.constants import Constant
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.model.bounding_balls import groups_of_links, ranges_of_links

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
        overshoots: (n_spheres,) float32 [m], how far fitted spheres may stick out of their link:
            costs see them smaller by half of it, and checks ask the convex pieces; None for 0.
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
    _on_device: dict[torch.device, PairTables] = field(default_factory=dict, init=False)
    _changing: TablesByName = field(default_factory=TablesByName, init=False)
    _device_lengths: Constant[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        """Prepares what is copied to devices."""
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
            The number of the pair of links, some rows (m,) of the spheres, and there the clearance
            (m, n_first, n_second) [m] of the first link's spheres from the second's, infinite where
            a pair of spheres is not checked or disabled.
        """
        ranges, indices = ranges_of_links(self.sphere_links), self.link_indices()
        centers, radii = _balls(spheres, ranges)
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
        self._prepare(device)
        tables = self._on_device.get(device)
        return keep_for_graphs(self._packed(device) if tables is None else tables, device)

    @torch_private.run_while_tracing
    def _prepare(self, device: torch.device) -> None:
        """Makes the tables for a device, unless a graph is being captured."""
        if device not in self._on_device and not is_capturing(device):
            tables = dispatch.run_outside(lambda: self._packed(device), device)
            self._on_device[device] = tables

    def _packed(self, device: torch.device) -> PairTables:
        with torch.inference_mode(False):
            return PairTables(*(torch.from_numpy(part).to(device) for part in self._pack()))

    def _pack(self) -> tuple[np.ndarray, ...]:
        groups, links = groups_of_links(ranges_of_links(self.sphere_links))
        unchecked, left_out, records = self._unchecked(), [], []
        for one, other in self.link_indices().tolist():
            begin = len(left_out)
            left_out += unchecked.get((one, other), ())
            records.append((one, other, begin, len(left_out)))
        link_pairs = np.array(records, dtype=np.int32).reshape(-1, 4)
        return groups, links, link_pairs, np.array(left_out, dtype=np.int32).reshape(-1, 2)


def _with_radii(spheres: Tensor, lengths: Tensor) -> Tensor:
    """Spheres (..., n_spheres, 4) with radii changed by lengths (n_spheres, 1)."""
    centers, radii = spheres[..., :3], spheres[..., 3:]
    changed = torch.where(radii < 0.0, radii, (radii + lengths.to(radii.dtype)).clamp(min=0.0))
    return torch.cat((centers, changed), dim=-1)


def _balls(spheres: Tensor, ranges: np.ndarray) -> tuple[Tensor, Tensor]:
    """Centers (n, n_links, 3) and radii (n, n_links) of balls around the spheres of links.

    Of links without enabled spheres the radius is minus infinity.
    """
    centers, radii = [], []
    for begin, end in ranges.tolist():
        part = spheres[:, begin:end]
        enabled = ~(part[..., 3] < 0.0)
        weights = enabled.to(part) / enabled.sum(1, keepdim=True).clamp(min=1)
        points = torch.where(enabled[..., None], part[..., :3], 0.0)
        center = (points * weights[..., None]).sum(1)
        reach = torch.linalg.vector_norm(points - center[:, None], dim=-1) + part[..., 3]
        reach = torch.where(enabled, reach, -torch.inf).amax(1)
        centers.append(center)
        radii.append(reach * (1.0 + 1.0e-5) + 1.0e-6)  # by more than the rounding of float32
    return torch.stack(centers, 1), torch.stack(radii, 1)


def _gaps(first: Tensor, second: Tensor) -> Tensor:
    """Clearance (n, n_first, n_second) of spheres (n, ., 4), infinite where one is disabled."""
    a, b = first[:, :, None], second[:, None]
    gap = torch.linalg.vector_norm(a[..., :3] - b[..., :3], dim=-1) - a[..., 3] - b[..., 3]
    return torch.where((a[..., 3] < 0.0) | (b[..., 3] < 0.0), torch.inf, gap)


def overshoots(fits: Mapping[str, Sequence[Coverage]]) -> dict[str, float]:
    """How far the fitted spheres of links stick out at most [m]."""
    return {link: max(report.overshoot for report in some) for link, some in fits.items()}


def with_lengths(
    pairs: SelfCollisionPairs, buffers: Mapping[str, float], overshoots: Mapping[str, float]
) -> SelfCollisionPairs:
    """The pairs with buffers and overshoots [m] of the spheres of some links."""
    of_spheres = [
        np.array([lengths.get(link, 0.0) for link in pairs.sphere_links], dtype=np.float32)
        for lengths in (buffers, overshoots)
    ]
    added, out = (lengths if lengths.any() else None for lengths in of_spheres)
    return replace(pairs, buffers=added, overshoots=out)


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


def after_samples(
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
        centers, radii = (values.numpy() for values in _balls(part, ranges))
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
