"""Allowed contacts: pairs of a link, or attached object, and an obstacle, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warp_collision.messages import known_names, shown
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
            raise ValueError(f"{rule}, got {shown(pair)}")
        link, obstacle = pair
        if link in obstacles and obstacle in bodies:
            raise ValueError(f"{rule}, in this order, got {shown(pair)}")
        if link not in bodies:
            choice = known_names(link, bodies)
            raise ValueError(
                f"{rule}, got no link {shown(link)} in {shown(pair)}; there is {choice}"
            )
        if obstacle not in obstacles:
            choice = known_names(obstacle, sorted(obstacles))
            raise ValueError(
                f"{rule}, got no obstacle {shown(obstacle)} in {shown(pair)}; there is {choice}"
            )
    return frozenset((link, obstacle) for link, obstacle in pairs)
