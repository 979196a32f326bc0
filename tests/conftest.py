"""Fixtures of the whole suite."""

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest
import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def pytest_configure(config: pytest.Config) -> None:
    """Divides torch's threads among the processes of pytest-xdist, which share a cache of fits."""
    if "WARP_COLLISION_CACHE" not in os.environ:
        folder = tempfile.TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        os.environ["WARP_COLLISION_CACHE"] = folder.name
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device that tests run on: the CPU, and a GPU where there is one."""
    return torch.device(request.param)


@pytest.fixture(scope="module")
def quick_collections() -> Iterator[None]:
    """Garbage is looked for among what a module's tests make, not among all that torch has."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def two_threads() -> Iterator[None]:
    """At least two of torch's CPU threads, among which the kernels' work is divided."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(2, threads))
    yield
    torch.set_num_threads(threads)
