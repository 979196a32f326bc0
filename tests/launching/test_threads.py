"""CPU threads: however the work is divided, every output element has one owner."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import trimesh

from warp_collision import MeshWorld, signed_distance, sphere_cost, swept_sphere_cost
from warp_collision.launching import launch


@pytest.fixture(autouse=True)
def many_small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divides even small launches, and gives torch its threads back."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(launch, "_MIN_PARALLEL_ITEMS", 1)
    monkeypatch.setattr(launch, "_MIN_PARALLEL_SECONDS", 0.0)
    monkeypatch.setattr(launch, "_MIN_ITEMS_PER_CHUNK", 1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("shape", [(5, 7, 11), (1, 32, 3), (1, 1, 60), (64, 1, 1), (1, 1, 1)])
def test_threads_change_no_bit(shape: tuple[int, int, int]) -> None:
    world = MeshWorld(device="cpu")
    world.add("ring", trimesh.creation.torus(0.4, 0.15))
    world.add("crate", trimesh.creation.box((0.5, 0.4, 0.3)), (0.3, 0.1, 0.2, 0.8, 0.1, 0.5, 0.2))
    spheres = torch.rand((*shape, 4), generator=torch.Generator().manual_seed(7)) * 1.2 - 0.6
    spheres[..., 3] = spheres[..., 3].abs() * 0.2

    def everything() -> list[torch.Tensor]:
        leaf = spheres.clone().requires_grad_()
        costs = [sphere_cost(leaf, world), swept_sphere_cost(leaf, world)]
        found = signed_distance(spheres[..., :3], world)
        sum(cost.sum() for cost in costs).backward()
        assert leaf.grad is not None
        return [*costs, leaf.grad, *found]

    torch.set_num_threads(1)
    alone = everything()
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        for one, many in zip(alone, everything(), strict=True):
            assert torch.equal(one, many)


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_no_thread_is_woken_for_little_work(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk tells how much there is to do."""
    woken = []
    workers = launch._workers

    def note(count: int) -> ThreadPoolExecutor:
        woken.append(count)
        return workers(count)

    monkeypatch.setattr(launch, "_workers", note)
    monkeypatch.setattr(launch, "_MIN_PARALLEL_SECONDS", seconds)
    torch.set_num_threads(2)
    world = MeshWorld(device="cpu")
    world.add("crate", trimesh.creation.box((0.5, 0.4, 0.3)))
    sphere_cost(torch.zeros(8, 8, 8, 4), world)
    assert bool(woken) == (seconds == 0.0)


# A process that forks while other threads query, and changes its world in the child.
_FORK = """
import os, signal, threading, time, warnings
import torch, trimesh
from warp_collision import MeshWorld, sphere_cost
from warp_collision.launching import deferred_free
warnings.simplefilter("ignore")  # newer Pythons warn of forks with threads
torch.set_num_threads(2)
spheres = torch.rand((64, 8, 32, 4), generator=torch.Generator().manual_seed(3))
world = MeshWorld(1, 4, "cpu")
world.add("ball", trimesh.creation.icosphere(3))
expected = sphere_cost(spheres, world)
busy = MeshWorld(1, 2, "cpu")
busy.add("ball", trimesh.creation.icosphere(3))
over = threading.Event()
def query():
    while not over.is_set():
        sphere_cost(spheres, busy)
threads = [threading.Thread(target=query) for _ in range(3)]
for thread in threads:
    thread.start()
for attempt in range(5):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for ever
        world.add("box", trimesh.creation.box((3.0, 3.0, 3.0)))
        more = sphere_cost(spheres, world)
        world.remove("box")
        same = torch.equal(sphere_cost(spheres, world), expected)
        is_freed = not deferred_free.retired
        os._exit(0 if same and is_freed and not torch.equal(more, expected) else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
over.set()
for thread in threads:
    thread.join()
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_other_threads_query() -> None:
    """Data loaders fork: the child has the worlds, and none of the threads that were reading."""
    done = subprocess.run(
        [sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.stdout.strip() == "done", done.stderr[-2000:]
