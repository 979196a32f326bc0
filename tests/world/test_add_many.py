"""Many obstacles at once, and names of slots that come, go and move."""

import numpy as np
import pytest
import torch

from warp_collision import Cuboid, MeshWorld, Sphere, in_collision


def drops(count: int, first: int = 0) -> dict:
    return {f"drop {i}": (Sphere(0.05), (i, 0, 0, 1, 0, 0, 0)) for i in range(first, first + count)}


def test_many_at_once_are_the_same_as_one_by_one(device):
    one_by_one, at_once = (MeshWorld(device=device, max_obstacles=12, n_envs=2) for _ in range(2))
    for world in (one_by_one, at_once):
        world.add("floor", Cuboid((1.0, 1.0, 0.1)), env=1)
    for name, (shape, pose) in drops(5).items():
        one_by_one.add(name, shape, pose, env=1, padding=0.01)
    at_once.add_many(drops(5), env=1, padding=0.01)
    assert one_by_one.names(1) == at_once.names(1)
    assert torch.equal(one_by_one.mesh_from_world, at_once.mesh_from_world)
    centers = torch.rand((2, 3, 200, 4), device=device) * torch.tensor([4.0, 0.1, 0.1, 1.0]).to(
        device
    )
    centers[..., 3] = 0.02
    index = torch.tensor([0, 1], dtype=torch.int32, device=device)
    expected = in_collision(centers, one_by_one, env_index=index)
    assert torch.equal(in_collision(centers, at_once, env_index=index), expected)
    assert expected[1].any()


def test_nothing_is_added_if_one_is_not_valid():
    world = MeshWorld(device="cpu", max_obstacles=6)
    world.add("drop 2", Sphere(0.1))
    for wrong, message in (
        (drops(4), "name must be new in env 0, got 'drop 2' again"),
        (drops(6, 10), "must have a slot for each mesh, got 7 meshes for 6 slots"),
        ({**drops(1), "flat": (Sphere(0.1), (0, 0, 0, 0, 0, 0, 0))}, "quaternion"),
    ):
        with pytest.raises(ValueError, match=message):
            world.add_many(wrong)
        assert world.names() == ["drop 2"]
    with pytest.raises(TypeError, match="obstacles must be a mapping, got list"):
        world.add_many([Sphere(0.1)])  # pyright: ignore[reportArgumentType]


def test_names_follow_their_slots():
    """Any order of changes: each name is found where the list of names has it."""
    rng, world = np.random.default_rng(0), MeshWorld(device="cpu", max_obstacles=30)
    names = [f"drop {i}" for i in range(12)]
    for _ in range(150):
        held, action = world.names(), rng.integers(5)
        some = list(rng.permutation(names)[: rng.integers(1, 6)])
        if action == 0 and held:
            world.remove(str(rng.choice(held)))
        elif action == 1:
            world.load({name: Sphere(0.1) for name in some})
        elif action == 2:
            world.add_many({name: Sphere(0.1) for name in some if name not in held})
        elif action == 3:
            world.add(str(some[0]), Sphere(0.2), replace=True)
        else:
            world.add_many({name: Sphere(0.3) for name in names if name not in held})
        for index, name in enumerate(world.names()):
            assert world._slots.index(name, 0) == index
        for name in set(names) - set(world.names()):
            with pytest.raises(KeyError, match="name must be one of env 0"):
                world.set_pose(name, (0, 0, 0, 1, 0, 0, 0))
