"""All that a CUDA machine can tell: the tests that have a device, then all benchmarks.

Leaves what they print, and the results, in a folder. As a plugin of pytest it keeps the tests on
cuda; as a program of its own, which needs no package, it looks for a device.
"""

import argparse
import ctypes
import math
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results" / "gpu"
NO_DEVICE = "needs a CUDA device: NVIDIA's driver, libcuda, finds none"
# What the pinned wheel of Warp is built with, as `cuDriverGetVersion` counts.
CUDA_OF_WARP = 13000
OLD_DRIVER = (
    "needs NVIDIA's driver R580 or newer, for CUDA 13: below that torch may find a CUDA device, "
    "and Warp finds none; got one for CUDA {}.{}"
)
# Files that need a package that is missing must not keep the others from running; each test has a
# line of its own, for runs that are cut off.
TESTS = ("pytest", "-p", "benchmarks.gpu", "-m", "not slow", "-v", "--tb=short", "--durations=20")
ON_CUDA = ("--device", "cuda", "--write")
# What a stage runs, and its share of the time. What has never been measured comes first.
STAGES: dict[str, tuple[float, tuple[str, ...]]] = {
    "machine": (0.03, ("torch.utils.collect_env",)),
    "first-calls": (0.12, ("benchmarks", "device", "--cold", *ON_CUDA)),
    "device": (0.2, ("benchmarks", "device", *ON_CUDA)),
    "tests": (0.35, (*TESTS, "--continue-on-collection-errors")),
    "functions": (0.12, ("benchmarks", "functions", "--seconds", "1", *ON_CUDA)),
    "users": (0.09, ("benchmarks", "users", "--seconds", "1", *ON_CUDA)),
    "costs": (0.09, ("benchmarks", "costs", "--seconds", "1", *ON_CUDA)),
}
# Names of devices in tests: a GPU, and with --simulated what stands for one.
GPUS = ("cuda", "simulated")
# Folders of tests in the order in which a GPU is likely to find faults.
FIRST = ("launching", "queries", "costs", "robot", "world", "planning")


def n_devices() -> int:
    """How many CUDA devices the driver has."""
    return asked_of_driver("cuDeviceGetCount")


def asked_of_driver(function: str) -> int:
    """A number that NVIDIA's driver knows; 0 without a driver."""
    number = ctypes.c_int(0)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    return 0 if cuda.cuInit(0) or getattr(cuda, function)(ctypes.byref(number)) else number.value


def reason_against() -> str | None:
    """Why torch and Warp would not both run on a GPU here."""
    if not n_devices():
        return NO_DEVICE
    if (known := asked_of_driver("cuDriverGetVersion")) < CUDA_OF_WARP:
        return OLD_DRIVER.format(known // 1000, known % 1000 // 10)
    return None


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keeps tests whose device is a GPU, and those that say that they need CUDA; some go first."""

    def has_device(item: Any) -> bool:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        reasons = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]
        # A parameter may be an array, which compares by element.
        is_cuda = any(isinstance(value, str) and value in GPUS for value in parameters.values())
        return is_cuda or any("CUDA GPU" in reason for reason in reasons)

    others = [item for item in items if not has_device(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = sorted((item for item in items if has_device(item)), key=_rank)


def _rank(item: Any) -> int:
    """Where a test stands among the folders; the order within a folder stays."""
    folder = item.path.parent.name
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which stages, and for how long."""
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--minutes", type=float, default=8.0, help="for all stages (default 8)")


def run(options: Any) -> str:
    """What the stages ended with; each runs in any case, and results until its end are kept.

    A stage has its share of the time, and what the stages before it left of theirs.
    """
    from benchmarks.harness import Failed

    if reason := reason_against():
        raise Failed(reason, 2)
    folder = (options.write.parent if options.write else FOLDER).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    whole, left = sum(STAGES[stage][0] for stage in options.stages), 0.0
    for stage in options.stages:
        share, command = STAGES[stage]
        left += 60.0 * options.minutes * share / whole
        kept = [str(folder / stage)] if command[-1] == "--write" else []
        begin = time.monotonic()
        command = [sys.executable, "-m", *command, *kept]
        found[stage] = run_logged(command, folder / f"{stage}.txt", max(left, 1.0))
        left -= time.monotonic() - begin
    text = "; ".join(f"{stage}: {ending(status)}" for stage, status in found.items())
    text += f"; see {folder}"
    if any(found.values()):
        raise Failed(text)
    return text


def ending(status: int) -> str:
    """An exit status in words; a stage is killed when its time is over."""
    return "its time was over" if status == -signal.SIGKILL else f"exit status {status}"


def run_logged(command: list[str], log: Path, limit: float = math.inf) -> int:
    """Runs a command in the repository for some seconds, showing and keeping what it prints."""
    print("$", *command[1:], flush=True)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with log.open("w") as file, subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        timer = threading.Timer(min(limit, threading.TIMEOUT_MAX), process.kill)
        timer.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            print(line, end="", file=file, flush=True)
        timer.cancel()
    return process.returncode


if __name__ == "__main__":
    sys.exit(reason_against())
