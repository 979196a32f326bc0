"""Captured graphs go on telling the truth: meshes that change, robots and worlds that are gone."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

from robots import PANDA
from warp_collision import (
    Cuboid,
    MeshWorld,
    PointCloud,
    RobotSpheres,
    Sphere,
    configuration_in_collision,
    in_collision,
    joint_path_cost,
    joint_path_in_collision,
    signed_distance,
    sphere_cost,
)
from warp_collision.launching import deferred_free, graph_memory
from warp_collision.warp_primitives import SdfMeshWarpPy

Tensor = torch.Tensor


def captured(cuda: Any, call: Callable[[], Any]) -> tuple[Any, Any]:
    """The graph of a call, after a call that is not captured, and what it returned."""
    call()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        results = call()
    return graph, results


def overwrite_freed_memory(device: torch.device) -> list[Tensor]:
    """Takes memory that was freed."""
    gc.collect()
    return [torch.full((1 << 14,), 7.0, device=device) for _ in range(8)]


class Owner:
    """Something that can be referred to weakly."""


class ExternalCall:
    """A drop-in Function over a caller's own mesh."""

    def __init__(self, meshes: list[wp.Mesh], spheres: Tensor, positions: np.ndarray):
        device = spheres.device
        self.spheres = spheres
        inverse = np.zeros((1, len(meshes), 8), dtype=np.float32)
        inverse[..., :3], inverse[..., 3] = -positions, 1.0
        ids = torch.tensor([[mesh.id for mesh in meshes]])
        ones = torch.ones(1, device=device)
        self.tables = (
            ids.to(device),
            torch.from_numpy(inverse).to(device),
            torch.ones((1, len(meshes)), dtype=torch.uint8, device=device),
            torch.full((1,), len(meshes), dtype=torch.int32, device=device),
            ones,
        )
        self.scalars = ones, 0.02 * ones
        shape = spheres.shape[:-1]
        self.buffers = (
            torch.empty(shape, device=device),
            torch.empty(spheres.shape, device=device),
            torch.empty(shape, dtype=torch.uint8, device=device),
        )

    def at(self, positions: np.ndarray) -> "ExternalCall":
        """The same ids at other positions, with other buffers."""
        other = ExternalCall([], self.spheres, np.zeros((0, 3)))
        inverse = self.tables[1].cpu()
        inverse[..., :3] = -torch.from_numpy(positions)
        poses = inverse.to(self.spheres.device)
        other.tables = (self.tables[0], poses, *self.tables[2:])
        return other

    def __call__(self) -> Tensor:
        return SdfMeshWarpPy.apply(self.spheres, *self.buffers, *self.scalars, *self.tables)


def external_mesh(mesh: trimesh.Trimesh, device: torch.device) -> wp.Mesh:
    """A mesh as a caller makes it."""
    return wp.Mesh(
        wp.array(mesh.vertices, dtype=wp.vec3, device=str(device)),
        wp.array(mesh.faces.ravel(), dtype=wp.int32, device=str(device)),
        support_winding_number=True,
    )


def spheres_at(centers: Any, device: torch.device) -> Tensor:
    """(1, 1, n, 4) spheres of 2 cm."""
    rows = np.pad(np.asarray(centers, dtype=np.float32), ((0, 0), (0, 1)), constant_values=0.02)
    return torch.from_numpy(rows[None, None]).to(device)


def test_a_mesh_turned_inside_out_is_not_free(gpu: torch.device, cuda: Any) -> None:
    """Mirrored points with the same faces, as a negative scale makes them: all look inwards."""
    ball = trimesh.creation.icosphere(2, 0.3)
    ball.apply_translation((0.1, 0.0, 0.0))
    mesh = external_mesh(ball, gpu)
    spheres = spheres_at([(-0.1, 0.0, 0.0), (-0.2, 0.1, 0.0), (0.3, 0.0, 0.0)], gpu)
    call = ExternalCall([mesh], spheres, np.zeros((1, 3)))
    graph, results = captured(cuda, call)
    mirrored = ball.vertices.astype(np.float32) * np.float32([-1.0, 1.0, 1.0])
    mesh.points.assign(mirrored)
    mesh.refit()
    cuda.synchronize()
    right = MeshWorld(device=gpu)
    right.add("ball", (mirrored, ball.faces[:, ::-1]))
    expected = sphere_cost(spheres, right).cpu()
    assert (expected[..., :2] > 0.1).all()
    for _ in range(2):
        graph.replay()
        torch.testing.assert_close(results.cpu(), expected, rtol=1e-4, atol=1e-5)
    for _ in range(3):
        torch.testing.assert_close(call().cpu(), expected, rtol=1e-4, atol=1e-5)


def edit_by_attaching(robot: RobotSpheres) -> None:
    """Replaces the tables of all spheres."""
    robot.attach("can", "panda_hand", [[0.0, 0.0, 0.12, 0.04]])


def edit_by_detaching(robot: RobotSpheres) -> None:
    """The same, of what was attached before."""
    robot.detach("tool")


@pytest.mark.parametrize("edit", [edit_by_attaching, edit_by_detaching, None])
def test_a_graph_outlives_its_robot_and_world(
    edit: Callable[[RobotSpheres], None] | None, gpu: torch.device, cuda: Any
) -> None:
    """It answers for the robot that it was captured with; without an edit both are dropped."""
    robot, world = RobotSpheres(PANDA), MeshWorld(device=gpu)
    robot.attach("tool", "panda_hand", [[0.0, 0.1, 0.1, 0.03]])
    world.add("box", Cuboid((0.3, 0.4, 0.5)), (0.4, 0.1, 0.4, 1.0, 0.0, 0.0, 0.0))
    joints = torch.zeros((2, 3, 7), device=gpu) + torch.linspace(0.0, 1.0, 3, device=gpu)[:, None]

    def call() -> list[Tensor]:
        options = {"substeps": 1, "self_weight": 1.0, "activation_distance": 0.3}
        return [
            configuration_in_collision(joints, robot, world),
            joint_path_cost(joints, robot, world, **options),
            robot.spheres(joints),
        ]

    expected = [value.clone() for value in call()]
    graph, results = captured(cuda, call)
    if edit is None:
        del robot, world
    else:
        edit(robot)
    kept = overwrite_freed_memory(gpu)
    graph.replay()
    assert all(map(torch.equal, results, expected))
    assert (expected[1] > 0.0).any()
    del kept


def test_collecting_garbage_leaves_a_capture_of_another_thread_alone(
    gpu: torch.device, cuda: Any
) -> None:
    """The garbage collector may run between any two lines."""
    spheres = spheres_at([(0.0, 0.0, 0.0)], gpu)
    world, other = (MeshWorld(device=gpu) for _ in range(2))
    for each in (world, other):
        each.add("box", Cuboid((0.3, 0.4, 0.5)))
        sphere_cost(spheres, each)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        results = sphere_cost(spheres, world)
        with cuda.stream(cuda.Stream()):  # not captured, as another thread's
            del each, other
            gc.collect()
    graph.replay()
    assert torch.equal(results, sphere_cost(spheres, world))


def test_two_streams_with_the_same_meshes_at_other_poses(gpu: torch.device, cuda: Any) -> None:
    """Each query sees its own poses, whatever runs in between."""
    ball = trimesh.creation.icosphere(1, 0.1)
    meshes = [external_mesh(ball, gpu) for _ in range(6)]
    rng = np.random.default_rng(0)
    here, there = rng.uniform(-1.0, 1.0, (2, 6, 3))
    spheres = spheres_at(np.concatenate([here, there]), gpu)
    first = ExternalCall(meshes, spheres, here)
    second = first.at(there)
    expected = first().cpu(), second().cpu()
    assert (expected[0][0, 0, :6] > 0.05).all()
    assert (expected[1][0, 0, 6:] > 0.05).all()
    streams = cuda.Stream(), cuda.Stream()
    for _ in range(2):
        cuda.synchronize()
        with cuda.stream(streams[0]):
            one = first()
        with cuda.stream(streams[1]):
            two = second()
        cuda.synchronize()
        assert torch.equal(one.cpu(), expected[0])
        assert torch.equal(two.cpu(), expected[1])


def test_captures_of_one_world_keep_it_as_long_as_they_are(gpu: torch.device, cuda: Any) -> None:
    """Each replays; when all are gone, and only then, nothing is kept any more."""
    world, robot = MeshWorld(device=gpu), RobotSpheres(PANDA)
    world.add("ball", trimesh.creation.icosphere(1, 0.2), (0.3, 0.1, 0.2, 1, 0, 0, 0))
    spheres = torch.rand(1, 1, 8, 4, device=gpu)
    joints = torch.zeros(1, 2, len(robot.joint_names), device=gpu)

    def call() -> list[Tensor]:
        cost = sphere_cost(spheres, world)
        return [cost, configuration_in_collision(joints, robot, world)]

    before = set(graph_memory.graphs)
    graphs = [captured(cuda, call) for _ in range(20)]
    expected = [each.cpu() for each in call()]
    assert len(set(graph_memory.graphs) - before) == 20
    for graph, results in graphs[::5]:
        graph.replay()
        for found, right in zip(results, expected, strict=True):
            assert torch.equal(found.cpu(), right)
    last = graphs.pop()
    kept_by_last = set(graph_memory.graphs) - before
    del graphs, graph, results
    graph_memory.release()
    kept = set(graph_memory.graphs) - before
    assert len(kept) == 1
    assert kept < kept_by_last
    del last
    for _ in range(70):  # launches look for graphs that are gone
        sphere_cost(spheres, world)
    assert not set(graph_memory.graphs) - before


@pytest.mark.parametrize("first", ["graphs", "worlds"])
def test_worlds_and_clouds_go_with_their_graphs(first: str, gpu: torch.device, cuda: Any) -> None:
    """Whichever is dropped first, memory is what it was, and no tree is alive."""
    cloud = np.random.default_rng(6).uniform(size=(1000, 3))
    spheres = spheres_at(cloud[:4], gpu)

    def cycle() -> list[Any]:
        world = MeshWorld(device=gpu)
        world.add("camera", PointCloud(cloud, 0.02, capacity=4000))
        world.add("box", Cuboid((0.3, 0.4, 0.5)), (3.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
        points = torch.tensor(cloud, dtype=torch.float32, device=gpu)

        def call() -> Tensor:
            world.update("camera", points)
            return sphere_cost(spheres, world)

        graph, results = captured(cuda, call)
        graph.replay()
        trees.extend(map(weakref.ref, [world._acceleration, world._slots.envs[0][0].obstacle]))
        return [world, call, graph, results]

    def settled_bytes() -> int:
        gc.collect()
        deferred_free.free_with(Owner(), [], gpu)  # as each new world does
        gc.collect()
        cuda.synchronize()
        return cuda.memory_allocated()

    trees: list[Any] = []
    cycle()
    before = settled_bytes()
    for _ in range(3):
        world, call, graph, results = cycle()
        if first == "graphs":
            del graph, results
            gc.collect()
            assert (sphere_cost(spheres, world) > 0.0).all()
        else:
            del world, call
            kept = overwrite_freed_memory(gpu)
            graph.replay()
            assert (results > 0.0).all()
            del kept
        assert sum(tree() is not None for tree in trees) >= 2  # this world's
        world = call = graph = results = None
    assert settled_bytes() <= before
    assert all(tree() is None for tree in trees)


def test_a_driver_that_tells_nothing_frees_nothing(
    monkeypatch: pytest.MonkeyPatch, gpu: torch.device, cuda: Any
) -> None:
    """What graphs read is kept for good then, as they may still be there."""
    monkeypatch.setattr(graph_memory, "_driver", lambda kind: None)
    monkeypatch.setattr(graph_memory, "graphs", {})
    world, spheres = MeshWorld(device=gpu), spheres_at([(0.0, 0.0, 0.0)], gpu)
    world.add("box", Cuboid((0.3, 0.4, 0.5)))
    graph, results = captured(cuda, functools.partial(sphere_cost, spheres, world))
    alive = weakref.ref(world._acceleration)
    del graph, results, world
    gc.collect()
    graph_memory.release()
    assert len(graph_memory.graphs) == 1
    assert alive() is not None


@pytest.mark.parametrize("n_obstacles", [0, 1, 40])
@pytest.mark.parametrize("room", [{"n_envs": 2}, {"max_obstacles": 41}])
def test_after_growth_a_replay_calls_nothing_free(
    n_obstacles: int, room: dict[str, int], gpu: torch.device, cuda: Any
) -> None:
    """It does not see what is added then: all of space is in collision, disabled or allowed too."""
    robot, world = RobotSpheres(PANDA), MeshWorld(max_obstacles=40, device=gpu)
    pose = (9.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    for index in range(n_obstacles):
        world.add(f"box {index}", Cuboid((0.1, 0.2, 0.3)), pose)
    links = sorted(set(robot.sphere_links))
    ignored = [(link, f"box {index}") for index in range(n_obstacles) for link in links]
    if n_obstacles:
        world.enable(0, False)
    joints = torch.tensor([0.0, -0.5, 0.0, -2.0, 0.0, 1.6, 0.8], device=gpu).expand(2, 3, 7)
    spheres = spheres_at([(0.0, 0.0, 0.0), (50.0, 60.0, 70.0)], gpu)
    points = spheres[..., :3].contiguous()
    poses = torch.tensor([[pose] * max(1, n_obstacles)], device=gpu)[:, :n_obstacles]

    def call() -> list[Tensor]:
        hits = [
            in_collision(spheres, world).any(-1),
            configuration_in_collision(joints, robot, world, ignore=ignored),
            joint_path_in_collision(joints, robot, world, ignore=ignored),
        ]
        if len(world) == n_obstacles > 0:
            hits.append(in_collision(spheres, world, poses=poses).any(-1))
        return [*hits, sphere_cost(spheres, world), signed_distance(points, world).distance]

    graph, results = captured(cuda, call)
    graph.replay()
    *hits, cost, distance = results
    assert not any(hit.any() for hit in hits)
    assert (cost == 0.0).all()
    world.grow(**room)
    world.add("on the spot", Cuboid((0.1, 0.1, 0.1)), env=world.n_envs - 1)
    graph.replay()
    assert all(hit.all() for hit in hits)
    assert (cost > 1e8).all()
    assert (distance < -1e8).all()
    graph, results = captured(cuda, call)  # anew
    graph.replay()
    assert [hit.any().item() for hit in results[:3]] == [world.n_envs == 1] * 3
    assert (results[-1] > -1.0).all()


@pytest.mark.parametrize("is_all", [True, False])
def test_after_growth_a_replay_that_disables_calls_nothing_free(
    is_all: bool, gpu: torch.device, cuda: Any
) -> None:
    """All obstacles of a full env are disabled by the graph itself, at once or one by one."""
    world = MeshWorld(max_obstacles=3, device=gpu)
    for index in range(3):
        world.add(f"ball {index}", Sphere(0.1), (9.0 + index, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    spheres = spheres_at([(0.0, 0.0, 0.0), (9.0, 0.0, 0.0)], gpu)
    mask = torch.zeros(3, dtype=torch.int32, device=gpu)

    def call() -> Tensor:
        if is_all:
            world.set_enabled(mask)
        else:
            for index in range(3):
                world.enable(index, mask[index])
        return in_collision(spheres, world)

    graph, hit = captured(cuda, call)
    graph.replay()
    assert not hit.any()
    mask.fill_(4)
    graph.replay()
    assert hit.cpu().flatten().tolist() == [False, True]
    mask.zero_()
    graph.replay()
    assert not hit.any()
    world.grow(max_obstacles=4)
    graph.replay()
    assert hit.all()
    assert (world.enabled[0].cpu() == torch.tensor([0, 0, 0, 0])).all()
    assert not in_collision(spheres, world).any()
    world.set_enabled(mask)
    graph.replay()
    assert hit.all()


def test_a_graph_that_writes_alone_keeps_what_it_writes(gpu: torch.device, cuda: Any) -> None:
    """After growth its replays write into no memory of others."""
    world = MeshWorld(device=gpu)
    world.add("ball", Sphere(0.1))
    mask = torch.zeros(1, dtype=torch.uint8, device=gpu)
    poses = torch.tensor([[1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0]], device=gpu)
    written = [graph_memory.memory_key(table) for table in (world.enabled, world.mesh_from_world)]

    def call() -> None:
        world.set_enabled(mask)
        world.set_poses(poses)

    graph, _ = captured(cuda, call)
    assert all(graph_memory.is_kept(key) for key in written)
    world.grow(max_obstacles=40)
    graph.replay()
    del graph
    cuda.synchronize()
    assert not any(graph_memory.is_kept(key) for key in written)
