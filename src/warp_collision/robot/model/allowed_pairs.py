"""Allowed contacts: pairs of a link, or attached object, and an obstacle, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warp_collision.messages import known_names, short_repr
from warp_collision.world import MeshWorld

Contacts = Iterable[tuple[str, str]]


def allowed_pairs(
    ignore: Contacts, bodies: Sequence[str], world: MeshWorld
) -> frozenset[tuple[str, str]]:
    """Pairs of a link or attached object and an obstacle, checked.

    Raises:
        ValueError: not pairs, or names that are not in the robot or not in any env of the world.
    """
    pairs = list(ignore)
    if not pairs:
        return frozenset()
    obstacles = {name for env in range(world.n_envs) for name in world.names(env)}
    for pair in pairs:
        rule = "ignore must be pairs of a link of the robot and an obstacle"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{rule}, got {short_repr(pair)}")
        link, obstacle = pair
        if link in obstacles and obstacle in bodies:
            raise ValueError(f"{rule}, in this order, got {short_repr(pair)}")
        if link not in bodies:
            known = known_names(link, bodies)
            raise ValueError(
                f"{rule}, got no link {short_repr(link)} in {short_repr(pair)}; there is {known}"
            )
        if obstacle not in obstacles:
            known = known_names(obstacle, sorted(obstacles))
            raise ValueError(
                f"{rule}, got no obstacle {short_repr(obstacle)} in {short_repr(pair)}; there is "
                f"{known}"
            )
    return frozenset((link, obstacle) for link, obstacle in pairs)
