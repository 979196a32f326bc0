"""Exact shapes in worlds: every query against the reference, as for meshes."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

import reference
from compare import to_array, to_device
from exact_scenes import build, library_shape, random_scene
from exact_shapes import capsule, cuboid, cylinder, sphere
from primitives import Call
from reference import Array, Body
from reference_sweep import swept_sphere_cost as exact_swept_cost
from truth_sweep import count_queries
from warp_collision import (
    Capsule,
    Cuboid,
    Cylinder,
    MeshWorld,
    Sphere,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)

ETA = 0.05
COUNTS = (4, 40)


def random_spheres(rng: np.random.Generator, *shape: int) -> Array:
    spheres = np.concatenate(
        (rng.uniform(-1.0, 1.0, (*shape, 3)), rng.uniform(0.0, 0.15, (*shape, 1))), axis=-1
    )
    return spheres.astype(np.float32).astype(np.float64)


def random_paths(rng: np.random.Generator) -> Array:
    spheres = random_spheres(rng, 2, 6, 40)
    spheres[..., :3] = spheres[:, :1, :, :3] + np.cumsum(
        rng.normal(0.0, 0.15, (2, 6, 40, 3)), axis=1
    )
    spheres[..., 3] = spheres[:, :1, :, 3]
    return spheres.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("padding", [0.0, 0.08])
@pytest.mark.parametrize("count", COUNTS)
def test_resting_queries(count: int, padding: float, device: torch.device) -> None:
    rng = np.random.default_rng(count)
    scenes = [random_scene(rng, count, padding), random_scene(rng, count // 2, padding)]
    world = build(scenes, device)
    envs = torch.tensor([0, 1], dtype=torch.int32, device=device)
    spheres = random_spheres(rng, 2, 1, 4000)
    truth = np.stack(
        [
            np.min([body.distance(s[..., :3]) for body in scene], axis=0)
            for s, scene in zip(spheres, scenes, strict=True)
        ]
    )
    found = signed_distance(to_device(spheres[:, 0, :, :3], device), world, env_index=envs)
    np.testing.assert_allclose(to_array(found.distance), truth[:, 0], rtol=0, atol=1e-6)
    nearest = clearance(to_device(spheres, device), world, env_index=envs)
    free = truth - spheres[..., 3]
    np.testing.assert_allclose(to_array(nearest.clearance), free, rtol=0, atol=1e-6)
    hit = in_collision(to_device(spheres, device), world, env_index=envs).cpu().numpy()
    sure = np.abs(free) > 2e-6
    np.testing.assert_array_equal(hit[sure], (free < 0.0)[sure])
    assert hit.any()
    assert not hit.all()
    cost = sphere_cost(to_device(spheres, device), world, activation_distance=ETA, env_index=envs)
    expected = reference.sphere_cost(spheres, scenes, activation_distance=ETA, env_index=[0, 1])
    np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=1e-6)
    call = Call("rest", to_device(spheres, device), world, {"env_query_idx": envs})
    call(max_dist=torch.full((1,), 0.3, device=device), compute_esdf=True)
    esdf = np.maximum(-truth, -0.3)
    np.testing.assert_allclose(to_array(call["out_cost"]), esdf, rtol=0, atol=1e-6)
    call(activation_distance=torch.full((1,), ETA, device=device), compute_esdf=False)
    np.testing.assert_allclose(to_array(call["out_cost"]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padding", [0.0, 0.08])
@pytest.mark.parametrize("count", COUNTS)
def test_sweeps(count: int, padding: float, device: torch.device) -> None:
    rng = np.random.default_rng(100 + count)
    scene = random_scene(rng, count, padding)
    world = build([scene], device)
    spheres = random_paths(rng)
    expected = exact_swept_cost(spheres, [scene], activation_distance=ETA)
    assert (expected > 0.0).mean() > 0.03
    for tolerance in (1e-5, 0.01):
        cost = swept_sphere_cost(
            to_device(spheres, device), world, activation_distance=ETA, tolerance=tolerance
        )
        # Whatever the tolerance: a convex distance is settled beyond it.
        np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=count * 2e-6)
        backward = swept_sphere_cost(
            to_device(spheres[:, ::-1].copy(), device),
            world,
            activation_distance=ETA,
            tolerance=tolerance,
        )
        assert torch.equal(backward.flip(1), cost)
    call = Call("swept", to_device(spheres, device), world)
    call(activation_distance=torch.full((1,), ETA, device=device))
    np.testing.assert_allclose(to_array(call["out_cost"]), expected, rtol=1e-5, atol=count * 2e-6)


THIN = (
    Body(cuboid(2.0, 2.0, 5e-4), np.array([0, 0, 0, 1, 0, 0, 0.0])),
    Body(cylinder(1e-3, 2.0), np.array([0, 0, 0, 1, 0, 0, 0.0])),
    Body(capsule(5e-4, 1.0), np.array([0, 0, 0, 0.6, 0.8, 0, 0.0])),
    Body(sphere(1e-3), np.array([0, 0, 0, 1, 0, 0, 0.0])),
    Body(cuboid(0.3, 0.2, 0.4), np.array([0.1, 0, 0, 0.5, 0.5, 0.5, 0.5])),
)


@pytest.mark.parametrize("body", THIN, ids=lambda body: str(body.shape.kind))
def test_sweeps_are_certified(body: Body, device: torch.device) -> None:
    """Long segments past and through thin things: the minimum to a micrometre."""
    rng = np.random.default_rng(11)
    n = 2000
    target = rng.uniform(-0.02, 0.02, (n, 3)) + rng.uniform(-0.4, 0.4, (n, 1)) * (0, 0, 1)
    way = rng.normal(size=(n, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    begin = target + way * rng.uniform(0.01, 2.0, (n, 1))
    end = target - way * rng.uniform(0.01, 2.0, (n, 1))
    spheres = np.zeros((n, 2, 1, 4))
    spheres[:, 0, 0, :3], spheres[:, 1, 0, :3] = begin, end
    spheres[..., 3] = 0.03
    spheres = spheres.astype(np.float32).astype(np.float64)
    world = build([[body]], device)
    cost = to_array(swept_sphere_cost(to_device(spheres, device), world, activation_distance=0.0))
    expected = exact_swept_cost(spheres, [[body]], activation_distance=0.0)
    assert 0.05 < (expected > 0.0).mean() < 0.9
    # A kink of the minimum may be rounded by the place where the tangents meet.
    np.testing.assert_allclose(cost, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("swept", [False, True])
def test_gradients(swept: bool, device: torch.device) -> None:
    rng = np.random.default_rng(21)
    scene = random_scene(rng, 8, 0.03)
    world = build([scene], device)
    spheres = random_paths(rng)[:, :4, :12]
    incoming = rng.uniform(0.5, 1.5, spheres.shape[:-1])
    costs = exact_swept_cost if swept else reference.sphere_cost

    def loss(values: Array) -> Array:
        rows = values.reshape(-1, *spheres.shape[1:])
        return (costs(rows, [scene], activation_distance=ETA) * incoming[:1]).sum((1, 2))

    for row in spheres:
        leaf = to_device(row[None], device).requires_grad_(True)
        if swept:
            cost = swept_sphere_cost(leaf, world, activation_distance=ETA, tolerance=1e-6)
        else:
            cost = sphere_cost(leaf, world, activation_distance=ETA)
        (cost * to_device(incoming[:1], device)).sum().backward()
        assert leaf.grad is not None
        found, steps = to_array(leaf.grad)[0].ravel()[::3], 1e-6 * np.eye(row.size)[::3]
        here, plus, minus = (loss(row.ravel() + s) for s in (0.0 * steps[:1], steps, -steps))
        forward, backward = (plus - here) / 1e-6, (here - minus) / 1e-6
        smooth = abs(forward - backward) < 2e-3
        assert smooth.sum() > 0.5 * len(smooth)
        assert (abs(found - 0.5 * (forward + backward))[smooth] <= 2e-3).all()


def test_pose_gradients(device: torch.device) -> None:
    rng = np.random.default_rng(23)
    scene = random_scene(rng, 4, 0.03)
    world = build([scene], device)
    spheres = random_paths(rng)
    poses = torch.tensor(np.stack([p.pose for p in scene]), dtype=torch.float32, device=device)
    for swept in (False, True):
        leaf = poses.clone().requires_grad_(True)
        query = swept_sphere_cost if swept else sphere_cost
        query(
            to_device(spheres, device), world, activation_distance=ETA, poses=leaf
        ).sum().backward()
        assert leaf.grad is not None
        costs = exact_swept_cost if swept else reference.sphere_cost

        def total(slot: int, pose: Array) -> float:
            moved = pose.copy()
            moved[3:] /= np.linalg.norm(moved[3:])
            one = replace(scene[slot], pose=moved)
            return float(costs(spheres, [[one]], activation_distance=ETA).sum())  # noqa: B023

        for slot in range(4):
            base = scene[slot].pose
            slope = [
                (total(slot, base + step) - total(slot, base - step)) / 2e-5
                for step in 1e-5 * np.eye(7)
            ]
            np.testing.assert_allclose(to_array(leaf.grad)[slot], slope, rtol=5e-3, atol=0.02)
            assert np.abs(slope).max() > 0.1


def test_a_mesh_and_its_shape_agree(device: torch.device) -> None:
    """A cuboid by its formula and by its triangles; the polyhedron is asked for by its sign."""
    rng = np.random.default_rng(31)
    box = trimesh.creation.box((0.5, 0.3, 0.2))
    spheres = to_device(random_spheres(rng, 1, 8, 500), device)
    costs = []
    for sign in ("auto", "winding"):
        world = MeshWorld(device=device)
        world.add("box", box, (0.1, -0.2, 0.1, 0.8, 0.0, 0.6, 0.0), sign=sign)
        costs.append(swept_sphere_cost(spheres, world, activation_distance=ETA, tolerance=1e-6))
        assert (world.report("box").shape is None) == (sign == "winding")
    assert (costs[0] > 0.0).float().mean() > 0.1
    torch.testing.assert_close(*costs, rtol=1e-4, atol=3e-6)


def test_what_a_sweep_of_a_mesh_finds_is_refined(device: torch.device) -> None:
    """A cuboid of triangles costs what the formula says, far beyond the tolerance."""
    rng = np.random.default_rng(32)
    box = trimesh.creation.box((0.5, 0.3, 0.2))
    spheres = to_device(random_spheres(rng, 1, 8, 2000), device)
    costs = []
    for repair in (True, False):
        world = MeshWorld(device=device)
        world.add("box", box, repair=repair)
        costs.append(swept_sphere_cost(spheres, world, activation_distance=ETA, tolerance=1e-3))
        assert (world.report("box").shape is None) != repair
    off = (costs[0] - costs[1]).abs()
    assert (costs[0] > 0.0).float().mean() > 0.1
    assert off.max() < 1e-3
    assert (off > 1e-5).float().mean() < 1e-3


@pytest.mark.parametrize("shape", [Cuboid((0.4, 0.3, 0.2)), Cylinder(0.1, 0.5)])
def test_sweeps_of_convex_bodies_take_few_queries(shape: Cuboid | Cylinder) -> None:
    """By a formula, or by a mesh whose distance tangents bound as well."""
    rng = np.random.default_rng(41)
    begin = rng.uniform(-0.5, 0.5, (2000, 3))
    end = begin + rng.normal(0.0, 0.1, (2000, 3))
    mesh = reference.Obstacle(*shape.tessellate())
    counts, lowest = count_queries(mesh, begin, end, 0.05, 1e-3)
    exact, same = count_queries(shape, begin, end, 0.05, 1e-3)
    near = lowest < 0.05
    assert near.sum() > 100
    np.testing.assert_allclose(same[near], lowest[near], rtol=0, atol=1.5e-3)
    for taken in (exact, counts):
        assert taken[near].mean() < 5.0
        assert taken[~near].mean() < 1.1


def test_shared_by_content(device: torch.device) -> None:
    world = MeshWorld(2, device=device)
    world.add("a", Capsule(0.1, 0.4))
    world.add("b", Capsule(0.1, 0.4), (1, 0, 0, 1, 0, 0, 0), padding=0.1)
    world.add("c", Capsule(radius=0.1, length=0.4), env=1, enabled=False)
    world.add("d", Sphere(0.1), env=1)
    ids = world.mesh_ids
    assert ids[0, 0] == ids[0, 1] == ids[1, 0] != ids[1, 1]
    point = torch.tensor([[[1.2, 0.0, 0.0]]], device=device)
    assert signed_distance(point, world).distance.item() == pytest.approx(0.0, abs=1e-6)
    world.load({"e": Sphere(0.5), "f": (Cuboid((1, 1, 1)), np.eye(4))}, env=1)
    assert world.report("f", 1).shape == Cuboid((1.0, 1.0, 1.0))
    assert "given as Sphere" in str(world.report("e", 1))


def test_sign_is_for_meshes(device: torch.device) -> None:
    world = MeshWorld(device=device)
    with pytest.raises(ValueError, match="sign of 'ball' must be 'auto' for an exact shape"):
        world.add("ball", Sphere(0.1), sign="winding")
    world.add("ball", library_shape(sphere(0.1)), repair=False)
    assert world.report("ball").shape == Sphere(0.1)


# -- Warp meshes ----------------------------------------------------------------------------------


def meshes_of(world: MeshWorld) -> set[int]:
    """Ids of the Warp meshes that the obstacles of a world have."""
    found = [slot.obstacle.mesh for slots in world._slots.envs for slot in slots]
    return {int(mesh.id) for mesh in found if mesh is not None}


def test_a_shape_has_no_mesh_until_ids_are_read(device: torch.device) -> None:
    """Neither costs nor edits make one; afterwards every shape has one, new ones too."""
    world = MeshWorld(2, device=device)
    world.add("ball", Sphere(0.2))
    world.add("drum", Cylinder(0.3, 0.4), (1, 0, 0, 1, 0, 0, 0), env=1)
    world.add("ball", Sphere(0.25), replace=True)
    spheres = torch.tensor([[[[0.0, 0.0, 0.28, 0.05]]]], device=device)
    before = sphere_cost(spheres, world)
    assert before.item() == pytest.approx(0.02 + 0.01, abs=1e-6)
    assert meshes_of(world) == set()
    ids = world.mesh_ids
    assert meshes_of(world) == {ids[0, 0].item(), ids[1, 0].item()}
    assert torch.equal(sphere_cost(spheres, world), before)
    world.add("box", Cuboid((1, 1, 1)), (9, 0, 0, 1, 0, 0, 0))
    world.remove("ball")
    assert meshes_of(world) == {ids[0, 0].item(), ids[1, 0].item()}
    assert (ids[:, 1:] == 0).all()
    assert torch.equal(world.mesh_ids, ids)


def test_random_edits_before_ids_are_read(device: torch.device) -> None:
    """Shapes and meshes take each other's slots; answers are those of a new world."""
    rng = np.random.default_rng(511)
    world = MeshWorld(max_obstacles=8, device=device)
    expected = torch.empty(0)
    held: dict[str, tuple[Any, Any]] = {}
    points = torch.tensor(rng.uniform(-1, 1, (1, 1, 64, 3)), dtype=torch.float32, device=device)
    for turn in range(40):
        name, size = f"o{rng.integers(6)}", float(rng.uniform(0.1, 0.4))
        ball = trimesh.creation.icosphere(1, size)
        made = (Sphere(size), ball, Cuboid((size, 0.3, 0.2)), Capsule(0.1, size))[turn % 4]
        if rng.integers(4) == 0 and name in held:
            del held[name]
            world.remove(name)
        else:
            held[name] = (made, (*rng.uniform(-0.5, 0.5, 3), 1, 0, 0, 0))
            world.add(name, *held[name], replace=True)
        if turn == 20:
            world.grow(max_obstacles=9)
        fresh = MeshWorld(max_obstacles=8, device=device)
        fresh.load({name: held[name] for name in world.names()})
        found, expected = (signed_distance(points[0], w).distance for w in (world, fresh))
        assert torch.equal(found, expected)
    balls = [made for made, _ in held.values() if isinstance(made, trimesh.Trimesh)]
    assert len(meshes_of(world)) == len(balls)
    assert len(set(world.mesh_ids[0, : len(held)].tolist())) == len(held)
    assert torch.equal(signed_distance(points[0], world).distance, expected)


def test_a_mesh_and_a_shape_take_turns_under_a_thread(device: torch.device) -> None:
    """Both contain the point: no query finds it free, nor what stands for the mesh of a shape."""
    world = MeshWorld(device=device)
    bodies = Sphere(3.0), trimesh.creation.icosphere(3, 3.1), Cuboid((5.8, 5.8, 5.8))
    world.add("body", bodies[0])
    spheres = torch.tensor([[[[1.9, 1.2, 1.2, 0.01]]]], device=device).repeat(1, 1, 50, 1)
    stop = threading.Event()
    free: list[int] = []
    rounds = 0

    def ask() -> None:
        nonlocal rounds
        while not stop.is_set():
            if not in_collision(spheres, world).all():
                free.append(rounds)
            rounds += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        turns = 0
        while turns < 150 or (rounds < 50 and thread.is_alive()):
            turns += 1
            world.add("body", bodies[turns % 3], replace=True)
    finally:
        stop.set()
        thread.join()
    assert rounds >= 50
    assert not free
