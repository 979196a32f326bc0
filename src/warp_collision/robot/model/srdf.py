"""SRDF files: pairs of links that are not checked against each other."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from warp_collision.formats.files import is_file, read_xml
from warp_collision.messages import errors_at, escaped, known_names, short_repr
from warp_collision.robot.model.link_pairs import LeftOutPair


def read_srdf(path: str | os.PathLike[str], links: Sequence[str]) -> tuple[LeftOutPair, ...]:
    """Pairs of links that an SRDF disables, with the reasons that it gives.

    `<disable_collisions>` disables a pair, `<disable_default_collisions>` all pairs of a link
    except those of an `<enable_collisions>`. An SRDF does not concern obstacles.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is not an SRDF, or names unknown links.
    """
    path = Path(path)
    if not is_file(path):
        raise FileNotFoundError(f"srdf must be an existing file, got {short_repr(str(path))}")
    with errors_at(escaped(str(path))):
        robot = read_xml(path)
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
