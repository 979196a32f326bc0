"""Queries of spheres in lanes have the bits of the scalar kernels, on all they may be asked."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

from exact_scenes import build, library_shape, random_scene
from exact_shapes import half_space
from lane_scenes import WITHOUT_FORMULA, fill, random_pose
from warp_collision import Capsule, Cone, Cuboid, Cylinder, MeshWorld, Sphere
from warp_collision.devices import CPU
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.swept_cost import swept_vjp
from warp_collision.launching.launch import launch
from warp_collision.queries.query import Query
from warp_collision.queries.sphere_queries import (
    ANY_IN_COLLISION,
    IN_COLLISION,
    SPHERE_COST,
    SWEPT_COST,
    launched_swept_vjp,
)
from warp_collision.world.scene import Scene

Tensor = torch.Tensor


def asked(
    eta: float,
    *,
    weight: float = 0.7,
    tolerance: float = 0.001,
    dt: float | None = None,
    min_speed: float | None = None,
) -> dict[Query, tuple[Tensor | None, ...]]:
    """What is asked of all queries in lanes."""
    numbers = weight, eta, tolerance, dt, min_speed
    parameters = tuple(None if x is None else torch.tensor([x]) for x in numbers)
    return {
        SPHERE_COST: parameters[:2],
        SWEPT_COST: parameters,
        IN_COLLISION: (),
        ANY_IN_COLLISION: (),
    }


def outputs(
    query: Query,
    spheres: Tensor,
    scene: Scene,
    env_index: Tensor | None,
    parameters: tuple[Tensor | None, ...],
    with_gradients: bool = True,
) -> list[Tensor]:
    """Answers, gradients and flags."""
    flags = torch.full(spheres.shape[:-1], 7, dtype=torch.uint8) if query.has_flags else None
    found = query.run(spheres, scene, env_index, parameters, with_gradients, flags=flags)
    return [part for part in (*found, flags) if part is not None]


def bits_of(values: Tensor) -> bytes:
    """All bits, with one NaN for all."""
    if values.is_floating_point():
        values = values.masked_fill(values.isnan(), torch.nan)
    return values.numpy().tobytes()


def assert_same(
    spheres: Tensor,
    scene: Scene,
    env_index: Tensor | None = None,
    eta: float = 0.02,
    **options: float,
) -> list[Tensor]:
    """Compares bits, signs of zeros too, but not those of NaN; returns what `SPHERE_COST` finds."""
    for query, parameters in asked(eta, **options).items():
        for with_gradients in (True, False):
            operands = query, spheres, scene, env_index, parameters, with_gradients
            found = outputs(*operands)
            with patch.object(query, "in_lanes", None):
                expected = outputs(*operands)
            for one, other in zip(found, expected, strict=True):
                assert bits_of(one) == bits_of(other), query.name
    return outputs(SPHERE_COST, spheres, scene, env_index, asked(eta)[SPHERE_COST])


def random_spheres(rng: np.random.Generator, shape: tuple[int, ...], reach: float = 1.0) -> Tensor:
    """One in nine is disabled."""
    spheres = np.concatenate(
        (rng.uniform(-reach, reach, (*shape, 3)), rng.uniform(0.005, 0.1, (*shape, 1))), axis=-1
    )
    spheres[..., 3] = np.where(rng.random(shape) < 1 / 9, -1.0, spheres[..., 3])
    return torch.from_numpy(spheres).float()


def scene_of(world: MeshWorld) -> Scene:
    return world._storage.scene


@pytest.mark.parametrize("eta", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("count", [1, 4, 32, 40])
def test_exact_shapes(count: int, eta: float) -> None:
    rng = np.random.default_rng(1000 * count + int(100 * eta))
    bodies = random_scene(rng, count, padding=0.03)
    world = build([bodies], CPU, room=41)
    normal = rng.normal(size=3)
    floor = half_space(*(normal / np.linalg.norm(normal)), -0.8)
    if count != 32:
        world.add("floor", library_shape(floor))
    if count > 1:
        world.enable("shape_1", False)
    # Recognised as a cuboid that is turned in the frame of its mesh.
    if count == 4:
        turned = trimesh.creation.box(
            (0.3, 0.2, 0.4), trimesh.transformations.random_rotation_matrix()
        )
        world.add("turned", turned, random_pose(rng, 0.5))
    cost, gradient, flags = assert_same(random_spheres(rng, (3, 20, 50)), scene_of(world), eta=eta)
    assert 0.02 < (cost > 0.0).float().mean() < 0.98
    assert gradient.isfinite().all()
    assert torch.equal(flags != 0, cost != 0.0)


@pytest.mark.parametrize("count", range(1, 18))
def test_few_spheres(count: int) -> None:
    rng = np.random.default_rng(count)
    world = build([random_scene(rng, 8)], CPU, room=8)
    spheres = random_spheres(rng, (1, 3, count), 0.4)
    spheres[0, 0, 0, 3] = 0.1
    cost, *_ = assert_same(spheres, scene_of(world), eta=1.0)
    assert (cost > 0.0).any()


def test_where_closest_points_are_not_unique() -> None:
    """Centers, axes, faces, edges and corners of shapes, of which each stands at the origin."""
    axis = np.array([-0.25, -0.125, -0.0, 0.0, 0.125, 0.25])
    centers = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    spheres = torch.from_numpy(np.insert(centers, 3, 0.0625, axis=1)).float()[None, None]
    for shape in (Cuboid((0.5, 0.25, 0.25)), Sphere(0.125), Cylinder(0.125, 0.5)):
        world = MeshWorld(device=CPU)
        world.add("shape", shape)
        cost, *_ = assert_same(spheres.contiguous(), scene_of(world), eta=0.125)
        assert 0.1 < (cost > 0.0).float().mean()


def random_walks(rng: np.random.Generator, shape: tuple[int, ...], step: float) -> Tensor:
    """Spheres that go a step [m] from waypoint to waypoint, some of which rest or are disabled."""
    spheres = random_spheres(rng, shape)
    steps = torch.from_numpy(rng.normal(size=(*shape, 3)) * step / 3**0.5).float()
    steps[torch.from_numpy(rng.random(shape) < 0.1)] = 0.0
    spheres[..., :3] = spheres[:, :1, :, :3] + steps.cumsum(dim=1)
    return spheres


@pytest.mark.parametrize("step", [0.0, 1e-7, 0.001, 0.02, 0.2, 0.5])
def test_motions(step: float) -> None:
    rng = np.random.default_rng(int(1000 * step))
    world = build([random_scene(rng, 20, padding=0.03)], CPU, room=21)
    world.add("other", WITHOUT_FORMULA["mesh"](rng), random_pose(rng, 0.2))
    spheres = random_walks(rng, (3, 12, 19), step)
    cost, *_ = assert_same(spheres, scene_of(world))
    assert 0.02 < (cost > 0.0).float().mean() < 0.98
    for eta, tolerance in ((0.0, 1e-4), (0.02, np.inf), (0.3, np.nan), (0.02, 0.05)):
        assert_same(spheres, scene_of(world), eta=eta, tolerance=tolerance)


@pytest.mark.parametrize("turned", [False, True])
def test_motions_through_places_of_symmetry(turned: bool) -> None:
    """Centers, axes, edges, faces, and motions along them: distances are equal, slopes are 0."""
    rng = np.random.default_rng(26)
    places = rng.integers(-3, 4, (1, 200, 40, 3)) / 8.0
    spheres = torch.from_numpy(np.insert(places, 3, 0.0625, axis=-1)).float()
    pose = (0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5) if turned else (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    for shape in (
        Cuboid((0.5, 0.25, 0.25)),
        Sphere(0.125),
        Capsule(0.125, 0.25),
        Cylinder(0.125, 0.5),
        Cone(0.25, 0.5),
    ):
        world = MeshWorld(device=CPU)
        world.add("shape", shape, pose)
        cost, *_ = assert_same(spheres, scene_of(world), eta=0.125)
        assert 0.02 < (cost > 0.0).float().mean()


@pytest.mark.parametrize("weight", [2.0, 0.0, -1.0, 1e-12, 1e20, np.inf, np.nan])
def test_speeds(weight: float) -> None:
    """Times and speeds that make NaN or zeros of either sign of a cost of 0."""
    rng = np.random.default_rng(25)
    world = build([random_scene(rng, 6)], CPU, room=6)
    spheres = random_walks(rng, (2, 5, 13), 0.05)
    spheres[1, 3, 4] = torch.tensor([np.nan, 0.0, np.inf, -1.0])  # disabled
    for dt in (None, 0.1, 1e-30, 1e30, 0.0, -1.0, np.nan):
        for min_speed in (None, 0.05, 1e-38, 0.0, np.nan):
            scale = {"weight": weight, "dt": dt, "min_speed": min_speed}
            assert_same(spheres, scene_of(world), **scale)


@pytest.mark.parametrize("n_spheres", [*range(1, 18), 59])
@pytest.mark.parametrize("in_place", [False, True])
def test_gathered_gradients(n_spheres: int, in_place: bool) -> None:
    """Most of them are zeros; where a factor is not finite they are NaN."""
    rng = np.random.default_rng(n_spheres)
    shape = (2, 9, n_spheres)
    gradient, neighbours = (
        torch.from_numpy(rng.normal(size=(*shape, *inner)) * (rng.random((*shape, *ones)) < rate))
        .float()
        .contiguous()
        for inner, ones, rate in (((4,), (1,), 0.05), ((2, 3), (1, 1), 0.05))
    )
    gradient[0, 1], neighbours[0, 1, 0, 0, 0] = 0.0, torch.nan
    upstream = torch.from_numpy(rng.normal(size=shape)).float()
    upstream[1, 3, 0], upstream[1, 6, -1] = torch.inf, torch.nan
    for factors in (None, upstream):
        expected = torch.empty_like(gradient)
        operands = factors, gradient.clone(), neighbours
        launch(swept_vjp, shape, *operands, expected, device=CPU)
        total = operands[1] if in_place else torch.full_like(gradient, 7.0)
        found = launched_swept_vjp(*operands, total)
        assert bits_of(found) == bits_of(expected)
    assert (expected == 0.0).any()


@pytest.mark.parametrize("kind", WITHOUT_FORMULA)
def test_beside_what_has_no_formula(kind: str) -> None:
    rng = np.random.default_rng(20)
    world = build([random_scene(rng, 5)], CPU, room=8)
    world.add("other", WITHOUT_FORMULA[kind](rng), random_pose(rng, 0.2))
    cost, *_ = assert_same(random_spheres(rng, (2, 4, 50), 0.6), scene_of(world))
    assert 0.02 < (cost > 0.0).float().mean() < 0.98


def test_what_is_not_valid() -> None:
    rng = np.random.default_rng(21)
    world = build([random_scene(rng, 6)], CPU, room=8)
    spheres = random_spheres(rng, (1, 1, 600))
    values = torch.tensor([np.nan, np.inf, -np.inf, 3e38, 1e9, -1e9, 1e5, -0.0, 1e-42])
    for row in range(0, 600, 3):  # so that others in the same lanes are valid
        spheres[0, 0, row, rng.integers(4)] = values[rng.integers(len(values))]
    cost, *_ = assert_same(spheres, scene_of(world))
    assert cost.isnan().any()
    assert (cost > 0.0).any()
    assert (cost == 0.0).any()
    for eta in (np.nan, np.inf, -1.0):
        assert assert_same(spheres, scene_of(world), eta=eta)[0].isnan().any()
    world.mesh_from_world[0, 2, 4] = np.nan
    world.padding[0, 1] = np.nan
    assert_same(random_spheres(rng, (1, 1, 300)), scene_of(world))


@pytest.mark.parametrize("far", [100.0, 990.0, 1010.0, 1e4, 1e6, 1e9])
def test_far_from_the_origin(far: float) -> None:
    rng = np.random.default_rng(int(far))
    world = MeshWorld(device=CPU)
    middle = far * np.array([0.6, -0.5, 0.62])
    fill(world, rng, 8, middle)
    spheres = random_spheres(rng, (1, 4, 200))
    spheres[..., :3] += torch.from_numpy(middle).float()
    assert_same(spheres, scene_of(world))


@pytest.mark.parametrize("n_spheres", [1, 5, 8, 13])
def test_envs_within_lanes(n_spheres: int) -> None:
    """One of the rows asks for an env that there is not."""
    rng = np.random.default_rng(n_spheres)
    world = build([random_scene(rng, count) for count in (3, 0, 7)], CPU, room=8)
    env_index = torch.tensor([0, 2, 2, 1, 5, 0, -1, 2] * 4, dtype=torch.int32)
    spheres = random_spheres(rng, (len(env_index), 3, n_spheres))
    cost, *_ = assert_same(spheres, scene_of(world), env_index)
    assert cost[4].isnan().any()
    assert (cost[env_index == 2] > 0.0).any()


@pytest.mark.parametrize("n_spheres", [1, 2, 3, 5, 7, 9])
def test_rows_shorter_than_lanes(n_spheres: int) -> None:
    """The first and the last sphere of a block may have one env, and some between them another."""
    rng = np.random.default_rng(n_spheres)
    world = build([random_scene(rng, count) for count in (7, 0, 3)], CPU, room=8)
    env_index = torch.from_numpy(rng.integers(0, 3, 500).astype(np.int32))
    cost, *_ = assert_same(random_spheres(rng, (500, 1, n_spheres)), scene_of(world), env_index)
    assert (cost[env_index == 1] == 0.0).all()
    assert (cost[env_index == 0] > 0.0).any()


def test_spheres_that_obstacles_ignore() -> None:
    rng = np.random.default_rng(22)
    world = build([random_scene(rng, 6)], CPU, room=6)
    ignored = torch.from_numpy(rng.random((1, 6, 13)) < 0.4).to(torch.uint8)
    scene = scene_of(world)
    some = Scene(scene.tables.ignoring(ignored), scene.source)
    spheres = random_spheres(rng, (4, 5, 13))
    cost, *_ = assert_same(spheres, some)
    assert not torch.equal(cost, assert_same(spheres, scene)[0])


def test_without_a_tree() -> None:
    """As of tables that have none; then nothing is known of boxes."""
    rng = np.random.default_rng(23)
    world = build([random_scene(rng, 6)], CPU, room=6)
    assert_same(random_spheres(rng, (1, 3, 30)), Scene(scene_of(world).tables))


@pytest.mark.slow  # compiles all kernels
def test_without_vector_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled for any CPU of its kind, vectors are what the compiler makes of them."""
    plain = wp.Module("queries_of_any_cpu", None)
    plain.options.update(OPTIONS | {"cpu_compiler_flags": ""})
    for query in asked(0.02):
        for name in ("in_lanes", "kernel"):
            function, key = getattr(query, name).func, f"{query.name}_{name}"
            monkeypatch.setattr(query, name, wp.Kernel(function, key=key, module=plain))
    rng = np.random.default_rng(24)
    world = build([random_scene(rng, 12, padding=0.03)], CPU, room=12)
    cost, *_ = assert_same(random_walks(rng, (3, 20, 50), 0.03), scene_of(world))
    assert 0.02 < (cost > 0.0).float().mean() < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("far", [1.0, 100.0, 1000.0])
def test_a_million_spheres(far: float) -> None:
    rng = np.random.default_rng(int(far))
    for count in (1, 3, 9, 31, 40):
        world = MeshWorld(device=CPU, max_obstacles=64)
        middle = far * np.array([0.6, -0.5, 0.62])
        fill(world, rng, count, middle)
        spheres = random_spheres(rng, (1, 100, 700), 1.2)
        spheres[..., :3] += torch.from_numpy(middle).float()
        cost, *_ = assert_same(spheres, scene_of(world), eta=float(rng.uniform(0.0, 0.1)))
        assert (cost > 0.0).any()
