"""CUDA graphs: captured once, replayed with other spheres, poses, masks and weights."""

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

import compare
import public_calls
import shapes
from differentiable import NAMES, Case, assert_same, case_of
from primitives import KINDS, Call, paths, scenes
from warp_collision import CollisionCost, MeshWorld, sphere_cost
from warp_collision.launching import launch
from warp_collision.warp_primitives import SdfMeshWarpPy

Tensor = torch.Tensor

MOVED = (0.05, -0.1, 0.02, 0.9, 0.1, -0.3, 0.2)


def world_with_two_meshes(device: torch.device) -> MeshWorld:
    """A box and a robot link."""
    rng = np.random.default_rng(91)
    return compare.build_world(
        [[shapes.placed("box", rng), shapes.placed("robot_link", rng)]], device
    )


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, gpu: torch.device) -> Case:
    """Each of the four functions, in a world of its own that may be changed."""
    return replace(case_of(request.param, gpu), world=world_with_two_meshes(gpu))


@contextmanager
def no_synchronisation(cuda: Any) -> Iterator[None]:
    """Within the block whatever waits for the device raises."""
    with warnings.catch_warnings(action="ignore"):  # torch calls the mode a prototype
        cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        cuda.set_sync_debug_mode("default")


def capture(cuda: Any, step: Callable[[], list[Tensor]]) -> tuple[Any, list[Tensor]]:
    """A graph of a step and the tensors that it writes, after a warm-up on another stream."""
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for _ in range(3):
            step()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        # Detached: autograd's nodes of a capture belong to its stream, and torch warns of a later
        # eager call that meets them.
        outputs = [output.detach() for output in step()]
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


def test_forward_and_backward(case: Case, cuda: Any) -> None:
    operands = Operands(case)
    graph, outputs = capture(cuda, operands.step)
    seen = []
    for change in operands.changes():
        graph.replay()
        replayed = [output.clone() for output in outputs]
        assert_same(replayed, operands.step())
        if change != "weight" or case.name in NAMES[:2]:
            assert not any(all(map(torch.equal, replayed, old)) for old in seen), change
        seen.append(replayed)


def test_replay_takes_no_memory_and_waits_for_nothing(case: Case, cuda: Any) -> None:
    graph, outputs = capture(cuda, Operands(case).step)

    def allocations() -> tuple[int, int]:
        stats = cuda.memory_stats()
        return stats["allocation.all.allocated"], stats["num_device_alloc"]

    before = allocations()
    with no_synchronisation(cuda):
        for _ in range(5):
            graph.replay()
    assert allocations() == before
    assert all(output.device == case.spheres.device for output in outputs)


def test_eager_calls_wait_for_nothing(case: Case, cuda: Any) -> None:
    """Once warm, forward and backward take memory from the allocator's cache alone."""
    operands = Operands(case)
    for _ in range(3):
        operands.step()
    device = wp.get_device(str(case.spheres.device))

    def memory() -> tuple[int, int]:
        pool = wp.get_mempool_used_mem_current(device) if device.is_cuda else 0
        return cuda.memory_stats()["num_device_alloc"], pool

    before = memory()
    with no_synchronisation(cuda):
        for _ in operands.changes():
            operands.step()
    assert memory() == before


def test_gradients_by_poses(case: Case, cuda: Any) -> None:
    """Poses as an operand, with the kernels of their gradient."""
    poses = torch.stack([case.world.pose(i) for i in range(2)]).requires_grad_(True)

    def step() -> list[Tensor]:
        values = case.with_poses(poses)
        return [values, *torch.autograd.grad(values, poses, case.upstream)]

    graph, outputs = capture(cuda, step)
    for _ in range(2):
        with torch.no_grad():
            poses[0].copy_(poses.new_tensor(MOVED))
        graph.replay()
        assert_same([output.clone() for output in outputs], step())


def test_numbers_first_met_in_a_capture(gpu: torch.device, cuda: Any) -> None:
    """A number's tensor is kept between calls, but not one that belongs to a graph."""
    world, spheres = world_with_two_meshes(gpu), case_of("sphere_cost", gpu).spheres
    sphere_cost(spheres, world)  # the module is loaded, the number 0.043 is not met yet
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        captured = sphere_cost(spheres, world, activation_distance=0.043)
    eta = torch.tensor(0.043, device=gpu)
    expected = sphere_cost(spheres, world, activation_distance=eta)
    assert_same(sphere_cost(spheres, world, activation_distance=0.043), expected)
    graph.replay()
    assert_same(captured, expected)


def test_kernels_are_loaded_before_a_capture(
    gpu: torch.device, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any thread: one that captures need not have called anything itself."""
    world = world_with_two_meshes(gpu)
    spheres = torch.tensor([[[[0.1, 0.1, 0.1, 0.5]]]], device=gpu)
    graph = cuda.CUDAGraph()

    def captured() -> Tensor:
        with cuda.graph(graph):
            return sphere_cost(spheres, world)

    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        monkeypatch.setattr(launch, "_loaded", set())  # of modules that other tests have loaded
        with pytest.raises(RuntimeError, match=r"must be loaded before a graph .* sphere_cost is"):
            first.submit(captured).result()
        expected = first.submit(sphere_cost, spheres, world).result().cpu()
        cost = second.submit(captured).result()
    graph.replay()
    assert expected.item() > 0.0
    torch.testing.assert_close(cost.cpu(), expected)


def test_meshes_of_a_caller_first_met_in_a_capture(gpu: torch.device, cuda: Any) -> None:
    """Nothing can be read of them there; costs are right without."""
    operands = public_calls.Operands(gpu)
    ids, meshes = operands.foreign
    operands.drop_in(SdfMeshWarpPy, ids.clone())()  # another table: loads kernels
    graph = cuda.CUDAGraph()
    call = operands.drop_in(SdfMeshWarpPy, ids)
    with cuda.graph(graph):
        captured = [each.detach() for each in call()]
    graph.replay()
    replayed = [each.cpu() for each in captured]
    expected = [each.cpu() for each in call()]
    assert len(meshes) == 2
    assert expected[0].any()
    torch.testing.assert_close(replayed, expected)


def test_a_module_as_a_graphed_callable(gpu: torch.device, cuda: Any) -> None:
    """The way of `torch.cuda.make_graphed_callables`, with buffers that change in place."""
    world, spheres = world_with_two_meshes(gpu), case_of("sphere_cost", gpu).spheres
    module, plain = (CollisionCost(world, reduction="waypoint") for _ in range(2))
    sample = spheres.clone().requires_grad_(True)
    graphed = cuda.make_graphed_callables(module, (sample,))

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


@pytest.mark.parametrize("return_loss", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_drop_in_functions(kind: str, return_loss: bool, gpu: torch.device, cuda: Any) -> None:
    """Into the caller's buffers."""
    spheres = paths(gpu).requires_grad_(True)
    call = Call(kind, spheres, compare.build_world(scenes(), gpu), {"return_loss": return_loss})
    upstream = torch.ones(spheres.shape[:-1], device=gpu)

    def step() -> list[Tensor]:
        return [*torch.autograd.grad(call(), spheres, upstream), *call.buffers]

    graph, outputs = capture(cuda, step)
    for change in range(3):
        with torch.no_grad():
            spheres.mul_(0.8)
        call["weight"].fill_(2.0 + change)
        call.world.set_pose("mesh_0", MOVED)
        graph.replay()
        replayed = [output.clone() for output in outputs]
        assert_same(replayed, step())
        assert (replayed[0] != 0.0).any()
