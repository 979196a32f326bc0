"""CUDA graphs: captured once, replayed with other spheres, poses, masks and weights."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

import compare
import shapes
from differentiable import NAMES, Case, assert_same, case_of
from primitives import KINDS, Call, paths, scenes
from warp_collision import CollisionCost, MeshWorld, sphere_cost

Tensor = torch.Tensor

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
MOVED = (0.05, -0.1, 0.02, 0.9, 0.1, -0.3, 0.2)


@pytest.fixture
def cuda() -> torch.device:
    """The GPU."""
    return torch.device("cuda", torch.cuda.current_device())


def world_with_two_meshes(device: torch.device) -> MeshWorld:
    """A box and a robot link."""
    rng = np.random.default_rng(91)
    return compare.build_world(
        [[shapes.placed("box", rng), shapes.placed("robot_link", rng)]], device
    )


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, cuda: torch.device) -> Case:
    """Each of the four functions, in a world of its own that may be changed."""
    return replace(case_of(request.param, cuda), world=world_with_two_meshes(cuda))


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Within the block whatever waits for the device raises."""
    with warnings.catch_warnings(action="ignore"):  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def capture(step: Callable[[], list[Tensor]]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """A graph of a step and the tensors that it writes, after a warm-up on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph, outputs


class Operands:
    """What a graph reads: tensors whose values change between replays."""

    def __init__(self, case: Case):
        self.case = case
        device = case.spheres.device
        self.spheres = case.spheres.clone().requires_grad_(True)
        self.upstream = case.upstream.clone()
        self.poses = torch.stack([case.world.pose(i) for i in range(2)])
        self.mask = torch.ones(2, dtype=torch.bool, device=device)
        self.weight = torch.ones(1, device=device)
        self.moved = torch.tensor(MOVED, device=device)

    def step(self) -> list[Tensor]:
        """Places the meshes, and computes values and their gradient."""
        self.case.world.set_poses(self.poses)
        self.case.world.set_enabled(self.mask)
        options = {"weight": self.weight} if self.case.name in NAMES[:2] else {}
        values = self.case(self.spheres, **options)
        return [values, *torch.autograd.grad(values, self.spheres, self.upstream)]

    def changes(self) -> Iterator[str]:
        """Changes one operand after the other."""
        with torch.no_grad():
            self.spheres.mul_(0.8)
        yield "spheres"
        self.upstream.neg_()
        yield "upstream"
        self.poses[0].copy_(self.moved)
        yield "poses"
        self.mask[0].fill_(False)
        yield "mask"
        self.weight.fill_(3.0)
        yield "weight"


@needs_gpu
def test_forward_and_backward(case: Case) -> None:
    operands = Operands(case)
    graph, outputs = capture(operands.step)
    seen = []
    for change in operands.changes():
        graph.replay()
        replayed = [output.clone() for output in outputs]
        assert_same(replayed, operands.step())
        if change != "weight" or case.name in NAMES[:2]:
            assert not any(all(map(torch.equal, replayed, old)) for old in seen), change
        seen.append(replayed)


@needs_gpu
def test_replay_takes_no_memory_and_waits_for_nothing(case: Case) -> None:
    graph, outputs = capture(Operands(case).step)

    def allocations() -> tuple[int, int]:
        stats = torch.cuda.memory_stats()
        return stats["allocation.all.allocated"], stats["num_device_alloc"]

    before = allocations()
    with no_synchronisation():
        for _ in range(5):
            graph.replay()
    assert allocations() == before
    assert all(output.is_cuda for output in outputs)


@needs_gpu
def test_eager_calls_wait_for_nothing(case: Case) -> None:
    """Once warm, forward and backward take memory from the allocator's cache alone."""
    operands = Operands(case)
    for _ in range(3):
        operands.step()
    device = wp.get_device(str(case.spheres.device))
    before = torch.cuda.memory_stats()["num_device_alloc"], wp.get_mempool_used_mem_current(device)
    with no_synchronisation():
        for _ in operands.changes():
            operands.step()
    after = torch.cuda.memory_stats()["num_device_alloc"], wp.get_mempool_used_mem_current(device)
    assert after == before


@needs_gpu
def test_gradients_by_poses(case: Case) -> None:
    """Poses as an operand, with the kernels of their gradient."""
    poses = torch.stack([case.world.pose(i) for i in range(2)]).requires_grad_(True)

    def step() -> list[Tensor]:
        values = case.with_poses(poses)
        return [values, *torch.autograd.grad(values, poses, case.upstream)]

    graph, outputs = capture(step)
    for _ in range(2):
        with torch.no_grad():
            poses[0].copy_(poses.new_tensor(MOVED))
        graph.replay()
        assert_same([output.clone() for output in outputs], step())


@needs_gpu
def test_numbers_first_met_in_a_capture(cuda: torch.device) -> None:
    """A number's tensor is kept between calls, but not one that belongs to a graph."""
    world, spheres = world_with_two_meshes(cuda), case_of("sphere_cost", cuda).spheres
    sphere_cost(spheres, world)  # the module is loaded, the number 0.043 is not met yet
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = sphere_cost(spheres, world, activation_distance=0.043)
    eta = torch.tensor(0.043, device=cuda)
    expected = sphere_cost(spheres, world, activation_distance=eta)
    assert_same(sphere_cost(spheres, world, activation_distance=0.043), expected)
    graph.replay()
    assert_same(captured, expected)


@needs_gpu
def test_a_module_as_a_graphed_callable(cuda: torch.device) -> None:
    """The way of `torch.cuda.make_graphed_callables`, with buffers that change in place."""
    world, spheres = world_with_two_meshes(cuda), case_of("sphere_cost", cuda).spheres
    module, plain = (CollisionCost(world, reduction="waypoint") for _ in range(2))
    sample = spheres.clone().requires_grad_(True)
    graphed = torch.cuda.make_graphed_callables(module, (sample,))

    def gradient(function: Any, x: Tensor) -> list[Tensor]:
        leaf = x.clone().requires_grad_(True)
        values = function(leaf)
        return [values.detach().clone(), *torch.autograd.grad(values.sum(), leaf)]

    for scale in (1.0, 0.8):
        assert_same(gradient(graphed, spheres * scale), gradient(plain, spheres * scale))
    for each in (module, plain):
        each.weight.fill_(4.0)
        each.activation_distance.fill_(0.06)
    assert_same(gradient(graphed, spheres), gradient(plain, spheres))


@needs_gpu
@pytest.mark.parametrize("return_loss", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_drop_in_functions(kind: str, return_loss: bool, cuda: torch.device) -> None:
    """Into the caller's buffers."""
    spheres = paths(cuda).requires_grad_(True)
    call = Call(kind, spheres, compare.build_world(scenes(), cuda), {"return_loss": return_loss})
    upstream = torch.ones(spheres.shape[:-1], device=cuda)

    def step() -> list[Tensor]:
        return [*torch.autograd.grad(call(), spheres, upstream), *call.buffers]

    graph, outputs = capture(step)
    for change in range(3):
        with torch.no_grad():
            spheres.mul_(0.8)
        call["weight"].fill_(2.0 + change)
        call.world.set_pose("mesh_0", MOVED)
        graph.replay()
        replayed = [output.clone() for output in outputs]
        assert_same(replayed, step())
        assert (replayed[0] != 0.0).any()
