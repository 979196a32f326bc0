"""Worlds in other processes: built there, or inherited by a fork, they cost what they cost here."""

import multiprocessing
import pickle
import warnings

import numpy as np
import pytest
import torch
import trimesh
from torch.utils.data import DataLoader, Dataset

from warp_collision import (
    Cuboid,
    HalfSpace,
    HeightField,
    MeshWorld,
    OpenMeshWarning,
    PointCloud,
    VoxelGrid,
    clearance,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)

Figures = tuple[float, float, float]

pytestmark = pytest.mark.usefixtures("two_threads")


def build() -> MeshWorld:
    """A row of boxes and a ball, enough for a tree and for work in several threads."""
    world = MeshWorld(device="cpu")
    for i in range(14):
        pose = (0.2 * i - 1.0, 0.1, 0.0, 1.0, 0.0, 0.0, 0.0)
        world.add(f"box {i}", trimesh.creation.box((0.3, 0.2, 0.1)), pose)
    world.add("ball", trimesh.creation.icosphere(3, 0.3))
    return world


def figures(world: MeshWorld, seed: int) -> Figures:
    """Costs, gradients and distances of random paths."""
    rng = np.random.default_rng(seed)
    spheres = torch.tensor(rng.uniform(-1.0, 1.0, (1500, 4, 1, 4)), dtype=torch.float32)
    spheres[..., 3] = 0.05
    spheres.requires_grad_(True)
    cost = sphere_cost(spheres, world) + swept_sphere_cost(spheres, world)
    cost.sum().backward()
    assert spheres.grad is not None
    distance = signed_distance(spheres.detach()[..., :3], world).distance
    return cost.sum().item(), spheres.grad.double().sum().item(), distance.sum().item()


def figures_of_new_world(seed: int) -> Figures:
    return figures(build(), seed)


class Paths(Dataset[torch.Tensor]):
    """Figures by seed; a worker has no world before it is asked the first time."""

    def __init__(self, world: MeshWorld | None = None):
        self.world = world

    def __len__(self) -> int:
        return 4

    def __getitem__(self, seed: int) -> torch.Tensor:
        if self.world is None:
            self.world = build()
        return torch.tensor(figures(self.world, seed), dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "size"), [("spawn", 1), ("spawn", 2), ("fork", 2)])
def test_pools(method: str, size: int) -> None:
    expected = [figures_of_new_world(seed) for seed in range(4)]
    with multiprocessing.get_context(method).Pool(size) as pool:
        assert pool.map(figures_of_new_world, range(4)) == expected


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
def test_workers_of_a_data_loader(method: str) -> None:
    expected = torch.tensor([figures_of_new_world(seed) for seed in range(4)], dtype=torch.float64)
    loader = DataLoader(
        Paths(), num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    for _ in range(2):
        assert torch.equal(torch.cat(list(loader)), expected)


def test_a_world_that_a_fork_inherits() -> None:
    """After it was used by several threads, which the child does not have."""
    world = build()
    expected = [figures(world, seed) for seed in range(4)]
    loader = DataLoader(Paths(world), num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), torch.tensor(expected, dtype=torch.float64))
    assert figures(world, 0) == expected[0]


@pytest.mark.slow
def test_a_world_that_is_sent_to_other_processes() -> None:
    world = build()
    expected = [figures(world, seed) for seed in range(4)]
    loader = DataLoader(Paths(world), num_workers=2, multiprocessing_context="spawn")
    assert torch.equal(torch.cat(list(loader)), torch.tensor(expected, dtype=torch.float64))


def some_of_everything() -> MeshWorld:
    """Shapes, meshes with all signs, sensed ones, paddings, disabled ones, and what is shared."""
    rng = np.random.default_rng(5)
    open_box = trimesh.creation.box((0.4, 0.3, 0.5))
    open_box.update_faces(np.arange(12) > 1)
    points = rng.uniform(-0.4, 0.4, (50, 3))
    world = MeshWorld(n_envs=2, max_obstacles=9, device="cpu", grid_cells=1000)
    for env in range(2):
        pose = np.r_[rng.uniform(-0.5, 0.5, 3), rng.normal(size=4)]
        world.add("box", Cuboid((0.2, 0.3, 0.1)), pose, env)
        world.add("ring", trimesh.creation.torus(0.3, 0.1), pose[::-1], env, padding=0.01)
        world.add("cloud", PointCloud(points, radius=0.03, capacity=64), pose, env, enabled=False)
        world.add("same cloud", PointCloud(points, radius=0.05), pose, env)
    with pytest.warns(OpenMeshWarning):
        world.add("open", open_box, (0.2, 0.1, 0, 1, 0, 0.4, 0))
    world.add("sheet", open_box, (0.1, -0.2, 0, 1, 0, 0.4, 0), sign="sheet")
    world.add("floor", HalfSpace((0.1, -0.2, 1.0), -0.7), padding=0.01)
    world.add("ground", HeightField(rng.uniform(-0.3, 0.1, (6, 7)), (1.8, 1.5), 0.4), env=1)
    world.add("voxels", VoxelGrid(rng.uniform(size=(5, 6, 4)) > 0.6, 0.1), env=1)
    world.update("cloud", points[:20] + 0.01)
    return world


def test_a_world_that_was_sent_answers_to_the_bit() -> None:
    world = some_of_everything()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = pickle.loads(pickle.dumps(world))
    spheres = torch.from_numpy(np.random.default_rng(9).uniform(-0.8, 0.8, (2, 3, 200, 4))).float()
    spheres[..., 3] *= 0.1
    env_index = torch.arange(2, dtype=torch.int32)
    for it in (world, twin):
        it.enable("cloud", on=True, env=1)
    for query in (sphere_cost, swept_sphere_cost, clearance):
        answers = [query(spheres, it, env_index=env_index) for it in (world, twin)]
        assert torch.equal(*(getattr(a, "clearance", a) for a in answers)), query
    for env in range(2):
        assert twin.names(env) == world.names(env)
        for name in world.names(env):
            assert str(twin.report(name, env)) == str(world.report(name, env))
    # Equal geometry is still stored once, and edits go on.
    twin.add("again", trimesh.creation.torus(0.3, 0.1))
    ids = twin.mesh_ids[0]
    assert ids[twin.names(0).index("again")] == ids[1] == twin.mesh_ids[1, 1]
    twin.update("cloud", np.zeros((3, 3)))
    assert len(world.report("cloud").shape.points) == 20
