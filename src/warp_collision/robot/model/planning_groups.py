"""Planning groups and named states of SRDFs: which joints move, and where the others are held."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.files import is_file, read_xml
from warp_collision.formats.urdf_joints import Joint
from warp_collision.messages import errors_at, escaped, known_names, short_repr
from warp_collision.robot.model.neutral import neutral_joints

_MOST_NESTED = 32  # groups in groups


@dataclass(frozen=True)
class HeldJoints:
    """A planning group whose joints move alone, and a state at which others are held.

    Attributes:
        srdf: path of the SRDF that has them.
        group: its name; None if all joints move.
        state: name of the state; None for the neutral configuration.
    """

    srdf: str | os.PathLike[str] | None = None
    group: str | None = None
    state: str | None = None

    def values(self, joints: Sequence[Joint]) -> dict[str, float | None]:
        """Values of the joints that are held.

        Raises:
            ValueError: there is no such group or state, it names unknown joints or links, or a
                group or state is given without an SRDF, or a state without a group.
        """
        if self.group is None:
            if self.state is not None:
                raise ValueError(f"state must be given with a group, got {short_repr(self.state)}")
            return {}
        if self.srdf is None:
            raise ValueError(f"group must be one of an SRDF, got {short_repr(self.group)} alone")
        with errors_at(escaped(str(self.srdf))):
            robot = _read(self.srdf)
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
        if self.srdf is None:
            return {}
        with errors_at(escaped(str(self.srdf))):
            return _states(_read(self.srdf))


NONE_HELD = HeldJoints()


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
