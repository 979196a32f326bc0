"""What a world holds: slots and names, one env beside the other."""

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from warp_collision import MeshWorld, signed_distance, sphere_cost
from worlds import (
    BALL,
    BOX,
    CUBE,
    SCENES,
    SHIFT,
    TILT,
    TURN,
    Held,
    assert_holds,
    build,
    probe,
    tables,
)


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """The world of `SCENES`."""
    return build(*SCENES, device=device)


# -- adding and replacing ------------------------------------------------------------------------


def test_tensors_of_a_world(world: MeshWorld, device: torch.device) -> None:
    assert_holds(world, *SCENES)
    assert (world.n_envs, world.max_obstacles) == (3, 4)
    assert world.device.type == device.type
    expected = [
        ((3, 4), torch.int64),
        ((3, 4, 8), torch.float32),
        ((3, 4), torch.uint8),
        ((3,), torch.int32),
    ]
    assert [(tuple(t.shape), t.dtype) for t in tables(world)] == expected
    assert all(t.device == world.device and t.is_contiguous() for t in tables(world))
    assert "5 meshes" in repr(world)
    costs = probe(world)
    assert [(costs[env] > 0.0).any().item() for env in range(3)] == [True, True, False]


def test_a_pose_is_stored_as_its_inverse(world: MeshWorld) -> None:
    world.set_pose("box", (1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0))  # half a turn about z
    expected = [1.0, 2.0, -3.0, 0.0, 0.0, 0.0, -1.0]
    np.testing.assert_allclose(world.mesh_from_world[0, 0, :7].tolist(), expected, atol=1e-7)


def test_add_returns_the_slot(device: torch.device) -> None:
    world = MeshWorld(2, 3, device)
    assert [world.add("a", BOX), world.add("b", BALL), world.add("c", BOX, env=1)] == [0, 1, 0]
    assert [world.names(env) for env in (0, 1)] == [["a", "b"], ["c"]]


def test_a_known_name_needs_replace(world: MeshWorld) -> None:
    with pytest.raises(ValueError, match=r"name must be new in env 0, got 'box'.*replace=True"):
        world.add("box", BALL)
    assert_holds(world, *SCENES)


def test_replacing_keeps_the_slot_and_changes_all_else(world: MeshWorld) -> None:
    before = world.mesh_ids.clone()
    assert world.add("box", CUBE, TURN, enabled=False, replace=True) == 0
    assert_holds(world, [Held("box", CUBE, TURN, False), SCENES[0][1]], *SCENES[1:])
    assert world.mesh_ids[0, 0] != before[0, 0]
    assert world.add("box", BALL, replace=True) == 0
    assert_holds(world, [Held("box", BALL), SCENES[0][1]], *SCENES[1:])


def test_replace_of_a_new_name_adds_it(world: MeshWorld) -> None:
    assert world.add("cube", CUBE, TILT, replace=True) == 2
    assert_holds(world, [*SCENES[0], Held("cube", CUBE, TILT)], *SCENES[1:])


def test_a_full_env(device: torch.device) -> None:
    world = build([Held("a", BOX), Held("b", BALL)], device=device, max_obstacles=2)
    with pytest.raises(ValueError, match=r"env 0 must have a free slot for 'c'.*2.*grow"):
        world.add("c", CUBE)
    assert_holds(world, [Held("a", BOX), Held("b", BALL)])
    world.add("b", CUBE, replace=True)
    assert_holds(world, [Held("a", BOX), Held("b", CUBE)])
    world.grow(max_obstacles=3)
    assert world.add("c", CUBE) == 2


def test_equal_content_is_stored_once(world: MeshWorld) -> None:
    world.add("same", (BALL.vertices.copy(), BALL.faces.astype(np.int32)), env=2)
    world.add("again", BALL.copy(), env=2)
    other = BALL.vertices.copy()
    other[0, 0] += 1e-6
    world.add("other", (other, BALL.faces), env=2)
    ids = world.mesh_ids.cpu()
    assert ids[2, 0] == ids[2, 1] == ids[0, 1] == ids[1, 0]
    assert ids[2, 2] != ids[2, 0]
    assert len({*ids[1, :3].tolist()}) == 3


# -- loading -------------------------------------------------------------------------------------


def scene_of(*held: Held) -> trimesh.Scene:
    """A trimesh scene with the poses in its graph."""
    scene = trimesh.Scene()
    for name, mesh, pose, _ in held:
        matrix = trimesh.transformations.quaternion_matrix(pose[3:])
        matrix[:3, 3] = pose[:3]
        scene.add_geometry(mesh, node_name=name, geom_name=name, transform=matrix)
    return scene


def loads(folder: Path) -> Iterator[tuple[Any, list[Held]]]:
    """Everything that `load` takes, and what the env must hold then."""
    arrays = (BALL.vertices, BALL.faces)
    path = folder / "cube.off"  # keeps vertices apart and exact
    path.write_text(CUBE.export(file_type="off", digits=9))
    yield {}, []
    yield {"cube": CUBE, "ball": arrays}, [Held("cube", CUBE), Held("ball", BALL)]
    yield {"b": (BALL, TURN), "a": (BOX, None)}, [Held("b", BALL, TURN), Held("a", BOX)]
    yield {"ball": (arrays, np.array(TILT))}, [Held("ball", BALL, TILT)]
    yield {"ball": [BALL, list(TILT)]}, [Held("ball", BALL, TILT)]
    yield {"cube": path, "c2": (str(path), TURN)}, [Held("cube", CUBE), Held("c2", CUBE, TURN)]
    yield {"ball": (BALL, torch.tensor(TILT, dtype=torch.float64))}, [Held("ball", BALL, TILT)]
    yield (
        scene_of(Held("b", BALL, TILT), Held("a", BOX, SHIFT)),
        [
            Held("b", BALL, TILT),
            Held("a", BOX, SHIFT),
        ],
    )
    yield trimesh.Scene(), []


@pytest.mark.parametrize("case", range(9))
@pytest.mark.parametrize("env", [0, 1, 2])
def test_load_replaces_what_the_env_held(
    case: int, env: int, world: MeshWorld, tmp_path: Path
) -> None:
    given, expected = list(loads(tmp_path))[case]
    world.load(given, env)
    scenes = list(SCENES)
    scenes[env] = expected
    assert_holds(world, *scenes, atol=1e-6)


BROKEN = (np.full((3, 3), np.nan), [[0, 1, 2]])


@pytest.mark.parametrize(
    "given",
    [
        {"a": CUBE, "b": BROKEN},
        {"a": CUBE, "b": (BALL, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))},
        {"a": CUBE, "b": "no-such-file.stl"},
        {"a": CUBE, "": BALL},
        {str(i): CUBE for i in range(5)},
    ],
    ids=["mesh", "pose", "path", "name", "too many"],
)
def test_a_failed_load_changes_nothing(given: dict[str, Any], world: MeshWorld) -> None:
    before = [t.clone() for t in tables(world)]
    with pytest.raises((ValueError, FileNotFoundError, TypeError)):
        world.load(given, env=1)
    assert all(map(torch.equal, tables(world), before))
    assert_holds(world, *SCENES)


def test_a_failed_add_changes_nothing(world: MeshWorld) -> None:
    before = [t.clone() for t in tables(world)]
    with pytest.raises(ValueError, match="finite"):
        world.add("box", BROKEN, replace=True)
    with pytest.raises(ValueError, match="quaternion"):
        world.add("new", CUBE, (0.0,) * 7)
    assert all(map(torch.equal, tables(world), before))
    assert_holds(world, *SCENES)


# -- removing, clearing, growing -----------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("by_name", [True, False])
def test_remove_moves_slots_up(index: int, by_name: bool, world: MeshWorld) -> None:
    world.remove(SCENES[1][index].name if by_name else index, env=1)
    rest = [held for i, held in enumerate(SCENES[1]) if i != index]
    assert_holds(world, SCENES[0], rest, SCENES[2])
    world.add("new", CUBE, SHIFT, env=1)
    assert_holds(world, SCENES[0], [*rest, Held("new", CUBE, SHIFT)], SCENES[2])


def test_queries_follow_a_removal(device: torch.device) -> None:
    far = [Held(f"m{i}", BALL, (2.0 * i, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)) for i in range(4)]
    world = build(far, device=device)
    centers = torch.tensor([[[2.0 * i, 0.0, 0.0] for i in range(4)]], device=device)
    assert signed_distance(centers, world).obstacle.tolist() == [[0, 1, 2, 3]]
    world.remove("m1")
    found = signed_distance(centers, world)
    assert [found.obstacle[0, i].item() for i in (0, 2, 3)] == [0, 1, 2]
    assert found.distance[0, 1] > 1.0
    world.set_pose("m3", (0.0, 5.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    assert signed_distance(centers, world).distance[0, 3] > 1.0


def test_clear(world: MeshWorld) -> None:
    world.clear(1)
    assert_holds(world, SCENES[0], [], [])
    world.add("box", BOX, env=1)
    world.clear()
    assert_holds(world, [], [], [])


@pytest.mark.parametrize(
    ("n_envs", "max_obstacles"), [(None, None), (3, 4), (5, None), (None, 9), (4, 6)]
)
def test_grow_keeps_everything(
    n_envs: int | None, max_obstacles: int | None, world: MeshWorld
) -> None:
    world.grow(n_envs, max_obstacles)
    assert (world.n_envs, world.max_obstacles) == (n_envs or 3, max_obstacles or 4)
    more: list[list[Held]] = [[] for _ in range(world.n_envs - 3)]
    assert_holds(world, *SCENES, *more)
    world.add("last", CUBE, TURN, env=world.n_envs - 1)
    scenes = [*SCENES, *more]
    scenes[-1] = [*scenes[-1], Held("last", CUBE, TURN)]
    assert_holds(world, *scenes)


@pytest.mark.parametrize(("key", "present"), [("n_envs", 3), ("max_obstacles", 4)])
def test_a_world_does_not_shrink(key: str, present: int, world: MeshWorld) -> None:
    message = rf"{key} must not shrink below {present}, got {present - 1}"
    with pytest.raises(ValueError, match=message):
        world.grow(**{key: present - 1})
    assert_holds(world, *SCENES)


CHANGES: dict[str, Callable[[MeshWorld], Any]] = {
    "add": lambda w: w.add("new", CUBE, env=1),
    "replace": lambda w: w.add("ball", CUBE, env=1, replace=True),
    "load": lambda w: w.load({"ball": (CUBE, SHIFT)}, env=1),
    "empty load": lambda w: w.load({}, env=1),
    "remove": lambda w: w.remove("ball", env=1),
    "clear": lambda w: w.clear(1),
    "set_pose": lambda w: w.set_pose("ball", SHIFT, env=1),
    "set_poses": lambda w: w.set_poses(torch.tensor([TURN] * 3, device=w.device), env=1),
    "enable": lambda w: w.enable("ball", False, env=1),
    "set_enabled": lambda w: w.set_enabled(torch.zeros(3, device=w.device).bool(), env=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_envs_never_change(change: str, world: MeshWorld) -> None:
    before = [t.clone() for t in tables(world)]
    costs = probe(world)
    CHANGES[change](world)
    for env in (0, 2):
        for now, then in zip(tables(world), before, strict=True):
            assert torch.equal(now[env], then[env])
        assert torch.equal(probe(world)[env], costs[env])
        assert world.names(env) == [held.name for held in SCENES[env]]
    assert not torch.equal(probe(world)[1], costs[1])


def test_tensors_are_the_same_objects_until_the_world_grows(world: MeshWorld) -> None:
    objects = tables(world)
    addresses = [t.data_ptr() for t in objects]
    for change in CHANGES.values():
        world.load({held.name: held.mesh for held in SCENES[1]}, env=1)
        change(world)
        assert all(now is then for now, then in zip(tables(world), objects, strict=True))
    assert [t.data_ptr() for t in tables(world)] == addresses
    world.grow(max_obstacles=5)
    assert all(now is not then for now, then in zip(tables(world), objects, strict=True))


def test_adding_from_several_threads(device: torch.device) -> None:
    world = MeshWorld(2, 32, device)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(world.add, f"m{i}", (BOX, BALL)[i % 2], env=i % 2) for i in range(48)]
        slots = [job.result() for job in jobs]
    assert sorted(slots[::2]) == sorted(slots[1::2]) == list(range(24))
    for env in range(2):
        assert sorted(world.names(env)) == sorted(f"m{i}" for i in range(env, 48, 2))
        assert [world.names(env)[slots[i]] for i in range(env, 48, 2)] == [
            f"m{i}" for i in range(env, 48, 2)
        ]
    assert world.n_meshes.tolist() == [24, 24]
    assert world.mesh_ids[0, :24].unique().numel() == 1


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [-1, 3, 100])
def test_env_out_of_range(env: int, world: MeshWorld) -> None:
    for call in (
        lambda: world.names(env),
        lambda: world.add("new", BOX, env=env),
        lambda: world.load({}, env),
        lambda: world.remove("box", env),
        lambda: world.clear(env),
        lambda: world.pose("box", env),
        lambda: world.set_pose("box", SHIFT, env),
        lambda: world.set_poses(torch.zeros(0, 7, device=world.device), env),
        lambda: world.enable("box", env=env),
        lambda: world.set_enabled(torch.zeros(0, device=world.device).bool(), env),
        lambda: world.report("box", env),
    ):
        with pytest.raises(IndexError, match=rf"env must be in \[0, 3\), got {env}"):
            call()
    assert_holds(world, *SCENES)


def test_names_of_a_world(world: MeshWorld) -> None:
    assert list(world) == list(dict.fromkeys(n for env in range(3) for n in world.names(env)))
    assert len(world) == sum(len(world.names(env)) for env in range(3))
    assert "box" in world
    assert "lamp" not in world
    assert 3 not in world
    empty = MeshWorld(device="cpu")
    assert (len(empty), list(empty), bool(empty)) == (0, [], True)


def test_unknown_names(world: MeshWorld) -> None:
    for call in (
        lambda n: world.remove(n),
        lambda n: world.pose(n),
        lambda n: world.set_pose(n, SHIFT),
        lambda n: world.enable(n),
        lambda n: world.report(n),
    ):
        with pytest.raises(KeyError, match=r"name must be one of env 0.*'box', 'ball'.*'cube'"):
            call("cube")
        for index in (-1, 2):
            with pytest.raises(IndexError, match=rf"index must be in \[0, 2\).*got {index}"):
                call(index)
    with pytest.raises(KeyError) as raised:
        world.pose("cube")
    assert str(raised.value).startswith("name must be one of env 0")  # without quotes
    with pytest.raises(KeyError, match="no meshes"):
        world.remove("box", env=2)
    assert_holds(world, *SCENES)


def unpickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, unpickled])
def test_a_copy_is_a_world_of_its_own(duplicate: Callable[[Any], Any], world: MeshWorld) -> None:
    twin = duplicate(world)
    assert type(twin) is MeshWorld
    assert_holds(twin, *SCENES)
    assert torch.equal(twin.mesh_from_world, world.mesh_from_world)
    twin.clear()
    assert_holds(world, *SCENES)


@pytest.mark.parametrize("when", ["made", "filled", "grown", "queried"])
def test_worlds_in_inference_mode(when: str, device: torch.device) -> None:
    """What is made there serves everywhere."""
    boxes = {f"box {i}": (BOX, (2.0 * i, 0, 0, 1, 0, 0, 0)) for i in range(14)}
    spheres = torch.zeros((1, 1, 1, 4), device=device)
    with torch.inference_mode(when == "made"):
        world = MeshWorld(max_obstacles=14, device=device)
    with torch.inference_mode(when == "filled"):
        world.load(boxes)
    with torch.inference_mode(when == "grown"):
        world.grow(max_obstacles=20)
    with torch.inference_mode(when == "queried"):
        expected = sphere_cost(spheres, world)
    world.prepare()
    world.add("small", CUBE, (100.0, 0, 0, 1, 0, 0, 0))
    leaf = spheres.clone().requires_grad_(True)
    cost = sphere_cost(leaf, world)
    cost.sum().backward()
    assert cost.item() == expected.item() > 0.0
    world.set_pose("box 0", (0, 0, 50, 1, 0, 0, 0))
    world.remove("small")
    assert sphere_cost(leaf, world).item() < expected.item()


@pytest.mark.parametrize("value", [None, [], 0.0, "off", float("nan")])
def test_what_is_no_bool_neither_enables_nor_disables(world: MeshWorld, value: object) -> None:
    """As from a file: None would read as off, and "off" as on."""
    world.add("kept", CUBE)
    with pytest.raises(TypeError, match="on must be a bool"):
        world.enable("kept", value)
    with pytest.raises(TypeError, match="enabled must be a bool"):
        world.add("new", CUBE, enabled=value)
    slot = world.names().index("kept")
    assert world.enabled[0, slot]
    world.enable("kept", np.bool_(False))
    assert not world.enabled[0, slot]
    world.enable("kept", 1)
    assert world.enabled[0, slot]
