"""What a robot prints: its joints with limits, and which links have spheres and which have none."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from warp_collision.messages import escaped
from warp_collision.robot.model.kinematic_tree import KinematicTree
from warp_collision.robot.model.link_pairs import IN_CONTACT, LeftOutPair
from warp_collision.robot.model.robot_description import RobotDescription

_WIDTH = 100
_LONGEST = 40  # characters of a name


def robot_text(
    kind: str,
    description: RobotDescription,
    sphere_links: Sequence[str],
    attached: Collection[str],
    allowed: Iterable[LeftOutPair],
) -> str:
    """Joints with limits, links with and without spheres, locked joints and attached objects.

    Args:
        kind: the name of the class.
        description: links and joints.
        sphere_links: for each sphere the name of its link or attached object.
        attached: names of attached objects.
        allowed: pairs that may touch.
    """
    not_checked = [
        f"{_name(pair.first)} and {_name(pair.second)} ({escaped(pair.reason, 80)})"
        for pair in (*description.left_out, *allowed)
        if pair.reason.startswith((IN_CONTACT, "allowed"))
    ]
    touching = [
        f"{_name(contact.first)} and {_name(contact.second)}"
        for contact in description.real_contacts
    ]
    counts = Counter(sphere_links)
    bare = [link for link in description.links_without_shapes if link not in counts]
    others = {*attached, *description.links_without_spheres}  # these may have disabled ones
    links = {name: count for name, count in counts.items() if name not in others}
    lines = [
        f"{kind}: {len(description.link_names)} links, {len(description.tree.joint_names)} joints, "
        f"{len(sphere_links)} spheres",
        *joint_lines(description.tree),
        *_listed("locked", [f"{_name(name)} at {at:g}" for name, at in description.locked.items()]),
        *_listed("spheres", _counted(links)),
        *_listed("carries", _counted({name: counts[name] for name in attached})),
        *without_spheres(description.links_without_spheres),
        *_listed("without any shape", [_name(link) for link in bare]),
        *_listed("not checked with each other", not_checked),
        *_listed(f"{IN_CONTACT}, and checked, as they seldom are elsewhere", touching),
    ]
    return "\n".join(lines)


def joint_lines(tree: KinematicTree) -> list[str]:
    """A line for each joint value: its name, its limits, and the unit."""
    names = [_name(name) for name in tree.joint_names]
    width = max(map(len, names), default=0)
    return [
        f"  {name.ljust(width)}  {_range(limits)} {unit}"
        for name, limits, unit in zip(names, tree.joint_limits, tree.joint_units, strict=True)
    ]


def without_spheres(links: Sequence[str]) -> list[str]:
    """Lines that name the links with shapes that no check sees, none if there are none."""
    return _listed("without spheres, so not checked", [_name(link) for link in links])


def _range(limits: np.ndarray) -> str:
    if not np.isfinite(limits).any():
        return "without limits,"
    return f"{limits[0]:.4g} to {limits[1]:.4g}"


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{_name(name)} {count}" for name, count in counts.items()]


def _name(name: str) -> str:
    return escaped(name, _LONGEST)


def _listed(heading: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    text = f"{heading}: {', '.join(items)}"
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
