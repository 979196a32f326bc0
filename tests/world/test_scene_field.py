"""The field of a world at rest: it changes no bit, and is void as soon as anything is written."""

from collections.abc import Callable, Iterator
from importlib.resources import files

import numpy as np
import pytest
import torch

import shapes
from cases import mostly_slow
from warp_collision import (
    Capsule,
    Cuboid,
    Cylinder,
    MeshWorld,
    RobotSpheres,
    Sphere,
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
from warp_collision.world import acceleration, scene_field
from warp_collision.world.scene_field import SceneField

Tensor = torch.Tensor
SOLIDS = (Cuboid((0.3, 0.2, 0.4)), Sphere(0.15), Capsule(0.1, 0.3), Cylinder(0.12, 0.25))
MESHES = ("torus", "robot_link", "icosphere")


def populate(world: MeshWorld, env: int, seed: int, names: tuple[str, ...] = MESHES) -> None:
    """Exact shapes and meshes at random poses in a cube of two metres, some of them padded."""
    rng = np.random.default_rng(seed)
    things = [*SOLIDS, *((m.vertices, m.faces) for m in map(shapes.mesh, names))]
    for index, thing in enumerate(things):
        padding = 0.03 * (index % 3)
        world.add(str(index), thing, shapes.random_pose(rng, 0.9), env, padding=padding)


def queries(count: int = 3_000) -> Tensor:
    """Paths (envs, horizon, n, 4) of spheres of several sizes within and around the cube."""
    rng = np.random.default_rng(5)
    centers = rng.uniform(-1.4, 1.4, (2, 1, count // 6, 3)) + rng.normal(
        scale=0.05, size=(2, 3, count // 6, 3)
    )
    radii = rng.uniform(0.0, 0.1, (2, 1, count // 6, 1)).repeat(3, axis=1)
    spheres = torch.tensor(np.concatenate((centers, radii), axis=-1), dtype=torch.float32)
    spheres[0, 0, :4] = torch.tensor(
        [
            [torch.nan, 0.0, 0.0, 0.1],
            [torch.inf, 0.0, 0.0, 0.1],
            [0.0, 0.0, 0.0, torch.nan],
            [9.0] * 4,
        ]
    )
    return spheres


def answers(world: MeshWorld, spheres: Tensor) -> list[Tensor]:
    """What every query says, with gradients."""
    leaf = spheres.clone().requires_grad_(True)
    envs = torch.arange(len(spheres), dtype=torch.int32) % world.n_envs
    found: list[Tensor] = []
    for cost in (sphere_cost, swept_sphere_cost):
        value = cost(leaf, world, activation_distance=0.05, env_index=envs)
        found += [value, *torch.autograd.grad(value.sum(), leaf)]
    found += [*clearance(spheres, world, env_index=envs)]
    found += [*clearance(spheres, world, max_distance=0.04, env_index=envs)]
    found += [*signed_distance(spheres[..., :3], world, env_index=envs)]
    for check in (in_collision, any_in_collision, swept_in_collision):
        found.append(check(spheres, world, env_index=envs))
    return [value.detach() for value in found]


def assert_equal(first: list[Tensor], second: list[Tensor]) -> None:
    for one, other in zip(first, second, strict=True):
        assert torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
        if one.is_floating_point():
            assert torch.equal(one.isnan(), other.isnan())


@pytest.fixture
def without_field(monkeypatch: pytest.MonkeyPatch) -> Callable[[MeshWorld, Tensor], list[Tensor]]:
    """Answers of the same world, whose field is not used."""

    def run(world: MeshWorld, spheres: Tensor) -> list[Tensor]:
        with monkeypatch.context() as patch:
            patch.setattr(SceneField, "fits", lambda *_: False)
            return answers(world, spheres)

    return run


def has_field(world: MeshWorld) -> bool:
    """Whether the next query uses a field."""
    acceleration = world._acceleration
    return acceleration.complete(acceleration._state.tables).field is not None


@pytest.fixture
def world() -> MeshWorld:
    """A prepared world of two envs."""
    made = MeshWorld(2, 16, "cpu")
    populate(made, 0, 1)
    populate(made, 1, 2, (*MESHES, "oven"))  # the last is open
    made.prepare()
    return made


def test_no_bit_changes(
    world: MeshWorld, without_field: Callable[[MeshWorld, Tensor], list[Tensor]]
) -> None:
    assert has_field(world)
    spheres = queries()
    found = answers(world, spheres)
    assert_equal(found, without_field(world, spheres))
    assert (found[0] > 0).any()
    assert (found[0] == 0).any()


def test_bounds_are_below_the_distance(world: MeshWorld) -> None:
    """And close to it where nothing is open, so that they are worth asking."""
    field = world._acceleration._state.field
    assert field is not None
    for env, (origin, edge, values) in enumerate(cells_of(field, world.n_envs)):
        rng = np.random.default_rng(7)
        index = rng.integers(0, values.shape[::-1], (4_000, 3))
        inside = index + rng.uniform(0.0, 1.0, index.shape)
        points = torch.tensor(origin + edge * inside, dtype=torch.float32)[None]
        truth = signed_distance(points, world, env_index=torch.tensor([env])).distance[0].numpy()
        bound = values[index[:, 2], index[:, 1], index[:, 0]]
        bound = bound - edge * np.linalg.norm(inside - index - 0.5, axis=1)
        clear = bound >= 0.0
        assert clear.mean() > 0.3
        assert (bound[clear] <= truth[clear]).all()
        if env == 0:
            assert (truth - bound < 2.0 * edge).all()


def cells_of(field: SceneField, n_envs: int) -> Iterator[tuple[np.ndarray, float, np.ndarray]]:
    """Origin, edge and values (nz, ny, nx) of the cells of each env."""
    from warp_collision.kernels.scene_walk import SceneField as Header

    kind = np.dtype(Header.numpy_dtype())
    data = field.buffer.numpy()
    headers = data[: n_envs * kind.itemsize].view(kind)
    for header in headers:
        begin = int(header["values"]) - field.buffer.data_ptr()
        shape = header["shape"][::-1]
        values = data[begin : begin + 4 * int(np.prod(shape))].view(np.float32)
        yield header["origin"].astype(float), float(header["cell"]), values.reshape(shape)


def write_past_torch(world: MeshWorld) -> None:
    world.mesh_from_world.numpy()[0, 1, 0] += 0.3


CHANGES: dict[str, Callable[[MeshWorld], object]] = {
    "pose": lambda w: w.set_pose("1", (0.1, 0.2, 0.3, 1, 0, 0, 0)),
    "poses": lambda w: w.set_poses(torch.tensor([[0.2, 0.1, 0, 1, 0, 0, 0.0]] * 7)),
    "tensor of poses": lambda w: w.mesh_from_world[0, 2, :3].add_(0.2),
    "past torch": write_past_torch,
    "data": lambda w: w.mesh_from_world.data[0, 2, :3].add_(0.2),
    "pose that is NaN": lambda w: w.mesh_from_world[0, 3, 0].fill_(torch.nan),
    "padding": lambda w: w.padding[0, 0].fill_(0.2),
    "padding past torch": lambda w: w.padding.numpy()[0].fill(0.2),
    "disabled": lambda w: w.enable("2", False),
    "added": lambda w: w.add("new", Sphere(0.5), (0.3, 0.3, 0.3, 1, 0, 0, 0)),
    "replaced": lambda w: w.add("3", Sphere(0.6), replace=True),
    "removed": lambda w: w.remove("0"),
    "cleared": lambda w: w.clear(0),
    "grown": lambda w: w.grow(3, 50),
}


@pytest.mark.parametrize("change", mostly_slow(CHANGES, [*CHANGES][::4]))
def test_any_change_makes_it_void_until_it_is_prepared_again(
    world: MeshWorld,
    without_field: Callable[[MeshWorld, Tensor], list[Tensor]],
    change: str,
) -> None:
    spheres = queries(600)
    before = answers(world, spheres)
    CHANGES[change](world)
    assert not has_field(world)
    after = answers(world, spheres)
    assert_equal(after, without_field(world, spheres))
    assert change == "grown" or not torch.equal(before[0], after[0])
    world.prepare()
    assert has_field(world)
    again = answers(world, spheres)
    assert_equal(again, without_field(world, spheres))


@pytest.mark.parametrize("tables", ["enabled", "enabled past torch"])
def test_what_is_enabled_counts(world: MeshWorld, tables: str) -> None:
    """A field of a world in which an obstacle is off says nothing of it when it comes back."""
    world.enable("1", False)
    world.prepare()
    assert has_field(world)
    spheres = queries(600)
    off = answers(world, spheres)
    if tables == "enabled":
        world.enable("1", True)
    else:
        world.enabled.numpy()[0, 1] = 1
    on = answers(world, spheres)
    assert (on[0][0] > off[0][0]).any()


def test_other_poses_are_not_looked_up_in_it(world: MeshWorld) -> None:
    spheres = queries(600)
    poses = torch.zeros(2, 16, 7)
    poses[..., 3] = 1.0
    envs = torch.arange(2, dtype=torch.int32)
    found = sphere_cost(spheres, world, poses=poses, env_index=envs)
    fresh = MeshWorld(2, 16, "cpu")
    populate(fresh, 0, 1)
    populate(fresh, 1, 2, (*MESHES, "oven"))
    expected = sphere_cost(spheres, fresh, poses=poses, env_index=envs)
    torch.testing.assert_close(found, expected, equal_nan=True)
    rows = poses.clone().requires_grad_(True)
    sphere_cost(spheres[1:], world, poses=rows, env_index=envs[1:]).sum().backward()
    assert rows.grad is not None
    assert rows.grad[1].any()


def test_a_world_far_from_the_origin_has_none() -> None:
    """There rounding may hide a contact, which costs NaN."""
    made = MeshWorld(2, 4, "cpu")
    made.add("far", SOLIDS[0], (3e3, 0, 0, 1, 0, 0, 0))
    made.add("near", SOLIDS[0], (0.1, 0, 0, 1, 0, 0, 0), env=1)
    made.prepare()
    spheres = torch.tensor([[[[3e3 + 0.2, 0.0, 0.0, 0.048]]], [[[0.9, 0.0, 0.0, 0.1]]]])
    cost = sphere_cost(spheres, made, activation_distance=1e-4, env_index=torch.tensor([0, 1]))
    assert cost[0].isnan().item()
    assert cost[1].item() == 0.0


def test_robots_get_the_same_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    robot = RobotSpheres(files("warp_collision.assets") / "panda" / "panda.urdf")
    made = MeshWorld(1, 16, "cpu")
    populate(made, 0, 3)
    poses = torch.stack([made.pose(name) for name in made.names()])
    poses[:, 0] += 1.0
    made.set_poses(poses)
    made.add("in the way", Sphere(0.1), (0.5, 0.2, 0.5, 1, 0, 0, 0))
    made.prepare()
    assert has_field(made)
    rng = np.random.default_rng(8)
    waypoints = rng.uniform((-1, -0.5, -0.5, -2, 0, 1, 0), (1, 0.8, 0.5, -1, 0, 2, 1), (20, 3, 7))
    path = torch.tensor(waypoints, dtype=torch.float32)

    def run() -> list[Tensor]:
        hit = joint_path_in_collision(path, robot, made)
        return [hit, configuration_in_collision(path, robot, made)]

    with_field, found = run(), joint_path_clearance(path, robot, made)
    monkeypatch.setattr(SceneField, "fits", lambda *_: False)
    assert_equal(with_field, run())
    expected = joint_path_clearance(path, robot, made)
    assert (found.lower <= expected.upper).all()
    assert (expected.lower <= found.upper).all()
    assert with_field[0].any()
    assert not with_field[0].all()


def crowd(count: int) -> MeshWorld:
    """A world of many obstacles that nobody prepared."""
    made = MeshWorld(1, count + 1, "cpu")
    rng = np.random.default_rng(11)
    for index in range(count):
        made.add(str(index), SOLIDS[index % 4], shapes.random_pose(rng, 1.5))
    return made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields begin after 1,000 spheres and grow by a cell for each."""
    monkeypatch.setattr(scene_field, "_PATIENCE", 1_000)
    monkeypatch.setattr(acceleration, "QUERIES_PER_CELL", 1)


@pytest.mark.usefixtures("soon")
def test_it_grows_among_many_obstacles_at_rest() -> None:
    """Queries pay for it, and all of them answer the same on the way."""
    made, spheres = crowd(40), queries(2_400)[1:]
    expected = answers(made, spheres)
    field = made._acceleration._state.field
    assert field is not None
    filled = []
    for _ in range(20):
        assert made._acceleration._state.field is field
        assert_equal(answers(made, spheres), expected)
        filled.append(field.is_filled)
    assert filled[-1]
    assert not filled[0]
    whole = crowd(40)
    whole.prepare()
    prepared = whole._acceleration._state.field
    assert prepared is not None
    (_, _, values), (_, _, at_once) = *cells_of(field, 1), *cells_of(prepared, 1)
    np.testing.assert_allclose(values, at_once, atol=1e-4)


@pytest.mark.usefixtures("soon")
def test_it_waits_longer_where_something_moves() -> None:
    made, spheres = crowd(40), torch.full((1, 1, 1_200, 4), 0.1)
    began = []
    for step in range(8):
        pose = torch.tensor([0.1 * step, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
        before = made._acceleration._state.field
        for _ in range(3):
            sphere_cost(spheres, made)
        began.append(made._acceleration._state.field is not before)
        made.set_pose("0", pose)
    assert began == [True, True, True, False, False, False, False, False]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("count", [5, 32])
def test_few_obstacles_do_without(count: int) -> None:
    """Their boxes are compared at once, which takes no longer than reading a field."""
    made, spheres = crowd(count), torch.full((1, 1, 5_000, 4), 0.1)
    for _ in range(3):
        sphere_cost(spheres, made)
    assert made._acceleration._state.field is None


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_written_while_it_grows_counts(
    without_field: Callable[[MeshWorld, Tensor], list[Tensor]], change: str
) -> None:
    made, spheres = crowd(40), queries(1_200)[:1]
    for _ in range(3):
        sphere_cost(spheres, made)
    assert has_field(made)
    if change != "poses":
        CHANGES[change](made)
    else:
        made.set_poses(torch.tensor([[0.2, 0.1, 0, 1, 0, 0, 0.0]] * 40))
    assert not has_field(made)
    assert_equal(answers(made, spheres), without_field(made, spheres))


@pytest.mark.usefixtures("soon")
def test_cells_that_are_not_filled_yet_tell_nothing() -> None:
    """Not even of a point at the very center of one."""
    made = MeshWorld(1, 40, "cpu")
    made.add("block", Cuboid((0.5, 0.5, 0.5)))
    for index, angle in enumerate(np.linspace(0.0, 6.0, 35)):
        place = (np.cos(angle), np.sin(angle), 0.9 if index % 2 else -0.9)
        made.add(str(index), Sphere(0.1), (*place, 1, 0, 0, 0))
    sphere_cost(torch.full((1, 1, 1_200, 4), 0.1), made)
    field = made._acceleration._state.field
    assert field is not None
    grid = field._unfilled[0][1]
    centers = []
    for axis in range(3):
        origin, scale = np.float32(grid.origin[axis]), np.float32(grid.per_metre)
        ideal = (origin + grid.cell * (np.arange(grid.shape[axis]) + 0.5)).astype(np.float32)
        # Those of which float32 finds that they are centers, and some ulps beside them.
        ulps = np.arange(-8, 9, dtype=np.float32)
        near = ideal[:, None] + ulps * np.spacing(ideal)[:, None]
        is_center = (near - origin) * scale % 1 == np.float32(0.5)
        found = near[is_center & (np.abs(near) < 0.24)]
        assert len(found) > 0
        centers.append(torch.from_numpy(found))
    points = torch.nn.functional.pad(torch.cartesian_prod(*centers)[:1_000], (0, 1))[None, None]
    assert in_collision(points, made).all()
    assert not field.is_filled
