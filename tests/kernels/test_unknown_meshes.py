"""Meshes of which the kernels know nothing but their id: slow, and right."""

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

import compare
import shapes
from reference import sphere_cost
from warp_collision import MeshWorld
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.queries.sphere_queries import SPHERE_COST
from warp_collision.world.external_meshes import MeshTables, _Copies
from warp_collision.world.scene import Scene


@pytest.mark.parametrize("winding", [False, True])
@pytest.mark.parametrize("name", [*shapes.CLOSED, *shapes.OPEN, "overlapping"])
def test_cost_and_gradient(name: str, winding: bool, device: torch.device) -> None:
    """As while a graph is captured, or before the host has heard of a refit."""
    rng = np.random.default_rng(80)
    obstacle = shapes.mesh("box" if name == "overlapping" else name)
    if name == "overlapping":  # where rays err
        moved = obstacle.vertices + np.array([0.11, 0.07, 0.05])
        faces = np.concatenate((obstacle.faces, obstacle.faces + len(obstacle.vertices)))
        vertices = np.concatenate((obstacle.vertices, moved))
        obstacle = obstacle._replace(vertices=vertices, faces=faces)
    spheres = shapes.random_spheres(rng, obstacle, (2, 1, 150))
    if name in shapes.OPEN:
        clear = compare.clear_of_openings(spheres[..., :3].reshape(-1, 3), obstacle, margin=0.02)
        spheres = spheres.reshape(1, 1, -1, 4)[:, :, clear]
    with quiet_warp():
        mesh = wp.Mesh(
            wp.array(obstacle.vertices, dtype=wp.vec3, device=str(device)),
            wp.array(obstacle.faces.ravel(), dtype=wp.int32, device=str(device)),
            support_winding_number=winding,
        )
    world = MeshWorld(max_obstacles=1, device=device)
    world.add("place", trimesh.creation.box((0.1, 0.1, 0.1)), obstacle.pose)
    ids = torch.tensor([[mesh.id]], dtype=torch.int64, device=device)
    given = MeshTables(ids, world.mesh_from_world, world.enabled, world.n_meshes)
    tables = _Copies.of_nothing(ids).substitute(given)
    one = torch.ones(1, device=device)
    queried = compare.to_device(spheres, device)
    cost, gradient = SPHERE_COST.run(queried, Scene(tables), None, (one, 0.02 * one))
    truth = sphere_cost(spheres, [[obstacle]])
    assert 0.1 < (truth > 0.0).mean() < 0.95
    compare.assert_costs(cost, truth)
    assert torch.isfinite(gradient).all()
