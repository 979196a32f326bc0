"""Captured graphs go on telling the truth: meshes that change, robots and worlds that are gone."""

import gc
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
    RobotSpheres,
    configuration_in_collision,
    joint_path_cost,
    sphere_cost,
)
from warp_collision.launching import deferred_free
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


def test_graphs_of_one_world_keep_it_once(gpu: torch.device, cuda: Any) -> None:
    """What a graph reads stays alive; another graph that reads the same keeps nothing more."""
    world, robot = MeshWorld(device=gpu), RobotSpheres(PANDA)
    world.add("ball", trimesh.creation.icosphere(1, 0.2), (0.3, 0.1, 0.2, 1, 0, 0, 0))
    spheres = torch.rand(1, 1, 8, 4, device=gpu)
    joints = torch.zeros(1, 2, len(robot.joint_names), device=gpu)

    def call() -> list[Tensor]:
        cost = sphere_cost(spheres, world)
        return [cost, configuration_in_collision(joints, robot, world)]

    graphs, counts = [], []
    for _ in range(4):
        graph, results = captured(cuda, call)
        graphs.append((graph, results))
        counts.append(len(deferred_free._of_graphs))
    assert counts[1:] == counts[:1] * 3
    expected = [each.cpu() for each in call()]
    for graph, results in graphs:
        graph.replay()
        for found, right in zip(results, expected, strict=True):
            assert torch.equal(found.cpu(), right)
