"""All that a CUDA machine can tell: the tests that have a device, then all benchmarks.

Leaves what they print, and the results, in a folder. As a plugin of pytest it keeps the tests on
cuda; as a program of its own, which needs no package, it looks for a device.
"""

import argparse
import ctypes
import math
import subprocess
import sys
import threading
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
# Files that need a package that is missing must not keep the others from running.
TESTS = ("pytest", "-p", "benchmarks.gpu", "-m", "not slow", "--durations=20")
STAGES = {
    "machine": ("torch.utils.collect_env",),
    "tests": (*TESTS, "--continue-on-collection-errors"),
    **{
        name: ("benchmarks", name, "--device", "cuda", "--write")
        for name in ("functions", "users", "costs")
    },
}


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
    """Keeps tests whose device is cuda, and those that say that they need CUDA."""

    def has_device(item: Any) -> bool:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        reasons = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]
        # A parameter may be an array, which compares by element.
        is_cuda = any(isinstance(value, str) and value == "cuda" for value in parameters.values())
        return is_cuda or any("CUDA GPU" in reason for reason in reasons)

    others = [item for item in items if not has_device(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if has_device(item)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which stages, and for how long."""
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--minutes", type=float, default=120.0, help="for a stage (default 120)")


def run(options: Any) -> str:
    """What the stages ended with; each runs in any case, and results until its end are kept."""
    from benchmarks.harness import Failed

    if reason := reason_against():
        raise Failed(reason, 2)
    folder = (options.write.parent if options.write else FOLDER).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for stage in options.stages:
        command = [*STAGES[stage], *([str(folder)] if STAGES[stage][-1] == "--write" else [])]
        file = folder / f"{stage}.txt"
        found[stage] = run_logged([sys.executable, "-m", *command], file, 60.0 * options.minutes)
    text = "; ".join(f"{stage}: exit status {status}" for stage, status in found.items())
    text += f"; see {folder}"
    if any(found.values()):
        raise Failed(text)
    return text


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
