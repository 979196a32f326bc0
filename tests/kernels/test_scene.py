"""The walk over the obstacles of an env: each that takes part is visited once, and no other."""

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

from warp_collision import MeshWorld
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.scene_walk import NOTHING_IGNORED, Obstacle, Scene, make_walk
from warp_collision.launching.launch import launch
from warp_collision.queries.evaluate import scene_of

wp.set_module_options(OPTIONS)

N_ENVS, MAX_MESHES = 3, 16
EVERYWHERE = 1000.0


@wp.func
def add_bit(obstacle: Obstacle, scale: int, seen: int) -> int:
    """Sum of powers of two: an obstacle that is visited twice carries."""
    return seen + scale * (1 << (obstacle.slot % 16))


@wp.func
def count(obstacle: Obstacle, scale: int, seen: int) -> int:
    """A visitor of the same types as the other."""
    return seen + scale


walk_bits = make_walk(add_bit, int, int)
walk_count = make_walk(count, int, int)


@wp.kernel
def visit_all(
    scene: Scene,
    boxes: wp.array[wp.vec4],  # (n_boxes,) center and reach [m]
    bits: wp.array2d[wp.int32],  # (n_envs, n_boxes)
    counts: wp.array2d[wp.int32],
):
    """One thread per env and box."""
    env, index = wp.tid()
    box = boxes[index]
    center = wp.vec3(box[0], box[1], box[2])
    bits[env, index] = walk_bits(scene, env, NOTHING_IGNORED, center, box[3], 1, 0)
    counts[env, index] = walk_count(scene, env, NOTHING_IGNORED, center, box[3], 1, 0)


def visited(world: MeshWorld, boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (N_ENVS, len(boxes))
    bits = torch.empty(shape, dtype=torch.int32, device=world.device)
    counts = torch.empty_like(bits)
    tables = scene_of(world).completed()
    launch(visit_all, shape, tables, boxes, bits, counts, device=world.device)
    return bits.cpu(), counts.cpu()


def filled(device: torch.device, numbers: tuple[int, int, int]) -> tuple[MeshWorld, torch.Tensor]:
    """A world with so many balls in its envs, and their centers (n_envs, max_obstacles, 3)."""
    rng = np.random.default_rng(61)
    centers = rng.uniform(-1.0, 1.0, size=(N_ENVS, MAX_MESHES, 3))
    world = MeshWorld(N_ENVS, MAX_MESHES, device)
    ball = trimesh.creation.icosphere(1, 0.1)
    for env, number in enumerate(numbers):
        for slot in range(number):
            turn = rng.normal(size=4)
            pose = (*centers[env, slot], *turn / np.linalg.norm(turn))
            world.add(f"ball {slot}", ball, pose, env=env, enabled=(slot + env) % 4 != 1)
    return world, torch.tensor(centers)


@pytest.mark.parametrize("numbers", [(0, 0, 0), (1, 0, 2), (5, 11, 3), (16, 1, 13), (0, 16, 16)])
def test_each_enabled_obstacle_is_visited_once(
    numbers: tuple[int, int, int], device: torch.device
) -> None:
    world, _ = filled(device, numbers)
    everywhere = torch.tensor([[0.3, 0.1, -0.2, EVERYWHERE]], device=device)
    bits, counts = visited(world, everywhere)
    for env, number in enumerate(numbers):
        slots = [slot for slot in range(number) if (slot + env) % 4 != 1]
        assert bits[env].tolist() == [sum(1 << slot for slot in slots)]
        assert counts[env].tolist() == [len(slots)]


@pytest.mark.parametrize("numbers", [(1, 0, 2), (16, 1, 13)])
def test_what_a_box_meets_is_visited(numbers: tuple[int, int, int], device: torch.device) -> None:
    """Others may be visited too, for boxes are no balls, but none of another env."""
    world, centers = filled(device, numbers)
    rng = np.random.default_rng(62)
    boxes = np.concatenate([rng.uniform(-1, 1, (200, 3)), rng.uniform(0, 0.5, (200, 1))], axis=1)
    bits, counts = visited(world, torch.tensor(boxes, dtype=torch.float32, device=device))
    assert len(set(bits[0].tolist())) > 1
    for env, number in enumerate(numbers):
        for box, seen, count_of in zip(
            boxes, bits[env].tolist(), counts[env].tolist(), strict=True
        ):
            assert seen.bit_count() == count_of
            for slot in range(MAX_MESHES):
                is_there = slot < number and (slot + env) % 4 != 1
                near = np.linalg.norm(centers[env, slot].numpy() - box[:3]) < box[3]
                assert seen >> slot & 1 or not (near and is_there)
                assert is_there or not seen >> slot & 1


def test_slots_that_are_emptied_are_not_visited(device: torch.device) -> None:
    """Tables of a caller may be shorter, or have no records, where a tree still knows a box."""
    world, _ = filled(device, (16, 16, 16))
    everywhere = torch.tensor([[0.3, 0.1, -0.2, EVERYWHERE]], device=device)
    before, _ = visited(world, everywhere)
    world.n_meshes[1] = 6
    world._storage.records[2, 4] = 0
    bits, _ = visited(world, everywhere)
    assert bits[0] == before[0]
    assert bits[1] == before[1] & 0b111111
    assert bits[2] == before[2] & ~0b10000
