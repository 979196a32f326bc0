"""A world of many meshes gives what its meshes give one by one, however it came about."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

import compare
import reference
import shapes
from cases import mostly_slow
from primitives import KINDS, Call
from reference import Obstacle
from warp_collision import (
    Cuboid,
    MeshWorld,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)

COUNT = 40
ETA = 0.05


def obstacles(seed: int = 81) -> list[Obstacle]:
    """Boxes, balls and an open piece, scattered over some metres."""
    rng = np.random.default_rng(seed)
    names = ("box", "icosphere", "box", "box", "countertop")
    return [
        shapes.mesh(names[i % 5])._replace(pose=shapes.random_pose(rng, 1.0)) for i in range(COUNT)
    ]


def spheres() -> reference.Array:
    """Spheres (1, 3, 24, 4) among the meshes, moving."""
    rng = np.random.default_rng(82)
    centers = rng.uniform(-1.3, 1.3, size=(1, 1, 24, 3)) + rng.uniform(-0.1, 0.1, (1, 3, 24, 3))
    return shapes.spheres_at(rng, centers.reshape(-1, 3), (1, 3, 24))


def assert_sums(world: MeshWorld, scene: list[Obstacle], env: int = 0) -> None:
    """Costs and distances of an env are those of the reference."""
    given = spheres()
    on_device = compare.to_device(given, world.device)
    row = torch.tensor([env], dtype=torch.int32, device=world.device)
    cost = sphere_cost(on_device, world, activation_distance=ETA, env_index=row)
    expected = reference.sphere_cost(given, [scene], activation_distance=ETA)
    compare.assert_costs(cost, expected)
    assert (expected > 0.0).any()
    swept = swept_sphere_cost(
        on_device, world, activation_distance=ETA, env_index=row, tolerance=1e-4
    )
    assert (swept >= cost - 1e-5).all()
    still = on_device[:, :1].expand(1, 3, 24, 4)
    at_rest = swept_sphere_cost(still, world, activation_distance=ETA, env_index=row)
    compare.assert_costs(at_rest[:, 1], expected[:, 0])
    found = signed_distance(on_device[..., :3], world, env_index=row)
    points = given[..., :3].reshape(-1, 3)
    nearest = reference.scene_signed_distance(points, scene)
    compare.assert_costs(found.distance.reshape(-1), nearest.distance)


def filled(scene: list[Obstacle], device: torch.device) -> MeshWorld:
    """Two envs: the scene, and the same in the opposite order."""
    return compare.build_world([scene, scene[::-1]], device, max_obstacles=COUNT)


def set_one_pose(world: MeshWorld, scene: list[Obstacle]) -> None:
    """One mesh moves among the spheres."""
    world.set_pose(0, scene[3].pose)
    scene[0] = scene[0]._replace(pose=scene[3].pose)


def set_all_poses(world: MeshWorld, scene: list[Obstacle]) -> None:
    """All meshes move."""
    poses = [obstacle.pose for obstacle in obstacles(83)]
    world.set_poses(compare.to_device(np.array(poses), world.device))
    scene[:] = [o._replace(pose=pose) for o, pose in zip(scene, poses, strict=True)]


def write_poses(world: MeshWorld, scene: list[Obstacle]) -> None:
    """The caller writes the table."""
    world.mesh_from_world[0] = world.mesh_from_world[0].flip(0)
    poses = [obstacle.pose for obstacle in scene[::-1]]
    scene[:] = [o._replace(pose=pose) for o, pose in zip(scene, poses, strict=True)]


def switch(world: MeshWorld, scene: list[Obstacle]) -> None:
    """Every other mesh is switched off."""
    mask = torch.arange(COUNT, device=world.device) % 2
    world.set_enabled(mask)
    scene[:] = [o._replace(enabled=bool(i % 2)) for i, o in enumerate(scene)]


def remove(world: MeshWorld, scene: list[Obstacle]) -> None:
    """Meshes at the begin, in the middle and at the end go."""
    for index in (COUNT - 1, 17, 16, 0):
        world.remove(index)
        del scene[index]


def replace(world: MeshWorld, scene: list[Obstacle]) -> None:
    """A small mesh becomes one that reaches everywhere."""
    large = shapes.box((2.5, 0.1, 2.5))
    world.add("mesh_5", (large.vertices, large.faces), replace=True)
    scene[5] = large


def load(world: MeshWorld, scene: list[Obstacle]) -> None:
    """The env holds something else."""
    scene[:] = obstacles(84)[:30]
    world.load({str(i): ((o.vertices, o.faces), o.pose) for i, o in enumerate(scene)})


def grow(world: MeshWorld, scene: list[Obstacle]) -> None:
    """More slots, of which one is used at once."""
    world.grow(n_envs=3, max_obstacles=COUNT + 5)
    large = shapes.box((2.5, 0.1, 2.5))
    world.add("large", (large.vertices, large.faces))
    scene.append(large)


def few(world: MeshWorld, scene: list[Obstacle]) -> None:
    """Of all, three are left."""
    while len(scene) > 3:
        world.remove(1)
        del scene[1]


CHANGES = (
    set_one_pose,
    set_all_poses,
    write_poses,
    switch,
    remove,
    replace,
    load,
    grow,
    few,
)


@pytest.mark.parametrize("change", mostly_slow(CHANGES, CHANGES[::3]), ids=lambda f: f.__name__)
def test_after_each_change(
    change: Callable[[MeshWorld, list[Obstacle]], None], device: torch.device
) -> None:
    scene = obstacles()
    world = filled(scene, device)
    other = scene[::-1]
    assert_sums(world, scene)
    change(world, scene)
    assert_sums(world, scene)
    assert_sums(world, other, env=1)


@pytest.mark.parametrize("count", mostly_slow((8, 9, 31, 32, 33), (8, 32)))
def test_few_of_many_slots(count: int, device: torch.device) -> None:
    """Around the sizes of blocks, and where the tree begins to pay; each env has its own."""
    scene = obstacles()[:count]
    scenes = [obstacles(86), scene, obstacles(87)[:5]]
    world = compare.build_world(scenes, device, max_obstacles=COUNT)
    assert_sums(world, scene, env=1)
    assert_sums(world, scenes[2], env=2)
    change_poses(world, scenes[0])
    assert_sums(world, scene, env=1)
    world.load({str(i): ((o.vertices, o.faces), o.pose) for i, o in enumerate(scene[::-1])}, 2)
    assert_sums(world, scene, env=2)


def test_after_all_changes(device: torch.device) -> None:
    scene = obstacles()
    world = filled(scene, device)
    other = scene[::-1]
    for change in CHANGES:
        if change is load:  # as many as at the beginning
            continue
        scene = obstacles()
        world.load({f"mesh_{i}": ((o.vertices, o.faces), o.pose) for i, o in enumerate(scene)})
        change(world, scene)
        change_poses(world, scene)
        assert_sums(world, scene)
        assert_sums(world, other, env=1)


def change_poses(world: MeshWorld, scene: list[Obstacle]) -> None:
    """All that is there moves by half a metre."""
    poses = np.array([obstacle.pose for obstacle in scene])
    poses[:, 0] += 0.5
    poses = shapes.rounded(poses)
    world.set_poses(compare.to_device(poses, world.device))
    scene[:] = [o._replace(pose=pose) for o, pose in zip(scene, poses, strict=True)]


def test_poses_operand(device: torch.device) -> None:
    """Poses given for one call hold for that call, and only for it."""
    scene = obstacles()
    world = filled(scene, device)
    moved = [o._replace(pose=p.pose) for o, p in zip(scene, obstacles(85), strict=True)]
    poses = torch.zeros((2, COUNT, 7), device=device)
    poses[..., 3] = 1.0
    poses[0] = compare.to_device(np.array([o.pose for o in moved]), device)
    given = spheres()
    on_device = compare.to_device(given, device)
    for expected, options in ((scene, {}), (moved, {"poses": poses}), (scene, {})):
        cost = sphere_cost(on_device, world, activation_distance=ETA, **options)
        compare.assert_costs(
            cost, reference.sphere_cost(given, [expected], activation_distance=ETA)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_callers_tables(kind: str, device: torch.device) -> None:
    """The ids of a world with a mask, a count or poses of the caller."""
    scene = obstacles()
    world = filled(scene, device)
    given = compare.to_device(spheres()[:, :1], device)

    def assert_cost(expected: list[Obstacle], **changes: Any) -> None:
        cost = Call(kind, given, world, changes)()
        sums = reference.sphere_cost(spheres()[:, :1], [expected], activation_distance=0.02)
        compare.assert_costs(cost, sums)
        assert (sums > 0.0).any()

    assert_cost(scene)
    count = torch.tensor([15, 0], dtype=torch.int32, device=device)
    assert_cost(scene[:15], n_env_mesh=count)
    mask = (torch.arange(COUNT, device=device) % 3 == 0).to(torch.uint8).expand(2, COUNT)
    assert_cost(scene[::3], mesh_enable=mask.contiguous())
    moved = [o._replace(pose=p.pose) for o, p in zip(scene[::-1], scene, strict=True)][::-1]
    rows = world.mesh_from_world.flip(1).contiguous()
    assert_cost(moved, mesh_pose_inverse=rows)
    assert_cost(scene)


@pytest.mark.parametrize("kind", KINDS)
def test_own_meshes_in_the_table_of_a_world(kind: str, device: torch.device) -> None:
    """A large mesh of the caller in the slot of a small one is found everywhere."""
    scene = obstacles()
    world = filled(scene, device)
    given = compare.to_device(spheres()[:, :1], device)
    call = Call(kind, given, world)
    call()
    large = shapes.box((2.5, 0.1, 2.5))
    own = wp.Mesh(
        wp.array(large.vertices, dtype=wp.vec3, device=str(device)),
        wp.array(large.faces.ravel(), dtype=wp.int32, device=str(device)),
        support_winding_number=True,
    )
    world.mesh_ids[0, 5] = own.id
    scene[5] = large._replace(pose=scene[5].pose)
    compare.assert_costs(
        call(), reference.sphere_cost(spheres()[:, :1], [scene], activation_distance=0.02)
    )


@pytest.mark.parametrize("pose", [(np.nan, 0, 0, 1, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0)])
def test_one_mesh_that_is_nowhere(pose: tuple[float, ...], device: torch.device) -> None:
    """It may be anywhere, so no sphere is free of it; nor is one in an env that is not there."""
    scene = obstacles()
    world = filled(scene, device)
    far = compare.to_device(spheres() + 50.0, device)
    assert (sphere_cost(far, world) == 0.0).all()
    world.mesh_from_world[0, 7] = torch.tensor((*pose, 0.0), device=device)
    for function in (sphere_cost, swept_sphere_cost):
        assert function(far, world).isnan().all()
    assert clearance(far, world).clearance.isnan().all()
    world.enable(7, False)
    assert (sphere_cost(far, world) == 0.0).all()
    world.enable(7)
    world.set_pose(7, scene[7].pose)
    assert_sums(world, scene)
    for env in (-1, 2):
        row = torch.tensor([env], dtype=torch.int32, device=device)
        for function in (sphere_cost, swept_sphere_cost):
            assert function(far, world, env_index=row).isnan().all()


def through_data(rows: torch.Tensor, env: int, slot: int, x: float) -> None:
    """Torch sees no write of what `data` gives."""
    rows.data[env, slot, 0] = x


def through_numpy(rows: torch.Tensor, env: int, slot: int, x: float) -> None:
    rows.numpy()[env, slot, 0] = x


def through_warp(rows: torch.Tensor, env: int, slot: int, x: float) -> None:
    wp.from_torch(rows).numpy()[env, slot, 0] = x


@pytest.mark.parametrize("write", [through_data, through_numpy, through_warp])
@pytest.mark.parametrize("count", [1, 11, 12, 13, 30])
def test_poses_that_are_written_past_torch(
    write: Callable[[torch.Tensor, int, int, float], None], count: int
) -> None:
    """On the CPU they are noticed; a CUDA device would have to be waited for."""
    box = shapes.box((0.2, 0.2, 0.2))
    scene = [box._replace(pose=(0.0, 2.0 * i, 0.0, 1.0, 0.0, 0.0, 0.0)) for i in range(count)]
    world = compare.build_world([scene, scene], torch.device("cpu"), max_obstacles=count + 2)
    sphere = torch.tensor([7.0, 0.0, 0.0, 0.05]).expand(1, 2, 1, 4).contiguous()
    row = torch.tensor([1], dtype=torch.int32)
    for _ in range(2):
        for x, is_hit in ((0.0, False), (-7.0, True), (-3.0, False)):
            write(world.mesh_from_world, 1, 0, x)
            for cost in (sphere_cost, swept_sphere_cost):
                assert (cost(sphere, world, env_index=row) > 0.0).all() == is_hit
            assert in_collision(sphere, world, env_index=row).all() == is_hit
            for kind in KINDS:
                assert (Call(kind, sphere, world)(env_query_idx=row) > 0.0).all() == is_hit


@pytest.mark.parametrize("count", [2, 30])
def test_tables_that_move_in_memory(count: int) -> None:
    """Torch moves what it shares with other processes, as it does what goes through its queues."""
    box = shapes.box((0.4, 0.9, 0.9))
    scene = [box._replace(pose=(0.5 * i - 0.6, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)) for i in range(count)]
    world = compare.build_world([scene], torch.device("cpu"), max_obstacles=count)
    given = compare.to_device(spheres(), world.device)
    before = [cost(given, world) for cost in (sphere_cost, swept_sphere_cost)]
    assert all((cost > 0.0).any() for cost in before)
    for table in (world.mesh_ids, world.mesh_from_world, world.enabled, world.n_meshes):
        place = table.data_ptr()
        table.share_memory_()
        assert table.data_ptr() != place
        for cost, expected in zip((sphere_cost, swept_sphere_cost), before, strict=True):
            assert torch.equal(cost(given, world), expected)
        for kind in KINDS:
            Call(kind, given, world)()
    world.set_pose(0, (30.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    moved = [scene[0]._replace(pose=(30.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)), *scene[1:]]
    compare.assert_costs(sphere_cost(given, world), reference.sphere_cost(spheres(), [moved]))


def test_an_obstacle_that_is_everywhere_leaves_the_tree_good(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warp's builder for GPUs puts together what has its center in one of 1024^3 cells.

    The cells are those of the box around all centers; it does not run on the simulated GPU.
    """
    count, build, given = 300, wp.Bvh, []

    def keeping(lower: wp.array, upper: wp.array, groups: wp.array) -> wp.Bvh:
        given.extend(wp.to_torch(each).cpu().double() for each in (lower, upper))
        return build(lower, upper, groups=groups)

    world = MeshWorld(max_obstacles=2 * count, device=device)
    centers = np.random.default_rng(83).uniform(1.0, 5.0, (count, 3))
    box = Cuboid((0.1, 0.1, 0.1))
    world.add_many({f"box {i}": (box, (*c, 1, 0, 0, 0)) for i, c in enumerate(centers)})
    poses = world.poses()
    poses[7] = torch.nan
    world.set_poses(poses)
    monkeypatch.setattr(wp, "Bvh", keeping)
    point = torch.tensor([[[[*centers[0], 0.01]]]], dtype=torch.float32, device=device)
    assert sphere_cost(point, world).isnan().all()
    lower, upper = (each[:count] for each in given)
    size = upper.amax(0) - lower.amin(0)
    assert (size < 2.1 * np.ptp(centers, axis=0).max()).all()
    cells = ((0.5 * (lower + upper) - lower.amin(0)) / size * 1024).int()
    assert len(cells.unique(dim=0)) > 0.99 * count
    poses[7] = poses[8]
    world.set_poses(poses)
    assert sphere_cost(point, world).isfinite().all()
