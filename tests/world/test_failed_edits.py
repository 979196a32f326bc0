"""An edit that fails, or is interrupted, leaves what was there before or what it makes, whole."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from cases import mostly_slow
from injected import Trial
from warp_collision import (
    Capsule,
    Cuboid,
    Cylinder,
    HalfSpace,
    HeightField,
    MeshWorld,
    PointCloud,
    Sphere,
    VoxelGrid,
    sphere_cost,
)
from warp_collision.io import Obstacle
from warp_collision.world.external_meshes import living_obstacles

# What only reads its arguments and returns something new cannot leave anything halfway.
WRITERS = "world", "launching", "obstacles/mesh_obstacle.py", "obstacles/part_tree.py"
RNG = np.random.default_rng(7)
POINTS = RNG.uniform(-0.5, 0.5, (40, 3))
OTHER_POINTS = RNG.uniform(-0.4, 0.6, (30, 3))
HEIGHTS = RNG.uniform(-0.3, 0.1, (6, 7))
DISTANCES = RNG.uniform(0.2, 0.29, (4, 5, 4)).astype(np.float32)
VOXELS = RNG.uniform(size=(5, 6, 4)) > 0.6
POSE = torch.tensor([0.3, -0.2, 0.25, 0.6, 0.0, 0.8, 0.0])
SPHERES = torch.tensor(np.c_[RNG.uniform(-1.0, 1.0, (60, 3)), RNG.uniform(0.02, 0.1, 60)]).float()
KNOT = trimesh.creation.torus(0.3, 0.1, major_sections=9, minor_sections=7)


def make(device: torch.device | str = "cpu") -> MeshWorld:
    """Two envs with some of everything, after a query that has built all there is to build."""
    world = MeshWorld(n_envs=2, max_obstacles=12, device=device, grid_cells=0)
    world.add("box", Cuboid((0.3, 0.2, 0.4)), (0.4, 0.1, 0.0, 0.9, 0.1, 0.2, 0.0))
    world.add("knot", KNOT, (-0.5, 0.2, 0.1, 1, 0, 0.3, 0), padding=0.02)
    world.add("cloud", PointCloud(POINTS, radius=0.03, capacity=64), enabled=False)
    world.add("shared", PointCloud(POINTS, radius=0.05), (0, 0, 0.4, 1, 0, 0, 0))
    world.add("shared", PointCloud(POINTS, radius=0.05), (0, 0, 0.1, 1, 0, 0, 0), env=1)
    world.add("ground", HeightField(HEIGHTS, (1.8, 1.5), 0.4), (0, 0, -0.5, 1, 0, 0, 0), env=1)
    world.add("voxels", VoxelGrid(VOXELS, 0.1), (0.2, 0.2, 0.2, 1, 0, 0, 0), env=1)
    answers(world)
    world.update("cloud", POINTS + 0.01)  # both buffers of a cloud with a capacity are there
    answers(world)
    return world


def answers(world: MeshWorld) -> list[Any]:
    """Costs of spheres in each env, by tables, trees and records."""
    spheres = SPHERES.expand(world.n_envs, 1, -1, 4).to(world.device)
    env_index = torch.arange(world.n_envs, dtype=torch.int32).to(world.device)
    cost = sphere_cost(spheres, world, activation_distance=0.3, env_index=env_index)
    return cost.detach().tolist()


def content(world: MeshWorld) -> list[Any]:
    """What the world lists and what queries answer; ids of meshes that are no more raise."""
    table = world._storage.mesh_ids  # the world's own name makes meshes of shapes
    ids = set(table.flatten().tolist()) - {0}
    assert ids <= living_obstacles(table).keys(), "a mesh is no more"
    listed = [
        [
            (name, repr(it.geometry), it.pose, it.padding, it.enabled)
            for name, it in world.obstacles(env).items()
        ]
        for env in range(world.n_envs)
    ]
    tables = world.enabled.tolist(), world.n_meshes.tolist(), world.padding.tolist()
    for env, slots in enumerate(world._slots.envs):
        expected = [slot.obstacle.mesh_id for slot in slots]
        assert table[env].tolist() == [*expected, *[0] * (world.max_obstacles - len(slots))]
    return [listed, *tables, answers(world)]


EDITS: dict[str, Callable[[MeshWorld], object]] = {
    "add a box": lambda w: w.add("new", Cuboid((0.2, 0.3, 0.1)), (0, -0.4, 0, 1, 0, 0.1, 0)),
    "add a ball": lambda w: w.add("new", Sphere(0.2), POSE, padding=0.01),
    "add a capsule": lambda w: w.add("new", Capsule(0.1, 0.3), POSE),
    "add a cylinder": lambda w: w.add("new", Cylinder(0.2, 0.3), POSE, env=1, enabled=False),
    "add a floor": lambda w: w.add("new", HalfSpace((0.1, 0.2, 1.0), -0.5), POSE),
    "add heights": lambda w: w.add("new", HeightField(HEIGHTS, (1.0, 1.0), 0.4), POSE),
    "add voxels": lambda w: w.add("new", VoxelGrid(~VOXELS, 0.1), POSE),
    "add distances": lambda w: w.add("new", VoxelGrid.from_esdf(DISTANCES, 0.1, error=0.0), POSE),
    "add a mesh": lambda w: w.add("new", trimesh.creation.icosphere(1, 0.2), POSE, padding=0.01),
    "add what is there": lambda w: w.add("new", KNOT, POSE, env=1, enabled=False),
    "read ids": lambda w: w.mesh_ids,
    "add to ids that are read": lambda w: (w.mesh_ids, w.add("new", Sphere(0.2), POSE)),
    "replace": lambda w: w.add("knot", Sphere(0.3), POSE, replace=True),
    "add a cloud": lambda w: w.add("new", PointCloud(OTHER_POINTS, radius=0.02), POSE),
    "add many": lambda w: w.add_many({"s": Sphere(0.1), "c": (Cuboid((0.1, 0.2, 0.3)), POSE)}),
    "load": lambda w: w.load({"s": Sphere(0.2), "box": (KNOT, POSE)}, padding=0.01),
    "load obstacles": lambda w: w.load({"new": Obstacle(Sphere(0.2), (*POSE.tolist(),), 0.01)}, 1),
    "load nothing": lambda w: w.load({}),
    "update a cloud with a capacity": lambda w: w.update("cloud", OTHER_POINTS),
    "update a shared cloud": lambda w: w.update("shared", OTHER_POINTS),
    "update heights": lambda w: w.update("ground", HEIGHTS + 0.1, env=1),
    "update voxels": lambda w: w.update("voxels", ~VOXELS, env=1),
    "update some voxels": lambda w: w.update("voxels", ~VOXELS[:2, :3], env=1, at=(1, 2, 0)),
    "remove the first": lambda w: w.remove("box"),
    "remove the last": lambda w: w.remove("voxels", env=1),
    "clear": lambda w: w.clear(1),
    "clear all": lambda w: w.clear(),
    "grow": lambda w: w.grow(3, 14),
    "move": lambda w: w.set_pose("knot", POSE),
    "move by a matrix": lambda w: w.set_pose("voxels", torch.eye(4), env=1),
    "move all": lambda w: w.set_poses(POSE.expand(4, 7).to(w.device)),
    "disable": lambda w: w.enable("box", False),
    "enable all": lambda w: w.set_enabled(torch.tensor([1, 0, 1, 0]).to(w.device)),
}


WITHOUT_MEMORY = "load nothing", "remove the last", "clear", "clear all"
few_or_all = pytest.mark.parametrize(
    "most", [3, pytest.param(np.inf, marks=pytest.mark.slow)], ids=["few", "all"]
)


@few_or_all
@pytest.mark.parametrize("name", mostly_slow(EDITS, [*EDITS][::2]))
def test_memory_that_runs_out_at_an_allocation(name: str, most: float) -> None:
    Trial(make, EDITS[name], content, WRITERS).memory(most)


@pytest.mark.parametrize("name", EDITS)
def test_a_gpu_whose_memory_is_full(name: str, gpu: torch.device, cuda: Any) -> None:
    """With more and more bytes for the edit, until they are enough."""
    if not hasattr(cuda, "limit_memory"):
        pytest.skip("only the simulated GPU has a limit of memory")
    edit, done = EDITS[name], make(gpu)
    was = content(done)
    edit(done)
    becomes = content(done)
    for spare in (0, *(64 << 3 * step for step in range(9))):
        world = make(gpu)
        cuda.synchronize()
        cuda.limit_memory(cuda.memory_allocated() + spare)
        try:
            edit(world)
        except torch.OutOfMemoryError:
            cuda.limit_memory(None)
            found = content(world)
            assert found in (was, becomes), spare
            if found == was:
                edit(world)
        else:
            break
        finally:
            cuda.limit_memory(None)
        assert content(world) == becomes, spare
    assert content(world) == becomes, "with memory enough"
    assert spare > 0 or name in WITHOUT_MEMORY


@few_or_all
@pytest.mark.parametrize("name", mostly_slow(EDITS, [*EDITS][1::2]))
def test_an_interrupt_at_a_line(name: str, most: float) -> None:
    Trial(make, EDITS[name], content, WRITERS).interrupts(most)
