"""Joints of URDF files: how they move, which ones follow others, and the tree that they make."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from trimesh.transformations import rotation_matrix, translation_matrix

from warp_collision.formats.urdf_shapes import read_numbers, read_origin, required
from warp_collision.messages import depth_of_caller, short_repr

_MOVING = ("revolute", "continuous", "prismatic")
# Limits beyond these are likely in degrees [rad] and in millimetres [m].
_MOST_TURNED, _MOST_SLID = 4.0 * np.pi, 20.0
_NO_LIMIT = 1.0e5  # what stands for none


class Mimic(NamedTuple):
    """The joint that a mimic joint follows: its value is multiplier * other + offset."""

    joint: str
    multiplier: float
    offset: float


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint of a URDF.

    Attributes:
        name: its name.
        kind: revolute, continuous, prismatic, fixed, floating or planar.
        parent: a link.
        child: the link that it moves.
        parent_from_joint: (4, 4) [m].
        axis: (3,), unit, in the frame of the joint.
        mimic: the joint that it follows, if any.
        limits: lower and upper [rad or m], infinite without.
        velocity: the largest absolute value [rad/s or m/s], infinite without.
    """

    name: str
    kind: str
    parent: str
    child: str
    parent_from_joint: np.ndarray
    axis: np.ndarray
    mimic: Mimic | None = None
    limits: tuple[float, float] = (-np.inf, np.inf)
    velocity: float = np.inf

    @property
    def moves(self) -> bool:
        """Whether it has a value; floating joints have none, the base pose moves them."""
        return self.kind in _MOVING

    def parent_from_child(self, value: float) -> np.ndarray:
        """(4, 4) at a value [rad, prismatic: m] of a joint that moves."""
        if self.kind == "prismatic":
            return self.parent_from_joint @ translation_matrix(value * self.axis)
        return self.parent_from_joint @ rotation_matrix(value, self.axis)


def read_joint(element: Element, kinds: Sequence[str]) -> Joint:
    """Reads a <joint> of one of some kinds, without its limits.

    Raises:
        ValueError: another kind, or a value that breaks a rule; it names the joint.
    """
    name, kind = required(element, "name"), required(element, "type")
    where = f"joint {short_repr(name)}"
    if kind not in kinds:
        raise ValueError(f"{where} must be of type {', '.join(kinds)}, got {short_repr(kind)}")
    parent, child = (element.find(end) for end in ("parent", "child"))
    if parent is None or child is None:
        raise ValueError(f"{where} must have a <parent> and a <child>")
    ends = required(parent, "link", where), required(child, "link", where)
    joint = Joint(name, kind, *ends, read_origin(element, where), np.array([1.0, 0.0, 0.0]))
    if not joint.moves:
        return joint
    return replace(joint, axis=_read_axis(element, where), mimic=_read_mimic(element, where))


def with_limits(joint: Joint, element: Element) -> Joint:
    """The joint with the limits of its <joint>."""
    limit = element.find("limit")
    if limit is None or not joint.moves:
        return joint
    joint = replace(joint, velocity=_read_velocity(limit))
    if joint.kind == "continuous":
        return joint
    text = f"{limit.get('lower', '0')} {limit.get('upper', '0')}"
    low, high = read_numbers(text, 2, f"the limits of joint {short_repr(joint.name)}")
    return replace(joint, limits=(low, high))


def warn_of_limits(joint: Joint) -> None:
    """Warns of limits that are likely a mistake: swapped, in degrees, or in millimetres."""
    low, high = joint.limits
    where = f"the limits of joint {short_repr(joint.name)}, {low:g} to {high:g}"
    largest = max(abs(low), abs(high))
    slides = joint.kind == "prismatic"
    if low > high:
        said = f"{where}, have the lower above the upper: no value is within them"
    elif (_MOST_SLID if slides else _MOST_TURNED) < largest < _NO_LIMIT:
        read, likely = ("m", "millimetres") if slides else ("rad", "degrees")
        said = f"{where}, are read in {read}: are they in {likely}?"
    else:
        return
    warnings.warn(said, stacklevel=depth_of_caller())


def _read_velocity(limit: Element) -> float:
    """The velocity of a <limit>; without a number it has none, and nothing but timing needs it."""
    try:
        velocity = float(limit.get("velocity", "inf"))
    except ValueError:
        return np.inf
    return np.inf if np.isnan(velocity) else velocity


def _read_axis(element: Element, where: str) -> np.ndarray:
    found = element.find("axis")
    text = "1 0 0" if found is None else found.get("xyz", "1 0 0")
    axis = read_numbers(text, 3, f"the axis of {where}")
    length = np.linalg.norm(axis)
    if length == 0.0:
        raise ValueError(f"the axis of {where} must not be zero, got {short_repr(text)}")
    return axis / length


def _read_mimic(element: Element, where: str) -> Mimic | None:
    found = element.find("mimic")
    if found is None:
        return None
    gear = f"{found.get('multiplier', '1')} {found.get('offset', '0')}"
    multiplier, offset = read_numbers(gear, 2, f"multiplier and offset of {where}")
    return Mimic(required(found, "joint", where), float(multiplier), float(offset))


def joints_from_root(links: Sequence[str], joints: Sequence[Joint]) -> tuple[str, list[Joint]]:
    """The root link, and the joints of the tree, parents before children.

    Raises:
        ValueError: names that are not unique, links that do not exist, or joints that make no tree.
    """
    for names in (links, [joint.name for joint in joints]):
        _require_unique(names)
    children: dict[str, list[Joint]] = {link: [] for link in links}
    moved: set[str] = set()
    for joint in joints:
        for link in (joint.parent, joint.child):
            if link not in children:
                raise ValueError(
                    f"joint {short_repr(joint.name)} must join links that exist, got "
                    f"{short_repr(link)}"
                )
        if joint.child in moved:
            raise ValueError(
                f"joint {short_repr(joint.name)} must be the only joint to its child, got "
                f"{short_repr(joint.child)}"
            )
        moved.add(joint.child)
        children[joint.parent].append(joint)
    roots = [link for link in links if link not in moved]
    if len(roots) != 1:
        raise ValueError(f"the links must form one tree, got the roots {short_repr(roots)}")
    ordered = list(children[roots[0]])
    for joint in ordered:  # grows
        ordered += children[joint.child]
    if len(ordered) != len(joints):
        loop = sorted(moved - {joint.child for joint in ordered})
        raise ValueError(f"the links must form one tree, got a loop through {short_repr(loop)}")
    return roots[0], ordered


def _require_unique(names: Sequence[str]) -> None:
    """Requires names of which none is there twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"names must be unique, got {short_repr(twice)} twice")


def followed_joints(joints: Sequence[Joint]) -> dict[str, Mimic]:
    """For each moving joint the joint whose value it has, and multiplier and offset.

    Raises:
        ValueError: a joint that mimics itself, or one that does not move.
    """
    moving = {joint.name: joint for joint in joints if joint.moves}
    gears: dict[str, Mimic] = {}
    for name, joint in moving.items():
        multiplier, offset, followed, seen = 1.0, 0.0, joint, {name}
        while followed.mimic is not None:
            other = followed.mimic
            if other.joint not in moving or other.joint in seen:
                what = "itself" if other.joint in seen else short_repr(other.joint)
                raise ValueError(
                    f"joint {short_repr(followed.name)} must mimic a joint that moves, got {what}"
                )
            offset += multiplier * other.offset
            multiplier *= other.multiplier
            followed = moving[other.joint]
            seen.add(other.joint)
        gears[name] = Mimic(followed.name, multiplier, offset)
    return gears
