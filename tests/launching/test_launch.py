"""Recorded launches: what they remember of one call is not taken for what the next one asks."""

import gc
import importlib
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

import compare
import shapes
from differentiable import NAMES, Case, case_of
from primitives import KINDS, Call, paths, scenes
from warp_collision import MeshWorld, sphere_cost
from warp_collision.kernels import sphere_cost as kernels
from warp_collision.launching import launch, recorded_launch, warp_runtime

Tensor = torch.Tensor
context: Any = importlib.import_module("warp._src.context")


def world_with(names: list[str], device: torch.device) -> MeshWorld:
    """One env with meshes by name, at places that depend on their order."""
    rng = np.random.default_rng(77)
    return compare.build_world([[shapes.placed(name, rng) for name in names]], device)


def fresh(spheres: Tensor, world: MeshWorld) -> Tensor:
    """The cost by launches that remember nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch._state, "commands", {})
        return sphere_cost(spheres, world)


def value_and_gradient(case: Case) -> list[Tensor]:
    leaf = case.spheres.clone().requires_grad_(True)
    values = case(leaf)
    return [values, *torch.autograd.grad(values, leaf, case.upstream)]


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_to_call_a_kernel(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Warp's own launch, for a version that is not known, and without copies."""
    case = case_of(name, device)
    expected = value_and_gradient(case)
    monkeypatch.setattr(launch._state, "commands", {})
    monkeypatch.setattr(recorded_launch, "_knows_calls", lambda _: False)
    assert all(map(torch.equal, value_and_gradient(case), expected))
    assert all(command._call is None for command in launch._state.commands.values())


@pytest.mark.parametrize("version", ["1.12.1", "1.18.9", "1.20.0", "1.190.0", "2.0.0"])
def test_versions_that_are_not_known_are_called_by_warp(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of("sphere_cost", torch.device("cpu"))
    expected = value_and_gradient(case)
    monkeypatch.setattr(launch._state, "commands", {})
    monkeypatch.setattr(wp, "__version__", version)
    assert all(map(torch.equal, value_and_gradient(case), expected))
    assert launch._state.commands
    assert all(command._call is None for command in launch._state.commands.values())


def test_worlds_in_turn(device: torch.device) -> None:
    spheres = case_of("sphere_cost", device).spheres
    worlds = [world_with(names, device) for names in (["box"], ["torus", "box"], ["icosphere"])]
    expected = [fresh(spheres, world) for world in worlds]
    assert not torch.equal(expected[0], expected[2])
    for _ in range(2):
        for world, cost in zip(worlds, expected, strict=True):
            assert torch.equal(sphere_cost(spheres, world), cost)


def test_a_world_that_grows(device: torch.device) -> None:
    """Its tables are other tensors afterwards."""
    spheres, world = case_of("sphere_cost", device).spheres, world_with(["box"], device)
    before = sphere_cost(spheres, world)
    world.grow(max_obstacles=40)
    assert torch.equal(sphere_cost(spheres, world), before)
    ball = shapes.mesh("icosphere")
    for i in range(20):  # from a dozen on there is a tree
        world.add(f"ball {i}", (ball.vertices, ball.faces), (0.05 * i, 0, 0, 1, 0, 0, 0))
        assert torch.equal(sphere_cost(spheres, world), fresh(spheres, world))
    world.clear()
    assert not sphere_cost(spheres, world).any()


def test_poses_of_the_caller_in_between(device: torch.device) -> None:
    case = case_of("sphere_cost", device)
    expected = case(case.spheres)
    moved = case(case.spheres, poses=case.poses + 0.1)
    assert not torch.equal(moved, expected)
    for _ in range(2):
        assert torch.equal(case(case.spheres), expected)
        assert torch.equal(case(case.spheres, poses=case.poses + 0.1), moved)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_the_caller_in_between(kind: str, device: torch.device) -> None:
    """A mask, a count or poses of his own, with the ids of a world."""
    world = compare.build_world(scenes(), device)
    own = Call(kind, paths(device), world)
    expected = own().clone()
    others = {
        "mesh_enable": torch.zeros_like(world.enabled),
        "n_env_mesh": torch.zeros_like(world.n_meshes),
        "mesh_pose_inverse": world.mesh_from_world + 5.0,
    }
    for name, table in others.items():
        other = Call(kind, paths(device), world, {name: table})
        for _ in range(2):
            assert not torch.equal(other(), expected), name
            assert torch.equal(own(), expected)


def test_nothing_is_kept_alive(device: torch.device) -> None:
    """A launch remembers a world by a number."""
    world = world_with(["box"], device)
    spheres = case_of("sphere_cost", device).spheres.clone()
    sphere_cost(spheres, world)
    held = [weakref.ref(world), weakref.ref(world.mesh_ids), weakref.ref(spheres)]
    del world, spheres
    gc.collect()
    world_with(["box"], device)  # where the device may be waited for, unlike in the collector
    assert [ref() for ref in held] == [None] * 3


def test_recording_allocates_nothing(device: torch.device) -> None:
    """A thread may record its first launch in a capture, in which Warp could not allocate."""
    command = recorded_launch.Command(kernels.sphere_cost, str(device))
    arrays = [p for p in command._launch.params[1:] if hasattr(p, "strides")]
    assert arrays
    assert not any(array.data for array in arrays)


def test_rows_that_32_bits_cannot_count() -> None:
    """They raise: a wrapped stride would read foreign memory."""
    descriptor = wp.empty((1, 1), dtype=wp.vec4, device="cpu").__ctype__()
    slot = recorded_launch._ArraySlot(descriptor, wp.array2d(dtype=wp.vec4))
    one = torch.zeros(1, 1, 4)
    slot.patch(one.expand(2, 2**27 - 1, 4))
    assert descriptor.strides[0] == 2**31 - 16
    slot.patch(one.expand(1, 2**28, 4))  # a single row is as long as it likes
    with pytest.raises(ValueError, match="must take less than 2 GiB"):
        slot.patch(one.expand(2, 2**27, 4))
    with pytest.raises(ValueError, match="must take less than 2 GiB"):
        slot.patch(one.expand(2, 2**27, 4))  # and goes on to
    slot.patch(one.expand(2, 5, 4))
    assert descriptor.strides[0] == 80


def test_more_threads_than_32_bits_count(gpu: torch.device) -> None:
    """They are counted in 64 bits, and the last one finds its place; an axis has 32."""
    command = recorded_launch.Command(kernels.sphere_cost, str(gpu))
    command._launch.set_dim((3, 2**30))
    assert command._launch.bounds.size == 3 * 2**30
    assert command._launch.block_dim == 256
    with pytest.raises(ValueError, match=r"2147483648|2\*\*31"):
        command._launch.set_dim((1, 2**31 + 1))
    blocks = [recorded_launch.threads_per_block(n, 256, 132) for n in (1, 1920, 16_896, 3 * 2**30)]
    assert blocks == [32, 32, 128, 256]
    assert recorded_launch.threads_per_block(10**6, 32, 132) == 32


def test_a_capture_on_the_cpu_is_refused() -> None:
    """A graph of Warp would be replayed without the launch, and nobody would know."""
    world = world_with(["box"], torch.device("cpu"))
    spheres = torch.zeros((1, 1, 1, 4))
    refused = "cannot be captured|Must be a CUDA device"  # the latter by older Warp itself
    with pytest.raises(RuntimeError, match=refused), wp.ScopedCapture(device="cpu"):
        sphere_cost(spheres, world)


@wp.kernel(module="unique")
def add_one(values: wp.array[wp.float32]) -> None:
    """A kernel in a module of its own."""
    values[wp.tid()] += 1.0


@wp.kernel(module="unique")
def add_two(values: wp.array[wp.float32]) -> None:
    """Another one."""
    values[wp.tid()] += 2.0


@pytest.mark.parametrize("cores", [1, 2])
def test_modules_are_loaded_in_threads_each_once(
    monkeypatch: pytest.MonkeyPatch, cores: int, device: torch.device
) -> None:
    loaded = []
    in_threads = cores > 1 and hasattr(context, "_codegen_lock")
    second_begins = threading.Event()

    class Recorded(launch.Command):
        def __init__(self, kernel: Any, device: str):
            loaded.append((kernel, threading.get_ident()))
            if kernel is add_two:
                second_begins.set()
            elif in_threads:
                assert second_begins.wait(60.0)
            super().__init__(kernel, device)

    monkeypatch.setattr(launch, "Command", Recorded)
    monkeypatch.setattr(launch, "_loaded", set())
    monkeypatch.setattr(launch, "_n_cores", lambda: cores)
    launch.load_kernels([add_one, add_two, add_one], device)
    assert {kernel for kernel, _ in loaded} == {add_one, add_two}
    assert len(loaded) == 2
    first, second = (thread for kernel in (add_one, add_two) for k, thread in loaded if k is kernel)
    assert first == threading.get_ident()
    assert (second != first) == in_threads
    launch.load_kernels([add_two, add_one], device)
    assert len(loaded) == 2


def test_one_object_is_loaded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warp makes its JIT compiler without a lock: two threads at once could crash."""
    library = context.runtime.llvm
    monkeypatch.setattr(context, "_codegen_lock", threading.RLock(), raising=False)
    entered: list[int] = []

    def load(name: int) -> int:
        entered.append(name)
        assert len(entered) == 1
        time.sleep(0.02)
        entered.remove(name)
        return name

    monkeypatch.setattr(library, "wp_load_obj", load)
    with warp_runtime.objects_loaded_in_turn() as may_use_threads:
        assert may_use_threads
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda name: library.wp_load_obj(name), range(8)))
    assert found == list(range(8))
    assert library.wp_load_obj is load
    monkeypatch.setattr(warp_runtime.importlib, "import_module", lambda name: None)
    with warp_runtime.objects_loaded_in_turn() as may_use_threads:
        assert not may_use_threads


def test_code_that_is_not_generated_under_a_lock_is_compiled_in_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in Warp 1.12.1, where two threads at once write code that does not compile."""
    monkeypatch.delattr(context, "_codegen_lock", raising=False)
    library = context.runtime.llvm
    load = library.wp_load_obj
    with warp_runtime.objects_loaded_in_turn() as may_use_threads:
        assert not may_use_threads
        assert library.wp_load_obj is load


def test_a_module_that_does_not_compile_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(launch.Command):
        def __init__(self, kernel: Any, device: str):
            if kernel is add_two:
                raise RuntimeError("no compiler")
            super().__init__(kernel, device)

    monkeypatch.setattr(launch, "Command", Broken)
    monkeypatch.setattr(launch, "_loaded", set())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no compiler"):
            launch.load_kernels([add_one, add_two], torch.device("cpu"))
