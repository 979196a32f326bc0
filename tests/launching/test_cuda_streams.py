"""Streams and devices: what one stream made, another may read; each tensor is used where it is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

import compare
import shapes
from differentiable import assert_same
from warp_collision import (
    CollisionCost,
    MeshWorld,
    PointCloud,
    Sphere,
    VoxelGrid,
    in_collision,
    sphere_cost,
    swept_sphere_cost,
    validate,
)
from warp_collision.launching import launch
from warp_collision.queries.sphere_queries import SPHERE_COST
from warp_collision.robot.model import base_pose
from warp_collision.world.scene import Scene

Tensor = torch.Tensor

MOVED = (0.05, -0.1, 0.02, 0.9, 0.1, -0.3, 0.2)
CPU = torch.device("cpu")
LONG = 50_000_000  # cycles that a stream is kept busy: a hundredth of a second and more


def world_of(count: int, device: torch.device) -> MeshWorld:
    """A world of boxes; from a dozen on it has a tree."""
    rng = np.random.default_rng(94)
    world = MeshWorld(1, count, device)
    for i in range(count):
        box = shapes.placed("box", rng)
        world.add(f"box {i}", (box.vertices, box.faces), box.pose)
    return world


def spheres_on(device: torch.device) -> Tensor:
    """Spheres among the boxes."""
    rng = np.random.default_rng(95)
    return compare.to_device(
        shapes.random_spheres(rng, shapes.placed("box", rng), (4, 5, 6)), device
    )


def gradients(world: MeshWorld, spheres: Tensor, **options: Any) -> list[Tensor]:
    """Both costs and their gradients."""
    found = []
    for function in (sphere_cost, swept_sphere_cost):
        leaf = spheres.detach().clone().requires_grad_(True)
        cost = function(leaf, world, **options)
        found += [cost.detach(), *torch.autograd.grad(cost.sum(), leaf)]
    return found


def assert_as_on_cpu(found: list[Tensor], expected: list[Tensor]) -> None:
    """Values of `gradients` of a GPU, which rounds otherwise.

    The gradient of a sweep is that of its lowest point, which is found to a tolerance: where the
    search ends by another rounding, at a distance d from an edge, another normal is found, tilted
    by sqrt(2 tolerance / d) at most, 0.05 and more here. By PTX one row of 120 differed by 1.4e-3,
    others by 2e-4. The reference in float64 is asked in tests/costs.
    """
    cost, gradient, swept, of_sweeps = (value.cpu() for value in found)
    assert_same([cost, swept], expected[::2])
    torch.testing.assert_close(gradient, expected[1], rtol=0, atol=2e-5)  # sums over 20 meshes
    off = (of_sweeps - expected[3]).abs().flatten(0, -2).amax(-1)
    assert (off > 1e-3).sum() <= len(off) // 100
    assert (off < 1e-2).all()


# -- without a GPU --------------------------------------------------------------------------------


def test_streams_of_two_devices_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default stream of every device has the same handle."""

    class Stream:
        def __init__(self, device: str, cuda_stream: int):
            self.device, self.handle = device, cuda_stream

    class Current:
        cuda_stream = 0

    monkeypatch.setattr(wp, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Current())
    monkeypatch.setattr(launch, "_streams", {})
    first, second = (launch._current_stream(torch.device("cuda", i)) for i in range(2))
    assert (first.device, second.device) == ("cuda:0", "cuda:1")
    assert launch._current_stream(torch.device("cuda", 0)) is first


def test_a_kept_number_has_its_device_and_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is good as one argument may be bad as another."""
    monkeypatch.setattr(validate, "_scalars", {})
    weight = validate.scalar_operand("weight", -2.0, CPU, any_sign=True)
    assert validate.scalar_operand("weight", -2.0, CPU, any_sign=True) is weight
    with pytest.raises(ValueError, match="activation_distance must not be negative, got -2"):
        validate.scalar_operand("activation_distance", -2.0, CPU)
    with pytest.raises(ValueError, match="tolerance must be positive, got 0"):
        swept_sphere_cost(spheres_on(CPU), world_of(1, CPU), tolerance=0.0, activation_distance=0.0)
    meta = validate.scalar_operand("weight", -2.0, torch.device("meta"), any_sign=True)
    assert meta.device.type == "meta"


def test_a_module_per_thread_and_world() -> None:
    """As data parallel code has it: a replica with a world of its own for each worker."""
    worlds = [world_of(count, CPU) for count in (3, 14)]
    modules = [CollisionCost(world, reduction="waypoint") for world in worlds]
    parts = spheres_on(CPU).chunk(2)
    expected = [module(part) for module, part in zip(modules, parts, strict=True)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            found = list(pool.map(lambda pair: pair[0](pair[1]), zip(modules, parts, strict=True)))
            assert all(map(torch.equal, found, expected))


# -- streams of one GPU ---------------------------------------------------------------------------


@pytest.fixture
def streams(cuda: Any) -> Iterator[tuple[Any, Any]]:
    """Two streams that wait for what was there before, and for nothing else."""
    cuda.synchronize()
    pair = cuda.Stream(), cuda.Stream()
    yield pair
    cuda.synchronize()


def test_numbers_first_met_on_another_stream(
    streams: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, gpu: torch.device, cuda: Any
) -> None:
    monkeypatch.setattr(validate, "_scalars", {})
    world, spheres = world_of(3, gpu), spheres_on(gpu)
    options = {"weight": 1.7, "activation_distance": 0.043}
    expected = gradients(world_of(3, CPU), spheres.cpu(), **options)
    cuda.synchronize()
    with cuda.stream(streams[0]):
        cuda._sleep(LONG)
        sphere_cost(spheres, world, **options)
    with cuda.stream(streams[1]):
        found = gradients(world, spheres, **options)
    cuda.synchronize()
    assert_as_on_cpu(found, expected)


@pytest.mark.parametrize("count", [3, 20])
def test_a_world_made_on_another_stream(
    count: int, streams: tuple[Any, Any], gpu: torch.device, cuda: Any
) -> None:
    """Meshes, tables, distance grids and the tree are there for everyone once the call is over."""
    spheres = spheres_on(gpu)
    expected = gradients(world_of(count, CPU), spheres.cpu())
    cuda.synchronize()
    with cuda.stream(streams[0]):
        cuda._sleep(LONG)
        world = world_of(count, gpu)
    with cuda.stream(streams[1]):
        found = gradients(world, spheres)
    with cuda.stream(streams[0]):
        again = gradients(world, spheres)
    cuda.synchronize()
    for values in (found, again):
        assert_as_on_cpu(values, expected)


@pytest.mark.parametrize("change", ["made", "grown"])
def test_tables_of_a_world_are_there_on_another_stream(
    change: str, streams: tuple[Any, Any], gpu: torch.device, cuda: Any
) -> None:
    """Of one without obstacles, and of one that has grown, before the first stream has run."""
    spheres = torch.tensor([[[[0.1, 0.2, 0.1, 0.2]]]], device=gpu)
    cuda.synchronize()
    with cuda.stream(streams[0]):
        cuda._sleep(LONG)
        world = MeshWorld(device=gpu)
        if change == "grown":
            world.add("ball", Sphere(0.2))
            world.grow(max_obstacles=40)
    with cuda.stream(streams[1]):
        hit = in_collision(spheres, world)
        costs = sphere_cost(spheres, world)
    cuda.synchronize()
    assert hit.item() is (change == "grown")
    assert (costs.item() > 0.0) is (change == "grown")


def seen_by(rng: np.random.Generator, kind: str) -> PointCloud | VoxelGrid:
    """Points or voxels, other ones each time."""
    if kind == "cloud":
        return PointCloud(rng.uniform(-0.3, 0.3, (int(rng.integers(5, 50)), 3)), 0.1, capacity=50)
    return VoxelGrid(rng.uniform(size=(6, 6, 6)) < 0.3, 0.1, (-0.3, -0.3, -0.3))


@pytest.mark.parametrize("kind", ["cloud", "grid"])
def test_updates_beside_queries_of_another_stream(
    kind: str, streams: tuple[Any, Any], gpu: torch.device, cuda: Any
) -> None:
    """Those launched before see the old content or the new one, those after it the new one."""
    rng = np.random.default_rng(96)
    contents = [seen_by(rng, kind) for _ in range(5)]
    spheres = torch.tensor(rng.uniform(-0.4, 0.4, (1, 1, 200, 4)), dtype=torch.float32)
    spheres[..., 3] = 0.05
    expected = []
    for content in contents:
        alone = MeshWorld()
        alone.add("seen", content)
        expected.append(sphere_cost(spheres, alone))
    world, on_gpu = MeshWorld(device=gpu), spheres.to(gpu)
    world.add("seen", contents[0])
    sphere_cost(on_gpu, world)
    cuda.synchronize()
    found = []
    for content in contents[1:]:
        with cuda.stream(streams[1]):
            cuda._sleep(LONG)
            found.append(sphere_cost(on_gpu, world))
        with cuda.stream(streams[0]):
            cuda._sleep(LONG)
            world.update("seen", content)
    with cuda.stream(streams[1]):
        found.append(sphere_cost(on_gpu, world))
    cuda.synchronize()
    for cost, before, after in zip(found, expected, [*expected[1:], expected[-1]], strict=True):
        of_old, of_new = ((cost.cpu() - e).abs().max() < 1e-5 for e in (before, after))
        assert of_old or of_new
    assert (found[-1].cpu() - expected[-1]).abs().max() < 1e-5


def test_threads_share_a_stream(gpu: torch.device) -> None:
    """Each has arguments of its own, while what both launch runs in one order."""
    world, spheres = world_of(20, gpu), spheres_on(gpu)
    distances = 0.02, 0.3
    expected = [sphere_cost(spheres, world, activation_distance=d).cpu() for d in distances]
    assert not torch.equal(*expected)

    def work(index: int) -> list[Tensor]:
        row = slice(index, index + 2)  # other sizes, too
        options = {"activation_distance": distances[index]}
        return [sphere_cost(spheres[row], world, **options) for _ in range(40)]

    with ThreadPoolExecutor(2) as pool:
        for index, costs in enumerate(pool.map(work, range(2))):
            for cost in costs:
                assert torch.equal(cost.cpu(), expected[index][index : index + 2])


def test_copies_of_poses_and_masks_are_operands(gpu: torch.device) -> None:
    """As torch makes them where it replays what it compiled in graphs: the answers are the same."""
    world, spheres = world_of(20, gpu), spheres_on(gpu)
    expected = sphere_cost(spheres, world)
    handle, poses, enabled = world._storage.scene.operands()
    scene = Scene.of(handle, poses.clone(), enabled.clone())
    parameters = [torch.full((1,), value, device=gpu) for value in (1.0, 0.02)]
    assert (expected > 0.0).any()
    assert_same(SPHERE_COST.run(spheres, scene, None, parameters)[0], expected)


def test_a_tree_fit_on_another_stream(
    streams: tuple[Any, Any], gpu: torch.device, cuda: Any
) -> None:
    """Poses are there for both streams; the first to look fits the tree to them."""
    world, spheres, still = world_of(20, gpu), spheres_on(gpu), world_of(20, CPU)
    gradients(world, spheres)
    world.mesh_from_world[..., :3] += 0.3
    still.mesh_from_world[..., :3] += 0.3
    cuda.synchronize()
    with cuda.stream(streams[0]):
        cuda._sleep(LONG)
        sphere_cost(spheres, world)
    with cuda.stream(streams[1]):
        found = gradients(world, spheres)
    cuda.synchronize()
    assert_as_on_cpu(found, gradients(still, spheres.cpu()))


def test_a_graph_fits_its_tree_anew(gpu: torch.device, cuda: Any) -> None:
    """Poses that torch writes between replays are seen by the replay, and by eager calls after."""
    world, spheres = world_of(20, gpu), spheres_on(gpu)
    for _ in range(3):
        gradients(world, spheres)
    world.mesh_from_world[..., :3] += (
        0.1  # the tree does not know yet, and the capture runs nothing
    )

    def without_tree() -> Tensor:
        poses = torch.stack([world.pose(i) for i in range(20)])
        return sphere_cost(spheres, world, poses=poses)

    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        captured = sphere_cost(spheres, world)
    for _ in range(3):
        expected = sphere_cost(
            spheres, world, poses=torch.stack([world.pose(i) for i in range(20)])
        )
        assert_same(sphere_cost(spheres, world), expected)
        world.mesh_from_world[..., :3] += 0.1
        expected = sphere_cost(
            spheres, world, poses=torch.stack([world.pose(i) for i in range(20)])
        )
        graph.replay()
        assert_same(captured, expected)


# -- two GPUs -------------------------------------------------------------------------------------


def need_two(cuda: Any) -> None:
    """Skips where there is one GPU alone."""
    if cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


@pytest.mark.parametrize("count", [3, 20])
def test_tensors_on_a_device_that_is_not_the_current_one(
    count: int, gpu: torch.device, cuda: Any
) -> None:
    need_two(cuda)
    expected = gradients(world_of(count, CPU), spheres_on(CPU))
    for index in (1, 0):
        device = torch.device(gpu.type, index)
        with cuda.device(1 - index):
            found = gradients(world_of(count, device), spheres_on(device))
            assert cuda.current_device() == 1 - index
        assert all(value.device == device for value in found)
        assert_as_on_cpu(found, expected)


def test_a_world_per_device_in_threads(gpu: torch.device, cuda: Any) -> None:
    """One thread and one module per device, as `DataParallel` runs them."""
    need_two(cuda)
    expected = gradients(world_of(14, CPU), spheres_on(CPU))

    def work(index: int) -> list[Tensor]:
        device = torch.device(gpu.type, index)
        with cuda.device(device):
            world = world_of(14, device)
            for _ in range(20):
                found = gradients(world, spheres_on(device))
            return [value.cpu() for value in found]

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(work, range(2)):
            assert_as_on_cpu(found, expected)


def test_a_base_pose_of_numbers_is_ready_on_all_streams(
    gpu: torch.device, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied to the device once, on the stream that meets it first."""
    numbers = (0.3, -0.2, 0.5, 0.8, 0.0, 0.6, 0.0)
    pose = torch.tensor(numbers, dtype=torch.float64, device=gpu)
    expected = base_pose.run_roots(pose, (1, 1)).cpu()
    monkeypatch.setattr(base_pose, "_kept", {})
    joints = torch.zeros(1, 7, device=gpu)
    cuda.synchronize()
    with cuda.stream(cuda.Stream()):
        base_pose.root_frames(numbers, joints)
    with cuda.stream(cuda.Stream()):
        found = base_pose.root_frames(numbers, joints)
        assert found is not None
        torch.testing.assert_close(found.cpu(), expected, rtol=0.0, atol=0.0)
