"""Allowed contacts: pairs of a link, or attached object, and an obstacle, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from warp_collision.messages import known_names, short_repr
from warp_collision.world import MeshWorld

Contacts = Iterable[tuple[str, str]]
ContactPairs = tuple[tuple[str, str], ...]

_RULE = "ignore must be pairs of a link of the robot and an obstacle"


def as_pairs(ignore: Contacts) -> ContactPairs:
    """ContactPairs as tuples, whose names are not looked up.

    Raises:
        ValueError: not pairs.
    """
    # A list, and no call for most pairs: each call of a check comes here.
    return tuple(
        [pair if type(pair) is tuple and len(pair) == 2 else _pair(pair) for pair in ignore]
    )


def _pair(pair: Any) -> tuple[str, str]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{_RULE}, got {short_repr(pair)}")
    link, obstacle = pair
    return link, obstacle


def check_names(pairs: ContactPairs, bodies: Sequence[str], world: MeshWorld) -> None:
    """Checks that pairs are of a link or attached object and an obstacle.

    Raises:
        ValueError: names that are not in the robot or not in any env of the world.
    """
    obstacles = {name for env in range(world.n_envs) for name in world.names(env)}
    for pair in pairs:
        link, obstacle = pair
        if link in obstacles and obstacle in bodies:
            raise ValueError(f"{_RULE}, in this order, got {short_repr(pair)}")
        if link not in bodies:
            choice = known_names(link, bodies)
            raise ValueError(
                f"{_RULE}, got no link {short_repr(link)} in {short_repr(pair)}; there is {choice}"
            )
        if obstacle not in obstacles:
            choice = known_names(obstacle, sorted(obstacles))
            raise ValueError(
                f"{_RULE}, got no obstacle {short_repr(obstacle)} in {short_repr(pair)}; there is "
                f"{choice}"
            )
