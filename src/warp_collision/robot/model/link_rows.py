"""Which links belong to which row of `link_distances`, as tables for its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision import torch_private
from warp_collision.launching.graph_memory import keep_for_graphs
from warp_collision.messages import short_repr
from warp_collision.queries import dispatch
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.sphere_layout import SphereLayout
from warp_collision.robot.model.sphere_model import require_links

# Names of links, or of groups with their links.
Links = Sequence[str] | Mapping[str, Sequence[str]] | None
# Groups of links by name.
_Groups = tuple[tuple[str, tuple[str, ...]], ...]
# In the third column of the table of rows.
_OF_BODIES, _OF_PAIRS = 0, 1


class LinkRows(NamedTuple):
    """The rows of a robot.

    Attributes:
        names: of each row that of its link or group, or of two of them.
        rows: (n_rows, 3) int32, begin and end of the members of each row, and what they are.
        members: (n,) int32, numbers of bodies, or of pairs of bodies.
    """

    names: tuple[tuple[str, ...], ...]
    rows: Tensor
    members: Tensor


def link_rows(
    layout: SphereLayout, links: Links, pairs: SelfCollisionPairs | None, device: torch.device
) -> LinkRows:
    """The rows of links, or of groups of links, and behind them those of their pairs.

    Args:
        layout: of the robot's spheres.
        links: see `link_distances`.
        pairs: for self-collision, or None.
        device: where the tables are to be.

    Raises:
        TypeError, ValueError: no names of links with spheres, or a link in two groups.
    """
    groups = None if links is None else _groups_of(layout, links)
    kept = layout.rows_by_name if pairs is None else pairs.tables_by_frames
    name = f"rows {device} {groups}"
    _prepare(kept, name, layout, groups, pairs, device)
    return keep_for_graphs(getattr(kept, name), device)


@torch_private.run_while_tracing
def _prepare(
    kept: Any,
    name: str,
    layout: SphereLayout,
    groups: _Groups | None,
    pairs: SelfCollisionPairs | None,
    device: torch.device,
) -> None:
    if not hasattr(kept, name):
        groups = _groups_of(layout, None) if groups is None else groups
        rows = dispatch.run_outside(lambda: _made(layout, groups, pairs, device), device)
        setattr(kept, name, rows)


def _groups_of(layout: SphereLayout, links: Links) -> _Groups:
    with_spheres = tuple(dict.fromkeys(layout.sphere_links))
    if links is None:
        return tuple((link, (link,)) for link in with_spheres)
    if isinstance(links, str) or not isinstance(links, Sequence | Mapping):
        raise TypeError(
            "links must be names of links, or a mapping of names of groups to such names, got "
            f"{short_repr(links)}"
        )
    if isinstance(links, Mapping):
        groups = tuple((group, tuple(members)) for group, members in links.items())
    else:
        groups = tuple((link, (link,)) for link in links)
    every = [link for _, members in groups for link in members]
    require_links("links", every, layout.names)
    if len(set(every)) < len(every):
        twice = next(link for link in every if every.count(link) > 1)
        raise ValueError(f"links must have each link once, got {short_repr(twice)} twice")
    for group, members in groups:
        if not set(members) & set(with_spheres):
            raise ValueError(f"links must have spheres, but {short_repr(group)} has none")
    return groups


def _made(
    layout: SphereLayout, groups: _Groups, pairs: SelfCollisionPairs | None, device: torch.device
) -> LinkRows:
    number = {link: i for i, link in enumerate(dict.fromkeys(layout.sphere_links))}
    members = [[number[link] for link in links if link in number] for _, links in groups]
    names: list[tuple[str, ...]] = [(name,) for name, _ in groups]
    kinds = [_OF_BODIES] * len(groups)
    if pairs is not None:
        group_of = {link: i for i, (_, links) in enumerate(groups) for link in links}
        of_groups: dict[tuple[int, int], list[int]] = {}
        for index, links in enumerate(pairs.link_pairs):
            found = sorted(group_of[link] for link in links if link in group_of)
            if len(found) == 2:
                of_groups.setdefault((found[0], found[1]), []).append(index)
        members += of_groups.values()
        names += [(groups[one][0], groups[other][0]) for one, other in of_groups]
        kinds += [_OF_PAIRS] * len(of_groups)
    ends = np.cumsum([len(some) for some in members], dtype=np.int64)
    begins = ends - [len(some) for some in members]
    rows = np.stack((begins, ends, kinds), axis=1).astype(np.int32).reshape(-1, 3)
    flat = np.array([index for some in members for index in some], dtype=np.int32)
    with torch.inference_mode(False):
        return LinkRows(
            tuple(names), torch.from_numpy(rows).to(device), torch.from_numpy(flat).to(device)
        )
