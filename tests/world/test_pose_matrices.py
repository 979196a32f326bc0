"""Poses as rigid 4 x 4 matrices, wherever poses are taken."""

from typing import Any

import numpy as np
import pytest
import torch
from trimesh.transformations import quaternion_matrix

import shapes
from warp_collision import MeshWorld, checking, sphere_cost
from warp_collision.poses import pose_from_matrix
from worlds import BALL, BOX

Pair = tuple[np.ndarray, np.ndarray]


def pair(rng: np.random.Generator) -> Pair:
    """A pose (7,) and its matrix."""
    pose = np.array(shapes.random_pose(rng))
    matrix = quaternion_matrix(pose[3:])
    matrix[:3, 3] = pose[:3]
    return pose, matrix


def some_spheres(device: torch.device) -> torch.Tensor:
    spheres = np.random.default_rng(3).uniform(-1.0, 1.0, (2, 3, 100, 4))
    spheres[..., 3] = 0.2
    return torch.tensor(spheres, dtype=torch.float32, device=device)


def world_of(pose: Any, device: torch.device, n_envs: int = 1) -> MeshWorld:
    world = MeshWorld(n_envs, 3, device)
    world.add("box", BOX, pose)
    world.add("ball", BALL)
    return world


@pytest.mark.parametrize("kind", [np.ndarray, list, torch.Tensor])
def test_one_pose(kind: Any, device: torch.device) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        pose, matrix = pair(rng)
        given: Any = matrix
        if kind is list:
            given = matrix.tolist()
        elif kind is torch.Tensor:
            given = torch.tensor(matrix, device=device)
        expected = world_of(pose, device).mesh_from_world
        worlds = [world_of(given, device), world_of(None, device), MeshWorld(1, 3, device)]
        worlds[1].set_pose("box", given)
        worlds[2].load({"box": (BOX, given), "ball": BALL})
        pairs = MeshWorld(1, 3, device)
        pairs.load({"box": ((BOX.vertices, BOX.faces), given), "ball": BALL})
        for world in (*worlds, pairs):
            found = world.mesh_from_world.double()
            # A quaternion and its negative are the same turn.
            signs = torch.sign((found * expected)[..., 3:7].sum(-1, keepdim=True))
            found[..., 3:7] *= signs
            torch.testing.assert_close(found, expected.double(), rtol=0, atol=1e-6)


def test_quaternions_of_half_turns() -> None:
    rng = np.random.default_rng(2)
    axes = [*np.eye(3), *rng.normal(size=(20, 3))]
    for axis in axes:
        for angle in (np.pi, np.pi - 1e-9, 1e-9, 0.0, 2.0):
            unit = axis / np.linalg.norm(axis)
            quaternion = np.array([np.cos(angle / 2), *(np.sin(angle / 2) * unit)])
            found = pose_from_matrix(torch.tensor(quaternion_matrix(quaternion)))[3:].numpy()
            assert abs(abs(found @ quaternion) - 1.0) < 1e-12


def test_all_poses_at_once(device: torch.device) -> None:
    rng = np.random.default_rng(4)
    pairs = [pair(rng) for _ in range(2)]
    poses, matrices = (
        torch.tensor(np.stack(p), dtype=torch.float32, device=device)
        for p in zip(*pairs, strict=True)
    )
    spheres = some_spheres(device)
    world = world_of(None, device)
    world.set_poses(poses)
    expected = sphere_cost(spheres, world)
    assert (expected > 0.0).any()
    world.set_poses(matrices)
    torch.testing.assert_close(sphere_cost(spheres, world), expected, rtol=1e-5, atol=1e-6)
    other = world_of(None, device)
    for given in (matrices, torch.cat((matrices, torch.zeros(1, 4, 4, device=device)))[None]):
        cost = sphere_cost(spheres, other, poses=given)
        torch.testing.assert_close(cost, expected, rtol=1e-5, atol=1e-6)
    mapped = torch.func.vmap(lambda m: sphere_cost(spheres, other, poses=m))(matrices[None])
    torch.testing.assert_close(mapped[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("route", ["set_pose", "set_poses", "poses"])
def test_gradients_reach_matrices(route: str, device: torch.device) -> None:
    """By a motion along the matrices' own manifold, the gradient is that of the seven numbers."""
    rng = np.random.default_rng(5)
    (pose, matrix), (_, other) = pair(rng), pair(rng)
    spheres = some_spheres(device)
    world = world_of(pose, device)
    world.set_pose("ball", other)
    leaf = torch.tensor(matrix, dtype=torch.float32, device=device).requires_grad_(True)
    both = torch.stack((leaf, torch.tensor(other, dtype=torch.float32, device=device)))
    for _ in range(2):  # one that is no function of others is read anew in every call
        if route == "set_pose":
            world.set_pose("box", leaf)
        elif route == "set_poses":
            both = torch.stack((leaf, both[1].detach()))
            world.set_poses(both)
        options = {"poses": torch.stack((leaf, both[1].detach()))} if route == "poses" else {}
        sphere_cost(spheres, world, activation_distance=0.1, **options).double().sum().backward()
    assert leaf.grad is not None
    grad = leaf.grad.double().cpu().numpy() / 2.0
    turn = np.array([[0, -0.3, 0.2, 0.5], [0.3, 0, -0.6, -0.4], [-0.2, 0.6, 0, 0.7], [0, 0, 0, 0]])
    along = float((grad * (turn @ matrix)).sum())

    def cost(step: float) -> float:
        moved = np.linalg.matrix_power(np.eye(4) + step * turn / 64.0, 64) @ matrix
        q, _ = np.linalg.qr(moved[:3, :3])
        moved[:3, :3] = q * np.sign(np.diag(q.T @ moved[:3, :3]))
        world.set_pose("box", moved)
        return sphere_cost(spheres, world, activation_distance=0.1).double().sum().item()

    slope = (cost(2e-3) - cost(-2e-3)) / 4e-3
    assert abs(slope) > 0.1
    assert along == pytest.approx(slope, rel=0.02)


def test_set_pose_of_a_leaf_is_read_anew(device: torch.device) -> None:
    _, matrix = pair(np.random.default_rng(6))
    leaf = torch.tensor(matrix, dtype=torch.float32, device=device).requires_grad_(True)
    world = world_of(leaf, device)
    costs = []
    for _ in range(2):
        cost = sphere_cost(some_spheres(device), world)
        cost.sum().backward()
        costs.append(cost.sum().item())
        with torch.no_grad():
            leaf[0, 3] += 0.1
    assert costs[0] != costs[1]
    moved = leaf.detach()[:3, 3]
    torch.testing.assert_close(world.pose("box")[:3], moved, rtol=0, atol=1e-6)


BAD = {
    "scaled": np.diag([1.001, 1.001, 1.001, 1.0]),
    "mirrored": np.diag([1.0, 1.0, -1.0, 1.0]),
    "sheared": np.eye(4) + 1e-3 * np.eye(4, k=1) * [[1], [0], [0], [0]],
    "last row": np.diag([1.0, 1.0, 1.0, 2.0]),
    "zero": np.zeros((4, 4)),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_rigid(name: str, device: torch.device) -> None:
    world = world_of(None, device)
    bad = BAD[name]
    for call in (
        lambda: world.set_pose("box", bad),
        lambda: world.add("more", BOX, bad),
        lambda: world.load({"more": (BOX, bad)}),
    ):
        with pytest.raises(ValueError, match="must be a rigid transform: an orthonormal rotation"):
            call()
    assert world.names() == ["box", "ball"]
    both = torch.tensor(np.stack((bad, np.eye(4))), dtype=torch.float32, device=device)
    spheres = some_spheres(device)
    # On a device nobody looks: what is not a pose is not free.
    assert sphere_cost(spheres, world, poses=both).isnan().all()
    world.set_poses(both)
    assert sphere_cost(spheres, world).isnan().all()
    with checking():
        with pytest.raises(ValueError, match="poses\\[0\\] must be a rigid transform"):
            world.set_poses(both)
        with pytest.raises(ValueError, match="poses of env 0, slot 0 must be a rigid transform"):
            sphere_cost(spheres, world, poses=both)


def test_shapes_of_poses(device: torch.device) -> None:
    world = world_of(None, device)
    with pytest.raises(ValueError, match=r"poses must have shape \(2, 7\).* or \(2, 4, 4\)"):
        world.set_poses(torch.eye(4, device=device).expand(3, 4, 4))
    with pytest.raises(ValueError, match=r"pose must have shape \(7,\).*or \(4, 4\), got"):
        world.set_pose("box", np.eye(3))
    with pytest.raises(ValueError, match=r"poses must have shape \(1, 3, 7\) or \(2, 7\), or"):
        sphere_cost(some_spheres(device), world, poses=torch.eye(4, device=device))
    assert world.mesh_from_world.isfinite().all()
