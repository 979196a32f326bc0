"""Meshes live as long as anything may read them, and no longer."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
import warp as wp

from warp_collision import MeshWorld, sphere_cost
from warp_collision.devices import is_gpu
from warp_collision.launching import deferred_free
from warp_collision.launching.deferred_free import free_unread, launch_times, readers
from worlds import BALL, BOX, CUBE, Held, build

pytestmark = pytest.mark.usefixtures("quick_collections")


def living() -> set[int]:
    """Ids of the Warp meshes that were made in this module."""
    return {thing.id for thing in gc.get_objects() if type(thing) is wp.Mesh}


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Other tests' garbage shall not be freed in the middle of one."""
    gc.collect()


def begin_reading() -> int:
    """What a launch begins with."""
    began = next(launch_times)
    readers.add(began)
    return began


def end_reading(began: int) -> None:
    """What a launch ends with."""
    readers.discard(began)
    free_unread()


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """A box in slot 0 of env 0; a ball in slot 1, and in env 1 too; both with Warp meshes."""
    world = build(
        [Held("box", BOX), Held("ball", BALL)], [Held("ball", BALL)], device=device, max_obstacles=2
    )
    assert world.mesh_ids[0, 0] != world.mesh_ids[0, 1]  # whose first read makes that of the box
    return world


DROPS: dict[str, Callable[[MeshWorld], object]] = {
    "remove": lambda w: w.remove("box"),
    "replace": lambda w: w.add("box", CUBE, replace=True),
    "load": lambda w: w.load({"cube": CUBE}),
    "clear": lambda w: w.clear(0),
    "clear all": lambda w: w.clear(),
}


@pytest.mark.parametrize("drop", DROPS)
def test_a_dropped_mesh_is_freed(drop: str, world: MeshWorld) -> None:
    box = world.mesh_ids[0, 0].item()
    assert box in living()
    DROPS[drop](world)
    assert box not in living()
    assert not (world.mesh_ids == box).any()


def test_a_shared_mesh_lives_until_its_last_slot_is_empty(world: MeshWorld) -> None:
    ball = world.mesh_ids[0, 1].item()
    world.clear(0)
    assert ball in living()
    world.add("again", BALL)
    assert world.mesh_ids[0, 0].item() == ball
    world.remove("ball", env=1)
    assert ball in living()
    world.remove("again")
    assert ball not in living()


def test_growing_frees_and_doubles_nothing(world: MeshWorld) -> None:
    before = living()
    world.grow(n_envs=4, max_obstacles=8)
    assert living() == before
    world.clear()
    assert len(living()) == len(before) - 2


def test_a_failed_load_leaves_no_mesh_behind(world: MeshWorld) -> None:
    before = living()
    with pytest.raises(FileNotFoundError):
        world.load({"cube": CUBE, "missing": "no-such-file.stl"})
    assert living() == before


def test_a_world_takes_its_meshes_along(device: torch.device) -> None:
    MeshWorld(device=device)  # frees what tests before this one dropped on a GPU
    before = living()
    world = build([Held("ball", BALL)], device=device)
    assert len(living()) == len(before) + 1
    del world
    if is_gpu(device):
        MeshWorld(device=device)  # the next one waits for the device and frees what was dropped
    assert living() == before


@pytest.mark.parametrize("drop", DROPS)
def test_a_mesh_lives_while_a_launch_may_read_it(drop: str, world: MeshWorld) -> None:
    box = world.mesh_ids[0, 0].item()
    early = begin_reading()
    try:
        DROPS[drop](world)
        assert box in living()
        late = begin_reading()  # reads tables in which the mesh is gone
        try:
            end_reading(early)
            assert box not in living()
        finally:
            end_reading(late)
    finally:
        end_reading(early)


def test_each_launch_holds_what_was_dropped_after_it_began(world: MeshWorld) -> None:
    box, ball = world.mesh_ids[0].tolist()
    first = begin_reading()
    world.remove("box")
    second = begin_reading()
    world.clear()
    try:
        assert {box, ball} <= living()
        end_reading(second)
        assert {box, ball} <= living()
    finally:
        end_reading(second)
        end_reading(first)
    assert not {box, ball} & living()


def test_memory_is_flat(world: MeshWorld) -> None:
    before = living()
    for _ in range(50):
        world.add("box", CUBE, replace=True)
        world.add("box", BOX, replace=True)
        world.remove("box")
        world.load({"box": BOX, "ball": BALL})
    assert len(living()) == len(before)


def test_queries_while_another_thread_changes_the_world(world: MeshWorld) -> None:
    """The box comes and goes in front of the ball: the costs are those of one state or the other.

    Slots move up while the launch reads them, so a row may be seen half moved; it is never freed
    memory, and env 1 is never touched.
    """
    spheres = torch.tensor([[[[0.0, 0.0, 0.0, 0.1]]]], device=world.device).repeat(2, 1, 200, 1)
    envs = torch.tensor([0, 1], dtype=torch.int32, device=world.device)
    still = sphere_cost(spheres, world, env_index=envs)[1]
    stop = threading.Event()
    wrong: list[torch.Tensor] = []
    rounds = 0

    def query() -> None:
        nonlocal rounds
        while not stop.is_set():
            cost = sphere_cost(spheres, world, env_index=envs)
            if not torch.equal(cost[1], still) or not torch.isfinite(cost).all():
                wrong.append(cost)
            rounds += 1

    thread = threading.Thread(target=query)
    thread.start()
    try:
        turns = 0
        while turns < 100 or (rounds < 20 and thread.is_alive()):
            world.remove("box")
            world.add("box", BOX)
            world.load({"box": CUBE, "ball": BALL})
            turns += 1
    finally:
        stop.set()
        thread.join()
    assert rounds >= 20
    assert not wrong


# -- size of the process --------------------------------------------------------------------------

GROWTH = """
import gc, sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
import numpy as np, torch, trimesh
from warp_collision import MeshWorld, sphere_cost, swept_sphere_cost

def size():
    gc.collect()
    resident = Path("/proc/self/status")
    if resident.exists():
        return int(resident.read_text().split("VmRSS:")[1].split()[0]) / 1024.0
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024.0

cycles = int(sys.argv[2])
ball = trimesh.creation.icosphere(subdivisions=1, radius=0.2)
vertices, faces = np.asarray(ball.vertices), np.asarray(ball.faces)
world = MeshWorld(2, 16, sys.argv[1])
box = trimesh.creation.box((0.1, 0.1, 0.1))
for index in range(12):  # as many as make a tree
    world.add(f"kept {index}", box, (index, 0, 0, 1, 0, 0, 0))
random = torch.Generator().manual_seed(5)
spheres = (torch.rand((2, 2, 4, 4), generator=random) * 0.2).to(world.device)
sizes = []
for cycle in range(cycles):
    if cycle % (cycles // 5) == 0:
        sizes.append(size())
    for part in (0, 1):
        scale = 1.0 + 1e-5 * (2 * cycle + part)  # never the same geometry
        world.add("comes", (vertices * scale, faces), replace=True)
        assert (sphere_cost(spheres, world) > 0.0).all()
    world.set_pose("comes", (0.0, 0.0, 1e-4 * (cycle % 7), 1, 0, 0, 0))
    assert (swept_sphere_cost(spheres, world) > 0.0).all()
    world.remove("comes")
    try:
        world.add("comes", (vertices * 0.0, faces))
    except ValueError:
        pass
sizes.append(size())
print(*sizes)
"""


def sizes_over(cycles: int, device: torch.device) -> list[float]:
    """Sizes of a process [MB] at each fifth of some cycles of adding, asking and removing.

    A process of its own: what other tests have freed would hide what this one leaks.
    """
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(device), str(cycles)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()[-6:]]


@pytest.mark.slow
def test_the_process_does_not_grow(real_device: torch.device) -> None:
    """The last 60 of 75 cycles add 120 meshes; leaked they would be 2 MB."""
    sizes = sizes_over(75, real_device)
    assert sizes[-1] - sizes[1] < 1.5, sizes


@pytest.mark.slow
def test_the_process_does_not_grow_over_many_cycles(real_device: torch.device) -> None:
    sizes = sizes_over(10_000, real_device)
    print(f"memory: 10000 cycles of two meshes each, MB at each fifth: {sizes}")
    assert sizes[-1] - sizes[1] < 3.0, sizes


# -- what a GPU would be asked to wait for --------------------------------------------------------


class Thing:
    """Something that a launch may read."""


class FakeGpu:
    """Counts who waits for it."""

    device = torch.device("cuda", 0)

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.waits = 0
        self.captures = False
        monkeypatch.setattr(torch.cuda, "synchronize", self._wait)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.captures)

    def _wait(self, _: torch.device) -> None:
        assert not self.captures, "waiting ends a capture"
        self.waits += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A GPU that is not there."""
    return FakeGpu(monkeypatch)


def test_what_an_owner_held_waits_for_the_device(gpu: FakeGpu) -> None:
    owner, held = Thing(), [Thing()]
    seen = []
    weakref.finalize(held[0], lambda: seen.append(gpu.waits))
    deferred_free.free_with(owner, held, gpu.device)
    del held, owner
    # The garbage collector waits for nothing: another thread may be capturing a graph.
    assert (seen, gpu.waits) == ([], 0)
    deferred_free.free_with(Thing(), [], gpu.device)
    assert seen == [1]


def test_nothing_waits_while_a_graph_is_captured(gpu: FakeGpu) -> None:
    owner, held, read = Thing(), [Thing()], Thing()
    alive = weakref.ref(held[0]), weakref.ref(read)
    deferred_free.free_with(owner, held, gpu.device)
    token = begin_reading()
    deferred_free.retire([read], gpu.device)
    del held, read
    gpu.captures = True
    end_reading(token)
    del owner
    assert all(thing() is not None for thing in alive)
    gpu.captures = False
    waits = gpu.waits
    end_reading(begin_reading())
    assert gpu.waits > waits
    assert all(thing() is None for thing in alive)
