"""Fixtures of the whole suite."""

import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_lines
import simulated_cuda
from simulated_cuda import ptx_kernels
from warp_collision.devices import GPUS

GPU_TYPES = [*(["cuda"] if torch.cuda.is_available() else []), simulated_cuda.NAME]

RECORDER = pytest.StashKey[gpu_lines.Recorder]()

# What runs on the simulated GPU: these folders in the slow part, these files in every run.
SIMULATED = ("costs", "kernels", "launching", "planning", "project", "queries", "robot", "world")
SIMULATED_ALWAYS = (
    *("costs/test_costs", "costs/test_warp_primitives_buffers"),
    *("launching/", "queries/test_cuda_graphs"),
    *("project/test_benchmarks_gpu", "world/test_padding", "world/test_parts"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The tests on the simulated GPU are runs of their own."""
    parser.addoption(
        "--simulated",
        action="store_true",
        help="the tests on the simulated GPU, and no others",
    )
    parser.addoption(
        "--ptx",
        choices=[*ptx_kernels.CONTRACTIONS],
        help="with --simulated: kernels run by the PTX that NVRTC writes for a GPU; in the second "
        "form the C compiler may fuse more multiplications and additions",
    )

    parser.addoption(
        "--gpu-lines",
        action="store_true",
        help="with --simulated: which lines of the package that only a GPU reaches were executed; "
        "a run of the whole suite fails if one was not",
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what only a GPU reaches, where that is asked for."""
    if (recorder := config.stash.get(RECORDER, None)) and not hasattr(config, "workerinput"):
        terminalreporter.section("lines of the host that only a GPU reaches")
        for line in recorder.report():
            terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Of chosen tests none may have a device; all of them reach all lines of a GPU."""
    config = session.config
    if config.getoption("--simulated") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
    recorder = config.stash.get(RECORDER, None)
    if recorder is None:
        return
    ran = recorder.stop()
    if hasattr(config, "workeroutput"):
        config.workeroutput["gpu_lines"] = ran
    elif exitstatus == pytest.ExitCode.OK and is_whole(config) and recorder.missing():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What a process of pytest-xdist has executed."""
    if recorder := node.config.stash.get(RECORDER, None):
        recorder.add(getattr(node, "workeroutput", {}).get("gpu_lines", {}))


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for, and the simulated GPU can be had."""
    of_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return of_all and not config.option.keyword and simulated_cuda.reason_against() is None


def pytest_configure(config: pytest.Config) -> None:
    """Divides torch's threads among the processes of pytest-xdist, which share a cache of fits."""
    if config.getoption("--gpu-lines"):
        config.stash[RECORDER] = gpu_lines.Recorder()
    if "WARP_COLLISION_CACHE" not in os.environ:
        folder = tempfile.TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        os.environ["WARP_COLLISION_CACHE"] = folder.name
    # Nobody waits here for what a first call compiles, and tests read what commands print.
    os.environ.setdefault("WARP_COLLISION_QUIET", "1")
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))


@pytest.fixture(params=["cpu", *GPU_TYPES])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device that tests run on: the CPU, a GPU where there is one, and a simulated one."""
    return chosen_device(request.param)


@pytest.fixture(params=[name for name in ("cpu", *GPU_TYPES) if name != simulated_cuda.NAME])
def real_device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, and a GPU where there is one: for other processes, which simulate none."""
    return chosen_device(request.param)


@pytest.fixture(params=GPU_TYPES)
def gpu(request: pytest.FixtureRequest) -> torch.device:
    """A GPU where there is one, and a simulated one."""
    return chosen_device(request.param)


@pytest.fixture
def cuda(gpu: torch.device) -> Any:
    """Torch's module of the GPU: `torch.cuda`, or what stands for it on the simulated one."""
    return GPUS[gpu.type]


def chosen_device(name: str) -> torch.device:
    """The device, with its index where it is a GPU; skips without a compiler."""
    if name == simulated_cuda.NAME and (reason := simulated_cuda.reason_against()):
        pytest.skip(reason)
    if ptx_kernels.is_used() and (reason := ptx_kernels.reason_against()):
        pytest.skip(reason)
    return torch.device(name) if name == "cpu" else torch.device(name, 0)


def is_simulated(item: pytest.Item) -> bool:
    """Whether a test runs on the simulated GPU."""
    callspec = getattr(item, "callspec", None)
    values = () if callspec is None else callspec.params.values()
    return any(isinstance(value, str) and value == simulated_cuda.NAME for value in values)


def is_generated(item: pytest.Item) -> bool:
    """Whether torch generates code for the device, which it cannot for the simulated GPU."""
    return "inductor" in item.name


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files unread that have no test on the simulated GPU in this run."""
    if not config.getoption("--simulated") or collection_path.suffix != ".py":
        return None
    always = config.option.markexpr == "not slow"
    return True if not runs_simulated(collection_path, always) else None


def runs_simulated(path: Path, always: bool) -> bool:
    """Whether tests of a file run on the simulated GPU: in every run, or in the slow part."""
    name = path.relative_to(Path(__file__).parent).as_posix()
    return name.startswith(SIMULATED_ALWAYS if always else tuple(f"{f}/" for f in SIMULATED))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage while modules are imported, and later seldom among what is old."""
    gc.disable()
    gc.set_threshold(700, 10, 100)
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves most tests on the simulated GPU to the slow part, and those elsewhere out.

    They run in processes of their own: with a GPU torch starts threads for gradients, after which a
    forked child takes none.
    """
    of_simulated = config.getoption("--simulated")
    kept = []
    for item in items:
        if is_simulated(item) != of_simulated:
            continue
        if of_simulated:
            if is_generated(item):
                continue
            if not runs_simulated(item.path, always=True):
                item.add_marker(pytest.mark.slow)
        kept.append(item)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Makes the device known before anything takes a gradient, as torch wants it.

    What is imported by then is never garbage: collections need not look at it.
    """
    gc.freeze()
    if any(map(is_simulated, session.items)) and simulated_cuda.reason_against() is None:
        simulated_cuda.install()
        ptx_kernels.use(session.config.getoption("--ptx"))
    if recorder := session.config.stash.get(RECORDER, None):
        recorder.start()


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
