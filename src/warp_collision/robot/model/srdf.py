"""SRDF files: pairs of links that are not checked, planning groups and named states."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.files import is_file, read_xml
from warp_collision.formats.urdf_joints import Joint
from warp_collision.messages import errors_at, escaped, known_names, short_repr
from warp_collision.robot.model.kinematic_tree import neutral_joints
from warp_collision.robot.model.link_pairs import LeftOutPair

_MOST_NESTED = 32  # groups in groups


@dataclass(frozen=True)
class Srdf:
    """An SRDF, a planning group whose joints move alone, and a state at which others are held.

    Attributes:
        path: of the file, if there is one.
        group: its name; None if all joints move.
        state: name of the state; None for the neutral configuration.
    """

    path: str | os.PathLike[str] | None = None
    group: str | None = None
    state: str | None = None

    def left_out(self, links: Sequence[str]) -> tuple[LeftOutPair, ...]:
        """Pairs of links that the file disables, with the reasons that it gives.

        `<disable_collisions>` disables a pair, `<disable_default_collisions>` all pairs of a link
        except those of an `<enable_collisions>`. An SRDF does not concern obstacles.

        Raises:
            FileNotFoundError: it does not exist.
            ValueError: it is not an SRDF, or names unknown links.
        """
        if self.path is None:
            return ()
        with errors_at(escaped(str(self.path))):
            return _left_out(_read(self.path), links)

    def held_joints(self, joints: Sequence[Joint]) -> dict[str, float | None]:
        """Values of the joints that are held.

        Raises:
            ValueError: there is no such group or state, or it names unknown joints or links. A
                group or state without an SRDF, or a state without a group.
        """
        if self.group is None:
            if self.state is not None:
                raise ValueError(f"state must be given with a group, got {short_repr(self.state)}")
            return {}
        if self.path is None:
            raise ValueError(
                f"group must be one of an SRDF, got {short_repr(self.group)} alone; srdf, --srdf "
                "in the shell, names the file"
            )
        with errors_at(escaped(str(self.path))):
            robot = _read(self.path)
            groups = {group.get("name", ""): group for group in robot.findall("group")}
            moving = _joints_of(self.group, groups, joints, 0)
            states = _states(robot)
            if self.state is not None and self.state not in states:
                choice = known_names(self.state, [*states])
                raise ValueError(
                    f"state must be one of the SRDF, got {short_repr(self.state)}; there is "
                    f"{choice}"
                )
            at = states.get(self.state or "", {})
        free = [joint for joint in joints if joint.moves and joint.mimic is None]
        held = [joint for joint in free if joint.name not in moving]
        if len(held) == len(free):
            raise ValueError(f"group must have joints that move, got {short_repr(self.group)}")
        limits = np.array([joint.limits for joint in held]).reshape(-1, 2)
        neutral = neutral_joints(limits).tolist()
        return {
            joint.name: at.get(joint.name, value)
            for joint, value in zip(held, neutral, strict=True)
        }

    def named_states(self) -> dict[str, dict[str, float]]:
        """The states of the SRDF."""
        if self.path is None:
            return {}
        with errors_at(escaped(str(self.path))):
            return _states(_read(self.path))


def _read(srdf: str | os.PathLike[str]) -> Element:
    if not is_file(Path(srdf)):
        raise FileNotFoundError(f"srdf must be an existing file, got {short_repr(str(srdf))}")
    return read_xml(Path(srdf))


def _states(robot: Element) -> dict[str, dict[str, float]]:
    """Values of joints by the names of states; those of several groups of one name are joined."""
    states: dict[str, dict[str, float]] = {}
    for state in robot.findall("group_state"):
        values = states.setdefault(state.get("name", ""), {})
        for joint in state.findall("joint"):
            text = joint.get("value", "").split()
            try:
                numbers = [*map(float, text)]
            except ValueError:
                numbers = []
            if len(numbers) == 0:
                raise ValueError(
                    f"values of a group_state must be numbers, got {short_repr(' '.join(text))}"
                )
            if len(numbers) == 1:  # more are those of planar and floating joints
                values[joint.get("name", "")] = numbers[0]
    return states


def _joints_of(
    name: str, groups: dict[str, Element], joints: Sequence[Joint], depth: int
) -> set[str]:
    """Names of the joints of a group: listed, of its links, on its chains, of its groups."""
    if name not in groups or depth > _MOST_NESTED:
        choice = known_names(name, [*groups])
        raise ValueError(
            f"group must be one of the SRDF, got {short_repr(name)}; there is {choice}"
        )
    group, above = groups[name], {joint.child: joint for joint in joints}
    names = {joint.get("name", "") for joint in group.findall("joint")}
    names |= {above[link].name for e in group.findall("link") if (link := e.get("name")) in above}
    unknown = sorted(names - {joint.name for joint in joints})
    if unknown:
        raise ValueError(f"joints of group {short_repr(name)} must be known, got {unknown}")
    for chain in group.findall("chain"):
        base, link = chain.get("base_link"), chain.get("tip_link")
        while link != base:
            if link not in above:
                raise ValueError(
                    f"a chain of group {short_repr(name)} must lead from its base_link to its "
                    f"tip_link, got {short_repr(base)} and {short_repr(chain.get('tip_link'))}"
                )
            names.add(above[link].name)
            link = above[link].parent
    for part in group.findall("group"):
        names |= _joints_of(part.get("name", ""), groups, joints, depth + 1)
    return names


def _left_out(robot: Element, links: Sequence[str]) -> tuple[LeftOutPair, ...]:
    """Pairs of links that the root element of an SRDF disables."""
    if robot.tag != "robot":
        raise ValueError(f"must have the root element <robot>, got <{escaped(robot.tag, 100)}>")
    for tag in ("link", "joint"):  # in an SRDF they stand in groups
        if robot.find(tag) is not None:
            raise ValueError(f"srdf must be an SRDF, got a URDF: <robot> has a <{tag}>")
    disabled, enabled = (
        {
            (entry.get("link1"), entry.get("link2")): entry.get("reason")
            for entry in robot.iterfind(tag)
        }
        for tag in ("disable_collisions", "enable_collisions")
    )
    alone = [entry.get("link") for entry in robot.iterfind("disable_default_collisions")]
    named = [*itertools.chain(*disabled, *enabled), *alone]
    if None in named:
        raise ValueError("links of a pair must have names, got none")
    unknown = sorted({str(name) for name in named if name not in links})
    if unknown:
        choice = known_names(unknown[0], links)
        raise ValueError(
            f"links must be those of the robot, got {short_repr(unknown)}; there is {choice}"
        )
    kept = {frozenset(pair) for pair in enabled}
    by_link = [(link, other) for link in alone for other in links]
    pairs = dict.fromkeys(
        pair for pair in (*disabled, *by_link) if pair in disabled or frozenset(pair) not in kept
    )
    return tuple(
        LeftOutPair(str(one), str(other), _reason(disabled.get((one, other))))
        for one, other in pairs
        if one != other
    )


def _reason(given: str | None) -> str:
    return f"disabled by the SRDF ({escaped(given, 40)})" if given else "disabled by the SRDF"
