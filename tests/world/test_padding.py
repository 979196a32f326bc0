"""Obstacles inflated by a padding: their signed distance is lowered by it, in every query."""

from typing import Any

import numpy as np
import pytest
import torch
import trimesh

import shapes
from primitives import Call
from warp_collision import (
    Cuboid,
    MeshWorld,
    any_in_collision,
    clearance,
    configuration_in_collision,
    in_collision,
    joint_path_clearance,
    joint_path_in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)
from warp_collision.examples import load_panda
from warp_collision.io import Obstacle
from worlds import BALL, BOX, SHIFT, TILT

PADDING = 0.07
ETA = 0.03
OPEN = trimesh.Trimesh(BOX.vertices, BOX.faces[2:])
BODIES: dict[str, Any] = {"cuboid": Cuboid((0.5, 0.3, 0.2)), "ball": BALL, "open": OPEN}


def inflated(device: torch.device, padding: float, bodies: dict[str, Any] = BODIES) -> MeshWorld:
    world = MeshWorld(device=device)
    for index, (name, body) in enumerate(bodies.items()):
        pose = (0.4 * index - 0.4, 0.1, -0.2, 0.8, 0.0, 0.6, 0.0)
        world.add(name, body, pose, padding=padding if index != 1 else 2 * padding)
    return world


def some_paths(device: torch.device) -> torch.Tensor:
    rng = np.random.default_rng(71)
    spheres = np.concatenate(
        (rng.uniform(-1, 1, (3, 5, 200, 3)), rng.uniform(0, 0.1, (3, 5, 200, 1))), axis=-1
    )
    return torch.tensor(spheres, dtype=torch.float32, device=device)


@pytest.mark.parametrize("name", BODIES)
def test_one_obstacle(name: str, device: torch.device) -> None:
    """Against the same obstacle without padding and spheres that are larger by it."""
    spheres = some_paths(device)
    larger = spheres.clone()
    larger[..., 3] += PADDING
    bare, padded = (inflated(device, p, {name: BODIES[name]}) for p in (0.0, PADDING))
    points = spheres[:, 0, :, :3].contiguous()
    near, far = signed_distance(points, padded), signed_distance(points, bare)
    torch.testing.assert_close(near.distance, far.distance - PADDING, rtol=0, atol=1e-6)
    torch.testing.assert_close(near.gradient, far.gradient)
    close = {"rtol": 1e-5, "atol": 1e-6}
    found = clearance(spheres, padded).clearance
    torch.testing.assert_close(found, clearance(larger, bare).clearance, **close)
    assert torch.equal(in_collision(spheres, padded), found < 0.0)
    assert in_collision(spheres, padded).any()
    for query in (sphere_cost, swept_sphere_cost):
        cost, same = (
            query(s, w, activation_distance=ETA) for s, w in ((spheres, padded), (larger, bare))
        )
        torch.testing.assert_close(cost, same, **close)
        assert (cost > 0.0).float().mean() > 0.02
    for kind in ("rest", "swept"):
        calls = [Call(kind, s, w) for s, w in ((spheres, padded), (larger, bare))]
        torch.testing.assert_close(*(call().clone() for call in calls), **close)
    calls = [Call("rest", spheres, w, {"compute_esdf": True}) for w in (padded, bare)]
    limit = calls[0]["max_dist"]
    padded_esdf = calls[0]().clone()
    torch.testing.assert_close(
        padded_esdf, (calls[1](max_dist=limit + 1.0) + PADDING).clamp(min=-1.0), rtol=0, atol=1e-6
    )


def test_the_nearest_is_that_of_the_inflated_ones(device: torch.device) -> None:
    world = MeshWorld(device=device)
    world.add("left", BALL, (-1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    world.add("right", BALL, (1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), padding=0.5)
    point = torch.tensor([[[-0.1, 0.0, 0.0]]], device=device)
    assert signed_distance(point, world).obstacle.item() == 1


@pytest.mark.parametrize("count", [3, 40])
def test_many(count: int, device: torch.device) -> None:
    """With a tree over the world boxes, which grow too."""
    rng = np.random.default_rng(73)
    world = MeshWorld(max_obstacles=count, device=device)
    alone = []
    spheres = some_paths(device)
    for index in range(count):
        pose, padding = shapes.random_pose(rng, 1.0), float(rng.uniform(0.0, 0.3))
        body = (BOX, BALL, OPEN)[index % 3]
        world.add(f"{index}", body, pose, padding=padding)
        one = MeshWorld(device=device)
        one.add("it", body, pose, padding=padding)
        alone.append(one)
    for query in (sphere_cost, swept_sphere_cost):
        total = sum(query(spheres, one, activation_distance=ETA) for one in alone)
        cost = query(spheres, world, activation_distance=ETA)
        torch.testing.assert_close(cost, total, rtol=1e-5, atol=1e-5)
    points = spheres[:, 0, :, :3].contiguous()
    nearest = torch.stack([signed_distance(points, one).distance for one in alone]).amin(0)
    found = signed_distance(points, world).distance
    torch.testing.assert_close(found, nearest, rtol=0, atol=1e-6)


def test_padding_stays_with_its_slot(device: torch.device) -> None:
    world = MeshWorld(2, 3, device)
    world.add("a", BOX, SHIFT, padding=0.1)
    world.add("b", BOX, TILT, padding=0.2)
    world.add("c", BALL, env=1, padding=0.3)
    assert world.mesh_ids[0, 0] == world.mesh_ids[0, 1]
    expected = torch.tensor([[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]], device=device)
    torch.testing.assert_close(world.padding, expected)
    world.remove("a")
    assert world.padding[0].tolist() == pytest.approx([0.2, 0.0, 0.0])
    world.grow(3, 4)
    assert world.padding[:, 0].tolist() == pytest.approx([0.2, 0.3, 0.0])
    world.add("b", BOX, replace=True)
    assert world.padding[0, 0].item() == 0.0
    world.add("d", BOX, padding=0.4)
    world.load({"e": BOX, "f": BALL})
    assert (world.padding[0] == 0.0).all()
    world.clear()
    assert (world.padding == 0.0).all()


def test_tables_that_a_world_has_outgrown_keep_their_padding(device: torch.device) -> None:
    spheres = some_paths(device)
    world = inflated(device, PADDING)
    call = Call("rest", spheres, world)
    before = call().clone()
    world.grow(2, 64)
    world.load({})
    torch.testing.assert_close(call(), before, rtol=1e-5, atol=1e-6)
    assert (before > 0.0).any()


@pytest.mark.parametrize("kind", ["rest", "swept"])
def test_some_envs_of_the_tables_of_a_world_have_their_padding(
    kind: str, device: torch.device
) -> None:
    world = MeshWorld(3, 2, device)
    for env, padding in enumerate((0.1, 0.2, 0.3)):
        world.add("ball", BALL, (-2.0, 0, 0, 1, 0, 0, 0), env)
        world.add("padded", BALL, env=env, padding=padding)
    spheres = torch.tensor([[[[0.0, 0.0, 0.25, 0.01]]]], device=device)
    for env in range(3):
        tables = ("mesh_ids", "mesh_from_world", "enabled", "n_meshes")
        names = ("mesh_idx", "mesh_pose_inverse", "mesh_enable", "n_env_mesh")
        rows = {n: getattr(world, t)[env:] for n, t in zip(names, tables, strict=True)}
        index = torch.tensor([env], device=device)
        expected = sphere_cost(spheres, world, env_index=index)
        assert expected.item() > 0.0
        torch.testing.assert_close(Call(kind, spheres, world, rows)(), expected)
        as_u64 = {**rows, "mesh_idx": rows["mesh_idx"].view(torch.uint64)}
        torch.testing.assert_close(Call(kind, spheres, world, as_u64)(), expected)
        copied = {**rows, "mesh_idx": rows["mesh_idx"].clone()}
        with pytest.raises(
            ValueError, match="mesh_idx must be the mesh_ids of the world, or a view"
        ):
            Call(kind, spheres, world, copied)()
    plain = MeshWorld(1, 2, device)
    plain.add("ball", BALL)
    found = Call(kind, spheres, plain, {"mesh_idx": plain.mesh_ids.clone()})()
    torch.testing.assert_close(found, sphere_cost(spheres, plain))


def test_a_known_copy_of_ids_raises_once_there_is_a_padding() -> None:
    """On the CPU at once, also where the tensor is written; on a GPU where ids are first read."""
    spheres = torch.tensor([[[[0.0, 0.0, 0.25, 0.01]]]])
    world = MeshWorld(1, 2, "cpu")
    world.add("ball", BALL)
    world.padding[0, 1] = 0.1  # of an empty slot
    call = Call("rest", spheres, world, {"mesh_idx": world.mesh_ids.clone()})
    assert call().item() == 0.0
    world.padding[0, 0] = 0.1
    assert sphere_cost(spheres, world).item() > 0.0
    for _ in range(2):
        with pytest.raises(ValueError, match="mesh_idx must be the mesh_ids of the world"):
            call()
    world.padding.zero_()
    assert call().item() == 0.0
    world.add("other", BALL, padding=0.1)
    with pytest.raises(ValueError, match="mesh_idx must be the mesh_ids of the world"):
        call()


def test_writes_to_the_padding_are_noticed(device: torch.device) -> None:
    world = MeshWorld(max_obstacles=40, device=device)
    for index in range(30):
        world.add(f"{index}", BALL, (float(index), 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    sphere = torch.tensor([[[[7.0, 2.0, 0.0, 0.1]]]], device=device)
    assert sphere_cost(sphere, world).item() == 0.0
    world.padding[0, 7] = 2.0
    assert sphere_cost(sphere, world).item() > 0.0


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("past_torch", [False, True])
def test_what_is_written_to_the_tensor_counts_at_once(count: int, past_torch: bool) -> None:
    """On the CPU also past torch, with boxes of few obstacles and with a tree over many."""
    world = MeshWorld(max_obstacles=40, device="cpu")
    for index in range(count):
        world.add(str(index), BALL, (2.0 * index, 0, 0, 1, 0, 0, 0))
    sphere = torch.tensor([[[[0.0, 1.0, 0.0, 0.05]]]])
    assert sphere_cost(sphere, world).item() == 0.0
    if past_torch:
        world.padding.numpy()[0, 0] = 1.0
    else:
        world.padding[0, 0] = 1.0
    found = signed_distance(sphere[..., :3], world).distance.item()
    assert found < 0.0
    expected = 0.05 + ETA - found - 0.5 * ETA
    cost = sphere_cost(sphere, world, activation_distance=ETA).item()
    assert cost == pytest.approx(expected, abs=1e-6)
    assert in_collision(sphere, world).item()


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("padding", [np.nan, np.inf, -np.inf])
def test_padding_that_is_not_finite_is_not_free(
    body: str, padding: float, device: torch.device
) -> None:
    """Near and far, at rest and on the way, with obstacles that move too."""
    world = MeshWorld(device=device)
    world.add("body", BODIES[body])
    spheres = torch.tensor([[[[0.0, 0, 0, 0.1]], [[9.0, 0, 0, 0.1]]]], device=device)
    world.padding[0, 0] = padding
    pose = torch.tensor([0.0, 0, 0, 1, 0, 0, 0], device=device)
    for poses in (None, pose.expand(1, 7), pose.expand(2, 1, 7)):
        for query in (sphere_cost, swept_sphere_cost):
            cost = query(spheres, world, poses=poses)
            assert (cost.isnan() | (cost > 1e30)).all()
        for check in (in_collision, any_in_collision, swept_in_collision):
            assert check(spheres, world, poses=poses).all()
        for limit in (None, 0.1):
            assert not (clearance(spheres, world, max_distance=limit).clearance > 0.0).any()
        assert not (signed_distance(spheres[..., :3], world, poses=poses).distance > 0.0).any()
    for kind in ("rest", "swept"):
        cost = Call(kind, spheres, world)()
        assert (cost.isnan() | (cost > 1e30)).all()
    panda = load_panda()
    joints = torch.zeros((1, 2, 7), device=device)
    joints[..., 3] = -1.0
    options = {"self_collision": False}
    assert configuration_in_collision(joints, panda, world, **options).all()
    assert joint_path_in_collision(joints, panda, world, **options).all()
    assert not (joint_path_clearance(joints, panda, world, **options).lower > 0.0).any()


def test_transforms_of_torch(device: torch.device) -> None:
    world = inflated(device, PADDING)
    spheres = some_paths(device)
    expected = sphere_cost(spheres, world, activation_distance=ETA)
    mapped = torch.func.vmap(lambda row: sphere_cost(row[None], world, activation_distance=ETA)[0])(
        spheres
    )
    assert torch.equal(mapped, expected)
    poses = torch.stack([world.pose(i) for i in range(3)])
    options = {"activation_distance": ETA, "tolerance": 1e-6}
    by_pose = torch.func.vmap(lambda p: swept_sphere_cost(spheres, world, poses=p, **options))(
        torch.stack((poses, poses))
    )
    swept = swept_sphere_cost(spheres, world, **options)
    # Poses that are given round otherwise, and where the sign of an open mesh jumps costs do too.
    is_close = torch.isclose(by_pose[1], swept, rtol=1e-4, atol=1e-5)
    world.enable("open", False)
    closed = swept_sphere_cost(spheres, world, **options)
    world.enable("open", True)
    assert (is_close | (swept > closed)).all()
    assert (~is_close).sum() <= 1
    leaf = poses.clone().requires_grad_(True)
    sphere_cost(spheres, world, activation_distance=ETA, poses=leaf).sum().backward()
    assert leaf.grad is not None
    step = torch.zeros_like(poses)
    step[1, 0] = 1e-3
    costs = [
        sphere_cost(spheres, world, activation_distance=ETA, poses=poses + s).double().sum()
        for s in (step, -step)
    ]
    slope = (costs[0] - costs[1]).item() / 2e-3
    assert leaf.grad[1, 0].item() == pytest.approx(slope, rel=0.05)


@pytest.mark.parametrize(
    ("padding", "error", "message"),
    [
        (-0.1, ValueError, "padding of 'a' must not be negative, and below 1e9, got -0.1"),
        (np.nan, ValueError, "padding of 'a' must not be negative, and below 1e9, got nan"),
        (np.inf, ValueError, "padding of 'a' .* got inf"),
        ("1", TypeError, "padding of 'a' must be a number, got str"),
        (True, TypeError, "padding of 'a' must be a number, got bool"),
    ],
)
def test_bad_padding(
    padding: Any, error: type[Exception], message: str, device: torch.device
) -> None:
    world = MeshWorld(device=device)
    with pytest.raises(error, match=message):
        world.add("a", BOX, padding=padding)
    assert world.names() == []


def test_load_pads_what_has_a_padding_of_its_own_in_addition(device: torch.device) -> None:
    world, expected = MeshWorld(device=device), MeshWorld(device=device)
    world.load({"ball": (BALL, SHIFT), "box": Obstacle(BOX, TILT, padding=0.02)}, padding=PADDING)
    expected.add("ball", BALL, SHIFT, padding=PADDING)
    expected.add("box", BOX, TILT, padding=PADDING + 0.02)
    torch.testing.assert_close(world.padding, expected.padding, rtol=0, atol=1e-7)
    spheres = some_paths(device)
    found = clearance(spheres, world).clearance
    torch.testing.assert_close(found, clearance(spheres, expected).clearance)
    with pytest.raises(ValueError, match=r"padding must not be .* below 1e9, got -0\.1"):
        world.load({"ball": BALL}, padding=-0.1)
    assert world.names() == ["ball", "box"]
