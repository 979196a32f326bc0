"""Worlds of a few small meshes, and what they must hold."""

from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh

from reference import IDENTITY
from warp_collision import MeshWorld, sphere_cost

Pose = tuple[float, ...]

BOX = trimesh.creation.box(extents=(0.5, 0.3, 0.2))
CUBE = trimesh.creation.box(extents=(0.3, 0.3, 0.3))
BALL = trimesh.creation.icosphere(subdivisions=1, radius=0.2)
SHIFT = (0.1, -0.2, 0.3, 1.0, 0.0, 0.0, 0.0)
TURN = (-0.1, 0.2, 0.05, 0.5, -0.5, 0.5, 0.5)
TILT = (0.2, 0.1, -0.1, 0.8, 0.0, 0.6, 0.0)


class Held(NamedTuple):
    """A mesh as an env should hold it."""

    name: str
    mesh: Any
    pose: Pose = IDENTITY
    enabled: bool = True


# Three envs: two meshes, three of which one is switched off, nothing.
SCENES = (
    [Held("box", BOX, SHIFT), Held("ball", BALL)],
    [Held("ball", BALL, TILT), Held("cube", CUBE, TURN, False), Held("box", BOX, TURN)],
    [],
)


def build(*scenes: list[Held], device: torch.device, max_obstacles: int = 4) -> MeshWorld:
    """A new world with one env per scene."""
    world = MeshWorld(len(scenes), max_obstacles, device)
    for env, scene in enumerate(scenes):
        for held in scene:
            world.add(held.name, held.mesh, held.pose, env, held.enabled)
    return world


def probe(world: MeshWorld) -> torch.Tensor:
    """Costs (n_envs, 40, 1) of a cloud of spheres against each env."""
    rng = np.random.default_rng(41)
    cloud = np.concatenate([rng.uniform(-0.6, 0.6, (40, 3)), np.full((40, 1), 0.05)], axis=1)
    spheres = torch.tensor(cloud, dtype=torch.float32, device=world.device)
    envs = torch.arange(world.n_envs, dtype=torch.int32, device=world.device)
    return sphere_cost(spheres.expand(world.n_envs, 1, 40, 4), world, env_index=envs)


def assert_holds(world: MeshWorld, *scenes: list[Held], atol: float = 0.0) -> None:
    """The world is in every respect what a new world of these scenes is."""
    fresh = build(*scenes, device=world.device, max_obstacles=world.max_obstacles)
    assert world.n_envs == len(scenes)
    assert world.n_meshes.tolist() == [len(scene) for scene in scenes]
    for env, scene in enumerate(scenes):
        assert world.names(env) == [held.name for held in scene]
        assert (world.mesh_ids[env, : len(scene)] != 0).all()
        assert (world.mesh_ids[env, len(scene) :] == 0).all()
        assert (world.enabled[env, len(scene) :] == 0).all()
        filled = slice(0, len(scene))
        assert torch.equal(world.enabled[env, filled], fresh.enabled[env, filled])
        torch.testing.assert_close(
            world.mesh_from_world[env, filled],
            fresh.mesh_from_world[env, filled],
            rtol=0.0,
            atol=atol,
        )
    torch.testing.assert_close(probe(world), probe(fresh), rtol=0.0, atol=atol)


def tables(world: MeshWorld) -> list[torch.Tensor]:
    """The public tensors."""
    return [world.mesh_ids, world.mesh_from_world, world.enabled, world.n_meshes]
