"""The pairs of spheres of a robot that are checked for self-collision."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.devices import is_capturing
from warp_collision.launching.deferred_free import keep_for_graphs
from warp_collision.messages import known_names, short_repr
from warp_collision.queries import dispatch
from warp_collision.queries.constants import Constant

# Clearances whose samples differ by less are constant, up to rounding [m].
_CONSTANT = 1.0e-5


class PairTables(NamedTuple):
    """Tables of pairs for the kernels, sorted by links, then by spheres.

    Attributes:
        groups: (n_groups, 2) int32, begin and end of the spheres of a link.
        group_pairs: (n_group_pairs, 4) int32, two groups, begin and end of their pairs.
        pairs: (n_pairs, 2) int32, two spheres.
    """

    groups: Tensor
    group_pairs: Tensor
    pairs: Tensor


class TablesByName:
    """Tables as attributes.

    Compilers see attributes that appear while they trace, but not items of a dictionary.
    """


class ConstantPair(NamedTuple):
    """Two spheres with the same clearance [m] at all joint values."""

    first: int
    second: int
    clearance: float


def ranges_of_links(sphere_links: Sequence[str]) -> np.ndarray:
    """(n_links, 2) int32, begin and end of the spheres of each link, which are consecutive."""
    counts = [len(list(spheres)) for _, spheres in itertools.groupby(sphere_links)]
    ends = np.cumsum(counts, dtype=np.int32)
    return np.stack((ends - np.array(counts, dtype=np.int32), ends), axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class SelfCollisionPairs:
    """The pairs of spheres that are checked for self-collision; see `self_collision_pairs`.

    Proofs of self-collision checks hold for these pairs, and for no others.

    Attributes:
        sphere_links: the link of each sphere.
        pairs: (n_pairs, 2) int64, two spheres of different links, the smaller index first.
        ignored: pairs of links that are left out: adjacent ones, and those of `ignore`.
        touching: (n, 2) int64, pairs that are left out because they touch in all samples.
        constant: pairs within `pairs` whose clearance does not depend on the joint values; they
            cost everywhere if the activation distance is above it.
        never_near: (n, 2) int64, pairs left out by `find_pairs`: not near in any sample.
        buffers: (n_spheres,) float32 [m], added to the radii for self-collision, the same for all
            spheres of a link; None for 0.
        tables_by_frames: for the kernels of joint paths, filled by the robots that check the pairs.

    Example:
        >>> from warp_collision.examples import load_panda
        >>> panda = load_panda()
        >>> pairs = panda.self_collision_pairs()
        >>> len(pairs), min(pairs.constant, key=lambda pair: pair.clearance).clearance < 0.016
        (1116, True)
        >>> fewer = panda.find_pairs(1000)
        >>> len(fewer) + len(fewer.never_near)
        1116
    """

    sphere_links: tuple[str, ...]
    pairs: np.ndarray
    ignored: frozenset[frozenset[str]] = frozenset()
    touching: np.ndarray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    constant: tuple[ConstantPair, ...] = ()
    never_near: np.ndarray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    buffers: np.ndarray | None = None
    tables_by_frames: TablesByName = field(default_factory=TablesByName, init=False)
    _on_device: dict[torch.device, PairTables] = field(default_factory=dict, init=False)
    _changing: dict[float, SelfCollisionPairs] = field(default_factory=dict, init=False)
    _device_buffers: Constant[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        """Prepares what is copied to devices."""
        object.__setattr__(self, "_device_buffers", Constant(self._buffer_rows))

    def _buffer_rows(self, device: torch.device) -> Tensor:
        assert self.buffers is not None
        return torch.from_numpy(self.buffers).to(device)[:, None]

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        left_out = f"{len(self.touching)} always touch, {len(self.never_near)} are never near"
        return f"SelfCollisionPairs({len(self)} pairs of {self.n_spheres} spheres; {left_out})"

    def changing(self, margin: float) -> SelfCollisionPairs:
        """Without the constant pairs whose clearance is above a margin [m]: no path changes it."""
        kept = self._changing.get(margin)
        if kept is None:
            fixed = {pair[:2] for pair in self.constant if pair.clearance > margin + _CONSTANT}
            kept = self
            if fixed:
                which = [tuple(pair) not in fixed for pair in self.pairs.tolist()]
                constant = tuple(pair for pair in self.constant if pair[:2] not in fixed)
                kept = replace(self, pairs=self.pairs[which], constant=constant)
            self._changing[margin] = kept
        return kept

    @property
    def n_spheres(self) -> int:
        """Number of spheres of the robot."""
        return len(self.sphere_links)

    def inflate(self, spheres: Tensor) -> Tensor:
        """Spheres (..., n_spheres, 4) inflated by the buffers; disabled ones stay disabled."""
        if self.buffers is None:
            return spheres
        centers, radii = spheres[..., :3], spheres[..., 3:]
        buffers = self._device_buffers.on(spheres.device).to(spheres.dtype)
        inflated = torch.where(radii < 0.0, radii, radii + buffers)
        return torch.cat((centers, inflated), dim=-1)

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

    def _pack(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        groups = ranges_of_links(self.sphere_links)
        group_of = np.repeat(np.arange(len(groups)), groups[:, 1] - groups[:, 0])
        keys = group_of[self.pairs]
        order = np.lexsort((*self.pairs.T[::-1], keys[:, 1], keys[:, 0]))
        pairs, keys = self.pairs[order], keys[order]
        is_first = np.ones(len(pairs), dtype=bool)
        is_first[1:] = (np.diff(keys, axis=0) != 0).any(axis=1)
        first = np.flatnonzero(is_first)
        ends = np.append(first, len(pairs))[1:]
        group_pairs = np.concatenate([keys[first], np.stack([first, ends], axis=1)], axis=1)
        return groups, group_pairs.astype(np.int32), pairs.astype(np.int32).reshape(-1, 2)


def pairs_of_links(
    sphere_links: Sequence[str],
    sphere_frames: np.ndarray,
    link_names: Sequence[str],
    adjacent: Iterable[tuple[str, str]],
    ignore: Iterable[tuple[str, str]],
) -> SelfCollisionPairs:
    """All pairs of spheres of different links, except for pairs of links that are left out.

    Links of one frame, which fixed joints connect, do not move relative to each other.
    """
    requested = [tuple(pair) for pair in ignore]
    for pair in requested:
        unknown = [name for name in pair if name not in link_names]
        if len(pair) != 2 or unknown:
            choice = f"; there is {known_names(unknown[0], link_names)}" if unknown else ""
            raise ValueError(
                f"ignore must be pairs of links of the robot, got {short_repr(pair)}{choice}"
            )
    ignored = frozenset(frozenset(pair) for pair in (*adjacent, *requested))
    kept = [
        (a, b)
        for a, b in itertools.combinations(range(len(sphere_links)), 2)
        if sphere_links[a] != sphere_links[b]
        and sphere_frames[a] != sphere_frames[b]
        and frozenset((sphere_links[a], sphere_links[b])) not in ignored
    ]
    pairs = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return SelfCollisionPairs(tuple(sphere_links), pairs, ignored)


def with_buffers(pairs: SelfCollisionPairs, buffers: Mapping[str, float]) -> SelfCollisionPairs:
    """The pairs with buffers [m] for the spheres of some links."""
    lengths = np.array([buffers.get(link, 0.0) for link in pairs.sphere_links], dtype=np.float32)
    return replace(pairs, buffers=lengths) if lengths.any() else pairs


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


def without_touching(pairs: SelfCollisionPairs, samples: Tensor) -> SelfCollisionPairs:
    """Leaves out pairs that touch in all samples (n, n_spheres, 4); reports constant ones."""
    if len(pairs) == 0:
        return pairs
    lowest, highest = _range_of_clearance(pairs, samples)
    touching = highest < 0.0
    constant = (highest - lowest < _CONSTANT) & ~touching
    return replace(
        pairs,
        pairs=pairs.pairs[~touching],
        touching=pairs.pairs[touching],
        constant=tuple(
            ConstantPair(int(a), int(b), float(gap))
            for (a, b), gap in zip(pairs.pairs[constant], lowest[constant], strict=True)
        ),
    )


def without_far(pairs: SelfCollisionPairs, samples: Tensor, margin: float) -> SelfCollisionPairs:
    """Leaves out pairs whose clearance is above a margin [m] in all samples."""
    lowest, _ = _range_of_clearance(pairs, samples)
    near = lowest < margin
    kept = {tuple(pair) for pair in pairs.pairs[near].tolist()}
    constant = tuple(pair for pair in pairs.constant if pair[:2] in kept)
    return replace(
        pairs,
        pairs=pairs.pairs[near],
        never_near=pairs.pairs[~near],
        constant=constant,
    )


def _range_of_clearance(
    pairs: SelfCollisionPairs, samples: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest clearance (n_pairs,) [m] of each pair in samples."""
    lowest = np.full(len(pairs), np.inf)
    highest = np.full(len(pairs), -np.inf)
    first, second = torch.from_numpy(pairs.pairs).unbind(-1)
    for part in pairs.inflate(samples.double()).split(256):
        a, b = part[:, first], part[:, second]
        gap = torch.linalg.vector_norm(a[..., :3] - b[..., :3], dim=-1) - a[..., 3] - b[..., 3]
        lowest = np.minimum(lowest, gap.amin(0).numpy())
        highest = np.maximum(highest, gap.amax(0).numpy())
    return lowest, highest
