"""Allowed contacts of links and obstacles, as a table of a world that kernels read."""

from __future__ import annotations

import numpy as np
from torch import Tensor
from torch.compiler import is_compiling

from warp_collision import torch_private
from warp_collision.poses import rows_between
from warp_collision.queries import dispatch
from warp_collision.queries.evaluate import scene_of
from warp_collision.robot.model.allowed_pairs import (
    ContactPairs,
    Contacts,
    as_pairs,
    check_names,
)
from warp_collision.robot.model.robot_spheres import RobotSpheres
from warp_collision.world import MeshWorld
from warp_collision.world.ignored_spheres import IgnoredSpheres
from warp_collision.world.scene import Scene

# Allowed contacts, names of all links and attached objects, and of that of each sphere.
_Asked = tuple[ContactPairs, tuple[str, ...], tuple[str, ...]]


def scene_with_contacts(
    ignore: Contacts,
    robot: RobotSpheres,
    world: MeshWorld,
    poses: Tensor | None = None,
    horizon: int | None = None,
    parts: int = 1,
) -> Scene:
    """The scene of a world for the spheres of a robot with allowed contacts.

    Args:
        ignore: pairs of a link, or attached object, and an obstacle; in each env that has it.
        robot: the robot of the links.
        world: the world of the obstacles.
        poses: see `sphere_cost`.
        horizon: number of waypoints, if there may be poses for each.
        parts: number of parts that each segment is cut into.
    """
    scene = scene_of(world, poses, horizon)
    if parts > 1 and scene.is_moving:
        scene = scene.at(rows_between(scene.mesh_from_world, parts))
    pairs = as_pairs(ignore) if ignore else ()
    if not pairs:
        return scene
    with_contacts = _with_contacts(pairs, robot, world)
    if with_contacts.tables.shape != scene.tables.shape:
        # Another thread has made the world larger.
        return scene_with_contacts(pairs, robot, world, poses, horizon, parts)
    return with_contacts.at(scene.mesh_from_world)


def _with_contacts(pairs: ContactPairs, robot: RobotSpheres, world: MeshWorld) -> Scene:
    """The scene of a world with allowed contacts, at its own poses; made at the first call."""
    asked = pairs, robot.body_names, robot.sphere_links
    if is_compiling():
        name = _prepare_for_graphs(world, asked)
        return getattr(world._storage.ignored.of_graphs, name).scene
    known = world._storage.ignored.find(asked)
    if known is not None:
        return known
    return dispatch.run_outside(lambda: _prepare(world, asked), world.device).scene


@torch_private.run_while_tracing
def _prepare_for_graphs(world: MeshWorld, asked: _Asked) -> str:
    """`_prepare` for a graph, which reads an attribute of this name."""
    with world._lock:
        return world._storage.ignored.name_in_graphs(_prepare(world, asked))


def _prepare(world: MeshWorld, asked: _Asked) -> IgnoredSpheres:
    """Looks the names up, and makes the table if there is none yet."""
    pairs, bodies, sphere_links = asked
    with world._lock:
        check_names(pairs, bodies, world)
        links_of: dict[str, set[str]] = {}
        for link, obstacle in pairs:
            links_of.setdefault(obstacle, set()).add(link)
        by_obstacle = {
            obstacle: np.array([link in links for link in sphere_links], dtype=bool)
            for obstacle, links in links_of.items()
        }
        envs = world._slots.envs
        storage = world._storage
        return storage.ignored.add(storage.scene, asked, by_obstacle, len(sphere_links), envs)
