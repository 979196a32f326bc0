"""Ctrl-C in the middle of a launch: later launches are right, and nothing is still running."""

import signal
import threading
import time

import numpy as np
import pytest
import torch

from injected import interrupt_at
from warp_collision import Cuboid, MeshWorld, PointCloud, Sphere, sphere_cost
from warp_collision.launching.deferred_free import readers
from warp_collision.launching.launch import parallel_for

SPHERES = torch.from_numpy(np.random.default_rng(2).uniform(-0.6, 0.6, (4, 3, 7, 4))).float()


def test_launches_after_one_that_was_interrupted() -> None:
    """A kernel is recorded once, for all worlds and shapes: none is taken for another."""
    one, other = MeshWorld(device="cpu"), MeshWorld(n_envs=3, device="cpu")
    one.add("ball", Sphere(0.3), (0.1, 0.2, 0.1, 1, 0, 0, 0))
    other.add("box", Cuboid((0.3, 0.5, 0.2)), (0.2, 0.0, 0.1, 0.8, 0.1, 0, 0.2), env=2)
    env_index = torch.full((2,), 2, dtype=torch.int32)

    def few() -> torch.Tensor:
        return sphere_cost(SPHERES[:1, :, :2].contiguous(), one)

    def many() -> torch.Tensor:
        return sphere_cost(SPHERES[:2], other, env_index=env_index)

    expected = few(), many()
    with interrupt_at(np.inf, "launching") as lines:
        many()
    for line in range(1, lines.count + 1):
        assert torch.equal(few(), expected[0])
        with pytest.raises(KeyboardInterrupt), interrupt_at(line, "launching"):
            many()
        assert torch.equal(few(), expected[0]), f"line {line}"
        assert torch.equal(many(), expected[1]), f"line {line}"
        assert not readers, f"line {line}: whoever changes a world would wait for this launch"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_any_moment_leave_no_launch_that_others_wait_for() -> None:
    """Python itself chooses where a signal comes through, as it does with Ctrl-C."""
    world = MeshWorld(device="cpu")
    world.add(
        "cloud", PointCloud(np.random.default_rng(3).uniform(-0.3, 0.3, (50, 3)), radius=0.01)
    )
    spheres = SPHERES[:1, :1, :2].contiguous()
    expected = sphere_cost(spheres, world)
    interrupted = 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for delay in np.random.default_rng(4).uniform(1e-5, 1e-3, 500):
            deadline = time.monotonic() + 1.0
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                while time.monotonic() < deadline:
                    sphere_cost(spheres, world)
            except KeyboardInterrupt:
                interrupted += 1
            assert not readers
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 450
    assert torch.equal(sphere_cost(spheres, world), expected)
    world.update("cloud", torch.rand(50, 3))  # which waits for launches in progress


def test_threads_have_ended_when_an_interrupt_goes_on() -> None:
    running = threading.Semaphore(0)
    ended, begun = [], []

    def work(item: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert running.acquire(timeout=60.0)
            raise KeyboardInterrupt
        begun.append(item)
        running.release()
        time.sleep(0.05)
        ended.append(item)

    with pytest.raises(KeyboardInterrupt):
        parallel_for(work, range(1000), 3)
    assert begun
    assert sorted(ended) == sorted(begun)
    assert len(begun) < 1000
