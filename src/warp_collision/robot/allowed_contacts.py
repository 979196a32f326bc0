"""Allowed contacts of links and obstacles: a check is split into parts of the scene.

Obstacles are grouped by the links that may touch them. One part checks the obstacles that no link
may touch against all links, and one for each other group its obstacles against the other links.
Costs are summed over the parts, collisions combined by "or", clearances by the minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.messages import known_names, shown
from warp_collision.poses import rows_between
from warp_collision.queries.waypoints import is_moving
from warp_collision.robot.robot_model import RobotModel
from warp_collision.robot.robot_tables import RobotTables
from warp_collision.robot.sphere_layout import only_where
from warp_collision.world import MeshWorld
from warp_collision.world.queries import scene_tables

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
            known = known_names(link, bodies)
            raise ValueError(
                f"{rule}, got no link {shown(link)} in {shown(pair)}; there is {known}"
            )
        if obstacle not in obstacles:
            known = known_names(obstacle, sorted(obstacles))
            raise ValueError(
                f"{rule}, got no obstacle {shown(obstacle)} in {shown(pair)}; there is {known}"
            )
    return frozenset((link, obstacle) for link, obstacle in pairs)


class Part(NamedTuple):
    """A group of obstacles, and the links that may touch them.

    Attributes:
        scene: tables of the world in which only these obstacles are enabled.
        touching: names of the links.
    """

    scene: SceneTables
    touching: frozenset[str] = frozenset()

    @property
    def is_first(self) -> bool:
        """Whether no link may touch these obstacles; this part includes self-collision."""
        return not self.touching

    def robot(self, robot: RobotModel) -> RobotTables:
        """Tables of the robot without the spheres of those links."""
        return robot.tables(self.scene.mesh_ids.device, self.touching)

    def disable(self, spheres: Tensor, robot: RobotModel) -> Tensor:
        """Disables the spheres (..., n_spheres, 4) of those links."""
        if self.is_first:
            return spheres
        is_on = [link not in self.touching for link in robot.sphere_links]
        return only_where(torch.tensor(is_on, device=spheres.device), spheres)


def contact_parts(
    ignore: Contacts,
    robot: RobotModel,
    world: MeshWorld,
    poses: Tensor | None = None,
    horizon: int | None = None,
    parts: int = 1,
) -> Iterator[Part]:
    """The parts of a check with allowed contacts, at least one.

    Args:
        ignore: pairs of a link, or attached object, and an obstacle; in each env that has it.
        robot: the robot of the links.
        world: the world of the obstacles.
        poses: see `sphere_cost`.
        horizon: number of waypoints, if there may be poses for each.
        parts: number of parts that each segment is cut into.
    """
    tables = scene_tables(world, poses, horizon)
    if parts > 1 and is_moving(tables.mesh_from_world):
        tables = tables.at(rows_between(tables.mesh_from_world, parts))
    contacts = allowed_pairs(ignore, robot.body_names, world)
    if not contacts:
        yield Part(tables)
        return
    links_of: dict[str, set[str]] = {}
    for link, obstacle in contacts:
        links_of.setdefault(obstacle, set()).add(link)
    chosen: dict[frozenset[str], np.ndarray] = {}
    allowed = np.zeros(tables.mesh_ids.shape, dtype=bool)
    for env in range(world.n_envs):
        for slot, name in enumerate(world.names(env)):
            if name in links_of:
                links = frozenset(links_of[name])
                chosen.setdefault(links, np.zeros_like(allowed))[env, slot] = True
                allowed[env, slot] = True
    yield Part(_only(tables, ~allowed))
    for links in sorted(chosen, key=sorted):
        yield Part(_only(tables, chosen[links]), links)


def _only(tables: SceneTables, slots: np.ndarray) -> SceneTables:
    """Tables in which all other slots are disabled."""
    mask = torch.from_numpy(slots).to(tables.enabled.device)
    return tables._replace(enabled=tables.enabled * mask, token=0)
