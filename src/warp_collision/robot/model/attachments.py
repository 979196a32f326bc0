"""Objects attached to links, and what of a robot may touch them."""

from __future__ import annotations

from typing import NamedTuple

from warp_collision.robot.model.link_pairs import LeftOutPair
from warp_collision.robot.model.pair_rules import CARRIED
from warp_collision.robot.model.sphere_model import Body


class Attachment(NamedTuple):
    """An object attached to a link, other links that it may touch, and its envs, None for all."""

    body: Body
    touch_links: tuple[str, ...]
    envs: frozenset[int] | None = None

    def left_out(self, name: str) -> list[LeftOutPair]:
        """The pairs of the object, by its name, that are not checked."""
        return [LeftOutPair(name, other, CARRIED) for other in (self.body.link, *self.touch_links)]
